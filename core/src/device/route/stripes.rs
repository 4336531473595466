#![allow(unsafe_code)]
//! Large reads and writes that are striped over several devices of one kind.
//!
//! The bytes are divided into as many segments as there are devices, at multiples of a page. The request is complete
//! when all segments are; its notification follows.

use super::RouteDevice;
use super::regions::Imported;
use super::requests::{Repeat, Requests, Signal, Stripe, Tracked, Unnotified};
use super::table::LARGE_BYTES;
use crate::device::{Event, Operation, OwnedTransfer, Posted, WorkRequest};
use crate::error::Result;

/// Segments begin at multiples of this many bytes.
const PAGE: usize = 4096;

impl RouteDevice {
    /// The region of a request that is striped; `None` for other requests.
    pub(super) fn striped(&self, request: &WorkRequest<'_>) -> Result<Option<Imported>> {
        match request.operation {
            Operation::Transfer(transfer) if transfer.len() >= LARGE_BYTES => {
                self.imported(request.peer, transfer.region, |import| Some(*import).filter(|import| import.rails != 0))
            }
            _ => Ok(None),
        }
    }

    /// Posts a read or write in segments.
    ///
    /// # Safety
    /// The contract of [`Device::post`](crate::device::Device::post).
    pub(super) unsafe fn post_striped(
        &self,
        request: &WorkRequest<'_>,
        import: &Imported,
        notify: Option<Signal>,
        repeat: Option<Repeat>,
    ) -> Result<Posted> {
        let WorkRequest { peer, id: outer, .. } = *request;
        let Operation::Transfer(whole) = &request.operation else { return Ok(Posted::Busy) };
        let whole = OwnedTransfer::of(whole);
        if notify.is_some() && self.requests.would_overtake(peer, import.by_size[0], true) {
            return Ok(Posted::Busy);
        }
        let (len, is_write) = (whole.len(), whole.write);
        let step = len.div_ceil(import.rails.count_ones() as usize).next_multiple_of(PAGE);
        let devices = (0..u8::BITS as u8).filter(|device| import.rails >> device & 1 == 1);
        let pieces: Vec<_> = devices.zip((0..len).step_by(step)).collect();
        let tracked =
            Tracked { is_write, notify, repeat, ..Tracked::new(outer, peer, import.rails, pieces.len() as u32) };
        let id = self.requests.next();
        self.requests.add(tracked);
        for (number, (device, start)) in pieces.into_iter().enumerate() {
            let transfer = whole.part(import.handles[usize::from(device)], start, step);
            let stripe = Stripe { id, peer, device, transfer };
            // SAFETY: the same contract.
            match unsafe { self.post_stripe(&stripe) } {
                Ok(Posted::Busy) if number == 0 => {
                    self.requests.remove(id);
                    return Ok(Posted::Busy);
                }
                Err(e) if number == 0 => {
                    self.requests.remove(id);
                    return Err(e);
                }
                Ok(Posted::Busy) => self.requests.stripes.borrow_mut().push_back(stripe),
                Ok(Posted::Pending) => {}
                done => {
                    if let Some((tracked, result)) = self.requests.ended(id, done.map(drop)) {
                        return self.posted_whole(tracked, result);
                    }
                }
            }
        }
        Ok(Posted::Pending)
    }

    /// The result of posting a request whose segments are already complete.
    fn posted_whole(&self, tracked: Tracked, result: Result<()>) -> Result<Posted> {
        let Tracked { id, notify, .. } = tracked;
        if let Err(e) = result {
            // Other devices may have executed the other segments.
            return self.repeats(tracked, e).map(|()| Posted::Pending);
        }
        match notify {
            Some(signal) if !self.signal(&signal)? => {
                self.requests.add_unnotified(Unnotified { id, signal });
                Ok(Posted::Pending)
            }
            _ => Ok(Posted::Done),
        }
    }

    /// # Safety
    /// The blocks are valid until the request is complete or cancelled.
    unsafe fn post_stripe(&self, stripe: &Stripe) -> Result<Posted> {
        let Stripe { id, peer, device, ref transfer } = *stripe;
        let operation = transfer.operation();
        // SAFETY: the same contract.
        unsafe { self.post_to(device, &WorkRequest { peer, operation, notify: None, id }) }
    }

    /// Posts segments that were delayed by a busy device; returns whether there were any.
    pub(super) fn post_stripes(&self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let mut any = false;
        while let Some(stripe) = self.requests.take_stripe() {
            // SAFETY: the blocks are valid until the request is complete or cancelled, which removes its segments.
            match unsafe { self.post_stripe(&stripe) } {
                Ok(Posted::Busy) => {
                    self.requests.stripes.borrow_mut().push_front(stripe);
                    break;
                }
                Ok(Posted::Pending) => {}
                done => self.end(stripe.device, stripe.id, done.map(drop), sink),
            }
            any = true;
        }
        any
    }

    /// Whether requests wait for queue space in a device, which no event announces.
    pub(super) fn needs_poll(&self) -> bool {
        self.requests.has_waiting() || self.pairs.is_ready.get()
    }
}

impl Requests {
    /// Whether notifications or segments wait for queue space in a device.
    fn has_waiting(&self) -> bool {
        self.first_unnotified().is_some() || !self.stripes.borrow().is_empty()
    }
}
