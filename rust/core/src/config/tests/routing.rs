//! Routes, dynamic tables, metadata and key columns.

use super::*;
use crate::route::{NameCase, Targets, Unmatched};
use crate::wire::FrameParts;

const DYNAMIC: &[(&str, &str)] = &[
    ("iceberg.tables", "-"),
    ("iceberg.tables.name-template", "raw.${topic}"),
];

fn dynamic<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    DYNAMIC.iter().chain(more).copied().collect()
}

#[test]
fn static_routes_take_patterns_per_table() {
    let config = parse_sound(&[
        ("iceberg.tables", "db.a,db.b"),
        ("iceberg.tables.route-field", "type"),
        ("iceberg.table.db.a.route-regex", "lis"),
        ("iceberg.table.db.b.route-regex", "x|y"),
    ]);
    let Targets::Matching { patterns, .. } = &config.routes.targets else {
        panic!("{:?}", config.routes);
    };
    assert!(
        patterns[1]
            .as_ref()
            .is_some_and(|pattern| pattern.matches("y"))
    );
    assert_eq!(config.routes.unmatched, Unmatched::Fail);
    assert_eq!(config.parts, FrameParts::default());
    assert_warned(&[(
        &[("iceberg.tables.route-source", "topic")],
        "iceberg.tables",
        "gets no record",
    )]);
}

#[test]
fn tables_of_a_template_have_their_own_keys() {
    let config = parse_sound(&dynamic(&[
        ("iceberg.tables.auto-create-enabled", "true"),
        ("iceberg.tables.dynamic-allow", "raw.*"),
        ("iceberg.table.raw.orders.commit-interval-ms", "2000"),
        ("iceberg.table.raw.orders.commit-branch", "dev"),
    ]));
    let tables = config.dynamic.expect("names come from records");
    let ident = table::parse_name("raw.orders").unwrap();
    let orders = tables.table("raw.orders", &ident).unwrap();
    assert_eq!(
        (orders.commit_interval_ms, orders.branch.as_str()),
        (2_000, "dev")
    );
    assert!(orders.auto_create);
    let other = tables
        .find(&table::parse_name("raw.other").unwrap(), "main")
        .unwrap();
    assert_eq!(other.commit_interval_ms, 300_000);
    assert_eq!(
        tables.find(&ident, "main"),
        None,
        "it is written on another branch"
    );
    assert_eq!(
        tables.find(&table::parse_name("db.t").unwrap(), "main"),
        None,
        "not allowed"
    );
    assert!(config.parts.topics && !config.parts.keys);
    assert_eq!(config.routes.names().unwrap().case, NameCase::Lower);
}

#[test]
fn a_name_without_namespace_gets_the_default_one() {
    let config = parse_sound(&[
        ("iceberg.tables", "orders,x.y"),
        ("iceberg.tables.default-namespace", "lake.raw"),
        ("iceberg.table.orders.commit-rows", "5"),
    ]);
    assert_eq!(
        config.tables[0].ident,
        table::parse_name("lake.raw.orders").unwrap()
    );
    assert_eq!(config.tables[0].commit_rows, Some(5));
    assert_eq!(config.tables[1].ident, table::parse_name("x.y").unwrap());
}

#[test]
fn routes_that_make_no_sense_are_refused() {
    assert_refused(&[
        (
            &[
                ("iceberg.tables.dynamic-enabled", "true"),
                ("iceberg.tables", "-"),
            ],
            "iceberg.tables.dynamic-enabled",
            "which name the table",
        ),
        (
            &[
                ("iceberg.tables.dynamic-enabled", "true"),
                ("iceberg.tables.route-field", "t"),
            ],
            "iceberg.tables",
            "is static",
        ),
        (
            &[("iceberg.table.db.orders.route-regex", "x.*")],
            "iceberg.table.db.orders.route-regex",
            "has no effect without",
        ),
        (
            &[
                ("iceberg.tables.route-source", "topic"),
                ("iceberg.table.db.orders.route-regex", "(?=x)"),
            ],
            "iceberg.table.db.orders.route-regex",
            "look-around",
        ),
        (
            &[
                ("iceberg.tables.route-source", "body"),
                ("iceberg.table.db.orders.route-regex", "x"),
            ],
            "iceberg.tables.route-source",
            "must be `topic`",
        ),
        (
            &[
                ("iceberg.tables.route-source", "topic"),
                ("iceberg.tables.route-field", "t"),
                ("iceberg.table.db.orders.route-regex", "x"),
            ],
            "iceberg.tables.route-source",
            "not both",
        ),
        (
            &[("iceberg.tables.name-case", "keep")],
            "iceberg.tables.name-case",
            "has no effect without",
        ),
        (
            &dynamic(&[("iceberg.tables.name-template", "raw.x")]),
            "iceberg.tables.name-template",
            "one table only",
        ),
        (
            &dynamic(&[("iceberg.tables.route-field", "t")]),
            "iceberg.tables.route-field",
            "has no effect beside",
        ),
        (
            &dynamic(&[("iceberg.tables.route-regex", "(a)")]),
            "iceberg.tables.route-regex",
            "what has to match",
        ),
        (
            &dynamic(&[("iceberg.tables.dynamic-allow", "*")]),
            "iceberg.tables.dynamic-allow",
            "namespace.*",
        ),
        (
            &dynamic(&[("iceberg.table.raw.t.route-regex", "x")]),
            "iceberg.table.raw.t.route-regex",
            "is for all of them",
        ),
        (
            &dynamic(&[("iceberg.table.raw.t.partition-by", "fold(x)")]),
            "iceberg.table.raw.t.partition-by",
            "",
        ),
        (
            &dynamic(&[("iceberg.table.t.commit-rows", "5")]),
            "iceberg.table.t.*",
            "no namespace",
        ),
        (
            &[("iceberg.tables.unmatched-behavior", "dlq")],
            "iceberg.tables.unmatched-behavior",
            "deadletterqueue",
        ),
        (
            &[("iceberg.tables.unmatched-behavior", "ignore")],
            "iceberg.tables.unmatched-behavior",
            "must be one of",
        ),
        (
            &[("iceberg.tables.null-value-behavior", "dlq")],
            "iceberg.tables.null-value-behavior",
            "deadletterqueue",
        ),
        (
            &[("topics", "-"), ("topics.regex", "(frazil|shop)-.*")],
            "topics.regex",
            "frazil.control.topic",
        ),
    ]);
}

#[test]
fn metadata_and_key_columns_have_names_of_their_own() {
    let config = parse_sound(&[
        (
            "iceberg.tables.metadata-columns",
            "_key, _offset:kafka_offset,_headers",
        ),
        ("iceberg.tables.key-columns", "id, address.zip:key_zip"),
        ("iceberg.tables.null-value-behavior", "key-row"),
    ]);
    let columns: Vec<_> = config.tables[0]
        .metadata_columns
        .iter()
        .map(|column| (column.source.clone(), column.name.as_str()))
        .collect();
    assert_eq!(
        columns,
        [
            (MetadataSource::Offset, "kafka_offset"),
            (MetadataSource::Key, "_key"),
            (MetadataSource::Headers, "_headers"),
            (MetadataSource::KeyField("id".into()), "id"),
            (MetadataSource::KeyField("address.zip".into()), "key_zip"),
        ]
    );
    assert_eq!(config.tables[0].null_values, NullValues::KeyRow);
    assert_eq!(
        config.parts,
        FrameParts {
            keys: true,
            headers: true,
            topics: false
        }
    );
    assert_refused(&[
        (
            &[("iceberg.tables.metadata-columns", "_age")],
            "iceberg.tables.metadata-columns",
            "not one of",
        ),
        (
            &[("iceberg.tables.metadata-columns", "_topic:x,_key:x")],
            "iceberg.tables.metadata-columns",
            "there twice",
        ),
    ]);
}

// Promise: a key or metadata column that `columns.exclude` names is none of the table's
#[test]
fn column_rules_hold_for_columns_that_are_not_of_the_value() {
    let names = |more: &[(&str, &str)]| {
        let mut settings = vec![
            ("iceberg.tables.metadata-columns", "_offset,_key,_headers"),
            ("iceberg.tables.key-columns", "id,user.mail:mail"),
            (
                "iceberg.tables.columns.hash-salt",
                "sixteen letters or more",
            ),
        ];
        settings.extend(more);
        let config = parse_sound(&settings);
        let columns = config.tables[0].metadata_columns.iter();
        let names = columns.map(|column| column.name.clone());
        names.collect::<Vec<_>>()
    };
    let left = names(&[("iceberg.tables.columns.exclude", "_headers,mail,_offset")]);
    assert_eq!(left, ["_key", "id"]);
    let hashed = [("iceberg.tables.columns.hash", "id,_key.user,_headers.who")];
    assert_eq!(names(&hashed).len(), 5);
    let narrow = [
        ("iceberg.tables.columns.hash", "id"),
        ("iceberg.tables.columns.include", "note"),
    ];
    assert_eq!(names(&narrow).len(), 5);
    let folded = [
        ("iceberg.tables.columns.exclude", "MAIL"),
        ("iceberg.tables.schema-case-insensitive", "true"),
    ];
    assert_eq!(names(&folded), ["_offset", "_key", "_headers", "id"]);
    let asked = ("iceberg.tables.metadata-columns", "_offset,_key,_headers");
    let keys = ("iceberg.tables.key-columns", "user.mail:mail");
    let salt = (
        "iceberg.tables.columns.hash-salt",
        "sixteen letters or more",
    );
    let hash = |column| ("iceberg.tables.columns.hash", column);
    assert_refused(&[
        (
            &[keys, ("iceberg.tables.columns.exclude", "user")],
            "iceberg.tables.columns.exclude",
            "puts it into column `mail`",
        ),
        (
            &[asked, salt, hash("_headers")],
            "iceberg.tables.columns.hash",
            "name one header",
        ),
        (
            &[asked, salt, hash("_offset")],
            "iceberg.tables.columns.hash",
            "where the record stands",
        ),
        (
            &[asked, keys, salt, hash("_key")],
            "iceberg.tables.columns.hash",
            "name fields of it",
        ),
    ]);
}
