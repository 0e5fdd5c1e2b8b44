//! The clock of the commit intervals, and where this process runs.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The wall clock at the start, so that all processes agree on the boundaries of intervals, and from
/// there on without the jumps that a wall clock makes.
#[derive(Debug, Clone, Copy)]
pub(super) struct HubClock {
    wall_ms: u64,
    started: Instant,
}

impl HubClock {
    pub(super) fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        HubClock {
            // A clock before 1970 only makes the boundaries this process's own.
            wall_ms: wall.map_or(0, milliseconds),
            started: Instant::now(),
        }
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.wall_ms
            .saturating_add(milliseconds(self.started.elapsed()))
    }
}

pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the name of the host, for people.
pub fn host_name() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    kernel
        .or_else(|| std::env::var("HOSTNAME").ok())
        .map(|name| name.trim().chars().take(200).collect())
        .filter(|name: &String| !name.is_empty())
        .unwrap_or_else(|| "unknown-host".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_agrees_with_the_wall_when_it_starts() {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let clock = HubClock::start();
        assert!(clock.now_ms().abs_diff(milliseconds(wall)) < 1_000);
        assert!(!host_name().is_empty());
    }
}
