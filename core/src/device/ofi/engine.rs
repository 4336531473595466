#![allow(unsafe_code)]
//! The state of the device: messages and their credits, completions, registered memory, lost peers.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::buffers::{Buffers, SLOT};
use super::fabric::{Context, Fabric, Failure, Memory};
use super::leases::{Exposure, Leases, Users};
use super::message::{CLASSES, HEADER, Message, PACKETS, SIGNALS, WORDS};
use super::post::{Fragment, Request, Waiting};
use crate::device::loopback::Owned;
use crate::device::{Block, Posted};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::keys::Exposures;
use crate::slots::Slots;

/// Maximum number of messages of a class on their way from one rank to another.
pub(super) const ROOM: u32 = 64;
/// Number of buffers for messages that are sent, and for those that are received.
const SENDS: u32 = 128;
const RECEIVES: u32 = 128;

/// The kind of an operation is in the upper half of its tag.
const KIND: u32 = 32;
const SEND: u64 = 1;
const RECEIVE: u64 = 2;
const TRANSFER: u64 = 3;

/// A rank, as this rank sees it.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// The handle of its address.
    pub address: u64,
    /// Messages of each class that were sent to it, and how many of them it has taken.
    sent: [u32; CLASSES],
    taken_there: [u32; CLASSES],
    /// Messages of each class that this rank has taken from it, and how many of them this rank has reported to it.
    taken_here: [u32; CLASSES],
    reported: [u32; CLASSES],
    is_credit_due: bool,
    /// Number of notifications that are not sent.
    pub held: u32,
    pub lost: Option<Error>,
}

impl Peer {
    pub(super) fn new(address: u64) -> Self {
        Self { address, ..Self::default() }
    }
}

/// A region of this rank.
pub(super) struct OwnRegion {
    pub base: *mut u8,
    pub at: Exposure,
    pub memory: Option<Memory>,
    pub owned: Owned,
    pub users: Users,
}

/// A signal that follows an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Notice {
    pub peer: u32,
    pub region: u64,
    pub offset: u64,
    pub value: u64,
}

/// A transfer that the provider has accepted.
struct InFlight {
    context: Context,
    request: Option<u64>,
}

pub(super) struct Engine {
    pub me: u32,
    pub fabric: Rc<Fabric>,
    pub peers: Vec<Peer>,
    pub exposures: Exposures,
    pub regions: FxHashMap<u64, OwnRegion>,
    /// Regions of this rank by their first byte: length and number.
    pub by_address: BTreeMap<usize, (usize, u64)>,
    /// Released memory of the device that peers may still access.
    pub released: FxHashMap<u64, OwnRegion>,
    pub leases: Leases,
    pub requests: Slots<Request>,
    /// Number of requests in progress.
    pub open: usize,
    /// Fragments that the provider has not accepted yet.
    pub unposted: VecDeque<Fragment>,
    pub waiting: Waiting,
    in_flight: Vec<InFlight>,
    free_fragments: Vec<u32>,
    pub sends: Buffers,
    /// The destination of each slot, and whether its loss matters.
    destinations: Vec<(u32, bool)>,
    receives: Buffers,
    /// Notifications whose operations are posted, or complete if the provider does not order messages after writes.
    /// Each may belong to a request.
    pub notices: VecDeque<(Notice, Option<u64>)>,
    /// Control messages that are not sent yet.
    outbox: VecDeque<(u32, Message)>,
    pub inbox: VecDeque<(u32, Vec<u8>)>,
    pub done: VecDeque<(u64, Result<()>)>,
    completions: Vec<(u64, std::result::Result<usize, Failure>)>,
    /// Whether messages of peers were served since the last poll.
    pub has_served: bool,
    /// The first loss that this rank has detected.
    pub loss: Option<Error>,
    /// The error of every request once the endpoint is closed.
    pub broken: Option<Error>,
}

impl Engine {
    pub(super) fn new(me: u32, fabric: Rc<Fabric>, peers: Vec<Peer>) -> std::result::Result<Self, Failure> {
        let sends = Buffers::new(&fabric, SENDS, SEND << KIND)?;
        let receives = Buffers::new(&fabric, RECEIVES, RECEIVE << KIND)?;
        let mut engine = Self {
            me,
            fabric,
            peers,
            exposures: Exposures::default(),
            regions: FxHashMap::default(),
            by_address: BTreeMap::new(),
            released: FxHashMap::default(),
            leases: Leases::default(),
            requests: Slots::default(),
            open: 0,
            unposted: VecDeque::new(),
            waiting: Waiting::default(),
            in_flight: Vec::new(),
            free_fragments: Vec::new(),
            destinations: vec![(me, false); sends.count()],
            sends,
            receives,
            notices: VecDeque::new(),
            outbox: VecDeque::new(),
            inbox: VecDeque::new(),
            done: VecDeque::new(),
            completions: Vec::new(),
            has_served: false,
            loss: None,
            broken: None,
        };
        engine.post_receives()?;
        Ok(engine)
    }

    pub(super) fn error(&self, kind: ErrorKind, operation: &'static str, peer: u32) -> Error {
        Error::new(kind, operation).rank(self.me).peer(peer).device("ofi")
    }

    /// The error of an operation that the provider has refused, or that has failed.
    pub(super) fn failure(&self, operation: &'static str, peer: u32, failure: &Failure) -> Error {
        let kind = match failure.errno {
            libc::ECONNRESET
            | libc::ECONNREFUSED
            | libc::ECONNABORTED
            | libc::EHOSTUNREACH
            | libc::EHOSTDOWN
            | libc::ENETUNREACH
            | libc::ENETDOWN
            | libc::ENOTCONN
            | libc::ESHUTDOWN
            | libc::ETIMEDOUT
            | libc::EPIPE
            | libc::ECANCELED => ErrorKind::PeerLost,
            libc::EACCES | libc::EPERM | libc::EKEYREJECTED | super::sys::FI_ENOKEY => ErrorKind::BadKey,
            libc::ENOMEM | libc::ENOBUFS | libc::EMFILE | libc::ENFILE => ErrorKind::Limit,
            _ => ErrorKind::System,
        };
        let provider = &self.fabric.offer.provider;
        self.error(kind, operation, peer).cause(format!("{failure} (provider {provider})"))
    }

    /// The error of every operation with a peer that is lost, or after the endpoint was closed.
    pub(super) fn gone(&self, peer: u32, operation: &'static str) -> Option<Error> {
        let lost = self.broken.as_ref().or(self.peers.get(peer as usize)?.lost.as_ref())?;
        Some(lost.again().during(operation))
    }

    /// Sends a message; `false` if it must be tried again.
    ///
    /// # Safety
    /// The blocks are valid for reads.
    unsafe fn send(&mut self, to: u32, message: Message, header: &[u8], body: &[Block]) -> Result<bool> {
        const OP: &str = "send a packet";
        if let Some(e) = self.gone(to, OP) {
            return Err(e);
        }
        let peer = &mut self.peers[to as usize];
        if let Some(class) = message.class()
            && peer.sent[class].wrapping_sub(peer.taken_there[class]) >= ROOM
        {
            return Ok(false);
        }
        let Some(slot) = self.sends.take() else { return Ok(false) };
        let mut fixed = [0; HEADER + 8 * WORDS];
        let mut len = message.write(self.me, peer.taken_here, &mut fixed);
        let block = |block: &Block| {
            // SAFETY: valid by the contract.
            if block.len == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(block.base, block.len) } }
        };
        // SAFETY: the slot is not in use.
        unsafe { self.sends.fill(slot, 0, &fixed[..len]) };
        for part in std::iter::once(header).chain(body.iter().map(block)) {
            // SAFETY: as above.
            unsafe { self.sends.fill(slot, len, part) };
            len += part.len();
        }
        let bytes = (self.sends.address(slot).cast_const(), len, self.sends.desc());
        // SAFETY: the slot is not used again before its completion, and its memory is freed after the endpoint.
        let posted = unsafe { self.fabric.send(bytes, peer.address, self.sends.context(slot)) };
        match posted {
            Ok(true) => {
                let peer = &mut self.peers[to as usize];
                peer.reported = peer.taken_here;
                message.class().into_iter().for_each(|class| peer.sent[class] = peer.sent[class].wrapping_add(1));
                self.destinations[slot as usize] = (to, message.class().is_some());
                Ok(true)
            }
            Ok(false) => {
                self.sends.give_back(slot);
                Ok(false)
            }
            Err(failure) => {
                self.sends.give_back(slot);
                Err(self.failure(OP, to, &failure))
            }
        }
    }

    /// Sends a packet, or sets a signal cell.
    ///
    /// # Safety
    /// The blocks are valid for reads.
    pub(super) unsafe fn send_data(
        &mut self,
        to: u32,
        message: Message,
        header: &[u8],
        body: &[Block],
    ) -> Result<Posted> {
        // SAFETY: by the contract.
        match unsafe { self.send(to, message, header, body) } {
            Ok(sent) => Ok(if sent { Posted::Done } else { Posted::Busy }),
            Err(e) => {
                self.note_loss(&e);
                Err(e)
            }
        }
    }

    /// Sends a control message, now or later.
    pub(super) fn control(&mut self, to: u32, message: Message) {
        self.outbox.push_back((to, message));
        self.drive_outbox();
    }

    pub(super) fn control_if(&mut self, message: Option<(u32, Message)>) {
        message.into_iter().for_each(|(to, message)| self.control(to, message));
    }

    fn drive_outbox(&mut self) {
        let mut blocked: SmallVec<[u32; 4]> = SmallVec::new();
        for _ in 0..self.outbox.len() {
            let Some((to, message)) = self.outbox.pop_front() else { return };
            let peer = &mut self.peers[to as usize];
            let is_reported = message == Message::Credit && peer.reported == peer.taken_here;
            if message == Message::Credit {
                peer.is_credit_due = false;
            }
            if is_reported {
                continue;
            }
            // SAFETY: the message has no blocks.
            let sent = !blocked.contains(&to) && unsafe { self.send(to, message, &[], &[]) }.unwrap_or(true);
            if !sent {
                blocked.push(to);
                if message == Message::Credit {
                    self.peers[to as usize].is_credit_due = true;
                }
                self.outbox.push_back((to, message));
            }
        }
    }

    /// Counts a message of a peer that has been taken, and tells the peer if it may soon wait for that.
    pub(super) fn count_taken(&mut self, source: u32, class: usize) {
        let peer = &mut self.peers[source as usize];
        peer.taken_here[class] = peer.taken_here[class].wrapping_add(1);
        if peer.taken_here[class].wrapping_sub(peer.reported[class]) >= ROOM / 2 && !peer.is_credit_due {
            peer.is_credit_due = true;
            self.outbox.push_back((source, Message::Credit));
        }
    }

    /// Makes progress: handles completions and messages, and posts what waits. Packets and completed requests are kept
    /// for the next poll.
    pub(super) fn turn(&mut self) -> Result<()> {
        if self.broken.is_some() {
            return Ok(());
        }
        let mut completions = std::mem::take(&mut self.completions);
        let polled = Rc::clone(&self.fabric).poll(&mut |tag, result| completions.push((tag, result)));
        for (tag, result) in completions.drain(..) {
            let at = tag as u32;
            match tag >> KIND {
                SEND => self.sent(at, result),
                RECEIVE => self.received(at, result),
                _ => self.transferred(at, result),
            }
        }
        self.completions = completions;
        self.drive();
        polled.map_err(|failure| self.failure("poll for completions", self.me, &failure))
    }

    /// Posts what waits.
    pub(super) fn drive(&mut self) {
        if !self.outbox.is_empty() {
            self.drive_outbox();
        }
        while let Some(fragment) = self.unposted.pop_front() {
            match self.post_fragment(fragment) {
                Ok(None) => {}
                Ok(Some(fragment)) => {
                    self.unposted.push_front(fragment);
                    break;
                }
                Err((request, failure)) => self.fragment_ended(request, Err(failure)),
            }
        }
        // Each fragment precedes the notifications that follow it.
        while self.unposted.is_empty()
            && let Some((Notice { peer, region, offset, value }, _)) = self.notices.front().copied()
        {
            // SAFETY: there are no blocks.
            if unsafe { self.send(peer, Message::Signal { region, offset, value }, &[], &[]) }.is_ok_and(|sent| !sent) {
                break;
            }
            self.notices.pop_front();
            self.peers[peer as usize].held -= 1;
        }
        if self.receives.in_use() < self.receives.count()
            && let Err(failure) = self.post_receives()
        {
            tracing::warn!(rank = self.me, "no buffer for messages can be posted: {failure}");
        }
    }

    /// Whether something waits that no event announces.
    pub(super) fn is_blocked(&self) -> bool {
        !self.outbox.is_empty()
            || !self.notices.is_empty()
            || !self.unposted.is_empty()
            || self.receives.in_use() < self.receives.count()
    }

    /// Whether a poll would deliver something.
    pub(super) fn has_events(&self) -> bool {
        self.has_served || !self.inbox.is_empty() || !self.done.is_empty()
    }

    /// Whether nothing of this rank is in progress.
    pub(super) fn is_quiet(&self) -> bool {
        self.broken.is_some()
            || self.open == 0 && self.outbox.is_empty() && self.notices.is_empty() && self.sends.in_use() == 0
    }

    fn sent(&mut self, slot: u32, result: std::result::Result<usize, Failure>) {
        let (to, matters) = self.destinations[slot as usize];
        self.sends.give_back(slot);
        // A rank that has left accepts no credits.
        if let Err(failure) = result
            && matters
        {
            let e = self.failure("send a packet", to, &failure);
            self.note_loss(&e);
        }
    }

    fn post_receives(&mut self) -> std::result::Result<(), Failure> {
        while let Some(slot) = self.receives.take() {
            let buffer = (self.receives.address(slot), SLOT, self.receives.desc());
            // SAFETY: the slot is not used before its completion, and its memory is freed after the endpoint.
            match unsafe { self.fabric.receive(buffer, self.receives.context(slot)) } {
                Ok(true) => {}
                refused => {
                    self.receives.give_back(slot);
                    return refused.map(drop);
                }
            }
        }
        Ok(())
    }

    fn received(&mut self, slot: u32, result: std::result::Result<usize, Failure>) {
        match result {
            Ok(len) => {
                // SAFETY: the completion has returned the slot, which is posted again below. A copy ends the borrow.
                let bytes: SmallVec<[u8; 128]> = SmallVec::from_slice(unsafe { self.receives.bytes(slot, len) });
                if self.handle(&bytes).is_none() {
                    tracing::warn!(rank = self.me, "a malformed message of {len} bytes was dropped");
                }
            }
            Err(failure) => tracing::debug!(rank = self.me, "a receive has failed: {failure}"),
        }
        self.receives.give_back(slot);
    }

    /// Handles a message; `None` if it is malformed.
    fn handle(&mut self, bytes: &[u8]) -> Option<()> {
        let (source, taken, message, body) = Message::read(bytes)?;
        let peer = self.peers.get_mut(source as usize).filter(|_| source != self.me)?;
        for (class, taken) in taken.into_iter().enumerate() {
            let open = peer.sent[class].wrapping_sub(peer.taken_there[class]);
            // An older message does not take credits back.
            if taken.wrapping_sub(peer.taken_there[class]) <= open {
                peer.taken_there[class] = taken;
            }
        }
        self.has_served = true;
        match message {
            Message::Packet => self.inbox.push_back((source, body.to_vec())),
            Message::Signal { region, offset, value } => {
                self.count_taken(source, SIGNALS);
                // A released region has no cells.
                let _ = self.raise(region, offset, value);
            }
            Message::Credit => {}
            Message::Use { region, lease } => {
                let answer = match self.regions.get_mut(&region) {
                    Some(own) => {
                        own.users.insert(source, lease);
                        let Exposure { address, key, len } = own.at;
                        Message::Granted { lease, address, key, len }
                    }
                    None => Message::Revoked { lease },
                };
                self.control(source, answer);
            }
            Message::Granted { lease, address, key, len } => {
                self.leases.granted(source, lease, Exposure { address, key, len });
                self.end_waiting(lease);
            }
            Message::Revoked { lease } => {
                let ended = self.leases.revoked(source, lease);
                self.control_if(ended);
                self.end_waiting(lease);
            }
            Message::Ended { region, lease } => {
                let end = |own: &mut OwnRegion| {
                    if own.users.get(&source) == Some(&lease) {
                        own.users.remove(&source);
                    }
                    own.users.is_empty()
                };
                self.regions.get_mut(&region).map(end);
                if self.released.get_mut(&region).is_some_and(end) {
                    self.released.remove(&region);
                }
            }
        }
        Some(())
    }

    /// Delivers a packet, and counts it.
    pub(super) fn next_packet(&mut self) -> Option<(u32, Vec<u8>)> {
        let (source, bytes) = self.inbox.pop_front()?;
        if source != self.me {
            self.count_taken(source, PACKETS);
        }
        Some((source, bytes))
    }

    /// Sets a cell of this rank. An error means that no such cell exists.
    pub(super) fn raise(&self, region: u64, offset: u64, value: u64) -> Result<(), ErrorKind> {
        let set = |cell: *mut u8, _: &_| {
            if !cell.addr().is_multiple_of(8) {
                return Err(ErrorKind::Misaligned);
            }
            // SAFETY: an aligned word of an exposed region, which is not released meanwhile.
            // Release: pairs with the Acquire of the cell's owner.
            unsafe { AtomicU64::from_ptr(cell.cast()) }.store(value, Ordering::Release);
            Ok(())
        };
        self.exposures.with(region, offset, 8, set).ok_or(ErrorKind::BadKey)?.ok_or(ErrorKind::OutOfRange)?
    }

    /// A free context for a fragment of a request.
    pub(super) fn take_fragment(&mut self, request: u64) -> u32 {
        let number = self.free_fragments.pop().unwrap_or_else(|| {
            let number = self.in_flight.len();
            self.in_flight.push(InFlight { context: Context::new(TRANSFER << KIND | number as u64), request: None });
            number as u32
        });
        self.in_flight[number as usize].request = Some(request);
        number
    }

    pub(super) fn fragment_context(&self, number: u32) -> &Context {
        &self.in_flight[number as usize].context
    }

    pub(super) fn give_fragment_back(&mut self, number: u32) -> Option<u64> {
        let request = self.in_flight[number as usize].request.take();
        self.free_fragments.push(number);
        request
    }

    fn transferred(&mut self, number: u32, result: std::result::Result<usize, Failure>) {
        if let Some(request) = self.give_fragment_back(number) {
            self.fragment_ended(request, result.map(drop));
        }
    }

    /// Records the loss of a peer if that is what an error means.
    pub(super) fn note_loss(&mut self, e: &Error) {
        if e.kind() == ErrorKind::PeerLost
            && let Some(peer) = e.blamed_number()
        {
            self.lose(peer, e);
        }
    }

    /// Queues a notification, and sends it if it can be sent.
    pub(super) fn notify(&mut self, notice: Notice, request: Option<u64>) {
        if notice.peer == self.me {
            // A cell that is gone needs no signal.
            let _ = self.raise(notice.region, notice.offset, notice.value);
            return;
        }
        self.peers[notice.peer as usize].held += 1;
        self.notices.push_back((notice, request));
        self.drive();
    }

    /// Drops the notifications that `which` selects.
    pub(super) fn drop_notices(&mut self, which: impl Fn(&Notice, Option<u64>) -> bool) {
        let peers = &mut self.peers;
        self.notices.retain(|(notice, request)| {
            let is_kept = !which(notice, *request);
            peers[notice.peer as usize].held -= u32::from(!is_kept);
            is_kept
        });
    }

    /// Ends all communication with a peer. Requests in progress end when the provider gives their memory back.
    pub(super) fn lose(&mut self, peer: u32, e: &Error) {
        let Some(lost) = self.peers.get_mut(peer as usize).filter(|_| peer != self.me) else { return };
        if lost.lost.is_some() {
            return;
        }
        lost.lost = Some(e.again());
        self.loss.get_or_insert_with(|| e.again());
        self.outbox.retain(|(to, _)| *to != peer);
        self.drop_notices(|notice, _| notice.peer == peer);
        self.drop_waiting(|request, _| request.peer == peer);
        self.drop_unposted(|request| request.peer == peer);
        for own in self.regions.values_mut().chain(self.released.values_mut()) {
            own.users.remove(&peer);
        }
        self.released.retain(|_, own| !own.users.is_empty());
    }

    /// Closes the endpoint, so that no operation uses memory any more, and ends all requests.
    pub(super) fn close(&mut self, why: Error) {
        if self.broken.is_some() {
            return;
        }
        tracing::warn!(rank = self.me, "the endpoint was closed: {why}");
        self.fabric.close_endpoint();
        self.loss.get_or_insert_with(|| why.again());
        self.broken = Some(why);
        self.unposted.clear();
        self.waiting = Waiting::default();
        self.outbox.clear();
        self.drop_notices(|_, _| true);
        self.in_flight.iter_mut().for_each(|one| one.request = None);
        let all: Vec<u64> = self.requests.iter().map(|(number, _)| number).collect();
        all.into_iter().for_each(|number| self.end_request(number));
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Peers access no memory once its registration is closed; no operation uses buffers or contexts once the
        // endpoint is closed. They are freed after this.
        self.regions.values_mut().chain(self.released.values_mut()).for_each(|own| own.memory = None);
        self.fabric.close_endpoint();
    }
}
