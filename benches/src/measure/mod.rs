//! Farside's side of the measurements: what `benches/peers/*.c` does on MPI, with the same loops, blocks and keys, so
//! that the rows can be compared.
//!
//! | suite | what is measured |
//! |---|---|
//! | epoch, allocated window | the typed windows: a chain of fence epochs, start and expose, lock |
//! | epoch, window over user memory | the untyped window over page-aligned memory, as the peers' |
//! | op | the untyped window inside lock_all |
//! | am | an active message whose header handler copies the data, and one back |
//! | barrier | the team's barrier |
//! | ghost | as in epoch; active messages in place of two-sided ones |
//! | put | the untyped window, inside lock_all and between fences |
//! | coll | the team's collectives on doubles, and each algorithm by its name |
//!
//! The ranks run [`run`]; rank 0 writes the records.

mod coll;
mod epochs;
mod limits;
mod messages;
mod op;
mod put;
mod turns;
mod untyped;

use std::cell::RefCell;
use std::io::Write;
use std::time::Duration;

use farside_core::error::{Error, ErrorKind, Result};
use farside_core::{Job, Team};

pub(crate) use self::epochs::neighbours;

use crate::plan::Plan;
use crate::record::{Key, Op, Record, Shape, Suite, Sync, Window};

/// The quantity that is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// Times of blocks of iterations.
    Blocks,
    /// Same as [`Blocks`](Self::Blocks), but in suite "op" the time of every single iteration, as perftest measures it:
    /// the median is then that of the iterations, which a few slow ones do not change.
    Single,
    /// Packets and work requests of one iteration, from the counters of the devices; see [`crate::packets`].
    Packets,
    /// The virtual time of one iteration on a simulated network, which all ranks begin at the same time, after one
    /// iteration that is not timed. The time is exact.
    Virtual,
}

/// The duration of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    /// The quantity that is recorded.
    pub(crate) method: Method,
    /// The time for all blocks of one measurement.
    pub(crate) time: Duration,
    /// The number of blocks of a median.
    pub(crate) blocks: usize,
}

impl Budget {
    /// The budget of the measurements; the peers' program has the same numbers. Iterations that are timed singly take
    /// longer each, and the first ones after a barrier differ from later ones; perftest makes 2,000.
    pub(crate) const fn of(quick: bool, method: Method) -> Self {
        let longer = if matches!(method, Method::Single) { 8 } else { 1 };
        if quick {
            Self { method, time: Duration::from_millis(25 * longer), blocks: 5 }
        } else {
            Self { method, time: Duration::from_millis(120 * longer), blocks: 11 }
        }
    }

    /// More blocks over a longer time, for alternating measurements on a machine whose speed changes within tenths of a
    /// second.
    pub(crate) fn in_many_blocks(self) -> Self {
        Self { blocks: 2 * self.blocks, time: 4 * self.time, ..self }
    }

    /// More and shorter blocks, as the peers' program uses if the fastest counts.
    pub(crate) const fn in_short_blocks(self) -> Self {
        Self { blocks: 5 * self.blocks, ..self }
    }
}

/// Measures everything in `plan` with the ranks of `job`. Collective; rank 0 writes each record as a line to `output`
/// when it is complete. All patterns are first run once on known data, and their results checked.
///
/// # Errors
/// [`ErrorKind::BadArgument`] for an odd number of ranks, except for collectives; [`ErrorKind::Protocol`] for wrong
/// data; the errors of the calls.
pub(crate) fn run(job: &Job, plan: &Plan, budget: Budget, output: &mut dyn Write) -> Result<()> {
    if !job.size().is_multiple_of(2) && plan.suites.iter().any(|suite| *suite != Suite::Coll) {
        return Err(Error::new(ErrorKind::BadArgument, "measure").cause("the number of ranks must be even"));
    }
    let team = job.world()?;
    let bench = Bench { job, rank: team.rank(), ranks: team.size(), team, budget, output: RefCell::new(output) };
    for suite in &plan.suites {
        match suite {
            Suite::Am => messages::ping_pong(&bench)?,
            Suite::Barrier => messages::barrier(&bench)?,
            Suite::Ghost => messages::ghost(&bench, &plan.counts)?,
            Suite::Coll => coll::run(&bench, plan)?,
            _ => {}
        }
        for &window in &plan.windows {
            match suite {
                Suite::Epoch => epochs::epochs(&bench, window, &plan.sizes)?,
                Suite::Op => op::run(&bench, window, &plan.sizes)?,
                Suite::Ghost => epochs::ghost(&bench, window, &plan.counts)?,
                Suite::Put => put::run(&bench, window, &plan.layouts)?,
                _ => {}
            }
        }
    }
    Ok(())
}

/// The shared state of the suites.
struct Bench<'a> {
    job: &'a Job,
    team: Team,
    rank: usize,
    ranks: usize,
    budget: Budget,
    output: RefCell<&'a mut dyn Write>,
}

impl Bench<'_> {
    /// A measurement of all ranks, without layout.
    fn key(&self, suite: Suite, window: Window, sync: Sync, op: Op, bytes: usize) -> Key {
        Key { suite, window, sync, op, shape: Shape::None, bytes: bytes as u64, ranks: self.ranks as u32 }
    }

    /// The rank with which this one is paired.
    fn partner(&self) -> usize {
        self.rank ^ 1
    }

    /// In one-sided patterns even ranks are origins, and odd ranks their targets.
    fn is_origin(&self) -> bool {
        self.rank.is_multiple_of(2)
    }

    /// Writes a record, on rank 0.
    fn write(&self, record: &Record) -> Result<()> {
        if self.rank != 0 {
            return Ok(());
        }
        let mut output = self.output.borrow_mut();
        let written = writeln!(output, "{}", record.line()).and_then(|()| output.flush());
        written.map_err(|error| Error::system("write a record", error))
    }

    /// Fails if received data differ from the data sent.
    fn check(&self, holds: bool, key: Key, reason: &str) -> Result<()> {
        if holds {
            return Ok(());
        }
        let Key { suite, sync, op, .. } = key;
        let error = Error::new(ErrorKind::Protocol, "check the data of a measurement").rank(self.rank as u32);
        Err(error.cause(format!("wrong data in {suite} {sync} {op}: {reason}")))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use farside_core::settings::Settings;

    use super::*;
    use crate::coll;
    use crate::record::Library;

    fn keys_measured(ranks: u32, sizes: &[u64], counts: &[u64]) {
        let plan = Plan { sizes: sizes.to_vec(), counts: counts.to_vec(), ..Plan::new(true) };
        planned_measured(&plan, ranks, "auto");
    }

    /// Checks that every planned measurement is made once, by ranks that are threads. Returns the other records: those
    /// of other libraries, and of algorithms.
    fn planned_measured(plan: &Plan, ranks: u32, user_memory: &str) -> Vec<Record> {
        let budget = Budget { method: Method::Blocks, time: Duration::from_nanos(1), blocks: 3 };
        let given = |name: &str| (name == "FARSIDE_SHM_USER_MEMORY").then(|| user_memory.to_owned());
        let settings = Settings::from_lookup(|name| given(name).or_else(|| std::env::var(name).ok())).unwrap();
        let outputs = Job::threads_with(ranks as usize, &settings, |job| {
            let mut output = Vec::new();
            run(job, plan, budget, &mut output)?;
            Ok(output)
        })
        .unwrap();
        assert!(outputs[1..].iter().all(Vec::is_empty), "only rank 0 writes");
        let lines = std::str::from_utf8(&outputs[0]).unwrap().lines();
        let records = lines.map(|line| Record::parse(line).unwrap());
        let is_own = |r: &Record| r.library == Library::Farside && r.algorithm.is_none();
        let (own, others): (Vec<_>, Vec<_>) = records.partition(is_own);
        let mut seen = BTreeMap::new();
        for record in &own {
            *seen.entry(record.key).or_insert(0) += 1;
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
        let others = planned_measured(&Plan::of_layouts(true, Suite::Put, 2, &mapped, &layouts), 2, "auto");
        for library in [Library::Loop, Library::Limit] {
            // One record for each put on each of the two windows; for a layout without gaps there is no loop by hand.
            let count = others.iter().filter(|record| record.library == library).count();
            assert_eq!(count, 2 * if library == Library::Loop { 4 } else { 5 }, "{others:?}");
        }
        let others = planned_measured(&Plan::of_layouts(true, Suite::Put, 2, &[Window::Unmapped], &layouts), 2, "vm");
        assert!(others.is_empty(), "{others:?}");
        planned_measured(&Plan::of_layouts(true, Suite::Put, 4, &mapped, &layouts), 4, "auto");
        planned_measured(&Plan::of_layouts(true, Suite::Put, 4, &[Window::Unmapped], &layouts), 4, "vm");
    }

    #[test]
    fn run_unmapped_where_memory_is_mapped_is_refused() {
        let plan = Plan::of_layouts(true, Suite::Put, 2, &[Window::Unmapped], &[(Shape::None, 4096)]);
        let settings = Settings::from_lookup(|_| None).unwrap();
        let budget = Budget::of(true, Method::Blocks);
        let error = Job::threads_with(2, &settings, |job| run(job, &plan, budget, &mut Vec::new())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadArgument);
    }

    #[test]
    fn run_collectives_measures_every_key_and_algorithm_once() {
        for op in coll::operations() {
            let plan = Plan::of_collective(true, op, 4, &[8, 1 << 18]);
            let by_name = planned_measured(&plan, 4, "auto");
            for key in plan.keys(4) {
                let of_key = by_name.iter().filter(|r| r.key == key);
                let measured: Vec<_> = of_key.filter_map(|r| r.algorithm.clone()).collect();
                let choices = coll::Case::new(coll::operation(op).unwrap(), 4, key.bytes).choices(&[]);
                assert_eq!(measured, choices.iter().map(ToString::to_string).collect::<Vec<_>>());
            }
        }
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
        let plan = Plan::new(true);
        let error =
            Job::threads(3, |job| run(job, &plan, Budget::of(true, Method::Blocks), &mut Vec::new())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadArgument);
    }
}
