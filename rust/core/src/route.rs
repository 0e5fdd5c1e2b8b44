//! Which tables a record goes to.
//!
//! Invariant: routing is a pure function of the record and the configuration, never of the time, of
//! chance or of a look-up. A record that is delivered again takes the same way, and that is what
//! lets a table tell by its offsets that it has the record already.

use crate::config::SinkConfig;

/// The static route: every record goes to every table of `iceberg.tables`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaticRoute {
    table_count: usize,
}

impl StaticRoute {
    /// Creates the route of `config`.
    pub fn new(config: &SinkConfig) -> Self {
        StaticRoute {
            table_count: config.tables.len(),
        }
    }

    /// Returns, for each table by its index in [`SinkConfig::tables`], which of `rows` go there.
    pub fn split(self, rows: &[u32]) -> impl Iterator<Item = (usize, &[u32])> {
        (0..self.table_count).map(move |table| (table, rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_goes_to_every_table() {
        let route = StaticRoute { table_count: 2 };
        let split: Vec<_> = route.split(&[0, 2]).collect();
        assert_eq!(split, [(0, &[0, 2][..]), (1, &[0, 2][..])]);
    }
}
