//! By which GIDs a port is offered to the other ranks.
//!
//! On Ethernet by one of RoCE v2 (it is routed and passes switches as UDP) before one of v1, of an IPv4 address
//! before a global IPv6 address, one for each subnet; by one of an address of the link only if there are no others.
//! On InfiniBand by the port's first.

use ibverbs::GidEntry;

use super::netdev::{Interfaces, Prefix, is_ipv4};
use super::reach::{Candidate, GidKind, Scope, scope};
use super::sys::Gid;

/// One entry of a port's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) index: u32,
    pub(super) gid: Gid,
    pub(super) kind: GidKind,
}

fn empty(gid: &Gid) -> bool {
    gid[8..] == [0; 8] && gid[..8] == [0; 8]
}

/// What is said of a GID that is chosen.
pub(super) fn describe(entry: &Entry) -> String {
    let address = match scope(&entry.gid) {
        _ if entry.kind == GidKind::InfiniBand => return "the port's own".to_owned(),
        Scope::Link => "an address of the link only",
        Scope::Machine => "an address of this machine only",
        Scope::Network if is_ipv4(&entry.gid) => "an IPv4 address",
        Scope::Network => "a global IPv6 address",
    };
    format!("{}, {address}", entry.kind)
}

/// GIDs by which a port may be known, best first.
fn in_order(table: &[Entry], ethernet: bool) -> Vec<Entry> {
    let mut all: Vec<Entry> = table.iter().filter(|e| !empty(&e.gid) && e.index <= 255).copied().collect();
    if ethernet {
        // Drivers that know one kind only call it by the other's name.
        all.iter_mut().filter(|e| e.kind == GidKind::InfiniBand).for_each(|e| e.kind = GidKind::RoceV1);
        all.sort_by_key(|e| (scope(&e.gid) == Scope::Link, e.kind, scope(&e.gid), !is_ipv4(&e.gid), e.index));
    } else {
        all.sort_by_key(|e| (e.kind, e.index));
    }
    all
}

/// The GIDs of a port, best first: what others are told of each, and why not if they are told nothing. `interface` names
/// the network interface behind a GID.
pub(super) fn judge(
    table: &[Entry],
    ethernet: bool,
    set: Option<u8>,
    interface: impl Fn(u32) -> String,
    interfaces: &Interfaces,
) -> Vec<(Entry, Candidate, Option<String>)> {
    let mut offered = Vec::new();
    let judged = in_order(table, ethernet).into_iter().map(|e| {
        let (name, scope) = (interface(e.index), scope(&e.gid));
        let subnet = match (e.kind, scope) {
            (GidKind::InfiniBand, _) => Some(Prefix::new(e.gid, 64)),
            (_, Scope::Link) => None,
            _ => interfaces.subnet(&name, &e.gid),
        };
        let routed = e.kind == GidKind::RoceV2 && scope == Scope::Network;
        let routes = if routed { interfaces.routes(&name, &e.gid, subnet) } else { Vec::new() };
        let c = Candidate { device: String::new(), port: 0, kind: e.kind, gid: e.gid, subnet, routes };
        let why_not = match set {
            Some(index) if u32::from(index) != e.index => Some("FARSIDE_VERBS_GID names another".to_owned()),
            _ => superfluous(&c, &offered, ethernet),
        };
        if why_not.is_none() {
            offered.push((e.index, c.clone()));
        }
        (e, c, why_not)
    });
    judged.collect()
}

/// Why GID `entry` is not offered beside those of the port that are, if so.
fn superfluous(entry: &Candidate, offered: &[(u32, Candidate)], ethernet: bool) -> Option<String> {
    let (first, _) = offered.first()?;
    if !ethernet {
        return Some(format!("the port's GID {first} is used"));
    }
    if entry.scope() == Scope::Link && offered.iter().any(|(_, c)| c.scope() == Scope::Network) {
        return Some("an address of the link only, and the port has better ones".to_owned());
    }
    let alike = |c: &Candidate| {
        (c.kind, c.scope(), c.subnet, is_ipv4(&c.gid)) == (entry.kind, entry.scope(), entry.subnet, is_ipv4(&entry.gid))
    };
    offered.iter().find(|(_, c)| alike(c)).map(|(index, _)| format!("in the same network as GID {index}"))
}

/// A GID as people write it.
pub(super) fn show(gid: &Gid) -> String {
    if is_ipv4(gid) {
        return format!("::ffff:{}.{}.{}.{}", gid[12], gid[13], gid[14], gid[15]);
    }
    std::net::Ipv6Addr::from(*gid).to_string()
}

fn entries(table: &[GidEntry], port: u8) -> Vec<Entry> {
    table
        .iter()
        .filter(|e| e.port_num == u32::from(port))
        .map(|e| {
            let mut gid = [0; 16];
            gid[..8].copy_from_slice(&e.gid.subnet_prefix().to_be_bytes());
            gid[8..].copy_from_slice(&e.gid.interface_id().to_be_bytes());
            let kind = match e.gid_type {
                1 => GidKind::RoceV1,
                2 => GidKind::RoceV2,
                _ => GidKind::InfiniBand,
            };
            Entry { index: e.gid_index, gid, kind }
        })
        .collect()
}

/// A port's table; from the kernel's files where `ibverbs` refuses it, as it does if port 1 is not active.
pub(super) fn gid_table(name: &str, port: u8) -> Result<Vec<Entry>, String> {
    let list = ibverbs::devices().map_err(|e| e.to_string())?;
    let device = list.iter().find(|d| d.name().is_some_and(|n| n.to_bytes() == name.as_bytes()));
    if let Ok(context) = device.ok_or("has gone")?.open() {
        return Ok(entries(context.gid_table(), port));
    }
    let file = |path: String| std::fs::read_to_string(format!("/sys/class/infiniband/{name}/ports/{port}/{path}"));
    let read = |index: u32| {
        let kind = file(format!("gid_attrs/types/{index}")).unwrap_or_default();
        entry_of_files(index, &file(format!("gids/{index}")).ok()?, &kind)
    };
    Ok((0..=255).filter_map(read).collect())
}

/// An entry from the text of its files: eight groups of hexadecimal digits, and the kind.
fn entry_of_files(index: u32, gid: &str, kind: &str) -> Option<Entry> {
    let gid = gid.trim().parse::<std::net::Ipv6Addr>().ok()?.octets();
    let kind = if kind.trim() == "RoCE v2" { GidKind::RoceV2 } else { GidKind::InfiniBand };
    Some(Entry { index, gid, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: Gid = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0xa, 0xff, 0xfe, 9, 0, 1];
    const V4: Gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, 1];
    const V6: Gid = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

    fn table(rows: &[(Gid, GidKind)]) -> Vec<Entry> {
        rows.iter().enumerate().map(|(i, (gid, kind))| Entry { index: i as u32, gid: *gid, kind: *kind }).collect()
    }

    /// Indexes of the GIDs that are offered, best first.
    fn offered(table: &[Entry], ethernet: bool, set: Option<u8>) -> Vec<u32> {
        let judged = judge(table, ethernet, set, |_| String::new(), &Interfaces::default());
        judged.into_iter().filter(|(_, _, why_not)| why_not.is_none()).map(|(e, _, _)| e.index).collect()
    }

    #[test]
    fn roce_v2_of_an_ipv4_address_is_preferred_and_each_network_is_offered_once() {
        use GidKind::*;
        let t = table(&[(LINK, RoceV1), (LINK, RoceV2), (V6, RoceV2), (V4, RoceV1), (V4, RoceV2), (V4, RoceV2)]);
        assert_eq!(offered(&t, true, None), [4, 2, 3]);
        assert!(describe(&t[4]).contains("v2") && describe(&t[4]).contains("IPv4"));
        assert_eq!(offered(&t[..3], true, None), [2]);
        assert_eq!(offered(&t[..2], true, None), [1, 0]);
        assert_eq!(offered(&t, true, Some(1)), [1], "as set");
        assert!(offered(&t, true, Some(9)).is_empty());
        let judged = judge(&t, true, None, |_| String::new(), &Interfaces::default());
        let why = |index| judged.iter().find(|(e, ..)| e.index == index).unwrap().2.clone().unwrap();
        assert!(why(1).contains("of the link only") && why(5).contains("same network as GID 4"), "{judged:?}");
    }

    #[test]
    fn infiniband_takes_the_first_gid_and_empty_ones_are_none() {
        let t = table(&[([0; 16], GidKind::InfiniBand), (LINK, GidKind::InfiniBand), (V6, GidKind::InfiniBand)]);
        assert_eq!(offered(&t, false, None), [1]);
        assert!(offered(&t[..1], false, None).is_empty());
        let judged = judge(&t, false, None, |_| String::new(), &Interfaces::default());
        assert_eq!(judged[0].1.subnet.unwrap().to_string(), "fe80::/64");
    }

    #[test]
    fn entries_are_read_from_the_kernels_files() {
        let text = "0000:0000:0000:0000:0000:ffff:0a09:0001\n";
        let v2 = Entry { index: 3, gid: V4, kind: GidKind::RoceV2 };
        assert_eq!(entry_of_files(3, text, "RoCE v2\n"), Some(v2));
        assert_eq!(entry_of_files(3, text, "IB/RoCE v1\n"), Some(Entry { kind: GidKind::InfiniBand, ..v2 }));
        assert_eq!(entry_of_files(3, "", ""), None);
    }

    #[test]
    fn gids_are_shown_as_addresses() {
        assert_eq!(show(&V4), "::ffff:10.9.0.1");
        assert_eq!(show(&V6), "2001:db8::1");
    }
}
