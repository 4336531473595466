//! Copies of one block each.
#![allow(unsafe_code)]

use std::ptr::copy_nonoverlapping;

/// Copies one block of a length that its type knows, or knows the class of.
pub(super) trait Move: Copy {
    /// For blocks of `len` bytes.
    fn of(len: usize) -> Self;

    /// Bytes of a block.
    fn len(self) -> usize;

    /// # Safety
    /// The block at `from` must be readable, that at `to` writable, and the two apart.
    unsafe fn one(self, from: *const u8, to: *mut u8);
}

/// `N` bytes.
#[derive(Clone, Copy)]
pub(super) struct Fixed<const N: usize>;

impl<const N: usize> Move for Fixed<N> {
    #[inline(always)]
    fn of(_: usize) -> Self {
        Self
    }

    #[inline(always)]
    fn len(self) -> usize {
        N
    }

    #[inline(always)]
    unsafe fn one(self, from: *const u8, to: *mut u8) {
        // SAFETY: a block of `N` bytes, which the caller vouches for.
        unsafe { copy_nonoverlapping(from, to, N) };
    }
}

/// More than `N` and fewer than 2 `N` bytes: the first `N` and the last `N`.
#[derive(Clone, Copy)]
pub(super) struct Ends<const N: usize>(usize);

impl<const N: usize> Move for Ends<N> {
    #[inline(always)]
    fn of(len: usize) -> Self {
        Self(len)
    }

    #[inline(always)]
    fn len(self) -> usize {
        self.0
    }

    #[inline(always)]
    unsafe fn one(self, from: *const u8, to: *mut u8) {
        let rest = self.0 - N;
        // SAFETY: both pieces are parts of a block that the caller vouches for.
        unsafe {
            copy_nonoverlapping(from, to, N);
            copy_nonoverlapping(from.add(rest), to.add(rest), N);
        }
    }
}

/// From `N` to 2 `N` bytes: as [`Ends`].
#[derive(Clone, Copy)]
pub(super) struct Upto<const N: usize>(Ends<N>);

impl<const N: usize> Move for Upto<N> {
    #[inline(always)]
    fn of(len: usize) -> Self {
        Self(Ends(len))
    }

    #[inline(always)]
    fn len(self) -> usize {
        self.0.0
    }

    #[inline(always)]
    unsafe fn one(self, from: *const u8, to: *mut u8) {
        // SAFETY: the caller's promise; of exactly `N` bytes both pieces are all.
        unsafe { self.0.one(from, to) };
    }
}

/// At least [`LONG`](super::LONG) bytes, and so few that a call costs more than it gains: 64 at a time, the last 64 once more.
#[derive(Clone, Copy)]
pub(super) struct Row(usize);

impl Move for Row {
    #[inline(always)]
    fn of(len: usize) -> Self {
        Self(len)
    }

    #[inline(always)]
    fn len(self) -> usize {
        self.0
    }

    #[inline(always)]
    unsafe fn one(self, from: *const u8, to: *mut u8) {
        let last = self.0 - 64;
        let mut at = 0;
        // SAFETY: all pieces are parts of a block that the caller vouches for, which is longer than one of them.
        unsafe {
            while at < last {
                copy_nonoverlapping(from.add(at), to.add(at), 64);
                at += 64;
            }
            copy_nonoverlapping(from.add(last), to.add(last), 64);
        }
    }
}

/// So many bytes.
#[derive(Clone, Copy)]
pub(super) struct Long(usize);

impl Move for Long {
    #[inline(always)]
    fn of(len: usize) -> Self {
        Self(len)
    }

    #[inline(always)]
    fn len(self) -> usize {
        self.0
    }

    #[inline(always)]
    unsafe fn one(self, from: *const u8, to: *mut u8) {
        // SAFETY: a block that the caller vouches for.
        unsafe { copy_nonoverlapping(from, to, self.0) };
    }
}
