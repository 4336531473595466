//! Messages between the ranks: a header and a body. Bytes of a peer are checked before they are used.

/// Number of bytes of a header.
pub(super) const HEADER: usize = 16;
/// Maximum number of words of a body that is not a packet's.
pub(super) const WORDS: usize = 4;

/// Classes of messages that wait for room at the receiver.
pub(super) const CLASSES: usize = 2;
pub(super) const PACKETS: usize = 0;
pub(super) const SIGNALS: usize = 1;

/// The meaning of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// A packet of the layers above: the rest of the message.
    Packet,
    /// Sets a signal cell.
    Signal { region: u64, offset: u64, value: u64 },
    /// Only the header counts.
    Credit,
    /// The sender is about to access a region, under a lease of its own.
    Use { region: u64, lease: u64 },
    /// The receiver may use the region of the lease, at this address and with this key of the provider.
    Granted { lease: u64, address: u64, key: u64, len: u64 },
    /// The region is gone, or is about to go: the receiver ends its accesses, and gives the lease back.
    Revoked { lease: u64 },
    /// The sender accesses the region no more.
    Ended { region: u64, lease: u64 },
}

impl Message {
    /// The number of the kind, and the words of the body.
    fn parts(self) -> (u8, [u64; WORDS], usize) {
        match self {
            Self::Packet => (1, [0; WORDS], 0),
            Self::Signal { region, offset, value } => (2, [region, offset, value, 0], 3),
            Self::Credit => (3, [0; WORDS], 0),
            Self::Use { region, lease } => (4, [region, lease, 0, 0], 2),
            Self::Granted { lease, address, key, len } => (5, [lease, address, key, len], 4),
            Self::Revoked { lease } => (6, [lease, 0, 0, 0], 1),
            Self::Ended { region, lease } => (7, [region, lease, 0, 0], 2),
        }
    }

    /// The class, if the message waits for room.
    pub(super) fn class(self) -> Option<usize> {
        match self {
            Self::Packet => Some(PACKETS),
            Self::Signal { .. } => Some(SIGNALS),
            _ => None,
        }
    }

    /// Writes the header and the words of the body; returns their number of bytes. `taken`: how many messages of each
    /// class the sender has taken from the receiver.
    pub(super) fn write(self, source: u32, taken: [u32; CLASSES], to: &mut [u8]) -> usize {
        let (kind, words, count) = self.parts();
        to[..4].copy_from_slice(&[kind, 0, 0, 0]);
        for (at, word) in [source, taken[0], taken[1]].into_iter().enumerate() {
            to[4 + 4 * at..][..4].copy_from_slice(&word.to_le_bytes());
        }
        for (at, word) in words[..count].iter().enumerate() {
            to[HEADER + 8 * at..][..8].copy_from_slice(&word.to_le_bytes());
        }
        HEADER + 8 * count
    }

    /// Reads a message: its source, the counts of the header, the meaning, and the rest of the bytes.
    pub(super) fn read(bytes: &[u8]) -> Option<(u32, [u32; CLASSES], Self, &[u8])> {
        let (header, body) = bytes.split_at_checked(HEADER)?;
        let half = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let word = |at: usize| body.get(8 * at..8 * at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let message = match header[0] {
            1 => Self::Packet,
            2 => Self::Signal { region: word(0)?, offset: word(1)?, value: word(2)? },
            3 => Self::Credit,
            4 => Self::Use { region: word(0)?, lease: word(1)? },
            5 => Self::Granted { lease: word(0)?, address: word(1)?, key: word(2)?, len: word(3)? },
            6 => Self::Revoked { lease: word(0)? },
            7 => Self::Ended { region: word(0)?, lease: word(1)? },
            _ => return None,
        };
        Some((half(4), [half(8), half(12)], message, body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_back_and_short_ones_refused() {
        let (region, lease) = (7, 1 << 40);
        for message in [
            Message::Packet,
            Message::Signal { region, offset: u64::MAX, value: 3 },
            Message::Credit,
            Message::Use { region, lease },
            Message::Granted { lease, address: 1, key: 2, len: 3 },
            Message::Revoked { lease },
            Message::Ended { region, lease },
        ] {
            let mut bytes = [0; 64];
            let len = message.write(5, [1, u32::MAX], &mut bytes);
            let (source, taken, read, _) = Message::read(&bytes[..len]).unwrap();
            assert_eq!((source, taken, read), (5, [1, u32::MAX], message));
            assert!(len == HEADER || Message::read(&bytes[..len - 1]).is_none());
        }
        assert!(Message::read(&[0; HEADER - 1]).is_none() && Message::read(&[0; 64]).is_none());
    }
}
