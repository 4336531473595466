//! The receive buffer of a connection, of fixed length, and the payload that is being placed as it arrives. A connection to
//! a peer has a buffer only while it receives, and while a part of a frame is in it.

use super::frame::{HEADER, Header, Kind, WHOLE};

/// Length of the buffer of a connection to a peer.
pub(super) const LEN: usize = 64 << 10;
/// Maximum number of bytes of the buffer that one receive fills while payloads are placed as they arrive, so that
/// little of them is copied.
const PLACING_LEN: usize = 4 << 10;
/// Length of the buffer during the handshake.
pub(super) const HANDSHAKE_LEN: usize = 512;

/// A payload that is placed as it arrives.
pub(super) struct Payload {
    pub(super) kind: Kind,
    pub(super) flags: u8,
    /// The remote address of the next bytes of a write. The offset of a packet is the number of its bytes that have
    /// arrived.
    pub(super) key: u64,
    pub(super) offset: u64,
    pub(super) left: usize,
}

impl Payload {
    pub(super) fn of(header: &Header) -> Self {
        let Header { kind, flags, key, offset, .. } = *header;
        Self { kind, flags, key, offset, left: header.payload() }
    }
}

/// The receive buffer.
#[derive(Default)]
pub(super) struct Input {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    pub(super) payload: Option<Payload>,
    /// Whether the last bytes belonged to such a payload.
    pub(super) is_bulky: bool,
    /// Number of bytes that have arrived, in the buffer or directly at their destination.
    pub(super) total: u64,
}

impl Input {
    pub(super) fn new(len: usize) -> Self {
        Self { bytes: vec![0; len].into(), ..Self::default() }
    }

    /// Uses `spare` as the buffer unless a buffer is in use.
    pub(super) fn lend(&mut self, spare: &mut Box<[u8]>) {
        if self.bytes.is_empty() {
            self.bytes = std::mem::take(spare);
        }
        if self.bytes.is_empty() {
            self.bytes = vec![0; LEN].into();
        }
    }

    /// Returns the buffer to `spare` if it is empty.
    pub(super) fn return_buffer(&mut self, spare: &mut Box<[u8]>) {
        if self.start == self.end && !self.bytes.is_empty() {
            *spare = std::mem::take(&mut self.bytes);
        }
    }

    /// Continues with bytes that arrived after the handshake of a connection.
    pub(super) fn resume(&mut self, early: &[u8], spare: &mut Box<[u8]>) {
        self.lend(spare);
        self.free()[..early.len()].copy_from_slice(early);
        self.arrived(early.len());
    }

    /// The bytes that have arrived and were not consumed.
    pub(super) fn held(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(super) fn consume(&mut self, len: usize) {
        self.start += len;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// The free part of the buffer: after the header of a frame that is received completely, there is space for its
    /// payload.
    pub(super) fn free(&mut self) -> &mut [u8] {
        if self.bytes.len() - self.end < WHOLE + HEADER && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.bytes[self.end..]
    }

    /// The part of the free space that one receive fills.
    pub(super) fn room(&mut self) -> &mut [u8] {
        let most = if self.is_bulky { PLACING_LEN } else { LEN };
        let free = self.free();
        let len = free.len().min(most);
        &mut free[..len]
    }

    /// Counts bytes that were written to the free part as arrived.
    pub(super) fn arrived(&mut self, len: usize) {
        self.end += len;
        self.total += len as u64;
    }

    /// The next frame: its header, and whether its whole payload has arrived. `None` if the header has not arrived.
    pub(super) fn frame(&self) -> Option<Result<(Header, bool), &'static str>> {
        let held = self.held();
        let header = Header::read(held.first_chunk()?).ok_or("the peer sent a malformed header");
        Some(header.map(|header| (header, held.len() - HEADER >= header.payload())))
    }

    /// The payload of a frame that has arrived completely.
    pub(super) fn whole(&self, header: &Header) -> &[u8] {
        &self.held()[HEADER..][..header.payload()]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A stream of frames is parsed in the same way however it is divided, and arbitrary bytes end in an error or a
        /// wait.
        #[test]
        fn frames_are_read_however_they_arrive(
            lens in prop::collection::vec(0usize..WHOLE, 1..30),
            cuts in prop::collection::vec(1usize..20_000, 1..50),
            noise in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let mut stream = Vec::new();
            for len in &lens {
                stream.extend(Header { len: *len as u64, ..Header::new(Kind::Packet) }.bytes());
                stream.extend(vec![*len as u8; *len]);
            }
            stream.extend(&noise);
            let mut input = Input::new(LEN);
            let (mut seen, mut at, mut cuts) = (0, 0, cuts.into_iter().cycle());
            while at < stream.len() {
                let free = input.free();
                let len = cuts.next().unwrap().min(free.len()).min(stream.len() - at);
                prop_assert!(len > 0, "no room");
                free[..len].copy_from_slice(&stream[at..at + len]);
                input.arrived(len);
                at += len;
                while let Some(Ok((header, true))) = input.frame() {
                    if seen < lens.len() {
                        prop_assert_eq!(header.len as usize, lens[seen]);
                        prop_assert!(input.whole(&header).iter().all(|b| *b == lens[seen] as u8));
                    }
                    seen += 1;
                    input.consume(HEADER + header.payload());
                }
                if seen >= lens.len() {
                    return Ok(());
                }
            }
            prop_assert!(seen >= lens.len());
        }
    }
}
