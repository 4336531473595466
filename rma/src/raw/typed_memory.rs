#![allow(unsafe_code)]
//! Memory in a layout, as source or destination of a message.

use farside_core::am::Layout;
use farside_core::device::Block;
use farside_datatype::TypeMap;

/// A type map and the address from which its offsets count.
///
/// ```
/// use farside_rma::core::am::Layout;
/// use farside_rma::datatype::{Datatype, Named};
/// use farside_rma::raw::TypedMemory;
///
/// let mut numbers = [0i32; 6];
/// // Every other number.
/// let map = Datatype::vector(3, 1, 2, &Named::Int32.into())?.message(1)?;
/// let memory = TypedMemory { map, base: numbers.as_mut_ptr().cast() };
/// assert_eq!(memory.packed_len(), 12);
/// let mut blocks = Vec::new();
/// memory.blocks(4, 8, &mut blocks);
/// assert_eq!((blocks.len(), blocks[0].base.cast()), (2, &raw mut numbers[2]));
/// # Ok::<(), farside_rma::datatype::DatatypeError>(())
/// ```
#[derive(Debug)]
pub struct TypedMemory {
    /// The layout.
    pub map: TypeMap,
    /// The address.
    pub base: *mut u8,
}

// SAFETY: the runs of a type map cover exactly the requested bytes, always at the same offsets.
unsafe impl Layout for TypedMemory {
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
