//! `./x chaos`: builds the library with failpoints, runs `tests/chaos` and notes the results.
//!
//! That library must never be released: `gradle dist` refuses it, and after it was built the normal
//! one is built again in its place.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::Failure;
use crate::results::{Case, Outcome, cases_from_junit};
use crate::run::{Log, root};
use crate::tools;

/// Text that only a library with failpoints has in it.
const MARKER: &[u8] = b"FRAZIL_FAILPOINTS";
const RESULTS: &str = "docs/chaos-results.md";

/// What was asked for on the command line.
#[derive(Default)]
pub(crate) struct Wanted {
    pub(crate) all: bool,
    pub(crate) scenario: Option<String>,
    pub(crate) minutes: Option<String>,
    pub(crate) pytest: Vec<String>,
}

fn released() -> PathBuf {
    root().join("target/release/libfrazil.so")
}

/// Where the library with failpoints is laid.
fn library() -> PathBuf {
    root().join("build/chaos/libfrazil.so")
}

fn has_failpoints(library: &PathBuf) -> Result<bool, Failure> {
    let bytes =
        fs::read(library).map_err(|error| format!("cannot read {}: {error}", library.display()))?;
    Ok(bytes.windows(MARKER.len()).any(|window| window == MARKER))
}

/// Builds the library with failpoints, and the normal one again behind it.
pub(crate) fn build(log: &Log) -> Result<bool, Failure> {
    let mut cut = tools::cargo(&["build", "--release", "--workspace"]);
    let built = log.run(cut.args(["--features", "frazil-jni/failpoints"]))?;
    let kept = built && keep();
    // Cargo may take the file that the other build left for its own.
    for stale in [released(), root().join("target/release/deps/libfrazil.so")] {
        if stale.exists() {
            fs::remove_file(&stale)
                .map_err(|error| format!("cannot remove {}: {error}", stale.display()))?;
        }
    }
    let restored = log.run(&mut tools::cargo(&["build", "--release", "--workspace"]))?;
    if has_failpoints(&released())? {
        return Err("the library that would be released has failpoints".to_owned());
    }
    if !kept {
        log.line("the library with failpoints was not built, or has none")?;
    }
    Ok(kept && restored)
}

fn keep() -> bool {
    let kept = library();
    let folder = kept.parent().map_or(Ok(()), fs::create_dir_all);
    let fresh = kept.with_extension("new");
    // Renamed, not overwritten: a worker may have the old one mapped.
    folder.is_ok()
        && fs::copy(released(), &fresh).is_ok()
        && fs::rename(&fresh, &kept).is_ok()
        && has_failpoints(&kept).unwrap_or(false)
}

/// Runs the scenarios and tells whether all went well.
pub(crate) fn run(wanted: &Wanted) -> Result<bool, Failure> {
    println!("building the library with failpoints (build/logs/failpoints.log)");
    if !build(&Log::quiet("failpoints")?)? {
        return Err("it was not built".to_owned());
    }
    println!("building the plugin (build/logs/dist.log)");
    if !tools::dist(&Log::quiet("dist")?)? || !tools::bed(&Log::quiet("bed")?)? {
        return Err("plugin or bed is missing: see build/logs".to_owned());
    }
    let report = root().join("build/chaos.xml");
    if report.exists() {
        fs::remove_file(&report).map_err(|error| format!("cannot remove a report: {error}"))?;
    }
    let mut command = Command::new(tools::python());
    command
        .args(["-m", "pytest", "-v", "-c", "tests/pytest.ini"])
        .args(["--rootdir=tests", "tests/chaos"])
        .arg(format!("--junitxml={}", report.display()))
        .args(&wanted.pytest)
        .env("PYTHONUNBUFFERED", "1");
    if wanted.all || wanted.scenario.is_some() || wanted.minutes.is_some() {
        command.arg("--all");
    }
    match (&wanted.scenario, &wanted.minutes) {
        (Some(scenario), _) => {
            command.args(["-k", scenario]);
        }
        (None, Some(_)) => {
            command.args(["-k", "swarm"]);
        }
        (None, None) => {}
    }
    if let Some(minutes) = &wanted.minutes {
        command.env("FRAZIL_CHAOS_MINUTES", minutes);
    }
    let good = Log::open("chaos")?.run(&mut command)?;
    let xml =
        fs::read_to_string(&report).map_err(|error| format!("pytest left no report: {error}"))?;
    let cases = cases_from_junit(&xml);
    let bad = cases.iter().filter(|case| case.outcome == Outcome::Failed);
    println!("{} scenarios, {} bad", cases.len(), bad.count());
    if wanted.all && wanted.scenario.is_none() && wanted.pytest.is_empty() {
        write(&cases)?;
    }
    Ok(good)
}

/// Writes what the run showed.
fn write(cases: &[Case]) -> Result<(), Failure> {
    let path = root().join(RESULTS);
    fs::write(&path, page(cases, &today()?, &machine()))
        .map_err(|error| format!("cannot write {RESULTS}: {error}"))
}

fn page(cases: &[Case], date: &str, machine: &str) -> String {
    let count = |outcome| cases.iter().filter(|case| case.outcome == outcome).count();
    let mut lines = vec![
        "# Results of the chaos runs".to_owned(),
        String::new(),
        "Written by `./x chaos --all`. Each scenario ends with the check for exactly once: every".to_owned(),
        "offset in the table one time, none missing, `frazil verify` clean, lag 0. What each scenario"
            .to_owned(),
        "stands for is in [exactly-once.md](exactly-once.md).".to_owned(),
        String::new(),
        format!(
            "{date}, {machine}: {} good, {} bad, {} left out.",
            count(Outcome::Passed),
            count(Outcome::Failed),
            count(Outcome::Skipped)
        ),
        String::new(),
        "| scenario | seconds | result |".to_owned(),
        "|---|---|---|".to_owned(),
    ];
    for case in cases {
        let result = match case.outcome {
            Outcome::Passed => "ok",
            Outcome::Failed => "FAILED",
            Outcome::Skipped => "left out",
        };
        lines.push(format!(
            "| `{}` | {:.0} | {result} |",
            case.name, case.seconds
        ));
    }
    lines.join("\n") + "\n"
}

/// Reads the results that were written last: full name of the case and how it ended, and the date.
pub(crate) fn last() -> Result<(String, Vec<(String, String)>), Failure> {
    let path = root().join(RESULTS);
    if !path.exists() {
        return Ok((String::new(), Vec::new()));
    }
    let text =
        fs::read_to_string(&path).map_err(|error| format!("cannot read {RESULTS}: {error}"))?;
    Ok(read(&text))
}

fn read(text: &str) -> (String, Vec<(String, String)>) {
    let date = text
        .lines()
        .find(|line| line.contains(" good, "))
        .and_then(|line| line.split(',').next())
        .unwrap_or_default();
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split('|').map(str::trim);
        let name = cells.next()?.strip_suffix('`')?.to_owned();
        Some((name, cells.nth(1)?.to_owned()))
    });
    (date.to_owned(), rows.collect())
}

fn today() -> Result<String, Failure> {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_err(|_| "the clock is before 1970".to_owned())?;
    let days = i64::try_from(since.as_secs() / 86_400).map_err(|error| error.to_string())?;
    Ok(date(days))
}

/// The day that is `days` after 1970-01-01.
fn date(days: i64) -> String {
    // Years begin in March here, so that the leap day is the last one.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kilobytes / (1 << 20))
    });
    match memory {
        Some(gigabytes) => format!("{cores} cores, {gigabytes} GiB"),
        None => format!("{cores} cores"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_786, "2026-11-29"),
        ] {
            assert_eq!(date(days), expected);
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let cases = [
            Case {
                name: "test_a[7-x]".to_owned(),
                seconds: 3.4,
                outcome: Outcome::Passed,
            },
            Case {
                name: "test_b".to_owned(),
                seconds: 1.0,
                outcome: Outcome::Failed,
            },
        ];
        let (date, rows) = read(&page(&cases, "2026-11-29", "2 cores, 24 GiB"));
        assert_eq!(date, "2026-11-29");
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(rows, [pair("test_a[7-x]", "ok"), pair("test_b", "FAILED")]);
    }
}
