#![allow(unsafe_code)]
//! A driver with injected faults. Queue pairs are destroyed as by the mlx5 driver: their completions that were not
//! polled are lost. Requests fail with any status ([`Failing`]). This program defines the affected functions of
//! libibverbs, which call those of the library.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rdma_sys::{
    ibv_context, ibv_cq, ibv_device, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_init_attr, ibv_qp_state,
    ibv_qp_type, ibv_wc, ibv_wc_opcode, ibv_wc_status,
};

type Poll = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;

/// Context and number of each destroyed queue pair.
static DESTROYED: Mutex<Option<HashSet<(usize, u32)>>> = Mutex::new(None);
/// The driver's poll function; all devices in these tests have the same.
static POLL: OnceLock<Poll> = OnceLock::new();
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

type Modify = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;

fn modify() -> Modify {
    // SAFETY: the library's function, of this type.
    unsafe { std::mem::transmute(library(c"ibv_modify_qp")) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attributes: *mut ibv_qp_attr, mask: c_int) -> c_int {
    // SAFETY: the same contract.
    unsafe {
        if (*attributes).qp_state == ibv_qp_state::IBV_QPS_RESET
            && let Some(failures) = &mut *failures()
            && let Some((_, has_failed)) = failures.pairs.get_mut(&((*qp).context.addr(), (*qp).qp_num))
        {
            *has_failed = false;
        }
        modify()(qp, attributes, mask)
    }
}

fn datagrams() -> MutexGuard<'static, Vec<usize>> {
    DATAGRAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Moves all queue pairs for datagrams to the error state.
pub(crate) fn fail_datagrams() {
    // None is destroyed while the list is locked.
    datagrams().iter().for_each(|qp| assert_eq!(end(*qp), 0));
}

/// The library's function of this name.
fn library(name: &CStr) -> *mut c_void {
    // SAFETY: two strings that end with a zero.
    let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), c"IBVERBS_1.1".as_ptr()) };
    assert!(!found.is_null(), "{name:?} is not in libibverbs");
    found
}

unsafe extern "C" fn poll(cq: *mut ibv_cq, entries: c_int, first: *mut ibv_wc) -> c_int {
    let Some(driver) = POLL.get() else { return -1 };
    if SILENT.load(Ordering::SeqCst) {
        return 0;
    }
    // SAFETY: the same contract; the driver fills the first `found` entries, which are moved to the front of the array.
    unsafe {
        let found = driver(cq, entries, first);
        let context = (*cq).context.addr();
        let destroyed = DESTROYED.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kept = 0;
        for i in 0..found.max(0) as usize {
            let number = (*first.add(i)).qp_num;
            if let Some(failures) = &mut *failures() {
                failures.change(context, &mut *first.add(i));
            }
            if !destroyed.as_ref().is_some_and(|d| d.contains(&(context, number))) {
                first.add(kept).copy_from(first.add(i), 1);
                kept += 1;
            }
        }
        if found > 0 { kept as c_int } else { found }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: the library's function, of this type; the context is new, so its table is not in use yet.
    unsafe {
        let open: unsafe extern "C" fn(*mut ibv_device) -> *mut ibv_context =
            std::mem::transmute(library(c"ibv_open_device"));
        let context = open(device);
        if !context.is_null()
            && let Some(driver) = (*context).ops.poll_cq.replace(poll)
        {
            POLL.get_or_init(|| driver);
        }
        context
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_qp(domain: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: the library's function, of this type; live attributes.
    unsafe {
        let create: unsafe extern "C" fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp =
            std::mem::transmute(library(c"ibv_create_qp"));
        let is_reliable = (*init).qp_type == ibv_qp_type::IBV_QPT_RC;
        let mut failures = failures();
        if is_reliable && failures.is_some() {
            // Each request has a completion, so that requests after a failure are reported.
            (*init).sq_sig_all = 1;
        }
        let qp = create(domain, init);
        if let Some(failures) = failures.as_mut().filter(|_| is_reliable && !qp.is_null()) {
            failures.pairs.insert(((*qp).context.addr(), (*qp).qp_num), (qp.expose_provenance(), false));
        }
        if !qp.is_null() && (*init).qp_type == ibv_qp_type::IBV_QPT_UD {
            datagrams().push(qp.expose_provenance());
        }
        qp
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: a live queue pair; the library's function, of this type.
    unsafe {
        datagrams().retain(|d| *d != qp.addr());
        let key = ((*qp).context.addr(), (*qp).qp_num);
        DESTROYED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().insert(key);
        failures().as_mut().map(|failures| failures.pairs.remove(&key));
        let destroy: unsafe extern "C" fn(*mut ibv_qp) -> c_int = std::mem::transmute(library(c"ibv_destroy_qp"));
        destroy(qp)
    }
}
