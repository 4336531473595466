//! Transposes a matrix that is distributed over all ranks: each rank gets the elements of its block of the result.
//!
//!     farside run -n 4 target/release/examples/transpose --rows 3000 --columns 2000

#[path = "common/program.rs"]
mod program;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use farside_rma::prelude::*;
use program::{Outcome, run};

/// Transposes a distributed matrix and checks every element.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Rows of the matrix.
    #[arg(long, default_value_t = 700)]
    rows: usize,
    /// Columns of the matrix.
    #[arg(long, default_value_t = 500)]
    columns: usize,
    /// Number of times that the matrix is transposed.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    turns: u32,
}

fn main() -> ExitCode {
    let options = Options::parse();
    run(|job| measure(job, &options))
}

fn measure(job: &Job, options: &Options) -> Outcome {
    let team = job.world()?;
    let (rows, columns) = (options.rows, options.columns);
    let matrix = GlobalArray::<f64, 2>::new(&team, [rows, columns])?;
    let transposed = GlobalArray::<f64, 2>::new(&team, [columns, rows])?;
    let value = |row: usize, column: usize| (row * columns + column) as f64;
    matrix.with_local(|mut view| -> Result<()> {
        let Section { start, .. } = view.section();
        for (row, elements) in (start[0]..).zip(view.rows_mut()) {
            elements.iter_mut().zip(start[1]..).for_each(|(element, column)| *element = value(row, column));
        }
        Ok(())
    })?;
    matrix.sync()?;

    let start = Instant::now();
    for _ in 0..options.turns {
        transpose(&matrix, &transposed)?;
        transposed.sync()?;
    }
    let time = start.elapsed() / options.turns;

    transposed.with_local(|view| -> Outcome {
        let Section { start, .. } = view.section();
        for (column, elements) in (start[0]..).zip(view.rows()) {
            for (element, row) in elements.iter().zip(start[1]..) {
                check([column, row], *element, value(row, column))?;
            }
        }
        Ok(())
    })?;
    // Every rank also gets the corners, which most ranks do not own.
    let (last_row, last_column) = (rows.checked_sub(1), columns.checked_sub(1));
    for (row, column) in last_row.zip(last_column).into_iter().flat_map(|(r, c)| [(0, 0), (0, c), (r, 0), (r, c)]) {
        check([column, row], transposed.get_element([column, row])?, value(row, column))?;
    }
    if team.rank() == 0 {
        let rate = (rows * columns * size_of::<f64>()) as f64 / time.as_secs_f64().max(1e-9) / 1e9;
        println!(
            "{rows} x {columns} on {:?} ranks to {columns} x {rows} on {:?} ranks",
            matrix.grid(),
            transposed.grid()
        );
        println!("{time:.2?} each time, {rate:.2} GB/s; every element is right");
    }
    transposed.free()?;
    Ok(matrix.free()?)
}

/// Gets the elements of this rank's block of `transposed` from `matrix` and stores them transposed.
fn transpose(matrix: &GlobalArray<f64, 2>, transposed: &GlobalArray<f64, 2>) -> Result<()> {
    let block = transposed.owned(transposed.team().rank())?;
    let [height, _] = block.shape();
    let mut source = vec![0.0; block.len()];
    matrix.get((block.start[1]..block.end[1], block.start[0]..block.end[0]), &mut source)?;
    transposed.with_local(|mut view| {
        for (r, row) in view.rows_mut().enumerate() {
            for (c, element) in row.iter_mut().enumerate() {
                *element = source[c * height + r];
            }
        }
        Ok(())
    })
}

fn check(index: [usize; 2], found: f64, expected: f64) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("element {index:?} is {found}, {expected} expected")) }
}
