//! What a layout costs: no heap, whatever it describes; and a datatype: a few words.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout as Request, System};
use std::cell::Cell;

use farside_datatype::{Datatype, Layout, Named, pair_blocks};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, with a count per thread, so that the test harness does not disturb.
struct Counting;

// SAFETY: every call goes to `System` as it came; the count allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, request: Request) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        BYTES.set(BYTES.get().wrapping_add(request.size()));
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(request) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, request: Request) {
        BYTES.set(BYTES.get().wrapping_sub(request.size()));
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

#[test]
fn datatype_of_ten_million_blocks_below_200_bytes() {
    const BLOCKS: u64 = 10_000_000;
    let before = BYTES.get();
    let vector = Datatype::vector(BLOCKS, 1, 3, &Named::Double.into()).unwrap();
    let held = BYTES.get().wrapping_sub(before);
    assert!(held > 0, "the counter does not count");
    assert!(held + size_of::<Datatype>() < 200, "{held} bytes");
    assert_eq!((vector.size(), vector.extent()), (BLOCKS * 8, (BLOCKS as i64 - 1) * 24 + 8));

    // Walking it allocates nothing either.
    let message = vector.message(1).unwrap();
    let before = ALLOCATIONS.get();
    assert_eq!(message.blocks(0).count() as u64, BLOCKS);
    assert_eq!(message.blocks(BLOCKS * 8 - 3).next(), Some(((BLOCKS as i64 - 1) * 24 + 5, 3)));
    assert_eq!(ALLOCATIONS.get(), before);
}
