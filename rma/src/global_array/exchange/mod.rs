//! Transfers of whole arrays between tasks (groups of ranks that each own an array), between any two distributions.
//!
//! The tasks exchange the descriptors of their arrays once. Each rank then computes which elements it shares with each
//! rank of the other task, by intersecting families of segments in every dimension, and derives layouts of its own
//! memory from them: a message is gathered from one array and scattered into the other without a copy. If many ranks
//! share processors, a short array is sent as one message instead ([`Strategy`]).

mod descriptor;
mod in_progress;
mod schedule;
mod transfer;

use std::cell::RefCell;
use std::fmt;

use bytemuck::Pod;
use farside_core::{Error, ErrorKind, Result, Team, located};

use super::GlobalArray;
use super::agreement::agree_on_outcome;
use descriptor::{TaskDescription, TaskProperties};
pub(super) use in_progress::InProgress;
pub use schedule::Strategy;
use schedule::{Request, Schedule, Task};
pub use transfer::Transfer;

const OP: &str = "exchange an array between tasks";

/// A persistent link between this task's array and that of another task, with the schedules of its transfers.
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
    strategy: Strategy,
    sending: Schedule,
    receiving: Schedule,
    /// Memory for the whole array, between transfers that need it.
    whole: RefCell<Vec<T>>,
}

impl<T: Pod, const D: usize> fmt::Debug for Link<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("tag", &self.tag).field("strategy", &self.strategy).finish_non_exhaustive()
    }
}

impl<T: Pod, const D: usize> GlobalArray<T, D> {
    /// Links this array with that of another task: `both` is a team of the ranks of both tasks, `other` the rank in it
    /// of the other task's first rank, and `tag` marks the messages of the link in `both`. Collective over each task;
    /// no rank is in both. One message each way between the tasks, and an allgather in each.
    ///
    /// Transfers are [`Strategy::Parallel`], unless one of the tasks requests another strategy with
    /// [`link_with`](Self::link_with).
    ///
    /// # Errors
    /// `Mismatch`, on every rank, for arrays of different shapes or element types; `NoSuchRank` for a rank that is not
    /// in `both`; `BadArgument` for tasks that share a rank; `Aborted` if only the other task has one of these errors;
    /// `PeerLost`. If the tasks do not name each other's first ranks, the call waits forever.
    #[track_caller]
    pub fn link(&self, both: &Team, other: usize, tag: i32) -> Result<Link<'_, T, D>> {
        located(|| self.link_as(both, other, tag, Request::Link))
    }

    /// Like [`link`](Self::link), with transfers of the given strategy. If only one of the tasks requests a strategy,
    /// it applies to both; within a task the request of the first rank counts.
    ///
    /// ```
    /// use farside_rma::global_array::Strategy;
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(5, |job| {
    ///     let world = job.world()?;
    ///     let first = world.rank() < 2;
    ///     let Some(task) = world.split(Some(u32::from(first)), 0)? else { return Ok(()) };
    ///     let array = GlobalArray::<u8, 1>::new(&task, [30])?;
    ///     let link = array.link_with(&world, if first { 2 } else { 0 }, 1, Strategy::Centralized)?;
    ///     assert_eq!(link.strategy(), Strategy::Centralized);
    ///     if first {
    ///         array.map(|[i], _| i as u8)?;
    ///         link.send()?;
    ///     } else {
    ///         link.recv()?;
    ///         array.for_each(|[i], element| assert_eq!(*element, i as u8))?;
    ///     }
    ///     drop(link);
    ///     array.free()
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [`link`](Self::link); `Mismatch` on every rank if the tasks request different strategies.
    #[track_caller]
    pub fn link_with(&self, both: &Team, other: usize, tag: i32, strategy: Strategy) -> Result<Link<'_, T, D>> {
        located(|| self.link_as(both, other, tag, Request::Given(strategy)))
    }

    fn link_as(&self, both: &Team, other: usize, tag: i32, request: Request) -> Result<Link<'_, T, D>> {
        let TaskDescription { peer_task: theirs, properties } = self.exchange_descriptors(both, other, tag, request)?;
        let members: Vec<u32> = theirs.ranks.iter().map(|rank| both.job_rank(*rank)).collect::<Result<_>>()?;
        self.check_disjoint(&members)?;
        let place = |member: &u32| both.members().iter().position(|rank| rank == member);
        let ranks = self.team().members().iter().filter_map(place).collect();
        let (own, me) = (Task { ranks, distribution: self.distribution }, self.team().rank());
        let strategy = match requested_strategy(&properties)? {
            Some(strategy) => strategy,
            // All ranks of both tasks compute the same result from the same properties.
            None if properties.iter().all(|properties| {
                properties.share_processors && matches!(properties.request, Request::Once { .. })
            }) =>
            {
                let bytes = own.distribution.shape.iter().product::<usize>() * size_of::<T>();
                let packet = properties.iter().map(|properties| properties.packet).min().unwrap_or(0).max(1);
                own.cheaper_on_shared_processors(&theirs, bytes.div_ceil(packet))
            }
            None => Strategy::Parallel,
        };
        let whole = match strategy {
            Strategy::Centralized => agree_on_outcome(self.team(), OP, self.allocate_whole())?,
            Strategy::Parallel => Vec::new(),
        };
        Ok(Link {
            array: self,
            both: both.clone(),
            tag,
            strategy,
            sending: own.sending::<T>(me, &theirs, strategy)?,
            receiving: own.receiving::<T>(me, &theirs, strategy)?,
            whole: RefCell::new(whole),
        })
    }

    /// Allocates memory for the whole array at the first rank of the task.
    fn allocate_whole(&self) -> Result<Vec<T>> {
        let (len, mut room) = (self.shape().iter().product(), Vec::new());
        if self.team().rank() == 0 {
            let reserved = room.try_reserve_exact(len);
            reserved
                .map_err(|e| Error::new(ErrorKind::Limit, OP).cause(format!("cannot allocate {len} elements: {e}")))?;
        }
        Ok(room)
    }

    /// Sends the whole array to the array of another task, which calls [`recv_from`](Self::recv_from):
    /// [`link`](Self::link) and [`Link::send`].
    ///
    /// The transfer is [`Strategy::Parallel`] if each rank has a processor, since all ranks then send concurrently. If
    /// ranks of both tasks share processors, it uses the strategy with fewer packets and steps:
    /// [`Strategy::Centralized`] for many ranks and short arrays.
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
    /// Those of the two calls; `Mismatch` on every rank if the other task sends too.
    #[track_caller]
    pub fn send_to(&self, both: &Team, other: usize, tag: i32) -> Result<()> {
        located(|| self.link_as(both, other, tag, Request::Once { sends: true })?.send())
    }

    /// Receives the whole array of another task, which calls [`send_to`](Self::send_to).
    ///
    /// # Errors
    /// Those of [`send_to`](Self::send_to).
    #[track_caller]
    pub fn recv_from(&self, both: &Team, other: usize, tag: i32) -> Result<()> {
        located(|| self.link_as(both, other, tag, Request::Once { sends: false })?.recv())
    }
}

/// The strategy that the tasks have requested.
fn requested_strategy(properties: &[TaskProperties; 2]) -> Result<Option<Strategy>> {
    let given = |properties: &TaskProperties| {
        if let Request::Given(strategy) = properties.request { Some(strategy) } else { None }
    };
    match [given(&properties[0]), given(&properties[1])] {
        [Some(one), Some(two)] if one != two => Err(Error::new(ErrorKind::Mismatch, OP)
            .cause("the tasks have requested different strategies")
            .remedy("request the same strategy in both tasks, or request one in only one task")),
        [one, two] => Ok(one.or(two)),
    }
}

impl<T: Pod, const D: usize> Link<'_, T, D> {
    /// The strategy of transfers.
    #[must_use]
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// Sends this task's array to the other task's. On return this rank may modify its elements. Collective over the
    /// task; the other task calls [`recv`](Self::recv). Messages: see [`Strategy`].
    ///
    /// # Errors
    /// `WrongEpoch` inside [`with_local`](GlobalArray::with_local) or during another transfer; `PeerLost`.
    #[track_caller]
    pub fn send(&self) -> Result<()> {
        located(|| {
            self.barrier()?;
            self.start_send()?.wait()
        })
    }

    /// Receives the other task's array into this task's. On return this rank's elements have arrived. Collective over
    /// the task; the other task calls [`send`](Self::send).
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    #[track_caller]
    pub fn recv(&self) -> Result<()> {
        located(|| {
            self.barrier()?;
            self.start_recv()?.wait()
        })
    }

    /// Barrier of the task's team before a centralized transfer. During the transfer each rank locks its own elements and
    /// waits for the first rank, so all ranks must have completed their accesses to the array before.
    fn barrier(&self) -> Result<()> {
        if self.strategy == Strategy::Centralized { self.array.team().barrier() } else { Ok(()) }
    }

    /// Starts [`send`](Self::send). Until [`Transfer::wait`] has returned, operations of this rank on the array fail,
    /// and those of other ranks on its elements wait. A centralized transfer has further conditions: see [`Strategy`].
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    #[track_caller]
    pub fn start_send(&self) -> Result<Transfer<'_, T, D>> {
        located(|| Transfer::start(self, &self.sending))
    }

    /// Starts [`recv`](Self::recv), like [`start_send`](Self::start_send).
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    #[track_caller]
    pub fn start_recv(&self) -> Result<Transfer<'_, T, D>> {
        located(|| Transfer::start(self, &self.receiving))
    }
}
