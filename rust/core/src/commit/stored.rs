//! How a topic's arrays are written in the state property, which every metadata file repeats.
//!
//! Offsets are written as they are. What goes with them is written as the small number by which it
//! differs from what is known anyway: a low watermark from the partition's offset, and a timestamp,
//! in whole seconds, from the time of the commit. `null` means none, nulls at the end and arrays of
//! nothing else are left out.

use serde::{Deserialize, Serialize};

use super::state::{NONE, TopicState};

const MS_PER_SECOND: i64 = 1_000;

/// The arrays of a topic as they are written.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredTopic {
    #[serde(rename = "n")]
    topic: String,
    #[serde(rename = "o")]
    next: Vec<i64>,
    #[serde(rename = "w", default, skip_serializing_if = "Vec::is_empty")]
    watermarks: Vec<Option<i64>>,
    #[serde(rename = "x", default, skip_serializing_if = "Vec::is_empty")]
    timestamps: Vec<Option<i64>>,
    #[serde(rename = "z", default, skip_serializing_if = "Option::is_none")]
    superseded_ms: Option<i64>,
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    partitions: Option<u32>,
}

impl StoredTopic {
    /// Returns how `state` is written by a commit of `committed_ms`.
    pub(super) fn of(state: &TopicState, committed_ms: i64) -> Self {
        let watermarks = state.next.iter().zip(&state.watermarks);
        let watermarks = watermarks.map(|(next, w)| known(*w).map(|w| w.saturating_sub(*next)));
        let second = seconds(committed_ms);
        let timestamps = state.timestamps.iter();
        let timestamps = timestamps.map(|x| known(*x).map(|x| second - seconds(x)));
        StoredTopic {
            topic: state.topic.clone(),
            next: state.next.clone(),
            watermarks: trimmed(watermarks.collect()),
            timestamps: trimmed(timestamps.collect()),
            superseded_ms: state.superseded_ms,
            partitions: (state.partitions > 0).then_some(state.partitions),
        }
    }

    /// Returns the topic as a commit of `committed_ms` wrote it; `None` when no commit writes it so.
    pub(super) fn read(self, committed_ms: i64) -> Option<TopicState> {
        let length = self.next.len();
        if self.watermarks.len() > length || self.timestamps.len() > length {
            return None;
        }
        let watermark = |(next, w): (&i64, Option<i64>)| match w {
            Some(w) => next.checked_add(w).and_then(known),
            None => Some(NONE),
        };
        let second = seconds(committed_ms);
        let timestamp = |x: Option<i64>| match x {
            Some(x) => second
                .checked_sub(x)
                .and_then(|x| x.checked_mul(MS_PER_SECOND))
                .and_then(known),
            None => Some(NONE),
        };
        let watermarks = self.next.iter().zip(padded(self.watermarks));
        let watermarks = watermarks.map(watermark).collect::<Option<_>>()?;
        let timestamps = padded(self.timestamps).take(length);
        let timestamps = timestamps.map(timestamp).collect::<Option<_>>()?;
        Some(TopicState {
            topic: self.topic,
            next: self.next,
            watermarks,
            timestamps,
            superseded_ms: self.superseded_ms,
            partitions: self.partitions.unwrap_or_default(),
        })
    }
}

/// Returns the beginning of the second of `ms`: what is kept of a record's timestamp.
pub(super) fn whole_seconds(ms: i64) -> i64 {
    // Only the first second of all time would overflow.
    seconds(ms).saturating_mul(MS_PER_SECOND)
}

fn seconds(ms: i64) -> i64 {
    ms.div_euclid(MS_PER_SECOND)
}

fn known(value: i64) -> Option<i64> {
    (value >= 0).then_some(value)
}

fn trimmed(mut values: Vec<Option<i64>>) -> Vec<Option<i64>> {
    while values.last().is_some_and(Option::is_none) {
        values.pop();
    }
    values
}

fn padded(values: Vec<Option<i64>>) -> impl Iterator<Item = Option<i64>> {
    values.into_iter().chain(std::iter::repeat(None))
}
