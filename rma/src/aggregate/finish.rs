//! Termination: whether all items of all ranks have been consumed.
//!
//! The four-counter method, as in [`quiesce`](crate::calls::Calls::quiesce): two consecutive sums over all ranks of the
//! numbers of items pushed and consumed, with all four equal. The sums go up a binary tree of messages, and the answer
//! comes back down, so a rank goes on consuming meanwhile. A rank takes part once it pushes no more, has sent all its
//! blocks and has consumed what has arrived. Each round takes two messages a rank.

use farside_core::Result;

use super::state::Aggregator;
use super::wire::Kind;

/// The state of a rank in the rounds.
#[derive(Default)]
pub(crate) struct Tree {
    me: usize,
    ranks: usize,
    /// The children that have reported, a bit each, and the sums of their subtrees.
    reported: u8,
    sums: [u64; 2],
    /// Whether this rank has reported.
    has_reported: bool,
    /// The parent's answer, not yet passed on.
    decided: Option<bool>,
    /// The sums of the previous round, at the root.
    before: Option<[u64; 2]>,
    /// Whether all items of the phase have been consumed.
    pub(crate) finished: bool,
}

/// A message of a round.
pub(crate) enum Step {
    /// The sums of its subtree, to its parent.
    Report(usize, [u64; 2]),
    /// To its children: whether all items of the phase have been consumed.
    Verdict(bool),
}

impl Tree {
    pub(crate) fn new(me: usize, ranks: usize) -> Self {
        Self { me, ranks, ..Self::default() }
    }

    pub(crate) fn children(&self) -> impl Iterator<Item = usize> + use<> {
        let ranks = self.ranks;
        [2 * self.me + 1, 2 * self.me + 2].into_iter().filter(move |child| *child < ranks)
    }

    /// Takes the report of a child; `false` if it cannot be one.
    pub(crate) fn reported(&mut self, sender: usize, sums: [u64; 2]) -> bool {
        let Some(child) = self.children().position(|child| child == sender) else { return false };
        let is_first = self.reported & 1 << child == 0;
        self.reported |= 1 << child;
        self.sums = [0, 1].map(|i| self.sums[i].wrapping_add(sums[i]));
        is_first
    }

    /// Takes the parent's answer; `false` if it cannot be one.
    pub(crate) fn decided(&mut self, sender: usize, finished: bool) -> bool {
        let is_next = self.has_reported && self.decided.is_none() && self.me > 0;
        if !is_next || sender != (self.me - 1) / 2 {
            return false;
        }
        self.decided = Some(finished);
        true
    }

    /// The next step of a rank that has pushed and consumed `own` numbers of items, and reports only while it is idle.
    pub(crate) fn step(&mut self, is_idle: bool, own: [u64; 2]) -> Option<Step> {
        if self.decided.is_none() {
            let all = self.reported.count_ones() as usize == self.children().count();
            if !is_idle || self.has_reported || !all {
                return None;
            }
            let sums = [0, 1].map(|i| self.sums[i].wrapping_add(own[i]));
            self.has_reported = true;
            if self.me > 0 {
                return Some(Step::Report((self.me - 1) / 2, sums));
            }
            self.decided = Some(sums[0] == sums[1] && self.before == Some(sums));
            self.before = Some(sums);
        }
        let finished = self.decided.take()?;
        let before = self.before.filter(|_| !finished);
        *self = Self { before, finished, ..Self::new(self.me, self.ranks) };
        Some(Step::Verdict(finished))
    }
}

impl Aggregator {
    /// Takes part in the rounds as far as possible.
    pub(super) fn report(&self) -> Result<()> {
        loop {
            let blocks = &mut *self.blocks.borrow_mut();
            let is_idle = blocks.closing && blocks.is_idle();
            match blocks.tree.step(is_idle, [blocks.pushed, blocks.consumed]) {
                None => return Ok(()),
                Some(Step::Report(parent, sums)) => return self.send(parent, self.header(Kind::Report, sums)),
                Some(Step::Verdict(finished)) => {
                    for child in blocks.tree.children() {
                        self.send(child, self.header(Kind::Verdict, [u64::from(finished), 0]))?;
                    }
                    if finished {
                        blocks.closing = false;
                        blocks.set_leaving(false);
                        blocks.phase = blocks.phase.wrapping_add(1);
                    }
                }
            }
        }
    }

    /// Whether this call is the first since all items of the phase were consumed.
    pub(super) fn has_finished(&self) -> bool {
        std::mem::take(&mut self.blocks.borrow_mut().tree.finished)
    }

    /// Waits until all items of all ranks have been consumed, by functions.
    pub(super) fn finish(&self) -> Result<()> {
        {
            let mut blocks = self.blocks.borrow_mut();
            blocks.closing = true;
            blocks.set_leaving(true);
        }
        self.job().wait(
            || self.awaited(None),
            || {
                self.check()?;
                self.turn()?;
                Ok(self.has_finished().then_some(()))
            },
        )
    }
}

/// Sends all blocks that may leave, and waits until a message has arrived for one of these, or a block has left.
pub(super) fn wait_for_any(all: &[&Aggregator]) -> Result<()> {
    let Some(first) = all.first() else { return Ok(()) };
    all.iter().for_each(|one| one.blocks.borrow_mut().set_leaving(true));
    first.job().wait(
        || first.awaited(None),
        || {
            for one in all {
                one.check()?;
                one.turn()?;
            }
            let has_changed = |one: &&Aggregator| one.has_received.take() | one.has_departed.take();
            Ok((all.iter().filter(|one| has_changed(one)).count() > 0).then_some(()))
        },
    )
}
