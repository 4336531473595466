//! Element-wise combination of private buffers: reductions, and accumulates merged at the origin.

use bytemuck::{bytes_of, pod_read_unaligned, try_cast_slice, try_cast_slice_mut};
use farside_core::{Error, ErrorKind, Result};

use super::element::with_type;
use super::{Element, ElementType, Op};

/// Sets `acc[i]` to `acc[i] op operand[i]` for every element; not atomic.
///
/// # Errors
/// `Unsupported` if the operation is not defined on the type, `BadArgument` if the lengths differ; `acc` is then
/// unchanged.
pub fn combine<T: Element>(op: Op, acc: &mut [T], operand: &[T]) -> Result<()> {
    op.check(T::TYPE, "combine")?;
    check_lengths(acc.len(), operand.len())?;
    match op {
        Op::Sum => each(acc, operand, T::sum),
        Op::Prod => each(acc, operand, T::prod),
        Op::Min => each(acc, operand, T::least),
        Op::Max => each(acc, operand, T::greatest),
        Op::Land => each(acc, operand, T::land),
        Op::Lor => each(acc, operand, T::lor),
        Op::Lxor => each(acc, operand, T::lxor),
        Op::Band => each(acc, operand, T::band),
        Op::Bor => each(acc, operand, T::bor),
        Op::Bxor => each(acc, operand, T::bxor),
        Op::Replace => acc.copy_from_slice(operand),
        Op::NoOp => {}
    }
    Ok(())
}

/// Combines elements of `ty` given as bytes at any alignment; not atomic.
///
/// # Errors
/// Those of [`combine`]; `BadArgument` also if the length is not a whole number of elements.
pub fn combine_bytes(op: Op, ty: ElementType, acc: &mut [u8], operand: &[u8]) -> Result<()> {
    op.check(ty, "combine")?;
    check_lengths(acc.len(), operand.len())?;
    if !acc.len().is_multiple_of(ty.size()) {
        return Err(Error::new(ErrorKind::BadArgument, "combine")
            .cause(format!("{} bytes are not a whole number of {ty}", acc.len())));
    }
    with_type!(ty, T => combine_typed::<T>(op, acc, operand))
}

/// Number of elements that are copied at a time to aligned memory if a buffer is misaligned.
const STAGED: usize = 64;

fn combine_typed<T: Element>(op: Op, acc: &mut [u8], operand: &[u8]) -> Result<()> {
    if let (Ok(acc), Ok(operand)) = (try_cast_slice_mut::<u8, T>(acc), try_cast_slice::<u8, T>(operand)) {
        return combine(op, acc, operand);
    }
    let size = size_of::<T>();
    let mut left = [T::zeroed(); STAGED];
    let mut right = [T::zeroed(); STAGED];
    for (acc, operand) in acc.chunks_mut(STAGED * size).zip(operand.chunks(STAGED * size)) {
        let count = acc.len() / size;
        for (i, (a, x)) in acc.chunks_exact(size).zip(operand.chunks_exact(size)).enumerate() {
            left[i] = pod_read_unaligned(a);
            right[i] = pod_read_unaligned(x);
        }
        combine(op, &mut left[..count], &right[..count])?;
        for (a, value) in acc.chunks_exact_mut(size).zip(&left) {
            a.copy_from_slice(bytes_of(value));
        }
    }
    Ok(())
}

#[inline(always)]
fn each<T: Element>(acc: &mut [T], operand: &[T], f: impl Fn(T, T) -> T) {
    for (a, x) in acc.iter_mut().zip(operand) {
        *a = f(*a, *x);
    }
}

#[inline(always)]
fn check_lengths(acc: usize, operand: usize) -> Result<()> {
    if acc == operand {
        return Ok(());
    }
    Err(Error::new(ErrorKind::BadArgument, "combine")
        .cause(format!("accumulator of length {acc}, operand of length {operand}")))
}
