//! Random schedules of a task: puts, seals, commits, answers that are late, twice or out of order,
//! rejections, failures, other writers, rebalances, dead letters.
//!
//! The world is as small as it can be: a table is the set of its rows and T, a commit passes when
//! T is not above the lowest offset. After each step the group's offset is below every record that
//! is missing somewhere; at the end, once faults have stopped, everything is in the tables once.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const TABLES: usize = 2;
const PARTITIONS: i32 = 2;

/// One thing that happens.
#[derive(Debug, Clone)]
enum Step {
    Put {
        partition: i32,
        records: i64,
    },
    PreCommit,
    Seal(usize),
    /// The coordinator takes the next segment of a table.
    Commit(usize),
    /// The answer at this place of the queue arrives; it may come again.
    Answer {
        place: usize,
        again: bool,
    },
    Expire(usize),
    SealFails,
    Spoiled,
    /// Another task commits rows from where its group stood.
    Foreign {
        table: usize,
        partition: i32,
        records: i64,
    },
    Rebalance(i32),
    DeadLettersAcknowledged,
}

fn step() -> impl Strategy<Value = Step> {
    let partition = || 0..PARTITIONS;
    let table = || 0..TABLES;
    prop_oneof![
        8 => (partition(), 1..6_i64).prop_map(|(partition, records)| Step::Put { partition, records }),
        4 => Just(Step::PreCommit),
        4 => table().prop_map(Step::Seal),
        4 => table().prop_map(Step::Commit),
        4 => (0..4_usize, any::<bool>()).prop_map(|(place, again)| Step::Answer { place, again }),
        1 => table().prop_map(Step::Expire),
        1 => Just(Step::SealFails),
        1 => Just(Step::Spoiled),
        1 => (table(), partition(), 1..6_i64)
            .prop_map(|(table, partition, records)| Step::Foreign { table, partition, records }),
        1 => partition().prop_map(Step::Rebalance),
        2 => Just(Step::DeadLettersAcknowledged),
    ]
}

/// What becomes of a record: a row of these tables, a dead letter, or nothing.
fn tables_of(partition: i32, offset: i64) -> Vec<usize> {
    match (i64::from(partition) + offset) % 5 {
        0 => vec![],
        1 => vec![0],
        2 => vec![1],
        _ => vec![0, 1],
    }
}

fn is_dead_letter(partition: i32, offset: i64) -> bool {
    (i64::from(partition) + offset) % 10 == 5
}

#[derive(Debug, Default)]
struct Table {
    bound: BTreeMap<i32, i64>,
    rows: BTreeSet<(i32, i64)>,
    open: Vec<(i32, i64)>,
    waiting: Vec<(Sealed, Vec<(i32, i64)>)>,
    dead: BTreeSet<Uuid>,
}

struct World {
    task: TaskMachine,
    tables: Vec<Table>,
    answers: Vec<(Uuid, usize, u64, Verdict)>,
    committed: BTreeMap<i32, i64>,
    position: BTreeMap<i32, i64>,
    rewinds: Vec<(TopicPartition, i64)>,
    unacknowledged: BTreeSet<(i32, i64)>,
    acknowledged: BTreeSet<(i32, i64)>,
    ids: u128,
    now_ms: u64,
}

fn p(partition: i32) -> TopicPartition {
    TopicPartition::new("t", partition)
}

impl World {
    fn new() -> World {
        let settings = TaskSettings {
            connector: "c".to_owned(),
            owner: "o".to_owned(),
            writer_id: "w".to_owned(),
            tables: vec!["a".to_owned(), "b".to_owned()],
            epoch: 0,
            segments_in_flight_max: 3,
            rejections_max: usize::MAX,
            rejection_window_ms: 1,
            block_max_ms: u64::MAX,
            drain_max_ms: 1,
            answers_max_ms: 3,
            external_change: ExternalChange::Warn,
        };
        let mut world = World {
            task: TaskMachine::new(settings, Uuid::from_u128(1)),
            tables: (0..TABLES).map(|_| Table::default()).collect(),
            answers: Vec::new(),
            committed: BTreeMap::new(),
            position: (0..PARTITIONS).map(|partition| (partition, 0)).collect(),
            rewinds: Vec::new(),
            unacknowledged: BTreeSet::new(),
            acknowledged: BTreeSet::new(),
            ids: 1,
            now_ms: 0,
        };
        world.task.assign(&[p(0), p(1)]);
        world
    }

    fn fresh(&mut self) -> Uuid {
        self.ids += 1;
        Uuid::from_u128(self.ids)
    }

    fn begun(&mut self, begun: StartOver) {
        self.rewinds = begun.rewinds;
        for table in &mut self.tables {
            table.open.clear();
            table.dead.insert(begun.ended);
            table
                .waiting
                .retain(|(sealed, _)| sealed.session != begun.ended);
        }
    }

    /// What the framework does at each poll.
    fn poll(&mut self) {
        for (partition, offset) in std::mem::take(&mut self.rewinds) {
            self.position.insert(partition.partition, offset);
        }
        let fresh = self.fresh();
        self.now_ms += 1;
        if let Begun::Anew(begun) = self.task.tick(self.now_ms, fresh).unwrap() {
            self.begun(begun);
        }
    }

    fn put(&mut self, partition: i32, records: i64) {
        self.poll();
        let first = self.position[&partition];
        let end = first + records;
        self.task.begins(&p(partition), first);
        let new: Vec<i64> = {
            let mut intake = self.task.intake();
            let mut run = intake.run(&p(partition));
            (first..end).filter(|offset| run.is_new(*offset)).collect()
        };
        let rewinding = self.rewinds.iter().any(|(to, _)| *to == p(partition));
        assert!(!rewinding || new.is_empty(), "it comes again");
        for table in 0..TABLES {
            self.load(table);
            for offset in &new {
                if tables_of(partition, *offset).contains(&table)
                    && !self.task.is_covered(table, &p(partition), *offset)
                {
                    self.tables[table].open.push((partition, *offset));
                    self.task
                        .wrote(table, &p(partition), (*offset, *offset), None);
                }
            }
        }
        for offset in new
            .into_iter()
            .filter(|offset| is_dead_letter(partition, *offset))
        {
            if !self.acknowledged.contains(&(partition, offset)) {
                self.unacknowledged.insert((partition, offset));
                self.task.set_dead_letters_pending(true);
            }
        }
        self.task.read(&p(partition), (first, end - 1), None);
        self.position.insert(partition, end);
    }

    fn load(&mut self, index: usize) {
        if self.task.load_due(index) == LoadDue::No {
            return;
        }
        let bounds = self.tables[index].bound.clone();
        let held = |partition: &TopicPartition| Held {
            bound: bounds.get(&partition.partition).copied(),
            ..Held::default()
        };
        let standing = Standing {
            uuid: Uuid::from_u128(7),
            epoch: 0,
            held: &held,
        };
        self.task.table_loaded(index, &standing).unwrap();
    }

    fn pre_commit(&mut self) {
        for partition in 0..PARTITIONS {
            let asked = self.position[&partition];
            let Some(answer) = self.task.pre_commit(&p(partition), asked) else {
                continue;
            };
            assert!(answer <= asked);
            let before = self.committed.insert(partition, answer).unwrap_or(0);
            assert!(before <= answer, "the group's offset went back");
        }
    }

    fn seal(&mut self, table: usize) {
        if let Some(sealed) = self.task.seal(table) {
            assert!(self.unacknowledged.is_empty());
            let rows = std::mem::take(&mut self.tables[table].open);
            self.tables[table].waiting.push((sealed, rows));
        }
    }

    fn commit(&mut self, index: usize) {
        let table = &mut self.tables[index];
        if table.waiting.is_empty() {
            return;
        }
        let (sealed, rows) = table.waiting.remove(0);
        let bound = |range: &crate::offsets::SourceRange| {
            let bound = table.bound.get(&range.partition.partition);
            bound.copied().unwrap_or(i64::MIN)
        };
        let ranges = &sealed.ranges;
        let verdict = if table.dead.contains(&sealed.session) {
            Verdict::Rejected("its session is dead".to_owned())
        } else if ranges.iter().all(|range| bound(range) >= range.end) {
            Verdict::Durable
        } else if ranges.iter().any(|range| Some(bound(range)) > range.lowest) {
            table.dead.insert(sealed.session);
            Verdict::Rejected("overlap".to_owned())
        } else {
            for row in rows {
                assert!(table.rows.insert(row), "{row:?} was written twice");
            }
            for range in ranges {
                table.bound.insert(range.partition.partition, range.end);
            }
            Verdict::Durable
        };
        self.answers
            .push((sealed.session, index, sealed.sequence, verdict));
    }

    fn answer(&mut self, place: usize, again: bool) {
        if self.answers.is_empty() {
            return;
        }
        let place = place % self.answers.len();
        let (session, table, sequence, verdict) = self.answers[place].clone();
        // An answer that comes out of order counts nothing, so it is sent again.
        let counted = self.task.outcome(session, table, sequence, verdict.clone());
        let late =
            matches!(verdict, Verdict::Durable) && !counted && session == self.task.session();
        if !again && !late {
            self.answers.remove(place);
        }
    }

    fn expire(&mut self, index: usize) {
        let table = &mut self.tables[index];
        if let Some((sealed, _)) = table.waiting.first().cloned() {
            table.waiting.remove(0);
            table.dead.insert(sealed.session);
            self.answers
                .push((sealed.session, index, sealed.sequence, Verdict::Expired));
        }
    }

    /// Another task had the partition, read from the group's offset, and committed.
    fn foreign(&mut self, index: usize, partition: i32, records: i64) {
        let from = self.committed.get(&partition).copied().unwrap_or(0);
        let table = &mut self.tables[index];
        let bound = table.bound.get(&partition).copied().unwrap_or(0).max(from);
        let rows = (bound..bound + records).filter(|o| tables_of(partition, *o).contains(&index));
        let rows: Vec<i64> = rows.collect();
        if rows.is_empty() || (from..bound + records).any(|o| self.awaits(partition, o)) {
            return;
        }
        let table = &mut self.tables[index];
        for offset in rows {
            assert!(table.rows.insert((partition, offset)));
        }
        table.bound.insert(partition, bound + records);
    }

    fn awaits(&self, partition: i32, offset: i64) -> bool {
        is_dead_letter(partition, offset) && !self.acknowledged.contains(&(partition, offset))
    }

    fn rebalance(&mut self, partition: i32) {
        self.task.revoke(&[p(partition)]);
        self.rewinds.retain(|(to, _)| to.partition != partition);
        let committed = self.committed.get(&partition).copied().unwrap_or(0);
        self.position.insert(partition, committed);
        self.task.assign(&[p(partition)]);
    }

    fn acknowledge(&mut self) {
        self.acknowledged.append(&mut self.unacknowledged);
        self.task.set_dead_letters_pending(false);
    }

    fn act(&mut self, step: Step) {
        match step {
            Step::Put { partition, records } => self.put(partition, records),
            Step::PreCommit => self.pre_commit(),
            Step::Seal(table) => self.seal(table),
            Step::Commit(table) => self.commit(table),
            Step::Answer { place, again } => self.answer(place, again),
            Step::Expire(table) => self.expire(table),
            Step::SealFails => {
                let error = SinkError::retriable("STORAGE_REFUSED", "later");
                let sequence = self.task.progress().next_sequence(0);
                let session = self.task.session();
                self.task.seal_failed(session, 0, sequence, &error);
            }
            Step::Spoiled => {
                self.task.spoil_all();
                let error = SinkError::retriable("STORAGE_REFUSED", "later");
                self.task.recover(error).unwrap();
            }
            Step::Foreign {
                table,
                partition,
                records,
            } => self.foreign(table, partition, records),
            Step::Rebalance(partition) => self.rebalance(partition),
            Step::DeadLettersAcknowledged => self.acknowledge(),
        }
        self.check();
    }

    fn check(&self) {
        for partition in 0..PARTITIONS {
            let committed = self.committed.get(&partition).copied().unwrap_or(0);
            for offset in 0..committed {
                assert!(
                    !self.awaits(partition, offset),
                    "{partition}:{offset} is no letter yet"
                );
            }
            for (index, table) in self.tables.iter().enumerate() {
                let bound = table.bound.get(&partition).copied().unwrap_or(0);
                for offset in 0..committed.max(bound) {
                    let is_row = tables_of(partition, offset).contains(&index);
                    let there = table.rows.contains(&(partition, offset));
                    assert!(
                        !is_row || there,
                        "{partition}:{offset} is missing in {index}"
                    );
                }
            }
        }
    }

    /// Everything works from now on: all offsets become durable.
    fn settle(&mut self) {
        let end = 40;
        for _ in 0..60 {
            for partition in 0..PARTITIONS {
                self.poll();
                let left = end - self.position[&partition];
                if self.rewinds.is_empty() && left > 0 {
                    self.put(partition, left.min(10));
                }
            }
            self.acknowledge();
            for table in 0..TABLES {
                self.seal(table);
                self.commit(table);
            }
            for place in (0..self.answers.len()).rev() {
                self.answer(place, false);
            }
            self.pre_commit();
            self.check();
        }
        for partition in 0..PARTITIONS {
            assert!(self.committed[&partition] >= end, "{:?}", self.committed);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    // Promise: whatever order records, commits and their answers come in, no offset is committed over a row that is missing
    #[test]
    fn no_schedule_commits_an_offset_over_a_missing_row(
        steps in proptest::collection::vec(step(), 0..80),
    ) {
        let mut world = World::new();
        for step in steps {
            world.act(step);
        }
        world.settle();
    }
}
