//! `messages`: how many messages and bytes each synchronization call sends, counted beside the formula.

use std::process::ExitCode;

use clap::{Parser, value_parser};
use farside_benches::messages::{RANKS, all, display};
use farside_benches::program;

/// Counts what every synchronization call sends, by ranks P and neighbours k, on windows that are mapped and on windows
/// that are not, and compares it with the formula. Fails if one differs.
#[derive(Parser)]
struct Arguments {
    /// Numbers of ranks.
    #[arg(long, value_delimiter = ',', default_values_t = RANKS, value_parser = value_parser!(u32).range(2..=64))]
    ranks: Vec<u32>,
    /// Numbers of neighbours, for each number of ranks those below it; 1 and P - 1 unless given.
    #[arg(long, value_delimiter = ',')]
    neighbours: Vec<usize>,
}

fn main() -> ExitCode {
    program(|arguments: Arguments| {
        let rows = all(&arguments.ranks, &arguments.neighbours)?;
        let equal = rows.iter().filter(|row| row.holds()).count();
        println!("{}\n{equal} of {} rows equal the formula on every rank", display(&rows), rows.len());
        Ok(equal == rows.len())
    })
}
