#![allow(unsafe_code)]
//! Regions that this rank exposes, and regions that it has imported from peers.
//!
//! A key holds the process, address, length and request key of a region, the range of bytes that other ranks can map,
//! whether the region is revocable, and the location of its shared pages, if any: a segment, a part of a segment, or a
//! slot.

use std::cell::Cell;
use std::ops::Range as Bytes;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::arena::{self, ImportedSlot, Slot};
use super::live::await_transfers;
use super::open_name::OpenName;
use super::views::LentBytes;
use super::windows::{move_back, move_pages};
use super::{ShmDevice, layout, lend, vm};
use crate::device::imports::{self as checks, ImportedRegion};
use crate::device::target::{Code, Piece};
use crate::device::{Block, Mapped, Place, Range, Region, Registration, RemoteRegion};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::keys::{AccumulateFn, Exposed};
use crate::memory::segment::{self, Mapping, PAGE, Pages, Segment, SegmentName, page_up};
use crate::settings::UserMemory;
use crate::wire::{Reader, Writer};

/// Minimum block lengths, in bytes, for which a list is better than packing: with `process_vm_*`, which looks up the pages
/// of each block, and with requests, one per block.
const VM_LIST_FROM: u64 = 1024;
const RING_LIST_FROM: u64 = 8192;

/// Kind, in the key, of memory that its owner may release at any time.
const REVOCABLE: u8 = 1;
/// Kind, in the key, of memory that is exported for one transfer.
pub(super) const LENT_BRIEFLY: u8 = 2;

/// Value instead of a slot number in the key of a region that has no slot: one with its own file, or moved memory.
const NO_SLOT: u64 = u64::MAX;
const MOVED: u64 = u64::MAX - 1;

/// A region of this rank. Its handle is its request key.
pub(super) struct OwnedRegion {
    base: *mut u8,
    len: usize,
    key: Vec<u8>,
    memory: OwnedMemory,
    /// Name of the bytes of memory that this device has allocated, as long as its file is open.
    name: Option<SegmentName>,
    /// Its entry in the table of live keys, if peers may access it directly.
    live: Option<u32>,
    /// Set if the region's file is one of those that stay open.
    stays_open: Option<OpenName>,
    /// Whether peers may have mapped allocated memory because it was exported for a transfer.
    was_lent: Cell<bool>,
    /// Whether the memory is exclusive.
    exclusive: bool,
    /// The only rank that has the key, if there is one.
    user: Option<u32>,
    /// This rank's imports of its own region.
    imports: Vec<u64>,
}

pub(super) enum OwnedMemory {
    Segment(Segment),
    Slot(Slot),
    /// Memory of the program, and the moved pages of a window, if any.
    User(Option<Bytes<usize>>),
}

impl OwnedRegion {
    /// Closes the file of a segment that all ranks that import the region have mapped. Some such files stay open, so that
    /// ranks of other teams can map the memory for a message, instead of reading it by a system call.
    pub(super) fn close_name(&mut self, left: &Rc<Cell<usize>>) {
        let OwnedMemory::Segment(segment) = &mut self.memory else { return };
        self.stays_open = OpenName::new(left);
        if self.stays_open.is_none() {
            segment.close_name();
            self.name = None;
        }
    }

    /// The addresses of the region if it is memory of the program.
    fn of_user(&self) -> Option<Bytes<usize>> {
        matches!(self.memory, OwnedMemory::User(_)).then(|| self.base.addr()..self.base.addr() + self.len)
    }
}

/// Keeps the pages of a mapped import alive.
enum ImportedPages {
    Mapping(Mapping),
    Slot(ImportedSlot),
    Lent(LentBytes),
}

impl ImportedPages {
    /// Address of the first byte.
    fn base(&self) -> *mut u8 {
        match self {
            Self::Mapping(mapping) => mapping.at(0),
            Self::Slot(slot) => slot.base(),
            Self::Lent(bytes) => bytes.base(),
        }
    }
}

/// A region of a peer.
pub(super) struct Import {
    pub(super) peer: u32,
    len: usize,
    /// Byte `i` is at `mapped.base + i` for `lo <= i < hi`.
    mapped: Mapped,
    /// Set if part of a peer's region is mapped.
    _pages: Option<ImportedPages>,
    /// Names the region in requests: its handle at the owner.
    pub(super) request_key: u64,
    /// Its entry in the owner's table of live keys, if it is accessed directly.
    pub(super) live: Option<u32>,
    /// Process and address of byte 0 if `process_vm_*` may be used for the bytes that are not mapped. No part of the
    /// region is mapped then, unless it is exported for one transfer.
    pub(super) vm: Option<(u32, u64)>,
    pub(super) accumulate: Option<AccumulateFn>,
    /// Registered for one transfer; the owner does not serve requests for it.
    pub(super) brief: bool,
}

impl ImportedRegion for Import {
    fn peer(&self) -> u32 {
        self.peer
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Import {
    /// An operation of the target on `len` unmapped bytes.
    pub(super) fn piece(&self, code: Code, offset: usize, len: usize, local: *mut u8) -> Piece {
        let (offset, old) = (offset as u64, std::ptr::null_mut());
        Piece { code, accumulate: 0, key: self.request_key, offset, len, local, old, words: [0; 2] }
    }

    /// The address of byte `at` if it is mapped, and the end of the run of mapped or unmapped bytes that contains it.
    fn extent(&self, at: usize) -> (Option<*mut u8>, usize) {
        let m = &self.mapped;
        if at < m.lo {
            (None, m.lo)
        } else if at < m.hi {
            (Some(m.base.wrapping_add(at)), m.hi)
        } else {
            (None, self.len)
        }
    }

    /// Splits a copy between local blocks and ranges of the region of equal total length, at block and range boundaries
    /// and where mapped bytes meet unmapped ones. Passes each piece's address (if mapped), offset, local address and
    /// length.
    pub(super) fn walk(
        &self,
        blocks: &[Block],
        ranges: &[Range],
        mut piece: impl FnMut(Option<*mut u8>, usize, *mut u8, usize),
    ) {
        let mut ranges = ranges.iter();
        let (mut at, mut left) = (0, 0);
        for block in blocks {
            let mut done = 0;
            while done < block.len {
                while left == 0 {
                    let Some(range) = ranges.next() else { return };
                    (at, left) = (range.offset, range.len);
                }
                let (mapped, end) = self.extent(at);
                let len = (block.len - done).min(end - at).min(left);
                piece(mapped, at, block.base.wrapping_add(done), len);
                done += len;
                at += len;
                left -= len;
            }
        }
    }

    /// Whether part of the region is mapped.
    pub(super) fn has_mapped(&self) -> bool {
        self.mapped.lo < self.mapped.hi
    }

    /// Minimum block length for which a list is better than packing. Mapped blocks are always copied in place.
    fn lists_from(&self) -> u64 {
        match self.vm {
            _ if self.has_mapped() => 0,
            Some(_) => VM_LIST_FROM,
            None => RING_LIST_FROM,
        }
    }

    /// The address of the 64-bit word at `at` if it is mapped; `None` if accessing it needs a request.
    pub(super) fn word(&self, at: usize, operation: &'static str) -> Result<Option<*mut u64>> {
        Ok(self.integer(at, 8, operation)?.map(<*mut u8>::cast))
    }

    /// The address of the aligned integer of `len` bytes at `at` if it is mapped; `None` if accessing it needs a
    /// request.
    pub(super) fn integer(&self, at: usize, len: usize, operation: &'static str) -> Result<Option<*mut u8>> {
        let misaligned = || checks::misaligned(self.peer, at, operation);
        if !matches!(len, 1 | 2 | 4 | 8) {
            return Err(Error::new(ErrorKind::BadArgument, operation)
                .cause(format!("integers of {len} bytes are not supported, only of 1, 2, 4 or 8")));
        }
        match self.extent(at) {
            // An integer that lies partly on a mapped page is misaligned.
            (_, end) if end - at < len => Err(misaligned()),
            (Some(p), _) if !p.addr().is_multiple_of(len) => Err(misaligned()),
            (p, _) => Ok(p),
        }
    }
}

/// The region of `place` at `peer`, after a check that `len` bytes from there are inside it.
pub(super) fn region<'a>(
    imports: &'a FxHashMap<u64, Import>,
    peer: u32,
    place: Place,
    len: usize,
    operation: &'static str,
) -> Result<&'a Import> {
    let import = checks::region(imports.get(&place.region), peer, place.region, operation)?;
    checks::range(import, Range { offset: place.offset, len }, operation)?;
    Ok(import)
}

pub(super) fn allocate(device: &ShmDevice, Region { len, align, .. }: Region) -> Result<Registration> {
    let (base, memory) = if len <= arena::MAX_REGION_BYTES && align <= PAGE {
        let slot = device.arena.take(len)?;
        (slot.base(), OwnedMemory::Slot(slot))
    } else {
        let segment = Segment::sparse(device.arena.dir(), len, align)?;
        (segment.mapping().at(0), OwnedMemory::Segment(segment))
    };
    let region = Region { base, len, ..Region::allocated(len) };
    // SAFETY: the memory stays allocated until `release`, which withdraws the key first.
    unsafe { expose(device, region, 0..len, memory) }
}

/// # Safety
/// The contract of [`super::Device::register`].
pub(super) unsafe fn register(device: &ShmDevice, region: Region) -> Result<Registration> {
    let Region { base, len, passive, .. } = region;
    if region.brief {
        // SAFETY: the same contract.
        return unsafe { lend::lend(device, region) };
    }
    // SAFETY: valid until `release`, by the contract of `register`.
    let moved = unsafe { move_pages(device, &region) }?;
    let mapped = moved.as_ref().map_or(0..0, |bytes| bytes.start - base.addr()..bytes.end - base.addr());
    if mapped != (0..len)
        && let Err(e) = device.service.start(passive)
    {
        if let Some(moved) = moved {
            // SAFETY: the memory is valid until `release`, and no peer has the key yet.
            unsafe { move_back(device, &moved, region.exclusive) }?;
        }
        return Err(e);
    }
    // SAFETY: the memory is valid until `release`, which withdraws the key first.
    unsafe { expose(device, region, mapped, OwnedMemory::User(moved)) }
}

pub(super) fn own_region(
    device: &ShmDevice,
    handle: u64,
    region: Region,
    key: Vec<u8>,
    memory: OwnedMemory,
    (name, live): (Option<SegmentName>, Option<u32>),
) -> Registration {
    let Region { base, len, exclusive, user, .. } = region;
    if !matches!(memory, OwnedMemory::User(_)) {
        device.places.borrow_mut().insert(base.addr(), handle);
    }
    let was_lent = Cell::new(false);
    let owned = OwnedRegion {
        base,
        len,
        key: key.clone(),
        memory,
        name,
        live,
        stays_open: None,
        was_lent,
        exclusive,
        user,
        imports: Vec::new(),
    };
    if let Some(bytes) = owned.of_user() {
        device.used.borrow_mut().count(&bytes);
    }
    device.owned.borrow_mut().insert(handle, owned);
    Registration { base, len, key, handle }
}

/// The name of bytes that this device has allocated, as long as peers can open their file.
pub(super) fn allocated(device: &ShmDevice, bytes: &Bytes<usize>) -> Option<SegmentName> {
    let places = device.places.borrow();
    let (_, handle) = places.range(..=bytes.start).next_back()?;
    let owned = device.owned.borrow();
    let region = owned.get(handle)?;
    let (offset, len) = (bytes.start - region.base.addr(), bytes.len());
    let name = region.name.filter(|_| len > 0 && offset + len <= region.len)?;
    region.was_lent.set(true);
    Some(SegmentName { offset: name.offset + offset as u64, len: len as u64, ..name })
}

/// Makes the key of a region whose bytes `mapped` peers can map.
///
/// # Safety
/// The memory is valid until `release`.
unsafe fn expose(
    device: &ShmDevice,
    region: Region,
    mapped: Bytes<usize>,
    memory: OwnedMemory,
) -> Result<Registration> {
    let Region { base, len, accumulate, revocable, .. } = region;
    let pid = device.pids[device.shared.me].0;
    let (pages, name) = match &memory {
        OwnedMemory::Segment(segment) => {
            let name = segment.name()?;
            (Some((name, NO_SLOT)), Some(name))
        }
        OwnedMemory::Slot(slot) => {
            let (name, number) = slot.name();
            (Some((name, number)), Some(SegmentName { offset: slot.offset() as u64, ..name }))
        }
        OwnedMemory::User(moved) => {
            let pages = device.moved.borrow();
            let name = moved.as_ref().zip(pages.as_ref()).map(|(moved, pages)| pages.name(pid, moved));
            (name.map(|name| (name, MOVED)), None)
        }
    };
    // SAFETY: by the contract.
    let request_key = unsafe { device.service.exposures().insert(Exposed { base, len, accumulate }) };
    if let OwnedMemory::Slot(slot) = &memory {
        slot.open(request_key);
    }
    let live = if pages.is_none() { device.live.enter(device.own(), request_key, false) } else { None };
    let numbers = [base.addr() as u64, len as u64, request_key, mapped.start as u64, mapped.end as u64];
    let w = numbers.into_iter().fold(Writer::new().u8(if revocable { REVOCABLE } else { 0 }).u32(pid), Writer::u64);
    let w = w.u32(live.unwrap_or(u32::MAX));
    let key = match pages {
        Some((name, slot)) => name.write(w).u64(slot),
        None => w,
    }
    .done();
    Ok(own_region(device, request_key, region, key, memory, (name, live)))
}

pub(super) fn release(device: &ShmDevice, handle: u64) -> Result<()> {
    let Some(owned) = device.owned.borrow_mut().remove(&handle) else {
        return Err(Error::new(ErrorKind::Freed, "release memory").device("shm"));
    };
    if let Some(bytes) = owned.of_user() {
        device.used.borrow_mut().discount(&bytes);
    }
    // This rank's own imports use the address directly, so they end with the region.
    owned.imports.iter().for_each(|import| drop(device.imports.borrow_mut().remove(import)));
    owned.live.iter().for_each(|live| device.live.end(device.own(), *live));
    device.service.exposures().remove(handle);
    let waits = owned.exclusive || owned.key.first() == Some(&LENT_BRIEFLY);
    await_transfers(device, handle, owned.user, waits)?;
    // Requests are still served after this, so that a late peer gets the error that the key is no longer valid.
    if !matches!(owned.memory, OwnedMemory::User(_)) {
        device.places.borrow_mut().remove(&owned.base.addr());
    }
    match owned.memory {
        // SAFETY: the memory is valid until this call returns, by the contract of `register`.
        OwnedMemory::User(Some(moved)) => return unsafe { move_back(device, &moved, owned.exclusive) },
        OwnedMemory::Slot(slot) => device.arena.release(slot),
        // Mappings of exported memory that peers keep then occupy no memory.
        OwnedMemory::Segment(segment) if owned.was_lent.get() => segment.empty(),
        OwnedMemory::Segment(_) | OwnedMemory::User(None) => {}
    }
    Ok(())
}

/// Revokes the memory that is exported for single messages, so that no peer writes to it after its owner has ended.
pub(super) fn revoke_lent(device: &ShmDevice) {
    let is_lent = |region: &OwnedRegion| region.key.first() == Some(&LENT_BRIEFLY);
    let lent: Vec<u64> = device.owned.borrow().iter().filter(|(_, r)| is_lent(r)).map(|(handle, _)| *handle).collect();
    for handle in lent {
        if let Err(e) = release(device, handle) {
            tracing::warn!("memory exported for a message was not released: {e}");
        }
    }
}

/// Drops an import.
pub(super) fn forget(device: &ShmDevice, handle: u64) {
    let Some(import) = device.imports.borrow_mut().remove(&handle) else { return };
    if import.peer as usize == device.shared.me
        && let Some(owned) = device.owned.borrow_mut().get_mut(&import.request_key)
    {
        owned.imports.retain(|own| *own != handle);
    }
}

pub(super) fn import(
    device: &ShmDevice,
    peer: u32,
    key: &[u8],
    accumulate: Option<AccumulateFn>,
) -> Result<RemoteRegion> {
    let handle = device.fresh();
    let import = if peer as usize == device.shared.me {
        own(device, key, handle, accumulate)
    } else {
        foreign(device, peer, key, accumulate)?
    };
    let malformed = || Error::new(ErrorKind::Protocol, "import a peer's region").peer(peer).cause("malformed key");
    let import = import.ok_or_else(malformed)?;
    let remote = RemoteRegion {
        peer,
        len: import.len,
        handle,
        mapped: (import.has_mapped() || import.len == 0).then_some(import.mapped),
        lists: Some(import.lists_from()),
        steps: false,
    };
    device.imports.borrow_mut().insert(handle, import);
    Ok(remote)
}

/// This rank's import of its own region, which is always mapped.
fn own(device: &ShmDevice, key: &[u8], handle: u64, accumulate: Option<AccumulateFn>) -> Option<Import> {
    let mut owned = device.owned.borrow_mut();
    let request_key = KeyFields::read(&mut Reader::new(key))?.request_key;
    let region = owned.get_mut(&request_key).filter(|region| region.key == key)?;
    region.imports.push(handle);
    let mapped = Mapped { base: region.base, lo: 0, hi: region.len, atomics: true };
    let (peer, len) = (device.shared.me as u32, region.len);
    Some(Import { peer, len, mapped, _pages: None, request_key, live: None, vm: None, accumulate, brief: false })
}

/// The fields with which every key begins.
struct KeyFields {
    kind: u8,
    pid: u32,
    address: u64,
    len: usize,
    request_key: u64,
    lo: usize,
    hi: usize,
    live: Option<u32>,
}

impl KeyFields {
    fn read(r: &mut Reader<'_>) -> Option<Self> {
        let (kind, pid, address) = (r.u8()?, r.u32()?, r.u64()?);
        let (len, request_key) = (r.u64()? as usize, r.u64()?);
        let (lo, hi) = (r.u64()? as usize, r.u64()? as usize);
        let live = r.u32().map(|entry| (entry < layout::LIVE_KEYS).then_some(entry))?;
        Some(Self { kind, pid, address, len, request_key, lo, hi, live })
    }
}

/// The shared pages of a peer's region, which begin at byte `lo`; `None` for a malformed key.
fn import_pages(
    device: &ShmDevice,
    peer: u32,
    fields: &KeyFields,
    r: &mut Reader<'_>,
) -> Result<Option<ImportedPages>> {
    let Some((name, slot)) = SegmentName::read(r).zip(r.u64()) else { return Ok(None) };
    let KeyFields { lo, hi, .. } = *fields;
    if name.pid != fields.pid {
        return Ok(None);
    }
    if slot == MOVED {
        let fits = name.len == (hi - lo) as u64 && name.offset == fields.address + lo as u64;
        let found = fits.then(|| device.views.borrow_mut().find(peer, name, &device.stats)).transpose()?;
        return Ok(found.map(ImportedPages::Lent));
    }
    // The shared pages begin at byte `lo`.
    if !(fields.address as usize + lo).is_multiple_of(PAGE) {
        return Ok(None);
    }
    if slot == NO_SLOT {
        if name.len != page_up(hi - lo) as u64 {
            return Ok(None);
        }
        return segment::open(name, Pages::WhenTouched, peer).map(|mapping| Some(ImportedPages::Mapping(mapping)));
    }
    if (lo, hi) != (0, fields.len) || name.offset != 0 {
        return Ok(None);
    }
    let slot = device.imported_slots.import(peer, (name, slot), fields.request_key, hi)?;
    Ok(slot.map(ImportedPages::Slot))
}

/// The bytes of memory exported for a transfer that this rank can map. The name of their shared memory begins at byte
/// `lo`.
fn import_lent(device: &ShmDevice, peer: u32, fields: &KeyFields, r: &mut Reader<'_>) -> Option<Option<ImportedPages>> {
    let name =
        SegmentName::read(r).filter(|name| (name.pid, name.len) == (fields.pid, (fields.hi - fields.lo) as u64))?;
    let found = device.views.borrow_mut().find(peer, name, &device.stats);
    // Without the mapping, `process_vm_*` reads the bytes.
    let found = found.inspect_err(|e| tracing::debug!("memory exported by a peer is not mapped: {e}")).ok();
    Some(found.map(ImportedPages::Lent))
}

/// An import of another rank's region; `None` for a malformed key.
fn foreign(device: &ShmDevice, peer: u32, key: &[u8], accumulate: Option<AccumulateFn>) -> Result<Option<Import>> {
    let mut r = Reader::new(key);
    let Some(fields) = KeyFields::read(&mut r) else { return Ok(None) };
    let KeyFields { kind, pid, address, len, request_key, lo, hi, live } = fields;
    let (watched, known) = device.pids[peer as usize];
    if pid != watched || lo > hi || hi > len || len > isize::MAX as usize || address.checked_add(len as u64).is_none() {
        return Ok(None);
    }
    let (revocable, brief) = (kind == REVOCABLE, kind == LENT_BRIEFLY);
    let pages = match () {
        () if lo == hi => None,
        () if brief => match import_lent(device, peer, &fields, &mut r) {
            Some(pages) => pages,
            None => return Ok(None),
        },
        () => match import_pages(device, peer, &fields, &mut r)? {
            None => return Ok(None),
            pages => pages,
        },
    };
    let (lo, hi) = if pages.is_some() { (lo, hi) } else { (0, 0) };
    let base = pages.as_ref().map_or(std::ptr::null_mut(), |pages| pages.base().wrapping_sub(lo));
    let mut vm = None;
    // The owner cannot reject a system call, so revocable memory is not accessed by `process_vm_*`. The bytes around
    // shared pages of a window are too few for a system call.
    let unmapped = if brief { hi - lo < len } else { pages.is_none() && len > 0 && live.is_some() };
    if unmapped && !revocable && matches!(device.user_memory, UserMemory::Auto | UserMemory::Vm) {
        let works = &device.vm_works[peer as usize];
        match if works.get() { Ok(()) } else { vm::works(watched, known) } {
            Ok(()) => {
                works.set(true);
                vm = Some((pid, address));
            }
            Err(e) if brief => return Err(e.peer(peer)),
            Err(e) if device.user_memory == UserMemory::Vm => return Err(e.peer(peer)),
            Err(e) => tracing::info!("process_vm_readv and process_vm_writev are not used: {e}"),
        }
    }
    Ok(Some(Import {
        peer,
        len,
        mapped: Mapped { base, lo, hi, atomics: true },
        _pages: pages,
        request_key,
        live,
        vm,
        accumulate,
        brief,
    }))
}
