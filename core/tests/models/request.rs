//! Requests (`request.rs`, `agent.rs`, `attending` and `wake_server` in `mod.rs`): a slot that is used again and
//! again, served by the rank when it leaves the runtime, or by its agent while it computes.

use loom::cell::UnsafeCell;
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::futex::Futex;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    No,
    /// The rank that stops attending looks for requests without a fence before.
    LeavesWithoutFence,
    /// The origin looks whether the rank attends without a fence before.
    WakesWithoutFence,
    /// The agent notes its bell after it has looked for requests.
    AgentNotesLate,
    /// The marker is not released after the request.
    MarkerRelaxed,
    /// The mark of a served request is not released after the result.
    AnswerRelaxed,
}

/// In the marker: served.
const SERVED: u64 = 1 << 63;

struct Target {
    marker: AtomicU64,
    /// Operand, then result.
    words: UnsafeCell<u64>,
    attending: AtomicU32,
    agent_bell: Futex,
    stop: AtomicU32,
    serving: Mutex<()>,
    next: AtomicU64,
    /// Wakes the origin: its own doorbell, modelled in `wake.rs`, rung at every answer here.
    answered: Futex,
    broken: Broken,
}

#[allow(unsafe_code)]
// SAFETY: every access to the cell is tracked by loom, which reports those that are not ordered.
unsafe impl Sync for Target {}

#[allow(unsafe_code)]
impl Target {
    /// The rank's or the agent's side.
    fn serve(&self) {
        let next = self.next.load(Ordering::Relaxed);
        if self.marker.load(Ordering::Relaxed) & !SERVED != next + 1 {
            return;
        }
        let _guard = self.serving.lock().unwrap();
        loop {
            // Relaxed: under the mutex. Acquire: pairs with the Release in `request`.
            let next = self.next.load(Ordering::Relaxed);
            if self.marker.load(Ordering::Acquire) != next + 1 {
                break;
            }
            // SAFETY: loom checks that the origin does not use the cell meanwhile.
            self.words.with_mut(|w| unsafe { *w += 100 });
            self.next.store(next + 1, Ordering::Relaxed);
            let release = if self.broken == Broken::AnswerRelaxed { Ordering::Relaxed } else { Ordering::Release };
            self.marker.store((next + 1) | SERVED, release);
            self.answered.word.fetch_add(1, Ordering::SeqCst);
            self.answered.wake();
        }
    }

    fn leave_the_runtime(&self) {
        // Relaxed: ordered by the fence, which pairs with the one in `request`.
        self.attending.store(0, Ordering::Relaxed);
        if self.broken != Broken::LeavesWithoutFence {
            fence(Ordering::SeqCst);
        }
        self.serve();
    }

    fn agent(&self) {
        loop {
            let mut heard = self.agent_bell.word.load(Ordering::SeqCst);
            if self.stop.load(Ordering::SeqCst) != 0 {
                return;
            }
            self.serve();
            if self.broken == Broken::AgentNotesLate {
                heard = self.agent_bell.word.load(Ordering::SeqCst);
            }
            self.agent_bell.wait(heard);
        }
    }

    fn ring(&self) {
        self.agent_bell.word.fetch_add(1, Ordering::SeqCst);
        self.agent_bell.wake();
    }

    /// The origin's side: one request, waited for.
    fn request(&self, sequence: u64, operand: u64) -> u64 {
        // SAFETY: as above; the answer to the request before has been seen.
        self.words.with_mut(|w| unsafe { *w = operand });
        // Release: pairs with the Acquire of the marker in `serve`.
        let release = if self.broken == Broken::MarkerRelaxed { Ordering::Relaxed } else { Ordering::Release };
        self.marker.store(sequence + 1, release);
        if self.broken != Broken::WakesWithoutFence {
            fence(Ordering::SeqCst);
        }
        // Relaxed: ordered by the fence, which pairs with the one in `leave_the_runtime`.
        if self.attending.load(Ordering::Relaxed) == 0 {
            self.ring();
        }
        loop {
            let seen = self.answered.word.load(Ordering::SeqCst);
            // Acquire: pairs with the Release of the marker in `serve`.
            if self.marker.load(Ordering::Acquire) == (sequence + 1) | SERVED {
                break;
            }
            self.answered.wait(seen);
        }
        // SAFETY: as above.
        self.words.with(|w| unsafe { *w })
    }
}

/// A rank that attends and then computes, its agent, and an origin with `requests` requests. One that nobody
/// serves is a deadlock, which loom reports.
fn model(broken: Broken, requests: u64) {
    crate::check(2, move || {
        let target = crate::leak(Target {
            marker: AtomicU64::new(0),
            words: UnsafeCell::new(0),
            attending: AtomicU32::new(1),
            agent_bell: Futex::new(),
            stop: AtomicU32::new(0),
            serving: Mutex::new(()),
            next: AtomicU64::new(0),
            answered: Futex::new(),
            broken,
        });
        let rank = loom::thread::spawn(move || target.leave_the_runtime());
        let agent = loom::thread::spawn(move || target.agent());
        for i in 0..requests {
            assert_eq!(target.request(i, i + 1), i + 101, "request {i}");
        }
        rank.join().unwrap();
        target.stop.store(1, Ordering::SeqCst);
        target.ring();
        agent.join().unwrap();
    });
}

#[test]
fn requests_are_served_whoever_is_there() {
    model(Broken::No, 2);
}

#[test]
#[should_panic(expected = "deadlock")]
fn request_to_a_rank_that_leaves_without_a_fence_is_caught() {
    model(Broken::LeavesWithoutFence, 1);
}

#[test]
#[should_panic(expected = "deadlock")]
fn request_of_an_origin_that_wakes_without_a_fence_is_caught() {
    model(Broken::WakesWithoutFence, 1);
}

#[test]
#[should_panic(expected = "deadlock")]
fn request_to_an_agent_that_notes_its_bell_late_is_caught() {
    model(Broken::AgentNotesLate, 2);
}

#[test]
#[should_panic]
fn request_with_a_relaxed_marker_is_caught() {
    model(Broken::MarkerRelaxed, 1);
}

#[test]
#[should_panic]
fn request_with_a_relaxed_answer_is_caught() {
    model(Broken::AnswerRelaxed, 1);
}
