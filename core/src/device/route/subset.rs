#![allow(unsafe_code)]
//! A device that connects some ranks of a job, which it numbers from 0: translates the numbers.

use std::time::Instant;

use crate::device::{
    Block, Capabilities, Device, Event, Leave, PeerCheck, Posted, Region, Registration, RemoteRegion, Sleep, Waker,
    WorkRequest, forward,
};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::keys::AccumulateFn;
use crate::stats::Stats;

/// The number of a rank that the device does not connect.
const NOT_HERE: u32 = u32::MAX;

/// A device whose peers are ranks of the job.
pub(crate) struct Subset {
    inner: Box<dyn Device>,
    /// The ranks of the job that the device connects, by their numbers in the device.
    ranks: Vec<u32>,
    /// Their numbers in the device, by rank of the job.
    numbers: Vec<u32>,
    capabilities: Capabilities,
}

impl Subset {
    /// The device `inner`, which connects `ranks` of a job of `size`.
    pub(crate) fn new(inner: Box<dyn Device>, ranks: Vec<u32>, size: u32) -> Self {
        let mut numbers = vec![NOT_HERE; size as usize];
        ranks.iter().zip(0..).for_each(|(rank, number)| numbers[*rank as usize] = number);
        let of_node = inner.capabilities().node.iter().filter_map(|number| ranks.get(*number as usize).copied());
        let capabilities = Capabilities { node: of_node.collect(), ..inner.capabilities().clone() };
        Self { inner, ranks, numbers, capabilities }
    }

    fn number(&self, peer: u32, operation: &'static str) -> Result<u32> {
        let number = self.numbers.get(peer as usize).copied().filter(|number| *number != NOT_HERE);
        number.ok_or_else(|| {
            let kind =
                if (peer as usize) < self.numbers.len() { ErrorKind::BadArgument } else { ErrorKind::NoSuchRank };
            let e = Error::new(kind, operation).peer(peer).device(self.capabilities.name);
            e.cause("the peer does not have this device")
        })
    }

    #[cold]
    fn renumbered(&self, e: Error) -> Error {
        e.renumbered(|number| self.ranks.get(number).map_or(number, |rank| *rank as usize))
    }
}

// SAFETY: passes on the memory that the inner device returns.
unsafe impl Device for Subset {
    forward!(inner: sealed, peers_can_map, waker, now, compute, stats, cancel);

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    unsafe fn register(&self, region: Region) -> Result<Registration> {
        // SAFETY: the same contract.
        unsafe { self.inner.register(region) }.map_err(|e| self.renumbered(e))
    }

    unsafe fn release(&self, handle: u64) -> Result<()> {
        // SAFETY: the same contract.
        unsafe { self.inner.release(handle) }.map_err(|e| self.renumbered(e))
    }

    fn import(&self, peer: u32, key: &[u8], accumulate: Option<AccumulateFn>) -> Result<RemoteRegion> {
        let number = self.number(peer, "import a peer's region")?;
        let remote = self.inner.import(number, key, accumulate).map_err(|e| self.renumbered(e))?;
        Ok(RemoteRegion { peer, ..remote })
    }

    unsafe fn forget(&self, handle: u64) {
        // SAFETY: the same contract.
        unsafe { self.inner.forget(handle) };
    }

    unsafe fn post(&self, request: &WorkRequest<'_>) -> Result<Posted> {
        let peer = self.number(request.peer, "post a work request")?;
        // SAFETY: the same contract.
        unsafe { self.inner.post(&WorkRequest { peer, ..*request }) }.map_err(|e| self.renumbered(e))
    }

    fn poll(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        let rank = |number: u32| self.ranks.get(number as usize).copied().unwrap_or(number);
        let polled = self.inner.poll(&mut |event| {
            sink(match event {
                Event::Completed { id, result } => {
                    Event::Completed { id, result: result.map_err(|e| self.renumbered(e)) }
                }
                Event::Packet { source, bytes } => Event::Packet { source: rank(source), bytes },
                Event::LongPacket { source, packet } => Event::LongPacket { source: rank(source), packet },
            });
        });
        polled.map_err(|e| self.renumbered(e))
    }

    fn park(&self, sleep: Sleep<'_>, ready: &mut dyn FnMut() -> bool) -> bool {
        self.inner.park(sleep, ready)
    }

    fn wake(&self, peer: u32) {
        if let Ok(number) = self.number(peer, "wake a peer") {
            self.inner.wake(number);
        }
    }

    fn check_peers(&self, about: PeerCheck<'_>) -> Result<Option<u32>> {
        let rank = |number: Option<u32>| number.and_then(|number| self.ranks.get(number as usize).copied());
        let checked = match about {
            PeerCheck::Asleep(peer) => match self.number(peer, "check a peer") {
                Ok(number) => self.inner.check_peers(PeerCheck::Asleep(number)),
                Err(_) => return Ok(None),
            },
            PeerCheck::Left(peer) => match self.number(peer, "leave a peer") {
                Ok(number) => self.inner.check_peers(PeerCheck::Left(number)),
                Err(_) => return Ok(None),
            },
            PeerCheck::Met(loss) => {
                let known = |rank: u32| self.number(rank, "check a peer").ok();
                // The device ignores the loss of a rank that it does not connect.
                if loss.blamed_number().and_then(known).is_none() {
                    return Ok(None);
                }
                let number = |rank: usize| known(rank as u32).map_or(rank, |number| number as usize);
                self.inner.check_peers(PeerCheck::Met(&loss.again().renumbered(number)))
            }
            about => self.inner.check_peers(about),
        };
        checked.map(rank).map_err(|e| self.renumbered(e))
    }

    fn leave(&self, how: Leave) -> Result<bool> {
        self.inner.leave(how).map_err(|e| self.renumbered(e))
    }
}
