//! Modes of tables, and how changes are read.

use super::*;
use crate::change::{AbsentPolicy, ChangeConfig, Place, TruncatePolicy};

const UPSERT: (&str, &str) = ("iceberg.tables.default-mode", "upsert");
const CDC: (&str, &str) = ("iceberg.tables.default-mode", "cdc");
const IDS: (&str, &str) = ("iceberg.tables.default-id-columns", "id");

fn changes(keys: &[(&str, &str)]) -> Option<ChangeConfig> {
    let (config, problems) = SinkConfig::parse(&sound_with(keys));
    let config = config.unwrap_or_else(|| panic!("{keys:?}: {problems:#?}"));
    config.tables[0].changes.clone()
}

fn format(keys: &[(&str, &str)]) -> Option<String> {
    changes(keys).map(|changes| changes.envelope.name)
}

#[test]
fn a_mode_and_a_format_say_how_records_change_rows() {
    const OWN: &str = "iceberg.table.db.orders.mode";
    const FORMAT: (&str, &str) = ("iceberg.tables.default-change-format", "maxwell");
    for (keys, name) in [
        (&[][..], None),
        (&[("iceberg.tables.default-mode", "append")], None),
        (&[UPSERT], Some("upsert")),
        (&[CDC], Some("debezium")),
        (&[CDC, FORMAT], Some("maxwell")),
        (&[UPSERT, (OWN, "append")], None),
        (&[(OWN, "CDC")], Some("debezium")),
        (
            &[CDC, ("iceberg.table.db.orders.change-format", "dms")],
            Some("dms"),
        ),
    ] {
        let keys: Vec<_> = keys.iter().copied().chain([IDS]).collect();
        assert_eq!(format(&keys).as_deref(), name, "{keys:?}");
    }
}

#[test]
fn names_of_tabulars_sink_say_the_same() {
    let field = ("iceberg.tables.cdc-field", "_cdc.op");
    let read = changes(&[field, IDS]).expect("changes");
    assert_eq!(read.envelope.name, "tabular-cdc");
    let place = &read.envelope.op[0].at;
    assert_eq!(*place, Place::Value("_cdc.op".to_owned()));
    let upserts = ("iceberg.tables.upsert-mode-enabled", "true");
    assert_eq!(format(&[upserts, IDS]).as_deref(), Some("upsert"));
    assert_eq!(
        format(&[field, upserts, IDS]).as_deref(),
        Some("tabular-cdc")
    );
    assert_eq!(format(&[upserts, UPSERT, IDS]).as_deref(), Some("upsert"));
    assert_refused(&[
        (
            &[field, UPSERT, IDS],
            "iceberg.tables.default-mode",
            "contradicts `iceberg.tables.cdc-field`",
        ),
        (
            &[field, ("iceberg.tables.default-change-format", "dms"), IDS],
            "iceberg.tables.default-change-format",
            "contradicts `iceberg.tables.cdc-field`",
        ),
    ]);
}

#[test]
fn what_changes_do_is_read() {
    let read = changes(&[
        CDC,
        IDS,
        ("iceberg.tables.default-order-columns", "ts, seq"),
        ("iceberg.table.db.orders.order-epoch", "second"),
        ("iceberg.tables.default-truncate", "ignore"),
        ("iceberg.tables.default-before-is-whole", "true"),
        ("iceberg.table.db.orders.truncate", "truncate"),
        ("iceberg.tables.schema-case-insensitive", "true"),
        ("iceberg.tables.metadata-columns", "_topic, _key:raw"),
        ("iceberg.tables.key-columns", "a.id"),
    ])
    .expect("changes");
    assert_eq!(read.truncate, TruncatePolicy::Apply);
    assert_eq!(read.order_epoch, "second");
    assert!(read.case_insensitive);
    assert_eq!(read.order_columns, ["ts", "seq"]);
    assert!(read.envelope.order.alternatives.is_empty());
    assert!(read.is_ordered_by("SEQ") && !read.is_ordered_by("id"));
    assert!(read.deleted_is_whole);
    let filled = ["raw", "id"].map(str::to_owned).to_vec();
    assert_eq!(read.filled, Some(filled));
    let plain = changes(&[CDC, IDS]).expect("changes");
    assert_eq!(plain.truncate, TruncatePolicy::Fail);
    assert_eq!(plain.filled, Some(Vec::new()));
    assert!(!plain.deleted_is_whole);
}

#[test]
fn keys_and_headers_are_asked_for_where_changes_have_them() {
    let parts = |keys: &[(&str, &str)]| {
        let config = SinkConfig::parse(&sound_with(keys)).0.expect("sound");
        (config.parts.keys, config.parts.headers, config.skips_nulls)
    };
    assert_eq!(parts(&[]), (false, false, true));
    assert_eq!(parts(&[UPSERT, IDS]), (true, false, false));
    // What stands behind a delete says nothing more.
    assert_eq!(parts(&[CDC, IDS]), (true, true, true));
    let named = [
        ("iceberg.tables", "-"),
        ("iceberg.tables.name-template", "db.${topic}"),
        IDS,
    ];
    assert_eq!(parts(&named), (false, false, true));
    let of_one = [named.as_slice(), &[("iceberg.table.db.a.mode", "upsert")]].concat();
    assert_eq!(parts(&of_one), (true, false, false));
    let of_all = [named.as_slice(), &[CDC]].concat();
    assert_eq!(parts(&of_all), (true, true, true));
}

// Promise: a key that means nothing to a table, or that changes cannot obey, is refused by its name
#[test]
fn what_does_not_go_with_changes_is_refused() {
    assert_refused(&[
        (
            &[("iceberg.table.db.orders.truncate", "ignore")],
            "iceberg.table.db.orders.truncate",
            "has no effect",
        ),
        (
            &[
                UPSERT,
                IDS,
                ("iceberg.table.db.orders.change-format", "debezium"),
            ],
            "iceberg.table.db.orders.change-format",
            "set the mode to `cdc`",
        ),
        (
            &[CDC, IDS, ("iceberg.tables.default-change-format", "xml")],
            "iceberg.tables.default-change-format",
            "must be one of `debezium`",
        ),
        (
            &[
                UPSERT,
                IDS,
                ("iceberg.tables.columns.hash", "id"),
                ("iceberg.tables.columns.hash-salt", "0123456789abcdef"),
            ],
            "iceberg.tables.columns.hash",
            "deletes would not find the row",
        ),
        (
            &[
                UPSERT,
                IDS,
                ("iceberg.table.db.orders.null-value-behavior", "fail"),
            ],
            "iceberg.table.db.orders.null-value-behavior",
            "has no effect",
        ),
        (
            &[
                ("iceberg.tables", "-"),
                ("iceberg.tables.name-template", "db.${topic}"),
                ("iceberg.table.db.orders.mode", "cdc"),
            ],
            "iceberg.tables.default-id-columns",
            "columns of the key have to be named",
        ),
        (
            &[
                ("iceberg.tables", "-"),
                ("iceberg.tables.name-template", "db.${topic}"),
                UPSERT,
            ],
            "iceberg.tables.default-id-columns",
            "columns of the key have to be named",
        ),
    ]);
}

// Promise: tables with changes have one committer, or their tasks do not start
#[test]
fn several_tasks_with_changes_agree_or_are_told_to() {
    const TASKS: (&str, &str) = ("frazil.internal.tasks", "4");
    const LOCAL: (&str, &str) = ("frazil.internal.coordination", "local");
    let said = ("frazil.coordination", "local");
    for keys in [
        &[UPSERT, IDS, LOCAL][..],
        &[UPSERT, IDS, TASKS, LOCAL, said],
        &[
            UPSERT,
            IDS,
            TASKS,
            ("frazil.internal.coordination", "topic"),
        ],
        // What `auto` comes to is not known yet.
        &[UPSERT, IDS, TASKS],
        &[TASKS, LOCAL],
    ] {
        assert!(SinkConfig::parse(&sound_with(keys)).0.is_some(), "{keys:?}");
    }
    assert_refused(&[(
        &[UPSERT, IDS, TASKS, LOCAL],
        "frazil.coordination",
        "one committer",
    )]);
}

#[test]
fn what_is_made_of_rows_that_the_table_has_is_read() {
    let soft = ("iceberg.tables.default-soft-delete-column", "_deleted");
    let read = changes(&[
        CDC,
        IDS,
        soft,
        ("iceberg.tables.default-unavailable-values", "null"),
        ("iceberg.table.db.orders.unavailable-placeholder", "__gone"),
    ])
    .expect("changes");
    assert_eq!(read.soft_delete.as_deref(), Some("_deleted"));
    let unavailable = read.unavailable.expect("values are left out");
    assert_eq!(unavailable.absent, AbsentPolicy::Null);
    assert_eq!(unavailable.placeholder, "__gone");
    let plain = changes(&[CDC, IDS]).expect("changes");
    assert_eq!(
        (plain.soft_delete, plain.unavailable),
        (None, Some(Default::default()))
    );
    let config = SinkConfig::parse(&sound_with(&[CDC, IDS, soft]))
        .0
        .expect("sound");
    let marks = config.tables[0].metadata_columns.iter();
    let marks: Vec<_> = marks
        .map(|column| (&column.source, column.name()))
        .collect();
    assert_eq!(marks, [(&MetadataSource::Deleted, "_deleted")]);
    let metadata = ("iceberg.tables.metadata-columns", "_topic:_deleted");
    let excluded = ("iceberg.tables.columns.exclude", "_deleted");
    let inside = (soft.0, "a._deleted");
    assert_refused(&[
        (
            &[CDC, IDS, soft, metadata],
            soft.0,
            "where records come from",
        ),
        (&[CDC, IDS, soft, excluded], soft.0, "left out of the table"),
        (&[CDC, IDS, inside], soft.0, "inside of another column"),
        (&[CDC, IDS, (soft.0, "id")], soft.0, "column of the key"),
        (
            &[
                UPSERT,
                IDS,
                ("iceberg.table.db.orders.unavailable-values", "null"),
            ],
            "iceberg.table.db.orders.unavailable-values",
            "leave no values out",
        ),
    ]);
}

// Promise: a key for changes that no table obeys is refused by its name
#[test]
fn keys_that_no_table_obeys_are_refused() {
    const OWN: (&str, &str) = ("iceberg.table.db.orders.mode", "append");
    const OWN_UPSERT: (&str, &str) = ("iceberg.table.db.orders.mode", "upsert");
    const FIELD: (&str, &str) = ("iceberg.tables.cdc-field", "op");
    for (own, value) in [
        ("change-format", "maxwell"),
        ("order-columns", "ts"),
        ("order-epoch", "2"),
        ("truncate", "ignore"),
        ("before-is-whole", "true"),
        ("delete-mode", "auto"),
        ("soft-delete-column", "_deleted"),
        ("unavailable-values", "null"),
        ("unavailable-placeholder", "__left_out"),
    ] {
        let key = format!("iceberg.tables.default-{own}");
        assert_refused(&[
            (&[(&key, value)], &key, "rows are appended to all tables"),
            (&[CDC, OWN, (&key, value)], &key, "rows are appended to all"),
        ]);
        assert!(changes(&[CDC, IDS, (&key, value)]).is_some());
        // Tables whose names only records know have a mode too.
        let named = [
            ("iceberg.tables", "-"),
            ("iceberg.tables.name-template", "db.${topic}"),
            (&key, value),
        ];
        assert_refused(&[(&named, &key, "rows are appended to all tables")]);
        let changing = [&named[..], &[IDS, ("iceberg.table.db.a.mode", "cdc")]].concat();
        assert!(SinkConfig::parse(&sound_with(&changing)).0.is_some());
    }
    let format = ("iceberg.tables.default-change-format", "maxwell");
    let truncate = ("iceberg.table.db.orders.truncate", "ignore");
    assert_refused(&[
        (
            &[UPSERT, IDS, format],
            format.0,
            "no table has the mode `cdc`",
        ),
        (&[FIELD, OWN], FIELD.0, "no table has the mode `cdc`"),
        (&[FIELD, IDS, OWN_UPSERT], FIELD.0, "no table has the mode"),
        (
            &[("iceberg.tables.upsert-mode-enabled", "true"), OWN],
            "iceberg.tables.upsert-mode-enabled",
            "rows are appended to all tables",
        ),
        (
            &[UPSERT, IDS, truncate],
            truncate.0,
            "never say that a table",
        ),
        (
            &[UPSERT, IDS, ("iceberg.table.db.orders.order-epoch", "2")],
            "iceberg.table.db.orders.order-epoch",
            "have no order",
        ),
        (
            &[
                UPSERT,
                IDS,
                ("iceberg.tables.default-before-is-whole", "true"),
            ],
            "iceberg.tables.default-before-is-whole",
            "no row before a change",
        ),
    ]);
    let ordered = ("iceberg.tables.default-order-columns", "ts");
    let epoch = ("iceberg.tables.default-order-epoch", "2");
    assert!(changes(&[UPSERT, IDS, ordered, epoch]).is_some());
    // One table that obeys is enough.
    let two = [
        ("iceberg.tables", "db.orders,db.others"),
        ("iceberg.table.db.others.mode", "cdc"),
        ("iceberg.table.db.others.id-columns", "id"),
        OWN,
        format,
        FIELD,
    ];
    assert!(SinkConfig::parse(&sound_with(&two[..5])).0.is_some());
    let field = [&two[..4], &[FIELD]].concat();
    assert!(SinkConfig::parse(&sound_with(&field)).0.is_some());
}

// Promise: a column that is to order changes must be in the row and in the table as it is
#[test]
fn columns_that_cannot_order_are_refused() {
    let ordered = |columns| ("iceberg.tables.default-order-columns", columns);
    let excluded = ("iceberg.tables.columns.exclude", "ts");
    let hashed = ("iceberg.tables.columns.hash", "ts");
    let salt = ("iceberg.tables.columns.hash-salt", "0123456789abcdef");
    let any_case = ("iceberg.tables.schema-case-insensitive", "true");
    let stamp = ("iceberg.tables.metadata-columns", "_timestamp:ts");
    let key = ordered("").0;
    assert_refused(&[
        (
            &[UPSERT, IDS, ordered("ts"), excluded],
            key,
            "leaves it out",
        ),
        (
            &[UPSERT, IDS, ordered("ts"), hashed, salt],
            key,
            "only a hash",
        ),
        (
            &[UPSERT, IDS, ordered("TS"), hashed, salt, any_case],
            key,
            "only a hash",
        ),
        (
            &[UPSERT, IDS, ordered("ts"), stamp],
            key,
            "where the record came from",
        ),
        (&[UPSERT, IDS, ordered("ts,ts")], key, "twice"),
        (
            &[
                UPSERT,
                ("iceberg.tables.default-id-columns", "ID"),
                ("iceberg.tables.columns.hash", "id"),
                salt,
                any_case,
            ],
            "iceberg.tables.columns.hash",
            "deletes would not find the row",
        ),
    ]);
}

// Promise: keys that nobody reads are warned of where they would be the values of columns
#[test]
fn keys_in_bytes_are_warned_of() {
    const BYTES: &str = "org.apache.kafka.connect.converters.ByteArrayConverter";
    let converter = ("key.converter", BYTES);
    assert_warned(&[(
        &[UPSERT, IDS, converter],
        "key.converter",
        "key column of bytes",
    )]);
    for keys in [
        &[CDC, IDS, converter][..],
        &[UPSERT, IDS, converter, ("frazil.key.format", "json")],
    ] {
        let (_, problems) = SinkConfig::parse(&sound_with(keys));
        assert!(problems.is_empty(), "{problems:#?}");
    }
}
