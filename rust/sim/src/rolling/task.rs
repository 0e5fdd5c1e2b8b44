//! A task of the rolling restart: Connect's loop, and the session around the real [`TaskMachine`].
//!
//! Every record goes to every table, so the rows of a segment are one run of offsets for each
//! partition.

use std::collections::BTreeMap;

use frazil_core::Result;
use frazil_core::control::segment::Segment;
use frazil_core::control::task::{Begun, Held, LoadDue, Standing, StartOver, TaskMachine, Verdict};
use frazil_core::control::writer::Sealed;
use uuid::Uuid;

use super::tables::{Rows, manifest, path};
use super::world::{BRANCH, Event, World};
use super::{group, hub};

/// The number of a task's incarnation.
pub(super) type RunId = usize;

/// Connect's `offset.flush.interval.ms`.
const COMMIT_MS: u64 = 60_000;
/// The longest and the shortest time between two ticks, and that of a task that waits for answers.
const TICK_MS: (u64, u64, u64) = (500, 20, 50);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    /// It gives up its partitions and waits for their commits.
    Closing,
    Gone,
}

/// The rows of an open segment.
#[derive(Debug, Default)]
struct OpenTable {
    opened_ms: Option<u64>,
    rows: BTreeMap<usize, (i64, i64)>,
}

/// A task that runs.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) id: RunId,
    pub(super) task: usize,
    pub(super) process: usize,
    machine: TaskMachine,
    open: Vec<OpenTable>,
    pub(super) inbox: Vec<(Uuid, usize, u64, Verdict)>,
    phase: Phase,
    stop: bool,
    failed: bool,
    rebalance: bool,
    /// Where each partition is read next, and up to where it was delivered.
    position: BTreeMap<usize, i64>,
    delivered: BTreeMap<usize, i64>,
    first_seen: BTreeMap<usize, i64>,
    rewinds: BTreeMap<usize, i64>,
    commit_at_ms: u64,
    /// How long the last put waited for the catalog.
    waited_ms: u64,
}

impl Run {
    /// Tells whether it is over.
    pub(super) fn is_gone(&self) -> bool {
        self.phase == Phase::Gone
    }

    /// Tells whether it waits for its last commits.
    pub(super) fn is_draining(&self) -> bool {
        self.phase == Phase::Closing
    }

    /// Tells whether it failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Its group rebalances: it gives up its partitions in the next poll.
    pub(super) fn hear_of_rebalance(&mut self) {
        self.rebalance = true;
    }

    /// Connect stops it: it ends with its next poll.
    pub(super) fn stop(&mut self) {
        self.stop = true;
    }
}

/// Starts task `task` on a process.
pub(super) fn start(w: &mut World, task: usize, process: usize) {
    let id = w.runs.len();
    w.runs.push(None);
    hub::task_joins(w, process);
    // The preflight looks at every table.
    w.counts.task_loads += w.tables.len() as u64;
    let session = w.begin_session(id);
    hub::join(w, process, session, task);
    let tables = w.tables.len();
    w.runs[id] = Some(Box::new(Run {
        id,
        task,
        process,
        machine: TaskMachine::new(super::task_settings(task, process, tables), session),
        open: (0..tables).map(|_| OpenTable::default()).collect(),
        inbox: Vec::new(),
        phase: Phase::Running,
        stop: false,
        failed: false,
        rebalance: false,
        position: BTreeMap::new(),
        delivered: BTreeMap::new(),
        first_seen: BTreeMap::new(),
        rewinds: BTreeMap::new(),
        commit_at_ms: w.now_ms + COMMIT_MS,
        waited_ms: 0,
    }));
    group::join(w, id, task);
    w.after(0, Event::Loop(id));
}

/// Partitions come.
pub(super) fn assign(w: &mut World, run: &mut Run, partitions: Vec<usize>) {
    run.rebalance = false;
    for partition in &partitions {
        let offset = w.group.committed[*partition];
        run.position.insert(*partition, offset);
        run.delivered.insert(*partition, offset);
    }
    let named: Vec<_> = partitions
        .iter()
        .map(|p| w.partitions[*p].clone())
        .collect();
    run.machine.assign(&named);
}

/// Makes one turn of the loop.
pub(super) fn iterate(w: &mut World, run: &mut Run) {
    if run.phase != Phase::Running {
        return;
    }
    if run.stop || run.rebalance {
        commit_offsets(w, run);
        return begin_close(w, run);
    }
    let wanted = run.machine.take_commit_wanted();
    if wanted || w.now_ms >= run.commit_at_ms {
        run.commit_at_ms = w.now_ms + COMMIT_MS;
        commit_offsets(w, run);
    }
    run.waited_ms = 0;
    if put(w, run).is_err() {
        w.counts.failures += 1;
        run.failed = true;
        return gone(w, run);
    }
    let pause_ms = pause_ms(w, run) + run.waited_ms;
    w.after(pause_ms, Event::Loop(run.id));
}

/// Returns how long the next poll waits: for a record, or until the session wants a tick.
fn pause_ms(w: &World, run: &Run) -> u64 {
    let (longest, shortest, waiting) = TICK_MS;
    if !run.machine.is_open() {
        return waiting;
    }
    let is_open = (0..run.open.len()).any(|table| run.machine.progress().has_open(table));
    let interval_ms = w.size.interval_ms;
    let tick = match is_open {
        true => interval_ms - w.clock(run.process) % interval_ms,
        false => longest,
    };
    let records = run.position.iter();
    let record = records.map(|(partition, next)| World::written_ms(*partition, *next));
    let record = record.min().unwrap_or(u64::MAX).saturating_sub(w.now_ms);
    tick.min(record).clamp(shortest, longest)
}

/// One poll and the put after it.
fn put(w: &mut World, run: &mut Run) -> Result<()> {
    for (partition, offset) in std::mem::take(&mut run.rewinds) {
        if let Some(position) = run.position.get_mut(&partition) {
            *position = offset;
            run.delivered.insert(partition, offset);
        }
    }
    // A session that starts over has its partitions paused.
    let batch = match run.machine.is_open() {
        true => fetch(w, run),
        false => Vec::new(),
    };
    for (partition, first, _) in &batch {
        run.first_seen.entry(*partition).or_insert(*first);
    }
    drain_inbox(run);
    let (now_ms, fresh) = (w.clock(run.process), w.fresh_session());
    match run.machine.tick(now_ms, fresh)? {
        Begun::Open => seal_what_is_due(w, run, now_ms),
        Begun::Drains => hub::drain(w, run.process, run.machine.session()),
        Begun::Waits => {}
        Begun::Anew(over) => start_over(w, run, over),
    }
    if !run.rewinds.is_empty() {
        // Nothing more of the batch is delivered: its partitions are rewound to it too.
        for (partition, first, _) in batch {
            run.rewinds.entry(partition).or_insert(first);
        }
        return Ok(());
    }
    for rows in &batch {
        run.machine.begins(&w.partitions[rows.0], rows.1);
    }
    for (partition, first, last) in batch {
        if run.machine.is_open() {
            take(w, run, (partition, first, last))?;
            let newest = World::written_ms(partition, last) as i64;
            let name = &w.partitions[partition];
            run.machine.read(name, (first, last), Some(newest));
        }
        run.delivered.insert(partition, last + 1);
    }
    Ok(())
}

fn fetch(w: &World, run: &mut Run) -> Vec<Rows> {
    let mut batch = Vec::new();
    for (partition, position) in &mut run.position {
        let end = w.log_end(*partition);
        if *position < end {
            batch.push((*partition, *position, end - 1));
            *position = end;
        }
    }
    batch
}

/// Takes records in, all of which go to each table.
fn take(w: &mut World, run: &mut Run, (partition, first, last): Rows) -> Result<()> {
    let name = w.partitions[partition].clone();
    let next = run.machine.progress().next(&name).unwrap_or(first);
    let fresh = first.max(next);
    if fresh > last {
        return Ok(());
    }
    for table in 0..run.open.len() {
        prepare(w, run, table)?;
    }
    for table in 0..run.open.len() {
        append(w, run, table, (partition, fresh, last))?;
    }
    Ok(())
}

/// Loads the table when its offsets are not known, or may be old.
fn prepare(w: &mut World, run: &mut Run, table: usize) -> Result<()> {
    if run.machine.load_due(table) == LoadDue::No {
        return Ok(());
    }
    w.counts.task_loads += 1;
    run.waited_ms += w.draw(w.pace.load);
    let view = w.tables[table].load();
    let state = view.state();
    let held = |partition: &_| Held {
        bound: state.and_then(|state| state.bound(partition)),
        ..Held::default()
    };
    let standing = Standing {
        uuid: frazil_core::commit::view::TableView::uuid(&view),
        epoch: 0,
        held: &held,
    };
    run.machine.table_loaded(table, &standing)
}

fn append(w: &mut World, run: &mut Run, table: usize, rows: Rows) -> Result<()> {
    let (partition, mut first, last) = rows;
    let name = &w.partitions[partition];
    let bound = run.machine.bound(table, name).unwrap_or(0);
    if first < bound {
        let oldest = World::written_ms(partition, first) as i64;
        run.machine.covered(table, name, first, Some(oldest))?;
        run.machine.take_notices();
        first = bound;
    }
    if first > last {
        return Ok(());
    }
    let newest = World::written_ms(partition, last) as i64;
    run.machine.wrote(table, name, (first, last), Some(newest));
    let open = &mut run.open[table];
    let known = open.rows.entry(partition).or_insert((first, last));
    known.1 = last;
    if open.opened_ms.is_none() {
        let now_ms = w.clock(run.process);
        open.opened_ms = Some(now_ms);
        let seq = run.machine.progress().next_sequence(table);
        let session = run.machine.session();
        hub::opened(w, run.process, table, (session, seq), now_ms);
    }
    Ok(())
}

fn seal_what_is_due(w: &mut World, run: &mut Run, now_ms: u64) {
    let round = now_ms / w.size.interval_ms;
    for table in 0..run.open.len() {
        let opened_ms = run.open[table].opened_ms;
        let due = opened_ms.is_some_and(|opened_ms| opened_ms / w.size.interval_ms < round);
        if due && run.machine.may_seal(table) {
            seal(w, run, table, false);
        }
    }
}

/// Makes a segment of the open rows and uploads it.
fn seal(w: &mut World, run: &mut Run, table: usize, urgent: bool) {
    let Some(sealed) = run.machine.seal(table) else {
        return;
    };
    let open = std::mem::take(&mut run.open[table]);
    let rows: Vec<Rows> = open
        .rows
        .into_iter()
        .map(|(partition, (first, last))| (partition, first, last))
        .collect();
    w.counts.segments += 1;
    let urgent = urgent || run.machine.is_congested(table);
    let segment = segment(w, run, table, sealed, &rows);
    let in_ms = w.draw(w.pace.upload) + w.draw(w.pace.store);
    let at = w.at(run.process);
    w.after(in_ms, Event::Uploaded(at, Box::new(segment), urgent));
}

fn segment(w: &World, run: &Run, table: usize, sealed: Sealed, rows: &[Rows]) -> Segment {
    let count = rows.iter().map(|rows| rows.2 - rows.1 + 1).sum::<i64>();
    let count = count.unsigned_abs();
    let path = path(table, sealed.session, sealed.sequence, rows);
    Segment {
        session: sealed.session,
        seq: sealed.sequence,
        first_unacked: sealed.first_unacked,
        epoch: run.machine.epoch(),
        table: w.idents[table].clone(),
        table_uuid: frazil_core::commit::view::TableView::uuid(&w.tables[table].load()),
        branch: BRANCH.to_owned(),
        ranges: sealed.ranges,
        watermarks: sealed.watermarks,
        topic_ids: BTreeMap::new(),
        manifests: vec![manifest(path, count)],
        key_run: None,
        rows: count,
        bytes: count * 100,
    }
}

fn start_over(w: &mut World, run: &mut Run, over: StartOver) {
    w.counts.start_overs += 1;
    w.sessions.remove(&over.ended);
    hub::leave(w, run.process, over.ended);
    let session = w.begin_session(run.id);
    hub::join(w, run.process, session, run.task);
    for table in &mut run.open {
        *table = OpenTable::default();
    }
    for (partition, offset) in over.rewinds {
        run.rewinds
            .insert(usize::try_from(partition.partition).unwrap_or(0), offset);
    }
}

fn drain_inbox(run: &mut Run) {
    for (session, table, seq, verdict) in std::mem::take(&mut run.inbox) {
        run.machine.outcome(session, table, seq, verdict);
    }
}

/// Connect asks for offsets and commits them. While a rewind is pending they stand still.
fn commit_offsets(w: &mut World, run: &mut Run) {
    if !run.rewinds.is_empty() {
        return;
    }
    drain_inbox(run);
    for (partition, asked) in &run.delivered {
        let answer = run.machine.pre_commit(&w.partitions[*partition], *asked);
        let known = answer.or(run.first_seen.get(partition).copied());
        let offset = known.unwrap_or(*asked).min(*asked);
        w.group.committed[*partition] = offset;
    }
}

/// Gives all partitions up, once their rows are committed or a while has passed.
fn begin_close(w: &mut World, run: &mut Run) {
    run.phase = Phase::Closing;
    drain_inbox(run);
    let named: Vec<_> = run
        .position
        .keys()
        .map(|p| w.partitions[*p].clone())
        .collect();
    if run.machine.must_drain(&named) && run.machine.drain(w.clock(run.process)) {
        hub::drain(w, run.process, run.machine.session());
        for table in 0..run.open.len() {
            if run.machine.may_seal(table) {
                seal(w, run, table, true);
            }
        }
    }
    drained(w, run);
}

/// Looks whether a task that gives its partitions up has to wait still.
pub(super) fn drained(w: &mut World, run: &mut Run) {
    if run.phase != Phase::Closing {
        return;
    }
    drain_inbox(run);
    if let Some(left_ms) = run.machine.drain_left(w.clock(run.process)) {
        return w.after(left_ms, Event::Drained(run.id));
    }
    let named: Vec<_> = run
        .position
        .keys()
        .map(|p| w.partitions[*p].clone())
        .collect();
    run.machine.revoke(&named);
    run.position.clear();
    run.delivered.clear();
    run.first_seen.clear();
    run.rewinds.clear();
    if run.stop {
        return gone(w, run);
    }
    run.phase = Phase::Running;
    run.rebalance = false;
    group::rejoin(w, run.id);
    w.after(0, Event::Loop(run.id));
}

fn gone(w: &mut World, run: &mut Run) {
    run.phase = Phase::Gone;
    hub::leave(w, run.process, run.machine.session());
    hub::task_leaves(w, run.process);
    group::leave(w, run.id);
}
