//! How the parts of an order are written in records, and their bytes, which compare as the parts do.

use super::domain::Domain;
use crate::convert::Reason;
use crate::convert::scalar;
use crate::convert::value::Value;
use crate::schema::semantic::Semantic;
use crate::wire::Cell;

/// How a part of an order is written in the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A whole number, or the digits of one.
    Integer,
    /// `["31214376","31214432"]`, as Debezium writes `source.sequence` for PostgreSQL: where the last
    /// transaction that it had sent was committed, and where the change itself is in the log. A row of a
    /// snapshot is ordered by the first alone, and is without an order before any. A change before any
    /// counts from its own place, which is after all commits that its row had before.
    PostgresSequence,
    /// `00000027:00000ac0:0002`, as SQL Server writes its log sequence numbers.
    SqlServerLsn,
    /// A transaction of MariaDB (`0-1-7`): its domain belongs to the domain of the order. One of MySQL
    /// (`uuid:7`, `uuid:tag:7`) is without an order: in a group each member takes its numbers from a block
    /// of its own, so that a later transaction may have the smaller number, and nothing in the record tells
    /// a group from a server.
    Gtid,
    /// The name of a binlog file, `binlog.000002`: the name before the number belongs to the domain.
    Binlog,
    /// A binlog file and a position in it, `binlog.000002:154`. With a set of transactions behind them
    /// (`[…]`) it is without an order: whoever follows transactions may go on at another server.
    BinlogPosition,
}

/// Whether a record has an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    Part,
    NoOrder,
}

impl Form {
    pub(super) fn parse(name: &str) -> Option<Form> {
        Some(match name {
            "integer" => Form::Integer,
            "postgres-sequence" => Form::PostgresSequence,
            "sql-server-lsn" => Form::SqlServerLsn,
            "gtid" => Form::Gtid,
            "binlog" => Form::Binlog,
            "binlog-position" => Form::BinlogPosition,
            _ => return None,
        })
    }

    /// Tells whether a part of this form may be missing: it has one length, so that what is missing
    /// can be zeros.
    pub(super) fn can_be_missing(self) -> bool {
        matches!(self, Form::Integer | Form::SqlServerLsn)
    }

    /// Appends the bytes of `cell` to `out`; `of_snapshot` is whether a snapshot of the source may have
    /// found the row, which tells nothing about a place inside of a transaction.
    pub(super) fn write(
        self,
        cell: Cell<'_>,
        of_snapshot: bool,
        domain: &mut Domain,
        out: &mut Vec<u8>,
    ) -> Result<Written, Reason> {
        match (self, cell) {
            (Form::Integer, Cell::Null) => out.extend_from_slice(&[0; 8]),
            (Form::SqlServerLsn, Cell::Null) => out.extend_from_slice(&[0; 10]),
            (Form::Integer, cell) => put_integer(integer(cell)?, out),
            (Form::PostgresSequence, Cell::String(text)) => {
                domain.text("sequence");
                return put_sequence(text, of_snapshot, out);
            }
            (Form::SqlServerLsn, Cell::String(text)) => put_lsn(text, out)?,
            (Form::Gtid, Cell::String(text)) => {
                let (of, number) = gtid(text).ok_or(Reason::Malformed)?;
                let Some(of) = of else {
                    return Ok(Written::NoOrder);
                };
                domain.text(of);
                put_integer(number, out);
            }
            (Form::Binlog, Cell::String(text)) => put_file(text, domain, out)?,
            (Form::BinlogPosition, Cell::String(text)) => {
                if text.ends_with(']') {
                    return Ok(Written::NoOrder);
                }
                let (file, position) = text.rsplit_once(':').ok_or(Reason::Malformed)?;
                put_file(file, domain, out)?;
                put_integer(digits(position)?, out);
            }
            _ => return Err(Reason::NotConvertible),
        }
        Ok(Written::Part)
    }
}

fn put_sequence(text: &str, of_snapshot: bool, out: &mut Vec<u8>) -> Result<Written, Reason> {
    let [commit, change]: [Option<&str>; 2] =
        serde_json::from_str(text).map_err(|_| Reason::Malformed)?;
    let change = change.map(digits).transpose()?;
    let commit = commit.map(digits).transpose()?;
    let change = change.filter(|_| !of_snapshot);
    let Some(commit) = commit.or(change) else {
        return Ok(Written::NoOrder);
    };
    put_integer(commit, out);
    match change {
        Some(change) => put_integer(change, out),
        None => out.extend_from_slice(&[0; 8]),
    }
    Ok(Written::Part)
}

/// A whole number so that bytes compare as the numbers do.
fn put_integer(number: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(&(number ^ i64::MIN).to_be_bytes());
}

pub(super) fn integer(cell: Cell<'_>) -> Result<i64, Reason> {
    match cell {
        Cell::Int8(number) => Ok(i64::from(number)),
        Cell::Int16(number) => Ok(i64::from(number)),
        Cell::Int32(number) => Ok(i64::from(number)),
        Cell::Int64(number) => Ok(number),
        Cell::String(text) => digits(text),
        Cell::Decimal { .. } | Cell::Number { .. } => {
            let value = Value::read(cell, Semantic::Schemaless)?;
            value.map_or(Err(Reason::NotConvertible), scalar::to_i64)
        }
        _ => Err(Reason::NotConvertible),
    }
}

fn digits(text: &str) -> Result<i64, Reason> {
    match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse().map_err(|_| Reason::OutOfRange),
        false => Err(Reason::Malformed),
    }
}

fn put_lsn(text: &str, out: &mut Vec<u8>) -> Result<(), Reason> {
    let mut count = 0;
    for (part, wanted) in text.split(':').zip([8, 8, 4]) {
        if part.len() != wanted || !part.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(Reason::Malformed);
        }
        let number = u32::from_str_radix(part, 16).map_err(|_| Reason::Malformed)?;
        let bytes = number.to_be_bytes();
        out.extend_from_slice(bytes.get(4 - wanted / 2..).unwrap_or_default());
        count += 1;
    }
    match count == 3 && text.matches(':').count() == 2 {
        true => Ok(()),
        false => Err(Reason::Malformed),
    }
}

/// Returns in what the numbers of the transactions rise, if in anything, and the number.
fn gtid(text: &str) -> Option<(Option<&str>, i64)> {
    if let Some((_, number)) = text.rsplit_once(':') {
        return Some((None, digits(number).ok()?));
    }
    let mut parts = text.split('-');
    let (domain, _, number) = (parts.next()?, parts.next()?, parts.next()?);
    match parts.next() {
        None => Some((Some(domain), digits(number).ok()?)),
        Some(_) => None,
    }
}

fn put_file(text: &str, domain: &mut Domain, out: &mut Vec<u8>) -> Result<(), Reason> {
    let (base, number) = text.rsplit_once('.').ok_or(Reason::Malformed)?;
    domain.text(base);
    put_integer(digits(number)?, out);
    Ok(())
}
