#![allow(unsafe_code)]
//! Tests of the values that the first jobs on a machine measure and store: cut-offs of messages, and choices of
//! collectives.

use std::fs;
use std::path::{Path, PathBuf};

use farside_core::Job;
use farside_core::coll::execute::{self, Arguments, Memory, Shape};
use farside_core::coll::operation::Operation;
use farside_harness::{Finished, Marked, itself};

/// The program of the tests.
#[test]
fn as_a_rank() {
    if std::env::var_os("FARSIDE_TEST_RANK").is_some() {
        Job::init().unwrap().finalize().unwrap();
    }
}

/// The program of the test of collectives: broadcasts of 1,500 bytes, more of them than a trial needs.
#[test]
fn as_a_rank_that_broadcasts() {
    if std::env::var_os("FARSIDE_TEST_RANK").is_some() {
        let job = Job::init().unwrap();
        let (world, mut data) = (job.world().unwrap(), vec![job.rank() as u8; 1500]);
        for _ in 0..400 {
            let (shape, output) = (Shape::Vector(1500), Memory::Contiguous(data.as_mut_ptr()));
            let arguments = Arguments { shape, element: 1, output, ..Arguments::new(Operation::Broadcast) };
            // SAFETY: the memory is that of the vector, and the call has ended when this returns.
            unsafe { execute::run(&world, &arguments) }.unwrap();
        }
        assert_eq!(data, [0; 1500]);
        drop(world);
        job.finalize().unwrap();
    }
}

/// The algorithm of these broadcasts without measurements.
const DEFAULT: &str = "binomial(1)";

fn run(folder: &Path) -> Finished {
    run_as(folder, &itself!("as_a_rank"))
}

fn run_as(folder: &Path, rank: &[String]) -> Finished {
    let mut job = Marked::run(2, rank);
    job.command.env("FARSIDE_TEST_RANK", "0").env("FARSIDE_LOG", "info").env("FARSIDE_CALIBRATION", folder);
    let done = job.finish();
    assert_eq!(done.code, Some(0), "{done:?}");
    done
}

/// The values that the ranks report, and the number of messages that have measured them. Both ranks report the same.
fn reported(done: &Finished) -> Option<(String, u32)> {
    let lines = done.err.lines().filter_map(|line| line.split_once("cut-offs eager:"));
    let values: Vec<_> = lines.filter_map(|(_, rest)| rest.split_once(", measured by ")).collect();
    let (first, rest) = values.split_first()?;
    assert_eq!(rest, [*first], "{done:?}");
    Some((first.0.to_owned(), first.1.split(' ').next()?.parse().unwrap()))
}

/// The files that have cut-offs.
fn files(folder: &Path) -> Vec<PathBuf> {
    files_of(folder, "cut-offs")
}

/// The files of measured quantities in a folder that have one of this name.
fn files_of(folder: &Path, name: &str) -> Vec<PathBuf> {
    let has = |path: &PathBuf| fs::read_to_string(path).unwrap().contains(&format!("\n[{name}] load "));
    measured_files(folder).into_iter().filter(has).collect()
}

fn measured_files(folder: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    let is_whole = |path: &PathBuf| path.extension().is_none();
    all.filter(|path| is_whole(path) && path.file_name().unwrap().to_str().unwrap().starts_with("measured-")).collect()
}

/// Starts jobs until one has not been disturbed. A disturbed job uses its measurements, but does not store them.
fn calibrated(folder: &Path) -> Option<(String, PathBuf)> {
    for _ in 0..20 {
        let done = run(folder);
        let (reported, files) = (reported(&done), files(folder));
        assert!(reported.as_ref().is_none_or(|(_, messages)| *messages > 0), "{done:?}");
        if let (Some((values, _)), [file]) = (&reported, &files[..]) {
            return Some((values.clone(), file.clone()));
        }
        let is_said = done.err.contains("the processors were loaded") || done.err.contains("cannot be measured while");
        assert!(is_said && files.is_empty(), "{files:?}, {done:?}");
    }
    farside_harness::skip("calibration", "other programs disturb the measurement, or there is one processor");
    None
}

#[test]
fn second_job_measures_nothing_and_a_damaged_file_is_measured_again() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("cache");
    let Some((values, file)) = calibrated(&folder) else { return };
    assert_eq!(reported(&run(&folder)), Some((values, 0)));
    let good = fs::read(&file).unwrap();
    fs::write(&file, &good[..good.len() - 2]).unwrap();
    let again = reported(&run(&folder));
    assert!(again.is_none_or(|(_, messages)| messages > 0));
    assert_eq!(measured_files(&folder), [file]);
}

#[test]
fn jobs_that_start_at_once_leave_one_whole_file() {
    let dir = tempfile::tempdir().unwrap();
    std::thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| run(dir.path()));
        }
    });
    let Some((values, file)) = calibrated_or_read(dir.path()) else { return };
    assert_eq!(files(dir.path()), [file]);
    assert_eq!(reported(&run(dir.path())), Some((values, 0)));
}

/// The values of the existing file, or of a new one.
fn calibrated_or_read(folder: &Path) -> Option<(String, PathBuf)> {
    match files(folder).first() {
        Some(file) => Some((reported(&run(folder)).expect("the file is whole").0, file.clone())),
        None => calibrated(folder),
    }
}

#[test]
fn choices_of_collectives_are_measured_once_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let measured = |done: &Finished| done.err.matches("measured: broadcast 2 1024-2047 ").count();
    let keeps = || {
        let first = run_as(dir.path(), &itself!("as_a_rank_that_broadcasts"));
        // Both ranks report the same.
        let is_loaded = first.err.matches("not measured: broadcast 2 1024-2047 ").count() == 2;
        assert_eq!(first.err.matches(": broadcast 2 1024-2047 ").count(), 2, "{first:?}");
        assert_eq!(files_of(dir.path(), "collectives shm").is_empty(), is_loaded, "{first:?}");
        !is_loaded
    };
    if !(0..20).any(|_| keeps()) {
        return farside_harness::skip("choices of collectives", "other programs load the processors");
    }
    let files = files_of(dir.path(), "collectives shm");
    let kept = fs::read_to_string(&files[0]).unwrap();
    assert!(files.len() == 1 && kept.contains("\nbroadcast 2 1024-2047 "), "{kept}");
    let rules = |text: &str| text.lines().filter(|line| line.starts_with("broadcast ")).collect::<String>();
    // The default is not measured again; another choice is checked.
    let second = run_as(dir.path(), &itself!("as_a_rank_that_broadcasts"));
    if kept.contains(&format!("\nbroadcast 2 1024-2047 one-node {DEFAULT}\n")) {
        assert_eq!(measured(&second), 0, "{second:?}");
        assert_eq!(rules(&fs::read_to_string(&files[0]).unwrap()), rules(&kept));
    } else {
        assert_eq!(measured(&second), 2, "{second:?}");
    }
    // A damaged file counts as absent.
    fs::write(&files[0], &kept[..kept.len() - 3]).unwrap();
    assert_eq!(measured(&run_as(dir.path(), &itself!("as_a_rank_that_broadcasts"))), 2, "measured again");
}

#[test]
fn folder_that_others_may_write_is_refused_with_one_line() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let done = run(dir.path());
    assert_eq!(done.err.matches("other users may write the file").count(), 1, "{done:?}");
    assert_eq!((reported(&done), fs::read_dir(dir.path()).unwrap().count()), (None, 0));
}

#[test]
fn folder_that_cannot_be_written_is_no_error() {
    assert_eq!(reported(&run(Path::new("/proc/no-such-folder"))), None);
}
