//! The table in docs/complaints.md: what users of the field's sinks complain about, and the test
//! that shows that it cannot happen here.
//!
//! `tests/complaints.txt` lists the complaints as `NUMBER: REPORTS | SYMPTOM | WHAT HAPPENS HERE`. A
//! test says `// Complaint: 9` or `# Complaint: 9` in front of it. A complaint without a test must
//! be in `tests/complaints-elsewhere.txt` and name the issue that brings it: none stays open.

use crate::Failure;
use crate::covers::{Known, List};

const COMPLAINTS: List = List {
    word: "Complaint",
    list: "tests/complaints.txt",
    elsewhere: "tests/complaints-elsewhere.txt",
    doc: "docs/complaints.md",
    markers: (
        "<!-- complaints: begin (./x complaints --write) -->",
        "<!-- complaints: end -->",
    ),
};

/// Writes the table into the document.
pub(crate) fn write() -> Result<(), Failure> {
    COMPLAINTS.write(&table(&COMPLAINTS.read()?)?)
}

/// Complains about complaints without a test and about a stale table.
pub(crate) fn check() -> Result<Vec<String>, Failure> {
    let known = COMPLAINTS.read()?;
    let mut complaints = gaps(&known);
    complaints.extend(COMPLAINTS.stale(&table(&known)?)?);
    Ok(complaints)
}

fn gaps(known: &Known) -> Vec<String> {
    let mut complaints = COMPLAINTS.gaps(known);
    for (number, reason) in &known.elsewhere {
        let names_issue = reason
            .split("issue ")
            .skip(1)
            .any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        if !names_issue {
            complaints.push(format!(
                "complaint {number} is open: `{reason}` names no issue that brings it"
            ));
        }
    }
    complaints
}

fn table(known: &Known) -> Result<String, Failure> {
    let heads = ["reported as", "symptom there", "here"];
    COMPLAINTS.reports(known, heads, "REPORTS | SYMPTOM | WHAT HAPPENS HERE")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::TextFile;

    fn known(elsewhere: &str) -> Known {
        let file = |path: &str, text: &str| TextFile {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let list = "9: #15032, T#152 | dies | goes on\n10: own | lies | tells\n11: #1 | a | b";
        let files = [
            file(COMPLAINTS.list, list),
            file(COMPLAINTS.elsewhere, elsewhere),
            file(
                "tests/connect/test_a.py",
                "# Promise: it lives\n# Complaint: 9\ndef test_it(worker):",
            ),
        ];
        COMPLAINTS.known(&files).expect("well-formed")
    }

    #[test]
    fn a_complaint_without_a_test_must_name_the_issue_that_brings_it() {
        let found = gaps(&known("10: comes with issue 7\n11: later\n"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("complaint 11 is open"), "{found:?}");
        let found = gaps(&known("10: comes with issue 7\n"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("complaint 11: no test"), "{found:?}");
    }

    #[test]
    fn the_table_links_reports_and_tests() {
        let table = table(&known("10: comes with issue 7\n")).expect("three columns each");
        let row = table.lines().find(|line| line.starts_with("| 9 |"));
        assert_eq!(
            row,
            Some(
                "| 9 | [#15032](https://github.com/apache/iceberg/issues/15032), \
                 [T#152](https://github.com/databricks/iceberg-kafka-connect/issues/152) | dies | \
                 goes on | [`test_it`](../tests/connect/test_a.py) |"
            )
        );
        assert!(table.contains("| 10 | own | lies | tells | comes with issue 7 |"));
    }
}
