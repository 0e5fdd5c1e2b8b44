//! The writer's state in a table property: which source offsets a branch of a table holds.
//!
//! The property `frazil.w.<wid>` (or `frazil.w.<wid>.b.<branch>`) is written in the same commit as
//! the snapshot, so it is the truth: expiry, compaction and foreign commits cannot lose it. A value
//! over the size limit moves its topics to `frazil.w.<wid>.1`, `.2`, … in the same commit.
//!
//! A topic stands under its id once a commit knew it, else under its name. A topic that was deleted
//! and made again is another topic: its offsets begin anew, and what the old one left is kept for 30
//! days and counts for nothing.
//!
//! The state never regresses ([`WriterState::advance`] takes the maximum), and only partitions
//! with rows in the files advance (rule R3). A value that cannot be understood is an error, never
//! an empty state: an empty state would write every row again.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::location::StoredIn;
use super::stored::{StoredTopic, whole_seconds};
use crate::control::segment::Segment;
use crate::error::{Result, SinkError};
use crate::limits::STATE_BYTES_MAX;
use crate::offsets::TopicPartition;
use crate::rules::{Rule, enforced};

/// The branch that readers see when they name none.
pub const MAIN_BRANCH: &str = "main";
/// The only layout of the property that this version reads and writes.
const LAYOUT: u32 = 2;
/// What stands for "none" in the arrays.
pub(super) const NONE: i64 = -1;
/// Partitions of one topic; the arrays of the state are as long as the highest partition.
pub(super) const PARTITIONS_MAX: usize = 200_000;
/// How long the offsets of a deleted topic are kept.
const SUPERSEDED_MS: i64 = 30 * 24 * 60 * 60 * 1_000;
/// Shards of one state: 64 MiB of JSON.
const SHARDS_MAX: u32 = 2_048;

/// What a table knows about one writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriterState {
    /// The table that the state was written for; a copy in another table is ignored.
    pub table_uuid: Uuid,
    /// The writer epoch.
    pub epoch: u64,
    /// The commit that wrote the state.
    pub commit_id: Uuid,
    /// The snapshot of that commit.
    pub snapshot_id: i64,
    /// When that commit was made, in milliseconds since the epoch.
    pub committed_ms: i64,
    /// The connector's name.
    pub connector: String,
    /// The process that made the commit.
    pub hub_id: String,
    /// Where the state was found.
    pub stored_in: StoredIn,
    topics: BTreeMap<String, TopicState>,
}

/// The arrays have one length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TopicState {
    pub(super) topic: String,
    /// One past the last offset that the table holds.
    pub(super) next: Vec<i64>,
    /// The lowest offset that the connector still needed.
    pub(super) watermarks: Vec<i64>,
    /// The newest record timestamp, in whole seconds; still a number of milliseconds.
    pub(super) timestamps: Vec<i64>,
    /// Since when another topic has the name.
    pub(super) superseded_ms: Option<i64>,
    /// How many partitions the topic had when changes of it were read last; only of a table with
    /// changes, and 0 when nobody told.
    pub(super) partitions: u32,
}

impl TopicState {
    fn is_live(&self) -> bool {
        self.superseded_ms.is_none()
    }
}

#[derive(Serialize, Deserialize)]
struct Property {
    v: u32,
    u: Uuid,
    e: u64,
    c: Uuid,
    s: i64,
    m: i64,
    d: String,
    n: u32,
    #[serde(default)]
    h: String,
    #[serde(default)]
    t: BTreeMap<String, StoredTopic>,
}

#[derive(Deserialize)]
struct Layout {
    v: u32,
}

/// Table properties to set and to remove.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PropertyChange {
    /// Properties to set.
    pub set: BTreeMap<String, String>,
    /// Properties to remove.
    pub remove: Vec<String>,
}

/// Returns the name of the property that holds the state of `wid` for `branch`.
pub fn property_key(wid: &str, branch: &str) -> String {
    key(wid, None, branch)
}

fn key(wid: &str, shard: Option<u32>, branch: &str) -> String {
    let mut key = format!("frazil.w.{wid}");
    // The shard stands before the branch, whose name may itself end in a number.
    if let Some(shard) = shard {
        key.push_str(&format!(".{shard}"));
    }
    if branch != MAIN_BRANCH {
        key.push_str(&format!(".b.{branch}"));
    }
    key
}

/// Returns the key under which the state keeps a topic whose id is not known.
pub fn topic_key(topic: &str) -> String {
    format!("n:{topic}")
}

/// Returns the key under which the state keeps the topic with id `id`: the id as Kafka writes it.
pub fn topic_id_key(id: Uuid) -> String {
    URL_SAFE_NO_PAD.encode(id)
}

/// Tells whether `key` is one that [`topic_key`] or [`topic_id_key`] makes.
pub(super) fn is_topic_key(key: &str) -> bool {
    match key.strip_prefix("n:") {
        Some(topic) => !topic.is_empty(),
        None => URL_SAFE_NO_PAD.decode(key).is_ok_and(|id| id.len() == 16),
    }
}

impl WriterState {
    /// Creates the state of a writer that never committed to the table.
    pub fn new(table_uuid: Uuid) -> Self {
        WriterState {
            table_uuid,
            epoch: 0,
            commit_id: Uuid::nil(),
            snapshot_id: NONE,
            committed_ms: 0,
            connector: String::new(),
            hub_id: String::new(),
            stored_in: StoredIn::Nowhere,
            topics: BTreeMap::new(),
        }
    }

    /// Reads the state from table properties, which `property` looks up. `None` when the table has
    /// none, or one that was written for another table.
    pub fn read<'a>(
        property: impl Fn(&str) -> Option<&'a str>,
        wid: &str,
        branch: &str,
        table_uuid: Uuid,
    ) -> Result<Option<WriterState>> {
        let Some(text) = property(&property_key(wid, branch)) else {
            return Ok(None);
        };
        let invalid = |what: &str| {
            SinkError::fatal(
                "STATE_INVALID",
                format!("the writer state in the table property {what}; stop the connector and run `frazil state repair`, or restore the property from an older metadata file"),
            )
            .with("property", property_key(wid, branch))
        };
        let layout: Layout =
            serde_json::from_str(text).map_err(|e| invalid("is not readable").caused_by(e))?;
        if layout.v != LAYOUT {
            return Err(SinkError::fatal(
                "STATE_VERSION_UNKNOWN",
                "the writer state of the table was written by another version of the plugin; use that one or a newer one",
            )
            .with("property", property_key(wid, branch))
            .with("version", layout.v));
        }
        let read: Property =
            serde_json::from_str(text).map_err(|e| invalid("is not readable").caused_by(e))?;
        if read.u != table_uuid {
            return Ok(None);
        }
        let stored: BTreeMap<String, StoredTopic> = match read.n {
            0 => read.t,
            shards if shards > SHARDS_MAX => return Err(invalid("names too many shards")),
            shards => {
                let mut text = String::new();
                for shard in 1..=shards {
                    let part = property(&key(wid, Some(shard), branch))
                        .ok_or_else(|| invalid("misses a shard"))?;
                    text.push_str(part);
                }
                serde_json::from_str(&text)
                    .map_err(|e| invalid("has unreadable shards").caused_by(e))?
            }
        };
        let mut topics = BTreeMap::new();
        for (key, stored) in stored {
            let state = stored
                .read(read.m)
                .ok_or_else(|| invalid("has arrays that do not fit each other"))?;
            if !is_topic_key(&key) || (key.starts_with("n:") && key != topic_key(&state.topic)) {
                return Err(invalid("has topic keys of a newer version"));
            }
            if state.next.len() > PARTITIONS_MAX {
                return Err(invalid("has too many partitions"));
            }
            topics.insert(key, state);
        }
        Ok(Some(WriterState {
            table_uuid: read.u,
            epoch: read.e,
            commit_id: read.c,
            snapshot_id: read.s,
            committed_ms: read.m,
            connector: read.d,
            hub_id: read.h,
            stored_in: StoredIn::Property,
            topics,
        }))
    }

    /// Returns the properties that store this state. `shards_before` is the number of shards that
    /// the table has now ([`WriterState::shards`]); those no longer needed are removed.
    pub fn write(&self, wid: &str, branch: &str, shards_before: u32) -> Result<PropertyChange> {
        self.write_within(wid, branch, shards_before, STATE_BYTES_MAX)
    }

    /// Like [`WriterState::write`] with another limit for the size of one property.
    pub fn write_within(
        &self,
        wid: &str,
        branch: &str,
        shards_before: u32,
        bytes_max: usize,
    ) -> Result<PropertyChange> {
        let mut property = Property {
            v: LAYOUT,
            u: self.table_uuid,
            e: self.epoch,
            c: self.commit_id,
            s: self.snapshot_id,
            m: self.committed_ms,
            d: self.connector.clone(),
            n: 0,
            h: self.hub_id.clone(),
            t: self.stored(),
        };
        let mut change = PropertyChange::default();
        let mut text = json(&property)?;
        if text.len() > bytes_max {
            let topics = json(&std::mem::take(&mut property.t))?;
            for part in pieces(&topics, bytes_max) {
                property.n += 1;
                let key = key(wid, Some(property.n), branch);
                change.set.insert(key, part.to_owned());
            }
            if property.n > SHARDS_MAX {
                return Err(SinkError::fatal(
                    "STATE_TOO_LARGE",
                    "the writer state of the table needs too many properties; write fewer topics into one table",
                ));
            }
            text = json(&property)?;
        }
        change.set.insert(property_key(wid, branch), text);
        for shard in property.n.saturating_add(1)..=shards_before {
            change.remove.push(key(wid, Some(shard), branch));
        }
        Ok(change)
    }

    /// Reads the state from the summary of a snapshot, which carries it as `text`. `None` when it was
    /// written for another table.
    pub(super) fn read_summary(
        text: &str,
        wid: &str,
        table_uuid: Uuid,
    ) -> Result<Option<WriterState>> {
        let key = property_key(wid, MAIN_BRANCH);
        let property = |asked: &str| (asked == key).then_some(text);
        let state = WriterState::read(property, wid, MAIN_BRANCH, table_uuid)?;
        Ok(state.map(|state| WriterState {
            stored_in: StoredIn::Summary,
            ..state
        }))
    }

    /// Returns the entry that carries the state in the summary of a snapshot: its key and its value.
    ///
    /// # Errors
    ///
    /// `STATE_TOO_LARGE` over `bytes_max`: every snapshot that a table keeps repeats its summary.
    pub(super) fn write_summary(&self, wid: &str, bytes_max: usize) -> Result<(String, String)> {
        let change = self.write_within(wid, MAIN_BRANCH, 0, usize::MAX)?;
        let entry = change.set.into_iter().next();
        let (key, text) = entry.ok_or_else(|| SinkError::internal("a state without a value"))?;
        match text.len() <= bytes_max {
            true => Ok((key, text)),
            false => Err(SinkError::fatal(
                "STATE_TOO_LARGE",
                "the writer state does not fit into the summary of a snapshot; write fewer topics into one table, raise `frazil.state.max-bytes`, or use a catalog that stores table properties",
            )
            .with("bytes", text.len())),
        }
    }

    fn stored(&self) -> BTreeMap<String, StoredTopic> {
        let topics = self.topics.iter();
        topics
            .map(|(key, state)| (key.clone(), StoredTopic::of(state, self.committed_ms)))
            .collect()
    }

    /// Returns the number of shards that table properties hold for `wid` and `branch`.
    pub fn shards(property: impl Fn(&str) -> bool, wid: &str, branch: &str) -> u32 {
        (1..=SHARDS_MAX)
            .take_while(|shard| property(&key(wid, Some(*shard), branch)))
            .count() as u32
    }

    /// Returns T: one past the last offset of `partition` that the table holds. `None` when the
    /// table never got a row of it. For a reader that does not know the topic's id.
    pub fn bound(&self, partition: &TopicPartition) -> Option<i64> {
        self.bound_of(partition, None)
    }

    /// Returns T of a partition of the topic with id `id`, if that is known.
    pub fn bound_of(&self, partition: &TopicPartition, id: Option<Uuid>) -> Option<i64> {
        self.known(partition, id, |state| &state.next)
    }

    /// Returns the lowest offset of `partition` that the connector needed when it last wrote rows
    /// of it, if that is known.
    pub fn watermark(&self, partition: &TopicPartition, id: Option<Uuid>) -> Option<i64> {
        self.known(partition, id, |state| &state.watermarks)
    }

    /// Returns the newest timestamp of the records of `partition` below T, if that is known.
    pub fn newest_ms(&self, partition: &TopicPartition, id: Option<Uuid>) -> Option<i64> {
        self.known(partition, id, |state| &state.timestamps)
    }

    /// Returns how many partitions the topic had when the table's changes of it were read last, if that
    /// is known.
    pub fn partitions_of(&self, topic: &str, id: Option<Uuid>) -> Option<u32> {
        let (_, state) = self.place(topic, id)?;
        (state.partitions > 0).then_some(state.partitions)
    }

    fn known(
        &self,
        partition: &TopicPartition,
        id: Option<Uuid>,
        array: impl Fn(&TopicState) -> &Vec<i64>,
    ) -> Option<i64> {
        let (_, state) = self.place(&partition.topic, id)?;
        let value = *array(state).get(usize::try_from(partition.partition).ok()?)?;
        (value >= 0).then_some(value)
    }

    /// Returns the key under which a topic stands, or would stand after its first rows.
    pub fn key_of(&self, topic: &str, id: Option<Uuid>) -> String {
        match (self.place(topic, id), id) {
            (Some((key, _)), None) => key.to_owned(),
            (_, Some(id)) => topic_id_key(id),
            (None, None) => topic_key(topic),
        }
    }

    fn place(&self, topic: &str, id: Option<Uuid>) -> Option<(&str, &TopicState)> {
        let by = |key: &str| self.topics.get_key_value(key);
        let named = || by(&topic_key(topic));
        let found = match id {
            Some(id) => by(&topic_id_key(id)).or_else(named),
            None => named().or_else(|| {
                let mut topics = self.topics.iter();
                topics.find(|(_, state)| state.topic == topic && state.is_live())
            }),
        };
        found.map(|(key, state)| (key.as_str(), state))
    }

    /// Returns every partition that has a row in the table, with its T.
    pub fn bounds(&self) -> impl Iterator<Item = (TopicPartition, i64)> {
        self.places().map(|(_, partition, next)| (partition, next))
    }

    fn places(&self) -> impl Iterator<Item = (&str, TopicPartition, i64)> {
        let live = self.topics.iter().filter(|(_, state)| state.is_live());
        live.flat_map(|(key, state)| {
            let next = (0..).zip(&state.next).filter(|(_, next)| **next >= 0);
            next.map(|(index, next)| {
                let partition = TopicPartition::new(state.topic.as_str(), index);
                (key.as_str(), partition, *next)
            })
        })
    }

    /// Returns the timestamp up to which the table holds every record, as far as record timestamps
    /// rise within a partition: the oldest of the newest timestamps, in whole seconds.
    pub fn valid_through_ms(&self) -> Option<i64> {
        let mut oldest = None;
        for state in self.topics.values().filter(|state| state.is_live()) {
            for (next, timestamp) in state.next.iter().zip(&state.timestamps) {
                match (*next >= 0, *timestamp >= 0) {
                    (false, _) => {}
                    (true, false) => return None,
                    (true, true) => {
                        oldest = Some(oldest.map_or(*timestamp, |old: i64| old.min(*timestamp)));
                    }
                }
            }
        }
        oldest
    }

    /// Raises T to the ends of a segment's ranges that have rows. Nothing ever regresses, and a
    /// claim without rows moves no T (rule R3).
    pub fn advance(&mut self, segment: &Segment) -> Result<()> {
        self.epoch = self.epoch.max(segment.epoch);
        self.forget_superseded();
        for range in &segment.ranges {
            let partition = &range.partition;
            let id = segment.topic_id(&partition.topic);
            let key = match range.has_rows() || !enforced(Rule::RowsOnly) {
                true => {
                    let key = self.settle(&partition.topic, id);
                    self.raise_under(&key, partition, range.end)?;
                    key
                }
                false if self.bound_of(partition, id).is_some() => {
                    self.settle(&partition.topic, id)
                }
                false => continue,
            };
            if let Some(timestamp) = range.timestamp_max_ms {
                let timestamp = whole_seconds(timestamp);
                self.slot(&key, partition, timestamp, |state| &mut state.timestamps)?;
            }
            if let Some(watermark) = segment.watermarks.get(partition) {
                self.slot(&key, partition, *watermark, |state| &mut state.watermarks)?;
            }
            if let Some(partitions) = segment.partitions_of(&partition.topic)
                && let Some(state) = self.topics.get_mut(&key)
            {
                state.partitions = state.partitions.max(partitions);
            }
        }
        Ok(())
    }

    /// Gives a topic its place and returns the key: what stands under the name moves to the id, and
    /// another topic that had the name is superseded.
    fn settle(&mut self, topic: &str, id: Option<Uuid>) -> String {
        let key = self.key_of(topic, id);
        if id.is_none() || self.topics.contains_key(&key) {
            return key;
        }
        if let Some(state) = self.topics.remove(&topic_key(topic)) {
            self.topics.insert(key.clone(), state);
            return key;
        }
        for state in self.topics.values_mut() {
            if state.topic == topic {
                state.superseded_ms.get_or_insert(self.committed_ms);
            }
        }
        key
    }

    fn forget_superseded(&mut self) {
        let now = self.committed_ms;
        self.topics.retain(|_, state| {
            state
                .superseded_ms
                .is_none_or(|since| now.saturating_sub(since) < SUPERSEDED_MS)
        });
    }

    /// Raises T of `partition`, of a topic whose id is not known, to `end`.
    pub fn raise(&mut self, partition: &TopicPartition, end: i64) -> Result<()> {
        let key = self.key_of(&partition.topic, None);
        self.raise_under(&key, partition, end)
    }

    /// Raises T of `partition`, which stands under `key`, to `end`.
    pub(super) fn raise_under(
        &mut self,
        key: &str,
        partition: &TopicPartition,
        end: i64,
    ) -> Result<()> {
        self.slot(key, partition, end, |state| &mut state.next)
    }

    /// Lowers T where `asked` (of topic key, topic and partition) names a lower offset or none at
    /// all. What else is known of such a partition was true of the rows before the reset.
    pub(super) fn lower(&mut self, asked: impl Fn(&str, &str, i32) -> Option<Option<i64>>) {
        for (key, state) in &mut self.topics {
            let others = state.watermarks.iter_mut().zip(&mut state.timestamps);
            let places = (0..).zip(state.next.iter_mut().zip(others));
            for (partition, (next, (watermark, timestamp))) in places {
                let Some(asked) = asked(key, &state.topic, partition) else {
                    continue;
                };
                let asked = asked.unwrap_or(NONE);
                if asked < *next {
                    (*next, *watermark, *timestamp) = (asked, NONE, NONE);
                }
            }
        }
        self.topics
            .retain(|_, state| state.next.iter().any(|next| *next >= 0));
    }

    fn slot(
        &mut self,
        key: &str,
        partition: &TopicPartition,
        value: i64,
        array: impl Fn(&mut TopicState) -> &mut Vec<i64>,
    ) -> Result<()> {
        let index = usize::try_from(partition.partition)
            .ok()
            .filter(|index| *index < PARTITIONS_MAX)
            .ok_or_else(|| {
                SinkError::internal("partition index out of range").with("partition", partition)
            })?;
        let state = self
            .topics
            .entry(key.to_owned())
            .or_insert_with(|| TopicState {
                topic: partition.topic.to_string(),
                ..TopicState::default()
            });
        for array in [
            &mut state.next,
            &mut state.watermarks,
            &mut state.timestamps,
        ] {
            if array.len() <= index {
                array.resize(index + 1, NONE);
            }
        }
        if let Some(slot) = array(state).get_mut(index) {
            *slot = match enforced(Rule::NeverBack) {
                true => (*slot).max(value),
                false => value,
            };
        }
        Ok(())
    }

    /// Returns the SHA-256 of epoch and offsets. The summary of each commit carries it, so that a
    /// state put together from summaries can prove that it is complete.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(format!("e={}\n", self.epoch));
        for (key, partition, next) in self.places() {
            hash.update(format!("{key}:{}={next}\n", partition.partition));
        }
        let mut text = String::new();
        for byte in hash.finalize() {
            text.push_str(&format!("{byte:02x}"));
        }
        text
    }
}

fn json<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|e| SinkError::internal("cannot write the state").caused_by(e))
}

/// Cuts `text` into pieces of at most `bytes_max` bytes, at character boundaries.
fn pieces(text: &str, bytes_max: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let mut end = bytes_max.clamp(4, rest.len().max(4)).min(rest.len());
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (piece, tail) = rest.split_at(end);
        pieces.push(piece);
        rest = tail;
    }
    pieces
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
