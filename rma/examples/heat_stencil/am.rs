//! Ghosts in active messages: the header names their side and the parity of their step, the handler at the target
//! stores them, and a counter of the target counts their arrival.
//!
//! Each rank has two sets of ghosts, for even and odd steps, because a neighbour can be one step ahead, but not two.

use std::cell::RefCell;
use std::rc::Rc;

use farside_rma::core::am::{self, Counter, Counters, Delivery, HandlerId, OnComplete, Sink};
use farside_rma::{GlobalArray, Job, Result, Team};

use crate::block::{Block, Side};
use crate::exchange::{Exchange, Neighbour, edges, neighbours};

/// The program's only handler.
const GHOSTS: HandlerId = HandlerId(1);

/// Ghosts that have arrived, by parity of the step and by side.
type Inbox = Rc<RefCell<[[Vec<f64>; 4]; 2]>>;

pub(crate) struct ActiveMessages {
    team: Team,
    neighbours: Vec<Neighbour>,
    inbox: Inbox,
    /// Messages that have arrived, by side.
    counters: [Counter; 4],
    /// The numbers by which senders name the counters.
    numbers: [u32; 4],
}

impl ActiveMessages {
    pub(crate) fn new(plate: &GlobalArray<f64, 2>) -> Result<Self> {
        let team = plate.team().clone();
        let inbox = Inbox::default();
        let messages = team.job().active_messages();
        let to = inbox.clone();
        messages.register(GHOSTS, move |message| {
            let &[parity @ 0..2, side @ 0..4] = message.header else { return Delivery::Done };
            let to = to.clone();
            let put_away = OnComplete::inline(move |received| {
                // An error means that the sender has withdrawn its message; it fails itself.
                let Ok(received) = received else { return };
                let cells = received.buffer.chunks_exact(size_of::<f64>()).map(bytemuck::pod_read_unaligned).collect();
                to.borrow_mut()[usize::from(parity)][usize::from(side)] = cells;
            });
            Delivery::Into(Sink::buffer(Vec::new()), put_away)
        })?;
        let counters = <[Counter; 4]>::default();
        let numbers = counters.each_ref().map(|counter| messages.expose(counter));
        // No rank sends before all ranks can receive.
        team.barrier()?;
        Ok(Self { neighbours: neighbours(plate)?, inbox, counters, numbers, team })
    }

    fn job(&self) -> &Job {
        self.team.job()
    }
}

impl Exchange for ActiveMessages {
    fn exchange(&mut self, step: u64, block: &mut Block) -> Result<()> {
        let parity = step % 2;
        for (n, edge) in self.neighbours.iter().zip(edges(block, &self.neighbours)) {
            let side: Side = n.its_side();
            let counters = Counters { target: Some(self.numbers[side as usize]), ..Counters::default() };
            let (to, header) = (self.team.job_rank(n.rank)?, [parity as u8, side as u8]);
            am::send(self.job(), to, GHOSTS, &header, bytemuck::cast_slice(&edge), counters)?;
        }
        let has_arrived = |n: &Neighbour| self.counters[n.side as usize].value() > step;
        self.job().wait("wait for ghosts", || Ok(self.neighbours.iter().all(has_arrived).then_some(())))?;
        for n in &self.neighbours {
            block.set_ghosts(n.side, &self.inbox.borrow()[parity as usize][n.side as usize]);
        }
        Ok(())
    }

    fn free(self: Box<Self>) -> Result<()> {
        // All messages to this rank have arrived: one from each neighbour in each step.
        self.job().active_messages().unregister(GHOSTS);
        Ok(())
    }
}
