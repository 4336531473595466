//! `coll` measures collectives with every algorithm, compares them with predictions, and, with `--peers`, measures MPI
//! libraries too.

use std::hint::black_box;
use std::time::Instant;

use clap::Args;
use farside_core::error::{Error, ErrorKind, Result};
use farside_core::settings::Settings;

use super::report::Measured;
use super::{ELEMENT, model, operation, operations, stored};
use crate::options::{Libraries, Options, doubles, even};
use crate::plan::{Plan, sorted};
use crate::record::Op;
use crate::session::Task;
use crate::targets;

/// Measures collectives on doubles: each algorithm for each number of ranks and size, next to the time that pLogP
/// predicts with parameters from round trips in the same run. Marks the selected algorithm, and lists the cases in
/// which the selection is not the best algorithm.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    libraries: Libraries,
    /// Job sizes (ranks) to measure, each even.
    #[arg(long, value_delimiter = ',', default_value = "2,4,8", value_parser = even)]
    ranks: Vec<u32>,
    /// Operations to measure; by default all.
    #[arg(long, value_delimiter = ',', value_parser = collective)]
    operations: Vec<Op>,
    /// Bytes of the vector, or of the block that each rank sends to or receives from each other rank: multiples of 8.
    #[arg(long, value_delimiter = ',', default_value = "8,256,4096,32768,262144,1048576", value_parser = doubles)]
    sizes: Vec<u64>,
    /// Algorithms, as NAME or NAME(NUMBER,..), separated by semicolons, for operations that have them; by default all.
    /// The selected ones are always measured.
    #[arg(long, value_delimiter = ';')]
    algorithms: Vec<String>,
    /// Predict from the models stored by `farside tune`, not from round trips measured in this run.
    #[arg(long)]
    stored: bool,
}

fn collective(text: &str) -> Result<Op, String> {
    let op = text.parse()?;
    operation(op).map(|_| op).ok_or_else(|| "not a collective".to_owned())
}

/// Microseconds to reduce one byte of doubles in the cache.
fn reduction_us() -> f64 {
    const COUNT: usize = 8192;
    let (from, mut into) = (vec![1.0f64; COUNT], vec![0.0f64; COUNT]);
    let pass = |into: &mut [f64]| {
        let start = Instant::now();
        into.iter_mut().zip(black_box(&from)).for_each(|(into, from)| *into += from);
        black_box(into);
        start.elapsed().as_secs_f64() * 1e6
    };
    let least = (0..100).map(|_| pass(&mut into)).fold(f64::INFINITY, f64::min);
    least / (COUNT as u64 * ELEMENT) as f64
}

impl Arguments {
    pub(crate) fn run(self) -> Result<bool> {
        let kept = if self.stored { stored(&Settings::from_env()?) } else { None };
        if self.stored && kept.is_none() {
            let error = Error::new(ErrorKind::BadArgument, "plan the measurements");
            return Err(error.cause("no models are stored").remedy("run `farside tune` first"));
        }
        let (sizes, operations) =
            (sorted(self.sizes), if self.operations.is_empty() { operations() } else { self.operations });
        let plan = |ranks, op| Plan {
            algorithms: self.algorithms.clone(),
            ..Plan::of_collective(self.options.quick, op, ranks, &sizes)
        };
        // All libraries measure one operation before the next one starts, so that compared values are measured close
        // together.
        let all = sorted(self.ranks).into_iter();
        let plans = all.flat_map(|ranks| [Op::Pingpong].iter().chain(&operations).map(move |op| plan(ranks, *op)));
        let task = Task {
            title: "Farside: collectives".to_owned(),
            plans: plans.collect(),
            libraries: self.libraries.list(),
            ..Task::default()
        };
        let (results, _) = task.measure(self.options.rounds.unwrap_or(1), self.options.limit.duration())?;
        let measured = Measured(&results.records);
        let reduction = reduction_us();
        let predictor = |ranks| kept.clone().or_else(|| model(&results.records, ranks, reduction));
        println!("{}\n{}", results.machine.line(), measured.tables(predictor));
        println!("{}\n{}", measured.selection(), targets::display(&measured.targets()));
        let source =
            if kept.is_some() { "the models that farside tune has stored" } else { "round trips of the same run" };
        let about = [results.machine.line(), format!("Predicted with pLogP from {source}.")];
        results.write("coll", &self.options, &measured.page(predictor, &about))
    }
}
