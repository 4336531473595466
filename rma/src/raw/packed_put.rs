#![allow(unsafe_code)]
//! The origin's side of Generic ([`super::packed`]): a put between layouts is packed in pieces and sent.

use farside_core::Result;
use farside_core::am::{self, Counters, HandlerId};
use farside_core::stats::Kind;
use farside_core::wire::Writer;
use farside_datatype::{Plan, Private};

use super::layouts::Layouts;
use super::{Access, RawWindow, Target};

/// Pieces under way to one target.
const UNDER_WAY: u64 = 4;

impl RawWindow {
    /// Whether `t` unpacks what this rank puts to it in the present epoch.
    pub(super) fn unpacks(&self, t: &Target) -> bool {
        t.listens != 0 && matches!(self.access.get(), Access::Fence(_) | Access::Start)
    }

    /// Carries out a put by Generic. On return the buffer is free.
    pub(super) fn put_packed(&self, t: &Target, l: &Layouts<'_>, plan: &Plan<'_>) -> Result<()> {
        let wire = l.target.to_wire();
        self.operations.packed.set(true);
        for (from, len) in plan.segments() {
            let under_way = || t.packed.get() - t.unpacked.value();
            if under_way() >= UNDER_WAY {
                self.job.wait("put", || Ok((under_way() < UNDER_WAY).then_some(())))?;
            }
            let mut bytes = Writer::new().u64(l.offset as u64).u64(from).u64(wire.len() as u64).done();
            bytes.extend_from_slice(&wire);
            let at = bytes.len();
            bytes.resize(at + len as usize, 0);
            // SAFETY: the local bytes by the contract of the call; room was just made.
            unsafe { l.origin.pack_raw::<Private>(l.local, from, bytes[at..].as_mut_ptr(), len as usize) };
            self.stats().add(Kind::Copy, len as usize);
            let counters = Counters { completion: Some(&t.unpacked), ..Counters::default() };
            // SAFETY: a piece for the window of the peer, in an epoch in which it is exposed.
            unsafe { am::send_any(&self.job, t.region.peer, HandlerId(t.listens), &[], &bytes, counters) }?;
            // Acknowledgements of earlier ones may have come meanwhile, but not that of this one.
            t.packed.set(t.packed.get() + 1);
        }
        Ok(())
    }
}
