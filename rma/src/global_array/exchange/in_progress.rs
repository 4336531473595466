#![allow(unsafe_code)]
//! The messages of a transfer in progress.

use std::fmt;
use std::rc::Rc;

use bytemuck::Pod;
use farside_core::am::{Sink, Source};
use farside_core::two_sided::Mode;
use farside_core::{Error, Job, Result, Team};

use super::schedule::{Message, Place};
use crate::collectives::Pending as _;
use crate::messages::pending::{Receiving, Sending, pattern};
use crate::raw::TypedMemory;

/// The messages of one step of a transfer. Dropping them completes or cancels them.
pub(in crate::global_array) struct InProgress<T> {
    sends: Vec<Sending>,
    /// Receives in progress, each with the number of bytes that it expects.
    receives: Vec<(Receiving, u64)>,
    pub(super) failed: Option<Error>,
    /// Memory for the whole array, if the transfer needs it. Dropped after the messages that access it.
    pub(super) whole: Vec<T>,
}

impl<T> Default for InProgress<T> {
    fn default() -> Self {
        Self { sends: Vec::new(), receives: Vec::new(), failed: None, whole: Vec::new() }
    }
}

impl<T> fmt::Debug for InProgress<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sends, receives) = (self.sends.len(), self.receives.len());
        f.debug_struct("InProgress").field("sends", &sends).field("receives", &receives).finish_non_exhaustive()
    }
}

impl<T: Pod> InProgress<T> {
    /// Starts the messages of a step.
    ///
    /// # Safety
    /// `own` is the address of this rank's elements. They stay valid, and nothing accesses them (or writes to them, if the
    /// step only sends) until the messages have ended.
    pub(super) unsafe fn start(&mut self, both: &Team, tag: i32, step: &[Message], own: *mut u8) -> Result<()> {
        let whole = self.whole.as_mut_ptr().cast::<u8>();
        for message in step {
            let base = if message.place == Place::Own { own } else { whole };
            let memory = TypedMemory { map: message.map.clone(), base };
            if message.is_send {
                let source = Source::Layout(Rc::new(memory));
                // SAFETY: by the caller's contract; memory for the whole array is dropped after the messages.
                let sending = unsafe { Sending::start_from(both, source, message.peer, tag, Mode::Standard) }?;
                self.sends.extend(sending);
            } else {
                let pattern = pattern(both, Some(message.peer), Some(tag))?;
                // SAFETY: as above, and the layout of a distribution contains each element once.
                let receiving = unsafe { Receiving::start_into(both, Sink::layout(Rc::new(memory)), pattern) }?;
                self.receives.push((receiving, message.map.size()));
            }
        }
        Ok(())
    }

    /// Waits until all messages are complete; returns the first error of this step or an earlier one. Afterwards no
    /// message is in progress.
    pub(super) fn wait(&mut self) -> Result<()> {
        if let Some(e) = &self.failed {
            return Err(e.again());
        }
        let sent = self.sends.iter().try_for_each(|send| send.wait());
        let done = sent.and_then(|()| self.receives.iter().try_for_each(|(receive, len)| receive.wait_for_all(*len)));
        self.sends.clear();
        self.receives.clear();
        self.failed = done.as_ref().err().map(Error::again);
        done
    }

    /// Whether all messages are complete, making progress if they are not.
    pub(super) fn is_done(&self, job: &Job) -> Result<bool> {
        let is_done =
            || self.sends.iter().all(Sending::is_done) && self.receives.iter().all(|(receive, _)| receive.is_done());
        Ok(is_done() || job.progress_of_test().map(|_| is_done())?)
    }
}
