#![allow(unsafe_code)]
//! Calls of operators (MPI-5.0 section 6.9).

use std::ffi::c_int;
use std::rc::Rc;

use crate::arguments::{Callback, Out};
use crate::constants::*;
use crate::fail::{Result, fail};
use crate::handle::{Handle, Op};
use crate::message::Elements;
use crate::objects::OpObject;
use crate::operands::Buffer;
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

pub fn reduce_local(call: &Call<'_>, input: Buffer, inout: Buffer, op: Op) -> Result {
    let (Elements { object, n, .. }, map) = input.message(call)?;
    let operator = call.ops.get(op)?;
    operator.check(op, input.datatype, &object)?;
    inout.address.check(map.size(), map.true_lb())?;
    let [from, to] = [input, inout].map(|buffer| buffer.address.at());
    if from == to && map.size() > 0 {
        return Err(fail(MPI_ERR_BUFFER, "is the same as inoutbuf").named(input.address.name()));
    }
    // SAFETY: the program guarantees both buffers.
    unsafe { operator.apply(input.datatype, &object, from.cast(), to.cast(), n) };
    Ok(())
}
