//! Envelopes as JsonConverter writes and reads them.

use super::*;
use crate::decode::{FrameDecoder, Side};
use crate::wire::testing::{FrameBuilder, Row, Value};
use crate::wire::{Cell, Frame, SchemaRegistry, SourceKind};

/// Decodes values and shows each: its schema's id, and how the row looks or why it is refused.
fn decode((decoder, schemas): &mut Bed, texts: &[String]) -> (Vec<(u32, String)>, usize) {
    let bytes = SourceSchema::scalar(SourceKind::Bytes).optional();
    let rows = texts.iter().zip(0..);
    let built =
        FrameBuilder::with_value_schema(1, bytes.clone()).rows(rows.map(|(text, offset)| {
            Row::new("t", 0, offset).value(Value::Bytes(text.as_bytes().to_vec()))
        }));
    let encoded = built.encode();
    let frame = Frame::decode(&encoded, &built.schemas()).expect("a frame");
    let (mut shown, mut first, mut parts) = (Vec::new(), 0, 0);
    while first < frame.rows() {
        let end = decoder
            .decode(&frame, first, &|_| true, schemas)
            .expect("decoded");
        let refused = decoder.take_refused();
        let part = decoder.part(&frame, schemas).expect("a part");
        for row in 0..part.rows() {
            let text = match refused.get(&u32::try_from(row).expect("few rows")) {
                Some(error) => error.report(),
                None => show(part.value(row)),
            };
            shown.push((part.value_schema_id(), text));
        }
        first = end;
        parts += 1;
    }
    (shown, parts)
}

fn show(cell: Cell<'_>) -> String {
    match cell {
        Cell::Struct(record) => {
            let fields = record.fields().iter().enumerate();
            let fields = fields
                .map(|(index, field)| format!("{}={}", field.name, show(record.field(index))));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(" "))
        }
        Cell::Array(list) => format!("[{}]", list.iter().map(show).collect::<Vec<_>>().join(" ")),
        Cell::Map(map) => {
            let entries = map
                .entries()
                .map(|entry| format!("{}:{}", show(entry.key), show(entry.value)));
            format!("<{}>", entries.collect::<Vec<_>>().join(" "))
        }
        Cell::Decimal { unscaled, scale } => {
            let exact =
                crate::convert::decimal::Decimal::from_be_bytes(unscaled, scale).expect("fits");
            format!("{}e{}", exact.unscaled, -exact.scale)
        }
        other => format!("{other:?}"),
    }
}

/// A decoder and the schemas of its session.
type Bed = (FrameDecoder, SchemaRegistry);

fn envelopes() -> Bed {
    let decoder = FrameDecoder::new(Some(Side::envelope_values(true)), None);
    (decoder, SchemaRegistry::default())
}

fn envelope(schema: &str, payload: &str) -> String {
    format!("{{\"schema\":{schema},\"payload\":{payload}}}")
}

fn record(fields: &str) -> String {
    format!("{{\"type\":\"struct\",\"fields\":[{fields}],\"optional\":false,\"name\":\"r\"}}")
}

fn field(name: &str, rest: &str) -> String {
    format!("{{\"field\":\"{name}\",{rest}}}")
}

/// Decodes one field of a type; returns how its value looks, or the report.
fn value(rest: &str, payload: &str) -> String {
    let schema = record(&field("v", rest));
    let (shown, _) = decode(
        &mut envelopes(),
        &[envelope(&schema, &format!("{{\"v\":{payload}}}"))],
    );
    let text = &shown[0].1;
    let inside = text
        .strip_prefix("{v=")
        .and_then(|rest| rest.strip_suffix('}'));
    inside.map_or_else(|| text.clone(), str::to_owned)
}

const DECIMAL: &str = r#""type":"bytes","name":"org.apache.kafka.connect.data.Decimal","version":1,"parameters":{"scale":"2"}"#;

// Promise: a JSON envelope decodes every type and logical type as JsonConverter does
#[test]
fn every_type_of_a_schema_is_read() {
    let logical = |kind: &str, name: &str| {
        format!(r#""type":"{kind}","name":"org.apache.kafka.connect.data.{name}","version":1"#)
    };
    let optional = |rest: &str| format!("{rest},\"optional\":true");
    for (rest, payload, expected) in [
        (r#""type":"boolean""#.to_owned(), "true", "Bool(true)"),
        (r#""type":"int8""#.to_owned(), "-128", "Int8(-128)"),
        (r#""type":"int16""#.to_owned(), "32767", "Int16(32767)"),
        (r#""type":"int32""#.to_owned(), " 7 ", "Int32(7)"),
        (
            r#""type":"int64""#.to_owned(),
            "-9223372036854775808",
            "Int64(-9223372036854775808)",
        ),
        (r#""type":"float""#.to_owned(), "0.1", "Float32(0.1)"),
        (r#""type":"float""#.to_owned(), "\"NaN\"", "Float32(NaN)"),
        (r#""type":"double""#.to_owned(), "1", "Float64(1.0)"),
        (
            r#""type":"double""#.to_owned(),
            "0.10000000000000001",
            "Float64(0.1)",
        ),
        (
            r#""type":"double""#.to_owned(),
            "\"-Infinity\"",
            "Float64(-inf)",
        ),
        (
            r#""type":"string""#.to_owned(),
            "\"a\\u00e9\"",
            "String(\"aé\")",
        ),
        (
            r#""type":"bytes""#.to_owned(),
            "\"AQID\"",
            "Bytes([1, 2, 3])",
        ),
        (DECIMAL.to_owned(), "\"BNI=\"", "1234e-2"),
        (DECIMAL.to_owned(), "12.34", "1234e-2"),
        (DECIMAL.to_owned(), "12", "1200e-2"),
        (
            DECIMAL.to_owned(),
            "123456789012345678901234.50",
            "12345678901234567890123450e-2",
        ),
        (logical("int32", "Date"), "19000", "Date { days: 19000 }"),
        (
            logical("int32", "Time"),
            "86399999",
            "Time { ms: 86399999 }",
        ),
        (logical("int64", "Timestamp"), "-1", "Timestamp { ms: -1 }"),
        (
            r#""type":"array","items":{"type":"int32","optional":true}"#.to_owned(),
            "[1,null,3]",
            "[Int32(1) Null Int32(3)]",
        ),
        (
            r#""type":"array","items":{"type":"int32"}"#.to_owned(),
            "[]",
            "[]",
        ),
        (
            r#""type":"map","keys":{"type":"string"},"values":{"type":"int32"}"#.to_owned(),
            r#"{"a":1,"b":2,"a":3}"#,
            "<String(\"b\"):Int32(2) String(\"a\"):Int32(3)>",
        ),
        (
            r#""type":"map","keys":{"type":"int32"},"values":{"type":"string"}"#.to_owned(),
            r#"[[1,"x"],[2,"y"],[ 1 ,"z"]]"#,
            "<Int32(2):String(\"y\") Int32(1):String(\"z\")>",
        ),
        (
            format!(
                r#""type":"struct","fields":[{}]"#,
                field("x", r#""type":"int32","optional":true"#)
            ),
            r#"{"y":{"left":["out"]},"x":5}"#,
            "{x=Int32(5)}",
        ),
        (optional(DECIMAL), "null", "Null"),
    ] {
        assert_eq!(value(&rest, payload), expected, "{rest} {payload}");
    }
}

// Promise: a payload that is not of its schema is an error of its record, never 0, false or null
#[test]
fn what_is_not_of_the_schema_is_refused() {
    for (rest, payload, code) in [
        (r#""type":"boolean""#, "1", "DECODE_TYPE_MISMATCH"),
        (r#""type":"int8""#, "128", "VALUE_OUT_OF_RANGE"),
        (r#""type":"int32""#, "2147483648", "VALUE_OUT_OF_RANGE"),
        (
            r#""type":"int64""#,
            "9223372036854775808",
            "VALUE_OUT_OF_RANGE",
        ),
        (r#""type":"int64""#, "1.5", "DECODE_TYPE_MISMATCH"),
        (r#""type":"int64""#, "\"secret\"", "DECODE_TYPE_MISMATCH"),
        (r#""type":"float""#, "1e39", "VALUE_OUT_OF_RANGE"),
        (r#""type":"double""#, "1e309", "VALUE_OUT_OF_RANGE"),
        (r#""type":"double""#, "\"secret\"", "DECODE_TYPE_MISMATCH"),
        (r#""type":"string""#, "5", "DECODE_TYPE_MISMATCH"),
        (r#""type":"bytes""#, "\"secret!\"", "DECODE_TYPE_MISMATCH"),
        (DECIMAL, "1.234", "VALUE_PRECISION_LOSS"),
        (DECIMAL, "\"\"", "DECODE_TYPE_MISMATCH"),
        (
            r#""type":"array","items":{"type":"int32"}"#,
            "[1,null]",
            "DECODE_NULL",
        ),
        (
            r#""type":"array","items":{"type":"int32"}"#,
            "{}",
            "DECODE_TYPE_MISMATCH",
        ),
        (
            r#""type":"map","keys":{"type":"string"},"values":{"type":"int32"}"#,
            "[]",
            "DECODE_TYPE_MISMATCH",
        ),
        (
            r#""type":"map","keys":{"type":"int32"},"values":{"type":"int32"}"#,
            "[[1]]",
            "DECODE_TYPE_MISMATCH",
        ),
        (r#""type":"int32""#, "null", "DECODE_NULL"),
        (r#""type":"uint4""#, "1", "JSON_SCHEMA_INVALID"),
        (r#""type":"array""#, "[]", "JSON_SCHEMA_INVALID"),
        (
            r#""type":"bytes","name":"org.apache.kafka.connect.data.Decimal""#,
            "1",
            "SCHEMA_INVALID",
        ),
    ] {
        let report = value(rest, payload);
        assert!(
            report.contains(&format!("[{code}")),
            "{rest} {payload}: {report}"
        );
        assert!(!report.contains("secret"), "{report}");
    }
    let missing =
        record(&(field("a", r#""type":"int32""#) + "," + &field("b", r#""type":"int32""#)));
    let (shown, _) = decode(&mut envelopes(), &[envelope(&missing, "{\"b\":1}")]);
    assert!(
        shown[0].1.starts_with("field `a`: there is no value"),
        "{}",
        shown[0].1
    );
}

#[test]
fn schema_and_payload_stand_in_any_order_and_nothing_else_does() {
    let schema = record(&field("v", r#""type":"int32""#));
    let swapped = format!(" {{ \"payload\" : {{\"v\":2}} , \"schema\" : {schema} }} ");
    let texts = [
        envelope(&schema, "{\"v\":1}"),
        swapped,
        envelope(&schema, "{\"v\":3}"),
        String::new(),
    ];
    let (shown, parts) = decode(&mut envelopes(), &texts);
    let texts: Vec<&str> = shown.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(
        texts,
        ["{v=Int32(1)}", "{v=Int32(2)}", "{v=Int32(3)}", "Null"]
    );
    assert_eq!(parts, 1);
    for text in [
        "{\"v\":1}",
        "[]",
        "null",
        "{\"schema\":null}",
        "{\"schema\":null,\"payload\":1,\"more\":2}",
    ] {
        let (shown, _) = decode(&mut envelopes(), &[text.to_owned()]);
        assert!(
            shown[0].1.contains("[JSON_NO_ENVELOPE"),
            "{text}: {}",
            shown[0].1
        );
    }
    let cut = texts_cut(&envelope(&schema, "{\"v\":1}"));
    let mut decoder = envelopes();
    for text in cut {
        let (shown, _) = decode(
            &mut decoder,
            &[envelope(&schema, "{\"v\":1}"), text.clone()],
        );
        assert!(
            shown[1].1.contains("[JSON_MALFORMED"),
            "{text}: {}",
            shown[1].1
        );
    }
}

/// All beginnings of a text, and the text with something behind it.
fn texts_cut(text: &str) -> Vec<String> {
    let mut cut: Vec<String> = (1..text.len()).map(|end| text[..end].to_owned()).collect();
    cut.push(format!("{text}x"));
    cut
}

// Promise: records of several schemas in one batch land each by its own, in their order
#[test]
fn each_run_of_one_schema_is_a_part() {
    let first = record(&field("a", r#""type":"int32""#));
    let second = record(
        &(field("a", r#""type":"int32""#)
            + ","
            + &field("b", r#""type":"string","optional":true"#)),
    );
    let texts = [
        String::new(),
        envelope(&first, "{\"a\":1}"),
        "broken".to_owned(),
        envelope(&first, "{\"a\":2}"),
        envelope(&second, "{\"a\":3,\"b\":\"x\"}"),
        envelope("null", "{\"a\":4,\"c\":[5]}"),
        envelope("null", "null"),
        envelope(&first, "{\"a\":6}"),
    ];
    let mut decoder = envelopes();
    for _ in 0..3 {
        let (shown, parts) = decode(&mut decoder, &texts);
        assert_eq!(parts, 4);
        let rows: Vec<(u32, &str)> = shown
            .iter()
            .map(|(id, text)| (*id, text.as_str()))
            .collect();
        let malformed = rows[2].1;
        assert!(malformed.contains("[JSON_MALFORMED, byte=0"), "{malformed}");
        assert_eq!(rows[0], (1, "Null"));
        assert_eq!(rows[1], (1, "{a=Int32(1)}"));
        assert_eq!(rows[3], (1, "{a=Int32(2)}"));
        assert_eq!(rows[4], (2, "{a=Int32(3) b=String(\"x\")}"));
        assert_eq!(
            rows[5],
            (0, "<String(\"a\"):Int64(4) String(\"c\"):[Int64(5)]>")
        );
        assert_eq!(rows[6], (0, "Null"));
        assert_eq!(rows[7], (1, "{a=Int32(6)}"));
    }
}

#[test]
fn the_schemas_that_are_remembered_are_bounded() {
    let mut decoder = envelopes();
    for index in 0..PLANS_MAX + 5 {
        let schema = record(&field(
            &format!("f{index}"),
            r#""type":"int32","optional":true"#,
        ));
        let (shown, _) = decode(&mut decoder, &[envelope(&schema, "{}")]);
        assert_eq!(shown[0].1, format!("{{f{index}=Null}}"));
    }
    let format = decoder
        .0
        .value()
        .expect("a side")
        .format()
        .expect("a format");
    assert!(format!("{format:?}").matches("Known").count() <= PLANS_MAX);
}
