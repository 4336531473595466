//! Windows of every kind are created and freed a thousand times (three hundred times in a quick run), without leaking
//! descriptors, mappings or threads. Each test runs in its own process, since other tests would change the counts.

use std::fs;

use farside_rma::core::settings::Settings;
use farside_rma::{Assert, Job, LockWindow, Result, SharedWindow, Team, Window};

/// Descriptors, shared mappings, private mappings and threads of this process.
fn held() -> [usize; 4] {
    let count = |p: &str| fs::read_dir(p).unwrap().count();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let shared =
        maps.lines().filter(|l| l.split_whitespace().nth(1).is_some_and(|rights| rights.ends_with('s'))).count();
    [count("/proc/self/fd"), shared, maps.lines().count() - shared, count("/proc/self/task")]
}

fn make_and_free(team: &Team, round: usize) -> Result<()> {
    let (me, none) = (team.rank(), Assert::empty());
    let right = (me + 1) % team.size();
    let len = 1000 + round % 7 * 500;
    match round % 6 {
        0 => {
            let mut w = Window::<u64>::allocate(team, len)?;
            w.fence(none, |e| e.put_value(round as u64, right, len - 1))?;
            assert_eq!(w.local()?[len - 1], round as u64);
            w.free()
        }
        1 => {
            let mut w = Window::from_vec(team, vec![0u64; len])?;
            w.fence(none, |e| e.put_value(round as u64, right, len - 1))?;
            assert_eq!(w.into_vec()?[len - 1], round as u64);
            Ok(())
        }
        2 => {
            let mut memory = vec![0u64; len];
            Window::over(team, &mut memory, |w| w.fence(none, |e| e.put_value(round as u64, right, len / 2)))?;
            assert_eq!(memory[len / 2], round as u64);
            Ok(())
        }
        3 => {
            let w = LockWindow::<u64>::allocate(team, len)?;
            w.lock_all(none, |e| e.put_value(1, right, 0))?;
            w.free()
        }
        4 => {
            let w = LockWindow::from_vec(team, vec![3u64; len])?;
            w.lock_all(none, |e| e.get_blocking(right, len - 1).map(|x| assert_eq!(x, 3)))?;
            // The window is dropped without `free`, which must also release all resources.
            team.barrier()?;
            Ok(())
        }
        // In the configuration without mappings this call fails, which must not leak either.
        _ => SharedWindow::<u64>::allocate(team, len).and_then(SharedWindow::free).or(Ok(())),
    }
}

#[test]
fn thousand_windows_without_growth() {
    farside_harness::alone!("thousand_windows_without_growth");
    // The environment selects the device; over verbs the source of the memory does not matter.
    let machine = |name: &str| {
        let device = matches!(name, "FARSIDE_DEVICE" | "FARSIDE_TEST_NODES")
            || name.starts_with("FARSIDE_VERBS_")
            || name.starts_with("FARSIDE_TCP_")
            || name.starts_with("FARSIDE_OFI_");
        device.then(|| std::env::var(name).ok()).flatten()
    };
    let all = [
        &[][..],
        &[("FARSIDE_TEST_FAULT", "unmapped")],
        &[("FARSIDE_SHM_USER_MEMORY", "ring")],
        &[("FARSIDE_SHM_USER_MEMORY", "vm")],
    ];
    let verbs = machine("FARSIDE_DEVICE").is_some_and(|d| d == "verbs" || d == "route");
    let rounds = if std::env::var_os("FARSIDE_TEST_QUICK").is_some() { 300 } else { 1000 };
    for settings in &all[..if verbs { 1 } else { all.len() }] {
        let given = |name: &str| settings.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        let lookup = |name: &str| given(name).or_else(|| machine(name));
        let settings = Settings::from_lookup(lookup).unwrap();
        let counts = Job::threads_with(2, &settings, |job| {
            let team = job.world()?;
            let mut counts = Vec::new();
            for round in 0..rounds {
                make_and_free(&team, round)?;
                if (round + 1) % (rounds / 10) == 0 {
                    // Barriers before and after the count, so that no rank works during it.
                    team.barrier()?;
                    if team.rank() == 0 {
                        counts.push(held());
                    }
                    team.barrier()?;
                }
            }
            Ok(counts)
        })
        .unwrap();
        let (first, last) = (counts[0][1], counts[0][9]);
        assert_eq!(first[0], last[0], "descriptors: {:?}", counts[0]);
        assert_eq!(first[1], last[1], "shared mappings: {:?}", counts[0]);
        // The allocator also maps and unmaps memory. A kind of window that leaked a mapping would add a sixth of the
        // windows that were made in between.
        assert!(last[2] < first[2] + rounds / 10, "private mappings: {:?}", counts[0]);
        assert_eq!(first[3], last[3], "threads: {:?}", counts[0]);
    }
}

/// Files of long windows stay open for messages from their memory, but only a bounded number of them.
#[test]
fn hundreds_of_long_windows_have_few_descriptors() {
    const WINDOWS: usize = 300;
    farside_harness::alone!("hundreds_of_long_windows_have_few_descriptors");
    let settings = Settings::from_lookup(|_| None).unwrap();
    let counts = Job::threads_with(1, &settings, |job| {
        let team = job.world()?;
        // The first window of a job opens files that stay.
        Window::<u64>::allocate(&team, 100_000)?.free()?;
        let before = held()[0];
        let windows: Vec<Window<'_, u64>> =
            (0..WINDOWS).map(|_| Window::allocate(&team, 100_000)).collect::<Result<_>>()?;
        let during = held()[0];
        windows.into_iter().try_for_each(Window::free)?;
        Ok([before, during, held()[0]])
    })
    .unwrap();
    let [before, during, after] = counts[0];
    // The segments of short memory, each twice as large as the previous one, stay.
    const SEGMENTS: usize = 8;
    assert!(during > before + 32 && during <= before + 64 + SEGMENTS && after <= before + SEGMENTS, "{counts:?}");
}
