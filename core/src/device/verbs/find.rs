//! Which devices and ports there are: found through the `ibverbs` crate, judged by rules that explain themselves.
//!
//! A rank can take every active port of every device with remote atomics, or of those that the settings name, by one of
//! some GIDs ([`gids`](super::gids)). Which of them it takes depends on the other ranks: [`choose`](super::choose).

use std::sync::Arc;

use super::gids::{describe, gid_table, judge, show};
use super::netdev::{Interfaces, Prefix};
use super::reach::{CANDIDATES, Candidate, Offer};
use super::sys::{Context, Gid};
use crate::error::{Error, ErrorKind, Result};
use crate::settings::Settings;

/// Link layers, as ports report them.
const ETHERNET: u8 = 2;

/// A port and GID that a rank can take.
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

/// A choice with its device.
pub(super) type Opened = (Choice, Arc<Context>);

/// All that a rank can take, with the devices, open, and why the rest is not used.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) offer: Offer,
    /// In the order of the candidates.
    pub(super) ports: Vec<Opened>,
    pub(super) refused: Vec<String>,
}

fn unsupported(cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unsupported, "choose a verbs device").device("verbs").cause(cause)
}

/// Which entry of the setting a rank takes: name and port, if they are given.
fn entry(setting: &str, rank: u32) -> Result<Option<(String, Option<u8>)>> {
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

/// Names in the order that people count them in: mlx5_2 before mlx5_10.
fn by_name(name: &str) -> (&str, u64, &str) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (stem, name[stem.len()..].parse().unwrap_or(0), name)
}

/// Names of all devices here.
fn names() -> Result<Vec<String>> {
    let list = ibverbs::devices().map_err(|e| {
        unsupported("the kernel offers no RDMA devices to this process")
            .source_error(e)
            .remedy("load the driver (modprobe ib_uverbs and the card's), and let this process see /dev/infiniband")
    })?;
    let mut names: Vec<String> =
        list.iter().filter_map(|d| d.name().map(|n| n.to_string_lossy().into_owned())).collect();
    names.sort_by(|a, b| by_name(a).cmp(&by_name(b)));
    Ok(names)
}

/// An offer of nothing yet, by a rank of this host.
pub(super) fn here() -> Offer {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = std::fs::read_link("/proc/self/ns/net").map(|l| l.into_os_string().into_encoded_bytes());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Offer { machine: boot, space: space.unwrap_or_default(), host: host.trim().to_owned(), ..Offer::default() }
}

impl Found {
    /// Looks at all devices that `rank` may use. Not finding one is not an error here.
    ///
    /// # Errors
    /// `Setting`; `Unsupported` where the kernel or the setting offers no device at all.
    pub(super) fn new(rank: u32, settings: &Settings) -> Result<Self> {
        let wanted = entry(&settings.verbs_device, rank)?;
        let names = names()?;
        if names.is_empty() {
            return Err(unsupported("this machine has no RDMA device")
                .remedy("install a card, or make a software device: rdma link add rxe0 type rxe netdev eth0"));
        }
        let mut found = Self { offer: Offer { named: wanted.is_some(), ..here() }, ..Self::default() };
        let interfaces = Interfaces::now();
        for name in &names {
            let port = match &wanted {
                Some((w, _)) if w != name => {
                    found.refused.push(format!("{name}: FARSIDE_VERBS_DEVICE names another"));
                    continue;
                }
                Some((_, port)) => *port,
                None => None,
            };
            if let Err(why) = found.look_at(name, port, &interfaces, settings) {
                found.refused.push(format!("{name}: {why}"));
            }
        }
        if let Some((w, _)) = wanted.filter(|(w, _)| !names.contains(w)) {
            return Err(unsupported(format!("no device is called {w}; there are: {}", names.join(", ")))
                .remedy("correct FARSIDE_VERBS_DEVICE"));
        }
        Ok(found)
    }

    /// That there is nothing to take.
    pub(super) fn nothing(&self) -> Error {
        unsupported(self.refused.join("; ")).remedy("bring a port up (ibv_devinfo shows their state)")
    }

    /// What could be taken, and what not and why: a line for each.
    pub(super) fn explain(&self) -> Vec<String> {
        let usable = self.ports.iter().zip(&self.offer.candidates).enumerate().map(|(i, ((choice, _), c))| {
            let routes = match &c.routes[..] {
                [] => String::new(),
                all => format!(", routes to {}", all.iter().map(Prefix::to_string).collect::<Vec<_>>().join(", ")),
            };
            let when = match (i, c.is_guess()) {
                (_, true) => "used if nothing else connects the ranks",
                (0, _) => "used if it reaches all ranks of the job",
                _ => "used if it reaches all ranks of the job and none above does",
            };
            format!("{}, {}{routes}: {when}", choice.why, c.network())
        });
        usable.chain(self.refused.iter().map(|why| format!("not used: {why}"))).collect()
    }

    fn look_at(
        &mut self,
        name: &str,
        port: Option<u8>,
        interfaces: &Interfaces,
        settings: &Settings,
    ) -> Result<(), String> {
        let text = |e: std::io::Error| e.to_string();
        let context = Context::open(name).map_err(text)?;
        let attributes = context.attributes().map_err(text)?;
        if attributes.atomic_cap == rdma_sys::ibv_atomic_cap::IBV_ATOMIC_NONE {
            return Err("it has no remote atomics, which locks and accumulates are made of".to_owned());
        }
        for port in port.map_or(1..=attributes.phys_port_cnt, |p| p..=p) {
            if let Err(why) = self.look_at_port(name, port, &context, interfaces, settings) {
                self.refused.push(format!("{name}: port {port} {why}"));
            }
        }
        Ok(())
    }

    fn look_at_port(
        &mut self,
        name: &str,
        port: u8,
        context: &Arc<Context>,
        interfaces: &Interfaces,
        settings: &Settings,
    ) -> Result<(), String> {
        let attributes = context.port(port).map_err(|e| e.to_string())?;
        if attributes.state != rdma_sys::ibv_port_state::IBV_PORT_ACTIVE {
            return Err("is not active".to_owned());
        }
        let ethernet = attributes.link_layer == ETHERNET;
        let link = if ethernet { "RoCE" } else { "InfiniBand" };
        let interface = |index: u32| {
            let file = format!("/sys/class/infiniband/{name}/ports/{port}/gid_attrs/ndevs/{index}");
            std::fs::read_to_string(file).unwrap_or_default().trim().to_owned()
        };
        let mut none = true;
        let table = gid_table(name, port)?;
        for (e, candidate, why_not) in judge(&table, ethernet, settings.verbs_gid, interface, interfaces) {
            let gid = format!("{name} port {port} ({link}), GID {} {}", e.index, show(&e.gid));
            let full = (self.ports.len() == CANDIDATES).then(|| "there are too many others".to_owned());
            if let Some(why) = why_not.or(full) {
                self.refused.push(format!("{gid}: {why}"));
                continue;
            }
            none = false;
            let why = if settings.verbs_gid.is_some() { "as set".to_owned() } else { describe(&e) };
            let choice = Choice {
                device: name.to_owned(),
                port,
                gid_index: e.index as u8,
                gid: e.gid,
                lid: attributes.lid,
                ethernet,
                why: format!("{gid} ({why})"),
            };
            self.ports.push((choice, Arc::clone(context)));
            self.offer.candidates.push(Candidate { device: name.to_owned(), port, ..candidate });
        }
        match (none, settings.verbs_gid) {
            (true, Some(index)) => Err(format!("has no GID {index}")),
            (true, None) => Err("has no GID".to_owned()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_goes_round_by_rank() {
        assert_eq!(entry("auto", 3).unwrap(), None);
        assert_eq!(entry("rxe0,rxe1", 3).unwrap(), Some(("rxe1".into(), None)));
        assert_eq!(entry("mlx5_0:2", 3).unwrap(), Some(("mlx5_0".into(), Some(2))));
        assert_eq!(entry("a:x", 0).unwrap_err().kind(), ErrorKind::Setting);
        assert_eq!(entry(",", 0).unwrap_err().kind(), ErrorKind::Setting);
    }

    #[test]
    fn devices_are_counted_as_people_do() {
        let mut names = ["mlx5_10", "rxe0", "mlx5_2", "mlx5", "irdma"];
        names.sort_by(|a, b| by_name(a).cmp(&by_name(b)));
        assert_eq!(names, ["irdma", "mlx5", "mlx5_2", "mlx5_10", "rxe0"]);
    }
}
