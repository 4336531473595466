//! An accumulate or a compare-and-swap, as both services of this room describe it.

use crate::device::code::{self, SWAP};
use crate::device::{Operation, Place};

/// An accumulate or, with code [`SWAP`], a compare-and-swap, or the part of it that is still to be done.
#[derive(Clone, Copy, Debug)]
pub struct Accumulate {
    /// The code, as the region's function and [`code`] read it.
    pub code: u32,
    /// Bytes of an element; 1 if the code does not say.
    pub size: usize,
    /// The operand, of [`operand_len`](code::operand_len) bytes.
    pub operand: *const u8,
    /// Destination of the former values, or null.
    pub old: *mut u8,
    /// Bytes of the target's elements.
    pub len: usize,
    /// The first element.
    pub at: Place,
}

impl Accumulate {
    /// The accumulate or compare-and-swap that a device's operation is, if it is one. `words` receives the operand of a
    /// compare-and-swap.
    #[must_use]
    pub fn of(operation: &Operation<'_>, words: &mut [u64; 2]) -> Option<Self> {
        match *operation {
            Operation::Accumulate { at, code, operand, old } => {
                let size = code::element(code).max(1);
                Some(Self { code, size, operand: operand.base, old, len: operand.len, at })
            }
            Operation::CompareSwap { at, len, expected, desired, old } => {
                *words = [expected, desired];
                Some(Self { code: SWAP, size: len, operand: words.as_ptr().cast(), old, len, at })
            }
            _ => None,
        }
    }

    /// The name in errors.
    pub(super) fn name(&self) -> &'static str {
        if self.code == SWAP { "compare and swap" } else { "accumulate" }
    }

    /// Removes the first `len` bytes.
    pub(super) fn skip(&mut self, len: usize) {
        self.len -= len;
        self.at.offset += len;
        self.operand = self.operand.wrapping_add(len);
        if !self.old.is_null() {
            self.old = self.old.wrapping_add(len);
        }
    }
}
