#![allow(unsafe_code)]
//! Limits and faults that real adapters have and Soft-RoCE has not, by the strict provider ([`crate::strict`]).

use std::cell::Cell;
use std::rc::Rc;

use farside_core::am::{self, Counters, Delivery, HandlerId};
use farside_core::device::{Block, Operation, Place, Region};
use farside_core::signal::SignalArray;
use farside_core::stats::Kind;
use farside_core::{ErrorKind, Job, Result};

use crate::faults::exchange;
use crate::regions::{exchange_regions, forget, release};
use crate::strict::knobs::{Knobs, knobs};
use crate::strict::profiles::profile;
use crate::strict::{Strict, fork_protection};
use crate::{ranks, two, two_with, well};

/// Runs the exchange of all kinds of operations under a limit.
fn goes_on(set: impl FnOnce(&mut Knobs)) {
    let _strict = Strict::new(set);
    well(two(|job| exchange(job, 20)));
}

/// A child of `fork` must not take the pages that the HCA writes (`ibv_fork_init(3)`).
#[test]
fn memory_is_protected_against_fork_before_any_is_registered() {
    let Some(errors) = two(|job| exchange(job, 2)) else { return };
    well(Some(errors));
    let (calls, unprotected) = fork_protection();
    assert!(calls > 0 && unprotected == 0, "{calls} calls, {unprotected} registrations before the first");
}

/// A newer kernel reports events that the header of this build does not know, such as `IBV_EVENT_DEVICE_SPEED_CHANGE`.
#[test]
fn events_of_unknown_types_are_passed_over() {
    let _strict = Strict::new(|k| k.events = [20, 99, 20, 99].map(|kind| (kind, 1)).into());
    let Some(errors) = two(|job| exchange(job, 5)) else { return };
    well(Some(errors));
    assert!(knobs().events.is_empty(), "{:?}", knobs().events);
}

/// Writes from, and reads into, 32 blocks of registered memory, which are segments of requests.
fn many_blocks(job: &Job) -> Result<()> {
    const BLOCK: usize = 16;
    const COUNT: usize = 32;
    let team = job.world()?;
    let own = job.device().allocate(Region::allocated(4 * BLOCK * COUNT));
    let (own, remotes) = exchange_regions(&team, own, None)?;
    let peer = 1 - job.rank_number();
    // Every other 16 bytes of the first half and of the second half; the peer's come from its third quarter.
    let blocks = |start: usize| -> Vec<Block> {
        (0..COUNT).map(|i| Block { base: own.base.wrapping_add(start + 2 * i * BLOCK), len: BLOCK }).collect()
    };
    let (there, back) = (blocks(0), blocks(2 * COUNT * BLOCK));
    team.barrier()?;
    let (from, into) = (there.clone(), back.clone());
    let place = Place { region: remotes[peer as usize].handle, offset: BLOCK };
    // SAFETY: memory of the region, valid until the operations are complete; what peers write is in the gaps, which
    // begin at the second block and are read as one range.
    unsafe {
        for (i, block) in there.iter().enumerate() {
            block.base.write_bytes(i as u8 + 1, BLOCK);
        }
        let single = [Block { base: own.base, len: BLOCK }];
        job.complete("write", peer, Operation::write(&single, place))?;
        team.barrier()?;
        // The list is longer than a request may be on any adapter here.
        let whole = Place { region: remotes[peer as usize].handle, offset: 0 };
        job.complete("read", peer, Operation::read(&into, whole))?;
        let half = COUNT * BLOCK;
        let got: Vec<u8> =
            into.iter().flat_map(|b| std::slice::from_raw_parts(b.base, b.len).iter().copied()).collect();
        let expected = |at: usize| match (at / BLOCK, at % (2 * BLOCK) < BLOCK) {
            (1, _) => 1,
            (block, true) => block as u8 / 2 + 1,
            _ => 0,
        };
        assert!(got.iter().enumerate().all(|(at, byte)| *byte == expected(at)), "{got:?}");
        team.barrier()?;
        let place = Place { region: remotes[peer as usize].handle, offset: 2 * half };
        job.complete("write", peer, Operation::write(&from, place))?;
        team.barrier()?;
        let landed = std::slice::from_raw_parts(own.base.add(2 * half), half);
        assert!(landed.iter().enumerate().all(|(at, byte)| usize::from(*byte) == at / BLOCK + 1), "{landed:?}");
    }
    team.barrier()?;
    remotes.iter().for_each(|r| forget(job, r.handle));
    release(job, own.handle)
}

/// Reads may take fewer segments than other requests.
#[test]
fn reads_are_cut_at_their_own_number_of_pieces() {
    for most in [13, 1] {
        let _strict = Strict::new(|k| k.read_pieces = Some(most));
        well(two(many_blocks));
    }
}

/// `max_sge` is an upper bound: a queue pair may take fewer segments. All queue pairs have what the device permits.
#[test]
fn queue_pairs_that_take_fewer_pieces_than_the_device_reports_are_used() {
    for most in [12, 1] {
        let _strict = Strict::new(|k| k.pieces_of_a_pair = Some(most));
        well(two(move |job| {
            let lists = job.device().capabilities().lists.map_or(0, |lists| lists.blocks);
            assert_eq!(lists, most as usize);
            many_blocks(job)?;
            exchange(job, 5)
        }));
    }
}

/// Devices without inline data, or with less than a signal and its definition need; mlx5 answers `ENOMEM`, as if its
/// queue were full.
#[test]
fn signals_go_on_without_inline_data() {
    for (most, code) in [(0, libc::ENOMEM), (16, libc::ENOMEM), (0, libc::EINVAL)] {
        goes_on(|k| (k.inline, k.inline_error) = (Some(most), code));
    }
}

/// A device without shared receive queues is refused at the start, with the reason.
#[test]
fn device_without_shared_receive_queues_is_refused_with_the_reason() {
    let _strict = Strict::new(|k| k.shared_receives = false);
    let Some(errors) = two(|_| Ok(())) else { return };
    let e = errors[0].as_ref().expect("a device without shared receive queues");
    assert!(e.kind() == ErrorKind::Unsupported && e.to_string().contains("shared receive queue"), "{e}");
}

/// A queue pair becomes ready to receive once the address of its peer is resolved, which may time out.
#[test]
fn connections_that_time_out_at_first_are_made_later() {
    goes_on(|k| k.unready = 6);
    // A connection of a rank to itself has no peer that repeats its request.
    let _strict = Strict::new(|k| k.unready = 4);
    well(two(|job| {
        let team = job.world()?;
        let own = job.device().allocate(Region::allocated(64));
        let (own, remotes) = exchange_regions(&team, own, None)?;
        let me = job.rank_number();
        let (value, place) = ([7u8; 16], Place { region: remotes[me as usize].handle, offset: 0 });
        // SAFETY: the bytes outlive the call.
        unsafe { job.complete("write", me, Operation::write(&[Block::of(value.as_ptr(), 16)], place)) }?;
        team.barrier()?;
        remotes.iter().for_each(|r| forget(job, r.handle));
        release(job, own.handle)
    }));
}

/// A limited member of a partition reaches full members only, so two of them do not reach each other.
#[test]
fn partition_with_full_membership_is_used() {
    goes_on(|k| k.keys = Some(vec![0x7fff, 0, 0x8001]));
}

/// A region longer than a registration may be has several keys.
#[test]
fn regions_longer_than_a_registration_are_used_in_full() {
    const LONGEST: usize = 4 << 20;
    const LEN: usize = 3 * LONGEST + 4096;
    let _strict = Strict::new(|k| k.registration = Some(LONGEST as u64));
    well(two(|job| {
        let team = job.world()?;
        let own = job.device().allocate(Region::allocated(LEN));
        let (own, remotes) = exchange_regions(&team, own, None)?;
        let signals = SignalArray::new(&team, 0)?;
        let (me, peer) = (job.rank_number(), 1 - job.rank_number());
        let at = |offset| Place { region: remotes[peer as usize].handle, offset };
        // SAFETY: as in the other tests; each rank writes the peer's region, and reads back what it wrote.
        unsafe {
            // Memory of the program, longer than a registration too.
            let bytes: Vec<u8> = (0..LEN).map(|i| (i / 251 + i + me as usize) as u8).collect();
            let mut back = vec![0; LEN];
            job.complete("write", peer, Operation::write(&[Block::of(bytes.as_ptr(), LEN)], at(0)))?;
            let into = [Block { base: back.as_mut_ptr(), len: LEN }];
            job.complete("read", peer, Operation::read(&into, at(0)))?;
            assert!(back == bytes, "the whole region");
            // Memory that is registered, in requests with several keys.
            let (long, place) = (3 << 20, at(LONGEST / 2 - (1 << 20)));
            back.fill(0);
            job.complete("write", peer, Operation::write(&[Block::of(bytes.as_ptr(), long)], place))?;
            job.complete("read", peer, Operation::read(&[Block { base: back.as_mut_ptr(), len: long }], place))?;
            assert!(back[..long] == bytes[..long], "a part");
            team.barrier()?;
            for edge in [LONGEST / 2, LONGEST, 3 * LONGEST / 2, 2 * LONGEST, 3 * LONGEST] {
                for (before, len) in [(4, 8), (100, 300), (2000, 4000), (40_000, 44_000), (8, 8), (0, 8)] {
                    let (from, into) = ([me as u8 + 1; 44_000], &mut [0u8; 44_000]);
                    job.complete("write", peer, Operation::write(&[Block::of(from.as_ptr(), len)], at(edge - before)))?;
                    let into = [Block { base: into.as_mut_ptr(), len }];
                    job.complete("read", peer, Operation::read(&into, at(edge - before)))?;
                    assert!(std::slice::from_raw_parts(into[0].base, len).iter().all(|b| *b == me as u8 + 1));
                }
                let (zero, mut old) = ([0u8; 8], u64::MAX);
                job.complete("write", peer, Operation::write(&[Block::of(zero.as_ptr(), 8)], at(edge)))?;
                job.complete("add", peer, Operation::fetch_add(at(edge), 5, &raw mut old))?;
                job.complete("add", peer, Operation::fetch_add(at(edge), 5, &raw mut old))?;
                assert_eq!(old, 5);
            }
        }
        signals.set(peer as usize, 1, 1)?;
        job.wait("the signal", || Ok((signals.get(peer as usize, 1) >= 1).then_some(())))?;
        team.barrier()?;
        remotes.iter().for_each(|r| forget(job, r.handle));
        release(job, own.handle)
    }));
}

/// The port reports that its LID, the subnet manager, its GIDs and keys have changed: peers use the new address.
#[test]
fn ports_whose_addresses_and_keys_change_stay_usable() {
    use rdma_sys::ibv_event_type::*;
    let kinds = [IBV_EVENT_LID_CHANGE, IBV_EVENT_PKEY_CHANGE, IBV_EVENT_SM_CHANGE, IBV_EVENT_GID_CHANGE];
    let events = kinds.map(|kind| (kind as u32, 1));
    let _strict = Strict::new(|k| (k.events, k.next_lid) = ([events, events].concat().into(), Some(500)));
    let errors = two(|job| {
        exchange(job, 20)?;
        // A peer answers that it has noted the address, to that address.
        job.wait("the new LID", || Ok(knobs().reached.contains(&500).then_some(())))?;
        job.world()?.barrier()
    });
    let Some(errors) = errors else { return };
    well(Some(errors));
    assert!(knobs().events.is_empty(), "{:?}", knobs().events);
}

/// A queue pair limit, or one of completions, that is too low is reported, and nothing waits.
#[test]
fn limits_that_are_too_low_are_errors() {
    let set = &[("FARSIDE_VERBS_QUEUE", "16")];
    let _strict = Strict::new(|k| k.pairs = Some(3));
    let Some(errors) = two_with(set, |job| exchange(job, 2)) else { return };
    let errors: Vec<_> = errors.into_iter().flatten().collect();
    assert!(!errors.is_empty(), "a job without room");
    assert!(errors.iter().all(|e| matches!(e.kind(), ErrorKind::Limit | ErrorKind::PeerLost)), "{errors:?}");
}

/// Adapters by their profiles: those that can be used, and those that are refused, with the reason.
#[test]
fn adapters_are_used_or_refused_with_the_reason() {
    for name in ["mlx5", "irdma", "bnxt_re", "bnxt_re-no-atomics", "relaxed-only"] {
        let _strict = Strict::new(|k| *k = profile(name).unwrap());
        well(two(|job| {
            exchange(job, 10)?;
            many_blocks(job)
        }));
    }
    for (name, why) in [("ionic", "shared receive queue"), ("efa-like", "shared receive queue")] {
        let _strict = Strict::new(|k| *k = profile(name).unwrap());
        let Some(errors) = two(|_| Ok(())) else { return };
        let e = errors[0].as_ref().expect(name);
        assert!(e.to_string().contains(why), "{name}: {e}");
    }
}

/// Without atomics at one rank's adapter, all updates are packets, and the target's processor makes them.
#[test]
fn updates_are_packets_where_the_adapter_has_no_atomics() {
    const ROUNDS: u64 = 10;
    let _strict = Strict::new(|k| k.atomics = false);
    well(two(|job| {
        let before = job.stats();
        exchange(job, ROUNDS)?;
        let spent = job.stats() - before;
        assert_eq!((spent.count(Kind::FetchAdd), spent.count(Kind::Served)), (ROUNDS, ROUNDS), "{spent:?}");
        Ok(())
    }));
}

/// Keys of relaxed order (openucx/ucx #11649): each signal behind writes waits for a read, and one without does not.
#[test]
fn signals_wait_for_writes_where_keys_are_of_relaxed_order() {
    const ROUNDS: u64 = 10;
    let _strict = Strict::new(|k| k.relaxed_only = true);
    well(two(|job| {
        let before = job.stats();
        exchange(job, ROUNDS)?;
        let spent = job.stats() - before;
        // A write and a read of each round, and the read that pushes the write.
        assert!(spent.count(Kind::Read) >= 2 * ROUNDS, "{spent:?}");
        assert!(spent.count(Kind::FetchAdd) == ROUNDS, "{spent:?}");
        Ok(())
    }));
}

/// The completion queue of requests has room for the peers to which a rank sends, not for all; where the driver cannot
/// make it longer, it has room for all at once.
#[test]
fn completion_queue_grows_with_the_peers_to_which_a_rank_sends() {
    const ID: HandlerId = HandlerId(9);
    const RANKS: u32 = 8;
    const QUEUE: i32 = 128;
    let room = |peers: i32| QUEUE * peers + 16;
    for resizes in [true, false] {
        let _strict = Strict::new(|k| k.resizes = resizes);
        let set = &[("FARSIDE_VERBS_QUEUE", "128"), ("FARSIDE_VERBS_RECEIVES", "32")];
        let Some(errors) = ranks(RANKS, set, move |job| {
            let team = job.world()?;
            let got = Rc::new(Cell::new(0));
            let count = Rc::clone(&got);
            job.active_messages().register(ID, move |_| {
                count.set(count.get() + 1);
                Delivery::Done
            })?;
            team.barrier()?;
            for peer in (0..RANKS).filter(|peer| *peer != job.rank_number()) {
                am::send(job, peer, ID, &[], &[7; 3000], Counters::default())?;
            }
            job.wait("the packets", || Ok((got.get() == RANKS - 1).then_some(())))?;
            team.barrier()
        }) else {
            return;
        };
        well(Some(errors));
        let Knobs { created, longest, .. } = knobs().clone();
        // Ranks send to three peers at the start.
        assert_eq!((created, longest), (room(if resizes { 4 } else { 8 }), room(8)));
    }
}
