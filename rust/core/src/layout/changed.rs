//! What a table has to be like for its rows to be changed.

use std::collections::BTreeMap;

use iceberg::spec::TableMetadata;

use super::identifier::key_plan;
use super::{column_missing, find, may_come};
use crate::change::ChangePlan;
use crate::change::plan::key_missing;
use crate::config::{TableConfig, engines};
use crate::error::{Result, SinkError};
use crate::schema::names::Aliases;

/// Properties that say how engines delete, update and merge.
const MODES: [&str; 3] = ["write.delete.mode", "write.update.mode", "write.merge.mode"];
const COPY_ON_WRITE: &str = "copy-on-write";

/// Returns how the changes of a table are read; `None` when rows are appended.
///
/// # Errors
///
/// `CHANGE_KEY_MISSING`, `CHANGE_KEY_UNSUPPORTED`, `CHANGE_ORDER_UNSUPPORTED`, `ID_COLUMN_MISSING`,
/// `NAME_MAPPING_INVALID`.
pub fn change_plan(metadata: &TableMetadata, config: &TableConfig) -> Result<Option<ChangePlan>> {
    let Some(changes) = &config.changes else {
        return Ok(None);
    };
    let schema = metadata.current_schema();
    let key = key_plan(schema, &config.id_columns, config.case_insensitive)?;
    let aliases = Aliases::of(|property| metadata.properties().get(property))?;
    ChangePlan::new(changes.clone(), schema, Some(key), &aliases).map(Some)
}

/// Checks that the rows of an existing table can be changed, if they are to be.
///
/// # Errors
///
/// As [`change_plan`]; `CHANGE_MODE_UNSUPPORTED`, `ENGINE_READS_NO_DELETES`, `ORDER_COLUMN_MISSING`.
pub fn check(metadata: &TableMetadata, config: &TableConfig) -> Result<()> {
    let Some(plan) = change_plan(metadata, config)? else {
        return Ok(());
    };
    for column in &plan.config().order_columns {
        let found = find(metadata.current_schema(), column, config.case_insensitive);
        if found.is_none() && !may_come(config) {
            return Err(column_missing(
                "ORDER_COLUMN_MISSING",
                "order-columns",
                column,
            ));
        }
    }
    engines::check(&config.engines, metadata.format_version() as u8)?;
    check_modes(config, metadata.properties())
}

/// Checks that a table that is to be created would have a key, if its rows are to be changed, and that
/// they may be.
///
/// # Errors
///
/// `CHANGE_KEY_MISSING`, `CHANGE_MODE_UNSUPPORTED`, `ENGINE_READS_NO_DELETES`.
pub fn check_new(config: &TableConfig) -> Result<()> {
    if config.changes.is_none() {
        return Ok(());
    }
    if config.id_columns.is_empty() {
        return Err(key_missing());
    }
    let version = if config.creates_v3() { 3 } else { 2 };
    engines::check(&config.engines, version)?;
    check_modes(config, &config.auto_create_props)
}

fn check_modes<'p>(
    config: &'p TableConfig,
    properties: impl IntoIterator<Item = (&'p String, &'p String)>,
) -> Result<()> {
    let mut modes: BTreeMap<&str, &str> = BTreeMap::new();
    let properties = properties.into_iter().chain(&config.write_props);
    modes.extend(properties.map(|(name, value)| (name.as_str(), value.as_str())));
    for mode in MODES {
        let set = modes.get(mode);
        if set.is_some_and(|word| word.eq_ignore_ascii_case(COPY_ON_WRITE)) {
            let message = format!(
                "the table has `{mode}=copy-on-write`, and this version deletes rows with delete files: \
                 set it to `merge-on-read`, or append to the table"
            );
            return Err(SinkError::config("CHANGE_MODE_UNSUPPORTED", message));
        }
    }
    Ok(())
}
