//! The part of a process that commits: a real [`TableCoordinator`] and at most one real
//! [`CommitMachine`] for each table.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use frazil_core::SinkError;
use frazil_core::commit::action::{Action, Answer, CommitLimits, CommitSetup};
use frazil_core::commit::attempt::CommitMachine;
use frazil_core::commit::remembered::Trust;
use frazil_core::control::coordinator::{
    self, CoordinatorSettings, Next as Wanted, Offer, TableCoordinator, Told,
};
use frazil_core::control::message::Answer as Said;
use frazil_core::control::segment::Segment;
use uuid::Uuid;

use super::control::{self, End};
use super::tables::{Request, View, rows_of};
use super::world::{At, Event, World};
use super::{Fault, Pace, SEGMENT_TTL_MS, verdict_of};
use crate::hub::Dice;
use crate::rng::Rng;

/// Turns to look at manifests: so many of a process, and so many of each table, as in the engine.
#[derive(Debug)]
pub(super) struct Turns {
    process: BinaryHeap<Reverse<u64>>,
    tables: Vec<BinaryHeap<Reverse<u64>>>,
}

impl Turns {
    fn new(pace: &Pace, tables: usize) -> Self {
        let free = |turns| std::iter::repeat_n(Reverse(0), turns).collect();
        Turns {
            process: free(pace.turns),
            tables: (0..tables).map(|_| free(pace.table_turns)).collect(),
        }
    }

    /// Takes the next turn of `table`, for `for_ms`, and returns when it is over.
    pub(super) fn take(&mut self, table: usize, now_ms: u64, for_ms: u64) -> u64 {
        let mut begin_ms = now_ms;
        for turns in [&mut self.process, &mut self.tables[table]] {
            let free_ms = turns.pop().map_or(0, |Reverse(free_ms)| free_ms);
            begin_ms = begin_ms.max(free_ms);
        }
        let over_ms = begin_ms + for_ms;
        self.process.push(Reverse(over_ms));
        self.tables[table].push(Reverse(over_ms));
        over_ms
    }
}

/// What a commit is told.
#[derive(Debug)]
pub(super) enum Next {
    Load,
    /// The manifests of these segments are there.
    Checked(Vec<usize>),
    Answered(Option<View>),
    Slept,
}

/// A request on its way to the catalog.
#[derive(Debug)]
pub(super) struct Underway {
    request: Request,
    answer_in_ms: u64,
}

/// A batch on its way into its table.
#[derive(Debug)]
struct Commit {
    machine: CommitMachine<View, Dice>,
    batch: Vec<Segment>,
}

/// The hub of a process.
#[derive(Debug)]
pub(super) struct Hub {
    tasks: usize,
    pub(super) coordinators: Vec<TableCoordinator>,
    commits: Vec<Option<Box<Commit>>>,
    /// Each table as its last commit left it, and whether a commit begins with that.
    remembered: Vec<(Option<View>, Trust)>,
    /// When each coordinator is asked next, by the world's clock.
    wake_ms: Vec<u64>,
    pub(super) turns: Turns,
    /// The end of the control topic, if there is one.
    pub(super) end: Option<End>,
}

/// A task starts in a process; the first one makes the hub.
pub(super) fn task_joins(w: &mut World, process: usize) {
    if let Some(hub) = &mut w.processes[process].hub {
        hub.tasks += 1;
        return;
    }
    w.processes[process].life += 1;
    let settings = CoordinatorSettings {
        held_bytes_max: match w.over_topic() {
            true => frazil_core::limits::HELD_BYTES_MAX,
            false => usize::MAX,
        },
        ..CoordinatorSettings::with_interval(w.size.interval_ms)
    };
    let tables = w.tables.len();
    let end = w.over_topic().then(|| control::open(w, process));
    w.processes[process].hub = Some(Box::new(Hub {
        tasks: 1,
        coordinators: (0..tables)
            .map(|_| TableCoordinator::new(settings))
            .collect(),
        commits: (0..tables).map(|_| None).collect(),
        remembered: vec![Default::default(); tables],
        wake_ms: vec![u64::MAX; tables],
        turns: Turns::new(&w.pace, tables),
        end,
    }));
}

/// A task is gone; the last one takes the hub along.
pub(super) fn task_leaves(w: &mut World, process: usize) {
    let Some(hub) = &mut w.processes[process].hub else {
        return;
    };
    hub.tasks -= 1;
    if hub.tasks > 0 {
        return;
    }
    if w.over_topic() {
        control::close(w, process);
    }
    w.processes[process].hub = None;
    w.processes[process].life += 1;
}

fn with_hub(w: &mut World, process: usize, work: impl FnOnce(&mut World, At, &mut Hub)) {
    let at = w.at(process);
    if let Some(mut hub) = w.take_hub(at) {
        work(w, at, &mut hub);
        w.give_back(at, hub);
    }
}

/// A session begins.
pub(super) fn join(w: &mut World, process: usize, session: Uuid, task: usize) {
    with_hub(w, process, |w, _, hub| {
        if let Some(end) = &mut hub.end {
            for name in &w.names {
                let interval_ms = w.size.interval_ms;
                end.channel
                    .join(session, task as u32, 0, name.clone(), interval_ms);
            }
        }
    });
}

/// A session holds rows for a segment.
pub(super) fn opened(w: &mut World, process: usize, table: usize, of: (Uuid, u64), now_ms: u64) {
    // All rows of an interval are announced as of its beginning.
    let since_ms = now_ms - now_ms % w.size.interval_ms;
    with_hub(w, process, |_, _, hub| {
        hub.coordinators[table].opened(of.0, of.1, since_ms);
    });
}

/// A session waits for its commits.
pub(super) fn drain(w: &mut World, process: usize, session: Uuid) {
    let now_ms = w.clock(process);
    with_hub(w, process, |w, at, hub| match &mut hub.end {
        Some(end) => {
            end.channel.drain(session);
            end.channel.offer(now_ms);
            control::pump(w, at, hub);
        }
        None => drain_here(w, at, hub, session),
    });
}

/// What a session has here is urgent.
pub(super) fn drain_here(w: &mut World, at: At, hub: &mut Hub, session: Uuid) {
    for table in 0..hub.coordinators.len() {
        hub.coordinators[table].drain(session);
        wake(w, at, hub, table, 0);
    }
}

/// A session is gone.
pub(super) fn leave(w: &mut World, process: usize, session: Uuid) {
    with_hub(w, process, |w, at, hub| {
        if let Some(end) = &mut hub.end {
            for name in &w.names {
                end.channel.leave(session, name);
            }
        }
        leave_here(w, at, hub, session);
    });
}

/// The coordinators forget a session.
pub(super) fn leave_here(w: &mut World, at: At, hub: &mut Hub, session: Uuid) {
    for table in 0..hub.coordinators.len() {
        hub.coordinators[table].leave(session);
        wake(w, at, hub, table, 0);
    }
}

/// Another process coordinates from now on.
pub(super) fn step_down(hub: &mut Hub) {
    for coordinator in &mut hub.coordinators {
        coordinator.step_down();
    }
}

/// The files of a segment are in the store: hands it over.
pub(super) fn uploaded(w: &mut World, at: At, segment: Segment, urgent: bool) {
    let now_ms = w.clock(at.process);
    let Some(mut hub) = w.take_hub(at) else {
        return;
    };
    match &mut hub.end {
        Some(end) => {
            let table = table_of(&segment);
            hub.coordinators[table].handed_over(segment.session, segment.seq);
            end.channel.submit(segment.into(), urgent, now_ms);
            end.channel.offer(now_ms);
            control::pump(w, at, &mut hub);
        }
        None => {
            let (session, seq, table) = (segment.session, segment.seq, table_of(&segment));
            let offer = offer(w, at, &mut hub, segment, (urgent, SEGMENT_TTL_MS));
            if let Some(verdict) = answer_to(offer).and_then(verdict_of) {
                w.deliver(session, table, seq, verdict);
            }
        }
    }
    w.give_back(at, hub);
}

/// Returns the number of a segment's table: its name ends with it.
pub(super) fn table_of(segment: &Segment) -> usize {
    segment.table.name()[1..].parse().unwrap_or(0)
}

/// Offers a segment to its coordinator.
pub(super) fn offer(
    w: &mut World,
    at: At,
    hub: &mut Hub,
    segment: Segment,
    (urgent, expires_in_ms): (bool, u64),
) -> Offer {
    let (table, now_ms) = (table_of(&segment), w.clock(at.process));
    let offer = hub.coordinators[table].offer(segment, urgent, expires_in_ms, now_ms);
    wake(w, at, hub, table, 0);
    offer
}

/// Returns what a session has to hear at once of a segment that it offered.
pub(super) fn answer_to(offer: Offer) -> Option<Said> {
    match offer {
        Offer::Accepted | Offer::Duplicate | Offer::Held { .. } | Offer::Full => None,
        Offer::Done => Some(Said::Durable {
            snapshot_id: None,
            stamp: None,
        }),
        Offer::Dead => Some(Said::unseen("its session has ended")),
    }
}

/// Asks the coordinator of a table in `in_ms`.
pub(super) fn wake(w: &mut World, at: At, hub: &mut Hub, table: usize, in_ms: u64) {
    let at_ms = w.now_ms.saturating_add(in_ms);
    if hub.wake_ms[table] > at_ms {
        hub.wake_ms[table] = at_ms;
        w.after(in_ms, Event::Poll(at, table));
    }
}

/// Asks a coordinator what it wants.
pub(super) fn poll(w: &mut World, at: At, table: usize) {
    let Some(mut hub) = w.take_hub(at) else {
        return;
    };
    if hub.wake_ms[table] <= w.now_ms {
        hub.wake_ms[table] = u64::MAX;
        ask(w, at, &mut hub, table);
    }
    w.give_back(at, hub);
}

fn ask(w: &mut World, at: At, hub: &mut Hub, table: usize) {
    loop {
        let now_ms = w.clock(at.process);
        match hub.coordinators[table].poll(now_ms) {
            Wanted::Wait { until_ms: None } => return,
            Wanted::Wait {
                until_ms: Some(until_ms),
            } => {
                let in_ms = w.until(at.process, until_ms).max(1);
                return wake(w, at, hub, table, in_ms);
            }
            Wanted::Tell(news) => tell(w, at, hub, table, news),
            Wanted::Commit(batch) => return begin(w, at, hub, table, batch),
        }
    }
}

fn begin(w: &mut World, at: At, hub: &mut Hub, table: usize, batch: Vec<Segment>) {
    let setup = CommitSetup {
        table: w.idents[table].clone(),
        identity: w.identity(at),
        limits: CommitLimits::default(),
    };
    let dice = Dice(Rng::new(w.rng.bits()));
    let (view, trust) = &mut hub.remembered[table];
    let remembered = view.clone().filter(|_| trust.begins_with_it());
    let mut machine = CommitMachine::new(setup, batch.clone(), dice).with_remembered(remembered);
    let action = machine.start();
    let commit = Box::new(Commit { machine, batch });
    carry_out(w, at, hub, table, commit, action);
}

/// Tells a commit what it waits for.
pub(super) fn go_on(w: &mut World, at: At, table: usize, next: Next) {
    let Some(mut hub) = w.take_hub(at) else {
        return;
    };
    if let Some(mut commit) = hub.commits[table].take() {
        let machine = &mut commit.machine;
        let action = match next {
            Next::Load => machine.loaded(w.tables[table].load()),
            Next::Checked(indexes) => {
                machine.checked(indexes.into_iter().map(|index| (index, Ok(None))).collect())
            }
            Next::Answered(Some(view)) => {
                hub.remembered[table].0 = Some(view.clone());
                machine.answered(Answer::Committed(view))
            }
            Next::Answered(None) => {
                let error = SinkError::retriable("COMMIT_CONFLICT", "the table has changed");
                machine.answered(Answer::Conflict(error))
            }
            Next::Slept => machine.slept(),
        };
        carry_out(w, at, &mut hub, table, commit, action);
    }
    w.give_back(at, hub);
}

fn carry_out(
    w: &mut World,
    at: At,
    hub: &mut Hub,
    table: usize,
    mut commit: Box<Commit>,
    action: Action<View>,
) {
    commit.machine.take_notes();
    let (in_ms, next) = match action {
        Action::Load => {
            w.counts.commit_loads += 1;
            (w.draw(w.pace.load), Next::Load)
        }
        Action::CheckManifests(indexes) => {
            let looks = indexes.iter().map(|_| {
                let look_ms = w.draw(w.pace.store);
                hub.turns.take(table, w.now_ms, look_ms)
            });
            let over_ms = looks.max().unwrap_or(w.now_ms);
            (over_ms - w.now_ms, Next::Checked(indexes))
        }
        Action::Submit(submission) => {
            let rows = submission.batch.iter().map(|index| &commit.batch[*index]);
            let rows = rows.flat_map(rows_of).collect();
            let (cid, id) = (submission.commit_id, submission.snapshot_id);
            let now_ms = w.clock(at.process) as i64;
            let state = w.identity(at).sign(submission.state, cid, id, now_ms);
            let in_ms = w.draw(w.pace.commit);
            let underway = Underway {
                request: Request {
                    base: submission.base,
                    snapshot_id: id,
                    state,
                    rows,
                },
                answer_in_ms: in_ms / 4,
            };
            w.after(
                in_ms - in_ms / 4,
                Event::Apply(at, table, Box::new(underway)),
            );
            hub.commits[table] = Some(commit);
            return;
        }
        Action::Sleep { ms } => (ms, Next::Slept),
        Action::Done(outcomes) => {
            let was = commit.machine.remembered_was();
            hub.remembered[table].1.learn(was);
            let now_ms = w.clock(at.process);
            let news = hub.coordinators[table].settle(&commit.batch, outcomes, now_ms);
            tell(w, at, hub, table, news);
            return wake(w, at, hub, table, 0);
        }
    };
    w.after(in_ms, Event::Commit(at, table, Box::new(next)));
    hub.commits[table] = Some(commit);
}

/// A request is with the catalog, whether its process lives or not.
pub(super) fn apply(w: &mut World, at: At, table: usize, underway: Underway) {
    w.counts.requests += 1;
    let now_ms = w.now_ms;
    // Every 50th request, when the catalog is to be a bad one.
    let fault = match w.counts.requests % 50 {
        0 => w.size.fault,
        _ => Fault::None,
    };
    let applied = w.tables[table].apply(underway.request, now_ms, World::written_ms, fault);
    w.counts.conflicts += u64::from(applied.is_none());
    let next = Box::new(Next::Answered(applied));
    w.after(underway.answer_in_ms, Event::Commit(at, table, next));
}

fn tell(w: &mut World, at: At, hub: &mut Hub, table: usize, news: Vec<Told>) {
    for told in news {
        let answer = match told.verdict {
            coordinator::Verdict::Durable { snapshot_id } => Said::Durable {
                snapshot_id,
                stamp: None,
            },
            coordinator::Verdict::Rejected(reason) => Said::rejected(&reason),
            coordinator::Verdict::Expired => Said::Expired,
            coordinator::Verdict::Fenced { epoch } => Said::Fenced { epoch },
            coordinator::Verdict::Failed(error) => Said::Blocked {
                reason: Said::reason(error.message()),
            },
        };
        match &mut hub.end {
            Some(end) => {
                let name = w.names[table].clone();
                end.channel.answer(told.session, name, told.seq, answer);
            }
            None => {
                if let Some(verdict) = verdict_of(answer) {
                    w.deliver(told.session, table, told.seq, verdict);
                }
            }
        }
    }
    if hub.end.is_some() {
        control::pump(w, at, hub);
    }
}
