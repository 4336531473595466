//! Counts the triangles of a graph whose vertices are spread over all ranks: for each two lower neighbors of a vertex, the rank
//! of the higher of the two is asked whether they are neighbors, by a record that needs no answer.
//!
//!     farside run -n 4 target/release/examples/triangles --vertices 20000

#[path = "common/program.rs"]
mod program;

use std::collections::HashSet;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use farside_rma::aggregate::Conveyor;
use farside_rma::prelude::*;
use program::{Outcome, numbers, run};

/// Counts the triangles of a random graph.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Number of vertices.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    vertices: u64,
    /// Edges from a vertex to lower ones, at most.
    #[arg(long, default_value_t = 12)]
    degree: usize,
}

fn main() -> ExitCode {
    let options = Options::parse();
    run(|job| count(job, &options))
}

/// The lower neighbors of a vertex, in order. Half of the edges are to near vertices, so that there are triangles.
fn lower(vertex: u64, options: &Options) -> Vec<u64> {
    let drawn = numbers(vertex as usize).take(options.degree).filter(|_| vertex > 0);
    let mut all: Vec<u64> =
        drawn.map(|x| if x >> 63 == 0 { x % vertex } else { vertex - 1 - x % 16.min(vertex) }).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Pairs of lower neighbors of a vertex, the higher one first.
fn pairs(neighbors: &[u64]) -> impl Iterator<Item = [u64; 2]> {
    (0..neighbors.len()).flat_map(move |i| neighbors[..i].iter().map(move |low| [neighbors[i], *low]))
}

fn count(job: &Job, options: &Options) -> Outcome {
    let team = job.world()?;
    let (ranks, me) = (team.size(), team.rank());
    let own: Vec<Vec<u64>> = (me as u64..options.vertices).step_by(ranks).map(|v| lower(v, options)).collect();

    team.barrier()?;
    let start = Instant::now();
    let mut conveyor = Conveyor::<[u64; 2]>::new(&team)?;
    let asked = own.iter().flat_map(|neighbors| pairs(neighbors)).map(|pair| (pair[0] as usize % ranks, pair));
    let mut found = [0u64];
    conveyor.drive(asked, |_, _, [high, low]| {
        found[0] += u64::from(own[high as usize / ranks].binary_search(&low).is_ok());
    })?;
    team.allreduce(&mut found, Op::Sum)?;
    let time = start.elapsed();
    conveyor.free()?;

    let edges: HashSet<[u64; 2]> =
        (0..options.vertices).flat_map(|v| lower(v, options).into_iter().map(move |low| [v, low])).collect();
    let is_triangle = |pair: &[u64; 2]| edges.contains(pair);
    let serial = (0..options.vertices).map(|v| pairs(&lower(v, options)).filter(is_triangle).count()).sum::<usize>();
    if found != [serial as u64] {
        return Err(format!("{} triangles, {serial} on one rank", found[0]).into());
    }
    if me == 0 {
        println!("{serial} triangles of {} edges in {time:.2?}", edges.len());
    }
    Ok(())
}
