//! How a table follows its records: what it has to gain before they fit, and what no change of the
//! table can heal.
//!
//! | change | when |
//! |---|---|
//! | a column or nested field is added | mode `add-only` or `full` |
//! | a type is promoted: int → long, float → double, decimal to more digits, on v3 date → timestamp | mode `full` |
//! | a required column becomes optional | mode `full`, never a key (identifier) column |
//!
//! Nothing is ever removed, renamed or retyped otherwise. New fields are optional and stand behind
//! the others, in the order of the source; in tables of format version 3 with the default that their
//! source has. A field whose type cannot be a column's, or whose name differs from one that exists in
//! nothing but case, is left out; the converter then refuses the records that have a value for it.
//! With evolution off such fields are dropped, as the Apache sink does.
//!
//! `compare` looks at a schema, once, and `values` at records: those without a schema, and those
//! whose schema leaves the size of a number open. Both only say what would be needed; the converter
//! asks for it only for records that then land ([`TableConverter::evolution`]).
//!
//! [`TableConverter::evolution`]: crate::convert::TableConverter::evolution

mod breaking;
mod change;
mod compare;
mod relation;
#[cfg(test)]
mod tests;
mod values;

use std::collections::BTreeSet;
use std::sync::Arc;

use iceberg::spec::{FormatVersion, NestedField, Schema, TableMetadata, Transform, Type};

pub use breaking::{Break, BreakKind};
pub use change::{Addition, Change, Evolution};
pub use compare::Comparison;
pub use values::Probe;

use super::names::{Aliases, NameRules};
use super::types::TypeRules;
pub use crate::config::{BreakingPolicy, EvolutionMode};
use crate::error::Result;

/// How many columns a table may gain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvolutionLimits {
    /// Columns and nested fields that one change of the schema may add.
    pub per_commit: usize,
    /// Columns and nested fields that a table may have after a change.
    pub in_all: usize,
}

impl Default for EvolutionLimits {
    fn default() -> Self {
        EvolutionLimits {
            per_commit: usize::MAX,
            in_all: usize::MAX,
        }
    }
}

/// What of a table's metadata decides how it may grow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableFacts {
    /// The names that the table's name mapping adds.
    pub aliases: Arc<Aliases>,
    /// Whether the table has format version 3, which has more promotions.
    pub is_v3: bool,
    /// Columns, by id, whose values a partition transform would place elsewhere if a date became a
    /// timestamp.
    pub fixed_dates: BTreeSet<i32>,
    /// Names that no column can have: partition fields have them.
    pub partition_names: BTreeSet<String>,
}

impl TableFacts {
    /// Reads the facts of a table.
    ///
    /// # Errors
    ///
    /// `NAME_MAPPING_INVALID`.
    pub fn of(metadata: &TableMetadata) -> Result<Self> {
        let mut facts = TableFacts {
            aliases: Arc::new(Aliases::of(|key| metadata.properties().get(key))?),
            is_v3: metadata.format_version() >= FormatVersion::V3,
            ..TableFacts::default()
        };
        for spec in metadata.partition_specs_iter() {
            for field in spec.fields() {
                facts.partition_names.insert(field.name.clone());
                if matches!(
                    field.transform,
                    Transform::Identity | Transform::Bucket(_) | Transform::Unknown
                ) {
                    facts.fixed_dates.insert(field.source_id);
                }
            }
        }
        Ok(facts)
    }
}

/// The rules by which a table grows.
#[derive(Debug, Clone, Default)]
pub struct EvolutionRules {
    /// What may change.
    pub mode: EvolutionMode,
    /// Whether names match whatever their case.
    pub case_insensitive: bool,
    /// Whether fields inside of new structs are optional too.
    pub force_optional: bool,
    /// How many columns may come.
    pub limits: EvolutionLimits,
    /// The columns of the table that no record field fills.
    pub filled_elsewhere: BTreeSet<String>,
    /// What the table is like.
    pub facts: TableFacts,
}

impl EvolutionRules {
    fn adds(&self) -> bool {
        self.mode != EvolutionMode::Off
    }

    fn promotes(&self) -> bool {
        self.mode == EvolutionMode::Full
    }

    fn types(&self) -> TypeRules {
        TypeRules {
            force_optional: self.force_optional,
            is_v3: self.facts.is_v3,
        }
    }

    fn names(&self) -> NameRules<'_> {
        NameRules {
            case_insensitive: self.case_insensitive,
            aliases: &self.facts.aliases,
        }
    }

    /// Tells whether `field` needs a value that some record may not have: it is required, has no
    /// default, and no metadata fill it.
    fn needs_value(&self, field: &NestedField, is_top: bool) -> bool {
        field.required
            && field.write_default.is_none()
            && !(is_top && self.filled_elsewhere.contains(&field.name))
    }
}

/// Tells whether `field` is part of the key of `schema`, or holds a part of it.
fn is_key(schema: &Schema, field: &NestedField) -> bool {
    let mut ids = schema.identifier_field_ids();
    ids.any(|id| id == field.id || holds(&field.field_type, id))
}

fn holds(field_type: &Type, id: i32) -> bool {
    match field_type {
        Type::Struct(fields) => {
            let mut fields = fields.fields().iter();
            fields.any(|field| field.id == id || holds(&field.field_type, id))
        }
        _ => false,
    }
}
