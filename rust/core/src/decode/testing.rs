//! For tests of decoders.

use crate::wire::Cell;

/// A cell as text, as far down as it goes.
pub(crate) fn show(cell: Cell<'_>) -> String {
    match cell {
        Cell::Array(list) => {
            let items: Vec<String> = list.iter().map(show).collect();
            format!("[{}]", items.join(", "))
        }
        Cell::Map(map) => {
            let entries = map.entries();
            let entries: Vec<String> = entries
                .map(|entry| format!("{}: {}", show(entry.key), show(entry.value)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        Cell::Struct(record) => {
            let fields = record.fields().iter().enumerate();
            let fields: Vec<String> = fields
                .map(|(index, field)| format!("{}={}", field.name, show(record.field(index))))
                .collect();
            format!("({})", fields.join(", "))
        }
        Cell::String(text) => format!("{text:?}"),
        Cell::Null => "null".to_owned(),
        other => format!("{other:?}"),
    }
}
