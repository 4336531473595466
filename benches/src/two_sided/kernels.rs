#![allow(unsafe_code)]
//! The communication of the NAS kernels (NPB 3.4, MPI), without their arithmetic: one iteration of CG (the inner one),
//! MG (a cycle), FT (a transform), LU (a time step) and IS (a ranking), by active messages that complete in each way.

use std::time::Instant;

use farside_core::Job;
use farside_core::am::{Sink, Source};
use farside_core::error::Result;
use farside_rma::Collectives;

use super::Counted;
use crate::settings_with;

/// The ways of completion that the paper compares.
pub(crate) const WAYS: [&str; 3] = ["base", "counters", "enhanced"];

/// The sizes of a class.
#[derive(Clone, Copy)]
pub(crate) struct Class {
    pub(crate) name: &'static str,
    /// CG: rows of the matrix.
    rows: usize,
    /// MG: points along an edge.
    grid: usize,
    /// FT: points.
    points: usize,
    /// LU: points along an edge.
    edge: usize,
    /// IS: keys.
    keys: usize,
}

pub(crate) const S: Class = Class { name: "S", rows: 1400, grid: 32, points: 64 * 64 * 64, edge: 12, keys: 1 << 16 };
pub(crate) const W: Class = Class { name: "W", rows: 7000, grid: 128, points: 128 * 128 * 32, edge: 33, keys: 1 << 20 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Sends a message of this many bytes to a rank.
    Send(usize, usize),
    /// Waits for the next message of a rank.
    Await(usize),
}

use Step::{Await, Send};

/// Sends to each peer, and waits for a message of each.
fn exchange(with: impl Iterator<Item = (usize, usize)> + Clone) -> impl Iterator<Item = Step> {
    with.clone().map(|(peer, bytes)| Send(peer, bytes)).chain(with.map(|(peer, _)| Await(peer)))
}

/// 1, 2, 4 and so on, below `ranks`.
fn distances(ranks: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1), |step| Some(2 * step)).take_while(move |step| *step < ranks)
}

/// The kernels, and their steps at a rank of a number of ranks, which is a power of two.
type Kernel = fn(&Class, usize, usize) -> Vec<Step>;
const KERNELS: [(&str, Kernel); 5] =
    [("CG", conjugate_gradient), ("MG", multigrid), ("FT", fourier), ("LU", wavefront), ("IS", sort)];

/// A grid of ranks with as many columns as rows, or twice as many.
fn columns(ranks: usize) -> usize {
    distances(ranks.isqrt() * 2).last().map_or(1, |half| if half * half < ranks { 2 * half } else { half })
}

/// Sums along the rows of the grid, the transpose, and two dot products.
fn conjugate_gradient(class: &Class, rank: usize, ranks: usize) -> Vec<Step> {
    let (columns, mut steps) = (columns(ranks), Vec::new());
    let (rows, row, column) = (ranks / columns, rank / columns, rank % columns);
    let sum = |bytes| {
        distances(columns).flat_map(move |step| exchange(std::iter::once((row * columns + (column ^ step), bytes))))
    };
    steps.extend(sum(8 * class.rows / rows));
    let wide = columns / rows;
    let mirror = wide * (column / wide * rows + row) + column % wide;
    steps.extend(exchange([(mirror, 8 * class.rows / columns)].into_iter().filter(|(peer, _)| *peer != rank)));
    (0..2).for_each(|_| steps.extend(sum(8)));
    steps
}

/// The faces of each level of a periodic grid, twice on the way down and twice on the way up. Two of its axes are split.
fn multigrid(class: &Class, rank: usize, ranks: usize) -> Vec<Step> {
    let columns = columns(ranks);
    let split = [columns, ranks / columns];
    let place = [rank % columns, rank / columns];
    let at = move |[x, y]: [usize; 2]| y * columns + x;
    let faces = |points: usize| {
        (0..2).filter(move |axis| split[*axis] > 1).flat_map(move |axis| {
            let bytes = 8 * (points + 2) * (points / split[1 - axis] + 2);
            let neighbour = |distance| {
                let mut to = place;
                to[axis] = (to[axis] + distance) % split[axis];
                (at(to), bytes)
            };
            exchange([neighbour(1), neighbour(split[axis] - 1)].into_iter())
        })
    };
    let levels: Vec<usize> = distances(class.grid).map(|step| class.grid / step).collect();
    levels.iter().chain(levels.iter().rev()).flat_map(|points| faces(*points).chain(faces(*points))).collect()
}

fn all_to_all(bytes: usize, rank: usize, ranks: usize) -> impl Iterator<Item = Step> {
    exchange((1..ranks).map(move |other| (rank ^ other, bytes)))
}

/// The transpose between two transforms.
fn fourier(class: &Class, rank: usize, ranks: usize) -> Vec<Step> {
    all_to_all(16 * class.points / (ranks * ranks), rank, ranks).collect()
}

/// Two layers of faces, and then the sweeps: plane after plane goes through the grid of ranks, and back.
fn wavefront(class: &Class, rank: usize, ranks: usize) -> Vec<Step> {
    /// The values of a point: five of 8 bytes.
    const POINT: usize = 5 * 8;
    let columns = columns(ranks);
    let (row, column) = (rank / columns, rank % columns);
    let rows = ranks / columns;
    let along = [POINT * class.edge / rows, POINT * class.edge / columns];
    let before = [(column > 0).then(|| (rank - 1, along[0])), (row > 0).then(|| (rank - columns, along[1]))];
    let after =
        [(column + 1 < columns).then(|| (rank + 1, along[0])), (row + 1 < rows).then(|| (rank + columns, along[1]))];
    let neighbours = || before.into_iter().chain(after).flatten();
    let sweep = |from: [Option<(usize, usize)>; 2], to: [Option<(usize, usize)>; 2]| {
        (2..class.edge).flat_map(move |_| {
            let awaits = from.into_iter().flatten().map(|(peer, _)| Await(peer));
            awaits.chain(to.into_iter().flatten().map(|(peer, bytes)| Send(peer, bytes)))
        })
    };
    let faces = exchange(neighbours().map(|(peer, bytes)| (peer, 2 * class.edge * bytes)));
    faces.chain(sweep(before, after)).chain(sweep(after, before)).collect()
}

/// The sum of the histograms, the numbers of keys, and the keys.
fn sort(class: &Class, rank: usize, ranks: usize) -> Vec<Step> {
    const BUCKETS: usize = 1 << 10;
    let sums = distances(ranks).flat_map(|step| exchange(std::iter::once((rank ^ step, 4 * BUCKETS))));
    sums.chain(all_to_all(4, rank, ranks)).chain(all_to_all(4 * class.keys / (ranks * ranks), rank, ranks)).collect()
}

/// Microseconds of an iteration of each kernel, by the [`WAYS`]: the fastest of some short blocks. The ranks
/// are threads, which wait according to `FARSIDE_WAIT`.
pub(crate) fn measure(class: &Class, ranks: u32) -> Result<Vec<(&'static str, [f64; 3])>> {
    let settings = settings_with(&[])?;
    let mut all = KERNELS.map(|(kernel, _)| (kernel, [0.0; 3]));
    for (way, name) in WAYS.into_iter().enumerate() {
        let of_rank = Job::threads_with(ranks as usize, &settings, |job| {
            KERNELS
                .iter()
                .map(|(_, kernel)| one(job, name, &kernel(class, job.rank_number() as usize, ranks as usize)))
                .collect()
        })?;
        let times: Vec<f64> = of_rank.into_iter().next().unwrap_or_default();
        all.iter_mut().zip(times).for_each(|((_, row), time)| row[way] = time);
    }
    Ok(all.to_vec())
}

fn one(job: &Job, way: &str, steps: &[Step]) -> Result<f64> {
    const BLOCKS: u32 = 10;
    let (team, longest) =
        (job.world()?, steps.iter().map(|step| if let Send(_, bytes) = step { *bytes } else { 0 }).max());
    let mut longest = [longest.unwrap_or(0) as u64];
    Collectives::allreduce(&team, &mut longest, farside_rma::Op::Max)?;
    let longest = longest[0] as usize;
    let (from, mut into) = (vec![1u8; longest], vec![0u8; longest * job.size()]);
    let base = into.as_mut_ptr();
    // SAFETY: each rank writes a part of its own, and all ranks synchronize before the memory is freed.
    let sink = move |rank: u32| unsafe { Sink::memory(base.add(rank as usize * longest), longest) };
    let messages = Counted::new(job, way, sink)?;
    let mut come = vec![0u64; job.size()];
    let mut iterate = |times: u32| -> Result<f64> {
        team.barrier()?;
        let start = Instant::now();
        for step in (0..times).flat_map(|_| steps) {
            match *step {
                // SAFETY: nobody writes the memory.
                Send(to, bytes) => unsafe { messages.send(to as u32, Source::of(&from[..bytes])) }?,
                Await(rank) => {
                    come[rank] += 1;
                    messages.receive(rank as u32, come[rank])?;
                }
            }
        }
        team.barrier()?;
        Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(times))
    };
    // Rank 0 determines the number of iterations for all.
    let mut times = [(4000.0 / iterate(1)?.max(1.0)).clamp(1.0, 1000.0) as u32];
    Collectives::broadcast(&team, &mut times, 0)?;
    let mut best = f64::MAX;
    for _ in 0..BLOCKS {
        best = best.min(iterate(times[0])?);
    }
    team.barrier()?;
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every message is awaited, and no rank waits for ever.
    #[test]
    fn every_message_is_awaited_in_every_kernel() {
        for (ranks, (name, kernel)) in
            [1, 2, 4, 8, 16].into_iter().flat_map(|ranks| KERNELS.map(|kernel| (ranks, kernel)))
        {
            let mut left: Vec<_> = (0..ranks).map(|rank| kernel(&S, rank, ranks).into_iter().peekable()).collect();
            let mut sent = vec![0u32; ranks * ranks];
            let mut moved = true;
            while std::mem::take(&mut moved) {
                for (rank, steps) in left.iter_mut().enumerate() {
                    while let Some(step) =
                        steps.next_if(|step| !matches!(step, Await(from) if sent[from * ranks + rank] == 0))
                    {
                        moved = true;
                        match step {
                            Send(to, bytes) => {
                                assert!(to != rank && bytes > 0, "{name}, rank {rank} of {ranks}: {step:?}");
                                sent[rank * ranks + to] += 1;
                            }
                            Await(from) => sent[from * ranks + rank] -= 1,
                        }
                    }
                }
            }
            assert!(left.iter_mut().all(|steps| steps.next().is_none()), "{name} of {ranks} ranks waits for ever");
            assert!(sent.iter().all(|sent| *sent == 0), "{name} of {ranks} ranks: messages are left");
        }
    }

    /// Numbers and bytes of messages that the sources of NPB give for four ranks of class S.
    #[test]
    fn kernels_have_the_messages_of_their_sources() {
        let of = |kernel: Kernel| -> (usize, usize) {
            let sends = kernel(&S, 0, 4)
                .into_iter()
                .filter_map(|step| if let Send(_, bytes) = step { Some(bytes) } else { None });
            (sends.clone().count(), sends.sum())
        };
        // Rank 0 is on the diagonal, so it exchanges nothing in the transpose.
        assert_eq!(of(conjugate_gradient), (3, 8 * 700 + 2 * 8));
        assert_eq!(of(fourier), (3, 3 * 16 * 64 * 64 * 64 / 16));
        assert_eq!(of(wavefront), (2 + 2 * 10, 2 * 2 * 12 * 240 + 2 * 10 * 240));
        assert_eq!(of(sort), (2 + 3 + 3, 2 * 4096 + 3 * 4 + 3 * 4 * 65536 / 16));
        assert_eq!(of(multigrid).0, 5 * 4 * 4);
    }
}
