//! A datatype takes a few words, independent of its counts, and a walk over it allocates nothing.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use farside_datatype::{Datatype, Named};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

/// The system allocator with a counter per thread, so that the test harness does not affect it.
struct Counting;

// SAFETY: every call is forwarded unchanged to `System`; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        BYTES.set(BYTES.get().wrapping_add(layout.size()));
        // SAFETY: the caller fulfils the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.set(BYTES.get().wrapping_sub(layout.size()));
        // SAFETY: the caller fulfils the contract of `GlobalAlloc::dealloc`; the memory came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn datatype_of_ten_million_blocks_below_200_bytes() {
    const BLOCKS: u64 = if cfg!(miri) { 10_000 } else { 10_000_000 };
    drop(std::hint::black_box(Box::new(0)));
    assert!(ALLOCATIONS.get() > 0, "the allocator does not count");
    let before = BYTES.get();
    let vector = Datatype::vector(BLOCKS, 1, 3, &Named::Double.into()).unwrap();
    let held = BYTES.get().wrapping_sub(before);
    assert!(held > 0, "the allocator does not count");
    assert!(held + size_of::<Datatype>() < 200, "{held} bytes");
    assert_eq!((vector.size(), vector.extent()), (BLOCKS * 8, (BLOCKS as i64 - 1) * 24 + 8));

    // A walk allocates nothing either.
    let message = vector.message(1).unwrap();
    let before = ALLOCATIONS.get();
    assert_eq!(message.blocks(0).count() as u64, BLOCKS);
    assert_eq!(message.blocks(BLOCKS * 8 - 3).next(), Some(((BLOCKS as i64 - 1) * 24 + 5, 3)));
    assert_eq!(ALLOCATIONS.get(), before);
}
