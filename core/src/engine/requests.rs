#![allow(unsafe_code)]
//! The work requests of a rank: posting, counting until completion, cancelling.

use std::rc::Rc;

use super::Engine;
use crate::device::{Operation, Place, Posted, WorkRequest};
use crate::error::Result;
use crate::tracked::{Track, Tracks, UNTRACKED};

/// Cancels on drop the requests that its track still counts: for requests whose memory is valid only in a scope,
/// however the scope is left.
#[derive(Debug)]
pub struct CancelOnDrop<'a> {
    engine: &'a Engine,
    track: &'a Rc<Track>,
}

impl<'a> CancelOnDrop<'a> {
    /// Guards the requests and messages of `engine` that `track` counts.
    #[must_use]
    pub fn new(engine: &'a Engine, track: &'a Rc<Track>) -> Self {
        Self { engine, track }
    }
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if self.track.open() > 0 {
            self.engine.cancel(self.track);
        }
    }
}

impl Engine {
    /// Ends a request: every track that counts it records the result.
    pub(crate) fn completed(&self, id: u64, result: Result<()>) {
        let Some(tracks) = self.tracked.borrow_mut().remove(id) else { return };
        match (&tracks, result) {
            (Tracks::One(one), Ok(())) => one.close(),
            (tracks, result) => tracks.each().iter().for_each(|t| t.end(&result)),
        }
    }

    /// Posts a work request, once there is room; `tracks` count it until it is complete. Returns whether it is complete
    /// already.
    ///
    /// # Safety
    /// The contract of [`Device::post`](crate::device::Device::post): local memory stays valid until the tracks have
    /// counted the request as complete, or [`cancel`](Self::cancel) has returned.
    ///
    /// # Errors
    /// Those of [`Device::post`](crate::device::Device::post); `Freed` after the end of the job.
    #[inline]
    pub unsafe fn post(
        &self,
        peer: u32,
        operation: Operation<'_>,
        notify: Option<(Place, u64)>,
        tracks: &[&Rc<Track>],
    ) -> Result<bool> {
        self.running("post a request")?;
        loop {
            // SAFETY: the same contract.
            match unsafe { self.try_post(peer, operation, notify, tracks) }? {
                Some(done) => return Ok(done),
                None => self.make_room()?,
            }
        }
    }

    /// Like [`post`](Self::post), but returns `None` and does nothing if the queue is full.
    ///
    /// # Safety
    /// The contract of [`post`](Self::post).
    #[inline]
    pub(crate) unsafe fn try_post(
        &self,
        peer: u32,
        operation: Operation<'_>,
        notify: Option<(Place, u64)>,
        tracks: &[&Rc<Track>],
    ) -> Result<Option<bool>> {
        let id = if tracks.is_empty() { UNTRACKED } else { self.tracked.borrow_mut().next() };
        let request = WorkRequest { peer, operation, notify, id };
        // SAFETY: the same contract.
        match unsafe { self.device.post(&request) }.map_err(|e| e.rank(self.rank))? {
            Posted::Done => Ok(Some(true)),
            Posted::Pending => {
                if !tracks.is_empty() {
                    self.tracked.borrow_mut().add(tracks);
                }
                Ok(Some(false))
            }
            Posted::Busy => Ok(None),
        }
    }

    /// Makes one turn of progress before the next attempt to post.
    #[cold]
    #[inline(never)]
    fn make_room(&self) -> Result<()> {
        self.running("send")?;
        if !self.progress()? {
            self.progress.back_off();
        }
        // The queue to a lost peer stays full.
        self.progress.check_peers("send", self.device(), self.deadline.get()).map(|_| ())
    }

    /// Posts a work request and waits until it is complete.
    ///
    /// # Safety
    /// Local memory is valid during the call.
    ///
    /// # Errors
    /// Those of [`Device::post`](crate::device::Device::post) and [`wait`](Engine::wait).
    pub unsafe fn complete(&self, operation: &'static str, peer: u32, request: Operation<'_>) -> Result<()> {
        let track = Track::new();
        let _open = CancelOnDrop::new(self, &track);
        // SAFETY: complete or cancelled before this returns.
        if !unsafe { self.post(peer, request, None, &[&track]) }? {
            self.wait(operation, || Ok((track.open() == 0).then_some(())))?;
        }
        track.check()
    }

    /// Cancels the open requests and messages that `track` counts: their local memory is no longer accessed.
    pub fn cancel(&self, track: &Rc<Track>) {
        if let Some(above) = self.above() {
            above.cancel(track);
        }
        let mut tracked = self.tracked.borrow_mut();
        let ids = tracked.of(track);
        self.device.cancel(&|id| ids.contains(&id));
        for id in ids {
            tracked.remove(id).iter().flat_map(Tracks::each).for_each(|t| t.close());
        }
    }

    /// Sends a packet, whose blocks are valid during the call; `false` if the queue is full.
    #[inline(always)]
    pub(crate) fn try_send(&self, to: u32, packet: Operation<'_>) -> Result<bool> {
        let request = WorkRequest { peer: to, operation: packet, notify: None, id: UNTRACKED };
        // SAFETY: packets are copied when they are posted.
        match unsafe { self.device.post(&request) } {
            Ok(posted) => Ok(posted != Posted::Busy),
            Err(e) => Err(e.rank(self.rank)),
        }
    }
}
