//! Collectives (MPI-5.0 chapter 6 and section 8.6). Each is described once: its blocking, non-blocking and persistent forms call
//! one function, and differ in the [`Form`].

mod buffer;
pub mod control;
mod form;
mod neighbor;
pub mod plan;
mod reduction;

use std::ffi::{c_int, c_void};

use farside_core::coll::operation::Operation;

use crate::arguments::{List, Longs, count};
use crate::constants::MPI_ERR_COMM;
use crate::fail::{Result, fail};
use crate::handle::{Comm, Op, Type};
use crate::runtime::Call;
use buffer::{Blocks, Buffer, Place, Sizes};
pub use form::Form;
pub use neighbor::*;
use plan::{Caller, Plan};
use reduction::Operand;

/// Makes the call that `plan` describes.
fn make(call: &Call<'_>, comm: Comm, form: Form, plan: impl FnOnce(&Caller<'_>) -> Result<Plan>) -> Result {
    let caller = Caller::new(call, comm)?;
    let plan = caller.checked(|| plan(&caller))?;
    form.make(&caller, plan, None)
}

pub fn barrier(call: &Call<'_>, comm: Comm, form: Form) -> Result {
    make(call, comm, form, |c| Ok(c.barrier()))
}

pub fn bcast(
    call: &Call<'_>,
    buffer: *mut c_void,
    n: i64,
    datatype: Type,
    root: c_int,
    comm: Comm,
    form: Form,
) -> Result {
    make(call, comm, form, |c| {
        let role = c.role(root)?;
        let place = Place { address: buffer, name: "buffer", count: "count" };
        let data = Buffer::equal(call, place, n, datatype, Blocks::All(1));
        let (mut send, mut recv) = (None, None);
        if role.is_served {
            recv = Some(data?);
        } else if role.is_root {
            send = Some(data?);
        }
        c.transfer(Operation::Broadcast, Some(role), true, send, recv)
    })
}

/// What a rank sends or receives of a call with a root; nothing where it has no part, or one buffer for both.
fn part(has: bool, place: Place, is_root: bool, buffer: impl FnOnce() -> Result<Buffer>) -> Result<Option<Buffer>> {
    if has && !(is_root && place.is_in_place()) { buffer().map(Some) } else { Ok(None) }
}

pub fn gather(
    call: &Call<'_>,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Type,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: Type,
    root: c_int,
    comm: Comm,
    form: Form,
) -> Result {
    let (send, recv) = (Place::send(sendbuf), Place::recv(recvbuf));
    make(call, comm, form, |c| {
        let role = c.role(root)?;
        let all = || Buffer::equal(call, recv, recvcount, recvtype, Blocks::All(c.peers()));
        let own = || Buffer::equal(call, send, sendcount, sendtype, Blocks::All(1));
        let recv = part(role.is_root, recv, false, all)?;
        c.transfer(Operation::Gather, Some(role), true, part(role.is_served, send, role.is_root, own)?, recv)
    })
}

pub fn gatherv(
    call: &Call<'_>,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Type,
    recvbuf: *mut c_void,
    recvcounts: Longs,
    displs: Longs,
    recvtype: Type,
    root: c_int,
    comm: Comm,
    form: Form,
) -> Result {
    let (send, recv) = (Place::send(sendbuf), Place::recv(recvbuf));
    make(call, comm, form, |c| {
        let role = c.role(root)?;
        let all = || Buffer::each(call, recv, recvcounts, displs, recvtype, Blocks::All(c.peers()));
        let own = || Buffer::equal(call, send, sendcount, sendtype, Blocks::All(1));
        let recv = part(role.is_root, recv, false, all)?;
        c.transfer(Operation::Gather, Some(role), false, part(role.is_served, send, role.is_root, own)?, recv)
    })
}

pub fn scatter(
    call: &Call<'_>,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Type,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: Type,
    root: c_int,
    comm: Comm,
    form: Form,
) -> Result {
    let (send, recv) = (Place::send(sendbuf), Place::recv(recvbuf));
    make(call, comm, form, |c| {
        let role = c.role(root)?;
        let all = || Buffer::equal(call, send, sendcount, sendtype, Blocks::All(c.peers()));
        let own = || Buffer::equal(call, recv, recvcount, recvtype, Blocks::All(1));
        let send = part(role.is_root, send, false, all)?;
        c.transfer(Operation::Scatter, Some(role), true, send, part(role.is_served, recv, role.is_root, own)?)
    })
}

pub fn scatterv(
    call: &Call<'_>,
    sendbuf: *const c_void,
    sendcounts: Longs,
    displs: Longs,
    sendtype: Type,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: Type,
    root: c_int,
    comm: Comm,
    form: Form,
) -> Result {
    let (send, recv) = (Place::send(sendbuf), Place::recv(recvbuf));
    make(call, comm, form, |c| {
        let role = c.role(root)?;
        let all = || Buffer::each(call, send, sendcounts, displs, sendtype, Blocks::All(c.peers()));
        let own = || Buffer::equal(call, recv, recvcount, recvtype, Blocks::All(1));
        let send = part(role.is_root, send, false, all)?;
        c.transfer(Operation::Scatter, Some(role), false, send, part(role.is_served, recv, role.is_root, own)?)
    })
}

/// What a rank sends of a call without a root: nothing if its data is in the receive buffer, of an intracommunicator.
fn sent(c: &Caller<'_>, place: Place, buffer: impl FnOnce() -> Result<Buffer>) -> Result<Option<Buffer>> {
    part(true, place, !c.is_inter(), buffer)
}

pub fn allgather(
    call: &Call<'_>,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Type,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: Type,
    comm: Comm,
    form: Form,
) -> Result {
    let (send, recv) = (Place::send(sendbuf), Place::recv(recvbuf));
    make(call, comm, form, |c| {
        let all = Buffer::equal(call, recv, recvcount, recvtype, Blocks::All(c.peers()))?;
        let own = sent(c, send, || Buffer::equal(call, send, sendcount, sendtype, Blocks::All(1)))?;
        c.transfer(Operation::Allgather, None, true, own, Some(all))
    })
}

pub fn allgatherv(
    call: &Call<'_>,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Type,
    recvbuf: *mut c_void,
    recvcounts: Longs,
    displs: Longs,
    recvtype: Type,
    comm: Comm,
    form: Form,
) -> Result {
    let (send, recv) = (Place::send(sendbuf), Place::recv(recvbuf));
    make(call, comm, form, |c| {
        let all = Buffer::each(call, recv, recvcounts, displs, recvtype, Blocks::All(c.peers()))?;
        let own = sent(c, send, || Buffer::equal(call, send, sendcount, sendtype, Blocks::All(1)))?;
        c.transfer(Operation::Allgather, None, true, own, Some(all))
    })
}

pub fn alltoall(
    call: &Call<'_>,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Type,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: Type,
    comm: Comm,
    form: Form,
) -> Result {
    let (send, recv) = (Place::send(sendbuf), Place::recv(recvbuf));
    make(call, comm, form, |c| {
        let blocks = Blocks::All(c.peers());
        let to = Buffer::equal(call, recv, recvcount, recvtype, blocks)?;
        let from = sent(c, send, || Buffer::equal(call, send, sendcount, sendtype, blocks))?;
        c.transfer(Operation::Alltoall, None, true, from, Some(to))
    })
}

pub fn alltoallv(
    call: &Call<'_>,
    sendbuf: *const c_void,
    sendcounts: Longs,
    sdispls: Longs,
    sendtype: Type,
    recvbuf: *mut c_void,
    recvcounts: Longs,
    rdispls: Longs,
    recvtype: Type,
    comm: Comm,
    form: Form,
) -> Result {
    let (send, recv) = (Place::send(sendbuf), Place::recv(recvbuf));
    make(call, comm, form, |c| {
        let blocks = Blocks::All(c.peers());
        let to = Buffer::each(call, recv, recvcounts, rdispls, recvtype, blocks)?;
        let from = sent(c, send, || Buffer::each(call, send, sendcounts, sdispls, sendtype, blocks))?;
        c.transfer(Operation::Alltoall, None, true, from, Some(to))
    })
}

pub fn alltoallw(
    call: &Call<'_>,
    sendbuf: *const c_void,
    sendcounts: Longs,
    sdispls: Longs,
    sendtypes: List<Type>,
    recvbuf: *mut c_void,
    recvcounts: Longs,
    rdispls: Longs,
    recvtypes: List<Type>,
    comm: Comm,
    form: Form,
) -> Result {
    let (send, recv) = (Place::send(sendbuf), Place::recv(recvbuf));
    make(call, comm, form, |c| {
        let blocks = Blocks::All(c.peers());
        let to = Buffer::each_typed(call, recv, recvcounts, rdispls, recvtypes, blocks)?;
        let from = sent(c, send, || Buffer::each_typed(call, send, sendcounts, sdispls, sendtypes, blocks))?;
        c.transfer(Operation::Alltoall, None, true, from, Some(to))
    })
}

pub fn reduce(
    call: &Call<'_>,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    n: i64,
    datatype: Type,
    op: Op,
    root: c_int,
    comm: Comm,
    form: Form,
) -> Result {
    make(call, comm, form, |c| {
        let role = c.role(root)?;
        if !role.is_root && !role.is_served {
            return c.transfer(Operation::Gather, Some(role), true, None, None);
        }
        let operand = Operand::new(call, datatype, op)?;
        let n = Sizes::Equal(count(n, "count")?, 1);
        c.reduce(Operation::Reduce, Some(role), operand, Place::send(sendbuf), Place::recv(recvbuf), n)
    })
}

macro_rules! vector_reductions {
    ($($name:ident: $operation:ident;)*) => {$(
        pub fn $name(
            call: &Call<'_>,
            sendbuf: *const c_void,
            recvbuf: *mut c_void,
            n: i64,
            datatype: Type,
            op: Op,
            comm: Comm,
            form: Form,
        ) -> Result {
            make(call, comm, form, |c| {
                let operand = Operand::new(call, datatype, op)?;
                let n = Sizes::Equal(count(n, "count")?, 1);
                let (send, recv) = (Place::send(sendbuf), Place::recv(recvbuf));
                if c.is_inter() && Operation::$operation != Operation::Allreduce {
                    return Err(fail(MPI_ERR_COMM, "is an intercommunicator").value(comm.0));
                }
                c.reduce(Operation::$operation, None, operand, send, recv, n)
            })
        }
    )*};
}

vector_reductions! {
    allreduce: Allreduce;
    scan: Scan;
    exscan: Exscan;
}

pub fn reduce_scatter_block(
    call: &Call<'_>,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcount: i64,
    datatype: Type,
    op: Op,
    comm: Comm,
    form: Form,
) -> Result {
    make(call, comm, form, |c| {
        let operand = Operand::new(call, datatype, op)?;
        let blocks = Sizes::Equal(count(recvcount, "recvcount")?, c.local_size());
        c.reduce(Operation::ReduceScatter, None, operand, Place::send(sendbuf), Place::recv(recvbuf), blocks)
    })
}

pub fn reduce_scatter(
    call: &Call<'_>,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcounts: Longs,
    datatype: Type,
    op: Op,
    comm: Comm,
    form: Form,
) -> Result {
    make(call, comm, form, |c| {
        let operand = Operand::new(call, datatype, op)?;
        let blocks = Sizes::Each(recvcounts.counts(c.local_size() as i64)?);
        c.reduce(Operation::ReduceScatter, None, operand, Place::send(sendbuf), Place::recv(recvbuf), blocks)
    })
}
