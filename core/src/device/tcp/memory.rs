#![allow(unsafe_code)]
//! The regions of this rank that peers access, and the operations of the target's processor on them. Keys, offsets and
//! lengths come from peers and are untrusted.

use std::sync::atomic::{AtomicU64, Ordering};

use super::frame::{Header, Kind};
use crate::device::{Change, Place, Update, code};
use crate::error::ErrorKind;
use crate::memory::copy;
use crate::memory::keys::{Exposed, Exposures};

/// The regions of a rank.
#[derive(Default)]
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

    /// Sets a cell. An owner that reads the value also sees all earlier writes.
    pub(super) fn signal(&self, place: (u64, u64), value: u64) -> Result<(), ErrorKind> {
        self.at(place, 8, |p, _| {
            if !p.addr().is_multiple_of(8) {
                return Err(ErrorKind::Misaligned);
            }
            // SAFETY: an aligned word of a region, which every rank accesses as an atomic.
            // Release: pairs with the Acquire of the cell's owner.
            unsafe { AtomicU64::from_ptr(p.cast()) }.store(value, Ordering::Release);
            Ok(())
        })
    }

    /// Executes an update of this rank.
    ///
    /// # Safety
    /// Its local pointers are valid.
    pub(super) unsafe fn update(&self, place: (u64, u64), update: &Update) -> Result<(), ErrorKind> {
        // SAFETY: checked bytes of a region; the rest by the contract.
        self.at(place, update.len, |p, region| unsafe { update.apply(region.accumulate, p) })
    }

    /// Executes the update that a frame of a peer requests; the previous values go to `old` if it is not empty.
    ///
    /// # Panics
    /// If the payload is shorter than the frame says, or if the length of `old` is neither 0 nor that of the update.
    pub(super) fn serve(&self, header: &Header, payload: &[u8], old: &mut [u8]) -> Result<(), ErrorKind> {
        let len = header.updated_bytes();
        assert!(payload.len() >= header.payload() && (old.is_empty() || old.len() == len));
        let change = match header.kind {
            Kind::FetchAdd => Change::Add(header.len),
            Kind::CompareSwap => Change::of(code::COMPARE_SWAP, payload),
            _ => Change::Accumulate { code: header.code, operand: payload.as_ptr() },
        };
        let old = if old.is_empty() { std::ptr::null_mut() } else { old.as_mut_ptr() };
        let (at, place) = (Place { region: header.key, offset: 0 }, (header.key, header.offset));
        // SAFETY: the lengths of both buffers were checked.
        unsafe { self.update(place, &Update { change, at, len, old }) }
    }
}
