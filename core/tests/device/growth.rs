//! No leaks: descriptors and mappings after many rounds.

use std::fs;

use farside_core::Result;

use crate::harness::{configs, quick};
use crate::processes::{self, Rank};
use crate::world::{World, pattern};

fn usage() -> (usize, usize) {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
    (descriptors, fs::read_to_string("/proc/self/maps").unwrap().lines().count())
}

/// Rounds with a region and a signal array at both ranks. The ranks are processes, since threads of other tests would
/// be counted too.
#[test]
fn allocate_import_release_many_rounds_without_growth() {
    if let Some(rank) = Rank::from_env() {
        let config = &configs()[rank.config];
        let setup = config.setup();
        return rank.run(&config.settings(), |job| {
            let round = |i: usize| -> Result<()> {
                let world = World::new(job, &setup, 5000)?;
                world.write(1 - world.me(), i % 4000, &pattern(i, 1000))?;
                world.barrier()?;
                assert!(world.own_bytes()[i % 4000..][..1000] == pattern(i, 1000));
                world.barrier()
            };
            (0..50).try_for_each(round)?;
            let before = usage();
            let rounds = if quick() { 150 } else { 1000 };
            (50..50 + rounds).try_for_each(round)?;
            let after = usage();
            // The allocator may add or drop an arena; a leak would amount to hundreds.
            assert!(after.0 == before.0 && after.1 < before.1 + 10, "(descriptors, mappings): {before:?}, {after:?}");
            Ok(())
        });
    }
    let test = concat!(module_path!(), "::allocate_import_release_many_rounds_without_growth");
    for (index, config) in configs().iter().enumerate().take(if quick() { 1 } else { usize::MAX }) {
        processes::run(test, index, 2).unwrap_or_else(|e| panic!("{}: {e}", config.name));
    }
}
