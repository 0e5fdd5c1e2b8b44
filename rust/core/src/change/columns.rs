//! The names that columns of the table have in records, as the converter finds them: those that the
//! table's name mapping gives a column, its own, and its own in another case where case does not count.
//!
//! A row lands by these names, so its key and what orders it must be found by the same ones.

use std::sync::Arc;

use iceberg::spec::{NestedFieldRef, Schema, Type};

use super::place::Located;
use crate::error::{Result, SinkError};
use crate::schema::names::NameRules;
use crate::wire::{Cell, SourceColumn, SourceKind};

/// The way to one column, from the record down through its structs.
#[derive(Debug, Clone)]
pub(super) struct ColumnNames(Vec<Step>);

/// The names of one field.
#[derive(Debug, Clone)]
struct Step {
    /// From the name mapping; these count first.
    aliases: Vec<Arc<str>>,
    /// Those that the mapping gives the fields beside it.
    others: Vec<Arc<str>>,
    own: Arc<str>,
    in_any_case: bool,
}

impl ColumnNames {
    /// Makes the names of a column that the table does not have.
    pub(super) fn nowhere() -> ColumnNames {
        ColumnNames(Vec::new())
    }

    /// Finds the way to column `id`.
    ///
    /// # Errors
    ///
    /// `CHANGE_KEY_UNSUPPORTED` when it leads through a list or map.
    pub(super) fn of(schema: &Schema, id: i32, rules: NameRules<'_>) -> Result<ColumnNames> {
        let mut steps = Vec::new();
        match find(schema.as_struct().fields(), id, rules, &mut steps) {
            true => Ok(ColumnNames(steps)),
            false => {
                let path = schema.name_by_field_id(id).unwrap_or_default();
                let message =
                    "a column inside of a list or map cannot tell rows apart, nor order them";
                let error = SinkError::config("CHANGE_KEY_UNSUPPORTED", message);
                Err(error.with("column", path))
            }
        }
    }

    /// Finds the column below a struct, once for all rows; `None` where the schema does not tell.
    pub(super) fn locate<'f>(&self, record: &'f SourceColumn<'f>) -> Option<Located<'f>> {
        let mut column = record;
        for step in &self.0 {
            if column.schema().kind() != SourceKind::Struct {
                return None;
            }
            let names = column.schema().fields().iter();
            let found = step.position(names.map(|field| field.name.as_str()));
            match found.and_then(|index| column.children().get(index)) {
                Some(child) => column = child,
                None => return Some(Located::Absent),
            }
        }
        Some(Located::Column(column, ""))
    }

    /// Returns the value of the column in a record, null when it has none.
    pub(super) fn cell<'c>(&self, mut record: Cell<'c>) -> Cell<'c> {
        for step in &self.0 {
            record = step.cell(&record);
        }
        record
    }
}

/// Notes the steps to field `id`, the last of which comes last.
fn find(fields: &[NestedFieldRef], id: i32, rules: NameRules<'_>, steps: &mut Vec<Step>) -> bool {
    for field in fields {
        steps.push(Step::of(field, fields, rules));
        let below: &[NestedFieldRef] = match field.field_type.as_ref() {
            Type::Struct(below) => below.fields(),
            _ => &[],
        };
        if field.id == id || find(below, id, rules, steps) {
            return true;
        }
        steps.pop();
    }
    false
}

impl Step {
    fn of(field: &NestedFieldRef, fields: &[NestedFieldRef], rules: NameRules<'_>) -> Step {
        let named = |id: i32| {
            rules
                .aliases
                .of_field(id)
                .iter()
                .map(|name| Arc::from(name.as_str()))
        };
        let beside = fields.iter().filter(|other| other.id != field.id);
        Step {
            aliases: named(field.id).collect(),
            others: beside.flat_map(|other| named(other.id)).collect(),
            own: Arc::from(field.name.as_str()),
            in_any_case: rules.case_insensitive,
        }
    }

    /// Returns the names that count exactly, the first most.
    fn exact(&self) -> impl Iterator<Item = &str> {
        let is_own = !self.others.contains(&self.own);
        let own = is_own.then_some(&*self.own);
        self.aliases.iter().map(|alias| &**alias).chain(own)
    }

    /// Tells whether a field of this name is this one in another case.
    fn is_in_other_case(&self, name: &str) -> bool {
        let same = match name.is_ascii() && self.own.is_ascii() {
            true => name.eq_ignore_ascii_case(&self.own),
            false => name.to_lowercase() == self.own.to_lowercase(),
        };
        same && !self.others.iter().any(|other| **other == *name)
    }

    fn position<'n>(&self, names: impl Iterator<Item = &'n str> + Clone) -> Option<usize> {
        let exactly = |wanted: &str| names.clone().position(|name| name == wanted);
        let found = self.exact().find_map(exactly);
        match self.in_any_case {
            true => found.or_else(|| names.clone().position(|name| self.is_in_other_case(name))),
            false => found,
        }
    }

    fn cell<'c>(&self, record: &Cell<'c>) -> Cell<'c> {
        match record {
            Cell::Map(map) => {
                if let Some(found) = self.exact().find_map(|name| map.get(name)) {
                    return found;
                }
                let is_other = |key: &Cell<'_>| match key {
                    Cell::String(name) => self.is_in_other_case(name),
                    _ => false,
                };
                let mut entries = map.entries().filter(|_| self.in_any_case);
                let found = entries.find(|entry| is_other(&entry.key));
                found.map_or(Cell::Null, |entry| entry.value)
            }
            Cell::Struct(record) => {
                let names = record.fields().iter().map(|field| field.name.as_str());
                let found = self.position(names);
                found.map_or(Cell::Null, |index| record.field(index))
            }
            _ => Cell::Null,
        }
    }
}
