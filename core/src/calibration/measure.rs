#![allow(unsafe_code)]
//! The measurement: the lowest rank of a node, the leader, and the next rank send each other a message, at the same time
//! and then in turn, in the same way. Programs do both, and the best cut-offs differ: packets are copied by both
//! processors, which an exchange shows and a single message hides, since its second copy begins before the first has
//! ended; a read takes more steps one after the other, which a single message shows. The sum of both times for each way
//! and length gives the cut-offs; the leader sends them to the other ranks.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use super::{Fitted, MIN_CUT_OFF, Measured, NAME, QUANTITIES, Quantity};
use crate::am::{self, Counters, Delivery, HandlerId, Message, Messenger, OnComplete, Sink, Source};
use crate::cache::CacheFile;
use crate::device::Block;
use crate::engine::CancelOnDrop;
use crate::error::Result;
use crate::load::{Load, Measuring};
use crate::memory::segment::PAGE;
use crate::tracked::Track;

const OP: &str = "calibrate";
const HANDLER: HandlerId = HandlerId(u16::MAX - 5);
/// Number of exchanges, and of round trips, in each way at each length. The shortest is used, since disturbances only make
/// one longer.
const ROUNDS: usize = 8;
/// Maximum duration of a measurement. A longer one is abandoned, and repeated at the next start.
pub(super) const LIMIT: Duration = Duration::from_millis(40);

/// The header of a message: the number of its way and of its round, and a number. The leader begins an exchange by a
/// message without data, whose number is the length; another one, with the load of the other rank, says that it has ended.
/// A message with data whose number is [`ANSWER`] is answered by one of its length.
/// It has the length of the header of a program's message: the data is aligned in the same way, on which the time of a
/// copy depends.
type Header = [u8; 8];

/// The number of a message that is to be answered.
const ANSWER: u8 = 1;

fn header(way: u8, round: u8, number: u32) -> Header {
    let [a, b, c, d] = number.to_le_bytes();
    [way, round, 0, 0, a, b, c, d]
}

/// An arrival.
#[derive(Clone, Copy)]
enum Arrived {
    /// A message, with its length.
    Message(Header, usize),
    End(Option<Measured>),
}

/// Memory for messages, and the arrivals. The handler owns it too, so it outlives all messages.
struct Inbox {
    /// Maximum length of a message; a multiple of a page.
    max_len: usize,
    /// Memory for the messages of each round that are sent and received, with room to align them to pages.
    memory: [*mut [u8]; 2],
    arrived: RefCell<VecDeque<Arrived>>,
}

impl Inbox {
    fn new(max_len: usize) -> Self {
        let len = if max_len == 0 { 0 } else { ROUNDS * max_len + PAGE };
        // Pages that have not been written would all be the same page of zeros.
        let memory = [(); 2].map(|()| Box::into_raw(vec![1; len].into_boxed_slice()));
        Self { max_len, memory, arrived: RefCell::default() }
    }

    /// The memory of messages that are sent (0) or received (1) with this header.
    fn place(&self, side: usize, [way, round, ..]: Header) -> *mut u8 {
        let base = self.memory[side].cast::<u8>();
        let round = if quantity(way).reused { 0 } else { usize::from(round) % ROUNDS };
        base.wrapping_add(base.align_offset(PAGE) + round * self.max_len)
    }

    fn take(self: &Rc<Self>, m: Message<'_>) -> Delivery {
        match *m.header {
            [way, round, _, _, a, b, c, d] if usize::from(way) < 2 * QUANTITIES.len() => {
                let (inbox, header, len) = (Rc::clone(self), [way, round, 0, 0, a, b, c, d], m.len.min(self.max_len));
                // SAFETY: the completion, which owns the inbox, keeps the memory allocated; only this message accesses
                // it, since the next exchange begins after this one has ended.
                let sink = unsafe { Sink::memory(self.place(1, header), len) };
                let arrived = move |_| inbox.arrived.borrow_mut().push_back(Arrived::Message(header, len));
                Delivery::Into(sink, OnComplete::inline(arrived))
            }
            _ => {
                let end = Arrived::End(std::str::from_utf8(m.header).ok().and_then(Measured::parse));
                self.arrived.borrow_mut().push_back(end);
                Delivery::Done
            }
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        for memory in self.memory {
            // SAFETY: made by `Box::into_raw`, and no message from or to this memory is in progress.
            drop(unsafe { Box::from_raw(memory) });
        }
    }
}

/// The quantity to which a way belongs.
fn quantity(way: u8) -> &'static Quantity {
    &QUANTITIES[usize::from(way) / 2]
}

/// One end of the measurement.
struct End<'a> {
    job: &'a Messenger,
    inbox: Rc<Inbox>,
    measuring: Measuring,
    /// The last known load of the other end.
    load: Cell<Load>,
}

/// Measures messages of up to `max_len` bytes between the first two of `ranks`, the ranks of this node. Returns the
/// values at all of these ranks, or `None` if they cannot be measured within `limit`, or cannot be stored.
///
/// # Errors
/// `PeerLost`.
pub(super) fn together(
    job: &Messenger,
    ranks: &[u32],
    max_len: usize,
    limit: Duration,
    cache: Option<CacheFile>,
) -> Result<Option<Measured>> {
    let number = ranks.iter().position(|rank| *rank == job.rank_number());
    let inbox = Rc::new(Inbox::new(if number < Some(2) { max_len } else { 0 }));
    let handler = Rc::clone(&inbox);
    job.active_messages().register_any(HANDLER, move |m| handler.take(m))?;
    let (measuring, load) = (Measuring::begin(job.device().now()), Cell::default());
    let (end, before) = (End { job, inbox, measuring, load }, job.message_cut_offs());
    let found = if number == Some(0) { end.lead(ranks, max_len, limit, cache) } else { end.follow(ranks[0]) };
    job.message_cut_offs.set(before);
    let found = found?;
    job.active_messages().forget(HANDLER);
    Ok(found)
}

impl End<'_> {
    fn lead(
        &self,
        ranks: &[u32],
        max_len: usize,
        limit: Duration,
        cache: Option<CacheFile>,
    ) -> Result<Option<Measured>> {
        let replacement = cache.and_then(|cache| cache.replace().inspect_err(log_store_error).ok());
        let measured = if replacement.is_some() { self.measure(ranks[1], max_len, limit)? } else { None };
        let text = measured.map_or_else(String::new, |measured| measured.text());
        for rank in &ranks[1..] {
            am::notify(self.job, *rank, HANDLER, text.as_bytes())?;
        }
        if let (Some(replacement), Some(measured)) = (replacement, &measured) {
            let load = self.measuring.load(self.job.device().now()).max(self.load.get());
            let _ = replacement.set(NAME, load, |_| Some(measured.fitted.lines())).inspect_err(log_store_error);
        }
        Ok(measured)
    }

    fn follow(&self, leader: u32) -> Result<Option<Measured>> {
        loop {
            match self.arrival()? {
                Arrived::Message([way, round, _, _, len @ ..], 0) => {
                    let len = (u32::from_le_bytes(len) as usize).min(self.inbox.max_len);
                    self.send(leader, header(way, round, 0), len)?;
                }
                Arrived::Message([way, round, _, _, ANSWER, ..], len) => {
                    self.send(leader, header(way, round, 0), len)?
                }
                Arrived::Message([way, round, ..], _) => {
                    // Reading the load disturbs only the first of several exchanges, which takes longer anyway.
                    if round == 0 {
                        self.load.set(self.measuring.load(self.job.device().now()));
                    }
                    am::notify(self.job, leader, HANDLER, &header(way, round, self.load.get().thousandths()))?;
                }
                Arrived::End(measured) => return Ok(measured),
            }
        }
    }

    /// The next arrival.
    fn arrival(&self) -> Result<Arrived> {
        self.job.wait(OP, || Ok(self.inbox.arrived.borrow_mut().pop_front()))
    }

    /// An exchange, which has ended at both ranks when this returns. Returns the number of messages.
    fn exchange(&self, partner: u32, (way, round): (u8, u8), len: usize) -> Result<u32> {
        am::notify(self.job, partner, HANDLER, &header(way, round, len as u32))?;
        self.send(partner, header(way, round, 0), len)?;
        for _ in 0..2 {
            if let Arrived::Message([_, _, _, _, load @ ..], 0) = self.arrival()? {
                self.load.set(Load::of(u32::from_le_bytes(load)));
            }
        }
        Ok(4)
    }

    /// A message and its answer, which have arrived when this returns. Returns the number of messages.
    fn round_trip(&self, partner: u32, (way, round): (u8, u8), len: usize) -> Result<u32> {
        self.send(partner, header(way, round, ANSWER.into()), len)?;
        self.arrival().map(|_| 2)
    }

    /// Measures all quantities; `None` if that takes too long. If messages reuse their memory, the longest are measured
    /// first: the memory is then moved onto shared memory, and mapped by the other rank, before the lengths near the
    /// cut-off are measured.
    fn measure(&self, partner: u32, max_len: usize, limit: Duration) -> Result<Option<Measured>> {
        let (start, mut messages) = (self.job.device().now(), 0);
        let mut values = [max_len; QUANTITIES.len()];
        for ((quantity, value), way) in QUANTITIES.iter().zip(&mut values).zip((0..).step_by(2)) {
            let mut times = Vec::new();
            let mut lens = lengths(max_len);
            if quantity.reused {
                lens.reverse();
            }
            for len in lens {
                let mut times_of_len = [0.0; 2];
                for (time, way) in times_of_len.iter_mut().zip(way..) {
                    // In a row, as programs send: ways in turns would find each other's lines in the caches.
                    for pattern in [Self::exchange, Self::round_trip] {
                        let mut shortest = f64::MAX;
                        for round in 0..ROUNDS as u8 {
                            let before = self.job.device().now();
                            if before.duration_since(start) >= limit {
                                tracing::info!(
                                    "cut-offs cannot be measured while other programs use the ranks' processors"
                                );
                                return Ok(None);
                            }
                            messages += pattern(self, partner, (way, round), len)?;
                            shortest = shortest.min(self.job.device().now().duration_since(before).as_secs_f64());
                        }
                        *time += shortest;
                    }
                }
                times.push((len, times_of_len));
            }
            times.sort_by_key(|(len, _)| *len);
            tracing::debug!("{}: bytes and seconds of both ways: {times:?}", quantity.name);
            *value = crossover_length(&times, max_len);
        }
        Ok(Fitted::new(max_len, values).map(|fitted| Measured { fitted, messages }))
    }

    /// Sends a message; its memory is reusable afterwards.
    fn send(&self, to: u32, header: Header, len: usize) -> Result<()> {
        let [way, ..] = header;
        let cut_offs = quantity(way).ways[usize::from(way) % 2];
        self.job.message_cut_offs.set(cut_offs);
        let source = Source::Bytes(Block { base: self.inbox.place(0, header), len });
        let track = Track::new();
        let _open = CancelOnDrop::new(self.job, &track);
        // SAFETY: the message is complete or cancelled when this returns; the handler is this module's.
        unsafe {
            // A message that fits into a packet is read from the sender's memory only if it uses rendezvous.
            if cut_offs.read_intra == 0 {
                am::start_rendezvous(self.job, to, HANDLER, &header, source, &track)?;
            } else {
                am::start_send(self.job, to, HANDLER, &header, source, Counters::default(), &track)?;
            }
        }
        self.job.wait(OP, || Ok((track.open() == 0).then_some(())))?;
        track.check()
    }
}

fn log_store_error(e: &std::io::Error) {
    tracing::info!("measured cut-offs cannot be stored: {e}");
}

/// The measured lengths: powers of two.
fn lengths(max_len: usize) -> Vec<usize> {
    std::iter::successors(Some(MIN_CUT_OFF), |len| len.checked_mul(2)).take_while(|len| *len <= max_len).collect()
}

/// The minimum length at which the second way is faster. It lies between the two adjacent measured lengths that
/// minimize the product of the times of the chosen ways, a criterion that one outlier moves least; between them, the
/// difference of the times is interpolated linearly.
pub(crate) fn crossover_length(times: &[(usize, [f64; 2])], max_len: usize) -> usize {
    let cost = |k: usize| -> f64 {
        times.iter().enumerate().map(|(i, (_, time))| time[usize::from(i >= k)].max(f64::MIN_POSITIVE).ln()).sum()
    };
    let k = (0..=times.len()).min_by(|a, b| cost(*a).total_cmp(&cost(*b))).unwrap_or(0);
    match (k.checked_sub(1).map(|before| times[before]), times.get(k)) {
        (None, first) => first.map_or(max_len, |(len, _)| *len),
        (_, None) => max_len,
        (Some((len, before)), Some((next, after))) => {
            let (lost, won) = ((before[1] - before[0]).max(0.0), (after[0] - after[1]).max(0.0));
            let part = if lost + won > 0.0 { lost / (lost + won) } else { 1.0 };
            len + ((next - len) as f64 * part) as usize
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crossover_length_is_where_the_second_way_begins_to_win() {
        let times = |first: [f64; 3], second: [f64; 3]| [0, 1, 2].map(|i| (1024 << i, [first[i], second[i]]));
        let at = |first, second| crossover_length(&times(first, second), 5000);
        assert_eq!(at([2.0, 4.0, 8.0], [1.0, 2.0, 4.0]), 1024);
        assert_eq!(at([1.0, 2.0, 4.0], [2.0, 4.0, 8.0]), 5000);
        assert_eq!(at([1.0, 4.0, 8.0], [2.0, 3.0, 4.0]), 1536);
        // One outlier moves the crossover by at most one length.
        assert_eq!(at([2.0, 4.0, 3.9], [1.0, 2.0, 4.0]), 1024);
        assert_eq!(at([1.0, 2.0, 4.0], [0.9, 4.0, 8.0]), 5000);
        assert_eq!(at([1.0; 3], [1.0; 3]), 1024);
        assert_eq!(crossover_length(&[], 7), 7);
    }
}
