#![allow(unsafe_code)]
//! Queue pairs, whose states are types: [`Fresh`] becomes a [`Responder`], which serves a peer's requests, or a
//! [`Requester`], which sends this rank's; a [`Datagram`] pair carries control messages.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use rdma_sys::{
    ibv_access_flags, ibv_create_qp, ibv_destroy_qp, ibv_modify_qp, ibv_post_recv, ibv_post_send, ibv_qp, ibv_qp_attr,
    ibv_qp_attr_mask, ibv_qp_cap, ibv_qp_init_attr, ibv_qp_state, ibv_qp_type, ibv_recv_wr, ibv_send_flags,
    ibv_send_wr, ibv_sge, ibv_wr_opcode,
};

use smallvec::SmallVec;

use super::queue::{Completions, Piece, SharedReceives};
use super::{Domain, Handle, Path, check};

/// What queue pairs of a rank are made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) domain: Arc<Domain>,
    pub(crate) sends: Arc<Completions>,
    pub(crate) receives: Arc<Completions>,
    pub(crate) shared: Option<Arc<SharedReceives>>,
}

/// Sizes of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) sends: u32,
    pub(crate) receives: u32,
    /// Of one request, and of one receive.
    pub(crate) pieces: u32,
    pub(crate) scatter: u32,
    pub(crate) inline: u32,
}

/// How a connection behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    pub(crate) pkey_index: u16,
    pub(crate) port: u8,
    pub(crate) mtu: u32,
    pub(crate) timeout: u8,
    pub(crate) retries: u8,
}

/// Waits of a receiver without buffers: 0.64 ms between two tries.
const RNR_TIMER: u8 = 12;
/// Seven means: without end. A rank that computes for long is slow and not lost; who is lost is found otherwise.
const RNR_RETRIES: u8 = 7;

#[derive(Debug)]
pub(super) struct Pair {
    pub(super) raw: *mut ibv_qp,
    inline: u32,
    _parts: (Arc<Domain>, Arc<Completions>, Arc<Completions>, Option<Arc<SharedReceives>>),
}

// SAFETY: libibverbs locks what threads share; destroyed once, by the owner.
unsafe impl Send for Pair {}

impl Pair {
    pub(super) fn new(parts: &Parts, sizes: Sizes, datagram: bool) -> io::Result<Self> {
        // SAFETY: plain data.
        let mut init: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        init.send_cq = parts.sends.raw;
        init.recv_cq = parts.receives.raw;
        init.srq = parts.shared.as_ref().map_or(ptr::null_mut(), |s| s.raw);
        init.qp_type = if datagram { ibv_qp_type::IBV_QPT_UD } else { ibv_qp_type::IBV_QPT_RC };
        init.cap = ibv_qp_cap {
            max_send_wr: sizes.sends,
            max_recv_wr: sizes.receives,
            max_send_sge: sizes.pieces,
            max_recv_sge: sizes.scatter,
            max_inline_data: sizes.inline,
        };
        // SAFETY: live parts; the attributes are copied and the true sizes written back.
        let raw = unsafe { ibv_create_qp(parts.domain.raw, &raw mut init) };
        if raw.is_null() {
            return Err(io::Error::last_os_error());
        }
        let kept =
            (Arc::clone(&parts.domain), Arc::clone(&parts.sends), Arc::clone(&parts.receives), parts.shared.clone());
        Ok(Self { raw, inline: sizes.inline, _parts: kept })
    }

    pub(super) fn number(&self) -> u32 {
        // SAFETY: a live queue pair.
        unsafe { (*self.raw).qp_num }
    }

    pub(super) fn modify(&self, mut attributes: ibv_qp_attr, mask: ibv_qp_attr_mask) -> io::Result<()> {
        // SAFETY: a live queue pair; the attributes are copied.
        check(unsafe { ibv_modify_qp(self.raw, &raw mut attributes, mask.0 as i32) })
    }

    /// Moves a reliable one to the state in which receives can be posted; `access` is what the peer may do.
    pub(super) fn initialize(&self, tuning: &Tuning, access: u32) -> io::Result<()> {
        use ibv_qp_attr_mask as m;
        let mut a = attributes(ibv_qp_state::IBV_QPS_INIT);
        (a.pkey_index, a.port_num, a.qp_access_flags) = (tuning.pkey_index, tuning.port, access);
        self.modify(a, m::IBV_QP_STATE | m::IBV_QP_PKEY_INDEX | m::IBV_QP_PORT | m::IBV_QP_ACCESS_FLAGS)
    }

    /// Receives from queue pair `peer`, whose first packet has number `psn`, up to `depth` reads and atomics at once.
    pub(super) fn ready_to_receive(
        &self,
        (peer, psn): (u32, u32),
        depth: u8,
        rnr_timer: u8,
        path: &Path,
        tuning: &Tuning,
    ) -> io::Result<()> {
        use ibv_qp_attr_mask as m;
        let mut a = attributes(ibv_qp_state::IBV_QPS_RTR);
        a.path_mtu = tuning.mtu;
        a.dest_qp_num = peer;
        a.rq_psn = psn & 0xff_ffff;
        a.max_dest_rd_atomic = depth;
        a.min_rnr_timer = rnr_timer;
        a.ah_attr = path.attributes();
        self.modify(
            a,
            m::IBV_QP_STATE
                | m::IBV_QP_AV
                | m::IBV_QP_PATH_MTU
                | m::IBV_QP_DEST_QPN
                | m::IBV_QP_RQ_PSN
                | m::IBV_QP_MAX_DEST_RD_ATOMIC
                | m::IBV_QP_MIN_RNR_TIMER,
        )
    }

    /// Sends too, the first packet with number `psn`.
    pub(super) fn ready_to_send(&self, psn: u32, depth: u8, rnr_retries: u8, tuning: &Tuning) -> io::Result<()> {
        use ibv_qp_attr_mask as m;
        let mut a = attributes(ibv_qp_state::IBV_QPS_RTS);
        a.sq_psn = psn & 0xff_ffff;
        a.max_rd_atomic = depth;
        a.timeout = tuning.timeout;
        a.retry_cnt = tuning.retries;
        a.rnr_retry = rnr_retries;
        self.modify(
            a,
            m::IBV_QP_STATE
                | m::IBV_QP_SQ_PSN
                | m::IBV_QP_MAX_QP_RD_ATOMIC
                | m::IBV_QP_TIMEOUT
                | m::IBV_QP_RETRY_CNT
                | m::IBV_QP_RNR_RETRY,
        )
    }

    /// Posts a receive into pieces.
    ///
    /// # Safety
    /// As [`SharedReceives::post`].
    pub(super) unsafe fn receive(&self, id: u64, pieces: &[Piece]) -> io::Result<()> {
        let mut sges: SmallVec<[ibv_sge; 32]> = pieces.iter().map(|p| p.raw()).collect();
        // SAFETY: plain data.
        let mut wr: ibv_recv_wr = unsafe { std::mem::zeroed() };
        wr.wr_id = id;
        wr.sg_list = sges.as_mut_ptr();
        wr.num_sge = sges.len() as i32;
        let mut bad = ptr::null_mut();
        // SAFETY: a live request on a live queue pair; the buffers by the contract.
        check(unsafe { ibv_post_recv(self.raw, &raw mut wr, &raw mut bad) })
    }

    /// Moves it to the error state: what is under way completes with an error, and the HCA touches no memory of it after
    /// that.
    pub(super) fn fail(&self) -> io::Result<()> {
        self.modify(attributes(ibv_qp_state::IBV_QPS_ERR), ibv_qp_attr_mask::IBV_QP_STATE)
    }
}

pub(super) fn attributes(state: ibv_qp_state::Type) -> ibv_qp_attr {
    // SAFETY: plain data.
    let mut a: ibv_qp_attr = unsafe { std::mem::zeroed() };
    a.qp_state = state;
    a
}

impl Drop for Pair {
    fn drop(&mut self) {
        // SAFETY: the owner; not used again.
        unsafe { ibv_destroy_qp(self.raw) };
    }
}

/// A reliable queue pair that is not connected.
#[derive(Debug)]
pub(crate) struct Fresh(Pair);

impl Fresh {
    /// Makes one; `remote` says whether the peer may reach memory through it.
    pub(crate) fn new(parts: &Parts, sizes: Sizes, tuning: &Tuning, remote: bool) -> io::Result<Self> {
        use ibv_access_flags as f;
        let pair = Pair::new(parts, sizes, false)?;
        let access = f::IBV_ACCESS_REMOTE_WRITE | f::IBV_ACCESS_REMOTE_READ | f::IBV_ACCESS_REMOTE_ATOMIC;
        pair.initialize(tuning, if remote { access.0 } else { 0 })?;
        Ok(Self(pair))
    }

    pub(crate) fn number(&self) -> u32 {
        self.0.number()
    }

    /// Serves the requests of queue pair `peer`, whose first packet has number `psn`, up to `depth` reads and
    /// atomics at once. It answers without ever being able to send.
    pub(crate) fn respond(self, peer: u32, psn: u32, depth: u8, path: &Path, tuning: &Tuning) -> io::Result<Responder> {
        self.0.ready_to_receive((peer, psn), depth, RNR_TIMER, path, tuning)?;
        Ok(Responder(self.0))
    }

    /// Sends requests to queue pair `peer`, the first packet with number `psn`.
    pub(crate) fn request(self, peer: u32, psn: u32, depth: u8, path: &Path, tuning: &Tuning) -> io::Result<Requester> {
        self.0.ready_to_receive((peer, 0), 0, RNR_TIMER, path, tuning)?;
        self.0.ready_to_send(psn, depth, RNR_RETRIES, tuning)?;
        Ok(Requester(self.0))
    }
}

/// A queue pair that serves a peer.
#[derive(Debug)]
pub(crate) struct Responder(Pair);

impl Responder {
    pub(crate) fn number(&self) -> u32 {
        self.0.number()
    }

    /// Moves it to the error state: it takes no request any more, and receives that it has begun complete.
    pub(crate) fn fail(&self) -> io::Result<()> {
        self.0.fail()
    }
}

/// What a work request does at the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Write { address: u64, key: u32 },
    Read { address: u64, key: u32 },
    Send,
    FetchAdd { address: u64, key: u32, add: u64 },
    CompareSwap { address: u64, key: u32, expected: u64, desired: u64 },
}

/// A work request as the card takes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order<'a> {
    pub(crate) id: u64,
    pub(crate) action: Action,
    pub(crate) pieces: &'a [Piece],
    /// The bytes are taken when it is posted.
    pub(crate) inline: bool,
    pub(crate) immediate: Option<u32>,
    pub(crate) signalled: bool,
}

/// Most pieces of all requests of one list.
const LIST_PIECES: usize = 64;
/// Most requests in one list.
pub(crate) const LIST: usize = 8;

/// Pieces of a request that is posted by itself, as a rule.
const FEW: usize = 2;

/// A queue pair that sends requests.
#[derive(Debug)]
pub(crate) struct Requester(Pair);

impl Requester {
    /// Bytes that go inside a request.
    pub(crate) fn inline(&self) -> usize {
        self.0.inline as usize
    }

    /// Posts up to [`LIST`] requests with one doorbell. On failure: how many were taken, and the code of the error.
    ///
    /// # Safety
    /// The memory of pieces that are not inline stays registered and mapped until the request is complete.
    pub(crate) unsafe fn post(&self, orders: &[Order<'_>]) -> Result<(), (usize, i32)> {
        let mut wrs: MaybeUninit<[ibv_send_wr; LIST]> = MaybeUninit::uninit();
        let mut sges: MaybeUninit<[ibv_sge; LIST_PIECES]> = MaybeUninit::uninit();
        let first: *mut ibv_send_wr = wrs.as_mut_ptr().cast();
        let pieces: *mut ibv_sge = sges.as_mut_ptr().cast();
        let mut used = 0;
        for (i, order) in orders.iter().enumerate() {
            if i >= LIST || used + order.pieces.len() > LIST_PIECES {
                return Err((0, libc::E2BIG));
            }
            // SAFETY: `i` is below `LIST`, and pieces below `LIST_PIECES`; what is used is written here, zeroed
            // first, and lists link entries of the same arrays.
            unsafe {
                for (j, piece) in order.pieces.iter().enumerate() {
                    pieces.add(used + j).write(piece.raw());
                }
                first.add(i).write_bytes(0, 1);
                let wr = &mut *first.add(i);
                fill(wr, order);
                wr.sg_list = pieces.add(used);
                if i + 1 < orders.len() {
                    wr.next = first.add(i + 1);
                }
            }
            used += order.pieces.len();
        }
        let mut bad = ptr::null_mut();
        // SAFETY: a list of live requests on a live queue pair; the memory by the contract.
        let code = unsafe { ibv_post_send(self.0.raw, first, &raw mut bad) };
        if code == 0 {
            return Ok(());
        }
        // SAFETY: on failure `bad` is the first request of the list that was not taken.
        let taken = if bad.is_null() { 0 } else { unsafe { bad.offset_from(first) }.max(0) as usize };
        Err((taken, code))
    }

    /// Posts one request. The code of the error, or 0.
    ///
    /// # Safety
    /// As [`post`](Self::post).
    #[inline(always)]
    pub(crate) unsafe fn post_one(&self, order: &Order<'_>) -> i32 {
        if order.pieces.len() > FEW {
            // SAFETY: the same contract.
            return unsafe { self.post(std::slice::from_ref(order)) }.map_or_else(|(_, code)| code, |()| 0);
        }
        let mut pieces: [MaybeUninit<ibv_sge>; FEW] = [const { MaybeUninit::uninit() }; FEW];
        for (place, piece) in pieces.iter_mut().zip(order.pieces) {
            place.write(piece.raw());
        }
        // SAFETY: plain data.
        let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
        fill(&mut wr, order);
        wr.sg_list = pieces.as_mut_ptr().cast();
        let mut bad = ptr::null_mut();
        // SAFETY: a live request of as many pieces as were written, on a live queue pair; the memory by the contract.
        unsafe { ibv_post_send(self.0.raw, &raw mut wr, &raw mut bad) }
    }

    /// Ends it: what is under way completes with an error, and the card touches no memory of it after that.
    pub(crate) fn fail(&self) -> io::Result<()> {
        self.0.fail()
    }
}

#[inline(always)]
pub(super) fn fill(wr: &mut ibv_send_wr, order: &Order<'_>) {
    wr.wr_id = order.id;
    wr.num_sge = order.pieces.len() as i32;
    let flag = |on: bool, f: ibv_send_flags| if on { f.0 } else { 0 };
    wr.send_flags =
        flag(order.signalled, ibv_send_flags::IBV_SEND_SIGNALED) | flag(order.inline, ibv_send_flags::IBV_SEND_INLINE);
    wr.imm_data_invalidated_rkey_union.imm_data = order.immediate.unwrap_or(0).to_be();
    use ibv_wr_opcode as op;
    let with = order.immediate.is_some();
    wr.opcode = match order.action {
        Action::Write { address, key } => {
            wr.wr.rdma = rdma_sys::rdma_t { remote_addr: address, rkey: key };
            if with { op::IBV_WR_RDMA_WRITE_WITH_IMM } else { op::IBV_WR_RDMA_WRITE }
        }
        Action::Read { address, key } => {
            wr.wr.rdma = rdma_sys::rdma_t { remote_addr: address, rkey: key };
            op::IBV_WR_RDMA_READ
        }
        Action::Send if with => op::IBV_WR_SEND_WITH_IMM,
        Action::Send => op::IBV_WR_SEND,
        Action::FetchAdd { address, key, add } => {
            wr.wr.atomic = rdma_sys::atomic_t { remote_addr: address, compare_add: add, swap: 0, rkey: key };
            op::IBV_WR_ATOMIC_FETCH_AND_ADD
        }
        Action::CompareSwap { address, key, expected, desired } => {
            wr.wr.atomic = rdma_sys::atomic_t { remote_addr: address, compare_add: expected, swap: desired, rkey: key };
            op::IBV_WR_ATOMIC_CMP_AND_SWP
        }
    };
}

/// A datagram queue pair.
#[derive(Debug)]
pub(crate) struct Datagram {
    pair: Pair,
    pkey_index: u16,
    port: u8,
    qkey: u32,
}

impl Datagram {
    pub(crate) fn new(parts: &Parts, sizes: Sizes, tuning: &Tuning, qkey: u32) -> io::Result<Self> {
        let pair = Pair::new(parts, sizes, true)?;
        let me = Self { pair, pkey_index: tuning.pkey_index, port: tuning.port, qkey };
        me.start()?;
        Ok(me)
    }

    fn start(&self) -> io::Result<()> {
        use ibv_qp_attr_mask as m;
        let mut a = attributes(ibv_qp_state::IBV_QPS_INIT);
        (a.pkey_index, a.port_num, a.qkey) = (self.pkey_index, self.port, self.qkey);
        self.pair.modify(a, m::IBV_QP_STATE | m::IBV_QP_PKEY_INDEX | m::IBV_QP_PORT | m::IBV_QP_QKEY)?;
        self.pair.modify(attributes(ibv_qp_state::IBV_QPS_RTR), m::IBV_QP_STATE)?;
        self.pair.modify(attributes(ibv_qp_state::IBV_QPS_RTS), m::IBV_QP_STATE | m::IBV_QP_SQ_PSN)
    }

    /// Moves it to the error state, in which everything that was posted completes.
    pub(crate) fn fail(&self) -> io::Result<()> {
        self.pair.fail()
    }

    /// Makes it usable again, with the same number, once all that was posted has completed.
    pub(crate) fn restart(&self) -> io::Result<()> {
        self.pair.modify(attributes(ibv_qp_state::IBV_QPS_RESET), ibv_qp_attr_mask::IBV_QP_STATE)?;
        self.start()
    }

    pub(crate) fn number(&self) -> u32 {
        self.pair.number()
    }

    /// Gives a buffer for one datagram, whose first 40 bytes are for the routing header.
    ///
    /// # Safety
    /// As [`SharedReceives::post`].
    pub(crate) unsafe fn receive(&self, id: u64, buffer: Piece) -> io::Result<()> {
        // SAFETY: the same contract.
        unsafe { self.pair.receive(id, &[buffer]) }
    }

    /// Sends one datagram.
    ///
    /// # Safety
    /// The buffer stays registered and unchanged until the completion.
    pub(crate) unsafe fn send(&self, id: u64, bytes: Piece, to: &Handle, number: u32, qkey: u32) -> io::Result<()> {
        let mut sge = bytes.raw();
        // SAFETY: plain data.
        let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
        wr.wr_id = id;
        wr.sg_list = &raw mut sge;
        wr.num_sge = 1;
        wr.opcode = ibv_wr_opcode::IBV_WR_SEND;
        wr.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
        wr.wr.ud = rdma_sys::ud_t { ah: to.raw, remote_qpn: number, remote_qkey: qkey };
        let mut bad = ptr::null_mut();
        // SAFETY: a live request on a live queue pair.
        check(unsafe { ibv_post_send(self.pair.raw, &raw mut wr, &raw mut bad) })
    }
}
