//! Avro: vectors of the specification, what Confluent's converter makes of schemas, random schemas
//! and values against a second encoder, and bytes of all kinds.

use std::sync::Arc;

use crate::decode::avro::AvroDecoder;
use crate::decode::columns::ColumnsBuilder;
use crate::decode::refused::Refused;
use crate::decode::testing::show;
use crate::wire::{LogicalType, SourceKind, SourceSchema};

mod bytes;
mod random;
mod schemas;

/// Decodes one value after the other; a refused one is null.
fn decode(decoder: &mut AvroDecoder, values: &[&[u8]]) -> (ColumnsBuilder, Vec<Option<Refused>>) {
    let mut columns = ColumnsBuilder::new(decoder.schema()).unwrap();
    let mut refused = Vec::new();
    for value in values {
        let (column, budget) = columns.row();
        match decoder.decode(value, column, budget) {
            Ok(()) => {
                columns.end_row();
                refused.push(None);
            }
            Err(error) => {
                columns.abandon_row();
                refused.push(Some(error));
            }
        }
    }
    (columns, refused)
}

fn decoder(schema: &str) -> AvroDecoder {
    AvroDecoder::new(schema, &[]).unwrap()
}

/// Decodes one value that is right and shows it.
fn shown(schema: &str, bytes: &[u8]) -> String {
    let mut decoder = decoder(schema);
    let (columns, refused) = decode(&mut decoder, &[bytes]);
    assert_eq!(refused, [None], "{schema}");
    show(columns.column().unwrap().cell(0))
}

#[test]
fn the_vectors_of_the_specification_decode() {
    for (schema, bytes, expected) in [
        (r#""boolean""#, &[1][..], "Bool(true)"),
        (r#""int""#, &[0x7f], "Int32(-64)"),
        (r#""long""#, &[0x80, 0x01], "Int64(64)"),
        ("string", &[0x06, 0x66, 0x6f, 0x6f], "\"foo\""),
        (r#""bytes""#, &[0x04, 0x00, 0xff], "Bytes([0, 255])"),
        (r#""float""#, &[0, 0, 0x80, 0x3f], "Float32(1.0)"),
        (
            r#""double""#,
            &[0, 0, 0, 0, 0, 0, 0xf0, 0xbf],
            "Float64(-1.0)",
        ),
        // The record test: a=27, b="foo".
        (
            r#"{"type":"record","name":"test","fields":[
                {"name":"a","type":"long"},{"name":"b","type":"string"}]}"#,
            &[0x36, 0x06, 0x66, 0x6f, 0x6f],
            "(a=Int64(27), b=\"foo\")",
        ),
        // The array [3, 27].
        (
            r#"{"type":"array","items":"long"}"#,
            &[0x04, 0x06, 0x36, 0x00],
            "[Int64(3), Int64(27)]",
        ),
        // The same in a block of negative count, two bytes long, and one more block.
        (
            r#"{"type":"array","items":"long"}"#,
            &[0x03, 0x04, 0x06, 0x36, 0x02, 0x02, 0x00],
            "[Int64(3), Int64(27), Int64(1)]",
        ),
        (
            r#"{"type":"map","values":"int"}"#,
            &[0x02, 0x02, 0x61, 0x02, 0x01, 0x06, 0x02, 0x62, 0x04, 0x00],
            "{\"a\": Int32(1), \"b\": Int32(2)}",
        ),
        // Null and "a" in the union of null and string.
        (r#"["null","string"]"#, &[0x00], "null"),
        (r#"["null","string"]"#, &[0x02, 0x02, 0x61], "\"a\""),
        (r#"["string","null"]"#, &[0x02], "null"),
        (r#"["string"]"#, &[0x00, 0x02, 0x61], "\"a\""),
        (
            r#"["null","string","long"]"#,
            &[0x04, 0x02],
            "(string=null, long=Int64(1))",
        ),
        (r#"["null","string","long"]"#, &[0x00], "null"),
        (
            r#"{"type":"enum","name":"Foo","symbols":["A","B","C","D"]}"#,
            &[0x06],
            "\"D\"",
        ),
        (
            r#"{"type":"fixed","name":"two","size":2}"#,
            &[7, 8],
            "Bytes([7, 8])",
        ),
        (
            r#"{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}"#,
            &[0x04, 0x04, 0xd2],
            "Decimal { unscaled: [4, 210], scale: 2 }",
        ),
        (
            r#"{"type":"fixed","size":3,"name":"d","logicalType":"decimal","precision":4,"scale":1}"#,
            &[0xff, 0xff, 0xfe],
            "Decimal { unscaled: [255, 255, 254], scale: 1 }",
        ),
        (
            r#"{"type":"fixed","size":16,"name":"u","logicalType":"uuid"}"#,
            &[
                0x0f, 0x8f, 0xad, 0x5b, 0xd9, 0xcb, 0x46, 0x9f, 0xa1, 0x65, 0x70, 0x86, 0x77, 0x28,
                0x95, 0x0e,
            ],
            "\"0f8fad5b-d9cb-469f-a165-70867728950e\"",
        ),
        (
            r#"{"type":"int","connect.type":"int16"}"#,
            &[0xff, 0x01],
            "Int16(-128)",
        ),
    ] {
        assert_eq!(shown(schema, bytes), expected, "{schema}");
    }
}

#[test]
fn a_map_of_other_keys_is_a_list_of_entries() {
    let schema = r#"{"type":"array","items":{"type":"record","name":"MapEntry",
        "namespace":"io.confluent.connect.avro","fields":[
        {"name":"key","type":"int"},{"name":"value","type":["null","string"]}]}}"#;
    assert_eq!(
        shown(schema, &[0x04, 0x02, 0x02, 0x02, 0x61, 0x04, 0x00, 0x00]),
        "{Int32(1): \"a\", Int32(2): null}"
    );
}

fn refusal(schema: &str, bytes: &[u8]) -> Refused {
    let (_, mut refused) = decode(&mut decoder(schema), &[bytes]);
    refused
        .remove(0)
        .unwrap_or_else(|| panic!("{schema} took {bytes:?}"))
}

// Promise: Avro bytes that do not follow their schema are an error of their record, with the field and the byte.
#[test]
fn broken_bytes_are_refused() {
    let list = r#"{"type":"array","items":"long"}"#;
    let map = r#"{"type":"map","values":"int"}"#;
    for (schema, bytes) in [
        (r#""boolean""#, &[2][..]),
        (r#""boolean""#, &[]),
        (r#""long""#, &[0x80]),
        (r#""long""#, &[0xff; 11]),
        (r#""int""#, &[0x80, 0x80, 0x80, 0x80, 0x10]),
        (r#""int""#, &[2, 2]),
        (r#""string""#, &[0x04, 0x61]),
        (r#""string""#, &[0x02, 0xff]),
        (r#""bytes""#, &[0x01]),
        (r#""double""#, &[1, 2, 3]),
        (r#"["null","string"]"#, &[0x04]),
        (r#"["null","string"]"#, &[0x01]),
        (r#"["null","string","int"]"#, &[0x06]),
        (r#"["string"]"#, &[0x02]),
        (r#"{"type":"enum","name":"E","symbols":["A"]}"#, &[0x02]),
        (r#"{"type":"enum","name":"E","symbols":["A"]}"#, &[0x01]),
        (r#"{"type":"int","connect.type":"int8"}"#, &[0x80, 0x02]),
        (
            r#"{"type":"bytes","logicalType":"decimal","precision":4}"#,
            &[0],
        ),
        (list, &[0x04, 0x06]),
        (list, &[0x04, 0x06, 0x36]),
        // A block of -1 items, 100 bytes long.
        (list, &[0x01, 0xc8, 0x01, 0x06, 0x00]),
        (map, &[0x04, 0x02, 0x61, 0x02, 0x02, 0x61, 0x04, 0x00]),
    ] {
        let refused = refusal(schema, bytes);
        assert_eq!(refused.code(), "DECODE_MALFORMED", "{schema} {bytes:?}");
        assert!(
            refused.byte().is_some_and(|at| at <= bytes.len()),
            "{schema} {bytes:?}"
        );
    }
    let schema = r#"{"type":"record","name":"r","fields":[{"name":"lines","type":
        {"type":"array","items":{"type":"record","name":"l","fields":[
        {"name":"price","type":"boolean"}]}}}]}"#;
    let refused = refusal(schema, &[0x04, 0x01, 0x09, 0x00]);
    assert_eq!(refused.path(), "lines.element.price");
    assert_eq!(refused.byte(), Some(3));
}

#[test]
fn values_without_bytes_are_bounded() {
    let empty = r#"{"type":"array","items":{"type":"record","name":"r","fields":[]}}"#;
    // i64::MAX records without a field.
    let most = [
        0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x00,
    ];
    assert_eq!(refusal(empty, &most).code(), "DECODE_TOO_LARGE");
    // i64::MIN of them, in a block of no bytes.
    let least = [
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x00, 0x00,
    ];
    assert_eq!(refusal(empty, &least).code(), "DECODE_TOO_LARGE");
}

#[test]
fn a_row_behind_a_refused_one_is_whole() {
    let schema = r#"{"type":"record","name":"r","fields":[
        {"name":"a","type":"string"},{"name":"b","type":{"type":"array","items":"int"}}]}"#;
    let good: &[u8] = &[0x02, 0x61, 0x02, 0x02, 0x00];
    let cut: &[u8] = &[0x02, 0x62, 0x04, 0x02];
    let (columns, refused) = decode(&mut decoder(schema), &[good, cut, good]);
    let column = columns.column().unwrap();
    assert!(refused[0].is_none() && refused[1].is_some() && refused[2].is_none());
    assert!(column.is_null(1));
    for row in [0, 2] {
        assert_eq!(show(column.cell(row)), "(a=\"a\", b=[Int32(1)])");
    }
}

fn field_of(schema: &SourceSchema, name: &str) -> Arc<SourceSchema> {
    Arc::clone(&schema.field(name).unwrap().1.schema)
}

fn is_timestamp(schema: &SourceSchema) -> bool {
    schema.kind() == SourceKind::Int64 && schema.logical() == Some(LogicalType::Timestamp)
}
