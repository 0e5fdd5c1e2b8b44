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
//! Its paces are those of the test bed on an idle machine. See `docs/long-runs.md`.

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
            seed,
        }
    }

    fn tasks(&self) -> usize {
        self.workers * TASKS
    }
}

/// How long things take, in milliseconds from and to.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// A write to the broker, or a round of a group.
    broker: (u64, u64),
    /// Until a member of a group hears of a rebalance.
    heartbeat: (u64, u64),
    /// Between two looks at the control topic.
    exchange: (u64, u64),
    /// The data files of a segment.
    upload: (u64, u64),
    /// A small object of the store.
    store: (u64, u64),
    /// A load of a table.
    load: (u64, u64),
    /// A commit request, with its manifest list.
    commit: (u64, u64),
    /// The start of a task.
    task_start: (u64, u64),
    /// The start of a worker.
    restart: (u64, u64),
    /// Manifests of other processes that are read at the same time, as in the engine.
    checks: usize,
    /// Manifests that a commit looks for at the same time, as in the engine.
    commit_checks: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            broker: (5, 50),
            heartbeat: (0, 3_000),
            exchange: (10, 50),
            upload: (50, 400),
            store: (5, 30),
            load: (10, 60),
            commit: (50, 300),
            task_start: (200, 1_500),
            restart: (7_000, 9_000),
            checks: 8,
            commit_checks: 1,
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
        Answer::Rejected { reason } => Verdict::Rejected(reason),
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

/// Runs the sizes that are asked for, prints their numbers, and returns whether nothing was lost or
/// doubled.
pub(crate) fn main(workers: Option<u64>, seed: u64) -> bool {
    let asked = workers.map(|workers| vec![workers as usize]);
    let mut good = true;
    println!("{}", Numbers::HEAD);
    for workers in asked.unwrap_or(WORKERS.to_vec()) {
        for transport in [Transport::Topic, Transport::Local] {
            let numbers = run(Size::new(transport, workers, seed));
            println!("{numbers}");
            good &= numbers.is_exactly_once();
        }
    }
    good
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A few restarts and few tables, so that it takes no time.
    fn small(transport: Transport, workers: usize) -> Numbers {
        run(Size {
            tables: 2,
            restarts: 2,
            ..Size::new(transport, workers, 1)
        })
    }

    // Promise: A rolling restart of 12 and of 48 workers leaves one snapshot per table and interval, no gap of more than 15 s, and every row once.
    #[test]
    fn a_rolling_restart_of_many_workers_keeps_the_bars() {
        for workers in [12, 48] {
            let numbers = small(Transport::Topic, workers);
            assert!(numbers.is_exactly_once(), "{numbers:?}");
            assert_eq!(numbers.restarts, 2);
            assert!(numbers.quiet_worst <= 1.1, "{numbers:?}");
            assert!(numbers.quiet_worst > 0.8, "{numbers:?}");
            assert!(numbers.gap_s <= 15.0, "{numbers:?}");
        }
    }

    #[test]
    fn workers_that_commit_for_themselves_make_a_snapshot_each() {
        let numbers = small(Transport::Local, 3);
        assert!(numbers.is_exactly_once(), "{numbers:?}");
        assert!(numbers.quiet_worst > 2.5, "{numbers:?}");
        assert!(numbers.conflicts > 0.0, "{numbers:?}");
    }

    #[test]
    fn a_seed_is_a_run() {
        let numbers = || format!("{:?}", small(Transport::Topic, 2));
        assert_eq!(numbers(), numbers());
    }
}
