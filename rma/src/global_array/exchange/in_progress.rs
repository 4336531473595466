#![allow(unsafe_code)]
//! The messages of a transfer in progress.

use std::fmt;
use std::rc::Rc;

use bytemuck::Pod;
use farside_core::am::{Sink, Source};
use farside_core::two_sided::Mode;
use farside_core::{Result, Team};

use super::schedule::{Message, Place};
use crate::collectives::Pending as _;
use crate::messages::pending::{Receiving, Sending, pattern};
use crate::raw::TypedMemory;

/// The messages of a step of a transfer. Dropping them ends them.
pub(in crate::global_array) struct InProgress<T> {
    sends: Vec<Sending>,
    receives: Vec<Receiving>,
    /// Memory for the whole array, if the transfer needs it. Dropped after the messages that access it.
    pub(super) whole: Vec<T>,
}

impl<T> Default for InProgress<T> {
    fn default() -> Self {
        Self { sends: Vec::new(), receives: Vec::new(), whole: Vec::new() }
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
                // SAFETY: the caller's promise; memory for the whole array is dropped after the messages.
                let sending = unsafe { Sending::start_from(both, source, message.peer, tag, Mode::Standard) }?;
                self.sends.extend(sending);
            } else {
                let pattern = pattern(both, Some(message.peer), Some(tag))?;
                // SAFETY: as above, and a layout of a distribution has each of the elements once.
                let receiving = unsafe { Receiving::start_into(both, Sink::layout(Rc::new(memory)), pattern) }?;
                self.receives.push(receiving);
            }
        }
        Ok(())
    }

    /// Waits until all messages are complete, and forgets them; returns the first error.
    pub(super) fn wait(&mut self) -> Result<()> {
        self.sends.iter().try_for_each(|send| send.wait())?;
        self.receives.iter().try_for_each(|receive| receive.wait())?;
        self.sends.clear();
        self.receives.clear();
        Ok(())
    }

    /// Whether all messages are complete, making progress.
    pub(super) fn is_done(&self) -> Result<bool> {
        let sent = self.sends.iter().try_fold(true, |all, send| Ok::<_, farside_core::Error>(send.test()? && all))?;
        self.receives.iter().try_fold(sent, |all, receive| Ok(receive.test()? && all))
    }
}
