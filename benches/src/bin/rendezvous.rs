#![allow(unsafe_code)]
//! `rendezvous`: round trips of messages that are longer than a packet, from memory to memory and from layout to
//! layout, between two ranks as threads: sent at once, sent in packets once the target has asked for them, and read by
//! the target from the sender's memory. The lengths at which the fastest way changes are the cut-offs of
//! [`MessageCutOffs`](farside_core::device::MessageCutOffs). The environment selects the device.

use std::cell::Cell;
use std::process::ExitCode;
use std::rc::Rc;

use farside_benches::{program, settings_with};
use farside_core::am::{self, Counters, Delivery, HandlerId, Layout, OnComplete, Sink, Source};
use farside_core::device::Block;
use farside_core::job::Track;
use farside_core::{Job, Result};

const ID: HandlerId = HandlerId(1);
/// The number of jobs for each way.
const REPEATS: usize = 2;

/// Every other block of this many bytes.
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
    let mut memory = vec![1u8; 2 * (len + block)];
    let mut to = vec![1u8; 2 * (len + block)];
    let (from, into) = (memory.as_mut_ptr(), to.as_mut_ptr());
    let come = Rc::new(Cell::new(0u64));
    let count = come.clone();
    job.active_messages().register(ID, move |_| {
        let count = count.clone();
        // SAFETY: the memory outlives the messages.
        let sink = unsafe {
            if block == 0 { Sink::memory(into, len) } else { Sink::layout(Rc::new(Strided(into, block, len))) }
        };
        Delivery::Into(sink, OnComplete::inline(move |_| count.set(count.get() + 1)))
    })?;
    job.world()?.barrier()?;
    let source =
        || if block == 0 { Source::of(&memory[..len]) } else { Source::Layout(Rc::new(Strided(from, block, len))) };
    let rounds = ((1 << 20) / len).clamp(4, 20) as u64;
    let mut best = f64::MAX;
    let track = Track::new();
    for repeat in 0..5 {
        let start = job.device().now();
        for round in 0..rounds {
            let number = repeat * rounds + round + 1;
            let send = || {
                // SAFETY: the memory outlives the track.
                unsafe { am::start_send(job, 1 - job.rank_number(), ID, &[], source(), Counters::default(), &track) }
            };
            if job.rank_number() == 0 {
                send()?;
            }
            job.wait("a message", || Ok((come.get() == number).then_some(())))?;
            if job.rank_number() == 1 {
                send()?;
            }
            job.wait("a message", || Ok((track.open() == 0).then_some(())))?;
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e6 / rounds as f64 / 2.0);
    }
    job.world()?.barrier()?;
    job.active_messages().unregister(ID);
    Ok(best)
}

/// Ways to transfer a message that is longer than a packet, with the value of `FARSIDE_TRANSFER` for each.
const WAYS: [(&str, &str); 3] = [
    ("eager", "eager:1000000000"),
    ("packets", "eager:0,read-intra:1000000000,read-inter:1000000000"),
    ("read", "eager:0,read-intra:1,read-inter:1"),
];
const BLOCKS: [usize; 3] = [0, 1024, 8192];
const LENS: [usize; 9] = [5 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20, 4 << 20];

fn run() -> Result<()> {
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
    println!("microseconds one way, best of {REPEATS} jobs each, in turns");
    println!("blocks of    bytes {}", WAYS.map(|(name, _)| format!("{name:>10}")).concat());
    for (block, best) in BLOCKS.into_iter().zip(best) {
        for (len, best) in LENS.into_iter().zip(best) {
            println!("{block:9} {len:8} {}", best.map(|us| format!("{us:10.2}")).concat());
        }
    }
    Ok(())
}

/// Measures messages one way by each kind of transfer.
#[derive(clap::Parser)]
struct Arguments {}

fn main() -> ExitCode {
    program(|_: Arguments| run().map(|()| true))
}
