#![allow(unsafe_code)]
//! Short data with a signal: every rank of a team publishes up to [`max_bytes`] bytes, and reads those of others,
//! without a message.
//!
//! A rank has several slots, which its exchanges use in turn: each holds a flag, which identifies the exchange, and the
//! data. A rank rewrites a slot whose data is read only when each other rank has begun a later exchange than the one in
//! the slot, and so has read or abandoned that one. So a rank that waits for no data may be as many exchanges ahead of
//! its readers as it has slots. It looks for the flag by which a reader frees half of the slots at once: a look takes
//! the line of the flag from the reader, and so is made once in as many exchanges. A rank whose data nobody reads
//! writes only its flag, for those that look, and waits for nobody.
//!
//! After an exchange that has failed at some ranks, these may count their exchanges differently: the data of a rank is
//! then in another slot than its reader expects, and the reader searches all slots. The flag is cleared before the data
//! is rewritten, so that a peer that still reads a failed exchange detects it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::{LINE, SignalArray};
use crate::device::Block;
use crate::memory::words::{Word, fetch_to_write};
use crate::stats::Kind;

/// Number of slots of a rank, a power of two. Ranks that share processors are seldom ahead, and more slots are more pages that
/// a processor visits.
const SLOTS_OF_SHARED_PROCESSOR: usize = 4;
const SLOTS_OF_OWN_PROCESSOR: usize = 16;
/// Number of cache lines of a slot: for somewhat more than a page, if ranks share processors, or than a kilobyte. No
/// multiple of two, so that the first lines of the slots are in different sets of a cache.
const LINES_OF_SHARED_PROCESSOR: usize = 65;
const LINES_OF_OWN_PROCESSOR: usize = 17;
const _: () = assert!(SLOTS_OF_SHARED_PROCESSOR.is_power_of_two() && SLOTS_OF_OWN_PROCESSOR.is_power_of_two());
/// Number of cache lines of a slot. `shared`: whether ranks share processors. Cache lines of short data are transferred
/// when they are read, and those of a message while it is written. So for more than a few lines a message is faster,
/// unless ranks must wait for a processor anyway.
const fn lines_of_slot(shared: bool) -> usize {
    if shared { LINES_OF_SHARED_PROCESSOR } else { LINES_OF_OWN_PROCESSOR }
}

/// Number of slots of a rank. `shared`: whether ranks share processors.
pub(crate) const fn slots(shared: bool) -> usize {
    if shared { SLOTS_OF_SHARED_PROCESSOR } else { SLOTS_OF_OWN_PROCESSOR }
}

/// Number of cache lines of a rank's slots.
pub(crate) const fn lines(shared: bool) -> usize {
    slots(shared) * lines_of_slot(shared)
}

/// Maximum number of bytes of a rank.
pub(crate) const fn max_bytes(shared: bool) -> usize {
    lines_of_slot(shared) * LINE - 8
}

/// Maximum number of ranks: each rank reads a line of every other rank.
pub(crate) const MAX_RANKS: usize = 16;

/// State of a rank's data in an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShortData {
    Pending,
    Ready,
    /// The rank has other data with this flag, in the same exchange or a later one.
    Mismatch(u64),
}

/// The exchanges of a rank.
#[derive(Debug)]
pub(crate) struct Exchanges {
    /// Number of exchanges whose data this rank has published.
    count: Cell<u64>,
    /// Of each slot: the flag of this rank, and the bit set of the ranks that read the data.
    slots: Vec<(Cell<u64>, Cell<u64>)>,
    /// Number of cache lines of a slot.
    lines: usize,
    /// Of each rank: the latest flag that was seen, and the number of slots by which it is ahead of this rank after a
    /// failure.
    others: Vec<(Cell<u64>, Cell<usize>)>,
}

impl Exchanges {
    /// The exchanges of `size` ranks, none if it is 0; `shared`: whether ranks share processors.
    pub(crate) fn new(size: usize, shared: bool) -> Self {
        let number = if size > 0 { slots(shared) } else { 0 };
        let (slots, others) = (vec![Default::default(); number], vec![Default::default(); size]);
        Self { count: Cell::default(), slots, lines: lines_of_slot(shared), others }
    }

    /// The slot of this index, which may be larger than the number of slots.
    #[inline(always)]
    fn place(&self, index: usize) -> usize {
        index & (self.slots.len() - 1)
    }
}

/// The lowest rank of a bit set.
#[inline(always)]
pub(crate) fn lowest(ranks: u64) -> Option<usize> {
    (ranks != 0).then(|| ranks.trailing_zeros() as usize)
}

/// The number of exchanges by which `flag` is later than that of `of`; negative if it is earlier, or no flag.
fn after(flag: u64, of: u64) -> i32 {
    if flag == 0 { -1 } else { ((flag >> 32) as u32).wrapping_sub((of >> 32) as u32).cast_signed() }
}

/// One of these flags that is later than `old`, if any. A rank that has it has read the data of `old`, or has abandoned
/// it.
#[inline(always)]
fn later<'a, W: Word + 'a>(flags: impl Iterator<Item = &'a W>, old: u64) -> Option<u64> {
    // Acquire: pairs with the Release of the flag in `give`: the rank's loads of the old data have completed.
    flags.map(|flag| flag.load(Ordering::Acquire)).find(|flag| after(*flag, old) > 0)
}

/// Writes data to a slot, and then the flag to its first word.
#[inline(always)]
fn give<W: Word>(place: &[W], flag: u64, data: impl Iterator<Item = u64>) {
    let Some((first, words)) = place.split_first() else { return };
    // Relaxed: ordered by the Release stores below, so a peer that sees a new word also sees that the old flag was
    // cleared.
    first.store(0, Ordering::Relaxed);
    for (word, value) in words.iter().zip(data) {
        // Release: pairs with the Acquire loads of words in `take`, which then finds another flag.
        word.store(value, Ordering::Release);
    }
    // Release: pairs with the first Acquire of `take`.
    first.store(flag, Ordering::Release);
}

/// The words of a block, of which the last one may be filled up.
///
/// # Safety
/// The block is valid for reads until the iterator is dropped, and is not written meanwhile.
#[inline(always)]
unsafe fn words_of(block: Block) -> impl Iterator<Item = u64> {
    let (whole, rest) = (block.len / 8, block.len % 8);
    (0..block.len.div_ceil(8)).map(move |i| {
        let at = block.base.wrapping_add(8 * i).cast_const();
        if i < whole {
            // SAFETY: eight bytes of the block.
            return unsafe { at.cast::<u64>().read_unaligned() };
        }
        let mut bytes = [0; 8];
        // SAFETY: the remaining bytes of the block.
        unsafe { std::ptr::copy_nonoverlapping(at, bytes.as_mut_ptr(), rest) };
        u64::from_ne_bytes(bytes)
    })
}

/// Reads words of the data with flag `flag`, from word `from` on, if the slot holds that data; returns whether it does.
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

/// State of the data of the rank that owns the slots; if the data is published, reads words of it from word `from` on.
#[inline(always)]
fn given<'a, W: Word + 'a>(
    places: impl Iterator<Item = &'a [W]> + Clone,
    flag: u64,
    from: usize,
    into: &[Cell<u64>],
) -> ShortData {
    let is_here = || places.clone().any(|place| take(place, flag, from, into));
    if is_here() {
        return ShortData::Ready;
    }
    // Acquire: pairs with the Release of the flag in `give`: after a later flag the previous one is visible.
    let flags = places.clone().map(|place| place[0].load(Ordering::Acquire));
    match { flags }.find(|other| after(*other, flag) >= 0) {
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
        self.short_lines > 0 && self.mapped && self.size > 1
    }

    /// This rank's record of the slot of exchange `turn`: its flag, and the bit set of the ranks that read the data.
    #[inline(always)]
    fn record(&self, turn: u64) -> &(Cell<u64>, Cell<u64>) {
        &self.shorts.slots[self.shorts.place(turn as usize)]
    }

    /// Slot `index`, modulo the number of slots, of team rank `of`.
    #[inline(always)]
    fn slot(&self, of: usize, index: usize) -> &[AtomicU64] {
        let base = match self.remotes.get(of).and_then(|remote| remote.mapped) {
            Some(mapped) if of != self.me => mapped.as_ptr(),
            _ => self.own.base,
        };
        let lines = self.shorts.lines;
        let first = 3 * self.size + self.words + self.shorts.place(index) * lines;
        // SAFETY: inside the lines for short data of the array's memory (own or mapped), aligned, accessed as atomics
        // by all ranks, and valid as long as `self`.
        unsafe { std::slice::from_raw_parts(base.wrapping_add(first * LINE).cast::<AtomicU64>(), lines * LINE / 8) }
    }

    /// Number of this rank's next exchange.
    #[inline]
    pub(crate) fn turn(&self) -> u64 {
        self.shorts.count.get()
    }

    /// Index of the slot in which team rank `of` is expected to have the data of exchange `turn`.
    #[inline(always)]
    fn index_of(&self, of: usize, turn: u64) -> usize {
        (turn as usize).wrapping_add(self.shorts.others[of].1.get())
    }

    /// Prefetches for writing the lines of this rank's next exchange, if it has as many bytes as this one: other ranks'
    /// caches hold them.
    #[inline]
    pub(crate) fn fetch_short(&self, bytes: usize) {
        let slot = self.slot(self.me, self.turn() as usize);
        for word in (0..(8 + bytes) / 8).step_by(LINE / 8) {
            fetch_to_write(slot[word..].as_ptr().cast());
        }
    }

    /// A rank that may still have to read the data in the slot of this rank's next exchange. Looks for flags that free
    /// half of the slots, or for all later flags if `everywhere`.
    #[inline]
    pub(crate) fn reader(&self, everywhere: bool) -> Option<usize> {
        let (old, readers) = self.record(self.turn());
        while let Some(of) = lowest(readers.get()) {
            if !self.has_read(of, old.get(), everywhere) {
                return Some(of);
            }
            readers.set(readers.get() & (readers.get() - 1));
        }
        None
    }

    /// Whether team rank `of` has begun a later exchange than that of flag `old`.
    #[inline(always)]
    fn has_read(&self, of: usize, old: u64, everywhere: bool) -> bool {
        let seen = &self.shorts.others[of].0;
        if after(seen.get(), old) > 0 {
            return true;
        }
        let at = |back: usize| &self.slot(of, self.index_of(of, self.turn().wrapping_sub(back as u64)))[0];
        // The latest flags come first.
        let slots = self.shorts.slots.len();
        let backs = if everywhere { 1..slots + 1 } else { slots / 2..slots / 2 + 1 };
        later(backs.map(at), old).inspect(|flag| seen.set(*flag)).is_some()
    }

    /// Publishes this rank's data for the exchange that `flag` identifies, in a slot that has no
    /// [`reader`](Self::reader); the upper half of the flag grows with each exchange. `readers` is the bit set of the
    /// other ranks that read the data. If ranks share cores, the others are woken only if `all_came`.
    ///
    /// # Safety
    /// The data is valid for reads, and is not written during the call.
    #[inline]
    pub(crate) unsafe fn publish_inline(&self, flag: u64, data: Block, readers: u64, all_came: impl FnOnce() -> bool) {
        let turn = self.turn();
        self.shorts.count.set(turn + 1);
        let record = self.record(turn);
        record.0.set(flag);
        record.1.set(readers);
        self.stats().add(Kind::Signal, data.len);
        // SAFETY: by the contract.
        give(self.slot(self.me, turn as usize), flag, unsafe { words_of(data) });
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

    /// State of team rank `of`'s data in the exchange of `flag`, this rank's number `turn`; if the data is published,
    /// words of it are read, from word `from` on. All slots are searched if `everywhere`, else a mismatch is not
    /// detected.
    #[inline]
    pub(crate) fn read_inline(
        &self,
        of: usize,
        (turn, flag): (u64, u64),
        from: usize,
        into: &[Cell<u64>],
        everywhere: bool,
    ) -> ShortData {
        let (seen, ahead) = &self.shorts.others[of];
        let slots = (0..self.shorts.slots.len()).map(|index| self.slot(of, index));
        let state = match take(self.slot(of, self.index_of(of, turn)), flag, from, into) {
            true => ShortData::Ready,
            false if everywhere => given(slots.clone(), flag, from, into),
            false => ShortData::Pending,
        };
        if state == ShortData::Ready {
            seen.set(flag);
            if everywhere {
                // Relaxed: only the index of the slot matters.
                let at = { slots }.position(|slot| slot[0].load(Ordering::Relaxed) == flag);
                ahead.set(at.map_or(ahead.get(), |at| self.shorts.place(at.wrapping_sub(turn as usize))));
            }
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interleavings::{Fault, ModelWord, caught, check, leak};

    const ROUNDS: u64 = 3;

    /// Two ranks run consecutive exchanges of short data, with `places` slots each.
    fn run(fault: Fault, places: u64) {
        let words: [[[ModelWord; 2]; 2]; 2] =
            [(); 2].map(|()| [(); 2].map(|()| std::array::from_fn(|_| ModelWord::new(0, fault))));
        let words = leak(words);
        let rank = move |me: usize| {
            let place = |rank: usize, odd: u64| &words[rank][odd as usize][..];
            let data = [Cell::new(0)];
            for number in 1..=ROUNDS {
                give(place(me, number % places), number << 32, [number].into_iter());
                let theirs = || [place(1 - me, 0), place(1 - me, 1)].into_iter();
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

    /// Rank 0 publishes data in two slots in turn, and rank 1 reads it. Rank 0 rewrites a slot when rank 1 has begun a
    /// later exchange than the one in the slot, or, wrongly, `early` exchanges sooner.
    fn run_ahead(early: u64) {
        let words: [[[ModelWord; 2]; 2]; 2] =
            [(); 2].map(|()| [(); 2].map(|()| std::array::from_fn(|_| ModelWord::new(0, Fault::No))));
        let words = leak(words);
        let place = move |rank: usize, number: u64| &words[rank][(number % 2) as usize][..];
        let other = loom::thread::spawn(move || {
            let data = [Cell::new(0)];
            for number in 1..=ROUNDS {
                give(place(1, number), number << 32, std::iter::empty());
                loop {
                    match given([place(0, 0), place(0, 1)].into_iter(), number << 32, 0, &data) {
                        ShortData::Ready => break assert_eq!(data[0].get(), number),
                        ShortData::Pending => loom::thread::yield_now(),
                        ShortData::Mismatch(flag) => panic!("{flag}"),
                    }
                }
            }
        });
        for number in 1..=ROUNDS {
            let old = number.saturating_sub(2 + early) << 32;
            while number > 2 && later([&place(1, 0)[0], &place(1, 1)[0]].into_iter(), old).is_none() {
                loom::thread::yield_now();
            }
            give(place(0, number), number << 32, [number].into_iter());
        }
        other.join().unwrap();
    }

    #[test]
    fn models_of_ranks_that_run_ahead_keep_data_that_is_not_read() {
        check(1, || run_ahead(0));
    }

    #[test]
    fn models_notice_ranks_that_run_too_far_ahead() {
        caught(2, || run_ahead(1));
    }

    #[test]
    fn flags_of_later_exchanges_differ_from_earlier_ones() {
        let flag = |number: u32| u64::from(number) << 32 | 7;
        assert_eq!([after(flag(5), flag(5)), after(flag(6), flag(5)), after(flag(0), flag(u32::MAX))], [0, 1, 1]);
        assert!(after(flag(4), flag(5)) < 0 && after(0, flag(5)) < 0);
    }
}
