//! The request array of the last call that completed one or some of many requests, in its state after that call.

use std::rc::Rc;

use farside_core::two_sided::EndedReceives;

use crate::handle::Request;

/// The object to which the handle at an index of the array refers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    Null,
    Receive,
    /// An operation, possibly of a persistent request that is not started.
    Other,
}

/// A request array, in its state after the last call.
#[derive(Default)]
pub struct KnownRequests {
    pub address: usize,
    pub handles: Vec<Request>,
    pub kinds: Vec<RequestKind>,
    /// The indices of receives that have ended.
    pub ended: Rc<EndedReceives>,
    /// The indices of other operations, some of which may have ended.
    pub others: Vec<u32>,
    /// The index in `others` at which the next check begins.
    pub next: usize,
    /// The number of receives in the array.
    pub receives: usize,
}
