#![allow(unsafe_code)]
//! Queue pairs are destroyed as by the mlx5 driver: their completions that nobody has polled are gone. This program defines
//! the two functions of libibverbs that are concerned itself, and calls the library's.

use std::collections::HashSet;
use std::ffi::{CStr, c_int, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

use rdma_sys::{ibv_context, ibv_cq, ibv_device, ibv_qp, ibv_wc};

type Poll = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;

/// Context and number of each queue pair that was destroyed.
static DESTROYED: Mutex<Option<HashSet<(usize, u32)>>> = Mutex::new(None);
/// The driver's function that polls; all devices here have the same.
static POLL: OnceLock<Poll> = OnceLock::new();

/// The library's function of this name.
fn library(name: &CStr) -> *mut c_void {
    // SAFETY: two strings that end with a zero.
    let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), c"IBVERBS_1.1".as_ptr()) };
    assert!(!found.is_null(), "{name:?} is not in libibverbs");
    found
}

unsafe extern "C" fn poll(cq: *mut ibv_cq, entries: c_int, first: *mut ibv_wc) -> c_int {
    let Some(driver) = POLL.get() else { return -1 };
    // SAFETY: the same contract; the first `found` entries are the driver's, and are moved to the front of the array.
    unsafe {
        let found = driver(cq, entries, first);
        let context = (*cq).context.addr();
        let destroyed = DESTROYED.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kept = 0;
        for i in 0..found.max(0) as usize {
            let number = (*first.add(i)).qp_num;
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
    // SAFETY: the library's function, of this type; the context is new, so nobody else uses its table.
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
unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: a live queue pair; the library's function, of this type.
    unsafe {
        let key = ((*qp).context.addr(), (*qp).qp_num);
        DESTROYED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().insert(key);
        let destroy: unsafe extern "C" fn(*mut ibv_qp) -> c_int = std::mem::transmute(library(c"ibv_destroy_qp"));
        destroy(qp)
    }
}
