//! Frames: a header of 32 bytes, and a payload of at most 256 KiB.
//!
//! ```text
//! 0   kind (1 byte), flags (1), size (2): bytes of an integer, or a status; code (4): of an accumulate, or a count
//! 8   key        16  offset        24  length, or a value
//! ```
//!
//! Requests are served and answered in the order in which they were sent, so answers have no numbers. An operation may
//! be several frames; the last one has [`LAST`]: it gets one `Ack`, or a `Done` with a status, after the `Data` that it
//! requested. If a frame of an operation fails, its later frames have no effect.

use crate::device::code;

/// Bytes of a header.
pub(super) const HEADER: usize = 32;
/// Maximum payload, in bytes, of a write, or of a segment of the data of a read.
pub(super) const CHUNK: usize = 256 << 10;
/// Maximum length of a packet in bytes: a message of 16 KiB with its headers.
pub(super) const MAX_PACKET: usize = (16 << 10) + 64;
/// Maximum length in bytes of a packet that is sent from the caller's memory: a message of 64 KiB with its headers, so
/// that the credits of a peer suffice for several.
pub(super) const MAX_LENT_PACKET: usize = (64 << 10) + 512;
/// Maximum length in bytes of a segment of an accumulate: a multiple of the size of every element.
pub(super) const PIECE: usize = 12 << 10;
/// Maximum payload, in bytes, of a frame that is received completely before it is served.
pub(super) const WHOLE: usize = MAX_PACKET;
/// Maximum number of bytes of a text.
pub(super) const TEXT: usize = 300;

/// Flag of the last frame of an operation, which is answered.
pub(super) const LAST: u8 = 1;
/// Flag of a signal that belongs to the operation before it, and is not set if that has failed.
pub(super) const NOTIFY: u8 = 2;
/// Flag of an accumulate that returns the previous values.
pub(super) const RETURN: u8 = 4;
/// Flag of the last data for one frame.
pub(super) const END: u8 = 8;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $flags:expr;)*) => {
        /// The kind of a frame.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(super) enum Kind { $($(#[$doc])* $name = $number,)* }

        impl Kind {
            #[cfg(test)]
            const ALL: &'static [Kind] = &[$(Kind::$name),*];

            /// The kind with this number, if these flags are allowed for it.
            fn of(number: u8, flags: u8) -> Option<Self> {
                match number {
                    $($number if flags & !($flags) == 0 => Some(Kind::$name),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    Write = 1, LAST;
    Read = 2, LAST;
    /// The length is the addend.
    FetchAdd = 3, LAST;
    /// The payload is the expected and the desired value.
    CompareSwap = 4, LAST;
    Accumulate = 5, LAST | RETURN;
    /// The length is the new value of the cell.
    Signal = 6, LAST | NOTIFY;
    /// The key is the number of bytes that have arrived from the peer, or 0: a message that ends the use of a region
    /// also acknowledges the bytes that were sent from it.
    Packet = 7, LAST;
    /// Data of a read, or a previous value.
    Data = 8, END;
    /// The code is a number of operations that have succeeded; the key of this and the following kinds but `News` is
    /// that of a packet.
    Ack = 9, 0;
    /// The size is the status of an operation.
    Done = 10, 0;
    /// The code is the number of returned credits: those of packets that the program has received.
    Credit = 11, 0;
    /// The rank in the key has left (size 0) or is lost (1); the offset is the rank that caused the loss.
    News = 12, 0;
    /// Only an acknowledgement: the number of bytes that have arrived.
    Received = 13, 0;
}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) flags: u8,
    pub(super) size: u16,
    pub(super) code: u32,
    pub(super) key: u64,
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl Header {
    /// A header of this kind whose other fields are zero.
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, flags: 0, size: 0, code: 0, key: 0, offset: 0, len: 0 }
    }

    pub(super) fn bytes(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        (bytes[0], bytes[1]) = (self.kind as u8, self.flags);
        bytes[2..4].copy_from_slice(&self.size.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.code.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.key.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    /// Parses a header; `None` if it is malformed.
    pub(super) fn read(b: &[u8; HEADER]) -> Option<Self> {
        let word = |at: usize| b[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let header = Self {
            kind: Kind::of(b[0], b[1])?,
            flags: b[1],
            size: u16::from_le_bytes([b[2], b[3]]),
            code: u32::from_le_bytes([b[4], b[5], b[6], b[7]]),
            key: word(8),
            offset: word(16),
            len: word(24),
        };
        header.is_valid().then_some(header)
    }

    fn is_valid(&self) -> bool {
        let most = match self.kind {
            Kind::Write | Kind::Data => CHUNK,
            Kind::Accumulate => PIECE,
            Kind::Packet => MAX_LENT_PACKET,
            Kind::News => TEXT,
            Kind::CompareSwap => return matches!(self.size, 1 | 2 | 4 | 8),
            Kind::Read => return self.offset.checked_add(self.len).is_some(),
            Kind::Ack | Kind::Credit => return self.code > 0,
            Kind::FetchAdd | Kind::Signal | Kind::Done | Kind::Received => return true,
        };
        self.len <= most as u64 && (self.kind != Kind::Accumulate || self.code != code::COMPARE_SWAP)
    }

    /// Number of bytes of the payload, at most [`CHUNK`].
    pub(super) fn payload(&self) -> usize {
        match self.kind {
            Kind::Write | Kind::Data | Kind::Packet | Kind::News => self.len as usize,
            Kind::CompareSwap => 16,
            Kind::Accumulate => code::operand_len(self.code, self.len as usize),
            Kind::Read | Kind::FetchAdd | Kind::Signal => 0,
            Kind::Ack | Kind::Done | Kind::Credit | Kind::Received => 0,
        }
    }

    /// Number of bytes of the elements that an update changes.
    pub(super) fn updated_bytes(&self) -> usize {
        match self.kind {
            Kind::FetchAdd => 8,
            Kind::CompareSwap => self.size.into(),
            _ => self.len as usize,
        }
    }

    /// Whether the payload may be longer than [`WHOLE`], and is placed as it arrives.
    pub(super) fn is_bulk(&self) -> bool {
        match self.kind {
            Kind::Write | Kind::Data => self.len > 4096,
            _ => self.kind == Kind::Packet && self.len > WHOLE as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_header_is_refused_or_has_a_short_payload_and_is_read_back(mut bytes: [u8; HEADER], small: bool) {
            bytes[0] %= 16;
            bytes[1] %= 16;
            if small {
                bytes[26..].fill(0);
            }
            if let Some(header) = Header::read(&bytes) {
                prop_assert!(header.payload() <= CHUNK);
                prop_assert!(header.is_bulk() || header.payload() <= WHOLE);
                prop_assert_eq!(header.bytes(), bytes);
            }
        }
    }

    #[test]
    fn every_kind_is_read_and_long_or_contradictory_ones_are_refused() {
        for kind in Kind::ALL {
            let header = Header { size: 8, code: 1, ..Header::new(*kind) };
            assert_eq!(Header::read(&header.bytes()), Some(header), "{kind:?}");
            let odd = Header { flags: 0x80, ..header };
            assert_eq!(Header::read(&odd.bytes()), None, "{kind:?}");
        }
        let refused = |header: Header| assert_eq!(Header::read(&header.bytes()), None, "{header:?}");
        for (kind, most) in
            [(Kind::Write, CHUNK), (Kind::Data, CHUNK), (Kind::Packet, MAX_LENT_PACKET), (Kind::News, TEXT)]
        {
            refused(Header { len: most as u64 + 1, ..Header::new(kind) });
            refused(Header { len: u64::MAX, ..Header::new(kind) });
        }
        refused(Header { offset: u64::MAX, len: 1, ..Header::new(Kind::Read) });
        refused(Header { size: 3, ..Header::new(Kind::CompareSwap) });
        refused(Header { code: code::COMPARE_SWAP, len: 16, ..Header::new(Kind::Accumulate) });
        assert!(PIECE.is_multiple_of(48));
    }
}
