//! Log lines wait here, in a bounded ring, until Java fetches them with an answer.
//!
//! Native threads never call Java, so they cannot use the worker's logger. Only events of Frazil's
//! own targets are kept, and they never hold record values or secrets. Lines that do not fit are
//! counted.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use frazil_core::metrics::WorkerMetric;
use frazil_core::wire::{Effects, LogLevel};
use once_cell::sync::Lazy;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::metrics::WORKER;

const LINES_MAX: usize = 1_000;

static RING: Lazy<Mutex<Ring>> = Lazy::new(Mutex::default);

#[derive(Default)]
struct Ring {
    lines: VecDeque<Line>,
    dropped: u64,
}

/// How much attention a line wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// A person must look.
    Error,
    /// Something works less well than it should.
    Warn,
    /// One line per commit, start and stop.
    Info,
}

/// One log line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// How much attention it wants.
    pub severity: Severity,
    /// The message and its fields.
    pub text: String,
}

/// Starts collecting the log events of Frazil. Calling it again does nothing.
pub fn install() {
    // An error means that somebody else in this process installed a subscriber: theirs is used.
    let _ = tracing::subscriber::set_global_default(RingSubscriber);
}

/// Takes the lines that wait, and how many were dropped since the last call.
pub fn drain() -> (Vec<Line>, u64) {
    let mut ring = ring();
    let dropped = std::mem::take(&mut ring.dropped);
    (ring.lines.drain(..).collect(), dropped)
}

fn ring() -> MutexGuard<'static, Ring> {
    RING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Moves all lines into the answer of a call.
pub(crate) fn drain_into(effects: &mut Effects) {
    let (lines, dropped) = drain();
    effects.log.extend(lines.into_iter().map(|line| {
        let level = match line.severity {
            Severity::Error => LogLevel::Error,
            Severity::Warn => LogLevel::Warn,
            Severity::Info => LogLevel::Info,
        };
        (level, line.text)
    }));
    effects.log_dropped = dropped;
}

struct RingSubscriber;

impl Subscriber for RingSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
            && metadata.is_event()
            && metadata.target().starts_with("frazil")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let severity = match *event.metadata().level() {
            Level::ERROR => Severity::Error,
            Level::WARN => Severity::Warn,
            _ => Severity::Info,
        };
        let mut ring = ring();
        if ring.lines.len() >= LINES_MAX {
            ring.dropped += 1;
            WORKER.add(WorkerMetric::LogDropped, 1);
        } else {
            let text = format!("{}{}", text.message, text.fields);
            ring.lines.push_back(Line { severity, text });
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = if field.name() == "message" {
            write!(self.message, "{value}")
        } else {
            write!(self.fields, " {}={value}", field.name())
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_frazil_are_kept_and_foreign_ones_are_not() {
        install();
        tracing::warn!(table = "db.t", rows = 3, "committed");
        tracing::info!(target: "other", "not ours");
        let (lines, dropped) = drain();
        assert_eq!(dropped, 0);
        assert!(lines.contains(&Line {
            severity: Severity::Warn,
            text: "committed table=db.t rows=3".to_owned(),
        }));
        assert!(lines.iter().all(|line| !line.text.contains("not ours")));
    }
}
