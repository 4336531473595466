//! Active messages: a header handler at the target says where the data goes, a completion handler runs when it
//! is there (LAPI; Banikazemi et al., "MPI-LAPI").
//!
//! Header handlers, and the `Quick` completions, run in the dispatcher's own context, one at a time: they must
//! not wait and cannot send, for they are not given the job. `Later` completions run after the dispatcher has
//! returned, get the job, and may send and wait.
//!
//! A message whose header and data fit into one packet costs one packet; a longer one ⌈bytes / packet⌉.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::device::{Block, Operation, SHORT_WORDS, ShortPacket};
use crate::error::{Error, ErrorKind, Result};
use crate::job::Job;

/// Longest user header in bytes.
pub const MAX_HEADER: usize = 128;
const PREFIX: usize = 24;
/// Words of a short packet for the user header and the data.
const REST: usize = SHORT_WORDS - PREFIX / 8;
const FIRST: u8 = 1;
const MORE: u8 = 2;
const ACKNOWLEDGE: u8 = 3;
/// Longest message, as a bound on what a peer can make this rank allocate.
const MAX_MESSAGE: u64 = 1 << 40;

/// A counter of the three that LAPI gives a message. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Counter(Rc<Cell<u64>>);

impl Counter {
    /// A counter at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Its value.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.get()
    }

    fn increment(&self) {
        self.0.set(self.0.get() + 1);
    }
}

/// The counters that a message moves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters<'a> {
    /// Here, once the data has left the buffer (before `send` returns).
    pub origin: Option<&'a Counter>,
    /// At the target, once the message is complete there: the number given by [`ActiveMessages::expose`].
    pub target: Option<u32>,
    /// Here, once the target has completed the message. Costs one packet back.
    pub completion: Option<&'a Counter>,
}

/// Names a handler; the same on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HandlerId(pub u16);

/// What a header handler sees.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The sending rank of the job.
    pub source: u32,
    /// The user header.
    pub header: &'a [u8],
    /// Length of the data in bytes.
    pub len: usize,
    /// The data, if all of it came with the header.
    pub data: Option<&'a [u8]>,
}

/// A completion that may send and wait.
pub type LaterFn = Box<dyn FnOnce(&Job, Vec<u8>) -> Result<()>>;

/// What runs when the data is complete.
pub enum Then {
    /// In the dispatcher: short, without waiting or sending.
    Quick(Box<dyn FnOnce(Vec<u8>)>),
    /// After the dispatcher, with the job: may send and wait.
    Later(LaterFn),
}

impl fmt::Debug for Then {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Then::Quick(_) => "Quick",
            Then::Later(_) => "Later",
        })
    }
}

/// What a header handler decides.
#[derive(Debug)]
pub enum Delivery {
    /// The message is complete: the handler has taken what it needs from `data`. Data that had not all come
    /// is discarded.
    Done,
    /// The data goes into this buffer (resized to the message), which the completion gets.
    Into(Vec<u8>, Then),
}

type Handler = Rc<dyn Fn(Message<'_>) -> Delivery>;

/// Handlers by number, a page for each upper byte that is in use: those of the runtime have the highest numbers.
#[derive(Default)]
struct Handlers(Vec<Option<Box<Page>>>);

type Page = [Option<Handler>; 256];

impl Handlers {
    #[inline(always)]
    fn get(&self, id: u16) -> Option<Handler> {
        let [low, high] = id.to_le_bytes();
        self.0.get(usize::from(high))?.as_ref()?[usize::from(low)].clone()
    }

    /// The place of a number.
    fn place(&mut self, id: u16) -> &mut Option<Handler> {
        let [low, high] = id.to_le_bytes().map(usize::from);
        if self.0.len() <= high {
            self.0.resize_with(high + 1, || None);
        }
        &mut self.0[high].get_or_insert_with(|| Box::new([const { None }; 256]))[low]
    }
}

struct Incoming {
    buffer: Vec<u8>,
    filled: usize,
    total: usize,
    then: Option<Then>,
    target: u32,
    completion: u32,
}

#[derive(Default)]
struct State {
    handlers: Handlers,
    exposed: Vec<Counter>,
    /// By message: who is to acknowledge it.
    awaited: FxHashMap<u32, (u32, Counter)>,
    incoming: FxHashMap<(u32, u32), Incoming>,
    last_message: u32,
}

/// An acknowledgement that is owed: to whom, for which message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owed(u32, u32);

/// What runs after the dispatcher.
type Deferred = Box<dyn FnOnce(&Job) -> Result<()>>;

/// The active messages of a job.
#[derive(Default)]
pub struct ActiveMessages {
    state: RefCell<State>,
    deferred: RefCell<VecDeque<Deferred>>,
    /// Apart from what is deferred, since they are sent while a completion waits too: it may wait for one.
    owed: RefCell<VecDeque<Owed>>,
}

impl fmt::Debug for ActiveMessages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActiveMessages").field("deferred", &self.deferred.borrow().len()).finish_non_exhaustive()
    }
}

struct Prefix {
    kind: u8,
    header_len: u8,
    handler: u16,
    message: u32,
    /// First packet: length of the data; later ones: offset in it.
    number: u64,
    target: u32,
    completion: u32,
}

impl Prefix {
    /// Of the first packet of a message with so long a header and data.
    #[inline(always)]
    fn of_first(handler: HandlerId, (header, data): (usize, usize), message: u32, counters: Counters<'_>) -> Self {
        Self {
            kind: FIRST,
            header_len: header as u8,
            handler: handler.0,
            message,
            number: data as u64,
            target: counters.target.unwrap_or(0),
            completion: if counters.completion.is_some() { message } else { 0 },
        }
    }

    #[inline(always)]
    fn words(&self) -> [u64; PREFIX / 8] {
        [
            u64::from(self.kind)
                | u64::from(self.header_len) << 8
                | u64::from(self.handler) << 16
                | u64::from(self.message) << 32,
            self.number,
            u64::from(self.target) | u64::from(self.completion) << 32,
        ]
    }

    fn write(&self) -> [u8; PREFIX] {
        let mut bytes = [0; PREFIX];
        for (at, word) in bytes.chunks_exact_mut(8).zip(self.words()) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    #[inline(always)]
    fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (b, rest) = bytes.split_first_chunk::<PREFIX>()?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| b[at + i]));
        let (first, number, last) = (word(0), word(8), word(16));
        let prefix = Self {
            kind: first as u8,
            header_len: (first >> 8) as u8,
            handler: (first >> 16) as u16,
            message: (first >> 32) as u32,
            number,
            target: last as u32,
            completion: (last >> 32) as u32,
        };
        Some((prefix, rest))
    }
}

impl ActiveMessages {
    /// Registers the header handler of `id`, on every rank that may receive such messages, before they come.
    ///
    /// # Errors
    /// `BadArgument` if the id is taken.
    pub fn register(&self, id: HandlerId, handler: impl Fn(Message<'_>) -> Delivery + 'static) -> Result<()> {
        let mut state = self.state.borrow_mut();
        let place = state.handlers.place(id.0);
        if place.is_some() {
            return Err(Error::new(ErrorKind::BadArgument, "register a handler").cause(format!("id {} is taken", id.0)));
        }
        *place = Some(Rc::new(handler));
        Ok(())
    }

    /// Forgets a handler.
    pub fn unregister(&self, id: HandlerId) {
        let forgotten = self.state.borrow_mut().handlers.place(id.0).take();
        // What the handler holds may come back here.
        drop(forgotten);
    }

    /// Makes a counter addressable by other ranks; ranks that expose in the same order get the same numbers.
    #[must_use]
    pub fn expose(&self, counter: &Counter) -> u32 {
        let mut state = self.state.borrow_mut();
        state.exposed.push(counter.clone());
        state.exposed.len() as u32
    }

    fn next_message(&self) -> u32 {
        let mut state = self.state.borrow_mut();
        state.last_message = state.last_message.wrapping_add(1).max(1);
        state.last_message
    }

    /// Takes a packet apart and runs its handler. The acknowledgement that it asks for, if any, is deferred.
    #[inline(always)]
    pub(crate) fn dispatch(&self, source: u32, bytes: &[u8]) -> Result<()> {
        if let Some((p, rest)) = Prefix::read(bytes)
            && p.kind == FIRST
            && let Some((header, data)) = rest.split_at_checked(usize::from(p.header_len))
            && data.len() as u64 == p.number
            && let Some(handler) = self.handler(&p)
        {
            let message = Message { source, header, len: data.len(), data: Some(data) };
            return match handler(message) {
                Delivery::Done => self.finished(source, p.target, p.completion),
                Delivery::Into(buffer, then) => self.into(source, &p, data, buffer, Some(then)),
            };
        }
        self.dispatch_other(source, bytes)
    }

    #[inline(always)]
    fn handler(&self, p: &Prefix) -> Option<Handler> {
        self.state.borrow().handlers.get(p.handler)
    }

    /// What is no whole message, and what makes no sense.
    #[inline(never)]
    fn dispatch_other(&self, source: u32, bytes: &[u8]) -> Result<()> {
        let garbage = |why: &str| {
            Err(Error::new(ErrorKind::Protocol, "receive an active message").peer(source).cause(why.to_owned()))
        };
        let Some((p, rest)) = Prefix::read(bytes) else { return garbage("shorter than its prefix") };
        match p.kind {
            FIRST => {
                let Some((header, data)) = rest.split_at_checked(usize::from(p.header_len)) else {
                    return garbage("header longer than the packet");
                };
                if p.number > MAX_MESSAGE || data.len() as u64 > p.number {
                    return garbage("data longer than announced");
                }
                let Some(handler) = self.handler(&p) else {
                    return Err(Error::new(ErrorKind::Protocol, "receive an active message")
                        .peer(source)
                        .cause(format!("no handler {}", p.handler))
                        .remedy("register the handler on every rank before the first message to it"));
                };
                match handler(Message { source, header, len: p.number as usize, data: None }) {
                    Delivery::Done => self.into(source, &p, data, Vec::new(), None),
                    Delivery::Into(buffer, then) => self.into(source, &p, data, buffer, Some(then)),
                }
            }
            MORE => self.more(source, &p, rest),
            ACKNOWLEDGE => {
                let mut state = self.state.borrow_mut();
                if state.awaited.get(&p.message).is_none_or(|(target, _)| *target != source) {
                    return garbage("acknowledgement of an unknown message");
                }
                if let Some((_, c)) = state.awaited.remove(&p.message) {
                    c.increment();
                }
                Ok(())
            }
            _ => garbage("unknown kind"),
        }
    }

    /// The first, or only, packet of a message that goes into `buffer`; without `then` it is discarded.
    fn into(&self, source: u32, p: &Prefix, data: &[u8], mut buffer: Vec<u8>, then: Option<Then>) -> Result<()> {
        let total = p.number as usize;
        if then.is_some() {
            buffer.clear();
            // The length is the peer's word: what cannot be had is an error, and no abort of the process.
            if buffer.try_reserve_exact(total).is_err() {
                return Err(Error::new(ErrorKind::Protocol, "receive an active message")
                    .peer(source)
                    .cause(format!("{total} bytes are announced, more than there is memory for")));
            }
            buffer.extend_from_slice(data);
        }
        let message = Incoming { buffer, filled: data.len(), total, then, target: p.target, completion: p.completion };
        if data.len() == total {
            self.finish(source, message)
        } else if self.state.borrow_mut().incoming.insert((source, p.message), message).is_some() {
            Err(Error::new(ErrorKind::Protocol, "receive an active message")
                .peer(source)
                .cause("message number used twice"))
        } else {
            Ok(())
        }
    }

    fn more(&self, source: u32, p: &Prefix, data: &[u8]) -> Result<()> {
        let mut state = self.state.borrow_mut();
        let fits = state
            .incoming
            .get(&(source, p.message))
            .is_some_and(|m| m.filled as u64 == p.number && !data.is_empty() && data.len() <= m.total - m.filled);
        let Some(m) = state.incoming.get_mut(&(source, p.message)).filter(|_| fits) else {
            return Err(Error::new(ErrorKind::Protocol, "receive an active message")
                .peer(source)
                .cause("a piece that fits nowhere"));
        };
        if m.then.is_some() {
            m.buffer.extend_from_slice(data);
        }
        m.filled += data.len();
        if m.filled < m.total {
            return Ok(());
        }
        let message = state.incoming.remove(&(source, p.message));
        drop(state);
        message.map_or(Ok(()), |m| self.finish(source, m))
    }

    fn finish(&self, source: u32, m: Incoming) -> Result<()> {
        match m.then {
            None => {}
            Some(Then::Quick(f)) => f(m.buffer),
            Some(Then::Later(f)) => {
                let owed = (m.completion != 0).then_some(Owed(source, m.completion));
                self.deferred.borrow_mut().push_back(Box::new(move |job| {
                    f(job, m.buffer)?;
                    job.active_messages().owed.borrow_mut().extend(owed);
                    Ok(())
                }));
                return self.finished(source, m.target, 0);
            }
        }
        self.finished(source, m.target, m.completion)
    }

    /// Moves the counters of a message that is complete.
    #[inline(always)]
    fn finished(&self, source: u32, target: u32, completion: u32) -> Result<()> {
        if target | completion == 0 { Ok(()) } else { self.count(source, target, completion) }
    }

    #[inline(never)]
    fn count(&self, source: u32, target: u32, completion: u32) -> Result<()> {
        if completion != 0 {
            self.owed.borrow_mut().push_back(Owed(source, completion));
        }
        if target == 0 {
            return Ok(());
        }
        match self.state.borrow().exposed.get(target as usize - 1) {
            Some(c) => c.increment(),
            None => {
                return Err(Error::new(ErrorKind::Protocol, "receive an active message")
                    .peer(source)
                    .cause(format!("no counter {target}")));
            }
        }
        Ok(())
    }

    /// Whether nothing is owed and nothing is to run.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.owed.borrow().is_empty() && self.deferred.borrow().is_empty()
    }

    /// Whether an acknowledgement is owed.
    #[inline]
    pub(crate) fn owes(&self) -> bool {
        !self.owed.borrow().is_empty()
    }

    /// The next acknowledgement to send.
    pub(crate) fn next_owed(&self) -> Option<Owed> {
        self.owed.borrow_mut().pop_front()
    }

    /// The next thing to run after the dispatcher.
    pub(crate) fn next_deferred(&self) -> Option<Deferred> {
        self.deferred.borrow_mut().pop_front()
    }
}

/// Sends an acknowledgement.
pub(crate) fn acknowledge(job: &Job, Owed(to, message): Owed) -> Result<()> {
    let p = Prefix { kind: ACKNOWLEDGE, header_len: 0, handler: 0, message, number: 0, target: 0, completion: 0 };
    job.send(to, Operation::Send { header: &p.write(), body: &[] })
}

/// Sends an active message. When it returns the buffer is free; the message arrives in the order of sending
/// with respect to other messages to the same target.
///
/// # Errors
/// `BadArgument` for a header above [`MAX_HEADER`] bytes, `NoSuchRank`, `PeerLost`.
pub fn send(
    job: &Job,
    target: u32,
    handler: HandlerId,
    header: &[u8],
    data: &[u8],
    counters: Counters<'_>,
) -> Result<()> {
    let len = header.len().saturating_add(data.len());
    if let (true, None) = (len <= 8 * REST && target < job.size(), counters.completion) {
        // By registers: words that are stored in pieces could not be read as words at once.
        let [first, number, last] = Prefix::of_first(handler, (header.len(), data.len()), 0, counters).words();
        let [a, b, c] = joined(header, data);
        let packet = ShortPacket::new([first, number, last, a, b, c], PREFIX + len);
        job.send(target, Operation::SendShort(&packet))?;
    } else {
        send_long(job, target, handler, (header, data), counters)?;
    }
    if let Some(c) = counters.origin {
        c.increment();
    }
    Ok(())
}

/// The words of two slices of together at most as many bytes, one behind the other.
#[inline(always)]
fn joined(header: &[u8], data: &[u8]) -> [u64; REST] {
    if header.is_empty() {
        return words_of(data);
    }
    if data.is_empty() {
        return words_of(header);
    }
    let mut bytes = [0; 8 * REST];
    bytes[..header.len()].copy_from_slice(header);
    bytes[header.len()..][..data.len()].copy_from_slice(data);
    words_of(&bytes)
}

#[inline(always)]
fn words_of(bytes: &[u8]) -> [u64; REST] {
    let mut rest = bytes;
    std::array::from_fn(|_| match rest.split_first_chunk::<8>() {
        Some((word, others)) => {
            rest = others;
            u64::from_le_bytes(*word)
        }
        None => std::mem::take(&mut rest).iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    })
}

/// A message that does not fit into a short packet, or is to be acknowledged, or is wrong.
#[inline(never)]
fn send_long(
    job: &Job,
    target: u32,
    handler: HandlerId,
    (header, data): (&[u8], &[u8]),
    counters: Counters<'_>,
) -> Result<()> {
    const OP: &str = "send an active message";
    if header.len() > MAX_HEADER {
        return Err(Error::new(ErrorKind::BadArgument, OP)
            .cause(format!("a header of {} bytes, {MAX_HEADER} allowed", header.len())));
    }
    if target >= job.size() {
        return Err(Error::new(ErrorKind::NoSuchRank, OP).peer(target));
    }
    let am = job.active_messages();
    let message = am.next_message();
    if let Some(c) = counters.completion {
        am.state.borrow_mut().awaited.insert(message, (target, c.clone()));
    }
    let room = job.device().capabilities().max_packet - PREFIX;
    let mut p = Prefix::of_first(handler, (header.len(), data.len()), message, counters);
    let (now, mut rest) = data.split_at(data.len().min(room - header.len()));
    let block = |bytes: &[u8]| Block::of(bytes.as_ptr(), bytes.len());
    job.send(target, Operation::Send { header: &p.write(), body: &[block(header), block(now)] })?;
    p.kind = MORE;
    while !rest.is_empty() {
        p.number = (data.len() - rest.len()) as u64;
        let (now, later) = rest.split_at(rest.len().min(room));
        job.send(target, Operation::Send { header: &p.write(), body: &[block(now)] })?;
        rest = later;
    }
    Ok(())
}
