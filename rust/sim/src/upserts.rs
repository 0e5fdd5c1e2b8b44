//! Tables with changes: each segment deletes the keys it has, by equality, and adds their newest
//! rows. A delete reaches only rows of lower sequence numbers, so that two segments of one partition
//! in one snapshot leave two rows of a key (R8).

use crate::check::{File, Ledger};
use crate::swarm::{Bits, KEYS, PARTITIONS, Plan};

/// The live rows of one table, by partition and key: offset and sequence number.
#[derive(Debug, Default)]
pub(crate) struct Upserts {
    live: [[Vec<(u32, i64)>; KEYS]; PARTITIONS],
    /// Its owner has set it back: what is live is the owner's affair now.
    given_up: bool,
}

impl Upserts {
    /// The table was rolled back.
    pub(crate) fn give_up(&mut self) {
        self.given_up = true;
    }

    /// A commit with `files` was applied as sequence number `sequence`.
    pub(crate) fn applied(
        &mut self,
        plan: &Plan,
        ledger: &mut Ledger,
        files: &[File],
        (table, sequence): (usize, i64),
        committed: &[usize],
    ) {
        let mut seen = 0_u32;
        for index in committed {
            for partition in 0..plan.partitions {
                if files[*index].rows[partition] == 0 {
                    continue;
                }
                if seen & (1 << partition) != 0 {
                    ledger.violated(
                        "S17",
                        format!("table {table}: partition {partition} twice in one snapshot with deletes"),
                    );
                }
                seen |= 1 << partition;
                self.add(plan, partition, files[*index].rows[partition], sequence);
            }
        }
        if self.given_up {
            return;
        }
        for partition in (0..plan.partitions).filter(|partition| seen & (1 << partition) != 0) {
            for key in 0..KEYS {
                self.check(plan, ledger, (table, partition, key));
            }
        }
    }

    fn add(&mut self, plan: &Plan, partition: usize, rows: Bits, sequence: i64) {
        for key in 0..KEYS {
            let of_key = rows & key_bits(plan, partition, key);
            if of_key == 0 {
                continue;
            }
            let live = &mut self.live[partition][key];
            live.retain(|(_, since)| *since >= sequence);
            live.push((of_key.ilog2(), sequence));
        }
    }

    fn check(&self, plan: &Plan, ledger: &mut Ledger, at: (usize, usize, usize)) {
        let (table, partition, key) = at;
        let of_key = key_bits(plan, partition, key);
        let expected = ledger.latest_rows(table, partition, of_key).checked_ilog2();
        let live = &self.live[partition][key];
        let is_fold = match expected {
            None => live.is_empty(),
            Some(offset) => matches!(live.as_slice(), [(only, _)] if *only == offset),
        };
        if !is_fold {
            ledger.violated(
                "S18",
                format!("table {table}: key {partition}/{key} has rows {live:?}, the log ends at {expected:?}"),
            );
        }
    }

    /// Compares the table with the change logs beside it: what is current was logged.
    pub(crate) fn check_pairs(&self, plan: &Plan, ledger: &mut Ledger, table: usize) {
        let logs = (0..plan.tables.len()).filter(|log| !plan.tables[*log].upsert);
        for log in logs.filter(|_| !self.given_up) {
            for partition in 0..plan.partitions {
                let common = plan.routed[0][log][partition] & plan.routed[1][log][partition];
                for (offset, _) in self.live[partition].iter().flatten() {
                    let mut row = [0; PARTITIONS];
                    row[partition] = 1 << offset & common;
                    if !ledger.has_all(log, &row) {
                        ledger.violated(
                            "S19",
                            format!(
                                "table {table} has {partition}@{offset}, its log {log} has not"
                            ),
                        );
                    }
                }
            }
        }
    }
}

fn key_bits(plan: &Plan, partition: usize, key: usize) -> Bits {
    plan.key_bits[partition][key]
}
