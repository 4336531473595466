//! One rank of the measurements, which `benches/pgas/run` starts with `farside run`.

use std::time::Duration;

use clap::{Args, ValueEnum, value_parser};
use farside_core::Job;
use farside_core::error::{Error, ErrorKind, Result};

use super::{Meter, Part, arrays, fourier, operations, tables};
use crate::cores;
use crate::worker::end;

/// Measures the Rust interface; rank 0 prints a line for each figure: operation, number, and microseconds (operations,
/// arrays), millions a second (tables) or thousands a second (Fourier transforms). Runs under `farside run`, with an even
/// number of ranks.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The parts to measure; by default all.
    #[arg(long, value_enum, value_delimiter = ',')]
    parts: Vec<Part>,
    /// Milliseconds of a block of operations; a figure is the median of five.
    #[arg(long, default_value_t = 20, value_parser = value_parser!(u64).range(1..=10_000))]
    block_ms: u64,
    /// Base-2 logarithm of the number of table elements at each rank.
    #[arg(long, default_value_t = 18, value_parser = value_parser!(u32).range(1..=28))]
    table_bits: u32,
    /// Sizes of pictures, powers of two.
    #[arg(long, value_delimiter = ',', default_values_t = fourier::SIZES)]
    pictures: Vec<usize>,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<bool> {
        let job = Job::init()?;
        // The rank is bound to a core only after the start of the job, which counts the available cores.
        cores::bind_to_nth(job.rank() % cores::allowed().len())?;
        let team = job.world()?;
        if !team.size().is_multiple_of(2) || self.pictures.iter().any(|size| !size.is_power_of_two()) {
            let cause = "the number of ranks must be even, and sizes of pictures must be powers of two";
            return Err(Error::new(ErrorKind::BadArgument, "measure").cause(cause));
        }
        let line: &dyn Fn(&str, usize, f64) = &|operation, number, figure| println!("{operation} {number} {figure:.6}");
        let meter = Meter { team: &team, block: Duration::from_millis(self.block_ms), line, flop_ns: 0.0 };
        let measure = |part| match part {
            Part::Operations => operations::measure(&meter),
            Part::Tables => tables::measure(&meter, 1 << self.table_bits),
            Part::Arrays => arrays::measure(&meter, &arrays::SHAPES),
            Part::Fourier => fourier::measure(&meter, &self.pictures),
        };
        let all = Part::value_variants().iter().filter(|part| self.parts.is_empty() || self.parts.contains(part));
        end(&job, all.copied().try_for_each(measure))
    }
}
