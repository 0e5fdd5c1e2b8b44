//! Runs seeds, on several threads, and says what came of them.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::names::Names;
use crate::rolling::Asked;
use crate::world::{Outcome, Switches, World};

/// One seed of this many is run twice: the same seed must give the same run (S25).
const TWICE: u64 = 64;
/// Failed seeds after which no more are run.
const FAILED_MAX: u64 = 20;
/// Seconds between two lines about a long run.
const PROGRESS_SECONDS: u64 = 60;

/// What was asked for on the command line.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) seeds: u64,
    pub(crate) from: u64,
    pub(crate) jobs: u64,
    pub(crate) total: Option<u64>,
    pub(crate) one: Option<u64>,
    pub(crate) steps: Option<u64>,
    pub(crate) trace: bool,
    /// Whether streams of changes are run.
    pub(crate) cdc: bool,
    /// The rolling restart, if that is what is run.
    pub(crate) rolling: Option<Asked>,
}

impl Default for Wanted {
    fn default() -> Self {
        Wanted {
            seeds: 0,
            from: 0,
            jobs: thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            total: None,
            one: None,
            steps: None,
            trace: false,
            cdc: false,
            rolling: None,
        }
    }
}

/// What all threads count together.
#[derive(Debug, Default)]
struct Counts {
    next: AtomicU64,
    seeds: AtomicU64,
    steps: AtomicU64,
    redone: AtomicU64,
    rejected: AtomicU64,
    commits: AtomicU64,
    failed: AtomicU64,
    over: AtomicBool,
}

/// Runs what is wanted. Returns whether no checker complained.
pub(crate) fn run(wanted: &Wanted) -> Result<bool, String> {
    if let Some(seed) = wanted.one {
        let outcome = one(&Rc::new(Names::new()), seed, wanted);
        println!("seed {seed}: {outcome:?}");
        return Ok(outcome.violation.is_none());
    }
    let kept = kept()?;
    let (counts, begin) = (Counts::default(), Instant::now());
    thread::scope(|scope| {
        for _ in 0..wanted.jobs {
            scope.spawn(|| work(wanted, &kept, &counts));
        }
        let mut told = begin;
        while !counts.over.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(20));
            if told.elapsed().as_secs() >= PROGRESS_SECONDS {
                told = Instant::now();
                println!("{}", summary(&counts, begin));
            }
        }
    });
    println!("{}", summary(&counts, begin));
    Ok(counts.failed.load(Ordering::Relaxed) == 0)
}

/// Returns the seeds of `regressions.txt`.
fn kept() -> Result<Vec<u64>, String> {
    let lines = include_str!("../regressions.txt").lines();
    let seeds = lines.filter_map(|line| line.split('#').next()?.split_whitespace().next());
    seeds
        .map(|seed| {
            seed.parse()
                .map_err(|_| format!("regressions.txt: `{seed}` is no seed"))
        })
        .collect()
}

fn one(names: &Rc<Names>, seed: u64, wanted: &Wanted) -> Outcome {
    World::new(seed, Switches::default(), names, wanted.trace).run(wanted.steps)
}

fn work(wanted: &Wanted, kept: &[u64], counts: &Counts) {
    let names = Rc::new(Names::new());
    loop {
        let index = counts.next.fetch_add(1, Ordering::Relaxed);
        let seed = match kept.get(index as usize) {
            Some(seed) => *seed,
            None => wanted.from + index - kept.len() as u64,
        };
        let enough = match wanted.total {
            Some(total) => counts.steps.load(Ordering::Relaxed) >= total,
            None => index >= wanted.seeds + kept.len() as u64,
        };
        if enough || counts.failed.load(Ordering::Relaxed) >= FAILED_MAX {
            counts.over.store(true, Ordering::Relaxed);
            return;
        }
        let outcome = one(&names, seed, wanted);
        if let Some(violation) = &outcome.violation {
            complain(
                counts,
                seed,
                &format!("{} {}", violation.rule, violation.what),
            );
        } else if seed % TWICE == 0 && one(&names, seed, wanted).hash != outcome.hash {
            complain(counts, seed, "S25 the same seed gave another run");
        }
        counts.seeds.fetch_add(1, Ordering::Relaxed);
        counts.steps.fetch_add(outcome.steps, Ordering::Relaxed);
        counts.redone.fetch_add(outcome.redone, Ordering::Relaxed);
        counts
            .rejected
            .fetch_add(outcome.rejected, Ordering::Relaxed);
        counts.commits.fetch_add(outcome.commits, Ordering::Relaxed);
    }
}

fn complain(counts: &Counts, seed: u64, what: &str) {
    counts.failed.fetch_add(1, Ordering::Relaxed);
    println!("seed {seed}: {what}");
}

fn summary(counts: &Counts, begin: Instant) -> String {
    let seconds = begin.elapsed().as_secs_f64();
    let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
    format!(
        "{} seeds, {} steps in {seconds:.1} s ({:.0} a second): {} commits, {} rejections, {} new starts; {} failed",
        get(&counts.seeds),
        get(&counts.steps),
        get(&counts.steps) as f64 / seconds,
        get(&counts.commits),
        get(&counts.rejected),
        get(&counts.redone),
        get(&counts.failed)
    )
}
