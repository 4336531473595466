#![allow(unsafe_code)]
//! Packed pieces at the owner of a window's memory.

use std::ptr::NonNull;

use farside_core::service::records::ServedMemory;
use farside_core::stats::{Kind, Stats};
use farside_core::wire::Reader;
use farside_datatype::TypeMap;

use super::layouts::{Shared, reach};

/// This rank's own memory, for the handler that unpacks pieces.
#[derive(Clone, Debug)]
pub(super) struct WindowBytes {
    pub(super) memory: ServedMemory,
    pub(super) stats: NonNull<Stats>,
}

impl WindowBytes {
    /// Unpacks a piece that [`super::packed_put`] has made; `None` if it is malformed.
    pub(super) fn unpack(&self, bytes: &[u8]) -> Option<()> {
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
        // SAFETY: the counters live as long as the job, which calls no handler after its end.
        unsafe { self.stats.as_ref() }.add(Kind::Copy, packed.len());
        // SAFETY: all bytes that the type map covers are inside the window's memory, which is registered while the
        // window is alive.
        unsafe { map.unpack_raw::<Shared>(packed.as_ptr(), from, self.memory.base.wrapping_add(offset), packed.len()) };
        Some(())
    }
}
