#![allow(unsafe_code)]
//! A rank that is killed inside each operation, blocking, started and persistent: the others get a `PeerLost` that
//! names it, before the launcher kills them, and no shared memory is left behind.
//!
//! The ranks are this test program again, started by `farside run` with operation and form in the environment.

use std::path::PathBuf;
use std::time::Duration;

use farside_core::coll::execute::{CallMode, Prepared};
use farside_core::coll::operation::Operation;
use farside_core::{Job, Result};
use farside_harness::{Marked, itself, signal};

use super::model::{Case, Made};

const CASE: &str = "FARSIDE_TEST_CASE";
const RANKS: u32 = 3;
const VICTIM: usize = 1;

/// The form of the call in which the victim dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Killed at any moment during a series of calls.
    Blocking,
    /// Killed between start and wait; the others test.
    Started,
    /// Killed between the start of the third round and its wait.
    Persistent,
}

const FORMS: [Form; 3] = [Form::Blocking, Form::Started, Form::Persistent];

fn die() -> ! {
    signal(std::process::id(), "KILL");
    panic!("still alive");
}

/// Calls the operation until it fails. Short vectors are sent with their header, long ones by rendezvous.
fn rank(operation: Operation, form: Form) -> Result<()> {
    let job = Job::init()?;
    let team = job.world()?;
    let is_victim = team.rank() == VICTIM;
    let elements = if operation as usize % 2 == form as usize % 2 { 3 } else { 50_000 };
    let mut made = Made::new(&team, Case { elements, ..Case::new(operation) });
    if form == Form::Blocking && is_victim {
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            die()
        });
    }
    let persistent = (form == Form::Persistent)
        .then(|| made.with(&[], |arguments| Prepared::new(&team, arguments, CallMode::Persistent)))
        .transpose()?;
    for round in 0.. {
        let started;
        let call = match &persistent {
            Some(call) => {
                // SAFETY: the buffers outlive the call.
                unsafe { call.start() }?;
                call
            }
            None if form == Form::Blocking => {
                made.run(&team, &[])?;
                continue;
            }
            None => {
                started = made.start(&team, &[])?;
                &started
            }
        };
        if form != Form::Blocking && is_victim && round == 2 {
            die();
        }
        match form {
            Form::Started => while !call.test()? {},
            _ => call.wait()?,
        }
    }
    Ok(())
}

/// This is not a test of its own, but the program of the ranks.
#[test]
fn as_a_rank() {
    let Ok(case) = std::env::var(CASE) else { return };
    let case: usize = case.parse().unwrap();
    if let Err(e) = rank(Operation::ALL[case / FORMS.len()], FORMS[case % FORMS.len()]) {
        eprintln!("rank says: {e}");
        std::process::exit(3);
    }
}

#[test]
fn killed_in_every_operation_the_others_name_it_and_nothing_stays() {
    if std::env::var(CASE).is_ok() {
        return;
    }
    // A separate folder for shared memory, so that files of other processes do not count as left behind.
    let folder = tempfile::Builder::new().prefix("killed-").tempdir_in("/dev/shm").unwrap();
    for (number, (operation, form)) in Operation::ALL.into_iter().flat_map(|o| FORMS.map(|f| (o, f))).enumerate() {
        // A quick run tests each operation in one form; over verbs, every fourth operation.
        let place = operation as usize;
        if farside_harness::quick()
            && (place % FORMS.len() != form as usize || super::verbs() && !place.is_multiple_of(4))
        {
            continue;
        }
        let mut job = Marked::run(RANKS, &["--timeout", "60"]);
        job.command.args(itself!("as_a_rank"));
        job.command.env(CASE, number.to_string()).env("FARSIDE_SHM_DIR", folder.path());
        let done = job.finish();
        let text = done.err + &done.out;
        let case = format!("{}, {form:?}", operation.name());
        assert_eq!(done.code, Some(128 + 9), "{case}: {text}");
        assert!(text.contains("killed by signal 9"), "{case}: {text}");
        // Both other ranks report the error themselves, and name the victim.
        let said: Vec<&str> = text.lines().filter(|l| l.contains("rank says: ")).collect();
        assert_eq!(said.len(), 2, "{case}: {text}");
        assert!(said.iter().all(|l| l.contains("is gone") && l.contains("rank 1")), "{case}: {text}");
        assert!(said.iter().any(|l| l.contains(operation.name())), "{case}: {text}");
    }
    let left: Vec<PathBuf> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, Vec::<PathBuf>::new());
}
