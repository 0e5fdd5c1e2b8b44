use super::*;

fn p(partition: i32) -> TopicPartition {
    TopicPartition::new("t", partition)
}

fn session(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn read_rows(progress: &mut WriterProgress, table: TableIndex, offsets: std::ops::Range<i64>) {
    for offset in offsets {
        progress.read(&p(0), offset, offset);
        progress.wrote(table, &p(0), (offset, offset), Some(offset * 10));
    }
}

#[test]
fn the_next_offset_never_goes_back() {
    let mut progress = WriterProgress::new(session(1), 1);
    assert!(!progress.assign(&[p(0)]));
    assert_eq!(progress.next(&p(0)), None);
    progress.read(&p(0), 5, 7);
    assert_eq!(progress.next(&p(0)), Some(8));
    progress.read(&p(0), 5, 6);
    assert_eq!(progress.next(&p(0)), Some(8), "delivered again");
    progress.read(&p(0), 9, 9);
    assert_eq!(progress.next(&p(0)), Some(10), "gaps are legal");
}

#[test]
fn the_offset_stays_below_rows_that_are_not_durable() {
    let mut progress = WriterProgress::new(session(1), 1);
    assert!(!progress.assign(&[p(0)]));
    assert_eq!(progress.pre_commit(&p(0), 3), Some(3));
    read_rows(&mut progress, 0, 3..8);
    assert_eq!(progress.pre_commit(&p(0), 8), Some(3));
    let sealed = progress.seal(0).expect("rows are open");
    assert_eq!(sealed.ranges[0].start, Some(3));
    assert_eq!(sealed.ranges[0].end, 8);
    assert_eq!(sealed.ranges[0].lowest, Some(3));
    assert_eq!(sealed.ranges[0].timestamp_max_ms, Some(70));
    assert_eq!(progress.pre_commit(&p(0), 8), Some(3));
    assert!(progress.durable(session(1), 0, 0));
    assert_eq!(progress.pre_commit(&p(0), 8), Some(8));
}

// Promise: A table that a record names later holds no offset back before it has rows, and then only below them.
#[test]
fn a_table_that_comes_later_counts_from_its_first_row_on() {
    let mut progress = WriterProgress::new(session(1), 0);
    assert!(!progress.assign(&[p(0)]));
    progress.read(&p(0), 3, 9);
    assert_eq!(progress.pre_commit(&p(0), 10), Some(10));
    let table = progress.add_table();
    assert!(
        progress.lacks_bounds(table),
        "its bounds are read before its first row"
    );
    progress.set_bound(table, &p(0), Some(12));
    assert_eq!(progress.pre_commit(&p(0), 12), Some(12));
    read_rows(&mut progress, table, 12..14);
    assert_eq!(progress.pre_commit(&p(0), 14), Some(12));
    let sealed = progress.seal(table).expect("rows are open");
    assert_eq!(
        (sealed.ranges[0].start, sealed.ranges[0].end),
        (Some(3), 14)
    );
    assert!(progress.durable(session(1), table, sealed.sequence));
    assert_eq!(progress.pre_commit(&p(0), 14), Some(14));
    assert_eq!(progress.redo(session(2), true), vec![(p(0), 14)]);
    assert!(
        progress.lacks_bounds(table),
        "a new session reads them again"
    );
}

#[test]
fn the_slower_table_holds_the_offset_back() {
    let mut progress = WriterProgress::new(session(1), 2);
    assert!(!progress.assign(&[p(0)]));
    for offset in 0..4 {
        progress.read(&p(0), offset, offset);
        progress.wrote(0, &p(0), (offset, offset), None);
        progress.wrote(1, &p(0), (offset, offset), None);
    }
    let fast = progress.seal(0).expect("rows are open");
    assert!(progress.durable(session(1), 0, fast.sequence));
    assert_eq!(progress.pre_commit(&p(0), 4), Some(0));
    let slow = progress.seal(1).expect("rows are open");
    assert!(progress.durable(session(1), 1, slow.sequence));
    assert_eq!(progress.pre_commit(&p(0), 4), Some(4));
}

#[test]
fn a_blocked_table_holds_the_offset_and_no_segment_claims_its_rows() {
    let mut progress = WriterProgress::new(session(1), 2);
    assert!(!progress.assign(&[p(0)]));
    for offset in 0..6 {
        progress.read(&p(0), offset, offset);
        progress.wrote(0, &p(0), (offset, offset), None);
        match offset {
            0..3 => progress.wrote(1, &p(0), (offset, offset), None),
            _ => {
                progress.block(1);
                progress.awaits(1, &p(0), offset);
            }
        }
    }
    assert!(progress.is_blocked(1) && !progress.is_blocked(0));
    for (table, end) in [(0, 6), (1, 3)] {
        let sealed = progress.seal(table).expect("rows are open");
        assert_eq!(sealed.ranges[0].end, end);
        assert!(progress.durable(session(1), table, sealed.sequence));
    }
    assert_eq!(progress.pre_commit(&p(0), 6), Some(3));
    assert!(!progress.holds_any(), "nothing to wait for");
    assert_eq!(progress.redo(session(2), true), vec![(p(0), 3)]);
    assert!(!progress.is_blocked(1), "it is tried again");
}

#[test]
fn a_pending_rewind_freezes_the_offset() {
    let mut progress = WriterProgress::new(session(1), 1);
    assert!(!progress.assign(&[p(0)]));
    assert_eq!(progress.pre_commit(&p(0), 2), Some(2));
    read_rows(&mut progress, 0, 2..6);
    assert_eq!(progress.redo(session(2), true), vec![(p(0), 2)]);
    assert_eq!(
        progress.pre_commit(&p(0), 6),
        Some(2),
        "the framework has not rewound yet"
    );
    progress.put_begins();
    assert_eq!(progress.pre_commit(&p(0), 2), Some(2));
    progress.read(&p(0), 2, 2);
    assert_eq!(progress.next(&p(0)), Some(3), "the rows come again");
    assert!(
        !progress.durable(session(1), 0, 0),
        "an answer for the old session counts nothing"
    );
}

#[test]
fn a_rewind_goes_to_the_first_row_that_is_not_durable() {
    let mut progress = WriterProgress::new(session(1), 1);
    assert!(!progress.assign(&[p(0)]));
    read_rows(&mut progress, 0, 0..5);
    let sealed = progress.seal(0).expect("rows are open");
    read_rows(&mut progress, 0, 5..9);
    assert!(progress.durable(session(1), 0, sealed.sequence));
    assert_eq!(progress.redo(session(2), true), vec![(p(0), 5)]);
}

#[test]
fn a_rewind_repeats_records_that_were_not_read_to_the_end() {
    let mut progress = WriterProgress::new(session(1), 2);
    assert!(!progress.assign(&[p(0), p(1)]));
    progress.read(&p(0), 0, 4);
    assert_eq!(progress.pre_commit(&p(0), 5), Some(5));
    // A frame of offsets 5 to 9: one table took rows from 8 on, the other one failed.
    progress.begins(&p(0), 5);
    progress.begins(&p(1), 30);
    progress.wrote(0, &p(0), (8, 9), None);
    assert_eq!(progress.redo(session(2), true), vec![(p(0), 5), (p(1), 30)]);
    assert!(progress.is_rewinding(&p(0)) && progress.is_rewinding(&p(1)));
    progress.read(&p(0), 10, 12);
    assert_eq!(progress.next(&p(0)), None, "offset 5 has not come yet");
    assert_eq!(
        progress.redo(session(3), true),
        vec![(p(0), 5), (p(1), 30)],
        "and once more before anything came"
    );
    progress.put_begins();
    assert!(!progress.is_rewinding(&p(0)));
}

#[test]
fn a_rewind_repeats_records_that_are_not_settled() {
    let mut progress = WriterProgress::new(session(1), 1);
    assert!(!progress.assign(&[p(0)]));
    progress.read(&p(0), 3, 4);
    progress.wrote(0, &p(0), (4, 4), None);
    assert_eq!(progress.redo(session(2), false), vec![(p(0), 3)]);
}

#[test]
fn an_offset_can_be_asked_for_without_moving_it() {
    let mut progress = WriterProgress::new(session(1), 1);
    assert!(!progress.assign(&[p(0)]));
    assert_eq!(progress.durable_offset(&p(0), 4), None);
    progress.begins(&p(0), 4);
    assert_eq!(progress.durable_offset(&p(0), 9), Some(4));
    assert_eq!(progress.pre_commit(&p(0), 6), Some(6));
    assert_eq!(progress.durable_offset(&p(0), 9), Some(6));
    assert_eq!(progress.durable_offset(&p(0), 5), Some(5));
    assert_eq!(progress.durable_offset(&p(1), 5), None, "not ours");
}

#[test]
fn the_lag_of_a_table_is_the_distance_to_its_lowest_row_that_is_not_durable() {
    let mut progress = WriterProgress::new(session(1), 2);
    assert!(!progress.assign(&[p(0)]));
    progress.read(&p(0), 0, 9);
    progress.wrote(0, &p(0), (4, 6), None);
    assert_eq!(progress.lag(0), BTreeMap::from([(&p(0), 6)]));
    progress.seal(0).expect("rows are open");
    progress.wrote(0, &p(0), (8, 8), None);
    assert_eq!(progress.lag(0), BTreeMap::from([(&p(0), 6)]), "in flight");
    assert!(progress.durable(session(1), 0, 0));
    assert_eq!(progress.lag(0), BTreeMap::from([(&p(0), 2)]));
    assert!(progress.lag(1).is_empty() && progress.lag(9).is_empty());
}

#[test]
fn outcomes_count_only_in_order() {
    let mut progress = WriterProgress::new(session(1), 1);
    assert!(!progress.assign(&[p(0)]));
    read_rows(&mut progress, 0, 0..2);
    progress.seal(0).expect("rows are open");
    read_rows(&mut progress, 0, 2..4);
    let second = progress.seal(0).expect("rows are open");
    assert_eq!((second.sequence, second.first_unacked), (1, 0));
    assert!(!progress.durable(session(1), 0, 1));
    assert!(progress.durable(session(1), 0, 0));
    assert!(progress.durable(session(1), 0, 1));
}

#[test]
fn a_partition_that_returns_with_rows_still_held_asks_for_a_new_session() {
    let mut progress = WriterProgress::new(session(1), 1);
    assert!(!progress.assign(&[p(0), p(1)]));
    read_rows(&mut progress, 0, 0..3);
    let sealed = progress.seal(0).expect("rows are open");
    assert_eq!(sealed.ranges[0].end, 3);
    progress.revoke(&[p(0)]);
    assert!(progress.assign(&[p(0)]));
}

#[test]
fn a_revoked_partition_claims_all_its_rows() {
    let mut progress = WriterProgress::new(session(1), 1);
    assert!(!progress.assign(&[p(0)]));
    read_rows(&mut progress, 0, 0..7);
    progress.revoke(&[p(0)]);
    assert_eq!(progress.seal(0).expect("rows are open").ranges[0].end, 7);
}

#[test]
fn records_without_rows_move_the_offset() {
    let mut progress = WriterProgress::new(session(1), 1);
    assert!(!progress.assign(&[p(0)]));
    progress.read(&p(0), 0, 0);
    assert_eq!(
        progress.pre_commit(&p(0), 11),
        Some(11),
        "filtered and aborted records count"
    );
    assert_eq!(progress.seal(0), None);
}

#[test]
fn an_outcome_of_an_old_session_acknowledges_nothing() {
    let mut progress = WriterProgress::new(session(1), 1);
    assert!(!progress.assign(&[p(0)]));
    read_rows(&mut progress, 0, 0..3);
    progress.seal(0).expect("rows are open");
    assert_eq!(progress.redo(session(2), true), vec![(p(0), 0)]);
    progress.put_begins();
    read_rows(&mut progress, 0, 0..3);
    let again = progress.seal(0).expect("rows are open");
    assert_eq!(again.sequence, 0, "the numbers begin anew");
    assert!(!progress.durable(session(1), 0, 0));
    assert_eq!(progress.pre_commit(&p(0), 3), Some(0));
    assert!(progress.durable(session(2), 0, 0));
    assert_eq!(progress.pre_commit(&p(0), 3), Some(3));
}
