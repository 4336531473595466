//! The measurement: as many rounds over all points as time permits, so that a disturbance affects one time of many
//! points and not many times of one point. A point's time is the lower quartile of its times, since disturbances make
//! times longer.

use std::time::Duration;

use super::fit::{self, FanSamples, Point, Samples};
use super::link::{End, MAX_PEERS, OP, Way};
use super::store::is_usable;
use super::transfers::{self, Transfers};
use super::{Fits, Models, Posting, Primitive};
use crate::am;
use crate::error::{Error, ErrorKind, Result};
use crate::job::Job;
use crate::load::Load;

/// Minimum time limit at which long messages and LoP are measured.
const WHOLE: Duration = Duration::from_millis(200);
/// Maximum number of rounds: more times do not change a quartile.
const ROUNDS: usize = 100;
/// Length of the headers of collectives; headers of data have the same length.
const HEADER: usize = 16;
/// Number of bytes of a message, or of a block, for LoP.
const NORMAL: usize = 256;
/// Number of bytes of a message that is posted inline.
const INLINE: usize = 8;
/// Maximum number of messages of a stream.
const STREAM: usize = 32;
/// Maximum total bytes, and maximum number, of messages that are received after they have arrived.
const RECEIVED: (usize, usize) = (16 << 10, 16);

/// The points that are measured.
struct Plan {
    /// Lengths of messages and writes in bytes.
    sizes: Vec<usize>,
    /// Maximum length of a message that is sent eagerly.
    eager: usize,
    /// Number of bytes of memory for messages.
    room: usize,
    /// The numbers of messages p, for LoP.
    fans: Vec<usize>,
    /// Whether the peer is on another node, so that transfers have cut-offs.
    inter: bool,
}

impl Plan {
    fn new(eager: usize, limit: Duration, peers: usize, inter: bool) -> Self {
        let whole = limit >= WHOLE;
        let most = if whole { 1 << 20 } else { 64 << 10 };
        let mut sizes: Vec<usize> = if whole {
            [0, 8, 64, 256].into_iter().chain((10..=20).step_by(2).map(|n| 1 << n)).collect()
        } else {
            vec![0, 64, 512, 4 << 10, 32 << 10, most]
        };
        // There are sizes on both sides of the step.
        sizes.extend([eager, eager.saturating_add(1)].into_iter().filter(|len| *len < most));
        sizes.sort_unstable();
        sizes.dedup();
        let fans = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64].into_iter();
        let fans = fans.filter(|p| cfg!(feature = "tune") && whole && *p <= peers.max(16)).collect();
        Self { sizes, eager, room: 4 * most, fans, inter }
    }

    /// Number of messages of a stream.
    fn stream(&self, len: usize) -> usize {
        (self.room / len.max(1)).clamp(4, STREAM)
    }
}

/// The times of all points.
#[derive(Default)]
struct Times {
    messages: Sizes,
    writes: Sizes,
    fans: Vec<(Way, FanSamples)>,
    transfers: transfers::Samples,
}

/// The times of a primitive by length. The time of a message of a stream is the difference of two times, which are
/// stored.
#[derive(Default)]
struct Sizes {
    samples: Samples,
    /// Streams of one message, and of [`Plan::stream`] messages.
    streams: [Vec<Point>; 2],
}

/// The lower quartile.
pub(super) fn quartile(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 4).copied().unwrap_or(0.0)
}

/// Minimum number of samples at a point for its lower quartile to count as undisturbed.
const MIN_SAMPLES: usize = 4;

/// The points, each with one time. A point with too few samples gets at most the time of any longer message.
fn settled(points: &[Point]) -> Vec<Point> {
    let mut least = f64::INFINITY;
    let mut settled: Vec<Point> = points.iter().map(|p| Point { x: p.x, times: vec![quartile(&p.times)] }).collect();
    for (point, all) in settled.iter_mut().zip(points).rev() {
        if all.times.len() < MIN_SAMPLES {
            point.times[0] = point.times[0].min(least);
        }
        least = least.min(point.times[0]);
    }
    settled
}

impl Sizes {
    fn settled(&self, plan: &Plan) -> Samples {
        let [one, all] = &self.streams;
        // Both times contain the latency of the last message and of the answer.
        let each = |(one, all): (&Point, &Point)| {
            let messages = plan.stream(all.x as usize) - 1;
            let time = (quartile(&all.times) - quartile(&one.times)).max(0.0) / messages as f64;
            Point { x: all.x, times: vec![time; all.times.len()] }
        };
        let per_message: Vec<Point> = one.iter().zip(all).map(each).collect();
        Samples {
            round_trip: settled(&self.samples.round_trip),
            per_message: settled(&per_message),
            send_overhead: settled(&self.samples.send_overhead),
            receive_overhead: settled(&self.samples.receive_overhead),
        }
    }
}

/// Adds a time to its point; returns the lower quartile of the point.
fn add(points: &mut Vec<Point>, x: usize, time: f64) -> f64 {
    let x = x as f64;
    match points.iter_mut().find(|point| point.x == x) {
        Some(point) => {
            point.times.push(time);
            quartile(&point.times)
        }
        None => {
            points.push(Point { x, times: vec![time] });
            time
        }
    }
}

/// Implements [`Models::measure`].
pub(super) fn measure(job: &Job, ranks: &[u32], limit: Duration) -> Result<Models> {
    job.running(OP)?;
    let bad = |cause: String| Error::new(ErrorKind::BadArgument, OP).rank(job.rank()).cause(cause);
    let me = job.rank_number();
    let [leader, others @ ..] = ranks else { return Err(bad("no ranks were given".into())) };
    if let Some(rank) = ranks.iter().find(|rank| **rank >= job.size_number()) {
        return Err(Error::new(ErrorKind::NoSuchRank, OP).rank(me).peer(*rank));
    }
    if others.is_empty() {
        return Err(bad("only one rank was given".into()).remedy("measure with at least two ranks"));
    }
    if !ranks.contains(&me) {
        return Err(bad("this rank is not one of the measured ranks".into()));
    }
    if *leader != me {
        let result = End::follow(job, *leader)?;
        return Models::from_bytes(&result).ok_or_else(|| {
            Error::new(ErrorKind::Aborted, OP)
                .rank(me)
                .peer(*leader)
                .cause("the measuring rank failed: see that rank's error")
        });
    }
    // If there are several nodes, the inter-node network is measured.
    let node = |rank: u32| job.device().capabilities().nodes.get(rank as usize).copied();
    let shares = |rank: &u32| job.device().shares_memory(*rank) || node(me).is_some() && node(*rank) == node(me);
    let intra = others.iter().all(shares);
    let (mut peers, mut rest): (Vec<u32>, Vec<u32>) = others.iter().partition(|rank| shares(rank) == intra);
    if peers.len() > MAX_PEERS {
        rest.extend(peers.drain(MAX_PEERS..));
    }
    let cut_offs = job.message_cut_offs();
    let read = if intra { cut_offs.read_intra } else { cut_offs.read_inter };
    let eager = am::eager(job, peers[0], HEADER).min(read.saturating_sub(1));
    let plan = Plan::new(eager, limit, peers.len(), !intra);
    let end = End::lead(job, &peers, &rest, plan.room)?;
    // Ranks that share processors wait for each other, so their waits do not reflect the load of other programs.
    let load = || if job.is_on_oversubscribed_node() { Load::default() } else { end.load() };
    let models = take_times(job, &end, &plan, limit).and_then(|times| fitted(job, &plan, &times, load()));
    let ended = end.end(&rest, &models.as_ref().map_or_else(|_| Vec::new(), Models::to_bytes));
    models.and_then(|models| ended.map(|()| models))
}

fn take_times(job: &Job, end: &End<'_>, plan: &Plan, limit: Duration) -> Result<Times> {
    let start = job.device().now();
    let is_over = || job.device().now().duration_since(start) >= limit;
    let mut times = Times::default();
    let [writes, lists] = end.writes();
    let mut ways = vec![(Primitive::Messages, Posting::Normal), (Primitive::Messages, Posting::Inline)];
    ways.extend([(Primitive::Writes, Posting::Normal), (Primitive::Writes, Posting::Inline)].iter().filter(|_| writes));
    ways.extend([(Primitive::Writes, Posting::List)].iter().filter(|_| writes && lists));
    let ways = ways.into_iter().map(|(primitive, posting)| Way { primitive, posting });
    times.fans = ways.map(|way| (way, FanSamples::default())).collect();
    // The first messages make the connections and allocate the pages.
    let ways = &[Way::MESSAGES, Way::WRITES][..if writes { 2 } else { 1 }];
    for way in ways {
        end.ping(*way, end.size(), end.size(), INLINE)?;
    }
    for _ in 0..ROUNDS {
        for len in &plan.sizes {
            for way in ways {
                if is_over() {
                    return Ok(times);
                }
                let sizes = if *way == Way::MESSAGES { &mut times.messages } else { &mut times.writes };
                by_size(end, plan, *way, *len, sizes)?;
            }
        }
        if writes && plan.inter {
            times.transfers.take(job, end, is_over)?;
        }
        for (way, samples) in &mut times.fans {
            for p in &plan.fans {
                if is_over() {
                    return Ok(times);
                }
                measure_fan(end, *way, *p, samples)?;
            }
        }
    }
    Ok(times)
}

/// Measures each time of messages of one length once.
fn by_size(end: &End<'_>, plan: &Plan, way: Way, len: usize, sizes: &mut Sizes) -> Result<()> {
    let Sizes { samples, streams: [one, all] } = sizes;
    let [posted, round_trip] = end.ping(way, 1, 1, len)?;
    add(&mut samples.send_overhead, len, posted);
    let usual = add(&mut samples.round_trip, len, round_trip);
    add(one, len, end.stream(way, 1, 1, len)?);
    add(all, len, end.stream(way, plan.stream(len), 1, len)?);
    if way.primitive == Primitive::Messages {
        let count = (RECEIVED.0 / len.max(1)).clamp(1, RECEIVED.1);
        add(&mut samples.receive_overhead, len, received(end, count, len, usual)?);
    }
    Ok(())
}

/// The time for which each of `count` messages keeps the receiver busy, if they arrive within some round trips.
fn received(end: &End<'_>, count: usize, len: usize, round_trip: f64) -> Result<f64> {
    /// Maximum wait for messages to arrive, in nanoseconds.
    const MAX_WAIT_NS: f64 = 5e6;
    let delay = (2.0 * round_trip * (count + 1) as f64).min(MAX_WAIT_NS);
    Ok(end.receive(count, len, Duration::from_nanos(delay as u64))? / count as f64)
}

/// Measures each time of p messages once: scenarios 1 and 2 of LoP.
fn measure_fan(end: &End<'_>, way: Way, p: usize, samples: &mut FanSamples) -> Result<()> {
    let len = if way.posting == Posting::Inline { INLINE } else { NORMAL };
    let each = |time: f64| time / p as f64;
    let [posted, round_trip] = end.ping(way, p, 1, len)?;
    add(&mut samples.send_overhead, p, each(posted));
    let [_, all] = end.ping(way, p, end.size(), len)?;
    let usual = add(&mut samples.round_trip, p, each(all));
    if way.primitive == Primitive::Messages {
        add(&mut samples.receive_overhead, p, received(end, p, len, usual.min(round_trip) * 2.0)?);
    }
    Ok(())
}

fn settled_fan(samples: &FanSamples) -> FanSamples {
    // The time per message decreases with the number of messages.
    let settled = |points: &[Point]| -> Vec<Point> {
        points.iter().map(|p| Point { x: p.x, times: vec![quartile(&p.times)] }).collect()
    };
    FanSamples {
        send_overhead: settled(&samples.send_overhead),
        receive_overhead: settled(&samples.receive_overhead),
        round_trip: settled(&samples.round_trip),
    }
}

fn fitted(job: &Job, plan: &Plan, times: &Times, load: Load) -> Result<Models> {
    let too_short = |e: Error| {
        let e = Error::new(ErrorKind::Timeout, OP).rank(job.rank()).cause(e.to_string());
        e.remedy("raise the time limit, or end other programs on the ranks' processors")
    };
    let reduction = reduction(job);
    let fits = |sizes: &Sizes, primitive: Primitive| {
        let samples = &sizes.settled(plan);
        let eager = |points: &[Point]| -> Vec<Point> {
            let is_eager = |point: &&Point| primitive == Primitive::Writes || point.x <= plan.eager as f64;
            points.iter().filter(is_eager).cloned().collect()
        };
        let mut log_gp = fit::log_gp(&Samples {
            round_trip: eager(&samples.round_trip),
            per_message: eager(&samples.per_message),
            send_overhead: eager(&samples.send_overhead),
            receive_overhead: eager(&samples.receive_overhead),
        })?;
        log_gp.model.reduction = reduction;
        log_gp.model.threshold = (primitive == Primitive::Messages).then_some(plan.eager as u64);
        let mut p_log_p = fit::p_log_p(samples)?;
        p_log_p.model.reduction = reduction;
        // LoP is not fitted if some points were not reached in time.
        let of = times.fans.iter().filter(|(way, _)| way.primitive == primitive);
        let lo_p = of.filter_map(|(way, samples)| Some((way.posting, fit::lo_p(&settled_fan(samples)).ok()?)));
        let lo_p = lo_p.filter(|(_, fitted)| is_usable(&fitted.model)).collect();
        Ok(Fits { log_gp, p_log_p, lo_p })
    };
    let messages = fits(&times.messages, Primitive::Messages).map_err(too_short)?;
    let capabilities = job.device().capabilities();
    let now = Transfers { cut_offs: capabilities.cut_offs, read_inter: capabilities.messages.read_inter as u64 };
    let transfers = times.transfers.cut_offs(&messages.p_log_p.model, plan.eager, now);
    Ok(Models {
        device: capabilities.name.to_owned(),
        messages,
        writes: fits(&times.writes, Primitive::Writes).ok(),
        transfers,
        transfer_times: times.transfers.times(),
        load,
    })
}

/// Nanoseconds for each byte of a sum of two vectors in the processor's cache.
fn reduction(job: &Job) -> f64 {
    const ELEMENTS: usize = 2048;
    const TIMES: usize = 9;
    let (mut sum, other) = (vec![0.0_f64; ELEMENTS], vec![1.0_f64; ELEMENTS]);
    let mut times = [(); TIMES].map(|()| {
        let begin = job.device().now();
        for (sum, other) in sum.iter_mut().zip(std::hint::black_box(&other)) {
            *sum += other;
        }
        std::hint::black_box(&mut sum);
        job.device().now().duration_since(begin).as_nanos() as f64 / size_of_val(&other[..]) as f64
    });
    times.sort_by(f64::total_cmp);
    times[TIMES / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn point_of_few_times_is_no_longer_than_that_of_a_longer_message() {
        let point = |x: f64, times: &[f64]| Point { x, times: times.into() };
        let points = [
            point(1.0, &[3.0]),
            point(2.0, &[90.0, 80.0]),
            point(4.0, &[9.0, 7.0, 8.0, 6.0, 50.0]),
            point(8.0, &[5.0; 9]),
        ];
        let times: Vec<f64> = settled(&points).iter().map(|point| point.times[0]).collect();
        assert_eq!(times, [3.0, 5.0, 7.0, 5.0]);
    }
}
