#![allow(unsafe_code)]
//! Symmetric memory, as in OpenSHMEM: arrays of the same length at every rank of a team that are accessible at any
//! time. There are no epochs; operations are complete on return, or are nonblocking and completed by
//! [`quiet`](Symmetric::quiet).
//!
//! | call | messages where memory is mapped | else | complete |
//! |---|---|---|---|
//! | `put`, `put_value`, `put_own`, `put_selected` | none: a copy | write | on return, at the target |
//! | `get`, `get_value`, `get_selected` | none: a copy | read and its answer | on return |
//! | `put_nbi`, `get_nbi` | none: a copy | write, read | with the [`Pending`], or with `quiet` |
//! | `atomic(..).fetch_add`, `swap`, ... | none: an atomic | atomic and its answer | on return |
//! | `atomic(..).add`, `set`, ... | none: an atomic | atomic | with `quiet` |
//! | `put_notify` | none: a copy and a store | write, signal | on return; the flag is set after the data |
//! | `put_notify_add` | none: a copy and an atomic | write, accumulate | the same |
//! | `quiet` | none | none; waits for answers | |
//! | `fence` | none | none; waits for answers | |
//! | `barrier` | ⌈log2 P⌉ signals | ⌈log2 P⌉ signals | |

pub(crate) mod atomic;
mod context;
mod flags;
mod notify;
mod selected;
mod shared_flags;

use std::marker::PhantomData;
use std::ops::Range;
use std::rc::Rc;
use std::slice::{from_mut, from_ref};

use bytemuck::{CheckedBitPattern, NoUninit, Pod};
use farside_core::job::OneThread;
use farside_core::{Error, ErrorKind, Located, Result, Team, located};

use crate::elements::{WindowElement, bytes};
use crate::epoch::closing;
use crate::op::{Element, Op};
use crate::pending::Transfer;
pub use crate::pending::{Buffer, Fetched, Pending};
use crate::raw::{Body, Options, RawWindow};
use crate::shared_window::SharedSlice;
pub use atomic::Atomic;
pub use context::Context;
pub use flags::{Condition, Flags, Until, eq, ge, gt, le, lt, ne};
pub use shared_flags::SharedFlags;

/// An array of `len` elements at every rank of a team, which all ranks may access at any time.
///
/// Elements are any [`Pod`] type: numbers, structs, arrays. Atomics take the numbers ([`Element`]).
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(4, |job| {
///     let team = job.world()?;
///     let (me, right) = (team.rank(), (team.rank() + 1) % 4);
///     let table = Symmetric::<u64>::allocate(&team, 10)?;
///     // Two elements to the right neighbour, and a counter at rank 0.
///     table.put(&[me as u64, 7], right, 3)?;
///     let before = table.atomic(0, 0)?.fetch_add(1)?;
///     assert!(before < 4);
///     table.barrier()?;
///     assert_eq!(table.local().load(3)?, (me as u64 + 3) % 4);
///     assert_eq!(table.get_value(0, 0)?, 4);
///     table.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Debug)]
pub struct Symmetric<T: Pod> {
    // First field, so that compiler errors about `Send` name it.
    _thread: OneThread,
    raw: Rc<RawWindow>,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Pod> Symmetric<T> {
    /// Allocates `len` zeroed elements at every rank. Collective, with the same length at all ranks. Messages and memory:
    /// those of [`Window::allocate`](crate::Window::allocate).
    ///
    /// # Errors
    /// `Mismatch` on every rank if lengths or element types differ; those of
    /// [`Window::allocate`](crate::Window::allocate).
    #[track_caller]
    pub fn allocate(team: &Team, len: usize) -> Result<Self> {
        located(|| Self::allocate_as(team, len, "symmetric memory", 0))
    }

    /// Like [`allocate`](Self::allocate), for an object that reserves the last `hidden` elements for itself.
    fn allocate_as(team: &Team, count: usize, object: &'static str, hidden: usize) -> Result<Self> {
        let len = count.saturating_add(hidden);
        let element = WindowElement::of::<T>(object);
        let raw = RawWindow::allocate_of(team, bytes::<T>(len), Options::default(), Some(element))?;
        let lens: Vec<usize> = (0..team.size()).map(|rank| raw.len_at(rank)).collect::<Result<_>>()?;
        // Every rank compares the same lengths, so either all ranks fail or none.
        if let Some(other) = (0..lens.len()).find(|rank| lens[*rank] != lens[0]) {
            let by = if other == team.rank() { 0 } else { other };
            raw.free()?;
            let theirs = lens[by] / size_of::<T>() - hidden;
            return Err(Error::new(ErrorKind::Mismatch, "allocate symmetric memory")
                .rank(team.job().rank())
                .peer(team.members()[by])
                .cause(format!("the peer requests {object} of {theirs} elements, but this rank requests {count}"))
                .remedy("give the same length at every rank, or create a window, whose lengths may differ"));
        }
        raw.open_always();
        Ok(Self { _thread: PhantomData, raw: Rc::new(raw), len, element: PhantomData })
    }

    /// Makes the trace report signals to this memory ([`RawWindow::watch_signals`]).
    fn watch_signals(&mut self) {
        if let Some(raw) = Rc::get_mut(&mut self.raw) {
            raw.watch_signals();
        }
    }

    /// Completes this rank's operations and frees the memory. Collective, with a barrier.
    ///
    /// # Errors
    /// The first error of an operation that was in progress; `PeerLost`; `System` if memory could not be unmapped.
    #[track_caller]
    pub fn free(self) -> Result<()> {
        located(|| {
            let completed = self.raw().unlock_all();
            self.raw().free()?;
            completed
        })
    }

    /// Number of elements at each rank.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the array has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The team.
    #[must_use]
    pub fn team(&self) -> &Team {
        self.raw().team()
    }

    /// Whether every rank maps the memory of every other one, so that operations are loads and stores.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.raw().is_mapped()
    }

    #[inline(always)]
    pub(crate) fn raw(&self) -> &RawWindow {
        &self.raw
    }

    pub(crate) fn raw_handle(&self) -> &Rc<RawWindow> {
        &self.raw
    }

    /// Puts `from` to `rank` at element `at`; complete at the target on return.
    ///
    /// # Errors
    /// `NoSuchRank`, `OutOfRange`; `WrongEpoch` inside [`exclusive`](Self::exclusive); `PeerLost`; `InCallback`; `Freed` after
    /// the end of the job.
    #[inline]
    #[track_caller]
    pub fn put(&self, from: &[T], rank: usize, at: usize) -> Result<()> {
        let (data, len, offset) = (from.as_ptr().cast(), size_of_val(from), bytes::<T>(at)?);
        // SAFETY: `from` is valid during the call, and `blocking` completes or abandons the operation.
        unsafe {
            let order = self.raw().job().store_order();
            if !order.refuses() && self.raw().try_put(data, len, rank, offset) {
                // Keeps a later get of this rank from overtaking the put.
                order.fence_before_load();
                return Ok(());
            }
            self.raw().blocking(rank, |raw| raw.put(data, len, rank, offset)).located()
        }
    }

    /// Puts one element; complete at the target on return.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    #[inline]
    #[track_caller]
    pub fn put_value(&self, value: T, rank: usize, at: usize) -> Result<()> {
        self.put(from_ref(&value), rank, at)
    }

    /// Gets as many elements of `rank` from element `at` on as `into` has; complete on return.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    #[inline]
    #[track_caller]
    pub fn get(&self, into: &mut [T], rank: usize, at: usize) -> Result<()> {
        let (data, len, offset) = (into.as_mut_ptr().cast(), size_of_val(into), bytes::<T>(at)?);
        // SAFETY: `into` is valid during the call, and `blocking` completes or abandons the operation.
        unsafe {
            if self.raw().try_get(data, len, rank, offset) {
                return Ok(());
            }
            self.raw().blocking(rank, |raw| raw.get(data, len, rank, offset)).located()
        }
    }

    /// Gets one element; complete on return.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    #[inline]
    #[track_caller]
    pub fn get_value(&self, rank: usize, at: usize) -> Result<T> {
        located(|| {
            let mut value = T::zeroed();
            self.get(from_mut(&mut value), rank, at)?;
            Ok(value)
        })
    }

    /// Puts values of another type with the size of an element, such as `bool` into an array of `u8`; complete at the
    /// target on return.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     let table = Symmetric::<u8>::allocate(&team, 4)?;
    ///     table.put_as(&[true, false, true], 1 - team.rank(), 1)?;
    ///     table.barrier()?;
    ///     assert_eq!(table.get_as::<bool>(team.rank(), 0, 4)?, [false, true, false, true]);
    ///     table.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    #[track_caller]
    pub fn put_as<U: NoUninit>(&self, from: &[U], rank: usize, at: usize) -> Result<()> {
        located(|| {
            const { assert!(size_of::<U>() == size_of::<T>(), "the types have different sizes") };
            let value = |value: &U| bytemuck::pod_read_unaligned(bytemuck::bytes_of(value));
            let values: Vec<T> = from.iter().map(value).collect();
            self.put(&values, rank, at)
        })
    }

    /// Gets `count` elements as values of another type of the same size, for which not every bit pattern need be valid;
    /// complete on return.
    ///
    /// # Errors
    /// Those of [`put`](Self::put); `BadArgument` if an element is not a value of the type.
    #[track_caller]
    pub fn get_as<U: CheckedBitPattern>(&self, rank: usize, at: usize, count: usize) -> Result<Vec<U>> {
        located(|| {
            const { assert!(size_of::<U>() == size_of::<T>(), "the types have different sizes") };
            self.raw().check_range("get", rank, bytes::<T>(at)?, bytes::<T>(count)?)?;
            let mut values = vec![T::zeroed(); count];
            self.get(&mut values, rank, at)?;
            let value = |(i, value): (usize, &T)| {
                bytemuck::checked::try_pod_read_unaligned(bytemuck::bytes_of(value)).map_err(|_| {
                    Error::new(ErrorKind::BadArgument, "get elements as another type").cause(format!(
                        "element {} is not a `{}`",
                        at + i,
                        std::any::type_name::<U>()
                    ))
                })
            };
            values.iter().enumerate().map(value).collect()
        })
    }

    /// Puts elements `range` of this rank's own memory to `rank` at element `at`, without a copy of them; complete at the
    /// target on return.
    ///
    /// # Errors
    /// Those of [`put`](Self::put); `OutOfRange` for a range outside of this rank's memory.
    #[track_caller]
    pub fn put_own(&self, range: Range<usize>, rank: usize, at: usize) -> Result<()> {
        located(|| {
            let (own, offset) = (bytes::<T>(range.start)?..bytes::<T>(range.end)?, bytes::<T>(at)?);
            self.raw().blocking(rank, |raw| raw.put_own(own, rank, offset))
        })
    }

    /// Starts a put of a buffer, which the handle returns: a vector, a boxed slice or an array. It is complete at the
    /// target when the handle's wait or [`quiet`](Self::quiet) has returned.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     let table = Symmetric::<u64>::allocate(&team, 100)?;
    ///     let put = table.put_nbi(vec![3; 50], 1 - team.rank(), 50)?;
    ///     // Other work, and then the vector can be used again.
    ///     let mut vector = put.wait()?;
    ///     table.barrier()?;
    ///     vector = table.get_nbi(vector, team.rank(), 50)?.wait()?;
    ///     assert_eq!(vector, [3; 50]);
    ///     table.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`put`](Self::put); the buffer is then dropped.
    #[track_caller]
    pub fn put_nbi<B: Buffer<T>>(&self, from: B, rank: usize, at: usize) -> Result<Pending<B>> {
        self.transfer(Transfer::Put, from, rank, at, None)
    }

    /// Starts a get into a buffer, which the handle returns when all its elements have arrived.
    ///
    /// # Errors
    /// Those of [`put_nbi`](Self::put_nbi).
    #[track_caller]
    pub fn get_nbi<B: Buffer<T>>(&self, into: B, rank: usize, at: usize) -> Result<Pending<B>> {
        self.transfer(Transfer::Get, into, rank, at, None)
    }

    #[track_caller]
    fn transfer<B: Buffer<T>>(
        &self,
        transfer: Transfer,
        buffer: B,
        rank: usize,
        at: usize,
        context: Option<&Context>,
    ) -> Result<Pending<B>> {
        located(|| {
            let note = Context::note(context, &self.raw, rank);
            Pending::start(&self.raw, transfer, buffer, (rank, bytes::<T>(at)?), note)
        })
    }

    /// Element `at` of `rank` as an atomic.
    ///
    /// # Errors
    /// `NoSuchRank`, `OutOfRange`.
    #[inline]
    #[track_caller]
    pub fn atomic(&self, rank: usize, at: usize) -> Result<Atomic<'_, T>>
    where
        T: Element,
    {
        Atomic::new(self, rank, at).located()
    }

    /// Accumulates `operand` into elements of `rank` from `at` on, each atomically; complete at the target on return.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let sums = Symmetric::<f64>::allocate(&team, 2)?;
    ///     sums.accumulate(Op::Sum, &[0.5, 2.0], 0, 0)?;
    ///     sums.barrier()?;
    ///     assert_eq!((sums.get_value(0, 0)?, sums.get_value(0, 1)?), (1.5, 6.0));
    ///     sums.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`put`](Self::put); `Unsupported` for a logical or bitwise operation on floats.
    #[track_caller]
    pub fn accumulate(&self, op: Op, operand: &[T], rank: usize, at: usize) -> Result<()>
    where
        T: Element,
    {
        located(|| {
            let offset = bytes::<T>(at)?;
            let (from, count) = (operand.as_ptr(), operand.len());
            // SAFETY: `operand` is valid during the call, and `blocking` completes or abandons the operation.
            self.raw()
                .blocking(rank, |raw| unsafe { raw.accumulate(op, from, std::ptr::null_mut(), count, rank, offset) })
        })
    }

    /// Completes all operations of this rank on the array at their targets, including those of contexts, and orders
    /// them before all its later operations and loads. No message.
    ///
    /// # Errors
    /// The first error of an operation; `PeerLost`.
    #[inline]
    #[track_caller]
    pub fn quiet(&self) -> Result<()> {
        located(|| self.raw().quiet())
    }

    /// Orders the operations of this rank on each target before its later ones on the same target. If memory is not
    /// mapped this completes them, as [`quiet`](Self::quiet) does.
    ///
    /// # Errors
    /// Those of [`quiet`](Self::quiet).
    #[inline]
    #[track_caller]
    pub fn fence(&self) -> Result<()> {
        located(|| {
            if !self.is_mapped() {
                return self.quiet();
            }
            self.raw().job().running("fence")?;
            // Release: keeps earlier stores before later ones.
            std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
            Ok(())
        })
    }

    /// Calls [`quiet`](Self::quiet), and then executes a barrier: on return the operations that all ranks issued before
    /// the call are complete. Collective; ⌈log2 P⌉ messages a rank.
    ///
    /// # Errors
    /// Those of [`quiet`](Self::quiet).
    #[track_caller]
    pub fn barrier(&self) -> Result<()> {
        located(|| {
            self.quiet()?;
            self.raw().end_shares();
            self.team().barrier()
        })
    }

    /// This rank's elements, for loads and stores concurrent with operations of other ranks.
    #[must_use]
    pub fn local(&self) -> SharedSlice<'_, T> {
        SharedSlice::own(self.raw(), self.len)
    }

    /// Completes all operations, runs `body` with this rank's elements while no other rank accesses them, and makes the
    /// array accessible again. Collective: inside `body` every rank has only its own elements, and operations on the
    /// array fail. Two barriers of the team, each with the messages of a fence.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     let table = Symmetric::<u64>::allocate(&team, 4)?;
    ///     table.atomic(0, 3)?.add(20 + team.rank() as u64)?;
    ///     let sorted = table.exclusive(|own| {
    ///         own.sort_unstable();
    ///         Ok::<_, Error>(own.to_vec())
    ///     })?;
    ///     assert_eq!(sorted[3], if team.rank() == 0 { 41 } else { 0 });
    ///     table.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Any error of `body`; those of [`quiet`](Self::quiet); `WrongEpoch` inside another call of `exclusive`, or while
    /// a handle for threads exists ([`shared`](Self::shared)).
    #[track_caller]
    pub fn exclusive<R, E: From<Error>>(&self, body: impl FnOnce(&mut [T]) -> Result<R, E>) -> Result<R, E> {
        let raw = self.raw();
        located(|| {
            raw.usable("access symmetric memory exclusively")?;
            raw.check_not_borrowed("access symmetric memory exclusively")?;
            raw.check_no_handles("access symmetric memory exclusively")
        })?;
        // All ranks complete their operations; even after an error this rank must enter both barriers.
        let completed = raw.unlock_all();
        located(|| {
            raw.barrier()?;
            if completed.is_err() {
                raw.barrier()?;
                raw.open_always();
            }
            completed
        })?;
        raw.borrowed.set(true);
        let base = if self.len == 0 { std::ptr::NonNull::dangling().as_ptr() } else { raw.base().cast() };
        // SAFETY: `len` elements of this window. All ranks have completed their operations and closed the window, and
        // reopen it only after another barrier; local views are refused while the memory is borrowed.
        let own = unsafe { std::slice::from_raw_parts_mut(base, self.len) };
        closing(
            raw,
            Body::Exclusive(raw.barriers()),
            || body(own),
            || {
                raw.borrowed.set(false);
                raw.barrier()?;
                raw.open_always();
                Ok(())
            },
        )
    }
}
