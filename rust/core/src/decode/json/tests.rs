//! JSON against `serde_json`, and against the frames that Java makes of the same records.

use std::sync::Arc;

use arrow_array::RecordBatch;
use iceberg::spec::{ListType, NestedField, PrimitiveType, Schema, StructType, Type};
use proptest::prelude::*;
use serde_json::Value as Json;

use super::*;
use crate::convert::decimal::Decimal;
use crate::convert::number::{f64_to_decimal, same_number};
use crate::convert::{ConvertOptions, TableConverter};
use crate::decode::{FrameDecoder, Side};
use crate::schema::evolve::EvolutionMode;
use crate::wire::testing::{FrameBuilder, Row, Value};
use crate::wire::{Cell, Frame, SchemaRegistry, SourceKind, SourceSchema};

/// A frame of texts as ByteArrayConverter hands them over.
fn frame_of(texts: &[&[u8]]) -> FrameBuilder {
    let bytes = SourceSchema::scalar(SourceKind::Bytes).optional();
    let rows = texts.iter().zip(0..);
    FrameBuilder::with_value_schema(1, bytes).rows(
        rows.map(|(text, offset)| Row::new("t", 0, offset).value(Value::Bytes(text.to_vec()))),
    )
}

/// Decodes `texts` and shows each part with what was refused, by the row of the whole.
fn decode(
    decoder: &mut FrameDecoder,
    texts: &[&[u8]],
    mut see: impl FnMut(usize, &Frame<'_>, &std::collections::BTreeMap<u32, crate::SinkError>),
) {
    let built = frame_of(texts);
    let bytes = built.encode();
    let frame = Frame::decode(&bytes, &built.schemas()).expect("a frame");
    let mut schemas = SchemaRegistry::default();
    let mut first = 0;
    while first < frame.rows() {
        let end = decoder
            .decode(&frame, first, &|_| true, &mut schemas)
            .expect("decoded");
        let refused = decoder.take_refused();
        let part = decoder.part(&frame, &schemas).expect("a part");
        assert_eq!(part.rows(), end - first);
        let names: std::collections::BTreeSet<_> = part.names().iter().collect();
        assert_eq!(names.len(), part.names().len(), "a field is one column");
        for row in 0..part.rows() {
            let offset = part.source(row).map(|(_, offset)| offset);
            assert_eq!(offset, i64::try_from(first + row).ok());
        }
        see(first, &part, &refused);
        first = end;
    }
}

fn records() -> FrameDecoder {
    FrameDecoder::new(Some(Side::json_values(true)), None)
}

/// Shows the values of `texts`: JSON where they land, else the code.
fn shown(decoder: &mut FrameDecoder, texts: &[&str]) -> Vec<Result<Json, &'static str>> {
    let bytes: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
    let mut shown = Vec::new();
    decode(decoder, &bytes, |_, part, refused| {
        for row in 0..part.rows() {
            let error = refused.get(&u32::try_from(row).expect("few rows"));
            assert_eq!(part.is_skipped(row), error.is_some());
            shown.push(match error {
                Some(error) => Err(error.code()),
                None => Ok(json_of(part.value(row))),
            });
        }
    });
    shown
}

fn json_of(cell: Cell<'_>) -> Json {
    match cell {
        Cell::Null => Json::Null,
        Cell::Bool(value) => value.into(),
        Cell::Int64(value) => value.into(),
        Cell::Float64(value) => value.into(),
        Cell::Number { unscaled, scale } => format!("{unscaled}e{}", -scale).into(),
        Cell::Decimal { unscaled, scale } => format!("{unscaled:?}e{}", -scale).into(),
        Cell::String(value) => value.into(),
        Cell::Array(list) => list.iter().map(json_of).collect(),
        Cell::Map(map) => {
            let entries = map.entries().map(|entry| match entry.key {
                Cell::String(name) => (name.to_owned(), json_of(entry.value)),
                other => panic!("a key {other:?}"),
            });
            Json::Object(entries.collect())
        }
        other => panic!("a value {other:?}"),
    }
}

fn parsed(texts: &[&str]) -> Vec<Result<Json, &'static str>> {
    let parsed = texts.iter().map(|text| serde_json::from_str(text));
    parsed.map(|json| Ok(json.expect("JSON"))).collect()
}

#[test]
fn records_come_as_they_are_written() {
    let texts = [
        r#"{"id":1,"name":"a","price":1.5,"ok":true,"gone":null}"#,
        r#" { "name" : "b\n\u00e9\ud83e\udd80\"\\\/" , "id" : -2 } "#,
        r#"{"id":"text","nested":{"a":[1,2.5,{"b":[]}],"c":{}},"name":"c"}"#,
        r#"{}"#,
        r#"{"id":3,"name":"d","price":2,"ok":false,"gone":"here","n\u0061me2":1}"#,
        r#"{"price":"x","ok":1}"#,
    ];
    let mut decoder = records();
    for _ in 0..3 {
        assert_eq!(shown(&mut decoder, &texts), parsed(&texts));
    }
    assert_eq!(shown(&mut decoder, &texts[2..3]), parsed(&texts[2..3]));
}

// Promise: native JSON: a record's number of any size lands, also when it is the first of its field
#[test]
fn the_first_value_of_a_field_may_be_of_any_kind() {
    let first = [
        "12345678901234567890",
        "0.12345678901234567",
        "-170141183460469231731687303715884105728",
        "1e400",
        "{}",
        r#"{"b":1},"a":7"#,
        r#"[1],"a":[2]"#,
        r#"1,"a":"x","a":{}"#,
    ];
    for value in first {
        let text = format!(r#"{{"a":{value},"z":1}}"#);
        let mut decoder = records();
        let mut rows = 0;
        decode(
            &mut decoder,
            &[text.as_bytes(), br#"{"a":1}"#],
            |_, part, refused| {
                assert!(refused.is_empty(), "{value}");
                rows += part.rows();
            },
        );
        assert_eq!(rows, 2);
    }
}

// Promise: native JSON: of names that repeat the last counts, no bytes and `null` are a record without a value
#[test]
fn the_last_of_repeated_names_counts_and_nothing_is_no_record() {
    let texts = [
        r#"{"a":1,"a":"x","b":{"c":1,"d":2,"c":3},"a":2.5}"#,
        "",
        "null",
        r#"{"b":{"k":1,"k":2,"k":3}}"#,
        " null ",
    ];
    let expected = [
        r#"{"a":2.5,"b":{"c":3,"d":2}}"#,
        "null",
        "null",
        r#"{"b":{"k":3}}"#,
        "null",
    ];
    assert_eq!(shown(&mut records(), &texts), parsed(&expected));
}

// Promise: native JSON: malformed bytes are an error of their record, with the byte and without the content
#[test]
fn what_is_no_json_is_refused_with_its_place_and_the_others_stay() {
    let cases: &[(&[u8], &str, usize)] = &[
        (b"{\"a\":1", "JSON_MALFORMED", 6),
        (b"{\"a\":1}x", "JSON_MALFORMED", 7),
        (b"{\"a\" 1}", "JSON_MALFORMED", 5),
        (b"{\"a\":1,}", "JSON_MALFORMED", 7),
        (b"{,\"a\":1}", "JSON_MALFORMED", 1),
        (b"{a:1}", "JSON_MALFORMED", 1),
        (b"{\"a\":[1,]}", "JSON_MALFORMED", 8),
        (b"{\"a\":[,1]}", "JSON_MALFORMED", 6),
        (b"{\"a\":tru}", "JSON_MALFORMED", 5),
        (b"{\"a\":01}", "JSON_MALFORMED", 5),
        (b"{\"a\":NaN}", "JSON_MALFORMED", 5),
        (b"{\"a\":\"secret", "JSON_MALFORMED", 12),
        (b"{\"a\":\"\x01\"}", "JSON_MALFORMED", 6),
        (b"{\"a\":\"\\x\"}", "JSON_MALFORMED", 6),
        (b"{\"a\":\"\\ud800\"}", "JSON_MALFORMED", 6),
        (b"{\"a\":\"\\udc00\"}", "JSON_MALFORMED", 6),
        (b"{\"a\":\"\\ud800\\u0041\"}", "JSON_MALFORMED", 6),
        (b"{\"a\":\"\xff\"}", "JSON_MALFORMED", 6),
        (b"[{\"a\":1}]", "VALUE_NOT_A_RECORD", 0),
        (b"\"text\"", "VALUE_NOT_A_RECORD", 0),
        (b"7", "VALUE_NOT_A_RECORD", 0),
    ];
    let mut decoder = records();
    for (text, code, byte) in cases {
        let good: &[u8] = b"{\"a\":1,\"z\":\"y\"}";
        let mut seen = 0;
        decode(&mut decoder, &[good, text, good], |_, part, refused| {
            let error = refused.get(&1).expect("refused");
            let at = error.context().iter().find(|(name, _)| *name == "byte");
            assert_eq!(error.code(), *code, "{}", String::from_utf8_lossy(text));
            assert_eq!(
                at.map(|(_, at)| at.as_str()),
                Some(byte.to_string().as_str()),
                "{error:?}"
            );
            assert!(!error.report().contains("secret"), "{}", error.report());
            let good: Json = serde_json::from_slice(good).expect("JSON");
            assert_eq!(
                (json_of(part.value(0)), json_of(part.value(2))),
                (good.clone(), good)
            );
            assert_eq!(refused.len(), 1);
            seen += 1;
        });
        assert_eq!(seen, 1);
    }
}

// Promise: native JSON: records are checked for UTF-8 each by itself, whatever stands in the next one
#[test]
fn half_a_character_is_not_made_whole_by_the_next_record() {
    let halves: [&[u8]; 4] = [
        b"{\"a\":1}",
        b"{\"a\":\"\xc3",
        b"\xa9\"}",
        "{\"a\":\"é\"}".as_bytes(),
    ];
    decode(&mut records(), &halves, |_, part, refused| {
        let codes = refused
            .values()
            .map(|error| (error.code(), error.message().contains("UTF-8")));
        assert_eq!(codes.collect::<Vec<_>>(), [("JSON_MALFORMED", true); 2]);
        assert_eq!(json_of(part.value(3)), serde_json::json!({"a": "é"}));
        assert_eq!(json_of(part.value(0)), serde_json::json!({"a": 1}));
    });
}

#[test]
fn depth_and_width_have_limits() {
    let nested = |levels: usize| format!("{{\"a\":{}1{}}}", "[".repeat(levels), "]".repeat(levels));
    let (fits, deep) = (nested(NESTING_MAX - 1), nested(NESTING_MAX));
    let texts = [fits.as_str(), deep.as_str()];
    let seen = shown(&mut records(), &texts);
    assert!(seen[0].is_ok());
    assert_eq!(seen[1], Err("VALUE_TOO_DEEP"));
    let wide = |count: usize| {
        let fields: Vec<String> = (0..count).map(|index| format!("\"f{index}\":1")).collect();
        format!("{{{}}}", fields.join(","))
    };
    let (wide, too_wide) = (wide(9_000), wide(10_001));
    let texts = [
        r#"{"x":1}"#,
        wide.as_str(),
        r#"{"y":1}"#,
        too_wide.as_str(),
        r#"{"z":1}"#,
    ];
    let mut decoder = records();
    for _ in 0..2 {
        let seen = shown(&mut decoder, &texts);
        let objects: Vec<_> = seen
            .iter()
            .map(|seen| {
                seen.as_ref()
                    .map(|json| json.as_object().map(serde_json::Map::len))
            })
            .collect();
        assert_eq!(objects[0], Ok(Some(1)));
        assert_eq!(objects[1], Ok(Some(9_000)));
        assert_eq!(objects[2], Ok(Some(1)));
        assert_eq!(objects[3], Err(&"DECODE_TOO_WIDE"));
        assert_eq!(objects[4], Ok(Some(1)));
    }
}

#[test]
fn keys_are_json_of_any_type() {
    let mut decoder = FrameDecoder::new(None, Some(Side::json_keys()));
    let bytes = SourceSchema::scalar(SourceKind::Bytes).optional();
    let texts = [
        "7",
        "\"seven\"",
        "{\"id\":7,\"at\":[1]}",
        "null",
        "[1.5,true]",
        "broken",
    ];
    let rows = texts.iter().zip(0..);
    let built = FrameBuilder::schemaless()
        .key_schema(1, bytes)
        .rows(rows.map(|(text, offset)| {
            let key = Value::Bytes(text.as_bytes().to_vec());
            Row::new("t", 0, offset)
                .key(key)
                .value(Value::object([("v", Value::Int64(offset))]))
        }));
    let bytes = built.encode();
    let frame = Frame::decode(&bytes, &built.schemas()).expect("a frame");
    let mut schemas = SchemaRegistry::default();
    let end = decoder
        .decode(&frame, 0, &|_| true, &mut schemas)
        .expect("decoded");
    assert_eq!(end, texts.len());
    let refused = decoder.take_refused();
    assert_eq!(refused.keys().copied().collect::<Vec<_>>(), [5]);
    assert_eq!(
        refused[&5].context().first(),
        Some(&("byte", "0".to_owned()))
    );
    let part = decoder.part(&frame, &schemas).expect("a part");
    assert!(part.key_schema().is_none());
    for (row, text) in texts.iter().enumerate().take(5) {
        let expected: Json = serde_json::from_str(text).expect("JSON");
        assert_eq!(json_of(part.key(row)), expected);
        assert_eq!(json_of(part.value(row))["v"], row);
    }
    assert_eq!(json_of(part.keys_as_values().value(2))["id"], 7);
}

/// JSON values as texts, most of them of a record.
fn json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        (-1000_i64..1000).prop_map(Json::from),
        any::<f64>()
            .prop_filter("one shortest text", |value| has_one_text(*value))
            .prop_map(Json::from),
        any::<String>().prop_map(Json::from),
        "[a-c]{0,3}".prop_map(Json::from),
    ];
    leaf.prop_recursive(3, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::btree_map(name(), inner, 0..4)
                .prop_map(|map| Json::Object(map.into_iter().collect())),
        ]
    })
}

/// Tells whether two writers of doubles agree on the text of `value`: some lie half-way between two
/// texts that are as short as can be.
fn has_one_text(value: f64) -> bool {
    let text = Decimal::parse(&Json::from(value).to_string());
    match (text, f64_to_decimal(value)) {
        (Ok(text), Ok(other)) => same_number(text, other),
        _ => false,
    }
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[a-e]", 1 => "\\PC{0,4}", 1 => any::<String>()]
}

fn record() -> impl Strategy<Value = Json> {
    let map = prop::collection::btree_map(name(), json(), 0..6);
    map.prop_map(|map| Json::Object(map.into_iter().collect()))
}

/// What Java makes of JsonConverter's map.
fn java(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(value) => match value.as_i64() {
            Some(whole) => Value::Int64(whole),
            None => Value::Float64(value.as_f64().expect("a double")),
        },
        Json::String(value) => Value::text(value),
        Json::Array(items) => Value::Array(items.iter().map(java).collect()),
        Json::Object(map) => {
            let entries = map.iter();
            Value::Map(
                entries
                    .map(|(name, value)| (Value::text(name), java(value)))
                    .collect(),
            )
        }
    }
}

fn table() -> Arc<Schema> {
    let field = |id, name, of| Arc::new(NestedField::optional(id, name, Type::Primitive(of)));
    let inner = vec![
        field(11, "a", PrimitiveType::Long),
        field(12, "b", PrimitiveType::String),
    ];
    let list = ListType::new(Arc::new(NestedField::list_element(
        13,
        Type::Primitive(PrimitiveType::Double),
        false,
    )));
    let decimal = PrimitiveType::Decimal {
        precision: 38,
        scale: 10,
    };
    let fields = vec![
        field(1, "a", PrimitiveType::Long),
        field(2, "b", PrimitiveType::String),
        field(3, "c", PrimitiveType::Double),
        Arc::new(NestedField::optional(
            4,
            "d",
            Type::Struct(StructType::new(inner)),
        )),
        Arc::new(NestedField::optional(5, "e", Type::List(list))),
        field(6, "f", decimal),
        field(7, "g", PrimitiveType::Boolean),
    ];
    Arc::new(
        Schema::builder()
            .with_fields(fields)
            .build()
            .expect("a schema"),
    )
}

/// Converts the rows of a frame: the batch and the code of each refused row.
fn converted(
    converter: &mut TableConverter,
    frame: &Frame<'_>,
) -> (RecordBatch, Vec<(u32, &'static str)>) {
    let rows: Vec<u32> = (0..frame.rows())
        .filter(|row| !frame.is_tombstone(*row))
        .map(|row| u32::try_from(row).expect("few rows"))
        .collect();
    let mut refused = Vec::new();
    converter
        .append(frame, &rows, &mut |row, error| {
            refused.push((row, error.code()))
        })
        .expect("appended");
    (converter.finish().expect("a batch"), refused)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    // Promise: native JSON reads every value as serde_json does, whatever stands around it
    #[test]
    fn any_json_is_what_another_parser_says(
        values in prop::collection::vec(record(), 1..6),
        pretty in any::<bool>(),
    ) {
        let texts: Vec<String> = values
            .iter()
            .map(|value| match pretty {
                true => serde_json::to_string_pretty(value).expect("a text"),
                false => value.to_string(),
            })
            .collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let mut decoder = records();
        let values: Vec<Result<Json, &str>> = values.into_iter().map(Ok).collect();
        for _ in 0..2 {
            prop_assert_eq!(&shown(&mut decoder, &texts), &values);
        }
    }

    // Promise: native JSON lands as the same records do behind JsonConverter, row by row and code by code
    #[test]
    fn native_records_land_as_those_of_java(
        values in prop::collection::vec(prop_oneof![9 => record(), 1 => Just(Json::Null)], 1..12),
        adds in any::<bool>(),
    ) {
        let texts: Vec<String> = values.iter().map(Json::to_string).collect();
        let bytes: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
        let options = ConvertOptions {
            evolution: if adds { EvolutionMode::AddOnly } else { EvolutionMode::Off },
            ..ConvertOptions::default()
        };
        let converter = || TableConverter::new(table(), &options).expect("a converter");
        let rows = values.iter().zip(0..);
        let built = FrameBuilder::schemaless()
            .rows(rows.map(|(value, offset)| Row::new("t", 0, offset).value(java(value))));
        let encoded = built.encode();
        let frame = Frame::decode(&encoded, &built.schemas()).expect("a frame");
        let rows: Vec<u32> = (0..frame.rows()).filter(|row| !frame.is_tombstone(*row))
            .map(|row| u32::try_from(row).expect("few rows"))
            .collect();
        let of_java = converted(&mut converter(), &frame);
        let asked = converter().evolution(&frame, &rows);
        let mut decoder = records();
        let mut seen = None;
        decode(&mut decoder, &bytes, |_, part, refused| {
            assert!(refused.is_empty());
            let native = converted(&mut converter(), part);
            seen = Some((native, converter().evolution(part, &rows)));
        });
        let ((batch, refused), native_asked) = seen.expect("a part");
        let rows_refused = |refused: &[(u32, &str)]| refused.iter().map(|(row, _)| *row).collect::<Vec<_>>();
        prop_assert_eq!(rows_refused(&refused), rows_refused(&of_java.1));
        prop_assert_eq!(batch, of_java.0);
        prop_assert_eq!(asked.is_some(), native_asked.is_some());
    }

    // Promise: no bytes, however broken, make the JSON decoder panic, or differ from another parser's verdict
    #[test]
    fn broken_texts_are_refused_where_another_parser_refuses(
        value in record(),
        at in any::<prop::sample::Index>(),
        change in prop_oneof![
            any::<u8>().prop_map(|byte| vec![byte]),
            Just(Vec::new()),
            "[\\[\\]{}:,\"0-9eE+.\\\\u -]{1,3}".prop_map(String::into_bytes),
        ],
    ) {
        let mut text = value.to_string().into_bytes();
        let at = at.index(text.len());
        text.splice(at..=at, change);
        let mut seen = None;
        decode(&mut records(), &[&text], |_, part, refused| {
            seen = Some(match refused.get(&0) {
                Some(error) => Err(error.code()),
                None => Ok(json_of(part.value(0))),
            });
        });
        let oracle = serde_json::from_slice::<Json>(&text);
        match (seen.expect("a part"), oracle) {
            (Err("JSON_MALFORMED" | "VALUE_NOT_A_RECORD" | "VALUE_TOO_DEEP"), Err(_)) => {}
            // Exponents that nothing holds; the other parser makes 0 of some.
            (Err("VALUE_OUT_OF_RANGE"), _) => {}
            (Err("VALUE_NOT_A_RECORD"), Ok(other)) => prop_assert!(!other.is_object()),
            // Numbers that no double holds, and those that need more digits.
            (Ok(_), Err(error)) => {
                let is_range = error.to_string().contains("out of range");
                prop_assert!(is_range || text.is_empty() || text.starts_with("\u{feff}".as_bytes()), "{error}");
            }
            (Ok(ours), Ok(theirs)) => prop_assert!(same(&ours, &theirs), "{ours} {theirs}"),
            (Err(code), theirs) => prop_assert!(false, "{code}: {theirs:?}"),
        }
    }

    #[test]
    fn any_bytes_are_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut seen = 0;
        decode(&mut records(), &[&bytes, b"{\"a\":1}"], |_, part, _| {
            assert_eq!(json_of(part.value(1))["a"], 1);
            seen += 1;
        });
        prop_assert_eq!(seen, 1);
    }
}

/// Compares values; numbers that are kept as digits are texts in ours.
fn same(ours: &Json, theirs: &Json) -> bool {
    match (ours, theirs) {
        (Json::String(_), Json::Number(_)) => true,
        // The other parser rounds some doubles to a neighbour.
        (Json::Number(left), Json::Number(right)) if !left.is_i64() || !right.is_i64() => {
            let (left, right) = (left.as_f64().unwrap_or(0.0), right.as_f64().unwrap_or(1.0));
            (left - right).abs() <= right.abs() * 1e-15
        }
        (Json::Array(left), Json::Array(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| same(left, right))
        }
        (Json::Object(left), Json::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(name, left)| right.get(name).is_some_and(|right| same(left, right)))
        }
        (left, right) => left == right,
    }
}
