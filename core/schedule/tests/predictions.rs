//! Predicted times equal the closed formulas of the papers.

use farside_schedule::operation::{Algorithm, Call, Operation};
use farside_schedule::schedule::check::check_algorithm;
use farside_schedule::schedule::predict::{
    Bytes, LoP, LogGP, Model, OnePort, Overhead, PLogP, RoundTrip, Table, predict, predict_algorithm,
};
use farside_schedule::schedule::{Builder, Schedule, Slice};
use farside_schedule::table;

fn ceil_log(base: u32, p: u32) -> u32 {
    (0..).find(|k| base.pow(*k) >= p).unwrap()
}

fn floor_log2(p: u32) -> u32 {
    p.ilog2()
}

fn near(got: f64, formula: f64, what: &str) {
    assert!((got - formula).abs() <= 1e-9 * formula.abs().max(1.0), "{what}: predicted {got}, formula {formula}");
}

/// The time of the schedules that `steps(rank, builder)` adds.
fn time<M: Model>(
    operation: Operation,
    p: u32,
    parts: u32,
    bytes: Bytes<'_>,
    model: &M,
    steps: impl Fn(u32, &mut Builder),
) -> f64 {
    let of = |rank| {
        let mut builder = Call::new(operation, rank, p).builder(parts);
        steps(rank, &mut builder);
        builder.done()
    };
    predict(p, of, bytes, model).unwrap().time
}

fn barrier<M: Model>(p: u32, model: &M, steps: impl Fn(u32, &mut Builder)) -> f64 {
    time(Operation::Barrier, p, 0, Bytes::Each(0), model, steps)
}

/// The time of an algorithm of the table, with elements of one byte.
fn algorithm<M: Model>(operation: Operation, name: &str, parameters: &[u32], p: u32, elements: u64, model: &M) -> f64 {
    let a = table::named(operation, name).unwrap();
    let call = |rank| Call { parameters, elements, ..Call::new(operation, rank, p) };
    predict_algorithm(a, call, Bytes::Vector(elements), model).unwrap().time
}

/// A binomial tree of signals from rank 0, the largest subtree first.
fn notify(rank: u32, p: u32, s: &mut Builder) {
    let parent_bit = if rank == 0 { p.next_power_of_two() } else { 1 << rank.trailing_zeros() };
    if rank > 0 {
        s.wait(rank - parent_bit, 1);
    }
    for bit in (0..parent_bit.trailing_zeros()).rev().map(|b| 1 << b).filter(|b| rank + b < p) {
        s.signal(rank + bit, 1);
    }
}

/// The four classes of barriers, Hoefler 2005, sections 2.2.5.1 to 2.2.5.4. Where the thesis counts a step that takes
/// max(f, o_s + L + o_r) for the last of k rounds too, o_s + L + o_r is exact: there is no gap after the last message.
/// In its time of the broadcast, t_bc, it counts one round more than the binomial tree has.
#[test]
fn barriers_of_the_thesis() {
    for (latency, send, receive, gap) in [(5.0, 1.0, 1.0, 0.1), (3.0, 1.25, 2.5, 2.0), (2.0, 0.5, 0.5, 9.0)] {
        let model = LogGP { send_overhead: send, receive_overhead: receive, ..LogGP::log_p(latency, 0.0, gap) };
        let (f_s, f_r, step) = (send.max(gap), receive.max(gap), send + latency + receive);
        let rounds = |k: u32, f: f64| f64::from(k - 1) * f.max(step) + step;
        for p in (2..40).chain([100, 257]) {
            let central = barrier(p, &model, |rank, s| match rank {
                0 => {
                    (1..p).for_each(|r| s.wait(r, 0));
                    (1..p).for_each(|r| s.signal(r, 0));
                }
                _ => {
                    s.signal(0, 0);
                    s.wait(0, 0);
                }
            });
            near(central, 2.0 * step + f64::from(p - 2) * (f_r + f_s), "central counter");

            let dissemination = algorithm(Operation::Barrier, "dissemination", &[1], p, 0, &model);
            let k = ceil_log(2, p);
            let symmetric = if gap <= step { rounds(k, f_r.max(f_s)) } else { dissemination };
            near(dissemination, symmetric, "dissemination");
            assert!(dissemination <= f64::from(k) * f_r.max(f_s).max(step) + 1e-9);
        }
        let broadcast = |p: u32| rounds(ceil_log(2, p), f_s);
        for k in 1..8 {
            let p = 1u32 << k;
            let tournament = barrier(p, &model, |rank, s| {
                let wins = if rank == 0 { k } else { rank.trailing_zeros() };
                (0..wins).for_each(|round| s.wait(rank + (1 << round), 0));
                if rank > 0 {
                    s.signal(rank - (1 << wins), 0);
                }
                notify(rank, p, s);
            });
            near(tournament, rounds(k, f_r) + broadcast(p), "tournament");
        }
        for (n, k) in [(3u32, 1u32), (3, 2), (3, 4), (4, 1), (4, 3), (5, 2)] {
            let p = n.pow(k);
            let combining = barrier(p, &model, |rank, s| {
                let level = (0..k).find(|l| rank / n.pow(*l) % n > 0).unwrap_or(k);
                (0..level).for_each(|l| (1..n).for_each(|i| s.wait(rank + i * n.pow(l), 0)));
                if rank > 0 {
                    s.signal(rank - rank / n.pow(level) % n * n.pow(level), 0);
                }
                notify(rank, p, s);
            });
            // The first message of a level may arrive before the port is free after the last message of the level
            // before.
            if gap <= step {
                let check_in = f64::from(k) * (step + f_r * f64::from(n - 2));
                let notified = barrier(p, &model, |rank, s| notify(rank, p, s));
                near(combining, check_in + notified, "combining tree");
                assert!(notified <= broadcast(p) && (notified == broadcast(p) || n != 4));
            }
        }
    }
}

/// Hoefler 2005, section 2.2.6.1: at most n max(g, o_s + L + o_r) in a round, of which the o_s + L + o_r of the
/// messages after the first overlap.
#[test]
fn n_way_dissemination_of_the_thesis() {
    let model = LogGP::log_p(6.0, 1.0, 0.5);
    for n in 1..5 {
        for k in 1..4 {
            let p = (n + 1u32).pow(k);
            let got = algorithm(Operation::Barrier, "dissemination", &[n], p, 0, &model);
            near(got, f64::from(k) * (8.0 + f64::from(n - 1)), "n-way dissemination");
            assert!(got <= f64::from(n * k) * 8.0);
        }
    }
}

/// Hoefler 2005, section 2.3.7.1: the central counter and n-way dissemination, with the thesis's parameters of the
/// shortest send and one barrier. Overheads of messages after the first of a round overlap with L.
#[test]
fn barriers_in_lop() {
    let model = LoP {
        send_overhead: Overhead([0.52, 0.84, -0.12]),
        receive_overhead: Overhead::default(),
        round_trip: RoundTrip([2.0 * 11.23, -0.01, 2.0 * 4.58, 0.02, -0.06, 101.31]),
    };
    let (o, l) = (|p: u32| model.send_overhead.at(f64::from(p)), |p: u32| model.latency(p));
    for p in 3..64u32 {
        let central = barrier(p, &model, |rank, s| match rank {
            0 => {
                (1..p).for_each(|r| s.wait(r, 0));
                (1..p).for_each(|r| s.signal(r, 0));
            }
            _ => {
                s.signal(0, 0);
                s.wait(0, 0);
            }
        });
        near(central, o(1) + o(p - 1) + 2.0 * f64::from(p - 1) * l(p - 1), "central counter");
    }
    for (n, k) in [(1u32, 3u32), (1, 6), (2, 2), (3, 2), (4, 2)] {
        let got = algorithm(Operation::Barrier, "dissemination", &[n], (n + 1).pow(k), 0, &model);
        let round = o(n * k) + f64::from(n) * l(n * k);
        near(got, f64::from(k) * round, "n-way dissemination");
    }
}

/// A pLogP network whose tables are not proportional to the size.
fn p_log_p() -> PLogP {
    PLogP {
        latency: 7.0,
        gap: Table(vec![(1, 3.0), (1000, 13.0), (100_000, 900.0)]),
        send_overhead: Table(vec![(1, 1.0), (100_000, 2.0)]),
        receive_overhead: Table(vec![(1, 1.0), (100_000, 2.0)]),
        reduction: 0.0,
    }
}

/// Barchet-Estefanel, Mounié 2004, table 1. The formulas of the trees are exact for powers of two, and bounds between
/// them.
#[test]
fn broadcasts_of_plogp() {
    let model = p_log_p();
    let (l, g) = (model.latency, |m: u64| model.gap.at(m));
    let whole = |p: u32, parts: u32, m: u64, steps: &dyn Fn(u32, &mut Builder)| {
        time(Operation::Broadcast, p, parts, Bytes::Each(m), &model, steps)
    };
    let all = |parts: u32| Slice::output(0, parts);
    for m in [1, 500, 4096, 200_000] {
        for p in 2..34u32 {
            let hops = f64::from(p - 1);
            let flat = |k: u32| {
                whole(p, k, m, &|rank, s| {
                    for part in 0..k {
                        match rank {
                            0 => (1..p).for_each(|r| s.send(r, part, &[Slice::output(part, 1)])),
                            _ => s.receive(0, part, &[Slice::output(part, 1)]),
                        }
                    }
                })
            };
            near(flat(1), hops * g(m) + l, "flat");
            near(flat(5), hops * g(m) * 5.0 + l, "segmented flat");
            let chain = |k: u32| {
                whole(p, k, m, &|rank, s| {
                    for part in 0..k {
                        if rank > 0 {
                            s.receive(rank - 1, part, &[Slice::output(part, 1)]);
                        }
                        if rank + 1 < p {
                            s.send(rank + 1, part, &[Slice::output(part, 1)]);
                        }
                    }
                })
            };
            near(chain(1), hops * (g(m) + l), "chain");
            near(chain(6), hops * (g(m) + l) + g(m) * 5.0, "segmented chain");
            let rendezvous = whole(p, 1, m, &|rank, s| {
                if rank > 0 {
                    s.wait(rank - 1, 0);
                    s.signal(rank - 1, 0);
                    s.receive(rank - 1, 1, &[all(1)]);
                }
                if rank + 1 < p {
                    s.signal(rank + 1, 0);
                    s.wait(rank + 1, 0);
                    s.send(rank + 1, 1, &[all(1)]);
                }
            });
            near(rendezvous, hops * (g(m) + 2.0 * g(1) + 3.0 * l), "chain rendezvous");
            let binary = whole(p, 1, m, &|rank, s| {
                if rank > 0 {
                    s.receive((rank - 1) / 2, 0, &[all(1)]);
                }
                (2 * rank + 1..2 * rank + 3).filter(|c| *c < p).for_each(|c| s.send(c, 0, &[all(1)]));
            });
            // Complete trees have one level fewer than ⌈log2 P⌉.
            let level = 2.0 * g(m) + l;
            assert!(binary <= f64::from(ceil_log(2, p)) * level + 1e-9);
            if (p + 1).is_power_of_two() {
                near(binary, f64::from(floor_log2(p)) * level, "binary");
            }
            let binomial = |k: u32, meets: bool| {
                whole(p, k, m, &|rank, s| {
                    let bit = if rank == 0 { p.next_power_of_two() } else { 1 << rank.trailing_zeros() };
                    if rank > 0 {
                        if meets {
                            s.wait(rank - bit, 0);
                            s.signal(rank - bit, 0);
                        }
                        (0..k).for_each(|part| s.receive(rank - bit, 1 + part, &[Slice::output(part, 1)]));
                        s.fence();
                    }
                    for child in (0..bit.trailing_zeros()).rev().map(|b| rank + (1 << b)).filter(|c| *c < p) {
                        if meets {
                            s.signal(child, 0);
                            s.wait(child, 0);
                        }
                        (0..k).for_each(|part| s.send(child, 1 + part, &[Slice::output(part, 1)]));
                    }
                })
            };
            let (low, high) = (f64::from(floor_log2(p)), f64::from(ceil_log(2, p)));
            for k in [1, 4] {
                assert!(binomial(k, false) <= high * (g(m) * f64::from(k) + l) + 1e-9);
                if p.is_power_of_two() {
                    near(binomial(k, false), low * g(m) * f64::from(k) + high * l, "binomial, segmented binomial");
                }
            }
            if p.is_power_of_two() {
                near(binomial(1, true), low * g(m) + high * (2.0 * g(1) + 3.0 * l), "binomial rendezvous");
            }
        }
    }
}

/// Barchet-Estefanel, Mounié 2004, table 2.
#[test]
fn scatters_of_plogp() {
    let model = p_log_p();
    let (l, g) = (model.latency, |m: u64| model.gap.at(m));
    for m in [1, 500, 40_000] {
        for p in 2..34u32 {
            // A rank has the blocks of `range(rank)`, receives them from `parent` and sends `range(child)` to each
            // child.
            let scatter =
                |parent: &dyn Fn(u32) -> u32, range: &dyn Fn(u32) -> u32, children: &dyn Fn(u32) -> Vec<u32>| {
                    time(Operation::Scatter, p, 0, Bytes::Each(m), &model, |rank, s| {
                        let mut have = Slice::input(0, p);
                        if rank > 0 {
                            have = s.scratch(rank..rank + range(rank));
                            s.receive(parent(rank), 0, &[have]);
                        }
                        children(rank).into_iter().for_each(|c| s.send(c, 0, &[have.part(c - rank, range(c))]));
                        s.copy(&[have.part(0, 1)], &[Slice::output(0, 1)]);
                    })
                };
            let flat = scatter(&|_| 0, &|_| 1, &|r| if r == 0 { (1..p).collect() } else { Vec::new() });
            near(flat, f64::from(p - 1) * g(m) + l, "flat");
            let chain = scatter(&|r| r - 1, &|r| p - r, &|r| (r + 1..p).take(1).collect());
            let each: f64 = (1..u64::from(p)).map(|j| g(j * m)).sum();
            near(chain, each + f64::from(p - 1) * l, "chain");
            if p.is_power_of_two() {
                let bit = |r: u32| if r == 0 { p } else { 1 << r.trailing_zeros() };
                let below = |r: u32| (0..bit(r).trailing_zeros()).rev().map(|b| r + (1 << b)).collect();
                let binomial = scatter(&|r| r - bit(r), &bit, &below);
                let k = floor_log2(p);
                let each: f64 = (0..k).map(|j| g((1 << j) * m)).sum();
                near(binomial, each + f64::from(k) * l, "binomial");
            }
        }
    }
}

/// The one-port model sends and receives messages in the order in which they are ready, and the checker counts rounds
/// in the order of the steps. For most algorithms the results are the same.
#[test]
fn rounds_are_times_of_one_port() {
    let model = OnePort { latency: 1.0, ..OnePort::default() };
    let (mut same, mut all) = (0, 0);
    // A direct algorithm returns loans in the order in which they are used, which rounds do not follow.
    let is_counted = |a: &&Algorithm| !a.operation.name().starts_with("neighbor") && a.name != "direct";
    for a in Operation::ALL.into_iter().flat_map(table::of).filter(is_counted) {
        let parameters = a.defaults();
        for p in [1, 2, 3, 5, 8, 12, 17] {
            let call = |rank| Call {
                parameters: &parameters,
                elements: 1000,
                switch: true,
                ..Call::new(a.operation, rank, p)
            };
            if !(a.applies)(&call(0)) {
                continue;
            }
            let rounds = check_algorithm(a, call, &[]).unwrap().rounds;
            let time = predict_algorithm(a, call, Bytes::Each(1), &model).unwrap().time;
            if time != f64::from(rounds) {
                println!("{} {}, P {p}: {time}, {rounds} rounds", a.operation.name(), a.name);
            }
            (same, all) = (same + u32::from(time == f64::from(rounds)), all + 1);
        }
    }
    assert!(same * 20 >= all * 19, "{same} of {all}");
}

/// The prediction of a barrier decodes one round of each rank at a time, and keeps less than 16 bytes for a round.
#[test]
fn schedules_of_many_ranks_are_small() {
    let p = 1 << 14;
    let barrier = table::named(Operation::Barrier, "dissemination").unwrap();
    let call = |rank| Call { parameters: &[1], ..Call::new(Operation::Barrier, rank, p) };
    let got = predict_algorithm(barrier, call, Bytes::Each(0), &LogGP::log_p(1.0, 0.5, 0.25)).unwrap();
    near(got.time, 14.0 * 2.0, "dissemination");
    assert_eq!(got.messages, 14 << 14);
    assert!(got.steps <= 2 * p as usize, "{} steps", got.steps);
    assert!(got.bytes < 16 * 14 * p as usize, "{} bytes", got.bytes);
}

/// If ranks wait for each other, the result is an error that names one of them.
#[test]
fn a_deadlock_is_an_error() {
    let of = |rank: u32| -> Schedule {
        let mut s = Call::new(Operation::Barrier, rank, 2).builder(0);
        s.wait(1 - rank, 0);
        s.signal(1 - rank, 0);
        s.done()
    };
    assert_eq!(predict(2, of, Bytes::Each(0), &OnePort::default()), Err((0, 0)));
}
