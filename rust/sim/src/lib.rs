//! `frazil-sim`: runs the state machines of Frazil in a simulated world and checks every step.
//!
//! ```text
//!  swarm     what a seed decides: sizes, routes, faults        faults, resets   what goes wrong
//!  world     whose turn it is                                  check, upserts   what must hold
//!  run       Connect's loop and `Delivery`  ─► native  the session around the TaskMachine
//!  hub       coordinators and commits around the TableCoordinator and the CommitMachine
//!  wire      the control topic and the Channel of each process
//!  group     the consumer group             catalog    tables, requests, answers
//!  rolling   another world: many workers, time as it passes, restarted one after another
//!  cdc       another one: random streams of changes, and the rows that come of them
//! ```
//!
//! The machines are those that the plugin runs. Whatever else happens is drawn by [`rng::Rng`], so a
//! seed is a whole run: `cargo xtask sim --seed S --trace` shows it.

mod catalog;
mod cdc;
mod check;
mod faults;
#[cfg(feature = "mutation")]
mod gate;
mod group;
mod hub;
mod names;
mod native;
mod resets;
mod rng;
mod rolling;
mod run;
mod seeds;
mod swarm;
mod upserts;
mod wire;
mod world;

use std::process::ExitCode;

use lexopt::prelude::{Long, Short, ValueExt};

use seeds::Wanted;

const HELP: &str = "\
usage: frazil-sim [--seeds N] [--from S] [--jobs J] [--total STEPS]
       frazil-sim --seed S [--trace] [--steps N]
       frazil-sim --cdc [--seeds N] [--from S] [--jobs J] [--seed S [--trace]]
       frazil-sim --rolling [--workers N] [--tables N] [--restarts N] [--turns N] [--store-ms N]
                  [--topic] [--break WHAT] [--seed S]

  --seeds N      Runs the seeds from S on, after those of regressions.txt.
  --total STEPS  Goes on with further seeds until this many steps were made.
  --steps N      Lets faults come for N steps, not for as long as the seed says.
  --trace        Prints what happens, a line for each event.
  --cdc          Runs random streams of changes of rows, and compares the table with a model after each
                 commit.
  --rolling      Restarts many workers one after another under load, with both transports, and
                 prints how often and how late the tables get their rows. One run has a minute for
                 each worker: those of 48 workers take a while.
  --workers N    Only a cluster of N workers.
  --tables N     N tables, not 20.
  --restarts N   Only N of the workers are restarted.
  --turns N      A process looks at N manifests at the same time, not at 128.
  --store-ms N   A small object of the store takes up to N ms, not 30.
  --topic        Only with the control topic, not also with a committer in each worker.
  --break WHAT   Breaks something on purpose, and must end badly: rows-forgotten, state-forgotten,
                 everyone-leads, slow-election.
";

/// Runs the simulator as its command line says.
pub fn simulate() -> ExitCode {
    exit(arguments().and_then(|wanted| match wanted {
        Some(Wanted {
            rolling: Some(mut asked),
            one,
            ..
        }) => {
            asked.seed = one;
            Ok(rolling::main(&asked))
        }
        Some(wanted) if wanted.cdc => {
            let one = wanted.one.map(|seed| (seed, wanted.trace));
            Ok(cdc::seeds((wanted.from, wanted.seeds), wanted.jobs, one))
        }
        Some(wanted) => seeds::run(&wanted),
        None => {
            print!("{HELP}");
            Ok(true)
        }
    }))
}

/// Runs the mutation gate: `frazil-sim-gate [--cdc] [--seeds N] [NAME]...`.
#[cfg(feature = "mutation")]
pub fn gate() -> ExitCode {
    exit(gate::main())
}

fn exit(result: Result<bool, String>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("frazil-sim: {message}");
            ExitCode::FAILURE
        }
    }
}

fn number(parser: &mut lexopt::Parser) -> Result<u64, String> {
    let value = parser.value().and_then(|value| value.parse());
    value.map_err(|error| error.to_string())
}

fn broken(parser: &mut lexopt::Parser) -> Result<rolling::Fault, String> {
    let name = parser.value().and_then(|value| value.string());
    let name = name.map_err(|error| error.to_string())?;
    rolling::Fault::named(&name).ok_or_else(|| format!("`{name}` cannot be broken\n{HELP}"))
}

fn asked(wanted: &mut Wanted) -> &mut rolling::Asked {
    wanted.rolling.get_or_insert_with(Default::default)
}

fn arguments() -> Result<Option<Wanted>, String> {
    let mut parser = lexopt::Parser::from_env();
    let mut wanted = Wanted::default();
    while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
        match argument {
            Long("seeds") => wanted.seeds = number(&mut parser)?,
            Long("from") => wanted.from = number(&mut parser)?,
            Long("jobs") => wanted.jobs = number(&mut parser)?.clamp(1, 256),
            Long("total") => wanted.total = Some(number(&mut parser)?),
            Long("seed") => wanted.one = Some(number(&mut parser)?),
            Long("steps") => wanted.steps = Some(number(&mut parser)?),
            Long("trace") => wanted.trace = true,
            Long("cdc") => wanted.cdc = true,
            Long("rolling") => _ = asked(&mut wanted),
            Long("workers") => {
                asked(&mut wanted).workers = Some(number(&mut parser)?.clamp(1, 256))
            }
            Long("tables") => asked(&mut wanted).tables = Some(number(&mut parser)?.clamp(1, 256)),
            Long("restarts") => asked(&mut wanted).restarts = Some(number(&mut parser)?),
            Long("turns") => asked(&mut wanted).turns = Some(number(&mut parser)?.clamp(1, 256)),
            Long("store-ms") => {
                asked(&mut wanted).store_ms = Some(number(&mut parser)?.clamp(1, 60_000))
            }
            Long("topic") => asked(&mut wanted).topic_only = true,
            Long("break") => asked(&mut wanted).fault = broken(&mut parser)?,
            Long("help") | Short('h') => return Ok(None),
            other => return Err(format!("{}\n{HELP}", other.unexpected())),
        }
    }
    Ok(Some(wanted))
}
