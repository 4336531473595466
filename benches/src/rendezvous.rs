#![allow(unsafe_code)]
//! Round trips of contiguous and noncontiguous messages longer than a packet, between two ranks as threads: sent
//! eagerly, sent in packets on request of the target, and read by the target from the sender's memory. The lengths at
//! which the fastest method changes are the cut-offs of [`MessageCutOffs`](farside_core::device::MessageCutOffs). The
//! environment selects the device.

use std::rc::Rc;

use clap::Args;
use farside_core::am::{Layout, Sink, Source};
use farside_core::device::Block;
use farside_core::{Job, Result};

use crate::settings_with;
use crate::table::{number, text};
use crate::two_sided::active;

/// Measures the time of messages longer than a packet with each transfer method, between two ranks that are threads,
/// and prints the lengths at which the fastest method changes.
#[derive(Args)]
pub(crate) struct Arguments {}

/// The number of jobs for each transfer method.
const REPEATS: usize = 2;

/// A layout of every other block of a number of bytes.
struct Strided(*mut u8, usize, usize);

// SAFETY: the blocks have `len` bytes in the order of the packed bytes, of memory that `measure` keeps.
unsafe impl Layout for Strided {
    fn packed_len(&self) -> usize {
        self.2
    }

    fn blocks(&self, mut from: usize, len: usize, blocks: &mut Vec<Block>) {
        let end = from + len;
        while from < end {
            let now = (self.1 - from % self.1).min(end - from);
            blocks.push(Block { base: self.0.wrapping_add(from / self.1 * 2 * self.1 + from % self.1), len: now });
            from += now;
        }
    }
}

fn measure(job: &Job, len: usize, block: usize) -> Result<f64> {
    let room = 2 * (len + block);
    let (mut memory, mut to) = (vec![1u8; room], vec![1u8; room]);
    let (from, into) = (memory.as_mut_ptr(), to.as_mut_ptr());
    let source =
        || if block == 0 { Source::of(&memory[..len]) } else { Source::Layout(Rc::new(Strided(from, block, len))) };
    // SAFETY: the memory outlives the messages, since both ranks synchronize before it is freed.
    let sink = move || unsafe {
        if block == 0 { Sink::memory(into, len) } else { Sink::layout(Rc::new(Strided(into, block, len))) }
    };
    Ok(active(job, &job.world()?, "enhanced", source, sink, [1])?[0])
}

/// Transfer methods for a message longer than a packet, with the value of `FARSIDE_TRANSFER` for each.
const WAYS: [(&str, &str); 3] = [
    ("eager", "eager:1000000000"),
    ("packets", "eager:0,read-intra:1000000000,read-inter:1000000000"),
    ("read", "eager:0,read-intra:1,read-inter:1"),
];
const BLOCKS: [usize; 3] = [0, 1024, 8192];
const LENS: [usize; 9] = [5 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20, 4 << 20];

impl Arguments {
    pub(crate) fn run(self) -> Result<bool> {
        let mut best = [[[f64::MAX; WAYS.len()]; LENS.len()]; BLOCKS.len()];
        for _ in 0..REPEATS {
            for (way, (_, cut_offs)) in WAYS.iter().enumerate() {
                let settings = settings_with(&[("FARSIDE_TRANSFER", *cut_offs)])?;
                let times = Job::threads_with(2, &settings, |job| {
                    let each = |block| LENS.into_iter().map(|len| measure(job, len, block)).collect::<Result<Vec<_>>>();
                    BLOCKS.into_iter().map(each).collect::<Result<Vec<_>>>()
                })?;
                for (best, times) in best.iter_mut().flatten().zip(times[0].iter().flatten()) {
                    best[way] = best[way].min(*times);
                }
            }
        }
        let all = BLOCKS
            .iter()
            .zip(&best)
            .flat_map(|(block, best)| LENS.iter().zip(best).map(move |(len, us)| (block, len, us)));
        let rows = all.map(|(block, len, us)| {
            let times = us.iter().map(|us| number(Some(*us)));
            [block.to_string(), len.to_string()].into_iter().chain(times).collect()
        });
        let header: Vec<&str> = ["blocks of", "bytes"].into_iter().chain(WAYS.map(|(name, _)| name)).collect();
        println!("microseconds one way, best of {REPEATS} jobs each, in turns\n{}", text(&header, 0, rows));
        Ok(true)
    }
}
