//! Segments of a message that is copied between two memories: its blocks, and the lengths at which it is cut.

use smallvec::smallvec;

use crate::device::Block;
pub(super) use crate::device::parts::{Parts, cut};
use crate::error::Result;

/// Minimum length of a segment of a message that both ranks copy: claiming a segment costs the transfer of a cache
/// line, which takes as long as copying some KiB.
const MIN_PIECE_BYTES: usize = 64 << 10;
/// Maximum length of a segment of such a message: at the end of a message, a rank may have to wait while the other rank
/// copies its last segment.
const MAX_PIECE_BYTES: usize = 256 << 10;
/// Number of segments into which a message is cut if both limits permit.
const DEFAULT_PIECES: usize = 16;
/// Number of bytes of a message that a rank copies in one turn of progress.
pub(super) const BYTES_PER_TURN: usize = 4 << 20;

/// The segments of a message, all but the last of the same length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces {
    len: usize,
    piece: usize,
}

impl Pieces {
    /// The segments of a message of `len` bytes that both ranks copy: the same at both. `None` if there is only one.
    pub(super) fn shared(len: usize) -> Option<Self> {
        let piece = (len / DEFAULT_PIECES).next_multiple_of(4096).clamp(MIN_PIECE_BYTES, MAX_PIECE_BYTES);
        (len >= 2 * piece).then_some(Self { len, piece })
    }

    /// Segments of `piece` bytes.
    pub(super) fn of(len: usize, piece: usize) -> Self {
        Self { len, piece }
    }

    pub(super) fn count(&self) -> u32 {
        self.len.div_ceil(self.piece) as u32
    }

    /// Byte offset and length of a segment.
    pub(super) fn nth(&self, number: u32) -> (usize, usize) {
        let from = number as usize * self.piece;
        (from, self.piece.min(self.len - from))
    }
}

/// The nonempty blocks of the first `len` bytes, if there are at most `max_blocks`: the block `single`, if given, which
/// has at least that length, else the blocks that `look_up` returns.
pub(super) fn few_blocks(
    len: usize,
    max_blocks: usize,
    single: Option<Block>,
    mut look_up: impl FnMut(usize, usize, &mut Vec<Block>) -> Result<()>,
) -> Result<Option<Parts<Block>>> {
    if let Some(block) = single.filter(|_| len > 0) {
        return Ok(Some(smallvec![Block { len, ..block }]));
    }
    let (mut all, mut found) = (Parts::<Block>::new(), Vec::new());
    let (mut from, mut window) = (0, 4096);
    while from < len {
        let now = window.min(len - from);
        look_up(from, now, &mut found)?;
        for block in found.drain(..).filter(|block| block.len > 0) {
            match all.last_mut() {
                // A block that the window of the look-up has split.
                Some(last) if last.base.wrapping_add(last.len) == block.base => last.len += block.len,
                _ => all.push(block),
            }
        }
        if all.len() > max_blocks {
            return Ok(None);
        }
        from += now;
        window *= 4;
    }
    Ok(Some(all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Range;
    use proptest::prelude::*;

    #[test]
    fn blocks_that_a_window_has_cut_are_one_again() {
        let bytes = [0u8; 100_000];
        let look_up = |from: usize, len: usize, blocks: &mut Vec<Block>| {
            blocks.push(Block::of(bytes[from..].as_ptr(), len));
            Ok(())
        };
        let blocks = few_blocks(100_000, 1, None, look_up).unwrap().unwrap();
        assert_eq!(blocks.iter().map(|b| b.len).collect::<Vec<_>>(), [100_000]);
        let apart = |from: usize, len: usize, blocks: &mut Vec<Block>| {
            blocks.extend((from..from + len).map(|at| Block::of(bytes[2 * at % 100_000..].as_ptr(), 1)));
            Ok(())
        };
        assert!(few_blocks(100, 99, None, apart).unwrap().is_none());
        assert_eq!(few_blocks(100, 100, None, apart).unwrap().unwrap().len(), 100);
    }

    proptest! {
        #[test]
        fn pieces_cover_their_message_once(len in 0usize..10 << 20, lens in prop::collection::vec(0usize..300_000, 1..40)) {
            if let Some(pieces) = Pieces::shared(len) {
                let all: Vec<_> = (0..pieces.count()).map(|number| pieces.nth(number)).collect();
                prop_assert!(all.len() >= 2 && all.windows(2).all(|two| two[0].0 + two[0].1 == two[1].0));
                prop_assert!(all[0].0 == 0 && all.last().is_some_and(|(from, len)| *len > 0 && from + len == pieces.len));
            }
            // Ranges with gaps, cut into segments and put together.
            let mut offset = 0;
            let place = |len: &usize| {
                offset += len + 5;
                Range { offset: offset - len, len: *len }
            };
            let ranges: Vec<Range> = lens.iter().map(place).collect();
            let sum = lens.iter().sum();
            let pieces = Pieces::of(sum, len / 50 + 1);
            let parts: Vec<Range> = (0..pieces.count()).flat_map(|n| { let (from, len) = pieces.nth(n); cut(&ranges, from, len) }).collect();
            let mut whole: Vec<Range> = Vec::new();
            for part in parts {
                match whole.last_mut() {
                    Some(last) if last.offset + last.len == part.offset => last.len += part.len,
                    _ => whole.push(part),
                }
            }
            prop_assert_eq!(&whole[..], &cut(&ranges, 0, sum)[..]);
        }
    }
}
