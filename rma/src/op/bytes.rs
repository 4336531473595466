#![allow(unsafe_code)]
//! Accumulates by wire code, as devices apply them to registered memory ([`farside_core::memory::keys::AccumulateFn`]).

use super::{ElementType, Op, kernel};

/// Applies accumulate `code` ([`super::code`]) to `bytes` bytes at `target`. Returns `false`, and changes nothing, for
/// an invalid code, a length that is not a multiple of the element, or a misaligned target.
///
/// ```
/// use farside_rma::op::{ElementType, Op, apply_bytes, code};
///
/// let (mut target, operand) = ([1.0f64, 2.0], [0.5f64, 0.5]);
/// let (at, from) = (target.as_mut_ptr().cast(), operand.as_ptr().cast());
/// // SAFETY: both are valid for 16 bytes, and nothing else accesses the target.
/// let done = unsafe { apply_bytes(code(Op::Sum, ElementType::F64), at, from, std::ptr::null_mut(), 16) };
/// assert!(done && target == [1.5, 2.5]);
/// ```
///
/// # Safety
/// `target` and `operand` are valid for `bytes` bytes, and `old` is null or valid for `bytes` bytes; every other access
/// to `target` is by these kernels or word-wise copies.
pub unsafe fn apply_bytes(code: u32, target: *mut u8, operand: *const u8, old: *mut u8, bytes: usize) -> bool {
    let [number, ty, ..] = code.to_le_bytes();
    let (Ok(op), Ok(ty)) = (Op::try_from(number), ElementType::try_from(ty)) else { return false };
    // The device hints in the upper half may be absent, but must not be wrong.
    if code >> 16 != 0 && code != super::code(op, ty) {
        return false;
    }
    if !op.allowed(ty) || !bytes.is_multiple_of(ty.size()) || !target.addr().is_multiple_of(ty.size()) {
        return false;
    }
    let count = bytes / ty.size();
    // SAFETY: alignment and length are checked above; the ranges are valid by the contract.
    unsafe {
        if old.is_null() {
            kernel::accumulate(op, ty, target, operand, count);
        } else {
            kernel::fetch_accumulate(op, ty, target, operand, old, count);
        }
    }
    true
}
