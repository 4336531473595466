#![allow(unsafe_code)]
//! Memory that ranks of a node lend each other for a call.
//!
//! The lender registers its buffer for the call ([`Region::brief`]), once for all its loans, and sends the borrower the
//! key and the offsets of the lent blocks. The borrower imports the key at its first use, reads, reduces and writes the
//! blocks in place, and returns the loan. Blocks that are not contiguous, and memory that cannot be lent, are staged in
//! memory of the device, which every rank of the node can access: the lender copies blocks that are read into it, and
//! copies written blocks out of it.
//!
//! A call that fails releases the memory that it has lent, after which no borrower accesses the memory, and the
//! borrower's next access fails.

use std::cell::RefCell;
use std::rc::Rc;

use smallvec::{SmallVec, smallvec};

use super::Run;
use crate::am::{Payload, Source};
use crate::bill::Account;
use crate::coll::execute::calls::Announce;
use crate::coll::execute::memory::{Memory, Scratch};
use crate::coll::schedule::{Action, Buffer, LENT, RETURNED, Slice, Step};
use crate::device::{Block, Mapped, Operation, Place, Region, Registration, RemoteRegion};
use crate::error::{Error, ErrorKind, Result};
use crate::job::Track;
use crate::stats::Kind;
use crate::wire::{Reader, Writer};

/// Number of bytes of an operand that are read at a time, so that the reduction finds them in the processor's cache.
const PIECE: usize = 64 << 10;
/// Maximum number of blocks of this rank in one request.
const BLOCKS: usize = 1024;
/// Maximum length of the message of a loan: two keys with the ends of blocks.
pub(super) const MAX_LOAN_BYTES: usize = 16 << 10;

/// Consecutive blocks in a region of the lender.
#[derive(Default)]
struct Lent {
    key: Vec<u8>,
    /// The offset of the first block, and the end of each block.
    offset: usize,
    ends: Vec<usize>,
}

impl Lent {
    fn write(&self, w: Writer) -> Writer {
        let w = w.bytes(&self.key).u64(self.offset as u64).u32(self.ends.len() as u32);
        self.ends.iter().fold(w, |w, end| w.u64(*end as u64))
    }

    /// Parses the format of [`write`](Self::write); `None` if it is malformed.
    fn read(r: &mut Reader<'_>) -> Option<Self> {
        let (key, offset, count) = (r.bytes()?.to_vec(), r.u64()?.try_into().ok()?, r.u32()?);
        let mut ends = Vec::new();
        for _ in 0..count {
            ends.push(r.u64()?.try_into().ok()?);
        }
        let starts = std::iter::once(&offset).chain(&ends);
        starts.zip(&ends).all(|(start, end)| start <= end).then_some(Self { key, offset, ends })
    }

    /// Offset and length of `count` blocks from block `first` on; blocks outside the loan are empty.
    fn part(&self, first: u32, count: u32) -> (usize, usize) {
        let end = |blocks: u32| match (blocks as usize).min(self.ends.len()) {
            0 => self.offset,
            blocks => self.ends[blocks - 1],
        };
        (end(first), end(first.saturating_add(count)) - end(first))
    }
}

/// A loan to this rank.
struct Borrowed {
    /// The lender's team rank, and the tag.
    loan: (u32, u32),
    /// The bytes that may be read, and the bytes that may be written.
    lent: [Lent; 2],
    /// The imported regions of `lent`; the same one if the keys are equal.
    regions: [Option<RemoteRegion>; 2],
}

/// Memory that this rank has registered for its loans.
struct Registered {
    block: Block,
    registration: Registration,
}

/// An access to lent memory, made in segments.
struct Access {
    step: u32,
    /// The lending rank of the job.
    peer: u32,
    region: u64,
    offset: usize,
    len: usize,
    /// The bytes of the region that this rank has mapped.
    mapped: Option<Mapped>,
    /// Whether an operand was used where it is mapped, without a request that confirms that the loan was still valid.
    unconfirmed: bool,
    /// Number of bytes that are done, and of the segment in progress.
    done: usize,
    posted: usize,
    /// The segment of an operand.
    operand: Scratch,
    track: Rc<Track>,
    /// Number of requests that the track counts while no request of this access is in progress.
    idle: usize,
}

/// The loans of a run.
#[derive(Default)]
pub(super) struct Loans {
    registered: RefCell<Vec<Registered>>,
    /// Regions of the device with the blocks that a borrower writes, by the step that reclaims them.
    written: RefCell<Vec<(Action, Block)>>,
    /// Messages that are being sent.
    messages: RefCell<Vec<Vec<u8>>>,
    borrowed: RefCell<Vec<Borrowed>>,
    accesses: RefCell<Vec<Access>>,
    /// The error of an access to memory that its lender may have released, and whether peers were checked since.
    failed: RefCell<Option<(Error, bool)>>,
}

impl Run {
    /// Lends blocks to a rank of the team. Returns whether the message has been sent.
    pub(super) fn lend(&self, step: u32, to: u32, tag: u32, from: &[Slice], into: &[Slice]) -> Result<bool> {
        let (read, written) =
            (self.lend_blocks(from, None)?, self.lend_blocks(into, Some(Action::Reclaim { source: to, tag }))?);
        let message = written.write(read.write(Writer::new())).done();
        let source = Source::Bytes(Block::of(message.as_ptr(), message.len()));
        self.loans.messages.borrow_mut().push(message);
        self.send(step, to, LENT | tag, source)
    }

    /// Registers blocks; after the step `reclaim`, the written blocks are in this rank's buffer.
    fn lend_blocks(&self, slices: &[Slice], reclaim: Option<Action>) -> Result<Lent> {
        let (buffers, len) = (self.buffers(), self.plan.bytes_of(slices));
        if len == 0 {
            return Ok(Lent::default());
        }
        if let (Some(block), [slice, ..]) = (buffers.contiguous(slices), slices)
            && let Some((base, key)) = self.register(block, slice.buffer)
        {
            return Ok(self.lend_at(key, block.base.addr() - base, slices));
        }
        let region = Region { one_node: true, ..Region::allocated(len) };
        let registration = self.job.device().allocate(region)?;
        let block = Block { base: registration.base, len };
        // The borrower may write fewer bytes than the blocks have; the others come back unchanged.
        if reclaim.is_none() || self.plan.may_be_shorter {
            // SAFETY: this rank does not access the blocks while they are lent; the region is new.
            unsafe { buffers.gather(slices, block) };
        }
        self.loans.written.borrow_mut().extend(reclaim.map(|reclaim| (reclaim, block)));
        let key = registration.key.clone();
        self.loans.registered.borrow_mut().push(Registered { block, registration });
        Ok(self.lend_at(key, 0, slices))
    }

    /// Blocks at an offset in the region of a key.
    fn lend_at(&self, key: Vec<u8>, offset: usize, slices: &[Slice]) -> Lent {
        let blocks = slices.iter().flat_map(|s| s.blocks().map(|b| Slice::new(s.buffer, b, 1)));
        let mut end = offset;
        let ends = blocks.map(|block| {
            end += self.plan.bytes_of(&[block]);
            end
        });
        Lent { key, offset, ends: ends.collect() }
    }

    /// The start and the key of registered memory around a block of a buffer; `None` if the memory cannot be lent. A
    /// buffer without gaps is registered as a whole.
    fn register(&self, block: Block, buffer: Buffer) -> Option<(usize, Vec<u8>)> {
        let mut registered = self.loans.registered.borrow_mut();
        let (start, end) = (block.base.addr(), block.base.addr() + block.len);
        let known =
            registered.iter().find(|r| r.block.base.addr() <= start && end <= r.block.base.addr() + r.block.len);
        if let Some(Registered { block, registration }) = known {
            return Some((block.base.addr(), registration.key.clone()));
        }
        let whole = match self.memory[buffer as usize] {
            Memory::Contiguous(base) => Block { base, len: *self.plan.starts[buffer as usize].last()? },
            _ => block,
        };
        let region = Region { brief: true, one_node: true, exclusive: true, ..Region::of(whole.base, whole.len) };
        // SAFETY: by the contract of `start` no other code writes the memory until the run has ended; it releases the
        // region before.
        let registration = unsafe { self.job.device().register(region) };
        let registration = registration
            .inspect_err(|e| tracing::debug!("a buffer cannot be exported to peers and is copied: {e}"))
            .ok()?;
        let key = registration.key.clone();
        registered.push(Registered { block: whole, registration });
        Some((whole.base.addr(), key))
    }

    /// Stores a loan to this rank, parsed from its message.
    #[cold]
    pub(super) fn borrow(&self, lender: u32, tag: u32, message: &[u8]) {
        let mut r = Reader::new(message);
        let lent = Lent::read(&mut r).zip(Lent::read(&mut r)).filter(|_| r.is_empty());
        match lent {
            Some((read, written)) => {
                let (lent, regions) = ([read, written], [None, None]);
                self.loans.borrowed.borrow_mut().push(Borrowed { loan: (lender, tag), lent, regions });
            }
            None => {
                let e = Error::new(ErrorKind::Protocol, self.name()).peer(self.plan.peers[lender as usize]);
                self.fault(e.cause("the peer sent a malformed buffer export"), Announce::Others);
            }
        }
    }

    /// Copies the blocks that a borrower has written in memory of the device to this rank's buffer.
    pub(super) fn reclaim(&self, step: Step<'_>) {
        for (_, block) in self.loans.written.borrow().iter().filter(|(action, _)| *action == step.action) {
            // SAFETY: the region has the length of the blocks, which belong to the run and are no longer lent, and the
            // borrower has returned it.
            unsafe {
                self.buffers().fill(step.into, Payload::Bytes(std::slice::from_raw_parts(block.base, block.len)))
            };
        }
    }

    /// Returns a loan.
    pub(super) fn give_back(&self, step: u32, to: u32, tag: u32) -> Result<bool> {
        let mut borrowed = self.loans.borrowed.borrow_mut();
        if let Some(at) = borrowed.iter().position(|b| b.loan == (to, tag)) {
            self.forget(&borrowed.swap_remove(at));
        }
        drop(borrowed);
        self.send(step, to, RETURNED | tag, Source::of(&[]))
    }

    fn forget(&self, borrowed: &Borrowed) {
        let [read, written] = borrowed.regions.each_ref().map(|r| r.as_ref().map(|r| r.handle));
        for handle in read.into_iter().chain(written.filter(|_| written != read)) {
            // SAFETY: no access to the region is in progress.
            unsafe { self.job.device().forget(handle) };
        }
    }

    /// Starts a step that accesses lent memory. Returns whether it is complete.
    pub(super) fn access(&self, step: u32) -> Result<bool> {
        let s = self.plan.schedule.step(step as usize);
        let writes = matches!(s.action, Action::Write { .. });
        let (loan, first) = s.action.loan().unwrap_or_default();
        let len = self.plan.bytes[step as usize];
        let peer = self.plan.peers[loan.0 as usize];
        let mut borrowed = self.loans.borrowed.borrow_mut();
        let borrowed = borrowed.iter_mut().find(|b| b.loan == loan);
        let borrowed = borrowed.unwrap_or_else(|| unreachable!("a builder orders an access after its loan"));
        let lent = &borrowed.lent[usize::from(writes)];
        let own = if writes { s.from } else { s.into };
        let (offset, available) = lent.part(first, own.iter().map(|s| s.count).sum());
        let (key, len) = (&lent.key, self.agreed_length(peer, s, len, available)?);
        if len == 0 {
            return Ok(true);
        }
        let region = match &borrowed.regions {
            [_, Some(region)] if writes => *region,
            [Some(region), _] if !writes || *key == borrowed.lent[0].key => *region,
            _ => match self.job.device().import(peer, key, None) {
                Ok(region) => *borrowed.regions[usize::from(writes)].insert(region),
                Err(e) => {
                    self.access_failed(e);
                    return Ok(false);
                }
            },
        };
        let (kind, track) = (if writes { Kind::Write } else { Kind::Read }, Track::new());
        if let Some(bill) = self.job.bill() {
            bill.posted(Account::team(self.team.context()), |stats| stats.add(kind, len));
        }
        let RemoteRegion { handle, mapped, len: of_region, .. } = region;
        if offset.checked_add(len).is_none_or(|end| end > of_region) {
            let e = Error::new(ErrorKind::Protocol, self.name()).rank(self.job.rank()).peer(peer);
            return Err(
                e.cause(format!("the peer exported {len} bytes at offset {offset} of a region of {of_region} bytes"))
            );
        }
        let (unconfirmed, done, posted, operand, idle) = (false, 0, 0, Scratch::default(), 0);
        let mut access =
            Access { step, peer, region: handle, offset, len, mapped, unconfirmed, done, posted, operand, track, idle };
        match self.advance_access(&mut access) {
            Ok(false) => {}
            Ok(true) => {
                self.end_access(access);
                return Ok(true);
            }
            Err(e) => {
                self.access_failed(e);
                return Ok(false);
            }
        }
        // The step is in the list of sends until it is complete, like other steps that wait for a track.
        access.track.open_one();
        access.idle = 1;
        self.sends.borrow_mut().push((step, Rc::clone(&access.track)));
        self.loans.accesses.borrow_mut().push(access);
        Ok(false)
    }

    /// The number of bytes of an access: that of the step's own blocks. The lent blocks must have the same length,
    /// unless messages may be shorter than the blocks that receive them.
    fn agreed_length(&self, peer: u32, step: Step<'_>, own: usize, lent: usize) -> Result<usize> {
        let (sent, room) = if matches!(step.action, Action::Write { .. }) { (own, lent) } else { (lent, own) };
        let may_be_shorter = self.plan.may_be_shorter && !matches!(step.action, Action::ReadReduce { .. });
        if sent == room || may_be_shorter && sent < room {
            return Ok(sent);
        }
        let e = Error::new(ErrorKind::Mismatch, self.name()).rank(self.job.rank()).peer(peer);
        Err(e.cause(format!("the peer exported {lent} bytes for a {}, but {own} are expected", self.name())))
    }

    /// Number of bytes of an operand that are read at a time: whole elements.
    fn piece(&self) -> usize {
        let element = self.plan.element.max(1);
        (PIECE / element).max(1) * element
    }

    /// Makes as much of an access as possible without waiting. Returns whether it is complete.
    fn advance_access(&self, access: &mut Access) -> Result<bool> {
        let s = self.plan.schedule.step(access.step as usize);
        loop {
            if access.track.open() > access.idle {
                return Ok(false);
            }
            access.track.check()?;
            if access.posted > 0 {
                if let Action::ReadReduce { side, .. } = s.action {
                    let into = self.buffers().range(s.into, access.done, access.posted);
                    self.reduce(&[Block::of(access.operand.start(), access.posted)], &into, side);
                }
                access.done += std::mem::take(&mut access.posted);
            }
            let left = access.len - access.done;
            if left == 0 && !access.unconfirmed {
                return Ok(true);
            }
            if let Action::ReadReduce { side, .. } = s.action
                && let Some(operand) = self.mapped_operand(access)
            {
                let into = self.buffers().range(s.into, access.done, operand.len);
                self.reduce(&[operand], &into, side);
                self.job.device().own_stats().add(Kind::Read, operand.len);
                (access.done, access.unconfirmed) = (access.done + operand.len, true);
                continue;
            }
            let place = Place { region: access.region, offset: access.offset + access.done };
            let blocks = match s.action {
                // This request only confirms that the lender has not released the memory.
                Action::ReadReduce { .. } if left == 0 => SmallVec::new(),
                Action::ReadReduce { .. } => {
                    if access.operand.is_empty() {
                        let Some(operand) = self.operand(access.len.min(self.piece())) else { return Ok(false) };
                        access.operand = operand;
                    }
                    smallvec![Block { base: access.operand.start_mut(), len: self.unmapped_operand(access, left) }]
                }
                Action::Write { .. } => self.buffers().range(s.from, access.done, left),
                _ => self.buffers().range(s.into, access.done, left),
            };
            let blocks = &blocks[..blocks.len().min(self.job.device().capabilities().max_blocks.min(BLOCKS))];
            let operation = match s.action {
                Action::Write { .. } => Operation::write(blocks, place),
                _ => Operation::read(blocks, place),
            };
            // SAFETY: the blocks belong to the run until the step is complete, and the run cancels the track when it
            // ends.
            if unsafe { self.job.try_post(access.peer, operation, None, &[&access.track]) }?.is_none() {
                return Ok(false);
            }
            access.posted = blocks.iter().map(|b| b.len).sum();
            // If the request succeeds, the lender had not released the memory before it, so the data that was read in
            // place is valid.
            access.unconfirmed = false;
        }
    }

    /// The next elements of an operand that this rank has mapped.
    fn mapped_operand(&self, access: &Access) -> Option<Block> {
        let (mapped, at, element) = (access.mapped?, access.offset + access.done, self.plan.element.max(1));
        let end = mapped.hi.min(access.offset + access.len);
        let len = end.checked_sub(at).filter(|_| mapped.lo <= at)? / element * element;
        let base = mapped.base.wrapping_add(at);
        (len > 0 && base.addr().is_multiple_of(self.plan.align)).then_some(Block { base, len })
    }

    /// Number of bytes of an operand to read at a time: whole elements, at most up to the first mapped one.
    fn unmapped_operand(&self, access: &Access, left: usize) -> usize {
        let element = self.plan.element.max(1);
        let at = access.offset + access.done;
        let before = access.mapped.and_then(|m| m.lo.checked_sub(at)).filter(|bytes| *bytes > 0);
        before.map_or(usize::MAX, |bytes| bytes.div_ceil(element) * element).min(left).min(self.piece())
    }

    /// Handles the error of an access: its step does not complete. If the call has failed at the lender, the lender has
    /// released its memory; then the announcement of the first rank to fail has the error to report. If the lender is
    /// lost, the next check of the peers reports that. Otherwise this error fails the run, at the second check.
    #[cold]
    fn access_failed(&self, error: Error) {
        self.loans.failed.borrow_mut().get_or_insert((error.during(self.name()), false));
    }

    /// Called once for each check of the peers.
    pub(super) fn check_failed_access(&self) {
        let mut failed = self.loans.failed.borrow_mut();
        match &mut *failed {
            Some((_, checked @ false)) => *checked = true,
            Some(_) => {
                if let Some((error, _)) = failed.take() {
                    self.fault(error, Announce::Others);
                }
            }
            None => {}
        }
    }

    fn end_access(&self, access: Access) {
        if !access.operand.is_empty() {
            self.operands.borrow_mut().push(access.operand);
        }
    }

    /// Continues the accesses that wait.
    #[cold]
    pub(super) fn advance_accesses(&self) {
        let accesses = std::mem::take(&mut *self.loans.accesses.borrow_mut());
        for mut access in accesses {
            match self.advance_access(&mut access) {
                Ok(false) => self.loans.accesses.borrow_mut().push(access),
                Ok(true) => {
                    access.track.close();
                    self.end_access(access);
                }
                Err(e) => self.access_failed(e),
            }
        }
    }

    /// Ends all loans. Afterwards no rank accesses memory that this rank has lent, and this rank accesses no borrowed
    /// memory.
    #[cold]
    pub(super) fn end_loans(&self, are_returned: bool) {
        self.loans.accesses.borrow_mut().clear();
        self.loans.borrowed.borrow_mut().drain(..).for_each(|b| self.forget(&b));
        self.loans.written.borrow_mut().clear();
        self.loans.messages.borrow_mut().clear();
        *self.loans.failed.borrow_mut() = None;
        let registered = std::mem::take(&mut *self.loans.registered.borrow_mut());
        for Registered { registration: Registration { handle, .. }, .. } in registered {
            if are_returned {
                self.job.device().sealed(handle);
            }
            // SAFETY: a registration of this run, which no longer uses the region.
            if let Err(e) = unsafe { self.job.device().release(handle) } {
                tracing::warn!("an exported buffer was not released: {e}");
            }
        }
    }
}
