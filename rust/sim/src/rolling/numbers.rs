//! What a rolling restart is measured by: the numbers of `tests/scale/test_rolling.py`.

use std::fmt;

use super::tables::{Applied, Table};
use super::world::{Counts, World};
use super::{Size, Transport};

/// Snapshots per table and interval outside of fail-over windows, at most.
const SNAPSHOTS_MAX: f64 = 1.1;
/// Seconds between two commits of a table around a restart, at most.
const GAP_S_MAX: f64 = 15.0;

/// The numbers of one run.
#[derive(Debug, Clone)]
pub(super) struct Numbers {
    transport: Transport,
    workers: usize,
    pub(super) restarts: usize,
    /// Snapshots per table and interval outside of fail-over windows.
    quiet_median: f64,
    pub(super) quiet_worst: f64,
    whole: f64,
    /// Of commit requests that were answered 409, per table and interval.
    pub(super) conflicts: f64,
    /// Requests to the catalog per table and interval, and those of them that loaded a table.
    catalog: f64,
    loads: f64,
    /// The longest time between two commits of a table around a restart: median and worst restart.
    gap_median_s: f64,
    pub(super) gap_s: f64,
    /// The age of the oldest row that was not in its table: the same, and while all was quiet.
    age_median_s: f64,
    pub(super) age_s: f64,
    age_quiet_s: f64,
    messages_per_s: f64,
    read_kb_per_s: f64,
    counts: Counts,
    rest_s: f64,
    wrong: Vec<String>,
}

type Window = (u64, u64);

impl Numbers {
    /// The head of the table of numbers.
    pub(super) const HEAD: &str = "\
| workers (restarted) | transport | snapshots quiet, median / worst | whole run | 409s | catalog requests (loads) \
| gap, median / worst restart | age, median / worst restart (quiet) | start-overs, failed tasks (rebalances, elections) \
| control messages/s, kB/s read by each worker (dropped) | exactly once, s to lag 0 |
|---|---|---|---|---|---|---|---|---|---|---|";

    /// Takes the numbers of a world between two moments.
    pub(super) fn of(w: &World, begin: (u64, Counts), over: (u64, Counts)) -> Self {
        let size = &w.size;
        let around: Vec<Window> = w
            .cluster
            .restarts
            .iter()
            .map(|(start, end)| (*start, end + size.failover_ms))
            .collect();
        let quiet = quiet(begin.0, over.0, &around);
        let counts = over.1.since(&begin.1);
        let seconds = (over.0 - begin.0) as f64 / 1_000.0;
        let intervals = per(size, &[(begin.0, over.0)]);
        let each = |count: u64| count as f64 / intervals / size.tables as f64;
        let per_table = sorted(w.tables.iter().map(|table| {
            let times = table.applied.iter().map(|applied| applied.at_ms);
            let inside = times.filter(|at| quiet.iter().any(|q| q.0 <= *at && *at < q.1));
            inside.count() as f64 / per(size, &quiet)
        }));
        let gaps = sorted(around.iter().map(|window| gap(w, *window)));
        let ages = sorted(around.iter().map(|window| age(w, *window)));
        let made = w.tables.iter().flat_map(|table| &table.applied);
        let made = made.filter(|applied| begin.0 <= applied.at_ms && applied.at_ms < over.0);
        let loads = counts.task_loads + counts.commit_loads;
        Numbers {
            transport: size.transport,
            workers: size.workers,
            restarts: around.len(),
            quiet_median: middle(&per_table),
            quiet_worst: last(&per_table),
            whole: each(made.count() as u64),
            conflicts: each(counts.conflicts),
            catalog: each(loads + counts.requests),
            loads: each(loads),
            gap_median_s: middle(&gaps),
            gap_s: last(&gaps),
            age_median_s: middle(&ages),
            age_s: last(&ages),
            age_quiet_s: quiet
                .iter()
                .map(|window| age(w, *window))
                .fold(0.0, f64::max),
            messages_per_s: counts.messages as f64 / seconds,
            read_kb_per_s: counts.message_bytes as f64 / seconds / 1_000.0,
            counts,
            rest_s: (w.now_ms - w.stop_ms) as f64 / 1_000.0,
            wrong: wrong(w),
        }
    }

    /// Tells whether the bars are kept that are set for the control topic: hardly more than one
    /// snapshot per table and interval while all is quiet, no long gap, and no failed task.
    pub(super) fn keeps_bars(&self) -> bool {
        self.quiet_worst <= SNAPSHOTS_MAX && self.gap_s <= GAP_S_MAX && self.counts.failures == 0
    }

    /// Tells whether each record is in each table, once.
    pub(super) fn is_exactly_once(&self) -> bool {
        self.wrong.is_empty()
    }
}

/// Returns what is lost or doubled.
fn wrong(w: &World) -> Vec<String> {
    let mut wrong = Vec::new();
    for (index, table) in w.tables.iter().enumerate() {
        wrong.extend(
            table
                .wrong
                .iter()
                .map(|what| format!("t{index:02}: {what}")),
        );
        for (partition, next) in table.next.iter().enumerate() {
            let end = w.log_end(partition);
            if *next != end {
                wrong.push(format!(
                    "t{index:02}: partition {partition} ends at {next}, not {end}"
                ));
            }
        }
    }
    wrong
}

/// Returns what lies between the windows of the restarts.
fn quiet(begin: u64, over: u64, around: &[Window]) -> Vec<Window> {
    let starts = std::iter::once(begin).chain(around.iter().map(|window| window.1));
    let ends = around.iter().map(|window| window.0).chain([over]);
    starts
        .zip(ends)
        .filter(|(start, end)| start < end)
        .collect()
}

fn per(size: &Size, windows: &[Window]) -> f64 {
    let length: u64 = windows.iter().map(|(start, end)| end - start).sum();
    length as f64 / size.interval_ms as f64
}

/// Returns the longest time between two commits of a table that touches a window, in seconds. Who
/// never commits has one that lasts to the end of the load.
fn gap(w: &World, window: Window) -> f64 {
    let of_table = |table: &Table| {
        let times = table.applied.iter().map(|applied| applied.at_ms);
        longest_gap(times, window, w.stop_ms)
    };
    w.tables.iter().map(of_table).max().unwrap_or(0) as f64 / 1_000.0
}

fn longest_gap(times: impl Iterator<Item = u64>, (start, end): Window, over: u64) -> u64 {
    let (mut last, mut longest) = (0, 0);
    for time in times.chain([over]) {
        if time > start && last < end {
            longest = longest.max(time.saturating_sub(last));
        }
        last = last.max(time);
    }
    longest
}

/// Returns the age that the oldest row reached within a window that was not in its table, in
/// seconds.
fn age(w: &World, window: Window) -> f64 {
    let of_table = |table: &Table| highest_age(&table.applied, window);
    w.tables.iter().map(of_table).max().unwrap_or(0) as f64 / 1_000.0
}

fn highest_age(applied: &[Applied], (start, end): Window) -> u64 {
    let mut highest = 0;
    for applied in applied.iter().filter(|applied| applied.at_ms >= start) {
        // A row that comes in later was so much younger when the window ended.
        let later_ms = applied.at_ms.saturating_sub(end);
        highest = highest.max(applied.age_ms.saturating_sub(later_ms));
        if applied.at_ms >= end {
            return highest;
        }
    }
    // Nothing came in afterwards: the newest row known is that of the last commit.
    let last = applied.last().map_or(start, |applied| applied.at_ms);
    highest.max(end.saturating_sub(last.max(start)))
}

fn sorted(numbers: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers
}

fn middle(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

fn last(sorted: &[f64]) -> f64 {
    sorted.last().copied().unwrap_or(0.0)
}

impl Counts {
    fn since(&self, before: &Counts) -> Counts {
        Counts {
            task_loads: self.task_loads - before.task_loads,
            commit_loads: self.commit_loads - before.commit_loads,
            requests: self.requests - before.requests,
            conflicts: self.conflicts - before.conflicts,
            messages: self.messages - before.messages,
            message_bytes: self.message_bytes - before.message_bytes,
            dropped: self.dropped - before.dropped,
            elections: self.elections - before.elections,
            rebalances: self.rebalances - before.rebalances,
            segments: self.segments - before.segments,
            start_overs: self.start_overs - before.start_overs,
            failures: self.failures - before.failures,
        }
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = match self.transport {
            Transport::Topic => "topic",
            Transport::Local => "local",
        };
        write!(f, "| {} ({}) ", self.workers, self.restarts)?;
        write!(f, "| `{transport}` | ")?;
        write!(f, "{:.2} / {:.2} | ", self.quiet_median, self.quiet_worst)?;
        write!(f, "{:.2} | {:.2} | ", self.whole, self.conflicts)?;
        write!(f, "{:.1} ({:.1}) | ", self.catalog, self.loads)?;
        write!(f, "{:.1} / {:.1} s | ", self.gap_median_s, self.gap_s)?;
        write!(f, "{:.1} / {:.1} s ", self.age_median_s, self.age_s)?;
        write!(f, "({:.1} s) | ", self.age_quiet_s)?;
        let counts = &self.counts;
        write!(f, "{}, {} ", counts.start_overs, counts.failures)?;
        write!(f, "({}, {}) | ", counts.rebalances, counts.elections)?;
        write!(f, "{:.0}, {:.0} ", self.messages_per_s, self.read_kb_per_s)?;
        write!(f, "({}) | ", counts.dropped)?;
        match self.wrong.as_slice() {
            [] => write!(f, "yes, {:.1} |", self.rest_s),
            [first, ..] => write!(f, "**no**: {} wrong, {first} |", self.wrong.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_is_what_no_restart_touches() {
        let around = [(20, 40), (60, 70)];
        assert_eq!(quiet(0, 90, &around), [(0, 20), (40, 60), (70, 90)]);
        assert_eq!(quiet(0, 70, &around), [(0, 20), (40, 60)]);
    }

    #[test]
    fn a_gap_lasts_until_something_comes_or_to_the_end() {
        let gap = |times: &[u64], window| longest_gap(times.iter().copied(), window, 100);
        assert_eq!(gap(&[10, 20, 45, 50], (22, 30)), 25);
        assert_eq!(gap(&[10, 20, 45, 50], (46, 49)), 5);
        assert_eq!(gap(&[10, 20], (30, 40)), 80, "nothing came any more");
        assert_eq!(gap(&[], (30, 40)), 100);
    }

    #[test]
    fn rows_age_until_they_are_in() {
        let applied = |at_ms, age_ms| Applied { at_ms, age_ms };
        let some = [applied(10, 5), applied(20, 8), applied(60, 40)];
        assert_eq!(highest_age(&some, (5, 15)), 5);
        assert_eq!(highest_age(&some, (5, 21)), 8);
        assert_eq!(highest_age(&some, (25, 50)), 30, "it was in 10 ms later");
        assert_eq!(highest_age(&some, (70, 90)), 20);
        assert_eq!(highest_age(&[], (70, 90)), 20);
    }
}
