//! The mutation gate: the checkers must notice the loss of every rule.
//!
//! Each rule is switched off for whole runs, one at a time, here and nowhere else: those of the core
//! by [`without`], those that the world keeps in place of Java and of the engine by its
//! [`Switches`]. What checks does not know.

use std::rc::Rc;

use frazil_core::rules::{Rule, without};

use crate::check::Violation;
use crate::names::Names;
use crate::world::{Switches, World};

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

const MUTANTS: [Mutant; 20] = [
    core("R1", "offsets are judged on another table than the request asserts", &[Rule::OneBase]),
    core("R2", "a segment passes an earlier one of its session", &[Rule::SessionOrder]),
    core("R3", "a claim without rows moves T", &[Rule::RowsOnly]),
    core("R4", "sealed before dead letters are acknowledged", &[Rule::DeadLettersFirst]),
    core("R5", "W follows what was read, not what is durable", &[Rule::DurableOffset]),
    core("R6", "an outcome counts for whatever is oldest", &[Rule::OutcomeNamed]),
    core("R7", "the epoch is read anew with each table", &[Rule::EpochFixed]),
    core("R8", "equality deletes share a snapshot", &[Rule::DeletesAlone]),
    core("R9+R2", "segments in any order", &[Rule::SegmentOrder, Rule::SessionOrder]),
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
    core("T <= lo", "rows that the table has are committed again", &[Rule::BoundTest]),
    core("resolve", "an unclear answer is taken for a refusal", &[Rule::Resolve]),
    core("R5+R16", "W follows what was read, whatever is pending", &[
        Rule::DurableOffset,
        Rule::FrozenRewind,
    ]),
];

/// Runs every mutant (or those with a name in `only`) until a checker notices, at most `seeds` seeds
/// each. Returns whether all were noticed.
pub(crate) fn run(names: &Rc<Names>, only: &[String], seeds: u64) -> bool {
    let mut missed = 0;
    for mutant in MUTANTS.iter() {
        if !only.is_empty() && !only.iter().any(|name| name == mutant.name) {
            continue;
        }
        match noticed(names, mutant, seeds) {
            Some((seed, violation)) => println!(
                "{:10} {:62} seen by {} in seed {seed}",
                mutant.name, mutant.says, violation.rule
            ),
            None => {
                missed += 1;
                println!("{:10} {:62} NOT SEEN in {seeds} seeds", mutant.name, mutant.says);
            }
        }
    }
    missed == 0
}

fn noticed(names: &Rc<Names>, mutant: &Mutant, seeds: u64) -> Option<(u64, Violation)> {
    (0..seeds).find_map(|seed| {
        let world = World::new(seed, mutant.switches, names, false);
        let outcome = without(mutant.rules, || world.run(None));
        let violation = outcome.violation.filter(|violation| violation.rule != "S24")?;
        Some((seed, violation))
    })
}
