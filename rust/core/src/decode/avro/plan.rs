//! What to do with the bytes of one writer schema, compiled once: which bytes go to which column.
//!
//! The plan is a tree in the shape of the columns. Its depth is that of the Connect schema, which
//! is bounded, so decoding recurses no deeper than that whatever the bytes say.

use super::connect;
use super::schema::{AvroField, AvroSchema, Shape, TypeId};
use crate::decode::bytes::Cursor;
use crate::decode::columns::{Budget, ColumnBuilder};
use crate::decode::refused::Refused;
use crate::error::{Result, SinkError};
use crate::limits::NESTING_MAX;

/// How the bytes of a type become values of a column.
#[derive(Debug)]
pub(crate) enum Plan {
    Boolean,
    Int,
    Int8,
    Int16,
    Long,
    Float,
    Double,
    Bytes,
    Text,
    Decimal,
    Fixed(usize),
    FixedDecimal(usize),
    FixedUuid,
    Enum(Vec<Box<str>>),
    Array(Box<Plan>),
    /// A map whose keys are text.
    Map(Box<Plan>),
    /// A list of entries with keys of another type.
    Entries(Box<[Plan; 2]>),
    Record(Vec<(Box<str>, Plan)>),
    /// A union of null and one type; which of them is null.
    Nullable {
        null: u8,
        plan: Box<Plan>,
    },
    /// A union of one type.
    Only(Box<Plan>),
    /// A union of several types: a struct with a field for each that is not null.
    Union(Vec<Option<(usize, Plan)>>),
}

/// Compiles the plan of `id`.
pub(crate) fn compile(schema: &AvroSchema, id: TypeId, depth: usize) -> Result<Plan> {
    if depth > NESTING_MAX {
        let message = format!("an Avro schema nests deeper than {NESTING_MAX} levels");
        return Err(SinkError::data("SCHEMA_TOO_DEEP", message));
    }
    let of = schema.get(id)?;
    let inner = |id: TypeId| compile(schema, id, depth + 1).map(Box::new);
    let is_decimal = of
        .text("logicalType")
        .is_some_and(|logical| logical.eq_ignore_ascii_case("decimal"))
        || of.text("connect.name") == Some(crate::wire::schema::logical_names::DECIMAL);
    Ok(match &of.shape {
        Shape::Null | Shape::Open => {
            return Err(SinkError::internal(
                "an Avro type without a column has a plan",
            ));
        }
        Shape::Boolean => Plan::Boolean,
        // A logical type leaves an int its 32 bits.
        Shape::Int => match (of.text("logicalType"), of.text("connect.type")) {
            (None, Some("int8")) => Plan::Int8,
            (None, Some("int16")) => Plan::Int16,
            _ => Plan::Int,
        },
        Shape::Long => Plan::Long,
        Shape::Float => Plan::Float,
        Shape::Double => Plan::Double,
        Shape::Bytes if is_decimal => Plan::Decimal,
        Shape::Bytes => Plan::Bytes,
        Shape::String => Plan::Text,
        Shape::Fixed(size) if connect::is_uuid_fixed(of, *size) => Plan::FixedUuid,
        Shape::Fixed(size) if is_decimal => Plan::FixedDecimal(*size),
        Shape::Fixed(size) => Plan::Fixed(*size),
        Shape::Enum(symbols) => Plan::Enum(
            symbols
                .iter()
                .map(|symbol| symbol.as_str().into())
                .collect(),
        ),
        Shape::Array(items) => match connect::map_entry(schema, *items)? {
            Some([key, value]) => Plan::Entries(Box::new([
                compile(schema, key, depth + 1)?,
                compile(schema, value, depth + 1)?,
            ])),
            None => Plan::Array(inner(*items)?),
        },
        Shape::Map(values) => Plan::Map(inner(*values)?),
        Shape::Record(fields) => {
            let field = |field: &AvroField| {
                let plan = compile(schema, field.of, depth + 1)?;
                Ok((field.name.as_str().into(), plan))
            };
            Plan::Record(fields.iter().map(field).collect::<Result<_>>()?)
        }
        Shape::Union(members) => union(schema, members, depth)?,
    })
}

fn union(schema: &AvroSchema, members: &[TypeId], depth: usize) -> Result<Plan> {
    if let Some(only) = connect::only_member(schema, members)? {
        let plan = Box::new(compile(schema, only, depth + 1)?);
        return Ok(match members {
            [_] => Plan::Only(plan),
            _ => Plan::Nullable {
                null: u8::from(members.first() == Some(&only)),
                plan,
            },
        });
    }
    let mut plans = Vec::with_capacity(members.len());
    let mut field = 0;
    for member in members {
        if matches!(schema.get(*member)?.shape, Shape::Null) {
            plans.push(None);
        } else {
            plans.push(Some((field, compile(schema, *member, depth + 1)?)));
            field += 1;
        }
    }
    Ok(Plan::Union(plans))
}

/// What decoding needs beside plan and bytes. Its memory serves record after record.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Where the keys of the maps at hand lie.
    keys: Vec<(usize, usize)>,
}

impl Scratch {
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
    }
}

/// The bytes of a record on their way into columns.
pub(crate) struct Decoding<'d> {
    pub(crate) bytes: &'d [u8],
    pub(crate) cursor: Cursor<'d>,
    pub(crate) budget: &'d mut Budget,
    pub(crate) scratch: &'d mut Scratch,
}

impl Decoding<'_> {
    /// Moves one value from the bytes to `column`.
    pub(crate) fn value(&mut self, plan: &Plan, column: &mut ColumnBuilder) -> Result<(), Refused> {
        let cursor = &mut self.cursor;
        match plan {
            Plan::Boolean => match cursor.u8()? {
                0 => column.push_bool(false),
                1 => column.push_bool(true),
                _ => return Err(cursor.bad("a boolean is neither 0 nor 1")),
            },
            Plan::Int => column.push_i32(cursor.zigzag32()?),
            Plan::Int8 => column.push_i8(narrow(cursor)?),
            Plan::Int16 => column.push_i16(narrow(cursor)?),
            Plan::Long => column.push_i64(cursor.zigzag()?),
            Plan::Float => column.push_f32(f32::from_le_bytes(cursor.array()?)),
            Plan::Double => column.push_f64(f64::from_le_bytes(cursor.array()?)),
            Plan::Bytes => column.push_bytes(take(cursor)?),
            Plan::Text => column.push_str(text(cursor)?),
            Plan::Decimal => column.push_bytes(digits(cursor, None)?),
            Plan::Fixed(size) => column.push_bytes(cursor.take(*size)?),
            Plan::FixedDecimal(size) => column.push_bytes(digits(cursor, Some(*size))?),
            Plan::FixedUuid => {
                let uuid = uuid::Uuid::from_bytes(cursor.array()?);
                let mut buffer = [0; uuid::fmt::Hyphenated::LENGTH];
                column.push_str(uuid.as_hyphenated().encode_lower(&mut buffer));
            }
            Plan::Enum(symbols) => {
                let symbol = usize::try_from(cursor.zigzag32()?).ok();
                let symbol = symbol.and_then(|symbol| symbols.get(symbol));
                column.push_str(symbol.ok_or_else(|| cursor.bad("an enum has no such symbol"))?);
            }
            Plan::Array(items) => return self.array(items, column),
            Plan::Map(values) => return self.map(None, values, column),
            Plan::Entries(entry) => {
                let [key, value] = &**entry;
                return self.map(Some(key), value, column);
            }
            Plan::Record(fields) => return self.record(fields, column),
            Plan::Nullable { null, plan } => {
                match cursor.varint()? {
                    // The index of a member is 0 or 1, and travels twice as large.
                    index if index == u64::from(*null) * 2 => column.push_null(),
                    0 | 2 => return self.value(plan, column),
                    _ => return Err(cursor.bad("a union has no such type")),
                }
            }
            Plan::Only(plan) => match cursor.varint()? {
                0 => return self.value(plan, column),
                _ => return Err(cursor.bad("a union has no such type")),
            },
            Plan::Union(members) => return self.union(members, column),
        }
        Ok(())
    }

    fn record(
        &mut self,
        fields: &[(Box<str>, Plan)],
        column: &mut ColumnBuilder,
    ) -> Result<(), Refused> {
        for (index, (name, plan)) in fields.iter().enumerate() {
            let field = column.field(index).ok_or_else(Refused::internal)?;
            if let Err(refused) = self.value(plan, field) {
                return Err(refused.inside(name));
            }
        }
        column.end_struct();
        Ok(())
    }

    fn union(
        &mut self,
        members: &[Option<(usize, Plan)>],
        column: &mut ColumnBuilder,
    ) -> Result<(), Refused> {
        let index = usize::try_from(self.cursor.zigzag32()?).ok();
        let member = index.and_then(|index| members.get(index));
        match member.ok_or_else(|| self.cursor.bad("a union has no such type"))? {
            None => column.push_null(),
            Some((field, plan)) => {
                let member = column.field(*field).ok_or_else(Refused::internal)?;
                self.value(plan, member)?;
                column.end_struct();
            }
        }
        Ok(())
    }

    fn array(&mut self, items: &Plan, column: &mut ColumnBuilder) -> Result<(), Refused> {
        loop {
            let count = self.block()?;
            if count == 0 {
                column.end_list();
                return Ok(());
            }
            for _ in 0..count {
                let element = column.element(self.budget)?;
                if let Err(refused) = self.value(items, element) {
                    return Err(refused.inside("element"));
                }
            }
        }
    }

    fn map(
        &mut self,
        keys: Option<&Plan>,
        values: &Plan,
        column: &mut ColumnBuilder,
    ) -> Result<(), Refused> {
        let first = self.scratch.keys.len();
        loop {
            let count = self.block()?;
            if count == 0 {
                break;
            }
            for _ in 0..count {
                let start = self.cursor.position();
                let (key, value) = column.entry(self.budget)?;
                match keys {
                    None => key.push_str(text(&mut self.cursor)?),
                    Some(plan) => self
                        .value(plan, key)
                        .map_err(|refused| refused.inside("key"))?,
                }
                self.scratch.keys.push((start, self.cursor.position()));
                if let Err(refused) = self.value(values, value) {
                    return Err(refused.inside("value"));
                }
            }
        }
        self.check_keys(first)?;
        column.end_map();
        Ok(())
    }

    /// Refuses a map with one key twice: which of the values counts is nowhere said.
    fn check_keys(&mut self, first: usize) -> Result<(), Refused> {
        let bytes = self.bytes;
        let at = |(start, end): &(usize, usize)| bytes.get(*start..*end);
        let keys = self.scratch.keys.get_mut(first..).unwrap_or_default();
        keys.sort_unstable_by(|left, right| at(left).cmp(&at(right)));
        let twice = keys
            .windows(2)
            .any(|pair| matches!(pair, [left, right] if at(left) == at(right)));
        self.scratch.keys.truncate(first);
        match twice {
            false => Ok(()),
            true => Err(self.cursor.bad("a map has one key twice")),
        }
    }

    /// Reads how many items follow; 0 ends the list or map.
    fn block(&mut self) -> Result<u64, Refused> {
        let count = self.cursor.zigzag()?;
        if count < 0 {
            // Whoever wants to skip the block finds its length here.
            self.cursor.length()?;
        }
        Ok(count.unsigned_abs())
    }
}

fn narrow<T: TryFrom<i32>>(cursor: &mut Cursor<'_>) -> Result<T, Refused> {
    let value = cursor.zigzag32()?;
    T::try_from(value).map_err(|_| cursor.bad("a number is outside of its `connect.type`"))
}

fn take<'d>(cursor: &mut Cursor<'d>) -> Result<&'d [u8], Refused> {
    let length = cursor.length()?;
    cursor.take(length)
}

fn text<'d>(cursor: &mut Cursor<'d>) -> Result<&'d str, Refused> {
    let bytes = take(cursor)?;
    std::str::from_utf8(bytes).map_err(|_| cursor.bad("text is not UTF-8"))
}

fn digits<'d>(cursor: &mut Cursor<'d>, size: Option<usize>) -> Result<&'d [u8], Refused> {
    let digits = match size {
        None => take(cursor)?,
        Some(size) => cursor.take(size)?,
    };
    match digits.is_empty() {
        false => Ok(digits),
        true => Err(cursor.bad("a decimal has no digits")),
    }
}
