//! What each rule of the commit machine prevents: with the rule switched off, the test sees it.

use super::*;
use crate::rules::without;

/// How often each segment is in the table after `answer`, when the catalog says yes to
/// everything from then on.
fn rows(
    segments: Vec<Segment>,
    answer: Answer<Table>,
    now: impl Fn(&Submission<Table>) -> Table,
) -> Vec<usize> {
    let mut machine = machine(segments);
    let made = first(&mut machine, &Table::new());
    let mut table = now(&made);
    let mut action = machine.answered(answer);
    loop {
        action = match action {
            Action::Load => machine.loaded(table.clone()),
            Action::CheckManifests(asked) => machine.checked(intact(&asked)),
            Action::Sleep { .. } => machine.slept(),
            Action::Submit(made) => {
                table = table.after(&made);
                machine.answered(Answer::Committed(table.clone()))
            }
            Action::Done(_) => return table.rows,
        };
    }
}

#[test]
fn one_base() {
    let lost = || Answer::Conflict(failure("CONFLICT"));
    let run = || rows(one(), lost(), |_| Table::new().taken("there/2", 9, 5));
    assert_eq!(run(), Vec::<usize>::new());
    assert_eq!(without(&[Rule::OneBase], run), [0], "a blind rebase");
}

#[test]
fn resolve() {
    let unclear = || Answer::Unknown(failure("TIMEOUT"));
    let run = || rows(one(), unclear(), |made| Table::new().after(made));
    assert_eq!(run(), [0]);
    assert_eq!(without(&[Rule::Resolve], run), [0, 0], "taken for lost");
}

#[test]
fn bound_test() {
    let lost = || Answer::Conflict(failure("CONFLICT"));
    let run = || rows(one(), lost(), |_| Table::new().taken("there/2", 9, 5));
    assert_eq!(run(), Vec::<usize>::new());
    assert_eq!(without(&[Rule::BoundTest], run), [0]);
}

fn batch(segments: Vec<Segment>) -> Vec<usize> {
    first(&mut machine(segments), &Table::new()).batch
}

#[test]
fn session_order() {
    let run = || {
        batch(vec![
            of_session(1, 0, 0, 5),
            of_session(2, 0, 0, 10),
            of_session(2, 1, 10, 20),
        ])
    };
    assert_eq!(run(), [0]);
    assert_eq!(without(&[Rule::SessionOrder], run), [0, 2]);
}

#[test]
fn segment_order() {
    let run = || batch(vec![of_session(1, 1, 10, 20), of_session(1, 0, 0, 10)]);
    assert_eq!(run(), [1, 0]);
    assert_eq!(without(&[Rule::SegmentOrder], run), [0]);
}

#[test]
fn deletes_alone() {
    let run = || {
        batch(vec![
            of_session(1, 0, 0, 10),
            with_deletes(of_session(1, 1, 10, 20)),
        ])
    };
    assert_eq!(run(), [0]);
    assert_eq!(without(&[Rule::DeletesAlone], run), [0, 1]);
}

#[test]
fn dead_session() {
    let run = || {
        let mut machine = machine(vec![of_session(1, 0, 0, 10), of_session(1, 1, 10, 20)]);
        loads(machine.start());
        match machine.loaded(Table::new().taken("there/2", 9, 5)) {
            Action::CheckManifests(asked) => asked,
            action => {
                assert_eq!(ended(action), "RR");
                Vec::new()
            }
        }
    };
    assert_eq!(run(), Vec::<usize>::new());
    assert_eq!(without(&[Rule::DeadSession], run), [1]);
}

#[test]
fn never_back_and_rows_only() {
    let bound = || {
        let mut state = WriterState::new(Uuid::from_u128(7));
        for claim in [
            range("t", 0, 0, 10, Some(0)),
            range("t", 0, 0, 5, Some(0)),
            range("t", 0, 0, 30, None),
        ] {
            state.advance(&segment(0, vec![claim])).unwrap();
        }
        state.bound(&TopicPartition::new("t", 0))
    };
    assert_eq!(bound(), Some(10));
    assert_eq!(without(&[Rule::NeverBack], bound), Some(5));
    assert_eq!(without(&[Rule::RowsOnly], bound), Some(30));
}
