#![allow(unsafe_code)]
//! Gives a forked child private copies of the pages that this process has moved onto shared memory
//! ([`remap`](super::remap)): the child sees their bytes as of the fork, and its stores reach no other process.
//!
//! The kernel shares such pages between parent and child. Handlers of `pthread_atfork` replace them in the child, while
//! the thread that forks waits in the parent. They are registered when the program or library is loaded, since handlers
//! of parent and child run in the order of registration: a lock that the program's own handlers hold over the fork is
//! released after the copies are made, so no store under the lock gets into a copy. Signals are blocked meanwhile,
//! since their handlers could store. Bytes that another thread or a peer stores during the call of `fork` without such
//! a lock may or may not be in the copies, in any combination.
//!
//! The child finds the pages in the list of mappings, also those that the program has moved elsewhere by `mremap`. It
//! allocates nothing: threads of the parent may have held the locks of an allocator at the fork. The allocator's memory
//! and this runtime's objects may be in moved pages, so each mapping is replaced in one step by its copy. Only a child
//! whose stack is in moved pages (that of a coroutine, from `malloc`) cannot be given copies.
//!
//! Children that use the memory of their parent until they run another program (`vfork`, `posix_spawn`, `system`,
//! `popen`) run no handlers and need none. `_Fork` and the bare system call run none either: their child shares the
//! pages.
//!
//! The statics here are the only ones outside a job: fork handlers have no argument and cannot be unregistered, and a
//! fork affects all jobs of the process, including the memory that its ranks share and their mappings of it.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Write};
use std::mem;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use rustix::io::retry_on_intr;
use rustix::mm::{MapFlags, MprotectFlags, MremapFlags, mmap_anonymous, mprotect, mremap_fixed};

use super::maps::{Area, areas};
use super::remap::{BlockedSignals, NAME, RIGHTS, read_touched};
use crate::error::{Error, Result};

/// Distance in bytes from the top of the stack within which the child stores while it copies.
const STACK: usize = 64 << 10;

/// A file that holds moved pages of this process. Pages may stay mapped after the end of the job that has moved them.
struct MovedFile {
    file: Weak<File>,
    inode: u64,
}

static FILES: Mutex<Vec<MovedFile>> = Mutex::new(Vec::new());

/// The mappings by ranks of this process of each other's moved pages, by address. The lock is held while a rank moves
/// pages: ranks that are threads may export the same memory at the same time.
static VIEWS: Mutex<Vec<Range<usize>>> = Mutex::new(Vec::new());

/// The fork in progress, at most one: the thread that forks holds the lock of the files from before the fork until after
/// it.
static FORK: ForkSlot = ForkSlot(UnsafeCell::new(None));

struct ForkSlot(UnsafeCell<Option<Fork>>);

// SAFETY: only the thread that holds the lock of `FILES` accesses the slot.
unsafe impl Sync for ForkSlot {}

/// State that the handler before a fork passes to the handlers after it. Fields are dropped in this order.
struct Fork {
    files: MutexGuard<'static, Vec<MovedFile>>,
    /// The pipe through which the parent learns that the copies are made, or that there is no child. `None` if nothing
    /// was moved.
    pipe: Option<io::Result<(PipeReader, PipeWriter)>>,
    _blocked: BlockedSignals,
}

/// Called by the loader.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    install();
}

/// Installs the handlers once; the error of the system, or 0.
fn install() -> c_int {
    static INSTALLED: OnceLock<c_int> = OnceLock::new();
    // SAFETY: the functions may be called at any time. The C library unregisters them before their library is unloaded.
    *INSTALLED.get_or_init(|| unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) })
}

/// Makes children of this process copy the pages of a file named [`NAME`].
///
/// # Errors
/// `System` if there is no memory for the handlers.
pub(super) fn register(file: &Arc<File>) -> Result<()> {
    let failed = |e| Error::system("register fork handlers", e);
    match install() {
        0 => {}
        code => return Err(failed(io::Error::from_raw_os_error(code))),
    }
    let inode = file.metadata().map_err(failed)?.ino();
    let entry = MovedFile { file: Arc::downgrade(file), inode };
    let mut room = Vec::new();
    loop {
        // Under the lock nothing is allocated: another thread that forks may hold the locks of an allocator by its own
        // handler, and wait for this lock.
        let mut held = NoFork::new();
        let files = &mut *held.files;
        if files.len() == files.capacity() && room.capacity() > files.len() {
            room.append(files);
            mem::swap(files, &mut room);
        }
        if files.len() < files.capacity() {
            files.push(entry);
            return Ok(());
        }
        let more = 2 * files.len() + 1;
        drop(held);
        room.reserve_exact(more);
    }
}

/// Forks by other threads, and signal handlers of this one, wait until this is dropped. Nothing is allocated meanwhile.
/// Parts of files are freed only while it exists: otherwise a child might not have copied them yet. Fields are dropped
/// in this order.
pub(super) struct NoFork {
    files: MutexGuard<'static, Vec<MovedFile>>,
    _blocked: BlockedSignals,
}

impl NoFork {
    pub(super) fn new() -> Self {
        // A handler of a signal that forks would wait for the lock.
        let _blocked = BlockedSignals::new();
        Self { files: lock(), _blocked }
    }
}

/// The list of mappings of moved pages by ranks of this process, in order. No rank of this process moves pages meanwhile.
pub(super) fn views() -> MutexGuard<'static, Vec<Range<usize>>> {
    VIEWS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lock() -> MutexGuard<'static, Vec<MovedFile>> {
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn before() {
    let (_blocked, files) = (BlockedSignals::new(), lock());
    let pipe = (!files.is_empty()).then(io::pipe);
    // SAFETY: this thread holds the lock.
    unsafe { *FORK.0.get() = Some(Fork { files, pipe, _blocked }) };
}

/// Takes the state that `before` has stored.
///
/// # Safety
/// Called once after `before`, by the same thread or by its copy in the child.
unsafe fn take() -> Option<Fork> {
    // SAFETY: this thread has held the lock since `before`.
    unsafe { (*FORK.0.get()).take() }
}

extern "C" fn in_parent() {
    // SAFETY: the C library calls it after `before`, in the same thread.
    let Some(mut fork) = (unsafe { take() }) else { return };
    if let Some(Ok((read, write))) = fork.pipe.take() {
        // Only the child holds another writer, so the pipe ends if there is no child, or when the child has ended.
        drop(write);
        let _ = retry_on_intr(|| rustix::io::read(&read, &mut [0]));
    }
}

extern "C" fn in_child() {
    // SAFETY: the C library calls it after `before`, in the copy of the same thread.
    let Some(mut fork) = (unsafe { take() }) else { return };
    let Some(pipe) = fork.pipe.take() else { return };
    let copied = pipe.and_then(|(read, write)| {
        // The list of mappings needs a descriptor.
        drop(read);
        // SAFETY: the child has no other thread, and its signals are blocked.
        areas(0, usize::MAX, |area| unsafe { copy(area, &fork.files) }).map(|()| write)
    });
    match copied {
        Ok(write) => drop(rustix::io::write(&write, &[1])),
        Err(e) => end(&e),
    }
}

/// Replaces an area by private memory with the same bytes and rights if it has pages of one of the files.
///
/// # Safety
/// No other code of this process runs.
unsafe fn copy(area: &Area<'_>, files: &[MovedFile]) -> io::Result<()> {
    let Some(of) = files.iter().find(|file| area.shares(NAME, file.inode)) else { return Ok(()) };
    let (place, len) = (with_exposed_provenance_mut(area.start), area.end - area.start);
    let rights = [('r', MprotectFlags::READ), ('w', MprotectFlags::WRITE), ('x', MprotectFlags::EXEC)];
    let rights = rights.into_iter().filter(|(letter, _)| area.rights.contains(*letter));
    let rights = rights.fold(MprotectFlags::empty(), |all, (_, one)| all | one);
    // Stores of this function until the exchange would be lost; it stores only to its stack.
    let stack = (&raw const len).addr();
    if area.start < stack + STACK && stack - STACK < area.end {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // SAFETY: the addresses belong to the area, and its bytes do not change. They are exchanged in one step, since they
    // may be those of this process's allocator, where the state of the file is too.
    unsafe {
        let fresh = mmap_anonymous(null_mut(), len, RIGHTS, MapFlags::PRIVATE)?;
        // Not upgraded to an `Arc`: the counters may still be in pages that are shared with the parent.
        let file = (of.file.strong_count() > 0).then(|| &*of.file.as_ptr());
        if let Some(file) = file.filter(|file| file.metadata().is_ok_and(|meta| meta.ino() == of.inode)) {
            read_touched(file, fresh.cast(), len, area.offset)?;
        } else {
            // The holes of a file that is closed are not known.
            mprotect(place, len, MprotectFlags::READ)?;
            fresh.cast::<u8>().copy_from_nonoverlapping(place.cast(), len);
        }
        mremap_fixed(fresh, len, len, MremapFlags::MAYMOVE, place)?;
        if rights != MprotectFlags::READ | MprotectFlags::WRITE {
            mprotect(place, len, rights)?;
        }
    }
    Ok(())
}

/// Ends the child, so that it does not share memory with its parent.
fn end(error: &io::Error) -> ! {
    const LINE: usize = 400;
    let mut line = [0; LINE];
    let mut rest = &mut line[..];
    let _ = writeln!(
        rest,
        "farside: a forked child is ended: memory that its parent shares with other ranks cannot be copied, \
         because of system error {} (0: it contains the child's stack); raise the limits, or start programs by \
         posix_spawn",
        error.raw_os_error().unwrap_or(0)
    );
    let len = LINE - rest.len();
    // SAFETY: standard error, if it is open; `_exit` runs no other code of the process.
    unsafe {
        let _ = rustix::io::write(BorrowedFd::borrow_raw(2), &line[..len]);
        libc::_exit(libc::EXIT_FAILURE)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use rustix::mm::mmap;

    use super::*;
    use crate::memory::segment::{self, PAGE};

    /// Pages of a registered file, mapped and filled with a byte.
    fn shared(pages: usize, byte: u8) -> (Arc<File>, *mut u8) {
        let file = Arc::new(segment::sparse_file(NAME, (pages * PAGE) as u64).unwrap());
        register(&file).unwrap();
        // SAFETY: a new mapping.
        let base = unsafe { mmap(null_mut(), pages * PAGE, RIGHTS, MapFlags::SHARED, &file, 0) }.unwrap().cast();
        if byte != 0 {
            // SAFETY: the mapping.
            unsafe { std::ptr::write_bytes(base, byte, pages * PAGE) };
        }
        (file, base)
    }

    /// Runs `child` in a child process, after `parent` has run here; returns whether the child's test is true.
    fn fork(parent: impl FnOnce(), child: impl FnOnce() -> bool) -> bool {
        let (read, write) = io::pipe().unwrap();
        // SAFETY: the child only loads, stores, and makes system calls.
        let made = unsafe { libc::fork() };
        if made == 0 {
            drop(write);
            let _ = rustix::io::read(&read, &mut [0]);
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!child())) };
        }
        assert!(made > 0);
        parent();
        drop(write);
        let mut status = -1;
        // SAFETY: a child of this test, and a live integer.
        assert_eq!(unsafe { libc::waitpid(made, &raw mut status, 0) }, made);
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }

    fn get(at: *mut u8) -> u8 {
        // SAFETY: bytes of mappings of the tests.
        unsafe { at.read_volatile() }
    }

    fn set(at: *mut u8, byte: u8) {
        // SAFETY: bytes of mappings of the tests.
        unsafe { at.write_volatile(byte) };
    }

    #[test]
    fn child_and_parent_do_not_see_the_stores_of_each_other() {
        let (file, base) = shared(40, 7);
        let last = base.wrapping_add(40 * PAGE - 1);
        let in_child = || {
            let before = [get(base), get(last)];
            set(base, 9);
            before == [7, 7] && get(base) == 9
        };
        assert!(fork(|| set(last, 8), in_child));
        assert_eq!([get(base), get(last)], [7, 8]);
        drop(file);
    }

    #[test]
    fn pages_that_were_never_touched_stay_holes_of_the_file_and_zero_in_the_child() {
        let (file, base) = shared(1000, 0);
        let at = |page: usize| base.wrapping_add(page * PAGE);
        [3, 500, 999].iter().for_each(|page| set(at(*page), *page as u8));
        let blocks = || file.metadata().unwrap().blocks();
        let before = blocks();
        let same = || (0..1000).all(|page| get(at(page)) == if [3, 500, 999].contains(&page) { page as u8 } else { 0 });
        assert!(fork(|| (), same));
        assert_eq!(blocks(), before);
    }

    #[test]
    fn pages_are_copied_wherever_they_are_mapped_and_after_their_file_was_closed() {
        let (file, base) = shared(8, 5);
        // SAFETY: pages of the test, moved to an address that the system chooses.
        let moved = unsafe {
            let place = mmap_anonymous(null_mut(), 4 * PAGE, RIGHTS, MapFlags::PRIVATE).unwrap();
            mremap_fixed(base.add(4 * PAGE).cast(), 4 * PAGE, 4 * PAGE, MremapFlags::MAYMOVE, place).unwrap()
        };
        let moved = moved.cast::<u8>();
        // SAFETY: a page of the mapping, which is no longer written.
        unsafe { mprotect(base.cast(), PAGE, MprotectFlags::READ) }.unwrap();
        let child = || {
            set(moved, 1);
            set(base.wrapping_add(PAGE), 1);
            get(base) == 5 && get(moved) == 1 && get(moved.wrapping_add(PAGE)) == 5
        };
        let unchanged = || [get(moved), get(base.wrapping_add(PAGE))] == [5, 5];
        assert!(fork(|| (), child) && unchanged());
        drop(file);
        assert!(fork(|| (), child) && unchanged());
    }

    #[test]
    fn parts_of_files_are_freed_only_when_children_have_copied_them() {
        let freed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            before();
            let other = scope.spawn(|| {
                let _held = NoFork::new();
                freed.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(Duration::from_millis(50));
            assert!(!freed.load(Ordering::SeqCst));
            in_parent();
            other.join().unwrap();
        });
    }

    #[test]
    fn parent_does_not_wait_if_the_fork_has_failed() {
        let (_file, _base) = shared(1, 1);
        before();
        in_parent();
    }
}
