#![allow(unsafe_code)]
//! Whole arrays between tasks: groups of ranks that each have an array, in any two distributions.
//!
//! A rank computes which elements it has in common with each rank of the other task by the intersection of families of
//! segments in every dimension.

use std::fmt;
use std::rc::Rc;

use bytemuck::Pod;
use farside_core::am::{Sink, Source};
use farside_core::two_sided::Mode;
use farside_core::wire::{Reader, Writer};
use farside_core::{Error, ErrorKind, Result, Team};
use farside_datatype::TypeMap;

use super::agreement::agree;
use super::distribution::{Distribution, Format, Part};
use super::{GlobalArray, Lent};
use crate::collectives::Pending as _;
use crate::elements::WindowElement;
use crate::messages::Messages;
use crate::messages::pending::{Receiving, Sending, pattern};
use crate::raw::TypedMemory;

const OP: &str = "exchange an array between tasks";

/// The messages of a transfer. Dropping them ends them.
#[derive(Default)]
pub(super) struct InProgress {
    sends: Vec<Sending>,
    receives: Vec<Receiving>,
}

impl fmt::Debug for InProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sends, receives) = (self.sends.len(), self.receives.len());
        f.debug_struct("InProgress").field("sends", &sends).field("receives", &receives).finish()
    }
}

impl InProgress {
    /// Waits until all messages are complete; returns the first error.
    pub(super) fn wait(&self) -> Result<()> {
        self.sends.iter().try_for_each(|send| send.wait())?;
        self.receives.iter().try_for_each(|receive| receive.wait())
    }

    fn is_done(&self) -> Result<bool> {
        let sent = self.sends.iter().try_fold(true, |all, send| Ok::<_, Error>(send.test()? && all))?;
        self.receives.iter().try_fold(sent, |all, receive| Ok(receive.test()? && all))
    }
}

/// A link between this task's array and that of another task, with the schedule of its transfers: the persistent form.
///
/// The tasks exchange the descriptors of their arrays once, and each rank computes which elements it has in common with
/// each rank of the other task, as layouts of its own memory. A transfer is then one message for each pair of ranks that
/// share elements, gathered from and scattered to the arrays themselves, without a copy.
///
/// ```
/// use farside_rma::global_array::Format;
/// use farside_rma::prelude::*;
///
/// Job::threads(4, |job| {
///     let world = job.world()?;
///     // Ranks 0 to 2 have rows, rank 3 has columns.
///     let first = world.rank() < 3;
///     let Some(task) = world.split(Some(u32::from(first)), 0)? else { return Ok(()) };
///     let formats = if first { [Format::Block, Format::Whole] } else { [Format::Whole, Format::Cyclic(1)] };
///     let array = GlobalArray::<u64, 2>::distributed(&task, [6, 5], formats)?;
///     // The other task is named by its first rank in the team of both.
///     let link = array.link(&world, if first { 3 } else { 0 }, 7)?;
///     if first {
///         array.for_each(|[i, j], element| *element = (10 * i + j) as u64)?;
///         link.send()?;
///     } else {
///         link.recv()?;
///         array.for_each(|[i, j], element| assert_eq!(*element, (10 * i + j) as u64))?;
///     }
///     drop(link);
///     array.free()
/// })
/// .unwrap();
/// ```
pub struct Link<'a, T: Pod, const D: usize> {
    array: &'a GlobalArray<T, D>,
    both: Team,
    tag: i32,
    /// For each rank of both tasks that gets elements of this one: those elements.
    sends: Vec<(usize, TypeMap)>,
    /// For each rank of both tasks that this one gets elements of: their places.
    receives: Vec<(usize, TypeMap)>,
}

impl<T: Pod, const D: usize> fmt::Debug for Link<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sends, receives) = (self.sends.len(), self.receives.len());
        f.debug_struct("Link").field("tag", &self.tag).field("sends", &sends).field("receives", &receives).finish()
    }
}

impl<T: Pod, const D: usize> GlobalArray<T, D> {
    /// Links this array with that of another task: `both` is a team of the ranks of both tasks, `other` the rank in it of the
    /// other task's first rank, and `tag` marks the messages of the link in `both`. Collective over each task; no rank is in
    /// both. One message each way between the tasks, and an allgather in each.
    ///
    /// # Errors
    /// On every rank: `Mismatch` for arrays of different shapes or element types; `NoSuchRank` for a rank that is not in
    /// `both`; `BadArgument` for tasks that share a rank; `Aborted` if the other task has one of these errors and this one
    /// has not; `PeerLost`. If the tasks do not name each other's first ranks, the call waits for ever.
    pub fn link(&self, both: &Team, other: usize, tag: i32) -> Result<Link<'_, T, D>> {
        let theirs = self.exchange_descriptors(both, other, tag)?;
        let (their_ranks, theirs) = self.described(&theirs)?;
        let members: Vec<u32> = their_ranks.iter().map(|rank| both.job_rank(*rank)).collect::<Result<_>>()?;
        self.check_disjoint(&members)?;
        let me = self.team().rank();
        let maps = |parts: Vec<Part<T>>, of: fn(&Part<T>) -> &TypeMap| -> Vec<(usize, TypeMap)> {
            parts.iter().map(|part| (their_ranks[part.rank], of(part).clone())).collect()
        };
        let sends = maps(self.distribution.shared_with(me, &theirs, None)?, |part| part.buffer.type_map());
        let mut receives = Vec::new();
        for (rank, in_both) in their_ranks.iter().enumerate() {
            // Computed as the sender does it, so that both sides have the same order of elements.
            let parts = theirs.shared_with::<T>(rank, &self.distribution, Some(me))?;
            receives.extend(parts.into_iter().map(|part| (*in_both, part.block.type_map().clone())));
        }
        Ok(Link { array: self, both: both.clone(), tag, sends, receives })
    }

    /// Sends the whole array to the array of another task, which calls [`recv_from`](Self::recv_from):
    /// [`link`](Self::link) and [`Link::send`].
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     // Ranks 0 and 1 have the array in two blocks, rank 2 has all of it.
    ///     let (first, last) = (team.subteam(&[0, 1])?, team.subteam(&[2])?);
    ///     let Some(task) = first.or(last) else { return Ok(()) };
    ///     let array = GlobalArray::<u8, 1>::new(&task, [5])?;
    ///     if team.rank() < 2 {
    ///         array.for_each(|[i], element| *element = 10 + i as u8)?;
    ///         array.send_to(&team, 2, 4)?;
    ///     } else {
    ///         array.recv_from(&team, 0, 4)?;
    ///         assert_eq!(array.gather(&[[0], [4]])?, [10, 14]);
    ///     }
    ///     array.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of the two.
    pub fn send_to(&self, both: &Team, other: usize, tag: i32) -> Result<()> {
        self.link(both, other, tag)?.send()
    }

    /// Receives the whole array of another task, which calls [`send_to`](Self::send_to).
    ///
    /// # Errors
    /// Those of [`send_to`](Self::send_to).
    pub fn recv_from(&self, both: &Team, other: usize, tag: i32) -> Result<()> {
        self.link(both, other, tag)?.recv()
    }

    /// Checks that none of these ranks of the job is in this task, since a rank waits for both tasks to make a link.
    fn check_disjoint(&self, others: &[u32]) -> Result<()> {
        match others.iter().find(|rank| self.team().members().contains(rank)) {
            None => Ok(()),
            Some(rank) => Err(Error::new(ErrorKind::BadArgument, OP)
                .peer(*rank)
                .cause("the rank is in both tasks")
                .remedy("use `redistribute_into` for two arrays of one team")),
        }
    }

    /// The descriptor of the other task's array. The first ranks exchange them.
    fn exchange_descriptors(&self, both: &Team, other: usize, tag: i32) -> Result<Vec<u8>> {
        let place = |member: &u32| both.members().iter().position(|rank| rank == member);
        self.check_disjoint(&[both.job_rank(other)?])?;
        let exchanged = (|| {
            let ranks: Option<Vec<usize>> = self.team().members().iter().map(place).collect();
            let ranks = ranks.ok_or_else(|| {
                if self.team().rank() == 0 {
                    // The other task waits. An error of this message is no worse than the one that is returned.
                    let _ = both.send(&[0u8; 0], other, tag);
                }
                Error::new(ErrorKind::NoSuchRank, OP).cause("a rank of the task is not in the team of both")
            })?;
            if self.team().rank() > 0 {
                return Ok(Vec::new());
            }
            let d = &self.distribution;
            let numbers = d.shape.iter().chain(&d.grid).map(|n| *n as u64).chain(d.formats.iter().map(|f| f.code()));
            let all = numbers.chain([WindowElement::of::<T>().code()]).chain(ranks.iter().map(|rank| *rank as u64));
            let mine = all.fold(Writer::new().u64(D as u64), Writer::u64).done();
            let sent = both.send_nbi(mine, other, tag)?;
            let (theirs, _) = both.recv_vec::<u8>(other, tag)?;
            sent.wait()?;
            Ok(theirs)
        })();
        // All ranks of the task learn of an error.
        let all = agree(self.team(), OP, exchanged.is_ok(), exchanged.as_deref().unwrap_or_default());
        exchanged?;
        Ok(all?.swap_remove(0))
    }

    /// Reads a descriptor: the other task's ranks in the team of both, and its distribution.
    fn described(&self, bytes: &[u8]) -> Result<(Vec<usize>, Distribution<D>)> {
        let mut reader = Reader::new(bytes);
        let mismatch = |cause: String| {
            Error::new(ErrorKind::Mismatch, OP)
                .rank(self.team().job().rank())
                .cause(cause)
                .remedy("link arrays of the same shape and element type")
        };
        let malformed = || {
            Error::new(ErrorKind::Aborted, OP)
                .cause("the other task could not make the link")
                .remedy("see its own error")
        };
        let mut number = || reader.u64().and_then(|n| usize::try_from(n).ok());
        let dimensions = number().ok_or_else(malformed)?;
        if dimensions != D {
            return Err(mismatch(format!("an array of {dimensions} dimensions with one of {D}")));
        }
        let mut numbers = || -> Option<[usize; D]> {
            let mut all = [0; D];
            all.iter_mut().try_for_each(|n| number().map(|read| *n = read))?;
            Some(all)
        };
        let (shape, grid) = numbers().zip(numbers()).ok_or_else(malformed)?;
        let formats = numbers().ok_or_else(malformed)?.map(|code| Format::of_code(code as u64));
        let element = reader.u64().ok_or_else(malformed)?;
        if shape != self.distribution.shape || element != WindowElement::of::<T>().code() {
            let own = self.distribution.shape;
            return Err(mismatch(format!("an array of shape {shape:?} with one of {own:?}, or other elements")));
        }
        let ranks: Vec<usize> = std::iter::from_fn(|| reader.u64()).map(|rank| rank as usize).collect();
        let distribution = Distribution::new(shape, formats, grid, ranks.len(), size_of::<T>())?;
        Ok((ranks, distribution))
    }
}

impl<T: Pod, const D: usize> Link<'_, T, D> {
    /// Sends this task's array to the other one's. On return this rank's elements may be changed. Collective over the task;
    /// the other task calls [`recv`](Self::recv). One message for each rank that gets elements of this one.
    ///
    /// # Errors
    /// `WrongEpoch` inside [`with_local`](GlobalArray::with_local) or during another transfer; `PeerLost`.
    pub fn send(&self) -> Result<()> {
        self.start_send()?.wait()
    }

    /// Receives the other task's array into this task's. On return this rank's elements have arrived. Collective over the
    /// task; the other task calls [`send`](Self::send).
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub fn recv(&self) -> Result<()> {
        self.start_recv()?.wait()
    }

    /// Starts [`send`](Self::send). Until the transfer has been waited for, operations of this rank on the array are
    /// refused, and those of others on its elements wait.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub fn start_send(&self) -> Result<Transfer<'_, T, D>> {
        self.start(|link, base| {
            for (rank, map) in &link.sends {
                let source = Source::Layout(Rc::new(TypedMemory { map: map.clone(), base }));
                // SAFETY: the array keeps the send, and ends it before its memory; nothing writes to the elements meanwhile.
                let sending = unsafe { Sending::start_from(&link.both, source, *rank, link.tag, Mode::Standard) }?;
                link.array.in_progress.borrow_mut().sends.extend(sending);
            }
            Ok(())
        })
    }

    /// Starts [`recv`](Self::recv), as [`start_send`](Self::start_send).
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub fn start_recv(&self) -> Result<Transfer<'_, T, D>> {
        self.start(|link, base| {
            for (rank, map) in &link.receives {
                let pattern = pattern(&link.both, Some(*rank), Some(link.tag))?;
                // SAFETY: the array keeps the receive, and ends it before its memory; nothing accesses the elements
                // meanwhile, and a layout of a distribution has each of them once.
                let receiving = unsafe {
                    let sink = Sink::layout(Rc::new(TypedMemory { map: map.clone(), base }));
                    Receiving::start_into(&link.both, sink, pattern)
                }?;
                link.array.in_progress.borrow_mut().receives.push(receiving);
            }
            Ok(())
        })
    }

    /// Locks this rank's elements and starts messages.
    fn start(&self, messages: impl FnOnce(&Self, *mut u8) -> Result<()>) -> Result<Transfer<'_, T, D>> {
        let raw = self.array.window.raw();
        self.array.not_lent(OP)?;
        raw.lock_local()?;
        self.array.lent.set(true);
        let transfer = Transfer { array: self.array };
        messages(self, raw.base())?;
        Ok(transfer)
    }
}

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
    array: &'a GlobalArray<T, D>,
}

impl<T: Pod, const D: usize> fmt::Debug for Transfer<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Transfer").field(&self.array.in_progress).finish()
    }
}

impl<T: Pod, const D: usize> Transfer<'_, T, D> {
    /// Waits until the transfer is complete at this rank.
    ///
    /// # Errors
    /// `PeerLost`; `BadArgument` if the other task's messages do not fit.
    pub fn wait(self) -> Result<()> {
        let array = self.array;
        std::mem::forget(self);
        array.end_transfer()
    }

    /// Whether [`wait`](Self::wait) returns at once, making progress.
    ///
    /// # Errors
    /// `PeerLost`.
    pub fn test(&self) -> Result<bool> {
        self.array.in_progress.borrow().is_done()
    }
}

impl<T: Pod, const D: usize> Drop for Transfer<'_, T, D> {
    fn drop(&mut self) {
        if let Err(e) = self.array.end_transfer() {
            tracing::error!("a transfer that was dropped has failed: {e}");
        }
    }
}

impl<T: Pod, const D: usize> GlobalArray<T, D> {
    /// Completes the transfer in progress and releases this rank's elements.
    pub(super) fn end_transfer(&self) -> Result<()> {
        let _released = Lent(&self.lent);
        let messages = self.in_progress.take();
        let done = messages.wait();
        // After an error too: then no message accesses the elements any more.
        drop(messages);
        let raw = self.window.raw();
        let unlocked = raw.unlock(self.team().rank());
        done.and(unlocked)
    }
}
