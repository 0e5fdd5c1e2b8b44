//! One line of JSON per commit, which waits here until Java fetches it.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use frazil_core::control::segment::FileCounts;
use frazil_core::metrics::TableMetric;
use serde_json::json;

use super::{Values, lock, wall_ms, whole};

/// Events that wait for Java; with one a second, those of a quarter of an hour.
const EVENTS_MAX: usize = 1_000;

/// The events of a connector.
#[derive(Debug, Default)]
pub(super) struct Events(Mutex<Ring>);

#[derive(Debug, Default)]
struct Ring {
    lines: VecDeque<String>,
    dropped: u64,
}

impl Events {
    /// Adds a line; the oldest one makes room for it.
    pub(super) fn push(&self, line: String) {
        let mut ring = lock(&self.0);
        if ring.lines.len() >= EVENTS_MAX {
            ring.lines.pop_front();
            ring.dropped += 1;
        }
        ring.lines.push_back(line);
    }

    pub(super) fn take(&self) -> impl Iterator<Item = String> {
        std::mem::take(&mut lock(&self.0).lines).into_iter()
    }

    pub(super) fn dropped(&self) -> u64 {
        lock(&self.0).dropped
    }
}

/// How long the parts of a commit took, all attempts together.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Phases {
    pub(crate) all: Duration,
    pub(crate) load: Duration,
    pub(crate) check: Duration,
    pub(crate) build: Duration,
    pub(crate) submit: Duration,
    pub(crate) pause: Duration,
}

/// A commit that came through. It names no value of any record.
#[derive(Debug)]
pub(crate) struct CommitEvent<'a> {
    pub(crate) branch: &'a str,
    pub(crate) snapshot_id: i64,
    pub(crate) segments: usize,
    pub(crate) ranges: usize,
    /// Rows of the segments.
    pub(crate) rows: u64,
    /// The files that it added.
    pub(crate) added: FileCounts,
    pub(crate) valid_through_ms: Option<i64>,
    pub(crate) attempts: u32,
    pub(crate) phases: Phases,
}

impl CommitEvent<'_> {
    /// Adds the commit to the metrics of its table.
    pub(super) fn count(&self, values: &Values<TableMetric>) {
        values.add(TableMetric::Commits, 1);
        let retries = u64::from(self.attempts.saturating_sub(1));
        values.add(TableMetric::CommitRetries, retries);
        values.add(TableMetric::CommitRows, self.rows);
        values.add(TableMetric::CommitFiles, self.added.data_files);
        values.add(TableMetric::CommitBytes, self.added.bytes);
        values.add(TableMetric::CommitDeletes, self.added.position_deletes);
        for (metric, time) in [
            (TableMetric::CommitTime, self.phases.all),
            (TableMetric::LoadTime, self.phases.load),
            (TableMetric::CheckTime, self.phases.check),
            (TableMetric::BuildTime, self.phases.build),
            (TableMetric::SubmitTime, self.phases.submit),
            (TableMetric::PauseTime, self.phases.pause),
        ] {
            values.add_time(metric, time);
        }
        values.set(TableMetric::LastCommitTime, ms(self.phases.all));
        values.set_since(TableMetric::LastCommit, Some(wall_ms()));
        values.set_since(TableMetric::ValidThrough, self.valid_through_ms);
        values.set(TableMetric::SnapshotId, self.snapshot_id);
        values.set(TableMetric::Refusing, 0);
    }

    /// Returns its line (`docs/metrics.md`, "One line per commit").
    pub(super) fn line(&self, connector: &str, table: &str) -> String {
        json!({
            "event": "commit",
            "at_ms": wall_ms(),
            "connector": connector,
            "table": table,
            "branch": self.branch,
            "snapshot_id": self.snapshot_id,
            "segments": self.segments,
            "ranges": self.ranges,
            "rows": self.rows,
            "files": self.added.data_files,
            "bytes": self.added.bytes,
            "deletes": self.added.position_deletes,
            "valid_through_ms": self.valid_through_ms,
            "attempts": self.attempts,
            "ms": {
                "all": ms(self.phases.all),
                "load": ms(self.phases.load),
                "check": ms(self.phases.check),
                "build": ms(self.phases.build),
                "submit": ms(self.phases.submit),
                "pause": ms(self.phases.pause),
            },
        })
        .to_string()
    }
}

fn ms(time: Duration) -> i64 {
    whole(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
