//! Teams: made locally by every member, split, kept separate; their barriers.

use std::sync::atomic::{AtomicU64, Ordering};

use farside_core::settings::Settings;
use farside_core::signal::SignalArray;
use farside_core::{Error, ErrorKind, Job, Result, Team, coll};

use super::{every_size, some_sizes};

/// Rank sums over `team`, mixed with barriers.
fn use_team(team: &Team, tag: u8) -> Result<()> {
    let got = coll::allgather(team, &[tag, team.rank() as u8])?;
    assert!(got.iter().enumerate().all(|(r, b)| *b == [tag, r as u8]), "{tag}: {got:?}");
    Ok(())
}

#[test]
fn contexts_of_overlapping_teams_do_not_mix() {
    every_size(|job| {
        let world = job.world()?;
        let p = world.size();
        let everyone = world.split(Some(0), 0)?.unwrap();
        let backwards: Vec<usize> = (0..p).rev().collect();
        let backwards = world.subteam(&backwards)?.unwrap();
        let low = world.subteam(&(0..p.div_ceil(2)).collect::<Vec<_>>())?;
        let nested = backwards.subteam(&[0])?;
        assert_eq!(backwards.rank(), p - 1 - world.rank());
        assert_eq!(low.is_some(), world.rank() < p.div_ceil(2));
        assert_eq!(nested.is_some(), world.rank() == p - 1);
        // Ranks that are in fewer teams run ahead; the calls of one team must not match those of another.
        for i in 0..10 {
            if let Some(low) = &low {
                use_team(low, i)?;
            }
            use_team(&everyone, i + 50)?;
            use_team(&backwards, i + 100)?;
            if let Some(nested) = &nested {
                use_team(nested, i + 150)?;
                nested.barrier()?;
            }
            use_team(&world, i + 200)?;
        }
        world.barrier()
    });
}

#[test]
fn subteam_of_bad_ranks_is_refused_everywhere() {
    every_size(|job| {
        let team = job.world()?;
        assert_eq!(team.subteam(&[team.size()]).unwrap_err().kind(), ErrorKind::NoSuchRank);
        assert_eq!(team.subteam(&[0, 0]).unwrap_err().kind(), ErrorKind::BadArgument);
        assert!(team.subteam(&[])?.is_none());
        team.barrier()
    });
}

/// Only members make the team, each at a different time; all know its context. The last member makes it after messages
/// of the others have arrived.
#[test]
fn team_of_members_sends_nothing_and_receives_earlier_messages() {
    every_size(|job| {
        let world = job.world()?;
        let odd: Vec<u32> = (0..job.size_number()).filter(|rank| rank % 2 == 1).collect();
        let even: Vec<u32> = (0..job.size_number()).rev().filter(|rank| rank % 2 == 0).collect();
        // Teams that share no member may use the same context.
        let members = if job.rank_number() % 2 == 1 { &odd } else { &even };
        for i in 0..3 {
            if members.first() == Some(&job.rank_number()) {
                job.wait("nothing", || job.progress().map(|any| (!any).then_some(())))?;
            }
            let before = job.stats();
            let team = Team::of(job, members, Job::FIXED_CONTEXTS - 1)?;
            assert_eq!((job.stats() - before).messages(), 0);
            assert_eq!(team.members(), members);
            use_team(&team, i)?;
            // A fixed context may be used again after all members have dropped its team.
            drop(team);
            world.barrier()?;
        }
        Ok(())
    });
}

#[test]
fn contexts_of_all_ranks_differ() {
    every_size(|job| {
        let world = job.world()?;
        let mine: Vec<u8> = (0..20)
            .map(|_| job.new_context())
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .flat_map(u32::to_le_bytes)
            .collect();
        let mut all: Vec<u32> = coll::allgather(&world, &mine)?
            .concat()
            .chunks_exact(4)
            .map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap()))
            .collect();
        assert!(all.iter().all(|context| *context >= Job::FIXED_CONTEXTS));
        let given = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!((given, all.len()), (20 * world.size(), 20 * world.size()));
        Ok(())
    });
}

#[test]
fn team_of_wrong_members_is_refused() {
    every_size(|job| {
        let refused = |members: &[u32], context, kind| {
            let e = Team::of(job, members, context).unwrap_err();
            assert_eq!(e.kind(), kind, "{e}");
        };
        let me = job.rank_number();
        refused(&[], 1, ErrorKind::BadArgument);
        refused(&[me, me], 1, ErrorKind::BadArgument);
        refused(&[me, job.size_number()], 1, ErrorKind::NoSuchRank);
        if job.size_number() > 1 {
            refused(&[(me + 1) % job.size_number()], 1, ErrorKind::BadArgument);
        }
        let alone = Team::of(job, &[me], 1)?;
        refused(&[me], 1, ErrorKind::BadArgument);
        drop(alone);
        Team::of(job, &[me], 1).map(drop)
    });
}

#[test]
fn members_in_another_order_are_a_mismatch() {
    every_size(|job| {
        let (p, me) = (job.size_number(), job.rank_number());
        let turned: Vec<u32> = (0..p).map(|i| if me == 0 { i } else { (i + 1) % p }).collect();
        let team = Team::of(job, &turned, 1)?;
        let used = use_team(&team, 1);
        assert_eq!(
            used.as_ref().map_err(Error::kind),
            if p == 1 { Ok(&()) } else { Err(ErrorKind::Mismatch) },
            "{used:?}"
        );
        job.world()?.barrier()
    });
}

/// The barrier that each rank has entered last: a greater number for a later barrier, and for one of more ranks.
type Entered = [AtomicU64; 9];

/// Barriers, none of which may release a rank before the last rank has entered.
fn barriers(team: &Team, rounds: u64, entered: &Entered) -> Result<()> {
    for round in 1..=rounds {
        // A different rank is late each time.
        if round as usize % team.size() == team.rank() {
            std::thread::yield_now();
        }
        let barrier = 1000 * team.size() as u64 + round;
        entered[team.rank()].store(barrier, Ordering::SeqCst);
        team.barrier()?;
        for (from, last) in entered.iter().take(team.size()).enumerate() {
            assert!(last.load(Ordering::SeqCst) >= barrier, "out in round {round} before rank {from} was in");
        }
    }
    team.barrier()
}

#[test]
fn barrier_lets_no_rank_out_before_the_last_is_in() {
    let entered = Entered::default();
    every_size(|job| barriers(&job.world()?, 50, &entered));
}

/// Barriers with messages, during the construction of the signal array, and with signals.
#[test]
fn barrier_of_a_new_team_lets_no_rank_out_before_the_last_is_in() {
    let entered = Entered::default();
    every_size(|job| {
        let backwards: Vec<usize> = (0..job.size()).rev().collect();
        barriers(&job.world()?.subteam(&backwards)?.unwrap(), 10, &entered)
    });
}

/// On any machine: ranks that never spin are treated as ranks that share cores, ranks that only spin as ranks that do
/// not.
#[test]
fn barrier_of_either_kind_lets_no_rank_out_before_the_last_is_in() {
    for (wait, oversubscribed, rounds) in [("park", true, 50), ("spin", false, 5)] {
        let settings = Settings::from_lookup(|name| (name == "FARSIDE_WAIT").then(|| wait.to_owned())).unwrap();
        for p in some_sizes() {
            let entered = Entered::default();
            let run = |job: &Job| {
                let team = job.world()?;
                // Memory that is not mapped, as over a network, has no counter to which all ranks could add.
                assert_eq!(
                    team.is_oversubscribed(),
                    oversubscribed && p > 2 && job.device().capabilities().mapped,
                    "{wait}, {p}"
                );
                barriers(&team, rounds, &entered)
            };
            Job::threads_with(p as usize, &settings, run).unwrap_or_else(|e| panic!("{wait}, {p} ranks: {e}"));
        }
    }
}

/// Ranks that disagree on the length of a signal array get an error, and no rank accesses memory beyond the shorter
/// one.
#[test]
fn signal_array_of_different_lengths_is_a_mismatch() {
    for p in some_sizes() {
        let run = |job: &Job| {
            let team = job.world()?;
            let words = if team.rank() == 1 { 0 } else { 1000 };
            let e = SignalArray::new(&team, words).expect_err("the lengths differ");
            assert_eq!(e.kind(), ErrorKind::Mismatch, "{e}");
            team.barrier()
        };
        Job::threads(p as usize, run).unwrap_or_else(|e| panic!("{p} ranks: {e}"));
    }
}

/// A word may hold any value, even those by which a device marks a missing answer.
#[test]
fn compare_swap_returns_any_value_of_a_word() {
    let settings = Settings::from_lookup(|name| (name == "FARSIDE_TEST_FAULT").then(|| "unmapped".to_owned())).unwrap();
    let run = |job: &Job| {
        let team = job.world()?;
        let signals = SignalArray::new(&team, 1)?;
        if team.rank() == 0 {
            for (add, now) in [(u64::MAX, u64::MAX), (u64::MAX, u64::MAX - 1)] {
                signals.fetch_add(1, 0, add)?;
                assert_eq!(signals.compare_swap(1, 0, 0, 5)?, now);
                assert_eq!(signals.compare_swap(1, 0, !now, 5)?, now);
            }
            assert_eq!(signals.compare_swap(1, 0, u64::MAX - 1, 5)?, u64::MAX - 1);
            assert_eq!(signals.compare_swap(1, 0, 5, 5)?, 5);
        }
        team.barrier()
    };
    Job::threads_with(2, &settings, run).unwrap();
}
