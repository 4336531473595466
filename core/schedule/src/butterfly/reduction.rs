//! The reduction phase of one rank.

use super::plan::{Meeting, Place, Plan};
use crate::operation::{Call, Operation};
use crate::schedule::{Buffer, Builder, Schedule, Side, Slice};

/// Parts of the vector: runs of (first, count).
pub(super) type Piece = Vec<(u32, u32)>;

/// A rank in a round, with the piece of the vector that its group holds there, and the part of it that each position
/// keeps.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    pub(crate) place: Place,
    pub(crate) whole: Piece,
    /// Empty if the piece is not divided.
    pub(crate) cut: Vec<Piece>,
}

/// Makes the steps of a rank in a butterfly-like reduction, for calls of allreduce, reduce and reduce_scatter.
#[derive(Debug)]
pub struct Reduction<'a> {
    pub(super) call: &'a Call<'a>,
    pub(super) plan: &'a Plan,
    parts: u32,
    pub(super) s: Builder,
    pub(super) stages: Vec<Stage>,
    /// The piece that the rank holds.
    pub(super) piece: Piece,
    /// Whether the piece is still the rank's own contribution, in the input.
    is_input: bool,
    /// The buffer of reduced pieces: the output, or scratch if the rank has no output.
    accumulator: Option<Buffer>,
    /// Two pieces of scratch for operands, used alternately: a message may arrive while the previous one is reduced.
    operands: [Option<Slice>; 2],
}

impl<'a> Reduction<'a> {
    /// The schedule of `call` by `plan`.
    #[must_use]
    pub fn schedule(call: &'a Call<'a>, plan: &'a Plan) -> Schedule {
        let scatters = call.operation == Operation::ReduceScatter;
        let parts = if scatters { call.size } else { plan.parts() };
        let has_output = !scatters && (call.operation == Operation::Allreduce || call.rank == call.root);
        let is_in_place = call.in_place && has_output;
        let mut reduction = Self {
            call,
            plan,
            parts,
            s: call.builder(parts),
            stages: Vec::new(),
            piece: vec![(0, parts)],
            is_input: !is_in_place,
            accumulator: has_output.then_some(Buffer::Output),
            operands: [None, None],
        };
        reduction.reduce();
        if call.size == 1 && !scatters {
            let (from, into) = (Slice::input(0, parts), Slice::output(0, parts));
            reduction.s.copy(&[from], &[into]);
        }
        match call.operation {
            Operation::Reduce => reduction.gather(),
            Operation::ReduceScatter => reduction.scatter(),
            _ => reduction.allgather(),
        }
        reduction.s.done()
    }

    fn reduce(&mut self) {
        for place in self.plan.places(self.call.rank) {
            let round = self.plan.rounds()[place.round];
            let whole = self.piece.clone();
            let cut = if round.halved { self.cut(place.round, round.ways()) } else { Vec::new() };
            let (at, tag) = (place.position as usize, 2 * place.round as u32);
            let peer = |position| self.plan.peer(&place, position);
            match (place.cluster.meeting, place.position) {
                (Meeting::Alone, _) => {}
                (Meeting::TwoOne, 0) => self.combine(peer(1), tag, Side::Right, &whole, false),
                (Meeting::TwoOne, _) => self.send(peer(0), tag, &whole),
                (Meeting::Exchange(2), _) => self.exchange(peer(1 - place.position), tag, &place, &cut),
                (Meeting::Exchange(r), _) => {
                    let peers: Vec<u32> = (0..r).map(peer).collect();
                    self.ring(&peers, at, tag, &cut);
                }
                // Halved: positions 1 and 2 exchange halves, then position 0 receives the lower half of both from 2 and
                // sends its upper half to 1.
                (Meeting::ThreeTwo, 0) if round.halved => {
                    self.send(peer(1), tag, &cut[1]);
                    self.combine(peer(2), tag, Side::Right, &cut[0], false);
                }
                (Meeting::ThreeTwo, 1) if round.halved => {
                    self.send(peer(2), tag, &cut[0]);
                    self.combine(peer(2), tag, Side::Right, &cut[1], false);
                    self.combine(peer(0), tag, Side::Left, &cut[1], false);
                }
                (Meeting::ThreeTwo, _) if round.halved => {
                    self.send(peer(1), tag, &cut[1]);
                    self.combine(peer(1), tag, Side::Left, &cut[0], false);
                    self.send(peer(0), tag, &cut[0]);
                }
                // In full: position 2 sends everything to 1, which then exchanges with 0. In the paper's figure 4, 1
                // sends to 2 as well and 2 sends both to 0, which takes one more message and the same time.
                (Meeting::ThreeTwo, 2) => self.send(peer(1), tag, &whole),
                (Meeting::ThreeTwo, position) => {
                    if position == 1 {
                        self.combine(peer(2), tag, Side::Right, &whole, false);
                    }
                    self.exchange(peer(1 - position), tag, &place, &cut);
                }
            }
            if let Some(kept) = cut.get(at) {
                self.piece.clone_from(kept);
            }
            self.stages.push(Stage { place, whole, cut });
        }
    }

    /// The part of the piece that each position of a round keeps.
    fn cut(&self, round: usize, ways: u32) -> Vec<Piece> {
        if self.call.operation != Operation::ReduceScatter {
            let (first, count) = (self.piece[0].0, self.piece[0].1 / ways);
            return (0..ways).map(|i| vec![(first + i * count, count)]).collect();
        }
        // Block b is assigned to the position of rank b in the round, so that it ends at rank b or, if b is eliminated,
        // at the rank that sends it to b in the routing phase.
        let mut cut = vec![Piece::new(); ways as usize];
        for block in self.piece.iter().flat_map(|(first, count)| *first..first + count) {
            let (cluster, position) = self.plan.line(block).nth(round).expect("a round of the plan");
            let kept: &mut Piece = &mut cut[cluster.keeper(position) as usize];
            match kept.last_mut() {
                Some((first, count)) if *first + *count == block => *count += 1,
                _ => kept.push((block, 1)),
            }
        }
        cut
    }

    /// The slices of a piece in the buffer of reduced pieces.
    pub(super) fn reduced(&mut self, piece: &Piece) -> Vec<Slice> {
        let buffer = *self.accumulator.get_or_insert_with(|| {
            self.s.scratch(0..self.parts);
            Buffer::Scratch
        });
        piece.iter().map(|(first, count)| Slice::new(buffer, *first, *count)).collect()
    }

    /// The slices in which the rank has its content of a piece.
    pub(super) fn held(&mut self, piece: &Piece) -> Vec<Slice> {
        if self.is_input {
            piece.iter().map(|(first, count)| Slice::input(*first, *count)).collect()
        } else {
            self.reduced(piece)
        }
    }

    pub(super) fn send(&mut self, to: u32, tag: u32, piece: &Piece) {
        let from = self.held(piece);
        self.s.send(to, tag, &from);
    }

    /// Receives an operand for a piece. `is_sent`: the rank sends the same piece in this round; the receive must then
    /// not wait until that send is complete.
    fn combine(&mut self, source: u32, tag: u32, side: Side, piece: &Piece, is_sent: bool) {
        let into = self.reduced(piece);
        if self.is_input {
            let own = self.held(piece);
            self.s.receive(source, tag, &into);
            self.s.reduce(&own, if side == Side::Left { Side::Right } else { Side::Left }, &into);
            self.is_input = false;
        } else if is_sent {
            let operand = [self.operand(piece)];
            self.s.receive(source, tag, &operand);
            self.s.reduce(&operand, side, &into);
        } else {
            self.s.receive_reduce(source, tag, side, &into);
        }
    }

    fn operand(&mut self, piece: &Piece) -> Slice {
        let count: u32 = piece.iter().map(|(_, count)| count).sum();
        self.operands.swap(0, 1);
        match self.operands[0] {
            Some(slice) if slice.count == count => slice,
            _ => *self.operands[0].insert(self.s.scratch(blocks(piece))),
        }
    }

    /// Positions 0 and 1 exchange halves or, if the piece is not divided, all of it.
    fn exchange(&mut self, peer: u32, tag: u32, place: &Place, cut: &[Piece]) {
        let (at, side) = (place.position as usize, if place.position == 0 { Side::Right } else { Side::Left });
        if let [_, _] = cut {
            self.send(peer, tag, &cut[1 - at]);
            self.combine(peer, tag, side, &cut[at], false);
        } else {
            let piece = self.piece.clone();
            self.send(peer, tag, &piece);
            self.combine(peer, tag, side, &piece, true);
        }
    }

    /// Exchanges in a ring: each rank receives all parts that it keeps, or all whole vectors, and only then reduces
    /// them, in rank order.
    fn ring(&mut self, peers: &[u32], at: usize, tag: u32, cut: &[Piece]) {
        let r = peers.len();
        let kept = cut.get(at).unwrap_or(&self.piece).clone();
        let into = self.reduced(&kept);
        let mut own = self.held(&kept);
        if at == 0 && self.is_input {
            self.s.copy(&own, &into);
            own.clone_from(&into);
        } else if at != 0 && !self.is_input {
            let moved = vec![self.s.scratch(blocks(&kept))];
            self.s.copy(&own, &moved);
            own = moved;
        }
        let slots: Vec<Vec<Slice>> = (0..r)
            .map(|i| match i {
                _ if i == at => own.clone(),
                0 => into.clone(),
                _ => vec![self.s.scratch(blocks(&kept))],
            })
            .collect();
        if cut.is_empty() {
            bruck_allgather(&mut self.s, peers, at, tag, &slots);
        } else {
            for k in 1..r {
                let (to, from) = ((at + k) % r, (at + r - k) % r);
                self.send(peers[to], tag, &cut[to]);
                self.s.receive(peers[from], tag, &slots[from]);
            }
        }
        for slot in &slots[1..] {
            self.s.reduce(slot, Side::Right, &into);
        }
        self.is_input = false;
    }
}

/// The block numbers of a piece, which are also its size numbers.
fn blocks(piece: &Piece) -> impl Iterator<Item = u32> + '_ {
    piece.iter().flat_map(|(first, count)| *first..first + count)
}

/// Allgather in ⌈log2 r⌉ rounds among r ranks (Bruck et al. 1997); slot `at` is this rank's own. In round k a rank
/// sends the 2^k slots from its own on to the rank 2^k before it.
pub(super) fn bruck_allgather(s: &mut Builder, peers: &[u32], at: usize, tag: u32, slots: &[Vec<Slice>]) {
    let r = peers.len();
    let mut distance = 1;
    while distance < r {
        let count = distance.min(r - distance);
        let from = |first: usize| (first..first + count).flat_map(|i| slots[i % r].clone()).collect::<Vec<_>>();
        s.send(peers[(at + r - distance) % r], tag, &from(at));
        s.receive(peers[(at + distance) % r], tag, &from(at + distance));
        distance *= 2;
    }
}
