#![allow(unsafe_code)]
//! An origin's view of the memory that the ranks of a dynamic window have attached.
//!
//! Each rank has a table of its attachments. Before an operation on an [`Attachment`], the origin reads its entry,
//! which detects a detached region. Before an operation on an address, it reads the table's version and, if the owner
//! has changed the table, the changed entries. A region is imported at its first use. Messages: one read for the entry
//! or the version if the table is not mapped, otherwise none. Afterwards mapped bytes are accessed as in any other
//! window.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

use farside_core::device::{Mapped, RemoteRegion};
use farside_core::{Error, ErrorKind, Result};

use super::RawWindow;
use super::dynamic::{Attachment, CHANGES, HEAD, KEPT_CHANGES, MAX_ATTACHED, MAX_ENTRY, TABLE, entry_of};

/// The assumed cost of one separate read, in entries: reading this many entries together costs the same.
const ENTRIES_PER_READ: usize = 64;

/// This rank's view of the attachments of all ranks.
#[derive(Debug)]
pub(super) struct Attachments {
    /// The window that contains the tables.
    pub(super) table: RawWindow,
    /// Size of a table entry in bytes.
    pub(super) entry: usize,
    /// Indexed by rank of the team.
    known: Vec<RefCell<KnownTable>>,
}

/// This rank's copy of a target's table.
#[derive(Debug, Default)]
struct KnownTable {
    version: u64,
    /// Nonempty attachments by the address of their first byte. They do not overlap.
    attachments: BTreeMap<usize, KnownAttachment>,
    /// Id of the attachment and address of its first byte, by used slot.
    slots: HashMap<u64, (u64, usize)>,
    /// Imported regions by the id of the attachment.
    imports: HashMap<u64, RemoteRegion>,
    /// The mapped bytes that were accessed last; `None` after a change of this copy.
    recent: Cell<Option<MappedRange>>,
}

/// Mapped bytes of an attachment.
#[derive(Clone, Copy, Debug)]
struct MappedRange {
    /// Address of the first byte at the target.
    address: usize,
    len: usize,
    /// Address of the first byte at this rank.
    base: *mut u8,
}

impl MappedRange {
    fn direct(&self, address: usize, len: usize) -> Option<*mut u8> {
        let at = address.checked_sub(self.address)?;
        (at <= self.len && len <= self.len - at).then(|| self.base.wrapping_add(at))
    }
}

#[derive(Debug)]
struct KnownAttachment {
    base: usize,
    len: usize,
    attachment: Attachment,
    /// A copy of the matching entry of `imports`, if any.
    region: Option<RemoteRegion>,
}

impl KnownTable {
    /// The attachment that contains all of these bytes.
    fn find(&self, address: usize, len: usize) -> Option<&KnownAttachment> {
        let one = self.last_at_or_before(address)?;
        let at = address - one.base;
        (at <= one.len && len <= one.len - at).then_some(one)
    }

    /// The last attachment that begins at an address or before it.
    fn last_at_or_before(&self, address: usize) -> Option<&KnownAttachment> {
        self.attachments.range(..=address).next_back().map(|(_, one)| one)
    }

    /// The attachment that contains the first of these bytes, if together with adjacent attachments it contains all of
    /// them.
    fn find_first(&self, address: usize, len: usize) -> Option<&KnownAttachment> {
        let end = address.checked_add(len)?;
        let mut at = address;
        while at < end {
            at = self.last_at_or_before(at).map(|one| one.base + one.len).filter(|behind| *behind > at)?;
        }
        self.last_at_or_before(address)
    }

    /// Stores entries of the table's version `version`, each with its slot, unless another thread has stored a later
    /// version. Returns the imports of attachments that were detached. Other slots are unchanged.
    fn update<'a>(&mut self, version: u64, entries: impl Iterator<Item = (u64, &'a [u64])>) -> Vec<RemoteRegion> {
        let mut removed = Vec::new();
        if version <= self.version {
            return removed;
        }
        self.recent.set(None);
        let mut new = Vec::new();
        for (slot, entry) in entries {
            let [id, len, _, base] = [0, 1, 2, 3].map(|word| entry[word]);
            match self.slots.get(&slot) {
                Some((known, _)) if *known == id => continue,
                Some((known, at)) => {
                    if self.attachments.get(at).is_some_and(|one| one.attachment.slot == slot) {
                        self.attachments.remove(at);
                    }
                    removed.extend(self.imports.remove(known));
                    self.slots.remove(&slot);
                }
                None => {}
            }
            if id != 0 {
                let (base, len) = (base as usize, len as usize);
                new.push(KnownAttachment { base, len, attachment: Attachment { id, slot }, region: None });
            }
        }
        // New attachments are added only after all detached ones are removed, since the same memory may have been
        // attached again in another slot.
        for mut one in new {
            let Attachment { id, slot } = one.attachment;
            one.region = self.imports.get(&id).copied();
            self.slots.insert(slot, (id, one.base));
            if one.len > 0 {
                self.attachments.insert(one.base, one);
            }
        }
        self.version = version;
        removed
    }

    /// Stores the import of an attachment, or with `None` removes it. Returns the import that was stored before.
    fn set_import(&mut self, attachment: Attachment, region: Option<RemoteRegion>) -> Option<RemoteRegion> {
        self.recent.set(None);
        if let Some((id, base)) = self.slots.get(&attachment.slot)
            && *id == attachment.id
            && let Some(known) = self.attachments.get_mut(base)
        {
            known.region = region;
        }
        match region {
            Some(region) => self.imports.insert(attachment.id, region),
            None => self.imports.remove(&attachment.id),
        }
    }
}

impl Attachments {
    /// Starts with empty copies of the tables.
    pub(super) fn new(table: RawWindow) -> Self {
        let known = (0..table.team().size()).map(|_| RefCell::default()).collect();
        let entry = entry_of(table.team());
        Self { table, entry, known }
    }

    #[cold]
    pub(super) fn not_attached(&self, operation: &'static str, target: usize, what: String) -> Error {
        Error::new(ErrorKind::NotAttached, operation)
            .rank(self.table.job().rank())
            .peer(self.table.team().members().get(target).map_or(target, |rank| *rank as usize))
            .cause(what)
            .remedy("attach the memory before this rank uses it")
    }

    /// The local address of bytes at `address` of a target, if they are mapped, this rank's copy of the target's table
    /// has their attachment, and the copy is current.
    pub(super) fn direct(&self, target: usize, address: usize, len: usize) -> Option<*mut u8> {
        let known = self.known.get(target)?.borrow();
        if !self.is_current(target, &known) {
            return None;
        }
        if let Some(direct) = known.recent.get().and_then(|range| range.direct(address, len)) {
            return Some(direct);
        }
        let one = known.find(address, len)?;
        let Mapped { base, lo, hi, .. } = one.region?.mapped.filter(|mapped| mapped.atomics)?;
        let range = MappedRange { address: one.base.checked_add(lo)?, len: hi - lo, base: base.wrapping_add(lo) };
        known.recent.set(Some(range));
        range.direct(address, len)
    }

    /// Whether a target's table is mapped and has not changed since it was copied.
    fn is_current(&self, target: usize, known: &KnownTable) -> bool {
        let Some(version) = self.table.direct(target, 0, 8) else { return false };
        // SAFETY: the word is inside the target's table, aligned, and accessed only atomically.
        let version = unsafe { AtomicU64::from_ptr(version.cast()) };
        // Acquire: pairs with `RawDynamicWindow::changed`.
        version.load(Ordering::Acquire) == known.version
    }

    /// Copies words of a target's table. Messages: one read if the table is not mapped, otherwise none.
    fn look_up(&self, into: &mut [u64], target: usize, offset: usize) -> Result<()> {
        self.table.or_abandon(|| {
            // SAFETY: `into` outlives the get, which is complete when the flush returns, and abandoned if the flush
            // fails.
            unsafe { self.table.get(into.as_mut_ptr().cast(), size_of_val(into), target, offset) }?;
            self.table.flush(target)
        })
    }

    /// Reads the changes of a target's table, if any. Other threads of the rank may call this while it waits.
    fn refresh(&self, target: usize) -> Result<()> {
        let known = &self.known[target];
        loop {
            if self.is_current(target, &known.borrow()) {
                return Ok(());
            }
            let mut head = [0u64; TABLE / 8];
            self.look_up(&mut head, target, 0)?;
            let (version, since) = (head[0], known.borrow().version);
            if version == since {
                return Ok(());
            }
            let used = (head[1] as usize).min(MAX_ATTACHED);
            // The changed entries are read one by one if the owner's log still holds all of these changes and this
            // costs less than reading the whole table. Strictly less than `KEPT_CHANGES`, because the owner may already
            // have overwritten the oldest change with its next one.
            let changes = version.saturating_sub(since);
            let few = changes < KEPT_CHANGES as u64 && changes as usize * ENTRIES_PER_READ < used;
            let slots: Vec<usize> = if few {
                let slot = |version| head[CHANGES + version as usize % KEPT_CHANGES] as usize;
                (since + 1..=version).map(slot).filter(|slot| *slot < used).collect()
            } else {
                (0..used).collect()
            };
            let mut entries = vec![0u64; slots.len() * self.entry / 8];
            if few {
                for (slot, entry) in slots.iter().zip(entries.chunks_exact_mut(self.entry / 8)) {
                    self.look_up(entry, target, TABLE + slot * self.entry)?;
                }
            } else {
                self.look_up(&mut entries, target, TABLE)?;
            }
            let mut again = [0u64; 1];
            self.look_up(&mut again, target, 0)?;
            if again[0] == version {
                let entries = slots.iter().map(|slot| *slot as u64).zip(entries.chunks_exact(self.entry / 8));
                let removed = known.borrow_mut().update(version, entries);
                removed.into_iter().for_each(|region| self.forget(region));
                return Ok(());
            }
        }
    }

    /// Releases a region that has been removed from the imports.
    fn forget(&self, region: RemoteRegion) {
        // SAFETY: each operation looks up mapped addresses in `known` again, and `known` no longer has the region.
        unsafe { self.table.job().device().forget(region.handle) };
    }

    /// The region that contains the first of `len` bytes at `address` of a target, and the region's first address. All
    /// other bytes are in this region or in adjacent regions that follow it.
    pub(super) fn place(
        &self,
        name: &'static str,
        target: usize,
        address: usize,
        len: usize,
    ) -> Result<(RemoteRegion, usize)> {
        self.refresh(target)?;
        let found =
            self.known[target].borrow().find_first(address, len).map(|one| (one.attachment, one.base, one.region));
        let not_attached = || {
            self.not_attached(
                name,
                target,
                format!("no attached memory contains the {len} bytes at address {address:#x}"),
            )
        };
        let (attachment, base, region) = found.ok_or_else(not_attached)?;
        Ok((region.map_or_else(|| self.region(name, target, attachment), Ok)?, base))
    }

    /// The region of an attachment. Each call looks the attachment up in its owner's table; the first one imports it.
    pub(super) fn region(
        &self,
        operation: &'static str,
        target: usize,
        attachment: Attachment,
    ) -> Result<RemoteRegion> {
        let not_attached =
            || self.not_attached(operation, target, format!("attachment {} does not exist", attachment.id));
        self.table.target(target, operation)?;
        let offset = usize::try_from(attachment.slot).ok().filter(|s| *s < MAX_ATTACHED).ok_or_else(not_attached)?;
        let offset = TABLE + offset * self.entry;
        let mut id = [0u64; 1];
        self.look_up(&mut id, target, offset)?;
        if id[0] != attachment.id || attachment.id == 0 {
            let region = self.known[target].borrow_mut().set_import(attachment, None);
            region.into_iter().for_each(|region| self.forget(region));
            return Err(not_attached());
        }
        if let Some(region) = self.imported(target, attachment) {
            return Ok(region);
        }
        let mut entry = [0u64; MAX_ENTRY / 8];
        self.look_up(&mut entry[..self.entry / 8], target, offset)?;
        self.look_up(&mut id, target, offset)?;
        let key_len = entry[2] as usize;
        if entry[0] != attachment.id || id[0] != attachment.id || key_len > self.entry - HEAD {
            return Err(not_attached());
        }
        let key = &bytemuck::cast_slice::<u64, u8>(&entry[4..])[..key_len];
        // Here `PeerLost` means that the memory was detached between the look-up and the import.
        self.import(target, attachment, key)
            .map_err(|e| if e.kind() == ErrorKind::PeerLost { not_attached() } else { e })
    }

    fn imported(&self, target: usize, attachment: Attachment) -> Option<RemoteRegion> {
        self.known[target].borrow().imports.get(&attachment.id).copied()
    }

    /// Imports the region of an attachment, unless another thread has imported it while this one read the key.
    pub(super) fn import(&self, target: usize, attachment: Attachment, key: &[u8]) -> Result<RemoteRegion> {
        if let Some(region) = self.imported(target, attachment) {
            return Ok(region);
        }
        let (team, device) = (self.table.team(), self.table.job().device());
        let region = device.import(team.job_rank(target)?, key, Some(crate::op::apply_bytes))?;
        self.known[target].borrow_mut().set_import(attachment, Some(region));
        Ok(region)
    }
}

impl Drop for Attachments {
    fn drop(&mut self) {
        let all: Vec<_> = self.known.iter_mut().flat_map(|known| known.get_mut().imports.drain()).collect();
        all.into_iter().for_each(|(_, region)| self.forget(region));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: usize = MAX_ENTRY;

    /// Table entries of attachments with these ids, of 8 bytes each; id 0 is an empty slot.
    fn table(ids: &[u64]) -> Vec<u64> {
        let entry = |id: &u64| {
            let mut entry = [0; ENTRY / 8];
            (entry[0], entry[1], entry[3]) = (*id, 8, 1000 - 8 * *id);
            entry
        };
        ids.iter().flat_map(entry).collect()
    }

    #[test]
    fn imports_of_what_is_detached_are_given_back_and_tables_that_are_older_change_nothing() {
        let mut known = KnownTable::default();
        let update = |known: &mut KnownTable, version, ids: &[u64]| {
            known.update(version, (0..).zip(table(ids).chunks_exact(ENTRY / 8)))
        };
        assert!(update(&mut known, 1, &[1, 0, 3]).is_empty());
        let region = |handle| Some(RemoteRegion { peer: 0, len: 8, handle, mapped: None, lists: None, steps: false });
        let at = |slot, id| Attachment { id, slot };
        for one in [at(0, 1), at(2, 3)] {
            assert!(known.set_import(one, region(100 + one.id)).is_none());
        }
        let found = |known: &KnownTable, address| {
            known.find(address, 8).map(|one| (one.attachment.slot, one.region.map(|region| region.handle)))
        };
        assert_eq!(
            [976, 992, 984, 977].map(|at| found(&known, at)),
            [Some((2, Some(103))), Some((0, Some(101))), None, None]
        );
        let removed = update(&mut known, 3, &[1, 4, 0]);
        assert_eq!(removed.iter().map(|region| region.handle).collect::<Vec<_>>(), [103]);
        assert_eq!([976, 992, 968].map(|at| found(&known, at)), [None, Some((0, Some(101))), Some((1, None))]);
        assert!(update(&mut known, 2, &[0, 0, 0]).is_empty());
        assert_eq!(found(&known, 992), Some((0, Some(101))));
        assert!(known.set_import(at(0, 1), None).is_some() && known.set_import(at(0, 1), None).is_none());
        assert_eq!(found(&known, 992), Some((0, None)));
        // First a single entry changes; then the memory of one slot is attached again in another slot.
        let entries = table(&[5, 0, 5]);
        let entry = |at: usize| &entries[at * ENTRY / 8..][..ENTRY / 8];
        assert!(known.update(4, [(2, entry(0))].into_iter()).is_empty());
        assert_eq!([992, 968, 960].map(|at| found(&known, at)), [Some((0, None)), Some((1, None)), Some((2, None))]);
        assert!(known.set_import(at(2, 5), region(105)).is_none());
        let mut again = entry(0).to_vec();
        again[0] = 6;
        let removed = known.update(5, [(0, &again[..]), (2, entry(1))].into_iter());
        assert_eq!(removed.iter().map(|region| region.handle).collect::<Vec<_>>(), [105]);
        assert_eq!([992, 960].map(|at| found(&known, at)), [None, Some((0, None))]);
    }
}
