//! Graphs that every rank stores completely (MPI-5.0 sections 8.5.3, 8.5.5 and 8.5.8).

use std::ffi::c_int;

use super::{check_intra, first_ranks, on_graph, rank_of, room};
use crate::arguments::{List, ListOut, Out};
use crate::collective::plan::Caller;
use crate::constants::*;
use crate::fail::{Result, fail};
use crate::handle::Comm;
use crate::objects::{Graph, Topology};
use crate::runtime::Call;

/// Reads the graph that the arguments describe: the neighbours of rank r end at `index[r]` in `edges`. Returns it and
/// its number of nodes.
fn graph(comm_size: usize, nnodes: c_int, index: List<c_int>, edges: List<c_int>) -> Result<(Graph, usize)> {
    let nodes = usize::try_from(nnodes).ok().filter(|nodes| *nodes <= comm_size);
    let nodes = nodes.ok_or_else(|| {
        fail(MPI_ERR_ARG, format!("is {nnodes}, but must be 0 to {comm_size}, the number of ranks of the communicator"))
            .named("nnodes")
    })?;
    let index = index.read(nnodes.into())?;
    if index.first().is_some_and(|first| *first < 0) || index.windows(2).any(|pair| pair[0] > pair[1]) {
        return Err(
            fail(MPI_ERR_ARG, "contains an element that is negative or less than its predecessor").named("indx")
        );
    }
    let edges = edges.read(index.last().copied().unwrap_or(0).into())?;
    if let Some(edge) = edges.iter().find(|edge| !(0..nnodes).contains(edge)) {
        return Err(
            fail(MPI_ERR_ARG, format!("contains {edge}, but nodes are numbered from 0 to {nnodes} - 1")).named("edges")
        );
    }
    Ok((Graph { index, edges }, nodes))
}

pub fn graph_create(
    call: &Call<'_>,
    comm_old: Comm,
    nnodes: c_int,
    index: List<c_int>,
    edges: List<c_int>,
    _reorder: c_int,
    comm_graph: Out<Comm>,
) -> Result {
    let caller = Caller::new(call, comm_old)?;
    check_intra(&caller, comm_old)?;
    let (graph, nodes) = graph(caller.local_size(), nnodes, index, edges)?;
    first_ranks(&caller, nodes, Topology::Graph(graph), comm_graph)
}

pub fn graph_map(
    call: &Call<'_>,
    comm: Comm,
    nnodes: c_int,
    index: List<c_int>,
    edges: List<c_int>,
    newrank: Out<c_int>,
) -> Result {
    let object = call.comms.get(comm)?;
    let (_, nodes) = graph(object.group.members.len(), nnodes, index, edges)?;
    newrank.set(if object.rank < nodes { object.rank as c_int } else { MPI_UNDEFINED });
    Ok(())
}

pub fn graphdims_get(call: &Call<'_>, comm: Comm, nnodes: Out<c_int>, nedges: Out<c_int>) -> Result {
    on_graph(call, comm, |_, graph| {
        nnodes.set(graph.index.len() as c_int);
        nedges.set(graph.edges.len() as c_int);
        Ok(())
    })
}

pub fn graph_get(
    call: &Call<'_>,
    comm: Comm,
    maxindex: c_int,
    maxedges: c_int,
    index: ListOut<c_int>,
    edges: ListOut<c_int>,
) -> Result {
    on_graph(call, comm, |_, graph| {
        room(maxindex, "maxindex", graph.index.len())?;
        room(maxedges, "maxedges", graph.edges.len())?;
        index.write(&graph.index)?;
        edges.write(&graph.edges)
    })
}

pub fn graph_neighbors_count(call: &Call<'_>, comm: Comm, rank: c_int, nneighbors: Out<c_int>) -> Result {
    on_graph(call, comm, |object, graph| {
        nneighbors.set(graph.neighbors(rank_of(object, rank)?).len() as c_int);
        Ok(())
    })
}

pub fn graph_neighbors(
    call: &Call<'_>,
    comm: Comm,
    rank: c_int,
    maxneighbors: c_int,
    neighbors: ListOut<c_int>,
) -> Result {
    on_graph(call, comm, |object, graph| {
        let all = graph.neighbors(rank_of(object, rank)?);
        room(maxneighbors, "maxneighbors", all.len())?;
        neighbors.write(all)
    })
}
