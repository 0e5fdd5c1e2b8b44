//! Schemas in base64 beside the `.proto` texts of the same messages.

use super::*;

/// What Google's Python library made of [`ORDER_TEXT`].
const ORDER: &str = "\
     CgdhLnByb3RvEgRzaG9wGh9nb29nbGUvcHJvdG9idWYvdGltZXN0YW1wLnByb3RvGhxjb25mbHVlbnQv\
     dHlwZS9kZWNpbWFsLnByb3RvIuICCgVPcmRlchIKCgJpZBgBIAEoAxIdCgFtGAIgAygLMhIuc2hvcC5P\
     cmRlci5NRW50cnkSCwoBbBgDIAEoCUgAEgsKAXIYBCABKBFIABIOCgFvGAUgASgBSAGIAQESFgoBYxgG\
     IAEoDjILLnNob3AuQ29sb3ISJQoBdBgHIAEoCzIaLmdvb2dsZS5wcm90b2J1Zi5UaW1lc3RhbXASQwoB\
     cBgIIAEoCzIXLmNvbmZsdWVudC50eXBlLkRlY2ltYWxCH4JEHBIOCglwcmVjaXNpb24SATkSCgoFc2Nh\
     bGUSATISHwoFbGluZXMYCSADKAsyEC5zaG9wLk9yZGVyLkxpbmUaOgoGTUVudHJ5EgsKA2tleRgBIAEo\
     CRIfCgV2YWx1ZRgCIAEoCzIQLnNob3AuT3JkZXIuTGluZToCOAEaEwoETGluZRILCgNza3UYASABKAxC\
     CAoGY2hvaWNlQgQKAl9vKiQKBUNvbG9yEgcKA1JFRBAAEhIKBU1JTlVTEP///////////wFiBnByb3Rv\
     Mw==";
const ORDER_TEXT: &str = r#"syntax = "proto3"; package shop;
    import "google/protobuf/timestamp.proto"; import "confluent/type/decimal.proto";
    message Order {
        int64 id = 1; map<string, Line> m = 2;
        oneof choice { string l = 3; sint32 r = 4; }
        optional double o = 5; Color c = 6; google.protobuf.Timestamp t = 7;
        confluent.type.Decimal p = 8 [(confluent.field_meta) =
            { params: [{ key: "precision", value: "9" }, { key: "scale", value: "2" }] }];
        repeated Line lines = 9;
        message Line { bytes sku = 1; }
    }
    enum Color { RED = 0; MINUS = -1; }"#;
/// And of [`OLD_TEXT`], which has no syntax.
const OLD: &str = "CgdiLnByb3RvIiYKA09sZBIJCgFhGAEgAigFEgkKAWIYAiABKAkSCQoBYxgDIAMoBw==";
const OLD_TEXT: &str =
    "message Old { required int32 a = 1; optional string b = 2; repeated fixed32 c = 3; }";

// Promise: A Protobuf schema that a serializer registered as a descriptor in base64, as Confluent's Python client does, is read like its text.
#[test]
fn a_descriptor_is_read_like_its_text() {
    for (descriptor, text) in [(ORDER, ORDER_TEXT), (OLD, OLD_TEXT)] {
        assert_eq!(decoder(descriptor).schema(), decoder(text).schema());
    }
    // id, a map with one line, the right one of the oneof, o, c, p = 1.23, a line.
    let bytes = [
        &[8, 7][..],
        &[18, 8, 10, 1, b'k', 18, 3, 10, 1, 9],
        &[32, 3, 41, 0, 0, 0, 0, 0, 0, 0xF8, 0x3F],
        &[48, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1],
        &[66, 5, 10, 1, 123, 24, 2, 74, 3, 10, 1, 9],
    ]
    .concat();
    let read = shown(ORDER, &bytes);
    assert_eq!(read, shown(ORDER_TEXT, &bytes));
    assert!(
        read.contains("MINUS") && read.contains("Int32(-2)"),
        "{read}"
    );
    assert_eq!(shown(OLD, &[8, 1]), shown(OLD_TEXT, &[8, 1]));
}

#[test]
fn a_message_inside_is_found_by_what_the_serializer_counts() {
    // The type of the map's entries is the first inside.
    let line = ProtobufDecoder::new(ORDER, &[], &[0, 1]).unwrap();
    assert_eq!(line.schema().fields().len(), 1);
    assert!(ProtobufDecoder::new(ORDER, &[], &[0, 2]).is_err());
}

#[test]
fn a_broken_descriptor_is_no_schema() {
    for cut in (4..ORDER.len()).step_by(4) {
        let part = ORDER.get(..cut).unwrap();
        if let Err(error) = ProtobufDecoder::new(part, &[], &[0]) {
            assert_eq!(error.code(), "SCHEMA_INVALID");
        }
    }
    for text in ["AAAA", "CgdhLnByb3Rv", "CgdhLnByb3R", "////"] {
        let error = ProtobufDecoder::new(text, &[], &[0]).unwrap_err();
        assert_eq!(error.code(), "SCHEMA_INVALID", "{text}");
    }
}
