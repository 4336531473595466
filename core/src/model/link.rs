#![allow(unsafe_code)]
//! The ends of a measurement: a leader, which sends and measures the times, and its peers, which execute its commands.
//!
//! | message | from | to |
//! |---|---|---|
//! | here: an empty two-sided message | each rank, once it accepts commands | the leader |
//! | begin: number of the peer, length of its memory, key of the leader's region | the leader | each peer |
//! | ready: key of the peer's region; empty if it has none | each peer | the leader |
//! | echo: answer every nth message with one of this length | the leader | a peer, which acknowledges it, with its load |
//! | send: send n messages of this length | the leader | a peer |
//! | data | both | both |
//! | end: the result | the leader | all ranks |

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Posting, Primitive};
use crate::am::{self, Counters, Delivery, HandlerId, Message, OnComplete, Sink, Source};
use crate::device::{Block, Operation, Place, Range, Region, Registration, RemoteRegion};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{Job, Track};
use crate::load::{Load, Measuring};
use crate::matching::Pattern;
use crate::progress::Pace;
use crate::two_sided::{Mode, Receive};

pub(super) const OP: &str = "measure the network";
const HANDLER: HandlerId = HandlerId(u16::MAX - 6);
/// Context of the messages with which ranks report that they accept commands.
const CONTEXT: u32 = u32::MAX;
/// Maximum number of peers. Each has a cell in the leader's region; a peer's region has one for the leader.
pub(super) const MAX_PEERS: usize = 64;
/// Stride of the cells, and gap between the blocks of a list, in bytes.
const LINE: usize = 64;
/// Offset of the data in a region.
const DATA: usize = (MAX_PEERS + 1).next_multiple_of(2) * LINE;

/// Number of bytes of memory for the data of a peer that receives only short messages.
const ROOM: usize = 64 << 10;

/// A way to send bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) primitive: Primitive,
    pub(super) posting: Posting,
}

impl Way {
    pub(super) const MESSAGES: Self = Self { primitive: Primitive::Messages, posting: Posting::Normal };
    pub(super) const WRITES: Self = Self { primitive: Primitive::Writes, posting: Posting::Normal };
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Data,
    Begin,
    Ready,
    Echo,
    Acknowledge,
    Send,
    End,
}

impl Kind {
    const ALL: [Self; 7] = [Self::Data, Self::Begin, Self::Ready, Self::Echo, Self::Acknowledge, Self::Send, Self::End];
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    kind: Kind,
    way: Way,
    /// Number of blocks of a list.
    blocks: u16,
    /// Depending on the kind: messages until an answer, messages to send, number of the peer, or its load.
    count: u32,
    /// Length of messages, or of memory.
    len: usize,
}

impl Header {
    fn new(kind: Kind) -> Self {
        Self { kind, way: Way::MESSAGES, blocks: 1, count: 0, len: 0 }
    }

    fn write(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let way = Posting::ALL.iter().position(|p| *p == self.way.posting).unwrap_or(0) as u8 * 2;
        bytes[0] = self.kind as u8;
        bytes[1] = way + u8::from(self.way.primitive == Primitive::Writes);
        bytes[2..4].copy_from_slice(&self.blocks.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.count.to_le_bytes());
        bytes[8..].copy_from_slice(&(self.len as u64).to_le_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let [kind, way, b0, b1, count @ .., _, _, _, _, _, _, _, _] = *<&[u8; 16]>::try_from(bytes).ok()?;
        let len = bytes.last_chunk()?;
        Some(Self {
            kind: *Kind::ALL.get(usize::from(kind))?,
            way: Way {
                primitive: Primitive::ALL[usize::from(way % 2)],
                posting: *Posting::ALL.get(usize::from(way / 2))?,
            },
            blocks: u16::from_le_bytes([b0, b1]),
            count: u32::from_le_bytes(count),
            len: usize::try_from(u64::from_le_bytes(*len)).ok()?,
        })
    }
}

/// Memory for messages, and the state of arrivals. The handler owns it too, so it outlives all messages.
#[derive(Default)]
struct Inbox {
    /// Memory for messages that are sent, and for those that are received.
    memory: OnceCell<[*mut [u8]; 2]>,
    /// Number of data messages that have arrived.
    arrived: Cell<u64>,
    orders: RefCell<VecDeque<(Header, Vec<u8>)>>,
}

impl Inbox {
    /// Makes the memory, before any data.
    fn make_room(&self, room: usize) {
        // Pages that have not been written would all be the same zero page.
        self.memory.get_or_init(|| [(); 2].map(|()| Box::into_raw(vec![1; room].into_boxed_slice())));
    }

    fn memory(&self) -> [Block; 2] {
        let memory = self.memory.get().map(|memory| memory.map(|m| Block { base: m.cast(), len: m.len() }));
        memory.unwrap_or([Block { base: std::ptr::null_mut(), len: 0 }; 2])
    }

    fn take(self: &Rc<Self>, m: Message<'_>) -> Delivery {
        let Some(header) = Header::read(m.header) else {
            tracing::warn!("a malformed message of a measurement from rank {} was dropped", m.source);
            return Delivery::Done;
        };
        let inbox = Rc::clone(self);
        if header.kind != Kind::Data {
            let order = move |received: Result<am::Received>| {
                inbox.orders.borrow_mut().push_back((header, received.map(|r| r.buffer).unwrap_or_default()));
            };
            return Delivery::Into(Sink::buffer(Vec::new()), OnComplete::inline(order));
        }
        let [_, Block { base, len: room }] = self.memory();
        let at = base.wrapping_add(slot(self.arrived.get(), m.len, room));
        // SAFETY: the memory belongs to the inbox, which the completion owns; the memory is only written.
        let sink = unsafe { Sink::memory(at, m.len.min(room)) };
        Delivery::Into(sink, OnComplete::inline(move |_| inbox.arrived.set(inbox.arrived.get() + 1)))
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        for memory in self.memory.take().into_iter().flatten() {
            // SAFETY: made by `Box::into_raw`, and no message from it or to it is left.
            drop(unsafe { Box::from_raw(memory) });
        }
    }
}

/// The offset of a message in memory; consecutive messages have different offsets.
fn slot(number: u64, len: usize, room: usize) -> usize {
    let len = len.max(1).next_multiple_of(LINE);
    (number % (room / len).max(1) as u64) as usize * len
}

/// Another rank, and the access of this rank to its memory.
struct Peer {
    rank: u32,
    region: Option<RemoteRegion>,
    /// Number of this rank's cell in the peer's region.
    cell: usize,
    /// Number of bytes for data in the peer's region.
    room: usize,
    /// Number of writes to the peer.
    written: Cell<u64>,
}

/// One end of a measurement.
pub(super) struct End<'a> {
    job: &'a Job,
    inbox: Rc<Inbox>,
    /// Counts the operations that this end has posted.
    track: Rc<Track>,
    region: Option<Registration>,
    peers: Vec<Peer>,
    /// The last command of the leader, to the first peers.
    ordered: Cell<Option<(Header, usize)>>,
    measuring: Measuring,
    /// The heaviest load that a peer has reported.
    load: Cell<Load>,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        if self.track.open() > 0 {
            self.job.cancel(&self.track);
        }
        self.job.active_messages().forget(HANDLER);
        for region in self.peers.iter().filter_map(|peer| peer.region) {
            // SAFETY: not used after this call.
            unsafe { self.job.device().forget(region.handle) };
        }
        if let Some(own) = &self.region {
            // SAFETY: this end no longer uses it.
            let released = unsafe { self.job.device().release(own.handle) };
            let _ = released.inspect_err(|e| tracing::warn!("a measurement's region was not released: {e}"));
        }
    }
}

impl<'a> End<'a> {
    fn new(job: &'a Job) -> Result<Self> {
        let inbox = Rc::<Inbox>::default();
        let handler = Rc::clone(&inbox);
        job.active_messages().register_any(HANDLER, move |m| handler.take(m))?;
        let (track, ordered) = (Track::new(), Cell::new(None));
        let (measuring, load) = (Measuring::begin(job.device().now()), Cell::default());
        Ok(Self { job, inbox, track, region: None, peers: Vec::new(), ordered, measuring, load })
    }

    /// Exposes memory for writes, with `len` bytes for data; returns its key, or an empty key if memory cannot be
    /// exposed.
    fn expose(&mut self, len: usize) -> Vec<u8> {
        let region = self.job.device().allocate(Region { align: LINE, ..Region::allocated(DATA + len) });
        match region {
            Ok(own) => self.region.insert(own).key.clone(),
            Err(e) => {
                tracing::info!("the latency of writes is not measured: {e}");
                Vec::new()
            }
        }
    }

    fn import(&self, rank: u32, key: &[u8]) -> Option<RemoteRegion> {
        let imported = (!key.is_empty()).then(|| self.job.device().import(rank, key, None))?;
        imported.inspect_err(|e| tracing::info!("the latency of writes is not measured: {e}")).ok()
    }

    /// Sends a command or an answer, and returns when its data is reusable.
    fn order(&self, rank: u32, header: Header, data: &[u8]) -> Result<()> {
        // SAFETY: the handler is this module's.
        unsafe { am::send_any(self.job, rank, HANDLER, &header.write(), data, Counters::default()) }
    }

    fn next_order(&self) -> Option<(Header, Vec<u8>)> {
        self.inbox.orders.borrow_mut().pop_front()
    }

    /// Waits for an answer of this kind.
    fn answer(&self, kind: Kind) -> Result<Vec<u8>> {
        let (header, data) = self.job.wait(OP, || Ok(self.next_order()))?;
        if header.kind == kind {
            if kind == Kind::Acknowledge {
                self.load.set(self.load.get().max(Load::of(header.count)));
            }
            return Ok(data);
        }
        Err(Error::new(ErrorKind::Protocol, OP)
            .rank(self.job.rank())
            .cause(format!("a message of kind {:?} arrived, but {kind:?} was expected", header.kind)))
    }

    fn own_load(&self) -> Load {
        self.measuring.load(self.job.device().now())
    }

    /// The heaviest load so far of this rank or one of its peers.
    pub(super) fn load(&self) -> Load {
        self.own_load().max(self.load.get())
    }

    /// A cell of this rank's region.
    fn cell(&self, cell: usize) -> u64 {
        let Some(own) = &self.region else { return 0 };
        // SAFETY: inside the region, aligned, and accessed only as an atomic.
        unsafe { AtomicU64::from_ptr(own.base.add(cell * LINE).cast()) }.load(Ordering::Acquire)
    }

    /// Number of messages that have arrived, or of writes by the first peers.
    fn arrivals(&self, way: Way, peers: usize) -> u64 {
        match way.primitive {
            Primitive::Messages => self.inbox.arrived.get(),
            // The leader's peers have the cells from 1 on; the leader has cell 0 at its peers.
            Primitive::Writes if self.peers[0].cell == 0 => (1..=peers).map(|cell| self.cell(cell)).sum(),
            Primitive::Writes => self.cell(0),
        }
    }

    /// Starts to send to a peer; a write gathers `blocks` blocks. Returns once it is posted.
    fn post(&self, peer: usize, way: Way, blocks: usize, len: usize) -> Result<()> {
        let peer = &self.peers[peer];
        let source = Block { len, ..self.inbox.memory()[0] };
        let track = &self.track;
        if way.primitive == Primitive::Messages {
            let (header, source) = (Header::new(Kind::Data).write(), Source::Bytes(source));
            // SAFETY: the inbox keeps the memory, and this end waits for all messages, or cancels them.
            unsafe {
                if am::is_read_if_mapped(self.job, peer.rank, &source) {
                    am::start_rendezvous(self.job, peer.rank, HANDLER, &header, source, track)?;
                } else {
                    am::start_send(self.job, peer.rank, HANDLER, &header, source, Counters::default(), track)?;
                }
            }
            return Ok(());
        }
        let Some(region) = peer.region else {
            return Err(Error::new(ErrorKind::BadArgument, OP)
                .peer(peer.rank)
                .cause("the peer has registered no memory for writes"));
        };
        let number = peer.written.get() + 1;
        peer.written.set(number);
        let cell = Place { region: region.handle, offset: peer.cell * LINE };
        let offset = DATA + slot(number, blocks * (len + LINE), peer.room);
        // SAFETY: as above; a signal has no memory of this rank.
        unsafe {
            match way.posting {
                Posting::Inline => {
                    self.job.post(peer.rank, Operation::Signal { at: cell, value: number }, None, &[])?;
                }
                Posting::Normal => {
                    let to = Place { region: region.handle, offset };
                    let (one, several) = ([source], if blocks > 1 { vec![source; blocks] } else { Vec::new() });
                    let write = Operation::write(if blocks > 1 { &several } else { &one }, to);
                    self.job.post(peer.rank, write, Some((cell, number)), &[track])?;
                }
                Posting::List => {
                    let range = |block| Range { offset: offset + block * (len + LINE), len };
                    let ranges: Vec<_> = (0..blocks).map(range).collect();
                    let sources = vec![source; blocks];
                    let write = Operation::write_list(&sources, region.handle, &ranges);
                    self.job.post(peer.rank, write, Some((cell, number)), &[track])?;
                }
            }
        }
        Ok(())
    }

    /// Waits until all operations that this end has posted are complete.
    pub(super) fn flush(&self) -> Result<()> {
        self.job.wait(OP, || Ok((self.track.open() == 0).then_some(())))?;
        self.track.check()
    }

    /// Waits until `goal` messages have arrived.
    fn wait_for(&self, way: Way, peers: usize, goal: u64) -> Result<()> {
        let mapped = self.job.device().capabilities().mapped;
        self.job.wait_signal(OP, Pace::ANSWER, mapped, || self.arrivals(way, peers) >= goal)
    }

    /// This rank's end if it is the leader. The first of `peers` receives messages of up to `room` bytes together, the
    /// others of up to [`ROOM`]; `others` receive no messages.
    pub(super) fn lead(job: &'a Job, peers: &[u32], others: &[u32], room: usize) -> Result<Self> {
        let mut end = Self::new(job)?;
        end.inbox.make_room(room);
        for rank in peers.iter().chain(others) {
            let receive = Receive::new();
            // SAFETY: the message has no data.
            unsafe { job.start_receive(&receive, Pattern::new(CONTEXT, Some(*rank), None), Sink::discard()) }?;
            job.wait(OP, || receive.outcome())?;
        }
        let key = end.expose(room);
        let rooms: Vec<usize> = (0..peers.len()).map(|n| if n == 0 { room } else { ROOM }).collect();
        for ((number, rank), len) in (1..).zip(peers).zip(&rooms) {
            end.order(*rank, Header { count: number, len: *len, ..Header::new(Kind::Begin) }, &key)?;
        }
        let mut all = end.region.is_some();
        for (rank, room) in peers.iter().zip(rooms) {
            // Peers may answer in any order, so the answer contains the number of the peer.
            end.peers.push(Peer { rank: *rank, region: None, cell: 0, room, written: Cell::new(0) });
        }
        for _ in peers {
            let key = end.answer(Kind::Ready)?;
            let (number, key) = key
                .split_first_chunk()
                .map_or((usize::MAX, &[][..]), |(n, key)| (u32::from_le_bytes(*n) as usize, key));
            let Some(rank) = number.checked_sub(1).and_then(|at| peers.get(at)) else {
                return Err(Error::new(ErrorKind::Protocol, OP)
                    .rank(job.rank())
                    .cause("received an answer from a rank that is not measured"));
            };
            let region = end.import(*rank, key);
            all &= region.is_some();
            end.peers[number - 1].region = region;
        }
        if let Some(own) = &end.region {
            job.device().sealed(own.handle);
        }
        if !all {
            end.peers.iter_mut().filter_map(|peer| peer.region.take()).for_each(|region| {
                // SAFETY: not used after this call.
                unsafe { job.device().forget(region.handle) };
            });
        }
        Ok(end)
    }

    /// Whether all peers can write to each other's memory, and by lists.
    pub(super) fn writes(&self) -> [bool; 2] {
        let region = self.peers[0].region;
        [region.is_some(), region.is_some_and(|region| region.lists.is_some())]
    }

    /// Number of peers.
    pub(super) fn size(&self) -> usize {
        self.peers.len()
    }

    /// Commands the first `peers` peers to answer after every `header.count` messages.
    fn order_echo(&self, peers: usize, header: Header) -> Result<()> {
        if self.ordered.replace(Some((header, peers))) == Some((header, peers)) {
            return Ok(());
        }
        for peer in &self.peers[..peers] {
            self.order(peer.rank, header, &[])?;
        }
        self.peers[..peers].iter().try_for_each(|_| self.answer(Kind::Acknowledge).map(drop))
    }

    /// A ping-pong of `count` messages with the first `peers` in turn; a list is one message of `count` blocks. Returns
    /// the nanoseconds for posting, and until the last answer has arrived.
    pub(super) fn ping(&self, way: Way, count: usize, peers: usize, len: usize) -> Result<[f64; 2]> {
        let (count, blocks) = if way.posting == Posting::List { (1, count) } else { (count, 1) };
        let peers = peers.min(count);
        self.order_echo(peers, Header { way, blocks: blocks as u16, count: 1, len, ..Header::new(Kind::Echo) })?;
        let goal = self.arrivals(way, peers) + count as u64;
        let begin = self.job.device().now();
        for n in 0..count {
            self.post(n % peers, way, blocks, len)?;
        }
        let posted = self.job.device().now();
        self.wait_for(way, peers, goal)?;
        let end = self.job.device().now();
        self.flush()?;
        Ok([posted, end].map(|time| time.duration_since(begin).as_nanos() as f64))
    }

    /// A stream of `count` messages, or of writes that gather `blocks` blocks each, to the first peer, which answers the
    /// last one. Returns the nanoseconds until the answer.
    pub(super) fn stream(&self, way: Way, count: usize, blocks: usize, len: usize) -> Result<f64> {
        self.order_echo(1, Header { way, count: count as u32, len: 0, ..Header::new(Kind::Echo) })?;
        let goal = self.arrivals(way, 1) + 1;
        let begin = self.job.device().now();
        for _ in 0..count {
            self.post(0, way, blocks, len)?;
        }
        self.wait_for(way, 1, goal)?;
        let time = self.job.device().now().duration_since(begin);
        self.flush()?;
        Ok(time.as_nanos() as f64)
    }

    /// Receives `count` messages that have arrived while this rank computed for `delay`. Returns the nanoseconds for which
    /// they keep it busy.
    pub(super) fn receive(&self, count: usize, len: usize, delay: Duration) -> Result<f64> {
        let goal = self.inbox.arrived.get() + count as u64;
        self.order(self.peers[0].rank, Header { count: count as u32, len, ..Header::new(Kind::Send) }, &[])?;
        self.job.device().compute(delay);
        let begin = self.job.device().now();
        self.wait_for(Way::MESSAGES, 1, goal)?;
        Ok(self.job.device().now().duration_since(begin).as_nanos() as f64)
    }

    /// Ends the measurement at all other ranks, with its result.
    pub(super) fn end(&self, others: &[u32], result: &[u8]) -> Result<()> {
        let peers = self.peers.iter().map(|peer| peer.rank);
        peers.chain(others.iter().copied()).try_for_each(|rank| self.order(rank, Header::new(Kind::End), result))
    }

    /// Executes the leader's commands; returns the result.
    pub(super) fn follow(job: &'a Job, leader: u32) -> Result<Vec<u8>> {
        enum Next {
            Order(Header, Vec<u8>),
            Answer(Header),
        }
        let mut end = Self::new(job)?;
        // SAFETY: the message has no data.
        let here = unsafe { job.start_message(leader, CONTEXT, 0, Source::of(&[]), Mode::Standard) }?;
        job.wait(OP, || here.outcome())?;
        let (mut echo, mut answered) = (None::<Header>, 0);
        loop {
            let next = || {
                let due = echo.filter(|echo| end.arrivals(echo.way, 1) >= answered + u64::from(echo.count));
                Ok(end.next_order().map(|(header, data)| Next::Order(header, data)).or(due.map(Next::Answer)))
            };
            let (header, data) = match job.wait(OP, next)? {
                Next::Order(header, data) => (header, data),
                Next::Answer(echo) => {
                    end.post(0, echo.way, usize::from(echo.blocks), echo.len)?;
                    answered += u64::from(echo.count);
                    continue;
                }
            };
            match header.kind {
                Kind::Begin => {
                    end.inbox.make_room(header.len);
                    let own = end.expose(header.len);
                    let region = end.import(leader, &data);
                    let key = if region.is_some() { &own[..] } else { &[] };
                    let ready = [&header.count.to_le_bytes()[..], key].concat();
                    let peer = Peer {
                        rank: leader,
                        region,
                        cell: header.count as usize,
                        room: header.len,
                        written: Cell::new(0),
                    };
                    end.peers = vec![peer];
                    end.order(leader, Header::new(Kind::Ready), &ready)?;
                }
                Kind::Echo => {
                    end.flush()?;
                    if let Some(own) = &end.region {
                        job.device().sealed(own.handle);
                    }
                    (echo, answered) = (Some(header), end.arrivals(header.way, 1));
                    let count = end.own_load().thousandths();
                    end.order(leader, Header { count, ..Header::new(Kind::Acknowledge) }, &[])?;
                }
                Kind::Send => {
                    for _ in 0..header.count {
                        end.post(0, Way::MESSAGES, 1, header.len)?;
                    }
                    end.flush()?;
                }
                Kind::End => {
                    end.flush()?;
                    return Ok(data);
                }
                Kind::Data | Kind::Ready | Kind::Acknowledge => {}
            }
        }
    }
}
