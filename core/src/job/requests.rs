#![allow(unsafe_code)]
//! The work requests of a rank: how they are posted, counted until they are complete, and forgotten.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use super::{Attending, Job};
use crate::am;
use crate::device::{Atomic, Block, Operation, Place, Posted, ShortPacket, WorkRequest};
use crate::error::{Error, Result};
use crate::tracked::{Tracks, UNTRACKED};

/// Counts work requests until they are complete, and keeps the first error.
#[derive(Debug, Default)]
pub struct Track {
    open: Cell<usize>,
    error: RefCell<Option<Error>>,
}

impl Track {
    /// A fresh one.
    #[must_use]
    pub fn new() -> Rc<Self> {
        Rc::default()
    }

    /// How many requests are open.
    #[must_use]
    #[inline]
    pub fn open(&self) -> usize {
        self.open.get()
    }

    /// Whether a request has failed since the last [`check`](Self::check).
    #[must_use]
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.error.borrow().is_some()
    }

    /// Takes the first error.
    ///
    /// # Errors
    /// The first failure since the last call.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.has_failed() { self.error.borrow_mut().take().map_or(Ok(()), Err) } else { Ok(()) }
    }
}

/// Cancels the requests that its track still counts when it is dropped: for requests whose memory goes at the end of a
/// scope, however that is left.
#[derive(Debug)]
pub struct CancelOnDrop<'a> {
    job: &'a Job,
    track: &'a Rc<Track>,
}

impl<'a> CancelOnDrop<'a> {
    /// For the requests of `job` that `track` counts.
    #[must_use]
    pub fn new(job: &'a Job, track: &'a Rc<Track>) -> Self {
        Self { job, track }
    }
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if self.track.open() > 0 {
            self.job.cancel(self.track);
        }
    }
}

impl Job {
    /// A request has ended: whoever counts it hears of that.
    pub(super) fn completed(&self, id: u64, result: Result<()>) {
        let Some(tracks) = self.0.tracked.borrow_mut().remove(id) else { return };
        match (&tracks, result) {
            (Tracks::One(one), Ok(())) => one.open.set(one.open.get() - 1),
            (tracks, result) => Self::ended(tracks.each(), result),
        }
    }

    /// Whoever counts a request hears of its failure: the epoch, and who asked for it singly.
    #[cold]
    fn ended(tracks: &[Rc<Track>], result: Result<()>) {
        let error = result.err();
        for t in tracks {
            t.open.set(t.open.get() - 1);
            if let Some(e) = &error {
                t.error.borrow_mut().get_or_insert_with(|| e.again());
            }
        }
    }

    /// Posts a work request, once there is room; `tracks` count it until it is complete. Returns whether it
    /// is complete already.
    ///
    /// # Safety
    /// As [`Device::post`](crate::device::Device::post): local memory stays valid until the tracks say that the request is complete, or
    /// [`cancel`](Self::cancel) has returned.
    ///
    /// # Errors
    /// As [`Device::post`](crate::device::Device::post).
    #[inline]
    pub unsafe fn post(
        &self,
        peer: u32,
        operation: Operation<'_>,
        notify: Option<(Place, u64)>,
        tracks: &[&Rc<Track>],
    ) -> Result<bool> {
        let inner = &*self.0;
        loop {
            let request = WorkRequest { peer, operation, notify, id: inner.tracked.borrow_mut().next() };
            // SAFETY: the same contract.
            match unsafe { inner.device.post(&request) }.map_err(|e| e.rank(inner.rank))? {
                Posted::Done => return Ok(true),
                Posted::Pending => {
                    for t in tracks {
                        t.open.set(t.open.get() + 1);
                    }
                    inner.tracked.borrow_mut().add(tracks);
                    return Ok(false);
                }
                Posted::Busy => self.make_room()?,
            }
        }
    }

    /// One turn of progress before another try to post.
    #[cold]
    #[inline(never)]
    fn make_room(&self) -> Result<()> {
        let inner = &*self.0;
        self.running("send")?;
        let attending = Attending::new(self.device());
        let turned = self.progress()?;
        drop(attending);
        if !turned {
            inner.progress.give_way(self.device());
        }
        // A peer that is gone makes no room.
        inner.progress.look_around("send", self.device(), inner.deadline.get(), Instant::now())
    }

    /// Posts a write of one block, as [`post`](Self::post) does with [`Operation::Write`].
    ///
    /// # Safety
    /// As [`post`](Self::post).
    ///
    /// # Errors
    /// As [`Device::post`](crate::device::Device::post).
    #[inline]
    pub unsafe fn write(&self, peer: u32, from: Block, to: Place, track: &Rc<Track>) -> Result<bool> {
        let id = self.0.tracked.borrow_mut().next();
        // SAFETY: the same contract.
        match unsafe { self.0.device.write(peer, from, to, id) } {
            // SAFETY: the same contract.
            Ok(Posted::Busy) => unsafe { self.post(peer, Operation::Write { from: &[from], to }, None, &[track]) },
            posted => self.posted(posted, track),
        }
    }

    /// Posts a read into one block, as [`post`](Self::post) does with [`Operation::Read`].
    ///
    /// # Safety
    /// As [`post`](Self::post).
    ///
    /// # Errors
    /// As [`Device::post`](crate::device::Device::post).
    #[inline]
    pub unsafe fn read(&self, peer: u32, into: Block, from: Place, track: &Rc<Track>) -> Result<bool> {
        let id = self.0.tracked.borrow_mut().next();
        // SAFETY: the same contract.
        match unsafe { self.0.device.read(peer, into, from, id) } {
            // SAFETY: the same contract.
            Ok(Posted::Busy) => unsafe { self.post(peer, Operation::Read { into: &[into], from }, None, &[track]) },
            posted => self.posted(posted, track),
        }
    }

    /// Posts an atomic on a word by the device's shortest way; `None` if it has none just now, and nothing was done.
    ///
    /// # Safety
    /// As [`post`](Self::post).
    #[inline]
    pub unsafe fn atomic(&self, peer: u32, at: Place, what: Atomic, old: *mut u8, track: &Rc<Track>) -> Option<bool> {
        let id = self.0.tracked.borrow_mut().next();
        // SAFETY: the same contract.
        match unsafe { self.0.device.atomic(peer, at, what, old, id) } {
            Posted::Busy => None,
            posted => self.posted(Ok(posted), track).ok(),
        }
    }

    /// Whether a request that was posted is complete; else `track` counts it until it is.
    #[inline(always)]
    fn posted(&self, posted: Result<Posted>, track: &Rc<Track>) -> Result<bool> {
        if posted.map_err(|e| e.rank(self.0.rank))? == Posted::Done {
            return Ok(true);
        }
        track.open.set(track.open.get() + 1);
        self.0.tracked.borrow_mut().add_one(track);
        Ok(false)
    }

    /// Posts a work request and waits until it is complete.
    ///
    /// # Safety
    /// Local memory is valid during the call.
    ///
    /// # Errors
    /// As [`Device::post`](crate::device::Device::post) and [`wait`](Job::wait).
    pub unsafe fn complete(&self, operation: &'static str, peer: u32, request: Operation<'_>) -> Result<()> {
        let track = Track::new();
        let _open = CancelOnDrop::new(self, &track);
        // SAFETY: complete or cancelled before this returns.
        if !unsafe { self.post(peer, request, None, &[&track]) }? {
            self.wait(operation, || Ok((track.open() == 0).then_some(())))?;
        }
        track.check()
    }

    /// Forgets the open requests that `track` counts: their local memory is not touched any more.
    pub fn cancel(&self, track: &Rc<Track>) {
        let mut tracked = self.0.tracked.borrow_mut();
        let ids = tracked.of(track);
        self.0.device.cancel(&|id| ids.contains(&id));
        for id in ids {
            for t in tracked.remove(id).iter().flat_map(Tracks::each) {
                t.open.set(t.open.get() - 1);
            }
        }
    }

    /// Sends a short packet, waiting for room.
    #[inline]
    pub(crate) fn send_short(&self, to: u32, packet: &ShortPacket) -> Result<()> {
        match self.0.device.send_short(to, packet) {
            Ok(Posted::Done | Posted::Pending) => Ok(()),
            Ok(Posted::Busy) => self.send_packet(to, &packet.bytes()[..packet.len()], &[]),
            Err(e) => Err(e.rank(self.0.rank)),
        }
    }

    /// Sends a packet of at most a header and two pieces, waiting for room.
    #[inline]
    pub(crate) fn send_packet(&self, to: u32, header: &[u8], body: &[&[u8]]) -> Result<()> {
        let piece = |i: usize| body.get(i).map_or(Block::of(std::ptr::null(), 0), |b| Block::of(b.as_ptr(), b.len()));
        let blocks = [piece(0), piece(1)];
        let operation = am::packet(header, &blocks[..body.len()]);
        let first = WorkRequest { peer: to, operation, notify: None, id: UNTRACKED };
        // SAFETY: packets are copied when they are posted.
        match unsafe { self.0.device.post(&first) } {
            Ok(Posted::Done | Posted::Pending) => Ok(()),
            // SAFETY: as above.
            Ok(Posted::Busy) => unsafe { self.post(to, operation, None, &[]) }.map(|_| ()),
            Err(e) => Err(e.rank(self.0.rank)),
        }
    }
}
