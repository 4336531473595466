//! Transposes a sparse matrix whose rows are spread over all ranks: each element goes to the rank that has its column.
//!
//!     farside run -n 4 target/release/examples/sparse_transpose --rows 100000

#[path = "common/program.rs"]
mod program;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use farside_rma::aggregate::Conveyor;
use farside_rma::prelude::*;
use program::{Outcome, numbers, run};

/// Transposes a random sparse matrix.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Rows, and columns, of the matrix.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    rows: u64,
    /// Elements of a row.
    #[arg(long, default_value_t = 10)]
    elements: usize,
}

/// Row, column and value of an element.
type Element = [u64; 3];

fn main() -> ExitCode {
    let options = Options::parse();
    run(|job| transpose(job, &options))
}

/// The elements of a row.
fn row(row: u64, options: &Options) -> Vec<Element> {
    let rows = options.rows;
    let mut all: Vec<_> = numbers(row as usize).take(options.elements).map(|x| [row, x % rows, x >> 50]).collect();
    all.sort_unstable();
    all.dedup_by_key(|one| one[1]);
    all
}

fn transpose(job: &Job, options: &Options) -> Outcome {
    let team = job.world()?;
    let (ranks, me) = (team.size(), team.rank());
    let rows: Vec<Element> = (me as u64..options.rows).step_by(ranks).flat_map(|i| row(i, options)).collect();

    team.barrier()?;
    let start = Instant::now();
    // Row `i` of the result is at the rank that had row `i` of the matrix.
    let mut columns = vec![Vec::new(); options.rows.div_ceil(ranks as u64) as usize];
    let mut conveyor = Conveyor::<Element>::new(&team)?;
    let moved = rows.iter().map(|[i, j, value]| (*j as usize % ranks, [*j, *i, *value]));
    conveyor.drive(moved, |_, _, [i, j, value]| columns[i as usize / ranks].push((j, value)))?;
    columns.iter_mut().for_each(|column| column.sort_unstable());
    let time = start.elapsed();
    conveyor.free()?;

    let mut expected = vec![Vec::new(); columns.len()];
    for [i, j, value] in (0..options.rows).flat_map(|i| row(i, options)).filter(|one| one[1] as usize % ranks == me) {
        expected[j as usize / ranks].push((i, value));
    }
    if columns != expected {
        return Err("a column is not that of a serial transposition".into());
    }
    let mut elements = [rows.len() as u64];
    team.allreduce(&mut elements, Op::Sum)?;
    if me == 0 {
        println!(
            "{} elements: {:.2} million a second",
            elements[0],
            elements[0] as f64 / time.as_secs_f64().max(1e-9) / 1e6
        );
    }
    Ok(())
}
