//! What goes wrong, one at a time.

use crate::run::Run;
use crate::say;
use crate::swarm::{FAULTS, Fault, PARTITIONS, Transport};
use crate::world::World;
use crate::{resets, run};

/// Files of this age may be deleted by an orphan job that is set up as documented.
const ORPHAN_AGE_MS: u64 = 3 * 86_400_000;

/// Does one thing that the seed's swarm has.
pub(crate) fn strike(w: &mut World) {
    let chaos = w.plan.chaos;
    let Some(index) = w.rng.weighted(&chaos) else {
        return;
    };
    let fault = FAULTS[index].0;
    say!(w, "fault: {fault:?}");
    match fault {
        Fault::CrashProcess => crash_process(w),
        Fault::CrashTask => crash_task(w),
        Fault::Expel => expel(w),
        Fault::Rebalance => w.group.rebalance(w.active, &mut w.rng),
        Fault::Pause => pause(w),
        Fault::ClockJump => {
            let process = w.rng.index(w.processes.len());
            w.processes[process].skew_ms = w.rng.pick(&[-600_000, -1_000, 0, 600_000, 7_200_000]);
        }
        Fault::LongWait => w.now_ms += w.rng.pick(&[90_000, 1_000_000, 4_000_000, 20_000_000]),
        Fault::Clean | Fault::CleanAll => clean(w, fault == Fault::CleanAll),
        Fault::Reset => resets::begin(w, true),
        Fault::ResetOutside => resets::begin(w, false),
        Fault::ConfigChange => config_change(w),
        Fault::GrowPartitions => grow(w),
        Fault::LoseControlTopic => w.topic.delete(),
        Fault::Elect => elect(w),
        table_fault => strike_table(w, table_fault),
    }
}

fn strike_table(w: &mut World, fault: Fault) {
    let table = w.rng.index(w.plan.tables.len());
    let own = w.plan.tables[table].branch;
    let now_ms = w.wall_ms(0);
    match fault {
        Fault::ForeignAppend => {
            w.catalog.foreign_append(table, own, now_ms);
        }
        Fault::ForeignBranch => {
            w.catalog.foreign_append(table, 1 - own, now_ms);
        }
        Fault::Expire => {
            w.catalog.expire(table);
        }
        Fault::Rollback => {
            let steps = w.rng.between(1, 2);
            w.catalog.roll_back(table, own, steps);
        }
        Fault::Replace => {
            w.catalog.replace(table);
        }
        Fault::Drop if w.catalog.incarnation(table) < 4 => w.catalog.drop_table(table),
        Fault::Spec => {
            let remove = w.rng.chance(300);
            w.catalog.evolve_spec(table, remove);
        }
        _ => {}
    }
}

/// What was on its way to the dead letter queue when a task died is there, or is not.
fn drop_letters(w: &mut World, run: &mut Run) {
    for partition in 0..PARTITIONS {
        let arrived = w.rng.bits() & w.rng.bits();
        run.letters[partition] &= arrived;
    }
    run::acknowledge(w, run);
}

fn bury(w: &mut World, mut run: Box<Run>) {
    say!(w, "task {} dies", run.id);
    drop_letters(w, &mut run);
    if w.rng.chance(512) {
        w.ghosts.push(run.id);
    } else {
        w.group.remove(run.id, w.active, &mut w.rng);
    }
}

/// Somebody gets the control partition: a process that wants it.
pub(crate) fn elect(w: &mut World) {
    let wants = |process: &usize| w.plan.transports[*process] == Transport::Topic;
    let candidates: Vec<usize> = (0..w.processes.len()).filter(wants).collect();
    if !candidates.is_empty() {
        let process = w.rng.pick(&candidates);
        w.topic.elect(process);
    }
}

fn crash_process(w: &mut World) {
    let process = w.rng.index(w.processes.len());
    w.processes[process].hub = None;
    w.processes[process].end = None;
    w.topic.crash(process);
    elect(w);
    w.processes[process].paused_until = 0;
    w.io.retain(|io| io.process != process);
    for in_flight in &mut w.requests {
        in_flight.owner.take_if(|(owner, _)| *owner == process);
    }
    let (dead, living): (Vec<_>, Vec<_>) = std::mem::take(&mut w.runs)
        .into_iter()
        .partition(|run| run.as_ref().is_some_and(|run| run.process == process));
    w.runs = living;
    dead.into_iter().flatten().for_each(|run| bury(w, run));
}

/// A task dies without its process: nobody closes its session. (A thread that was killed.)
fn crash_task(w: &mut World) {
    if w.runs.is_empty() {
        return;
    }
    let index = w.rng.index(w.runs.len());
    if let Some(run) = w.runs.swap_remove(index) {
        let session = run.machine.session();
        let process = run.process;
        bury(w, run);
        // The session's `Drop` tells the hub.
        w.leave(process, session);
    }
}

/// The group takes a member for dead; it goes on.
fn expel(w: &mut World) {
    if w.runs.is_empty() {
        return;
    }
    let index = w.rng.index(w.runs.len());
    let detach = w.rng.chance(300);
    if let Some(run) = &mut w.runs[index] {
        run.detached |= detach;
        let id = run.id;
        w.group.remove(id, w.active, &mut w.rng);
    }
}

/// SIGSTOP: longer than a session lasts, or not.
fn pause(w: &mut World) {
    let process = w.rng.index(w.processes.len());
    let ms = w.rng.pick(&[2_000, 20_000, 120_000, 5_000_000]);
    w.processes[process].paused_until = w.now_ms + ms;
    if ms > 10_000 {
        elect(w);
        for index in 0..w.runs.len() {
            let Some(run) = &mut w.runs[index] else {
                continue;
            };
            if run.process == process {
                // Connect starts its tasks elsewhere.
                run.detached = true;
                let id = run.id;
                w.group.remove(id, w.active, &mut w.rng);
            }
        }
    }
}

/// The orphan job deletes what no snapshot has: as documented, or files of any age. No job can be
/// set up to look between a committer's look at a manifest and its commit.
fn clean(w: &mut World, any_age: bool) {
    let now_ms = w.clock(0);
    for file in &mut w.files {
        let age_ms = now_ms.saturating_sub(file.written_ms);
        if file.committed.is_none() && !file.checked && (any_age || age_ms > ORPHAN_AGE_MS) {
            file.gone = true;
        }
    }
}

fn config_change(w: &mut World) {
    if w.config + 1 >= crate::swarm::CONFIGS {
        return;
    }
    w.config += 1;
    w.ledger.config_changed(&w.plan);
    for index in 0..w.runs.len() {
        let slow = w.rng.chance(300);
        if let Some(run) = &mut w.runs[index] {
            run.stop = !slow;
            run.detached |= slow;
        }
    }
}

fn grow(w: &mut World) {
    if w.active < PARTITIONS {
        let rows = w.rng.between(3, 40) as i64;
        w.plan.offsets[w.active] = rows;
        w.ends[w.active] = w.rng.below(rows as u64) as i64;
        w.active += 1;
        w.plan.partitions = w.active;
        w.group.rebalance(w.active, &mut w.rng);
    }
}
