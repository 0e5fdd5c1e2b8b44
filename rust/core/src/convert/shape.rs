//! How values of one source schema meet one column: worked out once per schema, used per row.

use iceberg::spec::{StructType, Type};

use crate::error::Result;
use crate::schema::names::{Aliases, NameRules, Names};
use crate::schema::semantic::Semantic;
use crate::wire::{SourceKind, SourceSchema};

/// What a column knows about the values that come.
#[derive(Debug, Clone)]
pub(super) enum Shape {
    /// Nothing: each value says what it is.
    Schemaless,
    /// Scalars, and nested values that become text, with their meaning.
    Plain(Semantic),
    /// Structs for a struct column.
    Record(Record),
    /// Maps for a struct column; one shape per field of the column.
    Entries(Vec<Shape>),
    /// Arrays for a list column.
    List(Box<Shape>),
    /// Maps for a map column.
    Map(Box<Shape>, Box<Shape>),
}

/// How a struct's fields meet the fields of a struct column.
#[derive(Debug, Clone, Default)]
pub(super) struct Record {
    /// For each field of the column, where its values come from.
    pub(super) fields: Vec<Source>,
    /// Fields of the source, by index and name, that the column has not.
    pub(super) unknown: Vec<(usize, String)>,
}

/// Where the values of a field come from.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// The source has no such field.
    Missing,
    /// More than one field of the source has this name.
    Ambiguous,
    /// The field with this index.
    Field(usize, Shape),
}

/// The rules that hold for the whole table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules<'a> {
    /// Whether names match whatever their case.
    pub(super) case_insensitive: bool,
    /// The names that the table's name mapping adds.
    pub(super) aliases: &'a Aliases,
    /// Whether a field that the table has not is an error (evolution is on and could not add it)
    /// instead of being left out.
    pub(super) refuse_unknown: bool,
}

impl<'a> Rules<'a> {
    /// Returns how record fields find columns.
    pub(super) fn names(self) -> NameRules<'a> {
        NameRules {
            case_insensitive: self.case_insensitive,
            aliases: self.aliases,
        }
    }
}

impl Shape {
    /// Works out how values of `source` meet a column of type `target`.
    pub(super) fn of(
        target: &Type,
        source: Option<&SourceSchema>,
        rules: Rules<'_>,
    ) -> Result<Self> {
        let Some(source) = source else {
            return Ok(Shape::Schemaless);
        };
        let child = |schema: Option<&std::sync::Arc<SourceSchema>>, target: &Type| {
            Shape::of(target, schema.map(AsRef::as_ref), rules)
        };
        Ok(match (target, source.kind()) {
            (Type::Struct(fields), SourceKind::Struct) => {
                Shape::Record(Record::of(fields, source, rules)?)
            }
            (Type::Struct(fields), SourceKind::Map) => {
                let fields = fields.fields().iter();
                let shapes = fields.map(|field| child(source.value(), &field.field_type));
                Shape::Entries(shapes.collect::<Result<_>>()?)
            }
            (Type::List(list), SourceKind::Array) => {
                let element = child(source.value(), &list.element_field.field_type)?;
                Shape::List(Box::new(element))
            }
            (Type::Map(map), SourceKind::Map) => Shape::Map(
                Box::new(child(source.key(), &map.key_field.field_type)?),
                Box::new(child(source.value(), &map.value_field.field_type)?),
            ),
            _ => Shape::Plain(Semantic::of(source)),
        })
    }

    /// Returns what a scalar of this shape means.
    pub(super) fn semantic(&self) -> Semantic {
        match self {
            Shape::Schemaless => Semantic::Schemaless,
            Shape::Plain(semantic) => *semantic,
            _ => Semantic::Plain,
        }
    }
}

impl Record {
    /// Matches the fields of `source` with those of a struct column by name.
    pub(super) fn of(target: &StructType, source: &SourceSchema, rules: Rules<'_>) -> Result<Self> {
        let names = Names::of(target.fields(), rules.names())?;
        let mut record = Record {
            fields: vec![Source::Missing; target.fields().len()],
            unknown: Vec::new(),
        };
        for (index, field) in source.fields().iter().enumerate() {
            let found = names.find(&field.name);
            let slot = found.and_then(|found| record.fields.get_mut(found));
            let column = found.and_then(|found| target.fields().get(found));
            match (slot, column) {
                (Some(slot @ Source::Missing), Some(column)) => {
                    let shape = Shape::of(&column.field_type, Some(&field.schema), rules)?;
                    *slot = Source::Field(index, shape);
                }
                (Some(slot), _) => *slot = Source::Ambiguous,
                (None, _) => record.unknown.push((index, field.name.clone())),
            }
        }
        Ok(record)
    }
}
