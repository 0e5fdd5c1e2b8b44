//! The tests of `tests/`, on real servers.
//!
//! Most of their time is waiting: for servers to start, for commits. So two runs of pytest share a
//! machine, each with a broker, workers and catalogs of its own; what measures time runs after
//! them, alone. `tests/conftest.py` knows which folder is in which lane.

use std::path::PathBuf;
use std::process::Command;
use std::{fs, thread};

use crate::Failure;
use crate::results::{self, TestResult};
use crate::run::{Log, root};
use crate::tools;

/// The lanes that run at the same time, and what runs after them.
const TOGETHER: [&str; 2] = ["first", "second"];
const ALONE: &str = "alone";

/// Runs all tests in lanes; with `all` the long ones too, or those that `words` for pytest choose, in
/// one run.
pub(crate) fn run(
    all: bool,
    words: &[String],
    log: &Log,
) -> Result<(bool, Vec<TestResult>), Failure> {
    if all || !words.is_empty() {
        let mut command = pytest("e2e")?;
        if all {
            command.arg("--all");
        }
        if words.is_empty() {
            command.arg("tests");
        }
        let good = log.run(command.args(words))?;
        return Ok((good, results("e2e")?));
    }
    let mut ended: Vec<Ended> = thread::scope(|scope| {
        let lanes = TOGETHER.map(|name| scope.spawn(move || lane(name)));
        lanes
            .into_iter()
            .map(|lane| lane.join().map_err(|_| "a lane's thread died".to_owned())?)
            .collect::<Result<_, Failure>>()
    })?;
    ended.push(lane(ALONE)?);
    let mut whole = (true, Vec::new());
    for lane in ended {
        log.append(&lane.log)?;
        whole.0 &= lane.good;
        whole.1.extend(lane.results);
    }
    Ok(whole)
}

struct Ended {
    good: bool,
    results: Vec<TestResult>,
    log: Log,
}

fn lane(name: &str) -> Result<Ended, Failure> {
    let stem = format!("e2e-{name}");
    let log = Log::open(&stem)?;
    let mut command = pytest(&stem)?;
    let good = log.run(command.args(["--lane", name, "tests"]))?;
    let results = results(&stem)?;
    Ok(Ended { good, results, log })
}

fn report(stem: &str) -> PathBuf {
    root().join(format!("build/{stem}.xml"))
}

fn pytest(stem: &str) -> Result<Command, Failure> {
    let report = report(stem);
    // A run that dies must not leave the results of an earlier one.
    if report.exists() {
        fs::remove_file(&report).map_err(|error| format!("cannot remove a report: {error}"))?;
    }
    let mut command = Command::new(tools::python());
    command.args(["-m", "pytest", "-v", "--durations=15"]);
    command.args(["-c", "tests/pytest.ini", "--rootdir=tests"]);
    command.arg(format!("--junitxml={}", report.display()));
    command.env("PYTHONUNBUFFERED", "1");
    Ok(command)
}

fn results(stem: &str) -> Result<Vec<TestResult>, Failure> {
    let xml = fs::read_to_string(report(stem))
        .map_err(|error| format!("pytest left no report of {stem}: {error}"))?;
    Ok(results::from_junit(&xml))
}
