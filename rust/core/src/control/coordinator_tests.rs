use super::*;
use crate::commit::test_support;

const INTERVAL: u64 = 10_000;
const HOUR: u64 = 3_600_000;

fn segment(session: u128, seq: u64) -> Segment {
    let mut segment = test_support::segment(seq, Vec::new());
    segment.session = Uuid::from_u128(session);
    segment.first_unacked = 0;
    segment
}

fn id(session: u128) -> Uuid {
    Uuid::from_u128(session)
}

fn coordinator() -> TableCoordinator {
    TableCoordinator::new(CoordinatorSettings::with_interval(INTERVAL))
}

fn names(segments: &[Segment]) -> Vec<(u128, u64)> {
    let name = |segment: &Segment| (segment.session.as_u128(), segment.seq);
    segments.iter().map(name).collect()
}

fn told(news: &[Told]) -> Vec<(u128, u64, &'static str)> {
    let word = |verdict: &Verdict| match verdict {
        Verdict::Durable { .. } => "durable",
        Verdict::Rejected(_) => "rejected",
        Verdict::Expired => "expired",
        Verdict::Fenced { .. } => "fenced",
        Verdict::Failed(error) => error.code(),
    };
    news.iter()
        .map(|told| (told.session.as_u128(), told.seq, word(&told.verdict)))
        .collect()
}

fn wait(next: Next) -> Option<u64> {
    let Next::Wait { until_ms } = next else {
        panic!("{next:?}");
    };
    until_ms
}

fn commit(next: Next) -> Vec<Segment> {
    let Next::Commit(segments) = next else {
        panic!("{next:?}");
    };
    segments
}

fn blocked() -> SegmentOutcome {
    SegmentOutcome::Blocked(Arc::new(SinkError::retriable("BUSY", "come back later")))
}

fn durable(batch: &[Segment]) -> Vec<(usize, SegmentOutcome)> {
    let outcome = |index| (index, SegmentOutcome::Durable { snapshot_id: 7 });
    (0..batch.len()).map(outcome).collect()
}

/// Offers, and commits what there is at `now_ms`.
fn commit_at(table: &mut TableCoordinator, segments: &[(u128, u64)], now_ms: u64) -> Vec<Segment> {
    for (session, seq) in segments {
        let offer = table.offer(segment(*session, *seq), false, HOUR, now_ms);
        assert_eq!(offer, Offer::Accepted);
    }
    commit(table.poll(now_ms))
}

// Promise: A table gets one snapshot per interval; a segment that comes late waits for the next.
#[test]
fn a_late_segment_waits_for_the_next_interval() {
    let mut table = coordinator();
    let batch = commit_at(&mut table, &[(1, 0)], 10_050);
    assert_eq!(wait(table.poll(10_060)), None, "a commit runs");
    let news = table.settle(&batch, durable(&batch), 10_100);
    assert_eq!(told(&news), [(1, 0, "durable")]);
    assert_eq!(
        table.offer(segment(2, 0), false, HOUR, 10_200),
        Offer::Accepted
    );
    assert_eq!(wait(table.poll(10_200)), Some(20_000));
    // Session 1 took part in the last interval: it is waited for, but not longer than a gather.
    assert_eq!(wait(table.poll(20_000)), Some(21_000));
    assert_eq!(names(&commit(table.poll(21_000))), [(2, 0)]);
}

#[test]
fn a_commit_waits_for_those_who_took_part_in_the_interval_before() {
    let mut table = coordinator();
    let batch = commit_at(&mut table, &[(1, 0), (2, 0)], 10_000);
    table.settle(&batch, durable(&batch), 10_100);
    assert_eq!(
        table.offer(segment(1, 1), false, HOUR, 20_010),
        Offer::Accepted
    );
    assert_eq!(wait(table.poll(20_010)), Some(21_010));
    assert_eq!(
        table.offer(segment(2, 1), false, HOUR, 20_300),
        Offer::Accepted
    );
    assert_eq!(names(&commit(table.poll(20_300))), [(1, 1), (2, 1)]);
}

// Complaint: 12
#[test]
fn a_commit_does_not_wait_for_a_session_that_left_or_died() {
    let mut table = coordinator();
    let batch = commit_at(&mut table, &[(1, 0), (2, 0), (3, 0)], 10_000);
    let mut outcomes = durable(&batch);
    outcomes[1].1 = SegmentOutcome::Rejected(RejectReason::Inconsistent);
    let news = table.settle(&batch, outcomes, 10_100);
    assert_eq!(told(&news)[1], (2, 0, "rejected"));
    table.leave(id(3));
    let batch = commit_at(&mut table, &[(1, 1)], 20_010);
    assert_eq!(names(&batch), [(1, 1)]);
}

// Complaint: 12
#[test]
fn a_commit_waits_for_announced_rows_of_earlier_intervals_only() {
    let mut table = coordinator();
    table.opened(id(1), 0, 5_000);
    table.opened(id(2), 0, 5_000);
    table.opened(id(3), 0, 10_000);
    assert_eq!(
        table.offer(segment(1, 0), false, HOUR, 10_020),
        Offer::Accepted
    );
    assert_eq!(
        wait(table.poll(10_020)),
        Some(11_020),
        "session 2 has such rows"
    );
    // Rows of its next segment came while the files of this one were ended.
    table.opened(id(2), 1, 10_030);
    assert_eq!(
        table.offer(segment(2, 0), false, HOUR, 10_040),
        Offer::Accepted
    );
    let batch = commit(table.poll(10_040));
    assert_eq!(names(&batch), [(1, 0), (2, 0)]);
    table.settle(&batch, durable(&batch), 10_050);
    assert_eq!(
        table.offer(segment(3, 0), false, HOUR, 20_000),
        Offer::Accepted
    );
    assert_eq!(wait(table.poll(20_000)), Some(21_000));
    table.handed_over(id(2), 1);
    assert_eq!(names(&commit(table.poll(20_001))), [(3, 0)]);
}

#[test]
fn an_urgent_segment_takes_all_that_is_ready_with_it_at_once() {
    let mut table = coordinator();
    let batch = commit_at(&mut table, &[(1, 0), (2, 0)], 10_000);
    table.settle(&batch, durable(&batch), 10_010);
    assert_eq!(
        table.offer(segment(1, 1), false, HOUR, 12_000),
        Offer::Accepted
    );
    assert_eq!(wait(table.poll(12_000)), Some(20_000));
    assert_eq!(
        table.offer(segment(2, 1), true, HOUR, 12_001),
        Offer::Accepted
    );
    let batch = commit(table.poll(12_001));
    assert_eq!(names(&batch), [(1, 1), (2, 1)]);
    table.settle(&batch, durable(&batch), 12_010);
    // It may become urgent while it waits, by a second copy or when its session drains.
    assert_eq!(
        table.offer(segment(1, 2), false, HOUR, 13_000),
        Offer::Accepted
    );
    assert_eq!(
        table.offer(segment(1, 2), true, HOUR, 13_001),
        Offer::Duplicate
    );
    let batch = commit(table.poll(13_001));
    table.settle(&batch, durable(&batch), 13_010);
    assert_eq!(
        table.offer(segment(1, 3), false, HOUR, 13_020),
        Offer::Accepted
    );
    assert_eq!(wait(table.poll(13_020)), Some(20_000));
    table.drain(id(1));
    assert_eq!(names(&commit(table.poll(13_021))), [(1, 3)]);
}

#[test]
fn no_segment_waits_longer_than_an_interval_and_a_gather() {
    for late_ms in [0, 1, 2_000, 9_999] {
        let mut table = coordinator();
        let batch = commit_at(&mut table, &[(1, 0)], 10_000);
        table.settle(&batch, durable(&batch), 10_000);
        let mut now_ms = 10_000 + late_ms;
        let offered_ms = now_ms;
        table.offer(segment(2, 0), false, HOUR, now_ms);
        while let Next::Wait { until_ms } = table.poll(now_ms) {
            now_ms = until_ms.expect("a time");
        }
        assert!(
            now_ms - offered_ms <= INTERVAL + 1_000,
            "{late_ms}: {now_ms}"
        );
    }
}

#[test]
fn the_gather_grows_with_the_interval() {
    let gather = |interval| CoordinatorSettings::with_interval(interval).gather_ms();
    assert_eq!(
        [1_000, 4_000, 10_000, 60_000, 300_000].map(gather),
        [250, 1_000, 1_000, 2_000, 10_000]
    );
}

#[test]
fn a_copy_of_a_segment_is_taken_once_and_answered_once_it_is_done() {
    let mut table = coordinator();
    let batch = commit_at(&mut table, &[(1, 0)], 10_000);
    assert_eq!(
        table.offer(segment(1, 0), false, HOUR, 10_001),
        Offer::Duplicate
    );
    table.settle(&batch, durable(&batch), 10_010);
    assert_eq!(table.offer(segment(1, 0), false, HOUR, 10_011), Offer::Done);
    assert_eq!(
        table.offer(segment(1, 2), false, HOUR, 10_012),
        Offer::Held { missing: 1 }
    );
    assert_eq!(
        table.offer(segment(1, 2), false, HOUR, 10_013),
        Offer::Duplicate
    );
    assert_eq!(
        table.offer(segment(1, 1), true, HOUR, 10_014),
        Offer::Accepted
    );
    assert_eq!(names(&commit(table.poll(10_014))), [(1, 1), (1, 2)]);
}

#[test]
fn a_session_hears_of_its_segments_in_their_order() {
    let mut table = coordinator();
    let batch = commit_at(&mut table, &[(1, 0), (1, 1)], 10_000);
    let outcomes = vec![(0, blocked()), (1, SegmentOutcome::Covered)];
    assert!(
        table.settle(&batch, outcomes, 10_100).is_empty(),
        "nothing yet"
    );
    assert_eq!(wait(table.poll(10_200)), Some(11_100));
    let batch = commit(table.poll(11_100));
    assert_eq!(names(&batch), [(1, 0), (1, 1)]);
    let outcomes = vec![(0, SegmentOutcome::Covered), (1, SegmentOutcome::Covered)];
    let news = table.settle(&batch, outcomes, 11_200);
    assert_eq!(told(&news), [(1, 0, "durable"), (1, 1, "durable")]);
    assert!(table.is_idle());
}

#[test]
fn a_table_that_refuses_is_asked_less_and_less_often_and_given_up() {
    let mut table = coordinator();
    let mut now_ms = 10_000;
    let mut batch = commit_at(&mut table, &[(1, 0)], now_ms);
    let mut pauses = Vec::new();
    let news = loop {
        let news = table.settle(&batch, vec![(0, blocked())], now_ms);
        if !news.is_empty() {
            break news;
        }
        let until_ms = wait(table.poll(now_ms)).expect("a time");
        pauses.push((until_ms - now_ms) / 1_000);
        now_ms = until_ms;
        batch = commit(table.poll(now_ms));
    };
    assert_eq!(pauses[..8], [1, 2, 4, 8, 16, 32, 60, 60]);
    assert_eq!(told(&news), [(1, 0, "TABLE_BLOCKED")]);
    let Verdict::Failed(error) = &news[0].verdict else {
        panic!("{news:?}");
    };
    assert!(error.message().contains("15 minutes"), "{error:?}");
    assert_eq!(table.offer(segment(1, 1), false, HOUR, now_ms), Offer::Dead);
    assert!(table.is_idle());
}

#[test]
fn a_refusal_that_no_waiting_cures_stops_the_tasks_at_once() {
    for code in [
        "TABLE_ROLLED_BACK",
        "TABLE_OWNED_ELSEWHERE",
        "STATE_NOT_STORED",
    ] {
        let mut table = coordinator();
        let batch = commit_at(&mut table, &[(1, 0), (2, 0)], 10_000);
        let refused = SegmentOutcome::Blocked(Arc::new(SinkError::fatal(code, "ask somebody")));
        let outcomes = vec![(0, refused.clone()), (1, refused)];
        let news = table.settle(&batch, outcomes, 10_100);
        assert_eq!(told(&news), [(1, 0, code), (2, 0, code)]);
        assert_eq!(wait(table.poll(99_000)), None);
    }
}

#[test]
fn nothing_of_a_rejected_session_is_tried_again() {
    let mut table = coordinator();
    let batch = commit_at(&mut table, &[(1, 0), (1, 1), (2, 0)], 10_000);
    let rejected = SegmentOutcome::Rejected(RejectReason::Inconsistent);
    let outcomes = vec![(0, rejected), (1, blocked()), (2, blocked())];
    let news = table.settle(&batch, outcomes, 10_100);
    assert_eq!(told(&news), [(1, 0, "rejected")]);
    let Next::Tell(news) = table.poll(11_100) else {
        panic!("the dead one is told first");
    };
    assert_eq!(told(&news), [(1, 1, "rejected")]);
    assert_eq!(names(&commit(table.poll(11_100))), [(2, 0)]);
}

#[test]
fn a_segment_that_waited_too_long_ends_its_session() {
    let mut table = coordinator();
    table.offer(segment(1, 1), false, 5_000, 10_000);
    table.offer(segment(2, 0), true, HOUR, 10_000);
    let batch = commit(table.poll(10_000));
    table.settle(&batch, vec![(0, blocked())], 10_000);
    assert_eq!(wait(table.poll(14_000 - 3_001)), Some(11_000));
    let batch = commit(table.poll(11_000));
    table.settle(&batch, vec![(0, blocked())], 14_000);
    assert_eq!(wait(table.poll(14_000)), Some(15_000), "the expiry");
    let Next::Tell(news) = table.poll(15_000) else {
        panic!("one has expired");
    };
    assert_eq!(told(&news), [(1, 1, "expired")]);
    assert_eq!(table.offer(segment(1, 0), false, HOUR, 15_000), Offer::Dead);
    assert_eq!(
        wait(table.poll(15_000)),
        Some(16_000),
        "the other one goes on"
    );
}

#[test]
fn a_blocked_segment_expires_too_and_takes_its_session_along() {
    let mut table = coordinator();
    table.offer(segment(1, 0), false, 1_000, 10_000);
    table.offer(segment(1, 1), false, HOUR, 10_000);
    let batch = commit(table.poll(10_000));
    table.settle(&batch, vec![(0, blocked()), (1, blocked())], 10_500);
    let Next::Tell(news) = table.poll(11_500) else {
        panic!("one has expired");
    };
    assert_eq!(told(&news), [(1, 0, "expired")]);
    let Next::Tell(news) = table.poll(11_500) else {
        panic!("the other one must not pass it");
    };
    assert_eq!(told(&news), [(1, 1, "rejected")]);
    assert_eq!(wait(table.poll(11_500)), None);
    assert_eq!(table.held_bytes(), 0);
}

#[test]
fn the_newest_segment_has_to_come_again_when_there_is_no_room() {
    let bytes = segment(1, 0).memory_bytes();
    let mut table = TableCoordinator::new(CoordinatorSettings {
        held_bytes_max: 2 * bytes,
        ..CoordinatorSettings::with_interval(INTERVAL)
    });
    let batch = commit_at(&mut table, &[(1, 0)], 10_000);
    assert_eq!(
        table.offer(segment(2, 0), false, HOUR, 10_001),
        Offer::Accepted
    );
    assert_eq!(table.offer(segment(3, 0), false, HOUR, 10_002), Offer::Full);
    assert_eq!(
        table.offer(segment(2, 0), false, HOUR, 10_003),
        Offer::Duplicate
    );
    table.settle(&batch, durable(&batch), 10_010);
    assert_eq!(table.held_bytes(), bytes);
    assert_eq!(
        table.offer(segment(3, 0), false, HOUR, 10_011),
        Offer::Accepted
    );
}

#[test]
fn a_coordinator_that_steps_down_ends_its_commit_and_starts_no_other() {
    let mut table = coordinator();
    let batch = commit_at(&mut table, &[(1, 0), (2, 0)], 10_000);
    assert_eq!(
        table.offer(segment(3, 0), true, HOUR, 10_001),
        Offer::Accepted
    );
    assert_eq!(table.step_down(), 1);
    let news = table.settle(
        &batch,
        vec![(0, SegmentOutcome::Covered), (1, blocked())],
        10_010,
    );
    assert_eq!(told(&news), [(1, 0, "durable")]);
    assert_eq!(wait(table.poll(99_000)), None);
    assert_eq!(table.held_bytes(), 0);
    // Blocked segments are the next coordinator's, too.
    let batch = commit_at(&mut table, &[(2, 0)], 100_000);
    table.settle(&batch, vec![(0, blocked())], 100_001);
    assert_eq!(table.step_down(), 1);
    assert_eq!(wait(table.poll(200_000)), None);
}
