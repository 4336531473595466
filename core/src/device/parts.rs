//! Parts of local memory and of regions.

use smallvec::SmallVec;

use super::{Block, Range};

/// Memory that can be divided: a local block, or a range of a region.
pub(crate) trait Part: Sized {
    fn bytes(&self) -> usize;
    /// The `len` bytes from byte `from` on.
    fn part(&self, from: usize, len: usize) -> Self;
}

impl Part for Block {
    fn bytes(&self) -> usize {
        self.len
    }

    fn part(&self, from: usize, len: usize) -> Self {
        Self { base: self.base.wrapping_add(from), len }
    }
}

impl Part for Range {
    fn bytes(&self) -> usize {
        self.len
    }

    fn part(&self, from: usize, len: usize) -> Self {
        Self { offset: self.offset + from, len }
    }
}

/// A list of parts; most messages have one part.
pub type Parts<T> = SmallVec<[T; 1]>;

/// The nonempty parts that hold the `len` bytes from byte `skip` on.
pub(crate) fn cut<T: Part>(all: &[T], mut skip: usize, mut len: usize) -> Parts<T> {
    let mut parts = Parts::new();
    for one in all {
        let from = skip.min(one.bytes());
        let now = (one.bytes() - from).min(len);
        if now > 0 {
            parts.push(one.part(from, now));
        }
        skip -= from;
        len -= now;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_blocks_cover_them_without_overlap() {
        let memory = [0u8; 100];
        let block = |at: usize, len| Block::of(memory[at..].as_ptr(), len);
        let blocks = [block(0, 10), block(20, 0), block(30, 25), block(60, 5)];
        let bytes = |blocks: &[Block]| -> Vec<usize> {
            blocks.iter().flat_map(|b| (0..b.len).map(|i| b.base.addr() + i - memory.as_ptr().addr())).collect()
        };
        for at in 0..=40 {
            let (first, second) = (cut(&blocks, 0, at), cut(&blocks, at, 40 - at));
            assert_eq!([bytes(&first), bytes(&second)].concat(), bytes(&blocks), "{at}");
            assert_eq!(bytes(&first).len(), at);
        }
    }
}
