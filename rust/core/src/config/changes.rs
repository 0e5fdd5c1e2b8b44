//! Whether records are appended to a table or change its rows, and how changes are read.

use std::collections::BTreeSet;

use super::columns::{self, ColumnConfig};
use super::format::{BYTES_CONVERTER, DataFormat, Formats};
use super::reader::Reader;
use super::routing;
use super::table::{MetadataColumn, MetadataSource, TableConfig};
use crate::change::envelope::Envelope;
use crate::change::{AbsentPolicy, ChangeConfig, DeleteMode, Op, Place, TruncatePolicy};

const CDC_FIELD: &str = "iceberg.tables.cdc-field";
const UPSERTS: &str = "iceberg.tables.upsert-mode-enabled";
const NO_CDC: &str = "no table has the mode `cdc`";
const UPSERT_FORMAT: &str = "upsert";
const DEFAULT_MODE: &str = "iceberg.tables.default-mode";
/// Keys of one table that mean nothing when rows are appended.
const OWN: &[&str] = &[
    "change-format",
    "order-columns",
    "order-epoch",
    "truncate",
    "before-is-whole",
    "delete-mode",
    "soft-delete-column",
    "unavailable-values",
    "unavailable-placeholder",
    "dedup-window-rows",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Append,
    Once,
    Upsert,
    Changes,
}

/// What else is known of a table when its changes are read.
pub(super) struct Beside<'c> {
    pub(super) id_columns: &'c [String],
    pub(super) columns: &'c ColumnConfig,
    pub(super) metadata_columns: &'c [MetadataColumn],
    pub(super) case_insensitive: bool,
}

impl Beside<'_> {
    /// Tells whether the table has only a hash of the column `path`.
    fn hashes(&self, path: &str) -> bool {
        let mut rules = self.columns.hash.iter();
        rules.any(|rule| match self.case_insensitive {
            true => is_within(&path.to_lowercase(), &rule.to_lowercase()),
            false => is_within(path, rule),
        })
    }
}

/// Tells whether `path` is `rule` or inside of it.
fn is_within(path: &str, rule: &str) -> bool {
    let rest = path.strip_prefix(rule);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Says why the key `own` means nothing to a table whose changes are read so, if it does not.
fn no_effect(own: &str, config: &ChangeConfig) -> Option<&'static str> {
    let envelope = &config.envelope;
    let is_ordered = !config.order_columns.is_empty() || !envelope.order.alternatives.is_empty();
    match (own, config.once_within) {
        ("dedup-window-rows", None) => {
            return Some("a row with the key of another one replaces it");
        }
        ("dedup-window-rows" | "delete-mode", Some(_)) => return None,
        (_, Some(_)) => return Some("rows are added once, and nothing changes them"),
        (_, None) => {}
    }
    match own {
        "truncate" if !envelope.has(Op::Truncate) => {
            Some("records of this format never say that a table was emptied")
        }
        "order-epoch" if !is_ordered => {
            Some("records of this format have no order, and `order-columns` name none")
        }
        "before-is-whole" if !envelope.has_before() => {
            Some("records of this format have no row before a change")
        }
        "unavailable-values" | "unavailable-placeholder"
            if envelope.leaves_values_out.is_empty() =>
        {
            Some("sources of this format leave no values out")
        }
        _ => None,
    }
}

/// Checks that the columns that order changes can have the values that records have.
fn check_order(reader: &mut Reader<'_>, key: &str, columns: &[String], beside: &Beside<'_>) {
    let paths = columns.iter().map(String::as_str);
    columns::check_layout(reader, key, beside.columns, paths);
    let same = |one: &str, other: &str| match beside.case_insensitive {
        true => one.to_lowercase() == other.to_lowercase(),
        false => one == other,
    };
    for column in columns {
        if columns.iter().filter(|other| same(other, column)).count() > 1 {
            reader.error(key, format!("names column `{column}` twice"));
        }
        if beside.hashes(column) {
            reader.error(
                key,
                format!("names column `{column}`, of which the table has only a hash"),
            );
        }
        let mut filled = beside.metadata_columns.iter();
        if filled.any(|one| same(&one.name, column)) {
            let message = format!(
                "names column `{column}`, which is not in the row: it says where the record came from, \
                 or is of its key"
            );
            reader.error(key, message);
        }
    }
}

/// Reads how changes of the table `name` are read; `None` when records are appended.
pub(super) fn read(
    reader: &mut Reader<'_>,
    name: &str,
    beside: &Beside<'_>,
) -> Option<ChangeConfig> {
    let mode = read_mode(reader, name);
    if mode == Mode::Append {
        for own in OWN {
            let key = format!("iceberg.table.{name}.{own}");
            if reader.has(&key) {
                reader.error(&key, "has no effect: rows are appended to this table");
            }
        }
        return None;
    }
    let mut config = read_format(reader, name, mode)?;
    if mode == Mode::Once {
        let key = reader.own_or(name, "dedup-window-rows", "default-dedup-window-rows");
        config.once_within = reader.number(&key);
        config.unavailable = None;
    }
    let order_key = reader.own_or(name, "order-columns", "default-order-columns");
    let order = match mode {
        Mode::Once => Vec::new(),
        _ => reader.list(&order_key),
    };
    if !order.is_empty() {
        let columns: Vec<&str> = order.iter().map(String::as_str).collect();
        config = config.ordered_by(&columns);
        check_order(reader, &order_key, &order, beside);
    }
    let whole = reader.own_or(name, "before-is-whole", "default-before-is-whole");
    config.deleted_is_whole = reader.truth(&whole).unwrap_or(false);
    let epoch = reader.own_or(name, "order-epoch", "default-order-epoch");
    config.order_epoch = reader.word(&epoch).unwrap_or_default().to_owned();
    let truncate = reader.own_or(name, "truncate", "default-truncate");
    config.truncate = match reader.word(&truncate).unwrap_or_default() {
        word if word.eq_ignore_ascii_case("truncate") => TruncatePolicy::Apply,
        word if word.eq_ignore_ascii_case("ignore") => TruncatePolicy::Ignore,
        _ => TruncatePolicy::Fail,
    };
    let deletes = reader.own_or(name, "delete-mode", "default-delete-mode");
    config.delete_mode = match reader.word(&deletes).unwrap_or_default() {
        word if word.eq_ignore_ascii_case("vector") => DeleteMode::Vector,
        word if word.eq_ignore_ascii_case("position") => DeleteMode::Position,
        _ => DeleteMode::Auto,
    };
    read_old_rows(reader, name, beside, &mut config);
    config.case_insensitive = beside.case_insensitive;
    let from_keys = beside.metadata_columns.iter().filter(|column| {
        matches!(
            column.source,
            MetadataSource::Key | MetadataSource::KeyField(_)
        )
    });
    config.filled = Some(from_keys.map(|column| column.name.clone()).collect());
    check(reader, name, beside);
    for own in OWN {
        let key = format!("iceberg.table.{name}.{own}");
        if reader.has(&key)
            && let Some(reason) = no_effect(own, &config)
        {
            reader.error(&key, format!("has no effect: {reason}"));
        }
    }
    Some(config)
}

/// Reads what is made of a row that the table has: of values that were left out, and of deleted rows.
fn read_old_rows(
    reader: &mut Reader<'_>,
    name: &str,
    beside: &Beside<'_>,
    config: &mut ChangeConfig,
) {
    if let Some(unavailable) = &mut config.unavailable {
        let key = reader.own_or(name, "unavailable-values", "default-unavailable-values");
        unavailable.absent = match reader.word(&key).unwrap_or_default() {
            word if word.eq_ignore_ascii_case("null") => AbsentPolicy::Null,
            _ => AbsentPolicy::Fail,
        };
        let (own, common) = ("unavailable-placeholder", "default-unavailable-placeholder");
        let key = reader.own_or(name, own, common);
        if let Some(placeholder) = reader.word(&key) {
            unavailable.placeholder = placeholder.to_owned();
        }
    }
    let key = reader.own_or(name, "soft-delete-column", "default-soft-delete-column");
    let marks = config.once_within.is_none();
    let Some(column) = reader.word(&key).filter(|_| marks) else {
        return;
    };
    let same = |other: &str| match beside.case_insensitive {
        true => other.to_lowercase() == column.to_lowercase(),
        false => other == column,
    };
    let metadata = beside.metadata_columns.iter().map(|one| one.name.as_str());
    let excluded = beside.columns.exclude.iter().map(String::as_str);
    let reason = if column.contains('.') {
        "is inside of another column: name one of its own"
    } else if beside.id_columns.iter().any(|id| same(id)) {
        "is a column of the key"
    } else if metadata.into_iter().any(same) {
        "is filled from where records come from"
    } else if excluded.into_iter().any(same) {
        "is left out of the table"
    } else {
        config.soft_delete = Some(column.to_owned());
        return;
    };
    reader.error(&key, format!("`{column}` {reason}"));
}

/// Adds the column that says of rows whether the source deleted them, where there is one.
pub(super) fn with_mark(
    mut columns: Vec<MetadataColumn>,
    changes: Option<&ChangeConfig>,
) -> Vec<MetadataColumn> {
    let name = changes.and_then(|changes| changes.soft_delete.as_ref());
    columns.extend(name.map(|name| MetadataColumn::new(MetadataSource::Deleted, name)));
    columns
}

/// The key of the table itself counts before Tabular's keys, and these before the default.
fn read_mode(reader: &mut Reader<'_>, name: &str) -> Mode {
    let key = reader.own_or(name, "mode", "default-mode");
    let word = reader.word(&key).unwrap_or_default();
    let mode = match word.to_ascii_lowercase().as_str() {
        "append-once" => Mode::Once,
        "upsert" => Mode::Upsert,
        "cdc" => Mode::Changes,
        _ => Mode::Append,
    };
    let tabular = match (reader.word(CDC_FIELD), reader.truth(UPSERTS)) {
        (Some(_), _) => Some((CDC_FIELD, Mode::Changes)),
        (None, Some(true)) => Some((UPSERTS, Mode::Upsert)),
        _ => None,
    };
    match tabular {
        Some((theirs, meant)) if key == DEFAULT_MODE => {
            if reader.has(DEFAULT_MODE) && mode != meant {
                let message = format!("contradicts `{theirs}`: drop one of them");
                reader.error(DEFAULT_MODE, message);
            }
            meant
        }
        _ => mode,
    }
}

fn read_format(reader: &mut Reader<'_>, name: &str, mode: Mode) -> Option<ChangeConfig> {
    if mode == Mode::Once {
        // It comes with the library, so it can be read.
        return Envelope::of_rows().ok().map(ChangeConfig::new);
    }
    let key = reader.own_or(name, "change-format", "default-change-format");
    let word = reader.word(&key).map(str::to_ascii_lowercase);
    let is_own = key.starts_with("iceberg.table.");
    let field = reader.word(CDC_FIELD).filter(|_| mode == Mode::Changes);
    let format = match (mode, word.as_deref(), field) {
        (Mode::Upsert, Some(word), _) if word != "upsert" && is_own => {
            reader.error(
                &key,
                "rows of the mode `upsert` have the format `upsert`: set the mode to `cdc` for \
                 another one",
            );
            return None;
        }
        (Mode::Upsert, ..) => UPSERT_FORMAT,
        (_, Some(word), Some(_)) if word != "tabular-cdc" => {
            let message =
                format!("contradicts `{CDC_FIELD}`, which is of the format `tabular-cdc`");
            reader.error(&key, message);
            return None;
        }
        (_, Some(word), _) => word,
        (_, None, Some(_)) => "tabular-cdc",
        (_, None, None) => "debezium",
    };
    let envelope = match Envelope::preset(format) {
        Ok(envelope) => envelope,
        Err(error) => {
            reader.error(&key, error.message());
            return None;
        }
    };
    let config = ChangeConfig::new(envelope);
    match field {
        Some(field) => Some(config.with_op_at(Place::Value(field.to_owned()))),
        None => Some(config),
    }
}

fn check(reader: &mut Reader<'_>, name: &str, beside: &Beside<'_>) {
    let ids = reader.own_or(name, "id-columns", "default-id-columns");
    if beside.id_columns.is_empty() && routing::is_dynamic(reader.values()) {
        reader.error(
            &ids,
            "missing: records name their tables and change rows, so the columns of the key have to \
             be named here",
        );
    }
    let hash = reader.own_or(name, "columns.hash", "columns.hash");
    for id in beside.id_columns {
        if beside.hashes(id) {
            let message = format!(
                "`{id}` is a column of the key by which rows are changed, and cannot be hashed: \
                 deletes would not find the row"
            );
            reader.error(&hash, message);
        }
    }
    let nulls = format!("iceberg.table.{name}.null-value-behavior");
    if reader.has(&nulls) {
        reader.error(
            &nulls,
            "has no effect: the change format says what a record without a value means",
        );
    }
}

/// Returns how changes are read of all tables that may have any: those of `iceberg.tables`, and those
/// that records may name.
pub(super) fn all(reader: &mut Reader<'_>, tables: &[TableConfig]) -> Vec<ChangeConfig> {
    let mut all: Vec<ChangeConfig> = tables
        .iter()
        .filter_map(|table| table.changes.clone())
        .collect();
    let mut names: Vec<&str> = tables.iter().map(|table| table.name.as_str()).collect();
    if !routing::is_dynamic(reader.values()) {
        judge_defaults(reader, &names, &all);
        return all;
    }
    let id_columns = reader.list("iceberg.tables.default-id-columns");
    let beside = Beside {
        id_columns: &id_columns,
        columns: &ColumnConfig::default(),
        metadata_columns: &[],
        case_insensitive: false,
    };
    all.extend(read(reader, "", &beside));
    // What is wrong with these is reported where their keys are judged.
    let mut quiet = Reader::new(reader.values());
    let own = reader.values().keys();
    let own = own.filter_map(|key| super::keys::find(key)?.table);
    let named: BTreeSet<&str> = own.collect();
    let of_names = named.iter();
    all.extend(of_names.filter_map(|name| read(&mut quiet, name, &beside)));
    names.push("");
    names.extend(named);
    judge_defaults(reader, &names, &all);
    all
}

/// Refuses keys for all tables that none of them obeys.
fn judge_defaults(reader: &mut Reader<'_>, names: &[&str], all: &[ChangeConfig]) {
    let mut quiet = Reader::new(reader.values());
    let modes = names.iter();
    let modes: Vec<Mode> = modes.map(|name| read_mode(&mut quiet, name)).collect();
    let changing = modes.iter().filter(|mode| **mode != Mode::Append).count();
    // What cannot be read is reported by itself.
    if changing != all.len() || modes.is_empty() {
        return;
    }
    let has_format = modes.contains(&Mode::Changes);
    for own in OWN {
        let key = format!("iceberg.tables.default-{own}");
        if !reader.has(&key) {
            continue;
        }
        let mut reasons = all.iter().map(|config| no_effect(own, config));
        let reason = match (all.is_empty(), *own) {
            (true, _) => Some("rows are appended to all tables"),
            (_, "change-format") => (!has_format).then_some(NO_CDC),
            _ => reasons
                .next()
                .flatten()
                .filter(|_| reasons.all(|one| one.is_some())),
        };
        if let Some(reason) = reason {
            reader.error(&key, format!("has no effect: {reason}"));
        }
    }
    if reader.word(CDC_FIELD).is_some() && !has_format {
        reader.error(CDC_FIELD, format!("has no effect: {NO_CDC}"));
    }
    if reader.truth(UPSERTS) == Some(true) && changing == 0 {
        reader.error(UPSERTS, "has no effect: rows are appended to all tables");
    }
}

/// Warns of keys that nobody reads, where they are the values of columns.
pub(super) fn judge_keys(reader: &mut Reader<'_>, formats: Formats, all: &[ChangeConfig]) {
    const CONVERTER: &str = "key.converter";
    let is_bare = all.iter().any(|config| config.envelope.bare_key);
    let is_alone = reader.word("transforms").is_none() && formats.key == DataFormat::Connect;
    if is_bare && is_alone && reader.word(CONVERTER) == Some(BYTES_CONVERTER) {
        reader.warn(
            CONVERTER,
            "hands keys through as bytes, which only a key column of bytes takes: deletes by them are \
             refused elsewhere; say in `frazil.key.format` what they are",
        );
    }
}

// The names above must be rows of the table, or their defaults would be lost.
#[cfg(test)]
#[test]
fn the_keys_read_here_are_in_the_table() {
    let both = |own: &str| {
        [
            format!("iceberg.table.db.t.{own}"),
            format!("iceberg.tables.default-{own}"),
        ]
    };
    let of_tables = OWN
        .iter()
        .copied()
        .chain(["mode", "id-columns"])
        .flat_map(both);
    let common = [CDC_FIELD, UPSERTS, DEFAULT_MODE].map(str::to_owned);
    for name in of_tables.chain(common) {
        let found = super::keys::find(&name).map(|found| found.key.name);
        assert!(
            found.is_some_and(|found| !found.contains('*')),
            "{name}: {found:?}"
        );
    }
}
