#![allow(unsafe_code)]
//! Reads that an adapter may perform before earlier ones of the same queue pair: those posted before these have completed.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdma_sys::{ibv_send_wr, ibv_wc, ibv_wr_opcode};

#[derive(Default)]
struct Watched {
    /// For each queue pair, by context and number: the requests that have not completed, and whether they are reads.
    posted: HashMap<(usize, u32), VecDeque<(u64, bool)>>,
    /// The lengths of reads that were posted behind others.
    behind: Vec<u32>,
}

static WATCHED: Mutex<Option<Watched>> = Mutex::new(None);

fn watched() -> MutexGuard<'static, Option<Watched>> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Watches reads until it is dropped.
pub(crate) struct Reads;

impl Reads {
    pub(crate) fn new() -> Self {
        *watched() = Some(Watched::default());
        Self
    }

    /// The lengths of reads so far that an adapter may perform before an earlier one.
    pub(crate) fn behind(&self) -> Vec<u32> {
        watched().as_ref().map_or_else(Vec::new, |watched| watched.behind.clone())
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        *watched() = None;
    }
}

/// Notes a request that is about to be posted.
///
/// # Safety
/// Its segments are valid.
pub(super) unsafe fn posted(pair: (usize, u32), wr: &ibv_send_wr) {
    let Some(watched) = &mut *watched() else { return };
    let is_read = wr.opcode == ibv_wr_opcode::IBV_WR_RDMA_READ;
    let before = watched.posted.entry(pair).or_default();
    if is_read && before.iter().any(|(_, is_read)| *is_read) {
        // SAFETY: by the contract.
        watched.behind.push((0..wr.num_sge as usize).map(|i| unsafe { (*wr.sg_list.add(i)).length }).sum());
    }
    before.push_back((wr.wr_id, is_read));
}

/// Notes a completion, which is also that of all earlier requests of its queue pair.
pub(super) fn completed(context: usize, wc: &ibv_wc) {
    let Some(watched) = &mut *watched() else { return };
    let Some(before) = watched.posted.get_mut(&(context, wc.qp_num)) else { return };
    if let Some(at) = before.iter().position(|(id, _)| *id == wc.wr_id) {
        before.drain(..=at);
    }
}
