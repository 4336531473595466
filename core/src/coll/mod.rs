#![allow(unsafe_code)]
//! The collectives that remote memory access needs. Each algorithm is one file; [`TABLE`] lists them.
//!
//! Collectives with data exchange messages that are matched by team, call and round ([`Call`]); the barrier
//! uses signal cells alone. All ranks of a team call the same collectives in the same order.

pub mod allgather;
mod allgather_bruck;
pub mod allreduce;
mod allreduce_doubling;
pub mod alltoall;
pub mod barrier;
pub mod barrier_counter;
pub mod barrier_dissemination;
pub mod broadcast;
mod broadcast_binomial;
pub mod butterfly;
pub mod execute;
pub mod gather;
pub(crate) mod mailbox;
pub mod neighbor;
pub mod operation;
pub mod reduce;
pub mod reduce_scatter;
mod reduce_scatter_bruck;
mod regions;
pub mod scan;
pub mod scatter;
pub mod schedule;
pub mod selection;
pub mod table;
pub mod tree;

use std::rc::Rc;

pub use allgather_bruck::allgather;
pub use allreduce_doubling::allreduce;
pub use broadcast_binomial::broadcast;
pub use reduce_scatter_bruck::reduce_scatter;
pub use regions::exchange_regions;

use crate::am::{self, ActiveMessages, Counters, Delivery, HandlerId, Sink, Then};
use crate::error::{Error, ErrorKind, Result};
use crate::team::Team;
use crate::wire::{Reader, Writer};
use mailbox::Mailbox;

/// One algorithm, as data: what it does and what it costs.
#[derive(Debug)]
pub struct Algorithm {
    /// The collective.
    pub operation: &'static str,
    /// The algorithm.
    pub name: &'static str,
    /// Messages that one rank sends at most, for P ranks.
    pub messages: fn(usize) -> usize,
    /// Rounds until the last rank is done.
    pub rounds: fn(usize) -> usize,
}

/// All algorithms.
pub const TABLE: &[Algorithm] = &[
    Algorithm { operation: "barrier", name: "dissemination", messages: log2_up, rounds: log2_up },
    Algorithm {
        operation: "barrier",
        name: barrier_counter::NAME,
        messages: barrier_counter::messages,
        rounds: barrier_counter::messages,
    },
    Algorithm { operation: "broadcast", name: "binomial tree", messages: log2_up, rounds: log2_up },
    Algorithm { operation: "allgather", name: "Bruck", messages: log2_up, rounds: log2_up },
    Algorithm {
        operation: "allreduce",
        name: "recursive doubling",
        messages: allreduce_doubling::messages,
        rounds: allreduce_doubling::rounds,
    },
    Algorithm { operation: "reduce_scatter", name: "Bruck, reversed", messages: log2_up, rounds: log2_up },
];

/// ⌈log2 P⌉.
#[must_use]
pub fn log2_up(p: usize) -> usize {
    p.next_power_of_two().trailing_zeros() as usize
}

const HANDLER: HandlerId = HandlerId(u16::MAX);

/// Registers the handler of collective messages.
pub(crate) fn register(am: &ActiveMessages, mailbox: &Rc<Mailbox>) -> Result<()> {
    let mailbox = mailbox.clone();
    am.register(HANDLER, move |m| {
        let mut r = Reader::new(m.header);
        let Some((context, sequence, round)) = (|| Some((r.u32()?, r.u64()?, r.u32()?)))() else {
            tracing::warn!("a malformed collective message from rank {} was dropped", m.source);
            return Delivery::Done;
        };
        let key = (context, sequence, round, m.source);
        if let Some(data) = m.data {
            mailbox.put(key, Ok(data.to_vec()));
            return Delivery::Done;
        }
        let mailbox = mailbox.clone();
        let then = Then::quick(move |received| mailbox.put(key, received.map(|r| r.buffer)));
        Delivery::Into(Sink::buffer(Vec::new()), then)
    })
}

/// One call of a collective: its messages match only those of the same call.
#[derive(Debug)]
pub struct Call<'a> {
    team: &'a Team,
    sequence: u64,
    name: &'static str,
}

impl<'a> Call<'a> {
    /// The next call on `team`.
    #[must_use]
    pub fn new(team: &'a Team, name: &'static str) -> Self {
        Self { team, sequence: team.next_sequence(), name }
    }

    /// Sends `data` to team rank `to` in round `round`.
    ///
    /// # Errors
    /// `PeerLost`.
    pub fn send(&self, to: usize, round: usize, data: &[u8]) -> Result<()> {
        let header = Writer::new().u32(self.team.context()).u64(self.sequence).u32(round as u32).done();
        am::send(self.team.job(), self.team.job_rank(to)?, HANDLER, &header, data, Counters::default())
    }

    /// The data that team rank `from` sent in round `round`, waiting for it.
    ///
    /// # Errors
    /// `PeerLost`.
    pub fn receive(&self, from: usize, round: usize) -> Result<Vec<u8>> {
        let job = self.team.job();
        let key = (self.team.context(), self.sequence, round as u32, self.team.job_rank(from)?);
        job.wait(self.name, || job.mailbox().take(&key).transpose())
    }

    /// The error for data that no rank of the same call can have sent.
    pub fn mismatch(&self, from: usize, cause: impl Into<String>) -> Error {
        Error::new(ErrorKind::Mismatch, self.name).peer(self.team.members()[from]).cause(cause)
    }
}
