#![allow(unsafe_code)]
//! Converts operations of the device interface into requests to the HCA.
//!
//! Short: bytes up to the inline limit are part of the request. Zcopy: registered memory is used in place by gather and
//! scatter lists; this includes memory of the user that was registered for an earlier operation or is longer than 64
//! KiB. Bcopy: other memory is copied through a bounce buffer; longer memory that cannot be registered is copied
//! through several ([`super::staged`]).

use std::sync::atomic::Ordering;

use smallvec::{SmallVec, smallvec};

use super::cut::Part;
use super::engine::Engine;
use super::lists::List;
use super::request::{Held, Notice, Owner};
use crate::device::request::length;
use crate::device::verbs::connect::credits;
use crate::device::verbs::memory::buffers::{MAX_CHUNK, PACKET};
use crate::device::verbs::memory::user::Leases;
use crate::device::verbs::sys::Rights;
use crate::device::verbs::sys::qp::Action;
use crate::device::verbs::sys::queue::Piece;
use crate::device::{Block, Change, Operation, Place, Posted, Range, Ranges, Transfer, Update, WorkRequest};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::copy;
use crate::stats::Kind;

/// Maximum number of packets of this rank to itself that wait for its next poll.
const MAX_TO_SELF: usize = 64;

/// The memory through which the HCA accesses the bytes of a transfer.
enum Local {
    /// The registered memory itself.
    Zcopy(SmallVec<[Piece; 2]>, Leases),
    /// A bounce buffer.
    Bcopy,
    /// Several bounce buffers: the bytes exceed one, and cannot be registered.
    Staged,
}

/// The region of a transfer.
pub(super) fn region_of(request: &WorkRequest<'_>) -> u64 {
    if let Operation::Transfer(transfer) = &request.operation { transfer.region } else { 0 }
}

impl Engine {
    /// # Safety
    /// All local pointers stay valid (and exclusive where written) until the request has completed.
    pub(crate) unsafe fn post(&mut self, request: &WorkRequest<'_>) -> Result<Posted> {
        let peer = request.peer;
        if peer as usize >= self.links.addresses.len() {
            return Err(Error::new(ErrorKind::NoSuchRank, "post a work request").peer(peer).device("verbs"));
        }
        let notice = match request.notify {
            None => None,
            Some((at, value)) => Some(self.notice(peer, at, value)?),
        };
        // SAFETY: the same contract, for all calls.
        let posted = unsafe {
            match request.operation {
                Operation::Transfer(transfer) => self.write_or_read(request, &transfer, notice),
                Operation::Update(update) => self.update(request, &update, notice),
                Operation::Signal { at, value } => {
                    let signal = self.notice(peer, at, value)?;
                    self.signal(peer, &signal, notice)
                }
                Operation::Packet(packet) => {
                    let len = packet.len();
                    if len > PACKET {
                        let e = Error::new(ErrorKind::BadArgument, "send a packet").peer(peer).device("verbs");
                        return Err(e.cause(format!("the packet has {len} bytes, but at most {PACKET} are allowed")));
                    }
                    packet.with_parts(|header, body| self.send(peer, header, body))
                }
                Operation::List { send, local } => {
                    self.list(request, local, if send { List::Gather } else { List::Scatter })
                }
                Operation::Barrier(_) => return Err(request.operation.unsupported(peer, "verbs")),
            }
        }?;
        if posted != Posted::Busy {
            let (kind, len) = request.operation.counted();
            self.out.stats.add(kind, len);
        }
        Ok(posted)
    }

    /// # Safety
    /// The contract of [`post`](Self::post).
    #[inline]
    unsafe fn write_or_read(
        &mut self,
        request: &WorkRequest<'_>,
        transfer: &Transfer<'_>,
        notice: Option<Notice>,
    ) -> Result<Posted> {
        let Transfer { write, local, region, ranges } = *transfer;
        let (len, name) = (transfer.len(), transfer.name());
        // SAFETY: the same contract, for all calls.
        unsafe {
            match ranges {
                Ranges::One(Range { offset, .. }) => {
                    let (address, key) = self.regions.reach(request.peer, Place { region, offset }, len, name)?;
                    match local {
                        _ if write => self.write(request, local, len, Action::Write { address, key }, notice),
                        // Copying a word costs less than looking up its registration.
                        [into] if (1..=8).contains(&len) => {
                            self.fetch(request, Action::Read { address, key }, *into, notice)
                        }
                        _ => self.transfer(request, local, len, Action::Read { address, key }, notice),
                    }
                }
                Ranges::List(_) if write => Err(request.operation.unsupported(request.peer, "verbs")),
                Ranges::List(ranges) => self.read_blocks(request, local, (region, ranges), notice),
            }
        }
    }

    /// An atomic.
    fn update(&mut self, request: &WorkRequest<'_>, update: &Update, notice: Option<Notice>) -> Result<Posted> {
        let &Update { change, at, len, old } = update;
        let reach = || self.regions.reach_aligned(request.peer, at, 8, update.name());
        let action = match change {
            Change::Add(add) => {
                let (address, key) = reach()?;
                Action::FetchAdd { address, key, add }
            }
            Change::CompareSwap { expected, desired } if len == 8 => {
                let (address, key) = reach()?;
                Action::CompareSwap { address, key, expected, desired }
            }
            _ => return Err(request.operation.unsupported(request.peer, "verbs")),
        };
        self.fetch(request, action, Block { base: old, len: 8 }, notice)
    }

    fn notice(&self, peer: u32, at: Place, value: u64) -> Result<Notice> {
        const OP: &str = "signal a peer";
        let import = self.regions.region(peer, at, 8, OP)?;
        import.aligned(at.offset, 8, OP)?;
        Ok(Notice { import, offset: at.offset, value })
    }

    fn signal(&mut self, peer: u32, signal: &Notice, notice: Option<Notice>) -> Result<Posted> {
        if self.ready(peer)?.is_none_or(|q| q.room() < 2) {
            return Ok(Posted::Busy);
        }
        self.post_signal(peer, signal);
        self.post_notification(peer, notice);
        Ok(Posted::Done)
    }

    /// Posts a notification as a separate message.
    pub(super) fn post_notification(&mut self, peer: u32, notice: Option<Notice>) {
        if let Some(notice) = notice {
            self.post_signal(peer, &notice);
            self.out.stats.add(Kind::Signal, 8);
        }
    }

    /// The notification to post once a read or an atomic is complete.
    pub(super) fn notify_later(&self, notice: Option<Notice>) -> Option<Box<Notice>> {
        notice.map(|notice| {
            self.out.stats.add(Kind::Notify, 8);
            Box::new(notice)
        })
    }

    /// A read or an atomic of at most 8 bytes: bcopy with the smallest bounce buffer. The bytes are discarded if the
    /// base of `into` is null.
    #[inline]
    fn fetch(
        &mut self,
        request: &WorkRequest<'_>,
        action: Action,
        into: Block,
        notice: Option<Notice>,
    ) -> Result<Posted> {
        if self.ready(request.peer)?.is_none_or(|q| q.room() < 2) {
            return Ok(Posted::Busy);
        }
        let Some(chunk) = self.out.pool.take(8) else { return Ok(Posted::Busy) };
        let piece = self.out.pool.piece(&chunk, 0, into.len);
        let notice = self.notify_later(notice);
        self.out.open += 1;
        self.post_one(request.peer, action, |r| {
            r.pieces.push(piece);
            r.signalled = true;
            (r.held.owner, r.held.chunk, r.held.notice) = (Owner::User(request.id), Some(chunk), notice);
            if !into.base.is_null() {
                r.held.into.push(into);
            }
        });
        Ok(Posted::Pending)
    }

    /// # Safety
    /// The blocks are valid for reads.
    unsafe fn send(&mut self, peer: u32, header: &[u8], body: &[Block]) -> Result<Posted> {
        let len = header.len() + length(body);
        if peer == self.links.me {
            if self.to_self.len() == MAX_TO_SELF {
                return Ok(Posted::Busy);
            }
            let mut bytes = Vec::with_capacity(len);
            // SAFETY: by the contract.
            unsafe { copy::gather(header, body, &mut bytes) };
            self.to_self.push_back(bytes);
            return Ok(Posted::Done);
        }
        if self.ready(peer)?.is_none() || !self.has_credit(peer) {
            return Ok(Posted::Busy);
        }
        let inline = match self.ready(peer)? {
            Some(q) if q.room() > 0 => q.inline(),
            _ => return Ok(Posted::Busy),
        };
        let mut bounce = None;
        if len > inline {
            let Some(chunk) = self.out.pool.take(len) else { return Ok(Posted::Busy) };
            // SAFETY: by the contract; the chunk has room for all blocks.
            unsafe {
                self.out.pool.gather(&chunk, 0, &[Block::of(header.as_ptr(), header.len())]);
                self.out.pool.gather(&chunk, header.len(), body);
            }
            bounce = Some((self.out.pool.piece(&chunk, 0, len), chunk));
        }
        // Relaxed: only this rank writes the count.
        let taken = self.regions.taken(peer).load(Ordering::Relaxed);
        self.post_one(peer, Action::Send, |r| {
            r.immediate = Some(credits::advertise(taken));
            match bounce {
                Some((piece, chunk)) => {
                    r.pieces.push(piece);
                    r.held.chunk = Some(chunk);
                }
                None => {
                    r.inline.extend_from_slice(header);
                    // SAFETY: by the contract.
                    body.iter().for_each(|b| unsafe { r.append(b) });
                }
            }
        });
        self.out.credits[peer as usize].sent();
        Ok(Posted::Done)
    }

    /// # Safety
    /// All local pointers stay valid (and exclusive where written) until the request has completed.
    #[inline]
    unsafe fn write(
        &mut self,
        request: &WorkRequest<'_>,
        from: &[Block],
        len: usize,
        action: Action,
        notice: Option<Notice>,
    ) -> Result<Posted> {
        let inline = match self.ready(request.peer)? {
            Some(q) if q.room() > 2 => q.inline(),
            _ => return Ok(Posted::Busy),
        };
        if len > inline || len == 0 {
            // SAFETY: the same contract.
            return unsafe { self.transfer(request, from, len, action, notice) };
        }
        let immediate = notice.as_ref().and_then(|n| self.immediate(request.peer, n));
        self.out.open += 1;
        self.post_one(request.peer, action, |r| {
            // SAFETY: by the contract.
            from.iter().for_each(|b| unsafe { r.append(b) });
            (r.held.owner, r.signalled, r.immediate) = (Owner::User(request.id), true, immediate);
        });
        self.post_notification(request.peer, notice.filter(|_| immediate.is_none()));
        Ok(Posted::Pending)
    }

    /// A write or a read by zcopy or bcopy.
    ///
    /// # Safety
    /// All local pointers stay valid (and exclusive where written) until the request has completed.
    unsafe fn transfer(
        &mut self,
        request: &WorkRequest<'_>,
        blocks: &[Block],
        len: usize,
        action: Action,
        notice: Option<Notice>,
    ) -> Result<Posted> {
        let peer = request.peer;
        let writes = matches!(action, Action::Write { .. });
        if self.ready(peer)?.is_none_or(|q| !q.has_room(1)) {
            return Ok(Posted::Busy);
        }
        if len == 0 {
            self.post_notification(peer, notice);
            return Ok(Posted::Done);
        }
        let mut held = Held { owner: Owner::User(request.id), ..Held::default() };
        // SAFETY: by the contract.
        let pieces = match unsafe { self.local(blocks, len, if writes { Rights::Source } else { Rights::Local }) }? {
            Local::Zcopy(pieces, leases) => {
                (held.zcopy, held.leases) = (true, leases);
                pieces
            }
            Local::Bcopy => {
                let Some(chunk) = self.out.pool.take(len) else { return Ok(Posted::Busy) };
                if writes {
                    // SAFETY: by the contract; the chunk has room.
                    unsafe { self.out.pool.gather(&chunk, 0, blocks) };
                    self.out.stats.add(Kind::Copy, len);
                } else {
                    held.into.extend_from_slice(blocks);
                }
                let piece = self.out.pool.piece(&chunk, 0, len);
                held.chunk = Some(chunk);
                smallvec![piece]
            }
            Local::Staged => {
                if notice.is_some() {
                    self.out.stats.add(Kind::Notify, 8);
                }
                // SAFETY: by the contract.
                return Ok(unsafe { self.stage(request, blocks, action, notice) });
            }
        };
        let parts = self.regions.cut(region_of(request), &pieces, action, self.limits);
        if !self.queue(peer).has_room(parts.len()) {
            held.chunk.into_iter().for_each(|chunk| self.out.pool.give(chunk));
            return Ok(Posted::Busy);
        }
        let (immediate, alone) = if writes {
            let immediate = notice.as_ref().and_then(|n| self.immediate(peer, n));
            (immediate, notice.filter(|_| immediate.is_none()))
        } else {
            held.notice = self.notify_later(notice);
            (None, None)
        };
        self.post_all(peer, parts.into_iter(), held, immediate);
        self.post_notification(peer, alone);
        Ok(Posted::Pending)
    }

    /// Posts the requests of an operation; the last one holds the operation's resources.
    pub(super) fn post_all(
        &mut self,
        peer: u32,
        parts: impl ExactSizeIterator<Item = Part>,
        mut held: Held,
        immediate: Option<u32>,
    ) {
        self.out.open += 1;
        let mut left = parts.len();
        for (action, pieces) in parts {
            left -= 1;
            self.post_one(peer, action, |r| {
                r.pieces = pieces;
                (r.more, r.held.zcopy) = (left > 0, held.zcopy);
                if left == 0 {
                    (r.held, r.signalled, r.immediate) = (std::mem::take(&mut held), true, immediate);
                }
            });
        }
    }

    /// The way in which the HCA accesses the bytes of local blocks.
    ///
    /// # Safety
    /// The blocks are valid until the operation is complete or cancelled.
    unsafe fn local(&mut self, blocks: &[Block], len: usize, rights: Rights) -> Result<Local> {
        let regions = &self.regions;
        let known = |b: &Block| regions.local_key(b.base, b.len);
        let piece = |b: &Block| {
            let len = u32::try_from(b.len).ok()?;
            known(b).map(|key| Piece { address: b.base.addr() as u64, len, key })
        };
        if let Some(pieces) = blocks.iter().map(piece).collect() {
            return Ok(Local::Zcopy(pieces, Leases::new()));
        }
        if len > MAX_CHUNK {
            // SAFETY: by the contract.
            return match unsafe { self.user.pieces(blocks, rights, known, &self.out.stats) } {
                Ok((pieces, leases)) => Ok(Local::Zcopy(pieces.into(), leases)),
                Err(e) if e.kind() == ErrorKind::Limit => Ok(Local::Staged),
                Err(e) => Err(e),
            };
        }
        let found = if len > PACKET { self.user.find(blocks, known) } else { None };
        Ok(found.map_or(Local::Bcopy, |(pieces, leases)| Local::Zcopy(pieces.into(), leases)))
    }
}
