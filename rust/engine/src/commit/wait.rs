//! Waiting between attempts: growing, with jitter, and ended by a cancellation.

use std::time::Duration;

use tokio::sync::watch;
use uuid::Uuid;

/// Ends the waiting of everything that holds a clone of it. What was submitted stays submitted:
/// the next session finds out by reading the table.
#[derive(Debug, Clone)]
pub struct Cancel(watch::Sender<bool>);

impl Default for Cancel {
    fn default() -> Self {
        Cancel(watch::Sender::new(false))
    }
}

impl Cancel {
    /// Ends the waiting, now and later.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }

    /// Tells whether [`Cancel::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns when [`Cancel::cancel`] was or is called.
    pub async fn cancelled(&self) {
        // The sender lives as long as `self`, so this only ever ends with `true`.
        let _ = self.0.subscribe().wait_for(|cancelled| *cancelled).await;
    }

    /// Waits for `future` or a cancellation; `None` when that came first.
    pub async fn or<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.cancelled() => None,
            value = future => Some(value),
        }
    }
}

/// Returns the pause before attempt `attempt` (from 1): `min` doubled each time up to `max`, then
/// a random part of that, at least half.
pub(super) fn pause(attempt: u32, min: Duration, max: Duration) -> Duration {
    let doubled = min.saturating_mul(1 << attempt.saturating_sub(1).min(20));
    let whole = doubled.min(max);
    whole.mul_f64(0.5 + 0.5 * random_part())
}

/// Returns a random number in `[0, 1)`.
fn random_part() -> f64 {
    let (_, low) = Uuid::now_v7().as_u64_pair();
    (low & 0xffff_ffff) as f64 / 4_294_967_296.0
}

/// Returns a random snapshot id, positive as all writers make them.
pub(super) fn random_snapshot_id() -> i64 {
    // The upper two bits of the low half are the UUID's variant, the other 62 are random.
    let (_, low) = Uuid::now_v7().as_u64_pair();
    ((low & (u64::MAX >> 2)) as i64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_limit() {
        let (min, max) = (Duration::from_secs(1), Duration::from_secs(60));
        for (attempt, whole) in [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (4_000, 60)] {
            let pause = pause(attempt, min, max);
            let whole = Duration::from_secs(whole);
            assert!(pause >= whole / 2 && pause <= whole, "{attempt}: {pause:?}");
        }
    }

    #[test]
    fn snapshot_ids_differ() {
        let ids: std::collections::BTreeSet<i64> =
            (0..1_000).map(|_| random_snapshot_id()).collect();
        assert_eq!(ids.len(), 1_000);
        assert!(ids.iter().all(|id| *id > 0));
    }
}
