#![allow(unsafe_code)]
//! The collectives that remote memory access needs. Each algorithm is one file; [`TABLE`] lists them.
//!
//! Collectives with data exchange messages that are matched by team, call and round ([`Call`]); the barrier
//! uses signal cells alone. All ranks of a team call the same collectives in the same order.

pub mod allgather_bruck;
pub mod allreduce_doubling;
pub mod barrier_counter;
pub mod barrier_dissemination;
pub mod broadcast_binomial;
pub mod reduce_scatter_bruck;

use std::cell::RefCell;
use std::rc::Rc;

use rustc_hash::FxHashMap;

pub use allgather_bruck::allgather;
pub use allreduce_doubling::allreduce;
pub use broadcast_binomial::broadcast;
pub use reduce_scatter_bruck::reduce_scatter;

use crate::am::{self, ActiveMessages, Counters, Delivery, HandlerId, Then};
use crate::device::{Registration, RemoteRegion};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::keys::AccumulateFn;
use crate::team::Team;
use crate::wire::{Reader, Writer};

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

type Key = (u32, u64, u32, u32);

/// Messages of collectives that have come and were not asked for yet.
#[derive(Debug, Default)]
pub struct Mailbox {
    messages: RefCell<FxHashMap<Key, Vec<u8>>>,
}

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
        let mailbox = mailbox.clone();
        Delivery::Into(
            Vec::new(),
            Then::Quick(Box::new(move |data| {
                mailbox.messages.borrow_mut().insert(key, data);
            })),
        )
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
        job.wait(self.name, || Ok(job.mailbox().messages.borrow_mut().remove(&key)))
    }

    /// The error for data that no rank of the same call can have sent.
    pub fn mismatch(&self, from: usize, cause: impl Into<String>) -> Error {
        Error::new(ErrorKind::Mismatch, self.name).peer(self.team.members()[from]).cause(cause)
    }
}

/// Exchanges regions: every rank of the team learns the key of every other's registration and imports it.
/// If one rank has failed, all fail, and what was registered is released. Two allgathers.
///
/// # Safety
/// `own` is of the device of the team's job, and where the exchange fails its memory is not used any more.
///
/// # Errors
/// This rank's own failure, or one that names the rank that failed.
pub unsafe fn exchange_regions(
    team: &Team,
    own: Result<Registration>,
    accumulate: Option<AccumulateFn>,
) -> Result<(Registration, Vec<RemoteRegion>)> {
    let device = team.job().device();
    let handle = own.as_ref().ok().map(|r| r.handle);
    let mut remotes = Vec::with_capacity(team.size());
    match exchange_and_import(team, own, accumulate, &mut remotes) {
        Ok(own) => Ok((own, remotes)),
        Err(e) => {
            // Also when a peer is lost: the caller has nothing by which it could release its memory.
            for r in remotes {
                // SAFETY: nobody else has been given the region.
                unsafe { device.forget(r.handle) };
            }
            // SAFETY: by the contract nobody uses it.
            if let Some(Err(kept)) = handle.map(|h| unsafe { device.release(h) }) {
                tracing::warn!("memory was not released: {kept}");
            }
            Err(e)
        }
    }
}

fn exchange_and_import(
    team: &Team,
    own: Result<Registration>,
    accumulate: Option<AccumulateFn>,
    remotes: &mut Vec<RemoteRegion>,
) -> Result<Registration> {
    const OP: &str = "exchange regions";
    team.job().running(OP)?;
    let device = team.job().device();
    let message = match &own {
        Ok(r) => Writer::new().u8(1).bytes(&r.key).done(),
        Err(e) => Writer::new().u8(0).bytes(e.to_string().as_bytes()).done(),
    };
    let others = allgather(team, &message)?;
    let mut failure = None;
    for (rank, bytes) in others.iter().enumerate() {
        let peer = team.job_rank(rank)?;
        let mut r = Reader::new(bytes);
        let imported = match (r.u8(), r.bytes()) {
            (Some(1), Some(key)) if failure.is_none() && own.is_ok() => device.import(peer, key, accumulate),
            (Some(1), Some(_)) => continue,
            (Some(0), Some(text)) => {
                Err(Error::new(ErrorKind::Aborted, OP).peer(peer).cause(String::from_utf8_lossy(text)))
            }
            _ => Err(Error::new(ErrorKind::Protocol, OP).peer(peer)),
        };
        match imported {
            Ok(remote) => remotes.push(remote),
            Err(e) => {
                failure.get_or_insert(e);
            }
        }
    }
    // Everyone hears whether everyone has imported everything; from then on the names are not needed.
    let verdict = failure.as_ref().map_or(Vec::new(), |e| e.to_string().into_bytes());
    let verdicts = allgather(team, &verdict)?;
    let own = own?;
    if failure.is_none() {
        failure = verdicts.iter().position(|v| !v.is_empty()).map(|rank| {
            let text = String::from_utf8_lossy(&verdicts[rank]).into_owned();
            Error::new(ErrorKind::Aborted, OP).peer(team.members()[rank]).cause(text)
        });
    }
    device.settled(own.handle);
    failure.map_or(Ok(own), Err)
}
