#![allow(unsafe_code)]
//! Pages of the memory of windows: moved onto shared memory when the window is made, and moved back when it is freed.

use std::cell::LazyCell;
use std::ops::Range;

use super::ShmDevice;
use super::edges::pages_around;
use super::remap::{MovedPages, pages_in};
use crate::device::Region;
use crate::error::Result;
use crate::memory::segment::PAGE;
use crate::settings::UserMemory;
use crate::stats::Kind;

/// Minimum number of pages to move if they are not the whole buffer: fewer pages are not worth a mapping at each peer.
const MIN_MOVED_PAGES: usize = 4;

/// The moved pages of this device, which are made on first use.
pub(super) fn moved_pages<'a>(device: &ShmDevice, pages: &'a mut Option<MovedPages>) -> Result<&'a mut MovedPages> {
    Ok(match pages {
        Some(pages) => pages,
        none => none.insert(MovedPages::new(device.buffer_cache > 0)?),
    })
}

/// Moves pages of a window's memory onto shared memory if possible. Returns the bytes of the window that are in shared
/// memory.
///
/// # Safety
/// The contract of [`super::Device::register`].
pub(super) unsafe fn move_pages(device: &ShmDevice, region: &Region) -> Result<Option<Range<usize>>> {
    let (settings, len) = (device.user_memory, region.len);
    if len == 0 || !matches!(settings, UserMemory::Auto | UserMemory::Remap) {
        return Ok(None);
    }
    let mut moved = device.moved.borrow_mut();
    // SAFETY: by the contract.
    let taken = moved_pages(device, &mut moved).and_then(|moved| unsafe { take(device, moved, region) });
    match taken {
        Err(e) if settings == UserMemory::Auto => {
            tracing::warn!("a window buffer of {len} bytes cannot be shared and is accessed by copies: {e}");
            Ok(None)
        }
        taken => taken,
    }
}

/// # Safety
/// The contract of [`move_pages`].
unsafe fn take(device: &ShmDevice, moved: &mut MovedPages, region: &Region) -> Result<Option<Range<usize>>> {
    let Region { base, len, exclusive, revocable, .. } = *region;
    let bytes = base.addr()..base.addr() + len;
    let inner = pages_in(&bytes);
    let is_short = inner != bytes && inner.len() < MIN_MOVED_PAGES * PAGE;
    // Programs attach thousands of short regions, and moving one takes as long as many accesses by its owner.
    if is_short && revocable {
        return Ok(None);
    }
    moved.settle(true);
    // The search for pins reads the list of all mappings, so it is made only if pages can be moved.
    let cannot_move = moved.is_full() && (inner.is_empty() || !moved.missing(&inner).is_empty());
    if cannot_move || !moved.missing(&pages_around(&bytes)).is_empty() && device.has_pins() {
        return Ok(None);
    }
    let one_thread = device.has_one_thread(moved.is_watched());
    let is_used = |part: &Range<usize>| device.is_used(part.start, part.end);
    let is_free = |parts: &[Range<usize>]| parts.is_empty() || one_thread && !parts.iter().any(is_used);
    let edges = moved.missing_edges(&bytes);
    let unmoved: usize = edges.iter().map(Range::len).sum();
    // Peers must not access exclusive memory after the release, so its pages are moved back then, and no region shares
    // them. Other pages stay moved, so that adjacent pages of many windows are one part.
    let may_share = !exclusive || unmoved == pages_around(&bytes).len() - inner.len();
    let has_room = moved.lasting_bytes() + pages_around(&bytes).len() <= device.buffer_cache;
    let with_edges = !revocable && may_share && has_room && is_free(&edges);
    // SAFETY: only the calling thread and the runtime's threads can store there: the process has no other thread, and no
    // other region covers the pages.
    let of_edges = if with_edges { unsafe { moved.take_edges(&bytes) }? } else { None };
    let whole = of_edges.is_some() || inner == bytes;
    if !whole && is_short || !(exclusive || is_free(&moved.missing(&inner))) {
        return Ok(None);
    }
    let lasting = of_edges.is_some() && pages_around(&bytes) != inner && !exclusive;
    // SAFETY: no other code stores to these pages: they are exclusive, or the process has no other thread and no other
    // region covers them.
    let of_inner = match unsafe { moved.take(&inner, lasting) }? {
        // SAFETY: as above.
        None if lasting => unsafe { moved.take(&inner, false) }?,
        taken => taken,
    };
    let Some(of_inner) = of_inner else { return Ok(None) };
    if exclusive {
        moved.end_lasting(&inner);
    }
    device.stats.add(Kind::Remap, of_inner + of_edges.unwrap_or(0));
    Ok(Some(if whole { bytes } else { inner }))
}

/// Replaces the moved pages of a window by private memory, or keeps them shared while another thread may store to them,
/// another region uses them, or pages of the process are pinned. Pages that the window covers only in part stay moved,
/// unless they are exclusive.
///
/// # Safety
/// The pages' region is released, no other region of the caller uses the memory, and no code accesses exclusive memory.
pub(super) unsafe fn move_back(device: &ShmDevice, bytes: &Range<usize>, exclusive: bool) -> Result<()> {
    let Some(moved) = &mut *device.moved.borrow_mut() else { return Ok(()) };
    let mut kept = device.kept.borrow_mut();
    if exclusive {
        // SAFETY: by the contract, no other region of the caller uses the window's bytes in these pages.
        unsafe { moved.move_back_edges(bytes, |page| device.is_used(page.start, page.end)) }?;
    }
    let pages = pages_in(bytes);
    if pages.is_empty() {
        return Ok(());
    }
    kept.push(pages);
    let (last, mut index, mut result) = (kept.len() - 1, 0, Ok(()));
    let is_watched = moved.is_watched();
    let is_alone = LazyCell::new(|| device.has_one_thread(is_watched) && !device.has_pins());
    kept.retain(|pages| {
        // Only the region that is released now still has exclusive memory.
        let exclusive = exclusive && index == last;
        index += 1;
        let Range { start, end } = *pages;
        if device.is_used(start, end) || !exclusive && !*is_alone {
            return true;
        }
        // SAFETY: no code accesses the memory, by the contract or because the process has no other thread and no other
        // region covers it.
        match unsafe { moved.move_back_window(pages) } {
            Ok(0) => {}
            Ok(gone) => tracing::warn!(
                "{gone} bytes of a window's memory, {} bytes at {start:#x}, were unmapped before the window was freed",
                pages.len()
            ),
            Err(e) => result = Err(e.cause(format!("{} bytes at {start:#x}", pages.len()))),
        }
        false
    });
    result
}

/// Moves stored pages back if that is now possible.
pub(super) fn move_back_kept(device: &ShmDevice) {
    let one = device.kept.borrow_mut().pop();
    if let Some(pages) = one {
        // SAFETY: its region was released.
        if let Err(e) = unsafe { move_back(device, &pages, false) } {
            tracing::warn!("a freed window's pages stay on shared memory: {e}");
        }
    }
}
