//! The table in docs/cdc-cases.md: what goes wrong with change data elsewhere, and the test that shows
//! what comes of it here.
//!
//! `tests/cdc-cases.txt` lists the cases as `NUMBER: REPORTS | WHAT COMES | WHAT IT HAS TO COME TO`. A test
//! says `// Case: 9` or `# Case: 9` in front of it. A case without a test must be in
//! `tests/cdc-cases-elsewhere.txt`, with the reason; so is what the tests of a case leave out.

use crate::Failure;
use crate::covers::{Known, List};

const CASES: List = List {
    word: "Case",
    list: "tests/cdc-cases.txt",
    elsewhere: "tests/cdc-cases-elsewhere.txt",
    doc: "docs/cdc-cases.md",
    markers: (
        "<!-- cases: begin (./x cases --write) -->",
        "<!-- cases: end -->",
    ),
};

/// Writes the table into the document.
pub(crate) fn write() -> Result<(), Failure> {
    CASES.write(&table(&CASES.read()?)?)
}

/// Complains about cases without a test and about a stale table.
pub(crate) fn check() -> Result<Vec<String>, Failure> {
    let known = CASES.read()?;
    let mut complaints = CASES.gaps(&known);
    complaints.extend(CASES.stale(&table(&known)?)?);
    Ok(complaints)
}

fn table(known: &Known) -> Result<String, Failure> {
    let heads = ["reported of", "what comes", "what it has to come to"];
    CASES.reports(
        known,
        heads,
        "REPORTS | WHAT COMES | WHAT IT HAS TO COME TO",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::TextFile;

    #[test]
    fn a_case_has_a_test_or_a_reason() {
        let file = |path: &str, text: &str| TextFile {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let list = "1: #2, own | dies | goes on\n2: own | lies | tells\n3: own | a | b";
        let files = [
            file(CASES.list, list),
            file(CASES.elsewhere, "2: not built yet\n1 partly: at night"),
            file("rust/a.rs", "// Case: 1\n#[test]\nfn it_goes_on() {"),
        ];
        let known = CASES.known(&files).expect("well-formed");
        let gaps = CASES.gaps(&known);
        assert_eq!(gaps.len(), 1, "{gaps:?}");
        assert!(gaps[0].contains("case 3: no test"), "{gaps:?}");
        let table = table(&known).expect("three columns each");
        let row = table.lines().find(|line| line.starts_with("| 1 |"));
        assert_eq!(
            row,
            Some(
                "| 1 | [#2](https://github.com/apache/iceberg/issues/2), own | dies | goes on | \
                 [`it_goes_on`](../rust/a.rs); not: at night |"
            )
        );
        assert!(table.contains("| 2 | own | lies | tells | not built yet |"));
    }
}
