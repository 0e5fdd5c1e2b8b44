//! Which tables a record goes to.
//!
//! `source` finds the text that a record is routed by, `pattern` matches it as Java would, `names`
//! makes a table's name of it; [`RoutePlan`] is the whole of what the configuration says, and a
//! [`Router`] applies it to the rows of frames.
//!
//! Invariant: each row that goes in comes out, in at least one group or with the reason why not. A
//! record that has no table is an error of the record unless the configuration says that such
//! records are dropped, and then it is counted.

pub mod names;
pub mod pattern;
mod router;
pub mod source;
#[cfg(test)]
mod tests;

pub use names::{AllowList, NameCase, NameDots, NameRules, Piece};
pub use pattern::Pattern;
pub use router::{Group, NamedTable, Routed, Router, To};
pub use source::RouteSource;

use iceberg::TableIdent;

/// What decides about the tables of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Targets {
    /// Every record goes to every table.
    All,
    /// The record goes to each table whose pattern its text matches; a table without a pattern gets
    /// nothing.
    Matching {
        /// The text.
        source: RouteSource,
        /// The patterns, in the order of the tables.
        patterns: Vec<Option<Pattern>>,
    },
    /// The record names its table.
    Named(NameRules),
}

/// What becomes of a record that has no table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unmatched {
    /// It is an error of the record, which goes to the dead letter queue or stops the task.
    #[default]
    Fail,
    /// It is dropped, and counted.
    Drop,
}

/// What the configuration says about routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutePlan {
    /// Where records go.
    pub targets: Targets,
    /// Records that go nowhere.
    pub unmatched: Unmatched,
    /// Tables that records may name, at most, in one process.
    pub tables_max: usize,
}

impl RoutePlan {
    /// Returns how records name their tables, when they do.
    pub fn names(&self) -> Option<&NameRules> {
        match &self.targets {
            Targets::Named(rules) => Some(rules),
            Targets::All | Targets::Matching { .. } => None,
        }
    }

    /// Tells whether records may name `ident`.
    pub fn allows(&self, ident: &TableIdent) -> bool {
        self.names().is_some_and(|rules| rules.allows(ident))
    }

    /// Returns the levels of the namespaces that tables named by records lie in or below; no levels
    /// for the whole catalog.
    pub fn namespaces(&self) -> Vec<Vec<String>> {
        let Some(rules) = self.names() else {
            return Vec::new();
        };
        let mut below: Vec<Vec<String>> = match &rules.allowed {
            Some(list) => list.namespaces().map(<[String]>::to_vec).collect(),
            None => vec![rules.common_namespace()],
        };
        below.sort();
        below.dedup();
        let all = below.clone();
        // One that lies in another is listed with it.
        below.retain(|levels| {
            !all.iter()
                .any(|other| other != levels && levels.starts_with(other))
        });
        below
    }

    /// Tells whether any source of a route is as `asked`.
    pub fn needs(&self, asked: impl Fn(&RouteSource) -> bool) -> bool {
        match &self.targets {
            Targets::All => false,
            Targets::Matching { source, .. } => asked(source),
            Targets::Named(rules) => rules.sources().any(asked),
        }
    }
}
