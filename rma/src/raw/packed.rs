//! The Generic scheme: a put between datatypes is packed by the origin, sent, and unpacked by the target.
//!
//! Each piece is an active message with the target's offset and datatype and the packed bytes. The target unpacks it
//! when it is inside the runtime, and acknowledges it; the closing call waits for the acknowledgements before it
//! notifies. So the scheme is used only in epochs in which the target enters the runtime: between fences, and from
//! start to complete.

use std::cell::Cell;
use std::ptr::NonNull;
use std::rc::Rc;

use farside_core::am::{Delivery, Listening, Message, Received, Sink, Then};
use farside_core::signal::OwnCells;
use farside_core::{Job, Result};

use super::records::Answers;
use super::served::Served;
use super::window_bytes::{ExposureState, WindowBytes};

/// Receives packed pieces for a window, accumulates ([`Served`]) and answers to accumulates of this rank, until
/// [`forget`](Self::forget).
#[derive(Debug)]
pub(super) struct Listener {
    listening: Option<Listening>,
    state: Rc<Cell<ExposureState>>,
}

impl Listener {
    /// Makes the listener of the window over `len` bytes at `base`, whose signal array has `cells`.
    pub(super) fn new(job: &Job, (base, len): (*mut u8, usize), cells: OwnCells, answers: &Rc<Answers>) -> Self {
        let state = Rc::new(Cell::new(ExposureState::Kept));
        let bytes = WindowBytes { base, len, stats: NonNull::from(job.device().own_stats()), state: Rc::clone(&state) };
        let served = Served { bytes, cells, answers: Rc::clone(answers) };
        let handler = move |m: Message<'_>| {
            if !m.header.is_empty() {
                return served.receive(&m);
            }
            let own = served.bytes.clone();
            let unpack = move |bytes: &[u8]| {
                if own.unpack(bytes).is_none() {
                    tracing::error!(
                        "malformed piece of {} bytes for a window, or one outside of its epochs: dropped",
                        bytes.len()
                    );
                }
            };
            if let Some(bytes) = m.data {
                unpack(bytes);
                return Delivery::Done;
            }
            // An error of the transfer is reported at the sender.
            let then = move |received: Result<Received>| _ = received.map(|r| unpack(&r.buffer));
            Delivery::Into(Sink::buffer(Vec::new()), Then::quick(then))
        };
        Self { listening: job.active_messages().listen(handler).ok(), state }
    }

    /// The handler to which peers send, or 0 if no handler number was free.
    pub(super) fn id(&self) -> u16 {
        self.listening.as_ref().map_or(0, |listening| listening.id().0)
    }

    /// Whether messages may change the memory.
    pub(super) fn state(&self) -> &Rc<Cell<ExposureState>> {
        &self.state
    }

    /// Sets whether messages may change the memory from now on. No effect after the window has ended.
    #[inline]
    pub(super) fn expose(&self, exposed: bool) {
        if self.state.get() != ExposureState::Ended {
            self.state.set(if exposed { ExposureState::Exposed } else { ExposureState::Kept });
        }
    }

    /// Ends the listener: no message changes the memory after this has returned.
    pub(super) fn forget(&self, job: &Job) {
        self.state.set(ExposureState::Ended);
        if let Some(listening) = &self.listening {
            job.active_messages().end(listening);
        }
    }
}
