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
//! each list, and for each [`message::LISTS`] lists one request, and one reply if it is a put.
//!
//! The target participates, so SGRS is used only in epochs in which it enters the runtime: fence, and start with post
//! and wait. The origin's closing call executes the transfer, while the target is in its own closing call or in another
//! wait. A locked rank may be computing, so transfers in lock epochs do not involve it.
//!
//! An error of a transfer does not prevent the closing calls from completing; the closing calls of both ranks return
//! it.
//!
//! [`Plan::descriptors`]: farside_datatype::Plan::descriptors

mod known_layouts;
mod message;
mod serve;
mod transfer;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use farside_core::am::Listening;
use farside_core::device::Lists;
use farside_core::service::records::ServedMemory;
use farside_core::{Error, Job};
use farside_datatype::PlanLimits;
use rustc_hash::FxHashMap;

use super::layouts::Owned;
use known_layouts::KnownLayouts;
use serve::Shared;

/// The SGRS state of a window.
pub(super) struct Sgrs {
    shared: Rc<Shared>,
    listening: Listening,
    /// The layouts that each target has received, by team rank.
    known: RefCell<FxHashMap<usize, KnownLayouts>>,
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
    /// Creates the state for this rank's memory, if its device has lists.
    pub(super) fn new(job: &Job, memory: &ServedMemory) -> Option<Self> {
        let lists = job.device().capabilities().lists?;
        let shared = Rc::new(Shared::new(memory.clone(), limits(lists)));
        let handler = Rc::clone(&shared);
        let listening = job.active_messages().listen(move |m| handler.receive(m)).ok()?;
        let (known, pending, failed, last) = Default::default();
        Some(Self { shared, listening, known, pending, failed, last, job: job.clone() })
    }

    /// The handler of this rank, and the limits of its lists in blocks and bytes.
    pub(super) fn own(&self) -> (u16, u32, u64) {
        let PlanLimits { max_sge, max_message, .. } = self.shared.limits.get();
        (self.listening.id().0, max_sge, max_message)
    }

    /// Sets the minimum of the limits of all ranks; returns `None` if one of them has no lists.
    pub(super) fn limited(self, blocks: u32, bytes: u64) -> Option<Self> {
        let limits = PlanLimits { max_sge: blocks, max_message: bytes, ..self.shared.limits.get() };
        self.shared.limits.set(limits);
        (blocks > 0 && bytes > 0).then_some(self)
    }

    /// Drops transfers that have not started, and cancels lists that were posted for peers.
    pub(super) fn abandon(&self) {
        self.pending.borrow_mut().clear();
        let track = self.shared.track.borrow();
        if track.open() > 0 {
            self.job.cancel(&track);
        }
    }

    /// Ends the handler: no further request is received.
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
