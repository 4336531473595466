//! What waiting costs: rank 0 sleeps, and all others wait for it in one call.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use farside_core::am::{self, Counters, Delivery, HandlerId};
use farside_core::coll;
use farside_core::error::Result;
use farside_core::stats::Kind;
use farside_core::{Job, Team};
use farside_rma::{Assert, LockKind, LockWindow, Window};

use crate::usage::{Of, Usage};

const HANDLER: HandlerId = HandlerId(3);

/// What the ranks but rank 0 have spent in one call.
#[derive(Clone, Debug)]
pub struct Waited {
    /// The call.
    pub call: &'static str,
    /// Of each rank from 1 on.
    pub spent: Vec<Spent>,
}

/// What one rank has spent.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// Processor time and context switches.
    pub usage: Usage,
    /// How often it went to sleep.
    pub parks: u64,
}

/// Lets rank 0 sleep for `pause` while the others wait for it in a barrier, a fence, wait, unlock, and for a message.
/// Collective; all ranks get the same. `of` says whether ranks are processes or threads.
///
/// # Errors
/// What the calls fail with.
pub fn measure(job: &Job, pause: Duration, of: Of) -> Result<Vec<Waited>> {
    let team = job.world()?;
    let (me, others): (usize, Vec<usize>) = (team.rank(), (1..team.size()).collect());
    let mut active = Window::<u64>::allocate(&team, 1)?;
    let passive = LockWindow::<u64>::allocate(&team, 1)?;
    let arrived = Rc::new(Cell::new(false));
    let handler = {
        let arrived = arrived.clone();
        move |_: am::Message<'_>| {
            arrived.set(true);
            Delivery::Done
        }
    };
    job.active_messages().register(HANDLER, handler)?;
    let none = Assert::empty();
    let mut all = Vec::new();
    let mut case = |call, sleeper: &mut dyn FnMut() -> Result<()>, waiter: &mut dyn FnMut() -> Result<()>| {
        team.barrier()?;
        let (before, parks) = (Usage::now(of)?, job.stats().count(Kind::Park));
        if me == 0 { sleeper() } else { waiter() }?;
        let spent = Spent { usage: Usage::now(of)? - before, parks: job.stats().count(Kind::Park) - parks };
        all.push(Waited { call, spent: gather(&team, spent)? });
        Ok(())
    };
    let sleep = || std::thread::sleep(pause);

    case(
        "barrier",
        &mut || {
            sleep();
            team.barrier()
        },
        &mut || team.barrier(),
    )?;
    // The window is one, and both would borrow it.
    let fenced = std::cell::RefCell::new(&mut active);
    case(
        "fence",
        &mut || {
            sleep();
            fenced.borrow_mut().fence(none, |_| Ok(()))
        },
        &mut || fenced.borrow_mut().fence(none, |_| Ok(())),
    )?;
    case(
        "wait",
        &mut || {
            sleep();
            fenced
                .borrow_mut()
                .start(&others, none, |epoch| others.iter().try_for_each(|to| epoch.put_value(1, *to, 0)))
        },
        &mut || fenced.borrow_mut().expose(&[0], none, |_| Ok(())),
    )?;
    case(
        "lock and unlock",
        &mut || {
            passive.with_local(|_| {
                team.barrier()?;
                sleep();
                Ok(())
            })
        },
        &mut || {
            team.barrier()?;
            passive.lock(LockKind::Exclusive, 0, none, |epoch| epoch.put_value(1, 0, 0))
        },
    )?;
    case(
        "message",
        &mut || {
            sleep();
            others.iter().try_for_each(|to| am::send(job, *to as u32, HANDLER, &[], &[], Counters::default()))
        },
        &mut || job.wait("receive a message", || Ok(arrived.get().then_some(()))),
    )?;
    job.active_messages().unregister(HANDLER);
    active.free()?;
    passive.free()?;
    Ok(all)
}

fn gather(team: &Team, mine: Spent) -> Result<Vec<Spent>> {
    let numbers = [mine.usage.cpu.as_micros() as u64, mine.usage.switches, mine.parks];
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let all = coll::allgather(team, &bytes)?;
    Ok(all
        .iter()
        .skip(1)
        .map(|bytes| {
            let number =
                |i: usize| bytes.get(8 * i..8 * i + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
            let usage = Usage { cpu: Duration::from_micros(number(0)), switches: number(1) };
            Spent { usage, parks: number(2) }
        })
        .collect())
}
