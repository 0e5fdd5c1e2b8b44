//! `./x mutants`: has each guard's test been seen red? Takes one guard of `tests/mutants.txt` at a
//! time out of a copy of the sources, and runs the one test that must then fail.
//!
//! The copy is `build/mutants/tree`, its compiler output `build/mutants/target`, which begins with
//! the dependencies that are built already. Both stay, so that the next run is short.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::Failure;
use crate::files::tracked;
use crate::results::{self, Counts, Outcome, TestResult};
use crate::run::{Log, root};
use crate::tools;

const LIST: &str = "tests/mutants.txt";
const RECORD: &str = "docs/seen-red.md";
/// The place of tests of the Java shell.
const JAVA: &str = "java";
/// Seconds for building and running one test: a mutant may loop.
const SECONDS_MAX: &str = "900";
/// The mutants' crates are compiled fast instead of well; the dependencies stay as they are.
const CRATES: [&str; 4] = ["core", "engine", "jni", "cli"];

/// One guard, how to take it out, and the test that must notice.
#[derive(Debug, Default, PartialEq, Eq)]
struct Mutant {
    name: String,
    guard: String,
    file: String,
    edits: Vec<Edit>,
    /// A crate's folder (its unit tests), the file or folder of an integration test, or `java`.
    place: String,
    test: String,
}

/// A text that must be in the file once, and what it becomes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Edit {
    find: Vec<String>,
    put: Vec<String>,
}

/// What became of a mutant.
enum End {
    Killed,
    Lived(&'static str),
}

/// Runs the mutants with these names, or all, and prints a table. With `write`, the results go into
/// the record.
pub(crate) fn run(names: &[String], write: bool, log: &Log) -> Result<Vec<TestResult>, Failure> {
    let list = read(LIST)?;
    let mut mutants = parse(&list)?;
    if let Some(unknown) = names.iter().find(|n| mutants.iter().all(|m| m.name != **n)) {
        return Err(format!("{LIST} has no mutant `{unknown}`"));
    }
    let known: Vec<String> = mutants.iter().map(|mutant| mutant.name.clone()).collect();
    mutants.retain(|mutant| names.is_empty() || names.contains(&mutant.name));
    for mutant in &mutants {
        mutated(mutant, &read(&mutant.file)?)?;
    }
    copy_sources()?;
    copy_dependencies()?;
    see_green(&mutants, log)?;
    let mut results = Vec::new();
    let mut rows = BTreeMap::new();
    for mutant in &mutants {
        let started = Instant::now();
        let end = try_one(mutant, log)?;
        let (outcome, verdict) = match end {
            End::Killed => (Outcome::Passed, "red"),
            End::Lived(why) => (Outcome::Failed, why),
        };
        let seconds = started.elapsed().as_secs();
        let Mutant { name, test, .. } = mutant;
        println!("{name:28} {seconds:4} s  {verdict:22} {test}");
        log.line(&format!("== {name}: {verdict}"))?;
        rows.insert(name.clone(), row(mutant, verdict)?);
        if write {
            record(&known, &rows)?;
        }
        let name = name.clone();
        results.push(TestResult { name, outcome });
    }
    Ok(results)
}

/// Prints the closing line and tells whether every mutant was noticed.
pub(crate) fn close(results: &[TestResult]) -> bool {
    let counts = Counts::of(results);
    println!("{} passed, {} failed", counts.passed, counts.failed);
    counts.failed == 0
}

/// Runs all wanted tests on the sources as they are: a test that fails anyhow notices nothing.
fn see_green(mutants: &[Mutant], log: &Log) -> Result<(), Failure> {
    let mut places: BTreeMap<&str, Vec<&Mutant>> = BTreeMap::new();
    for mutant in mutants {
        // All unit tests are built at once.
        let alone = mutant.place == JAVA || integration_test(&mutant.place).is_some();
        let place = if alone { mutant.place.as_str() } else { "" };
        places.entry(place).or_default().push(mutant);
    }
    for (place, mutants) in places {
        let tests: Vec<&str> = mutants.iter().map(|mutant| mutant.test.as_str()).collect();
        let (_, lines) = run_tests(place, &tests, log)?;
        for test in tests {
            let good = format!("test {test} ... ok");
            if !lines.contains(&good) {
                return Err(format!(
                    "`{test}` is not good without a mutant: {}",
                    log.path().display()
                ));
            }
        }
    }
    Ok(())
}

fn try_one(mutant: &Mutant, log: &Log) -> Result<End, Failure> {
    let path = tree().join(&mutant.file);
    let whole = fs::read_to_string(&path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    put(&path, mutated(mutant, &whole)?.as_bytes())?;
    log.line(&format!("== {}", mutant.name))?;
    let ran = run_tests(&mutant.place, &[&mutant.test], log);
    put(&path, whole.as_bytes())?;
    let (good, lines) = ran?;
    let said = |what: &str| lines.iter().any(|line| line.contains(what));
    let verdict = |outcome: &str| said(&format!("test {} ... {outcome}", mutant.test));
    Ok(match good {
        false if verdict("FAILED") => End::Killed,
        true if verdict("ok") => End::Lived("NOT NOTICED"),
        true => End::Lived("NO SUCH TEST"),
        false if said("could not compile") || said("Compilation failed") => {
            End::Lived("DOES NOT COMPILE")
        }
        false => End::Lived("NO FAILED ASSERTION"),
    })
}

/// Runs tests of the copy; returns whether they passed, and what was printed.
fn run_tests(place: &str, tests: &[&str], log: &Log) -> Result<(bool, Vec<String>), Failure> {
    match place {
        JAVA => java_test(tests, log),
        _ => cargo_test(place, tests, log),
    }
}

/// Runs Java tests, each `Class.method`, with the native library of the sources as they are.
fn java_test(tests: &[&str], log: &Log) -> Result<(bool, Vec<String>), Failure> {
    let before = log.lines()?.len();
    let reports = tree().join("java/build");
    for old in results::junit_reports(&reports) {
        fs::remove_file(&old).map_err(|error| format!("cannot remove an old report: {error}"))?;
    }
    let mut command = tools::gradle(&[":java:test", "--exclude-task", "cargoBuild", "-p"]);
    command
        .arg(tree())
        .env("CARGO_TARGET_DIR", root().join("target"));
    for test in tests {
        command.arg("--tests").arg(format!("*{test}"));
    }
    let good = log.run(&mut command)?;
    let mut lines = log.lines()?.split_off(before);
    let ran = results::from_junit_folder(&reports)?;
    for test in tests {
        let method = test.rsplit('.').next().unwrap_or(test);
        for result in ran.iter().filter(|result| result.name == method) {
            let failed = matches!(result.outcome, Outcome::Failed);
            let verdict = if failed { "FAILED" } else { "ok" };
            lines.push(format!("test {test} ... {verdict}"));
        }
    }
    Ok((good, lines))
}

fn cargo_test(place: &str, tests: &[&str], log: &Log) -> Result<(bool, Vec<String>), Failure> {
    let before = log.lines()?.len();
    let cargo = tools::cargo(&[]);
    let mut command = Command::new("timeout");
    command.arg(SECONDS_MAX).arg(cargo.get_program());
    // The whole workspace, as everywhere: the features of the dependencies depend on it.
    command.args(["test", "--release", "--workspace", "--no-fail-fast"]);
    command
        .arg("--manifest-path")
        .arg(tree().join("Cargo.toml"));
    command.arg("--target-dir").arg(home().join("target"));
    for name in CRATES {
        let fast = format!("profile.release.package.frazil-{name}.opt-level=0");
        command.args(["--config", &fast]);
    }
    match integration_test(place) {
        Some(test) => command.args(["--test", test]),
        None => command.arg("--lib"),
    };
    command.args(["--", "--exact"]).args(tests);
    let good = log.run(&mut command)?;
    Ok((good, log.lines()?.split_off(before)))
}

/// Returns the name of the integration test at a place, if it is one.
fn integration_test(place: &str) -> Option<&str> {
    let (_, test) = place.split_once("/tests/")?;
    Some(test.trim_end_matches(".rs"))
}

/// Returns the file's text without the guard.
fn mutated(mutant: &Mutant, whole: &str) -> Result<String, Failure> {
    let mut text = whole.to_owned();
    for edit in &mutant.edits {
        let find = edit.find.join("\n");
        let count = text.matches(&find).count();
        if count != 1 {
            return Err(format!(
                "mutant `{}`: {} has its text {count} times, not once: {find}",
                mutant.name, mutant.file
            ));
        }
        text = text.replacen(&find, &edit.put.join("\n"), 1);
    }
    Ok(text)
}

/// Reads the list; its head says how it is written.
fn parse(list: &str) -> Result<Vec<Mutant>, Failure> {
    let mut mutants: Vec<Mutant> = Vec::new();
    let lines = list.lines().zip(1..).filter(|(line, _)| {
        let blank = line.trim().is_empty();
        !blank && !line.starts_with('#')
    });
    for (line, number) in lines {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if word == "mutant" {
            mutants.push(Mutant {
                name: rest.to_owned(),
                ..Mutant::default()
            });
            continue;
        }
        let Some(mutant) = mutants.last_mut() else {
            return Err(format!(
                "{LIST}:{number}: a block begins with `mutant NAME`"
            ));
        };
        // A text to find after a text to put begins another edit.
        if word == "-" && mutant.edits.last().is_none_or(|edit| !edit.put.is_empty()) {
            mutant.edits.push(Edit::default());
        }
        match word {
            "guard" => mutant.guard = rest.to_owned(),
            "file" => mutant.file = rest.to_owned(),
            "-" | "+" => {
                let Some(edit) = mutant.edits.last_mut() else {
                    return Err(format!("{LIST}:{number}: `-` comes before `+`"));
                };
                let lines = match word {
                    "-" => &mut edit.find,
                    _ => &mut edit.put,
                };
                lines.push(rest.to_owned());
            }
            "test" => {
                let (place, test) = rest.split_once(' ').unwrap_or((rest, ""));
                mutant.place = place.to_owned();
                mutant.test = test.to_owned();
            }
            other => return Err(format!("{LIST}:{number}: what is `{other}`?")),
        }
    }
    for mutant in &mutants {
        let Mutant { guard, file, .. } = mutant;
        if [guard, file, &mutant.test].contains(&&String::new()) || mutant.edits.is_empty() {
            return Err(format!("{LIST}: mutant `{}` misses a line", mutant.name));
        }
    }
    Ok(mutants)
}

/// Makes the copy equal to the sources; what is equal stays as it is and is not compiled again.
fn copy_sources() -> Result<(), Failure> {
    for path in tracked()? {
        let whole = root().join(&path);
        let bytes = fs::read(&whole).map_err(|error| format!("cannot read {path}: {error}"))?;
        let copy = tree().join(&path);
        if fs::read(&copy).is_ok_and(|present| present == bytes) {
            continue;
        }
        let folder = copy.parent().unwrap_or(&copy);
        fs::create_dir_all(folder)
            .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        put(&copy, &bytes)?;
    }
    Ok(())
}

/// Takes over what is compiled of the dependencies, with its times, but none of our own crates.
fn copy_dependencies() -> Result<(), Failure> {
    let (from, to) = (root().join("target/release"), home().join("target/release"));
    if to.exists() || !from.join("deps").exists() {
        return Ok(());
    }
    let broken = |error: std::io::Error| format!("cannot copy {}: {error}", from.display());
    fs::create_dir_all(to.join("deps")).map_err(broken)?;
    let copied = Command::new("cp")
        .arg("-a")
        .args([from.join(".fingerprint"), from.join("build")])
        .arg(&to)
        .status()
        .map_err(broken)?;
    if !copied.success() {
        return Err(format!("cannot copy {}", from.display()));
    }
    for entry in fs::read_dir(from.join("deps")).map_err(broken)? {
        let entry = entry.map_err(broken)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let ours = name.trim_start_matches("lib").starts_with("frazil");
        // No compiler writes these again, so they may be the same files.
        if !ours
            && [".rlib", ".rmeta", ".so"]
                .iter()
                .any(|end| name.ends_with(end))
        {
            fs::hard_link(entry.path(), to.join("deps").join(name)).map_err(broken)?;
        }
    }
    Ok(())
}

/// Writes the record: new rows, and the old ones of mutants that were not run.
fn record(known: &[String], rows: &BTreeMap<String, String>) -> Result<(), Failure> {
    let mut rows = rows.clone();
    let old = read(RECORD).unwrap_or_default();
    for line in old.lines() {
        if let Some((name, _)) = line.strip_prefix("| `").and_then(|r| r.split_once('`')) {
            rows.entry(name.to_owned())
                .or_insert_with(|| line.to_owned());
        }
    }
    let mut text = format!(
        "# Tests that were seen red\n\nWritten by `./x mutants --write`: each guard of \
         `{LIST}` was taken out of a copy of the\nsources, and its test was run. `red`: it was \
         good before, and failed by an assertion.\n\n\
         | mutant | date | guard | test | seen |\n|---|---|---|---|---|\n"
    );
    for row in known.iter().filter_map(|name| rows.get(name)) {
        text.push_str(row);
        text.push('\n');
    }
    put(&root().join(RECORD), text.as_bytes())
}

fn row(mutant: &Mutant, verdict: &str) -> Result<String, Failure> {
    let date = Command::new("date").args(["-u", "+%F"]).output();
    let date = date.map_err(|error| format!("cannot ask for the date: {error}"))?;
    let date = String::from_utf8_lossy(&date.stdout).trim().to_owned();
    let Mutant { name, guard, .. } = mutant;
    let (place, test) = (&mutant.place, &mutant.test);
    let test = test.rsplit("::").next().unwrap_or(test);
    Ok(format!(
        "| `{name}` | {date} | {guard} | `{test}` of `{place}` | {verdict} |"
    ))
}

fn home() -> PathBuf {
    root().join("build/mutants")
}

fn tree() -> PathBuf {
    home().join("tree")
}

fn read(path: &str) -> Result<String, Failure> {
    fs::read_to_string(root().join(path)).map_err(|error| format!("cannot read {path}: {error}"))
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    fs::write(path, bytes).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: &str = "# a list\n\nmutant m\nguard R1: a thing\nfile a.rs\n-     if bad {\n\
        -         return;\n+     if false {\ntest rust/core a::tests::b\n";

    #[test]
    fn a_block_is_a_mutant() {
        let [mutant] = &parse(BLOCK).unwrap()[..] else {
            panic!("not one mutant");
        };
        assert_eq!(mutant.edits[0].find, ["    if bad {", "        return;"]);
        assert_eq!(mutant.edits[0].put, ["    if false {"]);
        assert_eq!(
            (&*mutant.place, &*mutant.test),
            ("rust/core", "a::tests::b")
        );
        let whole = "fn f() {\n    if bad {\n        return;\n    }\n}\n";
        let without = mutated(mutant, whole).unwrap();
        assert_eq!(without, "fn f() {\n    if false {\n    }\n}\n");
        assert!(mutated(mutant, &without).is_err());
        assert!(mutated(mutant, &whole.repeat(2)).is_err());
    }

    #[test]
    fn a_guard_may_be_in_two_places() {
        let two = BLOCK.replace("test ", "- b\n- c\n+ d\ntest ");
        let mutants = parse(&two).unwrap();
        assert_eq!(mutants[0].edits.len(), 2);
        let whole = "    if bad {\n        return;\nb\nc\n";
        assert_eq!(mutated(&mutants[0], whole).unwrap(), "    if false {\nd\n");
        assert_eq!(
            integration_test("rust/engine/tests/session"),
            Some("session")
        );
        assert_eq!(
            integration_test("rust/core/tests/frames.rs"),
            Some("frames")
        );
        assert_eq!(integration_test("rust/core"), None);
    }

    #[test]
    fn a_block_that_misses_a_line_is_refused() {
        assert!(parse(&BLOCK.replace("guard", "gaurd")).is_err());
        assert!(parse(&BLOCK.replace("file a.rs\n", "")).is_err());
        assert!(parse("guard x\n").is_err());
    }
}
