//! The cost of waiting: rank 0 sleeps, and all others wait for it in one call.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use clap::{Args, value_parser};
use farside_core::am::{self, Counters, Delivery, HandlerId};
use farside_core::error::{Error, ErrorKind, Result};
use farside_core::stats::Kind;
use farside_core::{Job, Team};
use farside_rma::{Assert, Collectives, LockKind, LockWindow, Window};

use crate::launch;
use crate::table::text;
use crate::usage::{Of, Usage};

const HANDLER: HandlerId = HandlerId(3);

/// Makes rank 0 sleep while all other ranks wait for it, and prints the CPU time that they spend waiting.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Job sizes (ranks) to measure.
    #[arg(long, value_delimiter = ',', default_value = "2,8", value_parser = value_parser!(u32).range(2..=1024))]
    ranks: Vec<u32>,
    /// Milliseconds that rank 0 sleeps.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = value_parser!(u64).range(1..=60_000))]
    sleep_ms: u64,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<bool> {
        self.ranks.into_iter().try_for_each(|ranks| drive(ranks, self.sleep_ms)).map(|()| true)
    }
}

/// CPU time of all ranks except rank 0 in one call.
#[derive(Clone, Debug)]
pub(crate) struct Waited {
    /// The call.
    pub(crate) call: &'static str,
    /// The time of each rank from 1 on.
    pub(crate) spent: Vec<RankUsage>,
}

/// The usage of one rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RankUsage {
    /// CPU time and context switches.
    pub(crate) usage: Usage,
    /// The number of times that the rank went to sleep.
    pub(crate) parks: u64,
}

/// Makes rank 0 sleep for `pause` while the other ranks wait for it in a barrier, a fence, wait, unlock, and a receive.
/// Collective; all ranks get the same result. `of` says whether ranks are processes or threads.
pub(crate) fn measure(job: &Job, pause: Duration, of: Of) -> Result<Vec<Waited>> {
    let team = job.world()?;
    let (me, others): (usize, Vec<usize>) = (team.rank(), (1..team.size()).collect());
    let mut active = Window::<u64>::allocate(&team, 1)?;
    let passive = LockWindow::<u64>::allocate(&team, 1)?;
    let arrived = Rc::new(Cell::new(false));
    let seen = arrived.clone();
    job.active_messages().register(HANDLER, move |_| {
        seen.set(true);
        Delivery::Done
    })?;
    let none = Assert::empty();
    let mut all = Vec::new();
    let mut case = |call, sleeper: &dyn Fn() -> Result<()>, waiter: &dyn Fn() -> Result<()>| -> Result<()> {
        team.barrier()?;
        let (before, parks) = (Usage::now(of)?, job.stats().count(Kind::Park));
        if me == 0 { sleeper() } else { waiter() }?;
        let spent = RankUsage { usage: Usage::now(of)? - before, parks: job.stats().count(Kind::Park) - parks };
        all.push(Waited { call, spent: gather(&team, spent)? });
        Ok(())
    };
    let slept = || -> Result<()> {
        std::thread::sleep(pause);
        Ok(())
    };

    let put_first = || passive.lock(LockKind::Exclusive, 0, none, |epoch| epoch.put_value(1, 0, 0));
    let message = |to: &usize| am::send(job, *to as u32, HANDLER, &[], &[], Counters::default());
    // Otherwise both sides would borrow the same window.
    let active_cell = RefCell::new(&mut active);
    let window = || active_cell.borrow_mut();
    let fence = || window().fence(none, |_| Ok(()));
    let put_all = || window().start(&others, none, |epoch| others.iter().try_for_each(|to| epoch.put_value(1, *to, 0)));
    let lock = || passive.with_local(|_| team.barrier().and_then(|()| slept()));
    case("barrier", &|| slept().and_then(|()| team.barrier()), &|| team.barrier())?;
    case("fence", &|| slept().and_then(|()| fence()), &fence)?;
    case("wait", &|| slept().and_then(|()| put_all()), &|| window().expose(&[0], none, |_| Ok(())))?;
    case("lock and unlock", &lock, &|| team.barrier().and_then(|()| put_first()))?;
    case("message", &|| slept().and_then(|()| others.iter().try_for_each(message)), &|| {
        job.wait("receive a message", || Ok(arrived.get().then_some(())))
    })?;
    job.active_messages().unregister(HANDLER);
    active.free()?;
    passive.free()?;
    Ok(all)
}

fn gather(team: &Team, mine: RankUsage) -> Result<Vec<RankUsage>> {
    let numbers = [mine.usage.cpu.as_micros() as u64, mine.usage.switches, mine.parks];
    let mut all = vec![0; numbers.len() * team.size()];
    team.allgather(&numbers, &mut all)?;
    let spent =
        |of: &[u64]| RankUsage { usage: Usage { cpu: Duration::from_micros(of[0]), switches: of[1] }, parks: of[2] };
    Ok(all.chunks_exact(numbers.len()).skip(1).map(spent).collect())
}

/// Measures with ranks that are processes, and prints the CPU time of each call. Collective.
pub(crate) fn report(job: &Job, pause: Duration) -> Result<()> {
    let waited = measure(job, pause, Of::Process)?;
    if job.rank() != 0 {
        return Ok(());
    }
    let row = |row: &Waited| {
        let ms = |cpu: Duration| format!("{:.1}", cpu.as_secs_f64() * 1e3);
        let cpu = || row.spent.iter().map(|spent| spent.usage.cpu);
        let most = |f: fn(&RankUsage) -> u64| row.spent.iter().map(f).max().unwrap_or(0).to_string();
        let (parks, switches) = (most(|spent| spent.parks), most(|spent| spent.usage.switches));
        vec![row.call.to_owned(), ms(cpu().max().unwrap_or_default()), ms(cpu().sum()), parks, switches]
    };
    let header = ["waiting in", "CPU ms, most", "CPU ms, all", "sleeps, most", "voluntary switches, most"];
    let (ranks, ms) = (job.size(), pause.as_millis());
    println!(
        "{ranks} ranks, of which one sleeps for {ms} ms; the others, each:\n{}",
        text(&header, 1, waited.iter().map(row))
    );
    Ok(())
}

/// Starts the given number of ranks, which print their results.
fn drive(ranks: u32, sleep_ms: u64) -> Result<()> {
    let limit = Duration::from_millis(5 * sleep_ms) + Duration::from_secs(60);
    let words = ["--sleep-ms".to_owned(), sleep_ms.to_string()];
    let status = launch::ranks(ranks, limit, &words)?.status();
    let status = status.map_err(|error| Error::system("start farside run", error))?;
    if status.success() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Aborted, "measure waiting ranks").cause(format!("{ranks} ranks: {status}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ranks that wait for a sleeping rank must sleep too: their sleeps are counted, not timed.
    #[test]
    fn waiting_ranks_sleep_in_every_call() {
        for ranks in [2, 8] {
            let waited = Job::threads(ranks, |job| measure(job, Duration::from_secs(1), Of::Thread)).unwrap();
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
}
