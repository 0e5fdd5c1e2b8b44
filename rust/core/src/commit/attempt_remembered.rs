//! The commit loop that begins with the table as its process remembers it.

use super::*;

fn remembering(table: &Table, segments: Vec<Segment>) -> Machine {
    machine(segments).with_remembered(Some(table.clone()))
}

/// Drives the machine to its first submission without a load.
#[track_caller]
fn at_once(machine: &mut Machine) -> Submission<Table> {
    let asked = checks(machine.start());
    submission(machine.checked(intact(&asked)))
}

/// The table that has the rows up to 10 of partition 0.
fn with_first() -> Table {
    let mut machine = machine(one());
    let mut table = Table::new();
    table = table.after(&first(&mut machine, &table));
    // The numbers of every machine begin anew here.
    table.state.as_mut().unwrap().commit_id = Uuid::from_u128(77);
    table
}

// Promise: A process that alone writes a table commits to it with one request to the catalog: it loads the table no more.
#[test]
fn a_remembered_table_is_not_loaded() {
    let table = with_first();
    let mut machine = remembering(&table, vec![of_session(1, 1, 10, 20)]);
    let made = at_once(&mut machine);
    assert_eq!(made.base, table, "R1: it was judged on what is asserted");
    let action = machine.answered(Answer::Committed(table.after(&made)));
    assert_eq!(ended(action), "D");
    assert_eq!(machine.remembered_was(), Some(Remembered::Current));
}

// Promise: A commit that was built on a remembered table of the past is refused by the catalog, and judged anew on the newest: nothing is doubled.
#[test]
fn a_table_of_the_past_is_loaded_and_judged_anew() {
    let past = with_first();
    // Another process committed the same rows meanwhile.
    let mut now = past.taken("there/2", 9, 20);
    now.state.as_mut().unwrap().connector = identity().connector;
    for refusal in [Answer::Conflict, Answer::Refused] {
        let mut machine = remembering(&past, vec![of_session(1, 1, 10, 20)]);
        at_once(&mut machine);
        loads(machine.answered(refusal(failure("STALE"))));
        assert_eq!(machine.remembered_was(), Some(Remembered::Stale));
        assert_eq!(ended(machine.loaded(now.clone())), "C");
    }
}

#[test]
fn a_stale_attempt_is_no_lost_race() {
    let past = with_first();
    let limits = CommitLimits {
        conflicts_max: 0,
        state_location: StateLocation::Property,
        ..CommitLimits::default()
    };
    let segments = vec![of_session(1, 1, 10, 20)];
    let mut machine = machine_with(limits, segments).with_remembered(Some(past.clone()));
    at_once(&mut machine);
    loads(machine.answered(Answer::Conflict(failure("STALE"))));
    let made = submission(machine.loaded(past.moved()));
    assert_eq!(made.attempt, 2, "its files have names of their own");
    let action = machine.answered(Answer::Conflict(failure("LOST")));
    assert_eq!(ended(action), "B COMMIT_CONFLICTS");
}

/// The clock of the process is behind a change that it has not seen: the catalog refuses the snapshot
/// as too old, or the request cannot be made, and the table has not moved.
#[test]
fn a_refusal_of_a_remembered_table_is_none_of_the_newest() {
    let table = with_first();
    let answers: [fn() -> Answer<Table>; 2] = [
        || Answer::Refused(failure("TOO_OLD")),
        || Answer::NotSent(SinkError::fatal("SNAPSHOT_REFUSED", "for a test")),
    ];
    for answer in answers {
        let mut machine = remembering(&table, vec![of_session(1, 1, 10, 20)]);
        at_once(&mut machine);
        loads(machine.answered(answer()));
        assert_eq!(machine.remembered_was(), Some(Remembered::Stale));
        let made = submission(machine.loaded(table.clone()));
        let blocked = machine.answered(answer());
        loads(blocked);
        assert_eq!(made.attempt, 2);
        let code = answer_code(answer());
        assert_eq!(ended(machine.loaded(table.clone())), format!("B {code}"));
    }
}

fn answer_code(answer: Answer<Table>) -> &'static str {
    match answer {
        Answer::Refused(error) | Answer::NotSent(error) => error.code(),
        _ => "",
    }
}

#[test]
fn an_unclear_answer_is_resolved_on_the_newest_table() {
    let table = with_first();
    let mut machine = remembering(&table, vec![of_session(1, 1, 10, 20)]);
    let made = at_once(&mut machine);
    let action = machine.answered(Answer::Unknown(failure("TIMEOUT")));
    assert_eq!(machine.remembered_was(), None);
    let action = again(&mut machine, action, &table.after(&made));
    assert_eq!(ended(action), "D");
}

/// Of what a remembered table says of segments, only "may go in" is believed.
#[test]
fn verdicts_are_left_to_a_table_that_was_loaded_now() {
    let table = with_first();
    let mut fenced = table.clone();
    fenced.state.as_mut().unwrap().epoch = 3;
    let mut other_spec = of_session(1, 1, 10, 20);
    other_spec.manifests[0].manifest.partition_spec_id = 7;
    let mut after_reset = of_session(1, 1, 10, 20);
    after_reset.epoch = 1;
    let replaced = Table {
        uuid: Uuid::from_u128(8),
        ..table.clone()
    };
    let broken = Table {
        problem: Some("TABLE_ENCRYPTED"),
        ..table.clone()
    };
    for (what, table, segment) in [
        ("covered", &table, of_session(1, 1, 0, 10)),
        ("rejected", &table, of_session(1, 1, 5, 20)),
        ("fenced", &fenced, of_session(1, 1, 10, 20)),
        ("sealed after a reset", &table, after_reset),
        ("of a spec that is not there", &table, other_spec),
        ("of another table", &replaced, of_session(1, 1, 10, 20)),
        ("refused", &broken, of_session(1, 1, 10, 20)),
    ] {
        let action = remembering(table, vec![segment]).start();
        assert!(matches!(action, Action::Load), "{what}: {action:?}");
    }
}

#[test]
fn only_the_first_attempt_is_built_on_it() {
    let table = with_first();
    let segments = vec![
        with_deletes(of_session(1, 1, 10, 20)),
        with_deletes(of_session(1, 2, 20, 30)),
    ];
    let mut machine = remembering(&table, segments);
    let one = at_once(&mut machine);
    let after = table.after(&one);
    let asked = checks(machine.answered(Answer::Committed(after.clone())));
    let two = submission(machine.checked(intact(&asked)));
    assert_eq!(two.base, after);
    let action = machine.answered(Answer::Conflict(failure("LOST")));
    assert!(matches!(action, Action::Sleep { .. }), "{action:?}");
    assert_eq!(machine.remembered_was(), Some(Remembered::Current));
}
