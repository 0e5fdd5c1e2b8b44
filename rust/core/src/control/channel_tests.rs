use super::*;
use crate::commit::test_support;
use crate::control::absent::AbsentRecords;

const WID: &str = "0123456789abcdef";
const HOUR: u64 = 3_600_000;
const DURABLE: Answer = Answer::Durable {
    snapshot_id: Some(7),
    stamp: None,
};

fn channel(id: u128) -> Channel {
    Channel::new(ChannelSettings {
        wid: WID.to_owned(),
        id: Uuid::from_u128(id),
        host: format!("worker-{id}"),
        segment_ttl_ms: HOUR,
    })
}

fn table() -> TableName {
    TableName::new(&test_support::segment(0, Vec::new()).table, "main")
}

fn segment(session: Uuid, seq: u64) -> Arc<Segment> {
    let ranges = vec![test_support::range("t", 0, 0, 10, Some(0))];
    let mut segment = test_support::segment(seq, ranges);
    segment.session = session;
    segment.first_unacked = 0;
    Arc::new(segment)
}

/// A channel with one session, named as the process.
fn process(id: u128) -> (Channel, Uuid) {
    let (mut channel, session) = (channel(id), Uuid::from_u128(100 + id));
    channel.join(session, 0, 0, table(), 10_000);
    (channel, session)
}

/// A control topic.
#[derive(Default)]
struct Topic {
    records: Vec<Vec<u8>>,
}

impl Topic {
    fn take(&mut self, from: &mut Channel, now_ms: u64) -> usize {
        let sent = from.outbox(now_ms);
        let count = sent.len();
        self.records.extend(sent);
        count
    }

    /// Gives all records from `offset` on.
    fn give(&self, to: &mut Channel, offset: usize, now_ms: u64) {
        for (at, record) in self.records.iter().enumerate().skip(offset) {
            to.record(at as i64, 0, record, now_ms);
        }
    }
}

fn events(channel: &mut Channel) -> Vec<Event> {
    std::iter::from_fn(|| channel.next_event()).collect()
}

fn told(channel: &mut Channel) -> Vec<(u64, Answer)> {
    let told = |event| match event {
        Event::Told { seq, answer, .. } => Some((seq, answer)),
        _ => None,
    };
    events(channel).into_iter().filter_map(told).collect()
}

/// The numbers of the segments from elsewhere, with the lowest that has no result.
fn remote(channel: &mut Channel) -> Vec<(u64, u64)> {
    let remote = |event| match event {
        Event::Remote(remote) => Some((remote.message.seq, remote.message.first_unacked)),
        _ => None,
    };
    events(channel).into_iter().filter_map(remote).collect()
}

/// A leader that has seen its own HELLO, and the topic with it.
fn leader(id: u128) -> (Channel, Topic) {
    let (mut leader, mut topic) = (channel(id), Topic::default());
    leader.leadership(true, 0);
    assert_eq!(topic.take(&mut leader, 0), 1);
    topic.give(&mut leader, 0, 0);
    assert_eq!(events(&mut leader), [Event::Promoted]);
    (leader, topic)
}

#[test]
fn a_segment_goes_to_the_coordinator_and_its_result_comes_back() {
    let (mut leader, mut topic) = leader(9);
    let (mut task, session) = process(1);
    task.submit(segment(session, 0), true, 5);
    assert_eq!(topic.take(&mut task, 5), 1);
    topic.give(&mut leader, 1, 6);
    let [Event::Remote(remote)] = &events(&mut leader)[..] else {
        panic!("one segment");
    };
    assert_eq!((remote.session, remote.message.seq), (session, 0));
    assert_eq!((remote.message.urgent, remote.expires_in_ms), (true, HOUR));
    leader.answer(session, table(), 0, DURABLE);
    topic.take(&mut leader, 7);
    topic.give(&mut task, 2, 8);
    assert_eq!(told(&mut task), [(0, DURABLE)]);
    assert_eq!(task.unanswered(), 0);
    assert_eq!(task.outbox_at_ms(), None);
}

#[test]
fn a_coordinator_obeys_nothing_before_its_own_hello() {
    let (mut leader, mut topic) = (channel(9), Topic::default());
    let (mut task, session) = process(1);
    task.submit(segment(session, 0), false, 0);
    topic.take(&mut task, 0);
    leader.leadership(true, 1);
    topic.give(&mut leader, 0, 1);
    topic.take(&mut leader, 1);
    topic.give(&mut leader, 1, 2);
    assert_eq!(events(&mut leader), [Event::Promoted]);
    assert_eq!(leader.ignored()[&Ignored::BeforeHello], 1);
    // The task answers the HELLO, and that counts.
    topic.give(&mut task, 1, 4);
    assert_eq!(topic.take(&mut task, 4), 1);
    topic.give(&mut leader, 2, 5);
    assert_eq!(remote(&mut leader), [(0, 0)]);
}

#[test]
fn a_hello_of_an_earlier_election_begins_nothing() {
    let (mut leader, mut topic) = leader(9);
    leader.leadership(false, 1);
    leader.leadership(true, 2);
    // A copy of its first HELLO comes, and then a segment.
    topic.records.push(topic.records[0].clone());
    let (mut task, session) = process(1);
    task.submit(segment(session, 0), false, 3);
    topic.take(&mut task, 3);
    topic.give(&mut leader, 1, 3);
    assert!(remote(&mut leader).is_empty());
    // Its HELLO seems lost: it is said again.
    assert_eq!(leader.outbox_at_ms(), Some(0));
    topic.take(&mut leader, 3);
    assert_eq!(leader.outbox_at_ms(), Some(5_002));
    assert_eq!(topic.take(&mut leader, 5_002), 1);
}

// Injection: 48
#[test]
fn a_lost_segment_is_sent_again_after_a_while() {
    let (mut task, session) = process(1);
    task.submit(segment(session, 0), false, 0);
    assert_eq!(task.outbox(0).len(), 1, "lost");
    assert_eq!(task.outbox_at_ms(), Some(30_000));
    assert_eq!(task.outbox(29_999).len(), 0);
    assert_eq!(task.outbox(30_000).len(), 1);
    assert_eq!(task.outbox_at_ms(), Some(60_000));
    let mut slow = channel(2);
    slow.join(session, 0, 0, table(), 300_000);
    slow.submit(segment(session, 0), false, 0);
    slow.outbox(0);
    assert_eq!(slow.outbox_at_ms(), Some(600_000));
}

#[test]
fn a_coordinator_can_ask_for_what_it_misses() {
    let (mut leader, mut topic) = leader(9);
    let (mut task, session) = process(1);
    for seq in 0..3 {
        task.submit(segment(session, seq), false, 0);
    }
    assert_eq!(task.outbox(0).len(), 3, "lost");
    leader.answer(session, table(), 1, Answer::Missing);
    topic.take(&mut leader, 1);
    topic.give(&mut task, 1, 1);
    assert_eq!(topic.take(&mut task, 2), 2);
    topic.give(&mut leader, 2, 3);
    assert_eq!(remote(&mut leader), [(1, 0), (2, 0)]);
    assert!(told(&mut task).is_empty());
}

// Promise: Control messages may be lost, repeated and mixed up: a session hears of each segment once, in order.
// Injection: 47
#[test]
fn results_that_are_repeated_and_mixed_up_are_heard_once_and_in_order() {
    let (mut task, session) = process(1);
    for seq in 0..3 {
        task.submit(segment(session, seq), false, 0);
    }
    assert_eq!(task.outbox(0).len(), 3);
    let mut results = channel(9);
    results.leadership(true, 0);
    results.outbox(0);
    let mut result = |seq| {
        results.answer(session, table(), seq, DURABLE);
        results.outbox(0).remove(0)
    };
    let (first, second, third) = (result(0), result(1), result(2));
    for copy in 0..3 {
        task.record(2 * copy, 0, &third, 1);
        task.record(2 * copy + 1, 0, &second, 1);
    }
    assert!(told(&mut task).is_empty());
    // The first result seems lost: that segment alone is sent again.
    let again = task.outbox(2);
    assert_eq!(again.len(), 1);
    for copy in 6..9 {
        task.record(copy, 0, &first, 3);
    }
    let heard: Vec<u64> = told(&mut task).into_iter().map(|(seq, _)| seq).collect();
    assert_eq!(heard, [0, 1, 2]);
    assert_eq!(task.unanswered(), 0);
}

#[test]
fn a_new_coordinator_learns_how_far_the_session_has_heard() {
    let (mut task, session) = process(1);
    let (mut leader, mut topic) = leader(9);
    task.submit(segment(session, 0), false, 0);
    task.submit(segment(session, 1), false, 0);
    topic.take(&mut task, 0);
    leader.answer(session, table(), 0, DURABLE);
    topic.take(&mut leader, 1);
    topic.give(&mut task, 0, 1);
    assert_eq!(told(&mut task), [(0, DURABLE)]);
    let (mut next, _) = process(2);
    next.leadership(true, 2);
    topic.take(&mut next, 2);
    topic.give(&mut next, 3, 2);
    let before = topic.records.len();
    topic.give(&mut task, 3, 2_000);
    topic.take(&mut task, 2_000);
    topic.give(&mut next, before, 2_000);
    assert_eq!(remote(&mut next), [(1, 1)]);
}

// Injection: 51
#[test]
fn leaders_that_change_all_the_time_are_answered_once_a_second() {
    let (mut task, session) = process(1);
    task.submit(segment(session, 0), false, 0);
    task.outbox(0);
    let mut sent = 0;
    for now_ms in (0..10_000).step_by(10) {
        let mut flapping = channel(1_000 + u128::from(now_ms));
        flapping.leadership(true, now_ms);
        for hello in flapping.outbox(now_ms) {
            task.record(now_ms as i64, 0, &hello, now_ms);
        }
        sent += task.outbox(now_ms).len();
    }
    assert_eq!(sent, 10);
}

#[test]
fn the_coordinators_own_sessions_do_not_take_the_way_over_the_topic() {
    let (mut leader, session) = process(9);
    leader.leadership(true, 0);
    assert_eq!(leader.outbox(0).len(), 1, "the HELLO");
    leader.submit(segment(session, 0), false, 10);
    leader.drain(session);
    assert!(leader.outbox(20).is_empty());
    let offered = events(&mut leader);
    let [
        Event::Promoted,
        Event::Offer {
            segment,
            urgent,
            expires_in_ms,
        },
    ] = &offered[..]
    else {
        panic!("{offered:?}");
    };
    assert_eq!((segment.seq, *urgent, *expires_in_ms), (0, true, HOUR - 10));
    // It is deposed before the commit: the segment goes over the topic.
    leader.leadership(false, 30);
    assert_eq!(leader.outbox(30).len(), 1);
    assert_eq!(events(&mut leader), [Event::Demoted]);
    // The commit was in flight, and ends well: the session hears of it all the same.
    leader.answer(session, table(), 0, DURABLE);
    assert_eq!(told(&mut leader), [(0, DURABLE)]);
    assert!(leader.outbox(40).is_empty());
}

#[test]
fn a_deposed_coordinator_tells_other_processes_nothing() {
    let (mut leader, _) = leader(9);
    leader.leadership(false, 1);
    leader.answer(Uuid::from_u128(5), table(), 0, DURABLE);
    assert!(leader.outbox(1).is_empty());
}

// Injection: 48
#[test]
fn nothing_of_a_session_follows_a_segment_that_was_lost() {
    let losses = [
        Answer::Expired,
        Answer::Fenced { epoch: 2 },
        Answer::Rejected {
            reason: "x".to_owned(),
            absent: AbsentRecords::default(),
        },
        Answer::Blocked {
            reason: "x".to_owned(),
        },
    ];
    for lost in losses {
        let (mut task, session) = process(1);
        task.submit(segment(session, 0), false, 0);
        task.submit(segment(session, 1), false, 0);
        task.outbox(0);
        task.answer(session, table(), 0, lost.clone());
        assert_eq!(told(&mut task), [(0, lost)]);
        task.submit(segment(session, 2), false, 1);
        assert_eq!(task.unanswered(), 0);
        assert!(task.outbox(HOUR).is_empty());
        task.answer(session, table(), 1, DURABLE);
        assert!(told(&mut task).is_empty());
    }
}

// Injection: 50
#[test]
fn a_segment_that_waited_too_long_is_not_looked_at() {
    let (mut leader, mut topic) = leader(9);
    let (mut task, session) = process(1);
    task.submit(segment(session, 0), false, 0);
    topic.take(&mut task, 0);
    leader.record(1, HOUR as i64 - 1, &topic.records[1], 0);
    leader.record(2, HOUR as i64, &topic.records[1], 0);
    let seen = events(&mut leader);
    let [Event::Remote(late), Event::Leave { session: left }] = &seen[..] else {
        panic!("{seen:?}");
    };
    assert_eq!((late.expires_in_ms, *left), (1, session));
    topic.take(&mut leader, 0);
    topic.give(&mut task, 2, 1);
    assert_eq!(told(&mut task), [(0, Answer::Expired)]);
    // Sealed long ago and sent just now is as old.
    let (mut task, session) = process(1);
    task.submit(segment(session, 0), false, 0);
    let sent = task.outbox(HOUR).remove(0);
    leader.record(9, 0, &sent, HOUR);
    assert_eq!(events(&mut leader), [Event::Leave { session }]);
}

// Injection: 52
#[test]
fn the_clocks_of_host_and_broker_may_differ() {
    let (mut leader, mut topic) = (channel(9), Topic::default());
    leader.leadership(true, 0);
    topic.take(&mut leader, 0);
    let (mut task, session) = process(1);
    task.submit(segment(session, 0), false, 0);
    topic.take(&mut task, 0);
    let two_hours = 2 * HOUR as i64;
    leader.record(0, two_hours, &topic.records[0], 0);
    leader.record(1, two_hours + 5, &topic.records[1], 0);
    let seen = events(&mut leader);
    let [Event::Promoted, Event::Remote(remote)] = &seen[..] else {
        panic!("{seen:?}");
    };
    assert_eq!(remote.expires_in_ms, HOUR - 5);
}

#[test]
fn a_coordinator_that_reads_late_takes_no_record_for_young() {
    let (mut leader, mut topic) = (channel(9), Topic::default());
    leader.leadership(true, 0);
    topic.take(&mut leader, 0);
    let (mut task, session) = process(1);
    task.submit(segment(session, 0), false, 0);
    topic.take(&mut task, 0);
    let stuck = 2 * HOUR;
    for (offset, record) in topic.records.iter().enumerate() {
        leader.record(offset as i64, stuck as i64, record, stuck);
    }
    assert_eq!(events(&mut leader), [Event::Promoted], "it asks once more");
    topic.take(&mut leader, stuck);
    leader.record(2, 0, &topic.records[2], stuck + 7);
    leader.record(3, stuck as i64, &topic.records[1], stuck + 7);
    assert_eq!(events(&mut leader), [Event::Leave { session }]);
}

#[test]
fn a_session_says_when_it_waits_and_when_it_ends() {
    let (mut leader, mut topic) = leader(9);
    let (mut task, session) = process(1);
    task.drain(session);
    assert!(task.outbox(0).is_empty(), "it waits for nothing");
    task.submit(segment(session, 0), false, 0);
    topic.take(&mut task, 0);
    for _ in 0..3 {
        task.drain(session);
    }
    assert_eq!(topic.take(&mut task, 1), 1);
    task.leave(session, &table());
    assert_eq!(topic.take(&mut task, 2), 1);
    topic.give(&mut leader, 2, 3);
    assert_eq!(
        events(&mut leader),
        [Event::Drain { session }, Event::Leave { session }]
    );
    // Late answers and segments of a session that left find nobody.
    leader.answer(session, table(), 0, DURABLE);
    topic.take(&mut leader, 4);
    topic.give(&mut task, 0, 4);
    task.submit(segment(session, 1), false, 5);
    assert!(told(&mut task).is_empty());
    assert_eq!(task.outbox(HOUR).len(), 0);
}

#[test]
fn what_is_not_for_this_connector_changes_nothing() {
    let (mut leader, _) = leader(9);
    let (mut task, session) = process(1);
    let mut foreign = Channel::new(ChannelSettings {
        wid: "fedcba9876543210".to_owned(),
        id: Uuid::from_u128(9),
        host: String::new(),
        segment_ttl_ms: HOUR,
    });
    foreign.join(session, 0, 0, table(), 10_000);
    foreign.submit(segment(session, 0), false, 0);
    let other = foreign.outbox(0).remove(0);
    let old = String::from_utf8(other.clone())
        .expect("text")
        .replace("\"v\":1", "\"v\":9");
    let long = vec![b'x'; 300_000];
    task.submit(segment(session, 0), false, 0);
    for channel in [&mut leader, &mut task] {
        for (at, bytes) in [&other[..], old.as_bytes(), b"\xff\xfe", &long]
            .into_iter()
            .enumerate()
        {
            channel.record(99 + at as i64, 0, bytes, 1);
        }
        assert!(events(channel).is_empty());
        let counts: Vec<(Ignored, u64)> = channel.ignored().iter().map(|(k, n)| (*k, *n)).collect();
        assert_eq!(
            counts,
            [
                (Ignored::Garbage, 1),
                (Ignored::Version, 1),
                (Ignored::Foreign, 1),
                (Ignored::Oversized, 1)
            ]
        );
    }
    assert_eq!(task.unanswered(), 1);
}

#[test]
fn a_topic_that_was_made_anew_is_begun_anew() {
    let (mut leader, _) = leader(9);
    let (mut task, session) = process(1);
    task.submit(segment(session, 0), false, 0);
    let sent = task.outbox(0).remove(0);
    leader.record(500, 0, &sent, 1);
    assert_eq!(remote(&mut leader).len(), 1);
    // Offsets begin at 0 again: the HELLO is said again, and counts where it comes back.
    leader.record(0, 0, &sent, 2);
    assert!(remote(&mut leader).is_empty());
    let hello = leader.outbox(2).remove(0);
    leader.record(1, 0, &hello, 3);
    leader.record(2, 0, &sent, 3);
    assert_eq!(remote(&mut leader).len(), 1);
    // So does a task: what it sent may be gone with the old topic.
    task.record(7, 0, b"", 4);
    assert!(task.outbox(4).is_empty());
    task.record(0, 0, b"", 5);
    assert_eq!(task.outbox(5).len(), 1);
}
