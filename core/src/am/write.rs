#![allow(unsafe_code)]
//! The sender's part of a message that both ranks copy (`read.rs`): it writes pieces into the sink that the target has
//! lent.

use super::messenger::Messenger;
use super::offer::{FAILED, OFFERED, Write, Writing};
use super::pieces::{Pieces, TURN, cut, few_blocks};
use super::read::{forget, import};
use super::sink::Source;
use crate::device::{Operation, RemoteVector};
use crate::error::Result;
use crate::tracked::Track;

/// Outcome of a step of the writes.
pub(super) enum Step {
    /// The writes continue; whether this step has posted anything.
    UnderWay(bool),
    /// No piece is left for this rank; the report for the target, if any.
    Ended(Option<u64>),
}

impl Writing {
    /// Claims and writes the next pieces of a message. Does not wait.
    pub(super) fn advance(&mut self, job: &Messenger, target: u32, source: &Source) -> Step {
        if self.begun.is_none() {
            match Write::begin(job, target, source, self) {
                Ok(begun) => self.begun = begun,
                Err(e) => tracing::debug!("a message is copied by its target alone: {e}"),
            }
        }
        let Some(begun) = &self.begun else { return Step::Ended(None) };
        let (mut any, mut left) = (false, TURN);
        while begun.track.open() == 0 && left > 0 {
            if begun.track.has_failed() {
                return Step::Ended(Some(FAILED));
            }
            if !begun.claims.claim() {
                return Step::Ended((self.posted > 0).then_some(self.posted.into()));
            }
            let (from, len) = begun.pieces.nth(begun.pieces.count() - 1 - self.posted);
            let to = RemoteVector { region: begun.region, ranges: &cut(&self.sink.ranges, from, len) };
            let operation = Operation::WriteBlocks { from: &cut(&begun.from, from, len), to };
            // SAFETY: the source is valid until the message is complete or cancelled, before which the writes end.
            match unsafe { job.try_post(target, operation, None, &[&begun.track]) } {
                Ok(Some(_)) => {}
                Ok(None) => return Step::Ended(Some(FAILED)),
                Err(e) => {
                    tracing::debug!("the target copies the rest of a message alone: {e}");
                    return Step::Ended(Some(FAILED));
                }
            }
            (self.posted, any) = (self.posted + 1, true);
            left = left.saturating_sub(len);
        }
        Step::UnderWay(any)
    }

    /// Ends the writes: afterwards the source is not read any more.
    pub(super) fn end(self, job: &Messenger) {
        let Some(Write { region, track, .. }) = self.begun else { return };
        if track.open() > 0 {
            job.cancel(&track);
        }
        forget(job, region);
    }
}

impl Write {
    /// Prepares the writes; `None` if this rank cannot reach the claims, or packets would be faster.
    fn begin(job: &Messenger, target: u32, source: &Source, writing: &Writing) -> Result<Option<Self>> {
        let (len, (key, number)) = (writing.sink.len(), &writing.board);
        let Some(pieces) = Pieces::shared(len) else { return Ok(None) };
        let claims =
            job.active_messages().boards.borrow_mut().find(job.device(), target, (key, *number), pieces.count());
        let blocks = few_blocks(len, OFFERED, |from, len, blocks| source.blocks(from, len, blocks))?;
        let Some((claims, from)) = claims.zip(blocks) else { return Ok(None) };
        let shortest = len / from.len().max(writing.sink.ranges.len()).max(1);
        let region = import(job, target, &writing.sink.key, shortest)?;
        Ok(region.map(|region| Self { claims, region, from, pieces, track: Track::new() }))
    }
}
