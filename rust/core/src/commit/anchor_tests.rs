use std::collections::{BTreeMap, BTreeSet};

use expect_test::expect;
use proptest::prelude::*;

use super::*;
use crate::commit::batch::choose;
use crate::commit::test_support::{range, segment};
use crate::commit::validate::{Verdict, verdict};
use crate::control::segment::Segment;

fn table() -> Uuid {
    Uuid::from_u128(7)
}

fn tp(partition: i32) -> TopicPartition {
    TopicPartition::new("t", partition)
}

fn offsets(asked: &[(i32, Option<i64>)]) -> ResetOffsets {
    ResetOffsets::new(asked.iter().map(|(p, offset)| (tp(*p), *offset))).unwrap()
}

fn state(epoch: u64, bounds: &[(i32, i64)]) -> WriterState {
    let mut state = WriterState::new(table());
    state.epoch = epoch;
    for (partition, bound) in bounds {
        state.raise(&tp(*partition), *bound).unwrap();
    }
    state
}

fn bounds(state: &WriterState) -> Vec<(i32, i64)> {
    state
        .bounds()
        .map(|(p, next)| (p.partition, next))
        .collect()
}

fn claim(epoch: u64, partition: i32, from: i64, to: i64) -> Segment {
    let mut claim = segment(0, vec![range("t", partition, from, to, Some(from))]);
    claim.epoch = epoch;
    claim
}

#[test]
fn the_property_is_the_documented_json() {
    let mut anchor = Anchor::default();
    assert!(anchor.append(offsets(&[(0, Some(5)), (11, None)]), 1_000, 0));
    assert!(anchor.append(ResetOffsets::default(), 2_000, 1));
    let text = anchor.write().unwrap();
    expect![[r#"{"v":1,"e":2,"r":[{"e":1,"at":1000,"t":{"n:t":{"0":5,"11":null}}},{"e":2,"at":2000,"t":{}}]}"#]]
        .assert_eq(&text);
    assert_eq!(Anchor::parse(&text).unwrap(), anchor);
    assert_eq!(anchor_key("w1"), "frazil.a.w1");
}

// Promise: a record of offset resets that is not understood stops the task and is never ignored
#[test]
fn what_cannot_be_understood_is_an_error() {
    let mut anchor = Anchor::default();
    anchor.append(offsets(&[(0, Some(5))]), 1_000, 0);
    let whole = anchor.write().unwrap();
    for (text, code) in [
        (String::new(), "STATE_INVALID"),
        ("{}".into(), "STATE_INVALID"),
        (whole[..30].into(), "STATE_INVALID"),
        (whole.replace("\"v\":1", "\"v\":2"), "STATE_VERSION_UNKNOWN"),
        (
            whole.replace("{\"v\":1,\"e\":1", "{\"v\":1,\"e\":2"),
            "STATE_INVALID",
        ),
        (whole.replace(":5", ":-5"), "STATE_INVALID"),
        (whole.replace("\"0\":", "\"-1\":"), "STATE_INVALID"),
        (whole.replace("\"0\":", "\"200000\":"), "STATE_INVALID"),
        (whole.replace("\"0\":", "\"x\":"), "STATE_INVALID"),
        (whole.replace("n:t", "t"), "STATE_INVALID"),
        (whole.replace("n:t", "n:"), "STATE_INVALID"),
        (whole.replace("\"at\"", "\"x\":1,\"at\""), "STATE_INVALID"),
        (whole.replace("\"r\"", "\"x\":1,\"r\""), "STATE_INVALID"),
        (whole.replace("{\"0\":5}", "{}"), "STATE_INVALID"),
    ] {
        assert_eq!(Anchor::parse(&text).unwrap_err().code(), code, "{text}");
    }
}

#[test]
fn a_request_that_no_table_followed_yet_is_one_reset_however_often_it_is_made() {
    let mut anchor = Anchor::default();
    assert!(anchor.append(offsets(&[(0, None)]), 1, 0));
    let once = anchor.clone();
    assert!(!anchor.append(offsets(&[(0, None)]), 2, 0));
    assert_eq!(anchor, once);
    assert!(anchor.append(offsets(&[(0, Some(3))]), 3, 0));
    assert_eq!(anchor.epoch(), 2);
    // A table has committed since: the same words ask for something new.
    assert!(anchor.append(offsets(&[(0, Some(3))]), 4, 2));
    assert_eq!(anchor.epoch(), 3);
    // A table that is ahead of every anchor counts, too.
    assert!(anchor.append(offsets(&[(0, Some(4))]), 5, 9));
    assert_eq!(anchor.epoch(), 10);
}

#[test]
fn a_reset_lowers_what_is_older_and_nothing_else() {
    let mut anchor = Anchor::default();
    anchor.append(
        offsets(&[(0, Some(40)), (1, None), (2, Some(200)), (4, Some(7))]),
        1,
        0,
    );
    let before = state(0, &[(0, 100), (1, 100), (2, 100), (3, 100)]);
    let after = anchor.effective(Some(before.clone()), table()).unwrap();
    assert_eq!(bounds(&after), [(0, 40), (2, 100), (3, 100)]);
    assert_eq!(after.epoch, 1);
    // The state that the first commit of the new epoch wrote counts as it is.
    let mut followed = after.clone();
    followed.advance(&claim(1, 0, 40, 90)).unwrap();
    assert_eq!(
        anchor.effective(Some(followed.clone()), table()),
        Some(followed.clone())
    );
    assert_eq!(bounds(&followed), [(0, 90), (2, 100), (3, 100)]);
    // Two resets that a table missed count together.
    anchor.append(offsets(&[(0, Some(60)), (3, Some(0))]), 2, 0);
    let both = anchor.effective(Some(before), table()).unwrap();
    assert_eq!(bounds(&both), [(0, 40), (2, 100), (3, 0)]);
    assert_eq!(both.epoch, 2);
    // One that was followed is over.
    let second = anchor.effective(Some(followed), table()).unwrap();
    assert_eq!(bounds(&second), [(0, 60), (2, 100), (3, 0)]);
    assert_eq!(Anchor::default().effective(None, table()), None);
}

#[test]
fn an_empty_request_resets_every_partition() {
    let mut anchor = Anchor::default();
    anchor.append(ResetOffsets::default(), 1, 0);
    let after = anchor
        .effective(Some(state(0, &[(0, 5), (9, 7)])), table())
        .unwrap();
    assert_eq!(bounds(&after), []);
    assert_eq!(after.epoch, 1);
    assert_eq!(after.valid_through_ms(), None);
}

// Promise: a task from before an offset reset cannot commit to any table of the connector, whether the table has a commit of the new epoch or not
#[test]
fn a_session_from_before_the_reset_is_fenced_also_where_nothing_was_committed_yet() {
    let mut anchor = Anchor::default();
    anchor.append(offsets(&[(0, Some(0))]), 1, 0);
    for stored in [None, Some(state(0, &[(0, 100)]))] {
        let state = anchor.effective(stored, table());
        let judged = |claim: Segment| verdict(table(), state.as_ref(), &claim);
        assert_eq!(judged(claim(0, 0, 100, 110)), Verdict::Fenced { epoch: 1 });
        assert_eq!(judged(claim(0, 1, 0, 110)), Verdict::Fenced { epoch: 1 });
        assert_eq!(judged(claim(1, 0, 0, 110)), Verdict::Commit);
    }
}

#[test]
fn old_resets_live_on_in_their_successor() {
    let mut anchor = Anchor::default();
    anchor.append(offsets(&[(3, Some(1))]), 0, 0);
    for round in 0..40 {
        assert!(anchor.append(offsets(&[(0, Some(50 + round))]), round, 0));
    }
    assert_eq!(anchor.resets.len(), RESETS_MAX);
    assert_eq!(anchor.epoch(), 41);
    assert_eq!(Anchor::parse(&anchor.write().unwrap()).unwrap(), anchor);
    let after = anchor
        .effective(Some(state(0, &[(0, 100), (1, 9), (3, 9)])), table())
        .unwrap();
    assert_eq!(bounds(&after), [(0, 50), (1, 9), (3, 1)]);
    anchor.append(ResetOffsets::default(), 0, 0);
    for round in 0..40 {
        anchor.append(offsets(&[(0, Some(50 + round))]), round, 0);
    }
    let after = anchor
        .effective(Some(state(0, &[(1, 9)])), table())
        .unwrap();
    assert_eq!(bounds(&after), []);
}

#[test]
fn requests_that_kafka_cannot_mean_are_refused() {
    for (topic, partition, offset) in [
        ("t", -1, None),
        ("t", 0, Some(-1)),
        ("", 0, None),
        ("t", 200_000, None),
    ] {
        let asked = [(TopicPartition::new(topic, partition), offset)];
        assert_eq!(
            ResetOffsets::new(asked).unwrap_err().code(),
            "OFFSETS_INVALID"
        );
    }
    assert!(ResetOffsets::new([]).unwrap().is_everything());
}

/// One thing that happens to a connector with one table.
#[derive(Debug, Clone)]
enum Event {
    Reset(Vec<(i32, Option<i64>)>),
    /// A session of this many epochs ago commits rows of a partition from an offset on.
    Commit {
        age: u64,
        partition: i32,
        from: i64,
        length: i64,
    },
    /// The current session reads on where the table stands.
    Continue {
        partition: i32,
        length: i64,
    },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let reset = prop::collection::vec((0..3i32, prop::option::of(0..60i64)), 0..3);
    prop::collection::vec(
        prop_oneof![
            1 => reset.prop_map(Event::Reset),
            3 => (0..3u64, 0..3i32, 0..60i64, 1..9i64).prop_map(|(age, partition, from, length)| {
                Event::Commit { age, partition, from, length }
            }),
            4 => (0..3i32, 1..9i64).prop_map(|(partition, length)| Event::Continue { partition, length }),
        ],
        1..60,
    )
}

proptest! {
    /// Resets and commits in any order: per epoch no row twice, T is the end of what was committed
    /// or lower by a reset, and sessions from before a reset get nothing in.
    #[test]
    fn no_row_twice_in_an_epoch(events in events()) {
        let mut anchor = Anchor::default();
        let mut stored: Option<WriterState> = None;
        let mut rows: BTreeSet<(u64, i32, i64)> = BTreeSet::new();
        let mut expected: BTreeMap<i32, i64> = BTreeMap::new();
        for event in events {
            let epoch = anchor.epoch();
            let state = anchor.effective(stored.clone(), table());
            let bound = |p: i32| state.as_ref().and_then(|state| state.bound(&tp(p)));
            let claim = match event {
                Event::Reset(asked) => {
                    let seen = stored.as_ref().map_or(0, |state| state.epoch);
                    let asked_for = offsets(&asked);
                    anchor.append(asked_for.clone(), 0, seen);
                    prop_assert!(anchor.epoch() >= epoch);
                    prop_assert_eq!(&Anchor::parse(&anchor.write().unwrap()).unwrap(), &anchor);
                    let lowered: BTreeMap<i32, Option<i64>> = asked.into_iter().collect();
                    expected.retain(|p, next| match lowered.get(p) {
                        _ if asked_for.is_everything() => false,
                        None => true,
                        Some(None) => false,
                        Some(Some(offset)) => { *next = (*next).min(*offset); true }
                    });
                    continue;
                }
                Event::Commit { age, partition, from, length } => {
                    claim(epoch.saturating_sub(age), partition, from, from + length)
                }
                Event::Continue { partition, length } => {
                    let from = bound(partition).unwrap_or(0);
                    claim(epoch, partition, from, from + length)
                }
            };
            for p in 0..3 {
                prop_assert_eq!(bound(p), expected.get(&p).copied());
            }
            let chosen = choose(table(), state.as_ref(), "c", &[&claim], &mut BTreeSet::new()).unwrap();
            if chosen.batch.is_empty() {
                continue;
            }
            prop_assert_eq!(claim.epoch, epoch, "only the current epoch commits");
            let range = &claim.ranges[0];
            for offset in range.lowest.unwrap()..range.end {
                prop_assert!(rows.insert((epoch, range.partition.partition, offset)), "a row twice");
            }
            let next = expected.entry(range.partition.partition).or_insert(range.end);
            *next = range.end.max(*next);
            stored = Some(chosen.state);
        }
    }

    #[test]
    fn no_bytes_panic(text in "\\PC{0,200}") {
        prop_assert!(Anchor::parse(&text).is_err());
    }
}
