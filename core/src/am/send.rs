#![allow(unsafe_code)]
//! Sending: at once if there is room, else from a queue for each target, in the order of sending.

use std::collections::VecDeque;
use std::rc::Rc;

use smallvec::SmallVec;

use super::counter::Counters;
use super::data::{COPIED, Data, Lent};
use super::handler::HandlerId;
use super::messenger::Messenger;
use super::own::ShortMessage;
use super::packet::{OP, PREFIX, Prefix, REST};
use super::sink::Source;
use super::turn::drain;
use super::{ActiveMessages, MAX_HEADER, MAX_MESSAGE};
use crate::device::{Block, Operation, ShortPacket};
use crate::engine::CancelOnDrop;
use crate::error::{Error, ErrorKind, Result};
use crate::tracked::Track;

/// Maximum number of messages whose data is copied at a time; beyond it data stays in the caller's memory.
const MOST_COPIED: usize = 1024;

/// Sends an active message. When it returns, the buffer is free; the message arrives in the order of sending with
/// respect to other messages to the same target. The buffer of a message that waits at its sender (rendezvous) is free
/// only when the target has taken it, so the target has to enter the runtime.
///
/// # Errors
/// `BadArgument` for a header above [`MAX_HEADER`] bytes, data above [`MAX_MESSAGE`], or a handler of the runtime
/// ([`HandlerId::RUNTIME`]), `NoSuchRank`, `PeerLost`; for a message that waits at its sender also the error that
/// prevented the target from taking it.
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
/// A handler of the runtime gets header and data as it expects them, and at a time when it can process them.
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
    let len = header.len().saturating_add(data.len());
    let am = job.active_messages();
    if len <= 8 * REST && (am.is_quiet() || target == job.rank()) && counters.completion.is_none() {
        // The packet is built in registers: a store in pieces cannot be forwarded to a load of the whole word.
        let prefix = Prefix::of_first(handler, header.len(), data.len(), 0, counters.target.unwrap_or(0));
        let words = joined(header, data);
        if target == job.rank() {
            am.send_own_short(ShortMessage { prefix, words });
            counters.origin.inspect(|c| c.increment());
            return Ok(());
        }
        let ([first, number, last], [a, b, c]) = (prefix.words(), words);
        let packet = ShortPacket::new([first, number, last, a, b, c], PREFIX + len);
        if target < job.size() && job.try_send(target, Operation::SendShort(&packet))? {
            counters.origin.inspect(|c| c.increment());
            return Ok(());
        }
    }
    send_other(job, target, handler, header, data, counters)
}

/// Concatenates two slices, of together at most 8 * `REST` bytes, into words.
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
    let source = Source::of(data);
    check(job, target, header, source.len())?;
    if send_now(job, target, handler, header, &source, counters, true)? {
        return Ok(());
    }
    let track = Track::new();
    let _open = CancelOnDrop::new(job, &track);
    queue(job, target, handler, header, source, counters, &track);
    job.wait(OP, || Ok((track.open() == 0).then_some(())))?;
    track.check()
}

/// Sends an active message if that can be done without waiting; `false` if there was no room, and nothing was sent.
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
            .cause(format!("{} bytes of data, but {room} fit into a packet with this header", data.len()))
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
/// returns whether it is free already. Messages to one target keep their order, including those of [`send`].
/// [`Track::check`] returns an error of the message; [`Engine::cancel`](crate::engine::Engine::cancel) cancels all
/// messages that the track counts.
///
/// # Safety
/// The memory of `source` stays valid and is not written until the track has counted the message as complete, or
/// [`Engine::cancel`](crate::engine::Engine::cancel) of the track has returned. For a handler of the runtime also the
/// contract of [`send_any`].
///
/// # Errors
/// `BadArgument` for a header above [`MAX_HEADER`] bytes or data above [`MAX_MESSAGE`], `NoSuchRank`, `PeerLost`.
pub unsafe fn start_send(
    job: &Messenger,
    target: u32,
    handler: HandlerId,
    header: &[u8],
    source: Source,
    counters: Counters<'_>,
    track: &Rc<Track>,
) -> Result<bool> {
    check(job, target, header, source.len())?;
    if send_now(job, target, handler, header, &source, counters, true)? {
        return Ok(true);
    }
    queue(job, target, handler, header, source, counters, track);
    Ok(false)
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
    check(job, target, header, source.len())?;
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
    send_queued(am, job);
    Ok(())
}

/// Sends queued messages as far as there is room. An error here does not belong to the calling send, whose message is
/// queued; the next turn of progress reports it.
fn send_queued(am: &ActiveMessages, job: &Messenger) {
    if let Err(e) = drain(am, job) {
        am.defer(Box::new(move |_| Err(e)));
    }
}

/// Sends a message of one short packet, whose header is a word; `false` if there is no room or other messages are
/// queued.
#[inline]
pub(crate) fn try_send_short(
    job: &Messenger,
    target: u32,
    handler: HandlerId,
    header: u64,
    data: &[u8],
) -> Result<bool> {
    let am = job.active_messages();
    let own = target == job.rank();
    if !(own || am.is_quiet()) || data.len() > 8 * (REST - 1) {
        return Ok(false);
    }
    let prefix = Prefix::of_first(handler, 8, data.len(), 0, 0);
    let [a, b, _] = words_of(data);
    let words = [header, a, b];
    if own {
        if am.own.borrow().len() >= MOST_COPIED {
            return Ok(false);
        }
        am.send_own_short(ShortMessage { prefix, words });
        return Ok(true);
    }
    let ([first, number, last], [a, b, c]) = (prefix.words(), words);
    let packet = ShortPacket::new([first, number, last, a, b, c], PREFIX + 8 + data.len());
    job.try_send(target, Operation::SendShort(&packet))
}

fn check(job: &Messenger, target: u32, header: &[u8], len: usize) -> Result<()> {
    job.running(OP)?;
    if len as u64 > MAX_MESSAGE {
        let e = Error::new(ErrorKind::BadArgument, OP).rank(job.rank()).peer(target);
        return Err(e.cause(format!("a message of {len} bytes; at most {MAX_MESSAGE} are allowed")));
    }
    if header.len() > MAX_HEADER {
        return Err(Error::new(ErrorKind::BadArgument, OP)
            .cause(format!("a header of {} bytes; at most {MAX_HEADER} are allowed", header.len())));
    }
    if target >= job.size() {
        return Err(Error::new(ErrorKind::NoSuchRank, OP).peer(target));
    }
    Ok(())
}

/// Maximum length of eager data of a message with a header of this length.
#[inline]
pub(crate) fn eager(job: &Messenger, header_len: usize) -> usize {
    job.message_cut_offs().eager.max(room(job, header_len))
}

/// Bytes of data that fit into a packet with a header of this length; 0 if the header alone is longer than a packet.
#[must_use]
#[inline]
pub fn room(job: &Messenger, header_len: usize) -> usize {
    job.max_packet().saturating_sub(PREFIX).saturating_sub(header_len)
}

/// Sends a message that fits into a packet if there is room and no message to the target is queued. Otherwise, if
/// `copy` is set and the message is short, queues a copy.
fn send_now(
    job: &Messenger,
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

/// Queues a message, and sends queued messages as far as there is room.
fn queue(
    job: &Messenger,
    target: u32,
    handler: HandlerId,
    header: &[u8],
    source: Source,
    counters: Counters<'_>,
    track: &Rc<Track>,
) {
    let am = job.active_messages();
    let data = Data::Lent(Lent::new(source, counters.origin, track));
    if target == job.rank() {
        am.send_own(handler, header, data, counters);
        return;
    }
    am.enqueue(&mut am.outgoing.borrow_mut(), target, handler, header, data, counters);
    send_queued(am, job);
}
