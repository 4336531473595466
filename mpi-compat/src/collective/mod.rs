//! Collectives (MPI-5.0 chapter 6 and section 8.6). Each collective is implemented once: its blocking, non-blocking and
//! persistent forms call one function and differ only in the [`Form`].

mod buffer;
pub mod control;
mod form;
mod key;
mod neighbor;
pub mod plan;
mod reduction;

use std::ffi::c_int;

use farside_core::coll::operation::Operation;

use crate::arguments::{Longs, count};
use crate::constants::{MPI_DATATYPE_NULL, MPI_ERR_COMM};
use crate::fail::{Result, fail};
use crate::handle::{Comm, Op, Type};
use crate::operands::{Address, Blocks, Buffer};
use crate::runtime::Call;
use buffer::{Existing, Segments, Sizes};
pub use form::Form;
use key::Key;
pub use neighbor::*;
use plan::{Caller, Plan, Role, run};
use reduction::Operand;

/// Makes the team's cached call with the same key, or else the call that `plan` prepares.
fn make(
    call: &Call<'_>,
    comm: Comm,
    form: Form,
    key: Option<Key>,
    plan: impl FnOnce(&Caller<'_>) -> Result<Plan>,
) -> Result {
    let mut caller = Caller::new(call, comm)?;
    if matches!(form, Form::Blocking)
        && let Some(known) = key.and_then(|key| key.cached_call(&caller.comm.team))
    {
        return run(call, &known);
    }
    (caller.mode, caller.key) = (form.mode(call)?, key);
    let plan = caller.prepared(|| plan(&caller))?;
    form.make(&caller, plan, None)
}

/// The buffer of a call without data.
const NO_DATA: Buffer = Buffer::new(std::ptr::null(), 0, MPI_DATATYPE_NULL, &["", ""]);

pub fn barrier(call: &Call<'_>, comm: Comm, form: Form) -> Result {
    make(call, comm, form, Some(Key::new(Operation::Barrier, NO_DATA, NO_DATA)), |c| c.barrier())
}

pub fn bcast(call: &Call<'_>, buffer: Buffer, root: c_int, comm: Comm, form: Form) -> Result {
    make(call, comm, form, Some(Key::new(Operation::Broadcast, buffer, buffer).root(root)), |c| {
        let role = c.role(root)?;
        let data = own(call, buffer);
        let (mut send, mut recv) = (None, None);
        if role.is_served {
            recv = Some(data?);
        } else if role.is_root {
            send = Some(data?);
        }
        c.transfer(Operation::Broadcast, Some(role), true, send, recv)
    })
}

/// One block that this rank sends or receives.
fn own(call: &Call<'_>, buffer: Buffer) -> Result<Segments> {
    Segments::equal(call, buffer, Existing::All(1))
}

/// The data that a rank sends or receives in a call with a root; `None` if it does not participate, or uses one buffer
/// for both.
fn part(
    participates: bool,
    address: Address,
    is_root: bool,
    segments: impl FnOnce() -> Result<Segments>,
) -> Result<Option<Segments>> {
    if participates && !(is_root && address.is_in_place()) { segments().map(Some) } else { Ok(None) }
}

pub fn gather(call: &Call<'_>, send: Buffer, recv: Buffer, root: c_int, comm: Comm, form: Form) -> Result {
    make(call, comm, form, Some(Key::new(Operation::Gather, send, recv).root(root)), |c| {
        let role = c.role(root)?;
        let all = || Segments::equal(call, recv, Existing::All(c.peers()));
        let all = part(role.is_root, recv.address, false, all)?;
        let own = part(role.is_served, send.address, role.is_root, || own(call, send))?;
        c.transfer(Operation::Gather, Some(role), true, own, all)
    })
}

pub fn gatherv(call: &Call<'_>, send: Buffer, recv: Blocks, root: c_int, comm: Comm, form: Form) -> Result {
    make(call, comm, form, None, |c| {
        let role = c.role(root)?;
        let all = || Segments::each(call, recv, Existing::All(c.peers()));
        let all = part(role.is_root, recv.address, false, all)?;
        let own = part(role.is_served, send.address, role.is_root, || own(call, send))?;
        c.transfer(Operation::Gather, Some(role), false, own, all)
    })
}

pub fn scatter(call: &Call<'_>, send: Buffer, recv: Buffer, root: c_int, comm: Comm, form: Form) -> Result {
    make(call, comm, form, Some(Key::new(Operation::Scatter, send, recv).root(root)), |c| {
        let role = c.role(root)?;
        let all = || Segments::equal(call, send, Existing::All(c.peers()));
        let all = part(role.is_root, send.address, false, all)?;
        let own = part(role.is_served, recv.address, role.is_root, || own(call, recv))?;
        c.transfer(Operation::Scatter, Some(role), true, all, own)
    })
}

pub fn scatterv(call: &Call<'_>, send: Blocks, recv: Buffer, root: c_int, comm: Comm, form: Form) -> Result {
    make(call, comm, form, None, |c| {
        let role = c.role(root)?;
        let all = || Segments::each(call, send, Existing::All(c.peers()));
        let all = part(role.is_root, send.address, false, all)?;
        let own = part(role.is_served, recv.address, role.is_root, || own(call, recv))?;
        c.transfer(Operation::Scatter, Some(role), false, all, own)
    })
}

/// The data that a rank sends in a call without a root; `None` on an intracommunicator if it is in the receive buffer.
fn sent(c: &Caller<'_>, address: Address, segments: impl FnOnce() -> Result<Segments>) -> Result<Option<Segments>> {
    part(true, address, !c.is_inter(), segments)
}

pub fn allgather(call: &Call<'_>, send: Buffer, recv: Buffer, comm: Comm, form: Form) -> Result {
    make(call, comm, form, Some(Key::new(Operation::Allgather, send, recv)), |c| {
        let all = Segments::equal(call, recv, Existing::All(c.peers()))?;
        let own = sent(c, send.address, || own(call, send))?;
        c.transfer(Operation::Allgather, None, true, own, Some(all))
    })
}

pub fn allgatherv(call: &Call<'_>, send: Buffer, recv: Blocks, comm: Comm, form: Form) -> Result {
    make(call, comm, form, None, |c| {
        let all = Segments::each(call, recv, Existing::All(c.peers()))?;
        let own = sent(c, send.address, || own(call, send))?;
        c.transfer(Operation::Allgather, None, true, own, Some(all))
    })
}

pub fn alltoall(call: &Call<'_>, send: Buffer, recv: Buffer, comm: Comm, form: Form) -> Result {
    make(call, comm, form, Some(Key::new(Operation::Alltoall, send, recv)), |c| {
        let blocks = Existing::All(c.peers());
        let to = Segments::equal(call, recv, blocks)?;
        let from = sent(c, send.address, || Segments::equal(call, send, blocks))?;
        c.transfer(Operation::Alltoall, None, true, from, Some(to))
    })
}

pub fn alltoallv(call: &Call<'_>, send: Blocks, recv: Blocks, comm: Comm, form: Form) -> Result {
    make(call, comm, form, None, |c| {
        let blocks = Existing::All(c.peers());
        let to = Segments::each(call, recv, blocks)?;
        let from = sent(c, send.address, || Segments::each(call, send, blocks))?;
        c.transfer(Operation::Alltoall, None, true, from, Some(to))
    })
}

pub use alltoallv as alltoallw;

pub fn reduce(call: &Call<'_>, send: Buffer, recv: Buffer, op: Op, root: c_int, comm: Comm, form: Form) -> Result {
    make(call, comm, form, Some(Key::new(Operation::Reduce, send, recv).op(op).root(root)), |c| {
        let role = c.role(root)?;
        if !role.is_root && !role.is_served {
            return c.transfer(Operation::Reduce, Some(role), true, None, None);
        }
        reduction(c, Operation::Reduce, Some(role), send, recv, op, 1)
    })
}

/// A reduction of vectors of `blocks` blocks; the buffers give the number of elements of each.
fn reduction(
    c: &Caller<'_>,
    operation: Operation,
    role: Option<Role>,
    send: Buffer,
    recv: Buffer,
    op: Op,
    blocks: usize,
) -> Result<Plan> {
    let operand = Operand::new(c.call, send.datatype, op)?;
    let sizes = Sizes::Equal(count(send.n, send.address.count())?, blocks);
    c.reduce(operation, role, operand, send.address, recv.address, sizes)
}

pub fn allreduce(call: &Call<'_>, send: Buffer, recv: Buffer, op: Op, comm: Comm, form: Form) -> Result {
    make(call, comm, form, Some(Key::new(Operation::Allreduce, send, recv).op(op)), |c| {
        reduction(c, Operation::Allreduce, None, send, recv, op, 1)
    })
}

fn prefix(call: &Call<'_>, operation: Operation, send: Buffer, recv: Buffer, op: Op, comm: Comm, form: Form) -> Result {
    make(call, comm, form, Some(Key::new(operation, send, recv).op(op)), |c| {
        if c.is_inter() {
            return Err(
                fail(MPI_ERR_COMM, "is an intercommunicator, but the call requires an intracommunicator").value(comm.0)
            );
        }
        reduction(c, operation, None, send, recv, op, 1)
    })
}

pub fn scan(call: &Call<'_>, send: Buffer, recv: Buffer, op: Op, comm: Comm, form: Form) -> Result {
    prefix(call, Operation::Scan, send, recv, op, comm, form)
}

pub fn exscan(call: &Call<'_>, send: Buffer, recv: Buffer, op: Op, comm: Comm, form: Form) -> Result {
    prefix(call, Operation::Exscan, send, recv, op, comm, form)
}

pub fn reduce_scatter_block(call: &Call<'_>, send: Buffer, recv: Buffer, op: Op, comm: Comm, form: Form) -> Result {
    let key = Key::new(Operation::ReduceScatter, send, recv).op(op);
    make(call, comm, form, Some(key), |c| reduction(c, Operation::ReduceScatter, None, send, recv, op, c.local_size()))
}

pub fn reduce_scatter(
    call: &Call<'_>,
    send: Address,
    recv: Address,
    recvcounts: Longs,
    datatype: Type,
    op: Op,
    comm: Comm,
    form: Form,
) -> Result {
    make(call, comm, form, None, |c| {
        let operand = Operand::new(call, datatype, op)?;
        let blocks = Sizes::Each(recvcounts.counts(c.local_size() as i64)?);
        c.reduce(Operation::ReduceScatter, None, operand, send, recv, blocks)
    })
}
