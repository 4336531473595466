//! Suite "am": 8 bytes there and back by active messages, beside the peers' send and receive; of two ranks in turns with
//! lines that go there and back by themselves.

use std::cell::Cell;
use std::rc::Rc;

use farside_core::am::{self, Counters, Delivery, HandlerId};
use farside_core::error::Result;

use super::lines::{Lines, Pattern};
use super::turns::Way;
use super::{Bench, What};
use crate::record::{Library, Op, Suite, Sync, Window};

const HANDLER: HandlerId = HandlerId(1);

/// What the header handler has taken: how many messages, and the word of the last.
#[derive(Default)]
struct Arrived {
    messages: Cell<u64>,
    word: Cell<u64>,
}

/// An iteration: a word to the odd rank, whose header handler takes it, and back, counted up by one.
pub(super) fn run(bench: &Bench<'_>) -> Result<()> {
    let arrived = Rc::new(Arrived::default());
    let handler = {
        let arrived = arrived.clone();
        move |message: am::Message<'_>| {
            if let Some(word) = message.data.and_then(|data| data.try_into().ok()) {
                arrived.word.set(u64::from_le_bytes(word));
                arrived.messages.set(arrived.messages.get() + 1);
            }
            Delivery::Done
        }
    };
    bench.job.active_messages().register(HANDLER, handler)?;
    bench.team.barrier()?;
    let partner = bench.partner() as u32;
    let mut expected = 0;
    let send = |word: u64| am::send(bench.job, partner, HANDLER, &[], &word.to_le_bytes(), Counters::default());
    let mut receive = || {
        expected += 1;
        bench.job.wait("receive a word", || Ok((arrived.messages.get() >= expected).then(|| arrived.word.get())))
    };
    let mut ping_pong = |iterations: u64| {
        let mut word = 0;
        if bench.is_origin() {
            for _ in 0..iterations {
                send(word)?;
                word = receive()?;
            }
            let holds = word == iterations;
            bench.check(holds, Suite::Am, Sync::None, Op::Pingpong, "the word was not counted up by the partner")
        } else {
            (0..iterations).try_for_each(|_| send(receive()? + 1))
        }
    };
    let what =
        What { suite: Suite::Am, window: Window::None, sync: Sync::None, op: Op::Pingpong, bytes: 8, per_iteration: 1 };
    if let Some(lines) = Lines::open(bench)? {
        let mut line = |iterations| lines.pass(bench, Pattern::RoundTrip, iterations);
        let mut two_lines = |iterations| lines.pass(bench, Pattern::TwoLines, iterations);
        let mut worked = |iterations| lines.pass(bench, Pattern::Worked, iterations);
        let mut ways = [
            Way::of(Library::Farside, &mut ping_pong),
            Way::of(Library::Limit, &mut line),
            Way { op: Some(Op::TwoLinesRoundTrip), ..Way::of(Library::Limit, &mut two_lines) },
            Way { op: Some(Op::WorkedRoundTrip), ..Way::of(Library::Limit, &mut worked) },
        ];
        bench.turns(what.key(bench.ranks), bench.is_origin(), &mut ways)?;
        lines.free()?;
    } else {
        bench.measure(&what, bench.is_origin(), &mut ping_pong)?;
    }
    bench.job.active_messages().unregister(HANDLER);
    Ok(())
}
