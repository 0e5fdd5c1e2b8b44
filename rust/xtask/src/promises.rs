//! The table in README.md: each promise, and the test that proves it.
//!
//! A test is tied to a promise by a comment in front of it, in any of the three languages:
//! `// Promise: text` or `# Promise: text`, and `Promise (long):` for one that runs with `--all`.
//! The table is generated, so a promise whose test goes away makes it stale, and that fails.

use std::fs;

use crate::Failure;
use crate::files::{TextFile, read_all};
use crate::results::{Outcome, TestResult};
use crate::run::root;
use crate::source;

const BEGIN: &str = "<!-- promises: begin (./x promises --write) -->";
const END: &str = "<!-- promises: end -->";

/// A promise and its test.
#[derive(Debug, PartialEq, Eq)]
struct Promise {
    text: String,
    long: bool,
    path: String,
    test: String,
}

/// What tells whether the tests of one language ran: its file ending and its results.
pub(crate) struct Ran<'a> {
    pub(crate) ending: &'static str,
    pub(crate) results: &'a [TestResult],
    pub(crate) long: bool,
}

/// Writes the table into README.md.
pub(crate) fn write() -> Result<(), Failure> {
    let promises = collect(&read_all()?)?;
    let (path, readme) = readme()?;
    let whole = replaced(&readme, &table(&promises))?;
    fs::write(&path, whole).map_err(|error| format!("cannot write README.md: {error}"))
}

/// Complains about a stale table, and about promises whose tests did not pass where they ran.
pub(crate) fn check(ran: &[Ran<'_>]) -> Result<Vec<String>, Failure> {
    let promises = collect(&read_all()?)?;
    let (_, readme) = readme()?;
    let mut complaints = Vec::new();
    if promises.is_empty() {
        complaints.push("no test carries a promise".to_owned());
    }
    if replaced(&readme, &table(&promises))? != readme {
        complaints.push(
            "README.md: the table of promises is stale: run ./x promises --write and read it"
                .to_owned(),
        );
    }
    for promise in &promises {
        let Some(ran) = ran.iter().find(|ran| promise.path.ends_with(ran.ending)) else {
            continue;
        };
        if promise.long && !ran.long {
            continue;
        }
        let mut outcomes = ran
            .results
            .iter()
            .filter(|r| r.name == promise.test)
            .peekable();
        let place = format!("{}: `{}`", promise.path, promise.test);
        if outcomes.peek().is_none() {
            complaints.push(format!("{place} proves a promise and did not run"));
        } else if outcomes.any(|result| result.outcome != Outcome::Passed) {
            complaints.push(format!("{place} proves a promise and did not pass"));
        }
    }
    Ok(complaints)
}

fn readme() -> Result<(std::path::PathBuf, String), Failure> {
    let path = root().join("README.md");
    let text =
        fs::read_to_string(&path).map_err(|error| format!("cannot read README.md: {error}"))?;
    Ok((path, text))
}

/// Finds all promises, sorted by their text.
fn collect(files: &[TextFile]) -> Result<Vec<Promise>, Failure> {
    let mut promises = Vec::new();
    // This crate names the words without promising anything.
    let files = files.iter().filter(|f| !f.path.starts_with("rust/xtask/"));
    for file in files.filter(|file| file.is_source()) {
        let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
        for (index, line) in lines.iter().enumerate() {
            let Some((text, long)) = promised(line) else {
                continue;
            };
            let after = lines.get(index + 1..).unwrap_or_default();
            let (text, test) = (
                joined(text, after),
                after.iter().find_map(|line| test_name(line)),
            );
            let place = format!("{}:{}", file.path, index + 1);
            if !long && is_long(&lines, after) {
                return Err(format!(
                    "{place}: a test that runs with --all only proves this: write `Promise (long):`"
                ));
            }
            promises.push(Promise {
                text,
                long,
                path: file.path.clone(),
                test: test.ok_or_else(|| format!("{place}: no test follows the promise"))?,
            });
        }
    }
    promises.sort_by(|a, b| (&a.path, &a.text).cmp(&(&b.path, &b.text)));
    Ok(promises)
}

/// Tells whether a test of Python, which the lines `after` its promise declare, runs with `--all` only:
/// by its own mark, or by that of its module.
fn is_long(module: &[&str], after: &[&str]) -> bool {
    let mut before_test = after.iter().take_while(|line| !line.starts_with("def "));
    before_test.any(|line| *line == "@pytest.mark.long")
        || module.contains(&"pytestmark = pytest.mark.long")
}

fn comment(line: &str) -> Option<&str> {
    let text = line.strip_prefix("//").or_else(|| line.strip_prefix('#'))?;
    Some(text.trim())
}

fn promised(line: &str) -> Option<(&str, bool)> {
    let text = comment(line)?;
    if let Some(text) = text.strip_prefix("Promise:") {
        return Some((text.trim(), false));
    }
    text.strip_prefix("Promise (long):")
        .map(|text| (text.trim(), true))
}

/// Joins the comment lines that continue a promise.
fn joined(first: &str, after: &[&str]) -> String {
    let more = after
        .iter()
        .map_while(|line| comment(line))
        .take_while(|line| {
            !["Promise", "Injection:", "Complaint:", "["]
                .iter()
                .any(|w| line.starts_with(w))
        });
    std::iter::once(first)
        .chain(more)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns the name of the test that a line of Rust, Python or Java declares.
pub(crate) fn test_name(line: &str) -> Option<String> {
    if let Some(rest) = line.strip_prefix("def ") {
        return rest.split('(').next().map(str::to_owned);
    }
    if line.contains(" void ") || line.starts_with("void ") {
        let (_, rest) = line.split_once("void ")?;
        return rest.split('(').next().map(str::to_owned);
    }
    source::declared(line)
}

fn table(promises: &[Promise]) -> String {
    let mut lines = vec![
        String::new(),
        "| promise | test |".to_owned(),
        "|---|---|".to_owned(),
    ];
    for promise in promises {
        let long = if promise.long { " (`--all`)" } else { "" };
        let (text, path, test) = (&promise.text, &promise.path, &promise.test);
        lines.push(format!("| {text} | [`{test}`]({path}){long} |"));
    }
    lines.push(String::new());
    lines.join("\n") + "\n"
}

fn replaced(readme: &str, table: &str) -> Result<String, Failure> {
    let missing = || format!("README.md lacks the markers `{BEGIN}` and `{END}`");
    let (before, rest) = readme.split_once(BEGIN).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    Ok(format!("{before}{BEGIN}\n{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_of_a_long_test_says_so() {
        for text in [
            "pytestmark = pytest.mark.long\n# Promise: all rows\ndef test_rows(broker):",
            "# Promise: all rows\n@pytest.mark.long\ndef test_rows(broker):",
        ] {
            let file = |text: &str| TextFile {
                path: "tests/connect/test_a.py".to_owned(),
                text: text.to_owned(),
            };
            let error = collect(&[file(text)]).expect_err("it would never have run in CI");
            assert!(error.contains("Promise (long)"), "{error}");
            let long = text.replace("Promise:", "Promise (long):");
            assert_eq!(collect(&[file(&long)]).expect("it says so").len(), 1);
        }
    }

    #[test]
    fn promises_are_found_in_three_languages() {
        let file = |path: &str, text: &str| TextFile {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let files = [
            file(
                "java/A.java",
                "  // Promise: one JAR\n  // is enough\n  @Test\n  public void oneJar() {",
            ),
            file(
                "rust/core/src/a.rs",
                "// Promise: no panic\n#[test]\nfn any_bytes() {",
            ),
            file(
                "tests/connect/test_a.py",
                "# Promise (long): all rows\n# Injection: 3\n@pytest.mark.long\ndef test_rows(broker):",
            ),
        ];
        let promises = collect(&files).expect("each has a test");
        let found: Vec<_> = promises
            .iter()
            .map(|p| (p.text.as_str(), p.long, p.test.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                ("one JAR is enough", false, "oneJar"),
                ("no panic", false, "any_bytes"),
                ("all rows", true, "test_rows"),
            ]
        );
    }

    #[test]
    fn the_table_replaces_what_is_between_the_markers() {
        let readme = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let whole = replaced(&readme, &table(&[])).expect("has markers");
        assert!(!whole.contains("old") && whole.ends_with("b\n"), "{whole}");
        assert_eq!(replaced(&whole, &table(&[])), Ok(whole));
    }
}
