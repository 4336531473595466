//! A sparse matrix times a vector, again and again: each rank has some rows, and gets the elements of the vector that its
//! columns name by one gather of indices.
//!
//!     farside run -n 4 target/release/examples/sparse_matrix --rows 100000

#[path = "common/program.rs"]
mod program;

use std::process::ExitCode;

use clap::Parser;
use farside_rma::prelude::*;
use program::{Outcome, numbers, run};

/// Multiplies a random sparse matrix by a vector.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Rows and columns of the matrix.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    rows: u64,
    /// Elements of a row that are not zero.
    #[arg(long, default_value_t = 5)]
    per_row: usize,
    /// Multiplications.
    #[arg(long, default_value_t = 3)]
    times: usize,
}

/// The columns and values of a row. Small integers, so that results are exact.
fn row(number: usize, options: &Options) -> Vec<(usize, i64)> {
    let entry = |x: u64| ((x % options.rows) as usize, (x >> 40) as i64 % 7 - 3);
    numbers(number).take(options.per_row).map(entry).collect()
}

fn times(row: &[(usize, i64)], vector: impl Fn(usize, usize) -> i64) -> i64 {
    // Reduced, so that many multiplications do not overflow.
    row.iter().enumerate().map(|(k, (column, value))| value * vector(k, *column)).sum::<i64>() % 1_000_003
}

fn main() -> ExitCode {
    let options = Options::parse();
    run(|job| multiply(job, &options))
}

fn multiply(job: &Job, options: &Options) -> Outcome {
    let (team, n) = (job.world()?, options.rows as usize);
    let vector = GlobalArray::<i64, 1>::new(&team, [n])?;
    vector.for_each(|[i], x| *x = i as i64 + 1)?;
    vector.sync()?;
    let own = vector.owned(team.rank())?;
    let rows: Vec<_> = (own.start[0]..own.end[0]).map(|number| row(number, options)).collect();
    let columns: Vec<[usize; 1]> = rows.iter().flatten().map(|(column, _)| [*column]).collect();

    for _ in 0..options.times {
        let values = vector.gather(&columns)?;
        let product: Vec<i64> =
            (rows.iter().enumerate()).map(|(i, row)| times(row, |k, _| values[i * options.per_row + k])).collect();
        vector.sync()?;
        vector.put(own, &product)?;
        vector.sync()?;
    }

    // The same on one rank.
    let mut serial: Vec<i64> = (1..=n as i64).collect();
    for _ in 0..options.times {
        serial = (0..n).map(|number| times(&row(number, options), |_, column| serial[column])).collect();
    }
    let mut all = vec![0; n];
    vector.get(0..n, &mut all)?;
    if all != serial {
        return Err("the product differs from that of one rank".into());
    }
    if team.rank() == 0 {
        println!("{} products of a matrix of {n} rows: right", options.times);
    }
    team.barrier()?;
    Ok(vector.free()?)
}
