#![allow(unsafe_code)]
//! Calls of operators (MPI-5.0 section 6.9).

use std::ffi::{c_int, c_void};
use std::rc::Rc;

use crate::arguments::{Callback, Out, check_buffer, count};
use crate::constants::*;
use crate::datatype::committed;
use crate::fail::{Result, fail};
use crate::handle::{Handle, Op, Type};
use crate::objects::OpObject;
use crate::runtime::Call;

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
        check_buffer(buffer, false, name)?;
    }
    if inbuf == inoutbuf {
        return Err(fail(MPI_ERR_BUFFER, "is the same as inoutbuf").named("inbuf"));
    }
    // SAFETY: the program promises both buffers.
    unsafe { operator.apply(datatype, &object, inbuf, inoutbuf, n) };
    Ok(())
}
