use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, channel};

use super::*;
use crate::catalog::open_sql;

const TABLE: [&str; 2] = ["db", "orders"];

fn segment(session: u128, seq: u64) -> Segment {
    Segment {
        session: Uuid::from_u128(session),
        seq,
        first_unacked: 0,
        epoch: 0,
        table: TableIdent::from_strs(TABLE).expect("a name"),
        table_uuid: Uuid::nil(),
        branch: "main".to_owned(),
        ranges: Vec::new(),
        watermarks: BTreeMap::new(),
        topic_ids: Default::default(),
        manifests: Vec::new(),
        rows: 0,
        bytes: 0,
    }
}

/// An actor that is not running, and what it tells session 1.
fn actor() -> (Actor, Receiver<Outcome>) {
    let uri = ("uri".to_owned(), "sqlite:/nowhere/catalog.db".to_owned());
    let catalog = open_sql("c", &BTreeMap::from([uri])).expect("a catalog that nobody asks");
    let ident = TableIdent::from_strs(TABLE).expect("a name");
    let table = Arc::new(TableHub {
        key: TableKey {
            ident: TableIdentKey(ident.clone()),
            branch: "main".to_owned(),
        },
        queue: Mutex::default(),
        sessions: Mutex::default(),
        open: Mutex::default(),
        wake: Notify::new(),
        interval: Duration::from_secs(1),
    });
    let (sender, outcomes) = channel();
    let send = move |outcome| sender.send(outcome).expect("the test listens");
    table.join(Uuid::from_u128(1), Box::new(send));
    let actor = Actor {
        hub: Weak::new(),
        committer: TableCommitter::new(catalog, ident, "main", "w", "c"),
        table,
        cancel: Cancel::default(),
        block_max: Duration::ZERO,
    };
    (actor, outcomes)
}

fn blocked() -> SegmentOutcome {
    SegmentOutcome::Blocked(Arc::new(SinkError::retriable("BUSY", "come back later")))
}

fn sequences(segments: &[Segment]) -> Vec<u64> {
    segments.iter().map(|segment| segment.seq).collect()
}

#[test]
fn a_session_hears_of_its_segments_in_their_order() {
    let (actor, outcomes) = actor();
    let batch = [segment(1, 0), segment(1, 1)];
    let settled = vec![(0, blocked()), (1, SegmentOutcome::Covered)];
    let (waiting, reason) = actor.settle_all(&batch, settled).expect("one is blocked");
    assert_eq!(sequences(&waiting), [0, 1]);
    assert_eq!(reason.code(), "BUSY");
    assert!(outcomes.try_recv().is_err(), "nothing is told yet");
    let settled = vec![(0, SegmentOutcome::Covered), (1, SegmentOutcome::Covered)];
    assert!(actor.settle_all(&batch, settled).is_none());
    let told: Vec<u64> = outcomes
        .try_iter()
        .map(|outcome| outcome.sequence)
        .collect();
    assert_eq!(told, [0, 1]);
}

#[test]
fn nothing_of_a_rejected_session_is_tried_again() {
    let (actor, outcomes) = actor();
    let batch = [segment(1, 0), segment(1, 1), segment(2, 0)];
    let rejected = SegmentOutcome::Rejected(RejectReason::Inconsistent);
    let settled = vec![(0, rejected), (1, blocked()), (2, blocked())];
    let (waiting, _) = actor.settle_all(&batch, settled).expect("two are blocked");
    let living = actor.living(waiting);
    assert_eq!(living.len(), 1);
    assert_eq!(living[0].session, Uuid::from_u128(2));
    let told: Vec<Outcome> = outcomes.try_iter().collect();
    assert_eq!(told.len(), 2);
    let rejected = |outcome: &Outcome| matches!(outcome.verdict, Verdict::Rejected(_));
    assert!(told.iter().all(rejected), "{told:?}");
}

#[test]
fn no_segment_passes_one_that_was_given_up() {
    let (actor, outcomes) = actor();
    let reason = SinkError::fatal("NO_LUCK", "the catalog says no");
    actor.give_up(&[segment(1, 0)], Duration::from_secs(900), &reason);
    let outcome = outcomes.try_recv().expect("the session hears of it");
    let Verdict::Failed(error) = outcome.verdict else {
        panic!("{outcome:?}");
    };
    assert_eq!(error.code(), "TABLE_BLOCKED");
    assert!(error.message().contains("15 minutes"), "{error:?}");
    actor.table.submit(segment(1, 1));
    assert!(!lock(&actor.table.queue).is_ready());
    let outcome = outcomes.try_recv().expect("the later one is refused");
    assert_eq!(outcome.sequence, 1);
    assert!(matches!(outcome.verdict, Verdict::Rejected(_)));
}

#[test]
fn a_commit_waits_for_the_rows_of_earlier_intervals_only() {
    let (actor, _outcomes) = actor();
    let (table, one) = (&actor.table, Uuid::from_u128(1));
    table.opened(one, 0, 4);
    assert!(!table.awaits(4) && table.awaits(5));
    // Rows of the next segment come while the files of this one end.
    table.opened(one, 1, 5);
    table.submit(segment(1, 0));
    assert!(!table.awaits(5), "handed over");
    assert!(table.awaits(6), "the next segment is not");
    table.leave(one);
    assert!(!table.awaits(9));
}
