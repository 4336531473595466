//! Mappings of files of memory that peers have exported. They are cached, so that memory of the same peer that is
//! exported again needs no system call.
//!
//! A mapping covers an aligned window of a peer's file. Most of the window is usually a hole, which takes no memory.
//! The number of mappings is limited; the least recently used one that no import uses is dropped first.

use std::ops::Range;
use std::rc::Rc;

use super::{fork, pins};
use crate::error::Result;
use crate::memory::segment::{self, Mapping, PAGE, SegmentName};
use crate::stats::{Kind, Stats};

/// Alignment and length of the mapped windows of a file, in bytes. A multiple of the page size.
const WINDOW_BYTES: u64 = 64 << 20;
/// Maximum number of cached mappings.
const MAX_MAPPINGS: usize = 64;

/// A mapping of a peer's file.
struct View {
    peer: u32,
    /// The part of the file that is mapped.
    segment: SegmentName,
    mapping: Rc<ViewMapping>,
    /// Time of the last use, on the clock of [`Views`].
    used: u64,
}

/// Fields are dropped in this order.
struct ViewMapping {
    mapping: Mapping,
    _listed: Option<Listed>,
}

impl ViewMapping {
    /// Maps the window of a file that contains the bytes of `name`; also returns the name of the window.
    fn new(name: SegmentName, peer: u32) -> Result<(SegmentName, Self)> {
        // The list tells the owner, if it is a rank of this process, that the mapping is not memory that the program
        // has moved.
        let mut list = (name.pid == std::process::id()).then(fork::views);
        // In a process that locks all its memory, the kernel populates mappings, so that they take memory.
        let window_bytes = if pins::is_locked() { PAGE as u64 } else { WINDOW_BYTES };
        let (of, mapping) = segment::open_around(name, window_bytes, peer)?;
        let _listed = list.as_mut().map(|list| {
            let start = mapping.at(0).addr();
            let range = start..start + mapping.len();
            let index = list.partition_point(|other| other.start < start);
            list.insert(index, range.clone());
            Listed(range)
        });
        Ok((of, Self { mapping, _listed }))
    }
}

/// An entry in the list of mappings by ranks of this process.
struct Listed(Range<usize>);

impl Drop for Listed {
    fn drop(&mut self) {
        let mut list = fork::views();
        if let Some(index) = list.iter().position(|range| *range == self.0) {
            list.remove(index);
        }
    }
}

/// The mappings of one rank.
#[derive(Default)]
pub(super) struct Views {
    views: Vec<View>,
    clock: u64,
}

/// Bytes of a peer's file in a mapping.
pub(super) struct LentBytes {
    mapping: Rc<ViewMapping>,
    offset: usize,
}

impl LentBytes {
    /// Address of the first byte.
    pub(super) fn base(&self) -> *mut u8 {
        self.mapping.mapping.at(self.offset)
    }
}

impl Views {
    /// The bytes of a file of `peer` that `name` names, at any offset.
    ///
    /// # Errors
    /// Those of [`segment::open_around`].
    pub(super) fn find(&mut self, peer: u32, name: SegmentName, stats: &Stats) -> Result<LentBytes> {
        self.clock += 1;
        let holds = |view: &View| {
            let segment = &view.segment;
            view.peer == peer
                && (segment.pid, segment.fd, segment.inode) == (name.pid, name.fd, name.inode)
                && segment.offset <= name.offset
                && name.offset.checked_add(name.len).is_some_and(|end| end <= segment.offset + segment.len)
        };
        let index = match self.views.iter().position(holds) {
            Some(index) => index,
            None => {
                let (segment, mapping) = ViewMapping::new(name, peer)?;
                self.make_room(stats);
                self.views.push(View { peer, segment, mapping: Rc::new(mapping), used: 0 });
                self.views.len() - 1
            }
        };
        let view = &mut self.views[index];
        view.used = self.clock;
        Ok(LentBytes { mapping: Rc::clone(&view.mapping), offset: (name.offset - view.segment.offset) as usize })
    }

    /// Drops the least recently used mappings until one more fits.
    fn make_room(&mut self, stats: &Stats) {
        while self.views.len() >= MAX_MAPPINGS {
            let idle = self.views.iter().enumerate().filter(|(_, view)| Rc::strong_count(&view.mapping) == 1);
            let Some((index, _)) = idle.min_by_key(|(_, view)| view.used) else { return };
            let view = self.views.swap_remove(index);
            stats.add(Kind::Evict, view.segment.len as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::segment::{Pages, Segment};

    #[test]
    fn views_are_found_again_and_the_least_recently_used_one_is_evicted() {
        let (mut views, stats) = (Views::default(), Stats::default());
        let segments: Vec<Segment> = (0..=MAX_MAPPINGS)
            .map(|_| Segment::create("/dev/shm".as_ref(), 3 * PAGE, Pages::AtOnce).unwrap())
            .collect();
        let part = |i: usize| SegmentName { offset: PAGE as u64 + 8, len: 100, ..segments[i].name().unwrap() };
        let held = views.find(1, part(0), &stats).unwrap();
        segments[0].mapping().word(PAGE + 8).store(7, std::sync::atomic::Ordering::SeqCst);
        // SAFETY: inside the mapping.
        #[allow(unsafe_code)]
        let seen = unsafe { held.base().cast::<u64>().read_unaligned() };
        assert_eq!(seen, 7);
        let at = |views: &mut Views, i: usize| views.find(1, part(i), &stats).unwrap().base();
        let bases: Vec<_> = (0..MAX_MAPPINGS).map(|i| at(&mut views, i)).collect();
        assert_eq!((at(&mut views, 1), views.views.len()), (bases[1], MAX_MAPPINGS));
        at(&mut views, MAX_MAPPINGS);
        let evicted = || stats.snapshot().count(Kind::Evict);
        assert_eq!((views.views.len(), evicted()), (MAX_MAPPINGS, 1));
        assert_eq!((at(&mut views, 0), at(&mut views, 1), evicted()), (bases[0], bases[1], 1), "held, and used");
        at(&mut views, 2);
        assert_eq!(evicted(), 2, "it was the oldest");
        let beyond = SegmentName { len: 2 * PAGE as u64, ..part(0) };
        assert!(views.find(1, beyond, &stats).is_err());
        assert!(views.find(1, SegmentName { len: u64::MAX, ..part(0) }, &stats).is_err());
    }
}
