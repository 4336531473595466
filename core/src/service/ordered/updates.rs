#![allow(unsafe_code)]
//! Updates in packets, in the order of other requests.

use super::{MAX_UPDATES, Open, Ordered, Request, UNREPORTED};
use crate::device::{Operation, Posted, Update, WorkRequest};
use crate::error::{Error, ErrorKind, Result};
use crate::service::served::{Answer, Served, UpdatePacket};
use crate::stats::Kind;

impl Ordered {
    /// Posts an update in packets.
    pub(super) fn post_update(&self, served: &Served, request: &WorkRequest<'_>, update: &Update) -> Result<Posted> {
        let peer = request.peer;
        if self.with_peer(peer, |peer| peer.updates) >= MAX_UPDATES {
            return Ok(Posted::Busy);
        }
        if let Some((at, value)) = request.notify {
            self.check_signal(peer, at, value)?;
        }
        let begun = served.begin(peer, update).map_err(|e| e.rank(self.me).device(self.capabilities.name))?;
        self.inner.own_stats().add(update.kind(), update.len);
        if request.notify.is_some() {
            self.inner.own_stats().add(Kind::Notify, 8);
        }
        let kind = Request::Update(begun);
        let number = self.add(Open { id: Some(request.id), peer, notify: request.notify, kind });
        if update.len == 0 {
            self.take(number).into_iter().for_each(|open| self.finish(open, Ok(())));
        } else {
            self.unsent.borrow_mut().push_back(number);
        }
        if !self.polling.get() {
            self.drive();
        }
        Ok(Posted::Pending)
    }

    /// Handles a packet; returns whether it was one of updates.
    pub(super) fn received(&self, source: u32, packet: &[u8]) -> bool {
        let Some(served) = &self.served else { return false };
        match UpdatePacket::read(packet) {
            None => return false,
            Some(UpdatePacket::Request(request)) => {
                self.inner.own_stats().add(Kind::Served, 0);
                match served.serve(request) {
                    Some(answer) => self.answers.borrow_mut().push_back((source, answer)),
                    None => tracing::error!("dropped a malformed update of rank {source}"),
                }
            }
            Some(UpdatePacket::Answer(answer)) => self.answered(served, source, &answer),
        }
        true
    }

    fn answered(&self, served: &Served, source: u32, answer: &Answer<'_>) {
        let is_done = {
            let mut all = self.open.borrow_mut();
            let open = all.get_mut(answer.number).filter(|open| open.peer == source);
            let Some(Open { kind: Request::Update(update), .. }) = open else {
                return tracing::error!("dropped an answer of rank {source} to an update that does not exist");
            };
            // SAFETY: `old` is valid until the update is complete or cancelled.
            unsafe { answer.pass(update, served.room) };
            update.is_answered()
        };
        if is_done && let Some(mut open) = self.take(answer.number) {
            let Request::Update(update) = &mut open.kind else { return };
            let (peer, me, name) = (open.peer, self.me, self.capabilities.name);
            let result = update.error.take().map_or(Ok(()), |e| Err(e.rank(me).peer(peer).device(name)));
            self.finish(open, result);
        }
    }

    /// Posts the parts of an update; `false` if the device is busy.
    pub(super) fn send(&self, served: &Served, number: u64) -> bool {
        loop {
            let (peer, packet, len) = {
                let all = self.open.borrow();
                let Some(Open { peer, kind: Request::Update(update), .. }) = all.get(number) else { return true };
                if update.is_sent() {
                    return true;
                }
                // SAFETY: the operand is valid until the update is complete or cancelled.
                let (packet, len) = unsafe { update.request(number, served.room) };
                (*peer, packet, len)
            };
            let sent = if peer == self.me {
                Ok(Some(()))
            } else {
                // SAFETY: packets are copied when they are posted.
                unsafe { self.post_own(peer, Operation::send(&packet, &[]), UNREPORTED) }
            };
            match sent {
                Ok(None) => return false,
                Err(e) => {
                    self.take(number).into_iter().for_each(|open| self.finish(open, Err(e.again())));
                    return true;
                }
                Ok(Some(())) => {}
            }
            if let Some(Open { kind: Request::Update(update), .. }) = self.open.borrow_mut().get_mut(number) {
                update.has_sent(len);
            }
            if peer == self.me {
                self.serve_itself(served, &packet);
            }
        }
    }

    /// Makes an update of this rank's own memory.
    fn serve_itself(&self, served: &Served, packet: &[u8]) {
        let Some(UpdatePacket::Request(request)) = UpdatePacket::read(packet) else { return };
        let answer = served.serve(request);
        if let Some(UpdatePacket::Answer(answer)) = answer.as_deref().and_then(UpdatePacket::read) {
            self.answered(served, self.me, &answer);
        }
    }

    /// Fails the updates to a peer that is lost, or is no longer reached over this device.
    pub(super) fn lose(&self, lost: u32) {
        self.answers.borrow_mut().retain(|(peer, _)| *peer != lost);
        let is_lost = |open: &Open| open.peer == lost && matches!(open.kind, Request::Update(_));
        let numbers: Vec<u64> =
            self.open.borrow().iter().filter(|(_, open)| is_lost(open)).map(|(number, _)| number).collect();
        for open in numbers.into_iter().filter_map(|number| self.take(number)) {
            let e = Error::new(ErrorKind::PeerLost, "update memory of a peer").rank(self.me).peer(lost);
            self.finish(open, Err(e.device(self.capabilities.name)));
        }
    }
}
