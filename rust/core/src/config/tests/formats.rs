//! Native decoding and what has to be true of the rest of the configuration.

use super::*;
use crate::config::format::{DataFormat, Formats};

const BYTES: &str = "org.apache.kafka.connect.converters.ByteArrayConverter";
const JSON: &str = "org.apache.kafka.connect.json.JsonConverter";
const FORMAT: (&str, &str) = ("frazil.value.format", "json");
const CONVERTER: (&str, &str) = ("value.converter", BYTES);
const KEY_FORMAT: (&str, &str) = ("frazil.key.format", "json-envelope");
const KEY_CONVERTER: (&str, &str) = ("key.converter", BYTES);
const KEY_COLUMN: (&str, &str) = ("iceberg.tables.metadata-columns", "_key");

#[test]
fn formats_are_read_for_both_sides() {
    let formats = |changes: &[(&str, &str)]| parse_sound(changes).formats;
    assert_eq!(formats(&[]), Formats::default());
    let both = formats(&[FORMAT, CONVERTER, KEY_FORMAT, KEY_CONVERTER, KEY_COLUMN]);
    assert_eq!(both.value, DataFormat::Json);
    assert_eq!(both.key, DataFormat::JsonEnvelope);
}

// Promise: a native format without ByteArrayConverter, or without effect, is refused by key, with the remedy
#[test]
fn a_format_needs_bytes_and_somebody_who_reads_them() {
    assert_refused(&[
        (&[FORMAT], "value.converter", BYTES),
        (
            &[
                FORMAT,
                ("value.converter", JSON),
                ("value.converter.schemas.enable", "false"),
            ],
            "value.converter",
            "not `org.apache.kafka.connect.json.JsonConverter`",
        ),
        (
            &[KEY_FORMAT, KEY_CONVERTER],
            "frazil.key.format",
            "nothing reads keys",
        ),
        (&[KEY_FORMAT, KEY_COLUMN], "key.converter", BYTES),
        (
            &[("frazil.value.format", "protobuf"), CONVERTER],
            "frazil.schema.registry.url",
            "missing",
        ),
    ]);
    assert_warned(&[(&[CONVERTER], "frazil.value.format", "no records")]);
}

// Promise: a transform that needs records is refused beside a native format, naming what does its work
#[test]
fn a_transform_that_looks_into_bytes_is_refused() {
    const TYPE: &str = "transforms.t.type";
    let with = |class: &'static str| [FORMAT, CONVERTER, ("transforms", "t"), (TYPE, class)];
    for (class, part) in [
        (
            "org.apache.kafka.connect.transforms.ReplaceField$Value",
            "columns.include",
        ),
        (
            "org.apache.kafka.connect.transforms.MaskField$Value",
            "columns.exclude",
        ),
        (
            "org.apache.kafka.connect.transforms.InsertField$Value",
            "metadata-columns",
        ),
        (
            "org.apache.kafka.connect.transforms.ValueToKey",
            "route-source",
        ),
        (
            "io.debezium.transforms.ExtractNewRecordState",
            "use a converter",
        ),
        (
            "org.apache.iceberg.connect.transforms.JsonToMapTransform",
            "the format does that",
        ),
    ] {
        assert_refused(&[(&with(class), TYPE, part)]);
    }
    assert_warned(&[(
        &with("com.example.Own"),
        TYPE,
        "must not look into the value",
    )]);
    for class in [
        "org.apache.kafka.connect.transforms.RegexRouter",
        "org.apache.kafka.connect.transforms.ReplaceField$Key",
    ] {
        assert_eq!(
            SinkConfig::parse(&sound_with(&with(class))).1,
            [],
            "{class}"
        );
    }
    let keys = [
        KEY_FORMAT,
        KEY_CONVERTER,
        KEY_COLUMN,
        ("transforms", "t"),
        (TYPE, "org.apache.kafka.connect.transforms.ExtractField$Key"),
    ];
    assert_refused(&[(&keys, TYPE, "would see bytes")]);
}
