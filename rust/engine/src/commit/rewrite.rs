//! Removes entries from manifests: of data files whose rows are all gone, and of delete files that
//! newer ones stand for.
//!
//! A manifest is never changed: another one takes its place in the list of the new snapshot. What it
//! says of the files that stay is copied as it is, whoever wrote it and whatever columns it has; only
//! what an entry inherited from the old list is written down in it, since the new list says
//! something else. An entry that is removed stays once more, as deleted by this snapshot. A manifest of
//! format version 1, as a table has them that was upgraded, becomes one of version 2.

use std::collections::BTreeMap;

use apache_avro::types::Value;
use apache_avro::{Reader, Schema};
use frazil_core::control::segment::FileCounts;
use frazil_core::{Result, SinkError};
use iceberg::spec::{FormatVersion, ManifestContentType, ManifestFile};
use serde_json::json;

use super::avro;

const ADDED: i32 = 1;
const DELETED: i32 = 2;
const EXISTING: i32 = 0;
/// A sequence number that the list gives.
const UNASSIGNED: i64 = -1;
const ROW_ID: &str = "first_row_id";
const SEQUENCE: &str = "sequence_number";
const FILE_SEQUENCE: &str = "file_sequence_number";
const CONTENT: &str = "content";

/// What tells an entry from others. Deletion vectors share a file: those are told by the data file
/// that they are for, never by the path alone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryKey {
    /// The location of the file.
    pub path: String,
    /// The data file that a deletion vector is for.
    pub referenced: Option<String>,
}

impl EntryKey {
    /// Returns the key of a data file or of a delete file that is not shared.
    pub fn of_file(path: impl Into<String>) -> Self {
        EntryKey {
            path: path.into(),
            referenced: None,
        }
    }

    /// Returns the key of the vector in the Puffin file at `path` that is for `data_file`.
    pub fn of_vector(path: impl Into<String>, data_file: impl Into<String>) -> Self {
        EntryKey {
            path: path.into(),
            referenced: Some(data_file.into()),
        }
    }
}

/// A manifest that takes the place of another one.
#[derive(Debug)]
pub struct Rewritten {
    /// Its entry for a list, without path and length.
    pub manifest: ManifestFile,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The entries that were removed.
    pub removed: Vec<EntryKey>,
    /// What they take away from the totals of a summary.
    pub counts: FileCounts,
}

/// Makes the manifest that has the entries of `listed`, whose bytes are `bytes`, without those that
/// `is_removed` picks; `None` when it picks none. The new manifest is one of the snapshot
/// `snapshot_id` of a table of format `version`.
///
/// # Errors
///
/// `METADATA_FORMAT`.
pub fn rewrite(
    listed: &ManifestFile,
    bytes: &[u8],
    version: FormatVersion,
    snapshot_id: i64,
    is_removed: impl Fn(&EntryKey) -> bool,
) -> Result<Option<Rewritten>> {
    let header = avro::metadata(bytes).ok_or_else(|| unfit("a manifest is no Avro file"))?;
    let reader = Reader::new(bytes).map_err(malformed)?;
    let is_data = listed.content == ManifestContentType::Data;
    let wants_row_ids = version >= FormatVersion::V3 && is_data;
    let mut entries = Vec::new();
    for value in reader {
        let mut entry = Entry::of(value.map_err(malformed)?)?;
        if entry.int("status")? != DELETED {
            entry.key = entry.read_key(is_data)?;
            entry.is_removed = is_removed(&entry.key);
            entries.push(entry);
        }
    }
    if !entries.iter().any(|entry| entry.is_removed) {
        return Ok(None);
    }
    let (text, adds) = schema_text(&header, wants_row_ids)?;
    let schema = Schema::parse_str(&text).map_err(malformed)?;
    let mut next_row_id = listed.first_row_id;
    let mut tally = Tally::default();
    let mut block = Vec::new();
    for entry in &mut entries {
        if adds.version_2 {
            entry.become_version_2(listed.sequence_number)?;
        }
        if wants_row_ids {
            entry.write_row_id(&mut next_row_id, adds.row_id)?;
        }
        entry.settle(listed, snapshot_id)?;
        tally.add(entry, is_data)?;
        let value = std::mem::replace(&mut entry.value, Value::Null);
        block.extend(apache_avro::to_avro_datum(&schema, value).map_err(malformed)?);
    }
    let bytes = avro::container(&new_header(header, text, version), &block, entries.len());
    let mut manifest = tally.listed(listed, snapshot_id);
    manifest.first_row_id = match wants_row_ids {
        // All entries have their row ids: the list gives out none for them.
        true => tally.first_row_id.or(listed.first_row_id),
        false => None,
    };
    Ok(Some(Rewritten {
        manifest,
        bytes,
        removed: tally.removed,
        counts: tally.counts,
    }))
}

fn new_header(
    mut header: BTreeMap<String, String>,
    schema: String,
    version: FormatVersion,
) -> BTreeMap<String, String> {
    // What a session vouched for were all entries of its own manifest.
    header.retain(|key, _| !key.starts_with("frazil."));
    header.insert("avro.schema".to_owned(), schema);
    header.insert("avro.codec".to_owned(), "null".to_owned());
    // One of format version 1 lists data files and does not say so.
    header
        .entry("content".to_owned())
        .or_insert_with(|| "data".to_owned());
    let version = if version >= FormatVersion::V3 {
        "3"
    } else {
        "2"
    };
    header.insert("format-version".to_owned(), version.to_owned());
    header
}

/// The columns that entries get.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Adds {
    /// What format version 2 has beyond version 1.
    version_2: bool,
    row_id: bool,
}

/// Returns the schema of the entries as the file has it. One of format version 1 gets the columns of version
/// 2, and one of version 2 that of row ids when the table has them.
fn schema_text(header: &BTreeMap<String, String>, row_ids: bool) -> Result<(String, Adds)> {
    let text = header.get("avro.schema");
    let text = text.ok_or_else(|| unfit("a manifest has no schema"))?;
    let mut schema: serde_json::Value = serde_json::from_str(text)
        .map_err(|error| unfit("the schema of a manifest is malformed").caused_by(error))?;
    let named = |field: &serde_json::Value, name: &str| {
        field.get("name").and_then(serde_json::Value::as_str) == Some(name)
    };
    let entry_fields = schema.get_mut("fields").and_then(|one| one.as_array_mut());
    let entry_fields =
        entry_fields.ok_or_else(|| unfit("the entries of a manifest are no records"))?;
    let mut adds = Adds {
        version_2: !entry_fields.iter().any(|one| named(one, SEQUENCE)),
        row_id: false,
    };
    if adds.version_2 {
        let kind = json!(["null", "long"]);
        for (name, id) in [(SEQUENCE, 3), (FILE_SEQUENCE, 4)] {
            entry_fields.push(json!({"name": name, "type": kind, "default": null, "field-id": id}));
        }
    }
    let file = entry_fields
        .iter_mut()
        .find(|field| named(field, "data_file"));
    let fields = file.and_then(|field| field.get_mut("type")?.get_mut("fields")?.as_array_mut());
    let fields = fields.ok_or_else(|| unfit("the files of a manifest are no records"))?;
    if adds.version_2 {
        fields.push(json!({"name": CONTENT, "type": "int", "field-id": 134}));
    }
    adds.row_id = row_ids && !fields.iter().any(|field| named(field, ROW_ID));
    if adds == Adds::default() {
        return Ok((text.clone(), adds));
    }
    if adds.row_id {
        let kind = json!(["null", "long"]);
        fields.push(json!({"name": ROW_ID, "type": kind, "default": null, "field-id": 142}));
    }
    Ok((schema.to_string(), adds))
}

/// One entry of a manifest.
struct Entry {
    value: Value,
    key: EntryKey,
    is_removed: bool,
    /// The data sequence number, once it is settled.
    sequence: i64,
}

impl Entry {
    fn of(value: Value) -> Result<Self> {
        match value {
            Value::Record(_) => Ok(Entry {
                value,
                key: EntryKey::of_file(""),
                is_removed: false,
                sequence: 0,
            }),
            _ => Err(unfit("the entries of a manifest are no records")),
        }
    }

    fn int(&self, name: &str) -> Result<i32> {
        match field(&self.value, name) {
            Some(Value::Int(value)) => Ok(*value),
            _ => Err(lacks(name)),
        }
    }

    fn file(&self) -> Result<&Value> {
        field(&self.value, "data_file").ok_or_else(|| lacks("data_file"))
    }

    fn read_key(&self, is_data: bool) -> Result<EntryKey> {
        let file = self.file()?;
        let path = text(file, "file_path").ok_or_else(|| lacks("file_path"))?;
        let format = text(file, "file_format").unwrap_or_default();
        let is_vector = !is_data && format.eq_ignore_ascii_case("puffin");
        let referenced = match is_vector {
            true => Some(
                text(file, "referenced_data_file").ok_or_else(|| lacks("referenced_data_file"))?,
            ),
            false => None,
        };
        Ok(EntryKey {
            path: path.to_owned(),
            referenced: referenced.map(str::to_owned),
        })
    }

    /// Gives an entry of format version 1 what it has in version 2: the sequence number that its list says of
    /// all such manifests, and that it is a data file.
    fn become_version_2(&mut self, sequence: i64) -> Result<()> {
        if let Some(Value::Record(fields)) = field_mut(&mut self.value, "data_file") {
            fields.push((CONTENT.to_owned(), Value::Int(0)));
        }
        let Value::Record(fields) = &mut self.value else {
            return Err(unfit("the entries of a manifest are no records"));
        };
        for name in [SEQUENCE, FILE_SEQUENCE] {
            let sequence = Value::Union(1, Box::new(Value::Long(sequence)));
            fields.push((name.to_owned(), sequence));
        }
        Ok(())
    }

    /// Gives the file the id of its first row that it inherits.
    fn write_row_id(&mut self, next: &mut Option<u64>, adds_column: bool) -> Result<()> {
        let rows = long(self.file()?, "record_count").ok_or_else(|| lacks("record_count"))?;
        let own = long(self.file()?, ROW_ID);
        let mut id = own;
        if let (None, Some(next)) = (own, next.as_mut()) {
            id = i64::try_from(*next).ok();
            *next = next.saturating_add(u64::try_from(rows).unwrap_or(0));
        }
        let Some(Value::Record(fields)) = field_mut(&mut self.value, "data_file") else {
            return Err(lacks("data_file"));
        };
        if adds_column {
            fields.push((ROW_ID.to_owned(), Value::Union(0, Box::new(Value::Null))));
        }
        let place = fields.iter_mut().find(|(name, _)| name == ROW_ID);
        let (_, place) = place.ok_or_else(|| lacks(ROW_ID))?;
        if let (None, Some(id)) = (own, id) {
            put_long(place, id);
        }
        Ok(())
    }

    /// Writes down what the entry inherits, and its new status.
    fn settle(&mut self, listed: &ManifestFile, snapshot_id: i64) -> Result<()> {
        let added = self.int("status")? == ADDED;
        let inherited = [
            ("snapshot_id", Some(listed.added_snapshot_id)),
            (SEQUENCE, added.then_some(listed.sequence_number)),
            (FILE_SEQUENCE, added.then_some(listed.sequence_number)),
        ];
        for (name, value) in inherited {
            let place = field_mut(&mut self.value, name).ok_or_else(|| lacks(name))?;
            match (as_long(place), value) {
                (Some(_), _) => {}
                (None, Some(value)) => put_long(place, value),
                (None, None) => return Err(unfit("an entry of a manifest has no sequence number")),
            }
        }
        self.sequence = long(&self.value, SEQUENCE).ok_or_else(|| lacks(SEQUENCE))?;
        if self.is_removed {
            let place = field_mut(&mut self.value, "snapshot_id");
            put_long(place.ok_or_else(|| lacks("snapshot_id"))?, snapshot_id);
        }
        let status = if self.is_removed { DELETED } else { EXISTING };
        *field_mut(&mut self.value, "status").ok_or_else(|| lacks("status"))? = Value::Int(status);
        Ok(())
    }
}

/// What the new manifest says of itself.
#[derive(Default)]
struct Tally {
    kept: (u32, u64),
    gone: (u32, u64),
    sequence_min: Option<i64>,
    first_row_id: Option<u64>,
    removed: Vec<EntryKey>,
    counts: FileCounts,
}

impl Tally {
    fn add(&mut self, entry: &Entry, is_data: bool) -> Result<()> {
        let file = entry.file()?;
        let number = |name| {
            let value = long(file, name).and_then(|value| u64::try_from(value).ok());
            value.ok_or_else(|| lacks(name))
        };
        let rows = number("record_count")?;
        let row_id = long(file, ROW_ID).and_then(|id| u64::try_from(id).ok());
        self.first_row_id = self.first_row_id.into_iter().chain(row_id).min();
        if !entry.is_removed {
            self.kept = (self.kept.0 + 1, self.kept.1.saturating_add(rows));
            let least = self.sequence_min.into_iter().chain([entry.sequence]).min();
            self.sequence_min = least;
            return Ok(());
        }
        self.gone = (self.gone.0 + 1, self.gone.1.saturating_add(rows));
        self.removed.push(entry.key.clone());
        let mut counts = FileCounts {
            bytes: number("file_size_in_bytes")?,
            ..FileCounts::default()
        };
        match (is_data, long(file, "content"), &entry.key.referenced) {
            (true, ..) => {
                counts.data_files = 1;
                counts.records = rows;
            }
            (false, Some(2), _) => {
                counts.equality_delete_files = 1;
                counts.equality_deletes = rows;
            }
            (false, _, Some(_)) => {
                counts.deletion_vectors = 1;
                counts.position_deletes = rows;
                counts.bytes = number("content_size_in_bytes")?;
            }
            (false, _, None) => {
                counts.position_delete_files = 1;
                counts.position_deletes = rows;
            }
        }
        self.counts.add(&counts);
        Ok(())
    }

    fn listed(&self, old: &ManifestFile, snapshot_id: i64) -> ManifestFile {
        let mut manifest = old.clone();
        manifest.manifest_path = String::new();
        manifest.manifest_length = 0;
        manifest.sequence_number = UNASSIGNED;
        manifest.min_sequence_number = self.sequence_min.unwrap_or(UNASSIGNED);
        manifest.added_snapshot_id = snapshot_id;
        manifest.added_files_count = Some(0);
        manifest.added_rows_count = Some(0);
        manifest.existing_files_count = Some(self.kept.0);
        manifest.existing_rows_count = Some(self.kept.1);
        manifest.deleted_files_count = Some(self.gone.0);
        manifest.deleted_rows_count = Some(self.gone.1);
        manifest
    }
}

fn field<'v>(record: &'v Value, name: &str) -> Option<&'v Value> {
    let Value::Record(fields) = record else {
        return None;
    };
    let found = fields.iter().find(|(field, _)| field == name);
    found.map(|(_, value)| value)
}

fn field_mut<'v>(record: &'v mut Value, name: &str) -> Option<&'v mut Value> {
    let Value::Record(fields) = record else {
        return None;
    };
    let found = fields.iter_mut().find(|(field, _)| field == name);
    found.map(|(_, value)| value)
}

fn as_long(value: &Value) -> Option<i64> {
    match value {
        Value::Union(_, inner) => as_long(inner),
        Value::Long(value) => Some(*value),
        Value::Int(value) => Some(i64::from(*value)),
        _ => None,
    }
}

fn long(record: &Value, name: &str) -> Option<i64> {
    field(record, name).and_then(as_long)
}

fn text<'v>(record: &'v Value, name: &str) -> Option<&'v str> {
    match field(record, name)? {
        Value::String(text) => Some(text),
        Value::Union(_, inner) => match inner.as_ref() {
            Value::String(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// Puts a number where a number or, in a union of two, nothing is.
fn put_long(place: &mut Value, number: i64) {
    let number = Value::Long(number);
    *place = match &*place {
        Value::Union(branch, inner) => {
            let is_null = matches!(**inner, Value::Null);
            let branch = if is_null {
                1 - (*branch).min(1)
            } else {
                *branch
            };
            Value::Union(branch, Box::new(number))
        }
        _ => number,
    };
}

fn lacks(name: &str) -> SinkError {
    SinkError::fatal(
        "METADATA_FORMAT",
        format!("an entry of a manifest lacks `{name}`"),
    )
}

fn unfit(what: &'static str) -> SinkError {
    SinkError::fatal("METADATA_FORMAT", what)
}

fn malformed(error: apache_avro::Error) -> SinkError {
    unfit("a manifest cannot be read or written as its schema says").caused_by(error)
}
