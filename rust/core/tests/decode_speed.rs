//! How long decoding takes, per record and beside a general parser: see `docs/benchmarks.md`.
//!
//! ```text
//! cargo test --release --workspace --test decode_speed -- --ignored --nocapture
//! ```

#![expect(clippy::disallowed_methods, reason = "it measures time")]
#![expect(
    clippy::cast_possible_truncation,
    reason = "what is cut is what is not wanted"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use frazil_core::convert::{ConvertOptions, TableConverter};
use frazil_core::decode::confluent::{Part, SchemaKey};
use frazil_core::decode::registered::{IdPlace, RegisteredFormat, RegisteredKind, RegistrySchema};
use frazil_core::decode::{Format as _, FrameDecoder, Side};
use frazil_core::limits::{BATCH_ROWS, BLOCK_ROWS_MAX};
use frazil_core::wire::testing::{FrameBuilder, Row, Value};
use frazil_core::wire::{Frame, SchemaRegistry, SourceKind, SourceSchema};
use iceberg::spec::{NestedField, PrimitiveType, Schema, Type};

const PASSES: usize = 400;

/// Records as the benchmark of whole workers has them: 10 fields, about 213 bytes as JSON.
struct Record {
    id: i64,
    uid: String,
    ts: i64,
    country: &'static str,
    cents: u64,
    qty: i64,
    active: bool,
    score: u64,
    status: &'static str,
    note: String,
}

impl Record {
    fn of(index: u64) -> Record {
        let spread = index.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let number = |value: u64| i64::try_from(value).expect("a small number");
        Record {
            id: number(1_000_000 + index),
            uid: format!(
                "{:08x}-{:04x}-4b1d-8f3a-{:012x}",
                spread >> 32,
                spread & 0xFFFF,
                spread >> 16
            ),
            ts: number(1_700_000_000_000 + index),
            country: ["DE", "FR", "IT", "PL"][(spread >> 60) as usize % 4],
            cents: spread % 100_000 * 100 + spread % 100,
            qty: number(spread % 50),
            active: spread.is_multiple_of(2),
            score: spread % 10_000,
            status: ["shipped", "open", "returned"][(spread >> 50) as usize % 3],
            note: format!("order {} left at the door", spread % 1_000_000),
        }
    }

    fn json(&self) -> Vec<u8> {
        let (whole, cents) = (self.cents / 100, self.cents % 100);
        format!(
            "{{\"id\":{},\"uid\":\"{}\",\"ts\":{},\"country\":\"{}\",\"amount\":{whole}.{cents:02},\
             \"qty\":{},\"active\":{},\"score\":0.{:04},\"status\":\"{}\",\"note\":\"{}\"}}",
            self.id,
            self.uid,
            self.ts,
            self.country,
            self.qty,
            self.active,
            self.score,
            self.status,
            self.note,
        )
        .into_bytes()
    }

    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn doubles(&self) -> (f64, f64) {
        (self.cents as f64 / 100.0, self.score as f64 / 10_000.0)
    }

    /// As a record of optional fields, behind Confluent's frame.
    fn avro(&self) -> Vec<u8> {
        fn long(out: &mut Vec<u8>, value: i64) {
            varint(out, ((value << 1) ^ (value >> 63)).cast_unsigned());
        }
        fn text(out: &mut Vec<u8>, value: &str) {
            long(out, i64::try_from(value.len()).expect("a short text"));
            out.extend_from_slice(value.as_bytes());
        }
        let mut out = vec![0, 0, 0, 0, 1];
        let (amount, score) = self.doubles();
        // Each field is the second of its union.
        let mut field = |write: &dyn Fn(&mut Vec<u8>)| {
            out.push(2);
            write(&mut out);
        };
        field(&|out| long(out, self.id));
        field(&|out| text(out, &self.uid));
        field(&|out| long(out, self.ts));
        field(&|out| text(out, self.country));
        field(&|out| out.extend_from_slice(&amount.to_le_bytes()));
        field(&|out| long(out, self.qty));
        field(&|out| out.push(u8::from(self.active)));
        field(&|out| out.extend_from_slice(&score.to_le_bytes()));
        field(&|out| text(out, self.status));
        field(&|out| text(out, &self.note));
        out
    }

    /// As a message, behind Confluent's frame.
    fn protobuf(&self) -> Vec<u8> {
        fn number(out: &mut Vec<u8>, field: u64, value: i64) {
            varint(out, field << 3);
            varint(out, value.cast_unsigned());
        }
        fn text(out: &mut Vec<u8>, field: u64, value: &str) {
            varint(out, field << 3 | 2);
            varint(out, value.len() as u64);
            out.extend_from_slice(value.as_bytes());
        }
        fn double(out: &mut Vec<u8>, field: u64, value: f64) {
            varint(out, field << 3 | 1);
            out.extend_from_slice(&value.to_le_bytes());
        }
        let mut out = vec![0, 0, 0, 0, 1, 0];
        let (amount, score) = self.doubles();
        number(&mut out, 1, self.id);
        text(&mut out, 2, &self.uid);
        number(&mut out, 3, self.ts);
        text(&mut out, 4, self.country);
        double(&mut out, 5, amount);
        number(&mut out, 6, self.qty);
        number(&mut out, 7, i64::from(self.active));
        double(&mut out, 8, score);
        text(&mut out, 9, self.status);
        text(&mut out, 10, &self.note);
        out
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7F {
        out.push((value & 0x7F) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Each field with its types in Connect, Avro and Protobuf.
const FIELDS: [(&str, &str, &str, &str); 10] = [
    ("id", "int64", "long", "int64"),
    ("uid", "string", "string", "string"),
    ("ts", "int64", "long", "int64"),
    ("country", "string", "string", "string"),
    ("amount", "double", "double", "double"),
    ("qty", "int64", "long", "int64"),
    ("active", "boolean", "boolean", "bool"),
    ("score", "double", "double", "double"),
    ("status", "string", "string", "string"),
    ("note", "string", "string", "string"),
];

fn table(amount: PrimitiveType) -> Arc<Schema> {
    let fields = [
        ("id", PrimitiveType::Long),
        ("uid", PrimitiveType::String),
        ("ts", PrimitiveType::Long),
        ("country", PrimitiveType::String),
        ("amount", amount),
        ("qty", PrimitiveType::Long),
        ("active", PrimitiveType::Boolean),
        ("score", PrimitiveType::Double),
        ("status", PrimitiveType::String),
        ("note", PrimitiveType::String),
    ];
    let field = |(id, (name, of))| Arc::new(NestedField::optional(id, name, Type::Primitive(of)));
    let fields = (1..).zip(fields).map(field).collect::<Vec<_>>();
    Arc::new(
        Schema::builder()
            .with_fields(fields)
            .build()
            .expect("a schema"),
    )
}

fn frame_of(texts: &[Vec<u8>]) -> FrameBuilder {
    let bytes = SourceSchema::scalar(SourceKind::Bytes).optional();
    let rows = texts.iter().zip(0..);
    FrameBuilder::with_value_schema(1, bytes)
        .rows(rows.map(|(text, offset)| Row::new("t", 0, offset).value(Value::Bytes(text.clone()))))
}

/// Prints the shortest of some passes, in microseconds per record.
fn measure(what: &str, mut pass: impl FnMut()) {
    let mut best = f64::INFINITY;
    for _ in 0..PASSES {
        let started = Instant::now();
        pass();
        best = best.min(started.elapsed().as_secs_f64());
    }
    println!(
        "{what:42} {:.3} us/record",
        best * 1e6 / BLOCK_ROWS_MAX as f64
    );
}

fn decode(
    decoder: &mut FrameDecoder,
    frame: &Frame<'_>,
    schemas: &mut SchemaRegistry,
    mut see: impl FnMut(&Frame<'_>),
) {
    let mut first = 0;
    while first < frame.rows() {
        first = decoder
            .decode(frame, first, &|_| true, schemas)
            .expect("decoded");
        assert!(decoder.take_refused().is_empty());
        see(&decoder.part(frame, schemas).expect("a part"));
    }
}

fn measure_format(name: &str, side: &dyn Fn() -> Side, texts: &[Vec<u8>]) {
    let built = frame_of(texts);
    let encoded = built.encode();
    let frame = Frame::decode(&encoded, &built.schemas()).expect("a frame");
    let mut schemas = SchemaRegistry::default();
    let mut decoder = FrameDecoder::new(Some(side()), None);
    measure(&format!("{name}: to columns"), || {
        decode(&mut decoder, &frame, &mut schemas, |part| {
            black_box(part);
        });
    });
    let decimal = PrimitiveType::Decimal {
        precision: 12,
        scale: 2,
    };
    for (amount, of) in [("double", PrimitiveType::Double), ("decimal", decimal)] {
        let options = ConvertOptions::default();
        let mut converter = TableConverter::new(table(of), &options).expect("a converter");
        let rows: Vec<u32> = (0..).take(frame.rows()).collect();
        measure(&format!("{name}: to Arrow, amount {amount}"), || {
            decode(&mut decoder, &frame, &mut schemas, |part| {
                let mut refuse = |_, error| panic!("{error}");
                converter
                    .append(part, &rows, &mut refuse)
                    .expect("appended");
            });
            if converter.rows() + BLOCK_ROWS_MAX > BATCH_ROWS {
                black_box(converter.finish().expect("a batch"));
            }
        });
    }
}

/// A side whose registry has one schema.
fn registered(kind: RegisteredKind, text: &str) -> Side {
    let mut format = RegisteredFormat::new(kind, Part::Value, IdPlace::Frame);
    let schema = RegistrySchema {
        id: SchemaKey::Id(1),
        kind: Some(kind.name().to_owned()),
        text: text.to_owned(),
        references: Vec::new(),
    };
    format.learn(SchemaKey::Id(1), Ok(schema));
    Side::values(Box::new(format), true)
}

/// Prints what a general reader takes that makes values of the same bytes.
fn measure_general(what: &str, texts: &[Vec<u8>], mut read: impl FnMut(&[u8])) {
    measure(what, || texts.iter().for_each(|text| read(text)));
    let bytes: usize = texts.iter().map(Vec::len).sum();
    println!("{:42} {} bytes a record", "", bytes / texts.len());
}

#[test]
#[ignore = "it measures; run it with --release"]
fn how_long_decoding_takes() {
    let records: Vec<Record> = (0..).take(BLOCK_ROWS_MAX).map(Record::of).collect();
    let all = |of: fn(&Record) -> Vec<u8>| records.iter().map(of).collect::<Vec<_>>();
    let value = |text: &[u8]| {
        black_box(serde_json::from_slice::<serde_json::Value>(text).expect("JSON"));
    };
    let texts = all(Record::json);
    measure_general("serde_json::Value", &texts, value);
    measure_format("json", &|| Side::json_values(true), &texts);

    let field = |(name, of, ..): (&str, &str, &str, &str)| {
        format!("{{\"type\":\"{of}\",\"optional\":true,\"field\":\"{name}\"}}")
    };
    let fields = FIELDS.map(field).join(",");
    let schema = format!("{{\"type\":\"struct\",\"fields\":[{fields}],\"optional\":false}}");
    let envelope = |text: &Vec<u8>| {
        let front = format!("{{\"schema\":{schema},\"payload\":");
        [front.as_bytes(), text, b"}"].concat()
    };
    let envelopes: Vec<Vec<u8>> = texts.iter().map(envelope).collect();
    measure_general("serde_json::Value of an envelope", &envelopes, value);
    measure_format("json-envelope", &|| Side::envelope_values(true), &envelopes);

    let field = |(name, _, of, _): (&str, &str, &str, &str)| {
        format!("{{\"name\":\"{name}\",\"type\":[\"null\",\"{of}\"]}}")
    };
    let fields = FIELDS.map(field).join(",");
    let schema = format!("{{\"type\":\"record\",\"name\":\"R\",\"fields\":[{fields}]}}");
    let texts = all(Record::avro);
    let avro = apache_avro::Schema::parse_str(&schema).expect("a schema");
    measure_general("apache_avro::from_avro_datum", &texts, |text| {
        let mut body = &text[5..];
        black_box(apache_avro::from_avro_datum(&avro, &mut body, None).expect("Avro"));
    });
    measure_format(
        "avro",
        &|| registered(RegisteredKind::Avro, &schema),
        &texts,
    );

    let fields = FIELDS.into_iter().zip(1..);
    let fields: String = fields
        .map(|((name, .., of), number)| format!("optional {of} {name} = {number};"))
        .collect();
    let schema = format!("syntax = \"proto3\"; message R {{ {fields} }}");
    let side = || registered(RegisteredKind::Protobuf, &schema);
    let texts = all(Record::protobuf);
    measure_format("protobuf", &side, &texts);
}
