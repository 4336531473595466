//! Rounds, elements and predicted times of the reductions equal those of the papers.

use farside_schedule::butterfly::{Costs, Factor, Plan, Reduction, factorized, odd_factor, prime_factors};
use farside_schedule::operation::{Call, Operation};
use farside_schedule::schedule::check::{Cost, check, check_algorithm};
use farside_schedule::schedule::predict::{Bytes, OnePort, predict};
use farside_schedule::schedule::{Action, Builder, Schedule, Step};
use farside_schedule::table;

fn near(got: f64, formula: f64, what: &str) {
    assert!((got - formula).abs() <= 1e-9 * formula.abs().max(1.0), "{what}: predicted {got}, formula {formula}");
}

/// Schedules of all ranks.
fn schedules(p: u32, of: impl Fn(&Call<'_>) -> Schedule) -> Vec<Schedule> {
    (0..p).map(|rank| of(&Call { elements: 1 << 30, ..Call::new(Operation::Allreduce, rank, p) })).collect()
}

/// The time of an allreduce of a vector of size 1.
fn time(schedules: &[Schedule], costs: Costs) -> f64 {
    let parts = f64::from(schedules[0].output().count);
    let model = OnePort { latency: costs.alpha, byte: costs.beta / parts, reduction: costs.gamma / parts };
    predict(schedules.len() as u32, |r| schedules[r as usize].clone(), Bytes::Each(1), &model).unwrap().time
}

/// The same steps, in which a rank reduces after all messages of the round, and continues after the reduction, as the
/// paper counts. Otherwise a reduction overlaps with the next message.
fn in_step(schedules: &[Schedule]) -> Vec<Schedule> {
    let of = |schedule: &Schedule| {
        let mut s = Builder::new(schedule.rank(), schedule.size(), schedule.input(), schedule.output());
        s.scratch(schedule.scratch().iter().copied());
        for Step { action, from, into, .. } in schedule.steps() {
            match action {
                Action::Send { to, tag } => s.send(to, tag, from),
                Action::Receive { source, tag } => s.receive(source, tag, into),
                Action::ReceiveReduce { source, tag, side } => {
                    s.receive_reduce(source, tag, side, into);
                    s.fence();
                }
                Action::Reduce { side } => {
                    s.reduce(from, side, into);
                    s.fence();
                }
                Action::Copy => s.copy(from, into),
                _ => unreachable!("reductions by messages have data"),
            }
        }
        s.done()
    };
    schedules.iter().map(of).collect()
}

fn of_plan(plan: &Plan, p: u32) -> Vec<Schedule> {
    schedules(p, |call| Reduction::schedule(call, plan))
}

fn of_algorithm(name: &str, threshold: u32, p: u32) -> Option<Vec<Schedule>> {
    let a = table::named(Operation::Allreduce, name).unwrap();
    let parameters = if a.parameters.is_empty() { &[][..] } else { &[threshold] };
    let applies = (a.applies)(&Call { parameters, ..Call::new(Operation::Allreduce, 0, p) });
    applies.then(|| schedules(p, |call| (a.build)(&Call { parameters, ..*call })))
}

fn checked(schedules: &[Schedule], commutative: bool) -> Cost {
    let p = schedules.len() as u32;
    let calls: Vec<_> = (0..p).map(|rank| Call::new(Operation::Allreduce, rank, p)).collect();
    check(&calls, schedules, commutative, &[]).unwrap()
}

fn log2_up(p: u32) -> f64 {
    f64::from(p.next_power_of_two().ilog2())
}

/// Rounds, elements sent and elements reduced on the longest chain, of a vector of size 1.
type Formula = (f64, f64, f64);

/// The formula of `algorithm` for p = q 2^n, for a long vector (halved in each round) or a short one (never halved).
fn formula(algorithm: &str, p: u32, long: bool) -> Formula {
    let n = if algorithm == "rabenseifner" && !p.is_power_of_two() { 0 } else { p.trailing_zeros() };
    let (q, n, piece) = (p >> n, f64::from(n), 0.5f64.powi(n as i32));
    let below = f64::from(1u32 << q.ilog2());
    let butterfly = if long { (2.0 * n, 2.0 * (1.0 - piece), 1.0 - piece) } else { (n, n, n) };
    let odd = match (algorithm, long) {
        ("ring", _) => return (2.0 * f64::from(p - 1), 2.0 * (1.0 - 1.0 / f64::from(p)), 1.0 - 1.0 / f64::from(p)),
        ("small-ring", long) => {
            let rings = || prime_factors(q).map(f64::from);
            let log: f64 = prime_factors(q).map(log2_up).sum();
            let others = if long { 1.0 - 1.0 / f64::from(q) } else { rings().map(|r| r - 1.0).sum() };
            if long {
                (rings().map(|r| r - 1.0).sum::<f64>() + log, 2.0 * others, others)
            } else {
                (log, others, others)
            }
        }
        _ if q == 1 => (0.0, 0.0, 0.0),
        ("elimination-3-2-overlapping" | "elimination-3-2-non-overlapping", true) => {
            (2.0 * log2_up(q), 2.0 * (1.5 - 1.0 / below), 1.5 - 1.0 / below)
        }
        ("elimination-3-2-overlapping" | "elimination-3-2-non-overlapping", false) => {
            (log2_up(q) + 1.0, log2_up(q) + 1.0, log2_up(q))
        }
        (_, true) => (2.0 * log2_up(q), 2.0 * (2.0 - 1.0 / below), 2.0 - 1.0 / below),
        (_, false) => (log2_up(q) + 1.0, log2_up(q) + 1.0, log2_up(q)),
    };
    let piece = if long { piece } else { 1.0 };
    (butterfly.0 + odd.0, butterfly.1 + piece * odd.1, butterfly.2 + piece * odd.2)
}

/// Rabenseifner, Träff 2004, sections 2 and 3, for every p.
#[test]
fn allreduce_has_the_rounds_and_elements_of_the_paper() {
    let algorithms = [
        "butterfly",
        "rabenseifner",
        "elimination-2-1",
        "elimination-3-2-overlapping",
        "elimination-3-2-non-overlapping",
        "small-ring",
        "ring",
    ];
    for name in algorithms {
        for (long, p) in [false, true].into_iter().flat_map(|long| super::counts().map(move |p| (long, p))) {
            if name == "ring" && !long {
                continue;
            }
            let Some(schedules) = of_algorithm(name, if long { 1 } else { u32::MAX }, p) else { continue };
            let (rounds, sent, reduced) = formula(name, p, long);
            let what = format!("{name}, P {p}, {}", if long { "long" } else { "short" });
            let costs = Costs { alpha: 0.31, beta: 5.7, gamma: 0.83 };
            let by_formula = costs.alpha * rounds + costs.beta * sent + costs.gamma * reduced;
            near(time(&in_step(&schedules), costs), by_formula, &what);
            assert!(p > 32 || time(&schedules, costs) <= by_formula + 1e-9, "{what}");

            let cost = checked(&schedules, name == "ring");
            assert_eq!(f64::from(cost.rounds), rounds, "{what}");
            assert_eq!(cost.same_bracketing, name != "ring" || p == 2, "{what}");
            let parts = f64::from(schedules[0].output().count);
            let most = |of: &[u64]| *of.iter().max().unwrap() as f64 / parts;
            assert!(f64::from(*cost.messages.iter().max().unwrap()) <= rounds, "{what}");
            assert!(most(&cost.elements) <= sent + 1e-9, "{what}");
            near(most(&cost.reduced), reduced, &what);
            if p.is_power_of_two() || name.ends_with("ring") {
                let all = f64::from(p) * sent;
                near(cost.elements.iter().sum::<u64>() as f64 / parts, all, &what);
            }
        }
    }
    for p in super::counts() {
        let recursive_doubling = of_algorithm("recursive-doubling", 0, p).unwrap();
        assert_eq!(f64::from(checked(&recursive_doubling, false).rounds), formula("rabenseifner", p, false).0);
    }
}

/// Every number of halving rounds, in every plan: all ranks get the same bits, in the order of the ranks and by one
/// bracketing; and the cost by which a plan is chosen is that of the schedules.
#[test]
fn plans_may_stop_halving_in_any_round() {
    for p in (2..=48).chain([63, 96, 105, 127]) {
        let mut plans = vec![
            Plan::new(p, &[Factor::TwoOne]),
            Plan::new(p, &[Factor::Overlapping]),
            odd_factor(p, Factor::Overlapping),
            odd_factor(p, Factor::NonOverlapping),
            Plan::new(p, &prime_factors(p).map(Factor::Ring).collect::<Vec<_>>()),
        ];
        if p % 3 == 0 {
            plans.push(Plan::new(p, &[Factor::Ring(3), Factor::Overlapping]));
        }
        for plan in plans {
            for rounds in 0..=plan.rounds().len() {
                let plan = plan.clone().halved(rounds);
                let schedules = of_plan(&plan, p);
                assert!(checked(&schedules, false).same_bracketing);
                let costs = Costs { alpha: 1.5, beta: 20.0, gamma: 3.0 };
                near(time(&in_step(&schedules), costs), costs.of(&plan, 1.0), &format!("P {p}, {plan:?}"));
            }
        }
    }
}

/// Rabenseifner, Träff 2004, table 1: the time of four protocols in multiples of α, for βm of 0.1 α (S), 1 α (M), 10 α
/// (L) and 100 α (XL), with γ a tenth of β.
///
/// Zeros replace numbers of the ring with full vectors that are not visible in the scan of the paper; its formula gives
/// them. The formula has ⌈log2 p⌉ α, as the visible rows have: Bruck's allgather, not p - 1 rounds. The elimination
/// with full vectors at p = 63 is printed with 7 α but 6 βm, contrary to the formula, (⌈log2 p⌉ + 1)(α + βm), which all
/// other rows follow and which is used here: each of the seven rounds moves the full vector.
#[test]
fn table_1_of_the_paper() {
    const TABLE: [(u32, f64, [f64; 4]); 23] = [
        (3, 0.1, [0.0, 3.32, 4.14, 4.21]),
        (3, 1.0, [0.0, 6.20, 5.40, 6.10]),
        (3, 10.0, [0.0, 35.0, 18.0, 25.0]),
        (5, 0.1, [3.44, 4.43, 7.17, 6.26]),
        (5, 1.0, [7.40, 8.30, 8.68, 8.63]),
        (5, 10.0, [47.0, 47.0, 23.8, 32.3]),
        (7, 0.1, [3.66, 4.43, 9.18, 6.26]),
        (7, 1.0, [9.60, 8.30, 10.8, 8.63]),
        (7, 10.0, [69.0, 47.0, 27.0, 32.3]),
        (13, 0.1, [0.0, 5.54, 16.2, 8.29]),
        (13, 1.0, [0.0, 10.4, 18.0, 10.9]),
        (13, 10.0, [0.0, 59.0, 35.4, 36.9]),
        (15, 0.1, [0.0, 5.54, 18.2, 8.29]),
        (15, 1.0, [0.0, 10.4, 20.0, 10.9]),
        (15, 10.0, [0.0, 59.0, 37.6, 36.9]),
        (23, 0.1, [7.42, 6.65, 27.2, 10.3]),
        (23, 1.0, [29.2, 12.5, 29.0, 13.0]),
        (23, 10.0, [247.0, 71.0, 47.1, 40.2]),
        (23, 100.0, [2425.0, 656.0, 228.0, 312.0]),
        (63, 0.1, [12.8, 7.66, 68.2, 12.3]),
        (63, 1.0, [74.2, 13.6, 70.1, 15.1]),
        (63, 10.0, [688.0, 73.0, 88.7, 42.9]),
        (63, 100.0, [6826.0, 667.0, 275.0, 321.0]),
    ];
    println!("  p   βm/α     ring, latency  elimination, lat.  ring, bandwidth  elimination, bw.");
    for (p, size, printed) in TABLE {
        let costs = Costs { alpha: 1.0, beta: size, gamma: size / 10.0 };
        let (ring, whole) = (Plan::new(p, &[Factor::Ring(p)]), usize::MAX);
        let elimination = |factor, rounds| Plan::new(p, &[factor]).halved(rounds);
        let plans = |factor| [ring.clone(), elimination(factor, 0), ring.clone().halved(1), elimination(factor, whole)];
        let predicted = |factor| plans(factor).map(|plan| time(&in_step(&of_plan(&plan, p)), costs));
        let [overlapping, non_overlapping] = [Factor::Overlapping, Factor::NonOverlapping].map(predicted);
        println!("{p:3} {size:6}  {overlapping:16.2?}");
        for (i, printed) in printed.into_iter().enumerate() {
            near(non_overlapping[i], overlapping[i], "the two elimination protocols cost the same");
            // Three digits are printed, more for numbers above a thousand; the totals are sums of rounded parts.
            if printed == 0.0 {
                continue;
            }
            let printed = if (p, i) == (63, 1) { printed + size } else { printed };
            let digit = 10f64.powi((printed.log10().floor() as i32 - 2).min(0));
            let got = overlapping[i];
            assert!((got - printed).abs() <= digit, "p {p}, {size}, column {i}: {got}");
        }
        let not_legible = match p {
            3 => 2.0 + 2.2 * size,
            13 => 4.0 + 13.2 * size,
            15 => 4.0 + 15.4 * size,
            _ => continue,
        };
        near(overlapping[0], not_legible, "ring, latency-optimal");
    }
}

/// Rabenseifner, Träff 2004, section 4: for p = 24 and 40 and long vectors the time is 47 % less than that of folding
/// to a power of two first, by the bounds (1 + 1/2^(n + 1))(2mβ + mγ) and 2(2mβ + mγ). For vectors of the paper's size XL
/// the latencies reduce the gain.
#[test]
fn gain_over_folding_first_at_24_and_40_ranks() {
    for (p, n) in [(24, 3), (40, 3)] {
        let fold = of_algorithm("rabenseifner", 1, p).unwrap();
        let elimination = of_algorithm("elimination-3-2-overlapping", 1, p).unwrap();
        for (alpha, least) in [(0.0, 0.469), (1.0, 0.46)] {
            let costs = Costs { alpha, beta: 100.0, gamma: 10.0 };
            let (before, after) = (time(&fold, costs), time(&elimination, costs));
            let best = time(&of_plan(&factorized(p, 1 << 30, Costs { alpha: 0.0, ..costs }), p), costs);
            let gain = 1.0 - after / before;
            println!("p {p}, α {alpha}: {before:.1} to {after:.1}, {:.1} % less; factorized {best:.1}", 100.0 * gain);
            assert!((least..0.49).contains(&gain), "p {p}: {gain}");
            if alpha == 0.0 {
                let bound = 2.0 * costs.beta + costs.gamma;
                assert!(before < 2.0 * bound && after < (1.0 + 0.5f64.powi(n + 1)) * bound);
            }
            assert!(best <= after);
        }
    }
}

/// The factorized combination is never worse than its alternatives, and has the optimal number of rounds for short
/// vectors at 3·2^n and 9·2^n (Rabenseifner, Träff 2004, section 3.4).
#[test]
fn factorized_costs_least() {
    for p in 2..=64 {
        for size in [0.1, 1.0, 10.0, 100.0] {
            let costs = Costs { alpha: 1.0, beta: size, gamma: size / 10.0 };
            let by_element =
                |elements: u64| Costs { beta: size / elements as f64, gamma: costs.gamma / elements as f64, ..costs };
            let best = time(&in_step(&of_plan(&factorized(p, 1 << 20, by_element(1 << 20)), p)), costs);
            for name in ["butterfly", "elimination-3-2-overlapping", "elimination-3-2-non-overlapping", "small-ring"] {
                for threshold in [1, u32::MAX] {
                    let other = of_algorithm(name, threshold, p).map(|s| time(&in_step(&s), costs));
                    assert!(other.is_none_or(|other| best <= other + 1e-9), "P {p}, {size}, {name}: {best}, {other:?}");
                }
            }
        }
        if [3, 9].contains(&(p >> p.trailing_zeros())) {
            let latency = Costs { alpha: 1.0, beta: 0.0, gamma: 0.0 };
            assert_eq!(time(&of_plan(&factorized(p, 1, latency), p), latency), log2_up(p), "P {p}");
        }
    }
}

fn counted(operation: Operation, name: &str, p: u32, root: u32, parameters: &[u32]) -> (Cost, f64) {
    let a = table::named(operation, name).unwrap();
    let call = |rank| Call { root, parameters, elements: 1 << 30, ..Call::new(operation, rank, p) };
    let parts = (a.build)(&call(0)).input().count;
    (check_algorithm(a, call, &[]).unwrap(), f64::from(parts))
}

#[test]
fn reduce_has_the_rounds_and_elements_of_its_formulas() {
    for p in super::counts() {
        let log = p.next_power_of_two().ilog2();
        let folds = u32::from(!p.is_power_of_two());
        let roots = [0, 1, p / 2, p - 1];
        for root in roots {
            let reduce = |name: &str, parameters: &[u32]| counted(Operation::Reduce, name, p, root, parameters);
            let (flat, _) = reduce("flat", &[]);
            assert_eq!((flat.rounds, flat.messages.iter().sum::<u32>()), (p - 1, p - 1));
            let (binomial, _) = reduce("binomial", &[]);
            assert_eq!(binomial.rounds, log + u32::from(root != 0), "P {p}, root {root}");
            let (rotated, _) = reduce("binomial-rotated", &[]);
            assert_eq!((rotated.rounds, rotated.messages.iter().sum::<u32>()), (log, p - 1));
            for segments in [1, 5] {
                let (chain, _) = reduce("chain", &[segments]);
                let (low, high) = (root, p - 1 - root);
                let sides = 1 + u32::from(low.min(high) > 0);
                let longer = low.max(high);
                assert!(
                    (longer + segments - 1..longer + sides * segments).contains(&chain.rounds),
                    "P {p}, root {root}"
                );
            }
            let (rabenseifner, parts) = reduce("rabenseifner", &[1]);
            let power = p.ilog2();
            let is_folded = root % 2 == 1 && root < 2 * (p - (1 << power));
            assert_eq!(rabenseifner.rounds, 2 * power + folds + u32::from(is_folded), "P {p}, root {root}");
            let (elimination, _) = reduce("elimination-3-2", &[1]);
            assert!(elimination.rounds <= 2 * log, "P {p}, root {root}");
            for cost in [&binomial, &rabenseifner, &elimination] {
                assert!(cost.same_bracketing);
            }
            if folds == 0 {
                // Each rank sends m(1 - 1/P) in the reduce-scatter; the gather transfers as much, to the root alone.
                for cost in [&rabenseifner, &elimination] {
                    let others = parts - 1.0;
                    assert_eq!(cost.elements[root as usize] as f64, others);
                    let gathered = parts * f64::from(log) / 2.0;
                    assert_eq!(cost.elements.iter().sum::<u64>() as f64, f64::from(p) * others + gathered, "P {p}");
                }
            }
        }
    }
}

#[test]
fn reduce_scatter_has_the_rounds_and_elements_of_its_formulas() {
    for p in super::counts() {
        let count = |name: &str| counted(Operation::ReduceScatter, name, p, 0, &[]).0;
        let (log, folds) = (p.next_power_of_two().ilog2(), u32::from(!p.is_power_of_two()));
        for (name, rounds) in [("bruck", log), ("pairwise", p - 1)] {
            let cost = count(name);
            assert_eq!(cost.rounds, rounds, "P {p}");
            assert!(cost.elements.iter().chain(&cost.reduced).all(|e| *e == u64::from(p - 1)), "P {p}");
        }
        assert!(count("pairwise").same_bracketing);
        let halving = count("recursive-halving");
        assert_eq!(halving.rounds, p.ilog2() + 2 * folds, "P {p}");
        let butterfly = count("butterfly");
        assert!(butterfly.same_bracketing);
        assert!(butterfly.rounds <= log + 2 * folds, "P {p}: {} rounds", butterfly.rounds);
        let most = *butterfly.elements.iter().max().unwrap();
        assert!(most < 2 * u64::from(p), "P {p}: {most}");
        if folds == 0 {
            for cost in [butterfly, halving] {
                assert!(cost.rounds == log && cost.elements.iter().all(|e| *e == u64::from(p - 1)), "P {p}");
            }
        }
    }
}
