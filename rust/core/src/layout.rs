//! What a table's configuration means for the table's metadata: identifier fields, keys, partition
//! specs and sort orders by the names of columns, for tables that are created and for those that are
//! there.
//!
//! Not here: how rows are cut and sorted by them (`partition`), and the schema itself (`schema`).

pub mod changed;
pub mod identifier;
pub mod sort;
pub mod spec;
#[cfg(test)]
mod tests;

use iceberg::spec::{NestedFieldRef, Schema, TableMetadata};

use crate::config::{EvolutionMode, SpecPolicy, TableConfig};
use crate::error::{Result, SinkError};

/// Finds the column `path`, dots for what is inside of structs.
pub(crate) fn find<'s>(
    schema: &'s Schema,
    path: &str,
    case_insensitive: bool,
) -> Option<&'s NestedFieldRef> {
    let exact = schema.field_by_name(path);
    match case_insensitive {
        true => exact.or_else(|| schema.field_by_name_case_insensitive(path)),
        false => exact,
    }
}

/// Checks that an existing table fits what `config` says of its layout.
///
/// # Errors
///
/// Of kind `Config`: a column that the table does not have, an order or partitioning that the
/// types of its columns do not allow, or another partitioning when the policy is `fail`.
pub fn check_existing(metadata: &TableMetadata, config: &TableConfig) -> Result<()> {
    let schema = metadata.current_schema();
    identifier::check(schema, config)?;
    changed::check(metadata, config)?;
    sort::check(schema, config)?;
    spec::check(metadata, config)
}

/// Says that the table lacks a column that the key `key` names.
fn column_missing(code: &'static str, key: &str, column: &str) -> SinkError {
    SinkError::config(
        code,
        format!(
            "`{key}` names column `{column}`, which the table does not have; correct the name or \
             add the column"
        ),
    )
    .with("column", column)
}

/// Tells whether a column that is missing may still come with a record.
fn may_come(config: &TableConfig) -> bool {
    config.evolution.mode != EvolutionMode::Off
}

/// Tells whether the table's partitioning is to become the configured one.
pub fn evolves_spec(config: &TableConfig) -> bool {
    config.layout.spec_policy == SpecPolicy::Evolve && !config.partition_by.is_empty()
}
