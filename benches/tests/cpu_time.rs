//! Ranks that wait for a sleeping rank must sleep too: their sleeps are counted, not timed.

use std::time::Duration;

use farside_benches::usage::Of;
use farside_benches::waiting;
use farside_core::Job;

#[test]
fn waiting_ranks_sleep_in_every_call() {
    for ranks in [2, 8] {
        let waited = Job::threads(ranks, |job| waiting::measure(job, Duration::from_secs(1), Of::Thread)).unwrap();
        assert_eq!(waited[0].len(), 5);
        for row in &waited[0] {
            assert_eq!(row.spent.len(), ranks - 1);
            for (i, spent) in row.spent.iter().enumerate() {
                let rank = i + 1;
                println!("{ranks} ranks, {}: rank {rank} {:?}, {} sleeps", row.call, spent.usage, spent.parks);
                assert!(spent.parks > 0, "{ranks} ranks, {}: rank {rank} never slept", row.call);
                // A sleeping rank wakes every 100 ms to check that the others are alive, far less than a thousand
                // times.
                assert!(spent.parks < 1000, "{ranks} ranks, {}: rank {rank} slept {} times", row.call, spent.parks);
                assert!(spent.usage.switches > 0, "{ranks} ranks, {}: rank {rank} kept its core", row.call);
            }
        }
    }
}
