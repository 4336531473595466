//! After `finalize` every call that names another rank fails, on every device; a rank's own memory stays accessible.

use farside_rma::calls::Calls;
use farside_rma::collectives::call;
use farside_rma::core::am;
use farside_rma::prelude::*;

use crate::checks::config::{Config, everywhere_with};

/// The outcome of a call.
type Outcome = (&'static str, Result<()>);

/// Calls that name rank `n`, on objects made before the end.
#[allow(clippy::too_many_lines)] // a list
fn refused(team: &Team, _: &Config) -> Result<()> {
    const NONE: Assert = Assert::empty();
    let (me, n, job) = (team.rank(), (team.rank() + 1) % team.size(), team.job().clone());
    let part = team.split(Some(0), 0)?;
    let mut window = Window::<u64>::allocate(team, 4)?;
    let mut borrowed = Window::from_vec(team, vec![me as u64; 4])?;
    let passive = LockWindow::<u64>::allocate(team, 4)?;
    let open = Symmetric::<u64>::allocate(team, 4)?;
    let flags = Flags::allocate(team, 2)?;
    let array = GlobalArray::<u64, 1>::new(team, [8])?;
    let dynamic = DynamicWindow::<u64>::new(team)?;
    let attached = dynamic.attach(vec![0; 4])?;
    let mut all = vec![attached; team.size()];
    team.allgather(&[attached], &mut all)?;
    let shared = SharedWindow::<u64>::allocate(team, 4).ok();
    let theirs = shared.as_ref().map(|shared| shared.of(n)).transpose()?;
    let calls = Calls::new(team)?;
    let double = calls.register(|_, x: u64| 2 * x)?;
    // Each object has already been used, so that the calls need no lazy setup.
    window.fence(NONE, |e| e.put_value(1, n, 0))?;
    passive.lock(LockKind::Exclusive, n, NONE, |e| e.put_value(1, n, 0))?;
    open.put_value(1, n, 0)?;
    flags.set(n, 0, 1)?;
    dynamic.put(&[1], n, all[n], 0)?;
    calls.call(n, double, 1).wait()?;
    (0..6).try_for_each(|_| team.barrier())?;
    array.put(2 * n..2 * n + 1, &[1])?;
    job.finalize()?;

    let (mut one, mut two) = ([0u64], [0u64; 2]);
    let mut outcomes: Vec<Outcome> = vec![
        ("fence, put", window.fence(NONE, |e| e.put_value(7, n, 0))),
        ("fence without others", window.fence(Assert::NOPRECEDE, |_| Ok(()))),
        ("fence, get", borrowed.fence(NONE, |e| e.get(&mut one, n, 0))),
        ("run of fences", window.fences(|f| f.epoch(NONE, |e| e.put_value(7, n, 0)))),
        ("start", window.start(&[n], NONE, |_| Ok(()))),
        ("expose", window.expose(&[n], NONE, |_| Ok(()))),
        ("lock", passive.lock(LockKind::Shared, n, NONE, |e| e.put_value(7, n, 0))),
        ("lock exclusively", passive.lock(LockKind::Exclusive, n, NONE, |_| Ok(()))),
        ("lock_all", passive.lock_all(NONE, |e| e.get_blocking(n, 0).map(drop))),
        ("put", open.put(&[7], n, 0)),
        ("put value", open.put_value(7, n, 0)),
        ("put own", open.put_own(0..1, n, 1)),
        ("get", open.get(&mut two, n, 0)),
        ("get value", open.get_value(n, 0).map(drop)),
        ("put nbi", open.put_nbi(vec![7], n, 0).map(drop)),
        ("get nbi", open.get_nbi(vec![7], n, 0).map(drop)),
        ("put and notify", open.put_notify(&[7], n, 0, &flags, 0, 1)),
        ("add", open.atomic(n, 1)?.add(1)),
        ("fetch and add", open.atomic(n, 1)?.fetch_add(1).map(drop)),
        ("compare and exchange", open.atomic(n, 1)?.compare_exchange(0, 1).map(drop)),
        ("load", open.atomic(n, 1)?.load().map(drop)),
        ("accumulate", open.accumulate(Op::Sum, &[1, 2], n, 0)),
        ("quiet", open.quiet()),
        ("exclusive", open.exclusive(|_| Ok(()))),
        ("barrier of symmetric memory", open.barrier()),
        ("set a flag", flags.set(n, 1, 1)),
        ("add to a flag", flags.add(n, 1, 1)),
        ("wait for a flag", flags.wait_until(1, eq(77)).map(drop)),
        ("array put", array.put(2 * n..2 * n + 1, &[1])),
        ("array get", array.get_element([n]).map(drop)),
        ("array sum", array.reduce(Op::Sum).map(drop)),
        ("array sync", array.sync()),
        ("dynamic put", dynamic.put(&[1], n, all[n], 0)),
        ("dynamic get", dynamic.get(&mut one, n, all[n], 0)),
        ("remote call", calls.call(n, double, 1).wait().map(drop)),
        ("remote call without an answer", calls.cast(n, double, 1)),
        ("quiesce", calls.quiesce()),
        ("send", team.send(&[1u8], n, 0)),
        ("receive", team.recv_vec::<u8>(n, 0).map(drop)),
        ("barrier", team.barrier()),
        ("barrier again", team.barrier()),
        ("sum", team.allreduce(&mut two, Op::Sum)),
        ("broadcast", team.broadcast(&mut two, 0)),
        ("started sum", team.overlap(|s| s.start(call::allreduce(&mut one, Op::Sum))?.wait().map(drop))),
        ("split", team.split(Some(0), 0).map(drop)),
        ("subteam", team.subteam(&[0]).map(drop)),
        ("window", Window::<u8>::allocate(team, 1).map(drop)),
        ("world", job.world().map(drop)),
        ("align", job.align()),
        ("active message", am::send(&job, n as u32, am::HandlerId(9), &[], &[], am::Counters::default())),
    ];
    if let (Some(shared), Some(theirs)) = (&shared, &theirs) {
        outcomes.push(("map", shared.of(n).map(drop)));
        outcomes.push(("load", theirs.load(0).map(drop)));
        outcomes.push(("store", theirs.store(0, 7)));
        outcomes.push(("shared fetch and op", theirs.fetch_and_op(Op::Sum, 1, 0).map(drop)));
    }
    if let Some(part) = &part {
        outcomes.push(("barrier of a part", part.barrier()));
        outcomes.push(("sum of a part", part.allreduce(&mut two, Op::Sum)));
    }
    let other: Vec<_> = outcomes
        .iter()
        .filter(|(_, outcome)| !outcome.as_ref().is_err_and(|e| e.kind() == ErrorKind::Freed))
        .map(|(name, outcome)| format!("{name}: {outcome:?}"))
        .collect();
    assert!(other.is_empty(), "rank {me}, after finalize: {other:#?}");

    assert_eq!(window.local()?[0], 1);
    assert_eq!(borrowed.local()?[3], me as u64);
    assert_eq!(open.local().load(0)?, 1);
    assert_eq!(flags.get(0)?, 1);
    Ok(())
}

#[test]
fn everything_that_names_another_rank_is_refused() {
    everywhere_with(&[2, 3], refused);
}

/// The job ends inside an epoch.
#[test]
fn operation_of_an_epoch_that_is_open_at_the_end_is_refused() {
    everywhere_with(&[2], |team, _| {
        let (n, window) = (1 - team.rank(), LockWindow::<u64>::allocate(team, 4)?);
        let ended = window.lock_all(Assert::empty(), |e| {
            e.put_blocking(&[1], n, 0)?;
            team.job().finalize()?;
            let outcomes = [e.put_value(2, n, 0), e.get_blocking(n, 0).map(drop), e.flush(n), e.flush_all()];
            for outcome in outcomes {
                assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Freed);
            }
            Ok::<_, Error>(())
        });
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::Freed);
        Ok(())
    });
}
