//! Walks every edge of the machine over a small table, as catalog and storage would drive it.

use iceberg::{NamespaceIdent, TableIdent};

use super::*;
use crate::commit::action::CommitLimits;
use crate::commit::location::{StateLocation, StoredIn};
use crate::commit::plan::CommitIdentity;
use crate::commit::test_support::{range, segment};
use crate::offsets::TopicPartition;

const WID: &str = "0123456789abcdef";

/// A table with what the machine asks of one, and the segments that were committed to it.
#[derive(Debug, Clone, PartialEq)]
struct Table {
    uuid: Uuid,
    state: Option<WriterState>,
    changes: u32,
    history: Vec<i64>,
    specs: Vec<i32>,
    problem: Option<&'static str>,
    rows: Vec<usize>,
}

impl Table {
    fn new() -> Table {
        Table {
            uuid: Uuid::from_u128(7),
            state: None,
            changes: 0,
            history: Vec::new(),
            specs: vec![0],
            problem: None,
            rows: Vec::new(),
        }
    }

    /// The table after a catalog applied the submission, whatever it was built on.
    fn after(&self, submission: &Submission<Table>) -> Table {
        let mut table = self.moved();
        table.history.push(submission.snapshot_id);
        let state = submission.state.clone();
        let (commit, snapshot) = (submission.commit_id, submission.snapshot_id);
        table.state = Some(identity().sign(state, commit, snapshot, 1));
        table.rows.extend(&submission.batch);
        table
    }

    /// The table after a commit that is nobody's business.
    fn moved(&self) -> Table {
        let changes = self.changes + 1;
        Table {
            changes,
            ..self.clone()
        }
    }

    /// The table after another process of the same writer committed partition 0 up to `end`.
    fn taken(&self, hub: &str, commit: u128, end: i64) -> Table {
        let mut table = self.moved();
        let state = table
            .state
            .get_or_insert_with(|| WriterState::new(self.uuid));
        state.raise(&TopicPartition::new("t", 0), end).unwrap();
        state.commit_id = Uuid::from_u128(commit);
        state.snapshot_id = 1;
        state.hub_id = hub.into();
        state.connector = "other-sink".into();
        table
    }
}

impl TableView for Table {
    fn uuid(&self) -> Uuid {
        self.uuid
    }

    fn check(&self) -> Result<()> {
        self.problem
            .map_or(Ok(()), |code| Err(SinkError::fatal(code, "refused")))
    }

    fn writer_state(&self, wid: &str, branch: &str) -> Result<Option<WriterState>> {
        assert_eq!((wid, branch), (WID, "main"));
        Ok(self.state.clone())
    }

    fn has_moved(&self, now: &Self) -> bool {
        self.changes != now.changes
    }

    fn is_in_history(&self, branch: &str, snapshot_id: i64) -> bool {
        assert_eq!(branch, "main");
        self.history.contains(&snapshot_id)
    }

    fn has_snapshot(&self, snapshot_id: i64) -> bool {
        self.history.contains(&snapshot_id)
    }

    fn has_spec(&self, spec_id: i32) -> bool {
        self.specs.contains(&spec_id)
    }
}

/// Counts, so that every number is another one.
#[derive(Debug, Default)]
struct Counting(u64);

impl Entropy for Counting {
    fn uuid(&mut self) -> Uuid {
        self.0 += 1;
        Uuid::from_u128(u128::from(self.0) << 64)
    }

    fn snapshot_id(&mut self) -> i64 {
        self.0 += 1;
        self.0 as i64 + 1_000
    }

    fn jitter(&mut self) -> u32 {
        u32::MAX
    }
}

fn identity() -> CommitIdentity {
    CommitIdentity {
        wid: WID.into(),
        connector: "orders-sink".into(),
        hub_id: "here/1".into(),
        branch: "main".into(),
        state_bytes_max: 8_000,
    }
}

type Machine = CommitMachine<Table, Counting>;

fn machine_with(limits: CommitLimits, segments: Vec<Segment>) -> Machine {
    let setup = CommitSetup {
        table: TableIdent::new(NamespaceIdent::new("db".into()), "t".into()),
        identity: identity(),
        limits,
    };
    CommitMachine::new(setup, segments, Counting::default())
}

fn machine(segments: Vec<Segment>) -> Machine {
    kept(StateLocation::Property, segments)
}

fn kept(state_location: StateLocation, segments: Vec<Segment>) -> Machine {
    let limits = CommitLimits {
        state_location,
        ..CommitLimits::default()
    };
    machine_with(limits, segments)
}

fn of_session(session: u128, seq: u64, start: i64, end: i64) -> Segment {
    let mut made = segment(seq, vec![range("t", 0, start, end, Some(start))]);
    made.session = Uuid::from_u128(session);
    made
}

fn with_deletes(mut segment: Segment) -> Segment {
    segment.manifests[0].counts.equality_delete_files = 1;
    segment
}

fn one() -> Vec<Segment> {
    vec![of_session(1, 0, 0, 10)]
}

fn failure(code: &'static str) -> SinkError {
    SinkError::retriable(code, "injected")
}

#[track_caller]
fn submission(action: Action<Table>) -> Submission<Table> {
    match action {
        Action::Submit(submission) => submission,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn loads(action: Action<Table>) {
    assert!(matches!(action, Action::Load), "{action:?}");
}

#[track_caller]
fn sleeps(action: Action<Table>) -> u64 {
    match action {
        Action::Sleep { ms } => ms,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn checks(action: Action<Table>) -> Vec<usize> {
    match action {
        Action::CheckManifests(indexes) => indexes,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn outcomes(action: Action<Table>) -> Vec<SegmentOutcome> {
    let Action::Done(outcomes) = action else {
        panic!("{action:?}");
    };
    let places: Vec<usize> = outcomes.iter().map(|(index, _)| *index).collect();
    assert_eq!(places, (0..outcomes.len()).collect::<Vec<_>>());
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// One letter for each outcome, and the code of what blocks.
#[track_caller]
fn ended(action: Action<Table>) -> String {
    let mut text = String::new();
    let mut code = "";
    let outcomes = outcomes(action);
    for outcome in &outcomes {
        text.push(match outcome {
            SegmentOutcome::Durable { .. } => 'D',
            SegmentOutcome::Covered => 'C',
            SegmentOutcome::Rejected(_) => 'R',
            SegmentOutcome::Fenced { .. } => 'F',
            SegmentOutcome::Blocked(error) => {
                assert!(error.report().contains("table=db.t"), "{error:?}");
                code = error.code();
                'B'
            }
        });
    }
    if !code.is_empty() {
        text.push(' ');
        text.push_str(code);
    }
    text
}

/// Drives the machine to its first submission on `table`, with all manifests there.
#[track_caller]
fn first(machine: &mut Machine, table: &Table) -> Submission<Table> {
    loads(machine.start());
    let asked = checks(machine.loaded(table.clone()));
    submission(machine.checked(intact(&asked)))
}

fn intact(indexes: &[usize]) -> Vec<Checked> {
    indexes.iter().map(|index| (*index, Ok(None))).collect()
}

/// Drives the machine through a pause to the table as it is now.
#[track_caller]
fn again(machine: &mut Machine, action: Action<Table>, table: &Table) -> Action<Table> {
    sleeps(action);
    loads(machine.slept());
    machine.loaded(table.clone())
}

#[test]
fn a_batch_is_checked_submitted_and_durable() {
    let mut machine = machine(vec![of_session(1, 0, 0, 10), of_session(2, 0, 10, 20)]);
    let table = Table::new();
    loads(machine.start());
    assert_eq!(checks(machine.loaded(table.clone())), [0, 1]);
    let made = submission(machine.checked(intact(&[0, 1])));
    assert_eq!(made.base, table);
    assert_eq!((made.batch.clone(), made.attempt), (vec![0, 1], 1));
    assert_eq!(made.state.bound(&TopicPartition::new("t", 0)), Some(20));
    let done = machine.answered(Answer::Committed(table.after(&made)));
    for outcome in outcomes(done) {
        let SegmentOutcome::Durable { snapshot_id } = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(snapshot_id, made.snapshot_id);
    }
    let committed = Note::Committed {
        batch: vec![0, 1],
        snapshot_id: made.snapshot_id,
        attempts: 1,
    };
    assert_eq!(machine.take_notes(), [committed]);
}

#[test]
fn nothing_to_do_is_done() {
    assert_eq!(ended(machine(Vec::new()).start()), "");
}

#[test]
fn what_belongs_elsewhere_is_not_committed() {
    let mut branch = of_session(1, 0, 0, 10);
    branch.branch = "audit".into();
    let mut table = of_session(1, 0, 0, 10);
    table.table = TableIdent::new(NamespaceIdent::new("db".into()), "u".into());
    for stray in [branch, table] {
        let mut machine = machine(vec![of_session(2, 0, 10, 20), stray]);
        assert_eq!(ended(machine.start()), "BB INTERNAL");
    }
}

#[test]
fn loads_are_repeated_through_what_may_pass() {
    let mut machine = machine(one());
    loads(machine.start());
    let mut pauses = Vec::new();
    for _ in 0..9 {
        pauses.push(sleeps(machine.load_failed(failure("DOWN"))));
        loads(machine.slept());
    }
    assert_eq!(
        pauses,
        [
            1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000
        ]
    );
    let notes = machine.take_notes();
    assert!(
        matches!(
            notes[8],
            Note::Unclear {
                code: "DOWN",
                attempt: 9,
                pause_ms: 60_000,
                ..
            }
        ),
        "{notes:?}"
    );
    let refused = machine.load_failed(SinkError::config("TABLE_NOT_FOUND", "no such table"));
    assert_eq!(ended(refused), "B TABLE_NOT_FOUND");
}

#[test]
fn a_table_that_is_not_written_blocks() {
    let mut machine = machine(one());
    loads(machine.start());
    let mut table = Table::new();
    table.problem = Some("TABLE_FORMAT_V1");
    assert_eq!(ended(machine.loaded(table)), "B TABLE_FORMAT_V1");
}

#[test]
fn after_a_lost_race_the_offsets_are_judged_on_the_new_table() {
    let table = Table::new();
    let mut machine = machine(vec![of_session(1, 0, 0, 10), of_session(2, 0, 10, 20)]);
    let made = first(&mut machine, &table);
    let lost = machine.answered(Answer::Conflict(failure("CONFLICT")));
    // Another process took a part of the first segment.
    let taken = table.taken("there/2", 99, 5);
    let action = again(&mut machine, lost, &taken);
    let next = submission(action);
    assert_eq!((&next.base, &next.batch[..]), (&taken, &[1][..]));
    assert_ne!(next.commit_id, made.commit_id, "another batch");
    let done = outcomes(machine.answered(Answer::Committed(taken.after(&next))));
    let SegmentOutcome::Rejected(RejectReason::Overlap {
        connector, hub_id, ..
    }) = &done[0]
    else {
        panic!("{done:?}");
    };
    assert_eq!((&connector[..], &hub_id[..]), ("other-sink", "there/2"));
    assert!(matches!(done[1], SegmentOutcome::Durable { .. }));
}

#[test]
fn a_lost_race_that_changes_nothing_submits_the_same_commit_on_the_new_table() {
    let table = Table::new();
    let mut machine = machine(one());
    let made = first(&mut machine, &table);
    let lost = machine.answered(Answer::Conflict(failure("CONFLICT")));
    // The manifests were seen; they are not asked for again.
    let next = submission(again(&mut machine, lost, &table.moved()));
    assert_eq!(next.base, table.moved());
    assert_eq!(next.commit_id, made.commit_id);
    assert_ne!(next.snapshot_id, made.snapshot_id);
    assert_eq!((made.attempt, next.attempt), (1, 2));
}

#[test]
fn a_race_that_was_lost_to_oneself_is_won() {
    let table = Table::new();
    let mut machine = machine(one());
    let made = first(&mut machine, &table);
    let lost = machine.answered(Answer::Conflict(failure("CONFLICT")));
    assert_eq!(ended(again(&mut machine, lost, &table.after(&made))), "D");
}

#[test]
fn endless_races_end_and_pauses_grow_to_their_limit() {
    let limits = CommitLimits {
        conflicts_max: 8,
        ..CommitLimits::default()
    };
    let mut machine = machine_with(limits, one());
    let table = Table::new();
    first(&mut machine, &table);
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let lost = machine.answered(Answer::Conflict(failure("CONFLICT")));
        pauses.push(sleeps(lost));
        loads(machine.slept());
        submission(machine.loaded(table.clone()));
    }
    assert_eq!(pauses, [50, 100, 200, 400, 800, 1_600, 2_000, 2_000]);
    let lost = machine.answered(Answer::Conflict(failure("CONFLICT")));
    assert_eq!(ended(lost), "B COMMIT_CONFLICTS");
}

#[test]
fn every_batch_has_its_own_tries() {
    let limits = CommitLimits {
        conflicts_max: 1,
        ..CommitLimits::default()
    };
    let deletes = vec![
        with_deletes(of_session(1, 0, 0, 10)),
        with_deletes(of_session(1, 1, 10, 20)),
    ];
    let mut machine = machine_with(limits, deletes);
    let mut table = Table::new();
    let mut made = first(&mut machine, &table);
    for round in 0..2 {
        assert_eq!(made.batch, [round], "a delete is a commit of its own");
        let lost = machine.answered(Answer::Conflict(failure("CONFLICT")));
        made = submission(again(&mut machine, lost, &table));
        table = table.after(&made);
        let next = machine.answered(Answer::Committed(table.clone()));
        if round == 1 {
            assert_eq!(ended(next), "DD");
            return;
        }
        // The table that the first commit left is the base of the second; it is not loaded again.
        assert_eq!(checks(next), [1]);
        made = submission(machine.checked(intact(&[1])));
        assert_eq!((&made.base, made.attempt), (&table, 1));
    }
}

#[test]
fn an_unclear_answer_is_resolved_by_the_table() {
    for is_applied in [true, false] {
        let table = Table::new();
        let mut machine = machine(one());
        let made = first(&mut machine, &table);
        let unclear = machine.answered(Answer::Unknown(failure("TIMEOUT")));
        let now = match is_applied {
            true => table.after(&made),
            false => table.clone(),
        };
        let action = again(&mut machine, unclear, &now);
        if is_applied {
            assert_eq!(ended(action), "D");
        } else {
            let next = submission(action);
            assert_eq!((next.commit_id, next.attempt), (made.commit_id, 2));
            let late = machine.answered(Answer::Conflict(failure("CONFLICT")));
            // The first request came through after all.
            assert_eq!(ended(again(&mut machine, late, &table.after(&made))), "D");
        }
    }
}

#[test]
fn an_unclear_answer_is_asked_for_through_failing_loads() {
    let table = Table::new();
    let mut machine = machine(one());
    let made = first(&mut machine, &table);
    sleeps(machine.answered(Answer::Unknown(failure("TIMEOUT"))));
    loads(machine.slept());
    sleeps(machine.load_failed(failure("DOWN")));
    loads(machine.slept());
    assert_eq!(ended(machine.loaded(table.after(&made))), "D");
}

#[test]
fn a_refusal_blocks_unless_the_table_explains_it() {
    let table = Table::new();
    type Refusal = fn(SinkError) -> Answer<Table>;
    let refusals: [Refusal; 2] = [Answer::Refused, Answer::NotSent];
    for refusal in refusals {
        let refuse = || refusal(SinkError::fatal("REFUSED", "no"));
        let mut unmoved = machine(one());
        first(&mut unmoved, &table);
        loads(unmoved.answered(refuse()));
        assert_eq!(ended(unmoved.loaded(table.clone())), "B REFUSED");

        let mut moved = machine(one());
        let made = first(&mut moved, &table);
        loads(moved.answered(refuse()));
        let next = submission(moved.loaded(table.moved()));
        assert_eq!(next.commit_id, made.commit_id);
        // The second refusal is judged against the second base.
        loads(moved.answered(refuse()));
        assert_eq!(ended(moved.loaded(table.moved())), "B REFUSED");

        let mut applied = machine(one());
        let made = first(&mut applied, &table);
        loads(applied.answered(refuse()));
        assert_eq!(ended(applied.loaded(table.after(&made))), "D");
    }
}

#[test]
fn what_could_not_be_sent_for_now_is_built_again() {
    let table = Table::new();
    let mut machine = machine(one());
    let made = first(&mut machine, &table);
    let unsent = machine.answered(Answer::NotSent(failure("STORE_BUSY")));
    let next = submission(again(&mut machine, unsent, &table));
    assert_eq!(next.commit_id, made.commit_id);
}

#[test]
fn a_closed_door_is_tried_once_more() {
    let table = Table::new();
    let mut machine = machine(one());
    first(&mut machine, &table);
    loads(machine.answered(Answer::Unauthorized(failure("UNAUTHORIZED"))));
    assert_eq!(submission(machine.loaded(table)).attempt, 2);
    let shut = machine.answered(Answer::Unauthorized(failure("UNAUTHORIZED")));
    assert_eq!(ended(shut), "B UNAUTHORIZED");
}

/// Refuses a submission until the machine looks at the table again.
#[track_caller]
fn refuse(machine: &mut Machine, refusal: fn(SinkError) -> Answer<Table>) {
    loads(machine.answered(refusal(SinkError::fatal("REFUSED", "no"))));
}

#[test]
fn a_first_commit_that_is_refused_is_made_once_more_without_properties() {
    let table = Table::new();
    for applied in [true, false] {
        let mut machine = kept(StateLocation::Auto, one());
        let made = first(&mut machine, &table);
        assert_eq!(made.keep, Keep::Both);
        refuse(&mut machine, Answer::Refused);
        let next = submission(machine.loaded(table.clone()));
        assert_eq!((next.keep, next.commit_id), (Keep::Summary, made.commit_id));
        if applied {
            assert_eq!(
                ended(machine.answered(Answer::Committed(table.after(&next)))),
                "D"
            );
            let refused = |note: &Note| matches!(note, Note::PropertiesRefused { .. });
            assert!(machine.take_notes().iter().any(refused));
        } else {
            refuse(&mut machine, Answer::Refused);
            assert_eq!(ended(machine.loaded(table.clone())), "B REFUSED");
        }
    }
}

#[test]
fn a_right_that_only_properties_need_is_done_without() {
    let table = Table::new();
    let mut machine = kept(StateLocation::Auto, one());
    first(&mut machine, &table);
    for keep in [Keep::Both, Keep::Summary] {
        refuse(&mut machine, Answer::Unauthorized);
        assert_eq!(submission(machine.loaded(table.clone())).keep, keep);
    }
    let shut = machine.answered(Answer::Unauthorized(failure("UNAUTHORIZED")));
    assert_eq!(ended(shut), "B UNAUTHORIZED");
}

#[test]
fn properties_are_given_up_only_where_none_was_ever_stored() {
    let stored = |stored_in| {
        let mut table = Table::new().taken("here/1", 1, 0);
        table.state.as_mut().unwrap().stored_in = stored_in;
        table
    };
    use StateLocation::{Auto, Property, Summary};
    for (location, stored_in, keep) in [
        (Auto, StoredIn::Property, Keep::Property),
        (Auto, StoredIn::Summary, Keep::Summary),
        (Property, StoredIn::Nowhere, Keep::Property),
        (Property, StoredIn::Summary, Keep::Property),
        (Summary, StoredIn::Property, Keep::Summary),
    ] {
        let table = stored(stored_in);
        let mut machine = kept(location, one());
        assert_eq!(first(&mut machine, &table).keep, keep);
        refuse(&mut machine, Answer::Refused);
        assert_eq!(ended(machine.loaded(table)), "B REFUSED");
    }
    // What could not be built says nothing about the catalog.
    let table = stored(StoredIn::Nowhere);
    let mut machine = kept(Auto, one());
    assert_eq!(first(&mut machine, &table).keep, Keep::Both);
    refuse(&mut machine, Answer::NotSent);
    assert_eq!(ended(machine.loaded(table)), "B REFUSED");
}

#[test]
fn a_snapshot_without_its_state_is_not_committed_again() {
    let table = Table::new();
    let mut machine = machine(one());
    let made = first(&mut machine, &table);
    let mut stripped = table.after(&made);
    stripped.state = None;
    let action = machine.answered(Answer::Committed(stripped));
    assert_eq!(ended(action), "B STATE_NOT_STORED");
}

#[test]
fn changed_manifests_and_removed_specs_are_rejected_with_their_session() {
    let mut no_spec = of_session(3, 0, 40, 50);
    no_spec.manifests[0].manifest.partition_spec_id = 4;
    let mut machine = machine(vec![
        of_session(1, 0, 0, 10),
        of_session(1, 1, 10, 20),
        of_session(2, 0, 30, 40),
        no_spec,
    ]);
    let table = Table::new();
    loads(machine.start());
    let asked = checks(machine.loaded(table.clone()));
    assert!(!asked.contains(&3), "{asked:?}");
    let gone = RejectReason::ManifestChanged { path: "m".into() };
    let mut found = intact(&asked);
    found[0].1 = Ok(Some(gone.clone()));
    let made = submission(machine.checked(found));
    assert_eq!(made.batch, [2]);
    let done = outcomes(machine.answered(Answer::Committed(table.after(&made))));
    let reasons: Vec<Option<RejectReason>> = done
        .into_iter()
        .map(|outcome| match outcome {
            SegmentOutcome::Rejected(reason) => Some(reason),
            _ => None,
        })
        .collect();
    let no_spec = RejectReason::SpecRemoved { spec_id: 4 };
    assert_eq!(
        reasons,
        [
            Some(gone),
            Some(RejectReason::SessionRejected),
            None,
            Some(no_spec)
        ]
    );
}

#[test]
fn a_manifest_that_nobody_looked_at_is_never_committed() {
    let mut machine = machine(vec![of_session(1, 0, 0, 10), of_session(2, 0, 10, 20)]);
    loads(machine.start());
    assert_eq!(checks(machine.loaded(Table::new())), [0, 1]);
    assert_eq!(checks(machine.checked(intact(&[0]))), [1]);
    let failed = vec![(1, Err(failure("STORE_DOWN")))];
    assert_eq!(ended(machine.checked(failed)), "BB STORE_DOWN");
}

#[test]
fn the_table_decides_before_anything_is_asked_of_the_storage() {
    let mut fenced = of_session(2, 0, 10, 20);
    fenced.epoch = 0;
    let mut foreign = of_session(3, 0, 10, 20);
    foreign.table_uuid = Uuid::from_u128(8);
    let mut table = Table::new().taken("there/2", 99, 10);
    let state = table.state.as_mut().unwrap();
    (state.epoch, state.connector) = (1, "orders-sink".into());
    let mut covered = of_session(1, 0, 0, 10);
    covered.epoch = 1;
    let mut machine = machine(vec![covered, fenced, foreign]);
    loads(machine.start());
    assert_eq!(ended(machine.loaded(table)), "CFR");
}

#[test]
fn segments_go_in_the_order_of_their_numbers() {
    let mut machine = machine(vec![of_session(1, 1, 10, 20), of_session(1, 0, 0, 10)]);
    assert_eq!(first(&mut machine, &Table::new()).batch, [1, 0]);
}

#[test]
fn a_snapshot_id_that_is_taken_is_not_used() {
    let mut table = Table::new();
    table.history = (1_000..1_020).collect();
    let made = first(&mut machine(one()), &table);
    assert!(!table.history.contains(&made.snapshot_id));
}

#[test]
fn a_cancellation_ends_every_wait() {
    let table = Table::new();
    let start = || {
        let mut machine = machine(one());
        loads(machine.start());
        machine
    };
    let mut loading = start();
    let mut checking = start();
    checks(checking.loaded(table.clone()));
    let mut submitted = machine(one());
    first(&mut submitted, &table);
    let mut sleeping = start();
    sleeps(sleeping.load_failed(failure("DOWN")));
    for machine in [&mut loading, &mut checking, &mut submitted, &mut sleeping] {
        assert_eq!(ended(machine.cancelled()), "B COMMIT_CANCELLED");
        assert_eq!(ended(machine.slept()), "B COMMIT_CANCELLED", "it is over");
    }
}

#[test]
fn answers_that_nobody_asked_for_end_the_loop() {
    type Call = fn(&mut Machine) -> Action<Table>;
    let start: Call = |machine| machine.start();
    let loaded: Call = |machine| machine.loaded(Table::new());
    let load_failed: Call = |machine| machine.load_failed(failure("DOWN"));
    let checked: Call = |machine| machine.checked(intact(&[0]));
    let answered: Call = |machine| machine.answered(Answer::Committed(Table::new()));
    let slept: Call = |machine| machine.slept();
    let (to_loading, to_checking): (Call, Call) = (start, |machine| {
        loads(machine.start());
        machine.loaded(Table::new())
    });
    let cases: [(Option<Call>, &[Call]); 3] = [
        (None, &[loaded, load_failed, checked, answered, slept]),
        (Some(to_loading), &[start, checked, answered, slept]),
        (
            Some(to_checking),
            &[start, loaded, load_failed, answered, slept],
        ),
    ];
    for (before, calls) in cases {
        for call in calls {
            let mut machine = machine(one());
            if let Some(before) = before {
                before(&mut machine);
            }
            assert_eq!(ended(call(&mut machine)), "B INTERNAL");
        }
    }
}

/// Commits one segment on each table in turn and says how that ended; the watch goes on.
fn owners(one_owner: bool, tables: &[Table]) -> Vec<String> {
    let mut watch = OwnerWatch::default();
    let mut said = Vec::new();
    for (seq, table) in (0..).zip(tables) {
        let limits = CommitLimits {
            one_owner,
            ..CommitLimits::default()
        };
        let start = 1_000 + seq * 10;
        let segments = vec![of_session(1, seq as u64, start, start + 10)];
        let mut machine = machine_with(limits, segments).with_watch(watch);
        loads(machine.start());
        let action = match machine.loaded(table.clone()) {
            Action::CheckManifests(asked) => {
                let made = submission(machine.checked(intact(&asked)));
                machine.answered(Answer::Committed(table.after(&made)))
            }
            action => action,
        };
        said.push(ended(action));
        watch = machine.into_watch();
    }
    said
}

// Promise: A table that may have one committer stops with both names when a second process of the same writer commits to it too.
#[test]
fn a_second_owner_is_an_error_where_one_is_allowed() {
    let history = Table::new().taken("there/2", 1, 5);
    let once = Table::new().taken("there/2", 2, 6);
    let twice = Table::new().taken("there/2", 3, 7);
    let tables = [history, once, twice];
    assert_eq!(owners(true, &tables), ["D", "D", "B TABLE_OWNED_ELSEWHERE"]);
    assert_eq!(owners(false, &tables), ["D", "D", "D"]);
}

/// With a rule switched off, the machine does what the rule forbids.
#[cfg(feature = "mutation")]
#[path = "attempt_mutants.rs"]
mod mutants;

#[path = "attempt_remembered.rs"]
mod remembered;

#[path = "attempt_changes.rs"]
mod changes;
