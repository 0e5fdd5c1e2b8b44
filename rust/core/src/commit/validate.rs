//! The one test that makes a commit exactly-once: where does the table stand, and what do the
//! files of a segment claim? (`T <= lowest offset`; protocol: no duplicate, no hole.)
//!
//! The test holds only for the metadata object that the commit then asserts. It is not repeated or
//! relaxed anywhere else.

use std::collections::BTreeSet;
use std::fmt;

use uuid::Uuid;

use super::state::WriterState;
use crate::control::segment::Segment;
use crate::offsets::TopicPartition;
use crate::rules::{Rule, enforced};

/// What to do with a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The table has all its rows already: done, and its files stay behind as orphans.
    Covered,
    /// Its files may not be committed; the session is dead and starts over.
    Rejected(RejectReason),
    /// The offsets were reset after its session began: the task stops for good.
    Fenced {
        /// The writer epoch of the table.
        epoch: u64,
    },
    /// Its files may be committed on this metadata.
    Commit,
}

/// Why the files of a segment may not be committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RejectReason {
    /// The table was dropped and created again, or replaced, since the files were written.
    TableReplaced {
        /// The table's UUID now.
        now: Uuid,
    },
    /// Another session committed a part of the segment's offsets.
    Overlap {
        /// The partition.
        partition: TopicPartition,
        /// T: one past the last offset that the table holds.
        bound: i64,
        /// The lowest offset in the files.
        lowest: i64,
        /// The connector that committed to the table last, as this writer.
        connector: String,
        /// The process that did.
        hub_id: String,
    },
    /// An earlier segment of the same session was rejected (rule R15).
    SessionRejected,
    /// A manifest is gone or has another length than when it was sealed.
    ManifestChanged {
        /// The manifest's location.
        path: String,
    },
    /// The file with the keys of its changes is gone, or is of no use for the table as it is.
    KeysUnusable {
        /// Its location.
        path: String,
        /// Why it is of no use.
        reason: String,
    },
    /// A change empties the table, and nobody knows what came before it.
    TruncationUnsure {
        /// The partition that it came in.
        partition: TopicPartition,
        /// Another one that the table, or the same commit, has changes of.
        other: TopicPartition,
    },
    /// Values that the source left out are in no row, and may not become null.
    ValueAbsent {
        /// The columns.
        columns: Vec<String>,
        /// The records, at least some of them.
        records: BTreeSet<(TopicPartition, i64)>,
    },
    /// The partition spec of a manifest is not in the table any more.
    SpecRemoved {
        /// The partition spec's id.
        spec_id: i32,
    },
    /// Its ranges and its manifests contradict each other.
    Inconsistent,
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RejectReason::TableReplaced { now } => {
                write!(f, "the table was replaced; its uuid is now {now}")
            }
            RejectReason::Overlap {
                partition,
                bound,
                lowest,
                connector,
                hub_id,
            } => write!(
                f,
                "another session committed {partition} up to offset {bound}, the files begin at {lowest}; the last commit of this writer was made by connector `{connector}` on `{hub_id}`"
            ),
            RejectReason::SessionRejected => {
                f.write_str("an earlier segment of the session was rejected")
            }
            RejectReason::ManifestChanged { path } => {
                write!(f, "manifest `{path}` is gone or was changed")
            }
            RejectReason::KeysUnusable { path, reason } => {
                write!(
                    f,
                    "the keys of its changes in `{path}` are of no use: {reason}"
                )
            }
            RejectReason::TruncationUnsure { partition, other } => write!(
                f,
                "the source's table was truncated, which came in {partition}, and there are changes of \
                 {other}: nobody knows which of them came before it"
            ),
            RejectReason::ValueAbsent { columns, records } => {
                f.write_str("the table has no row with the values of ")?;
                write_columns(f, columns)?;
                f.write_str(" that the source left out of ")?;
                write_records(f, records)
            }
            RejectReason::SpecRemoved { spec_id } => {
                write!(f, "partition spec {spec_id} is not in the table any more")
            }
            RejectReason::Inconsistent => {
                f.write_str("the segment's offsets and files contradict each other")
            }
        }
    }
}

/// Bytes of the names of columns in a reason, which people read.
const COLUMNS_BYTES_MAX: usize = 1_000;
/// Records that are named there.
const RECORDS_SHOWN_MAX: usize = 5;

/// Writes as many columns as there is room for.
fn write_columns(f: &mut fmt::Formatter<'_>, columns: &[String]) -> fmt::Result {
    let mut bytes = 0;
    let mut shown = 0;
    for column in columns {
        bytes += column.len() + 2;
        if bytes > COLUMNS_BYTES_MAX {
            break;
        }
        let between = if shown == 0 { "" } else { ", " };
        write!(f, "{between}{column}")?;
        shown += 1;
    }
    match columns.len() - shown {
        0 => Ok(()),
        more if shown == 0 => write!(f, "{more} columns"),
        more => write!(f, " and {more} more"),
    }
}

fn write_records(
    f: &mut fmt::Formatter<'_>,
    records: &BTreeSet<(TopicPartition, i64)>,
) -> fmt::Result {
    for (index, (partition, offset)) in records.iter().take(RECORDS_SHOWN_MAX).enumerate() {
        let between = if index == 0 { "" } else { ", " };
        write!(f, "{between}{partition} at offset {offset}")?;
    }
    match records.len().saturating_sub(RECORDS_SHOWN_MAX) {
        0 => Ok(()),
        more => write!(f, " and {more} more records"),
    }
}

/// Tells whether `state` is from before the reset after which the session of `segment` began: what
/// it says of offsets is void, and the reset that voids it has not been seen yet. That happens when
/// a catalog answers with metadata that is not the newest. A reset moves no snapshot, so that the
/// catalog would take a commit that is built on it.
pub fn is_before_reset(state: Option<&WriterState>, segment: &Segment) -> bool {
    state.is_some_and(|state| state.epoch < segment.epoch)
}

/// Judges `segment` against the table with `table_uuid`, whose writer state is `state`.
pub fn verdict(table_uuid: Uuid, state: Option<&WriterState>, segment: &Segment) -> Verdict {
    if segment.table_uuid != table_uuid {
        return Verdict::Rejected(RejectReason::TableReplaced { now: table_uuid });
    }
    if !segment.is_consistent() {
        return Verdict::Rejected(RejectReason::Inconsistent);
    }
    let epoch = state.map_or(0, |state| state.epoch);
    if epoch > segment.epoch {
        return Verdict::Fenced { epoch };
    }
    let bound = |partition| {
        let of = |partition: &TopicPartition| segment.topic_id(&partition.topic);
        state.and_then(|state| state.bound_of(partition, of(partition)))
    };
    if segment
        .ranges_with_rows()
        .all(|range| bound(&range.partition) >= Some(range.end))
    {
        return Verdict::Covered;
    }
    match overlap(state, segment) {
        Some(reason) if enforced(Rule::BoundTest) => Verdict::Rejected(reason),
        _ => Verdict::Commit,
    }
}

/// Says by whom all rows of `segment` were committed before it, when that was another connector than
/// `connector`: two that read in step would do each other's work for ever, and nobody would hear of
/// it. No row is at stake, but a session that is told so counts it, and ends when it goes on.
pub fn covered_by_another(
    state: Option<&WriterState>,
    segment: &Segment,
    connector: &str,
) -> Option<RejectReason> {
    let by_another =
        |state: &&WriterState| !state.connector.is_empty() && state.connector != connector;
    overlap(Some(state.filter(by_another)?), segment)
}

/// Finds the first rows of `segment` that the table has already.
fn overlap(state: Option<&WriterState>, segment: &Segment) -> Option<RejectReason> {
    let state = state?;
    segment.ranges.iter().find_map(|range| {
        let partition = &range.partition;
        let bound = state.bound_of(partition, segment.topic_id(&partition.topic))?;
        let lowest = range.lowest.filter(|lowest| bound > *lowest)?;
        Some(RejectReason::Overlap {
            partition: partition.clone(),
            bound,
            lowest,
            connector: state.connector.clone(),
            hub_id: state.hub_id.clone(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::test_support::{range, segment};
    use crate::control::message::Answer;

    fn state(bounds: &[(i32, i64)], epoch: u64) -> WriterState {
        let mut state = WriterState::new(Uuid::from_u128(7));
        state.epoch = epoch;
        state.connector = "orders-sink".into();
        state.hub_id = "host-2/0a0b0c0d".into();
        for (partition, bound) in bounds {
            state
                .raise(&TopicPartition::new("t", *partition), *bound)
                .unwrap();
        }
        state
    }

    #[test]
    fn a_reason_names_some_of_the_records_without_values() {
        let topic = "t".repeat(249);
        let record = |offset| (TopicPartition::new(topic.as_str(), 0), offset);
        for columns in [vec!["c".repeat(5_000)], vec!["ä".repeat(100); 50]] {
            let reason = RejectReason::ValueAbsent {
                columns,
                records: (0..100).map(record).collect(),
            };
            let text = reason.to_string();
            assert_eq!(Answer::reason(&text), text, "it is whole in a message");
            assert!(
                text.ends_with(&format!("{topic}-0 at offset 4 and 95 more records")),
                "{text}"
            );
        }
        let reason = RejectReason::ValueAbsent {
            columns: vec!["note".into(), "size".into()],
            records: BTreeSet::from([(TopicPartition::new("orders", 3), 7)]),
        };
        assert_eq!(
            reason.to_string(),
            "the table has no row with the values of note, size that the source left out of orders-3 at offset 7"
        );
    }

    #[test]
    fn the_table_of_cases() {
        let two = || {
            segment(
                0,
                vec![
                    range("t", 0, 0, 10, Some(4)),
                    range("t", 1, 0, 20, Some(0)),
                    range("t", 2, 0, 30, None),
                ],
            )
        };
        let overlap = |partition, bound, lowest| {
            Verdict::Rejected(RejectReason::Overlap {
                partition: TopicPartition::new("t", partition),
                bound,
                lowest,
                connector: "orders-sink".into(),
                hub_id: "host-2/0a0b0c0d".into(),
            })
        };
        type Case = (&'static str, &'static [(i32, i64)], Verdict);
        let cases: [Case; 9] = [
            (
                "a table that never saw the partitions",
                &[],
                Verdict::Commit,
            ),
            (
                "T below the lowest row: a gap is no hole",
                &[(0, 2)],
                Verdict::Commit,
            ),
            ("T at the lowest row", &[(0, 4)], Verdict::Commit),
            ("T one above the lowest row", &[(0, 5)], overlap(0, 5, 4)),
            ("all committed", &[(0, 10), (1, 20)], Verdict::Covered),
            (
                "all committed and more",
                &[(0, 11), (1, 99)],
                Verdict::Covered,
            ),
            ("one of two committed", &[(0, 10)], overlap(0, 10, 4)),
            (
                "a partition without rows does not count",
                &[(2, 99)],
                Verdict::Commit,
            ),
            (
                "the other one of two committed",
                &[(1, 20)],
                overlap(1, 20, 0),
            ),
        ];
        for (name, bounds, expected) in cases {
            let state = state(bounds, 0);
            assert_eq!(
                verdict(state.table_uuid, Some(&state), &two()),
                expected,
                "{name}"
            );
        }
        assert_eq!(verdict(Uuid::from_u128(7), None, &two()), Verdict::Commit);
    }

    // Promise: A segment that another writer's commit overtook is rejected with the name of that connector and of its process.
    #[test]
    fn an_overlap_names_the_other_writer() {
        let state = state(&[(0, 5)], 0);
        let late = segment(0, vec![range("t", 0, 0, 10, Some(4))]);
        let Verdict::Rejected(reason) = verdict(state.table_uuid, Some(&state), &late) else {
            panic!("not rejected");
        };
        assert_eq!(
            reason.to_string(),
            "another session committed t-0 up to offset 5, the files begin at 4; the last commit of this writer was made by connector `orders-sink` on `host-2/0a0b0c0d`"
        );
    }

    #[test]
    fn rows_that_another_connector_committed_are_told_from_own_ones() {
        let mut state = state(&[(0, 10)], 0);
        let late = segment(0, vec![range("t", 0, 0, 10, Some(4))]);
        let of = |state: &WriterState, by| covered_by_another(Some(state), &late, by);
        assert_eq!(of(&state, "orders-sink"), None, "its own");
        let Some(RejectReason::Overlap {
            connector, lowest, ..
        }) = of(&state, "copy")
        else {
            panic!("not told");
        };
        assert_eq!((connector.as_str(), lowest), ("orders-sink", 4));
        state.connector.clear();
        assert_eq!(of(&state, "copy"), None, "by nobody knows whom");
        assert_eq!(covered_by_another(None, &late, "copy"), None);
    }

    #[test]
    fn a_session_from_before_a_reset_is_fenced() {
        let state = state(&[(0, 10)], 3);
        let mut old = segment(0, vec![range("t", 0, 0, 10, Some(0))]);
        old.epoch = 2;
        assert_eq!(
            verdict(state.table_uuid, Some(&state), &old),
            Verdict::Fenced { epoch: 3 }
        );
        old.epoch = 3;
        assert_eq!(
            verdict(state.table_uuid, Some(&state), &old),
            Verdict::Covered
        );
    }

    #[test]
    fn a_state_that_does_not_know_of_the_reset_is_told_from_one_that_does() {
        let mut late = segment(0, vec![range("t", 0, 0, 10, Some(0))]);
        late.epoch = 2;
        assert!(is_before_reset(Some(&state(&[(0, 10)], 1)), &late));
        assert!(!is_before_reset(Some(&state(&[(0, 10)], 2)), &late));
        assert!(!is_before_reset(None, &late), "it has no offsets to void");
    }

    #[test]
    fn another_table_of_the_same_name_is_rejected_and_never_skipped() {
        let state = state(&[(0, 10)], 0);
        let mut segment = segment(0, vec![range("t", 0, 0, 10, Some(0))]);
        segment.table_uuid = Uuid::from_u128(8);
        assert_eq!(
            verdict(state.table_uuid, Some(&state), &segment),
            Verdict::Rejected(RejectReason::TableReplaced {
                now: state.table_uuid
            })
        );
    }

    #[test]
    fn a_segment_that_contradicts_itself_is_rejected() {
        let mut without_offsets = segment(0, vec![range("t", 0, 0, 10, Some(0))]);
        without_offsets.ranges.clear();
        let mut without_files = segment(0, vec![range("t", 0, 0, 10, Some(0))]);
        without_files.manifests.clear();
        let beyond = segment(0, vec![range("t", 0, 0, 10, Some(10))]);
        for segment in [without_offsets, without_files, beyond] {
            assert_eq!(
                verdict(Uuid::from_u128(7), None, &segment),
                Verdict::Rejected(RejectReason::Inconsistent)
            );
        }
    }

    #[test]
    fn an_empty_segment_is_covered() {
        let mut empty = segment(0, vec![range("t", 0, 0, 10, None)]);
        empty.manifests.clear();
        assert_eq!(verdict(Uuid::from_u128(7), None, &empty), Verdict::Covered);
    }
}
