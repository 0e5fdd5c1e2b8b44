//! The world: everything that runs, and the one loop that lets one of them do one thing at a time.
//!
//! Whose turn it is decides the seed, by weights of its own: so there are runs with a slow catalog,
//! with a slow coordinator, with tasks that outrun both. Time passes with every step. After the
//! faults have stopped everybody gets turns, until W has reached the end of the log.

use std::rc::Rc;

use frazil_core::SinkError;
use frazil_core::commit::action::Answer;
use frazil_core::commit::anchor::Anchor;
use frazil_core::control::coordinator::Offer;
use frazil_core::control::segment::Segment;
use frazil_core::control::task::Verdict;
use frazil_core::offsets::TopicPartition;
use uuid::Uuid;

use crate::catalog::{Catalog, Refusal, Request, View};
use crate::check::{File, Ledger, Violation};
use crate::faults;
use crate::group::{Group, RunId};
use crate::hub::{self, Hub, TTL_MS};
use crate::names::{Names, session_id, session_index};
use crate::native::{self, Block, Inbound, UNSEEN};
use crate::resets::{self, Reset};
use crate::rng::Rng;
use crate::run::{self, Fate, Run};
use crate::swarm::{Bits, PARTITIONS, Plan, TABLES, Transport, between};
use crate::wire::{self, End, Topic};

/// Steps after the faults within which W must have reached the end of the log (S24).
const LIVENESS_STEPS: u64 = 120_000;
/// Steps for which faults go on when nothing is left to do.
const IDLE_STEPS: u64 = 300;
/// When the world begins, for clocks that show the time since 1970.
const BEGIN_MS: u64 = 1_700_000_000_000;

/// Rules that the world itself keeps, where it stands for Java and for the engine. Only the
/// mutation gate sets one; no checker looks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Switches {
    /// J3 off: what `preCommit` answers is not clamped to what was asked.
    pub(crate) does_not_clamp: bool,
    /// J4 off: rewinds are not cut to the assignment.
    pub(crate) rewinds_anything: bool,
    /// R10 off: the files of a session that starts over are deleted.
    pub(crate) deletes_files: bool,
    /// R13 off: where a record goes depends on chance.
    pub(crate) routes_by_chance: bool,
    /// R16 off in Java: `preCommit` asks the session while a rewind is pending.
    pub(crate) moves_while_rewinding: bool,
}

/// A session of some task.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) run: RunId,
    pub(crate) files: [Vec<usize>; TABLES],
}

/// An upload on its way.
#[derive(Debug)]
pub(crate) struct Io {
    pub(crate) process: usize,
    pub(crate) hub: u32,
    pub(crate) file: usize,
    pub(crate) segment: Segment,
    pub(crate) urgent: bool,
}

/// Where a request stands.
#[derive(Debug)]
pub(crate) enum Stage {
    Sent,
    Answered(Result<View, Denied>),
}

/// Why a request was not applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    Changed,
    Missing,
    Refused,
    Unauthorized,
}

/// A request to the catalog, and who waits for its answer.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) request: Request,
    pub(crate) owner: Option<(usize, u32)>,
    pub(crate) stage: Stage,
}

/// A worker process.
#[derive(Debug, Default)]
pub(crate) struct Process {
    pub(crate) hub: Option<Box<Hub>>,
    /// Its end of the control topic; none with the local transport.
    pub(crate) end: Option<Box<End>>,
    pub(crate) hub_id: u32,
    pub(crate) paused_until: u64,
    pub(crate) skew_ms: i64,
    clock_ms: u64,
}

/// One run of the simulator.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) switches: Switches,
    pub(crate) rng: Rng,
    pub(crate) now_ms: u64,
    pub(crate) steps: u64,
    hash: u64,
    pub(crate) tracing: bool,
    pub(crate) names: Rc<Names>,
    pub(crate) ledger: Ledger,
    pub(crate) files: Vec<File>,
    pub(crate) sessions: Vec<Session>,
    pub(crate) catalog: Catalog,
    pub(crate) requests: Vec<InFlight>,
    pub(crate) group: Group,
    /// Partitions that exist.
    pub(crate) active: usize,
    /// The end of the log of each.
    pub(crate) ends: [i64; PARTITIONS],
    pub(crate) runs: Vec<Option<Box<Run>>>,
    pub(crate) processes: Vec<Process>,
    pub(crate) topic: Topic,
    pub(crate) io: Vec<Io>,
    /// Members that are dead, and the group does not know yet.
    pub(crate) ghosts: Vec<RunId>,
    run_ids: RunId,
    hub_ids: u32,
    pub(crate) config: usize,
    pub(crate) epoch: u64,
    pub(crate) reset: Option<Reset>,
    /// The record of resets that the connector wrote last.
    pub(crate) anchor: Anchor,
    faults_on: bool,
    pub(crate) redone: u64,
    pub(crate) rejected: u64,
    pub(crate) failures: u64,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) steps: u64,
    pub(crate) hash: u64,
    pub(crate) redone: u64,
    pub(crate) rejected: u64,
    pub(crate) commits: u64,
    pub(crate) violation: Option<Violation>,
}

/// Prints a line of the trace, if somebody wants one.
#[macro_export]
macro_rules! say {
    ($world:expr, $($text:tt)*) => {
        if $world.tracing {
            println!("{:>7} {:>9} ms  {}", $world.steps, $world.now_ms, format_args!($($text)*));
        }
    };
}

impl World {
    /// Makes the world of `seed`.
    pub(crate) fn new(seed: u64, switches: Switches, names: &Rc<Names>, tracing: bool) -> Self {
        let plan = Plan::draw(seed);
        let mut rng = Rng::new(seed ^ 0x5bd1_e995);
        let catalog = Catalog::new(&plan);
        let active = plan.partitions;
        let mut ends = [0; PARTITIONS];
        for (end, offsets) in ends.iter_mut().zip(plan.offsets) {
            *end = rng.below(offsets as u64 + 1) as i64;
        }
        let mut world = World {
            catalog,
            active,
            ends,
            switches,
            rng,
            now_ms: 0,
            steps: 0,
            hash: seed,
            tracing,
            names: Rc::clone(names),
            ledger: Ledger::new(),
            files: Vec::with_capacity(64),
            sessions: Vec::with_capacity(16),
            requests: Vec::new(),
            group: Group::default(),
            runs: Vec::new(),
            processes: Vec::new(),
            topic: Topic::new(plan.transports.len()),
            io: Vec::new(),
            ghosts: Vec::new(),
            run_ids: 0,
            hub_ids: 0,
            config: 0,
            epoch: 0,
            reset: None,
            anchor: Anchor::default(),
            faults_on: true,
            redone: 0,
            rejected: 0,
            failures: 0,
            plan,
        };
        world.populate();
        world
    }

    fn populate(&mut self) {
        for process in 0..self.plan.transports.len() {
            self.processes.push(Process::default());
            self.start_process(process);
        }
        faults::elect(self);
        for task in 0..self.plan.tasks {
            let process = self.rng.index(self.processes.len());
            self.start_task(process, task, true);
        }
    }

    /// Starts, or starts anew, a process.
    pub(crate) fn start_process(&mut self, process: usize) {
        self.hub_ids += 1;
        let clock_ms = BEGIN_MS + self.rng.below(500);
        let slot = &mut self.processes[process];
        slot.hub_id = self.hub_ids;
        slot.hub = Some(Box::new(Hub::new(self.hub_ids, process)));
        slot.clock_ms = clock_ms;
        self.processes[process].end = wire::join_topic(self, process, self.hub_ids);
    }

    fn start_task(&mut self, process: usize, task: usize, at_once: bool) {
        self.run_ids += 1;
        let id = self.run_ids;
        let session = self.new_session_of(id);
        let machine = native::machine(self, (process, task), self.epoch, session);
        wire::join(self, process, session_id(session), (task, self.epoch));
        let mut run = Run::new((id, self.config), (process, task), machine, self.now_ms);
        if at_once {
            run.join(self);
        }
        say!(
            self,
            "task {id} starts as task number {task} of process {process}, session {session}"
        );
        self.runs.push(Some(Box::new(run)));
    }

    /// Counts an event that reached a machine or an actor.
    #[inline]
    pub(crate) fn dispatched(&mut self) {
        self.steps += 1;
        let shape = (self.files.len() as u64) << 40 ^ (self.requests.len() as u64) << 20;
        self.hash =
            (self.hash.rotate_left(7) ^ self.now_ms ^ shape).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// Tells whether faults still come.
    #[inline]
    pub(crate) fn faulty(&self) -> bool {
        self.faults_on
    }

    /// Returns the clock of a process that never goes back.
    pub(crate) fn clock(&self, process: usize) -> u64 {
        self.now_ms + self.processes[process].clock_ms
    }

    /// Returns the clock of a process that people set.
    pub(crate) fn wall_ms(&self, process: usize) -> i64 {
        self.clock(process) as i64 + self.processes[process].skew_ms
    }

    /// Returns the id of the process's hub.
    pub(crate) fn hub_id(&self, process: usize) -> u32 {
        self.processes[process].hub_id
    }

    /// Returns the records of a block that reach a task.
    pub(crate) fn records(&self, block: Block) -> Bits {
        let unseen = self.plan.no_record[block.partition] | self.plan.filtered[block.partition];
        between(block.from, block.to) & !unseen
    }

    /// Returns where a record goes.
    pub(crate) fn route(&mut self, config: usize, partition: usize, offset: usize) -> u8 {
        let route = self.plan.routes[config][partition][offset];
        if self.switches.routes_by_chance && route & UNSEEN == 0 && self.rng.chance(30) {
            return 1 << self.rng.index(self.plan.tables.len());
        }
        route
    }

    /// Returns the timestamp of a record. They rise only roughly.
    pub(crate) fn timestamp(&self, partition: usize, offset: i64) -> i64 {
        let jitter = (offset * 7_919 + partition as i64 * 104_729) % 40_000;
        BEGIN_MS as i64 + offset * 1_000 + jitter
    }

    /// Returns the number of the session that may begin next.
    pub(crate) fn next_session(&self) -> usize {
        self.sessions.len()
    }

    /// Begins a session of `run`.
    pub(crate) fn new_session_of(&mut self, run: RunId) -> usize {
        self.sessions.push(Session {
            run,
            ..Session::default()
        });
        self.ledger.session();
        self.sessions.len() - 1
    }

    /// Returns the file of a segment.
    pub(crate) fn file_of(&self, segment: &Segment) -> Option<usize> {
        let table = self.names.table(&segment.table)?;
        self.file_at(session_index(segment.session), table, segment.seq)
    }

    /// Returns the file of a segment, by its number.
    pub(crate) fn file_at(&self, session: usize, table: usize, seq: u64) -> Option<usize> {
        let files = &self.sessions.get(session)?.files[table];
        files.get(seq as usize).copied()
    }

    /// Returns the partitions of a mask.
    pub(crate) fn partitions(&self, mask: u8) -> Vec<TopicPartition> {
        let named = self.names.partitions.iter().enumerate();
        named
            .filter(|(index, _)| mask & (1 << index) != 0)
            .map(|(_, partition)| partition.clone())
            .collect()
    }

    fn with_hub(&mut self, process: usize, work: impl FnOnce(&mut World, &mut Hub)) {
        if let Some(mut hub) = self.processes[process].hub.take() {
            work(self, &mut hub);
            self.processes[process].hub = Some(hub);
        }
    }

    /// A session of `process` holds rows for a segment.
    pub(crate) fn opened(
        &mut self,
        process: usize,
        table: usize,
        segment: (Uuid, u64),
        now_ms: u64,
    ) {
        if self.plan.transports[process] == Transport::Topic {
            return;
        }
        let interval_ms = self.plan.tables[table].interval_ms;
        self.with_hub(process, |_, hub| {
            hub.opened((table, interval_ms), segment, now_ms);
        });
    }

    /// A session of `process` waits for its commits.
    pub(crate) fn drain(&mut self, process: usize, table: usize, session: Uuid) {
        match self.plan.transports[process] {
            Transport::Topic => wire::drain(self, process, session),
            Transport::Local => self.with_hub(process, |_, hub| hub.drain(table, session)),
        }
    }

    /// A session of `process` is gone.
    pub(crate) fn leave(&mut self, process: usize, session: Uuid) {
        wire::leave(self, process, session);
        self.with_hub(process, |_, hub| hub.leave(session));
    }

    /// Brings an outcome to the task of a session.
    pub(crate) fn deliver(&mut self, process: usize, session: usize, inbound: Inbound) {
        let id = self.sessions[session].run;
        let of_session = |run: &&mut Box<Run>| run.id == id && run.process == process;
        if let Some(run) = self.runs.iter_mut().flatten().find(of_session) {
            run.inbox.push(inbound);
        }
    }

    /// Runs until the faults have stopped and everything is done.
    pub(crate) fn run(mut self, steps_max: Option<u64>) -> Outcome {
        let faulty_steps = steps_max.unwrap_or(self.plan.faulty_steps);
        let is_calm = self.plan.is_calm();
        let mut done_since = u64::MAX;
        while self.steps < faulty_steps && self.ledger.violation.is_none() {
            self.step();
            match self.is_done() {
                true => done_since = done_since.min(self.steps),
                false => done_since = u64::MAX,
            }
            if done_since.saturating_add(IDLE_STEPS) < self.steps {
                break;
            }
        }
        self.stop_faults();
        let limit = self.steps + LIVENESS_STEPS;
        while self.ledger.violation.is_none() && !self.is_done() {
            if self.steps >= limit {
                self.runs
                    .iter()
                    .flatten()
                    .for_each(|run| say!(self, "{run:?}"));
                let committed: Vec<i64> =
                    (0..self.active).map(|p| self.group.position(p)).collect();
                let what = format!("W is {committed:?}, the log ends at {:?}", self.ends);
                self.ledger.violated("S24", what);
            }
            self.step();
        }
        if self.ledger.violation.is_none() {
            self.catalog.check_pairs(&self.plan, &mut self.ledger);
        }
        if is_calm && self.redone + self.rejected + self.failures > 0 {
            let what = format!("{} starts over, {} rejections", self.redone, self.rejected);
            self.ledger.violated("S23", what);
        }
        Outcome {
            steps: self.steps,
            hash: self.hash,
            redone: self.redone,
            rejected: self.rejected,
            commits: self.ledger.commits,
            violation: self.ledger.violation,
        }
    }

    fn is_done(&self) -> bool {
        let at_end = |p: usize| self.group.position(p) == self.plan.offsets[p];
        self.reset.is_none() && (0..self.active).all(at_end)
    }

    fn stop_faults(&mut self) {
        say!(self, "the faults stop");
        self.faults_on = false;
        self.plan.chances = Default::default();
        self.plan.weights = [24, 16, 16, 16, 24, 8, 8];
        self.ends[..self.active].copy_from_slice(&self.plan.offsets[..self.active]);
        for process in 0..self.processes.len() {
            self.processes[process].paused_until = 0;
            if self.processes[process].hub.is_none() {
                self.start_process(process);
            }
        }
    }

    fn step(&mut self) {
        self.now_ms += self.rng.below(self.plan.step_ms_max + 1);
        if self.faults_on && self.plan.has_chaos() && self.rng.below(self.plan.calm) == 0 {
            self.dispatched();
            faults::strike(self);
        }
        let weights = self.plan.weights;
        let worked = match self.rng.weighted(&weights) {
            Some(1) => self.step_hub(),
            Some(2) => self.step_request(),
            Some(3) => self.step_io(),
            Some(4) => self.step_wire(),
            Some(5) => self.step_letters(),
            Some(6) => self.housekeeping(),
            _ => false,
        };
        if !worked {
            self.step_run();
        }
    }

    fn is_paused(&self, process: usize) -> bool {
        self.processes[process].paused_until > self.now_ms
    }

    fn step_run(&mut self) {
        if self.runs.is_empty() {
            self.housekeeping();
            return;
        }
        let index = self.rng.index(self.runs.len());
        let Some(mut run) = self.runs[index].take() else {
            return;
        };
        if self.is_paused(run.process) {
            self.runs[index] = Some(run);
            return;
        }
        self.dispatched();
        match run::step(self, &mut run) {
            Fate::Alive => self.runs[index] = Some(run),
            Fate::Gone => {
                say!(self, "task {} is gone", run.id);
                self.runs.swap_remove(index);
            }
        }
    }

    fn step_hub(&mut self) -> bool {
        let process = self.rng.index(self.processes.len());
        if self.is_paused(process) {
            return false;
        }
        let mut worked = false;
        self.with_hub(process, |w, hub| worked = hub::step(w, hub));
        worked
    }

    fn step_request(&mut self) -> bool {
        if self.requests.is_empty() {
            return false;
        }
        let index = self.rng.index(self.requests.len());
        self.dispatched();
        match &self.requests[index].stage {
            Stage::Sent => self.serve(index),
            Stage::Answered(_) => self.answer(index),
        }
        true
    }

    /// The catalog takes up a request.
    fn serve(&mut self, index: usize) {
        let chances = self.plan.chances;
        let waited_for = self.requests[index].owner.is_some();
        if !waited_for && !self.rng.chance(chances.late) {
            self.requests.swap_remove(index);
            return;
        }
        if waited_for && self.rng.chance(chances.unknown) {
            // Applied already, or to be applied later, or never.
            if self.rng.chance(400) {
                let _ = self.apply(index);
            }
            let owner = self.requests[index].owner.take();
            say!(
                self,
                "nobody hears what became of {}",
                self.requests[index].request.snapshot_id
            );
            return self.tell_hub(owner, index, unclear());
        }
        if self.rng.chance(chances.refused) {
            let denied = self.rng.pick(&[Denied::Refused, Denied::Unauthorized]);
            self.requests[index].stage = Stage::Answered(Err(denied));
            return;
        }
        let mut result = self.apply(index);
        if self.rng.chance(chances.replay) {
            result = self.apply(index);
        }
        self.requests[index].stage = Stage::Answered(result.map_err(|refusal| match refusal {
            Refusal::Changed => Denied::Changed,
            Refusal::Missing => Denied::Missing,
        }));
    }

    fn apply(&mut self, index: usize) -> Result<View, Refusal> {
        let request = &self.requests[index].request;
        let books = (&mut self.ledger, self.files.as_mut_slice());
        let result = self.catalog.apply(&self.plan, &self.names, books, request);
        say!(
            self,
            "catalog: snapshot {} of t{} with files {:?}: {}",
            request.snapshot_id,
            request.table,
            request.files,
            if result.is_ok() { "applied" } else { "refused" }
        );
        result
    }

    /// The answer arrives, if somebody still waits for it.
    fn answer(&mut self, index: usize) {
        let owner = self.requests[index].owner;
        if let Some((process, _)) = owner
            && self.is_paused(process)
        {
            return;
        }
        let in_flight = self.requests.swap_remove(index);
        let Stage::Answered(result) = in_flight.stage else {
            return;
        };
        let changed = || SinkError::retriable("COMMIT_CONFLICT", "the table has changed");
        let refused = |text: &'static str| SinkError::fatal("COMMIT_REFUSED", text);
        let answer = match result {
            Ok(view) => Answer::Committed(view),
            Err(Denied::Changed) if self.rng.chance(self.plan.chances.bad_request) => {
                Answer::Refused(refused("a stale sequence number"))
            }
            Err(Denied::Changed) => Answer::Conflict(changed()),
            Err(Denied::Missing) => Answer::Refused(refused("there is no such table")),
            Err(Denied::Refused) => Answer::Refused(refused("not today")),
            Err(Denied::Unauthorized) => Answer::Unauthorized(refused("no longer valid")),
        };
        let table = in_flight.request.table;
        self.tell_owner(owner, table, answer);
    }

    fn tell_hub(&mut self, owner: Option<(usize, u32)>, index: usize, answer: Answer<View>) {
        let table = self.requests[index].request.table;
        self.tell_owner(owner, table, answer);
    }

    fn tell_owner(&mut self, owner: Option<(usize, u32)>, table: usize, answer: Answer<View>) {
        let Some((process, id)) = owner else { return };
        self.with_hub(process, |w, hub| {
            if hub.id == id && hub.awaits_answer(table) {
                hub::answered(w, hub, table, answer);
            }
        });
    }

    fn step_wire(&mut self) -> bool {
        if self.rng.chance(300) && wire::write(self) {
            return true;
        }
        let process = self.rng.index(self.processes.len());
        !self.is_paused(process) && wire::step(self, process)
    }

    /// An upload ends, and its segment goes to the coordinator.
    fn step_io(&mut self) -> bool {
        if self.io.is_empty() {
            return false;
        }
        let index = self.rng.index(self.io.len());
        if self.is_paused(self.io[index].process) {
            return false;
        }
        self.dispatched();
        let io = self.io.swap_remove(index);
        let session = session_index(io.segment.session);
        if io.hub != self.hub_id(io.process) {
            return true;
        }
        let (table, seq) = (self.files[io.file].table, io.segment.seq);
        if self.faults_on && self.rng.chance(self.plan.chances.upload_fails) {
            let failed = Inbound::SealFailed {
                session,
                table,
                seq,
            };
            self.deliver(io.process, session, failed);
            return true;
        }
        self.files[io.file].written_ms = self.clock(io.process);
        let Some(segment) = wire::submit(self, io.process, io.segment, io.urgent) else {
            return true;
        };
        let terms = (io.urgent, TTL_MS);
        let mut offer = Offer::Accepted;
        self.with_hub(io.process, |w, hub| {
            offer = hub::offer(w, hub, segment, terms)
        });
        if offer == Offer::Dead {
            let verdict = Verdict::Rejected("its session has ended".to_owned());
            let inbound = Inbound::Outcome {
                session,
                table,
                seq,
                verdict,
            };
            self.deliver(io.process, session, inbound);
        }
        true
    }

    /// Dead letters are acknowledged.
    fn step_letters(&mut self) -> bool {
        let waits = |run: &&mut Box<Run>| run::has_letters(run);
        let Some(index) = self
            .runs
            .iter_mut()
            .position(|run| run.as_mut().is_some_and(|run| waits(&run)))
        else {
            return false;
        };
        if let Some(mut run) = self.runs[index].take() {
            self.dispatched();
            run::acknowledge(self, &mut run);
            self.runs[index] = Some(run);
        }
        true
    }

    /// Producers produce, operators start what is missing, brokers notice who is gone.
    fn housekeeping(&mut self) -> bool {
        self.dispatched();
        let partition = self.rng.index(self.active);
        if self.ends[partition] < self.plan.offsets[partition] && self.rng.chance(512) {
            self.ends[partition] += 1;
        }
        if let Some(ghost) = self.ghosts.pop() {
            self.group.remove(ghost, self.active, &mut self.rng);
        }
        for table in 0..self.plan.tables.len() {
            if self.catalog.load(table).is_none() && self.rng.chance(300) {
                self.catalog.create(table);
                say!(self, "t{table} is created again");
                self.ledger.replaced(table);
            }
        }
        if self.processes.iter().any(|process| process.hub.is_none()) {
            let process = self.rng.index(self.processes.len());
            if self.processes[process].hub.is_none() {
                self.start_process(process);
            }
        }
        resets::go_on(self);
        if self.rng.chance(10) {
            resets::start_connector(self);
        }
        if self.reset.is_none() {
            self.start_missing_task();
        }
        true
    }

    fn start_missing_task(&mut self) {
        let task = self.rng.index(self.plan.tasks);
        let runs = || self.runs.iter().flatten();
        if runs().any(|run| run.task == task && !run.detached) {
            return;
        }
        let process = self.rng.index(self.processes.len());
        if !self.is_paused(process) && self.processes[process].hub.is_some() {
            self.start_task(process, task, false);
        }
    }
}

fn unclear() -> Answer<View> {
    Answer::Unknown(SinkError::retriable("COMMIT_UNKNOWN", "no answer"))
}
