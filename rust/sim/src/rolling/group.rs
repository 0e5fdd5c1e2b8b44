//! The group of the tasks' consumers: eager, with the range assignor, as Connect's default is. Every
//! task gives up all its partitions whenever one comes or goes.

use std::collections::{BTreeMap, BTreeSet};

use super::task::RunId;
use super::world::{Event, World};

/// The group, as its coordinator (a broker) sees it.
#[derive(Debug)]
pub(super) struct Group {
    /// The members by the numbers of their tasks, which is the order that the assignor goes by.
    members: BTreeMap<usize, RunId>,
    joined: BTreeSet<RunId>,
    preparing: bool,
    generation: u64,
    /// The offset that the group holds of each partition.
    pub(super) committed: Vec<i64>,
}

impl Group {
    /// Makes a group without members.
    pub(super) fn new(partitions: usize) -> Self {
        Group {
            members: BTreeMap::new(),
            joined: BTreeSet::new(),
            preparing: false,
            generation: 0,
            committed: vec![0; partitions],
        }
    }

    fn is_member(&self, run: RunId) -> bool {
        self.members.values().any(|member| *member == run)
    }
}

/// The consumer of a new task joins.
pub(super) fn join(w: &mut World, run: RunId, task: usize) {
    w.group.members.insert(task, run);
    if !w.group.preparing {
        prepare(w, Some(run));
    }
    rejoin(w, run);
}

/// A member has given up its partitions.
pub(super) fn rejoin(w: &mut World, run: RunId) {
    w.group.joined.insert(run);
    complete(w);
}

/// The consumer of a task leaves.
pub(super) fn leave(w: &mut World, run: RunId) {
    w.group.members.retain(|_, member| *member != run);
    w.group.joined.remove(&run);
    if !w.group.preparing {
        prepare(w, None);
    }
    complete(w);
}

fn prepare(w: &mut World, but: Option<RunId>) {
    w.counts.rebalances += 1;
    w.group.preparing = true;
    w.group.joined.clear();
    w.group.generation += 1;
    let generation = w.group.generation;
    let members: Vec<RunId> = w.group.members.values().copied().collect();
    for member in members.into_iter().filter(|member| Some(*member) != but) {
        let in_ms = w.draw(w.pace.heartbeat);
        w.after(in_ms, Event::Heartbeat(member, generation));
    }
}

fn complete(w: &mut World) {
    if !w.group.preparing || w.group.joined.len() < w.group.members.len() {
        return;
    }
    w.group.preparing = false;
    let members: Vec<RunId> = w.group.members.values().copied().collect();
    let (all, generation) = (w.partitions.len(), w.group.generation);
    let mut first = 0;
    for (place, run) in members.iter().enumerate() {
        let share = all / members.len() + usize::from(place < all % members.len());
        let partitions = (first..first + share).collect();
        first += share;
        let in_ms = w.draw(w.pace.broker);
        w.after(in_ms, Event::Assigned(*run, generation, partitions));
    }
}

/// A member hears that a generation is over.
pub(super) fn heartbeat(w: &mut World, run: RunId, generation: u64) {
    if w.group.generation == generation
        && w.group.preparing
        && let Some(run) = &mut w.runs[run]
    {
        run.hear_of_rebalance();
    }
}

/// Returns the partitions that a member gets, unless their generation is over by now: then it joins
/// the next one at once.
pub(super) fn assigned(
    w: &mut World,
    run: RunId,
    generation: u64,
    partitions: Vec<usize>,
) -> Option<Vec<usize>> {
    if w.group.generation == generation {
        return Some(partitions);
    }
    if w.group.is_member(run) {
        rejoin(w, run);
    }
    None
}
