//! The report on a wrong device.

use std::sync::Mutex;

use farside_conformance::{Setup, Subject};
use farside_core::device::loopback::{Hub, Loopback};
use farside_core::settings::Settings;
use farside_core::{ErrorKind, Job};

#[test]
fn damaged_operation_fails_the_check_and_the_error_names_the_rank() {
    let fault = |name: &str| (name == "FARSIDE_TEST_FAULT").then(|| "lose-atomic:1".to_owned());
    let settings = Settings::from_lookup(fault).unwrap();
    let launched = Mutex::new(Vec::new());
    let subject = Subject {
        name: "damaged",
        setup: Setup { quick: true, ..Setup::default() },
        launch: &|ranks, body| {
            launched.lock().unwrap().push(ranks);
            let hub = Hub::new(ranks);
            Job::threads_on(ranks as usize, &settings, |rank| Ok(Box::new(Loopback::new(&hub, rank))), body).map(drop)
        },
    };
    let wanted =
        ["fetch_add_is_exact_under_contention", "full_queue_is_busy_and_loses_nothing", "out_of_range_is_refused"];
    let report = farside_conformance::run(&subject, |check| wanted.contains(&check.name));
    assert_eq!(*launched.lock().unwrap(), [4, 2, 2]);
    let (check, error) = &report.failed[0];
    assert_eq!((*check, error.kind(), report.failed.len()), (wanted[0], ErrorKind::Aborted, 1), "{report}");
    assert_eq!((report.skipped[0].0, &report.passed[..]), (wanted[1], &[wanted[2]][..]), "{report}");
    let text = report.to_string();
    assert!(text.contains("rank 0") && text.ends_with("damaged: 1 passed, 1 skipped, 1 failed"), "{text}");
}
