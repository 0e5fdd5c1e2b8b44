//! One table: its name, and what is done with it.

use std::collections::{BTreeMap, BTreeSet};

use iceberg::spec::Type;
use iceberg::{NamespaceIdent, TableIdent};

use super::changes::{self, Beside};
use super::columns::{self, ColumnConfig};
use super::engines::{self, Engine};
use super::layout::{self, LayoutConfig};
use super::partition::{self, PartitionTerm};
use super::reader::{Reader, shown};
use super::routing;
use crate::change::ChangeConfig;
use crate::schema::contract::MAPPING_VERSION;

/// Parts of a table's name, namespaces and table together.
const NAME_PARTS_MAX: usize = 5;
/// Bytes of one part.
const NAME_PART_BYTES_MAX: usize = 255;

const TABLES: &str = "iceberg.tables";

/// Where the value of a metadata column comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum MetadataSource {
    /// `_topic`: the record's topic before any transform.
    Topic,
    /// `_partition`: its partition.
    Partition,
    /// `_offset`: its offset.
    Offset,
    /// `_timestamp`: its timestamp.
    Timestamp,
    /// `_key`: its key.
    Key,
    /// `_headers`: its headers, as a JSON text.
    Headers,
    /// A field of its key, by its dotted path.
    KeyField(String),
    /// Whether the source deleted the row, which stays.
    Deleted,
}

impl MetadataSource {
    /// Those with a name of their own, in their order in a table.
    const NAMED: [(&'static str, MetadataSource); 6] = [
        ("_topic", MetadataSource::Topic),
        ("_partition", MetadataSource::Partition),
        ("_offset", MetadataSource::Offset),
        ("_timestamp", MetadataSource::Timestamp),
        ("_key", MetadataSource::Key),
        ("_headers", MetadataSource::Headers),
    ];
}

/// A column that Frazil fills from where the record came from, and from what came with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataColumn {
    /// Where its values come from.
    pub source: MetadataSource,
    /// The column's name.
    pub name: String,
    /// The column's type in a new table, where records decide it and one has.
    pub field_type: Option<Type>,
}

impl MetadataColumn {
    /// Makes a column called `name`.
    pub fn new(source: MetadataSource, name: impl Into<String>) -> Self {
        MetadataColumn {
            source,
            name: name.into(),
            field_type: None,
        }
    }

    /// Returns `_topic`, `_partition` and `_offset`: the columns that `frazil verify` reads.
    pub fn coordinates() -> Vec<MetadataColumn> {
        let named = MetadataSource::NAMED.into_iter().take(3);
        named
            .map(|(name, source)| MetadataColumn::new(source, name))
            .collect()
    }

    /// Returns the column's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// What happens to a record whose value is null.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NullValues {
    /// It is skipped, and counted.
    #[default]
    Skip,
    /// It becomes a row of its key's fields.
    KeyRow,
    /// It is an error of the record.
    Fail,
}

/// How a table follows its records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EvolutionMode {
    /// Its schema stays as it is.
    #[default]
    Off,
    /// It gains columns and nested fields.
    AddOnly,
    /// Types are promoted too, and required columns become optional.
    Full,
}

impl EvolutionMode {
    fn parse(word: &str) -> Option<Self> {
        match word.to_ascii_lowercase().as_str() {
            "off" => Some(EvolutionMode::Off),
            "add-only" => Some(EvolutionMode::AddOnly),
            "full" => Some(EvolutionMode::Full),
            _ => None,
        }
    }
}

/// What becomes of a record that tells of a change which its table cannot follow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BreakingPolicy {
    /// It is refused, as any record that does not fit.
    #[default]
    Dlq,
    /// The task stops, whatever Connect tolerates.
    Fail,
    /// Its table stops there; the others go on.
    BlockTable,
}

/// How one table follows its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvolutionConfig {
    /// What may change.
    pub mode: EvolutionMode,
    /// Columns and nested fields that one change of the schema may add.
    pub columns_per_commit: usize,
    /// Columns and nested fields that the table may have after a change.
    pub columns_max: usize,
    /// What becomes of records that the table cannot follow.
    pub breaking: BreakingPolicy,
}

/// What is done with one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableConfig {
    /// The name as configured.
    pub name: String,
    /// The same, taken apart.
    pub ident: TableIdent,
    /// The branch that commits go to.
    pub branch: String,
    /// The columns that identify a row.
    pub id_columns: Vec<String>,
    /// How the table shall be partitioned; empty when nothing is said about it.
    pub partition_by: Vec<PartitionTerm>,
    /// How its rows are sorted, where it lies, and what happens when it is partitioned otherwise.
    pub layout: LayoutConfig,
    /// Which fields of a record it gets.
    pub columns: ColumnConfig,
    /// Milliseconds between two commits.
    pub commit_interval_ms: u64,
    /// Rows that cause a commit before its time.
    pub commit_rows: Option<u64>,
    /// Bytes that cause a commit before its time.
    pub commit_bytes: Option<u64>,
    /// Whether a missing table is created.
    pub auto_create: bool,
    /// How the table follows its records.
    pub evolution: EvolutionConfig,
    /// Whether every new column is optional.
    pub force_optional: bool,
    /// Whether names are matched without regard to case.
    pub case_insensitive: bool,
    /// Properties of the table when it is created.
    pub auto_create_props: BTreeMap<String, String>,
    /// The version of the type mapping that the table is created with.
    pub mapping_version: u32,
    /// Properties laid over the table's for this writer.
    pub write_props: BTreeMap<String, String>,
    /// The columns that say where a record came from, and those of its key.
    pub metadata_columns: Vec<MetadataColumn>,
    /// What happens to records without a value.
    pub null_values: NullValues,
    /// How records change rows; `None` when each becomes a row.
    pub changes: Option<ChangeConfig>,
    /// The engines that read the table, as far as they are named.
    pub engines: Vec<Engine>,
}

impl TableConfig {
    /// Tells whether the table gets format version 3 when it is created.
    pub fn creates_v3(&self) -> bool {
        let version = self.auto_create_props.get("format-version");
        version.map(String::as_str) == Some("3")
    }
}

/// Takes a table's name apart: at least one namespace, the last part is the table. The error says
/// what is wrong, without naming the key.
pub fn parse_name(name: &str) -> Result<TableIdent, String> {
    ident_of(name.split('.').map(str::to_owned).collect())
}

/// Makes a table of the parts of its name, under the same rules as [`parse_name`].
pub fn ident_of(mut parts: Vec<String>) -> Result<TableIdent, String> {
    if parts.len() > NAME_PARTS_MAX {
        return Err(format!("has more than {NAME_PARTS_MAX} parts"));
    }
    for part in &parts {
        if part.is_empty() {
            return Err("has an empty part beside a dot".to_owned());
        }
        if part.len() > NAME_PART_BYTES_MAX {
            return Err(format!(
                "has a part of more than {NAME_PART_BYTES_MAX} bytes"
            ));
        }
        if part.trim() != part {
            return Err("has a blank at the edge of a part".to_owned());
        }
        // 0x1F, which parts namespaces in REST paths, is a control character too.
        if let Some(letter) = part
            .chars()
            .find(|letter| letter.is_control() || matches!(letter, '/' | '\\' | '%'))
        {
            return Err(format!("has a {letter:?} in it"));
        }
    }
    let table = parts.pop().unwrap_or_default();
    let namespace = NamespaceIdent::from_vec(parts)
        .map_err(|_| "has no namespace; write it as `namespace.table`".to_owned())?;
    Ok(TableIdent::new(namespace, table))
}

/// Reads the names in `iceberg.tables`, good and bad ones, without reporting anything: the keys of
/// a table are judged by them.
pub(super) fn names(values: &BTreeMap<String, String>) -> Vec<String> {
    values
        .get(TABLES)
        .map(|text| {
            text.split(',')
                .map(|name| name.trim().to_owned())
                .filter(|name| !name.is_empty())
                .collect()
        })
        .unwrap_or_default()
}

/// Reads all tables of `iceberg.tables`.
pub(super) fn read(reader: &mut Reader<'_>) -> Vec<TableConfig> {
    let names = reader.list(TABLES);
    let dynamic = routing::is_dynamic(reader.values());
    if names.is_empty() && reader.word(TABLES).is_none() && !dynamic {
        reader.error(
            TABLES,
            "missing: which tables to write, as `namespace.table`",
        );
    }
    let namespace = routing::namespace(reader);
    let mut seen = BTreeSet::new();
    let mut tables = Vec::new();
    for name in &names {
        if !seen.insert(name) {
            reader.error(
                TABLES,
                format!("table {} is there twice", shown(TABLES, name)),
            );
            continue;
        }
        let mut parts: Vec<String> = name.split('.').map(str::to_owned).collect();
        if parts.len() == 1 {
            parts.splice(0..0, namespace.iter().cloned());
        }
        match ident_of(parts) {
            Ok(ident) => tables.push(read_table(reader, name, ident)),
            Err(reason) => {
                reader.error(TABLES, format!("table {} {reason}", shown(TABLES, name)));
            }
        }
    }
    tables
}

pub(super) fn read_table(reader: &mut Reader<'_>, name: &str, ident: TableIdent) -> TableConfig {
    // The key of this table when it is set, else the one for all tables.
    let choose = |reader: &Reader<'_>, own: &str, common: &str| {
        let own = format!("iceberg.table.{name}.{own}");
        if reader.has(&own) {
            own
        } else {
            common.to_owned()
        }
    };
    let truth = |reader: &Reader<'_>, key: &str| reader.truth(key).unwrap_or(false);
    let interval = choose(
        reader,
        "commit-interval-ms",
        "iceberg.control.commit.interval-ms",
    );
    let auto_create = choose(
        reader,
        "auto-create-enabled",
        "iceberg.tables.auto-create-enabled",
    );
    let layout = layout::read(reader, name);
    let case_insensitive = truth(reader, "iceberg.tables.schema-case-insensitive");
    let metadata = choose(
        reader,
        "metadata-columns",
        "iceberg.tables.metadata-columns",
    );
    let keys = choose(reader, "key-columns", "iceberg.tables.key-columns");
    let asked = read_metadata_columns(reader, &metadata, &keys);
    let columns = columns::read(reader, name, &asked);
    let metadata_columns = columns::metadata_left(reader, name, &columns, asked, case_insensitive);
    let id_columns = reader.own_or(name, "id-columns", "default-id-columns");
    let id_columns = read_columns(reader, &id_columns);
    let beside = Beside {
        id_columns: &id_columns,
        columns: &columns,
        metadata_columns: &metadata_columns,
        case_insensitive,
    };
    let changes = changes::read(reader, name, &beside);
    let metadata_columns = changes::with_mark(metadata_columns, changes.as_ref());
    let config = TableConfig {
        name: name.to_owned(),
        ident,
        branch: read_branch(reader, name),
        id_columns,
        partition_by: read_partition_by(reader, name),
        layout,
        columns,
        commit_interval_ms: reader.number(&interval).unwrap_or_default(),
        commit_rows: reader.number(&format!("iceberg.table.{name}.commit-rows")),
        commit_bytes: reader.number(&format!("iceberg.table.{name}.commit-bytes")),
        auto_create: truth(reader, &auto_create),
        evolution: read_evolution(reader, name),
        force_optional: truth(reader, "iceberg.tables.schema-force-optional"),
        case_insensitive,
        auto_create_props: layout::auto_create_props(reader, name),
        mapping_version: read_mapping_version(reader),
        write_props: layout::properties(reader, name, "write-props"),
        metadata_columns,
        null_values: read_null_values(reader, name),
        engines: engines::read(reader, name, changes.is_some()),
        changes,
    };
    layout::check_columns(reader, &config);
    config
}

fn read_mapping_version(reader: &Reader<'_>) -> u32 {
    let version = reader.number("frazil.mapping-version");
    let version = version.and_then(|version| u32::try_from(version).ok());
    version.unwrap_or(MAPPING_VERSION)
}

/// Reads how table `name` follows its records: its own keys before those for all tables.
fn read_evolution(reader: &mut Reader<'_>, name: &str) -> EvolutionConfig {
    let own = format!("iceberg.table.{name}.breaking-change-policy");
    let breaking = match reader.has(&own) {
        true => reader.word(&own),
        false => reader.word("iceberg.tables.breaking-change-policy"),
    };
    let count = |key: &str| {
        let number = reader.number(key).unwrap_or_default();
        usize::try_from(number).unwrap_or(usize::MAX)
    };
    EvolutionConfig {
        columns_per_commit: count("iceberg.tables.evolve-schema-max-columns-per-commit"),
        columns_max: count("iceberg.tables.evolve-schema-max-columns"),
        breaking: match breaking.unwrap_or_default() {
            word if word.eq_ignore_ascii_case("fail") => BreakingPolicy::Fail,
            word if word.eq_ignore_ascii_case("block-table") => BreakingPolicy::BlockTable,
            _ => BreakingPolicy::Dlq,
        },
        mode: read_mode(reader, name),
    }
}

/// Of each pair of keys the mode counts before the Apache sink's boolean, where `true` is `full`.
fn read_mode(reader: &mut Reader<'_>, name: &str) -> EvolutionMode {
    for prefix in [
        format!("iceberg.table.{name}."),
        "iceberg.tables.".to_owned(),
    ] {
        let mode_key = format!("{prefix}evolve-schema-mode");
        let truth_key = format!("{prefix}evolve-schema-enabled");
        let mode = reader.word(&mode_key).and_then(EvolutionMode::parse);
        let truth = match reader.has(&truth_key) {
            true => reader.truth(&truth_key),
            false => None,
        };
        match (mode, truth) {
            (Some(mode), Some(truth)) if truth != (mode != EvolutionMode::Off) => {
                reader.error(
                    &mode_key,
                    format!("contradicts `{truth_key}`: drop that key, the mode says it all"),
                );
                return mode;
            }
            (Some(mode), _) => return mode,
            (None, Some(true)) => return EvolutionMode::Full,
            (None, Some(false)) => return EvolutionMode::Off,
            (None, None) => {}
        }
    }
    EvolutionMode::Off
}

fn read_branch(reader: &mut Reader<'_>, name: &str) -> String {
    let key = reader.own_or(name, "commit-branch", "default-commit-branch");
    let branch = reader.word(&key).unwrap_or("main").to_owned();
    if branch.chars().any(char::is_control) {
        reader.error(&key, "a branch's name cannot have control characters");
    }
    branch
}

fn read_columns(reader: &mut Reader<'_>, key: &str) -> Vec<String> {
    let columns = reader.list(key);
    let distinct: BTreeSet<&String> = columns.iter().collect();
    if distinct.len() != columns.len() {
        reader.error(key, "a column is there twice");
    }
    columns
}

fn read_partition_by(reader: &mut Reader<'_>, name: &str) -> Vec<PartitionTerm> {
    let key = reader.own_or(name, "partition-by", "default-partition-by");
    match partition::parse(reader.word(&key).unwrap_or_default()) {
        Ok(terms) => terms,
        Err(reason) => {
            reader.error(&key, reason);
            Vec::new()
        }
    }
}

/// Reads `_topic` or `_topic:name`, and of the key `field` or `field:name`.
fn read_metadata_columns(
    reader: &mut Reader<'_>,
    key: &str,
    key_fields: &str,
) -> Vec<MetadataColumn> {
    let entries = read_columns(reader, key);
    let mut columns = Vec::new();
    for (named, source) in MetadataSource::NAMED {
        for entry in &entries {
            let (word, name) = entry.split_once(':').unwrap_or((entry, entry));
            if word.trim() == named {
                columns.push(MetadataColumn::new(source.clone(), name.trim()));
            }
        }
    }
    if columns.len() != entries.len() {
        let known = |entry: &&String| {
            let word = entry.split(':').next().unwrap_or_default().trim();
            !MetadataSource::NAMED
                .iter()
                .any(|(named, _)| *named == word)
        };
        for entry in entries.iter().filter(known) {
            reader.error(
                key,
                format!(
                    "{} is not one of `_topic`, `_partition`, `_offset`, `_timestamp`, `_key`, \
                     `_headers`, each alone or with a name for the column: `_topic:topic`",
                    shown(key, entry)
                ),
            );
        }
    }
    for entry in read_columns(reader, key_fields) {
        let (path, name) = match entry.split_once(':') {
            Some((path, name)) => (path.trim(), name.trim()),
            None => (entry.as_str(), entry.rsplit('.').next().unwrap_or_default()),
        };
        let source = MetadataSource::KeyField(path.to_owned());
        columns.push(MetadataColumn::new(source, name));
    }
    let mut seen = BTreeSet::new();
    for column in &columns {
        if column.name.is_empty() || !seen.insert(&column.name) {
            reader.error(
                key,
                format!(
                    "column {} is there twice or has no name",
                    shown(key, &column.name)
                ),
            );
        }
    }
    columns
}

fn read_null_values(reader: &mut Reader<'_>, table: &str) -> NullValues {
    let own = format!("iceberg.table.{table}.null-value-behavior");
    let key = match reader.has(&own) {
        true => &own,
        false => "iceberg.tables.null-value-behavior",
    };
    match reader.word(key).map(str::to_ascii_lowercase).as_deref() {
        Some("key-row") => NullValues::KeyRow,
        Some("fail") => NullValues::Fail,
        Some("dlq") => {
            if reader.word("errors.deadletterqueue.topic.name").is_none() {
                reader.error(
                    key,
                    "`dlq` needs `errors.tolerance=all` and `errors.deadletterqueue.topic.name`",
                );
            }
            NullValues::Fail
        }
        _ => NullValues::Skip,
    }
}
