//! The columns that identify a row.

use std::collections::BTreeSet;
use std::sync::Arc;

use iceberg::spec::{NestedField, NestedFieldRef, PrimitiveType, Schema, StructType, Type};

use super::{column_missing, find};
use crate::change::KeyPlan;
use crate::config::TableConfig;
use crate::error::{Result, SinkError};

/// Returns `schema` with the id columns as its identifier; they and the structs around them become
/// required.
///
/// # Errors
///
/// `CREATE_COLUMN_MISSING`, `ID_COLUMNS_INVALID`.
pub fn with_identifier(schema: Schema, config: &TableConfig) -> Result<Schema> {
    if config.id_columns.is_empty() {
        return Ok(schema);
    }
    let mut identifier = Vec::with_capacity(config.id_columns.len());
    let mut required = BTreeSet::new();
    for name in &config.id_columns {
        let field = find(&schema, name, config.case_insensitive)
            .ok_or_else(|| super::spec::not_in_record("id-columns", name))?;
        let Some(path) = path_to(schema.as_struct(), field.id) else {
            return Err(invalid(name));
        };
        identifier.push(field.id);
        required.extend(path);
    }
    let fields = require(schema.as_struct().fields(), &required);
    Schema::builder()
        .with_fields(fields)
        .with_identifier_field_ids(identifier)
        .build()
        .map_err(|error| invalid(&config.id_columns.join(", ")).caused_by(error))
}

/// Checks that an existing table has the id columns, and that they can identify a row.
pub fn check(schema: &Schema, config: &TableConfig) -> Result<()> {
    for name in &config.id_columns {
        let field = find(schema, name, config.case_insensitive)
            .ok_or_else(|| column_missing("ID_COLUMN_MISSING", "id-columns", name))?;
        let identifies = match field.field_type.as_ref() {
            Type::Primitive(PrimitiveType::Float | PrimitiveType::Double) => false,
            Type::Primitive(_) => path_to(schema.as_struct(), field.id).is_some(),
            _ => false,
        };
        if !identifies {
            return Err(invalid(name));
        }
    }
    Ok(())
}

/// Returns how keys become bytes in a table with changes: those of its id columns, or of its
/// identifier fields when the configuration names none.
///
/// # Errors
///
/// `ID_COLUMN_MISSING`, `CHANGE_KEY_UNSUPPORTED`, and `CHANGE_KEY_MISSING` when there is no key.
pub fn key_plan(schema: &Schema, id_columns: &[String], case_insensitive: bool) -> Result<KeyPlan> {
    let named = id_columns.iter().map(|name| {
        let field = find(schema, name, case_insensitive);
        let field = field.ok_or_else(|| column_missing("ID_COLUMN_MISSING", "id-columns", name))?;
        Ok(field.id)
    });
    let named = named.collect::<Result<Vec<i32>>>()?;
    let plan = match named.is_empty() {
        true => KeyPlan::of(schema, schema.identifier_field_ids())?,
        false => KeyPlan::of(schema, named)?,
    };
    plan.ok_or_else(crate::change::plan::key_missing)
}

fn invalid(name: &str) -> SinkError {
    SinkError::config(
        "ID_COLUMNS_INVALID",
        "`id-columns` cannot identify rows: name columns outside of lists and maps, of a type \
         other than float, double, list, map and struct",
    )
    .with("column", name)
}

/// Returns the ids from the root to the column `id`, through structs only.
fn path_to(parent: &StructType, id: i32) -> Option<Vec<i32>> {
    parent.fields().iter().find_map(|field| {
        if field.id == id {
            return Some(vec![id]);
        }
        let Type::Struct(children) = field.field_type.as_ref() else {
            return None;
        };
        let mut path = path_to(children, id)?;
        path.push(field.id);
        Some(path)
    })
}

fn require(fields: &[NestedFieldRef], required: &BTreeSet<i32>) -> Vec<NestedFieldRef> {
    fields
        .iter()
        .map(|field| {
            if !required.contains(&field.id) {
                return Arc::clone(field);
            }
            let mut field: NestedField = field.as_ref().clone();
            field.required = true;
            if let Type::Struct(children) = field.field_type.as_ref() {
                let children = require(children.fields(), required);
                field.field_type = Box::new(Type::Struct(StructType::new(children)));
            }
            Arc::new(field)
        })
        .collect()
}
