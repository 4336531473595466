//! Splits transfers into requests that the HCA accepts.

use smallvec::SmallVec;

use crate::device::verbs::sys::qp::Action;
use crate::device::verbs::sys::queue::Piece;

/// Limits of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum number of segments: of a read, and of any other request.
    pub(crate) reads: usize,
    pub(crate) pieces: usize,
    /// Maximum length in bytes.
    pub(crate) message: usize,
}

impl Limits {
    /// Maximum number of segments of a request of this kind.
    fn of(&self, action: Action) -> usize {
        if let Action::Read { .. } = action { self.reads } else { self.pieces }
    }
}

/// A request: its operation and its segments.
pub(crate) type Part = (Action, SmallVec<[Piece; 2]>);

/// Splits a transfer between remote bytes, which begin at those of `action`, and local segments into requests.
pub(crate) fn cut(pieces: &[Piece], action: Action, limits: Limits) -> SmallVec<[Part; 1]> {
    let mut out: SmallVec<[Part; 1]> = SmallVec::new();
    let (mut at, mut room, most) = (0u64, 0usize, limits.of(action));
    for piece in pieces {
        let mut rest = *piece;
        while rest.len > 0 {
            if room == 0 || out.last().is_none_or(|(_, p)| p.len() == most) {
                out.push((action.behind(at), SmallVec::new()));
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

    const WRITE: Action = Action::Write { address: 0, key: 9 };
    const READ: Action = Action::Read { address: 0, key: 9 };

    fn limits(pieces: usize, message: usize) -> Limits {
        Limits { reads: 1, pieces, message }
    }

    /// Remote address of every request, and address and length of each of its segments.
    fn lens(parts: &[Part]) -> Vec<(u64, Vec<(u64, u32)>)> {
        let address = |action: &Action| match *action {
            Action::Write { address, key: 9 } | Action::Read { address, key: 9 } => address,
            _ => panic!("{action:?}"),
        };
        parts.iter().map(|(a, p)| (address(a), p.iter().map(|p| (p.address, p.len)).collect())).collect()
    }

    #[test]
    fn reads_have_their_own_number_of_pieces() {
        let pieces = [piece(0, 3), piece(100, 4), piece(200, 5)];
        let limits = Limits { reads: 2, pieces: 3, message: 100 };
        assert_eq!(lens(&cut(&pieces, WRITE, limits)), [(0, vec![(0, 3), (100, 4), (200, 5)])]);
        assert_eq!(lens(&cut(&pieces, READ, limits)), [(0, vec![(0, 3), (100, 4)]), (7, vec![(200, 5)])]);
    }

    #[test]
    fn long_piece_is_cut_at_the_longest_message() {
        let parts = cut(&[piece(100, 25)], WRITE, limits(4, 10));
        assert_eq!(lens(&parts), [(0, vec![(100, 10)]), (10, vec![(110, 10)]), (20, vec![(120, 5)])]);
    }

    #[test]
    fn list_is_cut_at_the_most_pieces_and_empty_ones_are_left_out() {
        let pieces = [piece(0, 3), piece(50, 0), piece(100, 4), piece(200, 5)];
        let parts = cut(&pieces, WRITE, limits(2, 100));
        assert_eq!(lens(&parts), [(0, vec![(0, 3), (100, 4)]), (7, vec![(200, 5)])]);
    }

    #[test]
    fn piece_continues_in_the_next_message() {
        let parts = cut(&[piece(0, 6), piece(100, 6)], WRITE, limits(8, 8));
        assert_eq!(lens(&parts), [(0, vec![(0, 6), (100, 2)]), (8, vec![(102, 4)])]);
        assert!(cut(&[], WRITE, limits(8, 8)).is_empty());
    }
}
