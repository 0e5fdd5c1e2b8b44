//! Column rules: what a table gets to see of a frame.
//!
//! Keeps: no row of a table with rules is converted unmasked. The mask that was made to prepare the
//! table serves to append the same rows; when there is none, it is made then.

use frazil_core::Result;
use frazil_core::convert::Masked;
use frazil_core::wire::Frame;

use super::table::TableSlot;

/// What the rules leave of some rows of the frame at hand.
#[derive(Debug)]
pub(super) struct Mask {
    rows: Vec<u32>,
    masked: Masked,
}

impl TableSlot {
    /// Applies the table's column rules to `rows` of `frame` and runs `work` with what is left.
    pub(super) fn with_mask(
        &mut self,
        frame: &Frame<'_>,
        rows: &[u32],
        work: impl FnOnce(&mut Self, &Frame<'_>, &[u32]) -> Result<()>,
    ) -> Result<()> {
        let Some(rules) = &mut self.rules else {
            return work(self, frame, rows);
        };
        let masked = rules.mask(frame, rows)?;
        let done = work(self, &masked.frame(frame), &masked.keep(rows));
        self.masks.push(Mask {
            rows: rows.to_vec(),
            masked,
        });
        done
    }

    /// Returns what the rules leave of `rows` of `frame`; `None` when there are no rules.
    pub(super) fn take_mask(&mut self, frame: &Frame<'_>, rows: &[u32]) -> Result<Option<Masked>> {
        let Some(rules) = &mut self.rules else {
            return Ok(None);
        };
        // A frame may be appended in parts, with rows that have values and rows that have keys only.
        match self.masks.iter().position(|mask| mask.rows == rows) {
            Some(index) => Ok(Some(self.masks.swap_remove(index).masked)),
            None => rules.mask(frame, rows).map(Some),
        }
    }
}
