//! What to do with the bytes of one message type, compiled once: which field goes to which column.
//!
//! Fields come in any order and may repeat: of one value the last counts, elements add up, and a
//! message that comes in pieces is the pieces one after the other. So lists are ended, and missing
//! fields filled, when the whole message was read.
//!
//! Stricter than Java's parser: a field of another wire type than its own, and a number outside of
//! its type, are refused, not skipped or cut.

use std::hash::{DefaultHasher, Hasher};

use super::types::Scalar;
use super::value::{self, Wire};
use crate::decode::bytes::{Cursor, malformed};
use crate::decode::columns::{Budget, ColumnBuilder};
use crate::decode::refused::Refused;

/// How often a message may come in pieces, per record: putting them together costs their bytes each
/// time.
const PIECES_MAX: usize = 64;

/// How the bytes of one message become a struct.
#[derive(Debug)]
pub(super) struct MessagePlan {
    fields: Vec<FieldPlan>,
    /// The index of each field by its number, sorted by numbers.
    by_number: Vec<(u32, usize)>,
    oneofs: usize,
}

#[derive(Debug)]
pub(super) struct FieldPlan {
    pub(super) number: u32,
    pub(super) name: Box<str>,
    pub(super) slot: Slot,
    pub(super) kind: Kind,
    pub(super) mode: Mode,
}

/// Where the values of a field go.
#[derive(Debug, Clone, Copy)]
pub(super) enum Slot {
    Column(usize),
    Member { oneof: usize, member: usize },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Without the field, the default of its type; null for a message.
    Implicit,
    /// Without the field, null.
    Optional,
    /// Without the field, an error.
    Required,
    Repeated,
    /// Entries with keys of a type.
    Map(Scalar),
}

/// What the values of a field are.
#[derive(Debug)]
pub(super) enum Kind {
    Scalar(Scalar),
    Int8(Scalar),
    Int16(Scalar),
    Enum {
        name: Box<str>,
        /// The number of the first value, which is the default.
        first: i32,
        symbols: Vec<(i32, Box<str>)>,
        is_closed: bool,
    },
    Message(MessagePlan),
    /// `google.protobuf.Timestamp`, as nanoseconds.
    Timestamp,
    /// `google.type.Date`.
    Date,
    /// `google.type.TimeOfDay`, as nanoseconds.
    TimeOfDay,
    /// `confluent.type.Decimal` at a scale.
    Decimal(i32),
    /// A message of one value, such as `google.protobuf.Int64Value`.
    Wrapper(Scalar),
}

impl Kind {
    /// Returns the wire type of a value.
    fn wire(&self) -> Wire {
        match self {
            Kind::Scalar(scalar) | Kind::Int8(scalar) | Kind::Int16(scalar) => value::wire(*scalar),
            Kind::Enum { .. } => Wire::Varint,
            _ => Wire::Bytes,
        }
    }

    fn has_default(&self) -> bool {
        matches!(
            self,
            Kind::Scalar(_) | Kind::Int8(_) | Kind::Int16(_) | Kind::Enum { .. }
        )
    }
}

impl MessagePlan {
    pub(super) fn new(fields: Vec<FieldPlan>, oneofs: usize) -> Self {
        let numbers = fields.iter().enumerate();
        let mut by_number: Vec<_> = numbers
            .map(|(index, field)| (field.number, index))
            .collect();
        by_number.sort_unstable();
        MessagePlan {
            fields,
            by_number,
            oneofs,
        }
    }

    /// Finds the field with a number; `guess` is where it is likely to be among the numbers.
    #[inline]
    fn find(&self, number: u32, guess: usize) -> Option<(usize, &FieldPlan)> {
        let at = match self.by_number.get(guess) {
            Some((known, _)) if *known == number => guess,
            _ => self
                .by_number
                .binary_search_by_key(&number, |(number, _)| *number)
                .ok()?,
        };
        let (_, index) = self.by_number.get(at)?;
        Some((at, self.fields.get(*index)?))
    }
}

/// What decoding needs beside plan and bytes. Its memory serves record after record.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// The number of a map's field, and a hash of each key of it, of the messages at hand.
    keys: Vec<(u32, u64)>,
    pieces: usize,
}

impl Scratch {
    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.pieces = 0;
    }
}

/// A record on its way into columns.
pub(super) struct Decoding<'d> {
    pub(super) budget: &'d mut Budget,
    pub(super) scratch: &'d mut Scratch,
}

impl Decoding<'_> {
    /// Moves the value that `bytes` are, whole, to `column`.
    pub(super) fn whole(
        &mut self,
        kind: &Kind,
        bytes: &[u8],
        column: &mut ColumnBuilder,
    ) -> Result<(), Refused> {
        match kind {
            Kind::Message(plan) => self.message(plan, bytes, column),
            Kind::Timestamp => {
                column.push_i64(value::timestamp(bytes)?);
                Ok(())
            }
            Kind::Date => {
                column.push_i32(value::date(bytes)?);
                Ok(())
            }
            Kind::TimeOfDay => {
                column.push_i64(value::time_of_day(bytes)?);
                Ok(())
            }
            Kind::Decimal(scale) => value::decimal(bytes, *scale, column),
            Kind::Wrapper(scalar) => value::wrapper(*scalar, bytes, column),
            Kind::Scalar(_) | Kind::Int8(_) | Kind::Int16(_) | Kind::Enum { .. } => {
                Err(Refused::internal())
            }
        }
    }

    fn message(
        &mut self,
        plan: &MessagePlan,
        bytes: &[u8],
        column: &mut ColumnBuilder,
    ) -> Result<(), Refused> {
        let first_key = self.scratch.keys.len();
        let mut cursor = Cursor::new(bytes);
        let mut guess = 0;
        while cursor.remaining() > 0 {
            let (number, wire) = value::tag(&mut cursor)?;
            let Some((at, field)) = plan.find(number, guess) else {
                value::skip(&mut cursor, number, wire)?;
                continue;
            };
            guess = match field.mode {
                Mode::Repeated | Mode::Map(_) => at,
                _ => at + 1,
            };
            self.field(field, wire, (&mut cursor, bytes), column)
                .map_err(|refused| refused.inside(&field.name))?;
        }
        self.finish(plan, column, first_key)
    }

    fn field(
        &mut self,
        field: &FieldPlan,
        wire: Wire,
        (cursor, message): (&mut Cursor<'_>, &[u8]),
        column: &mut ColumnBuilder,
    ) -> Result<(), Refused> {
        match (field.mode, field.slot) {
            (Mode::Repeated, Slot::Column(index)) => {
                let list = column.field(index).ok_or_else(Refused::internal)?;
                self.elements(&field.kind, wire, cursor, list)
            }
            (Mode::Map(key), Slot::Column(index)) => {
                let map = column.field(index).ok_or_else(Refused::internal)?;
                check_wire(wire, Wire::Bytes, cursor)?;
                let (bytes, start) = value::counted(cursor)?;
                self.entry(field, key, bytes, map)
                    .map_err(|refused| refused.behind(start))
            }
            (_, Slot::Column(index)) => {
                check_wire(wire, field.kind.wire(), cursor)?;
                if column.has_field(index) && !field.kind.has_default() {
                    return self.pieces(field, index, (cursor, message), column);
                }
                let target = column.field_anew(index).ok_or_else(Refused::internal)?;
                self.value(&field.kind, cursor, target)
            }
            (_, Slot::Member { oneof, member }) => {
                check_wire(wire, field.kind.wire(), cursor)?;
                let union = column.field(oneof).ok_or_else(Refused::internal)?;
                if union.has_field(member) && !field.kind.has_default() {
                    return Err(cursor.bad("a member of a oneof comes in pieces"));
                }
                for other in 0..union.field_count() {
                    if union.has_field(other) {
                        union.field_anew(other);
                    }
                }
                let target = union.field(member).ok_or_else(Refused::internal)?;
                self.value(&field.kind, cursor, target)
            }
        }
    }

    /// Decodes a message that came before, too: all pieces so far, one after the other.
    fn pieces(
        &mut self,
        field: &FieldPlan,
        index: usize,
        (cursor, message): (&mut Cursor<'_>, &[u8]),
        column: &mut ColumnBuilder,
    ) -> Result<(), Refused> {
        self.scratch.pieces += 1;
        if self.scratch.pieces > PIECES_MAX {
            return Err(cursor.bad("messages come in too many pieces"));
        }
        value::counted(cursor)?;
        let mut whole = Vec::new();
        let mut again = Cursor::new(message);
        while again.position() < cursor.position() {
            let (number, wire) = value::tag(&mut again)?;
            match number == field.number && wire == Wire::Bytes {
                true => whole.extend_from_slice(value::counted(&mut again)?.0),
                false => value::skip(&mut again, number, wire)?,
            }
        }
        let target = column.field_anew(index).ok_or_else(Refused::internal)?;
        self.whole(&field.kind, &whole, target)
    }

    fn value(
        &mut self,
        kind: &Kind,
        cursor: &mut Cursor<'_>,
        column: &mut ColumnBuilder,
    ) -> Result<(), Refused> {
        match kind {
            Kind::Scalar(scalar) => value::scalar(*scalar, cursor, column),
            Kind::Int8(scalar) => {
                let number = value::int32(*scalar, cursor)?;
                let number = i8::try_from(number).map_err(|_| value::out_of_range(cursor))?;
                column.push_i8(number);
                Ok(())
            }
            Kind::Int16(scalar) => {
                let number = value::int32(*scalar, cursor)?;
                let number = i16::try_from(number).map_err(|_| value::out_of_range(cursor))?;
                column.push_i16(number);
                Ok(())
            }
            Kind::Enum { .. } => {
                let number = value::int32(Scalar::Int32, cursor)?;
                symbol(kind, number, cursor, column)
            }
            _ => {
                let (bytes, start) = value::counted(cursor)?;
                self.whole(kind, bytes, column)
                    .map_err(|refused| refused.behind(start))
            }
        }
    }

    fn elements(
        &mut self,
        kind: &Kind,
        wire: Wire,
        cursor: &mut Cursor<'_>,
        list: &mut ColumnBuilder,
    ) -> Result<(), Refused> {
        let own = kind.wire();
        if wire == own {
            let element = list.element(self.budget)?;
            return self.value(kind, cursor, element);
        }
        // Numbers may stand together behind one length.
        check_wire(wire, Wire::Bytes, cursor)?;
        let (bytes, start) = value::counted(cursor)?;
        let mut packed = Cursor::new(bytes);
        while packed.remaining() > 0 {
            let element = list.element(self.budget)?;
            self.value(kind, &mut packed, element)
                .map_err(|refused| refused.behind(start))?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        field: &FieldPlan,
        key: Scalar,
        bytes: &[u8],
        map: &mut ColumnBuilder,
    ) -> Result<(), Refused> {
        let (mut key_at, mut value_at) = (None, None);
        let mut cursor = Cursor::new(bytes);
        while cursor.remaining() > 0 {
            let (number, wire) = value::tag(&mut cursor)?;
            let own = match number {
                1 => Some((&mut key_at, value::wire(key))),
                2 => Some((&mut value_at, field.kind.wire())),
                _ => None,
            };
            if let Some((at, own)) = own {
                check_wire(wire, own, &cursor)?;
                *at = Some(cursor.clone());
            }
            value::skip(&mut cursor, number, wire)?;
        }
        let (keys, values) = map.entry(self.budget)?;
        let hash = match &mut key_at {
            Some(cursor) => {
                let before = cursor.clone();
                value::scalar(key, cursor, keys)?;
                key_hash(key, before)?
            }
            None => {
                value::default(key, keys);
                key_hash(key, Cursor::new(&[]))?
            }
        };
        self.scratch.keys.push((field.number, hash));
        match &mut value_at {
            Some(cursor) => self.value(&field.kind, cursor, values),
            None if field.kind.has_default() => push_default(&field.kind, values),
            None => self.whole(&field.kind, &[], values),
        }
        .map_err(|refused| refused.inside("value"))
    }

    /// Ends lists and maps, fills what did not come, and ends the struct.
    fn finish(
        &mut self,
        plan: &MessagePlan,
        column: &mut ColumnBuilder,
        first_key: usize,
    ) -> Result<(), Refused> {
        for field in &plan.fields {
            let Slot::Column(index) = field.slot else {
                continue;
            };
            let is_missing = !column.has_field(index);
            let target = column.field(index).ok_or_else(Refused::internal)?;
            match field.mode {
                Mode::Repeated => target.end_list(),
                Mode::Map(_) => target.end_map(),
                Mode::Implicit if is_missing && field.kind.has_default() => {
                    push_default(&field.kind, target)?;
                }
                Mode::Required if is_missing => {
                    let refused = malformed("a required field is missing");
                    return Err(refused.inside(&field.name));
                }
                Mode::Implicit | Mode::Optional | Mode::Required => {}
            }
        }
        for oneof in 0..plan.oneofs {
            let union = column.field(oneof).ok_or_else(Refused::internal)?;
            if (0..union.field_count()).any(|member| union.has_field(member)) {
                union.end_struct();
            }
        }
        column.end_struct();
        self.check_keys(first_key)
    }

    /// Refuses a map with one key twice: a writer puts each of its keys there once.
    fn check_keys(&mut self, first: usize) -> Result<(), Refused> {
        let keys = self.scratch.keys.get_mut(first..).unwrap_or_default();
        keys.sort_unstable();
        let twice = keys.windows(2).any(|pair| matches!(pair, [a, b] if a == b));
        self.scratch.keys.truncate(first);
        match twice {
            false => Ok(()),
            true => Err(malformed("a map has one key twice")),
        }
    }
}

fn check_wire(wire: Wire, own: Wire, cursor: &Cursor<'_>) -> Result<(), Refused> {
    match wire == own {
        true => Ok(()),
        false => Err(cursor.bad("a field has another wire type than its type in the schema")),
    }
}

fn push_default(kind: &Kind, column: &mut ColumnBuilder) -> Result<(), Refused> {
    match kind {
        Kind::Scalar(scalar) => value::default(*scalar, column),
        Kind::Int8(_) => column.push_i8(0),
        Kind::Int16(_) => column.push_i16(0),
        Kind::Enum { first, .. } => return symbol(kind, *first, &Cursor::new(&[]), column),
        _ => return Err(Refused::internal()),
    }
    Ok(())
}

/// Pushes the name of an enum's number.
fn symbol(
    kind: &Kind,
    number: i32,
    cursor: &Cursor<'_>,
    column: &mut ColumnBuilder,
) -> Result<(), Refused> {
    let Kind::Enum {
        name,
        symbols,
        is_closed,
        ..
    } = kind
    else {
        return Err(Refused::internal());
    };
    let found = symbols.binary_search_by_key(&number, |(number, _)| *number);
    match found.ok().and_then(|at| symbols.get(at)) {
        Some((_, symbol)) => column.push_str(symbol),
        None if *is_closed => return Err(cursor.bad("an enum has no such value")),
        // As Java calls a value that its schema does not know.
        None => column.push_str(&format!("UNKNOWN_ENUM_VALUE_{name}_{number}")),
    }
    Ok(())
}

/// Returns a number that tells keys of one map apart: the key where it is a number, else 64 bits of
/// its text.
fn key_hash(key: Scalar, mut cursor: Cursor<'_>) -> Result<u64, Refused> {
    if key == Scalar::Text {
        let bytes = match cursor.remaining() {
            0 => &[],
            _ => value::counted(&mut cursor)?.0,
        };
        let mut hasher = DefaultHasher::new();
        hasher.write(bytes);
        return Ok(hasher.finish());
    }
    if cursor.remaining() == 0 {
        return Ok(0);
    }
    match value::wire(key) {
        Wire::Varint => cursor.varint(),
        Wire::Fixed32 => cursor.array().map(u32::from_le_bytes).map(u64::from),
        _ => cursor.array().map(u64::from_le_bytes),
    }
}
