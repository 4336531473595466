#![allow(unsafe_code)]
//! Notifications: seen after the data, and they wake a rank that sleeps.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use farside_core::bill::Awaited;
use farside_core::device::{Block, Operation, Sleep};
use farside_core::job::{Track, Unnotified};
use farside_core::signal::SignalArray;
use farside_core::stats::Kind;

use crate::world::{RAGGED, World};

check! {
    fn notify_is_seen_after_the_data(job, setup) over 2 {
        let world = World::new(job, setup, 70 << 10)?;
        let peer = 1 - world.me();
        let mut number = 0u64;
        for (len, rounds) in [(8, 1500), (100, 1500), (5000, 300), (70 << 10, 30)] {
            for _ in 0..setup.rounds(rounds, rounds / 10) {
                number += 1;
                let offset = if len < 5000 { RAGGED - 4 } else { 0 };
                if world.me() == 0 {
                    world.write_notify(peer, offset, &vec![number as u8; len], 2, number)?;
                    // The buffer may be written again once the reader has read it.
                    job.wait("the reader", || Ok((world.signals.get(peer, 3) == number).then_some(())))?;
                } else {
                    job.wait("the data", || Ok((world.signals.get(peer, 2) == number).then_some(())))?;
                    let bytes = world.own_bytes();
                    assert!(bytes[offset..offset + len].iter().all(|b| *b == number as u8), "round {number}, {len} bytes");
                    world.signals.set(peer, 3, number)?;
                }
            }
        }
        world.barrier()
    }
}

check! {
    fn notify_waits_for_every_byte_of_every_earlier_block(job, setup) over 2 {
        // The last bytes of a long write are the ones that a pipeline finishes last.
        let world = World::new(job, setup, 1 << 20)?;
        for number in 1..=8u64 {
            if world.me() == 0 {
                world.write_notify(1, 1, &vec![number as u8; (1 << 20) - 1], 2, number)?;
            } else {
                job.wait("the data", || Ok((world.signals.get(0, 2) >= number).then_some(())))?;
                assert!(world.own_bytes()[1..].iter().all(|b| *b == number as u8), "round {number}");
            }
            world.barrier()?;
        }
        Ok(())
    }
}

check! {
    fn signal_and_atomic_are_seen_after_earlier_writes(job, setup) over 2 {
        const LEN: usize = 64 << 10;
        const WRITES: usize = 8;
        let world = World::new(job, setup, LEN)?;
        for number in 1..=setup.rounds(200, 30) {
            let len = [8, 600, LEN / WRITES - 8][number as usize % 3];
            // Word 0 is that of the atomic.
            let at = |write: usize| 8 + write * (LEN / WRITES - 8);
            let is_signal = number % 2 == 0;
            if world.me() == 0 {
                let (bytes, track) = (vec![number as u8; len], Track::new());
                let from = [Block::of(bytes.as_ptr(), len)];
                for write in 0..WRITES {
                    let operation = Operation::write(&from, world.place(1, at(write)));
                    // SAFETY: complete before the end of the round.
                    unsafe { job.post(1, operation, None, &[&track]) }?;
                }
                if is_signal {
                    // A signal that is a store to mapped memory does not follow writes in progress.
                    if world.signals.is_mapped(1) {
                        job.wait("the writes", || Ok((track.open() == 0).then_some(())))?;
                    }
                    world.signals.set(1, 2, number)?;
                } else {
                    let add = Operation::fetch_add(world.place(1, 0), 1, std::ptr::null_mut());
                    // SAFETY: no local memory is involved.
                    unsafe { job.post(1, add, None, &[&track]) }?;
                }
                job.wait("the writes", || Ok((track.open() == 0).then_some(())))?;
                track.check()?;
            } else {
                let sum = number.div_ceil(2);
                let seen = || if is_signal { world.signals.get(0, 2) } else { world.own_word(0).load(Ordering::SeqCst) };
                let awaited = if is_signal { number } else { sum };
                // No peer announces an atomic.
                let reason = Unnotified(|| Awaited::unknown("the mark"));
                job.wait(reason, || Ok((seen() == awaited).then_some(())))?;
                let all = world.own_bytes();
                for write in 0..WRITES {
                    let is_placed = all[at(write)..][..len].iter().all(|byte| *byte == number as u8);
                    assert!(is_placed, "round {number}, write {write} of {len} bytes");
                }
            }
            world.barrier()?;
        }
        Ok(())
    }
}

// A rank that sleeps for up to a minute each time is signalled by three others: a lost wake-up would take the minute.
check! {
    fn signal_wakes_a_parked_rank_every_time(job, setup) over 4 {
        const LIMIT: Duration = Duration::from_secs(60);
        let rounds = setup.rounds(1000, 100);
        let team = job.world()?;
        let signals = SignalArray::new(&team, 1)?;
        if team.rank() > 0 {
            for round in 1..=rounds {
                signals.set(0, 1, round)?;
                // Two ranks signal at their own pace, and one signals in step with the sleeper, sometimes so late that
                // the sleeper sleeps.
                while team.rank() == 1 && signals.get(0, 1) < round {
                    job.progress()?;
                }
                if team.rank() == 1 && round.is_multiple_of(50) {
                    std::thread::sleep(Duration::from_millis(2));
                }
                if team.rank() == 3 && round.is_multiple_of(7) {
                    std::thread::yield_now();
                }
            }
        } else {
            for round in 1..=rounds {
                let start = Instant::now();
                while signals.get(1, 1) < round {
                    job.device().park(Sleep::For(LIMIT), &mut || signals.get(1, 1) >= round);
                    job.progress()?;
                    assert!(start.elapsed() < LIMIT, "a wake-up was lost in round {round}");
                }
                signals.set(1, 1, round)?;
            }
            assert!(job.stats().count(Kind::Park) > 0, "it never slept");
        }
        team.barrier()
    }
}

check! {
    fn signal_through_post_sets_the_cell(job, setup) over 3 {
        let world = World::new(job, setup, 64)?;
        for to in 0..3 {
            let at = world.signals.cell_at(to, 7, 40 + world.me() as u64);
            world.complete(to, Operation::Signal { at, value: 40 + world.me() as u64 })?;
        }
        for from in 0..3 {
            job.wait("signals", || Ok((world.signals.get(from, 7) == 40 + from as u64).then_some(())))?;
            assert_eq!(world.signals.get(from, 6), 0);
        }
        assert_eq!(world.signals.own_word(0).load(Ordering::SeqCst), 0);
        world.barrier()
    }
}
