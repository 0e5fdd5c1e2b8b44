//! What tells sources apart whose orders have nothing to do with each other, as a number.

use super::form::integer;
use crate::convert::Reason;
use crate::wire::Cell;

/// FNV-1a, 64 bits: domains need not be hard to collide, only unlikely to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Domain(u64);

impl Domain {
    pub(super) const BYTES: usize = 8;

    pub(super) fn new() -> Self {
        Domain(0xcbf2_9ce4_8422_2325)
    }

    pub(super) fn bytes(self) -> [u8; Self::BYTES] {
        self.0.to_be_bytes()
    }

    pub(super) fn text(&mut self, text: &str) {
        self.add(text.bytes().chain([0xFF]));
    }

    /// Takes in a value of the record: a text or a whole number, such as a server's; none says nothing.
    pub(super) fn cell(&mut self, cell: Cell<'_>) -> Result<(), Reason> {
        match cell {
            Cell::Null => {}
            Cell::String(text) => self.text(text),
            number => {
                // No byte of a text is 0xFE.
                let number = integer(number)?;
                self.add([0xFE].into_iter().chain(number.to_be_bytes()));
            }
        }
        Ok(())
    }

    fn add(&mut self, bytes: impl Iterator<Item = u8>) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
