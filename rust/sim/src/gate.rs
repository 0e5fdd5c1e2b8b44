//! The mutation gate: the checkers must notice the loss of every rule.
//!
//! Each rule is switched off for whole runs, one at a time, here and nowhere else: those of the core
//! by [`without`], those that the world keeps in place of Java and of the engine by its
//! [`Switches`]. What checks does not know.

use std::rc::Rc;

use frazil_core::rules::{Rule, without};
use lexopt::prelude::{Long, Value, ValueExt};

use crate::cdc;
use crate::check::Violation;
use crate::names::Names;
use crate::world::{Switches, World};

/// Seeds within which a checker has to notice.
const SEEDS: u64 = 30_000;

/// A rule to switch off, and by what it may be noticed.
struct Mutant {
    name: &'static str,
    says: &'static str,
    rules: &'static [Rule],
    switches: Switches,
}

const KEPT: Switches = Switches {
    does_not_clamp: false,
    rewinds_anything: false,
    deletes_files: false,
    routes_by_chance: false,
    moves_while_rewinding: false,
};

const fn core(name: &'static str, says: &'static str, rules: &'static [Rule]) -> Mutant {
    Mutant {
        name,
        says,
        rules,
        switches: KEPT,
    }
}

/// No mutant: what the gate sees must come of the rule that is off.
const WHOLE: Mutant = core("", "", &[]);

const MUTANTS: [Mutant; 22] = [
    core(
        "R1",
        "offsets are judged on another table than the request asserts",
        &[Rule::OneBase],
    ),
    core(
        "R2",
        "a segment passes an earlier one of its session",
        &[Rule::SessionOrder],
    ),
    core("R3", "a claim without rows moves T", &[Rule::RowsOnly]),
    core(
        "R4",
        "sealed before dead letters are acknowledged",
        &[Rule::DeadLettersFirst],
    ),
    core(
        "R5",
        "W follows what was read, not what is durable",
        &[Rule::DurableOffset],
    ),
    core(
        "R6",
        "an outcome counts for whatever is oldest",
        &[Rule::OutcomeNamed],
    ),
    core(
        "R7",
        "the epoch is read anew with each table",
        &[Rule::EpochFixed],
    ),
    core(
        "R8",
        "equality deletes share a snapshot",
        &[Rule::DeletesAlone],
    ),
    core(
        "R9+R2",
        "segments in any order",
        &[Rule::SegmentOrder, Rule::SessionOrder],
    ),
    Mutant {
        name: "R10",
        says: "the files of a session that starts over are deleted",
        rules: &[],
        switches: Switches {
            deletes_files: true,
            ..KEPT
        },
    },
    core("R11", "segments never get too old", &[Rule::Expiry]),
    Mutant {
        name: "R13",
        says: "where a record goes depends on chance",
        rules: &[],
        switches: Switches {
            routes_by_chance: true,
            ..KEPT
        },
    },
    core("R15", "a rejected session goes on", &[Rule::DeadSession]),
    Mutant {
        name: "R16",
        says: "offsets move while a rewind is pending",
        rules: &[Rule::FrozenRewind],
        switches: Switches {
            moves_while_rewinding: true,
            ..KEPT
        },
    },
    Mutant {
        name: "J3",
        says: "`preCommit` answers without a clamp",
        rules: &[],
        switches: Switches {
            does_not_clamp: true,
            ..KEPT
        },
    },
    Mutant {
        name: "J4",
        says: "rewinds are not cut to the assignment",
        rules: &[],
        switches: Switches {
            rewinds_anything: true,
            ..KEPT
        },
    },
    core("max in T'", "T goes back", &[Rule::NeverBack]),
    core(
        "T <= lo",
        "rows that the table has are committed again",
        &[Rule::BoundTest],
    ),
    core(
        "resolve",
        "an unclear answer is taken for a refusal",
        &[Rule::Resolve],
    ),
    core(
        "R9",
        "segments are taken in any order",
        &[Rule::SegmentOrder],
    ),
    core(
        "R12",
        "a coordinator obeys records before its HELLO",
        &[Rule::FromLogEnd],
    ),
    core(
        "R5+R16",
        "W follows what was read, whatever is pending",
        &[Rule::DurableOffset, Rule::FrozenRewind],
    ),
];

/// Runs what the command line names, or every mutant.
pub(crate) fn main() -> Result<bool, String> {
    let mut parser = lexopt::Parser::from_env();
    let (mut seeds, mut only, mut cdc) = (SEEDS, Vec::new(), false);
    let text = |error: lexopt::Error| error.to_string();
    while let Some(argument) = parser.next().map_err(text)? {
        match argument {
            Long("seeds") => {
                seeds = parser
                    .value()
                    .and_then(|value| value.parse())
                    .map_err(text)?
            }
            Long("cdc") => cdc = true,
            Value(name) => only.push(name.string().map_err(text)?),
            other => return Err(other.unexpected().to_string()),
        }
    }
    if cdc {
        return changes(seeds, &only);
    }
    let chosen = |mutant: &&Mutant| only.is_empty() || only.iter().any(|name| name == mutant.name);
    let mutants: Vec<&Mutant> = MUTANTS.iter().filter(chosen).collect();
    if mutants.is_empty() {
        return Err("there is no such rule".to_owned());
    }
    let names = Rc::new(Names::new());
    if let Some((seed, violation)) = noticed(&names, &WHOLE, 200) {
        return Err(format!("seed {seed} fails with all rules: {violation:?}"));
    }
    let missed = mutants
        .iter()
        .filter(|mutant| !is_seen(&names, mutant, seeds));
    Ok(missed.count() == 0)
}

/// The rules of changes.
const CHANGES: [(&str, &str, Rule); 15] = [
    (
        "live-row",
        "a row that others deleted passes for that of its key",
        Rule::LiveRow,
    ),
    (
        "one-delete",
        "a delete file lacks the rows of the one before",
        Rule::OneDelete,
    ),
    (
        "newer-wins",
        "an older change wins by coming later",
        Rule::NewerWins,
    ),
    (
        "stale",
        "a change from before another commit wins",
        Rule::Stale,
    ),
    (
        "each-source",
        "the order of one source takes the place of another's",
        Rule::OrderOfEachSource,
    ),
    (
        "rollback-orders",
        "orders stay after a rollback",
        Rule::OrdersOfRollback,
    ),
    (
        "reset-orders",
        "a truncation is not applied again after a reset",
        Rule::OrdersOfReset,
    ),
    (
        "others-orders",
        "orders stay after a commit of another process",
        Rule::OrdersOfOthers,
    ),
    (
        "anew",
        "orders stay after a truncation without one",
        Rule::OrdersBeginAnew,
    ),
    (
        "noted",
        "orders are noted of a commit that was not made",
        Rule::NotedWhenThere,
    ),
    (
        "rollback-index",
        "the index stays after a rollback",
        Rule::IndexOfRollback,
    ),
    (
        "applied",
        "the index changes by a commit that was not made",
        Rule::IndexWhenThere,
    ),
    (
        "several",
        "the index forgets a row of a key that had several",
        Rule::SeveralRows,
    ),
    (
        "others-files",
        "keys of files of others are not read",
        Rule::FilesOfOthers,
    ),
    (
        "sure",
        "a table with changes of several partitions is emptied",
        Rule::TruncationSure,
    ),
];

/// Runs the mutants of changes.
fn changes(seeds: u64, only: &[String]) -> Result<bool, String> {
    let noticed = |rules: &[Rule], seeds: u64| {
        (0..seeds).find_map(|seed| {
            let ended = without(rules, || cdc::run(seed, false));
            Some((seed, ended.violation?))
        })
    };
    if let Some((seed, violation)) = noticed(&[], 200) {
        return Err(format!("seed {seed} fails with all rules: {violation}"));
    }
    let mut all = true;
    for (name, says, rule) in CHANGES {
        if !only.is_empty() && !only.iter().any(|one| one == name) {
            continue;
        }
        match noticed(&[rule], seeds) {
            Some((seed, violation)) => {
                println!("{name:15} {says}: seen in seed {seed} ({violation})");
            }
            None => {
                all = false;
                println!("{name:15} {says}: NOT SEEN in {seeds} seeds");
            }
        }
    }
    Ok(all)
}

/// Runs one mutant until a checker notices, at most `seeds` seeds.
fn is_seen(names: &Rc<Names>, mutant: &Mutant, seeds: u64) -> bool {
    let (name, says) = (mutant.name, mutant.says);
    match noticed(names, mutant, seeds) {
        Some((seed, violation)) => {
            let Violation { rule, what } = violation;
            println!("{name:10} {says}: seen by {rule} in seed {seed} ({what})");
            true
        }
        None => {
            println!("{name:10} {says}: NOT SEEN in {seeds} seeds");
            false
        }
    }
}

fn noticed(names: &Rc<Names>, mutant: &Mutant, seeds: u64) -> Option<(u64, Violation)> {
    (0..seeds).find_map(|seed| {
        let world = World::new(seed, mutant.switches, names, false);
        let outcome = without(mutant.rules, || world.run(None));
        let violation = outcome
            .violation
            .filter(|violation| violation.rule != "S24")?;
        Some((seed, violation))
    })
}
