//! What a seed chooses before its run: the size of the world, where each record goes, and which
//! faults come how often. A fault that every run had would hide what only happens without it, so
//! each seed has its own swarm of them.

use crate::rng::Rng;

/// Partitions of the source topic, at most.
pub(crate) const PARTITIONS: usize = 3;
/// Tables, at most.
pub(crate) const TABLES: usize = 3;
/// Offsets of a partition, at most: one bit each.
pub(crate) const OFFSETS: usize = 64;
/// Versions of the connector's configuration (its routing).
pub(crate) const CONFIGS: usize = 2;
/// Keys of an upsert table in one partition.
pub(crate) const KEYS: usize = 4;

/// One bit for each offset of a partition.
pub(crate) type Bits = u64;

/// Returns the bits below `offset`.
#[inline]
pub(crate) fn below(offset: i64) -> Bits {
    match offset {
        i64::MIN..=0 => 0,
        64.. => Bits::MAX,
        offset => (1 << offset) - 1,
    }
}

/// Returns the bits from `from` up to, and without, `to`.
#[inline]
pub(crate) fn between(from: i64, to: i64) -> Bits {
    below(to) & !below(from)
}

/// How segments reach their coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// Within the process.
    Local,
    /// Over the control topic.
    Topic,
}

/// A table as the connector is configured for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TablePlan {
    pub(crate) interval_ms: u64,
    /// Changes with equality deletes, not appended rows.
    pub(crate) upsert: bool,
    /// The branch that is written: 0 is `main`.
    pub(crate) branch: usize,
    /// Rows after which a task seals without waiting for the interval.
    pub(crate) rows_max: u32,
}

/// The names of the branches.
pub(crate) const BRANCHES: [&str; 2] = ["main", "audit"];

/// Chances of 1,024, each time the thing could happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Chances {
    /// A control message is never written.
    pub(crate) lose: u32,
    /// A control message is written twice.
    pub(crate) double: u32,
    /// A control message waits while later ones of others pass.
    pub(crate) hold: u32,
    /// The answer to a request does not come; the request may be applied all the same, or later.
    pub(crate) unknown: u32,
    /// A request that nobody waits for any more is applied late.
    pub(crate) late: u32,
    /// The first answer is lost on the way and the request sent once more.
    pub(crate) replay: u32,
    /// A refusal has code 400 and not 409.
    pub(crate) bad_request: u32,
    /// A request is refused for no reason that passes.
    pub(crate) refused: u32,
    /// A load fails.
    pub(crate) load_fails: u32,
    /// A load returns what was, not what is.
    pub(crate) load_stale: u32,
    /// An upload fails.
    pub(crate) upload_fails: u32,
    /// A dead letter waits longer than Java waits for it.
    pub(crate) dead_letter_slow: u32,
    /// The session does not take it in that partitions are handed back.
    pub(crate) close_fails: u32,
}

/// What the chaos actor may do; the order is that of [`Plan::chaos`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    CrashProcess,
    CrashTask,
    Expel,
    Rebalance,
    Pause,
    LoseControlTopic,
    Elect,
    ForeignAppend,
    ForeignBranch,
    Expire,
    Rollback,
    Replace,
    Drop,
    Spec,
    Clean,
    CleanAll,
    Reset,
    ResetOutside,
    ConfigChange,
    ClockJump,
    LongWait,
    GrowPartitions,
}

/// Every fault, with the chance of 16 that a seed has it.
pub(crate) const FAULTS: [(Fault, u64); 22] = [
    (Fault::CrashProcess, 8),
    (Fault::CrashTask, 8),
    (Fault::Expel, 10),
    (Fault::Rebalance, 10),
    (Fault::Pause, 8),
    (Fault::LoseControlTopic, 4),
    (Fault::Elect, 8),
    (Fault::ForeignAppend, 8),
    (Fault::ForeignBranch, 8),
    (Fault::Expire, 6),
    (Fault::Rollback, 5),
    (Fault::Replace, 3),
    (Fault::Drop, 3),
    (Fault::Spec, 4),
    (Fault::Clean, 6),
    (Fault::CleanAll, 3),
    (Fault::Reset, 5),
    (Fault::ResetOutside, 4),
    (Fault::ConfigChange, 4),
    (Fault::ClockJump, 5),
    (Fault::LongWait, 5),
    (Fault::GrowPartitions, 4),
];

/// Where records go that no table gets.
pub(crate) const DEAD_LETTER: u8 = 0x80;
/// A transform drops the record before the task sees it.
pub(crate) const FILTERED: u8 = 0x40;
/// There is no record at the offset: a transaction marker, or compacted away.
pub(crate) const NO_RECORD: u8 = 0x20;

/// Everything that a seed decides at its beginning.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) tables: Vec<TablePlan>,
    pub(crate) partitions: usize,
    pub(crate) tasks: usize,
    pub(crate) transports: Vec<Transport>,
    pub(crate) eager: bool,
    /// Offsets that each partition will have at the end.
    pub(crate) offsets: [i64; PARTITIONS],
    /// The tables of a record (one bit each), or one of [`DEAD_LETTER`], [`FILTERED`], [`NO_RECORD`].
    pub(crate) routes: [[[u8; OFFSETS]; PARTITIONS]; CONFIGS],
    /// The same by table: which offsets it gets.
    pub(crate) routed: [[[Bits; PARTITIONS]; TABLES]; CONFIGS],
    pub(crate) dead_letters: [[Bits; PARTITIONS]; CONFIGS],
    pub(crate) no_record: [Bits; PARTITIONS],
    pub(crate) filtered: [Bits; PARTITIONS],
    /// The offsets of each key of a partition.
    pub(crate) key_bits: [[Bits; KEYS]; PARTITIONS],
    /// The longest time of one step.
    pub(crate) step_ms_max: u64,
    /// Steps between two faults, on average.
    pub(crate) calm: u64,
    pub(crate) chances: Chances,
    pub(crate) chaos: [u32; FAULTS.len()],
    /// Segments say what they have read and have no rows of, too.
    pub(crate) idle_claims: bool,
    /// Java makes no native call while a dead letter is not acknowledged; otherwise it goes on and
    /// says so.
    pub(crate) letters_block: bool,
    /// Weights of the actors.
    pub(crate) weights: [u32; 7],
    /// Records of one poll, at most.
    pub(crate) poll_max: u64,
    /// Steps until faults stop.
    pub(crate) faulty_steps: u64,
}

impl Plan {
    /// Draws the plan of `seed`.
    pub(crate) fn draw(seed: u64) -> Plan {
        let mut rng = Rng::new(seed);
        let tables = rng.between(1, TABLES as u64) as usize;
        let partitions = rng.between(1, PARTITIONS as u64) as usize;
        let processes = rng.between(1, 3) as usize;
        let transports = draw_transports(&mut rng, processes);
        let longest = rng.between(8, OFFSETS as u64);
        let mut plan = Plan {
            tables: (0..tables).map(|_| draw_table(&mut rng)).collect(),
            partitions,
            tasks: rng.between(1, 4) as usize,
            transports,
            eager: rng.chance(512),
            offsets: [0; PARTITIONS],
            routes: [[[0; OFFSETS]; PARTITIONS]; CONFIGS],
            routed: [[[0; PARTITIONS]; TABLES]; CONFIGS],
            dead_letters: [[0; PARTITIONS]; CONFIGS],
            no_record: [0; PARTITIONS],
            filtered: [0; PARTITIONS],
            key_bits: [[0; KEYS]; PARTITIONS],
            step_ms_max: rng.pick(&[40, 150, 400]),
            calm: rng.pick(&[12, 40, 150, 600]),
            chances: Chances::default(),
            chaos: [0; FAULTS.len()],
            idle_claims: rng.chance(300),
            letters_block: rng.chance(512),
            weights: [0; 7],
            poll_max: rng.between(1, 8),
            faulty_steps: rng.pick(&[400, 1_500, 4_000]),
        };
        for offsets in plan.offsets.iter_mut().take(partitions) {
            *offsets = rng.between(longest / 2, longest) as i64;
        }
        plan.draw_routes(&mut rng);
        plan.draw_faults(&mut rng);
        for weight in &mut plan.weights {
            *weight = rng.pick(&[2, 8, 8, 24]);
        }
        plan
    }

    /// Tells whether nothing ever goes wrong in this run.
    pub(crate) fn is_calm(&self) -> bool {
        !self.has_chaos() && self.chances == Chances::default()
    }

    /// Tells whether somebody breaks things; single steps may fail by their chances without that.
    pub(crate) fn has_chaos(&self) -> bool {
        self.chaos.iter().any(|weight| *weight != 0)
    }

    fn draw_routes(&mut self, rng: &mut Rng) {
        let tables = self.tables.len();
        let sparse = rng.chance(300);
        let letters = rng.pick(&[0, 0, 60, 200]);
        let gaps = rng.pick(&[0, 40, 200]);
        for partition in 0..PARTITIONS {
            for offset in 0..OFFSETS {
                let key = rng.index(KEYS);
                self.key_bits[partition][key] |= 1 << offset;
                let special = if rng.chance(gaps) {
                    rng.pick(&[FILTERED, NO_RECORD])
                } else {
                    0
                };
                let mut last = 0;
                for config in 0..CONFIGS {
                    // The second configuration sends some records elsewhere.
                    let route = if config > 0 && rng.chance(700) {
                        last
                    } else {
                        draw_route(rng, tables, sparse, letters)
                    };
                    last = route;
                    let route = if special == 0 { route } else { special };
                    self.routes[config][partition][offset] = route;
                    let bit = 1 << offset;
                    match route {
                        DEAD_LETTER => self.dead_letters[config][partition] |= bit,
                        FILTERED => self.filtered[partition] |= bit,
                        NO_RECORD => self.no_record[partition] |= bit,
                        route => {
                            for table in (0..tables).filter(|table| route & (1 << table) != 0) {
                                self.routed[config][table][partition] |= bit;
                            }
                        }
                    }
                }
            }
        }
    }

    fn draw_faults(&mut self, rng: &mut Rng) {
        if rng.chance(64) {
            return;
        }
        for ((_, chance), weight) in FAULTS.iter().zip(&mut self.chaos) {
            if rng.below(16) < *chance {
                *weight = rng.pick(&[1, 4, 12]);
            }
        }
        let mut draw = |rates: &[u32]| if rng.chance(512) { rng.pick(rates) } else { 0 };
        let often = [10, 60, 250];
        self.chances = Chances {
            lose: draw(&often),
            double: draw(&often),
            hold: draw(&often),
            unknown: draw(&often),
            late: draw(&[300, 700]),
            replay: draw(&often),
            bad_request: draw(&[300, 1_024]),
            refused: draw(&[5, 30]),
            load_fails: draw(&often),
            load_stale: draw(&often),
            upload_fails: draw(&[5, 30, 100]),
            dead_letter_slow: draw(&often),
            close_fails: draw(&often),
        };
    }
}

fn draw_transports(rng: &mut Rng, processes: usize) -> Vec<Transport> {
    let mode = rng.below(4);
    (0..processes)
        .map(|_| match mode {
            0 => Transport::Local,
            1 | 2 => Transport::Topic,
            // A roll-out in which some workers are ahead of others.
            _ => rng.pick(&[Transport::Local, Transport::Topic]),
        })
        .collect()
}

fn draw_table(rng: &mut Rng) -> TablePlan {
    TablePlan {
        interval_ms: rng.pick(&[1_000, 3_000, 10_000, 30_000]),
        upsert: rng.chance(300),
        branch: usize::from(rng.chance(150)),
        rows_max: rng.pick(&[3, 12, 1_000, 1_000]),
    }
}

fn draw_route(rng: &mut Rng, tables: usize, sparse: bool, letters: u32) -> u8 {
    if rng.chance(letters) {
        return DEAD_LETTER;
    }
    if sparse && rng.chance(800) {
        return 0;
    }
    let mut route = 1 << rng.index(tables);
    if rng.chance(250) {
        route |= 1 << rng.index(tables);
    }
    if rng.chance(60) {
        route = 0;
    }
    route
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_name_half_open_ranges() {
        assert_eq!(below(0), 0);
        assert_eq!(below(-1), 0);
        assert_eq!(below(3), 0b111);
        assert_eq!(below(64), Bits::MAX);
        assert_eq!(between(2, 5), 0b11100);
        assert_eq!(between(5, 2), 0);
    }

    #[test]
    fn the_routes_of_a_record_and_the_offsets_of_a_table_agree() {
        let mut calm = 0;
        for seed in 0..300 {
            let plan = Plan::draw(seed);
            calm += u64::from(plan.is_calm());
            for config in 0..CONFIGS {
                for partition in 0..PARTITIONS {
                    for offset in 0..OFFSETS {
                        let route = plan.routes[config][partition][offset];
                        for table in 0..plan.tables.len() {
                            let routed = plan.routed[config][table][partition] >> offset & 1 == 1;
                            let named = route < NO_RECORD && route & (1 << table) != 0;
                            assert_eq!(routed, named, "seed {seed}");
                        }
                    }
                }
            }
        }
        assert!(
            (5..60).contains(&calm),
            "{calm} of 300 seeds are without faults"
        );
    }
}
