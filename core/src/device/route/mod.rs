#![allow(unsafe_code)]
//! Two devices as one: an intra-node device to the ranks of this node, an inter-node device to all.
//!
//! A packet to a rank of the same node goes by the former, any other by the latter; a pair of ranks always uses the
//! same one, so packets stay in order.
//!
//! A region belongs to one device, for all pairs of ranks: to the intra-node device where all that will use it are on one
//! node ([`Region::one_node`]), else to the other, by which ranks of one node then reach each other's part too. The atomics
//! of an HCA need not be coherent with the processor's, and a word that one rank changes by the HCA and another by its
//! processor could lose updates; with one device a region there is one atomic domain. The cost: within a
//! node operations on such a region take a round through the HCA instead of a copy. A program that wants
//! both makes a team of each node ([`Team::split_by_node`](crate::Team::split_by_node)) and windows over it.
//!
//! Which device a region belongs to stands in its handle (the lowest bit) and in its key (the first byte).
//!
//! Waiting looks at both devices. A rank that sleeps does so on the intra-node device, after it has given the other one
//! its waker: so an inter-node event costs a sleeping rank one thread switch more than it would alone.

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::{
    Capabilities, Device, Event, Leave, MAX_KEY, MessageCutOffs, Operation, PeerCheck, Place, Posted, Region,
    Registration, RemoteRegion, Sleep, Waker, WorkRequest,
};
use crate::entered::Entered;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::keys::AccumulateFn;
use crate::stats::Stats;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// The device of the ranks of this node.
    Intra,
    /// The device that reaches all ranks.
    Inter,
}

impl Side {
    fn of(handle: u64) -> Self {
        if handle & 1 == 0 { Self::Intra } else { Self::Inter }
    }

    /// The handle that the job sees for this side's own.
    fn outer(self, handle: u64) -> u64 {
        handle << 1 | u64::from(self == Self::Inter)
    }
}

/// This side's own handle.
fn inner(handle: u64) -> u64 {
    handle >> 1
}

/// The same operation with the side's own handle, and the handle that it had.
fn translated<'a>(operation: &Operation<'a>) -> (Operation<'a>, Option<u64>) {
    let mut o = *operation;
    let region = match &mut o {
        Operation::Write { to: at, .. }
        | Operation::Read { from: at, .. }
        | Operation::FetchAdd { at, .. }
        | Operation::CompareSwap { at, .. }
        | Operation::Accumulate { at, .. }
        | Operation::Signal { at, .. } => &mut at.region,
        Operation::WriteBlocks { to: at, .. } | Operation::ReadBlocks { from: at, .. } => &mut at.region,
        Operation::SendShort(_) | Operation::Send { .. } | Operation::Scatter { .. } | Operation::Gather { .. } => {
            return (o, None);
        }
    };
    let outer = std::mem::replace(region, inner(*region));
    (o, Some(outer))
}

/// A device of the ranks of this node and one of all ranks, as one.
pub struct RouteDevice<N, F> {
    intra: N,
    inter: F,
    /// Of each rank of the job, whether it is on this node.
    on_node: Vec<bool>,
    capabilities: Capabilities,
    waker: Waker,
    polling: Cell<bool>,
}

impl<N: fmt::Debug, F: fmt::Debug> fmt::Debug for RouteDevice<N, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteDevice").field("intra", &self.intra).field("inter", &self.inter).finish_non_exhaustive()
    }
}

impl<N: Device, F: Device> RouteDevice<N, F> {
    /// Joins `intra`, which connects the ranks of its [`Capabilities::node`], and `inter`, which connects all `size`.
    ///
    /// # Errors
    /// `Unsupported` if the intra-node device has no waker.
    pub fn new(intra: N, inter: F, size: u32) -> Result<Self> {
        let waker = intra.waker()?;
        let (n, f) = (intra.capabilities(), inter.capabilities());
        let on_node = (0..size).map(|rank| n.node.contains(&rank)).collect();
        // What regions that any rank may use have; of memory that is mapped there is nothing to choose.
        let capabilities = Capabilities {
            name: "route",
            node: n.node.clone(),
            max_blocks: n.max_blocks.min(f.max_blocks),
            max_packet: n.max_packet.min(f.max_packet),
            messages: MessageCutOffs {
                read_intra: n.messages.read_intra,
                read_oversubscribed: n.messages.read_oversubscribed,
                ..f.messages
            },
            mapped: false,
            accumulate: n.accumulate && f.accumulate,
            sleepers_fence: n.sleepers_fence,
            ..f.clone()
        };
        Ok(Self { intra, inter, on_node, capabilities, waker, polling: Cell::new(false) })
    }

    fn is_on_node(&self, peer: u32, operation: &'static str) -> Result<bool> {
        let known = self.on_node.get(peer as usize).copied();
        known.ok_or_else(|| Error::new(ErrorKind::NoSuchRank, operation).peer(peer).device("route"))
    }

    fn device(&self, side: Side) -> &dyn Device {
        match side {
            Side::Intra => &self.intra,
            Side::Inter => &self.inter,
        }
    }

    /// The device that a request for `region` and this notification is for.
    fn side(&self, request: &WorkRequest<'_>, region: Option<u64>) -> Result<Side> {
        const OP: &str = "post a work request";
        let on_node = self.is_on_node(request.peer, OP)?;
        let bad = |why: &str| {
            Err(Error::new(ErrorKind::BadArgument, OP).peer(request.peer).device("route").cause(why.to_owned()))
        };
        match (&request.operation, region) {
            (Operation::SendShort(_), _) => Ok(if on_node { Side::Intra } else { Side::Inter }),
            (Operation::Send { header, body }, _) => {
                let len = header.len() + body.iter().map(|b| b.len).sum::<usize>();
                let most = self.capabilities.max_packet;
                if len > most {
                    return bad(&format!("a packet of {len} bytes, {most} allowed"));
                }
                Ok(if on_node { Side::Intra } else { Side::Inter })
            }
            // Lists go between all ranks alike; the device itself says what is wrong with one.
            (_, None) => Ok(Side::Inter),
            (_, Some(region)) => {
                let side = Side::of(region);
                match request.notify {
                    Some((at, _)) if Side::of(at.region) != side => {
                        bad("the region and the cell belong to different devices")
                    }
                    _ => Ok(side),
                }
            }
        }
    }

    fn poll_both(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        let intra = self.intra.poll(sink)?;
        Ok(self.inter.poll(sink)? || intra)
    }
}

impl<N: Device, F: Device> Device for RouteDevice<N, F> {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    unsafe fn register(&self, region: Region) -> Result<Registration> {
        let side = if region.one_node { Side::Intra } else { Side::Inter };
        // SAFETY: the same contract.
        let mut made = unsafe { self.device(side).register(region) }?;
        made.handle = side.outer(made.handle);
        made.key.insert(0, side as u8);
        debug_assert!(made.key.len() <= MAX_KEY);
        Ok(made)
    }

    fn sealed(&self, handle: u64) {
        self.device(Side::of(handle)).sealed(inner(handle));
    }

    unsafe fn release(&self, handle: u64) -> Result<()> {
        // SAFETY: the same contract.
        unsafe { self.device(Side::of(handle)).release(inner(handle)) }
    }

    fn import(&self, peer: u32, key: &[u8], accumulate: Option<AccumulateFn>) -> Result<RemoteRegion> {
        const OP: &str = "import a peer's region";
        let on_node = self.is_on_node(peer, OP)?;
        let bad = |why: &str| Error::new(ErrorKind::Protocol, OP).peer(peer).device("route").cause(why.to_owned());
        let (side, mut remote) = match key.split_first() {
            Some((0, key)) if on_node => (Side::Intra, self.intra.import(peer, key, accumulate)?),
            Some((0, _)) => return Err(bad("a key of shared memory from another node")),
            Some((1, key)) => (Side::Inter, self.inter.import(peer, key, accumulate)?),
            _ => return Err(bad("malformed key")),
        };
        remote.handle = side.outer(remote.handle);
        Ok(remote)
    }

    unsafe fn forget(&self, handle: u64) {
        // SAFETY: the same contract.
        unsafe { self.device(Side::of(handle)).forget(inner(handle)) };
    }

    unsafe fn post(&self, request: &WorkRequest<'_>) -> Result<Posted> {
        let (operation, region) = translated(&request.operation);
        let side = self.side(request, region)?;
        let notify = request.notify.map(|(at, value)| (Place { region: inner(at.region), ..at }, value));
        let own = WorkRequest { operation, notify, ..*request };
        // SAFETY: the same contract, in both.
        unsafe {
            match side {
                Side::Intra => self.intra.post(&own),
                Side::Inter => self.inter.post(&own),
            }
        }
    }

    fn cancel(&self, which: &dyn Fn(u64) -> bool) {
        self.intra.cancel(which);
        self.inter.cancel(which);
    }

    fn poll(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        // Packets are delivered one at a time, those of both devices.
        let Some(_entered) = Entered::new(&self.polling) else { return Ok(false) };
        self.poll_both(sink)
    }

    fn park(&self, sleep: Sleep<'_>, ready: &mut dyn FnMut() -> bool) -> bool {
        let mut work = false;
        // Peers of the node know by now that this rank is about to sleep; then comes the last look at the other device.
        let intra = self.intra.park(sleep, &mut || {
            work = self.inter.park(Sleep::Elsewhere(&self.waker), &mut || false);
            work || ready()
        });
        if work {
            std::thread::yield_now();
        }
        intra || work
    }

    fn waker(&self) -> Result<Waker> {
        Ok(Arc::clone(&self.waker))
    }

    fn wake(&self, peer: u32) {
        if self.on_node.get(peer as usize) == Some(&true) {
            self.intra.wake(peer);
        }
    }

    fn check_peers(&self, about: PeerCheck<'_>) -> Result<Option<u32>> {
        let stopped = self.intra.check_peers(about).inspect_err(|e| {
            let _ = self.inter.check_peers(PeerCheck::Met(e));
        })?;
        let other = self.inter.check_peers(about).inspect_err(|e| {
            if e.kind() == ErrorKind::PeerLost {
                let _ = self.intra.check_peers(PeerCheck::Met(e));
            }
        })?;
        Ok(stopped.or(other))
    }

    fn now(&self) -> Instant {
        self.inter.now()
    }

    /// First those of the intra-node device: the only one whose operations bypass `post`.
    fn stats<'a>(&'a self, each: &mut dyn FnMut(&'static str, &'a Stats)) {
        self.intra.stats(each);
        self.inter.stats(each);
    }

    fn leave(&self, how: Leave) -> Result<bool> {
        let intra = self.intra.leave(how)?;
        Ok(self.inter.leave(how)? && intra)
    }
}
