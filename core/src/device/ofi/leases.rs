//! Leases: permissions to access a peer's region. A provider may still write to memory whose registration is closed,
//! for an operation that had begun, and some do not check keys at all. So a rank asks the owner of a region before its
//! first access, and the owner of memory that is about to be released waits until all that have asked have finished.
//!
//! | event | messages |
//! |---|---|
//! | first access of a rank to a region | `Use` and `Granted` |
//! | release | `Revoked` to each user, `Ended` from each |
//! | the region is forgotten | `Ended` |

use rustc_hash::FxHashMap;

use super::message::Message;
use crate::slots::Slots;

/// Where a region is, as its owner says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exposure {
    /// The address at the provider of offset 0.
    pub address: u64,
    pub key: u64,
    pub len: u64,
}

/// The state of a lease at the rank that accesses the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not asked for.
    New,
    Asked,
    Granted(Exposure),
    /// The region is gone.
    Revoked,
}

/// The lease of a peer's region.
#[derive(Debug)]
struct Lease {
    peer: u32,
    region: u64,
    state: State,
    /// Number of requests in progress.
    open: usize,
    /// Number of imports.
    imports: usize,
    /// Whether it has been given back.
    has_ended: bool,
}

/// The leases of this rank.
#[derive(Debug, Default)]
pub(super) struct Leases {
    all: Slots<Lease>,
    by_region: FxHashMap<(u32, u64), u64>,
}

impl Leases {
    /// The lease of a region that is imported; several imports share it.
    pub(super) fn import(&mut self, peer: u32, region: u64) -> u64 {
        let all = &mut self.all;
        let number = *self.by_region.entry((peer, region)).or_insert_with(|| {
            let number = all.next();
            all.add(Lease { peer, region, state: State::New, open: 0, imports: 0, has_ended: false });
            number
        });
        if let Some(lease) = all.get_mut(number) {
            lease.imports += 1;
        }
        number
    }

    /// Ends an import.
    #[must_use]
    pub(super) fn forget(&mut self, number: u64) -> Option<(u32, Message)> {
        self.all.get_mut(number)?.imports -= 1;
        self.end_if_idle(number)
    }

    /// The state before an access; a new lease is asked for by the returned message.
    pub(super) fn state(&mut self, number: u64) -> (State, Option<(u32, Message)>) {
        let Some(lease) = self.all.get_mut(number) else { return (State::Revoked, None) };
        match lease.state {
            State::New => {
                lease.state = State::Asked;
                (State::Asked, Some((lease.peer, Message::Use { region: lease.region, lease: number })))
            }
            state => (state, None),
        }
    }

    /// Counts a request.
    pub(super) fn begin(&mut self, number: u64) {
        self.all.get_mut(number).into_iter().for_each(|lease| lease.open += 1);
    }

    /// Ends a request.
    #[must_use]
    pub(super) fn finish(&mut self, number: u64) -> Option<(u32, Message)> {
        self.all.get_mut(number)?.open -= 1;
        self.end_if_idle(number)
    }

    pub(super) fn granted(&mut self, from: u32, number: u64, at: Exposure) {
        if let Some(lease) = self.all.get_mut(number).filter(|lease| lease.peer == from && lease.state == State::Asked)
        {
            lease.state = State::Granted(at);
        }
    }

    #[must_use]
    pub(super) fn revoked(&mut self, from: u32, number: u64) -> Option<(u32, Message)> {
        self.all.get_mut(number).filter(|lease| lease.peer == from)?.state = State::Revoked;
        self.end_if_idle(number)
    }

    /// Gives a lease back that was revoked, or whose imports are gone, if no request uses it.
    fn end_if_idle(&mut self, number: u64) -> Option<(u32, Message)> {
        let lease = self.all.get_mut(number)?;
        let is_over = lease.imports == 0 || lease.state == State::Revoked;
        if lease.open > 0 || !is_over {
            return None;
        }
        let had_ended = lease.has_ended || lease.state == State::New;
        lease.has_ended = true;
        let (peer, region, is_unused) = (lease.peer, lease.region, lease.imports == 0);
        if is_unused {
            self.all.remove(number);
            self.by_region.remove(&(peer, region));
        }
        (!had_ended).then_some((peer, Message::Ended { region, lease: number }))
    }

    /// Gives all leases back, before this rank leaves; no request is in progress.
    pub(super) fn end_all(&mut self) -> Vec<(u32, Message)> {
        let asked: Vec<u64> = self.all.iter().filter(|(_, lease)| lease.state != State::New).map(|all| all.0).collect();
        let mut ended = Vec::new();
        for number in asked {
            self.all.get_mut(number).into_iter().for_each(|lease| lease.state = State::Revoked);
            ended.extend(self.end_if_idle(number));
        }
        ended
    }
}

/// The users of a region of this rank, each with the number of its lease.
pub(super) type Users = FxHashMap<u32, u64>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_is_asked_for_once_and_given_back_after_the_last_request() {
        let mut leases = Leases::default();
        let (number, region) = (leases.import(3, 9), 9);
        assert_eq!(leases.import(3, 9), number);
        let asked = leases.state(number);
        assert_eq!(asked, (State::Asked, Some((3, Message::Use { region, lease: number }))));
        assert_eq!(leases.state(number), (State::Asked, None));
        // Only the owner grants or revokes it.
        let at = Exposure { address: 0, key: 1, len: 2 };
        leases.granted(4, number, at);
        assert_eq!(leases.revoked(4, number), None);
        assert_eq!(leases.state(number).0, State::Asked);
        leases.granted(3, number, at);
        assert_eq!(leases.state(number).0, State::Granted(at));
        leases.begin(number);
        leases.begin(number);
        assert_eq!((leases.revoked(3, number), leases.finish(number)), (None, None));
        assert_eq!(leases.finish(number), Some((3, Message::Ended { region, lease: number })));
        assert_eq!(leases.state(number).0, State::Revoked);
        assert_eq!((leases.forget(number), leases.forget(number)), (None, None));
        // A number is not used again, so a late grant is not taken for another lease.
        assert_ne!(leases.import(3, 9), number);
    }

    #[test]
    fn forgotten_region_ends_its_lease_if_it_was_asked_for() {
        let mut leases = Leases::default();
        let unused = leases.import(1, 1);
        assert_eq!(leases.forget(unused), None);
        let used = leases.import(1, 2);
        let _ = leases.state(used);
        leases.begin(used);
        assert_eq!(leases.forget(used), None);
        assert_eq!(leases.finish(used), Some((1, Message::Ended { region: 2, lease: used })));
        let kept = leases.import(1, 3);
        let _ = leases.state(kept);
        assert_eq!(leases.end_all(), [(1, Message::Ended { region: 3, lease: kept })]);
        assert!(leases.end_all().is_empty());
    }
}
