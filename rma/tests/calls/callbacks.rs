//! User functions that the runtime calls: the calls that they may make, which are the same over every device, and the
//! handling of their panics.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use farside_rma::calls::Calls;
use farside_rma::collectives::{Operator, Side};
use farside_rma::core::am::{self, Counters, Delivery, HandlerId, OnComplete, Sink};
use farside_rma::prelude::*;
use farside_rma::raw::{Options, RawWindow};
use farside_rma::{Assert, LockKind};

use crate::checks::config::{Config, MAPPED, POSTED, table, verbs, within};

const TCP: Config = Config { name: "tcp", settings: &[("FARSIDE_DEVICE", "tcp")], ..MAPPED };
const ID: HandlerId = HandlerId(7);

/// Runs `f` with `n` ranks over mapped memory, over unmapped memory, and over TCP; or over the network that the
/// environment names.
fn over(n: u32, f: impl Fn(&Team) -> Result<()> + Sync + Send + Copy + 'static) {
    for config in if verbs() { table()[..1].to_vec() } else { vec![MAPPED, POSTED, TCP] } {
        let result = within(60, config.name, move || config.run(n, f).map(drop));
        result.unwrap_or_else(|e| panic!("{}: {e}", config.name));
    }
}

/// The objects that a callback could use.
struct Parts {
    team: Team,
    table: Symmetric<u64>,
    flags: Flags,
    window: LockWindow<u64>,
}

impl Parts {
    fn new(team: &Team) -> Result<Rc<Self>> {
        let (table, flags) = (Symmetric::allocate(team, 2)?, Flags::allocate(team, 1)?);
        Ok(Rc::new(Self { team: team.clone(), table, flags, window: LockWindow::allocate(team, 1)? }))
    }

    /// The calls that communicate, wait or make progress but were not refused.
    fn not_refused(&self) -> Vec<String> {
        let (team, job, table) = (&self.team, self.team.job(), &self.table);
        let peer = team.size() - 1 - team.rank();
        let atomic = table.atomic(peer, 0).unwrap();
        let attempts = [
            ("get", table.get_value(peer, 0).map(drop)),
            ("get_as", table.get_as::<i64>(peer, 0, 1).map(drop)),
            ("get_nbi", table.get_nbi(vec![1], peer, 0).map(drop)),
            ("get_selected", table.get_strided(&mut [0; 2], peer, 0, 1)),
            ("put", table.put_value(9, peer, 0)),
            ("put_nbi", table.put_nbi(vec![9], peer, 0).map(drop)),
            ("put_own", table.put_own(0..1, peer, 1)),
            ("put_selected", table.put_strided(&[9; 2], peer, 0, 1)),
            ("put_notify", table.put_notify(&[9], peer, 0, &self.flags, 0, 9)),
            ("fetch_add", atomic.fetch_add(9).map(drop)),
            ("fetch_nbi", atomic.fetch_nbi(Op::Sum, 9).map(drop)),
            ("add", atomic.add(9)),
            ("compare_exchange", atomic.compare_exchange(0, 9).map(drop)),
            ("accumulate", table.accumulate(Op::Sum, &[9, 9], peer, 0)),
            ("quiet", table.quiet()),
            ("fence", table.fence()),
            ("flag set", self.flags.set(peer, 0, 9)),
            ("flag add", self.flags.add(peer, 0, 9)),
            ("flag wait", self.flags.wait_until(0, ge(0)).map(drop)),
            ("flag test", self.flags.test(0, ge(0)).map(drop)),
            ("lock", self.window.lock(LockKind::Shared, peer, Assert::empty(), |_| Ok(()))),
            ("lock_all", self.window.lock_all(Assert::empty(), |_| Ok(()))),
            ("window", Symmetric::<u8>::allocate(team, 1).map(drop)),
            ("barrier", team.barrier()),
            ("allreduce", team.allreduce(&mut [1], Op::Sum)),
            ("split", team.split(Some(0), 0).map(drop)),
            ("send", team.send(&[1], peer, 0)),
            ("send_nbi", team.send_nbi::<u64, _>(vec![1], peer, 0).map(drop)),
            ("recv", team.recv(&mut [1], peer, 0).map(drop)),
            ("iprobe", team.iprobe(peer, 0).map(drop)),
            ("am send", am::send(job, peer as u32, ID, b"x", b"", Counters::default())),
            ("am try_send", am::try_send(job, peer as u32, ID, b"x", b"", Counters::default()).map(drop)),
            ("progress", job.progress().map(drop)),
            ("wait", job.wait("nothing", || Ok(Some(())))),
            ("align", job.align()),
            ("finalize", job.finalize()),
        ];
        let refused = |r: &Result<()>| r.as_ref().is_err_and(|e| e.kind() == ErrorKind::InCallback);
        attempts.iter().filter(|(_, r)| !refused(r)).map(|(name, r)| format!("{name}: {r:?}")).collect()
    }

    /// Checks that no attempt has had an effect, and frees the objects.
    fn end(self: Rc<Self>) -> Result<()> {
        self.team.barrier()?;
        assert_eq!((self.table.local().to_vec()?, self.flags.get(0)?), (vec![0; 2], 0));
        self.team.barrier()?;
        let Ok(Self { table, flags, window, .. }) = Rc::try_unwrap(self) else { panic!("a callback still exists") };
        table.free()?;
        flags.free()?;
        window.free()
    }
}

#[test]
fn short_function_communicates_with_nobody_and_another_one_does() {
    over(2, |team| {
        let (calls, parts) = (Calls::new(team)?, Parts::new(team)?);
        let (own, other) = (Rc::clone(&parts), Rc::clone(&parts));
        let short = calls.register_short(move |_, ()| own.not_refused())?;
        // The function runs in a later wait of its rank.
        let reads =
            calls.register(move |caller, ()| other.table.get_value(caller.rank, 0).map_err(|e| e.to_string()))?;
        let peer = 1 - team.rank();
        for _ in 0..3 {
            assert_eq!(calls.call(peer, short, ()).wait()?, [""; 0]);
            assert_eq!(calls.call(team.rank(), short, ()).wait()?, [""; 0]);
            assert_eq!(calls.call(peer, reads, ()).wait()?, Ok(0));
        }
        calls.free()?;
        parts.end()
    });
}

#[test]
fn handlers_and_quick_completions_communicate_with_nobody() {
    over(2, |team| {
        let (parts, seen) = (Parts::new(team)?, Rc::new(RefCell::new(Vec::new())));
        let (own, into) = (Rc::clone(&parts), Rc::clone(&seen));
        let job = team.job();
        job.active_messages().register(ID, move |_| {
            into.borrow_mut().push(own.not_refused());
            let (own, into) = (Rc::clone(&own), Rc::clone(&into));
            Delivery::Into(
                Sink::buffer(Vec::new()),
                OnComplete::inline(move |_| into.borrow_mut().push(own.not_refused())),
            )
        })?;
        team.barrier()?;
        // Messages of one packet, of several packets, and by rendezvous, each to the other rank and to this rank.
        for (i, len) in [10, 10_000, 1 << 20].into_iter().enumerate() {
            for to in [1 - job.rank_number(), job.rank_number()] {
                am::send(job, to, ID, b"", &vec![1; len], Counters::default())?;
            }
            job.wait("two messages", || Ok((seen.borrow().len() >= 4 * (i + 1)).then_some(())))?;
            team.barrier()?;
        }
        assert_eq!(*seen.borrow(), vec![Vec::<String>::new(); 12]);
        job.active_messages().unregister(ID);
        parts.end()
    });
}

/// An operator that tries to communicate before it sums.
struct Trying(Rc<Parts>, Rc<RefCell<Vec<String>>>);

impl Operator<u64> for Trying {
    fn is_commutative(&self) -> bool {
        true
    }

    fn reduce(&self, operand: &[u64], into: &mut [u64], _: Side) {
        self.1.borrow_mut().extend(self.0.not_refused());
        into.iter_mut().zip(operand).for_each(|(into, operand)| *into += operand);
    }
}

#[test]
fn operator_communicates_with_nobody() {
    over(3, |team| {
        let (parts, seen) = (Parts::new(team)?, Rc::default());
        let operator = || Trying(Rc::clone(&parts), Rc::clone(&seen));
        for len in [1, 100, 5000, 60_000] {
            let mut data = vec![1; len];
            team.allreduce(&mut data, operator())?;
            assert_eq!(data, vec![3; len]);
            team.scan(&mut data, operator())?;
            assert_eq!(data, vec![3 * (team.rank() as u64 + 1); len]);
        }
        assert_eq!(*seen.borrow(), [""; 0]);
        parts.end()
    });
}

/// A panic payload whose drop panics with another payload.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        resume_unwind(Box::new("the drop of a payload panics"));
    }
}

/// Panics in one of two ways: with a message, or with a payload whose drop panics.
fn panics(how: u8) {
    // `resume_unwind` prints nothing.
    resume_unwind(if how == 0 { Box::new("no such luck") } else { Box::new(Bomb) });
}

#[test]
fn remote_function_that_panics_answers_whatever_its_payload_is() {
    over(2, |team| {
        let (calls, peer) = (Calls::new(team)?, 1 - team.rank());
        let later = calls.register(|_, how: u8| panics(how))?;
        let short = calls.register_short(|_, how: u8| panics(how))?;
        for (how, text) in [(0, "no such luck"), (1, "no message")] {
            for function in [later, short] {
                let e = calls.call(peer, function, how).wait().unwrap_err();
                assert!(e.kind() == ErrorKind::Aborted && e.to_string().contains(text), "{e}");
            }
        }
        // No function is counted as running afterwards.
        calls.quiesce()?;
        calls.free()
    });
}

/// An operator that panics.
struct Panics(u8);

impl Operator<u64> for Panics {
    fn is_commutative(&self) -> bool {
        true
    }

    fn reduce(&self, _: &[u64], _: &mut [u64], _: Side) {
        panics(self.0);
    }
}

#[test]
fn operator_that_panics_fails_the_call_with_its_message_at_every_rank() {
    over(3, |team| {
        for len in [1, 100, 5000, 60_000] {
            for (how, text) in [(0, "no such luck"), (1, "no message")] {
                let e = team.allreduce(&mut vec![1; len], Panics(how)).unwrap_err();
                assert!(e.kind() == ErrorKind::Aborted && e.to_string().contains(text), "{len}: {e}");
                let mut data = vec![1; len];
                team.allreduce(&mut data, Op::Sum)?;
                assert_eq!(data, vec![3; len]);
            }
        }
        Ok(())
    });
}

/// Messages after the one whose handler panics arrive, and so do other events of the same device poll.
#[test]
fn handler_that_panics_loses_no_other_message() {
    over(2, |team| {
        let (job, seen) = (team.job(), Rc::new(Cell::new(0)));
        let count = Rc::clone(&seen);
        job.active_messages().register(ID, move |message| {
            if message.header == b"panic" {
                resume_unwind(Box::new("on purpose"));
            }
            let (count, len) = (Rc::clone(&count), message.len);
            Delivery::Into(
                Sink::buffer(Vec::new()),
                OnComplete::inline(move |received| {
                    assert_eq!(received.unwrap().buffer, vec![7; len]);
                    count.set(count.get() + 1);
                }),
            )
        })?;
        team.barrier()?;
        // The messages have one packet, one long packet, and several packets.
        for (round, len) in [8, 3000, 10_000].into_iter().enumerate() {
            if team.rank() == 0 {
                // Rank 1 has left the barrier, in whose wait the panics would otherwise occur.
                job.wait("rank 1", || Ok((seen.get() > 2 * round).then_some(())))?;
                for header in ["panic", "a", "panic", "b", "c"] {
                    am::send(job, 1, ID, header.as_bytes(), &vec![7; len], Counters::default())?;
                }
                job.wait("its panics", || Ok((seen.get() > 2 * round + 1).then_some(())))?;
            } else {
                seen.set(0);
                am::send(job, 0, ID, b"ready", &[7], Counters::default())?;
                let mut panics = 0;
                while seen.get() < 3 || panics == 0 {
                    let wait = || job.wait("three messages", || Ok((seen.get() == 3).then_some(())));
                    panics += u32::from(catch_unwind(AssertUnwindSafe(wait)).is_err());
                }
                am::send(job, 0, ID, b"done", &[7], Counters::default())?;
            }
        }
        team.barrier()?;
        job.active_messages().unregister(ID);
        Ok(())
    });
}

#[test]
fn request_whose_body_panics_leaves_room_for_the_next() {
    over(1, |team| {
        let window = RawWindow::allocate(team, 8, Options::default())?;
        let panics = || window.request(|| resume_unwind(Box::new("on purpose")));
        catch_unwind(AssertUnwindSafe(panics)).expect_err("the panic resumes");
        window.request(|| Ok(()))?;
        window.free()
    });
}
