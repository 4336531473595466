//! `limits`: measures the floors of this machine and prints them as JSON lines.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use farside_benches::limits;
use farside_core::error::{Error, Result};

/// Measures what no library can go below on this machine: a cache line between two cores, an atomic, a copy.
#[derive(Parser)]
struct Arguments {
    /// Bytes of the copies.
    #[arg(long, value_delimiter = ',', default_value = "8,64,1024,8192,65536,1048576")]
    sizes: Vec<u64>,
}

fn run(arguments: &Arguments) -> Result<()> {
    let (records, failed) = limits::measure(&arguments.sizes)?;
    let mut out = std::io::stdout().lock();
    for record in records {
        writeln!(out, "{}", record.line()).map_err(|error| Error::system("write the limits", error))?;
    }
    failed.map_or(Ok(()), Err)
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("limits: {error}");
            ExitCode::FAILURE
        }
    }
}
