//! How one table reads changes: its configuration, and what is worked out of it once per schema.

use std::collections::BTreeMap;
use std::sync::Arc;

use iceberg::spec::Schema;

use super::by_columns::OrderColumns;
use super::changes::Image;
use super::columns::ColumnNames;
use super::envelope::{Envelope, Foreign, Meaning, Skip};
use super::key::{KeyPlan, Scratch};
use super::order::OrderRule;
use super::place::Place;
use super::unavailable::Placeholder;
use crate::error::{Result, SinkError};
use crate::schema::names::{Aliases, NameRules};
use crate::wire::{Cell, Frame, SourceKind, SourceSchema};

/// What a truncation of the source does to the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TruncatePolicy {
    /// It is an error of the record.
    #[default]
    Fail,
    /// All rows go that are not known to be newer.
    Apply,
    /// It is skipped and counted.
    Ignore,
}

/// How rows are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeleteMode {
    /// As the format version of the table has it.
    #[default]
    Auto,
    /// With deletion vectors: format version 3.
    Vector,
    /// With position deletes of single files: format version 2.
    Position,
}

/// What becomes of a row whose value the source left out when the table has no such row either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum AbsentPolicy {
    /// It is an error of the record.
    #[default]
    Fail,
    /// The column becomes null.
    Null,
}

/// How values are recognised that the source left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    /// What stands in their place.
    pub placeholder: String,
    /// What becomes of a row when the table does not have the value either.
    pub absent: AbsentPolicy,
}

impl Default for Unavailable {
    fn default() -> Self {
        Unavailable {
            placeholder: "__debezium_unavailable_value".to_owned(),
            absent: AbsentPolicy::default(),
        }
    }
}

/// What a table wants of changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeConfig {
    /// The format.
    pub envelope: Envelope,
    /// A text that makes all orders so far incomparable when it changes: for a source that was set up
    /// anew and numbers its changes from the beginning.
    pub order_epoch: String,
    /// What a truncation does.
    pub truncate: TruncatePolicy,
    /// A row is dropped when the table has one with its key, and does not replace it; among at least so
    /// many of its newest rows that is looked for.
    pub once_within: Option<u64>,
    /// How rows are deleted: where the table does it otherwise, it is refused.
    pub delete_mode: DeleteMode,
    /// The column that is true in rows that the source deleted, in place of removing them.
    pub soft_delete: Option<String>,
    /// The columns that order changes in place of their source; see [`Self::ordered_by`].
    pub order_columns: Vec<String>,
    /// Whether rows before a change, such as a delete carries, are known to be complete, with all their
    /// values.
    pub deleted_is_whole: bool,
    /// How values are recognised that the source left out; `None` when all are taken as they are.
    pub unavailable: Option<Unavailable>,
    /// Whether columns of the key are found in any case.
    pub case_insensitive: bool,
    /// The columns of the key that rows have from the record's key, as columns of the table; another
    /// one must be in the row. `None` when any may come from there.
    pub filled: Option<Vec<String>>,
}

/// Returns the error of a table with changes that has no key.
pub(crate) fn key_missing() -> SinkError {
    SinkError::config(
        "CHANGE_KEY_MISSING",
        "changes can only be applied to a table with a key: set \
         `iceberg.table.<name>.id-columns`, or give the table identifier fields; a table without a \
         key can only be appended to",
    )
}

impl ChangeConfig {
    /// Makes the configuration with the defaults of `envelope`.
    pub fn new(envelope: Envelope) -> Self {
        ChangeConfig {
            envelope,
            order_epoch: String::new(),
            truncate: TruncatePolicy::default(),
            once_within: None,
            delete_mode: DeleteMode::default(),
            soft_delete: None,
            order_columns: Vec::new(),
            deleted_is_whole: false,
            unavailable: Some(Unavailable::default()),
            case_insensitive: false,
            filled: None,
        }
    }

    /// Tells whether a record without a value can change something.
    pub fn tombstones_count(&self) -> bool {
        matches!(self.envelope.tombstone, Meaning::Op(_))
    }

    /// Orders the changes by columns of the row, most significant first, in place of the source's own
    /// order. A delete counts by its arrival, unless the row that it carries is known to be complete:
    /// sources make up the values of such rows that they do not have.
    #[must_use]
    pub fn ordered_by(mut self, columns: &[&str]) -> Self {
        self.envelope.order = OrderRule::default();
        self.order_columns = columns.iter().map(|column| (*column).to_owned()).collect();
        self
    }

    /// Tells whether changes are [ordered by](Self::ordered_by) this column of their rows.
    pub fn is_ordered_by(&self, column: &str) -> bool {
        let mut columns = self.order_columns.iter();
        columns.any(|known| match self.case_insensitive {
            true => known.to_lowercase() == column.to_lowercase(),
            false => known == column,
        })
    }

    /// Tells whether values of rows before a change may be made up.
    pub(super) fn is_before_unsure(&self) -> bool {
        self.envelope.before_may_be_made_up && !self.deleted_is_whole
    }

    /// Takes the operation from another field than the format says.
    #[must_use]
    pub fn with_op_at(mut self, place: Place) -> Self {
        for rule in &mut self.envelope.op {
            rule.at = place.clone();
        }
        self
    }
}

/// How a table reads changes; see the module.
#[derive(Debug)]
pub struct ChangePlan {
    pub(super) config: ChangeConfig,
    pub(super) key: KeyPlan,
    /// Where the columns of the key stand in records.
    pub(super) key_names: Vec<ColumnNames>,
    pub(super) order: OrderColumns,
    pub(super) placeholder: Option<Placeholder>,
    pub(super) scratch: Scratch,
    /// By the ids of the schemas of value and key.
    shapes: BTreeMap<u32, Arc<Shape>>,
}

/// What the values of one schema have in common.
#[derive(Debug)]
pub(super) struct Shape {
    /// What all of them are, when they are no changes.
    pub(super) foreign: Option<Skip>,
    /// Whether a record may be none by its fields, if its key is not that of a row.
    pub(super) may_be_foreign: bool,
    /// Whether no value can tell its operation, and none is meant by default.
    pub(super) is_unknown: bool,
    /// The row as it is afterwards.
    after: RowShape,
    /// The row that a delete removes.
    deleted: RowShape,
}

/// What the rows of one image have in common.
#[derive(Debug, Default)]
pub(super) struct RowShape {
    /// The row without the envelope's own fields: its schema, and which fields are left.
    pub(super) row: Option<(Arc<SourceSchema>, Vec<usize>)>,
    /// Fields of the row whose values a source may leave out.
    pub(super) candidates: Vec<(usize, Arc<str>)>,
}

impl ChangePlan {
    /// Makes the plan of a table with `schema`, whose key is `key`; records call its columns also as
    /// `aliases` say.
    ///
    /// # Errors
    ///
    /// `CHANGE_KEY_MISSING` when the table has none; `CHANGE_KEY_UNSUPPORTED` and
    /// `CHANGE_ORDER_UNSUPPORTED` for columns that cannot be in it, or order changes.
    pub fn new(
        config: ChangeConfig,
        schema: &Schema,
        key: Option<KeyPlan>,
        aliases: &Aliases,
    ) -> Result<ChangePlan> {
        let key = key.ok_or_else(key_missing)?;
        let rules = NameRules {
            case_insensitive: config.case_insensitive,
            aliases,
        };
        let key_names = key.field_ids().map(|id| ColumnNames::of(schema, id, rules));
        let key_names = key_names.collect::<Result<Vec<ColumnNames>>>()?;
        let order_columns = config.order_columns.iter().map(|path| {
            let found = match config.case_insensitive {
                true => schema.field_by_name_case_insensitive(path),
                false => None,
            };
            let found = schema.field_by_name(path).or(found);
            (path.as_str(), found.map(|field| field.id))
        });
        let order = OrderColumns::of(schema, order_columns, rules)?;
        let placeholder = config.unavailable.as_ref();
        let placeholder = placeholder.map(|config| Placeholder::new(&config.placeholder));
        Ok(ChangePlan {
            config,
            key,
            key_names,
            order,
            placeholder,
            scratch: Scratch::default(),
            shapes: BTreeMap::new(),
        })
    }

    /// Makes a plan that tells operations and rows apart, for a table that is not there yet: all keys
    /// are alike.
    pub fn keyless(mut config: ChangeConfig) -> ChangePlan {
        // Where there is no key, nothing comes to an order.
        config.envelope.order = OrderRule::default();
        ChangePlan {
            config,
            key: KeyPlan::none(),
            key_names: Vec::new(),
            order: OrderColumns::default(),
            placeholder: None,
            scratch: Scratch::default(),
            shapes: BTreeMap::new(),
        }
    }

    /// Tells whether column `index` of the key may come from the record's key when the row lacks it.
    pub(super) fn is_filled(&self, index: usize) -> bool {
        let Some(filled) = &self.config.filled else {
            return true;
        };
        let path = self.key.paths().nth(index);
        path.is_some_and(|path| filled.iter().any(|name| **name == **path))
    }

    /// Returns the configuration.
    pub fn config(&self) -> &ChangeConfig {
        &self.config
    }

    /// Returns how keys become bytes.
    pub fn key(&self) -> &KeyPlan {
        &self.key
    }

    pub(super) fn shape(&mut self, frame: &Frame<'_>) -> Arc<Shape> {
        let id = frame.value_schema_id();
        if let Some(shape) = self.shapes.get(&id) {
            return Arc::clone(shape);
        }
        let shape = Arc::new(Shape::of(&self.config.envelope, frame));
        // A frame without a schema may be of tombstones only; what is worked out of it is little.
        if id != 0 {
            self.shapes.insert(id, Arc::clone(&shape));
        }
        shape
    }
}

impl Shape {
    fn of(envelope: &Envelope, frame: &Frame<'_>) -> Shape {
        let schema = frame.value_schema();
        let foreign = schema.and_then(|schema| foreign_schema(&envelope.foreign, schema));
        let by_key = |schema: &SourceSchema| {
            let mut foreign = envelope.foreign.iter();
            foreign.any(|foreign| !foreign.key_fields.is_empty() && foreign.has_fields_of(schema))
        };
        let tells = |place: &Place| match (place, schema) {
            (Place::Value(path), Some(schema)) => leads_somewhere(schema, path),
            _ => true,
        };
        let tells_op = envelope.op.iter().any(|rule| tells(&rule.at));
        let row = |place: &Place| match (place, schema) {
            (Place::Value(path), Some(schema)) => RowShape::of(envelope, record_at(schema, path)),
            _ => RowShape::default(),
        };
        Shape {
            foreign,
            may_be_foreign: schema
                .is_none_or(|schema| schema.kind() == SourceKind::Map || by_key(schema)),
            is_unknown: !tells_op && envelope.otherwise.is_none(),
            after: row(&envelope.after),
            deleted: envelope.deleted_row().map_or_else(RowShape::default, row),
        }
    }

    /// Returns the shape of the rows of `image`.
    pub(super) fn of_image(&self, image: Image) -> &RowShape {
        match image {
            Image::Deleted => &self.deleted,
            _ => &self.after,
        }
    }
}

impl RowShape {
    fn of(envelope: &Envelope, row: Option<&SourceSchema>) -> RowShape {
        let is_own = |name: &str| envelope.without.contains(name);
        let mut shape = RowShape::default();
        let Some(row) = row else {
            return shape;
        };
        let fields = row.fields();
        let kept: Vec<usize> = (0..fields.len())
            .filter(|index| fields.get(*index).is_some_and(|field| !is_own(&field.name)))
            .collect();
        let kept_fields = || {
            kept.iter()
                .filter_map(|index| Some((*index, fields.get(*index)?)))
        };
        shape.candidates = kept_fields()
            .filter(|(_, field)| can_be_left_out(&field.schema))
            .map(|(index, field)| (index, Arc::from(field.name.as_str())))
            .collect();
        if kept.len() != fields.len() {
            let fields = kept_fields().map(|(_, field)| field.clone()).collect();
            let schema = Arc::new(row.with_fields(fields));
            shape.row = Some((schema, kept));
        }
        shape
    }
}

/// Tells whether sources leave values of this type out: those that they store beside the row.
fn can_be_left_out(schema: &SourceSchema) -> bool {
    schema.logical().is_none()
        && matches!(
            schema.kind(),
            SourceKind::String | SourceKind::Bytes | SourceKind::Array | SourceKind::Map
        )
}

fn foreign_schema(foreign: &[Foreign], schema: &SourceSchema) -> Option<Skip> {
    let name = schema.name.as_deref().unwrap_or_default();
    let found = foreign.iter().find(|foreign| {
        let mut ends = foreign.schema_ends.iter();
        let by_fields = || foreign.key_fields.is_empty() && foreign.has_fields_of(schema);
        ends.any(|end| name.ends_with(end)) || by_fields()
    });
    found.map(|foreign| foreign.skip)
}

/// Tells whether `fields`, which are `count`, are those of the list.
pub(super) fn has_only<'n>(
    only: &[String],
    count: usize,
    mut fields: impl Iterator<Item = &'n str>,
) -> bool {
    count > 0 && only.len() == count && fields.all(|field| only.iter().any(|name| name == field))
}

/// Returns the struct that `path` leads to.
fn record_at<'s>(mut schema: &'s SourceSchema, mut path: &str) -> Option<&'s SourceSchema> {
    while !path.is_empty() {
        let (head, rest) = match schema.field(path) {
            Some(_) => (path, ""),
            None => path.split_once('.')?,
        };
        (_, schema) = schema
            .field(head)
            .map(|(index, field)| (index, &*field.schema))?;
        path = rest;
    }
    (schema.kind() == SourceKind::Struct).then_some(schema)
}

/// Tells whether `path` may lead to a value.
fn leads_somewhere(schema: &SourceSchema, path: &str) -> bool {
    let is_record = schema.kind() == SourceKind::Struct;
    if path.is_empty() || !is_record {
        return path.is_empty() || schema.kind() == SourceKind::Map;
    }
    if schema.field(path).is_some() {
        return true;
    }
    let below = |(head, rest): (&str, &str)| {
        let (_, field) = schema.field(head)?;
        Some(leads_somewhere(&field.schema, rest))
    };
    path.split_once('.').and_then(below).unwrap_or(false)
}

/// Returns the foreign record that this one is, by the fields of its value and key.
pub(super) fn foreign_record<'c>(
    foreign: &[Foreign],
    value: &Cell<'c>,
    key: impl Fn() -> Cell<'c>,
) -> Option<Skip> {
    let found = foreign.iter().find(|foreign| {
        has_only_fields(&foreign.only_fields, value)
            && (foreign.key_fields.is_empty() || has_only_fields(&foreign.key_fields, &key()))
    });
    found.map(|foreign| foreign.skip)
}

fn has_only_fields(only: &[String], record: &Cell<'_>) -> bool {
    match record {
        Cell::Map(map) if map.len() == only.len() => {
            let names = map.entries().map(|entry| match entry.key {
                Cell::String(name) => name,
                _ => "",
            });
            has_only(only, map.len(), names)
        }
        Cell::Struct(record) => {
            let fields = record.fields().iter();
            has_only(
                only,
                record.fields().len(),
                fields.map(|field| field.name.as_str()),
            )
        }
        _ => false,
    }
}

impl Foreign {
    fn has_fields_of(&self, schema: &SourceSchema) -> bool {
        let fields = schema.fields().iter().map(|field| field.name.as_str());
        has_only(&self.only_fields, schema.fields().len(), fields)
    }
}

impl Meaning {
    pub(super) fn is_next(self) -> bool {
        self == Meaning::Next
    }
}
