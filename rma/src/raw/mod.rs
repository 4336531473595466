//! Untyped windows: byte ranges of the ranks of a team, and the operations and synchronization on them.
//!
//! This is the layer under typed windows and MPI: displacements are bytes, buffers are raw pointers, and the caller
//! follows the rules that [`Window`](crate::Window) enforces by types. Synchronization has one file for each section of
//! the standard: [`fence`], [`pscw`], [`lock`].
//!
//! A put on a mapped window is the fast path in [`RawWindow::put`]: two comparisons and a copy. All other cases
//! (no epoch, target not exposed yet, memory not mapped) go through `operations`.

mod accumulate;
mod address;
mod announcement;
mod bias;
mod bodies;
mod by_address;
mod completion;
pub mod dynamic;
mod element_lock;
mod end;
mod epochs;
mod failures;
pub mod fence;
mod item;
mod job_end;
pub(crate) mod layouts;
pub mod lock;
mod lock_entry;
mod lockqueue;
pub(crate) mod lockword;
mod make;
mod open;
mod operations;
mod orphans;
mod packed;
mod packed_put;
pub mod pscw;
mod published;
mod segment;
mod sgrs;
mod state;
pub(crate) mod target;
mod threads;
mod typed;
mod typed_memory;
mod update;
mod window;
mod words;

pub(crate) use bodies::Body;
pub(crate) use item::Item;
pub use item::{Combine, Request, Update};
pub(crate) use orphans::Orphan;
use state::{Access, NO_EPOCH};
use target::Target;
pub use threads::MappedWindow;
pub use typed::element_type;
pub use typed_memory::TypedMemory;
pub use window::{Options, RawWindow};
use words::{cell, word};
