//! Column rules: what a table gets to see of a frame.

use frazil_core::Result;
use frazil_core::wire::Frame;

use super::table::TableSlot;

impl TableSlot {
    /// Applies the table's column rules to `rows` of `frame` and runs `work` with what is left. The
    /// same rows are appended next, and masked as they are here.
    pub(super) fn masked(
        &mut self,
        frame: &Frame<'_>,
        rows: &[u32],
        work: impl FnOnce(&mut Self, &Frame<'_>, &[u32]) -> Result<()>,
    ) -> Result<()> {
        self.mask = None;
        let Some(rules) = &mut self.rules else {
            return work(self, frame, rows);
        };
        let mask = rules.mask(frame, rows)?;
        let done = work(self, &mask.frame(frame), &mask.keep(rows));
        self.mask = Some(mask);
        done
    }
}
