#![allow(unsafe_code)]
//! The multidevice: joins an intra-node device for the ranks of this node and devices between nodes.
//!
//! Each rank has a connection table ([`table`]): for each peer, the device for small, medium-sized and large reads and
//! writes. Packets of a pair use the device of the small ones, always the same, so they stay in order.
//!
//! A region whose users are all on one node ([`Region::one_node`]) belongs to the intra-node device. Any other region
//! is registered with all devices that carry requests, or would if others failed, and its key contains the keys of all
//! of them ([`regions`]). Its atomics and accumulates use one device for all pairs of ranks, the first that all ranks
//! have: the atomics of an HCA need not be coherent with the processor's, and a word changed by both could lose
//! updates. Between ranks of one node:
//!
//! | atomics of the device between nodes | reads, writes | signals | atomics, accumulates |
//! |---|---|---|---|
//! | coherent ([`Capabilities::coherent`]), as tcp | intra-node device | intra-node device | intra-node device |
//! | not coherent, as verbs; the region is mapped whole | intra-node device | intra-node device, if the region has no accumulates | that device |
//! | not coherent; not mapped whole | that device | that device | that device |
//!
//! In the second row [`Mapped::atomics`] is false: a rank may load and store the memory, and while no rank uses atomics of
//! the device, as between fences if the target's processor applies accumulates, also change it atomically.
//!
//! Large reads and writes are striped over all devices of the kind of the device for large ones ([`stripes`]): two HCAs or
//! two interfaces are rails.
//!
//! Requests on several devices to one peer keep the order that a single device gives ([`requests`]).
//!
//! A device that fails between two ranks which have another one in common is left, and the next in the table takes over
//! ([`failover`]).
//!
//! A wait polls all devices, but a device without events less and less often, so that it hardly slows down the others
//! ([`silence`]). A rank sleeps on the device that had the last event, after it has given the others a waker; an event
//! of another device therefore costs a sleeping rank one thread switch more ([`sleep`]).

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
use std::fmt;
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
use regions::{Handles, Imported, NO_HANDLE};
use requests::{Evidence, Notification, Repeat, Requests, Signal, Tracked, UNTRACKED, Unnotified};
use silence::Silence;
use sleep::Sleeping;
use table::{Connection, Table};

/// The operation in errors of [`Device::post`] and [`Device::import`].
const POST: &str = "post a work request";
const IMPORT: &str = "import a peer's region";

/// Several devices as one device.
pub(crate) struct RouteDevice {
    /// The intra-node device, if there is one, and the devices between nodes, best first.
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
    /// The silence of each device.
    silences: Box<[Silence]>,
    polling: Cell<bool>,
}

impl fmt::Debug for RouteDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteDevice")
            .field("devices", &self.devices)
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}

impl RouteDevice {
    /// Joins `intra`, which is number 0 of the job and connects the ranks of its [`Capabilities::node`], and the
    /// devices `inter`, best first. `has` gives the devices of each rank of the job, as bits; a device connects all
    /// ranks that have it. `chosen` gives the devices that a table of routes names for each rank, if there is one.
    ///
    /// # Errors
    /// `Unsupported` if a pair of ranks has no device in common, if no device between nodes is common to all ranks, or if
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
        // The capabilities that hold for regions and pairs of every device; those of lists and barriers are the domain's.
        let all = || devices.iter().map(|device| device.capabilities());
        let (first, domain) = (devices[0].capabilities(), devices[usize::from(table.domain)].capabilities());
        let capabilities = Capabilities {
            name: "route",
            node: node.clone(),
            max_key: MAX_KEY,
            max_blocks: all().map(|c| c.max_blocks).min().unwrap_or(1),
            // The intra-node device of a rank that is alone on its node carries no packets.
            max_packet: all().filter(|c| c.node.len() != 1).map(|c| c.max_packet).min().unwrap_or(first.max_packet),
            messages: MessageCutOffs { read_intra: first.messages.read_intra, ..domain.messages },
            mapped: false,
            accumulate: domain.accumulate && (!has_intra || first.accumulate),
            coherent: domain.coherent && (!has_intra || first.coherent),
            sleepers_fence: first.sleepers_fence,
            ..domain.clone()
        };
        let pair = |peer| table.get(peer).filter(|c| c.common != 0).map(|c| Pair::new(c.common, c.by_size[0]));
        let pairs = Pairs::new((0..has.len() as u32).map(pair));
        Ok(Self {
            silences: devices.iter().map(|_| Silence::default()).collect(),
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
    #[must_use]
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
        self.silences[usize::from(number)].end();
        // SAFETY: the same contract.
        unsafe { self.device(number).post(request) }.inspect_err(|e| {
            // Otherwise the pair has left the device.
            if self.pairs.get(request.peer).is_none() {
                self.tell_others(number, e);
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

    /// The device of the domain.
    fn domain(&self) -> &dyn Device {
        self.device(self.table.domain)
    }

    fn intra(&self) -> Option<&dyn Device> {
        self.has_intra.then(|| &*self.devices[0])
    }

    /// The device for `operation` on a region of `peer`, or for a signal at a place there, and the device's handle.
    #[inline(always)]
    fn find(&self, peer: u32, region: u64, operation: Option<&Operation<'_>>) -> Result<(u8, u64, bool)> {
        self.imported(peer, region, |import| {
            let device = operation.map_or(import.signal, |operation| import.device(operation));
            (device, import.handles[usize::from(device)], import.is_mapped && device == 0)
        })
    }

    /// Calls a closure with an imported region of `peer`.
    #[inline(always)]
    fn imported<R>(&self, peer: u32, region: u64, f: impl FnOnce(&Imported) -> R) -> Result<R> {
        let imports = self.imports.borrow();
        let import = super::imports::region(imports.get(region), peer, region, POST);
        import.map(f).map_err(|e| e.device("route"))
    }

    /// Posts a request on a peer's region.
    ///
    /// # Safety
    /// The contract of [`Device::post`].
    #[inline]
    unsafe fn post_access(&self, request: &WorkRequest<'_>, region: u64) -> Result<Posted> {
        let connection = self.connection(request.peer, POST)?;
        // SAFETY: the same contract, for both.
        unsafe {
            match connection.common {
                0 => self.post_found(request, region, connection, None),
                _ => self.post_of_pair(request, region, connection),
            }
        }
    }

    /// Posts a request on the device that the table gives.
    ///
    /// # Safety
    /// The contract of [`Device::post`].
    #[inline]
    unsafe fn post_found(
        &self,
        request: &WorkRequest<'_>,
        region: u64,
        connection: &Connection,
        repeat: Option<Repeat>,
    ) -> Result<Posted> {
        let (device, handle, is_mapped) = self.find(request.peer, region, Some(&request.operation))?;
        let operation = request.operation.on_region(handle);
        let notify = match request.notify {
            Some((at, value)) => {
                let (device, handle, _) = self.find(request.peer, at.region, None)?;
                let signal = Signal { peer: request.peer, at, value };
                Some(Notification { signal, device, to: Place { region: handle, ..at } })
            }
            None => None,
        };
        if connection.rails != 0
            && let Some(import) = self.striped(request, region)?
        {
            // SAFETY: the same contract.
            return unsafe { self.post_striped(request, &import, notify.map(|n| n.signal), repeat) };
        }
        if connection.is_mixed {
            let request = WorkRequest { operation, ..*request };
            // SAFETY: the same contract.
            return unsafe { self.post_in_order(&request, device, notify, is_mapped, repeat) };
        }
        let notify = notify.map(|notify| (notify.to, notify.signal.value));
        // SAFETY: the same contract.
        unsafe { self.post_by(device, &WorkRequest { operation, notify, ..*request }) }
    }

    /// Posts a translated request to a peer that several devices access.
    ///
    /// # Safety
    /// The contract of [`Device::post`].
    unsafe fn post_in_order(
        &self,
        request: &WorkRequest<'_>,
        device: u8,
        notify: Option<Notification>,
        is_mapped: bool,
        mut repeat: Option<Repeat>,
    ) -> Result<Posted> {
        let (is_write, is_read) = match request.operation {
            Operation::Transfer(transfer) => (transfer.write, !transfer.write),
            _ => (false, false),
        };
        let elsewhere = notify.filter(|notify| notify.device != device).map(|notify| notify.signal);
        if (notify.is_some() || !is_write && !is_read)
            && self.requests.would_overtake(request.peer, device, elsewhere.is_some())
        {
            return Ok(Posted::Busy);
        }
        let has_spare = !self.pairs.is_empty() && self.pairs.get(request.peer).is_some();
        let is_tracked = elsewhere.is_some() || is_write && !is_mapped || has_spare;
        let id = if is_tracked { self.requests.next() } else { request.id };
        let with = notify.filter(|_| elsewhere.is_none());
        if let (Some(repeat), Some(Notification { signal, .. })) = (&mut repeat, with) {
            repeat.evidence = Evidence::Signal(signal.at, signal.value);
        }
        let notify = with.map(|notify| (notify.to, notify.signal.value));
        // SAFETY: the same contract.
        let posted = unsafe { self.post_to(device, &WorkRequest { id, notify, ..*request }) }?;
        match (posted, elsewhere) {
            (Posted::Pending, _) if is_tracked => {
                let WorkRequest { id, peer, .. } = *request;
                let tracked = Tracked::new(id, peer, 1 << device, 1);
                self.requests.add(Tracked { is_write, notify: elsewhere, repeat, ..tracked });
            }
            (Posted::Done, Some(signal)) if !self.signal(&signal)? => {
                self.requests.add_unnotified(Unnotified { id: request.id, signal });
                return Ok(Posted::Pending);
            }
            _ => {}
        }
        if has_spare && posted != Posted::Busy {
            match (with, request.operation) {
                (Some(Notification { signal, .. }), _) => self.has_notified(&signal),
                (None, Operation::Signal { .. }) => {}
                (None, _) if is_write || is_read => {}
                (None, _) => self.requests.add_evidence(request.peer, Evidence::Atomic),
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
        let (device, handle, _) = self.find(peer, at.region, None)?;
        let request = WorkRequest { operation: operation.on_region(handle), ..request };
        // SAFETY: a signal touches no local memory.
        let is_set = unsafe { self.post_to(device, &request) }? != Posted::Busy;
        if let (Some(pair), true) = (pair, is_set) {
            self.has_signalled(pair, device, signal);
        }
        Ok(is_set)
    }

    /// Reports the end of a tracked request, after its notification. `device` carried the part that has ended.
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

    /// Posts notifications that found a busy device; returns whether there were any.
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

    fn poll_all(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        let mut any = self.notify(sink) | self.post_stripes(sink) | self.progress(sink)?;
        for (number, (device, silence)) in (0..).zip(self.devices.iter().zip(&self.silences)) {
            if number > 0 && !silence.is_poll_due() {
                continue;
            }
            let mut ended = Vec::new();
            let polled = device.poll(&mut |event| match event {
                Event::Completed { id, result } => {
                    let is_tracked = Requests::is_tracked(id);
                    if let Err(e) = &result
                        && !(is_tracked && self.requests.peer(id).is_some_and(|peer| self.pairs.get(peer).is_some()))
                    {
                        self.has_lost(number, e);
                    }
                    match is_tracked {
                        true => ended.push((id, result)),
                        false => sink(Event::Completed { id, result }),
                    }
                }
                Event::Packet { source, bytes } if !self.pairs.is_empty() => {
                    if let Some(bytes) = self.taken(number, source, bytes) {
                        sink(Event::Packet { source, bytes });
                    }
                }
                Event::LongPacket { source, packet } if !self.pairs.is_empty() => {
                    if self.takes_long(number, source, packet.len()) {
                        sink(Event::LongPacket { source, packet });
                    }
                }
                event => sink(event),
            });
            any |= !ended.is_empty();
            ended.into_iter().for_each(|(id, result)| self.end(number, id, result, sink));
            match polled {
                Err(e) if self.has_lost(number, &e) => any = true,
                Ok(true) => {
                    silence.end();
                    self.sleeping.note(number);
                    any = true;
                }
                polled => any |= polled?,
            }
        }
        Ok(any)
    }
}

// SAFETY: hands on what the devices below name; a request is complete when all its parts are.
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
                let most = self.capabilities.max_packet;
                if len > most {
                    let e = Error::new(ErrorKind::BadArgument, POST).peer(request.peer).device("route");
                    return Err(e.cause(format!("a packet of {len} bytes, {most} allowed")));
                }
                if connection.common != 0 {
                    // SAFETY: the same contract.
                    return packet.with_parts(|header, body| unsafe { self.post_packet(request, header, body) });
                }
                connection.by_size[0]
            }
            // Lists and barriers in a switch work the same between all ranks; the device reports what is wrong with one.
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
        self.poll_all(sink)
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
