//! Scatter and gather lists over the second queue pair: any number of blocks, both directions at the same time, and all
//! kinds of failure.

use std::fs;
use std::rc::Rc;
use std::time::{Duration, Instant};

use farside_core::device::{Block, Operation};
use farside_core::job::Track;
use farside_core::signal::SignalArray;
use farside_core::stats::Kind;
use farside_core::{Error, ErrorKind, Job, Result};

use crate::{two, well};

/// A small generator: the same seed gives the same lists.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    /// Splits `total` into `parts` lengths of at least 1.
    fn split(&mut self, total: usize, parts: usize) -> Vec<usize> {
        let mut cuts: Vec<usize> = (0..parts - 1).map(|_| self.below(total - parts + 1)).collect();
        cuts.sort_unstable();
        let mut last = 0;
        let mut lens: Vec<usize> = cuts.iter().map(|c| 1 + c - std::mem::replace(&mut last, *c)).collect();
        lens.push(1 + total - parts - last);
        lens
    }
}

/// Lays out blocks of the given lengths in a buffer, separated by `gap` bytes.
fn lay_out(buffer: &mut [u8], lens: &[usize], gap: usize) -> Vec<Block> {
    let mut at = 0;
    let base = buffer.as_mut_ptr();
    let blocks = lens.iter().map(|len| {
        let block = Block { base: base.wrapping_add(at), len: *len };
        at += len + gap;
        block
    });
    let blocks = blocks.collect();
    assert!(at <= buffer.len());
    blocks
}

fn post(job: &Job, peer: u32, operation: Operation<'_>) -> Result<Rc<Track>> {
    let track = Track::new();
    // SAFETY: the callers' buffers outlive the waits that follow.
    unsafe { job.post(peer, operation, None, &[&track]) }?;
    Ok(track)
}

fn finish(job: &Job, track: &Track) -> Result<()> {
    job.wait("a list", || Ok((track.open() == 0).then_some(())))?;
    track.check()
}

fn ended(job: &Job, track: Rc<Track>) -> Error {
    finish(job, &track).expect_err("a list that must fail")
}

/// Sends `value` from each rank to the other in lists of one block, in order.
fn works(job: &Job, signals: &SignalArray, value: u8) -> Result<()> {
    let peer = 1 - job.rank_number();
    let (mut into, from) = ([0u8; 64], [value ^ job.rank_number() as u8; 64]);
    let received = post(job, peer, Operation::scatter(&[Block { base: into.as_mut_ptr(), len: 64 }]))?;
    signals.set(peer as usize, 1, u64::from(value))?;
    job.wait("the other's list", || Ok((signals.get(peer as usize, 1) >= u64::from(value)).then_some(())))?;
    let sent = post(job, peer, Operation::gather(&[Block::of(from.as_ptr(), 64)]))?;
    finish(job, &sent)?;
    finish(job, &received)?;
    assert_eq!(into, [value ^ peer as u8; 64]);
    Ok(())
}

/// One to three lists of up to `max_sge` blocks on either side, in both directions at the same time, with blocks of
/// random lengths: every byte arrives at its address and nowhere else, with one work request per list and no copy. The
/// second round makes no registrations either.
#[test]
fn lists_of_all_numbers_of_blocks_arrive_both_ways_at_once() {
    const ROOM: usize = 1 << 20;
    well(two(|job| {
        let team = job.world()?;
        let most = job.device().capabilities().lists.unwrap().blocks;
        let peer = 1 - job.rank_number();
        let mut map = [0; 2].map(|_| memmap2::MmapMut::map_anon(ROOM).unwrap());
        let [out, into] = &mut map;
        for round in 0..2u64 {
            let mut random = Random(7);
            for blocks in [1, 2, most - 1, most, most + 1, 2 * most, 3 * most] {
                // Both ranks make the same plan: for each message the block lengths on either side.
                let messages: Vec<[Vec<usize>; 2]> = (0..blocks.div_ceil(most))
                    .map(|i| {
                        let here = most.min(blocks - i * most);
                        let there = 1 + random.below(most);
                        let total = here.max(there) + random.below(20_000);
                        [random.split(total, here), random.split(total, there)]
                    })
                    .collect();
                into.fill(0xEE);
                out.iter_mut()
                    .enumerate()
                    .for_each(|(i, b)| *b = (i as u8 ^ (i >> 8) as u8).wrapping_add(job.rank_number() as u8));
                let sizes = |side: usize| messages.iter().flat_map(|m| m[side].clone()).collect::<Vec<_>>();
                let (from, to) = (lay_out(out, &sizes(0), 5), lay_out(into, &sizes(1), 9));
                let before = job.stats();
                let mut tracks = Vec::new();
                let mut at = 0;
                for m in &messages {
                    tracks.push(post(job, peer, Operation::scatter(&to[at..at + m[1].len()]))?);
                    at += m[1].len();
                }
                team.barrier()?;
                at = 0;
                for m in &messages {
                    tracks.push(post(job, peer, Operation::gather(&from[at..at + m[0].len()]))?);
                    at += m[0].len();
                }
                tracks.iter().try_for_each(|t| finish(job, t))?;
                let spent = job.stats() - before;
                let lists = messages.len() as u64;
                assert_eq!((spent.count(Kind::Gather), spent.count(Kind::Scatter)), (lists, lists), "{blocks} blocks");
                assert_eq!(spent.bytes(Kind::Gather), spent.bytes(Kind::Scatter));
                assert_eq!(spent.count(Kind::Copy), 0, "{spent:?}");
                if round > 0 {
                    assert_eq!(spent.count(Kind::Register), 0, "registered a second time: {spent:?}");
                }
                team.barrier()?;
                // The bytes sent from the peer's blocks, then those expected in this rank's, with untouched gaps.
                let mut sent = Vec::new();
                let mut i = 0usize;
                for len in sizes(0) {
                    sent.extend((i..i + len).map(|i| (i as u8 ^ (i >> 8) as u8).wrapping_add(peer as u8)));
                    i += len + 5;
                }
                let mut expected = vec![0xEE; ROOM];
                let (mut at, mut taken) = (0, 0);
                for len in sizes(1) {
                    expected[at..at + len].copy_from_slice(&sent[taken..taken + len]);
                    (at, taken) = (at + len + 9, taken + len);
                }
                assert!(into[..] == expected[..], "{blocks} blocks, round {round}");
            }
        }
        team.barrier()
    }));
}

/// Both ranks send at the same time, to each other and to themselves, without any connection.
#[test]
fn first_use_from_both_ends_at_once() {
    for _ in 0..3 {
        well(two(|job| {
            let mut got = [[0u8; 100]; 2];
            let sent = [job.rank_number() as u8 + 1; 100];
            let mut tracks = Vec::new();
            for (peer, into) in got.iter_mut().enumerate() {
                let into = [Block { base: into.as_mut_ptr(), len: 100 }];
                tracks.push(post(job, peer as u32, Operation::scatter(&into))?);
            }
            for peer in 0..2 {
                tracks.push(post(job, peer, Operation::gather(&[Block::of(sent.as_ptr(), 100)]))?);
            }
            tracks.iter().try_for_each(|t| finish(job, t))?;
            assert_eq!(got, [[1; 100], [2; 100]]);
            Ok(())
        }));
    }
}

/// A full queue is back-pressure: many more lists than it has slots are transferred, in order.
#[test]
fn more_lists_than_places_arrive_in_order() {
    const LISTS: usize = 300;
    well(two(|job| {
        let team = job.world()?;
        let peer = 1 - job.rank_number();
        let mut words = vec![0u64; LISTS];
        let base = words.as_mut_ptr().cast::<u8>();
        if job.rank_number() == 0 {
            // The lists that do not fit wait until the first is received.
            let (mut tracks, mut first) = (Vec::new(), true);
            for i in 0..LISTS {
                let into = [Block { base: base.wrapping_add(8 * i), len: 8 }];
                tracks.push(post(job, peer, Operation::scatter(&into))?);
                if std::mem::take(&mut first) {
                    team.barrier()?;
                }
            }
            tracks.iter().try_for_each(|t| finish(job, t))?;
            assert_eq!(words, (0..LISTS as u64).collect::<Vec<_>>());
        } else {
            words.iter_mut().enumerate().for_each(|(i, w)| *w = i as u64);
            team.barrier()?;
            let from = |i: usize| [Block::of(base.wrapping_add(8 * i), 8)];
            let tracks: Result<Vec<_>> = (0..LISTS).map(|i| post(job, peer, Operation::gather(&from(i)))).collect();
            tracks?.iter().try_for_each(|t| finish(job, t))?;
        }
        team.barrier()
    }));
}

/// A message longer than its scatter list is an error at both ends that names the other rank, and the next list is
/// transferred.
#[test]
fn list_that_is_too_short_is_an_error_at_both_ends_and_the_queue_pair_restarts() {
    well(two(|job| {
        let team = job.world()?;
        let signals = SignalArray::new(&team, 0)?;
        let peer = 1 - job.rank_number();
        let mut bytes = [0u8; 200];
        works(job, &signals, 1)?;
        team.barrier()?;
        let e = if job.rank_number() == 0 {
            let short = post(job, peer, Operation::scatter(&[Block { base: bytes.as_mut_ptr(), len: 100 }]))?;
            team.barrier()?;
            ended(job, short)
        } else {
            team.barrier()?;
            ended(job, post(job, peer, Operation::gather(&[Block::of(bytes.as_ptr(), 200)]))?)
        };
        assert_eq!((e.kind(), e.blamed_number()), (ErrorKind::BadArgument, Some(peer)), "{e}");
        assert_eq!(bytes[100..], [0; 100], "bytes behind the list");
        team.barrier()?;
        // Both ranks have seen the error; the connection is re-established without further action.
        std::thread::sleep(Duration::from_millis(300));
        team.barrier()?;
        works(job, &signals, 2)?;
        works(job, &signals, 3)
    }));
}

/// If the peer posts no scatter list, the sender gets an error within a bounded time.
#[test]
fn gather_without_scatter_is_an_error_that_names_the_rank() {
    well(two(|job| {
        let team = job.world()?;
        let signals = SignalArray::new(&team, 0)?;
        works(job, &signals, 1)?;
        team.barrier()?;
        if job.rank_number() == 0 {
            let bytes = [0u8; 8];
            let start = Instant::now();
            let e = ended(job, post(job, 1, Operation::gather(&[Block::of(bytes.as_ptr(), 8)]))?);
            assert_eq!((e.kind(), e.blamed()), (ErrorKind::Timeout, Some(1)), "{e}");
            assert!(e.to_string().contains("no scatter list"), "{e}");
            assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        }
        team.barrier()?;
        std::thread::sleep(Duration::from_millis(300));
        team.barrier()?;
        works(job, &signals, 2)
    }));
}

/// A cancelled scatter list is no longer written, although the peer sends; lists posted along with it end too.
#[test]
fn cancelled_list_is_not_accessed() {
    well(two(|job| {
        let team = job.world()?;
        let signals = SignalArray::new(&team, 0)?;
        let peer = 1 - job.rank_number();
        works(job, &signals, 1)?;
        let mut bytes = [7u8; 64];
        if job.rank_number() == 0 {
            let track = post(job, peer, Operation::scatter(&[Block { base: bytes.as_mut_ptr(), len: 64 }]))?;
            job.cancel(&track);
            assert_eq!(track.open(), 0);
            team.barrier()?;
        } else {
            team.barrier()?;
            // The list may be sent on the former connection or on the next one, on which no scatter list is posted.
            let e = ended(job, post(job, peer, Operation::gather(&[Block::of(bytes.as_ptr(), 64)]))?);
            assert_eq!(e.blamed_number(), Some(peer), "{e}");
        }
        team.barrier()?;
        assert_eq!(bytes, [7; 64]);
        std::thread::sleep(Duration::from_millis(300));
        team.barrier()?;
        works(job, &signals, 2)
    }));
}

/// One rank ends abnormally while lists are outstanding and waiting: the other reports that it is lost.
#[test]
fn peer_that_ends_during_its_lists_is_lost() {
    let errors = two(|job| {
        let team = job.world()?;
        let signals = SignalArray::new(&team, 0)?;
        works(job, &signals, 1)?;
        team.barrier()?;
        if job.rank_number() == 1 {
            return Err(Error::new(ErrorKind::Aborted, "end in the middle"));
        }
        let mut bytes = vec![0u8; 100_000];
        let block = [Block { base: bytes.as_mut_ptr(), len: bytes.len() }];
        let waiting = post(job, 1, Operation::scatter(&block))?;
        let e = finish(job, &waiting).unwrap_err();
        job.cancel(&waiting);
        assert_eq!((e.kind(), e.blamed()), (ErrorKind::PeerLost, Some(1)), "{e}");
        let e = post(job, 1, Operation::gather(&block)).unwrap_err();
        assert_eq!((e.kind(), e.blamed()), (ErrorKind::PeerLost, Some(1)), "{e}");
        Err(e)
    });
    for (e, kind) in errors.into_iter().flatten().zip([ErrorKind::PeerLost, ErrorKind::Aborted]) {
        let e = e.expect("an error at both");
        assert_eq!(e.kind(), kind, "{e}");
    }
}

#[test]
fn lists_that_are_too_long_or_carry_a_notification_are_refused() {
    well(two(|job| {
        let team = job.world()?;
        let signals = SignalArray::new(&team, 0)?;
        let limits = job.device().capabilities().lists.unwrap();
        let mut byte = 0u8;
        let many = vec![Block { base: &raw mut byte, len: 1 }; limits.blocks + 1];
        let long = [Block { base: &raw mut byte, len: limits.bytes + 1 }];
        for blocks in [&many[..], &long] {
            for operation in [Operation::gather(blocks), Operation::scatter(blocks)] {
                let e = post(job, 1, operation).unwrap_err();
                assert_eq!((e.kind(), e.blamed()), (ErrorKind::BadArgument, Some(1)), "{e}");
                assert!(e.to_string().contains("allowed"), "{e}");
            }
        }
        let notify = Some((signals.cell_at(1, 1, 1), 1));
        // SAFETY: the request is rejected.
        let e = unsafe { job.post(1, Operation::gather(&many[..1]), notify, &[]) }.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::BadArgument, "{e}");
        team.barrier()
    }));
}

fn sent_packets() -> Option<u64> {
    let devices = fs::read_dir("/sys/class/infiniband").ok()?.flatten();
    let counts = devices.map(|d| fs::read_to_string(d.path().join("ports/1/hw_counters/sent_pkts")).ok());
    counts.map(|c| c?.trim().parse::<u64>().ok()).sum()
}

/// A page in as many blocks as a list can have takes one packet and its acknowledgement, while separate writes would
/// take one packet per block.
#[test]
fn list_of_many_blocks_is_one_packet() {
    const ROUNDS: u64 = 50;
    const LEN: usize = 4096;
    if sent_packets().is_none() {
        println!("skipped: no counters of packets, as in the machine of ci/rxe");
        return;
    }
    let meeting = std::sync::Arc::new(std::sync::Barrier::new(2));
    well(two(move |job| {
        let team = job.world()?;
        let most = job.device().capabilities().lists.unwrap().blocks.min(32);
        let (peer, each) = (1 - job.rank_number(), LEN / most);
        let mut memory = vec![0u8; 2 * LEN];
        let blocks: Vec<Block> =
            (0..most).map(|i| Block { base: memory.as_mut_ptr().wrapping_add(2 * i * each), len: each }).collect();
        let mut counts = Vec::new();
        for rounds in [1, ROUNDS, 2 * ROUNDS] {
            team.barrier()?;
            std::thread::sleep(Duration::from_millis(30));
            meeting.wait();
            let before = sent_packets().unwrap();
            meeting.wait();
            for _ in 0..rounds {
                let list = match job.rank_number() {
                    0 => Operation::gather(&blocks),
                    _ => Operation::scatter(&blocks),
                };
                let scatter_first = if job.rank_number() == 1 { Some(post(job, peer, list)?) } else { None };
                team.barrier()?;
                let track = scatter_first.map_or_else(|| post(job, peer, list), Ok)?;
                finish(job, &track)?;
            }
            std::thread::sleep(Duration::from_millis(30));
            meeting.wait();
            counts.push(sent_packets().unwrap() - before);
            meeting.wait();
        }
        // Difference of two runs: a barrier of two ranks takes four packets, the list two.
        assert_eq!(counts[2] - counts[1], ROUNDS * (4 + 2), "{counts:?}");
        team.barrier()
    }));
}
