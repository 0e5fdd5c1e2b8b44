//! What Java tells a session besides records: the life of its partitions, and time passing.

use super::read::Reader;
use crate::error::{Result, SinkError};
use crate::offsets::TopicPartition;

/// The version of the request layout.
pub const REQUEST_VERSION: u8 = 1;

/// A `control` request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// These partitions are now ours (`SinkTask.open`).
    Assign(Vec<TopicPartition>),
    /// These partitions go to another task in good order (`SinkTask.close`).
    Revoke(Vec<TopicPartition>),
    /// These partitions were taken without a chance to finish.
    Lost(Vec<TopicPartition>),
    /// Connect is about to commit; it would commit these next offsets (`SinkTask.preCommit`).
    PreCommit(Vec<(TopicPartition, i64)>),
    /// Time passed without records.
    Tick,
    /// The session ends soon: stop waiting.
    Cancel,
}

/// Returns the smallest size of a partition on the wire.
const PARTITION_BYTES_MIN: usize = 8;

impl Request {
    /// Decodes the bytes that Java's `Requests` writes.
    pub fn decode(bytes: &[u8]) -> Result<Request> {
        let mut reader = Reader::new(bytes, "request");
        let version = reader.u8()?;
        if version != REQUEST_VERSION {
            let message = format!(
                "a request has version {version}, this library reads {REQUEST_VERSION}; \
                 install the jar and the native library of one release"
            );
            return Err(SinkError::fatal("WIRE_VERSION", message));
        }
        let request = match reader.u8()? {
            1 => Request::Assign(partitions(&mut reader)?),
            2 => Request::Revoke(partitions(&mut reader)?),
            3 => Request::Lost(partitions(&mut reader)?),
            4 => {
                let count = reader.count(PARTITION_BYTES_MIN + 8)?;
                let position = |_| Ok((partition(&mut reader)?, reader.i64()?));
                Request::PreCommit((0..count).map(position).collect::<Result<_>>()?)
            }
            5 => Request::Tick,
            6 => Request::Cancel,
            _ => return Err(reader.corrupt("request kind is unknown")),
        };
        reader.finish()?;
        Ok(request)
    }
}

fn partitions(reader: &mut Reader<'_>) -> Result<Vec<TopicPartition>> {
    let count = reader.count(PARTITION_BYTES_MIN)?;
    (0..count).map(|_| partition(reader)).collect()
}

fn partition(reader: &mut Reader<'_>) -> Result<TopicPartition> {
    let topic = reader.text()?;
    Ok(TopicPartition::new(topic, reader.i32()?))
}
