#![allow(unsafe_code)]
//! The multidevice: joins an intra-node device for the ranks of this node and devices between nodes.
//!
//! Each rank has a connection table ([`table`]): for each peer, the device for small, medium-sized and large reads and
//! writes. All packets of a pair use the device for small ones, so they stay in order.
//!
//! A region whose users are all on one node ([`Region::one_node`]) belongs to the intra-node device. Any other region
//! is registered with all devices that execute requests, or would if others failed, and its key contains the keys of
//! all of them ([`regions`]). Its atomics and accumulates use one device for all pairs of ranks, the first that all
//! ranks have: the atomics of an HCA need not be coherent with the processor's, and a word changed by both could lose
//! updates. Between ranks of one node:
//!
//! | atomics of the inter-node device | reads, writes | signals | atomics, accumulates |
//! |---|---|---|---|
//! | coherent ([`Capabilities::coherent`]), as tcp | intra-node device | intra-node device | intra-node device |
//! | not coherent, as verbs; the region is mapped whole | intra-node device | intra-node device, if the region has no accumulates, else inter-node device | inter-node device |
//! | not coherent; not mapped whole | inter-node device | inter-node device | inter-node device |
//!
//! In the second row [`Mapped::atomics`] is false: a rank may load and store the mapped memory at any time, but may
//! change it atomically only while no rank uses atomics of the inter-node device, for example between fences of a
//! window whose accumulates the target's processor applies.
//!
//! Large reads and writes are striped over all devices of the kind of the device for large ones ([`stripes`]): two HCAs
//! or two interfaces are rails.
//!
//! Requests on several devices to one peer keep the order that a single device guarantees ([`requests`]).
//!
//! If a device fails between two ranks that have another device in common, the pair leaves it for the next one in the
//! table ([`failover`]).
//!
//! A wait polls all devices, a device without events less and less often, so that it hardly slows down the others
//! ([`silence`]). A rank sleeps on the device that had the last event, after it has passed a waker to the others; an
//! event of another device therefore costs a sleeping rank one more thread switch ([`sleep`]).

mod control;
mod failover;
mod imports;
mod pairs;
mod regions;
mod requests;
mod silence;
mod sleep;
mod stripes;
pub(crate) mod subset;
mod table;
#[cfg(test)]
pub(crate) mod tests;

use std::cell::{Cell, RefCell};
use std::time::Instant;

pub(crate) use table::{Choice, Chosen, MAX_DEVICES, Member};

use super::{
    Block, Capabilities, Device, Event, Leave, MAX_KEY, MessageCutOffs, Operation, PeerCheck, Place, Posted, Region,
    Registration, RemoteRegion, Sleep, Waker, WorkRequest,
};
use crate::entered::Entered;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::keys::AccumulateFn;
use crate::slots::Slots;
use crate::stats::Stats;
use pairs::{Pair, Pairs, Waiting};
use regions::{Found, Handles, Imported, NO_HANDLE};
use requests::{Evidence, Notification, Repeat, Requests, Signal, Tracked, UNTRACKED, Unnotified};
use silence::Silences;
use sleep::Sleeping;
use table::{Connection, Table};

/// Operation names in errors of [`Device::post`] and [`Device::import`].
const POST: &str = "post a work request";
const IMPORT: &str = "import a peer's region";

/// Several devices as one device.
pub(crate) struct RouteDevice {
    /// The intra-node device, if there is one, and the inter-node devices, best first.
    devices: Vec<Box<dyn Device>>,
    /// The numbers of the devices in the job.
    numbers: Vec<u8>,
    /// Whether the first device is an intra-node device.
    has_intra: bool,
    /// Whether other ranks are on this node.
    has_neighbours: bool,
    table: Table,
    capabilities: Capabilities,
    sleeping: Sleeping,
    owned: RefCell<Slots<Handles>>,
    imports: RefCell<Slots<Imported>>,
    requests: Requests,
    pairs: Pairs,
    /// The polls that include devices after the first.
    silences: Silences,
    polling: Cell<bool>,
}

impl RouteDevice {
    /// Combines `intra`, which is number 0 of the job and connects the ranks of its [`Capabilities::node`], and the
    /// devices `inter`, best first. `has` is a bit set of the devices of each rank of the job; a device connects all
    /// ranks that have it. `chosen` are the devices that a routing table names for each rank, if there is one.
    ///
    /// # Errors
    /// `Unsupported` if a pair of ranks has no device in common, if no inter-node device is common to all ranks, or if
    /// the first device has no waker.
    pub(crate) fn new(
        me: u32,
        intra: Option<Box<dyn Device>>,
        inter: Vec<(Member, Box<dyn Device>)>,
        has: &[u8],
        chosen: &[Choice],
    ) -> Result<Self> {
        let node = intra.as_ref().map_or(Vec::new(), |intra| intra.capabilities().node.clone());
        let has_intra = intra.is_some();
        let (members, inter): (Vec<Member>, Vec<_>) = inter.into_iter().unzip();
        let table = Table::new(me, &node, &members, has, chosen)?;
        let numbers = has_intra.then_some(0).into_iter().chain(members.iter().map(|member| member.number)).collect();
        let devices: Vec<_> = intra.into_iter().chain(inter).collect();
        let sleeping = Sleeping::new(&devices)?;
        // The capabilities that hold for regions and pairs of every device; lists and barriers have those of the
        // domain's device.
        let all = || devices.iter().map(|device| device.capabilities());
        let (first, domain) = (devices[0].capabilities(), devices[usize::from(table.domain)].capabilities());
        // Packets that another device may have to repeat are copied.
        let has_spare = (0..has.len() as u32).any(|peer| table.get(peer).is_some_and(|c| c.common != 0));
        let lent = all().skip(usize::from(has_intra)).map(|c| c.max_lent_packet).min();
        let max_lent_packet = lent.filter(|_| !has_spare).unwrap_or(0);
        let capabilities = Capabilities {
            name: "route",
            node: node.clone(),
            max_key: MAX_KEY,
            max_blocks: all().map(|c| c.max_blocks).min().unwrap_or(1),
            // The intra-node device of a rank that is alone on its node sends no packets.
            max_packet: all().filter(|c| c.node.len() != 1).map(|c| c.max_packet).min().unwrap_or(first.max_packet),
            max_lent_packet,
            messages: MessageCutOffs {
                eager_inter: domain.messages.eager_inter,
                read_inter: domain.messages.read_inter,
                ..first.messages
            },
            mapped: false,
            accumulate: domain.accumulate && (!has_intra || first.accumulate),
            coherent: domain.coherent && (!has_intra || first.coherent),
            sleepers_fence: first.sleepers_fence,
            ..domain.clone()
        };
        let pair = |peer| table.get(peer).filter(|c| c.common != 0).map(|c| Pair::new(c.common, c.by_size[0]));
        let pairs = Pairs::new((0..has.len() as u32).map(pair));
        Ok(Self {
            silences: Silences::new(devices.len()),
            devices,
            numbers,
            has_intra,
            has_neighbours: node.len() > 1,
            table,
            capabilities,
            sleeping,
            owned: RefCell::default(),
            imports: RefCell::default(),
            requests: Requests::default(),
            pairs,
            polling: Cell::new(false),
        })
    }

    /// Sets the lowest rank of each rank's node.
    pub(crate) fn on_nodes(mut self, nodes: &[u32]) -> Self {
        self.capabilities.nodes = nodes.to_vec();
        self
    }

    #[inline(always)]
    fn device(&self, number: u8) -> &dyn Device {
        &*self.devices[usize::from(number)]
    }

    /// Posts a request on a device. The device is then polled again, since it may soon have an event.
    ///
    /// # Safety
    /// The contract of [`Device::post`].
    #[inline(always)]
    unsafe fn post_by(&self, number: u8, request: &WorkRequest<'_>) -> Result<Posted> {
        self.silences.end(number);
        // SAFETY: the same contract.
        unsafe { self.device(number).post(request) }.inspect_err(|e| {
            // A pair with several devices in common has already left this device.
            if self.pairs.get(request.peer).is_none() {
                self.report_loss(number, e);
            }
        })
    }

    #[inline(always)]
    fn connection(&self, peer: u32, operation: &'static str) -> Result<&Connection> {
        match self.table.get(peer) {
            Some(connection) => Ok(connection),
            None => Err(Error::new(ErrorKind::NoSuchRank, operation).peer(peer).device("route")),
        }
    }

    /// The device that all ranks have in common, used for atomics and accumulates.
    fn domain(&self) -> &dyn Device {
        self.device(self.table.domain)
    }

    fn intra(&self) -> Option<&dyn Device> {
        self.has_intra.then(|| &*self.devices[0])
    }

    /// The device for `operation` on a region of `peer`, or for a signal at a remote address there.
    #[inline(always)]
    fn find(&self, peer: u32, region: u64, operation: Option<&Operation<'_>>) -> Result<Found> {
        self.imported(peer, region, |import| import.find(operation))
    }

    /// Calls a closure with an imported region of `peer`.
    #[inline(always)]
    fn imported<R>(&self, peer: u32, region: u64, f: impl FnOnce(&Imported) -> R) -> Result<R> {
        let imports = self.imports.borrow();
        match super::imports::region(imports.get(region), peer, region, POST) {
            Ok(import) => Ok(f(import)),
            Err(e) => Err(self.connection(peer, POST).err().unwrap_or(e).device("route")),
        }
    }

    /// Posts a request on a peer's region.
    ///
    /// # Safety
    /// The contract of [`Device::post`].
    #[inline(always)]
    unsafe fn post_access(&self, request: &WorkRequest<'_>, region: u64) -> Result<Posted> {
        let found = self.find(request.peer, region, Some(&request.operation))?;
        // SAFETY: the same contract, in all cases.
        unsafe {
            if found.is_plain && request.notify.is_none() && !self.requests.has_open() {
                let operation = request.operation.on_region(found.handle);
                return self.post_by(found.device, &WorkRequest { operation, ..*request });
            }
            if found.has_spare { self.post_of_pair(request, found) } else { self.post_found(request, found, None) }
        }
    }

    /// Posts a request on the device that was found. If several devices access the peer, requests on them stay in order.
    ///
    /// # Safety
    /// The contract of [`Device::post`].
    #[inline(never)]
    unsafe fn post_found(&self, request: &WorkRequest<'_>, found: Found, mut repeat: Option<Repeat>) -> Result<Posted> {
        let (WorkRequest { peer, ref operation, .. }, Found { device, has_spare, .. }) = (*request, found);
        let notify = match request.notify {
            Some((at, value)) => {
                let cell = self.find(peer, at.region, None)?;
                let (signal, to) = (Signal { peer, at, value }, Place { region: cell.handle, ..at });
                Some(Notification { signal, device: cell.device, to })
            }
            None => None,
        };
        if found.has_rails
            && let Some(import) = self.striped(request)?
        {
            // SAFETY: the same contract.
            return unsafe { self.post_striped(request, &import, notify.map(|n| n.signal), repeat) };
        }
        let (is_write, is_read) = match operation {
            Operation::Transfer(transfer) => (transfer.write, !transfer.write),
            _ => (false, false),
        };
        let elsewhere = notify.filter(|notify| notify.device != device).map(|notify| notify.signal);
        if (notify.is_some() || !is_write && !is_read)
            && self.requests.would_overtake(peer, device, elsewhere.is_some())
        {
            return Ok(Posted::Busy);
        }
        let is_tracked = elsewhere.is_some() || found.is_mixed && is_write && !found.is_mapped || has_spare;
        let id = if is_tracked { self.requests.next() } else { request.id };
        let with = notify.filter(|_| elsewhere.is_none());
        if let (Some(repeat), Some(Notification { signal, .. })) = (&mut repeat, with) {
            repeat.evidence = Evidence::Signal(signal.at, signal.value);
        }
        let notify = with.map(|notify| (notify.to, notify.signal.value));
        let translated = WorkRequest { peer, operation: operation.on_region(found.handle), notify, id };
        // SAFETY: the same contract.
        let posted = unsafe { self.post_to(device, &translated) }?;
        match (posted, elsewhere) {
            (Posted::Pending, _) if is_tracked => {
                let tracked = Tracked::new(request.id, peer, 1 << device, 1);
                self.requests.add(Tracked { is_write, notify: elsewhere, repeat, ..tracked });
            }
            (Posted::Done, Some(signal)) if !self.signal(&signal)? => {
                self.requests.add_unnotified(Unnotified { id: request.id, signal });
                return Ok(Posted::Pending);
            }
            _ => {}
        }
        if has_spare && posted != Posted::Busy {
            match (with, operation) {
                (Some(Notification { signal, .. }), _) => self.has_notified(&signal),
                (None, Operation::Signal { .. }) => {}
                (None, _) if is_write || is_read => {}
                (None, _) => self.requests.add_evidence(peer, Evidence::Atomic, u64::MAX),
            }
        }
        Ok(posted)
    }

    /// Sets a signal cell; `false` if the device was full.
    fn signal(&self, signal: &Signal) -> Result<bool> {
        let Signal { peer, at, value } = *signal;
        let operation = Operation::Signal { at, value };
        let request = WorkRequest { peer, operation, notify: None, id: UNTRACKED };
        let pair = self.pairs.get(peer);
        if pair.is_some_and(|pair| pair.borrow().is_moving) {
            return Ok(false);
        }
        let Found { device, handle, .. } = self.find(peer, at.region, None)?;
        let request = WorkRequest { operation: operation.on_region(handle), ..request };
        // SAFETY: a signal touches no local memory.
        let is_set = unsafe { self.post_to(device, &request) }? != Posted::Busy;
        if let (Some(pair), true) = (pair, is_set) {
            self.has_signalled(pair, device, signal);
        }
        Ok(is_set)
    }

    /// Reports the end of a tracked request, after its notification. `device` executed the part that has ended.
    fn end(&self, device: u8, id: u64, result: Result<()>, sink: &mut dyn FnMut(Event<'_>)) {
        if let (Err(e), Some(peer)) = (&result, self.requests.peer(id)) {
            self.has_failed(device, peer, e);
        }
        let Some((tracked, result)) = self.requests.ended(id, result) else { return };
        if tracked.is_check {
            return self.checked(id, tracked.peer, &result);
        }
        let Tracked { id, notify, .. } = tracked;
        let result = match (result, notify) {
            (Err(e), _) => match self.repeats(tracked, e) {
                Ok(()) => return,
                failed => failed,
            },
            (Ok(()), notify) => {
                self.completed(&tracked);
                match notify {
                    Some(signal) => match self.signal(&signal) {
                        Ok(false) => return self.requests.add_unnotified(Unnotified { id, signal }),
                        notified => notified.map(drop),
                    },
                    None => Ok(()),
                }
            }
        };
        Requests::report(id, result, sink);
    }

    /// Posts notifications that were delayed by a busy device; returns whether there were any.
    fn notify(&self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let mut any = false;
        while let Some(Unnotified { id, signal }) = self.requests.first_unnotified() {
            let result = match self.signal(&signal) {
                Ok(false) => break,
                notified => notified.map(drop),
            };
            self.requests.remove_unnotified();
            Requests::report(id, result, sink);
            any = true;
        }
        any
    }

    /// Continues requests that were delayed by a busy device or a failover; returns whether there were any.
    #[cold]
    fn post_delayed(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        Ok(self.notify(sink) | self.post_stripes(sink) | self.progress(sink)?)
    }

    /// Polls the devices after the first that the current poll includes.
    #[cold]
    fn poll_others(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        let mut any = false;
        let polled = self.silences.poll_due(|number| {
            any |= self.poll_by(number, sink)?;
            Ok(())
        });
        polled.map(|()| any)
    }

    #[inline(always)]
    fn poll_by(&self, number: u8, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        let polled = self.device(number).poll(&mut |event| match event {
            Event::Completed { id, result } => self.completed_by(number, id, result, sink),
            Event::Packet { source, bytes } if !self.pairs.is_empty() => {
                if let Some(bytes) = self.receive_packet(number, source, bytes) {
                    sink(Event::Packet { source, bytes });
                }
            }
            Event::LongPacket { source, packet } if !self.pairs.is_empty() => {
                if self.receive_long(number, source, packet.len()) {
                    sink(Event::LongPacket { source, packet });
                }
            }
            event => sink(event),
        });
        match polled {
            Ok(false) if self.requests.ended.borrow().is_empty() => Ok(false),
            polled => self.polled(number, polled, sink),
        }
    }

    /// Handles a completion during a poll of a device.
    fn completed_by(&self, number: u8, id: u64, result: Result<()>, sink: &mut dyn FnMut(Event<'_>)) {
        let is_tracked = Requests::is_tracked(id);
        if let Err(e) = &result
            && !(is_tracked && self.requests.peer(id).is_some_and(|peer| self.pairs.get(peer).is_some()))
        {
            self.has_lost(number, e);
        }
        match is_tracked {
            // Its end may post requests on the device that is being polled.
            true => self.requests.ended.borrow_mut().push((id, result)),
            false => sink(Event::Completed { id, result }),
        }
    }

    /// Handles the result of a poll that had events or has failed.
    fn polled(&self, number: u8, polled: Result<bool>, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        let any = !self.requests.ended.borrow().is_empty();
        if any {
            let ended = self.requests.ended.take();
            ended.into_iter().for_each(|(id, result)| self.end(number, id, result, sink));
        }
        match polled {
            Err(e) if self.has_lost(number, &e) => Ok(true),
            Ok(true) => {
                self.silences.end(number);
                self.sleeping.note(number);
                Ok(true)
            }
            polled => polled.map(|_| any),
        }
    }
}

// SAFETY: passes on the memory that the inner devices return; a request is complete when all its parts are.
unsafe impl Device for RouteDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    unsafe fn register(&self, region: Region) -> Result<Registration> {
        // SAFETY: the same contract.
        unsafe { self.register_with_all(region) }
    }

    fn sealed(&self, handle: u64) {
        let Some(handles) = self.owned.borrow().get(handle).copied() else { return };
        let all = self.devices.iter().zip(handles);
        all.filter(|(_, handle)| *handle != NO_HANDLE).for_each(|(device, handle)| device.sealed(handle));
    }

    unsafe fn peers_can_map(&self, memory: Block) -> bool {
        // SAFETY: the same contract.
        unsafe { self.devices[0].peers_can_map(memory) }
    }

    unsafe fn release(&self, handle: u64) -> Result<()> {
        let handles = self.owned.borrow_mut().remove(handle);
        let handles = handles.ok_or_else(|| Error::new(ErrorKind::Freed, "release memory").device("route"))?;
        // SAFETY: the same contract.
        unsafe { self.release_all(&handles) }
    }

    fn import(&self, peer: u32, key: &[u8], accumulate: Option<AccumulateFn>) -> Result<RemoteRegion> {
        self.import_by_all(peer, key, accumulate)
    }

    unsafe fn forget(&self, handle: u64) {
        let imported = self.imports.borrow_mut().remove(handle);
        imported.iter().for_each(|imported| {
            self.forget_all(imported);
            if let Some(pair) = self.pairs.get(imported.peer) {
                pair.borrow_mut().drop_signals(|at, _| at.region == handle);
            }
        });
    }

    #[inline]
    unsafe fn post(&self, request: &WorkRequest<'_>) -> Result<Posted> {
        let device = match &request.operation {
            Operation::Packet(packet) => {
                let (connection, len) = (self.connection(request.peer, POST)?, packet.len());
                let Capabilities { max_packet, max_lent_packet, .. } = self.capabilities;
                let most = if connection.on_node { max_packet } else { max_packet.max(max_lent_packet) };
                if len > most {
                    let e = Error::new(ErrorKind::BadArgument, POST).peer(request.peer).device("route");
                    return Err(e.cause(format!("the packet has {len} bytes, but at most {most} are allowed")));
                }
                if connection.common != 0 {
                    // SAFETY: the same contract.
                    return packet.with_parts(|header, body| unsafe { self.post_packet(request, header, body) });
                }
                connection.by_size[0]
            }
            // Lists and in-switch barriers work the same between all ranks; the device reports invalid ones.
            Operation::List { .. } | Operation::Barrier(_) => self.table.domain,
            operation => match operation.region() {
                // SAFETY: the same contract.
                Some(region) => return unsafe { self.post_access(request, region) },
                None => self.table.domain,
            },
        };
        // SAFETY: the same contract.
        unsafe { self.post_by(device, request) }
    }

    fn cancel(&self, which: &dyn Fn(u64) -> bool) {
        let mut tracked = self.requests.cancel(which);
        // The reads that check for arrival write to memory of these requests until they are cancelled.
        let waiting = self.pairs.cancel(which);
        let checks = waiting.iter().filter_map(Waiting::check);
        tracked.extend(checks.inspect(|id| _ = self.requests.remove(*id)));
        let belongs_to_device = |id: u64| if Requests::is_tracked(id) { tracked.contains(&id) } else { which(id) };
        self.devices.iter().for_each(|device| device.cancel(&belongs_to_device));
    }

    fn poll(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        // A handler that polls gets no events of any device.
        let Some(_entered) = Entered::new(&self.polling) else { return Ok(false) };
        let mut any = (self.requests.has_open() || self.pairs.is_due()) && self.post_delayed(sink)?;
        any |= self.poll_by(0, sink)?;
        if self.silences.begin_poll() {
            any |= self.poll_others(sink)?;
        }
        Ok(any)
    }

    fn park(&self, sleep: Sleep<'_>, ready: &mut dyn FnMut() -> bool) -> bool {
        self.park_all(sleep, ready)
    }

    fn waker(&self) -> Result<Waker> {
        Ok(self.sleeping.waker())
    }

    #[inline]
    fn wake(&self, peer: u32) {
        if self.table.get(peer).is_some_and(|connection| connection.on_node) {
            self.devices[0].wake(peer);
        }
    }

    fn check_peers(&self, about: PeerCheck<'_>) -> Result<Option<u32>> {
        if matches!(about, PeerCheck::Asleep(_)) {
            return self.intra().map_or(Ok(None), |intra| intra.check_peers(about));
        }
        let is_final = matches!(about, PeerCheck::Met(_));
        let mut found = None;
        for (number, device) in (0..).zip(&self.devices) {
            match device.check_peers(about) {
                Err(e) if !is_final && self.has_lost(number, &e) => {}
                checked => found = found.or(checked?),
            }
        }
        Ok(found)
    }

    fn now(&self) -> Instant {
        self.domain().now()
    }

    /// The counters of the intra-node device come first: only its operations bypass `post`.
    fn stats<'a>(&'a self, each: &mut dyn FnMut(&'static str, &'a Stats)) {
        self.devices.iter().for_each(|device| device.stats(each));
    }

    fn leave(&self, how: Leave) -> Result<bool> {
        let mut all = !self.needs_poll() && self.pairs.due.borrow().is_empty();
        for device in &self.devices {
            all &= device.leave(how)?;
        }
        Ok(all)
    }
}
