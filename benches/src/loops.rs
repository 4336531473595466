//! `loops` measures the loops of IMB and OSU by size, with one C program on Farside's MPI library and on others, also
//! on a busy machine.

use clap::{Args, value_parser};
use farside_core::error::Result;

use crate::limits;
use crate::options::{Options, all_libraries, doubles, even, over_verbs};
use crate::plan::Plan;
use crate::record::{Library, Op, Suite};
use crate::session::{Limits, Task};

/// Measures ping-pong, exchange, reduce, allreduce, all-to-all, put, get, accumulate and a chain of PSCW epochs by size
/// on Farside's libmpi_abi (target/release, or `FARSIDE_MPI`), and on MPICH, Intel MPI and Open MPI, which ci/peers has
/// put into FARSIDE_PEERS or target/peers, and, for comparison, a memcpy of as many bytes; writes a table, JSON, and
/// HTML with plots.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Number of processes that spin in addition to the ranks.
    #[arg(long, default_value_t = 0, value_parser = value_parser!(u32).range(0..=1024))]
    busy: u32,
    /// Job sizes (ranks) to measure, each even.
    #[arg(long, value_delimiter = ',', default_value = "2", value_parser = even)]
    ranks: Vec<u32>,
    /// Bytes, ascending: multiples of 8.
    #[arg(long, value_delimiter = ',', default_value = "8,64,512,4096,16384,65536,262144,1048576,4194304", value_parser = doubles)]
    sizes: Vec<u64>,
    /// Operations to measure; by default all.
    #[arg(long, value_delimiter = ',')]
    operations: Vec<Op>,
    /// Libraries to measure; by default all.
    #[arg(long, value_delimiter = ',')]
    libraries: Vec<Library>,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<bool> {
        let mut libraries = all_libraries();
        libraries.retain(|library| self.libraries.is_empty() || self.libraries.contains(library));
        let plan = Plan {
            quick: self.options.quick,
            suites: vec![Suite::Loops],
            sizes: self.sizes.clone(),
            operations: self.operations,
            ..Plan::default()
        };
        // On a busy machine, a copy would be measured under another load than the ranks were.
        let is_limited = self.busy == 0 && !over_verbs();
        let task = Task {
            title: format!("Farside: loops by size, {} busy processes", self.busy),
            plans: self.ranks.iter().map(|ranks| Plan { ranks: *ranks, ..plan.clone() }).collect(),
            libraries,
            limits: is_limited.then_some((limits::measure as Limits, self.sizes)),
            environment: vec![("FARSIDE_PEERS_BUSY", self.busy.to_string())],
        };
        task.run("loops", &self.options, |_| Vec::new())
    }
}
