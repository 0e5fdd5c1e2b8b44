//! Keys about tables whose rows records change.

use super::KeyType::{Boolean, Int, List, Long, String};
use super::{Group, Key};

/// The formats that come with Frazil, by the names of their files.
const FORMATS: &[&str] = &[
    "debezium",
    "debezium-unwrapped",
    "upsert",
    "dms",
    "maxwell",
    "canal",
    "apache-cdc",
    "tabular-cdc",
];
const TRUNCATE: &[&str] = &["fail", "ignore", "truncate"];
const ABSENT: &[&str] = &["fail", "null"];
const DELETES: &[&str] = &["auto", "vector", "position"];
const NO_DELETES: &str = "equality deletes are never written, and `copy-on-write` is not built yet";

/// Keys for changes.
pub(super) const CHANGES: Group = Group {
    title: "Changes",
    intro: "For tables whose mode is `upsert` or `cdc`; see docs/cdc.md. Rows are found by their key, \
            the table's id columns. Such a table has one committer: run one task, or let the tasks \
            agree through the control topic, or set `frazil.coordination=local` where there is one \
            worker.",
    keys: &[
        Key::own(
            "frazil.partitions.accept",
            Int,
            "How many partitions each topic may have, should some be added. Later changes of a key then \
             come through another partition than those before them, so the task stops until this key says \
             that it is meant (`docs/cdc.md`, \"More partitions\").",
        )
        .within(1, 200_000),
        Key::own(
            "iceberg.tables.default-change-format",
            String,
            "The format of the records of tables whose mode is `cdc`; `debezium` without this key.",
        )
        .one_of(FORMATS, "")
        .medium(),
        Key::own(
            "iceberg.tables.default-order-columns",
            List,
            "Columns of the row that order the changes of a key, most significant first, in place of \
             what the format says. A change that is older than the one before it changes nothing.",
        )
        .medium(),
        Key::own(
            "iceberg.tables.default-order-epoch",
            String,
            "A text that makes orders so far incomparable when it changes: for a source that was set \
             up anew and numbers its changes from the beginning.",
        ),
        Key::own(
            "iceberg.tables.default-truncate",
            String,
            "What it does when the source empties its table. `fail`: it is an error of the record. \
             `ignore`: it is skipped and counted. `truncate`: all rows go that came before it, \
             if all changes of the table come through one partition of one topic; else it is an \
             error of the record.",
        )
        .or("fail")
        .one_of(TRUNCATE, ""),
        Key::own(
            "iceberg.tables.default-before-is-whole",
            Boolean,
            "Whether rows before a change have all their values, as with `REPLICA IDENTITY FULL` in \
             PostgreSQL or a full row image in MySQL: then a delete may be found, and ordered, by values of \
             such a row that its record's key does not have. Sources make up the values that they do not \
             log.",
        )
        .or("false"),
        Key::own(
            "iceberg.tables.default-delete-mode",
            String,
            "How rows are deleted. `vector`: with deletion vectors, which needs format version 3. \
             `position`: with position deletes of single files, which needs version 2. `auto`: by what the \
             table's version is. A table of the other version is refused.",
        )
        .or("auto")
        .one_of(DELETES, NO_DELETES),
        Key::own(
            "iceberg.tables.default-dedup-window-rows",
            Long,
            "Among how many of the newest rows of a table of the mode `append-once` a row with the key of a \
             record is looked for, at least. Their keys are in memory, with 9 to 18 bytes each.",
        )
        .or("10000000")
        .within(1, i64::MAX)
        .medium(),
        Key::own(
            "iceberg.tables.default-soft-delete-column",
            String,
            "A column that is true in rows that the source deleted, which stay with their last values, and \
             false in all others. It is added to the table. Without this key a delete removes the row.",
        )
        .medium(),
        Key::own(
            "iceberg.tables.default-unavailable-values",
            String,
            "What becomes of a change whose source left values out (PostgreSQL's TOAST, Oracle's LOBs) when \
             the table has no row to take them from. `fail`: it is an error of the record. `null`: they \
             become null, and are counted.",
        )
        .or("fail")
        .one_of(ABSENT, ""),
        Key::own(
            "iceberg.tables.default-unavailable-placeholder",
            String,
            "The text that stands in place of a value that the source left out; what it is in other types \
             follows from it. Debezium's `unavailable.value.placeholder`.",
        )
        .or("__debezium_unavailable_value"),
        Key::own(
            "iceberg.table.<name>.change-format",
            String,
            "As `iceberg.tables.default-change-format`, for this table.",
        )
        .one_of(FORMATS, "")
        .medium(),
        Key::own(
            "iceberg.table.<name>.order-columns",
            List,
            "As `iceberg.tables.default-order-columns`, for this table.",
        )
        .medium(),
        Key::own(
            "iceberg.table.<name>.order-epoch",
            String,
            "As `iceberg.tables.default-order-epoch`, for this table.",
        ),
        Key::own(
            "iceberg.table.<name>.truncate",
            String,
            "As `iceberg.tables.default-truncate`, for this table.",
        )
        .one_of(TRUNCATE, ""),
        Key::own(
            "iceberg.table.<name>.before-is-whole",
            Boolean,
            "As `iceberg.tables.default-before-is-whole`, for this table.",
        ),
        Key::own(
            "iceberg.table.<name>.delete-mode",
            String,
            "As `iceberg.tables.default-delete-mode`, for this table.",
        )
        .one_of(DELETES, NO_DELETES),
        Key::own(
            "iceberg.table.<name>.dedup-window-rows",
            Long,
            "As `iceberg.tables.default-dedup-window-rows`, for this table.",
        )
        .within(1, i64::MAX)
        .medium(),
        Key::own(
            "iceberg.table.<name>.soft-delete-column",
            String,
            "As `iceberg.tables.default-soft-delete-column`, for this table.",
        )
        .medium(),
        Key::own(
            "iceberg.table.<name>.unavailable-values",
            String,
            "As `iceberg.tables.default-unavailable-values`, for this table.",
        )
        .one_of(ABSENT, ""),
        Key::own(
            "iceberg.table.<name>.unavailable-placeholder",
            String,
            "As `iceberg.tables.default-unavailable-placeholder`, for this table.",
        ),
        Key::own(
            "iceberg.table.<name>.engines",
            List,
            "As `frazil.engines`, for this table.",
        ),
    ],
};

#[cfg(test)]
#[test]
fn each_format_that_there_is_can_be_named() {
    let names = crate::change::PRESETS.iter().map(|(name, _)| *name);
    assert_eq!(names.collect::<Vec<_>>(), FORMATS);
}
