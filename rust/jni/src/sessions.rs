//! The registry of open sessions: a handle is a number, never an address, and is never used again.
//!
//! Invariant: a look-up clones an `Arc`, so a `close` on another thread cannot free a session under
//! a call; a session that panicked is poisoned, and every later call on it fails before it reaches
//! state that the panic may have left half changed.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use frazil_core::error::{Result, SinkError};
use frazil_engine::{Handle, handle};
use jni::sys::jlong;

/// Lets a test reach the panic path: a session opened with this key set to `true` panics when it is
/// sent the request [`TEST_PANIC_REQUEST`]. `validate` does not know the key, so no connector that
/// went through Connect's REST API can carry it.
const TEST_PANIC_KEY: &str = "frazil.internal.test-panic";
const TEST_PANIC_REQUEST: &[u8] = &[255];

static SESSIONS: Registry<Handle> = Registry::new();

/// Opens a session and returns its handle.
pub(crate) fn open(mut config: BTreeMap<String, String>) -> Result<jlong> {
    let test_panic = config.remove(TEST_PANIC_KEY).is_some_and(|v| v == "true");
    SESSIONS.add(handle::open(config)?, test_panic)
}

/// Returns the open session with this handle.
pub(crate) fn get(handle: jlong) -> Result<Arc<Entry<Handle>>> {
    SESSIONS.get(handle)
}

/// Hands a control request to the session.
pub(crate) fn control(entry: &Entry<Handle>, request: &[u8]) -> Result<Vec<u8>> {
    entry.call(|session| {
        if entry.test_panic && request == TEST_PANIC_REQUEST {
            test_panic();
        }
        session.control(request)
    })
}

/// Closes the session; does nothing when it is closed already.
pub(crate) fn close(handle: jlong) {
    if let Some(entry) = SESSIONS.remove(handle) {
        // Not through `call`: a poisoned session still has to let go of its threads and files.
        entry.session.close();
    }
}

#[expect(clippy::panic, reason = "a test asked for it")]
fn test_panic() {
    panic!("a test asked this session to panic")
}

/// One open session.
pub(crate) struct Entry<S> {
    session: S,
    poisoned: AtomicBool,
    test_panic: bool,
}

impl<S> Entry<S> {
    /// Runs `work` on the session; a panic in it poisons the session and goes on unwinding.
    pub(crate) fn call<T>(&self, work: impl FnOnce(&S) -> Result<T>) -> Result<T> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(SinkError::fatal(
                "SESSION_POISONED",
                "the native session failed earlier and cannot be used; restart the task",
            ));
        }
        // Unwind safety is what the flag is for: nobody sees the session again but `close`.
        match catch_unwind(AssertUnwindSafe(|| work(&self.session))) {
            Ok(result) => result,
            Err(payload) => {
                self.poisoned.store(true, Ordering::Release);
                resume_unwind(payload)
            }
        }
    }
}

struct Registry<S> {
    next: AtomicU64,
    entries: Mutex<BTreeMap<u64, Arc<Entry<S>>>>,
}

impl<S> Registry<S> {
    const fn new() -> Self {
        Registry {
            next: AtomicU64::new(1),
            entries: Mutex::new(BTreeMap::new()),
        }
    }

    fn add(&self, session: S, test_panic: bool) -> Result<jlong> {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        let number = jlong::try_from(handle)
            .map_err(|_| SinkError::internal("more sessions were opened than handles exist"))?;
        let entry = Arc::new(Entry {
            session,
            poisoned: AtomicBool::new(false),
            test_panic,
        });
        self.lock().insert(handle, entry);
        Ok(number)
    }

    fn get(&self, handle: jlong) -> Result<Arc<Entry<S>>> {
        u64::try_from(handle)
            .ok()
            .and_then(|handle| self.lock().get(&handle).cloned())
            .ok_or_else(|| {
                SinkError::fatal(
                    "SESSION_CLOSED",
                    "the native session is not open: it was closed or never existed",
                )
                .with("session", handle)
            })
    }

    fn remove(&self, handle: jlong) -> Option<Arc<Entry<S>>> {
        let handle = u64::try_from(handle).ok()?;
        self.lock().remove(&handle)
    }

    /// The map is changed by single inserts and removals, so a panic elsewhere leaves it whole.
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Arc<Entry<S>>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_handle_is_an_error_and_is_not_given_out_again() {
        let registry = Registry::<&str>::new();
        let first = registry.add("a", false).unwrap();
        assert_eq!(registry.get(first).unwrap().call(|s| Ok(*s)).unwrap(), "a");
        let in_flight = registry.get(first).unwrap();
        assert!(registry.remove(first).is_some());
        assert!(
            registry.remove(first).is_none(),
            "closing twice is harmless"
        );
        assert_eq!(in_flight.call(|s| Ok(*s)).unwrap(), "a");
        for handle in [first, 0, -1, jlong::MAX] {
            let error = registry.get(handle).err().unwrap();
            assert_eq!(error.code(), "SESSION_CLOSED");
        }
        assert_ne!(registry.add("b", false).unwrap(), first);
    }

    #[test]
    fn a_panic_poisons_its_session_and_no_other() {
        let registry = Registry::<u8>::new();
        let bad = registry.add(1, false).unwrap();
        let good = registry.add(2, false).unwrap();
        let entry = registry.get(bad).unwrap();
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            entry.call(|_| -> Result<()> { panic!("x") })
        }));
        assert!(unwound.is_err());
        let error = registry.get(bad).unwrap().call(|s| Ok(*s)).unwrap_err();
        assert_eq!(error.code(), "SESSION_POISONED");
        assert_eq!(registry.get(good).unwrap().call(|s| Ok(*s)).unwrap(), 2);
    }
}
