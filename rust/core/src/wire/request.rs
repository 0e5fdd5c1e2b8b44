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
    /// What source topics are, as Kafka tells it now.
    Topics(Vec<SourceTopic>),
    /// What the control topic brought, and who leads. Only a channel's handle takes it.
    Channel {
        /// Whether this process has control partition 0, so that it commits for all.
        leader: bool,
        /// The wall clock of the process, in milliseconds.
        now_ms: u64,
        /// What was read since the last request, in the order of the topic.
        records: Vec<ChannelRecord>,
    },
    /// What is there to show of the task? The only request that another thread may send.
    Metrics,
}

/// A source topic, as Kafka tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceTopic {
    /// Its name.
    pub name: Arc<str>,
    /// Its id: another topic of the same name has another one.
    pub id: Uuid,
    /// How many partitions it has.
    pub partitions: u32,
}

/// One record of the control topic, whoever wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelRecord {
    /// Its offset in the control partition.
    pub offset: i64,
    /// How long ago the broker took it, in milliseconds by the broker's clock; 0 when unknown.
    pub age_ms: u64,
    /// Its value; a longer one is cut a little above the longest message.
    pub value: Vec<u8>,
}

/// The smallest size of a partition on the wire.
const PARTITION_BYTES_MIN: usize = 8;

/// The smallest size of a source topic on the wire.
const TOPIC_BYTES_MIN: usize = 24;
/// The smallest size of a record of the control topic on the wire.
const RECORD_BYTES_MIN: usize = 20;

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
                let count = reader.count(TOPIC_BYTES_MIN)?;
                let topic = |_| topic(&mut reader);
                Request::Topics((0..count).map(topic).collect::<Result<_>>()?)
            }
            7 => channel(&mut reader)?,
            11 => Request::Metrics,
            _ => return Err(reader.corrupt("request kind is unknown")),
        };
        reader.finish()?;
        Ok(request)
    }
}

fn topic(reader: &mut Reader<'_>) -> Result<SourceTopic> {
    let name = reader.text()?.into();
    let id = Uuid::from_slice(reader.take(16)?);
    let id = id.map_err(|_| reader.corrupt("topic id is no UUID"))?;
    let partitions = reader.u32()?;
    Ok(SourceTopic {
        name,
        id,
        partitions,
    })
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
fn channel(reader: &mut Reader<'_>) -> Result<Request> {
    let leader = match reader.u8()? {
        0 => false,
        1 => true,
        _ => return Err(reader.corrupt("leader is neither 0 nor 1")),
    };
    // Neither a clock before 1970 nor a record from the future means anything.
    let now_ms = u64::try_from(reader.i64()?).unwrap_or(0);
    let count = reader.count(RECORD_BYTES_MIN)?;
    let record = |_| {
        Ok(ChannelRecord {
            offset: reader.i64()?,
            age_ms: u64::try_from(reader.i64()?).unwrap_or(0),
            value: reader.bytes()?.to_vec(),
        })
    };
    Ok(Request::Channel {
        leader,
        now_ms,
        records: (0..count).map(record).collect::<Result<_>>()?,
    })
}

fn partitions(reader: &mut Reader<'_>) -> Result<Vec<TopicPartition>> {
    let count = reader.count(PARTITION_BYTES_MIN)?;
    (0..count).map(|_| partition(reader)).collect()
}

fn partition(reader: &mut Reader<'_>) -> Result<TopicPartition> {
    let topic = reader.text()?;
    Ok(TopicPartition::new(topic, reader.i32()?))
}
