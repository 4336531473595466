//! The buffers of buffered sends.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::rc::Rc;

use farside_core::two_sided::Sending;

use crate::constants::*;

/// The attached buffer, if any.
pub type Attached = RefCell<Option<Rc<AttachedBuffer>>>;

/// An attached buffer, which only sets a limit: the copies are in memory of this library, and together take at most the
/// attached size.
pub struct AttachedBuffer {
    /// The memory that the program attached, which is not used.
    pub address: *mut c_void,
    pub size: u64,
    /// The messages in order. Each stays here until a call finds that it has been sent.
    pub open: RefCell<VecDeque<Buffered>>,
    pub used: Cell<u64>,
    /// The number of messages so far.
    pub sent: Cell<u64>,
}

/// A message in a buffer.
pub struct Buffered {
    pub number: u64,
    pub sending: Sending,
    pub copy: Box<[u8]>,
}

impl AttachedBuffer {
    pub fn is_automatic(&self) -> bool {
        self.address.addr() == MPI_BUFFER_AUTOMATIC
    }

    /// Frees the copies of messages that have been sent.
    pub fn clear(&self) {
        let mut open = self.open.borrow_mut();
        open.retain(|message| {
            let gone = message.sending.is_done();
            if gone {
                self.used.set(self.used.get() - room_for(message.copy.len()));
            }
            !gone
        });
    }

    /// Whether all messages up to number `last` have been sent.
    pub fn is_sent(&self, last: u64) -> bool {
        self.open.borrow().iter().take_while(|message| message.number <= last).all(|message| message.sending.is_done())
    }
}

/// The number of bytes that a message takes of a buffer.
pub fn room_for(len: usize) -> u64 {
    len as u64 + MPI_BSEND_OVERHEAD as u64
}
