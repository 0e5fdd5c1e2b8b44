//! How a table's files are partitioned and sorted, and where a new table lies.

use std::collections::BTreeMap;

use super::columns::check_layout;
use super::reader::Reader;
use super::sort::{self, SortTerm};
use super::table::TableConfig;

/// The property that holds a table's comment.
const COMMENT: &str = "comment";

/// What is configured about the layout of one table, its partitioning aside.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LayoutConfig {
    /// How rows are sorted within files; empty when nothing is said about it.
    pub sort_by: Vec<SortTerm>,
    /// What happens when the table is partitioned otherwise than configured.
    pub spec_policy: SpecPolicy,
    /// Where the table goes when it is created.
    pub location: Option<String>,
}

/// What happens when a table is partitioned otherwise than configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SpecPolicy {
    /// The table's own partitioning is used.
    #[default]
    Keep,
    /// The table gets the configured partitioning for new files.
    Evolve,
    /// The task does not start.
    Fail,
}

/// Reads the layout of the table `name`.
pub(super) fn read(reader: &mut Reader<'_>, name: &str) -> LayoutConfig {
    let sort_key = reader.own_or(name, "sort-by", "default-sort-by");
    let sort_by = match sort::parse(reader.word(&sort_key).unwrap_or_default()) {
        Ok(terms) => terms,
        Err(reason) => {
            reader.error(&sort_key, reason);
            Vec::new()
        }
    };
    let policy = reader.own_or(name, "partition-spec-policy", "partition-spec-policy");
    let policy = reader
        .word(&policy)
        .unwrap_or_default()
        .to_ascii_lowercase();
    LayoutConfig {
        sort_by,
        spec_policy: match policy.as_str() {
            "evolve" => SpecPolicy::Evolve,
            "fail" => SpecPolicy::Fail,
            _ => SpecPolicy::Keep,
        },
        location: read_location(reader, name),
    }
}

fn read_location(reader: &mut Reader<'_>, name: &str) -> Option<String> {
    let key = format!("iceberg.table.{name}.location");
    let location = reader.word(&key)?.trim_end_matches('/').to_owned();
    let scheme = location.split_once(':').map(|(scheme, _)| scheme);
    let is_uri = scheme.is_some_and(|scheme| {
        scheme.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter))
    });
    if !is_uri
        || location
            .chars()
            .any(|letter| letter.is_control() || letter == ' ')
    {
        reader.error(&key, "must be a URI, such as `s3://bucket/path/of/table`");
        return None;
    }
    Some(location)
}

/// Reads the properties of `family` for the table `name`: its own laid over those for all tables.
pub(super) fn properties(
    reader: &Reader<'_>,
    name: &str,
    family: &str,
) -> BTreeMap<String, String> {
    let mut properties = reader.below(&format!("iceberg.tables.{family}."));
    properties.extend(reader.below(&format!("iceberg.table.{name}.{family}.")));
    properties
}

/// Reads the properties of the table `name` when it is created, its comment among them.
pub(super) fn auto_create_props(reader: &Reader<'_>, name: &str) -> BTreeMap<String, String> {
    let mut properties = properties(reader, name, "auto-create-props");
    if let Some(comment) = reader.word(&format!("iceberg.table.{name}.comment")) {
        properties.insert(COMMENT.to_owned(), comment.to_owned());
    }
    properties
}

/// Checks that no column rule takes away what a table is laid out by.
pub(super) fn check_columns(reader: &mut Reader<'_>, config: &TableConfig) {
    let name = &config.name;
    let columns = &config.columns;
    let key = reader.own_or(name, "id-columns", "default-id-columns");
    let paths = config.id_columns.iter().map(String::as_str);
    check_layout(reader, &key, columns, paths);
    let key = reader.own_or(name, "partition-by", "default-partition-by");
    let paths = config.partition_by.iter().map(|term| term.column.as_str());
    check_layout(reader, &key, columns, paths);
    let key = reader.own_or(name, "sort-by", "default-sort-by");
    let paths = config
        .layout
        .sort_by
        .iter()
        .map(|term| term.column.as_str());
    check_layout(reader, &key, columns, paths);
}
