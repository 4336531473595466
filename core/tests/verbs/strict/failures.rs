#![allow(unsafe_code)]
//! Injected faults: requests that fail with any status ([`Failing`]), completions that do not come ([`Silent`]), and
//! queue pairs for datagrams that fail.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdma_sys::{
    ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_init_attr, ibv_qp_state, ibv_qp_type, ibv_wc, ibv_wc_opcode,
    ibv_wc_status,
};

use super::modify;

/// Addresses of the queue pairs for datagrams.
static DATAGRAMS: Mutex<Vec<usize>> = Mutex::new(Vec::new());
static SILENT: AtomicBool = AtomicBool::new(false);

/// Suppresses all completions until it is dropped.
pub(crate) struct Silent;

impl Silent {
    pub(crate) fn new() -> Self {
        SILENT.store(true, Ordering::SeqCst);
        Self
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        SILENT.store(false, Ordering::SeqCst);
    }
}

/// Requests that fail although the peer has executed them: their completions get another status, and their queue pairs
/// enter the error state, as if an answer had been lost.
struct Failures {
    status: u32,
    /// Of the requests that complete on all these queue pairs, every `every`-th one fails.
    every: u64,
    completed: u64,
    /// Reliable queue pairs, by context and number, and whether they have failed and were not reset since.
    pairs: HashMap<(usize, u32), (usize, bool)>,
}

static FAILURES: Mutex<Option<Failures>> = Mutex::new(None);

fn failures() -> MutexGuard<'static, Option<Failures>> {
    FAILURES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes requests fail until it is dropped, on queue pairs that are created meanwhile.
pub(crate) struct Failing;

impl Failing {
    /// Every `every`-th request, counted over all queue pairs, fails with `status`.
    pub(crate) fn new(every: u64, status: u32) -> Self {
        *failures() = Some(Failures { status, every, completed: 0, pairs: HashMap::new() });
        Self
    }

    /// Number of requests that have completed or failed.
    pub(crate) fn completed(&self) -> u64 {
        failures().as_ref().map_or(0, |f| f.completed)
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        *failures() = None;
    }
}

impl Failures {
    /// Changes the completion of a request, if it is one.
    fn change(&mut self, context: usize, c: &mut ibv_wc) {
        // The opcodes of receives have this bit.
        let Some((qp, has_failed)) = self.pairs.get_mut(&(context, c.qp_num)) else { return };
        if c.status != 0 || c.opcode & ibv_wc_opcode::IBV_WC_RECV != 0 {
            return;
        }
        if *has_failed {
            c.status = ibv_wc_status::IBV_WC_WR_FLUSH_ERR;
            return;
        }
        self.completed += 1;
        if self.completed.is_multiple_of(self.every) {
            c.status = self.status;
            *has_failed = true;
            assert_eq!(end(*qp), 0);
        }
    }
}

/// Moves a live queue pair to the error state.
fn end(qp: usize) -> c_int {
    // SAFETY: a live queue pair by the contract; plain data.
    unsafe {
        let mut attributes: ibv_qp_attr = std::mem::zeroed();
        attributes.qp_state = ibv_qp_state::IBV_QPS_ERR;
        modify()(
            std::ptr::with_exposed_provenance_mut(qp),
            &raw mut attributes,
            ibv_qp_attr_mask::IBV_QP_STATE.0 as c_int,
        )
    }
}

pub(super) fn datagrams() -> MutexGuard<'static, Vec<usize>> {
    DATAGRAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Moves all queue pairs for datagrams to the error state.
pub(crate) fn fail_datagrams() {
    // None is destroyed while the list is locked.
    datagrams().iter().for_each(|qp| assert_eq!(end(*qp), 0));
}

pub(super) fn is_silent() -> bool {
    SILENT.load(Ordering::SeqCst)
}

/// Changes the completion of a request that is to fail.
pub(super) fn change(context: usize, c: &mut ibv_wc) {
    if let Some(failures) = &mut *failures() {
        failures.change(context, c);
    }
}

/// Creates a queue pair; its requests fail if requests are to fail now.
///
/// # Safety
/// Live attributes.
pub(super) unsafe fn create(init: *mut ibv_qp_init_attr, create: impl FnOnce() -> *mut ibv_qp) -> *mut ibv_qp {
    let mut failures = failures();
    // SAFETY: by the contract; the queue pair is new.
    unsafe {
        let Some(failures) = failures.as_mut().filter(|_| (*init).qp_type == ibv_qp_type::IBV_QPT_RC) else {
            return create();
        };
        // Each request has a completion, so that requests after a failure are reported.
        (*init).sq_sig_all = 1;
        let qp = create();
        if !qp.is_null() {
            failures.pairs.insert(((*qp).context.addr(), (*qp).qp_num), (qp.expose_provenance(), false));
        }
        qp
    }
}

/// Records that a queue pair is reset.
///
/// # Safety
/// A live queue pair.
pub(super) unsafe fn reset(qp: *mut ibv_qp) {
    // SAFETY: by the contract.
    let key = unsafe { ((*qp).context.addr(), (*qp).qp_num) };
    if let Some(failures) = &mut *failures()
        && let Some((_, has_failed)) = failures.pairs.get_mut(&key)
    {
        *has_failed = false;
    }
}

/// Forgets a queue pair that is destroyed.
pub(super) fn forget(key: (usize, u32)) {
    failures().as_mut().map(|failures| failures.pairs.remove(&key));
}
