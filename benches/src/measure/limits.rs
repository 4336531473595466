//! The limits that two ranks measure themselves, on the same cores and alternating with operations of Farside: cache
//! lines, and bare queue pairs over verbs. A change of the cores' speed or placement then affects both.

use std::cell::Cell;
use std::time::Duration;

use farside_core::coll;
use farside_core::error::Result;

use super::turns::{Run, Way};
use super::untyped::Untyped;
use super::{Bench, Method};
use crate::limits::queue_pair::{Action, QueuePair};
use crate::lines::{Pattern, Side, turns_of};
use crate::record::{Key, Library, Op, Window};

/// The distance in bytes from the words of one pattern to those of the next.
const PATTERN_STRIDE: usize = 2048;
/// The work of a rank between receiving a line and returning it in [`Pattern::Worked`]: about a hundred instructions,
/// fewer than any dispatcher with a handler needs.
const WORK: Duration = Duration::from_nanos(40);

/// The lines of two ranks that have one core each.
pub(super) struct Lines {
    memory: Untyped,
    /// The last number of each pattern.
    last: [Cell<u64>; 4],
    /// The iterations of an empty loop that take [`WORK`].
    work: u64,
}

impl Lines {
    /// `None` unless there are two ranks, each with its own core, that map each other's memory. Collective.
    pub(super) fn open(bench: &Bench<'_>) -> Result<Option<Self>> {
        if bench.ranks != 2 || bench.job.spins() == 0 {
            return Ok(None);
        }
        let memory = Untyped::new(&bench.team, Window::Allocated, 4 * PATTERN_STRIDE)?;
        if !memory.is_mapped(0)? || !memory.is_mapped(1)? {
            memory.free()?;
            return Ok(None);
        }
        Ok(Some(Self { memory, last: Default::default(), work: turns_of(WORK) }))
    }

    /// Repeats a pattern `times` times, by both ranks.
    pub(super) fn pass(&self, bench: &Bench<'_>, pattern: Pattern, times: u64) -> Result<()> {
        let [first, second] = pattern.words().map(|at| self.memory.word(0, PATTERN_STRIDE * pattern as usize + at));
        let (Some(first), Some(second)) = (first?, second?) else { return Ok(()) };
        let begins = bench.is_origin();
        let (ours, theirs) = if begins { (first, second) } else { (second, first) };
        let work = if pattern == Pattern::Worked { self.work } else { 0 };
        let check = &|| bench.job.check_peers();
        Side { ours, theirs, begins, last: &self.last[pattern as usize], work, check }.pass(pattern, times)
    }

    /// Frees the memory. Collective.
    pub(super) fn free(self) -> Result<()> {
        self.memory.free()
    }
}

/// The queue pair of this rank, connected with that of its partner.
pub(super) struct BareQueuePair {
    pair: QueuePair,
    /// The last number that was passed.
    last: Cell<u64>,
}

impl BareQueuePair {
    /// `None` unless the method measures times and there are two ranks, connected over verbs. Collective.
    pub(super) fn open(bench: &Bench<'_>, room: usize) -> Result<Option<Self>> {
        if bench.ranks != 2
            || bench.budget.method == Method::Packets
            || bench.job.device().capabilities().name != "verbs"
        {
            return Ok(None);
        }
        let mut pair = QueuePair::new(bench.rank, room)?;
        let addresses = coll::allgather(&bench.team, &pair.address)?;
        pair.connect(addresses.get(bench.partner()).map_or(&[][..], |address| &address[..]))?;
        bench.team.barrier()?;
        Ok(Some(Self { pair, last: Cell::new(0) }))
    }

    /// Times `run`, which the origin executes, alternating with the bare requests that bound it.
    pub(super) fn time_with_bare_requests(
        &self,
        bench: &Bench<'_>,
        key: Key,
        per_iteration: u32,
        run: Run<'_>,
    ) -> Result<()> {
        let (origin, bytes) = (bench.is_origin(), key.bytes as usize);
        let repeat = |iterations, action, count: u32| {
            let mine = if origin { 0..iterations } else { 0..0 };
            mine.into_iter().try_for_each(|_| self.pair.transfer(action, bytes, count as usize))
        };
        let (name, action, count) = match key.op {
            Op::Put => (Op::RawWriteDone, Action::Write, 1),
            Op::Get => (Op::RawRead, Action::Read, 1),
            Op::FetchOp => (Op::RawAtomic, Action::FetchAdd, 1),
            Op::GetBandwidth => (Op::RawReadBandwidth, Action::Read, per_iteration),
            _ => (Op::RawWriteBandwidth, Action::Write, per_iteration),
        };
        let mut ours = |iterations| if origin { run(iterations) } else { Ok(()) };
        let mut bare = |iterations| repeat(iterations, action, count);
        let mut one_way = |iterations| self.pass(origin, iterations);
        let mut ways = vec![
            Way::of(Library::Farside, &mut ours).each(per_iteration),
            Way::of(Library::Limit, &mut bare).named(name).each(count),
        ];
        if key.op == Op::Put && bytes == 8 {
            // A round trip has two messages.
            ways.push(Way::of(Library::Limit, &mut one_way).named(Op::RawWrite).each(2));
        }
        bench.time_alternating_within(bench.budget.in_many_blocks(), key, origin, &mut ways).map(|_| ())
    }

    /// Writes in both directions, as in perftest: after each write the writer waits for its completion, and then for
    /// the other side's write.
    fn pass(&self, origin: bool, times: u64) -> Result<()> {
        for _ in 0..times {
            let (odd, even) = (self.last.get() + 1, self.last.get() + 2);
            self.last.set(even);
            if origin {
                self.pair.send(odd)?;
                self.pair.receive(even)?;
            } else {
                self.pair.receive(odd)?;
                self.pair.send(even)?;
            }
        }
        Ok(())
    }
}
