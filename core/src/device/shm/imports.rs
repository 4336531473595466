#![allow(unsafe_code)]
//! Regions: what this rank exposes, and what it has imported from peers.
//!
//! A key is `1` and the name of a segment, for memory that the device allocated; or `2`, the process, address,
//! length and request key of a user's memory, whether it is revocable, and the segment of its remapped pages
//! if there are any.

use std::sync::atomic::Ordering;
use std::time::Instant;

use rustc_hash::FxHashMap;

use super::agent::Agent;
use super::remap::{self, Remapped};
use super::{ShmDevice, layout, vm};
use crate::device::{Block, Mapped, Place, Range, Region, Registration, RemoteRegion, Spread};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::keys::{AccumulateFn, Exposed};
use crate::memory::segment::{self, Mapping, Segment, SegmentName};
use crate::processes;
use crate::settings::UserMemory;
use crate::wire::{Reader, Writer};

const ALLOCATED: u8 = 1;
const USER: u8 = 2;

/// Unmapped bytes from which one `process_vm_*` call is cheaper than requests to a target that attends.
const VM_FROM: usize = 16 << 10;

/// Block from which a list of them is better than packing: by `process_vm_*`, which looks up the pages of each, and by
/// requests, one for each.
const VM_LIST_FROM: u64 = 1024;
const RING_LIST_FROM: u64 = 8192;

/// A region of this rank.
#[derive(Debug)]
pub(super) enum Owned {
    Allocated { segment: Segment, len: usize, request_key: u64, key: Vec<u8> },
    User { base: *mut u8, len: usize, request_key: u64, remapped: Option<Remapped>, key: Vec<u8> },
}

impl Owned {
    pub(super) fn close_name(&mut self) {
        match self {
            Owned::Allocated { segment, .. } => segment.close_name(),
            Owned::User { remapped: Some(r), .. } => r.segment.close_name(),
            Owned::User { remapped: None, .. } => {}
        }
    }
}

/// A region of a peer.
#[derive(Debug)]
pub(super) struct Import {
    pub(super) peer: u32,
    len: usize,
    /// Byte `i` is at `mapped.base + i` for `lo <= i < hi`.
    mapped: Mapped,
    /// Keeps the pages.
    _pages: Option<Mapping>,
    /// By which requests name it; for a region of this rank itself the handle of its registration.
    pub(super) request_key: u64,
    /// Process and address of byte 0, if `process_vm_*` may be used.
    pub(super) vm: Option<(u32, u64)>,
    /// Least number of bytes for which it is.
    pub(super) vm_from: usize,
    pub(super) accumulate: Option<AccumulateFn>,
}

impl Import {
    /// The address of byte `at` if it is mapped, and where the run of bytes of its kind ends.
    pub(super) fn extent(&self, at: usize) -> (Option<*mut u8>, usize) {
        let m = &self.mapped;
        if at < m.lo {
            (None, m.lo)
        } else if at < m.hi {
            (Some(m.base.wrapping_add(at)), m.hi)
        } else {
            (None, self.len)
        }
    }

    /// Cuts a copy between local blocks and ranges of the region, equal in their sum, where either ends and where the
    /// kind of memory changes: for each piece its address if it is mapped, its offset, its local address and its length.
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

    fn check(&self, range: Range, operation: &'static str) -> Result<()> {
        if range.offset.checked_add(range.len).is_some_and(|end| end <= self.len) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::OutOfRange, operation)
            .peer(self.peer)
            .device("shm")
            .cause(format!("{} bytes at offset {} of a region of {}", range.len, range.offset, self.len)))
    }

    /// Whether none of it is mapped.
    pub(super) fn is_unmapped(&self) -> bool {
        self.mapped.lo >= self.mapped.hi
    }

    /// Block from which a list of them is better than packing. What is mapped is copied as it is.
    fn lists_from(&self) -> u64 {
        match self.vm {
            _ if !self.is_unmapped() => 0,
            Some(_) => VM_LIST_FROM,
            None => RING_LIST_FROM,
        }
    }

    /// The 64-bit word at `at`: mapped, or `None` if it takes a request.
    pub(super) fn word(&self, at: usize, operation: &'static str) -> Result<Option<*mut u64>> {
        Ok(self.integer(at, 8, operation)?.map(<*mut u8>::cast))
    }

    /// The integer of `len` bytes at `at`, aligned: mapped, or `None` if it takes a request.
    pub(super) fn integer(&self, at: usize, len: usize, operation: &'static str) -> Result<Option<*mut u8>> {
        let misaligned =
            || Error::new(ErrorKind::Misaligned, operation).peer(self.peer).device("shm").cause(format!("offset {at}"));
        if !matches!(len, 1 | 2 | 4 | 8) {
            return Err(Error::new(ErrorKind::BadArgument, operation).cause(format!("an integer of {len} bytes")));
        }
        match self.extent(at) {
            // Half an integer on a page that is mapped: it cannot be aligned.
            (_, end) if end - at < len => Err(misaligned()),
            (Some(p), _) if !p.addr().is_multiple_of(len) => Err(misaligned()),
            (p, _) => Ok(p),
        }
    }
}

/// The region of `place` at `peer`, with room for `len` bytes there.
pub(super) fn region<'a>(
    imports: &'a FxHashMap<u64, Import>,
    peer: u32,
    place: Place,
    len: usize,
    operation: &'static str,
) -> Result<&'a Import> {
    let import = imports.get(&place.region).ok_or_else(|| {
        Error::new(ErrorKind::BadKey, operation).device("shm").cause(format!("region {}", place.region))
    })?;
    // Request keys of two peers may be equal, so a request that went astray could change other memory.
    if import.peer != peer {
        return Err(Error::new(ErrorKind::BadArgument, operation)
            .peer(peer)
            .device("shm")
            .cause("the region is of another rank"));
    }
    import.check(Range { offset: place.offset, len }, operation)?;
    Ok(import)
}

/// The region of `spread` at `peer`, with room for all of its ranges, which together have `len` bytes.
pub(super) fn spread<'a>(
    imports: &'a FxHashMap<u64, Import>,
    peer: u32,
    spread: Spread<'_>,
    len: usize,
    operation: &'static str,
) -> Result<&'a Import> {
    let import = region(imports, peer, Place { region: spread.region, offset: 0 }, 0, operation)?;
    let mut total = Some(0usize);
    for range in spread.ranges {
        import.check(*range, operation)?;
        total = total.and_then(|t| t.checked_add(range.len));
    }
    if total == Some(len) {
        return Ok(import);
    }
    Err(Error::new(ErrorKind::BadArgument, operation)
        .peer(peer)
        .device("shm")
        .cause(format!("{len} bytes of local blocks, {total:?} of remote ranges")))
}

/// The mapped word of `place`.
pub(super) fn mapped_word(
    imports: &FxHashMap<u64, Import>,
    peer: u32,
    place: Place,
    operation: &'static str,
) -> Result<*mut u64> {
    let import = region(imports, peer, place, 8, operation)?;
    import.word(place.offset, operation)?.ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, operation)
            .peer(import.peer)
            .device("shm")
            .cause("signal cells live in memory of the runtime")
    })
}

fn segment_fields(w: Writer, name: SegmentName) -> Writer {
    w.u32(name.pid).u32(name.fd).u64(name.len).u64(name.inode)
}

fn segment_name(r: &mut Reader<'_>) -> Option<SegmentName> {
    Some(SegmentName { pid: r.u32()?, fd: r.u32()?, len: r.u64()?, inode: r.u64()? })
}

pub(super) fn allocate(device: &ShmDevice, len: usize, _region: Region) -> Result<Registration> {
    let segment = Segment::create(&device.dir, len)?;
    let base = segment.mapping().at(0);
    let name = segment.name()?;
    // Mapped by who imports it; the key is for notifications that follow a request to other memory.
    // SAFETY: the segment is kept until `release`, which takes the key back first.
    let request_key = unsafe { device.shared.exposures.insert(Exposed { base, len, accumulate: None }) };
    let key = segment_fields(Writer::new().u8(ALLOCATED), name).u64(len as u64).u64(request_key).done();
    let handle = device.fresh();
    device.owned.borrow_mut().insert(handle, Owned::Allocated { segment, len, request_key, key: key.clone() });
    Ok(Registration { base, len, key, handle })
}

/// # Safety
/// As [`super::Device::register`].
pub(super) unsafe fn register(device: &ShmDevice, region: Region) -> Result<Registration> {
    let Region { base, len, accumulate, passive, revocable, .. } = region;
    let remapped = match device.user_memory {
        UserMemory::Auto | UserMemory::Remap => {
            // SAFETY: lent to the runtime until `release`.
            match unsafe { remap::remap(base, len, &device.dir) } {
                Ok(r) => r,
                Err(e) if device.user_memory == UserMemory::Auto => {
                    tracing::warn!("a buffer of {len} bytes is not shared, it will be served by copies: {e}");
                    None
                }
                Err(e) => return Err(e),
            }
        }
        UserMemory::Vm | UserMemory::Ring => None,
    };
    let (lo, hi) = remapped.as_ref().map_or((0, 0), |r| {
        let lo = r.base.addr() - base.addr();
        (lo, lo + r.len)
    });
    if (lo, hi) != (0, len) {
        // Not attending yet, as far as peers know: whoever registers may go on computing at once. Where this is
        // inside a wait, the agent serves too until the next one.
        device.serving.set(true);
        let mut agent = device.agent.borrow_mut();
        if passive && agent.is_none() {
            match Agent::start(device.shared.clone()) {
                Ok(started) => *agent = Some(started),
                Err(e) => {
                    if let Some(r) = &remapped {
                        // SAFETY: lent, and nobody knows of it yet.
                        unsafe { remap::restore(r) }?;
                    }
                    return Err(e);
                }
            }
        }
    }
    // SAFETY: lent until `release`, which takes the key back first.
    let request_key = unsafe { device.shared.exposures.insert(Exposed { base, len, accumulate }) };
    device.publish(request_key, request_key);
    let mut w = Writer::new().u8(USER).u32(std::process::id()).u64(base.addr() as u64).u64(len as u64).u64(request_key);
    w = w.u64(lo as u64).u64(hi as u64).u8(u8::from(revocable));
    if let Some(r) = &remapped {
        w = segment_fields(w, r.segment.name()?);
    }
    let key = w.done();
    let handle = device.fresh();
    device.owned.borrow_mut().insert(handle, Owned::User { base, len, request_key, remapped, key: key.clone() });
    Ok(Registration { base, len, key, handle })
}

pub(super) fn release(device: &ShmDevice, handle: u64) -> Result<()> {
    // This rank's own imports of it reach it by address: they end with it.
    let me = device.shared.me as u32;
    device.imports.borrow_mut().retain(|_, i| i.peer != me || i.request_key != handle);
    match device.owned.borrow_mut().remove(&handle) {
        None => Err(Error::new(ErrorKind::Freed, "release memory").device("shm")),
        Some(Owned::Allocated { request_key, .. }) => {
            device.shared.exposures.remove(request_key);
            Ok(())
        }
        Some(Owned::User { request_key, remapped, .. }) => {
            device.publish(request_key, 0);
            device.shared.exposures.remove(request_key);
            await_transfers(device, request_key)?;
            // Requests are served from now on too: a peer that comes late must hear that the key is gone.
            match remapped {
                None => Ok(()),
                // SAFETY: the memory is lent to the runtime until this call returns.
                Some(r) => unsafe { remap::restore(&r) },
            }
        }
    }
}

/// Waits for the transfers by `process_vm_*` that had begun before the live key `key` was cleared.
///
/// # Errors
/// `System` for one that does not end within `FARSIDE_TIMEOUT_S`, since its process is stopped.
fn await_transfers(device: &ShmDevice, key: u64) -> Result<()> {
    let transfer = layout::vm_transfer(device.shared.me, key);
    let start = Instant::now();
    for (number, peer) in device.shared.peers.iter().enumerate() {
        let mut turns = 0u32;
        // SeqCst: after the store to the live key; see `ShmDevice::vm`. Acquire is part of it.
        while peer.word(layout::VM_TRANSFER).load(Ordering::SeqCst) == transfer {
            turns = turns.wrapping_add(1);
            // A process that has ended does nothing any more, and leaves its word as it is.
            if turns.is_multiple_of(1024) && processes::ended(&device.processes).contains(&number) {
                break;
            }
            if start.elapsed() > device.timeout {
                return Err(Error::new(ErrorKind::System, "release memory")
                    .peer(device.shared.ranks[number])
                    .device("shm")
                    .cause(format!(
                        "it has been reading or writing the memory for {:?}; its process may be stopped",
                        device.timeout
                    )));
            }
            std::thread::yield_now();
        }
    }
    Ok(())
}

pub(super) fn import(
    device: &ShmDevice,
    peer: u32,
    key: &[u8],
    accumulate: Option<AccumulateFn>,
) -> Result<RemoteRegion> {
    const OP: &str = "import a peer's region";
    if peer as usize >= device.pids.len() {
        return Err(Error::new(ErrorKind::NoSuchRank, OP).peer(peer).device("shm"));
    }
    let malformed = || Error::new(ErrorKind::Protocol, OP).peer(peer).device("shm").cause("malformed key");
    let mut r = Reader::new(key);
    let import = if peer as usize == device.shared.me {
        own(device, key, accumulate).ok_or_else(malformed)?
    } else {
        match r.u8() {
            Some(ALLOCATED) => {
                let fields = (|| Some((segment_name(&mut r)?, r.u64()?, r.u64()?)))();
                let (name, len, request_key) = fields.ok_or_else(malformed)?;
                if len > name.len || name.pid != device.pids[peer as usize].0 {
                    return Err(malformed());
                }
                let pages = segment::open(name, peer)?;
                let len = len as usize;
                let mapped = Mapped { base: pages.at(0), lo: 0, hi: len };
                Import { peer, len, mapped, _pages: Some(pages), request_key, vm: None, vm_from: 0, accumulate }
            }
            Some(USER) => user(device, peer, &mut r, accumulate)?.ok_or_else(malformed)?,
            _ => return Err(malformed()),
        }
    };
    let handle = device.fresh();
    let remote = RemoteRegion {
        peer,
        len: import.len,
        handle,
        mapped: (import.mapped.lo < import.mapped.hi || import.len == 0).then_some(import.mapped),
        lists: Some(import.lists_from()),
    };
    device.imports.borrow_mut().insert(handle, import);
    Ok(remote)
}

/// A region of this rank itself: mapped by nature.
fn own(device: &ShmDevice, wanted: &[u8], accumulate: Option<AccumulateFn>) -> Option<Import> {
    let owned = device.owned.borrow();
    let (handle, base, len) = owned.iter().find_map(|(handle, o)| match o {
        Owned::Allocated { segment, len, key, .. } if key == wanted => Some((*handle, segment.mapping().at(0), *len)),
        Owned::User { base, len, key, .. } if key == wanted => Some((*handle, *base, *len)),
        _ => None,
    })?;
    let mapped = Mapped { base, lo: 0, hi: len };
    Some(Import {
        peer: device.shared.me as u32,
        len,
        mapped,
        _pages: None,
        request_key: handle,
        vm: None,
        vm_from: 0,
        accumulate,
    })
}

fn user(device: &ShmDevice, peer: u32, r: &mut Reader<'_>, accumulate: Option<AccumulateFn>) -> Result<Option<Import>> {
    let fields = (|| Some((r.u32()?, r.u64()?, r.u64()?, r.u64()?, r.u64()?, r.u64()?, r.u8()? != 0)))();
    let Some((pid, address, len, request_key, lo, hi, revocable)) = fields else { return Ok(None) };
    let (len, lo, hi) = (len as usize, lo as usize, hi as usize);
    let (watched, known) = device.pids[peer as usize];
    if pid != watched || lo > hi || hi > len || len > isize::MAX as usize || address.checked_add(len as u64).is_none() {
        return Ok(None);
    }
    let pages = if lo < hi {
        match segment_name(r) {
            Some(name) if name.len == (hi - lo) as u64 && name.pid == pid => Some(segment::open(name, peer)?),
            _ => return Ok(None),
        }
    } else {
        None
    };
    let base = pages.as_ref().map_or(std::ptr::null_mut(), |p| p.at(0).wrapping_sub(lo));
    let mut vm = None;
    // A system call cannot be refused by the owner, so revocable memory is not reached that way.
    if !revocable && matches!(device.user_memory, UserMemory::Auto | UserMemory::Vm) {
        match vm::works(watched, known) {
            Ok(()) => vm = Some((pid, address)),
            Err(e) if device.user_memory == UserMemory::Vm => return Err(e.peer(peer)),
            Err(e) => tracing::info!("process_vm calls are not used: {e}"),
        }
    }
    let vm_from = if device.user_memory == UserMemory::Vm { 0 } else { VM_FROM };
    Ok(Some(Import { peer, len, mapped: Mapped { base, lo, hi }, _pages: pages, request_key, vm, vm_from, accumulate }))
}
