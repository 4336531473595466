#![allow(unsafe_code)]
//! Memory that is exported for one message: pages of a buffer that is used repeatedly are moved, and the peer that maps
//! them needs no system call. Memory that the program frees is dropped from the set of moved pages.

use std::alloc::Layout;

use farside_core::am::{Sink, Source};
use farside_core::device::{Block, Operation, Place, Range, Region};
use farside_core::matching::Pattern;
use farside_core::stats::Kind;
use farside_core::two_sided::{Mode, Receive};
use farside_core::{Job, Result, Team, coll};

use crate::harness::settings;
use crate::processes::{self, Rank};
use crate::regions::{forget, release};
use crate::world::pattern;

const LEN: usize = 1 << 20;

/// Pages that `malloc` has returned. Other threads of the process run other tests, so the parts of pages at the edges,
/// which other buffers share, are read with a system call.
struct Pages(*mut u8, Layout);

impl Pages {
    fn new(seed: usize, len: usize) -> Self {
        let layout = Layout::from_size_align(len, 4096).unwrap();
        // SAFETY: not empty.
        let pages = Self(unsafe { std::alloc::alloc(layout) }, layout);
        pages.fill(0, seed, len);
        pages
    }

    /// Fills bytes with a pattern.
    fn fill(&self, at: usize, seed: usize, len: usize) {
        assert!(at + len <= self.1.size());
        // SAFETY: inside the allocation, to which there are no references.
        unsafe { self.0.add(at).copy_from_nonoverlapping(pattern(seed, len).as_ptr(), len) };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { std::alloc::dealloc(self.0, self.1) };
    }
}

/// Number of the system calls that rank 1 makes to read `len` bytes at `from` from the memory of rank 0, where they are
/// [`pattern`] of `seed`.
fn calls(job: &Job, team: &Team, from: *const u8, seed: usize, len: usize) -> Result<u64> {
    let own = if job.rank_number() == 0 {
        let region = Region { brief: true, one_node: true, exclusive: true, ..Region::of(from.cast_mut(), len) };
        // SAFETY: the callers keep and do not change the bytes during this call.
        Some(unsafe { job.device().register(region) }?)
    } else {
        None
    };
    let key = coll::broadcast(team, 0, own.as_ref().map_or(&[][..], |own| &own.key))?;
    let mut calls = 0;
    if job.rank_number() == 1 {
        let (remote, mut into) = (job.device().import(0, &key, None)?, vec![0u8; len]);
        let (blocks, ranges) = ([Block { base: into.as_mut_ptr(), len }], [Range { offset: 0, len }]);
        let before = job.stats();
        // SAFETY: the bytes outlive the call.
        unsafe { job.complete("read", 0, Operation::read_list(&blocks, remote.handle, &ranges)) }?;
        calls = (job.stats() - before).count(Kind::SystemCall);
        assert!(into == pattern(seed, len), "{len} bytes of seed {seed}");
        forget(job, remote.handle);
    }
    team.barrier()?;
    own.map_or(Ok(()), |own| release(job, own.handle))?;
    Ok(u64::from_le_bytes(coll::broadcast(team, 1, &calls.to_le_bytes())?.try_into().unwrap()))
}

/// [`calls`] for all bytes of a buffer.
fn calls_for(job: &Job, team: &Team, pages: &Pages, seed: usize) -> Result<u64> {
    calls(job, team, pages.0, seed, pages.1.size())
}

/// Whether buffers can be mapped on this machine.
fn can_be_mapped() -> bool {
    #[cfg(feature = "verbs")]
    if let Err(e) = farside_core::device::Watch::new() {
        println!("skipped: memory cannot be watched: {e}");
        return false;
    }
    cfg!(all(target_env = "gnu", feature = "verbs")) && crate::harness::shm()
}

/// Runs `body` in two processes.
fn pair(test: &str, set: &[(&str, &str)], body: impl Fn(&Job, &Team) -> Result<()>) {
    if !can_be_mapped() {
        return;
    }
    match Rank::from_env() {
        Some(rank) => {
            // Long buffers are mapped by `malloc`, however often they are freed.
            // SAFETY: a parameter of the allocator.
            unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 64 << 10) };
            rank.run(&settings(set), |job| body(job, &job.world()?));
        }
        None => processes::run(test, 0, 2).unwrap(),
    }
}

#[test]
fn third_message_of_a_buffer_makes_no_system_call() {
    pair(concat!(module_path!(), "::third_message_of_a_buffer_makes_no_system_call"), &[], |job, team| {
        let buffer = Pages::new(0, LEN);
        for seed in 0..6 {
            buffer.fill(0, seed, LEN);
            assert_eq!(calls_for(job, team, &buffer, seed)?, u64::from(seed < 2), "message {seed}");
        }
        // A part of the buffer is a part of the mapping.
        buffer.fill(5000, 9, 50_000);
        assert_eq!(calls(job, team, buffer.0.wrapping_add(5000), 9, 50_000)?, 0);
        assert_eq!(job.stats().count(Kind::Remap), u64::from(job.rank_number() == 0));
        Ok(())
    });
}

/// Sends a message from rank 0 to rank 1; returns the number of reads.
fn message(job: &Job, team: &Team, pages: &Pages, seed: usize) -> Result<u64> {
    let (len, before) = (pages.1.size(), job.stats());
    pages.fill(0, seed, len);
    if job.rank_number() == 0 {
        let source = Source::Bytes(Block { base: pages.0, len });
        // SAFETY: the bytes do not change until the message has been sent.
        let sending = unsafe { job.start_message(1, 5, 0, source, Mode::Standard) }?;
        job.wait("a send", || sending.outcome())?;
    } else {
        let (mut into, receive) = (vec![0u8; len], Receive::new());
        // SAFETY: the vector is used only after the end of the receive.
        let sink = unsafe { Sink::memory(into.as_mut_ptr(), len) };
        // SAFETY: as above.
        unsafe { job.start_receive(&receive, Pattern::new(5, Some(0), Some(0)), sink) }?;
        job.wait("a receive", || receive.outcome())?;
        assert!(into == pattern(seed, len), "message {seed}");
    }
    let reads = (job.stats() - before).count(Kind::Read);
    Ok(u64::from_le_bytes(coll::broadcast(team, 1, &reads.to_le_bytes())?.try_into().unwrap()))
}

#[test]
fn messages_that_may_be_sent_at_once_are_read_from_a_buffer_that_is_used_again() {
    let set = [("FARSIDE_TRANSFER", "eager:1000000,read-intra:16384")];
    let test = concat!(module_path!(), "::messages_that_may_be_sent_at_once_are_read_from_a_buffer_that_is_used_again");
    pair(test, &set, |job, team| {
        let buffers = [(); 4].map(|()| Pages::new(0, 25 << 12));
        let uses = [(0, 0), (1, 0), (2, 0), (3, 0), (0, 0), (0, 1), (0, 1), (1, 0)];
        for (seed, (at, reads)) in uses.into_iter().enumerate() {
            assert_eq!(message(job, team, &buffers[at], seed)?, reads, "message {seed}, buffer {at}");
        }
        Ok(())
    });
}

#[test]
fn freed_buffers_are_forgotten() {
    pair(concat!(module_path!(), "::freed_buffers_are_forgotten"), &[], |job, team| {
        let several = |buffer: &[u8], seed| {
            (0..4).try_for_each(|_| calls(job, team, buffer.as_ptr(), seed, buffer.len()).map(|_| ()))
        };
        for round in 0..10 {
            let pages = Pages::new(round, LEN + round * 4096);
            for _ in 0..3 {
                calls_for(job, team, &pages, round)?;
            }
            assert_eq!(calls_for(job, team, &pages, round)?, 0);
            drop(pages);
            let mut buffer = pattern(round, LEN + round * 4096);
            several(&buffer, round)?;
            // The buffer grows, most likely at another address.
            let more = pattern(100 + round, 3 * buffer.len());
            buffer.resize(more.len(), 0);
            buffer.copy_from_slice(&more);
            several(&buffer, 100 + round)?;
            buffer.truncate(LEN / 2);
            buffer.shrink_to_fit();
            buffer.copy_from_slice(&pattern(200 + round, LEN / 2));
            several(&buffer, 200 + round)?;
        }
        assert!(job.rank_number() != 0 || job.stats().count(Kind::Remap) >= 20);
        Ok(())
    });
}

/// Writes at a window of rank 0 over `base` by rank 1, and then sends the window's memory as a message.
fn window(job: &Job, team: &Team, base: *mut u8, len: usize) -> Result<u64> {
    let own = if job.rank_number() == 0 {
        // SAFETY: the callers use the memory only by this function while the window exists.
        Some(unsafe { job.device().register(Region { exclusive: true, ..Region::of(base, len) }) }?)
    } else {
        None
    };
    let key = coll::broadcast(team, 0, own.as_ref().map_or(&[][..], |own| &own.key))?;
    if job.rank_number() == 1 {
        let (remote, bytes) = (job.device().import(0, &key, None)?, pattern(77, len));
        assert!(remote.mapped.is_some_and(|mapped| mapped.hi - mapped.lo >= len - 2 * 4096), "{remote:?}");
        let from = [Block::of(bytes.as_ptr(), len)];
        let to = Place { region: remote.handle, offset: 0 };
        // SAFETY: the bytes outlive the call.
        unsafe { job.complete("write", 0, Operation::write(&from, to)) }?;
        forget(job, remote.handle);
    }
    team.barrier()?;
    let calls = calls(job, team, base, 77, len)?;
    own.map_or(Ok(()), |own| release(job, own.handle))?;
    Ok(calls)
}

#[test]
fn windows_and_buffers_share_moved_pages() {
    pair(concat!(module_path!(), "::windows_and_buffers_share_moved_pages"), &[], |job, team| {
        let buffer = Pages::new(1, LEN);
        for _ in 0..3 {
            calls_for(job, team, &buffer, 1)?;
        }
        let (base, part) = (buffer.0.wrapping_add(10_000), 500_000);
        assert_eq!(window(job, team, base, part)?, 0);
        // The window was exclusive, so peers must no longer access its pages.
        assert_eq!(calls(job, team, base, 77, part)?, 1);
        assert_eq!(calls(job, team, buffer.0, 1, 8192)?, 0, "other pages of the buffer stay moved");
        // Memory of another allocator is mapped as long as a window covers it.
        let mut map = memmap2::MmapMut::map_anon(64 << 12).unwrap();
        assert_eq!(window(job, team, map.as_mut_ptr(), 64 << 12)?, 0);
        for _ in 0..5 {
            assert_eq!(calls(job, team, map.as_ptr(), 77, 64 << 12)?, 1);
        }
        Ok(())
    });
}

#[test]
fn memory_of_the_device_is_mapped_at_once() {
    pair(concat!(module_path!(), "::memory_of_the_device_is_mapped_at_once"), &[], |job, team| {
        for len in [LEN, 20_000] {
            let own = job.device().allocate(Region::allocated(len))?;
            // SAFETY: memory of this test, which no other rank has imported yet.
            unsafe { own.base.copy_from_nonoverlapping(pattern(3, len).as_ptr(), len) };
            assert_eq!(calls(job, team, own.base, 3, len)?, 0);
            // SAFETY: as above.
            unsafe { own.base.add(100).copy_from_nonoverlapping(pattern(4, 10_000).as_ptr(), 10_000) };
            assert_eq!(calls(job, team, own.base.wrapping_add(100), 4, 10_000)?, 0);
            release(job, own.handle)?;
        }
        Ok(())
    });
}

#[test]
fn bytes_that_stay_moved_are_limited() {
    let set = [("FARSIDE_BUFFER_CACHE", "2000000")];
    pair(concat!(module_path!(), "::bytes_that_stay_moved_are_limited"), &set, |job, team| {
        let (first, second) = (Pages::new(1, LEN), Pages::new(2, LEN));
        for n in 0..5 {
            assert_eq!(calls_for(job, team, &first, 1)?, u64::from(n < 2));
            assert_eq!(calls_for(job, team, &second, 2)?, 1);
        }
        drop(first);
        let third = Pages::new(3, LEN + 8192);
        for n in 0..5 {
            assert_eq!(calls_for(job, team, &third, 3)?, u64::from(n < 2), "the first is gone");
        }
        Ok(())
    });
}

/// Pins memory, as a library that passes it to a device does; `None` if the system does not allow that.
fn pin(bytes: &'static mut [u8]) -> Option<i64> {
    const REGISTER_BUFFERS: i64 = 0;
    let (mut parameters, one) = ([0u64; 15], 1i64);
    let buffer = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: the structs are live and of the lengths that the kernel expects; the memory is never freed.
    let (ring, done) = unsafe {
        let ring = libc::syscall(libc::SYS_io_uring_setup, 1i64, parameters.as_mut_ptr());
        (ring, libc::syscall(libc::SYS_io_uring_register, ring, REGISTER_BUFFERS, &raw const buffer, one))
    };
    (done == 0).then_some(ring)
}

/// A device would continue to access the pages that the process had when it pinned them.
#[test]
fn no_buffer_is_moved_while_memory_is_pinned() {
    pair(concat!(module_path!(), "::no_buffer_is_moved_while_memory_is_pinned"), &[], |job, team| {
        let (before, after) = (Pages::new(1, LEN), Pages::new(2, LEN));
        for n in 0..4 {
            assert_eq!(calls_for(job, team, &before, 1)?, u64::from(n < 2));
        }
        let pinned = job.rank_number() != 0 || pin(vec![0; 1 << 16].leak()).is_some();
        if coll::broadcast(team, 0, &[u8::from(pinned)])? == [0] {
            println!("skipped: memory cannot be pinned");
            return Ok(());
        }
        for _ in 0..5 {
            assert_eq!(calls_for(job, team, &after, 2)?, 1);
            assert_eq!(calls_for(job, team, &before, 1)?, 0);
        }
        Ok(())
    });
}

#[test]
fn no_buffer_is_moved_if_the_cache_is_off() {
    let set = [("FARSIDE_BUFFER_CACHE", "0")];
    pair(concat!(module_path!(), "::no_buffer_is_moved_if_the_cache_is_off"), &set, |job, team| {
        let buffer = Pages::new(1, LEN);
        for _ in 0..5 {
            assert_eq!(calls_for(job, team, &buffer, 1)?, 1);
        }
        assert_eq!(job.stats().count(Kind::Remap), 0);
        Ok(())
    });
}
