#![allow(unsafe_code)]
//! The sender's part of a message that both ranks copy (`read.rs`): it writes segments into the sink that the target
//! has exported.

use super::messenger::Messenger;
use super::offer::{FAILED, MAX_OFFERED_BLOCKS, Write, Writing};
use super::pieces::{BYTES_PER_TURN, Pieces, cut, few_blocks};
use super::read::{forget, import};
use super::sink::Source;
use crate::device::{Operation, Range};
use crate::error::{Error, ErrorKind, Result};
use crate::tracked::Track;

/// Outcome of a step of the writes.
pub(super) struct Step {
    /// The number of written segments to report to the target; `None` if it has been reported.
    pub(super) report: Option<u64>,
    /// Whether no segment is left for this rank.
    pub(super) is_last: bool,
}

impl Writing {
    /// Claims and writes the next segments of a message, and reports them, since this rank may compute after the step.
    /// Does not wait.
    pub(super) fn advance(&mut self, job: &Messenger, target: u32, source: &Source) -> Step {
        if self.begun.is_none() {
            match Write::begin(job, target, source, self) {
                Ok(begun) => self.begun = begun,
                Err(e) => tracing::debug!(
                    "the sender cannot write the message, because the receive buffer cannot be exported: {e}"
                ),
            }
        }
        let Some(begun) = &self.begun else { return Step { report: None, is_last: true } };
        match begun.post(job, target, &self.sink.ranges, &mut self.posted) {
            Ok(is_last) => {
                let is_news = begun.track.open() == 0 && self.posted > self.reported;
                self.reported = if is_news { self.posted } else { self.reported };
                Step { report: is_news.then_some(self.posted.into()), is_last }
            }
            Err(e) => {
                tracing::debug!("the sender cannot write further segments of a message, so the target reads them: {e}");
                Step { report: Some(FAILED), is_last: true }
            }
        }
    }

    /// Ends the writes: afterwards the source is no longer read.
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
            job.active_messages().claims.borrow_mut().find(job.device(), target, (key, *number), pieces.count());
        let blocks =
            few_blocks(len, MAX_OFFERED_BLOCKS, source.one(), |from, len, blocks| source.blocks(from, len, blocks))?;
        let Some((claims, from)) = claims.zip(blocks) else { return Ok(None) };
        let shortest = len / from.len().max(writing.sink.ranges.len()).max(1);
        let region = import(job, target, &writing.sink.key, shortest)?;
        Ok(region.map(|region| Self { claims, region, from, pieces, track: Track::new() }))
    }

    /// Posts the next segments, one at a time, after the first `posted` ones; returns whether no segment is left.
    fn post(&self, job: &Messenger, target: u32, sink: &[Range], posted: &mut u32) -> Result<bool> {
        let mut left = BYTES_PER_TURN;
        while self.track.open() == 0 && left > 0 {
            self.track.check()?;
            // The count is tested too: a target that reset its claims would let this rank claim without end.
            if *posted == self.pieces.count() || !self.claims.claim() {
                return Ok(true);
            }
            let (from, len) = self.pieces.nth(self.pieces.count() - 1 - *posted);
            let (from, ranges) = (cut(&self.from, from, len), cut(sink, from, len));
            let operation = Operation::write_list(&from, self.region, &ranges);
            // SAFETY: the source is valid until the message is complete or cancelled, before which the writes end.
            if unsafe { job.try_post(target, operation, None, &[&self.track]) }?.is_none() {
                return Err(Error::new(ErrorKind::Limit, "write a segment of a message")
                    .cause("the send queue of the device is full"));
            }
            *posted += 1;
            left = left.saturating_sub(len);
        }
        Ok(false)
    }
}
