#![allow(unsafe_code)]
//! Memory that is exported to a peer for one transfer.
//!
//! The peer maps bytes of memory that this device has allocated, and moved pages ([`super::remap`]). It accesses all
//! other bytes by `process_vm_*`. Pages of a buffer that is exported repeatedly are moved.

use std::ops::Range;

use super::edges::pages_around;
use super::imports::{self, LENT_BRIEFLY, OwnedMemory};
use super::remap::pages_in;
use super::windows::moved_pages;
use super::{ShmDevice, layout};
use crate::device::{Block, Region, Registration};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::segment::{PAGE, SegmentName};
use crate::settings::UserMemory;
use crate::stats::Kind;
use crate::wire::Writer;

/// Number of uses of a buffer after which its pages are moved. Moving costs about as much as a few sends, so it does
/// not pay for a buffer that is used once or twice.
const USES: u32 = 3;
/// Minimum number of pages that are moved: for fewer pages the mappings cost too much.
const MIN_MOVED_PAGES: usize = 4;
/// Number of buffers whose uses are counted.
const BUFFERS: usize = 32;

/// A buffer that was exported recently.
#[derive(Clone, Copy, Debug, Default)]
struct BufferUse {
    start: usize,
    len: usize,
    uses: u32,
    /// Whether its pages cannot be moved.
    is_refused: bool,
    /// Time of the last use.
    last: u64,
}

/// The uses of recently exported buffers; the least recently used one is replaced.
#[derive(Default)]
pub(super) struct BufferUses {
    buffers: [BufferUse; BUFFERS],
    clock: u64,
}

impl BufferUses {
    fn known(&self, bytes: &Range<usize>) -> Option<usize> {
        self.buffers.iter().position(|buffer| buffer.start == bytes.start)
    }

    /// Counts a use of a buffer whose whole pages are moved, if the buffer is in the table; returns whether moving the
    /// pages at its ends should be tried again. This alone does not keep the buffer in the table.
    fn count_moved(&mut self, bytes: &Range<usize>) -> bool {
        let Some(known) = self.known(bytes) else { return false };
        let buffer = &mut self.buffers[known];
        buffer.uses = buffer.uses.saturating_add(1);
        buffer.uses.is_power_of_two()
    }

    /// Counts a use; returns the buffer if its pages should be moved now.
    fn count(&mut self, bytes: &Range<usize>) -> Option<&mut BufferUse> {
        self.clock += 1;
        let (start, len) = (bytes.start, bytes.len());
        let known = self.known(bytes);
        let oldest = || (0..BUFFERS).min_by_key(|i| self.buffers[*i].last);
        let buffer = &mut self.buffers[known.or_else(oldest)?];
        if known.is_none() || buffer.len < len {
            *buffer = BufferUse { start, len, ..BufferUse::default() };
        }
        buffer.uses = buffer.uses.saturating_add(1);
        buffer.last = self.clock;
        (buffer.uses >= USES && !buffer.is_refused).then_some(buffer)
    }
}

/// Makes the key of memory that is exported for one transfer. The key is entered only in the table of live keys.
///
/// # Safety
/// The contract of [`Device::register`](crate::device::Device::register).
pub(super) unsafe fn lend(device: &ShmDevice, region: Region) -> Result<Registration> {
    let Region { base, len, .. } = region;
    let bytes = base.addr()..base.addr() + len;
    // SAFETY: by the contract.
    let (mapped, name) = unsafe { mappable(device, &region, &bytes) }.unzip();
    let refused = || Error::new(ErrorKind::Unsupported, "export memory for a message").device("shm");
    if mapped.as_ref() != Some(&bytes) && !device.all_use_vm() {
        return Err(refused().cause(
            "some ranks of this node cannot access each other's memory by process_vm_readv and process_vm_writev",
        ));
    }
    let request_key = device.service.exposures().reserve();
    let live = device.live.enter(device.own(), request_key, true);
    let live = live.ok_or_else(|| {
        refused().cause(format!("{} regions are already exported, the maximum", layout::LIVE_KEYS_OF[1].len()))
    })?;
    let mapped = mapped.map_or(0..0, |part| part.start - bytes.start..part.end - bytes.start);
    let numbers = [bytes.start, len, request_key as usize, mapped.start, mapped.end];
    let start = Writer::new().u8(LENT_BRIEFLY).u32(device.pids[device.shared.me].0);
    let w = numbers.into_iter().fold(start, |w, number| w.u64(number as u64)).u32(live);
    let key = match name {
        Some(name) => name.write(w),
        None => w,
    }
    .done();
    Ok(imports::own_region(device, request_key, region, key, OwnedMemory::User(None), (None, Some(live))))
}

/// Counts a use of `memory`; returns whether peers can map all of it.
///
/// # Safety
/// The contract of [`Device::peers_can_map`](crate::device::Device::peers_can_map).
pub(super) unsafe fn is_mappable(device: &ShmDevice, memory: Block) -> bool {
    let bytes = memory.base.addr()..memory.base.addr() + memory.len;
    let region = Region { one_node: true, exclusive: true, ..Region::of(memory.base, memory.len) };
    // SAFETY: by the contract.
    unsafe { mappable(device, &region, &bytes) }.is_some_and(|(part, _)| part == bytes)
}

/// The bytes that the peer can map, and the name of their shared memory.
///
/// # Safety
/// The contract of [`lend`].
unsafe fn mappable(device: &ShmDevice, region: &Region, bytes: &Range<usize>) -> Option<(Range<usize>, SegmentName)> {
    if let Some(name) = imports::allocated(device, bytes) {
        return Some((bytes.clone(), name));
    }
    if device.buffer_cache == 0 || !matches!(device.user_memory, UserMemory::Auto | UserMemory::Remap) {
        return None;
    }
    let find = || {
        let mut pages = device.moved.borrow_mut();
        let pages = pages.as_mut()?;
        let other_threads = pages.has_other_threads();
        pages.settle(other_threads);
        let part = pages.find(bytes)?;
        let name = pages.name(device.pids[device.shared.me].0, &part);
        Some((part, name))
    };
    let found = find();
    if found.as_ref().is_some_and(|(part, _)| part == bytes) {
        return found;
    }
    let inner = pages_in(bytes);
    let lacks_edges = found.as_ref().is_some_and(|(part, _)| part.start <= inner.start && inner.end <= part.end);
    let mut uses = device.uses.borrow_mut();
    if lacks_edges {
        if uses.count_moved(bytes) && movable(device, region, bytes) == Some(true) {
            // SAFETY: by the contract, and as `movable` says.
            let _ = unsafe { take(device, bytes, true) }
                .inspect_err(|e| tracing::info!("the ends of a buffer are not moved onto shared memory: {e}"));
            return find();
        }
        return found;
    }
    let Some(buffer) = uses.count(bytes) else { return found };
    let Some(with_edges) = movable(device, region, bytes) else { return found };
    // SAFETY: by the contract, and as `movable` says.
    match unsafe { take(device, bytes, with_edges) } {
        Ok(true) => find(),
        Ok(false) => {
            buffer.is_refused = true;
            found
        }
        Err(e) => {
            buffer.is_refused = true;
            tracing::info!("a buffer of {} bytes is not moved onto shared memory: {e}", region.len);
            found
        }
    }
}

/// Whether the pages of an exported buffer can be moved because no other code stores to them now: `Some(true)` if those
/// at its ends can be moved too, since only this thread and the runtime's threads can store to any page. `None` if they
/// cannot be moved now but perhaps later. Pages that are already moved are not considered: a neighbouring buffer in use
/// may share them.
fn movable(device: &ShmDevice, region: &Region, bytes: &Range<usize>) -> Option<bool> {
    // A window of several nodes may cover the memory, and an HCA has then pinned its pages.
    if !device.is_one_node() {
        return None;
    }
    let missing = |pages: Range<usize>| match &*device.moved.borrow() {
        Some(moved) => moved.missing(&pages),
        None => vec![pages],
    };
    if device.is_alone(&missing(pages_around(bytes))) {
        return Some(true);
    }
    (region.exclusive && !device.are_used(&missing(pages_in(bytes)))).then_some(false)
}

/// Moves the pages of a buffer, including those at its ends if possible; `false` if the others cannot be moved.
///
/// # Safety
/// No other code stores to the pages during the call, and only the runtime's threads store to those at the ends.
unsafe fn take(device: &ShmDevice, bytes: &Range<usize>, with_edges: bool) -> Result<bool> {
    let pages = if with_edges { pages_around(bytes) } else { pages_in(bytes) };
    if pages.len() < MIN_MOVED_PAGES * PAGE {
        return Ok(false);
    }
    let mut moved = device.moved.borrow_mut();
    let moved = moved_pages(device, &mut moved)?;
    moved.settle(true);
    let missing: usize = moved.missing(&pages).iter().map(Range::len).sum();
    let is_full = missing > 0 && moved.is_full() || moved.lasting_bytes() + missing > device.buffer_cache;
    if is_full || device.has_pins() {
        return Ok(false);
    }
    // SAFETY: by the contract.
    let of_edges = if with_edges { unsafe { moved.take_edges(bytes) }? } else { None };
    // SAFETY: by the contract.
    let Some(of_inner) = unsafe { moved.take(&pages_in(bytes), true) }? else { return Ok(false) };
    device.stats.add(Kind::Remap, of_inner + of_edges.unwrap_or(0));
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_moved_at_their_third_use_unless_they_grow_or_were_refused() {
        let mut uses = BufferUses::default();
        let mut is_due = |start: usize, len: usize| uses.count(&(start..start + len)).is_some();
        assert_eq!([is_due(8, 100), is_due(8, 50), is_due(8, 100), is_due(8, 100)], [false, false, true, true]);
        assert_eq!([is_due(8, 101), is_due(8, 101), is_due(8, 101)], [false, false, true]);
        (0..BUFFERS).for_each(|i| assert!(!is_due(1000 * (i + 1), 10)));
        assert!(!is_due(8, 101), "it was the least recently used");
        (0..2).for_each(|_| _ = is_due(16, 10));
        uses.count(&(16..26)).unwrap().is_refused = true;
        assert!(uses.count(&(16..26)).is_none() && uses.count(&(16..27)).is_none());
        assert!(uses.count(&(16..27)).is_none() && uses.count(&(16..27)).is_some());
    }
}
