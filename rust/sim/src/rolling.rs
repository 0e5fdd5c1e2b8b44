//! The rolling restart: many workers under a steady load, each stopped and started again in turn.
//!
//! ```text
//!  rolling   sizes, paces, what is told      world    the clock, what happens when
//!  cluster   workers and their tasks         group    the tasks' consumer group
//!  task      Connect's loop, TaskMachine     hub      TableCoordinator, CommitMachine
//!  control   control topic, Channel          tables   the catalog, which rows are in
//! ```
//!
//! Time passes here as it would, other than in [`crate::world`]: this simulation tells what a cluster
//! of a size would do, not what may happen at worst. The machines are those that the plugin runs.
//! What it says is as good as its [`Pace`]s. See `docs/long-runs.md`.

mod cluster;
mod control;
mod group;
mod hub;
mod numbers;
mod tables;
mod task;
mod world;

use frazil_core::SinkError;
use frazil_core::control::message::Answer;
use frazil_core::control::task::{TaskSettings, Verdict};
use frazil_core::limits;

use numbers::Numbers;
use world::World;

/// How long a segment may wait for its commit.
const SEGMENT_TTL_MS: u64 = 3_600_000;
/// How long everything may take to come into the tables once no more is written.
const REST_MS: u64 = 120_000;
/// Numbers of workers that a run without `--workers` goes through.
const WORKERS: [usize; 6] = [1, 2, 3, 6, 12, 48];
/// Tasks of each worker.
const TASKS: usize = 4;

/// How segments come to their coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    Topic,
    Local,
}

/// What is run.
#[derive(Debug, Clone, Copy)]
struct Size {
    transport: Transport,
    workers: usize,
    tables: usize,
    /// Workers that are restarted.
    restarts: usize,
    interval_ms: u64,
    /// Connect's `scheduled.rebalance.max.delay.ms`.
    rebalance_delay_ms: u64,
    /// How long the cluster is left alone before the first restart; and, after what may follow from
    /// one, before the next.
    quiet_ms: u64,
    failover_ms: u64,
    pace: Pace,
    fault: Fault,
    seed: u64,
}

impl Size {
    /// Returns the sizes of `tests/scale/test_rolling.py`, but for the workers.
    fn new(transport: Transport, workers: usize, seed: u64) -> Self {
        Size {
            transport,
            workers,
            tables: 20,
            restarts: workers,
            interval_ms: 5_000,
            rebalance_delay_ms: 5_000,
            quiet_ms: 20_000,
            failover_ms: 20_000,
            pace: Pace::default(),
            fault: Fault::None,
            seed,
        }
    }

    fn tasks(&self) -> usize {
        self.workers * TASKS
    }
}

/// What is broken on purpose, to see that the numbers tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Fault {
    /// Nothing.
    #[default]
    None,
    /// The catalog now and then confirms a commit, keeps its state and forgets its rows.
    RowsForgotten,
    /// The catalog now and then keeps the rows of a commit, forgets its state, and says that the
    /// commit lost a race.
    StateForgotten,
    /// Every process takes itself for the one that commits.
    EveryoneLeads,
    /// It takes 20 s longer until somebody else commits.
    SlowElection,
}

impl Fault {
    const NAMES: [(&str, Fault); 4] = [
        ("rows-forgotten", Fault::RowsForgotten),
        ("state-forgotten", Fault::StateForgotten),
        ("everyone-leads", Fault::EveryoneLeads),
        ("slow-election", Fault::SlowElection),
    ];

    /// Returns the fault called `name`.
    pub(crate) fn named(name: &str) -> Option<Fault> {
        let mut known = Fault::NAMES.iter();
        known.find(|known| known.0 == name).map(|known| known.1)
    }
}

/// How long things take, in milliseconds from and to. Where the numbers are from is said of each.
/// "The bed" is `tests/scale/test_rolling.py` with six workers: what the simulation says of six is
/// next to what the bed said in `docs/long-runs.md`.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// A write to the broker, or a round of a group: the bed's broker on the same machine, and one
    /// in the next zone.
    broker: (u64, u64),
    /// Until a member of a group hears of a rebalance: Kafka's `heartbeat.interval.ms`, by default.
    heartbeat: (u64, u64),
    /// The same for the group of the control topic: `ControlClients.java`.
    control_heartbeat: (u64, u64),
    /// Between two looks at the control topic: at most `POLL_MILLIS` of `ControlChannel.java`, and
    /// sooner when something comes.
    exchange: (u64, u64),
    /// The data files of a segment: assumed, a Parquet file of some rows, its upload, and the HEAD
    /// after it.
    upload: (u64, u64),
    /// A small object of the store: assumed. `--store-ms` gives another upper end, for instance the
    /// 100 ms that a store far away may take.
    store: (u64, u64),
    /// A load of a table: 11 to 18 ms were measured of the REST catalogs of the bed, one at a time.
    load: (u64, u64),
    /// A commit request, with its manifest list: 136 to 151 ms were measured of another client's
    /// appends to the bed's catalogs, one at a time and with all that belongs to them.
    commit: (u64, u64),
    /// The start of a task: what was left of the bed's restarts beside [`Pace::restart`].
    task_start: (u64, u64),
    /// The start of a worker: of the bed's restarts, which took 8 to 17 s until all tasks ran again.
    restart: (u64, u64),
    /// Manifests that a process looks at at the same time, and those of one table: what the plugin
    /// does.
    turns: usize,
    table_turns: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            broker: (5, 50),
            heartbeat: (0, 3_000),
            control_heartbeat: (0, 2_000),
            exchange: (10, 100),
            upload: (50, 400),
            store: (5, 30),
            load: (10, 60),
            commit: (50, 300),
            task_start: (200, 1_500),
            restart: (7_000, 9_000),
            turns: limits::MANIFEST_TURNS,
            table_turns: limits::MANIFEST_TABLE_TURNS,
        }
    }
}

fn task_settings(task: usize, process: usize, tables: usize) -> TaskSettings {
    TaskSettings {
        connector: "sim".to_owned(),
        owner: format!("sim task {task} on host {process}"),
        writer_id: "sim".to_owned(),
        tables: (0..tables).map(|table| format!("db.t{table:02}")).collect(),
        epoch: 0,
        segments_in_flight_max: limits::SEGMENTS_IN_FLIGHT_MAX,
        rejections_max: 5,
        rejection_window_ms: 600_000,
        block_max_ms: 900_000,
        drain_max_ms: 3_500,
        answers_max_ms: 8_000,
        external_change: Default::default(),
    }
}

fn verdict_of(answer: Answer) -> Option<Verdict> {
    Some(match answer {
        Answer::Durable { .. } => Verdict::Durable,
        Answer::Rejected { reason, .. } => Verdict::Rejected(reason),
        Answer::Expired => Verdict::Expired,
        Answer::Fenced { epoch } => Verdict::Fenced { epoch },
        Answer::Blocked { reason } => {
            Verdict::Failed(SinkError::fatal("TABLE_BLOCKED", reason).into())
        }
        Answer::Missing => return None,
    })
}

/// Runs one size.
fn run(size: Size) -> Numbers {
    let mut w = World::new(size);
    cluster::begin(&mut w);
    // As on the bed: everything has begun, and its fail-over is over.
    w.run(size.quiet_ms + size.failover_ms);
    let before = (w.now_ms, w.counts);
    cluster::roll(&mut w);
    w.run(u64::MAX);
    let over = (w.now_ms, w.counts);
    w.stop_ms = w.now_ms;
    while !w.is_complete() && w.now_ms < w.stop_ms + REST_MS {
        let until_ms = w.now_ms + 100;
        w.run(until_ms);
        w.now_ms = until_ms;
    }
    Numbers::of(&w, before, over)
}

/// What was asked for on the command line; what was not is as on the bed.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) workers: Option<u64>,
    pub(crate) tables: Option<u64>,
    pub(crate) restarts: Option<u64>,
    pub(crate) turns: Option<u64>,
    pub(crate) store_ms: Option<u64>,
    pub(crate) topic_only: bool,
    pub(crate) fault: Fault,
    pub(crate) seed: Option<u64>,
}

impl Asked {
    fn size(&self, transport: Transport, workers: usize) -> Size {
        let mut size = Size::new(transport, workers, self.seed.unwrap_or(1));
        size.tables = self.tables.map_or(size.tables, |tables| tables as usize);
        let restarts = self.restarts.map(|restarts| restarts as usize);
        size.restarts = restarts.unwrap_or(workers).min(workers);
        if let Some(turns) = self.turns {
            size.pace.turns = turns as usize;
        }
        if let Some(store_ms) = self.store_ms {
            size.pace.store = (store_ms / 6, store_ms);
        }
        size.fault = self.fault;
        size
    }
}

/// Runs the sizes that are asked for, prints their numbers, and returns whether nothing was lost or
/// doubled, and the bars were kept where all go over the topic.
pub(crate) fn main(asked: &Asked) -> bool {
    let workers = asked.workers.map(|workers| vec![workers as usize]);
    let transports: &[Transport] = match asked.topic_only {
        true => &[Transport::Topic],
        false => &[Transport::Topic, Transport::Local],
    };
    let mut good = true;
    println!("{}", Numbers::HEAD);
    for workers in workers.unwrap_or(WORKERS.to_vec()) {
        for transport in transports {
            let numbers = run(asked.size(*transport, workers));
            println!("{numbers}");
            good &= numbers.is_exactly_once();
            good &= *transport == Transport::Local || numbers.keeps_bars();
        }
    }
    good
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A few restarts and few tables, so that it takes no time.
    fn small(transport: Transport, workers: usize) -> Size {
        Size {
            tables: 2,
            restarts: 2,
            ..Size::new(transport, workers, 1)
        }
    }

    fn with(fault: Fault, transport: Transport) -> Numbers {
        run(Size {
            fault,
            restarts: 3,
            ..small(transport, 3)
        })
    }

    // Promise: A rolling restart of 12 and of 48 workers leaves one snapshot per table and interval, no gap of more than 15 s, and every row once.
    #[test]
    fn a_rolling_restart_of_many_workers_keeps_the_bars() {
        for (workers, restarts) in [(12, 2), (48, 1)] {
            let numbers = run(Size {
                restarts,
                ..small(Transport::Topic, workers)
            });
            assert!(numbers.is_exactly_once(), "{numbers:?}");
            assert_eq!(numbers.restarts, restarts);
            assert!(numbers.keeps_bars(), "{numbers:?}");
            assert!(numbers.quiet_worst > 0.8, "{numbers:?}");
        }
    }

    #[test]
    fn workers_that_commit_for_themselves_make_a_snapshot_each() {
        let numbers = run(small(Transport::Local, 3));
        assert!(numbers.is_exactly_once(), "{numbers:?}");
        assert!(numbers.quiet_worst > 2.5, "{numbers:?}");
        assert!(numbers.conflicts > 0.0, "{numbers:?}");
    }

    /// Nothing is believed that cannot fail: what is broken on purpose is seen.
    #[test]
    fn the_numbers_tell_what_is_broken() {
        let whole = with(Fault::None, Transport::Topic);
        assert!(whole.is_exactly_once() && whole.keeps_bars(), "{whole:?}");
        for fault in [Fault::RowsForgotten, Fault::StateForgotten] {
            for transport in [Transport::Topic, Transport::Local] {
                let numbers = with(fault, transport);
                assert!(!numbers.is_exactly_once(), "{fault:?}: {numbers:?}");
            }
        }
        let crowded = with(Fault::EveryoneLeads, Transport::Topic);
        assert!(crowded.quiet_worst > 1.5, "{crowded:?}");
        assert!(!crowded.keeps_bars());
        let late = with(Fault::SlowElection, Transport::Topic);
        assert!(late.gap_s > 15.0 && !late.keeps_bars(), "{late:?}");
        assert!(late.is_exactly_once(), "it is only late: {late:?}");
        for (name, fault) in Fault::NAMES {
            assert_eq!(Fault::named(name), Some(fault));
        }
    }

    /// With few turns to read manifests the one that commits falls behind, and the age says so.
    #[test]
    fn a_slow_store_and_few_turns_make_rows_late() {
        let aged = |turns| {
            let mut size = small(Transport::Topic, 12);
            (size.tables, size.restarts) = (20, 1);
            (size.pace.turns, size.pace.store) = (turns, (20, 120));
            run(size).age_s
        };
        let (many, few) = (aged(128), aged(2));
        assert!(few > many + 10.0, "{few} s with 2 turns, {many} s with 128");
    }

    #[test]
    fn a_seed_is_a_run() {
        let numbers = || format!("{:?}", run(small(Transport::Topic, 2)));
        assert_eq!(numbers(), numbers());
    }
}
