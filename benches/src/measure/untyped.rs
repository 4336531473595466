//! An untyped window together with the memory of its operations, so that patterns over it are safe code.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::atomic::AtomicU64;

use farside_core::Team;
use farside_core::error::{Error, ErrorKind, Result};
use farside_core::memory::copy;
use farside_datatype::TypeMap;
use farside_rma::Op;
use farside_rma::raw::{Options, RawWindow};

use crate::by_hand::{HandCopy, LoopLayout};
use crate::pages::Pages;
use crate::record::Window;

/// A lockable window of `bytes` bytes, and the same number of private bytes for the data of operations.
pub(super) struct Untyped {
    raw: RawWindow,
    bytes: usize,
    /// The window's memory, if it is user memory. It lives, and only copies access it, until the window is released.
    memory: Option<ManuallyDrop<Pages>>,
    /// The origin's memory, which operations read and write; it lives as long.
    origin: ManuallyDrop<Pages>,
    words: ManuallyDrop<Box<Words>>,
}

/// Operand and result of atomic operations.
#[derive(Default)]
struct Words {
    operand: Cell<u64>,
    result: Cell<u64>,
}

impl Untyped {
    /// Makes the window. Collective.
    pub(super) fn new(team: &Team, window: Window, bytes: usize) -> Result<Self> {
        let bytes = bytes.max(8); // room for one atomic word
        let origin = ManuallyDrop::new(Pages::new(bytes)?);
        let (raw, memory) = if window == Window::Allocated {
            (RawWindow::allocate(team, bytes, Options::default())?, None)
        } else {
            let memory = Pages::new(bytes)?;
            // SAFETY: `memory` is kept by `Self`, and only copies of this thread access it, in its epochs, until the
            // window is released; if the call fails, there is no window.
            let raw = unsafe { RawWindow::create_exclusively(team, memory.as_ptr(), bytes, Options::default()) }?;
            (raw, Some(ManuallyDrop::new(memory)))
        };
        Ok(Self { raw, bytes, memory, origin, words: ManuallyDrop::default() })
    }

    /// The window, for synchronization calls.
    pub(super) fn raw(&self) -> &RawWindow {
        &self.raw
    }

    /// Puts `len` bytes from offset `from` of the origin's memory to offset `to` of `target`.
    #[inline(always)]
    pub(super) fn put(&self, from: usize, len: usize, target: usize, to: usize) -> Result<()> {
        let from = self.origin_at(from, len)?;
        // SAFETY: inside the origin's memory, which is kept until the window is released. Only `set_origin` and gets
        // write it, between epochs or after a flush.
        unsafe { self.raw.put(from, len, target, to) }
    }

    /// Puts the bytes of `map`, relative to offset `from` of the origin's memory, to the same layout at offset `to` of
    /// `target`.
    #[inline(always)]
    pub(super) fn put_typed(&self, from: usize, map: &TypeMap, target: usize, to: usize) -> Result<()> {
        let from = self.origin_at(from, map.true_ub() as usize)?;
        // SAFETY: inside the origin's memory, since no layout here begins before its address; otherwise as in `put`.
        unsafe { self.raw.put_typed(from, map, target, to, map) }
    }

    /// The same with a hand-written loop, both sides from offset 0; returns `false` if this rank does not map the
    /// memory of `target`. No other rank may access that memory concurrently.
    #[inline(always)]
    pub(super) fn put_by_hand(&self, layout: &LoopLayout, by: HandCopy, room: usize, target: usize) -> Result<bool> {
        let from = self.origin_at(0, room)?;
        let Some(to) = self.raw.mapped_base(target)? else { return Ok(false) };
        // SAFETY: both are valid for `room` bytes, which is no more than any rank has, and do not overlap.
        unsafe { by(layout, from, to, room) };
        Ok(true)
    }

    /// Whether this rank maps the memory of `target`.
    pub(super) fn is_mapped(&self, target: usize) -> Result<bool> {
        Ok(self.raw.mapped_base(target)?.is_some())
    }

    /// The word at offset `at` of the memory of `rank`, if this rank maps it; for patterns that use it only as an
    /// atomic.
    pub(super) fn word(&self, rank: usize, at: usize) -> Result<Option<&AtomicU64>> {
        self.within(at.next_multiple_of(8), 8)?;
        let base = self.raw.mapped_base(rank)?;
        // SAFETY: inside the window's memory, aligned, zeroed when it was made, and kept as long as `self`.
        Ok(base.map(|base| unsafe { AtomicU64::from_ptr(base.add(at.next_multiple_of(8)).cast()) }))
    }

    /// Gets `len` bytes of `target` into the origin's memory, both from offset 0.
    #[inline(always)]
    pub(super) fn get(&self, len: usize, target: usize) -> Result<()> {
        let into = self.origin_at(0, len)?;
        // SAFETY: as in `put`; no other code writes there.
        unsafe { self.raw.get(into, len, target, 0) }
    }

    /// Adds `value` to the first word of `target`.
    #[inline(always)]
    pub(super) fn add(&self, value: u64, target: usize) -> Result<()> {
        self.words.operand.set(value);
        // SAFETY: the word is kept until the window is released.
        unsafe { self.raw.accumulate(Op::Sum, self.words.operand.as_ptr(), std::ptr::null_mut(), 1, target, 0) }
    }

    /// Like [`add`](Self::add); after the flush, [`result`](Self::result) is the previous value.
    #[inline(always)]
    pub(super) fn fetch_add(&self, value: u64, target: usize) -> Result<()> {
        self.words.operand.set(value);
        let (operand, result) = (self.words.operand.as_ptr(), self.words.result.as_ptr());
        // SAFETY: both words are kept until the window is released.
        unsafe { self.raw.accumulate(Op::Sum, operand, result, 1, target, 0) }
    }

    /// Compares and swaps the first word of `target`; [`result`](Self::result) is the previous value after the flush.
    #[inline(always)]
    pub(super) fn compare_and_swap(&self, expected: u64, desired: u64, target: usize) -> Result<()> {
        // SAFETY: the word is kept until the window is released.
        unsafe { self.raw.compare_and_swap(expected, desired, self.words.result.as_ptr(), target, 0) }
    }

    /// The previous value that an atomic operation has fetched.
    #[inline(always)]
    pub(super) fn result(&self) -> u64 {
        self.words.result.get()
    }

    /// Fills the start of the origin's memory. Called only between epochs, or after a flush.
    pub(super) fn set_origin(&self, bytes: &[u8]) -> Result<()> {
        let to = self.origin_at(0, bytes.len())?;
        // SAFETY: inside the memory; `bytes` are private.
        unsafe { copy::store(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    /// Puts these bytes to the start of the memory of `target`, and waits for their remote completion.
    pub(super) fn put_whole(&self, bytes: &[u8], target: usize) -> Result<()> {
        self.set_origin(bytes)?;
        self.put(0, bytes.len(), target, 0)?;
        self.raw.flush(target)
    }

    /// The first `len` bytes of the memory of `target`, by a get into memory in which all bits are set.
    pub(super) fn get_whole(&self, len: usize, target: usize) -> Result<Vec<u8>> {
        self.set_origin(&vec![0xff; len])?;
        self.get(len, target)?;
        self.raw.flush(target)?;
        let (from, mut bytes) = (self.origin_at(0, len)?, vec![0; len]);
        // SAFETY: inside the memory; `bytes` are private.
        unsafe { copy::load(from, bytes.as_mut_ptr(), len) };
        Ok(bytes)
    }

    /// Sets `len` bytes of this rank's window to `value`, under its own lock. Called only outside access epochs of
    /// other ranks.
    pub(super) fn fill_local(&self, value: u8, len: usize) -> Result<()> {
        let bytes = vec![value; self.within(0, len)?];
        self.raw.lock_local()?;
        // SAFETY: inside the window's memory.
        unsafe { copy::store(bytes.as_ptr(), self.raw.base(), len) };
        self.raw.unlock(self.raw.team().rank())
    }

    /// The first `len` bytes of this rank's window, under its own lock.
    pub(super) fn local(&self, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.within(0, len)?];
        self.raw.lock_local()?;
        // SAFETY: inside the window's memory.
        unsafe { copy::load(self.raw.base(), bytes.as_mut_ptr(), len) };
        self.raw.unlock(self.raw.team().rank())?;
        Ok(bytes)
    }

    /// Frees the window. Collective.
    pub(super) fn free(self) -> Result<()> {
        self.raw.free()
    }

    #[inline(always)]
    fn origin_at(&self, at: usize, len: usize) -> Result<*mut u8> {
        // `word` has checked the offset.
        self.within(at, len).map(|_| self.origin.as_ptr().wrapping_add(at))
    }

    #[inline(always)]
    fn within(&self, at: usize, len: usize) -> Result<usize> {
        if at <= self.bytes && len <= self.bytes - at { Ok(len) } else { Err(self.too_long(at, len)) }
    }

    #[cold]
    fn too_long(&self, at: usize, len: usize) -> Error {
        Error::new(ErrorKind::OutOfRange, "use the memory of a measurement")
            .cause(format!("{len} bytes at byte {at} are not inside the {} bytes", self.bytes))
    }
}

impl Drop for Untyped {
    fn drop(&mut self) {
        // If the window cannot be released, its memory is leaked, as the process ends soon.
        if self.raw.release().is_ok() {
            // SAFETY: dropped once, here; after `release` no code accesses the memory.
            unsafe {
                ManuallyDrop::drop(&mut self.origin);
                ManuallyDrop::drop(&mut self.words);
                if let Some(memory) = &mut self.memory {
                    ManuallyDrop::drop(memory);
                }
            }
        }
    }
}
