#![allow(unsafe_code)]
//! Signal cells, the only notification primitive: 64-bit words at a rank, each set by one peer.
//!
//! A [`SignalArray`] gives every rank of a team eight cells for each peer, and some own words that peers may read. A
//! cell has one writer and only grows, so setting it is a plain store (a remote write on a network), nothing is ever
//! reset, and a late reader sees the latest value. [`SignalArray::wait`] waits for a cell. The upper 16 bits of a value
//! are a mark, a flag of the caller that is sent with the signal ([`marked`]).
//!
//! A cell has two words, for its even and its odd values, in different cache lines. While a rank polls for one value it
//! does not read the line of the next value, so the writer of the next value need not first invalidate a reader's copy
//! of the line, which on shared memory costs as much as the signal itself.

pub(crate) mod short;

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bill::{Account, Awaited};
pub use crate::device::cell::{marked, unmarked};
use crate::device::{Block, Operation, Place, Registration};
use crate::error::{Error, ErrorKind, Result};
use crate::job::Job;
use crate::memory::arrival::arrived;
use crate::memory::words::Word;
use crate::peers::PeerTable;
pub use crate::progress::{Pace, pace};
use crate::stats::{Kind, Stats};

/// Number of cells for each peer.
pub(crate) const CELLS: usize = 8;
/// Number of cells for [pairwise exchanges](SignalArray::exchange).
pub(crate) const EXCHANGE_CELLS: usize = 2;
pub(crate) const LINE: usize = 64;

/// Signal cells between the ranks of a team.
#[derive(Debug)]
pub struct SignalArray {
    pub(crate) job: Job,
    /// The account to which waits are charged.
    pub(crate) account: Account,
    /// Counters of the job's device or of the account.
    pub(crate) stats: NonNull<Stats>,
    pub(crate) size: usize,
    pub(crate) me: usize,
    pub(crate) words: usize,
    /// Number of cache lines for [short data](short) of each rank; 0 if the array has none.
    pub(crate) short_lines: usize,
    pub(crate) own: Registration,
    pub(crate) remotes: PeerTable<RemoteCells>,
    /// Whether the whole array is mapped at all ranks.
    pub(crate) mapped: bool,
    pub(crate) oversubscribed: bool,
    pub(crate) arrivals: Cell<u64>,
    /// Exchanges of short data.
    pub(crate) shorts: short::Exchanges,
}

/// The signal array of a peer.
#[derive(Debug)]
pub(crate) struct RemoteCells {
    pub(crate) peer: u32,
    pub(crate) handle: u64,
    /// The array's first byte, if it and the arrays of all other ranks are completely mapped.
    pub(crate) mapped: Option<NonNull<u8>>,
    /// The array's first byte, if it is completely mapped.
    pub(crate) near: Option<NonNull<u8>>,
}

/// The word of a pair's line that exchange `number` of a cell uses in each direction: not the word of the previous
/// exchange, which the peer may not have read yet.
const fn pair_word(cell: usize, number: u64) -> usize {
    2 * cell + (number & 1) as usize
}

/// Whether the number in `word` is at least `number`.
#[inline(always)]
fn has_arrived<W: Word>(word: &W, number: u64) -> bool {
    // Acquire: pairs with the Release of `exchange_words` and the additions of `arrive_at`.
    unmarked(word.load(Ordering::Acquire)).0 >= number
}

/// Stores `value` into the word for the peer, waits until the peer's word has reached the same number, and returns its
/// mark.
#[inline(always)]
fn exchange_words<W: Word>(
    ours: &W,
    theirs: &W,
    value: u64,
    wake: impl FnOnce(),
    wait: impl FnOnce() -> Result<()>,
) -> Result<u16> {
    // Release: pairs with the Acquire of `has_arrived`, of the peer.
    ours.store(value, Ordering::Release);
    wake();
    wait()?;
    // Relaxed: read after an Acquire load of the same word.
    Ok(unmarked(theirs.load(Ordering::Relaxed)).1)
}

/// Adds to the arrival counter in the last line of team rank 0, for the `number`th time, and waits until all `size`
/// ranks have done so. The last rank to arrive wakes the others. Returns the bitwise or of all marks.
fn arrive_at<W: Word>(
    line: [&W; LINE / 8],
    size: u64,
    number: u64,
    mark: u16,
    wake: impl FnOnce(),
    wait: impl FnOnce(&W, u64) -> Result<()>,
) -> Result<u16> {
    // A word is reused two arrivals later, which no rank reaches before all ranks have left this one.
    let words = (0..MARK_BITS).map(|bit| (1 << bit, line[MARKS + 2 * bit + (number & 1) as usize]));
    for (_, word) in words.clone().filter(|(bit, _)| mark & bit != 0) {
        // Relaxed: ordered by the arrival. All ranks store the same value.
        word.store(number, Ordering::Relaxed);
    }
    let (arrivals, goal) = (line[ARRIVALS], number * size);
    // AcqRel: pairs with itself at the other ranks and with the Acquire of `has_arrived`: a rank that sees or reaches
    // the goal sees what all ranks wrote before they arrived.
    if arrivals.fetch_add(1, Ordering::AcqRel) + 1 == goal {
        wake();
    } else {
        wait(arrivals, goal)?;
    }
    // Relaxed: ordered by the load of the arrivals.
    Ok(words.filter(|(_, word)| word.load(Ordering::Relaxed) == number).fold(0, |marks, (bit, _)| marks | bit))
}

/// Words of the last cache line of a signal array. At team rank 0: the arrival counter, and for each bit of a mark the
/// last even and the last odd round in which a rank arrived with it. At each rank: whether it shares its core.
const ARRIVALS: usize = 0;
const MARKS: usize = 1;
pub(crate) const SHARES_CORE: usize = MARKS + 2 * MARK_BITS;
/// Number of bits of the mark of an arrival.
pub(crate) const MARK_BITS: usize = 2;

impl SignalArray {
    /// Sets cell `cell` of this rank at team rank `to`. Release: a rank that sees the value also sees all earlier
    /// writes of this rank. Values are below 2^48, and may be [`marked`]. One message.
    ///
    /// # Errors
    /// `PeerLost`, on devices that detect it.
    #[inline]
    pub fn set(&self, to: usize, cell: usize, value: u64) -> Result<()> {
        assert!(cell < CELLS);
        self.job.running("signal a peer")?;
        let offset = self.offset(self.me, cell, value);
        let remote = &self.remotes[to];
        if let Some(mapped) = remote.mapped {
            self.stats().add(Kind::Signal, 8);
            // SAFETY: a cell of the peer's array, mapped whole, aligned, accessed as an atomic by all.
            // Release: pairs with the Acquire of `place`.
            unsafe { AtomicU64::from_ptr(mapped.as_ptr().add(offset).cast()) }.store(value, Ordering::Release);
            self.job.device().wake(remote.peer);
            return Ok(());
        }
        if to == self.me && self.job.device().capabilities().own_by_copy {
            self.stats().add(Kind::Signal, 8);
            // SAFETY: a cell of this rank's own array, aligned, accessed as an atomic. Its setter waits for a cell to
            // show a value before it sets a greater one, so a store and a message of the device do not cross. Release:
            // pairs with the Acquire of `place`.
            unsafe { AtomicU64::from_ptr(self.own.base.add(offset).cast()) }.store(value, Ordering::Release);
            return Ok(());
        }
        if let Some(bill) = self.job.bill() {
            bill.posted(self.account, |stats| stats.add(Kind::Signal, 8));
        }
        let operation = Operation::Signal { at: self.cell_at(to, cell, value), value };
        // SAFETY: no local memory is involved.
        unsafe { self.job.post(remote.peer, operation, None, &[]) }.map(|_| ())
    }

    /// Sets cell `cell` (below [`EXCHANGE_CELLS`]) for team rank `peer` and waits until the peer has done the same for
    /// this rank: two signals, one in each direction. Returns the peer's mark. Ordering is as for [`set`](Self::set)
    /// and [`wait`](Self::wait), which must not be used on the same cell.
    ///
    /// If the array is mapped, the words for both directions share one line: the second rank finds the other's word in
    /// the line that its own store has fetched, and still has the line for the next exchange. So each of several
    /// consecutive exchanges costs one transfer of a line instead of one in each direction.
    ///
    /// # Errors
    /// `PeerLost`, naming the lost rank; an error of a handler.
    #[inline]
    pub(crate) fn exchange(
        &self,
        operation: &'static str,
        peer: usize,
        cell: usize,
        number: u64,
        mark: u16,
    ) -> Result<u16> {
        assert!(cell < EXCHANGE_CELLS);
        let Some((ours, theirs)) = self.pair(peer, cell, number) else {
            self.set(peer, cell, marked(number, mark))?;
            self.wait(operation, peer, cell, number, Pace::EXCHANGE)?;
            return Ok(self.mark(peer, cell, number));
        };
        self.stats().add(Kind::Signal, 8);
        let wake = || self.job.device().wake(self.remotes[peer].peer);
        exchange_words(ours, theirs, marked(number, mark), wake, || {
            let has_answered = || has_arrived(theirs, number);
            let awaited = || self.awaited(operation, number, peer);
            if has_answered() { Ok(()) } else { self.job.wait_signal(awaited, Pace::ANSWER, true, has_answered) }
        })
    }

    /// Whether ranks share cores, so that signals in rounds would each wait for a context switch; such ranks
    /// [`arrive`](Self::arrive) instead. The same on every rank; false with two ranks, and unless all are mapped.
    #[inline]
    pub(crate) fn is_oversubscribed(&self) -> bool {
        self.oversubscribed
    }

    /// Waits until all ranks of the team have arrived, by one atomic addition to a word of team rank 0, and returns the
    /// bitwise or of their marks, which have two bits. The last rank wakes those that sleep. Collective, for arrays
    /// that [are oversubscribed](Self::is_oversubscribed): a rank arrives in one time slice, and leaves in the next, in
    /// which it can arrive again.
    ///
    /// # Errors
    /// `PeerLost`, naming the lost rank; an error of a handler.
    pub(crate) fn arrive(&self, operation: &'static str, mark: u16) -> Result<u16> {
        let number = self.arrivals.get() + 1;
        self.arrivals.set(number);
        let Some(line) = self.last_line(0) else {
            return Err(Error::new(ErrorKind::Unsupported, operation).cause("memory of team rank 0 is not mapped"));
        };
        self.stats().add(Kind::Signal, 8);
        let wake = || self.remotes.iter().for_each(|r| self.job.device().wake(r.peer));
        arrive_at(line, self.size as u64, number, mark, wake, |arrivals, goal| {
            let awaited = || Awaited { account: Some(self.account), call: number, ..Awaited::unknown(operation) };
            self.job.wait_signal(awaited, Pace::ANSWER, true, || has_arrived(arrivals, goal))
        })
    }

    #[inline(always)]
    fn stats(&self) -> &Stats {
        // SAFETY: the counters belong to the device, which lives and stays in place as long as the job, and `self`
        // holds a handle of the job.
        unsafe { self.stats.as_ref() }
    }

    /// The last line of team rank `of`, if this rank has mapped it.
    pub(crate) fn last_line(&self, of: usize) -> Option<[&AtomicU64; LINE / 8]> {
        let base = if of == self.me { self.own.base } else { self.remotes.get(of)?.mapped?.as_ptr() };
        let line = 3 * self.size + self.words + self.short_lines;
        Some(std::array::from_fn(|word| self.word_at(base, line * LINE + 8 * word)))
    }

    /// The words of cell `cell` to and from team rank `peer` in the line that the pair shares.
    #[inline(always)]
    fn pair(&self, peer: usize, cell: usize, number: u64) -> Option<(&AtomicU64, &AtomicU64)> {
        let theirs = self.remotes.get(peer)?.mapped?.as_ptr();
        let (base, high) = if self.me < peer { (self.own.base, peer) } else { (theirs, self.me) };
        let line = (2 * self.size + high) * LINE;
        let word = pair_word(cell, number);
        let [low_to_high, high_to_low] =
            [0, 2 * EXCHANGE_CELLS].map(|half| self.word_at(base, line + (half + word) * 8));
        Some(if self.me < peer { (low_to_high, high_to_low) } else { (high_to_low, low_to_high) })
    }

    /// The remote address for value `value` of a cell of this rank at team rank `to`, for notifications that are sent
    /// with a write.
    #[must_use]
    pub fn cell_at(&self, to: usize, cell: usize, value: u64) -> Place {
        Place { region: self.remotes[to].handle, offset: self.offset(self.me, cell, value) }
    }

    /// Offset in a signal array of the values of rank `writer`'s cell `cell` that have the parity of `value`.
    #[inline(always)]
    fn offset(&self, writer: usize, cell: usize, value: u64) -> usize {
        offset(self.size, writer, cell, value)
    }

    /// The cells that other ranks set at this rank, for a message handler that sets one on behalf of the sender.
    #[must_use]
    pub fn own_cells(&self) -> OwnCells {
        OwnCells { base: self.own.base, size: self.size }
    }

    /// Whether this rank has mapped the cells and words of team rank `of`.
    #[must_use]
    pub fn is_mapped(&self, of: usize) -> bool {
        self.remotes.get(of).is_some_and(|remote| remote.mapped.is_some())
    }

    /// The value to which team rank `from` has set cell `cell` of this rank.
    #[inline]
    #[must_use]
    pub fn get(&self, from: usize, cell: usize) -> u64 {
        unmarked(self.place(from, cell, 0)).0.max(unmarked(self.place(from, cell, 1)).0)
    }

    /// Whether cell `cell` of team rank `from` has been set to `value`, or to a greater value afterwards. Reads only
    /// the word for the parity of `value`: if the peer skips a value, the next value does not satisfy a wait for it.
    #[inline]
    #[must_use]
    pub fn reached(&self, from: usize, cell: usize, value: u64) -> bool {
        unmarked(self.place(from, cell, value)).0 >= value
    }

    /// The mark of the awaited value.
    #[inline]
    #[must_use]
    pub fn mark(&self, from: usize, cell: usize, value: u64) -> u16 {
        unmarked(self.place(from, cell, value)).1
    }

    /// Waits until cell `cell` of team rank `from` is set to `value`: see [`reached`](Self::reached).
    ///
    /// # Errors
    /// `PeerLost`, naming the lost rank; an error of a handler.
    #[inline]
    pub fn wait(&self, operation: &'static str, from: usize, cell: usize, value: u64, pace: Pace) -> Result<()> {
        let has_arrived = || self.reached(from, cell, value);
        self.job.wait_signal(|| self.awaited(operation, value, from), pace, self.mapped, has_arrived)
    }

    /// Describes a wait for team rank `from` in call number `call`.
    #[must_use]
    pub fn awaited(&self, operation: &'static str, call: u64, from: usize) -> Awaited {
        Awaited { account: Some(self.account), operation, call, from: Some(self.remotes[from].peer) }
    }

    #[inline(always)]
    fn place(&self, from: usize, cell: usize, value: u64) -> u64 {
        assert!(from < self.size && cell < CELLS);
        // Pairs with the Release of `set`, and with the order of an HCA's writes.
        arrived(self.word_at(self.own.base, self.offset(from, cell, value)))
    }

    /// This rank's own word `word`, which peers may read and change.
    #[must_use]
    #[inline]
    pub fn own_word(&self, word: usize) -> &AtomicU64 {
        assert!(word < self.words);
        self.word_at(self.own.base, (3 * self.size + word) * LINE)
    }

    /// Word `word` of team rank `of`, if this rank has mapped it.
    #[must_use]
    #[inline]
    pub fn peer_word(&self, of: usize, word: usize) -> Option<&AtomicU64> {
        assert!(word < self.words);
        self.remotes.get(of)?.mapped.map(|m| self.word_at(m.as_ptr(), (3 * self.size + word) * LINE))
    }

    /// The value of word `word` of team rank `of`, if this rank shares memory with it. Other ranks may not share memory
    /// with it, so only `of` may change the word: atomics of devices are not coherent with those of processors.
    #[must_use]
    #[inline]
    pub fn published(&self, of: usize, word: usize) -> Option<u64> {
        assert!(word < self.words);
        let base = if of == self.me { self.own.base } else { self.remotes.get(of)?.near?.as_ptr() };
        Some(self.word_at(base, (3 * self.size + word) * LINE).load(Ordering::SeqCst))
    }

    /// The remote address of word `word` of team rank `of`.
    pub(crate) fn word_place(&self, of: usize, word: usize) -> Place {
        self.place_in_line(of, (word, 0))
    }

    /// The remote address of the `index`th word in the line of word `word`, which itself has index 0.
    fn place_in_line(&self, of: usize, (word, index): (usize, usize)) -> Place {
        assert!(word < self.words && index < LINE / 8);
        Place { region: self.remotes[of].handle, offset: (3 * self.size + word) * LINE + 8 * index }
    }

    /// The word at `place`, an address at team rank `of`, if it is mapped.
    fn mapped_at(&self, of: usize, place: Place) -> Option<&AtomicU64> {
        self.remotes.get(of)?.mapped.map(|m| self.word_at(m.as_ptr(), place.offset))
    }

    /// Reads word `word` of team rank `of`: a load if it is mapped, otherwise one read.
    ///
    /// # Errors
    /// `PeerLost`.
    pub fn read_word(&self, of: usize, word: usize) -> Result<u64> {
        self.read_in_line(of, (word, 0))
    }

    /// Reads a word in the line of word `at.0` of team rank `of`, by its index `at.1`: index 0 is the word itself, and
    /// seven follow it. It is a load if the word is mapped, otherwise one read.
    ///
    /// # Errors
    /// `PeerLost`.
    pub fn read_in_line(&self, of: usize, at: (usize, usize)) -> Result<u64> {
        self.job.running("read a word of a peer")?;
        let place = self.place_in_line(of, at);
        if let Some(w) = self.mapped_at(of, place) {
            return Ok(w.load(Ordering::SeqCst));
        }
        let mut value = 0u64;
        let into = [Block { base: (&raw mut value).cast(), len: 8 }];
        let operation = Operation::read(&into, place);
        // SAFETY: `value` lives until the read is complete.
        unsafe { self.job.complete("read a word of a peer", self.remotes[of].peer, operation) }?;
        Ok(value)
    }

    /// Sets a word in the line of word `at.0` of team rank `of`, by its index `at.1`, and does not wake that rank. On
    /// return the word is set for all ranks. It is a store if the word is mapped, otherwise one write.
    ///
    /// # Errors
    /// `PeerLost`.
    pub fn write_in_line(&self, of: usize, at: (usize, usize), value: u64) -> Result<()> {
        self.job.running("write a word of a peer")?;
        let to = self.place_in_line(of, at);
        if let Some(w) = self.mapped_at(of, to) {
            self.stats().add(Kind::Write, 8);
            w.store(value, Ordering::SeqCst);
            return Ok(());
        }
        let from = [Block::of((&raw const value).cast(), 8)];
        // SAFETY: `value` lives until the write is complete.
        unsafe { self.job.complete("write a word of a peer", self.remotes[of].peer, Operation::write(&from, to)) }
    }

    /// Sets word `word` of team rank `to`, which may sleep until then: one message, ordered as [`set`](Self::set).
    ///
    /// # Errors
    /// `PeerLost`, on devices that detect it.
    pub fn set_word(&self, to: usize, word: usize, value: u64) -> Result<()> {
        self.job.running("write a word of a peer")?;
        let (at, peer) = (self.word_place(to, word), self.remotes[to].peer);
        if let Some(w) = self.mapped_at(to, at) {
            self.stats().add(Kind::Signal, 8);
            w.store(value, Ordering::SeqCst);
            self.job.device().wake(peer);
            return Ok(());
        }
        // SAFETY: no local memory is involved.
        unsafe { self.job.post(peer, Operation::Signal { at, value }, None, &[]) }.map(|_| ())
    }

    /// Adds to word `word` of team rank `of` and returns its previous value: one fetch-add.
    ///
    /// # Errors
    /// `PeerLost`.
    pub fn fetch_add(&self, of: usize, word: usize, add: u64) -> Result<u64> {
        self.job.running("add to a word of a peer")?;
        if let Some(w) = self.peer_word(of, word) {
            self.stats().add(Kind::FetchAdd, 8);
            return Ok(w.fetch_add(add, Ordering::SeqCst));
        }
        let mut old = 0u64;
        let operation = Operation::fetch_add(self.word_place(of, word), add, &raw mut old);
        // SAFETY: `old` lives until the operation is complete.
        unsafe { self.job.complete("add to a word of a peer", self.remotes[of].peer, operation) }?;
        Ok(old)
    }

    /// Sets word `word` of team rank `of` to `desired` if it is `expected`, and returns its previous value: one
    /// compare-and-swap; two if the word is not mapped and holds the complement of `expected`.
    ///
    /// # Errors
    /// `PeerLost`; `Protocol` if the device reports completion but has not stored a value, or if the word held the
    /// complement of `expected` and another rank has changed it before the second compare-and-swap.
    pub fn compare_swap(&self, of: usize, word: usize, expected: u64, desired: u64) -> Result<u64> {
        const OP: &str = "compare and swap a word of a peer";
        self.job.running(OP)?;
        if let Some(w) = self.peer_word(of, word) {
            self.stats().add(Kind::CompareSwap, 8);
            return Ok(w
                .compare_exchange(expected, desired, Ordering::SeqCst, Ordering::SeqCst)
                .unwrap_or_else(|now| now));
        }
        let (at, peer) = (self.word_place(of, word), self.remotes[of].peer);
        let swap = |expected, desired, mut old: u64| {
            let operation = Operation::compare_swap(at, 8, [expected, desired], (&raw mut old).cast());
            // SAFETY: `old` lives until the operation is complete.
            unsafe { self.job.complete(OP, peer, operation) }.map(|()| old)
        };
        let old = swap(expected, desired, !expected)?;
        // A word that holds this value is replaced by the same value, which changes nothing, whatever the first
        // compare-and-swap did.
        if old != !expected || swap(old, old, expected)? == old {
            return Ok(old);
        }
        let e = Error::new(ErrorKind::Protocol, OP).peer(peer).device(self.job.device().capabilities().name);
        Err(e.cause("the device completed the operation without its previous value"))
    }

    fn word_at(&self, base: *mut u8, offset: usize) -> &AtomicU64 {
        debug_assert!(offset + 8 <= (3 * self.size + self.words + self.short_lines + 1) * LINE);
        // SAFETY: inside the array's memory (own or mapped, both of this size), aligned, accessed as an atomic by all
        // ranks, and valid as long as `self`.
        unsafe { AtomicU64::from_ptr(base.add(offset).cast()) }
    }
}

/// Offset in the signal array of a team of `size` ranks of a cell's values that have the parity of `value`.
#[inline(always)]
fn offset(size: usize, writer: usize, cell: usize, value: u64) -> usize {
    let half = if value & 1 == 0 { 0 } else { size };
    (half + writer) * LINE + cell * 8
}

/// The cells of this rank's signal array that the ranks of its team set.
#[derive(Clone, Copy, Debug)]
pub struct OwnCells {
    base: *mut u8,
    size: usize,
}

impl OwnCells {
    /// Sets cell `cell` of team rank `from`, on behalf of that rank's message, as its [`SignalArray::set`] does. A cell
    /// that does not exist is ignored. A delayed older signal is harmless if its rank sets a value only after this rank
    /// has seen the last value but one: consecutive values have different words.
    ///
    /// # Safety
    /// The signal array has not been dropped.
    pub unsafe fn set(self, from: usize, cell: usize, value: u64) {
        if from < self.size && cell < CELLS {
            let at = self.base.wrapping_add(offset(self.size, from, cell, value));
            // SAFETY: a cell of the array, which lives by the contract, aligned, accessed as an atomic by all.
            // Release: pairs with the Acquire of `place`.
            unsafe { AtomicU64::from_ptr(at.cast()) }.store(value, Ordering::Release);
        }
    }
}

impl Drop for SignalArray {
    fn drop(&mut self) {
        for r in self.remotes.iter() {
            // SAFETY: the array is being dropped, so this rank does not access the peers' cells afterwards.
            unsafe { self.job.device().forget(r.handle) };
        }
        // Pages that peers still map stay valid for them; a failure leaks only this rank's mapping. SAFETY: this rank's
        // own region; the array is being dropped, so this rank does not access its cells afterwards.
        if let Err(e) = unsafe { self.job.device().release(self.own.handle) } {
            tracing::warn!("a signal array was not released: {e}");
        }
    }
}

#[cfg(test)]
mod models;
