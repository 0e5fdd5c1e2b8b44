//! Keys about the tables and how often they are committed.

use super::KeyType::{Boolean, Int, List, Long, String};
use super::{Group, Key};

const MODES: &[&str] = &["append", "append-once", "upsert", "cdc"];

/// Keys for all tables of the connector.
pub(super) const DEFAULTS: Group = Group {
    title: "Tables",
    intro: "What is written where. Without a key of the next group, every record goes to all tables \
            of `iceberg.tables`.",
    keys: &[
        Key::own(
            "iceberg.tables",
            List,
            "The tables to write, each as `namespace.table`. Required, unless records name their \
             tables.",
        )
        .high(),
        Key::own(
            "iceberg.tables.auto-create-enabled",
            Boolean,
            "Create a missing table, and its namespaces, from the first record that has a schema.",
        )
        .or("false")
        .high(),
        Key::own(
            "iceberg.tables.evolve-schema-enabled",
            Boolean,
            "Let the tables follow their records: the same as \
             `iceberg.tables.evolve-schema-mode=full`.",
        )
        .or("false")
        .high(),
        Key::own(
            "iceberg.tables.evolve-schema-mode",
            String,
            "How the tables follow their records. `off`: not at all, fields that a table does not \
             have are dropped. `add-only`: columns and nested fields are added. `full`: also types \
             are promoted (int to long, float to double, decimals to more digits, on format \
             version 3 dates to timestamps), and required columns become optional. Nothing changes \
             for a record that is refused all the same. Without it, \
             `iceberg.tables.evolve-schema-enabled` decides.",
        )
        .one_of(&["off", "add-only", "full"], "")
        .medium(),
        Key::own(
            "iceberg.tables.evolve-schema-max-columns-per-commit",
            Int,
            "How many columns and nested fields one change of a schema may add. Records that need \
             more are refused.",
        )
        .or("500")
        .within(1, i32::MAX as i64),
        Key::own(
            "iceberg.tables.evolve-schema-max-columns",
            Int,
            "How many columns and nested fields a table may have after a change of its schema. \
             Records that need more are refused.",
        )
        .or("5000")
        .within(1, i32::MAX as i64),
        Key::own(
            "iceberg.tables.breaking-change-policy",
            String,
            "What becomes of a record that tells of a change which its table cannot follow: a type \
             that is no promotion, a required field or a key that is gone. `dlq`: it is refused, as \
             any record that does not fit: a dead letter with `errors.tolerance=all`, else the task \
             stops. `fail`: the task stops, whatever is tolerated. `block-table`: that table stops \
             before the record, the others go on; the consumer group's offset waits there, and the \
             record is tried again when the task starts anew. Values that the column holds exactly \
             land all the same.",
        )
        .or("dlq")
        .one_of(&["dlq", "fail", "block-table"], "")
        .medium(),
        Key::own(
            "iceberg.tables.schema-force-optional",
            Boolean,
            "Make every column optional when a table is created or gets a column.",
        )
        .or("false")
        .medium(),
        Key::own(
            "iceberg.tables.schema-case-insensitive",
            Boolean,
            "Match field names to column names without regard to case.",
        )
        .or("false")
        .medium(),
        Key::own(
            "iceberg.tables.default-commit-branch",
            String,
            "The branch that commits go to.",
        )
        .or("main")
        .medium(),
        Key::own(
            "iceberg.tables.default-id-columns",
            List,
            "The columns that identify a row: identifier fields of a table that is created, and the key \
             by which rows are changed. Without them changes go by the identifier fields that the table \
             has.",
        )
        .medium(),
        Key::own(
            "iceberg.tables.default-partition-by",
            String,
            "How a table that is created is partitioned; see the layout of tables below. When an \
             existing table is partitioned otherwise, `iceberg.tables.partition-spec-policy` \
             decides.",
        )
        .medium(),
        Key::own(
            "iceberg.tables.default-mode",
            String,
            "What a record does to a table. `append`: it becomes a row. `append-once`: it becomes a row, if \
             the table has none with its key among its newest (`dedup-window-rows`). `upsert`: it replaces the row that \
             has its key, and a record without a value removes the row of its key. `cdc`: it is a \
             change in the format of `iceberg.tables.default-change-format`. The key is the table's \
             id columns.",
        )
        .or("append")
        .one_of(MODES, "")
        .high(),
        Key::own(
            "iceberg.tables.metadata-columns",
            List,
            "Which of the columns `_topic`, `_partition`, `_offset` (as Kafka has the record, before \
             any transform), `_timestamp`, `_key` (text; bytes as `binary`; anything else as JSON \
             text), `_headers` (a JSON list of objects with `key` and `value`) every row gets. \
             `_topic:name` gives the column another name. `frazil verify` reads the first three \
             under their own names.",
        )
        .medium(),
        Key::own(
            "iceberg.tables.key-columns",
            List,
            "Fields of the record's key that become columns: dotted paths, each alone or as \
             `path:column`.",
        ),
        Key::own(
            "iceberg.tables.value-column",
            String,
            "The column for values that are neither structs nor maps, as Connect's `StringConverter` \
             and `ByteArrayConverter` make them, with or without a schema; without it such records \
             are errors.",
        ),
        Key::own(
            "iceberg.tables.null-value-behavior",
            String,
            "What happens to a record whose value is null: `skip` counts and skips it, `key-row` \
             makes a row of its key's fields, `fail` makes it an error of the record, and so does \
             `dlq`, which needs a dead letter queue.",
        )
        .or("skip")
        .one_of(&["skip", "key-row", "fail", "dlq"], "")
        .medium(),
        Key::own(
            "iceberg.tables.cdc-field",
            String,
            "The field of the record that holds the operation of a change, as Tabular's sink has it: \
             tables without a mode of their own get the mode `cdc` and the format `tabular-cdc`, with \
             the operation there.",
        ),
        Key::own(
            "iceberg.tables.upsert-mode-enabled",
            Boolean,
            "Replace the row that has the same key, as Tabular's sink has it: tables without a mode of \
             their own get the mode `upsert`.",
        )
        .or("false"),
    ],
};

/// Keys that decide which table a record goes to.
pub(super) const ROUTING: Group = Group {
    title: "Routes",
    intro: "Which tables a record goes to, by a text that it has: a field of its value, its topic (as \
            transforms left it, while offsets stay those of the topic that Kafka has), its key or a \
            header. Either `iceberg.tables` lists the tables and `iceberg.table.<name>.route-regex` \
            says which texts each takes, or the text names the table \
            (`iceberg.tables.dynamic-enabled`, `iceberg.tables.name-template`). Patterns are Java's, \
            and match the whole text. Texts are strings, whole numbers and booleans.",
    keys: &[
        Key::own(
            "iceberg.tables.route-field",
            String,
            "The field of the value that decides where a record goes, by its dotted path. The same \
             as `iceberg.tables.route-source=value.<field>`.",
        )
        .medium(),
        Key::own(
            "iceberg.tables.route-source",
            String,
            "What decides where a record goes: `topic`, `key`, `key.<field>`, `value.<field>` or \
             `header.<name>`.",
        )
        .medium(),
        Key::own(
            "iceberg.tables.unmatched-behavior",
            String,
            "What happens to a record that no table is for (no text, no pattern that matches, a \
             table that is not allowed or does not exist and may not be created): `fail` makes it an \
             error of the record, so that it goes to the dead letter queue or stops the task; so \
             does `dlq`, which needs a dead letter queue; `drop` counts and drops it, as the Apache \
             sink does.",
        )
        .or("fail")
        .one_of(&["fail", "drop", "dlq"], "")
        .medium(),
        Key::own(
            "iceberg.tables.dynamic-enabled",
            Boolean,
            "The text is the name of the table. Keys of `iceberg.table.<name>.` apply to it too.",
        )
        .or("false")
        .medium(),
        Key::own(
            "iceberg.tables.name-template",
            String,
            "The name of the table, with `${topic}`, `${key}`, `${key.<field>}`, `${value.<field>}`, \
             `${header.<name>}` and the groups of `iceberg.tables.route-regex` as `${1}` or \
             `${<group>}` in it: `raw.${topic}`. Implies `iceberg.tables.dynamic-enabled`.",
        )
        .medium(),
        Key::own(
            "iceberg.tables.route-regex",
            String,
            "Which texts name a table, as a pattern whose groups the template may use.",
        ),
        Key::own(
            "iceberg.tables.name-case",
            String,
            "The case of names that records decide: `lower`, `upper`, or `keep` as it comes.",
        )
        .or("lower")
        .one_of(&["lower", "upper", "keep"], ""),
        Key::own(
            "iceberg.tables.name-dots",
            String,
            "What a dot in a text means: `nested` parts namespaces and table, `replace` makes it an \
             underscore, `keep` leaves it in the name of the table or namespace.",
        )
        .or("nested")
        .one_of(&["nested", "replace", "keep"], ""),
        Key::own(
            "iceberg.tables.default-namespace",
            String,
            "The namespace of tables whose name has none.",
        )
        .medium(),
        Key::own(
            "iceberg.tables.dynamic-allow",
            List,
            "The tables that records may name, each as `namespace.table` or `namespace.*`; all \
             without this key.",
        )
        .medium(),
        Key::own(
            "iceberg.tables.dynamic-tables-max",
            Int,
            "How many tables records may name in one worker process, all its tasks of the connector \
             together: with several workers the connector may have as many times more. Records that \
             name one more are errors.",
        )
        .or("500")
        .within(1, 100_000),
    ],
};

/// Keys for one table.
pub(super) const PER_TABLE: Group = Group {
    title: "One table",
    intro: "`<name>` is the table as it stands in `iceberg.tables`. A key of this group wins over \
            the one for all tables. Where records name their tables, `<name>` is the whole name with \
            its namespace, as it comes out.",
    keys: &[
        Key::own(
            "iceberg.table.<name>.auto-create-enabled",
            Boolean,
            "As `iceberg.tables.auto-create-enabled`, for this table.",
        ),
        Key::own(
            "iceberg.table.<name>.evolve-schema-enabled",
            Boolean,
            "As `iceberg.tables.evolve-schema-enabled`, for this table.",
        ),
        Key::own(
            "iceberg.table.<name>.evolve-schema-mode",
            String,
            "As `iceberg.tables.evolve-schema-mode`, for this table.",
        )
        .one_of(&["off", "add-only", "full"], "")
        .medium(),
        Key::own(
            "iceberg.table.<name>.breaking-change-policy",
            String,
            "As `iceberg.tables.breaking-change-policy`, for this table.",
        )
        .one_of(&["dlq", "fail", "block-table"], "")
        .medium(),
        Key::own(
            "iceberg.table.<name>.commit-branch",
            String,
            "As `iceberg.tables.default-commit-branch`, for this table.",
        )
        .medium(),
        Key::own(
            "iceberg.table.<name>.id-columns",
            List,
            "As `iceberg.tables.default-id-columns`, for this table.",
        )
        .medium(),
        Key::own(
            "iceberg.table.<name>.partition-by",
            String,
            "As `iceberg.tables.default-partition-by`, for this table.",
        )
        .medium(),
        Key::own(
            "iceberg.table.<name>.mode",
            String,
            "As `iceberg.tables.default-mode`, for this table.",
        )
        .one_of(MODES, "")
        .high(),
        Key::own(
            "iceberg.table.<name>.metadata-columns",
            List,
            "As `iceberg.tables.metadata-columns`, for this table.",
        ),
        Key::own(
            "iceberg.table.<name>.key-columns",
            List,
            "As `iceberg.tables.key-columns`, for this table.",
        ),
        Key::own(
            "iceberg.table.<name>.null-value-behavior",
            String,
            "As `iceberg.tables.null-value-behavior`, for this table.",
        )
        .one_of(&["skip", "key-row", "fail", "dlq"], ""),
        Key::own(
            "iceberg.table.<name>.commit-interval-ms",
            Long,
            "As `iceberg.control.commit.interval-ms`, for this table.",
        )
        .within(1_000, i32::MAX as i64)
        .medium(),
        Key::own(
            "iceberg.table.<name>.commit-rows",
            Long,
            "Commit this table early when a task holds this many rows of it.",
        )
        .within(1, i64::MAX),
        Key::own(
            "iceberg.table.<name>.commit-bytes",
            Long,
            "Commit this table early when a task has written this many bytes of it.",
        )
        .within(1, i64::MAX),
        Key::own(
            "iceberg.table.<name>.route-regex",
            String,
            "The texts that go to this table, as a pattern.",
        )
        .medium(),
    ],
};

/// Keys about commits.
pub(super) const CONTROL: Group = Group {
    title: "Commits",
    intro: "Each table is committed on its own interval, or earlier when its rows or bytes reach \
            their bound. Policies have two words, in every key the same: `warn` says so in the log \
            and goes on, `fail` stops the tasks that it concerns. What is always right has no key.",
    keys: &[
        Key::own(
            "iceberg.control.commit.interval-ms",
            Int,
            "Milliseconds between two commits of a table.",
        )
        .or("300000")
        .within(1_000, i32::MAX as i64)
        .high(),
        Key::own(
            "frazil.coordination",
            String,
            "Where the tasks of a connector agree on commits. `topic`: through the control topic, so \
             that one task commits for all workers, one snapshot per table and interval. `local`: \
             inside each worker's process, so that k workers make k snapshots per table and \
             interval. `auto`: `local` with `tasks.max=1` or when no Kafka client settings can be \
             read, else `topic`. Safe to change at any time.",
        )
        .or("auto")
        .one_of(&["auto", "local", "topic"], "")
        .medium(),
        Key::own(
            "frazil.control.topic",
            String,
            "The topic of `topic` coordination; several connectors may share it. It is created with \
             one partition when it is missing. It must hold nothing else: least of all may it be \
             the control topic of the Apache sink, which dies on records that are not its own.",
        )
        .or("frazil-control")
        .when("frazil.coordination", &["auto", "topic"]),
        Key::own(
            "frazil.segment.ttl-ms",
            Long,
            "How long files that a task has written may wait for their commit, in milliseconds; \
             after that their records are read and written again.",
        )
        .or("3600000")
        .within(60_000, 86_400_000),
        Key::own(
            "frazil.table.block.max-ms",
            Long,
            "How long a table may refuse commits before its tasks fail, in milliseconds. Tasks never go \
             on without the table: its records would be in no table and in no dead letter queue.",
        )
        .or("900000")
        .within(1_000, i64::MAX),
        Key::own(
            "frazil.state.max-bytes",
            Int,
            "The longest table property that holds source offsets; longer state is cut into several \
             properties. In the summary of a snapshot it is not cut: a longer one is refused.",
        )
        .or("32768")
        .within(1_024, i32::MAX as i64),
        Key::own(
            "frazil.state.location",
            String,
            "Where a table keeps the connector's source offsets. `property`: in table properties. \
             `summary`: in the summary of each of its snapshots, for catalogs that refuse table \
             properties or throw them away; it costs more, since every snapshot that the table keeps \
             repeats them, and a tag keeps the newest one. `auto`: where they are; the first commit to \
             a table tries both.",
        )
        .or("auto")
        .one_of(&["auto", "property", "summary"], ""),
        Key::own(
            "frazil.offsets.external.change",
            String,
            "What to do when the consumer group's offsets were moved back, and not through \
             Connect's REST: `warn` says so and skips the records that the tables hold; `fail` \
             stops the task.",
        )
        .or("warn")
        .one_of(
            &["warn", "fail"],
            "a task cannot tell an offset that somebody moved from one that the group lost, so it \
             never reads again on its own; send `PATCH /connectors/<name>/offsets`",
        ),
        Key::own(
            "frazil.rollback.policy",
            String,
            "What to do when somebody rolled a branch back behind the connector's last commit: \
             `warn` says so and goes on with the next records, `fail` commits nothing more. The \
             rows that went are written again only after an offset reset.",
        )
        .or("warn")
        .one_of(&["warn", "fail"], ""),
    ],
};
