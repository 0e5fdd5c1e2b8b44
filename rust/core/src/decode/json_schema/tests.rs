//! JSON Schema: what Confluent's converter makes of schemas, values, and texts of all kinds.

use proptest::prelude::*;

use super::*;
use crate::decode::columns::ColumnsBuilder;
use crate::decode::testing::show;
use crate::wire::LogicalType;

const ORDER: &str = r##"{"$schema":"http://json-schema.org/draft-07/schema#","title":"Order","type":"object",
    "required":["id","lines"],"definitions":{"line":{"type":"object","properties":
        {"price":{"type":"number"}},"required":["price"]}},
    "properties":{
        "id":{"type":"integer","connect.index":0},
        "small":{"type":"integer","connect.type":"int16","connect.index":1},
        "note":{"oneOf":[{"type":"null"},{"type":"string"}],"connect.index":2},
        "flag":{"type":["boolean","null"],"connect.index":3},
        "lines":{"type":"array","items":{"$ref":"#/definitions/line"},"connect.index":4},
        "tags":{"type":"object","additionalProperties":{"type":"string"},"connect.index":5},
        "at":{"type":"integer","connect.type":"int64","connect.index":6,
            "title":"org.apache.kafka.connect.data.Timestamp","connect.version":1},
        "cost":{"type":"number","connect.type":"bytes","connect.index":7,
            "title":"org.apache.kafka.connect.data.Decimal","connect.parameters":{"scale":"2"}},
        "color":{"type":"string","enum":["RED","BLUE"],"connect.index":8}}}"##;

fn decode(schema: &str, json: &str) -> Result<String, Refused> {
    let mut decoder = JsonSchemaDecoder::new(schema, &[]).unwrap();
    let mut columns = ColumnsBuilder::new(decoder.schema()).unwrap();
    let (column, budget) = columns.row();
    decoder.decode(json.as_bytes(), column, budget)?;
    columns.end_row();
    let column = columns.column().unwrap();
    Ok(show(column.cell(0)))
}

#[test]
fn values_land_by_their_schema() {
    let json = r#"{"id":7,"small":300,"note":"n","flag":null,"lines":[{"price":1.5}],
        "tags":{"a":"b"},"at":5,"cost":1.5,"color":"RED","unknown":[1]}"#;
    assert_eq!(
        decode(ORDER, json).unwrap(),
        "(id=Int64(7), small=Int16(300), note=\"n\", flag=null, lines=[(price=Float64(1.5))], \
         tags={\"a\": \"b\"}, at=Timestamp { ms: 5 }, cost=Decimal { unscaled: [0, 0, 0, 0, 0, 0, 0, \
         0, 0, 0, 0, 0, 0, 0, 0, 150], scale: 2 }, color=\"RED\")"
    );
    let least = decode(ORDER, r#"{"id":7,"lines":[]}"#).unwrap();
    assert!(least.contains("small=null, note=null"), "{least}");
}

#[test]
fn what_the_schema_forbids_is_refused() {
    for (json, code) in [
        ("{\"lines\":[]}", "DECODE_NULL"),
        ("{\"id\":null,\"lines\":[]}", "DECODE_NULL"),
        ("{\"id\":\"7\",\"lines\":[]}", "DECODE_TYPE_MISMATCH"),
        (
            "{\"id\":7,\"small\":40000,\"lines\":[]}",
            "VALUE_OUT_OF_RANGE",
        ),
        ("{\"id\":7,\"lines\":[]} x", "JSON_MALFORMED"),
        ("{\"id\":7", "JSON_MALFORMED"),
        ("[]", "DECODE_TYPE_MISMATCH"),
    ] {
        assert_eq!(decode(ORDER, json).unwrap_err().code(), code, "{json}");
    }
}

#[test]
fn annotations_are_those_of_the_converter() {
    let decoder = JsonSchemaDecoder::new(ORDER, &[]).unwrap();
    let schema = decoder.schema();
    assert_eq!(schema.name.as_deref(), Some("Order"));
    let field = |name: &str| schema.field(name).unwrap().1.schema.clone();
    assert!(!field("id").optional && field("small").optional);
    assert_eq!(
        field("cost").logical(),
        Some(LogicalType::Decimal { scale: 2 })
    );
    assert_eq!(field("tags").kind(), SourceKind::Map);
    let blue = field("color")
        .parameters
        .get("io.confluent.connect.json.Enum.BLUE")
        .cloned();
    assert_eq!(blue.as_deref(), Some("BLUE"));
}

#[test]
fn parts_come_from_other_schemas() {
    let schema = r##"{"allOf":[{"$ref":"base.json"},{"type":"object","required":["b"],
        "properties":{"b":{"$ref":"base.json#/properties/a"}}}]}"##;
    let base = r#"{"type":"object","properties":{"a":{"type":"integer"}}}"#;
    let decoder = JsonSchemaDecoder::new(schema, &[("base.json", base)]).unwrap();
    let fields = decoder.schema().fields().iter();
    let fields: Vec<_> = fields
        .map(|field| (field.name.as_str(), field.schema.optional))
        .collect();
    assert_eq!(fields, [("a", true), ("b", false)]);
    assert_eq!(
        JsonSchemaDecoder::new(schema, &[]).unwrap_err().code(),
        "SCHEMA_INVALID"
    );
}

#[test]
fn schemas_without_columns_are_refused() {
    for (schema, code) in [
        ("{", "SCHEMA_INVALID"),
        ("true", "SCHEMA_TYPE_UNSUPPORTED"),
        ("{}", "SCHEMA_TYPE_UNSUPPORTED"),
        (r#"{"type":"object"}"#, "SCHEMA_TYPE_UNSUPPORTED"),
        (r#"{"type":"array"}"#, "SCHEMA_TYPE_UNSUPPORTED"),
        (
            r#"{"type":["string","integer"]}"#,
            "SCHEMA_TYPE_UNSUPPORTED",
        ),
        (
            r#"{"oneOf":[{"type":"string"},{"type":"integer"}]}"#,
            "SCHEMA_TYPE_UNSUPPORTED",
        ),
        (r#"{"type":"integer","connect.type":"x"}"#, "SCHEMA_INVALID"),
        (r##"{"$ref":"#/nowhere"}"##, "SCHEMA_INVALID"),
        (r##"{"$ref":"#"}"##, "SCHEMA_TOO_DEEP"),
        (
            r##"{"type":"object","properties":{"a":{"$ref":"#"}}}"##,
            "SCHEMA_TOO_DEEP",
        ),
        (
            r##"{"type":"object","properties":{"x":{"type":"string"}},"allOf":[{"$ref":"#"}]}"##,
            "SCHEMA_TOO_DEEP",
        ),
    ] {
        let error = JsonSchemaDecoder::new(schema, &[]).unwrap_err();
        assert_eq!(error.code(), code, "{schema}: {}", error.report());
    }
}

proptest! {
    #[test]
    fn any_text_becomes_a_row_or_is_refused(json in r#"(\{|\}|\[|\]|"id"|"lines"|:|,|[0-9]|null|"a"| ){0,24}"#) {
        if let Err(refused) = decode(ORDER, &json) {
            prop_assert!(["JSON_MALFORMED", "DECODE_NULL", "DECODE_TYPE_MISMATCH"].contains(&refused.code()));
        }
    }
}
