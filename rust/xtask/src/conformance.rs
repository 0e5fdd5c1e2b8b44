//! `./x conformance`: records in, tables out, as the data files of `tests/conformance` say.
//!
//! The runner is a Java program of the test bed; it calls the connector and its tasks as Connect
//! does, in one JVM, and reads the tables with Iceberg's Java library.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use crate::Failure;
use crate::results::{Outcome, TestResult};
use crate::run::{Log, root};

const CASES: &str = "tests/conformance";
const RUNNER: &str = "build/bed/conformance";
const RANDOM: &str = "build/conformance";
/// Cases at random that the tests run, always the same.
const RANDOM_CASES: usize = 400;
const PEER_PAGE: &str = "docs/conformance-peer.md";

/// The formats of bytes that cases can be run in.
pub(crate) const FORMATS: [&str; 4] = ["json", "avro", "protobuf", "json-schema"];

/// What was asked for on the command line.
#[derive(Default)]
pub(crate) struct Wanted {
    /// Files or folders of cases; without any, all of the repository.
    pub(crate) cases: Vec<PathBuf>,
    /// A word of the file or name of the cases to run.
    pub(crate) only: Option<String>,
    /// Prints which source types were tried on which column types.
    pub(crate) coverage: bool,
    /// Tells how long each case took.
    pub(crate) verbose: bool,
    /// Delivers values as bytes of these formats, one after the other, that the native library
    /// decodes, where cases have such a form.
    pub(crate) native: Vec<String>,
    /// Runs them through Apache Iceberg's sink and writes the page that compares.
    pub(crate) peer: bool,
    /// Runs so many cases with schemas and values at random.
    pub(crate) random: Option<usize>,
    /// What these are made from; without it, the time.
    pub(crate) seed: Option<u64>,
}

/// Runs the cases and tells whether all went well. The plugin is built first if it is not there.
pub(crate) fn run(wanted: &Wanted) -> Result<bool, Failure> {
    let log = Log::open("conformance")?;
    run_all(wanted, &log)
}

/// Runs the cases as values, or once in each of the formats that are wanted.
fn run_all(wanted: &Wanted, log: &Log) -> Result<bool, Failure> {
    if wanted.native.is_empty() {
        return log.run(&mut command(wanted, None)?);
    }
    let mut good = true;
    for format in &wanted.native {
        good &= log.run(&mut command(wanted, Some(format.as_str()))?)?;
    }
    Ok(good)
}

/// Runs all cases; for the tests, with the coverage as a part of it.
pub(crate) fn all(log: &Log) -> Result<(bool, Vec<TestResult>), Failure> {
    let wanted = Wanted {
        coverage: true,
        ..Wanted::default()
    };
    let good = run_all(&wanted, log)?;
    let natively = Wanted {
        native: FORMATS.map(str::to_owned).into(),
        ..Wanted::default()
    };
    let good_natively = run_all(&natively, log)?;
    let at_random = Wanted {
        random: Some(RANDOM_CASES),
        seed: Some(1),
        ..Wanted::default()
    };
    let good_at_random = run_all(&at_random, log)?;
    let good = good && good_natively && good_at_random;
    Ok((good, results(&log.lines()?)))
}

fn command(wanted: &Wanted, format: Option<&str>) -> Result<Command, Failure> {
    let runner = root().join(RUNNER);
    if !runner.join("classes").is_dir() {
        return Err(format!("{RUNNER} is missing: run ./x bed"));
    }
    let java = env::var_os("JAVA_HOME").map_or_else(
        || PathBuf::from("java"),
        |home| Path::new(&home).join("bin/java"),
    );
    let mut command = Command::new(java);
    command.args([
        "-Xmx512m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        // What the sink logs about records that do not fit is what the cases expect.
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
    ]);
    let mut path = OsString::from(runner.join("classes"));
    let mut parts = vec![runner.join("*")];
    let mut comparison = Vec::new();
    if wanted.peer {
        let (version, libraries) = peer()?;
        parts.push(libraries.join("*"));
        comparison.extend([OsString::from("--peer"), root().join(PEER_PAGE).into()]);
        comparison.extend([OsString::from("--peer-version"), version.into()]);
    } else {
        parts.push(plugin()?);
    }
    for part in parts {
        path.push(":");
        path.push(part);
    }
    command
        .arg("-cp")
        .arg(path)
        .arg("io.frazil.conformance.Conformance");
    command.args(comparison);
    if let Some(library) = env::var_os("FRAZIL_LIBRARY") {
        command.arg("--library").arg(library);
    }
    if let Some(word) = &wanted.only {
        command.args(["--only", word]);
    }
    if wanted.coverage {
        command
            .arg("--coverage")
            .arg(root().join(CASES).join("types.json"));
    }
    if let Some(format) = format {
        command.args(["--native", format]);
    }
    if wanted.verbose {
        command.arg("--verbose");
    }
    match wanted.random {
        Some(count) => {
            command.arg(at_random(count, wanted.seed)?);
        }
        None if wanted.cases.is_empty() => {
            command.arg(root().join(CASES));
        }
        None => {}
    }
    for case in &wanted.cases {
        command.arg(called_from()?.join(case));
    }
    Ok(command)
}

/// Writes cases at random and returns their file.
fn at_random(count: usize, seed: Option<u64>) -> Result<PathBuf, Failure> {
    let now = || {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    };
    let seed = seed.unwrap_or_else(now);
    let file = root().join(RANDOM).join(format!("random-{seed}.json"));
    let python = env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    let mut writing = Command::new(python);
    writing
        .arg(root().join(CASES).join("generate_random.py"))
        .args(["--seed", &seed.to_string(), "--cases", &count.to_string()])
        .arg(&file);
    match writing.status() {
        Ok(status) if status.success() => Ok(file),
        Ok(status) => Err(format!("generate_random.py ended with {status}")),
        Err(error) => Err(format!("generate_random.py cannot be run: {error}")),
    }
}

/// Returns the peer's newest version in the bed, and where its libraries are.
fn peer() -> Result<(String, PathBuf), Failure> {
    let mut found: Vec<(String, PathBuf)> = fs::read_dir(root().join("build/bed"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let version = name.strip_prefix("peer-")?;
            // Not `peer-s3-…`, the libraries that it needs for S3.
            let is_version = version.starts_with(|first: char| first.is_ascii_digit());
            is_version.then(|| (version.to_owned(), entry.path()))
        })
        .collect();
    found.sort();
    let missing = "the peer is not in build/bed: run gradle --no-daemon :bed:peerLibraries";
    found.pop().ok_or_else(|| missing.to_owned())
}

/// Returns the folder that paths on the command line are meant from.
fn called_from() -> Result<PathBuf, Failure> {
    match env::var_os("FRAZIL_CALLED_FROM") {
        Some(folder) => Ok(PathBuf::from(folder)),
        None => env::current_dir().map_err(|error| format!("there is no current folder: {error}")),
    }
}

/// Returns the JAR: `FRAZIL_JAR`, or the one in `build/dist`.
fn plugin() -> Result<PathBuf, Failure> {
    if let Some(given) = env::var_os("FRAZIL_JAR") {
        return Ok(PathBuf::from(given));
    }
    let folder = root().join("build/dist");
    let jars: Vec<PathBuf> = fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "jar"))
        .collect();
    match jars.as_slice() {
        [jar] => Ok(jar.clone()),
        found => Err(format!(
            "{} JARs are in build/dist: run ./x dist",
            found.len()
        )),
    }
}

/// Reads the lines `case FILE: NAME ... ok`.
fn results(lines: &[String]) -> Vec<TestResult> {
    let mut results = Vec::new();
    for line in lines {
        let case = line
            .strip_prefix("case ")
            .and_then(|l| l.rsplit_once(" ... "));
        if let Some((name, verdict)) = case {
            let outcome = match verdict.starts_with("ok") {
                true => Outcome::Passed,
                false => Outcome::Failed,
            };
            results.push(TestResult {
                name: name.to_owned(),
                outcome,
            });
        }
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_counts_with_its_verdict() {
        let lines = [
            "case types/a.json: int32 into long ... ok",
            "case types/a.json: a ... b ... FAILED  12 ms",
            "    db.t lacks {v=1}",
            "1 passed, 1 failed",
        ]
        .map(str::to_owned);
        let results = results(&lines);
        let outcomes: Vec<_> = results
            .iter()
            .map(|r| (r.name.as_str(), r.outcome))
            .collect();
        assert_eq!(
            outcomes,
            [
                ("types/a.json: int32 into long", Outcome::Passed),
                ("types/a.json: a ... b", Outcome::Failed),
            ]
        );
    }
}
