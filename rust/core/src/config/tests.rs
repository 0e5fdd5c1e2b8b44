//! The parser as a user meets it: whole configurations in, problems out.

use std::collections::BTreeMap;

use iceberg::spec::Transform;

use super::*;
use crate::control::task::ExternalChange;
use crate::error::ErrorKind;

mod changes;
mod control;
mod evolution;
mod formats;
mod framework;
mod maintenance;
mod migration;
mod passed;
mod routing;

/// A configuration that has nothing wrong.
const SOUND: &[(&str, &str)] = &[
    ("name", "orders"),
    ("connector.class", "io.frazil.connect.FrazilSinkConnector"),
    ("topics", "orders"),
    ("iceberg.tables", "db.orders"),
    ("iceberg.catalog.type", "sql"),
    ("iceberg.catalog.uri", "sqlite:/data/catalog.db"),
    ("iceberg.catalog.warehouse", "file:///data/warehouse"),
];

/// Keys laid over the sound configuration, the key that a problem is on, a part of its message.
type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a str);

/// Lays `changes` over the sound configuration; `"-"` takes a key away.
fn sound_with(changes: &[(&str, &str)]) -> BTreeMap<String, String> {
    let mut values: BTreeMap<String, String> = SOUND
        .iter()
        .chain(changes)
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    values.retain(|_, value| value != "-");
    values
}

fn parse_sound(changes: &[(&str, &str)]) -> SinkConfig {
    let (config, problems) = SinkConfig::parse(&sound_with(changes));
    config.unwrap_or_else(|| panic!("{problems:#?}"))
}

/// Asserts that each case gives exactly one error, on `key`, whose message has `part`.
fn assert_refused(cases: &[Case<'_>]) {
    for (changes, key, part) in cases {
        let (config, problems) = SinkConfig::parse(&sound_with(changes));
        let errors: Vec<_> = problems
            .iter()
            .filter(|problem| problem.level == Level::Error)
            .collect();
        assert_eq!(errors.len(), 1, "{changes:?}: {problems:#?}");
        assert_eq!(errors[0].key, *key, "{changes:?}");
        assert!(
            errors[0].message.contains(part),
            "{changes:?}: {}",
            errors[0].message
        );
        assert!(config.is_none(), "{changes:?}");
    }
}

/// Asserts that each case parses, with exactly one warning, on `key`, whose message has `part`.
fn assert_warned(cases: &[Case<'_>]) {
    for (changes, key, part) in cases {
        let (config, problems) = SinkConfig::parse(&sound_with(changes));
        assert!(config.is_some(), "{changes:?}: {problems:#?}");
        assert_eq!(problems.len(), 1, "{changes:?}: {problems:#?}");
        assert_eq!(problems[0].level, Level::Warning);
        assert_eq!(problems[0].key, *key, "{changes:?}");
        assert!(
            problems[0].message.contains(part),
            "{changes:?}: {}",
            problems[0].message
        );
    }
}

#[test]
fn a_sound_configuration_has_no_problems_and_all_defaults() {
    let (config, problems) = SinkConfig::parse(&sound_with(&[]));
    assert_eq!(problems, []);
    let config = config.unwrap();
    assert_eq!(config.connector, "orders");
    assert_eq!((config.task, config.tasks_max), (0, 1));
    assert_eq!(config.writer_id, "connect-orders");
    assert_eq!(config.kafka_cluster_id, "");
    assert_eq!(
        config.memory,
        MemoryConfig {
            pool_bytes: None,
            heap_bytes: 0,
        }
    );
    assert_eq!(config.poll_interval_ms, 300_000);
    assert_eq!(config.writers_open_max, 256);
    assert_eq!(
        config.control,
        ControlConfig {
            commit_interval_ms: 300_000,
            table_block_max_ms: 900_000,
            state_bytes_max: crate::limits::STATE_BYTES_MAX,
            state_location: crate::commit::location::StateLocation::Auto,
            external_change: ExternalChange::Warn,
            coordination: Coordination::Local,
            topic: "frazil-control".to_owned(),
            epoch: 0,
            rollback: crate::commit::action::RollbackPolicy::Warn,
            segment_ttl_ms: 3_600_000,
            partitions_accepted: None,
        }
    );
    assert_eq!(
        config.errors,
        ErrorPolicy {
            tolerate_all: false,
            dead_letter_topic: None,
            drop: false,
        }
    );
    assert_eq!(config.catalog.name, "iceberg");
    assert_eq!(config.catalog.kind, CatalogKind::Sql);
    let [table] = config.tables.as_slice() else {
        panic!("one table");
    };
    assert_eq!(
        *table,
        TableConfig {
            name: "db.orders".to_owned(),
            ident: iceberg::TableIdent::from_strs(["db", "orders"]).unwrap(),
            branch: "main".to_owned(),
            id_columns: vec![],
            partition_by: vec![],
            layout: LayoutConfig::default(),
            columns: ColumnConfig::default(),
            commit_interval_ms: 300_000,
            commit_rows: None,
            commit_bytes: None,
            auto_create: false,
            evolution: EvolutionConfig {
                mode: EvolutionMode::Off,
                columns_per_commit: 500,
                columns_max: 5_000,
                breaking: BreakingPolicy::Dlq,
            },
            force_optional: false,
            case_insensitive: false,
            auto_create_props: BTreeMap::new(),
            mapping_version: 1,
            write_props: BTreeMap::new(),
            metadata_columns: vec![],
            null_values: NullValues::Skip,
            changes: None,
            engines: vec![],
            maintenance_ms: None,
        }
    );
}

#[test]
fn the_connector_of_apaches_documentation_parses() {
    let values: BTreeMap<String, String> = [
        ("name", "events-sink"),
        ("connector.class", "io.frazil.connect.FrazilSinkConnector"),
        ("tasks.max", "2"),
        ("topics", "events"),
        ("iceberg.tables", "default.events"),
        ("iceberg.catalog.type", "rest"),
        ("iceberg.catalog.uri", "https://localhost"),
        (
            "iceberg.catalog.io-impl",
            "org.apache.iceberg.aws.s3.S3FileIO",
        ),
        ("iceberg.catalog.client.region", "us-east-1"),
        ("iceberg.catalog.s3.access-key-id", "<AWS access>"),
        ("iceberg.catalog.s3.secret-access-key", "<AWS secret>"),
        ("iceberg.catalog.credential", "<credential>"),
        ("iceberg.catalog.warehouse", "<warehouse name>"),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect();
    let (config, problems) = SinkConfig::parse(&values);
    assert_eq!(problems, []);
    let config = config.unwrap();
    assert_eq!(config.tasks_max, 2);
    assert_eq!(config.catalog.kind, CatalogKind::Rest);
    let names: Vec<&str> = config
        .catalog
        .properties
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        names,
        [
            "client.region",
            "credential",
            "s3.access-key-id",
            "s3.secret-access-key",
            "uri",
            "warehouse"
        ]
    );
}

#[test]
fn a_full_apache_configuration_moves_by_its_class_alone() {
    let (config, problems) = SinkConfig::parse(&sound_with(&[
        ("tasks.max", "4"),
        (
            "key.converter",
            "org.apache.kafka.connect.storage.StringConverter",
        ),
        (
            "value.converter",
            "org.apache.kafka.connect.json.JsonConverter",
        ),
        ("value.converter.schemas.enable", "false"),
        ("transforms", "x"),
        ("transforms.x.type", "org.example.X"),
        ("predicates", "p"),
        ("consumer.override.auto.offset.reset", "earliest"),
        ("iceberg.tables.dynamic-enabled", "false"),
        ("iceberg.tables.upsert-mode-enabled", "false"),
        ("iceberg.control.topic", "control-iceberg"),
        ("iceberg.control.commit.timeout-ms", "60000"),
        ("iceberg.control.commit.threads", "4"),
        ("iceberg.connect.group-id", "connect-orders"),
        ("iceberg.coordinator.transactional.prefix", "x"),
        ("iceberg.coordinator-executor-keep-alive-timeout-ms", "1"),
        ("iceberg.hadoop-conf-dir", "/etc/hadoop"),
        ("iceberg.hadoop.dfs.x", "y"),
        ("iceberg.kafka.bootstrap.servers", "broker:9092"),
        ("iceberg.kafka.security.protocol", "SASL_SSL"),
        ("iceberg.kafka.sasl.mechanism", "PLAIN"),
    ]));
    assert!(config.is_some(), "{problems:#?}");
    let warned: Vec<&str> = problems
        .iter()
        .map(|problem| problem.key.as_str())
        .collect();
    assert_eq!(
        warned,
        [
            "iceberg.connect.group-id",
            "iceberg.control.commit.threads",
            "iceberg.control.commit.timeout-ms",
            "iceberg.control.topic",
            "iceberg.coordinator-executor-keep-alive-timeout-ms",
            "iceberg.coordinator.transactional.prefix",
            "iceberg.hadoop-conf-dir",
            "iceberg.hadoop.dfs.x",
        ]
    );
    assert!(
        problems
            .iter()
            .all(|problem| problem.message.starts_with("has no effect: "))
    );
}

#[test]
fn a_key_of_one_table_wins_over_the_one_for_all() {
    let config = parse_sound(&[
        ("iceberg.tables", "db.a, db.b"),
        ("iceberg.control.commit.interval-ms", "60000"),
        ("iceberg.tables.auto-create-enabled", "true"),
        ("iceberg.tables.evolve-schema-enabled", "TRUE"),
        ("iceberg.tables.default-commit-branch", "dev"),
        ("iceberg.tables.default-id-columns", "id, part"),
        (
            "iceberg.tables.default-partition-by",
            "day(ts), bucket(id, 16)",
        ),
        ("iceberg.tables.metadata-columns", "_offset,_topic"),
        ("iceberg.table.db.b.commit-interval-ms", "2000"),
        ("iceberg.table.db.b.commit-rows", "1000"),
        ("iceberg.table.db.b.commit-bytes", "1048576"),
        ("iceberg.table.db.b.commit-branch", "audit"),
        ("iceberg.table.db.b.id-columns", ""),
        ("iceberg.table.db.b.partition-by", ""),
        ("iceberg.table.db.b.mode", "Append"),
        ("iceberg.table.db.b.metadata-columns", "_partition"),
        ("iceberg.table.db.b.auto-create-enabled", "false"),
        ("iceberg.table.db.b.evolve-schema-enabled", "false"),
    ]);
    let [a, b] = config.tables.as_slice() else {
        panic!("two tables");
    };
    assert_eq!((a.name.as_str(), b.name.as_str()), ("db.a", "db.b"));
    assert_eq!(
        (a.commit_interval_ms, b.commit_interval_ms),
        (60_000, 2_000)
    );
    assert_eq!((a.commit_rows, b.commit_rows), (None, Some(1_000)));
    assert_eq!((a.commit_bytes, b.commit_bytes), (None, Some(1 << 20)));
    assert_eq!((a.branch.as_str(), b.branch.as_str()), ("dev", "audit"));
    assert_eq!(a.id_columns, ["id", "part"]);
    assert!(b.id_columns.is_empty());
    let transforms: Vec<_> = a.partition_by.iter().map(|term| term.transform).collect();
    assert_eq!(transforms, [Transform::Day, Transform::Bucket(16)]);
    assert_eq!(b.partition_by, []);
    let names = |table: &TableConfig| {
        let columns = table.metadata_columns.iter();
        columns
            .map(|column| column.name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(a), ["_topic", "_offset"]);
    assert_eq!(names(b), ["_partition"]);
    assert_eq!((a.auto_create, b.auto_create), (true, false));
    let modes = (a.evolution.mode, b.evolution.mode);
    assert_eq!(modes, (EvolutionMode::Full, EvolutionMode::Off));
}

#[test]
fn properties_and_switches_without_a_key_per_table_reach_every_table() {
    let config = parse_sound(&[
        ("iceberg.tables", "db.a,db.b"),
        ("iceberg.tables.schema-force-optional", "true"),
        ("iceberg.tables.schema-case-insensitive", "true"),
        ("iceberg.tables.auto-create-props.format-version", "3"),
        (
            "iceberg.tables.write-props.write.target-file-size-bytes",
            "1048576",
        ),
    ]);
    assert_eq!(config.tables.len(), 2);
    for table in &config.tables {
        assert!(table.force_optional && table.case_insensitive);
        assert_eq!(table.auto_create_props.get("format-version").unwrap(), "3");
        assert_eq!(
            table
                .write_props
                .get("write.target-file-size-bytes")
                .unwrap(),
            "1048576"
        );
    }
}

#[test]
fn tables_are_required_and_well_named() {
    let long = format!("db.{}", "x".repeat(256));
    assert_refused(&[
        (&[("iceberg.tables", "-")], "iceberg.tables", "missing"),
        (&[("iceberg.tables", " ")], "iceberg.tables", "missing"),
        (
            &[("iceberg.tables", "db.a,,db.b")],
            "iceberg.tables",
            "empty entry",
        ),
        (
            &[("iceberg.tables", "db.a,db.a")],
            "iceberg.tables",
            "twice",
        ),
        (
            &[("iceberg.tables", "orders")],
            "iceberg.tables",
            "no namespace",
        ),
        (
            &[("iceberg.tables", "db..a")],
            "iceberg.tables",
            "empty part",
        ),
        (&[("iceberg.tables", ".a")], "iceberg.tables", "empty part"),
        (&[("iceberg.tables", "..")], "iceberg.tables", "empty part"),
        (
            &[("iceberg.tables", "a.b.c.d.e.f")],
            "iceberg.tables",
            "more than 5 parts",
        ),
        (&[("iceberg.tables", "db/x.a")], "iceberg.tables", "'/'"),
        (&[("iceberg.tables", "db\\x.a")], "iceberg.tables", "'\\\\'"),
        (&[("iceberg.tables", "db%2e.a")], "iceberg.tables", "'%'"),
        (
            &[("iceberg.tables", "a\u{1f}b.c")],
            "iceberg.tables",
            "\\u{1f}",
        ),
        (&[("iceberg.tables", "a\0.c")], "iceberg.tables", "'\\0'"),
        (&[("iceberg.tables", "db .a")], "iceberg.tables", "blank"),
        (&[("iceberg.tables", &long)], "iceberg.tables", "255 bytes"),
    ]);
    let config = parse_sound(&[("iceberg.tables", "a.b.c.d.größe-1_$")]);
    assert_eq!(config.tables[0].ident.name(), "größe-1_$");
    assert_eq!(config.tables[0].ident.namespace().as_ref().len(), 4);
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_name() {
    assert_refused(&[
        (
            &[("iceberg.tables.auto-create", "true")],
            "iceberg.tables.auto-create",
            "did you mean `iceberg.tables.auto-create-enabled`?",
        ),
        (
            &[("iceberg.table.db.orders.partitoin-by", "x")],
            "iceberg.table.db.orders.partitoin-by",
            "did you mean `iceberg.table.db.orders.partition-by`?",
        ),
        (
            &[("iceberg.table.db.order.partition-by", "x")],
            "iceberg.table.db.order.partition-by",
            "did you mean `db.orders`?",
        ),
        (
            &[("iceberg.table.other.table.partition-by", "x")],
            "iceberg.table.other.table.partition-by",
            "not in `iceberg.tables`",
        ),
        (
            &[("iceberg.qqqqqqqqqqqqqqqqqqqqq", "x")],
            "iceberg.qqqqqqqqqqqqqqqqqqqqq",
            "docs/configs.md",
        ),
        (
            &[("frazil.error.drop", "true")],
            "frazil.error.drop",
            "`frazil.errors.drop`",
        ),
    ]);
}

#[test]
fn values_are_checked() {
    assert_refused(&[
        (
            &[("iceberg.tables.auto-create-enabled", "yes")],
            "iceberg.tables.auto-create-enabled",
            "must be `true` or `false`, not `yes`",
        ),
        (
            &[("iceberg.control.commit.interval-ms", "1m")],
            "iceberg.control.commit.interval-ms",
            "whole number, not `1m`",
        ),
        (
            &[("iceberg.control.commit.interval-ms", "999")],
            "iceberg.control.commit.interval-ms",
            "from 1000 to 2147483647, not 999",
        ),
        (
            &[("iceberg.control.commit.interval-ms", "2147483648")],
            "iceberg.control.commit.interval-ms",
            "whole number",
        ),
        (
            &[("iceberg.table.db.orders.commit-rows", "0")],
            "iceberg.table.db.orders.commit-rows",
            "at least 1, not 0",
        ),
        (
            &[("iceberg.tables.default-partition-by", "bucket[16](id)")],
            "iceberg.tables.default-partition-by",
            "`bucket(id, 16)`",
        ),
        (
            &[("iceberg.table.db.orders.partition-by", "week(ts)")],
            "iceberg.table.db.orders.partition-by",
            "unknown transform",
        ),
        (
            &[("iceberg.tables.metadata-columns", "_age")],
            "iceberg.tables.metadata-columns",
            "`_age` is not one of",
        ),
        (
            &[("iceberg.tables.default-id-columns", "a,a")],
            "iceberg.tables.default-id-columns",
            "twice",
        ),
        (
            &[
                ("iceberg.tables", "db.a,db.b"),
                ("iceberg.tables.default-id-columns", "a,,b"),
            ],
            "iceberg.tables.default-id-columns",
            "empty entry",
        ),
        (&[("name", "-")], "name", "missing"),
        (
            &[("frazil.internal.task", "1")],
            "frazil.internal.task",
            "is 1, and there are only 1 tasks",
        ),
    ]);
}

#[test]
fn table_properties_are_checked() {
    assert_refused(&[
        (
            &[("iceberg.tables.auto-create-props.format-version", "1")],
            "iceberg.tables.auto-create-props.format-version",
            "from 2 to 3",
        ),
        (
            &[("iceberg.tables.write-props.write.format.default", "orc")],
            "iceberg.tables.write-props.write.format.default",
            "Parquet only",
        ),
        (
            &[(
                "iceberg.tables.write-props.write.parquet.compression-codec",
                "brotli",
            )],
            "iceberg.tables.write-props.write.parquet.compression-codec",
            "must be one of `zstd`",
        ),
        (
            &[("iceberg.tables.auto-create-props.frazil.w.x", "{}")],
            "iceberg.tables.auto-create-props.frazil.w.x",
            "own state",
        ),
    ]);
}

#[test]
fn what_is_not_supported_yet_is_refused_with_the_reason() {
    assert_refused(&[
        (
            &[
                ("iceberg.tables.default-mode", "upsert"),
                ("iceberg.tables.default-delete-mode", "equality"),
            ],
            "iceberg.tables.default-delete-mode",
            "equality deletes are never written",
        ),
        (
            &[
                ("iceberg.table.db.orders.mode", "cdc"),
                ("iceberg.table.db.orders.delete-mode", "copy-on-write"),
            ],
            "iceberg.table.db.orders.delete-mode",
            "not built yet",
        ),
        (
            &[
                ("iceberg.table.db.orders.mode", "append-once"),
                ("iceberg.table.db.orders.order-columns", "ts"),
            ],
            "iceberg.table.db.orders.order-columns",
            "rows are added once",
        ),
        (
            &[
                ("iceberg.table.db.orders.mode", "append-once"),
                ("iceberg.tables.default-truncate", "ignore"),
            ],
            "iceberg.tables.default-truncate",
            "rows are added once",
        ),
        (
            &[
                ("iceberg.table.db.orders.mode", "upsert"),
                ("iceberg.table.db.orders.dedup-window-rows", "9"),
            ],
            "iceberg.table.db.orders.dedup-window-rows",
            "replaces it",
        ),
        (
            &[("iceberg.table.db.orders.dedup-window-rows", "9")],
            "iceberg.table.db.orders.dedup-window-rows",
            "rows are appended",
        ),
        (
            &[("frazil.partitions.accept", "6")],
            "frazil.partitions.accept",
            "rows are appended",
        ),
        (
            &[("iceberg.table.db.orders.engines", "spark")],
            "iceberg.table.db.orders.engines",
            "has no effect",
        ),
        (
            &[("frazil.engines", "spark:new")],
            "frazil.engines",
            "`name:version`",
        ),
    ]);
}

#[test]
fn tolerated_errors_need_a_dead_letter_queue_or_consent() {
    const TOLERATE: (&str, &str) = ("errors.tolerance", "all");
    assert_refused(&[
        (
            &[TOLERATE],
            "errors.tolerance",
            "errors.deadletterqueue.topic.name",
        ),
        (
            &[TOLERATE, ("errors.deadletterqueue.topic.name", " ")],
            "errors.tolerance",
            "frazil.errors.drop=true",
        ),
    ]);
    let config = parse_sound(&[TOLERATE, ("errors.deadletterqueue.topic.name", "dead")]);
    assert_eq!(config.errors.dead_letter_topic.as_deref(), Some("dead"));
    assert!(config.errors.tolerate_all);
    let config = parse_sound(&[TOLERATE, ("frazil.errors.drop", "true")]);
    assert!(config.errors.drop && config.errors.dead_letter_topic.is_none());
    assert_warned(&[(
        &[("frazil.errors.drop", "true")],
        "frazil.errors.drop",
        "no effect",
    )]);
}

#[test]
fn the_writers_identity_is_stable() {
    // printf '1|MkU3OEVBNTcwNTJENDM2Qk|connect-orders' | sha256sum
    let config = parse_sound(&[
        ("frazil.kafka.cluster.id", "MkU3OEVBNTcwNTJENDM2Qk"),
        ("frazil.internal.task", "3"),
        ("frazil.internal.tasks", "4"),
    ]);
    assert_eq!(config.wid, "fc849f98828ebff4");
    assert_eq!((config.task, config.tasks_max), (3, 4));
    // printf '1||old' | sha256sum
    let config = parse_sound(&[("frazil.writer.id", "old")]);
    assert_eq!(config.writer_id, "old");
    assert_eq!(config.wid, "c0d0d73f4619b9de");
}

#[test]
fn nothing_shows_a_secret() {
    const CANARY: &str = "canary-7f3a";
    let secrets: Vec<(&str, &str)> = [
        "iceberg.catalog.credential",
        "iceberg.catalog.token",
        "iceberg.catalog.s3.secret-access-key",
        "iceberg.catalog.s3.session-token",
        "iceberg.catalog.header.Authorization",
        "iceberg.catalog.jdbc.password",
        "iceberg.catalog.made-up.password",
        "iceberg.kafka.sasl.jaas.config",
        "iceberg.catalog.s3.access-key-id",
        // These are unknown or refused.
        "iceberg.secret.x",
        "frazil.token",
        "iceberg.catalog.client.assume-role.external-id",
        "iceberg.table.db.secret.commit-rows",
    ]
    .into_iter()
    .map(|key| (key, CANARY))
    .collect();
    let (config, problems) = SinkConfig::parse(&sound_with(&secrets));
    assert!(config.is_none());
    assert!(problems.len() >= 6, "{problems:#?}");
    assert!(!format!("{problems:?}").contains(CANARY), "{problems:#?}");

    let error = SinkConfig::start(&sound_with(&secrets)).unwrap_err();
    assert_eq!(
        (error.kind(), error.code()),
        (ErrorKind::Config, "CONFIG_INVALID")
    );
    assert!(!error.report().contains(CANARY), "{}", error.report());

    let config = parse_sound(&secrets[..9]);
    assert_eq!(config.catalog.properties.get("token").unwrap(), CANARY);
    assert!(!format!("{config:?}").contains(CANARY), "{config:?}");

    let uri = format!("https://user:{CANARY}@host?key={CANARY}");
    for kind in ["rest", "sql"] {
        let (_, problems) = SinkConfig::parse(&sound_with(&[
            ("iceberg.catalog.type", kind),
            ("iceberg.catalog.uri", &uri),
        ]));
        assert!(!problems.is_empty());
        assert!(!format!("{problems:?}").contains(CANARY), "{problems:#?}");
    }
}

#[test]
fn a_start_tells_all_faults_at_once() {
    let error = SinkConfig::start(&sound_with(&[
        ("iceberg.tables", "orders"),
        ("iceberg.catalog.type", "hive"),
    ]))
    .unwrap_err();
    assert!(error.message().contains("`iceberg.tables`: "), "{error}");
    assert!(
        error.message().contains("`iceberg.catalog.type`: "),
        "{error}"
    );
    let (config, warnings) =
        SinkConfig::start(&sound_with(&[("iceberg.control.topic", "x")])).unwrap();
    assert_eq!(config.connector, "orders");
    assert_eq!(warnings.len(), 1);
}

#[test]
fn the_example_connectors_have_no_problems() {
    for (file, tables) in [
        (include_str!("../../../../connector-config/orders.json"), 1),
        (
            include_str!("../../../../connector-config/orders-rest.json"),
            1,
        ),
        (include_str!("../../../../connector-config/flights.json"), 2),
        (include_str!("../../../../connector-config/weather.json"), 1),
        (
            include_str!("../../../../connector-config/dead-letters.json"),
            1,
        ),
    ] {
        let text = file
            .replace("@WAREHOUSE@", "file:///tmp/warehouse")
            .replace("@SCOPE@", "catalog")
            .replace("@CREDENTIAL@", "id:secret");
        let uri = match text.contains("\"rest\"") {
            true => "http://127.0.0.1:8181",
            false => "sqlite:/tmp/catalog.db",
        };
        let text = text.replace("@CATALOG_URI@", uri);
        assert!(!text.contains('@'), "a token that nothing fills: {text}");
        let request: serde_json::Value = serde_json::from_str(&text).unwrap();
        let mut values: BTreeMap<String, String> =
            serde_json::from_value(request["config"].clone()).unwrap();
        // Connect adds the name.
        values.insert(
            "name".to_owned(),
            request["name"].as_str().unwrap().to_owned(),
        );
        let (config, problems) = SinkConfig::parse(&values);
        assert_eq!(problems, []);
        assert_eq!(config.unwrap().tables.len(), tables);
    }
}

#[test]
fn any_value_of_any_key_is_judged_without_a_panic() {
    let long = "x".repeat(100_000);
    let unclosed = format!("bucket({long}");
    let values = [
        "",
        " ",
        ",",
        "(",
        ")",
        "a(b",
        "\0",
        "\u{1f}.\u{1f}",
        "-1",
        "0",
        "9999999999999999999",
        "true",
        "é\u{301}.🧊",
        "::/",
        "://",
        "sqlite:",
        "jdbc:",
        "https://@",
        ".",
        "..",
        "a.b,a.b",
        &long,
        &unclosed,
    ];
    for key in keys::all() {
        let name = key.name.replace("<name>", "db.orders").replace('*', "x.é");
        for value in values {
            let (config, problems) = SinkConfig::parse(&sound_with(&[(&name, value)]));
            let sound = problems
                .iter()
                .all(|problem| problem.level == Level::Warning);
            assert_eq!(config.is_some(), sound, "{name}: {problems:?}");
            let longest = problems.iter().map(|problem| problem.message.len()).max();
            assert!(
                longest.unwrap_or(0) < 1_000,
                "{name}: a message of {longest:?} bytes"
            );
        }
    }
}
