//! Alternating measurement: blocks of several variants in turn, so that other load of the machine affects all variants
//! equally; and the CPU time of a pattern on both sides.

use std::time::Duration;

use farside_core::coll;
use farside_core::error::Result;

use super::{Bench, Budget, Method};
use crate::packets;
use crate::record::{Key, Library, Op, Record, Suite, best};
use crate::usage::{Of, Usage};

/// The maximum number of iterations in one block.
const ITERATIONS_MAX: u64 = 1_000_000;
/// The maximum number of iterations that are timed singly, if no other variant alternates with them.
const SINGLES_MAX: u64 = 10_000;
/// The number of blocks whose processor time is measured; they are longer by the factor in the second number.
const BLOCKS: usize = 5;
const LENGTH_FACTOR: u64 = 4;

/// A function that makes the given number of iterations.
pub(super) type Run<'a> = &'a mut dyn FnMut(u64) -> Result<()>;

/// One variant of the same work.
pub(super) struct Way<'a> {
    library: Library,
    /// The operation in the key of its record, if it differs from the common key.
    op: Option<Op>,
    /// The name of a collective's algorithm, if there is one.
    algorithm: Option<String>,
    /// The number of reported operations in an iteration.
    per_iteration: u32,
    run: Run<'a>,
}

impl<'a> Way<'a> {
    /// A variant with one operation of the common key per iteration.
    pub(super) fn of(library: Library, run: Run<'a>) -> Self {
        Self { library, op: None, algorithm: None, per_iteration: 1, run }
    }

    /// The same with `per_iteration` operations in an iteration.
    pub(super) fn each(self, per_iteration: u32) -> Self {
        Self { per_iteration, ..self }
    }

    /// The same, recorded under `op`.
    pub(super) fn named(self, op: Op) -> Self {
        Self { op: Some(op), ..self }
    }

    /// The same, recorded with an algorithm.
    pub(super) fn by(self, algorithm: String) -> Self {
        Self { algorithm: Some(algorithm), ..self }
    }
}

impl Bench<'_> {
    /// Times `run` for library Farside; each of its iterations counts as `per_iteration` operations. Collective.
    /// `counts`: whether this rank's time counts.
    pub(super) fn time_single(&self, key: Key, per_iteration: u32, counts: bool, run: Run<'_>) -> Result<()> {
        let ways = &mut [Way::of(Library::Farside, run).each(per_iteration)];
        self.time_alternating(key, counts, ways).map(|_| ())
    }

    /// Times all `ways`, and writes a record for each library, operation and algorithm, with the fastest of several
    /// variants. Collective. Returns the number of iterations in a block of the first variant.
    pub(super) fn time_alternating(&self, key: Key, counts: bool, ways: &mut [Way<'_>]) -> Result<u64> {
        self.time_alternating_within(self.budget, key, counts, ways)
    }

    /// Same as [`time_alternating`](Self::time_alternating), with a given budget for each variant.
    pub(super) fn time_alternating_within(
        &self,
        budget: Budget,
        key: Key,
        counts: bool,
        ways: &mut [Way<'_>],
    ) -> Result<u64> {
        if self.budget.method == Method::Packets {
            return self.packets(key, &mut ways[0]);
        }
        let plans: Vec<_> =
            ways.iter_mut().map(|way| self.calibrate(budget, counts, way.run)).collect::<Result<_>>()?;
        let (single, several) = (self.budget.method == Method::Single && key.suite == Suite::Op, ways.len() > 1);
        let mut us = vec![Vec::new(); ways.len()];
        for block in 0..plans.iter().map(|(_, blocks)| *blocks).max().unwrap_or(0) {
            for ((way, &(iterations, blocks)), us) in ways.iter_mut().zip(&plans).zip(&mut us) {
                if block >= blocks {
                    continue;
                }
                if several {
                    // A warm-up comes first, since the other variants have evicted this variant's data from the caches.
                    (way.run)(iterations.div_ceil(4))?;
                }
                let each = f64::from(way.per_iteration);
                if single {
                    let most = if several { iterations } else { SINGLES_MAX.div_ceil(blocks as u64) };
                    us.extend(self.singles_us(iterations.min(most), way.run)?.iter().map(|us| us / each));
                } else {
                    us.push(self.block_s(iterations, counts, way.run)? * 1e6 / (iterations as f64 * each));
                }
            }
        }
        let mut records = Vec::new();
        for ((way, (iterations, blocks)), us) in ways.iter().zip(&plans).zip(&us) {
            let key = Key { op: way.op.unwrap_or(key.op), ..key };
            let record = Record::from_blocks(way.library, key, iterations * *blocks as u64, us)?;
            records.push(Record { algorithm: way.algorithm.clone(), ..record });
        }
        best(&records).iter().try_for_each(|record| self.write(record))?;
        Ok(plans.first().map_or(1, |(iterations, _)| *iterations))
    }

    /// Counts packets instead of measuring time.
    fn packets(&self, key: Key, way: &mut Way<'_>) -> Result<u64> {
        let (count, each) = (packets::of_one(&self.team, key.bytes, way.run)?, f64::from(way.per_iteration));
        let mut record = Record::from_blocks(way.library, key, count.iterations, &[count.us / each])?;
        (record.packets, record.requests) = (Some(count.packets / each), Some(count.requests / each));
        self.write(&record).map(|()| count.iterations)
    }

    /// Writes the processor time that the two ranks use in an iteration of `run`: of the rank that acts, and of the
    /// rank that waits for it in a barrier. `iterations` fill a block. Collective.
    pub(super) fn processors(&self, key: Key, iterations: u64, run: Run<'_>) -> Result<()> {
        let iterations = iterations * LENGTH_FACTOR;
        let mut us = [const { Vec::new() }; 2];
        for _ in 0..BLOCKS {
            self.team.barrier()?;
            let before = Usage::now(Of::Process)?;
            run(iterations)?;
            self.team.barrier()?;
            // A record's time must not be zero.
            let used = (Usage::now(Of::Process)? - before).cpu.max(Duration::from_nanos(1));
            let all = coll::allgather(&self.team, &(used.as_secs_f64() * 1e6).to_le_bytes())?;
            us.iter_mut().zip(&all).for_each(|(us, used)| us.push(seconds(used) / iterations as f64));
        }
        for (op, us) in [Op::OriginCpu, Op::TargetCpu].into_iter().zip(us) {
            let (key, iterations) = (Key { op, ..key }, iterations * BLOCKS as u64);
            self.write(&Record::from_blocks(Library::Farside, key, iterations, &us)?)?;
        }
        Ok(())
    }

    /// One block: a barrier, then the iterations without a pause, timed on each rank by its own clock from leaving that
    /// barrier to the end of its own loop; then a second barrier, which is not timed: ranks that are passive targets wait
    /// in it. The time of the block, in seconds, is the largest among the ranks whose time counts; all
    /// ranks get the same.
    fn block_s(&self, iterations: u64, counts: bool, run: Run<'_>) -> Result<f64> {
        self.team.barrier()?;
        let device = self.job.device();
        if self.budget.method == Method::Virtual {
            // No message is in transit any more.
            device.compute(Duration::from_millis(100));
            self.job.align()?;
        }
        let start = device.now();
        run(iterations)?;
        let own_s = if counts { (device.now() - start).as_secs_f64() } else { 0.0 };
        self.team.barrier()?;
        let largest = coll::allreduce(&self.team, &own_s.to_bits().to_le_bytes(), &mut |low, high| {
            if seconds(high) > seconds(low) {
                low.copy_from_slice(high);
            }
        })?;
        Ok(seconds(&largest))
    }

    /// The time of every single iteration, by this rank's clock. Collective.
    fn singles_us(&self, iterations: u64, run: Run<'_>) -> Result<Vec<f64>> {
        self.team.barrier()?;
        let mut us = Vec::with_capacity(iterations as usize);
        for _ in 0..iterations {
            let start = self.job.device().now();
            run(1)?;
            us.push((self.job.device().now() - start).as_secs_f64() * 1e6);
        }
        self.team.barrier()?;
        Ok(us)
    }

    /// Finds the number of iterations in a block, and the number of blocks. All ranks get the same result, since all
    /// see the same times. The runs for this are the warm-up.
    fn calibrate(&self, budget: Budget, counts: bool, run: Run<'_>) -> Result<(u64, usize)> {
        let want_s = budget.time.as_secs_f64() / budget.blocks as f64;
        let mut iterations = 1;
        // The first run has cold caches and unconnected queue pairs.
        self.block_s(iterations, counts, run)?;
        if self.budget.method == Method::Virtual {
            return Ok((1, 1));
        }
        loop {
            let took_s = self.block_s(iterations, counts, run)?;
            let each_s = took_s / iterations as f64;
            if took_s >= want_s / 4.0 || iterations >= ITERATIONS_MAX {
                let fit = if each_s > 0.0 { (want_s / each_s) as u64 } else { ITERATIONS_MAX };
                // If one iteration alone is longer than a block should be, three blocks must suffice.
                let blocks = if each_s > want_s { budget.blocks.min(3) } else { budget.blocks };
                return Ok((fit.clamp(1, ITERATIONS_MAX), blocks));
            }
            let factor = if took_s > 0.0 { (want_s / 2.0 / took_s).clamp(2.0, 10.0) } else { 10.0 };
            iterations = (iterations as f64 * factor) as u64;
        }
    }
}

fn seconds(bytes: &[u8]) -> f64 {
    bytes.try_into().map_or(0.0, f64::from_le_bytes)
}
