//! What a layout costs: no heap, whatever it describes.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout as Request, System};
use std::cell::Cell;

use farside_datatype::{Layout, pair_blocks};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, with a count per thread, so that the test harness does not disturb.
struct Counting;

// SAFETY: every call goes to `System` as it came; the count allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, request: Request) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(request) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, request: Request) {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`; the memory came from `System`.
        unsafe { System.dealloc(pointer, request) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn ten_million_blocks_no_heap() {
    const BLOCKS: usize = 10_000_000;
    drop(Box::new(0));
    let before = ALLOCATIONS.get();
    assert!(before > 0, "the counter does not count");

    let vector = Layout::strided(BLOCKS, 8, 24).unwrap();
    let packed = Layout::contiguous(vector.size());
    let (mut count, mut last) = (0, (0, 0, 0));
    for piece in pair_blocks(&vector, &packed).unwrap() {
        count += 1;
        last = piece;
    }
    let tail = vector.blocks(vector.size() - 3).next();

    assert_eq!(ALLOCATIONS.get(), before);
    assert_eq!((count, last), (BLOCKS, ((BLOCKS - 1) * 24, (BLOCKS - 1) * 8, 8)));
    assert_eq!(tail, Some(((BLOCKS - 1) * 24 + 5, 3)));
    assert!(size_of::<Layout>() < 200, "{}", size_of::<Layout>());
}
