//! What goes on to the catalog, the storage, the tables and the Kafka clients.

use super::*;

// Promise: A catalog that cannot swap a table's metadata atomically is refused when the connector is configured.
#[test]
fn catalogs_are_mapped_or_refused_by_name() {
    const IMPL: &str = "iceberg.catalog.catalog-impl";
    const TYPE: &str = "iceberg.catalog.type";
    assert_refused(&[
        (&[(TYPE, "-")], TYPE, "no catalog"),
        (
            &[(TYPE, "hive")],
            TYPE,
            "`hive` is not supported: the Hive metastore",
        ),
        (&[(TYPE, "hadoop")], TYPE, "has no atomic swap"),
        (
            &[
                (TYPE, "-"),
                (IMPL, "org.apache.iceberg.hadoop.HadoopCatalog"),
            ],
            IMPL,
            "has no atomic swap",
        ),
        (&[(TYPE, "glue")], TYPE, "signed requests"),
        (
            &[(TYPE, "nessie")],
            TYPE,
            "REST endpoint that Nessie serves",
        ),
        (
            &[(TYPE, "bigquery")],
            TYPE,
            "set `iceberg.catalog.type` to `rest`",
        ),
        (
            &[(IMPL, "org.apache.iceberg.rest.RESTCatalog")],
            IMPL,
            "not both",
        ),
        (
            &[
                (TYPE, "-"),
                (IMPL, "org.apache.iceberg.aws.glue.GlueCatalog"),
            ],
            IMPL,
            "`org.apache.iceberg.aws.glue.GlueCatalog` is a Java class",
        ),
        (
            &[(TYPE, "-"), (IMPL, "org.apache.iceberg.hive.HiveCatalog")],
            IMPL,
            "Hive metastore",
        ),
        (
            &[(TYPE, "-"), (IMPL, "com.example.MyCatalog")],
            IMPL,
            "set `iceberg.catalog.type`",
        ),
    ]);
    let rest = ("iceberg.catalog.uri", "http://host:8181/");
    for (changes, kind) in [
        (vec![(TYPE, "REST"), rest], CatalogKind::Rest),
        (vec![(TYPE, "jdbc")], CatalogKind::Sql),
        (
            vec![
                (TYPE, "-"),
                (IMPL, "org.apache.iceberg.rest.RESTCatalog"),
                rest,
            ],
            CatalogKind::Rest,
        ),
        (
            vec![(TYPE, "-"), (IMPL, "org.apache.iceberg.jdbc.JdbcCatalog")],
            CatalogKind::Sql,
        ),
    ] {
        assert_eq!(parse_sound(&changes).catalog.kind, kind, "{changes:?}");
    }
}

#[test]
fn addresses_are_checked_and_made_plain() {
    const URI: &str = "iceberg.catalog.uri";
    const REST: (&str, &str) = ("iceberg.catalog.type", "rest");
    assert_refused(&[
        (&[(URI, "-")], URI, "missing"),
        (&[(URI, "jdbc:postgresql://host/db")], URI, "only SQLite"),
        (&[(URI, "sqlite:")], URI, "no path"),
        (
            &[REST, (URI, "thrift://host:9083")],
            URI,
            "must begin with `https://`",
        ),
        (
            &[REST, (URI, "host:8181")],
            URI,
            "must begin with `https://`",
        ),
        (&[REST, (URI, "https://")], URI, "no host"),
        (&[REST, (URI, "https://me:pw@host")], URI, "user name"),
        (
            &[("iceberg.catalog.warehouse", "-")],
            "iceberg.catalog.warehouse",
            "missing",
        ),
        (
            &[("iceberg.catalog.warehouse", "hdfs://host/x")],
            "iceberg.catalog.warehouse",
            "`hdfs:` is not supported",
        ),
    ]);
    let uri = |changes: &[(&str, &str)]| {
        parse_sound(changes)
            .catalog
            .properties
            .get("uri")
            .cloned()
            .unwrap()
    };
    assert_eq!(uri(&[(URI, "jdbc:sqlite:/a/b.db")]), "sqlite:/a/b.db");
    assert_eq!(
        uri(&[REST, (URI, " https://host/api/ ")]),
        "https://host/api"
    );
}

#[test]
fn java_classes_for_files_are_mapped_or_refused() {
    const IO: &str = "iceberg.catalog.io-impl";
    const S3: &str = "org.apache.iceberg.aws.s3.S3FileIO";
    const HADOOP: &str = "org.apache.iceberg.hadoop.HadoopFileIO";
    let bucket = ("iceberg.catalog.warehouse", "s3://bucket/x");
    assert_refused(&[
        (&[(IO, S3)], IO, "is a `file:` location"),
        (&[(IO, HADOOP), bucket], IO, "stands for `file:` here"),
        (
            &[(IO, "com.example.MyFileIO")],
            IO,
            "`com.example.MyFileIO` is a Java class",
        ),
        (
            &[(IO, "org.apache.iceberg.inmemory.InMemoryFileIO")],
            IO,
            "cannot load; drop this key",
        ),
    ]);
    assert_warned(&[(&[(IO, HADOOP)], IO, "local files only")]);
    for changes in [
        vec![(IO, S3), bucket],
        vec![(IO, "org.apache.iceberg.io.ResolvingFileIO")],
        vec![
            (IO, "org.apache.iceberg.gcp.gcs.GCSFileIO"),
            ("iceberg.catalog.warehouse", "gs://bucket"),
        ],
        vec![
            (IO, "org.apache.iceberg.azure.adlsv2.ADLSFileIO"),
            (
                "iceberg.catalog.warehouse",
                "abfss://c@a.dfs.core.windows.net/x",
            ),
        ],
    ] {
        let config = parse_sound(&changes);
        assert!(
            !config.catalog.properties.contains_key("io-impl"),
            "{changes:?}"
        );
    }
}

#[test]
fn storage_settings_that_would_be_lost_are_refused() {
    assert_refused(&[
        (
            &[("iceberg.catalog.s3.remote-signing-enabled", "true")],
            "iceberg.catalog.s3.remote-signing-enabled",
            "vend credentials",
        ),
        (
            &[("iceberg.catalog.client.assume-role.arn", "arn:x")],
            "iceberg.catalog.client.assume-role.arn",
            "assuming a role",
        ),
        (
            &[(
                "iceberg.catalog.client.credentials-provider",
                "com.example.X",
            )],
            "iceberg.catalog.client.credentials-provider",
            "Java class",
        ),
        (
            &[("iceberg.catalog.s3.sse.type", "rot13")],
            "iceberg.catalog.s3.sse.type",
            "must be one of `none`",
        ),
        (
            &[("iceberg.catalog.rest.sigv4-enabled", "true")],
            "iceberg.catalog.rest.sigv4-enabled",
            "signed catalog requests",
        ),
        (
            &[("iceberg.catalog.rest.auth.type", "sigv4")],
            "iceberg.catalog.rest.auth.type",
            "not there yet",
        ),
        (
            &[("iceberg.catalog.s3.access-key-id", "id")],
            "iceberg.catalog.s3.access-key-id",
            "secret-access-key",
        ),
        (
            &[("iceberg.catalog.s3.path-style-access", "1")],
            "iceberg.catalog.s3.path-style-access",
            "must be `true` or `false`",
        ),
    ]);
}

#[test]
fn other_passed_keys_go_on_and_are_reported_once() {
    assert_warned(&[
        (
            &[("iceberg.catalog.some-new-property", "x")],
            "iceberg.catalog.some-new-property",
            "passed on as it is",
        ),
        (
            &[("iceberg.catalog.s3.endpiont", "x")],
            "iceberg.catalog.s3.endpiont",
            "did you mean `iceberg.catalog.s3.endpoint`?",
        ),
        (
            &[("iceberg.kafka.made.up", "x")],
            "iceberg.kafka.made.up",
            "passed on as it is",
        ),
        (
            &[("iceberg.tables.auto-create-props.owner", "x")],
            "iceberg.tables.auto-create-props.owner",
            "passed on as it is",
        ),
    ]);
    let (config, problems) = SinkConfig::parse(&sound_with(&[
        (
            "iceberg.tables.auto-create-props.write.metadata.previous-versions-max",
            "10",
        ),
        (
            "iceberg.tables.write-props.write.parquet.bloom-filter-enabled.column.id",
            "true",
        ),
        ("iceberg.catalog.header.X-Tenant", "a"),
        ("iceberg.kafka.ssl.truststore.location", "/x"),
    ]));
    assert_eq!(problems, []);
    let config = config.unwrap();
    assert_eq!(
        config.catalog.properties.get("header.X-Tenant").unwrap(),
        "a"
    );
    assert_eq!(
        config.tables[0]
            .auto_create_props
            .get("write.metadata.previous-versions-max")
            .unwrap(),
        "10"
    );
}

#[test]
fn kafka_settings_that_reach_into_the_worker_are_refused() {
    assert_refused(&[
        (
            &[("iceberg.kafka.interceptor.classes", "x.Y")],
            "iceberg.kafka.interceptor.classes",
            "load a class",
        ),
        (
            &[(
                "iceberg.kafka.sasl.jaas.config",
                "com.sun.security.auth.module.JndiLoginModule required;",
            )],
            "iceberg.kafka.sasl.jaas.config",
            "login module",
        ),
        (
            &[(
                "iceberg.kafka.sasl.oauthbearer.token.endpoint.url",
                "file:///etc/passwd",
            )],
            "iceberg.kafka.sasl.oauthbearer.token.endpoint.url",
            "must be an `https://` address",
        ),
    ]);
}
