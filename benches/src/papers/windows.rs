//! One-sided synchronization, and layouts.

use std::time::Duration;

use farside_core::coll::operation::Operation;
use farside_core::coll::selection::Choice;
use farside_core::error::{Error, ErrorKind, Result};
use farside_core::plot::{Axis, Curve, Drawn};
use farside_core::sim::Network;
use farside_core::{Job, Team};
use farside_rma::collectives::call;
use farside_rma::{Assert, Collectives, LockWindow};

use super::Column::{Measured, Paper, Peer, Simulated};
use super::simulated::{fast_ethernet, infiniband, parameters, records, simulation};
use super::{Head, Here, Section, best_peer, curves, dashed, factor, find, less, us};
use crate::measure::neighbours;
use crate::plan::Plan;
use crate::record::{Library, Op, Record, Shape, Suite, Sync, Window};
use crate::schemes::{self, Cost, WAYS};
use crate::shapes::{Case, is_exchanged};

pub(super) const SYNCHRONIZATION: Head = Head {
    title: "Synchronization without barriers",
    source: "R. Thakur, W. Gropp, B. Toonen: Minimizing Synchronization Overhead in the Implementation of MPI \
             One-Sided Communication. EuroPVM/MPI 2004.",
    claim: "Opening calls do almost nothing, closing calls use the fewest messages and no barrier. In an \
            exchange of ghost areas with four neighbours on a grid, the paper's fence is six times as fast as \
            LAM's for short messages, its post-start-complete-wait 1.5 times, and all three synchronizations are \
            more than twice as fast as Sun's.",
};

/// The barrier whose two rounds are the naive fence.
const NAIVE: &str = "binomial-spanning-tree";

pub(super) fn synchronization(here: &Here, section: &mut Section) -> Result<()> {
    let counts: Vec<u64> = here.or(vec![1, 1024], (0..9).map(|i| 1 << (2 * i)).collect());
    let plan = |ranks, counts: &[u64]| Plan {
        suites: vec![Suite::Ghost],
        windows: vec![Window::Allocated],
        counts: counts.to_vec(),
        ranks,
        ..Plan::new(true)
    };
    let own = here.measure(section, vec![plan(2, &counts)], &[])?;
    let (ranks, network) = (here.or(4, 16), fast_ethernet());
    let sim = records(ranks, &network, &[], &plan(ranks, &counts))?;
    let naive = naive_fence(ranks, &network, &counts)?;
    let of = |sync, bytes| move |record: &Record| record.key.sync == sync && record.key.bytes == bytes;
    for (sync, paper) in [
        (Sync::Fence, "6× (LAM), over 2× (Sun)"),
        (Sync::Pscw, "1.5× (LAM), over 2× (Sun)"),
        (Sync::Lock, "over 2× (Sun)"),
        (Sync::Twosided, "fastest on the cluster"),
    ] {
        let what = format!("one integer to each neighbour, {}", sync.label());
        let is_it = of(sync, 4);
        section.row(
            what,
            [
                (Paper, paper.to_owned()),
                (Measured, us(find(&own, is_it))),
                (Simulated, us(find(&sim, is_it))),
                (Peer, best_peer(&own, is_it)),
            ],
        );
    }
    let fence = find(&sim, of(Sync::Fence, 4));
    let first = naive.first().map(|(_, us)| *us);
    let two = "a fence of two barriers, as the naive implementation of section 4.1";
    section.row(two, [(Simulated, us(first))]);
    section.row("speed of the fence beside that", [(Paper, "6× (LAM)".into()), (Simulated, factor(first, fence))]);
    let name = |record: &Record| (record.library == Library::Farside).then(|| record.key.sync.label().to_owned());
    let bytes = |record: &Record| record.key.bytes as f64;
    let title = |what: &str| format!("ghost areas, {what}");
    let caption = "one exchange by the number of bytes to each neighbour, two ranks on a core each, over shared \
                   memory; two-sided are active messages into the ghost area.";
    section.plot(Measured, title("2 ranks"), Axis::Bytes, curves(&own, bytes, name), caption);
    let mut all = curves(&sim, bytes, name);
    all.push(dashed(
        "fence of two barriers".into(),
        all.len(),
        naive.iter().map(|(n, us)| (4.0 * *n as f64, 1e3 * us)).collect(),
    ));
    let caption = format!(
        "a grid of {ranks} ranks on Fast Ethernet: {}. The barriers of the naive fence are trees ({NAIVE}).",
        parameters(&network)
    );
    section.plot(Simulated, title(&format!("{ranks} ranks")), Axis::Bytes, all, &caption);
    let gain = first.zip(fence).map_or(0.0, |(naive, fence)| naive / fence);
    section.find(
        &format!(
            "Here, with {ranks} simulated ranks, a fence of two barriers takes {gain:.2} times as long as ours; LAM, \
         which the paper measured as a whole, lost more than its barriers."
        ),
        gain > 1.0,
    );
    Ok(())
}

/// Microseconds of an exchange in which each fence is a barrier, by the number of integers.
fn naive_fence(ranks: u32, network: &Network, counts: &[u64]) -> Result<Vec<(u64, f64)>> {
    let wrong = |cause| Error::new(ErrorKind::BadArgument, "choose a barrier").cause(cause);
    let choice = Choice::parse(Operation::Barrier, NAIVE).map_err(wrong)?;
    let most = 4 * counts.iter().max().copied().unwrap_or(1) as usize;
    let exchange = |job: &Job| {
        let team: Team = job.world()?;
        let to = neighbours(team.rank(), team.size());
        let (window, from) = (LockWindow::<u8>::allocate(&team, to.len() * most)?, vec![1; most]);
        let times = window.lock_all(Assert::empty(), |epoch| {
            let run = |bytes: usize| -> Result<()> {
                team.make(call::barrier().by(&choice))?;
                to.iter().enumerate().try_for_each(|(d, to)| epoch.put(&from[..bytes], *to, (d ^ 1) * bytes))?;
                epoch.flush_all()?;
                team.make(call::barrier().by(&choice))
            };
            let timed = |n: &u64| -> Result<f64> {
                run(4 * *n as usize)?;
                job.device().compute(Duration::from_millis(100));
                job.align()?;
                let start = job.device().now();
                run(4 * *n as usize)?;
                Ok((job.device().now() - start).as_secs_f64() * 1e6)
            };
            counts.iter().map(timed).collect::<Result<Vec<_>>>()
        })?;
        window.free()?;
        Ok(times)
    };
    let of_rank = simulation(ranks, network, &[])?.run(exchange)?.results;
    let longest = |i: usize| of_rank.iter().map(|times| times[i]).fold(0.0, f64::max);
    Ok(counts.iter().enumerate().map(|(i, n)| (*n, longest(i))).collect())
}

pub(super) const LAYOUTS: Head = Head {
    title: "Zero-copy datatypes: send-gather, receive-scatter (SGRS)",
    source: "G. Santhanaraman, J. Wu, D. K. Panda: Zero-Copy MPI Derived Datatype Communication over InfiniBand. \
             EuroPVM/MPI 2004.",
    claim: "Columns of an M × 4096 array of integers, as lists of blocks on both sides, take up to 61 % less \
            time than by one RDMA write for each block (Multi-W), with 1.12 to 4.0 times the bandwidth; an \
            all-to-all up to 23 % less. Packing (Generic) is better only for short messages of blocks below 512 \
            bytes.",
};

pub(super) fn layouts(here: &Here, section: &mut Section) -> Result<()> {
    let columns: Vec<u64> = here.or(vec![4, 256], (2..12).map(|n| 1 << n).collect());
    let (network, rounds) = (infiniband(), here.or(2, 10));
    let case = |rows: u64, columns: &u64| {
        Case::new(if rows == 64 { Shape::Columns64 } else { Shape::Columns128 }, 4 * rows * columns)
    };
    let cases = columns.iter().map(|n| case(64, n)).collect::<Result<Vec<_>>>()?;
    let device = [("FARSIDE_DEVICE", "tcp")];
    let own = WAYS.map(|way| schemes::measure(way, &device, &cases, rounds)).into_iter().collect::<Result<Vec<_>>>()?;
    let sim = WAYS.map(|(name, setting)| -> Result<Vec<Cost>> {
        let simulation = simulation(2, &network, &[("FARSIDE_TRANSFER", setting)])?;
        Ok(simulation.run(|job| schemes::rank(job, name == "contiguous", &cases, 1))?.results.swap_remove(0))
    });
    let sim = sim.into_iter().collect::<Result<Vec<_>>>()?;
    let [multi_w, sgrs] = [1, 2];
    let most = |of: &[Vec<Cost>], gain: &dyn Fn(&Cost, &Cost) -> f64| {
        of[multi_w].iter().zip(&of[sgrs]).map(|(before, after)| gain(before, after)).fold(f64::NEG_INFINITY, f64::max)
    };
    let latency = |of: &[Vec<Cost>]| most(of, &|before, after| 100.0 * (1.0 - after.us / before.us));
    let bandwidth = |of: &[Vec<Cost>]| most(of, &|before, after| after.mb_per_s / before.mb_per_s);
    let percent = |value: f64| format!("{value:.0} %");
    let times = |value: f64| format!("{value:.2}×");
    section.row(
        "SGRS takes less time than Multi-W, at most",
        [(Paper, "61 %".into()), (Measured, percent(latency(&own))), (Simulated, percent(latency(&sim)))],
    );
    section.row(
        "bandwidth of SGRS beside Multi-W, at most",
        [(Paper, "4.0×".into()), (Measured, times(bandwidth(&own))), (Simulated, times(bandwidth(&sim)))],
    );
    // All-to-all of columns.
    let exchanged = here.or(4, 8);
    let layouts: Vec<_> = cases.iter().map(|case| (case.shape, case.bytes)).collect();
    let layouts: Vec<_> =
        layouts.into_iter().filter(|(shape, bytes)| is_exchanged(*shape, *bytes, exchanged)).collect();
    let plan = |ranks| Plan::of_layouts(true, Suite::Put, ranks, &[Window::Allocated], &layouts);
    let here_all = here.measure(section, vec![plan(here.or(2, 4))], &[])?;
    let all = ["multi-w", "sgrs"]
        .map(|scheme| records(exchanged, &network, &[("FARSIDE_TRANSFER", scheme)], &plan(exchanged)));
    let [by_blocks, by_lists] = all;
    let (by_blocks, by_lists) = (by_blocks?, by_lists?);
    let exchange = |record: &Record| record.key.op == Op::Alltoall;
    let gain = by_blocks.iter().zip(&by_lists).map(|(before, after)| (after.us(), before.us()));
    let (after, before) = gain.max_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0))).unzip();
    section.row("the same in an all-to-all, at most", [(Paper, "23 %".into()), (Simulated, less(after, before))]);
    for (_, bytes) in layouts.iter().take(1).chain(layouts.last()) {
        let is_it = |record: &Record| exchange(record) && record.key.bytes == *bytes;
        let peer = best_peer(&here_all, is_it);
        let what = format!("an all-to-all of {} of 64 blocks, Farside's choice", farside_core::plot::size(*bytes));
        section
            .row(what, [(Measured, us(find(&here_all, is_it))), (Simulated, us(find(&by_lists, is_it))), (Peer, peer)]);
    }
    let mut plot = |made, of: &[Vec<Cost>], part: fn(&Cost) -> f64, title: &str, caption: &str| {
        let curve = |(i, (name, _)): (usize, &(&str, &str))| Curve {
            name: (*name).to_owned(),
            color: i,
            drawn: if i == 3 { Drawn::Dashed } else { Drawn::Line },
            points: cases.iter().zip(&of[i]).map(|(case, cost)| (case.bytes as f64, 1e3 * part(cost))).collect(),
        };
        let curves = WAYS.iter().enumerate().map(curve).collect();
        section.plot(made, title, Axis::Bytes, curves, caption);
    };
    let title = "columns of 64 rows: a put and its fence";
    plot(
        Measured,
        &own,
        |cost| cost.us,
        title,
        "two ranks of one process over TCP on the loopback interface, which has lists of blocks too; over shared \
         memory a layout is one copy, and there are no schemes to compare.",
    );
    let caption = format!(
        "InfiniBand of 2004: {}. Copies by the processor take no time in the simulator, so Generic is its lower \
         bound.",
        parameters(&network)
    );
    plot(Simulated, &sim, |cost| cost.us, title, &caption);
    let caption = "of the rank's thread, for a put and its fence, over TCP as above.";
    plot(Measured, &own, |cost| cost.origin_us, "processor time of the origin", caption);
    plot(Measured, &own, |cost| cost.target_us, "processor time of the target", caption);
    section.find(
        &format!(
            "Simulated, SGRS takes up to {:.0} % less time than Multi-W, most with short blocks, and has up to {:.2} \
         times its bandwidth. Multi-W is a put here, which needs no answer of the target, where SGRS needs two \
         messages before the data; the paper's comparison is kinder to SGRS.",
            latency(&sim),
            bandwidth(&sim)
        ),
        latency(&sim) > 30.0 && bandwidth(&sim) > 1.12,
    );
    // The two leading block diagonals of a square matrix.
    if let [message] = &schemes::measure_diagonals(&device, &[8], 2 * rounds)?[..] {
        let [known, new] = [2, 4].map(|i| message[i].parse::<f64>().ok());
        let what = format!("block diagonals of {} blocks: less time with the layout cached", message[1]);
        section.row(
            what,
            [(Paper, "10 %".into()), (Measured, format!("{} ({} for {})", less(known, new), us(known), us(new)))],
        );
    }
    Ok(())
}
