#![allow(unsafe_code)]
//! Accumulates by wire code, which devices apply to registered memory ([`farside_core::memory::keys::AccumulateFn`]).

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
    // SAFETY: the same contract.
    unsafe { apply(false, code, target, operand, old, bytes) }
}

/// [`apply_bytes`] on elements that no other rank updates while the call runs.
///
/// # Safety
/// The contract of [`apply_bytes`].
pub(crate) unsafe fn apply_alone(code: u32, target: *mut u8, operand: *const u8, old: *mut u8, bytes: usize) -> bool {
    // SAFETY: the same contract.
    unsafe { apply(true, code, target, operand, old, bytes) }
}

unsafe fn apply(alone: bool, code: u32, target: *mut u8, operand: *const u8, old: *mut u8, bytes: usize) -> bool {
    let Some((op, ty)) = read(code, target, bytes) else { return false };
    // SAFETY: alignment and length were checked; the ranges are valid by the contract.
    unsafe { kernel::change(alone, op, ty, target, operand, old, bytes / ty.size()) };
    true
}

/// The operation and the type of a code, if both apply to a target of `bytes` bytes.
fn read(code: u32, target: *const u8, bytes: usize) -> Option<(Op, ElementType)> {
    let [number, ty, ..] = code.to_le_bytes();
    let (op, ty) = (Op::try_from(number).ok()?, ElementType::try_from(ty).ok()?);
    // The device hints in the upper half may be absent, but must not be wrong.
    let is_known = code >> 16 == 0 || code == super::code(op, ty);
    let fits = bytes.is_multiple_of(ty.size()) && target.addr().is_multiple_of(ty.size());
    (is_known && op.allowed(ty) && fits).then_some((op, ty))
}
