//! `docs/migration.md`: what becomes of each key of the Apache sink and of Tabular's, found by
//! submitting it. `UPDATE_EXPECT=1` rewrites the file.

use std::collections::BTreeSet;
use std::fmt::Write;

use expect_test::expect_file;

use super::*;
use crate::config::keys::KeyClass;

/// A key of another sink.
struct Theirs {
    /// The key as its documentation has it.
    key: &'static str,
    /// A value that the documentation gives; shown in the table when it decides.
    value: &'static str,
    /// Whether the outcome is that of this value alone.
    decides: bool,
    /// What has to stand beside it.
    beside: &'static [(&'static str, &'static str)],
}

const fn any(key: &'static str, value: &'static str) -> Theirs {
    Theirs {
        key,
        value,
        decides: false,
        beside: &[],
    }
}

const fn only(key: &'static str, value: &'static str) -> Theirs {
    Theirs {
        decides: true,
        ..any(key, value)
    }
}

impl Theirs {
    const fn beside(mut self, beside: &'static [(&'static str, &'static str)]) -> Self {
        self.beside = beside;
        self
    }
}

const NO_TYPE: &[(&str, &str)] = &[("iceberg.catalog.type", "-")];
const REST: &[(&str, &str)] = &[
    ("iceberg.catalog.type", "rest"),
    ("iceberg.catalog.uri", "https://catalog.example"),
    ("iceberg.catalog.warehouse", "lakehouse"),
];
const REST_CLASS: &[(&str, &str)] = &[
    ("iceberg.catalog.type", "-"),
    ("iceberg.catalog.uri", "https://catalog.example"),
];
const S3: &[(&str, &str)] = &[("iceberg.catalog.warehouse", "s3://bucket/warehouse")];
const GCS: &[(&str, &str)] = &[("iceberg.catalog.warehouse", "gs://bucket/warehouse")];
const ADLS: &[(&str, &str)] = &[(
    "iceberg.catalog.warehouse",
    "abfss://c@a.dfs.core.windows.net",
)];
const S3_ID: &[(&str, &str)] = &[("iceberg.catalog.s3.access-key-id", "id")];
const S3_SECRET: &[(&str, &str)] = &[("iceberg.catalog.s3.secret-access-key", "secret")];
const ROUTED: &[(&str, &str)] = &[("iceberg.tables.route-field", "kind")];
const REGEX: &[(&str, &str)] = &[("iceberg.table.db.orders.route-regex", "order")];
const DYNAMIC: &[(&str, &str)] = &[
    ("iceberg.tables", "-"),
    ("iceberg.tables.route-field", "kind"),
];
const CREATED: &[(&str, &str)] = &[("iceberg.tables.auto-create-enabled", "true")];
const IDS: &[(&str, &str)] = &[("iceberg.tables.default-id-columns", "id")];

const TABLES: &[Theirs] = &[
    any("iceberg.tables", "db.orders"),
    any("iceberg.tables.dynamic-enabled", "true").beside(DYNAMIC),
    any("iceberg.tables.route-field", "kind").beside(REGEX),
    any("iceberg.tables.default-commit-branch", "main"),
    any("iceberg.tables.default-id-columns", "id").beside(CREATED),
    any("iceberg.tables.default-partition-by", "bucket(id, 4)").beside(CREATED),
    any("iceberg.tables.auto-create-enabled", "true"),
    any("iceberg.tables.evolve-schema-enabled", "true"),
    any("iceberg.tables.schema-force-optional", "true"),
    any("iceberg.tables.schema-case-insensitive", "true"),
    only("iceberg.tables.auto-create-props.format-version", "2"),
    only("iceberg.tables.auto-create-props.format-version", "1"),
    any("iceberg.tables.auto-create-props.*", "true"),
    only("iceberg.tables.write-props.write.format.default", "parquet"),
    only("iceberg.tables.write-props.write.format.default", "avro"),
    only("iceberg.tables.write-props.write.format.default", "orc"),
    any("iceberg.tables.write-props.*", "true"),
    any("iceberg.table.<name>.commit-branch", "main"),
    any("iceberg.table.<name>.id-columns", "id").beside(CREATED),
    any("iceberg.table.<name>.partition-by", "kind").beside(CREATED),
    any("iceberg.table.<name>.route-regex", "order").beside(ROUTED),
    any("iceberg.tables.cdc-field", "_cdc_op").beside(IDS),
    any("iceberg.tables.upsert-mode-enabled", "true").beside(IDS),
    any("iceberg.table.write-props.*", "true"),
];

const CONTROL: &[Theirs] = &[
    any("iceberg.control.topic", "control-iceberg"),
    any("iceberg.control.group-id-prefix", "cg-control-"),
    any("iceberg.control.group-id", "cg-control-orders"),
    any("iceberg.control.commit.interval-ms", "300000"),
    any("iceberg.control.commit.timeout-ms", "30000"),
    any("iceberg.control.commit.threads", "4"),
    any("iceberg.control.commit.max-consecutive-failures", "3"),
    any("iceberg.coordinator.transactional.prefix", "lake-"),
    any(
        "iceberg.coordinator-executor-keep-alive-timeout-ms",
        "120000",
    ),
    any("iceberg.connect.group-id", "connect-orders"),
    any("iceberg.kafka.bootstrap.servers", "broker:9092"),
    any("iceberg.kafka.security.protocol", "SSL"),
    any("iceberg.kafka.sasl.jaas.config", "x required;"),
    any("iceberg.kafka.sasl.*", "PLAIN"),
    any("iceberg.kafka.ssl.*", "https"),
    any("iceberg.kafka.auto.offset.reset", "earliest"),
    any("iceberg.kafka.interceptor.classes", "com.example.Own"),
    any("iceberg.kafka.*", "1"),
];

const CATALOG: &[Theirs] = &[
    any("iceberg.catalog", "lake"),
    only("iceberg.catalog.type", "rest").beside(REST),
    only("iceberg.catalog.type", "hive"),
    only("iceberg.catalog.type", "hadoop"),
    only("iceberg.catalog.type", "glue"),
    only("iceberg.catalog.type", "nessie"),
    only("iceberg.catalog.type", "jdbc"),
    only(
        "iceberg.catalog.catalog-impl",
        "org.apache.iceberg.rest.RESTCatalog",
    )
    .beside(REST_CLASS),
    only(
        "iceberg.catalog.catalog-impl",
        "org.apache.iceberg.jdbc.JdbcCatalog",
    )
    .beside(NO_TYPE),
    any("iceberg.catalog.catalog-impl", "com.example.OwnCatalog").beside(NO_TYPE),
    only(
        "iceberg.catalog.catalog-impl",
        "org.apache.iceberg.aws.glue.GlueCatalog",
    )
    .beside(NO_TYPE),
    only(
        "iceberg.catalog.catalog-impl",
        "org.apache.iceberg.nessie.NessieCatalog",
    )
    .beside(NO_TYPE),
    only(
        "iceberg.catalog.catalog-impl",
        "org.apache.iceberg.hive.HiveCatalog",
    )
    .beside(NO_TYPE),
    any("iceberg.catalog.uri", "https://catalog.example").beside(REST),
    only("iceberg.catalog.uri", "jdbc:sqlite:/data/catalog.db"),
    only("iceberg.catalog.uri", "jdbc:postgresql:"),
    any("iceberg.catalog.warehouse", "s3://bucket/warehouse"),
    only("iceberg.catalog.warehouse", "hdfs:"),
    any("iceberg.catalog.credential", "id:secret").beside(REST),
    any("iceberg.catalog.token", "secret").beside(REST),
    any("iceberg.catalog.oauth2-server-uri", "https://login.example").beside(REST),
    any("iceberg.catalog.scope", "catalog").beside(REST),
    any("iceberg.catalog.header.*", "vended-credentials").beside(REST),
    only("iceberg.catalog.rest.sigv4-enabled", "true").beside(REST),
    any("iceberg.catalog.jdbc.password", "secret"),
    any("iceberg.catalog.jdbc.*", "iceberg"),
    any("iceberg.catalog.client.region", "eu-central-1"),
    any("iceberg.catalog.client.factory", "com.example.Own"),
    any(
        "iceberg.catalog.client.assume-role.*",
        "arn:aws:iam::1:role/sink",
    ),
    any(
        "iceberg.catalog.client.credentials-provider",
        "com.example.Own",
    ),
    any("iceberg.catalog.*", "lake"),
];

const STORAGE: &[Theirs] = &[
    only(
        "iceberg.catalog.io-impl",
        "org.apache.iceberg.aws.s3.S3FileIO",
    )
    .beside(S3),
    only(
        "iceberg.catalog.io-impl",
        "org.apache.iceberg.gcp.gcs.GCSFileIO",
    )
    .beside(GCS),
    only(
        "iceberg.catalog.io-impl",
        "org.apache.iceberg.azure.adlsv2.ADLSFileIO",
    )
    .beside(ADLS),
    any("iceberg.catalog.io-impl", "com.example.OwnFileIO"),
    any("iceberg.catalog.s3.endpoint", "https://objects.example"),
    any("iceberg.catalog.s3.access-key-id", "id").beside(S3_SECRET),
    any("iceberg.catalog.s3.secret-access-key", "secret").beside(S3_ID),
    any("iceberg.catalog.s3.session-token", "secret"),
    any("iceberg.catalog.s3.path-style-access", "true"),
    any("iceberg.catalog.s3.sse.type", "kms"),
    any("iceberg.catalog.s3.sse.key", "key"),
    only("iceberg.catalog.s3.remote-signing-enabled", "true"),
    any("iceberg.catalog.s3.client-factory-impl", "com.example.Own"),
    any(
        "iceberg.catalog.gcs.service.host",
        "https://objects.example",
    ),
    any("iceberg.catalog.gcs.oauth2.token", "secret"),
    any("iceberg.catalog.gcs.no-auth", "true"),
    any(
        "iceberg.catalog.adls.auth.shared-key.account.name",
        "account",
    ),
    any("iceberg.catalog.adls.auth.shared-key.account.key", "secret"),
    any("iceberg.catalog.adls.sas-token.*", "secret"),
    any(
        "iceberg.catalog.adls.connection-string.*",
        "https://objects.example",
    ),
    any("iceberg.hadoop-conf-dir", "/etc/hadoop/conf"),
    any("iceberg.hadoop.fs.s3a.access.key", "id")
        .beside(&[("iceberg.hadoop.fs.s3a.secret.key", "secret")]),
    any("iceberg.hadoop.fs.s3a.secret.key", "secret")
        .beside(&[("iceberg.hadoop.fs.s3a.access.key", "id")]),
    any("iceberg.hadoop.fs.s3a.session.token", "secret"),
    any("iceberg.hadoop.fs.s3a.endpoint", "https://objects.example"),
    any("iceberg.hadoop.fs.s3a.endpoint.region", "eu-central-1"),
    any("iceberg.hadoop.fs.s3a.path.style.access", "true"),
    any(
        "iceberg.hadoop.fs.s3a.impl",
        "org.apache.hadoop.fs.s3a.S3AFileSystem",
    ),
    any(
        "iceberg.hadoop.fs.s3a.aws.credentials.provider",
        "com.example.Own",
    ),
    any("iceberg.hadoop.fs.s3a.connection.ssl.enabled", "true"),
    any(
        "iceberg.hadoop.fs.s3a.server-side-encryption-algorithm",
        "AES256",
    ),
    any("iceberg.hadoop.fs.s3a.encryption.algorithm", "SSE-KMS"),
    any("iceberg.hadoop.fs.s3a.*", "64"),
    any(
        "iceberg.hadoop.fs.gs.auth.service.account.json.keyfile",
        "/etc/key.json",
    ),
    any(
        "iceberg.hadoop.google.cloud.auth.service.account.json.keyfile",
        "/etc/key.json",
    ),
    any("iceberg.hadoop.fs.gs.*", "1"),
    any("iceberg.hadoop.fs.azure.*", "1"),
    any("iceberg.hadoop.fs.*", "hdfs://host"),
    any("iceberg.hadoop.*", "1"),
];

const SECTIONS: &[(&str, &[Theirs])] = &[
    ("Tables", TABLES),
    ("Commits and Kafka", CONTROL),
    ("Catalogs", CATALOG),
    ("Storage", STORAGE),
];

const HEAD: &str = include_str!("migration_head.md");

/// Returns what becomes of a key, in one word, and what there is to say about it.
fn outcome(theirs: &Theirs) -> (&'static str, String) {
    let name = theirs
        .key
        .replace("<name>", "db.orders")
        .replace('*', "some.property");
    // A value that stands for all that begin so.
    let value = match theirs.value.ends_with(':') {
        true => format!("{}//host/x", theirs.value),
        false => theirs.value.to_owned(),
    };
    let mut changes = theirs.beside.to_vec();
    changes.push((&name, &value));
    let (_, problems) = SinkConfig::parse(&sound_with(&changes));
    let about = |level: Level| {
        problems
            .iter()
            .find(|problem| problem.key == name && problem.level == level)
            .map(|problem| problem.message.clone())
    };
    let found = keys::find(&name).map(|found| found.key);
    match (about(Level::Error), found) {
        (Some(message), _) => ("refused", message),
        (None, Some(key)) if key.class == KeyClass::Inert => ("inert", key.doc.to_owned()),
        (None, Some(key)) => match key.renamed() {
            Some(meant) => ("renamed", format!("`{meant}`")),
            None if name.ends_with("some.property") && about(Level::Warning).is_some() => {
                ("same", "Passed on and reported once.".to_owned())
            }
            None => ("same", String::new()),
        },
        (None, None) => panic!("{name} is unknown and not refused"),
    }
}

fn markdown() -> String {
    let mut text = HEAD.to_owned();
    for (title, keys) in SECTIONS {
        write!(
            text,
            "\n### {title}\n\n| key | value | here | how |\n|---|---|---|---|\n"
        )
        .unwrap();
        for theirs in *keys {
            let (word, how) = outcome(theirs);
            let value = match theirs.decides {
                true => format!("`{}`", theirs.value),
                false => String::new(),
            };
            writeln!(text, "| `{}` | {value} | {word} | {how} |", theirs.key).unwrap();
        }
    }
    text.push_str(
        "\n## Names that are new here\n\nKeys under `iceberg.` that neither sink has; `docs/configs.md` \
         says what they mean. Keys under `frazil.` are all new.\n\n",
    );
    for name in new_names() {
        writeln!(text, "- `{name}`").unwrap();
    }
    text
}

fn known_there() -> BTreeSet<&'static str> {
    SECTIONS
        .iter()
        .flat_map(|(_, keys)| keys.iter().map(|theirs| theirs.key))
        .collect()
}

/// Keys of ours below `iceberg.` that are in no section. What is passed on is the receiver's.
fn new_names() -> Vec<&'static str> {
    let known = known_there();
    keys::all()
        .filter(|key| key.class == KeyClass::Own && key.name.starts_with("iceberg."))
        .map(|key| key.name)
        .filter(|name| !known.contains(name))
        .collect()
}

// Promise: the guide for those who come from Apache's or Tabular's sink says of each key what becomes of it
#[test]
fn the_guide_says_what_becomes_of_each_key() {
    expect_file!["../../../../../docs/migration.md"].assert_eq(&markdown());
}

#[test]
fn every_key_that_means_nothing_here_or_is_renamed_is_in_the_guide() {
    let known = known_there();
    // What no documentation of the two sinks has.
    let undocumented = [
        "iceberg.coordinator.transactional.suffix",
        "iceberg.kafka.group.id",
        "iceberg.kafka.transactional.id",
    ];
    for key in keys::all() {
        let theirs = matches!(key.class, KeyClass::Inert | KeyClass::Legacy)
            && key.name.starts_with("iceberg.");
        if theirs && !undocumented.contains(&key.name) {
            assert!(known.contains(key.name), "{} is not in the guide", key.name);
        }
    }
}

#[test]
fn every_key_of_the_guide_has_a_row_of_its_own_in_the_table_of_keys() {
    // Refused by name in `config::kafka`, which has the list of such settings.
    let by_prefix = ["iceberg.kafka.interceptor.classes"];
    for name in known_there()
        .into_iter()
        .filter(|name| !by_prefix.contains(name))
    {
        let sample = name
            .replace("<name>", "db.orders")
            .replace('*', "some.property");
        let row = keys::find(&sample).map(|found| found.key.name);
        assert_eq!(row, Some(name), "{name}");
    }
}

// Promise: keys of Hadoop's S3A are read as the storage's keys or refused one by one, never ignored
#[test]
fn keys_of_hadoops_file_access_are_read_or_refused() {
    const SECRET: &str = "iceberg.hadoop.fs.s3a.secret.key";
    const ID: &str = "iceberg.hadoop.fs.s3a.access.key";
    const ENDPOINT: &str = "iceberg.hadoop.fs.s3a.endpoint";
    let values = sound_with(&[(ID, "id"), (SECRET, "hush"), (ENDPOINT, "http://h:1")]);
    let (config, problems) = SinkConfig::parse(&values);
    let properties = config.unwrap().catalog.properties;
    for (name, value) in [
        ("s3.access-key-id", "id"),
        ("s3.secret-access-key", "hush"),
        ("s3.endpoint", "http://h:1"),
    ] {
        assert_eq!(properties.get(name).map(String::as_str), Some(value));
    }
    assert_eq!(problems.len(), 3, "{problems:#?}");
    assert!(
        problems
            .iter()
            .all(|problem| problem.level == Level::Warning)
    );
    assert!(!format!("{problems:?}").contains("hush"));
    assert_refused(&[
        (
            &[(ID, "id")],
            ID,
            "needs `iceberg.catalog.s3.secret-access-key`",
        ),
        (
            &[
                (ENDPOINT, "http://h:1"),
                ("iceberg.catalog.s3.endpoint", "http://g:1"),
            ],
            ENDPOINT,
            "means the same as `iceberg.catalog.s3.endpoint`",
        ),
        (
            &[("iceberg.hadoop.fs.s3a.path.style.access", "perhaps")],
            "iceberg.hadoop.fs.s3a.path.style.access",
            "must be `true` or `false`",
        ),
        (
            &[("iceberg.hadoop.fs.s3a.threads.max", "64")],
            "iceberg.hadoop.fs.s3a.threads.max",
            "iceberg.catalog.s3.",
        ),
        (
            &[(
                "iceberg.hadoop.fs.azure.account.key.a.dfs.core.windows.net",
                "hush",
            )],
            "iceberg.hadoop.fs.azure.account.key.a.dfs.core.windows.net",
            "adls.account-key",
        ),
    ]);
}

#[test]
fn the_other_spelling_of_write_properties_is_read() {
    let name = "iceberg.table.write-props.write.parquet.compression-codec";
    let (config, problems) = SinkConfig::parse(&sound_with(&[(name, "gzip")]));
    let [table] = config.unwrap().tables.try_into().unwrap();
    let codec = table.write_props.get("write.parquet.compression-codec");
    assert_eq!(codec.map(String::as_str), Some("gzip"));
    assert_eq!(problems.len(), 1, "{problems:#?}");
    assert_refused(&[(&[(name, "brotli")], name, "must be one of")]);
    // A property whose name ends like a key of one table is still a property.
    let mode = "iceberg.table.write-props.write.delete.mode";
    assert!(
        SinkConfig::parse(&sound_with(&[(mode, "merge-on-read")]))
            .0
            .is_some()
    );
}
