#![allow(unsafe_code)]
//! Messages that go: at once where there is room, else from a queue for each target, in the order of sending.

use std::collections::VecDeque;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::packet::{CANCEL, MORE, PREFIX, Prefix, RTS};
use super::sink::Source;
use super::{ActiveMessages, Counter, Counters, HandlerId, MAX_HEADER};
use crate::device::{Block, Operation, SHORT_WORDS, ShortPacket};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{CancelOnDrop, Job};
use crate::stats::Kind;
use crate::tracked::Track;

const OP: &str = "send an active message";
/// Words of a short packet for the user header and the data.
const REST: usize = SHORT_WORDS - PREFIX / 8;
/// Longest data that is copied where there is no room, so that the buffer is free at once.
const COPIED: usize = 64;
/// Most messages whose data is copied at a time; of others the data stays where it is.
const MOST_COPIED: usize = 1024;
/// Packets of one message that are sent in one turn of progress.
const TURN: usize = 16;

pub(super) type Header = SmallVec<[u8; 32]>;

/// Data that its owner has lent until the track says that the message is complete.
pub(super) struct Lent {
    source: Source,
    origin: Option<Counter>,
    /// `None` once it has ended.
    track: Option<Rc<Track>>,
}

impl Lent {
    fn new(source: Source, origin: Option<&Counter>, track: &Rc<Track>) -> Self {
        track.open_one();
        Self { source, origin: origin.cloned(), track: Some(Rc::clone(track)) }
    }

    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    fn complete(mut self) {
        self.origin.take().inspect(Counter::increment);
        self.track.take().inspect(|track| track.close());
    }

    fn fail(mut self, error: &Error) {
        self.track.take().inspect(|track| track.end(&Err(error.again())));
    }

    fn cancel(mut self) {
        self.track.take().inspect(|track| track.close());
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(track) = self.track.take() {
            track.end(&Err(Error::new(ErrorKind::Aborted, OP).cause("its handler panicked, or the job is gone")));
        }
    }
}

/// The data of a message.
pub(super) enum Data {
    Copied(SmallVec<[u8; COPIED]>),
    Lent(Lent),
}

impl Data {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Copied(bytes) => bytes.len(),
            Self::Lent(lent) => lent.source.len(),
        }
    }

    fn blocks(&self, from: usize, len: usize, blocks: &mut Vec<Block>) -> Result<()> {
        match self {
            Self::Copied(bytes) => {
                blocks.clear();
                blocks.push(Block::of(bytes[from..].as_ptr(), len));
                Ok(())
            }
            Self::Lent(lent) => lent.source.blocks(from, len, blocks),
        }
    }

    pub(super) fn is_of(&self, track: &Rc<Track>) -> bool {
        matches!(self, Self::Lent(lent) if lent.track.as_ref().is_some_and(|t| Rc::ptr_eq(t, track)))
    }

    pub(super) fn complete(self) {
        if let Self::Lent(lent) = self {
            lent.complete();
        }
    }

    pub(super) fn fail(self, error: &Error) {
        if let Self::Lent(lent) = self {
            lent.fail(error);
        }
    }

    pub(super) fn cancel(self) {
        if let Self::Lent(lent) = self {
            lent.cancel();
        }
    }
}

/// A message that waits for its turn.
struct Queued {
    handler: HandlerId,
    header: Header,
    data: Data,
    number: u32,
    target: u32,
    completion: Option<Counter>,
    /// Bytes that have gone.
    sent: usize,
    /// It waits here until its target says where it goes, however short it is.
    waits: bool,
}

/// A message whose target is asked.
enum Asked {
    /// The request to send has gone.
    Waiting(u32, Lent),
    /// The target wants the first bytes.
    Streaming { target: u32, lent: Lent, wanted: usize, sent: usize },
    /// Taken back; its target is to confirm that.
    Cancelled(u32),
}

/// What this rank has to send.
#[derive(Default)]
pub(super) struct Outgoing {
    control: VecDeque<(u32, Prefix)>,
    /// By target; none of them is empty.
    queues: FxHashMap<u32, VecDeque<Queued>>,
    /// By number.
    asked: FxHashMap<u32, Asked>,
    /// Of those the ones whose data goes.
    streams: VecDeque<u32>,
    /// By number: who is to acknowledge it.
    awaited: FxHashMap<u32, (u32, Counter)>,
    /// Messages that are queued and copied.
    copied: usize,
}

impl Outgoing {
    pub(super) fn is_empty(&self) -> bool {
        self.control.is_empty() && self.queues.is_empty() && self.streams.is_empty()
    }

    /// Whether something waits for room, after a turn of progress.
    pub(super) fn is_blocked(&self) -> bool {
        !self.is_empty()
    }

    fn is_free(&self, number: u32) -> bool {
        !self.asked.contains_key(&number) && !self.awaited.contains_key(&number)
    }
}

/// Sends an active message. When it returns the buffer is free; the message arrives in the order of sending
/// with respect to other messages to the same target. A message that waits at its sender (rendezvous) is free only when the
/// target has taken it, so the target has to come into the runtime.
///
/// # Errors
/// `BadArgument` for a header above [`MAX_HEADER`] bytes, `NoSuchRank`, `PeerLost`; for a message that waits at its sender
/// also what the target could not take it for.
pub fn send(
    job: &Job,
    target: u32,
    handler: HandlerId,
    header: &[u8],
    data: &[u8],
    counters: Counters<'_>,
) -> Result<()> {
    let len = header.len().saturating_add(data.len());
    let other = target < job.size() && target != job.rank();
    if len <= 8 * REST && other && job.active_messages().is_quiet() && counters.completion.is_none() {
        // By registers: words that are stored in pieces could not be read as words at once.
        let prefix = Prefix::of_first(handler, header.len(), data.len(), 0, counters.target.unwrap_or(0));
        let ([first, number, last], [a, b, c]) = (prefix.words(), joined(header, data));
        let packet = ShortPacket::new([first, number, last, a, b, c], PREFIX + len);
        if job.try_send(target, Operation::SendShort(&packet))? {
            counters.origin.inspect(|c| c.increment());
            return Ok(());
        }
    }
    send_other(job, target, handler, header, data, counters)
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

/// A message that does not fit into a short packet, or is to be acknowledged, or has to queue, or is wrong.
#[inline(never)]
fn send_other(
    job: &Job,
    target: u32,
    handler: HandlerId,
    header: &[u8],
    data: &[u8],
    counters: Counters<'_>,
) -> Result<()> {
    check(job, target, header)?;
    let source = Source::of(data);
    if send_now(job, target, handler, header, &source, counters, true)? {
        return Ok(());
    }
    let track = Track::new();
    let _open = CancelOnDrop::new(job, &track);
    queue(job, target, handler, header, source, counters, &track)?;
    job.wait(OP, || Ok((track.open() == 0).then_some(())))?;
    track.check()
}

/// Sends an active message without waiting, if that can be done now; `false`: there was no room, and nothing happened.
/// Header and data must fit into one packet of the device.
///
/// # Errors
/// As [`send`], and `BadArgument` for a message that does not fit into a packet.
pub fn try_send(
    job: &Job,
    target: u32,
    handler: HandlerId,
    header: &[u8],
    data: &[u8],
    counters: Counters<'_>,
) -> Result<bool> {
    check(job, target, header)?;
    let room = room(job, header.len());
    if data.len() > room {
        return Err(Error::new(ErrorKind::BadArgument, OP)
            .peer(target)
            .cause(format!("{} bytes of data, {room} fit into a packet with this header", data.len()))
            .remedy("use `start_send` for longer messages"));
    }
    if target != job.rank() {
        return send_now(job, target, handler, header, &Source::of(data), counters, false);
    }
    let am = job.active_messages();
    let room = am.own.borrow().len() < MOST_COPIED;
    if room {
        am.send_own(handler, header, Data::Copied(data.into()), counters);
        counters.origin.inspect(|c| c.increment());
    }
    Ok(room)
}

/// Starts to send an active message, and returns at once. `track` counts it until the memory of `source` is free again;
/// returns whether that is so already. Messages to one target keep their order, those of [`send`] among them. An error of
/// the message is found by [`Track::check`]; [`Job::cancel`] takes back what the track counts.
///
/// # Safety
/// The memory of `source` stays valid, and nobody writes to it, until the track has counted the message as complete, or
/// [`Job::cancel`] of the track has returned.
///
/// # Errors
/// `BadArgument` for a header above [`MAX_HEADER`] bytes, `NoSuchRank`, `PeerLost`.
pub unsafe fn start_send(
    job: &Job,
    target: u32,
    handler: HandlerId,
    header: &[u8],
    source: Source,
    counters: Counters<'_>,
    track: &Rc<Track>,
) -> Result<bool> {
    check(job, target, header)?;
    if send_now(job, target, handler, header, &source, counters, true)? {
        return Ok(true);
    }
    queue(job, target, handler, header, source, counters, track)?;
    Ok(false)
}

/// Starts to send an active message that waits at its sender, however short it is, until its target says where the data
/// goes. Returns at once.
///
/// # Safety
/// As [`start_send`].
///
/// # Errors
/// As [`start_send`].
pub unsafe fn start_rendezvous(
    job: &Job,
    target: u32,
    handler: HandlerId,
    header: &[u8],
    source: Source,
    track: &Rc<Track>,
) -> Result<()> {
    check(job, target, header)?;
    let am = job.active_messages();
    let data = Data::Lent(Lent::new(source, None, track));
    if target == job.rank() {
        am.send_own(handler, header, data, Counters::default());
        return Ok(());
    }
    let mut out = am.outgoing.borrow_mut();
    am.enqueue(&mut out, target, handler, header, data, Counters::default());
    if let Some(message) = out.queues.get_mut(&target).and_then(VecDeque::back_mut) {
        message.waits = true;
    }
    drop(out);
    drain(am, job).map(|_| ())
}

/// Sends a message of one short packet to another rank, if there is room and nothing is queued: `false` if not.
#[inline]
pub(crate) fn try_send_short(job: &Job, target: u32, handler: HandlerId, header: &[u8], data: &[u8]) -> Result<bool> {
    if !job.active_messages().is_quiet() || header.len() + data.len() > 8 * REST {
        return Ok(false);
    }
    let prefix = Prefix::of_first(handler, header.len(), data.len(), 0, 0);
    let ([first, number, last], [a, b, c]) = (prefix.words(), joined(header, data));
    let packet = ShortPacket::new([first, number, last, a, b, c], PREFIX + header.len() + data.len());
    job.try_send(target, Operation::SendShort(&packet))
}

fn check(job: &Job, target: u32, header: &[u8]) -> Result<()> {
    job.running(OP)?;
    if header.len() > MAX_HEADER {
        return Err(Error::new(ErrorKind::BadArgument, OP)
            .cause(format!("a header of {} bytes, {MAX_HEADER} allowed", header.len())));
    }
    if target >= job.size() {
        return Err(Error::new(ErrorKind::NoSuchRank, OP).peer(target));
    }
    Ok(())
}

/// Longest data of a message with a header of this length that goes without asking the target.
#[inline]
pub(crate) fn eager(job: &Job, header_len: usize) -> usize {
    job.device().capabilities().messages.eager.max(room(job, header_len))
}

/// Bytes of data that fit into a packet with a header of this length.
fn room(job: &Job, header_len: usize) -> usize {
    job.device().capabilities().max_packet - PREFIX - header_len
}

/// Sends a message that fits into a packet if there is room and nothing is queued before it; or, where `copy` allows that,
/// copies it, if it is short.
fn send_now(
    job: &Job,
    target: u32,
    handler: HandlerId,
    header: &[u8],
    source: &Source,
    counters: Counters<'_>,
    copy: bool,
) -> Result<bool> {
    let (am, len) = (job.active_messages(), source.len());
    let own = target == job.rank();
    let mut out = am.outgoing.borrow_mut();
    let mut blocks = Vec::new();
    if !own && len <= room(job, header.len()) && !out.queues.contains_key(&target) {
        let number = counters.completion.map_or(0, |_| am.next_number(|number| out.is_free(number)));
        let target_counter = counters.target.unwrap_or(0);
        let mut prefix = Prefix::of_first(handler, header.len(), len, number, target_counter);
        prefix.completion = number;
        let posted = match source {
            Source::Bytes(block) => {
                let body = [Block::of(header.as_ptr(), header.len()), *block];
                job.try_send(target, Operation::Send { header: &prefix.write(), body: &body })?
            }
            Source::Layout(_) => {
                source.blocks(0, len, &mut blocks)?;
                blocks.insert(0, Block::of(header.as_ptr(), header.len()));
                job.try_send(target, Operation::Send { header: &prefix.write(), body: &blocks })?
            }
        };
        if posted {
            if let Some(c) = counters.completion {
                out.awaited.insert(number, (target, c.clone()));
            }
            counters.origin.inspect(|c| c.increment());
            return Ok(true);
        }
    }
    if !copy || len > COPIED || out.copied >= MOST_COPIED {
        return Ok(false);
    }
    let mut bytes = SmallVec::new();
    source.blocks(0, len, &mut blocks)?;
    for block in blocks.iter().filter(|block| block.len > 0) {
        // SAFETY: valid during the call by the contract of `start_send`, or a slice of the caller.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(block.base.cast_const(), block.len) });
    }
    let data = Data::Copied(bytes);
    if own {
        drop(out);
        am.send_own(handler, header, data, counters);
    } else {
        out.copied += 1;
        am.enqueue(&mut out, target, handler, header, data, counters);
    }
    counters.origin.inspect(|c| c.increment());
    Ok(true)
}

/// Queues a message, and sends what there is room for.
fn queue(
    job: &Job,
    target: u32,
    handler: HandlerId,
    header: &[u8],
    source: Source,
    counters: Counters<'_>,
    track: &Rc<Track>,
) -> Result<()> {
    let am = job.active_messages();
    let data = Data::Lent(Lent::new(source, counters.origin, track));
    if target == job.rank() {
        am.send_own(handler, header, data, counters);
        return Ok(());
    }
    am.enqueue(&mut am.outgoing.borrow_mut(), target, handler, header, data, counters);
    drain(am, job).map(|_| ())
}

/// Sends what is queued as far as there is room; whether anything was sent.
///
/// # Errors
/// Of a message that nobody waits for.
pub(super) fn drain(am: &ActiveMessages, job: &Job) -> Result<bool> {
    let mut out = am.outgoing.borrow_mut();
    if out.is_empty() {
        return Ok(false);
    }
    let mut turn = Turn { job, out: &mut out, any: false, full: SmallVec::new(), ended: Vec::new(), failed: None };
    turn.send_control();
    turn.send_queued();
    turn.send_streams();
    let Turn { any, ended, failed, .. } = turn;
    drop(out);
    // What owns the data may come back here.
    for (data, result) in ended {
        match result {
            Ok(()) => data.complete(),
            Err(e) => data.fail(&e),
        }
    }
    failed.map_or(Ok(any), Err)
}

/// One turn of sending.
struct Turn<'a> {
    job: &'a Job,
    out: &'a mut Outgoing,
    any: bool,
    /// Targets without room.
    full: SmallVec<[u32; 8]>,
    ended: Vec<(Data, Result<()>)>,
    /// The first error of something that nobody waits for.
    failed: Option<Error>,
}

/// What became of a queued message.
enum Step {
    /// There was no room for the next packet.
    Full,
    /// It goes on in the next turn.
    Again,
    Gone,
    Asks,
}

impl Turn<'_> {
    /// Sends a packet; `false` if there is no room.
    fn packet(&mut self, target: u32, operation: Operation<'_>) -> Result<bool> {
        if self.full.contains(&target) {
            return Ok(false);
        }
        let sent = self.job.try_send(target, operation)?;
        if sent {
            self.any = true;
        } else {
            self.full.push(target);
        }
        Ok(sent)
    }

    fn send_control(&mut self) {
        for _ in 0..self.out.control.len() {
            let Some((target, prefix)) = self.out.control.pop_front() else { return };
            let [a, b, c] = prefix.words();
            let packet = ShortPacket::new([a, b, c, 0, 0, 0], PREFIX);
            match self.packet(target, Operation::SendShort(&packet)) {
                Ok(true) => {}
                Ok(false) => self.out.control.push_back((target, prefix)),
                Err(e) => _ = self.failed.get_or_insert(e),
            }
        }
    }

    fn send_queued(&mut self) {
        let targets: SmallVec<[u32; 8]> = self.out.queues.keys().copied().collect();
        for target in targets {
            while let Some(mut message) = self.out.queues.get_mut(&target).and_then(VecDeque::pop_front) {
                let step = self.step(target, &mut message);
                if let Ok(Step::Full | Step::Again) = step {
                    self.out.queues.entry(target).or_default().push_front(message);
                    break;
                }
                if let Data::Copied(_) = message.data {
                    self.out.copied -= 1;
                }
                if let (Ok(_), Some(c)) = (&step, message.completion) {
                    self.out.awaited.insert(message.number, (target, c));
                }
                match (step, message.data) {
                    (Ok(Step::Asks), Data::Lent(lent)) => {
                        self.out.asked.insert(message.number, Asked::Waiting(target, lent));
                    }
                    (Ok(_), data) => self.ended.push((data, Ok(()))),
                    (Err(e), Data::Copied(_)) => _ = self.failed.get_or_insert(e),
                    (Err(e), data) => self.ended.push((data, Err(e))),
                }
            }
            if self.out.queues.get(&target).is_some_and(VecDeque::is_empty) {
                self.out.queues.remove(&target);
            }
        }
    }

    /// Sends the next packets of a queued message.
    fn step(&mut self, target: u32, message: &mut Queued) -> Result<Step> {
        let (len, header_len) = (message.data.len(), message.header.len());
        let capabilities = self.job.device().capabilities();
        let (most, eager) = (capabilities.max_packet - PREFIX, capabilities.messages.eager);
        let mut prefix = Prefix::of_first(message.handler, header_len, len, message.number, message.target);
        prefix.completion = if message.completion.is_some() { message.number } else { 0 };
        let header = Block::of(message.header.as_ptr(), header_len);
        if message.waits || len > eager.max(most - header_len) {
            prefix.kind = RTS;
            let sent = self.packet(target, Operation::Send { header: &prefix.write(), body: &[header] })?;
            return Ok(if sent { Step::Asks } else { Step::Full });
        }
        let mut blocks = Vec::new();
        for _ in 0..TURN {
            let first = message.sent == 0;
            let now = (len - message.sent).min(if first { most - header_len } else { most });
            message.data.blocks(message.sent, now, &mut blocks)?;
            if first {
                blocks.insert(0, header);
            } else {
                (prefix.kind, prefix.header_len, prefix.number) = (MORE, 0, message.sent as u64);
            }
            if !self.packet(target, Operation::Send { header: &prefix.write(), body: &blocks })? {
                return Ok(Step::Full);
            }
            message.sent += now;
            if message.sent == len {
                return Ok(Step::Gone);
            }
        }
        Ok(Step::Again)
    }

    fn send_streams(&mut self) {
        for _ in 0..self.out.streams.len() {
            let Some(number) = self.out.streams.pop_front() else { return };
            let Some(Asked::Streaming { target, lent, wanted, mut sent }) = self.out.asked.remove(&number) else {
                continue;
            };
            match self.stream(number, target, &lent.source, wanted, &mut sent) {
                Ok(true) => self.ended.push((Data::Lent(lent), Ok(()))),
                Ok(false) => {
                    self.out.asked.insert(number, Asked::Streaming { target, lent, wanted, sent });
                    self.out.streams.push_back(number);
                }
                Err(e) => self.ended.push((Data::Lent(lent), Err(e))),
            }
        }
    }

    /// Sends the next packets of a message whose target wants them; whether it is complete.
    fn stream(&mut self, number: u32, target: u32, source: &Source, wanted: usize, sent: &mut usize) -> Result<bool> {
        let most = self.job.device().capabilities().max_packet - PREFIX;
        let mut blocks = Vec::new();
        for _ in 0..TURN {
            let now = (wanted - *sent).min(most);
            source.blocks(*sent, now, &mut blocks)?;
            let prefix = Prefix::about(MORE, number, *sent as u64);
            if !self.packet(target, Operation::Send { header: &prefix.write(), body: &blocks })? {
                return Ok(false);
            }
            self.job.device().stats().add(Kind::Copy, now);
            *sent += now;
            if *sent == wanted {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl ActiveMessages {
    fn enqueue(
        &self,
        out: &mut Outgoing,
        target: u32,
        handler: HandlerId,
        header: &[u8],
        data: Data,
        counters: Counters<'_>,
    ) {
        let number = self.next_number(|number| out.is_free(number));
        let (to, completion) = (counters.target.unwrap_or(0), counters.completion.cloned());
        let message =
            Queued { handler, header: header.into(), data, number, target: to, completion, sent: 0, waits: false };
        out.queues.entry(target).or_default().push_back(message);
        self.busy.set(true);
    }

    /// Queues a packet of the runtime.
    pub(super) fn control(&self, target: u32, prefix: &Prefix) {
        self.outgoing.borrow_mut().control.push_back((target, *prefix));
        self.busy.set(true);
    }

    pub(super) fn acknowledged(&self, source: u32, number: u32) -> Result<()> {
        let mut out = self.outgoing.borrow_mut();
        if out.awaited.get(&number).is_none_or(|(target, _)| *target != source) {
            return Err(unknown(source, "acknowledgement"));
        }
        out.awaited.remove(&number).inspect(|(_, c)| c.increment());
        Ok(())
    }

    /// The target of a message wants its first bytes.
    pub(super) fn clear_to_send(&self, source: u32, number: u32, wanted: u64) -> Result<()> {
        let mut out = self.outgoing.borrow_mut();
        match out.asked.remove(&number) {
            Some(Asked::Waiting(target, lent))
                if target == source && (1..=lent.source.len() as u64).contains(&wanted) =>
            {
                let wanted = wanted as usize;
                out.asked.insert(number, Asked::Streaming { target, lent, wanted, sent: 0 });
                out.streams.push_back(number);
                self.busy.set(true);
                Ok(())
            }
            other => {
                // It may have been taken back meanwhile.
                let crossed = matches!(other, Some(Asked::Cancelled(target)) if target == source);
                other.map(|other| out.asked.insert(number, other));
                if crossed { Ok(()) } else { Err(unknown(source, "clear to send")) }
            }
        }
    }

    /// The target of a message needs its data no more: it is complete, or `code` says why it was not taken.
    pub(super) fn taken(&self, source: u32, number: u32, code: u64) -> Result<()> {
        let mut out = self.outgoing.borrow_mut();
        let lent = match out.asked.remove(&number) {
            Some(Asked::Waiting(target, lent)) if target == source => lent,
            Some(Asked::Cancelled(target)) if target == source => return Ok(()),
            other => {
                other.map(|other| out.asked.insert(number, other));
                return Err(unknown(source, "end"));
            }
        };
        if code != 0 {
            out.awaited.remove(&number);
        }
        drop(out);
        match code.checked_sub(1) {
            None => lent.complete(),
            Some(code) => {
                let kind = usize::try_from(code).ok().and_then(|code| ErrorKind::ALL.get(code).copied());
                let e = Error::new(kind.unwrap_or(ErrorKind::Protocol), OP).peer(source);
                lent.fail(&e.cause("its target has not taken it, and has the error with its cause"));
            }
        }
        Ok(())
    }

    /// Takes back the messages that `track` counts: their memory is not read any more.
    pub(crate) fn cancel(&self, track: &Rc<Track>) {
        self.cancel_own(track);
        let mut out = self.outgoing.borrow_mut();
        let mut cancelled = Vec::new();
        let mut partly = Vec::new();
        out.queues.retain(|target, queue| {
            let (taken, kept) = std::mem::take(queue).into_iter().partition::<VecDeque<_>, _>(|m| m.data.is_of(track));
            *queue = kept;
            for message in taken {
                if message.sent > 0 {
                    partly.push((message.number, *target));
                }
                cancelled.push(message.data);
            }
            !queue.is_empty()
        });
        let numbers: Vec<u32> = out.asked.iter().filter(|(_, a)| a.is_of(track)).map(|(number, _)| *number).collect();
        out.streams.retain(|number| !numbers.contains(number));
        for number in numbers {
            if let Some(Asked::Waiting(target, lent) | Asked::Streaming { target, lent, .. }) =
                out.asked.remove(&number)
            {
                partly.push((number, target));
                cancelled.push(Data::Lent(lent));
            }
        }
        for (number, target) in partly {
            out.awaited.remove(&number);
            out.asked.insert(number, Asked::Cancelled(target));
            out.control.push_back((target, Prefix::about(CANCEL, number, 0)));
            self.busy.set(true);
        }
        drop(out);
        cancelled.into_iter().for_each(Data::cancel);
    }
}

impl Asked {
    fn is_of(&self, track: &Rc<Track>) -> bool {
        match self {
            Self::Waiting(_, lent) | Self::Streaming { lent, .. } => {
                lent.track.as_ref().is_some_and(|t| Rc::ptr_eq(t, track))
            }
            Self::Cancelled(_) => false,
        }
    }
}

fn unknown(source: u32, what: &str) -> Error {
    Error::new(ErrorKind::Protocol, "receive an active message")
        .peer(source)
        .cause(format!("{what} of a message that this rank has not sent there"))
}
