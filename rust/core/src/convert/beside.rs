//! Column rules on what comes with a value: keys and headers that become columns.
//!
//! A rule that names such a column, or a path inside of it, is a rule for the part of the key or the
//! header that the column shows. A rule that names a field of the value holds for the field of the
//! same path in the key, and for the header of the same name: what a table shall not get is not in
//! it by another way. Columns that are left out whole are none of the table's (`config::columns`).

use super::columns::{Node, folded};
use crate::config::{ColumnConfig, MetadataColumn, MetadataSource};

/// What is done to keys.
#[derive(Debug, Clone)]
pub(super) enum KeyRule {
    Hash,
    /// What is in them is judged; what no rule names stays.
    Inside(Node),
}

/// Returns what is done to keys; `None` when no column is made of them.
pub(super) fn of_keys(
    config: &ColumnConfig,
    columns: &[MetadataColumn],
    case_insensitive: bool,
) -> Option<KeyRule> {
    let is_key = |column: &&MetadataColumn| {
        matches!(
            column.source,
            MetadataSource::Key | MetadataSource::KeyField(_)
        )
    };
    let columns: Vec<&MetadataColumn> = columns.iter().filter(is_key).collect();
    if columns.is_empty() {
        return None;
    }
    let mut root = Node::default();
    for (path, rule) in rules(config) {
        rule(&mut root, path, case_insensitive);
        for column in &columns {
            let Some(rest) = below(path, &column.name, case_insensitive) else {
                continue;
            };
            let inside = match (&column.source, rest.as_str()) {
                (MetadataSource::KeyField(field), "") => field.clone(),
                (MetadataSource::KeyField(field), rest) => format!("{field}.{rest}"),
                // Left out whole, it would be no column.
                (_, "") => return Some(KeyRule::Hash),
                (_, rest) => rest.to_owned(),
            };
            rule(&mut root, &inside, case_insensitive);
        }
    }
    (!root.is_empty()).then_some(KeyRule::Inside(root))
}

/// Returns what is done to headers, by their names; `None` when no column is made of them.
pub(super) fn of_headers(
    config: &ColumnConfig,
    columns: &[MetadataColumn],
    case_insensitive: bool,
) -> Option<Node> {
    let column = columns
        .iter()
        .find(|column| column.source == MetadataSource::Headers)?;
    let mut root = Node::default();
    for (path, rule) in rules(config) {
        rule(&mut root, path, case_insensitive);
        let rest = below(path, &column.name, case_insensitive);
        if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
            rule(&mut root, &rest, case_insensitive);
        }
    }
    (!root.is_empty()).then_some(root)
}

type Rule = fn(&mut Node, &str, bool);

/// Returns the paths that are left out or hashed, each with what makes the rule.
fn rules(config: &ColumnConfig) -> impl Iterator<Item = (&str, Rule)> {
    let left_out = config.exclude.iter().map(|path| {
        let rule: Rule = Node::leave_out;
        (path.as_str(), rule)
    });
    let hashed = config.hash.iter().map(|path| {
        let rule: Rule = Node::hash;
        (path.as_str(), rule)
    });
    left_out.chain(hashed)
}

/// Returns how `path` goes on below the column `name`, nothing when it ends there.
fn below(path: &str, name: &str, case_insensitive: bool) -> Option<String> {
    let (path, name) = (
        folded(path, case_insensitive),
        folded(name, case_insensitive),
    );
    match path.strip_prefix(&name)? {
        "" => Some(String::new()),
        rest => rest.strip_prefix('.').map(str::to_owned),
    }
}

#[cfg(test)]
#[path = "beside_tests.rs"]
mod tests;
