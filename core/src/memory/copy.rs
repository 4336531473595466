#![allow(unsafe_code)]
//! Copies to and from memory that other ranks may access at the same time.
//!
//! Words are accessed by atomics, the blocks of layouts by volatile accesses and inline assembly, and all other bytes
//! by a function that is opaque to the compiler. The accesses are thus in the same class as an HCA writing memory: a
//! conflicting access may yield torn values (as MPI allows), but the compiler makes no assumption that could be
//! violated. No slice over such memory is made.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::Block;

type CopyFn = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;

/// Maximum length for which copying word by word costs less than a call.
pub const MAX_WORD_COPY: usize = 64;

/// Length of the parts in which bytes are stored to cache lines that another core has used. The C library copies longer
/// ranges by a string instruction, which waits for each such line, while stores wait for many at a time.
const PART: usize = 2 << 10;
/// Maximum length of a [`store`] that is made in parts. The caches limit a longer one more than the lines do.
const IN_PARTS: usize = 16 << 10;

#[inline(never)]
unsafe fn opaque_copy(from: *const u8, to: *mut u8, len: usize) {
    let copy: CopyFn = std::hint::black_box(libc::memcpy as CopyFn);
    // SAFETY: the caller guarantees both ranges.
    unsafe { copy(to.cast(), from.cast(), len) };
}

/// An unaligned value.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Unaligned<T>(T);

/// Register moves, as inline assembly: volatile accesses to a vector type without alignment would go through the stack.
macro_rules! register_moves {
    ($($(#[$attribute:meta])* $name:ident: $bytes:literal, $instruction:literal, $class:ident;)*) => {
        $(
            /// # Safety
            /// The contract of [`bytes`], for the bytes of the register.
            #[cfg(target_arch = "x86_64")]
            $(#[$attribute])*
            unsafe fn $name(from: *const u8, to: *mut u8) {
                // SAFETY: by the contract.
                unsafe {
                    std::arch::asm!(
                        concat!($instruction, " {word}, [{from}]"),
                        concat!($instruction, " [{to}], {word}"),
                        word = out($class) _,
                        from = in(reg) from,
                        to = in(reg) to,
                        options(nostack, preserves_flags),
                    );
                }
            }
            /// # Safety
            /// The contract of [`bytes`], for `$bytes` bytes.
            #[cfg(not(target_arch = "x86_64"))]
            #[inline(always)]
            unsafe fn $name(from: *const u8, to: *mut u8) {
                for at in (0..$bytes).step_by(8) {
                    // SAFETY: by the contract; the type has no alignment and no invalid values.
                    unsafe {
                        let word = from.add(at).cast::<Unaligned<u64>>().read_volatile();
                        to.add(at).cast::<Unaligned<u64>>().write_volatile(word);
                    }
                }
            }
        )*
    };
}
register_moves! {
    #[inline(always)] sixteen: 16, "movups", xmm_reg;
    #[inline] #[target_feature(enable = "avx2")] sixteen_of_wide: 16, "vmovups", xmm_reg;
    #[inline] #[target_feature(enable = "avx2")] thirty_two: 32, "vmovups", ymm_reg;
}

/// Copies `N` bytes (at most 64) of memory that other code may access on either side: each byte is read once and
/// written once, and the compiler assumes nothing about the values. `WIDE` is for functions with AVX2 enabled.
///
/// # Safety
/// The contract of [`bytes`], for `N` bytes; `WIDE` only on a processor with AVX2.
#[inline(always)]
pub unsafe fn words<const N: usize, const WIDE: bool>(from: *const u8, to: *mut u8) {
    let mut at = 0;
    // SAFETY: parts of both ranges.
    unsafe {
        while WIDE && N - at >= 32 {
            thirty_two(from.add(at), to.add(at));
            at += 32;
        }
        while N - at >= 16 {
            if WIDE {
                sixteen_of_wide(from.add(at), to.add(at));
            } else {
                sixteen(from.add(at), to.add(at));
            }
            at += 16;
        }
    }
    macro_rules! words {
        ($($word:ty),*) => {
            $(while N - at >= size_of::<$word>() {
                // SAFETY: a part of both ranges; the types have no alignment and no invalid values.
                unsafe {
                    let word = from.add(at).cast::<Unaligned<$word>>().read_volatile();
                    to.add(at).cast::<Unaligned<$word>>().write_volatile(word);
                }
                at += size_of::<$word>();
            })*
        };
    }
    words!(u64, u32, u16, u8);
}

/// Copies `len` bytes of memory that other code may access on either side, with a call of the C library.
///
/// # Safety
/// `from` is valid for reads and `to` for writes of `len` bytes, at any alignment; concurrent accesses to either range
/// are made only through this module, by atomics or by devices; the ranges are disjoint.
#[inline(always)]
pub unsafe fn bytes(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: by the contract.
    unsafe { opaque_copy(from, to, len) };
}

/// [`bytes`] to cache lines that another core has used.
///
/// # Safety
/// The contract of [`bytes`].
pub unsafe fn foreign(mut from: *const u8, mut to: *mut u8, mut len: usize) {
    // SAFETY: parts of both ranges.
    unsafe {
        while len > PART {
            opaque_copy(from, to, PART);
            (from, to, len) = (from.add(PART), to.add(PART), len - PART);
        }
        opaque_copy(from, to, len);
    }
}

/// Writes `len` private bytes to memory that other code may access. Words of 1, 2, 4 and 8 bytes at aligned targets are
/// never torn.
///
/// # Safety
/// `from` is valid for reads of `len` bytes that are not written concurrently; `to` is valid for writes of `len` bytes
/// and is accessed by other code only through this module, by atomics or by devices; the ranges are disjoint.
#[inline(always)]
pub unsafe fn store(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: by the contract; the alignment of `to` is checked before it is accessed as an atomic. Relaxed: the
    // Release store of the signal that follows makes the bytes visible.
    unsafe {
        if len == 8 && to.addr() & 7 == 0 {
            AtomicU64::from_ptr(to.cast()).store(from.cast::<u64>().read_unaligned(), Ordering::Relaxed);
        } else {
            store_other(from, to, len);
        }
    }
}

/// # Safety
/// The contract of [`store`].
unsafe fn store_other(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the contract of `store`.
    unsafe {
        match len {
            // Relaxed: the Release of the signal that follows pairs with its reader's Acquire.
            1 => AtomicU8::from_ptr(to).store(from.read(), Ordering::Relaxed),
            // Relaxed: the Release of the signal that follows pairs with its reader's Acquire.
            2 if to.addr() & 1 == 0 => {
                AtomicU16::from_ptr(to.cast()).store(from.cast::<u16>().read_unaligned(), Ordering::Relaxed);
            }
            // Relaxed: the Release of the signal that follows pairs with its reader's Acquire.
            4 if to.addr() & 3 == 0 => {
                AtomicU32::from_ptr(to.cast()).store(from.cast::<u32>().read_unaligned(), Ordering::Relaxed);
            }
            0 => {}
            _ if len <= MAX_WORD_COPY && to.addr() & 7 == 0 => {
                let words = len & !7;
                // Relaxed: the Release of the signal that follows pairs with its reader's Acquire.
                for at in (0..words).step_by(8) {
                    let word = from.add(at).cast::<u64>().read_unaligned();
                    AtomicU64::from_ptr(to.add(at).cast()).store(word, Ordering::Relaxed);
                }
                // Relaxed: the Release of the signal that follows pairs with its reader's Acquire.
                for at in words..len {
                    AtomicU8::from_ptr(to.add(at)).store(from.add(at).read(), Ordering::Relaxed);
                }
            }
            _ if len <= IN_PARTS => foreign(from, to, len),
            _ => opaque_copy(from, to, len),
        }
    }
}

/// Reads `len` bytes of memory that other code may access into private memory. Words are never torn under the
/// conditions of [`store`].
///
/// # Safety
/// The contract of [`store`], with the roles of `from` and `to` exchanged.
#[inline(always)]
pub unsafe fn load(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: by the contract; the alignment of `from` is checked before it is accessed as an atomic. Relaxed: the
    // Acquire load of the preceding signal makes the values current.
    unsafe {
        if len == 8 && from.addr() & 7 == 0 {
            let v = AtomicU64::from_ptr(from.cast_mut().cast()).load(Ordering::Relaxed);
            to.cast::<u64>().write_unaligned(v);
        } else {
            load_other(from, to, len);
        }
    }
}

/// # Safety
/// The contract of [`load`].
unsafe fn load_other(from: *const u8, to: *mut u8, len: usize) {
    let from = from.cast_mut();
    // SAFETY: the contract of `load`.
    unsafe {
        match len {
            // Relaxed: the Acquire of the preceding signal pairs with its writer's Release.
            1 => to.write(AtomicU8::from_ptr(from).load(Ordering::Relaxed)),
            // Relaxed: the Acquire of the preceding signal pairs with its writer's Release.
            2 if from.addr() & 1 == 0 => {
                to.cast::<u16>().write_unaligned(AtomicU16::from_ptr(from.cast()).load(Ordering::Relaxed));
            }
            // Relaxed: the Acquire of the preceding signal pairs with its writer's Release.
            4 if from.addr() & 3 == 0 => {
                to.cast::<u32>().write_unaligned(AtomicU32::from_ptr(from.cast()).load(Ordering::Relaxed));
            }
            0 => {}
            _ if len <= MAX_WORD_COPY && from.addr() & 7 == 0 => {
                let words = len & !7;
                // Relaxed: the Acquire of the preceding signal pairs with its writer's Release.
                for at in (0..words).step_by(8) {
                    let word = AtomicU64::from_ptr(from.add(at).cast()).load(Ordering::Relaxed);
                    to.add(at).cast::<u64>().write_unaligned(word);
                }
                // Relaxed: the Acquire of the preceding signal pairs with its writer's Release.
                for at in words..len {
                    to.add(at).write(AtomicU8::from_ptr(from.add(at)).load(Ordering::Relaxed));
                }
            }
            _ => opaque_copy(from, to, len),
        }
    }
}

/// Appends a header and the bytes of blocks, which other code may access, to private bytes.
///
/// # Safety
/// The blocks are valid for reads.
pub unsafe fn gather(header: &[u8], blocks: &[Block], to: &mut Vec<u8>) {
    to.extend_from_slice(header);
    for block in blocks {
        let at = to.len();
        to.resize(at + block.len, 0);
        // SAFETY: a valid block by the contract; the vector has just been extended by its length.
        unsafe { load(block.base, to[at..].as_mut_ptr(), block.len) };
    }
}

/// Copies private bytes to blocks, which other code may access.
///
/// # Safety
/// The blocks are valid for writes.
///
/// # Panics
/// If the blocks have more bytes.
pub unsafe fn scatter(mut bytes: &[u8], into: &[Block]) {
    for block in into {
        let (part, rest) = bytes.split_at(block.len);
        // SAFETY: a valid block by the contract.
        unsafe { store(part.as_ptr(), block.base, block.len) };
        bytes = rest;
    }
}

/// Compares and swaps an integer of `len` bytes, whose value is zero-extended; returns the previous value.
///
/// # Safety
/// `at` is valid, aligned to `len`, and accessed by other code only through atomics or this module.
///
/// # Panics
/// If `len` is not 1, 2, 4 or 8.
pub unsafe fn compare_swap(at: *mut u8, len: usize, expected: u64, desired: u64) -> u64 {
    macro_rules! swap {
        ($atomic:ty, $int:ty) => {{
            // SAFETY: by the contract.
            let cell = unsafe { <$atomic>::from_ptr(at.cast()) };
            match cell.compare_exchange(expected as $int, desired as $int, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(old) | Err(old) => u64::from(old),
            }
        }};
    }
    match len {
        1 => swap!(AtomicU8, u8),
        2 => swap!(AtomicU16, u16),
        4 => swap!(AtomicU32, u32),
        8 => swap!(AtomicU64, u64),
        _ => panic!("integers of {len} bytes are not supported, only of 1, 2, 4 or 8"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied<const N: usize>() {
        copied_by::<N>(words::<N, false>);
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            copied_by::<N>(words::<N, true>);
        }
    }

    fn copied_by<const N: usize>(words: unsafe fn(*const u8, *mut u8)) {
        let from: Vec<u8> = (0..100).collect();
        for (skip, at) in [(0, 0), (1, 0), (3, 8), (8, 5)] {
            let mut to = vec![200; 100];
            // SAFETY: inside both vectors, on a processor that has the registers.
            unsafe { words(from.as_ptr().add(skip), to.as_mut_ptr().add(at)) };
            assert_eq!(to[at..at + N], from[skip..skip + N]);
            assert!(to[..at].iter().chain(&to[at + N..]).all(|byte| *byte == 200), "{N} bytes");
        }
    }

    #[test]
    fn words_copies_exactly_its_bytes() {
        copied::<1>();
        copied::<2>();
        copied::<4>();
        copied::<8>();
        copied::<15>();
        copied::<16>();
        copied::<32>();
        copied::<63>();
        copied::<64>();
    }
}
