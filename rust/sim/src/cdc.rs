//! Random streams of changes against a model: `--cdc`.
//!
//! ```text
//!  source   what the source does, and in which order its records stand in the topic
//!  world    sessions read and seal, owners commit, others change the table, things fail
//!  owner    what the engine does around the index, the orders and the CommitMachine's attempts
//!  table    snapshots of data files with their delete files, requests, other writers
//!  model    what a commit has to make of the rows, by the words of the documentation
//! ```
//!
//! Which row of a key is live, which change counts, how the index follows its table and what is remembered
//! of orders is decided by the code that the plugin runs (`frazil_core::index`). After every commit the table
//! is compared with the model, its delete files are counted, and the index and the orders are compared with
//! what the snapshots say. At the end every record is committed, and the table has to equal the source.
//!
//! | rule | says |
//! |---|---|
//! | C1 | the rows of a commit are those of the model |
//! | C2 | a data file that a commit touched has one delete file, and none is left without rows |
//! | C3 | the index says where the row of each key is, and counts its keys right |
//! | C4 | no order is remembered that the table does not have |
//! | C5 | no order is forgotten without a reason |
//! | C6 | what a commit says of its rows is what became of them |
//! | C7 | at the end the table equals the source |
//! | C8 | a change is never refused but for a truncation, and nothing is an internal error |
//! | C9 | the same seed gives the same run |

mod model;
mod owner;
mod source;
mod table;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

pub(crate) use world::run;

/// One seed of this many is run twice.
const TWICE: u64 = 64;
/// Failed seeds after which no more are run.
const FAILED_MAX: u64 = 20;

/// Runs `seeds` seeds from `from` on, on `jobs` threads; one seed with a trace if `one` is given. Returns
/// whether no checker complained.
pub(crate) fn seeds((from, seeds): (u64, u64), jobs: u64, one: Option<(u64, bool)>) -> bool {
    if let Some((seed, trace)) = one {
        let ended = run(seed, trace);
        println!("seed {seed}: {ended:?}");
        return ended.violation.is_none();
    }
    let (next, begin) = (AtomicU64::new(0), Instant::now());
    let [commits, changes, failed] = [const { AtomicU64::new(0) }; 3];
    let work = || loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        if index >= seeds || failed.load(Ordering::Relaxed) >= FAILED_MAX {
            return;
        }
        let seed = from + index;
        let ended = run(seed, false);
        let again = seed.is_multiple_of(TWICE).then(|| run(seed, false));
        if let Some(violation) = &ended.violation {
            println!("seed {seed}: {violation}");
            failed.fetch_add(1, Ordering::Relaxed);
        } else if again.is_some_and(|again| again != ended) {
            println!("seed {seed}: C9 the same seed gave another run");
            failed.fetch_add(1, Ordering::Relaxed);
        }
        commits.fetch_add(ended.commits, Ordering::Relaxed);
        changes.fetch_add(ended.changes, Ordering::Relaxed);
    };
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(work);
        }
    });
    let failed = failed.load(Ordering::Relaxed);
    println!(
        "{} seeds of changes in {:.1} s: {} commits, {} changes; {failed} failed",
        next.load(Ordering::Relaxed).min(seeds),
        begin.elapsed().as_secs_f64(),
        commits.load(Ordering::Relaxed),
        changes.load(Ordering::Relaxed),
    );
    failed == 0
}
