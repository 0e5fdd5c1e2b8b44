//! Waiting that grows with each attempt and ends with a cancellation.

use std::time::Duration;

use frazil_core::commit::action::{Entropy, pause_ms};
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

/// Random numbers of this process.
pub(super) struct Random;

impl Random {
    /// The upper two bits of a UUID's low half are its variant, the other 62 are random.
    fn bits() -> u64 {
        let (_, low) = Uuid::now_v7().as_u64_pair();
        low & (u64::MAX >> 2)
    }
}

impl Entropy for Random {
    fn uuid(&mut self) -> Uuid {
        Uuid::now_v7()
    }

    fn snapshot_id(&mut self) -> i64 {
        (Self::bits() as i64).max(1)
    }

    fn jitter(&mut self) -> u32 {
        Self::bits() as u32
    }
}

/// Returns the pause before attempt `attempt` (from 1), which grows from about `min` to `max`.
pub(crate) fn pause(attempt: u32, min: Duration, max: Duration) -> Duration {
    let ms = |pause: Duration| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(pause_ms(attempt, ms(min), ms(max), Random.jitter()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_ids_differ() {
        let ids: std::collections::BTreeSet<i64> =
            (0..1_000).map(|_| Random.snapshot_id()).collect();
        assert_eq!(ids.len(), 1_000);
        assert!(ids.iter().all(|id| *id > 0));
    }
}
