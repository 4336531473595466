//! `threads` measures operations of several threads of each of two ranks, with one C program on Farside's MPI library and on
//! others.

use clap::{Args, value_parser};
use farside_core::error::Result;

use crate::options::{Libraries, Options};
use crate::plan::Plan;
use crate::record::Suite;
use crate::session::Task;

/// Measures puts and atomics with a flush each, and messages, that the threads of two ranks issue concurrently, on
/// Farside's libmpi_abi (target/release, or `FARSIDE_MPI`), and with --peers on MPICH, Intel MPI and Open MPI: the time
/// of one operation, over all threads of a rank. Threads run on all cores.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    libraries: Libraries,
    /// Numbers of threads of a rank, ascending.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8", value_parser = value_parser!(u64).range(1..=64))]
    threads: Vec<u64>,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<bool> {
        let plan = Plan {
            quick: self.options.quick,
            suites: vec![Suite::Threads],
            sizes: self.threads,
            ranks: 2,
            ..Plan::default()
        };
        let task = Task {
            title: "Farside: several threads of a rank, two processes".to_owned(),
            plans: vec![plan],
            libraries: self.libraries.list(),
            ..Task::default()
        };
        task.run("threads", &self.options, |_| Vec::new())
    }
}
