//! `pgas`: one rank of the measurements of `farside_benches::pgas`, which `benches/pgas/run` starts with `farside run`.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, value_parser};
use farside_benches::pgas::{Meter, Part, arrays, fourier, operations, tables};
use farside_benches::{cores, program};
use farside_core::Job;
use farside_core::error::{ErrorKind, Result};

/// Measures the Rust interface; rank 0 prints a line for each figure: operation, number, and microseconds (operations,
/// arrays), millions a second (tables) or thousands a second (Fourier transforms). Runs under `farside run`, with an even
/// number of ranks.
#[derive(Parser)]
struct Arguments {
    /// The parts to measure; all unless given.
    #[arg(long, value_enum, value_delimiter = ',')]
    parts: Vec<Part>,
    /// Milliseconds of a block of operations; a figure is the median of five.
    #[arg(long, default_value_t = 20, value_parser = value_parser!(u64).range(1..=10_000))]
    block_ms: u64,
    /// Elements of the table at each rank: 2 to this power.
    #[arg(long, default_value_t = 18, value_parser = value_parser!(u32).range(1..=28))]
    table_bits: u32,
    /// Sizes of pictures, powers of two.
    #[arg(long, value_delimiter = ',', default_values_t = fourier::SIZES)]
    pictures: Vec<usize>,
}

fn run(arguments: &Arguments) -> Result<bool> {
    let job = Job::init()?;
    // Bound after the start, which counts the cores.
    cores::bind_to_nth(job.rank() % cores::allowed().len())?;
    let team = job.world()?;
    if !team.size().is_multiple_of(2) || arguments.pictures.iter().any(|size| !size.is_power_of_two()) {
        eprintln!("pgas: the number of ranks is even, and sizes of pictures are powers of two");
        return Ok(false);
    }
    let meter = Meter { team: &team, block: Duration::from_millis(arguments.block_ms) };
    let wanted = |part| arguments.parts.is_empty() || arguments.parts.contains(&part);
    let measured = || -> Result<()> {
        if wanted(Part::Operations) {
            operations::measure(&meter)?;
        }
        if wanted(Part::Tables) {
            tables::measure(&meter, 1 << arguments.table_bits)?;
        }
        if wanted(Part::Arrays) {
            arrays::measure(&meter, &arrays::SHAPES)?;
        }
        if wanted(Part::Fourier) {
            fourier::measure(&meter, &arguments.pictures)?;
        }
        Ok(())
    };
    let measured = measured();
    if let Err(error) = &measured
        && error.kind() == ErrorKind::Protocol
    {
        job.abort(3, &error.to_string());
    }
    measured?;
    job.finalize().map(|()| true)
}

fn main() -> ExitCode {
    program(|arguments: Arguments| run(&arguments))
}
