#![allow(unsafe_code)]
//! Two devices in one thread, for cases in which a peer cannot be made to act at the right time.

use std::alloc::{Layout as Memory, alloc_zeroed, dealloc};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Prepared, ShmDevice, layout};
use crate::device::{Block, Device, Operation, Place, Posted, Region, WorkRequest};
use crate::error::ErrorKind;
use crate::memory::segment::PAGE;
use crate::settings::Settings;
use crate::stats::Kind;

/// Devices of two ranks of one node, in a job of `size` ranks.
fn devices(set: &[(&str, &str)], size: u32) -> [ShmDevice; 2] {
    let value = |name: &str| set.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned());
    let settings = Settings::from_lookup(value).unwrap();
    let ranks = [0, 1].map(|me| Prepared::new(me, vec![0, 1], &settings).unwrap());
    let addresses = ranks.each_ref().map(|rank| rank.address().unwrap());
    ranks.map(|rank| rank.connect(&addresses, size).unwrap())
}

/// Long enough for `malloc` to allocate it by `mmap`, whatever its present threshold is.
const LEN: usize = 40 << 20;

/// Zeroed pages of `malloc`.
struct Pages(*mut u8);

impl Pages {
    fn layout() -> Memory {
        Memory::from_size_align(LEN, PAGE).unwrap()
    }

    fn new() -> Self {
        // SAFETY: not empty.
        Self(unsafe { alloc_zeroed(Self::layout()) })
    }

    /// The first bytes, exported for one transfer.
    fn lent(&self) -> Region {
        Region { brief: true, one_node: true, exclusive: true, ..Region::of(self.0, 64 * PAGE) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.0, Self::layout()) };
    }
}

#[test]
fn lent_memory_does_not_take_the_live_keys_of_windows() {
    let [owner, peer] = devices(&[("FARSIDE_SHM_USER_MEMORY", "vm")], 2);
    let mut memory = vec![0u8; 1000];
    let base = memory.as_mut_ptr();
    // SAFETY: the memory outlives the registrations.
    unsafe {
        let window = owner.register(Region::of(base, 1000)).unwrap();
        let remote = peer.import(0, &window.key, None).unwrap();
        for _ in 0..2 * layout::LIVE_KEYS {
            let lent = owner.register(Region { brief: true, ..Region::of(base, 1) }).unwrap();
            owner.release(lent.handle).unwrap();
        }
        let all: Vec<_> = std::iter::repeat_with(|| owner.register(Region { brief: true, ..Region::of(base, 1) }))
            .take(257)
            .collect();
        assert!(all[..256].iter().all(Result::is_ok));
        assert_eq!(all[256].as_ref().unwrap_err().kind(), ErrorKind::Unsupported);
        let (from, to) = ([7u8; 900], Place { region: remote.handle, offset: 50 });
        let from = [Block::of(from.as_ptr(), 900)];
        let operation = Operation::write(&from, to);
        let posted = peer.post(&WorkRequest { peer: 0, operation, notify: None, id: 1 }).unwrap();
        assert_eq!((posted, peer.stats.snapshot().count(Kind::SystemCall)), (Posted::Done, 1));
        all.into_iter().flatten().for_each(|lent| owner.release(lent.handle).unwrap());
        owner.release(window.handle).unwrap();
    }
    assert!(memory[..50].iter().all(|b| *b == 0) && memory[50..950].iter().all(|b| *b == 7));
}

/// A stopped peer may continue with its transfer at any time.
#[test]
fn lent_memory_is_released_when_its_transfer_has_ended_however_long_that_takes() {
    let [owner, peer] = devices(&[("FARSIDE_TIMEOUT_S", "1")], 2);
    let pages = Pages::new();
    for (region, waits) in [(pages.lent(), true), (Region::of(pages.0, 100), false)] {
        // SAFETY: the memory outlives the registration.
        let made = unsafe { owner.register(region) }.unwrap();
        let word = peer.own().word(layout::VM_TRANSFER);
        word.store(layout::vm_transfer(0, made.handle), Ordering::SeqCst);
        let (start, limit) = (Instant::now(), Duration::from_millis(1500));
        std::thread::scope(|scope| {
            let word = &*word;
            scope.spawn(move || {
                std::thread::sleep(limit);
                word.store(0, Ordering::SeqCst);
            });
            // SAFETY: nothing uses the memory.
            let released = unsafe { owner.release(made.handle) };
            assert_eq!((released.is_ok(), start.elapsed() >= limit), (waits, waits), "{released:?}");
        });
    }
}

/// A window of several nodes, of which the device has no record, may cover the memory.
#[test]
fn buffers_are_not_moved_in_a_job_of_several_nodes() {
    for (size, moves) in [(2, true), (3, false)] {
        let [owner, _peer] = devices(&[], size);
        let pages = Pages::new();
        for _ in 0..5 {
            // SAFETY: the memory outlives the registration.
            let made = unsafe { owner.register(pages.lent()) }.unwrap();
            // SAFETY: nothing uses the memory.
            unsafe { owner.release(made.handle) }.unwrap();
        }
        let can = moves && owner.moved.borrow().as_ref().is_some_and(|moved| moved.is_watched());
        assert_eq!(owner.stats.snapshot().count(Kind::Remap), u64::from(can));
        // Exclusive memory of a window has no other user.
        // SAFETY: the memory outlives the registration, and nothing else uses it.
        unsafe {
            let window = owner.register(Region { exclusive: true, ..Region::of(pages.0, LEN) }).unwrap();
            assert_eq!(owner.stats.snapshot().count(Kind::Remap), u64::from(can) + 1);
            owner.release(window.handle).unwrap();
        }
    }
}

/// Otherwise a peer could access memory that belongs to its owner alone again.
#[test]
fn exclusive_windows_over_moved_buffers_are_released() {
    let [owner, _peer] = devices(&[], 2);
    let pages = Pages::new();
    let moved = || owner.moved.borrow().as_ref().map_or(0, |m| m.moved(&(pages.0.addr()..pages.0.addr() + LEN)).len());
    for _ in 0..5 {
        // SAFETY: the memory outlives the registration; nothing uses it.
        unsafe { owner.release(owner.register(pages.lent()).unwrap().handle) }.unwrap();
    }
    let can = owner.moved.borrow().as_ref().is_some_and(|moved| moved.is_watched());
    assert_eq!(moved(), usize::from(can));
    let window = Region { exclusive: true, ..Region::of(pages.0, 64 * PAGE) };
    // SAFETY: as above.
    unsafe { owner.release(owner.register(window).unwrap().handle) }.unwrap();
    assert_eq!(moved(), 0);
}

/// The exporting rank cannot test this itself: peers may have fewer permissions than this rank.
#[test]
fn memory_is_lent_only_if_all_peers_can_read_it() {
    let [owner, peer] = devices(&[], 2);
    let bytes = [7u8; 100];
    // SAFETY: the memory outlives the registration; nothing writes it.
    let lend = || unsafe { owner.register(Region { brief: true, ..Region::of(bytes.as_ptr().cast_mut(), 100) }) };
    let word = peer.own().word(layout::VM_WORKS);
    let works = word.swap(0, Ordering::SeqCst);
    assert_eq!(lend().unwrap_err().kind(), ErrorKind::Unsupported);
    word.store(works, Ordering::SeqCst);
    // SAFETY: nothing uses the memory.
    let released = works == 0 || unsafe { owner.release(lend().unwrap().handle) }.is_ok();
    assert!(released);
}
