#![allow(unsafe_code)]
//! Memory whose pages may stay moved: that of the C library's `malloc`.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU32;

use super::maps::{Area, areas};
use crate::memory::segment::PAGE;

/// Maximum number of headers of chunks that are read to find a chunk.
const CHUNKS: usize = 4096;
/// Maximum number of consecutive mappings that are tried as the start of a row of chunks.
const STARTS: usize = 16;

/// Whether this process uses the `malloc` of the GNU C library.
pub(super) fn malloc_is_of_glibc() -> bool {
    let [malloc, version] = [c"malloc", c"gnu_get_libc_version"].map(library_of);
    malloc.is_some() && malloc == version
}

/// The counter in which the GNU C library keeps the number of threads that it has started and that have not ended, the
/// first one included; `None` if this C library has none. The name is private to the library, for debuggers.
pub(super) fn thread_counter() -> Option<&'static AtomicU32> {
    // SAFETY: a name and a version that end with zero. The library is not unloaded, and changes the variable atomically.
    unsafe {
        let counter = libc::dlvsym(libc::RTLD_DEFAULT, c"__nptl_nthreads".as_ptr(), c"GLIBC_PRIVATE".as_ptr());
        (!counter.is_null()).then(|| AtomicU32::from_ptr(counter.cast()))
    }
}

/// The load address of the library that defines a function.
fn library_of(function: &CStr) -> Option<usize> {
    // SAFETY: a name that ends with zero, and a struct of pointers that is written before it is read. No function is
    // called.
    unsafe {
        let symbol = libc::dlsym(libc::RTLD_DEFAULT, function.as_ptr());
        let mut found: libc::Dl_info = std::mem::zeroed();
        (!symbol.is_null() && libc::dladdr(symbol, &raw mut found) != 0).then(|| found.dli_fbase.addr())
    }
}

/// Whether `bytes` is in memory that glibc's `malloc` manages: in the heap, or inside one chunk that `malloc` allocated
/// by `mmap`. Such a chunk is found by the headers of the chunks in its row of mappings. `is_moved` says whether an
/// area holds moved pages.
///
/// The library never assumes that memory which it has released with `madvise` is zero: for memory of the heap it
/// assumes this only beyond the former break, which is mapped again, and it unmaps chunks. Moved pages keep their bytes
/// when they are released, so only memory of such an allocator may consist of them for an unlimited time.
pub(super) fn is_of_malloc(bytes: &Range<usize>, is_moved: impl Fn(&Area<'_>) -> bool) -> io::Result<bool> {
    let (mut row, mut end) = (Vec::new(), 0);
    areas(0, bytes.end, |area| {
        let fits = area.is_plain() || is_moved(area);
        if !fits || area.start != end {
            row.clear();
        }
        row.extend(fits.then_some(area.start));
        end = area.end;
        Ok(())
    })?;
    if row.is_empty() || end < bytes.end || row[0] > bytes.start {
        return Ok(false);
    }
    if in_heap(bytes)? {
        return Ok(true);
    }
    // Read through a file, since another thread may meanwhile unmap a chunk that precedes this one.
    let memory = File::open("/proc/self/mem")?;
    Ok(row
        .iter()
        .rev()
        .filter(|start| **start <= bytes.start)
        .take(STARTS)
        .any(|start| in_chunk(&memory, *start, bytes)))
}

/// Whether `bytes` lies between the start of the heap and the break.
fn in_heap(bytes: &Range<usize>) -> io::Result<bool> {
    // Fields 47 and on: start_brk is the 47th, see proc(5). The name of the program is in parentheses.
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let start: Option<usize> = fields.split_ascii_whitespace().nth(44).and_then(|field| field.parse().ok());
    // SAFETY: does not change the break.
    let end = unsafe { libc::sbrk(0) }.addr().next_multiple_of(PAGE);
    Ok(start.is_some_and(|start| start != 0 && start <= bytes.start && bytes.end <= end))
}

/// Whether `bytes` is inside one of the consecutive chunks from `at` on. A chunk that is mapped begins with zero and
/// its length, a multiple of the page size, to which the flag `IS_MMAPPED` is added.
fn in_chunk(memory: &File, mut at: usize, bytes: &Range<usize>) -> bool {
    const IS_MMAPPED: usize = 2;
    for _ in 0..CHUNKS {
        let mut header = [0; 2 * size_of::<usize>()];
        if memory.read_exact_at(&mut header, at as u64).is_err() {
            return false;
        }
        let [before, size] = [0, 1]
            .map(|i| header[i * size_of::<usize>()..].first_chunk().map_or(0, |word| usize::from_ne_bytes(*word)));
        let len = size.wrapping_sub(IS_MMAPPED);
        if before != 0 || len == 0 || !len.is_multiple_of(PAGE) {
            return false;
        }
        let Some(end) = at.checked_add(len) else { return false };
        if bytes.start < end {
            return bytes.end <= end;
        }
        at = end;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> Range<usize> {
        let range = bytes.as_ptr_range();
        range.start.addr()..range.end.addr()
    }

    fn is_of_malloc(range: &Range<usize>) -> bool {
        super::is_of_malloc(range, |_| false).unwrap()
    }

    /// Runs in a process of its own, because memory that other tests map right before a chunk hides its header.
    #[test]
    fn memory_of_malloc_is_recognized() {
        const ALONE: &str = "FARSIDE_TEST_ALONE";
        if !malloc_is_of_glibc() {
            println!("skipped: malloc is not that of the GNU C library");
            return;
        }
        if std::env::var_os(ALONE).is_none() {
            let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
            alone.args(["device::shm::malloc::tests::memory_of_malloc_is_recognized", "--exact"]).env(ALONE, "1");
            let output = alone.output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{text}");
            return;
        }
        let long: Vec<Vec<u8>> = (0..20).map(|i| vec![1; (40 << 20) + i * 5000]).collect();
        for bytes in &long {
            let range = of(bytes);
            assert!(is_of_malloc(&range) && is_of_malloc(&(range.start + 70_000..range.end - 1)));
            assert!(!is_of_malloc(&(range.start..range.end + 2 * PAGE)), "more than the chunk");
        }
    }

    #[test]
    fn other_memory_is_not_taken_for_that_of_malloc() {
        let map = memmap2::MmapMut::map_anon(64 * PAGE).unwrap();
        let stack = [0u8; 4 * PAGE];
        assert!(!is_of_malloc(&of(&map)) && !is_of_malloc(&of(&stack)));
        let code = is_of_malloc as fn(&Range<usize>) -> bool as usize;
        assert!(!is_of_malloc(&(code..code + 8)));
    }
    #[test]
    fn threads_are_counted_by_the_c_library() {
        let Some(counter) = thread_counter() else { return println!("skipped: the C library has no counter") };
        let count = || counter.load(std::sync::atomic::Ordering::SeqCst) as usize;
        let of_kernel = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let (stop, start) = (AtomicU32::new(0), std::time::Instant::now());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while stop.load(std::sync::atomic::Ordering::SeqCst) == 0 {
                    std::thread::yield_now();
                }
            });
            // Threads of other tests start and end meanwhile.
            while count() != of_kernel() || count() < 2 {
                assert!(start.elapsed().as_secs() < 60, "{} and {}", count(), of_kernel());
            }
            stop.store(1, std::sync::atomic::Ordering::SeqCst);
        });
    }
}
