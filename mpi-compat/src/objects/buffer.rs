//! The buffers of buffered sends.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::rc::Rc;

use farside_core::two_sided::Sending;

use crate::constants::*;

/// The attached buffer, if any.
pub type Attached = RefCell<Option<Rc<AttachedBuffer>>>;

/// An attached buffer, which serves only as a limit: the copies are in memory of this library, and their total size is
/// at most the attached size.
pub struct AttachedBuffer {
    /// The memory that the program attached, which is not used.
    pub address: *mut c_void,
    pub size: u64,
    /// The messages in order. Each is removed when a call finds that it has been sent.
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
            let is_sent = message.sending.is_done();
            if is_sent {
                self.used.set(self.used.get() - room_for(message.copy.len()));
            }
            !is_sent
        });
    }

    /// Whether all messages up to number `last` have been sent.
    pub fn is_sent(&self, last: u64) -> bool {
        self.open.borrow().iter().take_while(|message| message.number <= last).all(|message| message.sending.is_done())
    }
}

/// The number of bytes of a buffer that a message occupies.
pub fn room_for(len: usize) -> u64 {
    len as u64 + MPI_BSEND_OVERHEAD as u64
}
