//! Ghosts with fences: one collective epoch for each step, in which every rank puts to its neighbours.
//!
//! The ghost buffer is a window of its own, read between the epochs. A neighbour that is a step ahead cannot
//! overwrite it, because its puts wait until this rank has opened the next epoch.

use farside_rma::{Assert, GlobalArray, Result, Window};

use crate::block::{Block, ghost_len};
use crate::exchange::{Exchange, Neighbour, edges, neighbours, take_ghosts};

pub(crate) struct Fence {
    neighbours: Vec<Neighbour>,
    ghosts: Window<'static, f64>,
}

impl Fence {
    pub(crate) fn new(plate: &GlobalArray<f64, 2>) -> Result<Self> {
        let team = plate.team();
        let ghosts = Window::allocate(team, ghost_len(plate.owned(team.rank())?))?;
        Ok(Self { neighbours: neighbours(plate)?, ghosts })
    }
}

impl Exchange for Fence {
    fn exchange(&mut self, _step: u64, block: &mut Block) -> Result<()> {
        let edges = edges(block, &self.neighbours);
        let to = &self.neighbours;
        self.ghosts.fence(Assert::empty(), |epoch| {
            to.iter().zip(&edges).try_for_each(|(n, edge)| epoch.put(edge, n.rank, n.offset))
        })?;
        take_ghosts(block, &self.neighbours, self.ghosts.local()?);
        Ok(())
    }

    fn free(self: Box<Self>) -> Result<()> {
        self.ghosts.free()
    }
}
