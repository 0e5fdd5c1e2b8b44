//! The world of the rolling restart: its clock, what is to happen when, and what is counted.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

use frazil_core::commit::plan::CommitIdentity;
use frazil_core::control::message::TableName;
use frazil_core::control::segment::Segment;
use frazil_core::control::task::Verdict;
use frazil_core::offsets::TopicPartition;
use iceberg::{NamespaceIdent, TableIdent};
use uuid::Uuid;

use super::cluster::{self, Cluster, Step};
use super::control::{self, Election};
use super::group::{self, Group};
use super::hub::{self, Hub, Next};
use super::tables::Table;
use super::task::{self, Run, RunId};
use super::{Pace, Size, Transport};
use crate::names::WID;
use crate::rng::Rng;

/// The branch of all tables.
pub(super) const BRANCH: &str = "main";
/// When the world begins, for clocks that show the time since 1970.
const BEGIN_MS: u64 = 1_700_000_000_000;
/// Milliseconds between two records of a partition.
const RECORD_MS: u64 = 1_000;

/// What happens at some time.
#[derive(Debug)]
pub(super) enum Event {
    /// The loop of a task goes on.
    Loop(RunId),
    /// A task that waits for its last commits looks again.
    Drained(RunId),
    /// A task hears that its group rebalances.
    Heartbeat(RunId, u64),
    /// A task gets partitions in a generation of its group.
    Assigned(RunId, u64, Vec<usize>),
    /// The files of a segment are in the store.
    Uploaded(At, Box<Segment>, bool),
    /// A process looks at the control topic.
    Exchange(At),
    /// Messages come to the control topic.
    Written(Vec<Vec<u8>>),
    /// The control partition gets an owner.
    Elected(u64),
    /// The manifests of another process's segment were read.
    Checked(At, Box<Segment>, (bool, u64)),
    /// A coordinator has something to do.
    Poll(At, usize),
    /// A commit goes on.
    Commit(At, usize, Box<Next>),
    /// A request is with the catalog.
    Apply(At, usize, Box<hub::Underway>),
    /// Something of Connect's own.
    Cluster(Step),
}

/// A process, and which of its lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    pub(super) process: usize,
    pub(super) life: u32,
}

#[derive(Debug)]
struct Due {
    at_ms: u64,
    number: u64,
    event: Event,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at_ms, self.number).cmp(&(other.at_ms, other.number))
    }
}

/// What is counted; all of it only grows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    /// Loads of tables by tasks.
    pub(super) task_loads: u64,
    /// Loads of tables for commits.
    pub(super) commit_loads: u64,
    /// Commit requests, and those that were answered 409.
    pub(super) requests: u64,
    pub(super) conflicts: u64,
    /// Messages of the control topic and their bytes: every process reads all of them.
    pub(super) messages: u64,
    pub(super) message_bytes: u64,
    /// Messages that did not fit into a process's queue.
    pub(super) dropped: u64,
    pub(super) elections: u64,
    pub(super) rebalances: u64,
    /// Segments sealed, sessions that started over, tasks that failed.
    pub(super) segments: u64,
    pub(super) start_overs: u64,
    pub(super) failures: u64,
}

/// A worker process.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) hub: Option<Box<Hub>>,
    pub(super) life: u32,
    /// Its clock is so much ahead.
    skew_ms: u64,
}

/// One run.
#[derive(Debug)]
pub(super) struct World {
    pub(super) size: Size,
    pub(super) pace: Pace,
    pub(super) rng: Rng,
    pub(super) now_ms: u64,
    queue: BinaryHeap<Reverse<Due>>,
    events: u64,
    pub(super) idents: Vec<TableIdent>,
    pub(super) names: Vec<TableName>,
    pub(super) partitions: Vec<TopicPartition>,
    pub(super) tables: Vec<Table>,
    pub(super) processes: Vec<Process>,
    pub(super) runs: Vec<Option<Box<Run>>>,
    /// The run of each session.
    pub(super) sessions: BTreeMap<Uuid, RunId>,
    session_ids: usize,
    pub(super) group: Group,
    pub(super) election: Election,
    pub(super) cluster: Cluster,
    pub(super) counts: Counts,
    /// When the last record is written.
    pub(super) stop_ms: u64,
}

impl World {
    /// Makes a world in which nothing runs yet.
    pub(super) fn new(size: Size) -> Self {
        let mut rng = Rng::new(size.seed);
        let partitions = size.tasks();
        let process = |_| Process {
            skew_ms: rng.below(20),
            ..Process::default()
        };
        let processes = (0..size.workers).map(process).collect();
        let ident = |index: usize| {
            let namespace = NamespaceIdent::new("db".to_owned());
            TableIdent::new(namespace, format!("t{index:02}"))
        };
        let idents: Vec<TableIdent> = (0..size.tables).map(ident).collect();
        World {
            pace: size.pace,
            rng,
            now_ms: 0,
            queue: BinaryHeap::new(),
            events: 0,
            names: idents.iter().map(|i| TableName::new(i, BRANCH)).collect(),
            idents,
            partitions: (0..partitions)
                .map(|index| TopicPartition::new("orders", index as i32))
                .collect(),
            tables: (0..size.tables)
                .map(|i| Table::new(i, partitions))
                .collect(),
            processes,
            runs: Vec::new(),
            sessions: BTreeMap::new(),
            session_ids: 0,
            group: Group::new(partitions),
            election: Election::default(),
            cluster: Cluster::new(&size),
            counts: Counts::default(),
            stop_ms: u64::MAX,
            size,
        }
    }

    /// Lets `event` happen in `in_ms`.
    pub(super) fn after(&mut self, in_ms: u64, event: Event) {
        self.events += 1;
        self.queue.push(Reverse(Due {
            at_ms: self.now_ms + in_ms,
            number: self.events,
            event,
        }));
    }

    /// Returns a number of milliseconds within `range`.
    pub(super) fn draw(&mut self, (low, high): (u64, u64)) -> u64 {
        self.rng.between(low, high)
    }

    /// Goes on to `until_ms`, or until the rolling restart is over.
    pub(super) fn run(&mut self, until_ms: u64) {
        while let Some(Reverse(due)) = self.queue.peek()
            && due.at_ms <= until_ms
        {
            let Some(Reverse(due)) = self.queue.pop() else {
                return;
            };
            self.now_ms = due.at_ms;
            self.happen(due.event);
            if self.cluster.is_over() && until_ms == u64::MAX {
                return;
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Loop(run) => self.with_run(run, task::iterate),
            Event::Drained(run) => self.with_run(run, task::drained),
            Event::Heartbeat(run, generation) => group::heartbeat(self, run, generation),
            Event::Assigned(run, generation, partitions) => {
                if let Some(partitions) = group::assigned(self, run, generation, partitions) {
                    self.with_run(run, |w, run| task::assign(w, run, partitions));
                }
            }
            Event::Uploaded(at, segment, urgent) => hub::uploaded(self, at, *segment, urgent),
            Event::Exchange(at) => control::exchange(self, at),
            Event::Written(messages) => control::written(self, messages),
            Event::Elected(term) => control::elected(self, term),
            Event::Checked(at, segment, terms) => control::checked(self, at, *segment, terms),
            Event::Poll(at, table) => hub::poll(self, at, table),
            Event::Commit(at, table, next) => hub::go_on(self, at, table, *next),
            Event::Apply(at, table, underway) => hub::apply(self, at, table, *underway),
            Event::Cluster(step) => cluster::step(self, step),
        }
    }

    fn with_run(&mut self, id: RunId, work: impl FnOnce(&mut World, &mut Run)) {
        let Some(mut run) = self.runs[id].take() else {
            return;
        };
        work(self, &mut run);
        if run.is_gone() {
            self.sessions.retain(|_, known| *known != id);
            cluster::task_gone(self, &run);
            return;
        }
        self.runs[id] = Some(run);
    }

    /// Returns the clock of a process.
    pub(super) fn clock(&self, process: usize) -> u64 {
        BEGIN_MS + self.now_ms + self.processes[process].skew_ms
    }

    /// Returns how long it is until a process's clock shows `clock_ms`.
    pub(super) fn until(&self, process: usize, clock_ms: u64) -> u64 {
        clock_ms.saturating_sub(self.clock(process))
    }

    /// Returns which life a process lives.
    pub(super) fn at(&self, process: usize) -> At {
        let life = self.processes[process].life;
        At { process, life }
    }

    /// Takes the hub of a process, if it still lives that life. Give it [back](Self::give_back).
    pub(super) fn take_hub(&mut self, at: At) -> Option<Box<Hub>> {
        let process = &mut self.processes[at.process];
        match process.life == at.life {
            true => process.hub.take(),
            false => None,
        }
    }

    /// Gives a hub back.
    pub(super) fn give_back(&mut self, at: At, hub: Box<Hub>) {
        self.processes[at.process].hub = Some(hub);
    }

    /// Returns the id that the next session would have.
    pub(super) fn fresh_session(&self) -> Uuid {
        crate::names::session_id(self.session_ids)
    }

    /// Begins a session of `run` under that id.
    pub(super) fn begin_session(&mut self, run: RunId) -> Uuid {
        let session = self.fresh_session();
        self.session_ids += 1;
        self.sessions.insert(session, run);
        session
    }

    /// Tells a session what became of a segment.
    pub(super) fn deliver(&mut self, session: Uuid, table: usize, seq: u64, verdict: Verdict) {
        let Some(id) = self.sessions.get(&session).copied() else {
            return;
        };
        if let Some(run) = &mut self.runs[id] {
            run.inbox.push((session, table, seq, verdict));
            if run.is_draining() {
                self.after(0, Event::Drained(id));
            }
        }
    }

    /// Returns when a record was written.
    pub(super) fn written_ms(partition: usize, offset: i64) -> u64 {
        let phase = partition as u64 * 377 % RECORD_MS;
        phase + offset.unsigned_abs() * RECORD_MS
    }

    /// Returns one past the last record of a partition.
    pub(super) fn log_end(&self, partition: usize) -> i64 {
        let begin = Self::written_ms(partition, 0);
        match self.now_ms.min(self.stop_ms).checked_sub(begin) {
            Some(passed) => (passed / RECORD_MS + 1) as i64,
            None => 0,
        }
    }

    /// Tells whether every record is in every table.
    pub(super) fn is_complete(&self) -> bool {
        (0..self.partitions.len()).all(|partition| {
            let end = self.log_end(partition);
            self.tables.iter().all(|table| table.next[partition] == end)
        })
    }

    /// Tells whether segments go over the topic.
    pub(super) fn over_topic(&self) -> bool {
        self.size.transport == Transport::Topic
    }

    /// Returns under which name a process commits.
    pub(super) fn identity(&self, at: At) -> CommitIdentity {
        CommitIdentity {
            wid: WID.to_owned(),
            connector: "sim".to_owned(),
            hub_id: format!("host-{}/{:08x}", at.process, at.life),
            branch: BRANCH.to_owned(),
            state_bytes_max: 32 << 10,
        }
    }
}
