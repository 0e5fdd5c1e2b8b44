//! Which fields of a record a table gets, and which of them only as a hash.

use std::fmt;

use super::reader::Reader;

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

    /// Returns why the column `path` cannot be what a table is laid out by, if it cannot.
    fn lacks(&self, path: &str) -> Option<&'static str> {
        let within = |rules: &[String]| rules.iter().any(|rule| is_within(path, rule));
        if within(&self.exclude) {
            return Some("`columns.exclude` leaves it out");
        }
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

/// Reads the rules of the table `name`.
pub(super) fn read(reader: &mut Reader<'_>, name: &str) -> ColumnConfig {
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
        if let Some(reason) = config.lacks_part(path) {
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
