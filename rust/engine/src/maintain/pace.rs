//! How fast maintenance may go beside commits.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// Waits for a commit at most this long before the next rows: a table that always commits is looked after
/// as well.
const COMMIT_WAIT: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(10);
/// The longest rest at once.
const REST_MAX: Duration = Duration::from_secs(2);

/// Says whether something more urgent is under way.
type IsBusy = Arc<dyn Fn() -> bool + Send + Sync>;

/// The pace of a job.
#[derive(Clone)]
pub struct Pace {
    /// Hundredths of the time that it works.
    share: u32,
    is_busy: IsBusy,
}

impl std::fmt::Debug for Pace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pace")
            .field("share", &self.share)
            .finish_non_exhaustive()
    }
}

impl Pace {
    /// Waits for nobody.
    pub fn full() -> Self {
        Pace {
            share: 100,
            is_busy: Arc::new(|| false),
        }
    }

    /// Works for `share` hundredths of the time, and waits while something `is_busy`.
    pub fn beside(share: u32, is_busy: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Pace {
            share: share.clamp(1, 100),
            is_busy: Arc::new(is_busy),
        }
    }

    /// Waits for its turn, and returns when that begins.
    pub(super) async fn turn(&self) -> Instant {
        let asked = Instant::now();
        while (self.is_busy)() && asked.elapsed() < COMMIT_WAIT {
            tokio::time::sleep(LOOK).await;
        }
        Instant::now()
    }

    /// Rests after what was done since `begun`.
    pub(super) async fn rest(&self, begun: Instant) {
        let rest = rest_after(begun.elapsed(), self.share);
        if !rest.is_zero() {
            tokio::time::sleep(rest).await;
        }
    }
}

fn rest_after(worked: Duration, share: u32) -> Duration {
    let rest = worked.saturating_mul(100 - share.min(100)) / share.max(1);
    rest.min(REST_MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn it_rests_for_its_share() {
        let ms = Duration::from_millis;
        assert_eq!(rest_after(ms(30), 100), ms(0));
        assert_eq!(rest_after(ms(30), 50), ms(30));
        assert_eq!(rest_after(ms(30), 25), ms(90));
        assert_eq!(rest_after(ms(9_000), 50), REST_MAX);
    }

    #[tokio::test]
    async fn it_waits_for_commits_and_not_for_ever() {
        let looks = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&looks);
        let pace = Pace::beside(50, move || seen.fetch_add(1, Ordering::Relaxed) < 3);
        pace.turn().await;
        assert_eq!(looks.load(Ordering::Relaxed), 4);
        let begun = Instant::now();
        Pace::beside(50, || true).turn().await;
        assert!(begun.elapsed() >= COMMIT_WAIT);
    }
}
