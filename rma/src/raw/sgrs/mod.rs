//! Send-gather / receive-scatter: a zero-copy transfer between two layouts in messages of many blocks on both sides
//! (Santhanaraman, Wu, Panda, "Zero-Copy MPI Derived Datatype Communication over InfiniBand").
//!
//! | | put | get |
//! |---|---|---|
//! | origin | sends the layouts, unless they are known | posts scatter lists, sends the layouts |
//! | target | matches them, posts scatter lists, answers with their number | matches them, posts gather lists |
//! | origin | posts gather lists | |
//!
//! The receiver decides how the layouts are split into lists. Both ranks split by the same function
//! ([`Plan::descriptors`]), so the decision is only a number of lists and of bytes, for [`message::LISTS`] lists at a
//! time. A layout that has been sent is identified by rank, name and version, and not sent again. Messages: one for
//! each list, and for each [`message::LISTS`] lists one request, and one answer if it is a put.
//!
//! The target takes part, so SGRS is used only in epochs in which it enters the runtime: fence, and start with post and
//! wait. The closing call of the origin does the transfer, while the target is in its own closing call or in another
//! wait. A locked rank may be computing, so transfers in lock epochs do not use its help.
//!
//! An error of a transfer does not keep the closing calls from completing; those of both ranks return it.
//!
//! [`Plan::descriptors`]: farside_datatype::Plan::descriptors

mod known_layouts;
mod message;
mod serve;
mod transfer;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use farside_core::am::{HandlerId, Listening};
use farside_core::device::Lists;
use farside_core::service::records::ServedMemory;
use farside_core::wire::{Reader, Writer};
use farside_core::{Error, Job};
use farside_datatype::PlanLimits;

use super::layouts::Owned;
use known_layouts::KnownLayouts;
use serve::Shared;

/// The SGRS state of a window.
#[derive(Debug)]
pub(super) struct Sgrs {
    shared: Rc<Shared>,
    listening: Listening,
    /// The handlers of the ranks, by team rank.
    handlers: Vec<HandlerId>,
    known: RefCell<Vec<KnownLayouts>>,
    /// Transfers of this epoch, with their targets.
    pending: RefCell<Vec<(usize, Rc<Owned>)>>,
    /// The first transfer of this rank that failed.
    failed: RefCell<Option<Error>>,
    last: Cell<u32>,
    job: Job,
}

fn limits(lists: Lists) -> PlanLimits {
    PlanLimits {
        max_sge: u32::try_from(lists.blocks).unwrap_or(u32::MAX),
        max_message: lists.bytes as u64,
        mapped: false,
        target_helps: true,
    }
}

impl Sgrs {
    /// Makes the state for this rank's memory, if its device has lists.
    pub(super) fn new(job: &Job, memory: &ServedMemory, ranks: usize) -> Option<Self> {
        let lists = job.device().capabilities().lists?;
        let shared = Rc::new(Shared::new(memory.clone(), limits(lists)));
        let handler = Rc::clone(&shared);
        let listening = job.active_messages().listen(move |m| handler.receive(m)).ok()?;
        let known = (0..ranks).map(|_| KnownLayouts::default()).collect();
        let (pending, failed, last) = Default::default();
        Some(Self {
            shared,
            listening,
            handlers: Vec::new(),
            known: RefCell::new(known),
            pending,
            failed,
            last,
            job: job.clone(),
        })
    }

    /// The announcement to the other ranks: the handler and the limits.
    pub(super) fn announcement(this: Option<&Self>) -> Vec<u8> {
        let (handler, limits) = this.map_or((0, None), |s| (s.listening.id().0, Some(s.shared.limits.get())));
        let (blocks, bytes) = limits.map_or((0, 0), |l| (l.max_sge, l.max_message));
        Writer::new().u32(u32::from(handler)).u32(blocks).u64(bytes).done()
    }

    /// Stores the handlers of all ranks and the least of their limits; `None` if one of them has no lists.
    pub(super) fn with_announcements(mut self, all: &[&[u8]]) -> Option<Self> {
        let mut least = self.shared.limits.get();
        for announcement in all {
            let mut r = Reader::new(announcement);
            let (handler, blocks, bytes) = (u16::try_from(r.u32()?).ok()?, r.u32()?, r.u64()?);
            self.handlers.push(HandlerId(handler));
            least.max_sge = least.max_sge.min(blocks);
            least.max_message = least.max_message.min(bytes);
        }
        self.shared.limits.set(least);
        (least.max_sge > 0 && least.max_message > 0).then_some(self)
    }

    /// Drops transfers that have not started, and cancels lists that were posted for peers.
    pub(super) fn abandon(&self) {
        self.pending.borrow_mut().clear();
        let track = self.shared.track.borrow();
        if track.open() > 0 {
            self.job.cancel(&track);
        }
    }

    /// Ends the handler: no request arrives any more.
    pub(super) fn forget(&self) {
        self.job.active_messages().end(&self.listening);
    }

    pub(super) fn has_pending(&self, target: usize) -> bool {
        self.pending.borrow().iter().any(|(t, _)| *t == target)
    }
}

impl Drop for Sgrs {
    fn drop(&mut self) {
        self.forget();
    }
}
