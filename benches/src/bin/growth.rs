//! `growth`: queue pairs, registered memory and start-up packets of a rank over verbs as the number of ranks grows.

use std::process::ExitCode;

use clap::{Parser, value_parser};
use farside_benches::growth::{Growth, display, measure, memory_holds};
use farside_benches::program;
use farside_core::error::Result;

/// Counts what a rank over verbs holds and sends, beside the formulas; fails if one differs. Runs where RDMA devices
/// count their packets, as in the emulated machine of ci/rxe.
#[derive(Parser)]
struct Arguments {
    /// Numbers of ranks.
    #[arg(long, value_delimiter = ',', default_value = "1,2,3,4,6,8,12,16", value_parser = value_parser!(u32).range(1..=64))]
    ranks: Vec<u32>,
}

fn main() -> ExitCode {
    program(|arguments: Arguments| {
        let all = arguments.ranks.into_iter().map(measure).collect::<Result<Vec<_>>>()?;
        println!("{}", display(&all));
        Ok(all.iter().all(Growth::holds) && memory_holds(&all))
    })
}
