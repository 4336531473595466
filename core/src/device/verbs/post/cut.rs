//! Splits transfers into requests that the HCA accepts.

use smallvec::SmallVec;

use crate::device::verbs::sys::queue::Piece;

/// Limits of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) pieces: usize,
    pub(crate) message: usize,
}

/// Splits a transfer between consecutive remote bytes and local segments into requests: for each, its offset from the
/// start and its segments.
pub(crate) fn cut(pieces: &[Piece], limits: Limits) -> SmallVec<[(u64, SmallVec<[Piece; 2]>); 1]> {
    let mut out: SmallVec<[(u64, SmallVec<[Piece; 2]>); 1]> = SmallVec::new();
    let (mut at, mut room) = (0u64, 0usize);
    for piece in pieces {
        let mut rest = *piece;
        while rest.len > 0 {
            if room == 0 || out.last().is_none_or(|(_, p)| p.len() == limits.pieces) {
                out.push((at, SmallVec::new()));
                room = limits.message;
            }
            let len = rest.len.min(u32::try_from(room).unwrap_or(u32::MAX));
            if let Some((_, list)) = out.last_mut() {
                list.push(Piece { len, ..rest });
            }
            rest.address += u64::from(len);
            rest.len -= len;
            at += u64::from(len);
            room -= len as usize;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(address: u64, len: u32) -> Piece {
        Piece { address, len, key: 1 }
    }

    /// Address and length of every segment of every request.
    fn lens(parts: &[(u64, SmallVec<[Piece; 2]>)]) -> Vec<(u64, Vec<(u64, u32)>)> {
        parts.iter().map(|(at, p)| (*at, p.iter().map(|p| (p.address, p.len)).collect())).collect()
    }

    #[test]
    fn long_piece_is_cut_at_the_longest_message() {
        let parts = cut(&[piece(100, 25)], Limits { pieces: 4, message: 10 });
        assert_eq!(lens(&parts), [(0, vec![(100, 10)]), (10, vec![(110, 10)]), (20, vec![(120, 5)])]);
    }

    #[test]
    fn list_is_cut_at_the_most_pieces_and_empty_ones_are_left_out() {
        let pieces = [piece(0, 3), piece(50, 0), piece(100, 4), piece(200, 5)];
        let parts = cut(&pieces, Limits { pieces: 2, message: 100 });
        assert_eq!(lens(&parts), [(0, vec![(0, 3), (100, 4)]), (7, vec![(200, 5)])]);
    }

    #[test]
    fn piece_continues_in_the_next_message() {
        let parts = cut(&[piece(0, 6), piece(100, 6)], Limits { pieces: 8, message: 8 });
        assert_eq!(lens(&parts), [(0, vec![(0, 6), (100, 2)]), (8, vec![(102, 4)])]);
        assert!(cut(&[], Limits { pieces: 8, message: 8 }).is_empty());
    }
}
