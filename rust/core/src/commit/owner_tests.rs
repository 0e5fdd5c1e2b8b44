use super::*;

fn by(hub: &str, commit: u128) -> WriterState {
    let mut state = WriterState::new(Uuid::from_u128(7));
    state.hub_id = hub.into();
    state.connector = "orders-sink".into();
    state.commit_id = Uuid::from_u128(commit);
    state
}

fn foreign(hub: &str) -> Ownership {
    Ownership::ForeignOwner {
        hub_id: hub.into(),
        connector: "orders-sink".into(),
    }
}

/// Looks at each state in turn and returns what was said of the last one; all before are `Ok`.
fn last(own: &str, states: &[Option<WriterState>]) -> Ownership {
    let mut watch = OwnerWatch::default();
    let mut said = Ownership::Ok;
    for state in states {
        assert_eq!(said, Ownership::Ok, "too early: {states:?}");
        said = watch.look(state.as_ref(), own);
    }
    said
}

// Promise: A process that takes over a table is not stopped by what its predecessor left behind, nor by the predecessor's last request.
#[test]
fn a_takeover_is_no_second_owner() {
    let history = [Some(by("a", 1)), Some(by("a", 1)), Some(by("a", 1))];
    assert_eq!(last("b", &history), Ownership::Ok);
    let late_request = [
        Some(by("a", 1)),
        Some(by("a", 2)),
        Some(by("a", 2)),
        Some(by("b", 3)),
        Some(by("b", 4)),
    ];
    assert_eq!(last("b", &late_request), Ownership::Ok);
    let two_predecessors = [
        Some(by("a", 1)),
        Some(by("a", 2)),
        Some(by("c", 3)),
        Some(by("b", 4)),
    ];
    assert_eq!(last("b", &two_predecessors), Ownership::Ok);
    let own = [Some(by("b", 1)), Some(by("b", 2)), Some(by("b", 3))];
    assert_eq!(last("b", &own), Ownership::Ok);
}

#[test]
fn the_second_commit_of_another_living_process_is_noticed() {
    let in_a_row = [Some(by("b", 1)), Some(by("a", 2)), Some(by("a", 3))];
    assert_eq!(last("b", &in_a_row), foreign("a"));
    let taking_turns = [
        Some(by("b", 1)),
        Some(by("a", 2)),
        Some(by("b", 3)),
        Some(by("a", 4)),
    ];
    assert_eq!(last("b", &taking_turns), foreign("a"));
    let a_third_between = [
        Some(by("b", 1)),
        Some(by("a", 2)),
        Some(by("c", 3)),
        Some(by("a", 4)),
    ];
    assert_eq!(last("b", &a_third_between), foreign("a"));
    let from_an_empty_table = [None, Some(by("a", 1)), Some(by("b", 2)), Some(by("a", 3))];
    assert_eq!(last("b", &from_an_empty_table), foreign("a"));
}

#[test]
fn a_state_without_a_process_accuses_nobody() {
    let unnamed = [Some(by("b", 1)), Some(by("", 2)), Some(by("", 3)), None];
    assert_eq!(last("b", &unnamed), Ownership::Ok);
}

#[test]
fn the_error_names_both_and_the_remedy() {
    let error = owned_elsewhere("host-1/0a0b0c0d", "host-2/01020304", "orders-sink");
    let report = error.report();
    for part in [
        "host-1/0a0b0c0d",
        "host-2/01020304",
        "orders-sink",
        "frazil.writer.id",
        "TABLE_OWNED_ELSEWHERE",
    ] {
        assert!(report.contains(part), "{part} is missing: {report}");
    }
}
