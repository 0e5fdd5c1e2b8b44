use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::commit::test_support::{range, segment};
use crate::offsets::TopicPartition;

fn table() -> Uuid {
    Uuid::from_u128(7)
}

fn of_session(session: u128, seq: u64, start: i64, end: i64) -> Segment {
    let mut made = segment(seq, vec![range("t", 0, start, end, Some(start))]);
    made.session = Uuid::from_u128(session);
    made
}

fn pick(state: Option<&WriterState>, segments: &[Segment]) -> Choice {
    let waiting: Vec<&Segment> = segments.iter().collect();
    choose(table(), state, "c", &waiting, &mut BTreeSet::new()).unwrap()
}

#[test]
fn append_segments_merge_into_one_commit() {
    let choice = pick(
        None,
        &[
            of_session(1, 0, 0, 10),
            of_session(1, 1, 10, 20),
            of_session(1, 2, 25, 30),
        ],
    );
    assert_eq!(choice.batch, [0, 1, 2]);
    assert_eq!(choice.state.bound(&TopicPartition::new("t", 0)), Some(30));
    assert!(choice.decided.is_empty());
}

#[test]
fn a_session_whose_rows_another_connector_committed_is_dead() {
    let mut state = WriterState::new(table());
    state.raise(&TopicPartition::new("t", 0), 10).unwrap();
    let segments = [of_session(1, 0, 0, 10), of_session(1, 1, 10, 20)];
    let waiting: Vec<&Segment> = segments.iter().collect();
    for (by, dies) in [("c", false), ("", false), ("copy", true)] {
        state.connector = by.to_owned();
        let mut dead = BTreeSet::new();
        let choice = choose(table(), Some(&state), "c", &waiting, &mut dead).unwrap();
        assert_eq!(dead.contains(&Uuid::from_u128(1)), dies, "{by}");
        assert_eq!(choice.batch, if dies { vec![] } else { vec![1] }, "{by}");
        let first = &choice.decided[0].1;
        assert_eq!(*first == Verdict::Covered, !dies, "{first:?}");
    }
}

#[test]
fn two_sessions_with_the_same_offsets_never_share_a_commit() {
    let segments = [of_session(1, 0, 0, 10), of_session(2, 0, 0, 12)];
    let first = pick(None, &segments);
    assert_eq!((first.batch, first.decided), (vec![0], vec![]));
    // Only the table's own state makes the verdict final.
    let second = pick(Some(&first.state), &segments[1..]);
    assert_eq!(second.batch, Vec::<usize>::new());
    assert!(matches!(
        second.decided[..],
        [(
            0,
            Verdict::Rejected(RejectReason::Overlap { bound: 10, .. })
        )]
    ));
}

#[test]
fn nothing_of_a_session_passes_a_segment_that_waits() {
    // Were the last one taken, the table would stand at 20 and never get the rows from 5 to 10.
    let segments = [
        of_session(1, 0, 0, 5),
        of_session(2, 0, 0, 10),
        of_session(2, 1, 10, 20),
    ];
    let choice = pick(None, &segments);
    assert_eq!((choice.batch, choice.decided), (vec![0], vec![]));
}

#[test]
fn a_rejected_session_is_dead() {
    let mut state = WriterState::new(table());
    state.raise(&TopicPartition::new("t", 0), 5).unwrap();
    let mut dead = BTreeSet::new();
    let segments = [
        of_session(1, 0, 0, 10),
        of_session(1, 1, 10, 20),
        of_session(2, 0, 5, 8),
    ];
    let waiting: Vec<&Segment> = segments.iter().collect();
    let choice = choose(table(), Some(&state), "c", &waiting, &mut dead).unwrap();
    assert_eq!(choice.batch, [2]);
    assert_eq!(
        choice.decided[1],
        (1, Verdict::Rejected(RejectReason::SessionRejected))
    );
    assert_eq!(dead, BTreeSet::from([Uuid::from_u128(1)]));
}

#[test]
fn a_segment_from_before_a_reset_never_joins_one_from_after_it() {
    // The table that was read does not show the reset yet, and the snapshot head is the same.
    let before = of_session(1, 0, 0, 10);
    let mut after = of_session(2, 0, 20, 30);
    after.epoch = 1;
    let choice = pick(None, &[before, after]);
    assert_eq!(choice.batch, [1]);
    assert_eq!(choice.decided, [(0, Verdict::Fenced { epoch: 1 })]);
    assert_eq!(choice.state.epoch, 1);
}

#[test]
fn equality_deletes_are_committed_alone() {
    let mut segments = [
        of_session(1, 0, 0, 10),
        of_session(1, 1, 10, 20),
        of_session(1, 2, 20, 30),
    ];
    segments[1].manifests[0].counts.equality_delete_files = 1;
    assert_eq!(pick(None, &segments).batch, [0]);
    assert_eq!(pick(None, &segments[1..]).batch, [0]);
    assert_eq!(pick(None, &segments[2..]).batch, [0]);
}

#[test]
fn segments_of_a_session_are_judged_by_seq() {
    let segments = [
        of_session(2, 1, 10, 20),
        of_session(1, 0, 0, 5),
        of_session(2, 0, 0, 10),
    ];
    assert_eq!(order(&segments), [2, 0, 1]);
}

/// What a simple world does: tasks read a partition from the watermark on and cut segments, some
/// of them zombies that read the same offsets; the table keeps how often it got each offset.
#[derive(Debug, Clone)]
enum Step {
    /// A fresh session seals `lengths` segments, beginning at the table's T or at 0.
    Session {
        from_start: bool,
        lengths: Vec<i64>,
        skip: i64,
    },
    /// The coordinator commits one batch of what waits; `lost` drops the commit.
    Commit { lost: bool },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let session = (any::<bool>(), prop::collection::vec(1..6i64, 1..5), 0..3i64).prop_map(
        |(from_start, lengths, skip)| Step::Session {
            from_start,
            lengths,
            skip,
        },
    );
    let commit = prop::bool::weighted(0.3).prop_map(|lost| Step::Commit { lost });
    prop::collection::vec(prop_oneof![session, commit], 1..30)
}

proptest! {
    #[test]
    fn no_offset_is_committed_twice_and_none_is_left_out(steps in steps()) {
        let partition = TopicPartition::new("t", 0);
        let mut state: Option<WriterState> = None;
        let mut rows: BTreeMap<i64, u32> = BTreeMap::new();
        let mut waiting: Vec<Segment> = Vec::new();
        let mut dead = BTreeSet::new();
        let mut sessions = 0;
        for step in steps {
            match step {
                Step::Session { from_start, lengths, skip } => {
                    sessions += 1;
                    let bound = state.as_ref().and_then(|s| s.bound(&partition)).unwrap_or(0);
                    let mut start = if from_start { 0 } else { bound };
                    for (seq, length) in (0..).zip(lengths) {
                        // A sparse table: the first offsets of the range are not for it.
                        let lowest = start + skip.min(length - 1);
                        let mut made = segment(seq, vec![range("t", 0, start, start + length, Some(lowest))]);
                        made.session = Uuid::from_u128(sessions);
                        waiting.push(made);
                        start += length;
                    }
                }
                Step::Commit { lost } => {
                    let view: Vec<&Segment> = waiting.iter().collect();
                    let choice = choose(table(), state.as_ref(), "c", &view, &mut dead).unwrap();
                    let mut gone: BTreeSet<usize> = choice.decided.iter().map(|(i, _)| *i).collect();
                    if !lost && !choice.batch.is_empty() {
                        let before = state.as_ref().and_then(|s| s.bound(&partition));
                        for index in &choice.batch {
                            let range = &waiting[*index].ranges[0];
                            for offset in range.lowest.unwrap()..range.end {
                                *rows.entry(offset).or_default() += 1;
                            }
                            gone.insert(*index);
                        }
                        state = Some(choice.state);
                        prop_assert!(state.as_ref().unwrap().bound(&partition) >= before);
                    }
                    let mut index = 0;
                    waiting.retain(|_| { index += 1; !gone.contains(&(index - 1)) });
                }
            }
            prop_assert!(rows.values().all(|count| *count == 1), "duplicate: {rows:?}");
            if let Some(bound) = state.as_ref().and_then(|s| s.bound(&partition)) {
                prop_assert!(rows.keys().all(|offset| *offset < bound));
            }
        }
    }

    #[test]
    fn a_session_without_gaps_leaves_no_hole(
        cuts in prop::collection::vec((1..6i64, any::<bool>(), prop::option::of(0..6usize)), 1..25),
    ) {
        // Sessions begin at T, as a task that starts over does; zombies begin anywhere below it.
        let partition = TopicPartition::new("t", 0);
        let mut state: Option<WriterState> = None;
        let mut rows: BTreeMap<i64, u32> = BTreeMap::new();
        let mut dead = BTreeSet::new();
        for (session, (length, zombie_first, keep)) in (1..).zip(cuts) {
            let bound = state.as_ref().and_then(|s| s.bound(&partition)).unwrap_or(0);
            let good = (0..4).map(|seq| of_session(session, seq, bound + seq as i64 * length, bound + (seq as i64 + 1) * length));
            let stale = (0..2).map(|seq| of_session(1_000 + session, seq, (bound - 1).max(0) + seq as i64, bound.max(1) + seq as i64 + 2));
            let mut waiting: Vec<Segment> = if zombie_first { stale.chain(good).collect() } else { good.chain(stale).collect() };
            // The rest was lost on its way: only a prefix of each session may be committed.
            waiting.truncate(keep.unwrap_or(6));
            while !waiting.is_empty() {
                let view: Vec<&Segment> = waiting.iter().collect();
                let choice = choose(table(), state.as_ref(), "c", &view, &mut dead).unwrap();
                let mut gone: BTreeSet<usize> = choice.decided.iter().map(|(i, _)| *i).collect();
                for index in &choice.batch {
                    let range = &waiting[*index].ranges[0];
                    for offset in range.lowest.unwrap()..range.end {
                        *rows.entry(offset).or_default() += 1;
                    }
                    gone.insert(*index);
                }
                prop_assert!(!gone.is_empty(), "no progress");
                if !choice.batch.is_empty() {
                    state = Some(choice.state);
                }
                let mut index = 0;
                waiting.retain(|_| { index += 1; !gone.contains(&(index - 1)) });
            }
            let bound = state.as_ref().and_then(|s| s.bound(&partition)).unwrap_or(0);
            prop_assert!((0..bound).all(|offset| rows.get(&offset) == Some(&1)), "{rows:?} below {bound}");
            prop_assert_eq!(rows.len() as i64, bound);
        }
    }
}

// Promise: A commit takes at most four million changes, unless one segment alone has more: what it holds in memory does not grow with a backlog.
#[test]
fn a_commit_takes_only_so_many_changes() {
    let with = |seq: u64, changes: u64| {
        let start = seq as i64 * 10;
        let mut segment = of_session(1, seq, start, start + 10);
        segment.rows = changes;
        segment.key_run = Some(crate::control::segment::KeyRunRef {
            path: "k".into(),
            len: 1,
            sha256: [0; 32],
            rows: changes,
            topic_partitions: Default::default(),
        });
        segment
    };
    let most = COMMIT_CHANGES_MAX;
    let half = most / 2;
    let choice = |sizes: &[u64]| {
        let numbered = (0..).zip(sizes);
        let segments: Vec<Segment> = numbered.map(|(seq, size)| with(seq, *size)).collect();
        pick(None, &segments).batch
    };
    let few = |sizes: &[u64], changes_max: u64| {
        let numbered = (0..).zip(sizes);
        let segments: Vec<Segment> = numbered.map(|(seq, size)| with(seq, *size)).collect();
        let waiting: Vec<&Segment> = segments.iter().collect();
        let dead = &mut BTreeSet::new();
        let choice = choose_at_most((table(), "c"), None, &waiting, dead, changes_max);
        choice.unwrap().batch
    };
    assert_eq!(few(&[10, 10, 10], 20), [0, 1]);
    assert_eq!(few(&[30, 10], 20), [0]);
    assert_eq!(choice(&[half, half, 1]), [0, 1]);
    assert_eq!(choice(&[2 * most, 1]), [0]);
    assert_eq!(choice(&[1, 2 * most, 1]), [0]);
}
