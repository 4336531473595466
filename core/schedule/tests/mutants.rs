//! The checker detects every change of a single step of a correct schedule, unless the changed schedule is equivalent
//! for a reason that is established independently of the checker.

use std::collections::BTreeMap;

use farside_schedule::operation::{Call, Neighbors, Operation};
use farside_schedule::schedule::check::check;
use farside_schedule::schedule::{Action, Schedule, Side, Slice, Step};
use farside_schedule::table;

use super::algorithms::graph;

/// A step that can be modified.
#[derive(Clone, Debug, PartialEq)]
struct Owned {
    action: Action,
    from: Vec<Slice>,
    into: Vec<Slice>,
    after: Vec<u32>,
}

fn steps_of(s: &Schedule) -> Vec<Owned> {
    s.steps()
        .map(|s| Owned { action: s.action, from: s.from.to_vec(), into: s.into.to_vec(), after: s.after.to_vec() })
        .collect()
}

/// A schedule of these steps, without a check.
fn with(s: &Schedule, steps: &[Owned]) -> Schedule {
    s.with_steps(steps.iter().map(|s| Step { action: s.action, from: &s.from, into: &s.into, after: &s.after }))
}

/// Removes step `at`. In the dependencies later steps are renumbered, and a step that waited for the removed step waits
/// for its dependencies.
fn without(steps: &[Owned], at: usize) -> Vec<Owned> {
    let gone = steps[at].after.clone();
    let mut left = steps.to_vec();
    left.remove(at);
    for step in &mut left[at..] {
        if step.after.contains(&(at as u32)) {
            step.after.extend(&gone);
        }
        step.after.retain(|d| *d != at as u32);
        step.after.iter_mut().filter(|d| **d > at as u32).for_each(|d| *d -= 1);
        step.after.sort_unstable();
        step.after.dedup();
    }
    left
}

/// For each step: the steps before it, by their dependencies.
fn before(steps: &[Owned]) -> Vec<Vec<bool>> {
    let mut all: Vec<Vec<bool>> = Vec::new();
    for step in steps {
        let mut own = vec![false; steps.len()];
        for d in &step.after {
            own[*d as usize] = true;
            own.iter_mut().zip(&all[*d as usize]).for_each(|(o, b)| *o |= b);
        }
        all.push(own);
    }
    all
}

/// Whether one of two steps writes a block that the other reads or writes.
fn conflict(a: &Owned, b: &Owned) -> bool {
    let meet = |x: &[Slice], y: &[Slice]| {
        let overlap =
            |s: &Slice, t: &Slice| s.buffer == t.buffer && s.first < t.first + t.count && t.first < s.first + s.count;
        x.iter().any(|s| y.iter().any(|t| overlap(s, t)))
    };
    meet(&a.into, &b.into) || meet(&a.into, &b.from) || meet(&a.from, &b.into)
}

/// The reason why a changed schedule is as correct as the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Equivalent {
    /// The removed dependency follows from other dependencies.
    Implied,
    /// The step waited only for lockstep: it has no conflicting block in common with the previous step, or is an await,
    /// which then starts sooner, or in a barrier does not follow an await.
    InStep,
    /// The step copies again blocks that it has copied.
    CopiedTwice,
    /// The operator is commutative.
    Commutative,
}

/// Every single change of a step: its name, the new steps, and the reason why it may be equivalent.
fn mutants(
    steps: &[Owned],
    rank: u32,
    p: u32,
    commutative: bool,
    barrier: bool,
) -> Vec<(String, Vec<Owned>, Option<Equivalent>)> {
    let mut all = Vec::new();
    let reach = before(steps);
    for (i, step) in steps.iter().enumerate() {
        let mut add = |name: &str, changed: Vec<Owned>, why| all.push((format!("{name} {i}: {step:?}"), changed, why));
        let changed = |change: &dyn Fn(&mut Owned)| {
            let mut steps = steps.to_vec();
            change(&mut steps[i]);
            steps
        };
        add("lost", without(steps, i), None);
        let twice = (step.action == Action::Copy).then_some(Equivalent::CopiedTwice);
        add(
            "twice",
            [steps, &[Owned { after: vec![steps.len() as u32 - 1, i as u32], ..step.clone() }]].concat(),
            twice,
        );
        for d in &step.after {
            let implied = step.after.iter().any(|other| reach[*other as usize][*d as usize]);
            let earlier = &steps[*d as usize];
            let in_step = if barrier {
                matches!(step.action, Action::Await { .. }) || !matches!(earlier.action, Action::Await { .. })
            } else {
                !conflict(step, earlier)
            };
            let why = if implied { Some(Equivalent::Implied) } else { in_step.then_some(Equivalent::InStep) };
            add("sooner", changed(&|s| s.after.retain(|other| other != d)), why);
        }
        let redirected = |action: Action, by: u32| {
            let moved = |peer: u32| Some((peer + by) % p).filter(|peer| *peer != rank && !by.is_multiple_of(p));
            Some(match action {
                Action::Send { to, tag } => Action::Send { to: moved(to)?, tag },
                Action::Receive { source, tag } => Action::Receive { source: moved(source)?, tag },
                Action::ReceiveReduce { source, tag, side } => {
                    Action::ReceiveReduce { source: moved(source)?, tag, side }
                }
                Action::Signal { to, tag } => Action::Signal { to: moved(to)?, tag },
                Action::Await { source, tag } => Action::Await { source: moved(source)?, tag },
                Action::Lend { to, tag } => Action::Lend { to: moved(to)?, tag },
                Action::Borrow { source, tag } => Action::Borrow { source: moved(source)?, tag },
                Action::Read { source, tag, first } => Action::Read { source: moved(source)?, tag, first },
                Action::ReadReduce { source, tag, first, side } => {
                    Action::ReadReduce { source: moved(source)?, tag, first, side }
                }
                Action::Write { to, tag, first } => Action::Write { to: moved(to)?, tag, first },
                Action::Return { to, tag } => Action::Return { to: moved(to)?, tag },
                Action::Reclaim { source, tag } => Action::Reclaim { source: moved(source)?, tag },
                Action::Reduce { .. } | Action::Copy | Action::EnterSwitch => return None,
            })
        };
        for action in (1..3).filter_map(|by| redirected(step.action, by)) {
            add("redirected", changed(&|s| s.action = action), None);
        }
        let other = |side| if side == Side::Left { Side::Right } else { Side::Left };
        let why = commutative.then_some(Equivalent::Commutative);
        match step.action {
            Action::Reduce { side } => {
                add("other side", changed(&|s| s.action = Action::Reduce { side: other(side) }), why);
                add("not reduced", changed(&|s| s.action = Action::Copy), None);
            }
            Action::ReceiveReduce { source, tag, side } => {
                add(
                    "other side",
                    changed(&|s| s.action = Action::ReceiveReduce { source, tag, side: other(side) }),
                    why,
                );
                add("not reduced", changed(&|s| s.action = Action::Receive { source, tag }), None);
            }
            Action::Send { to, tag } => {
                add("other tag", changed(&|s| s.action = Action::Send { to, tag: tag + 100 }), None)
            }
            Action::Signal { to, tag } => add("a message", changed(&|s| s.action = Action::Send { to, tag }), None),
            Action::Await { source, tag } => {
                add("a message", changed(&|s| s.action = Action::Receive { source, tag }), None);
            }
            Action::ReadReduce { source, tag, first, side } => {
                add(
                    "other side",
                    changed(&|s| s.action = Action::ReadReduce { source, tag, first, side: other(side) }),
                    why,
                );
                add("not reduced", changed(&|s| s.action = Action::Read { source, tag, first }), None);
                add(
                    "block after",
                    changed(&|s| s.action = Action::ReadReduce { source, tag, first: first + 1, side }),
                    None,
                );
            }
            Action::Read { source, tag, first } => {
                let side = Side::Left;
                add("reduced", changed(&|s| s.action = Action::ReadReduce { source, tag, first, side }), None);
                add("block after", changed(&|s| s.action = Action::Read { source, tag, first: first + 1 }), None);
            }
            Action::Write { to, tag, first } => {
                add("block after", changed(&|s| s.action = Action::Write { to, tag, first: first + 1 }), None);
            }
            Action::Lend { to, tag } => add("a signal", changed(&|s| s.action = Action::Signal { to, tag }), None),
            Action::Return { to, tag } => add("a signal", changed(&|s| s.action = Action::Signal { to, tag }), None),
            _ => {}
        }
        // More blocks than intended, fewer, and in another order.
        for side in [0, 1] {
            let of = |s: &Owned| if side == 0 { s.from.clone() } else { s.into.clone() };
            let put = |slices: Vec<Slice>| {
                changed(&|s| if side == 0 { s.from.clone_from(&slices) } else { s.into.clone_from(&slices) })
            };
            let slices = of(step);
            if let Some(first) = slices.first() {
                if first.first > 0 {
                    let moved = Slice::new(first.buffer, first.first - 1, first.count);
                    add("block before", put([&[moved], &slices[1..]].concat()), None);
                }
                if first.count > 1 {
                    add("a block less", put([&[first.part(1, first.count - 1)], &slices[1..]].concat()), None);
                }
                if slices.len() > 1 {
                    add("other order", put([&slices[1..], &[*first]].concat()), None);
                }
            }
        }
    }
    all
}

#[test]
fn mutants_are_found() {
    use Operation as O;
    let algorithms: &[(O, &str, &[u32], u32)] = &[
        (O::Barrier, "dissemination", &[1], 8),
        (O::Barrier, "dissemination", &[2], 9),
        (O::Barrier, "central-counter", &[], 5),
        (O::Barrier, "tournament", &[], 6),
        (O::Barrier, "pairwise-exchange", &[], 4),
        (O::Barrier, "switch", &[], 5),
        (O::Broadcast, "binomial", &[3], 6),
        (O::Broadcast, "scatter-ring", &[], 5),
        (O::Scatter, "binomial", &[], 7),
        (O::Gather, "binomial", &[], 7),
        (O::Allgather, "bruck", &[], 6),
        (O::Allgather, "recursive-doubling", &[], 8),
        (O::Alltoall, "bruck", &[], 5),
        (O::Alltoall, "pairwise-exchange", &[], 4),
        (O::Reduce, "binomial", &[], 6),
        (O::Allreduce, "ring", &[], 4),
        (O::Allreduce, "rabenseifner", &[1], 6),
        (O::Allreduce, "elimination-3-2-overlapping", &[1], 7),
        (O::Allreduce, "small-ring", &[1], 6),
        (O::ReduceScatter, "pairwise", &[], 5),
        (O::ReduceScatter, "recursive-halving", &[], 6),
        (O::Broadcast, "direct", &[1], 5),
        (O::Gather, "direct", &[], 4),
        (O::Allgather, "direct", &[], 5),
        (O::Allreduce, "direct", &[], 5),
        (O::Allreduce, "direct", &[8], 4),
        (O::Reduce, "direct", &[7], 3),
        (O::Exscan, "direct", &[], 5),
        (O::Scan, "recursive-doubling", &[], 6),
        (O::Exscan, "recursive-doubling", &[], 6),
        (O::NeighborAlltoall, "linear", &[], 5),
    ];
    let (mut found, mut equivalent) = (0, BTreeMap::new());
    for &(operation, name, parameters, p) in algorithms {
        let a = table::named(operation, name).unwrap_or_else(|| panic!("{name}"));
        let parameters = a.within_limits(parameters);
        let (destinations, sources) = graph(p);
        let call = |rank: u32| Call {
            parameters: &parameters,
            elements: 64,
            switch: true,
            neighbors: Neighbors { sources: &sources[rank as usize], destinations: &destinations[rank as usize] },
            ..Call::new(operation, rank, p)
        };
        let calls: Vec<Call<'_>> = (0..p).map(call).collect();
        let right: Vec<Schedule> = calls.iter().map(a.build).collect();
        check(&calls, &right, a.commutative, &[]).unwrap();
        for rank in 0..p {
            let steps = steps_of(&right[rank as usize]);
            for (what, changed, why) in mutants(&steps, rank, p, a.commutative, operation == O::Barrier) {
                let mut schedules = right.clone();
                schedules[rank as usize] = with(&right[rank as usize], &changed);
                match (check(&calls, &schedules, a.commutative, &[]), why) {
                    (Err(_), _) => found += 1,
                    (Ok(_), Some(why)) => *equivalent.entry(why).or_insert(0) += 1,
                    (Ok(_), None) => panic!("{} {name}, P {p}, rank {rank}: {what} is not found", operation.name()),
                }
            }
        }
    }
    println!("{found} found, equivalent: {equivalent:?}");
    assert!(found > 4000 && equivalent.values().sum::<u32>() * 10 < found, "{found}, {equivalent:?}");
}
