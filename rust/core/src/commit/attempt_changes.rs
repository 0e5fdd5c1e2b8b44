//! Segments of tables with changes, whose files are read when their commit is built.

use super::*;

// What cannot be read for ever ends its session; the other segments of the batch are committed, by
// another commit id.
#[test]
fn files_of_no_use_reject_their_session() {
    let mut machine = machine(vec![
        of_session(1, 0, 0, 10),
        of_session(1, 1, 10, 20),
        of_session(2, 0, 30, 40),
    ]);
    let table = Table::new();
    let made = first(&mut machine, &table);
    assert_eq!(made.batch, [0, 1, 2]);
    let reason = RejectReason::KeysUnusable {
        path: "k".into(),
        reason: "changed".into(),
    };
    loads(machine.answered(Answer::Unusable(0, reason)));
    let next = submission(machine.loaded(table.clone()));
    assert_eq!(next.batch, [2]);
    assert_ne!(next.commit_id, made.commit_id);
    let done = machine.answered(Answer::Committed(table.after(&next)));
    assert_eq!(ended(done), "RRD");
}

#[test]
fn files_of_no_use_are_asked_about_after_a_lost_answer() {
    let mut machine = machine(vec![of_session(1, 0, 0, 10), of_session(2, 0, 30, 40)]);
    let table = Table::new();
    let made = first(&mut machine, &table);
    let action = machine.answered(Answer::Unknown(failure("TIMEOUT")));
    let again = submission(again(&mut machine, action, &table));
    assert_eq!(again.commit_id, made.commit_id);
    let gone = RejectReason::ManifestChanged { path: "m".into() };
    loads(machine.answered(Answer::Unusable(0, gone)));
    // The first attempt came late: the table has all of it.
    let done = machine.loaded(table.after(&made));
    assert_eq!(ended(done), "DD");
}

// What reads and resolves the changes may fail with each attempt, for a reason that does not pass: then it is
// the coordinator that tries again, and counts how long.
#[test]
fn a_commit_that_cannot_be_built_is_given_up_for_now() {
    let limits = CommitLimits {
        unbuilt_max: Some(2),
        ..CommitLimits::default()
    };
    let mut machine = machine_with(limits, one());
    let table = Table::new();
    first(&mut machine, &table);
    for _ in 0..2 {
        let action = machine.answered(Answer::NotSent(failure("COMMIT_ENTRIES_GONE")));
        submission(again(&mut machine, action, &table));
    }
    // One that was sent is none of them.
    let action = machine.answered(Answer::Unknown(failure("TIMEOUT")));
    submission(again(&mut machine, action, &table));
    for _ in 0..2 {
        let action = machine.answered(Answer::NotSent(failure("COMMIT_ENTRIES_GONE")));
        submission(again(&mut machine, action, &table));
    }
    let done = machine.answered(Answer::NotSent(failure("COMMIT_ENTRIES_GONE")));
    assert_eq!(ended(done), "B COMMIT_ENTRIES_GONE");
}
