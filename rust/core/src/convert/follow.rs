//! Which changes of a table its records ask for, and what is wrong with a record that it cannot
//! follow.
//!
//! Keeps: nothing is asked for on behalf of a record that the changed table would refuse. So the
//! rows that ask for something are converted, on trial, to the table as it would be; those that are
//! refused even then do not count. A frame that asks for nothing, as nearly all do, costs one look
//! at its schema, or, without a schema, one at its values.

use std::sync::Arc;

use iceberg::spec::{PrimitiveType, Schema, Type};

use super::batch::{ConvertOptions, TableConverter, index_of};
use super::misfit::{Misfit, Reason};
use crate::error::SinkError;
use crate::schema::evolve::{
    Break, BreakKind, BreakingPolicy, Comparison, Evolution, EvolutionMode, Probe,
};
use crate::schema::semantic::Semantic;
use crate::wire::{Cell, Frame, SourceKind, SourceSchema};

/// The column of each interned name of a frame, once it was looked up.
type Found = Vec<Option<Option<usize>>>;

impl TableConverter {
    /// Returns what the table has to gain for `rows` of `frame`, `None` when nothing. Ask before
    /// `append`; after a change, make a new converter and ask again: limits may have left a rest.
    pub fn evolution(&mut self, frame: &Frame<'_>, rows: &[u32]) -> Option<Evolution> {
        if self.options.evolution == EvolutionMode::Off {
            return None;
        }
        if let (Some(maps), Some(probe)) = (frame.maps(), &self.probe)
            && probe.is_settled_for(maps)
        {
            return None;
        }
        let compared = self.comparison(frame);
        let of_schema = match &compared {
            Some(compared) if compared.evolution.is_empty() && !compared.by_value => return None,
            Some(compared) => compared.evolution.clone(),
            None => Evolution::default(),
        };
        let by_value = compared.is_none_or(|compared| compared.by_value);
        let is_asked = !of_schema.is_empty();
        let mut found: Found = vec![None; frame.names().len()];
        let asking = rows.iter().copied().filter(|row| {
            !frame.is_tombstone(index_of(*row))
                && (is_asked || self.lacks(frame.value(index_of(*row)), &mut found))
        });
        let mut asking: Vec<u32> = asking.collect();
        loop {
            let mut evolution = of_schema.clone();
            if by_value {
                evolution = self.of_values(evolution, frame, &asking);
            }
            if asking.is_empty() || evolution.is_empty() {
                return None;
            }
            let refused = self.refused_by(&evolution, frame, &asking)?;
            if refused.is_empty() || (!by_value && refused.len() < asking.len()) {
                return Some(evolution);
            }
            asking.retain(|row| !refused.contains(row));
        }
    }

    /// Returns what structs of `source` mean for the table, whether or not any comes.
    pub fn compare(&self, source: &SourceSchema) -> Comparison {
        self.evolution_rules.compare(&self.schema, source)
    }

    /// Returns what the schema of the structs of `frame` means for the table, worked out once.
    fn comparison(&mut self, frame: &Frame<'_>) -> Option<Arc<Comparison>> {
        let source = frame.value_schema();
        let source = source.filter(|schema| schema.kind() == SourceKind::Struct)?;
        let (rules, table) = (&self.evolution_rules, &self.schema);
        let known = self.comparisons.entry(frame.value_schema_id());
        let known = known.or_insert_with(|| Arc::new(rules.compare(table, source)));
        Some(Arc::clone(known))
    }

    /// Tells whether the table has no place for something in `value`.
    fn lacks(&self, value: Cell<'_>, found: &mut Found) -> bool {
        let Some(probe) = &self.probe else {
            return false;
        };
        match value {
            Cell::Map(map) => {
                let semantic = match map.entry_schemas() {
                    Some((_, schema)) => Semantic::of(schema),
                    None => Semantic::Schemaless,
                };
                probe.lacks(map.entries().filter_map(|entry| match entry.key {
                    Cell::String(name) => {
                        let column = find(probe, name, entry.name_index, found);
                        Some((column, entry.value, semantic))
                    }
                    _ => None,
                }))
            }
            Cell::Struct(record) => {
                let fields = record.fields().iter().enumerate();
                probe.lacks(fields.map(|(index, field)| {
                    let semantic = Semantic::of(&field.schema);
                    (probe.find(&field.name), record.field(index), semantic)
                }))
            }
            _ => false,
        }
    }

    /// Adds what the values of `rows` need. A row that needs more than a limit allows is left out;
    /// one that only has no room beside the others has its turn after them.
    fn of_values(&self, mut so_far: Evolution, frame: &Frame<'_>, rows: &[u32]) -> Evolution {
        let (rules, table) = (&self.evolution_rules, &self.schema);
        for row in rows {
            let value = frame.value(index_of(*row));
            if let Ok(with) = rules.with_value(table, &so_far, value) {
                so_far = with;
            }
        }
        so_far
    }

    /// Returns which of `rows` the table would refuse after `evolution`; `None` when there can be no
    /// such table.
    fn refused_by(
        &self,
        evolution: &Evolution,
        frame: &Frame<'_>,
        rows: &[u32],
    ) -> Option<Vec<u32>> {
        let schema = evolution
            .apply(&self.schema, self.schema.highest_field_id())
            .ok()?;
        let options = ConvertOptions {
            breaking: BreakingPolicy::Dlq,
            ..self.options.clone()
        };
        let mut trial = TableConverter::new(Arc::new(schema), &options).ok()?;
        let mut refused = Vec::new();
        let mut refuse = |row, _| refused.push(row);
        trial.append(frame, rows, &mut refuse).ok()?;
        Some(refused)
    }

    /// Returns the error of a row that was refused, and whether it is a change of the source which
    /// the table cannot follow, rather than an odd value.
    pub(super) fn explain(
        &mut self,
        frame: &Frame<'_>,
        row: u32,
        misfit: Misfit,
    ) -> (SinkError, bool) {
        let is_followed = self.options.evolution != EvolutionMode::Off
            || self.options.breaking != BreakingPolicy::Dlq;
        if misfit.reason() == Reason::UnknownField
            && let Some(error) = self.beyond_limits(frame, row, &misfit)
        {
            return (error, false);
        }
        if !is_followed {
            return (misfit.into(), false);
        }
        let path = misfit.path();
        let broken = match self.comparison(frame) {
            Some(compared) => {
                let about_null = misfit.reason() == Reason::RequiredNull;
                let mut breaks = compared.breaks.iter();
                let of_column = breaks.find(|found| {
                    found.column == path
                        && found.is_about_null() == about_null
                        && (about_null || is_about_type(misfit.reason()))
                });
                of_column.cloned()
            }
            None => broken_by(&self.schema, &path, &misfit),
        };
        match broken {
            Some(broken) => (broken.error(), true),
            None => (misfit.into(), false),
        }
    }

    /// Returns the limit because of which an unknown field got no column.
    fn beyond_limits(&mut self, frame: &Frame<'_>, row: u32, misfit: &Misfit) -> Option<SinkError> {
        let path = misfit.path();
        let error = match self.comparison(frame) {
            Some(compared) => {
                let mut left_out = compared.left_out.iter();
                let found = left_out.find(|(name, _)| *name == path);
                found.map(|(_, error)| error.again())
            }
            None => {
                let value = frame.value(index_of(row));
                let nothing = Evolution::default();
                let rules = &self.evolution_rules;
                rules.with_value(&self.schema, &nothing, value).err()
            }
        };
        error
            .filter(|error| error.code() == "SCHEMA_COLUMNS_MAX")
            .map(|error| error.with("column", path))
    }
}

fn find(probe: &Probe, name: &str, name_index: Option<usize>, found: &mut Found) -> Option<usize> {
    match name_index.and_then(|index| found.get_mut(index)) {
        Some(Some(column)) => *column,
        Some(unknown) => *unknown.insert(probe.find(name)),
        None => probe.find(name),
    }
}

fn is_about_type(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::OutOfRange
            | Reason::PrecisionLoss
            | Reason::NotConvertible
            | Reason::Malformed
            | Reason::UnitUnknown
            | Reason::WrongLength
    )
}

/// Tells what a record without a schema changed. Such a record promises nothing, so that only a
/// value of quite another type counts, or none for a required column.
fn broken_by(table: &Schema, path: &str, misfit: &Misfit) -> Option<Break> {
    let column = table.field_by_name(path)?;
    let is_key = table.identifier_field_ids().any(|id| id == column.id);
    let kind = match (misfit.reason(), column.field_type.as_ref()) {
        (Reason::RequiredNull, _) if is_key => BreakKind::KeyRemoved { instead: None },
        (Reason::RequiredNull, _) => BreakKind::Removed,
        (Reason::NotConvertible, _) => BreakKind::Type,
        (Reason::Malformed, Type::Primitive(primitive)) if is_number(primitive) => BreakKind::Type,
        _ => return None,
    };
    Some(Break {
        column: path.to_owned(),
        to: match kind {
            BreakKind::Type => misfit.source().to_owned(),
            _ => "nothing".to_owned(),
        },
        kind,
        from: Break::type_name(&column.field_type),
    })
}

fn is_number(primitive: &PrimitiveType) -> bool {
    matches!(
        primitive,
        PrimitiveType::Boolean
            | PrimitiveType::Int
            | PrimitiveType::Long
            | PrimitiveType::Float
            | PrimitiveType::Double
            | PrimitiveType::Decimal { .. }
    )
}
