//! What a table has to gain before records fit: columns, and fields inside of structs, in the
//! elements of lists and in the values of maps. Nothing is ever removed, renamed or retyped here.
//!
//! New fields are optional. A field whose type cannot be a column's, or whose name differs from
//! one that exists in nothing but case, is left out; the converter then refuses the records that
//! have a value for it. With evolution off such fields are dropped, as the Apache sink does.

use std::sync::Arc;

use iceberg::spec::{
    LIST_FIELD_NAME, ListType, MAP_VALUE_FIELD_NAME, MapType, NestedField, NestedFieldRef, Schema,
    StructType, Type,
};

use super::ids::FieldIds;
use super::metadata::{self, MetadataColumn};
use super::names::Names;
use super::types;
use crate::error::{Result, SinkError};
use crate::wire::{Cell, SourceKind, SourceSchema};

/// One field to add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addition {
    /// The path of the struct that gains the field, empty for the table. A step into a list is
    /// `element`, one into a map's values `value`.
    pub parent: Vec<String>,
    /// The field, optional, not yet numbered.
    pub field: NestedFieldRef,
}

/// Fields to add to a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Evolution {
    /// The fields in the order in which they get their ids.
    pub additions: Vec<Addition>,
}

impl Evolution {
    /// Returns the metadata columns that `schema` lacks.
    pub fn for_metadata(schema: &Schema, columns: &[MetadataColumn]) -> Self {
        let missing = |column: &&MetadataColumn| schema.field_by_name(column.name()).is_none();
        let additions = columns.iter().filter(missing).map(|column| Addition {
            parent: Vec::new(),
            field: metadata::field(column, false),
        });
        Evolution {
            additions: additions.collect(),
        }
    }

    /// Tells whether there is nothing to add.
    pub fn is_empty(&self) -> bool {
        self.additions.is_empty()
    }

    /// Returns `schema` with the fields added, their ids from `last_column_id + 1` on (take the
    /// table's `last-column-id`, not the schema's highest). Fields that another task added in the
    /// meantime are left as they are. Set a free schema id before committing it.
    pub fn apply(&self, schema: &Schema, last_column_id: i32) -> Result<Schema> {
        let mut ids = FieldIds::after(last_column_id.max(schema.highest_field_id()));
        let mut fields = schema.as_struct().fields().to_vec();
        for addition in &self.additions {
            fields = add(&fields, &addition.parent, &addition.field, &mut ids)?;
        }
        Schema::builder()
            .with_schema_id(schema.schema_id())
            .with_fields(fields)
            .with_identifier_field_ids(schema.identifier_field_ids())
            .build()
            .map_err(|error| conflict("the new columns make no valid schema").caused_by(error))
    }

    /// Adds what `value`, whose schema is taken from itself, has more than `table`.
    fn gather(&mut self, walk: &mut Walk<'_>, table: &StructType, value: Cell<'_>) {
        match value {
            Cell::Struct(record) => self.gather_schema(walk, table, record.schema()),
            Cell::Map(map) => {
                let Some(names) = walk.names(table) else {
                    return;
                };
                let schema = map.entry_schemas().map(|(_, value)| value);
                for entry in map.entries() {
                    let Cell::String(name) = entry.key else {
                        continue;
                    };
                    let found = names.find(name).and_then(|found| table.fields().get(found));
                    if let Some(field) = found {
                        self.gather_inside(walk, field, entry.value);
                        continue;
                    }
                    let new_type = match schema {
                        Some(schema) if !entry.value.is_null() => types::type_of(schema, true).ok(),
                        _ => types::type_of_value(entry.value).ok().flatten(),
                    };
                    if let Some(new_type) = new_type {
                        self.add_field(walk, table, NestedField::optional(0, name, new_type));
                    }
                }
            }
            _ => {}
        }
    }

    fn gather_inside(&mut self, walk: &mut Walk<'_>, field: &NestedField, value: Cell<'_>) {
        walk.path.push(field.name.clone());
        match (field.field_type.as_ref(), value) {
            (Type::Struct(fields), value) => self.gather(walk, fields, value),
            (Type::List(list), Cell::Array(array)) if is_nested(&list.element_field) => {
                for element in array.iter() {
                    self.gather_inside(walk, &list.element_field, element);
                }
            }
            (Type::Map(map), Cell::Map(entries)) if is_nested(&map.value_field) => {
                for entry in entries.entries() {
                    self.gather_inside(walk, &map.value_field, entry.value);
                }
            }
            _ => {}
        }
        walk.path.pop();
    }

    fn gather_schema(&mut self, walk: &mut Walk<'_>, table: &StructType, source: &SourceSchema) {
        let Some(names) = walk.names(table) else {
            return;
        };
        for field in source.fields() {
            let found = names.find(&field.name);
            match found.and_then(|found| table.fields().get(found)) {
                Some(column) => self.gather_schema_inside(walk, column, &field.schema),
                None => {
                    let Ok(new_type) = types::type_of(&field.schema, walk.force_optional) else {
                        continue;
                    };
                    let new = NestedField::optional(0, &field.name, new_type);
                    let new = match &field.schema.doc {
                        Some(doc) => new.with_doc(doc),
                        None => new,
                    };
                    self.add_field(walk, table, new);
                }
            }
        }
    }

    fn gather_schema_inside(
        &mut self,
        walk: &mut Walk<'_>,
        column: &NestedField,
        source: &SourceSchema,
    ) {
        walk.path.push(column.name.clone());
        match (column.field_type.as_ref(), source.kind(), source.value()) {
            (Type::Struct(fields), SourceKind::Struct, _) => {
                self.gather_schema(walk, fields, source);
            }
            (Type::List(list), SourceKind::Array, Some(element)) => {
                self.gather_schema_inside(walk, &list.element_field, element);
            }
            (Type::Map(map), SourceKind::Map, Some(value)) => {
                self.gather_schema_inside(walk, &map.value_field, value);
            }
            _ => {}
        }
        walk.path.pop();
    }

    fn add_field(&mut self, walk: &Walk<'_>, table: &StructType, field: NestedField) {
        let here = |addition: &&mut Addition| addition.parent == walk.path;
        let mut siblings = self.additions.iter_mut().filter(here);
        if let Some(known) = siblings.find(|addition| addition.field.name == field.name) {
            let mut merged = known.field.as_ref().clone();
            *merged.field_type = merge(&merged.field_type, &field.field_type);
            known.field = Arc::new(merged);
            return;
        }
        let folded = field.name.to_lowercase();
        let added = self
            .additions
            .iter()
            .filter(|added| added.parent == walk.path);
        let mut names = table.fields().iter().chain(added.map(|added| &added.field));
        if names.all(|existing| existing.name.to_lowercase() != folded) {
            self.additions.push(Addition {
                parent: walk.path.clone(),
                field: Arc::new(field),
            });
        }
    }

    /// Leaves out what would make the schema invalid, such as `a.b` beside a field `b` of `a`.
    fn viable(self, schema: &Schema) -> Option<Self> {
        let mut viable = Evolution::default();
        for addition in self.additions {
            viable.additions.push(addition);
            if viable.apply(schema, schema.highest_field_id()).is_err() {
                viable.additions.pop();
            }
        }
        (!viable.is_empty()).then_some(viable)
    }
}

/// Where a comparison stands.
struct Walk<'r> {
    rules: &'r EvolutionRules,
    force_optional: bool,
    path: Vec<String>,
}

impl Walk<'_> {
    /// Returns the index of names; `None` when the table's own names are ambiguous, which the
    /// converter reports.
    fn names(&self, table: &StructType) -> Option<Names> {
        let names = table.fields().iter().map(|field| field.name.as_str());
        Names::new(names, self.rules.case_insensitive).ok()
    }
}

/// The rules by which tables grow.
#[derive(Debug, Clone, Copy, Default)]
pub struct EvolutionRules {
    /// Whether names match whatever their case.
    pub case_insensitive: bool,
    /// Whether fields inside of new structs are optional too.
    pub force_optional: bool,
}

impl EvolutionRules {
    fn walk(&self) -> Walk<'_> {
        Walk {
            rules: self,
            force_optional: self.force_optional,
            path: Vec::new(),
        }
    }

    /// Returns what `table` lacks for structs of `source`.
    pub fn for_schema(&self, table: &Schema, source: &SourceSchema) -> Option<Evolution> {
        let mut evolution = Evolution::default();
        evolution.gather_schema(&mut self.walk(), table.as_struct(), source);
        evolution.viable(table)
    }

    /// Returns what `table` lacks for `values`, structs or maps.
    pub fn for_values<'c>(
        &self,
        table: &Schema,
        values: impl IntoIterator<Item = Cell<'c>>,
    ) -> Option<Evolution> {
        let mut evolution = Evolution::default();
        for value in values {
            evolution.gather(&mut self.walk(), table.as_struct(), value);
        }
        evolution.viable(table)
    }
}

fn is_nested(field: &NestedField) -> bool {
    field.field_type.is_nested()
}

/// Returns a type with the fields of both; where they contradict each other, the first counts.
fn merge(first: &Type, second: &Type) -> Type {
    match (first, second) {
        (Type::Struct(left), Type::Struct(right)) => {
            let mut fields = left.fields().to_vec();
            for field in right.fields() {
                let folded = field.name.to_lowercase();
                let known = fields
                    .iter_mut()
                    .find(|known| known.name.to_lowercase() == folded);
                match known {
                    Some(known) if known.name == field.name => {
                        let mut merged = known.as_ref().clone();
                        *merged.field_type = merge(&merged.field_type, &field.field_type);
                        *known = Arc::new(merged);
                    }
                    Some(_) => {}
                    None => fields.push(Arc::clone(field)),
                }
            }
            Type::Struct(StructType::new(fields))
        }
        (Type::List(left), Type::List(right)) => {
            let mut element = left.element_field.as_ref().clone();
            *element.field_type = merge(&element.field_type, &right.element_field.field_type);
            Type::List(ListType {
                element_field: Arc::new(element),
            })
        }
        _ => first.clone(),
    }
}

fn add(
    fields: &[NestedFieldRef],
    parent: &[String],
    new: &NestedFieldRef,
    ids: &mut FieldIds,
) -> Result<Vec<NestedFieldRef>> {
    let Some((step, rest)) = parent.split_first() else {
        let mut fields = fields.to_vec();
        if !fields.iter().any(|field| field.name == new.name) {
            fields.extend(ids.number(std::slice::from_ref(new))?);
        }
        return Ok(fields);
    };
    if !fields.iter().any(|field| field.name == *step) {
        return Err(conflict("a column that was to gain a field is gone").with("column", step));
    }
    let mut changed = Vec::with_capacity(fields.len());
    for field in fields {
        changed.push(if field.name == *step {
            add_inside(field, rest, new, ids)?
        } else {
            Arc::clone(field)
        });
    }
    Ok(changed)
}

fn add_inside(
    field: &NestedFieldRef,
    rest: &[String],
    new: &NestedFieldRef,
    ids: &mut FieldIds,
) -> Result<NestedFieldRef> {
    let mut changed = field.as_ref().clone();
    *changed.field_type = match (field.field_type.as_ref(), rest.split_first()) {
        (Type::Struct(fields), _) => {
            Type::Struct(StructType::new(add(fields.fields(), rest, new, ids)?))
        }
        (Type::List(list), Some((step, rest))) if step == LIST_FIELD_NAME => Type::List(ListType {
            element_field: add_inside(&list.element_field, rest, new, ids)?,
        }),
        (Type::Map(map), Some((step, rest))) if step == MAP_VALUE_FIELD_NAME => {
            Type::Map(MapType {
                key_field: Arc::clone(&map.key_field),
                value_field: add_inside(&map.value_field, rest, new, ids)?,
            })
        }
        _ => {
            return Err(conflict("a column that was to gain a field is no struct")
                .with("column", &field.name));
        }
    };
    Ok(Arc::new(changed))
}

fn conflict(message: &str) -> SinkError {
    SinkError::data("SCHEMA_CONFLICT", message)
}
