//! Element-wise combination of private buffers: reductions, and accumulates merged at the origin.

use farside_core::{Error, ErrorKind, Result};

use super::{Element, Op};

/// Sets `acc[i]` to `acc[i] op operand[i]` for every element; not atomic.
///
/// ```
/// use farside_rma::op::{Op, combine};
///
/// let mut sums = [1u8, 200];
/// combine(Op::Sum, &mut sums, &[1, 100])?;
/// assert_eq!(sums, [2, 44]);
/// # Ok::<(), farside_rma::Error>(())
/// ```
///
/// # Errors
/// `Unsupported` if the operation is not defined on the type, `BadArgument` if the lengths differ; `acc` is then
/// unchanged.
pub fn combine<T: Element>(op: Op, acc: &mut [T], operand: &[T]) -> Result<()> {
    op.check(T::TYPE, "combine")?;
    if acc.len() != operand.len() {
        return Err(Error::new(ErrorKind::BadArgument, "combine").cause(format!(
            "accumulator of length {}, operand of length {}",
            acc.len(),
            operand.len()
        )));
    }
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

#[inline(always)]
fn each<T: Element>(acc: &mut [T], operand: &[T], f: impl Fn(T, T) -> T) {
    for (a, x) in acc.iter_mut().zip(operand) {
        *a = f(*a, *x);
    }
}
