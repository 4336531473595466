//! `cpu-time`: the processor time of ranks that wait for one that sleeps.

use std::process::ExitCode;

use clap::{Parser, value_parser};
use farside_benches::{program, waiting};

/// Lets rank 0 sleep while all others wait for it, and prints the processor time that they spend meanwhile.
#[derive(Parser)]
struct Arguments {
    /// Numbers of ranks.
    #[arg(long, value_delimiter = ',', default_value = "2,8", value_parser = value_parser!(u32).range(2..=1024))]
    ranks: Vec<u32>,
    /// Milliseconds that rank 0 sleeps.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = value_parser!(u64).range(1..=60_000))]
    sleep_ms: u64,
}

fn main() -> ExitCode {
    program(|Arguments { ranks, sleep_ms }| {
        ranks.into_iter().try_for_each(|ranks| waiting::drive(ranks, sleep_ms)).map(|()| true)
    })
}
