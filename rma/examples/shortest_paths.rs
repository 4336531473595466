//! Shortest paths from one vertex of a graph whose vertices are spread over all ranks. A record has a vertex and the length of a
//! path to it; a path that is shorter than the one known goes on to the neighbors, until no record is left anywhere.
//!
//!     farside run -n 4 target/release/examples/shortest_paths --vertices 100000

#[path = "common/program.rs"]
mod program;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use farside_rma::aggregate::Conveyor;
use farside_rma::prelude::*;
use program::{Outcome, numbers, run};

/// Finds the shortest paths from vertex 0 of a random graph.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Number of vertices.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    vertices: u64,
    /// Edges that leave a vertex.
    #[arg(long, default_value_t = 4)]
    degree: usize,
}

const UNKNOWN: u64 = u64::MAX;

fn main() -> ExitCode {
    let options = Options::parse();
    run(|job| search(job, &options))
}

/// The edges that leave a vertex: their other ends, and their lengths.
fn edges(vertex: u64, options: &Options) -> impl Iterator<Item = (u64, u64)> {
    numbers(vertex as usize).take(options.degree).map(|x| (x % options.vertices, 1 + (x >> 56)))
}

fn search(job: &Job, options: &Options) -> Outcome {
    let team = job.world()?;
    let (ranks, me) = (team.size(), team.rank());
    let mut known = vec![UNKNOWN; options.vertices.div_ceil(ranks as u64) as usize];
    team.barrier()?;
    let start = Instant::now();
    let mut conveyor = Conveyor::<[u64; 2]>::new(&team)?;
    let mut records = [0u64];
    conveyor.drive((me == 0).then_some((0, [0, 0])), |outbox, _, [vertex, length]| {
        records[0] += 1;
        let shortest = &mut known[vertex as usize / ranks];
        if length < *shortest {
            *shortest = length;
            edges(vertex, options).for_each(|(to, more)| outbox.push(to as usize % ranks, [to, length + more]));
        }
    })?;
    let time = start.elapsed();
    conveyor.free()?;

    // Dijkstra's algorithm on one rank.
    let mut serial = vec![UNKNOWN; options.vertices as usize];
    let mut heap = BinaryHeap::from([Reverse((0, 0))]);
    while let Some(Reverse((length, vertex))) = heap.pop() {
        if length < serial[vertex as usize] {
            serial[vertex as usize] = length;
            heap.extend(edges(vertex, options).map(|(to, more)| Reverse((length + more, to))));
        }
    }
    let mut own = (me..serial.len()).step_by(ranks);
    if let Some(vertex) = own.find(|vertex| known[vertex / ranks] != serial[*vertex]) {
        return Err(format!("the path to vertex {vertex} has another length than on one rank").into());
    }
    team.allreduce(&mut records, Op::Sum)?;
    if me == 0 {
        let reached = serial.iter().filter(|length| **length != UNKNOWN).count();
        println!("{reached} of {} vertices reached, {} records in {time:.2?}", options.vertices, records[0]);
    }
    Ok(())
}
