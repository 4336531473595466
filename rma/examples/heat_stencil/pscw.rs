//! Ghosts by post-start-complete-wait: each rank exposes its ghost buffer to its neighbours and puts to theirs. Ranks
//! that are not neighbours do not synchronize.

use farside_rma::{Assert, GlobalArray, Result, Window};

use crate::block::{Block, ghost_len};
use crate::exchange::{Exchange, Neighbour, edges, neighbours, take_ghosts};

pub(crate) struct Pscw {
    neighbours: Vec<Neighbour>,
    ranks: Vec<usize>,
    ghosts: Window<'static, f64>,
}

impl Pscw {
    pub(crate) fn new(plate: &GlobalArray<f64, 2>) -> Result<Self> {
        let team = plate.team();
        let neighbours = neighbours(plate)?;
        let ranks = neighbours.iter().map(|n| n.rank).collect();
        let ghosts = Window::allocate(team, ghost_len(plate.owned(team.rank())?))?;
        Ok(Self { neighbours, ranks, ghosts })
    }
}

impl Exchange for Pscw {
    fn exchange(&mut self, _step: u64, block: &mut Block) -> Result<()> {
        let edges = edges(block, &self.neighbours);
        let (to, ranks) = (&self.neighbours, &self.ranks);
        self.ghosts.expose(ranks, Assert::empty(), |exposure| {
            exposure.start(ranks, Assert::empty(), |epoch| {
                to.iter().zip(&edges).try_for_each(|(n, edge)| epoch.put(edge, n.rank, n.offset))
            })
        })?;
        take_ghosts(block, &self.neighbours, self.ghosts.local()?);
        Ok(())
    }

    fn free(self: Box<Self>) -> Result<()> {
        self.ghosts.free()
    }
}
