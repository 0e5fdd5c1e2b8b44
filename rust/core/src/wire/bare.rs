//! Values without a schema that are no records, as records of one field.

use super::frame::{Frame, Part, Parts};
use super::tagged::{self, TaggedRows};
use crate::error::{Result, SinkError};

/// The values of a frame, those that are not maps in a field of their own.
#[derive(Debug)]
pub struct BareValues {
    offsets: Vec<[u8; 4]>,
    data: Vec<u8>,
    text: String,
}

impl BareValues {
    /// Puts the bare values of `frame` into the field `name`; `None` when there are none. Nulls and
    /// maps stay as they are.
    ///
    /// # Errors
    ///
    /// `INTERNAL` when that is more than a frame may hold.
    pub fn of(frame: &Frame<'_>, name: &str) -> Result<Option<Self>> {
        let Some((values, context)) = frame.tagged_values() else {
            return Ok(None);
        };
        let rows = || (0..frame.rows()).map(|row| values.checked_row(row).unwrap_or_default());
        if !rows().any(is_bare) {
            return Ok(None);
        }
        let mut bare = BareValues {
            offsets: vec![[0; 4]],
            data: Vec::new(),
            text: context.text.to_owned(),
        };
        let mut key = vec![tagged::STRING];
        key.extend_from_slice(&length(bare.text.len())?);
        key.extend_from_slice(&length(name.len())?);
        bare.text.push_str(name);
        for value in rows() {
            if is_bare(value) {
                bare.data.push(tagged::MAP);
                bare.data.extend(length(key.len() + value.len())?);
                bare.data.extend(length(1)?);
                bare.data.extend_from_slice(&key);
            }
            bare.data.extend_from_slice(value);
            bare.offsets.push(length(bare.data.len())?);
        }
        Ok(Some(bare))
    }

    /// Returns `frame`, which this was made of, with these values.
    pub fn frame<'b>(&'b self, frame: &Frame<'b>) -> Frame<'b> {
        frame.with_parts(Parts {
            value: Some(Part::Tagged(
                TaggedRows::of(&self.offsets, &self.data),
                &self.text,
            )),
            ..Parts::default()
        })
    }
}

/// Tells whether a value is neither a map nor null.
fn is_bare(value: &[u8]) -> bool {
    !matches!(value.first(), None | Some(&tagged::NULL | &tagged::MAP))
}

fn length(length: usize) -> Result<[u8; 4]> {
    u32::try_from(length)
        .map(u32::to_le_bytes)
        .map_err(|_| SinkError::internal("the values of a frame outgrew it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Cell;
    use crate::wire::testing::{FrameBuilder, Row, Value};

    // Promise: with `iceberg.tables.value-column`, values that are no records land without a schema
    // too
    #[test]
    fn values_without_a_schema_get_a_field_of_their_own() {
        let values = [
            Value::text("one"),
            Value::Int64(7),
            Value::Array(vec![Value::Int64(1), Value::text("x")]),
            Value::Null,
            Value::object([("v", Value::text("kept"))]),
        ];
        let rows = values.into_iter().zip(0..);
        let rows = rows.map(|(value, offset)| Row::new("t", 0, offset).value(value));
        let frame = FrameBuilder::schemaless().rows(rows);
        let bytes = frame.encode();
        let frame = Frame::decode(&bytes, &frame.schemas()).unwrap();
        let bare = BareValues::of(&frame, "payload").unwrap().unwrap();
        let frame = bare.frame(&frame);
        let shown = |row| match frame.value(row) {
            Cell::Map(map) => {
                let entries = map.entries().map(|entry| (entry.key, entry.value));
                format!("{:?}", entries.collect::<Vec<_>>())
            }
            other => format!("{other:?}"),
        };
        assert_eq!(shown(0), r#"[(String("payload"), String("one"))]"#);
        assert_eq!(shown(1), r#"[(String("payload"), Int64(7))]"#);
        assert!(matches!(
            frame.value(2),
            Cell::Map(map) if matches!(map.entry(0).1, Cell::Array(list) if list.len() == 2)
        ));
        assert!(frame.is_tombstone(3));
        assert_eq!(shown(4), r#"[(String("v"), String("kept"))]"#);
    }

    #[test]
    fn records_are_left_alone() {
        let frame = FrameBuilder::schemaless()
            .row(Row::new("t", 0, 0).value(Value::object([("v", Value::Int64(1))])))
            .row(Row::new("t", 0, 1));
        let bytes = frame.encode();
        let frame = Frame::decode(&bytes, &frame.schemas()).unwrap();
        assert!(BareValues::of(&frame, "payload").unwrap().is_none());
    }
}
