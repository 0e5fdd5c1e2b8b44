//! Frames of bytes, decoded before anything else looks at them.
//!
//! Keeps: the offsets of a frame move when all of its parts were taken. A part that fails behind
//! others that tables took makes the session start over, as one that fails half-way does.

use frazil_core::config::{DataFormat, SinkConfig};
use frazil_core::decode::{FrameDecoder, Side};
use frazil_core::wire::{Effects, Frame};
use frazil_core::{Result, SinkError};

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
    };
    let key = match config.formats.key {
        DataFormat::Connect => None,
        DataFormat::Json => Some(Side::json_keys()),
        DataFormat::JsonEnvelope => Some(Side::envelope_keys()),
    };
    (value.is_some() || key.is_some()).then(|| FrameDecoder::new(value, key))
}

impl Inner {
    /// Takes the rows of `frame` that are `new`, decoded.
    pub(super) fn take_decoded(
        &mut self,
        decoder: &mut FrameDecoder,
        frame: &Frame<'_>,
        new: &[bool],
        effects: &mut Effects,
    ) -> Result<()> {
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
        let end = decoder.decode(frame, first, &wanted, &mut self.schemas)?;
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
