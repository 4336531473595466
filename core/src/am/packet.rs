//! The prefix of every packet.

use super::handler::HandlerId;
use crate::device::SHORT_WORDS;

/// Length of a prefix in bytes, except that of a [`WHOLE`] message.
pub(super) const PREFIX: usize = 24;
/// Length of the prefix of a [`WHOLE`] message in bytes.
pub(super) const WHOLE_PREFIX: usize = 8;
/// Words of a short packet after the prefix of a [`WHOLE`] message, for the user header and the data.
pub(super) const SHORT_BODY_WORDS: usize = SHORT_WORDS - WHOLE_PREFIX / 8;
/// The operation that errors of the sender name.
pub(super) const OP: &str = "send an active message";

/// The first packet of a message, or the only one: the user header and data.
pub(super) const FIRST: u8 = 1;
/// More data of a message.
pub(super) const MORE: u8 = 2;
/// The target has completed a message.
pub(super) const ACKNOWLEDGE: u8 = 3;
/// Request to send: the user header of a message whose data waits at the sender.
pub(super) const RTS: u8 = 4;
/// Clear to send: how many of the first bytes of the data the target wants.
pub(super) const CTS: u8 = 5;
/// The data of a message is no longer needed at its sender.
pub(super) const FIN: u8 = 6;
/// The data of a message will not arrive completely; if the number is [`WITHDRAW`], the message is cancelled only if it
/// is held.
pub(super) const CANCEL: u8 = 7;
pub(super) const WITHDRAW: u64 = 1;
/// The target has exported the sink of a message that it reads: the location of the claims, the key of the target's
/// claim table, and the location of the sink.
pub(super) const SINK: u8 = 8;
/// The sender has written this number of segments of a message into its exported sink so far, or has failed to write
/// one and writes no more.
pub(super) const WRITTEN: u8 = 9;
/// A message in one packet: the user header and all data. No other packet refers to it, so its prefix is only the first
/// word of the prefix of other kinds; the length of the packet implies that of the data.
pub(super) const WHOLE: u8 = 10;

/// The prefix of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefix {
    pub(super) kind: u8,
    pub(super) header_len: u8,
    pub(super) handler: u16,
    /// The counter to increment at the target, or 0.
    pub(super) target: u32,
    /// `FIRST`, `RTS`, `WHOLE`: length of the data. `MORE`: offset in it. `CTS`: bytes wanted. `FIN`: 0, or 1 plus the
    /// index of the error's kind. `SINK`: location of the claims. `WRITTEN`: number of segments.
    pub(super) number: u64,
    /// The sender's number of the message, of 63 bits; 0 for a message to which no packet has to refer.
    pub(super) message: u64,
    /// Whether the target acknowledges that it has completed the message.
    pub(super) acknowledged: bool,
}

impl Prefix {
    /// Prefix of the first packet of a message whose header and data have these lengths.
    #[inline(always)]
    pub(super) fn of_first(handler: HandlerId, header_len: usize, len: usize, target: u32) -> Self {
        let (header_len, handler, number) = (header_len as u8, handler.0, len as u64);
        Self { kind: FIRST, header_len, handler, target, number, message: 0, acknowledged: false }
    }

    /// Prefix of a message in one packet whose header and data have these lengths.
    #[inline(always)]
    pub(super) fn of_whole(handler: HandlerId, header_len: usize, len: usize, target: u32) -> Self {
        Self { kind: WHOLE, ..Self::of_first(handler, header_len, len, target) }
    }

    /// Prefix of a packet that refers to a known message.
    pub(super) fn control(kind: u8, message: u64, number: u64) -> Self {
        Self { kind, header_len: 0, handler: 0, target: 0, number, message, acknowledged: false }
    }

    /// The number of the message if its target is to acknowledge it, else 0.
    #[inline(always)]
    pub(super) fn acknowledges(&self) -> u64 {
        if self.acknowledged { self.message } else { 0 }
    }

    #[inline(always)]
    pub(super) fn words(&self) -> [u64; PREFIX / 8] {
        [
            u64::from(self.kind)
                | u64::from(self.header_len) << 8
                | u64::from(self.handler) << 16
                | u64::from(self.target) << 32,
            self.number,
            self.message << 1 | u64::from(self.acknowledged),
        ]
    }

    /// Length in bytes.
    pub(super) fn len(&self) -> usize {
        if self.kind == WHOLE { WHOLE_PREFIX } else { PREFIX }
    }

    /// The bytes, of which the first [`len`](Self::len) are sent.
    pub(super) fn write(&self) -> [u8; PREFIX] {
        let mut bytes = [0; PREFIX];
        for (at, word) in bytes.chunks_exact_mut(8).zip(self.words()) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    #[inline(always)]
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (first, mut rest) = bytes.split_first_chunk()?;
        let first = u64::from_le_bytes(*first);
        let (kind, header_len) = (first as u8, (first >> 8) as u8);
        let (mut number, mut last) = ((rest.len() as u64).saturating_sub(header_len.into()), 0);
        if kind != WHOLE {
            let (words, others) = rest.split_first_chunk::<{ PREFIX - WHOLE_PREFIX }>()?;
            let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| words[at + i]));
            (number, last, rest) = (word(0), word(8), others);
        }
        let prefix = Self {
            kind,
            header_len,
            handler: (first >> 16) as u16,
            target: (first >> 32) as u32,
            number,
            message: last >> 1,
            acknowledged: last & 1 != 0,
        };
        Some((prefix, rest))
    }
}

/// The handler of a message and the place of its user header in its first packet; `None` for other packets.
pub(crate) fn user_header(packet: &[u8]) -> Option<(HandlerId, std::ops::Range<usize>)> {
    let (prefix, _) = Prefix::read(packet)?;
    let (begin, len) = (prefix.len(), usize::from(prefix.header_len));
    let begins = matches!(prefix.kind, FIRST | RTS | WHOLE) && packet.len() >= begin + len;
    begins.then_some((HandlerId(prefix.handler), begin..begin + len))
}
