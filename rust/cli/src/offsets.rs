//! The pure half of `frazil verify`: offsets seen against offsets expected.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// A topic and partition.
pub(crate) type Source = (String, i32);

/// What the rows of a table say about their origin.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    offsets: BTreeMap<Source, Vec<i64>>,
}

/// What is wrong with one partition.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) source: Source,
    pub(crate) rows: usize,
    /// The next offset of the table's state, when the table has one for this partition.
    pub(crate) durable: Option<i64>,
    /// Offsets that stand in more than one row, each with the number of surplus rows.
    pub(crate) doubled: Vec<(i64, usize)>,
    /// Offsets below the last row, or within what was expected, that stand in no row.
    pub(crate) missing: Vec<Range<i64>>,
    /// Rows at or beyond the table's state.
    pub(crate) beyond_state: usize,
    /// Whether the missing offsets were expected to be there.
    pub(crate) expected: bool,
}

impl Finding {
    /// Tells whether this partition breaks the promise.
    pub(crate) fn is_bad(&self) -> bool {
        !self.doubled.is_empty()
            || self.beyond_state > 0
            || (self.expected && !self.missing.is_empty())
    }
}

impl Seen {
    /// Adds a row.
    pub(crate) fn add(&mut self, topic: &str, partition: i32, offset: i64) {
        match self.offsets.get_mut(&(topic.to_owned(), partition)) {
            Some(offsets) => offsets.push(offset),
            None => {
                self.offsets
                    .insert((topic.to_owned(), partition), vec![offset]);
            }
        }
    }

    /// Compares with what the topic holds and with the state that the table keeps.
    pub(crate) fn compare(
        mut self,
        expected: &BTreeMap<Source, Range<i64>>,
        durable: &BTreeMap<Source, i64>,
    ) -> Vec<Finding> {
        for source in expected.keys() {
            self.offsets.entry(source.clone()).or_default();
        }
        self.offsets
            .into_iter()
            .map(|(source, offsets)| {
                let (expected, durable) = (expected.get(&source), durable.get(&source));
                judge(source, offsets, expected, durable.copied())
            })
            .collect()
    }
}

fn judge(
    source: Source,
    mut offsets: Vec<i64>,
    expected: Option<&Range<i64>>,
    durable: Option<i64>,
) -> Finding {
    offsets.sort_unstable();
    let mut doubled: Vec<(i64, usize)> = Vec::new();
    let mut missing = Vec::new();
    let mut next = expected.map(|range| range.start);
    for offset in &offsets {
        match next {
            Some(expect) if *offset < expect => match doubled.last_mut() {
                _ if *offset != expect - 1 => {}
                Some((last, surplus)) if *last == *offset => *surplus += 1,
                _ => doubled.push((*offset, 1)),
            },
            Some(expect) if *offset > expect => {
                missing.push(expect..*offset);
                next = Some(offset + 1);
            }
            _ => next = Some(offset + 1),
        }
    }
    if let (Some(range), Some(next)) = (expected, next)
        && next < range.end
    {
        missing.push(next..range.end);
    }
    let beyond_state = durable.map_or(0, |durable| {
        offsets.iter().filter(|offset| **offset >= durable).count()
    });
    Finding {
        source,
        rows: offsets.len(),
        durable,
        doubled,
        missing,
        beyond_state,
        expected: expected.is_some(),
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (topic, partition) = &self.source;
        let verdict = if self.is_bad() { "BAD " } else { "ok  " };
        write!(f, "{verdict} {topic}-{partition}: {} rows", self.rows)?;
        if let Some(durable) = self.durable {
            write!(f, ", state says next offset {durable}")?;
        }
        let surplus: usize = self.doubled.iter().map(|(_, surplus)| surplus).sum();
        if let Some((first, _)) = self.doubled.first() {
            write!(f, ", {surplus} rows twice (first offset {first})")?;
        }
        if self.beyond_state > 0 {
            write!(f, ", {} rows beyond the state", self.beyond_state)?;
        }
        let absent: i64 = self
            .missing
            .iter()
            .map(|range| range.end - range.start)
            .sum();
        if let Some(first) = self.missing.first() {
            write!(
                f,
                ", {absent} offsets in no row in {} gaps (first {}..{})",
                self.missing.len(),
                first.start,
                first.end
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(offsets: &[i64], expected: Option<Range<i64>>, durable: Option<i64>) -> Finding {
        let mut seen = Seen::default();
        for offset in offsets {
            seen.add("t", 0, *offset);
        }
        let source = ("t".to_owned(), 0);
        let expected = expected
            .map(|range| (source.clone(), range))
            .into_iter()
            .collect();
        let durable = durable
            .map(|offset| (source.clone(), offset))
            .into_iter()
            .collect();
        seen.compare(&expected, &durable)
            .pop()
            .expect("one partition")
    }

    #[test]
    fn a_complete_partition_is_well() {
        let finding = compare(&[2, 0, 1], Some(0..3), Some(3));
        assert!(!finding.is_bad());
        assert_eq!(finding.rows, 3);
    }

    #[test]
    fn doubled_rows_are_counted_once_per_surplus() {
        let finding = compare(&[0, 1, 1, 1, 2, 2], Some(0..3), None);
        assert!(finding.is_bad());
        assert_eq!(finding.doubled, vec![(1, 2), (2, 1)]);
        assert!(finding.missing.is_empty());
    }

    #[test]
    fn expected_offsets_that_are_missing_are_bad_at_both_ends() {
        let finding = compare(&[2, 3, 6], Some(0..9), None);
        assert!(finding.is_bad());
        assert_eq!(finding.missing, vec![0..2, 4..6, 7..9]);
        let nothing = compare(&[], Some(0..2), None);
        assert_eq!(nothing.missing, vec![0..2]);
    }

    #[test]
    fn gaps_that_nobody_expected_filled_are_only_told() {
        let finding = compare(&[5, 9], None, Some(10));
        assert!(!finding.is_bad());
        assert_eq!(finding.missing, vec![6..9]);
    }

    #[test]
    fn rows_beyond_the_state_are_bad() {
        assert_eq!(compare(&[0, 1, 2], None, Some(2)).beyond_state, 1);
        assert!(compare(&[0, 1, 2], None, Some(2)).is_bad());
    }

    #[test]
    fn the_report_names_the_first_offender() {
        let finding = compare(&[0, 0, 3], Some(0..4), Some(4));
        assert_eq!(
            finding.to_string(),
            "BAD  t-0: 3 rows, state says next offset 4, 1 rows twice (first offset 0), \
             2 offsets in no row in 1 gaps (first 1..3)"
        );
    }
}
