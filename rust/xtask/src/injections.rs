//! The table of injected faults in docs/exactly-once.md: each fault, and the test that injects it.
//!
//! `tests/injections.txt` lists the faults. A test says `// Injection: 3, 4` or `# Injection: 3, 4`
//! in front of it. A fault without a test must be in `tests/injections-elsewhere.txt`, with the
//! reason; so is what the tests of a fault leave out, as `3 partly: what`. Cases of a parametrised test whose name begins with `3-` are those of fault 3.

use std::collections::BTreeMap;
use std::fs;

use crate::Failure;
use crate::chaos::{self, Noted};
use crate::files::{TextFile, read_all};
use crate::promises::test_name;
use crate::run::root;

const DOC: &str = "docs/exactly-once.md";
const LIST: &str = "tests/injections.txt";
const ELSEWHERE: &str = "tests/injections-elsewhere.txt";
const PARTLY: &str = " partly:";
const BEGIN: &str = "<!-- injections: begin (./x injections --write) -->";
const END: &str = "<!-- injections: end -->";

/// A test that injects a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cover {
    path: String,
    test: String,
}

/// All that the table is made of.
struct Known {
    faults: BTreeMap<u32, String>,
    elsewhere: BTreeMap<u32, String>,
    /// What the tests of a fault leave out.
    left_out: BTreeMap<u32, String>,
    covers: BTreeMap<u32, Vec<Cover>>,
}

/// Writes the table into the document.
pub(crate) fn write() -> Result<(), Failure> {
    let known = known(&read_all()?)?;
    let path = root().join(DOC);
    let document =
        fs::read_to_string(&path).map_err(|error| format!("cannot read {DOC}: {error}"))?;
    let whole = replaced(&document, &table(&known, &chaos::last()?))?;
    fs::write(&path, whole).map_err(|error| format!("cannot write {DOC}: {error}"))
}

/// Complains about faults without a test and about a stale table.
pub(crate) fn check() -> Result<Vec<String>, Failure> {
    let known = known(&read_all()?)?;
    let mut complaints = gaps(&known);
    let document = fs::read_to_string(root().join(DOC))
        .map_err(|error| format!("cannot read {DOC}: {error}"))?;
    if replaced(&document, &table(&known, &chaos::last()?))? != document {
        complaints.push(format!(
            "{DOC}: the table of injected faults is stale: run ./x injections --write and read it"
        ));
    }
    Ok(complaints)
}

fn gaps(known: &Known) -> Vec<String> {
    let mut complaints = Vec::new();
    for number in known.faults.keys() {
        match (
            known.covers.contains_key(number),
            known.elsewhere.contains_key(number),
        ) {
            (false, false) => complaints.push(format!(
                "injection {number}: no test names it, and {ELSEWHERE} has no reason"
            )),
            (true, true) => complaints.push(format!(
                "injection {number}: a test names it, and {ELSEWHERE} says there is none"
            )),
            _ => {}
        }
    }
    for number in known.left_out.keys() {
        if !known.covers.contains_key(number) {
            complaints.push(format!(
                "injection {number}: {ELSEWHERE} says what its test leaves out, and it has none"
            ));
        }
    }
    for number in known.covers.keys().chain(known.elsewhere.keys()) {
        if !known.faults.contains_key(number) {
            complaints.push(format!("injection {number} is not in {LIST}"));
        }
    }
    complaints
}

fn known(files: &[TextFile]) -> Result<Known, Failure> {
    let text = |path: &str| {
        let file = files.iter().find(|file| file.path == path);
        file.map(|file| file.text.as_str())
            .ok_or_else(|| format!("{path} is missing"))
    };
    let is_partly = |line: &&str| line.contains(PARTLY);
    let elsewhere = text(ELSEWHERE)?.lines();
    let (partly, whole): (Vec<&str>, Vec<&str>) = elsewhere.partition(is_partly);
    Ok(Known {
        faults: numbered(LIST, text(LIST)?)?,
        elsewhere: numbered(ELSEWHERE, &whole.join("\n"))?,
        left_out: numbered(ELSEWHERE, &partly.join("\n").replace(PARTLY, ":"))?,
        covers: collect(files)?,
    })
}

/// Reads lines `number: text`.
fn numbered(path: &str, text: &str) -> Result<BTreeMap<u32, String>, Failure> {
    let mut found = BTreeMap::new();
    let lines = text.lines().map(str::trim);
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let wrong = || format!("{path}: `{line}` is not `NUMBER: TEXT`");
        let (number, text) = line.split_once(':').ok_or_else(wrong)?;
        let number = number.trim().parse().map_err(|_| wrong())?;
        if found.insert(number, text.trim().to_owned()).is_some() {
            return Err(format!("{path}: {number} is there twice"));
        }
    }
    Ok(found)
}

fn collect(files: &[TextFile]) -> Result<BTreeMap<u32, Vec<Cover>>, Failure> {
    let mut covers: BTreeMap<u32, Vec<Cover>> = BTreeMap::new();
    // This crate names the words without injecting anything.
    let files = files.iter().filter(|f| !f.path.starts_with("rust/xtask/"));
    for file in files.filter(|file| file.is_source()) {
        let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
        for (index, line) in lines.iter().enumerate() {
            let Some(numbers) = injected(line) else {
                continue;
            };
            let place = format!("{}:{}", file.path, index + 1);
            let after = lines.get(index + 1..).unwrap_or_default();
            let test = after.iter().find_map(|line| test_name(line));
            let test = test.ok_or_else(|| format!("{place}: no test follows the injection"))?;
            for number in numbers.split(',') {
                let number = number.trim().parse().map_err(|_| {
                    format!("{place}: `{number}` is not the number of an injection")
                })?;
                covers.entry(number).or_default().push(Cover {
                    path: file.path.clone(),
                    test: test.clone(),
                });
            }
        }
    }
    Ok(covers)
}

fn injected(line: &str) -> Option<&str> {
    let text = line.strip_prefix("//").or_else(|| line.strip_prefix('#'))?;
    text.trim().strip_prefix("Injection:")
}

fn layer(path: &str) -> &'static str {
    if path.starts_with("rust/sim/") {
        "simulator"
    } else if path.starts_with("tests/") {
        "bed"
    } else {
        "unit"
    }
}

fn table(known: &Known, last: &[Noted]) -> String {
    let mut lines = vec![
        String::new(),
        "| # | injection | covered by | layer | last result |".to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    for (number, text) in &known.faults {
        let none = Vec::new();
        let covers = known.covers.get(number).unwrap_or(&none);
        let tests: Vec<String> = covers
            .iter()
            .map(|cover| format!("[`{}`](../{})", cover.test, cover.path))
            .collect();
        let mut layers: Vec<&str> = covers.iter().map(|cover| layer(&cover.path)).collect();
        layers.sort_unstable();
        layers.dedup();
        let by = match known.elsewhere.get(number) {
            Some(reason) => reason.clone(),
            None => tests.join(", "),
        };
        let by = match known.left_out.get(number) {
            Some(what) => format!("{by}; not: {what}"),
            None => by,
        };
        let result = result(*number, covers, last);
        let layers = layers.join(", ");
        lines.push(format!(
            "| {number} | {text} | {by} | {layers} | {result} |"
        ));
    }
    lines.push(String::new());
    lines.join("\n") + "\n"
}

/// Returns how the runs on the bed ended last; the others run with `./x test`.
fn result(number: u32, covers: &[Cover], last: &[Noted]) -> String {
    let own = |noted: &&Noted| noted.name.contains(&format!("[{number}-"));
    let mut ended: Vec<&Noted> = Vec::new();
    for cover in covers.iter().filter(|c| c.path.starts_with("tests/chaos/")) {
        let with_parameters = format!("{}[", cover.test);
        let of_test =
            |noted: &&Noted| noted.name == cover.test || noted.name.starts_with(&with_parameters);
        let cases: Vec<&Noted> = last.iter().filter(of_test).collect();
        if cases.is_empty() {
            return "not run".to_owned();
        }
        match cases.iter().any(own) {
            true => ended.extend(cases.into_iter().filter(own)),
            false => ended.extend(cases),
        }
    }
    if let Some(bad) = ended.iter().find(|noted| noted.result != "ok") {
        return format!("{}, {}", bad.result, bad.date);
    }
    match ended.iter().map(|noted| &noted.date).min() {
        Some(oldest) => format!("ok, {oldest}"),
        None if covers.is_empty() => String::new(),
        None => "in `./x test`".to_owned(),
    }
}

fn replaced(document: &str, table: &str) -> Result<String, Failure> {
    let missing = || format!("{DOC} lacks the markers `{BEGIN}` and `{END}`");
    let (before, rest) = document.split_once(BEGIN).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    Ok(format!("{before}{BEGIN}\n{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources() -> Vec<TextFile> {
        let file = |path: &str, text: &str| TextFile {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        vec![
            file(LIST, "# all\n1: dies\n2: lies\n3: later\n4: never\n"),
            file(ELSEWHERE, "3: not built yet\n2 partly: small lies\n"),
            file(
                "tests/chaos/test_a.py",
                "# Injection: 1, 2\n@pytest.mark.long\ndef test_it(flow):",
            ),
            file(
                "rust/core/src/a.rs",
                "// Injection: 2\n#[test]\nfn also() {",
            ),
        ]
    }

    #[test]
    fn a_fault_without_test_or_reason_is_complained_about() {
        let known = known(&sources()).expect("well-formed");
        let complaints = gaps(&known);
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        assert!(complaints[0].contains("injection 4"), "{complaints:?}");
    }

    #[test]
    fn a_case_of_one_fault_counts_for_that_fault() {
        let known = known(&sources()).expect("well-formed");
        let text = "| `test_it[1-x]` | 1 | ok | 2026-11-29 |\n\
                    | `test_it[2-y]` | 1 | FAILED | 2026-11-28 |\n\
                    | `test_other` | 1 | ok | 2026-11-29 |";
        let table = table(&known, &chaos::read(text));
        let row = |number: u32| {
            let start = format!("| {number} |");
            table
                .lines()
                .find(|line| line.starts_with(&start))
                .map(str::to_owned)
        };
        assert!(row(1).is_some_and(|row| row.ends_with("| bed | ok, 2026-11-29 |")));
        assert!(row(2).is_some_and(|row| row.ends_with("| bed, unit | FAILED, 2026-11-28 |")));
        assert!(row(2).is_some_and(|row| row.contains("; not: small lies |")));
        assert!(row(3).is_some_and(|row| row.contains("not built yet")));
    }
}
