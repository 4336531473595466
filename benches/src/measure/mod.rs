//! Farside's side of the measurements: what `benches/peers/*.c` does on MPI, with the same loops, blocks and keys, so
//! that the rows stand side by side.
//!
//! | suite | Farside's way |
//! |---|---|
//! | epoch, allocated window | the typed windows: a chain of fence epochs, start and expose, lock |
//! | epoch, window over user memory | the untyped window over page-aligned memory, as the peers' |
//! | op | the untyped window inside lock_all |
//! | am | an active message whose header handler takes the data, and one back |
//! | barrier | the team's |
//! | ghost | as epoch; in place of two-sided messages, active messages |
//! | put | the untyped window, inside lock_all and between fences |
//!
//! The ranks run [`run`]; rank 0 writes the records.

mod alltoall;
mod am;
mod barrier;
mod epoch;
mod ghost;
mod lines;
mod op;
mod pages;
mod put;
mod raw;
mod turns;
mod untyped;

use std::cell::RefCell;
use std::io::Write;
use std::time::{Duration, Instant};

use farside_core::coll;
use farside_core::error::{Error, ErrorKind, Result};
use farside_core::{Job, Team};

use crate::cores;
use crate::packets;
use crate::plan::{Effort, Plan};
use crate::record::{Key, Library, Op, Record, Shape, Suite, Sync, Window};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Iterations in one block at most.
const ITERATIONS_MAX: u64 = 1_000_000;
/// Iterations that are timed singly at most.
const SINGLES_MAX: u64 = 10_000;

/// What is taken down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Times of blocks of iterations.
    Blocks,
    /// As [`Blocks`](Self::Blocks), but in suite "op" the time of every single iteration, as perftest takes it: then the
    /// median is that of the iterations, which few long ones do not move.
    Single,
    /// Packets and work requests of one iteration, from the counters of the devices; see [`crate::packets`].
    Packets,
}

/// How long the measurements take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// What is taken down.
    pub method: Method,
    /// Time for the blocks of one measurement together.
    pub time: Duration,
    /// Blocks that make a median.
    pub blocks: usize,
}

impl Budget {
    /// As the peers' program has it. Iterations that are timed singly take longer each, and those right after a barrier are
    /// not as those within a run; perftest makes 2,000.
    #[must_use]
    pub const fn of(effort: Effort, method: Method) -> Self {
        let longer = if matches!(method, Method::Single) { 8 } else { 1 };
        match effort {
            Effort::Full => Self { method, time: Duration::from_millis(120 * longer), blocks: 11 },
            Effort::Quick => Self { method, time: Duration::from_millis(25 * longer), blocks: 5 },
        }
    }

    /// More blocks over a longer time, for ways that take turns on a machine whose speed changes within tenths of a second.
    #[must_use]
    pub fn in_many_blocks(self) -> Self {
        Self { blocks: 2 * self.blocks, time: 4 * self.time, ..self }
    }

    /// As many more blocks, and shorter ones, as the peers' program takes where the fastest counts.
    #[must_use]
    pub const fn in_short_blocks(self) -> Self {
        Self { blocks: 5 * self.blocks, ..self }
    }
}

/// Binds this rank to a core: the ranks to one each, and in turn where there are more ranks. For ranks that are processes,
/// after [`Job::init`], which counts the cores.
///
/// # Errors
/// [`ErrorKind::System`].
pub fn bind(job: &Job) -> Result<()> {
    cores::bind_to_nth(job.rank() as usize % cores::allowed().len())
}

/// Measures everything in `plan` with the ranks of `job`. Collective; rank 0 writes each record as a line to `output`
/// when it is there. All patterns are run once on known data first, and what arrived is looked at.
///
/// # Errors
/// [`ErrorKind::BadArgument`] for an odd number of ranks; [`ErrorKind::Protocol`] if data arrived wrong; what the calls
/// fail with.
pub fn run(job: &Job, plan: &Plan, budget: Budget, output: &mut dyn Write) -> Result<()> {
    if !job.size().is_multiple_of(2) {
        return Err(Error::new(ErrorKind::BadArgument, "measure").cause("an even number of ranks is needed"));
    }
    let team = job.world()?;
    let bench = Bench { job, rank: team.rank(), ranks: team.size(), team, budget, output: RefCell::new(output) };
    let wanted = |suite| plan.suites.contains(&suite);
    if wanted(Suite::Am) {
        am::run(&bench)?;
    }
    if wanted(Suite::Barrier) {
        barrier::run(&bench)?;
    }
    if wanted(Suite::Ghost) {
        ghost::run_messages(&bench, &plan.counts)?;
    }
    for &window in &plan.windows {
        if wanted(Suite::Epoch) {
            epoch::run(&bench, window, &plan.sizes)?;
        }
        if wanted(Suite::Op) {
            op::run(&bench, window, &plan.sizes)?;
        }
        if wanted(Suite::Ghost) {
            ghost::run(&bench, window, &plan.counts)?;
        }
        if wanted(Suite::Put) {
            put::run(&bench, window, &plan.layouts)?;
            alltoall::run(&bench, window, &plan.layouts)?;
        }
    }
    Ok(())
}

/// What the suites share.
struct Bench<'a> {
    job: &'a Job,
    team: Team,
    rank: usize,
    ranks: usize,
    budget: Budget,
    output: RefCell<&'a mut dyn Write>,
}

/// What is measured: the fields of the record.
#[derive(Clone, Copy, Debug)]
struct What {
    suite: Suite,
    window: Window,
    sync: Sync,
    op: Op,
    bytes: usize,
    /// An iteration does this many of what is reported.
    per_iteration: u32,
}

impl What {
    fn key(&self, ranks: usize) -> Key {
        let &Self { suite, window, sync, op, bytes, .. } = self;
        Key { suite, window, sync, shape: Shape::None, op, bytes: bytes as u64, ranks: ranks as u32 }
    }
}

impl Bench<'_> {
    /// The rank with which this one is paired.
    fn partner(&self) -> usize {
        self.rank ^ 1
    }

    /// Even ranks act in one-sided patterns, odd ones are their targets.
    fn is_origin(&self) -> bool {
        self.rank.is_multiple_of(2)
    }

    /// Times `run`, which does so many iterations, and writes a record. Collective. `counts` says whether this rank's
    /// time counts.
    fn measure(&self, what: &What, counts: bool, run: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        let each = f64::from(what.per_iteration);
        let mut counted = None;
        let (iterations, us) = if self.budget.method == Method::Packets {
            let count = packets::of_one(&self.team, run)?;
            counted = Some((count.packets / each, count.requests / each));
            (count.iterations, vec![count.us / each])
        } else {
            let (iterations, blocks) = self.calibrate(self.budget, counts, run)?;
            let all = iterations * blocks as u64;
            if self.budget.method == Method::Single && what.suite == Suite::Op {
                (all, self.singles_us(all.min(SINGLES_MAX), run)?.iter().map(|us| us / each).collect())
            } else {
                let block_us = |_| Ok(self.block_s(iterations, counts, run)? * 1e6 / (iterations as f64 * each));
                (all, (0..blocks).map(block_us).collect::<Result<Vec<f64>>>()?)
            }
        };
        if self.rank != 0 {
            return Ok(());
        }
        let mut record = Record::from_blocks(Library::Farside, VERSION, what.key(self.ranks), iterations, &us)?;
        (record.packets, record.requests) = counted.unzip();
        self.write(&record)
    }

    fn write(&self, record: &Record) -> Result<()> {
        let mut output = self.output.borrow_mut();
        writeln!(output, "{}", record.line())
            .and_then(|()| output.flush())
            .map_err(|error| Error::system("write a record", error))
    }

    /// One block: a barrier, then the iterations without a pause, timed on each rank by its own clock from leaving that
    /// barrier to the end of its own loop; then a second barrier, which is not timed and in which the ranks that are
    /// passive targets wait. The time of the block, in seconds, is the largest among the ranks whose time counts; all
    /// ranks get the same.
    fn block_s(&self, iterations: u64, counts: bool, run: &mut dyn FnMut(u64) -> Result<()>) -> Result<f64> {
        self.team.barrier()?;
        let start = Instant::now();
        run(iterations)?;
        let own_s = if counts { start.elapsed().as_secs_f64() } else { 0.0 };
        self.team.barrier()?;
        let largest = coll::allreduce(&self.team, &own_s.to_bits().to_le_bytes(), &mut |low, high| {
            // Times are not negative, so their bits are ordered as they are.
            if seconds(high) > seconds(low) {
                low.copy_from_slice(high);
            }
        })?;
        Ok(seconds(&largest))
    }

    /// The time of every single iteration, by this rank's clock. Collective.
    fn singles_us(&self, iterations: u64, run: &mut dyn FnMut(u64) -> Result<()>) -> Result<Vec<f64>> {
        self.team.barrier()?;
        let mut us = Vec::with_capacity(iterations as usize);
        for _ in 0..iterations {
            let start = Instant::now();
            run(1)?;
            us.push(start.elapsed().as_secs_f64() * 1e6);
        }
        self.team.barrier()?;
        Ok(us)
    }

    /// Finds how many iterations fill a block, and how many blocks there are. All ranks come to the same answer, for
    /// all see the same times. The runs made on the way are the warm-up.
    fn calibrate(&self, budget: Budget, counts: bool, run: &mut dyn FnMut(u64) -> Result<()>) -> Result<(u64, usize)> {
        let want_s = budget.time.as_secs_f64() / budget.blocks as f64;
        let mut iterations = 1;
        // The first meets cold caches, and queue pairs that are not connected yet.
        self.block_s(iterations, counts, run)?;
        loop {
            let took_s = self.block_s(iterations, counts, run)?;
            let each_s = took_s / iterations as f64;
            if took_s >= want_s / 4.0 || iterations >= ITERATIONS_MAX {
                let fit = if each_s > 0.0 { (want_s / each_s) as u64 } else { ITERATIONS_MAX };
                // Where one iteration alone is longer than a block should be, three blocks must do.
                let blocks = if each_s > want_s { budget.blocks.min(3) } else { budget.blocks };
                return Ok((fit.clamp(1, ITERATIONS_MAX), blocks));
            }
            let factor = if took_s > 0.0 { (want_s / 2.0 / took_s).clamp(2.0, 10.0) } else { 10.0 };
            iterations = (iterations as f64 * factor) as u64;
        }
    }

    /// The error for data that did not arrive as they were sent.
    fn check(&self, holds: bool, suite: Suite, sync: Sync, op: Op, reason: &str) -> Result<()> {
        if holds {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Protocol, "check the data of a measurement")
            .rank(self.rank as u32)
            .cause(format!("wrong data in {suite} {sync} {op}: {reason}")))
    }
}

fn seconds(bytes: &[u8]) -> f64 {
    bytes.try_into().map_or(0.0, f64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use farside_core::settings::Settings;

    use super::*;
    use crate::record;

    fn keys_measured(ranks: u32, sizes: &[u64], counts: &[u64]) {
        let plan = Plan { sizes: sizes.to_vec(), counts: counts.to_vec(), ..Plan::new(Effort::Quick, &[ranks]) };
        planned_measured(&plan, ranks, "auto");
    }

    /// Every planned measurement once, on ranks that are threads; what is written for others than Farside.
    fn planned_measured(plan: &Plan, ranks: u32, user_memory: &str) -> Vec<Record> {
        let budget = Budget { method: Method::Blocks, time: Duration::from_nanos(1), blocks: 3 };
        let given = |name: &str| (name == "FARSIDE_SHM_USER_MEMORY").then(|| user_memory.to_owned());
        let settings = Settings::from_lookup(|name| given(name).or_else(|| std::env::var(name).ok())).unwrap();
        let outputs = Job::threads_with(ranks, &settings, |job| {
            let mut output = Vec::new();
            run(job, plan, budget, &mut output)?;
            Ok(output)
        })
        .unwrap();
        assert!(outputs[1..].iter().all(Vec::is_empty), "only rank 0 writes");
        let lines = record::read(&outputs[0][..]).unwrap();
        assert!(lines.refused.is_empty(), "{:?}", lines.refused);
        let (own, others): (Vec<_>, Vec<_>) = lines.records.into_iter().partition(|r| r.library == Library::Farside);
        let mut seen = BTreeMap::new();
        for record in &own {
            *seen.entry(record.key()).or_insert(0) += 1;
        }
        let planned: BTreeMap<_, _> = plan.farside_keys(ranks).into_iter().map(|key| (key, 1)).collect();
        assert_eq!(seen, planned);
        others
    }

    #[test]
    fn run_layouts_measures_every_key_once_and_copies_by_hand() {
        let bytes = [(Shape::None, 4096), (Shape::Columns64, 1024), (Shape::Columns128, 128 * 4 * 2048)];
        let layouts = [&bytes[..], &[(Shape::Blocks8, 8192), (Shape::Diagonals, 124 * 16)]].concat();
        let mapped = [Window::Allocated, Window::User];
        let others = planned_measured(&Plan::of_layouts(Effort::Quick, 2, &mapped, &layouts), 2, "auto");
        for library in [Library::Loop, Library::Limit] {
            // One for each put on each of the two windows; without gaps, no loop.
            let count = others.iter().filter(|record| record.library == library).count();
            assert_eq!(count, 2 * if library == Library::Loop { 4 } else { 5 }, "{others:?}");
        }
        let others = planned_measured(&Plan::of_layouts(Effort::Quick, 2, &[Window::Unmapped], &layouts), 2, "vm");
        assert!(others.is_empty(), "{others:?}");
        planned_measured(&Plan::of_layouts(Effort::Quick, 4, &mapped, &layouts), 4, "auto");
        planned_measured(&Plan::of_layouts(Effort::Quick, 4, &[Window::Unmapped], &layouts), 4, "vm");
    }

    #[test]
    fn run_unmapped_where_memory_is_mapped_is_refused() {
        let plan = Plan::of_layouts(Effort::Quick, 2, &[Window::Unmapped], &[(Shape::None, 4096)]);
        let settings = Settings::from_lookup(|_| None).unwrap();
        let budget = Budget::of(Effort::Quick, Method::Blocks);
        let error = Job::threads_with(2, &settings, |job| run(job, &plan, budget, &mut Vec::new())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadArgument);
    }

    #[test]
    fn run_two_ranks_measures_every_key_once() {
        keys_measured(2, &[1, 8, 5000], &[1, 20_000]);
    }

    #[test]
    fn run_four_ranks_measures_every_key_once() {
        keys_measured(4, &[8, 4096], &[3, 300]);
    }

    #[test]
    fn run_odd_ranks_is_refused() {
        let plan = Plan::new(Effort::Quick, &[2]);
        let error = Job::threads(3, |job| run(job, &plan, Budget::of(Effort::Quick, Method::Blocks), &mut Vec::new()))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadArgument);
    }
}
