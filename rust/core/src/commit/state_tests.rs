use std::collections::BTreeMap;

use expect_test::expect;
use proptest::prelude::*;

use super::*;
use crate::commit::test_support::{range, segment};

const WID: &str = "0123456789abcdef";

fn table() -> Uuid {
    Uuid::from_u128(7)
}

fn read(properties: &BTreeMap<String, String>, branch: &str) -> Result<Option<WriterState>> {
    let look = |key: &str| properties.get(key).map(String::as_str);
    let read = WriterState::read(look, WID, branch, table())?;
    Ok(read.map(|state| {
        assert_eq!(state.stored_in, StoredIn::Property);
        // Nothing of this is stored.
        WriterState {
            stored_in: StoredIn::Nowhere,
            ..state
        }
    }))
}

fn sample() -> WriterState {
    let mut state = WriterState::new(table());
    state.commit_id = Uuid::from_u128(9);
    state.snapshot_id = 42;
    state.committed_ms = 1_000;
    state.connector = "orders-sink".into();
    state.hub_id = "host-1".into();
    let mut claim = segment(
        0,
        vec![
            range("orders", 0, 0, 10, Some(0)),
            range("orders", 2, 0, 7, Some(3)),
        ],
    );
    claim.watermarks = [(TopicPartition::new("orders", 0), 5)].into();
    state.advance(&claim).unwrap();
    state
}

#[test]
fn the_property_is_the_documented_json() {
    let change = sample().write(WID, "main", 0).unwrap();
    assert_eq!(change.remove, Vec::<String>::new());
    expect![[r#"
        {"v":2,"u":"00000000-0000-0000-0000-000000000007","e":0,"c":"00000000-0000-0000-0000-000000000009","s":42,"m":1000,"d":"orders-sink","n":0,"h":"host-1","t":{"n:orders":{"n":"orders","o":[10,-1,7],"w":[-5],"x":[0,null,0]}}}"#]]
    .assert_eq(&change.set["frazil.w.0123456789abcdef"]);
    assert_eq!(read(&change.set, "main").unwrap(), Some(sample()));
}

#[test]
fn a_bound_is_none_until_a_row_arrived() {
    let state = sample();
    let bound = |partition| state.bound(&TopicPartition::new("orders", partition));
    assert_eq!(
        [bound(0), bound(1), bound(2), bound(9), bound(-1)],
        [Some(10), None, Some(7), None, None]
    );
    assert_eq!(state.bound(&TopicPartition::new("other", 0)), None);
    assert_eq!(state.valid_through_ms(), Some(1_000));
}

#[test]
fn a_claim_without_rows_moves_nothing_and_nothing_regresses() {
    let mut state = sample();
    state
        .advance(&segment(
            1,
            vec![
                range("orders", 1, 0, 99, None),
                range("orders", 0, 0, 4, Some(1)),
            ],
        ))
        .unwrap();
    assert_eq!(state.bound(&TopicPartition::new("orders", 1)), None);
    assert_eq!(state.bound(&TopicPartition::new("orders", 0)), Some(10));
}

#[test]
fn branches_have_keys_of_their_own() {
    assert_eq!(
        property_key(WID, "audit"),
        "frazil.w.0123456789abcdef.b.audit"
    );
    let change = sample().write(WID, "audit", 0).unwrap();
    assert_eq!(read(&change.set, "audit").unwrap(), Some(sample()));
    assert_eq!(read(&change.set, "main").unwrap(), None);
}

#[test]
fn a_copied_property_is_ignored() {
    let change = sample().write(WID, "main", 0).unwrap();
    let look = |key: &str| change.set.get(key).map(String::as_str);
    assert_eq!(
        WriterState::read(look, WID, "main", Uuid::from_u128(8)).unwrap(),
        None
    );
}

#[test]
fn what_cannot_be_understood_is_an_error() {
    let whole = sample().write(WID, "main", 0).unwrap().set[&property_key(WID, "main")].clone();
    for (text, code) in [
        ("", "STATE_INVALID"),
        ("{}", "STATE_INVALID"),
        (&whole[..40], "STATE_INVALID"),
        (
            &whole.replace("\"v\":2", "\"v\":3"),
            "STATE_VERSION_UNKNOWN",
        ),
        (&whole.replace("n:orders", "aGVsbG8"), "STATE_INVALID"),
        (
            &whole.replace("[-5]", "[null,null,null,1]"),
            "STATE_INVALID",
        ),
        (&whole.replace("[-5]", "[-11]"), "STATE_INVALID"),
        (&whole.replace("[-5]", "[\"\"]"), "STATE_INVALID"),
        (&whole.replace("[0,null,0]", "[2]"), "STATE_INVALID"),
        (
            &whole.replace("[0,null,0]", "[-9223372036854775808]"),
            "STATE_INVALID",
        ),
        (&whole.replace("n:orders", "n:other"), "STATE_INVALID"),
        (&whole.replace("\"n\":0", "\"n\":3"), "STATE_INVALID"),
        (
            &whole.replace("\"n\":0", "\"n\":4000000000"),
            "STATE_INVALID",
        ),
    ] {
        let properties = [(property_key(WID, "main"), text.to_owned())].into();
        assert_eq!(
            read(&properties, "main").unwrap_err().code(),
            code,
            "{text}"
        );
    }
}

#[test]
fn a_large_state_is_cut_and_shrinks_again() {
    let mut state = sample();
    for topic in 0..20 {
        state
            .raise(&TopicPartition::new(format!("topic-{topic}"), 30), 1 << 40)
            .unwrap();
    }
    let large = state.write_within(WID, "audit", 0, 900).unwrap();
    let shards = WriterState::shards(|key| large.set.contains_key(key), WID, "audit");
    assert!(shards > 3, "{shards}");
    assert!(large.set.values().all(|value| value.len() <= 900));
    assert_eq!(read(&large.set, "audit").unwrap().as_ref(), Some(&state));
    let mut holed = large.set.clone();
    holed.remove(&format!("frazil.w.{WID}.2.b.audit"));
    assert_eq!(read(&holed, "audit").unwrap_err().code(), "STATE_INVALID");
    let small = sample().write_within(WID, "audit", shards, 900).unwrap();
    assert_eq!(small.remove.len(), shards as usize);
    assert!(small.remove.iter().all(|key| large.set.contains_key(key)));
}

#[test]
fn partition_indexes_are_bounded() {
    let error = sample()
        .raise(&TopicPartition::new("t", i32::MAX), 1)
        .unwrap_err();
    assert_eq!(error.code(), "INTERNAL");
}

proptest! {
    #[test]
    fn any_state_survives_writing_and_reading(
        offsets in prop::collection::vec(
            (0..4usize, 0..40i32, 1..i64::MAX, any::<Option<i64>>(), any::<Option<i64>>()), 0..60,
        ),
        committed_ms in any::<i64>(),
        limit in 300..4_000usize,
    ) {
        let mut state = WriterState::new(table());
        state.committed_ms = committed_ms;
        for (topic, partition, end, timestamp, watermark) in offsets {
            let mut range = range(["a", "b.c", "ä€🦀", "_"][topic], partition, 0, end, Some(0));
            range.timestamp_max_ms = timestamp;
            let mut claim = segment(0, Vec::new());
            claim.watermarks.extend(watermark.map(|w| (range.partition.clone(), w)));
            claim.ranges.push(range);
            state.advance(&claim).unwrap();
        }
        let change = state.write_within(WID, "main", 0, limit).unwrap();
        prop_assert_eq!(read(&change.set, "main").unwrap(), Some(state));
    }

    #[test]
    fn no_bytes_panic(text in "\\PC{0,200}") {
        let properties = [(property_key(WID, "main"), text)].into();
        prop_assert!(read(&properties, "main").is_err());
    }

    #[test]
    fn t_is_the_highest_end_with_rows(
        claims in prop::collection::vec((0..3i32, 0..100i64, 1..20i64, any::<bool>()), 1..40),
    ) {
        let mut state = WriterState::new(table());
        let mut highest = BTreeMap::new();
        for (seq, (partition, start, length, rows)) in claims.into_iter().enumerate() {
            let before: Vec<_> = state.bounds().collect();
            let end = start + length;
            let claim = segment(seq as u64, vec![range("t", partition, start, end, rows.then_some(start))]);
            state.advance(&claim).unwrap();
            for (partition, bound) in before {
                prop_assert!(state.bound(&partition) >= Some(bound));
            }
            if rows {
                let highest = highest.entry(partition).or_insert(end);
                *highest = end.max(*highest);
            }
        }
        for partition in 0..3 {
            prop_assert_eq!(
                state.bound(&TopicPartition::new("t", partition)),
                highest.get(&partition).copied()
            );
        }
    }
}

fn with_id(seq: u64, id: Option<u128>, from: i64, to: i64) -> Segment {
    let mut claim = segment(seq, vec![range("orders", 0, from, to, Some(from))]);
    claim.topic_ids = id
        .map(|id| ("orders".into(), Uuid::from_u128(id)))
        .into_iter()
        .collect();
    claim
}

// Promise: a topic that was deleted and made again is read from its beginning, and the offsets of the old one are forgotten after 30 days
#[test]
fn a_topic_of_the_same_name_is_another_topic() {
    let at = |state: &WriterState, id: Option<u128>| {
        state.bound_of(&TopicPartition::new("orders", 0), id.map(Uuid::from_u128))
    };
    let mut state = WriterState::new(table());
    state.committed_ms = 1_000;
    state.advance(&with_id(0, None, 0, 10)).unwrap();
    assert_eq!(at(&state, None), Some(10));
    // Ids become known: what stood under the name belongs to the first of them.
    assert_eq!(at(&state, Some(1)), Some(10));
    state.advance(&with_id(1, Some(1), 10, 20)).unwrap();
    assert_eq!([at(&state, None), at(&state, Some(1))], [Some(20); 2]);
    assert_eq!(state.key_of("orders", None), "AAAAAAAAAAAAAAAAAAAAAQ");
    // And are unknown again: the topic is the same.
    state.advance(&with_id(2, None, 20, 25)).unwrap();
    assert_eq!([at(&state, None), at(&state, Some(1))], [Some(25); 2]);
    assert_eq!(state.bounds().count(), 1);
    // The topic was made again.
    assert_eq!(at(&state, Some(2)), None);
    let one_topic = state.digest();
    state.advance(&with_id(3, Some(2), 0, 5)).unwrap();
    assert_eq!([at(&state, None), at(&state, Some(2))], [Some(5); 2]);
    assert_eq!(at(&state, Some(1)), Some(25), "for a task that is late");
    assert_ne!(state.digest(), one_topic);
    assert_eq!(state.bounds().count(), 1);
    let change = state.write(WID, "main", 0).unwrap();
    assert_eq!(read(&change.set, "main").unwrap(), Some(state.clone()));
    // A late task of the old topic changes nothing for the new one.
    state.advance(&with_id(4, Some(1), 25, 30)).unwrap();
    assert_eq!([at(&state, None), at(&state, Some(1))], [Some(5), Some(30)]);
    let month = 30 * 24 * 3_600_000;
    state.committed_ms = 1_000 + month - 1;
    state.advance(&with_id(5, Some(2), 5, 6)).unwrap();
    assert_eq!(at(&state, Some(1)), Some(30));
    state.committed_ms = 1_000 + month;
    state.advance(&with_id(6, Some(2), 6, 7)).unwrap();
    assert_eq!([at(&state, Some(1)), at(&state, None)], [None, Some(7)]);
}

#[test]
fn arrays_that_say_nothing_are_left_out() {
    let mut state = WriterState::new(table());
    state.raise(&TopicPartition::new("t", 2), 7).unwrap();
    let text = &state.write(WID, "main", 0).unwrap().set[&property_key(WID, "main")];
    assert!(
        text.ends_with(r#""t":{"n:t":{"n":"t","o":[-1,-1,7]}}}"#),
        "{text}"
    );
    let uneven = text.replace("[-1,-1,7]", "[-1,-1,7],\"w\":[1,1,1,1]");
    let properties = [(property_key(WID, "main"), uneven)].into();
    assert_eq!(
        read(&properties, "main").unwrap_err().code(),
        "STATE_INVALID"
    );
}
