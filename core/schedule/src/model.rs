//! Models of a network, with their parameters as data. All times are in the same, arbitrary unit.

use serde::Serialize;

/// Costs of sending a message. All times count from when the processor and the port are free for it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sending {
    /// Time for which the processor is busy.
    pub(crate) overhead: f64,
    /// Time for which the port is busy: the minimum gap between two messages (LogGP's g).
    pub(crate) port: f64,
    /// Time until steps that wait for the send may start.
    pub(crate) done: f64,
    /// Time until the message is at the receiver's port.
    pub(crate) transit: f64,
}

/// Costs of receiving a message, from when it is at the receiver's port and the port is free.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Receiving {
    /// Time for which the port is busy: the minimum gap between two messages (LogGP's g).
    pub(crate) port: f64,
    /// Time until the message has passed the port and the processor may handle it.
    pub(crate) transfer: f64,
    /// Time for which the processor is busy after the transfer; then the data has arrived.
    pub(crate) overhead: f64,
}

/// A model of a network. `fan` is the number of messages that a rank sends, or receives, in the whole schedule.
pub trait Model {
    /// Costs of sending `bytes` at a rank that sends `fan` messages.
    fn send(&self, bytes: u64, fan: u32) -> Sending;

    /// Costs of receiving `bytes` from a sender of `from` messages at a receiver of `fan` messages.
    fn receive(&self, bytes: u64, from: u32, fan: u32) -> Receiving;

    /// Whether a message may be at the receiver's port before its receive has begun.
    fn is_eager(&self, _bytes: u64) -> bool {
        true
    }

    /// Time in which the in-switch barrier detects that all of `ranks` ranks have arrived.
    fn switch_barrier_time(&self, _ranks: u32) -> f64 {
        0.0
    }

    /// Time for which the processor reduces `bytes`.
    fn reduce(&self, _bytes: u64) -> f64 {
        0.0
    }
}

/// LogP (Culler et al. 1993), LogGP (Alexandrov et al. 1995), and LogGOPS (Hoefler et al. 2010): each model equals the
/// next one with the parameters that it lacks set to 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LogGP {
    /// L: time from the sender's network interface to the receiver's.
    pub latency: f64,
    /// o: overhead of the sender.
    pub send_overhead: f64,
    /// o: overhead of the receiver.
    pub receive_overhead: f64,
    /// g: minimum time between two messages.
    pub gap: f64,
    /// G: time for each byte of a message after the first.
    pub gap_per_byte: f64,
    /// O: time of the processor for each byte.
    pub overhead_per_byte: f64,
    /// S: maximum length of a message that does not wait for its receive; `None` if no message waits.
    pub threshold: Option<u64>,
    /// Time of the processor for each byte that is reduced.
    pub reduction: f64,
    /// Time of the in-switch barrier for each level of its tree of gates.
    pub gate: f64,
}

impl LogGP {
    /// LogP with the same overhead on both sides.
    #[must_use]
    pub fn log_p(latency: f64, overhead: f64, gap: f64) -> Self {
        Self { latency, send_overhead: overhead, receive_overhead: overhead, gap, ..Self::default() }
    }

    fn stretch(&self, bytes: u64) -> f64 {
        bytes.saturating_sub(1) as f64 * self.gap_per_byte
    }
}

impl Model for LogGP {
    fn switch_barrier_time(&self, ranks: u32) -> f64 {
        self.gate * f64::from(ranks.next_power_of_two().trailing_zeros())
    }

    fn send(&self, bytes: u64, _fan: u32) -> Sending {
        let overhead = self.send_overhead + bytes as f64 * self.overhead_per_byte;
        let port = self.gap + self.stretch(bytes);
        Sending { overhead, port, done: overhead, transit: overhead + self.latency }
    }

    fn receive(&self, bytes: u64, _from: u32, _fan: u32) -> Receiving {
        let (overhead, transfer) = (self.receive_overhead + bytes as f64 * self.overhead_per_byte, self.stretch(bytes));
        Receiving { port: self.gap + transfer, transfer, overhead }
    }

    fn is_eager(&self, bytes: u64) -> bool {
        self.threshold.is_none_or(|most| bytes <= most)
    }

    fn reduce(&self, bytes: u64) -> f64 {
        bytes as f64 * self.reduction
    }
}

/// Times by message size, measured at some sizes and linear between them. Beyond the last size the last slope
/// continues; below the first size the first time holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Table(pub Vec<(u64, f64)>);

impl Table {
    /// The time for a message of `bytes`.
    #[must_use]
    pub fn at(&self, bytes: u64) -> f64 {
        let points = &self.0;
        let after = points.partition_point(|(size, _)| *size < bytes).clamp(1, points.len().saturating_sub(1).max(1));
        let Some(((x0, y0), (x1, y1))) = points.get(after - 1).copied().zip(points.get(after).copied()) else {
            return points.first().map_or(0.0, |(_, time)| *time);
        };
        if bytes <= x0 { y0 } else { y0 + (y1 - y0) * (bytes - x0) as f64 / (x1 - x0) as f64 }
    }
}

/// Parameterised LogP (Kielmann, Bal, Verstoep 2000): a message of m bytes arrives L + g(m) after the start of its
/// send.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PLogP {
    /// L: the part of the latency that does not depend on the size.
    pub latency: f64,
    /// g(m): at least os(m) and or(m).
    pub gap: Table,
    /// os(m).
    pub send_overhead: Table,
    /// or(m).
    pub receive_overhead: Table,
    /// Time of the processor for each byte that is reduced.
    pub reduction: f64,
}

impl Model for PLogP {
    fn send(&self, bytes: u64, _fan: u32) -> Sending {
        let (gap, overhead) = (self.gap.at(bytes), self.send_overhead.at(bytes));
        Sending { overhead, port: gap, done: overhead, transit: self.latency }
    }

    fn receive(&self, bytes: u64, _from: u32, _fan: u32) -> Receiving {
        let (port, overhead) = (self.gap.at(bytes), self.receive_overhead.at(bytes));
        Receiving { port, transfer: port - overhead, overhead }
    }

    fn reduce(&self, bytes: u64) -> f64 {
        bytes as f64 * self.reduction
    }
}

/// λ1 + λ2 / (λ3 + p): an overhead for each of p messages (Hoefler 2005, section 2.3.6.1.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Overhead(pub [f64; 3]);

impl Overhead {
    /// The overhead of each of p messages.
    #[must_use]
    pub fn at(&self, p: f64) -> f64 {
        let [a, b, c] = self.0;
        if b == 0.0 { a } else { a + b / (c + p) }
    }
}

/// λ1 / (λ2 + p) + λ3 + λ4 (1 - e^(λ5 (p - λ6))): a round trip for each of p messages (Hoefler 2005, section
/// 2.3.6.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RoundTrip(pub [f64; 6]);

impl RoundTrip {
    /// The round-trip time of each of p messages.
    #[must_use]
    pub fn at(&self, p: f64) -> f64 {
        let [a, b, c, d, e, f] = self.0;
        a / (b + p) + c + d * (1.0 - (e * (p - f)).exp())
    }
}

/// LoP (Hoefler 2005, section 2.3), for messages of one size: overheads and latency depend on the number of messages p
/// that a rank sends or receives, and messages pass a network interface one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LoP {
    /// o_s(p).
    pub send_overhead: Overhead,
    /// o_r(p): zero if receives are posted in advance, and for RDMA writes.
    pub receive_overhead: Overhead,
    /// RTT(p); L(p) is half of it without the overheads.
    pub round_trip: RoundTrip,
}

impl LoP {
    /// L(p).
    #[must_use]
    pub fn latency(&self, p: u32) -> f64 {
        let p = f64::from(p);
        self.round_trip.at(p) / 2.0 - (self.send_overhead.at(p) + self.send_overhead.at(1.0))
    }
}

impl Model for LoP {
    fn send(&self, _bytes: u64, fan: u32) -> Sending {
        let overhead = self.send_overhead.at(f64::from(fan));
        Sending { overhead, port: self.latency(fan), done: overhead, transit: overhead }
    }

    fn receive(&self, _bytes: u64, from: u32, fan: u32) -> Receiving {
        let (overhead, port) = (self.receive_overhead.at(f64::from(fan)), self.latency(from.max(fan)));
        Receiving { port, transfer: port, overhead }
    }
}

/// One port, full duplex: a rank sends one message and receives one at a time, which takes α + β m on both sides at the
/// same time, and reduces a byte in γ (Rabenseifner, Träff 2004). Blocks being sent may be overwritten by a message
/// received at the same time. With α = 1 and β = γ = 0 the time is the number of rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OnePort {
    /// α: time for each message.
    pub latency: f64,
    /// β: time for each byte.
    pub byte: f64,
    /// γ: time for each byte that is reduced.
    pub reduction: f64,
}

impl Model for OnePort {
    fn send(&self, bytes: u64, _fan: u32) -> Sending {
        Sending { port: self.latency + bytes as f64 * self.byte, ..Sending::default() }
    }

    fn receive(&self, bytes: u64, _from: u32, _fan: u32) -> Receiving {
        let port = self.latency + bytes as f64 * self.byte;
        Receiving { port, transfer: port, overhead: 0.0 }
    }

    fn is_eager(&self, _bytes: u64) -> bool {
        false
    }

    fn reduce(&self, bytes: u64) -> f64 {
        bytes as f64 * self.reduction
    }
}
