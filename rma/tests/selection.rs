//! Algorithm selection on simulated networks: the choice confirmed by trial calls, and the choice of the table,
//! compared with the best.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use farside_core::Job;
use farside_core::coll::operation::{Call, Operation};
use farside_core::coll::schedule::predict::LogGP;
use farside_core::coll::selection::{Choice, Facts, Placement, ranking, row};
use farside_core::sim::{Interface, Network, Simulation, Topology};
use farside_rma::collectives::call;
use farside_rma::{Collectives, Op, Result};

/// Calls of an operation on doubles; blocks or vectors of `bytes` bytes.
struct Calls {
    operation: Operation,
    from: Vec<f64>,
    into: Vec<f64>,
    count: usize,
    /// The next root.
    root: usize,
}

impl Calls {
    fn new(operation: Operation, bytes: usize, ranks: usize) -> Self {
        let count = bytes / 8;
        Self { operation, from: vec![1.0; count * ranks], into: vec![1.0; count * ranks], count, root: 0 }
    }

    fn make(&mut self, job: &Job, by: Option<&Choice>) -> Result<()> {
        use Operation as O;
        let Self { operation, from, into, count, root } = self;
        let (team, n) = (job.world()?, *count);
        let now = *root;
        // The root changes, so that no rank runs ahead.
        *root = (now + 1) % team.size();
        macro_rules! make {
            ($call:expr) => {
                match by {
                    Some(choice) => team.make($call.by(choice)),
                    None => team.make($call),
                }
            };
        }
        match operation {
            O::Broadcast => make!(call::broadcast(&mut into[..n], now)),
            O::Scatter => make!(call::scatter(from, &mut into[..n], now)),
            O::Gather => make!(call::gather(&from[..n], into, now)),
            O::Allgather => make!(call::allgather(&from[..n], into)),
            O::Alltoall => make!(call::alltoall(from, into)),
            O::Reduce => make!(call::reduce(&mut into[..n], Op::Max, now)),
            O::Allreduce => make!(call::allreduce(&mut into[..n], Op::Max)),
            O::ReduceScatter => make!(call::reduce_scatter(from, &mut into[..n], Op::Max)),
            O::Scan => make!(call::scan(&mut into[..n], Op::Max)),
            O::Exscan => make!(call::exscan(&mut into[..n], Op::Max)),
            other => unreachable!("{other:?}"),
        }
    }

    /// Virtual times of some calls in a row, and of some after a skew, at this rank.
    fn time(&mut self, job: &Job, by: Option<&Choice>) -> Result<[Duration; 2]> {
        self.root = 0;
        self.make(job, by)?;
        // No rank has an operation in progress.
        job.device().compute(Duration::from_millis(50));
        job.align()?;
        let begin = job.device().now();
        (0..16).try_for_each(|_| self.make(job, by))?;
        let in_row = job.device().now() - begin;
        let mut after_skew = Duration::ZERO;
        for late in 0..8 {
            job.align()?;
            if late % job.size() == job.rank() {
                job.device().compute(Duration::from_micros(2));
            }
            let begin = job.device().now();
            self.make(job, by)?;
            after_skew += job.device().now() - begin;
        }
        Ok([in_row, after_skew])
    }
}

const OPERATIONS: [Operation; 10] = [
    Operation::Broadcast,
    Operation::Scatter,
    Operation::Gather,
    Operation::Allgather,
    Operation::Alltoall,
    Operation::Reduce,
    Operation::Allreduce,
    Operation::ReduceScatter,
    Operation::Scan,
    Operation::Exscan,
];

/// Three networks: one of short latency, one of long latency, and a torus with link contention.
fn networks() -> [(&'static str, Network); 3] {
    let of = |latency, overhead, gap, gap_per_byte| {
        let interface = Interface { gap, gap_per_byte, ..Interface::log_p(latency, overhead, gap) };
        Network { interface, ..Network::default() }
    };
    let torus =
        Network { topology: "torus:4x4x4".parse::<Topology>().unwrap(), hop: 40.0, ..of(600.0, 150.0, 80.0, 0.08) };
    [("near", of(700.0, 200.0, 100.0, 0.05)), ("far", of(20_000.0, 1500.0, 1500.0, 1.0)), ("torus", torus)]
}

/// The choices that are measured: the best of each algorithm according to the model, and that of the table.
fn choices(operation: Operation, ranks: u32, bytes: u64, model: &LogGP) -> (Choice, Vec<Choice>) {
    let call = Call { elements: bytes / 8, lends: false, ..Call::new(operation, 0, ranks) };
    let facts = Facts::new(&call, 8, true, Placement::Anywhere);
    let table = row(&call, &facts).1;
    let mut all = vec![table.clone()];
    let ranked = ranking(&call, &facts, model).into_iter().map(|(choice, _)| choice);
    all.extend(ranked.filter(|choice| choice.to_string() != table.to_string()));
    (table, all)
}

/// A call of which the choices are compared.
struct Case {
    name: &'static str,
    network: Network,
    ranks: usize,
    operation: Operation,
    bytes: usize,
}

impl Case {
    /// All cases of this run. Long vectors are run separately, since they take most of the time; a quick run uses many
    /// ranks only with link contention.
    fn all() -> Vec<Self> {
        let whole = std::env::var_os("FARSIDE_TEST_WHOLE").is_some();
        let sizes = if whole { &[8usize, 4096, 128 << 10][..] } else { &[8, 4096] };
        let short = farside_harness::quick();
        let mut all = Vec::new();
        for (name, network) in networks() {
            for ranks in [4, 16].into_iter().filter(|ranks| !short || *ranks < 16 || name == "torus") {
                for operation in OPERATIONS {
                    for &bytes in sizes.iter().filter(|bytes| **bytes * ranks <= 1 << 20) {
                        all.push(Self { name, network: network.clone(), ranks, operation, bytes });
                    }
                }
            }
        }
        all
    }

    /// Whether the confirmed choice and that of the table are within a tenth of the best one.
    fn is_within_a_tenth(&self) -> [bool; 2] {
        let Self { name, network, ranks, operation, bytes } = self;
        let (ranks, operation, bytes) = (*ranks, *operation, *bytes);
        let model = LogGP::from(network.interface);
        let (table, all) = choices(operation, ranks as u32, bytes as u64, &model);
        let run = Simulation::new(ranks).network(network.clone()).tuned().run(|job| {
            let mut calls = Calls::new(operation, bytes, ranks);
            let by_choice = all.iter().map(|choice| calls.time(job, Some(choice)));
            let by_choice = by_choice.collect::<Result<Vec<_>>>()?;
            // The trial calls.
            for _ in 0..300 {
                if !job.measured_rules().is_empty() {
                    break;
                }
                calls.make(job, None)?;
            }
            let rules = job.measured_rules().to_string();
            Ok((by_choice, calls.time(job, None)?, rules))
        });
        let run = run.unwrap();
        let longest = |of: &dyn Fn(usize) -> [Duration; 2]| {
            [0, 1].map(|way| (0..ranks).map(|rank| of(rank)[way]).max().unwrap().as_nanos() as f64)
        };
        let times: Vec<_> = (0..all.len()).map(|i| longest(&|r| run.results[r].0[i])).collect();
        // Times relative to the default's. A choice is eligible only if neither ratio exceeds 1.02.
        let ratios = |of: [f64; 2]| [0, 1].map(|way| of[way] / times[0][way]);
        let sum = |of: [f64; 2]| ratios(of).iter().sum::<f64>();
        let allowed = times.iter().filter(|of| ratios(**of).iter().all(|ratio| *ratio <= 1.02));
        let best = *allowed.min_by(|a, b| sum(**a).total_cmp(&sum(**b))).expect("the default is allowed");
        let tuned = longest(&|r| run.results[r].1);
        assert!(run.results.iter().all(|result| result.2 == run.results[0].2), "ranks differ");
        if sum(tuned) > 1.1 * sum(best) {
            let at = times.iter().position(|time| *time == best).unwrap();
            let rule = run.results[0].2.trim();
            println!(
                "{name}, {}, P {ranks}, {bytes} bytes: {:.2} of {} by [{rule}], table {table} {:.2}",
                operation.name(),
                sum(tuned) / sum(best),
                all[at],
                2.0 / sum(best)
            );
        }
        [sum(tuned), 2.0].map(|time| time <= 1.1 * sum(best))
    }
}

#[test]
fn confirmed_choices_are_within_a_tenth_of_the_best() {
    let (cases, next) = (Case::all(), AtomicUsize::new(0));
    let work = || {
        // Relaxed: the number only gives each case to one thread; `join` orders the results.
        let next = || cases.get(next.fetch_add(1, Ordering::Relaxed));
        std::iter::from_fn(next).map(Case::is_within_a_tenth).collect::<Vec<_>>()
    };
    // Each simulation runs on one processor.
    let within: Vec<_> = std::thread::scope(|scope| {
        let other = scope.spawn(work);
        [work(), other.join().unwrap()].concat()
    });
    let [tuned_well, table_well] = [0, 1].map(|by| within.iter().filter(|well| well[by]).count());
    let cases = cases.len();
    println!("within a tenth of the best of {cases}: confirmed {tuned_well}, table {table_well}");
    assert!(tuned_well * 100 >= cases * 94, "{tuned_well} of {cases}");
}
