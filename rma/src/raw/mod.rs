//! Untyped windows: byte ranges of the ranks of a team, and the operations and synchronization on them.
//!
//! This is the layer for other layers (typed windows, MPI): displacements are bytes, buffers are raw pointers,
//! and the caller keeps the rules that [`crate::window`] enforces by types. Synchronization is one file for
//! each chapter of the standard: [`fence`], [`pscw`], [`lock`].
//!
//! A put on a mapped window takes the branch in [`RawWindow::put`]: two comparisons and a copy. Everything
//! else (no epoch, target not exposed yet, memory not mapped) goes through [`operations`].

mod address;
mod batch;
mod bias;
mod by_address;
pub mod dynamic;
mod end;
mod epochs;
pub mod fence;
mod item;
pub(crate) mod layouts;
pub mod lock;
mod lock_entry;
mod lockqueue;
pub(crate) mod lockword;
mod make;
mod operations;
mod packed;
mod packed_put;
pub mod pscw;
mod records;
mod segment;
mod served;
mod sgrs;
mod state;
pub(crate) mod target;
mod typed;
mod update;
mod window;
mod window_bytes;
mod words;

pub(crate) use item::Item;
pub use item::{Combine, Request, Update};
use state::{Access, NO_EPOCH};
use target::Target;
pub use typed::element_type;
pub use window::{Options, RawWindow};
use words::{cell, word};
