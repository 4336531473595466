//! The data of a message that is being sent: in its owner's buffer, or a copy.

use std::rc::Rc;

use smallvec::SmallVec;

use super::counter::Counter;
use super::packet::OP;
use super::sink::Source;
use crate::device::Block;
use crate::error::{Error, ErrorKind, Result};
use crate::tracked::Track;

/// Maximum length of data that is copied if the queue is full, so that the buffer is reusable at once.
pub(super) const COPIED: usize = 64;

pub(super) type Header = SmallVec<[u8; 32]>;

/// Data that stays in its owner's buffer until the track counts the message as complete.
pub(super) struct Lent {
    pub(super) source: Source,
    pub(super) origin: Option<Counter>,
    /// `None` once the message has ended.
    pub(super) track: Option<Rc<Track>>,
}

impl Lent {
    pub(super) fn new(source: Source, origin: Option<&Counter>, track: &Rc<Track>) -> Self {
        track.open_one();
        Self { source, origin: origin.cloned(), track: Some(Rc::clone(track)) }
    }

    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    pub(super) fn complete(mut self) {
        self.origin.take().inspect(Counter::increment);
        self.track.take().inspect(|track| track.close());
    }

    pub(super) fn fail(mut self, error: &Error) {
        self.track.take().inspect(|track| track.end(&Err(error.again())));
    }

    pub(super) fn cancel(mut self) {
        self.track.take().inspect(|track| track.close());
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(track) = self.track.take() {
            track.end(&Err(Error::new(ErrorKind::Aborted, OP).cause("the handler panicked, or the job has ended")));
        }
    }
}

/// The data of a message.
pub(super) enum Data {
    Copied(SmallVec<[u8; COPIED]>),
    Lent(Lent),
}

impl Data {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Copied(bytes) => bytes.len(),
            Self::Lent(lent) => lent.source.len(),
        }
    }

    pub(super) fn blocks(&self, from: usize, len: usize, blocks: &mut Vec<Block>) -> Result<()> {
        match self {
            Self::Copied(bytes) => {
                blocks.clear();
                blocks.push(Block::of(bytes[from..].as_ptr(), len));
                Ok(())
            }
            Self::Lent(lent) => lent.source.blocks(from, len, blocks),
        }
    }

    pub(super) fn is_of(&self, track: &Rc<Track>) -> bool {
        matches!(self, Self::Lent(lent) if lent.track.as_ref().is_some_and(|t| Rc::ptr_eq(t, track)))
    }

    pub(super) fn complete(self) {
        if let Self::Lent(lent) = self {
            lent.complete();
        }
    }

    pub(super) fn fail(self, error: &Error) {
        if let Self::Lent(lent) = self {
            lent.fail(error);
        }
    }

    pub(super) fn cancel(self) {
        if let Self::Lent(lent) = self {
            lent.cancel();
        }
    }
}
