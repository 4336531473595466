//! Topologies (MPI-5.0 chapter 8): grids, graphs that every rank stores completely, and distributed graphs, of which
//! each rank stores only its own edges.
//!
//! Ranks are not reordered: a new communicator has its members in the order of the old one.

mod cart;
mod dims;
mod dist_graph;
mod graph;

use std::ffi::c_int;
use std::rc::Rc;

use crate::arguments::Out;
use crate::collective::plan::Caller;
use crate::comm::{put, split};
use crate::constants::*;
use crate::fail::{Fail, Result, fail};
use crate::handle::Comm;
use crate::objects::{CommObject, Edges, Graph, Grid, Topology};
use crate::runtime::Call;

pub use cart::*;
pub use dims::*;
pub use dist_graph::*;
pub use graph::*;

#[cold]
fn no_topology(comm: Comm, what: &str) -> Fail {
    fail(MPI_ERR_TOPOLOGY, format!("has no {what}")).value(comm.0)
}

macro_rules! of_kind {
    ($($name:ident: $variant:ident, $of:ty, $what:literal;)*) => {$(
        fn $name<R>(call: &Call<'_>, comm: Comm, f: impl FnOnce(&CommObject, &$of) -> Result<R>) -> Result<R> {
            let object = call.comms.get(comm)?;
            match object.topology.as_deref() {
                Some(Topology::$variant(topology)) => f(&object, topology),
                _ => Err(no_topology(comm, $what)),
            }
        }
    )*};
}

of_kind! {
    on_grid: Grid, Grid, "Cartesian topology";
    on_graph: Graph, Graph, "graph topology";
    on_edges: Edges, Edges, "distributed graph topology";
}

/// Checks that a rank is one of a communicator.
fn rank_of(comm: &CommObject, rank: c_int) -> Result<usize> {
    let size = comm.group.members.len();
    let found = usize::try_from(rank).ok().filter(|rank| *rank < size);
    found.ok_or_else(|| fail(MPI_ERR_RANK, format!("is {rank}, but the communicator has {size} ranks")).named("rank"))
}

/// Checks that a list of the program is long enough.
fn room(most: c_int, name: &'static str, needed: usize) -> Result {
    if i64::from(most) < needed as i64 {
        return Err(fail(MPI_ERR_ARG, format!("is {most}, but {needed} are needed")).named(name));
    }
    Ok(())
}

/// Checks that a communicator can have a topology.
fn check_intra(caller: &Caller<'_>, comm: Comm) -> Result {
    if caller.is_inter() {
        Err(fail(MPI_ERR_COMM, "is an intercommunicator, but the call requires an intracommunicator").value(comm.0))
    } else {
        Ok(())
    }
}

/// Creates a communicator of the first `nodes` ranks with a topology.
fn first_ranks(caller: &Caller<'_>, nodes: usize, topology: Topology, new: Out<Comm>) -> Result {
    let rank = caller.comm.rank;
    let made = split(caller, (rank < nodes).then_some(0), rank as c_int)?;
    put_with(caller.call, made, topology, new);
    Ok(())
}

/// Returns the handle of a new communicator with a topology to the program.
fn put_with(call: &Call<'_>, mut made: Option<CommObject>, topology: Topology, new: Out<Comm>) {
    if let Some(made) = &mut made {
        made.topology = Some(Rc::new(topology));
    }
    put(call, made, new);
}

pub fn topo_test(call: &Call<'_>, comm: Comm, status: Out<c_int>) -> Result {
    status.set(match call.comms.get(comm)?.topology.as_deref() {
        Some(Topology::Grid(_)) => MPI_CART,
        Some(Topology::Graph(_)) => MPI_GRAPH,
        Some(Topology::Edges(_)) => MPI_DIST_GRAPH,
        None => MPI_UNDEFINED,
    });
    Ok(())
}
