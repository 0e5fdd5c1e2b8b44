//! Cores of the machine that no encoder uses.
//!
//! Every encoder of the process counts as one, whichever task it belongs to, so that many tasks
//! share the cores and one task alone may have them all. One is left to what is not counted: the
//! JVM, and the network.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The cores of the process.
static PROCESS: LazyLock<Cores> = LazyLock::new(|| {
    let all = thread::available_parallelism().map_or(1, usize::from);
    Cores::new(all.saturating_sub(1))
});

/// Cores that may be claimed.
#[derive(Debug)]
pub(super) struct Cores(AtomicUsize);

impl Cores {
    pub(super) const fn new(count: usize) -> Self {
        Cores(AtomicUsize::new(count))
    }

    /// Returns those of the process.
    pub(super) fn of_process() -> &'static Cores {
        &PROCESS
    }

    /// Claims up to `wanted` cores, as many as are idle; never waits.
    pub(super) fn claim(&self, wanted: usize) -> Claim<'_> {
        let taken = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |idle| {
                Some(idle - idle.min(wanted))
            });
        let idle = taken.unwrap_or_else(|idle| idle);
        Claim {
            cores: self,
            count: idle.min(wanted),
        }
    }
}

/// Cores that are given back when this is dropped.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    cores: &'a Cores,
    count: usize,
}

impl Claim<'_> {
    pub(super) fn count(&self) -> usize {
        self.count
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.cores.0.fetch_add(self.count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_claimed_once_and_given_back() {
        let cores = Cores::new(3);
        let two = cores.claim(2);
        assert_eq!(two.count(), 2);
        let rest = cores.claim(2);
        assert_eq!((rest.count(), cores.claim(2).count()), (1, 0));
        drop(two);
        assert_eq!(cores.claim(5).count(), 2);
        drop(rest);
        assert_eq!(cores.claim(5).count(), 3);
    }
}
