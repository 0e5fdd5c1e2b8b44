//! Records in columns, as Java's `MapsWriter` writes them.

use super::{Heap, SourceKind, SourceSchema, Value, Writer, name_index, write_column, write_rows};
use crate::wire::maps::{
    KIND_BOOLEAN, KIND_FLOAT64, KIND_INT64, KIND_NOTHING, KIND_STRING, KIND_TAGGED,
};

/// The values of one name; `None` where a record does not have it.
type Column<'v> = (&'v str, Vec<Option<&'v Value>>);

/// Returns the bytes of plain records in columns; `None` when not all of `values` are plain records.
pub(super) fn written(values: &[Value], heap: &mut Heap) -> Option<Vec<u8>> {
    let mut columns: Vec<Column<'_>> = Vec::new();
    for (row, value) in values.iter().enumerate() {
        let entries = match value {
            Value::Null => continue,
            Value::Map(entries) => entries,
            _ => return None,
        };
        for (key, value) in entries {
            let Value::String(name) = key else {
                return None;
            };
            let known = columns.iter().position(|(known, _)| known == name);
            let at = known.unwrap_or_else(|| {
                columns.push((name.as_str(), vec![None; values.len()]));
                columns.len() - 1
            });
            let cell = columns.get_mut(at)?.1.get_mut(row)?;
            if cell.replace(value).is_some() {
                return None;
            }
        }
    }
    let kinds: Vec<u8> = columns.iter().map(kind_of).collect::<Option<_>>()?;
    let mut writer = Writer::default();
    let is_null = |value: &Value| *value == Value::Null;
    flags(&mut writer, values.iter().map(is_null), true);
    writer.length(columns.len());
    for ((name, values), kind) in columns.iter().zip(kinds) {
        writer.length(name_index(heap, name));
        writer.u8(kind);
        flags(
            &mut writer,
            values.iter().map(|value| value.is_some()),
            false,
        );
        let values: Vec<&Value> = values
            .iter()
            .map(|value| value.unwrap_or(&Value::Null))
            .collect();
        let schema = match kind {
            KIND_NOTHING => continue,
            KIND_BOOLEAN => SourceKind::Boolean,
            KIND_INT64 => SourceKind::Int64,
            KIND_FLOAT64 => SourceKind::Float64,
            KIND_STRING => SourceKind::String,
            _ => {
                write_rows(&mut writer, heap, values);
                continue;
            }
        };
        write_column(
            &mut writer,
            &SourceSchema::scalar(schema).optional(),
            &values,
        );
    }
    Some(writer.bytes)
}

fn kind_of((_, values): &Column<'_>) -> Option<u8> {
    let mut kind = KIND_NOTHING;
    for value in values.iter().flatten() {
        let other = match value {
            Value::Null => continue,
            Value::Bool(_) => KIND_BOOLEAN,
            Value::Int64(_) => KIND_INT64,
            Value::Float64(_) => KIND_FLOAT64,
            Value::String(_) => KIND_STRING,
            _ => return None,
        };
        kind = match kind {
            KIND_NOTHING => other,
            known if known == other => known,
            _ => KIND_TAGGED,
        };
    }
    Some(kind)
}

/// Writes a byte for each row, unless all are not `usual`.
fn flags(writer: &mut Writer, flags: impl Iterator<Item = bool> + Clone, unusual: bool) {
    let any = flags.clone().any(|flag| flag == unusual);
    writer.u8(u8::from(any));
    if any {
        flags.for_each(|flag| writer.u8(u8::from(flag)));
    }
}
