//! One incarnation of a task: the framework's loop around it and the Java half, `Delivery`.
//!
//! The loop is Connect's `WorkerSinkTask`: offsets are committed first, a rewind is done in the poll
//! after that (C23), a batch that came back with `RetriableException` is delivered again as it was.
//! A call is one step, so that anything may happen to others between two of them.

use frazil_core::ErrorKind;
use frazil_core::SinkError;
use frazil_core::control::task::TaskMachine;

use crate::group::RunId;
use crate::native::{self, Block, Effects, Inbound, OpenTable};
use crate::say;
use crate::swarm::{Bits, PARTITIONS, TABLES};
use crate::world::World;

/// Where the loop stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Before the next iteration.
    Idle,
    /// In `put`, before its tick.
    Put,
    /// In `put`, before this block.
    Deliver(usize),
    /// In `put`: dead letters of the block before are not acknowledged yet.
    AwaitLetters(usize),
    /// In `close` of these partitions, which waits for their commits.
    Closing(u8),
    /// In `stop`, which waits for the last commits.
    Stopping,
}

/// What became of the incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Alive,
    Gone,
}

/// The books of `Delivery`.
#[derive(Debug, Default)]
struct Delivery {
    durable: [Option<i64>; PARTITIONS],
    first_seen: [Option<i64>; PARTITIONS],
    rewinds: [Option<i64>; PARTITIONS],
    rewinding: bool,
    committed_last: bool,
    unapplied: Option<Effects>,
}

/// A task that runs.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) id: RunId,
    pub(crate) task: usize,
    pub(crate) process: usize,
    pub(crate) config: usize,
    pub(crate) machine: TaskMachine,
    pub(crate) tables: [OpenTable; TABLES],
    pub(crate) inbox: Vec<Inbound>,
    /// Dead letters that are not acknowledged.
    pub(crate) letters: [Bits; PARTITIONS],
    /// Another incarnation has its place; it does not know.
    pub(crate) detached: bool,
    /// It was told to stop.
    pub(crate) stop: bool,
    /// It has failed: it closes and stops.
    pub(crate) failed: bool,
    joined: bool,
    pub(crate) assigned: u8,
    position: [i64; PARTITIONS],
    current: [i64; PARTITIONS],
    asked_rewinds: [Option<i64>; PARTITIONS],
    commit_requested: bool,
    next_commit_ms: u64,
    batch: Vec<Block>,
    redeliver: bool,
    phase: Phase,
    delivery: Delivery,
}

impl Run {
    /// Begins an incarnation of task `at.1` on process `at.0`.
    pub(crate) fn new(
        (id, config): (RunId, usize),
        at: (usize, usize),
        machine: TaskMachine,
        now_ms: u64,
    ) -> Self {
        Run {
            id,
            task: at.1,
            process: at.0,
            config,
            machine,
            tables: Default::default(),
            inbox: Vec::new(),
            letters: [0; PARTITIONS],
            detached: false,
            stop: false,
            failed: false,
            joined: false,
            assigned: 0,
            position: [0; PARTITIONS],
            current: [0; PARTITIONS],
            asked_rewinds: [None; PARTITIONS],
            commit_requested: false,
            next_commit_ms: now_ms + 60_000,
            batch: Vec::new(),
            redeliver: false,
            phase: Phase::Idle,
            delivery: Delivery::default(),
        }
    }

    /// Joins the group before anything moves.
    pub(crate) fn join(&mut self, w: &mut World) {
        self.joined = true;
        w.group.join(self.id, w.active, &mut w.rng);
    }

    fn is_assigned(&self, partition: usize) -> bool {
        self.assigned & (1 << partition) != 0
    }
}

/// Makes the next call of the loop.
pub(crate) fn step(w: &mut World, run: &mut Run) -> Fate {
    match run.phase {
        Phase::Idle if run.stop || run.failed => begin_stop(w, run),
        Phase::Idle => iterate(w, run),
        Phase::Put => begin_put(w, run),
        Phase::Deliver(block) => deliver(w, run, block),
        Phase::AwaitLetters(block) => await_letters(w, run, block),
        Phase::Closing(mask) => closing(w, run, mask),
        Phase::Stopping => return stopping(w, run),
    }
    Fate::Alive
}

fn iterate(w: &mut World, run: &mut Run) {
    if run.detached && w.rng.chance(20) {
        run.stop = true;
    }
    if run.commit_requested || w.now_ms >= run.next_commit_ms {
        run.commit_requested = false;
        run.next_commit_ms = w.now_ms + 60_000;
        return commit_offsets(w, run, run.assigned);
    }
    if !w.group.is_member(run.id) {
        if run.joined && !w.rng.chance(60) {
            // It has not heard of it yet.
            return poll(w, run);
        }
        if run.detached {
            run.stop = true;
        }
        if run.assigned != 0 {
            run.delivery.committed_last = false;
            return begin_close(w, run, run.assigned);
        }
        if !run.detached {
            run.joined = true;
            w.group.join(run.id, w.active, &mut w.rng);
        }
        return;
    }
    let revoked = w.group.to_revoke(run.id, run.assigned, w.plan.eager);
    if revoked != 0 {
        commit_offsets(w, run, revoked);
        return begin_close(w, run, revoked);
    }
    w.group.revoked(run.id, 0);
    let mask = w.group.newly_assigned(run.id, w.plan.eager);
    if mask != 0 {
        return open(w, run, mask);
    }
    poll(w, run);
}

fn open(w: &mut World, run: &mut Run, mask: u8) {
    for partition in 0..PARTITIONS {
        if mask & (1 << partition) != 0 {
            run.position[partition] = w.group.position(partition);
            run.current[partition] = run.position[partition];
            run.asked_rewinds[partition] = None;
            say!(
                w,
                "task {} gets p{partition} at {}",
                run.id,
                run.position[partition]
            );
        }
    }
    run.assigned |= mask;
    run.delivery.committed_last = false;
    forget(run, mask);
    if !run.failed {
        let effects = native::assign(w, run, mask);
        apply(run, effects);
    }
}

fn forget(run: &mut Run, mask: u8) {
    for partition in (0..PARTITIONS).filter(|partition| mask & (1 << partition) != 0) {
        run.delivery.durable[partition] = None;
        run.delivery.first_seen[partition] = None;
        run.delivery.rewinds[partition] = None;
    }
}

/// Does the rewinds that were asked for, and fetches.
fn poll(w: &mut World, run: &mut Run) {
    for partition in 0..PARTITIONS {
        if let Some(offset) = run.asked_rewinds[partition].take()
            && run.is_assigned(partition)
        {
            run.position[partition] = offset;
            run.current[partition] = offset;
        }
    }
    if !run.redeliver {
        run.batch.clear();
        for partition in 0..w.active {
            if !run.is_assigned(partition) {
                continue;
            }
            let from = run.position[partition];
            let most = w.rng.below(w.plan.poll_max + 1) as i64;
            let to = w.ends[partition].min(from + most);
            if from < to {
                run.position[partition] = to;
                run.batch.push(Block {
                    partition,
                    from,
                    to,
                });
            }
        }
    }
    run.redeliver = false;
    run.phase = Phase::Put;
}

fn begin_put(w: &mut World, run: &mut Run) {
    run.delivery.committed_last = false;
    if w.plan.letters_block && has_letters(run) {
        return await_letters(w, run, usize::MAX);
    }
    if let Some(effects) = run.delivery.unapplied.take() {
        apply(run, effects);
    }
    run.delivery.rewinding = false;
    for block in run.batch.clone() {
        let records = w.records(block);
        if records != 0 {
            let first = i64::from(records.trailing_zeros());
            run.delivery.first_seen[block.partition].get_or_insert(first);
        }
    }
    match native::tick(w, run) {
        Ok(effects) => apply(run, effects),
        Err(error) => return thrown(w, run, &error),
    }
    run.phase = Phase::Deliver(0);
}

fn deliver(w: &mut World, run: &mut Run, index: usize) {
    let Some(block) = run.batch.get(index).copied() else {
        return end_put(w, run);
    };
    run.phase = Phase::Deliver(index + 1);
    if run.delivery.rewinds.iter().any(Option::is_some) {
        // After a rewind the rest of a batch is not delivered: its partitions are rewound too.
        let records = w.records(block);
        if records != 0 {
            let first = i64::from(records.trailing_zeros());
            run.delivery.rewinds[block.partition].get_or_insert(first);
        }
        return;
    }
    match native::put(w, run, block) {
        Ok(effects) => settle(w, run, index + 1, effects),
        Err(error) => thrown(w, run, &error),
    }
}

fn settle(w: &mut World, run: &mut Run, next: usize, effects: Effects) {
    for (partition, offset) in &effects.rejected {
        run.letters[*partition] |= 1 << offset;
    }
    if w.plan.letters_block && has_letters(run) {
        run.delivery.unapplied = Some(effects);
        run.phase = Phase::AwaitLetters(next);
        return;
    }
    apply(run, effects);
}

fn await_letters(w: &mut World, run: &mut Run, next: usize) {
    if w.faulty() && w.rng.chance(w.plan.chances.dead_letter_slow) {
        let error = SinkError::retriable("DEAD_LETTER_SLOW", "no acknowledgement yet");
        return thrown(w, run, &error);
    }
    if w.rng.chance(400) {
        return;
    }
    acknowledge(w, run);
    if next == usize::MAX {
        return;
    }
    if let Some(effects) = run.delivery.unapplied.take() {
        apply(run, effects);
    }
    run.phase = Phase::Deliver(next);
}

/// The dead letter queue acknowledges.
pub(crate) fn acknowledge(w: &mut World, run: &mut Run) {
    for partition in 0..PARTITIONS {
        let mut letters = std::mem::take(&mut run.letters[partition]);
        while letters != 0 {
            w.ledger
                .dead_letter(partition, i64::from(letters.trailing_zeros()));
            letters &= letters - 1;
        }
    }
}

pub(crate) fn has_letters(run: &Run) -> bool {
    run.letters.iter().any(|letters| *letters != 0)
}

fn end_put(w: &mut World, run: &mut Run) {
    for block in run.batch.drain(..) {
        if run.assigned & (1 << block.partition) != 0 {
            let current = &mut run.current[block.partition];
            *current = block.to.max(*current);
        }
    }
    apply_rewinds(w, run);
    run.phase = Phase::Idle;
}

fn apply_rewinds(w: &mut World, run: &mut Run) {
    let rewinds = std::mem::take(&mut run.delivery.rewinds);
    for (partition, offset) in rewinds.into_iter().enumerate() {
        let Some(offset) = offset else { continue };
        if run.is_assigned(partition) || w.switches.rewinds_anything {
            run.delivery.rewinding = true;
            seek(w, run, partition, offset);
        }
    }
}

/// `context.offset`: the framework fails a task that names a partition it does not have.
fn seek(w: &mut World, run: &mut Run, partition: usize, offset: i64) {
    if !run.is_assigned(partition) {
        w.ledger.violated(
            "S12",
            format!("a rewind of partition {partition}, not assigned"),
        );
    }
    run.asked_rewinds[partition] = Some(offset);
}

/// `put` threw.
fn thrown(w: &mut World, run: &mut Run, error: &SinkError) {
    say!(w, "task {}: {}", run.id, error.report());
    run.phase = Phase::Idle;
    if error.kind() == ErrorKind::Retriable {
        run.redeliver = true;
        apply_rewinds_kept(run);
        return;
    }
    w.failures += 1;
    run.failed = true;
}

/// A `RetriableException` leaves the rewinds where they are, for the next put.
fn apply_rewinds_kept(run: &mut Run) {
    if run.delivery.rewinds.iter().any(Option::is_some) {
        run.delivery.rewinding = true;
    }
}

fn apply(run: &mut Run, effects: Effects) {
    for (partition, offset) in effects.durable {
        if run.is_assigned(partition) {
            run.delivery.durable[partition] = Some(offset);
        }
    }
    for (partition, offset) in effects.rewinds {
        run.delivery.rewinds[partition] = Some(offset);
        run.delivery.rewinding = true;
    }
    run.commit_requested |= effects.request_commit;
}

fn is_quiet(w: &World, run: &Run) -> bool {
    let letters = w.plan.letters_block && has_letters(run);
    !run.failed && run.delivery.unapplied.is_none() && !letters
}

/// The framework commits offsets: what `preCommit` answers, as far as it may.
fn commit_offsets(w: &mut World, run: &mut Run, mask: u8) {
    let asked: Vec<(usize, i64)> = (0..PARTITIONS)
        .filter(|partition| mask & run.assigned & (1 << partition) != 0)
        .map(|partition| (partition, run.current[partition]))
        .collect();
    if asked.is_empty() {
        return;
    }
    w.dispatched();
    for ((partition, asked), answer) in asked.iter().zip(pre_commit(w, run, &asked)) {
        let Some(answer) = answer else {
            w.ledger
                .violated("S11", format!("no answer for partition {partition}"));
            continue;
        };
        if answer > *asked {
            w.ledger.violated(
                "S11",
                format!("{answer} for partition {partition}, asked {asked}"),
            );
            continue;
        }
        if let Some(moved) = w.group.commit(run.id, *partition, answer) {
            if moved.0 != moved.1 {
                say!(
                    w,
                    "W of p{partition} from {} to {} by task {}",
                    moved.0,
                    moved.1,
                    run.id
                );
            }
            w.ledger.group_moved(&w.plan, run.config, *partition, moved);
        }
    }
}

fn pre_commit(w: &mut World, run: &mut Run, asked: &[(usize, i64)]) -> Vec<Option<i64>> {
    run.delivery.committed_last = true;
    let frozen = run.delivery.rewinding && !w.switches.moves_while_rewinding;
    let mut fresh = Vec::new();
    if !frozen && is_quiet(w, run) {
        let effects = native::pre_commit(w, run, asked);
        fresh.clone_from(&effects.durable);
        apply(run, effects);
    }
    let clamped = |(partition, asked): &(usize, i64)| {
        if w.switches.does_not_clamp {
            let own = fresh.iter().find(|(known, _)| known == partition);
            return own.map(|(_, offset)| *offset);
        }
        let known = run.delivery.durable[*partition].or(run.delivery.first_seen[*partition]);
        Some(known.unwrap_or(*asked).min(*asked).max(0))
    };
    asked.iter().map(clamped).collect()
}

/// Hands partitions back. Connect calls `preCommit` just before, unless they were lost.
fn begin_close(w: &mut World, run: &mut Run, mask: u8) {
    let mut lost = !run.delivery.committed_last;
    if w.plan.letters_block && has_letters(run) {
        match w.rng.chance(512) {
            true => acknowledge(w, run),
            false => lost = true,
        }
    }
    if !run.failed && !w.rng.chance(w.plan.chances.close_fails) {
        if lost {
            native::revoked(w, run, mask, true);
        } else if native::begin_drain(w, run, Some(mask)) {
            run.phase = Phase::Closing(mask);
            return;
        } else {
            native::revoked(w, run, mask, false);
        }
    }
    closed(w, run, mask);
}

fn closing(w: &mut World, run: &mut Run, mask: u8) {
    if still_draining(w, run) {
        return;
    }
    native::revoked(w, run, mask, false);
    closed(w, run, mask);
}

fn still_draining(w: &mut World, run: &mut Run) -> bool {
    native::drain_inbox(w, run);
    run.machine.drain_left(w.clock(run.process)).is_some()
}

fn closed(w: &mut World, run: &mut Run, mask: u8) {
    say!(w, "task {} gives up partitions {mask:b}", run.id);
    forget(run, mask);
    run.assigned &= !mask;
    run.batch.retain(|block| mask & (1 << block.partition) == 0);
    w.group.revoked(run.id, mask);
    run.phase = Phase::Idle;
}

/// The framework closes everything, also after a failure.
fn begin_stop(w: &mut World, run: &mut Run) {
    if run.assigned != 0 {
        commit_offsets(w, run, run.assigned);
        return begin_close(w, run, run.assigned);
    }
    if run.failed || has_letters(run) || !native::begin_drain(w, run, None) {
        // Cancelled: nothing of it is sealed any more.
        run.failed = true;
    }
    run.phase = Phase::Stopping;
}

fn stopping(w: &mut World, run: &mut Run) -> Fate {
    if !run.failed && still_draining(w, run) {
        return Fate::Alive;
    }
    native::close(w, run);
    w.group.remove(run.id, w.active, &mut w.rng);
    Fate::Gone
}
