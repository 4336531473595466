#![allow(unsafe_code)]
//! Completion channels and queues, and the shared receive queue.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rdma_sys::{
    ibv_ack_cq_events, ibv_comp_channel, ibv_cq, ibv_create_comp_channel, ibv_create_cq, ibv_create_srq,
    ibv_destroy_comp_channel, ibv_destroy_cq, ibv_destroy_srq, ibv_get_cq_event, ibv_poll_cq, ibv_post_srq_recv,
    ibv_recv_wr, ibv_req_notify_cq, ibv_resize_cq, ibv_sge, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_wc,
    ibv_wc_flags,
};

use super::{Context, Domain, check, made, nonblocking, owned};

/// A completion channel: readable when an armed queue has a completion.
pub(crate) struct Channel {
    raw: *mut ibv_comp_channel,
    context: Arc<Context>,
}

impl Channel {
    pub(crate) fn new(context: &Arc<Context>) -> io::Result<Arc<Self>> {
        // SAFETY: an open context.
        let raw = made(unsafe { ibv_create_comp_channel(context.raw) })?;
        let channel = Arc::new(Self { raw, context: Arc::clone(context) });
        nonblocking(channel.fd())?;
        Ok(channel)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: a live channel, whose descriptor stays open as long.
        unsafe { BorrowedFd::borrow_raw((*self.raw).fd) }
    }

    /// Reads and acknowledges an event, if there is one.
    pub(crate) fn event(&self) -> Option<Fired> {
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: live words; the queue of an event is alive, since its destruction waits until the event is
        // acknowledged.
        unsafe {
            if ibv_get_cq_event(self.raw, &raw mut cq, &raw mut context) != 0 {
                return None;
            }
            ibv_ack_cq_events(cq, 1);
        }
        Some(Fired(cq))
    }
}

/// The event of an armed queue that has received a completion and is no longer armed.
pub(crate) struct Fired(*mut ibv_cq);

owned!(Channel, ibv_destroy_comp_channel);

/// One completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    pub(crate) id: u64,
    pub(crate) status: u32,
    pub(crate) opcode: u32,
    pub(crate) vendor: u32,
    pub(crate) len: u32,
    pub(crate) immediate: Option<u32>,
    pub(crate) qp: u32,
}

/// Maximum number of completions per poll.
pub(crate) const BATCH: usize = 16;

/// A completion queue.
pub(crate) struct Completions {
    pub(super) raw: *mut ibv_cq,
    /// Number of completions for which there is room.
    entries: AtomicUsize,
    /// Accessed only by the thread that sleeps on the channel; atomic only to make the type `Sync`.
    armed: AtomicBool,
    _channel: Arc<Channel>,
}

/// The completion vector of a rank that runs on processor `cpu`. Vectors have interrupts of their own, which drivers
/// spread over the processors: with one for all, every rank that sleeps would be woken by one processor.
fn vector(cpu: usize, vectors: i32) -> i32 {
    cpu.checked_rem(usize::try_from(vectors).unwrap_or(0)).unwrap_or(0) as i32
}

impl Completions {
    pub(crate) fn new(channel: &Arc<Channel>, entries: usize) -> io::Result<Arc<Self>> {
        // SAFETY: a live context.
        let vectors = unsafe { (*channel.context.raw).num_comp_vectors };
        let vector = vector(rustix::thread::sched_getcpu(), vectors);
        // SAFETY: a live channel of this context, and one of its vectors.
        let raw = unsafe { ibv_create_cq(channel.context.raw, entries as i32, ptr::null_mut(), channel.raw, vector) };
        let raw = made(raw)?;
        let (entries, armed) = (AtomicUsize::new(entries), AtomicBool::new(false));
        Ok(Arc::new(Self { raw, entries, armed, _channel: Arc::clone(channel) }))
    }

    /// A queue that has room for `first` completions and [grows](Self::grow) up to `most`, or has room for all where the
    /// driver cannot change the size.
    pub(crate) fn growing(channel: &Arc<Channel>, first: usize, most: usize) -> io::Result<Arc<Self>> {
        if first < most {
            let queue = Self::new(channel, first)?;
            match queue.grow(first + 1) {
                Ok(()) => return Ok(queue),
                Err(e) => tracing::debug!("the completion queue gets its final size at once: {e}"),
            }
        }
        Self::new(channel, most)
    }

    /// Makes room for `entries` completions, unless there is. One thread at a time.
    pub(crate) fn grow(&self, entries: usize) -> io::Result<()> {
        // Relaxed: callers exclude each other.
        if entries > self.entries.load(Ordering::Relaxed) {
            // SAFETY: a live queue, which drivers lock against polls.
            check(unsafe { ibv_resize_cq(self.raw, entries as i32) })?;
            self.entries.store(entries, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Number of completions for which there is room.
    pub(crate) fn entries(&self) -> usize {
        // Relaxed: see `grow`.
        self.entries.load(Ordering::Relaxed)
    }

    /// Calls `each` with up to [`BATCH`] completions; returns their number.
    #[inline]
    pub(crate) fn poll(&self, mut each: impl FnMut(Completion)) -> io::Result<usize> {
        let mut wc: MaybeUninit<[ibv_wc; BATCH]> = MaybeUninit::uninit();
        let first: *mut ibv_wc = wc.as_mut_ptr().cast();
        // SAFETY: room for `BATCH` entries, of which the call fills the first `n`, and only those are read.
        unsafe {
            let n = ibv_poll_cq(self.raw, BATCH as i32, first);
            if n < 0 {
                return Err(io::Error::other("polling the completion queue failed"));
            }
            for i in 0..n as usize {
                let w = &*first.add(i);
                each(Completion {
                    id: w.wr_id,
                    status: w.status,
                    opcode: w.opcode,
                    vendor: w.vendor_err,
                    len: w.byte_len,
                    immediate: (w.wc_flags & ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0)
                        .then(|| u32::from_be(w.imm_data_invalidated_rkey_union.imm_data)),
                    qp: w.qp_num,
                });
            }
            Ok(n as usize)
        }
    }

    /// Requests an event on the channel for the next completion, unless a requested event is still outstanding.
    pub(crate) fn arm(&self) -> io::Result<()> {
        // Relaxed: only the one thread that arms the queue and takes the events accesses it, here and in `note`; no
        // other memory depends on it.
        if !self.armed.load(Ordering::Relaxed) {
            // SAFETY: a live queue.
            check(unsafe { ibv_req_notify_cq(self.raw, 0) })?;
            self.armed.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Records an event; returns whether it belongs to this queue.
    pub(crate) fn note(&self, fired: &Fired) -> bool {
        let own = self.raw == fired.0;
        if own {
            // Relaxed: read by `arm` in the same thread.
            self.armed.store(false, Ordering::Relaxed);
        }
        own
    }
}

owned!(Completions, ibv_destroy_cq);

/// A range of registered memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) address: u64,
    pub(crate) len: u32,
    pub(crate) key: u32,
}

impl Piece {
    pub(super) fn raw(self) -> ibv_sge {
        ibv_sge { addr: self.address, length: self.len, lkey: self.key }
    }
}

/// Receive buffers shared by all queue pairs of a rank.
pub(crate) struct SharedReceives {
    pub(super) raw: *mut ibv_srq,
    _domain: Arc<Domain>,
}

impl SharedReceives {
    pub(crate) fn new(domain: &Arc<Domain>, entries: usize) -> io::Result<Arc<Self>> {
        let mut init = ibv_srq_init_attr {
            srq_context: ptr::null_mut(),
            attr: ibv_srq_attr { max_wr: entries as u32, max_sge: 1, srq_limit: 0 },
        };
        // SAFETY: a live domain; the attributes are copied.
        let raw = made(unsafe { ibv_create_srq(domain.raw, &raw mut init) })?;
        Ok(Arc::new(Self { raw, _domain: Arc::clone(domain) }))
    }

    /// Posts buffers, each with its number, in lists of up to [`BATCH`].
    ///
    /// # Safety
    /// The buffers stay registered and untouched until a completion returns their number or the queue is destroyed.
    pub(crate) unsafe fn post(&self, buffers: &[(u64, Piece)]) -> io::Result<()> {
        for batch in buffers.chunks(BATCH) {
            let mut pieces: [ibv_sge; BATCH] = std::array::from_fn(|i| match batch.get(i) {
                Some((_, p)) => p.raw(),
                None => ibv_sge { addr: 0, length: 0, lkey: 0 },
            });
            // SAFETY: plain data.
            let mut wrs: [ibv_recv_wr; BATCH] = unsafe { std::mem::zeroed() };
            let sges = pieces.as_mut_ptr();
            let first = wrs.as_mut_ptr();
            for (i, (id, _)) in batch.iter().enumerate() {
                // SAFETY: `i` is below `BATCH`; the list links entries of the same array.
                unsafe {
                    (*first.add(i)).wr_id = *id;
                    (*first.add(i)).sg_list = sges.add(i);
                    (*first.add(i)).num_sge = 1;
                    if i + 1 < batch.len() {
                        (*first.add(i)).next = first.add(i + 1);
                    }
                }
            }
            let mut bad = ptr::null_mut();
            // SAFETY: a list of live requests; the buffers by the contract.
            check(unsafe { ibv_post_srq_recv(self.raw, first, &raw mut bad) })?;
        }
        Ok(())
    }
}

owned!(SharedReceives, ibv_destroy_srq);

#[cfg(test)]
mod tests {
    use super::vector;

    #[test]
    fn processors_take_completion_vectors_in_turn() {
        assert_eq!([0, 1, 7, 8, 9].map(|cpu| vector(cpu, 8)), [0, 1, 7, 0, 1]);
        assert_eq!([0, -1].map(|vectors| vector(5, vectors)), [0, 0]);
    }
}
