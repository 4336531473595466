//! Topological sort, as in bale: a sparse triangular matrix whose rows and columns have been permuted gets an order in which it
//! is triangular again. A row with one element left is placed, with the column of that element; the rank of the column tells
//! its other rows, of which some then have one element left.
//!
//!     farside run -n 4 target/release/examples/topological_sort --rows 100000

#[path = "common/program.rs"]
mod program;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use farside_rma::aggregate::Conveyor;
use farside_rma::prelude::*;
use program::{Outcome, numbers, run};

/// Sorts a permuted triangular matrix.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Rows, and columns, of the matrix.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    rows: u64,
    /// Elements of a row besides that on the diagonal, at most.
    #[arg(long, default_value_t = 4)]
    elements: usize,
}

fn main() -> ExitCode {
    let options = Options::parse();
    run(|job| sort(job, &options))
}

/// The kinds of records, each with a row and a column.
const ELEMENT: u64 = 0;
const PLACED: u64 = 1;
const LEFT_OUT: u64 = 2;
/// The level of a row or column that has no place yet.
const NONE: u64 = u64::MAX;

/// The places of rows or columns: the numbers below `n` in a random order.
fn permutation(n: u64, seed: usize) -> Vec<u64> {
    let mut all: Vec<u64> = (0..n).collect();
    numbers(seed).zip((1..n).rev()).for_each(|(x, at)| all.swap(at as usize, (x % (at + 1)) as usize));
    all
}

/// The columns of a row of the triangular matrix: the diagonal, and some after it.
fn columns(row: u64, options: &Options) -> Vec<u64> {
    let after = options.rows - row - 1;
    let drawn = numbers(row as usize).take(if after > 0 { options.elements } else { 0 });
    let mut all: Vec<u64> = drawn.map(|x| row + 1 + x % after).chain([row]).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn sort(job: &Job, options: &Options) -> Outcome {
    let team = job.world()?;
    let (ranks, me, n) = (team.size(), team.rank(), options.rows);
    let (row_of, column_of) = (permutation(n, 1), permutation(n, 2));
    let place = |index: u64| (index as usize % ranks, index as usize / ranks);
    let own = (0..n).filter(|row| place(row_of[*row as usize]).0 == me);
    let elements: Vec<[u64; 2]> = own
        .flat_map(|row| columns(row, options).into_iter().map(move |column| [row, column]))
        .map(|[row, column]| [row_of[row as usize], column_of[column as usize]])
        .collect();

    team.barrier()?;
    let start = Instant::now();
    let local = n.div_ceil(ranks as u64) as usize;
    let (mut rows, mut rows_of_columns) = (vec![Vec::new(); local], vec![Vec::new(); local]);
    elements.iter().for_each(|[row, column]| rows[place(*row).1].push(*column));
    let mut conveyor = Conveyor::<[u64; 3]>::new(&team)?;
    let told = elements.iter().map(|[row, column]| (place(*column).0, [ELEMENT, *row, *column]));
    conveyor.drive(told, |_, _, [_, row, column]| rows_of_columns[place(column).1].push(row))?;
    // All rows with one element left get their places at the same level.
    let (mut level, mut left) = (0, n);
    let (mut row_levels, mut column_levels) = (vec![NONE; local], vec![NONE; local]);
    while left > 0 {
        let ready: Vec<usize> = (0..local).filter(|at| rows[*at].len() == 1).collect();
        ready.iter().for_each(|at| row_levels[*at] = level);
        let placed: Vec<u64> = ready.iter().filter_map(|at| rows[*at].pop()).collect();
        conveyor.drive(placed.iter().map(|c| (place(*c).0, [PLACED, 0, *c])), |outbox, _, [kind, row, column]| {
            if kind == LEFT_OUT {
                rows[place(row).1].retain(|other| *other != column);
                return;
            }
            column_levels[place(column).1] = level;
            let others = &rows_of_columns[place(column).1];
            others.iter().for_each(|row| outbox.push(place(*row).0, [LEFT_OUT, *row, column]));
        })?;
        let mut count = [placed.len() as u64];
        team.allreduce(&mut count, Op::Sum)?;
        if count == [0] {
            return Err("no row has one element left".into());
        }
        (left, level) = (left - count[0], level + 1);
    }
    let time = start.elapsed();
    conveyor.free()?;

    // With the rows and columns of the last level first, each row's elements are those of its own column and later ones.
    let (mut rows, mut columns) = (vec![0; ranks * local], vec![0; ranks * local]);
    team.allgather(&row_levels, &mut rows)?;
    team.allgather(&column_levels, &mut columns)?;
    let at = |index: u64| place(index).0 * local + place(index).1;
    let is_wrong = |[row, column]: &[u64; 2]| columns[at(*column)] > rows[at(*row)];
    let sizes =
        |levels: &[u64]| (0..level).map(|one| levels.iter().filter(|of| **of == one).count()).collect::<Vec<_>>();
    if elements.iter().any(is_wrong) || sizes(&rows) != sizes(&columns) || (0..n).any(|row| rows[at(row)] == NONE) {
        return Err("the matrix is not triangular in the order that was found".into());
    }
    if me == 0 {
        println!("{n} rows in {level} levels: {time:.2?}");
    }
    Ok(())
}
