#![allow(unsafe_code)]
//! Faults that a device may have: lost messages keep their order, a dead rank is reported as lost, not as unknown,
//! atomics are not coherent with the processor's accesses. The trace of a run.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farside_core::am::{self, Counters, Delivery, HandlerId};
use farside_core::device::{Block, Operation, Place, Region, RemoteRegion};
use farside_core::sim::{Flap, Interface, Network, Simulation, Trace};
use farside_core::{ErrorKind, Job, Result};

/// The send overhead is longer than the gap, so the sender's clock is ahead of the time at which its queued messages leave.
#[test]
fn messages_that_are_sent_again_keep_their_order() {
    const ID: HandlerId = HandlerId(3);
    for (loss, down) in [(0.2, vec![]), (0.0, vec![Flap { rank: 1, from: 5000.0, until: 50_000.0 }]), (0.0, vec![])] {
        let interface = Interface { gap_per_byte: 1.0, ..Interface::log_p(200.0, 300.0, 0.0) };
        let network = Network { interface, loss, retry: 4000.0, down, ..Network::default() };
        let run = Simulation::new(2).network(network).run(|job| {
            let seen = Rc::new(RefCell::new(Vec::new()));
            let into = Rc::clone(&seen);
            job.active_messages().register(ID, move |m| {
                into.borrow_mut().push(m.header[0]);
                Delivery::Done
            })?;
            job.world()?.barrier()?;
            for i in 0..200u8 {
                let data = vec![0; if i % 3 == 0 { 2000 } else { 0 }];
                am::send(job, 1 - job.rank() as u32, ID, &[i], &data, Counters::default())?;
            }
            job.wait("receive all", || Ok((seen.borrow().len() == 200).then_some(())))?;
            Ok(seen.take())
        });
        assert!(run.unwrap().results.iter().all(|seen| seen.is_sorted()));
    }
}

/// Runs `f` with a word of each rank, by this rank's own address and by the imports of its peers' words.
fn with_words<R>(job: &Job, f: impl FnOnce(&AtomicU64, &[RemoteRegion]) -> Result<R>) -> Result<R> {
    let own = job.device().allocate(Region::allocated(8))?;
    // SAFETY: the word ends with the device of the rank.
    let (own, remotes) = unsafe { farside_core::coll::exchange_regions(&job.world()?, Ok(own), None) }?;
    // SAFETY: an aligned word of the device, which lives as long as the job.
    let result = f(unsafe { AtomicU64::from_ptr(own.base.cast()) }, &remotes)?;
    job.align()?;
    Ok(result)
}

/// Adds to the word of a rank.
fn add(job: &Job, word: &RemoteRegion, add: u64) -> Result<u64> {
    let old = Cell::new(0);
    let at = Place { region: word.handle, offset: 0 };
    // SAFETY: the previous value outlives the call.
    unsafe { job.complete("add", word.peer, Operation::fetch_add(at, add, old.as_ptr())) }?;
    Ok(old.get())
}

/// A signal in transit arrives even if its sender drops the import of the region meanwhile.
#[test]
fn signal_outlives_the_import_of_its_region() {
    let run = Simulation::new(2).run(|job| {
        with_words(job, |word, remotes| {
            let at = Place { region: remotes[1 - job.rank()].handle, offset: 0 };
            // SAFETY: no local memory is involved, and the region is not mapped.
            unsafe {
                job.post(1 - job.rank() as u32, Operation::Signal { at, value: 7 }, None, &[])?;
                job.device().forget(at.region);
            }
            job.device().compute(Duration::from_micros(5));
            Ok(word.load(Ordering::SeqCst))
        })
    });
    assert_eq!(run.unwrap().results, [7, 7]);
}

#[test]
fn memory_of_a_dead_rank_is_lost_and_not_unknown() {
    for minimal in [false, true] {
        let simulation = Simulation::new(2).dies(0, Duration::from_micros(100));
        let simulation = if minimal { simulation.minimal() } else { simulation };
        let lost = RefCell::new(None);
        let run = simulation.run(|job| {
            with_words(job, |_, remotes| {
                let result = (0..1000).try_for_each(|_| add(job, &remotes[1 - job.rank()], 1).map(drop));
                if job.rank() == 1 {
                    lost.replace(result.as_ref().err().map(|e| (e.kind(), e.blamed())));
                }
                result
            })
        });
        let e = run.unwrap_err();
        assert!(e.kind() == ErrorKind::PeerLost, "{e}");
        assert_eq!(lost.take(), Some((ErrorKind::PeerLost, Some(0))), "{e}");
    }
}

/// The processor of rank 0 reads its word, and stores to it, while the interface holds back the sum of rank 1's
/// addition.
#[test]
fn atomics_of_an_interface_need_not_be_coherent() {
    let run = |incoherent: bool, stores: bool| {
        let simulation = Simulation::new(2).minimal().network(Network { jitter: 100.0, ..Network::default() });
        let simulation = if incoherent { simulation.incoherent_atomics() } else { simulation };
        let run = simulation.run(|job| {
            with_words(job, |word, remotes| {
                job.align()?;
                if job.rank() == 1 {
                    add(job, &remotes[0], 5)?;
                    // A message ends the time for which the word is held back, even a message that takes another path.
                    job.world()?.barrier()?;
                    return Ok(Vec::new());
                }
                let mut seen = Vec::new();
                // The rank waits until the answer has left, and no message arrives.
                for _ in 0..40 {
                    job.device().compute(Duration::from_nanos(50));
                    seen.push(word.load(Ordering::SeqCst));
                    if stores {
                        word.fetch_add(100, Ordering::SeqCst);
                    }
                }
                job.world()?.barrier()?;
                seen.push(word.load(Ordering::SeqCst));
                // A rank sees its own addition through the interface immediately.
                assert_eq!(add(job, &remotes[0], 1)?, *seen.last().unwrap());
                assert_eq!(word.load(Ordering::SeqCst), seen.last().unwrap() + 1);
                Ok(seen)
            })
        });
        run.unwrap().results.swap_remove(0)
    };
    let (coherent, incoherent) = (run(false, false), run(true, false));
    let since = |seen: &[u64]| seen.iter().position(|value| *value == 5).unwrap();
    assert!(since(&coherent) < since(&incoherent), "{coherent:?} {incoherent:?}");
    assert_eq!((coherent.last(), incoherent.last()), (Some(&5), Some(&5)));
    assert_eq!(run(false, true).last(), Some(&4005));
    let lost = *run(true, true).last().unwrap();
    assert!(lost < 4005 && lost % 100 == 5, "stores into a word that the interface keeps are lost: {lost}");
}

#[test]
fn trace_has_the_last_messages_also_of_a_run_that_fails() {
    let trace = Trace::last(3);
    let network = Network { interface: Interface::log_p(1000.0, 100.0, 100.0), ..Network::default() };
    let simulation = Simulation::new(2).network(network).trace(&trace);
    let e = simulation.run(|job| {
        with_words(job, |_, remotes| {
            if job.rank() == 0 {
                let from = [Block::of([7u8; 8].as_ptr(), 8)];
                let operation = Operation::write(&from, Place { region: remotes[1].handle, offset: 0 });
                // SAFETY: a constant.
                unsafe { job.complete("write", 1, operation) }?;
            }
            job.wait("wait for ever", || Ok(None::<()>))
        })
    });
    assert_eq!(e.unwrap_err().kind(), ErrorKind::Timeout);
    let text = trace.to_string();
    let last = text.lines().last().unwrap();
    assert!(last.contains("0 -> 1 write, 8 bytes") && last.contains("1.000 us on the way"), "{text}");
    assert_eq!(text.lines().count(), 3);
}
