#![allow(unsafe_code)]
//! Transfers of an array between tasks.

use std::cell::Cell;
use std::fmt;
use std::mem::ManuallyDrop;

use bytemuck::Pod;
use farside_core::{Error, ErrorKind, Result, located};

use super::in_progress::InProgress;
use super::schedule::{Message, Place, Schedule};
use super::{Link, OP};
use crate::global_array::BorrowedBlock;

/// A transfer of an array between tasks in progress. Dropping it waits for the transfer.
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     // Each rank is a task.
///     let Some(task) = team.split(Some(team.rank() as u32), 0)? else { return Ok(()) };
///     let array = GlobalArray::<u32, 1>::new(&task, [1000])?;
///     let link = array.link(&team, 1 - team.rank(), 3)?;
///     if team.rank() == 0 {
///         array.for_each(|[i], element| *element = i as u32)?;
///         let transfer = link.start_send()?;
///         // Other work, which does not use the array.
///         transfer.wait()?;
///     } else {
///         link.start_recv()?.wait()?;
///         assert_eq!(array.get_element([999])?, 999);
///     }
///     drop(link);
///     array.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[must_use = "wait for it"]
pub struct Transfer<'a, T: Pod, const D: usize> {
    link: &'a Link<'a, T, D>,
    /// The steps that have not begun.
    remaining_steps: Cell<&'a [Vec<Message>]>,
}

impl<T: Pod, const D: usize> fmt::Debug for Transfer<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_progress = &self.link.array.in_progress;
        f.debug_struct("Transfer")
            .field("messages", in_progress)
            .field("later_steps", &self.remaining_steps.get().len())
            .finish()
    }
}

impl<'a, T: Pod, const D: usize> Transfer<'a, T, D> {
    /// Locks this rank's elements and starts the first messages of a schedule.
    pub(super) fn start(link: &'a Link<'a, T, D>, schedule: &'a Schedule) -> Result<Self> {
        let array = link.array;
        array.check_not_borrowed(OP)?;
        array.window.raw().lock_local()?;
        array.borrowed.set(true);
        let transfer = Self { link, remaining_steps: Cell::new(schedule) };
        let mut messages = InProgress::default();
        if schedule.iter().flatten().any(|message| message.place == Place::Whole) {
            messages.whole = link.whole.take();
            // The link provides the memory, unless a failed transfer still holds it.
            messages.whole.resize(array.shape().iter().product(), T::zeroed());
        }
        array.in_progress.replace(messages);
        transfer.next_step(&mut array.in_progress.borrow_mut())?;
        Ok(transfer)
    }

    /// Starts the next step.
    fn next_step(&self, messages: &mut InProgress<T>) -> Result<()> {
        let Some((step, rest)) = self.remaining_steps.get().split_first() else { return Ok(()) };
        self.remaining_steps.set(rest);
        let own = self.link.array.window.raw().base();
        // SAFETY: the array owns the messages and drops them before its memory; the elements are locked, and this
        // rank's own operations on them fail, until the messages have ended.
        let started = unsafe { messages.start(&self.link.both, self.link.tag, step, own) };
        // An error ends the transfer: no later step begins, and each wait returns the error.
        started.inspect_err(|e| {
            self.remaining_steps.set(&[]);
            messages.failed = Some(e.again());
        })
    }

    /// Waits until the transfer is complete at this rank.
    ///
    /// # Errors
    /// `PeerLost`; `BadArgument` if the other task's messages do not fit.
    #[track_caller]
    pub fn wait(self) -> Result<()> {
        located(|| ManuallyDrop::new(self).end())
    }

    /// Makes progress; returns whether [`wait`](Self::wait) would return immediately.
    ///
    /// # Errors
    /// `PeerLost`.
    #[track_caller]
    pub fn test(&self) -> Result<bool> {
        located(|| {
            let mut messages = self.link.array.in_progress.borrow_mut();
            while messages.is_done(self.link.both.job())? {
                if self.remaining_steps.get().is_empty() {
                    return Ok(true);
                }
                messages.wait()?;
                self.next_step(&mut messages)?;
            }
            Ok(false)
        })
    }

    /// Completes the transfer and releases this rank's elements.
    fn end(&self) -> Result<()> {
        let array = self.link.array;
        let _released = BorrowedBlock(&array.borrowed);
        let mut messages = array.in_progress.take();
        let mut done = messages.wait();
        while done.is_ok() && !self.remaining_steps.get().is_empty() {
            done = self.next_step(&mut messages).and_then(|()| messages.wait());
        }
        if done.is_ok() {
            self.link.whole.replace(std::mem::take(&mut messages.whole));
        }
        // Even after an error the messages are waited for, so that none accesses the elements afterwards.
        drop(messages);
        let unlocked = array.window.raw().unlock(array.team().rank());
        done.and(unlocked)
    }
}

impl<T: Pod, const D: usize> Drop for Transfer<'_, T, D> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // After a panic, this rank may not make the calls that a peer waits for, so the messages are cancelled
            // instead of awaited.
            self.remaining_steps.set(&[]);
            let mut messages = self.link.array.in_progress.borrow_mut();
            messages.failed.get_or_insert_with(|| {
                Error::new(ErrorKind::Aborted, OP).cause("the rank panicked during the transfer")
            });
        }
        if let Err(e) = self.end() {
            tracing::error!("a dropped transfer failed: {e}");
        }
    }
}
