#![allow(unsafe_code)]
//! An accumulate or a compare-and-swap, as both services of this room describe it.

use crate::device::code::{self, SWAP};
use crate::device::{Operation, Place};
use crate::error::ErrorKind;
use crate::memory::keys::AccumulateFn;

/// An accumulate or, with code [`SWAP`], a compare-and-swap, or the part of it that is still to be done.
#[derive(Clone, Copy, Debug)]
pub struct Accumulate {
    /// The code, as the region's function and [`code`] read it.
    pub code: u32,
    /// Bytes of an element; 1 if the code does not determine it.
    pub size: usize,
    /// The operand, of [`operand_len`](code::operand_len) bytes.
    pub operand: *const u8,
    /// Destination of the previous values, or null.
    pub old: *mut u8,
    /// Bytes of the target's elements.
    pub len: usize,
    /// The first element.
    pub at: Place,
}

impl Accumulate {
    /// The accumulate or compare-and-swap that a device's operation is, if it is one. `words` receives the operand of a
    /// compare-and-swap. An accumulate with code [`SWAP`] is neither, and every device refuses it.
    #[must_use]
    pub fn of(operation: &Operation<'_>, words: &mut [u64; 2]) -> Option<Self> {
        match *operation {
            Operation::Accumulate { at, code, operand, old } if code != SWAP => {
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

    /// Whether its length is a whole number of elements, or that of an integer that can be swapped.
    pub(super) fn is_whole(&self) -> bool {
        if self.code == SWAP { matches!(self.len, 1 | 2 | 4 | 8) } else { self.len.is_multiple_of(self.size) }
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

/// Applies an accumulate, or a compare-and-swap if the code is [`SWAP`], to `len` bytes at `to`, by this CPU. The
/// previous values go to `old` unless it is null.
///
/// # Safety
/// The contract of [`code::apply`] or [`code::apply_swap`]; the operand has [`operand_len`](code::operand_len) bytes.
///
/// # Errors
/// Those of [`code::apply`] or [`code::apply_swap`].
pub unsafe fn apply(
    f: Option<AccumulateFn>,
    code: u32,
    to: *mut u8,
    operand: *const u8,
    old: *mut u8,
    len: usize,
) -> Result<(), ErrorKind> {
    // SAFETY: the same contract; the operand of a compare-and-swap is two words.
    unsafe {
        if code == SWAP {
            return code::apply_swap(operand.cast::<[u64; 2]>().read_unaligned(), to, old, len);
        }
        code::apply(f, code, to, operand, old, len)
    }
}
