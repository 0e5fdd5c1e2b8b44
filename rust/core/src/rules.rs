//! The rules that make a table hold each record exactly once, by name.
//!
//! Code that keeps a rule asks [`enforced`], which is `true` and costs nothing. Only a build with
//! the feature `mutation` can switch a rule off, for one thread: the simulator does so to show that
//! its checkers notice. The plugin is never built with that feature.

/// A rule of the protocol (`docs/exactly-once.md`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// R1: the offsets are judged on the very metadata that the request asserts.
    OneBase,
    /// R2: nothing of a session passes an earlier segment of it.
    SessionOrder,
    /// R3: a claim without rows moves no offset.
    RowsOnly,
    /// R3: an offset in the table never goes back.
    NeverBack,
    /// R4: a segment is sealed once every dead letter below its end is acknowledged.
    DeadLettersFirst,
    /// R5: the group's offset moves only over what is durable.
    DurableOffset,
    /// R6: an outcome counts for the session and segment it names, and for no other.
    OutcomeNamed,
    /// R7: the epoch of a task is fixed when it starts.
    EpochFixed,
    /// R8: a batch with equality deletes holds one segment.
    DeletesAlone,
    /// R9: the segments of a session are taken in the order of their numbers.
    SegmentOrder,
    /// R10: the writer deletes no file.
    NoDelete,
    /// R11: a segment that waited too long is not committed.
    Expiry,
    /// R12: a new coordinator begins at the end of the control topic.
    FromLogEnd,
    /// R13: where a record goes depends on the record and the configuration alone.
    PureRouting,
    /// R15: a rejected session is dead.
    DeadSession,
    /// R16: a pending rewind freezes the offset.
    FrozenRewind,
    /// The test of the whole protocol: T is at most the lowest offset in the files.
    BoundTest,
    /// After an unclear answer the table is asked before anything is submitted again.
    Resolve,
    /// Changes: a row that somebody deleted is not the row of its key.
    LiveRow,
    /// Changes: a data file has one delete file, which has the rows of those before it.
    OneDelete,
    /// Changes: of two in one commit the later one by its order counts.
    NewerWins,
    /// Changes: one that is older than what the table is known to have changes nothing.
    Stale,
    /// Changes: the order of a key is kept for each of its sources.
    OrderOfEachSource,
    /// Changes: orders that a rollback took off the table are forgotten.
    OrdersOfRollback,
    /// Changes: after an offset reset a truncation that was applied is applied again.
    OrdersOfReset,
    /// Changes: orders are forgotten when another process has committed.
    OrdersOfOthers,
    /// Changes: a truncation without an order makes all orders count no more.
    OrdersBeginAnew,
    /// Changes: an order is noted only once the table shows its commit.
    NotedWhenThere,
    /// Changes: an index of a table that was rolled back is built anew.
    IndexOfRollback,
    /// Changes: the index changes only once the table shows the commit.
    IndexWhenThere,
    /// Changes: an index of a table with several rows of a key is built anew after others changed the table.
    SeveralRows,
    /// Changes: keys of data files of others are read.
    FilesOfOthers,
    /// Changes: a table with changes of several partitions is not emptied.
    TruncationSure,
}

/// Tells whether `rule` is kept.
#[cfg(not(feature = "mutation"))]
#[inline(always)]
pub const fn enforced(_rule: Rule) -> bool {
    true
}

#[cfg(feature = "mutation")]
pub use mutation::{enforced, without};

#[cfg(feature = "mutation")]
mod mutation {
    use std::cell::Cell;

    use super::Rule;

    thread_local! {
        static OFF: Cell<u64> = const { Cell::new(0) };
    }

    /// Tells whether `rule` is kept on this thread.
    pub fn enforced(rule: Rule) -> bool {
        OFF.get() & (1 << rule as u32) == 0
    }

    /// Runs `run` with `rules` switched off on this thread.
    pub fn without<T>(rules: &[Rule], run: impl FnOnce() -> T) -> T {
        let before = OFF.get();
        OFF.set(
            rules
                .iter()
                .fold(before, |off, rule| off | 1 << *rule as u32),
        );
        let value = run();
        OFF.set(before);
        value
    }
}
