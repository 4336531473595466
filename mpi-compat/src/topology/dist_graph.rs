//! Distributed graphs (MPI-5.0 sections 8.5.4 and 8.5.5).

use std::ffi::c_int;

use super::{check_intra, first_ranks, on_edges};
use crate::arguments::{List, ListOut, Out};
use crate::collective::control::ControlExchange;
use crate::collective::plan::Caller;
use crate::constants::*;
use crate::fail::{Result, fail};
use crate::handle::{Comm, Info};
use crate::objects::{Edges, Topology};
use crate::runtime::Call;

/// Reads a list of ranks.
fn ranks(size: usize, n: c_int, name: &'static str, list: List<c_int>) -> Result<Vec<c_int>> {
    if n < 0 {
        return Err(fail(MPI_ERR_ARG, format!("is {n}")).named(name));
    }
    let ranks = list.read(n.into())?;
    match ranks.iter().find(|rank| **rank < 0 || **rank as usize >= size) {
        Some(rank) => {
            Err(fail(MPI_ERR_RANK, format!("contains {rank}, but the communicator has {size} ranks"))
                .named(list.name()))
        }
        None => Ok(ranks),
    }
}

/// Reads the weights of edges; `None` for `MPI_UNWEIGHTED`.
fn weights(n: usize, list: List<c_int>) -> Result<Option<Vec<c_int>>> {
    match list.address() {
        MPI_UNWEIGHTED => Ok(None),
        MPI_WEIGHTS_EMPTY if n == 0 => Ok(Some(Vec::new())),
        MPI_WEIGHTS_EMPTY => {
            Err(fail(MPI_ERR_ARG, format!("is MPI_WEIGHTS_EMPTY, but there are {n} edges")).named(list.name()))
        }
        _ => {
            let weights = list.read(n as i64)?;
            match weights.iter().find(|weight| **weight < 0) {
                Some(weight) => Err(fail(MPI_ERR_ARG, format!("has {weight}")).named(list.name())),
                None => Ok(Some(weights)),
            }
        }
    }
}

fn check_info(call: &Call<'_>, info: Info) -> Result {
    if info != MPI_INFO_NULL {
        call.infos.get(info)?;
    }
    Ok(())
}

/// Creates a communicator of all ranks with these edges.
fn with_edges(caller: &Caller<'_>, edges: Edges, new: Out<Comm>) -> Result {
    first_ranks(caller, usize::MAX, Topology::Edges(edges), new)
}

pub fn dist_graph_create_adjacent(
    call: &Call<'_>,
    comm_old: Comm,
    indegree: c_int,
    sources: List<c_int>,
    sourceweights: List<c_int>,
    outdegree: c_int,
    destinations: List<c_int>,
    destweights: List<c_int>,
    info: Info,
    _reorder: c_int,
    comm_dist_graph: Out<Comm>,
) -> Result {
    let caller = Caller::new(call, comm_old)?;
    check_intra(&caller, comm_old)?;
    check_info(call, info)?;
    let sources = ranks(caller.local_size(), indegree, "indegree", sources)?;
    let destinations = ranks(caller.local_size(), outdegree, "outdegree", destinations)?;
    let (into, out) = (weights(sources.len(), sourceweights)?, weights(destinations.len(), destweights)?);
    if into.is_some() != out.is_some() {
        return Err(fail(MPI_ERR_ARG, "and destweights must both be MPI_UNWEIGHTED or neither").named("sourceweights"));
    }
    let weighted = into.is_some();
    let (source_weights, destination_weights) = (into.unwrap_or_default(), out.unwrap_or_default());
    let edges = Edges { sources, source_weights, destinations, destination_weights, weighted };
    with_edges(&caller, edges, comm_dist_graph)
}

pub fn dist_graph_create(
    call: &Call<'_>,
    comm_old: Comm,
    n: c_int,
    sources: List<c_int>,
    degrees: List<c_int>,
    destinations: List<c_int>,
    edge_weights: List<c_int>,
    info: Info,
    _reorder: c_int,
    comm_dist_graph: Out<Comm>,
) -> Result {
    let caller = Caller::new(call, comm_old)?;
    check_intra(&caller, comm_old)?;
    check_info(call, info)?;
    let size = caller.local_size();
    let sources = ranks(size, n, "n", sources)?;
    let degrees = degrees.read(n.into())?;
    if let Some(degree) = degrees.iter().find(|degree| **degree < 0) {
        return Err(fail(MPI_ERR_ARG, format!("has {degree}")).named("degrees"));
    }
    let count = degrees.iter().try_fold(0, |sum: c_int, degree| sum.checked_add(*degree));
    let count =
        count.ok_or_else(|| fail(MPI_ERR_ARG, "has entries whose sum exceeds the range of an int").named("degrees"))?;
    let destinations = ranks(size, count, "degrees", destinations)?;
    let weights = weights(destinations.len(), edge_weights)?;
    // Each edge is sent to both of its ranks, first to its source.
    let mut messages = vec![Vec::new(); size];
    let from = sources.iter().zip(&degrees).flat_map(|(source, degree)| (0..*degree).map(move |_| *source));
    for (at, (from, to)) in from.zip(&destinations).enumerate() {
        let weight = weights.as_ref().map_or(0, |weights| weights[at]).cast_unsigned();
        messages[from as usize].extend([0, to.cast_unsigned(), weight]);
        messages[*to as usize].extend([1, from.cast_unsigned(), weight]);
    }
    let mut edges = Edges { weighted: weights.is_some(), ..Edges::default() };
    for words in ControlExchange::exchange(call, &caller.comm.team, &messages)? {
        for edge in words.chunks_exact(3) {
            let (rank, weight) = (edge[1].cast_signed(), edge[2].cast_signed());
            let (ranks, weights) = match edge[0] {
                0 => (&mut edges.destinations, &mut edges.destination_weights),
                _ => (&mut edges.sources, &mut edges.source_weights),
            };
            ranks.push(rank);
            weights.push(weight);
        }
    }
    with_edges(&caller, edges, comm_dist_graph)
}

pub fn dist_graph_neighbors_count(
    call: &Call<'_>,
    comm: Comm,
    indegree: Out<c_int>,
    outdegree: Out<c_int>,
    weighted: Out<c_int>,
) -> Result {
    on_edges(call, comm, |_, edges| {
        indegree.set(edges.sources.len() as c_int);
        outdegree.set(edges.destinations.len() as c_int);
        weighted.set(edges.weighted.into());
        Ok(())
    })
}

pub fn dist_graph_neighbors(
    call: &Call<'_>,
    comm: Comm,
    maxindegree: c_int,
    sources: ListOut<c_int>,
    sourceweights: ListOut<c_int>,
    maxoutdegree: c_int,
    destinations: ListOut<c_int>,
    destweights: ListOut<c_int>,
) -> Result {
    on_edges(call, comm, |_, edges| {
        let sides = [
            (maxindegree, "maxindegree", &edges.sources, sources, &edges.source_weights, sourceweights),
            (maxoutdegree, "maxoutdegree", &edges.destinations, destinations, &edges.destination_weights, destweights),
        ];
        for (most, name, ranks, into, weights, weights_into) in sides {
            let most = usize::try_from(most).map_err(|_| fail(MPI_ERR_ARG, format!("is {most}")).named(name))?;
            into.write(&ranks[..most.min(ranks.len())])?;
            if edges.weighted && weights_into.address() != MPI_UNWEIGHTED {
                weights_into.write(&weights[..most.min(weights.len())])?;
            }
        }
        Ok(())
    })
}
