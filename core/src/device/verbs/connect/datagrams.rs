#![allow(unsafe_code)]
//! The datagram endpoint of a rank: its queue pair, buffers and the peers' address handles. Used only by the agent.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::super::address::{DATAGRAM, EndpointAddress};
use super::super::memory::slab::Slab;
use super::super::sys::qp::{Datagram, Parts, Sizes, Tuning};
use super::super::sys::queue::{Channel, Completions};
use super::super::sys::{Context, Domain, Handle, Path, Rights};

/// Length of the routing header in front of every datagram.
const HEADER: usize = 40;
const RECEIVES: usize = 256;
const SENDS: usize = 64;
const RECEIVE: usize = HEADER + DATAGRAM;
/// Marks the completion id of a send.
const SEND: u64 = 1 << 32;

/// Sends and receives datagrams. Fields are dropped in this order.
pub(crate) struct Endpoint {
    datagram: Datagram,
    /// Address handle of each rank, and the path for which it was made.
    handles: Vec<Option<(Path, Handle)>>,
    /// Handles that were replaced, but that sends in progress may use.
    former: Vec<Handle>,
    completions: Arc<Completions>,
    channel: Arc<Channel>,
    slab: Slab,
    free: Vec<usize>,
    /// Number of receives that have not completed.
    posted: usize,
    /// Whether a datagram could not be sent or received: the queue pair is restarted once all sends and receives have
    /// completed.
    failed: bool,
    found: Vec<super::super::sys::queue::Completion>,
}

impl Endpoint {
    /// Bytes of registered memory.
    pub(crate) const BYTES: usize = RECEIVES * RECEIVE + SENDS * DATAGRAM;

    pub(crate) fn new(context: &Arc<Context>, domain: &Arc<Domain>, tuning: &Tuning, qkey: u32) -> io::Result<Self> {
        let channel = Channel::new(context)?;
        let completions = Completions::new(&channel, RECEIVES + SENDS)?;
        let slab = Slab::new(domain, Self::BYTES, Rights::Local)?;
        let parts = Parts {
            domain: Arc::clone(domain),
            sends: Arc::clone(&completions),
            receives: Arc::clone(&completions),
            shared: None,
        };
        let sizes = Sizes { sends: SENDS as u32, receives: RECEIVES as u32, pieces: 1, scatter: 1, inline: 0 };
        let datagram = Datagram::new(&parts, sizes, tuning, qkey)?;
        let free = (0..SENDS).collect();
        let mut me = Self {
            datagram,
            handles: Vec::new(),
            former: Vec::new(),
            completions,
            channel,
            slab,
            free,
            posted: 0,
            failed: false,
            found: Vec::new(),
        };
        (0..RECEIVES).try_for_each(|i| me.give(i))?;
        Ok(me)
    }

    /// Uses the partition key at `index` from now on.
    pub(crate) fn use_partition(&mut self, index: u16) -> io::Result<()> {
        if self.datagram.use_partition(index) && !self.failed {
            // It is started again with the other key, once all sends and receives have completed.
            self.datagram.fail()?;
            self.failed = true;
        }
        Ok(())
    }

    pub(crate) fn number(&self) -> u32 {
        self.datagram.number()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }

    fn give(&mut self, index: usize) -> io::Result<()> {
        // SAFETY: a buffer of the slab that no other code uses until it has completed.
        unsafe { self.datagram.receive(index as u64, &[self.slab.piece(index * RECEIVE, RECEIVE)]) }?;
        self.posted += 1;
        Ok(())
    }

    /// Sends to rank `to`. The datagram is dropped if the queue is full; any datagram may be lost.
    pub(crate) fn send(
        &mut self,
        domain: &Arc<Domain>,
        to: usize,
        address: &EndpointAddress,
        path: Path,
        bytes: &[u8],
    ) {
        if self.failed {
            return;
        }
        if self.handles.len() <= to {
            self.handles.resize_with(to + 1, || None);
        }
        if self.handles[to].as_ref().is_none_or(|(of, _)| *of != path) {
            match Handle::new(domain, &path) {
                Ok(h) => {
                    if let Some(former) = self.handles[to].replace((path, h)) {
                        self.former.push(former.1);
                    }
                }
                Err(e) => tracing::warn!("rank {to} cannot be reached by datagrams: {e}"),
            }
        }
        if self.free.len() == SENDS {
            self.former.clear();
        }
        let (Some((_, handle)), Some(slot)) = (&self.handles[to], self.free.pop()) else { return };
        let offset = RECEIVES * RECEIVE + slot * DATAGRAM;
        let len = bytes.len().min(DATAGRAM);
        // SAFETY: a slot of the slab that no other send uses; it stays registered until its completion.
        let sent = unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.slab.at(offset), len);
            let piece = self.slab.piece(offset, len);
            self.datagram.send(SEND | slot as u64, piece, handle, address.datagrams, address.qkey)
        };
        if let Err(e) = sent {
            self.free.push(slot);
            tracing::debug!("a datagram to rank {to} was not sent: {e}");
        }
    }

    /// Calls `sink` with each datagram received. The bytes are a copy that the HCA cannot change.
    pub(crate) fn receive(&mut self, mut sink: impl FnMut(&mut Self, &[u8])) -> io::Result<()> {
        loop {
            let mut found = std::mem::take(&mut self.found);
            found.clear();
            let n = self.completions.poll(|c| found.push(c))?;
            for c in &found {
                if c.status != 0 && !self.failed {
                    // A possible cause is a port that is down. The queue pair may be unable to send or receive from now
                    // on.
                    tracing::debug!(
                        "the datagram queue pair is restarted after a failed completion: status {}",
                        c.status
                    );
                    self.datagram.fail()?;
                    self.failed = true;
                }
                if c.id & SEND != 0 {
                    self.free.push((c.id & !SEND) as usize);
                    continue;
                }
                self.posted -= 1;
                if c.status == 0 {
                    let mut bytes = [0u8; DATAGRAM];
                    let len = (c.len as usize).saturating_sub(HEADER).min(DATAGRAM);
                    let from = self.slab.at(c.id as usize * RECEIVE + HEADER);
                    // SAFETY: a buffer that the HCA has completed, of at least that length.
                    unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), len) };
                    if !self.failed {
                        self.give(c.id as usize)?;
                    }
                    sink(self, &bytes[..len]);
                }
            }
            self.found = found;
            if self.failed && self.posted == 0 && self.free.len() == SENDS {
                self.datagram.restart()?;
                self.failed = false;
                (0..RECEIVES).try_for_each(|i| self.give(i))?;
            }
            if n == 0 {
                return Ok(());
            }
        }
    }

    /// Arms the completion queues; called before sleeping on [`fd`](Self::fd). Earlier completions must be polled for
    /// after this call.
    pub(crate) fn arm(&self) -> io::Result<()> {
        while let Some(fired) = self.channel.event() {
            self.completions.note(&fired);
        }
        self.completions.arm()
    }
}
