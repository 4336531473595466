#![allow(unsafe_code)]
//! Generic: a put between layouts that is packed here, sent, and unpacked by the target.
//!
//! Each piece is an active message: place and layout of the target, and packed bytes. The target unpacks it whenever it
//! is in the runtime, and acknowledges it; the closing call waits for that before it notifies. So this is for epochs in
//! which the target will be there: between fences, and from start to complete.

use std::cell::Cell;
use std::ptr::NonNull;
use std::rc::Rc;

use farside_core::am::{self, Counters, Delivery, HandlerId, Message, Then};
use farside_core::stats::{Kind, Stats};
use farside_core::wire::{Reader, Writer};
use farside_core::{Job, Result};
use farside_datatype::{Plan, Private, TypeMap};

use super::layouts::{Layouts, Shared, reach};
use super::{Access, RawWindow, Target};

/// Pieces under way to one target.
const UNDER_WAY: u64 = 4;

/// This rank's own memory, as what unpacks into it sees it.
#[derive(Clone)]
struct Own {
    base: *mut u8,
    len: usize,
    stats: NonNull<Stats>,
    /// Whether it is still the window's: pieces can come in several packets, the last of them after its end.
    alive: Rc<Cell<bool>>,
}

/// Takes in packed pieces for a window, until it is forgotten.
#[derive(Debug)]
pub(super) struct Listener {
    id: u16,
    alive: Rc<Cell<bool>>,
}

impl Listener {
    /// For the window over `len` bytes at `base`.
    pub(super) fn new(job: &Job, base: *mut u8, len: usize) -> Self {
        let alive = Rc::new(Cell::new(true));
        let own = Own { base, len, stats: NonNull::from(job.device().stats()), alive: Rc::clone(&alive) };
        let handler = move |_: Message<'_>| {
            let own = own.clone();
            let unpack = move |bytes: Vec<u8>| {
                if own.unpack(&bytes).is_none() {
                    tracing::error!("{} bytes for a window are no packed piece of it, and left out", bytes.len());
                }
            };
            Delivery::Into(Vec::new(), Then::Quick(Box::new(unpack)))
        };
        // The collectives have the highest number; programs take the low ones.
        let free = |id: &u16| job.active_messages().register(HandlerId(*id), handler.clone()).is_ok();
        Self { id: (1 << 15..u16::MAX).rev().find(free).unwrap_or(0), alive }
    }

    /// By which others send; 0: no number was free.
    pub(super) fn id(&self) -> u16 {
        self.id
    }

    /// Once this has returned nothing is unpacked any more.
    pub(super) fn forget(&self, job: &Job) {
        self.alive.set(false);
        if self.id != 0 {
            job.active_messages().unregister(HandlerId(self.id));
        }
    }
}

impl Own {
    /// Unpacks a piece as [`RawWindow::put_packed`] makes it; `None` for anything else.
    fn unpack(&self, bytes: &[u8]) -> Option<()> {
        let mut reader = Reader::new(bytes);
        let (offset, from) = (usize::try_from(reader.u64()?).ok()?, reader.u64()?);
        let wire = usize::try_from(reader.u64()?).ok()?;
        let (wire, packed) = bytes.get(24..)?.split_at_checked(wire)?;
        let map = TypeMap::from_wire(wire).ok()?;
        let (start, reached) = reach(&map, offset)?;
        let inside = start <= self.len && reached <= self.len - start;
        if !self.alive.get() || !inside || from.checked_add(packed.len() as u64)? > map.size() {
            return None;
        }
        // SAFETY: the counters live as long as the job, which dispatches to nobody after its end.
        unsafe { self.stats.as_ref() }.add(Kind::Copy, packed.len());
        // SAFETY: all bytes of the message are inside the window's memory, which is not given back while it is alive.
        unsafe { map.unpack_raw::<Shared>(packed.as_ptr(), from, self.base.wrapping_add(offset), packed.len()) };
        Some(())
    }
}

impl Target {
    /// Whether packed pieces are under way.
    #[inline]
    pub(super) fn has_packed(&self) -> bool {
        self.packed.get() != self.unpacked.value()
    }

    /// Whether anything is under way.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.track.open() > 0 || self.has_packed()
    }
}

impl RawWindow {
    /// Whether `t` unpacks what this rank puts to it in the present epoch.
    pub(super) fn unpacks(&self, t: &Target) -> bool {
        t.listens != 0 && matches!(self.access.get(), Access::Fence(_) | Access::Start)
    }

    /// Carries out a put by Generic. On return the buffer is free.
    pub(super) fn put_packed(&self, t: &Target, l: &Layouts<'_>, plan: &Plan<'_>) -> Result<()> {
        let wire = l.target.to_wire();
        self.packed.set(true);
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
            am::send(&self.job, t.region.peer, HandlerId(t.listens), &[], &bytes, counters)?;
            // Acknowledgements of earlier ones may have come meanwhile, but not that of this one.
            t.packed.set(t.packed.get() + 1);
        }
        Ok(())
    }
}
