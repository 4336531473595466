#![allow(unsafe_code)]
//! Lists on both sides: the gathers of a rank to a peer and the scatters of that peer are matched in their order.

use std::collections::VecDeque;
use std::rc::Rc;

use super::World;
use crate::device::owned::Owned;
use crate::device::request::length;
use crate::device::sim::events::Happens;
use crate::device::sim::flight::Flight;
use crate::device::sim::network::Time;
use crate::device::{Block, Lists};
use crate::error::{Error, ErrorKind};
use crate::memory::copy;

/// Limits of a list: as many blocks as an HCA supports.
pub(in crate::device::sim) const LIMITS: Lists = Lists { blocks: 32, bytes: 1 << 30 };

/// Time for which a gather waits for a scatter.
const GATHER_TIMEOUT: Time = 4_000_000_000_000;

/// Lists of a pair of ranks that are not matched: gathers that have arrived, or scatters.
#[derive(Default)]
pub(in crate::device::sim) struct Unmatched {
    gathers: VecDeque<Rc<Flight>>,
    scatters: VecDeque<Rc<Flight>>,
}

impl Unmatched {
    /// Removes the first gather and the first scatter, if both exist.
    fn pair(&mut self) -> Option<(Rc<Flight>, Rc<Flight>)> {
        for lists in [&mut self.gathers, &mut self.scatters] {
            lists.retain(|flight| !flight.is_cancelled());
        }
        if self.gathers.is_empty() || self.scatters.is_empty() {
            return None;
        }
        self.gathers.pop_front().zip(self.scatters.pop_front())
    }
}

fn blocks(flight: &Flight) -> &[Block] {
    match &flight.operation {
        Owned::List { local, .. } => local,
        _ => &[],
    }
}

fn len(flight: &Flight) -> usize {
    length(blocks(flight))
}

/// Copies the bytes of a gather into the blocks of a scatter that has room for them.
fn transfer(gather: &Flight, scatter: &Flight) {
    let (mut into, mut done) = (blocks(scatter).iter(), 0);
    let mut to = into.next();
    for from in blocks(gather) {
        let mut taken = 0;
        while let Some(block) = to.filter(|_| taken < from.len) {
            let part = (from.len - taken).min(block.len - done);
            // SAFETY: both blocks are valid until their requests are complete or cancelled, by the contract of `post`; the
            // requests are neither, and the part is inside both.
            unsafe { copy::load(from.base.wrapping_add(taken), block.base.wrapping_add(done), part) };
            (taken, done) = (taken + part, done + part);
            if done == block.len {
                (to, done) = (into.next(), 0);
            }
        }
    }
}

impl World {
    /// Posts a scatter of its origin for the gathers of its target.
    pub(in crate::device::sim) fn scatter(&self, flight: &Rc<Flight>, time: Time) {
        let pair = (flight.target, flight.origin);
        self.lists.borrow_mut().entry(pair).or_default().scatters.push_back(Rc::clone(flight));
        self.match_lists(pair, time);
    }

    /// Handles a gather that has arrived.
    pub(in crate::device::sim) fn gather(&self, flight: Rc<Flight>, time: Time) {
        let pair = (flight.origin, flight.target);
        self.lists.borrow_mut().entry(pair).or_default().gathers.push_back(Rc::clone(&flight));
        self.match_lists(pair, time);
        let waits = self.lists.borrow().get(&pair).is_some_and(|l| l.gathers.iter().any(|g| Rc::ptr_eq(g, &flight)));
        if waits {
            self.push((time + GATHER_TIMEOUT, 0), Happens::Unmatched(flight));
        }
    }

    /// Ends a gather for which there was no scatter.
    pub(in crate::device::sim) fn give_up(&self, flight: &Rc<Flight>, time: Time) {
        let mut lists = self.lists.borrow_mut();
        let Some(unmatched) = lists.get_mut(&(flight.origin, flight.target)) else { return };
        let before = unmatched.gathers.len();
        unmatched.gathers.retain(|gather| !Rc::ptr_eq(gather, flight));
        let waited = unmatched.gathers.len() < before;
        drop(lists);
        if waited {
            let cause = "the peer posted no scatter list for the message within several seconds";
            self.end_list(flight, time, Some((ErrorKind::Timeout, cause)));
        }
    }

    fn match_lists(&self, pair: (u32, u32), time: Time) {
        loop {
            let matched = self.lists.borrow_mut().entry(pair).or_default().pair();
            let Some((gather, scatter)) = matched else { return };
            if len(&gather) > len(&scatter) {
                let error = Some((ErrorKind::BadArgument, "the message is longer than the peer's scatter list"));
                self.end_list(&scatter, time, error);
                self.end_list(&gather, time, error);
                for pair in [pair, (pair.1, pair.0)] {
                    let others = self.lists.borrow_mut().remove(&pair).unwrap_or_default();
                    others.gathers.iter().chain(&others.scatters).for_each(|other| self.end_list(other, time, error));
                }
                return;
            }
            transfer(&gather, &scatter);
            self.end_list(&scatter, time, None);
            self.end_list(&gather, time, None);
        }
    }

    /// Completes a list; a gather completes when its acknowledgement has arrived.
    fn end_list(&self, flight: &Rc<Flight>, time: Time, error: Option<(ErrorKind, &'static str)>) {
        if let Some((kind, cause)) = error {
            let e = Error::new(kind, "transfer a list").rank(flight.origin).peer(flight.target).device("sim");
            flight.set_result(Err(e.cause(cause)));
        }
        let pair = (flight.origin, flight.target);
        let back = if matches!(flight.operation, Owned::List { send: true, .. }) {
            self.costs(pair.0, pair.1).latency
        } else {
            0
        };
        self.push((time + back, 0), Happens::Complete(Rc::clone(flight)));
    }
}
