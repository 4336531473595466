#![allow(unsafe_code)]
//! The Generic scheme: a put between datatypes is packed by the origin, sent, and unpacked by the target.
//!
//! Each piece is an active message with the target's offset and datatype and the packed bytes. The target unpacks it
//! when it is inside the runtime, and acknowledges it; the closing call waits for the acknowledgements before it
//! notifies. So the scheme is used only in epochs in which the target enters the runtime: between fences, and from
//! start to complete.

use std::ptr::NonNull;
use std::rc::Rc;

use farside_core::am::{Delivery, Listening, Message, OnComplete, Received, Sink};
use farside_core::service::records::{ExposureState, Records, ServedMemory};
use farside_core::stats::{Kind, Stats};
use farside_core::wire::Reader;
use farside_core::{Job, Result};
use farside_datatype::TypeMap;

use super::failures::Failures;
use super::layouts::{Shared, reach};

/// The message handler of a window: receives packed pieces, accumulates and their replies ([`Records`]), and
/// [failures](Failures), until [`forget`](Self::forget).
pub(super) struct Listener {
    listening: Option<Listening>,
    memory: ServedMemory,
    failures: Failures,
}

impl Listener {
    /// Creates the listener of a window over `memory`.
    pub(super) fn new(job: &Job, memory: ServedMemory, records: &Rc<Records>) -> Self {
        let (records, failures) = (Rc::clone(records), Failures::default());
        let reported = failures.clone();
        let bytes = WindowBytes { memory: memory.clone(), stats: NonNull::from(job.device().own_stats()) };
        // Packed pieces have no header.
        let handler = move |m: Message<'_>| {
            if !m.header.is_empty() {
                return if reported.take(m.source, m.header) { Delivery::Done } else { records.receive(&m) };
            }
            let own = bytes.clone();
            let unpack = move |bytes: &[u8]| {
                if own.unpack(bytes).is_none() {
                    tracing::error!(
                        "dropped a packed put of {} bytes: it is malformed, or the window is not exposed",
                        bytes.len()
                    );
                }
            };
            if let Some(bytes) = m.data() {
                unpack(bytes);
                return Delivery::Done;
            }
            // The sender reports an error of the transfer.
            let then = move |received: Result<Received>| _ = received.map(|r| unpack(&r.buffer));
            Delivery::Into(Sink::buffer(Vec::new()), OnComplete::inline(then))
        };
        Self { listening: job.active_messages().listen(handler).ok(), memory, failures }
    }

    /// The handler to which peers send, or 0 if no handler number was free.
    pub(super) fn id(&self) -> u16 {
        self.listening.as_ref().map_or(0, |listening| listening.id().0)
    }

    /// The unique number of the listener.
    pub(super) fn unique(&self) -> u64 {
        self.listening.as_ref().map_or(0, Listening::unique)
    }

    /// The failures of bodies that peers have reported.
    pub(super) fn failures(&self) -> &Failures {
        &self.failures
    }

    /// The window's memory at this rank.
    pub(super) fn memory(&self) -> &ServedMemory {
        &self.memory
    }

    /// Sets whether messages may change the memory from now on. No effect after the window has ended.
    #[inline]
    pub(super) fn expose(&self, exposed: bool) {
        if self.memory.state.get() != ExposureState::Ended {
            self.memory.state.set(if exposed { ExposureState::Exposed } else { ExposureState::Kept });
        }
    }

    /// Ends the listener: no message changes the memory once this has returned.
    pub(super) fn forget(&self, job: &Job) {
        self.memory.state.set(ExposureState::Ended);
        if let Some(listening) = &self.listening {
            job.active_messages().end(listening);
        }
    }
}

/// This rank's own memory, for the handler that unpacks pieces.
#[derive(Clone, Debug)]
struct WindowBytes {
    memory: ServedMemory,
    stats: NonNull<Stats>,
}

impl WindowBytes {
    /// Unpacks a piece that [`super::packed_put`] has made; `None` if it is malformed.
    fn unpack(&self, bytes: &[u8]) -> Option<()> {
        let mut reader = Reader::new(bytes);
        let (offset, from) = (usize::try_from(reader.u64()?).ok()?, reader.u64()?);
        let wire = usize::try_from(reader.u64()?).ok()?;
        let (wire, packed) = bytes.get(24..)?.split_at_checked(wire)?;
        let map = TypeMap::from_wire(wire).ok()?;
        let (start, reached) = reach(&map, offset)?;
        self.memory.range(start, reached)?;
        if from.checked_add(packed.len() as u64)? > map.size() {
            return None;
        }
        // SAFETY: the counters live as long as the job, and no handler is called after the end of the job.
        unsafe { self.stats.as_ref() }.add(Kind::Copy, packed.len());
        // SAFETY: all bytes that the type map covers are inside the window's memory, which is registered while the
        // window is alive.
        unsafe { map.unpack_raw::<Shared>(packed.as_ptr(), from, self.memory.base.wrapping_add(offset), packed.len()) };
        Some(())
    }
}
