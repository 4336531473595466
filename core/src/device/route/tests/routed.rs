#![allow(unsafe_code)]
//! Jobs over two tcp devices on one host, between which a routing table chooses.

use crate::coll;
use crate::device::routing::host_name;
use crate::device::{Block, Operation, Place, Region};
use crate::error::{ErrorKind, Result};
use crate::job::Job;
use crate::settings::Settings;
use crate::stats::Kind;

/// A length in each size range.
const LENGTHS: [usize; 3] = [100, 50_000, 600_000];

fn settings(routes: &str) -> Settings {
    let settings = Settings::from_lookup(|name| match name {
        "FARSIDE_DEVICES" => Some("tcp:127.0.0.1,tcp:127.0.0.2".to_owned()),
        "FARSIDE_ROUTES" => Some(routes.to_owned()),
        _ => None,
    });
    settings.unwrap()
}

/// Number of bytes that a rank has written, by device; each device has counters of the rank and of its agent.
fn writes(job: &Job) -> Vec<u64> {
    let mut all = Vec::new();
    job.device().stats(&mut |_, stats| all.push(stats.snapshot().bytes(Kind::Write)));
    all.chunks(2).map(|of_device| of_device.iter().sum()).collect()
}

/// Writes data of each length to the other rank, which checks it; returns the number of bytes per device.
fn rank(job: &Job) -> Result<Vec<Vec<u64>>> {
    let world = job.world()?;
    let other = 1 - world.rank();
    let own = job.device().allocate(Region::allocated(LENGTHS[2]));
    // SAFETY: a registration of this job, which no test uses after a failure.
    let (own, remotes) = unsafe { coll::exchange_regions(&world, own, None) }?;
    let mut counts = Vec::new();
    for (round, len) in (1u8..).zip(LENGTHS) {
        let (bytes, before) = (vec![round; len], writes(job));
        let from = [Block::of(bytes.as_ptr(), len)];
        let to = Place { region: remotes[other].handle, offset: 0 };
        // SAFETY: the bytes outlive the call.
        unsafe { job.complete("write", other as u32, Operation::write(&from, to)) }?;
        counts.push(writes(job).iter().zip(&before).map(|(now, before)| now - before).collect());
        world.barrier()?;
        // SAFETY: this rank's own memory, which does not change before the next barrier.
        let got = unsafe { std::slice::from_raw_parts(own.base, len) };
        assert!(got.iter().all(|byte| *byte == round), "{len} bytes");
        world.barrier()?;
    }
    for remote in &remotes {
        // SAFETY: no operation uses it any longer.
        unsafe { job.device().forget(remote.handle) };
    }
    world.barrier()?;
    // SAFETY: the other rank has forgotten it.
    unsafe { job.device().release(own.handle) }?;
    Ok(counts)
}

#[test]
fn job_uses_the_devices_that_its_table_names() {
    let folder = tempfile::tempdir().unwrap();
    let table = |name: &str, devices: [&str; 3]| {
        let (file, host) = (folder.path().join(name), host_name());
        let row = format!("[[routes]]\nfrom = {host:?}\nto = {host:?}\nnext = [{host:?}, {host:?}, {host:?}]");
        std::fs::write(&file, format!("version = 1\nnodes = [{host:?}]\n{row}\ndevice = {devices:?}\n")).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let [small, medium, large] = LENGTHS.map(|len| len as u64);
    let (first, second) = ("tcp:127.0.0.1", "tcp:127.0.0.2");
    let split = table("split", [first, second, second]);
    for counts in Job::threads_with(2, &settings(&split), rank).unwrap() {
        assert_eq!(counts, [[small, 0], [0, medium], [0, large]]);
    }
    // Packets, too, use the device of small messages.
    for counts in Job::threads_with(2, &settings(&table("second", [second, first, first])), rank).unwrap() {
        assert_eq!(counts, [[0, small], [medium, 0], [large, 0]]);
    }
    // The order of the list decides, with both devices as rails, if there is no table, if the table names a kind, and
    // if it names a device that does not exist.
    for routes in ["none", &table("kind", ["tcp"; 3]), &table("other", ["verbs", "tcp:v0", "sim"])] {
        for counts in Job::threads_with(2, &settings(routes), rank).unwrap() {
            assert_eq!(counts[..2], [[small, 0], [medium, 0]], "{routes}");
            assert!(counts[2].iter().all(|bytes| *bytes > 0) && counts[2].iter().sum::<u64>() == large, "{counts:?}");
        }
    }
}

#[test]
fn ranks_with_different_tables_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let tables = ["x", "y"].map(|node| {
        let file = folder.path().join(node);
        std::fs::write(&file, format!("version = 1\nnodes = [\"{node}\"]\n")).unwrap();
        settings(file.to_str().unwrap())
    });
    let errors: Vec<_> = std::thread::scope(|scope| {
        let start = |(bootstrap, settings): (_, &Settings)| {
            let settings = settings.clone();
            scope.spawn(move || Job::start(Box::new(bootstrap), settings).unwrap_err())
        };
        let ranks: Vec<_> = crate::bootstrap::threads(2).into_iter().zip(&tables).map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    for (rank, e) in errors.iter().enumerate() {
        assert_eq!((e.kind(), e.blamed()), (ErrorKind::Mismatch, Some(1 - rank)), "{e}");
        assert!(e.to_string().contains("FARSIDE_ROUTES"), "{e}");
    }
}
