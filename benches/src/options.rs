//! Common arguments of several benchmarks.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, value_parser};

use crate::record::Library;

/// The extent of the measurements, and the output files.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Fewer sizes, and shorter measurements.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Number of times that everything is measured, the libraries in turn; the default is 1, for `two-sided` 3. The
    /// report contains the best value of each measurement of every library, but the median of the ratios for
    /// `sync-overhead`.
    #[arg(long, value_parser = value_parser!(u32).range(1..=100))]
    pub(crate) rounds: Option<u32>,
    #[command(flatten)]
    pub(crate) limit: TimeLimit,
    /// File for the records as JSON; the default is out/BENCHMARK.json.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// File for the report; the default is out/BENCHMARK.html.
    #[arg(long, visible_alias = "page", value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// The limit of a single run of a library.
#[derive(Args, Clone, Debug)]
pub(crate) struct TimeLimit {
    /// Seconds that one library may take for one suite, operation or layout.
    #[arg(long, value_name = "SECS", default_value_t = 300, value_parser = value_parser!(u64).range(1..=86_400))]
    time_limit: u64,
}

impl TimeLimit {
    pub(crate) fn duration(&self) -> Duration {
        Duration::from_secs(self.time_limit)
    }
}

/// The libraries that are measured.
#[derive(Args, Clone, Debug)]
pub(crate) struct Libraries {
    /// Also measure MPICH, Intel MPI and Open MPI, which ci/peers has put into FARSIDE_PEERS or target/peers; over verbs
    /// Debian's MPICH and Open MPI, which ci/peers --verbs has installed.
    #[arg(long)]
    pub(crate) peers: bool,
}

impl Libraries {
    /// Farside first.
    pub(crate) fn list(&self) -> Vec<Library> {
        all_libraries().into_iter().filter(|library| self.peers || *library == Library::Farside).collect()
    }
}

/// Farside and its peers; over verbs only Debian's two packages, which support RDMA devices.
pub(crate) fn all_libraries() -> Vec<Library> {
    let peers = if over_verbs() { &[Library::Mpich, Library::OpenMpi] } else { Library::PEERS };
    [&[Library::Farside], peers].concat()
}

fn number<T: FromStr<Err: ToString>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// Parses a number of ranks that form pairs.
pub(crate) fn even(text: &str) -> Result<u32, String> {
    let ranks = number(text)?;
    if (2..=1024).contains(&ranks) && ranks % 2 == 0 {
        Ok(ranks)
    } else {
        Err("not an even number from 2 to 1024".to_owned())
    }
}

/// Parses a number of bytes of doubles.
pub(crate) fn doubles(text: &str) -> Result<u64, String> {
    let bytes = number(text)?;
    let is_right = (8..=1 << 26).contains(&bytes) && bytes % 8 == 0;
    if is_right { Ok(bytes) } else { Err("not a multiple of 8 from 8 bytes to 64 MiB".to_owned()) }
}

/// Whether the ranks reach each other over RDMA devices only.
pub(crate) fn over_verbs() -> bool {
    std::env::var("FARSIDE_DEVICE").is_ok_and(|device| device == "verbs")
}

/// Whether the ranks reach each other over TCP only.
pub(crate) fn over_tcp() -> bool {
    std::env::var("FARSIDE_DEVICE").is_ok_and(|device| device == "tcp")
}
