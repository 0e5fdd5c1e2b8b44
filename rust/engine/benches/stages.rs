//! What each stage between a frame of Java's and a Parquet file costs: `cargo bench --workspace
//! --bench stages`, or some of them: `cargo bench --workspace --bench stages -- url`.
//!
//! Prints nanoseconds of this thread's CPU time per row, which other processes disturb less than
//! the clock on the wall: the median of the rounds, the least and the most. Each round runs every
//! stage once, so that a ratio of two rows is one of the same minutes. One encoded frame of 256 rows
//! is decoded again and again; the rows are those of `./x bench`.

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
const ROUNDS: usize = 9;
/// Rounds before those that count.
const WARM_UP: usize = 2;
const COLUMN: &str = "frazil.parquet.encoding.column.";

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
            frames: frames(&FrameBuilder::schemaless().in_columns(), |number| {
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

/// What a stage does; it returns the bytes that it made, if it makes a file.
type Run<'a> = Box<dyn FnMut() -> Outcome<Option<u64>> + 'a>;

/// One line of the result.
struct Stage<'a> {
    name: String,
    run: Run<'a>,
    costs: Vec<u64>,
    bytes: Option<u64>,
}

impl Stage<'_> {
    fn once(&mut self, counts: bool) -> Outcome<()> {
        let before = cpu_ns()?;
        self.bytes = (self.run)()?;
        let spent = cpu_ns()? - before;
        if counts {
            self.costs.push(spent / (FRAMES * FRAME_ROWS));
        }
        Ok(())
    }

    fn print(&mut self) {
        self.costs.sort_unstable();
        let at = |index: usize| self.costs.get(index).copied().unwrap_or_default();
        let (median, least, most) = (at(ROUNDS / 2), at(0), at(ROUNDS - 1));
        let bytes = self
            .bytes
            .map(|bytes| bytes as f64 / (FRAMES * FRAME_ROWS) as f64);
        let bytes = bytes.map_or_else(String::new, |bytes| format!("  {bytes:6.2} bytes/row"));
        let name = &self.name;
        println!("{name:40} {median:6} ns/row  ({least} to {most}){bytes}");
    }
}

/// The stages that are wanted.
struct Stages<'a> {
    wanted: Option<String>,
    stages: Vec<Stage<'a>>,
}

impl<'a> Stages<'a> {
    fn add(&mut self, name: &str, run: impl FnMut() -> Outcome<Option<u64>> + 'a) {
        if self
            .wanted
            .as_ref()
            .is_none_or(|wanted| name.contains(wanted.as_str()))
        {
            self.stages.push(Stage {
                name: name.to_string(),
                run: Box::new(run),
                costs: Vec::new(),
                bytes: None,
            });
        }
    }

    fn run(&mut self) -> Outcome<()> {
        for round in 0..WARM_UP + ROUNDS {
            for stage in &mut self.stages {
                stage.once(round >= WARM_UP)?;
            }
        }
        self.stages.iter_mut().for_each(Stage::print);
        Ok(())
    }
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

/// Writes the rows into a table with these properties, and returns the bytes of its files.
fn write(
    batches: &[RecordBatch],
    schema: &Arc<Schema>,
    properties: &[(String, &str)],
    runtime: &Runtime,
) -> Outcome<u64> {
    let spec = Arc::new(PartitionSpec::unpartition_spec());
    let mut config = TableWriterConfig::new(Arc::clone(schema), spec, "memory://table", "bench");
    let properties = properties.iter();
    config.properties = properties
        .map(|(key, value)| (key.clone(), (*value).to_string()))
        .collect();
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

/// The properties of the tables that the rows are written to: all columns as they are chosen, and
/// one column in every encoding.
fn tables() -> Vec<(String, Vec<(String, &'static str)>)> {
    let encodings = "frazil.parquet.encodings".to_string();
    let names = event(0).map(|(name, _)| name);
    let dictionaries = names.iter().filter(|name| **name != "is_new");
    let dictionaries = dictionaries.map(|name| (format!("{COLUMN}{name}"), "dictionary"));
    let mut tables = vec![
        ("auto".to_string(), vec![(encodings.clone(), "auto")]),
        (
            "plain-dictionary".to_string(),
            vec![(encodings, "plain-dictionary")],
        ),
        ("dictionaries only".to_string(), dictionaries.collect()),
    ];
    let texts = [
        "dictionary",
        "plain",
        "delta_length_byte_array",
        "delta_byte_array",
    ];
    let numbers = ["dictionary", "plain", "delta_binary_packed"];
    let broken = ["dictionary", "plain", "byte_stream_split"];
    let columns: [(&str, &[&'static str]); 4] = [
        ("url", &texts),
        ("session", &texts),
        ("user_id", &numbers),
        ("amount", &broken),
    ];
    for (column, encodings) in columns {
        for encoding in encodings {
            let key = format!("{COLUMN}{column}");
            tables.push((format!("{column} {encoding}"), vec![(key, *encoding)]));
        }
    }
    tables
}

fn main() -> Outcome<()> {
    let runtime = Runtime::new()?;
    let schema = table()?;
    let inputs = [Input::structs(), Input::maps()];
    let batches = convert(&Input::structs(), &schema)?;
    let wanted = std::env::args()
        .skip(1)
        .find(|word| !word.starts_with("--"));
    let mut stages = Stages {
        wanted,
        stages: Vec::new(),
    };
    for input in &inputs {
        let (name, schema) = (input.name, &schema);
        stages.add(&format!("{name}: decode frames"), move || {
            input.each(|_| Ok(()))?;
            Ok(None)
        });
        stages.add(&format!("{name}: decode and convert"), move || {
            convert(input, schema)?;
            Ok(None)
        });
    }
    for (name, properties) in tables() {
        let (batches, schema, runtime) = (&batches, &schema, &runtime);
        stages.add(&format!("write Parquet: {name}"), move || {
            write(batches, schema, &properties, runtime).map(Some)
        });
    }
    stages.run()
}
