//! The addresses at which a rank accepts connections, and the networks to which its host belongs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use rustc_hash::FxHashSet;

use crate::device::routing::host_name;
use crate::error::{Error, ErrorKind, Result};
use crate::wire::{Reader, Writer};

const OP: &str = "open the tcp device";
/// Maximum number of addresses at which a rank accepts connections.
const MAX_ADDRESSES: usize = 8;

/// The endpoint address of a rank, which it publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndpointAddress {
    pub(super) at: Vec<SocketAddr>,
    pub(super) encrypts: bool,
}

impl EndpointAddress {
    pub(super) fn write(&self) -> Vec<u8> {
        let at: Vec<String> = self.at.iter().map(SocketAddr::to_string).collect();
        Writer::new().u8(self.encrypts.into()).bytes(at.join(" ").as_bytes()).done()
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let encrypts = r.u8()? != 0;
        let at = std::str::from_utf8(r.bytes()?).ok()?.split_whitespace().map(str::parse);
        let at = at.collect::<Result<Vec<_>, _>>().ok()?;
        (!at.is_empty()).then_some(Self { at, encrypts })
    }
}

/// A host, and its addresses that other hosts may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    /// Equal for processes in the same network namespace.
    pub(super) name: Vec<u8>,
    /// The name in a routing table.
    pub(super) node: String,
    /// Addresses, and the lengths of the prefixes of their networks.
    networks: Vec<(IpAddr, u8)>,
}

impl Host {
    pub(super) fn here() -> Result<Self> {
        let mut networks: Vec<_> = interfaces()?.into_iter().map(|(_, address, prefix)| (address, prefix)).collect();
        networks.truncate(16);
        let boot = std::fs::read("/proc/sys/kernel/random/boot_id");
        let name = match boot.and_then(|boot| Ok((boot, std::fs::read_link("/proc/self/ns/net")?))) {
            Ok((boot, network)) => [boot, network.into_os_string().into_encoded_bytes()].concat(),
            // Without /proc, processes with the same addresses are assumed to be on one host.
            Err(_) => format!("{networks:?}").into_bytes(),
        };
        Ok(Self { name, node: host_name(), networks })
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let text: Vec<String> = self.networks.iter().map(|(address, prefix)| format!("{address}/{prefix}")).collect();
        Writer::new().bytes(&self.name).bytes(self.node.as_bytes()).bytes(text.join(" ").as_bytes()).done()
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let name = r.bytes()?.to_vec();
        let mut text = || std::str::from_utf8(r.bytes()?).ok();
        let node = text()?.to_owned();
        Some(Self { name, node, networks: networks(text()?)? })
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.networks.iter().map(|(address, _)| *address)
    }

    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.addresses().any(|own| own == address)
    }

    /// Whether an address belongs to a network of this host.
    pub(super) fn reaches(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|(own, prefix)| bits(*own, *prefix) == bits(address, *prefix))
    }

    /// Whether this host and another one have a common network.
    pub(super) fn shares(&self, other: &Self) -> bool {
        other.addresses().any(|address| self.reaches(address))
    }

    #[cfg(test)]
    pub(super) fn of(node: &str, text: &str) -> Self {
        Self { name: node.into(), node: node.into(), networks: networks(text).unwrap() }
    }
}

/// The interfaces of this host with the addresses that other hosts may reach, and the lengths of the prefixes of their
/// networks.
pub(super) fn interfaces() -> Result<Vec<(String, IpAddr, u8)>> {
    let all = if_addrs::get_if_addrs().map_err(|e| Error::system(OP, e))?;
    let prefix = |interface: &if_addrs::Interface| match &interface.addr {
        if_addrs::IfAddr::V4(v4) => v4.prefixlen,
        if_addrs::IfAddr::V6(v6) => v6.prefixlen,
    };
    let mut interfaces: Vec<_> = all.iter().map(|i| (i.name.clone(), i.ip(), prefix(i))).collect();
    interfaces.retain(|(_, address, _)| is_global(address));
    interfaces.sort_by_key(|(_, address, _)| address.is_ipv6());
    Ok(interfaces)
}

/// Parses addresses with the lengths of prefixes.
fn networks(text: &str) -> Option<Vec<(IpAddr, u8)>> {
    let network = |part: &str| {
        let (address, prefix) = part.split_once('/')?;
        Some((address.parse().ok()?, prefix.parse().ok()?))
    };
    text.split_whitespace().map(network).collect()
}

/// The family of an address, and the first `prefix` bits of it.
fn bits(address: IpAddr, prefix: u8) -> (bool, u128) {
    let (bits, len) = match address {
        IpAddr::V4(v4) => (v4.to_bits().into(), 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    };
    (len == 32, bits.checked_shr(u32::from(u8::saturating_sub(len, prefix))).unwrap_or(0))
}

fn is_global(address: &IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !address.is_loopback() && !is_link_local && !address.is_unspecified()
}

/// The addresses on which rank `me` accepts connections: according to the setting, or else the loopback address if all
/// ranks are on one host, or those of the interfaces through which ranks of other hosts are reached.
///
/// # Errors
/// `Setting` for an interface that does not exist; `Unsupported` if this host has no route to another host.
pub(super) fn choose(setting: &str, me: usize, hosts: &[Host]) -> Result<Vec<IpAddr>> {
    if setting != "auto" {
        let entries: Vec<&str> = setting.split(',').collect();
        return entries[me % entries.len()].split('+').map(|entry| named(entry.trim())).collect();
    }
    let own = &hosts[me];
    let mut seen = FxHashSet::default();
    let others: Vec<&Host> = hosts.iter().filter(|host| host.name != own.name && seen.insert(&host.name)).collect();
    if others.is_empty() {
        return Ok(vec![Ipv4Addr::LOCALHOST.into()]);
    }
    let mut all = Vec::new();
    // Addresses in a common network come first: an address in another network may belong to several hosts.
    let to = || others.iter().flat_map(|host| host.addresses()).filter(|to| !own.has(*to));
    for to in to().filter(|to| own.reaches(*to)).chain(to().filter(|to| !own.reaches(*to))) {
        if let Some(at) = route(to).filter(|at| !all.contains(at)) {
            all.push(at);
        }
    }
    all.truncate(MAX_ADDRESSES);
    if all.is_empty() {
        let names: Vec<&str> = others.iter().map(|host| host.node.as_str()).take(8).collect();
        return Err(Error::new(ErrorKind::Unsupported, OP)
            .device("tcp")
            .cause(format!("this host has no route to an address of another host ({})", names.join(", ")))
            .remedy("check the network between the hosts, or name an interface in FARSIDE_TCP_INTERFACE"));
    }
    Ok(all)
}

/// The local address of the route to another address; nothing is sent.
fn route(to: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((to, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(is_global)
}

/// The address of an interface, or an address itself.
fn named(entry: &str) -> Result<IpAddr> {
    if let Ok(address) = entry.parse() {
        return Ok(address);
    }
    let all = if_addrs::get_if_addrs().map_err(|e| Error::system(OP, e))?;
    let mut of_name: Vec<IpAddr> = all.iter().filter(|i| i.name == entry).map(if_addrs::Interface::ip).collect();
    of_name.retain(|address| address.is_loopback() || is_global(address));
    of_name.sort_by_key(IpAddr::is_ipv6);
    of_name.first().copied().ok_or_else(|| {
        let names: Vec<String> = all.iter().map(|i| format!("{} ({})", i.name, i.ip())).collect();
        Error::new(ErrorKind::Setting, OP)
            .device("tcp")
            .cause(format!("{entry:?} is not an interface with an address; this host has {}", names.join(", ")))
            .remedy("correct FARSIDE_TCP_INTERFACE")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_back_and_others_are_refused() {
        let at = ["127.0.0.1:80", "[fd00::2]:65535"].map(|at| at.parse().unwrap()).to_vec();
        let address = EndpointAddress { at, encrypts: true };
        assert_eq!(EndpointAddress::read(&address.write()), Some(address));
        let bytes = EndpointAddress { at: vec!["127.0.0.1:80".parse().unwrap()], encrypts: false }.write();
        (0..bytes.len()).for_each(|len| assert_eq!(EndpointAddress::read(&bytes[..len]), None));
        let here = Host::here().unwrap();
        assert_eq!(Host::read(&here.write()), Some(here));
        assert_eq!(Host::read(&[1, 0, 0, 0, 7, 200, 0, 0, 0]), None);
    }

    #[test]
    fn ranks_of_one_host_use_the_loopback_and_the_setting_decides_otherwise() {
        let one = [Host::of("a", "192.0.2.7/24"), Host::of("a", "192.0.2.7/24")];
        assert_eq!(choose("auto", 1, &one).unwrap(), [Ipv4Addr::LOCALHOST]);
        assert_eq!(choose("::1, 127.0.0.1", 2, &one).unwrap(), [Ipv6Addr::LOCALHOST]);
        assert_eq!(choose("lo", 0, &one).unwrap(), [Ipv4Addr::LOCALHOST]);
        let both: [IpAddr; 2] = [Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()];
        assert_eq!(choose("127.0.0.1,::1 + lo", 1, &one).unwrap(), both);
        assert_eq!(choose("no-such", 0, &one).unwrap_err().kind(), ErrorKind::Setting);
        // A host that is reached by the loopback interface only cannot be another host.
        let apart = [Host::of("a", "192.0.2.7/24"), Host::of("b", "127.0.0.1/8")];
        assert_eq!(choose("auto", 0, &apart).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn hosts_share_networks_by_the_prefix() {
        let shares = |a: &str, b: &str| Host::of("a", a).shares(&Host::of("b", b));
        assert!(shares("10.1.0.1/24 10.0.2.1/24", "10.1.0.200/24") && shares("fd00::1/64", "fd00::ff:1/64"));
        assert!(!shares("10.1.0.1/24", "10.1.1.1/24") && !shares("10.1.0.1/24", "fd00::1/64"));
        assert!(shares("10.1.0.1/0", "11.1.1.1/0") && !shares("10.1.0.1/32", "10.1.0.2/32"));
    }
}
