//! The files made from the table of keys. A test fails when they differ from it; `UPDATE_EXPECT=1`
//! rewrites them.

use std::fmt::Write;

use expect_test::expect_file;

use super::keys::{Check, GROUPS, Importance, Key, KeyClass, KeyType};
use crate::secret::SECRET_MARKERS;

fn type_name(kind: KeyType) -> &'static str {
    match kind {
        KeyType::String => "STRING",
        KeyType::List => "LIST",
        KeyType::Boolean => "BOOLEAN",
        KeyType::Int => "INT",
        KeyType::Long => "LONG",
        KeyType::Password => "PASSWORD",
    }
}

fn importance_name(importance: Importance) -> &'static str {
    match importance {
        Importance::High => "HIGH",
        Importance::Medium => "MEDIUM",
        Importance::Low => "LOW",
    }
}

fn class_name(class: KeyClass) -> &'static str {
    match class {
        KeyClass::Own => "own",
        KeyClass::Passed => "passed",
        KeyClass::Inert => "inert",
        KeyClass::Legacy => "legacy",
        KeyClass::Framework => "framework",
    }
}

/// Writes `\` , tab and line end so that a line of the table stays a line.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('\t', "\\t")
        .replace('\n', "\\n")
}

fn tsv() -> String {
    let mut text = String::from(
        "# Generated from rust/core/src/config/keys by `UPDATE_EXPECT=1 cargo test -p frazil-core \
         generated`; do not edit.\n\
         # @secret: a key is a PASSWORD when a marker occurs in `-<name>-`, lower case, with `.` and \
         `_` as `-`.\n\
         # Rows: name, type, default (\\N is none), importance, class, group, display name, words that it \
         takes, key and words with which it has a meaning, documentation. Words are parted by commas. \
         Backslash, tab and line end are written \\\\, \\t, \\n.\n",
    );
    for marker in SECRET_MARKERS {
        writeln!(text, "@secret\t{marker}").unwrap();
    }
    for group in GROUPS {
        for key in group.keys {
            let when = key.when.map_or(String::new(), |(key, words)| {
                format!("{key}={}", words.join(","))
            });
            writeln!(
                text,
                "{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{when}\t{}",
                key.name,
                type_name(key.kind),
                key.default.map_or("\\N".to_owned(), escape),
                importance_name(key.importance),
                class_name(key.class),
                group.title,
                display_name(key.name),
                key.words().join(","),
                escape(key.doc),
            )
            .unwrap();
        }
    }
    text
}

/// Returns a key's name as a form shows it: `iceberg.catalog.s3.path-style-access` as `S3 path style
/// access`.
fn display_name(name: &str) -> String {
    let prefixes = [
        "iceberg.catalog.",
        "iceberg.control.",
        "iceberg.tables.",
        "iceberg.table.",
        "iceberg.",
        "frazil.",
    ];
    let short = prefixes
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .unwrap_or(name);
    let words = short.replace(['.', '-'], " ");
    let mut letters = words.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

fn values_of(key: &Key) -> String {
    match key.check {
        Check::Any => String::new(),
        Check::Range(least, i64::MAX) => format!("at least {least}"),
        Check::Range(least, most) => format!("{least} to {most}"),
        Check::OneOf { words, .. } => format!("`{}`", words.join("`, `")),
        Check::Refused(_) if key.kind == KeyType::Boolean => "`false` only".to_owned(),
        Check::Refused(_) => "refused".to_owned(),
        Check::Renamed(meant) => format!("as `{meant}`"),
    }
}

fn reason_of(key: &Key) -> String {
    match key.check {
        Check::Refused(reason) => format!(" Not supported: {reason}."),
        Check::OneOf { note, .. } if !note.is_empty() => format!(" Not others: {note}."),
        _ => String::new(),
    }
}

fn markdown() -> String {
    let mut text = String::from(
        "# Configuration\n\n\
         <!-- Generated from rust/core/src/config/keys by `UPDATE_EXPECT=1 cargo test -p frazil-core \
         generated`; do not edit. -->\n\n\
         A configuration of the Apache Iceberg sink works here with another `connector.class`: the \
         names under `iceberg.` are that sink's and mean the same; what becomes of each of its keys and \
         of Tabular's: `docs/migration.md`. Names under `frazil.` are new. `PUT \
         /connector-plugins/io.frazil.connect.FrazilSinkConnector/config/validate` checks a whole \
         configuration, with its tables, columns, catalog, storage and topics, and writes nothing. \
         Errors stand on their keys; what is no error stands in the same answer as the value of \
         `frazil.warnings`, and once in the worker's log. Each key is in one of these classes.\n\n\
         | class | what happens |\n|---|---|\n\
         | own | It has a meaning here; a wrong value is refused. |\n\
         | passed | It goes on to the catalog, the storage, the Kafka clients or the tables. Known \
         ones are checked; any other is passed on and reported once. |\n\
         | inert | It belongs to the Apache sink and means nothing here: accepted, one warning. |\n\
         | legacy | Another sink's name: read under ours with one warning, or refused by name. |\n\
         | unknown | Any other key under `iceberg.` or `frazil.`: refused, and the nearest known name \
         is suggested. |\n\n\
         Keys of Kafka Connect itself (class framework) are checked by Connect.\n\n\
         Connect's REST API shows `[hidden]` for the value of every key whose name says that it is a \
         secret: a name that has one of these in it, with `.` and `_` read as `-`: ",
    );
    let markers: Vec<String> = SECRET_MARKERS
        .iter()
        .map(|marker| format!("`{marker}`"))
        .collect();
    writeln!(text, "{}.", markers.join(", ")).unwrap();
    for group in GROUPS {
        write!(text, "\n## {}\n\n{}\n\n", group.title, group.intro).unwrap();
        text.push_str(
            "| key | type | default | values | class | meaning |\n|---|---|---|---|---|---|\n",
        );
        for key in group.keys {
            writeln!(
                text,
                "| `{}` | {} | {} | {} | {} | {}{} |",
                key.name,
                type_name(key.kind),
                key.default
                    .map_or(String::new(), |value| format!("`{value}`")),
                values_of(key),
                class_name(key.class),
                key.doc,
                reason_of(key),
            )
            .unwrap();
        }
    }
    text
}

#[test]
fn generated_java_table_is_current() {
    expect_file!["../../../../java/src/main/resources/io/frazil/connect/config-keys.tsv"]
        .assert_eq(&tsv());
}

#[test]
fn generated_documentation_is_current() {
    expect_file!["../../../../docs/configs.md"].assert_eq(&markdown());
}
