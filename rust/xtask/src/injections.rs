//! The table of injected faults in docs/exactly-once.md: each fault, and the test that injects it.
//!
//! `tests/injections.txt` lists the faults. A test says `// Injection: 3, 4` or `# Injection: 3, 4`
//! in front of it. A fault without a test must be in `tests/injections-elsewhere.txt`, with the
//! reason; so is what the tests of a fault leave out, as `3 partly: what`. Cases of a parametrised test whose name begins with `3-` are those of fault 3.

use crate::Failure;
use crate::chaos::{self, Noted};
use crate::covers::{Cover, Known, List};

const INJECTIONS: List = List {
    word: "Injection",
    list: "tests/injections.txt",
    elsewhere: "tests/injections-elsewhere.txt",
    doc: "docs/exactly-once.md",
    markers: (
        "<!-- injections: begin (./x injections --write) -->",
        "<!-- injections: end -->",
    ),
};

/// Writes the table into the document.
pub(crate) fn write() -> Result<(), Failure> {
    INJECTIONS.write(&table(&INJECTIONS.read()?, &chaos::last()?))
}

/// Complains about faults without a test and about a stale table.
pub(crate) fn check() -> Result<Vec<String>, Failure> {
    let known = INJECTIONS.read()?;
    let mut complaints = INJECTIONS.gaps(&known);
    complaints.extend(INJECTIONS.stale(&table(&known, &chaos::last()?))?);
    Ok(complaints)
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
    for (number, text) in &known.items {
        let covers = known.tests(*number);
        let mut layers: Vec<&str> = covers.iter().map(|cover| layer(&cover.path)).collect();
        layers.sort_unstable();
        layers.dedup();
        let by = known.covered_by(*number);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::TextFile;

    fn sources() -> Vec<TextFile> {
        let file = |path: &str, text: &str| TextFile {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        vec![
            file(
                INJECTIONS.list,
                "# all\n1: dies\n2: lies\n3: later\n4: never\n",
            ),
            file(
                INJECTIONS.elsewhere,
                "3: not built yet\n2 partly: small lies\n",
            ),
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
        let known = INJECTIONS.known(&sources()).expect("well-formed");
        let complaints = INJECTIONS.gaps(&known);
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        assert!(complaints[0].contains("injection 4"), "{complaints:?}");
    }

    #[test]
    fn a_case_of_one_fault_counts_for_that_fault() {
        let known = INJECTIONS.known(&sources()).expect("well-formed");
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
