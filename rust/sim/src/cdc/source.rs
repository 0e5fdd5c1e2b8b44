//! The source: what it does to its rows, and how its records stand in the partitions of the topic.

use std::collections::BTreeMap;

use crate::rng::Rng;

/// What the rows of a table are told apart by.
pub(crate) type Key = u8;
/// Bytes that order a change, beginning with their source.
pub(crate) type OrderBytes = Vec<u8>;

/// What a record does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// The key has this value now, in this partition of the table.
    Put(u32, u8),
    Delete,
    Truncate,
}

/// A record of the topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) key: Key,
    pub(crate) what: What,
    pub(crate) order: Option<OrderBytes>,
}

/// What orders the changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Each change has its place in the source.
    Ordered,
    /// They come from two sources whose places say nothing about each other.
    TwoSources,
    /// By their arrival.
    Arrival,
    /// By a column of the row: deletes and truncations have none.
    Column,
    /// First the rows of a snapshot, which have no place.
    Snapshot,
}

/// A source and its topic.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) mode: Mode,
    keys: u64,
    /// Whether a key is always in the same partition.
    is_keyed: bool,
    /// Whether tables are emptied.
    truncates: bool,
    late: u32,
    again: u32,
    logs: Vec<Vec<Record>>,
    /// Records that come later than their turn.
    held: Vec<(usize, Record)>,
    /// The rows that the source has.
    pub(crate) rows: BTreeMap<Key, u32>,
    /// Whether these are what the table has in the end.
    pub(crate) is_told: bool,
    /// Whether its changes of a key come in their order.
    pub(crate) is_in_order: bool,
    value: u32,
    place: [u32; 2],
    made: u32,
}

impl Source {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let mode = rng.pick(&[
            Mode::Ordered,
            Mode::Ordered,
            Mode::TwoSources,
            Mode::Arrival,
            Mode::Arrival,
            Mode::Column,
            Mode::Snapshot,
        ]);
        let partitions = rng.pick(&[1, 1, 2, 3]);
        let comes_late = rng.chance(600) && mode != Mode::Arrival;
        let is_keyed = mode != Mode::Ordered || rng.chance(512);
        Source {
            mode,
            keys: rng.between(2, 9),
            is_keyed,
            truncates: rng.chance(400) && (partitions == 1 || rng.chance(200)),
            late: if comes_late { 150 } else { 0 },
            again: rng.pick(&[0, 40, 100]),
            logs: vec![Vec::new(); partitions],
            held: Vec::new(),
            rows: BTreeMap::new(),
            // What came late of a row that two sources change, or that a delete by its arrival removed, is a
            // matter of when it came.
            is_told: mode == Mode::Ordered || !comes_late,
            is_in_order: is_keyed && !comes_late,
            value: 0,
            place: [10, 10],
            made: 0,
        }
    }

    /// Returns the number of partitions.
    pub(crate) fn partitions(&self) -> usize {
        self.logs.len()
    }

    /// Returns the records of a partition.
    pub(crate) fn log(&self, partition: usize) -> &[Record] {
        &self.logs[partition]
    }

    /// The source does something.
    pub(crate) fn go_on(&mut self, rng: &mut Rng) {
        self.made += 1;
        let key = rng.below(self.keys) as Key;
        let source = match self.mode {
            Mode::TwoSources => rng.index(2),
            _ => 0,
        };
        match rng.below(20) {
            0 if self.truncates && rng.chance(600) => {
                self.rows.clear();
                self.release();
                if self.logs.len() > 1 {
                    // Nobody knows what came before it: the record is refused.
                    self.is_told = false;
                }
                self.append(rng, source, 0, What::Truncate);
            }
            0..5 => self.delete(rng, source, key),
            5..7 => {
                // The key changes.
                let to = rng.below(self.keys) as Key;
                self.delete(rng, source, key);
                self.put(rng, source, to);
            }
            _ => self.put(rng, source, key),
        }
        if rng.chance(self.again) {
            self.send_again(rng);
        }
        if rng.chance(200) {
            self.release();
        }
    }

    fn delete(&mut self, rng: &mut Rng, source: usize, key: Key) {
        self.rows.remove(&key);
        self.append(rng, source, key, What::Delete);
    }

    fn put(&mut self, rng: &mut Rng, source: usize, key: Key) {
        self.value += 1;
        self.rows.insert(key, self.value);
        let what = What::Put(self.value, rng.below(3) as u8);
        self.append(rng, source, key, what);
    }

    fn append(&mut self, rng: &mut Rng, source: usize, key: Key, what: What) {
        self.place[source] += 1;
        let of_snapshot = self.mode == Mode::Snapshot && self.made < 8;
        let is_ordered = match (self.mode, what) {
            (Mode::Arrival, _) | (Mode::Column, What::Delete | What::Truncate) => false,
            (Mode::Column, What::Put(..)) | (Mode::Ordered | Mode::TwoSources, _) => true,
            (Mode::Snapshot, _) => !of_snapshot,
        };
        let order = is_ordered.then(|| order(source as u8, self.place[source]));
        let partition = match self.is_keyed {
            true => usize::from(key) % self.logs.len(),
            false => rng.index(self.logs.len()),
        };
        let record = Record { key, what, order };
        match what != What::Truncate && record.order.is_some() && rng.chance(self.late) {
            true => self.held.push((partition, record)),
            false => self.logs[partition].push(record),
        }
    }

    /// Records that were held back come.
    pub(crate) fn release(&mut self) {
        for (partition, record) in std::mem::take(&mut self.held) {
            self.logs[partition].push(record);
        }
    }

    /// A producer sends its last records once more.
    fn send_again(&mut self, rng: &mut Rng) {
        let partition = rng.index(self.logs.len());
        let log = &mut self.logs[partition];
        let count = rng.index(log.len().min(5) + 1);
        let again = log[log.len() - count..].to_vec();
        let has_place = matches!(self.mode, Mode::Ordered | Mode::Arrival | Mode::Column);
        if !has_place && again.iter().any(|one| one.what == What::Truncate) {
            // A row that it had removed without being newer would be back: it is known already.
            return;
        }
        log.extend(again);
    }
}

/// Returns the bytes of an order.
pub(crate) fn order(source: u8, place: u32) -> OrderBytes {
    let mut bytes = vec![0, 0, 0, 0, 0, 0, 0, source];
    bytes.extend(place.to_be_bytes());
    bytes.push(1);
    bytes
}
