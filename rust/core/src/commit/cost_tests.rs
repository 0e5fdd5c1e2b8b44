//! What the state costs: a table's metadata file carries it, and every commit writes that file anew.

use std::collections::BTreeMap;

use super::state::WriterState;
use super::summary::{FileChanges, OFFSETS, summary};
use super::test_support::{range, segment};
use crate::control::segment::Segment;
use crate::limits::STATE_BYTES_MAX;
use crate::offsets::TopicPartition;

const NOW_MS: i64 = 1_790_000_000_000;
/// Identity, commit, process and time, whatever the number of partitions.
const HEAD_BYTES: usize = 320;
const SECONDS_PER_DAY: usize = 86_400;

/// A commit that has rows of every partition, none older than 20 s, at offsets of ten digits.
fn commit_of(partitions: i32, with_watermarks: bool) -> (WriterState, Segment) {
    let place = |partition: i32| TopicPartition::new("orders.public.events", partition);
    let offset = |partition: i32| 9_000_000_000 + i64::from(partition) * 7;
    let ranges = (0..partitions).map(|partition| {
        let end = offset(partition);
        let mut range = range("orders.public.events", partition, 0, end, Some(end - 900));
        range.start = Some(end - 1_000);
        range.timestamp_max_ms = Some(NOW_MS - i64::from(partition % 20) * 1_000);
        range
    });
    let mut made = segment(0, ranges.collect());
    if with_watermarks {
        made.watermarks = (0..partitions)
            .map(|partition| (place(partition), offset(partition) - 20_000))
            .collect();
    }
    let mut state = WriterState::new(made.table_uuid);
    state.commit_id = uuid::Uuid::from_u128(u128::MAX);
    state.snapshot_id = i64::MAX;
    state.committed_ms = NOW_MS;
    state.connector = "orders-to-the-lake".into();
    state.hub_id = "connect-worker-0.connect.svc/0a1b2c3d".into();
    state.advance(&made).unwrap();
    (state, made)
}

/// Bytes in a metadata file, where the JSON of each property is a string.
fn in_metadata(entries: &BTreeMap<String, String>) -> usize {
    serde_json::to_string(entries).unwrap().len()
}

fn property_bytes(state: &WriterState) -> usize {
    let change = state
        .write_within("0123456789abcdef", "main", 0, STATE_BYTES_MAX)
        .unwrap();
    in_metadata(&change.set)
}

/// Bytes of Frazil's own entries in the summary, which stays in the file until the snapshot
/// expires.
fn summary_bytes(state: &WriterState, made: &Segment) -> (usize, bool) {
    let files = FileChanges::of_segments(&[made]);
    let whole = summary("0123456789abcdef", state, &[made], &files, None);
    let own: BTreeMap<String, String> = whole
        .additional_properties
        .into_iter()
        .filter(|(key, _)| key.starts_with("frazil."))
        .collect();
    (in_metadata(&own), own.contains_key(OFFSETS))
}

// Promise: The writer's state costs a table at most 14 bytes a partition and 380, at offsets of ten digits.
#[test]
fn the_state_is_as_small_as_an_array_of_offsets() {
    // Partitions, and the size of the offsets as one array and as a map, as they were estimated.
    let cases = [
        (1, 67, 90),
        (12, 188, 335),
        (100, 1_156, 1_919),
        (320, 3_576, 6_099),
        (1_000, 11_056, 19_019),
        (5_000, 55_056, 99_019),
    ];
    for (partitions, array, map) in cases {
        let count = partitions as usize;
        let (state, made) = commit_of(partitions, false);
        let (full, _) = commit_of(partitions, true);
        let (bytes, full_bytes) = (property_bytes(&state), property_bytes(&full));
        let (own, has_offsets) = summary_bytes(&state, &made);
        println!(
            "{partitions} partitions: property {bytes} B, with watermarks {full_bytes} B, entries of a summary {own} B"
        );
        for seconds in [10, 300] {
            let commits = SECONDS_PER_DAY / seconds;
            let megabytes = |bytes: usize| bytes as f64 * commits as f64 / 1e6;
            println!(
                "  every {seconds} s: a table's metadata file grows by {:.2} MB a day until snapshots expire; {:.2} MB of state are written a day, of 500 tables {:.0} MB",
                megabytes(own),
                megabytes(bytes),
                500.0 * megabytes(bytes),
            );
        }
        assert!(bytes <= 14 * count + 380, "{partitions}: {bytes}");
        let offsets = array * 115 / 100 + HEAD_BYTES;
        assert!(bytes <= offsets + 3 * count, "{partitions}: {bytes}");
        assert!(
            full_bytes <= offsets + 10 * count,
            "{partitions}: {full_bytes}"
        );
        assert!(bytes < map + HEAD_BYTES, "{partitions}: {bytes}");
        assert!(own < 3 << 10, "{partitions}: {own}");
        assert!(has_offsets || own < 512, "{partitions}: {own}");
    }
}

#[test]
fn a_partition_that_rests_costs_less_than_in_a_map() {
    let (mut state, _) = commit_of(320, false);
    state.committed_ms += 100 * 24 * 3_600_000;
    let bytes = property_bytes(&state);
    assert!(bytes < 6_099 + HEAD_BYTES + 320, "{bytes}");
}
