#![allow(unsafe_code)]
//! Words that announce data, written by a peer's processor or by an HCA.

use std::sync::atomic::{AtomicU64, Ordering};

/// Reads a word that a peer or its HCA writes after data that it announces: the data is read afterwards.
///
/// An acquiring load orders the accesses of processors. The HCA is no processor: on aarch64 it is outside the inner
/// shareable domain to which such loads apply, and reads of what it has written take a barrier of the outer one, as in
/// `udma_from_device_barrier` of rdma-core and `dma_rmb` of Linux. On x86-64 the load is enough.
#[inline(always)]
pub(crate) fn arrived(word: &AtomicU64) -> u64 {
    // Acquire: pairs with the Release of the processor that set the word.
    let value = word.load(Ordering::Acquire);
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier, which changes neither registers nor memory.
    unsafe {
        std::arch::asm!("dmb oshld", options(nostack, preserves_flags));
    }
    value
}
