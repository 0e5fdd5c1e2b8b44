//! Which records lack values that no row has, as a rejection says it to the session that has to set them aside.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::limits::ABSENT_RECORDS_MAX;
use crate::offsets::TopicPartition;

/// Bytes of them in a message, about.
const BYTES_MAX: usize = 160 << 10;
/// Bytes of a partition beside the name of its topic, and of an offset beside its digits.
const PARTITION_BYTES: usize = 48;
const OFFSET_BYTES: usize = 1;

/// Records, at most [`ABSENT_RECORDS_MAX`] of them and as many as a message has room for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AbsentRecords(Vec<Offsets>);

/// Those of one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Offsets {
    #[serde(rename = "t")]
    topic: String,
    #[serde(rename = "p")]
    partition: i32,
    #[serde(rename = "o")]
    offsets: Vec<i64>,
}

impl AbsentRecords {
    /// Takes as many of `records` as there is room for. Those that are left out are named once these are set
    /// aside.
    pub fn of(records: &BTreeSet<(TopicPartition, i64)>) -> Self {
        let mut all: Vec<Offsets> = Vec::new();
        let mut bytes = 0;
        for (partition, offset) in records.iter().take(ABSENT_RECORDS_MAX) {
            let is_same = |one: &&mut Offsets| {
                *one.topic == *partition.topic && one.partition == partition.partition
            };
            bytes += offset.to_string().len() + OFFSET_BYTES;
            match all.last_mut().filter(is_same) {
                Some(known) if bytes <= BYTES_MAX => known.offsets.push(*offset),
                None if bytes + partition.topic.len() + PARTITION_BYTES <= BYTES_MAX => {
                    bytes += partition.topic.len() + PARTITION_BYTES;
                    all.push(Offsets {
                        topic: partition.topic.to_string(),
                        partition: partition.partition,
                        offsets: vec![*offset],
                    });
                }
                _ => break,
            }
        }
        AbsentRecords(all)
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns them.
    pub fn records(&self) -> Vec<(TopicPartition, i64)> {
        let all = self.partitions().flat_map(|(partition, offsets)| {
            let offsets = offsets.iter();
            offsets.map(move |offset| (partition.clone(), *offset))
        });
        all.collect()
    }

    /// Returns their partitions with the offsets there.
    pub(super) fn partitions(&self) -> impl Iterator<Item = (TopicPartition, &[i64])> {
        self.0.iter().map(|one| {
            let partition = TopicPartition::new(one.topic.as_str(), one.partition);
            (partition, one.offsets.as_slice())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_named_as_far_as_there_is_room() {
        let short = TopicPartition::new("orders", 0);
        let other = TopicPartition::new("orders", 1);
        let record = |of: &TopicPartition, offset| (of.clone(), offset);
        let few = BTreeSet::from([
            record(&short, 7),
            record(&other, 7),
            record(&short, 1 << 40),
        ]);
        let named = AbsentRecords::of(&few);
        assert_eq!(BTreeSet::from_iter(named.records()), few);
        let text = serde_json::to_string(&named).unwrap();
        assert_eq!(
            text,
            r#"[{"t":"orders","p":0,"o":[7,1099511627776]},{"t":"orders","p":1,"o":[7]}]"#
        );
        let many: BTreeSet<_> = (0..20_000).map(|offset| record(&short, offset)).collect();
        let named = AbsentRecords::of(&many).records();
        assert_eq!(named.len(), ABSENT_RECORDS_MAX);
        assert!(named.iter().eq(many.iter().take(ABSENT_RECORDS_MAX)));
        assert!(AbsentRecords::of(&BTreeSet::new()).is_empty());
    }

    #[test]
    fn long_names_and_large_offsets_leave_room_for_the_rest_of_a_message() {
        let topic = "t".repeat(249);
        let of = |place: i64| (i64::MAX / 2 - place, (place % 2_000) as i32);
        let many = (0..ABSENT_RECORDS_MAX as i64).map(of);
        let many = many.map(|(offset, part)| (TopicPartition::new(topic.as_str(), part), offset));
        let many: BTreeSet<_> = many.collect();
        let named = AbsentRecords::of(&many);
        let text = serde_json::to_string(&named).unwrap();
        assert!(
            text.len() <= BYTES_MAX && text.len() > BYTES_MAX / 2,
            "{}",
            text.len()
        );
        assert!(
            named
                .records()
                .iter()
                .eq(many.iter().take(named.records().len()))
        );
    }
}
