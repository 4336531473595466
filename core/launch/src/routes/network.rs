//! A network as data: nodes, devices, links, and the time of a message over a link.

use farside_core::model::LogGP;

/// The ranges of message sizes.
pub(crate) const RANGES: [&str; 3] = ["small", "medium", "large"];

/// Maximum length of a message in bytes.
pub(crate) const SIZE_MAX: u64 = 1 << 40;

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub name: String,
    /// Microseconds that it takes to forward a message; infinite if the node forwards nothing.
    pub forward: f64,
}

/// A link between two nodes, or between the ranks of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// The nodes, the lower number first.
    pub ends: [usize; 2],
    pub device: usize,
    /// The number of its performance.
    pub performance: usize,
}

impl Link {
    /// Whether it joins ranks of one node.
    pub(crate) fn is_inside(&self) -> bool {
        self.ends[0] == self.ends[1]
    }

    /// The other node; `None` if the link does not end at `node`.
    pub(crate) fn other(&self, node: usize) -> Option<usize> {
        let [a, b] = self.ends;
        if a == node { Some(b) } else { (b == node).then_some(a) }
    }
}

/// Latency in microseconds, bandwidth in MB/s, which is bytes per microsecond.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Measured {
    pub latency: f64,
    pub bandwidth: f64,
}

/// The performance of links.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Performance {
    /// The latency and bandwidth of each range.
    Measured([Measured; RANGES.len()]),
    /// A model in microseconds, for all sizes.
    Model(LogGP),
}

/// The time of a message, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Time {
    /// The time of the links for a message without bytes.
    pub latency: f64,
    /// The additional time of the bytes on the links.
    pub bytes: f64,
    /// The time of the nodes that forward the message.
    pub forwarding: f64,
}

impl Time {
    pub(crate) fn sum(&self) -> f64 {
        self.latency + self.bytes + self.forwarding
    }
}

impl std::ops::Add for Time {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            latency: self.latency + other.latency,
            bytes: self.bytes + other.bytes,
            forwarding: self.forwarding + other.forwarding,
        }
    }
}

impl Performance {
    /// The time from the call that sends a message until its receiver has it.
    pub(crate) fn time(&self, range: usize, bytes: u64) -> Time {
        let (latency, bytes) = match self {
            Self::Measured(of) => (of[range].latency, bytes as f64 / of[range].bandwidth),
            Self::Model(m) => {
                let stretch = bytes.saturating_sub(1) as f64 * m.gap_per_byte;
                (m.latency + m.send_overhead + m.receive_overhead, stretch + 2.0 * bytes as f64 * m.overhead_per_byte)
            }
        };
        Time { latency, bytes, forwarding: 0.0 }
    }
}

/// A network.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Network {
    /// Maximum length of a message in each range except the last.
    pub limits: [u64; RANGES.len() - 1],
    /// The size of each range for which its routes are chosen.
    pub sizes: [u64; RANGES.len()],
    pub nodes: Vec<Node>,
    pub devices: Vec<String>,
    pub performances: Vec<Performance>,
    pub links: Vec<Link>,
}

/// A step of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hop {
    /// The node to which it leads.
    pub to: u32,
    /// The number of the link.
    pub link: u32,
}

impl Network {
    /// The range of a size.
    pub(crate) fn range(&self, bytes: u64) -> usize {
        self.limits.iter().filter(|limit| bytes > **limit).count()
    }

    /// The time of a message over a link.
    pub(crate) fn link_time(&self, link: usize, range: usize, bytes: u64) -> Time {
        self.performances[self.links[link].performance].time(range, bytes)
    }

    /// The time of a message over `hops`, whose intermediate nodes receive it whole before they forward it.
    pub(crate) fn time(&self, hops: &[Hop], range: usize, bytes: u64) -> Time {
        let links = hops.iter().map(|hop| self.link_time(hop.link as usize, range, bytes));
        let forwards = hops.iter().rev().skip(1).map(|hop| self.nodes[hop.to as usize].forward).sum();
        links.fold(Time { forwarding: forwards, ..Time::default() }, |sum, time| sum + time)
    }

    /// The name of a link's device.
    pub(crate) fn device(&self, link: u32) -> &str {
        &self.devices[self.links[link as usize].device]
    }

    /// The name of a node.
    pub(crate) fn name(&self, node: u32) -> &str {
        &self.nodes[node as usize].name
    }
}

/// Parses a number of bytes with or without a unit: `512`, `64KiB`, `1 MiB`.
///
/// # Errors
/// The allowed form.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let unit = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit);
    let unit = if unit == "B" { "" } else { unit.trim_start() };
    let shift = ["", "KiB", "MiB", "GiB", "TiB"].iter().position(|name| *name == unit);
    let bytes = shift.and_then(|n| number.parse::<u64>().ok()?.checked_mul(1 << (10 * n)));
    let allowed = || format!("{text:?} is not a number of bytes from 0 to 1 TiB, such as 512, 64KiB or 1MiB");
    bytes.filter(|bytes| *bytes <= SIZE_MAX).ok_or_else(allowed)
}
