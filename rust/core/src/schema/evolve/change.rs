//! Changes of a table's schema, and the schema after them.

use std::fmt;
use std::sync::Arc;

use iceberg::spec::{
    LIST_FIELD_NAME, ListType, MAP_VALUE_FIELD_NAME, MapType, NestedField, NestedFieldRef,
    PrimitiveType, Schema, StructType, Type,
};

use super::relation::is_promotion;
use crate::error::{Result, SinkError};
use crate::schema::defaults;
use crate::schema::ids::FieldIds;
use crate::schema::metadata::{self, MetadataColumn};
use crate::schema::types;

/// One field to add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addition {
    /// The path of the struct that gains the field, empty for the table. A step into a list is
    /// `element`, one into a map's values `value`.
    pub parent: Vec<String>,
    /// The field, optional, not yet numbered.
    pub field: NestedFieldRef,
}

/// One change of a schema. Paths are made as those of [`Addition`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A field comes.
    Add(Addition),
    /// A column gets a wider type.
    Promote {
        /// The column.
        path: Vec<String>,
        /// Its type before.
        from: PrimitiveType,
        /// Its type after.
        to: PrimitiveType,
    },
    /// A required column becomes optional.
    MakeOptional {
        /// The column.
        path: Vec<String>,
    },
}

impl Change {
    /// Returns the path of the column that comes or changes, such as `lines.element.price`.
    pub fn column(&self) -> String {
        match self {
            Change::Add(addition) => {
                let mut path = addition.parent.clone();
                path.push(addition.field.name.clone());
                path.join(".")
            }
            Change::Promote { path, .. } | Change::MakeOptional { path } => path.join("."),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column = self.column();
        match self {
            Change::Add(addition) => write!(f, "add {column} {}", addition.field.field_type),
            Change::Promote { from, to, .. } => write!(f, "promote {column} {from} -> {to}"),
            Change::MakeOptional { .. } => write!(f, "make {column} optional"),
        }
    }
}

/// Changes of one table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Evolution {
    /// The changes; fields get their ids in this order.
    pub changes: Vec<Change>,
}

impl Evolution {
    /// Returns the metadata columns that `schema` lacks.
    pub fn for_metadata(schema: &Schema, columns: &[MetadataColumn]) -> Self {
        let missing = |column: &&MetadataColumn| schema.field_by_name(column.name()).is_none();
        let changes = columns.iter().filter(missing).map(|column| {
            Change::Add(Addition {
                parent: Vec::new(),
                field: metadata::field(column, false),
            })
        });
        Evolution {
            changes: changes.collect(),
        }
    }

    /// Tells whether there is nothing to change.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Returns the fields to add.
    pub fn additions(&self) -> impl Iterator<Item = &Addition> {
        self.changes.iter().filter_map(|change| match change {
            Change::Add(addition) => Some(addition),
            _ => None,
        })
    }

    /// Returns how many columns and nested fields come.
    pub fn fields_added(&self) -> usize {
        let fields = |addition: &Addition| 1 + fields_in(&addition.field.field_type);
        self.additions().map(fields).sum()
    }

    /// Returns `schema` with the changes, the ids of new fields from `last_column_id + 1` on (take
    /// the table's `last-column-id`, not the schema's highest). What another task did in the
    /// meantime is left as it is. Set a free schema id before committing it.
    ///
    /// # Errors
    ///
    /// `SCHEMA_CONFLICT` when a column that was to change is gone or of another type, or when the
    /// new columns make no valid schema.
    pub fn apply(&self, schema: &Schema, last_column_id: i32) -> Result<Schema> {
        let mut ids = FieldIds::after(last_column_id.max(schema.highest_field_id()));
        let mut fields = schema.as_struct().fields().to_vec();
        for change in &self.changes {
            match change {
                Change::Add(addition) => {
                    fields = add(&fields, &addition.parent, &addition.field, &mut ids)?;
                }
                Change::Promote { path, to, .. } => {
                    fields = edit(&fields, path, &|field| promote(field, to))?;
                }
                Change::MakeOptional { path } => {
                    fields = edit(&fields, path, &|field| {
                        field.required = false;
                        Ok(())
                    })?;
                }
            }
        }
        Schema::builder()
            .with_schema_id(schema.schema_id())
            .with_fields(fields)
            .with_identifier_field_ids(schema.identifier_field_ids())
            .build()
            .map_err(|error| conflict("the new columns make no valid schema").caused_by(error))
    }

    pub(super) fn promote(&mut self, path: &[String], from: &PrimitiveType, to: PrimitiveType) {
        for change in &mut self.changes {
            if let Change::Promote {
                path: known,
                to: target,
                ..
            } = change
                && known == path
            {
                if is_promotion(target, &to, true) {
                    *target = to;
                }
                return;
            }
        }
        self.changes.push(Change::Promote {
            path: path.to_vec(),
            from: from.clone(),
            to,
        });
    }

    pub(super) fn make_optional(&mut self, path: &[String]) {
        let change = Change::MakeOptional {
            path: path.to_vec(),
        };
        if !self.changes.contains(&change) {
            self.changes.push(change);
        }
    }

    /// Adds `field` to the struct `table` at `parent`, unless a name there differs from its name in
    /// nothing but case; a field that is to come already gets the new one's fields too.
    pub(super) fn add(&mut self, parent: &[String], table: &StructType, field: NestedField) {
        for change in &mut self.changes {
            if let Change::Add(known) = change
                && known.parent == parent
                && known.field.name == field.name
            {
                let mut merged = known.field.as_ref().clone();
                // Where they contradict each other, the first counts.
                if let Some(unified) = types::unify(&merged.field_type, &field.field_type) {
                    *merged.field_type = unified;
                    defaults::follow(&mut merged);
                }
                known.field = Arc::new(merged);
                return;
            }
        }
        let folded = field.name.to_lowercase();
        let added = self.additions().filter(|added| added.parent == parent);
        let mut fields = table.fields().iter().chain(added.map(|added| &added.field));
        let is_new = fields.all(|existing| existing.name.to_lowercase() != folded);
        drop(fields);
        if is_new {
            self.changes.push(Change::Add(Addition {
                parent: parent.to_vec(),
                field: Arc::new(field),
            }));
        }
    }

    /// Leaves out what would make the schema invalid, such as `a.b` beside a field `b` of `a`.
    pub(super) fn viable(self, schema: &Schema) -> Self {
        let fits = |evolution: &Evolution| evolution.apply(schema, schema.highest_field_id());
        if fits(&self).is_ok() {
            return self;
        }
        let mut viable = Evolution::default();
        for change in self.changes {
            viable.changes.push(change);
            if fits(&viable).is_err() {
                viable.changes.pop();
            }
        }
        viable
    }
}

/// Returns how many named fields lie inside of a type.
pub(super) fn fields_in(field_type: &Type) -> usize {
    match field_type {
        Type::Primitive(_) => 0,
        Type::Struct(fields) => {
            let inside = |field: &NestedFieldRef| 1 + fields_in(&field.field_type);
            fields.fields().iter().map(inside).sum()
        }
        Type::List(list) => fields_in(&list.element_field.field_type),
        Type::Map(map) => {
            fields_in(&map.key_field.field_type) + fields_in(&map.value_field.field_type)
        }
    }
}

/// A change of one field.
type Edit<'e> = &'e dyn Fn(&mut NestedField) -> Result<()>;

/// Changes the field at `path`.
fn edit(
    fields: &[NestedFieldRef],
    path: &[String],
    change: Edit<'_>,
) -> Result<Vec<NestedFieldRef>> {
    let Some((step, rest)) = path.split_first() else {
        return Err(conflict("a change names no column"));
    };
    if !fields.iter().any(|field| field.name == *step) {
        return Err(conflict("a column that was to change is gone").with("column", step));
    }
    let edited = fields.iter().map(|field| match field.name == *step {
        true => edit_inside(field, rest, change),
        false => Ok(Arc::clone(field)),
    });
    edited.collect()
}

fn edit_inside(
    field: &NestedFieldRef,
    rest: &[String],
    change: Edit<'_>,
) -> Result<NestedFieldRef> {
    let mut changed = field.as_ref().clone();
    let Some((step, inner)) = rest.split_first() else {
        change(&mut changed)?;
        return Ok(Arc::new(changed));
    };
    *changed.field_type = match field.field_type.as_ref() {
        Type::Struct(fields) => Type::Struct(StructType::new(edit(fields.fields(), rest, change)?)),
        Type::List(list) if step == LIST_FIELD_NAME => Type::List(ListType {
            element_field: edit_inside(&list.element_field, inner, change)?,
        }),
        Type::Map(map) if step == MAP_VALUE_FIELD_NAME => Type::Map(MapType {
            key_field: Arc::clone(&map.key_field),
            value_field: edit_inside(&map.value_field, inner, change)?,
        }),
        _ => return Err(conflict("a column that was to change is gone").with("column", step)),
    };
    Ok(Arc::new(changed))
}

fn promote(field: &mut NestedField, to: &PrimitiveType) -> Result<()> {
    match field.field_type.as_ref() {
        Type::Primitive(now) if now == to || is_promotion(to, now, true) => Ok(()),
        Type::Primitive(now) if is_promotion(now, to, true) => {
            *field.field_type = Type::Primitive(to.clone());
            defaults::follow(field);
            Ok(())
        }
        now => Err(conflict("a column got a type that cannot be promoted")
            .with("column", &field.name)
            .with("from", now)
            .with("to", to)),
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
