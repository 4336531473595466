//! Records to ranks that process them.

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

use bytemuck::Pod;
use farside_core::job::OneThread;
use farside_core::{Located, Result, Team, located};

use super::Options;
use super::finish::wait_for_any;
use super::state::{AGGREGATE, Aggregator};
use super::wire::word;
use crate::elements::WindowElement;

/// Sends items to ranks, which pull them: a conveyor as in bale.
///
/// All ranks push and pull in a loop, until [`advance`](Self::advance) says that no item is left anywhere:
///
/// ```
/// use farside_rma::aggregate::Conveyor;
/// use farside_rma::prelude::*;
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let mut conveyor = Conveyor::<u64>::new(&team)?;
///     let (mut next, mut sum) = (0, 0);
///     while conveyor.advance(next == 300)? {
///         // The numbers from 0 to 299, to ranks in turn.
///         while next < 300 && conveyor.push(next as usize % 3, next)? {
///             next += 1;
///         }
///         while let Some((_from, item)) = conveyor.pull()? {
///             sum += item;
///         }
///     }
///     assert_eq!(sum, 3 * (0..300).filter(|item| item % 3 == team.rank() as u64).sum::<u64>());
///     conveyor.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
///
/// After `advance` has returned `false`, the conveyor can be used again.
pub struct Conveyor<T: Pod> {
    // First field, so that compiler errors about `Send` name it.
    _thread: OneThread,
    pub(super) blocks: Rc<Aggregator>,
    /// Whether an item has been pushed since the last `advance`.
    has_pushed: bool,
    /// Whether the last call has pulled an item.
    has_pulled: bool,
    item: PhantomData<T>,
}

impl<T: Pod> fmt::Debug for Conveyor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conveyor").field("team", &self.blocks.team).finish_non_exhaustive()
    }
}

impl<T: Pod> Drop for Conveyor<T> {
    fn drop(&mut self) {
        self.blocks.abandon();
    }
}

impl<T: Pod> Conveyor<T> {
    /// Creates a conveyor of a team, with the default memory. Collective: one allgather and a barrier.
    ///
    /// # Errors
    /// `Mismatch` for items that differ; `Limit` if no handler number is free; `PeerLost`.
    #[track_caller]
    pub fn new(team: &Team) -> Result<Self> {
        located(|| Self::with(team, Options::default()))
    }

    /// Creates a conveyor with this memory. Collective, like [`new`](Self::new).
    ///
    /// # Errors
    /// Those of [`new`](Self::new); `Mismatch` for options that differ; `BadArgument` for a number of hops that does not
    /// exist, or too little memory for an item in each block.
    #[track_caller]
    pub fn with(team: &Team, options: Options) -> Result<Self> {
        located(|| {
            let code = WindowElement::of::<T>("a conveyor").code();
            let blocks = Aggregator::new(team, options, (size_of::<T>(), code), None)?;
            Ok(Self::over(blocks))
        })
    }

    pub(super) fn over(blocks: Rc<Aggregator>) -> Self {
        Self { _thread: PhantomData, blocks, has_pushed: false, has_pulled: false, item: PhantomData }
    }

    /// The team.
    #[must_use]
    pub fn team(&self) -> &Team {
        &self.blocks.team
    }

    /// Pushes an item to `rank`; `false` if there is no room, until [`advance`](Self::advance) has made some. Sends a
    /// block when it is full.
    ///
    /// # Errors
    /// `NoSuchRank`; `PeerLost`; `InCallback`.
    #[inline]
    #[track_caller]
    pub fn push(&mut self, rank: usize, item: T) -> Result<bool> {
        self.push_bytes(rank, bytemuck::bytes_of(&item)).located()
    }

    #[inline]
    pub(super) fn push_bytes(&mut self, rank: usize, item: &[u8]) -> Result<bool> {
        self.blocks.job().running(AGGREGATE)?;
        if rank >= self.blocks.grid.ranks() {
            self.blocks.team.job_rank(rank)?;
        }
        let pushed = self.blocks.push(rank, |buffer| buffer.extend_from_slice(item))?;
        self.has_pushed |= pushed;
        Ok(pushed)
    }

    /// The next item that has arrived, and the rank that pushed it; `None` if there is none at the moment.
    ///
    /// # Errors
    /// `Protocol` for bytes that are not an item; `PeerLost`; `InCallback`.
    #[inline]
    #[track_caller]
    pub fn pull(&mut self) -> Result<Option<(usize, T)>> {
        self.pull_with(|source, item| (source, bytemuck::pod_read_unaligned(item))).located()
    }

    #[inline]
    pub(super) fn pull_with<R>(&mut self, read: impl FnOnce(usize, &[u8]) -> R) -> Result<Option<R>> {
        let lengths = self.blocks.lengths;
        let mut blocks = self.blocks.blocks.borrow_mut();
        loop {
            let me = self.blocks.grid.me() as u32;
            let Some(block) = blocks.front() else {
                self.has_pulled = false;
                return Ok(None);
            };
            if let Some(record) = block.bytes.get(block.at..block.at + lengths.record) {
                let source = if lengths.item > 0 { word(record, 4) } else { block.sender().unwrap_or(me) } as usize;
                let sender = block.sender().unwrap_or(me) as usize;
                block.at += lengths.record;
                if source >= self.blocks.grid.ranks() {
                    self.blocks.malformed(self.blocks.team.members()[sender], "an item of a rank that does not exist");
                    self.blocks.check()?;
                }
                let item = read(source, &record[lengths.item..]);
                blocks.consumed += 1;
                self.has_pulled = true;
                return Ok(Some(item));
            }
            if let Some(block) = blocks.ready.pop_front() {
                self.blocks.retire(&mut blocks, block)?;
            }
        }
    }

    /// Puts the item that the last call has pulled back, so that the next one pulls it again.
    pub fn unpull(&mut self) {
        let mut blocks = self.blocks.blocks.borrow_mut();
        if std::mem::take(&mut self.has_pulled) {
            blocks.consumed -= 1;
            let record = self.blocks.lengths.record;
            blocks.ready.front_mut().into_iter().for_each(|block| block.at -= record);
        }
    }

    /// Makes progress: takes what has arrived, and sends what can be sent. With `done`, this rank pushes no further items,
    /// except in answer to items that it pulls. Returns `false` once all ranks are done and all items have been pulled.
    /// Collective, in that all ranks call it until then; two messages a rank for each round of the termination detection,
    /// of which there are two or more.
    ///
    /// # Errors
    /// `PeerLost`; `Protocol` for bytes that are not items; `InCallback`.
    #[track_caller]
    pub fn advance(&mut self, done: bool) -> Result<bool> {
        located(|| {
            self.blocks.check()?;
            self.has_pulled = false;
            // The phase may have ended in another call; `done` does not belong to the next one.
            if self.blocks.has_finished() {
                return Ok(false);
            }
            {
                let mut blocks = self.blocks.blocks.borrow_mut();
                if blocks.ready.front().is_some_and(|block| block.at == block.bytes.len())
                    && let Some(block) = blocks.ready.pop_front()
                {
                    self.blocks.retire(&mut blocks, block)?;
                }
                blocks.closing |= done;
            }
            let any = self.blocks.job().progress_of_test()?;
            let is_idle = !any && !std::mem::take(&mut self.has_pushed);
            {
                let mut blocks = self.blocks.blocks.borrow_mut();
                let leaving = blocks.closing || is_idle;
                blocks.set_leaving(leaving);
            }
            self.blocks.turn()?;
            let mut blocks = self.blocks.blocks.borrow_mut();
            let leaving = blocks.closing;
            blocks.set_leaving(leaving);
            drop(blocks);
            Ok(!self.blocks.has_finished())
        })
    }

    /// Sends all items, and calls `handler` with each that arrives, its source and an [`Outbox`] to which it may push
    /// further items, until no item is left anywhere. Collective. An item of `items` is taken when there is room for it;
    /// items that the handler pushes wait in the memory of this rank, if there is no room, since two ranks could wait for
    /// each other.
    ///
    /// ```
    /// use farside_rma::aggregate::Conveyor;
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let mut conveyor = Conveyor::<u32>::new(&team)?;
    ///     let (right, mut visits) = ((team.rank() + 1) % 3, 0);
    ///     // Each item goes around until it is 0.
    ///     conveyor.drive([(right, 10)], |outbox, _from, item| {
    ///         visits += 1;
    ///         if item > 0 {
    ///             outbox.push(right, item - 1);
    ///         }
    ///     })?;
    ///     assert_eq!(visits, 11);
    ///     conveyor.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`push`](Self::push) and [`advance`](Self::advance).
    #[track_caller]
    pub fn drive(
        &mut self,
        items: impl IntoIterator<Item = (usize, T)>,
        mut handler: impl FnMut(&mut Outbox<T>, usize, T),
    ) -> Result<()> {
        located(|| {
            let (mut items, mut outbox) = (items.into_iter().peekable(), Outbox { waiting: VecDeque::new() });
            let mut is_done = false;
            while self.advance(is_done)? {
                let mut has_pulled = false;
                while let Some(&(rank, item)) = outbox.waiting.front()
                    && self.push(rank, item)?
                {
                    outbox.waiting.pop_front();
                }
                while outbox.waiting.is_empty()
                    && let Some(&(rank, item)) = items.peek()
                    && self.push(rank, item)?
                {
                    items.next();
                }
                while let Some((from, item)) = self.pull()? {
                    handler(&mut outbox, from, item);
                    has_pulled = true;
                }
                let was_done = std::mem::replace(&mut is_done, items.peek().is_none() && outbox.waiting.is_empty());
                if !has_pulled && !self.has_pushed && is_done == was_done {
                    wait_for_any(&[&self.blocks])?;
                }
            }
            Ok(())
        })
    }

    /// Frees the conveyor, on which no item is left. Collective, with a barrier.
    ///
    /// # Errors
    /// `PeerLost`.
    #[track_caller]
    pub fn free(self) -> Result<()> {
        located(|| {
            self.blocks.team.barrier()?;
            self.blocks.end();
            Ok(())
        })
    }
}

/// The items that a handler of [`Conveyor::drive`] pushes.
///
/// ```
/// use farside_rma::aggregate::{Conveyor, Outbox};
/// use farside_rma::prelude::*;
///
/// fn echo(outbox: &mut Outbox<[u32; 2]>, from: usize, [number, hops]: [u32; 2]) {
///     if hops > 0 {
///         outbox.push(from, [number, hops - 1]);
///     }
/// }
///
/// Job::threads(2, |job| {
///     let mut conveyor = Conveyor::<[u32; 2]>::new(&job.world()?)?;
///     let items = (0..100).map(|number| (number as usize % 2, [number, 3]));
///     conveyor.drive(items, echo)?;
///     conveyor.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Debug)]
pub struct Outbox<T> {
    waiting: VecDeque<(usize, T)>,
}

impl<T> Outbox<T> {
    /// Pushes an item to `rank`. If there is no such rank, `drive` returns `NoSuchRank`.
    pub fn push(&mut self, rank: usize, item: T) {
        self.waiting.push_back((rank, item));
    }
}
