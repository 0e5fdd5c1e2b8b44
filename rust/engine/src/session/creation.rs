//! What a table looks like that is created for its first record.

use frazil_core::config::{PartitionTerm, TableConfig};
use frazil_core::schema::metadata::resolved;
use frazil_core::schema::types::{CreateOptions, table_schema};
use frazil_core::wire::Frame;
use frazil_core::{ErrorKind, Result, SinkError};
use iceberg::spec::{FormatVersion, NestedField, Schema, Transform, UnboundPartitionSpec};
use std::sync::Arc;

use crate::catalog::CreateTable;

/// Returns the table for the first of `rows` that has a schema, `None` when none has one.
///
/// # Errors
///
/// Of kind `Config` when a column of the partitioning or of the identifier is not in the record.
pub(crate) fn creation_of(
    config: &TableConfig,
    frame: &Frame<'_>,
    rows: &[u32],
) -> Result<Option<CreateTable>> {
    for row in rows {
        let (metadata_columns, complete) = resolved(&config.metadata_columns, frame, *row);
        if !complete {
            continue;
        }
        let options = CreateOptions {
            force_optional: config.force_optional,
            metadata_columns,
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
    let schema = with_identifier(config, schema)?;
    let partition_spec = match config.partition_by.as_slice() {
        [] => None,
        terms => Some(partition_spec(&schema, terms)?),
    };
    Ok(CreateTable {
        schema,
        partition_spec,
        sort_order: None,
        location: None,
        properties: config.auto_create_props.clone(),
        format_version: FormatVersion::V2,
    })
}

/// Makes the id columns required and the identifier of the table.
fn with_identifier(config: &TableConfig, schema: Schema) -> Result<Schema> {
    if config.id_columns.is_empty() {
        return Ok(schema);
    }
    let mut fields = schema.as_struct().fields().to_vec();
    let mut identifier = Vec::with_capacity(config.id_columns.len());
    for name in &config.id_columns {
        let Some(field) = fields.iter_mut().find(|field| field.name == *name) else {
            return Err(column_missing("id-columns", name));
        };
        let mut required: NestedField = field.as_ref().clone();
        required.required = true;
        identifier.push(required.id);
        *field = Arc::new(required);
    }
    Schema::builder()
        .with_fields(fields)
        .with_identifier_field_ids(identifier)
        .build()
        .map_err(|error| {
            SinkError::config(
                "ID_COLUMNS_INVALID",
                "`id-columns` cannot identify rows: name columns of a type other than float, \
                 double, list, map and struct",
            )
            .caused_by(error)
        })
}

fn partition_spec(schema: &Schema, terms: &[PartitionTerm]) -> Result<UnboundPartitionSpec> {
    let mut builder = UnboundPartitionSpec::builder();
    for term in terms {
        let Some(source) = schema.field_id_by_name(&term.column) else {
            return Err(column_missing("partition-by", &term.column));
        };
        builder = builder
            .add_partition_field(source, partition_name(term), term.transform)
            .map_err(|error| {
                SinkError::config(
                    "PARTITION_BY_INVALID",
                    "`partition-by` makes no partition spec: name each column and transform once",
                )
                .with("column", &term.column)
                .caused_by(error)
            })?;
    }
    Ok(builder.build())
}

/// The names that Iceberg's own builder gives.
fn partition_name(term: &PartitionTerm) -> String {
    let suffix = match term.transform {
        Transform::Year => "_year",
        Transform::Month => "_month",
        Transform::Day => "_day",
        Transform::Hour => "_hour",
        Transform::Bucket(_) => "_bucket",
        Transform::Truncate(_) => "_trunc",
        Transform::Void => "_null",
        Transform::Identity | Transform::Unknown => "",
    };
    format!("{}{suffix}", term.column)
}

fn column_missing(key: &str, column: &str) -> SinkError {
    SinkError::config(
        "CREATE_COLUMN_MISSING",
        format!(
            "`{key}` names column `{column}`, which the first record does not have; correct the \
             name, or create the table yourself"
        ),
    )
}
