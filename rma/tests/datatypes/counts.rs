#![allow(unsafe_code)]
//! The cost of transfers between datatypes: messages, copies, system calls.

use farside_datatype::{Datatype, Named, TypeMap};
use farside_rma::core::settings::TransferScheme;
use farside_rma::core::stats::{Kind, Snapshot};
use farside_rma::raw::{Options, RawWindow};
use farside_rma::{Assert, LockKind, Op, Result, Team};

use crate::checks::config::{self, Config, Memory};

/// The maximum number of blocks in a request on either side, and in a system call.
const MAX_BLOCKS: usize = 1024;

/// `count` blocks of `block` ints, with starts `stride` ints apart.
fn vector(count: usize, block: usize, stride: usize) -> TypeMap {
    Datatype::vector(count as u64, block as u64, stride as i64, &Named::Int.into()).unwrap().message(1).unwrap()
}

/// The counters of rank 1 for a transfer from `origin` to `target`, or back, in a lock epoch. `target` is a layout of
/// rank 0's window.
fn cost(config: &Config, put: bool, origin: &TypeMap, target: &TypeMap) -> Snapshot {
    let body = |team: &Team| -> Result<Snapshot> {
        let len = target.true_ub() as usize + 64;
        let mut memory = vec![0u32; len / 4 + 2];
        let window = match config.memory {
            Memory::Allocated => RawWindow::allocate(team, len, Options::default())?,
            // SAFETY: the vector lives until the window is freed, and is not accessed otherwise.
            Memory::Vector => unsafe {
                RawWindow::create_exclusively(team, memory.as_mut_ptr().cast(), len, Options::default())?
            },
        };
        let mut buffer = vec![0xabu8; origin.true_ub() as usize];
        let mut counted = Snapshot::default();
        if team.rank() == 1 {
            window.lock(LockKind::Exclusive, 0, Assert::NOCHECK)?;
            let before = team.job().stats();
            // SAFETY: the buffer outlives the unlock.
            unsafe {
                if put {
                    window.put_typed(buffer.as_ptr(), origin, 0, 4, target)?;
                } else {
                    window.get_typed(buffer.as_mut_ptr(), origin, 0, 4, target)?;
                }
            }
            window.flush(0)?;
            counted = team.job().stats() - before;
            window.unlock(0)?;
        }
        window.free()?;
        memory.clear();
        Ok(counted)
    };
    config.run(2, body).unwrap()[1]
}

fn counts(s: &Snapshot, kinds: &[Kind]) -> Vec<u64> {
    kinds.iter().map(|k| s.count(*k)).collect()
}

#[test]
fn mapped_transfer_is_one_copy_and_no_system_call() {
    if config::verbs() {
        return println!("nothing is mapped over verbs");
    }
    for (origin, target) in [
        (vector(3000, 3, 5), vector(3000, 3, 7)),
        (vector(3000, 3, 5), vector(1, 9000, 1)),
        (vector(1, 9000, 1), vector(4500, 2, 3)),
        (vector(9000, 1, 2), vector(2, 4500, 5000)),
    ] {
        for (put, kind) in [(true, Kind::Write), (false, Kind::Read)] {
            let s = cost(&config::MAPPED, put, &origin, &target);
            assert_eq!((s.count(kind), s.bytes(kind)), (1, 36_000), "{s:?}");
            assert_eq!((s.count(Kind::Copy), s.bytes(Kind::Copy)), (1, 36_000), "{s:?}");
            assert_eq!(counts(&s, &[Kind::SystemCall, Kind::Request]), [0, 0], "{s:?}");
        }
    }
}

#[test]
fn unmapped_transfer_is_one_system_call_for_each_list() {
    if config::verbs() {
        return println!("there are no system calls over verbs");
    }
    for (origin, target, lists) in [
        (vector(3000, 3, 5), vector(3000, 3, 7), 3000_usize.div_ceil(MAX_BLOCKS)),
        (vector(3000, 3, 5), vector(1, 9000, 1), 3000_usize.div_ceil(MAX_BLOCKS)),
        (vector(MAX_BLOCKS, 3, 5), vector(MAX_BLOCKS, 3, 4), 1),
        (vector(MAX_BLOCKS + 1, 3, 5), vector(MAX_BLOCKS + 1, 3, 4), 2),
        // The side with more blocks determines the number of messages.
        (vector(3000, 3, 5), vector(4500, 2, 3), 4500_usize.div_ceil(MAX_BLOCKS)),
    ] {
        for (put, kind) in [(true, Kind::Write), (false, Kind::Read)] {
            let s = cost(&config::VM, put, &origin, &target);
            let lists = lists as u64;
            assert_eq!(counts(&s, &[kind, Kind::SystemCall, Kind::Request]), [lists, lists, 0], "{s:?}");
            assert_eq!((s.bytes(kind), s.bytes(Kind::Copy)), (origin.size(), origin.size()), "{s:?}");
        }
    }
}

#[test]
fn transfer_through_the_ring_is_a_request_for_each_piece() {
    if config::verbs() {
        return println!("there is no ring over verbs");
    }
    // Blocks of 12 bytes are sent in their requests. The target's blocks are split where origin blocks end.
    for (origin, target, pieces) in
        [(vector(300, 3, 5), vector(300, 3, 7), 300), (vector(300, 3, 5), vector(450, 2, 3), 600)]
    {
        let s = cost(&config::RING, true, &origin, &target);
        assert_eq!(counts(&s, &[Kind::Write, Kind::Request, Kind::SystemCall]), [1, pieces, 0], "{s:?}");
    }
}

#[test]
fn remapped_pages_are_one_copy_and_their_ragged_ends_requests() {
    if config::verbs() {
        return println!("nothing is mapped over verbs");
    }
    // Blocks of 256 bytes in 4 MiB of a vector: all blocks except those of the first and the last page are mapped.
    let (origin, target) = (vector(8192, 64, 64), vector(8192, 64, 128));
    let s = cost(&config::REMAP, true, &origin, &target);
    assert_eq!(s.bytes(Kind::Write), origin.size(), "{s:?}");
    let ragged = s.bytes(Kind::Request);
    assert!(ragged <= 2 * 4096 && s.count(Kind::SystemCall) == 0, "{s:?}");
    // Bytes in requests are copied into the request and again at the other end.
    assert_eq!(s.bytes(Kind::Copy), origin.size(), "{s:?}");
}

#[test]
fn accumulate_is_one_message_for_each_piece_where_it_is_not_mapped() {
    let (origin, target) = (vector(30, 2, 3), vector(20, 3, 5));
    let cost = |config: &Config| {
        let body = |team: &Team| -> Result<Snapshot> {
            let window = RawWindow::allocate(team, 4096, Options::default())?;
            let buffer = vec![1i32; 200];
            let mut counted = Snapshot::default();
            if team.rank() == 1 {
                window.lock(LockKind::Shared, 0, Assert::NOCHECK)?;
                let before = team.job().stats();
                // SAFETY: the buffer outlives the unlock.
                unsafe { window.accumulate_typed(Op::Sum, (buffer.as_ptr().cast(), &origin), None, 0, 8, &target) }?;
                window.flush(0)?;
                counted = team.job().stats() - before;
                window.unlock(0)?;
            }
            window.free()?;
            Ok(counted)
        };
        config.run(2, body).unwrap()[1]
    };
    // 60 elements, split every 2 and every 3 elements.
    for config in config::these(&[config::MAPPED, config::POSTED]) {
        let s = cost(&config);
        let messages = if config.name == "mapped" { 1 } else { 40 };
        assert_eq!((s.count(Kind::Accumulate), s.bytes(Kind::Accumulate)), (messages, 240), "{}: {s:?}", config.name);
    }
}

/// Packed pieces: two copies of every byte, besides the copy of the message in transit, and no message per block.
#[test]
fn generic_put_copies_twice_and_sends_no_message_for_a_block() {
    let (origin, target) = (vector(3000, 2, 3), vector(2000, 3, 5));
    for config in config::these(&[config::MAPPED, config::POSTED]) {
        let body = |team: &Team| -> Result<Snapshot> {
            let window = RawWindow::allocate(team, 60_000, Options { locks: false })?;
            window.set_transfer(TransferScheme::Generic);
            let buffer: Vec<u32> = (0..9000).collect();
            window.fence(Assert::NOPRECEDE)?;
            let before = team.job().stats();
            if team.rank() == 1 {
                // SAFETY: the buffer outlives the fence.
                unsafe { window.put_typed(buffer.as_ptr().cast(), &origin, 0, 8, &target) }?;
            }
            window.fence(Assert::NOSUCCEED)?;
            let counted = team.job().stats() - before;
            if team.rank() == 0 {
                for i in 0..6000 {
                    // SAFETY: the element is inside the window, and no epoch is open on rank 1 any more.
                    let x = unsafe { window.base().cast::<u32>().add(2 + i / 3 * 5 + i % 3).read() };
                    assert_eq!(x as usize, i / 2 * 3 + i % 2, "element {i}");
                }
            }
            window.free()?;
            Ok(counted)
        };
        let both = config.run(2, body).unwrap();
        for s in &both {
            // The message is read: over verbs by the HCA.
            let read = if config::verbs() { 0 } else { s.bytes(Kind::Read) };
            assert_eq!(s.bytes(Kind::Copy), 24_000 + read, "{}: {s:?}", config.name);
            assert_eq!(s.count(Kind::Write), 0, "{}: {s:?}", config.name);
        }
        assert!(both[1].count(Kind::Send) < 30, "{}: {:?}", config.name, both[1]);
    }
}

/// Between fences, short blocks of unmapped memory are packed, so that no system call looks up the pages of each block.
#[test]
fn unmapped_put_between_fences_packs_short_blocks_only() {
    if config::verbs() {
        return println!("there are no system calls over verbs");
    }
    for config in [config::VM, config::RING] {
        for (origin, target, packs) in [
            (vector(3000, 2, 3), vector(2000, 3, 5), true),
            (vector(40, 200, 300), vector(40, 200, 400), true),
            (vector(40, 3000, 3003), vector(40, 3000, 3005), false),
            // Blocks of one side are long, but the pieces are as short as those of the other.
            (vector(40, 3000, 3003), vector(120_000, 1, 2), true),
        ] {
            let body = |team: &Team| -> Result<Snapshot> {
                let mut memory = vec![0u32; target.true_ub() as usize / 4];
                let (base, len) = (memory.as_mut_ptr(), 4 * memory.len());
                // SAFETY: the vector lives until the window is freed, and is not accessed otherwise.
                let window =
                    unsafe { RawWindow::create_exclusively(team, base.cast(), len, Options { locks: false }) }?;
                let buffer: Vec<u32> = (0..origin.true_ub() as u32 / 4).collect();
                window.fence(Assert::NOPRECEDE)?;
                let before = team.job().stats();
                if team.rank() == 1 {
                    // SAFETY: the buffer outlives the fence.
                    unsafe { window.put_typed(buffer.as_ptr().cast(), &origin, 0, 0, &target) }?;
                }
                window.fence(Assert::NOSUCCEED)?;
                let counted = team.job().stats() - before;
                window.free()?;
                if team.rank() == 0 {
                    let mut expected = vec![0u32; memory.len()];
                    for (from, to) in elements(&origin).zip(elements(&target)) {
                        expected[to] = from as u32;
                    }
                    assert!(memory == expected, "{}", config.name);
                }
                Ok(counted)
            };
            let both = config.run(2, body).unwrap();
            let ways = counts(&both[1], &[Kind::Write, Kind::SystemCall, Kind::Request]);
            assert_eq!(packs, ways == [0, 0, 0], "{}: {:?}", config.name, both[1]);
            if packs {
                let copied = |s: &Snapshot| s.bytes(Kind::Copy) - s.bytes(Kind::Read);
                assert!(both.iter().all(|s| copied(s) == origin.size()), "{}: {both:?}", config.name);
            } else {
                assert!(ways[0] == 1 && ways[1] + ways[2] > 0, "{}: {:?}", config.name, both[1]);
            }
        }
    }
}

/// The ints of a layout, in packed order.
fn elements(map: &TypeMap) -> impl Iterator<Item = usize> {
    map.blocks(0).flat_map(|(at, len)| (at as usize / 4)..(at as usize + len as usize) / 4)
}

/// Put and get between noncontiguous registered memory (the origin's own window) and contiguous bytes, inter-node.
#[test]
fn gathered_put_and_scattered_get_copy_nothing_between_nodes() {
    if !config::verbs() {
        return println!("only between nodes");
    }
    let (column, packed) = (vector(2000, 16, 20), vector(1, 32_000, 1));
    for put in [true, false] {
        let body = |team: &Team| -> Result<Snapshot> {
            let window = RawWindow::allocate(team, 2000 * 80, Options::default())?;
            let mut counted = Snapshot::default();
            if team.rank() == 1 {
                window.lock(LockKind::Exclusive, 0, Assert::NOCHECK)?;
                // The first put establishes the connection. SAFETY: the window's own memory, which is not accessed
                // otherwise.
                unsafe { window.put_typed(window.base(), &packed, 0, 0, &packed) }?;
                window.flush(0)?;
                let before = team.job().stats();
                // SAFETY: as above.
                unsafe {
                    if put {
                        window.put_typed(window.base(), &column, 0, 0, &packed)?;
                    } else {
                        window.get_typed(window.base(), &column, 0, 0, &packed)?;
                    }
                }
                window.flush(0)?;
                counted = team.job().stats() - before;
                window.unlock(0)?;
            }
            window.free()?;
            Ok(counted)
        };
        let s = config::these(&[config::POSTED])[0].run(2, body).unwrap()[1];
        let kind = if put { Kind::Write } else { Kind::Read };
        assert_eq!(counts(&s, &[kind, Kind::Copy]), [2000_u64.div_ceil(MAX_BLOCKS as u64), 0], "{s:?}");
        // Over tcp requests are frames, of which several go into one system call, and no posts are counted.
        let posts = s.count(Kind::Post);
        assert!((2..2000).contains(&posts) || posts == 0 && std::env::var("FARSIDE_DEVICE").unwrap() == "tcp", "{s:?}");
    }
}
