//! The timeline of a simulation, in virtual time.

use std::time::Duration;

use farside_core::Job;
use farside_core::settings::Settings;
use farside_core::sim::Simulation;
use serde_json::Value;

/// The time for which rank 0 is late.
const DELAY: Duration = Duration::from_millis(3);

/// Rank 0 is late at a barrier; returns the file.
fn traced(end: &str) -> String {
    let file = tempfile::Builder::new().suffix(end).tempfile().unwrap();
    let path = file.path().to_str().unwrap();
    let settings = Settings::from_lookup(|name| (name == "FARSIDE_TRACE").then(|| path.to_owned())).unwrap();
    let late = |job: &Job| {
        let world = job.world()?;
        if job.rank() == 0 {
            job.device().compute(DELAY);
        }
        world.barrier()
    };
    Simulation::new(4).settings(settings).run(late).unwrap();
    std::fs::read_to_string(file.path()).unwrap()
}

#[test]
fn waits_last_as_long_as_the_late_rank_computes() {
    let text = traced(".json");
    let value: Value = serde_json::from_str(&text).unwrap();
    let waits = |rank: u64| -> Vec<(f64, f64)> {
        let events = value["traceEvents"].as_array().unwrap().iter();
        let is_wait = |e: &&Value| e["cat"] == "wait" && e["pid"] == rank;
        let number = |e: &Value, key: &str| e[key].as_f64().unwrap();
        events.filter(is_wait).map(|e| (number(e, "ts"), number(e, "dur"))).collect()
    };
    let late = DELAY.as_secs_f64() * 1e6;
    let longest = |rank| waits(rank).into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    let ends: Vec<f64> = (1..4).map(longest).map(|(begin, dur)| begin + dur).collect();
    for rank in 1..4 {
        let (_, dur) = longest(rank);
        assert!((late..late + 10.0).contains(&dur), "rank {rank} waits for {dur} of {late} microseconds");
    }
    // A clock that is not virtual would differ by the time that the simulation takes.
    assert!(ends.iter().all(|end| (end - ends[0]).abs() < 10.0), "{ends:?}");
    assert!(waits(0).iter().all(|(_, dur)| *dur < 100.0), "{:?}", waits(0));
    assert_eq!(text, traced(".json"), "the same seed is the same timeline");
}

#[test]
fn page_has_a_row_for_each_rank_and_its_waits() {
    let page = traced(".html");
    for text in ["rank 0", "rank 3", "barrier", "<rect", "Timeline of 4 ranks, 3."] {
        assert!(page.contains(text), "{text} is not in {page}");
    }
}
