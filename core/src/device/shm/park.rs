//! Sleeping and waking across processes.
//!
//! A sleeper announces its sleep, makes the announcement visible to all, checks its condition once more, and sleeps. A
//! waker makes the condition true and then reads the announcement. Between these two steps the waker needs no fence if
//! `membarrier` works: the sleeper's system call executes a fence in every thread of every registered process.

use std::sync::atomic::{AtomicU32, Ordering, compiler_fence, fence};
use std::time::Duration;

use rustix::thread::{MembarrierCommand, Timespec, futex, membarrier};

use super::layout::{DOORBELL, SLEEPING};
use crate::memory::segment::Mapping;
use crate::memory::words::Word;
use crate::stats::{Kind, Stats};

/// Sleeps while `word` is `expected`, for at most `limit`.
pub(super) fn futex_wait(word: &AtomicU32, expected: u32, limit: Duration) {
    let limit = Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
    // The futex is not private, since processes share the word. The caller checks again, whatever the result.
    let _ = futex::wait(word, futex::Flags::empty(), expected, Some(&limit));
}

/// Wakes the threads that sleep on `word`: a rank, and the thread that sleeps for its futures.
pub(super) fn futex_wake(word: &AtomicU32) {
    // The call cannot fail on the address of a live word.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

/// Registers this process for the sleeper's barrier; `false` if the kernel does not support it.
pub(super) fn register_barrier() -> bool {
    membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
        && membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

/// The waker's half: orders its earlier stores before it reads an announcement.
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
    if asymmetric && membarrier(MembarrierCommand::GlobalExpedited).is_err() {
        // It worked at start-up, so a failure is unexpected; the time limit of every sleep bounds the delay.
        tracing::warn!("membarrier failed");
    }
}

/// Announces a sleep in `sleeping` and, unless `ready` returns true, calls `wait`, which sleeps while the doorbell is
/// unchanged. Returns the result of `ready`.
pub(super) fn sleep<W: Word<u32>>(
    doorbell: &W,
    sleeping: &W,
    barrier: impl FnOnce(),
    ready: impl FnOnce() -> bool,
    wait: impl FnOnce(&W, u32),
) -> bool {
    let ready = announce(doorbell, sleeping, barrier, ready, |bell| wait(doorbell, bell));
    sleeping.store(0, Ordering::SeqCst);
    ready
}

/// Announces a sleep in `sleeping` and calls `wait` with the doorbell's value, unless `ready` returns true; then the
/// rank does not sleep. Returns the result of `ready`.
pub(super) fn announce<W: Word<u32>>(
    doorbell: &W,
    sleeping: &W,
    barrier: impl FnOnce(),
    ready: impl FnOnce() -> bool,
    wait: impl FnOnce(u32),
) -> bool {
    let bell = doorbell.load(Ordering::SeqCst);
    sleeping.store(1, Ordering::SeqCst);
    barrier();
    let ready = ready();
    if ready {
        sleeping.store(0, Ordering::SeqCst);
    } else {
        wait(bell);
    }
    ready
}

/// Whether a rank sleeps or is about to. The caller has executed a barrier before if the answer must be current.
#[inline(always)]
pub(super) fn is_asleep<W: Word<u32>>(sleeping: &W) -> bool {
    // Relaxed: ordered by the caller's barrier, which pairs with the sleeper's.
    sleeping.load(Ordering::Relaxed) != 0
}

/// Rings the doorbell for a sleep unless another waker has; returns whether the caller must wake the sleeper. A waker
/// claims the sleep before it rings the doorbell: in the other order a slow waker could ring for one sleep and claim
/// the announcement of the next.
pub(super) fn ring<W: Word<u32>>(doorbell: &W, sleeping: &W) -> bool {
    let claimed = sleeping.swap(0, Ordering::SeqCst) != 0;
    if claimed {
        doorbell.fetch_add(1, Ordering::SeqCst);
    }
    claimed
}

/// Wakes the rank of segment `target` if it sleeps. The caller has executed a barrier before.
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
pub(crate) mod models;
