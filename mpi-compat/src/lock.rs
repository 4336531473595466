#![allow(unsafe_code)]
//! The recursive lock of the library. It may be biased to one thread, which then acquires and releases it without an
//! atomic read-modify-write.
//!
//! While MPI is active, the lock is biased to the thread that started it, until another thread wants the lock. That
//! thread ends the bias permanently: it clears `biased`, executes a fence on every thread of the process
//! (`membarrier`), and takes the lock once the biased thread is outside. The biased thread stores `inside` before it
//! loads `biased`; since the fence is between the other thread's store and load, at least one of the two threads sees
//! the other's store.
//!
//! Once the bias has ended, calls on [`concurrent`](crate::concurrent) objects need no lock, in a program that may call
//! from several threads concurrently ([`Taken::unless`]). Before that, only the thread to which the lock is biased
//! makes such calls, and it holds the lock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence, fence};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use farside_core::device::Waker;
use farside_core::memory::words::Word;

/// The bit that marks a biased owner in its number.
const BIASED: u64 = 1;
/// Number of times that a thread which wants the lock yields before it sleeps: the owner releases it after a call or a
/// turn of progress, unless another thread needs its core.
const YIELDS: u32 = 8;

/// The number of this thread, which is even: the address of its thread-local memory.
#[inline(always)]
pub fn this_thread() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let address: u64;
        // SAFETY: the first word of the memory that fs refers to is its own address, on every system with this ABI.
        unsafe {
            std::arch::asm!("mov {}, fs:[0]", out(reg) address, options(nostack, preserves_flags, readonly, pure))
        };
        address
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        thread_local!(static HERE: u64 = const { 0 });
        HERE.with(|here| std::ptr::from_ref(here).addr()) as u64
    }
}

/// The ownership of the lock: the part that is model checked under every interleaving.
pub struct Ownership<W> {
    /// The number of the owner, and whether the lock is biased to it; 0 if no thread has the lock.
    owner: W,
    /// The recursion depth of an owner to which the lock is not biased.
    depth: W,
    /// The recursion depth of a biased owner, 0 while it is outside. Only that thread writes it.
    inside: W,
    /// The number of the thread to which the lock is biased; 0 if it is not biased, or another thread wants it.
    biased: W,
    /// Whether the next release wakes a thread that sleeps until the lock is free. One woken thread at a time competes
    /// for the lock, so calls that follow each other do not make a system call each.
    wakes: W,
}

impl<W: Word<u64>> Ownership<W> {
    /// Announces that this thread sleeps unless it can take the lock after the `fence`.
    fn announce_sleep(&self, fence: impl Fn()) {
        self.wakes.store(1, Ordering::SeqCst);
        fence();
    }

    /// Whether this thread, which has released the lock and executed a fence, wakes a sleeping thread.
    fn claim_wake(&self) -> bool {
        // Relaxed, twice: the fences order the release before this load, and the store of `announce_sleep` before the
        // load of the owner.
        self.wakes.load(Ordering::Relaxed) != 0
            && self.wakes.compare_exchange(1, 0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Takes the lock if it is biased to this thread. `order`, together with the fence of `take_from`, orders stores
    /// before loads.
    #[inline(always)]
    fn take_biased(&self, me: u64, order: impl Fn()) -> bool {
        // Relaxed, here and below: a thread reads its own number only if it has stored it itself.
        if self.biased.load(Ordering::Relaxed) != me {
            return false;
        }
        // Relaxed: only the biased thread writes it; `order` and the barrier of `take_from` keep this store before the
        // load of `biased`, as `take_from` keeps its store of `biased` before its load of `inside`.
        self.inside.store(self.inside.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        order();
        if self.biased.load(Ordering::Relaxed) == me {
            return true;
        }
        self.leave();
        false
    }

    /// Takes the lock if that is possible without waiting.
    #[inline(always)]
    fn take(&self, me: u64, order: impl Fn()) -> bool {
        self.take_biased(me, order) || self.take_unbiased(me)
    }

    #[inline(never)]
    fn take_unbiased(&self, me: u64) -> bool {
        // Relaxed: a thread reads its own number only if it has stored it itself.
        let owner = self.owner.load(Ordering::Relaxed);
        // Relaxed, here and below: only the owner reads and writes its depth.
        if owner == me | BIASED {
            // Another thread has ended the bias, and waits until this thread is outside.
            let inside = self.inside.load(Ordering::Relaxed);
            if inside > 0 {
                self.inside.store(inside + 1, Ordering::Relaxed);
            }
            return inside > 0;
        }
        if owner == me {
            // Relaxed: only the owner reads and writes its depth.
            self.depth.store(self.depth.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return true;
        }
        owner == 0 && self.take_free(me)
    }

    #[inline(always)]
    fn take_free(&self, me: u64) -> bool {
        // Acquire: pairs with the Release that freed the lock.
        let taken = self.owner.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if taken {
            self.depth.store(1, Ordering::Relaxed);
        }
        taken
    }

    /// Takes the lock from a biased owner that is outside; `barrier` executes a fence on every thread.
    fn take_from(&self, me: u64, barrier: impl Fn()) -> bool {
        // Relaxed: the compare-and-swap below detects a change.
        let owner = self.owner.load(Ordering::Relaxed);
        if owner & BIASED != 0 {
            self.biased.store(0, Ordering::SeqCst);
            barrier();
            // Acquire: pairs with the Release of `release`.
            if self.inside.load(Ordering::Acquire) == 0 {
                // Release: makes the biased owner's writes visible to the Acquire of `take_free`.
                let _ = self.owner.compare_exchange(owner, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
        self.take_free(me)
    }

    /// The word with the owner's recursion depth.
    #[inline(always)]
    fn depth(&self) -> &W {
        // Relaxed: the caller owns the lock, and has stored the owner itself.
        if self.owner.load(Ordering::Relaxed) & BIASED == 0 { &self.depth } else { &self.inside }
    }

    /// Lowers the recursion depth of the biased owner.
    #[inline(always)]
    fn leave(&self) {
        // Release: pairs with the Acquire of `take_from`.
        self.inside.store(self.inside.load(Ordering::Relaxed) - 1, Ordering::Release);
    }

    /// Releases the lock once; returns whether other threads may now be able to take it.
    #[inline(always)]
    fn release(&self, order: impl Fn()) -> bool {
        // Relaxed: if the lock is biased, it is biased to this thread, which holds it.
        if self.biased.load(Ordering::Relaxed) == 0 {
            return self.release_unbiased(order);
        }
        self.leave();
        order();
        // Relaxed: `order` and the barrier of `take_from` keep this load after the store of `inside`.
        self.biased.load(Ordering::Relaxed) == 0
    }

    #[inline(never)]
    fn release_unbiased(&self, order: impl Fn()) -> bool {
        let depth = self.depth();
        // Relaxed: only the owner reads and writes the depth.
        let left = depth.load(Ordering::Relaxed) - 1;
        if left > 0 {
            depth.store(left, Ordering::Relaxed);
            return false;
        }
        self.release_all(order);
        true
    }

    /// Releases the lock at all recursion levels.
    fn release_all(&self, order: impl Fn()) {
        // Relaxed: this thread has stored the owner itself.
        if self.owner.load(Ordering::Relaxed) & BIASED == 0 {
            // Release: pairs with the Acquire of `take_free`.
            self.owner.store(0, Ordering::Release);
        } else {
            // Release: pairs with the Acquire of `take_from`.
            self.inside.store(0, Ordering::Release);
        }
        order();
    }

    /// Biases the lock to its owner.
    fn bias(&self) {
        // Relaxed: this thread has stored the owner itself.
        let owner = self.owner.load(Ordering::Relaxed);
        if owner & BIASED == 0 {
            self.inside.store(self.depth.load(Ordering::Relaxed), Ordering::SeqCst);
            self.biased.store(owner, Ordering::SeqCst);
            self.owner.store(owner | BIASED, Ordering::SeqCst);
        }
    }

    /// Ends the bias, if the lock is biased to its owner.
    fn unbias(&self) {
        // Relaxed, here and below: this thread has stored the owner and its depth itself.
        let owner = self.owner.load(Ordering::Relaxed);
        if owner & BIASED != 0 {
            let depth = self.inside.load(Ordering::Relaxed);
            self.biased.store(0, Ordering::SeqCst);
            self.depth.store(depth, Ordering::SeqCst);
            // The order of the stores ensures that a thread that sees this thread outside also sees that the lock is
            // not biased. In a child created by fork, this thread may be outside.
            self.owner.store(if depth == 0 { 0 } else { owner & !BIASED }, Ordering::SeqCst);
            self.inside.store(0, Ordering::SeqCst);
        }
    }
}

/// The lock.
pub struct Lock {
    ownership: Ownership<AtomicU64>,
    /// The number of threads that wait for the lock.
    waiting: AtomicU64,
    /// The number of times that a thread has taken the lock after a wait.
    waited: AtomicU64,
    queue: Mutex<()>,
    free: Condvar,
    has_barrier: AtomicBool,
    /// Whether the program may call from several threads concurrently.
    multiple: AtomicBool,
    /// Whether some calls need no lock: the lock is not biased, and threads may call concurrently.
    shared: AtomicBool,
    /// Wakes a thread that holds the lock and waits for peers.
    waker: OnceLock<Waker>,
}

pub static LOCK: Lock = Lock {
    ownership: Ownership {
        owner: AtomicU64::new(0),
        depth: AtomicU64::new(0),
        inside: AtomicU64::new(0),
        biased: AtomicU64::new(0),
        wakes: AtomicU64::new(0),
    },
    waiting: AtomicU64::new(0),
    waited: AtomicU64::new(0),
    queue: Mutex::new(()),
    free: Condvar::new(),
    has_barrier: AtomicBool::new(false),
    multiple: AtomicBool::new(false),
    shared: AtomicBool::new(false),
    waker: OnceLock::new(),
};

/// The lock, taken once.
pub struct Taken(());

impl Taken {
    #[inline(always)]
    pub fn new() -> Self {
        if !LOCK.ownership.take(this_thread(), order) {
            LOCK.wait_and_take();
        }
        Self(())
    }

    /// Takes the lock; `None` if `without` has made the call without it, which is tried if the lock is not biased,
    /// threads may call concurrently, and this thread does not hold the lock.
    #[inline(always)]
    pub fn unless(without: impl FnOnce() -> bool) -> Option<Self> {
        let me = this_thread();
        if !LOCK.ownership.take_biased(me, order) {
            if LOCK.may_call_without(me) && without() {
                return None;
            }
            if !LOCK.ownership.take_unbiased(me) {
                LOCK.wait_and_take();
            }
        }
        Some(Self(()))
    }
}

impl Drop for Taken {
    #[inline(always)]
    fn drop(&mut self) {
        if LOCK.ownership.release(order) {
            LOCK.wake_if_wanted();
        }
    }
}

/// The lock of a thread to which it is biased, taken once.
pub struct Biased(());

impl Biased {
    /// Takes the lock if it is biased to this thread, which implies that MPI is active.
    #[inline(always)]
    pub fn new() -> Option<Self> {
        LOCK.ownership.take_biased(this_thread(), order).then(|| Self(()))
    }

    /// Releases the lock; this thread may take it again immediately, even if another thread waits for it.
    #[inline(always)]
    pub fn take_again(self) {
        LOCK.ownership.leave();
        std::mem::forget(self);
    }
}

impl Drop for Biased {
    #[inline(always)]
    fn drop(&mut self) {
        LOCK.ownership.leave();
        order();
        // Relaxed: as in `release`.
        if LOCK.ownership.biased.load(Ordering::Relaxed) == 0 {
            LOCK.wake_if_wanted();
        }
    }
}

/// The compiler's half of the fence; the other half is [`Lock::barrier`].
#[inline(always)]
fn order() {
    compiler_fence(Ordering::SeqCst);
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the system call takes only integers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

impl Lock {
    /// From now on, threads that want the lock execute a fence on every thread, if `membarrier` is available. Without
    /// it the lock is never biased.
    pub fn use_barrier(&self) {
        let registered = membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
        self.has_barrier.store(registered, Ordering::SeqCst);
    }

    /// Biases the lock to its owner, if [`use_barrier`](Self::use_barrier) has found `membarrier` available and no
    /// thread has waited for the lock.
    pub fn bias(&self) {
        // A thread that is ending the previous bias holds the queue until it is done, since it could not distinguish a
        // new bias from the previous one.
        let _queue = self.queue();
        let others = [&self.waiting, &self.waited].into_iter().any(|count| count.load(Ordering::SeqCst) != 0);
        if self.has_barrier.load(Ordering::SeqCst) && !others {
            self.ownership.bias();
        } else {
            self.share();
        }
    }

    /// Ends the bias, and disallows calls without the lock.
    pub fn unbias(&self) {
        self.shared.store(false, Ordering::SeqCst);
        self.ownership.unbias();
    }

    /// Allows concurrent calls of several threads, from the next call of [`bias`](Self::bias) on.
    pub fn allow_threads(&self) {
        self.multiple.store(true, Ordering::SeqCst);
    }

    /// Allows calls without the lock if threads may call concurrently. The caller holds the lock, which is not biased.
    fn share(&self) {
        // The previous biased owner has left the lock, so its stores to mapped memory are ordered before those calls.
        self.shared.store(self.multiple.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Whether a call of thread `me` may proceed without the lock. A thread that already holds the lock is inside a
    /// user-defined operator, which may not communicate.
    #[inline]
    fn may_call_without(&self, me: u64) -> bool {
        // Acquire: pairs with the store of `share`.
        // Relaxed: a thread reads its own number only if it has stored it itself.
        self.shared.load(Ordering::Acquire) && self.ownership.owner.load(Ordering::Relaxed) != me
    }

    /// Whether the lock is biased.
    #[inline(always)]
    pub fn is_biased(&self) -> bool {
        // Relaxed: only the owner calls this, and reads its own store; a bias that ends now changes nothing.
        self.ownership.biased.load(Ordering::Relaxed) != 0
    }

    /// Sets the waker by which threads that want the lock wake its owner.
    pub fn set_waker(&self, waker: Waker) {
        let _ = self.waker.set(waker);
    }

    fn barrier(&self) {
        if self.has_barrier.load(Ordering::SeqCst) {
            membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
        }
    }

    /// Whether other threads wait for the lock.
    #[inline(always)]
    pub fn is_wanted(&self) -> bool {
        // Relaxed: the owner checks repeatedly.
        self.waiting.load(Ordering::Relaxed) != 0
    }

    fn queue(&self) -> MutexGuard<'_, ()> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn wake_if_wanted(&self) {
        // Also keeps the loads of mapped memory by a call without the lock from overtaking the stores of an earlier call
        // with the lock.
        fence(Ordering::SeqCst);
        if self.ownership.claim_wake() {
            drop(self.queue());
            self.free.notify_one();
        }
    }

    /// Waits until the lock is free, and takes it.
    #[cold]
    fn wait_and_take(&self) {
        let me = this_thread();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.waker.get().into_iter().for_each(|waker| waker());
        let yielded = (0..YIELDS).any(|_| {
            std::thread::yield_now();
            self.ownership.take_unbiased(me)
        });
        if !yielded {
            let mut queue = self.queue();
            loop {
                self.ownership.announce_sleep(|| fence(Ordering::SeqCst));
                if self.ownership.take_from(me, || self.barrier()) {
                    break;
                }
                queue = self.free.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            self.ownership.wakes.store((self.waiting.load(Ordering::SeqCst) > 1).into(), Ordering::SeqCst);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        self.waited.fetch_add(1, Ordering::SeqCst);
        self.share();
    }

    /// Releases the lock at all recursion levels, and returns the recursion depth for [`enter`](Self::enter).
    pub fn leave(&self) -> u64 {
        // Relaxed: only the owner reads and writes the depth, as in `enter`.
        let depth = self.ownership.depth().load(Ordering::Relaxed);
        self.ownership.release_all(order);
        self.wake_if_wanted();
        depth
    }

    /// Takes the lock again to a recursion depth.
    pub fn enter(&self, depth: u64) {
        let taken = Taken::new();
        std::mem::forget(taken);
        // Relaxed: only the owner reads and writes the depth.
        self.ownership.depth().store(depth, Ordering::Relaxed);
    }

    /// Runs a user function without the lock, so that a jump out of the call does not leave it taken. A thread that
    /// holds the lock recursively is inside a user-defined operator, and keeps the lock.
    pub fn outside<R>(&self, f: impl FnOnce() -> R) -> R {
        struct Again(u64);
        impl Drop for Again {
            fn drop(&mut self) {
                LOCK.enter(self.0);
            }
        }
        // Relaxed: only the owner reads and writes the depth.
        let _again = (self.ownership.depth().load(Ordering::Relaxed) == 1).then(|| Again(self.leave()));
        f()
    }

    /// Releases, in a child created by fork, a lock that another thread of the parent held.
    pub fn reset_in_child(&self) {
        let Ownership { owner, depth, inside, biased, wakes } = &self.ownership;
        wakes.store(0, Ordering::SeqCst);
        if owner.load(Ordering::SeqCst) & !BIASED != this_thread() {
            [owner, depth, inside, biased].into_iter().for_each(|word| word.store(0, Ordering::SeqCst));
        }
        self.waiting.store(0, Ordering::SeqCst);
    }

    /// Lets one of the waiting threads take the lock.
    #[cold]
    pub fn wake_waiter(&self) {
        let before = self.waited.load(Ordering::SeqCst);
        let depth = self.leave();
        while self.is_wanted() && self.waited.load(Ordering::SeqCst) == before {
            std::thread::yield_now();
        }
        self.enter(depth);
    }
}

#[cfg(test)]
mod models;
