#![allow(unsafe_code)]
//! Sleeping and waking across processes.
//!
//! The sleeper announces itself, makes sure that everyone sees the announcement, looks once more whether what
//! it waits for has happened, and sleeps. A waker writes what the sleeper waits for and then looks at the
//! announcement. Between these two steps the waker needs no fence where `membarrier` works: the sleeper's
//! system call puts one into every thread of every registered process, so the price is paid by who sleeps.

use std::sync::atomic::{AtomicU32, Ordering, compiler_fence, fence};
use std::time::Duration;

use super::layout::{DOORBELL, SLEEPING};
use crate::memory::segment::Mapping;
use crate::stats::{Kind, Stats};

/// Sleeps while `word` is `expected`, for at most `limit`.
pub(super) fn futex_wait(word: &AtomicU32, expected: u32, limit: Duration) {
    let limit = libc::timespec {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(limit.subsec_nanos() as i32),
    };
    // SAFETY: a live word and a live timespec; no FUTEX_PRIVATE_FLAG, since the word is shared by processes.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, &raw const limit) };
}

/// Wakes who sleeps on `word`.
pub(super) fn futex_wake(word: &AtomicU32) {
    // SAFETY: a live word.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

const GLOBAL_EXPEDITED: libc::c_int = 1 << 1;
const REGISTER_GLOBAL_EXPEDITED: libc::c_int = 1 << 2;

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Registers this process for the sleeper's barrier; `false` where the kernel has none.
pub(super) fn register_barrier() -> bool {
    membarrier(REGISTER_GLOBAL_EXPEDITED) && membarrier(GLOBAL_EXPEDITED)
}

/// The waker's half: orders what it wrote before its look at an announcement.
#[inline(always)]
pub(super) fn waker_barrier(asymmetric: bool) {
    if asymmetric {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The sleeper's half: orders its announcement before its last look.
pub(super) fn sleeper_barrier(asymmetric: bool) {
    fence(Ordering::SeqCst);
    if asymmetric && !membarrier(GLOBAL_EXPEDITED) {
        // It worked at start-up, so this does not happen; the time limit of every sleep bounds the harm.
        tracing::warn!("membarrier failed");
    }
}

/// Wakes the rank of segment `target` if it sleeps. The caller has put a barrier before.
#[inline(always)]
pub(super) fn wake_if_asleep(target: &Mapping, stats: &Stats) {
    // Relaxed: ordered by the caller's barrier.
    if target.half(SLEEPING).load(Ordering::Relaxed) != 0 {
        ring_doorbell(target, stats);
    }
}

#[cold]
fn ring_doorbell(target: &Mapping, stats: &Stats) {
    // One waker is enough for one sleep. It claims the sleep before it rings: the other way round, a slow waker
    // could ring for one sleep and take the announcement of the next, which nobody would then wake.
    if target.half(SLEEPING).swap(0, Ordering::SeqCst) != 0 {
        target.half(DOORBELL).fetch_add(1, Ordering::SeqCst);
        futex_wake(target.half(DOORBELL));
        stats.add(Kind::Wake, 0);
    }
}
