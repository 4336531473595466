#![allow(unsafe_code)]
//! Short data with a signal: every rank of a team provides up to [`MAX_BYTES`] bytes, and reads those of all others, without
//! a message.
//!
//! A rank has two places, used by its exchanges in turn: each holds a flag, which names the exchange, and the data. A
//! place is rewritten two exchanges later, which a rank does not begin before all others have begun the next exchange
//! and so have read the place. An exchange that fails at a rank is followed by one in the same place, so the place of
//! the last complete exchange stays until all ranks have read it. The place of the failed exchange may be written while
//! a peer reads it: the peer detects that from the changed flag.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::{LINE, SignalArray};
use crate::memory::words::{Word, fetch_to_write};
use crate::stats::Kind;

/// Lines of a place: the flag, and somewhat more than a page of data.
pub(crate) const LINES: usize = 65;
/// Maximum number of bytes of a rank.
pub(crate) const MAX_BYTES: usize = LINES * LINE - 8;
/// Maximum number of bytes of a rank if each rank has its own processor. Lines of short data travel one by one, when
/// they are read; the lines of a message travel while it is written. So beyond some lines a message is faster, unless
/// ranks must wait for a processor anyway.
pub(crate) const MOST_ALONE: usize = 9 * LINE - 8;
/// Maximum number of ranks: each rank reads a line of every other rank.
pub(crate) const MOST_RANKS: usize = 16;

/// State of a rank's data in an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShortData {
    Pending,
    Ready,
    /// The rank has other data with this flag, in the same exchange or a later one.
    Mismatch(u64),
}

/// Whether `flag` belongs to the exchange of `of`, or to a later one.
fn is_since(flag: u64, of: u64) -> bool {
    flag != 0 && ((flag >> 32) as u32).wrapping_sub((of >> 32) as u32).cast_signed() >= 0
}

/// Writes data to a place, and then the flag to its first word.
#[inline(always)]
fn give<W: Word>(place: &[W], flag: u64, data: &[u64]) {
    let Some((first, words)) = place.split_first() else { return };
    // Relaxed: ordered by the Release stores below, so a peer that sees a new word also sees that the old flag is gone.
    first.store(0, Ordering::Relaxed);
    for (word, value) in words.iter().zip(data) {
        // Release: pairs with the Acquire loads of words in `take`, which then finds another flag.
        word.store(*value, Ordering::Release);
    }
    // Release: pairs with the first Acquire of `take`.
    first.store(flag, Ordering::Release);
}

/// Reads words of the data with flag `flag`, from word `from` on, if the place holds that data; returns whether it does.
#[inline(always)]
fn take<W: Word>(place: &[W], flag: u64, from: usize, into: &[Cell<u64>]) -> bool {
    let Some((first, words)) = place.split_first() else { return false };
    // Acquire: pairs with the last store of `give`.
    if first.load(Ordering::Acquire) != flag {
        return false;
    }
    // Acquire: pairs with the Release stores of words in `give`: if a word is of later data, the load of the flag below
    // sees the change.
    into.iter().zip(&words[from..]).for_each(|(value, word)| value.set(word.load(Ordering::Acquire)));
    first.load(Ordering::Relaxed) == flag
}

/// State of the data of the rank that owns the two places; if it is there, reads words of it from word `from` on.
#[inline(always)]
fn given<W: Word>(places: [&[W]; 2], flag: u64, from: usize, into: &[Cell<u64>]) -> ShortData {
    let is_here = || places.iter().any(|place| take(place, flag, from, into));
    if is_here() {
        return ShortData::Ready;
    }
    // Acquire: pairs with the Release of the flag in `give`: after a later flag the previous one is visible.
    let other = places.iter().map(|place| place[0].load(Ordering::Acquire)).find(|other| is_since(*other, flag));
    match other {
        None => ShortData::Pending,
        Some(_) if is_here() => ShortData::Ready,
        Some(other) if other == flag => ShortData::Pending,
        Some(other) => ShortData::Mismatch(other),
    }
}

impl SignalArray {
    /// Whether the array can exchange short data; the same on every rank.
    #[inline]
    pub(crate) fn has_short(&self) -> bool {
        self.short_lines > 0 && self.mapped && (2..=MOST_RANKS).contains(&self.size)
    }

    /// The places of team rank `of`.
    #[inline(always)]
    fn places(&self, of: usize) -> [&[AtomicU64]; 2] {
        let base = match self.remotes.get(of).and_then(|remote| remote.mapped) {
            Some(mapped) if of != self.me => mapped.as_ptr(),
            _ => self.own.base,
        };
        let at = base.wrapping_add((3 * self.size + self.words) * LINE).cast::<AtomicU64>();
        // SAFETY: inside the lines for short data of the array's memory (own or mapped), aligned, atomics for all, and
        // kept as long as `self`.
        [0, LINES * LINE / 8].map(|place| unsafe { std::slice::from_raw_parts(at.add(place), LINES * LINE / 8) })
    }

    /// Prefetches the first line of this rank's next exchange for writing, since other ranks' caches hold it.
    #[inline]
    pub(crate) fn fetch_short(&self) {
        fetch_to_write(self.places(self.me)[(self.shorts.get() & 1) as usize].as_ptr().cast());
    }

    /// Publishes this rank's data for the exchange that `flag` names, `len` bytes at all ranks; the upper half of the
    /// flag grows with each exchange. Where ranks share cores, only the last rank wakes the others.
    #[inline]
    pub(crate) fn publish_inline(&self, flag: u64, len: usize, data: &[u64], all_came: impl FnOnce() -> bool) {
        let turn = self.shorts.get();
        self.shorts.set(turn + 1);
        self.stats().add(Kind::Signal, len);
        give(self.places(self.me)[(turn & 1) as usize], flag, data);
        if self.oversubscribed {
            // Of two ranks that publish last at the same time, at least one sees the other's flag.
            fence(Ordering::SeqCst);
            if !all_came() {
                return;
            }
        }
        let others = self.remotes.iter().enumerate().filter(|(rank, _)| *rank != self.me);
        others.for_each(|(_, remote)| self.job.device().wake(remote.peer));
    }

    /// Makes the next exchange use the place of this one, which has failed here without the data of all ranks: a slower
    /// peer may still have to read the other place, which holds the previous exchange.
    #[cold]
    pub(crate) fn repeat_short(&self) {
        self.shorts.set(self.shorts.get().wrapping_sub(1));
    }

    /// State of team rank `of`'s data in the exchange of `flag`; if it is there, words of it are read, from word `from`
    /// on.
    #[inline]
    pub(crate) fn read_inline(&self, of: usize, flag: u64, from: usize, into: &[Cell<u64>]) -> ShortData {
        given(self.places(of), flag, from, into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interleavings::{Fault, ModelWord, caught, check, leak};

    const ROUNDS: u64 = 3;

    /// Two ranks run consecutive exchanges of short data, with `places` places each.
    fn run(fault: Fault, places: u64) {
        let words: [[[ModelWord; 2]; 2]; 2] =
            [(); 2].map(|()| [(); 2].map(|()| std::array::from_fn(|_| ModelWord::new(0, fault))));
        let words = leak(words);
        let rank = move |me: usize| {
            let place = |rank: usize, odd: u64| &words[rank][odd as usize][..];
            let data = [Cell::new(0)];
            for number in 1..=ROUNDS {
                give(place(me, number % places), number << 32, &[number]);
                let theirs = || [place(1 - me, 0), place(1 - me, 1)];
                loop {
                    match given(theirs(), number << 32, 0, &data) {
                        ShortData::Ready => break assert_eq!(data[0].get(), number),
                        ShortData::Pending => loom::thread::yield_now(),
                        ShortData::Mismatch(flag) => panic!("{flag}"),
                    }
                }
            }
        };
        let other = loom::thread::spawn(move || rank(1));
        rank(0);
        other.join().unwrap();
    }

    #[test]
    fn models_of_short_data_read_each_exchange_whole() {
        check(1, || run(Fault::No, 2));
    }

    #[test]
    fn models_notice_short_data_in_one_place_or_not_ordered() {
        caught(2, || run(Fault::Relaxed, 2));
        caught(2, || run(Fault::No, 1));
    }

    #[test]
    fn flags_of_later_exchanges_are_told_from_earlier_ones() {
        let flag = |number: u32| u64::from(number) << 32 | 7;
        assert!(is_since(flag(5), flag(5)) && is_since(flag(6), flag(5)) && is_since(flag(0), flag(u32::MAX)));
        assert!(!is_since(flag(4), flag(5)) && !is_since(0, flag(5)));
    }
}
