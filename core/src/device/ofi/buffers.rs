#![allow(unsafe_code)]
//! Buffers of messages: slots of one length in one piece of memory, each with the context of its operation.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::rc::Rc;

use super::fabric::{Context, Fabric, Failure, Memory};
use crate::device::loopback::Owned;
use crate::memory::copy;

/// Length of a slot in bytes.
pub(super) const SLOT: usize = 8 << 10;

/// Slots of messages that are sent, or received.
pub(super) struct Buffers {
    memory: Option<Memory>,
    contexts: Vec<Context>,
    base: *mut u8,
    /// Slots that no operation uses.
    free: Vec<u32>,
    _owned: Owned,
}

impl Buffers {
    /// `count` slots; the tag of slot `n` is `tag + n`.
    pub(super) fn new(fabric: &Rc<Fabric>, count: u32, tag: u64) -> Result<Self, Failure> {
        let len = SLOT * count as usize;
        let (owned, base) = Owned::aligned(len, 64).map_err(|e| Failure {
            call: "mmap",
            errno: e.raw_os_error().unwrap_or(libc::ENOMEM),
            text: e.to_string(),
        })?;
        // SAFETY: the memory lives longer than the registration, and is used as bytes of messages only.
        let memory = fabric.offer.needs_local().then(|| unsafe { fabric.register(base, len) }).transpose()?;
        let contexts = (0..u64::from(count)).map(|n| Context::new(tag + n)).collect();
        Ok(Self { memory, contexts, base, free: (0..count).rev().collect(), _owned: owned })
    }

    pub(super) fn count(&self) -> usize {
        self.contexts.len()
    }

    /// Number of slots that operations use.
    pub(super) fn in_use(&self) -> usize {
        self.contexts.len() - self.free.len()
    }

    pub(super) fn take(&mut self) -> Option<u32> {
        self.free.pop()
    }

    pub(super) fn give_back(&mut self, slot: u32) {
        debug_assert!(!self.free.contains(&slot), "slot {slot} is free");
        self.free.push(slot);
    }

    pub(super) fn context(&self, slot: u32) -> &Context {
        &self.contexts[slot as usize]
    }

    pub(super) fn address(&self, slot: u32) -> *mut u8 {
        assert!((slot as usize) < self.contexts.len(), "slot {slot}");
        self.base.wrapping_add(SLOT * slot as usize)
    }

    /// The descriptor for operations on the slots.
    pub(super) fn desc(&self) -> *mut c_void {
        self.memory.as_ref().map_or(null_mut(), |memory| memory.desc)
    }

    /// Copies bytes into a slot, from byte `at` on.
    ///
    /// # Safety
    /// No operation uses the slot.
    pub(super) unsafe fn fill(&mut self, slot: u32, at: usize, bytes: &[u8]) {
        assert!(at.saturating_add(bytes.len()) <= SLOT, "a message of {} bytes", at + bytes.len());
        // SAFETY: inside the slot, which is not in use.
        unsafe { copy::bytes(bytes.as_ptr(), self.address(slot).add(at), bytes.len()) };
    }

    /// The first `len` bytes of a slot.
    ///
    /// # Safety
    /// No operation uses the slot while the bytes are borrowed.
    pub(super) unsafe fn bytes(&self, slot: u32, len: usize) -> &[u8] {
        // SAFETY: inside the slot, whose memory was zeroed when it was made.
        unsafe { std::slice::from_raw_parts(self.address(slot), len.min(SLOT)) }
    }
}
