//! The hub of one process: a coordinator and at most one commit for each table. What the engine
//! does around the real [`TableCoordinator`] and [`CommitMachine`], with the world in place of
//! catalogs and stores.

use frazil_core::SinkError;
use frazil_core::commit::action::{
    Action, Answer, Checked, CommitLimits, CommitSetup, Entropy, Submission,
};
use frazil_core::commit::attempt::CommitMachine;
use frazil_core::commit::location::StateLocation;
use frazil_core::commit::outcome::SegmentOutcome;
use frazil_core::commit::remembered::Trust;
use frazil_core::commit::validate::RejectReason;
use frazil_core::control::coordinator::{
    self, CoordinatorSettings, Next, Offer, TableCoordinator, Told,
};
use frazil_core::control::segment::Segment;
use frazil_core::control::task::Verdict;
use uuid::Uuid;

use crate::catalog::{Request, View, not_found};
use crate::names::{identity, session_index};
use crate::native::Inbound;
use crate::rng::Rng;
use crate::say;
use crate::swarm::TABLES;
use crate::wire::{self, PRODUCER_MS};
use crate::world::{InFlight, Stage, World};

/// How long a segment may wait for its commit.
pub(crate) const TTL_MS: u64 = 3_600_000;
/// A message may wait this long in its producer, uncounted; clocks of processes and a step differ by
/// less.
const TTL_SLACK_MS: u64 = PRODUCER_MS + 10_000;

/// The random numbers of one commit.
#[derive(Debug)]
pub(crate) struct Dice(pub(crate) Rng);

impl Entropy for Dice {
    fn uuid(&mut self) -> Uuid {
        Uuid::from_u128(u128::from(self.0.bits()) << 64 | u128::from(self.0.bits()))
    }

    fn snapshot_id(&mut self) -> i64 {
        (self.0.bits() >> 1) as i64
    }

    fn jitter(&mut self) -> u32 {
        (self.0.bits() >> 32) as u32
    }
}

/// What a commit waits for.
#[derive(Debug)]
enum Waits {
    Load,
    Check(Vec<usize>),
    Answer,
    Sleep(u64),
}

/// A batch on its way into its table.
#[derive(Debug)]
struct Commit {
    machine: CommitMachine<View, Dice>,
    batch: Vec<Segment>,
    waits: Waits,
}

/// The part of a process that commits.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    pub(crate) id: u32,
    pub(crate) process: usize,
    coordinators: [Option<TableCoordinator>; TABLES],
    commits: [Option<Commit>; TABLES],
    /// Each table as its last commit left it or found it, and whether a commit begins with that.
    remembered: [(Option<View>, Trust); TABLES],
    /// When to look at each table again.
    wake_ms: [u64; TABLES],
}

impl Hub {
    /// Makes the hub `id` of a process.
    pub(crate) fn new(id: u32, process: usize) -> Self {
        Hub {
            id,
            process,
            ..Hub::default()
        }
    }

    fn coordinator(&mut self, table: usize, interval_ms: u64) -> &mut TableCoordinator {
        self.wake_ms[table] = 0;
        self.coordinators[table].get_or_insert_with(|| {
            TableCoordinator::new(CoordinatorSettings::with_interval(interval_ms))
        })
    }

    /// A session holds rows for a segment.
    pub(crate) fn opened(&mut self, at: (usize, u64), segment: (Uuid, u64), now_ms: u64) {
        self.coordinator(at.0, at.1)
            .opened(segment.0, segment.1, now_ms);
    }

    /// A session waits for its commits.
    pub(crate) fn drain(&mut self, table: usize, session: Uuid) {
        if let Some(coordinator) = &mut self.coordinators[table] {
            coordinator.drain(session);
            self.wake_ms[table] = 0;
        }
    }

    /// A session of another process waits for its commits.
    pub(crate) fn drain_all(&mut self, session: Uuid) {
        (0..TABLES).for_each(|table| self.drain(table, session));
    }

    /// Somebody else coordinates from now on.
    pub(crate) fn step_down(&mut self) {
        for coordinator in self.coordinators.iter_mut().flatten() {
            coordinator.step_down();
        }
        self.wake_ms = [0; TABLES];
    }

    /// A session is gone.
    pub(crate) fn leave(&mut self, session: Uuid) {
        for (coordinator, wake_ms) in self.coordinators.iter_mut().zip(&mut self.wake_ms) {
            if let Some(coordinator) = coordinator {
                coordinator.leave(session);
                *wake_ms = 0;
            }
        }
    }

    /// Tells whether a commit of `table` waits for the answer of the catalog.
    pub(crate) fn awaits_answer(&self, table: usize) -> bool {
        let commit = self.commits[table].as_ref();
        commit.is_some_and(|commit| matches!(commit.waits, Waits::Answer))
    }
}

/// Takes a segment in.
pub(crate) fn offer(
    w: &mut World,
    hub: &mut Hub,
    segment: Segment,
    (urgent, expires_in_ms): (bool, u64),
) -> Offer {
    let table = w.names.table(&segment.table).unwrap_or(0);
    let now_ms = w.clock(hub.process);
    let interval_ms = w.plan.tables[table].interval_ms;
    let (session, seq) = (session_index(segment.session), segment.seq);
    let coordinator = hub.coordinator(table, interval_ms);
    let offer = coordinator.offer(segment, urgent, expires_in_ms, now_ms);
    say!(
        w,
        "hub {} takes session {session} t{table} seq {seq}: {offer:?}",
        hub.id
    );
    offer
}

/// Does one thing for one table. Returns whether there was something to do.
pub(crate) fn step(w: &mut World, hub: &mut Hub) -> bool {
    let first = w.rng.index(w.plan.tables.len());
    for turn in 0..w.plan.tables.len() {
        let table = (first + turn) % w.plan.tables.len();
        if step_table(w, hub, table) {
            return true;
        }
    }
    false
}

fn step_table(w: &mut World, hub: &mut Hub, table: usize) -> bool {
    let now_ms = w.clock(hub.process);
    if now_ms < hub.wake_ms[table] {
        return false;
    }
    let Some(mut commit) = hub.commits[table].take() else {
        return poll(w, hub, table, now_ms);
    };
    let action = match std::mem::replace(&mut commit.waits, Waits::Answer) {
        Waits::Answer => {
            hub.commits[table] = Some(commit);
            return false;
        }
        Waits::Sleep(until_ms) if now_ms < until_ms => {
            commit.waits = Waits::Sleep(until_ms);
            hub.wake_ms[table] = until_ms;
            hub.commits[table] = Some(commit);
            return false;
        }
        Waits::Sleep(_) => commit.machine.slept(),
        Waits::Load => load(w, &mut commit, table),
        Waits::Check(indexes) => {
            let found = check(w, &commit, &indexes);
            commit.machine.checked(found)
        }
    };
    w.dispatched();
    go_on(w, hub, table, commit, action);
    true
}

fn poll(w: &mut World, hub: &mut Hub, table: usize, now_ms: u64) -> bool {
    let Some(coordinator) = &mut hub.coordinators[table] else {
        hub.wake_ms[table] = u64::MAX;
        return false;
    };
    w.dispatched();
    match coordinator.poll(now_ms) {
        Next::Wait { until_ms } => hub.wake_ms[table] = until_ms.unwrap_or(u64::MAX),
        Next::Tell(told) => tell(w, hub, table, told),
        Next::Commit(batch) => begin(w, hub, table, batch, now_ms),
    }
    true
}

fn begin(w: &mut World, hub: &mut Hub, table: usize, batch: Vec<Segment>, now_ms: u64) {
    for segment in &batch {
        let Some(file) = w.file_of(segment) else {
            continue;
        };
        let age_ms = now_ms.saturating_sub(w.files[file].written_ms);
        if age_ms > TTL_MS + TTL_SLACK_MS {
            w.ledger
                .violated("S22", format!("file {file} is committed {age_ms} ms old"));
        }
    }
    say!(
        w,
        "hub {} commits {} segments of t{table}",
        hub.id,
        batch.len()
    );
    let setup = CommitSetup {
        table: w.names.tables[table].clone(),
        identity: identity(hub.id, w.plan.tables[table].branch),
        limits: CommitLimits {
            // The simulated catalog stores properties.
            state_location: StateLocation::Property,
            ..CommitLimits::default()
        },
    };
    let dice = Dice(Rng::new(w.rng.bits()));
    let (view, trust) = &mut hub.remembered[table];
    let remembered = view.clone().filter(|_| trust.begins_with_it());
    let mut machine = CommitMachine::new(setup, batch.clone(), dice).with_remembered(remembered);
    let action = machine.start();
    let commit = Commit {
        machine,
        batch,
        waits: Waits::Load,
    };
    go_on(w, hub, table, commit, action);
}

fn go_on(w: &mut World, hub: &mut Hub, table: usize, mut commit: Commit, action: Action<View>) {
    let now_ms = w.clock(hub.process);
    commit.machine.take_notes();
    commit.waits = match action {
        Action::Load => Waits::Load,
        Action::CheckManifests(indexes) => Waits::Check(indexes),
        Action::Sleep { ms } => Waits::Sleep(now_ms + ms),
        Action::Submit(submission) => {
            submit(w, hub, table, &commit, submission);
            Waits::Answer
        }
        Action::Done(outcomes) => return done(w, hub, table, &commit, outcomes),
    };
    hub.wake_ms[table] = match commit.waits {
        Waits::Answer => u64::MAX,
        Waits::Sleep(until_ms) => until_ms,
        _ => 0,
    };
    hub.commits[table] = Some(commit);
}

fn done(
    w: &mut World,
    hub: &mut Hub,
    table: usize,
    commit: &Commit,
    outcomes: Vec<(usize, SegmentOutcome)>,
) {
    for (index, outcome) in &outcomes {
        let segment = &commit.batch[*index];
        say!(
            w,
            "hub {}: session {} t{table} seq {}: {outcome:?}",
            hub.id,
            session_index(segment.session),
            segment.seq
        );
    }
    hub.wake_ms[table] = 0;
    hub.remembered[table]
        .1
        .learn(commit.machine.remembered_was());
    let now_ms = w.clock(hub.process);
    let interval_ms = w.plan.tables[table].interval_ms;
    let coordinator = hub.coordinator(table, interval_ms);
    let told = coordinator.settle(&commit.batch, outcomes, now_ms);
    tell(w, hub, table, told);
}

/// Gives a commit the answer of the catalog.
pub(crate) fn answered(w: &mut World, hub: &mut Hub, table: usize, answer: Answer<View>) {
    let Some(mut commit) = hub.commits[table].take() else {
        return;
    };
    if let Answer::Committed(view) = &answer {
        hub.remembered[table].0 = Some(view.clone());
    }
    let action = commit.machine.answered(answer);
    go_on(w, hub, table, commit, action);
}

fn load(w: &mut World, commit: &mut Commit, table: usize) -> Action<View> {
    if w.faulty() && w.rng.chance(w.plan.chances.load_fails) {
        let error = SinkError::retriable("CATALOG_UNREACHABLE", "no answer");
        return commit.machine.load_failed(error);
    }
    let view = match w.faulty() && w.rng.chance(w.plan.chances.load_stale) {
        true => w.catalog.load_stale(table),
        false => w.catalog.load(table),
    };
    match view.cloned() {
        Some(view) => commit.machine.loaded(view),
        None => commit.machine.load_failed(not_found()),
    }
}

fn check(w: &mut World, commit: &Commit, indexes: &[usize]) -> Vec<Checked> {
    let mut found = Vec::with_capacity(indexes.len());
    for index in indexes {
        let Some(file) = w.file_of(&commit.batch[*index]) else {
            continue;
        };
        w.files[file].checked = true;
        let reason = w.files[file].gone.then(|| RejectReason::ManifestChanged {
            path: format!("file {file}"),
        });
        found.push((*index, Ok(reason)));
    }
    found
}

fn submit(w: &mut World, hub: &Hub, table: usize, commit: &Commit, submission: Submission<View>) {
    let now_ms = w.wall_ms(hub.process);
    let identity = &commit.machine.setup().identity;
    let (cid, snapshot) = (submission.commit_id, submission.snapshot_id);
    let state = identity.sign(submission.state, cid, snapshot, now_ms);
    let files = submission
        .batch
        .iter()
        .filter_map(|index| w.file_of(&commit.batch[*index]))
        .collect();
    w.requests.push(InFlight {
        request: Request {
            table,
            branch: w.plan.tables[table].branch,
            base: submission.base,
            snapshot_id: submission.snapshot_id,
            files,
            state,
            now_ms,
        },
        owner: Some((hub.process, hub.id)),
        stage: Stage::Sent,
    });
}

fn tell(w: &mut World, hub: &mut Hub, table: usize, told: Vec<Told>) {
    for told in told {
        hub_tells(w, hub, table, told);
    }
}

fn hub_tells(w: &mut World, hub: &mut Hub, table: usize, told: Told) {
    let session = session_index(told.session);
    if let coordinator::Verdict::Durable { snapshot_id } = &told.verdict
        && let Some(file) = w.file_at(session, table, told.seq)
    {
        let file_copy = w.files[file].clone();
        // A state that is read through a later reset names no snapshot.
        let named = snapshot_id.filter(|id| *id >= 0);
        w.ledger.told_durable(&file_copy, file, named);
    }
    let Some(told) = wire::tell(w, hub, table, told) else {
        return;
    };
    let verdict = match told.verdict {
        coordinator::Verdict::Durable { .. } => Verdict::Durable,
        coordinator::Verdict::Rejected(reason) => Verdict::Rejected(reason.to_string()),
        coordinator::Verdict::Expired => Verdict::Expired,
        coordinator::Verdict::Fenced { epoch } => Verdict::Fenced { epoch },
        coordinator::Verdict::Failed(error) => Verdict::Failed(error.into()),
    };
    let inbound = Inbound::Outcome {
        session,
        table,
        seq: told.seq,
        verdict,
    };
    w.deliver(hub.process, session, inbound);
}
