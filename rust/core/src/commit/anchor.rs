//! Offset resets: a record in a table property of what a user asked to be read again.
//!
//! The property `frazil.a.<wid>` stands on every table of the connector, and one write of it is a
//! complete reset: each table's own state is older than the reset until its first commit of the new
//! epoch, and is read through the anchor until then ([`Anchor::apply`]).
//!
//! ```text
//!  epoch of the state < epoch of the reset:  T := the lower of T and the reset's offset
//!  epoch of the state = epoch of the anchor: the state was written after the reset; it counts
//! ```
//!
//! A reset never raises T. One that goes forward needs no more than the group's new offset, and if
//! Kafka then refuses that, no record may be taken for written.

use std::collections::BTreeMap;

use iceberg::spec::TableMetadata;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::recover::entry;
use super::state::{NONE, PARTITIONS_MAX, WriterState, is_topic_key, topic_key};
use crate::error::{Result, SinkError};
use crate::offsets::TopicPartition;

/// The layout of the property that this version reads and writes.
const LAYOUT: u32 = 1;
/// Resets that an anchor remembers one by one.
const RESETS_MAX: usize = 16;

/// All resets of one writer that tables may not have followed yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Anchor {
    epoch: u64,
    resets: Vec<Reset>,
}

/// One reset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reset {
    #[serde(rename = "e")]
    epoch: u64,
    at: i64,
    #[serde(rename = "t")]
    offsets: ResetOffsets,
}

/// What a reset asks for: the offset from which each partition is read again, `None` for its
/// beginning. An empty one stands for the beginning of every partition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResetOffsets {
    topics: BTreeMap<String, BTreeMap<i32, Option<i64>>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Property {
    v: u32,
    e: u64,
    r: Vec<Reset>,
}

#[derive(Deserialize)]
struct Layout {
    v: u32,
}

/// Returns the name of the property that holds the resets of `wid`.
pub fn anchor_key(wid: &str) -> String {
    format!("frazil.a.{wid}")
}

impl ResetOffsets {
    /// Makes a request from partitions and offsets. None at all means every partition.
    ///
    /// # Errors
    ///
    /// `OFFSETS_INVALID` for a partition or an offset that Kafka cannot have.
    pub fn new(
        offsets: impl IntoIterator<Item = (TopicPartition, Option<i64>)>,
    ) -> Result<ResetOffsets> {
        let mut topics: BTreeMap<String, BTreeMap<i32, Option<i64>>> = BTreeMap::new();
        for (partition, offset) in offsets {
            topics
                .entry(topic_key(&partition.topic))
                .or_default()
                .insert(partition.partition, offset);
        }
        let offsets = ResetOffsets { topics };
        match offsets.is_sound() {
            true => Ok(offsets),
            false => Err(SinkError::config(
                "OFFSETS_INVALID",
                "a topic is empty, or a partition or an offset is negative or too large; correct the request",
            )),
        }
    }

    /// Tells whether every partition is asked for.
    pub fn is_everything(&self) -> bool {
        self.topics.is_empty()
    }

    fn is_sound(&self) -> bool {
        self.topics.iter().all(|(key, partitions)| {
            is_topic_key(key)
                && !partitions.is_empty()
                && partitions.iter().all(|(partition, offset)| {
                    usize::try_from(*partition).is_ok_and(|index| index < PARTITIONS_MAX)
                        && offset.is_none_or(|offset| offset >= 0)
                })
        })
    }

    /// Returns what is asked for the partition of a topic that the state keeps under `key`.
    fn of(&self, key: &str, topic: &str, partition: i32) -> Option<Option<i64>> {
        if self.is_everything() {
            return Some(None);
        }
        [key, &topic_key(topic)]
            .iter()
            .filter_map(|key| self.topics.get(*key)?.get(&partition).copied())
            // `None` is lower than any offset.
            .min()
    }

    /// Takes in what an earlier reset asked for: the lower offset of each partition.
    fn merge(&mut self, earlier: ResetOffsets) {
        if self.is_everything() || earlier.is_everything() {
            self.topics.clear();
            return;
        }
        for (key, partitions) in earlier.topics {
            let known = self.topics.entry(key).or_default();
            for (partition, offset) in partitions {
                let lowest = known.entry(partition).or_insert(offset);
                *lowest = offset.min(*lowest);
            }
        }
    }
}

impl Anchor {
    /// Reads the resets of `wid` from the properties of a table, or from the summary of a snapshot where
    /// the catalog takes no properties; none when neither has any.
    ///
    /// # Errors
    ///
    /// `STATE_INVALID` or `STATE_VERSION_UNKNOWN`: a reset that is not understood must not be
    /// taken for none.
    pub fn of(metadata: &TableMetadata, wid: &str) -> Result<Anchor> {
        let key = anchor_key(wid);
        let parse = |text: &str| Anchor::parse(text).map_err(|error| error.with("property", &key));
        let carriers = metadata.snapshots().filter_map(|snapshot| {
            let text = entry(snapshot, &key)?;
            Some((snapshot.sequence_number(), text))
        });
        // Each commit hands on what the one before it knew.
        let carried = carriers.max_by_key(|(sequence_number, _)| *sequence_number);
        let stored = metadata.properties().get(&key).map(String::as_str);
        let mut newest = Anchor::default();
        for text in stored.into_iter().chain(carried.map(|(_, text)| text)) {
            let anchor = parse(text)?;
            if anchor.epoch > newest.epoch {
                newest = anchor;
            }
        }
        Ok(newest)
    }

    /// Returns the entry that hands the resets on in the summary of a snapshot: its key and its value;
    /// `None` when there were none.
    ///
    /// # Errors
    ///
    /// An internal error when they cannot be written.
    pub(super) fn write_summary(&self, wid: &str) -> Result<Option<(String, String)>> {
        match self.epoch {
            0 => Ok(None),
            _ => Ok(Some((anchor_key(wid), self.write()?))),
        }
    }

    /// Tells whether the last reset names every partition, so that no offset from before it counts.
    pub fn begins_anew(&self) -> bool {
        let last = self.resets.last();
        last.is_some_and(|reset| reset.offsets.is_everything())
    }

    /// Reads the value of the property.
    ///
    /// # Errors
    ///
    /// As [`Anchor::of`].
    pub fn parse(text: &str) -> Result<Anchor> {
        let invalid = || {
            SinkError::fatal(
                "STATE_INVALID",
                "the record of offset resets in the table property is not readable; restore the property from an older metadata file or from another table of the connector",
            )
        };
        let layout: Layout =
            serde_json::from_str(text).map_err(|error| invalid().caused_by(error))?;
        if layout.v != LAYOUT {
            return Err(SinkError::fatal(
                "STATE_VERSION_UNKNOWN",
                "the record of offset resets was written by a newer version; upgrade the plugin",
            )
            .with("version", layout.v));
        }
        let read: Property =
            serde_json::from_str(text).map_err(|error| invalid().caused_by(error))?;
        let anchor = Anchor {
            epoch: read.e,
            resets: read.r,
        };
        match anchor.is_sound() {
            true => Ok(anchor),
            false => Err(invalid()),
        }
    }

    fn is_sound(&self) -> bool {
        let epochs = || self.resets.iter().map(|reset| reset.epoch);
        self.resets.len() <= RESETS_MAX
            && epochs().is_sorted_by(|before, after| before < after)
            && epochs().next().is_none_or(|first| first > 0)
            && epochs().next_back().unwrap_or(0) == self.epoch
            && self.resets.iter().all(|reset| reset.offsets.is_sound())
    }

    /// Returns the value of the property.
    pub fn write(&self) -> Result<String> {
        let property = Property {
            v: LAYOUT,
            e: self.epoch,
            r: self.resets.clone(),
        };
        serde_json::to_string(&property).map_err(|error| {
            SinkError::internal("cannot write the record of offset resets").caused_by(error)
        })
    }

    /// Returns the epoch that the last reset began; 0 before the first one.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Records a reset. `epoch_seen` is the highest epoch that any table of the writer has
    /// committed with. Returns `false`, and changes nothing, when the last reset asked for the same
    /// and no table has followed it: a request that is made twice is one reset.
    pub fn append(&mut self, offsets: ResetOffsets, at_ms: i64, epoch_seen: u64) -> bool {
        let last = self.resets.last().map(|reset| &reset.offsets);
        if last == Some(&offsets) && epoch_seen < self.epoch {
            return false;
        }
        self.epoch = self.epoch.max(epoch_seen).saturating_add(1);
        self.resets.push(Reset {
            epoch: self.epoch,
            at: at_ms,
            offsets,
        });
        // What is too old to stand alone lives on in its successor: a table that followed none of
        // them may then skip less, never more.
        while self.resets.len() > RESETS_MAX {
            let oldest = self.resets.remove(0);
            if let Some(next) = self.resets.first_mut() {
                next.offsets.merge(oldest.offsets);
            }
        }
        true
    }

    /// Makes the state that a table stores into the one that counts: resets that are younger than
    /// the state lower its offsets, and its epoch is the anchor's, so that sessions from before the
    /// reset are fenced.
    pub fn apply(&self, state: &mut WriterState) {
        let stored = state.epoch;
        if self.epoch <= stored {
            return;
        }
        state.lower(|key, topic, partition| self.asked(key, topic, partition, stored, self.epoch));
        state.epoch = self.epoch;
        // What became of the snapshot of the last commit is no concern of the new epoch.
        state.snapshot_id = NONE;
    }

    /// Tells whether every offset that a state of epoch `epoch` holds was reset since.
    pub(super) fn forgets(&self, epoch: u64) -> bool {
        let mut later = self.resets.iter().filter(|reset| reset.epoch > epoch);
        later.any(|reset| reset.offsets.is_everything())
    }

    /// Returns when the resets were made, in milliseconds since the epoch, and the epoch that each
    /// began, oldest first.
    pub fn resets(&self) -> impl Iterator<Item = (u64, i64)> {
        self.resets.iter().map(|reset| (reset.epoch, reset.at))
    }

    /// Like [`Anchor::apply`] for the state of a table that may have none.
    pub fn effective(&self, stored: Option<WriterState>, table_uuid: Uuid) -> Option<WriterState> {
        if self.epoch == 0 {
            return stored;
        }
        let mut state = stored.unwrap_or_else(|| WriterState::new(table_uuid));
        self.apply(&mut state);
        Some(state)
    }

    /// Returns what the resets after epoch `after` up to epoch `until` leave of `end`, which a
    /// commit of epoch `after` reached; `None` when nothing.
    pub(super) fn remains(
        &self,
        partition: &TopicPartition,
        key: &str,
        (after, until): (u64, u64),
        end: i64,
    ) -> Option<i64> {
        match self.asked(key, &partition.topic, partition.partition, after, until) {
            None => Some(end),
            Some(lowest) => lowest.map(|lowest| lowest.min(end)),
        }
    }

    /// Returns the lowest offset that the resets after epoch `after` up to epoch `until` ask for.
    fn asked(
        &self,
        key: &str,
        topic: &str,
        partition: i32,
        after: u64,
        until: u64,
    ) -> Option<Option<i64>> {
        self.resets
            .iter()
            .filter(|reset| (after.saturating_add(1)..=until).contains(&reset.epoch))
            .filter_map(|reset| reset.offsets.of(key, topic, partition))
            .min()
    }
}

#[cfg(test)]
#[path = "anchor_tests.rs"]
mod tests;
