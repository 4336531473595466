#![allow(unsafe_code)]
//! The only place that waits: spin, then yield, then park.
//!
//! If every rank has a core, a waiting rank spins for the time of `FARSIDE_WAIT`, and then sleeps; with more ranks than
//! cores it yields or sleeps, whichever has led to earlier answers ([`backoff`]). Two ranks that run at the same time
//! can answer each other without a context switch, so a rank spins as long as answers arrive within a spin. If they do
//! not, it gives up the core immediately: when other programs run, a fruitless spin uses up the time in which the
//! kernel would let the rank run as soon as it is woken. For the same reason a rank requests the minimum time slice
//! from the kernel: a rank that is woken then runs before programs with longer slices. Every sleep is bounded by
//! `FARSIDE_PEER_CHECK_MS`, after which the other ranks are checked, so that a lost rank leads to an error within that
//! time instead of a hang.

mod backoff;

use std::cell::Cell;
use std::ops::ControlFlow::{self, Break, Continue};
use std::time::{Duration, Instant};

use backoff::{BackoffWait, LearnedBackoff};

use crate::device::{Device, PeerCheck, Sleep};
use crate::error::{Error, ErrorKind, Result};
use crate::settings::{Settings, WaitPolicy};

/// How a rank waits.
#[derive(Debug)]
pub(crate) struct Progress {
    spin: Duration,
    yields: Yields,
    check: Duration,
    spins: u32,
    answers: AdaptiveSpin,
    /// Whether to pause between two polls of memory. A poll of a completion queue takes longer than the pause would,
    /// and a pause may exit to the hypervisor in a virtual machine.
    pause: bool,
    last_check: Cell<Option<Instant>>,
    checks: Cell<u32>,
    /// Number of turns outside of waits that found nothing.
    idle: Cell<u32>,
    /// The time at which this rank last checked for stopped ranks, and the rank about which it has warned.
    last_stopped_check: Cell<Option<Instant>>,
    warned: Cell<Option<u32>>,
}

/// Whether a rank that waits yields.
#[derive(Debug)]
enum Yields {
    /// The rank sleeps immediately, after the spin if there is one.
    Never,
    /// The rank yields or sleeps immediately, since ranks share cores.
    Learned(LearnedBackoff),
    /// The rank never sleeps: it yields, or spins if the spin has no end.
    Always,
}

/// Whether a rank whose wait has not ended may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MaySleep {
    UntilEvent,
    /// An operation waits for queue space at a target, which no event announces.
    Briefly,
    /// Another thread of the rank wants to use the job.
    No,
}

/// Interval between two checks whether a rank is stopped.
const STOPPED: Duration = Duration::from_secs(2);

/// Number of polls of the awaited condition before anything else is done: a signal from another core arrives within
/// some hundred nanoseconds, and a turn of progress in between would see it later.
const SPINS: u32 = 64;

/// Maximum sleep while an operation waits for queue space at a target.
const MAX_SLEEP_BLOCKED: Duration = Duration::from_micros(50);

/// Number of turns between two reads of the clock.
const TURNS: u32 = 256;

/// Number of polls of the awaited condition before yielding: they take about as long as a yield.
const POLLS_PER_YIELD: u32 = 32;

/// Whether the ranks for which this rank waits have recently answered within a spin, so that spinning pays.
#[derive(Debug, Default)]
struct AdaptiveSpin {
    /// Saturating: +1 when a spin saw the answer, -1 when it did not.
    score: Cell<u32>,
    asked: Cell<u32>,
    /// The number of preemptions at the end of the last spin that did not see the answer.
    preempted: Cell<i64>,
}

impl AdaptiveSpin {
    /// Maximum score: after this many unsuccessful spins a rank yields immediately.
    const MAX_SCORE: u32 = 16;
    /// With a score of 0, one in this many waits spins nevertheless.
    const PROBE_INTERVAL: u32 = 8;

    fn is_worthwhile(&self) -> bool {
        let asked = self.asked.get().wrapping_add(1);
        self.asked.set(asked);
        self.score.get() > 0 || asked.is_multiple_of(Self::PROBE_INTERVAL)
    }

    fn record(&self, answered: bool) {
        let score = self.score.get();
        self.score.set(if answered { (score + 1).min(Self::MAX_SCORE) } else { score.saturating_sub(1) });
    }

    /// Records a spin that did not see the answer. If other programs have used the core before or during the spin, the
    /// awaited rank may have no core, and spinning does not pay.
    fn record_missed(&self, preemptions: i64) {
        self.record(false);
        if self.preempted.replace(preemptions) != preemptions {
            self.score.set(0);
        }
    }
}

/// The minimum time slice of the kernel, in nanoseconds.
const SHORTEST_SLICE: u64 = 100_000;

/// Number of times that the kernel has taken the core from this thread while it could run.
fn preemptions() -> i64 {
    // SAFETY: a struct of integers, for which all zeros is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for writes. The call cannot fail; if it did, the count would be 0.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nivcsw
}

/// Requests the minimum time slice from the kernel (since Linux 6.12), which does not change this thread's share of a
/// core. Threads outside the default scheduling class keep their attributes, and an error is ignored: an older kernel
/// or a container may not permit the call.
fn request_short_slice() {
    if let Some(mut attributes) = scheduling().filter(|now| now.sched_policy == libc::SCHED_OTHER as u32) {
        attributes.sched_runtime = SHORTEST_SLICE;
        // SAFETY: `attributes` was filled by the kernel and is valid for reads; 0 is the calling thread.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    }
}

/// The scheduling attributes of the calling thread; `None` if they cannot be read.
fn scheduling() -> Option<libc::sched_attr> {
    // SAFETY: a struct of integers, for which all zeros is valid.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let (of, size) = (&raw mut attributes, size_of::<libc::sched_attr>());
    // SAFETY: `attributes` is valid for writes of its size; 0 is the calling thread.
    let read = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, of, size, 0) } == 0;
    read.then_some(attributes)
}

impl Progress {
    /// `oversubscribed`: whether more ranks than processors share this rank's processors; `mapped`: whether the
    /// device's memory is mapped.
    #[must_use]
    pub(crate) fn new(settings: &Settings, oversubscribed: bool, mapped: bool) -> Self {
        let (spin, yields) = match settings.wait {
            WaitPolicy::Auto(spin) if !oversubscribed => (spin, Yields::Never),
            WaitPolicy::Auto(_) => (Duration::ZERO, Yields::Learned(LearnedBackoff::default())),
            WaitPolicy::Spin => (Duration::MAX, Yields::Always),
            WaitPolicy::Yield => (Duration::ZERO, Yields::Always),
            WaitPolicy::Park => (Duration::ZERO, Yields::Never),
        };
        if !matches!(yields, Yields::Always) {
            request_short_slice();
        }
        Self {
            spin,
            check: Duration::from_millis(u64::from(settings.peer_check_ms)),
            // A trace times all waits, even those that polls would end.
            spins: if spin > Duration::ZERO && settings.trace.is_none() { SPINS } else { 0 },
            answers: AdaptiveSpin {
                score: Cell::new(if spin > Duration::ZERO { AdaptiveSpin::MAX_SCORE } else { 0 }),
                preempted: Cell::new(preemptions()),
                ..AdaptiveSpin::default()
            },
            yields,
            pause: mapped,
            last_check: Cell::new(None),
            checks: Cell::new(0),
            idle: Cell::new(0),
            last_stopped_check: Cell::new(None),
            warned: Cell::new(None),
        }
    }

    /// Number of polls of a condition that is about to become true before turning to other work; 0 if ranks outnumber
    /// cores.
    #[must_use]
    #[inline]
    pub(crate) fn spins(&self) -> u32 {
        self.spins
    }

    /// Whether a rank that has waited this long sleeps.
    pub(crate) fn sleeps_after(&self, waited: Duration) -> bool {
        !matches!(self.yields, Yields::Always) && waited >= self.spin
    }

    /// Number of peer checks made in waits.
    #[inline]
    pub(crate) fn checks(&self) -> u32 {
        self.checks.get()
    }

    /// Counts a turn outside waits that found nothing; returns whether a check of the peers is due.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.idle.set(self.idle.get().wrapping_add(1));
        self.idle.get().is_multiple_of(TURNS)
    }

    /// Called after a turn outside waits that found nothing. If ranks share cores it yields once in `POLLS_PER_YIELD`
    /// such turns, since a program that tests a request only occasionally has other work.
    pub(crate) fn yield_occasionally(&self) {
        if self.spins == 0 && self.idle.get().is_multiple_of(POLLS_PER_YIELD) {
            std::thread::yield_now();
        }
    }

    /// Backs off after a turn that found nothing: yields if ranks share cores.
    pub(crate) fn back_off(&self) {
        if self.spin == Duration::ZERO {
            std::thread::yield_now();
        } else {
            self.relax();
        }
    }

    fn relax(&self) {
        if self.pause {
            std::hint::spin_loop();
        }
    }

    fn learned(&self) -> Option<&LearnedBackoff> {
        match &self.yields {
            Yields::Learned(learned) => Some(learned),
            Yields::Never | Yields::Always => None,
        }
    }

    /// Spins for a short time.
    fn spin_briefly<R>(&self, ready: &mut impl FnMut() -> Result<Option<R>>) -> Result<Option<R>> {
        for _ in 0..POLLS_PER_YIELD {
            self.relax();
            if let Some(r) = ready()? {
                return Ok(Some(r));
            }
        }
        Ok(None)
    }

    /// Waits until `ready` returns a value, which depends on other ranks. `turn` makes progress and returns whether
    /// anything happened.
    ///
    /// # Errors
    /// An error of `ready`, `turn` or the check of the peers; `Timeout` once `deadline` has passed.
    pub(crate) fn wait<R>(
        &self,
        operation: &'static str,
        device: &dyn Device,
        deadline: Option<Instant>,
        mut ready: impl FnMut() -> Result<Option<R>>,
        mut turn: impl FnMut() -> Result<bool>,
        may_sleep: impl Fn() -> MaySleep,
    ) -> Result<R> {
        let (mut turns, mut busy) = (0u32, 0u32);
        let worthwhile =
            || self.spin > Duration::ZERO && (matches!(self.yields, Yields::Always) || self.answers.is_worthwhile());
        let mut spins = worthwhile();
        let mut spun_since = None;
        let backoff_wait = BackoffWait::new(self.learned());
        let check =
            |ready: &mut _, turn: &mut _| Self::take_last(self.check_peers(operation, device, deadline), ready, turn);
        loop {
            if let Some(r) = ready()? {
                if spins {
                    self.answers.record(true);
                }
                return Ok(r);
            }
            if turn()? {
                if spins {
                    self.answers.record(true);
                }
                (turns, spun_since, spins) = (0, None, worthwhile());
                // Traffic of other ranks must not hide the loss of the awaited one.
                busy = busy.wrapping_add(1);
                if busy.is_multiple_of(TURNS)
                    && let Break(r) = check(&mut ready, &mut turn)?
                {
                    return Ok(r);
                }
                continue;
            }
            turns = turns.wrapping_add(1);
            if spins {
                if !turns.is_multiple_of(TURNS) {
                    self.relax();
                    continue;
                }
                let now = match check(&mut ready, &mut turn)? {
                    Break(r) => return Ok(r),
                    Continue(now) => now,
                };
                if now.duration_since(*spun_since.get_or_insert(now)) < self.spin {
                    continue;
                }
            }
            if std::mem::take(&mut spins) {
                self.answers.record_missed(preemptions());
            }
            if !matches!(self.yields, Yields::Never) && self.answers.is_worthwhile() {
                let answer = self.spin_briefly(&mut ready)?;
                self.answers.record(answer.is_some());
                if let Some(r) = answer {
                    return Ok(r);
                }
            }
            if matches!(self.yields, Yields::Always) || backoff_wait.yields() {
                std::thread::yield_now();
                if turns.is_multiple_of(TURNS)
                    && let Break(r) = check(&mut ready, &mut turn)?
                {
                    return Ok(r);
                }
                continue;
            }
            // The value is stored, since `ready` may consume the resource that it finds, such as a lock.
            let mut found = None;
            let is_brief = may_sleep() == MaySleep::Briefly;
            let sleep = Sleep::For(if is_brief { self.check.min(MAX_SLEEP_BLOCKED) } else { self.check });
            device.park(sleep, &mut || {
                found = found.take().or_else(|| ready().transpose());
                found.is_some() || may_sleep() == MaySleep::No
            });
            if let Some(found) = found {
                return found;
            }
            if let Break(r) = check(&mut ready, &mut turn)? {
                return Ok(r);
            }
        }
    }

    /// Returns `checked`, the result of a check of the peers. If a rank is lost, first handles the messages that it
    /// sent before, which may complete the wait.
    fn take_last<R>(
        checked: Result<Instant>,
        ready: &mut impl FnMut() -> Result<Option<R>>,
        turn: &mut impl FnMut() -> Result<bool>,
    ) -> Result<ControlFlow<R, Instant>> {
        let lost = match checked {
            Err(e) if e.kind() == ErrorKind::PeerLost => e,
            checked => return checked.map(Continue),
        };
        for _ in 0..TURNS {
            if !turn()? {
                break;
            }
        }
        ready()?.map(Break).ok_or(lost)
    }

    /// Checks the peers if that is due, and the deadline; returns the time.
    ///
    /// # Errors
    /// `PeerLost`, `Timeout`.
    pub(crate) fn check_peers(
        &self,
        operation: &'static str,
        device: &dyn Device,
        deadline: Option<Instant>,
    ) -> Result<Instant> {
        let now = device.now();
        if deadline.is_some_and(|d| now >= d) {
            let e = Error::new(ErrorKind::Timeout, operation).device(device.capabilities().name);
            return Err(match device.check_peers(PeerCheck::Stopped).ok().flatten() {
                Some(rank) => e.peer(rank).cause("the peer's process is stopped, by a signal or a debugger"),
                None => e,
            });
        }
        if self.last_check.get().is_none_or(|last| now.duration_since(last) >= self.check) {
            self.last_check.set(Some(now));
            self.checks.set(self.checks.get().wrapping_add(1));
            let is_due = self.last_stopped_check.get().is_none_or(|last| now.duration_since(last) >= STOPPED);
            let about = if is_due { PeerCheck::Stopped } else { PeerCheck::Alive };
            let stopped = device.check_peers(about).map_err(|e| e.during(operation))?;
            if is_due {
                self.last_stopped_check.set(Some(now));
                self.warn_of_stopped(operation, stopped);
            }
        }
        Ok(now)
    }

    /// Warns once about a stopped rank. A stopped rank is not an error, but others may wait for it.
    fn warn_of_stopped(&self, operation: &'static str, stopped: Option<u32>) {
        if let Some(rank) = stopped.filter(|_| stopped != self.warned.get()) {
            tracing::warn!("{operation}: rank {rank} is stopped, by a signal or a debugger; this rank waits");
        }
        self.warned.set(stopped);
    }
}

/// Delays, and keeps later loads from starting before the delay ends: a plain loop would not, because of speculative
/// execution.
#[inline]
pub fn pace(pace: Pace) {
    for i in 0..pace.0 {
        std::hint::black_box(i);
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this architecture has the instruction.
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::hint::spin_loop();
}

/// Duration of [`pace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace(u32);

impl Pace {
    /// No delay, between two turns of progress, which take long enough themselves.
    pub(crate) const NEXT: Self = Self(0);
    /// About 50 ns, for exchanges in which both sides signal and wait at the same time.
    pub const EXCHANGE: Self = Self(30);
    /// About 30 ns, for a rank that waits for the answer to its own request.
    pub const ANSWER: Self = Self(15);
    /// About 15 ns more between an unsuccessful poll and the next one.
    pub(crate) const AGAIN: Self = Self(8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::loopback::{Hub, Loopback};

    #[test]
    fn result_of_the_last_poll_before_sleep_is_returned() {
        let hub = Hub::new(1);
        let device = Loopback::new(&hub, 0);
        let settings = Settings::from_lookup(|name| (name == "FARSIDE_WAIT").then(|| "park".into())).unwrap();
        let progress = Progress::new(&settings, true, true);
        // `ready` succeeds once, at its second call, which is the one inside `park`.
        let polls = Cell::new(0);
        let take = || {
            polls.set(polls.get() + 1);
            Ok((polls.get() == 2).then_some(polls.get()))
        };
        let deadline = device.now() + Duration::from_secs(5);
        let taken = progress.wait("take a lock", &device, Some(deadline), take, || Ok(false), || MaySleep::Briefly);
        assert_eq!(taken.unwrap(), 2);
    }

    /// The number of turns of a wait whose condition becomes true after the first sleep.
    fn turns_before_sleep(progress: &Progress, device: &Loopback) -> u32 {
        let (turns, looked) = (Cell::new(0), Cell::new(None));
        // Only a sleep separates two polls without a turn between them.
        let slept = || Ok((looked.replace(Some(turns.get())) == Some(turns.get())).then(|| turns.get()));
        let turn = || {
            turns.set(turns.get() + 1);
            Ok(false)
        };
        progress.wait("a peer", device, None, slept, turn, || MaySleep::Briefly).unwrap()
    }

    #[test]
    fn rank_sleeps_at_once_after_unsuccessful_spins_and_spins_again_when_answers_arrive() {
        let device = Loopback::new(&Hub::new(1), 0);
        let settings = Settings::from_lookup(|name| (name == "FARSIDE_WAIT").then(|| "auto(1)".into())).unwrap();
        let progress = Progress::new(&settings, false, true);
        assert!(turns_before_sleep(&progress, &device) >= TURNS);
        (0..AdaptiveSpin::MAX_SCORE).for_each(|_| _ = turns_before_sleep(&progress, &device));
        let all = (0..10 * AdaptiveSpin::PROBE_INTERVAL).map(|_| turns_before_sleep(&progress, &device));
        assert_eq!(all.filter(|turns| *turns > 1).count(), 10, "one wait in eight spins");
        // The answer arrives during a spin, so the next wait spins too.
        let seen = Cell::new(0);
        let answer = || Ok((seen.replace(seen.get() + 1) == 3).then_some(()));
        while progress.answers.score.get() == 0 {
            seen.set(0);
            progress.wait("a peer", &device, None, answer, || Ok(false), || MaySleep::UntilEvent).unwrap();
        }
        assert!(turns_before_sleep(&progress, &device) >= TURNS);
    }

    #[test]
    fn rank_that_may_sleep_has_the_shortest_slice_and_the_same_priority() {
        let Some(before) = scheduling().filter(|now| now.sched_runtime > 0) else { return };
        let of = |wait: &str| {
            let settings = Settings::from_lookup(|name| (name == "FARSIDE_WAIT").then(|| wait.into())).unwrap();
            let _ = Progress::new(&settings, false, true);
            scheduling().unwrap()
        };
        assert_eq!(of("spin").sched_runtime, before.sched_runtime);
        let after = of("auto");
        assert_eq!((after.sched_runtime, after.sched_nice), (SHORTEST_SLICE, before.sched_nice));
    }

    #[test]
    fn preemption_ends_spins_at_once() {
        let answers = AdaptiveSpin::default();
        answers.record_missed(3);
        (0..AdaptiveSpin::MAX_SCORE).for_each(|_| answers.record(true));
        answers.record_missed(3);
        assert_eq!(answers.score.get(), AdaptiveSpin::MAX_SCORE - 1);
        answers.record_missed(4);
        assert_eq!(answers.score.get(), 0);
    }

    #[test]
    fn spins_while_answers_arrive_and_seldom_after_they_have_stopped() {
        let answers = AdaptiveSpin::default();
        let spins = |of: u32| (0..of).filter(|_| answers.is_worthwhile()).count() as u32;
        assert_eq!(spins(10 * AdaptiveSpin::PROBE_INTERVAL), 10);
        answers.record(true);
        assert_eq!(spins(10), 10);
        (0..2 * AdaptiveSpin::MAX_SCORE).for_each(|_| answers.record(true));
        (1..AdaptiveSpin::MAX_SCORE).for_each(|_| answers.record(false));
        assert_eq!(spins(10), 10);
        (0..3).for_each(|_| answers.record(false));
        assert_eq!(spins(10 * AdaptiveSpin::PROBE_INTERVAL), 10);
    }
}
