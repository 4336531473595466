//! Point-to-point messages: their memory, their operations, and the messages that a probe has matched.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::rc::Rc;

use farside_core::am::Layout;
use farside_core::device::Block;
use farside_core::two_sided::{Matched, Receive, Sending};
use farside_datatype::TypeMap;

use super::CommObject;
use crate::arguments::StatusOut;
use crate::constants::*;
use crate::fail::{Fail, Result};
use crate::handle::Objects;

/// The status and the error of an operation that has ended.
#[derive(Clone)]
pub struct Outcome {
    pub status: Status,
    pub failed: Option<Fail>,
}

impl From<Status> for Outcome {
    fn from(status: Status) -> Self {
        Self { status, failed: None }
    }
}

impl Outcome {
    /// Writes the status, and returns the error.
    #[inline]
    pub fn put(self, status: StatusOut) -> Result {
        status.set(self.status);
        self.failed.map_or(Ok(()), Err)
    }
}

/// The mode of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Standard,
    Buffered,
    Synchronous,
    Ready,
}

/// The other side of a message.
#[derive(Clone, Copy, Debug)]
pub enum Partner {
    /// `MPI_PROC_NULL`.
    ProcNull,
    /// The target of a message, as a rank of the job.
    To(u32, Mode),
    /// The rank of the job that a message comes from, or any.
    From(Option<u32>),
}

/// The memory of a message.
#[derive(Clone)]
pub struct Data {
    /// The first byte, if the memory is contiguous.
    pub base: *mut u8,
    /// Bytes of the message.
    pub len: usize,
    /// The layout of memory that is not contiguous.
    pub layout: Option<Rc<Typed>>,
}

/// A type map and the address that it is relative to.
pub struct Typed {
    pub map: TypeMap,
    pub base: *mut u8,
}

impl Layout for Typed {
    fn packed_len(&self) -> usize {
        self.map.size() as usize
    }

    fn blocks(&self, from: usize, len: usize, blocks: &mut Vec<Block>) {
        for run in self.map.runs(from as u64, len as u64) {
            for i in 0..run.count as i64 {
                let base = self.base.wrapping_offset((run.offset + i * run.stride) as isize);
                blocks.push(Block { base, len: run.len as usize });
            }
        }
    }
}

/// The state of an operation.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Stage {
    /// The operation is not started, or has been completed.
    #[default]
    Inactive,
    /// Its outcome is known.
    Known,
    /// The operation's peer is `MPI_PROC_NULL`.
    ProcNull,
    Sending,
    Receiving,
}

/// A send or receive operation, which a persistent request starts several times.
pub struct PointToPoint {
    /// `None` while the operation is unused, and for `MPI_MESSAGE_NO_PROC`.
    pub comm: Option<(Comm, Rc<CommObject>)>,
    /// The message that a persistent operation starts.
    pub again: Option<(Partner, c_int, Data)>,
    pub stage: Cell<Stage>,
    /// The send in core, and its target.
    pub sending: RefCell<Sending>,
    pub target: Cell<u32>,
    /// The receive in core.
    pub receive: Rc<Receive>,
    pub cancelled: Cell<bool>,
    /// An outcome that has been read and not consumed.
    pub known: Cell<Option<Box<Outcome>>>,
}

/// Operations that are over and have no other owner; new operations reuse them.
#[derive(Default)]
pub struct Spare(pub RefCell<Vec<Rc<PointToPoint>>>);

impl Spare {
    const MOST: usize = 256;

    #[inline]
    pub fn keep(&self, operation: Rc<PointToPoint>) {
        let mut spare = self.0.borrow_mut();
        if spare.len() < Self::MOST {
            spare.push(operation);
        }
    }
}

/// A matched message.
pub struct MessageObject {
    /// `None` for `MPI_MESSAGE_NO_PROC`.
    pub comm: Option<(Comm, Rc<CommObject>)>,
    pub matched: Cell<Option<Matched>>,
}

/// Makes `MPI_MESSAGE_NO_PROC`.
pub fn no_proc(messages: &Objects<Message, MessageObject>) {
    let object = MessageObject { comm: None, matched: Cell::new(None) };
    messages.fix(MPI_MESSAGE_NO_PROC, Some(Rc::new(object)));
}
