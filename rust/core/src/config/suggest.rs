//! The nearest known name for a mistyped key.

use std::collections::BTreeSet;

use super::keys::{self, Key, PASSED_PREFIXES};

/// Letters of a short word that may differ before another word was meant.
const EDITS_MAX: usize = 2;

/// Letters of a word that is compared with others: nobody mistypes a longer one.
const WORD_MAX: usize = 256;

/// Returns the known key nearest to `name`, or `None` when nothing is near enough to be meant.
/// `tables` are the configured table names, which per-table keys contain.
pub(super) fn nearest_key(name: &str, tables: &[String]) -> Option<String> {
    let candidates: BTreeSet<String> = keys::all()
        .flat_map(|key| spellings(key, name, tables))
        .collect();
    nearest(
        name,
        candidates.iter().map(String::as_str),
        name.chars().count() / 3,
    )
}

/// Returns the known key below the same prefix as the passed key `name`, when it is only a slip of
/// the pen away.
pub(super) fn nearest_passed(name: &str) -> Option<String> {
    let candidates = keys::all()
        .map(|key| key.name)
        .filter(|known| !known.ends_with('*') && keys::is_passed(known));
    nearest(name, candidates, EDITS_MAX)
}

/// Returns the candidate nearest to `word` that differs in at most `edits_max` letters.
pub fn nearest<'a>(
    word: &str,
    candidates: impl Iterator<Item = &'a str>,
    edits_max: usize,
) -> Option<String> {
    if word.len() > WORD_MAX {
        return None;
    }
    candidates
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(edits, _)| *edits <= edits_max.max(EDITS_MAX))
        // A name that was only not written to its end is meant before one that looks like it.
        .min_by_key(|(edits, candidate)| (!candidate.starts_with(word), *edits, *candidate))
        .map(|(_, candidate)| candidate.to_owned())
}

/// Lists the ways to write `key` that `typed` may have meant.
fn spellings(key: &Key, typed: &str, tables: &[String]) -> Vec<String> {
    if let Some((before, after)) = key.name.split_once("<name>") {
        if after.ends_with('*') {
            return Vec::new();
        }
        return tables
            .iter()
            .map(|table| format!("{before}{table}{after}"))
            .collect();
    }
    match key.name.strip_suffix('*') {
        None => vec![key.name.to_owned()],
        Some(prefix) if PASSED_PREFIXES.contains(&prefix) => {
            let depth = prefix.matches('.').count();
            let (mut head, mut rest) = (String::new(), String::new());
            for (index, part) in typed.split_inclusive('.').enumerate() {
                if index < depth { &mut head } else { &mut rest }.push_str(part);
            }
            // Whoever wrote another known prefix did not mean this one.
            if rest.is_empty() || distance(&head, prefix) > EDITS_MAX {
                return Vec::new();
            }
            vec![format!("{prefix}{rest}")]
        }
        Some(_) => Vec::new(),
    }
}

/// Returns how many letters have to be added, dropped, replaced or swapped with their neighbour to
/// turn `left` into `right`.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    let mut previous_letter = None;
    for (row, letter) in left.chars().enumerate() {
        let mut current = vec![row + 1];
        for (column, other) in right.iter().enumerate() {
            let at = |line: &[usize], index: usize| line.get(index).copied().unwrap_or(usize::MAX);
            let replaced = at(&last, column).saturating_add(usize::from(letter != *other));
            let dropped = at(&last, column + 1).saturating_add(1);
            let added = at(&current, column).saturating_add(1);
            let mut best = replaced.min(dropped).min(added);
            let before = column.checked_sub(1).and_then(|index| right.get(index));
            if previous_letter == Some(*other) && before == Some(&letter) {
                best = best.min(at(&before_last, column - 1).saturating_add(1));
            }
            current.push(best);
        }
        before_last = std::mem::replace(&mut last, current);
        previous_letter = Some(letter);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_counts_edits_and_swaps() {
        for (left, right, expected) in [
            ("", "", 0),
            ("abc", "abc", 0),
            ("abc", "", 3),
            ("", "abc", 3),
            ("abc", "acb", 1),
            ("kitten", "sitting", 3),
            ("ü", "u", 1),
        ] {
            assert_eq!(distance(left, right), expected, "{left} {right}");
            assert_eq!(distance(right, left), expected, "{right} {left}");
        }
    }

    #[test]
    fn the_nearest_key_is_the_one_that_was_meant() {
        let tables = vec!["db.orders".to_owned()];
        for (typed, meant) in [
            ("iceberg.table", "iceberg.tables"),
            ("iceberg.tabels", "iceberg.tables"),
            (
                "iceberg.tables.auto-create",
                "iceberg.tables.auto-create-enabled",
            ),
            (
                "iceberg.tables.evolve-schema",
                "iceberg.tables.evolve-schema-mode",
            ),
            (
                "iceberg.tables.partition-by",
                "iceberg.tables.default-partition-by",
            ),
            (
                "iceberg.control.commit-interval-ms",
                "iceberg.control.commit.interval-ms",
            ),
            ("iceberg.catlog.uri", "iceberg.catalog.uri"),
            (
                "iceberg.catalogs.some.own.thing",
                "iceberg.catalog.some.own.thing",
            ),
            (
                "iceberg.kafak.bootstrap.servers",
                "iceberg.kafka.bootstrap.servers",
            ),
            (
                "iceberg.table.write-props.write.parquet.page-size-bytes",
                "iceberg.tables.write-props.write.parquet.page-size-bytes",
            ),
            (
                "iceberg.table.db.orders.partition-bye",
                "iceberg.table.db.orders.partition-by",
            ),
            ("frazil.memory.max-bytes", "frazil.memory.max.bytes"),
        ] {
            assert_eq!(
                nearest_key(typed, &tables).as_deref(),
                Some(meant),
                "{typed}"
            );
        }
        assert_eq!(nearest_key("iceberg.zzzzzzzzzzzzzzzzzzzz", &tables), None);
        assert_eq!(
            nearest_key(&format!("iceberg.{}", "z".repeat(300)), &tables),
            None
        );
    }

    #[test]
    fn a_slip_in_a_passed_key_is_noticed_and_a_new_property_is_not() {
        assert_eq!(
            nearest_passed("iceberg.catalog.warehuose").as_deref(),
            Some("iceberg.catalog.warehouse")
        );
        assert_eq!(nearest_passed("iceberg.catalog.cache-enabled"), None);
    }
}
