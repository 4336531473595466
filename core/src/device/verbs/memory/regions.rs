#![allow(unsafe_code)]
//! Regions: memory that this rank has registered, and memory of peers that it has imported.
//!
//! A key consists of `3`, the address and length of the region, the HCA's remote key, and the region's number at its
//! owner. A region with several registrations ([`super::spread`]) has the key `5`, address, length, number, stride, and
//! all remote keys. The key of an exported region begins with `4`, has the count of revocations in place of the number, and ends
//! with the address and key of that count ([`super::lent`]).

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use memmap2::{MmapOptions, MmapRaw};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::lent::{Lent, Witness};
use super::slab::Slab;
use super::spread::{Spread, ranges};
use crate::device::imports::{self as checks, ImportedRegion};
use crate::device::verbs::limit::{limit, registration};
use crate::device::verbs::post::cut::{Limits, Part, cut};
use crate::device::verbs::post::notices::raised;
use crate::device::verbs::sys::qp::Action;
use crate::device::verbs::sys::queue::Piece;
use crate::device::verbs::sys::{Domain, Memory, Rights};
use crate::device::{Place, Range, Region, Registration, RemoteRegion};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::segment::PAGE;
use crate::slots::Slots;
use crate::wire::{Reader, Writer};

const TAG: u8 = 3;
const LENT: u8 = 4;
const SPREAD: u8 = 5;

/// Time for which allocated memory stays registered after its release. A peer that is late to access a rank that ends
/// abnormally then gets the error that the rank is lost, not that a key is unknown. Nothing else uses those pages.
const LINGER: Duration = Duration::from_millis(500);
/// Maximum bytes and regions that stay registered in this way.
const LINGER_BYTES: usize = 16 << 20;
const LINGER_REGIONS: usize = 64;

/// A region of this rank.
struct Owned {
    base: *mut u8,
    len: usize,
    /// Its registrations, with their offsets.
    memory: SmallVec<[(usize, Memory); 1]>,
    /// Memory that the device allocated.
    map: Option<MmapRaw>,
}

/// A region of a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Import {
    pub(crate) peer: u32,
    pub(crate) base: u64,
    pub(crate) len: usize,
    /// Number of bytes at its start for which `key` is used; the keys for others are in [`Spread`].
    pub(crate) covered: usize,
    pub(crate) key: u32,
    /// Number of the region at its owner.
    pub(crate) number: u64,
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
    pub(crate) fn address(&self, offset: usize) -> u64 {
        self.base.wrapping_add(offset as u64)
    }

    /// Whether the key of the region covers `len` bytes at `offset`.
    fn has(&self, offset: usize, len: usize) -> bool {
        self.covered.checked_sub(offset).is_some_and(|room| len <= room)
    }

    /// The address of an integer of `len` bytes; an error if it is outside or misaligned.
    pub(crate) fn aligned(&self, offset: usize, len: usize, operation: &'static str) -> Result<u64> {
        let address = self.address(offset);
        if address.is_multiple_of(len as u64) {
            return Ok(address);
        }
        Err(checks::misaligned(self.peer, offset, operation).device("verbs"))
    }
}

/// The registrations of an imported region.
enum Kind {
    One,
    Lent(Witness),
    /// Stride and keys.
    Spread(usize, Vec<u32>),
}

/// All regions known to this rank.
pub(crate) struct Regions {
    domain: Arc<Domain>,
    me: u32,
    ranks: usize,
    owned: FxHashMap<u64, Owned>,
    /// Registered memory by address and handle, for local buffers: length and local key.
    by_address: BTreeMap<(usize, u64), (usize, u32)>,
    imports: Slots<Import>,
    /// Imported regions with several registrations, by handle.
    spread: FxHashMap<u64, Spread>,
    /// Maximum length of a registration.
    longest: usize,
    released: VecDeque<(Instant, Owned)>,
    pub(super) last: u64,
    /// Number of packets of each rank that this rank has received, followed by the number of revocations of exported
    /// memory.
    words: Slab,
    pub(super) lent: Lent,
}

impl Regions {
    /// Bytes registered at start-up.
    pub(crate) fn bytes(ranks: usize) -> usize {
        8 * (ranks + 1)
    }

    pub(crate) fn new(domain: &Arc<Domain>, me: u32, ranks: usize, longest: usize) -> io::Result<Self> {
        Ok(Self {
            domain: Arc::clone(domain),
            me,
            ranks,
            owned: FxHashMap::default(),
            by_address: BTreeMap::new(),
            imports: Slots::default(),
            spread: FxHashMap::default(),
            longest,
            released: VecDeque::new(),
            last: 0,
            words: Slab::new(domain, Self::bytes(ranks), Rights::Remote)?,
            lent: Lent::default(),
        })
    }

    /// Address and remote key of the packet counters.
    pub(crate) fn counters(&self) -> (u64, u32) {
        self.words.remote(0)
    }

    /// Number of packets of rank `source` that this rank has received. Peers' HCAs read it.
    pub(crate) fn taken(&self, source: u32) -> &AtomicU64 {
        assert!((source as usize) < self.ranks);
        self.word(source as usize)
    }

    fn word(&self, i: usize) -> &AtomicU64 {
        let word = self.words.at(8 * i);
        // SAFETY: an aligned word of the slab, which only this rank writes, as an atomic.
        unsafe { AtomicU64::from_ptr(word.cast()) }
    }

    /// Number of times that this rank has revoked exported memory before the peer had read it. Peers read this number by
    /// RDMA, after the data.
    pub(super) fn revoked(&self) -> &AtomicU64 {
        self.word(self.ranks)
    }

    /// The key of exported memory.
    pub(super) fn lent_key(&self, base: *mut u8, len: usize, remote: u32) -> Vec<u8> {
        let (address, key) = self.words.remote(8 * self.ranks);
        // Relaxed: only this rank writes the count.
        let count = self.revoked().load(Ordering::Relaxed);
        let w = Writer::new().u8(LENT).u64(base.addr() as u64).u64(len as u64).u32(remote).u64(count);
        w.u64(address).u32(key).done()
    }

    pub(crate) fn allocate(&mut self, len: usize, align: usize) -> Result<Registration> {
        const OP: &str = "allocate registered memory";
        // A mapping begins at a page boundary; only a larger alignment needs a margin.
        let margin = if align <= PAGE { 0 } else { align };
        let room = len.max(1).checked_add(margin).filter(|room| *room <= isize::MAX as usize / 2);
        let Some(room) = room else {
            return Err(Error::new(ErrorKind::Limit, OP)
                .device("verbs")
                .cause(format!("{len} bytes exceed the address space")));
        };
        let map = MmapOptions::new()
            .len(room)
            .map_anon()
            .map_err(|e| limit(OP, e).cause(format!("{len} bytes cannot be mapped")))?;
        let map = MmapRaw::from(map);
        let start = map.as_mut_ptr();
        let base = start.wrapping_add(start.addr().wrapping_neg() % align);
        // SAFETY: the mapping exists until `release`, which deregisters it first.
        unsafe { self.add(base, len, Some(map), OP) }
    }

    /// # Safety
    /// The contract of [`crate::device::Device::register`].
    pub(crate) unsafe fn register(&mut self, region: Region) -> Result<Registration> {
        // SAFETY: the same contract.
        unsafe { self.add(region.base, region.len, None, "register memory") }
    }

    /// # Safety
    /// The memory belongs to `map`, or satisfies the contract of [`crate::device::Device::register`].
    unsafe fn add(
        &mut self,
        base: *mut u8,
        len: usize,
        map: Option<MmapRaw>,
        operation: &'static str,
    ) -> Result<Registration> {
        let (ranges, stride) = ranges(len, self.longest);
        let mut memory: SmallVec<[(usize, Memory); 1]> = SmallVec::new();
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            // SAFETY: by the contract.
            let made =
                unsafe { Memory::register(&self.domain, base.wrapping_add(range.start), range.len(), Rights::Remote) };
            memory.push((range.start, made.map_err(|e| registration(operation, len, e))?));
        }
        self.last += 1;
        let number = self.last;
        let head = |tag| Writer::new().u8(tag).u64(base.addr() as u64).u64(len as u64);
        let key = match &memory[..] {
            [] => head(TAG).u32(0).u64(number),
            [(_, memory)] => head(TAG).u32(memory.remote_key()).u64(number),
            all => {
                let w = head(SPREAD).u64(number).u64(stride as u64);
                all.iter().fold(w, |w, (_, memory)| w.u32(memory.remote_key()))
            }
        };
        let key = key.done();
        for ((start, memory), range) in memory.iter().zip(&ranges) {
            self.by_address.insert((base.addr() + start, number), (range.len(), memory.local_key()));
        }
        self.owned.insert(number, Owned { base, len, memory, map });
        Ok(Registration { base, len, key, handle: number })
    }

    pub(crate) fn release(&mut self, handle: u64) -> Result<()> {
        const OP: &str = "release memory";
        if self.end_lease(handle) {
            return self.deregister_lingering();
        }
        let Some(owned) = self.owned.remove(&handle) else {
            return Err(Error::new(ErrorKind::Freed, OP).device("verbs"));
        };
        for (start, _) in &owned.memory {
            self.by_address.remove(&(owned.base.addr() + start, handle));
        }
        if owned.map.is_some() && owned.len <= LINGER_BYTES {
            self.released.push_back((Instant::now(), owned));
            return self.deregister_lingering();
        }
        give_up(owned, OP)
    }

    /// Deregisters released memory that has lingered long enough, or that exceeds the limits.
    pub(crate) fn deregister_lingering(&mut self) -> Result<()> {
        self.lent.deregister_lingering(LINGER);
        let mut bytes: usize = self.released.iter().map(|(_, o)| o.len).sum();
        while let Some((since, _)) = self.released.front() {
            if bytes <= LINGER_BYTES && self.released.len() <= LINGER_REGIONS && since.elapsed() < LINGER {
                break;
            }
            if let Some((_, owned)) = self.released.pop_front() {
                bytes -= owned.len;
                give_up(owned, "release memory")?;
            }
        }
        Ok(())
    }

    /// The local key of registered memory that contains `[base, base + len)`.
    pub(crate) fn local_key(&self, base: *const u8, len: usize) -> Option<u32> {
        let end = base.addr().checked_add(len)?;
        let mut before = self.by_address.range(..=(base.addr(), u64::MAX)).rev().take(8);
        before.find_map(|((start, _), (size, key))| (end - start <= *size).then_some(*key))
    }

    pub(crate) fn import(&mut self, peer: u32, key: &[u8]) -> Result<RemoteRegion> {
        const OP: &str = "import a peer's region";
        if peer as usize >= self.ranks {
            return Err(Error::new(ErrorKind::NoSuchRank, OP).peer(peer).device("verbs"));
        }
        let mut r = Reader::new(key);
        let fields = (|| {
            let tag = r.u8()?;
            let (base, len) = (r.u64()?, r.u64()?);
            if tag == SPREAD {
                let (number, stride) = (r.u64()?, r.u64()?.try_into().ok()?);
                let keys: Vec<u32> = std::iter::from_fn(|| r.u32()).collect();
                return r.rest().is_empty().then_some((base, len, *keys.first()?, number, Kind::Spread(stride, keys)));
            }
            let (key, number) = (r.u32()?, r.u64()?);
            let kind = match tag {
                TAG => Kind::One,
                LENT => Kind::Lent(Witness { expected: number, address: r.u64()?, key: r.u32()? }),
                _ => return None,
            };
            r.rest().is_empty().then_some((base, len, key, number, kind))
        })();
        let malformed = || Error::new(ErrorKind::Protocol, OP).peer(peer).device("verbs").cause("malformed key");
        let (base, len, key, number, kind) = fields.ok_or_else(malformed)?;
        if base.checked_add(len).is_none() || len > isize::MAX as u64 {
            return Err(malformed());
        }
        let len = len as usize;
        let handle = self.imports.next();
        let mut import = Import { peer, base, len, covered: len, key, number };
        if let Kind::Spread(stride, keys) = &kind {
            let spread = Spread::new(import, *stride, keys, len).ok_or_else(malformed)?;
            import.covered = spread.first(len);
            self.spread.insert(handle, spread);
        }
        self.imports.add(import);
        let lists = match kind {
            Kind::Lent(witness) => Some(self.lent.imported(handle, witness)),
            Kind::One | Kind::Spread(..) => None,
        };
        // Nothing is mapped, not even this rank's own memory: atomics of the processor are not atomic with those of the
        // HCA.
        Ok(RemoteRegion { peer, len, handle, mapped: None, lists, steps: false })
    }

    pub(crate) fn forget(&mut self, handle: u64) -> Option<Import> {
        self.lent.forget(handle);
        self.spread.remove(&handle);
        self.imports.remove(handle)
    }

    /// Splits a transfer with `region`, whose remote bytes begin at those of `action`, into requests.
    pub(crate) fn cut(&self, region: u64, pieces: &[Piece], action: Action, limits: Limits) -> SmallVec<[Part; 1]> {
        let Some(spread) = self.spread.get(&region) else { return cut(pieces, action, limits) };
        let mut parts = cut(pieces, action, spread.limits(limits));
        spread.key_all(&mut parts);
        parts
    }

    /// The limits of requests with `region`.
    pub(crate) fn limits(&self, region: u64, limits: Limits) -> Limits {
        self.spread.get(&region).map_or(limits, |spread| spread.limits(limits))
    }

    /// The operation on `region`, with the key for its remote address.
    pub(crate) fn keyed(&self, region: u64, action: Action) -> Action {
        self.spread.get(&region).map_or(action, |spread| spread.keyed(action))
    }

    /// Address and key of the start of `place` at `peer`; an error unless the region has `len` bytes there.
    #[inline(always)]
    pub(crate) fn reach(&self, peer: u32, place: Place, len: usize, operation: &'static str) -> Result<(u64, u32)> {
        self.find(peer, place, len, operation).map(|import| (import.address(place.offset), import.key))
    }

    /// Address and key of an integer of `len` bytes at `at`; an error if it is outside or misaligned.
    #[inline]
    pub(crate) fn reach_aligned(
        &self,
        peer: u32,
        at: Place,
        len: usize,
        operation: &'static str,
    ) -> Result<(u64, u32)> {
        let import = self.find(peer, at, len, operation)?;
        Ok((import.aligned(at.offset, len, operation)?, import.key))
    }

    /// The region of `place` at `peer`; an error unless it has `len` bytes there.
    pub(crate) fn region(&self, peer: u32, place: Place, len: usize, operation: &'static str) -> Result<Import> {
        self.find(peer, place, len, operation).copied()
    }

    /// Like [`region`](Self::region), by reference.
    #[inline(always)]
    pub(crate) fn find(&self, peer: u32, place: Place, len: usize, operation: &'static str) -> Result<&Import> {
        match self.imports.get(place.region) {
            Some(import) if import.peer == peer && peer != self.me && import.has(place.offset, len) => Ok(import),
            found => self.find_own(found, peer, place, len, operation),
        }
    }

    /// The slow path of `find`: a region of this rank, or the reason why `place` cannot be accessed.
    #[cold]
    #[inline(never)]
    fn find_own<'a>(
        &'a self,
        found: Option<&'a Import>,
        peer: u32,
        place: Place,
        len: usize,
        operation: &'static str,
    ) -> Result<&'a Import> {
        let checked = || {
            let import = checks::region(found, peer, place.region, operation)?;
            // A released region of this rank is detected without a request to the HCA.
            if peer == self.me && !self.owned.contains_key(&import.number) {
                return Err(Error::new(ErrorKind::BadKey, operation).peer(peer).cause("the region was released"));
            }
            checks::range(import, Range { offset: place.offset, len }, operation)?;
            Ok(self.spread.get(&place.region).map_or(import, |spread| spread.at(place.offset)))
        };
        checked().map_err(|e| e.device("verbs"))
    }

    /// Raises a signal cell of this rank to the value given by `low`, half of an immediate. A smaller value is ignored:
    /// cells only grow, and the HCA may already have written a later value.
    pub(crate) fn raise(&self, number: u64, offset: u64, low: u16) -> bool {
        let Some(owned) = self.owned.get(&number) else { return false };
        let inside = offset.checked_add(8).is_some_and(|end| end <= owned.len as u64);
        if !inside || !(owned.base.addr() as u64 + offset).is_multiple_of(8) {
            return false;
        }
        // SAFETY: an aligned word of a live region, accessed by atomics of this size and by the HCA.
        let cell = unsafe { AtomicU64::from_ptr(owned.base.wrapping_add(offset as usize).cast()) };
        // Release: pairs with the Acquire of the rank waiting for the cell; the data arrived before the completion. The
        // Acquire side is for a value that the HCA wrote.
        let _ = cell.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| raised(now, low));
        true
    }
}

/// Ends a registration; its remote key is invalid afterwards.
fn give_up(mut owned: Owned, operation: &'static str) -> Result<()> {
    while let Some((_, memory)) = owned.memory.pop() {
        if let Err(e) = memory.deregister() {
            // The HCA may still write the memory, so the pages are leaked.
            std::mem::forget(owned);
            return Err(Error::system(operation, e).device("verbs"));
        }
    }
    Ok(())
}
