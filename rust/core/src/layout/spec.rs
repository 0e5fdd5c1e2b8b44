//! Partition specs: of a table that is created, and the change of one that is there.
//!
//! A field of a new spec that an older one of the table has already (same column, same transform)
//! keeps its id and name, so that the partition values of all files stay comparable. Others get the
//! next id that the table never used, and a name that nothing else in the table has.

use std::collections::BTreeSet;

use iceberg::spec::{
    PartitionField, PartitionSpec, Schema, TableMetadata, Transform, UnboundPartitionField,
    UnboundPartitionSpec,
};
use iceberg::{TableRequirement, TableUpdate};

use super::{column_missing, find, may_come};
use crate::commit::plan::CommitPlan;
use crate::config::{PartitionTerm, SpecPolicy, TableConfig};
use crate::error::{Result, SinkError};
use crate::partition::{Partitioner, refuse_uuid};

/// How an existing table's default spec stands to the configured one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It is the same, or nothing is configured.
    Same,
    /// It is another one.
    Differs,
    /// It cannot be the same: the table has no such column.
    ColumnMissing(String),
}

/// Returns the spec of a table that is created with `schema`, `None` for an unpartitioned one.
///
/// # Errors
///
/// `CREATE_COLUMN_MISSING`, `PARTITION_BY_INVALID`, `PARTITION_UNSUPPORTED`.
pub fn of_new_table(schema: &Schema, config: &TableConfig) -> Result<Option<UnboundPartitionSpec>> {
    if config.partition_by.is_empty() {
        return Ok(None);
    }
    let mut builder = UnboundPartitionSpec::builder();
    for term in &config.partition_by {
        let source = find(schema, &term.column, config.case_insensitive)
            .ok_or_else(|| not_in_record("partition-by", &term.column))?;
        let name = name_of(schema.name_by_field_id(source.id), term);
        builder = builder
            .add_partition_field(source.id, name, term.transform)
            .map_err(|error| invalid(error).with("column", &term.column))?;
    }
    let spec = builder.build();
    let bound = spec.clone().bind(schema.clone()).map_err(invalid)?;
    check_writable(&bound, schema)?;
    Ok(Some(spec))
}

/// Tells how the table's default spec stands to what `config` says.
pub fn standing(metadata: &TableMetadata, config: &TableConfig) -> Standing {
    if config.partition_by.is_empty() {
        return Standing::Same;
    }
    let wanted = match wanted(metadata.current_schema(), config) {
        Ok(wanted) => wanted,
        Err(missing) => return Standing::ColumnMissing(missing),
    };
    let is_same = same_fields(metadata.default_partition_spec(), &wanted);
    if is_same {
        Standing::Same
    } else {
        Standing::Differs
    }
}

/// Plans to give the table the configured partitioning; `None` when it has it.
///
/// # Errors
///
/// `PARTITION_COLUMN_MISSING`, `PARTITION_BY_INVALID`, `PARTITION_UNSUPPORTED`.
pub fn plan_change(metadata: &TableMetadata, config: &TableConfig) -> Result<Option<CommitPlan>> {
    match standing(metadata, config) {
        Standing::Same => return Ok(None),
        Standing::ColumnMissing(column) => return Err(missing(&column)),
        Standing::Differs => {}
    }
    let schema = metadata.current_schema();
    let wanted = wanted(schema, config).map_err(|column| missing(&column))?;
    let known = metadata
        .partition_specs_iter()
        .find(|spec| same_fields(spec, &wanted) && !has_void(spec));
    let updates = match known {
        Some(spec) => vec![TableUpdate::SetDefaultSpec {
            spec_id: spec.spec_id(),
        }],
        None => vec![
            TableUpdate::AddSpec {
                spec: new_spec(metadata, &wanted)?,
            },
            TableUpdate::SetDefaultSpec { spec_id: -1 },
        ],
    };
    check_change(metadata, &updates)?;
    Ok(Some(CommitPlan {
        requirements: vec![
            TableRequirement::UuidMatch {
                uuid: metadata.uuid(),
            },
            TableRequirement::CurrentSchemaIdMatch {
                current_schema_id: metadata.current_schema_id(),
            },
            TableRequirement::LastAssignedPartitionIdMatch {
                last_assigned_partition_id: metadata.last_partition_id(),
            },
            TableRequirement::DefaultSpecIdMatch {
                default_spec_id: metadata.default_partition_spec_id(),
            },
        ],
        updates,
    }))
}

/// Checks an existing table at the start of a task.
pub fn check(metadata: &TableMetadata, config: &TableConfig) -> Result<()> {
    match (config.layout.spec_policy, standing(metadata, config)) {
        (SpecPolicy::Keep, _) | (_, Standing::Same) => Ok(()),
        (SpecPolicy::Fail, Standing::Differs) => Err(differs(metadata, config)),
        (SpecPolicy::Evolve, Standing::ColumnMissing(_)) if may_come(config) => Ok(()),
        (_, Standing::ColumnMissing(column)) => Err(missing(&column)),
        (SpecPolicy::Evolve, Standing::Differs) => plan_change(metadata, config).map(|_| ()),
    }
}

/// Says that the first record lacks a column that `key` names.
pub(super) fn not_in_record(key: &str, column: &str) -> SinkError {
    SinkError::config(
        "CREATE_COLUMN_MISSING",
        format!(
            "`{key}` names column `{column}`, which the first record does not have; correct the \
             name, or create the table yourself"
        ),
    )
}

fn differs(metadata: &TableMetadata, config: &TableConfig) -> SinkError {
    SinkError::config(
        "PARTITION_SPEC_DIFFERS",
        "the table is partitioned otherwise than `partition-by` says, and \
         `iceberg.tables.partition-spec-policy` is `fail`; correct the key, change the table, or \
         set the policy to `keep` or `evolve`",
    )
    .with("table_spec", describe(metadata))
    .with("table", &config.name)
}

/// Returns the table's default spec in the words of `partition-by`.
pub fn describe(metadata: &TableMetadata) -> String {
    let schema = metadata.current_schema();
    let fields = active(metadata.default_partition_spec());
    let terms: Vec<String> = fields
        .map(|field| {
            let column = schema.name_by_field_id(field.source_id).unwrap_or("?");
            match field.transform {
                Transform::Identity => column.to_owned(),
                Transform::Bucket(n) => format!("bucket({column}, {n})"),
                Transform::Truncate(n) => format!("truncate({column}, {n})"),
                other => format!("{other}({column})"),
            }
        })
        .collect();
    match terms.is_empty() {
        true => "unpartitioned".to_owned(),
        false => terms.join(", "),
    }
}

fn missing(column: &str) -> SinkError {
    column_missing("PARTITION_COLUMN_MISSING", "partition-by", column)
}

fn invalid(error: iceberg::Error) -> SinkError {
    SinkError::config(
        "PARTITION_BY_INVALID",
        "`partition-by` makes no partition spec: name each column and transform once, and only \
         transforms that the column's type allows",
    )
    .caused_by(error)
}

/// Returns the source column ids and transforms that `config` asks for, or the column that is not
/// there. `void` asks for nothing.
fn wanted(schema: &Schema, config: &TableConfig) -> Result<Vec<(i32, Transform)>, String> {
    let terms = config.partition_by.iter();
    terms
        .filter(|term| term.transform != Transform::Void)
        .map(|term| {
            find(schema, &term.column, config.case_insensitive)
                .map(|field| (field.id, term.transform))
                .ok_or_else(|| term.column.clone())
        })
        .collect()
}

/// The fields that cut rows: `void` is what is left of a field that was dropped.
fn active(spec: &PartitionSpec) -> impl Iterator<Item = &PartitionField> {
    let fields = spec.fields().iter();
    fields.filter(|field| field.transform != Transform::Void)
}

fn has_void(spec: &PartitionSpec) -> bool {
    active(spec).count() != spec.fields().len()
}

/// Tells whether the spec cuts rows as wanted, whatever the order and names of its fields.
fn same_fields(spec: &PartitionSpec, wanted: &[(i32, Transform)]) -> bool {
    active(spec).count() == wanted.len()
        && active(spec).all(|field| wanted.contains(&(field.source_id, field.transform)))
}

fn new_spec(metadata: &TableMetadata, wanted: &[(i32, Transform)]) -> Result<UnboundPartitionSpec> {
    let mut taken = names(metadata);
    let mut last = metadata.last_partition_id();
    let mut fields = Vec::with_capacity(wanted.len());
    for (source_id, transform) in wanted {
        let known = metadata
            .partition_specs_iter()
            .flat_map(|spec| spec.fields())
            .find(|field| field.source_id == *source_id && field.transform == *transform);
        let (field_id, name) = match known {
            Some(field) => (field.field_id, field.name.clone()),
            None => {
                last = last.checked_add(1).ok_or_else(|| {
                    SinkError::fatal(
                        "SCHEMA_IDS_EXHAUSTED",
                        "the table has no free partition field id left",
                    )
                })?;
                (
                    last,
                    free_name(metadata, *source_id, *transform, last, &taken),
                )
            }
        };
        taken.insert(name.clone());
        fields.push(UnboundPartitionField {
            source_id: *source_id,
            field_id: Some(field_id),
            name,
            transform: *transform,
        });
    }
    // The catalog gives the id; Iceberg's Java servers cannot read a spec without one.
    let specs = metadata.partition_specs_iter();
    let spec_id = specs.map(|spec| spec.spec_id()).max().unwrap_or(-1);
    UnboundPartitionSpec::builder()
        .with_spec_id(spec_id.saturating_add(1))
        .add_partition_fields(fields)
        .map(|builder| builder.build())
        .map_err(invalid)
}

/// Returns the names of all partition fields and columns that the table has or had.
fn names(metadata: &TableMetadata) -> BTreeSet<String> {
    let columns = metadata.schemas_iter().flat_map(|schema| {
        let fields = schema.as_struct().fields().iter();
        fields.map(|field| field.name.clone())
    });
    let specs = metadata.partition_specs_iter();
    let fields = specs.flat_map(|spec| spec.fields().iter().map(|field| field.name.clone()));
    columns.chain(fields).collect()
}

fn free_name(
    metadata: &TableMetadata,
    source_id: i32,
    transform: Transform,
    field_id: i32,
    taken: &BTreeSet<String>,
) -> String {
    let column = metadata.current_schema().name_by_field_id(source_id);
    let term = PartitionTerm {
        column: column.unwrap_or("field").to_owned(),
        transform,
    };
    let usual = name_of(column, &term);
    if transform == Transform::Identity || !taken.contains(&usual) {
        return usual;
    }
    let sized = match transform {
        Transform::Bucket(n) | Transform::Truncate(n) => format!("{usual}_{n}"),
        _ => format!("{usual}_{field_id}"),
    };
    match taken.contains(&sized) {
        true => format!("{sized}_{field_id}"),
        false => sized,
    }
}

/// The names that Iceberg's own builder gives.
fn name_of(column: Option<&str>, term: &PartitionTerm) -> String {
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
    format!("{}{suffix}", column.unwrap_or(&term.column))
}

/// Applies the change to a copy of the metadata, to be sure that it is one, and that rows can be
/// written after it.
fn check_change(metadata: &TableMetadata, updates: &[TableUpdate]) -> Result<()> {
    let mut builder = metadata.clone().into_builder(None);
    for update in updates {
        builder = update.clone().apply(builder).map_err(invalid)?;
    }
    let changed = builder.build().map_err(invalid)?.metadata;
    check_writable(changed.default_partition_spec(), changed.current_schema())
}

fn check_writable(spec: &PartitionSpec, schema: &Schema) -> Result<()> {
    refuse_uuid(spec, schema)?;
    Partitioner::new(spec, schema).map(|_| ())
}
