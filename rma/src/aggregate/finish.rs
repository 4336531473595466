//! Termination: whether all items of all ranks have been consumed.
//!
//! The four-counter method, as in [`quiesce`](crate::calls::Calls::quiesce): two consecutive sums over all ranks of the
//! numbers of items pushed and consumed, with all four equal. The sums go up a binary tree of messages, and the answer
//! comes back down, so a rank goes on consuming meanwhile. A rank takes part once it pushes no more, has sent all its
//! blocks and has consumed what has arrived. Each round takes two messages a rank.

use farside_core::Result;

use super::grid::Grid;
use super::state::Aggregator;
use super::wire::Kind;

/// The state of the current round.
#[derive(Default)]
pub(super) struct Tree {
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
    pub(super) finished: bool,
}

fn children(grid: &Grid) -> impl Iterator<Item = usize> {
    [2 * grid.me() + 1, 2 * grid.me() + 2].into_iter().filter({
        let ranks = grid.ranks();
        move |child| *child < ranks
    })
}

impl Tree {
    /// Takes the report of a child; `false` if it cannot be one.
    pub(super) fn reported(&mut self, grid: &Grid, sender: u32, sums: [u64; 2]) -> bool {
        let Some(child) = children(grid).position(|child| child == sender as usize) else { return false };
        let is_first = self.reported & 1 << child == 0;
        self.reported |= 1 << child;
        self.sums = [0, 1].map(|i| self.sums[i].wrapping_add(sums[i]));
        is_first
    }

    /// Takes the parent's answer; `false` if it cannot be one.
    pub(super) fn decided(&mut self, grid: &Grid, sender: u32, finished: u64) -> bool {
        let is_next = self.has_reported && self.decided.is_none() && grid.me() > 0;
        if !is_next || sender as usize != (grid.me() - 1) / 2 {
            return false;
        }
        self.decided = Some(finished != 0);
        true
    }
}

impl Aggregator {
    /// Takes part in the rounds as far as possible.
    pub(super) fn report(&self) -> Result<()> {
        loop {
            let blocks = &mut *self.blocks.borrow_mut();
            if blocks.tree.decided.is_none() {
                let is_idle = blocks.closing && !blocks.tree.has_reported && blocks.is_idle();
                if !is_idle || blocks.tree.reported.count_ones() as usize != children(&self.grid).count() {
                    return Ok(());
                }
                let tree = &mut blocks.tree;
                let own = [blocks.pushed, blocks.consumed];
                let sums = [0, 1].map(|i| tree.sums[i].wrapping_add(own[i]));
                tree.has_reported = true;
                if self.grid.me() > 0 {
                    return self.send((self.grid.me() - 1) / 2, self.header(Kind::Report, sums));
                }
                tree.decided = Some(sums[0] == sums[1] && tree.before == Some(sums));
                tree.before = Some(sums);
            }
            let Some(finished) = blocks.tree.decided.take() else { return Ok(()) };
            for child in children(&self.grid) {
                self.send(child, self.header(Kind::Verdict, [u64::from(finished), 0]))?;
            }
            let before = blocks.tree.before.filter(|_| !finished);
            blocks.tree = Tree { before, finished, ..Tree::default() };
            if finished {
                (blocks.closing, blocks.leaving) = (false, false);
                blocks.phase = blocks.phase.wrapping_add(1);
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
            (blocks.closing, blocks.leaving) = (true, true);
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
