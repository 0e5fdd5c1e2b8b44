//! What a table looks like that is created for its first record.

use frazil_core::config::TableConfig;
use frazil_core::layout::{identifier, sort, spec};
use frazil_core::schema::contract::MAPPING_PROPERTY;
use frazil_core::schema::metadata::resolved;
use frazil_core::schema::types::{CreateOptions, table_schema};
use frazil_core::wire::Frame;
use frazil_core::{ErrorKind, Result, SinkError};
use iceberg::spec::{FormatVersion, Schema};

use crate::catalog::CreateTable;

/// Returns the table for the first of `rows` that has a schema, `None` when none has one.
///
/// # Errors
///
/// Of kind `Config` when a column of the partitioning, of the sort order or of the identifier is not
/// in the record.
pub(crate) fn creation_of(
    config: &TableConfig,
    frame: &Frame<'_>,
    rows: &[u32],
) -> Result<Option<CreateTable>> {
    for row in rows {
        match schema_of(config, frame, *row) {
            Ok(Some(schema)) => return creation(config, schema).map(Some),
            Ok(None) => {}
            // Such a record is rejected on its own account.
            Err(error) if error.kind() == ErrorKind::Data => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Says why no table was made for `row`.
pub(super) fn refusal(config: &TableConfig, frame: &Frame<'_>, row: u32) -> SinkError {
    match schema_of(config, frame, row) {
        Err(error) if error.code() != "SCHEMA_EMPTY" => error,
        _ => SinkError::data(
            "TABLE_SCHEMA_UNKNOWN",
            "the table does not exist and the record has no field to create it from; create the \
             table, or send a record with fields first",
        ),
    }
}

/// Returns the schema of the table that `row` would make; `None` when it does not say what a column
/// for its key or headers would be.
fn schema_of(config: &TableConfig, frame: &Frame<'_>, row: u32) -> Result<Option<Schema>> {
    let (metadata_columns, complete) = resolved(&config.metadata_columns, frame, row);
    if !complete {
        return Ok(None);
    }
    let options = CreateOptions {
        force_optional: config.force_optional,
        metadata_columns,
        is_v3: config.creates_v3(),
    };
    table_schema(frame.value(row as usize), &options).map(Some)
}

fn creation(config: &TableConfig, schema: Schema) -> Result<CreateTable> {
    let schema = identifier::with_identifier(schema, config)?;
    let mut properties = config.auto_create_props.clone();
    properties
        .entry(MAPPING_PROPERTY.to_owned())
        .or_insert_with(|| config.mapping_version.to_string());
    Ok(CreateTable {
        partition_spec: spec::of_new_table(&schema, config)?,
        sort_order: sort::of_new_table(&schema, config)?,
        schema,
        location: config.layout.location.clone(),
        properties,
        format_version: FormatVersion::V2,
    })
}
