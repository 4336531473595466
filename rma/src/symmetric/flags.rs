#![allow(unsafe_code)]
//! Flags: words that other ranks set or add to, and on which their own rank waits.

use std::cell::Cell;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{self, Poll};

use farside_core::bill::Awaited;
use farside_core::signal::Pace;
use farside_core::{Error, ErrorKind, Located, Result, Team, located};

use super::Symmetric;
use crate::collectives::poll_of;
use crate::raw::RawWindow;

/// A condition on a flag.
///
/// ```
/// use farside_rma::symmetric::{ge, ne};
///
/// assert!(ge(3).holds(3) && !ge(3).holds(2));
/// assert!(ne(0).holds(7));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    comparison: Comparison,
    value: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Eq,
    Ne,
    Gt,
    Ge,
    Lt,
    Le,
}

impl Condition {
    /// Whether a flag with this value meets the condition.
    #[must_use]
    #[inline]
    pub fn holds(self, flag: u64) -> bool {
        match self.comparison {
            Comparison::Eq => flag == self.value,
            Comparison::Ne => flag != self.value,
            Comparison::Gt => flag > self.value,
            Comparison::Ge => flag >= self.value,
            Comparison::Lt => flag < self.value,
            Comparison::Le => flag <= self.value,
        }
    }
}

macro_rules! conditions {
    ($($name:ident $variant:ident $what:literal;)*) => {$(
        #[doc = concat!("The flag is ", $what, " `value`.")]
        #[must_use]
        pub const fn $name(value: u64) -> Condition {
            Condition { comparison: Comparison::$variant, value }
        }
    )*};
}

conditions! {
    eq Eq "equal to";
    ne Ne "not equal to";
    gt Gt "greater than";
    ge Ge "at least";
    lt Lt "less than";
    le Le "at most";
}

/// `count` words at every rank of a team, zero at first. Other ranks set them and add to them, and wake the waiting
/// rank. A rank that sees a value also sees all data that the setting rank has previously put there (if memory is not
/// mapped, atomics only if they precede a [`quiet`](Symmetric::quiet)).
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let flags = Flags::allocate(&team, 2)?;
///     // Every rank adds to a counter at rank 0, which waits for all ranks and then releases them.
///     flags.add(0, 0, 1)?;
///     if team.rank() == 0 {
///         flags.wait_until(0, ge(3))?;
///         (0..3).try_for_each(|rank| flags.set(rank, 1, 8))?;
///     }
///     assert_eq!(flags.wait_until(1, ne(0))?, 8);
///     flags.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Debug)]
pub struct Flags {
    table: Symmetric<u64>,
    count: usize,
    /// Number of additions by this rank; it is written to the word that wakes a peer.
    added: Cell<u64>,
}

const WAIT: &str = "wait for a flag";

impl Flags {
    /// Allocates `count` flags at every rank. Collective; messages and memory are those of [`Symmetric::allocate`].
    ///
    /// # Errors
    /// Those of [`Symmetric::allocate`].
    #[track_caller]
    pub fn allocate(team: &Team, count: usize) -> Result<Self> {
        located(|| {
            // One hidden word more, which an addition sets to wake its target.
            let mut table = Symmetric::allocate_as(team, count, "flags", 1)?;
            table.watch_signals();
            Ok(Self { table, count, added: Cell::new(0) })
        })
    }

    /// Completes this rank's operations and frees the flags. Collective, with a barrier.
    ///
    /// # Errors
    /// Those of [`Symmetric::free`].
    #[track_caller]
    pub fn free(self) -> Result<()> {
        located(|| self.table.free())
    }

    #[inline]
    pub(super) fn raw(&self) -> &RawWindow {
        self.table.raw()
    }

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

    /// The team.
    #[must_use]
    pub fn team(&self) -> &Team {
        self.table.team()
    }

    /// Checks that a put to an array of `team` may be notified by these flags: both must use the same path to be
    /// ordered.
    #[inline]
    pub(super) fn check_team(&self, team: &Team) -> Result<()> {
        if self.team().context() == team.context() { Ok(()) } else { Err(self.other_team()) }
    }

    #[cold]
    fn other_team(&self) -> Error {
        Error::new(ErrorKind::BadArgument, "put and notify")
            .rank(self.team().job().rank())
            .cause("the flags belong to another team than the array")
            .remedy("allocate flags and array over the same team")
    }

    #[inline]
    pub(super) fn check(&self, rank: usize, index: usize) -> Result<usize> {
        self.raw().check_element("address a flag", rank, index, self.count)?;
        Ok(8 * index)
    }

    /// Sets flag `index` of `rank` to `value`, after this rank's earlier puts to `rank` in arrays of the team are
    /// visible there; after [`quiet`](Symmetric::quiet) of an array, also after its atomics. One message; a store if
    /// memory is mapped.
    ///
    /// # Errors
    /// `NoSuchRank`, `OutOfRange`, `PeerLost`.
    #[inline]
    #[track_caller]
    pub fn set(&self, rank: usize, index: usize, value: u64) -> Result<()> {
        let raw = self.raw();
        raw.signal(rank, self.check(rank, index).located()?, value).located()?;
        if rank == self.team().rank() {
            raw.job().wake_futures();
        }
        Ok(())
    }

    /// Adds `value` to flag `index` of `rank` atomically, ordered like [`set`](Self::set). One message and its reply;
    /// an atomic if memory is mapped.
    ///
    /// # Errors
    /// Those of [`set`](Self::set).
    #[inline]
    #[track_caller]
    pub fn add(&self, rank: usize, index: usize, value: u64) -> Result<()> {
        let offset = self.check(rank, index).located()?;
        self.added.set(self.added.get() + 1);
        self.raw().signal_add(rank, offset, value, (8 * self.count, self.added.get())).located()
    }

    /// Returns the value of this rank's flag `index`.
    ///
    /// # Errors
    /// `OutOfRange`.
    #[inline]
    #[track_caller]
    pub fn get(&self, index: usize) -> Result<u64> {
        // Acquire: pairs with the Release of `set`, of the rank that set the flag.
        self.word(index).map(|word| word.load(Ordering::Acquire)).located()
    }

    /// Sets this rank's own flag `index`, for its next use. A store, which must not be concurrent with an
    /// [`add`](Self::add) of another rank.
    ///
    /// # Errors
    /// `OutOfRange`.
    #[track_caller]
    pub fn reset(&self, index: usize, value: u64) -> Result<()> {
        located(|| {
            // Release: pairs with the Acquire of `get`, of this rank.
            self.word(index)?.store(value, Ordering::Release);
            self.team().job().wake_futures();
            Ok(())
        })
    }

    #[inline]
    fn word(&self, index: usize) -> Result<&AtomicU64> {
        let offset = self.check(self.team().rank(), index)?;
        // SAFETY: an aligned word of this rank's own memory, which lives as long as the array and is accessed as an atomic
        // and by devices. Acquire in `get` pairs with the Release of `set`, or with the device's ordering of writes.
        Ok(unsafe { AtomicU64::from_ptr(self.raw().base().add(offset).cast()) })
    }

    fn words(&self, range: &Range<usize>) -> Result<Vec<&AtomicU64>> {
        range.clone().map(|index| self.word(index)).collect()
    }

    fn awaited(&self) -> Awaited {
        Awaited { account: self.raw().account(), ..Awaited::unknown(WAIT) }
    }

    /// Waits until flag `index` of this rank meets the condition, and returns its value.
    ///
    /// # Errors
    /// `OutOfRange`; `PeerLost`.
    #[inline]
    #[track_caller]
    pub fn wait_until(&self, index: usize, condition: Condition) -> Result<u64> {
        let word = self.word(index).located()?;
        self.team().job().running(WAIT).located()?;
        let seen = Cell::new(0);
        let holds = || {
            // Acquire: pairs with the Release of `set`.
            seen.set(word.load(Ordering::Acquire));
            condition.holds(seen.get())
        };
        if !holds() {
            self.team().job().wait_signal(|| self.awaited(), Pace::ANSWER, self.raw().is_mapped(), holds).located()?;
        }
        Ok(seen.get())
    }

    /// Waits until any flag of a range meets the condition, and returns its index: the lowest one.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let flags = Flags::allocate(&team, 3)?;
    ///     // A flag for each rank; rank 0 serves the others in the order of arrival.
    ///     if team.rank() > 0 {
    ///         flags.set(0, team.rank(), 1)?;
    ///     } else {
    ///         for _ in 1..3 {
    ///             let from = flags.wait_any(1..3, eq(1))?;
    ///             flags.reset(from, 0)?;
    ///             flags.set(from, 0, 5)?;
    ///         }
    ///     }
    ///     assert!(team.rank() == 0 || flags.wait_until(0, ne(0))? == 5);
    ///     flags.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`wait_until`](Self::wait_until); `BadArgument` for an empty range.
    #[track_caller]
    pub fn wait_any(&self, range: Range<usize>, condition: Condition) -> Result<usize> {
        located(|| {
            if range.is_empty() {
                return Err(Error::new(ErrorKind::BadArgument, WAIT).cause("the list of flags is empty"));
            }
            let words = self.words(&range)?;
            // Acquire: pairs with the Release of `set`.
            let found = || words.iter().position(|word| condition.holds(word.load(Ordering::Acquire)));
            let first = self.team().job().wait(|| self.awaited(), || Ok(found()))?;
            Ok(range.start + first)
        })
    }

    /// Waits until any flag of a range meets the condition, and returns the indices of all that do then, in order.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let flags = Flags::allocate(&team, 3)?;
    ///     flags.set(0, team.rank(), 1)?;
    ///     let mut left = if team.rank() == 0 { 3 } else { 0 };
    ///     while left > 0 {
    ///         for from in flags.wait_some(0..3, eq(1))? {
    ///             flags.reset(from, 0)?;
    ///             left -= 1;
    ///         }
    ///     }
    ///     flags.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`wait_any`](Self::wait_any).
    #[track_caller]
    pub fn wait_some(&self, range: Range<usize>, condition: Condition) -> Result<Vec<usize>> {
        located(|| {
            let first = self.wait_any(range.clone(), condition)?;
            let words = self.words(&(first..range.end))?;
            // Acquire: pairs with the Release of `set`.
            let rest = words.iter().skip(1).map(|word| condition.holds(word.load(Ordering::Acquire)));
            Ok((first..range.end)
                .zip(std::iter::once(true).chain(rest))
                .filter(|(_, holds)| *holds)
                .map(|(at, _)| at)
                .collect())
        })
    }

    /// Waits until all flags of a range have met the condition at some time.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let (flags, data) = (Flags::allocate(&team, 3)?, Symmetric::<usize>::allocate(&team, 3)?);
    ///     for rank in 0..3 {
    ///         data.put_notify(&[10 * team.rank()], rank, team.rank(), &flags, team.rank(), 1)?;
    ///     }
    ///     flags.wait_all(0..3, ne(0))?;
    ///     assert_eq!(data.local().to_vec()?, [0, 10, 20]);
    ///     data.free()?;
    ///     flags.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`wait_until`](Self::wait_until).
    #[track_caller]
    pub fn wait_all(&self, range: Range<usize>, condition: Condition) -> Result<()> {
        located(|| {
            let mut words = self.words(&range)?;
            self.team().job().wait(
                || self.awaited(),
                || {
                    // Acquire: pairs with the Release of `set`.
                    words.retain(|word| !condition.holds(word.load(Ordering::Acquire)));
                    Ok(words.is_empty().then_some(()))
                },
            )
        })
    }

    /// Makes progress once; returns whether flag `index` of this rank meets the condition.
    ///
    /// # Errors
    /// Those of [`wait_until`](Self::wait_until).
    #[track_caller]
    pub fn test(&self, index: usize, condition: Condition) -> Result<bool> {
        located(|| {
            let word = self.word(index)?;
            self.team().job().running(WAIT)?;
            // Acquire: pairs with the Release of `set`.
            let holds = || condition.holds(word.load(Ordering::Acquire));
            if holds() {
                return Ok(true);
            }
            self.team().job().progress_of_test()?;
            Ok(holds())
        })
    }

    /// A future of [`wait_until`](Self::wait_until).
    ///
    /// ```
    /// # #[cfg(feature = "async")] {
    /// use farside_rma::{block_on, prelude::*};
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     let flags = Flags::allocate(&team, 1)?;
    ///     flags.set(1 - team.rank(), 0, 3)?;
    ///     assert_eq!(block_on(async { flags.until(0, ne(0)).await })??, 3);
    ///     flags.free()
    /// })?;
    /// # }
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    pub fn until(&self, index: usize, condition: Condition) -> Until<'_> {
        Until { flags: self, index, condition }
    }
}

/// A future of [`Flags::until`].
///
/// ```
/// # #[cfg(feature = "async")] {
/// use farside_rma::{block_on, prelude::*};
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let flags = Flags::allocate(&team, 2)?;
///     (0..2).try_for_each(|index| flags.set(1 - team.rank(), index, 4 + index as u64))?;
///     let (first, second) = (flags.until(0, ne(0)), flags.until(1, ne(0)));
///     let both = block_on(async { Ok::<_, Error>((first.await?, second.await?)) })??;
///     assert_eq!(both, (4, 5));
///     flags.free()
/// })?;
/// # }
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "await it"]
pub struct Until<'a> {
    flags: &'a Flags,
    index: usize,
    condition: Condition,
}

impl Future for Until<'_> {
    type Output = Result<u64>;

    fn poll(self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<Self::Output> {
        let value_if_held = || {
            if !self.flags.test(self.index, self.condition)? {
                return Ok(None);
            }
            self.flags.get(self.index).map(|value| self.condition.holds(value).then_some(value))
        };
        poll_of(self.flags.team().job(), context, value_if_held())
    }
}
