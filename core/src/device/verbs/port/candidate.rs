//! The data that ranks exchange before they open a port: the ports that each rank could open, with their GIDs.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use super::merit::Merit;
use crate::device::verbs::sys::Gid;
use crate::wire::{Reader, Writer};

/// Maximum length of a text in bytes.
const TEXT: usize = 1024;

/// Kinds of GIDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum GidKind {
    InfiniBand,
    RoceV2,
    RoceV1,
}

impl fmt::Display for GidKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(["InfiniBand", "RoCE v2", "RoCE v1"][*self as usize])
    }
}

/// Scope within which an address is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scope {
    Network,
    Machine,
    Link,
}

/// A port that a rank can open, with one of its GIDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) device: String,
    pub(super) port: u8,
    pub(super) kind: GidKind,
    /// The GID as an address; IPv4 if the GID maps an IPv4 address.
    pub(super) address: IpAddr,
    /// The subnet of the address, if known.
    pub(super) subnet: Option<IpNet>,
    /// Destinations of the interface's routes outside the subnet (RoCE v2 only).
    pub(super) routes: Vec<IpNet>,
    pub(super) merit: Merit,
    /// The entry of `FARSIDE_VERBS_DEVICE` that names the port.
    pub(super) entry: u8,
}

/// Converts a GID to an address.
pub(super) fn address(gid: Gid) -> IpAddr {
    IpAddr::from(gid).to_canonical()
}

/// Converts an address to a GID.
pub(super) fn gid(address: IpAddr) -> Gid {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

impl Candidate {
    /// Scope of the GID. On InfiniBand all ports of a subnet share its prefix, even if it is fe80::/64.
    pub(super) fn scope(&self) -> Scope {
        match self.address {
            _ if self.kind == GidKind::InfiniBand => Scope::Network,
            IpAddr::V4(ip) if ip.is_link_local() => Scope::Link,
            IpAddr::V6(ip) if ip.is_unicast_link_local() => Scope::Link,
            ip if ip.is_loopback() => Scope::Machine,
            _ => Scope::Network,
        }
    }

    /// Whether the address does not determine which other addresses it reaches.
    pub(super) fn is_guess(&self) -> bool {
        self.scope() == Scope::Link || self.subnet.is_none()
    }

    /// Whether the subnet or a route covers `address`. If the reach is a guess, all addresses count as covered.
    pub(super) fn leads_to(&self, address: &IpAddr) -> bool {
        self.is_guess() || self.subnet.iter().chain(&self.routes).any(|net| net.contains(address))
    }

    /// Describes the network of the candidate.
    pub(super) fn network(&self) -> String {
        match (self.scope(), self.subnet) {
            (Scope::Link, _) => format!("{}, link-local addresses", self.kind),
            (_, Some(subnet)) => format!("{}, {subnet}", self.kind),
            (_, None) => format!("{}, of an unknown subnet", self.kind),
        }
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} port {} ({})", self.device, self.port, self.network())
    }
}

/// The candidates of one rank, best first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PortsOfRank {
    /// Identifies the running kernel and the network namespace.
    pub(super) machine: String,
    pub(super) namespace: String,
    /// Host name, for messages.
    pub(super) host: String,
    /// Number of entries of `FARSIDE_VERBS_DEVICE`, which the ranks of a machine take in turn. If there are any, the user
    /// is assumed to know which ranks the ports reach.
    pub(super) entries: u8,
    /// The reason why there are no candidates.
    pub(super) lacks: String,
    pub(super) candidates: Vec<Candidate>,
}

/// Parses a peer's text, and removes control characters, which would affect a terminal.
fn text(r: &mut Reader<'_>) -> Option<String> {
    Some(String::from_utf8_lossy(r.bytes()?).replace(char::is_control, "?"))
}

fn nets(r: &mut Reader<'_>) -> Option<Vec<IpNet>> {
    (0..r.u8()?).map(|_| text(r)?.parse().ok()).collect()
}

impl PortsOfRank {
    /// The data of a rank of this machine, without candidates.
    pub(super) fn here() -> Self {
        let file = |name| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).map(|t| t.trim().to_owned());
        let host = file("hostname").unwrap_or_default();
        let namespace = std::fs::read_link("/proc/self/ns/net").unwrap_or_default().to_string_lossy().into_owned();
        Self { machine: file("random/boot_id").unwrap_or_else(|_| host.clone()), namespace, host, ..Self::default() }
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let nets = |w: Writer, all: &[IpNet]| {
            all.iter().fold(w.u8(all.len() as u8), |w, net| w.bytes(net.to_string().as_bytes()))
        };
        let w = [&self.machine, &self.namespace, &self.host, &self.lacks]
            .iter()
            .fold(Writer::new(), |w, text| w.bytes(&text.as_bytes()[..text.len().min(TEXT)]));
        let w = w.u8(self.entries).u8(self.candidates.len() as u8);
        let candidate = |w: Writer, c: &Candidate| {
            let w = w.bytes(c.device.as_bytes()).u8(c.port).u8(c.kind as u8).bytes(&gid(c.address));
            let w = w.u32(c.merit.speed).u8(c.merit.distance).u8(c.entry);
            nets(nets(w, c.subnet.as_slice()), &c.routes)
        };
        self.candidates.iter().fold(w, candidate).done()
    }

    /// Decodes the data; `None` for data that no rank of this build writes.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let r = &mut Reader::new(bytes);
        let [machine, namespace, host, lacks] = [text(r)?, text(r)?, text(r)?, text(r)?];
        let entries = r.u8()?;
        let candidates = (0..r.u8()?).map(|_| Self::candidate(r)).collect::<Option<_>>()?;
        r.rest().is_empty().then_some(Self { machine, namespace, host, entries, lacks, candidates })
    }

    fn candidate(r: &mut Reader<'_>) -> Option<Candidate> {
        Some(Candidate {
            device: text(r)?,
            port: r.u8()?,
            kind: *[GidKind::InfiniBand, GidKind::RoceV2, GidKind::RoceV1].get(usize::from(r.u8()?))?,
            address: address(r.bytes()?.try_into().ok()?),
            merit: Merit { speed: r.u32()?, distance: r.u8()? },
            entry: r.u8()?,
            subnet: nets(r)?.pop(),
            routes: nets(r)?,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A candidate whose address is given with its subnet, as in `10.0.0.1/24`, or without a known subnet.
    pub(crate) fn candidate(device: &str, kind: GidKind, address: &str, routes: &[&str]) -> Candidate {
        let subnet = address.parse::<IpNet>().ok().map(|net| net.trunc());
        let address = address.split('/').next().unwrap().parse().unwrap();
        let routes = routes.iter().map(|r| r.parse().unwrap()).collect();
        Candidate { device: device.into(), port: 1, kind, address, subnet, routes, merit: Merit::default(), entry: 0 }
    }

    pub(crate) fn ports(machine: &str, candidates: &[Candidate]) -> PortsOfRank {
        let host = format!("host-{machine}");
        let candidates = candidates.to_vec();
        PortsOfRank { machine: machine.into(), namespace: "net".into(), host, candidates, ..PortsOfRank::default() }
    }

    fn any_net() -> impl Strategy<Value = IpNet> {
        (any::<IpAddr>(), 0..=32u8).prop_map(|(ip, bits)| IpNet::new(ip, bits).unwrap().trunc())
    }

    pub(crate) fn any_candidate() -> impl Strategy<Value = Candidate> {
        let kind = prop_oneof![Just(GidKind::InfiniBand), Just(GidKind::RoceV2), Just(GidKind::RoceV1)];
        let routes = prop::collection::vec(any_net(), 0..4);
        let merit = (any::<u32>(), any::<u8>()).prop_map(|(speed, distance)| Merit { speed, distance });
        ("[a-z0-9_]{0,8}", any::<u8>(), kind, any::<[u8; 16]>(), prop::option::of(any_net()), routes, merit).prop_map(
            |(device, port, kind, gid, subnet, routes, merit)| Candidate {
                device,
                port,
                kind,
                address: address(gid),
                subnet,
                routes,
                merit,
                entry: port,
            },
        )
    }

    proptest! {
        #[test]
        fn ports_round_trip(
            candidates in prop::collection::vec(any_candidate(), 0..5),
            (entries, lacks) in (any::<u8>(), "[ -~]{0,80}"),
        ) {
            let all = PortsOfRank { entries, lacks, ..ports("m", &candidates) };
            let bytes = all.write();
            prop_assert_eq!(PortsOfRank::read(&bytes), Some(all));
            prop_assert!((0..bytes.len()).all(|n| PortsOfRank::read(&bytes[..n]).is_none()));
        }

        #[test]
        fn any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0..200usize, new: u8) {
            let _ = PortsOfRank::read(&bytes);
            let mut damaged = ports("m", &[candidate("r", GidKind::RoceV2, "10.0.0.1/24", &["0.0.0.0/0"])]).write();
            let at = at % damaged.len();
            damaged[at] = new;
            if let Some(p) = PortsOfRank::read(&damaged) {
                let _ = super::super::choose::choose(&[p.clone(), p]);
            }
        }

        #[test]
        fn gids_are_addresses_and_back(bytes: [u8; 16]) {
            prop_assert_eq!(gid(address(bytes)), bytes);
        }
    }

    #[test]
    fn longest_list_of_ports_fits_the_exchange() {
        let net = "1111:2222:3333:4444:5555:6666:7777:8888/128";
        let c = candidate(&"d".repeat(64), GidKind::RoceV2, net, &[net; super::super::network::ROUTES]);
        let all = vec![c; super::super::discover::CANDIDATES];
        let long = PortsOfRank { lacks: "x".repeat(5000), ..ports("m", &all) };
        let bytes = long.write();
        assert!(bytes.len() <= crate::bootstrap::VALUE_MAX, "{}", bytes.len());
        assert_eq!(PortsOfRank::read(&bytes).unwrap().candidates, long.candidates);
    }

    #[test]
    fn control_characters_of_a_peer_are_not_printed() {
        let p = PortsOfRank { host: "a\u{1b}[2J".into(), ..ports("m", &[]) };
        assert_eq!(PortsOfRank::read(&p.write()).unwrap().host, "a?[2J");
    }
}
