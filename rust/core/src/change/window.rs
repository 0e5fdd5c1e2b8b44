//! What is remembered for a while: the orders of keys that changed, and the ids of events.
//!
//! The index knows where the row of a key is and not how new it is, and nothing of a row that is gone.
//! So a late change would take the place of a newer one. The order of the last change of a key is
//! kept for a window, in which sources send again what they had sent before.
//!
//! Bounded: what is over the limit goes, the oldest first, and is counted; `now_ms` is an argument.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::order::{Order, is_older};
use crate::index::KeyNumber;
use crate::rules::{Rule, enforced};

/// When something came: its time, and its number among all.
type At = (i64, u64);

/// Keys with what is known of them, for a window.
#[derive(Debug)]
struct Window<K, V> {
    window_ms: i64,
    bytes_max: usize,
    bytes: usize,
    known: BTreeMap<K, (At, V)>,
    /// By when they came, with their bytes; each key once.
    queue: BTreeMap<At, (K, usize)>,
    count: u64,
    forgotten_count: u64,
}

/// What an entry takes beside its key and value, about.
const ENTRY_BYTES: usize = 128;

impl<K: Ord + Clone, V> Window<K, V> {
    fn new(window_ms: i64, bytes_max: usize) -> Self {
        Window {
            window_ms,
            bytes_max,
            bytes: 0,
            known: BTreeMap::new(),
            queue: BTreeMap::new(),
            count: 0,
            forgotten_count: 0,
        }
    }

    /// Takes in what is known of a key, in place of what was; it takes `bytes` beside the entry.
    fn insert(&mut self, key: K, value: V, bytes: usize, now_ms: i64) {
        self.remove(&key);
        let bytes = ENTRY_BYTES + bytes;
        self.bytes += bytes;
        self.count += 1;
        let at = (now_ms, self.count);
        self.queue.insert(at, (key.clone(), bytes));
        self.known.insert(key, (at, value));
        self.expire(now_ms);
    }

    /// Forgets all keys.
    fn clear(&mut self) {
        self.known.clear();
        self.queue.clear();
        self.bytes = 0;
    }

    /// Forgets a key, and gives back its bytes.
    fn remove(&mut self, key: &K) {
        let known = self.known.remove(key);
        let queued = known.and_then(|(at, _)| self.queue.remove(&at));
        let bytes = queued.map_or(0, |(_, bytes)| bytes);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Forgets what is older than the window, and what is over the limit.
    fn expire(&mut self, now_ms: i64) {
        let oldest = now_ms.saturating_sub(self.window_ms);
        while let Some((&(at, _), (key, _))) = self.queue.first_key_value() {
            let is_over = self.bytes > self.bytes_max;
            if at >= oldest && !is_over {
                break;
            }
            let key = key.clone();
            self.remove(&key);
            self.forgotten_count += u64::from(at >= oldest);
        }
    }
}

/// Truncations whose orders are kept: one of each source.
const TRUNCATIONS_MAX: usize = 16;

/// The last truncation of a source.
#[derive(Debug)]
struct Truncation {
    at_ms: i64,
    /// What is older went with it.
    order: Box<[u8]>,
    /// One at this place, or before it, was applied and may come again.
    applied: Option<Box<[u8]>>,
}

impl Truncation {
    fn removes(&self, order: Order<'_>) -> bool {
        is_older(Some(order), Some(Order::of(&self.order)))
    }

    fn is_sent_again(&self, order: Order<'_>) -> bool {
        let applied = self.applied.as_deref().map(Order::of);
        applied.is_some_and(|applied| {
            applied.compare(&order).is_some() && !is_older(Some(applied), Some(order))
        })
    }
}

/// Bytes of rows that left their keys which are kept in mind: a few thousand rows.
const LEFT_BYTES_MAX: usize = 2 << 20;

/// A row that a change of its key removed, and that its new row may need: the change comes in two records,
/// and a commit may lie between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftRow {
    /// The data file. The table may have let go of it meanwhile.
    pub path: Arc<str>,
    /// The length of the file.
    pub bytes: u64,
    /// The row's place in it.
    pub row: u32,
}

/// A key, and the source whose order is known of it.
type KeyOf = (u128, u64);

/// The orders of the last changes of keys, deletes among them, and of truncations. Of a key that changes
/// of several sources have, that of each is kept: they say nothing about one another.
#[derive(Debug)]
pub struct KnownOrders {
    keys: Window<KeyOf, Box<[u8]>>,
    truncations: VecDeque<Truncation>,
    /// Rows by the keys that they had, with the order of the change that removed them there.
    left: Window<u128, (Box<[u8]>, LeftRow)>,
}

fn place(key: KeyNumber, order: Order<'_>) -> KeyOf {
    match enforced(Rule::OrderOfEachSource) {
        true => (key.0, order.source()),
        false => (key.0, 0),
    }
}

impl KnownOrders {
    /// Keeps orders for `window_ms`, in about `bytes_max` bytes.
    pub fn new(window_ms: i64, bytes_max: usize) -> Self {
        KnownOrders {
            keys: Window::new(window_ms, bytes_max),
            truncations: VecDeque::new(),
            left: Window::new(window_ms, LEFT_BYTES_MAX),
        }
    }

    /// Notes the row that a key had until the change of this order gave the row another key. `None` where
    /// nobody can read it: what was noted is then of another change, unless that one comes again.
    pub fn note_left(
        &mut self,
        key: KeyNumber,
        order: Order<'_>,
        row: Option<LeftRow>,
        now_ms: i64,
    ) {
        let order = order.bytes();
        match row {
            Some(row) => {
                let bytes = order.len() + row.path.len();
                let left = (Box::from(order), row);
                self.left.insert(key.0, left, bytes, now_ms);
            }
            None => {
                let known = self.left.known.get(&key.0);
                if known.is_some_and(|(_, (known, _))| **known != *order) {
                    self.left.remove(&key.0);
                }
            }
        }
    }

    /// Returns the row that a key had until its last change gave the row another key.
    pub fn left(&self, key: KeyNumber) -> Option<&LeftRow> {
        let (_, (order, row)) = self.left.known.get(&key.0)?;
        let last = self.last_order(key)?;
        (last.bytes() == &**order).then_some(row)
    }

    /// Returns the bytes that the order of a key takes.
    pub fn bytes_of(order: Order<'_>) -> usize {
        ENTRY_BYTES + order.bytes().len()
    }

    /// Returns the bytes of orders of keys that are kept.
    pub fn bytes_max(&self) -> usize {
        self.keys.bytes_max
    }

    /// Notes the order of the last change of a key; an older order than the known one does not replace
    /// it, nor does that of another source.
    pub fn note(&mut self, key: KeyNumber, order: Order<'_>, now_ms: i64) {
        if is_older(Some(order), self.order(key, order)) {
            return;
        }
        let bytes = order.bytes();
        let keys = &mut self.keys;
        let key = place(key, order);
        keys.insert(key, Box::from(bytes), bytes.len(), now_ms);
    }

    /// Notes the order of a truncation: changes before it are of rows that went. After one without an
    /// order all that is known goes, for it orders nothing any more: what comes is later, whatever order
    /// it has.
    pub fn note_truncation(&mut self, order: Option<Order<'_>>, now_ms: i64) {
        let Some(order) = order else {
            if enforced(Rule::OrdersBeginAnew) {
                self.keys.clear();
                self.truncations.clear();
            }
            return;
        };
        if self.knows_truncation(order) {
            return;
        }
        let mut noted = Truncation {
            at_ms: now_ms,
            order: Box::from(order.bytes()),
            applied: Some(Box::from(order.bytes())),
        };
        let of_source = |one: &Truncation| Order::of(&one.order).compare(&order).is_some();
        if let Some(place) = self.truncations.iter().position(of_source) {
            // One that comes again after an offset reset may not be the last of its source.
            let known = self.truncations.remove(place);
            let later = known.filter(|known| known.removes(order));
            noted.order = later.map_or(noted.order, |known| known.order);
        }
        self.truncations.push_back(noted);
        if self.truncations.len() > TRUNCATIONS_MAX {
            self.truncations.pop_front();
        }
    }

    /// Forgets all.
    pub fn forget(&mut self) {
        self.keys.clear();
        self.truncations.clear();
        self.left.clear();
    }

    /// Changes that were applied are read again, as after an offset reset: a truncation among them is no
    /// repetition, for rows of before it come again too. What is older than it is known to be older all
    /// the same.
    pub fn expect_again(&mut self) {
        for known in &mut self.truncations {
            known.applied = None;
        }
    }

    /// Tells whether a truncation at this place of the source, or a later one, was noted.
    pub fn knows_truncation(&self, order: Order<'_>) -> bool {
        let mut known = self.truncations.iter();
        known.any(|known| known.is_sent_again(order))
    }

    /// Tells whether a change is known to be older than a truncation, or the last change of its key.
    pub fn is_stale(&self, key: KeyNumber, order: Order<'_>) -> bool {
        is_older(Some(order), self.order(key, order))
            || self.truncations.iter().any(|known| known.removes(order))
    }

    /// Returns the order of the last change of a key that the source of `of` made, if it is known.
    pub fn order(&self, key: KeyNumber, of: Order<'_>) -> Option<Order<'_>> {
        let (_, order) = self.keys.known.get(&place(key, of))?;
        Some(Order::of(order))
    }

    /// Returns the order of the last change of a key, whichever source made it.
    pub fn last_order(&self, key: KeyNumber) -> Option<Order<'_>> {
        let of_key = self.keys.known.range((key.0, 0)..=(key.0, u64::MAX));
        let (_, (_, order)) = of_key.max_by_key(|(_, (at, _))| *at)?;
        Some(Order::of(order))
    }

    /// Returns the keys that are known, with the order of each source that changed them.
    pub fn iter(&self) -> impl Iterator<Item = (KeyNumber, Order<'_>)> {
        let known = self.keys.known.iter();
        known.map(|((key, _), (_, order))| (KeyNumber(*key), Order::of(order)))
    }

    /// Forgets what is older than the window.
    pub fn expire(&mut self, now_ms: i64) {
        self.keys.expire(now_ms);
        let oldest = now_ms.saturating_sub(self.keys.window_ms);
        self.truncations.retain(|known| known.at_ms >= oldest);
        self.left.expire(now_ms);
    }

    /// Returns how many orders of keys are known.
    pub fn len(&self) -> usize {
        self.keys.known.len()
    }

    /// Tells whether no key is known.
    pub fn is_empty(&self) -> bool {
        self.keys.known.is_empty()
    }

    /// Returns how many keys had to go before their time.
    pub fn forgotten_count(&self) -> u64 {
        self.keys.forgotten_count
    }

    /// Returns about how many bytes of memory are used.
    pub fn memory_bytes(&self) -> usize {
        self.keys.bytes + self.left.bytes
    }
}

/// The ids of events that came: for tables that are appended to from producers that send again.
#[derive(Debug)]
pub struct SeenEvents(Window<Arc<[u8]>, ()>);

impl SeenEvents {
    /// Keeps ids for `window_ms`, in about `bytes_max` bytes.
    pub fn new(window_ms: i64, bytes_max: usize) -> Self {
        SeenEvents(Window::new(window_ms, bytes_max))
    }

    /// Notes an id; `false` when it came before within the window.
    pub fn is_new(&mut self, id: &[u8], now_ms: i64) -> bool {
        self.0.expire(now_ms);
        if self.0.known.contains_key(id) {
            return false;
        }
        self.0.insert(Arc::from(id), (), id.len(), now_ms);
        true
    }

    /// Returns how many ids had to go before their time.
    pub fn forgotten_count(&self) -> u64 {
        self.0.forgotten_count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(number: u8) -> Vec<u8> {
        vec![0, 0, 0, 0, 0, 0, 0, 0, number]
    }

    const K: KeyNumber = KeyNumber(7);

    #[test]
    fn orders_are_kept_for_the_window_and_no_longer() {
        let mut known = KnownOrders::new(1_000, 1 << 20);
        let five = order(5);
        known.note(K, Order::of(&five), 100);
        let three = order(3);
        known.note(K, Order::of(&three), 200);
        assert_eq!(known.order(K, Order::of(&five)), Some(Order::of(&five)));
        known.expire(1_100);
        assert_eq!(known.len(), 1);
        known.expire(1_101);
        assert!(known.is_empty());
        assert_eq!((known.forgotten_count(), known.memory_bytes()), (0, 0));
    }

    #[test]
    fn a_key_that_changes_again_is_kept_from_then_on() {
        let mut known = KnownOrders::new(1_000, 1 << 20);
        let (five, six) = (order(5), order(6));
        known.note(K, Order::of(&five), 0);
        known.note(K, Order::of(&six), 900);
        known.expire(1_500);
        assert_eq!(known.order(K, Order::of(&five)), Some(Order::of(&six)));
        known.expire(1_901);
        assert!(known.is_empty());
    }

    // Promise: A change that comes late is told from a newer one of its source, also when another source changed the row in between.
    #[test]
    fn the_order_of_another_source_does_not_take_the_place_of_the_first() {
        let mut known = KnownOrders::new(1_000, 1 << 20);
        let (four, five, mut other) = (order(4), order(5), order(3));
        other[0] = 1;
        known.note(K, Order::of(&five), 0);
        known.note(K, Order::of(&other), 1);
        assert_eq!(known.order(K, Order::of(&other)), Some(Order::of(&other)));
        assert!(known.is_stale(K, Order::of(&four)));
        assert!(!known.is_stale(K, Order::of(&other)));
        assert_eq!(known.iter().count(), 2);
        assert_eq!(known.last_order(K), Some(Order::of(&other)));
        assert_eq!(known.last_order(KeyNumber(8)), None);
    }

    #[test]
    fn rows_that_left_their_keys_are_kept_for_the_window() {
        let mut known = KnownOrders::new(1_000, 1 << 24);
        let at = |row| LeftRow {
            path: "a".into(),
            bytes: 7,
            row,
        };
        let five = order(5);
        let leave = |known: &mut KnownOrders, key, row, now_ms| {
            known.note_left(key, Order::of(&five), row, now_ms);
            known.note(key, Order::of(&five), now_ms);
        };
        leave(&mut known, K, Some(at(1)), 0);
        leave(&mut known, K, Some(at(2)), 500);
        assert_eq!(known.left(K), Some(&at(2)));
        assert_eq!(known.left(KeyNumber(8)), None);
        known.expire(1_500);
        assert_eq!(known.left(K), Some(&at(2)));
        known.expire(1_501);
        assert_eq!((known.left(K), known.memory_bytes()), (None, 0));
        let most = LEFT_BYTES_MAX / (ENTRY_BYTES + five.len() + 1);
        for key in 0..=most as u128 {
            leave(&mut known, KeyNumber(key), Some(at(3)), 2_000);
        }
        assert_eq!(known.left(KeyNumber(0)), None);
        assert_eq!(known.left(KeyNumber(1)), Some(&at(3)));
    }

    // What is noted of a key is the row of its last change and of no other.
    #[test]
    fn a_row_that_left_its_key_is_forgotten_with_the_next_change() {
        let mut known = KnownOrders::new(1_000, 1 << 20);
        let left = LeftRow {
            path: "a".into(),
            bytes: 7,
            row: 1,
        };
        let (five, six) = (order(5), order(6));
        known.note_left(K, Order::of(&five), Some(left.clone()), 0);
        known.note(K, Order::of(&five), 0);
        // The change comes again, and finds no row.
        known.note_left(K, Order::of(&five), None, 1);
        assert_eq!(known.left(K), Some(&left));
        // The key got a row and lost it to another key, in one commit: nobody can read that row.
        known.note_left(K, Order::of(&six), None, 2);
        known.note(K, Order::of(&six), 2);
        assert_eq!(known.left(K), None);
        // Or a change without a row.
        known.note_left(K, Order::of(&six), Some(left), 3);
        known.note(K, Order::of(&order(7)), 3);
        assert_eq!(known.left(K), None);
    }

    #[test]
    fn changes_before_a_truncation_are_stale() {
        let mut known = KnownOrders::new(1_000, 1 << 20);
        let (four, five, six) = (order(4), order(5), order(6));
        known.note_truncation(Some(Order::of(&five)), 0);
        known.note_truncation(Some(Order::of(&four)), 1);
        assert!(known.knows_truncation(Order::of(&five)));
        assert!(!known.knows_truncation(Order::of(&six)));
        assert!(known.is_stale(K, Order::of(&four)));
        assert!(!known.is_stale(K, Order::of(&five)));
        known.note(K, Order::of(&six), 2);
        assert!(known.is_stale(K, Order::of(&five)));
        let mut other = order(1);
        other[0] = 1;
        assert!(!known.is_stale(K, Order::of(&other)));
        known.expire(1_001);
        assert!(!known.is_stale(KeyNumber(8), Order::of(&four)));
    }

    #[test]
    fn a_truncation_that_is_read_again_is_applied_again() {
        let mut known = KnownOrders::new(1_000, 1 << 20);
        let (four, five, six) = (order(4), order(5), order(6));
        for one in [&four, &six] {
            known.note_truncation(Some(Order::of(one)), 0);
        }
        known.expect_again();
        assert!(known.is_stale(K, Order::of(&five)), "it is older than six");
        for one in [&four, &six] {
            assert!(!known.knows_truncation(Order::of(one)));
            known.note_truncation(Some(Order::of(one)), 1);
            assert!(
                known.knows_truncation(Order::of(one)),
                "now it is sent again"
            );
            assert!(known.is_stale(K, Order::of(&five)));
        }
        known.expire(1_002);
        assert!(!known.is_stale(K, Order::of(&four)));
    }

    #[test]
    fn after_a_truncation_without_an_order_no_key_has_one() {
        let mut known = KnownOrders::new(1_000, 1 << 20);
        let (four, five) = (order(4), order(5));
        known.note(K, Order::of(&five), 0);
        known.note_truncation(Some(Order::of(&five)), 0);
        known.note_truncation(None, 1);
        assert!(!known.is_stale(K, Order::of(&four)));
        assert!(!known.knows_truncation(Order::of(&five)));
        assert_eq!((known.len(), known.memory_bytes()), (0, 0));
        known.note(K, Order::of(&four), 2);
        known.expire(1_003);
        assert_eq!((known.is_empty(), known.memory_bytes()), (true, 0));
    }

    #[test]
    fn what_is_over_the_limit_goes_oldest_first_and_is_counted() {
        let five = order(5);
        let mut known = KnownOrders::new(i64::MAX, 3 * (ENTRY_BYTES + five.len()));
        for key in 0..5_u8 {
            known.note(KeyNumber(key.into()), Order::of(&five), i64::from(key));
        }
        assert_eq!((known.len(), known.forgotten_count()), (3, 2));
        let of = |key| known.order(KeyNumber(key), Order::of(&five));
        assert!(of(1).is_none() && of(2).is_some());
    }

    #[test]
    fn a_key_that_changes_all_the_time_does_not_push_out_the_others() {
        let five = order(5);
        let bytes_max = 3 * (ENTRY_BYTES + five.len());
        let mut known = KnownOrders::new(i64::MAX, bytes_max);
        known.note(KeyNumber(1), Order::of(&five), 0);
        for now_ms in 0..1_000 {
            known.note(K, Order::of(&five), now_ms);
        }
        assert_eq!((known.len(), known.forgotten_count()), (2, 0));
        assert_eq!(known.keys.queue.len(), 2);
        assert_eq!(known.memory_bytes(), 2 * (ENTRY_BYTES + five.len()));
    }

    #[test]
    fn orders_are_part_of_what_is_bounded() {
        let long = vec![7; 1_000];
        let mut known = KnownOrders::new(i64::MAX, 2_500);
        for key in 0..3_u8 {
            known.note(KeyNumber(key.into()), Order::of(&long), 0);
        }
        assert_eq!((known.len(), known.forgotten_count()), (2, 1));
    }

    #[test]
    fn an_event_is_new_once_within_the_window() {
        let mut seen = SeenEvents::new(100, 1 << 20);
        assert!(seen.is_new(b"e1", 0));
        assert!(!seen.is_new(b"e1", 100));
        assert!(seen.is_new(b"e2", 100));
        assert!(seen.is_new(b"e1", 101));
        assert_eq!(seen.forgotten_count(), 0);
    }
}
