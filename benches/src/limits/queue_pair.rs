#![allow(unsafe_code)]
//! A bare queue pair of each of two ranks, connected with the other: a lower bound for the time of a library, measured
//! by the same processes alternately with the library. perftest's figures come from other processes at another time,
//! and the speed of an emulated machine may double from one minute to the next.

use std::ffi::CStr;
use std::io;
use std::mem::zeroed;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farside_core::error::{Error, ErrorKind, Result};
use rdma_sys::{ibv_access_flags as access, ibv_qp_attr_mask as mask, *};

use super::perftest::Devices;

const OP: &str = "measure a bare queue pair";
const PORT: u8 = 1;
/// The most requests in progress.
pub const DEPTH: usize = 64;
/// The number of bytes that are sent inline, as with perftest's writes.
const INLINE: u32 = 64;
/// The most reads and atomics in progress.
const READS: u8 = 4;
/// The timeout code of a retransmission: about half a second.
const TIMEOUT: u8 = 17;
/// The time limit of a completion, and of the other side.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(10);
const TURNS: u32 = 1 << 12;

/// The length of the address that the other side needs, in bytes.
pub const ADDRESS: usize = 32;

/// One end: its queue pair, and memory. The other side writes and reads the first half, this side the second half.
pub struct QueuePair {
    context: *mut ibv_context,
    domain: *mut ibv_pd,
    completions: *mut ibv_cq,
    raw: *mut ibv_qp,
    memory: *mut ibv_mr,
    bytes: Vec<u64>,
    half: usize,
    /// The address and remote key of the other side's memory.
    there: (u64, u32),
    gid_index: u8,
    mtu: u32,
}

/// An operation on the other side's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A write.
    Write,
    /// A read.
    Read,
    /// An addition of 1 to a word.
    FetchAdd,
}

fn failed(what: &'static str, error: io::Error) -> Error {
    Error::system(what, error)
}

/// The pointer that a call has returned, or the error if it is null.
fn given<T>(what: &'static str, pointer: *mut T) -> Result<*mut T> {
    if pointer.is_null() { Err(failed(what, io::Error::last_os_error())) } else { Ok(pointer) }
}

fn done(what: &'static str, code: i32) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(failed(what, io::Error::from_raw_os_error(code))) }
}

fn open(name: &str) -> Result<*mut ibv_context> {
    let mut count = 0;
    // SAFETY: the list has `count` entries until it is freed; an open device outlives it.
    unsafe {
        let list = given("list RDMA devices", ibv_get_device_list(&raw mut count))?;
        let found = (0..count as usize)
            .map(|i| *list.add(i))
            .find(|device| CStr::from_ptr(ibv_get_device_name(*device)).to_bytes() == name.as_bytes());
        let context = found.map_or(ptr::null_mut(), |device| ibv_open_device(device));
        ibv_free_device_list(list);
        given("open an RDMA device", context)
    }
}

impl QueuePair {
    /// The end of rank `rank` of two, for transfers of up to `room` bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] without a device, [`ErrorKind::System`].
    pub fn new(rank: usize, room: usize) -> Result<Self> {
        let devices = Devices::find()?;
        let half = room.next_multiple_of(4096);
        let mut pair = Self {
            context: open(devices.of(rank))?,
            domain: ptr::null_mut(),
            completions: ptr::null_mut(),
            raw: ptr::null_mut(),
            memory: ptr::null_mut(),
            bytes: vec![0; 2 * half / 8],
            half,
            there: (0, 0),
            gid_index: devices.gid(),
            mtu: 0,
        };
        // SAFETY: each call gets live objects of the calls before it and plain data; the memory is registered for as
        // long as `bytes`, which is not resized, and this side accesses it through raw pointers only. If a later call
        // fails, `drop` destroys the objects that were made.
        unsafe {
            let mut port: ibv_port_attr = zeroed();
            done("query a port", rdma_sys::___ibv_query_port(pair.context, PORT, &raw mut port))?;
            pair.mtu = port.active_mtu;
            pair.domain = given("make a protection domain", ibv_alloc_pd(pair.context))?;
            let entries = 2 * DEPTH as i32;
            pair.completions = given(
                "make a completion queue",
                ibv_create_cq(pair.context, entries, ptr::null_mut(), ptr::null_mut(), 0),
            )?;
            let mut init: ibv_qp_init_attr = zeroed();
            (init.send_cq, init.recv_cq) = (pair.completions, pair.completions);
            init.qp_type = ibv_qp_type::IBV_QPT_RC;
            init.cap = ibv_qp_cap {
                max_send_wr: DEPTH as u32,
                max_recv_wr: 1,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: INLINE,
            };
            pair.raw = given("make a queue pair", ibv_create_qp(pair.domain, &raw mut init))?;
            let all = access::IBV_ACCESS_LOCAL_WRITE
                | access::IBV_ACCESS_REMOTE_WRITE
                | access::IBV_ACCESS_REMOTE_READ
                | access::IBV_ACCESS_REMOTE_ATOMIC;
            let base = pair.bytes.as_mut_ptr().cast();
            pair.memory = given("register memory", ibv_reg_mr(pair.domain, base, 2 * half, all.0 as i32))?;
            let which = mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_ACCESS_FLAGS;
            pair.modify(ibv_qp_state::IBV_QPS_INIT, which, |a| (a.port_num, a.qp_access_flags) = (PORT, all.0))?;
        }
        Ok(pair)
    }

    /// Brings the queue pair into a state, with the attributes that `fill` sets.
    fn modify(&self, state: u32, which: mask, fill: impl FnOnce(&mut ibv_qp_attr)) -> Result<()> {
        // SAFETY: plain data and a live queue pair.
        unsafe {
            let mut attributes: ibv_qp_attr = zeroed();
            attributes.qp_state = state;
            fill(&mut attributes);
            let which = which | mask::IBV_QP_STATE;
            done("connect a queue pair", ibv_modify_qp(self.raw, &raw mut attributes, which.0 as i32))
        }
    }

    fn base(&self) -> u64 {
        self.bytes.as_ptr().addr() as u64
    }

    /// The address of this side, which the other side needs.
    ///
    /// # Errors
    /// [`ErrorKind::System`].
    pub fn address(&self) -> Result<[u8; ADDRESS]> {
        let mut address = [0; ADDRESS];
        // SAFETY: an open device, a live queue pair and registration; the GID is plain data, filled by the call.
        unsafe {
            let mut gid: ibv_gid = zeroed();
            done("query a GID", ibv_query_gid(self.context, PORT, i32::from(self.gid_index), &raw mut gid))?;
            address[..16].copy_from_slice(&gid.raw);
            address[16..20].copy_from_slice(&(*self.raw).qp_num.to_le_bytes());
            address[20..24].copy_from_slice(&(*self.memory).rkey.to_le_bytes());
        }
        address[24..].copy_from_slice(&self.base().to_le_bytes());
        Ok(address)
    }

    /// Connects with the end that has this address. Both sides do so before either sends.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] for bytes that are not an address, [`ErrorKind::System`].
    pub fn connect(&mut self, address: &[u8]) -> Result<()> {
        let Ok(address) = <&[u8; ADDRESS]>::try_from(address) else {
            return Err(Error::new(ErrorKind::Protocol, OP).cause("the other side has sent no address"));
        };
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| address[at + i]));
        self.there = (u64::from(word(24)) | u64::from(word(28)) << 32, word(20));
        let which = mask::IBV_QP_AV
            | mask::IBV_QP_PATH_MTU
            | mask::IBV_QP_DEST_QPN
            | mask::IBV_QP_RQ_PSN
            | mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | mask::IBV_QP_MIN_RNR_TIMER;
        self.modify(ibv_qp_state::IBV_QPS_RTR, which, |a| {
            (a.path_mtu, a.dest_qp_num, a.max_dest_rd_atomic, a.min_rnr_timer) = (self.mtu, word(16), READS, 12);
            a.ah_attr.grh.dgid = ibv_gid { raw: std::array::from_fn(|i| address[i]) };
            (a.ah_attr.grh.sgid_index, a.ah_attr.grh.hop_limit) = (self.gid_index, 64);
            (a.ah_attr.is_global, a.ah_attr.port_num) = (1, PORT);
        })?;
        let which = mask::IBV_QP_SQ_PSN
            | mask::IBV_QP_MAX_QP_RD_ATOMIC
            | mask::IBV_QP_TIMEOUT
            | mask::IBV_QP_RETRY_CNT
            | mask::IBV_QP_RNR_RETRY;
        self.modify(ibv_qp_state::IBV_QPS_RTS, which, |a| {
            (a.max_rd_atomic, a.timeout, a.retry_cnt, a.rnr_retry) = (READS, TIMEOUT, 6, 6);
        })
    }

    /// Performs `action` `count` times with `bytes` bytes, all posted before the first completion is waited for.
    ///
    /// # Errors
    /// [`ErrorKind::System`], [`ErrorKind::Protocol`] for a completion with an error, [`ErrorKind::Timeout`].
    #[inline]
    pub fn transfer(&self, action: Action, bytes: usize, count: usize) -> Result<()> {
        if bytes > self.half || count > DEPTH || (action == Action::FetchAdd && bytes != 8) {
            return Err(Error::new(ErrorKind::BadArgument, OP).cause("more than there is room for"));
        }
        for _ in 0..count {
            self.post(action, bytes)?;
        }
        (0..count).try_for_each(|_| self.complete())
    }

    #[inline]
    fn post(&self, action: Action, bytes: usize) -> Result<()> {
        // SAFETY: the other side's first half is written and read, and this side's second half; both have room for
        // `bytes`.
        unsafe {
            let addr = self.base() + self.half as u64;
            let mut piece = ibv_sge { addr, length: bytes as u32, lkey: (*self.memory).lkey };
            let mut request: ibv_send_wr = zeroed();
            (request.sg_list, request.num_sge) = (&raw mut piece, 1);
            request.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
            let (remote_addr, rkey) = self.there;
            request.opcode = match action {
                Action::FetchAdd => {
                    request.wr.atomic = rdma_sys::atomic_t { remote_addr, compare_add: 1, swap: 0, rkey };
                    ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD
                }
                Action::Write => {
                    request.wr.rdma = rdma_sys::rdma_t { remote_addr, rkey };
                    if bytes <= INLINE as usize {
                        request.send_flags |= ibv_send_flags::IBV_SEND_INLINE.0;
                    }
                    ibv_wr_opcode::IBV_WR_RDMA_WRITE
                }
                Action::Read => {
                    request.wr.rdma = rdma_sys::rdma_t { remote_addr, rkey };
                    ibv_wr_opcode::IBV_WR_RDMA_READ
                }
            };
            let mut bad = ptr::null_mut();
            done("post a request", ibv_post_send(self.raw, &raw mut request, &raw mut bad))
        }
    }

    #[inline]
    fn complete(&self) -> Result<()> {
        until(|| {
            // SAFETY: there is room for the one completion that is requested; it is read only if one was found.
            let (found, status) = unsafe {
                let mut wc: ibv_wc = zeroed();
                (ibv_poll_cq(self.completions, 1, &raw mut wc), wc.status)
            };
            match (found, status) {
                (0, _) => Ok(false),
                (1, 0) => Ok(true),
                _ => Err(Error::new(ErrorKind::Protocol, OP).cause(format!("a completion of status {status}"))),
            }
        })
    }

    /// The word at the start of one of the halves.
    fn word(&self, half: usize) -> &AtomicU64 {
        let at = self.bytes.as_ptr().wrapping_add(half * self.half / 8);
        // SAFETY: a word of live, aligned memory that only atomics here and the HCA access.
        unsafe { AtomicU64::from_ptr(at.cast_mut()) }
    }

    /// Writes a number to the other side's memory, and waits for the completion.
    ///
    /// # Errors
    /// `System`, `Protocol` for a completion with an error, `Timeout`.
    #[inline]
    pub fn send(&self, number: u64) -> Result<()> {
        // Relaxed: the post on this thread reads it.
        self.word(1).store(number, Ordering::Relaxed);
        self.transfer(Action::Write, 8, 1)
    }

    /// Waits until the other side has sent `number`.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`].
    #[inline]
    pub fn receive(&self, number: u64) -> Result<()> {
        // Acquire: orders later reads after the HCA's write.
        until(|| Ok(self.word(0).load(Ordering::Acquire) == number))
    }
}

/// Polls until `is_so`. Reads the clock only after many polls, since it costs more than a poll.
#[inline]
fn until(mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let mut start = None;
    loop {
        for _ in 0..TURNS {
            if is_so()? {
                return Ok(());
            }
        }
        if start.get_or_insert_with(Instant::now).elapsed() > COMPLETION_TIMEOUT {
            return Err(Error::new(ErrorKind::Timeout, OP).cause("the other side does not answer"));
        }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: each object was made once and is not used again; they are destroyed in the order of their
        // dependencies.
        unsafe {
            destroy(self.raw, |raw| ibv_destroy_qp(raw));
            destroy(self.memory, |memory| ibv_dereg_mr(memory));
            destroy(self.completions, |completions| ibv_destroy_cq(completions));
            destroy(self.domain, |domain| ibv_dealloc_pd(domain));
            destroy(self.context, |context| ibv_close_device(context));
        }
    }
}

/// Destroys an object, if it was made.
fn destroy<T>(pointer: *mut T, destroy: impl FnOnce(*mut T) -> i32) {
    if !pointer.is_null() {
        destroy(pointer);
    }
}
