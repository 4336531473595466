//! Request slots under every interleaving of an origin, the target's rank (which sleeps between requests), and its
//! agent.

use super::*;
use crate::device::shm::park::models::{Broken, Sleeper};
use crate::interleavings::{Fault, Lines, ModelWord, caught, check, leak};

const LAYOUT: Layout = Layout { start: 0, bounce: 0, bounce_len: 0 };

impl Exclusive for loom::sync::Mutex<()> {
    fn exclusively<T>(&self, f: impl FnOnce() -> T) -> T {
        let _guard = self.lock().unwrap();
        f()
    }
}

/// Requests that the target's rank or its agent answers by adding 100. If a request is never served, or its answer does
/// not wake the origin, the model reports a deadlock.
fn requests(count: u64, broken: Broken, fault: impl Fn(usize) -> Fault) {
    let memory = leak(Lines::new((0..=count as usize).map(|slot| LAYOUT.request(0, slot)), fault));
    let next = vec![ModelWord::new(0, Fault::No)];
    let server = leak(Server { serving: loom::sync::Mutex::new(()), next });
    let [origin, target] = [Broken::No, broken].map(|broken| leak(Sleeper::new(broken)));
    let serve = move || {
        let perform = |_, at| {
            // Relaxed: the marker orders them, as in `perform`.
            let operand: u64 = memory.word(at + 40).load(Ordering::Relaxed);
            memory.word(at + 40).store(operand + 100, Ordering::Relaxed);
            Ok(())
        };
        server.serve(memory, &LAYOUT, perform, |_| {
            origin.wake();
            target.wake();
        });
    };
    // Relaxed: a stale number costs the rank another sleep, which the answer ends.
    let all_served = move || Word::<u64>::load(&server.next[0], Ordering::Relaxed) == count;
    let agent = loom::thread::spawn(serve);
    let rank = loom::thread::spawn(move || {
        while !all_served() {
            target.park(|| server.ready(memory, &LAYOUT) || all_served());
            serve();
        }
    });
    for sequence in 0..count {
        let operand = [sequence, 0, 0];
        let request =
            Request { code: Code::FetchAdd, accumulate: 0, key: 1, offset: 0, len: 8, bounce: INLINE, operand };
        write(memory, &LAYOUT, 0, sequence, &request);
        target.wake();
        while !is_served(memory, &LAYOUT, 0, sequence) {
            origin.park(|| is_served(memory, &LAYOUT, 0, sequence));
        }
        assert_eq!(outcome(memory, &LAYOUT, 0, sequence).unwrap()[0], sequence + 100);
    }
    rank.join().unwrap();
    agent.join().unwrap();
}

#[test]
fn request_model_serves_all_whether_by_rank_or_agent() {
    check(2, || requests(1, Broken::No, |_| Fault::No));
    check(1, || requests(2, Broken::No, |_| Fault::No));
}

#[test]
fn request_model_notices_a_marker_that_is_not_ordered() {
    caught(2, || requests(1, Broken::No, |at| if at % LINE == 0 { Fault::Relaxed } else { Fault::No }));
}

#[test]
fn request_model_notices_a_wake_without_barriers() {
    caught(2, || requests(1, Broken::SleeperWithoutBarrier, |_| Fault::No));
    caught(2, || requests(1, Broken::WakerWithoutBarrier, |_| Fault::No));
}
