//! Memory in a layout, as source or destination of a message.

use farside_core::am::Layout;
use farside_core::device::Block;
use farside_datatype::TypeMap;

/// A type map and the address that its offsets count from.
#[derive(Debug)]
pub struct TypedMemory {
    /// The layout.
    pub map: TypeMap,
    /// The address.
    pub base: *mut u8,
}

impl Layout for TypedMemory {
    fn packed_len(&self) -> usize {
        self.map.size() as usize
    }

    fn blocks(&self, from: usize, len: usize, blocks: &mut Vec<Block>) {
        for run in self.map.runs(from as u64, len as u64) {
            for i in 0..run.count as i64 {
                let base = self.base.wrapping_offset((run.offset + i * run.stride) as isize);
                blocks.push(Block { base, len: run.len as usize });
            }
        }
    }
}
