//! Reductions, the choice of an algorithm, and barriers.

use std::collections::BTreeMap;
use std::time::Duration;

use farside_core::coll::operation::Operation;
use farside_core::coll::schedule::predict::LogGP;
use farside_core::coll::selection::Choice;
use farside_core::error::{Error, ErrorKind, Result};
use farside_core::plot::{Axis, Curve, Drawn, size};
use farside_core::sim::{Network, Switch};
use farside_rma::collectives::{Collectives, call};

use super::Column::{Measured, Paper, Peer, Simulated};
use super::simulated::{fast_ethernet, infiniband, infiniband_lop, long_vectors, parameters, records, simulation};
use super::{Head, Here, Section, best_peer, curves, dashed, factor, find, less, us};
use crate::coll::report::Measured as Records;
use crate::coll::{Case, model};
use crate::plan::Plan;
use crate::record::{Library, Op, Record};

/// Virtual times of a collective: of the call as the library chooses, and of the named algorithms, or all.
fn simulate(op: Op, ranks: u32, bytes: u64, network: &Network, algorithms: &[&str]) -> Result<Vec<Record>> {
    let algorithms = algorithms.iter().map(|name| (*name).to_owned()).collect();
    let plan = Plan { algorithms, ..Plan::of_collective(true, op, ranks, &[bytes]) };
    // Messages are sent whole, as in the papers, without a request before each.
    records(ranks, network, &[("FARSIDE_TRANSFER", "eager:100000000")], &plan)
}

fn by_name(record: &Record) -> Option<String> {
    if record.library == Library::Farside { record.algorithm.clone() } else { None }
}

fn ranks(record: &Record) -> f64 {
    f64::from(record.key.ranks)
}

/// The nanoseconds that a model predicts for an algorithm, by number of ranks.
fn predicted(operation: Operation, name: &str, bytes: u64, ranks: &[u32], model: &LogGP) -> Vec<(f64, f64)> {
    let one = |p: &u32| {
        let choice = Choice::parse(operation, name).ok()?;
        let case = Case::new(operation, *p, bytes).between_nodes(true);
        case.predicted(&choice, model).map(|ns| (f64::from(*p), ns))
    };
    ranks.iter().filter_map(one).collect()
}

/// Colors of predictions are those of the simulated curves of the same algorithms.
fn predictions(curves: &mut Vec<Curve>, names: &[&str], model: &str, of: impl Fn(&str) -> Vec<(f64, f64)>) {
    for name in names {
        let color = curves.iter().position(|curve| curve.name == *name).unwrap_or(curves.len());
        curves.push(dashed(format!("{name}, {model}"), color, of(name)));
    }
}

/// Virtual nanoseconds of a barrier from the time at which its last rank enters, `late` behind all others.
fn after_late(ranks: u32, network: &Network, name: &str, late: Duration) -> Result<f64> {
    let bad = |cause| Error::new(ErrorKind::BadArgument, "simulate a late rank").cause(cause);
    let choice = Choice::parse(Operation::Barrier, name).map_err(bad)?;
    let run = simulation(ranks, network, &[])?.run(|job| {
        let (team, device) = (job.world()?, job.device());
        let barrier = || team.make(call::barrier().by(&choice));
        barrier()?;
        job.align()?;
        if team.rank() + 1 == team.size() {
            device.compute(late);
        }
        let entered = device.now();
        barrier()?;
        Ok((entered, device.now()))
    })?;
    let [entered, left] = [run.results.iter().map(|at| at.0).max(), run.results.iter().map(|at| at.1).max()];
    Ok(left.zip(entered).map_or(0.0, |(left, entered)| (left - entered).as_secs_f64() * 1e9))
}

pub(super) const REDUCTIONS: Head = Head {
    title: "Reductions for any number of processes",
    source: "R. Rabenseifner, J. L. Träff: More Efficient Reduction Algorithms for Non-Power-of-Two Number of \
             Processors in Message-Passing Parallel Systems. EuroPVM/MPI 2004.",
    claim: "3-2 elimination, in which three processes reduce into two, reduces long vectors in 47 % less time \
            than folding to a power of two first, with 24 and 40 processes; small rings for factors of 3, 5 and \
            7 save a round with short vectors.",
};

pub(super) fn reductions(here: &Here, section: &mut Section) -> Result<()> {
    const FOLD: &str = "rabenseifner(1)";
    const ELIMINATION: &str = "elimination-3-2-overlapping(1)";
    let names = [FOLD, "elimination-2-1(1)", ELIMINATION, "factorized"];
    let bytes = here.or(8 << 10, 64 << 10);
    let (network, operation) = (long_vectors(bytes), Operation::Allreduce);
    let all: Vec<u32> = here.or(vec![3, 6, 8], (2..=64).collect());
    let sim =
        all.iter().map(|p| simulate(Op::Allreduce, *p, bytes, &network, &names)).collect::<Result<Vec<_>>>()?.concat();
    let of = |records: &[Record], p: u32, name: &str| {
        find(records, |record| record.key.ranks == p && record.algorithm.as_deref() == Some(name))
    };
    let measured = |p| Plan {
        algorithms: names.iter().map(|name| (*name).to_owned()).collect(),
        ..Plan::of_collective(true, Op::Allreduce, p, &[8, here.or(4096, 256 << 10)])
    };
    let own = here.measure(section, here.or(vec![3], vec![6]).into_iter().map(measured).collect(), &[])?;
    for p in all.iter().filter(|p| [3, 6, 12, 24, 40, 63].contains(p)) {
        let paper = if [24, 40].contains(p) { "47 %".to_owned() } else { String::new() };
        let gain = less(of(&sim, *p, ELIMINATION), of(&sim, *p, FOLD));
        section.row(
            format!("{p} ranks, long vector: 3-2 elimination takes less than folding first"),
            [(Paper, paper), (Simulated, gain)],
        );
    }
    for call in own.iter().filter(|record| record.library == Library::Farside && record.algorithm.is_none()) {
        let same = |record: &Record| record.key == call.key;
        let what = format!("{} ranks, {}, as the call chooses", call.key.ranks, size(call.key.bytes));
        section.row(what, [(Measured, us(Some(call.us()))), (Peer, best_peer(&own, same))]);
    }
    let mut curves_of = curves(&sim, ranks, by_name);
    predictions(&mut curves_of, &[FOLD, ELIMINATION], "LogGP", |name| {
        predicted(operation, name, bytes, &all, &LogGP::from(&network))
    });
    let caption = format!(
        "every number of ranks; {} bytes, whose transfer takes 100 L, as in row XL of the paper's table 1: {}; \
         adding takes no time.",
        bytes,
        parameters(&network)
    );
    section.plot(Simulated, "allreduce of a long vector", Axis::Number("ranks"), curves_of, &caption);
    let at = |record: &Record| record.key.bytes as f64;
    for p in here.or(vec![3], vec![6]) {
        let records: Vec<Record> = own.iter().filter(|record| record.key.ranks == p).cloned().collect();
        section.plot(
            Measured,
            format!("allreduce, {p} ranks"),
            Axis::Bytes,
            curves(&records, at, by_name),
            "over shared memory, by each algorithm; more ranks than cores if there are fewer.",
        );
    }
    let others = all.iter().filter(|p| !p.is_power_of_two());
    let gains =
        others.filter_map(|p| Some(1.0 - of(&sim, *p, ELIMINATION)? / of(&sim, *p, FOLD)?)).collect::<Vec<f64>>();
    let best = gains.iter().copied().fold(0.0, f64::max);
    section.find(
        &format!(
            "Simulated over all {} numbers of ranks that are no power of two, it takes {:.0} % less time on average \
         and {:.0} % at most.",
            gains.len(),
            100.0 * gains.iter().sum::<f64>() / gains.len().max(1) as f64,
            100.0 * best
        ),
        best > 0.4,
    );
    Ok(())
}

pub(super) const CHOICE: Head = Head {
    title: "Choice of collective algorithms by a model (pLogP)",
    source: "L. A. Barchet-Estefanel, G. Mounié: Fast Tuning of Intra-cluster Collective Communications. \
             EuroPVM/MPI 2004.",
    claim: "From parameters that are measured once for a network, a model predicts each algorithm closely enough \
            to choose the best: on 40 machines with Fast Ethernet the segmented chain for broadcasts (figures 1 \
            and 2), and the binomial tree instead of the flat one for scatter (figures 3 and 4).",
};

pub(super) fn choice(here: &Here, section: &mut Section) -> Result<()> {
    let (p, network) = (here.or(6, 40), fast_ethernet());
    let model_of = LogGP::from(&network);
    let sizes: Vec<u64> = here.or(vec![8, 8192], vec![8, 1 << 10, 8 << 10, 64 << 10, 256 << 10]);
    let (mut cases, mut near) = (0, 0);
    for (op, operation, pair) in [
        (Op::Broadcast, Operation::Broadcast, ["binomial", "chain"]),
        (Op::Scatter, Operation::Scatter, ["flat", "binomial"]),
    ] {
        // The best number of segments of each algorithm, measured and predicted.
        let mut lines: BTreeMap<&str, [Vec<(f64, f64)>; 2]> = BTreeMap::new();
        for bytes in &sizes {
            let k = (bytes / 8192).max(1);
            let segmented = format!("chain({k})");
            let named = if op == Op::Broadcast {
                vec!["binomial", "flat", "binary", "scatter-ring", &segmented]
            } else {
                vec!["binomial", "flat", "chain"]
            };
            let sim = simulate(op, p, *bytes, &network, &named)?;
            let case = Case::new(operation, p, *bytes).between_nodes(true);
            let timed = |record: &Record| {
                let choice = Choice::parse(operation, record.algorithm.as_deref()?).ok()?;
                Some((choice.to_string(), record.us(), case.predicted(&choice, &model_of)?))
            };
            let timed: Vec<(String, f64, f64)> = sim.iter().filter_map(timed).collect();
            let best = timed.iter().min_by(|a, b| a.1.total_cmp(&b.1));
            let chosen = timed.iter().min_by(|a, b| a.2.total_cmp(&b.2));
            if let (Some(best), Some(chosen)) = (best, chosen) {
                (cases, near) = (cases + 1, near + u32::from(chosen.1 <= 1.1 * best.1));
                let what = format!("{} of {}, {p} ranks: chosen by the model, and the best", op.label(), size(*bytes));
                let sim = format!("{} {}; {} {}", chosen.0, us(Some(chosen.1)), best.0, us(Some(best.1)));
                let paper = if op == Op::Broadcast { "segmented chain" } else { "binomial" };
                section.row(what, [(Paper, paper.into()), (Simulated, sim)]);
            }
            for name in pair {
                let found = timed.iter().find(|(other, ..)| other == name || other.starts_with(&format!("{name}(")));
                if let Some((_, simulated, predicted)) = found {
                    let [times, model] = lines.entry(name).or_default();
                    times.push((*bytes as f64, 1e3 * simulated));
                    model.push((*bytes as f64, *predicted));
                }
            }
        }
        let curves = lines.into_iter().enumerate().flat_map(|(color, (name, [times, model]))| {
            let curve = Curve { points: times, ..dashed(name.to_owned(), color, Vec::new()) };
            [Curve { drawn: farside_core::plot::Drawn::Line, ..curve }, dashed(format!("{name}, LogGP"), color, model)]
        });
        let segments = if op == Op::Broadcast { " The chain has segments of 8 KiB." } else { "" };
        let caption = format!("Fast Ethernet: {}; predicted by LogGP (dashed).{segments}", parameters(&network));
        section.plot(Simulated, format!("{}, {p} ranks", op.label()), Axis::Bytes, curves.collect(), &caption);
    }
    let few = here.or(2, 4);
    let ops = here.or(vec![Op::Pingpong, Op::Scatter], vec![Op::Pingpong, Op::Scatter, Op::Broadcast]);
    let bytes: Vec<u64> = here.or(vec![8, 64], vec![8, 4096, 256 << 10]);
    let plans = ops.iter().map(|op| Plan::of_collective(true, *op, few, &bytes)).collect();
    let own = here.measure(section, plans, &[])?;
    for op in &ops[1..] {
        for bytes in &bytes {
            let is_it = |record: &Record| record.key.op == *op && record.key.bytes == *bytes;
            let call = find(&own, |record| is_it(record) && record.algorithm.is_none());
            let best = own.iter().filter(|r| r.algorithm.is_some() && is_it(r)).map(Record::us).min_by(f64::total_cmp);
            let what = format!("{} of {}, {few} ranks: a call, and the best algorithm", op.label(), size(*bytes));
            section.row(what, [(Measured, format!("{}; {}", us(call), us(best))), (Peer, best_peer(&own, is_it))]);
        }
    }
    for plot in Records(&own).plots(|ranks| model(&own, ranks, 0.0)) {
        let caption = "over shared memory, by each algorithm, and predicted (dashed) by pLogP from round trips \
                       of the same run; more ranks than cores if there are fewer.";
        section.plot(Measured, plot.title, plot.axis, plot.curves, caption);
    }
    section.find(
        &format!(
            "Simulated with {p} ranks, the model's choice is within a tenth of the best algorithm in {near} of \
         {cases} cases."
        ),
        near * 10 >= cases * 9,
    );
    Ok(())
}

pub(super) const BARRIERS: Head = Head {
    title: "Barriers and their models (LogP, LoP)",
    source: "T. Hoefler: Evaluation of publicly available Barrier-Algorithms and Improvement of the \
             Barrier-Operation for large-scale Cluster-Systems with special Attention on InfiniBand Networks. \
             Diploma thesis, TU Chemnitz, 2005.",
    claim: "With n messages of a round in parallel, n-way dissemination takes up to 40 % less time than the \
            fastest published barrier over InfiniBand, which is dissemination by RDMA writes; dissemination is \
            the best algorithm on networks that follow LogP; and a barrier in the switch is independent of the \
            number of nodes.",
};

pub(super) fn barriers(here: &Here, section: &mut Section) -> Result<()> {
    let (network, operation) = (infiniband(), Operation::Barrier);
    let all: Vec<u32> = here.or(vec![2, 5, 8], vec![2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]);
    let names = [
        "central-counter",
        "combining-tree(4)",
        "tournament",
        "mcs-tree(4,2)",
        "binomial-spanning-tree",
        "pairwise-exchange",
        "dissemination(1)",
        "dissemination(2)",
        "dissemination(3)",
        "n-wise-exchange(3)",
    ];
    let sim = all.iter().map(|p| simulate(Op::Barrier, *p, 0, &network, &names)).collect::<Result<Vec<_>>>()?.concat();
    let switched = Network { switch: Some(Switch::default()), ..network.clone() };
    let switch = all.iter().map(|p| simulate(Op::Barrier, *p, 0, &switched, &["dissemination(1)"]));
    let mut switch = switch.collect::<Result<Vec<_>>>()?.concat();
    switch.retain(|record| record.algorithm.is_none());
    let of = |p: u32, name: &str| find(&sim, |r| r.key.ranks == p && r.algorithm.as_deref() == Some(name));
    let in_switch = |p: u32| find(&switch, |record| record.key.ranks == p);
    let most = all.last().copied().unwrap_or(2);
    for n in [2, 3] {
        let gain = less(of(most, &format!("dissemination({n})")), of(most, "dissemination(1)"));
        section.row(
            format!("{most} ranks: {n}-way dissemination takes less than 1-way"),
            [(Paper, "up to 40 %".into()), (Simulated, gain)],
        );
    }
    section.row(
        format!("{most} ranks: the barrier in the switch"),
        [(Paper, "2.57 µs (4 nodes, external)".into()), (Simulated, us(in_switch(most)))],
    );
    // Table 2.2, over Ethernet.
    let (large, ethernet) = (here.or(8, 128), fast_ethernet());
    let table = [
        ("central-counter", 4594.5),
        ("combining-tree(4)", 4009.79),
        ("tournament", 3642.54),
        ("dissemination(1)", 1904.57),
    ];
    let big = simulate(Op::Barrier, large, 0, &ethernet, &table.map(|(name, _)| name))?;
    for (name, paper) in table {
        let time = find(&big, |record| record.algorithm.as_deref() == Some(name));
        section.row(
            format!("{large} ranks, Ethernet, {name} (table 2.2: 128 nodes)"),
            [(Paper, us(Some(paper))), (Simulated, us(time))],
        );
    }
    let few = [2, here.or(2, 4)];
    let plans =
        few[usize::from(here.quick)..].iter().map(|p| Plan::of_collective(true, Op::Barrier, *p, &[])).collect();
    let own = here.measure(section, plans, &[])?;
    for p in &few[usize::from(here.quick)..] {
        let is_it = |record: &Record| record.key.ranks == *p && record.algorithm.is_none();
        section.row(
            format!("{p} ranks, as the team calls it"),
            [(Measured, us(find(&own, is_it))), (Peer, best_peer(&own, is_it))],
        );
    }
    let mut lines = curves(&sim, ranks, by_name);
    lines.extend(
        curves(&switch, ranks, |_| Some("in the switch".into()))
            .into_iter()
            .map(|curve| Curve { color: names.len(), ..curve }),
    );
    let caption = format!("InfiniBand of 2005 as LogGP: {}; gates of the switch take 10 ns.", parameters(&network));
    section.plot(Simulated, "barriers", Axis::Powers("ranks"), lines.clone(), &caption);
    let shown = ["dissemination(1)", "dissemination(2)", "dissemination(3)"];
    lines.retain(|curve| shown.contains(&curve.name.as_str()));
    lines.iter_mut().enumerate().for_each(|(color, curve)| curve.color = color);
    predictions(&mut lines, &shown, "LogGP", |name| predicted(operation, name, 0, &all, &LogGP::from(&network)));
    let lop = infiniband_lop();
    for (color, name) in shown.into_iter().enumerate() {
        // ⌈log_{n+1} P⌉ (n o(n) + n L(n)), section 2.3.7.1.4.
        let n = (color + 1) as u32;
        let at = |p: u32| {
            let rounds = (1..).find(|r| (n + 1).pow(*r) >= p).unwrap_or(1);
            1e3 * f64::from(rounds * n) * (lop.send_overhead.at(f64::from(n)) + lop.latency(n))
        };
        let points = all.iter().map(|p| (f64::from(*p), at(*p))).collect();
        lines.push(Curve { drawn: Drawn::Marks, ..dashed(format!("{name}, LoP"), color + 3, points) });
    }
    let caption = "beside the predictions of LogGP and of LoP with the thesis' parameters (RDMA write, inline), \
                   its lower bound for balanced ranks.";
    section.plot(Simulated, "n-way dissemination", Axis::Powers("ranks"), lines, caption);
    let at = curves(&own, ranks, by_name);
    let caption = "over shared memory, all ranks on this machine; more ranks than cores if there are fewer.";
    section.plot(Measured, "barriers", Axis::Powers("ranks"), at, caption);
    let late = Duration::from_micros(50);
    let mut after = Vec::new();
    for (color, name) in names.into_iter().enumerate() {
        let points = all.iter().map(|p| Ok((f64::from(*p), after_late(*p, &network, name, late)?)));
        let points = points.collect::<Result<_>>()?;
        after.push(Curve { name: name.to_owned(), color, drawn: Drawn::Line, points });
    }
    for curve in &after {
        let (balanced, late) = (of(most, &curve.name), curve.points.last().map(|(_, ns)| ns / 1e3));
        section.row(
            format!("{most} ranks, {}: after a late rank, and balanced", curve.name),
            [(Simulated, format!("{}, {}", us(late), us(balanced)))],
        );
    }
    let caption = "from the entry of the last rank, which is 50 µs behind all others, to the end at all ranks.";
    section.plot(Simulated, "barriers with a late rank", Axis::Powers("ranks"), after, caption);
    let crossover = all.iter().find(|p| {
        let best = names.iter().filter_map(|name| of(**p, name)).min_by(f64::total_cmp);
        in_switch(**p).zip(best).is_some_and(|(switch, best)| switch < best)
    });
    let crossover = crossover.map_or_else(|| "at no number of ranks".to_owned(), |p| format!("from {p} ranks on"));
    let gain =
        of(most, "dissemination(1)").zip(of(most, "dissemination(3)")).map_or(0.0, |(one, three)| 1.0 - three / one);
    let times = factor(of(most, "central-counter"), of(most, "dissemination(1)"));
    section.find(
        &format!(
            "Simulated, 3-way takes {:.0} % less than 1-way dissemination at {most} ranks, and the switch is the \
         fastest {crossover}; a central counter takes {times} the time of dissemination.",
            100.0 * gain
        ),
        gain > 0.2,
    );
    Ok(())
}
