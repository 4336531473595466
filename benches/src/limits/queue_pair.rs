#![allow(unsafe_code)]
//! Bare queue pairs that connect two ranks: a lower bound for the time of a library, measured by the same processes,
//! alternating with the library. perftest measures in other processes at another time, and the speed of an emulated
//! machine may double from one minute to the next.

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
/// The maximum number of requests in progress.
pub(crate) const DEPTH: usize = 64;
/// The number of bytes that are sent inline, as with perftest's writes.
const INLINE: u32 = 64;
/// The maximum number of reads and atomics in progress.
const READS: u8 = 4;
/// The timeout code of a retransmission: about half a second.
const TIMEOUT: u8 = 17;
/// The time limit of a completion, and of a reaction of the peer.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(10);
const POLLS_PER_CLOCK_READ: u32 = 1 << 12;

/// Length of a queue pair address in bytes.
pub(crate) const ADDRESS: usize = 32;

/// One end of the connection: its queue pair, and memory. The peer reads and writes the first half, this side the
/// second half. Both live until the process ends after the measurement.
pub(crate) struct QueuePair {
    raw: *mut ibv_qp,
    completions: *mut ibv_cq,
    local_key: u32,
    memory: &'static [AtomicU64],
    /// The address of this side, for the peer.
    pub(crate) address: [u8; ADDRESS],
    /// The address and remote key of the peer's memory.
    peer_memory: (u64, u32),
    gid_index: u8,
    mtu: u32,
}

/// An operation on the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A write.
    Write,
    /// A read.
    Read,
    /// An addition of 1 to a word.
    FetchAdd,
}

/// The pointer that a call has returned, or the error if it is null.
fn non_null<T>(what: &'static str, pointer: *mut T) -> Result<*mut T> {
    if pointer.is_null() { Err(Error::last_os(what)) } else { Ok(pointer) }
}

fn done(what: &'static str, code: i32) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(Error::system(what, io::Error::from_raw_os_error(code))) }
}

fn open(name: &str) -> Result<*mut ibv_context> {
    let mut count = 0;
    // SAFETY: the list has `count` entries until it is freed; an open device outlives it.
    unsafe {
        let list = non_null("list RDMA devices", ibv_get_device_list(&raw mut count))?;
        let found = (0..count as usize)
            .map(|i| *list.add(i))
            .find(|device| CStr::from_ptr(ibv_get_device_name(*device)).to_bytes() == name.as_bytes());
        let context = found.map_or(ptr::null_mut(), |device| ibv_open_device(device));
        ibv_free_device_list(list);
        non_null("open an RDMA device", context)
    }
}

impl QueuePair {
    /// The end of rank `rank` of two, for transfers of up to `room` bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] without a device, [`ErrorKind::System`].
    pub(crate) fn new(rank: usize, room: usize) -> Result<Self> {
        let devices = Devices::find()?;
        let context = open(devices.of(rank))?;
        let memory: &[AtomicU64] =
            Vec::leak((0..2 * room.next_multiple_of(4096) / 8).map(|_| AtomicU64::new(0)).collect());
        let all = access::IBV_ACCESS_LOCAL_WRITE
            | access::IBV_ACCESS_REMOTE_WRITE
            | access::IBV_ACCESS_REMOTE_READ
            | access::IBV_ACCESS_REMOTE_ATOMIC;
        // SAFETY: each call gets live objects of the calls before it, which are never destroyed, and plain data; the memory
        // is never freed, and this side accesses it as atomics only.
        unsafe {
            let (mut port, mut gid): (ibv_port_attr, ibv_gid) = (zeroed(), zeroed());
            done("query a port", rdma_sys::___ibv_query_port(context, PORT, &raw mut port))?;
            done("query a GID", ibv_query_gid(context, PORT, i32::from(devices.gid()), &raw mut gid))?;
            let domain = non_null("allocate a protection domain", ibv_alloc_pd(context))?;
            let completions = ibv_create_cq(context, 2 * DEPTH as i32, ptr::null_mut(), ptr::null_mut(), 0);
            let completions = non_null("create a completion queue", completions)?;
            let mut init: ibv_qp_init_attr = zeroed();
            (init.send_cq, init.recv_cq) = (completions, completions);
            init.qp_type = ibv_qp_type::IBV_QPT_RC;
            (init.cap.max_send_wr, init.cap.max_recv_wr, init.cap.max_inline_data) = (DEPTH as u32, 1, INLINE);
            (init.cap.max_send_sge, init.cap.max_recv_sge) = (1, 1);
            let raw = non_null("create a queue pair", ibv_create_qp(domain, &raw mut init))?;
            let base = memory.as_ptr().cast_mut();
            let region = ibv_reg_mr(domain, base.cast(), size_of_val(memory), all.0 as i32);
            let region = non_null("register memory", region)?;
            let mut address = [0; ADDRESS];
            address[..16].copy_from_slice(&gid.raw);
            address[16..20].copy_from_slice(&(*raw).qp_num.to_le_bytes());
            address[20..24].copy_from_slice(&(*region).rkey.to_le_bytes());
            address[24..].copy_from_slice(&(base.addr() as u64).to_le_bytes());
            let (local_key, gid_index, mtu) = ((*region).lkey, devices.gid(), port.active_mtu);
            let pair = Self { raw, completions, local_key, memory, address, peer_memory: (0, 0), gid_index, mtu };
            let which = mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_ACCESS_FLAGS;
            pair.modify(ibv_qp_state::IBV_QPS_INIT, which, |a| (a.port_num, a.qp_access_flags) = (PORT, all.0))?;
            Ok(pair)
        }
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

    /// Connects with the end that has this address. Both sides do so before either sends.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] for bytes that are not an address, [`ErrorKind::System`].
    pub(crate) fn connect(&mut self, address: &[u8]) -> Result<()> {
        let Ok(address) = <&[u8; ADDRESS]>::try_from(address) else {
            return Err(Error::new(ErrorKind::Protocol, OP).cause("the peer process has sent no queue pair address"));
        };
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| address[at + i]));
        self.peer_memory = (u64::from(word(24)) | u64::from(word(28)) << 32, word(20));
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
    pub(crate) fn transfer(&self, action: Action, bytes: usize, count: usize) -> Result<()> {
        if 2 * bytes > size_of_val(self.memory) || count > DEPTH || (action == Action::FetchAdd && bytes != 8) {
            return Err(Error::new(ErrorKind::BadArgument, OP).cause(format!(
                "{count} operations of {bytes} bytes; at most {DEPTH} operations fit, of {} bytes",
                size_of_val(self.memory) / 2
            )));
        }
        for _ in 0..count {
            self.post(action, bytes)?;
        }
        (0..count).try_for_each(|_| self.complete())
    }

    #[inline]
    fn post(&self, action: Action, bytes: usize) -> Result<()> {
        // SAFETY: only the peer's first half and this side's second half are accessed; both have room for `bytes`.
        unsafe {
            let addr = self.memory[self.memory.len() / 2..].as_ptr().addr() as u64;
            let mut piece = ibv_sge { addr, length: bytes as u32, lkey: self.local_key };
            let mut request: ibv_send_wr = zeroed();
            (request.sg_list, request.num_sge) = (&raw mut piece, 1);
            request.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
            let (remote_addr, rkey) = self.peer_memory;
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
                _ => {
                    Err(Error::new(ErrorKind::Protocol, OP)
                        .cause(format!("a work completion has error status {status}")))
                }
            }
        })
    }

    /// Writes a number to the peer's memory, and waits for the completion.
    ///
    /// # Errors
    /// `System`, `Protocol` for a completion with an error, `Timeout`.
    #[inline]
    pub(crate) fn send(&self, number: u64) -> Result<()> {
        // Relaxed: the post on this thread reads it.
        self.memory[self.memory.len() / 2].store(number, Ordering::Relaxed);
        self.transfer(Action::Write, 8, 1)
    }

    /// Waits until the peer has sent `number`.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`].
    #[inline]
    pub(crate) fn receive(&self, number: u64) -> Result<()> {
        // Acquire: orders later reads after the HCA's write.
        until(|| Ok(self.memory[0].load(Ordering::Acquire) == number))
    }
}

/// Polls until `is_so`. Reads the clock only after many polls, since it costs more than a poll.
#[inline]
fn until(mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let mut start = None;
    loop {
        for _ in 0..POLLS_PER_CLOCK_READ {
            if is_so()? {
                return Ok(());
            }
        }
        if start.get_or_insert_with(Instant::now).elapsed() > COMPLETION_TIMEOUT {
            return Err(Error::new(ErrorKind::Timeout, OP).cause("timed out waiting for the peer process"));
        }
    }
}
