//! Reads any bytes as a wire form: the result is an error, or a type map that takes bounded memory, survives a round
//! trip through its own wire form, and packs and unpacks the same bytes as a byte-by-byte walk (under the address
//! sanitizer, which finds accesses outside the message).
#![no_main]

use std::alloc::{GlobalAlloc, Layout, System};
// Relaxed: only one thread accesses it, so it pairs with nothing.
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use farside_datatype::TypeMap;
use libfuzzer_sys::fuzz_target;

/// Maximum number of bytes of a message that is packed and unpacked, and of the memory that it spans.
const MAX_MOVED_BYTES: u64 = 1 << 14;

/// The system's allocator, which counts all requested bytes.
struct Counting;

static ASKED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is forwarded unchanged to `System`.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller fulfils the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller fulfils the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fuzz_target!(|bytes: &[u8]| {
    let before = ASKED.load(Relaxed);
    let parsed = TypeMap::from_wire(bytes);
    // The limit covers all requested bytes, freed or not; every level of nesting may copy its lists once or twice.
    let asked = ASKED.load(Relaxed) - before;
    assert!(asked <= 1024 + 400 * bytes.len(), "{asked} bytes allocated for an input of {}", bytes.len());
    let Ok(map) = parsed else { return };
    assert_eq!(TypeMap::from_wire(&map.to_wire()).as_ref(), Ok(&map));
    for from in [0, map.size() / 3, map.size().saturating_sub(1)] {
        for run in map.runs(from, u64::MAX).take(20) {
            assert!(run.len > 0 && run.offset >= map.true_lb() && run.offset + run.len as i64 <= map.true_ub());
        }
    }
    if map.size() <= MAX_MOVED_BYTES && map.true_ub().abs_diff(map.true_lb()) <= MAX_MOVED_BYTES && map.true_lb().unsigned_abs() <= MAX_MOVED_BYTES {
        moved(&map, bytes.len() as u64);
    }
});

/// Packs and unpacks the message in two pieces, cut at a place that `choice` determines, and compares with a
/// byte-by-byte walk.
fn moved(map: &TypeMap, choice: u64) {
    let origin = map.true_lb().min(0).unsigned_abs() as usize;
    let source: Vec<u8> = (0..origin + map.true_ub().max(0) as usize).map(|i| (i * 7) as u8).collect();
    let places: Vec<usize> =
        map.blocks(0).flat_map(|(at, len)| (at..at + len as i64).map(|at| (at + origin as i64) as usize)).collect();
    let expected: Vec<u8> = places.iter().map(|at| source[*at]).collect();
    let cut = (choice * 31) as usize % (expected.len() + 1);
    let mut packed = vec![0; expected.len()];
    let (head, tail) = packed.split_at_mut(cut);
    assert_eq!(map.pack(&source, origin, 0, head), Ok(head.len()));
    assert_eq!(map.pack(&source, origin, cut as u64, tail), Ok(tail.len()));
    assert_eq!(packed, expected);
    let (mut target, mut wanted) = (vec![9; source.len()], vec![9; source.len()]);
    places.iter().zip(&packed).for_each(|(at, byte)| wanted[*at] = *byte);
    assert_eq!(map.unpack(&packed[..cut], 0, &mut target, origin), Ok(cut));
    assert_eq!(map.unpack(&packed[cut..], cut as u64, &mut target, origin), Ok(packed.len() - cut));
    assert_eq!(target, wanted);
}
