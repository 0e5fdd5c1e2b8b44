//! `./x fuzz`: feeds bytes that libFuzzer makes up to everything that reads bytes.
//!
//! The programs are a workspace of their own in `fuzz/`, with a target folder of their own, for they
//! are instrumented. A stable compiler does: what is read by safe code needs no sanitizer, and the
//! programs count their memory themselves.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::Failure;
use crate::run::{Log, root};
use crate::tools;

/// The programs; those of `frazil_core::fuzz::Target`.
const TARGETS: [&str; 8] = [
    "json",
    "json-envelope",
    "avro",
    "protobuf",
    "json-schema",
    "framing",
    "wire",
    "schema",
];

/// What libFuzzer needs to see which branches an input takes.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                     -Cllvm-args=-sanitizer-coverage-pc-table \
                     -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";

/// The longest input in bytes.
const INPUT_BYTES_MAX: usize = 4_096;
/// Seconds that one input may take.
const INPUT_SECONDS_MAX: usize = 10;
/// Megabytes of a whole program, with all the inputs that it keeps.
const PROGRAM_MEGABYTES_MAX: usize = 1_024;

/// What was asked for on the command line.
#[derive(Default)]
pub(crate) struct Wanted {
    /// Names of targets; without any, all.
    pub(crate) targets: Vec<String>,
    /// How long each runs.
    pub(crate) minutes: Option<String>,
}

/// Builds the programs and runs those that are wanted one after the other.
pub(crate) fn run(wanted: &Wanted) -> Result<bool, Failure> {
    for name in &wanted.targets {
        if !TARGETS.contains(&name.as_str()) {
            return Err(format!("no target `{name}`: {}", TARGETS.join(" ")));
        }
    }
    let minutes = wanted.minutes.as_deref().unwrap_or("1");
    let minutes: f64 = minutes
        .parse()
        .map_err(|_| format!("--minutes {minutes}: not a number"))?;
    let log = Log::open("fuzz")?;
    let host = host()?;
    let folder = target_folder();
    let mut build = tools::cargo(&["build", "--release", "--manifest-path", "fuzz/Cargo.toml"]);
    // With a target named, build scripts and macros are not instrumented.
    build
        .args(["--target", &host])
        .env("CARGO_TARGET_DIR", &folder)
        .env("CARGO_INCREMENTAL", "0")
        .env("RUSTFLAGS", FLAGS);
    if !log.run(&mut build)? {
        return Ok(false);
    }
    let programs = folder.join(host).join("release");
    let mut good = true;
    for target in TARGETS {
        if wanted.targets.is_empty() || wanted.targets.iter().any(|name| name == target) {
            log.line(&format!("fuzz {target}: {minutes} minutes"))?;
            good &= one(&programs, target, minutes, &log)?;
        }
    }
    Ok(good)
}

/// Runs one program. What it finds good for later runs goes to `build/fuzz`, what breaks it too.
fn one(programs: &std::path::Path, target: &str, minutes: f64, log: &Log) -> Result<bool, Failure> {
    let kept = root().join("build/fuzz").join(target);
    let found = root().join("build/fuzz/found");
    for folder in [&kept, &found] {
        fs::create_dir_all(folder)
            .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    }
    let seconds = (minutes * 60.0).round();
    let good = log.run(
        Command::new(programs.join(target))
            .arg(&kept)
            .arg(root().join("fuzz/inputs").join(target))
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-max_len={INPUT_BYTES_MAX}"))
            .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
            .arg(format!("-rss_limit_mb={PROGRAM_MEGABYTES_MAX}"))
            .arg(format!("-artifact_prefix={}/{target}-", found.display()))
            .arg("-print_final_stats=1"),
    )?;
    if !good {
        log.line(&format!(
            "fuzz {target}: an input in build/fuzz/found breaks it: correct that, and put the input into \
             fuzz/inputs/{target}, where every test run tries it again"
        ))?;
    }
    Ok(good)
}

fn target_folder() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| root().join("target")).join("fuzz")
}

/// Returns the name of this machine's platform.
fn host() -> Result<String, Failure> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let told = Command::new(rustc).arg("-vV").output();
    let told = told.map_err(|error| format!("cannot run rustc: {error}"))?;
    let told = String::from_utf8_lossy(&told.stdout);
    let host = told.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| "rustc does not tell its host".to_owned())
}
