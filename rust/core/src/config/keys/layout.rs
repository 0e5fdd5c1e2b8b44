//! Keys about how tables are laid out, and which columns of a record they get.

use super::KeyType::{List, Password, String};
use super::{Group, Key};

const SPEC_POLICIES: &[&str] = &["keep", "evolve", "fail"];

/// Keys about partitioning, order and place.
pub(super) const LAYOUT: Group = Group {
    title: "Layout of tables",
    intro: "How rows are partitioned and sorted, and where a table lies. `partition-by` takes a \
            comma-separated list of columns and of `year(c)`, `month(c)`, `day(c)`, `hour(c)`, \
            `bucket(c, n)`, `truncate(c, n)`, `identity(c)`, `void(c)`; a number may also come \
            first, as in `bucket(16, id)`, and `years(c)` is `year(c)`. `sort-by` takes the same \
            without `void`, each with `asc` (the default) or `desc` and `nulls first` or `nulls \
            last`. Dots name columns inside of structs. A column that an existing table does not \
            have is refused at the start of a task.",
    keys: &[
        Key::own(
            "iceberg.tables.partition-spec-policy",
            String,
            "What to do when an existing table is partitioned otherwise than `partition-by` says. \
             `keep`: write with the table's own partitioning and say so once. `evolve`: change the \
             table's partitioning for new files; those that are there stay as they are. `fail`: do \
             not start. A task looks when it begins to write the table; who changes the \
             partitioning later is obeyed.",
        )
        .or("keep")
        .one_of(SPEC_POLICIES, "")
        .medium(),
        Key::own(
            "iceberg.table.<name>.partition-spec-policy",
            String,
            "As `iceberg.tables.partition-spec-policy`, for this table.",
        )
        .one_of(SPEC_POLICIES, ""),
        Key::own(
            "iceberg.tables.default-sort-by",
            String,
            "How rows are sorted within data files, and the sort order of a table that is created. \
             Rows are sorted within each row group; a file says that it is sorted when all its \
             rows are. Without this key files are sorted as the table itself says.",
        )
        .medium(),
        Key::own(
            "iceberg.table.<name>.sort-by",
            String,
            "As `iceberg.tables.default-sort-by`, for this table.",
        )
        .medium(),
        Key::own(
            "iceberg.table.<name>.location",
            String,
            "Where the table goes when it is created, as a URI; else the catalog chooses.",
        ),
        Key::own(
            "iceberg.table.<name>.comment",
            String,
            "What the table is about: its property `comment` when it is created.",
        ),
        Key::own(
            "iceberg.table.<name>.auto-create-props.*",
            String,
            "As `iceberg.tables.auto-create-props.*`, for this table; laid over those.",
        ),
        Key::own(
            "iceberg.table.<name>.write-props.*",
            String,
            "As `iceberg.tables.write-props.*`, for this table; laid over those.",
        ),
    ],
};

/// Keys about the columns that tables get.
pub(super) const COLUMNS: Group = Group {
    title: "Column rules",
    intro: "Which fields of a record's value a table gets, and which of them only as a hash. The \
            rules hold before anything else looks at the record for this table: what is left out \
            is in no column, no bound, no schema change and no message. They do not hold for where \
            a record goes, nor for dead letters: Connect's dead letter queue has the original \
            record. Dots name fields inside of structs, `element` those of a list's elements, \
            `key` and `value` a map's; in a record without a schema a map's keys are names of \
            fields. docs/columns.md says what is hashed.",
    keys: &[
        Key::own(
            "iceberg.tables.columns.include",
            List,
            "The only fields that tables get.",
        ),
        Key::own(
            "iceberg.table.<name>.columns.include",
            List,
            "As `iceberg.tables.columns.include`, for this table.",
        ),
        Key::own(
            "iceberg.tables.columns.exclude",
            List,
            "Fields that tables do not get.",
        ),
        Key::own(
            "iceberg.table.<name>.columns.exclude",
            List,
            "As `iceberg.tables.columns.exclude`, for this table.",
        ),
        Key::own(
            "iceberg.tables.columns.hash",
            List,
            "Fields that tables get as a text of 64 hexadecimal digits: the SHA-256 of the salt and \
             the value.",
        ),
        Key::own(
            "iceberg.table.<name>.columns.hash",
            List,
            "As `iceberg.tables.columns.hash`, for this table.",
        ),
        Key::own(
            "iceberg.tables.columns.hash-salt",
            Password,
            "The salt of hashed fields; required with them. The same value has the same hash as \
             long as the salt stays the same.",
        ),
        Key::own(
            "iceberg.table.<name>.columns.hash-salt",
            Password,
            "As `iceberg.tables.columns.hash-salt`, for this table.",
        ),
    ],
};
