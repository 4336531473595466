#![allow(unsafe_code)]
//! Writes and reads: each is one operation of the provider, or several where a limit of the provider asks for it.

use std::ffi::c_void;
use std::time::{Duration, Instant};

use libc::iovec;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::Import;
use super::buffers::SLOT;
use super::engine::{Engine, Notice};
use super::fabric::{Failure, Memory, Remote};
use super::leases::{Exposure, State};
use crate::device::parts::{Parts, cut};
use crate::device::{Block, Posted, Transfer, imports};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::copy;

/// Maximum number of requests in progress.
const MAX_REQUESTS: usize = 1024;
/// Time after which memory that the provider does not give back is taken by closing the endpoint.
const PATIENCE: Duration = Duration::from_secs(5);

/// A part of a transfer that is one operation of the provider.
pub(super) struct Fragment {
    request: u64,
    write: bool,
    local: SmallVec<[iovec; 4]>,
    descs: SmallVec<[*mut c_void; 4]>,
    /// With an offset in the region, and without a key, until the lease is granted.
    remote: Remote,
}

impl Fragment {
    /// Adds where the region is; `false` if the bytes are not in it.
    fn locate(&mut self, at: Exposure) -> bool {
        let is_inside = self.remote.addr.checked_add(self.remote.len as u64).is_some_and(|end| end <= at.len);
        self.remote.addr = at.address.wrapping_add(self.remote.addr);
        self.remote.key = at.key;
        is_inside
    }
}

/// The fragments of requests that wait for a lease.
#[derive(Default)]
pub(super) struct Waiting(FxHashMap<u64, Vec<Fragment>>);

/// A write or a read in progress.
pub(super) struct Request {
    /// The id that the layer above knows; `None` if that layer has cancelled it.
    pub id: Option<u64>,
    pub peer: u32,
    name: &'static str,
    lease: u64,
    /// Number of fragments that have not completed.
    left: usize,
    error: Option<Error>,
    /// The notification that is sent when the request has completed.
    notice: Option<Notice>,
    /// Registrations for this request alone.
    _memory: SmallVec<[Memory; 1]>,
    /// The slot through which the bytes travel, and the blocks that are filled from it at the end.
    bounce: Option<(u32, Parts<Block>)>,
}

impl Engine {
    /// Posts a write or a read of a peer's region.
    ///
    /// # Safety
    /// Local memory is valid, and exclusive where it is written, until the request has completed.
    pub(super) unsafe fn post_transfer(
        &mut self,
        import: &Import,
        transfer: &Transfer<'_>,
        notice: Option<Notice>,
        id: u64,
    ) -> Result<Posted> {
        let (peer, name) = (import.peer, transfer.name());
        let me = self.me;
        let fail = move |e: Error| e.rank(me).device("ofi");
        imports::ranges(import, transfer).map_err(fail)?;
        let [range] = transfer.ranges[..] else {
            return Err(self.error(ErrorKind::Unsupported, name, peer));
        };
        if let Some(e) = self.gone(peer, name) {
            return Err(e);
        }
        if transfer.is_empty() {
            notice.into_iter().for_each(|notice| self.notify(notice, None));
            return Ok(Posted::Done);
        }
        if peer == self.me {
            // SAFETY: by the contract.
            unsafe { self.copy_own(import, transfer, range.offset) }?;
            notice.into_iter().for_each(|notice| self.notify(notice, None));
            return Ok(Posted::Done);
        }
        let (state, question) = self.leases.state(import.lease);
        self.control_if(question);
        let at = match state {
            State::Granted(at) if range.offset as u64 + range.len as u64 <= at.len => Some(at),
            State::Granted(at) => return Err(fail(imports::outside(peer, range, at.len as usize, name))),
            State::Revoked => {
                let e = self.error(ErrorKind::BadKey, name, peer);
                return Err(e.cause("the peer has released the region"));
            }
            State::New | State::Asked => None,
        };
        if !self.unposted.is_empty() || self.open >= MAX_REQUESTS {
            return Ok(Posted::Busy);
        }
        let number = self.requests.next();
        // SAFETY: by the contract.
        let Some((fragments, request)) = (unsafe { self.prepare(number, import, transfer, range.offset, id) })? else {
            return Ok(Posted::Busy);
        };
        self.requests.add(request);
        self.open += 1;
        self.leases.begin(import.lease);
        let Some(at) = at else {
            // Later signals wait until the writes are posted, or complete.
            self.waiting.0.entry(import.lease).or_default().extend(fragments);
            self.peers[peer as usize].held += 1;
            if let (Some(request), Some(notice)) = (self.requests.get_mut(number), notice) {
                request.notice = Some(notice);
                self.peers[peer as usize].held += 1;
            }
            return Ok(Posted::Pending);
        };
        let mut fragments = fragments.into_iter();
        let mut is_first = true;
        while let Some(mut fragment) = fragments.next() {
            fragment.locate(at);
            match self.post_fragment(fragment) {
                Ok(None) => is_first = false,
                Ok(Some(_)) if is_first => {
                    self.drop_request(number);
                    return Ok(Posted::Busy);
                }
                Ok(Some(fragment)) => {
                    self.unposted.push_back(fragment);
                    self.unposted.extend(fragments.map(|mut fragment| {
                        fragment.locate(at);
                        fragment
                    }));
                    break;
                }
                Err((_, failure)) if is_first => {
                    let e = self.failure(name, peer, &failure);
                    self.drop_request(number);
                    self.note_loss(&e);
                    return Err(e);
                }
                Err((request, failure)) => {
                    for _ in fragments {
                        self.fragment_ended(request, Ok(()));
                    }
                    self.fragment_ended(request, Err(failure));
                    break;
                }
            }
        }
        // Until then, later signals wait.
        if let Some(notice) = notice {
            match self.requests.get_mut(number) {
                Some(request) if !(transfer.write && self.fabric.offer.orders) => {
                    request.notice = Some(notice);
                    self.peers[peer as usize].held += 1;
                }
                _ => self.notify(notice, Some(number)),
            }
        }
        Ok(Posted::Pending)
    }

    /// Copies between memory of this rank.
    ///
    /// # Safety
    /// The contract of [`post_transfer`](Self::post_transfer).
    unsafe fn copy_own(&self, import: &Import, transfer: &Transfer<'_>, offset: usize) -> Result<()> {
        let len = transfer.len();
        let copied = self.exposures.with(import.region, offset as u64, len, |mut at, _| {
            for block in transfer.local {
                // SAFETY: local memory by the contract; the range is inside an exposed region, which is not released
                // meanwhile.
                unsafe {
                    if transfer.write {
                        copy::store(block.base, at, block.len);
                    } else {
                        copy::load(at, block.base, block.len);
                    }
                }
                at = at.wrapping_add(block.len);
            }
        });
        let kind = match copied {
            Some(Some(())) => return Ok(()),
            Some(None) => ErrorKind::OutOfRange,
            None => ErrorKind::BadKey,
        };
        Err(self.error(kind, transfer.name(), import.peer))
    }

    /// Divides a transfer into fragments; `None` if there is no slot now.
    ///
    /// # Safety
    /// The contract of [`post_transfer`](Self::post_transfer).
    unsafe fn prepare(
        &mut self,
        number: u64,
        import: &Import,
        transfer: &Transfer<'_>,
        offset: usize,
        id: u64,
    ) -> Result<Option<(SmallVec<[Fragment; 1]>, Request)>> {
        let (write, len, name) = (transfer.write, transfer.len(), transfer.name());
        let offer = &self.fabric.offer;
        let (max_bytes, max_blocks, needs_local) = (offer.max_bytes, offer.max_blocks, offer.needs_local());
        let mut blocks: Parts<Block> = cut(transfer.local, 0, len);
        let (mut memory, mut bounce, mut descs) = (SmallVec::new(), None, SmallVec::<[*mut c_void; 4]>::new());
        if needs_local {
            match blocks.iter().map(|block| self.desc(block)).collect::<Option<SmallVec<[*mut c_void; 4]>>>() {
                Some(known) => descs = known,
                None if len <= SLOT => {
                    let Some(slot) = self.sends.take() else { return Ok(None) };
                    let mut filled = 0;
                    for block in blocks.iter().filter(|_| write) {
                        // SAFETY: valid by the contract; the slot is not in use.
                        unsafe { self.sends.fill(slot, filled, std::slice::from_raw_parts(block.base, block.len)) };
                        filled += block.len;
                    }
                    let through = Block { base: self.sends.address(slot), len };
                    let into = std::mem::replace(&mut blocks, Parts::from_buf([through]));
                    bounce = Some((slot, if write { Parts::new() } else { into }));
                    descs.push(self.sends.desc());
                }
                None => {
                    for block in &blocks {
                        // SAFETY: valid until the request has completed, when the registration is dropped.
                        let made = unsafe { self.fabric.register(block.base, block.len) };
                        let made = made.map_err(|failure| self.failure(name, import.peer, &failure))?;
                        descs.push(made.desc);
                        memory.push(made);
                    }
                }
            }
        }
        let mut fragments = SmallVec::new();
        let (mut from, mut first) = (0, 0);
        // Fragments end between blocks, or inside one that is too long for the provider.
        while first < blocks.len() {
            let (mut local, mut of): (SmallVec<[iovec; 4]>, SmallVec<_>) = (SmallVec::new(), SmallVec::new());
            let mut bytes = 0;
            while first < blocks.len() && local.len() < max_blocks && bytes < max_bytes {
                let block = &mut blocks[first];
                let now = block.len.min(max_bytes - bytes);
                local.push(iovec { iov_base: block.base.cast(), iov_len: now });
                descs.get(first).into_iter().for_each(|desc| of.push(*desc));
                bytes += now;
                *block = Block { base: block.base.wrapping_add(now), len: block.len - now };
                first += usize::from(block.len == 0);
            }
            let peer = self.peers[import.peer as usize].address;
            let remote = Remote { peer, addr: (offset + from) as u64, len: bytes, key: 0 };
            from += bytes;
            fragments.push(Fragment { request: number, write, local, descs: of, remote });
        }
        let request = Request {
            id: Some(id),
            peer: import.peer,
            name,
            lease: import.lease,
            left: fragments.len(),
            error: None,
            notice: None,
            _memory: memory,
            bounce,
        };
        Ok(Some((fragments, request)))
    }

    /// The descriptor of a block that lies in a region of this rank.
    fn desc(&self, block: &Block) -> Option<*mut c_void> {
        let at = block.base.addr();
        let (base, (len, region)) = self.by_address.range(..=at).next_back()?;
        let is_inside = at - base <= *len && block.len <= *len - (at - base);
        let memory = self.regions.get(region).filter(|_| is_inside)?.memory.as_ref()?;
        Some(memory.desc)
    }

    /// Posts a fragment; gives it back if the provider has no room. An error names the request.
    pub(super) fn post_fragment(
        &mut self,
        mut fragment: Fragment,
    ) -> std::result::Result<Option<Fragment>, (u64, Failure)> {
        let number = self.take_fragment(fragment.request);
        let Fragment { request, write, remote, .. } = fragment;
        let context = self.fragment_context(number);
        // SAFETY: the memory is valid until the request has completed, by the contract of `post_transfer`, which a
        // cancel observes too; the context is not used before the completion.
        let posted = unsafe { self.fabric.transfer(write, &fragment.local, &mut fragment.descs, remote, context) };
        match posted {
            Ok(true) => Ok(None),
            Ok(false) => {
                self.give_fragment_back(number);
                Ok(Some(fragment))
            }
            Err(failure) => {
                self.give_fragment_back(number);
                Err((request, failure))
            }
        }
    }

    /// Handles the end of a fragment.
    pub(super) fn fragment_ended(&mut self, number: u64, result: std::result::Result<(), Failure>) {
        let Some(request) = self.requests.get_mut(number) else { return };
        request.left -= 1;
        let (peer, name, is_over) = (request.peer, request.name, request.left == 0);
        if let Err(failure) = result {
            let e = self.failure(name, peer, &failure);
            self.note_loss(&e);
            if let Some(request) = self.requests.get_mut(number) {
                request.error.get_or_insert(e);
            }
        }
        if is_over {
            self.end_request(number);
        }
    }

    /// Ends a request: its memory belongs to the caller again.
    pub(super) fn end_request(&mut self, number: u64) {
        let Some(request) = self.requests.remove(number) else { return };
        self.open -= 1;
        let lost = self.gone(request.peer, request.name);
        let result = lost.or(request.error).map_or(Ok(()), Err);
        if let Some((slot, into)) = &request.bounce {
            if request.id.is_some() && result.is_ok() {
                let len = into.iter().map(|block| block.len).sum();
                // SAFETY: the provider has given the slot back; the blocks are valid, since the request has not been
                // cancelled.
                unsafe { copy::scatter(self.sends.bytes(*slot, len), into) };
            }
            self.sends.give_back(*slot);
        }
        if let Some(notice) = request.notice {
            self.peers[request.peer as usize].held -= 1;
            if request.id.is_some() && result.is_ok() {
                self.notify(notice, None);
            }
        }
        let ended = self.leases.finish(request.lease);
        self.control_if(ended);
        request
            .id
            .into_iter()
            .for_each(|id| self.done.push_back((id, result.as_ref().map_or_else(|e| Err(e.again()), |()| Ok(())))));
    }

    /// Removes a request of which nothing was posted.
    fn drop_request(&mut self, number: u64) {
        if let Some(request) = self.requests.get_mut(number) {
            request.id = None;
            self.end_request(number);
        }
    }

    /// Posts the requests that wait for a lease, or ends them if it was not granted.
    pub(super) fn end_waiting(&mut self, lease: u64) {
        let at = match self.leases.state(lease).0 {
            State::Granted(at) => at,
            State::Revoked => return self.drop_waiting(|_, of| of == lease),
            State::New | State::Asked => return,
        };
        let mut last = None;
        for mut fragment in self.waiting.0.remove(&lease).into_iter().flatten() {
            if last.replace(fragment.request) != Some(fragment.request) {
                self.release_signals(fragment.request);
            }
            match fragment.locate(at) {
                true => self.unposted.push_back(fragment),
                false => self.fragment_failed(fragment.request, ErrorKind::OutOfRange),
            }
        }
        self.drive();
    }

    /// Lets later signals go, as far as they wait because a request waits for its lease.
    fn release_signals(&mut self, number: u64) {
        if let Some(request) = self.requests.get(number) {
            self.peers[request.peer as usize].held -= 1;
        }
    }

    fn fragment_failed(&mut self, number: u64, kind: ErrorKind) {
        if let Some(request) = self.requests.get_mut(number) {
            let e = Error::new(kind, request.name).rank(self.me).peer(request.peer).device("ofi");
            request.error.get_or_insert(e.cause("the owner's answer to the first access"));
        }
        self.fragment_ended(number, Ok(()));
    }

    /// Ends the requests that wait for a lease, of those that `which` selects by request and lease.
    pub(super) fn drop_waiting(&mut self, which: impl Fn(&Request, u64) -> bool) {
        let mut dropped = Vec::new();
        let requests = &self.requests;
        self.waiting.0.retain(|lease, fragments| {
            let is_dropped = |fragment: &Fragment| requests.get(fragment.request).is_none_or(|one| which(one, *lease));
            dropped.extend(fragments.iter().filter(|one| is_dropped(one)).map(|one| one.request));
            fragments.retain(|one| !is_dropped(one));
            !fragments.is_empty()
        });
        let mut last = None;
        for number in dropped {
            if last.replace(number) != Some(number) {
                self.release_signals(number);
            }
            self.fragment_failed(number, ErrorKind::BadKey);
        }
    }

    /// Drops the fragments that are not posted, of the requests that `which` selects.
    pub(super) fn drop_unposted(&mut self, which: impl Fn(&Request) -> bool) {
        let all = std::mem::take(&mut self.unposted);
        let is_dropped = |fragment: &Fragment| self.requests.get(fragment.request).is_none_or(&which);
        let (dropped, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(is_dropped);
        self.unposted = kept.into();
        dropped.into_iter().for_each(|fragment| self.fragment_ended(fragment.request, Ok(())));
    }

    /// Cancels requests: afterwards nothing accesses their memory.
    pub(super) fn cancel(&mut self, which: &dyn Fn(u64) -> bool) {
        for request in self.requests.iter_mut() {
            if request.id.is_some_and(which) {
                request.id = None;
            }
        }
        let requests = std::mem::take(&mut self.requests);
        let is_cancelled = |number| requests.get(number).is_some_and(|request| request.id.is_none());
        self.drop_notices(|_, request| request.is_some_and(is_cancelled));
        self.requests = requests;
        self.drop_waiting(|request, _| request.id.is_none());
        self.drop_unposted(|request| request.id.is_none());
        self.done.retain(|(id, _)| !which(*id));
        // A slot stays in use instead of the caller's memory.
        let uses_memory = |request: &Request| request.id.is_none() && request.bounce.is_none();
        self.await_memory(uses_memory, "a cancelled transfer was not completed in time");
    }

    /// Waits until the requests that `which` selects have ended, or closes the endpoint.
    pub(super) fn await_memory(&mut self, which: impl Fn(&Request) -> bool, why: &'static str) {
        let since = Instant::now();
        loop {
            let found = self.requests.iter().find(|(_, request)| which(request)).map(|(_, request)| request.peer);
            let Some(peer) = found else { return };
            if since.elapsed() > PATIENCE || self.turn().is_err() {
                let e = self.error(ErrorKind::PeerLost, "cancel a transfer", peer);
                self.close(e.cause(why));
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Ends the requests to lost peers whose memory the provider does not give back by itself.
    pub(super) fn end_lost_requests(&mut self) {
        let peers = &self.peers;
        let is_lost = |request: &Request| peers[request.peer as usize].lost.is_some();
        if self.requests.iter().any(|(_, request)| is_lost(request)) {
            let lost: Vec<bool> = self.peers.iter().map(|peer| peer.lost.is_some()).collect();
            self.await_memory(
                |request| lost[request.peer as usize],
                "transfers with a lost rank were not completed in time",
            );
        }
    }
}
