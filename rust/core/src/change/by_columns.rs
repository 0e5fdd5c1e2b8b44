//! The order of changes by columns of their rows, as bytes that compare as the values of the columns do.
//!
//! | class of the column | bytes |
//! |---|---|
//! | integer, time | 8, the sign turned |
//! | decimal, moment | 16, the sign turned |
//! | boolean, fixed, uuid | as they are |
//! | text, bytes | as they are, 0 as 0 255, and 0 0 at the end |
//!
//! What counts is the value that the row has in the table, not how the record writes it: a source may send
//! all its values as texts, and times in any zone. Orders by other columns, or by other classes of the same,
//! say nothing about each other; a promotion of a column stays in its class.

use std::fmt::Write as _;

use iceberg::spec::{Schema, Type};

use super::columns::ColumnNames;
use super::domain::Domain;
use super::envelope::Op;
use super::key::{Class, Read, Scratch, read};
use super::keyed::KeySource;
use super::order::{Ordered, finish, put_mark};
use crate::convert::Misfit;
use crate::error::{Result, SinkError};
use crate::schema::names::NameRules;
use crate::wire::Frame;

/// The columns that order changes, most significant first.
#[derive(Debug, Default)]
pub(super) struct OrderColumns {
    columns: Vec<(String, Option<Class>)>,
    names: Vec<ColumnNames>,
    /// What has to be equal for two orders to be compared.
    fingerprint: String,
}

impl OrderColumns {
    /// Finds the columns `paths`, by their ids, in a table.
    ///
    /// # Errors
    ///
    /// `CHANGE_ORDER_UNSUPPORTED` for a column whose values have no order.
    pub(super) fn of<'p>(
        schema: &Schema,
        found: impl IntoIterator<Item = (&'p str, Option<i32>)>,
        rules: NameRules<'_>,
    ) -> Result<OrderColumns> {
        let mut order = OrderColumns::default();
        for (path, id) in found {
            let Some(field) = id.and_then(|id| schema.field_by_id(id)) else {
                // It may come with a record; until then none has it.
                order.columns.push((path.to_owned(), None));
                order.names.push(ColumnNames::nowhere());
                continue;
            };
            let class = match field.field_type.as_ref() {
                Type::Primitive(primitive) => Class::of(primitive),
                _ => None,
            };
            let class = class.ok_or_else(|| unsupported(path, &field.field_type))?;
            let _ = write!(order.fingerprint, " {}:", field.id);
            class.write_name(&mut order.fingerprint);
            order.columns.push((path.to_owned(), Some(class)));
            order.names.push(ColumnNames::of(schema, field.id, rules)?);
        }
        Ok(order)
    }

    /// Tells whether changes are ordered by their own source.
    pub(super) fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Returns where the columns may stand in records.
    pub(super) fn names(&self) -> &[ColumnNames] {
        &self.names
    }

    /// Appends the order of a record to `out`; `false`, and nothing, when it has none. The rows of deletes
    /// are in `deleted` where they are known to be whole: sources make up the values that they do not have.
    ///
    /// # Errors
    ///
    /// `CHANGE_ORDER_MISSING` for a new row without a value, and the codes of values that do not fit.
    pub(super) fn write<'f>(
        &self,
        (after, deleted): (&KeySource<'f>, Option<&KeySource<'f>>),
        (frame, epoch): (&'f Frame<'f>, &str),
        record: Ordered,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let is_upsert = record.op.is_upsert();
        let source = match (is_upsert, record.op) {
            (true, _) => Some(after),
            (false, Op::Truncate) => None,
            (false, _) => deleted,
        };
        let Some(source) = source else {
            return Ok(false);
        };
        let start = out.len();
        let mut domain = Domain::new();
        domain.text(epoch);
        domain.text(&self.fingerprint);
        out.extend_from_slice(&[0; Domain::BYTES]);
        for (index, (path, class)) in self.columns.iter().enumerate() {
            let (cell, semantic) = source.cell(frame, record.row, index);
            let Some(class) = class.filter(|_| !cell.is_null()) else {
                out.truncate(start);
                return match is_upsert {
                    true => Err(missing(path)),
                    false => Ok(false),
                };
            };
            match read(class, cell, semantic, scratch) {
                Ok(Some(read)) => put(class, read, &scratch.bytes, out),
                Ok(None) => {}
                Err(reason) => {
                    out.truncate(start);
                    return Err(Misfit::new(reason, cell.type_name()).inside(path).into());
                }
            }
        }
        put_mark(record.op, out);
        finish(out, start, domain)
    }
}

fn put(class: Class, read: Read, bytes: &[u8], out: &mut Vec<u8>) {
    match read {
        Read::Number(number) => match (class, i64::try_from(number)) {
            (Class::Int | Class::Long | Class::Time, Ok(number)) => {
                out.extend_from_slice(&(number ^ i64::MIN).to_be_bytes());
            }
            _ => out.extend_from_slice(&(number ^ i128::MIN).to_be_bytes()),
        },
        Read::Bytes if class.is_fixed() => out.extend_from_slice(bytes),
        Read::Bytes => {
            // Escaped and ended, so that a longer value never runs into the column behind it.
            for byte in bytes {
                out.push(*byte);
                if *byte == 0 {
                    out.push(0xFF);
                }
            }
            out.extend_from_slice(&[0, 0]);
        }
    }
}

fn missing(path: &str) -> SinkError {
    SinkError::data(
        "CHANGE_ORDER_MISSING",
        "the record has no value for a column that orders the changes",
    )
    .with("column", path)
}

fn unsupported(path: &str, field_type: &Type) -> SinkError {
    let message = format!(
        "column `{path}` of type {field_type} cannot order changes: use whole numbers, decimals, \
         dates, times, texts, bytes or UUIDs"
    );
    SinkError::config("CHANGE_ORDER_UNSUPPORTED", message).with("column", path)
}
