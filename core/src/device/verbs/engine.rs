#![allow(unsafe_code)]
//! What drives the requests of a rank: streams to peers, operations, and what is to happen when requests land.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::buffers::{Chunk, Pool};
use super::connect::credits::Credit;
use super::connect::links::{Links, Standing};
use super::flight::Flight;
use super::lists::SgrsQueues;
use super::notices::{Told, Way, definition};
use super::ops::{Ops, Owner, Whose};
use super::own::Own;
use super::regions::{Import, Regions};
use super::staged::Staged;
use super::stream::{Landed, Stream, peer_of};
use super::sys::qp::Action;
use super::sys::queue::Completion;
use super::user::UserMemory;
use crate::error::{Error, Result};
use crate::stats::{Kind, Stats};

/// A cell of a peer and its new value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Notice {
    pub(super) import: Import,
    pub(super) offset: usize,
    pub(super) value: u64,
}

/// How long requests to a peer may make no progress before the card is made to look at them again.
const STILL: Duration = Duration::from_secs(3);

/// Fields are dropped in this order: queue pairs before the memory that they use.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) streams: Vec<Option<Stream>>,
    pub(super) sgrs: SgrsQueues,
    pub(super) ops: Ops,
    pub(super) pool: Pool,
    pub(super) regions: Regions,
    pub(super) user: UserMemory,
    pub(super) told: Vec<Told>,
    pub(super) credits: Vec<Credit>,
    /// Packets that may be under way to each peer.
    pub(super) window: u64,
    /// Address and key of where each peer counts this rank's packets.
    counters: Vec<(u64, u32)>,
    /// Transfers of memory that cannot be registered.
    pub(super) staged: VecDeque<Staged>,
    /// Operations of the user that have ended.
    pub(super) done: VecDeque<(u64, Result<()>)>,
    /// Packets of this rank to itself.
    pub(super) own: Own,
    pub(super) links: Arc<Links>,
    landed: Vec<Landed>,
    /// Requests under way, or waiting, that are whole operations of the user.
    pub(super) whole: usize,
    /// Requests may wait for room or for a connection.
    pub(super) todo: bool,
    /// The oldest request to each peer, and since when it was.
    oldest: Vec<(Option<u64>, Instant)>,
}

impl Engine {
    pub(super) fn new(
        links: &Arc<Links>,
        pool: Pool,
        regions: Regions,
        user: UserMemory,
        sgrs: SgrsQueues,
        window: u64,
    ) -> Self {
        let ranks = links.cards.len();
        Self {
            streams: (0..ranks).map(|_| None).collect(),
            sgrs,
            ops: Ops::default(),
            pool,
            regions,
            user,
            told: (0..ranks).map(|_| Told::default()).collect(),
            credits: (0..ranks).map(|_| Credit::default()).collect(),
            window,
            counters: vec![(0, 0); ranks],
            staged: VecDeque::new(),
            done: VecDeque::new(),
            own: Own::default(),
            links: Arc::clone(links),
            landed: Vec::new(),
            whole: 0,
            todo: false,
            oldest: vec![(None, Instant::now()); ranks],
        }
    }

    pub(super) fn stream(&mut self, peer: u32) -> &mut Stream {
        let capacity = self.links.sizes.sends as usize;
        self.streams[peer as usize].get_or_insert_with(|| Stream::new(peer, capacity))
    }

    /// The stream to `peer` if it is connected; else a connection is on its way.
    pub(super) fn ready(&mut self, peer: u32) -> Result<Option<&mut Stream>> {
        let stream = self.stream(peer);
        if let Some(e) = stream.lost() {
            return Err(e.again());
        }
        if !stream.is_connected() && !self.make(peer)? {
            return Ok(None);
        }
        Ok(Some(self.stream(peer)))
    }

    /// Connects to `peer` if the last connection is gone; whether there is one now.
    fn make(&mut self, peer: u32) -> Result<bool> {
        if !self.stream(peer).is_gone() {
            return Ok(false);
        }
        match self.links.connect(peer)? {
            Standing::Ready((qp, counter)) => {
                self.counters[peer as usize] = counter;
                self.stream(peer).connected(qp);
                Ok(true)
            }
            Standing::Making => Ok(false),
        }
    }

    /// Hands flights to the stream of `peer`, in order.
    pub(super) fn push(&mut self, peer: u32, flights: impl IntoIterator<Item = Flight>, stats: &Stats) {
        let scarce = self.pool.is_scarce();
        let stream = self.stream(peer);
        // SAFETY: pieces are chunks and registered memory that the flights' operations keep until they land.
        let posted = unsafe { stream.push(flights, scarce) };
        let waiting = stream.is_waiting();
        self.todo |= waiting;
        (0..posted).for_each(|_| stats.add(Kind::Post, 0));
    }

    /// Hands one flight to the stream of `peer`, where `fill` completes it.
    #[inline]
    pub(super) fn push_one(&mut self, peer: u32, action: Action, stats: &Stats, fill: impl FnOnce(&mut Flight)) {
        let scarce = self.pool.is_scarce();
        // SAFETY: as in `push`.
        if unsafe { self.stream(peer).push_one(action, fill, scarce) } {
            stats.add(Kind::Post, 0);
        } else {
            self.todo = true;
        }
    }

    /// Sends what sets a cell and wakes its rank.
    pub(super) fn push_signal(&mut self, peer: u32, notice: &Notice, stats: &Stats) {
        let flight = self.signal(notice);
        self.push_one(peer, flight.action, stats, |place| *place = flight);
    }

    /// Whether a packet may be sent to `peer`, which is connected; asks it for credit if that runs low.
    pub(super) fn has_credit(&mut self, peer: u32, stats: &Stats) -> bool {
        let advice = self.credits[peer as usize].advise(self.window);
        if advice.ask
            && self.stream(peer).room() > 1
            && let Some(chunk) = self.pool.take(8)
        {
            let (address, key) = self.counters[peer as usize];
            let piece = self.pool.piece(&chunk, 0, 8);
            let op = self.ops.add_with_chunk(Owner::Credit, peer, chunk, None);
            self.credits[peer as usize].asked();
            self.post_single(peer, op, Action::Read { address, key }, |f| f.pieces.push(piece), None, stats);
        }
        advice.send
    }

    /// A flight that sets a cell and wakes its rank.
    pub(super) fn signal(&mut self, notice: &Notice) -> Flight {
        let Import { key, .. } = notice.import;
        self.told[notice.import.peer as usize].set((notice.import.number, notice.offset as u64), notice.value);
        let address = notice.import.address(notice.offset);
        let mut flight = Flight::new(Action::Write { address, key });
        flight.inline.extend_from_slice(&notice.value.to_le_bytes());
        flight.immediate = Some(0);
        flight
    }

    /// Adds a notification to flights that are about to be posted; its own message, if it takes one, is counted.
    pub(super) fn announce<A: smallvec::Array<Item = Flight>>(
        &mut self,
        flights: &mut smallvec::SmallVec<A>,
        notice: &Notice,
        stats: &Stats,
    ) {
        let cell = (notice.import.number, notice.offset as u64);
        let way = self.told[notice.import.peer as usize].way(cell, notice.value);
        if let Way::Define(slot, _) = way {
            let mut packet = Flight::new(Action::Send);
            packet.inline.extend_from_slice(&definition(slot, cell));
            packet.immediate = Some(0);
            flights.insert(0, packet);
        }
        match (way, flights.last_mut()) {
            (Way::Immediate(imm) | Way::Define(_, imm), Some(last)) => {
                last.immediate = Some(imm);
                stats.add(Kind::Notify, 8);
            }
            _ => {
                let signal = self.signal(notice);
                flights.push(signal);
                stats.add(Kind::Signal, 8);
            }
        }
    }

    /// Takes in a completion of a request.
    #[inline]
    pub(super) fn completed(&mut self, c: &Completion, stats: &Stats) {
        let Some(Some(stream)) = self.streams.get_mut(peer_of(c.id)) else { return };
        match stream.completed_next(c) {
            Some((whose, chunk)) => self.settle_one(whose, chunk, Ok(()), stats),
            None => self.completed_else(c, stats),
        }
    }

    /// [`completed`](Self::completed), whatever it is.
    #[inline(never)]
    fn completed_else(&mut self, c: &Completion, stats: &Stats) {
        let mut landed = std::mem::take(&mut self.landed);
        if let Some(Some(stream)) = self.streams.get_mut(peer_of(c.id)) {
            let ops = &self.ops;
            stream.completed(c, &mut landed, &|whose| match whose {
                Whose::Op(op) => ops.has_failed(op),
                Whose::Cancelled => true,
                Whose::Nobody | Whose::User(_) | Whose::Fetch { .. } => false,
            });
            self.todo |= stream.is_waiting();
        }
        self.settle(landed, stats);
    }

    fn settle(&mut self, mut landed: Vec<Landed>, stats: &Stats) {
        for Landed { flight, result } in landed.drain(..) {
            self.settle_one(flight.whose, flight.chunk, result, stats);
        }
        self.landed = landed;
    }

    /// A request has landed: what came free with it, and whom it concerns.
    #[inline]
    fn settle_one(&mut self, whose: Whose, chunk: Option<Chunk>, result: Result<()>, stats: &Stats) {
        if let (Whose::Fetch { to, len, .. }, Some(chunk), Ok(())) = (whose, &chunk, &result)
            && !to.is_null()
        {
            // SAFETY: the user's pointer is valid until the operation is complete or cancelled.
            unsafe { self.pool.copy_word(chunk, to, len) };
        }
        if let Some(chunk) = chunk {
            self.pool.give(chunk);
        }
        match whose {
            Whose::User(id) | Whose::Fetch { id, .. } => {
                self.whole -= 1;
                self.done.push_back((id, result));
            }
            Whose::Op(op) => self.op_landed(op, result, stats),
            Whose::Nobody | Whose::Cancelled => {}
        }
    }

    /// A request of operation `number` has landed; that may be its end.
    pub(super) fn op_landed(&mut self, number: u32, result: Result<()>, stats: &Stats) {
        let Some(op) = self.ops.landed(number, result) else { return };
        let (owner, peer, notice) = (op.owner, op.peer, op.notice.take());
        let word = op.chunk.as_ref().filter(|_| owner == Owner::Credit && op.error.is_none());
        // SAFETY: the first word of a chunk, which the card has written.
        let taken = word.map(|chunk| unsafe { self.pool.at(chunk, 0).cast::<u64>().read() });
        // SAFETY: the user's pointers are valid until the operation is complete or cancelled.
        let result = unsafe { op.finish(&mut self.pool, stats) };
        self.ops.end(number);
        if let (Ok(()), Some(notice)) = (&result, notice) {
            self.push_signal(peer, &notice, stats);
        }
        match owner {
            Owner::User(id) => self.done.push_back((id, result)),
            Owner::Credit => self.credits[peer as usize].answered(taken),
            Owner::Part(of) => self.op_landed(of, result, stats),
            Owner::Nobody => {}
        }
    }

    /// Goes on with what waited for room or for a connection.
    #[inline]
    pub(super) fn drive(&mut self, stats: &Stats) {
        // As a rule nothing does, and this is asked at every turn of a wait.
        if self.todo {
            self.drive_streams(stats);
        }
    }

    fn drive_streams(&mut self, stats: &Stats) {
        let scarce = self.pool.is_scarce();
        for peer in 0..self.streams.len() {
            let Some(stream) = &mut self.streams[peer] else { continue };
            if stream.wants_connection()
                && let Err(e) = self.make(peer as u32)
            {
                self.lose(peer as u32, &e, stats);
                continue;
            }
            if let Some(stream) = &mut self.streams[peer] {
                // SAFETY: as in `push`.
                let posted = unsafe { stream.flush(scarce) };
                (0..posted).for_each(|_| stats.add(Kind::Post, 0));
                if let Some(e) = stream.refused() {
                    self.lose(peer as u32, &e, stats);
                    continue;
                }
                // What failures have added since.
                let mut landed = std::mem::take(&mut self.landed);
                stream.fail_backlog(&mut landed);
                self.settle(landed, stats);
            }
        }
        self.drive_staged(stats);
        self.todo = self.streams.iter().flatten().any(Stream::is_waiting) || !self.staged.is_empty();
    }

    /// Gives up on a peer: everything to it fails.
    #[cold]
    pub(super) fn lose(&mut self, peer: u32, error: &Error, stats: &Stats) {
        let mut landed = std::mem::take(&mut self.landed);
        self.stream(peer).lose(error.again(), &mut landed);
        self.end_sgrs(peer, error.again());
        self.settle(landed, stats);
    }

    /// Destroys the queue pairs to a peer that was given up: whatever has not completed fails.
    #[cold]
    pub(super) fn destroy(&mut self, peer: u32, stats: &Stats) {
        let mut landed = std::mem::take(&mut self.landed);
        self.stream(peer).destroy(&mut landed);
        self.settle(landed, stats);
        self.destroy_sgrs(peer, stats);
    }

    /// Whether something waits that no completion will announce.
    pub(super) fn is_restless(&self) -> bool {
        !self.done.is_empty()
            || self.own.count() > 0
            || self.is_sgrs_restless()
            || self.is_stage_restless()
            || self.streams.iter().flatten().any(Stream::is_restless)
    }

    /// Whether the end of operations is to come.
    #[inline]
    pub(super) fn awaits(&self) -> bool {
        self.whole > 0 || self.ops.count() > 0
    }

    /// Whether every request has landed. Asks after those of which nothing would be heard.
    pub(super) fn is_idle(&mut self, stats: &Stats) -> bool {
        for peer in 0..self.streams.len() as u32 {
            let Some(stream) = &mut self.streams[peer as usize] else { continue };
            if stream.is_silent() && stream.room() > 0 {
                let mut question = Flight::new(Action::Write { address: 0, key: 0 });
                question.signalled = true;
                self.push(peer, [question], stats);
            }
        }
        self.own.count() == 0
            && self.are_ops_idle()
            && self.streams.iter().flatten().all(|s| s.is_idle() || s.lost().is_some())
    }

    /// Posts an empty write to peers to whom nothing has moved for a while. Soft-RoCE may miss that the limit of reads
    /// has opened, and looks at its queue again when something is posted; other cards lose nothing by it.
    pub(super) fn nudge(&mut self, stats: &Stats) {
        let now = Instant::now();
        for peer in 0..self.streams.len() {
            let Some(stream) = &self.streams[peer] else { continue };
            let (oldest, since) = &mut self.oldest[peer];
            if stream.oldest() != *oldest {
                (*oldest, *since) = (stream.oldest(), now);
            } else if oldest.is_some() && now.duration_since(*since) > STILL && stream.room() > 0 {
                *since = now;
                tracing::debug!("nothing has moved to rank {peer} for {STILL:?}");
                let empty = Action::Write { address: 0, key: 0 };
                self.push_one(peer as u32, empty, stats, |flight| flight.signalled = true);
            }
        }
    }

    /// Cancels operations. Returns those whose memory the card may still touch.
    pub(super) fn cancel(&mut self, which: &dyn Fn(u64) -> bool, stats: &Stats) -> Vec<u32> {
        let direct = self.ops.cancel(which);
        for stream in self.streams.iter_mut().flatten() {
            self.whole -= stream.cancel(which);
        }
        let mut landed = std::mem::take(&mut self.landed);
        for op in &direct {
            let Some(peer) = self.ops.get(*op).map(|o| o.peer) else { continue };
            if let Some(stream) = &mut self.streams[peer as usize] {
                stream.withdraw(*op, &mut landed);
            }
        }
        self.settle(landed, stats);
        self.drive_staged(stats);
        self.cancel_lists(&direct);
        direct
    }
}
