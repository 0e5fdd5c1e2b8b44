//! Whether the topics of a table with changes have the partitions that they had.
//!
//! A producer sends all records of a key to one partition, which it finds by the number of partitions.
//! When some are added, later changes of a key come through another partition than those before them,
//! and Kafka keeps no order between the two. So the count of each topic stands in the state, with the
//! offsets, and a larger one stops the task until somebody says that it is meant.

use uuid::Uuid;

use super::state::WriterState;
use crate::error::{Result, SinkError};

/// Checks one topic, which now has `partitions` partitions, against what the table's state knows of it.
/// As many as `accepted` are meant.
///
/// # Errors
///
/// `TOPIC_PARTITIONS_ADDED`.
pub fn check(
    state: &WriterState,
    (topic, id): (&str, Option<Uuid>),
    partitions: u32,
    accepted: Option<u32>,
) -> Result<()> {
    let Some(before) = state.partitions_of(topic, id) else {
        return Ok(());
    };
    if partitions <= before.max(accepted.unwrap_or_default()) {
        return Ok(());
    }
    let message = format!(
        "the topic has {partitions} partitions and had {before} when changes of the table were read \
         last: later changes of a key may come through another partition than those before them, and \
         then nothing tells which is later, unless changes have an order; when the connector had read \
         what came before, or changes have an order, set `frazil.partitions.accept={partitions}`, else \
         read the changes again into an empty table"
    );
    Err(SinkError::config("TOPIC_PARTITIONS_ADDED", message).with("topic", topic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::test_support::{range, segment};
    use crate::control::segment::{KeyRunRef, Segment};

    fn changes(seq: u64, id: Option<u128>, partitions: Option<u32>) -> Segment {
        let start = seq.cast_signed() * 10;
        let mut made = segment(seq, vec![range("t", 0, start, start + 10, Some(start))]);
        let id = id.map(Uuid::from_u128);
        made.topic_ids = id.map(|id| ("t".into(), id)).into_iter().collect();
        made.key_run = Some(KeyRunRef {
            path: "k".to_owned(),
            len: 1,
            sha256: [0; 32],
            rows: made.rows,
            topic_partitions: partitions.map(|n| ("t".into(), n)).into_iter().collect(),
        });
        made
    }

    fn judged(state: &WriterState, id: Option<u128>, now: u32, accepted: Option<u32>) -> bool {
        let topic = ("t", id.map(Uuid::from_u128));
        match check(state, topic, now, accepted) {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.code(), "TOPIC_PARTITIONS_ADDED");
                assert!(
                    error.message().contains(&format!("accept={now}")),
                    "{error}"
                );
                false
            }
        }
    }

    #[test]
    fn added_partitions_count_until_they_are_accepted() {
        let mut state = WriterState::new(Uuid::from_u128(1));
        assert!(judged(&state, None, 9, None), "nothing is known");
        state.advance(&changes(0, Some(1), None)).unwrap();
        assert!(judged(&state, Some(1), 9, None), "nobody told");
        state.advance(&changes(1, Some(1), Some(3))).unwrap();
        assert!(judged(&state, Some(1), 3, None));
        assert!(!judged(&state, Some(1), 4, None));
        assert!(judged(&state, Some(1), 6, Some(6)));
        assert!(!judged(&state, Some(1), 7, Some(6)), "only so many");
        // What a task still sends that has not heard of it takes nothing back.
        state.advance(&changes(2, Some(1), Some(6))).unwrap();
        state.advance(&changes(3, Some(1), Some(3))).unwrap();
        state.advance(&changes(4, Some(1), None)).unwrap();
        assert!(judged(&state, Some(1), 6, None));
        assert!(!judged(&state, Some(1), 7, None));
        assert!(
            !judged(&state, None, 7, None),
            "the topic's id is not known now"
        );
        assert!(judged(&state, Some(2), 7, None), "the topic was made again");
    }

    #[test]
    fn the_count_is_kept_with_the_offsets() {
        let table = Uuid::from_u128(1);
        let mut state = WriterState::new(table);
        state.advance(&changes(0, Some(1), Some(3))).unwrap();
        let written = state.write("w", "main", 0).unwrap();
        let property = |name: &str| written.set.get(name).map(String::as_str);
        let read = WriterState::read(property, "w", "main", table).unwrap();
        assert_eq!(read.unwrap().partitions_of("t", None), Some(3));
    }
}
