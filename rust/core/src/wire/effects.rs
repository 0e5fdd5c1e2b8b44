//! The answer of `put` and `control`: what Java has to do.
//!
//! Rust never calls Java; it asks. Java acts on the effects in this order: log lines, rejected
//! records (reported, and their reports awaited), durable offsets, rewinds, timeout, pause or
//! resume, commit request, messages; last, it throws the error.

use super::write::Writer;
use crate::error::{ErrorKind, SinkError};
use crate::offsets::TopicPartition;

/// The version of the effects layout.
pub const EFFECTS_VERSION: u8 = 2;

pub(crate) const FLAG_PAUSE: u8 = 1;
pub(crate) const FLAG_RESUME: u8 = 1 << 1;
pub(crate) const FLAG_REQUEST_COMMIT: u8 = 1 << 2;
pub(crate) const FLAG_TIMEOUT: u8 = 1 << 3;
pub(crate) const FLAG_ERROR: u8 = 1 << 4;
pub(crate) const FLAG_KEYS: u8 = 1 << 5;
pub(crate) const FLAG_HEADERS: u8 = 1 << 6;
pub(crate) const FLAG_TOPICS: u8 = 1 << 7;

/// How loud a log line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    /// Something failed.
    Error,
    /// Something needs attention.
    Warn,
    /// Something worth knowing happened.
    Info,
    /// Detail.
    Debug,
}

impl LogLevel {
    /// Returns the number that stands for this level on the wire.
    pub fn number(self) -> u8 {
        match self {
            LogLevel::Error => 0,
            LogLevel::Warn => 1,
            LogLevel::Info => 2,
            LogLevel::Debug => 3,
        }
    }
}

/// A record that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The row in the frame of this `put`.
    pub row: u32,
    /// The record's original topic and partition.
    pub partition: TopicPartition,
    /// The record's original offset.
    pub offset: i64,
    /// The error's stable code.
    pub code: String,
    /// The table that it does not fit, or nothing.
    pub table: String,
    /// The column that it does not fit, with dots before nested fields, or nothing.
    pub column: String,
    /// The whole report, without the value.
    pub message: String,
}

impl Rejected {
    /// Takes an error apart, so that whoever reads dead letters can select by its parts.
    pub fn new(row: u32, partition: &TopicPartition, offset: i64, error: &SinkError) -> Rejected {
        let part = |wanted: &str| {
            let pairs = error.context().iter();
            pairs
                .filter(|(name, _)| *name == wanted)
                .map(|(_, value)| value.clone())
                .next_back()
                .unwrap_or_default()
        };
        Rejected {
            row,
            partition: partition.clone(),
            offset,
            code: error.code().to_owned(),
            table: part("table"),
            column: part("column"),
            message: error.report(),
        }
    }
}

/// An error that Java throws as the exception of its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkedError {
    /// Decides the exception.
    pub kind: ErrorKind,
    /// The stable code.
    pub code: String,
    /// The whole report.
    pub message: String,
}

impl From<&SinkError> for ParkedError {
    fn from(error: &SinkError) -> Self {
        ParkedError {
            kind: error.kind(),
            code: error.code().to_owned(),
            message: error.report(),
        }
    }
}

/// What Java has to write into frames beside values, offsets and timestamps: what nobody asks for
/// is not sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameParts {
    /// The records' keys.
    pub keys: bool,
    /// Their headers.
    pub headers: bool,
    /// Their topics as transforms left them.
    pub topics: bool,
}

/// What Java has to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effects {
    /// Next offsets that table commits cover: what `preCommit` may return.
    pub durable: Vec<(TopicPartition, i64)>,
    /// Where the consumer has to read again from.
    pub rewinds: Vec<(TopicPartition, i64)>,
    /// Pause all assigned partitions.
    pub pause: bool,
    /// Resume all assigned partitions.
    pub resume: bool,
    /// Ask Connect for an offset commit soon.
    pub request_commit: bool,
    /// Call `put` again within this time, even without records (`SinkTaskContext.timeout`).
    pub timeout_ms: Option<u64>,
    /// Records for the error reporter.
    pub rejected: Vec<Rejected>,
    /// Lines for the worker's log.
    pub log: Vec<(LogLevel, String)>,
    /// Log lines that were dropped since the last answer because the ring was full.
    pub log_dropped: u64,
    /// Values of records to produce to the control topic, in this order. Only a channel has any.
    pub messages: Vec<Vec<u8>>,
    /// What frames have to hold from now on; counts in the answer to a tick.
    pub parts: FrameParts,
    /// An error to throw once the rest is done.
    pub error: Option<ParkedError>,
}

impl Effects {
    /// Returns the bytes that Java's `Effects` decodes.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        let flag = |present: bool, flag: u8| if present { flag } else { 0 };
        writer.u8(EFFECTS_VERSION);
        writer.u8(flag(self.pause, FLAG_PAUSE)
            | flag(self.resume, FLAG_RESUME)
            | flag(self.request_commit, FLAG_REQUEST_COMMIT)
            | flag(self.timeout_ms.is_some(), FLAG_TIMEOUT)
            | flag(self.error.is_some(), FLAG_ERROR)
            | flag(self.parts.keys, FLAG_KEYS)
            | flag(self.parts.headers, FLAG_HEADERS)
            | flag(self.parts.topics, FLAG_TOPICS));
        if let Some(timeout_ms) = self.timeout_ms {
            writer.i64(i64::try_from(timeout_ms).unwrap_or(i64::MAX));
        }
        if let Some(error) = &self.error {
            writer.u8(error.kind.number());
            writer.text(&error.code);
            writer.text(&error.message);
        }
        for offsets in [&self.durable, &self.rewinds] {
            writer.length(offsets.len());
            for (partition, offset) in offsets {
                write_position(&mut writer, partition, *offset);
            }
        }
        writer.length(self.rejected.len());
        for rejected in &self.rejected {
            writer.u32(rejected.row);
            write_position(&mut writer, &rejected.partition, rejected.offset);
            writer.text(&rejected.code);
            writer.text(&rejected.table);
            writer.text(&rejected.column);
            writer.text(&rejected.message);
        }
        writer.length(self.log.len());
        for (level, line) in &self.log {
            writer.u8(level.number());
            writer.text(line);
        }
        writer.u64(self.log_dropped);
        writer.length(self.messages.len());
        for message in &self.messages {
            writer.length(message.len());
            writer.bytes.extend_from_slice(message);
        }
        writer.bytes
    }
}

fn write_position(writer: &mut Writer, partition: &TopicPartition, offset: i64) {
    writer.text(&partition.topic);
    writer.i32(partition.partition);
    writer.i64(offset);
}

/// How bad a validation message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ValidationLevel {
    /// The connector cannot start.
    Error,
    /// Worth a line in the log.
    Warning,
}

/// Returns the bytes of `NativeSink.validate`: (key, level, message) for each problem.
pub fn encode_validation<'p>(
    problems: impl IntoIterator<Item = (&'p str, ValidationLevel, &'p str)>,
) -> Vec<u8> {
    let mut body = Writer::default();
    let mut count = 0usize;
    for (key, level, message) in problems {
        count += 1;
        body.text(key);
        body.u8(match level {
            ValidationLevel::Error => 0,
            ValidationLevel::Warning => 1,
        });
        body.text(message);
    }
    let mut writer = Writer::default();
    writer.u8(EFFECTS_VERSION);
    writer.length(count);
    writer.bytes.append(&mut body.bytes);
    writer.bytes
}
