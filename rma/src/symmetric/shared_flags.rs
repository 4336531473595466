#![allow(unsafe_code)]
//! Flags for several threads of a rank.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use farside_core::device::PeerWaker;
use farside_core::stats::Kind;
use farside_core::{Error, ErrorKind, Located, Result};

use super::flags::{Condition, Flags};
use crate::raw::MappedWindow;

/// A handle by which any thread of this rank accesses flags ([`Flags::shared`]). Only the rank's own thread can wait
/// for a flag, since the wait makes progress.
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let (data, flags) = (Symmetric::<u64>::allocate(&team, 4)?, Flags::allocate(&team, 1)?);
///     let (shared, signals) = (data.shared()?, flags.shared()?);
///     std::thread::scope(|scope| {
///         for at in 0..4 {
///             let (shared, signals) = (&shared, &signals);
///             scope.spawn(move || {
///                 let peer = 1 - shared.rank();
///                 shared.put_value(at as u64, peer, at)?;
///                 signals.add(peer, 0, 1)
///             });
///         }
///         flags.wait_until(0, ge(4)).map(drop)
///     })?;
///     assert_eq!(data.local().to_vec()?, [0, 1, 2, 3]);
///     drop((shared, signals));
///     flags.free()?;
///     data.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
pub struct SharedFlags<'a> {
    window: MappedWindow<'a>,
    count: usize,
    waker: PeerWaker,
}

impl fmt::Debug for SharedFlags<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedFlags").field("window", &self.window).field("count", &self.count).finish_non_exhaustive()
    }
}

impl Flags {
    /// A handle of the flags for the threads of this rank. Sends nothing.
    ///
    /// # Errors
    /// `Unsupported` if the memory of some rank is not mapped, so that flags are set by messages, or if the device's ranks
    /// cannot be woken by any thread; `Freed` after the end of the job.
    #[track_caller]
    pub fn shared(&self) -> Result<SharedFlags<'_>> {
        self.share().located()
    }

    fn share(&self) -> Result<SharedFlags<'_>> {
        let (raw, job) = (self.raw(), self.team().job());
        raw.usable("share flags with threads")?;
        match (raw.mapped(), job.device().peer_waker()) {
            (Some(window), Some(waker)) => Ok(SharedFlags { window, count: self.len(), waker }),
            _ => Err(Error::new(ErrorKind::Unsupported, "share flags with threads")
                .rank(job.rank())
                .device(job.device().capabilities().name)
                .cause("the flags of some rank are not mapped, or the device cannot wake a rank from another thread")
                .remedy("use a team of ranks of one node, or set the flags in the rank's own thread")),
        }
    }
}

impl SharedFlags<'_> {
    /// Number of flags at each rank.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no flags.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The word of a flag.
    #[inline]
    fn word(&self, name: &'static str, rank: usize, index: usize) -> Result<&AtomicU64> {
        let word = if index < self.count { self.window.word(rank, 8 * index) } else { None };
        word.ok_or_else(|| self.refused(name, rank, index))
    }

    #[cold]
    fn refused(&self, name: &'static str, rank: usize, index: usize) -> Error {
        if let Err(e) = self.window.check(name, rank, 0, 0) {
            return e;
        }
        let e = Error::new(ErrorKind::OutOfRange, name).rank(self.window.rank());
        e.cause(format!("flag {index} of {}; or signals are traced, so that threads cannot set flags", self.count))
    }

    /// Sets flag `index` of `rank` to `value`, after this thread's earlier operations on mapped memory are visible there.
    ///
    /// # Errors
    /// `NoSuchRank`, `OutOfRange`; `WrongEpoch` after the end of the job.
    #[inline]
    #[track_caller]
    pub fn set(&self, rank: usize, index: usize, value: u64) -> Result<()> {
        let word = self.word("set a flag", rank, index).located()?;
        // Release: pairs with the Acquire of `Flags::get` and of its waits.
        word.store(value, Ordering::Release);
        self.signalled(Kind::Signal, rank);
        Ok(())
    }

    /// Adds `value` to flag `index` of `rank` atomically, ordered like [`set`](Self::set).
    ///
    /// # Errors
    /// Those of [`set`](Self::set).
    #[inline]
    #[track_caller]
    pub fn add(&self, rank: usize, index: usize, value: u64) -> Result<()> {
        let word = self.word("add to a flag", rank, index).located()?;
        // AcqRel: Release as in `set`; Acquire, so that a chain of additions is ordered.
        word.fetch_add(value, Ordering::AcqRel);
        self.signalled(Kind::FetchAdd, rank);
        Ok(())
    }

    #[inline]
    fn signalled(&self, kind: Kind, rank: usize) {
        self.window.count(kind, 8);
        (self.waker)(self.window.peer(rank));
    }

    /// The value of this rank's flag `index`.
    ///
    /// # Errors
    /// `OutOfRange`; `WrongEpoch` after the end of the job.
    #[inline]
    #[track_caller]
    pub fn get(&self, index: usize) -> Result<u64> {
        let word = self.word("read a flag", self.window.rank(), index).located()?;
        // Acquire: pairs with the Release of `set`.
        Ok(word.load(Ordering::Acquire))
    }

    /// Whether this rank's flag `index` meets the condition.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    #[inline]
    #[track_caller]
    pub fn holds(&self, index: usize, condition: Condition) -> Result<bool> {
        Ok(condition.holds(self.get(index)?))
    }
}
