//! Topologies: grids, graphs that every rank stores completely, and distributed graphs, of which each rank stores its
//! own edges.

use std::ffi::c_int;

use crate::constants::MPI_PROC_NULL;

/// The topology of a communicator.
#[derive(Debug)]
pub enum Topology {
    Grid(Grid),
    Graph(Graph),
    /// The edges of this rank of a distributed graph.
    Edges(Edges),
}

/// The neighbours of a rank in the order of its buffers, each a rank or `MPI_PROC_NULL`; and the order in which sources
/// are matched with the blocks that they send, since there may be several edges from one rank to this rank.
pub struct Neighborhood {
    pub sources: Vec<c_int>,
    pub destinations: Vec<c_int>,
    pub order: Vec<usize>,
}

impl Topology {
    pub fn neighborhood(&self, rank: usize) -> Neighborhood {
        let (sources, destinations) = match self {
            Self::Grid(grid) => {
                let shifted = |d: usize| [-1, 1].map(|by| grid.shifted(rank as c_int, d, by));
                let all: Vec<c_int> = (0..grid.dims.len()).flat_map(shifted).collect();
                // A block that is sent in the negative direction of a dimension is received from the positive one.
                let order = (0..all.len()).map(|at| at ^ 1).collect();
                return Neighborhood { sources: all.clone(), destinations: all, order };
            }
            Self::Graph(graph) => (graph.neighbors(rank).to_vec(), graph.neighbors(rank).to_vec()),
            Self::Edges(edges) => (edges.sources.clone(), edges.destinations.clone()),
        };
        Neighborhood { order: (0..sources.len()).collect(), sources, destinations }
    }
}

/// A Cartesian grid: ranks in row-major order.
#[derive(Debug)]
pub struct Grid {
    pub dims: Vec<c_int>,
    pub periods: Vec<bool>,
}

impl Grid {
    pub fn coords(&self, rank: c_int) -> Vec<c_int> {
        let mut rest = rank;
        let mut coords: Vec<c_int> = self
            .dims
            .iter()
            .rev()
            .map(|dim| {
                let at = rest % dim;
                rest /= dim;
                at
            })
            .collect();
        coords.reverse();
        coords
    }

    pub fn rank(&self, coords: &[c_int]) -> c_int {
        self.dims.iter().zip(coords).fold(0, |rank, (dim, at)| rank * dim + at)
    }

    /// The rank `by` steps away in a dimension, or `MPI_PROC_NULL`.
    pub fn shifted(&self, rank: c_int, dimension: usize, by: c_int) -> c_int {
        let mut coords = self.coords(rank);
        let (dim, at) = (i64::from(self.dims[dimension]), i64::from(coords[dimension]) + i64::from(by));
        if !self.periods[dimension] && !(0..dim).contains(&at) {
            return MPI_PROC_NULL;
        }
        coords[dimension] = at.rem_euclid(dim) as c_int;
        self.rank(&coords)
    }
}

#[derive(Debug)]
pub struct Graph {
    pub index: Vec<c_int>,
    pub edges: Vec<c_int>,
}

impl Graph {
    pub fn neighbors(&self, rank: usize) -> &[c_int] {
        let start = if rank == 0 { 0 } else { self.index[rank - 1] };
        &self.edges[start as usize..self.index[rank] as usize]
    }
}

/// The edges of this rank.
#[derive(Debug, Default)]
pub struct Edges {
    pub sources: Vec<c_int>,
    pub source_weights: Vec<c_int>,
    pub destinations: Vec<c_int>,
    pub destination_weights: Vec<c_int>,
    pub weighted: bool,
}
