//! Topic partitions and half-open offset ranges. All offsets are *next* offsets.

use std::fmt;
use std::sync::Arc;

/// A topic and partition, as the record had them before any transform (KIP-793).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition's index.
    pub partition: i32,
}

impl TopicPartition {
    /// Names partition `partition` of `topic`.
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        TopicPartition {
            topic: topic.into(),
            partition,
        }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// What a segment claims about one topic partition: every record in `[start, end)` that reached
/// this session for this table is in the segment's files. A claim, not a count: offsets may have
/// gaps (transaction markers, compaction, records that a transform removed).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceRange {
    /// The partition.
    pub partition: TopicPartition,
    /// Where the claim begins; `None` when the session does not know where it started.
    pub start: Option<i64>,
    /// One past the last offset that the claim covers.
    pub end: i64,
    /// The lowest offset that has a row in the files; `None` when the range has no rows.
    pub lowest: Option<i64>,
    /// The newest record timestamp seen, in milliseconds since the epoch.
    pub timestamp_max_ms: Option<i64>,
}

impl SourceRange {
    /// Tells whether the files hold a row of this partition.
    pub fn has_rows(&self) -> bool {
        self.lowest.is_some()
    }
}
