#![allow(unsafe_code)]
//! Codes of accumulates, and their application by a CPU.
//!
//! The lower 16 bits of a code belong to the region's function. The upper bits are hints for devices: the size of an
//! element and the effect of the operation, which a device must know to apply the accumulate without that function. A
//! code without hints is correct on every device, but slower on networks.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Block, Change, Update};
use crate::error::ErrorKind;
use crate::memory::copy;
use crate::memory::keys::AccumulateFn;

/// The code that marks a compare-and-swap in messages. Its operand is two words: the expected and the desired value. It
/// is not an accumulate code, so [`Change::apply`] refuses it.
pub const COMPARE_SWAP: u32 = u32::MAX;

/// Effect of an operation on an element, as far as devices distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// An effect that devices do not know.
    Other,
    /// Adds integers, wrapping.
    Add,
    /// Changes nothing; only the previous values are read.
    Read,
}

const SIZE: u32 = 16;
const EFFECT: u32 = 24;

/// The upper bits for elements of `size` bytes (1 to 255).
#[must_use]
pub const fn hint(size: usize, effect: Effect) -> u32 {
    let effect = match effect {
        Effect::Other => 0,
        Effect::Add => 1,
        Effect::Read => 2,
    };
    ((size & 0xff) as u32) << SIZE | effect << EFFECT
}

/// Size of an element in bytes; 0 if the code does not determine it.
#[must_use]
pub const fn element(code: u32) -> usize {
    (code >> SIZE & 0xff) as usize
}

/// The effect of the operation.
#[must_use]
pub const fn effect(code: u32) -> Effect {
    match code >> EFFECT {
        1 => Effect::Add,
        2 => Effect::Read,
        _ => Effect::Other,
    }
}

/// Bytes of the operand of an operation on `len` bytes.
#[must_use]
pub const fn operand_len(code: u32, len: usize) -> usize {
    match effect(code) {
        _ if code == COMPARE_SWAP => 16,
        Effect::Read => 0,
        Effect::Add | Effect::Other => len,
    }
}

impl Update {
    /// Appends the operand: for an accumulate the operands of `len` bytes, for a fetch-and-add the addend, for a
    /// compare-and-swap the expected and the desired value.
    ///
    /// # Safety
    /// The operands are valid for reads.
    pub(crate) unsafe fn append_operand(&self, len: usize, to: &mut Vec<u8>) {
        match self.change {
            Change::Add(add) => to.extend(add.to_ne_bytes()),
            Change::CompareSwap { expected, desired } => {
                to.extend([expected, desired].map(u64::to_ne_bytes).as_flattened())
            }
            // SAFETY: by the contract.
            Change::Accumulate { code, operand } => unsafe {
                copy::gather(&[], &[Block::of(operand, operand_len(code, len))], to);
            },
        }
    }

    /// Makes the update at address `to` with this processor. `accumulate` is the region's function.
    ///
    /// # Safety
    /// The contract of [`Change::apply`].
    ///
    /// # Errors
    /// Those of [`Change::apply`].
    #[inline]
    pub unsafe fn apply(&self, accumulate: Option<AccumulateFn>, to: *mut u8) -> Result<(), ErrorKind> {
        // SAFETY: the same contract.
        unsafe { self.change.apply(accumulate, to, self.old, self.len) }
    }
}

impl Change {
    /// The change that a message describes by its code and its operand of [`operand_len`] bytes.
    ///
    /// # Panics
    /// If the operand of a compare-and-swap is shorter than two words.
    #[must_use]
    pub fn of(code: u32, operand: &[u8]) -> Self {
        if code != COMPARE_SWAP {
            return Change::Accumulate { code, operand: operand.as_ptr() };
        }
        let [expected, desired] = [0, 1].map(|i| u64::from_ne_bytes(operand.as_chunks().0[i]));
        Change::CompareSwap { expected, desired }
    }

    /// Changes `len` bytes at `to` with this processor. The previous values go to `old` unless it is null. `accumulate`
    /// is the region's function.
    ///
    /// # Safety
    /// `to`, and `old` unless it is null, are valid for `len` bytes, and an operand for [`operand_len`], which is at most
    /// `len`; every other access to `to` at the same time is atomic or by [`copy`].
    ///
    /// # Errors
    /// `Unsupported` for an accumulate without a function; `Misaligned` for a misaligned or malformed one, for the code
    /// [`COMPARE_SWAP`], and for a misaligned integer or one of another length than 1, 2, 4 or 8 bytes. Nothing is read or changed
    /// then.
    #[inline]
    pub unsafe fn apply(
        self,
        accumulate: Option<AccumulateFn>,
        to: *mut u8,
        old: *mut u8,
        len: usize,
    ) -> Result<(), ErrorKind> {
        let is_aligned = || matches!(len, 1 | 2 | 4 | 8) && to.addr().is_multiple_of(len);
        // SAFETY: by the contract; an integer is aligned.
        unsafe {
            match self {
                Change::Add(add) if len == 8 && is_aligned() => {
                    let former = AtomicU64::from_ptr(to.cast()).fetch_add(add, Ordering::SeqCst);
                    if !old.is_null() {
                        old.cast::<u64>().write_unaligned(former);
                    }
                    Ok(())
                }
                Change::CompareSwap { expected, desired } if is_aligned() => {
                    let former = copy::compare_swap(to, len, expected, desired).to_le_bytes();
                    if !old.is_null() {
                        copy::store(former.as_ptr(), old, len);
                    }
                    Ok(())
                }
                Change::Accumulate { code, operand } => {
                    let apply = accumulate.ok_or(ErrorKind::Unsupported)?;
                    let is_applied = code != COMPARE_SWAP && apply(code, to, operand, old, len);
                    if is_applied { Ok(()) } else { Err(ErrorKind::Misaligned) }
                }
                Change::Add(_) | Change::CompareSwap { .. } => Err(ErrorKind::Misaligned),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_read_back_and_leave_the_lower_bits_alone() {
        for e in [Effect::Other, Effect::Add, Effect::Read] {
            let code = 0xabcd | hint(8, e);
            assert_eq!((element(code), effect(code), code & 0xffff), (8, e, 0xabcd));
        }
        assert_eq!((element(0xffff), effect(0xffff)), (0, Effect::Other));
    }
}
