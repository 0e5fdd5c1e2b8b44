//! What a commit has to make of the rows of a table, by the words of `docs/cdc.md` and
//! `docs/deletes-and-index.md`: no code of the product is used.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Key, OrderBytes, Record, What};

/// The number of a source, as orders begin with it.
pub(crate) type SourceOf = u8;

/// The rows that a snapshot has to hold, and the orders that they have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Model {
    /// The values of each key's rows, the newest last; more than one only where another writer left them.
    pub(crate) rows: BTreeMap<Key, Vec<u32>>,
    /// The order of the last change of each key by each source, deletes among them.
    pub(crate) orders: BTreeMap<(Key, SourceOf), OrderBytes>,
    /// The last truncation of each source that was applied and has not been read again since.
    pub(crate) truncated: BTreeMap<SourceOf, OrderBytes>,
    /// The last of each source.
    pub(crate) emptied: BTreeMap<SourceOf, OrderBytes>,
    pub(crate) epoch: u64,
    /// Keys of which several rows were there when the source changed them: nobody says what comes of these.
    pub(crate) unsure: BTreeSet<Key>,
}

/// What a process knows of orders.
pub(crate) trait Knowledge {
    /// The order of the last change of a key by the source of `order`.
    fn order(&self, key: Key, order: &OrderBytes) -> Option<OrderBytes>;
    /// Whether a change of this order is older than a truncation.
    fn is_emptied(&self, order: &OrderBytes) -> bool;
    /// Whether a truncation is sent again.
    fn is_repeated(&self, order: &OrderBytes) -> bool;
    /// All keys with their orders.
    fn all(&self) -> Vec<(Key, OrderBytes)>;
}

/// A change of a commit: its record, its partition and its offset.
pub(crate) type Change<'a> = (&'a Record, usize, i64);

/// Returns the source of an order.
pub(crate) fn source_of(order: &OrderBytes) -> SourceOf {
    order[7]
}

fn is_newer(order: Option<&OrderBytes>, than: &OrderBytes) -> bool {
    order.is_some_and(|order| source_of(order) == source_of(than) && order > than)
}

/// Whether a truncation removes what a change of the same commit did.
fn removes((at, partition, offset): Change<'_>, (one, of, place): Change<'_>) -> bool {
    match (&one.order, &at.order) {
        (Some(order), Some(emptied)) if source_of(order) == source_of(emptied) => order <= emptied,
        _ => partition == of && place < offset,
    }
}

impl Model {
    /// Returns what the changes of a commit, in the order in which they came, make of the table, and what is
    /// known that cannot be.
    pub(crate) fn after(
        &self,
        changes: &[Change<'_>],
        epoch: u64,
        known: &dyn Knowledge,
    ) -> (Model, Option<String>) {
        let (mut made, mut unsound) = (self.clone(), None);
        if epoch > made.epoch {
            made.epoch = epoch;
            made.truncated.clear();
        }
        let mut empties = Vec::new();
        for change in changes
            .iter()
            .filter(|(one, ..)| one.what == What::Truncate)
        {
            let order = change.0.order.as_ref();
            if let Some(order) = order.filter(|order| known.is_repeated(order)) {
                unsound = unsound.or(made.check_repeated(order));
                continue;
            }
            empties.push(*change);
        }
        if !empties.is_empty() {
            made.empty(&empties, known);
        }
        let mut newest: BTreeMap<(Key, SourceOf), OrderBytes> = BTreeMap::new();
        for change in changes
            .iter()
            .filter(|(one, ..)| one.what != What::Truncate)
        {
            if empties.iter().any(|at| removes(*at, *change)) {
                continue;
            }
            let begins_anew = empties
                .iter()
                .any(|at| at.0.order.is_none() && !removes(*at, *change));
            let Record { key, what, order } = change.0;
            if let Some(order) = order {
                let before = known.order(*key, order);
                let is_stale = is_newer(before.as_ref(), order) || known.is_emptied(order);
                let place = (*key, source_of(order));
                if (is_stale && !begins_anew) || is_newer(newest.get(&place), order) {
                    continue;
                }
                newest.insert(place, order.clone());
                let last = made.orders.entry(place).or_default();
                if *last < *order {
                    last.clone_from(order);
                }
            }
            made.put(*key, *what);
        }
        (made, unsound)
    }

    fn check_repeated(&self, order: &OrderBytes) -> Option<String> {
        let applied = self.truncated.get(&source_of(order));
        let is_sound = applied.is_some_and(|applied| applied >= order);
        (!is_sound).then(|| format!("a truncation at {order:?} passes for one that was applied"))
    }

    /// All rows go that are not known to be newer.
    fn empty(&mut self, empties: &[Change<'_>], known: &dyn Knowledge) {
        let is_newer_than_all = |order: &OrderBytes| {
            let mut all = empties.iter();
            all.all(|(at, ..)| {
                at.order
                    .as_ref()
                    .is_some_and(|at| is_newer(Some(order), at))
            })
        };
        let stays: BTreeSet<Key> = known
            .all()
            .into_iter()
            .filter_map(|(key, order)| is_newer_than_all(&order).then_some(key))
            .collect();
        self.rows.retain(|key, _| stays.contains(key));
        for rows in self.rows.values_mut() {
            rows.drain(..rows.len().saturating_sub(1));
        }
        // Of a key with several rows that stays it is as little known as before which one does.
        self.unsure.retain(|key| stays.contains(key));
        for (at, ..) in empties {
            match &at.order {
                None => {
                    self.orders.clear();
                    self.truncated.clear();
                    self.emptied.clear();
                }
                Some(order) => {
                    for noted in [&mut self.truncated, &mut self.emptied] {
                        let last = noted.entry(source_of(order)).or_default();
                        if *last < *order {
                            last.clone_from(order);
                        }
                    }
                }
            }
        }
    }

    fn put(&mut self, key: Key, what: What) {
        let rows = self.rows.entry(key).or_default();
        if rows.len() > 1 {
            self.unsure.insert(key);
        }
        rows.pop();
        if let What::Put(value, _) = what {
            rows.push(value);
        }
        if rows.is_empty() {
            self.rows.remove(&key);
        }
    }

    /// Another writer deletes the newest row of a key.
    pub(crate) fn remove_newest(&mut self, key: Key) {
        if let Some(rows) = self.rows.get_mut(&key) {
            rows.pop();
            if rows.is_empty() {
                self.rows.remove(&key);
            }
        }
    }

    /// Another writer deletes a row.
    pub(crate) fn remove(&mut self, key: Key, value: u32) {
        if let Some(rows) = self.rows.get_mut(&key) {
            rows.retain(|row| *row != value);
            if rows.is_empty() {
                self.rows.remove(&key);
            }
        }
    }
}
