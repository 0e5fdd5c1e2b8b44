//! Which changes of one commit count: for each key the last by order, and what its row is made of.
//!
//! Changes come in the order in which they arrived: segment by segment, the rows of each in their
//! order. A change that is known to be [older](super::order::is_older) than some that came before it
//! goes in below all of these, also below what came between them without an order or with that of
//! another source; any other goes on top. The top of a key's changes is its outcome, be it the table's
//! own row. All other rows of the commit are dropped.
//!
//! A key keeps the last order that it had: a change without one, such as the null after a delete, says
//! nothing about the order of what comes later.
//!
//! ```text
//!  key 7:  table(5) ─ put(9) ─ put(8) ─ delete(12)      arrived
//!          table(5) ─ put(8) ─ put(9) ─ delete(12)      by order: the row of order 5 goes, no row is added
//! ```
//!
//! A change of the key is a delete of the old key and a put of the new one. A truncation is a delete
//! of every key. A row in which the source left values out takes them from the row below it, which
//! for a row that changed its key is the one that the old key had.
//!
//! Delivered again, changes change nothing: equal orders replace each other by the same rows, older
//! ones go in below.
//!
//! Not here: where the rows are, and the rows of keys that only a truncation concerns (the index).

use std::cmp::Ordering;
use std::ops::Range;

use super::order::Order;

/// What the table knows about a key before the commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored<'a> {
    /// Whether the table has a row; otherwise the row was deleted, and its order is still kept.
    pub has_row: bool,
    /// The order of the last change.
    pub order: Option<Order<'a>>,
}

/// The changes of a commit.
#[derive(Debug, Default)]
pub struct Squash<'a> {
    events: Vec<Event<'a>>,
    /// When truncations came and their orders.
    truncations: Vec<(usize, Option<Order<'a>>)>,
    next: usize,
}

#[derive(Debug, Clone, Copy)]
struct Event<'a> {
    key: &'a [u8],
    arrival: usize,
    order: Option<Order<'a>>,
    what: What<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What<'a> {
    /// A complete row.
    Put(u32),
    /// A row that lacks values, and the key that it had before, when it had another one.
    Partial(u32, Option<&'a [u8]>),
    /// A row that is only marked as deleted; all its values are lacking.
    Marked(u32),
    Delete,
    /// The table's own row, or none that it knows of.
    Stored(bool),
}

/// The changes by their keys.
#[derive(Debug)]
pub struct Grouped<'a> {
    events: Vec<Event<'a>>,
    groups: Vec<Range<usize>>,
    truncations: Vec<(usize, Option<Order<'a>>)>,
}

/// Where a row that lacks values takes them from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base<'a> {
    /// A row of the commit, by the number that it was put with.
    Row(u32),
    /// The table's row of this key.
    Table(&'a [u8]),
}

/// What becomes of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The row that the table has afterwards, by the number that it was put with.
    pub row: Option<u32>,
    /// Whether the table has a row of this key that goes.
    pub removes_stored: bool,
    /// The order to be kept: that of the change, or the last before it.
    pub order: Option<Order<'a>>,
    /// For a row that lacks values: where to look for each, in this order. When none has it, the
    /// source's row is gone.
    pub bases: Vec<Base<'a>>,
}

/// What a commit does.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Resolution<'a> {
    /// Keys whose row or absence changes, ascending. Keys that are as they were have none.
    pub outcomes: Vec<Outcome<'a>>,
    /// Rows of the commit that are not in the table afterwards.
    pub dropped: Vec<u32>,
    /// How many changes were older than what the table knew of their keys.
    pub stale_count: usize,
    /// The orders of truncations: rows of all other keys go that are not known to be newer than one.
    /// For a key that is not known later, the last of them is its order, without a row.
    pub truncations: Vec<Option<Order<'a>>>,
}

/// The order of one key's changes.
#[derive(Debug, Clone, Copy)]
struct Version<'a> {
    order: Option<Order<'a>>,
    arrival: usize,
    what: What<'a>,
}

impl<'a> Squash<'a> {
    fn push(&mut self, key: &'a [u8], order: Option<Order<'a>>, what: What<'a>) {
        self.events.push(Event {
            key,
            arrival: self.next,
            order,
            what,
        });
    }

    /// Adds a complete row.
    pub fn put(&mut self, key: &'a [u8], order: Option<Order<'a>>, row: u32) {
        self.push(key, order, What::Put(row));
        self.next += 1;
    }

    /// Adds a row in which the source left values out.
    pub fn put_partial(&mut self, key: &'a [u8], order: Option<Order<'a>>, row: u32) {
        self.push(key, order, What::Partial(row, None));
        self.next += 1;
    }

    /// Adds a row that had the key `old_key` before.
    pub fn move_row(
        &mut self,
        (old_key, key): (&'a [u8], &'a [u8]),
        order: Option<Order<'a>>,
        row: u32,
        is_partial: bool,
    ) {
        if old_key == key {
            return match is_partial {
                true => self.put_partial(key, order, row),
                false => self.put(key, order, row),
            };
        }
        self.push(old_key, order, What::Delete);
        let what = match is_partial {
            true => What::Partial(row, Some(old_key)),
            false => What::Put(row),
        };
        self.push(key, order, what);
        self.next += 1;
    }

    /// Removes a row.
    pub fn delete(&mut self, key: &'a [u8], order: Option<Order<'a>>) {
        self.push(key, order, What::Delete);
        self.next += 1;
    }

    /// Marks a row as deleted; `row` is the marked one, which lacks all values.
    pub fn mark_deleted(&mut self, key: &'a [u8], order: Option<Order<'a>>, row: u32) {
        self.push(key, order, What::Marked(row));
        self.next += 1;
    }

    /// Removes all rows that are not known to be newer.
    pub fn truncate(&mut self, order: Option<Order<'a>>) {
        self.truncations.push((self.next, order));
        self.next += 1;
    }

    /// Brings the changes of each key together.
    pub fn group(mut self) -> Grouped<'a> {
        let events = &mut self.events;
        events.sort_unstable_by(|a, b| (a.key, a.arrival).cmp(&(b.key, b.arrival)));
        let mut groups: Vec<Range<usize>> = Vec::new();
        let mut last = None;
        for (index, event) in events.iter().enumerate() {
            match groups.last_mut() {
                Some(group) if last == Some(event.key) => group.end = index + 1,
                _ => groups.push(index..index + 1),
            }
            last = Some(event.key);
        }
        Grouped {
            events: self.events,
            groups,
            truncations: self.truncations,
        }
    }
}

impl<'a> Grouped<'a> {
    /// Returns the keys, ascending, each once: what to look up.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &'a [u8]> {
        self.groups.iter().map(|group| {
            let first = self.events.get(group.start);
            first.map_or(&[] as &[u8], |event| event.key)
        })
    }

    /// Decides; `stored` is what the table knows about each key, in the order of [`Grouped::keys`].
    pub fn resolve(self, stored: &[Option<Stored<'a>>]) -> Resolution<'a> {
        let keys: Vec<&'a [u8]> = self.keys().collect();
        let versions = self.versions(stored);
        let mut resolution = Resolution {
            truncations: self.truncations.iter().map(|(_, order)| *order).collect(),
            ..Resolution::default()
        };
        for (index, key) in keys.iter().enumerate() {
            resolution.add(key, index, &versions, &keys);
        }
        resolution
    }

    fn versions(&self, stored: &[Option<Stored<'a>>]) -> Versions<'a> {
        let mut versions = Versions::default();
        for (index, group) in self.groups.iter().enumerate() {
            let start = versions.all.len();
            if let Some(Some(stored)) = stored.get(index) {
                versions.all.push(Version {
                    order: stored.order,
                    arrival: 0,
                    what: What::Stored(stored.has_row),
                });
            }
            let mut truncations = self.truncations.iter().peekable();
            for event in self.events.get(group.clone()).unwrap_or_default() {
                while let Some((arrival, order)) =
                    truncations.next_if(|(arrival, _)| *arrival < event.arrival)
                {
                    versions.insert(start, *order, *arrival, What::Delete);
                }
                versions.insert(start, event.order, event.arrival, event.what);
            }
            for (arrival, order) in truncations {
                versions.insert(start, *order, *arrival, What::Delete);
            }
            versions.groups.push(start..versions.all.len());
        }
        versions
    }
}

/// The changes of all keys, those of each key oldest first.
#[derive(Debug, Default)]
struct Versions<'a> {
    all: Vec<Version<'a>>,
    groups: Vec<Range<usize>>,
}

impl<'a> Versions<'a> {
    fn insert(&mut self, start: usize, order: Option<Order<'a>>, arrival: usize, what: What<'a>) {
        let mut at = self.all.len();
        let below = self.all.get(start..).unwrap_or_default().iter();
        // Those of one source are sorted: the first that is not newer ends the search.
        for (index, version) in below.enumerate().rev() {
            let compared = order.zip(version.order);
            match compared.and_then(|(order, other)| order.compare(&other)) {
                Some(Ordering::Less) => at = start + index,
                Some(_) => break,
                None if order.is_none() => break,
                None => {}
            }
        }
        let version = Version {
            order,
            arrival,
            what,
        };
        self.all.insert(at, version);
    }

    fn group(&self, index: usize) -> &[Version<'a>] {
        let range = self.groups.get(index).cloned().unwrap_or_default();
        self.all.get(range).unwrap_or_default()
    }

    /// Returns where the topmost row of a group takes its values from.
    fn bases(&self, mut group: usize, keys: &[&'a [u8]]) -> Vec<Base<'a>> {
        let mut bases = Vec::new();
        let mut at = self.group(group).len().saturating_sub(1);
        // A row is visited once: without orders, keys that are swapped could go around for ever.
        for _ in 0..self.all.len() {
            let version = self.group(group).get(at);
            if let Some(before) = self.came_before(group, at) {
                at = before + 1;
            } else if let Some(What::Partial(_, Some(old_key))) =
                version.map(|version| version.what)
            {
                let found = keys.binary_search(&old_key).ok();
                let found = found.and_then(|old| Some((old, self.left_at(old, version?)?)));
                let Some(place) = found else { break };
                (group, at) = place;
            }
            let below = at.checked_sub(1);
            let Some((below, version)) =
                below.and_then(|below| Some((below, self.group(group).get(below)?)))
            else {
                break;
            };
            at = below;
            match version.what {
                What::Put(row) => {
                    bases.push(Base::Row(row));
                    break;
                }
                What::Partial(row, _) | What::Marked(row) => bases.push(Base::Row(row)),
                What::Stored(true) => {
                    bases.extend(keys.get(group).map(|key| Base::Table(key)));
                    break;
                }
                What::Stored(false) | What::Delete => break,
            }
        }
        bases
    }

    /// Returns where below is the same change, delivered before: its row has the values then. Between
    /// them may be changes without an order, which are older, as all that is delivered again.
    fn came_before(&self, group: usize, at: usize) -> Option<usize> {
        let group = self.group(group);
        let order = group.get(at)?.order?;
        let below = group
            .get(..at)?
            .iter()
            .rposition(|version| version.order.is_some())?;
        let before = group.get(below)?;
        let has_row = !matches!(before.what, What::Delete | What::Stored(false));
        (has_row && before.order == Some(order)).then_some(below)
    }

    /// Returns where in the changes of its old key the row `moved` left it: at the first of the
    /// deletes that the move stands for.
    fn left_at(&self, old: usize, moved: &Version<'a>) -> Option<usize> {
        let group = self.group(old);
        let is_own = |version: &Version<'a>| {
            let same = version.order.is_some() && version.order == moved.order;
            version.what == What::Delete && (version.arrival == moved.arrival || same)
        };
        group.iter().position(is_own)
    }
}

impl<'a> Resolution<'a> {
    fn add(&mut self, key: &&'a [u8], group: usize, versions: &Versions<'a>, keys: &[&'a [u8]]) {
        let all = versions.group(group);
        let Some((top, below)) = all.split_last() else {
            return;
        };
        let is_stored = |version: &Version<'_>| matches!(version.what, What::Stored(_));
        let above_stored = all.iter().position(is_stored).unwrap_or(0);
        self.stale_count += above_stored;
        for version in below {
            match version.what {
                What::Put(row) | What::Partial(row, _) | What::Marked(row) => {
                    self.dropped.push(row)
                }
                What::Delete | What::Stored(_) => {}
            }
        }
        let removes_stored = below
            .iter()
            .any(|version| version.what == What::Stored(true));
        let mut outcome = Outcome {
            key,
            row: None,
            removes_stored,
            order: all.iter().rev().find_map(|version| version.order),
            bases: Vec::new(),
        };
        match top.what {
            What::Stored(_) => return,
            What::Delete => {}
            What::Put(row) => outcome.row = Some(row),
            What::Partial(row, _) => {
                outcome.row = Some(row);
                outcome.bases = versions.bases(group, keys);
            }
            What::Marked(row) => {
                outcome.bases = versions.bases(group, keys);
                match outcome.bases.is_empty() {
                    // There is no row that could be marked.
                    true => self.dropped.push(row),
                    false => outcome.row = Some(row),
                }
            }
        }
        self.outcomes.push(outcome);
    }
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
