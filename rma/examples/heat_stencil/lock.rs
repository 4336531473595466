//! Ghosts with locks: the target takes no part in a put, so the origin has to notify it.
//!
//! Each rank has two ghost buffers, for even and odd steps, and a counter for each side. A neighbour puts the ghosts
//! under a shared lock and, when the lock is released and so the put complete, adds 1 to the counter. It can be one
//! step ahead, but not two, because it waits for this rank's ghosts, so it never writes the buffer that is being read.

use farside_rma::{Assert, GlobalArray, LockKind, LockWindow, Op, Result};

use crate::block::{Block, Side, ghost_len};
use crate::exchange::{Exchange, Neighbour, edges, neighbours, take_ghosts};

/// Number of reads of a counter between two checks of the peers.
const LOOKS: u32 = 1024;

pub(crate) struct Lock {
    neighbours: Vec<Neighbour>,
    ghosts: LockWindow<f64>,
    counters: LockWindow<u64>,
    /// Number of cells of one ghost buffer, by rank.
    lens: Vec<usize>,
}

impl Lock {
    pub(crate) fn new(plate: &GlobalArray<f64, 2>) -> Result<Self> {
        let team = plate.team();
        let lens = (0..team.size()).map(|rank| plate.owned(rank).map(ghost_len)).collect::<Result<Vec<_>>>()?;
        let ghosts = LockWindow::allocate(team, 2 * lens[team.rank()])?;
        let counters = LockWindow::allocate(team, Side::ALL.len())?;
        Ok(Self { neighbours: neighbours(plate)?, ghosts, counters, lens })
    }

    /// Waits until the ghosts of `step` have arrived from every neighbour.
    fn wait(&self, step: u64) -> Result<()> {
        let team = self.counters.team();
        let (me, job) = (team.rank(), team.job());
        // No rank ever takes these locks exclusively.
        self.counters.lock_all(Assert::NOCHECK, |epoch| {
            for n in &self.neighbours {
                for look in 1u32.. {
                    if epoch.get_blocking(me, n.side as usize)? > step {
                        break;
                    }
                    job.progress()?;
                    if look % LOOKS == 0 {
                        job.check_peers()?;
                    }
                    std::thread::yield_now();
                }
            }
            Ok(())
        })
    }
}

impl Exchange for Lock {
    fn exchange(&mut self, step: u64, block: &mut Block) -> Result<()> {
        let buffer = (step % 2) as usize;
        for (n, edge) in self.neighbours.iter().zip(edges(block, &self.neighbours)) {
            let offset = buffer * self.lens[n.rank] + n.offset;
            self.ghosts.lock(LockKind::Shared, n.rank, Assert::empty(), |epoch| epoch.put(&edge, n.rank, offset))?;
            self.counters.lock(LockKind::Shared, n.rank, Assert::NOCHECK, |epoch| {
                epoch.accumulate(Op::Sum, &[1], n.rank, n.its_side() as usize)
            })?;
        }
        self.wait(step)?;
        let len = self.lens[self.ghosts.team().rank()];
        self.ghosts.with_local(|local| {
            take_ghosts(block, &self.neighbours, &local[buffer * len..][..len]);
            Ok(())
        })
    }

    fn free(self: Box<Self>) -> Result<()> {
        self.ghosts.free()?;
        self.counters.free()
    }
}
