//! Authentication and encryption, by the Noise protocol (revision 34) with the secret of the job: `NNpsk0`.
//!
//! The rank that accepts a connection sends 32 random bytes. They are part of the prologue of the handshake, so the
//! first message of the other side proves that its sender has the secret and that it was not replayed. The answer
//! proves the same for this side. Both messages contain a [`Greeting`] with the numbers of both ranks.

use std::io;

use snow::{Builder, HandshakeState, TransportState};

use crate::device::wait::random;
use crate::wire::{Reader, Writer};

/// Bytes of the secret, and of a challenge.
pub(super) const SECRET: usize = 32;
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
const PROLOGUE: &[u8] = b"farside tcp 1";
/// Bytes of an authentication tag.
pub(super) const TAG: usize = 16;
/// Bytes of a message of the handshake: a key, a tag, and a greeting.
pub(super) const MESSAGE: usize = 32 + TAG + GREETING;
const GREETING: usize = 29;
/// Maximum number of bytes of an encrypted record.
pub(super) const RECORD: usize = 16 << 10;

/// A failed handshake, or a forged record.
#[derive(Debug)]
pub(super) struct Refused;

impl From<snow::Error> for Refused {
    fn from(_: snow::Error) -> Self {
        Self
    }
}

/// Random bytes for the other side.
pub(super) fn challenge() -> io::Result<[u8; SECRET]> {
    random()
}

fn builder<'a>(secret: &'a [u8; SECRET], prologue: &'a [u8]) -> Result<Builder<'a>, Refused> {
    let pattern = PATTERN.parse().map_err(|_| Refused)?;
    Ok(Builder::new(pattern).psk(0, secret)?.prologue(prologue)?)
}

/// The first message of each side of a connection to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) from: u32,
    pub(super) to: u32,
    /// Number of attempts to connect to the other side; the accepting side abandons the attempts that it has begun.
    pub(super) dials: u32,
    /// Number of bytes that have arrived from the other side, over all connections.
    pub(super) received: u64,
    /// The rank to which the connection leads (not `to` if `to` is a relay), the rank from which it comes, and the number
    /// of further ranks over which it may lead.
    pub(super) target: u32,
    pub(super) origin: u32,
    pub(super) hops: u8,
}

impl Greeting {
    /// A greeting for a direct connection of the two ranks.
    pub(super) fn new(from: u32, to: u32, dials: u32, received: u64) -> Self {
        Self { from, to, dials, received, target: to, origin: from, hops: 0 }
    }

    fn message(&self, state: &mut HandshakeState) -> Result<[u8; MESSAGE], Refused> {
        let Self { from, to, dials, received, target, origin, hops } = *self;
        let greeting = Writer::new().u32(from).u32(to).u32(dials).u64(received).u32(target).u32(origin).u8(hops);
        let mut message = [0; MESSAGE];
        let len = state.write_message(&greeting.done(), &mut message)?;
        if len == MESSAGE { Ok(message) } else { Err(Refused) }
    }

    /// Decrypts and parses a message of the other side.
    fn read(state: &mut HandshakeState, message: &[u8; MESSAGE]) -> Result<Self, Refused> {
        let mut greeting = [0; MESSAGE];
        let len = state.read_message(message, &mut greeting)?;
        let mut r = Reader::new(greeting.get(..len).ok_or(Refused)?);
        let mut read = || {
            let (from, to, dials, received) = (r.u32()?, r.u32()?, r.u32()?, r.u64()?);
            let (target, origin, hops) = (r.u32()?, r.u32()?, r.u8()?);
            Some(Self { from, to, dials, received, target, origin, hops })
        };
        read().ok_or(Refused)
    }
}

/// At the connecting side: processes the challenge; returns the state and the first message.
pub(super) fn begin(
    secret: &[u8; SECRET],
    challenge: &[u8; SECRET],
    greeting: &Greeting,
) -> Result<(Box<HandshakeState>, [u8; MESSAGE]), Refused> {
    let prologue = [PROLOGUE, challenge].concat();
    let mut state = Box::new(builder(secret, &prologue)?.build_initiator()?);
    let message = greeting.message(&mut state)?;
    Ok((state, message))
}

/// At the accepting side: processes the first message; returns the greeting, and the state for [`reply`].
pub(super) fn read_greeting(
    secret: &[u8; SECRET],
    challenge: &[u8; SECRET],
    me: u32,
    first: &[u8; MESSAGE],
) -> Result<(Greeting, Box<HandshakeState>), Refused> {
    let prologue = [PROLOGUE, challenge].concat();
    let mut state = Box::new(builder(secret, &prologue)?.build_responder()?);
    let greeting = Greeting::read(&mut state, first)?;
    if greeting.to != me || greeting.from == me { Err(Refused) } else { Ok((greeting, state)) }
}

/// At the accepting side: returns the answer.
pub(super) fn reply(
    mut state: Box<HandshakeState>,
    greeting: &Greeting,
) -> Result<([u8; MESSAGE], TransportState), Refused> {
    let answer = greeting.message(&mut state)?;
    Ok((answer, state.into_transport_mode()?))
}

/// At the connecting side: processes the answer.
pub(super) fn finish(
    mut state: Box<HandshakeState>,
    (me, peer): (u32, u32),
    answer: &[u8; MESSAGE],
) -> Result<(Greeting, TransportState), Refused> {
    let greeting = Greeting::read(&mut state, answer)?;
    if (greeting.from, greeting.to) != (peer, me) {
        return Err(Refused);
    }
    Ok((greeting, state.into_transport_mode()?))
}

/// Encrypted records: a length of 2 bytes, and the bytes with a tag.
pub(super) struct Seal {
    state: TransportState,
    out: Vec<u8>,
    sent: usize,
    received: Vec<u8>,
    /// Number of bytes of `received` that have arrived, and number of those that were consumed.
    arrived: usize,
    used: usize,
}

impl Seal {
    pub(super) fn new(state: TransportState) -> Self {
        Self { state, out: Vec::new(), sent: 0, received: vec![0; 2 * (2 + RECORD + TAG)], arrived: 0, used: 0 }
    }

    /// Encrypted bytes that are to be sent.
    pub(super) fn pending(&self) -> &[u8] {
        &self.out[self.sent..]
    }

    pub(super) fn sent(&mut self, len: usize) {
        self.sent += len;
    }

    /// Encrypts at most [`RECORD`] bytes. No encrypted bytes may be pending.
    pub(super) fn seal(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        self.out.resize(2 + bytes.len() + TAG, 0);
        self.sent = 0;
        let len = self.state.write_message(bytes, &mut self.out[2..])?;
        self.out.truncate(2 + len);
        self.out[..2].copy_from_slice(&(len as u16).to_le_bytes());
        Ok(())
    }

    /// The buffer for encrypted bytes.
    pub(super) fn free(&mut self) -> &mut [u8] {
        if self.used > 0 {
            self.received.copy_within(self.used..self.arrived, 0);
            (self.arrived, self.used) = (self.arrived - self.used, 0);
        }
        &mut self.received[self.arrived..]
    }

    pub(super) fn arrived(&mut self, len: usize) {
        self.arrived += len;
    }

    /// Whether a complete record has arrived, or an invalid one.
    pub(super) fn has_record(&self) -> bool {
        let held = &self.received[self.used..self.arrived];
        held.split_first_chunk().is_some_and(|(len, rest)| rest.len() >= usize::from(u16::from_le_bytes(*len)))
    }

    /// Decrypts the next record into `to`, which has space for it; `None` until a complete record has arrived.
    pub(super) fn open(&mut self, to: &mut [u8]) -> Result<Option<usize>, Refused> {
        let held = &self.received[self.used..self.arrived];
        let Some((len, rest)) = held.split_first_chunk() else { return Ok(None) };
        let len = usize::from(u16::from_le_bytes(*len));
        if !(TAG..=RECORD + TAG).contains(&len) {
            return Err(Refused);
        }
        let Some(record) = rest.get(..len) else { return Ok(None) };
        if to.len() < len {
            return Ok(None);
        }
        let opened = self.state.read_message(record, to)?;
        self.used += 2 + len;
        Ok(Some(opened))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_prove_the_secret_and_the_ranks() {
        let (secret, other, challenge) = ([1; SECRET], [2; SECRET], [3; SECRET]);
        let greeting = Greeting { target: 9, origin: 2, hops: 3, ..Greeting::new(4, 7, 5, 1 << 40) };
        let (state, first) = begin(&secret, &challenge, &greeting).unwrap();
        assert!(read_greeting(&other, &challenge, 7, &first).is_err(), "another secret");
        assert!(read_greeting(&secret, &[4; SECRET], 7, &first).is_err(), "an earlier challenge");
        assert!(read_greeting(&secret, &challenge, 6, &first).is_err(), "another rank");
        let mut changed = first;
        changed[40] ^= 1;
        assert!(read_greeting(&secret, &challenge, 7, &changed).is_err());
        let (heard, responder) = read_greeting(&secret, &challenge, 7, &first).unwrap();
        assert_eq!(heard, greeting);
        let own = Greeting::new(7, 4, 1, 20);
        let (answer, responder) = reply(responder, &own).unwrap();
        let (again, _) = begin(&secret, &challenge, &greeting).unwrap();
        assert!(finish(again, (4, 7), &answer).is_err(), "the answer to another first message");
        let (heard, initiator) = finish(state, (4, 7), &answer).unwrap();
        assert_eq!(heard, own);

        let (mut a, mut b) = (Seal::new(initiator), Seal::new(responder));
        let mut opened = vec![0; RECORD + TAG];
        for len in [0, 1, 100, RECORD] {
            a.seal(&vec![len as u8; len]).unwrap();
            let bytes = a.pending().to_vec();
            a.sent(bytes.len());
            for part in bytes.chunks(7000) {
                assert!(matches!(b.open(&mut opened), Ok(None)));
                b.free()[..part.len()].copy_from_slice(part);
                b.arrived(part.len());
            }
            assert_eq!(b.open(&mut opened).unwrap(), Some(len));
            assert!(opened[..len].iter().all(|byte| *byte == len as u8));
        }
        a.seal(&[5; 10]).unwrap();
        let mut forged = a.pending().to_vec();
        forged[5] ^= 1;
        b.free()[..forged.len()].copy_from_slice(&forged);
        b.arrived(forged.len());
        assert!(b.open(&mut opened).is_err());
    }
}
