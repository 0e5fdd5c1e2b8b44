//! What a table looks like that is created for its first record.

use frazil_core::config::TableConfig;
use frazil_core::layout::{identifier, sort, spec};
use frazil_core::schema::contract::MAPPING_PROPERTY;
use frazil_core::schema::metadata::resolved;
use frazil_core::schema::types::{CreateOptions, table_schema};
use frazil_core::wire::Frame;
use frazil_core::{ErrorKind, Result};
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
    // What version 2 has no type for.
    let version = config.auto_create_props.get("format-version");
    let nanoseconds = version.map(String::as_str) == Some("3");
    for row in rows {
        let (metadata_columns, complete) = resolved(&config.metadata_columns, frame, *row);
        if !complete {
            continue;
        }
        let options = CreateOptions {
            force_optional: config.force_optional,
            metadata_columns,
            nanoseconds,
        };
        match table_schema(frame.value(*row as usize), &options) {
            Ok(schema) => return creation(config, schema).map(Some),
            // Such a record is rejected on its own account once there is a table.
            Err(error) if error.kind() == ErrorKind::Data => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
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
