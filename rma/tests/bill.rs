#![allow(unsafe_code)]
//! The synchronization bill: one rank is late, and the bill charges the waits of all other ranks to that rank, in each
//! kind of call; calls and messages are counted. A rank that waits for a long time reports once the rank for which it
//! waits.

use std::time::Duration;

use crate::checks::config::{Config, MAPPED, POSTED, TABLE};
use farside_harness::Marked;
use farside_harness::itself;
use farside_rma::Job;
use farside_rma::prelude::*;
use farside_rma::raw::{Options, RawWindow};
use serde_json::Value;

/// The delay of the late rank.
const DELAY: Duration = Duration::from_millis(200);

/// The bill of a job with `ranks` ranks.
fn bill(config: &Config, ranks: usize, f: impl Fn(&Team) -> Result<()> + Sync) -> Value {
    let file = tempfile::NamedTempFile::new().unwrap();
    let settings = config.settings(&[("FARSIDE_BILL", file.path().to_str().unwrap())]);
    let main = |job: &Job| {
        f(&job.world()?)?;
        job.finalize()
    };
    match config.device {
        None => Job::threads_with(ranks, &settings, main).map(drop).unwrap(),
        Some(_) => unreachable!("threads over shared memory"),
    }
    serde_json::from_slice(&std::fs::read(file.path()).unwrap()).unwrap()
}

/// The line of the last window, or of the world team.
fn line<'a>(bill: &'a Value, what: &str) -> &'a Value {
    let lines = bill["bill"].as_array().unwrap();
    lines.iter().rev().find(|line| line["account"].as_str().unwrap().starts_with(what)).unwrap()
}

/// The rank for which `rank` has waited longest in `operation`, and the time in seconds.
fn longest(line: &Value, rank: u32, operation: &str) -> Option<(u64, f64)> {
    let waits = line["waits"].as_array().unwrap().iter();
    waits
        .filter(|w| w["rank"] == rank && w["operation"] == operation)
        .map(|w| (w["waited_for"].as_u64().unwrap_or(u64::MAX), w["seconds"].as_f64().unwrap()))
        .max_by(|a, b| a.1.total_cmp(&b.1))
}

/// Checks that all `waiters` have waited for `late` according to the bill.
fn blamed(bill: &Value, what: &str, operation: &str, waiters: &[u32], late: u64) {
    let line = line(bill, what);
    for rank in waiters {
        let found = longest(line, *rank, operation).unwrap_or_else(|| panic!("rank {rank} {operation}: {line:#}"));
        assert_eq!(found.0, late, "rank {rank}, {operation}: {line:#}");
        // A rank cannot have waited longer than the late rank slept, except for the noise of the machine.
        assert!(found.1 > DELAY.as_secs_f64() / 2.0, "rank {rank}, {operation}: {line:#}");
    }
}

fn sleep_at(team: &Team, late: usize) -> Result<()> {
    team.barrier()?;
    if team.rank() == late {
        std::thread::sleep(DELAY);
    }
    Ok(())
}

fn everywhere(f: impl Fn(&Config)) {
    [MAPPED, POSTED].iter().for_each(f);
    assert!(TABLE.len() > 2);
}

#[test]
fn late_rank_of_a_fence_is_named_by_all() {
    everywhere(|config| {
        for late in [0, 2] {
            let bill = bill(config, 4, |team| {
                let window = RawWindow::allocate(team, 64, Options::default())?;
                window.fence(Assert::empty())?;
                sleep_at(team, late)?;
                let value = [7u64];
                // SAFETY: the value lives until the fence has closed the epoch.
                unsafe { window.put(value.as_ptr().cast(), 8, (team.rank() + 1) % 4, 0) }?;
                window.fence(Assert::empty())?;
                window.free()
            });
            let waiters: Vec<u32> = (0..4).filter(|rank| *rank != late as u32).collect();
            blamed(&bill, "window 1", "fence", &waiters, late as u64);
            let line = line(&bill, "window 1");
            assert_eq!(line["calls"]["fence"], 8);
            assert_eq!(
                (&line["operations"]["write"]["count"], &line["operations"]["write"]["bytes"]),
                (&4.into(), &32.into())
            );
            assert_eq!(line["ranks"], serde_json::json!([0, 1, 2, 3]));
        }
    });
}

#[test]
fn late_rank_of_post_start_complete_wait_is_named_by_its_partners() {
    everywhere(|config| {
        let bill = bill(config, 3, |team| {
            let window = RawWindow::allocate(team, 64, Options::default())?;
            sleep_at(team, 1)?;
            // The origin waits for the post of rank 1; rank 2 waits for rank 1 to complete.
            if team.rank() == 1 {
                window.post(&[0], Assert::empty())?;
                window.wait()?;
                window.start(&[2], Assert::empty())?;
                window.complete()?;
            } else if team.rank() == 0 {
                let value = [7u64];
                window.start(&[1], Assert::empty())?;
                // SAFETY: the value lives until the epoch is closed.
                unsafe { window.put(value.as_ptr().cast(), 8, 1, 0) }?;
                window.complete()?;
            } else {
                window.post(&[1], Assert::empty())?;
                window.wait()?;
            }
            window.free()
        });
        blamed(&bill, "window 1", "complete", &[0], 1);
        blamed(&bill, "window 1", "wait", &[2], 1);
    });
}

#[test]
fn holder_of_a_lock_is_named_by_who_waits_for_it() {
    let bill = bill(&MAPPED, 2, |team| {
        let window = RawWindow::allocate(team, 64, Options::default())?;
        let value = [7u64];
        if team.rank() == 1 {
            window.lock(LockKind::Exclusive, 0, Assert::empty())?;
        }
        team.barrier()?;
        if team.rank() == 1 {
            std::thread::sleep(DELAY);
        } else {
            window.lock(LockKind::Exclusive, 0, Assert::empty())?;
        }
        // SAFETY: the value lives until the epoch is closed.
        unsafe { window.put(value.as_ptr().cast(), 8, 0, 0) }?;
        window.unlock(0)?;
        team.barrier()?;
        window.free()
    });
    blamed(&bill, "window 1", "lock", &[0], 1);
    assert_eq!(line(&bill, "window 1")["calls"], serde_json::json!({"lock": 2, "unlock": 2}));
}

#[test]
fn late_rank_of_collectives_and_messages_is_named() {
    everywhere(|config| {
        let bill = bill(config, 4, |team| {
            sleep_at(team, 2)?;
            let mut sum = vec![team.rank() as u64; 1000];
            team.allreduce(&mut sum, Op::Sum)?;
            assert_eq!(sum[0], 6);
            sleep_at(team, 2)?;
            let mut short = [1u64];
            team.allreduce(&mut short, Op::Sum)?;
            sleep_at(team, 3)?;
            if team.rank() == 3 {
                team.send(&[1u64], 1, 5)?;
            } else if team.rank() == 1 {
                team.recv(&mut [0u64], 3, 5)?;
            }
            team.barrier()
        });
        blamed(&bill, "team 0", "allreduce", &[0, 1, 3], 2);
        blamed(&bill, "team 0", "receive", &[1], 3);
        let line = line(&bill, "team 0");
        assert_eq!(line["calls"]["allreduce"], 8);
        assert_eq!((&line["calls"]["send"], &line["calls"]["receive"]), (&1.into(), &1.into()));
    });
}

#[test]
fn rank_that_waits_for_long_says_once_for_whom() {
    if std::env::var_os("FARSIDE_TEST_MARK").is_none() {
        let mut job = Marked::run(2, &itself!("rank_that_waits_for_long_says_once_for_whom"));
        job.command.env("FARSIDE_STALL_S", "1");
        let finished = job.finish();
        let said: Vec<&str> = finished.err.lines().filter(|line| line.contains("has waited for")).collect();
        assert_eq!(said.len(), 1, "{}", finished.err);
        assert!(
            said[0].contains("rank 0: receive of team 0 has waited for 1.") && said[0].ends_with("for rank 1"),
            "{said:?}"
        );
        return;
    }
    let job = Job::init().unwrap();
    let team = job.world().unwrap();
    if team.rank() == 1 {
        std::thread::sleep(Duration::from_millis(2500));
        team.send(&[1u8], 0, 1).unwrap();
    } else {
        team.recv(&mut [0u8], 1, 1).unwrap();
    }
    job.finalize().unwrap();
}

#[test]
fn page_shows_who_waited_for_whom() {
    let file = tempfile::Builder::new().suffix(".html").tempfile().unwrap();
    let settings = MAPPED.settings(&[("FARSIDE_BILL", file.path().to_str().unwrap())]);
    let main = |job: &Job| {
        let team = job.world()?;
        let window = RawWindow::allocate(&team, 64, Options::default())?;
        if let Some((bill, account)) = job.bill().zip(window.account()) {
            bill.name(account, "<halo> & more");
        }
        window.fence(Assert::empty())?;
        sleep_at(&team, 2)?;
        window.fence(Assert::NOSUCCEED)?;
        window.free()?;
        job.finalize()
    };
    Job::threads_with(3, &settings, main).map(drop).unwrap();
    let page = std::fs::read_to_string(file.path()).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("The bill of 3 ranks"), "{page}");
    let section = page.split("<h2>").find(|section| section.starts_with("window 1 of team 0")).unwrap();
    assert!(
        section.contains("&lt;halo&gt; &amp; more") && section.contains("<td>fence</td><td class=\"n\">6</td>"),
        "{section}"
    );
    // Both other ranks have waited for rank 2.
    let titles: Vec<&str> = section.split("<title>").skip(1).map(|s| s.split("</title>").next().unwrap()).collect();
    for rank in [0, 1] {
        let late =
            titles.iter().find(|title| title.starts_with(&format!("{rank} waited ")) && title.contains(" for 2 "));
        assert!(late.is_some_and(|title| title.contains(" ms for 2 ")), "{titles:?}");
    }
}
