//! A table's schema beside values: what the table has to gain for records that have no schema, or
//! whose schema does not say how large a number may be.

use iceberg::spec::{NestedField, PrimitiveType, Schema, StructType, Type};

use super::change::Evolution;
use super::{EvolutionRules, is_key};
use crate::convert::scalar;
use crate::convert::value::Value;
use crate::error::Result;
use crate::schema::names::Names;
use crate::schema::semantic::Semantic;
use crate::schema::types::{self, TypeRules};
use crate::wire::{Cell, MapRows, SourceSchema};

const DECIMAL_PRECISION_MAX: u32 = 38;

/// Finds, without building anything, values that a table has no place for.
#[derive(Debug, Clone)]
pub struct Probe {
    names: Names,
    fields: Vec<FieldProbe>,
    /// How many fields need a value.
    required: usize,
    adds: bool,
}

#[derive(Debug, Clone)]
struct FieldProbe {
    /// Whether null is what the field can be made to take.
    needs_value: bool,
    inside: Inside,
}

#[derive(Debug, Clone)]
enum Inside {
    /// No value can ask for a change.
    Settled,
    /// A number may ask for a promotion.
    Number(PrimitiveType),
    Struct(Probe),
    Elements(Box<FieldProbe>),
    Values(Box<FieldProbe>),
}

impl Probe {
    /// Prepares for `table`; `None` when its names are ambiguous.
    pub fn new(rules: &EvolutionRules, table: &Schema) -> Option<Self> {
        Probe::of(rules, table, table.as_struct(), true)
    }

    fn of(
        rules: &EvolutionRules,
        table: &Schema,
        fields: &StructType,
        is_top: bool,
    ) -> Option<Self> {
        let names = Names::of(fields.fields(), rules.names()).ok()?;
        let probe = |field: &NestedField| FieldProbe::of(rules, table, field, is_top);
        let fields: Option<Vec<_>> = fields.fields().iter().map(|field| probe(field)).collect();
        let fields = fields?;
        Some(Probe {
            names,
            required: fields.iter().filter(|field| field.needs_value).count(),
            fields,
            adds: rules.adds(),
        })
    }

    /// Returns the index of the field that `name` means.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.names.find(name)
    }

    /// Tells whether the table has no place for something in a record, given as its entries: the
    /// [field](Self::find) of each, its value, and what a number in it means.
    pub fn lacks<'c>(
        &self,
        entries: impl Iterator<Item = (Option<usize>, Cell<'c>, Semantic)>,
    ) -> bool {
        let mut given = 0;
        for (found, value, semantic) in entries {
            match found.and_then(|found| self.fields.get(found)) {
                Some(field) => {
                    given += usize::from(field.needs_value);
                    if field.lacks(value, semantic) {
                        return true;
                    }
                }
                None if self.adds && types::shows_type(value) => return true,
                None => {}
            }
        }
        given < self.required
    }

    /// Tells whether nothing in any of the records can ask for a change: the table has all their
    /// fields, as types that take what they ever take.
    pub fn is_settled_for(&self, maps: &MapRows<'_>) -> bool {
        let settled = |name: &&str| {
            let field = self.find(name).and_then(|found| self.fields.get(found));
            field.is_some_and(FieldProbe::is_settled)
        };
        self.required == 0 && maps.names().iter().all(settled)
    }

    pub(super) fn lacks_in(&self, value: Cell<'_>) -> bool {
        match value {
            Cell::Map(map) => {
                let semantic = meaning(map.entry_schemas().map(|(_, value)| value));
                self.lacks(map.entries().filter_map(|entry| match entry.key {
                    Cell::String(name) => Some((self.find(name), entry.value, semantic)),
                    _ => None,
                }))
            }
            Cell::Struct(record) => {
                let fields = record.fields().iter().enumerate();
                self.lacks(fields.map(|(index, field)| {
                    let semantic = Semantic::of(&field.schema);
                    (self.find(&field.name), record.field(index), semantic)
                }))
            }
            _ => false,
        }
    }
}

impl FieldProbe {
    fn of(
        rules: &EvolutionRules,
        table: &Schema,
        field: &NestedField,
        is_top: bool,
    ) -> Option<Self> {
        let child = |field: &NestedField| FieldProbe::of(rules, table, field, false);
        let inside = match field.field_type.as_ref() {
            Type::Primitive(
                primitive @ (PrimitiveType::Int
                | PrimitiveType::Float
                | PrimitiveType::Decimal { .. }),
            ) if rules.promotes() => Inside::Number(primitive.clone()),
            Type::Primitive(_) => Inside::Settled,
            Type::Struct(fields) => Inside::Struct(Probe::of(rules, table, fields, false)?),
            Type::List(list) => match child(&list.element_field)? {
                element if element.is_settled() => Inside::Settled,
                element => Inside::Elements(Box::new(element)),
            },
            Type::Map(map) => match child(&map.value_field)? {
                value if value.is_settled() => Inside::Settled,
                value => Inside::Values(Box::new(value)),
            },
        };
        let needs_value =
            rules.promotes() && rules.needs_value(field, is_top) && !is_key(table, field);
        Some(FieldProbe {
            needs_value,
            inside,
        })
    }

    fn is_settled(&self) -> bool {
        !self.needs_value && matches!(self.inside, Inside::Settled)
    }

    fn lacks(&self, value: Cell<'_>, semantic: Semantic) -> bool {
        if value.is_null() {
            return self.needs_value;
        }
        match (&self.inside, value) {
            (Inside::Settled, _) => false,
            (Inside::Number(column), value) => promotion(column, value, semantic).is_some(),
            (Inside::Struct(fields), value) => fields.lacks_in(value),
            (Inside::Elements(element), Cell::Array(list)) => {
                let semantic = meaning(list.element_schema());
                list.iter().any(|cell| element.lacks(cell, semantic))
            }
            (Inside::Values(inside), Cell::Map(map)) => {
                let semantic = meaning(map.entry_schemas().map(|(_, value)| value));
                let mut entries = map.entries();
                entries.any(|entry| inside.lacks(entry.value, semantic))
            }
            _ => false,
        }
    }
}

fn meaning(schema: Option<&SourceSchema>) -> Semantic {
    schema.map_or(Semantic::Schemaless, Semantic::of)
}

/// Returns the type that a column has to be promoted to so that it holds `cell`, if that helps.
fn promotion(column: &PrimitiveType, cell: Cell<'_>, semantic: Semantic) -> Option<PrimitiveType> {
    if matches!(
        (column, cell),
        (
            PrimitiveType::Int,
            Cell::Int8(_) | Cell::Int16(_) | Cell::Int32(_)
        ) | (PrimitiveType::Float, Cell::Float32(_))
    ) {
        return None;
    }
    let value = Value::read(cell, semantic).ok().flatten()?;
    match column {
        PrimitiveType::Int if scalar::to_i32(value).is_err() => {
            scalar::to_i64(value).ok().map(|_| PrimitiveType::Long)
        }
        PrimitiveType::Float if scalar::to_f32(value).is_err() => {
            scalar::to_f64(value).ok().map(|_| PrimitiveType::Double)
        }
        PrimitiveType::Decimal { precision, scale }
            if scalar::to_decimal(value, *precision, *scale).is_err() =>
        {
            let unscaled = scalar::to_decimal(value, DECIMAL_PRECISION_MAX, *scale).ok()?;
            Some(PrimitiveType::Decimal {
                precision: unscaled.unsigned_abs().checked_ilog10()? + 1,
                scale: *scale,
            })
        }
        _ => None,
    }
}

/// Where a walk through values stands.
struct Walk<'r> {
    rules: &'r EvolutionRules,
    schema: &'r Schema,
    path: Vec<String>,
    found: Evolution,
}

impl EvolutionRules {
    /// Returns `so_far` and what `table` has to gain for `value` on top of it.
    ///
    /// # Errors
    ///
    /// `SCHEMA_COLUMNS_MAX` when that is more than the limits allow.
    pub fn with_value(
        &self,
        table: &Schema,
        so_far: &Evolution,
        value: Cell<'_>,
    ) -> Result<Evolution> {
        let mut walk = Walk {
            rules: self,
            schema: table,
            path: Vec::new(),
            found: so_far.clone(),
        };
        walk.record(table.as_struct(), value);
        let found = walk.found;
        match self.beyond_limits(table, &found) {
            Some(error) => Err(error),
            None if found == *so_far => Ok(found),
            None => Ok(found.viable(table)),
        }
    }
}

impl Walk<'_> {
    fn inside(&mut self, step: &str, run: impl FnOnce(&mut Self)) {
        self.path.push(step.to_owned());
        run(self);
        self.path.pop();
    }

    fn record(&mut self, table: &StructType, value: Cell<'_>) {
        let Ok(names) = Names::of(table.fields(), self.rules.names()) else {
            return;
        };
        let mut given = vec![false; table.fields().len()];
        let mut entry = |walk: &mut Self, name: &str, value: Cell<'_>, schema| {
            let found = names.find(name);
            if let Some(given) = found.and_then(|found| given.get_mut(found)) {
                *given = true;
            }
            match found.and_then(|found| table.fields().get(found)) {
                Some(field) => {
                    let semantic = meaning(schema);
                    walk.inside(&field.name, |walk| walk.field(field, value, semantic));
                }
                None => walk.new_field(table, name, value, schema),
            }
        };
        match value {
            Cell::Map(map) => {
                let schema = map.entry_schemas().map(|(_, value)| value);
                for of_map in map.entries() {
                    if let Cell::String(name) = of_map.key {
                        entry(self, name, of_map.value, schema);
                    }
                }
            }
            Cell::Struct(record) => {
                for (index, field) in record.fields().iter().enumerate() {
                    let schema = Some(field.schema.as_ref());
                    entry(self, &field.name, record.field(index), schema);
                }
            }
            _ => return,
        }
        let is_top = self.path.is_empty();
        for (field, given) in table.fields().iter().zip(given) {
            if !given && self.rules.needs_value(field, is_top) {
                self.inside(&field.name, |walk| walk.null(field));
            }
        }
    }

    fn new_field(
        &mut self,
        table: &StructType,
        name: &str,
        value: Cell<'_>,
        schema: Option<&SourceSchema>,
    ) {
        let is_taken = self.path.is_empty() && self.rules.facts.partition_names.contains(name);
        if !self.rules.adds() || is_taken {
            return;
        }
        let new_type = match schema {
            Some(schema) if !value.is_null() => {
                let rules = TypeRules {
                    force_optional: true,
                    ..self.rules.types()
                };
                types::type_of(schema, rules).ok()
            }
            _ => types::type_of_value(value).ok().flatten(),
        };
        if let Some(new_type) = new_type {
            let new = NestedField::optional(0, name, new_type);
            self.found.add(&self.path, table, new);
        }
    }

    /// The field at the path has no value.
    fn null(&mut self, field: &NestedField) {
        if field.required && self.rules.promotes() && !is_key(self.schema, field) {
            self.found.make_optional(&self.path);
        }
    }

    fn field(&mut self, field: &NestedField, value: Cell<'_>, semantic: Semantic) {
        if value.is_null() {
            return self.null(field);
        }
        match (field.field_type.as_ref(), value) {
            (Type::Primitive(column), value) if self.rules.promotes() => {
                if let Some(to) = promotion(column, value, semantic) {
                    self.found.promote(&self.path, column, to);
                }
            }
            (Type::Struct(fields), value) => self.record(fields, value),
            (Type::List(list), Cell::Array(array)) => {
                let semantic = meaning(array.element_schema());
                let element = &list.element_field;
                for value in array.iter() {
                    self.inside(&element.name, |walk| walk.field(element, value, semantic));
                }
            }
            (Type::Map(map), Cell::Map(entries)) => {
                let semantic = meaning(entries.entry_schemas().map(|(_, value)| value));
                let field = &map.value_field;
                for entry in entries.entries() {
                    self.inside(&field.name, |walk| {
                        walk.field(field, entry.value, semantic);
                    });
                }
            }
            _ => {}
        }
    }
}
