#![allow(unsafe_code)]
//! Typed dynamic windows: [`RawDynamicWindow`] over vectors. After `detach` no peer can access the vector.

use std::cell::RefCell;
use std::collections::HashMap;
use std::mem::ManuallyDrop;

use bytemuck::Pod;
use farside_core::device::RemoteRegion;
use farside_core::{Error, ErrorKind, Result, Team, located};

use crate::elements::WindowElement;
use crate::op::{CasElement, Element, Op};
use crate::raw::dynamic::{Attachment, RawDynamicWindow};
use crate::raw::layouts::Layouts;
use crate::raw::{Item, Options};
use crate::selection::Selection;

/// A window to which each rank attaches memory, and from which it detaches memory, without the other ranks.
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let window = DynamicWindow::<u64>::new(&team)?;
///     // Peers address attached memory by its attachment, which is plain data that can be sent to them.
///     let mine = window.attach(vec![team.rank() as u64; 4])?;
///     let mut all = [mine; 2];
///     team.allgather(&[mine], &mut all)?;
///     window.put(&[40], 1 - team.rank(), all[1 - team.rank()], 3)?;
///     team.barrier()?;
///     let me = team.rank() as u64;
///     assert_eq!(window.detach(mine)?, [me, me, me, 40]);
///     window.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Debug)]
pub struct DynamicWindow<T: Pod> {
    raw: RawDynamicWindow,
    vectors: RefCell<HashMap<Attachment, ManuallyDrop<Vec<T>>>>,
}

impl<T: Pod> DynamicWindow<T> {
    /// Makes a window with no memory attached. Collective. Memory: the table has 2 MiB of address space per rank, of
    /// which only used pages are touched.
    ///
    /// # Errors
    /// Those of [`crate::Window::allocate`].
    #[track_caller]
    pub fn new(team: &Team) -> Result<Self> {
        located(|| {
            Ok(Self {
                raw: RawDynamicWindow::new(team, Some(WindowElement::of::<T>("a dynamic window")), Options::default())?,
                vectors: RefCell::default(),
            })
        })
    }

    /// Attaches a vector. Local: no message. Peers address the vector by the returned attachment.
    ///
    /// # Errors
    /// `Limit` with [`MAX_ATTACHED`](crate::MAX_ATTACHED) already attached, or from the device.
    #[track_caller]
    pub fn attach(&self, vec: Vec<T>) -> Result<Attachment> {
        located(|| {
            let mut vec = ManuallyDrop::new(vec);
            // SAFETY: the vector is owned and not accessed until `detach` has succeeded; otherwise it is leaked.
            match unsafe { self.raw.attach_exclusively(vec.as_mut_ptr().cast(), size_of_val(&vec[..])) } {
                Ok(attachment) => {
                    self.vectors.borrow_mut().insert(attachment, vec);
                    Ok(attachment)
                }
                Err(e) => {
                    drop(ManuallyDrop::into_inner(vec));
                    Err(e)
                }
            }
        })
    }

    /// Detaches and returns the vector, with what peers have written. Local: no message. Operations of peers on it that
    /// are still in progress fail or have no effect.
    ///
    /// # Errors
    /// `NotAttached`; `System` if the memory cannot be deregistered; the vector is then leaked.
    #[track_caller]
    pub fn detach(&self, attachment: Attachment) -> Result<Vec<T>> {
        located(|| {
            self.raw.detach(attachment)?;
            let vec = self.vectors.borrow_mut().remove(&attachment);
            vec.map(ManuallyDrop::into_inner).ok_or_else(|| Error::new(ErrorKind::NotAttached, "detach memory"))
        })
    }

    /// Puts `from` to an attachment of `target`; complete at the target on return. One message.
    ///
    /// # Errors
    /// `NotAttached`, `OutOfRange`, `NoSuchRank`, `PeerLost`.
    #[track_caller]
    pub fn put(&self, from: &[T], target: usize, attachment: Attachment, displacement: usize) -> Result<()> {
        located(|| self.run(target, attachment, Item::put(from, displacement)?))
    }

    /// Gets from an attachment of `target`; complete on return. One message and its reply.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    #[track_caller]
    pub fn get(&self, into: &mut [T], target: usize, attachment: Attachment, displacement: usize) -> Result<()> {
        located(|| self.run(target, attachment, Item::get(into, displacement)?))
    }

    /// Accumulates into an attachment of `target`, each element atomically; previous values are written to `old`, if
    /// given.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let window = DynamicWindow::<u64>::new(&team)?;
    ///     // Rank 0 attaches memory and broadcasts its attachment.
    ///     let mut counters = [Attachment { id: 0, slot: 0 }];
    ///     if team.rank() == 0 {
    ///         counters = [window.attach(vec![100; 2])?];
    ///     }
    ///     team.broadcast(&mut counters, 0)?;
    ///     let mut before = [0];
    ///     window.accumulate(Op::Sum, &[1], Some(&mut before), 0, counters[0], 1)?;
    ///     assert!((100..103).contains(&before[0]));
    ///     team.barrier()?;
    ///     window.get(&mut before, 0, counters[0], 1)?;
    ///     assert_eq!(before, [103]);
    ///     window.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`put`](Self::put); `Unsupported` for an operation that is not defined on the type.
    #[track_caller]
    pub fn accumulate(
        &self,
        op: Op,
        operand: &[T],
        old: Option<&mut [T]>,
        target: usize,
        attachment: Attachment,
        displacement: usize,
    ) -> Result<()>
    where
        T: Element,
    {
        located(|| self.run(target, attachment, Item::accumulate(op, operand, old, displacement)?))
    }

    /// Compares and swaps one element of an attachment of `target`; returns its previous value.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    #[track_caller]
    pub fn compare_and_swap(
        &self,
        expected: T,
        desired: T,
        target: usize,
        attachment: Attachment,
        displacement: usize,
    ) -> Result<T>
    where
        T: CasElement,
    {
        located(|| {
            let mut old = T::zeroed();
            self.run(target, attachment, Item::compare_and_swap(expected, desired, &mut old, displacement)?)?;
            Ok(old)
        })
    }

    /// Puts the elements that `of` selects in `from` to those that `at` selects in an attachment of `target`, counted
    /// from `displacement`; complete at the target on return. Messages: those of [`crate::raw::RawWindow::put_typed`]
    /// to memory that is not mapped.
    ///
    /// # Errors
    /// Those of [`put`](Self::put) and [`crate::Epoch::put_selected`].
    #[track_caller]
    pub fn put_selected(
        &self,
        from: &[T],
        of: &Selection<T>,
        target: usize,
        attachment: Attachment,
        displacement: usize,
        at: &Selection<T>,
    ) -> Result<()> {
        located(|| self.run_layouts(target, attachment, Layouts::put(from, of, displacement, at)?))
    }

    /// Gets the elements that `at` selects in an attachment of `target`, counted from `displacement`, to those that
    /// `of` selects in `into`; complete on return.
    ///
    /// # Errors
    /// Those of [`put_selected`](Self::put_selected).
    #[track_caller]
    pub fn get_selected(
        &self,
        into: &mut [T],
        of: &Selection<T>,
        target: usize,
        attachment: Attachment,
        displacement: usize,
        at: &Selection<T>,
    ) -> Result<()> {
        located(|| self.run_layouts(target, attachment, Layouts::get(into, of, displacement, at)?))
    }

    /// Accumulates the elements that `of` selects in `operand` into those that `at` selects in an attachment of
    /// `target`, each atomically.
    ///
    /// # Errors
    /// Those of [`put_selected`](Self::put_selected) and [`accumulate`](Self::accumulate).
    #[allow(clippy::too_many_arguments)] // the arguments of MPI's call
    #[track_caller]
    pub fn accumulate_selected(
        &self,
        op: Op,
        operand: &[T],
        of: &Selection<T>,
        target: usize,
        attachment: Attachment,
        displacement: usize,
        at: &Selection<T>,
    ) -> Result<()>
    where
        T: Element,
    {
        located(|| self.run_layouts(target, attachment, Layouts::accumulate(op, operand, None, of, displacement, at)?))
    }

    fn run(&self, target: usize, attachment: Attachment, item: Item) -> Result<()> {
        let name = item.name();
        self.raw.run(name, target, attachment, |window, region| window.issue(target, item.at(Some(region)), None))
    }

    fn run_layouts(&self, target: usize, attachment: Attachment, layouts: Layouts<'_>) -> Result<()> {
        self.raw.run(layouts.action.name(), target, attachment, |window, region: &RemoteRegion| {
            window.issue_layouts(target, Layouts { attached: Some(region), ..layouts }, None)
        })
    }

    /// Frees the window. Collective, with a barrier; vectors that are still attached are detached and dropped.
    ///
    /// # Errors
    /// `PeerLost`; `System` if memory could not be deregistered or unmapped.
    #[track_caller]
    pub fn free(self) -> Result<()> {
        located(|| self.raw.free())
    }
}

impl<T: Pod> Drop for DynamicWindow<T> {
    fn drop(&mut self) {
        for (attachment, vec) in self.vectors.borrow_mut().drain() {
            match self.raw.detach(attachment) {
                Ok(()) => drop(ManuallyDrop::into_inner(vec)),
                Err(e) => tracing::error!("leaking attached memory that could not be detached: {e}"),
            }
        }
    }
}
