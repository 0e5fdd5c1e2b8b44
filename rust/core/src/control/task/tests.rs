//! Single schedules of a task.

use super::*;
use crate::error::ErrorKind;

const TABLE: Uuid = Uuid::from_u128(70);

fn p(partition: i32) -> TopicPartition {
    TopicPartition::new("orders", partition)
}

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn settings(tables: usize) -> TaskSettings {
    TaskSettings {
        connector: "sink".to_owned(),
        owner: "connector `sink` task 0 on host-1".to_owned(),
        writer_id: "connect-sink".to_owned(),
        tables: (0..tables).map(|table| format!("db.t{table}")).collect(),
        epoch: 3,
        segments_in_flight_max: 2,
        rejections_max: 2,
        rejection_window_ms: 600_000,
        block_max_ms: 900_000,
        drain_max_ms: 3_500,
        answers_max_ms: 8_000,
        external_change: ExternalChange::Warn,
    }
}

/// A task that owns partition 0 and has loaded its tables, which are empty.
fn task(tables: usize) -> TaskMachine {
    let mut task = TaskMachine::new(settings(tables), id(1));
    task.assign(&[p(0)]);
    for table in 0..tables {
        load(&mut task, table, Held::default()).unwrap();
    }
    task
}

fn load(task: &mut TaskMachine, table: TableIndex, held: Held) -> Result<()> {
    load_as(task, table, TABLE, 3, held)
}

fn load_as(
    task: &mut TaskMachine,
    table: TableIndex,
    uuid: Uuid,
    epoch: u64,
    held: Held,
) -> Result<()> {
    let held = |_: &TopicPartition| held;
    let standing = Standing {
        uuid,
        epoch,
        held: &held,
    };
    task.table_loaded(table, &standing)
}

fn bound(bound: i64) -> Held {
    Held {
        bound: Some(bound),
        ..Held::default()
    }
}

/// Rows of all tables.
fn rows(task: &mut TaskMachine, offsets: std::ops::Range<i64>) {
    task.begins(&p(0), offsets.start);
    for table in 0..task.tables.len() {
        task.wrote(table, &p(0), (offsets.start, offsets.end - 1), None);
    }
    task.read(&p(0), (offsets.start, offsets.end - 1), None);
}

fn tick(task: &mut TaskMachine, now_ms: u64, fresh: u128) -> Option<StartOver> {
    match task.tick(now_ms, id(fresh)).unwrap() {
        Begun::Anew(start_over) => Some(start_over),
        Begun::Open => None,
        waits => panic!("it waits: {waits:?}"),
    }
}

fn is_anew(begun: Result<Begun>) -> bool {
    matches!(begun.unwrap(), Begun::Anew(_))
}

#[test]
fn a_segment_carries_epoch_claims_and_what_connect_was_told() {
    let mut task = task(1);
    assert!(task.take_commit_wanted(), "the group's offset is asked for");
    assert_eq!(task.pre_commit(&p(0), 4), Some(4));
    task.begins(&p(0), 4);
    task.wrote(0, &p(0), (4, 6), Some(10));
    task.read(&p(0), (4, 8), Some(90));
    let sealed = task.seal(0).unwrap();
    assert_eq!(task.epoch(), 3);
    assert_eq!(sealed.watermarks.get(&p(0)), Some(&4));
    assert_eq!(sealed.ranges[0].end, 9, "records without rows are claimed");
    assert_eq!(sealed.ranges[0].timestamp_max_ms, Some(90));
    assert_eq!(task.pre_commit(&p(0), 9), Some(4));
    assert!(!task.take_commit_wanted());
    assert!(task.outcome(id(1), 0, 0, Verdict::Durable));
    assert!(task.take_commit_wanted());
    assert_eq!(task.pre_commit(&p(0), 9), Some(9));
}

#[test]
fn segments_in_flight_are_limited() {
    let mut task = task(1);
    for round in 0..2 {
        rows(&mut task, round..round + 1);
        assert!(!task.is_congested(0));
        assert!(task.seal(0).is_some());
    }
    assert!(task.is_congested(0));
    rows(&mut task, 2..3);
    assert!(!task.may_seal(0));
    assert_eq!(task.seal(0), None);
    task.outcome(id(1), 0, 0, Verdict::Durable);
    assert_eq!(task.seal(0).map(|sealed| sealed.sequence), Some(2));
}

#[test]
fn nothing_is_sealed_and_no_offset_moves_before_dead_letters_are_acknowledged() {
    let mut task = task(1);
    assert_eq!(task.pre_commit(&p(0), 0), Some(0));
    rows(&mut task, 0..2);
    task.read(&p(0), (2, 2), None);
    task.set_dead_letters_pending(true);
    assert_eq!(task.seal(0), None);
    task.set_dead_letters_pending(false);
    task.seal(0).unwrap();
    task.set_dead_letters_pending(true);
    task.outcome(id(1), 0, 0, Verdict::Durable);
    assert_eq!(task.pre_commit(&p(0), 3), Some(0));
    task.set_dead_letters_pending(false);
    assert_eq!(task.pre_commit(&p(0), 3), Some(3));
}

#[test]
fn a_new_start_goes_back_to_where_dead_letters_are_not_acknowledged() {
    let mut task = task(1);
    task.begins(&p(0), 0);
    // A dead letter at 0, a row at 1.
    task.wrote(0, &p(0), (1, 1), None);
    task.read(&p(0), (0, 1), None);
    task.set_dead_letters_pending(true);
    task.failed_for_now(&SinkError::retriable("TIMED_OUT", "no answer"));
    let over = tick(&mut task, 0, 2).expect("it starts over");
    assert_eq!(over.rewinds, [(p(0), 0)]);
    assert_eq!(task.pre_commit(&p(0), 2), Some(0));
}

#[test]
fn a_rejected_session_starts_over_from_what_is_durable() {
    let mut task = task(2);
    rows(&mut task, 0..5);
    let sealed = task.seal(0).unwrap();
    task.outcome(id(1), 0, sealed.sequence, Verdict::Durable);
    task.outcome(id(1), 1, 7, Verdict::Rejected("taken".into()));
    assert_eq!(task.pre_commit(&p(0), 5), Some(0), "it stands still");
    assert_eq!(task.seal(1), None, "it is dead");
    assert!(!task.drain(0), "and not worth a wait");
    let begun = tick(&mut task, 0, 2).unwrap();
    assert_eq!((begun.ended, begun.session), (id(1), id(2)));
    assert_eq!(begun.rewinds, vec![(p(0), 0)]);
    assert_eq!(begun.reason, "taken");
    let mut intake = task.intake();
    assert!(
        !intake.run(&p(0)).is_new(5),
        "what comes before the rewind comes again"
    );
    assert_eq!(task.pre_commit(&p(0), 5), Some(0));
    assert_eq!(task.load_due(0), LoadDue::Table);
    assert_eq!(tick(&mut task, 0, 3), None);
    assert!(task.intake().run(&p(0)).is_new(0));
}

/// A task with a segment of each of two tables on its way, of which table 0 rejects its own.
fn rejected_beside_a_commit() -> TaskMachine {
    let mut task = task(2);
    rows(&mut task, 0..5);
    task.seal(0).unwrap();
    task.seal(1).unwrap();
    task.outcome(id(1), 0, 0, Verdict::Rejected("taken".into()));
    task
}

// Promise: A task that starts over first hears what becomes of its other commits, so that it does not write their rows again
#[test]
fn a_session_hears_of_its_commits_before_it_starts_over() {
    let mut task = rejected_beside_a_commit();
    assert_eq!(task.tick(100, id(2)).unwrap(), Begun::Drains);
    assert_eq!(task.tick(200, id(2)).unwrap(), Begun::Waits);
    task.begins(&p(0), 5);
    assert!(!task.intake().run(&p(0)).is_new(5), "it comes again");
    task.read(&p(0), (5, 8), None);
    task.begins(&p(1), 70);
    task.read(&p(1), (70, 71), None);
    assert_eq!(task.pre_commit(&p(0), 9), Some(0), "nothing is let go of");
    task.outcome(id(1), 1, 0, Verdict::Durable);
    let begun = tick(&mut task, 300, 3).unwrap();
    assert_eq!(begun.rewinds, vec![(p(0), 0), (p(1), 70)]);
    assert!(task.is_open());
}

#[test]
fn a_session_does_not_wait_for_ever_to_start_over() {
    let mut task = rejected_beside_a_commit();
    assert_eq!(task.tick(100, id(2)).unwrap(), Begun::Drains);
    assert_eq!(task.tick(8_099, id(2)).unwrap(), Begun::Waits);
    assert!(tick(&mut task, 8_100, 2).is_some());
    rows(&mut task, 0..5);
    task.seal(0).unwrap();
    task.outcome(id(2), 0, 0, Verdict::Expired);
    assert!(tick(&mut task, 8_200, 3).is_some(), "nothing else is out");
}

#[test]
fn of_a_lost_segment_and_those_after_it_nothing_is_waited_for() {
    let mut task = task(1);
    rows(&mut task, 0..2);
    task.seal(0).unwrap();
    rows(&mut task, 2..4);
    task.seal(0).unwrap();
    let error = SinkError::retriable("STORAGE_REFUSED", "later");
    task.seal_failed(id(1), 0, 1, &error);
    assert_eq!(task.tick(0, id(2)).unwrap(), Begun::Drains, "the first one");
    task.outcome(id(1), 0, 0, Verdict::Durable);
    assert_eq!(tick(&mut task, 0, 2).unwrap().rewinds, vec![(p(0), 2)]);
}

#[test]
fn partitions_are_not_given_up_while_a_commit_is_on_its_way() {
    let mut task = rejected_beside_a_commit();
    assert!(task.drain(1_000), "the next owner should know of it");
    assert_eq!(task.drain_left(1_500), Some(3_000));
    task.outcome(id(1), 1, 0, Verdict::Durable);
    assert_eq!(task.drain_left(1_600), None);
    assert!(!task.drain(1_700));
}

#[test]
fn rejections_of_another_writer_stop_the_task_and_name_both() {
    let mut task = task(1);
    let reject = |task: &mut TaskMachine, now_ms| {
        let session = task.session();
        let reason = "connector `twin` on `host-2/ab`".to_owned();
        task.outcome(session, 0, 0, Verdict::Rejected(reason));
        task.tick(now_ms, Uuid::from_u128(u128::from(now_ms)))
    };
    for now_ms in [1_000, 2_000, 602_500, 602_600] {
        assert!(is_anew(reject(&mut task, now_ms)));
    }
    let error = reject(&mut task, 602_700).unwrap_err();
    assert_eq!(error.code(), "WRITER_CONFLICT");
    for part in ["task 0 on host-1", "host-2/ab", "connect-sink"] {
        assert!(error.message().contains(part), "{error}");
    }
    assert_eq!(task.check().unwrap_err().code(), "WRITER_CONFLICT");
}

#[test]
fn rejections_between_rebalances_are_no_conflict() {
    let mut task = task(1);
    for now_ms in 1..20 {
        let session = task.session();
        task.outcome(session, 0, 0, Verdict::Rejected("taken".to_owned()));
        let fresh = Uuid::from_u128(u128::from(now_ms) + 100);
        assert!(is_anew(task.tick(now_ms, fresh)));
        task.revoke(&[p(0)]);
        task.assign(&[p(0)]);
    }
}

#[test]
fn records_that_a_commit_found_out_are_no_conflict() {
    let mut task = task(1);
    for round in 0..10 {
        let session = task.session();
        let reason = "no row has the values of record 7".to_owned();
        task.outcome(session, 0, 0, Verdict::SetAside(reason));
        let begun = tick(&mut task, 0, 100 + round).unwrap();
        assert!(begun.reason.contains("record 7"), "{}", begun.reason);
    }
}

// Promise: When a commit has found records that are errors, the others of their segment are committed as soon as they are read again, without another commit interval.
#[test]
fn what_a_commit_found_errors_among_is_sealed_once_it_is_read_again() {
    let mut task = task(2);
    rows(&mut task, 0..10);
    assert!(task.seal(0).is_some() && !task.hastens(0));
    let reason = "no row has the values of record 7".to_owned();
    task.outcome(id(1), 0, 0, Verdict::SetAside(reason));
    tick(&mut task, 0, 2).unwrap();
    task.tick(0, id(3)).unwrap();
    rows(&mut task, 0..9);
    assert!(!task.hastens(0), "a record is to come");
    rows(&mut task, 9..10);
    assert!(task.hastens(0) && !task.hastens(1));
    assert!(task.seal(0).is_some() && !task.hastens(0));
}

#[test]
fn records_of_partitions_that_went_are_not_waited_for() {
    let mut task = task(1);
    rows(&mut task, 0..10);
    assert!(task.seal(0).is_some());
    task.outcome(id(1), 0, 0, Verdict::SetAside("of record 7".to_owned()));
    tick(&mut task, 0, 2).unwrap();
    assert!(!task.hastens(0));
    task.revoke(&[p(0)]);
    assert!(task.hastens(0));
}

#[test]
fn expired_segments_start_over_and_are_no_conflict() {
    let mut task = task(1);
    for round in 0..10 {
        let session = task.session();
        task.outcome(session, 0, 0, Verdict::Expired);
        let begun = tick(&mut task, 0, 100 + round).unwrap();
        assert!(begun.reason.contains("too long"), "{}", begun.reason);
    }
}

#[test]
fn failures_that_do_not_pass_stop_the_task() {
    let mut task = task(1);
    let error = SinkError::retriable("STORAGE_FAILED", "try later");
    let fail = |task: &mut TaskMachine, now_ms| {
        task.seal_failed(task.session(), 0, 0, &error);
        task.tick(now_ms, Uuid::from_u128(u128::from(now_ms)))
    };
    assert!(is_anew(fail(&mut task, 5)));
    assert!(is_anew(fail(&mut task, 900_004)));
    task.outcome(task.session(), 0, 0, Verdict::Durable);
    assert!(is_anew(fail(&mut task, 900_005)), "it went on");
    let error = fail(&mut task, 1_800_005).unwrap_err();
    assert_eq!(error.code(), "SEGMENTS_FAIL");
    assert!(error.message().contains("STORAGE_FAILED"), "{error}");
}

#[test]
fn a_table_that_took_no_commit_for_too_long_stops_the_task() {
    let mut task = task(2);
    rows(&mut task, 0..3);
    task.seal(0).unwrap();
    let other = task.seal(1).unwrap();
    assert!(task.outcome(id(1), 1, other.sequence, Verdict::Durable));
    task.outcome(id(1), 0, 0, Verdict::Blocked("no right to commit".into()));
    assert_eq!(task.pre_commit(&p(0), 3), Some(0));
    let error = task.check().unwrap_err();
    assert_eq!(error.code(), "TABLE_BLOCKED");
    assert!(error.report().contains("db.t0"), "{error:?}");
}

#[test]
fn answers_for_other_sessions_count_nothing() {
    let mut task = task(1);
    rows(&mut task, 0..3);
    task.seal(0).unwrap();
    task.outcome(id(9), 0, 0, Verdict::Rejected("old".into()));
    let fatal = SinkError::fatal("TABLE_BLOCKED", "old");
    task.outcome(id(9), 0, 0, Verdict::Failed(Arc::new(fatal)));
    task.outcome(id(9), 0, 0, Verdict::Fenced { epoch: 9 });
    task.seal_failed(id(9), 0, 0, &SinkError::internal("old"));
    assert!(!task.outcome(id(9), 0, 0, Verdict::Durable));
    assert_eq!(tick(&mut task, 0, 2), None);
    assert!(task.outcome(id(1), 0, 0, Verdict::Durable));
}

#[test]
fn a_task_from_before_a_reset_stops() {
    let mut fenced = task(1);
    fenced.outcome(id(1), 0, 0, Verdict::Fenced { epoch: 4 });
    let error = fenced.tick(0, id(2)).unwrap_err();
    assert_eq!(error.code(), "WRITER_FENCED");
    assert!(error.report().contains("epoch=4"), "{error:?}");
    let mut late = TaskMachine::new(settings(1), id(1));
    late.assign(&[p(0)]);
    let error = load_as(&mut late, 0, TABLE, 4, Held::default()).unwrap_err();
    assert_eq!(error.code(), "WRITER_FENCED");
    assert!(load_as(&mut late, 0, TABLE, 3, Held::default()).is_ok());
}

#[test]
fn a_table_is_loaded_again_when_others_may_have_committed() {
    let mut task = TaskMachine::new(settings(1), id(1));
    task.assign(&[p(0)]);
    assert_eq!(task.load_due(0), LoadDue::Table);
    load(&mut task, 0, bound(5)).unwrap();
    assert_eq!(task.load_due(0), LoadDue::No);
    assert!(task.is_covered(0, &p(0), 4) && !task.is_covered(0, &p(0), 5));
    rows(&mut task, 5..7);
    task.assign(&[p(1)]);
    assert_eq!(task.load_due(0), LoadDue::Offsets, "its rows stay open");
    load(&mut task, 0, bound(30)).unwrap();
    assert_eq!(task.bound(0, &p(0)), Some(5), "as old as the open rows");
    assert_eq!(task.bound(0, &p(1)), Some(30));
    assert_eq!(task.load_due(0), LoadDue::No);
    task.table_changed(0);
    assert_eq!(task.load_due(0), LoadDue::Offsets);
    task.seal(0).unwrap();
    assert_eq!(task.load_due(0), LoadDue::Table);
}

#[test]
fn a_table_of_another_uuid_makes_the_session_start_over() {
    let mut task = task(1);
    rows(&mut task, 0..3);
    task.table_changed(0);
    let error = load_as(&mut task, 0, id(71), 0, Held::default()).unwrap_err();
    assert_eq!(
        (error.kind(), error.code()),
        (ErrorKind::Retriable, "TABLE_REPLACED")
    );
    assert_eq!(task.seal(0), None, "the other one must not get these rows");
    task.recover(error).unwrap();
    let begun = tick(&mut task, 0, 2).unwrap();
    assert_eq!(begun.rewinds, vec![(p(0), 0)]);
    assert!(load_as(&mut task, 0, id(71), 0, Held::default()).is_ok());
}

#[test]
fn an_error_with_all_rows_in_place_is_the_frameworks_to_retry() {
    let mut task = task(1);
    rows(&mut task, 0..3);
    let busy = || SinkError::retriable("CATALOG_BUSY", "later");
    assert_eq!(task.recover(busy()).unwrap_err().code(), "CATALOG_BUSY");
    task.moving(0).unwrap();
    assert_eq!(task.moving(0).unwrap_err().code(), "INTERNAL");
    assert!(!task.may_seal(0));
    task.moved(0);
    assert!(task.may_seal(0));
    task.spoil_all();
    let fatal = SinkError::fatal("DISK", "broken");
    assert_eq!(task.recover(fatal).unwrap_err().code(), "DISK");
    task.recover(busy()).unwrap();
    assert!(!task.is_open());
    let begun = tick(&mut task, 0, 2).unwrap();
    assert_eq!(begun.rewinds, vec![(p(0), 0)]);
    assert!(!task.is_spoiled(0));
}

#[test]
fn a_drain_ends_with_its_rows_or_with_its_time() {
    let mut task = task(1);
    assert!(!task.must_drain(&[p(0)]));
    rows(&mut task, 0..3);
    assert!(task.must_drain(&[p(0)]) && !task.must_drain(&[p(1)]));
    assert!(task.drain(1_000));
    task.seal(0).unwrap();
    assert_eq!(task.drain_left(1_500), Some(3_000));
    assert!(task.drain(2_000), "the wait goes on, it is not a new one");
    assert_eq!(task.drain_left(4_500), None);
    tick(&mut task, 5_000, 2);
    assert!(task.drain(5_000));
    assert_eq!(task.drain_left(5_000), Some(3_500));
    task.outcome(id(1), 0, 0, Verdict::Durable);
    assert_eq!(task.drain_left(5_000), None);
}

#[test]
fn a_failed_session_says_why_each_time_and_moves_nothing() {
    let mut task = task(1);
    assert_eq!(task.pre_commit(&p(0), 2), Some(2));
    rows(&mut task, 2..4);
    task.fail(&SinkError::data("BAD", "does not fit").with("offset", 4));
    task.fail(&SinkError::fatal("SESSION_CLOSED", "later"));
    for _ in 0..2 {
        let error = task.tick(0, id(2)).unwrap_err();
        assert_eq!(error.report(), "does not fit [BAD, offset=4]");
    }
    assert_eq!(task.seal(0), None);
    assert_eq!(task.pre_commit(&p(0), 4), Some(2));
    assert_eq!(task.pre_commit(&p(9), 4), None);
}

#[test]
fn a_replay_is_told_once_with_the_command_that_reads_again() {
    let mut task = TaskMachine::new(settings(2), id(1));
    task.assign(&[p(0)]);
    load(&mut task, 0, bound(100)).unwrap();
    load(&mut task, 1, bound(200)).unwrap();
    assert!(task.take_commit_wanted(), "the assignment's");
    task.begins(&p(0), 40);
    task.covered(0, &p(0), 40, None).unwrap();
    assert!(task.take_commit_wanted(), "what was skipped is done");
    task.covered(1, &p(0), 40, None).unwrap();
    task.covered(0, &p(0), 90, None).unwrap();
    let notices = task.take_notices();
    assert_eq!(notices.len(), 1, "{notices:?}");
    let told = notices[0].to_string();
    for part in [
        "orders-0",
        "offset 40",
        "db.t0",
        "up to 100",
        "60 records",
        "PATCH /connectors/sink/offsets",
        "\"kafka_offset\":40",
    ] {
        assert!(told.contains(part), "{part} of {told}");
    }
    assert_eq!(task.take_notices(), vec![]);
    task.revoke(&[p(0)]);
    task.assign(&[p(0)]);
    load(&mut task, 0, bound(100)).unwrap();
    task.covered(0, &p(0), 40, None).unwrap();
    assert_eq!(task.take_notices().len(), 1, "a new assignment");
}

#[test]
fn records_that_come_again_by_the_sessions_own_doing_are_no_news() {
    let mut task = task(1);
    rows(&mut task, 0..3);
    task.outcome(id(1), 0, 0, Verdict::Expired);
    tick(&mut task, 0, 2).unwrap();
    load(&mut task, 0, bound(3)).unwrap();
    task.covered(0, &p(0), 0, None).unwrap();
    assert_eq!(task.take_notices(), vec![]);
}

#[test]
fn an_offset_that_was_moved_back_can_be_made_an_error() {
    let start = |external_change, first| {
        let settings = TaskSettings {
            external_change,
            ..settings(1)
        };
        let mut task = TaskMachine::new(settings, id(1));
        task.assign(&[p(0)]);
        let held = Held {
            watermark: Some(80),
            ..bound(100)
        };
        load(&mut task, 0, held).unwrap();
        task.covered(0, &p(0), first, None)
    };
    assert!(start(ExternalChange::Warn, 10).is_ok());
    assert!(start(ExternalChange::Fail, 80).is_ok(), "as after a crash");
    let error = start(ExternalChange::Fail, 79).unwrap_err();
    assert_eq!(error.code(), "OFFSETS_MOVED");
    assert!(
        error
            .message()
            .contains("frazil.offsets.external.change=warn")
    );
    assert!(error.message().contains("\"kafka_offset\":79"));
}

#[test]
fn records_much_newer_than_the_table_at_its_offsets_are_of_another_topic() {
    let hour = 3_600_000;
    let mut task = TaskMachine::new(settings(1), id(1));
    task.assign(&[p(0)]);
    let held = Held {
        newest_ms: Some(1_000),
        ..bound(100)
    };
    load(&mut task, 0, held).unwrap();
    task.covered(0, &p(0), 0, Some(1_000 + hour)).unwrap();
    task.covered(0, &p(0), 1, None).unwrap();
    let error = task.covered(0, &p(0), 2, Some(1_001 + hour)).unwrap_err();
    assert_eq!(error.code(), "TOPIC_RECREATED");
    for part in ["frazil.writer.id", "orders-0", "offset=2"] {
        assert!(error.report().contains(part), "{error:?}");
    }
}

#[test]
fn runs_of_one_put_may_overlap() {
    let mut task = task(1);
    task.read(&p(0), (0, 5), None);
    let mut intake = task.intake();
    let mut new = |offsets: &[i64]| -> Vec<i64> {
        let mut run = intake.run(&p(0));
        offsets.iter().copied().filter(|o| run.is_new(*o)).collect()
    };
    assert_eq!(new(&[4, 5, 6, 7]), [6, 7]);
    assert_eq!(new(&[6, 7, 8, 8, 10]), [8, 10]);
}
