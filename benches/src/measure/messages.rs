//! Operations without windows: round trips of 8 bytes by active messages, compared with the peers' send and receive;
//! the team's barrier; and the ghost-area exchange by active messages, whose header handler copies a short message into
//! the area, and returns the buffer for a long one.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use farside_core::am::{self, Counters, Delivery, HandlerId, OnComplete, Sink};
use farside_core::error::Result;

use super::Bench;
use super::epochs::{DIRECTIONS, INTEGER, area, arriving, neighbours};
use super::limits::Lines;
use super::turns::Way;
use crate::lines::Pattern;
use crate::record::{Library, Op, Suite, Sync, Window};

const PING: HandlerId = HandlerId(1);
const GHOST: HandlerId = HandlerId(2);

/// An iteration sends a word to the odd rank, whose header handler reads it, and returns it incremented by one; with
/// two ranks, alternating with round trips of cache lines.
pub(super) fn ping_pong(bench: &Bench<'_>) -> Result<()> {
    // The number of messages that have arrived, and the word of the last.
    let arrived = Rc::new((Cell::new(0), Cell::new(0)));
    let taken = arrived.clone();
    let handler = move |message: am::Message<'_>| {
        if let Some(word) = message.data().and_then(|data| data.try_into().ok()) {
            taken.1.set(u64::from_le_bytes(word));
            taken.0.set(taken.0.get() + 1);
        }
        Delivery::Done
    };
    bench.job.active_messages().register(PING, handler)?;
    bench.team.barrier()?;
    let key = bench.key(Suite::Am, Window::None, Sync::None, Op::Pingpong, 8);
    let (partner, mut expected) = (bench.partner() as u32, 0_u64);
    let send = |word: u64| am::send(bench.job, partner, PING, &[], &word.to_le_bytes(), Counters::default());
    let mut receive = || {
        expected += 1;
        bench.job.wait("receive a word", || Ok((arrived.0.get() >= expected).then(|| arrived.1.get())))
    };
    let mut ping_pong = |iterations: u64| {
        let mut word = 0;
        if bench.is_origin() {
            for _ in 0..iterations {
                send(word)?;
                word = receive()?;
            }
            bench.check(word == iterations, key, "the partner did not increment the word")
        } else {
            (0..iterations).try_for_each(|_| send(receive()? + 1))
        }
    };
    if let Some(lines) = Lines::open(bench)? {
        let mut line = |iterations| lines.pass(bench, Pattern::RoundTrip, iterations);
        let mut two_lines = |iterations| lines.pass(bench, Pattern::TwoLines, iterations);
        let mut worked = |iterations| lines.pass(bench, Pattern::Worked, iterations);
        let mut ways = [
            Way::of(Library::Farside, &mut ping_pong),
            Way::of(Library::Limit, &mut line),
            Way::of(Library::Limit, &mut two_lines).named(Op::TwoLinesRoundTrip),
            Way::of(Library::Limit, &mut worked).named(Op::WorkedRoundTrip),
        ];
        bench.time_alternating(key, bench.is_origin(), &mut ways)?;
        lines.free()?;
    } else {
        bench.time_single(key, 1, bench.is_origin(), &mut ping_pong)?;
    }
    bench.job.active_messages().unregister(PING);
    Ok(())
}

/// An iteration is one barrier of all ranks; with two ranks, alternating with a one-way cache line, and a bare barrier
/// of two.
pub(super) fn barrier(bench: &Bench<'_>) -> Result<()> {
    let key = bench.key(Suite::Barrier, Window::None, Sync::None, Op::Barrier, 0);
    let mut barrier = |iterations| (0..iterations).try_for_each(|_| bench.team.barrier());
    let Some(lines) = Lines::open(bench)? else { return bench.time_single(key, 1, true, &mut barrier) };
    let mut line = |iterations| lines.pass(bench, Pattern::RoundTrip, iterations);
    let mut meeting = |iterations| lines.pass(bench, Pattern::Meeting, iterations);
    let mut ways = [
        Way::of(Library::Farside, &mut barrier),
        Way::of(Library::Limit, &mut line).each(2),
        Way::of(Library::Limit, &mut meeting).named(Op::BareMeeting),
    ];
    bench.time_alternating(key, true, &mut ways)?;
    lines.free()
}

/// Incoming areas, of exchanges with an even and with an odd number: a neighbour may be at most one exchange ahead,
/// since it then needs this rank's data.
#[derive(Default)]
struct Inbox {
    areas: [[Vec<u8>; DIRECTIONS]; 2],
    arrived: [u64; DIRECTIONS],
}

/// The header handler: the header has the number of the area, and whether the exchange's number is even.
fn take(inbox: &Rc<RefCell<Inbox>>, message: am::Message<'_>) -> Delivery {
    let &[d, parity] = message.header else { return Delivery::Done };
    let (d, parity) = (usize::from(d) % DIRECTIONS, usize::from(parity) % 2);
    let mut now = inbox.borrow_mut();
    if let Some(data) = message.data() {
        let area = &mut now.areas[parity][d];
        area.clear();
        area.extend_from_slice(data);
        now.arrived[d] += 1;
        return Delivery::Done;
    }
    let (buffer, inbox) = (std::mem::take(&mut now.areas[parity][d]), inbox.clone());
    let then = OnComplete::inline(move |received| {
        // If the neighbour has cancelled the message, it reports the failure itself.
        if let Ok(received) = received {
            let mut inbox = inbox.borrow_mut();
            inbox.areas[parity][d] = received.buffer;
            inbox.arrived[d] += 1;
        }
    });
    Delivery::Into(Sink::buffer(buffer), then)
}

/// An iteration is one exchange of areas of the given number of integers; two checked exchanges come first. Collective.
pub(super) fn ghost(bench: &Bench<'_>, counts: &[u64]) -> Result<()> {
    let inbox = Rc::new(RefCell::new(Inbox::default()));
    let taken = inbox.clone();
    bench.job.active_messages().register(GHOST, move |message: am::Message<'_>| take(&taken, message))?;
    bench.team.barrier()?;
    let (job, to, mut number) = (bench.job, neighbours(bench.rank, bench.ranks), 0_u64);
    let mut exchange = |out: &[Vec<u8>], iterations: u64| {
        for _ in 0..iterations {
            number += 1;
            for (d, data) in out.iter().enumerate() {
                let header = [(d ^ 1) as u8, (number % 2) as u8];
                am::send(job, to[d] as u32, GHOST, &header, data, Counters::default())?;
            }
            let all = || inbox.borrow().arrived.iter().all(|arrived| *arrived >= number);
            job.wait("exchange areas", || Ok(all().then_some(())))?;
        }
        Ok(number as usize % 2)
    };
    for &n in counts {
        let key = bench.key(Suite::Ghost, Window::None, Sync::Twosided, Op::Ghost, n as usize * INTEGER);
        let out = |round| (0..DIRECTIONS).map(|d| area(bench.rank, d, round, n as usize).collect()).collect::<Vec<_>>();
        for round in 0..2 {
            inbox.borrow_mut().areas.as_flattened_mut().iter_mut().for_each(Vec::clear);
            bench.team.barrier()?;
            let parity = exchange(&out(round), 1)?;
            bench.team.barrier()?;
            let holds = inbox.borrow().areas[parity].concat() == arriving(&to, round, n as usize);
            bench.check(holds, key, "a ghost area does not contain the data that the neighbour sent")?;
            bench.team.barrier()?;
        }
        let out = out(1);
        bench.time_single(key, 1, true, &mut |iterations| exchange(&out, iterations).map(|_| ()))?;
    }
    bench.job.active_messages().unregister(GHOST);
    Ok(())
}
