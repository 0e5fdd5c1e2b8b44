//! What Confluent's converter makes of message types, read in its `ProtobufData`.

use super::*;
use crate::schema::types::{TypeRules, type_of};
use crate::wire::{LogicalType, SourceKind, SourceSchema};

fn connect(text: &str) -> SourceSchema {
    SourceSchema::clone(decoder(text).schema())
}

/// The columns of a table for the message.
fn columns(text: &str) -> String {
    let rules = TypeRules {
        force_optional: false,
        is_v3: true,
    };
    let iceberg::spec::Type::Struct(of) = type_of(&connect(text), rules).unwrap() else {
        panic!("{text} is no struct");
    };
    let fields = of.fields().iter();
    let fields: Vec<String> = fields
        .map(|field| format!("{} {}", field.name, field.field_type))
        .collect();
    fields.join(", ")
}

// Promise: Protobuf's scalar and well-known types land in the columns that they mean, unsigned ones without a sign.
#[test]
fn types_become_columns() {
    assert_eq!(
        columns(
            r#"syntax = "proto3";
            // A comment; with a semicolon.
            package shop.orders; /* and another */
            import "google/protobuf/timestamp.proto";
            import 'google/protobuf/wrappers.proto';
            import "google/type/date.proto";
            import "google/type/timeofday.proto";
            import "confluent/type/decimal.proto";
            import "confluent/meta.proto";
            option java_package = "x.y";
            message Order {
                option deprecated = true;
                reserved 100 to 110, 200;
                reserved "old";
                int32 a = 1; sint32 b = 2; sfixed32 c = 3;
                uint32 d = 4; fixed32 e = 5;
                int64 f = 6; sint64 g = 7; sfixed64 h = 8; uint64 i = 9; fixed64 j = 10;
                float k = 11; double l = 12; bool m = 13; string n = 14 [json_name = "N"]; bytes o = 0x0f;
                google.protobuf.Timestamp p = 16;
                .google.protobuf.Int64Value q = 17;
                google.type.Date r = 18;
                google.type.TimeOfDay s = 19;
                confluent.type.Decimal t = 20 [(confluent.field_meta) =
                    { params: [ { key: "precision", value: "9" }, { key: "scale" value: "2" } ] }];
                repeated string u = 21;
                map<string, Line> v = 22;
                Color w = 23;
                Line x = 24;
                oneof choice { int32 left = 25; string right = 26; }
                int32 y = 27 [(confluent.field_meta).params = {key: "connect.type", value: "int8"}];
                enum Color { option allow_alias = true; RED = 0; CRIMSON = 0; BLUE = -1; }
                message Line { double price = 1; }
            }
            service S { rpc Get (Order) returns (Order) { option x = "y"; } }"#
        ),
        "choice_0 struct<intstring>, a int, b int, c int, d long, e long, f long, g long, h long, \
         i long, j long, k float, l double, m boolean, n string, o binary, p timestamptz_ns, q long, \
         r date, s time, t decimal(9, 2), u list, v map, w string, x struct<double>, y int"
    );
}

#[test]
fn annotations_are_those_of_the_converter() {
    let schema = connect(
        r#"syntax = "proto3"; package a.b;
        message M { uint32 u = 7; Color c = 2; oneof pick { string s = 3; } repeated int32 r = 4;
            enum Color { RED = 0; BLUE = 5; } }"#,
    );
    assert_eq!(schema.name.as_deref(), Some("M"));
    assert!(!schema.optional);
    let field = |name: &str| schema.field(name).unwrap().1.schema.clone();
    let parameter = |schema: &SourceSchema, name: &str| {
        let name = format!("io.confluent.connect.protobuf.{name}");
        schema.parameters.get(&name).cloned().unwrap_or_default()
    };
    let u = field("u");
    assert_eq!(
        (parameter(&u, "Tag"), parameter(&u, "Type")),
        ("7".into(), "uint32".into())
    );
    assert!(u.optional);
    let c = field("c");
    assert_eq!(
        (c.kind(), c.name.as_deref()),
        (SourceKind::String, Some("Color"))
    );
    assert_eq!(
        (parameter(&c, "Enum"), parameter(&c, "Enum.BLUE")),
        ("Color".into(), "5".into())
    );
    let pick = field("pick_0");
    let name = "io.confluent.connect.protobuf.Union.pick";
    assert_eq!(
        (pick.kind(), pick.name.as_deref()),
        (SourceKind::Struct, Some(name))
    );
    assert!(pick.optional);
    let r = field("r");
    assert!(r.optional && r.value().unwrap().optional);
    assert_eq!(parameter(&r, "Tag"), "4");
}

#[test]
fn a_message_is_found_by_its_indexes_and_types_in_other_files() {
    let text = r#"syntax = "proto3"; package p; import "other.proto";
        message A { message B { q.Other o = 1; } message C { B b = 1; } }
        message D { string s = 1; }"#;
    let other = r#"syntax = "proto3"; package q; message Other { int32 i = 1; }"#;
    let files = [("other.proto", other)];
    let name = |indexes: &[u32]| {
        let decoder = ProtobufDecoder::new(text, &files, indexes)?;
        Ok::<_, crate::SinkError>(decoder.schema().name.clone().unwrap_or_default())
    };
    assert_eq!(name(&[0, 0]).unwrap(), "B");
    assert_eq!(name(&[0, 1]).unwrap(), "C");
    assert_eq!(name(&[1]).unwrap(), "D");
    for nowhere in [&[2][..], &[1, 0], &[]] {
        assert_eq!(name(nowhere).unwrap_err().code(), "SCHEMA_INVALID");
    }
    let mut decoder = ProtobufDecoder::new(text, &files, &[0, 1]).unwrap();
    let (columns, refused) = decode(&mut decoder, &[&[0x0a, 0x04, 0x0a, 0x02, 0x08, 0x07]]);
    assert_eq!(refused, [None]);
    assert_eq!(
        show(columns.column().unwrap().cell(0)),
        "(b=(o=(i=Int32(7))))"
    );
    assert!(ProtobufDecoder::new(text, &[], &[0, 0]).is_err());
}

#[test]
fn a_record_that_is_a_wrapper_is_its_value() {
    let text =
        r#"syntax = "proto3"; package google.protobuf; message StringValue { string value = 1; }"#;
    assert_eq!(connect(text).kind(), SourceKind::String);
    assert_eq!(shown(text, &[0x0a, 0x01, 0x61]), "\"a\"");
    assert_eq!(shown(text, &[]), "\"\"");
}

// Promise: A .proto text that has no columns is refused with a code, for each record that names it.
#[test]
fn schemas_without_columns_are_refused() {
    let mut deep = String::new();
    for level in 0..70 {
        deep.push_str(&format!("message M{level} {{ "));
    }
    for (text, code) in [
        ("message", "SCHEMA_INVALID"),
        ("message M {", "SCHEMA_INVALID"),
        ("message M { int32 a = 0; }", "SCHEMA_INVALID"),
        ("message M { int32 a = 536870912; }", "SCHEMA_INVALID"),
        ("message M { int32 a = 1; int64 b = 1; }", "SCHEMA_INVALID"),
        ("message M { int32 a = 1; int64 a = 2; }", "SCHEMA_INVALID"),
        ("message M { Unknown a = 1; }", "SCHEMA_INVALID"),
        ("message M { map<double, int32> a = 1; }", "SCHEMA_INVALID"),
        ("message M {} message M {}", "SCHEMA_INVALID"),
        ("enum E {} message M {}", "SCHEMA_INVALID"),
        ("/* message M {}", "SCHEMA_INVALID"),
        ("import \"x; message M {}", "SCHEMA_INVALID"),
        ("", "SCHEMA_INVALID"),
        (
            "message M { optional group G = 1 { } }",
            "SCHEMA_TYPE_UNSUPPORTED",
        ),
        ("message M { M m = 1; }", "SCHEMA_TOO_DEEP"),
        (
            "import \"google/protobuf/struct.proto\"; message M { google.protobuf.Struct s = 1; }",
            "SCHEMA_TOO_DEEP",
        ),
        (&deep, "SCHEMA_TOO_DEEP"),
    ] {
        let error = ProtobufDecoder::new(text, &[], &[0]).unwrap_err();
        assert_eq!(error.code(), code, "{text}: {}", error.report());
    }
    let decimal = LogicalType::Decimal { scale: 0 };
    let text = "import \"confluent/type/decimal.proto\"; message M { optional confluent.type.Decimal d = 1; }";
    let schema = connect(text);
    assert_eq!(schema.field("d").unwrap().1.schema.logical(), Some(decimal));
}
