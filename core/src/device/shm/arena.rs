#![allow(unsafe_code)]
//! Small regions that this device allocates: many regions share a segment, so that thousands of them take few
//! descriptors and mappings at this rank and at every peer.
//!
//! A segment consists of a header and slots of one size. The header holds the size and the number of the slots and a
//! word for each slot, with the region that has the slot and the number of its imports:
//!
//! ```text
//! upper half: key of the region that has the slot, or 0                lower half: number of imports
//! ```
//!
//! A peer can import a slot only while the word holds the region's key, so a key is useless after the release. A slot
//! is reused only when no import of it is left: a peer that still uses a released region accesses memory that no other
//! region has.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHashMap;

use crate::error::{Error, ErrorKind, Result};
use crate::memory::segment::{self, Mapping, PAGE, Pages, Segment, SegmentName, page_up};

/// Maximum length of a region in a slot.
pub(super) const MAX_REGION_BYTES: usize = 16 * PAGE;
/// Number of slot sizes: 1, 2, 4, 8 and 16 pages.
const SIZES: usize = 5;
/// Bytes of slots in the first segment, which has at least four slots because a released slot can be reused only when
/// no peer imports it.
const FIRST_SEGMENT_BYTES: usize = 16 * PAGE;
/// Maximum bytes of slots in a segment; each segment has twice as many slots as the largest one before it.
const MAX_SEGMENT_BYTES: usize = 16 << 20;
/// Number of released slots that are checked when a slot is needed.
const MAX_CHECKED_SLOTS: usize = 8;

/// The lower half of a slot's word.
const IMPORTS: u64 = (1 << 32) - 1;

fn owner(key: u64) -> u64 {
    key << 32
}

/// One segment of slots.
struct Slots {
    segment: Segment,
    name: SegmentName,
    count: usize,
}

/// Offset of a slot's word.
fn word_at(slot: usize) -> usize {
    16 + 8 * slot
}

/// Length of the header of `count` slots.
fn header(count: usize) -> usize {
    page_up(word_at(count))
}

/// A slot of this rank.
pub(super) struct Slot {
    slots: Rc<Slots>,
    index: usize,
}

impl Slot {
    fn size(&self) -> usize {
        (self.slots.segment.mapping().len() - header(self.slots.count)) / self.slots.count
    }

    pub(super) fn base(&self) -> *mut u8 {
        self.slots.segment.mapping().at(self.offset())
    }

    /// Offset of the first byte in the segment.
    pub(super) fn offset(&self) -> usize {
        header(self.slots.count) + self.index * self.size()
    }

    fn word(&self) -> &AtomicU64 {
        self.slots.segment.mapping().word(word_at(self.index))
    }

    /// Name of the segment and number of the slot, for the key of a region.
    pub(super) fn name(&self) -> (SegmentName, u64) {
        (self.slots.name, self.index as u64)
    }

    /// Lets peers that have the region's key import the slot.
    pub(super) fn open(&self, key: u64) {
        // Release: pairs with the Acquire of `import`. The slot has no imports, so the lower half is 0.
        self.word().store(owner(key), Ordering::Release);
    }
}

/// The slots of one size.
#[derive(Default)]
struct Class {
    /// Number of slots in the largest segment.
    largest: usize,
    free: Vec<Slot>,
    /// Released slots that peers may still have imported.
    released: VecDeque<Slot>,
}

impl Class {
    /// Checks `looks` released slots and moves those without imports to the free list.
    fn reclaim(&mut self, looks: usize) {
        for _ in 0..looks.min(self.released.len()) {
            let Some(slot) = self.released.pop_front() else { break };
            // Acquire: pairs with the Release of a peer that drops its import of the slot, after its last access.
            if slot.word().load(Ordering::Acquire) & IMPORTS == 0 {
                self.free.push(slot);
            } else {
                self.released.push_back(slot);
            }
        }
    }

    /// Drops the segments whose slots are all free.
    fn shrink(&mut self) {
        let mut free: FxHashMap<u64, usize> = FxHashMap::default();
        self.free.iter().for_each(|slot| *free.entry(slot.slots.name.inode).or_default() += 1);
        self.free.retain(|slot| free[&slot.slots.name.inode] < slot.slots.count);
    }
}

/// The slots of one rank.
pub(super) struct Arena {
    dir: PathBuf,
    classes: RefCell<[Class; SIZES]>,
}

impl Arena {
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), classes: RefCell::default() }
    }

    /// The directory of the segments.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A zeroed slot for `len` bytes, at most [`MAX_REGION_BYTES`], which peers cannot import yet.
    ///
    /// # Errors
    /// `SharedMemoryFull`, `System`.
    pub(super) fn take(&self, len: usize) -> Result<Slot> {
        let pages = len.div_ceil(PAGE).max(1).next_power_of_two();
        let index = pages.trailing_zeros() as usize;
        let mut classes = self.classes.borrow_mut();
        if classes[index].free.is_empty() {
            classes[index].reclaim(MAX_CHECKED_SLOTS);
        }
        if let Some(slot) = classes[index].free.pop() {
            // SAFETY: a slot of this size, which no peer can access any longer.
            unsafe { slot.base().write_bytes(0, slot.size()) };
            return Ok(slot);
        }
        let slots = Rc::new(self.grow(&mut classes, index, pages * PAGE)?);
        let class = &mut classes[index];
        class.largest = slots.count;
        class.free.extend((1..slots.count).rev().map(|index| Slot { slots: Rc::clone(&slots), index }));
        Ok(Slot { slots, index: 0 })
    }

    /// Makes a segment with twice as many slots as the largest one, or fewer if shared memory is short.
    fn grow(&self, classes: &mut [Class; SIZES], index: usize, size: usize) -> Result<Slots> {
        let mut count =
            (2 * classes[index].largest).clamp((FIRST_SEGMENT_BYTES / size).max(4), MAX_SEGMENT_BYTES / size);
        let mut all_given_back = false;
        loop {
            match Segment::create(&self.dir, header(count) + count * size, Pages::WhenTouched) {
                Ok(segment) => {
                    segment.mapping().word(0).store(size as u64, Ordering::SeqCst);
                    segment.mapping().word(8).store(count as u64, Ordering::SeqCst);
                    return Ok(Slots { name: segment.name()?, segment, count });
                }
                Err(e) if e.kind() != ErrorKind::SharedMemoryFull => return Err(e),
                Err(_) if !all_given_back => {
                    for class in classes.iter_mut() {
                        class.reclaim(usize::MAX);
                        class.shrink();
                    }
                    all_given_back = true;
                }
                Err(e) if count == 1 => return Err(e),
                Err(_) => count /= 2,
            }
        }
    }

    /// Releases a slot. Peers can no longer import it.
    pub(super) fn release(&self, slot: Slot) {
        // AcqRel: an importing peer was counted before, or it sees that the key was cleared.
        let imports = slot.word().fetch_and(IMPORTS, Ordering::AcqRel);
        let index = (slot.size() / PAGE).trailing_zeros() as usize;
        let class = &mut self.classes.borrow_mut()[index];
        if imports & IMPORTS == 0 { class.free.push(slot) } else { class.released.push_back(slot) }
    }
}

/// A slot of a peer.
#[derive(Debug)]
pub(super) struct ImportedSlot {
    /// The whole segment.
    mapping: Rc<Mapping>,
    index: usize,
    offset: usize,
}

impl ImportedSlot {
    pub(super) fn base(&self) -> *mut u8 {
        self.mapping.at(self.offset)
    }
}

impl Drop for ImportedSlot {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of `Class::reclaim`.
        self.mapping.word(word_at(self.index)).fetch_sub(1, Ordering::Release);
    }
}

/// Segments of slots that this rank has mapped, by peer and inode.
#[derive(Default)]
pub(super) struct ImportedSlots(RefCell<FxHashMap<(u32, u64), Weak<Mapping>>>);

impl ImportedSlots {
    /// Imports the slot of a region of `len` bytes; maps its segment unless another slot of it is imported. `None` for
    /// a malformed name.
    ///
    /// # Errors
    /// Those of [`segment::open`]; `Protocol` if the region was released.
    pub(super) fn import(
        &self,
        peer: u32,
        (name, slot): (SegmentName, u64),
        key: u64,
        len: usize,
    ) -> Result<Option<ImportedSlot>> {
        let mut known = self.0.borrow_mut();
        let mapping = match known.get(&(peer, name.inode)).and_then(Weak::upgrade) {
            Some(mapping) => mapping,
            None => {
                let mapping = Rc::new(segment::open(name, Pages::WhenTouched, peer)?);
                known.retain(|_, mapping| mapping.strong_count() > 0);
                known.insert((peer, name.inode), Rc::downgrade(&mapping));
                mapping
            }
        };
        let [size, count] = [0, 8].map(|at| mapping.word(at).load(Ordering::SeqCst));
        // The sizes come from the peer, so they are checked against the length of the mapping.
        let fits =
            size.is_multiple_of(PAGE as u64) && count <= MAX_SEGMENT_BYTES as u64 && slot < count && len as u64 <= size;
        let (size, count) = (size as usize, count as usize);
        if !fits || size > MAX_REGION_BYTES || header(count) + count * size != mapping.len() {
            return Ok(None);
        }
        let index = slot as usize;
        let word = mapping.word(word_at(index));
        // AcqRel: pairs with the Release of `Slot::open`. Relaxed: the exchange reads the word again.
        let counted = word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| {
            (word & !IMPORTS == owner(key) && word & IMPORTS < IMPORTS).then_some(word + 1)
        });
        if counted.is_err() {
            let e = Error::new(ErrorKind::Protocol, "import a peer's region").peer(peer);
            return Err(e.cause("the region has been released"));
        }
        let offset = header(count) + index * size;
        Ok(Some(ImportedSlot { mapping, index, offset }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn import(peer: &ImportedSlots, slot: &Slot, key: u64) -> Result<ImportedSlot> {
        peer.import(0, slot.name(), key, 8).map(|slot| slot.expect("a slot"))
    }

    #[test]
    fn slot_is_used_again_when_no_import_of_it_is_left() {
        let (arena, peer) = (Arena::new(Path::new("/dev/shm")), ImportedSlots::default());
        let slot = arena.take(100).unwrap();
        slot.open(7);
        let first = slot.base();
        let imported = import(&peer, &slot, 7).unwrap();
        let twice = import(&peer, &slot, 7).unwrap();
        assert_eq!(import(&peer, &slot, 8).unwrap_err().kind(), ErrorKind::Protocol);
        // SAFETY: both are inside mappings of the slot.
        unsafe {
            imported.base().write_volatile(5);
            assert_eq!(first.read_volatile(), 5);
        }
        let name = slot.name();
        arena.release(slot);
        assert_eq!(peer.import(0, name, 7, 8).unwrap_err().kind(), ErrorKind::Protocol);
        drop(twice);
        let others: Vec<Slot> = (0..100).map(|_| arena.take(100).unwrap()).collect();
        assert!(others.iter().all(|slot| slot.base() != first), "it is imported");
        drop(imported);
        let again: Vec<Slot> = (0..300).map(|_| arena.take(100).unwrap()).collect();
        let again = again.iter().find(|slot| slot.base() == first).expect("it is free");
        // SAFETY: inside the mapping of the slot.
        assert_eq!(unsafe { first.read_volatile() }, 0);
        again.open(9);
        assert!(import(&peer, again, 7).is_err() && import(&peer, again, 9).is_ok());
    }

    #[test]
    fn slots_share_few_segments() {
        let (arena, peer) = (Arena::new(Path::new("/dev/shm")), ImportedSlots::default());
        let slots: Vec<Slot> = (0..3000).map(|_| arena.take(PAGE).unwrap()).collect();
        let imported: Vec<ImportedSlot> = slots
            .iter()
            .zip(1..)
            .map(|(slot, key)| {
                slot.open(key);
                import(&peer, slot, key).unwrap()
            })
            .collect();
        let bases: std::collections::BTreeSet<_> = slots.iter().map(Slot::base).collect();
        assert_eq!(bases.len(), 3000);
        assert!(peer.0.borrow().len() <= 12, "{} segments", peer.0.borrow().len());
        drop(imported);
        slots.into_iter().for_each(|slot| arena.release(slot));
        let longer = arena.take(MAX_REGION_BYTES).unwrap();
        assert!(bases.contains(&arena.take(1).unwrap().base()) && longer.size() == MAX_REGION_BYTES);
    }

    #[test]
    fn names_that_no_segment_has_are_refused() {
        let (arena, peer) = (Arena::new(Path::new("/dev/shm")), ImportedSlots::default());
        let slot = arena.take(PAGE + 1).unwrap();
        slot.open(1);
        let (name, index) = slot.name();
        for (slot, len) in [(index, 2 * PAGE + 1), (index + slot.slots.count as u64, 8), (u64::MAX, 8)] {
            assert!(peer.import(0, (name, slot), 1, len).unwrap().is_none(), "slot {slot}, {len} bytes");
        }
        for (at, value) in [(0, 0), (0, PAGE as u64), (0, u64::MAX), (8, 0), (8, 3), (8, u64::MAX)] {
            let word = slot.slots.segment.mapping().word(at);
            let true_one = word.swap(value, Ordering::SeqCst);
            assert!(peer.import(0, (name, index), 1, 8).unwrap().is_none(), "{value} at {at}");
            word.store(true_one, Ordering::SeqCst);
        }
        assert!(peer.import(0, (name, index), 1, 8).unwrap().is_some());
    }
}
