//! The element lock: a word of each target of a window that all ranks map.
//!
//! | word | elements of the target are updated |
//! |---|---|
//! | 0 | not now |
//! | [`ALONE`] times the rank plus one | by this rank alone, by plain loads and stores of many at a time |
//! | n below `ALONE` | by the n ranks that have a share, by an atomic of the processor for each element or word |
//!
//! Plain loads and stores are faster for many elements, CPU atomics for single ones, which need no exclusive access. So
//! a rank takes a share of the lock at a single-element update after [`SINGLES_BEFORE_SHARE`] consecutive ones, or
//! while other ranks have shares, and keeps the share: single-element updates then need not read the word. The share
//! ends
//! - with the rank's next update of several elements, which uses plain stores if no other rank has a share;
//! - with the next fence of the window, and with `unlock_all`.
//!
//! The threads of a rank that update elements without calls on the window keep another share in common. It starts with
//! their first update of a single element, and ends with the fence or `unlock_all`, which the program orders after
//! their updates.
//!
//! So a shared word becomes free, without a message, once all ranks update several elements. A rank that holds the
//! target's window lock exclusively updates several elements without the element lock.
//!
//! A rank that finds the word held exclusively retries until it is free, or until the loss of a peer ends the wait. The
//! share of a lost rank remains, so the other ranks use atomics.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use farside_core::memory::words::Word;

const FREE: u64 = 0;
const ALONE: u64 = 1 << 32;
/// Number of consecutive single-element updates that a rank makes under the exclusive lock before it takes a share.
const SINGLES_BEFORE_SHARE: u32 = 64;

/// An origin's state of a target's element lock.
#[derive(Debug, Default)]
pub(super) struct ElementLock {
    /// Whether this rank keeps a share.
    pub(super) shared: Cell<bool>,
    /// Number of single-element updates since the last update of several elements.
    singles: Cell<u32>,
    /// 1 while the threads of this rank keep a share, else 0.
    kept_by_threads: AtomicU64,
}

/// The access to elements that a rank has until this value is dropped.
#[derive(Debug)]
pub(crate) enum ElementAccess<'a> {
    /// Atomics, under a share that the rank keeps, or on memory without an element lock.
    Atomic,
    /// Atomics, under a share that ends with this value.
    Once(&'a AtomicU64),
    /// Exclusive access, by the element lock word or by the target's window lock.
    Alone(Option<&'a AtomicU64>),
}

impl ElementAccess<'_> {
    /// Whether no other rank updates elements of the target.
    #[inline(always)]
    pub(super) fn is_exclusive(&self) -> bool {
        matches!(self, Self::Alone(_))
    }
}

impl Drop for ElementAccess<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        match self {
            Self::Atomic | Self::Alone(None) => {}
            Self::Once(word) => end_share(*word),
            Self::Alone(Some(word)) => leave(*word),
        }
    }
}

/// Takes the lock exclusively for rank `me` if the word is `own`: free, or this rank's share alone, which then ends.
///
/// # Errors
/// The value of the word, if it is not `own`.
#[inline(always)]
fn enter_alone(word: &impl Word, me: usize, own: u64) -> Result<(), u64> {
    // Acquire: pairs with `leave` and `end_share`. Relaxed: the value found is only a hint.
    word.compare_exchange(own, ALONE * (me as u64 + 1), Ordering::Acquire, Ordering::Relaxed).map(drop)
}

/// Takes a share unless a rank has exclusive access; returns whether it did. `found` is the expected value of the word.
fn share(word: &impl Word, mut found: u64) -> bool {
    while found < ALONE {
        // Acquire: pairs with `leave`, also via the read-modify-writes of other ranks that have taken shares since.
        // Relaxed: as above.
        match word.compare_exchange(found, found + 1, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(now) => found = now,
        }
    }
    false
}

#[inline(always)]
fn leave(word: &impl Word) {
    // Release: pairs with `enter_alone` and `share`.
    word.store(FREE, Ordering::Release);
}

fn end_share(word: &impl Word) {
    // Release: pairs with `enter_alone`, also via the read-modify-writes of other ranks that have ended their shares
    // since.
    word.fetch_add(1u64.wrapping_neg(), Ordering::Release);
}

/// Whether the threads of this rank keep a share, under which each of them may update elements.
#[inline(always)]
fn is_kept(kept: &impl Word) -> bool {
    // Acquire: pairs with the Release of `share_among_threads`.
    kept.load(Ordering::Acquire) != 0
}

/// Takes a share for an update in any thread of this rank; returns whether the threads keep it, which they do after the
/// first update of a single element. `None` if a rank has exclusive access.
fn share_among_threads(word: &impl Word, kept: &impl Word, single: bool) -> Option<bool> {
    // Release: pairs with the Acquire of `is_kept`.
    share(word, FREE).then(|| single && kept.swap(1, Ordering::Release) == 0)
}

impl ElementLock {
    /// Tries to enter, as rank `me`, for an update of one or of several elements; `word` is the target's lock word.
    #[inline]
    pub(super) fn try_enter<'a>(&self, word: &'a AtomicU64, me: usize, single: bool) -> Option<ElementAccess<'a>> {
        let shared = self.shared.get();
        if single && shared {
            return Some(ElementAccess::Atomic);
        }
        let singles = if single { self.singles.get() + 1 } else { 0 };
        let own = if shared { 1 } else { FREE };
        let entered = if singles > SINGLES_BEFORE_SHARE { Err(own) } else { enter_alone(word, me, own) };
        if entered.is_ok() {
            self.singles.set(singles);
            self.shared.set(false);
            return Some(ElementAccess::Alone(Some(word)));
        }
        if !shared && !share(word, entered.err().unwrap_or(own)) {
            return None;
        }
        self.shared.set(single);
        if single {
            return Some(ElementAccess::Atomic);
        }
        self.singles.set(0);
        Some(ElementAccess::Once(word))
    }

    /// Enters for an update of one or of several elements in any thread of this rank, without access to `word` if the
    /// threads keep a share.
    #[inline]
    pub(super) fn share_in_any_thread<'a>(
        &self,
        word: impl FnOnce() -> Option<&'a AtomicU64>,
        single: bool,
    ) -> Option<ElementAccess<'a>> {
        if is_kept(&self.kept_by_threads) {
            return Some(ElementAccess::Atomic);
        }
        let word = word()?;
        let keeps = share_among_threads(word, &self.kept_by_threads, single)?;
        Some(if keeps { ElementAccess::Atomic } else { ElementAccess::Once(word) })
    }

    /// Ends the share that this rank keeps, and the one that its threads keep if none of them updates elements now.
    pub(super) fn end_shares(&self, word: &AtomicU64, of_threads: bool) {
        let by_threads = of_threads && self.kept_by_threads.swap(0, Ordering::SeqCst) != 0;
        [self.shared.replace(false), by_threads].into_iter().filter(|kept| *kept).for_each(|_| end_share(word));
    }
}

#[cfg(test)]
mod models;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_is_taken_by_single_updates_and_ends_with_one_of_several_elements() {
        let (word, first, second) = (AtomicU64::new(FREE), ElementLock::default(), ElementLock::default());
        let enter = |lock: &ElementLock, single| lock.try_enter(&word, 0, single);
        let is_alone = |lock, single| enter(lock, single).is_some_and(|access| access.is_exclusive());
        let value = || word.load(Ordering::SeqCst);
        assert!((0..SINGLES_BEFORE_SHARE).all(|_| is_alone(&first, true)) && !is_alone(&first, true));
        assert_eq!((value(), first.shared.get()), (1, true));
        // A single-element update of another rank takes a kept share immediately, and one of several elements takes a
        // share for itself only.
        assert!(!is_alone(&second, false) && value() == 1 && !is_alone(&second, true) && value() == 2);
        // The shares end when both ranks go on to update several elements.
        assert!(!is_alone(&first, false) && value() == 1 && is_alone(&second, false) && value() == FREE);
        assert!(is_alone(&first, false) && is_alone(&first, true) && value() == FREE);
        // While a rank has exclusive access, the others do not enter.
        let alone = enter(&first, false);
        assert!(enter(&second, true).is_none() && enter(&second, false).is_none());
        drop(alone);
        assert!((0..=SINGLES_BEFORE_SHARE).all(|_| enter(&second, true).is_some()) && value() == 1);
        second.end_shares(&word, true);
        second.end_shares(&word, true);
        // After a share has ended, the next single-element update takes it again.
        assert!(value() == FREE && !is_alone(&second, true) && value() == 1);
    }

    #[test]
    fn threads_keep_one_share_beside_that_of_the_calls() {
        let (word, lock) = (AtomicU64::new(FREE), ElementLock::default());
        let value = || word.load(Ordering::SeqCst);
        let in_thread = |single| lock.share_in_any_thread(|| Some(&word), single);
        assert!(in_thread(false).is_some() && value() == FREE, "several elements need a share for one update");
        assert!((0..3).all(|_| in_thread(true).is_some()));
        assert!(value() == 1 && in_thread(false).is_some() && value() == 1);
        // The calls do not get exclusive access meanwhile.
        assert!(lock.try_enter(&word, 0, false).is_some_and(|access| !access.is_exclusive()) && value() == 1);
        assert!((0..2).all(|_| lock.try_enter(&word, 0, true).is_some()) && value() == 2);
        lock.end_shares(&word, false);
        assert_eq!(value(), 1, "a thread may be updating");
        lock.end_shares(&word, true);
        lock.end_shares(&word, true);
        assert_eq!(value(), FREE);
        let alone = lock.try_enter(&word, 0, true);
        assert!(in_thread(true).is_none());
        drop(alone);
        assert_eq!(value(), FREE);
    }
}
