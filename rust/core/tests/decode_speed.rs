//! How long decoding takes, per record and beside a general parser: see `docs/benchmarks.md`.
//!
//! ```text
//! cargo test --release -p frazil-core --test decode_speed -- --ignored --nocapture
//! ```

#![expect(clippy::disallowed_methods, reason = "it measures time")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use frazil_core::convert::{ConvertOptions, TableConverter};
use frazil_core::decode::{FrameDecoder, Side};
use frazil_core::limits::{BATCH_ROWS, BLOCK_ROWS_MAX};
use frazil_core::wire::testing::{FrameBuilder, Row, Value};
use frazil_core::wire::{Frame, SchemaRegistry, SourceKind, SourceSchema};
use iceberg::spec::{NestedField, PrimitiveType, Schema, Type};

const PASSES: usize = 400;

/// Records as the benchmark of whole workers has them: 10 fields, about 213 bytes.
fn record(index: u64) -> String {
    let spread = index.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    format!(
        "{{\"id\":{},\"uid\":\"{:08x}-{:04x}-4b1d-8f3a-{:012x}\",\"ts\":{},\"country\":\"{}\",\
         \"amount\":{}.{:02},\"qty\":{},\"active\":{},\"score\":0.{:04},\"status\":\"{}\",\
         \"note\":\"order {} left at the door\"}}",
        1_000_000 + index,
        spread >> 32,
        spread & 0xFFFF,
        spread >> 16,
        1_700_000_000_000 + index,
        ["DE", "FR", "IT", "PL"][(spread >> 60) as usize % 4],
        spread % 100_000,
        spread % 100,
        spread % 50,
        spread.is_multiple_of(2),
        spread % 10_000,
        ["shipped", "open", "returned"][(spread >> 50) as usize % 3],
        spread % 1_000_000,
    )
}

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

fn frame_of(texts: &[String]) -> FrameBuilder {
    let bytes = SourceSchema::scalar(SourceKind::Bytes).optional();
    let rows = texts.iter().zip(0..);
    FrameBuilder::with_value_schema(1, bytes).rows(rows.map(|(text, offset)| {
        Row::new("t", 0, offset).value(Value::Bytes(text.as_bytes().to_vec()))
    }))
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

fn measure_format(name: &str, side: fn() -> Side, texts: &[String]) {
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

#[test]
#[ignore = "it measures; run it with --release"]
fn how_long_decoding_takes() {
    let texts: Vec<String> = (0..).take(BLOCK_ROWS_MAX).map(record).collect();
    let bytes: usize = texts.iter().map(String::len).sum();
    println!("{} bytes a record", bytes / texts.len());
    measure("serde_json::Value", || {
        for text in &texts {
            black_box(serde_json::from_str::<serde_json::Value>(text).expect("JSON"));
        }
    });
    measure_format("json", || Side::json_values(true), &texts);
    let field =
        |(name, of)| format!("{{\"type\":\"{of}\",\"optional\":true,\"field\":\"{name}\"}}");
    let fields = [
        ("id", "int64"),
        ("uid", "string"),
        ("ts", "int64"),
        ("country", "string"),
        ("amount", "double"),
        ("qty", "int64"),
        ("active", "boolean"),
        ("score", "double"),
        ("status", "string"),
        ("note", "string"),
    ];
    let fields = fields.map(field).join(",");
    let schema = format!("{{\"type\":\"struct\",\"fields\":[{fields}],\"optional\":false}}");
    let envelopes: Vec<String> = texts
        .iter()
        .map(|text| format!("{{\"schema\":{schema},\"payload\":{text}}}"))
        .collect();
    let bytes: usize = envelopes.iter().map(String::len).sum();
    println!("{} bytes an envelope", bytes / envelopes.len());
    measure("serde_json::Value", || {
        for text in &envelopes {
            black_box(serde_json::from_str::<serde_json::Value>(text).expect("JSON"));
        }
    });
    measure_format("json-envelope", || Side::envelope_values(true), &envelopes);
}
