#![allow(unsafe_code)]
//! Messages of remote calls.
//!
//! A header has the kind (1 byte), the function (2), the number of the call (4), the length of the body that follows
//! the data (4), and then the body, if it fits: the bytes of an argument or a result. A longer body follows the data.

use std::borrow::Cow;

use farside_core::am::{self, Counters, HandlerId, MAX_HEADER, Messenger};
use farside_core::{Error, ErrorKind, Result};

pub(super) const CALL: &str = "call a remote function";

/// Bytes before the body.
const FIXED_LEN: usize = 11;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A call that returns a result.
    Call = 1,
    /// A call that returns no result.
    Cast = 2,
    /// The result of a call.
    Result = 3,
    /// The error text of a call that has failed.
    Failed = 4,
    /// An acknowledgement; its number counts the casts that have run.
    Acknowledge = 5,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) function: u16,
    pub(super) call: u32,
    /// Length of the body that follows the data; 0 if the body is in the header.
    trailing_len: u32,
}

impl Header {
    pub(super) fn call(function: u16, call: u32) -> Self {
        Self { kind: Kind::Call, function, call, trailing_len: 0 }
    }

    pub(super) fn cast(function: u16) -> Self {
        Self { kind: Kind::Cast, function, call: 0, trailing_len: 0 }
    }

    /// The header of a cast with its sequence number, for the trace.
    pub(super) fn numbered(self, number: u64) -> Self {
        if self.kind == Kind::Cast { Self { call: number as u32, ..self } } else { self }
    }

    /// Identifies, in the trace, a call or a cast among those of one caller to one target with this handler.
    pub(super) fn id(self, handler: HandlerId) -> u64 {
        u64::from(self.call) | u64::from(self.kind == Kind::Cast) << 32 | u64::from(handler.0) << 33
    }

    pub(super) fn acknowledge(casts: u32) -> Self {
        Self { kind: Kind::Acknowledge, function: 0, call: casts, trailing_len: 0 }
    }

    /// The header of the answer to a call.
    pub(super) fn answered(self, kind: Kind) -> Self {
        Self { kind, trailing_len: 0, ..self }
    }

    /// Reads a header; returns it with its inline body. `None` for malformed bytes.
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (fixed, body) = bytes.split_first_chunk::<FIXED_LEN>()?;
        let [kind, f0, f1, c0, c1, c2, c3, b0, b1, b2, b3] = *fixed;
        let kinds = [Kind::Call, Kind::Cast, Kind::Result, Kind::Failed, Kind::Acknowledge];
        let kind = kinds.into_iter().find(|known| *known as u8 == kind)?;
        let (function, call) = (u16::from_le_bytes([f0, f1]), u32::from_le_bytes([c0, c1, c2, c3]));
        Some((Self { kind, function, call, trailing_len: u32::from_le_bytes([b0, b1, b2, b3]) }, body))
    }

    /// Splits a message into body and data; the bytes `inline` arrived in the header.
    pub(super) fn split<'a>(self, inline: &'a [u8], bytes: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        if self.trailing_len == 0 {
            return (inline, bytes);
        }
        let (data, body) = bytes.split_at(bytes.len().saturating_sub(self.trailing_len as usize));
        (body, data)
    }

    /// A message with this body and these data.
    pub(super) fn with<'a>(mut self, body: &[u8], data: &'a [u8]) -> Outgoing<'a> {
        let fits = FIXED_LEN + body.len() <= MAX_HEADER;
        // A result has no data, so the receiver derives the length of its body.
        let is_answer = matches!(self.kind, Kind::Result | Kind::Failed);
        if !fits && !is_answer {
            self.trailing_len = u32::try_from(body.len()).unwrap_or(u32::MAX);
        }
        let mut header = Vec::with_capacity(FIXED_LEN + if fits { body.len() } else { 0 });
        header.push(self.kind as u8);
        header.extend(self.function.to_le_bytes());
        header.extend(self.call.to_le_bytes());
        header.extend(self.trailing_len.to_le_bytes());
        if fits {
            header.extend(body);
            return Outgoing { header, data: Cow::Borrowed(data) };
        }
        Outgoing { header, data: Cow::Owned([data, body].concat()) }
    }
}

/// A message to send.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outgoing<'a> {
    pub(super) header: Vec<u8>,
    pub(super) data: Cow<'a, [u8]>,
}

/// Sends a message; on return its data may be reused.
pub(super) fn send(job: &Messenger, to: u32, handler: HandlerId, message: &Outgoing<'_>) -> Result<()> {
    // SAFETY: the handler is the one of the remote calls at `to`, which validates its messages.
    unsafe { am::send_any(job, to, handler, &message.header, &message.data, Counters::default()) }
}

/// The error for an argument or a result that cannot be encoded or decoded.
#[cold]
pub(super) fn codec_error(what: &str, e: &postcard::Error) -> Error {
    Error::new(ErrorKind::Protocol, CALL).cause(format!("{what} cannot be encoded or decoded: {e}"))
}

/// The error of a call that has failed at rank `peer` of the job.
#[cold]
pub(super) fn failure(why: &[u8], peer: u32) -> Error {
    Error::new(ErrorKind::Aborted, CALL)
        .peer(peer)
        .cause(String::from_utf8_lossy(why).into_owned())
        .remedy("fix the called function, or make it return an error as its result")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn message_is_read_as_it_was_made(body in proptest::collection::vec(any::<u8>(), 0..300), data: Vec<u8>, call: u32) {
            let message = Header::call(7, call).with(&body, &data);
            prop_assert!(message.header.len() <= MAX_HEADER);
            let (header, inline) = Header::read(&message.header).unwrap();
            prop_assert_eq!((header.kind, header.function, header.call), (Kind::Call, 7, call));
            prop_assert_eq!(header.split(inline, &message.data), (&body[..], &data[..]));
        }

        #[test]
        fn garbage_is_refused_or_read_without_a_panic(header: Vec<u8>, data: Vec<u8>) {
            if let Some((read, inline)) = Header::read(&header) {
                read.split(inline, &data);
            }
        }
    }
}
