#![allow(unsafe_code)]
//! Topologies: grids, graphs, edges, and the neighbours of collective calls.

use std::ffi::c_int;

use crate::arguments::Arguments;
use crate::describe::{Describe, braces};
use crate::level;
use crate::names::NAMES;
use crate::pmpi::{self, UNWEIGHTED, WEIGHTS_EMPTY, class};
use crate::record::{Block, Blocks};

pub fn cart_dimensions(comm: usize) -> i64 {
    let mut dimensions = 0;
    // SAFETY: the function writes one number.
    unsafe { pmpi::MPI_Cartdim_get(comm, &raw mut dimensions) };
    dimensions.into()
}

/// The number of edges of a graph.
pub fn edges(args: &Arguments<'_>) -> Option<i64> {
    let nodes = usize::try_from(args.int("nnodes")?).ok()?;
    args.list("indx", nodes).last().copied().filter(|edges| *edges >= 0)
}

impl Describe<'_> {
    pub fn neighbours(&mut self) {
        let Some((sources, destinations)) = self.args.comm().and_then(neighbours) else { return };
        let mut side = |side: &str, receives: bool, ranks: &[i64]| {
            let (mut parts, each) = self.parts(side, ranks.len());
            // Blocks of MPI_PROC_NULL, beyond the border of a grid, are neither read nor written.
            for (i, part) in parts.iter_mut().enumerate() {
                let theirs = if each { &ranks[i..=i] } else { ranks };
                if theirs.iter().all(|rank| *rank < 0) {
                    part.1 = 0;
                }
            }
            self.memory(side, receives, &parts, each);
            let part = |i: usize| if each { parts.get(i) } else { parts.first() };
            let of = |(i, rank): (usize, &i64)| Some((*rank, part(i)?.3));
            Blocks::List(ranks.iter().enumerate().filter_map(of).filter(|(rank, _)| *rank >= 0).collect())
        };
        let recvs = side("recv", true, &sources);
        let sends = side("send", false, &destinations);
        (self.record.sends, self.record.recvs) = (sends, recvs);
    }

    pub fn edges(&mut self) {
        let side = |degree: &str, ranks: &str, weights: &str| {
            let n = usize::try_from(self.args.int(degree).unwrap_or(0)).unwrap_or(0);
            let special = matches!(self.args.address(weights), None | Some(UNWEIGHTED | WEIGHTS_EMPTY));
            let weights = if special { Vec::new() } else { self.args.list(weights, n) };
            let edge = |(i, rank): (usize, i64)| {
                (rank, Block { size: weights.get(i).copied().unwrap_or(1), ..Block::default() })
            };
            Blocks::List(self.args.list(ranks, n).into_iter().enumerate().map(edge).collect())
        };
        let recvs = side("indegree", "sources", "sourceweights");
        let sends = side("outdegree", "destinations", "destweights");
        for blocks in [&recvs, &sends] {
            let Blocks::List(list) = blocks else { continue };
            if let Some((rank, _)) = list.iter().find(|(rank, _)| !(0..self.shadow.size() as i64).contains(rank)) {
                self.record
                    .fault
                    .get_or_insert((class::RANK, format!("neighbour {rank} is not a rank of the communicator")));
            }
        }
        (self.record.sends, self.record.recvs) = (sends, recvs);
    }

    /// Checks that edges lead to nodes. An edge without an edge in the other direction is reported at level 2: it is
    /// not an error, but neighbourhood collectives over it are.
    pub fn graph(&mut self) {
        let nodes = usize::try_from(self.args.int("nnodes").unwrap_or(0)).unwrap_or(0);
        let ends = self.args.list("indx", nodes);
        let begin = |node: usize| if node == 0 { 0 } else { ends[node - 1] };
        if let Some(node) = (0..nodes).find(|node| ends[*node] < begin(*node)) {
            return self
                .fault(class::TOPOLOGY, format!("index[{node}]={} < index[{}]={}", ends[node], node - 1, begin(node)));
        }
        let edges = self.args.list("edges", ends.last().map_or(0, |end| *end as usize));
        let of = |node: usize| &edges[begin(node) as usize..ends[node] as usize];
        let count = |node: usize, to: usize| of(node).iter().filter(|other| **other == to as i64).count();
        for node in 0..nodes {
            for other in of(node) {
                let Some(to) = usize::try_from(*other).ok().filter(|other| *other < nodes) else {
                    return self.fault(
                        class::TOPOLOGY,
                        format!("the edge of {node} to {other} leads to a node that does not exist"),
                    );
                };
                if count(node, to) != count(to, node) && level::get() >= 2 && self.shadow.rank() == 0 {
                    let text = format!(
                        "the graph has an edge from {node} to {to} but none in the other direction, which \
                         neighbourhood collectives need"
                    );
                    return crate::say::report(NAMES[self.record.call as usize].0, 0, &text);
                }
            }
        }
    }

    pub fn grid(&mut self, ndims: i64) {
        let dims = self.args.list("dims", usize::try_from(ndims).unwrap_or(0));
        let nodes = dims.iter().fold(1i64, |nodes, dim| nodes.saturating_mul(*dim));
        let size = self.shadow.size() as i64;
        if let Some(i) = dims.iter().position(|dim| *dim < 0) {
            self.fault(class::DIMS, format!("dims[{i}]={} < 0", dims[i]));
        } else if nodes > size {
            self.fault(
                class::DIMS,
                format!("dims {} has {nodes} positions, but the communicator has {size} ranks", braces(&dims)),
            );
        }
    }
}

/// The neighbours of this rank that send to it, and those to which it sends.
fn neighbours(comm: usize) -> Option<(Vec<i64>, Vec<i64>)> {
    const CART: c_int = 211;
    const GRAPH: c_int = 212;
    let wide = |list: Vec<c_int>| list.into_iter().map(i64::from).collect::<Vec<_>>();
    let (mut kind, mut rank) = (0, 0);
    // SAFETY: here and below the functions write numbers, and lists of the requested length.
    unsafe {
        pmpi::MPI_Topo_test(comm, &raw mut kind);
        match kind {
            CART => {
                let mut list = Vec::new();
                for dimension in 0..cart_dimensions(comm) as c_int {
                    let (mut before, mut after) = (0, 0);
                    pmpi::MPI_Cart_shift(comm, dimension, 1, &raw mut before, &raw mut after);
                    list.extend([before, after]);
                }
                let list = wide(list);
                Some((list.clone(), list))
            }
            GRAPH => {
                let mut n = 0;
                pmpi::MPI_Comm_rank(comm, &raw mut rank);
                pmpi::MPI_Graph_neighbors_count(comm, rank, &raw mut n);
                let mut list = vec![0; n as usize];
                pmpi::MPI_Graph_neighbors(comm, rank, n, list.as_mut_ptr());
                let list = wide(list);
                Some((list.clone(), list))
            }
            pmpi::UNDEFINED => None,
            _ => {
                let (mut n, mut m, mut weighted) = (0, 0, 0);
                pmpi::MPI_Dist_graph_neighbors_count(comm, &raw mut n, &raw mut m, &raw mut weighted);
                let lists = [n, m].map(|n| vec![0; n as usize]);
                let [mut sources, mut destinations] = lists.clone();
                let [mut a, mut b] = lists;
                let (a, b) = (a.as_mut_ptr(), b.as_mut_ptr());
                pmpi::MPI_Dist_graph_neighbors(comm, n, sources.as_mut_ptr(), a, m, destinations.as_mut_ptr(), b);
                Some((wide(sources), wide(destinations)))
            }
        }
    }
}
