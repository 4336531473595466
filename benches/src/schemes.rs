#![allow(unsafe_code)]
//! Transfers between two strided layouts over verbs, with each scheme: packed, one message for each block, lists of
//! blocks on both sides; and contiguous transfers, as the limit. Measures the time of a put with its closing fence, the
//! bandwidth of several puts, and the CPU time on either side; computes the resulting cut-offs.
//!
//! The ranks are two threads of this process, with one device each.

use clap::{Args, value_parser};
use farside_core::device::CutOffs;
use farside_core::error::{Error, ErrorKind, Result};
use farside_core::stats::Kind;
use farside_core::{Job, Team};
use farside_datatype::{DatatypeError, TypeMap};
use farside_rma::Assert;
use farside_rma::raw::{Options, RawWindow};

use crate::plan::sorted;
use crate::record::Shape;
use crate::settings_with;
use crate::shapes::{self, Case, diagonals, diagonals_bytes};
use crate::table::{number, text};
use crate::usage::{Of, Usage};

/// Puts columns of a matrix of ints, and messages of some blocks, with every scheme, and block diagonals with lists,
/// whose layouts are cached at the target or new; between two ranks of this process, over the device of the settings.
/// Prints the resulting cut-offs.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Number of measurements of each shape; the best one is used.
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Measure fewer shapes.
    #[arg(long)]
    quick: bool,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<bool> {
        report(self.rounds, self.quick).map(|()| true)
    }
}

/// Puts of one measurement of bandwidth.
const PUTS: u32 = 4;

/// The schemes, and the setting that selects each: packed, sent, unpacked; a message for each block; lists of blocks on
/// both sides; the same number of bytes in one block.
pub(crate) const WAYS: [(&str, &str); 4] =
    [("Generic", "generic"), ("Multi-W", "multi-w"), ("SGRS", "sgrs"), ("contiguous", "multi-w")];

fn failed(e: DatatypeError) -> Error {
    Error::new(ErrorKind::BadArgument, "build a layout").cause(e.cause().to_owned())
}

/// The cost of one shape with one scheme.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    /// The shortest time of a put and the fence that closes it, in microseconds.
    pub(crate) us: f64,
    /// The maximum bandwidth of some puts and a fence.
    pub(crate) mb_per_s: f64,
    /// CPU time of the origin's thread, for a put and its fence.
    pub(crate) origin_us: f64,
    /// CPU time of the target's thread, for a put and its fence.
    pub(crate) target_us: f64,
}

/// Measures every shape in one of the [`WAYS`], each `rounds` times, with further settings, those of a device.
pub(crate) fn measure(
    (name, setting): (&str, &str),
    device: &[(&str, &str)],
    cases: &[Case],
    rounds: u32,
) -> Result<Vec<Cost>> {
    let settings = settings_with(&[device, &[("FARSIDE_TRANSFER", setting)]].concat())?;
    let mut both = Job::threads_with(2, &settings, |job| rank(job, name == "contiguous", cases, rounds))?;
    let (target, mut origin) = (both.pop().unwrap_or_default(), both.pop().unwrap_or_default());
    for (o, t) in origin.iter_mut().zip(target) {
        o.target_us = t.origin_us;
    }
    Ok(origin)
}

/// Measures block diagonals with blocks of these sides, `rounds` times each, alternating between the same layout and a
/// new one each time: the same diagonals of a matrix that starts at another element.
pub(crate) fn measure_diagonals(device: &[(&str, &str)], sides: &[u64], rounds: u32) -> Result<Vec<Vec<String>>> {
    let settings = settings_with(&[device, &[("FARSIDE_TRANSFER", "sgrs")]].concat())?;
    let mut both = Job::threads_with(2, &settings, |job| {
        let team = job.world()?;
        sides.iter().map(|side| diagonals_of(&team, *side, rounds)).collect::<Result<Vec<_>>>()
    })?;
    Ok(both.swap_remove(0))
}

/// Bytes and blocks of a message; then, for a layout cached at the target and for a new one, the shortest time in
/// microseconds of a put and its closing fence, and the bytes of layouts that one put sends.
fn diagonals_of(team: &Team, side: u64, rounds: u32) -> Result<Vec<String>> {
    let known = diagonals(side, 0).map_err(failed)?;
    let new =
        (1..=u64::from(rounds)).map(|first| diagonals(side, first).map_err(failed)).collect::<Result<Vec<_>>>()?;
    let most = known.true_ub() as usize + 4 * rounds as usize;
    let window = RawWindow::allocate(team, most, Options::default())?;
    let buffer = vec![1u8; most];
    window.fence(Assert::empty())?;
    let run = |map: &TypeMap| -> Result<(f64, u64)> {
        let before = team.job().stats();
        let us = fenced(&window, &buffer, map, 1)?;
        Ok((us, (team.job().stats() - before).bytes(Kind::Layout)))
    };
    // A warm-up connects, registers memory and sends the layout.
    run(&known)?;
    let mut best = [(f64::INFINITY, 0); 2];
    for new in &new {
        for (best, map) in best.iter_mut().zip([&known, new]) {
            let (us, layouts) = run(map)?;
            *best = (best.0.min(us), best.1.max(layouts));
        }
    }
    window.fence(Assert::NOSUCCEED)?;
    window.free()?;
    let of_layout = |(us, bytes): (f64, u64)| [number(Some(us)), bytes.to_string()];
    let message = [diagonals_bytes(side), known.block_count()].map(|number| number.to_string());
    Ok(message.into_iter().chain(best.into_iter().flat_map(of_layout)).collect())
}

/// Microseconds of the given number of puts by rank 0, and the fence that closes them.
fn fenced(window: &RawWindow, buffer: &[u8], map: &TypeMap, puts: u32) -> Result<f64> {
    let device = window.team().job().device();
    let start = device.now();
    for _ in 0..if window.team().rank() == 0 { puts } else { 0 } {
        // SAFETY: the buffer outlives the fence.
        unsafe { window.put_typed(buffer.as_ptr(), map, 1, 0, map) }?;
    }
    window.fence(Assert::empty())?;
    Ok((device.now() - start).as_secs_f64() * 1e6)
}

/// One rank of [`measure`]: the costs of all shapes; CPU time is that of this rank's thread.
pub(crate) fn rank(job: &Job, is_contiguous: bool, cases: &[Case], rounds: u32) -> Result<Vec<Cost>> {
    let team = job.world()?;
    let most = cases.iter().map(Case::room).max().unwrap_or(0);
    let window = RawWindow::allocate(&team, most, Options::default())?;
    let buffer = vec![1u8; most];
    window.fence(Assert::empty())?;
    let mut costs = Vec::new();
    for case in cases {
        let one_block = Case::new(Shape::None, case.bytes)?.map;
        let map = if is_contiguous { &one_block } else { &case.map };
        let run = |puts| fenced(&window, &buffer, map, puts);
        // A warm-up connects, registers memory and sends the layout.
        run(1)?;
        let before = Usage::now(Of::Thread)?;
        let times = (0..rounds).map(|_| run(1)).collect::<Result<Vec<f64>>>()?;
        let used = Usage::now(Of::Thread)? - before;
        let many = (0..rounds).map(|_| run(PUTS)).collect::<Result<Vec<f64>>>()?;
        let least = |times: Vec<f64>| times.into_iter().fold(f64::INFINITY, f64::min);
        costs.push(Cost {
            us: least(times),
            mb_per_s: (u64::from(PUTS) * case.bytes) as f64 / least(many),
            origin_us: used.cpu.as_secs_f64() * 1e6 / f64::from(rounds),
            target_us: 0.0,
        });
    }
    window.fence(Assert::NOSUCCEED)?;
    window.free()?;
    Ok(costs)
}

/// Bytes of a block, and of the whole message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Bytes of a block.
    pub(crate) block: u64,
    /// Bytes of the message.
    pub(crate) bytes: u64,
}

/// The cut-offs from measurements: for each shape the microseconds of [`WAYS`] in order.
///
/// Each cut-off is the minimum length of a block (or message) from which the scheme saves more time than it costs, over
/// all shapes, so that a single disturbed measurement does not change it. A cut-off without measurements keeps its
/// value in `now`.
pub(crate) fn cut_offs(cases: &[(Sizes, [f64; 4])], now: CutOffs) -> CutOffs {
    let best = |of: fn(&Sizes) -> u64, gain: &dyn Fn(&[f64; 4]) -> f64, chosen: &dyn Fn(&Sizes) -> bool| {
        let cases = || cases.iter().filter(|(s, _)| chosen(s));
        let sum = |start: u64| cases().filter(|(s, _)| of(s) >= start).map(|(_, us)| gain(us)).sum::<f64>();
        let starts = sorted(cases().map(|(s, _)| of(s)));
        let best = starts.into_iter().map(|start| (start, sum(start))).max_by(|a, b| a.1.total_cmp(&b.1));
        best.map_or(u64::MAX, |(start, gain)| if gain > 0.0 { start } else { u64::MAX })
    };
    let multi_w_block = best(|s| s.block, &|us| us[0].min(us[2]).ln() - us[1].ln(), &|_| true);
    let below = move |s: &Sizes| s.block < multi_w_block;
    let sgrs_block = best(|s| s.block, &|us| us[0].ln() - us[2].ln(), &below);
    let lists = move |s: &Sizes| below(s) && s.block >= sgrs_block;
    let sgrs_bytes = best(|s| s.bytes, &|us| us[0].ln() - us[2].ln(), &lists);
    CutOffs { multi_w_block, sgrs_block, sgrs_bytes, ..now }
}

/// Measures and prints everything: columns of a matrix, messages of some blocks, block diagonals; and the cut-offs.
pub(crate) fn report(rounds: u32, quick: bool) -> Result<()> {
    let is_of = |case: &Case, kind: &str| case.shape.number_of(kind).is_some();
    let cases = shapes::puts(quick).into_iter().map(|(shape, bytes)| Case::new(shape, bytes));
    let mut cases = cases.collect::<Result<Vec<_>>>()?;
    cases.retain(|case| is_of(case, "columns") || is_of(case, "blocks"));
    let ways = WAYS.map(|way| measure(way, &[], &cases, rounds));
    let ways = ways.into_iter().collect::<Result<Vec<_>>>()?;
    type Part = (&'static str, fn(&Cost) -> f64);
    let parts: [Part; 4] = [
        ("microseconds of a put and its fence", |c| c.us),
        ("MB/s", |c| c.mb_per_s),
        ("CPU microseconds of the origin", |c| c.origin_us),
        ("CPU microseconds of the target", |c| c.target_us),
    ];
    let header: Vec<&str> = ["", "block", "message"].into_iter().chain(WAYS.map(|(name, _)| name)).collect();
    for (title, kind) in
        [("columns of a matrix of 4096 ints a row", "columns"), ("messages by their number of blocks", "blocks")]
    {
        for (what, part) in parts {
            let rows = cases.iter().enumerate().filter(|(_, case)| is_of(case, kind)).map(|(i, case)| {
                let name = [case.shape.label().to_owned(), case.layout.len.to_string(), case.bytes.to_string()];
                name.into_iter().chain(ways.iter().map(|way| number(Some(part(&way[i]))))).collect()
            });
            println!("{title}: {what}\n{}", text(&header, 1, rows));
        }
    }
    let sides = if quick { &[16][..] } else { &[4, 8, 16, 32, 64] };
    let header = ["message", "blocks", "layout known", "sent bytes", "layout new", "sent bytes"];
    let about = "two leading block diagonals by SGRS: microseconds of a put and its fence, bytes of layouts sent";
    println!("{about}\n{}", text(&header, 0, measure_diagonals(&[], sides, rounds)?));
    let us = |i: usize| std::array::from_fn(|way| ways[way][i].us);
    let measured: Vec<_> = cases
        .iter()
        .enumerate()
        .map(|(i, case)| (Sizes { block: case.layout.len as u64, bytes: case.bytes }, us(i)))
        .collect();
    let c = cut_offs(&measured, CutOffs::UNMEASURED);
    println!("cut-offs that follow: {c:?}");
    println!(
        "FARSIDE_TRANSFER=multi-w-block:{},sgrs-block:{},sgrs-message:{}",
        c.multi_w_block, c.sgrs_block, c.sgrs_bytes
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_offs_are_where_the_measured_times_cross() {
        // Model times for b bytes in n blocks: Generic b, Multi-W 300 n + b / 20, SGRS 2000 + b / 10, and more for
        // short blocks.
        let mut all = Vec::new();
        for bytes in [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10] {
            for blocks in [4, 16, 64] {
                let sizes = Sizes { block: bytes / blocks, bytes };
                let (n, b) = (blocks as f64, bytes as f64);
                all.push((
                    sizes,
                    [b, 300.0 * n + b / 20.0, 2000.0 + b / 10.0 + 10_000.0 * (64.0 / sizes.block as f64), 0.0],
                ));
            }
        }
        let cut = cut_offs(&all, CutOffs::UNMEASURED);
        assert!(cut.multi_w_block >= 1 << 10 && cut.multi_w_block <= 64 << 10, "{cut:?}");
        assert!(cut.sgrs_bytes >= 4 << 10 && cut.sgrs_bytes <= 64 << 10, "{cut:?}");
        assert_eq!(cut.gather_block, CutOffs::UNMEASURED.gather_block);
        // A scheme that always loses is never chosen.
        let never: Vec<_> = all.iter().map(|(s, us)| (*s, [us[0], 1e9, 1e9, 0.0])).collect();
        let cut = cut_offs(&never, CutOffs::UNMEASURED);
        assert_eq!((cut.multi_w_block, cut.sgrs_block, cut.sgrs_bytes), (u64::MAX, u64::MAX, u64::MAX));
    }
}
