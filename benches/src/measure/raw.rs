//! Bare queue pairs of two ranks over verbs, whose requests are measured in turns with what they bound.

use std::cell::Cell;

use farside_core::coll;
use farside_core::error::Result;

use super::op::WORD;
use super::turns::Way;
use super::{Bench, Method, What};
use crate::limits::queue_pair::{Action, QueuePair};
use crate::record::{Library, Op};

/// The queue pair of this rank, connected with its partner's.
pub(super) struct Raw {
    pair: QueuePair,
    /// The last number that was passed to and fro.
    gone: Cell<u64>,
}

impl Raw {
    /// `None` unless times are taken of two ranks that verbs connect. Collective.
    pub(super) fn open(bench: &Bench<'_>, room: usize) -> Result<Option<Self>> {
        if bench.ranks != 2
            || bench.budget.method == Method::Packets
            || bench.job.device().capabilities().name != "verbs"
        {
            return Ok(None);
        }
        let mut pair = QueuePair::new(bench.rank, room)?;
        let cards = coll::allgather(&bench.team, &pair.card()?)?;
        let theirs = cards.get(bench.partner()).map_or(&[][..], |card| &card[..]);
        pair.connect(theirs)?;
        bench.team.barrier()?;
        Ok(Some(Self { pair, gone: Cell::new(0) }))
    }

    /// Times `run`, which the origin does with its `what`, in turns with the bare requests that bound it.
    pub(super) fn beside(&self, bench: &Bench<'_>, what: What, run: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        let origin = bench.is_origin();
        let bytes = what.bytes;
        let burst = what.per_iteration as usize;
        let repeat = |iterations, action, bytes, count| {
            let mine = if origin { 0..iterations } else { 0..0 };
            mine.into_iter().try_for_each(|_| self.pair.transfer(action, bytes, count))
        };
        let mut one_way = |iterations| self.pass(origin, iterations);
        let mut write = |iterations| repeat(iterations, Action::Write, bytes, 1);
        let mut writes = |iterations| repeat(iterations, Action::Write, bytes, burst);
        let mut reads = |iterations| repeat(iterations, Action::Read, bytes, burst);
        let mut read = |iterations| repeat(iterations, Action::Read, bytes, 1);
        let mut add = |iterations| repeat(iterations, Action::FetchAdd, 8, 1);
        let mut ours = |iterations| if origin { run(iterations) } else { Ok(()) };
        let mut ways = vec![Way { per_iteration: what.per_iteration, ..Way::of(Library::Farside, &mut ours) }];
        match what.op {
            Op::Put => {
                if bytes == WORD {
                    // There and back are two.
                    let (op, per_iteration) = (Some(Op::RawWrite), 2);
                    ways.push(Way { op, per_iteration, ..Way::of(Library::Limit, &mut one_way) });
                }
                ways.push(Way { op: Some(Op::RawWriteDone), ..Way::of(Library::Limit, &mut write) });
            }
            Op::Get => ways.push(Way { op: Some(Op::RawRead), ..Way::of(Library::Limit, &mut read) }),
            Op::FetchOp => ways.push(Way { op: Some(Op::RawAtomic), ..Way::of(Library::Limit, &mut add) }),
            Op::GetBandwidth => {
                let (op, per_iteration) = (Some(Op::RawReadBandwidth), what.per_iteration);
                ways.push(Way { op, per_iteration, ..Way::of(Library::Limit, &mut reads) });
            }
            _ => {
                let (op, per_iteration) = (Some(Op::RawWriteBandwidth), what.per_iteration);
                ways.push(Way { op, per_iteration, ..Way::of(Library::Limit, &mut writes) });
            }
        }
        bench.turns_within(bench.budget.in_many_blocks(), what.key(bench.ranks), origin, &mut ways).map(|_| ())
    }

    /// So many writes there and back, as perftest does them: after each the writer waits for its completion, and then for
    /// the other's write.
    fn pass(&self, origin: bool, times: u64) -> Result<()> {
        for _ in 0..times {
            let (odd, even) = (self.gone.get() + 1, self.gone.get() + 2);
            self.gone.set(even);
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
