//! A value that ends and is renewed before it does, by one caller at a time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use frazil_core::Result;
use tokio::time::Instant;

/// Tries to renew a value that still serves are this far apart.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

/// A fresh value and how long it lives; `None` for one that does not end.
pub(super) struct Fresh<T> {
    pub(super) value: T,
    pub(super) life: Option<Duration>,
}

/// A value in use.
#[derive(Debug)]
pub(super) struct Lease<T> {
    pub(super) value: T,
    /// Counts the renewals.
    pub(super) generation: u64,
    renew_at: Option<Instant>,
    ends_at: Option<Instant>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Renewing<T> {
    /// How long before its end a value is renewed, but no more than a tenth of its life.
    margin: Duration,
    current: Mutex<State<T>>,
    flight: tokio::sync::Mutex<()>,
    /// How far tests have put the clock forward.
    #[cfg(test)]
    skew: Mutex<Duration>,
}

#[derive(Debug)]
struct State<T> {
    lease: Option<Arc<Lease<T>>>,
    /// After a failed renewal, when to try again while the old value serves.
    next_try: Option<Instant>,
}

impl<T> Renewing<T> {
    pub(super) fn new(margin: Duration) -> Self {
        Renewing {
            margin,
            current: Mutex::new(State {
                lease: None,
                next_try: None,
            }),
            flight: tokio::sync::Mutex::default(),
            #[cfg(test)]
            skew: Mutex::default(),
        }
    }

    #[cfg(not(test))]
    fn now(&self) -> Instant {
        Instant::now()
    }

    #[cfg(test)]
    fn now(&self) -> Instant {
        Instant::now() + *self.skew.lock().unwrap()
    }

    #[cfg(test)]
    fn advance(&self, time: Duration) {
        *self.skew.lock().unwrap() += time;
    }

    /// Returns the newest value, whether or not it is about to end.
    pub(super) fn latest(&self) -> Option<Arc<Lease<T>>> {
        self.state().lease.clone()
    }

    /// Puts in a value that came by another way.
    pub(super) fn set(&self, fresh: impl FnOnce(u64) -> Fresh<T>) -> Arc<Lease<T>> {
        let mut state = self.state();
        let generation = state.lease.as_ref().map_or(0, |lease| lease.generation) + 1;
        let fresh = fresh(generation);
        let now = self.now();
        let lease = Arc::new(Lease {
            value: fresh.value,
            generation,
            renew_at: fresh
                .life
                .map(|life| now + life - self.margin.min(life / 10)),
            ends_at: fresh.life.map(|life| now + life),
        });
        state.lease = Some(lease.clone());
        state.next_try = None;
        lease
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State<T>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the value if it serves, and whether its renewal is due.
    fn serving(&self) -> (Option<Arc<Lease<T>>>, bool) {
        let now = self.now();
        let state = self.state();
        let serving = state
            .lease
            .clone()
            .filter(|lease| lease.ends_at.is_none_or(|end| now < end));
        let due = serving
            .as_ref()
            .is_none_or(|lease| lease.renew_at.is_some_and(|at| at <= now));
        let paused = serving.is_some() && state.next_try.is_some_and(|at| now < at);
        (serving, due && !paused)
    }

    /// Returns a value that serves. Where a renewal is due, one caller does it; the others go on
    /// with the old value while that serves, and wait when it does not.
    pub(super) async fn get<F>(&self, renew: impl Fn() -> F) -> Result<Arc<Lease<T>>>
    where
        F: Future<Output = Result<Fresh<T>>>,
    {
        let old = match self.serving() {
            (Some(lease), false) => return Ok(lease),
            (old, _) => old,
        };
        let _flight = match (&old, self.flight.try_lock()) {
            (_, Ok(flight)) => flight,
            (Some(old), Err(_)) => return Ok(old.clone()),
            (None, Err(_)) => self.flight.lock().await,
        };
        if let (Some(lease), false) = self.serving() {
            return Ok(lease);
        }
        match (renew().await, old) {
            (Ok(fresh), _) => Ok(self.set(|_| fresh)),
            (Err(error), Some(old)) => {
                tracing::warn!(
                    code = error.code(),
                    "a renewal failed, the old value still serves"
                );
                self.state().next_try = Some(self.now() + RETRY_PAUSE);
                Ok(old)
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Renews a value that was refused, unless a newer one than `generation` is here already.
    pub(super) async fn refused<F>(&self, generation: u64, renew: impl Fn() -> F) -> Result<()>
    where
        F: Future<Output = Result<Fresh<T>>>,
    {
        let _flight = self.flight.lock().await;
        if self
            .latest()
            .is_some_and(|lease| lease.generation > generation)
        {
            return Ok(());
        }
        let fresh = renew().await?;
        self.set(|_| fresh);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frazil_core::SinkError;
    use std::sync::atomic::{AtomicU64, Ordering};

    const LIFE: Duration = Duration::from_secs(100);

    struct Source(AtomicU64);

    impl Source {
        async fn fresh(&self) -> Result<Fresh<u64>> {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok(Fresh {
                value: self.0.fetch_add(1, Ordering::SeqCst),
                life: Some(LIFE),
            })
        }
    }

    async fn broken() -> Result<Fresh<u64>> {
        Err(SinkError::retriable("X", "down"))
    }

    #[tokio::test]
    async fn one_caller_renews_for_all_and_before_the_end() {
        let source = Source(AtomicU64::new(0));
        let renewing = Renewing::new(Duration::from_secs(300));
        let all = futures::future::join_all((0..10).map(|_| renewing.get(|| source.fresh()))).await;
        assert!(all.iter().all(|lease| lease.as_ref().unwrap().value == 0));
        renewing.advance(Duration::from_secs(89));
        assert_eq!(renewing.get(|| source.fresh()).await.unwrap().value, 0);
        renewing.advance(Duration::from_secs(2));
        let both = futures::future::join(
            renewing.get(|| source.fresh()),
            renewing.get(|| source.fresh()),
        )
        .await;
        assert_eq!((both.0.unwrap().value, both.1.unwrap().value), (1, 0));
    }

    #[tokio::test]
    async fn a_failed_renewal_keeps_the_old_value_to_its_end() {
        let source = Source(AtomicU64::new(0));
        let renewing = Renewing::new(Duration::from_secs(300));
        renewing.get(|| source.fresh()).await.unwrap();
        renewing.advance(Duration::from_secs(95));
        assert_eq!(renewing.get(broken).await.unwrap().value, 0);
        // Paused after the failure, then tried again.
        assert_eq!(renewing.get(|| source.fresh()).await.unwrap().value, 0);
        renewing.advance(Duration::from_secs(6));
        assert_eq!(renewing.get(broken).await.unwrap_err().code(), "X");
    }

    #[tokio::test]
    async fn a_refused_value_is_renewed_once() {
        let source = Source(AtomicU64::new(0));
        let renewing = Renewing::new(Duration::from_secs(300));
        let first = renewing.get(|| source.fresh()).await.unwrap();
        renewing
            .refused(first.generation, || source.fresh())
            .await
            .unwrap();
        renewing
            .refused(first.generation, || source.fresh())
            .await
            .unwrap();
        assert_eq!(renewing.latest().unwrap().value, 1);
    }
}
