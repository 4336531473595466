//! The in-switch barrier (Hoefler 2005, section 3.1): packets, and the logic of the switch without time.
//!
//! The switch has lines of bits, two for each of I barriers, with a bit for each of N ports and one more. Bit n of line
//! i means that port n has reached barrier i, and bit n of line i + I that port n does not participate. Bit N of line i
//! is the conjunction of "reached, or does not participate" over all ports; bit N of line i + I means that the barrier
//! is in use. Line i + 2 I is not in the thesis: bit n means that port n has not acknowledged the last `ready`.
//!
//! Packets may be lost, delayed and reordered. The sender of a request repeats it until it is acknowledged, so a
//! request may arrive several times. It has its effect only once, since it contains more than the 11 bits of the
//! thesis:
//! - the number of the barrier, without which a repeated `reached` that arrives after `ready` would count for the next
//!   barrier;
//! - a group, which is the id and the number of its uses, so that nothing sent to an earlier user of an id has an
//!   effect;
//! - for the other requests a number of the port, so that a repeated `getId` allocates no second id.

/// The request that a packet makes or acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Port to switch: requests an id.
    GetId,
    /// Port to switch: the port takes part.
    Participate,
    /// Port to switch: the port has reached the barrier.
    Reached,
    /// Switch to port: all members have reached the barrier.
    Ready,
    /// Port to switch: the id is no longer used.
    Free,
}

/// A packet between a port and the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) request: Request,
    /// Whether the packet acknowledges the request.
    pub(super) is_ack: bool,
    /// The group. In the acknowledgement of `getId`, the new group.
    pub(super) group: u64,
    /// Number of the barrier in its group, from 1 on; for other requests, a number that the port has used in no other
    /// request.
    pub(super) number: u64,
    /// In an acknowledgement: the request has no effect. In a `ready`: the group has ended.
    pub(super) refused: bool,
}

impl Packet {
    pub(super) fn new(request: Request, group: u64, number: u64) -> Self {
        Self { request, is_ack: false, group, number, refused: false }
    }

    /// The acknowledgement.
    pub(super) fn answered(self, done: bool) -> Self {
        Self { is_ack: true, refused: !done, ..self }
    }

    /// Whether the packet is about the same request as `other`.
    pub(super) fn is_about(&self, other: &Self) -> bool {
        let same_group = self.request == Request::GetId || self.group == other.group;
        (self.request, self.number) == (other.request, other.number) && same_group
    }
}

/// The next step of a packet in transit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hop {
    AtSwitch,
    AtPort,
    /// The packet passes the port, which other messages occupied before.
    Through,
    /// The packet's sender repeats it, unless it is acknowledged.
    PortRepeats,
    SwitchRepeats,
}

/// Lines of bits.
struct Bits {
    /// Number of words of a line.
    each: usize,
    words: Vec<u64>,
}

impl Bits {
    fn new(lines: usize, columns: u32) -> Self {
        let each = columns.div_ceil(64) as usize;
        Self { each, words: vec![0; lines * each] }
    }

    fn line(&self, line: usize) -> &[u64] {
        &self.words[line * self.each..][..self.each]
    }

    fn get(&self, line: usize, column: u32) -> bool {
        self.line(line)[column as usize / 64] >> (column % 64) & 1 == 1
    }

    fn set(&mut self, line: usize, column: u32, bit: bool) {
        let word = &mut self.words[line * self.each + column as usize / 64];
        *word = *word & !(1 << (column % 64)) | u64::from(bit) << (column % 64);
    }
}

/// The counters of a barrier, in addition to its bits.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    /// Number of groups that have used the barrier so far, including the present one.
    uses: u64,
    /// Number of the last barrier of the group for which `ready` was sent.
    ready: u64,
    /// Whether the group has ended and a port has not acknowledged its last `ready`.
    is_closing: bool,
    /// Whether the group has ended while ports were in a barrier: these got a `ready` with `refused`, and keep their
    /// bits of line i.
    is_refused: bool,
}

/// The packets that the switch sends in response to a packet.
#[derive(Default)]
pub(super) struct Sent {
    /// The answer to the port from which the packet came.
    pub(super) answer: Option<Packet>,
    /// A `ready`, and the ports to which it is sent.
    pub(super) ready: Option<(Packet, Vec<u32>)>,
}

/// The logic of a switch.
pub(super) struct Switch {
    /// I and N: the numbers of barriers and of ports.
    ids: usize,
    ports: u32,
    bits: Bits,
    lines: Vec<Line>,
    /// For each port: the number of its last `getId`, and the group that was assigned to it.
    given: Vec<(u64, u64)>,
}

impl Switch {
    /// The answer if all ids are in use.
    pub(super) const NO_GROUP: u64 = u64::MAX;

    pub(super) fn new(ids: u32, ports: u32) -> Self {
        let ids = ids as usize;
        Self {
            ids,
            ports,
            bits: Bits::new(3 * ids, ports + 1),
            lines: vec![Line::default(); ids],
            given: vec![(0, Self::NO_GROUP); ports as usize],
        }
    }

    fn id_of(&self, group: u64) -> usize {
        (group % self.ids as u64) as usize
    }

    /// The id of a group that is in use.
    fn id(&self, group: u64) -> Option<usize> {
        let id = self.id_of(group);
        let is_current = self.bits.get(id + self.ids, self.ports) && self.lines[id].uses == group / self.ids as u64;
        is_current.then_some(id)
    }

    /// The ports whose bits in a word of a line satisfy `is`.
    fn ports(&self, is: impl Fn(usize) -> u64) -> Vec<u32> {
        let mut ports = Vec::new();
        for word in 0..self.bits.each {
            let mut left = is(word) & self.mask(word);
            while left != 0 {
                ports.push(64 * word as u32 + left.trailing_zeros());
                left &= left - 1;
            }
        }
        ports
    }

    /// The bits of a word that belong to ports.
    fn mask(&self, word: usize) -> u64 {
        let before = u64::from(self.ports).saturating_sub(64 * word as u64);
        if before >= 64 { u64::MAX } else { (1 << before) - 1 }
    }

    /// Bit N of line `id`.
    fn all_reached(&self, id: usize) -> bool {
        let (reached, out) = (self.bits.line(id), self.bits.line(id + self.ids));
        (0..self.bits.each).all(|word| (reached[word] | out[word]) & self.mask(word) == self.mask(word))
    }

    /// Processes a packet of a port.
    pub(super) fn take(&mut self, port: u32, packet: Packet) -> Sent {
        let Packet { request, group, number, .. } = packet;
        let id = self.id(group);
        match request {
            Request::GetId => return Sent { answer: self.give_id(port, packet), ready: None },
            Request::Participate => {
                let is_open = id.filter(|id| !self.lines[*id].is_closing);
                if let Some(id) = is_open {
                    self.bits.set(id + self.ids, port, false);
                }
                return Sent { answer: Some(packet.answered(is_open.is_some())), ready: None };
            }
            Request::Reached => return self.reached(port, id, packet),
            Request::Ready => {
                if let Some(id) = id.filter(|id| self.last_ready(*id, port) == number) {
                    self.bits.set(id + 2 * self.ids, port, false);
                    self.end(id);
                }
                return Sent::default();
            }
            Request::Free => {}
        }
        let mut sent = Sent { answer: Some(packet.answered(true)), ready: None };
        if let Some(id) = id {
            let reached = self.ports(|word| self.bits.line(id)[word]);
            if !reached.is_empty() && !self.lines[id].is_closing {
                // This is a fault of a member; it must not make the others wait forever.
                self.lines[id].is_refused = true;
                sent.ready = Some((Packet { refused: true, ..self.ready(id, group, &reached) }, reached));
            }
            self.lines[id].is_closing = true;
            self.end(id);
        }
        sent
    }

    /// Answers a `getId`; an old one that a newer one of the same port has overtaken has no effect.
    fn give_id(&mut self, port: u32, packet: Packet) -> Option<Packet> {
        let (last, mut group) = self.given[port as usize];
        if packet.number < last {
            return None;
        }
        if packet.number > last {
            let free = (0..self.ids).find(|id| !self.bits.get(id + self.ids, self.ports));
            group = free.map_or(Self::NO_GROUP, |id| {
                for n in 0..self.ports {
                    self.bits.set(id, n, false);
                    self.bits.set(id + self.ids, n, true);
                }
                self.bits.set(id + self.ids, self.ports, true);
                self.lines[id] = Line { uses: self.lines[id].uses + 1, ..Line::default() };
                self.lines[id].uses * self.ids as u64 + id as u64
            });
            self.given[port as usize] = (packet.number, group);
        }
        Some(Packet { group, ..packet.answered(true) })
    }

    fn reached(&mut self, port: u32, id: Option<usize>, packet: Packet) -> Sent {
        let refused = Sent { answer: Some(packet.answered(false)), ready: None };
        let Some(id) = id.filter(|id| !self.bits.get(id + self.ids, port)) else { return refused };
        let answer = Some(packet.answered(true));
        let last = self.last_ready(id, port);
        if packet.number <= last {
            // The port has received its `ready` or will receive it, even if the group has ended meanwhile.
            return Sent { answer, ready: None };
        }
        if packet.number > last + 1 || self.lines[id].is_closing {
            return refused;
        }
        self.bits.set(id, port, true);
        // The port has received the last `ready`; otherwise it could not have made this request.
        self.bits.set(id + 2 * self.ids, port, false);
        if !self.all_reached(id) {
            return Sent { answer, ready: None };
        }
        let members = self.ports(|word| !self.bits.line(id + self.ids)[word]);
        (0..self.ports).for_each(|port| self.bits.set(id, port, false));
        Sent { answer, ready: Some((self.ready(id, packet.group, &members), members)) }
    }

    /// Makes the next `ready` of a group for these ports.
    fn ready(&mut self, id: usize, group: u64, ports: &[u32]) -> Packet {
        self.lines[id].ready += 1;
        ports.iter().for_each(|port| self.bits.set(id + 2 * self.ids, *port, true));
        Packet::new(Request::Ready, group, self.lines[id].ready)
    }

    /// Frees an id whose group has ended, once all ports have acknowledged `ready`.
    fn end(&mut self, id: usize) {
        let acknowledged = self.bits.line(id + 2 * self.ids).iter().all(|word| *word == 0);
        if self.lines[id].is_closing && acknowledged {
            self.bits.set(id + self.ids, self.ports, false);
        }
    }

    /// Number of the last `ready` that was sent to a port.
    fn last_ready(&self, id: usize, port: u32) -> u64 {
        let Line { ready, is_refused, .. } = self.lines[id];
        ready - u64::from(is_refused && !self.bits.get(id, port))
    }

    /// Whether a `ready` has to be repeated, since a port has not acknowledged it.
    pub(super) fn awaits_ack(&self, port: u32, ready: &Packet) -> bool {
        let is_last = |id: &usize| self.last_ready(*id, port) == ready.number;
        self.id(ready.group).filter(is_last).is_some_and(|id| self.bits.get(id + 2 * self.ids, port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends a request of a port; returns the group in the answer and whether the answer is a refusal.
    fn ask(switch: &mut Switch, port: u32, request: Request, group: u64, number: u64) -> (u64, bool) {
        let answer = switch.take(port, Packet::new(request, group, number)).answer.unwrap();
        assert!(answer.is_ack && answer.is_about(&Packet::new(request, group, number)));
        (answer.group, answer.refused)
    }

    /// A group of the first `members` ports, opened by port 0.
    fn group(switch: &mut Switch, members: u32, number: u64) -> u64 {
        let (group, _) = ask(switch, 0, Request::GetId, Switch::NO_GROUP, number);
        (0..members).for_each(|port| assert!(!ask(switch, port, Request::Participate, group, number).1));
        group
    }

    /// The ports that get `ready` when `port` reaches barrier `number`.
    fn reach(switch: &mut Switch, port: u32, group: u64, number: u64) -> Vec<u32> {
        let sent = switch.take(port, Packet::new(Request::Reached, group, number));
        assert!(!sent.answer.unwrap().refused);
        sent.ready.map_or_else(Vec::new, |(ready, ports)| {
            assert_eq!(ready, Packet::new(Request::Ready, group, number));
            ports
        })
    }

    /// Figure 3.3 of the thesis: two barriers, four ports, of which port 1 does not participate.
    #[test]
    fn bits_of_the_figure() {
        let mut switch = Switch::new(2, 4);
        let (group, _) = ask(&mut switch, 2, Request::GetId, Switch::NO_GROUP, 1);
        [0, 2, 3].iter().for_each(|port| _ = ask(&mut switch, *port, Request::Participate, group, 7));
        let line =
            |switch: &Switch, line: usize| (0..=4).map(|n| u8::from(switch.bits.get(line, n))).collect::<Vec<_>>();
        assert_eq!([line(&switch, 0), line(&switch, 2)], [[0, 0, 0, 0, 0], [0, 1, 0, 0, 1]]);
        assert!(reach(&mut switch, 3, group, 1).is_empty() && reach(&mut switch, 0, group, 1).is_empty());
        assert_eq!((line(&switch, 0), switch.all_reached(0)), (vec![1, 0, 0, 1, 0], false));
        assert_eq!(reach(&mut switch, 2, group, 1), [0, 2, 3]);
        assert_eq!([line(&switch, 0), line(&switch, 2)], [[0, 0, 0, 0, 0], [0, 1, 0, 0, 1]]);
    }

    #[test]
    fn repeated_packets_count_once() {
        let mut switch = Switch::new(4, 100);
        let first = group(&mut switch, 100, 1);
        // The same request gets the same group; an older request gets no answer.
        assert_eq!(ask(&mut switch, 0, Request::GetId, Switch::NO_GROUP, 1).0, first);
        let second = group(&mut switch, 2, 2);
        assert_ne!(first, second);
        assert_eq!(switch.take(0, Packet::new(Request::GetId, Switch::NO_GROUP, 1)).answer, None);
        for number in 1..4 {
            for port in 0..99 {
                assert!(reach(&mut switch, port, first, number).is_empty());
                assert!(reach(&mut switch, port, first, number).is_empty());
            }
            assert_eq!(reach(&mut switch, 99, first, number).len(), 100);
            // A repeated request after `ready` does not count for the next barrier.
            assert!((0..100).all(|port| reach(&mut switch, port, first, number).is_empty()));
            assert!(!(0..100).any(|port| switch.bits.get(0, port)));
            let ready = Packet::new(Request::Ready, first, number);
            assert!((0..100).all(|port| switch.awaits_ack(port, &ready)));
            (0..50).for_each(|port| drop(switch.take(port, ready.answered(true))));
            assert!((0..100).all(|port| switch.awaits_ack(port, &ready) == (port >= 50)));
        }
    }

    #[test]
    fn ids_end_and_requests_to_their_former_groups_have_no_effect() {
        let mut switch = Switch::new(1, 3);
        let former = group(&mut switch, 2, 1);
        assert_eq!(ask(&mut switch, 2, Request::GetId, Switch::NO_GROUP, 1).0, Switch::NO_GROUP);
        assert!(reach(&mut switch, 0, former, 1).is_empty());
        assert_eq!(reach(&mut switch, 1, former, 1), [0, 1]);
        // Requests for a barrier that is not the next one, and of a port that does not participate.
        assert!(
            ask(&mut switch, 0, Request::Reached, former, 3).1 && ask(&mut switch, 2, Request::Reached, former, 2).1
        );
        assert!(!ask(&mut switch, 0, Request::Free, former, 2).1);
        // The id is in use until all have acknowledged; until then a port may repeat its last request.
        assert!(!ask(&mut switch, 1, Request::Reached, former, 1).1);
        let ready = Packet::new(Request::Ready, former, 1);
        assert_eq!(ask(&mut switch, 2, Request::GetId, Switch::NO_GROUP, 2).0, Switch::NO_GROUP);
        (0..2).for_each(|port| drop(switch.take(port, ready.answered(true))));
        let group = ask(&mut switch, 2, Request::GetId, Switch::NO_GROUP, 3).0;
        assert!(group != Switch::NO_GROUP && group != former);
        (1..3).for_each(|port| assert!(!ask(&mut switch, port, Request::Participate, group, 4).1));
        assert!(
            ask(&mut switch, 0, Request::Reached, former, 2).1
                && ask(&mut switch, 0, Request::Participate, former, 1).1
        );
        assert!(reach(&mut switch, 1, group, 1).is_empty());
        assert!(!ask(&mut switch, 0, Request::Free, former, 2).1);
        assert_eq!(reach(&mut switch, 2, group, 1), [1, 2]);
        // A group ends while a port waits in its barrier.
        assert!(reach(&mut switch, 1, group, 2).is_empty());
        let sent = switch.take(2, Packet::new(Request::Free, group, 5));
        assert_eq!(sent.ready, Some((Packet { refused: true, ..Packet::new(Request::Ready, group, 2) }, vec![1])));
    }
}
