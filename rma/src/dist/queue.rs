//! A queue of items that ranks without work get from those that have more.
//!
//! A rank takes its newest item and gives its oldest ones. A rank without items asks the ranks at distances of the powers of
//! two, its lifelines, once; each of these remembers it, and gives it half of its items, or the next ones (Saraswat,
//! Kambadur, Kodali, Grove, Krishnamoorthy 2011, "Lifeline-based global load balancing"). So a rank without work sends
//! nothing while it waits. The end is found by the rounds of `aggregate`: an item is done when its rank asks for the next.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use farside_core::bill::{Account, Awaited};
use farside_core::{Error, ErrorKind, Result, Team, callback, located};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::aggregate::{Step, Tree};
use crate::calls::{Caller, Calls, Function};

const QUEUE: &str = "take an item of a distributed queue";
/// Bytes after which a message gets no further item.
const GIFT: usize = 64 << 10;

/// The items of a rank, and what it knows of others.
struct State<T> {
    me: usize,
    ranks: usize,
    items: VecDeque<T>,
    /// Ranks that wait for items, with the phase in which they do.
    hungry: Vec<(u32, usize)>,
    /// Which lifelines have been asked and have given nothing since.
    asked: Vec<bool>,
    /// Items that this rank has pushed, and that it has taken and finished.
    pushed: u64,
    done: u64,
    /// Whether an item is taken that is not finished.
    is_working: bool,
    phase: u32,
    tree: Tree,
    /// Whether a message has arrived since the last look.
    has_received: bool,
    failed: Option<Error>,
}

/// A queue that is distributed over a team. A rank pushes to its own part; ranks without items get some of others.
///
/// ```
/// use farside_rma::dist::Queue;
/// use farside_rma::prelude::*;
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let mut queue = Queue::<u32>::new(&team)?;
///     if team.rank() == 0 {
///         queue.push(10)?;
///     }
///     // An item makes two smaller ones.
///     let mut visits = [0u32];
///     while let Some(n) = queue.next()? {
///         visits[0] += 1;
///         for next in n.checked_sub(1).into_iter().flat_map(|next| [next; 2]) {
///             queue.push(next)?;
///         }
///     }
///     team.allreduce(&mut visits, Op::Sum)?;
///     assert_eq!(visits, [2047]);
///     queue.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
///
/// **The end.** [`next`](Self::next) returns `None` at every rank once no item is left, and no rank works on one: a rank
/// works on an item until it calls `next` again. Then the queue can be used again.
///
/// **Progress.** A rank gives items in [`push`](Self::push) and `next`; one that works for long without either keeps what it
/// has.
///
/// Memory: the items of a rank, which are not bounded; and a message of at most 64 KiB, or one item, of each rank that gives.
pub struct Queue<T> {
    calls: Calls,
    state: Rc<RefCell<State<T>>>,
    ask: Function<u32, ()>,
    give: Function<(u32, Vec<u8>), ()>,
    report: Function<[u64; 2], ()>,
    verdict: Function<bool, ()>,
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("team", self.calls.team()).finish_non_exhaustive()
    }
}

/// The distances of a rank's lifelines.
fn distances(ranks: usize) -> impl Iterator<Item = usize> {
    (0..usize::BITS).map(|bit| 1 << bit).take_while(move |distance| *distance < ranks)
}

impl<T: Serialize + DeserializeOwned + 'static> State<T> {
    /// Runs a message's function, which returns `None` for bytes that no rank of this phase sends.
    fn received(&mut self, caller: &Caller<'_>, take: impl FnOnce(&mut Self, usize) -> Option<()>) {
        self.has_received = true;
        if callback::caught(|| take(self, caller.rank)) != Ok(Some(())) {
            let e = Error::new(ErrorKind::Protocol, QUEUE).peer(caller.calls().team().members()[caller.rank]);
            self.failed.get_or_insert(e.cause("a malformed or unexpected message of a queue"));
        }
    }

    fn asked_by(&mut self, phase: u32, rank: usize) -> Option<()> {
        // The phase can have ended without this message.
        if phase == self.phase.wrapping_sub(1) {
            return Some(());
        }
        let is_next = phase == self.phase || phase == self.phase.wrapping_add(1);
        let is_new = !self.hungry.contains(&(phase, rank));
        (is_next && is_new).then(|| self.hungry.push((phase, rank)))
    }

    fn given_by(&mut self, (phase, bytes): (u32, &[u8]), rank: usize) -> Option<()> {
        let distance = (rank + self.ranks - self.me) % self.ranks;
        let lifeline = distances(self.ranks).position(|one| one == distance)?;
        if phase != self.phase || !std::mem::take(&mut self.asked[lifeline]) {
            return None;
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            // A byte follows each item, so that none is without bytes.
            let ((item, _), after) = postcard::take_from_bytes::<(T, u8)>(rest).ok()?;
            self.items.push_back(item);
            rest = after;
        }
        Some(())
    }

    /// The next rank that gets items, and these, encoded.
    fn gift(&mut self) -> Result<Option<(usize, Vec<u8>)>> {
        let Some(first) = self.hungry.iter().position(|(phase, _)| *phase == self.phase) else { return Ok(None) };
        if self.items.is_empty() {
            return Ok(None);
        }
        let (mut bytes, mut count) = (Vec::new(), 0);
        for item in self.items.iter().take(self.items.len().div_ceil(2)) {
            bytes = postcard::to_extend(&(item, 0u8), bytes).map_err(|e| {
                let e = Error::new(ErrorKind::BadArgument, QUEUE).cause(format!("an item cannot be encoded: {e}"));
                e.rank(self.me)
            })?;
            count += 1;
            if bytes.len() >= GIFT {
                break;
            }
        }
        self.items.drain(..count);
        Ok(Some((self.hungry.remove(first).1, bytes)))
    }
}

impl<T: Serialize + DeserializeOwned + 'static> Queue<T> {
    /// Creates an empty queue. Collective; five allgathers and a barrier.
    ///
    /// # Errors
    /// `Mismatch` for types that differ; `Limit` if no handler number is free; `PeerLost`.
    #[track_caller]
    pub fn new(team: &Team) -> Result<Self> {
        located(|| {
            let (calls, me, ranks) = (Calls::new(team)?, team.rank(), team.size());
            let state = Rc::new(RefCell::new(State {
                me,
                ranks,
                items: VecDeque::<T>::new(),
                hungry: Vec::new(),
                asked: distances(ranks).map(|_| false).collect(),
                pushed: 0,
                done: 0,
                is_working: false,
                phase: 0,
                tree: Tree::new(me, ranks),
                has_received: false,
                failed: None,
            }));
            let own = || Rc::clone(&state);
            let (asked, given, reported, decided) = (own(), own(), own(), own());
            let ask = calls.register_short(move |caller, phase| {
                asked.borrow_mut().received(caller, |state, rank| state.asked_by(phase, rank));
            })?;
            let give = calls.register_short(move |caller, (phase, bytes): (u32, Vec<u8>)| {
                given.borrow_mut().received(caller, |state, rank| state.given_by((phase, &bytes), rank));
            })?;
            let report = calls.register_short(move |caller, sums| {
                reported.borrow_mut().received(caller, |state, rank| state.tree.reported(rank, sums).then_some(()));
            })?;
            let verdict = calls.register_short(move |caller, finished| {
                decided.borrow_mut().received(caller, |state, rank| state.tree.decided(rank, finished).then_some(()));
            })?;
            Ok(Self { calls, state, ask, give, report, verdict })
        })
    }

    /// The team.
    #[must_use]
    pub fn team(&self) -> &Team {
        self.calls.team()
    }

    /// Adds an item to this rank's part. Gives items to ranks that wait for some; one message each.
    ///
    /// # Errors
    /// `BadArgument` for an item that cannot be encoded, when it is given; `PeerLost`; `InCallback`; those of messages that
    /// have arrived, as in [`next`](Self::next).
    #[track_caller]
    pub fn push(&mut self, item: T) -> Result<()> {
        located(|| {
            let job = self.team().job();
            job.running(QUEUE)?;
            {
                let mut state = self.state.borrow_mut();
                state.items.push_back(item);
                state.pushed += 1;
            }
            if self.team().size() > 1 {
                job.progress_of_test()?;
                self.feed()?;
            }
            Ok(())
        })
    }

    /// Finishes the item that was taken before, and takes one: the newest of this rank, or of those that another gives.
    /// Waits until there is one; `None` once no rank has an item or works on one. All ranks call it until then. A rank that
    /// waits has sent one message to each of at most ⌈log2 P⌉ others, and two in each round that detects the end, of which
    /// there are two or more.
    ///
    /// # Errors
    /// `PeerLost`; `Protocol` for bytes that are not items; `BadArgument` for an item that cannot be encoded; `InCallback`.
    #[track_caller]
    #[expect(clippy::should_implement_trait, reason = "an error, and `None` that is not final")]
    pub fn next(&mut self) -> Result<Option<T>> {
        located(|| {
            let job = self.team().job();
            job.running(QUEUE)?;
            {
                let mut state = self.state.borrow_mut();
                state.done += u64::from(std::mem::take(&mut state.is_working));
            }
            if self.team().size() > 1 {
                job.progress_of_test()?;
            }
            loop {
                let taken = {
                    let mut state = self.state.borrow_mut();
                    state.has_received = false;
                    state.failed.take().map_or(Ok(()), Err)?;
                    let item = state.items.pop_back();
                    state.is_working = item.is_some();
                    item
                };
                if taken.is_some() {
                    self.feed()?;
                    return Ok(taken);
                }
                if self.turn()? {
                    return Ok(None);
                }
                let awaited = || Awaited {
                    account: Some(Account::team(self.team().context())),
                    operation: QUEUE,
                    call: 0,
                    from: None,
                };
                job.wait(awaited, || Ok(self.state.borrow().has_received.then_some(())))?;
            }
        })
    }

    /// Gives items to ranks that wait for some.
    fn feed(&self) -> Result<()> {
        loop {
            let (gift, phase) = {
                let mut state = self.state.borrow_mut();
                (state.gift()?, state.phase)
            };
            let Some((rank, bytes)) = gift else { return Ok(()) };
            self.calls.cast(rank, self.give, (phase, bytes))?;
        }
    }

    /// Asks the lifelines and takes part in the rounds, as a rank without items; returns whether all items are done.
    fn turn(&self) -> Result<bool> {
        let (me, ranks, phase) = {
            let state = self.state.borrow();
            (state.me, state.ranks, state.phase)
        };
        for (lifeline, distance) in distances(ranks).enumerate() {
            if !std::mem::replace(&mut self.state.borrow_mut().asked[lifeline], true) {
                self.calls.cast((me + distance) % ranks, self.ask, phase)?;
            }
        }
        loop {
            let (step, children) = {
                let state = &mut *self.state.borrow_mut();
                // An item may have arrived while a message was sent.
                (state.tree.step(state.items.is_empty(), [state.pushed, state.done]), state.tree.children())
            };
            match step {
                None => break,
                Some(Step::Report(parent, sums)) => self.calls.cast(parent, self.report, sums)?,
                Some(Step::Verdict(finished)) => {
                    for child in children {
                        self.calls.cast(child, self.verdict, finished)?;
                    }
                    if finished {
                        let state = &mut *self.state.borrow_mut();
                        state.tree.finished = false;
                        state.phase = phase.wrapping_add(1);
                        state.asked.fill(false);
                        state.hungry.retain(|(of, _)| *of != phase);
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Number of items of this rank. Others may be given away in the next call.
    #[must_use]
    pub fn local_len(&self) -> usize {
        self.state.borrow().items.len()
    }

    /// Frees the queue, in which no item is left. Collective.
    ///
    /// # Errors
    /// `PeerLost`.
    #[track_caller]
    pub fn free(self) -> Result<()> {
        located(|| self.calls.free())
    }
}
