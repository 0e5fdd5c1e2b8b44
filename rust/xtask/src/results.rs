//! What test runners say: counts, and the outcome of each test by name.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Failure;

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed,
    Skipped,
}

/// One test and how it ended. The name is the bare function, without module and parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TestResult {
    pub(crate) name: String,
    pub(crate) outcome: Outcome,
}

/// Counts of outcomes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl Counts {
    /// Counts results.
    pub(crate) fn of(results: &[TestResult]) -> Self {
        let count = |wanted| results.iter().filter(|r| r.outcome == wanted).count();
        Counts {
            passed: count(Outcome::Passed),
            failed: count(Outcome::Failed),
            skipped: count(Outcome::Skipped),
        }
    }

    /// Adds another part's counts.
    pub(crate) fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// Reads what `cargo test` printed: lines such as `test module::name ... ok`.
pub(crate) fn from_cargo(lines: &[String]) -> Vec<TestResult> {
    let mut results = Vec::new();
    for line in lines {
        let Some((name, verdict)) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.split_once(" ... "))
        else {
            continue;
        };
        let outcome = match verdict.trim() {
            "ok" => Outcome::Passed,
            verdict if verdict.starts_with("FAILED") => Outcome::Failed,
            verdict if verdict.starts_with("ignored") => Outcome::Skipped,
            _ => continue,
        };
        // `should panic` and doc tests say more than the path.
        let path = name.split(" - ").next().unwrap_or(name);
        results.push(TestResult {
            name: path.rsplit("::").next().unwrap_or(path).to_owned(),
            outcome,
        });
    }
    results
}

/// One case of a test with its parameters, and how long it took.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) seconds: f64,
    pub(crate) outcome: Outcome,
}

/// Reads one JUnit report, as Gradle, JUnit's console and pytest write them.
pub(crate) fn from_junit(xml: &str) -> Vec<TestResult> {
    let bare = |name: &str| {
        let bare = name.split(['[', '(', '{']).next().unwrap_or(name);
        bare.trim().to_owned()
    };
    cases_from_junit(xml)
        .into_iter()
        .map(|case| TestResult {
            name: bare(&case.name),
            outcome: case.outcome,
        })
        .collect()
}

/// Reads one JUnit report, parameters and times included.
pub(crate) fn cases_from_junit(xml: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for piece in xml.split("<testcase").skip(1) {
        let body = piece.split("</testcase>").next().unwrap_or(piece);
        let head = body.split('>').next().unwrap_or(body);
        let Some(name) = attribute(head, "name") else {
            continue;
        };
        let inner = if head.ends_with('/') { "" } else { body };
        let outcome = if inner.contains("<failure") || inner.contains("<error") {
            Outcome::Failed
        } else if inner.contains("<skipped") {
            Outcome::Skipped
        } else {
            Outcome::Passed
        };
        let seconds = attribute(head, "time").and_then(|time| time.parse().ok());
        cases.push(Case {
            name: name.to_owned(),
            seconds: seconds.unwrap_or_default(),
            outcome,
        });
    }
    cases
}

fn attribute<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    // With the space in front, so that `classname` is not taken for `name`.
    let wanted = format!(" {name}=\"");
    let start = head.find(&wanted)? + wanted.len();
    let rest = head.get(start..)?;
    rest.split('"').next()
}

/// Returns all JUnit reports below a folder.
pub(crate) fn junit_reports(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(folder) = open.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() {
                open.push(path);
            } else if name.starts_with("TEST-") && name.ends_with(".xml") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Reads all JUnit reports below a folder.
pub(crate) fn from_junit_folder(folder: &Path) -> Result<Vec<TestResult>, Failure> {
    let mut results = Vec::new();
    for path in junit_reports(folder) {
        let xml = fs::read_to_string(&path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        results.extend(from_junit(&xml));
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_lines_give_names_and_outcomes() {
        let lines = [
            "running 3 tests",
            "test wire::frame::a_short_frame_is_an_error ... ok",
            "test slow ... ignored, needs a network",
            "test rust/core/src/lib.rs - limits (line 3) ... ok",
            "test broken ... FAILED",
            "test result: FAILED. 2 passed; 1 failed; 1 ignored",
        ]
        .map(str::to_owned);
        let results = from_cargo(&lines);
        assert_eq!(
            Counts::of(&results),
            Counts {
                passed: 2,
                failed: 1,
                skipped: 1
            }
        );
        assert_eq!(results[0].name, "a_short_frame_is_an_error");
    }

    #[test]
    fn junit_reports_give_names_and_outcomes() {
        let xml = r#"<testsuite name="s"><testcase classname="a.B" name="reads()" time="1"/>
            <testcase name="counts[4.3.1]" classname="a.B"><failure message="x">y</failure></testcase>
            <testcase classname="a.B" name="later"><skipped/></testcase></testsuite>"#;
        let outcomes: Vec<_> = from_junit(xml)
            .into_iter()
            .map(|result| (result.name, result.outcome))
            .collect();
        assert_eq!(
            outcomes,
            [
                ("reads".to_owned(), Outcome::Passed),
                ("counts".to_owned(), Outcome::Failed),
                ("later".to_owned(), Outcome::Skipped),
            ]
        );
    }
}
