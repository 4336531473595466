//! The routing phases, which run the rounds backwards.

use super::plan::{Meeting, Plan};
use super::reduction::{Piece, Reduction, Stage, bruck_allgather};
use crate::schedule::Slice;

impl Reduction<'_> {
    /// Every rank gets all pieces.
    pub(super) fn allgather(&mut self) {
        for stage in std::mem::take(&mut self.stages).iter().rev() {
            let (position, tag) = (stage.place.position, 2 * stage.place.round as u32 + 1);
            let peer = |position| self.plan.peer(&stage.place, position);
            let Stage { whole, cut, .. } = stage;
            match (stage.place.cluster.meeting, position) {
                (Meeting::TwoOne, 0) => self.send(peer(1), tag, whole),
                (Meeting::TwoOne, _) => self.receive(peer(0), tag, whole),
                (Meeting::ThreeTwo, 1) if cut.is_empty() => self.send(peer(2), tag, whole),
                (Meeting::ThreeTwo, 2) if cut.is_empty() => self.receive(peer(1), tag, whole),
                _ if cut.is_empty() => {}
                (Meeting::ThreeTwo, 0) => {
                    self.send(peer(2), tag, &cut[0]);
                    self.receive(peer(1), tag, &cut[1]);
                }
                (Meeting::ThreeTwo, 1) => {
                    self.send(peer(0), tag, &cut[1]);
                    self.send(peer(2), tag, &cut[1]);
                    self.receive(peer(2), tag, &cut[0]);
                }
                (Meeting::ThreeTwo, _) => {
                    self.receive(peer(0), tag, &cut[0]);
                    self.send(peer(1), tag, &cut[0]);
                    self.receive(peer(1), tag, &cut[1]);
                }
                (Meeting::Exchange(r), _) => {
                    let peers: Vec<u32> = (0..r).map(peer).collect();
                    let slots: Vec<Vec<Slice>> = cut.iter().map(|piece| self.reduced(piece)).collect();
                    bruck_allgather(&mut self.s, &peers, position as usize, tag, &slots);
                }
                (Meeting::Alone, _) => {}
            }
        }
    }

    /// The root gets all pieces: in each round, the ranks whose groups are in the root's cluster send the pieces that
    /// the root lacks.
    pub(super) fn gather(&mut self) {
        let plan: &Plan = self.plan;
        let root: Vec<_> = plan.line(self.call.root).collect();
        for stage in std::mem::take(&mut self.stages).iter().rev() {
            let round = stage.place.round;
            let (cluster, to) = root[round];
            // If earlier rounds did not divide the piece, several ranks of the group hold the same piece; only the rank
            // at the root's position sends or receives it.
            let is_root_s = |i: usize| {
                let (cluster, position) = root[i];
                let ways = plan.rounds()[i].ways();
                plan.rounds()[i].halved || stage.place.index / plan.rounds()[i].width % ways == cluster.keeper(position)
            };
            if cluster != stage.place.cluster || !(0..round).all(|i| plan.rounds()[i].ways() == 1 || is_root_s(i)) {
                continue;
            }
            let (own, tag) = (stage.place.position, 2 * round as u32 + 1);
            let gives = |position: u32| -> Option<&Piece> {
                match stage.cut.get(position as usize) {
                    _ if position == to || cluster.eliminates(position) => None,
                    Some(piece) => Some(piece),
                    None => Some(&stage.whole).filter(|_| cluster.eliminates(to) && position + 1 == to),
                }
            };
            if own == to {
                for position in 0..=to.max(stage.cut.len() as u32) {
                    if let Some(piece) = gives(position) {
                        self.receive(plan.peer(&stage.place, position), tag, piece);
                    }
                }
            } else if let Some(piece) = gives(own) {
                self.send(plan.peer(&stage.place, to), tag, piece);
            }
        }
    }

    /// Every rank gets its block; eliminated ranks get theirs from the rank that holds it.
    pub(super) fn scatter(&mut self) {
        let me = self.call.rank;
        let tag = 2 * self.plan.rounds().len() as u32;
        let is_eliminated = |stage: &Stage| stage.place.cluster.eliminates(stage.place.position);
        if self.stages.last().is_some_and(is_eliminated) {
            // This is the active rank whose positions keep this rank's blocks.
            let kept = self.plan.line(me).map(|(cluster, position)| cluster.keeper(position));
            let index = self.plan.rounds().iter().zip(kept).map(|(round, kept)| kept * round.width).sum();
            let holder = self.plan.active(index);
            self.s.receive(holder, tag, &[Slice::output(0, 1)]);
            return;
        }
        let piece = std::mem::take(&mut self.piece);
        for block in piece.iter().flat_map(|(first, count)| *first..first + count) {
            let from = self.held(&vec![(block, 1)]);
            if block == me {
                self.s.copy(&from, &[Slice::output(0, 1)]);
            } else {
                self.s.send(block, tag, &from);
            }
        }
    }

    fn receive(&mut self, source: u32, tag: u32, piece: &Piece) {
        let into = self.reduced(piece);
        self.s.receive(source, tag, &into);
    }
}
