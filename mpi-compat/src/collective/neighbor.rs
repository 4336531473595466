//! Neighbourhood collectives (MPI-5.0 section 8.6): blocks are sent along the edges of a topology.

use std::ffi::c_int;

use farside_core::coll::operation::Operation;

use super::buffer::{Existing, Segments};
use super::key::Key;
use super::plan::{Caller, Graph};
use super::{Form, make, own};
use crate::constants::*;
use crate::fail::{Result, fail};
use crate::handle::Comm;
use crate::operands::{Address, Blocks, Buffer};
use crate::runtime::Call;

/// The neighbours other than `MPI_PROC_NULL`, and the indices of their blocks.
struct Neighbors {
    graph: Graph,
    /// The number of blocks to send that the arguments describe.
    outdegree: usize,
    indegree: usize,
    to: Vec<usize>,
    from: Vec<usize>,
}

impl Neighbors {
    fn to(&self) -> Existing<'_> {
        Existing::Some(self.outdegree, &self.to)
    }

    fn from(&self) -> Existing<'_> {
        Existing::Some(self.indegree, &self.from)
    }
}

/// Makes the call whose send and receive buffers `buffers` describes.
fn exchange(
    call: &Call<'_>,
    comm: Comm,
    form: Form,
    for_each: bool,
    addresses: [Address; 2],
    key: Option<Key>,
    buffers: impl FnOnce(&Neighbors) -> Result<(Segments, Segments)>,
) -> Result {
    make(call, comm, form, key, |c| {
        // Checked before the count and the type, which are not significant with `MPI_IN_PLACE`.
        addresses.into_iter().try_for_each(Address::check_not_in_place)?;
        let neighbors = neighbors(c, comm)?;
        let (send, recv) = buffers(&neighbors)?;
        c.exchange(&neighbors.graph, for_each, &send, &recv)
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

pub fn neighbor_allgather(call: &Call<'_>, send: Buffer, recv: Buffer, comm: Comm, form: Form) -> Result {
    let key = Key::new(Operation::NeighborAllgather, send, recv);
    exchange(call, comm, form, false, [send.address, recv.address], Some(key), |neighbors| {
        Ok((own(call, send)?, Segments::equal(call, recv, neighbors.from())?))
    })
}

pub fn neighbor_allgatherv(call: &Call<'_>, send: Buffer, recv: Blocks, comm: Comm, form: Form) -> Result {
    exchange(call, comm, form, false, [send.address, recv.address], None, |neighbors| {
        Ok((own(call, send)?, Segments::each(call, recv, neighbors.from())?))
    })
}

pub fn neighbor_alltoall(call: &Call<'_>, send: Buffer, recv: Buffer, comm: Comm, form: Form) -> Result {
    let key = Key::new(Operation::NeighborAlltoall, send, recv);
    exchange(call, comm, form, true, [send.address, recv.address], Some(key), |neighbors| {
        Ok((Segments::equal(call, send, neighbors.to())?, Segments::equal(call, recv, neighbors.from())?))
    })
}

pub fn neighbor_alltoallv(call: &Call<'_>, send: Blocks, recv: Blocks, comm: Comm, form: Form) -> Result {
    exchange(call, comm, form, true, [send.address, recv.address], None, |neighbors| {
        Ok((Segments::each(call, send, neighbors.to())?, Segments::each(call, recv, neighbors.from())?))
    })
}

pub use neighbor_alltoallv as neighbor_alltoallw;
