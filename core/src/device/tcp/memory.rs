#![allow(unsafe_code)]
//! The regions of this rank as peers access them, and the operations of the target's processor on them. Keys, offsets and
//! lengths come from peers.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::device::code;
use crate::error::ErrorKind;
use crate::memory::copy;
use crate::memory::keys::{Exposed, Exposures};

/// The regions of a rank.
#[derive(Debug, Default)]
pub(super) struct Memory(pub(super) Exposures);

impl Memory {
    /// Calls `act` on `len` bytes of a region.
    fn at<R>(
        &self,
        (key, offset): (u64, u64),
        len: usize,
        act: impl FnOnce(*mut u8, &Exposed) -> Result<R, ErrorKind>,
    ) -> Result<R, ErrorKind> {
        self.0.with(key, offset, len, act).ok_or(ErrorKind::BadKey)?.ok_or(ErrorKind::OutOfRange)?
    }

    /// The address of `len` bytes of a region, valid while the engine is locked: a release locks it too.
    pub(super) fn address(&self, place: (u64, u64), len: usize) -> Result<*mut u8, ErrorKind> {
        self.at(place, len, |p, _| Ok(p))
    }

    pub(super) fn write(&self, place: (u64, u64), from: &[u8]) -> Result<(), ErrorKind> {
        self.at(place, from.len(), |p, _| {
            // SAFETY: checked bytes of a region; private bytes.
            unsafe { copy::store(from.as_ptr(), p, from.len()) };
            Ok(())
        })
    }

    /// Appends bytes of a region to `to`.
    pub(super) fn read(&self, place: (u64, u64), len: usize, to: &mut Vec<u8>) -> Result<(), ErrorKind> {
        self.at(place, len, |p, _| {
            let at = to.len();
            to.resize(at + len, 0);
            // SAFETY: checked bytes of a region; the vector has just been extended by as many.
            unsafe { copy::load(p, to[at..].as_mut_ptr(), len) };
            Ok(())
        })
    }

    pub(super) fn fetch_add(&self, place: (u64, u64), add: u64) -> Result<u64, ErrorKind> {
        self.word(place, |word| word.fetch_add(add, Ordering::SeqCst))
    }

    /// Sets a cell. The owner sees all that was written before when it sees the value.
    pub(super) fn signal(&self, place: (u64, u64), value: u64) -> Result<(), ErrorKind> {
        // Release: pairs with the Acquire of the cell's owner.
        self.word(place, |word| word.store(value, Ordering::Release))
    }

    fn word<R>(&self, place: (u64, u64), act: impl FnOnce(&AtomicU64) -> R) -> Result<R, ErrorKind> {
        self.at(place, 8, |p, _| {
            if !p.addr().is_multiple_of(8) {
                return Err(ErrorKind::Misaligned);
            }
            // SAFETY: an aligned word of a region, which every rank accesses as an atomic.
            Ok(act(unsafe { AtomicU64::from_ptr(p.cast()) }))
        })
    }

    /// Compares and swaps an integer of `len` bytes; returns its previous value.
    pub(super) fn compare_swap(&self, place: (u64, u64), len: usize, words: [u64; 2]) -> Result<u64, ErrorKind> {
        let mut old = 0u64;
        self.at(place, len, |p, _| {
            // SAFETY: checked bytes of a region; the function checks alignment and length, which is at most a word.
            unsafe { code::apply_swap(words, p, (&raw mut old).cast(), len) }
        })?;
        Ok(u64::from_le(old))
    }

    /// Applies an accumulate to `len` bytes; the previous values go to `old` if it is not empty.
    ///
    /// # Panics
    /// If the operand is shorter than the code needs, or `old` is of another length than 0 and `len`.
    pub(super) fn accumulate(
        &self,
        place: (u64, u64),
        (code, len): (u32, usize),
        operand: &[u8],
        old: &mut [u8],
    ) -> Result<(), ErrorKind> {
        assert!(operand.len() >= code::operand_len(code, len) && (old.is_empty() || old.len() == len));
        let old = if old.is_empty() { std::ptr::null_mut() } else { old.as_mut_ptr() };
        self.at(place, len, |p, region| {
            // SAFETY: checked bytes of a region; both buffers are as long as was checked.
            unsafe { code::apply(region.accumulate, code, p, operand.as_ptr(), old, len) }
        })
    }
}
