#![allow(unsafe_code)]
//! Sending: at once if there is room, else from a queue for each target, in the order of sending.

use std::rc::Rc;

use smallvec::SmallVec;

use super::counter::Counters;
use super::data::{COPIED, Data, Lent};
use super::handler::HandlerId;
use super::messenger::Messenger;
use super::outgoing::{Queued, SendQueues};
use super::own::OwnMessage;
use super::packet::{OP, PREFIX, Prefix, SHORT_BODY_WORDS, WHOLE_PREFIX};
use super::sink::Source;
use super::state::{OWN, PACKETS};
use super::turn::drain;
use super::{MAX_HEADER, MAX_MESSAGE};
use crate::device::{Block, Operation, Packet, ShortPacket};
use crate::engine::CancelOnDrop;
use crate::error::{Error, ErrorKind, Result};
use crate::tracked::Track;

/// Maximum number of messages whose data is copied at a time; the data of further messages stays in the caller's
/// memory.
const MAX_COPIED_MESSAGES: usize = 1024;

/// Sends an active message. When the call returns, the buffer is reusable; messages to one target arrive in the order
/// of sending. The buffer of a message that waits at its sender (rendezvous) is reusable only when the target has
/// received the data, so the target has to enter the runtime.
///
/// # Errors
/// `BadArgument` for a header above [`MAX_HEADER`] bytes, data above 2^40 bytes, or a handler of the runtime
/// ([`HandlerId::RUNTIME`]), `NoSuchRank`, `PeerLost`; for a message that waits at its sender also the error that
/// prevented the target from receiving it.
#[inline]
pub fn send(
    job: &Messenger,
    target: u32,
    handler: HandlerId,
    header: &[u8],
    data: &[u8],
    counters: Counters<'_>,
) -> Result<()> {
    handler.check(OP)?;
    // SAFETY: `handler` is the program's.
    unsafe { send_any(job, target, handler, header, data, counters) }
}

/// Sends like [`send`], also to a handler of the runtime.
///
/// # Safety
/// If the handler is one of the runtime, header and data have the format that it expects, and it can process them when
/// they arrive.
///
/// # Errors
/// Those of [`send`].
pub unsafe fn send_any(
    job: &Messenger,
    target: u32,
    handler: HandlerId,
    header: &[u8],
    data: &[u8],
    counters: Counters<'_>,
) -> Result<()> {
    job.running(OP)?;
    if header.len().saturating_add(data.len()) <= 8 * SHORT_BODY_WORDS && counters.completion.is_none() {
        // The packet is built in registers: several partial stores cannot be forwarded to a load of the whole word.
        let prefix = Prefix::of_whole(handler, header.len(), data.len(), counters.target.unwrap_or(0));
        if send_short(job, target, prefix, joined(header, data))? {
            counters.origin.inspect(|c| c.increment());
            return Ok(());
        }
    }
    send_other(job, target, handler, header, data, counters)
}

/// Sends a message of one short packet, whose header and data are `words`; `false` if the queue is full, earlier
/// messages are queued, or there is no such rank. Its callers have checked that calls are not refused.
#[inline(always)]
fn send_short(job: &Messenger, target: u32, prefix: Prefix, words: [u64; SHORT_BODY_WORDS]) -> Result<bool> {
    let am = job.active_messages();
    if target == job.rank_number() {
        let mut own = am.own.borrow_mut();
        let room = own.queue.len() < MAX_COPIED_MESSAGES;
        if room {
            own.queue.push_back(OwnMessage::Short(prefix, words));
            am.mark(OWN);
        }
        return Ok(room);
    }
    if !am.is_quiet() || target >= job.size_number() {
        return Ok(false);
    }
    let ([first, ..], [a, b, c, d, e]) = (prefix.words(), words);
    let len = WHOLE_PREFIX + usize::from(prefix.header_len) + prefix.number as usize;
    let packet = ShortPacket::new([first, a, b, c, d, e], len);
    job.try_send(target, Operation::Packet(Packet::Short(&packet)))
}

/// Concatenates two slices, of together at most 8 * `SHORT_BODY_WORDS` bytes, into words.
#[inline(always)]
fn joined(header: &[u8], data: &[u8]) -> [u64; SHORT_BODY_WORDS] {
    if header.is_empty() {
        return words_of(data);
    }
    if data.is_empty() {
        return words_of(header);
    }
    let mut bytes = [0; 8 * SHORT_BODY_WORDS];
    bytes[..header.len()].copy_from_slice(header);
    bytes[header.len()..][..data.len()].copy_from_slice(data);
    words_of(&bytes)
}

#[inline(always)]
fn words_of(bytes: &[u8]) -> [u64; SHORT_BODY_WORDS] {
    let (mut rest, mut words) = (bytes, [0; SHORT_BODY_WORDS]);
    for word in &mut words {
        *word = match rest.split_first_chunk::<8>() {
            Some((first, others)) => {
                rest = others;
                u64::from_le_bytes(*first)
            }
            None => std::mem::take(&mut rest).iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
    }
    words
}

/// Sends a message that does not fit into a short packet, is to be acknowledged, has to queue, or is invalid.
#[inline(never)]
fn send_other(
    job: &Messenger,
    target: u32,
    handler: HandlerId,
    header: &[u8],
    data: &[u8],
    counters: Counters<'_>,
) -> Result<()> {
    let source = &Source::of(data);
    let mut message =
        Outgoing { target, handler, header, source, counters, waits: false, copied: Some(COPIED), track: None };
    if post(job, &message)? == SendOutcome::Sent {
        return Ok(());
    }
    let track = Track::new();
    let _open = CancelOnDrop::new(job, &track);
    message.track = Some(&track);
    if post(job, &message)? == SendOutcome::Queued {
        job.wait(OP, || Ok((track.open() == 0).then_some(())))?;
    }
    track.check()
}

/// Sends an active message if that can be done without waiting; `false` if the queue was full, and nothing was sent.
/// Header and data must fit into one packet of the device.
///
/// # Errors
/// Those of [`send`]; `BadArgument` if the message does not fit into a packet.
pub fn try_send(
    job: &Messenger,
    target: u32,
    handler: HandlerId,
    header: &[u8],
    data: &[u8],
    counters: Counters<'_>,
) -> Result<bool> {
    handler.check(OP)?;
    check(job, target, header, data.len())?;
    let room = room(job, header.len());
    if data.len() > room {
        return Err(Error::new(ErrorKind::BadArgument, OP)
            .peer(target)
            .cause(format!("{} bytes of data do not fit into a packet: at most {room} do with this header", data.len()))
            .remedy("use `start_send` for longer messages"));
    }
    let copied = (target == job.rank_number()).then_some(room);
    let source = &Source::of(data);
    let message = Outgoing { target, handler, header, source, counters, waits: false, copied, track: None };
    Ok(post(job, &message)? == SendOutcome::Sent)
}

/// Starts to send an active message, and returns at once. `track` counts it until the memory of `source` is reusable;
/// returns whether it already is. Messages to one target keep their order, including those of [`send`].
/// [`Track::check`] returns an error of the message; [`Engine::cancel`](crate::engine::Engine::cancel) cancels all
/// messages that the track counts.
///
/// # Safety
/// The memory of `source` stays valid and is not written until the track has counted the message as complete, or
/// [`Engine::cancel`](crate::engine::Engine::cancel) of the track has returned. For a handler of the runtime also the
/// contract of [`send_any`].
///
/// # Errors
/// `BadArgument` for a header above [`MAX_HEADER`] bytes or data above 2^40 bytes, `NoSuchRank`, `PeerLost`.
pub unsafe fn start_send(
    job: &Messenger,
    target: u32,
    handler: HandlerId,
    header: &[u8],
    source: Source,
    counters: Counters<'_>,
    track: &Rc<Track>,
) -> Result<bool> {
    let copied = Some(COPIED);
    let message =
        Outgoing { target, handler, header, source: &source, counters, waits: false, copied, track: Some(track) };
    Ok(post(job, &message)? == SendOutcome::Sent)
}

/// Starts to send an active message that waits at its sender, whatever its length, until its target names a sink.
/// Returns at once.
///
/// # Safety
/// The contract of [`start_send`].
///
/// # Errors
/// Those of [`start_send`].
pub unsafe fn start_rendezvous(
    job: &Messenger,
    target: u32,
    handler: HandlerId,
    header: &[u8],
    source: Source,
    track: &Rc<Track>,
) -> Result<()> {
    let (source, counters, track) = (&source, Counters::default(), Some(track));
    post(job, &Outgoing { target, handler, header, source, counters, waits: true, copied: None, track }).map(|_| ())
}

/// Sends a message without data. Does not wait.
///
/// # Errors
/// Those of [`start_send`].
pub(crate) fn notify(job: &Messenger, target: u32, handler: HandlerId, header: &[u8]) -> Result<()> {
    // SAFETY: the message has no data.
    unsafe { start_send(job, target, handler, header, Source::of(&[]), Counters::default(), &Track::new()) }.map(|_| ())
}

/// Maximum length of the data of a message of one short packet whose header is a word.
pub(crate) const SHORT_DATA: usize = 8 * (SHORT_BODY_WORDS - 1);

/// Sends a message of one packet, whose header is a word; `false` if it does not fit, the queue is full or other
/// messages are queued.
#[inline]
pub(crate) fn try_send_whole(
    job: &Messenger,
    target: u32,
    handler: HandlerId,
    header: u64,
    data: &[u8],
) -> Result<bool> {
    let prefix = Prefix::of_whole(handler, 8, data.len(), 0);
    if data.len() <= SHORT_DATA {
        let [a, b, c, d, _] = words_of(data);
        return send_short(job, target, prefix, [header, a, b, c, d]);
    }
    if data.len() > room(job, 8)
        || target == job.rank_number()
        || target >= job.size_number()
        || !job.active_messages().is_quiet()
    {
        return Ok(false);
    }
    let mut first = [0; WHOLE_PREFIX + 8];
    first[..WHOLE_PREFIX].copy_from_slice(&prefix.words()[0].to_le_bytes());
    first[WHOLE_PREFIX..].copy_from_slice(&header.to_le_bytes());
    let body = [Block::of(data.as_ptr(), data.len())];
    job.try_send(target, Operation::send(&first, &body))
}

fn check(job: &Messenger, target: u32, header: &[u8], len: usize) -> Result<()> {
    job.running(OP)?;
    if len as u64 > MAX_MESSAGE {
        let e = Error::new(ErrorKind::BadArgument, OP).rank(job.rank()).peer(target);
        return Err(e.cause(format!("the message has {len} bytes, but at most {MAX_MESSAGE} are allowed")));
    }
    if header.len() > MAX_HEADER {
        return Err(Error::new(ErrorKind::BadArgument, OP)
            .cause(format!("the header has {} bytes, but at most {MAX_HEADER} are allowed", header.len())));
    }
    if target >= job.size_number() {
        return Err(Error::new(ErrorKind::NoSuchRank, OP).peer(target));
    }
    Ok(())
}

/// Maximum length of eager data of a message with a header of this length.
#[inline]
pub(crate) fn eager(job: &Messenger, target: u32, header_len: usize) -> usize {
    let cut_offs = job.message_cut_offs();
    let eager = if job.device().shares_memory(target) { cut_offs.eager_intra } else { cut_offs.eager_inter };
    eager.max(room(job, header_len))
}

/// Whether the data of a message with a header of this length is sent without asking the target.
#[inline]
pub(crate) fn is_eager(job: &Messenger, target: u32, header_len: usize, source: &Source) -> bool {
    source.len() <= eager(job, target, header_len) || lent_block(job, target, header_len, source).is_some()
}

/// The data of a message that is sent in one packet from the caller's memory.
pub(super) fn lent_block(job: &Messenger, target: u32, header_len: usize, source: &Source) -> Option<Block> {
    let (len, most) = (source.len(), job.max_lent_packet(target));
    let fits = len > room(job, header_len) && PREFIX + header_len + len <= most;
    source.one().filter(|_| fits).map(|block| Block { len, ..block })
}

/// Sends a packet with the data of `lent`, whose track also counts the packet until its memory is no longer read;
/// `false` if the queue is full.
pub(super) fn post_lent(job: &Messenger, target: u32, header: &[u8], block: Block, lent: &Lent) -> Result<bool> {
    let tracks: SmallVec<[&Rc<Track>; 1]> = lent.track.iter().collect();
    // SAFETY: by the contract of `start_send`, the memory is valid until the track counts the message as complete, or
    // has been cancelled, which cancels the packet.
    Ok(unsafe { job.try_post(target, Operation::send(header, &[block]), None, &tracks) }?.is_some())
}

/// Bytes of data that fit into a packet with a header of this length; 0 if the header alone is longer than a packet.
#[must_use]
#[inline]
pub fn room(job: &Messenger, header_len: usize) -> usize {
    job.max_packet().saturating_sub(PREFIX).saturating_sub(header_len)
}

/// A message to send.
struct Outgoing<'a> {
    target: u32,
    handler: HandlerId,
    header: &'a [u8],
    source: &'a Source,
    counters: Counters<'a>,
    /// The message waits at its sender, whatever its length, until its target names a sink.
    waits: bool,
    /// Maximum length of the data that is copied if the queue is full; `None` if the data is not copied.
    copied: Option<usize>,
    /// Counts the message while it is queued.
    track: Option<&'a Rc<Track>>,
}

/// Outcome of posting a message.
#[derive(PartialEq, Eq)]
enum SendOutcome {
    /// Sent or copied: the memory of its source is reusable.
    Sent,
    /// Queued: the track counts it until the memory of its source is reusable.
    Queued,
    /// Neither sent nor queued, since the queue is full and there is no track.
    NoRoom,
}

/// Sends a message in one packet, if it fits, there is room, and no message to the target is queued; else queues it.
fn post(job: &Messenger, m: &Outgoing<'_>) -> Result<SendOutcome> {
    let (am, len, own) = (job.active_messages(), m.source.len(), m.target == job.rank_number());
    check(job, m.target, m.header, len)?;
    let mut out = am.outgoing.borrow_mut();
    let packet = !own && !m.waits && len <= room(job, m.header.len()) && !out.queues.contains_key(&m.target);
    if packet && m.send_packet(job, &mut out)? {
        return Ok(SendOutcome::Sent);
    }
    let copies = if own { am.own.borrow().queue.len() } else { out.copied };
    let copied = copies < MAX_COPIED_MESSAGES && m.copied.is_some_and(|most| len <= most);
    let data = match m.track {
        _ if copied => Data::Copied(m.copy()?),
        Some(track) => Data::Lent(Lent::new(m.source.clone(), m.counters.origin, track)),
        None => return Ok(SendOutcome::NoRoom),
    };
    let message = Queued {
        handler: m.handler,
        header: m.header.into(),
        data,
        number: am.next_number(),
        target: m.counters.target.unwrap_or(0),
        completion: m.counters.completion.cloned(),
        sent: 0,
        waits: m.waits,
    };
    if own {
        am.own.borrow_mut().queue.push_back(OwnMessage::Long(Box::new(message)));
    } else {
        let SendQueues { queues, spare, .. } = &mut *out;
        queues.entry(m.target).or_insert_with(|| std::mem::take(spare)).push_back(message);
        out.copied += usize::from(copied);
    }
    drop(out);
    am.mark(if own { OWN } else { PACKETS });
    if copied {
        m.counters.origin.inspect(|c| c.increment());
        return Ok(SendOutcome::Sent);
    }
    // An error here does not belong to this message, which is queued; the next turn of progress reports it.
    if let Err(e) = drain(am, job) {
        am.defer(Box::new(move |_| Err(e)));
    }
    Ok(SendOutcome::Queued)
}

impl Outgoing<'_> {
    /// Sends the message in one packet; `false` if the queue is full.
    fn send_packet(&self, job: &Messenger, out: &mut SendQueues) -> Result<bool> {
        let number = self.counters.completion.map_or(0, |_| job.active_messages().next_number());
        let len = self.source.len();
        let of = if number == 0 { Prefix::of_whole } else { Prefix::of_first };
        let mut prefix = of(self.handler, self.header.len(), len, self.counters.target.unwrap_or(0));
        (prefix.message, prefix.acknowledged) = (number, number != 0);
        // Both are in one block, since a device may send the first bytes apart from the data.
        let mut header = SmallVec::<[u8; 64]>::from_slice(&prefix.write()[..prefix.len()]);
        header.extend_from_slice(self.header);
        let send = |body: &[Block]| job.try_send(self.target, Operation::send(&header, body));
        let sent = match self.source {
            Source::Bytes(block) => send(&[*block])?,
            Source::Layout(_) => {
                let mut blocks = Vec::new();
                self.source.blocks(0, len, &mut blocks)?;
                send(&blocks)?
            }
        };
        if sent {
            if let Some(c) = self.counters.completion {
                out.awaited.insert(number, (self.target, c.clone()));
            }
            self.counters.origin.inspect(|c| c.increment());
        }
        Ok(sent)
    }

    /// Copies the data.
    fn copy(&self) -> Result<SmallVec<[u8; COPIED]>> {
        let (mut blocks, mut bytes) = (Vec::new(), SmallVec::new());
        self.source.blocks(0, self.source.len(), &mut blocks)?;
        for block in blocks.iter().filter(|block| block.len > 0) {
            // SAFETY: valid during the call by the contract of `start_send`, or a slice of the caller.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(block.base.cast_const(), block.len) });
        }
        Ok(bytes)
    }
}
