//! Soak test: random operations over random windows, epochs and ranks; every element and every value read is compared
//! with a sequential model. The seed is printed. `FARSIDE_SOAK_SEED` sets the seed, `FARSIDE_SOAK_SECONDS` the duration
//! (default 5 s).

use std::io::{Read, Seek};
use std::time::{Duration, Instant};

use crate::checks::config::{self, Config, Memory, within};
use crate::checks::random::window;
use farside_rma::{Job, Result, Team};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

/// Maximum lengths of windows, in elements.
const LENS: [usize; 4] = [3, 60, 3000, 20_000];

/// Runs `windows` random windows, the same on all ranks. Returns the number of operations.
fn soak(team: &Team, config: &Config, seed: u64, windows: usize) -> Result<usize> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut count = 0;
    for _ in 0..windows {
        count += match rng.random_range(0..4) {
            0 => window::<u8>(team, config, &LENS, &mut rng)?,
            1 => window::<u16>(team, config, &LENS, &mut rng)?,
            2 => window::<u32>(team, config, &LENS, &mut rng)?,
            _ => window::<u64>(team, config, &LENS, &mut rng)?,
        };
    }
    Ok(count)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|v| v.parse().ok())
}

fn seed() -> u64 {
    number("FARSIDE_SOAK_SEED").unwrap_or_else(rand::random)
}

fn seconds() -> Duration {
    Duration::from_secs(number("FARSIDE_SOAK_SECONDS").unwrap_or(5))
}

#[test]
fn random_operations_equal_the_model_threads() {
    let first = seed();
    println!("FARSIDE_SOAK_SEED={first}");
    let since = Instant::now();
    let (mut runs, mut count) = (0u64, 0);
    while since.elapsed() < seconds() {
        let seed = first.wrapping_add(runs);
        let mut rng = StdRng::seed_from_u64(seed ^ 0x5eed);
        let config = *config::table().choose(&mut rng).unwrap();
        let n = rng.random_range(1..=6);
        let what = format!("FARSIDE_SOAK_SEED={seed}: {n} ranks, {}", config.name);
        let run = move || config.run(n, |team| soak(team, &config, seed, 3));
        let counts = within(120, &what, run).unwrap_or_else(|e| panic!("{what}: {e}"));
        count += counts[0];
        runs += 1;
    }
    println!("{runs} runs, {count} operations");
    assert!(count > 0);
}

/// Seeds that have found defects, with the number of ranks and the configuration: a read that overtook an atomic of the
/// same origin.
const FOUND: &[(u64, u32, &str)] = &[(12_205_192_591_964_388_723, 6, "simulated, vector, minimal")];

#[test]
fn seeds_that_have_found_defects_find_none() {
    if config::verbs() {
        return; // They are seeds of simulated networks.
    }
    for &(seed, ranks, name) in FOUND {
        let config = *config::table().iter().find(|config| config.name == name).unwrap();
        let run = move || config.run(ranks, |team| soak(team, &config, seed, 3));
        within(120, name, run).unwrap_or_else(|e| panic!("{name}, {seed}: {e}"));
    }
}

/// The same test with processes, if `farside run` has been built: this program starts itself as the ranks.
#[test]
fn random_operations_equal_the_model_processes() {
    if let Some(seed) = number("FARSIDE_SOAK_RANK") {
        let job = Job::init().unwrap();
        let memory = if number("FARSIDE_SOAK_VECTOR") == Some(1) { Memory::Vector } else { Memory::Allocated };
        let config = Config { name: "processes", memory, settings: &[], device: None, seed: None };
        // Each rank reads its own clock, so the number of windows is fixed instead of the duration.
        let windows = number("FARSIDE_SOAK_WINDOWS").unwrap_or(1) as usize;
        soak(&job.world().unwrap(), &config, seed, windows).unwrap();
        return job.finalize().unwrap();
    }
    // An emulated machine is slower.
    let (windows, limit) = if config::verbs() { ("2", 180) } else { ("8", 60) };
    let first = seed();
    println!("FARSIDE_SOAK_SEED={first}");
    let since = Instant::now();
    let mut runs = 0u64;
    while since.elapsed() < seconds() {
        let seed = first.wrapping_add(runs);
        let (user_memory, vector) = [("auto", 0), ("remap", 1), ("vm", 1), ("ring", 1)][runs as usize % 4];
        let n = 1 + (seed % 5);
        let what = format!("FARSIDE_SOAK_SEED={seed}, {n} ranks, {user_memory}, vector {vector}");
        let mut log = tempfile::tempfile().unwrap();
        let mut job = std::process::Command::new(farside_harness::farside())
            .args(["run", "-n", &n.to_string()])
            .args(farside_harness::itself!("random_operations_equal_the_model_processes"))
            .env("FARSIDE_SOAK_RANK", seed.to_string())
            .env("FARSIDE_SOAK_WINDOWS", windows)
            .env("FARSIDE_SOAK_VECTOR", vector.to_string())
            .env("FARSIDE_SHM_USER_MEMORY", user_memory)
            .env("FARSIDE_TEST_FAULT", if runs % 8 == 4 { "unmapped" } else { "none" })
            .stdout(log.try_clone().unwrap())
            .stderr(log.try_clone().unwrap())
            .spawn()
            .unwrap();
        let started = Instant::now();
        let status = loop {
            if let Some(status) = job.try_wait().unwrap() {
                break status;
            }
            if started.elapsed() > Duration::from_secs(limit) {
                // Ranks end with their launcher.
                job.kill().and_then(|()| job.wait()).unwrap();
                panic!("{what}: not finished after {limit} s");
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let mut text = String::new();
        log.rewind().and_then(|()| log.read_to_string(&mut text)).unwrap();
        assert!(status.success(), "{what}:\n{text}");
        runs += 1;
    }
    println!("{runs} runs as processes");
}
