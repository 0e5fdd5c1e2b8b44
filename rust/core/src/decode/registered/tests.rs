//! Which schemas are asked for, and what becomes of records whose schema is not to be had.

use super::*;
use crate::SinkError;
use crate::decode::testing::show;

fn raw<'a>(topic: &'a str, bytes: &'a [u8]) -> Raw<'a> {
    Raw {
        topic,
        bytes,
        headers: None,
    }
}

fn avro(id: u32, text: &str) -> RegistrySchema {
    RegistrySchema {
        id: SchemaKey::Id(id),
        kind: Some("AVRO".to_owned()),
        text: text.to_owned(),
        references: Vec::new(),
    }
}

fn format(place: IdPlace) -> RegisteredFormat {
    RegisteredFormat::new(RegisteredKind::Avro, Part::Value, place)
}

fn code(format: &mut RegisteredFormat, raw: Raw<'_>) -> &'static str {
    format.open(raw).unwrap_err().code()
}

#[test]
fn a_schema_is_wanted_until_it_is_known() {
    let mut format = format(IdPlace::Frame);
    let bytes = [0, 0, 0, 0, 1, 14];
    let record = raw("t", &bytes);
    assert_eq!(format.wants(record), Some(SchemaKey::Id(1)));
    format.learn(SchemaKey::Id(1), Ok(avro(1, "\"int\"")));
    format.begin_block();
    assert_eq!(format.wants(record), None);
    let opened = format.open(record).unwrap().unwrap();
    assert_eq!(opened.data, 5..6);
    let mut columns = ColumnsBuilder::new(format.schema(opened.schema).unwrap()).unwrap();
    format.decode(record, &opened, &mut columns).unwrap();
    columns.end_row();
    assert_eq!(show(columns.column().unwrap().cell(0)), "Int32(7)");
    // A broken frame wants nothing; it is refused when it is opened.
    assert_eq!(format.wants(raw("t", b"x")), None);
    assert_eq!(code(&mut format, raw("t", b"x")), "DECODE_MALFORMED");
    // The byte is counted from the first of the record.
    let cut = [0, 0, 0, 0, 1, 0x80];
    let opened = format.open(raw("t", &cut)).unwrap().unwrap();
    let refused = format
        .decode(raw("t", &cut), &opened, &mut columns)
        .unwrap_err();
    assert_eq!(refused.byte(), Some(6));
}

#[test]
fn what_the_registry_does_not_know_is_asked_for_in_the_next_block() {
    let mut format = format(IdPlace::Frame);
    let record = raw("t", &[0, 0, 0, 0, 1, 14]);
    let key = SchemaKey::Id(1);
    let unknown = || SinkError::data("REGISTRY_SCHEMA_UNKNOWN", "unknown").with("schema_id", 1);
    format.learn(key.clone(), Err(unknown()));
    assert_eq!(format.wants(record), None);
    assert_eq!(code(&mut format, record), "REGISTRY_SCHEMA_UNKNOWN");
    format.begin_block();
    assert_eq!(format.wants(record), Some(key.clone()));
    // A schema that is no good stays so.
    format.learn(key, Ok(avro(1, "{")));
    format.begin_block();
    assert_eq!(format.wants(record), None);
    assert_eq!(code(&mut format, record), "SCHEMA_INVALID");
}

#[test]
fn a_schema_of_another_format_is_refused() {
    let mut format = format(IdPlace::Frame);
    let mut schema = avro(1, "{}");
    schema.kind = Some("JSON".to_owned());
    format.learn(SchemaKey::Id(1), Ok(schema));
    let record = raw("t", &[0, 0, 0, 0, 1, 14]);
    assert_eq!(code(&mut format, record), "DECODE_SCHEMA_MISMATCH");
}

#[test]
fn the_newest_schema_of_a_subject_is_compiled_once() {
    let mut format = format(IdPlace::Latest {
        subject: "${topic}-value".to_owned(),
    });
    for (topic, id) in [("a", 1), ("b", 2), ("a", 1), ("a", 3)] {
        format.begin_block();
        let record = raw(topic, &[14]);
        let key = SchemaKey::Subject(format!("{topic}-value").into());
        assert_eq!(format.wants(record), Some(key.clone()));
        format.learn(key, Ok(avro(id, "\"int\"")));
        assert_eq!(format.wants(record), None);
        assert!(format.open(record).unwrap().is_some());
    }
    assert_eq!(format.decoders.len(), 3);
}

#[test]
fn schemas_are_bounded() {
    let mut format = format(IdPlace::Frame);
    for id in 1..=u32::try_from(WRITER_SCHEMAS_MAX).unwrap() + 1 {
        format.learn(SchemaKey::Id(id), Ok(avro(id, "\"int\"")));
    }
    let last = u32::try_from(WRITER_SCHEMAS_MAX).unwrap() + 1;
    let bytes = [&[0][..], &last.to_be_bytes(), &[14]].concat();
    assert_eq!(
        code(&mut format, raw("t", &bytes)),
        "DECODE_SCHEMAS_TOO_MANY"
    );
}
