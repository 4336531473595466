#![allow(unsafe_code)]
//! Sending two-sided messages.

use std::rc::Rc;

use smallvec::SmallVec;

use super::HANDLER;
use super::mailbox::Mailbox;
use super::state::Unexpected;
use crate::am::{self, Counters, Payload, Source};
use crate::bill::{Account, SignalKind};
use crate::error::{Error, ErrorKind, Result};
use crate::matching::Envelope;
use crate::stats::Kind;
use crate::tracked::Track;

/// Mode of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The message may be sent before its receive is posted, or wait for it.
    Standard,
    /// The send completes only once its receive has begun.
    Synchronous,
}

/// A send in progress or complete.
#[derive(Clone, Debug)]
#[must_use]
pub enum Sending {
    /// Complete: the memory of the source is reusable.
    Done,
    /// Complete once the track counts no request; [`Track::check`] then returns its result.
    Open(Rc<Track>),
}

impl Sending {
    /// Whether the memory of the source is reusable.
    #[must_use]
    pub fn is_done(&self) -> bool {
        match self {
            Self::Done => true,
            Self::Open(track) => track.open() == 0,
        }
    }

    /// The result of a send that is complete; `None` before its completion.
    ///
    /// # Errors
    /// The error of the send.
    pub fn outcome(&self) -> Result<Option<()>> {
        match self {
            Self::Done => Ok(Some(())),
            Self::Open(track) if track.open() == 0 => track.check().map(Some),
            Self::Open(_) => Ok(None),
        }
    }
}

/// Length of the header in bytes: context and tag. A synchronous message has one byte more.
const HEADER: usize = 8;

/// The header of a message, as a word.
#[inline(always)]
fn header(context: u32, tag: i32) -> u64 {
    u64::from(context) | u64::from(tag as u32) << 32
}

/// Parses the envelope in a header.
#[inline]
pub(super) fn envelope(source: u32, header: &[u8]) -> Option<Envelope> {
    let (words, rest) = header.split_first_chunk::<HEADER>()?;
    if rest.len() > 1 {
        return None;
    }
    let words = u64::from_le_bytes(*words);
    Some(Envelope { context: words as u32, source, tag: (words >> 32) as i32 })
}

/// The offset of the tag in a packet that begins a message.
pub(crate) fn tag_at(packet: &[u8]) -> Option<usize> {
    let (handler, header) = am::user_header(packet)?;
    (handler == HANDLER && header.len() >= HEADER).then_some(header.start + HEADER / 2)
}

/// Whether the send of a message of this rank to itself may complete by a copy if no receive is posted for it.
pub(super) fn may_leave(header: &[u8], len: usize) -> bool {
    /// Maximum length of a message to itself that is copied.
    const OWN: usize = 64 << 10;
    header.len() == HEADER && len <= OWN
}

impl Mailbox {
    /// Starts to send a message to rank `target` of the job. Returns immediately.
    ///
    /// # Safety
    /// The memory of `source` stays valid and is not written until the send [is done](Sending::is_done) or
    /// [`forget_send`](Self::forget_send) has returned.
    ///
    /// # Errors
    /// `NoSuchRank`, `PeerLost`, `Freed`.
    #[inline]
    pub unsafe fn start_message(
        &self,
        target: u32,
        context: u32,
        tag: i32,
        source: Source,
        mode: Mode,
    ) -> Result<Sending> {
        if mode == Mode::Standard
            && let Source::Bytes(block) = &source
            // SAFETY: the same contract.
            && unsafe { self.try_send_message(target, context, tag, block.base, block.len) }
        {
            return Ok(Sending::Done);
        }
        // SAFETY: the same contract.
        unsafe { self.start_open_message(target, context, tag, source, mode) }
    }

    /// [`start_message`](Self::start_message) of a message that [`try_send_message`](Self::try_send_message) has not sent.
    ///
    /// # Safety
    /// The contract of [`start_message`](Self::start_message).
    ///
    /// # Errors
    /// Those of [`start_message`](Self::start_message).
    #[inline(never)]
    pub unsafe fn start_open_message(
        &self,
        target: u32,
        context: u32,
        tag: i32,
        source: Source,
        mode: Mode,
    ) -> Result<Sending> {
        const OP: &str = "send a message";
        self.running(OP)?;
        if target >= self.size_number() {
            return Err(Error::new(ErrorKind::NoSuchRank, OP).peer(target).rank(self.rank()));
        }
        let len = source.len();
        if let Some(bill) = self.bill() {
            let account = Account::team(context);
            bill.called_for(account, "send", Some(target));
            bill.signalled(account, SignalKind::Message(tag), target, len as u64);
            bill.posted(account, |stats| stats.add(Kind::Send, len));
        }
        let eager = mode == Mode::Standard
            && am::is_eager(self, target, HEADER, &source)
            && (target == self.rank_number()
                // SAFETY: the same contract.
                || !unsafe { am::is_read_if_mapped(self, target, &source) } && self.spend(target, len)?);
        // SAFETY: the same contract.
        unsafe { self.start_open(target, header(context, tag), source, mode, eager) }
    }

    /// Sends a standard message of contiguous bytes if it fits into one packet, or its target is this rank, and no
    /// message is queued before it. Returns whether it was sent: then the memory is reusable. Otherwise nothing has
    /// changed, and [`start_open_message`](Self::start_open_message) sends it, or returns the error. Makes no progress.
    ///
    /// # Safety
    /// `len` bytes at `base` are valid for reads.
    #[inline(always)]
    pub unsafe fn try_send_message(&self, target: u32, context: u32, tag: i32, base: *const u8, len: usize) -> bool {
        if !self.is_plain() {
            return false;
        }
        // SAFETY: valid during the call.
        let data = if len == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(base, len) } };
        if target == self.rank_number() {
            return self.send_to_own_receive(Envelope { context, source: target, tag }, data);
        }
        let credits = &self.two_sided().credits;
        // A read may be faster for longer messages, if the target can map their memory.
        let is_short = len <= am::room(self, HEADER) && len < self.message_cut_offs().read_intra;
        if !is_short || target >= self.size_number() || !credits.spend(target, len) {
            return false;
        }
        let sent = matches!(am::try_send_whole(self, target, HANDLER, header(context, tag), data), Ok(true));
        if !sent {
            credits.unspend(target, len);
        }
        sent
    }

    /// Sends a message of this rank to itself, if no other message is queued before it and it is not too long to copy.
    #[inline(always)]
    fn send_to_own_receive(&self, envelope: Envelope, data: &[u8]) -> bool {
        if self.active_messages().has_own()
            || data.len() > am::SHORT_DATA && data.len() > am::eager(self, self.rank_number(), HEADER)
        {
            return false;
        }
        let posted = self.two_sided().matching.borrow_mut().take_posted(&envelope);
        match posted {
            Some(receive) => receive.take(envelope, Payload::Bytes(data)),
            None => self.keep_own(envelope, data),
        }
        true
    }

    /// Stores a copy of a message of this rank to itself for which no receive is posted.
    #[inline(never)]
    fn keep_own(&self, envelope: Envelope, data: &[u8]) {
        let body = am::Unexpected::Whole(SmallVec::from_slice(data));
        self.two_sided().matching.borrow_mut().keep(envelope, Unexpected { body, counted: false });
    }

    /// Starts a message that may wait at its sender; `eager`: this rank has taken credits for it.
    ///
    /// # Safety
    /// The contract of [`start_message`](Self::start_message).
    unsafe fn start_open(&self, target: u32, words: u64, source: Source, mode: Mode, eager: bool) -> Result<Sending> {
        let (track, len) = (Track::new(), source.len());
        if !eager {
            let mut header = [1; HEADER + 1];
            header[..HEADER].copy_from_slice(&words.to_le_bytes());
            let header = if mode == Mode::Standard { &header[..HEADER] } else { &header[..] };
            // SAFETY: the same contract.
            unsafe { am::start_rendezvous(self, target, HANDLER, header, source, &track) }?;
            return Ok(Sending::Open(track));
        }
        let header = words.to_le_bytes();
        // SAFETY: the same contract.
        match unsafe { am::start_send(self, target, HANDLER, &header, source, Counters::default(), &track) } {
            Ok(true) => Ok(Sending::Done),
            Ok(false) => Ok(Sending::Open(track)),
            Err(e) => {
                self.two_sided().credits.unspend(target, len);
                Err(e)
            }
        }
    }

    /// Takes credits for a message to `target`; `false` if there are too few.
    #[inline]
    fn spend(&self, target: u32, len: usize) -> Result<bool> {
        let credits = &self.two_sided().credits;
        if credits.spend(target, len) {
            return Ok(true);
        }
        // Credits may have arrived: a rank that only sends has made no progress to process them.
        self.progress()?;
        Ok(credits.spend(target, len))
    }

    /// Cancels a send whose receive has not begun: it ends with `Aborted` soon, even if the peer posts no receive. A
    /// send whose receive has begun, or whose message has already been sent, ends as usual.
    pub fn withdraw_send(&self, sending: &Sending) {
        if let Sending::Open(track) = sending {
            self.unspend_unsent(track);
            self.active_messages().withdraw(track);
        }
    }

    /// Abandons a send in any state: its memory is no longer read. A message that is not completely sent is cancelled.
    pub fn forget_send(&self, sending: &Sending) {
        if let Sending::Open(track) = sending
            && track.open() > 0
        {
            self.unspend_unsent(track);
            self.cancel(track);
        }
    }

    /// Returns the credits of the messages that `track` counts and that have not been sent.
    fn unspend_unsent(&self, track: &Rc<Track>) {
        for (target, len) in self.active_messages().unsent(track) {
            self.two_sided().credits.unspend(target, len);
        }
    }
}
