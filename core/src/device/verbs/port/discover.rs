//! Discovers the ports and GIDs that this rank can open, and the reasons why it cannot open the others.
//!
//! Considers each active port of every device with remote atomics (or of the devices that the settings name), with one
//! GID per subnet. On Ethernet, RoCE v2 (routable over UDP/IP) precedes v1, and an IPv4 address precedes a global IPv6
//! address; a link-local address is offered only if the port has no others. On InfiniBand the port's first GID is used.
//! Candidates are ordered by the merit of their ports ([`super::merit`]).

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;

use super::candidate::{Candidate, GidKind, PortsOfRank, Scope, gid};
use super::merit::{Merit, Nearness, speed};
use super::network::Interfaces;
use super::{LocalPort, OP, Opened};
use crate::device::verbs::adapter::usable;
use crate::device::verbs::sys::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::settings::Settings;

/// Link layer code of Ethernet, as reported by ports.
const ETHERNET: u8 = 2;
/// `IBV_QPF_GRH_REQUIRED` of ports.
const GLOBAL: u8 = 1;
/// Maximum number of candidates of a rank.
pub(super) const CANDIDATES: usize = 64;

/// The ports that this rank can open, with their open devices.
#[derive(Default)]
pub(crate) struct LocalPorts {
    pub(super) published: PortsOfRank,
    /// The opened ports, in the order of the candidates.
    pub(super) ports: Vec<Opened>,
    /// Ports that cannot be opened, and the reasons.
    refused: Vec<String>,
}

fn unsupported(cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unsupported, OP).device("verbs").cause(cause)
}

/// The entries of `FARSIDE_VERBS_DEVICE`: device name and port, as far as given. None for `auto`.
fn named(setting: &str) -> Result<Vec<(String, Option<u8>)>> {
    if setting == "auto" {
        return Ok(Vec::new());
    }
    let bad = |of: &str| {
        Error::new(ErrorKind::Setting, "read FARSIDE_VERBS_DEVICE")
            .cause(format!("{setting:?} is not a list of NAME or NAME:PORT{of}"))
    };
    let entry = |text: &str| match text.split_once(':') {
        None => Ok((text.to_owned(), None)),
        Some((name, port)) => Ok((name.to_owned(), Some(port.parse().map_err(|_| bad(""))?))),
    };
    let all = setting.split(',').map(str::trim).filter(|s| !s.is_empty()).map(entry).collect::<Result<Vec<_>>>()?;
    match all.len() {
        0 => Err(bad("")),
        1..=CANDIDATES => Ok(all),
        _ => Err(bad(&format!(" of at most {CANDIDATES} entries"))),
    }
}

/// Sort key of a device name: orders mlx5_2 before mlx5_10.
fn by_name(name: &str) -> (String, u64) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (stem.to_owned(), name[stem.len()..].parse().unwrap_or(0))
}

/// Names of all devices, sorted.
fn devices() -> Result<Vec<String>> {
    let list = ibverbs::devices().map_err(|e| {
        unsupported("this process sees no RDMA devices")
            .source_error(e)
            .remedy("load the drivers (modprobe ib_uverbs and the HCA's), and let this process see /dev/infiniband")
    })?;
    let mut names: Vec<_> = list.iter().filter_map(|d| Some(d.name()?.to_string_lossy().into_owned())).collect();
    names.sort_by_cached_key(|name| by_name(name));
    if names.is_empty() {
        return Err(unsupported("this machine has no RDMA device")
            .remedy("install an HCA, or create a Soft-RoCE device: rdma link add rxe0 type rxe netdev eth0"));
    }
    Ok(names)
}

/// Opens a device that this runtime can use; also returns its number of ports.
fn open(device: &str) -> Result<(Arc<Context>, u8), String> {
    let context = Context::open(device).map_err(|e| e.to_string())?;
    let attributes = context.attributes().map_err(|e| e.to_string())?;
    usable(&context, &attributes)?;
    Ok((context, attributes.phys_port_cnt))
}

/// The GIDs of a port with their indexes, from the kernel's files.
fn gids(device: &str, port: u8, ethernet: bool, interfaces: &Interfaces) -> Vec<(u8, Candidate)> {
    let entry = |index: u8| {
        let file = |name: &str| {
            let path = format!("/sys/class/infiniband/{device}/ports/{port}/{name}/{index}");
            std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
        };
        let ip = file("gids").parse::<Ipv6Addr>().ok().filter(|ip| !ip.is_unspecified())?;
        let kind = match (ethernet, &file("gid_attrs/types")[..]) {
            (false, _) => GidKind::InfiniBand,
            (_, "RoCE v2") => GidKind::RoceV2,
            _ => GidKind::RoceV1,
        };
        let address = IpAddr::V6(ip).to_canonical();
        let (subnet, routes, merit) = (None, Vec::new(), Merit::default());
        let mut c = Candidate { device: device.to_owned(), port, kind, address, subnet, routes, merit, entry: 0 };
        let interface = file("gid_attrs/ndevs");
        c.subnet = match (kind, c.scope()) {
            (GidKind::InfiniBand, _) => IpNet::new(address, 64).ok().map(|net| net.trunc()),
            (_, Scope::Link) => None,
            _ => interfaces.subnet(&interface, address),
        };
        if kind == GidKind::RoceV2 && c.scope() == Scope::Network {
            c.routes = interfaces.routes(&interface, address, c.subnet);
        }
        Some((index, c))
    };
    (0..=255).filter_map(entry).collect()
}

/// Orders the GIDs of a port, best first; gives a reason for those that are not offered.
fn judge(mut gids: Vec<(u8, Candidate)>, set: Option<u8>) -> Vec<(u8, Candidate, Option<String>)> {
    gids.sort_by_key(|(index, c)| (c.scope() == Scope::Link, c.kind, c.scope(), !c.address.is_ipv4(), *index));
    let network = |c: &Candidate| (c.kind, c.scope(), c.subnet, c.address.is_ipv4());
    let alike = |a: &Candidate, b: &Candidate| network(a) == network(b) || a.kind == GidKind::InfiniBand;
    let mut offered: Vec<(u8, Candidate)> = Vec::new();
    let judged = gids.into_iter().map(|(index, c)| {
        let why_not = match offered.iter().find(|(_, o)| alike(o, &c)) {
            _ if set.is_some_and(|set| set != index) => Some("FARSIDE_VERBS_GID selects another GID".to_owned()),
            Some((other, _)) => Some(format!("the GID is in the same network as GID {other}")),
            None if c.scope() == Scope::Link && offered.iter().any(|(_, o)| o.scope() == Scope::Network) => {
                Some("a link-local GID, and the port has GIDs of wider scope".to_owned())
            }
            None => None,
        };
        if why_not.is_none() {
            offered.push((index, c.clone()));
        }
        (index, c, why_not)
    });
    judged.collect()
}

/// Describes the kind of a GID.
fn describe(c: &Candidate) -> String {
    let address = match c.scope() {
        _ if c.kind == GidKind::InfiniBand => return "the port's own".to_owned(),
        Scope::Link => "a link-local address",
        Scope::Machine => "a loopback address",
        Scope::Network if c.address.is_ipv4() => "an IPv4 address",
        Scope::Network => "a global IPv6 address",
    };
    format!("{}, {address}", c.kind)
}

impl LocalPorts {
    /// Opens all devices that the rank may use. It is not an error of this call if no port can be opened.
    ///
    /// # Errors
    /// `Setting`; `Unsupported` if the kernel or the setting offers no device at all.
    pub(crate) fn find(settings: &Settings) -> Result<Self> {
        let named = named(&settings.verbs_device)?;
        let devices = devices()?;
        let missing: Vec<&str> = named
            .iter()
            .map(|(name, _)| &name[..])
            .filter(|name| !devices.iter().any(|device| device == name))
            .collect();
        if !named.is_empty() && missing.len() == named.len() {
            let (missing, devices) = (missing.join(", "), devices.join(", "));
            return Err(unsupported(format!("there is no device {missing}; the devices are {devices}"))
                .remedy("correct FARSIDE_VERBS_DEVICE"));
        }
        let published = PortsOfRank { entries: named.len() as u8, ..PortsOfRank::here() };
        let refused = missing.iter().map(|name| format!("{name}: there is no such device")).collect();
        let mut found = Self { published, refused, ..Self::default() };
        let interfaces = Interfaces::now();
        let nearness = Nearness::now();
        for device in &devices {
            // The entries that name the device, and the port of each, if it has one.
            let entries: Vec<(u8, Option<u8>)> = match named.is_empty() {
                true => vec![(0, None)],
                false => (0..).zip(&named).filter(|(_, (name, _))| name == device).map(|(i, (_, p))| (i, *p)).collect(),
            };
            let opened = match entries.is_empty() {
                true => Err("FARSIDE_VERBS_DEVICE selects another device or port".to_owned()),
                false => open(device),
            };
            let (context, ports) = match opened {
                Ok(opened) => opened,
                Err(why) => {
                    found.refused.push(format!("{device}: {why}"));
                    continue;
                }
            };
            let of_entry = |(entry, port): (u8, Option<u8>)| port.map_or(1..=ports, |p| p..=p).map(move |p| (entry, p));
            for (entry, port) in entries.into_iter().flat_map(of_entry) {
                let place = (&device[..], nearness.of(device), entry);
                if let Err(why) = found.add_port(place, port, &context, &interfaces, settings.verbs_gid) {
                    found.refused.push(format!("{device}: port {port} {why}"));
                }
            }
        }
        found.rank();
        Ok(found)
    }

    /// Orders the candidates, best first; those of equal merit stay in the order of their names.
    fn rank(&mut self) {
        let candidates = std::mem::take(&mut self.published.candidates);
        let mut all: Vec<_> = std::mem::take(&mut self.ports).into_iter().zip(candidates).collect();
        all.sort_by_key(|((local, _), c)| c.merit.order(local.ethernet));
        (self.ports, self.published.candidates) = all.into_iter().unzip();
    }

    fn add_port(
        &mut self,
        (device, distance, entry): (&str, u8, u8),
        port: u8,
        context: &Arc<Context>,
        interfaces: &Interfaces,
        set: Option<u8>,
    ) -> Result<(), String> {
        let attributes = context.port(port).map_err(|e| e.to_string())?;
        if attributes.state != rdma_sys::ibv_port_state::IBV_PORT_ACTIVE {
            return Err("is not active".to_owned());
        }
        let ethernet = attributes.link_layer == ETHERNET;
        let link = if ethernet { "RoCE" } else { "InfiniBand" };
        let merit = Merit { speed: speed(attributes.active_width, attributes.active_speed), distance };
        let mut has_any = false;
        for (gid_index, candidate, why_not) in judge(gids(device, port, ethernet, interfaces), set) {
            let gid = gid(candidate.address);
            let name = format!("{device} port {port} ({link}), GID {gid_index} {}", Ipv6Addr::from(gid));
            // Each entry has as many.
            let most = CANDIDATES / usize::from(self.published.entries.max(1));
            let full = self.published.candidates.iter().filter(|c| c.entry == entry).count() == most;
            let full = full.then(|| format!("the rank already has {most} candidate ports, the maximum"));
            if let Some(why) = why_not.or(full) {
                self.refused.push(format!("{name}: {why}"));
                continue;
            }
            has_any = true;
            let of = set.map_or_else(|| describe(&candidate), |_| "as set".to_owned());
            let why = format!("{name} ({of}), {merit}");
            let lid = attributes.lid;
            let global = attributes.flags & GLOBAL != 0;
            let local = LocalPort { device: device.to_owned(), port, gid_index, gid, lid, ethernet, global, why };
            self.ports.push((local, Arc::clone(context)));
            self.published.candidates.push(Candidate { merit, entry, ..candidate });
        }
        match set {
            _ if has_any => Ok(()),
            Some(index) => Err(format!("has no GID {index}")),
            None => Err("has no GID".to_owned()),
        }
    }

    /// The error of a rank that cannot open any port.
    pub(super) fn nothing(&self) -> Error {
        unsupported(self.refused.join("; ")).remedy("bring a port up (ibv_devinfo shows their state)")
    }

    /// One line per port and GID: whether it would be used, and the reason.
    pub(crate) fn explain(&self) -> Vec<String> {
        let usable = self.ports.iter().zip(&self.published.candidates).enumerate().map(|(i, ((local, _), c))| {
            let routes = c.routes.iter().map(IpNet::to_string).collect::<Vec<_>>().join(", ");
            let routes = if routes.is_empty() { routes } else { format!(", routes to {routes}") };
            let when = match (i, c.is_guess()) {
                (_, true) => "used if nothing else connects the ranks",
                (0, _) => "used if it reaches all ranks of the job",
                _ => "used if it reaches all ranks of the job and none above does",
            };
            format!("{}, {}{routes}: {when}", local.why, c.network())
        });
        usable.chain(self.refused.iter().map(|why| format!("not used: {why}"))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::candidate::tests::candidate;
    use super::GidKind::*;
    use super::*;

    #[test]
    fn entries_are_devices_and_their_ports() {
        assert_eq!(named("auto").unwrap(), []);
        assert_eq!(named("rxe0, rxe1").unwrap(), [("rxe0".into(), None), ("rxe1".into(), None)]);
        assert_eq!(named("mlx5_0:2").unwrap(), [("mlx5_0".into(), Some(2))]);
        for wrong in ["a:x", ",", "a:1,b:y", &"r,".repeat(CANDIDATES + 1)] {
            assert_eq!(named(wrong).unwrap_err().kind(), ErrorKind::Setting, "{wrong}");
        }
    }

    #[test]
    fn devices_are_counted_as_people_do() {
        let mut names = ["mlx5_10", "rxe0", "mlx5_2", "mlx5", "irdma"];
        names.sort_by_key(|name| by_name(name));
        assert_eq!(names, ["irdma", "mlx5", "mlx5_2", "mlx5_10", "rxe0"]);
    }

    /// Indexes of the offered GIDs, best first, and the reason for each of the others.
    fn offered(table: &[(&str, GidKind)], set: Option<u8>) -> (Vec<u8>, Vec<(u8, String)>) {
        let gids = table.iter().zip(0..).map(|((ip, kind), i)| (i, candidate("r", *kind, ip, &[]))).collect();
        let (no, yes): (Vec<_>, Vec<_>) = judge(gids, set).into_iter().partition(|(.., why_not)| why_not.is_some());
        let why_not = no.into_iter().map(|(i, _, why)| (i, why.unwrap()));
        (yes.into_iter().map(|(i, ..)| i).collect(), why_not.collect())
    }

    #[test]
    fn roce_v2_of_an_ipv4_address_is_preferred_and_each_network_is_offered_once() {
        let (link, v6, v4) = ("fe80::1", "2001:db8::1", "10.9.0.1");
        let t = [(link, RoceV1), (link, RoceV2), (v6, RoceV2), (v4, RoceV1), (v4, RoceV2), (v4, RoceV2)];
        for (table, set, expected) in [
            (&t[..], None, vec![4, 2, 3]),
            (&t[..3], None, vec![2]),
            (&t[..2], None, vec![1, 0]),
            (&t, Some(1), vec![1]),
        ] {
            assert_eq!(offered(table, set).0, expected, "{table:?}");
        }
        assert!(offered(&t, Some(9)).0.is_empty());
        let why_not = offered(&t, None).1;
        let has_reason = |index, word| why_not.iter().any(|(i, why)| *i == index && why.contains(word));
        assert!(has_reason(1, "link-local") && has_reason(5, "same network as GID 4"), "{why_not:?}");
        // One GID for each subnet, including that of the loopback interface.
        let subnets = [("127.0.0.1/8", RoceV2), ("10.1.0.1/24", RoceV2), ("10.2.0.1/24", RoceV2), (link, RoceV2)];
        assert_eq!(offered(&subnets, None).0, [1, 2, 0]);
    }

    #[test]
    fn infiniband_offers_the_first_gid() {
        let t = [("fe80::1/64", InfiniBand), ("2001:db8::1/64", InfiniBand)];
        assert_eq!(offered(&t, None).0, [0]);
        assert_eq!(offered(&t, Some(1)).0, [1]);
    }

    #[test]
    fn gids_are_described_by_kind_and_address() {
        for (kind, ip, text) in [
            (RoceV2, "10.9.0.1", "RoCE v2, an IPv4 address"),
            (RoceV1, "2001:db8::1", "RoCE v1, a global IPv6 address"),
            (RoceV2, "fe80::1", "RoCE v2, a link-local address"),
            (RoceV2, "127.0.0.1", "RoCE v2, a loopback address"),
            (InfiniBand, "fe80::1", "the port's own"),
        ] {
            assert_eq!(describe(&candidate("r", kind, ip, &[])), text);
        }
    }
}
