//! Which fields of a record a table gets, and which of them only as a hash.

use std::fmt;

use super::reader::Reader;
use super::table::{MetadataColumn, MetadataSource};

/// Letters of a salt that somebody might guess.
const SALT_SHORT: usize = 16;

/// The rules of one table. Paths are names between dots.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ColumnConfig {
    /// The only fields; empty for all.
    pub include: Vec<String>,
    /// Fields that are left out.
    pub exclude: Vec<String>,
    /// Fields that are hashed.
    pub hash: Vec<String>,
    /// What is hashed with them.
    pub salt: HashSalt,
}

/// A secret that is hashed together with each value.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct HashSalt(String);

impl HashSalt {
    /// Makes a salt of `text`.
    pub fn new(text: impl Into<String>) -> Self {
        HashSalt(text.into())
    }

    /// Returns the secret itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for HashSalt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashSalt")
    }
}

impl ColumnConfig {
    /// Tells whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty() && self.hash.is_empty()
    }

    /// Returns why the column `path` is not in the table as a whole, if it is not.
    fn lacks_part(&self, path: &str) -> Option<&'static str> {
        let within = |rules: &[String]| rules.iter().any(|rule| is_within(path, rule));
        match self.include.is_empty() || within(&self.include) {
            true => self.lacks(path),
            false => Some("`columns.include` does not name it"),
        }
    }

    fn excludes(&self, path: &str) -> Option<&'static str> {
        let mut rules = self.exclude.iter();
        rules
            .any(|rule| is_within(path, rule))
            .then_some("`columns.exclude` leaves it out")
    }

    /// Returns why the column `path` cannot be what a table is laid out by, if it cannot.
    fn lacks(&self, path: &str) -> Option<&'static str> {
        if let Some(reason) = self.excludes(path) {
            return Some(reason);
        }
        let within = |rules: &[String]| rules.iter().any(|rule| is_within(path, rule));
        // A path above an included one may still have its fields.
        let above = |rule: &String| is_within(rule, path);
        let included = within(&self.include) || self.include.iter().any(above);
        (!self.include.is_empty() && !included).then_some("`columns.include` leaves it out")
    }
}

/// Tells whether `path` is `rule` or inside of it.
fn is_within(path: &str, rule: &str) -> bool {
    path.strip_prefix(rule)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Reads the rules of the table `name`, which has `beside` the columns of the value.
pub(super) fn read(reader: &mut Reader<'_>, name: &str, beside: &[MetadataColumn]) -> ColumnConfig {
    let mut keys = Vec::with_capacity(3);
    let mut lists = Vec::with_capacity(3);
    for rule in ["include", "exclude", "hash"] {
        let key = reader.own_or(name, &format!("columns.{rule}"), &format!("columns.{rule}"));
        lists.push(read_paths(reader, &key));
        keys.push(key);
    }
    let salt_key = reader.own_or(name, "columns.hash-salt", "columns.hash-salt");
    let mut lists = lists.into_iter();
    let mut next = || lists.next().unwrap_or_default();
    let config = ColumnConfig {
        include: next(),
        exclude: next(),
        hash: next(),
        salt: HashSalt::new(reader.text(&salt_key).unwrap_or_default()),
    };
    let hash_key = keys.last().cloned().unwrap_or_default();
    check_salt(reader, &config, &salt_key);
    for path in &config.hash {
        let is_beside = beside.iter().any(|column| is_within(path, &column.name));
        let reason = match is_beside {
            true => config.excludes(path),
            false => config.lacks_part(path),
        };
        if let Some(reason) = reason {
            reader.error(&hash_key, format!("`{path}` cannot be hashed: {reason}"));
        }
        if let Some(outer) = config
            .hash
            .iter()
            .find(|rule| *rule != path && is_within(path, rule))
        {
            reader.error(
                &hash_key,
                format!("`{path}` is hashed with `{outer}` already; drop it"),
            );
        }
    }
    config
}

/// Returns those of `columns`, which are not made of the value, that the rules leave to the table
/// `name`, and complains about rules that cannot be kept.
pub(super) fn metadata_left(
    reader: &mut Reader<'_>,
    name: &str,
    config: &ColumnConfig,
    mut columns: Vec<MetadataColumn>,
    case_insensitive: bool,
) -> Vec<MetadataColumn> {
    let folded = |text: &str| match case_insensitive {
        true => text.to_lowercase(),
        false => text.to_owned(),
    };
    let is_named = |rules: &[String], column: &MetadataColumn| {
        let name = folded(&column.name);
        rules.iter().any(|rule| folded(rule) == name)
    };
    columns.retain(|column| !is_named(&config.exclude, column));
    let is_key_field = |column: &MetadataColumn| {
        let MetadataSource::KeyField(path) = &column.source else {
            return None;
        };
        Some((folded(path), column.name.clone()))
    };
    let exclude_key = reader.own_or(name, "columns.exclude", "columns.exclude");
    for (path, column) in columns.iter().filter_map(is_key_field) {
        let mut rules = config.exclude.iter();
        if rules.any(|rule| is_within(&path, &folded(rule))) {
            reader.error(
                &exclude_key,
                format!(
                    "leaves `{path}` out, but `key-columns` puts it into column `{column}`: leave \
                     that column out too, or take it out of `key-columns`"
                ),
            );
        }
    }
    let takes_fields = columns.iter().any(|column| is_key_field(column).is_some());
    let hash_key = reader.own_or(name, "columns.hash", "columns.hash");
    for column in columns
        .iter()
        .filter(|column| is_named(&config.hash, column))
    {
        let reason = match &column.source {
            MetadataSource::KeyField(_) => continue,
            MetadataSource::Key if !takes_fields => continue,
            MetadataSource::Key => "beside `key-columns`, name fields of it, or leave it out",
            MetadataSource::Headers => "name one header, as in `_headers.NAME`, or leave it out",
            _ => "it only says where the record stands; leave it out if need be",
        };
        reader.error(
            &hash_key,
            format!("`{}` cannot be hashed: {reason}", column.name),
        );
    }
    columns
}

fn check_salt(reader: &mut Reader<'_>, config: &ColumnConfig, key: &str) {
    let length = config.salt.expose().chars().count();
    match (config.hash.is_empty(), length) {
        (false, 0) => reader.error(
            key,
            "missing: without a salt, a hash of a short value is as good as the value; use at \
             least 16 random letters",
        ),
        (false, 1..SALT_SHORT) => reader.warn(
            key,
            "shorter than 16 letters: who guesses it can find short values by trying",
        ),
        _ => {}
    }
}

/// Refuses to lay a table out by a column that its rules leave out or hash away.
pub(super) fn check_layout<'p>(
    reader: &mut Reader<'_>,
    key: &str,
    config: &ColumnConfig,
    paths: impl Iterator<Item = &'p str>,
) {
    for path in paths {
        if let Some(reason) = config.lacks(path) {
            reader.error(key, format!("names column `{path}`, but {reason}"));
        }
    }
}

fn read_paths(reader: &mut Reader<'_>, key: &str) -> Vec<String> {
    let paths = reader.list(key);
    for path in &paths {
        if path.split('.').any(str::is_empty) {
            reader.error(key, format!("`{path}` has an empty name beside a dot"));
        } else if path.chars().any(char::is_control) {
            reader.error(key, "a path has a control character in it");
        }
    }
    paths
}
