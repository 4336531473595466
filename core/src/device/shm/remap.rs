#![allow(unsafe_code)]
//! Moves whole pages of a user's buffer onto shared memory at the same address, so that peers can map them, and back.
//!
//! Pages are copied and then exchanged, so a store between the two steps would be lost. They are therefore moved, and
//! given back, only while no other code can store: their owner has lent them exclusively, or
//! [`ShmDevice::is_alone`](super::ShmDevice) holds (the process has no other thread, and no other region of this rank
//! covers the memory, through which its agent or a peer could write). Signal handlers of the calling thread are blocked
//! meanwhile. Stores by the kernel on its own (`io_uring` or `libaio` into the buffer while a window over it is made or
//! freed) cannot be detected.
//!
//! Pages that were never touched are not copied or allocated; they stay holes of the file. Memory that is not private
//! and anonymous (files, shared mappings, stacks) is not moved. A child made by `fork` gets private copies of moved pages
//! ([`fork`](super::fork)).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::ptr::null_mut;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap, mmap_anonymous, mremap_fixed, munmap};

use super::fork;
use super::maps::areas;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::segment::{self, PAGE, SegmentName, page_up};

pub(super) const RIGHTS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);
/// Minimum number of pages moved if they are not the whole buffer: fewer are not worth a mapping at each peer.
const FEWEST: usize = 4;
/// Maximum number of regions with moved pages: each takes up to three mappings here and one at each peer.
const MOST: usize = 256;
/// Bytes moved per step: only one step's memory exists twice at a time.
const PIECE: usize = 64 << 20;
/// Name of the shared-memory file.
pub(super) const NAME: &str = "farside-moved";

const MOVE: &str = "move a buffer onto shared memory";
const RETURN: &str = "give a buffer back";

/// Pages that were moved.
#[derive(Debug)]
pub(super) struct Moved {
    /// First byte of the first moved page.
    pub(super) base: *mut u8,
    /// Bytes moved: whole pages.
    pub(super) len: usize,
    /// Their offset in the file.
    offset: u64,
}

/// The file that holds all moved pages of a rank. No part of it is used twice.
#[derive(Debug)]
pub(super) struct MovedPages {
    file: Arc<File>,
    inode: u64,
    used: u64,
    regions: usize,
}

impl MovedPages {
    /// # Errors
    /// `System`.
    pub(super) fn new() -> Result<Self> {
        let file = Arc::new(segment::sparse_file(NAME, 0)?);
        fork::register(&file)?;
        let inode = file.metadata().map_err(|e| Error::system(MOVE, e))?.ino();
        Ok(Self { file, inode, used: 0, regions: 0 })
    }

    /// The name of the shared memory behind moved pages.
    ///
    /// # Errors
    /// `System`.
    pub(super) fn name(&self, moved: &Moved) -> Result<SegmentName> {
        segment::name_of(&self.file, moved.offset, moved.len as u64)
    }

    /// Moves the whole pages of `[base, base + len)`; `None` if there are too few pages, too many moved regions, or if
    /// the memory is not private and anonymous.
    ///
    /// # Safety
    /// No other code accesses the buffer during the call.
    ///
    /// # Errors
    /// `SharedMemoryFull`, `System`; the buffer is then unchanged.
    pub(super) unsafe fn take(&mut self, base: *mut u8, len: usize) -> Result<Option<Moved>> {
        let (lo, hi) = (page_up(base.addr()), (base.addr() + len) / PAGE * PAGE);
        let (pages, whole) = (hi.saturating_sub(lo) / PAGE, (lo, hi) == (base.addr(), base.addr() + len));
        if pages == 0 || pages < FEWEST && !whole || self.regions == MOST || !is_plain(lo, hi)? {
            return Ok(None);
        }
        let (base, len, offset) = (base.with_addr(lo), hi - lo, self.used);
        self.used += len as u64;
        self.file.set_len(self.used).map_err(|e| Error::system(MOVE, e))?;
        let mut moved = Moved { base, len: 0, offset };
        while moved.len < len {
            let piece = PIECE.min(len - moved.len);
            // SAFETY: a part of the buffer.
            if let Err(e) = unsafe { self.take_piece(&moved, piece) } {
                // SAFETY: the same contract.
                unsafe { self.give_back(&moved) }?;
                return Err(e);
            }
            moved.len += piece;
        }
        self.regions += 1;
        Ok(Some(moved))
    }

    /// Moves the `len` bytes that follow the bytes already in `moved`.
    ///
    /// # Safety
    /// The contract of [`take`](Self::take).
    unsafe fn take_piece(&self, moved: &Moved, len: usize) -> Result<()> {
        let failed = |e: io::Error| {
            let full = matches!(e.raw_os_error(), Some(libc::ENOSPC | libc::ENOMEM));
            let kind = if full { ErrorKind::SharedMemoryFull } else { ErrorKind::System };
            Error::new(kind, MOVE).cause(format!("{len} bytes")).source_error(e)
        };
        let (base, offset) = (moved.base.wrapping_add(moved.len), moved.offset + moved.len as u64);
        if segment::overcommit_is_strict() {
            segment::reserve(&self.file, offset, len as u64).map_err(|e| failed(e.into()))?;
        }
        let _blocked = BlockedSignals::new();
        for touched in touched(base.addr(), len) {
            let (from, bytes) = (base.wrapping_add(touched.start), touched.end - touched.start);
            // SAFETY: pages of the buffer.
            unsafe { write_all(&self.file, from, bytes, offset + touched.start as u64) }.map_err(failed)?;
        }
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the pages lie inside a buffer that no other code accesses; the mapping that replaces them has the
        // same length, rights and content.
        unsafe { mmap(base.cast(), len, RIGHTS, flags, &self.file, offset) }.map_err(|e| failed(e.into()))?;
        Ok(())
    }

    /// Puts private memory with the current content back where the moved pages are still mapped. A peer that still maps
    /// the shared pages accesses memory that no longer belongs to this buffer. Returns the number of bytes that the
    /// program has unmapped or replaced.
    ///
    /// # Safety
    /// No thread of this process accesses the buffer during the call. Peers may still write; bytes that they write
    /// during the call may be lost.
    ///
    /// # Errors
    /// `System`; the buffer then keeps shared pages and remains usable.
    pub(super) unsafe fn give_back(&self, moved: &Moved) -> Result<usize> {
        let failed = |e: io::Error| Error::system(RETURN, e);
        let (lo, hi) = (moved.base.addr(), moved.base.addr() + moved.len);
        let mut there = Vec::new();
        areas(lo, hi, |area| {
            if area.shares(NAME, self.inode) && area.rights == "rw-s" {
                let (start, end) = (area.start.max(lo), area.end.min(hi));
                let offset = area.offset + (start - area.start) as u64;
                there.extend((offset == moved.offset + (start - lo) as u64).then_some(start - lo..end - lo));
            }
            Ok(())
        })
        .map_err(failed)?;
        for part in &there {
            for start in part.clone().step_by(PIECE) {
                // SAFETY: pages of the file that are mapped at this address of the buffer.
                unsafe { self.give_back_piece(moved, start..part.end.min(start + PIECE)) }.map_err(failed)?;
            }
        }
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if moved.len > 0 {
            fallocate(&self.file, hole, moved.offset, moved.len as u64).map_err(|e| failed(e.into()))?;
        }
        Ok(moved.len - there.into_iter().map(|part| part.len()).sum::<usize>())
    }

    /// # Safety
    /// The contract of [`give_back`](Self::give_back); bytes `piece` of `moved` are still mapped where they were moved
    /// to.
    unsafe fn give_back_piece(&self, moved: &Moved, piece: Range<usize>) -> io::Result<()> {
        let (len, offset) = (piece.len(), moved.offset + piece.start as u64);
        let _blocked = BlockedSignals::new();
        // SAFETY: a fresh anonymous mapping.
        let fresh = unsafe { mmap_anonymous(null_mut(), len, RIGHTS, MapFlags::PRIVATE) }?;
        let place = moved.base.wrapping_add(piece.start);
        // SAFETY: the fresh mapping.
        let done = unsafe { read_touched(&self.file, fresh.cast(), len, offset) }.and_then(|()| {
            // SAFETY: moves the fresh pages over the shared ones in one step; the addresses stay valid throughout.
            Ok(unsafe { mremap_fixed(fresh, len, len, MremapFlags::MAYMOVE, place.cast()) }?)
        });
        if done.is_err() {
            // SAFETY: this function owns the fresh mapping and does not use it again. If `munmap` fails, the memory is
            // only leaked.
            let _ = unsafe { munmap(fresh, len) };
        }
        done.map(|_| ())
    }

    /// Counts a region whose pages are no longer moved.
    pub(super) fn forget(&mut self) {
        self.regions -= 1;
    }
}

/// Reads the allocated pages among `len` bytes of the file into fresh memory, which is zero elsewhere. Allocates
/// nothing.
///
/// # Safety
/// The memory is valid, and no other code accesses it.
pub(super) unsafe fn read_touched(file: &File, fresh: *mut u8, len: usize, offset: u64) -> io::Result<()> {
    let (mut at, end) = (offset, offset + len as u64);
    while at < end {
        at = match seek(file, SeekFrom::Data(at)) {
            Ok(data) if data < end => data,
            Ok(_) | Err(Errno::NXIO) => break,
            Err(e) => return Err(e.into()),
        };
        let hole = seek(file, SeekFrom::Hole(at))?.min(end);
        let place = fresh.wrapping_add((at - offset) as usize);
        // SAFETY: part of the fresh memory.
        let into = unsafe { std::slice::from_raw_parts_mut(place, (hole - at) as usize) };
        file.read_exact_at(into, at)?;
        at = hole;
    }
    Ok(())
}

/// Blocks all signals in this thread until it is dropped.
pub(super) struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    pub(super) fn new() -> Self {
        // SAFETY: signal sets, each filled before it is read.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self(before)
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the signal set that was in force before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, null_mut()) };
    }
}

/// Writes `len` bytes into a file.
///
/// # Safety
/// The bytes are valid, initialized or not.
unsafe fn write_all(file: &File, mut from: *const u8, mut len: usize, mut offset: u64) -> io::Result<()> {
    while len > 0 {
        // SAFETY: valid by the contract; the kernel only reads the bytes.
        let n = unsafe { libc::pwrite(file.as_raw_fd(), from.cast(), len, offset as i64) };
        match n {
            -1 => {
                let e = io::Error::last_os_error();
                if e.kind() != io::ErrorKind::Interrupted {
                    return Err(e);
                }
            }
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => (from, len, offset) = (from.wrapping_add(n as usize), len - n as usize, offset + n as u64),
        }
    }
    Ok(())
}

/// The pages of `[base, base + len)` that are in memory or swapped out, as ranges of offsets; all other pages of
/// private memory are zero. Returns the whole range if the kernel does not tell.
fn touched(base: usize, len: usize) -> Vec<Range<usize>> {
    /// Bits 62 and 63 of a pagemap entry: swapped out, in memory.
    const TOUCHED: u8 = 3 << 6;
    let mut entries = vec![0u8; 8 * (len / PAGE)];
    let read =
        File::open("/proc/self/pagemap").and_then(|map| map.read_exact_at(&mut entries, (base / PAGE * 8) as u64));
    if read.is_err() {
        return Vec::from([Range { start: 0, end: len }]);
    }
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (page, _) in entries.chunks_exact(8).enumerate().filter(|(_, entry)| entry[7] & TOUCHED != 0) {
        let at = page * PAGE;
        match runs.last_mut() {
            Some(run) if run.end == at => run.end += PAGE,
            _ => runs.push(at..at + PAGE),
        }
    }
    runs
}

/// Whether `[lo, hi)` is covered by mappings that are readable, writable, private, and without a file or a name other
/// than the heap's.
fn is_plain(lo: usize, hi: usize) -> Result<bool> {
    let (mut covered, mut plain) = (lo, true);
    areas(lo, hi, |area| {
        let named = area.name.is_none_or(|name| name == "[heap]" || name.starts_with("[anon:"));
        plain &= area.start <= covered && area.rights == "rw-p" && named;
        covered = area.end;
        Ok(())
    })
    .map_err(|e| Error::system("read the memory map", e))?;
    Ok(plain && covered >= hi)
}

#[cfg(test)]
mod tests {
    use memmap2::MmapMut;

    use super::*;
    use crate::memory::segment::{Pages, open};

    fn anonymous(pages: usize) -> MmapMut {
        MmapMut::map_anon(pages * PAGE).unwrap()
    }

    /// Bytes that a file occupies in memory.
    fn in_memory(pages: &MovedPages) -> usize {
        pages.file.metadata().unwrap().blocks() as usize * 512
    }

    #[test]
    fn moved_pages_are_shared_until_they_are_given_back() {
        let mut buffer: Vec<u8> = (0..10 * PAGE).map(|i| i as u8).collect();
        let (base, len) = (buffer.as_mut_ptr(), buffer.len());
        let mut pages = MovedPages::new().unwrap();
        // SAFETY: no other code uses the buffer until the end of the test.
        let moved = unsafe { pages.take(base, len) }.unwrap().expect("whole pages");
        assert!(moved.len >= 8 * PAGE && moved.base.addr() >= base.addr());
        let peer = open(pages.name(&moved).unwrap(), Pages::WhenTouched, 0).unwrap();
        // SAFETY: inside the peer's mapping and inside the buffer.
        unsafe {
            peer.at(5).write_volatile(99);
            assert_eq!(moved.base.add(5).read_volatile(), 99);
            assert_eq!(pages.give_back(&moved).unwrap(), 0);
            peer.at(6).write_volatile(98);
        }
        let at = moved.base.addr() - base.addr();
        for (i, b) in buffer.iter().enumerate() {
            assert_eq!(*b, if i == at + 5 { 99 } else { i as u8 }, "byte {i}");
        }
        drop(buffer);
    }

    #[test]
    fn untouched_pages_are_not_made() {
        let mut buffer = anonymous(1000);
        let mut pages = MovedPages::new().unwrap();
        for page in [3, 4, 500, 999] {
            buffer[page * PAGE] = page as u8;
        }
        // SAFETY: no other code uses the buffer.
        let moved = unsafe { pages.take(buffer.as_mut_ptr(), buffer.len()) }.unwrap().expect("whole pages");
        let expected = |touched| if segment::overcommit_is_strict() { 1000 * PAGE } else { touched * PAGE };
        assert_eq!((moved.len, in_memory(&pages)), (1000 * PAGE, expected(4)));
        let peer = open(pages.name(&moved).unwrap(), Pages::WhenTouched, 0).unwrap();
        // SAFETY: inside the peer's mapping.
        unsafe { peer.at(700 * PAGE).write_volatile(7) };
        assert_eq!(in_memory(&pages), expected(5));
        // SAFETY: no other code uses the buffer.
        assert_eq!(unsafe { pages.give_back(&moved) }.unwrap(), 0);
        assert_eq!(in_memory(&pages), 0);
        let set = [(3, 3), (4, 4), (500, 500 % 256), (700, 7), (999, 999 % 256)];
        for page in 0..1000 {
            let expected = set.iter().find(|(at, _)| *at == page).map_or(0, |(_, value)| *value as u8);
            assert_eq!(buffer[page * PAGE], expected, "page {page}");
        }
        let resident = touched(buffer.as_ptr().addr(), buffer.len()).into_iter().map(|run| run.len()).sum::<usize>();
        assert!(resident >= 5 * PAGE);
    }

    #[test]
    fn pages_that_the_program_has_unmapped_or_replaced_are_left_alone() {
        let mut pages = MovedPages::new().unwrap();
        let mut buffer = anonymous(12);
        buffer.fill(1);
        let base = buffer.as_mut_ptr();
        // SAFETY: no other code uses the buffer; the part that is unmapped is mapped again before the buffer is
        // dropped.
        unsafe {
            let moved = pages.take(base, buffer.len()).unwrap().expect("whole pages");
            munmap(base.add(2 * PAGE).cast(), 3 * PAGE).unwrap();
            let (flags, other) = (MapFlags::PRIVATE | MapFlags::FIXED, base.add(6 * PAGE));
            mmap_anonymous(other.cast(), 2 * PAGE, RIGHTS, flags).unwrap();
            other.write_volatile(5);
            assert_eq!(pages.give_back(&moved).unwrap(), 5 * PAGE);
            assert_eq!((other.read_volatile(), base.read_volatile(), base.add(8 * PAGE).read_volatile()), (5, 1, 1));
            assert!(!is_plain(base.addr(), base.addr() + 12 * PAGE).unwrap());
            mmap_anonymous(base.add(2 * PAGE).cast(), 3 * PAGE, RIGHTS, flags).unwrap();
            assert!(is_plain(base.addr(), base.addr() + 12 * PAGE).unwrap());
        }
    }

    #[test]
    fn short_buffers_shared_mappings_and_more_than_there_may_be_are_left_alone() {
        let mut pages = MovedPages::new().unwrap();
        let mut small = vec![0u8; 100];
        let shared = segment::Segment::sparse(4 * PAGE, PAGE).unwrap();
        let mut some = anonymous(4);
        let some = some.as_mut_ptr();
        let alone = [(small.as_mut_ptr(), 100), (shared.mapping().at(0), 4 * PAGE), (some.wrapping_add(8), 2 * PAGE)];
        for (base, len) in alone {
            // SAFETY: no other code uses the buffer.
            assert!(unsafe { pages.take(base, len) }.unwrap().is_none());
        }
        // SAFETY: no other code uses the buffer.
        let page = unsafe { pages.take(some.wrapping_add(PAGE), PAGE) }.unwrap().expect("all of a buffer");
        pages.regions = MOST;
        let mut more = anonymous(8);
        // SAFETY: no other code uses the buffer.
        unsafe {
            assert!(pages.take(more.as_mut_ptr(), 8 * PAGE).unwrap().is_none());
            pages.give_back(&page).unwrap();
        }
    }
}
