#![allow(unsafe_code)]
//! Moves pages that a buffer covers only in part, so that a window over a few bytes of `malloc`'s memory is mapped, and
//! so are the ends of a longer window.
//!
//! The remainder of such a page belongs to other objects, among them those of the allocator and of this runtime. So
//! these pages are moved only while [`ShmDevice::is_alone`](super::ShmDevice) holds: only the calling thread and the
//! runtime's own threads can store to them. Between copy and exchange, the calling thread calls no allocator, and its
//! stack is elsewhere. The runtime's threads are blocked: the pages are write-protected by `userfaultfd` before they
//! are copied, so a store waits for the exchange, and then finds the new page. The kernel stores to these pages only
//! for system calls of these threads, whose results all go to their stacks.
//!
//! The pages stay moved as long as the program keeps them, like those of message buffers: later, another thread could
//! store to them. So they are not moved without a watch, or if the allocator is not known to allow it. Only pages of
//! exclusive memory are moved back, by the same means.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::{null_mut, with_exposed_provenance_mut};

use rustix::mm::{MapFlags, MremapFlags, mmap, mmap_anonymous, mremap_fixed, munmap};

use super::fork;
use super::remap::{BlockedSignals, MovedPages, RIGHTS, pages_in, write_all_at};
use crate::device::watch;
use crate::error::{Error, Result};
use crate::memory::segment::PAGE;

/// Distance in bytes from the top of the stack within which the calling thread may store meanwhile.
const STACK: usize = 64 << 10;

/// The pages that contain `bytes`.
pub(super) fn pages_around(bytes: &Range<usize>) -> Range<usize> {
    bytes.start / PAGE * PAGE..bytes.end.next_multiple_of(PAGE)
}

/// The pages that `bytes` covers only in part.
fn edges(bytes: &Range<usize>) -> [Range<usize>; 2] {
    let (inner, outer) = (pages_in(bytes), pages_around(bytes));
    if inner.is_empty() {
        [outer.clone(), outer.end..outer.end]
    } else {
        [outer.start..inner.start, inner.end..outer.end]
    }
}

impl MovedPages {
    /// The pages that `bytes` covers only in part and that are not moved.
    pub(super) fn missing_edges(&self, bytes: &Range<usize>) -> Vec<Range<usize>> {
        edges(bytes).iter().flat_map(|edge| self.missing(edge)).collect()
    }

    /// Moves the pages that `bytes` covers only in part. They stay moved. Returns the length of the newly moved pages;
    /// `None` if one of them cannot be moved.
    ///
    /// # Safety
    /// Only this thread and the runtime's threads can store to those pages.
    ///
    /// # Errors
    /// `SharedMemoryFull`, `System`.
    pub(super) unsafe fn take_edges(&mut self, bytes: &Range<usize>) -> Result<Option<usize>> {
        const OP: &str = "move the ends of a buffer onto shared memory";
        let missing = self.missing_edges(bytes);
        let _ranks = fork::views();
        let here = (&raw const missing).addr();
        let stack = here.saturating_sub(STACK)..here.saturating_add(STACK);
        let is_stack = |part: &Range<usize>| part.start < stack.end && stack.start < part.end;
        let system = |e| Error::system(OP, e);
        if missing.iter().any(is_stack) || !self.can_move(&pages_around(bytes), &missing, true).map_err(system)? {
            return Ok(None);
        }
        for page in missing.iter().flat_map(|part| part.clone().step_by(PAGE)) {
            // SAFETY: by the contract; a page of private memory of the heap.
            unsafe { exchange(self.file(), page) }
                .inspect_err(|_| self.discard(&(page..page + PAGE)))
                .map_err(system)?;
            self.add_lasting(page..page + PAGE)?;
        }
        Ok(Some(missing.iter().map(Range::len).sum()))
    }

    /// Moves back the moved pages that `bytes` covers only in part and that no other region uses. Stores by other
    /// threads wait meanwhile; if this process has no right to make the kernel's own stores wait, system calls that
    /// would store there fail.
    ///
    /// # Safety
    /// No other region of this process covers the bytes.
    ///
    /// # Errors
    /// `System`; pages then stay shared, and remain usable.
    pub(super) unsafe fn move_back_edges(
        &mut self,
        bytes: &Range<usize>,
        is_used: impl Fn(&Range<usize>) -> bool,
    ) -> Result<()> {
        self.settle(true);
        let parts = edges(bytes).into_iter().flat_map(|edge| self.moved(&edge));
        let pages: Vec<_> = parts.flat_map(|part| part.step_by(PAGE).map(|page| page..page + PAGE)).collect();
        for page in pages.iter().filter(|page| !is_used(page)) {
            self.unwatch(page)?;
            // SAFETY: a moved page, by the contract.
            if let Err(e) = unsafe { exchange_back(page.start) } {
                self.add_lasting(page.clone())?;
                return Err(Error::system("move the ends of a buffer back to private memory", e));
            }
            self.forget(page)?;
        }
        Ok(())
    }
}

/// Exchanges a page for its copy in the file at the offset that equals its address. Calls no allocator.
///
/// # Safety
/// The page is private memory of the program, to which only this thread and the runtime's threads can store. The stack of
/// this thread is elsewhere.
unsafe fn exchange(file: &File, page: usize) -> io::Result<()> {
    let at = with_exposed_provenance_mut::<u8>(page);
    let _blocked = BlockedSignals::new();
    let _still = Still::new(page)?;
    // SAFETY: a page of the program.
    unsafe { write_all_at(file, at, PAGE, page as u64) }?;
    let flags = MapFlags::SHARED | MapFlags::FIXED;
    // SAFETY: stores to the page wait meanwhile; the mapping that replaces it has the same length, rights and content.
    unsafe { mmap(at.cast(), PAGE, RIGHTS, flags, file, page as u64) }?;
    Ok(())
}

/// Exchanges a moved page for a private copy. Calls no allocator.
///
/// # Safety
/// The page is a moved page of the program that is not watched.
unsafe fn exchange_back(page: usize) -> io::Result<()> {
    let at = with_exposed_provenance_mut::<u8>(page);
    let _blocked = BlockedSignals::new();
    // SAFETY: a page of the program is copied to a fresh mapping, which then replaces it; no store changes the page
    // meanwhile. If `munmap` fails, the memory is only leaked.
    unsafe {
        let fresh = mmap_anonymous(null_mut(), PAGE, RIGHTS, MapFlags::PRIVATE)?;
        let done = Still::new(page).and_then(|_still| {
            fresh.cast::<u8>().copy_from_nonoverlapping(at, PAGE);
            Ok(mremap_fixed(fresh, PAGE, PAGE, MremapFlags::MAYMOVE, at.cast())?)
        });
        if done.is_err() {
            let _ = munmap(fresh, PAGE);
        }
        done.map(|_| ())
    }
}

/// A page to which no thread can store until this is dropped, or the page is exchanged.
struct Still(#[expect(dead_code, reason = "its closing lets the stores go on")] OwnedFd);

impl Still {
    fn new(page: usize) -> io::Result<Self> {
        // SAFETY: a page of the program. Only present pages can be protected.
        unsafe { with_exposed_provenance_mut::<u8>(page).read_volatile() };
        let fd = watch::open(0)?;
        watch::protect(&fd, page, page + PAGE)?;
        Ok(Self(fd))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use memmap2::MmapMut;

    use super::*;
    use crate::memory::segment::sparse_file;

    #[test]
    fn edges_are_the_partial_pages() {
        let pages =
            |range: Range<usize>| edges(&(range.start..range.end)).map(|edge| edge.start / PAGE..edge.end / PAGE);
        assert_eq!(pages(10..20), [0..1, 1..1]);
        assert_eq!(pages(PAGE - 1..PAGE + 1), [0..2, 2..2]);
        assert_eq!(pages(10..3 * PAGE), [0..1, 3..3]);
        assert_eq!(pages(PAGE..3 * PAGE + 1), [1..1, 3..4]);
        assert_eq!(pages(1..3 * PAGE - 1), [0..1, 2..3]);
    }

    /// Threads store continuously while the pages are exchanged, and exchanged back.
    #[test]
    fn no_store_of_another_thread_is_lost() {
        if let Err(e) = watch::open(0) {
            println!("skipped: no userfaultfd: {e}");
            return;
        }
        const PAGES: usize = 200;
        let file = sparse_file("farside-test", 1 << 48).unwrap();
        let map = MmapMut::map_anon(PAGES * PAGE).unwrap();
        let (base, stop) = (map.as_ptr().expose_provenance(), AtomicBool::new(false));
        // SAFETY: words of the mapping, which only atomics access.
        let word =
            |page: usize, i: usize| unsafe { &*with_exposed_provenance_mut::<AtomicU64>(base + page * PAGE + 64 * i) };
        let counts = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2)
                .map(|i| {
                    let stop = &stop;
                    scope.spawn(move || {
                        let mut count = 0;
                        while !stop.load(Ordering::SeqCst) {
                            count += 1;
                            (0..PAGES).for_each(|page| word(page, i).store(count, Ordering::SeqCst));
                            let lost = (0..PAGES).find(|page| word(*page, i).load(Ordering::SeqCst) != count);
                            assert_eq!(lost, None, "a store to this page was lost");
                        }
                        count
                    })
                })
                .collect();
            for page in 0..PAGES {
                // SAFETY: a private page, which is not that of a stack.
                unsafe { exchange(&file, base + page * PAGE) }.unwrap();
            }
            for page in (0..PAGES).step_by(2) {
                // SAFETY: a moved page.
                unsafe { exchange_back(base + page * PAGE) }.unwrap();
            }
            stop.store(true, Ordering::SeqCst);
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert!((0..PAGES).all(|page| (0..2).all(|i| word(page, i).load(Ordering::SeqCst) == counts[i])));
    }
}
