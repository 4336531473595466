//! Neighbourhood collectives (MPI-5.0 section 8.6): blocks go along the edges of a topology.

use std::ffi::{c_int, c_void};

use super::buffer::{Blocks, Buffer, Place};
use super::plan::{Caller, Graph};
use super::{Form, make};
use crate::arguments::{List, Longs, no_buffer};
use crate::constants::*;
use crate::fail::{Result, fail};
use crate::handle::{Comm, Type};
use crate::runtime::Call;

/// The neighbours that there are, and the numbers of their blocks.
struct Neighbors {
    graph: Graph,
    /// Of how many blocks the arguments describe, to and from.
    outdegree: usize,
    indegree: usize,
    to: Vec<usize>,
    from: Vec<usize>,
}

impl Neighbors {
    fn to(&self) -> Blocks<'_> {
        Blocks::Some(self.outdegree, &self.to)
    }

    fn from(&self) -> Blocks<'_> {
        Blocks::Some(self.indegree, &self.from)
    }
}

/// Makes the call that `buffers` describes: what is sent, and what is received.
fn exchange(
    call: &Call<'_>,
    comm: Comm,
    form: Form,
    for_each: bool,
    (sendbuf, recvbuf): (*const c_void, *mut c_void),
    buffers: impl FnOnce(&Neighbors, Place, Place) -> Result<(Buffer, Buffer)>,
) -> Result {
    make(call, comm, form, |c| {
        let (send, recv) = (Place::send(sendbuf), Place::recv(recvbuf));
        // There is no call in place, whatever the count and the type beside it, which programs leave out then.
        if let Some(place) = [send, recv].into_iter().find(|place| place.is_in_place()) {
            return Err(no_buffer(place.address, place.name));
        }
        let neighbors = neighbors(c, comm)?;
        let (send, recv) = buffers(&neighbors, send, recv)?;
        c.exchange(neighbors.graph, for_each, send, recv)
    })
}

fn neighbors(c: &Caller<'_>, comm: Comm) -> Result<Neighbors> {
    let topology = c.comm.topology.as_ref();
    let topology = topology.ok_or_else(|| fail(MPI_ERR_TOPOLOGY, "has no topology").value(comm.0))?;
    let all = topology.neighborhood(c.comm.rank);
    let is_rank = |rank: c_int| rank != MPI_PROC_NULL;
    let to: Vec<usize> = (0..all.destinations.len()).filter(|at| is_rank(all.destinations[*at])).collect();
    let from: Vec<usize> = all.order.iter().copied().filter(|at| is_rank(all.sources[*at])).collect();
    let graph = Graph {
        sources: from.iter().map(|at| all.sources[*at].cast_unsigned()).collect(),
        destinations: to.iter().map(|at| all.destinations[*at].cast_unsigned()).collect(),
    };
    Ok(Neighbors { graph, outdegree: all.destinations.len(), indegree: all.sources.len(), to, from })
}

pub fn neighbor_allgather(
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
    exchange(call, comm, form, false, (sendbuf, recvbuf), |neighbors, send, recv| {
        Ok((
            Buffer::equal(call, send, sendcount, sendtype, Blocks::All(1))?,
            Buffer::equal(call, recv, recvcount, recvtype, neighbors.from())?,
        ))
    })
}

pub fn neighbor_allgatherv(
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
    exchange(call, comm, form, false, (sendbuf, recvbuf), |neighbors, send, recv| {
        Ok((
            Buffer::equal(call, send, sendcount, sendtype, Blocks::All(1))?,
            Buffer::each(call, recv, recvcounts, displs, recvtype, neighbors.from())?,
        ))
    })
}

pub fn neighbor_alltoall(
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
    exchange(call, comm, form, true, (sendbuf, recvbuf), |neighbors, send, recv| {
        Ok((
            Buffer::equal(call, send, sendcount, sendtype, neighbors.to())?,
            Buffer::equal(call, recv, recvcount, recvtype, neighbors.from())?,
        ))
    })
}

pub fn neighbor_alltoallv(
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
    exchange(call, comm, form, true, (sendbuf, recvbuf), |neighbors, send, recv| {
        Ok((
            Buffer::each(call, send, sendcounts, sdispls, sendtype, neighbors.to())?,
            Buffer::each(call, recv, recvcounts, rdispls, recvtype, neighbors.from())?,
        ))
    })
}

pub fn neighbor_alltoallw(
    call: &Call<'_>,
    sendbuf: *const c_void,
    sendcounts: Longs,
    sdispls: List<i64>,
    sendtypes: List<Type>,
    recvbuf: *mut c_void,
    recvcounts: Longs,
    rdispls: List<i64>,
    recvtypes: List<Type>,
    comm: Comm,
    form: Form,
) -> Result {
    exchange(call, comm, form, true, (sendbuf, recvbuf), |neighbors, send, recv| {
        Ok((
            Buffer::each_typed(call, send, sendcounts, sdispls.into(), sendtypes, neighbors.to())?,
            Buffer::each_typed(call, recv, recvcounts, rdispls.into(), recvtypes, neighbors.from())?,
        ))
    })
}
