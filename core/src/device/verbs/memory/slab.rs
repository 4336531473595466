#![allow(unsafe_code)]
//! Anonymous memory of this device, registered for as long as it is mapped.

use std::io;
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};

use crate::device::verbs::sys::queue::Piece;
use crate::device::verbs::sys::{Domain, Memory, Rights};

/// Zeroed pages and their registration, which is dropped first.
pub(crate) struct Slab {
    memory: Memory,
    map: MmapRaw,
}

impl Slab {
    pub(crate) fn new(domain: &Arc<Domain>, len: usize, rights: Rights) -> io::Result<Self> {
        let map = MmapRaw::from(MmapOptions::new().len(len).map_anon()?);
        // SAFETY: the pages are unmapped after the registration has ended, and are accessed only through raw pointers.
        let memory = unsafe { Memory::register(domain, map.as_mut_ptr(), len, rights) }?;
        Ok(Self { memory, map })
    }

    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        self.map.as_mut_ptr().wrapping_add(offset)
    }

    pub(crate) fn piece(&self, offset: usize, len: usize) -> Piece {
        Piece { address: self.at(offset).addr() as u64, len: len as u32, key: self.memory.local_key() }
    }

    /// Address and remote key by which a peer accesses the memory at `offset`.
    pub(crate) fn remote(&self, offset: usize) -> (u64, u32) {
        (self.at(offset).addr() as u64, self.memory.remote_key())
    }
}
