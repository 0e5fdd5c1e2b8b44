//! Values with a schema, stored column by column.
//!
//! A column is a null bitmap (only when it has nulls) and its values, recursively for structs,
//! lists and maps. Null rows have a zero or empty value, so a column can be copied as it is.
//!
//! Invariant: `SourceColumn::decode` checks lengths, offsets, UTF-8 and null counts; everything
//! after it is total. A null in a column whose schema forbids it is *not* an error here: Java's
//! `Struct` allows it until validated, and the converter reports it with the column's name.

use std::sync::Arc;

use super::read::{Reader, offset_at};
use super::schema::{LogicalType, SourceKind, SourceSchema};
use super::value::{ArrayCell, Cell, MapCell, StructCell};
use crate::error::{Result, SinkError};
use crate::limits::{FRAME_BYTES_MAX, NESTING_MAX};

/// Offsets of variable-length values: value `i` lies in `offsets[i]..offsets[i + 1]`.
pub type Offsets<'a> = &'a [[u8; 4]];

/// The values of a column. Fixed-width values are little-endian: `i64::from_le_bytes` and its like.
#[derive(Debug, Clone)]
pub enum ColumnData<'a> {
    /// One byte per value, 0 or 1.
    Bool(&'a [u8]),
    /// 8-bit integers.
    Int8(&'a [[u8; 1]]),
    /// 16-bit integers.
    Int16(&'a [[u8; 2]]),
    /// 32-bit integers.
    Int32(&'a [[u8; 4]]),
    /// 64-bit integers.
    Int64(&'a [[u8; 8]]),
    /// 32-bit floats.
    Float32(&'a [[u8; 4]]),
    /// 64-bit floats.
    Float64(&'a [[u8; 8]]),
    /// Days since the epoch, i32.
    Date(&'a [[u8; 4]]),
    /// Milliseconds since midnight, i32.
    Time(&'a [[u8; 4]]),
    /// Milliseconds since the epoch, i64.
    Timestamp(&'a [[u8; 8]]),
    /// Texts; every offset is a character boundary of `text`.
    String {
        /// Where each text lies.
        offsets: Offsets<'a>,
        /// All texts.
        text: &'a str,
    },
    /// Raw bytes.
    Bytes {
        /// Where each value lies.
        offsets: Offsets<'a>,
        /// All bytes.
        data: &'a [u8],
    },
    /// Unscaled big-endian two's-complement numbers; empty for null, else at least one byte.
    Decimal {
        /// Digits after the point.
        scale: i32,
        /// Where each value lies.
        offsets: Offsets<'a>,
        /// All bytes.
        data: &'a [u8],
    },
    /// One column per field, each with the rows of this column.
    Struct(Vec<SourceColumn<'a>>),
    /// Lists.
    Array {
        /// Which elements each list has.
        offsets: Offsets<'a>,
        /// The elements of all lists.
        elements: Box<SourceColumn<'a>>,
    },
    /// Maps.
    Map {
        /// Which entries each map has.
        offsets: Offsets<'a>,
        /// The keys of all maps.
        keys: Box<SourceColumn<'a>>,
        /// The values of all maps.
        values: Box<SourceColumn<'a>>,
    },
}

/// A column of a frame. A copy borrows the same values.
#[derive(Debug, Clone)]
pub struct SourceColumn<'a> {
    schema: Arc<SourceSchema>,
    rows: usize,
    validity: Option<&'a [u8]>,
    null_count: usize,
    data: ColumnData<'a>,
}

impl<'a> SourceColumn<'a> {
    pub(crate) fn decode(
        reader: &mut Reader<'a>,
        schema: &Arc<SourceSchema>,
        rows: usize,
        depth: usize,
    ) -> Result<Self> {
        if depth > NESTING_MAX {
            let message = format!("a column nests deeper than {NESTING_MAX} levels");
            return Err(SinkError::fatal("WIRE_TOO_DEEP", message));
        }
        // Structs without fields take no bytes, so the bytes alone would not bound the rows.
        if rows > FRAME_BYTES_MAX {
            return Err(reader.corrupt("column has more rows than a frame can hold"));
        }
        let null_count = reader.length()?;
        let validity = match null_count {
            0 => None,
            _ => Some(reader.take(rows.div_ceil(8))?),
        };
        let column = SourceColumn {
            schema: Arc::clone(schema),
            rows,
            validity,
            null_count,
            data: decode_data(reader, schema, rows, depth)?,
        };
        if validity.is_some_and(|bitmap| count_nulls(bitmap, rows) != null_count) {
            return Err(reader.corrupt("null count and null bitmap differ"));
        }
        column.check_decimals(reader)?;
        Ok(column)
    }

    /// Makes a column of values that are known to follow the format: `nulls` are the bitmap of rows
    /// with a value, where one is null, and how many are.
    pub(crate) fn of_parts(
        schema: &Arc<SourceSchema>,
        rows: usize,
        nulls: (Option<&'a [u8]>, usize),
        data: ColumnData<'a>,
    ) -> Self {
        let (validity, null_count) = nulls;
        SourceColumn {
            schema: Arc::clone(schema),
            rows,
            validity,
            null_count,
            data,
        }
    }

    fn check_decimals(&self, reader: &Reader<'_>) -> Result<()> {
        let ColumnData::Decimal { offsets, .. } = &self.data else {
            return Ok(());
        };
        let mut lengths = offsets
            .windows(2)
            .map(|pair| offset_at(pair, 1) != offset_at(pair, 0));
        match (0..self.rows).all(|row| lengths.next() == Some(true) || self.is_null(row)) {
            true => Ok(()),
            false => Err(reader.corrupt("decimal has no digits")),
        }
    }

    /// Returns the struct of which this is the only field: null where this is.
    pub(crate) fn in_struct(self, schema: &Arc<SourceSchema>) -> SourceColumn<'a> {
        SourceColumn {
            schema: Arc::clone(schema),
            rows: self.rows,
            validity: self.validity,
            null_count: self.null_count,
            data: ColumnData::Struct(vec![self]),
        }
    }

    /// Returns a column with the same rows and nulls, and other values of another schema.
    pub(crate) fn with_data<'b>(
        &self,
        schema: &Arc<SourceSchema>,
        data: ColumnData<'b>,
    ) -> SourceColumn<'b>
    where
        'a: 'b,
    {
        SourceColumn {
            schema: Arc::clone(schema),
            rows: self.rows,
            validity: self.validity,
            null_count: self.null_count,
            data,
        }
    }

    /// Returns the schema of the values.
    pub fn schema(&self) -> &SourceSchema {
        &self.schema
    }

    /// Returns the schema of the values, to keep it.
    pub(crate) fn shared_schema(&self) -> Arc<SourceSchema> {
        Arc::clone(&self.schema)
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns how many rows are null.
    pub fn null_count(&self) -> usize {
        self.null_count
    }

    /// Returns the bitmap of rows with a value, lowest bit first; `None` when no row is null.
    /// Bits past the last row have no meaning.
    pub fn validity(&self) -> Option<&'a [u8]> {
        self.validity
    }

    /// Tells whether `row` is null; so are rows past the end.
    #[inline]
    pub fn is_null(&self, row: usize) -> bool {
        let in_bitmap = |bitmap: &[u8]| {
            let byte = bitmap.get(row / 8).copied().unwrap_or(0);
            byte >> (row % 8) & 1 == 0
        };
        row >= self.rows || self.validity.is_some_and(in_bitmap)
    }

    /// Returns the values as they lie in the frame, for loops over whole columns.
    pub fn data(&self) -> &ColumnData<'a> {
        &self.data
    }

    /// Goes down along `path`, names joined by dots, through structs: returns the column where they end
    /// and what is left of the path there; `None` when a struct has no such field.
    pub(crate) fn descend<'c>(
        &'c self,
        mut path: &'c str,
    ) -> Option<(&'c SourceColumn<'c>, &'c str)>
    where
        'a: 'c,
    {
        let mut column = self;
        while !path.is_empty() && column.schema().kind() == SourceKind::Struct {
            let whole = column.schema().field(path).map(|(index, _)| (index, ""));
            let (index, rest) = whole.or_else(|| {
                let (head, rest) = path.split_once('.')?;
                column.schema().field(head).map(|(index, _)| (index, rest))
            })?;
            (column, path) = (column.children().get(index)?, rest);
        }
        Some((column, path))
    }

    /// Returns the columns of a struct's fields, else none.
    pub fn children(&self) -> &[SourceColumn<'a>] {
        match &self.data {
            ColumnData::Struct(children) => children,
            _ => &[],
        }
    }

    /// Returns the value of `row`, null past the end.
    pub fn cell(&self, row: usize) -> Cell<'_> {
        if self.is_null(row) {
            return Cell::Null;
        }
        match &self.data {
            ColumnData::Bool(values) => values
                .get(row)
                .map_or(Cell::Null, |value| Cell::Bool(*value != 0)),
            ColumnData::Int8(values) => Cell::Int8(i8::from_le_bytes(at(values, row))),
            ColumnData::Int16(values) => Cell::Int16(i16::from_le_bytes(at(values, row))),
            ColumnData::Int32(values) => Cell::Int32(i32::from_le_bytes(at(values, row))),
            ColumnData::Int64(values) => Cell::Int64(i64::from_le_bytes(at(values, row))),
            ColumnData::Float32(values) => Cell::Float32(f32::from_le_bytes(at(values, row))),
            ColumnData::Float64(values) => Cell::Float64(f64::from_le_bytes(at(values, row))),
            ColumnData::Date(values) => Cell::Date {
                days: i32::from_le_bytes(at(values, row)),
            },
            ColumnData::Time(values) => Cell::Time {
                ms: i32::from_le_bytes(at(values, row)),
            },
            ColumnData::Timestamp(values) => Cell::Timestamp {
                ms: i64::from_le_bytes(at(values, row)),
            },
            ColumnData::String { offsets, text } => {
                Cell::String(text.get(span(offsets, row)).unwrap_or_default())
            }
            ColumnData::Bytes { offsets, data } => {
                Cell::Bytes(data.get(span(offsets, row)).unwrap_or_default())
            }
            ColumnData::Decimal {
                scale,
                offsets,
                data,
            } => Cell::Decimal {
                unscaled: data.get(span(offsets, row)).unwrap_or_default(),
                scale: *scale,
            },
            ColumnData::Struct(_) => Cell::Struct(StructCell::new(self, row)),
            ColumnData::Array { offsets, elements } => {
                let span = span(offsets, row);
                Cell::Array(ArrayCell::of_column(elements, span.start, span.len()))
            }
            ColumnData::Map {
                offsets,
                keys,
                values,
            } => {
                let span = span(offsets, row);
                Cell::Map(MapCell::of_columns((keys, values), span.start, span.len()))
            }
        }
    }
}

/// Returns the bytes of value `row`; `decode` made sure that there are as many as rows.
fn at<const N: usize>(values: &[[u8; N]], row: usize) -> [u8; N] {
    values.get(row).copied().unwrap_or([0; N])
}

/// Returns where value `row` lies.
pub fn span(offsets: Offsets<'_>, row: usize) -> std::ops::Range<usize> {
    offset_at(offsets, row)..offset_at(offsets, row + 1)
}

fn count_nulls(bitmap: &[u8], rows: usize) -> usize {
    let (whole, rest) = bitmap.split_at(bitmap.len().min(rows / 8));
    let valid: usize = whole.iter().map(|byte| byte.count_ones() as usize).sum();
    let mask = (1u16 << (rows % 8)) - 1;
    let last = rest
        .first()
        .map_or(0, |byte| (u16::from(*byte) & mask).count_ones() as usize);
    rows.saturating_sub(valid + last)
}

fn decode_data<'a>(
    reader: &mut Reader<'a>,
    schema: &Arc<SourceSchema>,
    rows: usize,
    depth: usize,
) -> Result<ColumnData<'a>> {
    if let Some(logical) = schema.logical() {
        return decode_logical(reader, logical, rows);
    }
    Ok(match schema.kind() {
        SourceKind::Int8 => ColumnData::Int8(reader.array(rows)?),
        SourceKind::Int16 => ColumnData::Int16(reader.array(rows)?),
        SourceKind::Int32 => ColumnData::Int32(reader.array(rows)?),
        SourceKind::Int64 => ColumnData::Int64(reader.array(rows)?),
        SourceKind::Float32 => ColumnData::Float32(reader.array(rows)?),
        SourceKind::Float64 => ColumnData::Float64(reader.array(rows)?),
        SourceKind::Boolean => {
            let values = reader.take(rows)?;
            // All of them are looked at, so that it takes many at a time.
            if values.iter().fold(0, |all, value| all | value) > 1 {
                return Err(reader.corrupt("boolean is neither 0 nor 1"));
            }
            ColumnData::Bool(values)
        }
        SourceKind::String => {
            let (offsets, length) = reader.offsets(rows)?;
            let text = std::str::from_utf8(reader.take(length)?)
                .map_err(|_| reader.corrupt("text is not UTF-8"))?;
            if !text.is_ascii()
                && !(0..offsets.len()).all(|index| text.is_char_boundary(offset_at(offsets, index)))
            {
                return Err(reader.corrupt("text offset lies inside a character"));
            }
            ColumnData::String { offsets, text }
        }
        SourceKind::Bytes => {
            let (offsets, length) = reader.offsets(rows)?;
            ColumnData::Bytes {
                offsets,
                data: reader.take(length)?,
            }
        }
        SourceKind::Struct => {
            let fields = schema.fields().iter();
            let children = fields
                .map(|field| SourceColumn::decode(reader, &field.schema, rows, depth + 1))
                .collect::<Result<_>>()?;
            ColumnData::Struct(children)
        }
        SourceKind::Array => {
            let (offsets, length) = reader.offsets(rows)?;
            let elements = decode_child(reader, schema.value(), length, depth)?;
            ColumnData::Array { offsets, elements }
        }
        SourceKind::Map => {
            let (offsets, length) = reader.offsets(rows)?;
            let keys = decode_child(reader, schema.key(), length, depth)?;
            let values = decode_child(reader, schema.value(), length, depth)?;
            ColumnData::Map {
                offsets,
                keys,
                values,
            }
        }
    })
}

fn decode_logical<'a>(
    reader: &mut Reader<'a>,
    logical: LogicalType,
    rows: usize,
) -> Result<ColumnData<'a>> {
    Ok(match logical {
        LogicalType::Decimal { scale } => {
            let (offsets, length) = reader.offsets(rows)?;
            let data = reader.take(length)?;
            ColumnData::Decimal {
                scale,
                offsets,
                data,
            }
        }
        LogicalType::Date => ColumnData::Date(reader.array(rows)?),
        LogicalType::Time => ColumnData::Time(reader.array(rows)?),
        LogicalType::Timestamp => ColumnData::Timestamp(reader.array(rows)?),
    })
}

fn decode_child<'a>(
    reader: &mut Reader<'a>,
    schema: Option<&Arc<SourceSchema>>,
    rows: usize,
    depth: usize,
) -> Result<Box<SourceColumn<'a>>> {
    let schema = schema.ok_or_else(|| reader.corrupt("schema has no element schema"))?;
    Ok(Box::new(SourceColumn::decode(
        reader,
        schema,
        rows,
        depth + 1,
    )?))
}
