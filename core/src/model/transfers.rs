//! Cut-offs of transfers between two nodes, from measured times of packed blocks, of one request for each block, and of
//! gathered blocks.
//!
//! A notification is part of the last write, but after packed data and lists it is sent only when the target has
//! acknowledged these. Lists on both sides are not posted, since the peer would have to post its own. Their time is
//! estimated as that of a request to the peer, its answer, and gathered blocks, plus the cost of the blocks once more
//! for scattering them.

use super::link::{End, Way};
use super::measure::quartile;
use super::{PLogP, Table};
use crate::calibration::crossover_length;
use crate::device::CutOffs;
use crate::error::Result;
use crate::job::Job;

/// Lengths of blocks that are measured, in bytes.
const BLOCKS: [usize; 5] = [32, 128, 512, 2048, 8192];
/// Number of blocks of a transfer.
const COUNT: usize = 16;
/// Maximum length of a message that may be sent in packets although reads are faster: the amount that a device buffers
/// of messages that are not received yet.
const LONGEST_IN_PACKETS: usize = 64 << 10;

/// The measured cut-offs of transfers. Lengths are in bytes; `u64::MAX` if the second way is never faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfers {
    /// Cut-offs of transfers with derived datatypes.
    pub cut_offs: CutOffs,
    /// Minimum length of a message that a target on another node reads from the sender's memory.
    pub read_inter: u64,
}

/// Times in nanoseconds until 16 blocks of one length have arrived and the peer is notified.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TransferTimes {
    /// Bytes of a block.
    pub block: usize,
    /// The blocks are packed, sent as one message, and unpacked.
    pub packed: f64,
    /// One write for each block.
    pub writes: f64,
    /// One write that gathers the blocks.
    pub gathered: f64,
    /// Lists on both sides.
    pub lists: f64,
}

/// The measured times.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// Round trips of an empty message and of an empty write.
    empty: [Vec<f64>; 2],
    blocks: [BlockSamples; BLOCKS.len()],
}

#[derive(Debug, Default)]
struct BlockSamples {
    copy: Vec<f64>,
    message: Vec<f64>,
    writes: Vec<f64>,
    gathered: Vec<f64>,
    /// One write of the same number of bytes.
    write: Vec<f64>,
}

impl Samples {
    /// Measures each time once, until `is_over`.
    pub(super) fn take(&mut self, job: &Job, end: &End<'_>, is_over: impl Fn() -> bool) -> Result<()> {
        let [message, write] = &mut self.empty;
        message.push(end.stream(Way::MESSAGES, 1, 1, 0)?);
        write.push(end.stream(Way::WRITES, 1, 1, 0)?);
        for (len, samples) in BLOCKS.into_iter().zip(&mut self.blocks) {
            if is_over() {
                return Ok(());
            }
            samples.copy.push(copy_time(job, len));
            samples.message.push(end.stream(Way::MESSAGES, 1, 1, COUNT * len)?);
            samples.writes.push(end.stream(Way::WRITES, COUNT, 1, len)?);
            samples.gathered.push(end.stream(Way::WRITES, 1, COUNT, len)?);
            samples.write.push(end.stream(Way::WRITES, 1, 1, COUNT * len)?);
        }
        Ok(())
    }

    /// The times of transfers; empty if nothing was measured.
    pub(super) fn times(&self) -> Vec<TransferTimes> {
        let [message, write] = self.empty.each_ref().map(|times| quartile(times) / 2.0);
        let acknowledged = 2.0 * message;
        let times = BLOCKS.into_iter().zip(&self.blocks).filter(|(_, s)| !s.write.is_empty()).map(|(block, s)| {
            let beyond_write = |times: &[f64]| (quartile(times) - write).max(0.0);
            let gathered = beyond_write(&s.gathered);
            let scattered = (gathered - beyond_write(&s.write)).max(0.0);
            TransferTimes {
                block,
                packed: 2.0 * quartile(&s.copy) + (quartile(&s.message) - message).max(0.0) + acknowledged,
                writes: beyond_write(&s.writes),
                gathered,
                lists: 2.0 * message + gathered + scattered + acknowledged,
            }
        });
        times.collect()
    }

    /// The cut-offs that follow from the times, or `None` if a length was not measured. `now` are the cut-offs in
    /// force.
    pub(super) fn cut_offs(&self, messages: &PLogP, eager: usize, now: Transfers) -> Option<Transfers> {
        let times = self.times();
        let request = quartile(&self.empty[0]);
        let cut_offs = (times.len() == BLOCKS.len()).then(|| cut_offs(&times, request, now.cut_offs))?;
        let read_inter = reads(&messages.gap, eager, request, now.read_inter);
        Some(Transfers { cut_offs, read_inter })
    }
}

/// Time in which the processor copies [`COUNT`] blocks of a length, each followed by as many bytes, to consecutive memory.
fn copy_time(job: &Job, len: usize) -> f64 {
    let (from, mut to) = (vec![1_u8; 2 * COUNT * len], vec![0_u8; COUNT * len]);
    let mut copy = || {
        for (from, to) in std::hint::black_box(&from).chunks_exact(2 * len).zip(to.chunks_exact_mut(len)) {
            to.copy_from_slice(&from[..len]);
        }
        std::hint::black_box(&mut to);
    };
    copy();
    let begin = job.device().now();
    copy();
    job.device().now().duration_since(begin).as_nanos() as f64
}

/// The cut-offs at which the times cross; `request` is the time in which a peer answers a request. Of each time, only
/// the part that grows with the number of blocks is compared, since the number differs from transfer to transfer; for
/// lists also the request that precedes them.
fn cut_offs(times: &[TransferTimes], request: f64, now: CutOffs) -> CutOffs {
    // A transfer and its answers take this many halves of a request in addition to the time for the blocks.
    let by_block = |time: f64, halves: f64| (time - halves * request / 2.0).max(1.0);
    let packed = |t: &TransferTimes| by_block(t.packed, 3.0);
    let lists = |t: &TransferTimes| by_block(t.lists, 5.0);
    let from = |ways: &dyn Fn(&TransferTimes) -> [f64; 2]| {
        let most = usize::MAX / 2;
        let times: Vec<_> = times.iter().map(|t| (t.block, ways(t))).collect();
        match crossover_length(&times, most) {
            never if never == most => u64::MAX,
            bytes => bytes as u64,
        }
    };
    let gather_block = from(&|t| [packed(t), by_block(t.gathered, 1.0)]);
    let multi_w_block = from(&|t| [packed(t).min(lists(t)), by_block(t.writes, 1.0)]);
    let sgrs_block = from(&|t| [packed(t), lists(t)]);
    // The longest block for which lists are used shows most accurately how much they save per byte.
    let longest = times.iter().rfind(|t| (sgrs_block..multi_w_block).contains(&(t.block as u64)));
    let sgrs_bytes = longest.map_or(u64::MAX, |t| {
        let saved = (packed(t) - lists(t)) / (COUNT * t.block) as f64;
        if saved > 0.0 { (request / saved) as u64 } else { u64::MAX }
    });
    CutOffs { gather_block, multi_w_block, sgrs_block, sgrs_bytes, ..now }
}

/// The minimum length of a message for which a read takes no more time than packets (and the preceding request, if the
/// message is not eager). It is computed from a line through the times of each; `now` if there are too few times of
/// either.
fn reads(gap: &Table, eager: usize, request: f64, now: u64) -> u64 {
    let (packets, reads): (Vec<_>, Vec<_>) =
        gap.0.iter().filter(|(bytes, _)| *bytes > 0).partition(|(bytes, _)| *bytes <= eager as u64);
    let reads: Vec<_> = reads.into_iter().filter(|(bytes, _)| *bytes >= now).collect();
    let (Some([a, b]), Some([c, d])) = (line(&packets), line(&reads)) else { return now };
    let (first, lost) = (eager as f64 + 1.0, |len: f64| c + d * len - (a + request + b * len));
    let at = match lost(first) {
        lost if lost <= 0.0 => first,
        lost if b > d => first + lost / (b - d),
        _ => f64::INFINITY,
    };
    at.min(LONGEST_IN_PACKETS as f64).round() as u64
}

/// The line a + b x through points by least squares; `None` for fewer than two.
fn line(points: &[(u64, f64)]) -> Option<[f64; 2]> {
    let n = points.len() as f64;
    let mean = |of: fn(&(u64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|p| p.0 as f64), mean(|p| p.1));
    let square: f64 = points.iter().map(|p| (p.0 as f64 - x).powi(2)).sum();
    let slope = points.iter().map(|p| (p.0 as f64 - x) * (p.1 - y)).sum::<f64>() / square;
    slope.is_finite().then_some([y - slope * x, slope])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times with a cost of 100 ns per request, 20 ns per copied block, and a cost per byte.
    fn times(request: f64) -> Vec<TransferTimes> {
        let of = |block: usize| {
            let (n, bytes) = (COUNT as f64, (COUNT * block) as f64);
            TransferTimes {
                block,
                packed: 1.5 * request + 2.0 * (20.0 * n + 0.1 * bytes) + 0.2 * bytes,
                writes: request / 2.0 + n * 100.0 + 0.2 * bytes,
                gathered: request / 2.0 + n * 30.0 + 0.2 * bytes,
                lists: 2.5 * request + n * 60.0 + 0.2 * bytes,
            }
        };
        BLOCKS.map(of).to_vec()
    }

    #[test]
    fn cut_offs_are_where_the_times_cross() {
        let found = cut_offs(&times(1000.0), 1000.0, CutOffs::UNMEASURED);
        // For each block of b bytes, packing and unpacking take 2 (20 + b / 10) ns, a separate write 100 ns, gathering
        // 30 ns, and lists 60 ns.
        assert!(found.multi_w_block == u64::MAX && found.gather_block == 32, "{found:?}");
        assert!((60..140).contains(&found.sgrs_block), "{found:?}");
        assert_eq!(found.segment, CutOffs::UNMEASURED.segment);
        let without_lists: Vec<_> = times(1000.0).into_iter().map(|t| TransferTimes { lists: 1e9, ..t }).collect();
        let found = cut_offs(&without_lists, 1000.0, CutOffs::UNMEASURED);
        assert!((250..350).contains(&found.multi_w_block) && found.sgrs_block == u64::MAX, "{found:?}");
        let slow = |t: TransferTimes| TransferTimes { writes: 1e9, gathered: 1e9, lists: 1e9, ..t };
        let never = cut_offs(&times(1000.0).into_iter().map(slow).collect::<Vec<_>>(), 1000.0, CutOffs::UNMEASURED);
        // Separate writes are expensive. A list saves 40 + b / 5 - 60 ns for each block of b = 8192 bytes, and is taken once the
        // sum exceeds the cost of its request.
        let dear = |t: TransferTimes| TransferTimes { writes: 1e9, ..t };
        let found = cut_offs(&times(1000.0).into_iter().map(dear).collect::<Vec<_>>(), 1000.0, CutOffs::UNMEASURED);
        let bytes = 1000.0 * 8192.0 / (8192.0 / 5.0 - 20.0);
        assert!(found.multi_w_block == u64::MAX && (bytes - found.sgrs_bytes as f64).abs() < 2.0, "{found:?}");
        let never = [never.gather_block, never.multi_w_block, never.sgrs_block, never.sgrs_bytes];
        assert_eq!(never, [u64::MAX; 4]);
    }

    #[test]
    fn reads_begin_where_the_lines_of_packets_and_reads_cross() {
        let table = |slope: f64| {
            let packets = [64, 512, 4096, 8192].map(|bytes| (bytes, 1000.0 + slope * bytes as f64));
            let reads = [32_768, 65_536].map(|bytes| (bytes, 5000.0 + 0.1 * bytes as f64));
            Table([&packets[..], &reads].concat())
        };
        assert_eq!(reads(&table(0.3), 8192, 0.0, 16_384), 20_000);
        assert_eq!(reads(&table(0.3), 8192, 1000.0, 16_384), 15_000);
        assert_eq!(reads(&table(0.05), 8192, 0.0, 16_384), LONGEST_IN_PACKETS as u64);
        assert_eq!(reads(&table(0.05), 8192, 5000.0, 16_384), 8193);
        assert_eq!(reads(&table(9.0), 8192, 0.0, 16_384), 8193);
        assert_eq!(reads(&Table(vec![(64, 1.0), (512, 2.0)]), 8192, 0.0, 16_384), 16_384);
    }
}
