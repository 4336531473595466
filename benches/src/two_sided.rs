#![allow(unsafe_code)]
//! Two-sided messages beside the layers below them, as the paper on MPI-LAPI compares them (Banikazemi et al.,
//! "MPI-LAPI: an efficient implementation of MPI for IBM RS/6000 SP systems"): the raw put; active messages whose
//! completion handler runs on another thread (base), only moves a counter, or runs in the dispatcher (enhanced); and
//! the messages themselves.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use farside_core::am::{self, Counter, Counters, Delivery, HandlerId, OnComplete, Sink, Source};
use farside_core::error::Result;
use farside_core::job::Track;
use farside_core::{Job, Team};
use farside_rma::{Assert, LockWindow, Messages};

use crate::settings_with;

/// A measurement: its name, and how the message is delivered.
pub const WAYS: [(&str, &str); 5] = [
    ("put", "put and flush in lock_all; the target looks at the last byte"),
    ("base", "active message into place; the completion handler runs on another thread"),
    ("counters", "active message into place; the target waits for its counter"),
    ("enhanced", "active message into place; the completion handler runs in the dispatcher"),
    ("two-sided", "send and recv, with a source and a tag"),
];

const ID: HandlerId = HandlerId(1);
/// The number of messages in a burst.
const BURST: u64 = 64;
/// The number of short blocks, of which the fastest counts.
const BLOCKS: u32 = 40;
const BLOCK: Duration = Duration::from_micros(500);

/// Microseconds of a message one way, and of one message of a burst, by way and size.
pub type Times = Vec<Vec<[f64; 2]>>;

/// Measures all ways between two ranks as threads, which wait as `FARSIDE_WAIT` says: "spin" polls, "park" sleeps until
/// a message arrives.
///
/// # Errors
/// The errors of the calls.
pub fn measure(wait: &str, sizes: &[usize]) -> Result<Times> {
    let settings = settings_with(&[("FARSIDE_WAIT", wait)])?;
    let way = |(name, _): (&str, &str)| -> Result<Vec<[f64; 2]>> {
        let of_rank = Job::threads_with(2, &settings, |job| sizes.iter().map(|len| one(job, name, *len)).collect())?;
        Ok(of_rank.into_iter().next().unwrap_or_default())
    };
    WAYS.into_iter().map(way).collect()
}

fn one(job: &Job, name: &str, len: usize) -> Result<[f64; 2]> {
    let team = job.world()?;
    let from = vec![1u8; len];
    let mut into = vec![0u8; len];
    match name {
        "put" => {
            let window = LockWindow::<u8>::allocate(&team, len)?;
            window.lock_all(Assert::empty(), |epoch| {
                let (other, number) = (1 - team.rank(), Cell::new(0u64));
                // The last byte numbers the message.
                let send = || {
                    number.set(number.get() + 1);
                    if len > 1 {
                        epoch.put(&from[..len - 1], other, 0)?;
                    }
                    epoch.put_value(number.get() as u8, other, len - 1)?;
                    epoch.flush(other)
                };
                let receive = |come: u64| {
                    job.wait("a put", || Ok((epoch.get_now(team.rank(), len - 1)? == come as u8).then_some(())))
                };
                times(&team, send, receive)
            })
        }
        "two-sided" => {
            let (other, into) = (1 - team.rank(), std::cell::RefCell::new(into));
            let come = Cell::new(0u64);
            let receive = |all: u64| {
                while come.get() < all {
                    team.recv(&mut into.borrow_mut(), other, 1)?;
                    come.set(come.get() + 1);
                }
                Ok(())
            };
            times(&team, || team.send(&from, other, 1), receive)
        }
        _ => active(job, &team, name, &from, &mut into),
    }
}

/// Active messages.
fn active(job: &Job, team: &Team, name: &str, from: &[u8], into: &mut [u8]) -> Result<[f64; 2]> {
    let (base, len) = (into.as_mut_ptr(), into.len());
    let (seen, counter) = (Rc::new(Cell::new(0u64)), Counter::new());
    let (shared, jobs) = (Arc::new(AtomicU64::new(0)), handler_thread());
    let (count, on_thread, to_thread) = (Rc::clone(&seen), Arc::clone(&shared), jobs.clone());
    let way = name.to_owned();
    job.active_messages().register(ID, move |_| {
        // SAFETY: the memory outlives the messages, since both ranks synchronize before it is freed.
        let sink = unsafe { Sink::memory(base, len) };
        let (count, on_thread, to_thread) = (Rc::clone(&count), Arc::clone(&on_thread), to_thread.clone());
        let then = match &*way {
            "base" => OnComplete::inline(move |_| _ = to_thread.send(on_thread)),
            "enhanced" => OnComplete::inline(move |_| count.set(count.get() + 1)),
            _ => OnComplete::inline(|_| ()),
        };
        Delivery::Into(sink, then)
    })?;
    let target = (name == "counters").then(|| job.active_messages().expose(&counter));
    team.barrier()?;
    let track = Track::new();
    let send = || {
        let counters = Counters { target, ..Counters::default() };
        // SAFETY: the memory outlives the track, which is waited for.
        unsafe { am::start_send(job, 1 - job.rank_number(), ID, &[], Source::of(from), counters, &track) }?;
        job.wait("a send", || Ok((track.open() == 0).then_some(())))?;
        track.check()
    };
    let come = || match name {
        // Acquire: pairs with the Release of the handler thread.
        "base" => shared.load(Ordering::Acquire),
        "counters" => counter.value(),
        _ => seen.get(),
    };
    let receive = |all: u64| {
        if name == "base" {
            // The handler thread does not wake a sleeping rank, so once the message has arrived, its handler is awaited
            // by polling.
            while come() < all {
                job.progress()?;
                std::thread::yield_now();
            }
            return Ok(());
        }
        job.wait("a message", || Ok((come() >= all).then_some(())))
    };
    let measured = times(team, send, receive);
    team.barrier()?;
    job.active_messages().unregister(ID);
    measured
}

/// A thread that runs completion handlers, each of which counts one message. It ends when all senders are dropped.
fn handler_thread() -> Sender<Arc<AtomicU64>> {
    let (sender, receiver) = channel::<Arc<AtomicU64>>();
    // Release: pairs with the Acquire of the rank that waits.
    std::thread::spawn(move || receiver.iter().for_each(|count| _ = count.fetch_add(1, Ordering::Release)));
    sender
}

/// The fastest block of a ping-pong, and of bursts from rank 0 that rank 1 answers. `receive` waits until that number
/// of messages has arrived since the start.
fn times(team: &Team, send: impl Fn() -> Result<()>, receive: impl Fn(u64) -> Result<()>) -> Result<[f64; 2]> {
    let (job, first) = (team.job(), team.rank() == 0);
    let (mut come, mut best) = (0u64, [f64::MAX; 2]);
    for (kind, best) in best.iter_mut().enumerate() {
        let messages = if kind == 0 { 1 } else { BURST };
        let mut round = |rounds: u64| -> Result<Duration> {
            team.barrier()?;
            let start = job.device().now();
            for _ in 0..rounds {
                for _ in 0..if first { messages } else { 0 } {
                    send()?;
                }
                come += if first { 1 } else { messages };
                receive(come)?;
                if !first {
                    send()?;
                }
            }
            Ok(start.elapsed())
        };
        // Rank 0 tells both the number of rounds.
        let warm = round(4)?;
        let mut rounds = [(BLOCK.as_nanos() * 4 / warm.as_nanos().max(1)).clamp(1, 2000) as u64];
        farside_rma::Collectives::broadcast(team, &mut rounds, 0)?;
        for _ in 0..BLOCKS {
            let took = round(rounds[0])?.as_secs_f64() * 1e6 / rounds[0] as f64;
            *best = best.min(if kind == 0 { took / 2.0 } else { took / BURST as f64 });
        }
    }
    Ok(best)
}
