#![allow(unsafe_code)]
//! Internal messages between the members of a communicator that create a new communicator.

use farside_core::am::{Sink, Source};
use farside_core::bill::Awaited;
use farside_core::coll::execute::check_group_call;
use farside_core::matching::Pattern;
use farside_core::two_sided::{Mode, Receive};

use crate::fail::Result;
use crate::objects::CommObject;
use crate::runtime::Call;

/// Sends words, and waits until the send is complete.
pub fn send(call: &Call<'_>, context: u32, to: u32, tag: i32, words: &[u32]) -> Result {
    send_beside(call, context, to, tag, words, || Ok(()))
}

/// Sends words, runs `other`, which may wait for the peer's message, and waits until the send is complete.
pub fn send_beside<R>(
    call: &Call<'_>,
    context: u32,
    to: u32,
    tag: i32,
    words: &[u32],
    other: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let job = call.job()?;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    // SAFETY: the bytes live until the send is complete or cancelled.
    let sending = unsafe { job.start_message(to, context, tag, Source::of(&bytes), Mode::Standard) }?;
    let done = other();
    let sent = call.wait(|| sending.is_done());
    job.forget_send(&sending);
    sent.and(done)
}

/// Receives words for a call on `comm`. Fails if `from` has rejected the arguments of the call and has then made
/// another call on this communicator.
pub fn receive(call: &Call<'_>, comm: Option<&CommObject>, context: u32, from: u32, tag: i32) -> Result<Vec<u32>> {
    let job = call.job()?;
    let pattern = Pattern::new(context, Some(from), Some(tag));
    let mut found = None;
    let mut failed = None;
    // If the rank has instead reached the end of the job, its call number shows it.
    let awaited = || Some(Awaited { from: Some(from), ..Awaited::unknown(call.name) });
    call.wait_until(awaited, || {
        // This closure may be called again after it has returned true, if another thread called it first
        // (`wake_ready`).
        if found.is_none() && failed.is_none() {
            match job.take_message(&pattern) {
                Ok(None) => failed = comm.and_then(|comm| check_group_call(&comm.team, call.name, from).err()),
                Ok(taken) => found = taken,
                Err(e) => failed = Some(e),
            }
        }
        found.is_some() || failed.is_some()
    })?;
    if let Some(e) = failed {
        return Err(e.into());
    }
    let Some(message) = found else { return Ok(Vec::new()) };
    let mut bytes = vec![0u8; message.status().len];
    let receiving = Receive::new();
    // SAFETY: the bytes live until the receive is complete or cancelled.
    let begun = unsafe { job.receive_message(&receiving, message, Sink::memory(bytes.as_mut_ptr(), bytes.len())) };
    let received = begun.map_err(Into::into).and_then(|()| call.wait(|| receiving.is_done()));
    job.forget_receive(&receiving);
    received?;
    receiving.outcome()?;
    Ok(bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect())
}
