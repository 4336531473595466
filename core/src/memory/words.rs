#![allow(unsafe_code)]
//! Atomic words and cache lines that ranks share. The protocols between ranks are generic over them: in production the
//! words are in mapped memory, in tests they are those of `loom`, which runs the same code through every interleaving.

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::segment::{Line, Mapping};
use super::{Block, copy};

/// An atomic integer with the operations of the standard library's atomics.
#[allow(missing_docs)]
pub trait Word<T = u64> {
    fn load(&self, order: Ordering) -> T;
    fn store(&self, value: T, order: Ordering);
    fn swap(&self, value: T, order: Ordering) -> T;
    fn fetch_add(&self, value: T, order: Ordering) -> T;
    /// # Errors
    /// The value found, if it differs from `current`.
    fn compare_exchange(&self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T>;
}

/// Implements [`Word`] for a type by its methods of the same names.
macro_rules! word {
    ($atomic:ty, $value:ty) => {
        impl Word<$value> for $atomic {
            #[inline(always)]
            fn load(&self, order: Ordering) -> $value {
                self.load(order)
            }
            #[inline(always)]
            fn store(&self, value: $value, order: Ordering) {
                self.store(value, order);
            }
            #[inline(always)]
            fn swap(&self, value: $value, order: Ordering) -> $value {
                self.swap(value, order)
            }
            #[inline(always)]
            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.fetch_add(value, order)
            }
            #[inline(always)]
            fn compare_exchange(&self, a: $value, b: $value, yes: Ordering, no: Ordering) -> Result<$value, $value> {
                self.compare_exchange(a, b, yes, no)
            }
        }
    };
}
word!(AtomicU64, u64);
word!(AtomicU32, u32);

/// Prefetches for writing a cache line that other ranks hold, so that the following write does not wait for it.
#[inline(always)]
pub(crate) fn fetch_to_write(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch hint has no effect that a program can observe; processors without it ignore it.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Prefetches for reading a cache line that another rank has written, so that the following read does not wait for it.
#[inline(always)]
pub(crate) fn fetch(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch hint has no effect that a program can observe, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Memory made of atomic words, such as [`Mapping`].
pub(crate) trait Memory {
    type Word: Word;
    type Line: Deref<Target = [Self::Word; 8]>;

    /// The word at byte `offset`.
    fn word(&self, offset: usize) -> &Self::Word;

    /// `N` words of a cache line, from byte `offset` on.
    fn words<const N: usize>(&self, offset: usize) -> &[Self::Word; N];

    /// The words of the cache line at byte `offset`.
    fn line(&self, offset: usize) -> Self::Line;

    /// Stores a packet, header and blocks back to back, at byte `offset`; `foreign` if another core has used the cache
    /// lines last.
    ///
    /// # Safety
    /// The blocks are valid for reads, and nothing else accesses the memory in the meantime.
    unsafe fn store_packet(&self, offset: usize, header: &[u8], body: &[Block], foreign: bool);

    /// Fills `packet` with the bytes at `offset`.
    ///
    /// # Safety
    /// Nothing writes the memory in the meantime.
    unsafe fn load_packet(&self, offset: usize, packet: &mut [u8]);
}

/// Stores the bytes of a packet, header and blocks back to back; `foreign` if another core has used the cache lines last.
///
/// # Safety
/// The blocks are valid for reads, and `to` is valid for the whole packet by the contract of [`copy::store`].
#[inline(always)]
pub(crate) unsafe fn store_packet(header: &[u8], body: &[Block], mut to: *mut u8, foreign: bool) {
    // SAFETY: by the contract.
    unsafe { copy::store(header.as_ptr(), to, header.len()) };
    to = to.wrapping_add(header.len());
    for block in body.iter().filter(|block| block.len > 0) {
        let copy = match block.len {
            ..=copy::MAX_WORD_COPY => copy::store,
            _ if foreign => copy::foreign,
            _ => copy::bytes,
        };
        // SAFETY: as above.
        unsafe { copy(block.base, to, block.len) };
        to = to.wrapping_add(block.len);
    }
}

impl Memory for Mapping {
    type Word = AtomicU64;
    type Line = Line;

    #[inline(always)]
    fn word(&self, offset: usize) -> &AtomicU64 {
        self.word(offset)
    }

    #[inline(always)]
    fn words<const N: usize>(&self, offset: usize) -> &[AtomicU64; N] {
        self.words(offset)
    }

    fn line(&self, offset: usize) -> Line {
        self.line(offset)
    }

    #[inline(always)]
    unsafe fn store_packet(&self, offset: usize, header: &[u8], body: &[Block], foreign: bool) {
        // SAFETY: the same contract.
        unsafe { store_packet(header, body, self.at(offset), foreign) };
    }

    #[inline(always)]
    unsafe fn load_packet(&self, offset: usize, packet: &mut [u8]) {
        // SAFETY: the same contract.
        unsafe { copy::load(self.at(offset), packet.as_mut_ptr(), packet.len()) };
    }
}
