#![allow(unsafe_code)]
//! Requests for memory that is not mapped: the target's rank, or its agent, executes the copy or the atomic.
//!
//! A slot is one cache line in the target's segment:
//!
//! ```text
//! 0   marker: sequence number of the request + 1, written last; highest bit: served
//! 8   code: operation (8 bits), status (8 bits, written by the target: 0 or what failed), accumulate code (32 bits)
//! 16  key        24  offset
//! 32  length (32 bits), offset in the origin's bounce buffer (32 bits; INLINE: bytes are in the slot)
//! 40  24 bytes of operands or results
//! ```
//!
//! The target serves in order and sets the highest bit of the marker when results and status are in the slot: a request
//! and its answer take one cache line transfer each. Everything in a slot is checked before use, since a peer wrote it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::shared_memory::{LINE, Layout, SLOTS};
use crate::device::Change;
use crate::error::{Error, ErrorKind};
use crate::memory::copy;
use crate::memory::keys::{Exposed, Exposures};
use crate::memory::segment::Mapping;
use crate::memory::words::{Memory, Word};
use crate::stats::{Kind, Stats};

/// Number of bytes that fit into a slot.
pub(super) const INLINE_BYTES: usize = 24;
/// The value of the bounce offset if the bytes are in the slot.
pub(super) const INLINE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    Write = 1,
    Read = 2,
    FetchAdd = 3,
    CompareSwap = 4,
    Accumulate = 5,
    FetchAccumulate = 6,
    /// Sets a signal cell (to the operand) in memory of the target's runtime, after all earlier requests.
    Signal = 7,
}

/// Bit of the marker: the request is served.
const SERVED: u64 = 1 << 63;

/// The errors that a status can name; any other status is [`ErrorKind::Protocol`].
const FAILURES: [ErrorKind; 4] =
    [ErrorKind::BadKey, ErrorKind::OutOfRange, ErrorKind::Misaligned, ErrorKind::Unsupported];

/// The status of a request: 0, or the error kind.
pub(crate) fn status(result: Result<(), ErrorKind>) -> u64 {
    result.map_or_else(|kind| kind as u64 + 1, |()| 0)
}

/// The error kind that a status other than 0 encodes.
pub(crate) fn failure(status: u64) -> ErrorKind {
    FAILURES.into_iter().find(|kind| status == *kind as u64 + 1).unwrap_or(ErrorKind::Protocol)
}

/// Content of a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) code: Code,
    pub(super) accumulate: u32,
    pub(super) key: u64,
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) bounce: u32,
    pub(super) operand: [u64; 3],
}

/// Writes request number `sequence` of rank `me` into a slot of the target.
pub(super) fn write<M: Memory>(target: &M, layout: &Layout, me: usize, sequence: u64, r: &Request) {
    let at = layout.request(me, sequence as usize % SLOTS);
    let words = [
        r.code as u64 | u64::from(r.accumulate) << 32,
        r.key,
        r.offset,
        u64::from(r.len) | u64::from(r.bounce) << 32,
        r.operand[0],
        r.operand[1],
        r.operand[2],
    ];
    for (i, w) in words.iter().enumerate() {
        // Relaxed: ordered by the marker.
        target.word(at + 8 + 8 * i).store(*w, Ordering::Relaxed);
    }
    // Release: pairs with the server's Acquire of the marker.
    target.word(at).store(sequence + 1, Ordering::Release);
}

/// Whether the target has served request `sequence` of rank `me`.
pub(super) fn is_served<M: Memory>(target: &M, layout: &Layout, me: usize, sequence: u64) -> bool {
    let at = layout.request(me, sequence as usize % SLOTS);
    // Acquire: pairs with the server's Release; makes results and status visible.
    target.word(at).load(Ordering::Acquire) == (sequence + 1) | SERVED
}

/// Status and operand words of a served request.
pub(super) fn outcome<M: Memory>(target: &M, layout: &Layout, me: usize, sequence: u64) -> Result<[u64; 3], Error> {
    let at = layout.request(me, sequence as usize % SLOTS);
    // Relaxed: after the Acquire of the marker in `is_served`.
    let word = |i: usize| target.word(at + 8 * i).load(Ordering::Relaxed);
    let status = word(1) >> 8 & 0xff;
    if status == 0 {
        return Ok([word(5), word(6), word(7)]);
    }
    Err(Error::new(failure(status), "access unmapped memory through its target"))
}

/// The target's side: serves requests of all ranks, on the rank's own thread or the agent's.
pub(super) struct Server<W = AtomicU64, L = Mutex<()>> {
    serving: L,
    /// Number of each rank's next request; changed by the holder of the lock only.
    next: Vec<W>,
}

impl Server {
    pub(super) fn new(ranks: usize) -> Self {
        Self { serving: Mutex::new(()), next: (0..ranks).map(|_| AtomicU64::new(0)).collect() }
    }
}

/// A lock that one thread holds at a time.
pub(super) trait Exclusive {
    fn exclusively<T>(&self, f: impl FnOnce() -> T) -> T;
}

impl Exclusive for Mutex<()> {
    fn exclusively<T>(&self, f: impl FnOnce() -> T) -> T {
        let _guard = self.lock().unwrap_or_else(PoisonError::into_inner);
        f()
    }
}

impl<W: Word, L: Exclusive> Server<W, L> {
    /// Serves pending requests: `perform` serves one request of a rank in its slot, and `served` is called after the
    /// answer is visible. Returns whether there were any.
    pub(super) fn serve<M: Memory>(
        &self,
        own: &M,
        layout: &Layout,
        perform: impl Fn(usize, usize) -> Result<(), ErrorKind>,
        served: impl Fn(usize),
    ) -> bool {
        // Requests that another thread is serving need no second pass.
        if !self.ready(own, layout) {
            return false;
        }
        let mut any = false;
        self.serving.exclusively(|| {
            for (source, next) in self.next.iter().enumerate() {
                loop {
                    // Relaxed: changed only under the lock.
                    let sequence = next.load(Ordering::Relaxed);
                    let at = layout.request(source, sequence as usize % SLOTS);
                    // Acquire: pairs with the origin's Release of the marker.
                    if own.word(at).load(Ordering::Acquire) != sequence + 1 {
                        break;
                    }
                    let status = status(perform(source, at));
                    // Relaxed: ordered by the Release of the marker.
                    let code = own.word(at + 8).load(Ordering::Relaxed);
                    own.word(at + 8).store(code & !0xff00 | status << 8, Ordering::Relaxed);
                    // Relaxed: as above.
                    next.store(sequence + 1, Ordering::Relaxed);
                    // Release: pairs with the origin's Acquire in `is_served`.
                    own.word(at).store((sequence + 1) | SERVED, Ordering::Release);
                    any = true;
                    served(source);
                }
            }
        });
        any
    }

    /// Whether a request is pending.
    pub(super) fn ready<M: Memory>(&self, own: &M, layout: &Layout) -> bool {
        self.next.iter().enumerate().any(|(source, next)| {
            // Relaxed, both: `serve` reads again under the lock and with Acquire. If the marker is already served,
            // another thread has moved on since the number was read; `serve` then checks again.
            let next = next.load(Ordering::Relaxed);
            own.word(layout.request(source, next as usize % SLOTS)).load(Ordering::Relaxed) & !SERVED == next + 1
        })
    }
}

/// Serves the request in the slot at `at`; the error is the reason of a rejection.
pub(super) fn perform(
    own: &Mapping,
    at: usize,
    origin: &Mapping,
    layout: &Layout,
    exposures: &Exposures,
    stats: &Stats,
) -> Result<(), ErrorKind> {
    // Relaxed: after the Acquire of the marker. The checks and the operation use the same private copies.
    let w: [u64; 7] = std::array::from_fn(|i| own.word(at + 8 + 8 * i).load(Ordering::Relaxed));
    let (accumulate, key, offset) = ((w[0] >> 32) as u32, w[1], w[2]);
    let (len, bounce) = (w[3] as u32 as usize, (w[3] >> 32) as u32);
    let mut operand = [w[4], w[5], w[6]];
    let bytes: *mut u8 = if bounce == INLINE {
        if len > INLINE_BYTES {
            return Err(ErrorKind::Protocol);
        }
        operand.as_mut_ptr().cast()
    } else {
        if bounce as usize + len > layout.bounce_len {
            return Err(ErrorKind::Protocol);
        }
        origin.at(layout.bounce + bounce as usize)
    };
    let serve = |p: *mut u8, region: &Exposed| {
        stats.add(Kind::Copy, len);
        let by_function = Change::Accumulate { code: accumulate, operand: bytes };
        // SAFETY: `p` is valid for `len` bytes while the table is locked; `bytes` is the private operand array, which
        // is three words, or `len` checked bytes of the origin's bounce buffer, and no accumulate reads more.
        unsafe {
            let update = |change: Change, old| change.apply(region.accumulate, p, old, len);
            match w[0] as u8 {
                c if c == Code::Write as u8 => copy::store(bytes, p, len),
                c if c == Code::Read as u8 => copy::load(p, bytes, len),
                c if c == Code::FetchAdd as u8 && len == 8 && bounce == INLINE => {
                    update(Change::Add(*bytes.cast()), bytes)?;
                }
                c if c == Code::Signal as u8 && len == 8 && bounce == INLINE => {
                    if !p.addr().is_multiple_of(8) {
                        return Err(ErrorKind::Misaligned);
                    }
                    // Release: pairs with the Acquire of the cell's owner, after everything served before.
                    AtomicU64::from_ptr(p.cast()).store(*bytes.cast::<u64>(), Ordering::Release);
                }
                c if c == Code::CompareSwap as u8 && bounce == INLINE => {
                    let [expected, desired] = *bytes.cast();
                    update(Change::CompareSwap { expected, desired }, bytes)?;
                }
                c if c == Code::Accumulate as u8 => update(by_function, std::ptr::null_mut())?,
                c if c == Code::FetchAccumulate as u8 => {
                    let mut old = vec![0u8; len];
                    update(by_function, old.as_mut_ptr())?;
                    copy::store(old.as_ptr(), bytes, len);
                }
                _ => return Err(ErrorKind::Protocol),
            }
        }
        Ok(())
    };
    exposures.with(key, offset, len, serve).ok_or(ErrorKind::BadKey)?.ok_or(ErrorKind::OutOfRange)??;
    if bounce == INLINE {
        for (i, word) in operand.iter().enumerate() {
            // Relaxed: ordered by the Release of the marker.
            own.word(at + 40 + 8 * i).store(*word, Ordering::Relaxed);
        }
    }
    Ok(())
}

const _: () = assert!(40 + INLINE_BYTES == LINE);

#[cfg(test)]
mod models;
#[cfg(test)]
mod tests;
