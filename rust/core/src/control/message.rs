//! The messages of the control topic: one JSON envelope per record, keyed by the writer id.
//!
//! ```text
//!  {v, wid, type, sess, epoch, task, host, body}
//!   HELLO   coordinator → all      I begin with this record
//!   SEGMENT task → coordinator     manifests and keys by path, length and SHA-256; offset ranges
//!   RESULT  coordinator → task     what became of a segment
//!   DRAIN   task → coordinator     commit this session's segments now
//!   BYE     task → coordinator     this session has ended
//! ```
//!
//! A message never carries file lists, column bounds, partition values or credentials. Whoever may
//! write to the topic can send anything: every bound is checked here, and what does not fit is
//! [`Ignored`], never an error. Types that this version does not know are ignored, too, so that a
//! later one may add some.

use std::collections::BTreeMap;
use std::sync::Arc;

use iceberg::spec::TableMetadata;
use iceberg::{NamespaceIdent, TableIdent};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::absent::AbsentRecords;
use super::segment::{KeyRunRef, Segment};
use crate::commit::validate::RejectReason;
use crate::offsets::{SourceRange, TopicPartition};

/// The only version of the envelope that this version reads and writes.
pub const MESSAGE_VERSION: u32 = 1;
/// Bytes of one message.
pub const MESSAGE_BYTES_MAX: usize = 256 << 10;
/// Bytes of the offset ranges beyond which they stand in the first manifest, or with the keys, and
/// not in the message.
pub const RANGES_BYTES_MAX: usize = 128 << 10;

const HOST_BYTES_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 256;
const NAMESPACE_MAX: usize = 16;
const PATH_BYTES_MAX: usize = 2_048;
const TEXT_BYTES_MAX: usize = 4_096;
const TOPIC_BYTES_MAX: usize = 249;
const PARTITION_MAX: i32 = 200_000;
const MANIFESTS_MAX: usize = 64;
/// Numbers stay far from where adding one to them fails.
const NUMBER_MAX: u64 = i64::MAX as u64 / 2;

/// Why a record of the control topic was not obeyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ignored {
    /// It is no message, or a bound is broken.
    Garbage,
    /// Its envelope has another version.
    Version,
    /// It is of another writer id: other connectors may share the topic.
    Foreign,
    /// It is too long.
    Oversized,
    /// Its type is not known here.
    UnknownType,
    /// It came before the coordinator's own HELLO (R12).
    BeforeHello,
    /// It names a table that the connector does not write.
    UnknownTable,
    /// Its manifests are not what the message says, or not where they have to be.
    Forged,
    /// There was no room for it; it is sent again.
    NoRoom,
}

impl Ignored {
    /// Returns the word for log lines.
    pub fn name(self) -> &'static str {
        match self {
            Ignored::Garbage => "garbage",
            Ignored::Version => "other version",
            Ignored::Foreign => "other writer id",
            Ignored::Oversized => "oversized",
            Ignored::UnknownType => "unknown type",
            Ignored::BeforeHello => "before the own HELLO",
            Ignored::UnknownTable => "unknown table",
            Ignored::Forged => "forged or changed manifest",
            Ignored::NoRoom => "no room",
        }
    }
}

/// A table and the branch that is written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TableName {
    /// The namespace's parts.
    #[serde(rename = "ns")]
    pub namespace: Vec<String>,
    /// The table's name in it.
    pub name: String,
    /// The branch.
    pub branch: String,
}

impl TableName {
    /// Names `branch` of the table `ident`.
    pub fn new(ident: &TableIdent, branch: impl Into<String>) -> Self {
        TableName {
            namespace: ident.namespace().as_ref().clone(),
            name: ident.name().to_owned(),
            branch: branch.into(),
        }
    }

    /// Returns the table; `None` for a name without namespace.
    pub fn ident(&self) -> Option<TableIdent> {
        let namespace = NamespaceIdent::from_vec(self.namespace.clone()).ok()?;
        Some(TableIdent::new(namespace, self.name.clone()))
    }

    fn is_sound(&self) -> bool {
        let parts = self.namespace.iter().chain([&self.name, &self.branch]);
        (1..=NAMESPACE_MAX).contains(&self.namespace.len())
            && parts
                .into_iter()
                .all(|part| fits(part, NAME_BYTES_MAX) && !part.is_empty())
    }
}

/// A message with its sender.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The writer id's hash.
    pub wid: String,
    /// The session that sends it, or that it is for; nil in a HELLO.
    pub session: Uuid,
    /// The writer epoch of the session.
    pub epoch: u64,
    /// The sender's task; 0 from a coordinator.
    pub task: u32,
    /// The sender's host.
    pub host: String,
    /// What it says.
    pub body: Body,
}

/// What a message says.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// A coordinator begins.
    Hello(Hello),
    /// A segment wants to be committed.
    Segment(Box<SegmentMessage>),
    /// What became of a segment.
    Result(ResultMessage),
    /// What the session has handed over is not to wait for the interval.
    Drain,
    /// The session has ended.
    Bye,
}

/// A coordinator begins with the record that carries this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The coordinator's process.
    #[serde(rename = "id")]
    pub coordinator: Uuid,
    /// How often this process has become coordinator.
    pub election: u64,
}

/// A segment, without anything that its manifests say themselves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SegmentMessage {
    /// The table.
    #[serde(rename = "tbl")]
    pub table: TableName,
    /// The table's UUID when the files were written.
    pub uuid: Uuid,
    /// The segment's number.
    pub seq: u64,
    /// The lowest number that the task has no result for.
    pub first_unacked: u64,
    /// Whether the session waits for the commit.
    pub urgent: bool,
    /// Milliseconds since the segment was sealed.
    #[serde(rename = "sealed_rel_ms")]
    pub sealed_ago_ms: u64,
    /// Milliseconds after sealing beyond which it must not be committed (R11).
    pub ttl_ms: u64,
    /// Rows in the files.
    pub rows: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// The offsets; `None` when they stand in the first manifest, or without one in the key run.
    pub ranges: Option<Ranges>,
    /// The manifests.
    pub manifests: Vec<ManifestRef>,
    /// The keys of the changes of a table with changes.
    #[serde(default, with = "key_run", skip_serializing_if = "Option::is_none")]
    pub key_run: Option<KeyRunRef>,
}

/// Where a manifest is and what it must be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestRef {
    /// Its location.
    pub path: String,
    /// Its length in bytes.
    pub len: u64,
    /// The partition spec of its files.
    #[serde(rename = "spec_id")]
    pub spec_id: i32,
    /// Its files.
    pub files: u64,
    /// The rows of its files.
    pub rows: u64,
    /// Its SHA-256.
    #[serde(with = "hex")]
    pub sha256: [u8; 32],
}

/// The offsets that a segment covers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "RangesText", try_from = "RangesText")]
pub struct Ranges {
    /// What the files claim about each partition.
    pub ranges: Vec<SourceRange>,
    /// The lowest offset that the connector still needs of each partition.
    pub watermarks: BTreeMap<TopicPartition, i64>,
    /// The ids of their topics, as far as they are known.
    pub topic_ids: BTreeMap<Arc<str>, Uuid>,
}

/// What became of a segment, as the coordinator tells another process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultMessage {
    /// The table.
    #[serde(rename = "tbl")]
    pub table: TableName,
    /// The segment's number.
    pub seq: u64,
    /// What became of it.
    #[serde(flatten)]
    pub answer: Answer,
}

/// What became of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "UPPERCASE")]
pub enum Answer {
    /// The table has its rows.
    Durable {
        /// The snapshot that brought them, if the coordinator knows it.
        #[serde(rename = "snapshot_id")]
        snapshot_id: Option<i64>,
        /// What the table is like after that commit.
        stamp: Option<TableStamp>,
    },
    /// It can never be committed; the session is dead.
    Rejected {
        /// Why.
        reason: String,
        /// The records that are errors, if that is why.
        #[serde(default, skip_serializing_if = "AbsentRecords::is_empty")]
        absent: AbsentRecords,
    },
    /// It waited too long; the session is dead.
    Expired,
    /// The offsets were reset after the session began; the task stops.
    Fenced {
        /// The table's writer epoch.
        epoch: u64,
    },
    /// The table refused commits for too long; the task stops.
    Blocked {
        /// Why.
        reason: String,
    },
    /// It never came to the coordinator, and later ones wait for it: send it again.
    Missing,
}

/// What a task has to know of a table that another process committed to, to see whether the one
/// that it has open is out of date.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableStamp {
    /// The current schema.
    #[serde(rename = "schema_id")]
    pub schema_id: i32,
    /// The default partition spec.
    #[serde(rename = "spec_id")]
    pub spec_id: i32,
    /// A digest of the properties that a writer obeys.
    pub write: String,
}

impl TableStamp {
    /// Returns the stamp of a table.
    pub fn of(metadata: &TableMetadata) -> Self {
        let obeyed: BTreeMap<&String, &String> = metadata
            .properties()
            .iter()
            .filter(|(key, _)| key.starts_with("write."))
            .collect();
        let mut digest = Sha256::new();
        for text in obeyed.into_iter().flat_map(|(key, value)| [key, value]) {
            digest.update((text.len() as u64).to_le_bytes());
            digest.update(text.as_bytes());
        }
        let mut write = hex::encode(&digest.finalize());
        write.truncate(16);
        TableStamp {
            schema_id: metadata.current_schema_id(),
            spec_id: metadata.default_partition_spec_id(),
            write,
        }
    }
}

#[derive(Deserialize)]
struct Head {
    v: u32,
    wid: String,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Serialize, Deserialize)]
struct Envelope<B> {
    v: u32,
    wid: String,
    #[serde(rename = "type")]
    kind: String,
    sess: Uuid,
    epoch: u64,
    task: u32,
    host: String,
    body: B,
}

#[derive(Serialize, Deserialize)]
struct Nothing {}

impl Message {
    /// Returns the bytes of a record.
    ///
    /// # Errors
    ///
    /// [`Ignored::Oversized`] when no reader would take it, or [`Ignored::Garbage`].
    pub fn encode(&self) -> Result<Vec<u8>, Ignored> {
        if !self.is_sound() {
            return Err(Ignored::Garbage);
        }
        let bytes = match &self.body {
            Body::Hello(hello) => self.envelope("HELLO", hello),
            Body::Segment(segment) => self.envelope("SEGMENT", segment.as_ref()),
            Body::Result(result) => self.envelope("RESULT", result),
            Body::Drain => self.envelope("DRAIN", &Nothing {}),
            Body::Bye => self.envelope("BYE", &Nothing {}),
        };
        let bytes = bytes.map_err(|_| Ignored::Garbage)?;
        match bytes.len() <= MESSAGE_BYTES_MAX {
            true => Ok(bytes),
            false => Err(Ignored::Oversized),
        }
    }

    fn envelope<B: Serialize>(&self, kind: &str, body: &B) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&Envelope {
            v: MESSAGE_VERSION,
            wid: self.wid.clone(),
            kind: kind.to_owned(),
            sess: self.session,
            epoch: self.epoch,
            task: self.task,
            host: self.host.clone(),
            body,
        })
    }

    /// Reads a record that is meant for the writer `wid`.
    ///
    /// # Errors
    ///
    /// Why the record is not to be obeyed.
    pub fn decode(wid: &str, bytes: &[u8]) -> Result<Message, Ignored> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(Ignored::Oversized);
        }
        let head: Head = serde_json::from_slice(bytes).map_err(|_| Ignored::Garbage)?;
        if head.v != MESSAGE_VERSION {
            return Err(Ignored::Version);
        }
        if head.wid != wid {
            return Err(Ignored::Foreign);
        }
        let message = match head.kind.as_str() {
            "HELLO" => read(bytes, Body::Hello),
            "SEGMENT" => read(bytes, |segment| Body::Segment(Box::new(segment))),
            "RESULT" => read(bytes, Body::Result),
            "DRAIN" => read(bytes, |Nothing {}| Body::Drain),
            "BYE" => read(bytes, |Nothing {}| Body::Bye),
            _ => return Err(Ignored::UnknownType),
        };
        message.filter(Message::is_sound).ok_or(Ignored::Garbage)
    }

    fn is_sound(&self) -> bool {
        fits(&self.wid, NAME_BYTES_MAX)
            && fits(&self.host, HOST_BYTES_MAX)
            && self.epoch <= NUMBER_MAX
            && match &self.body {
                Body::Hello(hello) => hello.election <= NUMBER_MAX,
                Body::Segment(segment) => segment.is_sound(),
                Body::Result(result) => result.is_sound(),
                Body::Drain | Body::Bye => true,
            }
    }
}

fn read<'a, B: Deserialize<'a>>(bytes: &'a [u8], into: impl FnOnce(B) -> Body) -> Option<Message> {
    let envelope: Envelope<B> = serde_json::from_slice(bytes).ok()?;
    Some(Message {
        wid: envelope.wid,
        session: envelope.sess,
        epoch: envelope.epoch,
        task: envelope.task,
        host: envelope.host,
        body: into(envelope.body),
    })
}

impl SegmentMessage {
    /// Describes `segment`, sealed `sealed_ago_ms` ago. Ranges that are too long are left out: its
    /// sealing has put them into the first manifest and the key run ([`Ranges::fit`]).
    pub fn new(segment: &Segment, urgent: bool, sealed_ago_ms: u64, ttl_ms: u64) -> Self {
        let ranges = Ranges::of(segment);
        let has_files = !segment.manifests.is_empty() || segment.key_run.is_some();
        let manifests = segment.manifests.iter().map(|sealed| ManifestRef {
            path: sealed.manifest.manifest_path.clone(),
            len: u64::try_from(sealed.manifest.manifest_length).unwrap_or(0),
            spec_id: sealed.manifest.partition_spec_id,
            files: u64::from(sealed.manifest.added_files_count.unwrap_or(0)),
            rows: sealed.manifest.added_rows_count.unwrap_or(0),
            sha256: sealed.sha256,
        });
        SegmentMessage {
            table: TableName::new(&segment.table, segment.branch.clone()),
            uuid: segment.table_uuid,
            seq: segment.seq,
            first_unacked: segment.first_unacked,
            urgent,
            sealed_ago_ms,
            ttl_ms,
            rows: segment.rows,
            bytes: segment.bytes,
            manifests: manifests.collect(),
            ranges: Some(ranges).filter(|ranges| ranges.fit() || !has_files),
            key_run: segment.key_run.clone(),
        }
    }

    fn is_sound(&self) -> bool {
        let numbers = [
            self.seq,
            self.sealed_ago_ms,
            self.ttl_ms,
            self.rows,
            self.bytes,
        ];
        self.table.is_sound()
            && self.first_unacked <= self.seq
            && numbers.iter().all(|number| *number <= NUMBER_MAX)
            && self.manifests.len() <= MANIFESTS_MAX
            && self.manifests.iter().all(ManifestRef::is_sound)
            && match &self.ranges {
                Some(ranges) => ranges.is_sound(),
                None => !self.manifests.is_empty() || self.key_run.is_some(),
            }
            && self.key_run.as_ref().is_none_or(key_run::is_sound)
    }
}

impl ManifestRef {
    fn is_sound(&self) -> bool {
        let numbers = [self.len, self.files, self.rows];
        fits(&self.path, PATH_BYTES_MAX)
            && numbers.iter().all(|number| *number <= NUMBER_MAX)
            && self.files <= u64::from(u32::MAX)
            && self.spec_id >= 0
    }
}

impl ResultMessage {
    fn is_sound(&self) -> bool {
        self.table.is_sound()
            && self.seq <= NUMBER_MAX
            && match &self.answer {
                Answer::Rejected { reason, absent } => {
                    let mut absent = absent.partitions();
                    fits(reason, TEXT_BYTES_MAX)
                        && absent.all(|(partition, offsets)| {
                            is_sound_partition(&partition)
                                && offsets.iter().all(|offset| *offset >= 0)
                        })
                }
                Answer::Blocked { reason } => fits(reason, TEXT_BYTES_MAX),
                Answer::Durable { stamp, .. } => stamp
                    .as_ref()
                    .is_none_or(|stamp| fits(&stamp.write, NAME_BYTES_MAX)),
                Answer::Fenced { epoch } => *epoch <= NUMBER_MAX,
                Answer::Expired | Answer::Missing => true,
            }
    }
}

impl Answer {
    /// Rejects a segment.
    pub fn rejected(reason: &RejectReason) -> Self {
        let absent = match reason {
            RejectReason::ValueAbsent { records, .. } => AbsentRecords::of(records),
            _ => AbsentRecords::default(),
        };
        Answer::Rejected {
            reason: Answer::reason(&reason.to_string()),
            absent,
        }
    }

    /// Rejects a segment that no commit has looked at.
    pub fn unseen(reason: &str) -> Self {
        Answer::Rejected {
            reason: Answer::reason(reason),
            absent: AbsentRecords::default(),
        }
    }

    /// Makes a reason fit a message.
    pub fn reason(text: &str) -> String {
        let end = (0..=TEXT_BYTES_MAX.min(text.len()))
            .rev()
            .find(|end| text.is_char_boundary(*end));
        text.get(..end.unwrap_or(0)).unwrap_or_default().to_owned()
    }
}

impl Ranges {
    /// Takes the offsets of `segment`.
    pub fn of(segment: &Segment) -> Self {
        let claims = |topic: &Arc<str>| segment.ranges.iter().any(|r| r.partition.topic == *topic);
        let ids = segment.topic_ids.iter().filter(|(topic, _)| claims(topic));
        Ranges {
            ranges: segment.ranges.clone(),
            watermarks: segment.watermarks.clone(),
            topic_ids: ids.map(|(topic, id)| (topic.clone(), *id)).collect(),
        }
    }

    /// Returns them as one line of JSON, the form that is hashed and that a manifest carries.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads what [`to_text`](Self::to_text) returned.
    pub fn from_text(text: &str) -> Option<Self> {
        let ranges: Ranges = serde_json::from_str(text).ok()?;
        ranges.is_sound().then_some(ranges)
    }

    /// Returns the SHA-256 of the text, in hexadecimal digits: each manifest of the segment carries
    /// it, so that files and offsets stay together.
    pub fn digest(&self) -> String {
        hex::encode(&Sha256::digest(self.to_text().as_bytes()))
    }

    /// Tells whether they are short enough for a message.
    pub fn fit(&self) -> bool {
        self.to_text().len() <= RANGES_BYTES_MAX
    }

    fn is_sound(&self) -> bool {
        let range_is_sound = |range: &SourceRange| {
            is_sound_partition(&range.partition)
                && range.end >= 0
                && range
                    .start
                    .is_none_or(|start| (0..=range.end).contains(&start))
                && range
                    .lowest
                    .is_none_or(|lowest| (0..range.end).contains(&lowest))
        };
        let mark_is_sound = |(partition, offset): (&TopicPartition, &i64)| {
            is_sound_partition(partition) && *offset >= 0
        };
        self.ranges.iter().all(range_is_sound)
            && self.watermarks.iter().all(mark_is_sound)
            && self
                .topic_ids
                .keys()
                .all(|topic| fits(topic, TOPIC_BYTES_MAX))
    }
}

fn is_sound_partition(partition: &TopicPartition) -> bool {
    fits(&partition.topic, TOPIC_BYTES_MAX) && (0..PARTITION_MAX).contains(&partition.partition)
}

fn fits(text: &str, bytes_max: usize) -> bool {
    text.len() <= bytes_max
}

/// Partition, start, end, lowest offset with a row, newest timestamp.
type RangeText = (i32, Option<i64>, i64, Option<i64>, Option<i64>);

/// Ranges by topic: the name of a topic stands once.
#[derive(Clone, Serialize, Deserialize)]
struct RangesText {
    r: Vec<(String, Vec<RangeText>)>,
    w: Vec<(String, Vec<(i32, i64)>)>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    i: BTreeMap<Arc<str>, Uuid>,
}

/// Appends `item` to the last group, or begins one for `topic`.
fn group<T>(groups: &mut Vec<(String, Vec<T>)>, topic: &str, item: T) {
    match groups.last_mut() {
        Some((last, items)) if last == topic => items.push(item),
        _ => groups.push((topic.to_owned(), vec![item])),
    }
}

impl From<Ranges> for RangesText {
    fn from(ranges: Ranges) -> Self {
        let (mut r, mut w) = (Vec::new(), Vec::new());
        for range in &ranges.ranges {
            let item = (
                range.partition.partition,
                range.start,
                range.end,
                range.lowest,
                range.timestamp_max_ms,
            );
            group(&mut r, &range.partition.topic, item);
        }
        for (partition, offset) in &ranges.watermarks {
            let item = (partition.partition, *offset);
            group(&mut w, &partition.topic, item);
        }
        RangesText {
            r,
            w,
            i: ranges.topic_ids,
        }
    }
}

impl TryFrom<RangesText> for Ranges {
    type Error = &'static str;

    fn try_from(text: RangesText) -> Result<Self, Self::Error> {
        let mut ranges = Ranges {
            topic_ids: text.i,
            ..Ranges::default()
        };
        for (topic, items) in text.r {
            let topic: Arc<str> = topic.into();
            for (partition, start, end, lowest, timestamp_max_ms) in items {
                ranges.ranges.push(SourceRange {
                    partition: TopicPartition::new(topic.clone(), partition),
                    start,
                    end,
                    lowest,
                    timestamp_max_ms,
                });
            }
        }
        for (topic, items) in text.w {
            let topic: Arc<str> = topic.into();
            for (partition, offset) in items {
                let partition = TopicPartition::new(topic.clone(), partition);
                if ranges.watermarks.insert(partition, offset).is_some() {
                    return Err("a partition stands twice");
                }
            }
        }
        Ok(ranges)
    }
}

/// Key runs as they stand in a message.
mod key_run {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{KeyRunRef, NUMBER_MAX, PATH_BYTES_MAX, fits};

    #[derive(Serialize, Deserialize)]
    struct Text {
        path: String,
        len: u64,
        rows: u64,
        #[serde(with = "super::hex")]
        sha256: [u8; 32],
    }

    pub(super) fn is_sound(run: &KeyRunRef) -> bool {
        let numbers = [run.len, run.rows];
        fits(&run.path, PATH_BYTES_MAX) && numbers.iter().all(|number| *number <= NUMBER_MAX)
    }

    pub(super) fn serialize<S: Serializer>(
        run: &Option<KeyRunRef>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let text = run.clone().map(|run| Text {
            path: run.path,
            len: run.len,
            rows: run.rows,
            sha256: run.sha256,
        });
        text.serialize(to)
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(
        from: D,
    ) -> Result<Option<KeyRunRef>, D::Error> {
        let text = Option::<Text>::deserialize(from)?;
        Ok(text.map(|text| KeyRunRef {
            path: text.path,
            len: text.len,
            sha256: text.sha256,
            rows: text.rows,
        }))
    }
}

/// Digests as hexadecimal digits.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn encode(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(super) fn serialize<S: Serializer>(bytes: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&encode(bytes))
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(from)?;
        let wrong = || de::Error::custom("no SHA-256 in hexadecimal digits");
        let digits = text.as_bytes();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        Ok(bytes)
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
