//! `cargo xtask sim`: builds the simulator and runs it.

use std::process::Command;

use crate::Failure;
use crate::run::{Log, root};
use crate::tools;

/// Seeds of a run in CI.
const CI_SEEDS: &str = "2000";
/// Seeds within which CI's mutation gate has to notice that a rule is off.
const CI_GATE_SEEDS: &str = "30000";
/// Random streams of changes of a run in CI, and those within which its gate has to notice.
const CI_CHANGE_SEEDS: &str = "4000";
const CI_CHANGE_GATE_SEEDS: &str = "4000";

/// Runs the simulator with `words`, or with `--mutants` among them the mutation gate.
pub(crate) fn run(words: &[String], log: &Log) -> Result<bool, Failure> {
    let (gates, rest): (Vec<String>, Vec<String>) =
        words.iter().cloned().partition(|word| word == "--mutants");
    match gates.is_empty() {
        false => gate(&rest, log),
        true => seeds(words, log),
    }
}

/// What CI runs: seeds, then the mutation gate, and both of random streams of changes.
pub(crate) fn check(log: &Log) -> Result<bool, Failure> {
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    Ok(seeds(&words(&["--seeds", CI_SEEDS]), log)?
        && seeds(&words(&["--cdc", "--seeds", CI_CHANGE_SEEDS]), log)?
        && gate(&words(&["--seeds", CI_GATE_SEEDS]), log)?
        && gate(&words(&["--cdc", "--seeds", CI_CHANGE_GATE_SEEDS]), log)?)
}

fn seeds(words: &[String], log: &Log) -> Result<bool, Failure> {
    Ok(build(&["--bin", "frazil-sim"], log)? && start("frazil-sim", words, log)?)
}

/// The gate is another program: rules can be switched off in it, never in what is shipped.
fn gate(words: &[String], log: &Log) -> Result<bool, Failure> {
    let gate = [
        "--bin",
        "frazil-sim-gate",
        "--features",
        "frazil-sim/mutation",
    ];
    Ok(build(&gate, log)? && start("frazil-sim-gate", words, log)?)
}

fn build(what: &[&str], log: &Log) -> Result<bool, Failure> {
    let mut build = tools::cargo(&["build", "--quiet", "--release", "--workspace"]);
    log.run(build.args(what))
}

fn start(program: &str, words: &[String], log: &Log) -> Result<bool, Failure> {
    let path = root().join("target/release").join(program);
    log.run(Command::new(path).args(words))
}
