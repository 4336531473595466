//! The element lock: a word of each target of a window that all ranks map.
//!
//! | word | elements of the target are updated |
//! |---|---|
//! | 0 | not now |
//! | rank + 1 | by this rank alone, by plain loads and stores of many at a time |
//! | [`SHARED`] | by any rank, by an atomic of the processor for each element or word |
//!
//! Plain updates are faster for many elements, atomics for single ones, which need no lock. So a rank that makes more than
//! [`SINGLES`] single updates with no longer one between them sets the word to `SHARED`, in which it stays. As only a free
//! word changes, no plain update is in progress then, and none begins later: a rank that has found the word shared need
//! not read it again.
//!
//! A rank that finds the word held tries again until it is free, or until the loss of a peer ends its wait.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use farside_core::memory::words::Word;

const FREE: u64 = 0;
const SHARED: u64 = u64::MAX;
/// Number of single updates in a row that a rank makes under the lock.
const SINGLES: u32 = 64;

/// An origin's knowledge of a target's element lock.
#[derive(Debug, Default)]
pub(super) struct ElementLock {
    /// Whether the word is shared.
    pub(super) shared: Cell<bool>,
    /// Number of single updates since the last one of several elements.
    singles: Cell<u32>,
}

/// How a rank may update elements until this value is dropped.
#[derive(Debug)]
pub(crate) struct ElementAccess<'a> {
    /// The word that it holds; `None` if it uses atomics.
    held: Option<&'a AtomicU64>,
}

impl ElementAccess<'_> {
    pub(super) const ATOMIC: Self = Self { held: None };

    /// Whether no other rank updates elements of the target.
    #[inline(always)]
    pub(super) fn is_exclusive(&self) -> bool {
        self.held.is_some()
    }
}

impl Drop for ElementAccess<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(word) = self.held {
            leave(word);
        }
    }
}

/// The result of an attempt to enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Alone,
    Shared,
    Held,
}

/// Takes the lock for rank `me`, or makes it shared.
#[inline(always)]
fn enter(word: &impl Word, me: usize, share: bool) -> Entry {
    let new = if share { SHARED } else { me as u64 + 1 };
    // AcqRel: Acquire pairs with `leave`, also through a rank that has found the word free and made it shared; Release pairs
    // with the Acquire of ranks that find it shared.
    match word.compare_exchange(FREE, new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) if !share => Entry::Alone,
        Ok(_) | Err(SHARED) => Entry::Shared,
        Err(_) => Entry::Held,
    }
}

#[inline(always)]
fn leave(word: &impl Word) {
    // Release: pairs with `enter`.
    word.store(FREE, Ordering::Release);
}

impl ElementLock {
    /// Tries to enter, as rank `me`, for an update of one element or of several; `word` is the target's.
    #[inline]
    pub(super) fn try_enter<'a>(&self, word: &'a AtomicU64, me: usize, single: bool) -> Option<ElementAccess<'a>> {
        let singles = if single { self.singles.get() + 1 } else { 0 };
        match enter(word, me, singles > SINGLES) {
            Entry::Held => None,
            Entry::Alone => {
                self.singles.set(singles);
                Some(ElementAccess { held: Some(word) })
            }
            Entry::Shared => {
                self.shared.set(true);
                Some(ElementAccess::ATOMIC)
            }
        }
    }
}

#[cfg(test)]
mod models;
