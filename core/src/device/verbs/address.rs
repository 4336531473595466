//! Messages between ranks: the endpoint address that each rank publishes, and the datagrams by which they connect.
//!
//! A datagram contains the token of the rank to which it is addressed: 16 random bytes known only to the ranks of the
//! job, which exchange them by the bootstrap. Datagrams without the token, or malformed ones, are dropped.

use super::sys::Gid;
use crate::wire::{Reader, Writer};

/// Secret of one rank.
pub(super) type Token = [u8; 16];

/// The data that a rank publishes so that others can reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndpointAddress {
    pub(super) gid: Gid,
    pub(super) lid: u16,
    pub(super) ethernet: bool,
    /// Whether the port needs a global routing header.
    pub(super) global: bool,
    /// Partition key.
    pub(super) partition: u16,
    /// The value of libibverbs' `ibv_mtu`: 1 is 256 bytes, 5 is 4096.
    pub(super) mtu: u8,
    /// Maximum number of incoming reads and atomics in progress on one connection.
    pub(super) depth: u8,
    /// Whether its adapter has atomics. If that of any rank has none, the processors make all updates.
    pub(super) atomics: bool,
    /// Whether its adapter's keys are of relaxed order. If those of any rank are, signals wait until writes are placed.
    pub(super) relaxed: bool,
    /// Number of its datagram queue pair.
    pub(super) datagrams: u32,
    pub(super) qkey: u32,
    pub(super) token: Token,
    /// Identifies the running kernel and the process namespace, within which ranks can watch each other's processes.
    pub(super) node: Vec<u8>,
    pub(super) pid: u32,
}

fn sixteen(r: &mut Reader<'_>) -> Option<[u8; 16]> {
    r.bytes()?.try_into().ok()
}

impl EndpointAddress {
    pub(super) fn write(&self) -> Vec<u8> {
        Writer::new()
            .bytes(&self.gid)
            .u32(u32::from(self.lid))
            .u8(u8::from(self.ethernet))
            .u8(u8::from(self.global))
            .u32(u32::from(self.partition))
            .u8(self.mtu)
            .u8(self.depth)
            .u8(u8::from(self.atomics))
            .u8(u8::from(self.relaxed))
            .u32(self.datagrams)
            .u32(self.qkey)
            .bytes(&self.token)
            .bytes(&self.node)
            .u32(self.pid)
            .done()
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let address = Self {
            gid: sixteen(&mut r)?,
            lid: r.u32()?.try_into().ok()?,
            ethernet: r.u8()? != 0,
            global: r.u8()? != 0,
            partition: r.u32()?.try_into().ok()?,
            mtu: r.u8().filter(|m| (1..=5).contains(m))?,
            depth: r.u8()?,
            atomics: r.u8()? != 0,
            relaxed: r.u8()? != 0,
            datagrams: r.u32()?,
            qkey: r.u32()?,
            token: sixteen(&mut r)?,
            node: r.bytes()?.to_vec(),
            pid: r.u32()?,
        };
        r.rest().is_empty().then_some(address)
    }
}

/// Maximum length of a datagram in bytes.
pub(super) const DATAGRAM: usize = 256;
const MAGIC: u32 = 0x4653_5631;
/// Maximum length of a text in a datagram.
const TEXT: usize = 160;

/// Content of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Asks the peer to serve queue pair `requester`, whose first packet is number `psn`. Repeated until it is
    /// answered.
    Request { attempt: u32, requester: u32, psn: u32 },
    /// Queue pair `responder` serves the peer's requester. `counter` is the address and key of the word in which the
    /// sender counts the packets that it has received from the peer.
    Reply { attempt: u32, responder: u32, counter: (u64, u32) },
    /// The sender cannot serve the requester.
    Refuse { attempt: u32, why: String },
    /// Asks whether the peer is alive.
    Ping,
    /// Answers `Ping`.
    Pong,
    /// Queue pair `number` of the sender is for lists to and from the peer; its first packet is `psn`. Repeated until
    /// it is answered.
    Pair { attempt: u32, number: u32, psn: u32 },
    /// The sender's queue pair `number` is connected to the peer's.
    Paired { answers: u32, attempt: u32, number: u32, psn: u32 },
    /// The sender has no queue pair for the peer.
    Unpaired { answers: u32, why: String },
    /// The sender's port has another address since its move of this number. Repeated until it is noted.
    Moved { number: u32, lid: u16, gid: Gid },
    /// Answers `Moved`.
    Noted { number: u32 },
    /// The sender has left in order, and sends no further answers.
    Left,
    /// The sender ends abnormally, perhaps because rank `blamed` was lost.
    Lost { blamed: Option<u32>, why: String },
}

fn short(text: &str) -> &[u8] {
    &text.as_bytes()[..text.len().min(TEXT)]
}

/// Encodes a datagram from rank `source` to the rank with `token`.
pub(super) fn write(source: u32, token: &Token, message: &Message) -> Vec<u8> {
    let w = Writer::new().u32(MAGIC).bytes(token).u32(source);
    match message {
        Message::Request { attempt, requester, psn } => w.u8(1).u32(*attempt).u32(*requester).u32(*psn),
        Message::Reply { attempt, responder, counter } => {
            w.u8(2).u32(*attempt).u32(*responder).u64(counter.0).u32(counter.1)
        }
        Message::Refuse { attempt, why } => w.u8(3).u32(*attempt).bytes(short(why)),
        Message::Left => w.u8(10),
        Message::Moved { number, lid, gid } => w.u8(11).u32(*number).u32(u32::from(*lid)).bytes(gid),
        Message::Noted { number } => w.u8(12).u32(*number),
        Message::Ping => w.u8(4),
        Message::Pong => w.u8(5),
        Message::Pair { attempt, number, psn } => w.u8(7).u32(*attempt).u32(*number).u32(*psn),
        Message::Paired { answers, attempt, number, psn } => w.u8(8).u32(*answers).u32(*attempt).u32(*number).u32(*psn),
        Message::Unpaired { answers, why } => w.u8(9).u32(*answers).bytes(short(why)),
        Message::Lost { blamed, why } => w.u8(6).u32(blamed.map_or(0, |b| b + 1)).bytes(short(why)),
    }
    .done()
}

/// Decodes a datagram; `None` if it is malformed or does not contain `token`.
pub(super) fn read(bytes: &[u8], token: &Token) -> Option<(u32, Message)> {
    let mut r = Reader::new(bytes);
    if r.u32()? != MAGIC || sixteen(&mut r)? != *token {
        return None;
    }
    let source = r.u32()?;
    let text = |r: &mut Reader<'_>| r.bytes().map(|b| String::from_utf8_lossy(b).into_owned());
    let message = match r.u8()? {
        1 => Message::Request { attempt: r.u32()?, requester: r.u32()?, psn: r.u32()? },
        2 => Message::Reply { attempt: r.u32()?, responder: r.u32()?, counter: (r.u64()?, r.u32()?) },
        3 => Message::Refuse { attempt: r.u32()?, why: text(&mut r)? },
        4 => Message::Ping,
        5 => Message::Pong,
        6 => Message::Lost { blamed: r.u32()?.checked_sub(1), why: text(&mut r)? },
        7 => Message::Pair { attempt: r.u32()?, number: r.u32()?, psn: r.u32()? },
        8 => Message::Paired { answers: r.u32()?, attempt: r.u32()?, number: r.u32()?, psn: r.u32()? },
        10 => Message::Left,
        11 => Message::Moved { number: r.u32()?, lid: r.u32()?.try_into().ok()?, gid: sixteen(&mut r)? },
        12 => Message::Noted { number: r.u32()? },
        9 => Message::Unpaired { answers: r.u32()?, why: text(&mut r)? },
        _ => return None,
    };
    Some((source, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TOKEN: Token = [9; 16];

    #[test]
    fn address_round_trips() {
        let address = EndpointAddress {
            gid: [3; 16],
            lid: 500,
            ethernet: true,
            global: true,
            partition: 0x8001,
            mtu: 5,
            depth: 16,
            atomics: true,
            relaxed: false,
            datagrams: 17,
            qkey: 0x1111_2222,
            token: TOKEN,
            node: b"boot id".to_vec(),
            pid: 1234,
        };
        let bytes = address.write();
        assert_eq!(EndpointAddress::read(&bytes), Some(address));
        assert!((0..bytes.len()).all(|n| EndpointAddress::read(&bytes[..n]).is_none()));
    }

    #[test]
    fn messages_round_trip_and_fit() {
        let long = "x".repeat(1000);
        for m in [
            Message::Request { attempt: 1, requester: 2, psn: 3 },
            Message::Reply { attempt: 4, responder: 5, counter: (6, 7) },
            Message::Refuse { attempt: 6, why: "no room".into() },
            Message::Ping,
            Message::Pong,
            Message::Pair { attempt: 7, number: 8, psn: 9 },
            Message::Paired { answers: 10, attempt: 11, number: 12, psn: 13 },
            Message::Unpaired { answers: 14, why: "no room".into() },
            Message::Left,
            Message::Moved { number: 15, lid: 16, gid: [17; 16] },
            Message::Noted { number: 18 },
            Message::Lost { blamed: Some(0), why: "killed".into() },
            Message::Lost { blamed: None, why: String::new() },
        ] {
            let bytes = write(7, &TOKEN, &m);
            assert!(bytes.len() <= DATAGRAM);
            assert_eq!(read(&bytes, &TOKEN), Some((7, m)));
            assert_eq!(read(&bytes, &[8; 16]), None, "another rank's token");
        }
        assert!(write(0, &TOKEN, &Message::Lost { blamed: None, why: long.clone() }).len() <= DATAGRAM);
        assert!(write(0, &TOKEN, &Message::Refuse { attempt: 0, why: long }).len() <= DATAGRAM);
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(read(&bytes, &TOKEN).is_none(), "sixteen bytes of secret by chance");
            let _ = EndpointAddress::read(&bytes);
        }

        #[test]
        fn any_bytes_behind_the_token_are_refused_or_read(tail in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut bytes = Writer::new().u32(MAGIC).bytes(&TOKEN).done();
            bytes.extend(tail);
            if let Some((source, m)) = read(&bytes, &TOKEN) {
                let again = write(source, &TOKEN, &m);
                if !matches!(m, Message::Lost { .. } | Message::Refuse { .. } | Message::Unpaired { .. }) {
                    prop_assert_eq!(read(&again, &TOKEN), Some((source, m)));
                }
            }
        }
    }
}
