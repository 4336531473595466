#![allow(unsafe_code)]
//! A strict provider: defines functions of libibverbs which call those of the library, under limits and faults that
//! real adapters have and Soft-RoCE has not. Queue pairs are always destroyed as by the mlx5 driver: their completions
//! that were not polled are lost.
//!
//! It is part of the test program `verbs`, whose tests set [`Knobs`] by [`Strict`], and a library to be preloaded under
//! other test programs (`preload.rs`; `ci/verbs-tests` does that). In both, the environment variable
//! `FARSIDE_TEST_PROVIDER` names the [`profile`](profiles::profile) with which it begins.

pub(crate) mod failures;
pub(crate) mod knobs;
pub(crate) mod profiles;
pub(crate) mod reads;

use std::collections::HashSet;
use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use rdma_sys::{
    ibv_access_flags, ibv_ah, ibv_ah_attr, ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr,
    ibv_device_attr_ex, ibv_event_type, ibv_mr, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask,
    ibv_qp_init_attr, ibv_qp_state, ibv_qp_type, ibv_query_device_ex_input, ibv_send_flags, ibv_send_wr, ibv_srq,
    ibv_srq_init_attr, ibv_wc, ibv_wr_opcode, verbs_context,
};

use knobs::{Knobs, knobs};

type Poll = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;
type Post = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
type QueryPort = unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int;
type QueryDevice =
    unsafe extern "C" fn(*mut ibv_context, *const ibv_query_device_ex_input, *mut ibv_device_attr_ex, usize) -> c_int;

/// The driver's functions; all devices in these tests have the same.
static POLL: OnceLock<Poll> = OnceLock::new();
static POST: OnceLock<Post> = OnceLock::new();
static QUERY_PORT: OnceLock<QueryPort> = OnceLock::new();
static QUERY_DEVICE: OnceLock<QueryDevice> = OnceLock::new();
/// Context and number of each destroyed queue pair.
static DESTROYED: Mutex<Option<HashSet<(usize, u32)>>> = Mutex::new(None);
/// Number of queue pairs that exist.
static PAIRS: AtomicU32 = AtomicU32::new(0);
/// Calls of `ibv_fork_init`, and registrations before the first of them.
static FORK_INITS: AtomicU32 = AtomicU32::new(0);
static UNPROTECTED: AtomicU32 = AtomicU32::new(0);

/// Sets knobs until it is dropped.
pub(crate) struct Strict;

impl Strict {
    pub(crate) fn new(set: impl FnOnce(&mut Knobs)) -> Self {
        set(&mut knobs());
        Self
    }
}

impl Drop for Strict {
    fn drop(&mut self) {
        *knobs() = Knobs::initial();
    }
}

/// Numbers of calls of `ibv_fork_init`, and of registrations before the first of them.
pub(crate) fn fork_protection() -> (u32, u32) {
    (FORK_INITS.load(Ordering::SeqCst), UNPROTECTED.load(Ordering::SeqCst))
}

/// The library's function of this name.
fn library(name: &CStr) -> *mut c_void {
    // SAFETY: two strings that end with a zero.
    let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), c"IBVERBS_1.1".as_ptr()) };
    assert!(!found.is_null(), "{name:?} is not in libibverbs");
    found
}

fn refuse<T>(code: c_int) -> *mut T {
    // SAFETY: the thread's own variable.
    unsafe { *libc::__errno_location() = code };
    std::ptr::null_mut()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: the library's function, of this type; the context is new, so its tables are not in use yet. The context
    // is the last part of a `verbs_context`, as its `abi_compat` says.
    unsafe {
        let open: unsafe extern "C" fn(*mut ibv_device) -> *mut ibv_context = transmute(library(c"ibv_open_device"));
        let context = open(device);
        if context.is_null() {
            return context;
        }
        if let Some(driver) = (*context).ops.poll_cq.replace(poll) {
            POLL.get_or_init(|| driver);
        }
        if let Some(driver) = (*context).ops.post_send.replace(post_send) {
            POST.get_or_init(|| driver);
        }
        assert_eq!((*context).abi_compat.addr(), usize::MAX, "a libibverbs without extended functions");
        let all: *mut verbs_context = context.byte_sub(std::mem::offset_of!(verbs_context, context)).cast();
        if let Some(driver) = (*all).query_port.replace(query_port) {
            QUERY_PORT.get_or_init(|| driver);
        }
        if let Some(driver) = (*all).query_device_ex.replace(query_device_ex) {
            QUERY_DEVICE.get_or_init(|| driver);
        }
        context
    }
}

unsafe extern "C" fn poll(cq: *mut ibv_cq, entries: c_int, first: *mut ibv_wc) -> c_int {
    let Some(driver) = POLL.get() else { return -1 };
    if failures::is_silent() {
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
            failures::change(context, &mut *first.add(i));
            reads::completed(context, &*first.add(i));
            if !destroyed.as_ref().is_some_and(|d| d.contains(&(context, number))) {
                first.add(kept).copy_from(first.add(i), 1);
                kept += 1;
            }
        }
        if found > 0 { kept as c_int } else { found }
    }
}

unsafe extern "C" fn post_send(qp: *mut ibv_qp, first: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    let Some(driver) = POST.get() else { return libc::EINVAL };
    // SAFETY: a list of live requests by the contract.
    unsafe {
        let mut wr = first;
        while !wr.is_null() {
            let code = knobs().judge(&*wr);
            if code != 0 {
                // Requests before it are posted, as by a driver.
                assert_eq!(wr, first, "lists are not refused in part");
                *bad = wr;
                return code;
            }
            wr = (*wr).next;
        }
        wr = first;
        while !wr.is_null() {
            reads::posted(((*qp).context.addr(), (*qp).qp_num), &*wr);
            wr = (*wr).next;
        }
        driver(qp, first, bad)
    }
}

impl Knobs {
    /// The code with which a completion queue of this length is refused, or 0.
    fn judge_completions(&mut self, entries: c_int) -> c_int {
        if self.completions.is_some_and(|most| entries > most) {
            return libc::EINVAL;
        }
        self.longest = self.longest.max(entries);
        0
    }

    /// The code with which a request is refused, or 0.
    unsafe fn judge(&self, wr: &ibv_send_wr) -> c_int {
        let has = |flag: ibv_send_flags| wr.send_flags & flag.0 != 0;
        if wr.opcode == ibv_wr_opcode::IBV_WR_RDMA_READ && self.read_pieces.is_some_and(|most| wr.num_sge > most) {
            return libc::EINVAL;
        }
        if !self.atomics
            && matches!(
                wr.opcode,
                ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD | ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP
            )
        {
            return libc::EINVAL;
        }
        // SAFETY: the list has this many segments by the contract of `post_send`.
        let len = || (0..wr.num_sge as usize).map(|i| unsafe { (*wr.sg_list.add(i)).length }).sum::<u32>();
        if has(ibv_send_flags::IBV_SEND_INLINE) && self.inline.is_some_and(|most| len() > most) {
            return self.inline_error;
        }
        0
    }
}

unsafe extern "C" fn query_port(context: *mut ibv_context, port: u8, out: *mut ibv_port_attr, len: usize) -> c_int {
    let Some(driver) = QUERY_PORT.get() else { return libc::EINVAL };
    // SAFETY: the same contract.
    unsafe {
        let code = driver(context, port, out, len);
        if code == 0 {
            knobs().limit_port(&mut *out);
        }
        code
    }
}

/// The same for callers of the function, whose structure is the first part of the other one, with the same fields.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_port(context: *mut ibv_context, port: u8, out: *mut ibv_port_attr) -> c_int {
    // SAFETY: the library's function, of this type. The fields that are limited are in the part that it fills.
    unsafe {
        let query: unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int =
            transmute(library(c"ibv_query_port"));
        let code = query(context, port, out);
        if code == 0 {
            knobs().limit_port(&mut *out);
        }
        code
    }
}

unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    out: *mut ibv_device_attr_ex,
    len: usize,
) -> c_int {
    let Some(driver) = QUERY_DEVICE.get() else { return libc::EINVAL };
    // SAFETY: the same contract.
    unsafe {
        let code = driver(context, input, out, len);
        if code == 0 {
            knobs().limit_device(&mut (*out).orig_attr);
        }
        code
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_device(context: *mut ibv_context, out: *mut ibv_device_attr) -> c_int {
    // SAFETY: the library's function, of this type.
    unsafe {
        let query: unsafe extern "C" fn(*mut ibv_context, *mut ibv_device_attr) -> c_int =
            transmute(library(c"ibv_query_device"));
        let code = query(context, out);
        if code == 0 {
            knobs().limit_device(&mut *out);
        }
        code
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_pkey(context: *mut ibv_context, port: u8, index: c_int, key: *mut u16) -> c_int {
    if let Some(keys) = &knobs().keys {
        let Some(own) = keys.get(index as usize) else { return -1 };
        // SAFETY: valid for writes by the contract.
        unsafe { *key = own.to_be() };
        return 0;
    }
    // SAFETY: the library's function, of this type.
    unsafe {
        let query: unsafe extern "C" fn(*mut ibv_context, u8, c_int, *mut u16) -> c_int =
            transmute(library(c"ibv_query_pkey"));
        query(context, port, index, key)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_srq(domain: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    if !knobs().shared_receives {
        // As `create_srq` of libibverbs/dummy_ops.c, for providers that have none.
        return refuse(libc::EOPNOTSUPP);
    }
    // SAFETY: the library's function, of this type.
    unsafe {
        let create: unsafe extern "C" fn(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq =
            transmute(library(c"ibv_create_srq"));
        create(domain, init)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    entries: c_int,
    own: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    if knobs().judge_completions(entries) != 0 {
        return refuse(libc::EINVAL);
    }
    type Create =
        unsafe extern "C" fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    // SAFETY: the library's function, of this type.
    unsafe {
        let create: Create = transmute(library(c"ibv_create_cq"));
        let queue = create(context, entries, own, channel, vector);
        let created = &mut knobs().created;
        *created = entries.max(*created);
        queue
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, entries: c_int) -> c_int {
    if !knobs().resizes {
        // As `resize_cq` of libibverbs/dummy_ops.c.
        return libc::EOPNOTSUPP;
    }
    let code = knobs().judge_completions(entries);
    if code != 0 {
        return code;
    }
    // SAFETY: the library's function, of this type.
    unsafe {
        let resize: unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int = transmute(library(c"ibv_resize_cq"));
        resize(cq, entries)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr(domain: *mut ibv_pd, base: *mut c_void, len: usize, access: c_int) -> *mut ibv_mr {
    if FORK_INITS.load(Ordering::SeqCst) == 0 {
        UNPROTECTED.fetch_add(1, Ordering::SeqCst);
    }
    let code = knobs().judge_registration(len, access);
    if code != 0 {
        return refuse(code);
    }
    // SAFETY: the library's function, of this type.
    unsafe {
        let register: unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr =
            transmute(library(c"ibv_reg_mr"));
        // Soft-RoCE has one order.
        register(domain, base, len, access & !(ibv_access_flags::IBV_ACCESS_RELAXED_ORDERING.0 as c_int))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_fork_init() -> c_int {
    FORK_INITS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the library's function, of this type.
    unsafe {
        let init: unsafe extern "C" fn() -> c_int = transmute(library(c"ibv_fork_init"));
        init()
    }
}

/// An asynchronous event: `ibv_async_event` of libibverbs, whose type may have values that our header does not know.
#[repr(C)]
struct RawEvent {
    port: u64,
    kind: u32,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_async_event(context: *mut ibv_context, out: *mut RawEvent) -> c_int {
    let event = knobs().events.pop_front();
    if let Some((kind, port)) = event {
        let mut knobs = knobs();
        if kind == ibv_event_type::IBV_EVENT_LID_CHANGE as u32 && knobs.next_lid.is_some() {
            knobs.lid = knobs.next_lid.take();
        }
        // SAFETY: valid for writes by the contract.
        unsafe { *out = RawEvent { port, kind } };
        return 0;
    }
    // SAFETY: the library's function, of this type.
    unsafe {
        let get: unsafe extern "C" fn(*mut ibv_context, *mut RawEvent) -> c_int =
            transmute(library(c"ibv_get_async_event"));
        get(context, out)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_ah(domain: *mut ibv_pd, attributes: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: the library's function, of this type; live attributes.
    unsafe {
        knobs().reached.push((*attributes).dlid);
        let create: unsafe extern "C" fn(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah =
            transmute(library(c"ibv_create_ah"));
        create(domain, attributes)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_qp(domain: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: the library's function, of this type; live attributes.
    unsafe {
        let create: unsafe extern "C" fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp =
            transmute(library(c"ibv_create_qp"));
        let code = knobs().judge_pair(&*init, PAIRS.load(Ordering::SeqCst));
        if code != 0 {
            return refuse(code);
        }
        let qp = failures::create(init, || create(domain, init));
        if !qp.is_null() {
            PAIRS.fetch_add(1, Ordering::SeqCst);
            if (*init).qp_type == ibv_qp_type::IBV_QPT_UD {
                failures::datagrams().push(qp.expose_provenance());
            }
        }
        qp
    }
}

type Modify = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;

fn modify() -> Modify {
    // SAFETY: the library's function, of this type.
    unsafe { transmute(library(c"ibv_modify_qp")) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attributes: *mut ibv_qp_attr, mask: c_int) -> c_int {
    // SAFETY: the same contract.
    unsafe {
        let state = (*attributes).qp_state;
        if state == ibv_qp_state::IBV_QPS_RESET {
            failures::reset(qp);
        }
        let mut knobs = knobs();
        if state == ibv_qp_state::IBV_QPS_RTR && (*qp).qp_type == ibv_qp_type::IBV_QPT_RC && knobs.unready > 0 {
            knobs.unready -= 1;
            return knobs.unready_error;
        }
        if mask & ibv_qp_attr_mask::IBV_QP_PKEY_INDEX.0 as c_int != 0
            && let Some(keys) = &knobs.keys
        {
            let index = (*attributes).pkey_index;
            // Two ends of which one is a limited member could communicate, two limited members could not.
            if keys.get(usize::from(index)).is_none_or(|key| key & 0x8000 == 0) {
                return libc::EINVAL;
            }
            (*attributes).pkey_index = 0;
        }
        drop(knobs);
        modify()(qp, attributes, mask)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: a live queue pair; the library's function, of this type.
    unsafe {
        failures::datagrams().retain(|d| *d != qp.addr());
        let key = ((*qp).context.addr(), (*qp).qp_num);
        DESTROYED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().insert(key);
        failures::forget(key);
        PAIRS.fetch_sub(1, Ordering::SeqCst);
        let destroy: unsafe extern "C" fn(*mut ibv_qp) -> c_int = transmute(library(c"ibv_destroy_qp"));
        destroy(qp)
    }
}
