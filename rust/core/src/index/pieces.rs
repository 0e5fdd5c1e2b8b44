//! The changes of a commit, piece by piece: of each key all, in the order of the keys.
//!
//! The key runs of a commit's segments are in order, and are read side by side as far as a piece needs. So a
//! commit holds a piece of its changes, however many it has; only changes of one key are never parted.

use super::KeyNumber;
use crate::change::keyrun::KeyRun;
use crate::error::Result;

/// Reads a key run from its beginning to its end.
pub trait MoreChanges {
    /// Adds the next changes to `run`, as many as it reads at a time; `false` when there are none left.
    ///
    /// # Errors
    ///
    /// What is wrong with the run.
    fn more(&mut self, run: &mut KeyRun) -> Result<bool>;
}

/// The key runs of a commit, in the order of their segments.
#[derive(Debug)]
pub struct Pieces<S> {
    runs: Vec<Reading<S>>,
}

/// A run, and what of it was read and not taken.
#[derive(Debug)]
struct Reading<S> {
    source: S,
    run: KeyRun,
    /// The number of its changes that were taken.
    taken: usize,
    /// How many changes came the last time.
    step: usize,
    is_over: bool,
}

impl<S: MoreChanges> Pieces<S> {
    /// Begins to read.
    pub fn new(sources: impl IntoIterator<Item = S>) -> Self {
        let runs = sources.into_iter().map(|source| Reading {
            source,
            run: KeyRun::default(),
            taken: 0,
            step: 0,
            is_over: false,
        });
        Pieces {
            runs: runs.collect(),
        }
    }

    /// Returns the next piece, the changes of each run apart; `None` after the last. All its keys are above
    /// those of the piece before.
    ///
    /// # Errors
    ///
    /// What is wrong with a run.
    pub fn next_piece(&mut self) -> Result<Option<Vec<KeyRun>>> {
        for run in &mut self.runs {
            run.fill()?;
        }
        loop {
            let open = self.runs.iter().filter(|run| !run.is_over);
            // More changes of this key may come.
            let bound = open.filter_map(Reading::last).min();
            let mut piece = Vec::with_capacity(self.runs.len());
            for run in &mut self.runs {
                piece.push(run.take_below(bound)?);
            }
            if piece.iter().any(|run| !run.is_empty()) {
                return Ok(Some(piece));
            }
            let Some(bound) = bound else {
                return Ok(None);
            };
            for run in &mut self.runs {
                if run.last() == Some(bound) {
                    run.grow()?;
                }
            }
        }
    }

    /// Returns the bytes of memory of what was read and not taken.
    pub fn memory_bytes(&self) -> usize {
        self.runs.iter().map(|run| run.run.memory_bytes()).sum()
    }
}

impl<S: MoreChanges> Reading<S> {
    /// Reads on when half was taken. A piece ends with the run whose last key is the least: were each read on
    /// only when it is that one, there would be a piece for every step of every run.
    fn fill(&mut self) -> Result<()> {
        while !self.is_over && 2 * (self.run.len() - self.taken) <= self.step {
            self.grow()?;
        }
        Ok(())
    }

    /// Reads on, and keeps what was not taken.
    fn grow(&mut self) -> Result<()> {
        if self.taken == self.run.len() {
            self.run.clear();
        } else if self.taken > 0 {
            let mut rest = KeyRun::default();
            for change in self.run.changes().iter().skip(self.taken) {
                rest.take(&self.run, change)?;
            }
            self.run = rest;
        }
        self.taken = 0;
        let before = self.run.len();
        self.is_over |= !self.source.more(&mut self.run)?;
        self.step = self.run.len() - before;
        Ok(())
    }

    /// Returns the last key that was read and not taken.
    fn last(&self) -> Option<KeyNumber> {
        let rest = self.run.changes().get(self.taken..)?;
        rest.last().map(|change| change.key)
    }

    /// Takes the changes of keys below `bound`; all of them without one.
    fn take_below(&mut self, bound: Option<KeyNumber>) -> Result<KeyRun> {
        let mut piece = KeyRun::default();
        let rest = self.run.changes().get(self.taken..).unwrap_or_default();
        for change in rest {
            if bound.is_some_and(|bound| change.key >= bound) {
                break;
            }
            piece.take(&self.run, change)?;
        }
        self.taken += piece.len();
        Ok(piece)
    }
}

#[cfg(test)]
#[path = "pieces_tests.rs"]
mod tests;
