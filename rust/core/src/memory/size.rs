//! How large the pool of a process is when nobody says so.

use std::fmt;

/// Bytes of a process beside its heap and the pool: the JVM's own, threads, code, clients.
const RESERVE: u64 = 256 << 20;
const MIB: u64 = 1 << 20;

/// Where a limit of memory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitKind {
    /// The container's, that is its control group's.
    Container,
    /// The machine has no more.
    Machine,
}

/// The most memory that a process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Bytes.
    pub bytes: u64,
    /// Whose limit it is.
    pub kind: LimitKind,
}

/// The size of a pool, with how it came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSize {
    /// Bytes.
    pub bytes: u64,
    limit: Limit,
    heap: u64,
}

/// Returns half of what the limit leaves beside the largest heap and a reserve. The other half is for
/// what nobody counts: the page cache, fragmentation, other plugins.
pub fn pool_size(limit: Limit, heap: u64) -> PoolSize {
    PoolSize {
        bytes: limit.bytes.saturating_sub(heap).saturating_sub(RESERVE) / 2,
        limit,
        heap,
    }
}

impl fmt::Display for PoolSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = match self.limit.kind {
            LimitKind::Container => "limit of the container",
            LimitKind::Machine => "memory of the machine",
        };
        write!(
            f,
            "50 % of ({} MiB {whose} - {} MiB largest heap - {} MiB) is {} bytes",
            self.limit.bytes / MIB,
            self.heap / MIB,
            RESERVE / MIB,
            self.bytes
        )
    }
}
