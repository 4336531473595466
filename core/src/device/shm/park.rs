#![allow(unsafe_code)]
//! Sleeping and waking across processes.
//!
//! A sleeper announces its sleep, makes the announcement visible to all, checks once more whether what it waits for has
//! happened, and sleeps. A waker writes what the sleeper waits for and then reads the announcement. Between these two
//! steps it needs no fence where `membarrier` works: the sleeper's system call puts one into every thread of every
//! registered process.

use std::sync::atomic::{AtomicU32, Ordering, compiler_fence, fence};
use std::time::Duration;

use super::layout::{DOORBELL, SLEEPING};
use crate::memory::segment::Mapping;
use crate::memory::words::Word;
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

/// Wakes the thread that sleeps on `word`.
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

/// The waker's half: orders what it wrote before it reads an announcement.
#[inline(always)]
pub(super) fn waker_barrier(asymmetric: bool) {
    if asymmetric {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The sleeper's half: orders its announcement before its last check.
pub(super) fn sleeper_barrier(asymmetric: bool) {
    fence(Ordering::SeqCst);
    if asymmetric && !membarrier(GLOBAL_EXPEDITED) {
        // It worked at start-up, so this does not happen; the time limit of every sleep bounds the harm.
        tracing::warn!("membarrier failed");
    }
}

/// Announces a sleep in `sleeping`, and sleeps by `wait` while the doorbell is unchanged, unless something is `ready`.
/// Whether something was.
pub(super) fn sleep<W: Word<u32>>(
    doorbell: &W,
    sleeping: &W,
    barrier: impl FnOnce(),
    ready: impl FnOnce() -> bool,
    wait: impl FnOnce(&W, u32),
) -> bool {
    let bell = doorbell.load(Ordering::SeqCst);
    sleeping.store(1, Ordering::SeqCst);
    barrier();
    let ready = ready();
    if !ready {
        wait(doorbell, bell);
    }
    sleeping.store(0, Ordering::SeqCst);
    ready
}

/// Whether a rank sleeps or is about to. The caller has put a barrier before.
#[inline(always)]
pub(super) fn is_asleep<W: Word<u32>>(sleeping: &W) -> bool {
    // Relaxed: ordered by the caller's barrier, which pairs with the sleeper's.
    sleeping.load(Ordering::Relaxed) != 0
}

/// Rings for a sleep, unless another waker has; whether the sleeper is to be woken. A waker claims the sleep before it
/// rings: in the other order a slow waker could ring for one sleep and take the announcement of the next.
pub(super) fn ring<W: Word<u32>>(doorbell: &W, sleeping: &W) -> bool {
    let claimed = sleeping.swap(0, Ordering::SeqCst) != 0;
    if claimed {
        doorbell.fetch_add(1, Ordering::SeqCst);
    }
    claimed
}

/// Wakes the rank of segment `target` if it sleeps. The caller has put a barrier before.
#[inline(always)]
pub(super) fn wake_if_asleep(target: &Mapping, stats: &Stats) {
    if is_asleep(target.half(SLEEPING)) {
        wake(target, stats);
    }
}

#[cold]
fn wake(target: &Mapping, stats: &Stats) {
    let doorbell = target.half(DOORBELL);
    if ring(doorbell, target.half(SLEEPING)) {
        futex_wake(doorbell);
        stats.add(Kind::Wake, 0);
    }
}

#[cfg(test)]
pub(super) mod models;
