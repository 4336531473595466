//! Breadth-first search of a graph whose vertices are spread over all ranks: a visit is a remote call, and a level ends when
//! all calls everywhere have run.
//!
//!     farside run -n 4 target/release/examples/graph_search --vertices 100000

#[path = "common/program.rs"]
mod program;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::process::ExitCode;
use std::rc::Rc;

use clap::Parser;
use farside_rma::calls::Calls;
use farside_rma::prelude::*;
use program::{Outcome, numbers, run};

/// Searches a random graph.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Number of vertices.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    vertices: u64,
    /// Edges that leave a vertex.
    #[arg(long, default_value_t = 3)]
    degree: usize,
}

fn neighbors(vertex: u64, options: &Options) -> impl Iterator<Item = u64> {
    numbers(vertex as usize).take(options.degree).map(|x| x % options.vertices)
}

fn main() -> ExitCode {
    let options = Options::parse();
    run(|job| search(job, &options))
}

fn search(job: &Job, options: &Options) -> Outcome {
    let team = job.world()?;
    let (ranks, me) = (team.size() as u64, team.rank() as u64);
    let calls = Calls::new(&team)?;
    // The level of each of this rank's vertices, and those of them from which the next level starts.
    let own = options.vertices.div_ceil(ranks) as usize;
    let found = Rc::new(RefCell::new((vec![None::<u32>; own], Vec::new())));
    let visited = Rc::clone(&found);
    let visit = calls.register_short(move |_, (vertex, level): (u64, u32)| {
        let (levels, next) = &mut *visited.borrow_mut();
        let known = &mut levels[(vertex / ranks) as usize];
        if known.is_none() {
            *known = Some(level);
            next.push(vertex);
        }
    })?;

    if me == 0 {
        calls.cast(0, visit, (0, 0))?;
    }
    let mut level = 0;
    loop {
        calls.quiesce()?;
        let from = std::mem::take(&mut found.borrow_mut().1);
        let mut active = [from.len() as u64];
        team.allreduce(&mut active, Op::Sum)?;
        if active[0] == 0 {
            break;
        }
        level += 1;
        for vertex in from.into_iter().flat_map(|vertex| neighbors(vertex, options)) {
            calls.cast((vertex % ranks) as usize, visit, (vertex, level))?;
        }
    }

    let mut serial = vec![None; options.vertices as usize];
    let mut queue = VecDeque::from([(0, 0)]);
    while let Some((vertex, level)) = queue.pop_front() {
        if serial[vertex as usize].is_none() {
            serial[vertex as usize] = Some(level);
            queue.extend(neighbors(vertex, options).map(|next| (next, level + 1)));
        }
    }
    let wrong = (me..options.vertices)
        .step_by(team.size())
        .find(|v| found.borrow().0[(v / ranks) as usize] != serial[*v as usize]);
    if let Some(vertex) = wrong {
        return Err(format!("vertex {vertex} has another level than on one rank").into());
    }
    if me == 0 {
        println!("{} of {} vertices reached in {level} levels", serial.iter().flatten().count(), options.vertices);
    }
    Ok(calls.free()?)
}
