//! Several ways of doing the same, a block of each in turns, so that whatever else the machine does meets all alike; and
//! the processor time that a pattern takes on both sides.

use std::time::Duration;

use farside_core::coll;
use farside_core::error::Result;

use super::{Bench, Budget, Method, VERSION};
use crate::record::{Key, Library, Op, Record};
use crate::usage::{Of, Usage};

/// Blocks whose processor time is taken, each so many times as long as those whose time is.
const BLOCKS: usize = 5;
const LONGER: u64 = 4;

/// One way.
pub(super) struct Way<'a> {
    pub(super) library: Library,
    /// What its record is of, where that is not what the key of all says.
    pub(super) op: Option<Op>,
    /// An iteration does this many of what is reported.
    pub(super) per_iteration: u32,
    /// Does so many iterations.
    pub(super) run: &'a mut dyn FnMut(u64) -> Result<()>,
}

impl<'a> Way<'a> {
    /// What the key says, once in an iteration.
    pub(super) fn of(library: Library, run: &'a mut dyn FnMut(u64) -> Result<()>) -> Self {
        Self { library, op: None, per_iteration: 1, run }
    }
}

impl Bench<'_> {
    /// Times all `ways`, and writes a record for each library and operation: of several ways of one, that of the fastest.
    /// Collective. `counts` is as in [`Bench::measure`]. Returns the iterations in a block of the first.
    pub(super) fn turns(&self, key: Key, counts: bool, ways: &mut [Way<'_>]) -> Result<u64> {
        self.turns_within(self.budget, key, counts, ways)
    }

    /// As [`turns`](Self::turns), with its own budget for each way.
    pub(super) fn turns_within(&self, budget: Budget, key: Key, counts: bool, ways: &mut [Way<'_>]) -> Result<u64> {
        let plans: Vec<_> =
            ways.iter_mut().map(|way| self.calibrate(budget, counts, way.run)).collect::<Result<_>>()?;
        let mut us = vec![Vec::new(); ways.len()];
        for block in 0..plans.iter().map(|(_, blocks)| *blocks).max().unwrap_or(0) {
            for ((way, (iterations, blocks)), us) in ways.iter_mut().zip(&plans).zip(&mut us) {
                if block < *blocks {
                    // Once before, for those in between have used the caches.
                    (way.run)(1)?;
                    let each = f64::from(way.per_iteration);
                    if self.budget.method == Method::Single {
                        us.extend(self.singles_us(*iterations, way.run)?.iter().map(|us| us / each));
                    } else {
                        us.push(self.block_s(*iterations, counts, way.run)? * 1e6 / (*iterations as f64 * each));
                    }
                }
            }
        }
        let mut best: Vec<Record> = Vec::new();
        for ((way, (iterations, blocks)), us) in ways.iter().zip(&plans).zip(&us) {
            let key = Key { op: way.op.unwrap_or(key.op), ..key };
            let record = Record::from_blocks(way.library, VERSION, key, iterations * *blocks as u64, us)?;
            match best.iter_mut().find(|held| (held.library, held.op) == (way.library, key.op)) {
                Some(held) if record.us() < held.us() => *held = record,
                Some(_) => {}
                None => best.push(record),
            }
        }
        if self.rank == 0 {
            best.iter().try_for_each(|record| self.write(record))?;
        }
        Ok(plans.first().map_or(1, |(iterations, _)| *iterations))
    }

    /// Writes what the two ranks use of their processors in an iteration of `run`: the one that acts, and the one that waits
    /// for it in a barrier. `iterations` fill a block. Collective.
    pub(super) fn processors(&self, key: Key, iterations: u64, run: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        let iterations = iterations * LONGER;
        let mut us = [const { Vec::new() }; 2];
        for _ in 0..BLOCKS {
            self.team.barrier()?;
            let before = Usage::now(Of::Process)?;
            run(iterations)?;
            self.team.barrier()?;
            // A record has no zero.
            let used = (Usage::now(Of::Process)? - before).cpu.max(Duration::from_nanos(1));
            let all = coll::allgather(&self.team, &(used.as_secs_f64() * 1e6).to_le_bytes())?;
            for (us, used) in us.iter_mut().zip(&all) {
                us.push(super::seconds(used) / iterations as f64);
            }
        }
        for (op, us) in [Op::OriginCpu, Op::TargetCpu].into_iter().zip(us).filter(|_| self.rank == 0) {
            let key = Key { op, ..key };
            self.write(&Record::from_blocks(Library::Farside, VERSION, key, iterations * BLOCKS as u64, &us)?)?;
        }
        Ok(())
    }
}
