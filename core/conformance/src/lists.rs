#![allow(unsafe_code)]
//! Scatter and gather lists: if a device supports them they match in order, otherwise they are refused.

use farside_core::device::{Block, Operation};
use farside_core::job::Track;
use farside_core::stats::Kind;
use farside_core::{ErrorKind, Job};

use crate::world::{World, pattern};

fn blocks(parts: &mut [Vec<u8>]) -> Vec<Block> {
    parts.iter_mut().map(|p| Block { base: p.as_mut_ptr(), len: p.len() }).collect()
}

fn refused(job: &Job, operation: Operation<'_>) {
    // SAFETY: refused, so no memory is used.
    let e = unsafe { job.post(0, operation, None, &[]) }.unwrap_err();
    assert_eq!((e.kind(), e.blamed()), (ErrorKind::Unsupported, Some(0)), "{e}");
}

check! {
    fn lists_match_in_order_or_are_refused(job, setup) over 3 {
        if job.device().capabilities().lists.is_none() {
            refused(job, Operation::gather(&[]));
            refused(job, Operation::scatter(&[]));
            return Ok(());
        }
        let world = World::new(job, setup, 64)?;
        let (me, ranks) = (world.me(), world.team.size());
        let (to, from) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
        // Two messages each way: one block to three, and three to one.
        let mut into = [vec![vec![0u8; 100], vec![0; 1], vec![0; 899]], vec![vec![0u8; 1200]]];
        let mut out = [vec![pattern(me, 1000)], vec![pattern(me + 10, 400), pattern(me + 20, 400), pattern(me + 30, 400)]];
        let (received, sent) = (Track::new(), Track::new());
        let post = |peer: usize, operation: Operation<'_>, track| {
            // SAFETY: the vectors outlive the waits below.
            unsafe { job.post(peer as u32, operation, None, &[track]) }.map(|_| ())
        };
        for parts in &mut into {
            post(from, Operation::scatter(&blocks(parts)), &received)?;
        }
        world.barrier()?;
        let before = job.stats();
        for parts in &mut out {
            post(to, Operation::gather(&blocks(parts)), &sent)?;
        }
        job.wait("lists", || Ok((received.open() + sent.open() == 0).then_some(())))?;
        received.check()?;
        sent.check()?;
        let spent = job.stats() - before;
        assert_eq!((spent.count(Kind::Gather), spent.bytes(Kind::Gather), spent.count(Kind::Copy)), (2, 2200, 0));
        assert_eq!(into[0].concat(), pattern(from, 1000));
        assert_eq!(into[1][0], [pattern(from + 10, 400), pattern(from + 20, 400), pattern(from + 30, 400)].concat());
        world.barrier()
    }
}

check! {
    fn scatter_that_stays_open_does_not_hold_up_the_end(job, setup) over 2 {
        if job.device().capabilities().lists.is_none() {
            return setup.skip("no lists");
        }
        if job.rank_number() == 0 {
            let into = [Block { base: Box::leak(Box::new([0u8; 100])).as_mut_ptr(), len: 100 }];
            // SAFETY: the memory is never freed.
            unsafe { job.post(1, Operation::scatter(&into), None, &[]) }?;
        }
        Ok(())
    }
}
