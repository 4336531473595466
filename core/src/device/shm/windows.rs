#![allow(unsafe_code)]
//! Pages of the memory of windows: moved onto shared memory when the window is made, and given back when it is freed.

use std::ops::Range;

use super::ShmDevice;
use super::remap::{MovedPages, pages_in};
use crate::device::Region;
use crate::error::Result;
use crate::memory::segment::PAGE;
use crate::settings::UserMemory;
use crate::stats::Kind;

/// Minimum number of pages moved if they are not the whole buffer: fewer are not worth a mapping at each peer.
const FEWEST: usize = 4;

/// The moved pages of this device, which are made on first use.
pub(super) fn moved_pages<'a>(device: &ShmDevice, pages: &'a mut Option<MovedPages>) -> Result<&'a mut MovedPages> {
    Ok(match pages {
        Some(pages) => pages,
        none => none.insert(MovedPages::new(device.buffer_cache > 0)?),
    })
}

/// Moves pages of a window's memory onto shared memory if possible.
///
/// # Safety
/// The contract of [`super::Device::register`].
pub(super) unsafe fn move_pages(device: &ShmDevice, region: &Region) -> Result<Option<Range<usize>>> {
    let Region { base, len, exclusive, .. } = *region;
    let (settings, bytes) = (device.user_memory, base.addr()..base.addr() + len);
    let pages = pages_in(&bytes);
    let moves = matches!(settings, UserMemory::Auto | UserMemory::Remap);
    if !moves || pages.is_empty() || pages.len() < FEWEST * PAGE && pages != bytes {
        return Ok(None);
    }
    if !(exclusive || device.is_alone(bytes.start, bytes.end)) {
        return Ok(None);
    }
    let mut moved = device.moved.borrow_mut();
    // SAFETY: no other code stores to the memory: it is lent exclusively, or the process has no other thread and no
    // other region covers it.
    match moved_pages(device, &mut moved).and_then(|moved| unsafe { moved.take(&pages, false) }) {
        Ok(None) => Ok(None),
        Ok(Some(bytes)) => {
            device.stats.add(Kind::Remap, bytes);
            Ok(Some(pages))
        }
        Err(e) if settings == UserMemory::Auto => {
            tracing::warn!("a buffer of {len} bytes is not shared, it will be served by copies: {e}");
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

/// Replaces moved pages of a window by private memory, or keeps them shared while another thread may store to them, or
/// while another region uses them.
///
/// # Safety
/// The pages' region is released, the memory is the caller's to give back, and no code accesses memory that was lent
/// exclusively.
pub(super) unsafe fn give_back(device: &ShmDevice, pages: Range<usize>, exclusive: bool) -> Result<()> {
    let Some(moved) = &mut *device.moved.borrow_mut() else { return Ok(()) };
    let mut kept = device.kept.borrow_mut();
    kept.push(pages);
    let (last, mut index, mut result) = (kept.len() - 1, 0, Ok(()));
    let watched = moved.is_watched();
    kept.retain(|pages| {
        // Only the region that is released now still has exclusive memory.
        let exclusive = exclusive && index == last;
        index += 1;
        let Range { start, end } = *pages;
        if device.is_used(start, end) || !exclusive && !device.has_one_thread(watched) {
            return true;
        }
        // SAFETY: no code accesses the memory, by the contract or because the process has no other thread and no other
        // region covers it.
        match unsafe { moved.give_back_window(pages) } {
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

/// Gives kept pages back if that is possible by now.
pub(super) fn give_back_kept(device: &ShmDevice) {
    let one = device.kept.borrow_mut().pop();
    if let Some(pages) = one {
        // SAFETY: its region was released.
        if let Err(e) = unsafe { give_back(device, pages, false) } {
            tracing::warn!("memory stays shared: {e}");
        }
    }
}
