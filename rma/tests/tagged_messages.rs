//! Two-sided messages of Rust programs, over every configuration of the device and 1 to 4 ranks: matching, probes,
//! requests that are dropped, leaked or cancelled, and errors.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::checks::config::{Config, everywhere_with, verbs};
use farside_rma::messages::Status;
use farside_rma::prelude::*;

/// Runs `f` as 1 to 4 ranks over all configurations.
fn everywhere(f: impl Fn(&Team) -> Result<()> + Sync + Send + Copy + 'static) {
    everywhere_with(if verbs() { &[2, 3, 4] } else { &[1, 2, 3, 4] }, move |team: &Team, _: &Config| f(team));
}

/// [`everywhere`] except on simulations, where all ranks are on one thread, which can run only one rank's runtime.
fn everywhere_awaited(f: impl Fn(&Team) -> Result<()> + Sync + Send + Copy + 'static) {
    everywhere_with(if verbs() { &[2, 3, 4] } else { &[1, 2, 3, 4] }, move |team: &Team, config: &Config| {
        if config.seed.is_some() { Ok(()) } else { f(team) }
    });
}

/// Elements of messages: in one cache line, in one packet, in several, and with a rendezvous.
const COUNTS: [usize; 6] = [0, 1, 2, 300, 3000, 70_000];

fn data(from: usize, count: usize) -> Vec<u64> {
    (0..count).map(|i| (i * 31 + from * 17 + count) as u64).collect()
}

#[test]
fn every_length_around_a_ring_by_each_way_to_send_and_receive() {
    everywhere(|team| {
        let (me, p) = (team.rank(), team.size());
        let (right, left) = ((me + 1) % p, (me + p - 1) % p);
        for (i, count) in COUNTS.into_iter().enumerate() {
            let (tag, mine, theirs) = (i as i32, data(me, count), data(left, count));
            let status = Status { source: left, tag, len: 8 * count };
            let mut into = vec![0; count];
            assert_eq!(team.sendrecv(&mine, right, tag, &mut into, left, tag)?, status);
            assert!(into == theirs, "{count} elements by sendrecv");

            team.overlap(|messages| {
                let sent = messages.isend(&mine, right, tag)?;
                let synchronous = messages.issend(&mine, right, tag)?;
                assert_eq!(team.recv_vec(ANY_SOURCE, tag)?, (theirs.clone(), status));
                let message = team.mprobe(left, ANY_TAG)?;
                assert_eq!((message.status(), team.iprobe(ANY_SOURCE, tag)?), (status, None));
                let mut into = vec![0u64; count];
                assert_eq!(message.recv(&mut into)?, status);
                assert!(into == theirs, "{count} elements by mprobe");
                sent.wait()?;
                synchronous.wait()
            })?;

            // Rank 0 sends before it receives, so that no deadlock occurs if a send waits for its receive.
            if p == 1 {
                continue;
            }
            let mut into = vec![0u64; count];
            if me == 0 {
                team.send(&mine, right, tag)?;
                team.ssend(&mine, right, tag)?;
            }
            for _ in 0..2 {
                assert_eq!(team.recv(&mut into, left, tag)?, status);
                assert!(into == theirs, "{count} elements by recv");
            }
            if me != 0 {
                team.send(&mine, right, tag)?;
                team.ssend(&mine, right, tag)?;
            }
        }
        Ok(())
    });
}

#[test]
fn wildcards_take_what_came_first_and_tags_what_they_name() {
    everywhere(|team| {
        let (me, p) = (team.rank(), team.size());
        (0..3).try_for_each(|tag| team.send(&[me, tag], 0, tag as i32))?;
        if me > 0 {
            return Ok(());
        }
        // Receives by tag, from the last to the first, from any rank; then the rest in order.
        for _ in 0..p {
            let mut into = [9; 2];
            let status = team.recv(&mut into, ANY_SOURCE, 1)?;
            assert_eq!((into, status.tag), ([status.source, 1], 1));
        }
        let mut next = vec![0; p];
        for _ in 0..2 * p {
            let found = team.probe(ANY_SOURCE, ANY_TAG)?;
            let mut into = [9; 2];
            let status = team.recv(&mut into, ANY_SOURCE, ANY_TAG)?;
            assert_eq!((status, into), (found, [status.source, next[status.source]]));
            next[status.source] += 2;
        }
        assert!(team.iprobe(ANY_SOURCE, ANY_TAG)?.is_none());
        Ok(())
    });
}

#[test]
fn teams_of_their_own_have_messages_and_ranks_of_their_own() {
    everywhere(|team| {
        let (me, p) = (team.rank(), team.size());
        // All ranks, in reverse order.
        let Some(reversed) = team.split(Some(0), (p - me) as u32)? else { return Ok(()) };
        assert_eq!(reversed.rank(), p - 1 - me);
        reversed.send(&[1, me], p - 1, 5)?;
        team.send(&[0, me], 0, 5)?;
        for of_reversed in [0, 1].into_iter().cycle().take(if me == 0 { 2 * p } else { 0 }) {
            let mut into = [9; 2];
            let team = if of_reversed == 1 { &reversed } else { team };
            let status = team.recv(&mut into, ANY_SOURCE, ANY_TAG)?;
            assert_eq!(into, [of_reversed, team.members()[status.source] as usize]);
        }
        team.barrier()
    });
}

#[test]
fn requests_that_are_dropped_or_leaked_are_completed_by_the_scope() {
    everywhere(|team| {
        let (me, p) = (team.rank(), team.size());
        let (right, left) = ((me + 1) % p, (me + p - 1) % p);
        for count in COUNTS {
            let mine = data(me, count);
            let mut into = [vec![0; count], vec![0; count]];
            let [a, b] = &mut into;
            team.overlap(|messages| {
                drop(messages.irecv(a, left, 0)?);
                std::mem::forget(messages.irecv(b, left, 0)?);
                drop(messages.isend(&mine, right, 0)?);
                std::mem::forget(messages.issend(&mine, right, 0)?);
                Ok(())
            })?;
            assert!(into.iter().all(|into| *into == data(left, count)), "{count} elements");
        }
        Ok(())
    });
}

#[test]
fn buffers_are_left_alone_after_an_error_or_a_panic_in_the_scope() {
    everywhere(|team| {
        let (me, p) = (team.rank(), team.size());
        let (right, left) = ((me + 1) % p, (me + p - 1) % p);
        for panics in [false, true] {
            let mut into = vec![7u64; 3000];
            let failed = catch_unwind(AssertUnwindSafe(|| {
                team.overlap(|messages| -> Result<()> {
                    std::mem::forget(messages.irecv(&mut into, left, 1)?);
                    if panics {
                        panic!("in the scope");
                    }
                    team.job_rank(p).map(|_| ())
                })
            }));
            assert!(failed.map_or(panics, |result| result.is_err_and(|e| e.kind() == ErrorKind::NoSuchRank)));
            team.barrier()?;
            let mine = data(me, 3000);
            let mut later = vec![0u64; 3000];
            team.sendrecv(&mine, right, 1, &mut later, left, 1)?;
            assert!(into.iter().all(|n| *n == 7) && later == data(left, 3000));
        }
        Ok(())
    });
}

#[test]
fn longer_messages_and_parts_of_elements_are_errors_of_the_receive_alone() {
    everywhere(|team| {
        let (me, p) = (team.rank(), team.size());
        let (right, left) = ((me + 1) % p, (me + p - 1) % p);
        for count in [4, 3000, 70_000] {
            let mine = data(me, count);
            let mut into = vec![0u64; count];
            let refused = |e: &farside_rma::Error, what: &str| {
                let text = e.to_string();
                assert!(e.kind() == ErrorKind::BadArgument && text.contains(what), "{text}");
                assert!(text.contains(&format!("from rank {left} with tag 3")), "{text}");
            };
            let e = team.sendrecv(&mine, right, 3, &mut into[..2], left, 3).unwrap_err();
            refused(&e, "buffer has 16 bytes");
            assert_eq!(into[..2], data(left, count)[..2]);
            assert!(into[2..].iter().all(|n| *n == 0));

            // No call waits for the request, so the end of the scope returns the error.
            let bytes = vec![1u8; 4 * count + 1];
            let e = team.overlap(|messages| {
                drop(messages.irecv(&mut into[..1], left, 3)?);
                messages.isend(&bytes, right, 3)?.wait()
            });
            refused(&e.unwrap_err(), "buffer has 8 bytes");
            team.overlap(|messages| {
                let sent = messages.isend(&bytes, right, 3)?;
                refused(&team.recv_vec::<u32>(left, 3).unwrap_err(), "an element has 4");
                sent.wait()
            })?;
        }
        Ok(())
    });
}

#[test]
fn receives_are_cancelled_and_taken_messages_that_are_dropped_let_their_senders_go_on() {
    everywhere(|team| {
        let (me, p) = (team.rank(), team.size());
        let (right, left) = ((me + 1) % p, (me + p - 1) % p);
        let (mut never, mut nor_this) = ([5u8], [5u8]);
        team.overlap(|messages| {
            let mut request = messages.irecv(&mut never, left, 8)?;
            assert!(!request.test()? && request.cancel() && !request.cancel());
            assert_eq!(request.wait().unwrap_err().kind(), ErrorKind::Aborted);
            assert!(messages.irecv(&mut nor_this, left, 8)?.cancel());
            Ok(())
        })?;
        assert_eq!((never, nor_this), ([5], [5]));
        for count in COUNTS {
            let mine = data(me, count);
            team.overlap(|messages| {
                let sent = messages.issend(&mine, right, 2)?;
                drop(team.mprobe(left, 2)?);
                sent.wait()
            })?;
        }
        assert!(team.improbe(ANY_SOURCE, ANY_TAG)?.is_none());
        Ok(())
    });
}

#[test]
fn ranks_that_there_are_not_are_refused() {
    everywhere(|team| {
        let p = team.size();
        let mut into = [0u8];
        let e = [
            team.send(&[1], p, 0).unwrap_err(),
            team.recv(&mut into, p, 0).unwrap_err(),
            team.probe(p, 0).unwrap_err(),
            team.mprobe(p, ANY_TAG).unwrap_err(),
        ];
        assert!(e.iter().all(|e| e.kind() == ErrorKind::NoSuchRank), "{e:?}");
        Ok(())
    });
}

#[cfg(feature = "async")]
#[test]
fn many_requests_are_awaited_by_one_task() {
    everywhere_awaited(|team| {
        const MESSAGES: usize = 200;
        let (me, p) = (team.rank(), team.size());
        let (right, left) = ((me + 1) % p, (me + p - 1) % p);
        let mine: Vec<Vec<u64>> = (0..MESSAGES).map(|i| data(me, 7 * i)).collect();
        let mut into: Vec<Vec<u64>> = mine.iter().map(|mine| vec![0; mine.len()]).collect();
        team.overlap(|messages| {
            farside_rma::block_on(async {
                let mut requests = Vec::new();
                for (tag, into) in into.iter_mut().enumerate().rev() {
                    requests.push(messages.irecv(into, left, tag as i32)?);
                }
                for (tag, mine) in mine.iter().enumerate() {
                    messages.isend(mine, right, tag as i32)?.await?;
                }
                for (tag, request) in (0..MESSAGES).rev().zip(requests) {
                    assert_eq!(request.await?.1.tag, tag as i32);
                }
                Ok(())
            })?
        })?;
        assert!(into.iter().enumerate().all(|(i, into)| *into == data(left, 7 * i)));
        Ok(())
    });
}

#[cfg(feature = "async")]
#[test]
fn receive_gives_its_buffer_once_and_only_after_success() {
    everywhere_awaited(|team| {
        let (me, p) = (team.rank(), team.size());
        let (right, left) = ((me + 1) % p, (me + p - 1) % p);
        for (room, count) in [(5, 5), (70_000, 70_000), (3, 5)] {
            let (mine, mut into) = (data(me, count), vec![0; room]);
            team.overlap(|messages| {
                let mut request = messages.irecv(&mut into, left, 6)?;
                let sent = messages.isend(&mine, right, 6)?;
                let first = farside_rma::block_on(&mut request)?;
                for _ in 0..2 {
                    let e = farside_rma::block_on(&mut request)?.unwrap_err();
                    assert!(e.kind() == ErrorKind::BadArgument && e.to_string().contains("was already taken"), "{e}");
                }
                assert!(request.wait().is_err());
                sent.wait()?;
                match first {
                    Ok((buffer, status)) => {
                        assert_eq!((&*buffer, status.tag, room), (&data(left, count)[..], 6, count));
                        buffer.fill(1);
                    }
                    Err(e) => assert!(room < count && e.to_string().contains("buffer has 24 bytes"), "{e}"),
                }
                Ok(())
            })?;
            assert!(room < count || into.iter().all(|n| *n == 1));
        }
        Ok(())
    });
}
