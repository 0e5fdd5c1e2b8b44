//! A table's schema beside a source's: what the table has to gain, and what breaks.

use std::collections::BTreeSet;

use iceberg::spec::{NestedField, Schema, StructType, Type};

use super::breaking::{Break, BreakKind};
use super::change::{Change, Evolution, fields_in};
use super::relation::{Natural, Relation, relation};
use super::{EvolutionRules, is_key};
use crate::error::SinkError;
use crate::schema::names::Names;
use crate::schema::semantic::{self, Semantic};
use crate::schema::types::{self, TypeRules};
use crate::wire::{LogicalType, SourceField, SourceKind, SourceSchema};

/// What a source schema means for a table.
#[derive(Debug, Default)]
pub struct Comparison {
    /// What the table has to gain.
    pub evolution: Evolution,
    /// What it cannot follow. Values that a column holds all the same still land.
    pub breaks: Vec<Break>,
    /// New fields that get no column, with the reason.
    pub left_out: Vec<(String, SinkError)>,
    /// New fields that are dropped, since the table does not follow its records.
    pub dropped: Vec<String>,
    /// Columns whose type depends on how large the numbers are that come.
    pub open: Vec<String>,
    /// Whether values have to be looked at one by one.
    pub by_value: bool,
}

/// Where a comparison stands.
struct Walk<'r> {
    rules: &'r EvolutionRules,
    schema: &'r Schema,
    path: Vec<String>,
    found: Comparison,
}

impl EvolutionRules {
    /// Compares `table` with structs of `source`.
    pub fn compare(&self, table: &Schema, source: &SourceSchema) -> Comparison {
        let mut walk = Walk {
            rules: self,
            schema: table,
            path: Vec::new(),
            found: Comparison::default(),
        };
        walk.record(table.as_struct(), source);
        let mut found = walk.found;
        found.evolution = found.evolution.viable(table);
        if let Some(error) = self.beyond_limits(table, &found.evolution) {
            let is_added = |change: &Change| matches!(change, Change::Add(_));
            for change in found.evolution.changes.iter().filter(|c| is_added(c)) {
                found.left_out.push((change.column(), error.again()));
            }
            found.evolution.changes.retain(|change| !is_added(change));
        }
        found
    }

    /// Tells why the fields that `evolution` adds to `table` are too many, if they are.
    pub(super) fn beyond_limits(&self, table: &Schema, evolution: &Evolution) -> Option<SinkError> {
        let added = evolution.fields_added();
        let limits = self.limits;
        if added > limits.per_commit {
            return Some(
                SinkError::data(
                    "SCHEMA_COLUMNS_MAX",
                    "one change of the schema would add more columns and nested fields than \
                     `iceberg.tables.evolve-schema-max-columns-per-commit` allows: raise it, drop \
                     fields by a transform, or land the object as JSON text",
                )
                .with("new", added)
                .with("allowed", limits.per_commit),
            );
        }
        let before: usize = fields_in(&Type::Struct(table.as_struct().clone()));
        let after = before.saturating_add(added);
        (added > 0 && after > limits.in_all).then(|| {
            SinkError::data(
                "SCHEMA_COLUMNS_MAX",
                "the table would have more columns and nested fields than \
                 `iceberg.tables.evolve-schema-max-columns` allows: raise it, drop fields by a \
                 transform, or land the object as JSON text",
            )
            .with("columns", after)
            .with("allowed", limits.in_all)
        })
    }
}

impl Walk<'_> {
    fn record(&mut self, table: &StructType, source: &SourceSchema) {
        // Names of the table that are ambiguous are reported by the converter.
        let Ok(names) = Names::of(table.fields(), self.rules.names()) else {
            return;
        };
        let mut met = BTreeSet::new();
        for field in source.fields() {
            let index = names.find(&field.name);
            let column = index.and_then(|index| table.fields().get(index));
            match column {
                Some(column) if self.is_filled_elsewhere(column) => {}
                Some(column) => {
                    met.extend(index);
                    self.inside(&column.name, |walk| walk.field(column, &field.schema));
                }
                None => self.new_field(table, field),
            }
        }
        for (index, column) in table.fields().iter().enumerate() {
            let is_top = self.path.is_empty();
            if !met.contains(&index) && self.rules.needs_value(column, is_top) {
                self.missing(column, source, &names);
            }
        }
    }

    fn inside(&mut self, step: &str, run: impl FnOnce(&mut Self)) {
        self.path.push(step.to_owned());
        run(self);
        self.path.pop();
    }

    fn is_filled_elsewhere(&self, column: &NestedField) -> bool {
        self.path.is_empty() && self.rules.filled_elsewhere.contains(&column.name)
    }

    fn new_field(&mut self, table: &StructType, field: &SourceField) {
        let mut path = self.path.clone();
        path.push(field.name.clone());
        let path = path.join(".");
        if !self.rules.adds() {
            return self.found.dropped.push(path);
        }
        if self.path.is_empty() && self.rules.facts.partition_names.contains(&field.name) {
            return self.found.left_out.push((path, name_is_taken()));
        }
        match types::type_of(&field.schema, self.rules.types()) {
            Ok(new_type) => {
                let new = NestedField::optional(0, &field.name, new_type);
                let new = types::described(new, &field.schema, self.rules.types());
                self.found.evolution.add(&self.path, table, new);
            }
            Err(error) => self.found.left_out.push((path, error)),
        }
    }

    /// Compares the column at the path with its source.
    fn field(&mut self, column: &NestedField, source: &SourceSchema) {
        let is_top = self.path.len() == 1;
        if source.optional && self.rules.needs_value(column, is_top) {
            match is_key(self.schema, column) {
                true => self.breaks(BreakKind::KeyOptional, &column.field_type, "null"),
                false if self.rules.promotes() => {
                    self.found.evolution.make_optional(&self.path);
                }
                false => self.breaks(BreakKind::Optional, &column.field_type, "null"),
            }
        }
        match (column.field_type.as_ref(), source.kind(), source.value()) {
            (Type::Struct(fields), SourceKind::Struct, _) => self.record(fields, source),
            (Type::Struct(_), SourceKind::Map, _) => self.found.by_value = true,
            (Type::List(list), SourceKind::Array, Some(element)) => {
                let column = &list.element_field;
                self.inside(&column.name, |walk| walk.field(column, element));
            }
            (Type::Map(map), SourceKind::Map, Some(value)) => {
                if let Some(key) = source.key() {
                    let column = &map.key_field;
                    self.inside(&column.name, |walk| walk.key(column, key));
                }
                let column = &map.value_field;
                self.inside(&column.name, |walk| walk.field(column, value));
            }
            (Type::Primitive(_), _, _) => self.scalar(column, source),
            _ => self.breaks(
                BreakKind::Type,
                &column.field_type,
                semantic::type_name(source),
            ),
        }
    }

    fn scalar(&mut self, column: &NestedField, source: &SourceSchema) {
        let Type::Primitive(primitive) = column.field_type.as_ref() else {
            return;
        };
        let facts = &self.rules.facts;
        let dates_widen = facts.is_v3 && !facts.fixed_dates.contains(&column.id);
        let relation = match natural(source, self.rules.types()) {
            Some(natural) => relation(primitive, &natural, dates_widen),
            // Lists, maps and structs become JSON text.
            None if *primitive == iceberg::spec::PrimitiveType::String => Relation::Holds,
            // The shape's well-known binary.
            None if *primitive == iceberg::spec::PrimitiveType::Binary
                && Semantic::of(source) == Semantic::Geometry =>
            {
                Relation::Holds
            }
            None => Relation::Differs,
        };
        match relation {
            Relation::Holds => {}
            Relation::Widens(to) if self.rules.promotes() => {
                self.found.evolution.promote(&self.path, primitive, to);
            }
            Relation::Open | Relation::Differs | Relation::Widens(_) => {
                self.found.by_value |= self.rules.promotes();
                if relation == Relation::Open && self.rules.promotes() {
                    self.found.open.push(self.path.join("."));
                } else {
                    self.breaks(
                        BreakKind::Type,
                        &column.field_type,
                        semantic::type_name(source),
                    );
                }
            }
        }
    }

    /// Keys of maps never change.
    fn key(&mut self, column: &NestedField, source: &SourceSchema) {
        let relation = match (
            column.field_type.as_ref(),
            natural(source, self.rules.types()),
        ) {
            (Type::Primitive(primitive), Some(natural)) => relation(primitive, &natural, false),
            _ => Relation::Differs,
        };
        if relation != Relation::Holds {
            self.breaks(
                BreakKind::Type,
                &column.field_type,
                semantic::type_name(source),
            );
        }
    }

    /// `column` has no field in `source`.
    fn missing(&mut self, column: &NestedField, source: &SourceSchema, names: &Names) {
        let is_key = is_key(self.schema, column);
        let mut new = source.fields().iter();
        let instead = new.find(|field| {
            names.find(&field.name).is_none()
                && types::type_of(&field.schema, false)
                    .is_ok_and(|new_type| new_type == *column.field_type)
        });
        let instead = instead.map(|field| field.name.clone());
        self.inside(&column.name, |walk| match is_key {
            true => walk.breaks(
                BreakKind::KeyRemoved { instead },
                &column.field_type,
                "nothing",
            ),
            false if walk.rules.promotes() => walk.found.evolution.make_optional(&walk.path),
            false => walk.breaks(BreakKind::Removed, &column.field_type, "nothing"),
        });
    }

    fn breaks(&mut self, kind: BreakKind, from: &Type, to: &str) {
        self.found.breaks.push(Break {
            column: self.path.join("."),
            kind,
            from: Break::type_name(from),
            to: to.to_owned(),
        });
    }
}

fn name_is_taken() -> SinkError {
    SinkError::data(
        "SCHEMA_CONFLICT",
        "a partition field has that name, so that no column can: rename the field",
    )
}

/// Returns the scalar type that a new column for `source` would have, `None` for nested ones.
fn natural(source: &SourceSchema, rules: TypeRules) -> Option<Natural> {
    let is_sized = match source.logical() {
        Some(LogicalType::Decimal { .. }) => {
            source.parameters.contains_key(types::PRECISION_PARAMETER)
        }
        _ => true,
    };
    if source.kind() == SourceKind::Struct && Semantic::of(source) == Semantic::Plain {
        return None;
    }
    match types::type_of(source, rules) {
        Ok(Type::Primitive(primitive)) => Some(Natural {
            primitive,
            is_sized,
        }),
        _ => None,
    }
}
