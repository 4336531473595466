#![allow(unsafe_code)]
//! A rank is killed, in every phase: the other ranks get a `PeerLost` error that names it, within the three seconds
//! that the launcher grants them, and no resource leaks. For a stopped rank the other ranks wait, and report its
//! number.
//!
//! The ranks run this test program, started by `farside run` with the phase in the environment.

use std::path::{Path, PathBuf};

use farside_datatype::{Datatype, Named};
use farside_harness::{Marked, itself, signal};
use farside_rma::aggregate::{Conveyor, Options};
use farside_rma::core::am::{self, Counters, Delivery, HandlerId};
use farside_rma::core::coll;
use farside_rma::dist::{Map, Queue};
use farside_rma::prelude::*;
use farside_rma::raw::{self, RawWindow};

const PHASE: &str = "FARSIDE_TEST_PHASE";
const VICTIM: usize = 1;
/// Output of the victim before it stops itself, followed by its process id.
const STOPS: &str = "the victim stops: ";

const PHASES: &[&str] = &[
    "before-init",
    "after-init",
    "barrier",
    "allgather",
    "window-creation",
    "fence",
    "fence-chain",
    "post",
    "start",
    "lock-exclusive",
    "lock-shared",
    "lock-all",
    "layouts",
    "accumulates-fence",
    "accumulates-start",
    "accumulates-lock",
    "user-window",
    "active-message",
    "dynamic",
    "global-array",
    "conveyor",
    "updates",
    "map",
    "map-inserts",
    "queue",
    "free",
    "finalize",
];

/// Ends this process like a crash, if it is the victim.
fn die(me: usize) {
    if me == VICTIM {
        signal(std::process::id(), "KILL");
        panic!("still alive");
    }
}

/// Stops this process like a debugger, if it is the victim, after printing its process id.
fn stop(me: usize) {
    if me == VICTIM {
        eprintln!("{STOPS}{}", std::process::id());
        // SAFETY: the signal has no handler. It is sent to this thread, is delivered before the call returns, and stops
        // the whole process.
        assert_eq!(unsafe { libc::raise(libc::SIGSTOP) }, 0);
    }
}

/// The program of a rank in a phase: the victim dies in the phase, and the other ranks depend on the victim.
fn rank(phase: &str) -> Result<()> {
    if phase == "before-init" && std::env::var("PMI_RANK").as_deref() == Ok("1") {
        die(VICTIM);
    }
    let job = Job::init()?;
    let team = job.world()?;
    let me = team.rank();
    let others: Vec<usize> = (0..team.size()).filter(|r| *r != me).collect();
    // Before the barrier, since a message may arrive at a rank that has not left the barrier yet.
    job.active_messages().register(HandlerId(1), |_| Delivery::Done)?;
    team.barrier()?;
    match phase {
        "after-init" => {
            die(me);
            team.barrier()
        }
        "barrier" => loop {
            team.barrier()?;
            die(me);
        },
        "allgather" => loop {
            coll::allgather(&team, &[1; 100_000])?;
            die(me);
        },
        "window-creation" => loop {
            Window::<u8>::allocate(&team, 100_000)?.free()?;
            die(me);
        },
        "fence" => {
            let mut w = Window::<u64>::allocate(&team, 10)?;
            loop {
                w.fence(Assert::empty(), |e| {
                    e.put_value(1, (me + 1) % 3, 0)?;
                    die(me);
                    Ok(())
                })?;
            }
        }
        "fence-chain" => {
            let mut w = Window::<u64>::allocate(&team, 10)?;
            w.fences(|f| {
                loop {
                    f.epoch(Assert::empty(), |e| e.put_value(1, (me + 1) % 3, 0))?;
                    die(me);
                }
            })
        }
        "post" => {
            let mut w = Window::<u64>::allocate(&team, 10)?;
            w.expose(&others, Assert::empty(), |x| {
                die(me);
                x.start(&others, Assert::empty(), |e| e.put_value(1, others[0], me))
            })?;
            team.barrier()
        }
        "start" => {
            let mut w = Window::<u64>::allocate(&team, 10)?;
            w.expose(&others, Assert::empty(), |x| {
                x.start(&others, Assert::empty(), |e| {
                    die(me);
                    e.put_value(1, others[0], me)
                })
            })?;
            team.barrier()
        }
        "lock-exclusive" | "lock-shared" => {
            let kind = if phase == "lock-shared" { LockKind::Shared } else { LockKind::Exclusive };
            let w = LockWindow::<u64>::allocate(&team, 10)?;
            if me == VICTIM {
                w.lock(kind, 0, Assert::empty(), |e| {
                    e.put_value(1, 0, 0)?;
                    e.flush(0)?;
                    coll::broadcast(&team, VICTIM, &[])?;
                    die(me);
                    Ok(())
                })?;
            }
            coll::broadcast(&team, VICTIM, &[])?;
            w.lock(LockKind::Exclusive, 0, Assert::empty(), |e| e.put_value(2, 0, 0))?;
            team.barrier()
        }
        "lock-all" => {
            let w = LockWindow::<u64>::allocate(&team, 10)?;
            w.lock_all(Assert::empty(), |e| {
                for _ in 0..1000 {
                    e.fetch_and_op_blocking(Op::Sum, 1, VICTIM, 0)?;
                }
                die(me);
                team.barrier()
            })
        }
        // Over verbs this uses lists on both sides; the victim posts none in its third epoch.
        "layouts" => {
            let window = RawWindow::allocate(&team, 64 * 256, raw::Options::default())?;
            let vector = Datatype::hvector(64, 128, 256, &Named::Byte.into()).and_then(|v| v.message(1)).unwrap();
            let bytes = vec![me as u8; 64 * 256];
            for round in 0.. {
                window.fence(Assert::empty())?;
                // SAFETY: the bytes outlive the fences, or the window.
                unsafe { window.put_typed(bytes.as_ptr(), &vector, (me + 1) % 3, 0, &vector) }?;
                if round == 2 {
                    die(me);
                }
            }
            Ok(())
        }
        // Over verbs the targets apply the accumulates and reply with the previous values. The victim does so twice.
        "accumulates-fence" | "accumulates-start" => {
            let mut w = Window::<f64>::allocate(&team, 2000)?;
            let (ones, mut old) = (vec![1.0; 2000], vec![0.0; 2000]);
            for round in 0.. {
                let victim = if round == 2 { me } else { 0 };
                if phase == "accumulates-fence" {
                    w.fence(Assert::empty(), |e| {
                        e.get_accumulate(Op::Sum, &ones, &mut old, (me + 1) % 3, 0)?;
                        die(victim);
                        Ok(())
                    })?;
                } else {
                    w.expose(&others, Assert::empty(), |x| {
                        die(victim);
                        x.start(&others, Assert::empty(), |e| {
                            e.get_accumulate(Op::Sum, &ones, &mut old, (me + 1) % 3, 0)
                        })
                    })?;
                }
            }
            Ok(())
        }
        // The victim nearly always holds the element lock when it dies.
        "accumulates-lock" => {
            let len = if me == 0 { 1 << 17 } else { 0 };
            let (w, ones) = (LockWindow::<f64>::allocate(&team, len)?, vec![1.0; 1 << 17]);
            team.barrier()?;
            w.lock_all(Assert::empty(), |e| {
                if me == VICTIM {
                    std::thread::spawn(move || {
                        std::thread::sleep(std::time::Duration::from_millis(100));
                        die(me);
                    });
                }
                for _ in 0..if me == VICTIM { usize::MAX } else { 20 } {
                    e.accumulate(Op::Sum, if me == VICTIM { &ones } else { &ones[..2] }, 0, 0)?;
                    e.flush(0)?;
                }
                team.barrier()
            })
        }
        "user-window" => {
            let w = LockWindow::<u64>::from_vec(&team, vec![0; 100])?;
            w.lock_all(Assert::empty(), |e| {
                loop {
                    for target in 0..3 {
                        e.fetch_and_op_blocking(Op::Sum, 1, target, 0)?;
                    }
                    die(me);
                }
            })
        }
        "active-message" => {
            // More messages than the rings hold, to a rank that makes no progress.
            die(me);
            loop {
                am::send(&job, VICTIM as u32, HandlerId(1), &[], &[0; 10_000], Counters::default())?;
            }
        }
        "dynamic" => {
            let w = DynamicWindow::<u64>::new(&team)?;
            let mine = w.attach(vec![0; 10])?;
            let all = coll::allgather(&team, &mine.id.to_le_bytes())?;
            assert_eq!(all.len(), 3);
            die(me);
            loop {
                w.put(&[1], VICTIM, mine, 0)?;
            }
        }
        "global-array" => {
            let a = GlobalArray::<f64, 1>::new(&team, [300])?;
            loop {
                a.sync()?;
                die(me);
            }
        }
        // Items for the victim travel over the third rank too.
        "conveyor" => {
            let mut conveyor = Conveyor::<u64>::with(&team, Options { bytes: 10_000, hops: Some(2) })?;
            let mut pushed = 0;
            while conveyor.advance(me != VICTIM && pushed > 10_000)? {
                while pushed <= 10_000 && conveyor.push(pushed as usize % 3, pushed)? {
                    pushed += 1;
                }
                while conveyor.pull()?.is_some() {
                    die(me);
                }
            }
            Ok(())
        }
        "updates" => {
            let table = Symmetric::<u64>::allocate(&team, 10)?;
            let mut sums = table.aggregated(Op::Sum)?;
            for i in 0..30_000 {
                sums.add(i % 3, i % 10, 1)?;
            }
            die(me);
            sums.finish()
        }
        "map" => {
            let mut map = Map::<u64, String>::new(&team)?;
            map.extend((0..100).map(|key| (key, "value".to_owned())))?;
            die(me);
            loop {
                map.get_all(&[me as u64, 10, 20, 30])?;
                map.insert(me as u64, "other".to_owned())?;
            }
        }
        "map-inserts" => {
            let mut map = Map::<u64, u64>::new(&team)?;
            let mut inserts = map.inserts()?;
            for key in 0..10_000 {
                inserts.add(key, 1)?;
            }
            die(me);
            inserts.finish()
        }
        // The victim has items, unless others have taken all.
        "queue" => {
            let mut queue = Queue::<u64>::new(&team)?;
            for item in 0..100 {
                queue.push(item)?;
                if item == 50 {
                    die(me);
                }
            }
            while queue.next()?.is_some() {}
            Ok(())
        }
        "free" => {
            let w = Window::<u64>::allocate(&team, 10)?;
            die(me);
            w.free()
        }
        "finalize" => {
            die(me);
            job.finalize()
        }
        "stopped" => {
            stop(me);
            job.finalize()
        }
        "stopped-and-continued" => {
            stop(me);
            team.barrier()?;
            return job.finalize();
        }
        other => panic!("no phase {other}"),
    }?;
    unreachable!("a call that needs rank {VICTIM} returned without an error")
}

/// Not a test, but the program of the ranks.
#[test]
fn as_a_rank() {
    let Ok(phase) = std::env::var(PHASE) else { return };
    if let Err(e) = rank(&phase) {
        eprintln!("rank says: {e}");
        std::process::exit(3);
    }
}

/// A private folder for shared memory, so that files of other tests do not count as leaks.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = Path::new("/dev/shm").join(format!("killed-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn files(&self) -> Vec<PathBuf> {
        std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The command that runs this program as three ranks in `phase`.
fn job(phase: &str, set: &[(&str, &str)]) -> Marked {
    let mut job = Marked::run(3, &["--timeout", "60"]);
    job.command.args(itself!("as_a_rank"));
    job.command.env(PHASE, phase).envs(set.iter().copied());
    job
}

/// Exit code and output of such a job. Waits until all of its processes have ended.
fn run(phase: &str, set: &[(&str, &str)]) -> (Option<i32>, String) {
    let done = job(phase, set).finish();
    (done.code, done.err + &done.out)
}

#[test]
fn stopped_rank_is_waited_for_and_named() {
    if std::env::var(PHASE).is_ok() {
        return;
    }
    // The victim continues once another rank has reported it.
    let mut job = job("stopped-and-continued", &[("FARSIDE_LOG", "warn")]);
    let mut running = job.start();
    let text = running.await_errors(&[STOPS, "rank 1 is stopped"]);
    let number = text.split(STOPS).nth(1).and_then(|rest| rest.lines().next()).unwrap();
    signal(number.trim().parse().unwrap(), "CONT");
    let done = running.finish();
    assert_eq!(done.code, Some(0), "{text}{}", done.err);
    job.wait_until_gone();
    // If a time limit ends the wait, the error names the rank.
    let (code, text) = run("stopped", &[("FARSIDE_TIMEOUT_S", "5")]);
    assert_eq!(code, Some(3), "{text}");
    let said: Vec<&str> = text.lines().filter(|l| l.contains("rank says: ")).collect();
    let named = |l: &&str| l.contains("timed out") && l.contains("peer rank 1") && l.contains("is stopped");
    assert!(said.iter().any(named), "{text}");
}

#[test]
fn killed_in_every_phase_the_others_name_it_and_nothing_stays() {
    if std::env::var(PHASE).is_ok() {
        return;
    }
    let folder = Folder::new();
    // A quick run tests each phase with one way to wait.
    let quick = farside_harness::quick();
    for (i, wait) in ["auto", "park"].into_iter().enumerate() {
        for (_, phase) in PHASES.iter().enumerate().filter(|(p, _)| !quick || p % 2 == i) {
            let (code, text) = run(phase, &[("FARSIDE_WAIT", wait), ("FARSIDE_SHM_DIR", folder.0.to_str().unwrap())]);
            assert_eq!(code, Some(128 + 9), "{phase}, {wait}: {text}");
            // Both other ranks report the lost rank by name; before start-up the launcher informs them.
            let said: Vec<&str> = text.lines().filter(|l| l.contains("rank says: ")).collect();
            assert_eq!(said.len(), 2, "{phase}, {wait}: {text}");
            assert!(said.iter().all(|l| l.contains("is gone") && l.contains("rank 1")), "{phase}, {wait}: {text}");
            assert!(text.contains("killed by signal 9"), "{phase}, {wait}: {text}");
        }
    }
    assert_eq!(folder.files(), Vec::<PathBuf>::new());
}
