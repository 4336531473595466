#![allow(unsafe_code)]
//! Dynamic windows: each rank attaches and detaches its memory locally (MPI-4 §12.2.4).
//!
//! Each rank publishes a table of its attachments in another window, and origins look them up there (`address`).
//! Detaching clears the entry and then deregisters the memory: later operations fail with `NotAttached`, and operations
//! in progress are rejected by the owner's device or access pages that the owner no longer uses.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use farside_core::device::{MAX_KEY, Region, Registration, RemoteRegion};
use farside_core::job::CancelOnDrop;
use farside_core::{Error, ErrorKind, Result, Team};

use super::address::Attachments;
use super::{Options, RawWindow};
use crate::assert::Assert;
use crate::elements::WindowElement;

/// Maximum number of attachments of one rank at a time.
pub const MAX_ATTACHED: usize = 16_384;

/// Bytes of a table entry before the key: id, length in bytes, length of the key, address of the first byte.
pub(super) const HEAD: usize = 32;

/// Maximum length in bytes of a table entry, for any device.
pub(super) const MAX_ENTRY: usize = HEAD + MAX_KEY;

/// Offset of the entries, which follow the header: the version of the table, the number of slots that were ever used,
/// and the slots of the last changes. The change of version `v` is in word `v` modulo [`KEPT_CHANGES`] from [`CHANGES`]
/// on.
pub(super) const TABLE: usize = 128;

/// Index of the first word of the change log, and its number of entries.
pub(super) const CHANGES: usize = 2;
pub(super) const KEPT_CHANGES: usize = TABLE / 8 - CHANGES;

/// Bytes of a table entry.
pub(super) fn entry_of(team: &Team) -> usize {
    HEAD + team.job().device().capabilities().max_key
}

/// Identifies an attachment of a rank. The owner sends it to the ranks that use the attachment.
///
/// It is plain data, so it can be sent in messages and stored in windows:
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let window = DynamicWindow::<u16>::new(&team)?;
///     if team.rank() == 0 {
///         let mine = window.attach(vec![7; 3])?;
///         team.send(&[mine], 1, 0)?;
///     } else {
///         let (attachments, _) = team.recv_vec::<Attachment>(0, 0)?;
///         let mut last = [0];
///         window.get(&mut last, 0, attachments[0], 2)?;
///         assert_eq!(last, [7]);
///     }
///     window.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Attachment {
    /// Never 0, and unique at its rank.
    pub id: u64,
    /// Slot in the owner's table.
    pub slot: u64,
}

/// The attachments of this rank.
#[derive(Default, Debug)]
struct OwnAttachments {
    registrations: HashMap<Attachment, Registration>,
    /// Nonempty attachments by the address of their first byte, with their lengths. They do not overlap.
    by_base: BTreeMap<usize, (Attachment, usize)>,
    /// Previously used slots that are free again.
    free: Vec<u64>,
}

impl OwnAttachments {
    /// A free slot of the table, if there is one.
    fn free_slot(&self) -> Option<u64> {
        let used = self.registrations.len() + self.free.len();
        self.free.last().copied().or((used < MAX_ATTACHED).then_some(used as u64))
    }

    /// Adds an attachment in [the free slot](Self::free_slot).
    fn add(&mut self, attachment: Attachment, registration: Registration) {
        self.free.pop();
        if registration.len > 0 {
            self.by_base.insert(registration.base.addr(), (attachment, registration.len));
        }
        self.registrations.insert(attachment, registration);
    }

    fn remove(&mut self, attachment: Attachment) -> Option<Registration> {
        let registration = self.registrations.remove(&attachment)?;
        self.free.push(attachment.slot);
        if registration.len > 0 {
            self.by_base.remove(&registration.base.addr());
        }
        Some(registration)
    }
}

/// An untyped window whose memory is attached later. Operations are complete when they return.
///
/// ```
/// use farside_rma::prelude::*;
/// use farside_rma::raw::Options;
/// use farside_rma::raw::dynamic::RawDynamicWindow;
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let window = RawDynamicWindow::new(&team, None, Options::default())?;
///     let mut memory = [team.rank() as u8; 8];
///     // SAFETY: the memory is valid until it is detached, and not accessed by this rank until then.
///     let mine = unsafe { window.attach(memory.as_mut_ptr(), 8) }?;
///     // Operations name memory by its address at the target.
///     let mut addresses = [0; 2];
///     team.allgather(&[memory.as_ptr().addr()], &mut addresses)?;
///     let (peer, mut got) = (1 - team.rank(), [9; 8]);
///     window.window().lock_all(Assert::empty())?;
///     // SAFETY: `got` is valid until the epoch is closed.
///     unsafe { window.window().get(got.as_mut_ptr(), 8, peer, addresses[peer]) }?;
///     window.window().unlock_all()?;
///     assert_eq!(got, [peer as u8; 8]);
///     team.barrier()?;
///     window.detach(mine)?;
///     window.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Debug)]
#[repr(C)] // so that the window is at its beginning
pub struct RawDynamicWindow {
    /// The window whose epochs contain the operations by address.
    epochs: RawWindow,
    attachments: Rc<Attachments>,
    attached: RefCell<OwnAttachments>,
    last: Cell<u64>,
}

impl RawDynamicWindow {
    /// Makes a window with no memory attached, which all ranks use for elements of one type. Collective. Memory: the
    /// table has 2 MiB of address space per rank (5 MiB with several devices), of which only used pages are touched.
    ///
    /// # Errors
    /// Those of [`RawWindow::allocate`]; `Mismatch` on every rank if element types differ.
    pub fn new(team: &Team, element: Option<WindowElement>, options: Options) -> Result<Self> {
        let len = TABLE + MAX_ATTACHED * entry_of(team);
        let table = RawWindow::allocate_of(team, Ok(len), Options::default(), element)?;
        table.lock_all(Assert::NOCHECK)?;
        let attachments = Rc::new(Attachments::new(table));
        let epochs = RawWindow::attaching(team, options, Rc::clone(&attachments))?;
        Ok(Self { attachments, epochs, attached: RefCell::default(), last: Cell::new(0) })
    }

    /// The window whose epochs contain the operations by address. It has no memory of its own, and its offsets are
    /// addresses at the target. Operations fail with `NotAttached` unless the target has attached all of the bytes.
    #[must_use]
    pub fn window(&self) -> &RawWindow {
        &self.epochs
    }

    fn table(&self) -> &RawWindow {
        &self.attachments.table
    }

    /// This rank's attachment that starts at `base`.
    #[must_use]
    pub fn attachment_at(&self, base: *const u8) -> Option<Attachment> {
        self.attached.borrow().by_base.get(&base.addr()).map(|(attachment, _)| *attachment)
    }

    /// Whether an attachment of this rank overlaps these bytes.
    #[must_use]
    pub fn has_attached(&self, base: *const u8, len: usize) -> bool {
        let (from, to) = (base.addr(), base.addr().saturating_add(len));
        // Attachments do not overlap, so only the last one that starts before the end can overlap the range.
        let attached = self.attached.borrow();
        attached.by_base.range(..to).next_back().is_some_and(|(base, (_, len))| from < base + len)
    }

    /// Publishes a change of a table entry.
    fn changed(&self, slot: u64) {
        // Relaxed: only this thread writes the word.
        let version = self.word_at(0).load(Ordering::Relaxed) + 1;
        // Relaxed: ordered by the Release of the version.
        self.word_at(CHANGES + version as usize % KEPT_CHANGES).store(slot, Ordering::Relaxed);
        // Release: pairs with an origin's loads of the version, before and after it reads the table.
        self.word_at(0).store(version, Ordering::Release);
    }

    fn word(&self, slot: u64, index: usize) -> &AtomicU64 {
        self.word_at(TABLE / 8 + slot as usize * self.attachments.entry / 8 + index)
    }

    /// A word of this rank's table.
    fn word_at(&self, index: usize) -> &AtomicU64 {
        debug_assert!(index < (TABLE + MAX_ATTACHED * self.attachments.entry) / 8);
        // SAFETY: the word is inside this rank's table, aligned, and accessed only atomically.
        unsafe { AtomicU64::from_ptr(self.table().base().cast::<u64>().add(index).cast()) }
    }

    /// Attaches `len` bytes at `base`. Local: no message. Peers access it as described at [`RawWindow::create`].
    ///
    /// # Safety
    /// The memory stays valid, and is accessed only as the window's epochs allow, until [`detach`](Self::detach) has
    /// succeeded.
    ///
    /// # Errors
    /// `Limit` with [`MAX_ATTACHED`] already attached, or from the device.
    pub unsafe fn attach(&self, base: *mut u8, len: usize) -> Result<Attachment> {
        // SAFETY: the same contract.
        unsafe { self.attach_region(Region::of(base, len)) }
    }

    /// Attaches memory that is not accessed otherwise until it is detached. Peers map its whole pages.
    ///
    /// # Safety
    /// The contract of [`attach`](Self::attach) and that of [`Region::exclusive`].
    ///
    /// # Errors
    /// Those of [`attach`](Self::attach).
    pub unsafe fn attach_exclusively(&self, base: *mut u8, len: usize) -> Result<Attachment> {
        // SAFETY: the same contract.
        unsafe { self.attach_region(Region { exclusive: true, ..Region::of(base, len) }) }
    }

    /// # Safety
    /// The contract of [`attach`](Self::attach), and that of [`Region::exclusive`] if it is set.
    unsafe fn attach_region(&self, memory: Region) -> Result<Attachment> {
        let Region { base, len, .. } = memory;
        let slot = self.attached.borrow().free_slot().ok_or_else(|| {
            Error::new(ErrorKind::Limit, "attach memory")
                .rank(self.table().job().rank())
                .cause(format!("{MAX_ATTACHED} regions are attached already, the maximum"))
                .remedy("detach regions that are no longer needed")
        })?;
        let region = Region {
            accumulate: Some(crate::op::apply_bytes),
            passive: true,
            revocable: true,
            one_node: self.table().team().is_on_one_node(),
            ..memory
        };
        // SAFETY: the same contract.
        let registration = unsafe { self.table().job().device().register(region) }?;
        let id = self.last.get() + 1;
        self.last.set(id);
        let mut key = [0u8; MAX_KEY];
        key[..registration.key.len()].copy_from_slice(&registration.key);
        // Relaxed, as for all stores of the entry: ordered by the Release store of the id, which pairs with an origin's
        // look-up.
        self.word(slot, 1).store(len as u64, Ordering::Relaxed);
        self.word(slot, 2).store(registration.key.len() as u64, Ordering::Relaxed);
        // Relaxed, as above.
        self.word(slot, 3).store(base.addr() as u64, Ordering::Relaxed);
        for (i, w) in key[..self.attachments.entry - HEAD].chunks_exact(8).enumerate() {
            // Relaxed, as above.
            self.word(slot, 4 + i).store(u64::from_le_bytes(w.try_into().unwrap_or_default()), Ordering::Relaxed);
        }
        // Release: pairs with the look-up of an origin, which reads the id before and after the rest.
        self.word(slot, 0).store(id, Ordering::Release);
        self.word_at(1).fetch_max(slot + 1, Ordering::AcqRel);
        self.changed(slot);
        let attachment = Attachment { id, slot };
        self.attached.borrow_mut().add(attachment, registration);
        Ok(attachment)
    }

    /// Detaches memory. Local: no message. Operations of peers that are still in progress fail or have no effect.
    ///
    /// # Errors
    /// `NotAttached`; `System` if the memory cannot be deregistered; it must then not be reused.
    pub fn detach(&self, attachment: Attachment) -> Result<()> {
        let registration = self.attached.borrow_mut().remove(attachment);
        let not_attached = || self.not_attached("detach memory", self.table().team().rank(), attachment);
        let registration = registration.ok_or_else(not_attached)?;
        self.word(attachment.slot, 0).store(0, Ordering::SeqCst);
        self.changed(attachment.slot);
        // SAFETY: operations of this rank are complete or cancelled before they return.
        unsafe { self.table().job().device().release(registration.handle) }
    }

    fn not_attached(&self, operation: &'static str, target: usize, attachment: Attachment) -> Error {
        self.attachments.not_attached(operation, target, format!("attachment {} does not exist", attachment.id))
    }

    /// Runs an operation on an attachment: `issue` issues it on the given window and region. On return, or after a
    /// panic, it is complete or cancelled.
    pub(crate) fn run(
        &self,
        name: &'static str,
        target: usize,
        attachment: Attachment,
        issue: impl FnOnce(&RawWindow, &RemoteRegion) -> Result<()>,
    ) -> Result<()> {
        let region = self.attachments.region(name, target, attachment)?;
        let track = &self.table().target(target, name)?.track;
        let _open = CancelOnDrop::new(self.table().job(), track);
        issue(self.table(), &region).and_then(|()| self.table().flush(target)).map_err(|e| {
            // The owner has invalidated the key, so it has detached the memory since the look-up.
            if e.kind() == ErrorKind::BadKey { self.not_attached(name, target, attachment) } else { e }
        })
    }

    /// Frees the window. Collective, with a barrier; memory that is still attached is detached when the window is
    /// dropped.
    ///
    /// # Errors
    /// `PeerLost`; `System` if memory could not be deregistered or unmapped.
    pub fn free(&self) -> Result<()> {
        self.epochs.free()?;
        self.table().unlock_all()?;
        self.table().team().barrier()
    }
}

impl Drop for RawDynamicWindow {
    fn drop(&mut self) {
        let all: Vec<Attachment> = self.attached.borrow().registrations.keys().copied().collect();
        for attachment in all {
            if let Err(e) = self.detach(attachment) {
                tracing::error!("failed to detach memory: {e}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use farside_core::Job;

    use super::*;

    #[test]
    fn region_that_two_threads_have_looked_up_is_imported_once() {
        Job::threads(1, |job| {
            let mut memory = [0u64; 4];
            let window = RawDynamicWindow::new(&job.world()?, None, Options::default())?;
            // SAFETY: the memory outlives the window, and is not accessed otherwise while attached.
            let attachment = unsafe { window.attach(memory.as_mut_ptr().cast(), size_of_val(&memory)) }?;
            let key = window.attached.borrow().registrations[&attachment].key.clone();
            let [one, other] = [(); 2].map(|()| window.attachments.import(0, attachment, &key));
            assert_eq!(one?.handle, other?.handle);
            window.free()
        })
        .unwrap();
    }
}
