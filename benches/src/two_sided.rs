#![allow(unsafe_code)]
//! Two-sided messages compared with the layers below them, as the paper on MPI-LAPI compares them (Banikazemi et al.,
//! "MPI-LAPI: an efficient implementation of MPI for IBM RS/6000 SP systems"): the raw put; active messages whose
//! completion handler runs on another thread (base), only increments a counter, or runs in the dispatcher (enhanced);
//! and the messages themselves.

pub(crate) mod kernels;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use clap::{Args, value_parser};
use farside_core::am::{self, Counter, Counters, Delivery, HandlerId, OnComplete, Sink, Source};
use farside_core::error::Result;
use farside_core::job::Track;
use farside_core::{Job, Team};
use farside_rma::{Assert, LockWindow, Messages};

use crate::limits::sockets;
use crate::options::{Libraries, Options, over_tcp};
use crate::plan::Plan;
use crate::record::Suite;
use crate::session::{Limits, Task};
use crate::settings_with;
use crate::table::{number, text};

/// Measures two-sided messages, and for comparison the raw put and active messages below them, polling and sleeping.
/// With --peers also runs one C program on Farside's libmpi_abi (target/release, or `FARSIDE_MPI`) and on others:
/// latency, bandwidth, message rate, and the time of a message while 1 to 10,000 receives or unexpected messages are
/// outstanding.
///
/// With `FARSIDE_DEVICE=tcp` runs only the C program, over TCP with every library, and bare sockets for comparison.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    libraries: Libraries,
    /// Bytes of a message.
    #[arg(long, value_delimiter = ',', default_value = "8,1024,8192,65536,1048576", value_parser = value_parser!(u64).range(1..=1 << 26))]
    sizes: Vec<u64>,
}

impl Arguments {
    pub(crate) fn run(mut self) -> Result<bool> {
        let rounds = *self.options.rounds.get_or_insert(3);
        if !over_tcp() {
            layers(&self.sizes, rounds)?;
        }
        if !self.libraries.peers {
            return Ok(true);
        }
        let plan = Plan {
            quick: self.options.quick,
            suites: vec![Suite::TwoSided],
            sizes: self.sizes.clone(),
            ranks: 2,
            ..Plan::default()
        };
        let task = Task {
            title: "Farside: one C program on each MPI library, two processes".to_owned(),
            plans: vec![plan],
            libraries: self.libraries.list(),
            limits: over_tcp().then_some((sockets::measure as Limits, self.sizes)),
            ..Task::default()
        };
        task.run("two-sided", &self.options, |_| Vec::new())
    }
}

/// Measures the layers of Farside between two ranks as threads, and prints a table for each way of waiting.
fn layers(sizes: &[u64], rounds: u32) -> Result<()> {
    for (wait, how) in [("spin", "polling"), ("park", "event-driven")] {
        let mut best = measure(wait, sizes)?;
        for _ in 1..rounds {
            let times = measure(wait, sizes)?;
            best.iter_mut().flatten().flatten().zip(times.iter().flatten().flatten()).for_each(|(a, b)| *a = a.min(*b));
        }
        let header: Vec<&str> = ["us", "bytes"].into_iter().chain(WAYS.map(|(name, _)| name)).collect();
        let rows = [(0, "one way"), (1, "of a burst")].into_iter().flat_map(|(kind, what)| {
            let best = &best;
            sizes.iter().enumerate().map(move |(at, bytes)| {
                let times = best.iter().map(|way| number(Some(way[at][kind])));
                [what.to_owned(), bytes.to_string()].into_iter().chain(times).collect()
            })
        });
        println!("Two ranks as threads, {how}, microseconds of a message\n{}\n", text(&header, 1, rows));
    }
    for ranks in [2, 4] {
        let class = &kernels::W;
        let times = kernels::measure(class, ranks)?;
        let header: Vec<&str> = ["us"].into_iter().chain(kernels::WAYS).collect();
        let rows = times.iter().map(|(name, row)| {
            [(*name).to_owned()].into_iter().chain(row.map(|us| number(Some(us)))).collect::<Vec<String>>()
        });
        let class = class.name;
        println!(
            "{ranks} ranks as threads, messages of an iteration of a NAS kernel of class {class}, microseconds\n{}\n",
            text(&header, 1, rows)
        );
    }
    println!("{}\n", WAYS.map(|(name, what)| format!("{name}: {what}")).join("\n"));
    Ok(())
}

/// The measurements: name and delivery method of each.
pub(crate) const WAYS: [(&str, &str); 5] = [
    ("put", "put and flush in lock_all; the target looks at the last byte"),
    ("base", "active message into place; the completion handler runs on another thread"),
    ("counters", "active message into place; the target waits for its counter"),
    ("enhanced", "active message into place; the completion handler runs in the dispatcher"),
    ("two-sided", "send and recv, with a source and a tag"),
];

const ID: HandlerId = HandlerId(1);
/// The number of consecutive messages per reply: in a ping-pong, and in a burst.
const KINDS: [u64; 2] = [1, 64];
/// The number of short blocks; the fastest one is reported.
const BLOCKS: u32 = 40;
const BLOCK: Duration = Duration::from_micros(500);

/// Microseconds of a one-way message, and of one message of a burst, by delivery method and size.
pub(crate) type Times = Vec<Vec<[f64; 2]>>;

/// Measures all delivery methods between two ranks as threads, which wait according to `FARSIDE_WAIT`: "spin" polls,
/// "park" sleeps until a message arrives.
pub(crate) fn measure(wait: &str, sizes: &[u64]) -> Result<Times> {
    let settings = settings_with(&[("FARSIDE_WAIT", wait)])?;
    let way = |(name, _): (&str, &str)| -> Result<Vec<[f64; 2]>> {
        let of_rank =
            Job::threads_with(2, &settings, |job| sizes.iter().map(|len| one(job, name, *len as usize)).collect())?;
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
                // The last byte is the sequence number of the message.
                let send = || {
                    number.set(number.get() + 1);
                    if len > 1 {
                        epoch.put(&from[..len - 1], other, 0)?;
                    }
                    epoch.put_value(number.get() as u8, other, len - 1)?;
                    epoch.flush(other)
                };
                let receive = |come: u64| {
                    job.wait("a put", || Ok((epoch.get_blocking(team.rank(), len - 1)? == come as u8).then_some(())))
                };
                times(&team, send, receive, KINDS)
            })
        }
        "two-sided" => {
            let (other, into) = (1 - team.rank(), RefCell::new(into));
            let come = Cell::new(0u64);
            let receive = |all: u64| {
                while come.get() < all {
                    team.recv(&mut into.borrow_mut(), other, 1)?;
                    come.set(come.get() + 1);
                }
                Ok(())
            };
            times(&team, || team.send(&from, other, 1), receive, KINDS)
        }
        _ => {
            let (base, len) = (into.as_mut_ptr(), into.len());
            // SAFETY: the memory outlives the messages, since both ranks synchronize before it is freed.
            let sink = move || unsafe { Sink::memory(base, len) };
            active(job, &team, name, || Source::of(&from), sink, KINDS)
        }
    }
}

/// Active messages between two ranks; `name` is one of the [`WAYS`]. `source` and `sink` return memory that both ranks
/// keep until the end.
pub(crate) fn active<const N: usize>(
    job: &Job,
    team: &Team,
    name: &str,
    source: impl Fn() -> Source,
    sink: impl Fn() -> Sink + 'static,
    kinds: [u64; N],
) -> Result<[f64; N]> {
    let (peer, messages) = (1 - job.rank_number(), Counted::new(job, name, move |_| sink())?);
    team.barrier()?;
    // SAFETY: by the contract of this function.
    let send = || unsafe { messages.send(peer, source()) };
    let measured = times(team, send, |all| messages.receive(peer, all), kinds);
    team.barrier()?;
    measured
}

/// Active messages whose receiver counts those of each rank, by one of the [`WAYS`].
pub(crate) struct Counted<'a> {
    job: &'a Job,
    name: String,
    /// The number of messages from each rank: counted by the completion handler on another thread, by the counter of
    /// the message, or by the completion handler in the dispatcher.
    on_thread: Arc<[AtomicU64]>,
    counters: Vec<Counter>,
    seen: Rc<[Cell<u64>]>,
    /// The number of the counter of each rank.
    targets: Vec<u32>,
}

impl<'a> Counted<'a> {
    /// Collective, in the same order at all ranks. `sink` returns memory for a message from a rank, which is kept until
    /// all messages have arrived.
    pub(crate) fn new(job: &'a Job, name: &str, sink: impl Fn(u32) -> Sink + 'static) -> Result<Self> {
        let ranks = 0..job.size_number();
        let on_thread: Arc<[AtomicU64]> = ranks.clone().map(|_| AtomicU64::new(0)).collect();
        let seen: Rc<[Cell<u64>]> = ranks.clone().map(|_| Cell::new(0)).collect();
        let counters: Vec<Counter> = ranks.map(|_| Counter::new()).collect();
        let targets = counters.iter().map(|counter| job.active_messages().expose(counter)).collect();
        let to_thread = handler_thread(Arc::clone(&on_thread));
        let (way, count) = (name.to_owned(), Rc::clone(&seen));
        job.active_messages().register(ID, move |message| {
            let (from, count, to_thread) = (message.source, Rc::clone(&count), to_thread.clone());
            let then = match &*way {
                "base" => OnComplete::inline(move |_| _ = to_thread.send(from)),
                "enhanced" => OnComplete::inline(move |_| count[from as usize].set(count[from as usize].get() + 1)),
                _ => OnComplete::inline(|_| ()),
            };
            Delivery::Into(sink(from), then)
        })?;
        Ok(Self { job, name: name.to_owned(), on_thread, counters, seen, targets })
    }

    /// Returns when the memory of the message may be used again.
    ///
    /// # Safety
    /// The memory of `source` is valid and not written until then, or, after an error, until the job has ended.
    pub(crate) unsafe fn send(&self, to: u32, source: Source) -> Result<()> {
        let (job, track) = (self.job, Track::new());
        let target = (self.name == "counters").then(|| self.targets[job.rank_number() as usize]);
        let counters = Counters { target, ..Counters::default() };
        // SAFETY: the same contract.
        unsafe { am::start_send(job, to, ID, &[], source, counters, &track) }?;
        job.wait("a send", || Ok((track.open() == 0).then_some(())))?;
        track.check()
    }

    /// Waits until `all` messages of a rank have arrived since the start.
    pub(crate) fn receive(&self, from: u32, all: u64) -> Result<()> {
        let at = from as usize;
        let arrived = || match &*self.name {
            // Acquire: pairs with the Release of the handler thread.
            "base" => self.on_thread[at].load(Ordering::Acquire),
            "counters" => self.counters[at].value(),
            _ => self.seen[at].get(),
        };
        if self.name == "base" {
            // The handler thread does not wake a sleeping rank, so once the message has arrived, its handler is awaited
            // by polling.
            while arrived() < all {
                self.job.progress()?;
                std::thread::yield_now();
            }
            return Ok(());
        }
        self.job.wait("a message", || Ok((arrived() >= all).then_some(())))
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.job.active_messages().unregister(ID);
    }
}

/// A thread that runs completion handlers, each of which counts one message of a rank. It ends when all senders are
/// dropped.
fn handler_thread(counts: Arc<[AtomicU64]>) -> Sender<u32> {
    let (sender, receiver) = channel::<u32>();
    // Release: pairs with the Acquire of the rank that waits.
    std::thread::spawn(move || {
        receiver.iter().for_each(|from| _ = counts[from as usize].fetch_add(1, Ordering::Release))
    });
    sender
}

/// Microseconds of a message in the fastest block, for each number of messages in `kinds`: rank 0 sends that many, and
/// rank 1 replies with one message; for a single message, half of the round trip. `receive` waits until the given number
/// of messages has arrived since the start.
fn times<const N: usize>(
    team: &Team,
    send: impl Fn() -> Result<()>,
    receive: impl Fn(u64) -> Result<()>,
    kinds: [u64; N],
) -> Result<[f64; N]> {
    let (job, first) = (team.job(), team.rank() == 0);
    let (mut come, mut best) = (0u64, [f64::MAX; N]);
    for (messages, best) in kinds.into_iter().zip(&mut best) {
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
        // Rank 0 determines the number of rounds for both.
        let warm = round(4)?;
        let mut rounds = [(BLOCK.as_nanos() * 4 / warm.as_nanos().max(1)).clamp(1, 2000) as u64];
        farside_rma::Collectives::broadcast(team, &mut rounds, 0)?;
        for _ in 0..BLOCKS {
            let took = round(rounds[0])?.as_secs_f64() * 1e6 / rounds[0] as f64;
            *best = best.min(took / messages.max(2) as f64);
        }
    }
    Ok(best)
}
