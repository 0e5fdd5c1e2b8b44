//! `./x chaos`: builds the library with failpoints, runs `tests/chaos` and notes the results.
//!
//! That library must never be released: `gradle dist` refuses it, and after it was built the normal
//! one is built again in its place.

use std::fs;
use std::path::{Path, PathBuf};
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
    /// Takes the library and the plugin as they are.
    pub(crate) built: bool,
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

/// Notes what a report of pytest says, of a run that was made without this program.
pub(crate) fn note(report: &str) -> Result<(), Failure> {
    let xml =
        fs::read_to_string(report).map_err(|error| format!("cannot read {report}: {error}"))?;
    write(&cases_from_junit(&xml), false)
}

/// Runs the scenarios and tells whether all went well.
pub(crate) fn run(wanted: &Wanted) -> Result<bool, Failure> {
    if !wanted.built {
        println!("building the library with failpoints (build/logs/failpoints.log)");
        if !build(&Log::quiet("failpoints")?)? {
            return Err("it was not built".to_owned());
        }
        println!("building the plugin (build/logs/dist.log)");
        if !tools::dist(&Log::quiet("dist")?)? || !tools::bed(&Log::quiet("bed")?)? {
            return Err("plugin or bed is missing: see build/logs".to_owned());
        }
    }
    let report = root().join("build/chaos.xml");
    if report.exists() {
        fs::remove_file(&report).map_err(|error| format!("cannot remove a report: {error}"))?;
    }
    let good = Log::open("chaos")?.run(&mut pytest(wanted, &report))?;
    let xml =
        fs::read_to_string(&report).map_err(|error| format!("pytest left no report: {error}"))?;
    let cases = cases_from_junit(&xml);
    let bad = cases.iter().filter(|case| case.outcome == Outcome::Failed);
    println!("{} scenarios, {} bad", cases.len(), bad.count());
    let whole = wanted.all && wanted.scenario.is_none() && wanted.pytest.is_empty();
    write(&cases, whole)?;
    Ok(good)
}

fn pytest(wanted: &Wanted, report: &Path) -> Command {
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
    command
}

/// One scenario as it ended last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Noted {
    /// The test with its parameters.
    pub(crate) name: String,
    seconds: String,
    /// `ok`, `FAILED` or `left out`.
    pub(crate) result: String,
    /// The day of the run.
    pub(crate) date: String,
}

/// Notes what the run showed. A whole run replaces what stood there before.
fn write(cases: &[Case], whole: bool) -> Result<(), Failure> {
    let date = today()?;
    let mut notes = if whole { Vec::new() } else { last()? };
    for case in cases {
        let result = match case.outcome {
            Outcome::Passed => "ok",
            Outcome::Failed => "FAILED",
            Outcome::Skipped => "left out",
        };
        let noted = Noted {
            name: case.name.clone(),
            seconds: format!("{:.0}", case.seconds),
            result: result.to_owned(),
            date: date.clone(),
        };
        match notes.iter_mut().find(|known| known.name == noted.name) {
            Some(known) => *known = noted,
            None => notes.push(noted),
        }
    }
    fs::write(root().join(RESULTS), page(&notes, &machine()))
        .map_err(|error| format!("cannot write {RESULTS}: {error}"))
}

fn page(notes: &[Noted], machine: &str) -> String {
    let count = |result: &str| notes.iter().filter(|noted| noted.result == result).count();
    let mut lines = vec![format!(
        "# Results of the chaos runs

Written by `./x chaos`: how each scenario ended when it ran last. Each ends with the check for
exactly once: every offset in the table one time, none missing, `frazil verify` clean, lag 0. Which
fault each stands for is in [exactly-once.md](exactly-once.md).

{machine}: {} good, {} bad, {} left out.

| scenario | seconds | result | date |
|---|---|---|---|",
        count("ok"),
        count("FAILED"),
        count("left out")
    )];
    for noted in notes {
        lines.push(format!(
            "| `{}` | {} | {} | {} |",
            noted.name, noted.seconds, noted.result, noted.date
        ));
    }
    lines.join("\n") + "\n"
}

/// Reads how the scenarios ended last.
pub(crate) fn last() -> Result<Vec<Noted>, Failure> {
    let path = root().join(RESULTS);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text =
        fs::read_to_string(&path).map_err(|error| format!("cannot read {RESULTS}: {error}"))?;
    Ok(read(&text))
}

/// Reads the rows of a page of results.
pub(crate) fn read(text: &str) -> Vec<Noted> {
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split('|').map(str::trim);
        Some(Noted {
            name: cells.next()?.strip_suffix('`')?.to_owned(),
            seconds: cells.next()?.to_owned(),
            result: cells.next()?.to_owned(),
            date: cells.next()?.to_owned(),
        })
    });
    rows.collect()
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
        let noted = |name: &str, result: &str| Noted {
            name: name.to_owned(),
            seconds: "3".to_owned(),
            result: result.to_owned(),
            date: "2026-11-29".to_owned(),
        };
        let notes = [noted("test_a[7-x]", "ok"), noted("test_b", "FAILED")];
        let page = page(&notes, "2 cores, 24 GiB");
        assert!(
            page.contains("24 GiB: 1 good, 1 bad, 0 left out."),
            "{page}"
        );
        assert_eq!(read(&page), notes);
    }
}
