//! Frames of bytes, decoded before anything else looks at them.
//!
//! Keeps: the offsets of a frame move when all of its parts were taken. A part that fails behind
//! others that tables took makes the session start over, as one that fails half-way does.

use std::collections::BTreeSet;
use std::time::Instant;

use frazil_core::config::{DataFormat, SinkConfig};
use frazil_core::decode::confluent::{Part, SchemaKey};
use frazil_core::decode::registered::{IdPlace, RegisteredFormat, RegisteredKind};
use frazil_core::decode::{FrameDecoder, Raw, Side};
use frazil_core::wire::{Cell, Effects, Frame};
use frazil_core::{ErrorKind, Result, SinkError};

use super::Inner;
use super::delivery::Taken;

/// Makes what decodes the records of a task; `None` when Connect's converters do that.
pub(super) fn decoder(config: &SinkConfig) -> Option<FrameDecoder> {
    // Where single values have a column, a value need not be a record.
    let records = config.value_column.is_none();
    let value = match config.formats.value {
        DataFormat::Connect => None,
        DataFormat::Json => Some(Side::json_values(records)),
        DataFormat::JsonEnvelope => Some(Side::envelope_values(records)),
        DataFormat::Registered(kind) => {
            let format = registered(config, kind, Part::Value);
            Some(Side::values(Box::new(format), records))
        }
    };
    let key = match config.formats.key {
        DataFormat::Connect => None,
        DataFormat::Json => Some(Side::json_keys()),
        DataFormat::JsonEnvelope => Some(Side::envelope_keys()),
        DataFormat::Registered(kind) => {
            Some(Side::keys(Box::new(registered(config, kind, Part::Key))))
        }
    };
    (value.is_some() || key.is_some()).then(|| FrameDecoder::new(value, key))
}

fn registered(config: &SinkConfig, kind: RegisteredKind, part: Part) -> RegisteredFormat {
    let place = config.registry.as_ref().map(|registry| match part {
        Part::Value => registry.value_id.clone(),
        Part::Key => registry.key_id.clone(),
    });
    RegisteredFormat::new(kind, part, place.unwrap_or(IdPlace::Frame))
}

/// Returns the schemas that the new rows of a frame need and one side does not know yet.
fn wanted(
    decoder: &mut FrameDecoder,
    part: Part,
    frame: &Frame<'_>,
    new: &[bool],
) -> BTreeSet<SchemaKey> {
    let mut keys = BTreeSet::new();
    let side = match part {
        Part::Value => decoder.value(),
        Part::Key => decoder.key(),
    };
    let Some(format) = side.and_then(Side::format) else {
        return keys;
    };
    format.begin_block();
    for run in frame.runs() {
        for row in run.first_row..run.first_row + run.rows {
            let cell = match part {
                Part::Value => frame.value(row),
                Part::Key => frame.key(row),
            };
            let is_new = new.get(row).copied().unwrap_or(false);
            let (Cell::Bytes(bytes), true) = (cell, is_new) else {
                continue;
            };
            let raw = Raw {
                topic: &run.partition.topic,
                bytes,
                headers: frame.headers(row),
            };
            keys.extend(format.wants(raw));
        }
    }
    keys
}

impl Inner {
    /// Asks the registry for the schemas that the new rows need. No offset has moved when this
    /// fails; a schema that the registry does not know is an error of the records that name it.
    pub(super) fn learn_schemas(
        &self,
        decoder: &mut FrameDecoder,
        frame: &Frame<'_>,
        new: &[bool],
    ) -> Result<()> {
        let Some(registry) = &self.registry else {
            return Ok(());
        };
        for part in [Part::Value, Part::Key] {
            for key in wanted(decoder, part, frame, new) {
                let asked = self
                    .context
                    .wait("asking the schema registry", registry.schema(&key));
                self.count_registry(asked.is_err());
                let fetched = match asked {
                    Err(error) if error.kind() != ErrorKind::Data => return Err(error),
                    fetched => fetched,
                };
                let side = match part {
                    Part::Value => decoder.value(),
                    Part::Key => decoder.key(),
                };
                if let Some(format) = side.and_then(Side::format) {
                    format.learn(key, fetched);
                }
            }
        }
        Ok(())
    }

    /// Takes the rows of `frame` that are `new`, decoded.
    pub(super) fn take_decoded(
        &mut self,
        decoder: &mut FrameDecoder,
        frame: &Frame<'_>,
        new: &[bool],
        effects: &mut Effects,
    ) -> Result<()> {
        self.learn_schemas(decoder, frame, new)?;
        let mut first = 0;
        while first < frame.rows() {
            let taken = self.take_part(decoder, frame, (first, new), effects);
            if taken.is_err() && first > 0 {
                self.machine.spoil_all();
            }
            first = taken?;
        }
        Ok(())
    }

    /// Takes as many rows from `first` on as have one schema; returns where they end.
    fn take_part(
        &mut self,
        decoder: &mut FrameDecoder,
        frame: &Frame<'_>,
        (first, new): (usize, &[bool]),
        effects: &mut Effects,
    ) -> Result<usize> {
        let wanted = |row: usize| new.get(row).copied().unwrap_or(false);
        let begun = Instant::now();
        let end = decoder.decode(frame, first, &wanted, &mut self.schemas);
        self.count_decoding(begun);
        let end = end?;
        self.decoded(decoder.bytes());
        let taken = Taken {
            first,
            new: new.get(first..end).unwrap_or_default(),
            refused: decoder.take_refused(),
        };
        if end <= first {
            return Err(SinkError::internal("a decoder does not move on"));
        }
        let part = decoder.part(frame, &self.schemas)?;
        self.take_rows(part, taken, effects)?;
        Ok(end)
    }
}
