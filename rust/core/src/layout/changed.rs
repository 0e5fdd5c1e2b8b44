//! What a table has to be like for its rows to be changed.

use std::collections::BTreeMap;

use iceberg::spec::TableMetadata;

use super::identifier::key_plan;
use super::{column_missing, find, may_come};
use crate::change::plan::key_missing;
use crate::change::{ChangePlan, DeleteMode};
use crate::config::{TableConfig, engines};
use crate::error::{Result, SinkError};
use crate::schema::names::Aliases;

/// Properties that say how engines delete, update and merge.
const MODES: [&str; 3] = ["write.delete.mode", "write.update.mode", "write.merge.mode"];
/// The only word of these that is done here. A table that has none of them leaves it to its writers.
const MERGE_ON_READ: &str = "merge-on-read";

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
/// As [`change_plan`]; `CHANGE_MODE_UNSUPPORTED`, `DELETE_MODE_UNFIT`, `ENGINE_READS_NO_DELETES`,
/// `ORDER_COLUMN_MISSING`.
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
    let version = metadata.format_version() as u8;
    engines::check(&config.engines, version)?;
    check_version(config, version)?;
    check_modes(config, metadata.properties())
}

/// Checks that a table that is to be created would have a key, if its rows are to be changed, and that
/// they may be.
///
/// # Errors
///
/// `CHANGE_KEY_MISSING`, `CHANGE_MODE_UNSUPPORTED`, `DELETE_MODE_UNFIT`, `ENGINE_READS_NO_DELETES`.
pub fn check_new(config: &TableConfig) -> Result<()> {
    if config.changes.is_none() {
        return Ok(());
    }
    if config.id_columns.is_empty() {
        return Err(key_missing());
    }
    let version = if config.creates_v3() { 3 } else { 2 };
    engines::check(&config.engines, version)?;
    check_version(config, version)?;
    check_modes(config, &config.auto_create_props)
}

/// Checks that a table of this format version deletes as the configuration says.
fn check_version(config: &TableConfig, version: u8) -> Result<()> {
    let mode = config.changes.as_ref().map(|changes| changes.delete_mode);
    let (mode, needed, remedy) = match mode {
        Some(DeleteMode::Vector) if version < 3 => (
            "vector",
            3,
            "create it with `auto-create-props.format-version=3`, or upgrade it",
        ),
        Some(DeleteMode::Position) if version > 2 => (
            "position",
            2,
            "a table cannot go back, so write into another one",
        ),
        _ => return Ok(()),
    };
    let message = format!(
        "`delete-mode={mode}` needs a table of format version {needed}, and this one has version \
         {version}: {remedy}, or set `delete-mode=auto`"
    );
    Err(SinkError::config("DELETE_MODE_UNFIT", message))
}

fn check_modes<'p>(
    config: &'p TableConfig,
    properties: impl IntoIterator<Item = (&'p String, &'p String)>,
) -> Result<()> {
    let mut modes: BTreeMap<&str, &str> = BTreeMap::new();
    let properties = properties.into_iter().chain(&config.write_props);
    modes.extend(properties.map(|(name, value)| (name.as_str(), value.as_str())));
    for mode in MODES {
        if let Some(word) = modes.get(mode)
            && !word.eq_ignore_ascii_case(MERGE_ON_READ)
        {
            let message = format!(
                "the table has `{mode}={word}`, and this version deletes rows with delete files: \
                 set it to `merge-on-read`, or append to the table"
            );
            return Err(SinkError::config("CHANGE_MODE_UNSUPPORTED", message));
        }
    }
    Ok(())
}
