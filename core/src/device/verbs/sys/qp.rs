#![allow(unsafe_code)]
//! Queue pairs, with states as types: [`Fresh`] becomes a [`Responder`], which serves a peer's requests, or a
//! [`Requester`], which sends this rank's; a [`Datagram`] queue pair carries control messages.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use rdma_sys::{
    ibv_create_qp, ibv_destroy_qp, ibv_modify_qp, ibv_post_recv, ibv_post_send, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask,
    ibv_qp_cap, ibv_qp_init_attr, ibv_qp_state, ibv_qp_type, ibv_recv_wr, ibv_send_flags, ibv_send_wr, ibv_sge,
    ibv_wr_opcode,
};

use smallvec::SmallVec;

use super::queue::{Completions, Piece, SharedReceives};
use super::{Domain, Handle, Path, Rights, check, made, owned};
use crate::device::verbs::memory::slab::Slab;

/// The objects from which the queue pairs of a rank are built.
#[derive(Clone)]
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
    /// Maximum number of segments of one request and of one receive.
    pub(crate) pieces: u32,
    pub(crate) scatter: u32,
    pub(crate) inline: u32,
}

/// Connection parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    pub(crate) pkey_index: u16,
    pub(crate) port: u8,
    pub(crate) mtu: u32,
    pub(crate) timeout: u8,
    pub(crate) retries: u8,
}

/// RNR timer of a receiver without buffers, encoded: 0.64 ms between two tries.
const RNR_TIMER: u8 = 12;
/// The value 7 stands for retries without a limit: a rank that computes for long is slow but not lost. Lost peers are
/// detected in other ways.
const RNR_RETRIES: u8 = 7;

/// A queue pair in any state.
pub(crate) struct Pair {
    raw: *mut ibv_qp,
    sizes: Sizes,
    parts: Parts,
}

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
        let raw = made(unsafe { ibv_create_qp(parts.domain.raw, &raw mut init) })?;
        Ok(Self { raw, sizes, parts: parts.clone() })
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: a live queue pair.
        unsafe { (*self.raw).qp_num }
    }

    pub(super) fn modify(&self, mut attributes: ibv_qp_attr, mask: ibv_qp_attr_mask) -> io::Result<()> {
        // SAFETY: a live queue pair; the attributes are copied.
        check(unsafe { ibv_modify_qp(self.raw, &raw mut attributes, mask.0 as i32) })
    }

    /// Moves a reliable queue pair to the state in which receives can be posted; `access` are the peer's rights.
    pub(super) fn initialize(&self, tuning: &Tuning, access: u32) -> io::Result<()> {
        use ibv_qp_attr_mask as m;
        let mut a = attributes(ibv_qp_state::IBV_QPS_INIT);
        (a.pkey_index, a.port_num, a.qp_access_flags) = (tuning.pkey_index, tuning.port, access);
        self.modify(a, m::IBV_QP_STATE | m::IBV_QP_PKEY_INDEX | m::IBV_QP_PORT | m::IBV_QP_ACCESS_FLAGS)
    }

    /// Makes the queue pair ready to receive from queue pair `peer`, whose first packet has number `psn`, with up to
    /// `depth` reads and atomics in progress.
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

    /// Makes the queue pair ready to send; its first packet has number `psn`.
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

    /// Posts a receive buffer that consists of `pieces`.
    ///
    /// # Safety
    /// The contract of [`SharedReceives::post`].
    pub(crate) unsafe fn receive(&self, id: u64, pieces: &[Piece]) -> io::Result<()> {
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

    /// Posts a request to the send queue. Returns 0 or the error code.
    ///
    /// # Safety
    /// The memory of pieces that are not inline stays registered and mapped until the request is complete.
    #[inline(always)]
    pub(super) unsafe fn send(&self, order: &Order<'_>) -> i32 {
        if order.pieces.len() > TYPICAL_PIECES {
            // SAFETY: the same contract.
            return unsafe { self.send_chain(order) };
        }
        let mut pieces: [MaybeUninit<ibv_sge>; TYPICAL_PIECES] = [const { MaybeUninit::uninit() }; TYPICAL_PIECES];
        for (place, piece) in pieces.iter_mut().zip(order.pieces) {
            place.write(piece.raw());
        }
        // SAFETY: all pieces were written; the memory by the contract.
        unsafe { self.send_pieces(order, pieces.as_mut_ptr().cast()) }
    }

    /// # Safety
    /// The memory of pieces that are not inline stays registered and mapped until the request is complete.
    #[inline(never)]
    unsafe fn send_chain(&self, order: &Order<'_>) -> i32 {
        let mut pieces: SmallVec<[ibv_sge; MAX_PIECES]> = order.pieces.iter().map(|p| p.raw()).collect();
        // SAFETY: all pieces are initialized; the memory by the contract.
        unsafe { self.send_pieces(order, pieces.as_mut_ptr()) }
    }

    /// # Safety
    /// The contract of [`send`](Self::send); `pieces` are those of `order`.
    #[inline(always)]
    unsafe fn send_pieces(&self, order: &Order<'_>, pieces: *mut ibv_sge) -> i32 {
        // SAFETY: plain data.
        let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
        fill(&mut wr, order);
        wr.sg_list = pieces;
        let mut bad = ptr::null_mut();
        // SAFETY: a live request on a live queue pair; the memory by the contract.
        unsafe { ibv_post_send(self.raw, &raw mut wr, &raw mut bad) }
    }

    /// Moves the queue pair to the error state: outstanding requests complete with an error, and the HCA no longer
    /// accesses their memory afterwards.
    pub(crate) fn fail(&self) -> io::Result<()> {
        self.modify(attributes(ibv_qp_state::IBV_QPS_ERR), ibv_qp_attr_mask::IBV_QP_STATE)
    }
}

pub(super) fn attributes(state: ibv_qp_state::Type) -> ibv_qp_attr {
    // SAFETY: plain data.
    let mut a: ibv_qp_attr = unsafe { std::mem::zeroed() };
    a.qp_state = state;
    a
}

owned!(Pair, ibv_destroy_qp);

/// Implements the methods that are common to all queue pair types.
macro_rules! is_a_pair {
    ($($name:ident.$field:tt),*) => {
        $(impl std::ops::Deref for $name {
            type Target = Pair;
            fn deref(&self) -> &Pair {
                &self.$field
            }
        })*
    };
}
is_a_pair!(Fresh.0, Responder.0, Requester.pair, Datagram.pair);
pub(super) use is_a_pair;

/// A reliable queue pair that is not connected.
pub(crate) struct Fresh(Pair);

impl Fresh {
    /// Creates a queue pair; `remote` permits the peer to access memory through it.
    pub(crate) fn new(parts: &Parts, sizes: Sizes, tuning: &Tuning, remote: bool) -> io::Result<Self> {
        let pair = Pair::new(parts, sizes, false)?;
        pair.initialize(tuning, if remote { parts.domain.remote() } else { 0 })?;
        Ok(Self(pair))
    }

    /// Serves the requests of queue pair `peer`, whose first packet has number `psn`, with up to `depth` reads and
    /// atomics in progress. The queue pair answers but cannot send requests.
    pub(crate) fn respond(self, peer: u32, psn: u32, depth: u8, path: &Path, tuning: &Tuning) -> io::Result<Responder> {
        self.0.ready_to_receive((peer, psn), depth, RNR_TIMER, path, tuning)?;
        Ok(Responder(self.0))
    }

    /// Makes the queue pair send requests to queue pair `peer`; the first packet has number `psn`.
    pub(crate) fn request(self, peer: u32, psn: u32, depth: u8, path: &Path, tuning: &Tuning) -> io::Result<Requester> {
        let sizes = self.0.sizes;
        let bounce = if (sizes.inline as usize) < SMALL {
            Some(Slab::new(&self.0.parts.domain, sizes.sends as usize * SMALL, Rights::Source)?)
        } else {
            None
        };
        let requester = Requester { pair: self.0, bounce, peer, first: psn, depth, path: *path, tuning: *tuning };
        requester.connect(psn)?;
        Ok(requester)
    }
}

/// A queue pair that serves a peer's requests.
pub(crate) struct Responder(Pair);

/// The operation of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Write { address: u64, key: u32 },
    Read { address: u64, key: u32 },
    Send,
    FetchAdd { address: u64, key: u32, add: u64 },
    CompareSwap { address: u64, key: u32, expected: u64, desired: u64 },
}

impl Action {
    /// Name of the operation in errors.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Action::Write { .. } => "write remote memory",
            Action::Read { .. } => "read remote memory",
            Action::Send => "send a packet",
            Action::FetchAdd { .. } => "fetch and add",
            Action::CompareSwap { .. } => "compare and swap",
        }
    }

    /// The same write or read, at a remote address `len` bytes further on.
    pub(crate) fn behind(self, len: u64) -> Self {
        match self {
            Action::Write { address, key } => Action::Write { address: address + len, key },
            Action::Read { address, key } => Action::Read { address: address + len, key },
            other => other,
        }
    }
}

/// A work request in the form in which the HCA accepts it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order<'a> {
    pub(crate) id: u64,
    pub(crate) action: Action,
    pub(crate) pieces: &'a [Piece],
    /// Whether the bytes are copied into the request when it is posted.
    pub(crate) inline: bool,
    pub(crate) immediate: Option<u32>,
    pub(crate) signalled: bool,
}

/// Typical and maximum number of segments of a request.
const TYPICAL_PIECES: usize = 2;
const MAX_PIECES: usize = 64;

/// Maximum length of inline bytes that a requester accepts if its queue pair accepts fewer: at least that of a signal,
/// and of the packet that defines its slot.
const SMALL: usize = 32;

/// A queue pair that sends requests. Fields are dropped in this order.
pub(crate) struct Requester {
    pair: Pair,
    /// Memory of [`SMALL`] bytes for each outstanding request, if inline bytes may exceed what the queue pair accepts.
    bounce: Option<Slab>,
    /// Number of the peer's queue pair, and of the first packet.
    peer: u32,
    first: u32,
    depth: u8,
    path: Path,
    tuning: Tuning,
}

impl Requester {
    fn connect(&self, psn: u32) -> io::Result<()> {
        self.pair.ready_to_receive((self.peer, 0), 0, RNR_TIMER, &self.path, &self.tuning)?;
        self.pair.ready_to_send(psn, self.depth, RNR_RETRIES, &self.tuning)
    }

    /// Posts a request whose bytes are inline, or in `bounce` if they are too long for that. Consecutive ids, of which
    /// at most as many are outstanding as the queue has places, have memory of their own.
    ///
    /// # Safety
    /// The contract of [`Sends::post`].
    #[cold]
    unsafe fn post_small(&self, order: &Order<'_>, bounce: &Slab) -> i32 {
        let [Piece { address, len, .. }] = *order.pieces else { return libc::EINVAL };
        let len = len as usize;
        if len <= self.pair.sizes.inline as usize || len > SMALL {
            // SAFETY: the same contract; the queue pair refuses bytes that are too long.
            return unsafe { self.pair.send(order) };
        }
        let offset = (order.id % u64::from(self.pair.sizes.sends)) as usize * SMALL;
        let pieces = [bounce.piece(offset, len)];
        // SAFETY: inline bytes, which live during the call; the memory belongs to this request until it is complete.
        unsafe {
            let from = ptr::with_exposed_provenance::<u8>(address as usize);
            ptr::copy_nonoverlapping(from, bounce.at(offset), len);
            self.pair.send(&Order { pieces: &pieces, inline: false, ..*order })
        }
    }
}

/// The queue pair of a send queue; tests replace it by a model.
pub(crate) trait Sends {
    /// Inline limit in bytes.
    fn inline(&self) -> usize;
    /// Number of the first packet.
    fn first(&self) -> u32;
    /// Number of packets of a message of `len` bytes.
    fn packets(&self, len: usize) -> u32;
    /// Posts a request. Returns 0 or the error code.
    ///
    /// # Safety
    /// The memory of pieces that are not inline stays registered and mapped until the request is complete.
    unsafe fn post(&self, order: &Order<'_>) -> i32;
    /// Moves the queue pair to the error state ([`Pair::fail`]).
    fn fail(&self) -> io::Result<()>;
    /// Restarts the queue pair, all of whose requests have completed or failed. Its next packet has number `psn`, that
    /// of the first unacknowledged packet. The peer's queue pair identifies this one by its number, which stays the
    /// same, and handles packets that it has received before as repetitions: it executes no write, send or atomic
    /// again, and answers as it did before (InfiniBand Architecture Specification, volume 1, 9.7.5.1). So the same
    /// requests must follow in the same order.
    fn restart(&self, psn: u32) -> io::Result<()>;
}

impl Sends for Requester {
    #[inline]
    fn inline(&self) -> usize {
        self.pair.sizes.inline as usize
    }

    fn first(&self) -> u32 {
        self.first
    }

    #[inline]
    fn packets(&self, len: usize) -> u32 {
        // The path MTU is 128 bytes times two to the power of its code.
        (len.saturating_sub(1) >> (7 + self.tuning.mtu)) as u32 + 1
    }

    #[inline(always)]
    unsafe fn post(&self, order: &Order<'_>) -> i32 {
        // SAFETY: the same contract.
        unsafe {
            match &self.bounce {
                Some(bounce) if order.inline => self.post_small(order, bounce),
                _ => self.pair.send(order),
            }
        }
    }

    fn fail(&self) -> io::Result<()> {
        self.pair.fail()
    }

    fn restart(&self, psn: u32) -> io::Result<()> {
        self.pair.modify(attributes(ibv_qp_state::IBV_QPS_RESET), ibv_qp_attr_mask::IBV_QP_STATE)?;
        self.pair.initialize(&self.tuning, 0)?;
        self.connect(psn)
    }
}

#[inline(always)]
fn fill(wr: &mut ibv_send_wr, order: &Order<'_>) {
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

    /// Uses the partition key at `index` from the next restart on; returns whether that is another one.
    pub(crate) fn use_partition(&mut self, index: u16) -> bool {
        std::mem::replace(&mut self.pkey_index, index) != index
    }

    /// Makes the queue pair usable again, with the same number. All posted requests must have completed.
    pub(crate) fn restart(&self) -> io::Result<()> {
        self.pair.modify(attributes(ibv_qp_state::IBV_QPS_RESET), ibv_qp_attr_mask::IBV_QP_STATE)?;
        self.start()
    }

    /// Sends one datagram.
    ///
    /// # Safety
    /// The buffer stays registered and unchanged until the request has completed.
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
