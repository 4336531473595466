//! Which ports reach each other, as far as their addresses tell: what each rank offers to the others before it opens
//! one.
//!
//! Two GIDs of one kind and address family reach each other if they are in one subnet, or if the interfaces behind
//! both have routes to the other (RoCE v2 only; between InfiniBand subnets nothing here knows the routers, and two
//! fabrics that both kept the default prefix look like one). An address that two machines have is none that tells
//! them apart, so it reaches only the machine itself; one of the loopback interface does so too. Where a subnet is
//! not known, or the address is one of the link, it is taken to be the same: a guess, which [`choose`](super::choose)
//! makes last.

use std::fmt;

use super::netdev::{Prefix, ROUTES, is_ipv4};
use super::sys::Gid;
use crate::wire::{Reader, Writer};

/// The most candidates of a rank in an offer.
pub(super) const CANDIDATES: usize = 64;
/// The longest text in an offer, in bytes.
const TEXT: usize = 1024;

/// Kinds of GIDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

/// How far an address is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Scope {
    Network,
    Machine,
    Link,
}

pub(super) fn scope(gid: &Gid) -> Scope {
    let loopback = Prefix::new(std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets(), 96 + 8);
    match gid {
        [0xfe, low, ..] if low & 0xc0 == 0x80 => Scope::Link,
        [.., 169, 254, _, _] if is_ipv4(gid) => Scope::Link,
        _ if loopback.covers(gid) || std::net::Ipv6Addr::from(*gid).is_loopback() => Scope::Machine,
        _ => Scope::Network,
    }
}

/// A port, with one of its GIDs, that a rank can take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) device: String,
    pub(super) port: u8,
    pub(super) kind: GidKind,
    pub(super) gid: Gid,
    /// The subnet of the GID, if it is known.
    pub(super) subnet: Option<Prefix>,
    /// Where else the port leads.
    pub(super) routes: Vec<Prefix>,
}

impl Candidate {
    /// How far its GID is valid. On InfiniBand everything in a subnet has its prefix, the default one too.
    pub(super) fn scope(&self) -> Scope {
        if self.kind == GidKind::InfiniBand { Scope::Network } else { scope(&self.gid) }
    }

    /// Whether what others have in common with it is not known.
    pub(super) fn is_guess(&self) -> bool {
        self.scope() == Scope::Link || self.subnet.is_none()
    }

    fn leads_to(&self, gid: &Gid) -> bool {
        self.is_guess() || self.subnet.iter().chain(&self.routes).any(|p| p.covers(gid))
    }

    /// Its network, for people.
    pub(super) fn network(&self) -> String {
        match (self.scope(), self.subnet) {
            (Scope::Link, _) => format!("{}, addresses of the link", self.kind),
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

/// What one rank can take, best first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Offer {
    /// The running kernel, empty if it does not tell, and the network name space in it.
    pub(super) machine: Vec<u8>,
    pub(super) space: Vec<u8>,
    /// Name of the host, for people.
    pub(super) host: String,
    /// Whether the settings name the device: then it is the user who knows whom it reaches.
    pub(super) named: bool,
    pub(super) candidates: Vec<Candidate>,
    /// Why there is none.
    pub(super) lacks: String,
}

/// Text of others, without what a terminal would obey.
fn text(r: &mut Reader<'_>) -> Option<String> {
    let text = String::from_utf8_lossy(r.bytes().filter(|b| b.len() <= TEXT)?).into_owned();
    Some(text.chars().map(|c| if c.is_control() { '?' } else { c }).collect())
}

fn prefix(r: &mut Reader<'_>) -> Option<Prefix> {
    let address = r.bytes()?.try_into().ok()?;
    let bits = r.u8().filter(|b| *b <= 128)?;
    Some(Prefix::new(address, bits))
}

impl Offer {
    pub(super) fn write(&self) -> Vec<u8> {
        let cut = |text: &str| text.as_bytes()[..text.len().min(TEXT)].to_vec();
        let prefix = |w: Writer, p: &Prefix| w.bytes(&p.address).u8(p.bits);
        let w = Writer::new().bytes(&self.machine).bytes(&self.space).bytes(&cut(&self.host));
        let w = w.u8(u8::from(self.named)).bytes(&cut(&self.lacks));
        let all = &self.candidates[..self.candidates.len().min(CANDIDATES)];
        let w = all.iter().fold(w.u8(all.len() as u8), |w, c| {
            let w = w.bytes(&cut(&c.device)).u8(c.port).u8(c.kind as u8).bytes(&c.gid);
            let w = c.subnet.iter().fold(w.u8(u8::from(c.subnet.is_some())), prefix);
            let routes = &c.routes[..c.routes.len().min(ROUTES)];
            routes.iter().fold(w.u8(routes.len() as u8), prefix)
        });
        w.done()
    }

    /// `None` for what no rank of this build writes.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let (machine, space) = (r.bytes()?.to_vec(), r.bytes()?.to_vec());
        let host = text(&mut r)?;
        let named = r.u8()? != 0;
        let lacks = text(&mut r)?;
        let count = r.u8().filter(|n| usize::from(*n) <= CANDIDATES)?;
        let candidates = (0..count).map(|_| Self::candidate(&mut r)).collect::<Option<_>>()?;
        r.rest().is_empty().then_some(Self { machine, space, host, named, candidates, lacks })
    }

    fn candidate(r: &mut Reader<'_>) -> Option<Candidate> {
        let device = text(r)?;
        let port = r.u8()?;
        let kind = *[GidKind::InfiniBand, GidKind::RoceV2, GidKind::RoceV1].get(usize::from(r.u8()?))?;
        let gid = r.bytes()?.try_into().ok()?;
        let subnet = if r.u8()? == 0 { None } else { Some(prefix(r)?) };
        let routes = r.u8().filter(|n| usize::from(*n) <= ROUTES)?;
        let routes = (0..routes).map(|_| prefix(r)).collect::<Option<_>>()?;
        Some(Candidate { device, port, kind, gid, subnet, routes })
    }
}

/// Whether each reaches the other. With `trust`, ports that the settings name on both sides do if they can at all.
pub(super) fn reach(a: (&Offer, &Candidate), b: (&Offer, &Candidate), trust: bool) -> bool {
    let ((offer, x), (other, y)) = (a, b);
    let (kind, scope) = (x.kind, x.scope());
    if kind != y.kind || scope != y.scope() || is_ipv4(&x.gid) != is_ipv4(&y.gid) {
        return false;
    }
    if scope == Scope::Machine {
        return !offer.machine.is_empty() && (&offer.machine, &offer.space) == (&other.machine, &other.space);
    }
    if trust && offer.named && other.named {
        return true;
    }
    if x.gid == y.gid && kind != GidKind::InfiniBand {
        return offer.machine == other.machine || offer.machine.is_empty() || other.machine.is_empty();
    }
    x.leads_to(&y.gid) && y.leads_to(&x.gid)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A candidate with an address and a subnet as `10.0.0.1/24`, or without a known subnet, and routes.
    pub(in super::super) fn candidate(device: &str, kind: GidKind, address: &str, routes: &[&str]) -> Candidate {
        let (ip, bits) = address.split_once('/').map_or((address, None), |(ip, bits)| (ip, Some(bits)));
        let (gid, before) = match ip.parse().unwrap() {
            std::net::IpAddr::V4(v4) => (v4.to_ipv6_mapped().octets(), 96),
            std::net::IpAddr::V6(v6) => (v6.octets(), 0),
        };
        let subnet = bits.map(|b| Prefix::new(gid, before + b.parse::<u8>().unwrap()));
        let routes = routes.iter().map(|r| candidate("", kind, r, &[]).subnet.unwrap()).collect();
        Candidate { device: device.into(), port: 1, kind, gid, subnet, routes }
    }

    pub(in super::super) fn offer(machine: &str, candidates: &[Candidate]) -> Offer {
        let (machine, host) = (machine.as_bytes().to_vec(), format!("host-{machine}"));
        Offer { machine, space: b"net".to_vec(), host, candidates: candidates.to_vec(), ..Offer::default() }
    }

    /// Whether ranks on machines a and b with these reach each other.
    fn meet(a: Candidate, b: Candidate) -> bool {
        let (x, y) = (offer("a", std::slice::from_ref(&a)), offer("b", std::slice::from_ref(&b)));
        let there = reach((&x, &a), (&y, &b), false);
        assert_eq!(there, reach((&y, &b), (&x, &a), false), "{a} and {b}");
        there
    }

    #[test]
    fn subnets_routes_and_kinds_decide() {
        use GidKind::*;
        let v2 = |address, routes: &[&str]| candidate("r", RoceV2, address, routes);
        assert!(meet(v2("10.0.0.1/24", &[]), v2("10.0.0.2/24", &[])));
        assert!(!meet(v2("10.0.0.1/24", &[]), v2("10.0.1.2/24", &[])), "other subnets, no routes");
        assert!(!meet(v2("10.0.0.1/24", &["0.0.0.0/0"]), v2("10.0.1.2/24", &[])), "no way back");
        assert!(meet(v2("10.0.0.1/24", &["0.0.0.0/0"]), v2("10.0.1.2/24", &["10.0.0.0/16"])));
        assert!(meet(v2("10.0.0.1/24", &[]), v2("10.0.0.2/16", &[])), "masks that differ and cover both");
        assert!(!meet(v2("10.0.0.1/24", &[]), candidate("r", RoceV1, "10.0.0.2/24", &[])));
        assert!(!meet(v2("2001:db8::1/64", &["::/0"]), v2("10.0.0.2/24", &["0.0.0.0/0"])), "two families");
        assert!(meet(v2("2001:db8::1/64", &[]), v2("2001:db8::2/64", &[])));
        assert!(meet(v2("10.0.0.1", &[]), v2("10.0.1.2/24", &["0.0.0.0/0"])), "unknown: the benefit of the doubt");
        let ib = |address| candidate("m", InfiniBand, address, &[]);
        assert!(meet(ib("fe80::1/64"), ib("fe80::2/64")), "the default prefix of subnets");
        assert!(!meet(ib("fe80::1/64"), ib("fec0::2/64")));
        assert!(!meet(ib("fe80::1/64"), v2("fe80::2/64", &[])));
    }

    #[test]
    fn addresses_of_the_link_and_of_the_machine_stay_there() {
        let v2 = |address| candidate("r", GidKind::RoceV2, address, &["::/0", "0.0.0.0/0"]);
        assert!(meet(v2("fe80::1/64"), v2("fe80::2/64")) && v2("fe80::1/64").is_guess());
        assert!(!meet(v2("fe80::1/64"), v2("2001:db8::2/64")));
        assert!(!meet(v2("169.254.0.1/16"), v2("10.0.0.1/24")));
        assert!(!meet(v2("127.0.0.1/8"), v2("127.0.0.1/8")) && !meet(v2("::1/128"), v2("::1/128")));
        assert!(!meet(v2("127.0.0.1/8"), v2("10.0.0.1/24")));
        let (a, l) = (offer("a", &[]), v2("127.0.0.1/8"));
        assert!(reach((&a, &l), (&a, &l), false), "ranks of one machine");
        let other = Offer { space: b"another".to_vec(), ..a.clone() };
        assert!(!reach((&a, &l), (&other, &l), true), "whatever is named");
    }

    #[test]
    fn address_of_two_machines_reaches_neither() {
        let bridge = candidate("r", GidKind::RoceV2, "172.17.0.1/16", &[]);
        assert!(!meet(bridge.clone(), bridge.clone()));
        let a = offer("a", &[]);
        assert!(reach((&a, &bridge), (&a, &bridge), false), "one port, used by two ranks");
        let unknown = Offer { machine: Vec::new(), ..a.clone() };
        assert!(reach((&unknown, &bridge), (&a, &bridge), false), "unknown: the benefit of the doubt");
        let ib = candidate("m", GidKind::InfiniBand, "fe80::1/64", &[]);
        assert!(meet(ib.clone(), ib), "no two ports of InfiniBand have one");
    }

    #[test]
    fn names_are_trusted_where_both_sides_have_them_and_only_for_what_can_be() {
        let v2 = |address| candidate("r", GidKind::RoceV2, address, &[]);
        let (a, b) = (offer("a", &[]), offer("b", &[]));
        let (x, y) = (Offer { named: true, ..a }, Offer { named: true, ..b.clone() });
        let (p, q) = (v2("10.0.0.1/24"), v2("10.0.1.1/24"));
        assert!(!reach((&x, &p), (&y, &q), false));
        assert!(reach((&x, &p), (&y, &q), true));
        assert!(!reach((&x, &p), (&b, &q), true));
        assert!(!reach((&x, &p), (&y, &v2("2001:db8::1/64")), true));
    }

    fn any_prefix() -> impl Strategy<Value = Prefix> {
        (any::<[u8; 16]>(), 0..=128u8).prop_map(|(address, bits)| Prefix::new(address, bits))
    }

    fn any_candidate() -> impl Strategy<Value = Candidate> {
        let kind = prop_oneof![Just(GidKind::InfiniBand), Just(GidKind::RoceV2), Just(GidKind::RoceV1)];
        let routes = prop::collection::vec(any_prefix(), 0..4);
        ("[a-z0-9_]{0,8}", any::<u8>(), kind, any::<[u8; 16]>(), prop::option::of(any_prefix()), routes)
            .prop_map(|(device, port, kind, gid, subnet, routes)| Candidate { device, port, kind, gid, subnet, routes })
    }

    proptest! {
        #[test]
        fn offers_come_back_as_they_were(
            candidates in prop::collection::vec(any_candidate(), 0..5),
            (named, lacks) in (any::<bool>(), "[ -~]{0,80}"),
        ) {
            let offer = Offer { named, lacks, ..offer("m", &candidates) };
            let bytes = offer.write();
            prop_assert_eq!(Offer::read(&bytes), Some(offer));
            prop_assert!((0..bytes.len()).all(|n| Offer::read(&bytes[..n]).is_none()));
        }

        #[test]
        fn any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0..200usize, new: u8) {
            let _ = Offer::read(&bytes);
            let mut damaged = offer("m", &[candidate("r", GidKind::RoceV2, "10.0.0.1/24", &["0.0.0.0/0"])]).write();
            let at = at % damaged.len();
            damaged[at] = new;
            if let Some(o) = Offer::read(&damaged) {
                let all = [o.clone(), o];
                let _ = super::super::choose::choose(&all);
            }
        }

        #[test]
        fn who_is_reached_reaches(a in any_candidate(), b in any_candidate()) {
            meet(a, b);
        }
    }

    #[test]
    fn offers_that_are_too_long_are_cut_and_fit_the_exchange() {
        let c = candidate("r", GidKind::RoceV2, "10.0.0.1/24", &["10.1.0.0/16"; 40]);
        let c = Candidate { device: "d".repeat(64), ..c };
        let long = Offer { lacks: "x".repeat(5000), ..offer("m", &vec![c; 200]) };
        let bytes = long.write();
        assert!(bytes.len() <= crate::bootstrap::VALUE_MAX);
        let read = Offer::read(&bytes).unwrap();
        assert_eq!((read.candidates.len(), read.candidates[0].routes.len()), (CANDIDATES, ROUTES));
    }
}
