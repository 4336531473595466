//! Wrong schedules are detected: several of each kind of mistake.

use farside_schedule::operation::{Call, Neighbors, Operation};
use farside_schedule::schedule::check::{Fault, FaultKind, check, check_algorithm};
use farside_schedule::schedule::{Action, Buffer, Builder, Schedule, Side, Slice, Step};
use farside_schedule::table;

const fn input(first: u32, count: u32) -> Slice {
    Slice::input(first, count)
}

const fn output(first: u32, count: u32) -> Slice {
    Slice::output(first, count)
}

/// Checks the steps that `steps(rank, builder)` adds, for vectors in `parts`.
fn checked(operation: Operation, p: u32, parts: u32, steps: impl Fn(u32, &mut Builder)) -> Result<(), Fault> {
    let calls: Vec<Call<'_>> = (0..p).map(|rank| Call::new(operation, rank, p)).collect();
    let schedules: Vec<Schedule> = calls
        .iter()
        .map(|call| {
            let mut builder = call.builder(parts);
            steps(call.rank, &mut builder);
            builder.done()
        })
        .collect();
    check(&calls, &schedules, false, &[]).map(drop)
}

/// Asserts that the steps have this mistake.
fn wrong(kind: FaultKind, operation: Operation, p: u32, steps: impl Fn(u32, &mut Builder)) {
    let got = checked(operation, p, 1, steps);
    assert_eq!(got.as_ref().map_err(|f| f.kind), Err(kind), "{got:?}");
}

/// Asserts that the steps are right.
fn right(operation: Operation, p: u32, steps: impl Fn(u32, &mut Builder)) {
    assert_eq!(checked(operation, p, 1, steps), Ok(()));
}

/// Both of two ranks send their input, and receive that of the other with `takes`.
fn exchange(s: &mut Builder, rank: u32, takes: impl Fn(&mut Builder)) {
    s.copy(&[input(0, 1)], &[output(0, 1)]);
    s.send(1 - rank, 0, &[input(0, 1)]);
    takes(s);
}

#[test]
fn empty() {
    use FaultKind::Empty;
    // Sends, copies and reductions of blocks that were never written; a forward before the receive.
    wrong(Empty, Operation::Broadcast, 2, |rank, s| match rank {
        0 => s.receive(1, 0, &[output(0, 1)]),
        _ => s.send(0, 0, &[output(0, 1)]),
    });
    wrong(Empty, Operation::Broadcast, 1, |_, s| {
        let scratch = s.scratch([0]);
        s.copy(&[scratch], &[output(0, 1)]);
    });
    wrong(Empty, Operation::Reduce, 1, |_, s| s.reduce(&[input(0, 1)], Side::Left, &[output(0, 1)]));
    wrong(Empty, Operation::Allreduce, 2, |rank, s| {
        s.send(1 - rank, 0, &[input(0, 1)]);
        s.receive_reduce(1 - rank, 0, Side::Left, &[output(0, 1)]);
    });
    wrong(Empty, Operation::Broadcast, 3, |rank, s| match rank {
        0 => s.send(1, 0, &[output(0, 1)]),
        1 => {
            s.send(2, 0, &[output(0, 1)]);
            s.receive(0, 0, &[output(0, 1)]);
        }
        _ => s.receive(1, 0, &[output(0, 1)]),
    });
}

#[test]
fn result() {
    use FaultKind::Result;
    // No steps at all; a block omitted; blocks exchanged; a contribution lost; one too many; the block of another rank.
    wrong(Result, Operation::Broadcast, 2, |_, _| {});
    wrong(Result, Operation::Allgather, 1, |_, _| {});
    wrong(Result, Operation::Gather, 3, |rank, s| match rank {
        0 => {
            s.copy(&[input(0, 1)], &[output(0, 1)]);
            s.receive(1, 0, &[output(1, 1)]);
        }
        1 => s.send(0, 0, &[input(0, 1)]),
        _ => {}
    });
    let alltoall = |swapped: u32| {
        checked(Operation::Alltoall, 2, 1, |rank, s| {
            s.copy(&[input(rank, 1)], &[output(rank, 1)]);
            s.send(1 - rank, 0, &[input((1 - rank) ^ swapped, 1)]);
            s.receive(1 - rank, 0, &[output(1 - rank, 1)]);
        })
    };
    assert_eq!((alltoall(0), alltoall(1).map_err(|f| f.kind)), (Ok(()), Err(Result)));
    let reduce = |s: &mut Builder, rank: u32, ranks: std::ops::Range<u32>| match rank {
        0 => {
            s.copy(&[input(0, 1)], &[output(0, 1)]);
            ranks.for_each(|r| s.receive_reduce(r, 0, Side::Right, &[output(0, 1)]));
        }
        r if ranks.contains(&r) => s.send(0, 0, &[input(0, 1)]),
        _ => {}
    };
    right(Operation::Reduce, 4, |rank, s| reduce(s, rank, 1..4));
    wrong(Result, Operation::Reduce, 4, |rank, s| reduce(s, rank, 1..3));
    // An inclusive scan instead of an exclusive one, and the reverse.
    let scan = |s: &mut Builder, rank: u32| exchange_up(s, rank, true);
    right(Operation::Scan, 2, |rank, s| scan(s, rank));
    wrong(Result, Operation::Exscan, 2, |rank, s| scan(s, rank));
    right(Operation::Exscan, 2, |rank, s| exchange_up(s, rank, false));
    wrong(Result, Operation::Scan, 2, |rank, s| exchange_up(s, rank, false));
}

fn exchange_up(s: &mut Builder, rank: u32, inclusive: bool) {
    if inclusive {
        s.copy(&[input(0, 1)], &[output(0, 1)]);
    }
    match (rank, inclusive) {
        (0, _) => s.send(1, 0, &[input(0, 1)]),
        (_, true) => s.receive_reduce(0, 0, Side::Left, &[output(0, 1)]),
        (_, false) => s.receive(0, 0, &[output(0, 1)]),
    }
}

/// If two ranks have several edges, the nth block sent must be the nth received.
#[test]
fn result_of_neighbours() {
    let (sources, destinations) = ([vec![1, 1], vec![]], [vec![], vec![0, 0]]);
    let call = |rank: u32| Call {
        neighbors: Neighbors { sources: &sources[rank as usize], destinations: &destinations[rank as usize] },
        ..Call::new(Operation::NeighborAlltoall, rank, 2)
    };
    let of = |order: [u32; 2]| {
        let calls = [call(0), call(1)];
        let schedules = calls.map(|call| {
            let mut s = call.builder(0);
            for (tag, block) in (0..).zip(order) {
                match call.rank {
                    0 => s.receive(1, tag, &[output(tag, 1)]),
                    _ => s.send(0, tag, &[input(block, 1)]),
                }
            }
            s.done()
        });
        check(&calls, &schedules, false, &[]).map(drop).map_err(|f| f.kind)
    };
    assert_eq!((of([0, 1]), of([1, 0])), (Ok(()), Err(FaultKind::Result)));
}

/// The steps of an exchange by loans, in which each of two ranks reads the input of the other.
fn exchange_by_loans(s: &mut Builder, rank: u32, keeps: impl Fn(usize) -> bool) -> Vec<usize> {
    let other = 1 - rank;
    let steps: [&dyn Fn(&mut Builder); 6] = [
        &|s| s.copy(&[input(0, 1)], &[output(rank, 1)]),
        &|s| s.lend(other, 0, &[input(0, 1)], &[]),
        &|s| s.borrow(other, 0),
        &|s| s.read_lent(other, 0, 0, &[output(other, 1)]),
        &|s| s.give_back(other, 0),
        &|s| s.reclaim(other, 0),
    ];
    let kept: Vec<usize> = (0..steps.len()).filter(|step| keeps(*step)).collect();
    kept.iter().for_each(|step| steps[*step](s));
    kept
}

#[test]
fn loans() {
    right(Operation::Allgather, 2, |rank, s| _ = exchange_by_loans(s, rank, |_| true));
    // A loan that only one side has; data in place of a loan.
    let lends = |rank: u32, s: &mut Builder| {
        s.copy(&[input(0, 1)], &[output(rank, 1)]);
        s.lend(1 - rank, 0, &[input(0, 1)], &[]);
        s.reclaim(1 - rank, 0);
    };
    wrong(FaultKind::Unmatched, Operation::Allgather, 2, lends);
    wrong(FaultKind::Unmatched, Operation::Allgather, 2, |rank, s| match rank {
        0 => lends(rank, s),
        _ => exchange(s, rank, |s| s.receive(0, 0, &[output(0, 1)])),
    });
    // A read of a block that is lent without content.
    wrong(FaultKind::Empty, Operation::Broadcast, 2, |rank, s| match rank {
        0 => {
            s.borrow(1, 0);
            s.read_lent(1, 0, 0, &[output(0, 1)]);
            s.give_back(1, 0);
        }
        _ => {
            s.lend(0, 0, &[output(0, 1)], &[]);
            s.reclaim(0, 0);
        }
    });
    // Loans that wait for each other: each rank lends after it has borrowed.
    wrong(FaultKind::Deadlock, Operation::Allgather, 2, |rank, s| {
        let scratch = s.scratch([rank]);
        s.borrow(1 - rank, 0);
        s.read_lent(1 - rank, 0, 0, &[output(1 - rank, 1)]);
        s.give_back(1 - rank, 0);
        s.fence();
        s.copy(&[input(0, 1)], &[scratch]);
        s.copy(&[scratch], &[output(rank, 1)]);
        s.lend(1 - rank, 0, &[scratch], &[]);
        s.reclaim(1 - rank, 0);
    });
}

/// A builder rejects accesses that a loan forbids, and loans that do not end.
#[test]
fn builders_refuse_what_a_loan_forbids() {
    let refused = |steps: &dyn Fn(&mut Builder)| {
        let made = std::panic::AssertUnwindSafe(|| {
            let mut s = Call::new(Operation::Allreduce, 0, 2).builder(1);
            steps(&mut s);
            s.done()
        });
        std::panic::catch_unwind(made).is_err()
    };
    let all = [output(0, 1)];
    let whole = |s: &mut Builder| {
        s.lend(1, 0, &all, &[]);
        s.reclaim(1, 0);
        s.borrow(1, 0);
        s.give_back(1, 0);
    };
    assert!(!refused(&whole));
    assert!(refused(&|s| s.lend(1, 0, &all, &[])));
    assert!(refused(&|s| s.borrow(1, 0)));
    assert!(refused(&|s| s.reclaim(1, 0)));
    assert!(refused(&|s| s.read_lent(1, 0, 0, &all)));
    for (read, written, touches) in [
        (&all[..], &[][..], &(|s: &mut Builder| s.copy(&[input(0, 1)], &all)) as &dyn Fn(&mut Builder)),
        (&[], &all, &|s| s.copy(&all, &[Slice::new(Buffer::Scratch, 0, 1)])),
        (&[], &all, &|s| s.receive(1, 1, &all)),
    ] {
        let lent = |s: &mut Builder, first: bool| {
            s.scratch([0]);
            s.lend(1, 0, read, written);
            if first {
                touches(s);
            }
            s.reclaim(1, 0);
            touches(s);
        };
        assert!(refused(&|s| lent(s, true)) && !refused(&|s| lent(s, false)));
    }
}

/// A step: its action, the blocks that it reads and writes, and the steps before it.
type Owned = (Action, Vec<Slice>, Vec<Slice>, Vec<u32>);

/// The checker detects the mistakes that a builder rejects, in schedules that no builder has made: every access of a
/// loan is between borrow and return, and no step of the lender accesses the blocks in between if the loan forbids it.
#[test]
fn loans_out_of_order() {
    let calls = [0, 1].map(|rank| Call::new(Operation::Allgather, rank, 2));
    let with = |change: &dyn Fn(u32, &mut Vec<Owned>)| {
        let schedules = calls.map(|call| {
            let mut s = call.builder(0);
            exchange_by_loans(&mut s, call.rank, |_| true);
            let s = s.done();
            let mut steps: Vec<_> =
                s.steps().map(|s| (s.action, s.from.to_vec(), s.into.to_vec(), s.after.to_vec())).collect();
            change(call.rank, &mut steps);
            s.with_steps(steps.iter().map(|(action, from, into, after)| Step { action: *action, from, into, after }))
        });
        check(&calls, &schedules, false, &[]).map(drop).map_err(|f| f.kind)
    };
    let (lend, read, give_back, reclaim) = (1, 3, 4, 5);
    assert_eq!(with(&|_, _| {}), Ok(()));
    // Each step lacks the order after the previous step.
    for step in [read, give_back, reclaim] {
        assert_eq!(with(&|_, steps| steps[step].3.clear()), Err(FaultKind::Race), "step {step}");
    }
    // An access after the return; a write of the lent block before it is reclaimed, and one after that.
    assert_eq!(
        with(&|_, steps| steps.push((steps[read].0, vec![], vec![output(0, 1)], vec![0, 5]))),
        Err(FaultKind::Unmatched)
    );
    let lends_output = |steps: &mut Vec<Owned>, rank: u32| {
        for step in [lend, reclaim] {
            steps[step].1 = vec![output(rank, 1)];
            steps[step].3.push(0);
        }
    };
    let again = |rank: u32, after: Vec<u32>| (Action::Copy, vec![input(0, 1)], vec![output(rank, 1)], after);
    assert_eq!(
        with(&|rank, steps| {
            lends_output(steps, rank);
            steps.push(again(rank, vec![0, 1, 5]));
        }),
        Ok(())
    );
    assert_eq!(
        with(&|rank, steps| {
            lends_output(steps, rank);
            steps.push(again(rank, vec![0, 1]));
        }),
        Err(FaultKind::Race)
    );
}

#[test]
fn doubled() {
    use FaultKind::Doubled;
    // A message that is reduced twice; a contribution that arrives by two paths; two blocks of one vector.
    wrong(Doubled, Operation::Allreduce, 1, |_, s| {
        s.copy(&[input(0, 1)], &[output(0, 1)]);
        s.reduce(&[input(0, 1)], Side::Left, &[output(0, 1)]);
    });
    wrong(Doubled, Operation::Allreduce, 2, |rank, s| {
        let side = if rank == 0 { Side::Right } else { Side::Left };
        exchange(s, rank, |s| s.receive_reduce(1 - rank, 0, side, &[output(0, 1)]));
        s.send(1 - rank, 1, &[input(0, 1)]);
        s.receive_reduce(1 - rank, 1, side, &[output(0, 1)]);
    });
    // Recursive doubling at distance 1 twice.
    wrong(Doubled, Operation::Allreduce, 4, |rank, s| {
        s.copy(&[input(0, 1)], &[output(0, 1)]);
        for round in 0..2 {
            let sent = s.scratch([0]);
            s.copy(&[output(0, 1)], &[sent]);
            s.send(rank ^ 1, round, &[sent]);
            s.receive_reduce(rank ^ 1, round, if rank & 1 == 0 { Side::Right } else { Side::Left }, &[output(0, 1)]);
        }
    });
    let call = Call::new(Operation::Allreduce, 0, 1);
    let mut s = call.builder(2);
    s.copy(&[input(0, 2)], &[output(0, 2)]);
    s.reduce(&[input(1, 1)], Side::Right, &[output(0, 1)]);
    let parts = check(&[call], &[s.done()], false, &[vec![4, 4]]);
    assert_eq!(parts.map_err(|f| f.kind), Err(Doubled));
}

#[test]
fn order() {
    use FaultKind::Order;
    // The operand on the wrong side; a rank in between omitted; both halves of a butterfly exchanged.
    wrong(Order, Operation::Allreduce, 2, |rank, s| {
        exchange(s, rank, |s| s.receive_reduce(1 - rank, 0, Side::Left, &[output(0, 1)]));
    });
    let reduce = |s: &mut Builder, rank: u32, ranks: [u32; 2]| match rank {
        0 => {
            s.copy(&[input(0, 1)], &[output(0, 1)]);
            ranks.into_iter().for_each(|r| s.receive_reduce(r, 0, Side::Right, &[output(0, 1)]));
        }
        _ => s.send(0, 0, &[input(0, 1)]),
    };
    right(Operation::Reduce, 3, |rank, s| reduce(s, rank, [1, 2]));
    wrong(Order, Operation::Reduce, 3, |rank, s| reduce(s, rank, [2, 1]));
    // If distance 2 comes before distance 1, ranks 0 and 2 exchange first.
    let butterfly = |s: &mut Builder, rank: u32, distances: [u32; 2]| {
        s.copy(&[input(0, 1)], &[output(0, 1)]);
        for d in distances {
            let sent = s.scratch([0]);
            s.copy(&[output(0, 1)], &[sent]);
            s.send(rank ^ d, d, &[sent]);
            s.receive_reduce(rank ^ d, d, if rank & d == 0 { Side::Right } else { Side::Left }, &[output(0, 1)]);
        }
    };
    right(Operation::Allreduce, 4, |rank, s| butterfly(s, rank, [1, 2]));
    wrong(Order, Operation::Allreduce, 4, |rank, s| butterfly(s, rank, [2, 1]));
}

#[test]
fn bracketing() {
    // Rank 0 has (0 1) 2, the others 0 (1 2).
    wrong(FaultKind::Bracketing, Operation::Allreduce, 3, |rank, s| {
        for other in (0..3).filter(|r| *r != rank) {
            s.send(other, 0, &[input(0, 1)]);
        }
        let all = s.scratch([0; 3]);
        for r in 0..3 {
            match r == rank {
                true => s.copy(&[input(0, 1)], &[all.part(r, 1)]),
                false => s.receive(r, 0, &[all.part(r, 1)]),
            }
        }
        let (first, second) = if rank == 0 { (0, 2) } else { (2, 0) };
        s.copy(&[all.part(1, 1)], &[output(0, 1)]);
        for r in [first, second] {
            s.reduce(&[all.part(r, 1)], if r == 0 { Side::Left } else { Side::Right }, &[output(0, 1)]);
        }
    });
    // In a ring the reduction of each block starts at another rank, in the same way at all ranks: not a fault, but
    // reported.
    let ring = table::named(Operation::Allreduce, "ring").unwrap();
    let butterfly = table::named(Operation::Allreduce, "butterfly").unwrap();
    for (a, same) in [(ring, false), (butterfly, true)] {
        let parameters: Vec<u32> = a.parameters.iter().map(|p| p.least).collect();
        let of = |rank| Call { parameters: &parameters, elements: 64, ..Call::new(Operation::Allreduce, rank, 4) };
        let cost = check_algorithm(a, of, &[]).unwrap();
        assert_eq!(cost.same_bracketing, same, "{}", a.name);
    }
}

#[test]
fn shape() {
    use FaultKind::Shape;
    // Two blocks for one; one for two; one of another size; a size that differs although the sizes are given.
    let parts = |sends: u32, receives: u32| {
        checked(Operation::Broadcast, 2, 2, |rank, s| match rank {
            0 => s.send(1, 0, &[output(0, sends)]),
            _ => s.receive(0, 0, &[output(0, receives)]),
        })
        .map_err(|f| f.kind)
    };
    assert_eq!((parts(2, 2), parts(2, 1), parts(1, 2)), (Ok(()), Err(Shape), Err(Shape)));
    wrong(Shape, Operation::Allgather, 2, |rank, s| {
        s.copy(&[input(0, 1)], &[output(rank, 1)]);
        s.send(1 - rank, 0, &[input(0, 1)]);
        s.receive(1 - rank, 0, &[output(rank, 1)]);
    });
    wrong(Shape, Operation::Scan, 1, |_, s| {
        let scratch = s.scratch([1]);
        s.copy(&[input(0, 1)], &[scratch]);
        s.copy(&[scratch], &[output(0, 1)]);
    });
    let alltoall = |sizes: &[u64]| {
        let calls = [0, 1].map(|rank| Call::new(Operation::Alltoall, rank, 2));
        let schedules = calls.map(|call| {
            let (mut s, r) = (call.builder(0), call.rank);
            s.copy(&[input(r, 1)], &[output(r, 1)]);
            s.send(1 - r, 0, &[input(1 - r, 1)]);
            s.receive(1 - r, 0, &[output(1 - r, 1)]);
            s.done()
        });
        check(&calls, &schedules, false, &[vec![1, 2, 1, 3], sizes.to_vec()]).map(drop).map_err(|f| f.kind)
    };
    assert_eq!((alltoall(&[3, 1, 2, 1]), alltoall(&[3, 1, 4, 1])), (Ok(()), Err(Shape)));
}

#[test]
fn unmatched() {
    use FaultKind::Unmatched;
    // Only sent; only received; with another tag; a signal for a receive; a message for an await.
    let broadcast = |sends: Option<u32>, receives: Option<u32>| {
        checked(Operation::Broadcast, 2, 1, |rank, s| match (rank, sends, receives) {
            (0, Some(tag), _) => s.send(1, tag, &[output(0, 1)]),
            (1, _, Some(tag)) => s.receive(0, tag, &[output(0, 1)]),
            _ => {}
        })
        .map_err(|f| f.kind)
    };
    assert_eq!(broadcast(Some(3), Some(3)), Ok(()));
    for (sends, receives) in [(Some(0), None), (None, Some(0)), (Some(0), Some(1))] {
        assert_eq!(broadcast(sends, receives), Err(Unmatched));
    }
    wrong(Unmatched, Operation::Broadcast, 2, |rank, s| match rank {
        0 => s.signal(1, 0),
        _ => s.receive(0, 0, &[output(0, 1)]),
    });
    wrong(Unmatched, Operation::Broadcast, 2, |rank, s| match rank {
        0 => s.send(1, 0, &[output(0, 1)]),
        _ => s.wait(0, 0),
    });
    wrong(Unmatched, Operation::Barrier, 3, |rank, s| s.signal((rank + 1) % 3, 0));
}

#[test]
fn early() {
    use FaultKind::Early;
    // No rank waits; the root releases before all have arrived; one round too few; a rank that gets a signal but sends
    // none.
    wrong(Early, Operation::Barrier, 2, |_, _| {});
    let central = |s: &mut Builder, rank: u32, releases_first: bool| match (rank, releases_first) {
        (0, false) => {
            (1..3).for_each(|r| s.wait(r, 0));
            (1..3).for_each(|r| s.signal(r, 0));
        }
        (0, true) => {
            s.wait(1, 0);
            (1..3).for_each(|r| s.signal(r, 0));
            s.wait(2, 0);
        }
        _ => {
            s.signal(0, 0);
            s.wait(0, 0);
        }
    };
    right(Operation::Barrier, 3, |rank, s| central(s, rank, false));
    wrong(Early, Operation::Barrier, 3, |rank, s| central(s, rank, true));
    let dissemination = |s: &mut Builder, rank: u32, distances: &[u32]| {
        for d in distances {
            s.signal((rank + d) % 5, *d);
            s.wait((rank + 5 - d) % 5, *d);
        }
    };
    right(Operation::Barrier, 5, |rank, s| dissemination(s, rank, &[1, 2, 4]));
    wrong(Early, Operation::Barrier, 5, |rank, s| dissemination(s, rank, &[1, 2]));
    wrong(Early, Operation::Barrier, 5, |rank, s| dissemination(s, rank, &[2, 4]));
}

#[test]
fn tag() {
    use FaultKind::Tag;
    // Two messages, two receives and two signals between the same two ranks.
    let twice = |tags: [[u32; 2]; 2]| {
        checked(Operation::Broadcast, 2, 2, |rank, s| {
            for (part, tag) in (0..).zip(tags[rank as usize]) {
                match rank {
                    0 => s.send(1, tag, &[output(part, 1)]),
                    _ => s.receive(0, tag, &[output(part, 1)]),
                }
            }
        })
        .map_err(|f| f.kind)
    };
    assert_eq!(twice([[0, 1], [0, 1]]), Ok(()));
    for tags in [[[0, 0], [0, 0]], [[0, 0], [0, 1]], [[0, 1], [0, 0]]] {
        assert_eq!(twice(tags), Err(Tag));
    }
    wrong(Tag, Operation::Barrier, 2, |rank, s| {
        for _ in 0..2 {
            s.signal(1 - rank, 7);
            s.wait(1 - rank, 7);
        }
    });
}

/// A step: its action, the blocks that it reads, the blocks that it writes, and the steps for which it waits.
type Written<'a> = (Action, &'a [Slice], &'a [Slice], &'a [u32]);

fn raced(steps: &[Written<'_>]) -> Result<(), FaultKind> {
    let call = Call::new(Operation::Scan, 0, 1);
    let mut s = call.builder(1);
    s.scratch([0]);
    let s = s.done().with_steps(steps.iter().map(|(action, from, into, after)| Step {
        action: *action,
        from,
        into,
        after,
    }));
    check(&[call], &[s], true, &[]).map(drop).map_err(|f| f.kind)
}

#[test]
fn race() {
    let (a, out, scratch) = ([input(0, 1)], [output(0, 1)], [Slice::new(Buffer::Scratch, 0, 1)]);
    let copy = Action::Copy;
    // A read after a write, a write after a read, a write after a write; and an order that follows from two earlier
    // steps.
    assert_eq!(raced(&[(copy, &a, &scratch, &[]), (copy, &scratch, &out, &[0])]), Ok(()));
    assert_eq!(raced(&[(copy, &a, &scratch, &[]), (copy, &scratch, &out, &[])]), Err(FaultKind::Race));
    let overwritten =
        |after: &[u32]| raced(&[(copy, &a, &scratch, &[]), (copy, &scratch, &out, &[0]), (copy, &a, &scratch, after)]);
    assert_eq!((overwritten(&[1]), overwritten(&[0])), (Ok(()), Err(FaultKind::Race)));
    assert_eq!(raced(&[(copy, &a, &out, &[]), (copy, &a, &out, &[])]), Err(FaultKind::Race));
    assert_eq!(raced(&[(copy, &a, &out, &[]), (copy, &a, &out, &[0]), (copy, &a, &out, &[1])]), Ok(()));
}

#[test]
fn deadlock() {
    use FaultKind::Deadlock;
    // A step that waits for itself, or for a later one; two ranks that both wait first; a ring of awaits.
    let (a, out) = ([input(0, 1)], [output(0, 1)]);
    assert_eq!(raced(&[(Action::Copy, &a, &out, &[0])]), Err(Deadlock));
    assert_eq!(raced(&[(Action::Copy, &a, &out, &[1]), (Action::Copy, &a, &out, &[])]), Err(Deadlock));
    wrong(Deadlock, Operation::Barrier, 2, |rank, s| {
        s.wait(1 - rank, 0);
        s.signal(1 - rank, 0);
    });
    wrong(Deadlock, Operation::Barrier, 5, |rank, s| {
        s.wait((rank + 4) % 5, 0);
        s.signal((rank + 1) % 5, 0);
    });
    // A vector that both ranks send and reduce into, without a copy of it.
    wrong(Deadlock, Operation::Allreduce, 2, |rank, s| {
        let side = if rank == 0 { Side::Right } else { Side::Left };
        s.copy(&[input(0, 1)], &[output(0, 1)]);
        s.send(1 - rank, 0, &[output(0, 1)]);
        s.receive_reduce(1 - rank, 0, side, &[output(0, 1)]);
    });
    // Deadlocks only if sends wait for their receives: both ranks, or all ranks of a ring, send before they receive.
    let ring = |s: &mut Builder, rank: u32, p: u32, in_step: bool| {
        s.copy(&[input(0, 1)], &[output(rank, 1)]);
        for k in 0..p - 1 {
            s.send((rank + 1) % p, k, &[output((rank + p - k) % p, 1)]);
            if in_step {
                s.fence();
            }
            s.receive((rank + p - 1) % p, k, &[output((rank + p - k - 1) % p, 1)]);
        }
    };
    for p in [2, 3, 6] {
        right(Operation::Allgather, p, |rank, s| ring(s, rank, p, false));
        wrong(Deadlock, Operation::Allgather, p, |rank, s| ring(s, rank, p, true));
    }
}
