#![allow(unsafe_code)]
//! Operations in progress that own their buffers.

use std::cell::UnsafeCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::ptr::NonNull;
use std::rc::Rc;
use std::task::{self, Poll};

use bytemuck::Pod;
use farside_core::{Error, ErrorKind, Result, located};

use crate::collectives::poll_of;
use crate::op::{CasElement, Element, ElementType, Op};
use crate::raw::{Item, Orphan, RawWindow, Request};

/// A buffer that an operation owns while it is in progress: `Vec<T>`, `Box<[T]>`, or an array.
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let (table, peer) = (Symmetric::<u16>::allocate(&team, 6)?, 1 - team.rank());
///     let vector = table.put_nbi(vec![1; 2], peer, 0)?;
///     let boxed = table.put_nbi(vec![2; 2].into_boxed_slice(), peer, 2)?;
///     let array = table.put_nbi([3; 2], peer, 4)?;
///     // Each handle returns its buffer with the elements that have arrived.
///     let (_, _, _): (Vec<u16>, Box<[u16]>, [u16; 2]) = (vector.wait()?, boxed.wait()?, array.wait()?);
///     table.barrier()?;
///     assert_eq!(table.local().to_vec()?, [1, 1, 2, 2, 3, 3]);
///     table.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "an operation that continues after the call cannot use a `{Self}`",
    label = "give a `Vec`, a boxed slice or an array of the elements, which the handle gives back",
    note = "a borrow could end before the operation does; `put` and `get` take slices and are complete on return"
)]
pub trait Buffer<T: Pod>: sealed::Sealed + 'static {
    /// Address and number of its elements, which remain valid until the buffer is moved.
    #[doc(hidden)]
    fn elements(&mut self) -> (*mut T, usize);
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! buffers {
    ($([$($n:tt)*] $t:ty),*) => {$(
        impl<T: Pod, $($n)*> sealed::Sealed for $t {}
        impl<T: Pod, $($n)*> Buffer<T> for $t {
            fn elements(&mut self) -> (*mut T, usize) {
                (self.as_mut_ptr(), self.len())
            }
        }
    )*};
}

buffers!([] Vec<T>, [] Box<[T]>, [const N: usize] [T; N]);

/// Operand and previous value of an atomic in progress.
///
/// ```
/// use farside_rma::prelude::*;
/// use farside_rma::symmetric::{Fetched, Pending};
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let counters = Symmetric::<u64>::allocate(&team, 1)?;
///     let ticket: Pending<Fetched<u64>> = counters.atomic(0, 0)?.fetch_nbi(Op::Sum, 1)?;
///     // Other work, and then:
///     assert!(ticket.wait()? < 3);
///     counters.barrier()?;
///     assert_eq!(counters.get_value(0, 0)?, 3);
///     counters.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Fetched<T> {
    pub(crate) operand: T,
    pub(crate) old: T,
}

/// A value that the handle of an operation returns.
pub trait Returned {
    /// The value.
    type Value;
    #[doc(hidden)]
    fn into_value(self) -> Self::Value;
}

macro_rules! returnable {
    ($([$($n:tt)*] $t:ty),*) => {$(
        impl<T, $($n)*> Returned for $t {
            type Value = Self;
            fn into_value(self) -> Self {
                self
            }
        }
    )*};
}

returnable!([] Vec<T>, [] Box<[T]>, [const N: usize] [T; N]);

impl<T> Returned for Fetched<T> {
    type Value = T;
    fn into_value(self) -> T {
        self.old
    }
}

/// A buffer on the heap that an operation accesses by address. Not a `Box`, since moving a box asserts unique access to
/// its contents.
pub(crate) struct HeapBuffer<B>(NonNull<B>);

impl<B> HeapBuffer<B> {
    pub(crate) fn new(buffer: B) -> Self {
        Self(NonNull::from(Box::leak(Box::new(buffer))))
    }

    /// The buffer, before an operation uses it.
    pub(crate) fn get_mut(&mut self) -> &mut B {
        // SAFETY: valid until the drop, and borrowed with `self`.
        unsafe { self.0.as_mut() }
    }

    /// The buffer, after the operation.
    pub(crate) fn into_inner(self) -> B {
        let at = std::mem::ManuallyDrop::new(self).0;
        // SAFETY: created from a box in `new`, and converted back once.
        *unsafe { Box::from_raw(at.as_ptr()) }
    }
}

impl<B> Drop for HeapBuffer<B> {
    fn drop(&mut self) {
        // SAFETY: created from a box in `new`, and dropped once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transfer {
    Put,
    Get,
    /// Operation and element type.
    Accumulate(Op, ElementType),
}

/// A buffer with the operation that uses it.
struct Slot<B> {
    buffer: UnsafeCell<Option<B>>,
    request: Request,
}

impl<B> Orphan for Slot<B> {
    fn is_done(&self) -> bool {
        self.request.done()
    }
}

enum State<B> {
    Done(Option<B>),
    Open(Rc<Slot<B>>),
}

/// An operation in progress, with its buffer: wait, test, or await it. Dropping the handle has no effect on the
/// operation, which [`quiet`](crate::Symmetric::quiet) or the end of its epoch completes.
///
/// The handle and the operation share ownership of the buffer. If the handle is dropped early, the window owns the
/// buffer until the operation is complete; if it is leaked, the buffer is leaked too. So no transfer outlives its
/// buffer, whatever happens to the handle or to a future that awaits it.
///
/// In an async function:
///
/// ```
/// # #[cfg(feature = "async")] {
/// use farside_rma::{block_on, prelude::*};
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let table = Symmetric::<u64>::allocate(&team, 4)?;
///     let peer = 1 - team.rank();
///     block_on(async {
///         let buffer = table.put_nbi(vec![5, 6], peer, 0)?.await?;
///         let buffer = table.get_nbi(buffer, peer, 0)?.await?;
///         assert_eq!(buffer, [5, 6]);
///         Ok::<(), Error>(())
///     })??;
///     table.free()
/// })?;
/// # }
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[must_use = "wait, await, or let `quiet` complete it"]
pub struct Pending<B: 'static> {
    window: Rc<RawWindow>,
    target: usize,
    state: State<B>,
}

impl<B> fmt::Debug for Pending<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("target", &self.target).field("done", &self.is_done()).finish_non_exhaustive()
    }
}

// The buffer is never accessed through a pinned reference.
impl<B> Unpin for Pending<B> {}

impl<B: 'static> Pending<B> {
    /// Starts a put, a get or an accumulate. `note` gets the request of an operation that is not complete on return.
    pub(crate) fn start<T: Pod>(
        window: &Rc<RawWindow>,
        transfer: Transfer,
        mut buffer: B,
        (target, offset): (usize, usize),
        note: impl FnOnce(&Request),
    ) -> Result<Self>
    where
        B: Buffer<T>,
    {
        let (at, count) = buffer.elements();
        let (raw, len) = (window, count * size_of::<T>());
        raw.job().running("start an operation")?;
        // SAFETY: the buffer is live.
        let done = unsafe {
            match transfer {
                Transfer::Put => raw.try_put(at.cast(), len, target, offset),
                Transfer::Get => raw.try_get(at.cast(), len, target, offset),
                Transfer::Accumulate(op, ty) => {
                    op.check(ty, "accumulate")?;
                    raw.try_accumulate_array(op, ty, at.cast(), std::ptr::null_mut(), len, target, offset)
                }
            }
        };
        if done {
            return Ok(Self { window: Rc::clone(window), target, state: State::Done(Some(buffer)) });
        }
        Self::issue(window, target, buffer, note, |buffer| {
            let (at, count) = buffer.elements();
            let len = count * size_of::<T>();
            match transfer {
                Transfer::Put => Item::transfer(true, at.cast(), len, offset),
                Transfer::Get => Item::transfer(false, at.cast(), len, offset),
                Transfer::Accumulate(op, ty) => {
                    Item::of_elements((op, ty), at.cast(), std::ptr::null_mut(), len, offset)
                }
            }
        })
    }

    /// Starts an operation that could not be executed immediately.
    fn issue(
        window: &Rc<RawWindow>,
        target: usize,
        buffer: B,
        note: impl FnOnce(&Request),
        item: impl FnOnce(&mut B) -> Item,
    ) -> Result<Self> {
        let slot = Rc::new(Slot { buffer: UnsafeCell::new(Some(buffer)), request: Request::new() });
        // SAFETY: no other reference to the buffer exists.
        let item = unsafe { (*slot.buffer.get()).as_mut() }.map(item);
        if let Some(item) = item {
            window.issue(target, item, Some(&slot.request))?;
        }
        note(&slot.request);
        Ok(Self { window: Rc::clone(window), target, state: State::Open(slot) })
    }

    /// Whether the operation is complete. Makes no progress.
    fn is_done(&self) -> bool {
        match &self.state {
            State::Done(_) => true,
            State::Open(slot) => slot.request.done(),
        }
    }

    /// The buffer of an operation that is complete.
    fn take(&mut self) -> Result<B::Value>
    where
        B: Returned,
    {
        let buffer = match &mut self.state {
            State::Done(buffer) => buffer.take(),
            // SAFETY: the operation is complete, so nothing else accesses the buffer.
            State::Open(slot) => unsafe { (*slot.buffer.get()).take() },
        };
        let given = || {
            Error::new(ErrorKind::BadArgument, "complete an operation")
                .cause("its buffer has already been returned")
                .remedy("drop the handle once `test` has given the buffer back")
        };
        buffer.map(B::into_value).ok_or_else(given)
    }

    /// Waits until the operation is complete at its target, and returns the buffer.
    ///
    /// # Errors
    /// `PeerLost`; the operation's own error; `Freed` if the array was freed with an error; `BadArgument` if
    /// [`test`](Self::test) has returned the buffer.
    #[track_caller]
    pub fn wait(mut self) -> Result<B::Value>
    where
        B: Returned,
    {
        located(|| {
            if let State::Open(slot) = &self.state {
                self.window.complete_request(&slot.request, self.target)?;
            }
            self.take()
        })
    }

    /// Makes progress once; returns the buffer if the operation is complete, or `None` while it is in progress.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    #[track_caller]
    pub fn test(&mut self) -> Result<Option<B::Value>>
    where
        B: Returned,
    {
        located(|| {
            if let State::Open(slot) = &self.state
                && !self.window.is_complete(&slot.request, self.target)?
            {
                return Ok(None);
            }
            self.take().map(Some)
        })
    }
}

impl<T: Element> Pending<Fetched<T>> {
    /// Starts a fetching atomic.
    pub(crate) fn fetch(
        window: &Rc<RawWindow>,
        op: Op,
        operand: T,
        (target, offset): (usize, usize),
        note: impl FnOnce(&Request),
    ) -> Result<Self> {
        op.check(T::TYPE, "fetch and op")?;
        let mut fetched = Fetched { operand, old: T::zeroed() };
        // SAFETY: both are live.
        if unsafe { window.try_accumulate(op, &raw const operand, &raw mut fetched.old, target, offset) } {
            return Ok(Self { window: Rc::clone(window), target, state: State::Done(Some(fetched)) });
        }
        Self::issue(window, target, fetched, note, |fetched| {
            let (operand, old) = ((&raw const fetched.operand).cast(), (&raw mut fetched.old).cast());
            Item::of_elements((op, T::TYPE), operand, old, size_of::<T>(), offset)
        })
    }

    /// Starts a compare-and-swap.
    pub(crate) fn compare_and_swap(
        window: &Rc<RawWindow>,
        (expected, desired): (T, T),
        (target, offset): (usize, usize),
        note: impl FnOnce(&Request),
    ) -> Result<Self>
    where
        T: CasElement,
    {
        let mut fetched = Fetched { operand: desired, old: T::zeroed() };
        // SAFETY: the result is live.
        if unsafe { window.try_compare_and_swap(expected, desired, &raw mut fetched.old, target, offset) } {
            return Ok(Self { window: Rc::clone(window), target, state: State::Done(Some(fetched)) });
        }
        let item = |fetched: &mut Fetched<T>| Item::swap(expected, desired, &raw mut fetched.old, offset);
        Self::issue(window, target, fetched, note, item)
    }
}

impl<B: Returned> Future for Pending<B> {
    type Output = Result<B::Value>;

    fn poll(mut self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<Self::Output> {
        let outcome = self.test();
        poll_of(self.window.job(), context, outcome)
    }
}

impl<B: 'static> Drop for Pending<B> {
    fn drop(&mut self) {
        if let State::Open(slot) = &self.state
            && !slot.request.done()
        {
            self.window.orphans.borrow_mut().keep(Rc::<Slot<B>>::clone(slot));
        }
    }
}
