#![allow(unsafe_code)]
//! Generic: a put between layouts that is packed here, sent, and unpacked by the target.
//!
//! Each piece is an active message: place and layout of the target, and packed bytes. The target unpacks it whenever it
//! is in the runtime, and acknowledges it; the closing call waits for that before it notifies. So this is for epochs in
//! which the target will be there: between fences, and from start to complete.

use std::cell::Cell;
use std::ptr::NonNull;
use std::rc::Rc;

use farside_core::am::{Delivery, Listening, Message, Received, Sink, Then};
use farside_core::signal::OwnCells;
use farside_core::stats::{Kind, Stats};
use farside_core::wire::Reader;
use farside_core::{Job, Result};
use farside_datatype::TypeMap;

use super::batch::Answers;
use super::layouts::{Shared, reach};
use super::served::Served;

/// This rank's own memory, as handlers that write to it see it.
#[derive(Clone, Debug)]
pub(super) struct WindowBytes {
    base: *mut u8,
    len: usize,
    stats: NonNull<Stats>,
    state: Rc<Cell<State>>,
}

/// Whether messages may change a window's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not since this rank may have references to it: no fence or post has come after that.
    Kept,
    /// Since a fence or post.
    Exposed,
    /// It is the window's no more: pieces can come in several packets, the last of them after its end.
    Ended,
}

/// Takes in packed pieces for a window, accumulates ([`Served`]) and answers to those of this rank, until it is forgotten.
#[derive(Debug)]
pub(super) struct Listener {
    listening: Option<Listening>,
    state: Rc<Cell<State>>,
}

impl Listener {
    /// For the window over `len` bytes at `base`, whose signal array has these cells.
    pub(super) fn new(job: &Job, (base, len): (*mut u8, usize), cells: OwnCells, answers: &Rc<Answers>) -> Self {
        let state = Rc::new(Cell::new(State::Kept));
        let bytes = WindowBytes { base, len, stats: NonNull::from(job.device().stats()), state: Rc::clone(&state) };
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
            // A sender that cannot go on with it has the error.
            let then = move |received: Result<Received>| _ = received.map(|r| unpack(&r.buffer));
            Delivery::Into(Sink::buffer(Vec::new()), Then::quick(then))
        };
        Self { listening: job.active_messages().listen(handler).ok(), state }
    }

    /// By which others send; 0: no number was free.
    pub(super) fn id(&self) -> u16 {
        self.listening.as_ref().map_or(0, |listening| listening.id().0)
    }

    /// Whether messages may change the memory, as long as the window has it.
    pub(super) fn state(&self) -> &Rc<Cell<State>> {
        &self.state
    }

    /// Messages may change the memory from now on, or not.
    #[inline]
    pub(super) fn expose(&self, exposed: bool) {
        if self.state.get() != State::Ended {
            self.state.set(if exposed { State::Exposed } else { State::Kept });
        }
    }

    /// Once this has returned nothing is unpacked any more.
    pub(super) fn forget(&self, job: &Job) {
        self.state.set(State::Ended);
        if let Some(listening) = &self.listening {
            job.active_messages().end(listening);
        }
    }
}

impl WindowBytes {
    /// Whether it is still the window's.
    pub(super) fn is_alive(&self) -> bool {
        self.state.get() != State::Ended
    }

    /// The address of `len` bytes from `offset` on, if they are the window's and messages may change them.
    pub(super) fn range(&self, offset: usize, len: usize) -> Option<*mut u8> {
        let inside = offset <= self.len && len <= self.len - offset;
        (inside && self.state.get() == State::Exposed).then(|| self.base.wrapping_add(offset))
    }

    /// Unpacks a piece as [`super::packed_put`] makes it; `None` for anything else.
    fn unpack(&self, bytes: &[u8]) -> Option<()> {
        let mut reader = Reader::new(bytes);
        let (offset, from) = (usize::try_from(reader.u64()?).ok()?, reader.u64()?);
        let wire = usize::try_from(reader.u64()?).ok()?;
        let (wire, packed) = bytes.get(24..)?.split_at_checked(wire)?;
        let map = TypeMap::from_wire(wire).ok()?;
        let (start, reached) = reach(&map, offset)?;
        self.range(start, reached)?;
        if from.checked_add(packed.len() as u64)? > map.size() {
            return None;
        }
        // SAFETY: the counters live as long as the job, which dispatches to nobody after its end.
        unsafe { self.stats.as_ref() }.add(Kind::Copy, packed.len());
        // SAFETY: all bytes of the message are inside the window's memory, which is not given back while it is alive.
        unsafe { map.unpack_raw::<Shared>(packed.as_ptr(), from, self.base.wrapping_add(offset), packed.len()) };
        Some(())
    }
}
