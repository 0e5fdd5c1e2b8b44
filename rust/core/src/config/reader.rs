//! Reads values out of the submitted map: judges each key by the table of keys once, then hands
//! out typed values. A value that is at fault was reported by [`Reader::judge`]; its getter then
//! answers as if it were not set, so that one fault is one message.

use std::collections::BTreeMap;

use super::keys::{self, Check, Key, KeyClass, KeyType, Match};
use super::problem::ConfigProblem;
use super::suggest;
use crate::secret::is_secret_key;

/// Letters of a value that a message may show.
const SHOWN_MAX: usize = 64;

/// Table properties of the Iceberg specification: not ours to judge, nothing to report.
const TABLE_PROPERTY_FAMILIES: &[&str] =
    &["write.", "read.", "commit.", "history.", "gc.", "schema."];

/// The submitted map with the problems found so far.
pub(super) struct Reader<'a> {
    values: &'a BTreeMap<String, String>,
    pub(super) problems: Vec<ConfigProblem>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(values: &'a BTreeMap<String, String>) -> Self {
        Reader {
            values,
            problems: Vec::new(),
        }
    }

    /// Returns the submitted map.
    pub(super) fn values(&self) -> &'a BTreeMap<String, String> {
        self.values
    }

    /// Reports `message` about `key` as an error.
    pub(super) fn error(&mut self, key: &str, message: impl Into<String>) {
        self.report(ConfigProblem::error(key, message));
    }

    /// Reports `message` about `key` as a warning.
    pub(super) fn warn(&mut self, key: &str, message: impl Into<String>) {
        self.report(ConfigProblem::warning(key, message));
    }

    /// Adds `problem`, once: a key for all tables is read for each of them.
    fn report(&mut self, problem: ConfigProblem) {
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// Judges every submitted key by its class, type and check. `tables` are the configured tables,
    /// `dynamic` says that there may be others.
    pub(super) fn judge(&mut self, tables: &[String], dynamic: bool) {
        let values = self.values;
        for (name, value) in values {
            match keys::find(name) {
                Some(found) => self.judge_known(name, value, found, (tables, dynamic)),
                None if name.starts_with("iceberg.") || name.starts_with("frazil.") => {
                    let message = match suggest::nearest_key(name, tables) {
                        Some(meant) => format!("unknown key; did you mean `{meant}`?"),
                        None => "unknown key; see docs/configs.md for those that exist".to_owned(),
                    };
                    self.error(name, message);
                }
                None => {}
            }
        }
    }

    fn judge_known(
        &mut self,
        name: &str,
        value: &str,
        found: Match<'_>,
        (tables, dynamic): (&[String], bool),
    ) {
        let key = found.key;
        match key.class {
            KeyClass::Inert => {
                self.warn(name, format!("has no effect: {}", uncapitalised(key.doc)));
                return;
            }
            // Connect checks its own keys.
            KeyClass::Framework => return,
            KeyClass::Own | KeyClass::Passed | KeyClass::Legacy => {}
        }
        if let Some(table) = found.table
            && !dynamic
            && !tables.iter().any(|known| known == table)
        {
            let message = match suggest::nearest(table, tables.iter().map(String::as_str), 2) {
                Some(meant) => {
                    format!("`{table}` is not in `iceberg.tables`; did you mean `{meant}`?")
                }
                None => format!("`{table}` is not in `iceberg.tables`; add it there or drop this"),
            };
            self.error(name, message);
        }
        if found.is_only_prefix() {
            self.report_passed(name);
        }
        if let Err(message) = check(key, name, value) {
            self.error(name, message);
        }
    }

    /// Reports a passed key that the table does not list, once.
    fn report_passed(&mut self, name: &str) {
        let property = name
            .strip_prefix("iceberg.tables.write-props.")
            .or_else(|| name.strip_prefix("iceberg.tables.auto-create-props."))
            .or_else(|| keys::own_property(name).map(|(_, _, property)| property));
        let in_specification = |property: &str| {
            TABLE_PROPERTY_FAMILIES
                .iter()
                .any(|family| property.starts_with(family))
        };
        let meant = suggest::nearest_passed(name);
        if meant.is_none() && property.is_some_and(in_specification) {
            return;
        }
        let mut message = "not a property that Frazil knows; passed on as it is".to_owned();
        if let Some(meant) = meant {
            message.push_str(&format!("; did you mean `{meant}`?"));
        }
        self.warn(name, message);
    }

    /// Returns the value of `name`, else the default of its row.
    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        let row = keys::find(name).map(|found| found.key);
        match self.values.get(name) {
            Some(value) if row.is_none_or(|key| check(key, name, value).is_ok()) => Some(value),
            _ => row.and_then(|key| key.default),
        }
    }

    /// Returns whether the submitted map has `name`.
    pub(super) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Returns the key `own` of `table` when it is set, else the key `common` for all tables.
    pub(super) fn own_or(&self, table: &str, own: &str, common: &str) -> String {
        let own = format!("iceberg.table.{table}.{own}");
        match self.has(&own) {
            true => own,
            false => format!("iceberg.tables.{common}"),
        }
    }

    /// Returns the trimmed value or default of `name` when it has letters.
    pub(super) fn word(&self, name: &str) -> Option<&'a str> {
        self.text(name)
            .map(str::trim)
            .filter(|value| !value.is_empty())
    }

    /// Returns the number `name`, else its default.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.word(name)?.parse().ok()
    }

    /// Returns the truth of `name`, else its default, else `None`.
    pub(super) fn truth(&self, name: &str) -> Option<bool> {
        Some(self.word(name)?.eq_ignore_ascii_case("true"))
    }

    /// Returns the entries of the list `name`; an empty text is an empty list.
    pub(super) fn list(&mut self, name: &str) -> Vec<String> {
        let Some(text) = self.word(name) else {
            return Vec::new();
        };
        let entries: Vec<String> = text
            .split(',')
            .map(|entry| entry.trim().to_owned())
            .collect();
        if entries.iter().any(String::is_empty) {
            self.error(name, "an empty entry between commas");
            return Vec::new();
        }
        entries
    }

    /// Returns what stands below `prefix`, without it.
    pub(super) fn below(&self, prefix: &str) -> BTreeMap<String, String> {
        self.values
            .iter()
            .filter_map(|(name, value)| Some((name.strip_prefix(prefix)?, value)))
            .filter(|(name, _)| !name.is_empty())
            .map(|(name, value)| (name.to_owned(), value.clone()))
            .collect()
    }
}

/// Returns a value as a message may show it: quoted, short, and not at all when it is secret.
pub(super) fn shown(name: &str, value: &str) -> String {
    if is_secret_key(name) {
        return "the value".to_owned();
    }
    let mut short: String = value
        .chars()
        .take(SHOWN_MAX)
        .flat_map(char::escape_debug)
        .collect();
    if value.chars().count() > SHOWN_MAX {
        short.push('…');
    }
    format!("`{short}`")
}

/// Tells what is wrong with `value` for `key`, which was submitted as `name`.
fn check(key: &Key, name: &str, value: &str) -> Result<(), String> {
    let word = value.trim();
    let lower = word.to_ascii_lowercase();
    let number = word.parse::<i64>();
    match key.kind {
        KeyType::Boolean if lower != "true" && lower != "false" => {
            return Err(format!(
                "must be `true` or `false`, not {}",
                shown(name, value)
            ));
        }
        KeyType::Int if word.parse::<i32>().is_ok() => {}
        KeyType::Long if number.is_ok() => {}
        KeyType::Int | KeyType::Long => {
            return Err(format!(
                "must be a whole number, not {}",
                shown(name, value)
            ));
        }
        _ => {}
    }
    match (key.check, number) {
        (Check::Refused(reason), _) if key.kind != KeyType::Boolean || lower == "true" => {
            Err(format!("not supported: {reason}"))
        }
        (Check::Range(least, most), Ok(n)) if n < least || n > most => Err(match most {
            i64::MAX => format!("must be at least {least}, not {n}"),
            _ => format!("must be from {least} to {most}, not {n}"),
        }),
        (Check::OneOf { words, note }, _) if !words.contains(&lower.as_str()) => {
            let words = words.join("`, `");
            let shown = shown(name, value);
            Err(match note {
                "" => format!("must be one of `{words}`, not {shown}"),
                _ => format!("must be one of `{words}`, not {shown}: {note}"),
            })
        }
        _ => Ok(()),
    }
}

/// Turns a sentence of the table into the end of a message.
fn uncapitalised(sentence: &str) -> String {
    let sentence = sentence.trim_end_matches('.');
    let mut letters = sentence.chars();
    match letters.next() {
        Some(first) if !sentence.starts_with("Frazil") => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => sentence.to_owned(),
    }
}
