//! Blocks of records, and what they change.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use iceberg::spec::{NestedField, PrimitiveType, Schema, Type};
use serde_json::Value as Json;

use crate::change::{ChangeConfig, ChangePlan, Changes, Envelope, Image, KeyPlan, OldRow, Skip};
use crate::decode::confluent::{Part, SchemaKey};
use crate::decode::registered::{IdPlace, RegisteredFormat, RegisteredKind, RegistrySchema};
use crate::decode::testing::show;
use crate::decode::{FrameDecoder, Side};
use crate::error::SinkError;
use crate::schema::names::Aliases;
use crate::wire::testing::{FrameBuilder, Row, Value};
use crate::wire::{Cell, Frame, SchemaRegistry, SourceKind, SourceSchema};

/// A record as Kafka has it.
#[derive(Debug, Clone, Default)]
pub(super) struct Sample {
    pub(super) offset: i64,
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
    pub(super) headers: Vec<(String, String)>,
}

/// Who turns the bytes into values.
#[derive(Debug, Clone, Copy)]
pub(super) enum Encoding<'t> {
    /// Java's JsonConverter without schemas.
    Java,
    /// This library: JSON without schemas.
    Json,
    /// This library: JSON with its schema in each record.
    Envelope,
    /// This library: Avro, with these schemas by their ids.
    Avro(&'t str, IdBytes),
}

/// Where the id of a schema stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdBytes {
    Header,
    Frame,
}

/// Reads one of the captured files.
pub(super) fn samples(lines: &str) -> Vec<Sample> {
    let line = |line: &str| {
        let json: Json = serde_json::from_str(line).expect("a line of JSON");
        let bytes = |name: &str| {
            let text = json
                .get(name)
                .and_then(Json::as_str)
                .map(|text| text.as_bytes().to_vec());
            let coded = json.get(format!("{name}_b64")).and_then(Json::as_str);
            text.or_else(|| coded.map(|coded| BASE64.decode(coded).expect("base64")))
        };
        let headers = json["headers"].as_array().expect("headers").iter();
        let text = |json: &Json| json.as_str().unwrap_or_default().to_owned();
        Sample {
            offset: json["offset"].as_i64().expect("an offset"),
            key: bytes("key"),
            value: bytes("value"),
            headers: headers
                .map(|pair| (text(&pair[0]), text(&pair[1])))
                .collect(),
        }
    };
    lines.lines().map(line).collect()
}

/// Makes records of JSON texts; `""` for null.
pub(super) fn records(texts: &[(&str, &str)]) -> Vec<Sample> {
    let bytes = |text: &str| (!text.is_empty()).then(|| text.as_bytes().to_vec());
    let rows = texts.iter().zip(0..);
    rows.map(|((key, value), offset)| Sample {
        offset,
        key: bytes(key),
        value: bytes(value),
        headers: Vec::new(),
    })
    .collect()
}

/// A value as Connect's JsonConverter makes it.
pub(super) fn of_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match number.as_i64() {
            Some(number) => Value::Int64(number),
            None => Value::Float64(number.as_f64().expect("a float")),
        },
        Json::String(text) => Value::text(text),
        Json::Array(items) => Value::Array(items.iter().map(of_json).collect()),
        Json::Object(fields) => Value::object(
            fields
                .iter()
                .map(|(name, value)| (name.as_str(), of_json(value))),
        ),
    }
}

fn of_text(bytes: Option<&Vec<u8>>) -> Value {
    bytes.map_or(Value::Null, |bytes| {
        of_json(&serde_json::from_slice(bytes).expect("JSON"))
    })
}

fn with_headers(mut row: Row, sample: &Sample, with_ids: bool) -> Row {
    for (name, text) in &sample.headers {
        let value = match name.strip_prefix("apicurio.") {
            Some(_) if with_ids => Value::Bytes(id_bytes(text)),
            Some(_) => continue,
            None => serde_json::from_str(text).map_or(Value::text(text), |json| of_json(&json)),
        };
        row = row.header(name, value);
    }
    row
}

/// The bytes of an id, which the captured files show as characters of Latin-1.
fn id_bytes(text: &str) -> Vec<u8> {
    match text.chars().all(|character| u32::from(character) < 256) {
        true => text
            .chars()
            .map(|character| u8::try_from(u32::from(character)).unwrap())
            .collect(),
        false => text.as_bytes().to_vec(),
    }
}

/// Hands out the records as blocks.
pub(super) fn each_frame(
    samples: &[Sample],
    encoding: Encoding<'_>,
    mut each: impl FnMut(&Frame<'_>),
) {
    let row = |sample: &Sample| Row::new("t", 0, sample.offset);
    if let Encoding::Java = encoding {
        let rows = samples.iter().map(|sample| {
            let keyed = row(sample).key(of_text(sample.key.as_ref()));
            with_headers(keyed.value(of_text(sample.value.as_ref())), sample, false)
        });
        let built = FrameBuilder::schemaless().with_headers().rows(rows);
        let bytes = built.encode();
        each(&Frame::decode(&bytes, &built.schemas()).expect("a frame"));
        return;
    }
    let optional = SourceSchema::scalar(SourceKind::Bytes).optional();
    let bytes_of =
        |bytes: Option<&Vec<u8>>| bytes.map_or(Value::Null, |bytes| Value::Bytes(bytes.clone()));
    let with_ids = matches!(encoding, Encoding::Avro(_, IdBytes::Header));
    let rows = samples.iter().map(|sample| {
        let keyed = row(sample).key(bytes_of(sample.key.as_ref()));
        with_headers(
            keyed.value(bytes_of(sample.value.as_ref())),
            sample,
            with_ids,
        )
    });
    let built = FrameBuilder::with_value_schema(1, optional.clone())
        .key_schema(2, optional)
        .with_headers()
        .rows(rows);
    let bytes = built.encode();
    let frame = Frame::decode(&bytes, &built.schemas()).expect("a frame");
    let mut decoder = decoder(encoding);
    let mut schemas = SchemaRegistry::default();
    let mut first = 0;
    while first < frame.rows() {
        first = decoder
            .decode(&frame, first, &|_| true, &mut schemas)
            .expect("decoded");
        assert!(decoder.take_refused().is_empty());
        each(&decoder.part(&frame, &schemas).expect("a part"));
    }
}

fn decoder(encoding: Encoding<'_>) -> FrameDecoder {
    match encoding {
        Encoding::Java | Encoding::Json => {
            FrameDecoder::new(Some(Side::json_values(true)), Some(Side::json_keys()))
        }
        Encoding::Envelope => FrameDecoder::new(
            Some(Side::envelope_values(true)),
            Some(Side::envelope_keys()),
        ),
        Encoding::Avro(schemas, place) => {
            let format = |part| {
                let place = match place {
                    IdBytes::Header => IdPlace::HeaderOrFrame,
                    IdBytes::Frame => IdPlace::Frame,
                };
                let mut format = RegisteredFormat::new(RegisteredKind::Avro, part, place);
                let known: BTreeMap<String, String> = serde_json::from_str(schemas).expect("ids");
                for (id, text) in known {
                    let number: u32 = id.parse().expect("an id");
                    for key in [
                        SchemaKey::Id(number),
                        SchemaKey::GlobalId(i64::from(number)),
                    ] {
                        let schema = RegistrySchema {
                            id: key.clone(),
                            kind: Some("AVRO".to_owned()),
                            text: text.clone(),
                            references: Vec::new(),
                        };
                        crate::decode::Format::learn(&mut format, key, Ok(schema));
                    }
                }
                Box::new(format)
            };
            FrameDecoder::new(
                Some(Side::values(format(Part::Value), true)),
                Some(Side::keys(format(Part::Key))),
            )
        }
    }
}

/// What one record came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    Change(Shown),
    Skipped(i64, Skip),
    Refused(i64, &'static str),
}

/// A change, to compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) offset: i64,
    pub(super) op: &'static str,
    pub(super) key: Vec<u8>,
    pub(super) old_key: Option<Vec<u8>>,
    pub(super) old_order: Option<Vec<u8>>,
    pub(super) order: Option<Vec<u8>>,
    pub(super) image: Image,
    pub(super) old_row: OldRow,
    pub(super) awaits_new_key: bool,
    pub(super) unavailable: Vec<String>,
    /// The row of the image, each value as text.
    pub(super) fields: BTreeMap<String, String>,
}

impl Seen {
    /// The change as a line: offset, operation, key, where from, and what is left out.
    pub(super) fn line(&self) -> String {
        let shown = match self {
            Seen::Skipped(offset, skip) => return format!("{offset} skip {}", skip.label()),
            Seen::Refused(offset, code) => return format!("{offset} refuse {code}"),
            Seen::Change(shown) => shown,
        };
        let mut line = format!("{} {} {}", shown.offset, shown.op, numbers(&shown.key));
        if let Some(old) = &shown.old_key {
            line.push_str(&format!(" from {}", numbers(old)));
        }
        if !shown.unavailable.is_empty() {
            line.push_str(&format!(" without {}", shown.unavailable.join(",")));
        }
        line
    }
}

/// The numbers of a key of two.
pub(super) fn numbers(key: &[u8]) -> String {
    let number = |bytes: &[u8]| {
        let is_negative = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
        let start = if is_negative { -1 } else { 0 };
        bytes
            .iter()
            .fold(start, |number: i64, byte| number << 8 | i64::from(*byte))
    };
    match key.split_first() {
        None => "-".to_owned(),
        Some((length, rest)) => {
            let (first, second) = rest.split_at(usize::from(*length));
            format!("{}/{}", number(first), number(second))
        }
    }
}

/// A table, the first of whose columns are its key.
#[derive(Debug, Clone)]
pub(super) struct Table {
    schema: Schema,
    key: KeyPlan,
    aliases: Aliases,
}

impl Table {
    /// With this name mapping.
    pub(super) fn mapped(self, mapping: &str) -> Table {
        let mapping = mapping.to_owned();
        let aliases = Aliases::of(|_| Some(&mapping)).expect("a name mapping");
        Table { aliases, ..self }
    }
}

/// The table `shop.orders`.
pub(super) fn orders_key() -> Table {
    key(&[
        ("tenant_id", PrimitiveType::Int),
        ("order_no", PrimitiveType::Long),
    ])
}

/// A table with a key of these columns, and no others.
pub(super) fn key(columns: &[(&str, PrimitiveType)]) -> Table {
    table(columns, columns.len())
}

/// A table of these columns, of which so many are the key.
pub(super) fn table(columns: &[(&str, PrimitiveType)], key_columns: usize) -> Table {
    let fields = columns.iter().zip(1..).map(|((name, primitive), id)| {
        NestedField::required(id, *name, Type::Primitive(primitive.clone())).into()
    });
    let schema = Schema::builder().with_fields(fields).build().unwrap();
    let ids = 1..=i32::try_from(key_columns).unwrap();
    let key = KeyPlan::of(&schema, ids).unwrap().expect("columns");
    Table {
        schema,
        key,
        aliases: Aliases::default(),
    }
}

/// A plan with the defaults of a preset.
pub(super) fn plan(preset: &str, table: Table) -> ChangePlan {
    planned(ChangeConfig::new(Envelope::preset(preset).unwrap()), table)
}

pub(super) fn planned(config: ChangeConfig, table: Table) -> ChangePlan {
    ChangePlan::new(config, &table.schema, Some(table.key), &table.aliases).unwrap()
}

/// The error of a plan of a table without a key.
pub(super) fn unplanned(config: ChangeConfig) -> SinkError {
    let table = orders_key();
    ChangePlan::new(config, &table.schema, None, &table.aliases).unwrap_err()
}

/// The error of a plan of this table.
pub(super) fn unplanned_of(config: ChangeConfig, table: Table) -> SinkError {
    ChangePlan::new(config, &table.schema, Some(table.key), &table.aliases).unwrap_err()
}

/// Evaluates records, and takes the rows out of their envelopes.
pub(super) fn run(plan: &mut ChangePlan, samples: &[Sample], encoding: Encoding<'_>) -> Vec<Seen> {
    let mut seen = Vec::new();
    let mut changes = Changes::default();
    each_frame(samples, encoding, |frame| {
        let rows: Vec<u32> = (0..u32::try_from(frame.rows()).unwrap()).collect();
        plan.evaluate(frame, &rows, &mut changes).unwrap();
        seen.extend(seen_in(plan, frame, &mut changes));
    });
    seen.sort_by_key(|seen| match seen {
        Seen::Change(shown) => shown.offset,
        Seen::Skipped(offset, _) | Seen::Refused(offset, _) => *offset,
    });
    seen
}

fn seen_in(plan: &mut ChangePlan, frame: &Frame<'_>, changes: &mut Changes) -> Vec<Seen> {
    let offset = |row: u32| {
        frame
            .source(row as usize)
            .map(|(_, offset)| offset)
            .unwrap()
    };
    let refused = changes.take_refused();
    let mut seen: Vec<Seen> = refused
        .into_iter()
        .map(|(row, error)| {
            assert_eq!(error.kind(), crate::ErrorKind::Data);
            Seen::Refused(offset(row), error.code())
        })
        .collect();
    let skipped = changes.skipped().iter();
    seen.extend(skipped.map(|(row, skip)| Seen::Skipped(offset(*row), *skip)));
    let mut rows: BTreeMap<u32, BTreeMap<String, String>> = BTreeMap::new();
    for image in [Image::After, Image::Deleted, Image::Key] {
        let of_image = || {
            changes
                .changes()
                .iter()
                .filter(|change| change.image == image)
        };
        if of_image().next().is_none() {
            continue;
        }
        let images = changes.image(plan, frame, image).unwrap();
        let framed = images.frame(frame).unwrap();
        for change in of_image() {
            rows.insert(change.row, fields(framed.value(change.row as usize)));
        }
    }
    seen.extend(changes.changes().iter().map(|change| {
        Seen::Change(Shown {
            offset: offset(change.row),
            op: change.op.letter(),
            key: changes.key(change).to_vec(),
            old_key: changes.old_key(change).map(<[u8]>::to_vec),
            old_order: changes
                .old_order(change)
                .map(|order| order.bytes().to_vec()),
            order: changes.order(change).map(|order| order.bytes().to_vec()),
            image: change.image,
            old_row: change.old_row,
            awaits_new_key: change.awaits_new_key,
            unavailable: changes.unavailable(change).map(str::to_owned).collect(),
            fields: rows.remove(&change.row).unwrap_or_default(),
        })
    }));
    seen
}

fn fields(cell: Cell<'_>) -> BTreeMap<String, String> {
    match cell {
        Cell::Struct(record) => {
            let fields = record.fields().iter().enumerate();
            let field = |(index, field): (usize, &crate::wire::SourceField)| {
                (field.name.clone(), show(record.field(index)))
            };
            fields.map(field).collect()
        }
        Cell::Map(map) => {
            let entry = |entry: crate::wire::MapEntry<'_>| match entry.key {
                Cell::String(name) => (name.to_owned(), show(entry.value)),
                other => (show(other), show(entry.value)),
            };
            map.entries().map(entry).collect()
        }
        other => [("value".to_owned(), show(other))].into(),
    }
}

/// The lines of what records come to.
pub(super) fn lines(seen: &[Seen]) -> Vec<String> {
    seen.iter().map(Seen::line).collect()
}
