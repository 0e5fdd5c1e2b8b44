//! `./x conformance`: records in, tables out, as the data files of `tests/conformance` say.
//!
//! The runner is a Java program of the test bed; it calls the connector and its tasks as Connect
//! does, in one JVM, and reads the tables with Iceberg's Java library.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;
use crate::results::{Outcome, TestResult};
use crate::run::{Log, root};

const CASES: &str = "tests/conformance";
const RUNNER: &str = "build/bed/conformance";
const PEER_PAGE: &str = "docs/conformance-peer.md";

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
    /// Delivers values as bytes that the native library decodes, where cases have such a form.
    pub(crate) native: bool,
    /// Runs them through Apache Iceberg's sink and writes the page that compares.
    pub(crate) peer: bool,
}

/// Runs the cases and tells whether all went well. The plugin is built first if it is not there.
pub(crate) fn run(wanted: &Wanted) -> Result<bool, Failure> {
    let log = Log::open("conformance")?;
    log.run(&mut command(wanted)?)
}

/// Runs all cases; for the tests, with the coverage as a part of it.
pub(crate) fn all(log: &Log) -> Result<(bool, Vec<TestResult>), Failure> {
    let wanted = Wanted {
        coverage: true,
        ..Wanted::default()
    };
    let good = log.run(&mut command(&wanted)?)?;
    let natively = Wanted {
        native: true,
        ..Wanted::default()
    };
    let good_natively = log.run(&mut command(&natively)?)?;
    Ok((good && good_natively, results(&log.lines()?)))
}

fn command(wanted: &Wanted) -> Result<Command, Failure> {
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
    if wanted.native {
        command.arg("--native");
    }
    if wanted.verbose {
        command.arg("--verbose");
    }
    if wanted.cases.is_empty() {
        command.arg(root().join(CASES));
    }
    for case in &wanted.cases {
        command.arg(called_from()?.join(case));
    }
    Ok(command)
}

/// Returns the peer's newest version in the bed, and where its libraries are.
fn peer() -> Result<(String, PathBuf), Failure> {
    let mut found: Vec<(String, PathBuf)> = fs::read_dir(root().join("build/bed"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some((name.strip_prefix("peer-")?.to_owned(), entry.path()))
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
