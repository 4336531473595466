//! The address at which a rank accepts connections, and the interface to which it belongs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::error::{Error, ErrorKind, Result};
use crate::wire::{Reader, Writer};

const OP: &str = "open the tcp device";

/// What a rank publishes so that others can connect to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndpointAddress {
    pub(super) at: SocketAddr,
    pub(super) encrypts: bool,
}

impl EndpointAddress {
    pub(super) fn write(&self) -> Vec<u8> {
        Writer::new().u8(self.encrypts.into()).bytes(self.at.to_string().as_bytes()).done()
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let encrypts = r.u8()? != 0;
        let at = std::str::from_utf8(r.bytes()?).ok()?.parse().ok()?;
        Some(Self { at, encrypts })
    }
}

/// A host, and its addresses that others may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    /// The same for processes with the same network.
    name: Vec<u8>,
    addresses: Vec<IpAddr>,
}

impl Host {
    pub(super) fn here() -> Result<Self> {
        let boot = std::fs::read("/proc/sys/kernel/random/boot_id").map_err(|e| Error::system(OP, e))?;
        let network = std::fs::read_link("/proc/self/ns/net").map_err(|e| Error::system(OP, e))?;
        let all = if_addrs::get_if_addrs().map_err(|e| Error::system(OP, e))?;
        let mut addresses: Vec<IpAddr> = all.iter().map(if_addrs::Interface::ip).filter(is_global).collect();
        addresses.sort_by_key(IpAddr::is_ipv6);
        addresses.truncate(16);
        Ok(Self { name: [boot, network.into_os_string().into_encoded_bytes()].concat(), addresses })
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let text: Vec<String> = self.addresses.iter().map(IpAddr::to_string).collect();
        Writer::new().bytes(&self.name).bytes(text.join(" ").as_bytes()).done()
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let name = r.bytes()?.to_vec();
        let addresses = std::str::from_utf8(r.bytes()?).ok()?.split_whitespace().map(str::parse);
        Some(Self { name, addresses: addresses.collect::<Result<_, _>>().ok()? })
    }
}

fn is_global(address: &IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !address.is_loopback() && !is_link_local && !address.is_unspecified()
}

/// The address on which rank `me` accepts connections: as the setting says, or else the loopback address if all ranks
/// are on one host, or that of the interface through which a rank of another host is reached.
///
/// # Errors
/// `Setting` for an interface that does not exist; `Unsupported` if no route leads to another host.
pub(super) fn choose(setting: &str, me: usize, hosts: &[Host]) -> Result<IpAddr> {
    if setting != "auto" {
        let entries: Vec<&str> = setting.split(',').map(str::trim).collect();
        return named(entries[me % entries.len()]);
    }
    let own = &hosts[me];
    let Some((rank, other)) = hosts.iter().enumerate().find(|(_, host)| host.name != own.name) else {
        return Ok(Ipv4Addr::LOCALHOST.into());
    };
    other.addresses.iter().find_map(|to| route(*to)).ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, OP)
            .peer(rank)
            .device("tcp")
            .cause(format!("no route leads to any of its addresses: {:?}", other.addresses))
            .remedy("connect the hosts, or name an interface in FARSIDE_TCP_INTERFACE")
    })
}

/// The own address of the route to another one; nothing is sent.
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
            .cause(format!("{entry:?} is no interface with an address; this host has {}", names.join(", ")))
            .remedy("correct FARSIDE_TCP_INTERFACE")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_back_and_others_are_refused() {
        for at in ["127.0.0.1:80", "[fd00::2]:65535"] {
            let address = EndpointAddress { at: at.parse().unwrap(), encrypts: true };
            assert_eq!(EndpointAddress::read(&address.write()), Some(address));
        }
        let bytes = EndpointAddress { at: "127.0.0.1:80".parse().unwrap(), encrypts: false }.write();
        (0..bytes.len()).for_each(|len| assert_eq!(EndpointAddress::read(&bytes[..len]), None));
        let here = Host::here().unwrap();
        assert_eq!(Host::read(&here.write()), Some(here));
        assert_eq!(Host::read(&[1, 0, 0, 0, 7, 200, 0, 0, 0]), None);
    }

    #[test]
    fn ranks_of_one_host_use_the_loopback_and_the_setting_decides_otherwise() {
        let host = |name: u8, address: &str| Host { name: vec![name], addresses: vec![address.parse().unwrap()] };
        let one = [host(1, "192.0.2.7"), host(1, "192.0.2.7")];
        assert_eq!(choose("auto", 1, &one).unwrap(), Ipv4Addr::LOCALHOST);
        assert_eq!(choose("::1, 127.0.0.1", 2, &one).unwrap(), Ipv6Addr::LOCALHOST);
        assert_eq!(choose("lo", 0, &one).unwrap(), Ipv4Addr::LOCALHOST);
        assert_eq!(choose("no-such", 0, &one).unwrap_err().kind(), ErrorKind::Setting);
        // A host that is reached by the loopback interface only cannot be another host.
        let apart = [host(1, "192.0.2.7"), host(2, "127.0.0.1")];
        assert_eq!(choose("auto", 0, &apart).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
