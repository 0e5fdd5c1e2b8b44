//! What Java tells a session besides records: the life of its partitions, and time passing.

use std::sync::Arc;

use uuid::Uuid;

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
    /// Read these partitions again, from the beginning where there is no offset; all partitions
    /// when there are none (`SinkConnector.alterOffsets`).
    AlterOffsets(Vec<(TopicPartition, Option<i64>)>),
    /// Which epoch do tasks have that start now?
    Epoch,
    /// The ids of source topics, as Kafka tells them now.
    TopicIds(Vec<(Arc<str>, Uuid)>),
}

/// Returns the smallest size of a partition on the wire.
const PARTITION_BYTES_MIN: usize = 8;

/// Returns the smallest size of a topic and its id on the wire.
const TOPIC_ID_BYTES_MIN: usize = 20;

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
            8 => {
                let count = reader.count(PARTITION_BYTES_MIN + 9)?;
                let offset = |_| altered(&mut reader);
                Request::AlterOffsets((0..count).map(offset).collect::<Result<_>>()?)
            }
            9 => Request::Epoch,
            10 => {
                let count = reader.count(TOPIC_ID_BYTES_MIN)?;
                let topic = |_| topic_id(&mut reader);
                Request::TopicIds((0..count).map(topic).collect::<Result<_>>()?)
            }
            _ => return Err(reader.corrupt("request kind is unknown")),
        };
        reader.finish()?;
        Ok(request)
    }
}

fn topic_id(reader: &mut Reader<'_>) -> Result<(Arc<str>, Uuid)> {
    let topic = reader.text()?;
    let id = Uuid::from_slice(reader.take(16)?);
    let id = id.map_err(|_| reader.corrupt("topic id is no UUID"))?;
    Ok((topic.into(), id))
}

fn altered(reader: &mut Reader<'_>) -> Result<(TopicPartition, Option<i64>)> {
    let partition = partition(reader)?;
    let present = reader.u8()?;
    let offset = reader.i64()?;
    match present {
        0 => Ok((partition, None)),
        1 => Ok((partition, Some(offset))),
        _ => Err(reader.corrupt("presence is neither 0 nor 1")),
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
