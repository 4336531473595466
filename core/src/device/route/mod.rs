#![allow(unsafe_code)]
//! Two devices as one: shared memory to the ranks of this node, a card to all.
//!
//! A packet to a rank of the same node goes by shared memory, any other by the card; a pair of ranks always uses the
//! same one, so packets stay in order.
//!
//! A region belongs to one device, for all pairs of ranks: to shared memory where all that will use it are on one node
//! ([`Region::one_node`]), else to the card, and then ranks of one node reach each other's part by the card too. The
//! card's atomics need not be coherent with the processor's, and a word that one rank changes by the card and
//! another by its processor could lose updates; with one device a region there is one atomic domain. The cost: within a
//! node operations on such a region take a round through the card instead of a copy. A program that wants
//! both makes a team of each node ([`Team::split_by_node`](crate::Team::split_by_node)) and windows over it.
//!
//! Which device a region belongs to stands in its handle (the lowest bit) and in its key (the first byte).
//!
//! Waiting looks at both devices. A rank that sleeps does so on the doorbell of shared memory, after it has armed
//! the card ([`Far::arm`]); a thread of the card's device rings the doorbell when an event comes ([`Far::attach`]).
//! So an event of the card costs a sleeping rank one thread switch more than without shared memory.

#[cfg(test)]
mod memory;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::time::Duration;

use super::shm::ShmDevice;
use super::{
    Capabilities, Device, Event, MAX_KEY, Operation, Place, Posted, Region, Registration, RemoteRegion, ShortPacket,
    WorkRequest,
};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::keys::AccumulateFn;
use crate::stats::{Snapshot, Stats};

/// A device that reaches all ranks of the job, as far as a [`RouteDevice`] needs more of it than [`Device`] has.
pub trait Far: Device {
    /// From now on an event that comes after [`arm`](Self::arm) calls `bell`, on another thread.
    ///
    /// # Errors
    /// `System`, `Limit`.
    fn attach(&self, bell: Box<dyn Fn() + Send + Sync>) -> Result<()>;

    /// Asks for the bell, and then looks whether something is there already that a poll would find.
    fn arm(&self) -> bool;

    /// Takes note of a rank whose loss another device has met: what is under way to it fails.
    fn give_up(&self, lost: &Error);
}

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Near,
    Far,
}

impl Side {
    fn of(handle: u64) -> Self {
        if handle & 1 == 0 { Self::Near } else { Self::Far }
    }

    /// The handle that the job sees for this side's own.
    fn outer(self, handle: u64) -> u64 {
        handle << 1 | u64::from(self == Self::Far)
    }
}

/// This side's own handle.
fn inner(handle: u64) -> u64 {
    handle >> 1
}

fn place(at: Place) -> Place {
    Place { region: inner(at.region), ..at }
}

/// The region that an operation is about, if any.
fn region_of(operation: &Operation<'_>) -> Option<u64> {
    match operation {
        Operation::Write { to: at, .. }
        | Operation::Read { from: at, .. }
        | Operation::FetchAdd { at, .. }
        | Operation::CompareSwap { at, .. }
        | Operation::Accumulate { at, .. }
        | Operation::Signal { at, .. } => Some(at.region),
        Operation::WriteBlocks { to: at, .. } | Operation::ReadBlocks { from: at, .. } => Some(at.region),
        Operation::Send { .. } | Operation::Scatter { .. } | Operation::Gather { .. } => None,
    }
}

/// The same operation with the side's own handle.
fn translated<'a>(operation: &Operation<'a>) -> Operation<'a> {
    let mut o = *operation;
    match &mut o {
        Operation::Write { to: at, .. }
        | Operation::Read { from: at, .. }
        | Operation::FetchAdd { at, .. }
        | Operation::CompareSwap { at, .. }
        | Operation::Accumulate { at, .. }
        | Operation::Signal { at, .. } => *at = place(*at),
        Operation::WriteBlocks { to: at, .. } | Operation::ReadBlocks { from: at, .. } => at.region = inner(at.region),
        Operation::Send { .. } | Operation::Scatter { .. } | Operation::Gather { .. } => {}
    }
    o
}

/// Shared memory and a card, of one rank.
#[derive(Debug)]
pub struct RouteDevice {
    near: ShmDevice,
    far: Box<dyn Far>,
    /// The ranks of this node, in the order in which shared memory numbers them.
    ranks: Vec<u32>,
    /// Of each rank of the job its number on this node.
    numbers: Vec<Option<u32>>,
    capabilities: Capabilities,
    polling: Cell<bool>,
}

impl RouteDevice {
    /// Joins `near`, which connects `ranks` of a job of `size`, and `far`, which connects all.
    ///
    /// # Errors
    /// As [`Far::attach`].
    pub fn new(near: ShmDevice, far: Box<dyn Far>, ranks: &[u32], size: u32) -> Result<Self> {
        let mut numbers = vec![None; size as usize];
        for (number, rank) in ranks.iter().enumerate() {
            numbers[*rank as usize] = Some(number as u32);
        }
        let bell = near.doorbell();
        far.attach(Box::new(move || bell.ring()))?;
        let (n, f) = (near.capabilities(), far.capabilities());
        let capabilities = Capabilities {
            max_blocks: n.max_blocks.min(f.max_blocks),
            inline_bytes: n.inline_bytes.min(f.inline_bytes),
            max_packet: n.max_packet.min(f.max_packet),
            // What regions that any rank may use have.
            atomics: f.atomics,
            ordered: n.ordered && f.ordered,
            mappable: false,
            accumulate: n.accumulate && f.accumulate,
            lists: f.lists,
            // Of shared memory there is nothing to choose.
            cut_offs: f.cut_offs,
            own_by_copy: f.own_by_copy,
            // Only shared memory is mapped.
            sleepers_fence: n.sleepers_fence,
        };
        Ok(Self { near, far, ranks: ranks.to_vec(), numbers, capabilities, polling: Cell::new(false) })
    }

    fn number(&self, peer: u32) -> Option<u32> {
        self.numbers.get(peer as usize).copied().flatten()
    }

    /// An error of shared memory, with ranks of the job.
    fn named(&self, error: Error) -> Error {
        error.renumbered(|number| self.ranks.get(number as usize).copied().unwrap_or(number))
    }

    fn device(&self, side: Side) -> &dyn Device {
        match side {
            Side::Near => &self.near,
            Side::Far => &*self.far,
        }
    }

    fn made(&self, side: Side, made: Result<Registration>) -> Result<Registration> {
        let mut made = match side {
            Side::Near => made.map_err(|e| self.named(e)),
            Side::Far => made,
        }?;
        made.handle = side.outer(made.handle);
        made.key.insert(0, side as u8);
        debug_assert!(made.key.len() <= MAX_KEY);
        Ok(made)
    }

    fn side_of(region: Region) -> Side {
        if region.one_node { Side::Near } else { Side::Far }
    }

    /// The device that a request is for.
    fn side(&self, request: &WorkRequest<'_>) -> Result<Side> {
        if request.peer as usize >= self.numbers.len() {
            return Err(Error::new(ErrorKind::NoSuchRank, "post a work request").peer(request.peer).device("route"));
        }
        let near = self.number(request.peer).is_some();
        let bad = |kind, why: &str| {
            Err(Error::new(kind, "post a work request").peer(request.peer).device("route").cause(why))
        };
        if let Operation::Send { header, body } = request.operation {
            let len = header.len() + body.iter().map(|b| b.len).sum::<usize>();
            let most = self.capabilities.max_packet;
            if len > most {
                return bad(ErrorKind::BadArgument, &format!("a packet of {len} bytes, {most} allowed"));
            }
            return Ok(if near { Side::Near } else { Side::Far });
        }
        // Lists go by the card between all ranks; its own part says what is wrong with one.
        if matches!(request.operation, Operation::Scatter { .. } | Operation::Gather { .. }) {
            return Ok(Side::Far);
        }
        let region = region_of(&request.operation).unwrap_or_default();
        let side = Side::of(region);
        if side == Side::Near && !near {
            return if self.near.knows(inner(region)) {
                bad(ErrorKind::BadArgument, "the region is of a rank of this node, the request to one of another")
            } else {
                bad(ErrorKind::BadKey, &format!("region {region}"))
            };
        }
        if request.notify.is_some_and(|(at, _)| Side::of(at.region) != side) {
            return bad(ErrorKind::BadArgument, "the region and the cell belong to different devices");
        }
        Ok(side)
    }

    fn poll_both(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        let near = self.near.poll(&mut |event| match event {
            Event::Packet { source, bytes } => sink(Event::Packet { source: self.ranks[source as usize], bytes }),
            Event::Completed { id, result } => {
                sink(Event::Completed { id, result: result.map_err(|e| self.named(e)) });
            }
        });
        let near = near.map_err(|e| self.named(e))?;
        Ok(self.far.poll(sink)? || near)
    }
}

impl Device for RouteDevice {
    fn name(&self) -> &'static str {
        "route"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn allocate(&self, len: usize, region: Region) -> Result<Registration> {
        let side = Self::side_of(region);
        self.made(side, self.device(side).allocate(len, region))
    }

    unsafe fn register(&self, region: Region) -> Result<Registration> {
        let side = Self::side_of(region);
        // SAFETY: the same contract.
        self.made(side, unsafe { self.device(side).register(region) })
    }

    unsafe fn release(&self, handle: u64) -> Result<()> {
        // SAFETY: the same contract.
        unsafe { self.device(Side::of(handle)).release(inner(handle)) }
    }

    fn settled(&self, handle: u64) {
        self.device(Side::of(handle)).settled(inner(handle));
    }

    fn import(&self, peer: u32, key: &[u8], accumulate: Option<AccumulateFn>) -> Result<RemoteRegion> {
        if peer as usize >= self.numbers.len() {
            return Err(Error::new(ErrorKind::NoSuchRank, "import a peer's region").peer(peer).device("route"));
        }
        let bad =
            |why: &str| Error::new(ErrorKind::Protocol, "import a peer's region").peer(peer).device("route").cause(why);
        let (side, mut remote) = match key.split_first() {
            Some((0, key)) => {
                let number = self.number(peer).ok_or_else(|| bad("a key of shared memory from another node"))?;
                (Side::Near, self.near.import(number, key, accumulate).map_err(|e| self.named(e))?)
            }
            Some((1, key)) => (Side::Far, self.far.import(peer, key, accumulate)?),
            _ => return Err(bad("malformed key")),
        };
        remote.peer = peer;
        remote.handle = side.outer(remote.handle);
        Ok(remote)
    }

    unsafe fn forget(&self, handle: u64) {
        // SAFETY: the same contract.
        unsafe { self.device(Side::of(handle)).forget(inner(handle)) };
    }

    unsafe fn post(&self, request: &WorkRequest<'_>) -> Result<Posted> {
        let side = self.side(request)?;
        let mut own = WorkRequest {
            operation: translated(&request.operation),
            notify: request.notify.map(|(at, value)| (place(at), value)),
            ..*request
        };
        // SAFETY: the same contract, in both.
        unsafe {
            match side {
                Side::Near => {
                    own.peer = self.number(request.peer).unwrap_or(own.peer);
                    self.near.post(&own).map_err(|e| self.named(e))
                }
                Side::Far => self.far.post(&own),
            }
        }
    }

    fn send_short(&self, peer: u32, packet: &ShortPacket) -> Result<Posted> {
        match self.number(peer) {
            Some(number) => self.near.send_short(number, packet).map_err(|e| self.named(e)),
            None => self.far.send_short(peer, packet),
        }
    }

    fn cancel(&self, which: &dyn Fn(u64) -> bool) {
        self.near.cancel(which);
        self.far.cancel(which);
    }

    fn poll(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        // A handler that polls finds nothing: packets are delivered one at a time, those of both devices.
        if self.polling.replace(true) {
            return Ok(false);
        }
        let result = self.poll_both(sink);
        self.polling.set(false);
        result
    }

    fn pending(&self) -> bool {
        self.near.pending() || self.far.pending()
    }

    fn relax(&self) {
        self.far.relax();
    }

    fn park(&self, limit: Duration, ready: &mut dyn FnMut() -> bool) {
        let mut work = false;
        // Peers of the node know by now that this rank is about to sleep; the card is armed, and then comes the last look
        // at either.
        self.near.park(limit, &mut || {
            work = self.far.arm();
            work || ready()
        });
        if work {
            std::thread::yield_now();
        }
    }

    fn wake(&self, peer: u32) {
        if let Some(number) = self.number(peer) {
            self.near.wake(number);
        }
    }

    fn attending(&self, inside: bool) {
        self.near.attending(inside);
        self.far.attending(inside);
    }

    fn check_peers(&self) -> Result<()> {
        // Names ranks of the job already.
        let near = self.near.check_peers();
        if let Err(e) = &near {
            self.far.give_up(e);
        }
        let far = self.far.check_peers();
        if let (Ok(()), Err(e)) = (&near, &far)
            && e.kind() == ErrorKind::PeerLost
        {
            self.near.note_loss(e);
        }
        near.and(far)
    }

    fn stopped_peer(&self) -> Option<u32> {
        self.near.stopped_peer().or_else(|| self.far.stopped_peer())
    }

    fn shares_memory(&self, peer: u32) -> bool {
        self.number(peer).is_some()
    }

    fn counters(&self) -> Snapshot {
        self.near.counters().merged(&self.far.counters())
    }

    fn counters_by_device(&self) -> Vec<(&'static str, Snapshot)> {
        vec![(self.near.name(), self.near.counters()), (self.far.name(), self.far.counters())]
    }

    /// Those of shared memory: the only one whose operations bypass `post`.
    fn stats(&self) -> &Stats {
        self.near.stats()
    }

    fn is_idle(&self) -> Result<bool> {
        Ok(self.near.is_idle()? && self.far.is_idle()?)
    }

    fn leave(&self) {
        self.near.leave();
        self.far.leave();
    }

    fn abandon(&self) {
        self.near.abandon();
        self.far.abandon();
    }
}
