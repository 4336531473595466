//! Changes of a port's address: a subnet manager may give a port another LID, another subnet prefix, or another table of
//! partition keys, while jobs run. A rank that sees such an event queries its port again, and tells all peers until they
//! have noted it; connections that are made afterwards, and datagrams, use the new address. Connections that exist keep
//! the former one, and fail if it no longer leads to the port.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::super::address::{EndpointAddress, Message};
use super::super::partition;
use super::super::sys::Gid;
use super::links::{Links, Peer, REPEAT, REPEAT_MOST, Table};

/// The address of a port in its subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) lid: u16,
    pub(crate) gid: Gid,
}

/// What a rank knows of the moves of one peer, and the peer of this rank's.
#[derive(Default)]
pub(crate) struct Moves {
    /// The peer's location after its latest move of which this rank was informed, and the number of that move.
    at: Option<(u32, Location)>,
    /// The time at which to inform the peer of this rank's latest move, and the pause after that.
    unnoted: Option<(Instant, Duration)>,
}

impl Moves {
    /// Location of a peer whose endpoint address is `address`.
    pub(crate) fn location(&self, address: &EndpointAddress) -> Location {
        self.at.map_or(Location { lid: address.lid, gid: address.gid }, |(_, location)| location)
    }

    /// Records that the peer says that it has moved.
    pub(super) fn moved(&mut self, number: u32, location: Location) {
        if self.at.is_none_or(|(last, _)| number.wrapping_sub(last) as i32 > 0) {
            self.at = Some((number, location));
        }
    }

    /// The peer is to be informed of this rank's latest move.
    fn announce(&mut self, now: Instant) {
        self.unnoted = Some((now, REPEAT));
    }

    /// The peer has noted this rank's latest move, or needs to know no more.
    pub(super) fn noted(&mut self) {
        self.unnoted = None;
    }

    /// Whether it is time to inform the peer, and when it is next.
    pub(super) fn due(&mut self, now: Instant) -> (bool, Option<Instant>) {
        let Some((due, pause)) = &mut self.unnoted else { return (false, None) };
        let is_due = *due <= now;
        if is_due {
            (*due, *pause) = (now + *pause, (*pause * 2).min(REPEAT_MOST));
        }
        (is_due, Some(*due))
    }
}

/// This rank's latest move: its number, and the location.
pub(crate) type Own = Option<(u32, Location)>;

/// Records where this rank's port is now; returns whether that is a move.
fn relocate(own: &mut Own, first: Location, now: Location) -> bool {
    let (number, before) = own.unwrap_or((0, first));
    if before == now {
        return false;
    }
    *own = Some((number + 1, now));
    true
}

impl Links {
    /// Queries the port again after its addresses or partition keys may have changed.
    pub(crate) fn refresh(&self) {
        let (Ok(port), Ok(gid)) =
            (self.context.port(self.choice.port), self.context.gid(self.choice.port, self.choice.gid_index))
        else {
            return tracing::warn!("{} cannot be queried after its addresses have changed", self.port());
        };
        let keys = self.context.partition_keys(self.choice.port, port.pkey_tbl_len);
        match partition::choose(&keys, Some(self.addresses[self.me as usize].partition)) {
            // Relaxed: only a number; queue pairs created meanwhile have one index or the other.
            Ok((index, _)) => self.pkey_index.store(index, Ordering::Relaxed),
            Err(e) => tracing::warn!("{}: {e}", self.port()),
        }
        // A GID that was removed from the table may come back.
        let gid = if gid == [0; 16] { self.choice.gid } else { gid };
        let mut table = self.lock();
        let first = Location { lid: self.choice.lid, gid: self.choice.gid };
        if relocate(&mut table.own, first, Location { lid: port.lid, gid }) {
            tracing::warn!("{} has another address: {:?}", self.port(), table.own);
            let now = Instant::now();
            let others = table.peers.iter_mut().enumerate().filter(|(rank, _)| *rank != self.me as usize);
            others.filter(|(_, peer)| is_informed(peer)).for_each(|(_, peer)| peer.moves.announce(now));
            let own = table.own;
            table.peers[self.me as usize].moves.at = own;
        }
    }

    /// The message of this rank's latest move.
    pub(super) fn move_message(table: &Table) -> Option<Message> {
        table.own.map(|(number, Location { lid, gid })| Message::Moved { number, lid, gid })
    }
}

/// Whether the peer is informed of moves.
fn is_informed(peer: &Peer) -> bool {
    !peer.left && peer.lost.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(lid: u16) -> Location {
        Location { lid, gid: [lid as u8; 16] }
    }

    #[test]
    fn moves_are_numbered_and_a_port_that_stays_has_none() {
        let mut own = None;
        assert!(!relocate(&mut own, location(1), location(1)) && own.is_none());
        assert!(relocate(&mut own, location(1), location(2)));
        assert!(!relocate(&mut own, location(1), location(2)));
        assert!(relocate(&mut own, location(1), location(1)), "back again");
        assert_eq!(own, Some((2, location(1))));
    }

    #[test]
    fn late_messages_of_former_moves_are_ignored() {
        let mut moves = Moves::default();
        let at = |moves: &Moves| moves.at.map(|(_, location)| location);
        for (number, lid, expected) in [(1, 5, 5), (3, 7, 7), (2, 6, 7), (3, 8, 7), (4, 9, 9)] {
            moves.moved(number, location(lid));
            assert_eq!(at(&moves), Some(location(expected)), "{number}");
        }
    }

    #[test]
    fn peer_is_informed_again_until_it_has_noted_the_move() {
        let (mut moves, start) = (Moves::default(), Instant::now());
        assert_eq!(moves.due(start), (false, None));
        moves.announce(start);
        assert_eq!(moves.due(start), (true, Some(start + REPEAT)));
        assert_eq!(moves.due(start), (false, Some(start + REPEAT)));
        assert_eq!(moves.due(start + REPEAT), (true, Some(start + 3 * REPEAT)));
        moves.noted();
        assert_eq!(moves.due(start + REPEAT_MOST), (false, None));
    }
}
