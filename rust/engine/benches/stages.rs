//! What each stage between a frame of Java's and a Parquet file costs: `cargo bench --workspace
//! --bench stages`.
//!
//! Prints nanoseconds of this thread's CPU time per row, which other processes disturb less than
//! the clock on the wall: the median of the samples, the least and the most. One encoded frame of 256
//! rows is decoded again and again; the rows are those of `./x bench`.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

use arrow_array::RecordBatch;
use frazil_core::convert::{ConvertOptions, TableConverter};
use frazil_core::wire::testing::{FrameBuilder, Row, Value};
use frazil_core::wire::{Frame, SourceKind, SourceSchema};
use frazil_core::{Result as Done, SinkError};
use frazil_engine::writer::{FileStore, TableWriter, TableWriterConfig};
use iceberg::spec::{NestedField, PartitionSpec, PrimitiveType, Schema, Type};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore};
use tokio::runtime::Runtime;

const FRAME_ROWS: u64 = 256;
const FRAMES: u64 = 256;
const SAMPLES: usize = 9;
/// Samples before those that count.
const WARM_UP: usize = 2;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Files in memory.
#[derive(Debug, Clone)]
struct Memory(Arc<InMemory>);

impl FileStore for Memory {
    fn store(&self, location: &str) -> Done<(Arc<dyn ObjectStore>, Path)> {
        let key = location.strip_prefix("memory://").unwrap_or(location);
        let path = Path::parse(key).map_err(|error| SinkError::internal(error.to_string()))?;
        Ok((Arc::clone(&self.0) as Arc<dyn ObjectStore>, path))
    }

    fn error(&self, location: &str, error: &StoreError) -> SinkError {
        SinkError::internal(error.to_string()).with("location", location)
    }
}

/// Returns the nanoseconds that this thread has been on a core.
fn cpu_ns() -> Outcome<u64> {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let first = line.split_whitespace().next();
    Ok(first.ok_or("an empty schedstat")?.parse()?)
}

/// Spreads the bits of a number.
fn mixed(number: u64) -> u64 {
    let z = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The record of a number: the columns of `Event.java`.
fn event(number: u64) -> [(&'static str, Value); 10] {
    const TYPES: [&str; 5] = ["page_view", "click", "add_to_cart", "purchase", "logout"];
    const COUNTRIES: [&str; 6] = ["DE", "US", "FR", "JP", "BR", "IN"];
    const DEVICES: [&str; 4] = ["ios", "android", "web", "tv"];
    let bits = mixed(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let pick = |of: &[&str], shift: u32| {
        let index = usize::try_from(bits >> shift).unwrap_or_default() % of.len();
        Value::text(of.get(index).copied().unwrap_or_default())
    };
    let whole = |value: u64| Value::Int64(i64::try_from(value).unwrap_or_default());
    let cents = u32::try_from((bits >> 13) % 100_000).unwrap_or_default();
    let session = format!("{bits:x}{:x}", bits.wrapping_mul(31));
    let url = format!("/shop/item/{}?ref=mail", (bits >> 29) % 50_000);
    [
        ("id", whole(number)),
        ("user_id", whole(bits % 1_000_000)),
        ("event_type", pick(&TYPES, 7)),
        ("ts", whole(1_767_225_600_000 + number)),
        ("amount", Value::Float64(f64::from(cents) / 100.0)),
        ("country", pick(&COUNTRIES, 17)),
        ("session", Value::String(session)),
        ("device", pick(&DEVICES, 23)),
        ("is_new", Value::Bool(bits & 1 == 0)),
        ("url", Value::String(url)),
    ]
}

fn table() -> Outcome<Arc<Schema>> {
    use PrimitiveType as T;
    let columns = [
        ("id", T::Long),
        ("user_id", T::Long),
        ("event_type", T::String),
        ("ts", T::Long),
        ("amount", T::Double),
        ("country", T::String),
        ("session", T::String),
        ("device", T::String),
        ("is_new", T::Boolean),
        ("url", T::String),
    ];
    let fields = (1..)
        .zip(columns)
        .map(|(id, (name, kind))| Arc::new(NestedField::optional(id, name, Type::Primitive(kind))));
    Ok(Arc::new(Schema::builder().with_fields(fields).build()?))
}

fn source() -> SourceSchema {
    let kinds = [
        SourceKind::Int64,
        SourceKind::Int64,
        SourceKind::String,
        SourceKind::Int64,
        SourceKind::Float64,
        SourceKind::String,
        SourceKind::String,
        SourceKind::String,
        SourceKind::Boolean,
        SourceKind::String,
    ];
    let names = event(0).map(|(name, _)| name);
    let fields = names.into_iter().zip(kinds);
    SourceSchema::structure(
        fields.map(|(name, kind)| (name, SourceSchema::scalar(kind).optional())),
    )
}

/// The frames of one kind of values.
struct Input {
    name: &'static str,
    frames: Vec<Vec<u8>>,
    schemas: BTreeMap<u32, Arc<SourceSchema>>,
}

impl Input {
    fn structs() -> Self {
        let schema = Arc::new(source());
        let value = |number| Value::Struct(event(number).into_iter().map(|(_, v)| v).collect());
        Input {
            name: "struct",
            frames: frames(
                &FrameBuilder::with_value_schema(1, Arc::clone(&schema)),
                value,
            ),
            schemas: BTreeMap::from([(1, schema)]),
        }
    }

    fn maps() -> Self {
        Input {
            name: "map",
            frames: frames(&FrameBuilder::schemaless(), |number| {
                Value::object(event(number))
            }),
            schemas: BTreeMap::new(),
        }
    }

    fn each(&self, mut take: impl FnMut(&Frame<'_>) -> Outcome<()>) -> Outcome<()> {
        let schema = |id| self.schemas.get(&id).cloned();
        let mut frames = self.frames.iter();
        frames.try_for_each(|bytes| take(&Frame::decode(bytes, &schema)?))
    }
}

fn frames(empty: &FrameBuilder, value: impl Fn(u64) -> Value) -> Vec<Vec<u8>> {
    let frame = |index: u64| {
        let numbers = index * FRAME_ROWS..(index + 1) * FRAME_ROWS;
        let row = |number| {
            let offset = i64::try_from(number).unwrap_or_default();
            Row::new("events", 0, offset).value(value(number))
        };
        empty.clone().rows(numbers.map(row)).encode()
    };
    (0..FRAMES).map(frame).collect()
}

/// Runs `stage` and prints what it costs for a row.
fn sample(name: &str, mut stage: impl FnMut() -> Outcome<()>) -> Outcome<()> {
    let mut costs = Vec::with_capacity(SAMPLES);
    for number in 0..WARM_UP + SAMPLES {
        let before = cpu_ns()?;
        stage()?;
        let spent = cpu_ns()? - before;
        if number >= WARM_UP {
            costs.push(spent / (FRAMES * FRAME_ROWS));
        }
    }
    costs.sort_unstable();
    let at = |index: usize| costs.get(index).copied().unwrap_or_default();
    let (median, least, most) = (at(SAMPLES / 2), at(0), at(SAMPLES - 1));
    println!("{name:32} {median:6} ns/row  ({least} to {most})");
    Ok(())
}

fn convert(input: &Input, schema: &Arc<Schema>) -> Outcome<Vec<RecordBatch>> {
    let mut converter = TableConverter::new(Arc::clone(schema), &ConvertOptions::default())?;
    let rows: Vec<u32> = (0..u32::try_from(FRAME_ROWS)?).collect();
    let mut batches = Vec::new();
    let mut refused = None;
    input.each(|frame| {
        converter.append(frame, &rows, &mut |_, error| refused = Some(error))?;
        if converter.is_full() {
            batches.push(converter.finish()?);
        }
        Ok(())
    })?;
    if converter.rows() > 0 {
        batches.push(converter.finish()?);
    }
    match refused {
        Some(error) => Err(error.into()),
        None => Ok(batches),
    }
}

fn write(batches: &[RecordBatch], schema: &Arc<Schema>, runtime: &Runtime) -> Outcome<u64> {
    let spec = Arc::new(PartitionSpec::unpartition_spec());
    let config = TableWriterConfig::new(Arc::clone(schema), spec, "memory://table", "bench");
    let store = Memory(Arc::new(InMemory::new()));
    let mut writer = TableWriter::new(config, store, runtime.handle().clone())?;
    for batch in batches {
        writer.write(batch.clone())?;
    }
    let sealed = writer.seal()?;
    let bytes = sealed.bytes();
    runtime.block_on(sealed.wait())?;
    Ok(bytes)
}

fn main() -> Outcome<()> {
    let runtime = Runtime::new()?;
    let schema = table()?;
    for input in [Input::structs(), Input::maps()] {
        let name = input.name;
        sample(&format!("{name}: decode frames"), || input.each(|_| Ok(())))?;
        sample(&format!("{name}: decode and convert"), || {
            convert(&input, &schema).map(drop)
        })?;
    }
    let batches = convert(&Input::structs(), &schema)?;
    sample("write Parquet", || {
        write(&batches, &schema, &runtime).map(drop)
    })?;
    let bytes = write(&batches, &schema, &runtime)?;
    let rows = FRAMES * FRAME_ROWS;
    println!("the file has {:.1} bytes a row", bytes as f64 / rows as f64);
    Ok(())
}
