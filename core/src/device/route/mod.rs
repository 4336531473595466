#![allow(unsafe_code)]
//! Joins two devices: an intra-node device for the ranks of this node, and an inter-node device for all ranks.
//!
//! A packet to a rank of the same node uses the intra-node device, any other packet the inter-node device. A pair of
//! ranks always uses the same device, so packets stay in order.
//!
//! A region belongs to one device, for all pairs of ranks: to the intra-node device if all its users are on one node
//! ([`Region::one_node`]), otherwise to the inter-node device, also between ranks of one node. The atomics of an HCA
//! need not be coherent with the processor's: a word changed by one rank through the HCA and by another through its
//! processor could lose updates. One device per region means one atomic domain. The cost: operations on such a region
//! take a round trip through the HCA within a node instead of a copy. A program that wants both makes a team of each
//! node ([`Team::split_by_node`](crate::Team::split_by_node)) and windows over it.
//!
//! The device of a region is encoded in its handle (lowest bit) and in its key (first byte).
//!
//! A wait polls both devices. A rank sleeps on the intra-node device, after it has given the other device its waker; an
//! inter-node event therefore costs a sleeping rank one thread switch more than the inter-node device alone.

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::{
    Block, Capabilities, Device, Event, Leave, MAX_KEY, MessageCutOffs, Operation, PeerCheck, Place, Posted, Region,
    Registration, RemoteRegion, Sleep, Waker, WorkRequest,
};
use crate::entered::Entered;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::keys::AccumulateFn;
use crate::stats::Stats;

/// The device of a region or packet.
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

    /// The handle that the job sees for a handle of this side's device.
    fn outer(self, handle: u64) -> u64 {
        handle << 1 | u64::from(self == Self::Inter)
    }
}

/// The handle of the region in its own device.
fn inner(handle: u64) -> u64 {
    handle >> 1
}

/// The same operation with the device's own handle, and the job's handle that it replaces.
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
        Operation::SendShort(_)
        | Operation::Send { .. }
        | Operation::Scatter { .. }
        | Operation::Gather { .. }
        | Operation::Barrier(_) => return (o, None),
    };
    let outer = std::mem::replace(region, inner(*region));
    (o, Some(outer))
}

/// The intra-node and the inter-node device as one device.
pub(crate) struct RouteDevice<N, F> {
    intra: N,
    inter: F,
    /// Whether each rank of the job is on this node.
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
    pub(crate) fn new(intra: N, inter: F, size: u32) -> Result<Self> {
        let waker = intra.waker()?;
        let (n, f) = (intra.capabilities(), inter.capabilities());
        let on_node = (0..size).map(|rank| n.node.contains(&rank)).collect();
        // The capabilities that hold for regions of either device.
        let capabilities = Capabilities {
            name: "route",
            node: n.node.clone(),
            max_blocks: n.max_blocks.min(f.max_blocks),
            max_packet: n.max_packet.min(f.max_packet),
            messages: MessageCutOffs { read_intra: n.messages.read_intra, ..f.messages },
            mapped: false,
            accumulate: n.accumulate && f.accumulate,
            sleepers_fence: n.sleepers_fence,
            ..f.clone()
        };
        Ok(Self { intra, inter, on_node, capabilities, waker, polling: Cell::new(false) })
    }

    /// Sets the lowest rank of each rank's node.
    #[must_use]
    pub(crate) fn on_nodes(mut self, nodes: &[u32]) -> Self {
        self.capabilities.nodes = nodes.to_vec();
        self
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

    /// The device for a request to `region` and for its notification.
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
            // Lists and barriers in a switch work the same between all ranks; the inter-node device reports what is wrong
            // with one.
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
        let inter = self.inter.poll(&mut |event| {
            if let Event::Completed { result: Err(e), .. } = &event {
                self.tell_node(e);
            }
            sink(event);
        });
        Ok(inter.inspect_err(|e| self.tell_node(e))? || intra)
    }

    /// Tells the ranks of this node of a loss that the other device has noticed: if this rank ends for it, they report
    /// the first loss.
    #[cold]
    fn tell_node(&self, e: &Error) {
        if e.kind() == ErrorKind::PeerLost {
            let _ = self.intra.check_peers(PeerCheck::Met(e));
        }
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

    unsafe fn peers_can_map(&self, memory: Block) -> bool {
        // SAFETY: the same contract.
        unsafe { self.intra.peers_can_map(memory) }
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
        // A handler that polls gets no events of either device.
        let Some(_entered) = Entered::new(&self.polling) else { return Ok(false) };
        self.poll_both(sink)
    }

    fn park(&self, sleep: Sleep<'_>, ready: &mut dyn FnMut() -> bool) -> bool {
        let mut work = false;
        // Peers of the node know by now that this rank is about to sleep; the other device is then polled a last time.
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
        if matches!(about, PeerCheck::Asleep(_)) {
            return self.intra.check_peers(about);
        }
        let stopped = self.intra.check_peers(about).inspect_err(|e| {
            let _ = self.inter.check_peers(PeerCheck::Met(e));
        })?;
        let other = self.inter.check_peers(about).inspect_err(|e| self.tell_node(e))?;
        Ok(stopped.or(other))
    }

    fn now(&self) -> Instant {
        self.inter.now()
    }

    /// The counters of the intra-node device come first: only its operations bypass `post`.
    fn stats<'a>(&'a self, each: &mut dyn FnMut(&'static str, &'a Stats)) {
        self.intra.stats(each);
        self.inter.stats(each);
    }

    fn leave(&self, how: Leave) -> Result<bool> {
        let intra = self.intra.leave(how)?;
        Ok(self.inter.leave(how)? && intra)
    }
}
