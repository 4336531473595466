#![allow(unsafe_code)]
//! The memory of a window at its owner, for message handlers that change it.

use std::cell::Cell;
use std::ptr::NonNull;
use std::rc::Rc;

use farside_core::stats::{Kind, Stats};
use farside_core::wire::Reader;
use farside_datatype::TypeMap;

use super::layouts::{Shared, reach};

/// This rank's own memory, for handlers that write to it.
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
    /// No: this rank may hold references to the memory, and has not called fence or post since.
    Kept,
    /// Yes: this rank has called fence or post.
    Exposed,
    /// No: the window has ended. The last packet of a piece may arrive after that.
    Ended,
}

impl WindowBytes {
    /// Whether the window has not ended.
    pub(super) fn is_alive(&self) -> bool {
        self.state.get() != ExposureState::Ended
    }

    /// The address of `len` bytes at `offset`, if they are inside the window and messages may change them.
    pub(super) fn range(&self, offset: usize, len: usize) -> Option<*mut u8> {
        let inside = offset <= self.len && len <= self.len - offset;
        (inside && self.state.get() == ExposureState::Exposed).then(|| self.base.wrapping_add(offset))
    }

    /// Unpacks a piece that [`super::packed_put`] has made; `None` if it is malformed.
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
        // SAFETY: the counters live as long as the job, which calls no handler after its end.
        unsafe { self.stats.as_ref() }.add(Kind::Copy, packed.len());
        // SAFETY: all bytes that the type map covers are inside the window's memory, which is registered while the
        // window is alive.
        unsafe { map.unpack_raw::<Shared>(packed.as_ptr(), from, self.base.wrapping_add(offset), packed.len()) };
        Some(())
    }
}
