#![allow(unsafe_code)]
//! The memory of a window at its owner, as handlers of messages see it that change it.

use std::cell::Cell;
use std::ptr::NonNull;
use std::rc::Rc;

use farside_core::stats::{Kind, Stats};
use farside_core::wire::Reader;
use farside_datatype::TypeMap;

use super::layouts::{Shared, reach};

/// This rank's own memory, as handlers that write to it see it.
#[derive(Clone, Debug)]
pub(super) struct WindowBytes {
    pub(super) base: *mut u8,
    pub(super) len: usize,
    pub(super) stats: NonNull<Stats>,
    pub(super) state: Rc<Cell<ExposureState>>,
}

/// Whether messages may change a window's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExposureState {
    /// Not since this rank may have references to it: no fence or post has come after that.
    Kept,
    /// Since a fence or post.
    Exposed,
    /// It is the window's no more: pieces can come in several packets, the last of them after its end.
    Ended,
}

impl WindowBytes {
    /// Whether it is still the window's.
    pub(super) fn is_alive(&self) -> bool {
        self.state.get() != ExposureState::Ended
    }

    /// The address of `len` bytes from `offset` on, if they are the window's and messages may change them.
    pub(super) fn range(&self, offset: usize, len: usize) -> Option<*mut u8> {
        let inside = offset <= self.len && len <= self.len - offset;
        (inside && self.state.get() == ExposureState::Exposed).then(|| self.base.wrapping_add(offset))
    }

    /// Unpacks a piece as [`super::packed_put`] makes it; `None` for anything else.
    pub(super) fn unpack(&self, bytes: &[u8]) -> Option<()> {
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
