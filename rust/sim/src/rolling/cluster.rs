//! Connect's own part: which worker has which task, and the rolling restart.
//!
//! A worker that stops gives up its tasks in good order and leaves; after
//! `scheduled.rebalance.max.delay.ms` the others take them. When it is back they give some up again:
//! one rebalance revokes, the next one assigns.

use super::world::{Event, World};
use super::{Size, task};
use crate::rng::Rng;

/// What happens to the cluster.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    /// A task starts on a worker.
    Start(usize, usize),
    /// A worker stops.
    Stop(usize),
    /// The tasks of a worker that left go to the others.
    GiveAway(usize),
    /// A worker is back.
    Up(usize),
    /// A worker that is back gets its share.
    Balance(usize),
}

/// When a restart began and when all tasks ran again.
pub(super) type Restart = (u64, u64);

/// Workers and their tasks.
#[derive(Debug)]
pub(super) struct Cluster {
    /// The worker that has, or will have, each task.
    owner: Vec<Option<usize>>,
    up: Vec<bool>,
    stopping: Option<usize>,
    /// The worker that the tasks go to which are being revoked, and how many these are.
    revoking: Option<(usize, usize)>,
    /// Tasks on their way, by the worker that they start on.
    starting: usize,
    /// Whether the worker that was restarted last has its share.
    settled: bool,
    begun_ms: u64,
    next: usize,
    last: usize,
    pub(super) restarts: Vec<Restart>,
    over: bool,
}

impl Cluster {
    /// Makes a cluster in which all workers are up.
    pub(super) fn new(size: &Size) -> Self {
        Cluster {
            owner: vec![None; size.tasks()],
            up: vec![true; size.workers],
            stopping: None,
            revoking: None,
            starting: 0,
            settled: true,
            begun_ms: 0,
            next: 0,
            last: size.restarts,
            restarts: Vec::new(),
            over: false,
        }
    }

    /// Tells whether all workers were restarted, and the cluster is quiet again.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    fn load(&self, worker: usize) -> usize {
        let owners = self.owner.iter().flatten();
        owners.filter(|owner| **owner == worker).count()
    }

    /// Returns the worker that is up and has the fewest tasks.
    fn freest(&self, rng: &mut Rng) -> Option<usize> {
        let up = (0..self.up.len()).filter(|worker| self.up[*worker]);
        let fewest = up.clone().map(|worker| self.load(worker)).min()?;
        let all: Vec<usize> = up.filter(|worker| self.load(*worker) == fewest).collect();
        Some(all[rng.index(all.len())])
    }
}

/// Starts all tasks.
pub(super) fn begin(w: &mut World) {
    for task in 0..w.size.tasks() {
        start(w, task, task % w.size.workers);
    }
}

/// Begins the rolling restart.
pub(super) fn roll(w: &mut World) {
    let first = Event::Cluster(Step::Stop(0));
    w.after(w.size.quiet_ms, first);
}

fn start(w: &mut World, task: usize, worker: usize) {
    w.cluster.owner[task] = Some(worker);
    w.cluster.starting += 1;
    let in_ms = w.draw(w.pace.task_start);
    w.after(in_ms, Event::Cluster(Step::Start(task, worker)));
}

/// Something happens to the cluster.
pub(super) fn step(w: &mut World, step: Step) {
    match step {
        Step::Start(task, worker) => {
            w.cluster.starting -= 1;
            task::start(w, task, worker);
            settle(w);
        }
        Step::Stop(worker) => stop(w, worker),
        Step::GiveAway(worker) => give_away(w, worker),
        Step::Up(worker) => up(w, worker),
        Step::Balance(worker) => balance(w, worker),
    }
}

fn stop(w: &mut World, worker: usize) {
    if worker >= w.cluster.last {
        w.cluster.over = true;
        return;
    }
    w.cluster.begun_ms = w.now_ms;
    w.cluster.next = worker + 1;
    w.cluster.settled = false;
    w.cluster.stopping = Some(worker);
    let mut any = false;
    for run in w.runs.iter_mut().flatten() {
        if run.process == worker {
            run.stop();
            any = true;
        }
    }
    if !any {
        down(w, worker);
    }
}

/// The last task of a worker that stops is gone: so is the worker.
fn down(w: &mut World, worker: usize) {
    w.cluster.stopping = None;
    w.cluster.up[worker] = false;
    let delay_ms = w.size.rebalance_delay_ms + w.draw(w.pace.heartbeat);
    w.after(delay_ms, Event::Cluster(Step::GiveAway(worker)));
    let in_ms = w.draw(w.pace.restart);
    w.after(in_ms, Event::Cluster(Step::Up(worker)));
}

/// A task has ended.
pub(super) fn task_gone(w: &mut World, run: &task::Run) {
    if run.has_failed() {
        // Connect leaves a task that failed where it is.
        return;
    }
    w.cluster.owner[run.task] = None;
    if let Some(worker) = w.cluster.stopping.filter(|worker| *worker == run.process) {
        let left = w.runs.iter().flatten().any(|run| run.process == worker);
        if !left {
            down(w, worker);
        }
        return;
    }
    if let Some((worker, left)) = w.cluster.revoking {
        w.cluster.revoking = Some((worker, left - 1)).filter(|(_, left)| *left > 0);
        if w.cluster.revoking.is_none() {
            start_lost(w, worker);
        }
    }
}

/// Starts the tasks that nobody has on `worker`, after the rebalance that it takes.
fn start_lost(w: &mut World, worker: usize) {
    let rebalance_ms = w.draw(w.pace.heartbeat);
    for task in 0..w.cluster.owner.len() {
        if w.cluster.owner[task].is_none() {
            w.cluster.owner[task] = Some(worker);
            w.cluster.starting += 1;
            let in_ms = rebalance_ms + w.draw(w.pace.task_start);
            w.after(in_ms, Event::Cluster(Step::Start(task, worker)));
        }
    }
    w.cluster.settled = true;
}

fn give_away(w: &mut World, worker: usize) {
    if w.cluster.up[worker] {
        return;
    }
    for task in 0..w.cluster.owner.len() {
        if w.cluster.owner[task].is_none()
            && let Some(other) = w.cluster.freest(&mut w.rng)
        {
            start(w, task, other);
        }
    }
}

fn up(w: &mut World, worker: usize) {
    w.cluster.up[worker] = true;
    if w.cluster.owner.iter().any(Option::is_none) {
        return start_lost(w, worker);
    }
    let in_ms = w.draw(w.pace.heartbeat);
    w.after(in_ms, Event::Cluster(Step::Balance(worker)));
}

fn balance(w: &mut World, worker: usize) {
    if w.cluster.starting > 0 {
        return w.after(500, Event::Cluster(Step::Balance(worker)));
    }
    let share = w.cluster.owner.len() / w.cluster.up.len();
    let mut revoked = Vec::new();
    while revoked.len() + w.cluster.load(worker) < share {
        // From whoever has most, as often as it takes.
        let left = |other: usize| {
            let gone = revoked.iter().filter(|(_, from)| *from == other).count();
            w.cluster.load(other) - gone
        };
        let Some(most) = (0..w.cluster.up.len()).max_by_key(|other| left(*other)) else {
            break;
        };
        let mut own = (0..w.cluster.owner.len())
            .filter(|task| w.cluster.owner[*task] == Some(most))
            .filter(|task| !revoked.iter().any(|(known, _)| known == task));
        let Some(task) = own.next() else { break };
        revoked.push((task, most));
    }
    let mut stopped = 0;
    for run in w.runs.iter_mut().flatten() {
        if revoked.iter().any(|(task, _)| *task == run.task) {
            run.stop();
            stopped += 1;
        }
    }
    match stopped {
        0 => w.cluster.settled = true,
        stopped => w.cluster.revoking = Some((worker, stopped)),
    }
    settle(w);
}

/// Ends a restart once every task runs where it belongs, and lets the next one follow.
fn settle(w: &mut World) {
    let cluster = &mut w.cluster;
    if !cluster.settled || cluster.starting > 0 || cluster.begun_ms == 0 {
        return;
    }
    cluster.restarts.push((cluster.begun_ms, w.now_ms));
    cluster.begun_ms = 0;
    let next = Event::Cluster(Step::Stop(cluster.next));
    w.after(w.size.failover_ms + w.size.quiet_ms, next);
}
