//! Round trips through the test encoder, and hostile bytes.

use proptest::prelude::*;
use std::sync::Arc;

use super::testing::{self, FrameBuilder, Row, Value};
use super::*;
use crate::error::ErrorKind;
use crate::limits::{NESTING_MAX, SCHEMA_FIELDS_MAX};
use crate::offsets::TopicPartition;

fn scalar(kind: SourceKind) -> SourceSchema {
    SourceSchema::scalar(kind)
}

fn order_schema() -> SourceSchema {
    let line = SourceSchema::structure([
        ("sku", scalar(SourceKind::String)),
        ("count", scalar(SourceKind::Int16).optional()),
    ]);
    SourceSchema::structure([
        ("id", scalar(SourceKind::Int64)),
        ("name", scalar(SourceKind::String).optional()),
        ("paid", scalar(SourceKind::Boolean).optional()),
        ("raw", scalar(SourceKind::Bytes).optional()),
        (
            "price",
            SourceSchema::logical_type(LogicalType::Decimal { scale: 2 }).optional(),
        ),
        (
            "day",
            SourceSchema::logical_type(LogicalType::Date).optional(),
        ),
        (
            "at",
            SourceSchema::logical_type(LogicalType::Timestamp).optional(),
        ),
        ("lines", SourceSchema::array(line).optional()),
        (
            "tags",
            SourceSchema::map(scalar(SourceKind::String), scalar(SourceKind::Float64)).optional(),
        ),
    ])
}

fn order(id: i64) -> Value {
    let line = |sku: &str, count| Value::Struct(vec![Value::text(sku), count]);
    Value::Struct(vec![
        Value::Int64(id),
        Value::text("größe"),
        Value::Bool(true),
        Value::Bytes(vec![0, 255]),
        Value::Decimal(-12_345, 2),
        Value::Date(-1),
        Value::Timestamp(-1),
        Value::Array(vec![line("a", Value::Int16(3)), line("b", Value::Null)]),
        Value::Map(vec![(Value::text("x"), Value::Float64(0.5))]),
    ])
}

fn struct_frame() -> FrameBuilder {
    let sparse = Value::Struct(vec![Value::Int64(9)]);
    FrameBuilder::with_value_schema(3, order_schema())
        .with_headers()
        .row(
            Row::new("orders", 0, 10)
                .value(order(1))
                .timestamp(77)
                .key(Value::text("k")),
        )
        .row(
            Row::new("orders", 0, 11)
                .header("h", Value::Int32(1))
                .header("h", Value::Null),
        )
        .row(Row::new("orders", 0, 15).value(sparse))
        .row(Row::new("orders", 1, 3).value(order(2)))
        .row(Row::new("orders", 1, 2).value(order(3)))
}

fn schemaless_frame() -> FrameBuilder {
    let nested = Value::object([
        ("id", Value::Int64(1)),
        (
            "list",
            Value::Array(vec![Value::Null, Value::text("é"), Value::Array(vec![])]),
        ),
        ("price", Value::Decimal(12, 1)),
        (
            "map",
            Value::Map(vec![(Value::Int32(4), Value::Bytes(vec![1]))]),
        ),
    ]);
    FrameBuilder::schemaless()
        .row(Row::new("events", 2, 5).value(nested))
        .row(Row::new("events", 2, 6).value(Value::object([("id", Value::Float32(1.5))])))
        .row(Row::new("events", 2, 7).value(Value::text("plain")))
        .row(Row::new("other", 2, 8))
}

/// Plain records in columns: of one type, of several, absent ones, nulls, and a row without a record.
fn records_frame() -> FrameBuilder {
    let rows = [
        Value::object([
            ("id", Value::Int64(1)),
            ("name", Value::text("é")),
            ("mixed", Value::Int64(5)),
            ("nothing", Value::Null),
        ]),
        Value::Null,
        Value::object([
            ("id", Value::Int64(2)),
            ("name", Value::Null),
            ("paid", Value::Bool(true)),
            ("mixed", Value::Float64(5.5)),
            ("price", Value::Float64(-0.5)),
        ]),
        Value::object([]),
        Value::object([("id", Value::Int64(3)), ("mixed", Value::text("x"))]),
    ];
    let rows = rows.into_iter().zip(0..);
    let rows = rows.map(|(value, offset)| Row::new("t", 0, offset).value(value));
    FrameBuilder::schemaless().in_columns().rows(rows)
}

/// Touches every value of a cell and returns how many there are.
fn walk(cell: Cell<'_>) -> usize {
    match cell {
        Cell::Array(array) => 1 + array.iter().map(walk).sum::<usize>(),
        Cell::Map(map) => {
            let entries = map
                .entries()
                .map(|entry| walk(entry.key) + walk(entry.value));
            1 + entries.sum::<usize>()
        }
        Cell::Struct(of) => {
            1 + (0..of.fields().len())
                .map(|field| walk(of.field(field)))
                .sum::<usize>()
        }
        Cell::String(text) => 1 + text.chars().count(),
        _ => 1,
    }
}

fn walk_frame(frame: &Frame<'_>) -> usize {
    (0..frame.rows() + 1)
        .map(|row| {
            let headers = frame
                .headers(row)
                .map_or(0, |headers| walk(Cell::Map(headers)));
            let source = frame.source(row).map_or(0, |(run, _)| run.rows);
            source + headers + walk(frame.key(row)) + walk(frame.value(row))
        })
        .sum()
}

#[test]
fn a_struct_frame_reads_back() {
    let builder = struct_frame();
    let bytes = builder.encode();
    let frame = Frame::decode(&bytes, &builder.schemas()).expect("valid");
    assert_eq!((frame.rows(), frame.runs().len()), (5, 3));
    let offsets: Vec<_> = (0..5)
        .filter_map(|row| frame.source(row))
        .map(|(_, at)| at)
        .collect();
    assert_eq!(offsets, [10, 11, 15, 3, 2]);
    assert_eq!(frame.runs()[0].last_offset(), 15);
    assert!(!frame.runs()[0].is_contiguous() && frame.runs()[1].is_contiguous());
    assert_eq!((frame.timestamp(0), frame.timestamp(1)), (Some(77), None));
    assert!(frame.is_tombstone(1) && !frame.is_tombstone(0));
    assert!(matches!(frame.key(0), Cell::String("k")) && frame.key(1).is_null());
    assert_eq!(frame.headers(1).map(|headers| headers.len()), Some(2));
    let Cell::Struct(order) = frame.value(0) else {
        panic!("not a struct")
    };
    assert!(matches!(order.get("name"), Some(Cell::String("größe"))));
    assert!(matches!(order.get("day"), Some(Cell::Date { days: -1 })));
    let Some(Cell::Decimal { unscaled, scale: 2 }) = order.get("price") else {
        panic!("type")
    };
    assert_eq!(unscaled, (-12_345i128).to_be_bytes());
    let Some(Cell::Array(lines)) = order.get("lines") else {
        panic!("not an array")
    };
    let Cell::Struct(second) = lines.get(1) else {
        panic!("not a struct")
    };
    assert!(matches!(second.get("sku"), Some(Cell::String("b"))));
    assert!(second.field(1).is_null() && lines.get(2).is_null());
    let columns = frame.columns().expect("struct");
    assert_eq!((columns[0].null_count(), columns[1].null_count()), (1, 2));
    let ColumnData::Int64(ids) = columns[0].data() else {
        panic!("type")
    };
    assert_eq!(
        ids.iter().map(|id| i64::from_le_bytes(*id)).sum::<i64>(),
        1 + 9 + 2 + 3
    );
}

#[test]
fn skipped_rows_keep_their_offsets() {
    let builder = FrameBuilder::schemaless()
        .row(Row::new("t", 0, 4).skipped())
        .row(Row::new("t", 0, 5).value(Value::Int8(1)));
    let bytes = builder.encode();
    let frame = Frame::decode(&bytes, &builder.schemas()).expect("valid");
    assert!(frame.is_skipped(0) && frame.is_tombstone(0) && !frame.is_skipped(1));
    assert_eq!(frame.source(0).map(|(_, offset)| offset), Some(4));
}

#[test]
fn a_schemaless_frame_reads_back() {
    let builder = schemaless_frame();
    let bytes = builder.encode();
    let frame = Frame::decode(&bytes, &builder.schemas()).expect("valid");
    let Cell::Map(event) = frame.value(0) else {
        panic!("not a map")
    };
    let names: Vec<_> = event
        .entries()
        .filter_map(|entry| entry.name_index)
        .collect();
    assert_eq!(names, [0, 1, 2, 3]);
    assert_eq!(frame.names(), ["id", "list", "price", "map"]);
    let Some(Cell::Array(list)) = event.get("list") else {
        panic!("not a list")
    };
    assert!(list.get(0).is_null() && matches!(list.get(1), Cell::String("é")));
    assert!(matches!(list.get(2), Cell::Array(inner) if inner.is_empty()));
    let Some(Cell::Map(inner)) = event.get("map") else {
        panic!("not a map")
    };
    assert!(matches!(inner.entry(0), (Cell::Int32(4), Cell::Bytes([1]))));
    assert!(matches!(frame.value(2), Cell::String("plain")));
    assert!(frame.is_tombstone(3) && frame.value_column().is_none());
}

#[test]
fn records_in_columns_read_back() {
    let builder = records_frame();
    let bytes = builder.encode();
    let frame = Frame::decode(&bytes, &builder.schemas()).expect("valid");
    let maps = frame.maps().expect("in columns");
    assert_eq!(
        maps.names(),
        ["id", "name", "mixed", "nothing", "paid", "price"]
    );
    let is_typed: Vec<bool> = (0..6).map(|column| maps.typed(column).is_some()).collect();
    assert_eq!(is_typed, [true, true, false, false, true, true]);
    assert!(frame.may_have_tombstones() && frame.is_tombstone(1) && !frame.is_tombstone(3));
    let row = |row| owned(frame.value(row));
    assert_eq!(
        row(0),
        Value::object([
            ("id", Value::Int64(1)),
            ("name", Value::text("é")),
            ("mixed", Value::Int64(5)),
            ("nothing", Value::Null),
        ])
    );
    assert_eq!((row(1), row(3)), (Value::Null, Value::object([])));
    let last = [("id", Value::Int64(3)), ("mixed", Value::text("x"))];
    assert_eq!(row(4), Value::object(last));
}

#[test]
fn broken_records_in_columns_are_told() {
    let one = || Value::object([("a", Value::Int64(1)), ("b", Value::Null)]);
    let builder = FrameBuilder::schemaless()
        .in_columns()
        .row(Row::new("t", 0, 0).value(one()))
        .row(Row::new("t", 0, 1).value(Value::object([("b", Value::Null)])));
    let bytes = builder.encode();
    // A count of 8 bytes and two columns: `a` with a byte for each row, its values, and `b`.
    let records = bytes.len() - (1 + 4 + (4 + 1 + 3 + 4 + 1 + 16) + (4 + 1 + 1));
    let broken = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[records + at] = byte;
        let frame = Frame::decode(&bytes, &builder.schemas()).expect_err("broken");
        assert_eq!(frame.code(), "WIRE_CORRUPT");
        frame.message().to_owned()
    };
    assert!(Frame::decode(&bytes, &builder.schemas()).is_ok());
    assert!(broken(0, 2).contains("flag is neither"));
    assert!(broken(1, 200).contains("count is larger"));
    assert!(broken(5, 9).contains("name index"));
    assert!(broken(9, 6).contains("kind of column"));
    assert!(broken(12, 2).contains("flag is neither"));
    // The first row has a value, and no field any more.
    assert!(broken(11, 0).contains("without a field"));
    assert!(broken(34, 0).contains("two columns"));
    // Keys never come so.
    let mut keys = bytes.clone();
    keys.swap(36, 37);
    let error = Frame::decode(&keys, &builder.schemas()).expect_err("keys");
    assert_eq!(error.code(), "WIRE_CORRUPT");
}

#[test]
fn schemas_survive_their_bytes_and_keep_their_ids() {
    let mut schema = order_schema()
        .named("shop.Order")
        .with_parameter("owner", "shop");
    (schema.version, schema.doc, schema.has_default) = (Some(4), Some("d".into()), true);
    schema.default = Some("7".into());
    let bytes = schema.to_bytes();
    assert_eq!(SourceSchema::parse(&bytes).expect("valid"), schema);
    let mut registry = SchemaRegistry::default();
    assert_eq!(registry.register(&bytes).expect("valid"), 1);
    let second = order_schema().to_bytes();
    assert_eq!(registry.register(&second).expect("valid"), 2);
    assert_eq!(registry.register(&bytes).expect("valid"), 1);
    assert_eq!(registry.get(1).as_deref(), Some(&schema));
    assert!(registry.get(0).is_none() && registry.get(3).is_none());
}

#[test]
fn schemas_have_limits() {
    let mut deep = scalar(SourceKind::Int8);
    for _ in 0..NESTING_MAX {
        deep = SourceSchema::array(deep);
    }
    let error = SourceSchema::parse(&deep.to_bytes()).expect_err("too deep");
    assert_eq!(
        (error.kind(), error.code()),
        (ErrorKind::Data, "SCHEMA_TOO_DEEP")
    );
    let names: Vec<String> = (0..SCHEMA_FIELDS_MAX)
        .map(|index| format!("f{index}"))
        .collect();
    let fields = names
        .iter()
        .map(|name| (name.as_str(), scalar(SourceKind::Int8)));
    let wide = SourceSchema::structure(fields);
    let error = SourceSchema::parse(&wide.to_bytes()).expect_err("too wide");
    assert_eq!(error.code(), "SCHEMA_TOO_LARGE");
    let no_scale = scalar(SourceKind::Bytes).named(schema::logical_names::DECIMAL);
    let error = SourceSchema::parse(&no_scale.to_bytes()).expect_err("no scale");
    assert_eq!(error.code(), "SCHEMA_INVALID");
    let on_another_kind = scalar(SourceKind::Int64).named(schema::logical_names::DATE);
    let parsed = SourceSchema::parse(&on_another_kind.to_bytes()).expect("a plain int64");
    assert_eq!(parsed.logical(), None);
}

// Injection: 33
#[test]
fn values_nest_only_so_deep() {
    let nested = |levels| (1..levels).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
    let decode = |levels| {
        let row = Row::new("t", 0, 0).value(Value::Array(vec![nested(levels)]));
        let builder = FrameBuilder::schemaless().row(row);
        Frame::decode(&builder.encode(), &builder.schemas()).map(|frame| walk_frame(&frame))
    };
    assert!(decode(NESTING_MAX - 1).is_ok());
    assert_eq!(
        decode(NESTING_MAX).expect_err("too deep").code(),
        "WIRE_TOO_DEEP"
    );
}

#[test]
fn broken_frames_name_their_fault() {
    let builder = struct_frame();
    let bytes = builder.encode();
    let unknown = Frame::decode(&bytes, &|_| None).expect_err("no schema");
    assert_eq!(
        (unknown.kind(), unknown.code()),
        (ErrorKind::Fatal, "WIRE_SCHEMA_UNKNOWN")
    );
    let mut newer = bytes.clone();
    newer[4] = 2;
    let error = Frame::decode(&newer, &builder.schemas()).expect_err("newer");
    assert_eq!(error.code(), "WIRE_VERSION");
    let other: Arc<SourceSchema> = Arc::new(scalar(SourceKind::String));
    let error = Frame::decode(&bytes, &|_| Some(Arc::clone(&other))).expect_err("other schema");
    assert_eq!(error.code(), "WIRE_CORRUPT");
    for length in 0..bytes.len() {
        let cut = Frame::decode(&bytes[..length], &builder.schemas());
        assert_eq!(cut.expect_err("cut short").code(), "WIRE_CORRUPT");
    }
}

#[test]
fn requests_read_back() {
    let partition = |index| TopicPartition::new("tøpic", index);
    for request in [
        Request::Assign(vec![partition(0), partition(1)]),
        Request::Revoke(vec![]),
        Request::Lost(vec![partition(i32::MAX)]),
        Request::PreCommit(vec![(partition(3), 9), (partition(4), i64::MAX)]),
        Request::Tick,
        Request::Cancel,
        Request::AlterOffsets(vec![(partition(3), Some(9)), (partition(4), None)]),
        Request::AlterOffsets(vec![]),
        Request::Epoch,
        Request::Metrics,
        Request::Topics(vec![SourceTopic {
            name: "t".into(),
            id: uuid::Uuid::from_u128(7),
            partitions: 3,
        }]),
        Request::Channel {
            leader: true,
            now_ms: 1_700_000_000_000,
            records: vec![],
        },
        Request::Channel {
            leader: false,
            now_ms: 0,
            records: vec![
                ChannelRecord {
                    offset: 7,
                    age_ms: 0,
                    value: vec![0, 255],
                },
                ChannelRecord {
                    offset: i64::MAX,
                    age_ms: 3_600_000,
                    value: vec![],
                },
            ],
        },
    ] {
        let bytes = testing::encode_request(&request);
        assert_eq!(Request::decode(&bytes).expect("valid"), request);
    }
    assert_eq!(
        Request::decode(&[1, 99]).expect_err("kind").code(),
        "WIRE_CORRUPT"
    );
    // A clock before 1970 and a record from the future are 0.
    let mut odd = vec![1, 7, 0];
    odd.extend((-5_i64).to_le_bytes());
    odd.extend(1_u32.to_le_bytes());
    odd.extend(3_i64.to_le_bytes());
    odd.extend((-9_i64).to_le_bytes());
    odd.extend(0_u32.to_le_bytes());
    let Request::Channel {
        now_ms, records, ..
    } = Request::decode(&odd).expect("valid")
    else {
        panic!("not a channel's request");
    };
    assert_eq!((now_ms, records[0].age_ms, records[0].offset), (0, 0, 3));
    odd[2] = 2;
    assert_eq!(
        Request::decode(&odd).expect_err("leader").code(),
        "WIRE_CORRUPT"
    );
    assert_eq!(
        Request::decode(&[9, 5]).expect_err("version").code(),
        "WIRE_VERSION"
    );
}

#[test]
fn effects_and_validation_read_back() {
    let error = crate::SinkError::config("TABLE_NOT_FOUND", "create it").with("table", "db.t");
    let effects = Effects {
        durable: vec![(TopicPartition::new("a", 0), 5)],
        rewinds: vec![(TopicPartition::new("b", 1), 0)],
        pause: true,
        resume: false,
        request_commit: true,
        timeout_ms: Some(250),
        rejected: vec![Rejected::new(
            3,
            &TopicPartition::new("a", 0),
            4,
            &crate::SinkError::data("VALUE_OUT_OF_RANGE", "column `v`: does not fit")
                .with("column", "v")
                .with("source_type", "int64")
                .with("table", "db.t")
                .with("offset", 4),
        )],
        log: vec![(LogLevel::Warn, "slow".into())],
        log_dropped: 2,
        messages: vec![b"{}".to_vec(), vec![]],
        parts: FrameParts {
            keys: true,
            headers: false,
            topics: true,
        },
        error: Some((&error).into()),
    };
    let rejected = &effects.rejected[0];
    assert_eq!((&*rejected.table, &*rejected.column), ("db.t", "v"));
    assert_eq!(
        rejected.message,
        "column `v`: does not fit [VALUE_OUT_OF_RANGE, column=v, source_type=int64, table=db.t, offset=4]"
    );
    assert_eq!(
        testing::decode_effects(&effects.encode()).expect("valid"),
        effects
    );
    let none = Effects::default();
    assert_eq!(
        testing::decode_effects(&none.encode()).expect("valid"),
        none
    );
    let problems = [
        ("name", ValidationLevel::Error, "missing"),
        ("x", ValidationLevel::Warning, ""),
    ];
    let decoded = testing::decode_validation(&encode_validation(problems)).expect("valid");
    assert_eq!(
        decoded[0],
        ("name".into(), ValidationLevel::Error, "missing".into())
    );
    assert_eq!(decoded[1].1, ValidationLevel::Warning);
}

fn any_cell() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::Int64),
        any::<f64>()
            .prop_filter("NaN is not equal", |f| !f.is_nan())
            .prop_map(Value::Float64),
        ".{0,12}".prop_map(Value::String),
        (any::<i128>(), any::<i32>()).prop_map(|(unscaled, scale)| Value::Decimal(unscaled, scale)),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            prop::collection::vec((".{0,4}".prop_map(Value::String), inner), 0..5)
                .prop_map(Value::Map),
        ]
    })
}

fn owned(cell: Cell<'_>) -> Value {
    match cell {
        Cell::Null => Value::Null,
        Cell::Bool(value) => Value::Bool(value),
        Cell::Int64(value) => Value::Int64(value),
        Cell::Float64(value) => Value::Float64(value),
        Cell::String(text) => Value::text(text),
        Cell::Decimal { unscaled, scale } => Value::Decimal(
            i128::from_be_bytes(unscaled.try_into().expect("16 bytes")),
            scale,
        ),
        Cell::Array(array) => Value::Array(array.iter().map(owned).collect()),
        Cell::Map(map) => Value::Map(
            map.entries()
                .map(|entry| (owned(entry.key), owned(entry.value)))
                .collect(),
        ),
        other => panic!("unexpected {}", other.type_name()),
    }
}

fn any_plain_record() -> impl Strategy<Value = Value> {
    let plain = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int64),
        (-1e9..1e9).prop_map(Value::Float64),
        ".{0,6}".prop_map(Value::String),
    ];
    let entries = prop::collection::btree_map("[a-e]", plain, 0..5);
    let record = entries.prop_map(|entries| {
        Value::object(
            entries
                .iter()
                .map(|(name, value)| (name.as_str(), value.clone())),
        )
    });
    prop_oneof![9 => record, 1 => Just(Value::Null)]
}

/// The entries of a record by their names: in columns their order is that of the block.
fn sorted(value: Value) -> String {
    match value {
        Value::Map(mut entries) => {
            entries.sort_by_key(|(name, _)| format!("{name:?}"));
            format!("{entries:?}")
        }
        other => format!("{other:?}"),
    }
}

proptest! {
    // Promise: JSON behind Connect's converter: records that travel in columns stay what they were
    #[test]
    fn any_plain_records_read_back_from_columns(
        values in prop::collection::vec(any_plain_record(), 1..20),
    ) {
        let rows = values.iter().cloned().zip(0..);
        let rows = rows.map(|(value, at)| Row::new("t", 0, at).value(value));
        let builder = FrameBuilder::schemaless().in_columns().rows(rows);
        let bytes = builder.encode();
        let frame = Frame::decode(&bytes, &builder.schemas()).expect("valid");
        let any = values.iter().any(|value| *value != Value::Null);
        prop_assert_eq!(frame.maps().is_some(), any);
        for (row, value) in values.into_iter().enumerate() {
            prop_assert_eq!(frame.is_tombstone(row), value == Value::Null);
            prop_assert_eq!(sorted(owned(frame.value(row))), sorted(value));
        }
    }

    #[test]
    fn any_value_reads_back(values in prop::collection::vec(any_cell(), 1..6)) {
        let rows = values.iter().enumerate();
        let rows = rows.map(|(at, value)| Row::new("t", 0, at as i64).value(value.clone()));
        let builder = FrameBuilder::schemaless().rows(rows);
        let bytes = builder.encode();
        let frame = Frame::decode(&bytes, &builder.schemas()).expect("valid");
        for (row, value) in values.iter().enumerate() {
            prop_assert_eq!(&owned(frame.value(row)), value);
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let schema = Arc::new(order_schema());
        let _ = Frame::decode(&bytes, &|_| Some(Arc::clone(&schema))).map(|f| walk_frame(&f));
        let _ = SourceSchema::parse(&bytes);
        let _ = Request::decode(&bytes);
        let _ = testing::decode_effects(&bytes);
        let _ = testing::decode_validation(&bytes);
    }

    #[test]
    fn no_mutation_panics(
        layout in 0..3,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 1..6),
    ) {
        let builder = match layout {
            0 => schemaless_frame(),
            1 => records_frame(),
            _ => struct_frame(),
        };
        let mut bytes = builder.encode();
        for (index, byte, kind) in edits {
            let at = index.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
        }
        // The length is repaired so that the rest is looked at.
        let length = (bytes.len() as u32).to_le_bytes();
        if let Some(field) = bytes.get_mut(8..12) {
            field.copy_from_slice(&length);
        }
        let _ = Frame::decode(&bytes, &builder.schemas()).map(|frame| walk_frame(&frame));
    }

    #[test]
    fn no_schema_mutation_panics(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let mut bytes = order_schema().to_bytes();
        for (index, byte) in edits {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = SourceSchema::parse(&bytes);
    }
}
