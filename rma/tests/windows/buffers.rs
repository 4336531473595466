//! Buffers inside epochs: returned by requests and reused, in parts, the window's own memory, a shared view of it;
//! bodies with errors of other types.

use farside_rma::{Assert, Error, ErrorKind, LockKind, LockWindow, Result, Team, Window};

use crate::checks::config::{Config, Memory, everywhere, everywhere_with};

const NONE: Assert = Assert::empty();

fn lockable(team: &Team, config: &Config, len: usize) -> Result<LockWindow<u64>> {
    match config.memory {
        Memory::Allocated => LockWindow::allocate(team, len),
        Memory::Vector => LockWindow::from_vec(team, vec![0; len]),
    }
}

fn active(team: &Team, config: &Config, len: usize) -> Result<Window<'static, u64>> {
    match config.memory {
        Memory::Allocated => Window::allocate(team, len),
        Memory::Vector => Window::from_vec(team, vec![0; len]),
    }
}

#[test]
fn one_buffer_goes_round_inside_an_epoch() {
    everywhere(|team, config| {
        let (p, me) = (team.size(), team.rank());
        let (rounds, len) = (5, 70);
        let window = lockable(team, config, p * len)?;
        let (mut buffer, mut old) = (vec![0u64; len], [0u64; 3]);
        window.lock_all(NONE, |epoch| {
            let (mut buffer, mut old) = (&mut buffer[..], &mut old[..]);
            for round in 1..=rounds {
                for target in 0..p {
                    buffer.fill(round * 1000 + target as u64);
                    buffer = epoch.rput(buffer, target, me * len)?.wait()?;
                    // The buffer is overwritten before it is read back.
                    buffer.fill(0);
                    buffer = epoch.rget(buffer, target, me * len)?.wait()?;
                    assert!(buffer.iter().all(|x| *x == round * 1000 + target as u64), "{buffer:?}");
                    old = epoch.rget_accumulate(farside_rma::Op::Sum, &[1; 3], old, target, me * len + 1)?.wait()?;
                    assert_eq!(old, [round * 1000 + target as u64; 3]);
                    let mut request = epoch.rput(buffer, target, me * len)?;
                    buffer = loop {
                        if let Some(returned) = request.test()? {
                            break returned;
                        }
                    };
                }
            }
            Ok(())
        })?;
        assert_eq!(old[0], rounds * 1000 + p as u64 - 1);
        team.barrier()?;
        window.free()
    });
}

#[test]
fn blocking_slices_are_complete_on_return() {
    everywhere(|team, config| {
        let (p, me) = (team.size(), team.rank());
        let window = lockable(team, config, 40 * p)?;
        window.lock_all(NONE, |epoch| {
            for target in 0..p {
                for len in [0, 1, 3, 40] {
                    epoch.put_blocking(&vec![(10 * me + len) as u64; len], target, 40 * me)?;
                    let mut got = vec![1; len];
                    epoch.get_into_blocking(&mut got, target, 40 * me)?;
                    assert_eq!(got, vec![(10 * me + len) as u64; len]);
                }
            }
            let e = epoch.put_blocking(&[1, 2], 0, 40 * p - 1).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::OutOfRange);
            epoch.put_blocking(&[7], me, 40 * me)
        })?;
        team.barrier()?;
        window.free()
    });
}

#[test]
fn parts_of_one_buffer_are_disjoint() {
    everywhere_with(&[2, 3], |team, config| {
        let p = team.size();
        let mut window = active(team, config, 4)?;
        let me = team.rank() as u64;
        window.local_mut()?.copy_from_slice(&[0, 1, 2, 3].map(|i| 10 * me + i));
        let mut buffer = vec![99; 2 * p + 2];
        let parts: Vec<_> = (0..p).map(|t| (2 * t + 1..2 * t + 3, t, t % 3)).collect();
        window.fence(NONE, |epoch| epoch.get_parts(&mut buffer, &parts))?;
        for t in 0..p {
            assert_eq!(buffer[2 * t + 1..2 * t + 3], [0, 1].map(|i| (10 * t + t % 3 + i) as u64));
        }
        assert_eq!((buffer[0], buffer[2 * p + 1]), (99, 99));
        let mut small = [0; 4];
        for parts in [[(0..2, 0, 0), (1..3, 1, 0)], [(2..4, 0, 0), (4..5, 1, 0)], [(0..1, 0, 0), (0..1, 0, 1)]] {
            let e = window.fence(NONE, |epoch| epoch.get_parts(&mut small, &parts)).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::BadArgument, "{e}");
        }
        window.free()
    });
}

#[test]
fn own_memory_is_the_origin() {
    everywhere(|team, config| {
        let (p, me) = (team.size(), team.rank());
        let (right, left) = ((me + 1) % p, (me + p - 1) % p);
        let mut window = active(team, config, 600)?;
        window.local_mut()?[..200].fill(me as u64 + 1);
        window.fence(NONE, |epoch| epoch.put_own(0..200, right, 200))?;
        assert!(window.local()?[200..400].iter().all(|x| *x == left as u64 + 1));
        // The elements from the left neighbour are passed on to the right neighbour.
        window.expose(&[left], NONE, |exposure| {
            exposure.start(&[right], NONE, |epoch| epoch.put_own(200..400, right, 400))
        })?;
        assert!(window.local()?[400..].iter().all(|x| *x == ((me + 2 * p - 2) % p) as u64 + 1));
        let e = window.fence(NONE, |epoch| epoch.put_own(599..601, me, 0)).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::OutOfRange);
        window.free()?;

        let window = lockable(team, config, 8)?;
        window.with_local(|own| {
            own[0] = me as u64 + 5;
            Ok::<(), Error>(())
        })?;
        window.lock(LockKind::Exclusive, right, NONE, |epoch| epoch.put_own(0..1, right, 7))?;
        team.barrier()?;
        assert_eq!(window.local_shared().load(7)?, left as u64 + 5);
        // An overlapping put from the window to itself is the first operation of an epoch.
        window.local_shared().write(0, &[1, 2, 3, 4, 5])?;
        window.lock_all(NONE, |epoch| epoch.put_own(0..5, me, 2))?;
        assert_eq!(window.local_shared().to_vec()?, [1, 2, 1, 2, 3, 4, 5, left as u64 + 5]);
        team.barrier()?;
        // An operation that reads the memory completes before local access is granted. The ranks run one after another,
        // since each would hold the lock of its neighbour while it waits for its own.
        for turn in 0..p {
            if turn == me {
                window.lock(LockKind::Shared, right, NONE, |epoch| {
                    epoch.put_own(0..1, right, 6)?;
                    if right == me {
                        return Ok(());
                    }
                    window.with_local(|own| {
                        own[0] = 9;
                        Ok(())
                    })
                })?;
            }
            team.barrier()?;
        }
        assert_eq!(window.local_shared().load(6)?, 1);
        team.barrier()?;
        // During exclusive local access the memory cannot be an origin; one rank after another, for the same reason.
        for turn in 0..p {
            if turn == me {
                let e = window
                    .with_local(|_| window.lock(LockKind::Shared, right, NONE, |epoch| epoch.put_own(0..1, right, 6)));
                assert!(p == 1 || e.unwrap_err().kind() == ErrorKind::WrongEpoch);
            }
            team.barrier()?;
        }
        window.free()
    });
}

/// A consumer that reads its own memory while producer and consumer both hold `lock_all`.
#[test]
fn shared_view_sees_what_a_peer_puts() {
    everywhere_with(&[2], |team, config| {
        let peer = 1 - team.rank();
        let window = lockable(team, config, 100)?;
        let view = window.local_shared();
        assert_eq!((view.len(), view.is_empty()), (100, false));
        window.lock_all(NONE, |epoch| {
            for round in 1..=50 {
                epoch.put_blocking(&[round; 98], peer, 0)?;
                epoch.put_blocking(&[round], peer, 99)?;
                while view.load(99)? < round {
                    team.job().progress()?;
                }
                let mut seen = [0; 98];
                view.read(0, &mut seen)?;
                assert!(seen.iter().all(|x| (round..=round + 1).contains(x)), "round {round}: {seen:?}");
            }
            Ok(())
        })?;
        team.barrier()?;
        view.store(98, 4)?;
        view.write(96, &[2, 3])?;
        assert_eq!(view.to_vec()?[96..], [2, 3, 4, 50]);
        window.with_local(|own| {
            assert_eq!(own[96..98], [2, 3]);
            assert_eq!(view.load(0).unwrap_err().kind(), ErrorKind::WrongEpoch);
            assert_eq!(view.store(0, 1).unwrap_err().kind(), ErrorKind::WrongEpoch);
            Ok::<(), Error>(())
        })?;
        assert_eq!(view.load(97)?, 3);
        team.barrier()?;
        window.free()
    });
}

/// A helper over an epoch: the buffer lives as long as the epoch's scope, and the other lifetime is elided.
fn exchange<'s>(
    epoch: &'s farside_rma::Epoch<'s, '_, u64>,
    mine: &'s [u64],
    theirs: &'s mut [u64],
    peer: usize,
) -> Result<()> {
    epoch.put(mine, peer, 0)?;
    epoch.get(theirs, peer, 50)
}

#[test]
fn bodies_fail_with_errors_of_any_type() {
    #[derive(Debug)]
    enum Own {
        Farside(Error),
        Parse(#[allow(dead_code)] std::num::ParseIntError),
    }
    impl From<Error> for Own {
        fn from(e: Error) -> Self {
            Own::Farside(e)
        }
    }
    impl From<std::num::ParseIntError> for Own {
        fn from(e: std::num::ParseIntError) -> Self {
            Own::Parse(e)
        }
    }
    everywhere_with(&[2], |team, config| {
        let peer = 1 - team.rank();
        let mut window = active(team, config, 60)?;
        window.local_mut()?[50..].fill(3);
        let number = |text: &str| text.parse::<u64>();
        let (mut mine, mut theirs) = ([0; 2], [0; 10]);
        let done = (|| -> std::result::Result<(), Own> {
            mine[0] = number("17")?;
            window.fence(NONE, |epoch| {
                exchange(epoch, &mine, &mut theirs, peer)?;
                number("x").map(drop).or_else(|_| number("18").map(drop))?;
                Ok(())
            })
        })();
        assert!(done.is_ok(), "{done:?}");
        assert_eq!((theirs, window.local()?[0]), ([3; 10], 17));
        let failed: std::result::Result<(), Own> = window.fence(NONE, |_| Ok(number("y").map(drop)?));
        assert!(matches!(failed, Err(Own::Parse(_))), "{failed:?}");
        let failed: std::result::Result<(), Own> = window.fence(NONE, |epoch| Ok(epoch.put_value(1, 7, 0)?));
        assert!(matches!(&failed, Err(Own::Farside(e)) if e.kind() == ErrorKind::NoSuchRank), "{failed:?}");
        let boxed: std::result::Result<u8, Box<dyn std::error::Error>> =
            window.fences(|fences| fences.epoch(NONE, |_| Err("stop".into())));
        assert_eq!(boxed.unwrap_err().to_string(), "stop");
        window.free()
    });
}
