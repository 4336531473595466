//! Memory that other ranks access: segments shared by the ranks of a node, raw copies, the table of exposed regions.

pub mod copy;
pub mod keys;
pub mod segment;
pub mod words;

/// A range of this rank's memory.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// First byte.
    pub base: *mut u8,
    /// Length in bytes.
    pub len: usize,
}

impl Block {
    /// A block that is only read.
    #[must_use]
    pub fn of(base: *const u8, len: usize) -> Self {
        Self { base: base.cast_mut(), len }
    }
}
