//! The limits and faults of the strict provider.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use rdma_sys::{ibv_access_flags, ibv_atomic_cap, ibv_device_attr, ibv_port_attr, ibv_qp_init_attr};

use super::profiles::profile;

/// Limits and faults; those that are `None` are the device's own.
#[derive(Clone, Debug)]
pub(crate) struct Knobs {
    /// Maximum number of segments of a request: as the device reports it, and as a queue pair may have.
    pub(crate) pieces: Option<c_int>,
    pub(crate) pieces_of_a_pair: Option<u32>,
    /// Maximum number of segments of a read, reported and enforced.
    pub(crate) read_pieces: Option<c_int>,
    /// Maximum number of inline bytes, and the code with which a request with more is refused.
    pub(crate) inline: Option<u32>,
    pub(crate) inline_error: c_int,
    /// Whether there are shared receive queues and atomics.
    pub(crate) shared_receives: bool,
    pub(crate) atomics: bool,
    /// Maximum number of queue pairs of this process, of completions of a queue, and of bytes of a registration.
    pub(crate) pairs: Option<u32>,
    pub(crate) completions: Option<c_int>,
    /// Whether completion queues can be made longer; the longest that was created, and the longest that there was.
    pub(crate) resizes: bool,
    pub(crate) created: c_int,
    pub(crate) longest: c_int,
    pub(crate) registration: Option<u64>,
    /// The code with which a longer registration is refused.
    pub(crate) registration_error: c_int,
    /// Whether keys must be of relaxed order.
    pub(crate) relaxed_only: bool,
    /// Number of connections that will be refused when a queue pair becomes ready to receive, and the code.
    pub(crate) unready: u32,
    pub(crate) unready_error: c_int,
    /// Asynchronous events to report: type and port.
    pub(crate) events: VecDeque<(u32, u64)>,
    /// Whether the port requires a global routing header; its LID, and the one that it has once a change is reported.
    pub(crate) global: bool,
    pub(crate) lid: Option<u16>,
    pub(crate) next_lid: Option<u16>,
    /// The LIDs for which address handles were created.
    pub(crate) reached: Vec<u16>,
    /// Partition keys of each port.
    pub(crate) keys: Option<Vec<u16>>,
}

impl Knobs {
    /// No limit, and no fault.
    pub(crate) const LENIENT: Self = Self {
        pieces: None,
        pieces_of_a_pair: None,
        read_pieces: None,
        inline: None,
        inline_error: libc::EINVAL,
        shared_receives: true,
        atomics: true,
        pairs: None,
        completions: None,
        resizes: true,
        created: 0,
        longest: 0,
        registration: None,
        registration_error: libc::EINVAL,
        relaxed_only: false,
        unready: 0,
        unready_error: libc::ETIMEDOUT,
        events: VecDeque::new(),
        global: false,
        lid: None,
        next_lid: None,
        reached: Vec::new(),
        keys: None,
    };

    /// Those of the profile that the environment names.
    pub(crate) fn initial() -> Self {
        let Ok(name) = std::env::var("FARSIDE_TEST_PROVIDER") else { return Self::LENIENT };
        profile(&name).unwrap_or_else(|| panic!("FARSIDE_TEST_PROVIDER: there is no profile {name}"))
    }

    pub(super) fn limit_device(&self, a: &mut ibv_device_attr) {
        let least = |value: &mut c_int, limit: Option<c_int>| *value = limit.unwrap_or(*value).min(*value);
        least(&mut a.max_sge, self.pieces);
        least(&mut a.max_sge_rd, self.read_pieces);
        least(&mut a.max_qp, self.pairs.map(|n| n as c_int));
        least(&mut a.max_cqe, self.completions);
        a.max_mr_size = a.max_mr_size.min(self.registration.unwrap_or(u64::MAX));
        if !self.shared_receives {
            (a.max_srq, a.max_srq_wr, a.max_srq_sge) = (0, 0, 0);
        }
        if !self.atomics {
            a.atomic_cap = ibv_atomic_cap::IBV_ATOMIC_NONE;
        }
    }

    pub(super) fn limit_port(&self, a: &mut ibv_port_attr) {
        /// `IBV_QPF_GRH_REQUIRED`
        const GLOBAL: u8 = 1;
        a.flags |= if self.global { GLOBAL } else { 0 };
        a.lid = self.lid.unwrap_or(a.lid);
        if let Some(keys) = &self.keys {
            a.pkey_tbl_len = keys.len() as u16;
        }
    }

    /// The code with which the creation of a queue pair is refused, or 0.
    pub(super) fn judge_pair(&self, init: &ibv_qp_init_attr, existing: u32) -> c_int {
        let pieces = self.pieces_of_a_pair.or(self.pieces.map(|n| n as u32)).unwrap_or(u32::MAX);
        let scatter = if init.srq.is_null() { init.cap.max_recv_sge } else { 0 };
        if init.cap.max_send_sge.max(scatter) > pieces || init.cap.max_inline_data > self.inline.unwrap_or(u32::MAX) {
            return libc::EINVAL;
        }
        if self.pairs.is_some_and(|most| existing >= most) { libc::ENOMEM } else { 0 }
    }

    /// The code with which a registration is refused, or 0.
    pub(super) fn judge_registration(&self, len: usize, access: c_int) -> c_int {
        if self.registration.is_some_and(|most| len as u64 > most) {
            return self.registration_error;
        }
        // As rdma-core's efa and its kernel driver: rights that the adapter does not have are refused.
        let has_atomics = access as u32 & ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0 != 0;
        if !self.atomics && has_atomics {
            return libc::EOPNOTSUPP;
        }
        let is_relaxed = access as u32 & ibv_access_flags::IBV_ACCESS_RELAXED_ORDERING.0 != 0;
        if self.relaxed_only && !is_relaxed { libc::EINVAL } else { 0 }
    }
}

static KNOBS: LazyLock<Mutex<Knobs>> = LazyLock::new(|| Mutex::new(Knobs::initial()));

/// The knobs of this process.
pub(crate) fn knobs() -> MutexGuard<'static, Knobs> {
    KNOBS.lock().unwrap_or_else(PoisonError::into_inner)
}
