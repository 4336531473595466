//! Farside for Rust programs: symmetric memory, windows, epochs, one-sided operations, remote calls, collectives, messages and
//! global arrays.
//!
//! ```
//! use farside_rma::prelude::*;
//!
//! // Four ranks as threads of this process; `farside run -n 4 ./program` with `Job::init()` for processes.
//! Job::threads(4, |job| {
//!     let team = job.world()?;
//!     let (me, right) = (team.rank(), (team.rank() + 1) % team.size());
//!     let table = Symmetric::<u64>::allocate(&team, 1)?;
//!     table.put_value(me as u64, right, 0)?;
//!     table.barrier()?;
//!     assert_eq!(table.local().load(0)? as usize, (me + team.size() - 1) % team.size());
//!     table.free()
//! })
//! .unwrap();
//! ```
//!
//! # Which memory for what
//!
//! | you want | take | synchronization |
//! |---|---|---|
//! | to read, write and count anywhere at any time | [`Symmetric`], [`Flags`] | none; `quiet`, `barrier`, `wait_until` |
//! | steps: all exchange, then all compute on slices of their own memory | [`Window`] | fence, or post-start-complete-wait between neighbours |
//! | locks, long epochs, memory of different length at each rank, async epochs | [`LockWindow`] | lock, lock_all, flush |
//! | loads and stores on one node | [`SharedWindow`] | of your own |
//! | memory that comes and goes | [`DynamicWindow`] | none; complete on return |
//! | arrays with global indices | [`GlobalArray`] | none; `sync` |
//! | many small updates, gets or records, in blocks | [`aggregate`] | `finish`, `flush`; `advance` |
//! | keys and values at the ranks that the keys' hashes give | [`dist::Map`] | none; `finish` of updates in blocks |
//! | items that any rank may work on, and that make others | [`dist::Queue`] | `next` |
//! | elements of all ranks sorted or shuffled | [`dist::Reorder`] | none |
//! | values of any type from one rank to all, from all, combined | [`dist::Values`] | none |
//! | code that runs where the data is | [`calls::Calls`] | `quiesce` |
//! | messages and collectives | [`Messages`], [`Collectives`], methods of [`Team`] | |
//!
//! [`guide`] shows programs in MPI, OpenSHMEM, UPC++, Lamellar, Chapel and bale next to their equivalents in Farside.
//!
//! # Teams
//!
//! A [`Team`] is an ordered set of ranks, over which memory is allocated and collectives are made. It is dropped, not freed.
//!
//! | call | team | messages |
//! |---|---|---|
//! | [`Job::world`] | all ranks of the job | none; the first call is collective, and makes the team |
//! | [`Team::split`] | the ranks that give the same color, ordered by key; `None` for a rank without a color | one allgather, ⌈log2 P⌉ a rank |
//! | [`Team::subteam`] | the listed ranks, in this order; `None` for the others, which make the call too | the same |
//! | [`Team::split_by_node`] | the ranks that share memory with this one; its windows are mapped | the same |
//! | [`Team::of`] | the listed ranks of the job; only they make the call, with a context that they agree on | none |
//!
//! # Features
//!
//! `verbs`, `async` and `log` are on by default.
//!
//! | feature | |
//! |---|---|
//! | `verbs` | RDMA adapters (InfiniBand, RoCE). Needs the packages that the README names. Without it, nodes are connected by TCP |
//! | `async` | `block_on`, which awaits inside an epoch. Futures as such need no feature |
//! | `log` | `FARSIDE_LOG`, which writes events to standard error |
//! | `ndarray` | the own elements of a [`GlobalArray`] as an array of the crate `ndarray` |

pub mod aggregate;
mod assert;
mod async_epoch;
pub mod calls;
pub mod collectives;
pub mod dist;
mod dynamic_window;
mod elements;
mod epoch;
pub mod global_array;
pub mod guide;
mod lock_window;
mod memory;
pub mod messages;
pub mod op;
mod pending;
pub mod raw;
mod request;
mod selection;
mod shared_elements;
mod shared_window;
pub mod symmetric;
mod window;

pub use assert::Assert;
pub use async_epoch::AsyncEpoch;
pub use collectives::Collectives;
pub use dynamic_window::DynamicWindow;
pub use epoch::Epoch;
pub use farside_core as core;
pub use farside_core::coll::operation::Neighbors;
pub use farside_core::{Error, ErrorKind, Job, Result, Team};
pub use farside_datatype as datatype;
pub use global_array::{GlobalArray, LocalView, Section};
pub use lock_window::{LockWindow, PassiveEpoch};
pub use messages::{ANY_SOURCE, ANY_TAG, Messages};
pub use op::{CasElement, Element, Op};
pub use raw::dynamic::{Attachment, MAX_ATTACHED};
pub use raw::lock::LockKind;
pub use request::Request;
#[cfg(feature = "async")]
pub use request::block_on;
pub use selection::Selection;
pub use shared_elements::SharedElements;
pub use shared_window::{SharedSlice, SharedWindow};
pub use symmetric::{Flags, Symmetric};
pub use window::{Exposure, Fences, Window};

/// The items that programs import.
pub mod prelude {
    pub use crate::collectives::{Commutative, Ordered};
    pub use crate::dist::{Reorder, Values};
    pub use crate::symmetric::{eq, ge, gt, le, lt, ne};
    pub use crate::{
        ANY_SOURCE, ANY_TAG, Assert, Attachment, Collectives, DynamicWindow, Error, ErrorKind, Flags, GlobalArray, Job,
        LockKind, LockWindow, Messages, Neighbors, Op, Result, Section, Selection, SharedElements, SharedWindow,
        Symmetric, Team, Window,
    };
}

/// The README's program compiles and runs, as rank 0 of 1.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

/// The program of this page compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../docs/features.md")]
pub struct FeaturesPage;

/// The program of this page compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../docs/user-windows.md")]
pub struct UserWindowsPage;
