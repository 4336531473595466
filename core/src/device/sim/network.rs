//! Times of messages: the interfaces of the ranks, the links between them, and the delays of a message. Arithmetic
//! only.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rustc_hash::FxHashMap;

use super::{Nodes, Topology};
use crate::device::Placement;
use crate::error::{Error, ErrorKind, Result};

/// Virtual time in picoseconds.
pub(crate) type Time = u64;

/// Converts nanoseconds; at most about a day.
pub(crate) fn picoseconds(nanoseconds: f64) -> Time {
    ((nanoseconds * 1000.0).round() as Time).min(1 << 56)
}

/// The interface of a rank, described by the parameters of LogGP and LogGOPS. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interface {
    /// L: time from the sender's interface to the receiver's.
    pub latency: f64,
    /// o: time of the sender's processor for each message.
    pub send_overhead: f64,
    /// o: time of the receiver's processor for each packet.
    pub receive_overhead: f64,
    /// g: minimum time between two messages.
    pub gap: f64,
    /// G: time for each byte of a message after the first.
    pub gap_per_byte: f64,
    /// O: time of the processor for each byte.
    pub overhead_per_byte: f64,
    /// Time of the interface for each block after the first of the origin's gather or scatter list.
    pub gap_per_block: f64,
}

impl Interface {
    /// An interface of LogP: the same overhead on both sides, and no time for bytes and blocks.
    #[must_use]
    pub fn log_p(latency: f64, overhead: f64, gap: f64) -> Self {
        let (send_overhead, receive_overhead) = (overhead, overhead);
        Self {
            latency,
            send_overhead,
            receive_overhead,
            gap,
            gap_per_byte: 0.0,
            overhead_per_byte: 0.0,
            gap_per_block: 0.0,
        }
    }
}

impl Interface {
    fn times(&self) -> [f64; 7] {
        let Self { latency, send_overhead, receive_overhead, gap, gap_per_byte, overhead_per_byte, gap_per_block } =
            *self;
        [latency, send_overhead, receive_overhead, gap, gap_per_byte, overhead_per_byte, gap_per_block]
    }
}

impl Default for Interface {
    /// Parameters close to those of an HCA of 100 Gbit/s.
    fn default() -> Self {
        Self { gap_per_byte: 0.08, ..Self::log_p(1000.0, 100.0, 100.0) }
    }
}

/// A simulated network. Times are in nanoseconds.
///
/// A message takes o of its sender's processor, enters the network when the sender's interface is free, occupies each
/// link of its route for G per byte and a time for each block of a list, arrives L later, and passes the receiver's
/// interface when that is free: an interface is free again after g plus G per byte of the previous message. Ranks that
/// share a [node](Self::nodes) share its interface. A packet takes o of its receiver's processor when it is polled;
/// writes, reads and atomics take none of the target's. The acknowledgement of a write takes L, and occupies neither
/// interfaces nor links.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// The interface of each rank.
    pub interface: Interface,
    /// The links between the interfaces.
    pub topology: Topology,
    /// The nodes, if ranks share them; otherwise each rank has an interface of its own.
    pub nodes: Option<Nodes>,
    /// Latency of a link, in addition to L.
    pub hop: f64,
    /// Maximum random delay of a message, in addition to L.
    pub jitter: f64,
    /// Whether writes and reads may overtake each other, as far as the contract of
    /// [`Device::post`](super::super::Device::post) permits it: never an atomic, a signal or a packet that the same
    /// rank posts later to the same target.
    pub reorders: bool,
    /// When writes between ranks are visible at their targets.
    pub placement: Placement,
    /// Maximum random time by which a write is placed later than it arrives, unless writes are placed
    /// [in order](Placement::InOrder).
    pub lag: f64,
    /// Whether the interfaces have atomics.
    pub atomics: bool,
    /// Probability that a message is lost in transit; it is then retransmitted after [`retry`](Self::retry).
    pub loss: f64,
    /// Time after which a lost message is retransmitted.
    pub retry: f64,
    /// Links that are down for some time.
    pub down: Vec<Flap>,
    /// Number of posted receives of a rank, shared by all peers: a packet, a signal and a notification each take one
    /// until the rank polls. 0 for an unlimited number.
    pub receives: usize,
    /// Time after which a message that found no posted receive is retransmitted, with those queued behind it to the
    /// same target.
    pub receive_retry: f64,
    /// The in-switch barrier, if the network has one.
    pub switch: Option<Switch>,
}

/// An in-switch barrier (Hoefler 2005, section 3.1) of a [crossbar](Topology::Crossbar), which is a single switch.
/// Times are in nanoseconds.
///
/// A packet takes L between an interface and the switch, and no time for bytes. The barrier of P ranks that enter it
/// together takes o of the senders, L, ⌈log2 P⌉ gates, L, and o of the receivers. Packets that are lost, or that are
/// sent while the interface is down, are retransmitted; the delay of each is random, and packets may overtake each
/// other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Switch {
    /// Maximum number of groups at a time.
    pub ids: u32,
    /// Time for each level of the tree of gates that detects that all ranks have arrived.
    pub gate: f64,
    /// Time after which an unacknowledged packet is retransmitted.
    pub retry: f64,
}

impl Default for Switch {
    /// The 128 ids of the thesis, gates of 10 ns, and a retry after 20 microseconds.
    fn default() -> Self {
        Self { ids: 128, gate: 10.0, retry: 20_000.0 }
    }
}

/// An interval in which no message leaves or reaches a rank; messages wait for its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flap {
    /// The rank.
    pub rank: usize,
    /// The time from which its interface is down, in nanoseconds.
    pub from: f64,
    /// The time at which the interface is up again.
    pub until: f64,
}

impl Default for Network {
    /// The default interface on a crossbar, without faults.
    fn default() -> Self {
        Self {
            interface: Interface::default(),
            topology: Topology::Crossbar,
            nodes: None,
            hop: 0.0,
            jitter: 0.0,
            reorders: false,
            placement: Placement::InOrder,
            lag: 0.0,
            atomics: true,
            loss: 0.0,
            retry: 0.0,
            down: Vec::new(),
            switch: None,
            receives: 0,
            receive_retry: 640_000.0,
        }
    }
}

impl Network {
    /// Checks that the network has room for `ranks` and that its times are valid.
    ///
    /// # Errors
    /// `BadArgument`.
    pub(crate) fn check(&self, ranks: u32) -> Result<()> {
        let within = self.nodes.as_ref().map_or(self.interface, |nodes| nodes.within);
        let times = [self.interface.times(), within.times()].concat();
        // Times are at most a day.
        let is_time = |time: f64| (0.0..=8.64e13).contains(&time);
        let bad = |cause: String| {
            let e = Error::new(ErrorKind::BadArgument, "validate the simulated network").cause(cause);
            Err(e.remedy("give times in nanoseconds, from 0 to a day, and a probability below 1"))
        };
        let flaps = self.down.iter().flat_map(|flap| [flap.from, flap.until]);
        if let Some(time) = times
            .into_iter()
            .chain([self.hop, self.jitter, self.lag, self.retry, self.receive_retry])
            .chain(flaps)
            .find(|time| !is_time(*time))
        {
            return bad(format!("{time} ns is out of range"));
        }
        if !(0.0..1.0).contains(&self.loss) {
            return bad(format!("the loss probability {} is out of range", self.loss));
        }
        if let Some(flap) = self.down.iter().find(|flap| flap.rank >= ranks as usize) {
            return bad(format!("an interface of rank {} goes down, but there are {ranks} ranks", flap.rank));
        }
        if let Some(switch) = self.switch {
            if self.topology != Topology::Crossbar {
                return bad(format!(
                    "topology {} is not a single switch, so it has no in-switch barrier",
                    self.topology
                ));
            }
            if self.nodes.is_some() {
                return bad("the in-switch barrier does not support several ranks per node".to_owned());
            }
            let Switch { ids, gate, retry } = switch;
            if !(1..=1 << 16).contains(&ids) || !is_time(gate) || !is_time(retry) || picoseconds(retry) == 0 {
                return bad(format!(
                    "invalid in-switch barrier: {ids} group ids, gate time {gate} ns, retry time {retry} ns"
                ));
            }
        }
        let endpoints = self.nodes.as_ref().map_or(Ok(ranks), |nodes| nodes.check(ranks))?;
        self.topology.check(endpoints)
    }
}

/// The costs in picoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    pub(super) latency: Time,
    pub(super) send_overhead: Time,
    pub(super) receive_overhead: Time,
    gap: Time,
    gap_per_byte: f64,
    overhead_per_byte: f64,
    gap_per_block: f64,
}

impl Costs {
    pub(super) fn of(interface: &Interface) -> Self {
        Self {
            latency: picoseconds(interface.latency),
            send_overhead: picoseconds(interface.send_overhead),
            receive_overhead: picoseconds(interface.receive_overhead),
            gap: picoseconds(interface.gap),
            gap_per_byte: interface.gap_per_byte,
            overhead_per_byte: interface.overhead_per_byte,
            gap_per_block: interface.gap_per_block,
        }
    }

    /// Time for which a message occupies an interface or a link after its first byte.
    fn stretch(self, message: Passage) -> Time {
        let of_blocks = message.blocks.saturating_sub(1) as f64 * self.gap_per_block;
        picoseconds(message.bytes.saturating_sub(1) as f64 * self.gap_per_byte + of_blocks)
    }

    /// Time of the processor for `bytes`.
    pub(super) fn bytes(self, bytes: usize) -> Time {
        picoseconds(bytes as f64 * self.overhead_per_byte)
    }
}

/// A message in the form that the network model takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passage {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) bytes: usize,
    /// Number of blocks of the origin's list.
    pub(super) blocks: usize,
    /// Whether the message must not overtake earlier messages of its pair.
    pub(super) ordered: bool,
    /// Whether the message is a write that is placed at any time, so that later messages may overtake it.
    pub(super) loose: bool,
}

/// Position of a message in the order of messages: its time, and its rank among messages of the same time.
pub(super) type Place = (Time, u64);

/// The interfaces and links, with the times from which they are free.
pub(super) struct Traffic {
    network: Network,
    /// Costs of the network, and within a node.
    costs: [Costs; 2],
    /// Indexed by [interface](Self::interface).
    out: Vec<Time>,
    into: Vec<Time>,
    links: Vec<Time>,
    /// The last time at which a message of a pair entered the network, kept if messages may be delayed before that.
    entered: FxHashMap<(u32, u32), Time>,
    /// The last position of a message of a pair.
    last: FxHashMap<(u32, u32), Place>,
    random: Xoshiro256PlusPlus,
}

impl Traffic {
    pub(super) fn new(network: Network, ranks: u32, seed: u64) -> Self {
        Self {
            costs: [network.interface, network.nodes.as_ref().map_or(network.interface, |nodes| nodes.within)]
                .map(|interface| Costs::of(&interface)),
            out: vec![0; 2 * ranks as usize],
            into: vec![0; 2 * ranks as usize],
            links: vec![0; network.topology.links()],
            entered: FxHashMap::default(),
            last: FxHashMap::default(),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            network,
        }
    }

    /// Costs of the network between nodes.
    pub(super) fn network_costs(&self) -> Costs {
        self.costs[0]
    }

    /// Costs of messages between two ranks.
    pub(super) fn costs(&self, from: u32, to: u32) -> Costs {
        self.costs[usize::from(self.is_within_node(from, to))]
    }

    fn is_within_node(&self, from: u32, to: u32) -> bool {
        self.network.nodes.as_ref().is_some_and(|nodes| nodes.share(from, to))
    }

    /// The endpoint of a rank in the network: its node, if ranks share nodes.
    pub(super) fn endpoint(&self, rank: u32) -> u32 {
        self.network.nodes.as_ref().map_or(rank, |nodes| nodes.of[rank as usize])
    }

    /// The interface of `rank` for messages to and from `peer`: its own within a node, otherwise that of its endpoint.
    fn interface(&self, rank: u32, peer: u32) -> usize {
        if self.is_within_node(rank, peer) {
            return self.out.len() / 2 + rank as usize;
        }
        self.endpoint(rank) as usize
    }

    /// The lowest rank of each rank's node, if ranks share nodes.
    pub(super) fn nodes(&self) -> Vec<u32> {
        self.network.nodes.as_ref().map_or_else(Vec::new, Nodes::lowest)
    }

    /// A random order among events of the same time.
    pub(super) fn tie(&mut self) -> u64 {
        u64::from(self.random.random::<u32>()) + 1
    }

    /// The time from `time` on at which the interface of a rank is up.
    fn up(&self, rank: u32, mut time: Time) -> Time {
        let down = |time: Time| {
            let flaps = self.network.down.iter().filter(|flap| flap.rank == rank as usize);
            let mut times = flaps.map(|flap| picoseconds(flap.from)..picoseconds(flap.until));
            times.find(|down| down.contains(&time))
        };
        while let Some(down) = down(time) {
            time = down.end;
        }
        time
    }

    /// Sends a message that is at the sender's interface at `ready`; returns the time at which its last attempt enters
    /// the network, not before the earlier messages of its pair that it must not overtake.
    pub(super) fn enter(&mut self, passage: Passage, ready: Time) -> Time {
        let Passage { from, to, ordered, loose, .. } = passage;
        let (costs, interface) = (self.costs(from, to), self.interface(from, to));
        let busy = costs.stretch(passage);
        let enters = ready.max(self.out[interface]);
        let is_within = self.is_within_node(from, to);
        let mut enters = if is_within { enters } else { self.up(from, enters) };
        self.out[interface] = enters + costs.gap + busy;
        let lost = if is_within { 0.0 } else { self.network.loss };
        while lost > 0.0 && self.random.random_bool(lost) {
            enters = self.up(from, enters + picoseconds(self.network.retry));
        }
        if lost > 0.0 || !self.network.down.is_empty() {
            let entered = self.entered.entry((from, to)).or_default();
            if !loose && (ordered || !self.network.reorders) {
                enters = enters.max(*entered);
            }
            if !loose {
                *entered = enters.max(*entered);
            }
        }
        enters
    }

    /// Moves a message that enters the network at `enters` over its links; returns the time at which it is at the
    /// receiver's interface.
    pub(super) fn cross(&mut self, passage: Passage, enters: Time) -> Place {
        let Passage { from, to, ordered, loose, .. } = passage;
        let costs = self.costs(from, to);
        let busy = costs.stretch(passage);
        let (mut time, hop) = (enters, picoseconds(self.network.hop));
        let endpoints = (self.endpoint(from), self.endpoint(to));
        let Self { links, network, .. } = self;
        network.topology.route(endpoints.0, endpoints.1, |link| {
            time = time.max(links[link]);
            links[link] = time + busy;
            time += hop;
        });
        time += costs.latency;
        if !self.is_within_node(from, to) {
            if self.network.jitter > 0.0 {
                time += self.random.random_range(0..=picoseconds(self.network.jitter));
            }
            time = self.up(to, time);
        }
        if loose {
            return (time + self.late(), self.tie());
        }
        let mut place = (time, self.tie());
        let last = self.last.get(&(from, to)).copied().unwrap_or_default();
        if (ordered || !self.network.reorders) && place <= last {
            place = (last.0, last.1 + 1);
        }
        self.last.insert((from, to), place.max(last));
        place
    }

    /// The random time by which a write is placed late.
    pub(super) fn late(&mut self) -> Time {
        self.random.random_range(0..=picoseconds(self.network.lag))
    }

    /// When writes are visible at their targets.
    pub(super) fn placement(&self) -> Placement {
        self.network.placement
    }

    /// Whether the interfaces have atomics.
    pub(super) fn has_atomics(&self) -> bool {
        self.network.atomics
    }

    /// Sends a packet of the in-switch barrier, which is at the rank's interface at `ready`; returns the time at which
    /// it is at the switch, or `None` if it is lost.
    pub(super) fn enter_switch(&mut self, from: u32, ready: Time) -> Option<Place> {
        let enters = ready.max(self.out[from as usize]);
        self.out[from as usize] = enters + self.network_costs().gap;
        self.beside_links(from, enters)
    }

    /// Moves a packet of the in-switch barrier to or from a rank's interface; such packets do not occupy the links.
    pub(super) fn beside_links(&mut self, rank: u32, enters: Time) -> Option<Place> {
        let lost = self.network.loss > 0.0 && self.random.random_bool(self.network.loss);
        let mut time = enters + self.network_costs().latency;
        if self.network.jitter > 0.0 {
            time += self.random.random_range(0..=picoseconds(self.network.jitter));
        }
        let is_up = self.up(rank, enters) == enters && self.up(rank, time) == time;
        (!lost && is_up).then(|| (time, self.tie()))
    }

    /// Receives a message that reaches the receiver's interface at `time`; returns the time at which its last byte has
    /// passed.
    pub(super) fn receive(&mut self, passage: Passage, time: Time) -> Time {
        let Passage { from, to, .. } = passage;
        let (costs, interface) = (self.costs(from, to), self.interface(to, from));
        let (into, busy) = (&mut self.into[interface], costs.stretch(passage));
        let begins = time.max(*into);
        *into = begins + costs.gap + busy;
        begins + busy
    }
}
