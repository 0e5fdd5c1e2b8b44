//! The checkers: what must hold after every step, whatever went wrong before it.
//!
//! They know the source log, each file's rows and what the catalog has applied, and nothing of the
//! machines under test; in particular they never ask which rule is switched off. Everything is a
//! bitmap of offsets, so that a step costs a few instructions.
//!
//! | S | says | where |
//! |---|---|---|
//! | S1 | a row is committed once in an epoch of a table | [`Ledger::applied`] |
//! | S2 | below T every row of the table is there | [`Ledger::applied`] |
//! | S3 | below W every row is in its tables or in the dead letter queue | [`Ledger::group_moved`] |
//! | S4 | T, and the time up to which the table is complete, never go back | [`Ledger::applied`] |
//! | S5 | W never goes back but by a reset | [`Ledger::group_moved`] |
//! | S6 | state and snapshot name each other | [`Ledger::applied`] |
//! | S7, S9 | every file of a snapshot exists | [`Ledger::applied`] |
//! | S8 | no file is in a table twice | [`Ledger::applied`] |
//! | S10 | a session takes "durable" for its segments one after the other | [`Ledger::counted`] |
//! | S11 | `preCommit` answers all that it was asked, and at most that | `run` |
//! | S12 | no rewind of a partition that is not assigned | `run` |
//! | S14 | the segments on their way stay below their limit | `native` |
//! | S15 | "durable" is said of rows that are in the table, by the snapshot that is named | [`Ledger::told_durable`] |
//! | S16 | commits of others stay | [`Ledger::applied`] |
//! | S17, S18 | a table with deletes is the fold of its log | `upserts` |
//! | S19 | a change log and its current state agree | `upserts`, at the end of a run |
//! | S20 | snapshot timestamps do not go back | `catalog` |
//! | S21 | a session from before a reset does not commit to a table that the reset has reached | [`Ledger::applied`] |
//! | S22 | no segment is older than its time to live when its commit begins | `hub` |
//! | S23 | without faults nothing is rejected and nobody starts over | `world` |
//! | S24 | once faults stop, W reaches the end of the log | `world` |
//! | S25 | the same seed gives the same run | `main` |
//! | S26 | a secret stays out of states and messages | `wire`, `catalog` |
//!
//! Not here: S13, bytes in memory, has its tests in the engine. S16 and S20 are as strict as the
//! catalog of the simulator, which builds a snapshot as `commit::plan` does; the plan has its own.

use crate::swarm::{Bits, PARTITIONS, Plan, TABLES, below, between};

/// Epochs of one run, at most.
pub(crate) const EPOCHS: usize = 8;

/// An invariant that does not hold any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    /// Its number, such as `S1`.
    pub(crate) rule: &'static str,
    pub(crate) what: String,
}

/// A sealed segment as the files say what it is.
#[derive(Debug, Clone, Default)]
pub(crate) struct File {
    pub(crate) table: usize,
    pub(crate) epoch: u64,
    pub(crate) config: usize,
    pub(crate) rows: [Bits; PARTITIONS],
    pub(crate) ends: [i64; PARTITIONS],
    pub(crate) written_ms: u64,
    pub(crate) gone: bool,
    /// A committer has seen it there: what may still delete it is older than any commit.
    pub(crate) checked: bool,
    /// The incarnation of the table that has it, if one has.
    pub(crate) committed: Option<u32>,
    /// The snapshot that brought it.
    pub(crate) snapshot: Option<i64>,
}

/// What a commit changed, as the catalog saw it.
#[derive(Debug)]
pub(crate) struct Applied<'a> {
    pub(crate) table: usize,
    pub(crate) incarnation: u32,
    pub(crate) snapshot_id: i64,
    /// The snapshot that the state in the same request names.
    pub(crate) state_snapshot_id: i64,
    pub(crate) files: &'a [usize],
    pub(crate) epoch: u64,
    /// T of each partition after the commit; below 0 when there is none.
    pub(crate) bounds: [i64; PARTITIONS],
    pub(crate) valid_through: Option<i64>,
    pub(crate) foreign: (u32, u32),
}

#[derive(Debug, Clone, Default)]
struct TableLedger {
    rows: [[Bits; PARTITIONS]; EPOCHS],
    /// Rows that count: committed in the epoch that their offset was last reset to, or later.
    ok: [Bits; PARTITIONS],
    /// Rows that were in the table at some time.
    ever: [Bits; PARTITIONS],
    /// Rows that a user skipped, or that a documented limit gives up.
    excused: [Bits; PARTITIONS],
    /// The same before any reset that asks for them again.
    excused_ever: [Bits; PARTITIONS],
    bounds: [i64; PARTITIONS],
    epoch: u64,
    /// The epoch of the newest reset that has reached the table since the writer's first commit.
    anchor: u64,
    valid_through: Option<i64>,
    known: u8,
}

impl TableLedger {
    fn excuse(&mut self, partition: usize, rows: Bits) {
        self.excused[partition] |= rows;
        self.excused_ever[partition] |= rows;
    }
}

/// What is in the tables and in the group, by the catalog's and the broker's own books.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    tables: [TableLedger; TABLES],
    dead_letters: [Bits; PARTITIONS],
    reset_epoch: [u64; PARTITIONS],
    reset_offset: [i64; PARTITIONS],
    configs_seen: usize,
    /// `told[session][table]`: segments that the session has taken for durable.
    told: Vec<[u64; TABLES]>,
    /// Commits that were applied.
    pub(crate) commits: u64,
    pub(crate) violation: Option<Violation>,
}

impl Ledger {
    /// Begins with tables that were never written.
    pub(crate) fn new() -> Self {
        let mut ledger = Ledger {
            configs_seen: 1,
            ..Ledger::default()
        };
        for table in &mut ledger.tables {
            table.bounds = [-1; PARTITIONS];
        }
        ledger
    }

    /// An invariant does not hold. The first one counts.
    #[cold]
    pub(crate) fn violated(&mut self, rule: &'static str, what: String) {
        self.violation.get_or_insert(Violation { rule, what });
    }

    /// A session begins.
    pub(crate) fn session(&mut self) {
        self.told.push([0; TABLES]);
    }

    /// The dead letter queue has the record.
    pub(crate) fn dead_letter(&mut self, partition: usize, offset: i64) {
        self.dead_letters[partition] |= 1 << offset;
    }

    /// Another version of the routing is in use from now on. A record that it sends to a table
    /// which has passed the record's offset is not written: the documented limit.
    pub(crate) fn config_changed(&mut self, plan: &Plan) {
        self.configs_seen = 2;
        for (table, ledger) in self.tables.iter_mut().enumerate() {
            for partition in 0..PARTITIONS {
                let routed = |config: usize| plan.routed[config][table][partition];
                let moved = routed(1) & !routed(0);
                ledger.excuse(partition, moved & below(ledger.bounds[partition]));
            }
        }
    }

    /// A reset has reached a table that the writer has committed to.
    pub(crate) fn anchored(&mut self, table: usize, epoch: u64) {
        self.tables[table].anchor = self.tables[table].anchor.max(epoch);
    }

    /// The table was dropped, and another one has its name.
    pub(crate) fn replaced(&mut self, table: usize) {
        let ledger = &mut self.tables[table];
        *ledger = TableLedger {
            ok: ledger.ok,
            ever: ledger.ever,
            excused: ledger.excused,
            excused_ever: ledger.excused_ever,
            bounds: [-1; PARTITIONS],
            ..TableLedger::default()
        };
        // What the old one had, its owner has thrown away.
        for partition in 0..PARTITIONS {
            ledger.excuse(partition, ledger.ever[partition]);
        }
    }

    /// The group's offset of `partition` was set by its owner; `epoch` is that of the reset when the
    /// connector knows of it.
    pub(crate) fn reset(&mut self, partition: usize, epoch: Option<u64>, from: i64, to: i64) {
        let skipped = between(from, to);
        // Without the connector's knowledge what was passed once is not written again.
        let passed = match epoch {
            None => between(to, from),
            Some(_) => 0,
        };
        for table in &mut self.tables {
            table.excuse(partition, skipped | passed);
            if epoch.is_some() {
                table.ok[partition] &= below(to);
                table.excused[partition] &= below(to);
            }
        }
        self.dead_letters[partition] |= skipped;
        if let Some(epoch) = epoch {
            self.dead_letters[partition] &= below(to);
            self.reset_epoch[partition] = epoch;
            self.reset_offset[partition] = to;
        }
    }

    /// Returns whether the table has all `rows`, in an epoch that counts or an earlier one.
    pub(crate) fn has_all(&self, table: usize, rows: &[Bits; PARTITIONS]) -> bool {
        let ledger = &self.tables[table];
        let has = |p: usize| rows[p] & !(ledger.ever[p] | ledger.excused_ever[p]) == 0;
        (0..PARTITIONS).all(has)
    }

    /// Returns the rows that the table holds of the latest epoch that has any of `among`.
    pub(crate) fn latest_rows(&self, table: usize, partition: usize, among: Bits) -> Bits {
        let rows = self.tables[table].rows.iter().rev();
        rows.map(|rows| rows[partition] & among)
            .find(|rows| *rows != 0)
            .unwrap_or(0)
    }

    /// The catalog has applied a commit of the connector.
    pub(crate) fn applied(&mut self, plan: &Plan, files: &mut [File], now: &Applied<'_>) {
        if now.state_snapshot_id != now.snapshot_id {
            self.violated(
                "S6",
                format!("table {}: the state names another snapshot", now.table),
            );
        }
        if now.foreign.0 != now.foreign.1 {
            self.violated(
                "S16",
                format!(
                    "table {}: {} commits of others, were {}",
                    now.table, now.foreign.1, now.foreign.0
                ),
            );
        }
        self.commits += 1;
        for index in now.files {
            self.add_file(plan, &mut files[*index], *index, now);
        }
        self.check_bounds(plan, now);
    }

    fn add_file(&mut self, plan: &Plan, file: &mut File, index: usize, now: &Applied<'_>) {
        let table = now.table;
        if file.gone {
            self.violated(
                "S7",
                format!("table {table}: file {index} is not in the storage"),
            );
        }
        if file.committed == Some(now.incarnation) {
            self.violated(
                "S8",
                format!("table {table}: file {index} is in the table twice"),
            );
        }
        let newest = self.tables[table].epoch.max(self.tables[table].anchor);
        if file.epoch < newest {
            self.violated(
                "S21",
                format!("table {table}: epoch {} after {newest}", file.epoch),
            );
        }
        file.committed = Some(now.incarnation);
        file.snapshot = Some(now.snapshot_id);
        let epoch = (file.epoch as usize).min(EPOCHS - 1);
        for partition in 0..plan.partitions {
            let rows = file.rows[partition];
            if rows == 0 {
                continue;
            }
            let ledger = &mut self.tables[table];
            let twice = ledger.rows[epoch][partition] & rows;
            ledger.rows[epoch][partition] |= rows;
            ledger.ever[partition] |= rows;
            let counts = if file.epoch >= self.reset_epoch[partition] {
                Bits::MAX
            } else {
                below(self.reset_offset[partition])
            };
            ledger.ok[partition] |= rows & counts;
            if self.configs_seen > 1 {
                // A record that one configuration sends here and another does not: the offsets
                // that the first one's rows pass are passed for both (docs/exactly-once.md).
                let routed = |config: usize| plan.routed[config][table][partition];
                let other = routed(1 - file.config) & !routed(file.config);
                ledger.excuse(partition, other & below(file.ends[partition]));
            }
            if twice != 0 {
                let offset = twice.trailing_zeros();
                self.violated(
                    "S1",
                    format!("table {table}: row {partition}@{offset} twice"),
                );
            }
        }
    }

    fn check_bounds(&mut self, plan: &Plan, now: &Applied<'_>) {
        let table = now.table;
        let (both, epoch) = (self.configs_seen > 1, self.tables[table].epoch);
        let mut known = 0;
        for partition in 0..plan.partitions {
            let bound = now.bounds[partition];
            let before = self.tables[table].bounds[partition];
            known |= u8::from(bound >= 0) << partition;
            if bound < before && now.epoch == epoch {
                self.violated(
                    "S4",
                    format!("table {table}: T of {partition} from {before} to {bound}"),
                );
            }
            let ledger = &self.tables[table];
            let mut routed = plan.routed[0][table][partition];
            if both {
                routed &= plan.routed[1][table][partition];
            }
            // A commit from before a reset does not know that rows are to come again.
            let held = match now.epoch >= self.reset_epoch[partition] {
                true => ledger.ok[partition] | ledger.excused[partition],
                false => ledger.ever[partition] | ledger.excused_ever[partition],
            };
            let missing = routed & below(bound) & !held;
            if missing != 0 {
                let offset = missing.trailing_zeros();
                self.violated(
                    "S2",
                    format!("table {table}: no row {partition}@{offset} below T {bound}"),
                );
            }
        }
        let ledger = &mut self.tables[table];
        ledger.bounds = now.bounds;
        ledger.epoch = ledger.epoch.max(now.epoch);
        let back =
            known == ledger.known && now.epoch == epoch && now.valid_through < ledger.valid_through;
        let before = ledger.valid_through;
        (ledger.known, ledger.valid_through) = (known, now.valid_through);
        if back {
            self.violated(
                "S4",
                format!(
                    "table {table}: complete until {:?} after {before:?}",
                    now.valid_through
                ),
            );
        }
    }

    /// A member of the group, whose configuration is `config`, has moved W.
    pub(crate) fn group_moved(
        &mut self,
        plan: &Plan,
        config: usize,
        partition: usize,
        (from, to): (i64, i64),
    ) {
        if to < from {
            return self.violated("S5", format!("W of {partition} from {from} to {to}"));
        }
        let passed = between(from, to);
        let letters = passed & plan.dead_letters[config][partition] & !self.dead_letters[partition];
        if letters != 0 {
            let offset = letters.trailing_zeros();
            self.violated(
                "S3",
                format!("no dead letter {partition}@{offset} below W {to}"),
            );
        }
        for table in 0..plan.tables.len() {
            let ledger = &mut self.tables[table];
            if self.configs_seen > 1 {
                // As in `applied`: what only the other configuration sends here is passed for both.
                let routed = |config: usize| plan.routed[config][table][partition];
                ledger.excuse(partition, passed & routed(1 - config) & !routed(config));
            }
            let held = ledger.ok[partition] | ledger.excused[partition];
            let missing = passed & plan.routed[config][table][partition] & !held;
            if missing != 0 {
                let offset = missing.trailing_zeros();
                return self.violated(
                    "S3",
                    format!("table {table}: no row {partition}@{offset} below W {to}"),
                );
            }
        }
    }

    /// A task takes an outcome for its oldest segment of a table; `session` is the one that the
    /// outcome names and the one that the task has.
    pub(crate) fn counted(&mut self, session: (usize, usize), table: usize, seq: u64) {
        let told = &mut self.told[session.1][table];
        let next = *told;
        *told += 1;
        if session.0 != session.1 || seq != next {
            self.violated(
                "S10",
                format!(
                    "session {}, table {table}: segment {seq} of session {} for {next}",
                    session.1, session.0
                ),
            );
        }
    }

    /// A coordinator says that the segment is durable.
    pub(crate) fn told_durable(&mut self, file: &File, index: usize, snapshot_id: Option<i64>) {
        let table = file.table;
        let there = match snapshot_id {
            Some(snapshot_id) => file.snapshot == Some(snapshot_id),
            None => self.has_all(table, &file.rows),
        };
        if !there {
            self.violated(
                "S15",
                format!("table {table}: file {index} is said to be durable"),
            );
        }
    }
}
