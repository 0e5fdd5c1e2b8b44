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
const ENTRY_BYTES: usize = 96;

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

/// Rows that left their keys which are kept in mind.
const LEFT_MAX: usize = 4_096;

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

/// The orders of the last changes of keys, deletes among them, and of truncations.
#[derive(Debug)]
pub struct KnownOrders {
    keys: Window<u128, Box<[u8]>>,
    truncations: VecDeque<(i64, Box<[u8]>)>,
    left: VecDeque<(i64, KeyNumber, LeftRow)>,
}

impl KnownOrders {
    /// Keeps orders for `window_ms`, in about `bytes_max` bytes.
    pub fn new(window_ms: i64, bytes_max: usize) -> Self {
        KnownOrders {
            keys: Window::new(window_ms, bytes_max),
            truncations: VecDeque::new(),
            left: VecDeque::new(),
        }
    }

    /// Notes the row that a key had until a change gave the row another key.
    pub fn note_left(&mut self, key: KeyNumber, row: LeftRow, now_ms: i64) {
        self.left.retain(|(_, known, _)| *known != key);
        self.left.push_back((now_ms, key, row));
        if self.left.len() > LEFT_MAX {
            self.left.pop_front();
        }
    }

    /// Returns the row that a key had until a change gave the row another key.
    pub fn left(&self, key: KeyNumber) -> Option<&LeftRow> {
        let mut left = self.left.iter();
        let found = left.find(|(_, known, _)| *known == key);
        found.map(|(_, _, row)| row)
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
    /// it.
    pub fn note(&mut self, key: KeyNumber, order: Order<'_>, now_ms: i64) {
        if is_older(Some(order), self.order(key)) {
            return;
        }
        let bytes = order.bytes();
        let keys = &mut self.keys;
        keys.insert(key.0, Box::from(bytes), bytes.len(), now_ms);
    }

    /// Notes the order of a truncation: changes before it are of rows that went. After one without an
    /// order those of all keys go, for they order nothing any more: what comes is later, whatever order it
    /// has.
    pub fn note_truncation(&mut self, order: Option<Order<'_>>, now_ms: i64) {
        let Some(order) = order else {
            self.keys.clear();
            return;
        };
        if self.knows_truncation(order) {
            return;
        }
        self.truncations
            .retain(|(_, known)| Order::of(known).compare(&order).is_none());
        self.truncations
            .push_back((now_ms, Box::from(order.bytes())));
        if self.truncations.len() > TRUNCATIONS_MAX {
            self.truncations.pop_front();
        }
    }

    /// Tells whether a truncation at this place of the source, or a later one, was noted.
    pub fn knows_truncation(&self, order: Order<'_>) -> bool {
        self.truncations.iter().any(|(_, known)| {
            let known = Order::of(known);
            known.compare(&order).is_some() && !is_older(Some(known), Some(order))
        })
    }

    /// Tells whether a change is known to be older than a truncation, or the last change of its key.
    pub fn is_stale(&self, key: KeyNumber, order: Order<'_>) -> bool {
        let truncated = |(_, known): &(i64, Box<[u8]>)| {
            let known = Order::of(known);
            is_older(Some(order), Some(known))
        };
        is_older(Some(order), self.order(key)) || self.truncations.iter().any(truncated)
    }

    /// Returns the order of the last change of a key, if it is known.
    pub fn order(&self, key: KeyNumber) -> Option<Order<'_>> {
        let (_, order) = self.keys.known.get(&key.0)?;
        Some(Order::of(order))
    }

    /// Returns the keys that are known, with their orders.
    pub fn iter(&self) -> impl Iterator<Item = (KeyNumber, Order<'_>)> {
        let known = self.keys.known.iter();
        known.map(|(key, (_, order))| (KeyNumber(*key), Order::of(order)))
    }

    /// Forgets what is older than the window.
    pub fn expire(&mut self, now_ms: i64) {
        self.keys.expire(now_ms);
        let oldest = now_ms.saturating_sub(self.keys.window_ms);
        self.truncations.retain(|(at, _)| *at >= oldest);
        self.left.retain(|(at, ..)| *at >= oldest);
    }

    /// Returns how many keys are known.
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
        self.keys.bytes
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
        assert_eq!(known.order(K), Some(Order::of(&five)));
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
        assert_eq!(known.order(K), Some(Order::of(&six)));
        known.expire(1_901);
        assert!(known.is_empty());
    }

    #[test]
    fn the_order_of_another_source_takes_the_place_of_the_first() {
        let mut known = KnownOrders::new(1_000, 1 << 20);
        let (five, mut other) = (order(5), order(3));
        other[0] = 1;
        known.note(K, Order::of(&five), 0);
        known.note(K, Order::of(&other), 1);
        assert_eq!(known.order(K), Some(Order::of(&other)));
        assert_eq!(known.iter().count(), 1);
    }

    #[test]
    fn rows_that_left_their_keys_are_kept_for_the_window() {
        let mut known = KnownOrders::new(1_000, 1 << 20);
        let at = |row| LeftRow {
            path: "a".into(),
            bytes: 7,
            row,
        };
        known.note_left(K, at(1), 0);
        known.note_left(K, at(2), 500);
        assert_eq!(known.left(K), Some(&at(2)));
        assert_eq!(known.left(KeyNumber(8)), None);
        known.expire(1_500);
        assert_eq!(known.left(K), Some(&at(2)));
        known.expire(1_501);
        assert_eq!(known.left(K), None);
        for key in 0..=LEFT_MAX as u128 {
            known.note_left(KeyNumber(key), at(3), 2_000);
        }
        assert_eq!(known.left(KeyNumber(0)), None);
        assert_eq!(known.left(KeyNumber(1)), Some(&at(3)));
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
    fn after_a_truncation_without_an_order_no_key_has_one() {
        let mut known = KnownOrders::new(1_000, 1 << 20);
        let (four, five) = (order(4), order(5));
        known.note(K, Order::of(&five), 0);
        known.note_truncation(None, 1);
        assert!(!known.is_stale(K, Order::of(&four)));
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
        assert!(known.order(KeyNumber(1)).is_none());
        assert!(known.order(KeyNumber(2)).is_some());
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
