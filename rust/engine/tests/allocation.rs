//! Whether what a task says that it holds is what it holds: every byte that this process allocates is
//! counted, and compared with the pool.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use frazil_core::memory::{Limit, LimitKind};
use frazil_core::offsets::TopicPartition;
use frazil_core::wire::testing::{FrameBuilder, Row, Value, encode_request};
use frazil_core::wire::{Request, SourceKind, SourceSchema};
use frazil_engine::Session;
use frazil_engine::memory::Memory;
use tempfile::TempDir;

/// The bytes of a number packer of the Parquet encoders: it reserves them at once, and only those that
/// it has written to are memory.
const PACKER_BYTES: usize = 1 << 20;

/// Passes everything on to the system's allocator, and remembers where packers are.
struct Watching;

static PACKERS: [AtomicUsize; 8_192] = [const { AtomicUsize::new(0) }; 8_192];
static RESERVED: AtomicUsize = AtomicUsize::new(0);

/// Puts `new` into the first place that has `old`.
fn replace(old: usize, new: usize) -> bool {
    let swap = |place: &AtomicUsize| {
        place.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed)
    };
    PACKERS.iter().any(|place| swap(place).is_ok())
}

// SAFETY: everything is the system's allocator; what is noted touches nothing of it.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise about `layout` is passed on.
        let pointer = unsafe { System.alloc(layout) };
        if layout.size() == PACKER_BYTES && replace(0, pointer.addr()) {
            RESERVED.fetch_add(PACKER_BYTES, Ordering::Relaxed);
        }
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if layout.size() == PACKER_BYTES && replace(pointer.addr(), 0) {
            RESERVED.fetch_sub(PACKER_BYTES, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise about `pointer` and `layout` is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.size() == PACKER_BYTES && replace(pointer.addr(), 0) {
            RESERVED.fetch_sub(PACKER_BYTES, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise about all three is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static WATCHING: Watching = Watching;

/// What glibc says of its heaps; that of C, such as zstd's contexts, counts too.
#[repr(C)]
struct Heaps {
    before: [usize; 4],
    mapped: usize,
    between: [usize; 2],
    used: usize,
    after: [usize; 2],
}

unsafe extern "C" {
    fn mallinfo2() -> Heaps;
}

/// Returns the bytes that are allocated, without what packers reserve.
fn allocated() -> usize {
    // SAFETY: glibc has had this function and layout since 2.33, and it takes no arguments.
    let heaps = unsafe { mallinfo2() };
    (heaps.mapped + heaps.used).saturating_sub(RESERVED.load(Ordering::Relaxed))
}

const MIB: usize = 1 << 20;
const TOPIC: &str = "orders";
/// Each kind has to grow by as much, or it says nothing.
const GROWTH_MIN: usize = 6 * MIB;
const SLACK: usize = 2 * MIB;

/// Records of one kind.
struct Kind {
    name: &'static str,
    schema: SourceSchema,
    value: fn(u64) -> Value,
    partition_by: Option<&'static str>,
    rows_of_a_frame: u64,
    frames: u64,
}

fn mixed(number: u64) -> u64 {
    let z = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn long(number: u64) -> Value {
    Value::Int64(i64::try_from(number >> 1).unwrap())
}

/// A text of `length` that does not compress.
fn noise(seed: u64, length: usize) -> Value {
    let letter = |at: usize| char::from(b'!' + (mixed(seed + at as u64) % 90) as u8);
    Value::text(&(0..length).map(letter).collect::<String>())
}

fn field(kind: SourceKind) -> SourceSchema {
    SourceSchema::scalar(kind).optional()
}

fn wide() -> Kind {
    const NAMES: usize = 200;
    let names: Vec<String> = (0..NAMES).map(|at| format!("column_{at:03}")).collect();
    let fields = names.iter().enumerate().map(|(at, name)| {
        let kind = match at % 4 {
            0 => SourceKind::Int64,
            1 => SourceKind::String,
            2 => SourceKind::Float64,
            _ => SourceKind::Int32,
        };
        (name.as_str(), field(kind))
    });
    Kind {
        name: "wide rows",
        schema: SourceSchema::structure(fields.collect::<Vec<_>>()),
        value: |row| {
            let value = |at: usize| {
                let bits = mixed(row * NAMES as u64 + at as u64);
                match at % 4 {
                    _ if bits.is_multiple_of(11) => Value::Null,
                    0 => long(bits),
                    1 => Value::text(&format!("{bits:x}")),
                    2 => Value::Float64(bits as f64),
                    _ => Value::Int32((bits >> 33) as i32),
                }
            };
            Value::Struct((0..NAMES).map(value).collect())
        },
        partition_by: None,
        rows_of_a_frame: 256,
        frames: 90,
    }
}

fn many_partitions() -> Kind {
    Kind {
        name: "800 partitions",
        schema: SourceSchema::structure([
            ("id", field(SourceKind::Int64)),
            ("place", field(SourceKind::Int32)),
            ("note", field(SourceKind::String)),
        ]),
        value: |row| {
            let bits = mixed(row);
            let note = noise(bits, 100);
            Value::Struct(vec![long(row), Value::Int32((bits % 800) as i32), note])
        },
        partition_by: Some("place"),
        rows_of_a_frame: 256,
        frames: 400,
    }
}

fn long_texts() -> Kind {
    Kind {
        name: "long texts",
        schema: SourceSchema::structure([
            ("id", field(SourceKind::Int64)),
            ("note", field(SourceKind::String)),
        ]),
        value: |row| Value::Struct(vec![long(row), noise(row << 20, 64 << 10)]),
        partition_by: None,
        rows_of_a_frame: 16,
        frames: 60,
    }
}

fn nested_lists() -> Kind {
    let item = SourceSchema::structure([
        ("amount", field(SourceKind::Float64)),
        (
            "tags",
            SourceSchema::array(field(SourceKind::String)).optional(),
        ),
    ]);
    Kind {
        name: "nested lists",
        schema: SourceSchema::structure([
            ("id", field(SourceKind::Int64)),
            ("items", SourceSchema::array(item.optional()).optional()),
        ]),
        value: |row| {
            let items = (0..row % 9).map(|at| {
                let bits = mixed(row * 16 + at);
                let tags = (0..bits % 5).map(|tag| Value::text(&format!("{:x}", bits >> tag)));
                Value::Struct(vec![
                    Value::Float64(bits as f64),
                    Value::Array(tags.collect()),
                ])
            });
            Value::Struct(vec![long(row), Value::Array(items.collect())])
        },
        partition_by: None,
        rows_of_a_frame: 256,
        frames: 150,
    }
}

fn open(kind: &Kind, folder: &TempDir, memory: &Arc<Memory>) -> (Arc<Session>, u32) {
    let path = folder.path().display();
    let mut settings: BTreeMap<String, String> = [
        ("name", "orders".to_owned()),
        ("topics", TOPIC.to_owned()),
        ("iceberg.catalog.type", "sql".to_owned()),
        ("iceberg.catalog.uri", format!("sqlite:{path}/catalog.db")),
        (
            "iceberg.catalog.warehouse",
            format!("file://{path}/warehouse"),
        ),
        ("iceberg.tables", "db.orders".to_owned()),
        ("iceberg.tables.auto-create-enabled", "true".to_owned()),
        (
            "iceberg.control.commit.interval-ms",
            "2000000000".to_owned(),
        ),
        ("frazil.writers.max-open", "1000".to_owned()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    if let Some(column) = kind.partition_by {
        let key = "iceberg.tables.default-partition-by".to_owned();
        settings.insert(key, column.to_owned());
    }
    let session = Session::open_in(memory, settings).expect("the task starts");
    let schema = session.register_schema(&kind.schema.to_bytes()).unwrap();
    let assign = Request::Assign(vec![TopicPartition::new(TOPIC, 0)]);
    session.control(&encode_request(&assign)).unwrap();
    (session, schema)
}

/// Returns what was allocated and what was accounted since the task began, after each frame.
fn compare(kind: &Kind) -> Vec<(usize, usize)> {
    let folder = tempfile::tempdir().unwrap();
    let memory = Memory::new(Some(Limit {
        bytes: 16 << 30,
        kind: LimitKind::Machine,
    }));
    let (session, schema) = open(kind, &folder, &memory);
    let mut offset = 0;
    let mut put = || {
        let rows = (offset..offset + kind.rows_of_a_frame as i64)
            .map(|offset| Row::new(TOPIC, 0, offset).value((kind.value)(offset as u64)));
        let frame = FrameBuilder::with_value_schema(schema, kind.schema.clone()).rows(rows);
        session.control(&encode_request(&Request::Tick)).unwrap();
        session.put(&frame.encode()).expect("there is room");
        offset += kind.rows_of_a_frame as i64;
    };
    // The table, its plans and clients are there after the first frame, and its rows are few.
    put();
    let (before, accounted) = (allocated(), session.memory_held());
    let mut samples = Vec::new();
    for _ in 0..kind.frames {
        put();
        let held = session.memory_held().saturating_sub(accounted);
        let grown = allocated().saturating_sub(before);
        samples.push((grown, usize::try_from(held).unwrap()));
    }
    session.close();
    samples
}

// Promise: what a task says that it holds of native memory is what it has allocated, to a quarter and 2 MiB:
// for wide rows, 800 partitions, long texts and nested lists
#[test]
fn what_is_accounted_is_what_is_allocated() {
    let mut wrong = Vec::new();
    for kind in [many_partitions(), wide(), long_texts(), nested_lists()] {
        let samples = compare(&kind);
        let peak = samples.iter().max().copied().unwrap();
        assert!(peak.0 >= GROWTH_MIN, "{}: {samples:?}", kind.name);
        // Encoders keep room for about a page of texts, which nobody can ask them about.
        let off = |(grown, held): &(usize, usize)| grown.abs_diff(*held).saturating_sub(SLACK);
        let worst = samples
            .iter()
            .map(|one| (off(one) * 100 / one.1.max(1), *one));
        let worst = worst.max().unwrap();
        println!(
            "{}: peak {} KiB allocated, {} accounted; furthest apart {} and {}: {} % and the slack",
            kind.name,
            peak.0 >> 10,
            peak.1 >> 10,
            (worst.1.0) >> 10,
            (worst.1.1) >> 10,
            worst.0,
        );
        if worst.0 > 25 {
            wrong.push(kind.name);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}
