#![allow(unsafe_code)]
//! Operators.

use std::ffi::{c_int, c_void};
use std::rc::Rc;

use super::TypeObject;
use super::atomics::PREDEFINED;
use super::kernels::Predefined;
use crate::constants::*;
use crate::fail::{Fail, Result, fail};
use crate::handle::Objects;

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

/// Creates the predefined operators.
pub fn predefined(ops: &Objects<Op, OpObject>) {
    for (handle, op) in PREDEFINED {
        ops.set_predefined(handle, Some(Rc::new(OpObject::Predefined(op))));
    }
    for handle in [MPI_REPLACE, MPI_NO_OP] {
        ops.set_predefined(handle, Some(Rc::new(OpObject::Accumulate)));
    }
}

impl OpObject {
    /// Whether the operator is user-defined.
    pub fn is_function(&self) -> bool {
        matches!(self, Self::Function { .. })
    }

    /// Whether the operator is commutative.
    pub fn commutes(&self) -> bool {
        match self {
            Self::Predefined(_) => true,
            Self::Function { commutes, .. } => *commutes,
            Self::Accumulate => false,
        }
    }

    /// Checks, before any data moves, that the operator is defined on a type.
    pub fn check(&self, op: Op, datatype: Type, object: &TypeObject) -> Result {
        match self {
            Self::Function { .. } => Ok(()),
            Self::Accumulate => Err(unsupported(op, "is allowed only in accumulates".into())),
            Self::Predefined(kind) => match object.layout.named() {
                None => {
                    Err(unsupported(op, format!("is predefined, but the datatype (0x{:x}) is derived", datatype.0)))
                }
                Some(named) if !kind.allowed(named) => {
                    Err(unsupported(op, format!("is not defined on {}", named.mpi_name())))
                }
                Some(_) => Ok(()),
            },
        }
    }

    /// Sets every element of `inout` to `input op inout`. [`check`](Self::check) must have passed.
    ///
    /// # Safety
    /// `input` is readable and `inout` writable for `n` elements of the type, and the two do not overlap.
    pub unsafe fn apply(&self, datatype: Type, object: &TypeObject, input: *const c_void, inout: *mut c_void, n: u64) {
        match self {
            Self::Accumulate => {}
            Self::Predefined(op) => {
                if let Some(named) = object.layout.named() {
                    // SAFETY: the caller guarantees the elements.
                    unsafe { op.apply(named, input.cast(), inout.cast(), n as usize) };
                }
            }
            Self::Function { function, large, .. } => {
                let (mut left, extent) = (n as i64, object.layout.extent() as isize);
                let (mut from, mut to) = (input.cast_mut(), inout);
                while left > 0 {
                    // A function without large counts is called repeatedly if there are more elements than an `int` can
                    // count.
                    let mut part = if *large { left } else { left.min(c_int::MAX.into()) };
                    let (mut short, mut handle) = (part as c_int, datatype);
                    let length = if *large { (&raw mut part).cast::<c_void>() } else { (&raw mut short).cast() };
                    // SAFETY: the program has passed a function of this type.
                    unsafe {
                        let function: unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, *mut c_void, *mut Type) =
                            std::mem::transmute(function.0 as *const ());
                        function(from, to, length, &raw mut handle);
                    }
                    left -= part;
                    from = from.wrapping_byte_offset(part as isize * extent);
                    to = to.wrapping_byte_offset(part as isize * extent);
                }
            }
        }
    }
}

#[cold]
fn unsupported(op: Op, why: String) -> Fail {
    fail(MPI_ERR_OP, why).value(op.0)
}
