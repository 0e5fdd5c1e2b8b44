//! The engines that read a table, and what is known of the deletes that they read.
//!
//! A cell of the table below is a version with which it was tried here, or that the vendor's
//! documentation names; `docs/compatibility.md` says which, with date and source. What nobody knows is
//! a no: an engine that passes over deletes shows rows that are gone.

use super::reader::{Reader, shown};
use crate::error::{Result, SinkError};

const ENGINES: &str = "frazil.engines";

/// Since which version an engine reads something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Since {
    /// A version that was tried, or that is documented.
    Version(&'static str),
    /// A service without versions.
    Service,
    /// Nobody knows.
    Unknown,
}

/// What is known of one engine.
struct Known {
    name: &'static str,
    /// Position delete files, of format version 2.
    positions: Since,
    /// Deletion vectors, of format version 3.
    vectors: Since,
}

const fn known(name: &'static str, positions: Since, vectors: Since) -> Known {
    Known {
        name,
        positions,
        vectors,
    }
}

/// In the order of their names. The versions of `spark` are its own, with Iceberg's runtime 1.12.0.
const KNOWN: &[Known] = &[
    known("athena", Since::Service, Since::Unknown),
    known("bigquery", Since::Unknown, Since::Service),
    known("clickhouse", Since::Version("25.8"), Since::Unknown),
    known("duckdb", Since::Version("1.5.5"), Since::Version("1.5.5")),
    known("hive", Since::Unknown, Since::Unknown),
    known(
        "iceberg-java",
        Since::Version("1.12.0"),
        Since::Version("1.12.0"),
    ),
    known("impala", Since::Unknown, Since::Unknown),
    known(
        "pyiceberg",
        Since::Version("0.12.0"),
        Since::Version("0.12.0"),
    ),
    known("snowflake", Since::Service, Since::Service),
    known("spark", Since::Version("4.1.1"), Since::Version("4.1.1")),
    known("trino", Since::Version("483"), Since::Version("483")),
];

/// An engine that reads a table, as it was named: `name`, or `name:version`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engine {
    name: String,
    version: Option<String>,
}

impl Engine {
    fn parse(word: &str) -> Engine {
        let (name, version) = match word.split_once(':') {
            Some((name, version)) => (name, Some(version.trim().to_owned())),
            None => (word, None),
        };
        Engine {
            name: name.trim().to_ascii_lowercase(),
            version,
        }
    }

    /// Tells whether the engine reads the deletes of tables of `format_version`.
    fn reads(&self, format_version: u8) -> bool {
        let known = KNOWN.iter().find(|known| known.name == self.name);
        let since = known.map_or(Since::Unknown, |known| match format_version {
            0..3 => known.positions,
            3.. => known.vectors,
        });
        match (since, &self.version) {
            (Since::Unknown, _) => false,
            (Since::Service, _) | (Since::Version(_), None) => true,
            (Since::Version(since), Some(version)) => !is_older(version, since),
        }
    }
}

impl std::fmt::Display for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.version {
            Some(version) => write!(f, "{}:{version}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Tells whether `version` is older than `since`. Parts that it leaves out are the newest; a part
/// that is no number is of no version that anybody knows.
fn is_older(version: &str, since: &str) -> bool {
    for (part, since) in version.split('.').zip(since.split('.')) {
        let (Ok(part), Ok(since)) = (part.parse::<u32>(), since.parse::<u32>()) else {
            return true;
        };
        if part != since {
            return part < since;
        }
    }
    false
}

/// Reads the engines of the table `name`: its own, else those of all tables.
pub(super) fn read(reader: &mut Reader<'_>, name: &str, has_changes: bool) -> Vec<Engine> {
    let own = format!("iceberg.table.{name}.engines");
    let key = match reader.has(&own) {
        true => own,
        false => ENGINES.to_owned(),
    };
    let words = reader.list(&key);
    for word in &words {
        let version = word
            .split_once(':')
            .map_or("", |(_, version)| version.trim());
        let is_version = version.starts_with(|c: char| c.is_ascii_digit());
        if word.contains(':') && !is_version {
            let message = format!("{} is not `name` or `name:version`", shown(&key, word));
            reader.error(&key, message);
        }
    }
    if !has_changes && key != ENGINES {
        reader.error(&key, "has no effect: rows are appended to this table");
    }
    words.iter().map(|word| Engine::parse(word)).collect()
}

/// Checks that all `engines` read the deletes of a table with changes.
///
/// # Errors
///
/// `ENGINE_READS_NO_DELETES` with the engine and what to do instead.
pub fn check(engines: &[Engine], format_version: u8) -> Result<()> {
    let Some(engine) = engines.iter().find(|engine| !engine.reads(format_version)) else {
        return Ok(());
    };
    let all_read = |version| engines.iter().all(|engine| engine.reads(version));
    let (written, other) = match format_version {
        0..3 => ("position delete files", 3),
        3.. => ("deletion vectors", 2),
    };
    let instead = match (other, all_read(other)) {
        (2, true) => {
            "all of them read a table of format version 2, which has position delete files: make it with \
             `iceberg.tables.auto-create-props.format-version=2`; a table is never taken back to it"
        }
        (_, true) => {
            "all of them read a table of format version 3, which has deletion vectors: make it with \
             `iceberg.tables.auto-create-props.format-version=3`, or upgrade it"
        }
        (_, false) => {
            "append the changes to a table as a log (mode `append`), and let a query take the newest of \
             each key"
        }
    };
    let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
    let message = format!(
        "`{ENGINES}` names `{engine}`, of which nobody knows that it reads {written}: it may show rows \
         that are gone. {instead}. Something is known of {}, in the versions of docs/compatibility.md",
        names.join(", ")
    );
    Err(SinkError::config("ENGINE_READS_NO_DELETES", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(engines: &[&str], format_version: u8) -> std::result::Result<(), String> {
        let engines: Vec<Engine> = engines.iter().map(|word| Engine::parse(word)).collect();
        check(&engines, format_version).map_err(|error| error.report())
    }

    // Promise: a table with changes is refused when an engine of `frazil.engines` is not known to read its deletes, with what to do instead
    // Case: 29
    #[test]
    fn an_engine_that_reads_no_deletes_is_shown_rows_that_are_gone() {
        assert_eq!(checked(&[], 3), Ok(()));
        assert_eq!(
            checked(&["duckdb", "Spark:4.1", "pyiceberg:0.12.0"], 3),
            Ok(())
        );
        assert_eq!(
            checked(&["athena", "clickhouse:26.1", "duckdb:2"], 2),
            Ok(())
        );
        for (engines, version, parts) in [
            (
                &["duckdb", "athena"][..],
                3,
                &["`athena`", "deletion vectors", "format-version=2"][..],
            ),
            (
                &["bigquery"],
                2,
                &["`bigquery`", "position delete files", "format-version=3"],
            ),
            (&["athena", "bigquery"], 2, &["`bigquery`", "mode `append`"]),
            (&["duckdb:1.4"], 3, &["`duckdb:1.4`", "mode `append`"]),
            (
                &["oracle"],
                3,
                &["`oracle`", "duckdb", "docs/compatibility.md"],
            ),
            (&["duckdb:x"], 2, &["`duckdb:x`"]),
        ] {
            let refused = checked(engines, version).expect_err("it is not known");
            for part in ["ENGINE_READS_NO_DELETES"].iter().chain(parts) {
                assert!(refused.contains(part), "{engines:?}: {refused}");
            }
        }
    }

    #[test]
    fn what_is_known_is_in_the_documentation() {
        let document = include_str!("../../../../docs/compatibility.md");
        assert!(KNOWN.is_sorted_by_key(|known| known.name));
        for known in KNOWN {
            let cell = |since| match since {
                Since::Version(version) => version,
                Since::Service => "yes",
                Since::Unknown => "unknown",
            };
            let row = format!(
                "| `{}` | {} | {} |",
                known.name,
                cell(known.positions),
                cell(known.vectors)
            );
            assert!(document.contains(&row), "docs/compatibility.md lacks {row}");
        }
    }
}
