#![allow(unsafe_code)]
//! Reads of many ranges of remote memory into many blocks ([`Ranges::List`](crate::device::Ranges::List)): at least one
//! request for each range, with the blocks as its scatter list.
//!
//! Zcopy only: memory that is not yet registered is registered, and stays registered. For memory that a peer has
//! exported for this read, another request reads the word that shows whether the peer has revoked it
//! ([`lent`](crate::device::verbs::memory::lent)). It is posted when the data has arrived: a queue pair begins reads in
//! posting order, but PCIe may perform them in another one.

use super::cut::Part;
use super::engine::Engine;
use super::request::{Held, Notice, Owner};
use crate::device::request::length;
use crate::device::verbs::sys::Rights;
use crate::device::verbs::sys::qp::Action;
use crate::device::verbs::sys::queue::Piece;
use crate::device::{Block, Place, Posted, Range, WorkRequest};
use crate::error::{Error, ErrorKind, Result};

const OP: &str = "read blocks of remote memory";

/// Removes the next `len` bytes from `pieces`. The first `done` bytes of the first segment are already removed.
fn take(pieces: &mut &[Piece], done: &mut u32, len: usize) -> Vec<Piece> {
    let (mut out, mut left) = (Vec::new(), len);
    while let Some(first) = pieces.first().filter(|_| left > 0) {
        let rest = first.len - *done;
        let now = u32::try_from(left).unwrap_or(u32::MAX).min(rest);
        out.push(Piece { address: first.address + u64::from(*done), len: now, key: first.key });
        left -= now as usize;
        *done += now;
        if now == rest {
            (*pieces, *done) = (&pieces[1..], 0);
        }
    }
    out
}

impl Engine {
    /// # Safety
    /// All local pointers stay valid and exclusive until the request has completed.
    pub(super) unsafe fn read_blocks(
        &mut self,
        request: &WorkRequest<'_>,
        into: &[Block],
        (region, ranges): (u64, &[Range]),
        notice: Option<Notice>,
    ) -> Result<Posted> {
        let (peer, len) = (request.peer, length(into));
        let sum = ranges.iter().try_fold(0usize, |sum, r| sum.checked_add(r.len));
        if sum != Some(len) {
            let cause = format!("the blocks have {len} bytes, but the ranges {}", sum.unwrap_or(usize::MAX));
            return Err(Error::new(ErrorKind::BadArgument, OP).peer(peer).device("verbs").cause(cause));
        }
        let mut places = Vec::with_capacity(ranges.len());
        for range in ranges {
            let place = Place { region, offset: range.offset };
            places.push(self.regions.reach(peer, place, range.len, OP)?);
        }
        if self.ready(peer)?.is_none_or(|q| !q.has_room(ranges.len())) {
            return Ok(Posted::Busy);
        }
        if len == 0 {
            self.post_notification(peer, notice);
            return Ok(Posted::Done);
        }
        let regions = &self.regions;
        let known = |b: &Block| regions.local_key(b.base, b.len);
        // SAFETY: by the contract: the operation holds the leases and ends before the memory is unmapped.
        let found = unsafe { self.user.pieces(into, Rights::Local, known, &self.out.stats) };
        let (pieces, leases) = found.map_err(|e| e.peer(peer))?;
        let (mut rest, mut done) = (&pieces[..], 0);
        let mut parts: Vec<Part> = Vec::with_capacity(places.len());
        for (range, (address, key)) in ranges.iter().zip(places) {
            let own = take(&mut rest, &mut done, range.len);
            parts.extend(self.regions.cut(region, &own, Action::Read { address, key }, self.limits));
        }
        let mut held = Held { owner: Owner::User(request.id), zcopy: true, leases, ..Held::default() };
        if let Some(witness) = self.regions.witness(region) {
            let Some(chunk) = self.out.pool.take(8) else { return Ok(Posted::Busy) };
            (held.chunk, held.witness) = (Some(chunk), Some(witness));
        }
        if !self.queue(peer).has_room(parts.len()) {
            held.chunk.into_iter().for_each(|chunk| self.out.pool.give(chunk));
            return Ok(Posted::Busy);
        }
        held.notice = self.notify_later(notice);
        self.post_all(peer, parts.into_iter(), held, None);
        Ok(Posted::Pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_taken_by_ranges_whatever_the_bounds() {
        let piece = |address, len| Piece { address, len, key: 7 };
        let pieces = [piece(100, 10), piece(200, 5), piece(300, 1)];
        let (mut rest, mut done) = (&pieces[..], 0);
        let mut next = |len| take(&mut rest, &mut done, len).iter().map(|p| (p.address, p.len)).collect::<Vec<_>>();
        assert_eq!(next(4), [(100, 4)]);
        assert_eq!(next(8), [(104, 6), (200, 2)]);
        assert_eq!(next(0), []);
        assert_eq!(next(4), [(202, 3), (300, 1)]);
        assert_eq!(next(9), []);
    }
}
