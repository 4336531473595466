//! The control messages of a transfer: requests of the origin and replies of the target.

use farside_core::wire::{Reader, Writer};
use farside_core::{Error, ErrorKind};
use farside_datatype::Direction;

/// Maximum number of lists that are posted for one request. An SGRS queue pair has room for twice this number each way.
pub(super) const LISTS: usize = 16;
/// Maximum number of layouts of one version that an origin may name and its peers store.
pub(super) const LAYOUTS: usize = 64;

const REQUEST: u8 = 1;
const ANSWER: u8 = 2;
/// Flag of a layout whose wire form is in the request.
const FOLLOWS: u8 = 1;

/// The name of a layout at the origin, and the length of its wire form in the request, if it is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) id: u32,
    pub(super) len: Option<u32>,
}

/// A request to the target to post its lists for some messages of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) number: u32,
    pub(super) direction: Direction,
    /// The handler at the origin.
    pub(super) reply: u16,
    /// Offset in the target's window.
    pub(super) offset: u64,
    /// Offset in the packed bytes at which the messages start.
    pub(super) packed: u64,
    /// For a get: the lists that the origin, as the receiver, has decided on and posted.
    pub(super) totals: ListTotals,
    /// The version of the origin's names. Names restart from 0 in each version.
    pub(super) version: u32,
    pub(super) origin: Named,
    pub(super) target: Named,
}

/// The number of messages (lists), and their total bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ListTotals {
    pub(super) lists: u32,
    pub(super) bytes: u64,
}

/// The result of a request at the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The lists are posted; the origin sends these messages.
    Posted(ListTotals),
    /// A layout is unknown; the origin sends the layouts again.
    Unknown,
    /// No list was posted, because of this error.
    Refused(ErrorKind, String),
}

/// The reply to request `number`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) number: u32,
    pub(super) verdict: Verdict,
}

/// A request or an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    Request(Request),
    Answer(Answer),
}

fn named(w: Writer, n: Named) -> Writer {
    w.u32(n.id).u8(if n.len.is_some() { FOLLOWS } else { 0 }).u32(n.len.unwrap_or(0))
}

fn read_named(r: &mut Reader<'_>) -> Option<Named> {
    let (id, follows, len) = (r.u32()?, r.u8()?, r.u32()?);
    Some(Named { id, len: (follows == FOLLOWS).then_some(len) })
}

impl Request {
    pub(super) fn write(&self) -> Vec<u8> {
        let w = Writer::new()
            .u8(REQUEST)
            .u32(self.number)
            .u8(u8::from(self.direction == Direction::Get))
            .u32(u32::from(self.reply))
            .u64(self.offset)
            .u64(self.packed)
            .u32(self.totals.lists)
            .u64(self.totals.bytes)
            .u32(self.version);
        named(named(w, self.origin), self.target).done()
    }
}

impl Answer {
    /// Writes the header, and the text of a refusal.
    pub(super) fn write(&self) -> (Vec<u8>, &[u8]) {
        let w = Writer::new().u8(ANSWER).u32(self.number);
        match &self.verdict {
            Verdict::Posted(d) => (w.u8(0).u32(d.lists).u64(d.bytes).done(), &[]),
            Verdict::Unknown => (w.u8(1).done(), &[]),
            Verdict::Refused(kind, text) => {
                let kind = ErrorKind::ALL.iter().position(|k| k == kind).unwrap_or(0);
                (w.u8(2).u32(kind as u32).done(), text.as_bytes())
            }
        }
    }
}

impl Message {
    /// Reads the header and the data of an active message.
    pub(super) fn read(header: &[u8], data: Option<&[u8]>) -> Option<Self> {
        let mut r = Reader::new(header);
        let message = match r.u8()? {
            REQUEST => Self::Request(Request {
                number: r.u32()?,
                direction: if r.u8()? == 0 { Direction::Put } else { Direction::Get },
                reply: r.u32()?.try_into().ok()?,
                offset: r.u64()?,
                packed: r.u64()?,
                totals: ListTotals { lists: r.u32()?, bytes: r.u64()? },
                version: r.u32()?,
                origin: read_named(&mut r)?,
                target: read_named(&mut r)?,
            }),
            ANSWER => {
                let number = r.u32()?;
                let verdict = match r.u8()? {
                    0 => Verdict::Posted(ListTotals { lists: r.u32()?, bytes: r.u64()? }),
                    1 => Verdict::Unknown,
                    2 => {
                        let kind = *ErrorKind::ALL.get(r.u32()? as usize)?;
                        let text = String::from_utf8_lossy(data.unwrap_or_default()).into_owned();
                        Verdict::Refused(kind, text)
                    }
                    _ => return None,
                };
                Self::Answer(Answer { number, verdict })
            }
            _ => return None,
        };
        r.rest().is_empty().then_some(message)
    }
}

/// The verdict that rejects a request because of `error`.
pub(super) fn refusal(error: &Error) -> Verdict {
    let mut text = error.to_string();
    text.truncate((0..=text.len().min(1000)).rev().find(|n| text.is_char_boundary(*n)).unwrap_or(0));
    Verdict::Refused(error.kind(), text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request() -> Request {
        Request {
            number: 7,
            direction: Direction::Get,
            reply: 40_000,
            offset: 1 << 40,
            packed: 99,
            totals: ListTotals { lists: 16, bytes: 1 << 33 },
            version: 3,
            origin: Named { id: 1, len: Some(20) },
            target: Named { id: 2, len: None },
        }
    }

    #[test]
    fn messages_come_back_as_they_were_and_fit_a_header() {
        for direction in [Direction::Put, Direction::Get] {
            let r = Request { direction, ..request() };
            let bytes = r.write();
            assert!(bytes.len() <= farside_core::am::MAX_HEADER);
            assert_eq!(Message::read(&bytes, None), Some(Message::Request(r)));
            assert!((0..bytes.len()).all(|n| Message::read(&bytes[..n], None).is_none()));
        }
        let totals = ListTotals { lists: 5, bytes: 77 };
        let refused = Verdict::Refused(ErrorKind::OutOfRange, "bytes 5 to 9".into());
        for verdict in [Verdict::Posted(totals), Verdict::Unknown, refused] {
            let answer = Answer { number: 9, verdict };
            let (header, data) = answer.write();
            assert_eq!(Message::read(&header, Some(data)), Some(Message::Answer(answer.clone())));
        }
    }

    #[test]
    fn refusal_says_what_the_error_says_and_is_short() {
        let e = Error::new(ErrorKind::OutOfRange, "put").cause("ä".repeat(5000));
        let Verdict::Refused(kind, text) = refusal(&e) else { panic!("no refusal") };
        assert!(kind == ErrorKind::OutOfRange && (999..=1000).contains(&text.len()) && text.contains("ää"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_read(
            header in prop::collection::vec(any::<u8>(), 0..80),
            data in prop::option::of(prop::collection::vec(any::<u8>(), 0..40)),
        ) {
            if let Some(Message::Request(r)) = Message::read(&header, data.as_deref()) {
                prop_assert_eq!(Message::read(&r.write(), None), Some(Message::Request(r)));
            }
        }
    }
}
