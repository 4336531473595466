//! The routes to a peer: directly, to each of its addresses, or over a rank that relays the bytes.
//!
//! Without a routing table, a rank is reached directly if possible, and otherwise over ranks of a third host that
//! shares a network with both hosts. The sum of a pair's numbers determines its relay, so that both ranks choose the
//! same one, and pairs spread over all possible relays. With a table, the table's next node is tried first.

use std::fmt;
use std::net::SocketAddr;

use super::address::{EndpointAddress, Host};
use crate::device::routing::RoutingTable;

/// Maximum number of relays that are tried for a pair.
const MAX_RELAYS: usize = 3;

/// A route to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Direct(SocketAddr),
    /// Over this rank as a relay.
    Over(u32),
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct(at) => write!(f, "at {at}"),
            Self::Over(rank) => write!(f, "over rank {rank}"),
        }
    }
}

/// A round of attempts to connect to a peer, over one route after the other.
#[derive(Default)]
pub(super) struct Round {
    pub(super) ways: Vec<Way>,
    /// The index of the route that the device is trying.
    pub(super) at: usize,
    pub(super) has_relays: bool,
    /// Whether an address of the peer refused a connection, and whether one has accepted a connection.
    pub(super) is_refused: bool,
    pub(super) is_reached: bool,
    pub(super) failures: Vec<String>,
}

/// Data about all ranks that is known when the device is opened.
pub(super) struct Topology {
    pub(super) addresses: Vec<EndpointAddress>,
    pub(super) hosts: Vec<Host>,
    pub(super) table: RoutingTable,
}

impl Topology {
    /// The addresses of a peer, those of a common network first.
    pub(super) fn direct(&self, me: u32, peer: u32) -> Vec<Way> {
        let own = &self.hosts[me as usize];
        let mut all: Vec<SocketAddr> = self.addresses[peer as usize].at.clone();
        if own.name != self.hosts[peer as usize].name {
            // An address that this host has too leads to this host.
            all.retain(|at| at.ip().is_loopback() || !own.has(at.ip()));
        }
        all.sort_by_key(|at| !own.reaches(at.ip()));
        all.into_iter().map(Way::Direct).collect()
    }

    fn node(&self, rank: u32) -> Option<u32> {
        self.table.node(&self.hosts[rank as usize].node)
    }

    /// The routes that are tried first: that of the table, and direct ones. If `is_relay`, this rank relays bytes for a
    /// pair, and uses only the route of the table, if there is one.
    pub(super) fn first(&self, me: u32, peer: u32, is_relay: bool) -> Vec<Way> {
        let next = self.node(me).zip(self.node(peer)).and_then(|(from, to)| Some((self.table.next(from, to)?, to)));
        let mut ways = match next {
            Some((next, to)) if next != to => self.spread(me, peer, |rank| self.node(rank) == Some(next)),
            _ => Vec::new(),
        };
        if ways.is_empty() || !is_relay {
            ways.extend(self.direct(me, peer));
        }
        ways
    }

    /// The routes over ranks of hosts that share networks with both.
    pub(super) fn relays(&self, me: u32, peer: u32) -> Vec<Way> {
        let [a, b] = [me, peer].map(|rank| &self.hosts[rank as usize]);
        self.spread(me, peer, |rank| {
            let host = &self.hosts[rank as usize];
            a.name != b.name && ![&a.name, &b.name].contains(&&host.name) && host.shares(a) && host.shares(b)
        })
    }

    /// Selects some of the ranks that can serve a pair.
    fn spread(&self, me: u32, peer: u32, can: impl Fn(u32) -> bool) -> Vec<Way> {
        let mut all: Vec<u32> =
            (0..self.hosts.len() as u32).filter(|rank| *rank != me && *rank != peer && can(*rank)).collect();
        if !all.is_empty() {
            let first = (me as usize + peer as usize) % all.len();
            all.rotate_left(first);
        }
        all.into_iter().take(MAX_RELAYS).map(Way::Over).collect()
    }

    /// Whether other ranks may need this rank as a relay.
    pub(super) fn may_relay(&self, me: u32) -> bool {
        let own = &self.hosts[me as usize];
        let mut others = self.hosts.iter().filter(|host| host.name != own.name && host.shares(own));
        let first = others.next().map(|host| &host.name);
        self.table != RoutingTable::default() || others.any(|host| Some(&host.name) != first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ranks on each of the hosts a, b and c; a and c have no common network.
    fn triangle(table: &str) -> Topology {
        let host = |name: &str, networks: &str| Host::of(name, networks);
        let hosts = [host("a", "10.0.1.1/24"), host("b", "10.0.1.2/24 10.0.2.2/24"), host("c", "10.0.2.3/24")];
        let hosts: Vec<Host> = hosts.into_iter().flat_map(|host| [host.clone(), host]).collect();
        let addresses = (5000..).zip(&hosts).map(|(port, host)| EndpointAddress {
            at: host.addresses().map(|ip| (ip, port).into()).collect(),
            encrypts: false,
        });
        Topology { addresses: addresses.collect(), table: RoutingTable::read(table).unwrap_or_default(), hosts }
    }

    fn over(ranks: &[u32]) -> Vec<Way> {
        ranks.iter().copied().map(Way::Over).collect()
    }

    #[test]
    fn both_ranks_of_a_pair_choose_the_same_relay_and_pairs_spread() {
        let topology = triangle("");
        assert_eq!((topology.relays(0, 4), topology.relays(4, 0)), (over(&[2, 3]), over(&[2, 3])));
        assert_eq!((topology.relays(0, 5), topology.relays(5, 0)), (over(&[3, 2]), over(&[3, 2])));
        assert_eq!((topology.relays(0, 1), topology.relays(0, 2)), (vec![], vec![]));
        let at = |text: &str| Way::Direct(text.parse().unwrap());
        assert_eq!(topology.first(0, 4, false), [at("10.0.2.3:5004")]);
        // The address in the common network is tried first.
        assert_eq!(topology.first(4, 2, false), [at("10.0.2.2:5002"), at("10.0.1.2:5002")]);
        assert!(topology.may_relay(2));
    }

    #[test]
    fn table_decides_the_next_node() {
        let routes = [("a", "b", "c"), ("b", "a", "b"), ("c", "c", "a")].map(|(from, next, to)| {
            format!("[[routes]]\nfrom = \"{from}\"\nto = \"{to}\"\nnext = [\"{next}\", \"{next}\", \"{next}\"]\n")
        });
        let topology = triangle(&format!("version = 1\nnodes = [\"a\", \"b\", \"c\"]\n{}", routes.concat()));
        let at = |text: &str| Way::Direct(text.parse().unwrap());
        assert_eq!(topology.first(0, 4, false), [over(&[2, 3]), vec![at("10.0.2.3:5004")]].concat());
        assert_eq!(topology.first(0, 5, true), over(&[3, 2]));
        assert_eq!(topology.first(2, 4, true), [at("10.0.2.3:5004")]);
    }
}
