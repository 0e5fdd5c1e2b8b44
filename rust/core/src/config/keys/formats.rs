//! Keys about decoding values and keys without Connect's converters.

use super::KeyType::String;
use super::{Group, Key};

const FORMATS: &[&str] = &[
    "connect",
    "json",
    "json-envelope",
    "json-schema",
    "avro",
    "protobuf",
];
/// Keys about native decoding.
pub(super) const DECODING: Group = Group {
    title: "Native decoding",
    intro: "Bytes that Frazil decodes itself, several times faster than Connect's converters do. See \
            `docs/native-decoding.md`.",
    keys: &[
        Key::own(
            "frazil.value.format",
            String,
            "What the bytes of record values are. `connect`: whatever `value.converter` makes of \
             them. Else set `value.converter` to \
             `org.apache.kafka.connect.converters.ByteArrayConverter`; `json` is then JSON without \
             a schema, `json-envelope` JSON as Connect's JsonConverter writes it, with `schema` and \
             `payload`; `json-schema`, `avro` and `protobuf` are those formats with a schema in a \
             registry (`frazil.schema.registry.url`).",
        )
        .or("connect")
        .one_of(FORMATS, "")
        .medium(),
        Key::own(
            "frazil.key.format",
            String,
            "The same for record keys and `key.converter`. It needs something that reads keys: a \
             route, a metadata column or `key-row`.",
        )
        .or("connect")
        .one_of(FORMATS, ""),
    ],
};
