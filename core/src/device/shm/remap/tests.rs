#![allow(unsafe_code)]
//! Tests of moved pages.

use memmap2::MmapMut;

use super::super::views::Views;
use super::*;
use crate::memory::segment::{Mapping, Pages, Segment, open};
use crate::stats::Stats;

fn anonymous(pages: usize) -> MmapMut {
    MmapMut::map_anon(pages * PAGE).unwrap()
}

fn range(bytes: &mut [u8]) -> Range<usize> {
    let range = bytes.as_mut_ptr_range();
    range.start.expose_provenance()..range.end.expose_provenance()
}

/// Moves the whole pages of a buffer that no other code uses.
fn take(pages: &mut MovedPages, bytes: &mut [u8], lasting: bool) -> Option<Range<usize>> {
    let inner = pages_in(&range(bytes));
    // SAFETY: borrowed exclusively.
    let moved = unsafe { pages.take(&inner, lasting) }.unwrap();
    moved.map(|_| inner)
}

fn move_back(pages: &mut MovedPages, range: &Range<usize>) -> usize {
    // SAFETY: the tests use their buffers in one thread.
    unsafe { pages.move_back(range) }.unwrap()
}

fn peer(pages: &MovedPages, range: &Range<usize>) -> Mapping {
    open(pages.name(std::process::id(), range), Pages::WhenTouched, 0).unwrap()
}

/// Number of bytes of memory that a file occupies.
fn in_memory(pages: &MovedPages) -> usize {
    pages.file.metadata().unwrap().blocks() as usize * 512
}

#[test]
fn moved_pages_are_shared_until_they_are_moved_back() {
    let mut buffer: Vec<u8> = (0..10 * PAGE).map(|i| i as u8).collect();
    let mut pages = MovedPages::new(false).unwrap();
    let moved = take(&mut pages, &mut buffer, false).expect("whole pages");
    assert!(moved.len() >= 8 * PAGE);
    let (peer, at) = (peer(&pages, &moved), moved.start - buffer.as_ptr().addr());
    // SAFETY: inside the peer's mapping and inside the buffer.
    unsafe {
        peer.at(5).write_volatile(99);
        assert_eq!(buffer.as_ptr().add(at + 5).read_volatile(), 99);
        assert_eq!(move_back(&mut pages, &moved), 0);
        peer.at(6).write_volatile(98);
    }
    for (i, b) in buffer.iter().enumerate() {
        assert_eq!(*b, if i == at + 5 { 99 } else { i as u8 }, "byte {i}");
    }
}

#[test]
fn parts_that_were_moved_one_after_the_other_are_one_mapping_of_a_peer() {
    let (mut buffer, mut pages) = (anonymous(12), MovedPages::new(true).unwrap());
    buffer.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i / PAGE) as u8);
    let all = range(&mut buffer);
    for part in [2..4, 6..9, 0..12] {
        assert!(take(&mut pages, &mut buffer[part.start * PAGE..part.end * PAGE], false).is_some());
    }
    assert_eq!(pages.extents.within(&all).collect::<Vec<_>>(), [(all.clone(), false)]);
    if pages.is_watched() {
        assert_eq!(pages.find(&(all.start + 5..all.end - 5)), Some(all.start + 5..all.end - 5));
    }
    let peer = peer(&pages, &all);
    for page in 0..12 {
        // SAFETY: inside the peer's mapping.
        assert_eq!(unsafe { peer.at(page * PAGE).read_volatile() }, page as u8);
    }
    assert_eq!(move_back(&mut pages, &all), 0);
    assert_eq!((pages.extents.len(), in_memory(&pages), buffer[11 * PAGE]), (0, 0, 11));
}

#[test]
fn untouched_pages_are_not_made() {
    let (mut buffer, mut pages) = (anonymous(1000), MovedPages::new(false).unwrap());
    for page in [3, 4, 500, 999] {
        buffer[page * PAGE] = page as u8;
    }
    let moved = take(&mut pages, &mut buffer, false).expect("whole pages");
    let expected = |touched| if segment::overcommit_is_strict() { 1000 * PAGE } else { touched * PAGE };
    assert_eq!((moved.len(), in_memory(&pages)), (1000 * PAGE, expected(4)));
    let peer = peer(&pages, &moved);
    // SAFETY: inside the peer's mapping.
    unsafe { peer.at(700 * PAGE).write_volatile(7) };
    assert_eq!(in_memory(&pages), expected(5));
    assert_eq!(move_back(&mut pages, &moved), 0);
    assert_eq!(in_memory(&pages), 0);
    let set = [(3, 3), (4, 4), (500, 500 % 256), (700, 7), (999, 999 % 256)];
    for page in 0..1000 {
        let expected = set.iter().find(|(at, _)| *at == page).map_or(0, |(_, value)| *value as u8);
        assert_eq!(buffer[page * PAGE], expected, "page {page}");
    }
    let resident = touched(buffer.as_ptr().addr(), buffer.len()).into_iter().map(|run| run.len()).sum::<usize>();
    assert!(resident >= 5 * PAGE);
}

/// With a watch, `settle` drops pages that were unmapped; without a watch, the next call that uses them does.
#[test]
fn pages_that_the_program_has_unmapped_or_replaced_are_left_alone() {
    for is_watched in [false, true] {
        let (mut buffer, mut pages) = (anonymous(12), MovedPages::new(is_watched).unwrap());
        buffer.fill(1);
        let moved = take(&mut pages, &mut buffer, false).expect("whole pages");
        let base = buffer.as_mut_ptr();
        // SAFETY: no other code uses the buffer; the part that is unmapped is mapped again before the buffer is
        // dropped.
        unsafe {
            munmap(base.add(2 * PAGE).cast(), 3 * PAGE).unwrap();
            let (flags, other) = (MapFlags::PRIVATE | MapFlags::FIXED, base.add(6 * PAGE));
            mmap_anonymous(other.cast(), 2 * PAGE, RIGHTS, flags).unwrap();
            other.write_volatile(5);
            if pages.is_watched() {
                pages.settle(true);
                assert_eq!(pages.extents.bytes(false), 7 * PAGE);
                assert_eq!((move_back(&mut pages, &moved), in_memory(&pages)), (0, 0));
            } else {
                assert_eq!((move_back(&mut pages, &moved), in_memory(&pages)), (5 * PAGE, 0));
            }
            assert_eq!((other.read_volatile(), base.read_volatile(), base.add(8 * PAGE).read_volatile()), (5, 1, 1));
            assert!(!is_plain(&moved).unwrap());
            mmap_anonymous(base.add(2 * PAGE).cast(), 3 * PAGE, RIGHTS, flags).unwrap();
            assert!(is_plain(&moved).unwrap());
        }
    }
}

/// An allocation of `malloc` that it has obtained by `mmap`.
fn chunk(value: u8) -> Vec<u8> {
    // Longer than the maximum of the threshold that `malloc` adapts.
    vec![value; 40 << 20]
}

/// Lasting pages; `None`, with a message, if this machine has none.
fn lasting(buffer: &mut [u8]) -> Option<(MovedPages, Range<usize>)> {
    let mut pages = MovedPages::new(true).unwrap();
    let moved = take(&mut pages, buffer, true);
    let can = pages.is_watched() && pages.malloc_is_of_glibc;
    assert_eq!(moved.is_some(), can);
    if !can {
        println!("skipped: memory cannot be watched, or malloc is not that of the GNU C library");
    }
    Some((pages, moved?))
}

#[test]
fn freed_buffer_is_dropped_and_uses_no_memory() {
    let mut buffer = chunk(3);
    let Some((mut pages, moved)) = lasting(&mut buffer) else { return };
    assert_eq!((pages.find(&moved), pages.lasting_bytes()), (Some(moved.clone()), moved.len()));
    drop(buffer);
    pages.settle(true);
    assert_eq!((pages.find(&moved), pages.lasting_bytes(), in_memory(&pages)), (None, 0, 0));
    let mut again = chunk(4);
    let moved = take(&mut pages, &mut again, true).unwrap();
    assert_eq!(pages.find(&moved), Some(moved));
    assert!(again.iter().all(|byte| *byte == 4));
}

/// All pages of a chunk are moved, so `realloc` could move or extend their mapping, over parts of the file that
/// belong to other addresses.
#[test]
fn buffer_that_grows_is_copied() {
    let mut buffer = chunk(3);
    let len = buffer.len();
    let mut pages = MovedPages::new(true).unwrap();
    let bytes = range(&mut buffer);
    let outer = bytes.start / PAGE * PAGE..bytes.end.next_multiple_of(PAGE);
    // SAFETY: the pages belong to the chunk alone.
    if unsafe { pages.take(&outer, true) }.unwrap().is_none() {
        println!("skipped: memory cannot be watched, or malloc is not that of the GNU C library");
        return;
    }
    pages.settle(true);
    buffer.reserve_exact(3 * len);
    buffer.resize(4 * len, 5);
    pages.settle(true);
    assert_eq!((pages.lasting_bytes(), in_memory(&pages), pages.elsewhere.len()), (0, 0, 0));
    assert!(buffer.iter().enumerate().all(|(i, byte)| *byte == if i < len { 3 } else { 5 }));
}

/// A part of the file that is mapped at another address is not freed. Until it is unmapped there, the pages at its
/// former address cannot be moved again.
#[test]
fn part_of_the_file_that_is_mapped_elsewhere_is_not_used_again() {
    let (mut buffer, mut pages) = (anonymous(8), MovedPages::new(true).unwrap());
    buffer.fill(6);
    let moved = take(&mut pages, &mut buffer[..4 * PAGE], false).unwrap();
    let target = anonymous(3);
    // SAFETY: replaces a mapping of this test, and maps the former address again.
    unsafe {
        let from = buffer.as_mut_ptr().cast();
        let flags = MremapFlags::MAYMOVE;
        mremap_fixed(from, 3 * PAGE, 3 * PAGE, flags, target.as_ptr().cast_mut().cast()).unwrap();
        mmap_anonymous(from, 4 * PAGE, RIGHTS, MapFlags::PRIVATE | MapFlags::FIXED).unwrap();
    }
    pages.settle(true);
    buffer[..4 * PAGE].fill(9);
    assert!(take(&mut pages, &mut buffer[..4 * PAGE], false).is_none());
    assert!(target.iter().all(|byte| *byte == 6));
    drop(target);
    pages.settle(true);
    assert_eq!(in_memory(&pages), 0);
    assert_eq!(take(&mut pages, &mut buffer[..4 * PAGE], false), Some(moved));
    assert!(buffer[..4 * PAGE].iter().all(|byte| *byte == 9));
}

/// A descriptor that cannot be mapped for reading: pages are written to the file, and then cannot be exchanged.
#[test]
fn file_has_no_copy_of_pages_that_could_not_be_exchanged() {
    let (mut buffer, mut pages) = (anonymous(8), MovedPages::new(false).unwrap());
    buffer.fill(6);
    let path = format!("/proc/self/fd/{}", pages.file.as_raw_fd());
    let open = |options: &mut std::fs::OpenOptions| Arc::new(options.open(&path).unwrap());
    let only_written = open(File::options().write(true));
    let file = std::mem::replace(&mut pages.file, only_written);
    // SAFETY: no other code uses the buffer.
    unsafe { pages.take(&range(&mut buffer), false) }.unwrap_err();
    assert_eq!((in_memory(&pages), pages.extents.len()), (0, 0));
    assert!(buffer.iter().all(|byte| *byte == 6));
    pages.file = file;
    assert!(take(&mut pages, &mut buffer, false).is_some());
}

#[test]
fn memory_that_a_rank_of_this_process_has_mapped_is_forgotten_when_it_is_freed() {
    let mut buffer = chunk(3);
    let Some((mut pages, moved)) = lasting(&mut buffer) else { return };
    let (mut views, stats) = (Views::default(), Stats::default());
    let seen = views.find(1, pages.name(std::process::id(), &moved), &stats).unwrap();
    // SAFETY: a byte of the mapping.
    assert_eq!(unsafe { seen.base().read_volatile() }, 3);
    drop(buffer);
    pages.settle(true);
    assert_eq!((pages.elsewhere.len(), in_memory(&pages)), (0, 0));
    assert!(take(&mut pages, &mut chunk(4), true).is_some());
    let listed = || fork::views().iter().any(|view| view.contains(&seen.base().addr()));
    assert!(listed());
    drop(views);
    assert!(listed());
    let at = seen.base().addr();
    drop(seen);
    assert!(!fork::views().iter().any(|view| view.contains(&at)));
}

#[test]
fn memory_that_is_bound_to_a_node_is_left_alone() {
    let (mut buffer, mut pages) = (anonymous(8), MovedPages::new(false).unwrap());
    let (middle, preferred, none) = (buffer[2 * PAGE..].as_mut_ptr(), 1, null_mut::<libc::c_ulong>());
    // SAFETY: pages of the buffer; no nodes are named.
    let rc = unsafe { libc::syscall(libc::SYS_mbind, middle, 2 * PAGE, preferred, none, 0, 0) };
    if rc != 0 {
        println!("skipped: no policies of memory: {}", io::Error::last_os_error());
        return;
    }
    assert!(take(&mut pages, &mut buffer, false).is_none());
    assert!(take(&mut pages, &mut buffer[..2 * PAGE], false).is_some());
}

#[test]
fn memory_of_other_allocators_does_not_stay_moved() {
    let (mut buffer, mut pages) = (anonymous(8), MovedPages::new(true).unwrap());
    assert!(take(&mut pages, &mut buffer, true).is_none());
    assert!(take(&mut pages, &mut buffer, false).is_some());
}

#[test]
fn shared_mappings_and_more_parts_than_there_may_be_are_left_alone() {
    let mut pages = MovedPages::new(false).unwrap();
    let shared = Segment::sparse("/dev/shm".as_ref(), 4 * PAGE, PAGE).unwrap();
    let base = shared.mapping().at(0).addr();
    // SAFETY: no other code uses the memory.
    assert!(unsafe { pages.take(&(base..base + 4 * PAGE), false) }.unwrap().is_none());
    let mut buffer = anonymous(2 * MAX_MOVED_PARTS + 2);
    let mut page = |i: usize| take(&mut pages, &mut buffer[i * PAGE..(i + 1) * PAGE], false).is_some();
    assert!((0..MAX_MOVED_PARTS).all(|i| page(2 * i)) && !page(2 * MAX_MOVED_PARTS));
}
