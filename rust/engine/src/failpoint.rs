//! Places where a chaos run may cut the protocol: kill the process, wait, or fail.
//!
//! A build without the feature `failpoints`, as the plugin is, has none of them. With it, the file
//! that the environment variable `FRAZIL_FAILPOINTS` names is read at every point, so that a test
//! arms and disarms points in a running worker. Each line is `name=action`, where the action is
//! `kill`, `wait:MILLISECONDS`, `panic` or `fail`, and may end in `*COUNT`: how often it happens at
//! most in one process. A line of its own in the process's output tells of each.

#[cfg(not(feature = "failpoints"))]
use frazil_core::Result;

/// Passes the point `name`.
///
/// # Errors
///
/// Retriable, when a chaos run has armed the point with `fail`.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub(crate) fn pass(_name: &'static str) -> Result<()> {
    Ok(())
}

/// Passes the point `name`, where there is nothing left that could fail.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub(crate) fn cut(_name: &'static str) {}

#[cfg(feature = "failpoints")]
pub(crate) use armed::{cut, pass};

#[cfg(feature = "failpoints")]
mod armed {
    use std::collections::BTreeMap;
    use std::sync::{Mutex, PoisonError};
    use std::time::Duration;

    use frazil_core::{Result, SinkError};

    static PASSED: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

    pub(crate) fn cut(name: &'static str) {
        if let Err(error) = pass(name) {
            eprintln!(
                "failpoint {name}: nothing can fail here: {}",
                error.report()
            );
        }
    }

    pub(crate) fn pass(name: &'static str) -> Result<()> {
        let Some(path) = std::env::var_os("FRAZIL_FAILPOINTS") else {
            return Ok(());
        };
        let Ok(armed) = std::fs::read_to_string(&path) else {
            return Ok(());
        };
        for line in armed.lines() {
            let Some(action) = line
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix('='))
            else {
                continue;
            };
            let (action, most) = match action.split_once('*') {
                Some((action, most)) => (action, most.trim().parse().unwrap_or(u64::MAX)),
                None => (action, u64::MAX),
            };
            if count(line) < most {
                return act(name, action.trim());
            }
        }
        Ok(())
    }

    fn count(line: &str) -> u64 {
        let mut passed = PASSED.lock().unwrap_or_else(PoisonError::into_inner);
        let count = passed.entry(line.to_owned()).or_default();
        *count += 1;
        *count - 1
    }

    fn act(name: &'static str, action: &str) -> Result<()> {
        // One write, so that the lines of others are not mixed into it.
        eprint!("{}", format!("failpoint {name}: {action}\n"));
        if action == "kill" {
            // What a machine that loses power does: no unwinding, no flushing, no farewell.
            std::process::abort();
        }
        if action == "panic" {
            std::panic::panic_any(format!("a chaos run asked for a panic at {name}"));
        }
        if let Some(ms) = action.strip_prefix("wait:") {
            std::thread::sleep(Duration::from_millis(ms.parse().unwrap_or(1_000)));
            return Ok(());
        }
        Err(
            SinkError::retriable("FAILPOINT", "a chaos run asked for this failure")
                .with("point", name),
        )
    }
}
