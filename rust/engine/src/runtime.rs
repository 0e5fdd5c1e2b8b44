//! The one tokio runtime of the process, shared by all sessions and gone with the last of them.
//!
//! It serves uploads, catalogs and commits; encoding runs on the task threads. Its threads never
//! attach to the JVM, so that a worker can stop while they live.

use std::future::Future;
use std::num::NonZero;
use std::sync::{Arc, Weak};
use std::time::Duration;

use frazil_core::{Result, SinkError};
use once_cell::sync::Lazy;
use std::sync::Mutex;
use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

/// Threads of the runtime: it waits for networks, it does not compute.
const THREADS: usize = 2;
const SHUTDOWN: Duration = Duration::from_secs(3);

static SHARED: Lazy<Mutex<Weak<Runtime>>> = Lazy::new(|| Mutex::new(Weak::new()));

static TURNS: Lazy<Semaphore> = Lazy::new(|| Semaphore::new(cores()));

/// Returns how many threads can compute at a time.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Does `work` that computes for more than a moment, and lets the runtime's other tasks go on elsewhere. As
/// much is done at a time, by all tables of the process, as there are cores.
pub(crate) async fn compute<T>(work: impl FnOnce() -> T) -> T {
    // A semaphore that is never closed gives a permit always.
    let _turn = TURNS.acquire().await;
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        // A thread of its own has no others to wait for it.
        _ => work(),
    }
}

/// A share in the process-wide runtime.
#[derive(Debug)]
pub struct Runtime {
    inner: Option<tokio::runtime::Runtime>,
    handle: Handle,
}

impl Runtime {
    /// Returns the runtime of the process, started if nobody holds it yet.
    ///
    /// # Errors
    ///
    /// `RUNTIME_START_FAILED` when the operating system refuses threads.
    pub fn shared() -> Result<Arc<Runtime>> {
        let mut shared = SHARED
            .lock()
            .map_err(|_| SinkError::internal("the runtime's lock is poisoned"))?;
        if let Some(runtime) = shared.upgrade() {
            return Ok(runtime);
        }
        let inner = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("frazil-io")
            .enable_all()
            .build()
            .map_err(|error| {
                SinkError::fatal(
                    "RUNTIME_START_FAILED",
                    "cannot start native threads; raise the process limit of the worker",
                )
                .caused_by(error)
            })?;
        let runtime = Arc::new(Runtime {
            handle: inner.handle().clone(),
            inner: Some(inner),
        });
        *shared = Arc::downgrade(&runtime);
        Ok(runtime)
    }

    /// Returns the handle that spawns on this runtime.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Waits on the calling (non-runtime) thread for `work`, at most `limit`.
    ///
    /// # Errors
    ///
    /// `TIMED_OUT` (retriable) when the limit passes; what `work` returns otherwise.
    pub fn wait<T>(
        &self,
        what: &'static str,
        limit: Duration,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.handle.block_on(async {
            match tokio::time::timeout(limit, work).await {
                Ok(result) => result,
                Err(_) => Err(SinkError::retriable(
                    "TIMED_OUT",
                    format!("{what} took longer than {} s", limit.as_secs()),
                )),
            }
        })
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if let Some(runtime) = self.inner.take() {
            // The last owner may be a task of the runtime itself, where waiting is forbidden.
            if Handle::try_current().is_ok() {
                runtime.shutdown_background();
            } else {
                runtime.shutdown_timeout(SHUTDOWN);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    // Promise: While rows are looked up in a primary-key index, or one is built, uploads and commits of other tables go on, and the process computes with no more threads than it has cores.
    #[test]
    fn what_computes_keeps_nobody_from_the_network() {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let (most, now) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let may_end = Arc::new(AtomicBool::new(false));
        let running: Vec<_> = (0..cores() + 2)
            .map(|_| {
                let (most, now) = (Arc::clone(&most), Arc::clone(&now));
                runtime.spawn(compute_on(most, now, Arc::clone(&may_end)))
            })
            .collect();
        let (to, other) = std::sync::mpsc::channel();
        runtime.spawn(async move { to.send(7) });
        let answer = other.recv_timeout(SHUTDOWN);
        may_end.store(true, Ordering::Relaxed);
        assert_eq!(answer, Ok(7));
        for one in running {
            runtime.block_on(one).expect("no panic");
        }
        assert!((1..=cores()).contains(&most.load(Ordering::Relaxed)));
    }

    async fn compute_on(most: Arc<AtomicUsize>, now: Arc<AtomicUsize>, may_end: Arc<AtomicBool>) {
        compute(|| {
            let running = now.fetch_add(1, Ordering::Relaxed) + 1;
            most.fetch_max(running, Ordering::Relaxed);
            while !may_end.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            now.fetch_sub(1, Ordering::Relaxed);
        })
        .await;
    }

    #[test]
    fn the_runtime_is_shared_and_waits_with_a_limit() {
        let first = Runtime::shared().expect("a runtime");
        let second = Runtime::shared().expect("a runtime");
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(
            first.wait("nothing", SHUTDOWN, async { Ok(7) }).expect("7"),
            7
        );
        let late = second
            .wait("sleeping", Duration::from_millis(5), async {
                tokio::time::sleep(Duration::from_secs(60)).await;
                Ok(())
            })
            .expect_err("the limit passes");
        assert_eq!(late.code(), "TIMED_OUT");
    }
}
