#![allow(unsafe_code)]
//! The exchange of the records of one call, over the shadow of its communicator.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::level;
use crate::pmpi::{self, BYTE, Status};
use crate::say::report;
use crate::shadow::{Shadow, lock, ok};

/// The maximum number of calls in progress on one communicator: tags stay below 32767, the smallest bound that the
/// standard permits.
const CALLS: c_int = 8192;
/// The maximum wait, after an error, until the other ranks have reported it too.
pub const SETTLE: Duration = Duration::from_secs(2);

/// State of a wait for other ranks, which polls, then yields, then sleeps between polls.
pub struct Wait {
    pub since: Instant,
    turns: u32,
    reported: bool,
}

impl Wait {
    pub fn new() -> Self {
        Self { since: Instant::now(), turns: 0, reported: false }
    }

    /// Backs off. Returns true once, when it is time to report the ranks for which this rank waits.
    pub fn turn(&mut self) -> bool {
        self.turns += 1;
        match self.turns {
            0..20 => {}
            20..200 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(50)),
        }
        let late = !self.reported && level::stall().is_some_and(|stall| self.since.elapsed() >= stall);
        self.reported |= late;
        late
    }

    pub fn time(&self) -> String {
        format!("for {:.1} s", self.since.elapsed().as_secs_f32())
    }
}

impl Shadow {
    /// Sends a record to all ranks with the number of the call as its tag, or to some ranks with a given tag; then
    /// expects records of these ranks.
    pub fn start(self: &Arc<Self>, bytes: Vec<u8>, with: Option<(Vec<usize>, c_int)>) -> Result<Pending, c_int> {
        let (ranks, tag) = match with {
            Some((ranks, tag)) => (ranks, 2 * CALLS + tag.rem_euclid(CALLS)),
            // Relaxed: pairs with nothing, since only the count is shared between threads.
            None => ((0..self.places.len()).collect(), self.next.fetch_add(1, Ordering::Relaxed).rem_euclid(CALLS)),
        };
        self.exchange(bytes, ranks, tag)
    }

    fn exchange(self: &Arc<Self>, bytes: Vec<u8>, ranks: Vec<usize>, tag: c_int) -> Result<Pending, c_int> {
        self.sweep();
        let mut outbox = lock(&self.outbox);
        for peer in ranks.iter().filter(|peer| **peer != self.me) {
            let mut request = pmpi::REQUEST_NULL;
            let copy = bytes.clone();
            // SAFETY: the outbox owns the bytes until the request has completed.
            ok(unsafe {
                pmpi::MPI_Isend(
                    copy.as_ptr().cast(),
                    copy.len() as c_int,
                    BYTE,
                    *peer as c_int,
                    tag,
                    self.comm,
                    &raw mut request,
                )
            })?;
            outbox.push((request, copy));
        }
        drop(outbox);
        let mut got = vec![None; self.places.len()];
        got[self.me] = Some(bytes);
        Ok(Pending { shadow: Arc::clone(self), tag, ranks, got })
    }
}

/// The exchange of records for one call.
#[derive(Debug)]
pub struct Pending {
    pub shadow: Arc<Shadow>,
    tag: c_int,
    ranks: Vec<usize>,
    /// Records that have arrived, by rank.
    pub got: Vec<Option<Vec<u8>>>,
}

impl Pending {
    /// The number of the call on its communicator, from 1, modulo `CALLS`; `None` for a call of some of the ranks.
    pub fn number(&self) -> Option<c_int> {
        (self.tag < CALLS).then_some(self.tag + 1)
    }

    fn missing(&self) -> impl Iterator<Item = usize> {
        self.ranks.iter().copied().filter(|rank| self.got[*rank].is_none())
    }

    /// Receives the records that have arrived; returns true if none is missing. Each missing rank is probed
    /// individually, since calls of other ranks may have the same tag.
    pub fn progress(&mut self) -> Result<bool, c_int> {
        for peer in self.missing().collect::<Vec<_>>() {
            let (mut flag, mut message, mut status) = (0, pmpi::MESSAGE_NULL, Status::default());
            // SAFETY: the outputs are local variables, and the buffer has the length of the message.
            unsafe {
                let comm = self.shadow.comm;
                let source = peer as c_int;
                ok(pmpi::MPI_Improbe(source, self.tag, comm, &raw mut flag, &raw mut message, &raw mut status))?;
                if flag == 0 {
                    continue;
                }
                let mut count = 0;
                ok(pmpi::MPI_Get_count(&raw const status, BYTE, &raw mut count))?;
                let mut bytes = vec![0u8; count.max(0) as usize];
                ok(pmpi::MPI_Mrecv(bytes.as_mut_ptr().cast(), count, BYTE, &raw mut message, &raw mut status))?;
                self.got[peer] = Some(bytes);
            }
        }
        Ok(self.missing().next().is_none())
    }

    /// Waits for all records; if that takes long, reports the missing ranks once.
    pub fn finish(&mut self, name: &str) -> Result<(), c_int> {
        let mut wait = Wait::new();
        while !self.progress()? {
            if wait.turn() {
                self.report(name, &wait);
            }
        }
        Ok(())
    }

    /// Reports the ranks whose records are missing.
    pub fn report(&self, name: &str, wait: &Wait) {
        let shadow = &self.shadow;
        let side = shadow.places[shadow.me].side;
        let ranks = self.missing().take(8).map(|at| {
            let place = shadow.places[at];
            format!("{}{}", place.rank, if place.side == side { "" } else { " of the other group" })
        });
        let ranks: Vec<_> = ranks.collect();
        let more = self.missing().count() - ranks.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        report(name, shadow.rank(), &format!("waits for the call of {}{more}, {}", ranks.join(", "), wait.time()));
    }

    /// After an error: waits until the others have reported it too, at most [`SETTLE`].
    pub fn settle(&self) {
        let Ok(mut others) = self.shadow.exchange(Vec::new(), self.ranks.clone(), self.tag + CALLS) else { return };
        let mut wait = Wait::new();
        while others.progress() == Ok(false) && wait.since.elapsed() < SETTLE {
            wait.turn();
        }
    }
}
