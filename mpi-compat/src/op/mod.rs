#![allow(unsafe_code)]
//! Operators (MPI-5.0 section 6.9): predefined ones, and functions of the program.

mod kernels;
mod wide;

use std::ffi::{c_int, c_void};
use std::rc::Rc;

use crate::arguments::{Callback, Out, count};
use crate::constants::*;
use crate::datatype::{TypeObject, committed, elements::plain};
use crate::fail::{Fail, Result, fail};
use crate::handle::{Handle, Op, Type};
use crate::runtime::{Call, Runtime};

pub use kernels::{Predefined, is_swapped};

/// An operator.
pub enum OpObject {
    Predefined(Predefined),
    Function {
        function: Callback,
        large: bool,
        commutes: bool,
    },
    /// `MPI_REPLACE` and `MPI_NO_OP`, for accumulates only.
    Accumulate,
}

/// The predefined operators that combine.
pub const PREDEFINED: [(Op, Predefined); 12] = [
    (MPI_SUM, Predefined::Sum),
    (MPI_MIN, Predefined::Min),
    (MPI_MAX, Predefined::Max),
    (MPI_PROD, Predefined::Prod),
    (MPI_BAND, Predefined::Band),
    (MPI_BOR, Predefined::Bor),
    (MPI_BXOR, Predefined::Bxor),
    (MPI_LAND, Predefined::Land),
    (MPI_LOR, Predefined::Lor),
    (MPI_LXOR, Predefined::Lxor),
    (MPI_MINLOC, Predefined::Minloc),
    (MPI_MAXLOC, Predefined::Maxloc),
];

/// Makes the predefined operators.
pub fn predefined(runtime: &Runtime) {
    for (handle, op) in PREDEFINED {
        runtime.ops.fix(handle, Some(Rc::new(OpObject::Predefined(op))));
    }
    for handle in [MPI_REPLACE, MPI_NO_OP] {
        runtime.ops.fix(handle, Some(Rc::new(OpObject::Accumulate)));
    }
}

impl OpObject {
    /// Whether it is a function of the program.
    pub fn is_function(&self) -> bool {
        matches!(self, Self::Function { .. })
    }

    /// Whether operands may be swapped.
    pub fn commutes(&self) -> bool {
        match self {
            Self::Predefined(_) => true,
            Self::Function { commutes, .. } => *commutes,
            Self::Accumulate => false,
        }
    }

    /// Checks that it is defined on a type, before any data moves.
    pub fn check(&self, op: Op, datatype: Type, object: &TypeObject) -> Result {
        match self {
            Self::Function { .. } => Ok(()),
            Self::Accumulate => Err(not_for(op, "is for accumulates only".into())),
            Self::Predefined(kind) => match plain(&object.layout) {
                None => Err(not_for(op, format!("is predefined, and the datatype (0x{:x}) derived", datatype.0))),
                Some(named) if !kind.allowed(named) => {
                    Err(not_for(op, format!("is not defined on {}", named.mpi_name())))
                }
                Some(_) => Ok(()),
            },
        }
    }

    /// Sets every element of `inout` to `input op inout`. The check must have passed.
    ///
    /// # Safety
    /// `input` is readable and `inout` writable for `n` of the type, and the two do not overlap.
    pub unsafe fn apply(&self, datatype: Type, object: &TypeObject, input: *const c_void, inout: *mut c_void, n: u64) {
        match self {
            Self::Accumulate => {}
            Self::Predefined(op) => {
                if let Some(named) = plain(&object.layout) {
                    // SAFETY: the caller's promise.
                    unsafe { op.apply(named, input.cast(), inout.cast(), n as usize) };
                }
            }
            Self::Function { function, large, .. } => {
                let (mut left, extent) = (n as i64, object.layout.extent() as isize);
                let (mut from, mut to) = (input.cast_mut(), inout);
                while left > 0 {
                    // The form without large counts is called more than once for more than it can say.
                    let mut some = if *large { left } else { left.min(c_int::MAX.into()) };
                    let (mut short, mut handle) = (some as c_int, datatype);
                    let length = if *large { (&raw mut some).cast::<c_void>() } else { (&raw mut short).cast() };
                    // SAFETY: the program has given a function of this type.
                    unsafe {
                        let function: unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, *mut c_void, *mut Type) =
                            std::mem::transmute(function.0 as *const ());
                        function(from, to, length, &raw mut handle);
                    }
                    left -= some;
                    from = from.wrapping_byte_offset(some as isize * extent);
                    to = to.wrapping_byte_offset(some as isize * extent);
                }
            }
        }
    }
}

#[cold]
fn not_for(op: Op, why: String) -> Fail {
    fail(MPI_ERR_OP, why).value(op.0)
}

pub fn op_create(call: &Call<'_>, function: Callback, commute: c_int, op: Out<Op>) -> Result {
    if function.0 == 0 {
        return Err(fail(MPI_ERR_ARG, "is a null pointer").named("user_fn"));
    }
    op.set(call.ops.insert(Rc::new(OpObject::Function { function, large: call.large, commutes: commute != 0 })));
    Ok(())
}

pub fn op_free(call: &Call<'_>, op: Out<Op>) -> Result {
    call.ops.release(op.get()).map_err(|failed| failed.named("op"))?;
    op.set(Op(Op::NULL));
    Ok(())
}

pub fn op_commutative(call: &Call<'_>, op: Op, commute: Out<c_int>) -> Result {
    commute.set(call.ops.get(op)?.commutes().into());
    Ok(())
}

pub fn reduce_local(
    call: &Call<'_>,
    inbuf: *const c_void,
    inoutbuf: *mut c_void,
    n: i64,
    datatype: Type,
    op: Op,
) -> Result {
    let n = count(n, "count")?;
    let object = committed(call, datatype)?;
    let operator = call.ops.get(op)?;
    operator.check(op, datatype, &object)?;
    if n == 0 {
        return Ok(());
    }
    for (buffer, name) in [(inbuf, "inbuf"), (inoutbuf.cast_const(), "inoutbuf")] {
        if buffer.is_null() || buffer.addr() == 1 {
            let what = if buffer.is_null() { "a null pointer" } else { "MPI_IN_PLACE" };
            return Err(fail(MPI_ERR_BUFFER, format!("is {what}")).named(name));
        }
    }
    if inbuf == inoutbuf {
        return Err(fail(MPI_ERR_BUFFER, "is the same as inoutbuf").named("inbuf"));
    }
    // SAFETY: the program promises both buffers.
    unsafe { operator.apply(datatype, &object, inbuf, inoutbuf, n) };
    Ok(())
}
