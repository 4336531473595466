#![allow(unsafe_code)]
//! Watches memory of the program with `userfaultfd`, and reports which parts were unmapped, moved or discarded since
//! the last call. So freed pages are never used through a registration or a mapping of a peer, whichever code freed
//! them.
//!
//! The kernel blocks a thread that unmaps watched memory until the watcher's thread has read the event. The watcher's
//! thread only records the event, in preallocated memory: an allocation or a free could unmap watched memory, and the
//! thread would wait for itself. [`Watch::settle`] closes the gap between the unmapping and the event: while a change
//! is in progress the kernel refuses to fill pages (`EAGAIN`), and it checks this before the arguments. So `settle`
//! repeats a request for no pages until the kernel refuses it because of its arguments, and then takes the lock under
//! which the thread records events.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use memmap2::{MmapOptions, MmapRaw};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::mm::{UserfaultfdFlags, userfaultfd};

use crate::memory::segment::PAGE;

/// Constants of `linux/userfaultfd.h`, missing from both `libc` and `rustix`.
mod uffd {
    pub(crate) const USER_MODE_ONLY: u32 = 1;
    pub(crate) const API: u64 = 0xaa;
    pub(crate) const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
    pub(crate) const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
    pub(crate) const UFFDIO_UNREGISTER: libc::c_ulong = 0x8010_aa01;
    pub(crate) const UFFDIO_ZEROPAGE: libc::c_ulong = 0xc020_aa04;
    pub(crate) const UFFDIO_WRITEPROTECT: libc::c_ulong = 0xc018_aa06;
    /// Feature: a flag that distinguishes faults of protected pages.
    pub(crate) const PROTECTED_FAULTS: u64 = 1;
    /// Features: events of `mremap`, of discarded pages (`madvise`) and of unmapping.
    pub(crate) const EVENTS: u64 = 1 << 2 | 1 << 3 | 1 << 6;
    /// While no page is protected, this mode makes no faults, only events.
    pub(crate) const MODE_WRITE_PROTECT: u64 = 2;
    pub(crate) const PROTECT: u64 = 1;
    pub(crate) const EVENT_PAGEFAULT: u8 = 0x12;
    pub(crate) const EVENT_REMAP: u8 = 0x14;
    pub(crate) const EVENT_REMOVE: u8 = 0x15;
    pub(crate) const EVENT_UNMAP: u8 = 0x16;
}

/// Maximum number of ranges recorded between two calls of [`Watch::settle`]; if there are more, all memory counts as
/// changed.
const NOTES: usize = 256;

/// Changed ranges, as (start, end).
#[derive(Clone, Copy, Debug)]
struct Notes {
    count: usize,
    ranges: [(usize, usize); NOTES],
}

impl Notes {
    fn add(&mut self, start: usize, end: usize) {
        match self.ranges.get_mut(self.count) {
            Some(range) => (*range, self.count) = ((start, end), self.count + 1),
            None => self.ranges[0] = (0, usize::MAX),
        }
    }
}

/// The state that the thread and the rank share.
struct Shared {
    /// The thread holds the lock while it reads events; the rank holds it only to copy. A free by the rank under the
    /// lock could touch watched memory, and would wait for the thread, which waits for the lock.
    notes: Mutex<Notes>,
    /// Whether the thread has started: from then on it stores only to this state and to its stack.
    is_started: AtomicBool,
}

/// Shared state in separate pages: the thread may store to it at any time, even while a rank moves pages of the
/// allocator, which must have no other writer.
#[derive(Debug)]
struct SharedPages(MmapRaw);

impl SharedPages {
    fn new() -> io::Result<Self> {
        let map = MmapRaw::from(MmapOptions::new().len(size_of::<Shared>()).map_anon()?);
        let notes = Mutex::new(Notes { count: 0, ranges: [(0, 0); NOTES] });
        // SAFETY: a new mapping, long enough and aligned to a page.
        unsafe { map.as_mut_ptr().cast::<Shared>().write(Shared { notes, is_started: AtomicBool::new(false) }) };
        Ok(Self(map))
    }
}

impl Deref for SharedPages {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        // SAFETY: written by `new`, mapped as long as `self`, and accessed by shared references only.
        unsafe { &*self.0.as_ptr().cast::<Shared>() }
    }
}

/// A watcher. Its ranges are watched until it is dropped.
#[derive(Debug)]
pub struct Watch {
    fd: Arc<OwnedFd>,
    /// Readable when the thread must end.
    stop: Arc<OwnedFd>,
    shared: Arc<SharedPages>,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread; a forked child does not have it.
    process: u32,
}

fn lock(notes: &Mutex<Notes>) -> MutexGuard<'_, Notes> {
    notes.lock().unwrap_or_else(PoisonError::into_inner)
}

fn control(fd: &OwnedFd, request: libc::c_ulong, argument: &mut [u64]) -> io::Result<()> {
    // SAFETY: an open descriptor and a live argument of the size that the request names, which is encoded in it.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), request, argument.as_mut_ptr()) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Opens a `userfaultfd` descriptor with these features.
///
/// # Errors
/// If the kernel has no such `userfaultfd`, or does not allow it to this process.
pub(crate) fn open(features: u64) -> io::Result<OwnedFd> {
    let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
    // SAFETY: stores that a fault stops are resumed by the thread of the watch, or when the descriptor is closed.
    let open = |flags| unsafe { userfaultfd(flags) };
    // Without the flag, system calls of other threads also wait for a protected page; not all processes are allowed to
    // omit the flag.
    let user_mode = UserfaultfdFlags::from_bits_retain(uffd::USER_MODE_ONLY);
    let fd = open(flags).or_else(|_| open(flags | user_mode))?;
    control(&fd, uffd::UFFDIO_API, &mut [uffd::API, features | uffd::PROTECTED_FAULTS, 0])?;
    Ok(fd)
}

/// Stops stores to the present pages `[start, end)` until the descriptor is closed or the pages are replaced.
///
/// # Errors
/// If the kernel cannot protect such memory, or it is watched by another descriptor.
pub(crate) fn protect(fd: &OwnedFd, start: usize, end: usize) -> io::Result<()> {
    let (start, len) = (start as u64, (end - start) as u64);
    control(fd, uffd::UFFDIO_REGISTER, &mut [start, len, uffd::MODE_WRITE_PROTECT, 0])?;
    control(fd, uffd::UFFDIO_WRITEPROTECT, &mut [start, len, uffd::PROTECT])
}

impl Watch {
    /// Starts a watcher and its thread.
    ///
    /// # Errors
    /// If the kernel has no `userfaultfd` with events, or does not allow it to this process.
    pub fn new() -> io::Result<Self> {
        let fd = Arc::new(open(uffd::EVENTS)?);
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let shared = Arc::new(SharedPages::new()?);
        let clones = (Arc::clone(&fd), Arc::clone(&stop), Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("farside-watch".into());
        let thread = thread.spawn(move || run(&clones.0, &clones.1, &clones.2))?;
        // Acquire: pairs with the Release of `run`.
        while !shared.is_started.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        Ok(Self { fd, stop, shared, thread: Some(thread), process: std::process::id() })
    }

    /// Adds the whole pages `[start, end)` to the watched memory.
    ///
    /// # Errors
    /// If the memory is not mapped, is of a kind that the kernel does not watch (files; shared mappings before Linux
    /// 5.19), or is watched by another descriptor.
    pub(crate) fn add(&self, start: usize, end: usize) -> io::Result<()> {
        let range = (start as u64, (end - start) as u64);
        control(&self.fd, uffd::UFFDIO_REGISTER, &mut [range.0, range.1, uffd::MODE_WRITE_PROTECT, 0])
    }

    /// Whether this process has made the watch, and is not a forked child of the one that did.
    pub(crate) fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// Ends the watch of the whole pages `[start, end)`.
    ///
    /// # Errors
    /// If the memory is not mapped.
    pub(crate) fn remove(&self, start: usize, end: usize) -> io::Result<()> {
        control(&self.fd, uffd::UFFDIO_UNREGISTER, &mut [start as u64, (end - start) as u64])
    }

    /// Calls `gone` with every watched range that was unmapped, moved or discarded by a call that changed the memory
    /// before `settle` began. If the process may have `other_threads`, which could be in such a call now, this takes a
    /// system call. Without other threads, every such call has returned, so the thread has read its event, and has
    /// recorded it when it releases the lock.
    pub(crate) fn settle(&self, other_threads: bool, mut gone: impl FnMut(usize, usize)) {
        let is_changing = |e: io::Error| e.raw_os_error() == Some(libc::EAGAIN);
        while other_threads && control(&self.fd, uffd::UFFDIO_ZEROPAGE, &mut [0; 4]).is_err_and(is_changing) {
            std::thread::yield_now();
        }
        let mut notes = lock(&self.shared.notes);
        if notes.count == 0 {
            return;
        }
        let copy = *notes;
        notes.count = 0;
        drop(notes);
        copy.ranges[..copy.count].iter().for_each(|(start, end)| gone(*start, *end));
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let thread = self.thread.take();
        if !self.is_here() {
            // The thread belongs to the parent, so it is neither joined nor detached.
            return std::mem::forget(thread);
        }
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

/// The watcher's thread. It allocates and frees no memory while it runs.
fn run(fd: &OwnedFd, stop: &OwnedFd, shared: &Shared) {
    let mut polls = [PollFd::new(fd, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
    // Release: pairs with the Acquire of `Watch::new`, after all other stores of this thread.
    shared.is_started.store(true, Ordering::Release);
    while polls[1].revents().is_empty() {
        let _ = poll(&mut polls, None);
        // The lock is taken before the event is read, so `settle` waits for the lock or finds the note.
        let mut notes = lock(&shared.notes);
        let mut message = [0; 32];
        while rustix::io::read(fd, &mut message) == Ok(32) {
            let at = |i: usize| message[8 * i..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
            match message[0] {
                uffd::EVENT_REMOVE | uffd::EVENT_UNMAP => notes.add(at(1) as usize, at(2) as usize),
                // The fields are old address, new address, and length.
                uffd::EVENT_REMAP => notes.add(at(1) as usize, at(1).saturating_add(at(3)) as usize),
                uffd::EVENT_PAGEFAULT => {
                    // Other code protected a page of watched memory: the thread that wrote to it is resumed.
                    let page = at(2) & !(PAGE as u64 - 1);
                    let _ = control(fd, uffd::UFFDIO_WRITEPROTECT, &mut [page, PAGE as u64, 0]);
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use memmap2::MmapMut;

    use super::*;

    /// Returns `None`, with a message, if `userfaultfd` is not allowed.
    fn watch() -> Option<Watch> {
        Watch::new().inspect_err(|e| println!("skipped: no userfaultfd: {e}")).ok()
    }

    fn pages(count: usize) -> MmapMut {
        let mut m = MmapOptions::new().len(count * PAGE).map_anon().unwrap();
        m.fill(7);
        m
    }

    fn gone(watch: &Watch) -> Vec<(usize, usize)> {
        let mut all = Vec::new();
        watch.settle(true, |start, end| all.push((start, end)));
        all
    }

    #[test]
    fn memory_that_this_thread_has_unmapped_is_known_without_a_system_call() {
        let Some(watch) = watch() else { return };
        for round in 0..500 {
            let m = pages(8);
            let at = m.as_ptr().addr();
            watch.add(at, at + 8 * PAGE).unwrap();
            drop(m);
            let mut all = Vec::new();
            watch.settle(false, |start, end| all.push((start, end)));
            assert_eq!(all, [(at, at + 8 * PAGE)], "round {round}");
        }
    }

    #[test]
    fn unmapped_and_released_memory_is_reported_once() {
        let Some(watch) = watch() else { return };
        let m = pages(8);
        let at = m.as_ptr().addr();
        watch.add(at, at + 8 * PAGE).unwrap();
        assert_eq!(gone(&watch), []);
        // SAFETY: pages of the mapping, which are not read.
        unsafe { libc::madvise((at + 2 * PAGE) as *mut _, 3 * PAGE, libc::MADV_DONTNEED) };
        assert_eq!(gone(&watch), [(at + 2 * PAGE, at + 5 * PAGE)]);
        drop(m);
        assert_eq!(gone(&watch), [(at, at + 8 * PAGE)]);
        assert_eq!(gone(&watch), []);
    }

    #[test]
    fn moved_memory_is_reported_by_its_old_address() {
        let Some(watch) = watch() else { return };
        let (m, other) = (pages(4), pages(4));
        let (at, to) = (m.as_ptr().addr(), other.as_ptr().addr());
        watch.add(at, at + 4 * PAGE).unwrap();
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        std::mem::forget(m);
        // SAFETY: both mappings belong to this test; the second is replaced by the move and then dropped.
        let moved = unsafe { libc::mremap(at as *mut _, 4 * PAGE, 4 * PAGE, flags, to as *mut libc::c_void) };
        assert_eq!(moved.addr(), to);
        assert!(gone(&watch).contains(&(at, at + 4 * PAGE)));
    }

    #[test]
    fn more_events_than_notes_are_all_of_memory() {
        let Some(watch) = watch() else { return };
        let m = pages(2);
        let at = m.as_ptr().addr();
        watch.add(at, at + 2 * PAGE).unwrap();
        for _ in 0..NOTES + 10 {
            // SAFETY: a page of the mapping.
            unsafe { libc::madvise(at as *mut _, PAGE, libc::MADV_DONTNEED) };
        }
        assert!(gone(&watch).contains(&(0, usize::MAX)));
        assert_eq!(gone(&watch), []);
    }

    /// Another thread unmaps memory, and this thread maps the address again: the range is reported before this thread
    /// can use the address.
    #[test]
    fn address_that_another_thread_gave_up_is_reported_before_it_is_used() {
        let Some(watch) = watch() else { return };
        for _ in 0..200 {
            let m = pages(64);
            let at = m.as_ptr().addr();
            watch.add(at, at + 64 * PAGE).unwrap();
            gone(&watch);
            let other = std::thread::spawn(move || drop(m));
            let again = loop {
                // SAFETY: a new mapping, made only at an address without a mapping.
                let p = unsafe {
                    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
                    libc::mmap(at as *mut _, 64 * PAGE, libc::PROT_READ, flags, -1, 0)
                };
                if p != libc::MAP_FAILED {
                    break p;
                }
                std::thread::yield_now();
            };
            assert_eq!(again.addr(), at);
            assert!(gone(&watch).contains(&(at, at + 64 * PAGE)));
            other.join().unwrap();
            // SAFETY: the mapping made in this iteration.
            unsafe { libc::munmap(again, 64 * PAGE) };
        }
    }
}
