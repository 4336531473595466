#![allow(unsafe_code)]
//! The origin's side of the Generic scheme ([`super::packed`]): a put between datatypes is packed and sent in pieces.

use farside_core::Result;
use farside_core::am::{self, Counters, HandlerId};
use farside_core::stats::Kind;
use farside_core::wire::Writer;
use farside_datatype::{Plan, Private};

use super::layouts::Layouts;
use super::{Access, RawWindow, Target};

/// Maximum number of unacknowledged pieces to one target.
const MAX_UNACKNOWLEDGED: u64 = 4;

impl RawWindow {
    /// Whether `t` can unpack puts of this rank in the current epoch.
    pub(super) fn unpacks(&self, t: &Target) -> bool {
        t.listens != 0 && matches!(self.access.get(), Access::Fence(_) | Access::Start)
    }

    /// Sends a put by the Generic scheme. On return the buffer is free.
    pub(super) fn put_packed(&self, t: &Target, l: &Layouts<'_>, plan: &Plan<'_>) -> Result<()> {
        let wire = l.target.to_wire();
        self.operations.packed.set(true);
        for (from, len) in plan.segments() {
            let unacknowledged = || t.packed.get() - t.unpacked.value();
            if unacknowledged() >= MAX_UNACKNOWLEDGED {
                self.job.wait("put", || Ok((unacknowledged() < MAX_UNACKNOWLEDGED).then_some(())))?;
            }
            let mut bytes = Writer::new().u64(l.offset as u64).u64(from).u64(wire.len() as u64).done();
            bytes.extend_from_slice(&wire);
            let at = bytes.len();
            bytes.resize(at + len as usize, 0);
            // SAFETY: the local bytes are valid by the contract of the call; `bytes` has room for `len` bytes at `at`.
            unsafe { l.origin.pack_raw::<Private>(l.local, from, bytes[at..].as_mut_ptr(), len as usize) };
            self.stats().add(Kind::Copy, len as usize);
            let counters = Counters { completion: Some(&t.unpacked), ..Counters::default() };
            // SAFETY: the piece is for the peer's window, in an epoch in which the window is exposed.
            unsafe { am::send_any(&self.job, t.region.peer, HandlerId(t.listens), &[], &bytes, counters) }?;
            // Counted only now, since `send_any` may wait: acknowledgements of earlier pieces may have arrived in the
            // meantime, but not that of this piece.
            t.packed.set(t.packed.get() + 1);
        }
        Ok(())
    }
}
