//! Reads table metadata, and says what is wrong with metadata that the crate cannot read.

use std::collections::BTreeMap;

use frazil_core::{Result, SinkError};
use iceberg::spec::TableMetadata;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// Column types of the specification that this version cannot read.
const UNSUPPORTED_TYPES: [&str; 4] = ["variant", "geometry", "geography", "unknown"];

/// The newest format version that this version reads.
const FORMAT_VERSION_MAX: u64 = 3;

/// The fields of table metadata that the crate keeps when it writes what it has read.
const KEPT_FIELDS: [&str; 26] = [
    "format-version",
    "table-uuid",
    "location",
    "last-sequence-number",
    "last-updated-ms",
    "last-column-id",
    "schema",
    "schemas",
    "current-schema-id",
    "partition-spec",
    "partition-specs",
    "default-spec-id",
    "last-partition-id",
    "properties",
    "current-snapshot-id",
    "snapshots",
    "snapshot-log",
    "metadata-log",
    "sort-orders",
    "default-sort-order-id",
    "refs",
    "statistics",
    "partition-statistics",
    "next-row-id",
    "encryption-keys",
    "row-lineage",
];

/// Returns an error if metadata has a field that would be lost by writing it anew, as a commit
/// without a server does.
pub(super) fn require_kept(json: &[u8]) -> Result<()> {
    let fields: BTreeMap<String, IgnoredAny> =
        serde_json::from_slice(json).map_err(|error| invalid(&error.to_string()))?;
    match fields
        .keys()
        .find(|field| !KEPT_FIELDS.contains(&field.as_str()))
    {
        None => Ok(()),
        Some(field) => Err(unsupported("its metadata has a field that would be lost")
            .with("field", crate::redact::foreign(field))),
    }
}

/// Parses table metadata.
pub(super) fn parse(json: &[u8]) -> Result<TableMetadata> {
    serde_json::from_slice(json).map_err(|error| match serde_json::from_slice(json) {
        Ok(value) => diagnose(&value, &error.to_string()),
        Err(_) => invalid(&error.to_string()),
    })
}

/// Parses table metadata that is part of an answer.
pub(super) fn parse_value(value: &Value) -> Result<TableMetadata> {
    TableMetadata::deserialize(value).map_err(|error| diagnose(value, &error.to_string()))
}

fn invalid(reason: &str) -> SinkError {
    SinkError::fatal(
        "TABLE_METADATA_INVALID",
        "the table's metadata cannot be read",
    )
    .with("reason", crate::redact::foreign(reason))
}

/// The crate reports only that no variant matched; the reason is looked for here.
fn diagnose(metadata: &Value, reason: &str) -> SinkError {
    let version = metadata.get("format-version").and_then(Value::as_u64);
    if let Some(version) = version.filter(|version| *version > FORMAT_VERSION_MAX) {
        return unsupported("its format version is newer than this sink").with("version", version);
    }
    let schemas = metadata.get("schemas").and_then(Value::as_array);
    for schema in schemas.into_iter().flatten() {
        if let Some((column, type_name)) = unsupported_column(schema, 0) {
            return unsupported("a column has a type that this sink cannot keep")
                .with("column", crate::redact::foreign(&column))
                .with("type", type_name);
        }
    }
    invalid(reason)
}

fn unsupported(reason: &str) -> SinkError {
    SinkError::fatal(
        "TABLE_METADATA_UNSUPPORTED",
        format!("the table cannot be written: {reason}"),
    )
}

/// Returns the first column of an unsupported type in a struct type.
fn unsupported_column(type_json: &Value, depth: usize) -> Option<(String, &'static str)> {
    if depth > frazil_core::limits::NESTING_MAX {
        return None;
    }
    let fields = type_json.get("fields").and_then(Value::as_array);
    for field in fields.into_iter().flatten() {
        let name = field.get("name").and_then(Value::as_str).unwrap_or("?");
        if let Some(found) = unsupported_type(field.get("type")?, name, depth) {
            return Some(found);
        }
    }
    None
}

fn unsupported_type(type_json: &Value, name: &str, depth: usize) -> Option<(String, &'static str)> {
    if let Some(text) = type_json.as_str() {
        let known = UNSUPPORTED_TYPES.iter().find(|known| {
            text == **known
                || text
                    .strip_prefix(**known)
                    .is_some_and(|rest| rest.starts_with('('))
        });
        return known.map(|known| (name.to_string(), *known));
    }
    for part in ["element", "key", "value"] {
        let found = type_json
            .get(part)
            .and_then(|part| unsupported_type(part, name, depth + 1));
        if found.is_some() {
            return found;
        }
    }
    unsupported_column(type_json, depth + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(type_json: &str) -> String {
        format!(
            r#"{{"format-version":3,"schemas":[{{"type":"struct","schema-id":0,"fields":[
            {{"id":1,"name":"v","required":false,"type":{type_json}}}]}}]}}"#
        )
    }

    #[test]
    fn a_type_that_is_not_supported_is_named_with_its_column() {
        for (type_json, name) in [
            (r#""variant""#, "variant"),
            (r#""geometry(srid:3857)""#, "geometry"),
            (
                r#"{"type":"list","element-id":2,"element":"unknown","element-required":false}"#,
                "unknown",
            ),
            (
                r#"{"type":"struct","fields":[{"id":3,"name":"in","required":false,"type":"geography"}]}"#,
                "geography",
            ),
        ] {
            let error = parse(metadata(type_json).as_bytes()).unwrap_err();
            assert_eq!(error.code(), "TABLE_METADATA_UNSUPPORTED", "{type_json}");
            assert_eq!(error.context()[1], ("type", name.to_string()));
        }
    }

    #[test]
    fn a_field_that_would_be_lost_is_named() {
        require_kept(br#"{"format-version":3,"next-row-id":1}"#).unwrap();
        let error = require_kept(br#"{"format-version":3,"new-thing":{"a":[1]}}"#).unwrap_err();
        assert_eq!(error.code(), "TABLE_METADATA_UNSUPPORTED");
        assert_eq!(error.context()[0], ("field", "new-thing".to_string()));
    }

    #[test]
    fn a_newer_version_and_nonsense_are_told_apart() {
        let error = parse(br#"{"format-version":4}"#).unwrap_err();
        assert_eq!(error.code(), "TABLE_METADATA_UNSUPPORTED");
        for text in ["{}", "not json", r#"{"format-version":2}"#] {
            assert_eq!(
                parse(text.as_bytes()).unwrap_err().code(),
                "TABLE_METADATA_INVALID"
            );
        }
    }
}
