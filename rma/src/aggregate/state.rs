//! The aggregated operations of a rank: how its blocks are filled, sent, passed on and consumed.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use farside_core::am::{Delivery, HandlerId, Listening, Message};
use farside_core::bill::{Account, Awaited};
use farside_core::wire::{Reader, Writer};
use farside_core::{Error, ErrorKind, Job, Result, Team, coll};

use super::Options;
use super::blocks::{Block, Blocks, Channel};
use super::finish::Tree;
use super::grid::{Grid, Hop, MAX_HOPS, WINDOW};
use super::wire::{self, Header, Kind, word};

pub(super) const AGGREGATE: &str = "aggregate operations";
/// Bytes before the item in a record that may make several hops: destination and source, as team ranks.
const WAY: usize = 8;
/// Bit of a record's source: the item is the number of a flush of the source.
const FLUSH: u32 = 1 << 31;

/// Consumes records of a block from this rank of the team, whose items are for the own rank.
pub(super) type Apply = dyn Fn(u32, &[u8], Lengths) -> Result<()>;

/// Lengths in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths {
    pub(super) record: usize,
    /// Offset of the item in its record.
    pub(super) item: usize,
    pub(super) block: usize,
}

/// The aggregated operations of one object at one rank.
pub(super) struct Aggregator {
    pub(super) team: Team,
    listening: Listening,
    /// The handlers of all ranks.
    handlers: Vec<HandlerId>,
    pub(super) grid: Grid,
    pub(super) lengths: Lengths,
    /// Consumes the items as soon as they arrive; `None` if the program pulls them.
    apply: Option<Box<Apply>>,
    pub(super) blocks: RefCell<Blocks>,
    /// Whether a turn is in progress, so that one inside it does nothing.
    turning: Cell<bool>,
    /// Whether the object has ended, so that nothing is consumed any more.
    has_ended: Cell<bool>,
    /// Whether a block has left since the last progress.
    pub(super) has_departed: Cell<bool>,
    /// Whether a message has arrived since the last [`wait_for_any`](super::finish::wait_for_any).
    pub(super) has_received: Cell<bool>,
    /// An error that no call has returned yet.
    failed: RefCell<Option<Error>>,
    /// The number of this rank's last flush, and that of the last one that has been answered.
    flushes: Cell<u64>,
    pub(super) flushed: Cell<u64>,
}

/// Marks a turn until it is dropped, even when a panic unwinds.
struct Turning<'a>(&'a Cell<bool>);

impl Drop for Turning<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Aggregator {
    /// Creates the aggregated operations of a team, with items of `item` bytes; `code` distinguishes uses. Collective:
    /// one allgather and a barrier.
    pub(super) fn new(
        team: &Team,
        options: Options,
        (item, code): (usize, u64),
        apply: Option<Box<Apply>>,
    ) -> Result<Rc<Self>> {
        let own: Rc<RefCell<Weak<Self>>> = Rc::default();
        let shared = Rc::clone(&own);
        let handler = move |message: Message<'_>| match shared.borrow().upgrade() {
            Some(shared) => shared.receive(&message),
            None => Delivery::Done,
        };
        let grid = Grid::new(team.size(), team.rank(), options.hops, options.bytes);
        let way = if grid.hops() > 1 { WAY } else { 0 };
        let lengths = Lengths { record: way + item, item: way, block: grid.block(way + item, options.bytes) };
        let listening = team.job().active_messages().listen(handler);
        // 0 means that no handler number was free, as the runtime never assigns 0.
        let id = listening.as_ref().map_or(0, |listening| listening.id().0);
        let numbers = [code, item as u64, options.bytes as u64, grid.hops() as u64];
        let mine = numbers.into_iter().fold(Writer::new().u64(u64::from(id)), Writer::u64).done();
        let all = coll::allgather(team, &mine)?;
        let listening = listening?;
        let made = || {
            let blamed =
                |kind, peer: usize| Error::new(kind, AGGREGATE).rank(team.job().rank()).peer(team.members()[peer]);
            let read = |bytes: &[u8]| {
                let mut reader = Reader::new(bytes);
                let mut next = || reader.u64().unwrap_or(0);
                (next(), [next(), next(), next(), next()])
            };
            let others: Vec<_> = all.iter().map(|bytes| read(bytes)).collect();
            if let Some(other) = others.iter().position(|(_, numbers)| *numbers != others[0].1) {
                let by = if other == team.rank() || others[other].1 == others[team.rank()].1 { 0 } else { other };
                let (peers, [.., bytes, hops]) = (others[by].1, numbers);
                return Err(blamed(ErrorKind::Mismatch, by)
                    .cause(format!(
                        "the peer aggregates other operations, or in {} bytes over {} hops, but this rank in {bytes} \
                         bytes over {hops}",
                        peers[2], peers[3]
                    ))
                    .remedy("give the same elements, operator and options at every rank"));
            }
            if let Some(hops) = options.hops.filter(|hops| !(1..=MAX_HOPS).contains(hops)) {
                let e = Error::new(ErrorKind::BadArgument, AGGREGATE).rank(team.job().rank());
                return Err(e.cause(format!("{hops} hops; there are 1 to {MAX_HOPS}")));
            }
            if lengths.block == 0 {
                return Err(Error::new(ErrorKind::BadArgument, AGGREGATE)
                    .rank(team.job().rank())
                    .cause(format!(
                        "{} bytes are too few for blocks to {} ranks with items of {item} bytes",
                        options.bytes,
                        team.size()
                    ))
                    .remedy("give more bytes, or leave the number of hops to the runtime"));
            }
            if let Some(none) = others.iter().position(|(id, _)| *id == 0) {
                return Err(blamed(ErrorKind::Limit, none).cause("the rank has no free handler number"));
            }
            Ok(others.iter().map(|(id, _)| HandlerId(u16::try_from(*id).unwrap_or(0))).collect())
        };
        let handlers = match made() {
            Ok(handlers) => handlers,
            Err(e) => {
                team.job().active_messages().end(&listening);
                return Err(e);
            }
        };
        let channels = std::iter::repeat_with(Channel::default).take(grid.channels()).collect();
        let tree = Tree::new(grid.me(), grid.ranks());
        let shared = Rc::new(Self {
            team: team.clone(),
            listening,
            handlers,
            grid,
            lengths,
            apply,
            blocks: RefCell::new(Blocks { channels, tree, ..Blocks::default() }),
            turning: Cell::new(false),
            has_ended: Cell::new(false),
            has_departed: Cell::new(false),
            has_received: Cell::new(false),
            failed: RefCell::default(),
            flushes: Cell::new(0),
            flushed: Cell::new(0),
        });
        *own.borrow_mut() = Rc::downgrade(&shared);
        // A barrier, so that no rank sends before all others can receive.
        team.barrier()?;
        Ok(shared)
    }

    /// Ends the object, while messages for it may be in transit: they are dropped.
    pub(super) fn abandon(&self) {
        self.has_ended.set(true);
    }

    /// Ends the object, and removes the handler. No message for it is in transit.
    pub(super) fn end(&self) {
        self.abandon();
        self.team.job().active_messages().end(&self.listening);
    }

    pub(super) fn job(&self) -> &Job {
        self.team.job()
    }

    pub(super) fn awaited(&self, rank: Option<usize>) -> Awaited {
        let from = rank.and_then(|rank| self.team.members().get(rank).copied());
        Awaited { account: Some(Account::team(self.team.context())), operation: AGGREGATE, call: 0, from }
    }

    /// The error that has occurred while the program was elsewhere, once.
    pub(super) fn check(&self) -> Result<()> {
        self.failed.borrow_mut().take().map_or(Ok(()), Err)
    }

    /// Lets the next call return an error, unless there is an earlier one.
    #[cold]
    pub(super) fn fail(&self, e: Error) {
        self.failed.borrow_mut().get_or_insert(e);
    }

    #[cold]
    pub(super) fn malformed(&self, sender: u32, cause: &str) {
        let e = Error::new(ErrorKind::Protocol, AGGREGATE).rank(self.job().rank()).peer(sender);
        self.fail(e.cause(cause.to_owned()));
    }

    pub(super) fn header(&self, kind: Kind, words: [u64; 2]) -> Header {
        Header { kind, level: 0, phase: 0, sender: self.grid.me() as u32, words }
    }

    pub(super) fn send(&self, to: usize, header: Header) -> Result<()> {
        wire::send(&self.team, self.team.members()[to], self.handlers[to], header)
    }

    /// Pushes an item, which `write` appends; `false` if there is no room.
    #[inline]
    pub(super) fn push(&self, dest: usize, write: impl FnOnce(&mut Vec<u8>)) -> Result<bool> {
        self.push_from(dest, self.grid.me() as u32, write)
    }

    #[inline]
    fn push_from(&self, dest: usize, source: u32, write: impl FnOnce(&mut Vec<u8>)) -> Result<bool> {
        let mut blocks = self.blocks.borrow_mut();
        let hop = self.grid.next(dest, 0);
        let Some(buffer) = self.room(&mut blocks, hop)? else { return Ok(false) };
        if self.lengths.item > 0 {
            buffer.extend_from_slice(&(dest as u32).to_le_bytes());
            buffer.extend_from_slice(&source.to_le_bytes());
        }
        write(buffer);
        blocks.pushed += 1;
        if source & FLUSH != 0
            && let Some(hop) = hop
        {
            blocks.channels[hop.channel].flushes = true;
            blocks.make_due(hop.channel);
        }
        Ok(true)
    }

    /// Pushes an item, waiting for room. Each block that leaves is followed by progress, so that the blocks of others are
    /// consumed meanwhile.
    #[inline]
    pub(super) fn push_waiting(&self, dest: usize, write: impl Fn(&mut Vec<u8>)) -> Result<()> {
        if !self.push(dest, &write)? {
            return self.wait_for_room(dest, &write);
        }
        if self.has_departed.take() { self.job().progress().map(drop) } else { Ok(()) }
    }

    #[inline(never)]
    fn wait_for_room(&self, dest: usize, write: &dyn Fn(&mut Vec<u8>)) -> Result<()> {
        self.job().wait(
            || self.awaited(self.grid.next(dest, 0).map(|hop| hop.to)),
            || {
                self.check()?;
                self.turn()?;
                Ok(self.push(dest, write)?.then_some(()))
            },
        )
    }

    /// The buffer for a record with this hop, if it has room. A full block leaves, if it may.
    #[inline]
    fn room<'b>(&self, blocks: &'b mut Blocks, hop: Option<Hop>) -> Result<Option<&'b mut Vec<u8>>> {
        let full = self.lengths.block;
        let Some(hop) = hop else {
            if blocks.own.len() == full {
                if blocks.own_is_ready {
                    return Ok(None);
                }
                blocks.offer_own();
            }
            return Ok(Some(&mut blocks.own));
        };
        if blocks.channels[hop.channel].filling.len() == full && !self.depart(blocks, hop.channel)? {
            return Ok(None);
        }
        let channel = &mut blocks.channels[hop.channel];
        let is_first = channel.filling.is_empty();
        if is_first {
            channel.to = hop.to;
            channel.filling.reserve_exact(full);
            blocks.filled += 1;
        }
        if channel.filling.len() + self.lengths.record == full || is_first && blocks.leaving {
            blocks.make_due(hop.channel);
        }
        Ok(Some(&mut blocks.channels[hop.channel].filling))
    }

    /// Sends the block of a channel, if its target has consumed enough of the earlier ones; returns whether it did.
    #[inline(never)]
    fn depart(&self, blocks: &mut Blocks, number: usize) -> Result<bool> {
        while let Some(first) = blocks.channels[number].in_flight.front_mut()
            && let Some(bytes) = first.sent()?
        {
            blocks.channels[number].in_flight.pop_front();
            blocks.keep(bytes);
        }
        let channel = &mut blocks.channels[number];
        if channel.unconsumed >= WINDOW || channel.in_flight.len() >= WINDOW as usize {
            return Ok(false);
        }
        let header = self.header(Kind::Block, [channel.left, 0]);
        let header = Header { level: self.grid.level(number) as u8, phase: blocks.phase, ..header };
        let (to, bytes) = (self.team.members()[channel.to], std::mem::take(&mut channel.filling));
        match wire::send_block(&self.team, to, self.handlers[channel.to], header, bytes)? {
            Ok(bytes) => channel.filling = bytes,
            Err(in_flight) => {
                channel.in_flight.push_back(in_flight);
                channel.filling = blocks.spare.pop().unwrap_or_default();
            }
        }
        channel.filling.clear();
        channel.flushes = false;
        channel.left += 1;
        channel.unconsumed += 1;
        blocks.filled -= 1;
        blocks.unconsumed += 1;
        self.has_departed.set(true);
        Ok(true)
    }

    /// Passes blocks on, sends those that may leave, and consumes items, as far as there is room.
    pub(super) fn turn(&self) -> Result<()> {
        if self.has_ended.get() || self.turning.replace(true) {
            return Ok(());
        }
        let _turning = Turning(&self.turning);
        loop {
            let mut blocks = self.blocks.borrow_mut();
            self.pass_on(&mut blocks)?;
            self.depart_all(&mut blocks)?;
            let Some(apply) = &self.apply else { break };
            if blocks.front().is_none() {
                break;
            }
            let Some(block) = blocks.ready.pop_front() else { break };
            drop(blocks);
            let flushes = self.consume(apply, &block)?;
            self.blocks.borrow_mut().consumed += (block.bytes.len() / self.lengths.record) as u64;
            self.retire(&mut self.blocks.borrow_mut(), block)?;
            for (source, number) in flushes {
                self.send(source as usize, self.header(Kind::Flushed, [number, 0]))?;
            }
        }
        self.report()
    }

    /// Applies the items of a block, and returns the flushes among them: their sources and numbers.
    fn consume(&self, apply: &Apply, block: &Block) -> Result<Vec<(u32, u64)>> {
        let (records, sender) = (&block.bytes[..], block.sender().unwrap_or(self.grid.me() as u32));
        let (mut flushes, mut from) = (Vec::new(), 0);
        let Lengths { record, item, .. } = self.lengths;
        if item > 0 {
            for (at, bytes) in records.chunks_exact(record).enumerate().map(|(i, bytes)| (i * record, bytes)) {
                let source = word(bytes, 4);
                if source & FLUSH != 0 {
                    apply(sender, &records[from..at], self.lengths)?;
                    from = at + record;
                    let source = source & !FLUSH;
                    if (source as usize) < self.grid.ranks() && source as usize != self.grid.me() {
                        flushes.push((source, u64::from(word(bytes, item))));
                    }
                }
            }
        }
        apply(sender, &records[from..], self.lengths)?;
        Ok(flushes)
    }

    /// Moves the items of arrived blocks towards their destinations.
    fn pass_on(&self, blocks: &mut Blocks) -> Result<()> {
        let mut stuck: Vec<(u32, u8)> = Vec::new();
        for mut block in std::mem::take(&mut blocks.arrived) {
            let from = block.from.unwrap_or_default();
            if block.phase != blocks.phase || stuck.contains(&from) {
                blocks.arrived.push_back(block);
            } else if usize::from(from.1) + 1 == self.grid.hops() {
                blocks.ready.push_back(block);
            } else if self.pass_on_items(blocks, &mut block)? {
                self.retire(blocks, block)?;
            } else {
                stuck.push(from);
                blocks.arrived.push_back(block);
            }
        }
        Ok(())
    }

    /// Moves the items of a block; `false` if one of them has no room.
    fn pass_on_items(&self, blocks: &mut Blocks, block: &mut Block) -> Result<bool> {
        let (sender, level) = block.from.unwrap_or_default();
        while let Some(record) = block.bytes.get(block.at..block.at + self.lengths.record) {
            let dest = word(record, 0) as usize;
            if dest >= self.grid.ranks() {
                self.malformed(self.team.members()[sender as usize], "an item is for a rank that does not exist");
            } else {
                let hop = self.grid.next(dest, usize::from(level) + 1);
                let Some(buffer) = self.room(blocks, hop)? else { return Ok(false) };
                buffer.extend_from_slice(record);
                if word(record, 4) & FLUSH != 0
                    && let Some(hop) = hop
                {
                    blocks.channels[hop.channel].flushes = true;
                    blocks.make_due(hop.channel);
                }
            }
            block.at += self.lengths.record;
        }
        Ok(true)
    }

    /// Sends the blocks that are full or contain a flush, and while this rank has nothing else to do also others, unless
    /// an earlier one to the same rank has not been consumed.
    fn depart_all(&self, blocks: &mut Blocks) -> Result<()> {
        let due = blocks.due.len();
        for i in 0..due {
            let number = blocks.due[i];
            let channel = &mut blocks.channels[number];
            channel.is_due = false;
            let is_full = channel.filling.len() == self.lengths.block;
            let may_leave = is_full || channel.flushes || blocks.leaving && channel.unconsumed == 0;
            // A block that waits for its target is due again when that has consumed one.
            if may_leave
                && !channel.filling.is_empty()
                && !self.depart(blocks, number)?
                && blocks.channels[number].unconsumed < WINDOW
            {
                blocks.make_due(number);
            }
        }
        blocks.due.drain(..due);
        Ok(())
    }

    /// Tells the sender of a block that it has been consumed.
    pub(super) fn retire(&self, blocks: &mut Blocks, block: Block) -> Result<()> {
        blocks.keep(block.bytes);
        let Some((sender, level)) = block.from else {
            blocks.own_is_ready = false;
            return Ok(());
        };
        if let Some(incoming) = blocks.incoming.get_mut(&(sender, level)) {
            incoming.open = incoming.open.saturating_sub(1);
        }
        self.send(sender as usize, Header { level, ..self.header(Kind::Consumed, [0; 2]) })
    }

    /// Sends what is on the way to `rank`, and waits until its owner has applied it.
    pub(super) fn flush(&self, rank: usize) -> Result<()> {
        let number = (self.flushes.get() + 1) & u64::from(u32::MAX);
        let hop = self.grid.next(rank, 0);
        let (direct, mut is_sent) = (self.lengths.item == 0, false);
        self.flushes.set(number);
        self.job().wait(
            || self.awaited(Some(rank)),
            || {
                self.check()?;
                if let Some(hop) = hop
                    && direct
                {
                    let mut blocks = self.blocks.borrow_mut();
                    let channel = &mut blocks.channels[hop.channel];
                    channel.flushes = !channel.filling.is_empty();
                    blocks.make_due(hop.channel);
                }
                if hop.is_some() && !direct && !is_sent {
                    let bytes = (number as u32).to_le_bytes();
                    let write = |buffer: &mut Vec<u8>| {
                        buffer.extend_from_slice(&bytes);
                        buffer.resize(buffer.len() + self.lengths.record - self.lengths.item - bytes.len(), 0);
                    };
                    is_sent = self.push_from(rank, self.grid.me() as u32 | FLUSH, write)?;
                }
                self.turn()?;
                let is_done = match hop {
                    None => true,
                    Some(hop) if direct => {
                        let channel = &self.blocks.borrow().channels[hop.channel];
                        channel.filling.is_empty() && channel.unconsumed == 0
                    }
                    Some(_) => self.flushed.get() == number,
                };
                Ok(is_done.then_some(()))
            },
        )
    }
}
