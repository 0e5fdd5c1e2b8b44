//! The native half of a task: what the engine's session does around the [`TaskMachine`], with bits
//! for rows and a list of uploads for the object store.

use std::collections::BTreeMap;

use frazil_core::commit::view::TableView;
use frazil_core::control::segment::{FileCounts, SealedManifest, Segment};
use frazil_core::control::task::{
    Begun, Held, LoadDue, Standing, StartOver, TaskMachine, TaskSettings, Verdict,
};
use frazil_core::control::writer::Sealed;
use frazil_core::offsets::SourceRange;
use frazil_core::{Result, SinkError, limits};
use iceberg::spec::{FieldSummary, ManifestContentType, ManifestFile};

use crate::catalog::{View, not_found};
use crate::check::File;
use crate::names::{CANARY, WID, session_id, session_index};
use crate::run::Run;
use crate::say;
use crate::swarm::{BRANCHES, Bits, DEAD_LETTER, FILTERED, NO_RECORD, PARTITIONS, TABLES};
use crate::wire;
use crate::world::{Io, World};

/// A table that a task writes, and the rows of its open segment.
#[derive(Debug, Default)]
pub(crate) struct OpenTable {
    pub(crate) rows: [Bits; PARTITIONS],
    count: u32,
    opened_ms: Option<u64>,
    view: Option<View>,
}

/// What reaches a session from its process.
#[derive(Debug)]
pub(crate) enum Inbound {
    Outcome {
        session: usize,
        table: usize,
        seq: u64,
        verdict: Verdict,
    },
    SealFailed {
        session: usize,
        table: usize,
        seq: u64,
    },
}

/// What the session asks of Java.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) rewinds: Vec<(usize, i64)>,
    pub(crate) durable: Vec<(usize, i64)>,
    pub(crate) rejected: Vec<(usize, i64)>,
    pub(crate) request_commit: bool,
}

/// The records of one partition in a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    pub(crate) partition: usize,
    pub(crate) from: i64,
    pub(crate) to: i64,
}

/// Returns the settings of a task that begins in epoch `epoch`.
pub(crate) fn settings(w: &World, process: usize, task: usize, epoch: u64) -> TaskSettings {
    TaskSettings {
        connector: "sim".to_owned(),
        owner: format!("sim task {task} on host {process}"),
        writer_id: "sim".to_owned(),
        tables: (0..w.plan.tables.len())
            .map(|table| format!("db.t{table}"))
            .collect(),
        epoch,
        segments_in_flight_max: limits::SEGMENTS_IN_FLIGHT_MAX,
        rejections_max: 5,
        rejection_window_ms: 600_000,
        block_max_ms: 900_000,
        drain_max_ms: 3_500,
        answers_max_ms: 8_000,
        external_change: Default::default(),
    }
}

/// A put begins: starts over, or seals what is due.
pub(crate) fn tick(w: &mut World, run: &mut Run) -> Result<Effects> {
    native_call(run);
    drain_inbox(w, run);
    let now_ms = w.clock(run.process);
    let fresh = session_id(w.next_session());
    match run.machine.tick(now_ms, fresh)? {
        Begun::Open => {
            if let Err(error) = seal_what_is_due(w, run, now_ms) {
                return recover(run, error);
            }
        }
        Begun::Drains => {
            let session = run.machine.session();
            (0..w.plan.tables.len()).for_each(|table| w.drain(run.process, table, session));
        }
        Begun::Waits => {}
        Begun::Anew(over) => return Ok(started_over(w, run, over)),
    }
    Ok(finish(run, Effects::default()))
}

/// Takes the records of a frame in.
pub(crate) fn put(w: &mut World, run: &mut Run, block: Block) -> Result<Effects> {
    native_call(run);
    run.machine.check()?;
    let partition = w.names.partitions[block.partition].clone();
    let records = w.records(block);
    if records == 0 {
        return Ok(Effects::default());
    }
    let (first, last) = (
        i64::from(records.trailing_zeros()),
        i64::from(records.ilog2()),
    );
    run.machine.begins(&partition, first);
    let mut effects = Effects::default();
    if !run.machine.is_open() {
        return Ok(finish(run, effects));
    }
    if let Err(error) = take(w, run, block.partition, records, &mut effects) {
        return recover(run, error);
    }
    say!(
        w,
        "task {} reads p{} from {first} to {last}",
        run.id,
        block.partition
    );
    let newest = w.timestamp(block.partition, last);
    run.machine.read(&partition, (first, last), Some(newest));
    run.machine
        .set_dead_letters_pending(!effects.rejected.is_empty());
    Ok(finish(run, effects))
}

fn take(
    w: &mut World,
    run: &mut Run,
    index: usize,
    records: Bits,
    effects: &mut Effects,
) -> Result<()> {
    let partition = w.names.partitions[index].clone();
    let mut fresh: Bits = 0;
    {
        let mut intake = run.machine.intake();
        let mut intake = intake.run(&partition);
        let mut left = records;
        while left != 0 {
            let offset = left.trailing_zeros();
            left &= left - 1;
            fresh |= Bits::from(intake.is_new(i64::from(offset))) << offset;
        }
    }
    let mut rows: [Bits; TABLES] = [0; TABLES];
    let mut left = fresh;
    while left != 0 {
        let offset = left.trailing_zeros();
        left &= left - 1;
        match w.route(run.config, index, offset as usize) {
            DEAD_LETTER => effects.rejected.push((index, i64::from(offset))),
            route => {
                for (table, rows) in rows.iter_mut().enumerate() {
                    *rows |= Bits::from(route >> table & 1) << offset;
                }
            }
        }
    }
    for table in (0..w.plan.tables.len()).filter(|table| rows[*table] != 0) {
        prepare(w, run, table)?;
    }
    for table in (0..w.plan.tables.len()).filter(|table| rows[*table] != 0) {
        if w.faulty() && w.rng.chance(w.plan.chances.upload_fails / 4) {
            // One table may have rows of the frame that another has not.
            run.machine.spoil_all();
            return Err(SinkError::retriable("STORE_FAILED", "a write failed"));
        }
        append(w, run, table, index, rows[table])?;
    }
    Ok(())
}

/// Loads the table when its offsets are not known, or may be old.
fn prepare(w: &mut World, run: &mut Run, table: usize) -> Result<()> {
    let due = run.machine.load_due(table);
    if due == LoadDue::No {
        return Ok(());
    }
    let view = load(w, table)?;
    let view = match view {
        Some(view) => view,
        None if due == LoadDue::Offsets => {
            return Err(run.machine.replaced(table, "it was dropped"));
        }
        None => return Err(not_found()),
    };
    let branch = w.plan.tables[table].branch;
    let state = view.writer_state(WID, BRANCHES[branch])?;
    let epoch = state.as_ref().map_or(0, |state| state.epoch);
    let held = |partition: &_| Held {
        bound: state.as_ref().and_then(|state| state.bound(partition)),
        ..Held::default()
    };
    let standing = Standing {
        uuid: view.uuid(),
        epoch,
        held: &held,
    };
    run.machine.table_loaded(table, &standing)?;
    if due == LoadDue::Table {
        run.tables[table].view = Some(view);
    }
    Ok(())
}

/// Loads a table on the task's thread; one that does not exist may be created by somebody soon.
fn load(w: &mut World, table: usize) -> Result<Option<View>> {
    w.dispatched();
    if w.faulty() && w.rng.chance(w.plan.chances.load_fails) {
        return Err(SinkError::retriable("CATALOG_UNREACHABLE", "no answer"));
    }
    if w.faulty() && w.rng.chance(w.plan.chances.load_stale) {
        return Ok(w.catalog.load_stale(table).cloned());
    }
    match w.catalog.load(table) {
        Some(view) => Ok(Some(view.clone())),
        // The real error is of kind `Config` and stops the task; an operator starts it again.
        None if w.rng.chance(900) => Err(SinkError::retriable("CATALOG_UNREACHABLE", "no answer")),
        None => Ok(None),
    }
}

fn append(w: &mut World, run: &mut Run, table: usize, index: usize, rows: Bits) -> Result<()> {
    let partition = w.names.partitions[index].clone();
    let bound = run.machine.bound(table, &partition).unwrap_or(0);
    let covered = rows & crate::swarm::below(bound);
    if covered != 0 {
        let first = i64::from(covered.trailing_zeros());
        let oldest = w.timestamp(index, first);
        run.machine
            .covered(table, &partition, first, Some(oldest))?;
        run.machine.take_notices();
    }
    let rows = rows & !covered;
    if rows == 0 {
        return Ok(());
    }
    let span = (i64::from(rows.trailing_zeros()), i64::from(rows.ilog2()));
    let newest = w.timestamp(index, span.1);
    run.machine.wrote(table, &partition, span, Some(newest));
    let now_ms = w.clock(run.process);
    let open = &mut run.tables[table];
    open.rows[index] |= rows;
    open.count += rows.count_ones();
    if open.opened_ms.is_none() {
        open.opened_ms = Some(now_ms);
        let seq = run.machine.progress().next_sequence(table);
        w.opened(run.process, table, (run.machine.session(), seq), now_ms);
    }
    Ok(())
}

fn seal_what_is_due(w: &mut World, run: &mut Run, now_ms: u64) -> Result<()> {
    for table in 0..w.plan.tables.len() {
        let plan = w.plan.tables[table];
        let open = &run.tables[table];
        let Some(opened_ms) = open.opened_ms else {
            continue;
        };
        let full = open.count >= plan.rows_max;
        let due = opened_ms / plan.interval_ms < now_ms / plan.interval_ms || full;
        if due && run.machine.is_congested(table) {
            let session = run.machine.session();
            w.drain(run.process, table, session);
        }
        if due && run.machine.may_seal(table) {
            seal(w, run, table, full)?;
        }
    }
    Ok(())
}

/// Makes a segment of the open rows and uploads it.
fn seal(w: &mut World, run: &mut Run, table: usize, urgent: bool) -> Result<()> {
    run.machine.moving(table)?;
    if w.faulty() && w.rng.chance(w.plan.chances.upload_fails / 2) {
        return Err(SinkError::retriable("STORE_FAILED", "a write failed"));
    }
    run.machine.moved(table);
    let Some(sealed) = run.machine.seal(table) else {
        return Ok(());
    };
    if run.machine.progress().unacked(table) > limits::SEGMENTS_IN_FLIGHT_MAX {
        w.ledger.violated(
            "S14",
            format!("table {table}: too many segments on their way"),
        );
    }
    let now_ms = w.clock(run.process);
    let open = std::mem::take(&mut run.tables[table]);
    let view = open.view.clone();
    run.tables[table].view = open.view;
    let Some(view) = view else {
        return Err(SinkError::internal("rows are open in a table that is not"));
    };
    let file = add_file(w, run, table, &sealed, open.rows, now_ms);
    let segment = segment(w, run, (table, file), sealed, &view);
    say!(
        w,
        "task {} seals t{table} {:?} as file {file} seq {}",
        run.id,
        open.rows,
        segment.seq
    );
    w.io.push(Io {
        process: run.process,
        hub: w.hub_id(run.process),
        file,
        segment,
        urgent,
    });
    Ok(())
}

fn add_file(
    w: &mut World,
    run: &Run,
    table: usize,
    sealed: &Sealed,
    rows: [Bits; PARTITIONS],
    now_ms: u64,
) -> usize {
    let session = session_index(sealed.session);
    let mut file = File {
        table,
        epoch: run.machine.epoch(),
        config: run.config,
        rows,
        written_ms: now_ms,
        ..File::default()
    };
    for range in &sealed.ranges {
        if let Some(partition) = w.names.partition(&range.partition) {
            file.ends[partition] = range.end;
        }
    }
    w.files.push(file);
    let index = w.files.len() - 1;
    w.sessions[session].files[table].push(index);
    index
}

fn segment(
    w: &mut World,
    run: &Run,
    (table, file): (usize, usize),
    sealed: Sealed,
    view: &View,
) -> Segment {
    let mut ranges = sealed.ranges;
    if w.plan.idle_claims {
        idle_claims(w, run, &mut ranges);
    }
    let rows: u64 = w.files[file]
        .rows
        .iter()
        .map(|rows| u64::from(rows.count_ones()))
        .sum();
    let mut manifests = vec![manifest(file, view.spec(), rows, false)];
    if w.plan.tables[table].upsert {
        manifests.push(manifest(file, view.spec(), rows, true));
    }
    Segment {
        session: sealed.session,
        seq: sealed.sequence,
        first_unacked: sealed.first_unacked,
        epoch: run.machine.epoch(),
        table: w.names.tables[table].clone(),
        table_uuid: view.uuid(),
        branch: BRANCHES[w.plan.tables[table].branch].to_owned(),
        ranges,
        watermarks: sealed.watermarks,
        topic_ids: BTreeMap::new(),
        manifests,
        key_run: None,
        rows,
        bytes: rows * 10,
    }
}

/// Adds the claims of partitions that were read and have no rows: a writer may make them, and they
/// must not move T (R3).
fn idle_claims(w: &World, run: &Run, ranges: &mut Vec<SourceRange>) {
    for partition in &w.names.partitions[..w.plan.partitions] {
        let next = run.machine.progress().next(partition);
        if let Some(end) = next
            && !ranges.iter().any(|range| range.partition == *partition)
        {
            ranges.push(SourceRange {
                partition: partition.clone(),
                start: None,
                end,
                lowest: None,
                timestamp_max_ms: None,
            });
        }
    }
    ranges.sort_by(|a, b| a.partition.cmp(&b.partition));
}

/// Makes the manifest of a file. Its bounds are the only place where a value could be.
pub(crate) fn manifest(file: usize, spec: i32, rows: u64, deletes: bool) -> SealedManifest {
    let kind = if deletes { "d" } else { "m" };
    let mut counts = FileCounts {
        bytes: rows * 10,
        ..FileCounts::default()
    };
    if deletes {
        (counts.equality_delete_files, counts.equality_deletes) = (1, rows);
    } else {
        (counts.data_files, counts.records) = (1, rows);
    }
    SealedManifest {
        manifest: ManifestFile {
            manifest_path: format!("mem:/t/metadata/{file}-{kind}.avro"),
            manifest_length: 100 + file as i64,
            partition_spec_id: spec,
            content: match deletes {
                true => ManifestContentType::Deletes,
                false => ManifestContentType::Data,
            },
            sequence_number: -1,
            min_sequence_number: -1,
            added_snapshot_id: -1,
            added_files_count: Some(1),
            existing_files_count: Some(0),
            deleted_files_count: Some(0),
            added_rows_count: Some(rows),
            existing_rows_count: Some(0),
            deleted_rows_count: Some(0),
            partitions: Some(vec![FieldSummary {
                contains_null: false,
                contains_nan: None,
                lower_bound: Some(CANARY.as_bytes().to_vec().into()),
                upper_bound: Some(CANARY.as_bytes().to_vec().into()),
            }]),
            key_metadata: None,
            first_row_id: None,
        },
        counts,
        partitions: [0].into(),
        sha256: [0; 32],
    }
}

fn recover(run: &mut Run, error: SinkError) -> Result<Effects> {
    match run.machine.recover(error) {
        Ok(()) => Ok(finish(run, Effects::default())),
        Err(error) => {
            if error.kind() != frazil_core::ErrorKind::Retriable {
                run.machine.fail(&error);
            }
            Err(error)
        }
    }
}

fn started_over(w: &mut World, run: &mut Run, over: StartOver) -> Effects {
    say!(
        w,
        "task {} starts over: {} rewinds {:?}",
        run.id,
        over.reason,
        over.rewinds
    );
    w.redone += 1;
    leave(w, run, session_index(over.ended));
    w.new_session_of(run.id);
    let session = run.machine.session();
    wire::join(w, run.process, session, (run.task, run.machine.epoch()));
    for table in &mut run.tables {
        *table = OpenTable::default();
    }
    let mut effects = Effects::default();
    for (partition, offset) in over.rewinds {
        if let Some(index) = w.names.partition(&partition) {
            effects.rewinds.push((index, offset));
        }
    }
    finish(run, effects)
}

/// The coordinator forgets the session; a writer that broke R10 would delete its files now.
fn leave(w: &mut World, run: &Run, session: usize) {
    w.leave(run.process, session_id(session));
    if w.switches.deletes_files {
        for table in 0..TABLES {
            for index in w.sessions[session].files[table].clone() {
                w.files[index].gone |= w.files[index].committed.is_none();
            }
        }
    }
}

fn finish(run: &mut Run, mut effects: Effects) -> Effects {
    effects.request_commit = run.machine.take_commit_wanted();
    effects
}

/// Java calls only when all dead letters are acknowledged, or else says that some are not.
fn native_call(run: &mut Run) {
    let pending = run.letters.iter().any(|letters| *letters != 0);
    run.machine.set_dead_letters_pending(pending);
}

pub(crate) fn drain_inbox(w: &mut World, run: &mut Run) {
    for inbound in std::mem::take(&mut run.inbox) {
        match inbound {
            Inbound::Outcome {
                session,
                table,
                seq,
                verdict,
            } => {
                if matches!(verdict, Verdict::Rejected(_) | Verdict::Expired) {
                    w.rejected += 1;
                }
                let counts = run
                    .machine
                    .outcome(session_id(session), table, seq, verdict);
                if counts {
                    let current = session_index(run.machine.session());
                    w.ledger.counted((session, current), table, seq);
                }
            }
            Inbound::SealFailed {
                session,
                table,
                seq,
            } => {
                let error = SinkError::retriable("STORE_FAILED", "an upload failed");
                let session = session_id(session);
                run.machine.seal_failed(session, table, seq, &error);
            }
        }
    }
}

/// Partitions come.
pub(crate) fn assign(w: &mut World, run: &mut Run, mask: u8) -> Effects {
    native_call(run);
    run.machine.assign(&w.partitions(mask));
    finish(run, Effects::default())
}

/// Partitions go. Returns whether to wait for their commits first.
pub(crate) fn begin_drain(w: &mut World, run: &mut Run, mask: Option<u8>) -> bool {
    native_call(run);
    drain_inbox(w, run);
    let needed = match mask {
        Some(mask) => run.machine.must_drain(&w.partitions(mask)),
        None => true,
    };
    let now_ms = w.clock(run.process);
    if !needed || !run.machine.drain(now_ms) {
        return false;
    }
    for table in 0..w.plan.tables.len() {
        if run.machine.may_seal(table)
            && let Err(error) = seal(w, run, table, true)
        {
            run.machine.failed_for_now(&error);
            return false;
        }
        let session = run.machine.session();
        w.drain(run.process, table, session);
    }
    true
}

/// Partitions went without a farewell, or after one.
pub(crate) fn revoked(w: &mut World, run: &mut Run, mask: u8, lost: bool) {
    let partitions = w.partitions(mask);
    match lost {
        true => run.machine.lost(&partitions),
        false => run.machine.revoke(&partitions),
    }
}

/// Connect asks for offsets.
pub(crate) fn pre_commit(w: &mut World, run: &mut Run, asked: &[(usize, i64)]) -> Effects {
    native_call(run);
    drain_inbox(w, run);
    let mut effects = Effects::default();
    for (partition, asked) in asked {
        let durable = run
            .machine
            .pre_commit(&w.names.partitions[*partition], *asked);
        effects
            .durable
            .extend(durable.map(|durable| (*partition, durable)));
    }
    finish(run, effects)
}

/// The task is gone, in good order or not.
pub(crate) fn close(w: &mut World, run: &Run) {
    leave(w, run, session_index(run.machine.session()));
}

/// Makes the machine of a task.
pub(crate) fn machine(w: &World, at: (usize, usize), epoch: u64, session: usize) -> TaskMachine {
    TaskMachine::new(settings(w, at.0, at.1, epoch), session_id(session))
}

/// Offsets without a record for the task.
pub(crate) const UNSEEN: u8 = FILTERED | NO_RECORD;
