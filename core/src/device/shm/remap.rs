#![allow(unsafe_code)]
//! Moves whole pages of the program's memory onto shared memory at the same address, so that peers can map them; and
//! moves them back.
//!
//! All moved pages of a rank are in one sparse file, at the offset that equals their address. Any consecutive moved
//! pages are therefore one mapping at a peer, however many moves made them.
//!
//! Pages are copied and then exchanged, so a store between the two steps would be lost. They are therefore moved, and
//! moved back, only while no other code can store: their owner guarantees it
//! ([`Region::exclusive`](crate::device::Region::exclusive)), or [`ShmDevice::is_alone`](super::ShmDevice) holds (the
//! process has no other thread, and no other region of this rank covers the memory, through which its agent or a peer
//! could write). Other threads may read: they find the same bytes throughout. Signal handlers of the calling thread are
//! blocked meanwhile. Pages that other code may have pinned are not moved ([`pins`](super::pins)). Stores by the kernel
//! on its own (`libaio` into the pages while they are moved) cannot be detected.
//!
//! Pages of windows are moved back when the last window is freed. Pages of message buffers stay moved as long as the
//! program keeps them (`lasting`), since at a later time another thread could store. Such memory is watched
//! ([`watch`](crate::device::watch)): pages that the program unmaps are dropped from the set, and their part of the
//! file is freed. Memory that the program moves to another address (`mremap`) still shows its part of the file there,
//! so that part is not reused before it is unmapped. The last page of each moved part has its own attribute, which
//! makes it a separate mapping: `realloc` cannot extend moved pages over parts of the file that belong to other
//! addresses, since `mremap` does not extend several mappings at once; it copies instead.
//!
//! Pages that were never touched are not copied or allocated; they stay holes of the file. Memory that is not private
//! and anonymous (files, shared mappings, stacks), or is bound to certain NUMA nodes, is not moved. A child made by
//! `fork` gets private copies of moved pages ([`fork`](super::fork)).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap, mmap_anonymous, mremap_fixed, munmap};
use rustix::process::{Resource, getrlimit};

use super::extents::{Extents, without};
use super::fork;
use super::malloc::{is_of_malloc, malloc_is_of_glibc, thread_counter};
use super::maps::{Area, areas};
use super::pins::has_policy;
use crate::device::watch::Watch;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::segment::{self, PAGE, SegmentName};

pub(super) const RIGHTS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);
/// Maximum number of moved parts: each takes up to four mappings of this process.
const MAX_MOVED_PARTS: usize = 256;
/// Number of bytes moved per step: only one step's memory exists twice at a time.
const PIECE: usize = 64 << 20;
/// Length of the file. It covers all addresses that the kernel assigns to a program by default.
const SPAN: usize = 1 << 48;
/// Name of the shared-memory file.
pub(super) const NAME: &str = "farside-moved";

const MOVE: &str = "move a buffer onto shared memory";
const RETURN: &str = "move a buffer back to private memory";

/// The moved pages of a rank.
pub(super) struct MovedPages {
    file: Arc<File>,
    inode: u64,
    /// Moved pages. The mark is true for pages that stay moved when no region uses them.
    extents: Extents,
    /// Parts of the file that are known to be mapped elsewhere than at their addresses.
    elsewhere: Extents,
    /// `None` if memory is not to be watched, or cannot be.
    watch: Option<Watch>,
    malloc_is_of_glibc: bool,
    /// The number of threads of the process, as the C library counts them.
    threads: Option<&'static AtomicU32>,
}

/// The whole pages inside `bytes`.
pub(super) fn pages_in(bytes: &Range<usize>) -> Range<usize> {
    let (start, end) = (bytes.start.next_multiple_of(PAGE), bytes.end / PAGE * PAGE);
    start..end.max(start)
}

fn system(operation: &'static str) -> impl Fn(io::Error) -> Error {
    move |e| Error::system(operation, e)
}

impl MovedPages {
    /// Makes an empty set of moved pages. If `watched`, their memory is watched where the kernel supports it.
    ///
    /// # Errors
    /// `System`; `Limit` if files of this process are limited in length.
    pub(super) fn new(watched: bool) -> Result<Self> {
        if is_limited() {
            return Err(Error::new(ErrorKind::Limit, MOVE)
                .cause("the process has a file size limit (RLIMIT_FSIZE)")
                .remedy("raise the limit (`ulimit -f unlimited`)"));
        }
        let file = Arc::new(segment::sparse_file(NAME, SPAN as u64)?);
        // Moved pages are freed by punching holes, which a file system may not support.
        punch(&file, &(0..PAGE)).map_err(|e| Error::system(MOVE, e.into()))?;
        fork::register(&file)?;
        let inode = file.metadata().map_err(system(MOVE))?.ino();
        let off = |e: &io::Error| {
            tracing::info!("peers do not map message buffers, because userfaultfd is not available: {e}")
        };
        let watch = if watched { watch_of(&file).inspect_err(off).ok() } else { None };
        let (extents, elsewhere) = (Extents::default(), Extents::default());
        let (malloc_is_of_glibc, threads) = (malloc_is_of_glibc(), thread_counter());
        Ok(Self { file, inode, extents, elsewhere, watch, malloc_is_of_glibc, threads })
    }

    /// The name of the shared memory behind moved bytes, for process `pid`, which is this one.
    pub(super) fn name(&self, pid: u32, bytes: &Range<usize>) -> SegmentName {
        let fd = self.file.as_raw_fd() as u32;
        SegmentName { pid, fd, offset: bytes.start as u64, len: bytes.len() as u64, inode: self.inode }
    }

    /// Whether memory is watched, by a thread of the runtime.
    pub(super) fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// Number of bytes of pages that stay moved.
    pub(super) fn lasting_bytes(&self) -> usize {
        self.extents.bytes(true)
    }

    /// The first consecutive part of `bytes` that is moved, after [`settle`](Self::settle); `None` if the program could
    /// have unmapped it unnoticed.
    pub(super) fn find(&self, bytes: &Range<usize>) -> Option<Range<usize>> {
        self.watch.as_ref().and_then(|_| self.extents.first(bytes))
    }

    /// Whether the process may have other threads than the calling one and that of the watch.
    pub(super) fn has_other_threads(&self) -> bool {
        // Acquire: what a thread has unmapped before it ended is recorded.
        self.threads.is_none_or(|threads| threads.load(Ordering::Acquire) != 1 + u32::from(self.is_watched()))
    }

    /// Drops pages that the program has unmapped, moved or replaced from the set.
    pub(super) fn settle(&mut self, other_threads: bool) {
        let mut changed = Vec::new();
        if let Some(watch) = &self.watch {
            watch.settle(other_threads, |start, end| changed.push(start..end));
        }
        for range in changed {
            if (self.elsewhere.len() > 0 || self.extents.within(&range).next().is_some())
                && let Err(e) = self.compare(&range)
            {
                tracing::warn!("{e}");
                self.extents.remove(&range);
                self.elsewhere.insert(range, false);
            }
        }
    }

    /// Moves those of `pages` that are not moved yet, and returns their length; `None` if one of them cannot be moved:
    /// there are too many parts, or the memory is not private and anonymous; for `lasting` pages also if the memory
    /// cannot be watched, or is not that of a `malloc` known to allow it. In these cases none of them is moved.
    ///
    /// # Safety
    /// No other code stores to the pages during the call.
    ///
    /// # Errors
    /// `SharedMemoryFull`, `System`; the memory is then as before.
    pub(super) unsafe fn take(&mut self, pages: &Range<usize>, lasting: bool) -> Result<Option<usize>> {
        self.settle(true);
        if self.watch.is_none() {
            self.compare(pages)?;
        }
        let missing = self.extents.missing(pages);
        let ranks = fork::views();
        if !self.can_move(pages, &missing, lasting).map_err(system("read the memory map"))? {
            return Ok(None);
        }
        // SAFETY: by the contract.
        let taken = missing.iter().try_for_each(|part| unsafe { self.take_part(part, lasting) });
        drop(ranks);
        if taken.is_ok() {
            return Ok(Some(missing.iter().map(Range::len).sum()));
        }
        for part in &missing {
            // SAFETY: by the contract.
            unsafe { self.move_back(part) }?;
        }
        taken.map(|()| None)
    }

    /// The parts of `pages` that are not moved, after [`settle`](Self::settle).
    pub(super) fn missing(&self, pages: &Range<usize>) -> Vec<Range<usize>> {
        self.extents.missing(pages)
    }

    /// The parts of `pages` that are moved, after [`settle`](Self::settle).
    pub(super) fn moved(&self, pages: &Range<usize>) -> Vec<Range<usize>> {
        self.extents.within(pages).map(|(part, _)| part).collect()
    }

    /// Clears the `lasting` mark of the moved parts of `pages`.
    pub(super) fn end_lasting(&mut self, pages: &Range<usize>) {
        self.moved(pages).into_iter().for_each(|part| self.extents.insert(part, false));
    }

    /// Ends the watch of moved pages.
    ///
    /// # Errors
    /// `System`.
    pub(super) fn unwatch(&self, pages: &Range<usize>) -> Result<()> {
        self.watch.as_ref().map_or(Ok(()), |watch| watch.remove(pages.start, pages.end)).map_err(system(RETURN))
    }

    /// Drops pages that were moved back from the set, and frees their part of the file.
    ///
    /// # Errors
    /// `System`.
    pub(super) fn forget(&mut self, pages: &Range<usize>) -> Result<()> {
        self.extents.remove(pages);
        self.free(pages)
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Whether no other part can be moved.
    pub(super) fn is_full(&self) -> bool {
        self.extents.len() >= MAX_MOVED_PARTS
    }

    /// Whether the parts `missing` of `pages` can be moved; `lasting`: they are to stay moved.
    pub(super) fn can_move(&self, pages: &Range<usize>, missing: &[Range<usize>], lasting: bool) -> io::Result<bool> {
        if missing.is_empty() {
            return Ok(true);
        }
        let elsewhere = missing.iter().any(|part| self.elsewhere.within(part).next().is_some());
        if self.is_full() || pages.end > SPAN || elsewhere || is_limited() {
            return Ok(false);
        }
        if lasting && !(self.watch.is_some() && self.malloc_is_of_glibc) {
            return Ok(false);
        }
        for part in missing {
            if !is_plain(part)? {
                return Ok(false);
            }
        }
        Ok(!lasting || is_of_malloc(pages, |area| self.holds(area) && area.offset == area.start as u64)?)
    }

    /// Moves pages, and watches them.
    ///
    /// # Safety
    /// The contract of [`take`](Self::take); the pages are private and anonymous.
    unsafe fn take_part(&mut self, part: &Range<usize>, lasting: bool) -> Result<()> {
        for start in part.clone().step_by(PIECE) {
            let piece = start..part.end.min(start + PIECE);
            // SAFETY: by the contract.
            unsafe { self.take_piece(&piece) }.inspect_err(|_| self.discard(&piece))?;
            self.extents.insert(piece, lasting);
        }
        self.finish_part(part)
    }

    /// Records a page that was moved and stays moved.
    ///
    /// # Errors
    /// `System`; the page is then never moved again.
    pub(super) fn add_lasting(&mut self, page: Range<usize>) -> Result<()> {
        self.extents.insert(page.clone(), true);
        self.finish_part(&page).inspect_err(|_| {
            self.extents.remove(&page);
            self.elsewhere.insert(page, false);
        })
    }

    /// Gives the last page of a moved part its own mapping, and watches the part.
    fn finish_part(&self, part: &Range<usize>) -> Result<()> {
        let last = with_exposed_provenance_mut(part.end - PAGE);
        // SAFETY: a page of the file. The advice is about reading ahead, which memory does not do.
        unsafe { madvise(last, PAGE, Advice::Random) }.map_err(|e| Error::system(MOVE, e.into()))?;
        self.watch.as_ref().map_or(Ok(()), |watch| watch.add(part.start, part.end)).map_err(system(MOVE))
    }

    /// # Safety
    /// The contract of [`take_part`](Self::take_part).
    unsafe fn take_piece(&self, piece: &Range<usize>) -> Result<()> {
        let (base, len, offset) = (with_exposed_provenance_mut::<u8>(piece.start), piece.len(), piece.start as u64);
        let failed = |e: io::Error| {
            let full = matches!(e.raw_os_error(), Some(libc::ENOSPC | libc::ENOMEM));
            let kind = if full { ErrorKind::SharedMemoryFull } else { ErrorKind::System };
            Error::new(kind, MOVE).cause(format!("{len} bytes")).source_error(e)
        };
        if segment::overcommit_is_strict() {
            segment::reserve(&self.file, offset, len as u64).map_err(|e| failed(e.into()))?;
        }
        let _blocked = BlockedSignals::new();
        let touched = touched(piece.start, len);
        for run in &touched {
            let from = base.wrapping_add(run.start);
            // SAFETY: pages of the buffer.
            unsafe { write_all_at(&self.file, from, run.len(), offset + run.start as u64) }.map_err(failed)?;
        }
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: no other code stores to the pages; the mapping that replaces them has the same length, rights and
        // content, and the kernel exchanges the two in one step.
        unsafe { mmap(base.cast(), len, RIGHTS, flags, &self.file, offset) }.map_err(|e| failed(e.into()))?;
        for run in touched {
            // SAFETY: enters existing pages into the page table. If the kernel does not support that, they are entered
            // at their first access.
            let _ = unsafe { madvise(base.wrapping_add(run.start).cast(), run.len(), Advice::LinuxPopulateRead) };
        }
        Ok(())
    }

    /// Whether an area is a mapping of the file.
    fn holds(&self, area: &Area<'_>) -> bool {
        area.shares(NAME, self.inode) && area.rights == "rw-s"
    }

    /// Drops the pages of `range` that are no longer where they were moved, and frees the parts of the file that are
    /// not mapped anywhere. Returns the number of bytes dropped.
    fn compare(&mut self, range: &Range<usize>) -> Result<usize> {
        let failed = system("read the memory map");
        let mut there = Vec::new();
        areas(range.start, range.end, |area| {
            there.extend((self.holds(area) && area.offset == area.start as u64).then_some(area.start..area.end));
            Ok(())
        })
        .map_err(&failed)?;
        let known = self.extents.within(range).map(|(part, _)| part);
        let mut gone: Vec<_> = known.flat_map(|part| without(&part, there.iter().cloned())).collect();
        let bytes = gone.iter().map(Range::len).sum();
        if gone.is_empty() && self.elsewhere.len() == 0 {
            return Ok(0);
        }
        let mut elsewhere = Extents::default();
        let views = fork::views();
        areas(0, usize::MAX, |area| {
            if self.holds(area) && area.offset != area.start as u64 {
                let offset = |at: usize| area.offset as usize + (at - area.start);
                for part in without(&(area.start..area.end), views.iter().cloned()) {
                    elsewhere.insert(offset(part.start)..offset(part.end), false);
                }
            }
            Ok(())
        })
        .map_err(failed)?;
        drop(views);
        gone.iter().for_each(|part| self.extents.remove(part));
        gone.extend(self.elsewhere.within(&(0..usize::MAX)).map(|(part, _)| part));
        self.elsewhere = elsewhere;
        for part in gone {
            self.elsewhere.missing(&part).iter().try_for_each(|part| self.free(part))?;
        }
        Ok(bytes)
    }

    /// Frees a part of the file.
    fn free(&self, part: &Range<usize>) -> Result<()> {
        let held = fork::NoFork::new();
        let freed = punch(&self.file, part);
        drop(held);
        freed.map_err(|e| Error::system("free moved pages", e.into()))
    }

    /// Frees a part of the file whose pages could not be moved. A later move does not write pages that are zero then:
    /// without this they would get the old bytes of the file.
    pub(super) fn discard(&mut self, part: &Range<usize>) {
        if let Err(e) = self.free(part) {
            tracing::warn!("{e}");
            self.elsewhere.insert(part.clone(), false);
        }
    }

    /// Replaces the moved pages of `range` by private memory with the current content. A peer that still maps the
    /// shared pages accesses memory that no longer belongs to the program. Returns the number of bytes that the program
    /// has unmapped or replaced.
    ///
    /// # Safety
    /// No thread of this process stores to the pages during the call. Peers may still write; bytes that they write
    /// during the call may be lost.
    ///
    /// # Errors
    /// `System`; the memory then keeps shared pages and remains usable.
    unsafe fn move_back(&mut self, range: &Range<usize>) -> Result<usize> {
        let gone = self.compare(range)?;
        let parts: Vec<_> = self.extents.within(range).map(|(part, _)| part).collect();
        for part in parts {
            for start in part.clone().step_by(PIECE) {
                let piece = start..part.end.min(start + PIECE);
                // SAFETY: by the contract; pages of the file that are mapped at their address.
                unsafe { self.move_back_piece(&piece) }.map_err(system(RETURN))?;
                self.forget(&piece)?;
            }
        }
        Ok(gone)
    }

    /// Moves back the pages of `range` that do not stay moved.
    ///
    /// # Safety
    /// The contract of [`move_back`](Self::move_back).
    ///
    /// # Errors
    /// Those of [`move_back`](Self::move_back).
    pub(super) unsafe fn move_back_window(&mut self, range: &Range<usize>) -> Result<usize> {
        let gone = self.compare(range)?;
        let parts: Vec<_> = self.extents.within(range).filter(|(_, lasting)| !lasting).collect();
        // SAFETY: by the contract.
        parts.iter().try_for_each(|(part, _)| unsafe { self.move_back(part) }.map(|_| ()))?;
        Ok(gone)
    }

    /// # Safety
    /// The contract of [`move_back`](Self::move_back); `piece` is mapped where it was moved to.
    unsafe fn move_back_piece(&self, piece: &Range<usize>) -> io::Result<()> {
        let len = piece.len();
        let _blocked = BlockedSignals::new();
        // SAFETY: a fresh anonymous mapping.
        let fresh = unsafe { mmap_anonymous(null_mut(), len, RIGHTS, MapFlags::PRIVATE) }?;
        let place = with_exposed_provenance_mut(piece.start);
        // SAFETY: the fresh mapping.
        let read = unsafe { read_touched(&self.file, fresh.cast(), len, piece.start as u64) };
        let done = read.and_then(|()| {
            // SAFETY: moves the fresh pages over the shared ones in one step; the addresses stay valid throughout.
            Ok(unsafe { mremap_fixed(fresh, len, len, MremapFlags::MAYMOVE, place) }?)
        });
        if done.is_err() {
            // SAFETY: this function owns the fresh mapping and does not use it again. If `munmap` fails, the memory is
            // only leaked.
            let _ = unsafe { munmap(fresh, len) };
        }
        done.map(|_| ())
    }
}

/// Replaces a part of a file by a hole.
fn punch(file: &File, part: &Range<usize>) -> rustix::io::Result<()> {
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file, hole, part.start as u64, part.len() as u64)
}

/// Makes a watch, and checks that it can watch pages of the file.
fn watch_of(file: &File) -> io::Result<Watch> {
    let watch = Watch::new()?;
    // SAFETY: a new mapping, of the part of the file that belongs to address 0 and is not used.
    unsafe {
        let page = mmap(null_mut(), PAGE, RIGHTS, MapFlags::SHARED, file, 0)?;
        let added = watch.add(page.addr(), page.addr() + PAGE);
        munmap(page, PAGE)?;
        added.map(|()| watch)
    }
}

impl Drop for MovedPages {
    /// Ends the watch of all pages: a forked child may keep the watch's descriptor open, so that events would wait for
    /// a reader.
    fn drop(&mut self) {
        if let Some(watch) = self.watch.as_ref().filter(|watch| watch.is_here()) {
            for (part, _) in self.extents.within(&(0..usize::MAX)) {
                let _ = watch.remove(part.start, part.end);
            }
        }
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

/// Writes `len` bytes into a file, beginning at byte `offset` of it.
///
/// # Safety
/// The bytes are valid, initialized or not.
pub(super) unsafe fn write_all_at(file: &File, mut from: *const u8, mut len: usize, mut offset: u64) -> io::Result<()> {
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
/// private memory are zero. Returns the whole range if the kernel does not report it.
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

/// Whether the process has a file size limit (RLIMIT_FSIZE), at which the kernel would end the process when it writes.
fn is_limited() -> bool {
    getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < SPAN as u64)
}

/// Whether `range` is covered by private anonymous memory that may be on any NUMA node.
fn is_plain(range: &Range<usize>) -> io::Result<bool> {
    let (mut covered, mut plain) = (range.start, true);
    areas(range.start, range.end, |area| {
        plain &= area.start <= covered && area.is_plain() && !has_policy(area.start);
        covered = area.end;
        Ok(())
    })?;
    Ok(plain && covered >= range.end)
}

#[cfg(test)]
mod tests;
