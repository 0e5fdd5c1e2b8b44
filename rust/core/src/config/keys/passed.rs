//! Keys that go to the tables and to the Kafka clients.

use super::KeyType::{Boolean, Int, Long, Password, String};
use super::{Group, Key};

/// Table properties.
pub(super) const TABLE_PROPERTIES: Group = Group {
    title: "Table properties",
    intro: "Keys below `iceberg.tables.auto-create-props.` become properties of tables that are \
            created; keys below `iceberg.tables.write-props.` are laid over the table's properties \
            for this writer only. Those listed here are checked; any other is passed on and \
            reported once, unless it starts with `write.`, `read.`, `commit.`, `history.`, `gc.` or \
            `schema.`.",
    keys: &[
        Key::passed(
            "iceberg.tables.auto-create-props.format-version",
            Int,
            "The format version of tables that are created.",
        )
        .or("2")
        .within(2, 3)
        .medium()
        .when("iceberg.tables.auto-create-enabled", &["true"]),
        Key::passed(
            "iceberg.tables.auto-create-props.frazil.*",
            String,
            "Properties that hold Frazil's own state.",
        )
        .refused("properties below `frazil.` hold the sink's own state"),
        Key::passed(
            "iceberg.tables.auto-create-props.*",
            String,
            "A property of tables that are created.",
        )
        .medium(),
        Key::passed(
            "iceberg.tables.write-props.write.format.default",
            String,
            "The format of data files.",
        )
        .or("parquet")
        .one_of(&["parquet"], "Frazil writes Parquet only"),
        Key::passed(
            "iceberg.tables.write-props.write.target-file-size-bytes",
            Long,
            "The size at which a data file is closed; 256 MiB when neither this nor the table says.",
        )
        .within(1, i64::MAX)
        .medium(),
        Key::passed(
            "iceberg.tables.write-props.write.parquet.compression-codec",
            String,
            "The codec of data files; `zstd` when neither this nor the table says.",
        )
        .one_of(
            &["zstd", "snappy", "gzip", "lz4", "uncompressed"],
            "Frazil has no other codec",
        )
        .medium(),
        Key::passed(
            "iceberg.tables.write-props.write.parquet.compression-level",
            Int,
            "The codec's level; 1 for `zstd` when neither this nor the table says.",
        ),
        Key::passed(
            "iceberg.tables.write-props.write.parquet.row-group-size-bytes",
            Long,
            "The size of a row group.",
        )
        .within(1, i64::MAX),
        Key::passed(
            "iceberg.tables.write-props.write.parquet.page-size-bytes",
            Long,
            "The size of a page.",
        )
        .within(1, i64::MAX),
        Key::passed(
            "iceberg.tables.write-props.write.parquet.page-row-limit",
            Long,
            "The rows of a page.",
        )
        .within(1, i64::MAX),
        Key::passed(
            "iceberg.tables.write-props.write.parquet.dict-size-bytes",
            Long,
            "The size of a dictionary page.",
        )
        .within(1, i64::MAX),
        Key::passed(
            "iceberg.tables.write-props.frazil.parquet.encodings",
            String,
            "The encodings that columns may get, chosen by their values; `auto` when neither this \
             nor the table says. `auto`: also delta encodings, which the engines of \
             `docs/compatibility.md` read; Iceberg for Spark reads them vectorized only in newer \
             versions. `plain-dictionary`: only those that every reader of Parquet knows.",
        )
        .one_of(&["auto", "plain-dictionary"], ""),
        Key::passed(
            "iceberg.tables.write-props.frazil.parquet.encoding.column.*",
            String,
            "The encoding of a column, after its full name, whatever its values: `dictionary`, \
             `plain`, `delta_binary_packed`, `delta_length_byte_array`, `delta_byte_array` or \
             `byte_stream_split`.",
        ),
        Key::passed(
            "iceberg.tables.write-props.*",
            String,
            "A property of the table as this writer sees it.",
        )
        .medium(),
    ],
};

/// Kafka client settings.
pub(super) const KAFKA: Group = Group {
    title: "Kafka clients",
    intro: "Keys below `iceberg.kafka.` are settings of the Kafka clients that Frazil itself opens \
            for `topic` coordination; the consumer of records is Connect's (`consumer.override.`). \
            Without `iceberg.kafka.bootstrap.servers` they are taken from the worker's own \
            properties file: its `bootstrap.servers`, `security.`, `sasl.` and `ssl.` settings and \
            nothing else, and keys below `iceberg.kafka.` are laid over them. Names below `sasl.` \
            and `ssl.` are Kafka's; settings that load Java classes or read files named by a URL \
            are refused here. What coordination rests on (serializers, group, `acks`, \
            transactions, offsets) stays as it is, whatever stands here.",
    keys: &[
        Key::own(
            "frazil.kafka.from-worker",
            Boolean,
            "Whether the settings of the Kafka clients may be taken from the worker's properties \
             file. With `false` only those below `iceberg.kafka.` are used.",
        )
        .or("true"),
        Key::passed("iceberg.kafka.bootstrap.servers", String, "The brokers."),
        Key::passed(
            "iceberg.kafka.client.id",
            String,
            "The name of the clients.",
        ),
        Key::passed(
            "iceberg.kafka.security.protocol",
            String,
            "How the clients talk to the brokers.",
        ),
        Key::passed(
            "iceberg.kafka.sasl.jaas.config",
            Password,
            "The login of the clients.",
        ),
        Key::passed(
            "iceberg.kafka.sasl.*",
            String,
            "Other settings of the login.",
        ),
        Key::passed("iceberg.kafka.ssl.*", String, "Settings of TLS."),
        Key::inert(
            "iceberg.kafka.auto.offset.reset",
            String,
            "Coordination reads its topic from the end.",
        ),
        Key::inert(
            "iceberg.kafka.group.id",
            String,
            "The group that elects the coordinator is named after the sink's consumer group.",
        ),
        Key::inert(
            "iceberg.kafka.transactional.id",
            String,
            "Frazil uses no Kafka transactions.",
        ),
        Key::passed(
            "iceberg.kafka.*",
            String,
            "Any other setting of the Kafka clients.",
        ),
    ],
};
