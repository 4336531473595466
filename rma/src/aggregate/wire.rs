#![allow(unsafe_code)]
//! Messages of aggregated operations.
//!
//! A header has the kind (1 byte), a level (1), the phase (1), a byte that is 0, the sender's team rank (4), and two
//! words (16), whose meaning depends on the kind. A block's data are records, all of one length.

use std::rc::Rc;

use farside_core::am::{Counters, HandlerId, Source, start_send};
use farside_core::job::Track;
use farside_core::{Result, Team};

const LEN: usize = 24;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Records; the first word is the number of the block in its channel.
    Block = 1,
    /// A block has been consumed.
    Consumed = 2,
    /// The numbers of items pushed and consumed in a subtree of ranks.
    Report = 3,
    /// The root's answer to the reports: whether all items have been consumed (first word).
    Verdict = 4,
    /// The items of a rank that precede its flush (first word: the flush's number) have been applied.
    Flushed = 5,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    /// Number of hops that the block's items had behind them at the sender.
    pub(super) level: u8,
    pub(super) phase: u8,
    pub(super) sender: u32,
    pub(super) words: [u64; 2],
}

impl Header {
    fn write(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..3].copy_from_slice(&[self.kind as u8, self.level, self.phase]);
        bytes[4..8].copy_from_slice(&self.sender.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.words[0].to_le_bytes());
        bytes[16..].copy_from_slice(&self.words[1].to_le_bytes());
        bytes
    }

    /// Reads a header; `None` for malformed bytes.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LEN] = bytes.try_into().ok()?;
        let kinds = [Kind::Block, Kind::Consumed, Kind::Report, Kind::Verdict, Kind::Flushed];
        let kind = kinds.into_iter().find(|kind| *kind as u8 == bytes[0])?;
        let word = |at: usize| bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let sender = bytes[4..].first_chunk().map_or(0, |sender| u32::from_le_bytes(*sender));
        Some(Self { kind, level: bytes[1], phase: bytes[2], sender, words: [word(8), word(16)] })
    }
}

/// A block on its way, whose bytes are not accessed until it has been sent.
pub(super) struct InFlight {
    team: Team,
    track: Rc<Track>,
    bytes: Vec<u8>,
}

impl InFlight {
    /// Returns the buffer, if the block has been sent.
    ///
    /// # Errors
    /// That of the message.
    pub(super) fn sent(&mut self) -> Result<Option<Vec<u8>>> {
        if self.track.open() > 0 {
            return Ok(None);
        }
        self.track.check()?;
        Ok(Some(std::mem::take(&mut self.bytes)))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.track.open() > 0 {
            self.team.job().cancel(&self.track);
        }
    }
}

/// Sends a block without waiting. Returns its buffer if it can be used again at once.
///
/// # Errors
/// `PeerLost`.
pub(super) fn send_block(
    team: &Team,
    to: u32,
    handler: HandlerId,
    header: Header,
    bytes: Vec<u8>,
) -> Result<std::result::Result<Vec<u8>, InFlight>> {
    let block = InFlight { team: team.clone(), track: Track::new(), bytes };
    let (source, header) = (Source::of(&block.bytes), header.write());
    // SAFETY: the bytes belong to `block`, which leaves them alone until the track has counted the message as complete, and
    // otherwise cancels the message before they are freed. The handler validates what it gets.
    let sent = unsafe { start_send(team.job(), to, handler, &header, source, Counters::default(), &block.track) }?;
    let mut block = block;
    Ok(if sent { Ok(std::mem::take(&mut block.bytes)) } else { Err(block) })
}

/// Sends a message without data. Does not wait.
///
/// # Errors
/// `PeerLost`.
pub(super) fn send(team: &Team, to: u32, handler: HandlerId, header: Header) -> Result<()> {
    let (source, header) = (Source::of(&[]), header.write());
    // SAFETY: the message has no data, and the handler validates the header.
    unsafe { start_send(team.job(), to, handler, &header, source, Counters::default(), &Track::new()) }.map(|_| ())
}

/// The 4-byte number at `at`.
pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
}

/// The 8-byte number at the start.
pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |number| u64::from_le_bytes(*number))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn header_is_read_as_it_was_written(level: u8, phase: u8, sender: u32, words: [u64; 2]) {
            let header = Header { kind: Kind::Report, level, phase, sender, words };
            prop_assert_eq!(Header::read(&header.write()), Some(header));
        }

        #[test]
        fn garbage_is_refused_or_read_without_a_panic(bytes: Vec<u8>) {
            let _ = Header::read(&bytes);
        }
    }
}
