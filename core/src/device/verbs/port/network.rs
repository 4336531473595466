//! The network of a RoCE port: the subnet of an address, and the other destinations of its interface.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Maximum number of routes published per interface; an interface with more routes is treated as one with a default
/// route.
pub(super) const ROUTES: usize = 16;
/// Route flags of `<linux/route.h>`.
const UP: u32 = 1;
const REJECT: u32 = 0x200;

/// Addresses and routes of all interfaces, each with the interface's name.
#[derive(Default)]
pub(super) struct Interfaces {
    addresses: Vec<(String, IpNet)>,
    routes: Vec<(String, IpNet)>,
}

impl Interfaces {
    /// Reads addresses and routes. Unreadable ones are omitted; an address without a known subnet has the lowest
    /// preference.
    pub(super) fn now() -> Self {
        let text = |name: &str| std::fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default();
        let mut routes: Vec<_> = text("route").lines().filter_map(ipv4_route).collect();
        routes.extend(text("ipv6_route").lines().filter_map(ipv6_route));
        let net = |i: if_addrs::Interface| {
            let bits = match &i.addr {
                if_addrs::IfAddr::V4(a) => a.prefixlen,
                if_addrs::IfAddr::V6(a) => a.prefixlen,
            };
            Some((i.name, IpNet::new(i.addr.ip(), bits).ok()?))
        };
        let addresses = if_addrs::get_if_addrs().unwrap_or_default().into_iter().filter_map(net).collect();
        Self { addresses, routes }
    }

    /// The subnet of an address of interface `name`.
    pub(super) fn subnet(&self, name: &str, address: IpAddr) -> Option<IpNet> {
        self.addresses.iter().find(|(n, a)| n == name && a.addr() == address).map(|(_, a)| a.trunc())
    }

    /// Destinations outside its subnet to which interface `name` has routes, in the address family of `from`.
    pub(super) fn routes(&self, name: &str, from: IpAddr, subnet: Option<IpNet>) -> Vec<IpNet> {
        let is_link = |ip: IpAddr| matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let fits = |net: &IpNet| {
            let to = net.network();
            to.is_ipv4() == from.is_ipv4() && Some(*net) != subnet && !is_link(to) && !to.is_multicast()
        };
        let mut found: Vec<_> = self.routes.iter().filter(|(n, net)| n == name && fits(net)).map(|(_, n)| *n).collect();
        found.sort_unstable();
        found.dedup();
        if found.len() > ROUTES {
            return IpNet::new(from, 0).map(|all| all.trunc()).into_iter().collect();
        }
        found
    }
}

fn is_usable(flags: &str) -> bool {
    u32::from_str_radix(flags, 16).is_ok_and(|f| f & UP != 0 && f & REJECT == 0)
}

/// Parses a line of `/proc/net/route`: interface and destination of a route that is up. Numbers are hexadecimal;
/// addresses are in the machine's byte order.
fn ipv4_route(line: &str) -> Option<(String, IpNet)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [name, to, _, flags, _, _, _, mask, ..] = fields[..] else { return None };
    let ip = |text| u32::from_str_radix(text, 16).ok().map(|n| Ipv4Addr::from(n.to_ne_bytes()));
    let net = IpNet::with_netmask(ip(to)?.into(), ip(mask)?.into()).ok()?;
    is_usable(flags).then(|| (name.to_owned(), net.trunc()))
}

/// Parses a line of `/proc/net/ipv6_route` in the same way.
fn ipv6_route(line: &str) -> Option<(String, IpNet)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [to, bits, .., flags, name] = fields[..] else { return None };
    let to = Ipv6Addr::from(u128::from_str_radix(to, 16).ok()?);
    let net = IpNet::new(to.into(), u8::from_str_radix(bits, 16).ok()?).ok()?;
    is_usable(flags).then(|| (name.to_owned(), net.trunc()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn routes_are_read_from_the_kernels_tables() {
        let head = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT";
        assert_eq!(ipv4_route(head), None);
        let line = |to, flags, mask| format!("eth0\t{to}\t010011AC\t{flags}\t0\t0\t0\t{mask}\t0\t0\t0");
        for (to, flags, mask, expected) in [
            ("00000000", "0003", "00000000", Some("0.0.0.0/0")),
            ("0000090A", "0001", "00FFFFFF", Some("10.9.0.0/24")),
            ("0000090A", "0201", "00FFFFFF", None),
            ("0000090A", "0000", "00FFFFFF", None),
        ] {
            assert_eq!(
                ipv4_route(&line(to, flags, mask)),
                expected.map(|n| ("eth0".to_owned(), net(n))),
                "{to} {flags}"
            );
        }
        let zero = "0".repeat(32);
        let start = format!("20010db8{} 20 {zero} 00 {zero} 00000100 00000001 00000000", "0".repeat(24));
        assert_eq!(ipv6_route(&format!("{start} 00000001     e0")), Some(("e0".to_owned(), net("2001:db8::/32"))));
        assert_eq!(ipv6_route(&format!("{start} 00000201     e0")), None);
    }

    #[test]
    fn routes_are_those_of_the_interface_and_of_the_family() {
        let all = ["10.9.0.0/24", "10.0.0.0/8", "2001:db8::/32", "::/0", "fe80::/64", "ff00::/8"];
        let mut routes: Vec<_> = all.map(|p| ("e0".to_owned(), net(p))).into();
        routes.push(("e1".to_owned(), net("0.0.0.0/0")));
        let addresses = vec![("e0".to_owned(), net("10.9.0.1/24")), ("e1".to_owned(), net("10.9.0.1/8"))];
        let mut known = Interfaces { addresses, routes };
        let subnet = known.subnet("e0", ip("10.9.0.1"));
        assert_eq!(subnet, Some(net("10.9.0.0/24")));
        assert_eq!(known.subnet("e0", ip("10.9.0.2")), None);
        assert_eq!(known.routes("e0", ip("10.9.0.1"), subnet), [net("10.0.0.0/8")]);
        assert_eq!(known.routes("e0", ip("2001:db8::1"), None), [net("::/0"), net("2001:db8::/32")]);
        known.routes.extend((0..20).map(|i| ("e0".to_owned(), net(&format!("192.0.2.{i}/32")))));
        assert_eq!(known.routes("e0", ip("10.9.0.1"), subnet), [net("0.0.0.0/0")], "too many to publish");
    }

    #[test]
    fn loopback_has_its_address_with_the_usual_prefix() {
        // In a namespace whose loopback interface is down, the loop has no iterations.
        for (name, net) in Interfaces::now().addresses.iter().filter(|(_, a)| a.addr() == Ipv4Addr::LOCALHOST) {
            assert_eq!((name.as_str(), net.prefix_len()), ("lo", 8));
        }
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_not(line in "[0-9a-fA-F \t]{0,120}") {
            let _ = (ipv4_route(&line), ipv6_route(&line));
        }
    }
}
