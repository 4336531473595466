//! Heat on a square plate: a two-dimensional stencil whose ranks exchange ghost cells in four ways.
//!
//!     farside run -n 4 target/release/examples/heat_stencil --size 600 --steps 400
//!
//! The plate is a grid of blocks, one for each rank. Each step, a rank gives the outermost cells of its block to its
//! neighbours and then computes the next temperatures. The result of each version is compared, bit by bit, with that
//! of one block computed by rank 0 alone, and written as a picture.

mod am;
mod block;
mod exchange;
mod fence;
mod lock;
#[path = "../common/png.rs"]
mod png_file;
#[path = "../common/program.rs"]
mod program;
mod pscw;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use block::Block;
use clap::{Parser, ValueEnum};
use exchange::Exchange;
use farside_rma::prelude::*;
use program::{Outcome, run};

/// Heat on a square plate, with ghost cells exchanged by one-sided communication.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Version of the exchange of ghosts.
    #[arg(long, value_enum, default_value = "all")]
    version: Version,
    /// Cells on each side of the plate.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=16384))]
    size: u32,
    /// Number of steps.
    #[arg(long, default_value_t = 300)]
    steps: u64,
    /// Folder for the pictures; created if it does not exist.
    #[arg(long, default_value = "out")]
    out: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Version {
    Fence,
    Pscw,
    Lock,
    Am,
    /// All versions, one after the other.
    All,
}

impl Version {
    fn name(self) -> &'static str {
        match self {
            Version::Fence => "fence",
            Version::Pscw => "pscw",
            Version::Lock => "lock",
            Version::Am => "am",
            Version::All => "all",
        }
    }

    /// Starts the version's exchange. Collective.
    fn exchange(self, plate: &GlobalArray<f64, 2>) -> Result<Box<dyn Exchange>> {
        Ok(match self {
            Version::Fence | Version::All => Box::new(fence::Fence::new(plate)?),
            Version::Pscw => Box::new(pscw::Pscw::new(plate)?),
            Version::Lock => Box::new(lock::Lock::new(plate)?),
            Version::Am => Box::new(am::ActiveMessages::new(plate)?),
        })
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    run(|job| compare(job, &options))
}

fn compare(job: &Job, options: &Options) -> Outcome {
    let team = job.world()?;
    let size = options.size as usize;
    // Only rank 0 computes the whole plate, since only it compares.
    let mut serial = None;
    if team.rank() == 0 {
        std::fs::create_dir_all(&options.out).map_err(|e| format!("{}: {e}", options.out.display()))?;
        let start = Instant::now();
        let mut block = Block::new(Section::whole([size, size]), |row, column| temperature(size, row, column));
        (0..options.steps).for_each(|_| block.step());
        println!("{size} x {size} cells, {} steps; serial: {:.2?} per step", options.steps, per_step(start, options));
        serial = Some(block.cells());
    }
    let versions = [Version::Fence, Version::Pscw, Version::Lock, Version::Am];
    for version in versions.into_iter().filter(|version| [*version, Version::All].contains(&options.version)) {
        let plate = GlobalArray::<f64, 2>::new(&team, [size, size])?;
        let mine = simulate(&plate, version, options)?;
        let mut messages = [mine.messages];
        team.allreduce(&mut messages, Op::Sum)?;
        if let Some(serial) = &serial {
            let mut cells = vec![0.0; size * size];
            plate.get((0..size, 0..size), &mut cells)?;
            same_bits(version, size, &cells, serial)?;
            let path = options.out.join(format!("heat-{}.png", version.name()));
            // The title is the same for every version, so that pictures can be compared byte by byte.
            let title = format!("heat after {} steps", options.steps);
            png_file::heat_picture(&path, &title, options.size, options.size, &cells)
                .map_err(|e| format!("{}: {e}", path.display()))?;
            let all_steps = (options.steps.max(1) * team.size() as u64) as f64;
            println!(
                "{:5} on {} x {} ranks: {:.2?} per step, {:.2} messages per step and rank; same bits as serial, {}",
                version.name(),
                plate.grid()[0],
                plate.grid()[1],
                mine.per_step,
                messages[0] as f64 / all_steps,
                path.display()
            );
        }
        plate.free()?;
    }
    Ok(())
}

/// Measurements of one rank.
struct Measured {
    per_step: Duration,
    messages: u64,
}

/// Computes all steps and leaves the result in `plate`.
fn simulate(plate: &GlobalArray<f64, 2>, version: Version, options: &Options) -> Result<Measured> {
    let team = plate.team();
    let size = options.size as usize;
    let mut block = Block::new(plate.owned(team.rank())?, |row, column| temperature(size, row, column));
    let mut exchange = version.exchange(plate)?;
    team.barrier()?;
    let (start, before) = (Instant::now(), team.job().stats());
    for step in 0..options.steps {
        exchange.exchange(step, &mut block)?;
        block.step();
    }
    let messages = (team.job().stats() - before).messages();
    team.barrier()?;
    let per_step = per_step(start, options);
    exchange.free()?;
    plate.with_local(|mut view| {
        view.elements_mut().copy_from_slice(&block.cells());
        Ok(())
    })?;
    plate.sync()?;
    Ok(Measured { per_step, messages })
}

fn per_step(start: Instant, options: &Options) -> Duration {
    start.elapsed().div_f64(options.steps.max(1) as f64)
}

/// The temperature of a cell at time 0: a disc, a ring and a bar are hot on a cold plate.
fn temperature(size: usize, row: usize, column: usize) -> f64 {
    let [y, x] = [row, column].map(|i| (i as f64 + 0.5) / size as f64);
    let from = |cy: f64, cx: f64| ((y - cy) * (y - cy) + (x - cx) * (x - cx)).sqrt();
    if from(0.3, 0.32) < 0.16 {
        1.0
    } else if (0.17..0.22).contains(&from(0.62, 0.68)) {
        0.8
    } else if (0.8..0.9).contains(&y) && (0.1..0.45).contains(&x) {
        0.6
    } else {
        0.0
    }
}

fn same_bits(version: Version, size: usize, cells: &[f64], serial: &[f64]) -> Outcome {
    let different = |(a, b): (&f64, &f64)| a.to_bits() != b.to_bits();
    match cells.iter().zip(serial).position(different) {
        None => Ok(()),
        Some(at) => Err(format!(
            "{}: row {}, column {} is {}, but {} when computed serially",
            version.name(),
            at / size,
            at % size,
            cells[at],
            serial[at]
        )
        .into()),
    }
}
