//! The network behind a RoCE port: the subnet of an address, and where else its interface leads, from the kernel's
//! tables.

use std::fmt;

use super::sys::Gid;
use super::sys::addresses::{Address, addresses};

/// Routes of one interface that are told to others; an interface with more leads anywhere.
pub(super) const ROUTES: usize = 16;
/// Flags of routes (`<linux/route.h>`).
const UP: u32 = 1;
const REJECT: u32 = 0x200;

/// Addresses with the same first bits. IPv4 as GIDs have it: 0.0.0.0/0 is ::ffff:0:0/96.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Prefix {
    pub(super) address: Gid,
    pub(super) bits: u8,
}

impl Prefix {
    /// The prefix of `bits` bits (at most 128) that `address` has.
    pub(super) fn new(address: Gid, bits: u8) -> Self {
        let bits = bits.min(128);
        let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
        Self { address: (u128::from_be_bytes(address) & mask).to_be_bytes(), bits }
    }

    pub(super) fn covers(&self, address: &Gid) -> bool {
        Self::new(*address, self.bits) == *self
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ip = std::net::Ipv6Addr::from(self.address);
        match ip.to_ipv4_mapped().filter(|_| self.bits >= 96) {
            Some(v4) => write!(f, "{v4}/{}", self.bits - 96),
            None => write!(f, "{ip}/{}", self.bits),
        }
    }
}

pub(super) fn is_ipv4(gid: &Gid) -> bool {
    gid[..10] == [0; 10] && gid[10..12] == [0xff, 0xff]
}

/// What the kernel says about all interfaces.
#[derive(Debug, Default)]
pub(super) struct Interfaces {
    addresses: Vec<Address>,
    routes: Vec<(String, Prefix)>,
}

impl Interfaces {
    /// What cannot be read is left out: an address whose subnet is not known is judged by none.
    pub(super) fn now() -> Self {
        let text = |name: &str| std::fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default();
        let mut routes: Vec<_> = text("route").lines().filter_map(ipv4_route).collect();
        routes.extend(text("ipv6_route").lines().filter_map(ipv6_route));
        Self { addresses: addresses().unwrap_or_default(), routes }
    }

    /// The subnet of an address of interface `name`.
    pub(super) fn subnet(&self, name: &str, gid: &Gid) -> Option<Prefix> {
        self.addresses.iter().find(|(n, g, _)| n == name && g == gid).map(|(_, g, bits)| Prefix::new(*g, *bits))
    }

    /// Where interface `name` leads to for packets of the address family of `gid`, beside its subnet.
    pub(super) fn routes(&self, name: &str, gid: &Gid, subnet: Option<Prefix>) -> Vec<Prefix> {
        let link = Prefix::new(std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0).octets(), 10);
        let fits = |p: &Prefix| {
            is_ipv4(gid) == (is_ipv4(&p.address) && p.bits >= 96)
                && Some(*p) != subnet
                && !link.covers(&p.address)
                && p.address[0] != 0xff
        };
        let mut found: Vec<_> = self.routes.iter().filter(|(n, p)| n == name && fits(p)).map(|(_, p)| *p).collect();
        found.sort_unstable();
        found.dedup();
        if found.len() > ROUTES {
            return vec![if is_ipv4(gid) { Prefix::new(*gid, 96) } else { Prefix::new(*gid, 0) }];
        }
        found
    }
}

/// A line of `/proc/net/route`: interface and destination, if it is a route that is up. Numbers are hexadecimal,
/// addresses in the machine's byte order.
fn ipv4_route(line: &str) -> Option<(String, Prefix)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let number = |i: usize| u32::from_str_radix(fields.get(i)?, 16).ok();
    let (to, flags, mask) = (number(1)?, number(3)?, number(7)?);
    let address = std::net::Ipv4Addr::from(to.to_ne_bytes()).to_ipv6_mapped().octets();
    let bits = 96 + u32::from_be_bytes(mask.to_ne_bytes()).leading_ones() as u8;
    (flags & UP != 0 && flags & REJECT == 0).then(|| (fields[0].to_owned(), Prefix::new(address, bits)))
}

/// The same for `/proc/net/ipv6_route`.
fn ipv6_route(line: &str) -> Option<(String, Prefix)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [to, bits, .., flags, name] = fields[..] else { return None };
    let address = u128::from_str_radix(to, 16).ok()?.to_be_bytes();
    let bits = u8::from_str_radix(bits, 16).ok().filter(|b| *b <= 128)?;
    let flags = u32::from_str_radix(flags, 16).ok()?;
    (flags & UP != 0 && flags & REJECT == 0).then(|| (name.to_owned(), Prefix::new(address, bits)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn gid(text: &str) -> Gid {
        match text.parse().unwrap() {
            std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            std::net::IpAddr::V6(v6) => v6.octets(),
        }
    }

    fn prefix(text: &str) -> Prefix {
        let (address, bits) = text.split_once('/').unwrap();
        let bits: u8 = bits.parse().unwrap();
        Prefix::new(gid(address), if address.contains(':') { bits } else { 96 + bits })
    }

    #[test]
    fn prefixes_cover_their_addresses_and_are_written_as_people_do() {
        for (p, inside, outside) in [
            ("10.9.0.0/24", "10.9.0.255", "10.9.1.0"),
            ("10.9.0.4/31", "10.9.0.5", "10.9.0.6"),
            ("0.0.0.0/0", "192.0.2.1", "2001:db8::1"),
            ("2001:db8::/32", "2001:db8:7::1", "2001:db9::1"),
            ("192.0.2.1/32", "192.0.2.1", "192.0.2.0"),
        ] {
            let known = prefix(p);
            assert!(known.covers(&gid(inside)) && !known.covers(&gid(outside)), "{p}");
            assert_eq!(known.to_string(), p);
        }
        assert_eq!(prefix("10.9.3.4/16").to_string(), "10.9.0.0/16");
        assert_eq!(prefix("::/0").to_string(), "::/0");
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn routes_are_read_from_the_kernels_tables() {
        let head = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT";
        assert_eq!(ipv4_route(head), None);
        let line = |to, flags, mask| format!("eth0\t{to}\t010011AC\t{flags}\t0\t0\t0\t{mask}\t0\t0\t0");
        let found = ipv4_route(&line("00000000", "0003", "00000000"));
        assert_eq!(found, Some(("eth0".to_owned(), prefix("0.0.0.0/0"))));
        let found = ipv4_route(&line("0000090A", "0001", "00FFFFFF"));
        assert_eq!(found, Some(("eth0".to_owned(), prefix("10.9.0.0/24"))));
        assert_eq!(ipv4_route(&line("0000090A", "0201", "00FFFFFF")), None, "packets are refused");
        assert_eq!(ipv4_route(&line("0000090A", "0000", "00FFFFFF")), None, "down");
        let line = |flags| {
            let zero = "0".repeat(32);
            format!("20010db8{} 20 {zero} 00 {zero} 00000100 00000001 00000000 {flags}     e0", "0".repeat(24))
        };
        assert_eq!(ipv6_route(&line("00000001")), Some(("e0".to_owned(), prefix("2001:db8::/32"))));
        assert_eq!(ipv6_route(&line("00000201")), None);
    }

    #[test]
    fn routes_are_those_of_the_interface_and_of_the_family() {
        let all = ["10.9.0.0/24", "10.0.0.0/8", "2001:db8::/32", "::/0", "fe80::/64", "ff00::/8"];
        let mut routes: Vec<_> = all.map(|p| ("e0".to_owned(), prefix(p))).into();
        routes.push(("e1".to_owned(), prefix("0.0.0.0/0")));
        let addresses = vec![("e0".to_owned(), gid("10.9.0.1"), 96 + 24), ("e1".to_owned(), gid("10.9.0.1"), 96 + 8)];
        let mut known = Interfaces { addresses, routes };
        let subnet = known.subnet("e0", &gid("10.9.0.1"));
        assert_eq!(subnet, Some(prefix("10.9.0.0/24")));
        assert_eq!(known.subnet("e0", &gid("10.9.0.2")), None);
        assert_eq!(known.routes("e0", &gid("10.9.0.1"), subnet), [prefix("10.0.0.0/8")]);
        assert_eq!(known.routes("e0", &gid("2001:db8::1"), None), [prefix("::/0"), prefix("2001:db8::/32")]);
        known.routes.extend((0..20).map(|i| ("e0".to_owned(), prefix(&format!("192.0.2.{i}/32")))));
        assert_eq!(known.routes("e0", &gid("10.9.0.1"), subnet), [prefix("0.0.0.0/0")], "too many to tell");
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_not(line in "[0-9a-fA-F \t]{0,120}", to in any::<[u8; 16]>(), bits in any::<u8>()) {
            let _ = (ipv4_route(&line), ipv6_route(&line));
            let p = Prefix::new(to, bits);
            prop_assert!(p.covers(&to) && p.bits <= 128);
            let _ = p.to_string();
        }
    }
}
