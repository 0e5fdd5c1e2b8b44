//! The one table of keys: everything else about keys (the parser's checks, the defaults, Java's
//! `ConfigDef`, `docs/configs.md`) is read from it.

use self::Importance::Low;

mod catalog;
mod changes;
mod formats;
mod framework;
mod layout;
mod legacy;
mod maintenance;
mod passed;
mod process;
mod registry;
mod tables;

pub(crate) use legacy::renamed;

/// The type of a key's value, by Connect's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyType {
    /// Any text.
    String,
    /// Texts between commas.
    List,
    /// `true` or `false`.
    Boolean,
    /// A 32-bit whole number.
    Int,
    /// A 64-bit whole number.
    Long,
    /// A text that is never shown.
    Password,
}

/// How much a key matters, by Connect's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Importance {
    /// Most connectors set it.
    High,
    /// Some do.
    Medium,
    /// Few do.
    Low,
}

/// Who a key belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyClass {
    /// It has a meaning in Frazil.
    Own,
    /// It goes on to the catalog, the storage, the Kafka clients or the tables.
    Passed,
    /// It belongs to the Apache sink and means nothing here: accepted with a warning.
    Inert,
    /// Another sink's name: read under ours with a warning, or refused.
    Legacy,
    /// It belongs to Connect itself, which also checks it.
    Framework,
}

/// Which values a key takes beyond its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// All values of its type.
    Any,
    /// Whole numbers from the first to the second.
    Range(i64, i64),
    /// One of these words in any case; `note` says why others that exist elsewhere are refused.
    OneOf {
        /// The words, in lower case.
        words: &'static [&'static str],
        /// Why not others; may be empty.
        note: &'static str,
    },
    /// The key is known and not supported: setting it is an error with this reason. A BOOLEAN may
    /// be set to `false`.
    Refused(&'static str),
    /// The key is read under this name.
    Renamed(&'static str),
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// The name. `<name>` stands for a table's name; a `*` at the end for any rest.
    pub name: &'static str,
    /// The type of the value.
    pub kind: KeyType,
    /// The value when the key is not set; `None` is "not set".
    pub default: Option<&'static str>,
    /// How much it matters.
    pub importance: Importance,
    /// Who it belongs to.
    pub class: KeyClass,
    /// Which values it takes.
    pub check: Check,
    /// What it means.
    pub doc: &'static str,
    /// The key, and the words of it, with which this key has a meaning: what a form need not show
    /// otherwise.
    pub when: Option<(&'static str, &'static [&'static str])>,
}

/// A part of the table under one heading.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    /// The heading in the documentation.
    pub title: &'static str,
    /// What the group has in common.
    pub intro: &'static str,
    /// Its rows.
    pub keys: &'static [Key],
}

/// The whole table, in the order of the documentation.
pub const GROUPS: &[Group] = &[
    tables::DEFAULTS,
    tables::ROUTING,
    tables::PER_TABLE,
    changes::CHANGES,
    layout::LAYOUT,
    layout::COLUMNS,
    tables::CONTROL,
    maintenance::MAINTENANCE,
    catalog::CATALOG,
    catalog::STORAGE,
    passed::TABLE_PROPERTIES,
    passed::KAFKA,
    registry::REGISTRY,
    formats::DECODING,
    process::PROCESS,
    process::INTERNAL,
    process::INERT,
    legacy::LEGACY,
    framework::FRAMEWORK,
];

/// The prefixes below which any key is passed on.
pub const PASSED_PREFIXES: &[&str] = &[
    "iceberg.catalog.",
    "iceberg.kafka.",
    "iceberg.tables.auto-create-props.",
    "iceberg.tables.write-props.",
];

/// A key of the table that a submitted name matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Match<'a> {
    /// The row.
    pub key: &'static Key,
    /// What stands in place of `<name>`.
    pub table: Option<&'a str>,
}

impl Match<'_> {
    /// Tells whether only the prefix is known, so that the meaning is the receiver's alone.
    pub fn is_only_prefix(&self) -> bool {
        self.key
            .name
            .strip_suffix('*')
            .is_some_and(|prefix| PASSED_PREFIXES.contains(&prefix))
    }
}

/// Returns all rows.
pub fn all() -> impl Iterator<Item = &'static Key> {
    GROUPS.iter().flat_map(|group| group.keys)
}

/// The families of properties that one table may have of its own.
const OWN_PROPERTIES: [&str; 2] = ["auto-create-props.", "write-props."];

/// Returns table, family and property of a key below `iceberg.table.<name>.auto-create-props.` or
/// `iceberg.table.<name>.write-props.`.
pub(super) fn own_property(name: &str) -> Option<(&str, &'static str, &str)> {
    let rest = name.strip_prefix("iceberg.table.")?;
    OWN_PROPERTIES.into_iter().find_map(|family| {
        let (table, property) = rest.split_once(&format!(".{family}"))?;
        let is_whole = !table.is_empty() && !property.is_empty() && property != "*";
        is_whole.then_some((table, family, property))
    })
}

/// Finds the row for a submitted `name`: the row of that very name, else the per-table key, else
/// the longest prefix. A property for one table is judged by the row of that for all tables.
pub fn find(name: &str) -> Option<Match<'_>> {
    if let Some((table, family, property)) = own_property(name) {
        let common = format!("iceberg.tables.{family}{property}");
        let key = find(&common)?.key;
        return Some(Match {
            key,
            table: Some(table),
        });
    }
    if let Some(key) = all().find(|key| key.name == name && !key.name.contains(['*', '<'])) {
        return Some(Match { key, table: None });
    }
    for key in all() {
        if let Some(table) = table_of(key, name) {
            return Some(Match {
                key,
                table: Some(table),
            });
        }
    }
    all()
        .filter_map(|key| Some((key.name.strip_suffix('*')?, key)))
        .filter(|(prefix, _)| name.len() > prefix.len() && name.starts_with(prefix))
        .max_by_key(|(prefix, _)| prefix.len())
        .map(|(_, key)| Match { key, table: None })
}

/// Tells whether a key of this name is passed on.
pub fn is_passed(name: &str) -> bool {
    PASSED_PREFIXES
        .iter()
        .any(|prefix| name.len() > prefix.len() && name.starts_with(prefix))
}

/// Returns what stands for `<name>` when `name` is a spelling of the per-table `key`.
fn table_of<'a>(key: &Key, name: &'a str) -> Option<&'a str> {
    let (before, after) = key.name.split_once("<name>")?;
    let table = name.strip_prefix(before)?.strip_suffix(after)?;
    (!table.is_empty()).then_some(table)
}

impl Key {
    const fn new(name: &'static str, kind: KeyType, class: KeyClass, doc: &'static str) -> Self {
        Key {
            name,
            kind,
            default: None,
            importance: Low,
            class,
            check: Check::Any,
            doc,
            when: None,
        }
    }

    const fn own(name: &'static str, kind: KeyType, doc: &'static str) -> Self {
        Self::new(name, kind, KeyClass::Own, doc)
    }

    const fn passed(name: &'static str, kind: KeyType, doc: &'static str) -> Self {
        Self::new(name, kind, KeyClass::Passed, doc)
    }

    const fn inert(name: &'static str, kind: KeyType, doc: &'static str) -> Self {
        Self::new(name, kind, KeyClass::Inert, doc)
    }

    const fn framework(name: &'static str, kind: KeyType, doc: &'static str) -> Self {
        Self::new(name, kind, KeyClass::Framework, doc)
    }

    const fn legacy(
        name: &'static str,
        kind: KeyType,
        meant: &'static str,
        doc: &'static str,
    ) -> Self {
        let mut key = Self::new(name, kind, KeyClass::Legacy, doc);
        key.check = Check::Renamed(meant);
        key
    }

    const fn foreign(name: &'static str, kind: KeyType, reason: &'static str) -> Self {
        Self::new(name, kind, KeyClass::Legacy, "A setting of Hadoop.").refused(reason)
    }

    /// Returns the name under which the key is read.
    pub fn renamed(&self) -> Option<&'static str> {
        match self.check {
            Check::Renamed(meant) => Some(meant),
            _ => None,
        }
    }

    /// Returns the words that the key takes, when there are only some.
    pub fn words(&self) -> &'static [&'static str] {
        match (self.check, self.kind) {
            (Check::OneOf { words, .. }, _) => words,
            (Check::Refused(_), KeyType::Boolean) => &["false"],
            (_, KeyType::Boolean) => &["true", "false"],
            _ => &[],
        }
    }

    const fn when(mut self, key: &'static str, words: &'static [&'static str]) -> Self {
        self.when = Some((key, words));
        self
    }

    const fn or(mut self, default: &'static str) -> Self {
        self.default = Some(default);
        self
    }

    const fn high(mut self) -> Self {
        self.importance = Importance::High;
        self
    }

    const fn medium(mut self) -> Self {
        self.importance = Importance::Medium;
        self
    }

    const fn within(mut self, least: i64, most: i64) -> Self {
        self.check = Check::Range(least, most);
        self
    }

    const fn one_of(mut self, words: &'static [&'static str], note: &'static str) -> Self {
        self.check = Check::OneOf { words, note };
        self
    }

    const fn refused(mut self, reason: &'static str) -> Self {
        self.check = Check::Refused(reason);
        self
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::secret::is_secret_key;

    #[test]
    fn names_are_unique_and_documented() {
        let mut seen = BTreeSet::new();
        for key in all() {
            assert!(seen.insert(key.name), "{} is there twice", key.name);
            assert!(key.doc.ends_with('.'), "{} has no sentence", key.name);
            assert!(!key.doc.contains(['\t', '\n', '|']), "{}", key.name);
            let words = key.words().concat();
            assert!(!words.contains(['\t', ',', '=']), "{}", key.name);
        }
    }

    #[test]
    fn a_key_that_another_one_shows_is_shown_by_a_key_and_words_that_exist() {
        let shown: Vec<_> = all().filter_map(|key| key.when).collect();
        assert!(!shown.is_empty());
        for (other, words) in shown {
            let row = all().find(|key| key.name == other);
            let row = row.unwrap_or_else(|| panic!("{other} is no key"));
            for word in words {
                let known = row.words().is_empty() || row.words().contains(word);
                assert!(known, "{other} is never `{word}`");
            }
        }
    }

    #[test]
    fn the_type_password_and_the_rule_for_secrets_agree() {
        for key in all().filter(|key| key.class != KeyClass::Framework) {
            let typed = key.kind == KeyType::Password;
            let number = matches!(key.kind, KeyType::Boolean | KeyType::Int | KeyType::Long);
            assert!(
                typed == is_secret_key(key.name) || number,
                "{} must be a PASSWORD exactly when its name says so",
                key.name
            );
        }
    }

    #[test]
    fn names_find_their_rows() {
        for (name, row, table) in [
            ("iceberg.tables", Some("iceberg.tables"), None),
            ("iceberg.catalog", Some("iceberg.catalog"), None),
            ("iceberg.catalog.uri", Some("iceberg.catalog.uri"), None),
            (
                "iceberg.catalog.header.x",
                Some("iceberg.catalog.header.*"),
                None,
            ),
            ("iceberg.catalog.whatever", Some("iceberg.catalog.*"), None),
            ("iceberg.catalog.", None, None),
            (
                "iceberg.table.db.t.commit-rows",
                Some("iceberg.table.<name>.commit-rows"),
                Some("db.t"),
            ),
            ("iceberg.table..commit-rows", None, None),
            ("iceberg.table.commit-rows", None, None),
            (
                "iceberg.table.<name>.commit-rows",
                Some("iceberg.table.<name>.commit-rows"),
                Some("<name>"),
            ),
            (
                "iceberg.table.db.t.auto-create-props.format-version",
                Some("iceberg.tables.auto-create-props.format-version"),
                Some("db.t"),
            ),
            (
                "iceberg.table.db.t.write-props.mode",
                Some("iceberg.tables.write-props.*"),
                Some("db.t"),
            ),
            (
                "iceberg.table.write-props.write.parquet.page-row-limit",
                Some("iceberg.table.write-props.*"),
                None,
            ),
            (
                "iceberg.table.<name>.write-props.*",
                Some("iceberg.table.<name>.write-props.*"),
                Some("<name>"),
            ),
            ("iceberg.hadoop.fs.x", Some("iceberg.hadoop.fs.*"), None),
            (
                "consumer.override.group.id",
                Some("consumer.override.*"),
                None,
            ),
            ("iceberg.upsert", None, None),
            ("frazil.x", None, None),
        ] {
            let found = find(name);
            assert_eq!(found.map(|found| found.key.name), row, "{name}");
            assert_eq!(found.and_then(|found| found.table), table, "{name}");
        }
    }
}
