//! Breadth-first search of a Kronecker graph, with the checks of Graph500: the edges are drawn by all ranks, go to the ranks
//! that have their vertices, and a level of the search is a conveyor of visits.
//!
//!     farside run -n 4 target/release/examples/graph500 --scale 16

#[path = "common/program.rs"]
mod program;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use farside_rma::aggregate::Conveyor;
use farside_rma::prelude::*;
use program::{Outcome, numbers, run};

/// Searches a Kronecker graph and checks the tree that was found.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Logarithm of the number of vertices to the base 2.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=32))]
    scale: u32,
    /// Edges for each vertex.
    #[arg(long, default_value_t = 16)]
    edges: usize,
}

const NONE: u64 = u64::MAX;

fn main() -> ExitCode {
    let options = Options::parse();
    run(|job| search(job, &options))
}

/// Edge `index` of the graph: each bit of both ends is drawn with the probabilities 0.57, 0.19, 0.19 and 0.05.
fn edge(index: usize, scale: u32) -> [u64; 2] {
    let bits = numbers(index).take(scale as usize).map(|x| match x % 100 {
        0..57 => [0, 0],
        57..76 => [0, 1],
        76..95 => [1, 0],
        _ => [1, 1],
    });
    let ends = bits.fold([0, 0], |[a, b], [i, j]| [a << 1 | i, b << 1 | j]);
    // Other numbers for the vertices, so that those with many edges are spread.
    ends.map(|vertex: u64| (vertex ^ vertex >> scale.div_ceil(2)).wrapping_mul(0x9e37_79b9) & ((1 << scale) - 1))
}

fn search(job: &Job, options: &Options) -> Outcome {
    let team = job.world()?;
    let (ranks, me, vertices) = (team.size(), team.rank(), 1usize << options.scale);
    let local = vertices.div_ceil(ranks);
    let place = |vertex: u64| (vertex as usize % ranks, vertex as usize / ranks);
    let mut neighbors = vec![Vec::new(); local];
    let mut conveyor = Conveyor::<[u64; 2]>::new(&team)?;
    let own: Vec<[u64; 2]> =
        (me..options.edges * vertices).step_by(ranks).map(|index| edge(index, options.scale)).collect();
    let both = own.iter().flat_map(|[a, b]| [(place(*a).0, [*a, *b]), (place(*b).0, [*b, *a])]);
    conveyor.drive(both, |_, _, [from, to]| neighbors[place(from).1].push(to))?;

    team.barrier()?;
    let start = Instant::now();
    let root = edge(0, options.scale)[0];
    let (mut parents, mut next) = (vec![NONE; local], Vec::new());
    if place(root).0 == me {
        parents[place(root).1] = root;
        next.push(root);
    }
    loop {
        let from = std::mem::take(&mut next);
        let visits = from.iter().flat_map(|v| neighbors[place(*v).1].iter().map(|to| (place(*to).0, [*to, *v])));
        conveyor.drive(visits, |_, _, [vertex, parent]| {
            let known = &mut parents[place(vertex).1];
            if *known == NONE {
                *known = parent;
                next.push(vertex);
            }
        })?;
        let mut found = [next.len()];
        team.allreduce(&mut found, Op::Sum)?;
        if found == [0] {
            break;
        }
    }
    let time = start.elapsed();
    conveyor.free()?;

    let mut all = vec![0; ranks * local];
    team.allgather(&parents, &mut all)?;
    let parent = |vertex: u64| all[place(vertex).0 * local + place(vertex).1];
    // The level of each vertex, by the parents; a tree has no longer way than there are vertices.
    let level = |vertex: u64| {
        let mut way = std::iter::successors(Some(vertex), |v| Some(parent(*v)).filter(|up| up != v && *up != NONE));
        way.by_ref().take(vertices).count()
    };
    let levels: Vec<usize> =
        (0..vertices as u64).map(|v| if parent(v) == NONE { usize::MAX } else { level(v) }).collect();
    let at = |vertex: u64| levels[vertex as usize];
    if parent(root) != root || (0..vertices as u64).any(|v| v != root && parent(v) == v) {
        return Err("the tree has another root".into());
    }
    if let Some([a, b]) =
        own.iter().find(|[a, b]| (at(*a) == usize::MAX) != (at(*b) == usize::MAX) || at(*a).abs_diff(at(*b)) > 1)
    {
        return Err(format!("the levels of the edge from {a} to {b} are not next to each other").into());
    }
    let reached = (0..vertices as u64).filter(|v| place(*v).0 == me && parent(*v) != NONE && *v != root);
    for vertex in reached {
        if at(vertex) != at(parent(vertex)) + 1 || !neighbors[place(vertex).1].contains(&parent(vertex)) {
            return Err(format!("the edge from {vertex} to its parent is not of the graph, or not one level up").into());
        }
    }
    let mut edges = [own.iter().filter(|[a, _]| at(*a) != usize::MAX).count()];
    team.allreduce(&mut edges, Op::Sum)?;
    if me == 0 {
        let rate = edges[0] as f64 / time.as_secs_f64().max(1e-9) / 1e6;
        println!("{} edges of the component of vertex {root}: {rate:.2} million a second", edges[0]);
    }
    Ok(())
}
