//! `frazil-sim`: runs the state machines of Frazil in a simulated world and checks every step.

mod catalog;
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
mod run;
mod swarm;
mod upserts;
mod wire;
mod world;

use std::process::ExitCode;
use std::rc::Rc;
use std::time::Instant;

use lexopt::prelude::{Long, Value, ValueExt};
use names::Names;
use world::{Outcome, Switches, World};

fn main() -> ExitCode {
    match dispatch() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("frazil-sim: {message}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch() -> Result<bool, String> {
    let mut parser = lexopt::Parser::from_env();
    let (mut from, mut seeds, mut one, mut trace, mut steps) = (0, 0, None, false, None);
    let (mut mutants, mut words) = (false, Vec::new());
    let text = |error: lexopt::Error| error.to_string();
    while let Some(argument) = parser.next().map_err(text)? {
        let number =
            |parser: &mut lexopt::Parser| -> Result<u64, lexopt::Error> { parser.value()?.parse() };
        match argument {
            Long("seeds") => seeds = number(&mut parser).map_err(text)?,
            Long("from") => from = number(&mut parser).map_err(text)?,
            Long("seed") => one = Some(number(&mut parser).map_err(text)?),
            Long("steps") => steps = Some(number(&mut parser).map_err(text)?),
            Long("trace") => trace = true,
            Long("mutants") => mutants = true,
            Value(name) => words.push(name.string().map_err(text)?),
            other => return Err(other.unexpected().to_string()),
        }
    }
    let names = Rc::new(Names::new());
    if mutants {
        return without_rules(&names, &words, seeds);
    }
    if let Some(seed) = one {
        let outcome = World::new(seed, Switches::default(), &names, trace).run(steps);
        println!("seed {seed}: {outcome:?}");
        return Ok(outcome.violation.is_none());
    }
    let begin = Instant::now();
    let (mut total, mut redone, mut failed) = (0, 0, 0);
    for seed in from..from + seeds {
        let outcome: Outcome = World::new(seed, Switches::default(), &names, false).run(steps);
        total += outcome.steps;
        redone += outcome.redone;
        if let Some(violation) = &outcome.violation {
            failed += 1;
            println!(
                "seed {seed}: {} {} after {} steps",
                violation.rule, violation.what, outcome.steps
            );
            if failed >= 20 {
                break;
            }
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{seeds} seeds, {total} steps in {seconds:.1} s ({:.0} a second), {redone} starts over, {failed} failed",
        total as f64 / seconds
    );
    Ok(failed == 0)
}

#[cfg(feature = "mutation")]
fn without_rules(names: &Rc<Names>, only: &[String], seeds: u64) -> Result<bool, String> {
    Ok(gate::run(names, only, seeds))
}

#[cfg(not(feature = "mutation"))]
fn without_rules(_: &Rc<Names>, _: &[String], _: u64) -> Result<bool, String> {
    Err("rules can be switched off in a build with the feature `mutation` only".to_owned())
}
