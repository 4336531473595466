//! Conveyors: every item arrives once, with its source and in order; loops of pushes and pulls; bounded memory.

use farside_rma::aggregate::{Conveyor, Options};
use farside_rma::prelude::*;

use super::{OPTIONS, everywhere};

#[test]
fn items_arrive_once_in_order_with_their_source() {
    everywhere(&[1, 3, 8], |team, _| {
        let (p, me) = (team.size(), team.rank());
        for options in OPTIONS {
            let mut conveyor = Conveyor::<[u32; 3]>::with(team, options)?;
            // It can be used again, by ranks that arrive at different times.
            for phase in 0..2 {
                let all = 120 * p as u32 / (1 + me as u32);
                let (mut next, mut from) = (0, vec![0; p]);
                while conveyor.advance(next == all)? {
                    while next < all && conveyor.push(next as usize % p, [phase, me as u32, next])? {
                        next += 1;
                    }
                    let mut put_back = false;
                    while let Some((source, item)) = conveyor.pull()? {
                        if !put_back && item[2] % 5 == 0 {
                            put_back = true;
                            conveyor.unpull();
                            continue;
                        }
                        put_back = false;
                        let expected = [phase, source as u32, from[source] * p as u32 + me as u32];
                        assert_eq!(item, expected, "{options:?}");
                        from[source] += 1;
                    }
                }
                for (source, count) in from.iter().enumerate() {
                    let sent = 120 * p as u32 / (1 + source as u32);
                    assert_eq!(*count, (0..sent).filter(|i| *i as usize % p == me).count() as u32);
                }
            }
            conveyor.free()?;
        }
        Ok(())
    });
}

/// Each item makes two others, until it is old.
#[test]
fn handlers_push_again_and_all_items_are_consumed() {
    everywhere(&[1, 2, 3, 5], |team, _| {
        let (p, me) = (team.size(), team.rank());
        for options in OPTIONS {
            let mut conveyor = Conveyor::<u64>::with(team, options)?;
            let mut count = [0u64];
            let first = (me == 0).then_some((p - 1, 9));
            conveyor.drive(first, |outbox, from, age| {
                count[0] += 1;
                for step in 1..=2 {
                    if age > 0 {
                        outbox.push((me + from + step) % p, age - 1);
                    }
                }
            })?;
            team.allreduce(&mut count, Op::Sum)?;
            assert_eq!(count[0], 1023, "{options:?}");
            conveyor.free()?;
        }
        Ok(())
    });
}

/// A rank that does not pull makes the others wait, and nothing is stored beyond the given memory.
#[test]
fn pushes_are_refused_while_the_target_pulls_nothing() {
    everywhere(&[2, 3], |team, _| {
        let me = team.rank();
        let options = Options { bytes: 16 << 10, hops: Some(1) };
        let mut conveyor = Conveyor::<u64>::with(team, options)?;
        let mut pushed = [0u64];
        if me > 0 {
            // The refusals end only with the pulls of rank 0.
            for _ in 0..200 {
                while conveyor.push(0, pushed[0])? {
                    pushed[0] += 1;
                }
                conveyor.advance(false)?;
            }
            assert!(8 * pushed[0] <= 16 << 10, "{} items", pushed[0]);
        }
        team.barrier()?;
        let mut pulled = 0;
        while conveyor.advance(true)? {
            while conveyor.pull()?.is_some() {
                pulled += 1;
            }
        }
        team.allreduce(&mut pushed, Op::Sum)?;
        assert_eq!(pulled, if me == 0 { pushed[0] } else { 0 });
        conveyor.free()
    });
}
