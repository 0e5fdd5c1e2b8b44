//! Records that Connect hands over without a schema, gathered from rows into columns.
//!
//! The usual block of them, maps of texts, numbers, booleans and nulls as `JsonConverter` makes them,
//! is then converted whole columns at a time (`convert::maps`), as if its JSON had been decoded here.
//! A block with anything else stays as it came.
//!
//! Keeps: a gathered row is to look at as the row that it was made of, with its entries in the order
//! of the block.

use super::json::number::Number;
use super::maps::MapsBuilder;
use crate::wire::Frame;
use crate::wire::read::Reader;
use crate::wire::tagged::{self, Context};

/// Gathers the records of frames, one frame after another.
#[derive(Debug, Default)]
pub struct Gatherer {
    maps: MapsBuilder,
    /// The column of each name of the frame, once it was looked up.
    columns: Vec<Option<usize>>,
}

impl Gatherer {
    /// Gathers the values of `frame`. Returns `false` where they are not all records of plain values.
    pub fn gather(&mut self, frame: &Frame<'_>) -> bool {
        let Some((rows, context)) = frame.tagged_values() else {
            return false;
        };
        self.maps.clear();
        self.columns.clear();
        self.columns.resize(context.names.len(), None);
        for row in 0..frame.rows() {
            let bytes = rows.checked_row(row).unwrap_or_default();
            let mut reader = Reader::new(bytes, "tagged value");
            if self.record(&mut reader, context).is_none() {
                return false;
            }
        }
        self.maps.finish();
        true
    }

    /// Returns `frame`, whose values were [gathered](Self::gather) last, with these in columns.
    #[must_use]
    pub fn gathered<'b>(&'b self, frame: &Frame<'b>) -> Frame<'b> {
        frame.clone().with_maps(self.maps.records())
    }

    /// Returns about how many bytes of memory are held from frame to frame.
    pub fn bytes(&self) -> usize {
        self.maps.bytes() + self.columns.capacity() * size_of::<Option<usize>>()
    }

    fn record(&mut self, reader: &mut Reader<'_>, context: &Context<'_>) -> Option<()> {
        match reader.u8().ok()? {
            tagged::NULL => self.maps.null_row(),
            tagged::MAP => {
                let (_bytes, entries) = (reader.length().ok()?, reader.length().ok()?);
                for _ in 0..entries {
                    self.entry(reader, context)?;
                }
                self.maps.end_row();
            }
            _ => return None,
        }
        Some(())
    }

    fn entry(&mut self, reader: &mut Reader<'_>, context: &Context<'_>) -> Option<()> {
        if reader.u8().ok()? != tagged::NAME {
            return None;
        }
        let index = self.column(reader.length().ok()?, context)?;
        match reader.u8().ok()? {
            tagged::NULL => self.maps.null(index),
            tagged::FALSE => self.maps.bool(index, false),
            tagged::TRUE => self.maps.bool(index, true),
            tagged::INT64 => self.maps.number(index, Number::Int(reader.i64().ok()?)),
            tagged::FLOAT64 => {
                let bits = reader.i64().ok()?.cast_unsigned();
                self.maps.number(index, Number::Float(f64::from_bits(bits)));
            }
            tagged::STRING => {
                let (start, length) = (reader.length().ok()?, reader.length().ok()?);
                let text = context.text.get(start..start.checked_add(length)?)?;
                self.maps.text(index, text);
            }
            _ => return None,
        }
        Some(())
    }

    #[inline]
    fn column(&mut self, name: usize, context: &Context<'_>) -> Option<usize> {
        match self.columns.get(name)? {
            Some(column) => Some(*column),
            None => {
                let column = self.maps.find(context.names.get(name)?).ok()?;
                *self.columns.get_mut(name)? = Some(column);
                Some(column)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decode::testing::show;
    use crate::wire::testing::{FrameBuilder, Row, Value};
    use crate::wire::{Cell, SchemaRegistry};

    fn frame_of(values: &[Value]) -> Vec<u8> {
        let rows = values.iter().cloned().zip(0..);
        let rows = rows.map(|(value, offset)| Row::new("t", 0, offset).value(value));
        FrameBuilder::schemaless().rows(rows).encode()
    }

    /// The entries of a value by their names: their order is that of the block.
    fn shown(cell: Cell<'_>) -> String {
        let Cell::Map(map) = cell else {
            return show(cell);
        };
        let mut entries: Vec<_> = map
            .entries()
            .map(|entry| format!("{}: {}", show(entry.key), show(entry.value)))
            .collect();
        entries.sort();
        entries.join(", ")
    }

    /// Gathers `values` and compares each row; returns the names, or none when they stay as they are.
    fn gathered(gatherer: &mut Gatherer, values: &[Value]) -> Option<Vec<String>> {
        let bytes = frame_of(values);
        let schemas = SchemaRegistry::default();
        let frame = Frame::decode(&bytes, &|id| schemas.get(id)).expect("a frame");
        if !gatherer.gather(&frame) {
            return None;
        }
        let gathered = gatherer.gathered(&frame);
        assert_eq!(gathered.rows(), frame.rows());
        for row in 0..frame.rows() {
            assert_eq!(shown(gathered.value(row)), shown(frame.value(row)), "{row}");
            assert_eq!(gathered.is_tombstone(row), frame.is_tombstone(row));
            assert_eq!(gathered.timestamp(row), frame.timestamp(row));
        }
        let names = gathered.maps().expect("columns").names();
        Some(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn records_of_plain_values_are_gathered() {
        let rows = [
            Value::object([("id", Value::Int64(1)), ("name", Value::text("ä"))]),
            Value::Null,
            Value::object([]),
            Value::object([("price", Value::Float64(f64::NAN)), ("id", Value::Null)]),
            Value::object([("id", Value::text("now a text")), ("ok", Value::Bool(true))]),
        ];
        let mut gatherer = Gatherer::default();
        for _ in 0..3 {
            let names = gathered(&mut gatherer, &rows).expect("gathered");
            assert_eq!(names, ["id", "name", "price", "ok"]);
        }
        assert!(gatherer.bytes() > 0);
    }

    #[test]
    fn names_come_in_the_order_of_their_own_block() {
        let mut gatherer = Gatherer::default();
        let one = [Value::object([
            ("b", Value::Int64(1)),
            ("a", Value::Int64(2)),
        ])];
        let other = [Value::object([
            ("a", Value::Int64(1)),
            ("b", Value::Int64(2)),
        ])];
        assert_eq!(gathered(&mut gatherer, &one).expect("one"), ["b", "a"]);
        assert_eq!(gathered(&mut gatherer, &other).expect("other"), ["a", "b"]);
    }

    #[test]
    fn blocks_with_other_values_stay_as_they_are() {
        let with = |value| Value::object([("id", Value::Int64(1)), ("other", value)]);
        let mut gatherer = Gatherer::default();
        for other in [
            with(Value::Int32(1)),
            with(Value::Float32(1.0)),
            with(Value::Bytes(vec![1])),
            with(Value::Array(vec![Value::Int64(1)])),
            with(Value::object([("inner", Value::Int64(1))])),
            Value::text("no record"),
            Value::Map(vec![(Value::Int64(1), Value::Null)]),
        ] {
            let plain = with(Value::Null);
            assert_eq!(gathered(&mut gatherer, &[plain.clone(), other]), None);
            assert!(gathered(&mut gatherer, &[plain]).is_some(), "goes on");
        }
    }

    fn any_plain() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(Value::Int64),
            any::<f64>().prop_map(Value::Float64),
            ".{0,6}".prop_map(|text| Value::text(&text)),
        ]
    }

    fn any_record() -> impl Strategy<Value = Value> {
        let entries = proptest::collection::btree_map("[a-e]", any_plain(), 0..5);
        let record = entries.prop_map(|entries| {
            Value::object(
                entries
                    .iter()
                    .map(|(name, value)| (name.as_str(), value.clone())),
            )
        });
        prop_oneof![9 => record, 1 => Just(Value::Null)]
    }

    proptest! {
        // Promise: JSON behind Connect's converter: records that are gathered into columns stay what they were
        #[test]
        fn any_block_of_plain_records_is_gathered_as_it_is(
            blocks in proptest::collection::vec(proptest::collection::vec(any_record(), 1..20), 1..4),
        ) {
            let mut gatherer = Gatherer::default();
            for block in &blocks {
                let any = block.iter().any(|row| !matches!(row, Value::Null));
                prop_assert_eq!(gathered(&mut gatherer, block).is_some(), any);
            }
        }
    }
}
