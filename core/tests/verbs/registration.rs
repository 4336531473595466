//! The registration cache: memory of the program is registered once, and a registration is never used after its pages
//! have been unmapped.

use crate::regions::{exchange_regions, forget, release};
use farside_core::device::{Block, Operation, Place, Range, Region};
use farside_core::stats::Kind;
use farside_core::{ErrorKind, Job, Result, coll};

use crate::strict::reads::Reads;
use crate::{two, two_with, well};

const LEN: usize = 256 << 10;

/// Rank 0 runs `body` with a region of rank 1 of `2 * LEN` bytes.
fn against_a_region(job: &Job, body: impl FnOnce(Place) -> Result<()>) -> Result<()> {
    let team = job.world()?;
    let own = job.device().allocate(farside_core::device::Region::allocated(2 * LEN));
    let (own, remotes) = exchange_regions(&team, own, None)?;
    let result = if job.rank_number() == 0 { body(Place { region: remotes[1].handle, offset: 0 }) } else { Ok(()) };
    team.barrier()?;
    remotes.iter().for_each(|r| forget(job, r.handle));
    release(job, own.handle)?;
    result
}

fn write(job: &Job, to: Place, bytes: &[u8]) -> Result<()> {
    let from = [Block::of(bytes.as_ptr(), bytes.len())];
    // SAFETY: the bytes outlive the call, which completes the operation.
    unsafe { job.complete("write", 1, Operation::write(&from, to)) }
}

fn read(job: &Job, from: Place, bytes: &mut [u8]) -> Result<()> {
    let into = [Block { base: bytes.as_mut_ptr(), len: bytes.len() }];
    // SAFETY: as above.
    unsafe { job.complete("read", 1, Operation::read(&into, from)) }
}

/// The number of registrations and of copies in `f`.
fn cost(job: &Job, f: impl FnOnce() -> Result<()>) -> Result<(u64, u64)> {
    let before = job.stats();
    f()?;
    let spent = job.stats() - before;
    Ok((spent.count(Kind::Register), spent.count(Kind::Copy)))
}

/// Whether this machine can watch memory, so that registrations are cached.
fn is_kept() -> bool {
    let kept = farside_core::device::Watch::new();
    if let Err(e) = &kept {
        println!("skipped in part: the registration cache is off because memory cannot be watched: {e}");
    }
    kept.is_ok()
}

fn pages(len: usize, value: u8) -> memmap2::MmapMut {
    let mut m = memmap2::MmapMut::map_anon(len).unwrap();
    m.fill(value);
    m
}

/// The buffer of an earlier operation, and any part of it longer than a packet, is used in place without another
/// registration, for both writing and reading.
#[test]
fn buffer_is_registered_once() {
    if !is_kept() {
        return;
    }
    well(two(|job| {
        against_a_region(job, |place| {
            let (mine, mut back) = (pages(LEN, 3), pages(LEN, 0));
            assert_eq!(cost(job, || write(job, place, &mine))?, (1, 0));
            assert_eq!(cost(job, || write(job, place, &mine))?, (0, 0));
            assert_eq!(cost(job, || write(job, place, &mine[100..10_000]))?, (0, 0), "a part of it");
            assert_eq!(cost(job, || read(job, place, &mut back))?, (1, 0));
            assert_eq!(cost(job, || read(job, place, &mut back[5..70_000]))?, (0, 0));
            assert!(back[..] == mine[..]);
            Ok(())
        })
    }));
}

/// Blocks of one page each, with gaps: one registration if the gaps are short, one per block if they are long.
#[test]
fn blocks_are_registered_in_groups() {
    const PAGE: usize = 4096;
    if !is_kept() {
        return;
    }
    well(two(|job| {
        against_a_region(job, |to| {
            for (stride, groups) in [(2 * PAGE, 1), (40 * PAGE, 32)] {
                let mine = pages(32 * stride, 9);
                let from: Vec<Block> = (0..32).map(|i| Block::of(mine[i * stride..].as_ptr(), PAGE)).collect();
                // SAFETY: the pages outlive the call.
                let write = || unsafe { job.complete("write", 1, Operation::write(&from, to)) };
                assert_eq!(cost(job, write)?, (groups, 0));
                assert_eq!(cost(job, write)?, (0, 0));
            }
            Ok(())
        })
    }));
}

/// A buffer is registered and unmapped, and its address gets other pages: the transfer uses the current pages.
#[test]
fn new_memory_at_the_address_of_old_is_what_is_sent_and_received() {
    well(two(|job| {
        against_a_region(job, |place| {
            let mut there = vec![0u8; LEN];
            let first = pages(LEN, 1);
            let at = first.as_ptr().addr();
            write(job, place, &first)?;
            drop(first);
            for value in 2..20u8 {
                // SAFETY: a new mapping, made only at an address without a mapping.
                let again = unsafe {
                    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
                    let p = libc::mmap(at as *mut _, LEN, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
                    assert_eq!(p.addr(), at, "the address is taken");
                    std::slice::from_raw_parts_mut(p.cast::<u8>(), LEN)
                };
                again.fill(value);
                write(job, place, again)?;
                read(job, place, &mut there)?;
                assert!(there.iter().all(|b| *b == value), "sent {} instead of {value}", there[0]);
                again.fill(0);
                read(job, place, again)?;
                assert!(again.iter().all(|b| *b == value), "received into other pages: {}", again[0]);
                // SAFETY: the mapping made in this iteration.
                unsafe { libc::munmap(at as *mut _, LEN) };
            }
            Ok(())
        })
    }));
}

/// Memory is used as by real programs: large and small buffers of the allocator are allocated and freed, and their
/// pages with them; pages are discarded inside a buffer, and a buffer moves as it grows.
#[test]
fn freed_released_and_moved_memory_is_never_confused() {
    well(two(|job| {
        against_a_region(job, |place| {
            let mut there = vec![0u8; 2 * LEN];
            let mut check = |bytes: &[u8], what: &str| -> Result<()> {
                write(job, place, bytes)?;
                let there = &mut there[..bytes.len()];
                read(job, place, there)?;
                assert!(there == bytes, "{what}");
                Ok(())
            };
            for value in 0..20u8 {
                let len = LEN - usize::from(value) * 5000;
                let mut bytes = vec![value; len];
                check(&bytes, "a new buffer")?;
                bytes.resize(2 * LEN, value + 100);
                check(&bytes, "a buffer that grew")?;
                let mut map = pages(LEN, value);
                check(&map, "a mapping")?;
                let middle = map[LEN / 2..].as_mut_ptr();
                // SAFETY: pages of the mapping, which read as zero afterwards.
                unsafe { libc::madvise(middle.cast(), LEN / 4, libc::MADV_DONTNEED) };
                map[LEN / 2] = value + 1;
                check(&map, "pages given back")?;
            }
            Ok(())
        })
    }));
}

/// Registrations beyond the limits are dropped, least recently used first, and are made again when needed.
#[test]
fn cache_keeps_to_its_limits() {
    if !is_kept() {
        return;
    }
    well(two_with(&[("FARSIDE_BUFFER_CACHE", "524288")], |job| {
        against_a_region(job, |place| {
            let buffers: Vec<_> = (0..3).map(|i| pages(LEN, i)).collect();
            let cost = |i: usize| cost(job, || write(job, place, &buffers[i]));
            assert_eq!([cost(0)?, cost(1)?, cost(0)?], [(1, 0), (1, 0), (0, 0)]);
            assert_eq!([cost(2)?, cost(0)?, cost(1)?], [(1, 0), (0, 0), (1, 0)], "the second was the oldest");
            Ok(())
        })
    }));
    well(two_with(&[("FARSIDE_BUFFER_CACHE", "0")], |job| {
        against_a_region(job, |place| {
            let buffer = pages(LEN, 1);
            let cost = || cost(job, || write(job, place, &buffer));
            assert_eq!([cost()?, cost()?], [(1, 0), (1, 0)], "for one operation at a time");
            Ok(())
        })
    }));
}

/// Memory exported for one read: blocks on both sides are transferred without a copy, and the second time without a
/// registration. If memory was revoked, the read fails, and the connection stays.
#[test]
fn lent_memory_is_read_in_place_and_not_after_it_was_revoked() {
    const BLOCK: usize = 32 << 10;
    let reads = Reads::new();
    let errors = two(|job| {
        let team = job.world()?;
        let (mut data, mut into) = (pages(4 * BLOCK, 0), pages(4 * BLOCK, 0));
        data.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i / 7 % 251) as u8);
        // Two ranges of rank 1 are read into three blocks of rank 0.
        let ranges = [Range { offset: 5, len: BLOCK }, Range { offset: 2 * BLOCK, len: BLOCK + 1 }];
        let expected = [&data[5..5 + BLOCK], &data[2 * BLOCK..3 * BLOCK + 1]].concat();
        let base = into.as_mut_ptr();
        let block = |at: usize, len| Block { base: base.wrapping_add(at), len };
        let blocks = [block(0, 100), block(200, BLOCK), block(2 * BLOCK, BLOCK - 99)];
        for round in 0..3 {
            let is_taken_back = round == 1;
            let (before, mut handle, mut key) = (job.stats(), 0, Vec::new());
            if job.rank_number() == 1 {
                let lent = Region { brief: true, ..Region::of(data.as_mut_ptr(), data.len()) };
                // SAFETY: the pages outlive the lease.
                let lent = unsafe { job.device().register(lent) }?;
                (handle, key) = (lent.handle, lent.key);
                if is_taken_back {
                    release(job, handle)?;
                }
            }
            let key = coll::broadcast(&team, 1, &key)?;
            if job.rank_number() == 0 {
                let region = job.device().import(1, &key, None)?;
                assert!(region.lists.is_some() && region.mapped.is_none(), "{region:?}");
                let read = |ranges: &[Range]| {
                    // SAFETY: the pages outlive the call.
                    unsafe { job.complete("read", 1, Operation::read_list(&blocks, region.handle, ranges)) }
                };
                let wrong = read(&ranges[..1]).unwrap_err();
                assert_eq!(wrong.kind(), ErrorKind::BadArgument, "{wrong}");
                let outside = Range { offset: 3 * BLOCK, ..ranges[1] };
                let outside = read(&[ranges[0], outside]).unwrap_err();
                assert_eq!(outside.kind(), ErrorKind::OutOfRange, "{outside}");
                match read(&ranges) {
                    Err(e) => assert!(is_taken_back && e.kind() == ErrorKind::Aborted, "{e}"),
                    Ok(()) => {
                        assert!(!is_taken_back);
                        // SAFETY: the read is complete.
                        let got = blocks.map(|b| unsafe { std::slice::from_raw_parts(b.base, b.len) }).concat();
                        assert!(got == expected);
                    }
                }
                forget(job, region.handle);
            }
            team.barrier()?;
            if job.rank_number() == 1 && !is_taken_back {
                job.device().sealed(handle);
                release(job, handle)?;
            }
            let spent = job.stats() - before;
            let made = u64::from(round == 0 || !is_kept());
            assert_eq!((spent.count(Kind::Register), spent.count(Kind::Copy)), (made, 0), "{round}: {spent:?}");
        }
        team.barrier()
    });
    let Some(errors) = errors else { return };
    well(Some(errors));
    // Whether memory was revoked is read when the data is there: of two reads, the later may be performed first.
    let behind = reads.behind();
    assert!(!behind.is_empty() && !behind.contains(&8), "{behind:?}");
}
