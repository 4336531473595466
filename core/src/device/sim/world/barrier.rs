#![allow(unsafe_code)]
//! The in-switch barrier: its protocol in the interfaces, and the transit of its packets.
//!
//! An interface sends the requests of its rank, repeats those that are not acknowledged, and acknowledges every
//! `ready`, independently of its rank. So only the request and its answer take processor time.

use std::cell::RefMut;

use super::World;
use crate::device::sim::events::Happens;
use crate::device::sim::flight::Incoming;
use crate::device::sim::network::{self, Network, Passage, Place, Time, picoseconds};
use crate::device::sim::switch::{Hop, Packet, Request, Sent, Switch};
use crate::device::{BarrierRequest, Leave, Operation, Posted, SwitchLimits};
use crate::error::{ErrorKind, Result};

/// A request of a rank in progress.
struct Asked {
    packet: Packet,
    /// Id of the work request.
    id: u64,
    /// Receives the group of `getId`; null if the request was cancelled.
    group: *mut u64,
    is_acknowledged: bool,
}

/// The interface of a rank.
#[derive(Default)]
struct Port {
    asked: Vec<Asked>,
    /// Number of the last request.
    last: u64,
}

pub(crate) struct SwitchBarrier {
    limits: SwitchLimits,
    switch: Switch,
    ports: Vec<Port>,
    gate: f64,
    retry: Time,
}

impl SwitchBarrier {
    pub(in crate::device::sim) fn new(settings: &network::Switch, network: &Network, ranks: u32) -> Self {
        Self {
            limits: SwitchLimits { groups: settings.ids, least_nodes: least_nodes(settings, network, ranks) },
            switch: Switch::new(settings.ids, ranks),
            ports: (0..ranks).map(|_| Port::default()).collect(),
            gate: settings.gate,
            retry: picoseconds(settings.retry),
        }
    }
}

/// The smallest number of nodes at which the in-switch barrier takes less time than signals: one round for each
/// doubling of the nodes and, if ranks share nodes, one within a node before and one after these.
fn least_nodes(switch: &network::Switch, network: &Network, ranks: u32) -> u32 {
    let levels = |n: u32| f64::from(n.next_power_of_two().trailing_zeros());
    let i = &network.interface;
    let (nodes, within) = match &network.nodes {
        Some(nodes) => (
            nodes.of.iter().max().map_or(1, |most| most + 1),
            2.0 * (nodes.within.send_overhead + nodes.within.latency),
        ),
        None => (ranks, 0.0),
    };
    let each = ranks.div_ceil(nodes.max(1));
    let by_switch = |n: u32| i.send_overhead + 2.0 * i.latency + switch.gate * levels(n * each) + i.receive_overhead;
    let round = i.send_overhead + i.latency;
    let by_signals = |n: u32| within + round + (levels(n) - 1.0) * round.max(i.gap);
    (2..=nodes).find(|n| by_switch(*n) < by_signals(*n)).unwrap_or(u32::MAX)
}

impl World {
    /// Limits of the in-switch barrier; `None` if there is no such barrier.
    pub(in crate::device::sim) fn switch_limits(&self) -> Option<SwitchLimits> {
        self.switch.as_ref().map(|switch| switch.borrow().limits)
    }

    fn barrier(&self) -> Option<RefMut<'_, SwitchBarrier>> {
        self.switch.as_ref().map(|switch| switch.borrow_mut())
    }

    /// Makes a request of rank `me`, after the overhead of the processor.
    pub(in crate::device::sim) fn ask(&self, me: u32, asked: BarrierRequest, id: u64) -> Result<Posted> {
        let Some(mut barrier) = self.barrier() else { return Err(Operation::Barrier(asked).unsupported(me, "sim")) };
        let port = &mut barrier.ports[me as usize];
        let is_opening = port.asked.iter().any(|asked| asked.packet.request == Request::GetId);
        if is_opening && matches!(asked, BarrierRequest::Open { .. }) {
            return Ok(Posted::Busy);
        }
        port.last += 1;
        let mut into = std::ptr::null_mut();
        let packet = match asked {
            BarrierRequest::Open { group } => {
                into = group;
                Packet::new(Request::GetId, Switch::NO_GROUP, port.last)
            }
            BarrierRequest::Join { group } => Packet::new(Request::Participate, group, port.last),
            BarrierRequest::Enter { group, number } => Packet::new(Request::Reached, group, number),
            BarrierRequest::Close { group } => Packet::new(Request::Free, group, port.last),
        };
        port.asked.push(Asked { packet, id, group: into, is_acknowledged: false });
        drop(barrier);
        self.work(me, self.traffic.borrow().network_costs().send_overhead);
        let flying = &self.rank(me).flying;
        flying.set(flying.get() + 1);
        self.send_up(me, packet, self.clock(me));
        Ok(if packet.request == Request::Free { Posted::Done } else { Posted::Pending })
    }

    /// Sends a packet to the switch, and repeats it later if it is a request. Acknowledgements occupy no interface.
    fn send_up(&self, rank: u32, packet: Packet, ready: Time) {
        let mut traffic = self.traffic.borrow_mut();
        let there = if packet.is_ack { traffic.beside_links(rank, ready) } else { traffic.enter_switch(rank, ready) };
        drop(traffic);
        self.send(rank, packet, ready, there.map(|place| (place, Hop::AtSwitch)), Hop::PortRepeats);
    }

    /// Sends a packet from the switch, and repeats it later if it is a request.
    fn send_down(&self, rank: u32, packet: Packet, ready: Time) {
        let there = self.traffic.borrow_mut().beside_links(rank, ready);
        self.send(rank, packet, ready, there.map(|place| (place, Hop::AtPort)), Hop::SwitchRepeats);
    }

    fn send(&self, rank: u32, packet: Packet, ready: Time, there: Option<(Place, Hop)>, again: Hop) {
        if let Some((place, hop)) = there {
            self.push(place, Happens::Barrier { rank, packet, hop });
        }
        if !packet.is_ack {
            self.count(0);
            let retry = self.barrier().map_or(0, |barrier| barrier.retry);
            self.push((ready + retry, 0), Happens::Barrier { rank, packet, hop: again });
        }
    }

    /// Handles the arrival of a packet at the switch or at an interface.
    pub(in crate::device::sim) fn hop(&self, rank: u32, packet: Packet, hop: Hop, time: Time) {
        let Some(mut barrier) = self.barrier() else { return };
        let SwitchBarrier { switch, ports, gate, .. } = &mut *barrier;
        // The interface of a lost rank handles no packets.
        if hop != Hop::SwitchRepeats && hop != Hop::AtSwitch && self.rank(rank).ended.get() == Some(Leave::Lost) {
            return;
        }
        match hop {
            Hop::AtSwitch => {
                let Sent { answer, ready } = switch.take(rank, packet);
                let gate = *gate;
                drop(barrier);
                if let Some(answer) = answer {
                    self.send_down(rank, answer, time);
                }
                if let Some((ready, members)) = ready {
                    let levels = members.len().next_power_of_two().trailing_zeros();
                    let at = time + picoseconds(gate * f64::from(levels));
                    members.into_iter().for_each(|member| self.send_down(member, ready, at));
                }
            }
            Hop::AtPort if packet.request == Request::Ready => {
                drop(barrier);
                let passage = Passage { from: rank, to: rank, bytes: 0, blocks: 1, ordered: false, loose: false };
                let through = self.traffic.borrow_mut().receive(passage, time);
                if through > time {
                    self.push((through, 0), Happens::Barrier { rank, packet, hop: Hop::Through });
                } else {
                    self.deliver(rank, packet, time);
                }
            }
            Hop::AtPort | Hop::Through => {
                drop(barrier);
                self.deliver(rank, packet, time);
            }
            Hop::PortRepeats => {
                let is_open = |asked: &Asked| asked.packet == packet && !asked.is_acknowledged;
                if ports[rank as usize].asked.iter().any(is_open) {
                    drop(barrier);
                    self.send_up(rank, packet, time);
                }
            }
            Hop::SwitchRepeats => {
                if switch.awaits_ack(rank, &packet) {
                    drop(barrier);
                    self.send_down(rank, packet, time);
                }
            }
        }
    }

    /// Handles a packet of the switch at the interface of a rank.
    fn deliver(&self, rank: u32, packet: Packet, time: Time) {
        self.write_back(rank);
        if !packet.is_ack {
            self.send_up(rank, packet.answered(true), time);
        }
        let Some(mut barrier) = self.barrier() else { return };
        let port = &mut barrier.ports[rank as usize];
        // The end of a barrier answers the request to enter it.
        let request = if packet.request == Request::Ready { Request::Reached } else { packet.request };
        let answered = Packet { request, ..packet };
        let Some(at) = port.asked.iter().position(|asked| answered.is_about(&asked.packet)) else { return };
        if packet.request == Request::Reached && !packet.refused {
            port.asked[at].is_acknowledged = true;
            return;
        }
        let asked = port.asked.swap_remove(at);
        if asked.packet.request == Request::GetId && asked.group.is_null() {
            // The request was cancelled, so no rank uses its group.
            let free = Packet::new(Request::Free, packet.group, port.last + 1);
            if packet.group != Switch::NO_GROUP {
                port.last += 1;
                port.asked.push(Asked { packet: free, ..asked });
                drop(barrier);
                return self.send_up(rank, free, time);
            }
        }
        drop(barrier);
        self.answer(rank, &asked, packet, time);
    }

    /// Ends a request of a rank.
    fn answer(&self, rank: u32, asked: &Asked, packet: Packet, time: Time) {
        let r = self.rank(rank);
        r.flying.set(r.flying.get() - 1);
        if !asked.group.is_null() {
            // SAFETY: valid until the request is complete or cancelled, by the contract of `post`; not cancelled.
            unsafe { asked.group.write_unaligned(packet.group) };
        }
        let is_reported = match asked.packet.request {
            Request::GetId => !asked.group.is_null(),
            request => request != Request::Free,
        };
        if is_reported {
            let result = if packet.refused {
                let e = self.fail(ErrorKind::BadArgument, rank);
                Err(e.cause(
                    "the switch rejects it: the barrier's group was freed, or has an earlier barrier in progress",
                ))
            } else {
                Ok(())
            };
            r.inbox.borrow_mut().push_back(Incoming::Answered { id: asked.id, result });
            self.wake(rank, time);
        } else if r.flying.get() == 0 && r.ended.get().is_none() {
            self.wake(rank, time);
        }
    }

    /// Drops requests of a rank whose id satisfies `which`. The switch may already have received them.
    pub(in crate::device::sim) fn cancel(&self, rank: u32, which: &dyn Fn(u64) -> bool) {
        let r = self.rank(rank);
        r.inbox.borrow_mut().retain(|incoming| !matches!(incoming, Incoming::Answered { id, .. } if which(*id)));
        let Some(mut barrier) = self.barrier() else { return };
        let asked = &mut barrier.ports[rank as usize].asked;
        let before = asked.len();
        asked.retain_mut(|asked| match asked.packet.request {
            Request::Free => true,
            Request::GetId => {
                if which(asked.id) {
                    asked.group = std::ptr::null_mut();
                }
                true
            }
            _ => !which(asked.id),
        });
        r.flying.set(r.flying.get() - (before - asked.len()) as u32);
    }
}
