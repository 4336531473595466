//! `schemes`: transfers between strided layouts over verbs by each scheme, and the cut-offs that follow.

use std::process::ExitCode;

use clap::{Parser, value_parser};
use farside_benches::{program, schemes};

/// Puts columns of a matrix of ints, and messages of some blocks, by every scheme, and block diagonals by lists with
/// layouts that are known or not; two ranks of this process, by the device of the settings.
#[derive(Parser)]
struct Arguments {
    /// Measure each so often; the best counts.
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Fewer shapes.
    #[arg(long)]
    quick: bool,
}

fn main() -> ExitCode {
    program(|arguments: Arguments| schemes::report(arguments.rounds, arguments.quick).map(|()| true))
}
