//! The schemas that inputs choose from: together they have every type of their language.

use super::{RegisteredKind, RegistrySchema};
use crate::decode::confluent::SchemaKey;
use crate::error::{Result, SinkError};

const AVRO: [&str; 6] = [
    r#"{"type":"record","name":"R","fields":[
        {"name":"b","type":"boolean"},{"name":"i","type":"int"},{"name":"l","type":"long"},
        {"name":"f","type":"float"},{"name":"d","type":"double"},{"name":"s","type":"string"},
        {"name":"y","type":"bytes"},{"name":"x","type":{"type":"fixed","name":"F","size":3}},
        {"name":"e","type":{"type":"enum","name":"E","symbols":["A","B"]}}]}"#,
    r#"{"type":"record","name":"R","fields":[
        {"name":"o","type":["null","long"]},{"name":"p","type":["string","null"]},
        {"name":"u","type":["null","int","string",{"type":"array","items":"long"}]},
        {"name":"one","type":["int"]}]}"#,
    r#"{"type":"record","name":"R","fields":[
        {"name":"a","type":{"type":"array","items":{"type":"record","name":"I","fields":[
            {"name":"n","type":"int"},{"name":"m","type":{"type":"map","values":["null","string"]}}]}}},
        {"name":"m","type":{"type":"map","values":{"type":"array","items":"double"}}},
        {"name":"empty","type":{"type":"array","items":{"type":"record","name":"Z","fields":[]}}}]}"#,
    r#"{"type":"record","name":"R","fields":[
        {"name":"n","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}},
        {"name":"q","type":{"type":"fixed","name":"Q","size":5,"logicalType":"decimal","precision":9,"scale":2}},
        {"name":"d","type":{"type":"int","logicalType":"date"}},
        {"name":"t","type":{"type":"int","logicalType":"time-millis"}},
        {"name":"c","type":{"type":"long","logicalType":"time-micros"}},
        {"name":"ms","type":{"type":"long","logicalType":"timestamp-millis"}},
        {"name":"us","type":{"type":"long","logicalType":"timestamp-micros"}},
        {"name":"ns","type":{"type":"long","logicalType":"timestamp-nanos"}},
        {"name":"lo","type":{"type":"long","logicalType":"local-timestamp-micros"}},
        {"name":"u","type":{"type":"string","logicalType":"uuid"}},
        {"name":"v","type":{"type":"fixed","name":"U","size":16,"logicalType":"uuid"}}]}"#,
    r#"{"type":"record","name":"R","fields":[
        {"name":"i8","type":{"type":"int","connect.type":"int8"}},
        {"name":"i16","type":{"type":"int","connect.type":"int16"}},
        {"name":"m","type":{"type":"array","items":{"type":"record",
            "name":"MapEntry","namespace":"io.confluent.connect.avro","fields":[
            {"name":"key","type":"int"},{"name":"value","type":["null","string"]}]},
            "connect.internal.type":"MapEntry"}}]}"#,
    r#"{"type":"array","items":"string"}"#,
];

const PROTOBUF: [&str; 4] = [
    r#"syntax = "proto3"; message R { int32 a = 1; sint64 b = 2; uint64 c = 3; fixed32 d = 4;
        sfixed64 e = 5; float f = 6; double g = 7; bool h = 8; string i = 9; bytes j = 10;
        K k = 11; optional int32 l = 12; enum K { Z = 0; O = 1; } }
        message S { string only = 1; message T { int64 deep = 1; } T t = 2; }"#,
    r#"syntax = "proto3"; message R { I i = 1; repeated int32 p = 2; repeated string q = 3;
        repeated I r = 4; map<string, int64> m = 5; map<int32, I> n = 6;
        oneof o { string x = 7; I y = 8; } message I { bool z = 1; repeated double w = 2; } }"#,
    r#"syntax = "proto2"; message R { required int32 a = 1; optional string b = 2 [default = "x"];
        repeated K k = 3 [packed = true]; enum K { A = 1; B = 2; } required I i = 4;
        message I { optional sint32 v = 1; } }"#,
    r#"syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
        import "google/type/date.proto"; import "google/type/timeofday.proto";
        import "confluent/type/decimal.proto"; import "confluent/meta.proto";
        message R { google.protobuf.Timestamp t = 1; google.protobuf.Int64Value w = 2;
        google.type.Date d = 3; google.type.TimeOfDay c = 4;
        confluent.type.Decimal n = 5 [(confluent.field_meta) = { params: [
            { key: "precision", value: "9" }, { key: "scale", value: "2" }] }];
        repeated google.protobuf.Timestamp r = 6; google.protobuf.BytesValue y = 7; }"#,
];

const JSON_SCHEMA: [&str; 3] = [
    r#"{"type":"object","properties":{"b":{"type":"boolean"},"i":{"type":"integer"},
        "n":{"type":"number"},"s":{"type":"string"},"e":{"enum":["a","b"]},
        "i8":{"type":"integer","connect.type":"int8"},"f":{"type":"number","connect.type":"float32"},
        "y":{"type":"string","connect.type":"bytes"}},"required":["i"]}"#,
    r##"{"type":"object","properties":{"a":{"type":"array","items":{"$ref":"#/definitions/I"}},
        "m":{"type":"object","additionalProperties":{"type":"integer"}},
        "o":{"oneOf":[{"type":"null"},{"type":"string"}]},"t":{"type":["null","number"]}},
        "definitions":{"I":{"type":"object","properties":{"x":{"type":"integer"},
            "y":{"type":"array","items":{"type":"array","items":{"type":"string"}}}}}}}"##,
    r#"{"type":"object","properties":{
        "n":{"type":"number","connect.type":"bytes","title":"org.apache.kafka.connect.data.Decimal","connect.parameters":{"scale":"2"}},
        "d":{"type":"integer","connect.type":"int32","title":"org.apache.kafka.connect.data.Date"},
        "t":{"type":"integer","connect.type":"int32","title":"org.apache.kafka.connect.data.Time"},
        "ts":{"type":"integer","connect.type":"int64","title":"org.apache.kafka.connect.data.Timestamp"}}}"#,
];

/// The ids of a language's schemas begin behind this.
fn base(kind: RegisteredKind) -> u32 {
    match kind {
        RegisteredKind::Avro => 0,
        RegisteredKind::Protobuf => 16,
        RegisteredKind::JsonSchema => 32,
    }
}

fn texts(kind: RegisteredKind) -> &'static [&'static str] {
    match kind {
        RegisteredKind::Avro => &AVRO,
        RegisteredKind::Protobuf => &PROTOBUF,
        RegisteredKind::JsonSchema => &JSON_SCHEMA,
    }
}

const KINDS: [RegisteredKind; 3] = [
    RegisteredKind::Avro,
    RegisteredKind::Protobuf,
    RegisteredKind::JsonSchema,
];

/// Returns the id of the schema that `choice` chooses.
pub(super) fn number(kind: RegisteredKind, choice: u8) -> u32 {
    let of = u32::from(choice) % u32::try_from(texts(kind).len()).unwrap_or(1);
    base(kind) + of + 1
}

/// Returns what the registry of the inputs says of a schema.
pub(super) fn of_registry(key: &SchemaKey) -> Result<RegistrySchema> {
    let id = match key {
        SchemaKey::Id(id) => *id,
        SchemaKey::LongId(id) | SchemaKey::GlobalId(id) | SchemaKey::ContentId(id) => {
            u32::try_from(*id).unwrap_or_default()
        }
        SchemaKey::Guid([id, ..]) => u32::from(*id),
        SchemaKey::Subject(_) => 1,
        SchemaKey::Digest(_) => 0,
    };
    for kind in KINDS {
        let at = id.checked_sub(base(kind) + 1);
        let at = at.and_then(|at| usize::try_from(at).ok());
        if let Some(text) = at.and_then(|at| texts(kind).get(at)) {
            return Ok(RegistrySchema {
                id: SchemaKey::Id(id),
                kind: Some(kind.name().to_owned()),
                text: (*text).to_owned(),
                references: Vec::new(),
            });
        }
    }
    Err(SinkError::data("REGISTRY_SCHEMA_UNKNOWN", "no such schema"))
}
