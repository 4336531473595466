#![allow(unsafe_code)]
//! The timeline (`FARSIDE_TRACE`): one rank is late, and arrows lead from its activity to the end of the waits of other
//! ranks, in each kind of call; slices are nested; the memory is bounded.

use std::time::Duration;

use crate::checks::config::{Config, MAPPED, POSTED};
use farside_harness::{Marked, itself};
use farside_rma::Job;
use farside_rma::calls::{Caller, Calls};
use farside_rma::prelude::*;
use farside_rma::raw::{Options, RawWindow};
use serde_json::Value;

/// The delay of the late rank.
const DELAY: Duration = Duration::from_millis(50);

/// The timeline of a job.
struct Timeline(Value);

/// A slice: rank, name, begin and end in microseconds.
#[derive(Clone, Debug)]
struct Slice {
    rank: u64,
    name: String,
    begin: f64,
    end: f64,
}

/// An arrow: the ranks at its start and end, and the times.
#[derive(Clone, Debug)]
struct Arrow {
    name: String,
    from: (u64, f64),
    to: (u64, f64),
}

impl Timeline {
    /// Runs `f` as ranks with a trace.
    fn of(config: &Config, ranks: usize, f: impl Fn(&Team) -> Result<()> + Sync) -> Self {
        let file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
        let settings = config.settings(&[("FARSIDE_TRACE", file.path().to_str().unwrap())]);
        let main = |job: &Job| {
            f(&job.world()?)?;
            job.finalize()
        };
        Job::threads_with(ranks, &settings, main).map(drop).unwrap();
        let timeline = Self(serde_json::from_slice(&std::fs::read(file.path()).unwrap()).unwrap());
        timeline.check_nesting();
        timeline
    }

    fn events(&self, phase: &'static str) -> impl Iterator<Item = &Value> {
        self.0["traceEvents"].as_array().unwrap().iter().filter(move |event| event["ph"] == phase)
    }

    fn slices(&self) -> Vec<Slice> {
        let slice = |event: &Value| {
            let (begin, dur) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
            assert!(begin >= 0.0 && dur >= 0.0, "{event}");
            let name = event["name"].as_str().unwrap().to_owned();
            Slice { rank: event["pid"].as_u64().unwrap(), name, begin, end: begin + dur }
        };
        self.events("X").map(slice).collect()
    }

    /// Slices of one rank are disjoint or nested.
    fn check_nesting(&self) {
        let mut slices = self.slices();
        // Times in nanoseconds are exact to a fraction of a nanosecond.
        let ns = |us: f64| (us * 1e3).round() as u64;
        slices.sort_by_key(|s| (s.rank, ns(s.begin), std::cmp::Reverse(ns(s.end))));
        let mut open: Vec<Slice> = Vec::new();
        for slice in slices {
            open.retain(|outer| outer.rank == slice.rank && ns(outer.end) > ns(slice.begin));
            if let Some(outer) = open.iter().find(|outer| ns(outer.end) < ns(slice.end)) {
                panic!("{outer:?} overlaps {slice:?}");
            }
            open.push(slice);
        }
    }

    fn arrows(&self) -> Vec<Arrow> {
        let end = |event: &Value| (event["pid"].as_u64().unwrap(), event["ts"].as_f64().unwrap());
        let ends: Vec<&Value> = self.events("f").collect();
        // A viewer reverses arrows that lead to a slice which begins earlier than the slice at their start.
        let starts: Vec<(u64, f64)> = self.slices().iter().map(|s| (s.rank, s.begin)).collect();
        for e in &ends {
            let at = (e["pid"].as_u64().unwrap(), e["ts"].as_f64().unwrap());
            assert!(starts.contains(&at), "no slice begins where {e} ends");
        }
        let arrow = |begin: &Value| {
            let to = ends.iter().find(|e| e["id"] == begin["id"]).unwrap_or_else(|| panic!("{begin} has no end"));
            Arrow { name: begin["name"].as_str().unwrap().to_owned(), from: end(begin), to: end(to) }
        };
        self.events("s").map(arrow).collect()
    }

    /// Checks that `rank` has waited for `late` in a slice whose name begins with `name`, for at least half of the
    /// delay, and that an arrow comes from the activity of `late` meanwhile.
    fn blames(&self, rank: u64, name: &str, late: u64) {
        let long = |s: &Slice| s.end - s.begin > DELAY.as_secs_f64() * 0.5e6;
        let waits = self.slices().into_iter().filter(|s| s.rank == rank && s.name.starts_with(name) && long(s));
        let waits: Vec<Slice> = waits.collect();
        let arrows: Vec<Arrow> = self.arrows().into_iter().filter(|a| (a.from.0, a.to.0) == (late, rank)).collect();
        let comes = |wait: &Slice| {
            let inside = |at: f64| at > wait.begin && at <= wait.end + 1.0;
            arrows.iter().any(|a| inside(a.from.1) && inside(a.to.1) && a.from.1 <= a.to.1)
        };
        assert!(waits.iter().any(comes), "{waits:?}: {arrows:?}");
    }
}

fn sleep_at(team: &Team, late: usize) -> Result<()> {
    team.barrier()?;
    if team.rank() == late {
        std::thread::sleep(DELAY);
    }
    Ok(())
}

#[test]
fn arrows_of_epochs_come_from_the_late_rank() {
    for config in [MAPPED, POSTED] {
        let timeline = Timeline::of(&config, 2, |team| {
            let window = RawWindow::allocate(team, 64, Options::default())?;
            window.fence(Assert::empty())?;
            sleep_at(team, 1)?;
            window.fence(Assert::NOSUCCEED)?;
            sleep_at(team, 1)?;
            if team.rank() == 1 {
                window.post(&[0], Assert::empty())?;
                window.wait()?;
            } else {
                let value = [7u64];
                window.start(&[1], Assert::empty())?;
                // SAFETY: the value lives until the epoch is closed.
                unsafe { window.put(value.as_ptr().cast(), 8, 1, 0) }?;
                window.complete()?;
            }
            sleep_at(team, 1)?;
            if team.rank() == 1 {
                window.start(&[0], Assert::empty())?;
                window.complete()?;
            } else {
                window.post(&[1], Assert::empty())?;
                window.wait()?;
            }
            window.free()
        });
        timeline.blames(0, "fence: waits for 1", 1);
        timeline.blames(0, "complete: waits for 1", 1);
        timeline.blames(0, "wait: waits for 1", 1);
        let opened: Vec<&str> = timeline.events("b").map(|e| e["name"].as_str().unwrap()).collect();
        let closed = timeline.events("e").count();
        assert_eq!(opened.len(), closed);
        for epoch in ["fence epoch", "access epoch", "exposure epoch"] {
            let named = opened.iter().filter(|name| name.starts_with(epoch)).count();
            assert_eq!(named, 2, "{epoch}: {opened:?}");
        }
    }
}

#[test]
fn arrows_of_messages_and_collectives_come_from_the_late_rank() {
    for config in [MAPPED, POSTED] {
        let timeline = Timeline::of(&config, 3, |team| {
            sleep_at(team, 2)?;
            let mut sum = vec![1u64; 1000];
            team.allreduce(&mut sum, Op::Sum)?;
            sleep_at(team, 2)?;
            // The messages are short, have several packets, and are too long to be sent immediately; the second tag
            // overtakes the first.
            for (tag, len) in [(5, 1), (6, 2000), (5, 200_000)] {
                match team.rank() {
                    2 => drop(team.send(&vec![1u64; len], 0, tag)?),
                    0 => drop(team.recv(&mut vec![0u64; len], 2, tag)?),
                    _ => {}
                }
            }
            Ok(())
        });
        timeline.blames(0, "allreduce: waits for 2", 2);
        timeline.blames(0, "receive: waits for 2", 2);
        let messages: Vec<Arrow> = timeline.arrows().into_iter().filter(|a| a.name == "message").collect();
        assert_eq!(messages.len(), 3, "{messages:?}");
        assert!(messages.iter().all(|a| (a.from.0, a.to.0) == (2, 0) && a.from.1 <= a.to.1), "{messages:?}");
        let sent: Vec<f64> = messages.iter().map(|a| a.from.1).collect();
        assert!(sent[0] != sent[1] && sent[1] != sent[2] && sent[0] != sent[2], "{messages:?}");
    }
}

#[test]
fn arrow_of_a_flag_comes_from_who_set_it_and_of_a_call_from_its_caller() {
    fn answer(caller: &Caller<'_>, x: u64) -> u64 {
        // A call inside a function: its slice is nested in that of the function.
        if x > 40 { caller.calls().call(0, answer, x - 40).wait().unwrap() } else { x + 1 }
    }
    for config in [MAPPED, POSTED] {
        let timeline = Timeline::of(&config, 3, |team| {
            let (array, flags) = (Symmetric::<u64>::allocate(team, 4)?, Flags::allocate(team, 2)?);
            let calls = Calls::new(team)?;
            calls.register(answer)?;
            sleep_at(team, 1)?;
            match team.rank() {
                1 => array.put_notify(&[1, 2, 3, 4], 2, 0, &flags, 0, 1)?,
                2 => drop(flags.wait_until(0, ge(1))?),
                _ => {}
            }
            sleep_at(team, 0)?;
            match team.rank() {
                0 => flags.add(2, 1, 1)?,
                2 => drop(flags.wait_until(1, ge(1))?),
                _ => {}
            }
            team.barrier()?;
            if team.rank() == 2 {
                assert_eq!(calls.call(1, answer, 44).wait()?, 5);
                calls.cast(0, answer, 4)?;
            }
            calls.quiesce()?;
            calls.free()?;
            flags.free()?;
            array.free()
        });
        timeline.blames(2, "wait for a flag", 1);
        timeline.blames(2, "wait for a flag", 0);
        let ran = timeline.slices().into_iter().filter(|s| s.name.ends_with("answer"));
        let mut ran: Vec<u64> = ran.map(|s| s.rank).collect();
        ran.sort_unstable();
        assert_eq!(ran, [0, 0, 1]);
        let calls: Vec<Arrow> = timeline.arrows().into_iter().filter(|a| a.name == "remote call").collect();
        let mut ends: Vec<_> = calls.iter().map(|a| (a.from.0, a.to.0)).collect();
        ends.sort_unstable();
        assert_eq!(ends, [(1, 0), (2, 0), (2, 1)], "{calls:?}");
    }
}

#[test]
fn lock_leads_from_who_held_it() {
    let timeline = Timeline::of(&MAPPED, 2, |team| {
        let window = RawWindow::allocate(team, 64, Options::default())?;
        if team.rank() == 1 {
            window.lock(LockKind::Exclusive, 0, Assert::empty())?;
        }
        sleep_at(team, 1)?;
        if team.rank() == 0 {
            window.lock(LockKind::Exclusive, 0, Assert::empty())?;
        }
        let value = [7u64];
        // SAFETY: the value lives until the epoch is closed.
        unsafe { window.put(value.as_ptr().cast(), 8, 0, 0) }?;
        window.unlock(0)?;
        team.barrier()?;
        window.free()
    });
    timeline.blames(0, "lock: waits for 1", 1);
    let epochs = timeline.events("b").filter(|e| e["name"].as_str().unwrap().starts_with("lock epoch")).count();
    assert_eq!(epochs, 2);
}

/// The last events are kept, and the number of dropped events is reported.
#[test]
fn memory_of_a_long_trace_is_bounded() {
    let timeline = Timeline::of(&MAPPED, 1, |team| {
        let window = RawWindow::allocate(team, 64, Options::default())?;
        for _ in 0..40_000 {
            window.lock(LockKind::Shared, 0, Assert::empty())?;
            window.unlock(0)?;
        }
        window.lock_all(Assert::empty())?;
        window.unlock_all()?;
        window.free()
    });
    assert!(timeline.slices().len() <= 1 << 16);
    let dropped = timeline.0["otherData"]["dropped events by rank"][0].as_u64().unwrap();
    assert!((14_000..20_000).contains(&dropped), "{dropped}");
    assert!(timeline.slices().iter().any(|s| s.name == "unlock_all"));
}

/// A file that cannot be opened is an error at the start.
#[test]
fn files_that_cannot_be_opened_end_the_job_at_its_start() {
    for setting in ["FARSIDE_BILL", "FARSIDE_TRACE"] {
        let settings = MAPPED.settings(&[(setting, "/dev/null/none.json")]);
        let started = Job::threads_with(3, &settings, |job| -> Result<()> { unreachable!("rank {}", job.rank()) });
        let text = started.unwrap_err().to_string();
        assert!(text.contains("rank 0") && text.contains(&format!("{setting}=/dev/null/none.json")), "{text}");
    }
}

/// A file that cannot be written is an error of rank 0 alone, at the end.
#[test]
fn files_that_cannot_be_written_are_an_error_of_rank_0_alone() {
    if std::env::var_os("FARSIDE_TEST_MARK").is_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("full.json");
        std::os::unix::fs::symlink("/dev/full", &file).unwrap();
        for setting in ["FARSIDE_BILL", "FARSIDE_TRACE"] {
            let mut job = Marked::run(3, &itself!("files_that_cannot_be_written_are_an_error_of_rank_0_alone"));
            job.command.env(setting, &file);
            let finished = job.finish();
            assert_eq!(finished.err.matches("refused: ").count(), 1, "{}", finished.err);
            assert!(!finished.err.contains("panicked") && !finished.out.contains("FAILED"), "{}", finished.err);
        }
        return;
    }
    let job = Job::init().unwrap();
    job.world().unwrap().barrier().unwrap();
    let rank = job.rank();
    match job.finalize() {
        Ok(()) => assert_ne!(rank, 0),
        Err(e) => {
            assert!(rank == 0 && e.to_string().contains("full.json"), "{e}");
            eprintln!("refused: {e}");
        }
    }
}
