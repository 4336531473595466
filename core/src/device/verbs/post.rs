#![allow(unsafe_code)]
//! Work requests of the seam as requests to the card.
//!
//! Bytes go inside the request up to the inline limit; registered memory is used where it lies, by gather and
//! scatter lists, that of the user too if it was registered for an earlier operation; other memory is copied through a
//! chunk up to 64 KiB, and registered above that ([`super::pinned`]); what cannot be registered is copied in pieces
//! ([`super::staged`]).

use std::sync::atomic::Ordering;

use smallvec::{SmallVec, smallvec};

use super::buffers::{LARGEST, PACKET};
use super::connect::credits;
use super::cut::{Limits, cut};
use super::engine::{Engine, Notice};
use super::flight::Flight;
use super::lists::Way;
use super::ops::{Op, Owner, Whose};
use super::sys::Rights;
use super::sys::qp::Action;
use super::sys::queue::Piece;
use super::user::Leases;
use crate::device::{Block, Operation, Place, Posted, WorkRequest};
use crate::error::{Error, ErrorKind, Result};
use crate::stats::{Kind, Stats};

/// Where the bytes of a transfer are for the card.
enum Local {
    /// In memory that is registered, perhaps for this operation.
    Direct(SmallVec<[Piece; 2]>, Leases),
    /// To be copied through a chunk.
    Bounce,
    /// To be copied through chunks in pieces: it is longer than a chunk, and cannot be registered.
    Pieces,
}

/// The length of a packet, if it is not too long.
fn packet_len(peer: u32, header: &[u8], body: &[Block]) -> Result<usize> {
    let len = header.len() + body.iter().map(|b| b.len).sum::<usize>();
    if len <= PACKET {
        return Ok(len);
    }
    let e = Error::new(ErrorKind::BadArgument, "send a packet").peer(peer).device("verbs");
    Err(e.cause(format!("{len} bytes, {PACKET} allowed")))
}

impl Engine {
    /// # Safety
    /// As [`crate::device::Device::post`].
    pub(super) unsafe fn post(&mut self, request: &WorkRequest<'_>, limits: Limits, stats: &Stats) -> Result<Posted> {
        if request.peer as usize >= self.links.cards.len() {
            return Err(Error::new(ErrorKind::NoSuchRank, "post a work request").peer(request.peer).device("verbs"));
        }
        let notice = match request.notify {
            None => None,
            Some((at, value)) => Some(self.notice(request.peer, at, value)?),
        };
        // SAFETY: the same contract, in all.
        unsafe {
            match request.operation {
                Operation::Write { from, to } => self.write(request, from, to, notice, limits, stats),
                Operation::Read { into, from } => self.read(request, into, from, notice, limits, stats),
                Operation::WriteBlocks { .. } | Operation::ReadBlocks { .. } => {
                    let e = Error::new(ErrorKind::Unsupported, "move blocks").peer(request.peer).device("verbs");
                    Err(e.cause("a request of the card has one range of remote memory"))
                }
                Operation::FetchAdd { at, add, old } => {
                    let (address, key) = self.regions.reach_aligned(request.peer, at, 8, "fetch and add")?;
                    let action = Action::FetchAdd { address, key, add };
                    let posted = self.fetch(request.peer, request.id, action, (old.cast(), 8), notice, stats)?;
                    Ok(counted(posted, Kind::FetchAdd, 8, stats))
                }
                Operation::CompareSwap { at, len: 8, expected, desired, old } => {
                    let (address, key) = self.regions.reach_aligned(request.peer, at, 8, "compare and swap")?;
                    let action = Action::CompareSwap { address, key, expected, desired };
                    let posted = self.fetch(request.peer, request.id, action, (old, 8), notice, stats)?;
                    Ok(counted(posted, Kind::CompareSwap, 8, stats))
                }
                Operation::CompareSwap { .. } | Operation::Accumulate { .. } => {
                    let e = Error::new(ErrorKind::Unsupported, "accumulate").peer(request.peer).device("verbs");
                    Err(e.cause("an HCA has atomics on words of 8 bytes"))
                }
                Operation::Signal { at, value } => {
                    let own = self.notice(request.peer, at, value)?;
                    if self.ready(request.peer)?.is_none_or(|s| s.room() < 2) {
                        return Ok(Posted::Busy);
                    }
                    self.push_signal(request.peer, &own, stats);
                    if let Some(n) = &notice {
                        self.push_signal(request.peer, n, stats);
                        stats.add(Kind::Signal, 8);
                    }
                    stats.add(Kind::Signal, 8);
                    Ok(Posted::Done)
                }
                Operation::SendShort(packet) => self.send(request.peer, &packet.bytes()[..packet.len()], &[], stats),
                Operation::Send { header, body } => self.send(request.peer, header, body, stats),
                Operation::Scatter { into } => self.list(request, into, Way::Scatter, stats),
                Operation::Gather { from } => self.list(request, from, Way::Gather, stats),
            }
        }
    }

    fn notice(&self, peer: u32, at: Place, value: u64) -> Result<Notice> {
        const OP: &str = "signal a peer";
        let import = self.regions.region(peer, at, 8, OP)?;
        import.aligned(at.offset, 8, OP)?;
        Ok(Notice { import, offset: at.offset, value })
    }

    /// A read or an atomic of at most 8 bytes, which go to `to` by way of a chunk; nowhere, if that is null.
    fn fetch(
        &mut self,
        peer: u32,
        id: u64,
        action: Action,
        (to, len): (*mut u8, usize),
        notice: Option<Notice>,
        stats: &Stats,
    ) -> Result<Posted> {
        if self.ready(peer)?.is_none_or(|s| s.room() < 2) {
            return Ok(Posted::Busy);
        }
        let Some(chunk) = self.pool.take_word() else { return Ok(Posted::Busy) };
        let piece = self.pool.piece(&chunk, 0, len);
        let Some(notice) = notice else {
            self.whole += 1;
            self.push_one(peer, action, stats, |flight| {
                flight.pieces.push(piece);
                (flight.whose, flight.signalled, flight.chunk) = (Whose::Fetch { id, to, len }, true, Some(chunk));
            });
            return Ok(Posted::Pending);
        };
        let to = (!to.is_null()).then_some((to, len));
        let op = self.ops.add_with_chunk(Owner::User(id), peer, chunk, to);
        self.post_single(peer, op, action, |f| f.pieces.push(piece), Some(notice), stats);
        Ok(Posted::Pending)
    }

    /// # Safety
    /// The blocks are valid for reads.
    unsafe fn send(&mut self, peer: u32, header: &[u8], body: &[Block], stats: &Stats) -> Result<Posted> {
        let len = packet_len(peer, header, body)?;
        if peer == self.links.me {
            // SAFETY: by the contract.
            if !unsafe { self.own.send(header, body) } {
                return Ok(Posted::Busy);
            }
            stats.add(Kind::Send, len);
            return Ok(Posted::Done);
        }
        if self.ready(peer)?.is_none() || !self.has_credit(peer, stats) {
            return Ok(Posted::Busy);
        }
        let inline = match self.ready(peer)? {
            Some(s) if s.room() > 0 => s.inline(),
            _ => return Ok(Posted::Busy),
        };
        let mut flight = Flight::new(Action::Send);
        // Relaxed: this rank's own count.
        flight.immediate = Some(credits::tell(self.regions.taken(peer).load(Ordering::Relaxed)));
        if len <= inline && len > 0 {
            flight.inline.extend_from_slice(header);
            // SAFETY: by the contract.
            body.iter().for_each(|b| unsafe { flight.append(b) });
        } else if len > 0 {
            let Some(chunk) = self.pool.take(len) else { return Ok(Posted::Busy) };
            // SAFETY: by the contract; the chunk has room for all.
            unsafe {
                self.pool.gather(&chunk, 0, &[Block::of(header.as_ptr(), header.len())]);
                self.pool.gather(&chunk, header.len(), body);
            }
            flight.pieces.push(self.pool.piece(&chunk, 0, len));
            flight.chunk = Some(chunk);
        }
        self.push_one(peer, Action::Send, stats, |place| *place = flight);
        self.credits[peer as usize].sent();
        stats.add(Kind::Send, len);
        Ok(Posted::Done)
    }

    /// # Safety
    /// As [`crate::device::Device::post`].
    unsafe fn write(
        &mut self,
        request: &WorkRequest<'_>,
        from: &[Block],
        to: Place,
        notice: Option<Notice>,
        limits: Limits,
        stats: &Stats,
    ) -> Result<Posted> {
        let len = from.iter().map(|b| b.len).sum::<usize>();
        let (address, key) = self.regions.reach(request.peer, to, len, "write remote memory")?;
        let (inline, room, capacity) = match self.ready(request.peer)? {
            Some(s) if s.room() > 2 => (s.inline(), s.room() - 2, s.capacity()),
            _ => return Ok(Posted::Busy),
        };
        if len == 0 {
            return self.empty(request.peer, Kind::Write, notice.as_ref(), stats);
        }
        if notice.is_none() && len <= inline {
            self.whole += 1;
            self.push_one(request.peer, Action::Write { address, key }, stats, |flight| {
                // SAFETY: by the contract.
                from.iter().for_each(|b| unsafe { flight.append(b) });
                (flight.whose, flight.signalled) = (Whose::User(request.id), true);
            });
            return Ok(counted(Posted::Pending, Kind::Write, len, stats));
        }
        let mut flights: SmallVec<[Flight; 4]> = SmallVec::new();
        let mut op = Op::new(Owner::User(request.id), request.peer, 1);
        if len <= inline {
            let mut flight = Flight::new(Action::Write { address, key });
            // SAFETY: by the contract.
            from.iter().for_each(|b| unsafe { flight.append(b) });
            flights.push(flight);
        } else {
            // SAFETY: by the contract.
            let pieces = match unsafe { self.local(from, len, Rights::Source, stats) }? {
                Local::Direct(pieces, memories) => {
                    op.direct = true;
                    op.memories = memories;
                    pieces
                }
                Local::Bounce => {
                    let Some(chunk) = self.pool.take(len) else { return Ok(Posted::Busy) };
                    // SAFETY: by the contract; the chunk has room.
                    unsafe { self.pool.gather(&chunk, 0, from) };
                    stats.add(Kind::Copy, len);
                    let piece = self.pool.piece(&chunk, 0, len);
                    op.chunk = Some(chunk);
                    smallvec![piece]
                }
                Local::Pieces => {
                    let action = Action::Write { address, key };
                    // SAFETY: by the contract.
                    let posted = unsafe { self.stage(request, from, action, notice, limits, stats) };
                    return Ok(counted(posted, Kind::Write, len, stats));
                }
            };
            for (at, list) in cut(&pieces, limits) {
                let mut flight = Flight::new(Action::Write { address: address + at, key });
                flight.pieces = list;
                flights.push(flight);
            }
        }
        if room < flights.len().min(capacity / 2) {
            self.pool_back(op);
            return Ok(Posted::Busy);
        }
        op.open = flights.len() as u32;
        let number = self.ops.add(op);
        flights.iter_mut().for_each(|f| f.whose = Whose::Op(number));
        if let Some(last) = flights.last_mut() {
            last.signalled = true;
        }
        if let Some(n) = &notice {
            self.announce(&mut flights, n, stats);
        }
        self.push(request.peer, flights, stats);
        Ok(counted(Posted::Pending, Kind::Write, len, stats))
    }

    /// An operation on no bytes: its notification alone.
    fn empty(&mut self, peer: u32, kind: Kind, notice: Option<&Notice>, stats: &Stats) -> Result<Posted> {
        stats.add(kind, 0);
        if let Some(n) = notice {
            self.push_signal(peer, n, stats);
            stats.add(Kind::Signal, 8);
        }
        Ok(Posted::Done)
    }

    pub(super) fn pool_back(&mut self, op: Op) {
        if let Some(chunk) = op.chunk {
            self.pool.give(chunk);
        }
    }

    /// # Safety
    /// As [`crate::device::Device::post`].
    unsafe fn read(
        &mut self,
        request: &WorkRequest<'_>,
        into: &[Block],
        from: Place,
        notice: Option<Notice>,
        limits: Limits,
        stats: &Stats,
    ) -> Result<Posted> {
        let len = into.iter().map(|b| b.len).sum::<usize>();
        let (address, key) = self.regions.reach(request.peer, from, len, "read remote memory")?;
        let (room, capacity) = match self.ready(request.peer)? {
            Some(s) if s.room() > 2 => (s.room() - 2, s.capacity()),
            _ => return Ok(Posted::Busy),
        };
        if len == 0 {
            return self.empty(request.peer, Kind::Read, notice.as_ref(), stats);
        }
        // A word is sooner copied than looked up.
        if let ([into], true) = (into, len <= 8) {
            let action = Action::Read { address, key };
            let posted = self.fetch(request.peer, request.id, action, (into.base, len), notice, stats)?;
            return Ok(counted(posted, Kind::Read, len, stats));
        }
        let mut op = Op::new(Owner::User(request.id), request.peer, 1);
        // SAFETY: by the contract.
        let pieces = match unsafe { self.local(into, len, Rights::Local, stats) }? {
            Local::Direct(pieces, memories) => {
                op.direct = true;
                op.memories = memories;
                pieces
            }
            Local::Bounce => {
                let Some(chunk) = self.pool.take(len) else { return Ok(Posted::Busy) };
                let piece = self.pool.piece(&chunk, 0, len);
                op.copy_to(into);
                op.chunk = Some(chunk);
                smallvec![piece]
            }
            Local::Pieces => {
                let action = Action::Read { address, key };
                // SAFETY: by the contract.
                let posted = unsafe { self.stage(request, into, action, notice, limits, stats) };
                return Ok(counted(posted, Kind::Read, len, stats));
            }
        };
        if pieces.len() == 1 && len <= limits.message {
            let op = self.ops.add(op);
            self.post_single(request.peer, op, Action::Read { address, key }, |f| f.pieces = pieces, notice, stats);
            return Ok(counted(Posted::Pending, Kind::Read, len, stats));
        }
        let mut flights: SmallVec<[Flight; 4]> = SmallVec::new();
        for (at, list) in cut(&pieces, limits) {
            let mut flight = Flight::new(Action::Read { address: address + at, key });
            flight.pieces = list;
            flights.push(flight);
        }
        if room < flights.len().min(capacity / 2) {
            self.pool_back(op);
            return Ok(Posted::Busy);
        }
        self.post_with_signal(request.peer, op, flights, notice, stats);
        Ok(counted(Posted::Pending, Kind::Read, len, stats))
    }

    /// Posts an operation whose notification, if there is one, takes a message of its own. What reads or changes remote
    /// memory may still be under way when a later write arrives, so the message is posted when the operation has
    /// landed. The card could wait as well (a fence), but Soft-RoCE may wait for ever: a request that is sent again waits
    /// at its fence for later ones, or for itself, since what they were granted of the limit of reads is not given back.
    fn post_with_signal(
        &mut self,
        peer: u32,
        mut op: Op,
        mut flights: SmallVec<[Flight; 4]>,
        notice: Option<Notice>,
        stats: &Stats,
    ) {
        op.open = flights.len() as u32;
        if notice.is_some() {
            stats.add(Kind::Notify, 8);
            op.notice = notice.map(Box::new);
        }
        let number = self.ops.add(op);
        flights.iter_mut().for_each(|f| f.whose = Whose::Op(number));
        if let Some(last) = flights.last_mut() {
            last.signalled = true;
        }
        self.push(peer, flights, stats);
    }

    /// As [`post_with_signal`](Self::post_with_signal), of one request, whose operation was added as `number`.
    #[inline]
    pub(super) fn post_single(
        &mut self,
        peer: u32,
        number: u32,
        action: Action,
        fill: impl FnOnce(&mut Flight),
        notice: Option<Notice>,
        stats: &Stats,
    ) {
        if let Some(notice) = notice {
            stats.add(Kind::Notify, 8);
            self.ops.notify(number, notice);
        }
        self.push_one(peer, action, stats, |flight| {
            fill(flight);
            (flight.whose, flight.signalled) = (Whose::Op(number), true);
        });
    }

    /// Finds where the card finds the bytes of local blocks.
    ///
    /// # Safety
    /// The blocks are valid until the operation is complete or cancelled.
    unsafe fn local(&mut self, blocks: &[Block], len: usize, rights: Rights, stats: &Stats) -> Result<Local> {
        let keys: SmallVec<[Option<u32>; 8]> = blocks.iter().map(|b| self.regions.local_key(b.base, b.len)).collect();
        let fits = |b: &Block| u32::try_from(b.len).is_ok();
        if keys.iter().all(Option::is_some) && blocks.iter().all(fits) {
            let piece = |b: &Block, key| Piece { address: b.base.addr() as u64, len: b.len as u32, key };
            let pieces = blocks.iter().zip(&keys).map(|(b, k)| piece(b, k.unwrap_or(0))).collect();
            return Ok(Local::Direct(pieces, Leases::new()));
        }
        let regions = &self.regions;
        let known = |b: &Block| regions.local_key(b.base, b.len);
        if len > LARGEST {
            // SAFETY: by the contract.
            return match unsafe { self.user.pieces(blocks, rights, known, stats) } {
                Ok((pieces, leases)) => Ok(Local::Direct(pieces.into(), leases)),
                Err(e) if e.kind() == ErrorKind::Limit => Ok(Local::Pieces),
                Err(e) => Err(e),
            };
        }
        let found = if len > PACKET { self.user.find(blocks, known) } else { None };
        Ok(found.map_or(Local::Bounce, |(pieces, leases)| Local::Direct(pieces.into(), leases)))
    }
}

/// Counts a request that was taken.
fn counted(posted: Posted, kind: Kind, len: usize, stats: &Stats) -> Posted {
    if posted != Posted::Busy {
        stats.add(kind, len);
    }
    posted
}
