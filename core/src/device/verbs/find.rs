//! Which device, port and GID: found through the `ibverbs` crate, chosen by rules that explain themselves.
//!
//! Without a setting the first device is taken whose port is active. On Ethernet a GID of RoCE v2 is preferred (it
//! is routed and passes switches as UDP), of an IPv4 address before a global IPv6 address before one of the
//! link; on InfiniBand the port's first GID.

use std::sync::Arc;

use ibverbs::GidEntry;

use super::sys::{Context, Gid};
use crate::error::{Error, ErrorKind, Result};
use crate::settings::Settings;

/// Link layers, as ports report them.
const ETHERNET: u8 = 2;

/// Kinds of GIDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GidKind {
    InfiniBand,
    RoceV1,
    RoceV2,
}

/// One entry of a port's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) index: u32,
    pub(super) gid: Gid,
    pub(super) kind: GidKind,
}

/// What was chosen, and why.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) device: String,
    pub(super) port: u8,
    pub(super) gid_index: u8,
    pub(super) gid: Gid,
    pub(super) lid: u16,
    pub(super) ethernet: bool,
    /// For people.
    pub(super) why: String,
}

/// A choice with the device that was opened to make it.
type Opened = (Choice, Arc<Context>);

/// Address families of a GID, best first.
fn family(gid: &Gid) -> (u8, &'static str) {
    if gid[..10] == [0; 10] && gid[10..12] == [0xff, 0xff] {
        (0, "an IPv4 address")
    } else if gid[0] == 0xfe && gid[1] & 0xc0 == 0x80 {
        (2, "an address of the link only")
    } else {
        (1, "a global IPv6 address")
    }
}

fn empty(gid: &Gid) -> bool {
    gid[8..] == [0; 8] && gid[..8] == [0; 8]
}

/// The GID that peers reach best, with the reason.
pub(super) fn choose_gid(table: &[Candidate], ethernet: bool) -> Option<(Candidate, String)> {
    let best = table.iter().filter(|c| !empty(&c.gid)).min_by_key(|c| {
        let kind = match (ethernet, c.kind) {
            (true, GidKind::RoceV2) | (false, GidKind::InfiniBand) => 0,
            (true, GidKind::RoceV1) => 1,
            _ => 2,
        };
        let family = if ethernet { family(&c.gid).0 } else { 0 };
        (kind, family, c.index)
    })?;
    let why = match best.kind {
        GidKind::InfiniBand => "the port's own".to_owned(),
        GidKind::RoceV1 => format!("RoCE v1, {}: there is none of v2", family(&best.gid).1),
        GidKind::RoceV2 => format!("RoCE v2, {}", family(&best.gid).1),
    };
    Some((*best, why))
}

/// A GID as people write it.
pub(super) fn show(gid: &Gid) -> String {
    if family(gid).0 == 0 {
        return format!("::ffff:{}.{}.{}.{}", gid[12], gid[13], gid[14], gid[15]);
    }
    std::net::Ipv6Addr::from(*gid).to_string()
}

fn candidates(table: &[GidEntry], port: u8) -> Vec<Candidate> {
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
            Candidate { index: e.gid_index, gid, kind }
        })
        .collect()
}

fn unsupported(cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unsupported, "choose a verbs device").device("verbs").cause(cause)
}

/// Which entry of the setting a rank takes: name and port, if they are given.
pub(super) fn entry(setting: &str, rank: u32) -> Result<Option<(String, Option<u8>)>> {
    if setting == "auto" {
        return Ok(None);
    }
    let bad = || Error::new(ErrorKind::Setting, "read FARSIDE_VERBS_DEVICE").cause(format!("{setting:?}"));
    let all: Vec<&str> = setting.split(',').map(str::trim).filter(|s| !s.is_empty()).collect();
    let text = all.get(rank as usize % all.len().max(1)).ok_or_else(bad)?;
    match text.split_once(':') {
        None => Ok(Some(((*text).to_owned(), None))),
        Some((name, port)) => Ok(Some((name.to_owned(), Some(port.parse().map_err(|_| bad())?)))),
    }
}

/// Names of all devices here.
pub(super) fn names() -> Result<Vec<String>> {
    let list = ibverbs::devices().map_err(|e| {
        unsupported("the kernel offers no RDMA devices to this process")
            .source_error(e)
            .remedy("load the driver (modprobe ib_uverbs and the card's), and let this process see /dev/infiniband")
    })?;
    Ok(list.iter().filter_map(|d| d.name().map(|n| n.to_string_lossy().into_owned())).collect())
}

/// Chooses for `rank`.
///
/// # Errors
/// `Unsupported` with what each device lacks.
pub(super) fn choose(settings: &Settings, rank: u32) -> Result<Opened> {
    let wanted = entry(&settings.verbs_device, rank)?;
    let names = names()?;
    let mut reasons = Vec::new();
    for name in &names {
        let ports = match &wanted {
            Some((w, _)) if w != name => continue,
            Some((_, Some(port))) => vec![*port],
            _ => Vec::new(),
        };
        match try_device(name, ports, settings) {
            Ok(choice) => return Ok(choice),
            Err(e) => reasons.push(format!("{name}: {e}")),
        }
    }
    if let (Some((w, _)), true) = (&wanted, reasons.is_empty()) {
        return Err(unsupported(format!("no device is called {w}; there are: {}", names.join(", ")))
            .remedy("correct FARSIDE_VERBS_DEVICE"));
    }
    if reasons.is_empty() {
        return Err(unsupported("this machine has no RDMA device")
            .remedy("install a card, or make a software device: rdma link add rxe0 type rxe netdev eth0"));
    }
    Err(unsupported(reasons.join("; ")).remedy("bring a port up (ibv_devinfo shows their state)"))
}

fn try_device(name: &str, ports: Vec<u8>, settings: &Settings) -> Result<Opened, String> {
    let text = |e: std::io::Error| e.to_string();
    let context = Context::open(name).map_err(text)?;
    let count = context.attributes().map_err(text)?.phys_port_cnt;
    let ports = if ports.is_empty() { (1..=count).collect() } else { ports };
    let mut why_not = Vec::new();
    for port in ports {
        let attributes = context.port(port).map_err(|e| format!("port {port}: {e}"))?;
        if attributes.state != rdma_port_active() {
            why_not.push(format!("port {port} is not active"));
            continue;
        }
        let ethernet = attributes.link_layer == ETHERNET;
        let table = gid_table(name, port)?;
        let (gid, why) = match settings.verbs_gid {
            Some(index) => {
                let found = table.iter().find(|c| c.index == u32::from(index));
                (*found.ok_or_else(|| format!("port {port} has no GID {index}"))?, "as set".to_owned())
            }
            None => choose_gid(&table, ethernet).ok_or_else(|| format!("port {port} has no GID"))?,
        };
        let link = if ethernet { "RoCE" } else { "InfiniBand" };
        let choice = Choice {
            device: name.to_owned(),
            port,
            gid_index: gid.index as u8,
            gid: gid.gid,
            lid: attributes.lid,
            ethernet,
            why: format!("{name} port {port} ({link}), GID {} {} ({why})", gid.index, show(&gid.gid)),
        };
        return Ok((choice, context));
    }
    Err(why_not.join(", "))
}

/// The state of a port that works.
fn rdma_port_active() -> u32 {
    rdma_sys::ibv_port_state::IBV_PORT_ACTIVE
}

fn gid_table(name: &str, port: u8) -> Result<Vec<Candidate>, String> {
    let list = ibverbs::devices().map_err(|e| e.to_string())?;
    let device = list.iter().find(|d| d.name().is_some_and(|n| n.to_bytes() == name.as_bytes()));
    let device = device.ok_or("the device has gone")?;
    let context = device.open().map_err(|e| e.to_string())?;
    Ok(candidates(context.gid_table(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: Gid = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0xa, 0xff, 0xfe, 9, 0, 1];
    const V4: Gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, 1];
    const V6: Gid = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

    fn table(rows: &[(Gid, GidKind)]) -> Vec<Candidate> {
        rows.iter().enumerate().map(|(i, (gid, kind))| Candidate { index: i as u32, gid: *gid, kind: *kind }).collect()
    }

    #[test]
    fn roce_v2_of_an_ipv4_address_is_preferred() {
        use GidKind::*;
        let t = table(&[(LINK, RoceV1), (LINK, RoceV2), (V6, RoceV2), (V4, RoceV1), (V4, RoceV2)]);
        let (c, why) = choose_gid(&t, true).unwrap();
        assert_eq!(c.index, 4);
        assert!(why.contains("v2") && why.contains("IPv4"), "{why}");
        assert_eq!(choose_gid(&t[..3], true).unwrap().0.index, 2);
        assert_eq!(choose_gid(&t[..2], true).unwrap().0.index, 1);
        assert!(choose_gid(&t[..1], true).unwrap().1.contains("v1"));
    }

    #[test]
    fn infiniband_takes_the_first_gid_and_empty_ones_are_none() {
        let t = table(&[([0; 16], GidKind::InfiniBand), (LINK, GidKind::InfiniBand), (V6, GidKind::InfiniBand)]);
        assert_eq!(choose_gid(&t, false).unwrap().0.index, 1);
        assert!(choose_gid(&t[..1], false).is_none());
    }

    #[test]
    fn entry_goes_round_by_rank() {
        assert_eq!(entry("auto", 3).unwrap(), None);
        assert_eq!(entry("rxe0,rxe1", 3).unwrap(), Some(("rxe1".into(), None)));
        assert_eq!(entry("mlx5_0:2", 3).unwrap(), Some(("mlx5_0".into(), Some(2))));
        assert_eq!(entry("a:x", 0).unwrap_err().kind(), ErrorKind::Setting);
        assert_eq!(entry(",", 0).unwrap_err().kind(), ErrorKind::Setting);
    }

    #[test]
    fn gids_are_shown_as_addresses() {
        assert_eq!(show(&V4), "::ffff:10.9.0.1");
        assert_eq!(show(&V6), "2001:db8::1");
    }
}
