#![allow(unsafe_code)]
//! Whole pages of a user's buffer moved onto a shared mapping at the same address, so that peers map them.
//!
//! Only pages that lie wholly inside the buffer are moved, and only while their owner has lent the buffer
//! exclusively: nobody can write them between the copy and the exchange. Hazards that remain, and are
//! documented with the windows: a child made by `fork` shares these pages with its parent instead of getting
//! a copy, and for the time of the move the memory is needed twice. Memory that is not private and anonymous
//! (files, shared mappings, stacks) is left alone.

use std::fs;
use std::path::Path;

use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap, mmap_anonymous, mremap_fixed, munmap};

use crate::error::{Error, ErrorKind, Result};
use crate::memory::segment::{PAGE, Segment, page_up};

const RIGHTS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Pages that were moved.
#[derive(Debug)]
pub(super) struct Remapped {
    /// First byte of the first moved page.
    pub(super) base: *mut u8,
    /// Bytes moved: whole pages.
    pub(super) len: usize,
    /// The shared memory now behind them.
    pub(super) segment: Segment,
}

/// Moves the whole pages of `[base, base + len)`; `None` if there are none or if they are not plain memory.
///
/// # Safety
/// The caller has exclusive use of the buffer, from now until [`restore`] has returned.
pub(super) unsafe fn remap(base: *mut u8, len: usize, dir: &Path) -> Result<Option<Remapped>> {
    const OP: &str = "move a buffer onto shared memory";
    let lo = page_up(base.addr());
    let hi = (base.addr() + len) / PAGE * PAGE;
    if lo >= hi || !private_and_anonymous(lo, hi)? {
        return Ok(None);
    }
    let len = hi - lo;
    let base = base.with_addr(lo);
    let segment = Segment::create(dir, len)?;
    let file = segment.file().ok_or_else(|| Error::new(ErrorKind::System, OP).cause("the segment has no file"))?;
    // SAFETY: both ranges are valid and disjoint; the buffer is ours alone.
    unsafe { std::ptr::copy_nonoverlapping(base, segment.mapping().at(0), len) };
    // SAFETY: the pages lie inside a buffer that the caller holds exclusively, and are replaced by a mapping
    // of the same length, rights and content.
    unsafe { mmap(base.cast(), len, RIGHTS, MapFlags::SHARED | MapFlags::FIXED | MapFlags::POPULATE, file, 0) }
        .map_err(|e| Error::system(OP, e.into()))?;
    Ok(Some(Remapped { base, len, segment }))
}

/// Puts private memory with the present content back. Whoever still maps the shared pages reaches memory that
/// is no longer this buffer.
///
/// # Safety
/// As for [`remap`]: exclusive use of the buffer by this rank's threads. Peers may still write; bytes that
/// they write during the call are kept or lost.
///
/// # Errors
/// `System`; then the buffer keeps its shared pages and remains usable.
pub(super) unsafe fn restore(moved: &Remapped) -> Result<()> {
    const OP: &str = "give a buffer back";
    // SAFETY: a fresh anonymous mapping.
    let fresh = unsafe { mmap_anonymous(std::ptr::null_mut(), moved.len, RIGHTS, MapFlags::PRIVATE) }
        .map_err(|e| Error::system(OP, e.into()))?;
    // SAFETY: two live ranges of `len` bytes; the source may be written by peers, hence the opaque copy.
    unsafe { crate::memory::copy::load(moved.base, fresh.cast(), moved.len) };
    // SAFETY: moves the fresh pages over the shared ones in one step; the addresses stay valid throughout.
    let placed = unsafe { mremap_fixed(fresh, moved.len, moved.len, MremapFlags::MAYMOVE, moved.base.cast()) };
    placed.map(|_| ()).map_err(|e| {
        // SAFETY: the fresh mapping is still ours and unused. If it stays, memory is lost, and nothing else.
        let _ = unsafe { munmap(fresh, moved.len) };
        Error::system(OP, e.into())
    })
}

/// Whether `[lo, hi)` is covered by mappings that are readable, writable, private, without a file or a name
/// other than the heap's.
fn private_and_anonymous(lo: usize, hi: usize) -> Result<bool> {
    let maps = fs::read_to_string("/proc/self/maps").map_err(|e| Error::system("read the memory map", e))?;
    let mut covered = lo;
    for line in maps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (Some(range), Some(rights)) = (fields.next(), fields.next()) else {
            return Err(Error::new(ErrorKind::System, "read the memory map").cause(line.to_owned()));
        };
        let name = fields.nth(3);
        let bounds = range
            .split_once('-')
            .and_then(|(a, b)| Some((usize::from_str_radix(a, 16).ok()?, usize::from_str_radix(b, 16).ok()?)));
        let Some((start, end)) = bounds else {
            return Err(Error::new(ErrorKind::System, "read the memory map").cause(line.to_owned()));
        };
        if end <= covered {
            continue;
        }
        if start > covered {
            return Ok(false);
        }
        let plain = rights == "rw-p" && name.is_none_or(|n| n == "[heap]" || n.starts_with("[anon:"));
        if !plain {
            return Ok(false);
        }
        covered = end;
        if covered >= hi {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::segment::open;

    #[test]
    fn remap_shares_whole_pages_and_restore_gives_them_back() {
        let mut buffer: Vec<u8> = (0..10 * PAGE).map(|i| i as u8).collect();
        let (base, len) = (buffer.as_mut_ptr(), buffer.len());
        // SAFETY: the buffer is ours alone until the end of the test.
        let moved = unsafe { remap(base, len, Path::new("/dev/shm")) }.unwrap().expect("whole pages");
        assert!(moved.len >= 8 * PAGE && moved.base.addr() >= base.addr());
        let peer = open(moved.segment.name().unwrap(), 0).unwrap();
        // SAFETY: inside the peer's mapping and inside the buffer.
        unsafe {
            peer.at(5).write_volatile(99);
            assert_eq!(moved.base.add(5).read_volatile(), 99);
            restore(&moved).unwrap();
            peer.at(6).write_volatile(98);
        }
        let at = moved.base.addr() - base.addr();
        for (i, b) in buffer.iter().enumerate() {
            assert_eq!(*b, if i == at + 5 { 99 } else { i as u8 }, "byte {i}");
        }
        drop(buffer);
    }

    #[test]
    fn remap_leaves_small_buffers_and_shared_mappings_alone() {
        let mut small = vec![0u8; 100];
        let shared = Segment::create(Path::new("/dev/shm"), 4 * PAGE).unwrap();
        for (base, len) in [(small.as_mut_ptr(), 100), (shared.mapping().at(0), 4 * PAGE)] {
            // SAFETY: ours alone.
            assert!(unsafe { remap(base, len, Path::new("/dev/shm")) }.unwrap().is_none());
        }
    }
}
