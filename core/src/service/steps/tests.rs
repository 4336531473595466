#![allow(unsafe_code)]
//! Updates in steps over the loopback device, one poll at a time: contention, errors, cancellation, and queues that
//! fill up in the middle.

use std::rc::Rc;

use super::*;
use crate::device::code::{Effect, hint};
use crate::device::loopback::{Hub, Loopback};

/// Adds elements; their size is encoded in `code`.
unsafe fn add(code: u32, target: *mut u8, operand: *const u8, result: *mut u8, bytes: usize) -> bool {
    let size = code::element(code);
    for at in (0..bytes).step_by(size) {
        // SAFETY: three ranges of that length by the contract of `AccumulateFn`; `result` may be null.
        unsafe {
            let (mut old, mut more) = ([0; 8], [0; 8]);
            std::ptr::copy_nonoverlapping(target.add(at), old.as_mut_ptr(), size);
            std::ptr::copy_nonoverlapping(operand.add(at), more.as_mut_ptr(), size);
            let sum = u64::from_le_bytes(old).wrapping_add(u64::from_le_bytes(more)).to_le_bytes();
            std::ptr::copy_nonoverlapping(sum.as_ptr(), target.add(at), size);
            if !result.is_null() {
                std::ptr::copy_nonoverlapping(old.as_ptr(), result.add(at), size);
            }
        }
    }
    true
}

/// A script for the inner device: the accepted requests, in order, and the upcoming ones for which it is busy.
#[derive(Debug, Default)]
struct Script {
    taken: RefCell<Vec<&'static str>>,
    /// One bit per upcoming request, the first lowest; a set bit makes the device busy.
    busy: Cell<u32>,
}

/// A loopback device that follows a script.
#[derive(Debug)]
struct Scripted {
    inner: Loopback,
    script: Rc<Script>,
}

// SAFETY: passes on the memory that the inner device returns.
unsafe impl Device for Scripted {
    forward!(inner: capabilities, register, release, import, forget, sealed, cancel, wake, waker, now, stats, check_peers, leave);

    unsafe fn post(&self, request: &WorkRequest<'_>) -> Result<Posted> {
        let busy = self.script.busy.replace(self.script.busy.get() >> 1);
        if busy & 1 == 1 {
            return Ok(Posted::Busy);
        }
        self.script.taken.borrow_mut().push(match request.operation {
            Operation::Transfer(transfer) => ["read", "write"][usize::from(transfer.write)],
            Operation::Update(Update { change: Change::Add(_), .. }) => "add",
            Operation::Update(Update { change: Change::CompareSwap { .. }, .. }) => "swap",
            Operation::Signal { .. } => "signal",
            _ => "other",
        });
        // SAFETY: the same contract.
        unsafe { self.inner.post(request) }
    }

    fn poll(&self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool> {
        self.inner.poll(sink)
    }

    fn park(&self, sleep: Sleep<'_>, ready: &mut dyn FnMut() -> bool) -> bool {
        self.inner.park(sleep, ready)
    }
}

/// Two origins, ranks 0 and 1, and memory of 64 bytes at rank 2.
struct Ranks {
    origins: [Steps; 2],
    scripts: [Rc<Script>; 2],
    target: Steps,
    own: Registration,
    /// The handle of each origin.
    regions: [u64; 2],
}

const TARGET: u32 = 2;

impl Ranks {
    fn new() -> Self {
        let hub = Hub::new(3);
        let scripts = [0, 1].map(|_| Rc::new(Script::default()));
        let origins = [0, 1].map(|me| {
            let device = Scripted { inner: Loopback::minimal(&hub, me as u32), script: Rc::clone(&scripts[me]) };
            Steps::over(Box::new(device))
        });
        let target = Steps::over(Box::new(Loopback::minimal(&hub, TARGET)));
        let own = (&target as &dyn Device).allocate(Region { accumulate: Some(add), ..Region::allocated(64) }).unwrap();
        let regions = [0, 1].map(|me: usize| origins[me].import(TARGET, &own.key, Some(add)).unwrap().handle);
        Self { origins, scripts, target, own, regions }
    }

    /// Adds elements of `SIZE` bytes at `offset`; the previous values go to `old`, which outlives the update, or null.
    fn add<const SIZE: usize>(
        &self,
        me: usize,
        id: u64,
        offset: usize,
        operand: &[[u8; SIZE]],
        old: *mut u8,
        notify: Option<usize>,
    ) -> Posted {
        let place = |offset| Place { region: self.regions[me], offset };
        let operand = Block::of(operand.as_ptr().cast(), operand.as_flattened().len());
        let operation = Operation::accumulate(place(offset), hint(SIZE, Effect::Other), operand, old);
        let notify = notify.map(|offset| (place(offset), 1));
        // SAFETY: the operand is copied by the call; `old` outlives the update or is null.
        unsafe { self.origins[me].post(&WorkRequest { peer: TARGET, operation, notify, id }) }.unwrap()
    }

    /// Polls once; returns the completions.
    fn poll(&self, me: usize) -> Vec<(u64, Result<()>)> {
        let mut all = Vec::new();
        let mut sink = |event: Event<'_>| {
            if let Event::Completed { id, result } = event {
                all.push((id, result));
            }
        };
        self.origins[me].poll(&mut sink).unwrap();
        all
    }

    /// Polls until a request is complete.
    fn complete(&self, me: usize) -> Vec<(u64, Result<()>)> {
        (0..10_000).map(|_| self.poll(me)).find(|all| !all.is_empty()).expect("an update never ends")
    }

    fn word(&self, offset: usize) -> u64 {
        // SAFETY: a word of the region that no other thread uses.
        unsafe { self.own.base.add(offset).cast::<u64>().read_volatile() }
    }

    /// The region's lock word.
    fn lock(&self) -> *mut u64 {
        let locks = self.target.locks.borrow();
        locks.as_ref().unwrap().base.wrapping_add((self.own.handle % LOCKS) as usize * LINE).cast()
    }

    /// Number of ranks that hold or wait for the region's lock.
    fn in_line(&self) -> u32 {
        // SAFETY: a word of the lock's line.
        let word = unsafe { self.lock().read_volatile() };
        ((word >> 32) as u32).wrapping_sub(word as u32 >> 1) & u32::MAX >> 1
    }

    /// The requests that an origin has made since the last call.
    fn taken(&self, me: usize) -> Vec<&'static str> {
        self.scripts[me].taken.take()
    }

    /// Adds 0 to a word of 8 bytes, which makes the lock word shared.
    fn share(&self, me: usize) {
        self.add(me, 99, 56, &[[0; 8]], NULL, None);
        self.complete(me).remove(0).1.unwrap();
        self.taken(me);
    }
}

const NULL: *mut u8 = std::ptr::null_mut();

/// The lock word when `tickets` tickets have been taken and released.
fn free_lock(tickets: u32) -> u64 {
    u64::from(tickets) << 32 | u64::from(tickets << 1)
}

#[test]
fn two_ranks_add_exactly_to_elements_of_4_bytes_of_the_same_words() {
    const UPDATES: u64 = 200;
    let ranks = Ranks::new();
    for id in 0..UPDATES {
        // Two elements of one word, and an update that continues into the next word.
        ranks.add(0, id, 0, &[1u32.to_le_bytes()], NULL, None);
        ranks.add(1, id, 4, &[1u32, 2].map(u32::to_le_bytes), NULL, None);
    }
    let mut open = [UPDATES; 2];
    for turn in 0.. {
        // The ranks take turns of different lengths.
        let me = usize::from(turn % 5 < 2);
        ranks.poll(me).into_iter().for_each(|(_, result)| {
            result.unwrap();
            open[me] -= 1;
        });
        if open == [0, 0] {
            break;
        }
        assert!(turn < 100_000, "{open:?} updates are left");
    }
    assert_eq!((ranks.word(0), ranks.word(8)), (UPDATES | UPDATES << 32, 2 * UPDATES));
    assert_eq!(ranks.in_line(), 0);
    let reads = |me: usize| ranks.scripts[me].taken.borrow().iter().filter(|what| **what == "read").count() as u64;
    assert!(reads(0) + reads(1) > 2 * UPDATES, "the lock was never held by another");
}

#[test]
fn lock_is_granted_in_the_order_of_requests_and_its_tickets_wrap() {
    let ranks = Ranks::new();
    // SAFETY: the lock's word, which is not in use yet.
    unsafe { ranks.lock().write_volatile(free_lock(u32::MAX - 1)) };
    let one = [1u32.to_le_bytes()];
    // Rank 1 polls less often. It waits for one update of rank 0, not for all of them.
    for id in 0..4 {
        ranks.add(0, id, 0, &one, NULL, None);
    }
    ranks.add(1, 9, 0, &one, NULL, None);
    ranks.complete(0).remove(0).1.unwrap();
    assert!((0..100).all(|_| ranks.poll(0).is_empty()), "rank 0 went past rank 1, which was in line before it");
    assert_eq!((ranks.word(0), ranks.in_line()), (1, 2));
    ranks.complete(1).remove(0).1.unwrap();
    assert_eq!(ranks.word(0), 2);
    (0..3).for_each(|_| ranks.complete(0).remove(0).1.unwrap());
    // SAFETY: as above.
    assert_eq!((ranks.word(0), unsafe { ranks.lock().read_volatile() }), (5, free_lock(3)));
}

#[test]
fn word_that_changes_after_it_was_read_is_computed_again() {
    let ranks = Ranks::new();
    [0, 1].into_iter().for_each(|me| ranks.share(me));
    let mut old = [0u64; 2];
    ranks.add(0, 1, 8, &[5u64, 6].map(u64::to_le_bytes), old.as_mut_ptr().cast(), None);
    assert_eq!(*ranks.scripts[0].taken.borrow(), ["read"]);
    ranks.add(1, 2, 16, &[100u64.to_le_bytes()], NULL, None);
    ranks.complete(1).remove(0).1.unwrap();
    ranks.complete(0).remove(0).1.unwrap();
    assert_eq!((ranks.word(8), ranks.word(16), old), (5, 106, [0, 100]));
    assert_eq!(*ranks.scripts[0].taken.borrow(), ["read", "swap", "swap", "swap"]);
}

#[test]
fn several_words_take_four_requests_until_a_single_one_shares_the_lock_word() {
    let ranks = Ranks::new();
    let numbers = |count: u64| (1..=count).map(u64::to_le_bytes).collect::<Vec<_>>();
    let add = |me, count| {
        ranks.add(me, 1, 0, &numbers(count), NULL, None);
        ranks.complete(me).remove(0).1.unwrap();
        ranks.taken(me)
    };
    assert_eq!(add(0, 7), ["add", "read", "write", "add"]);
    assert_eq!(add(1, 2), ["add", "read", "write", "add"]);
    // An update of a single element takes and releases the lock first, at each origin.
    assert_eq!(add(0, 1), ["add", "add", "read", "swap"]);
    assert_eq!(add(0, 1), ["read", "swap"]);
    assert_eq!(add(1, 2), ["add", "add", "read", "swap", "swap"]);
    assert_eq!(add(1, 1), ["read", "swap"]);
    assert_eq!(add(0, 7), [&["read"][..], &["swap"; 7]].concat());
    assert_eq!((ranks.word(0), ranks.word(8), ranks.word(48)), (7, 8, 14));
    // A region that is made later has an unshared lock word.
    let next = (&ranks.target as &dyn Device).allocate(Region::allocated(8)).unwrap();
    let of = |key: &[u8]| u64::from_le_bytes(*key.last_chunk().unwrap());
    let all = (0..LOCKS).map(|_| (&ranks.target as &dyn Device).allocate(Region::allocated(8)).unwrap());
    assert!(std::iter::once(next).chain(all).all(|region| of(&region.key) != of(&ranks.own.key)));
}

#[test]
fn single_words_and_several_lose_no_update_of_each_other() {
    for turns in 1..40 {
        let ranks = Ranks::new();
        let three = [1u64, 1, 1].map(u64::to_le_bytes);
        for id in 0..20 {
            ranks.add(0, id, 0, &three, NULL, None);
        }
        let (mut open, mut singles) = ([20, 0], 0);
        for turn in 0.. {
            if turn >= turns && turn % 3 == 0 && singles < 20 {
                ranks.add(1, singles, 8, &three[..1], NULL, None);
                (open[1], singles) = (open[1] + 1, singles + 1);
            }
            let me = usize::from(turn % 5 < 2);
            ranks.poll(me).into_iter().for_each(|(_, result)| {
                result.unwrap();
                open[me] -= 1;
            });
            if (open, singles) == ([0, 0], 20) {
                break;
            }
            assert!(turn < 100_000, "{open:?} updates are left");
        }
        assert_eq!((ranks.word(0), ranks.word(8), ranks.word(16), ranks.in_line()), (20, 40, 20, 0));
    }
}

#[test]
fn region_released_while_the_lock_is_held_is_an_error_that_releases_the_lock() {
    // Released before the elements are read, and before they are written.
    for polls in [0, 1] {
        let ranks = Ranks::new();
        ranks.add(0, 7, 0, &[1u32.to_le_bytes()], NULL, None);
        (0..polls).for_each(|_| assert!(ranks.poll(0).is_empty()));
        assert_eq!(ranks.in_line(), 1, "rank 0 holds the lock");
        // SAFETY: the memory is not used after the release.
        unsafe { ranks.target.release(ranks.own.handle) }.unwrap();
        let (id, result) = ranks.complete(0).remove(0);
        assert_eq!((id, result.unwrap_err().kind()), (7, ErrorKind::BadKey));
        assert_eq!(ranks.in_line(), 0, "the lock after {polls} polls");
        let want = [&["add", "read"][..], &["write"][..polls], &["add"]].concat();
        assert_eq!(*ranks.scripts[0].taken.borrow(), want);
    }
}

#[test]
fn update_cancelled_while_it_holds_the_lock_is_finished_and_touches_no_memory_of_the_caller() {
    let ranks = Ranks::new();
    let mut old = [0xEEu8; 4];
    ranks.add(0, 1, 0, &[3u32.to_le_bytes()], old.as_mut_ptr(), Some(32));
    // Two updates wait after the first: the cancelled one is never begun, and the other one completes.
    ranks.add(0, 2, 0, &[50u32.to_le_bytes()], NULL, None);
    ranks.add(0, 3, 4, &[4u32.to_le_bytes()], NULL, None);
    assert_eq!(ranks.in_line(), 1);
    ranks.origins[0].cancel(&|id| id < 3);
    let (id, result) = ranks.complete(0).remove(0);
    assert_eq!((id, result.is_ok(), ranks.in_line()), (3, true, 0));
    assert_eq!((ranks.word(0), ranks.word(32), old), (3 | 4 << 32, 0, [0xEE; 4]));
    assert!((0..10).all(|_| ranks.poll(0).is_empty()));
}

#[test]
fn steps_that_find_the_device_busy_are_posted_later_in_their_order() {
    // All busy patterns of the first seven requests; then the first 20 requests all busy.
    for busy in (0..128).chain([(1 << 20) - 1]) {
        let (locked, words) = (Ranks::new(), Ranks::new());
        words.share(0);
        for ranks in [&locked, &words] {
            ranks.scripts[0].busy.set(busy);
        }
        locked.add(0, 1, 4, &[1u32, 2, 3].map(u32::to_le_bytes), NULL, Some(32));
        words.add(0, 1, 8, &[1u64, 2].map(u64::to_le_bytes), NULL, Some(32));
        for (ranks, want) in [(locked, ["add", "read", "write", "add"]), (words, ["read", "swap", "swap", ""])] {
            if ranks.scripts[0].taken.borrow().is_empty() {
                let sleep = Sleep::For(std::time::Duration::from_secs(60));
                assert!(ranks.origins[0].park(sleep, &mut || false), "it slept with a request that is not posted");
            }
            ranks.complete(0).remove(0).1.unwrap();
            let mut want: Vec<_> = want.into_iter().filter(|what| !what.is_empty()).collect();
            want.push("signal");
            assert_eq!((&*ranks.scripts[0].taken.borrow(), ranks.in_line()), (&want, 0), "{busy:b}");
            let words = [ranks.word(0), ranks.word(8), ranks.word(16), ranks.word(32)];
            assert!(words == [1 << 32, 2 | 3 << 32, 0, 1] || words == [0, 1, 2, 1], "{busy:b}: {words:?}");
        }
    }
}

#[test]
fn updates_beyond_the_bound_of_the_queue_are_busy_and_change_nothing() {
    let ranks = Ranks::new();
    let one = [1u32.to_le_bytes()];
    let taken = (0..).take_while(|id| ranks.add(0, *id, 0, &one, NULL, None) == Posted::Pending).count();
    assert_eq!(taken, MAX_UPDATES);
    ranks.complete(0).remove(0).1.unwrap();
    assert_eq!(ranks.add(0, 0, 0, &one, NULL, None), Posted::Pending);
    let mut left = MAX_UPDATES;
    while left > 0 {
        left -= ranks.complete(0).len();
    }
    assert_eq!(ranks.word(0), MAX_UPDATES as u64 + 1);
}

#[test]
fn notification_is_set_after_the_update_and_before_its_completion() {
    let ranks = Ranks::new();
    let mut old = [0u8; 8];
    ranks.add(0, 1, 0, &[7u32, 8].map(u32::to_le_bytes), old.as_mut_ptr(), Some(40));
    for _ in 0..100 {
        let updated = ranks.word(0) == 7 | 8 << 32;
        assert!(ranks.word(40) == 0 || updated, "the notification came first");
        if let Some((id, result)) = ranks.poll(0).pop() {
            assert_eq!((id, result.is_ok(), ranks.word(40), updated), (1, true, 1, true));
            return;
        }
    }
    panic!("the update never ends");
}
