//! Tests of the checks: the data checks run over a device that damages one operation, and must fail, for every
//! operation that can be damaged. [`MISSES`] lists the exceptions and their reasons.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::checks::config::{self, Config};
use crate::checks::operations as op;
use crate::checks::ordering;
use crate::checks::requests::{self, Complete};
use crate::checks::selections;
use crate::checks::sync::{ALL, Sync};
use farside_rma::core::stats::{Kind, Snapshot};
use farside_rma::{Assert, Error, ErrorKind, Job, LockKind, LockWindow, Result, Team, Window};

type Body = Arc<dyn Fn(&Team, &Config) -> Result<()> + Send + std::marker::Sync>;

/// A check and its name.
#[derive(Clone)]
struct Check {
    name: String,
    body: Body,
}

/// Checks that do not detect every single damage of a kind, and the reason. All other damages are detected.
const MISSES: &[(&str, &str, &str)] = &[
    ("put_twice", "double-put", LAST_VALUES),
    ("put", "double-put", LAST_VALUES),
    ("put_value", "double-put", LAST_VALUES),
    ("put_selected", "double-put", LAST_VALUES),
    ("rput", "double-put", LAST_VALUES),
];

const LAST_VALUES: &str = "the last values are never overwritten, so their delayed copies are harmless";

const RANKS: u32 = 2;
/// A run that exceeds this time is considered hung, which counts as detected damage.
const HANG: Duration = Duration::from_millis(1500);

fn check(
    name: impl Into<String>,
    body: impl Fn(&Team, &Config) -> Result<()> + Send + std::marker::Sync + 'static,
) -> Check {
    Check { name: name.into(), body: Arc::new(body) }
}

type Generic = fn(&Team, &Config, Sync) -> Result<()>;

fn under_all(name: &str, f: Generic) -> Vec<Check> {
    ALL.iter().map(|s| check(format!("{name} {s:?}"), move |t, c| f(t, c, *s))).collect()
}

fn puts() -> Vec<Check> {
    let mut all = under_all("put", op::put::<u64>);
    all.extend(under_all("put_value", op::put_value::<u64>));
    all.extend(under_all("put_selected", selections::put::<u64>));
    for how in [Complete::Wait, Complete::Test, Complete::Await, Complete::Epoch] {
        all.push(check(format!("rput {how:?}"), move |t, c| requests::rput(t, c, how)));
    }
    all
}

fn atomics() -> Vec<Check> {
    let mut all = under_all("accumulate", op::accumulate::<u64>);
    all.extend(under_all("compare_and_swap", op::compare_and_swap::<u64>));
    let others: [(&str, Generic); 3] = [
        ("get_accumulate", op::get_accumulate::<u64>),
        ("fetch_and_op", op::fetch_and_op::<u64>),
        ("ordered", ordering::short),
    ];
    // A lost atomic of a lock is detected only by a hang, which takes long, so these use only one kind of lock.
    for (name, f) in others {
        all.extend(under_all(name, f).into_iter().filter(|c| !c.name.contains("LockS") && !c.name.contains("LockE")));
    }
    all.push(check("raccumulate Wait", |t, c| requests::raccumulate(t, c, Complete::Wait)));
    all.push(check("rget_accumulate Await", |t, c| requests::rget_accumulate(t, c, Complete::Await)));
    all.push(check("now", requests::now));
    all
}

/// A barrier of ranks, which are threads, without progress of the runtime: operations that the device delays stay
/// delayed. It times out if a rank has failed.
#[derive(Default)]
struct Meeting(AtomicUsize);

impl Meeting {
    fn meet(&self, number: usize) {
        self.0.fetch_add(1, Ordering::SeqCst);
        let since = Instant::now();
        while self.0.load(Ordering::SeqCst) < number * RANKS as usize && since.elapsed() < HANG / 4 {
            std::thread::yield_now();
        }
    }
}

/// Makes progress, so that operations that the device delays arrive and other ranks are notified.
fn turns(team: &Team) -> Result<()> {
    (0..8).try_for_each(|_| team.job().progress().map(|_| ()))?;
    team.barrier()
}

/// Rank 1 puts one value and then another to the same address of rank 0, each complete before the next: a repeated
/// first put that arrives after the second is detected.
fn put_twice(team: &Team, sync: Sync, meeting: &Meeting) -> Result<()> {
    let (none, me) = (Assert::empty(), team.rank());
    let (first, second) = ([1u64; 5], [2u64; 5]);
    if sync == Sync::Pscw {
        let mut win = Window::<u64>::allocate(team, 5)?;
        for (number, data) in [&first, &second].into_iter().enumerate() {
            if me == 0 {
                win.expose(&[1], none, |_| {
                    meeting.meet(number + 1);
                    Ok(())
                })?;
            } else {
                // The exposure is known to be open, so the put does not wait.
                meeting.meet(number + 1);
                win.start(&[0], none, |e| e.put(data, 0, 0))?;
            }
        }
        meeting.meet(3);
        turns(team)?;
        assert!(me != 0 || win.local()? == second, "a delayed copy of the first value has overwritten the second");
        return win.free();
    }
    let win = LockWindow::<u64>::allocate(team, 5)?;
    team.barrier()?;
    if me == 1 {
        let both = |e: &farside_rma::PassiveEpoch<'_, '_, u64>, data: &[u64]| -> Result<()> {
            data.iter().enumerate().try_for_each(|(i, x)| e.put_value(*x, 0, i))
        };
        if sync == Sync::LockAll {
            win.lock_all(none, |e| {
                both(e, &first)?;
                e.flush(0)?;
                both(e, &second)
            })?;
        } else {
            let kind = if sync == Sync::LockShared { LockKind::Shared } else { LockKind::Exclusive };
            win.lock(kind, 0, none, |e| both(e, &first))?;
            win.lock(kind, 0, none, |e| both(e, &second))?;
        }
    }
    turns(team)?;
    win.with_local(|l| {
        assert!(me != 0 || l == second, "a delayed copy of the first value has overwritten the second: {l:?}");
        Ok(())
    })?;
    win.free()
}

/// Rank 1 puts to rank 0, which checks the value as soon as its closing call returns; until then rank 1 makes no
/// progress.
fn seen_at_once(team: &Team, sync: Sync, meeting: &Meeting) -> Result<()> {
    let (none, me) = (Assert::empty(), team.rank());
    let mut win = Window::<u64>::allocate(team, 700)?;
    team.barrier()?;
    for round in 1..4u64 {
        let data: Vec<u64> = (0..700).map(|i| i * 10 + round).collect();
        let number = 2 * round as usize;
        if sync == Sync::Fence {
            win.fence(none, |e| if me == 1 { e.put(&data, 0, 0) } else { Ok(()) })?;
            meeting.meet(number - 1);
        } else if me == 0 {
            win.expose(&[1], none, |_| {
                meeting.meet(number - 1);
                Ok(())
            })?;
        } else {
            meeting.meet(number - 1);
            win.start(&[0], none, |e| e.put(&data, 0, 0))?;
        }
        assert!(me != 0 || win.local()? == data, "missing in round {round} although the epoch is closed");
        meeting.meet(number);
    }
    win.free()
}

fn with_meeting(name: &str, sync: Sync, f: fn(&Team, Sync, &Meeting) -> Result<()>) -> impl Fn() -> Check {
    let name = format!("{name} {sync:?}");
    move || {
        let meeting = Meeting::default();
        check(name.clone(), move |team, _| f(team, sync, &meeting))
    }
}

/// Counts a rank as finished on drop, also after a panic.
struct Done<'a>(&'a AtomicUsize);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Runs a check with a fault; returns the error, or the counters of the ranks. An additional watchdog rank ends if the
/// other ranks hang, so that they end too.
fn run(check: &Check, fault: &str, limit: Duration) -> std::result::Result<Vec<Snapshot>, String> {
    let settings = config::POSTED.settings(&[("FARSIDE_TEST_FAULT", fault)]);
    let done = AtomicUsize::new(0);
    let result = Job::threads_with(RANKS as usize + 1, &settings, |job| {
        let team = job.world()?.subteam(&[0, 1])?;
        let Some(team) = team else {
            let since = Instant::now();
            while done.load(Ordering::SeqCst) < RANKS as usize {
                if since.elapsed() > limit {
                    return Err(Error::new(ErrorKind::Timeout, "watch"));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            return Ok(Snapshot::default());
        };
        let _done = Done(&done);
        (check.body)(&team, &config::POSTED)?;
        Ok(job.stats())
    });
    result.map_err(|e| e.to_string())
}

/// The number of operations that can be damaged, and the indices of those whose damage a check does not detect.
fn missed(make: &dyn Fn() -> Check, damage: &str, kinds: &[Kind]) -> (usize, Vec<u64>) {
    // Ranks that wait for a lock poll it a varying number of times: most runs have at least the minimum of three runs.
    let operations = (0..3)
        .map(|_| {
            let sound = run(&make(), "unmapped", Duration::from_secs(30)).expect("the check passes on a sound device");
            sound.iter().map(|s| kinds.iter().map(|k| s.count(*k)).sum::<u64>()).max().unwrap()
        })
        .min()
        .unwrap();
    assert!(operations > 0, "{}: no operation that {damage} could affect", make().name);
    // Whether the damage was detected, or `None` if this run had no such operation.
    let outcomes: Vec<Option<bool>> = std::thread::scope(|s| {
        let runs: Vec<_> = (1..=operations)
            .map(|n| {
                let check = make();
                s.spawn(move || match run(&check, &format!("{damage}:{n}"), HANG) {
                    Ok(stats) => stats.iter().any(|s| s.count(Kind::Damage) > 0).then_some(false),
                    Err(_) => Some(true),
                })
            })
            .collect();
        runs.into_iter().map(|r| r.join().unwrap()).collect()
    });
    let absent = outcomes.iter().filter(|o| o.is_none()).count();
    assert!(absent * 2 <= outcomes.len(), "{}: {absent} of {operations} operations did not occur", make().name);
    let missed = (1..=operations).zip(&outcomes).filter(|(_, o)| **o == Some(false)).map(|(n, _)| n).collect();
    // Writes that synchronize are counted above and never hit; waits for a lock make a varying number of them.
    (outcomes.len() - absent, missed)
}

/// Sweeps all checks; panics if one misses a damage and is not listed, prints those that are.
fn sweep(damage: &str, kinds: &[Kind], checks: &[Box<dyn Fn() -> Check>]) {
    // Ranks are expected to panic, so only panics of named threads, those of the tests, are shown.
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().name().is_some() {
            before(info);
        }
    }));
    let mut unexpected = BTreeSet::new();
    for make in checks {
        let name = make().name;
        let (operations, missed) = missed(make, damage, kinds);
        let operation = name.split(' ').next().unwrap();
        let listed = MISSES.iter().find(|(n, d, _)| *n == operation && *d == damage);
        match (missed.is_empty(), listed) {
            (true, _) => println!("{damage}: {name}: damage to each of {operations} operations is detected"),
            (false, Some((_, _, why))) => {
                println!("{damage}: {name}: {} of {operations} undetected: {why}", missed.len());
            }
            (false, None) => {
                unexpected.insert(format!("{damage}: {name}: undetected: {missed:?} of {operations}"));
            }
        }
        // The reason covers only the second half of the operations.
        assert!(missed.iter().all(|n| *n > operations as u64 / 2), "{damage}: {name}: {missed:?} of {operations}");
    }
    assert!(unexpected.is_empty(), "{unexpected:#?}");
}

fn boxed(checks: Vec<Check>) -> Vec<Box<dyn Fn() -> Check>> {
    checks.into_iter().map(|c| Box::new(move || c.clone()) as Box<dyn Fn() -> Check>).collect()
}

#[test]
fn every_lost_put_is_noticed() {
    farside_harness::alone!("every_lost_put_is_noticed");
    sweep("drop-put", &[Kind::Write], &boxed(puts()));
}

#[test]
fn every_late_copy_of_a_put_is_noticed_where_it_can_be_seen() {
    farside_harness::alone!("every_late_copy_of_a_put_is_noticed_where_it_can_be_seen");
    let mut checks = boxed(puts());
    for s in [Sync::Pscw, Sync::LockShared, Sync::LockExclusive, Sync::LockAll] {
        checks.push(Box::new(with_meeting("put_twice", s, put_twice)));
    }
    sweep("double-put", &[Kind::Write], &checks);
}

#[test]
fn every_lost_atomic_is_noticed() {
    farside_harness::alone!("every_lost_atomic_is_noticed");
    let kinds = [Kind::Accumulate, Kind::FetchAdd, Kind::CompareSwap];
    sweep("lose-atomic", &kinds, &boxed(atomics()));
}

#[test]
fn every_early_notification_is_noticed() {
    farside_harness::alone!("every_early_notification_is_noticed");
    let checks: Vec<Box<dyn Fn() -> Check>> = vec![
        Box::new(with_meeting("seen_at_once", Sync::Fence, seen_at_once)),
        Box::new(with_meeting("seen_at_once", Sync::Pscw, seen_at_once)),
    ];
    sweep("early-notify", &[Kind::Notify], &checks);
}
