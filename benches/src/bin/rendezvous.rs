#![allow(unsafe_code)]
//! `farside run -n 2 rendezvous`: round trips of long messages from memory to memory and from layout to layout. The target
//! reads them out of the sender's memory; with `FARSIDE_SHM_USER_MEMORY=ring` they come in packets. Where the former becomes
//! shorter is the cut-off of [`MessageCutOffs`](farside_core::device::MessageCutOffs).

use std::cell::Cell;
use std::process::ExitCode;
use std::rc::Rc;

use farside_core::am::{self, Counters, Delivery, HandlerId, Layout, Sink, Source, Then};
use farside_core::device::Block;
use farside_core::job::Track;
use farside_core::{Job, Result};

const ID: HandlerId = HandlerId(1);

/// Every other block of this many bytes.
struct Strided(*mut u8, usize, usize);

impl Layout for Strided {
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
        Delivery::Into(sink, Then::quick(move |_| count.set(count.get() + 1)))
    })?;
    job.world()?.barrier()?;
    let source =
        || if block == 0 { Source::of(&memory[..len]) } else { Source::Layout(Rc::new(Strided(from, block, len))) };
    let rounds = ((1 << 28) / len).clamp(200, 20_000) as u64;
    let mut best = f64::MAX;
    let track = Track::new();
    for repeat in 0..5 {
        let start = job.device().now();
        for round in 0..rounds / 5 {
            let number = repeat * (rounds / 5) + round + 1;
            let send = || {
                // SAFETY: the memory outlives the track.
                unsafe { am::start_send(job, 1 - job.rank(), ID, &[], source(), Counters::default(), &track) }
            };
            if job.rank() == 0 {
                send()?;
            }
            job.wait("a message", || Ok((come.get() == number).then_some(())))?;
            if job.rank() == 1 {
                send()?;
            }
            job.wait("a message", || Ok((track.open() == 0).then_some(())))?;
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e6 / (rounds / 5) as f64 / 2.0);
    }
    job.world()?.barrier()?;
    job.active_messages().unregister(ID);
    Ok(best)
}

fn run() -> Result<()> {
    let job = Job::init()?;
    for block in [0, 1024, 8192] {
        for len in [16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20, 4 << 20] {
            let us = measure(&job, len, block)?;
            if job.rank() == 0 {
                println!("blocks of {block:5}, {len:8} bytes: {us:8.2} us one way, {:6.2} GB/s", len as f64 / us / 1e3);
            }
        }
    }
    job.finalize()
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("rendezvous: {e}");
            ExitCode::FAILURE
        }
    }
}
