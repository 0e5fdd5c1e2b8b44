//! Random streams of changes through whole commits, against a map: several sessions, orders, lost
//! answers, late requests, other writers before and between attempts, ends of the process.

use std::collections::BTreeSet;

use super::changed::{Changed, Foreign, Op, Random, Row, delete, lacking, put};
use super::changed_races::{Racing, Turn};
use super::*;

const KEYS: u64 = 12;
const STEPS: u64 = 8;

/// What the model knows beside the rows: the orders that the process keeps in mind.
struct Stream {
    random: Random,
    ordered: bool,
    known: BTreeMap<i64, u8>,
    next_value: i64,
    clock: u64,
}

impl Stream {
    fn row(&mut self, id: i64) -> Row {
        self.next_value += 1;
        (id, self.random.below(3) as i32, self.next_value)
    }

    /// Makes changes; `there` are the keys that have a row, as far as is known.
    fn ops(&mut self, count: u64, there: &mut BTreeSet<i64>) -> Vec<Op> {
        let ops = (0..count).map(|_| {
            let id = self.random.below(KEYS) as i64;
            let op = match self.random.below(4) {
                0 => delete(id),
                // By orders, a row may take its value from a change that counts for nothing else.
                1 if !self.ordered && there.contains(&id) => {
                    lacking(id, self.random.below(3) as i32)
                }
                _ => put(self.row(id)),
            };
            match op.row {
                Some(_) => there.insert(id),
                None => there.remove(&id),
            };
            if !self.ordered {
                return op;
            }
            // Mostly ahead, at times behind what came before.
            self.clock += self.random.below(3);
            let back = self.random.below(2) * self.random.below(6);
            op.at(0, self.clock.saturating_sub(back).min(255) as u8)
        });
        ops.collect()
    }

    /// The changes that count, in their order.
    fn effective(&mut self, ops: &[Op]) -> Vec<Op> {
        let mut counts = Vec::new();
        for op in ops {
            if let Some(order) = &op.order {
                let number = order[8];
                if self.known.get(&op.id).is_some_and(|known| number < *known) {
                    continue;
                }
                self.known.insert(op.id, number);
            }
            counts.push(op.clone());
        }
        counts
    }
}

async fn foreign(table: &mut Changed, stream: &mut Stream, may_delete: bool) -> Option<Foreign> {
    let rows: Vec<i64> = table.model.keys().copied().collect();
    Some(match stream.random.below(4) {
        0 if !rows.is_empty() => table.foreign_compaction().await,
        1 if !rows.is_empty() && may_delete => {
            let gone: Vec<i64> = rows.into_iter().step_by(2).collect();
            table.foreign_delete(&gone).await
        }
        2 => {
            // Keys that the stream has too, but that are not there.
            let free = (0..KEYS as i64).filter(|id| !table.model.contains_key(id));
            let free: Vec<i64> = free.take(2).collect();
            let new: Vec<Row> = free.into_iter().map(|id| stream.row(id)).collect();
            if new.is_empty() {
                return None;
            }
            table.foreign_append(&new).await
        }
        _ => return None,
    })
}

async fn turns(table: &mut Changed, stream: &mut Stream, may_delete: bool) -> (Vec<Turn>, Vec<Op>) {
    let mut all = Vec::new();
    for _ in 0..stream.random.below(3) {
        all.push(match stream.random.below(6) {
            0 => Turn::Conflict,
            1 => Turn::UnknownBefore,
            2 => Turn::UnknownAfter,
            3 => Turn::LateBeforeLoad,
            _ => Turn::LateBeforeNext,
        });
    }
    // One that was prepared for the rows as they are fits only the first submission.
    if stream.random.below(3) == 0
        && let Some(change) = foreign(table, stream, may_delete).await
    {
        let effect = change.effect().to_vec();
        all.insert(0, Turn::Foreign(change));
        return (all, effect);
    }
    (all, Vec::new())
}

async fn run(seed: u64) {
    let version = match seed % 2 {
        0 => FormatVersion::V2,
        _ => FormatVersion::V3,
    };
    let mut table = Changed::new("t", version).await;
    let racing = Racing::before(&mut table);
    let mut stream = Stream {
        random: Random(seed),
        ordered: seed.is_multiple_of(3),
        known: BTreeMap::new(),
        next_value: 0,
        clock: 0,
    };
    for _ in 0..STEPS {
        if stream.random.below(5) == 0 {
            table.restart_through(&racing);
            stream.known.clear();
        }
        if stream.random.below(4) == 0
            && let Some(change) = foreign(&mut table, &mut stream, true).await
        {
            table.commit_foreign(change).await;
        }
        let mut batch = Vec::new();
        let mut all = Vec::new();
        // Rows that others may delete meanwhile are none to take values from.
        let may_delete = stream.random.below(2) == 0;
        let mut there: BTreeSet<i64> = match may_delete {
            true => BTreeSet::new(),
            false => table.model.keys().copied().collect(),
        };
        for session in 1..=1 + stream.random.below(2) {
            for _ in 0..=stream.random.below(2) {
                let count = 1 + stream.random.below(6);
                let ops = stream.ops(count, &mut there);
                let segment = table.segment(session.into(), session as i32, &ops).await;
                batch.push(segment);
                all.extend(ops);
            }
        }
        let (turns, before) = turns(&mut table, &mut stream, may_delete).await;
        racing.next(turns);
        let outcomes = table.committer.commit(batch.clone()).await;
        assert_eq!(letters(&outcomes), "D".repeat(batch.len()), "seed {seed}");
        table.expect(&before);
        let counts = stream.effective(&all);
        table.expect(&counts);
        table.check().await;
        racing.forget();
    }
}

// Promise: A table with changes equals a map after random streams of changes through whole commits: several sessions, late and repeated orders, conflicts, lost answers, late requests, compactions, deletes and appends of other writers between attempts, and ends of the process.
#[tokio::test]
async fn whole_commits_equal_a_map() {
    let seeds = std::env::var("FRAZIL_CHANGED_SEEDS").ok();
    let seeds: u64 = seeds.map_or(12, |text| text.parse().expect("a number"));
    for seed in 1..=seeds {
        run(seed).await;
    }
}
