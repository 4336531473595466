#![allow(unsafe_code)]
//! Codes of accumulates, and their application by a CPU.
//!
//! The lower 16 bits of a code belong to the region's function. The upper bits are hints for devices: the size of an
//! element and the effect of the operation, which a device must know to apply the accumulate without that function. A
//! code without hints is correct on every device, but slower on networks.

use crate::error::ErrorKind;
use crate::memory::copy;
use crate::memory::keys::AccumulateFn;

/// The code that marks a compare-and-swap in [`service`](crate::service). Its operand is two words: the expected and
/// the desired value. It is no code of an accumulate, so [`apply`] refuses it.
pub const SWAP: u32 = u32::MAX;

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
        _ if code == SWAP => 16,
        Effect::Read => 0,
        Effect::Add | Effect::Other => len,
    }
}

/// Applies an accumulate by `f` to `len` bytes at `to`, by this CPU. The previous values go to `old` unless it is null.
///
/// # Safety
/// `to`, and `old` unless it is null, are valid for `len` bytes, `operand` for [`operand_len`], which for every code but
/// [`SWAP`] is at most `len`; every other access to `to` at the same time is atomic or by [`copy`].
///
/// # Errors
/// `Unsupported` without a function; `Misaligned` for [`SWAP`] and for a misaligned or malformed operation. Nothing is
/// read or changed then.
pub unsafe fn apply(
    f: Option<AccumulateFn>,
    code: u32,
    to: *mut u8,
    operand: *const u8,
    old: *mut u8,
    len: usize,
) -> Result<(), ErrorKind> {
    let f = f.ok_or(ErrorKind::Unsupported)?;
    // SAFETY: the same contract.
    let applied = code != SWAP && unsafe { f(code, to, operand, old, len) };
    if applied { Ok(()) } else { Err(ErrorKind::Misaligned) }
}

/// Applies a compare-and-swap to an integer of `len` bytes at `to`, by this CPU. Its previous value goes to `old`
/// unless it is null.
///
/// # Safety
/// `to`, and `old` unless it is null, are valid for `len` bytes; every other access to `to` at the same time is atomic or
/// by [`copy`].
///
/// # Errors
/// `Misaligned` for a misaligned integer or another length than 1, 2, 4 or 8. Nothing is changed then.
pub unsafe fn apply_swap(
    [expected, desired]: [u64; 2],
    to: *mut u8,
    old: *mut u8,
    len: usize,
) -> Result<(), ErrorKind> {
    if !matches!(len, 1 | 2 | 4 | 8) || !to.addr().is_multiple_of(len) {
        return Err(ErrorKind::Misaligned);
    }
    // SAFETY: valid by the contract; the target is an aligned integer.
    unsafe {
        let former = copy::compare_swap(to, len, expected, desired).to_le_bytes();
        if !old.is_null() {
            copy::store(former.as_ptr(), old, len);
        }
    }
    Ok(())
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
