//! Rows of a table as a frame of records: what a log of changes is replayed with.
//!
//! Columns are written as they lie in Arrow, each with the schema that a source would give it so that the same
//! column comes of it again. Every column may be null.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type,
    Time64MicrosecondType, TimestampMicrosecondType, TimestampNanosecondType,
};
use arrow_array::{Array, ArrayRef, new_null_array};
use arrow_schema::{DataType, TimeUnit};
use iceberg::spec::{NestedField, PrimitiveType, Type};
use uuid::Uuid;

use super::frame::{FRAME_MAGIC, FRAME_VERSION, MODE_COLUMNS, MODE_NONE};
use super::schema::{LogicalType, SourceKind, SourceSchema};
use super::write::Writer;
use crate::error::{Result, SinkError};

/// Where the number of bytes stands in a frame.
const LENGTH_AT: usize = 8;

/// Returns the schema of a source whose records make such a column.
///
/// # Errors
///
/// `REPLAY_TYPE_UNSUPPORTED` for a type that no source's value becomes.
pub fn schema_of(field: &NestedField) -> Result<SourceSchema> {
    let schema = match field.field_type.as_ref() {
        Type::Primitive(primitive) => scalar(primitive).ok_or_else(|| unsupported(field))?,
        Type::Struct(children) => {
            let fields = children.fields().iter();
            let fields = fields.map(|child| Ok((child.name.as_str(), schema_of(child)?)));
            SourceSchema::structure(fields.collect::<Result<Vec<_>>>()?)
        }
        Type::List(list) => SourceSchema::array(schema_of(&list.element_field)?),
        Type::Map(map) => {
            SourceSchema::map(schema_of(&map.key_field)?, schema_of(&map.value_field)?)
        }
    };
    Ok(schema.optional())
}

fn unsupported(field: &NestedField) -> SinkError {
    let message =
        "a column of the log has a type that no record's value becomes: leave it out of the log";
    SinkError::config("REPLAY_TYPE_UNSUPPORTED", message)
        .with("column", &field.name)
        .with("type", &field.field_type)
}

fn scalar(primitive: &PrimitiveType) -> Option<SourceSchema> {
    let of = |kind| Some(SourceSchema::scalar(kind));
    let named = |kind, name: &str| Some(SourceSchema::scalar(kind).named(name));
    match primitive {
        PrimitiveType::Boolean => of(SourceKind::Boolean),
        PrimitiveType::Int => of(SourceKind::Int32),
        PrimitiveType::Long => of(SourceKind::Int64),
        PrimitiveType::Float => of(SourceKind::Float32),
        PrimitiveType::Double => of(SourceKind::Float64),
        PrimitiveType::String => of(SourceKind::String),
        PrimitiveType::Binary | PrimitiveType::Fixed(_) => of(SourceKind::Bytes),
        PrimitiveType::Uuid => named(SourceKind::String, "uuid"),
        PrimitiveType::Date => Some(SourceSchema::logical_type(LogicalType::Date)),
        PrimitiveType::Decimal { scale, .. } => {
            let scale = i32::try_from(*scale).ok()?;
            Some(SourceSchema::logical_type(LogicalType::Decimal { scale }))
        }
        PrimitiveType::Time => named(SourceKind::Int64, "io.debezium.time.MicroTime"),
        PrimitiveType::Timestamp => named(SourceKind::Int64, "io.debezium.time.MicroTimestamp"),
        PrimitiveType::TimestampNs => named(SourceKind::Int64, "io.debezium.time.NanoTimestamp"),
        PrimitiveType::Timestamptz => named(SourceKind::Int64, "timestamp-micros"),
        PrimitiveType::TimestamptzNs => named(SourceKind::Int64, "timestamp-nanos"),
    }
}

/// Some rows of a table, as records of one partition.
#[derive(Debug, Clone, Copy)]
pub struct ReplayedRows<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The partition.
    pub partition: i32,
    /// Which rows of the columns, each with its offset; these rise.
    pub rows: &'a [(usize, i64)],
    /// The schema of the values, a struct of the columns, and its id.
    pub schema: (u32, &'a SourceSchema),
    /// The columns.
    pub columns: &'a [ArrayRef],
    /// The keys: bytes, with the id of their schema.
    pub keys: Option<(u32, &'a ArrayRef)>,
}

impl ReplayedRows<'_> {
    /// Returns the frame.
    ///
    /// # Errors
    ///
    /// `INTERNAL` for a column that is not of the type that its schema was made for.
    pub fn frame(&self) -> Result<Vec<u8>> {
        let mut out = Writer::default();
        let rows: Vec<Option<usize>> = self.rows.iter().map(|(row, _)| Some(*row)).collect();
        out.u32(FRAME_MAGIC);
        out.bytes.extend_from_slice(&FRAME_VERSION.to_le_bytes());
        out.bytes.extend_from_slice(&0u16.to_le_bytes());
        out.u32(0);
        out.length(rows.len());
        let (id, schema) = self.schema;
        out.u32(id);
        out.u32(self.keys.map_or(0, |(schema, _)| schema));
        // One topic, one run, no names.
        [1, 1, 0].into_iter().for_each(|count| out.u32(count));
        let keys = self.keys.map_or(MODE_NONE, |_| MODE_COLUMNS);
        [MODE_COLUMNS, keys, MODE_NONE, 0]
            .into_iter()
            .for_each(|mode| out.u8(mode));
        out.text(self.topic);
        out.u32(0);
        out.i32(self.partition);
        out.u32(0);
        out.length(rows.len());
        // Each offset is given.
        out.u32(0);
        self.rows.iter().for_each(|(_, offset)| out.i64(*offset));
        rows.iter().for_each(|_| out.i64(i64::MIN));
        out.text("");
        // The struct itself is never null.
        out.u32(0);
        for (column, field) in self.columns.iter().zip(schema.fields()) {
            write(&mut out, column, &field.schema, &rows)?;
        }
        if let Some((_, keys)) = self.keys {
            write(
                &mut out,
                keys,
                &SourceSchema::scalar(SourceKind::Bytes),
                &rows,
            )?;
        }
        let length = u32::try_from(out.bytes.len())
            .unwrap_or(u32::MAX)
            .to_le_bytes();
        if let Some(place) = out.bytes.get_mut(LENGTH_AT..LENGTH_AT + length.len()) {
            place.copy_from_slice(&length);
        }
        Ok(out.bytes)
    }
}

/// Writes these rows of a column; `None` is a row whose parent is null.
fn write(
    out: &mut Writer,
    array: &dyn Array,
    schema: &SourceSchema,
    rows: &[Option<usize>],
) -> Result<()> {
    let there = |row: &Option<usize>| row.filter(|row| array.is_valid(*row));
    let rows: Vec<Option<usize>> = rows.iter().map(there).collect();
    let nulls = rows.iter().filter(|row| row.is_none()).count();
    out.length(nulls);
    if nulls > 0 {
        for eight in rows.chunks(8) {
            let bits = eight.iter().zip(0..);
            out.u8(bits.fold(0, |bits, (row, bit)| bits | u8::from(row.is_some()) << bit));
        }
    }
    let rows = rows.as_slice();
    if write_fixed(out, array, rows) {
        return Ok(());
    }
    match array.data_type() {
        DataType::Decimal128(..) => {
            let values = array.as_primitive::<Decimal128Type>();
            texts(out, rows, |row| values.value(row).to_be_bytes().to_vec());
        }
        DataType::Utf8 => {
            let values = array.as_string::<i32>();
            texts(out, rows, |row| values.value(row).as_bytes().to_vec());
        }
        DataType::LargeBinary => {
            let values = array.as_binary::<i64>();
            texts(out, rows, |row| values.value(row).to_vec());
        }
        DataType::FixedSizeBinary(_) => {
            let values = array.as_fixed_size_binary();
            let is_uuid = schema.kind() == SourceKind::String;
            texts(out, rows, |row| match Uuid::from_slice(values.value(row)) {
                Ok(id) if is_uuid => id.hyphenated().to_string().into_bytes(),
                _ => values.value(row).to_vec(),
            });
        }
        DataType::Struct(_) => {
            let columns = array.as_struct().columns().iter();
            for (column, field) in columns.zip(schema.fields()) {
                write(out, column, &field.schema, rows)?;
            }
        }
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            let inner = items(out, rows, lists.value_offsets())?;
            write(out, lists.values(), child(schema.value())?, &inner)?;
        }
        DataType::Map(..) => {
            let maps = array.as_map();
            let inner = items(out, rows, maps.value_offsets())?;
            write(out, maps.keys(), child(schema.key())?, &inner)?;
            write(out, maps.values(), child(schema.value())?, &inner)?;
        }
        other => {
            return Err(
                SinkError::internal("a column of a log cannot be replayed").with("type", other)
            );
        }
    }
    Ok(())
}

/// Writes values that all have the same length; tells whether these do.
fn write_fixed(out: &mut Writer, array: &dyn Array, rows: &[Option<usize>]) -> bool {
    match array.data_type() {
        DataType::Boolean => {
            let values = array.as_boolean();
            rows.iter()
                .for_each(|row| out.u8(row.is_some_and(|row| values.value(row)).into()));
        }
        DataType::Int32 => numbers(out, rows, |row| {
            array.as_primitive::<Int32Type>().value(row).to_le_bytes()
        }),
        DataType::Date32 => numbers(out, rows, |row| {
            array.as_primitive::<Date32Type>().value(row).to_le_bytes()
        }),
        DataType::Int64 => numbers(out, rows, |row| {
            array.as_primitive::<Int64Type>().value(row).to_le_bytes()
        }),
        DataType::Float32 => numbers(out, rows, |row| {
            array.as_primitive::<Float32Type>().value(row).to_le_bytes()
        }),
        DataType::Float64 => numbers(out, rows, |row| {
            array.as_primitive::<Float64Type>().value(row).to_le_bytes()
        }),
        DataType::Time64(TimeUnit::Microsecond) => numbers(out, rows, |row| {
            array
                .as_primitive::<Time64MicrosecondType>()
                .value(row)
                .to_le_bytes()
        }),
        DataType::Timestamp(TimeUnit::Microsecond, _) => numbers(out, rows, |row| {
            array
                .as_primitive::<TimestampMicrosecondType>()
                .value(row)
                .to_le_bytes()
        }),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => numbers(out, rows, |row| {
            array
                .as_primitive::<TimestampNanosecondType>()
                .value(row)
                .to_le_bytes()
        }),
        _ => return false,
    }
    true
}

fn child(schema: Option<&Arc<SourceSchema>>) -> Result<&SourceSchema> {
    let child = schema.map(AsRef::as_ref);
    child.ok_or_else(|| SinkError::internal("a column of a log has no schema"))
}

fn numbers<const N: usize>(
    out: &mut Writer,
    rows: &[Option<usize>],
    bytes: impl Fn(usize) -> [u8; N],
) {
    for row in rows {
        out.bytes.extend_from_slice(&row.map_or([0; N], &bytes));
    }
}

fn texts(out: &mut Writer, rows: &[Option<usize>], bytes: impl Fn(usize) -> Vec<u8>) {
    let values: Vec<Vec<u8>> = rows
        .iter()
        .map(|row| row.map(&bytes).unwrap_or_default())
        .collect();
    let mut end = 0;
    out.u32(0);
    for value in &values {
        end += value.len();
        out.length(end);
    }
    values
        .iter()
        .for_each(|value| out.bytes.extend_from_slice(value));
}

/// Writes the offsets of lists and returns the rows of their items.
fn items(out: &mut Writer, rows: &[Option<usize>], ends: &[i32]) -> Result<Vec<Option<usize>>> {
    let mut inner = Vec::new();
    out.u32(0);
    for row in rows {
        if let Some(row) = row {
            let bound = |at: usize| ends.get(at).and_then(|end| usize::try_from(*end).ok());
            let (Some(first), Some(end)) = (bound(*row), bound(row + 1)) else {
                return Err(SinkError::internal("a list of a log has no bounds"));
            };
            inner.extend((first..end).map(Some));
        }
        out.length(inner.len());
    }
    Ok(inner)
}

/// Returns the keys of records as bytes, out of the texts that a log has of them: those that are JSON objects;
/// others tell no column by its name.
pub fn keys_of(texts: &ArrayRef) -> ArrayRef {
    let Some(texts) = texts.as_string_opt::<i32>() else {
        return new_null_array(&DataType::LargeBinary, texts.len());
    };
    let texts = texts.iter();
    let keys = texts.map(|text| text.filter(|text| text.trim_start().starts_with('{')));
    let keys = keys.map(|text| text.map(str::as_bytes));
    Arc::new(keys.collect::<arrow_array::LargeBinaryArray>())
}

#[cfg(test)]
mod tests {
    use arrow_array::{
        FixedSizeBinaryArray, Int64Array, LargeBinaryArray, ListArray, StringArray, StructArray,
    };
    use arrow_schema::{Field, Fields};
    use iceberg::spec::{ListType, NestedFieldRef, StructType};

    use super::*;
    use crate::wire::Frame;
    use crate::wire::testing::{FrameBuilder, Row, Value};

    fn optional(id: i32, name: &str, kind: Type) -> NestedFieldRef {
        Arc::new(NestedField::optional(id, name, kind))
    }

    fn columns() -> (Vec<NestedFieldRef>, Vec<ArrayRef>) {
        let inner = StructType::new(vec![
            optional(3, "id", Type::Primitive(PrimitiveType::Uuid)),
            optional(4, "n", Type::Primitive(PrimitiveType::Long)),
        ]);
        let list = ListType::new(optional(6, "element", Type::Primitive(PrimitiveType::Long)));
        let fields = vec![
            optional(1, "text", Type::Primitive(PrimitiveType::String)),
            optional(2, "s", Type::Struct(inner)),
            optional(5, "list", Type::List(list)),
        ];
        let ids = [Some([1u8; 16]), Some([2; 16]), Some([3; 16])].into_iter();
        let ids = FixedSizeBinaryArray::try_from_sparse_iter_with_size(ids, 16).unwrap();
        let inner: Vec<ArrayRef> = vec![Arc::new(ids), Arc::new(Int64Array::from(vec![7, 8, 9]))];
        let of = Fields::from(vec![
            Field::new("id", DataType::FixedSizeBinary(16), true),
            Field::new("n", DataType::Int64, true),
        ]);
        let nulls = arrow_buffer::NullBuffer::from(vec![true, false, true]);
        let lists = [Some(vec![Some(1), None]), Some(vec![Some(5)]), None];
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(vec![Some("a"), None, Some("\u{e9}")])),
            Arc::new(StructArray::new(of, inner, Some(nulls))),
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists)),
        ];
        (fields, columns)
    }

    #[test]
    fn rows_of_a_table_are_the_records_that_they_were() {
        let (fields, columns) = columns();
        let of = fields
            .iter()
            .map(|field| (field.name.as_str(), schema_of(field).unwrap()));
        let schema = SourceSchema::structure(of.collect::<Vec<_>>());
        let keys: ArrayRef = Arc::new(StringArray::from(vec![Some("{\"id\":1}"), Some("x"), None]));
        let keys = keys_of(&keys);
        let frame = ReplayedRows {
            topic: "t",
            partition: 3,
            rows: &[(2, 5), (0, 9), (1, 10)],
            schema: (1, &schema),
            columns: &columns,
            keys: Some((2, &keys)),
        };
        let uuid = |byte: u8| Value::text(&Uuid::from_bytes([byte; 16]).to_string());
        let row = |offset: i64, value: Vec<Value>, key: Value| {
            Row::new("t", 3, offset)
                .value(Value::Struct(value))
                .key(key)
        };
        let inner = |byte, n| Value::Struct(vec![uuid(byte), Value::Int64(n)]);
        let list = |items: Vec<Value>| Value::Array(items);
        let bytes = SourceSchema::scalar(SourceKind::Bytes).optional();
        let expected = FrameBuilder::with_value_schema(1, schema.clone())
            .key_schema(2, bytes)
            .rows([
                row(
                    5,
                    vec![Value::text("\u{e9}"), inner(3, 9), Value::Null],
                    Value::Null,
                ),
                row(
                    9,
                    vec![
                        Value::text("a"),
                        inner(1, 7),
                        list(vec![Value::Int64(1), Value::Null]),
                    ],
                    Value::Bytes(b"{\"id\":1}".to_vec()),
                ),
                row(
                    10,
                    vec![Value::Null, Value::Null, list(vec![Value::Int64(5)])],
                    Value::Null,
                ),
            ]);
        let made = frame.frame().unwrap();
        let made = Frame::decode(&made, &expected.schemas()).unwrap();
        let bytes = expected.encode();
        let expected = Frame::decode(&bytes, &expected.schemas()).unwrap();
        for row in 0..3 {
            let shown = |frame: &Frame<'_>| {
                let source = frame
                    .source(row)
                    .map(|(run, offset)| (run.partition.clone(), offset));
                format!("{source:?} {:?} {:?}", frame.value(row), frame.key(row))
            };
            assert_eq!(shown(&made), shown(&expected));
        }
        let array: LargeBinaryArray = keys.as_binary::<i64>().clone();
        assert_eq!(array.null_count(), 2, "only an object names its columns");
    }

    #[test]
    fn a_column_of_another_type_than_its_schema_is_no_frame() {
        let schema = SourceSchema::structure([("n", SourceSchema::scalar(SourceKind::Int64))]);
        let column: ArrayRef = Arc::new(arrow_array::Int16Array::from(vec![1]));
        let rows = ReplayedRows {
            topic: "t",
            partition: 0,
            rows: &[(0, 0)],
            schema: (1, &schema),
            columns: &[column],
            keys: None,
        };
        assert_eq!(rows.frame().unwrap_err().code(), "INTERNAL");
    }
}
