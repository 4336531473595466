//! Opens the devices of a list and combines them.

use super::group::Group;
use super::{exchange, open_one};
use crate::bootstrap::Bootstrap;
use crate::device::route::subset::Subset;
use crate::device::route::{Choice, Chosen, MAX_DEVICES, Member, RouteDevice};
use crate::device::routing::{RoutingTable, host_name};
use crate::device::{Device, ofi, shm, tcp};
use crate::error::{Error, ErrorKind, Result};
use crate::service::{with_order, with_updates};
use crate::settings::{DeviceLists, ListedDevice, ListedKind, Settings};
use crate::wire::{Reader, Writer};

const OP: &str = "open the devices of the job";

/// A device of the job: the `nth` of a kind, from 0.
type Named = (ListedKind, usize);

/// Returns the reason why a device of the list does not work at this rank as an error.
fn probe(device: &ListedDevice, rank: u32, settings: &Settings) -> Result<()> {
    match device.kind {
        ListedKind::Shm => Ok(()),
        ListedKind::Tcp => tcp::probe(settings).map(drop),
        ListedKind::Verbs => super::probe_verbs(rank, settings),
        ListedKind::Ofi => ofi::report(settings).0.map(drop).map_err(|e| e.rank(rank)),
    }
}

/// Numbers each device among those of its kind.
fn named(list: &[ListedDevice]) -> Vec<(Named, ListedDevice)> {
    let nth = |at: usize| list[..at].iter().filter(|other| other.kind == list[at].kind).count();
    list.iter().enumerate().map(|(at, device)| ((device.kind, nth(at)), device.clone())).collect()
}

/// The devices of a rank, as it publishes them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Announced {
    /// Digest of the routing table.
    digest: u64,
    host: String,
    devices: Vec<Named>,
    /// The names of the devices in the rank's list.
    names: Vec<String>,
}

impl Announced {
    fn new(digest: u64, host: String, devices: &[(Named, ListedDevice)]) -> Self {
        let names = devices.iter().map(|(_, device)| device.text()).collect();
        Self { digest, host, devices: devices.iter().map(|(named, _)| *named).collect(), names }
    }

    fn write(&self) -> Vec<u8> {
        let w = Writer::new().u64(self.digest).bytes(self.host.as_bytes());
        let all = self.devices.iter().zip(&self.names);
        all.fold(w, |w, ((kind, nth), name)| w.u8(*kind as u8).u8(*nth as u8).bytes(name.as_bytes())).done()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let (digest, host) = (r.u64()?, text(r.bytes()?)?);
        let (mut devices, mut names) = (Vec::new(), Vec::new());
        while !r.is_empty() {
            devices.push((*ListedKind::ALL.get(usize::from(r.u8()?))?, usize::from(r.u8()?)));
            names.push(text(r.bytes()?)?);
        }
        Some(Self { digest, host, devices, names })
    }
}

/// The devices that the routing table names for ranks `me` and `peer`: those of the route from the host of the lower
/// rank to that of the higher one, so that both ranks make the same choice. A name is that of a kind, or that of a
/// device in the lower rank's list, or else in the higher rank's.
fn choice(table: &RoutingTable, all: &[Announced], devices: &[Named], (me, peer): (usize, usize)) -> Choice {
    let [low, high] = [me.min(peer), me.max(peer)].map(|rank| &all[rank]);
    let Some((from, to)) = table.node(&low.host).zip(table.node(&high.host)) else { return Choice::default() };
    table.devices(from, to).map(|name| {
        let name = name?;
        let has = |rank: &Announced, named: &Named| rank.devices.contains(named);
        let kind = low.devices.iter().find(|named| named.0.name() == name && has(high, named));
        let listed = |rank: &Announced| Some(rank.devices[rank.names.iter().position(|listed| listed == name)?]);
        let found = match kind {
            Some((kind, _)) => Some(Chosen::Kind(*kind as u8)),
            None => {
                let both = [low, high].into_iter().filter_map(listed).find(|named| has(low, named) && has(high, named));
                let number = both.and_then(|named| devices.iter().position(|other| *other == named));
                number.map(|number| Chosen::Device(number as u8))
            }
        };
        if found.is_none() {
            let hosts = [&low.host, &high.host];
            tracing::info!(
                rank = me,
                peer,
                "FARSIDE_ROUTES names device {name} between {hosts:?}, which only some of the ranks have: the order of \
                 FARSIDE_DEVICES is used"
            );
        }
        found
    })
}

/// The devices of the job, by number, and those of each rank, as bits.
fn numbered(ranks: &[Announced]) -> (Vec<Named>, Vec<u64>) {
    // Number 0 is shared memory, even if no rank has it.
    let mut all = vec![(ListedKind::Shm, 0)];
    for named in ranks.iter().flat_map(|rank| &rank.devices) {
        if !all.contains(named) {
            all.push(*named);
        }
    }
    // The order is that of the ranks' lists, but the same for all ranks.
    let bit = |named: &Named| all.iter().position(|other| other == named).map_or(0, |at| 1u64 << at.min(63));
    let has = ranks.iter().map(|rank| rank.devices.iter().fold(0, |bits, named| bits | bit(named))).collect();
    (all, has)
}

/// Opens the devices that this rank has in common with others, and combines them. Collective. `nodes`: the nodes of the
/// ranks, if ranks of a node use shared memory.
///
/// # Errors
/// `Unsupported` if two ranks have no device in common, or no device is common to all ranks; `Setting` for more than
/// [`MAX_DEVICES`] devices, or a routing table that cannot be read; `Mismatch` if ranks have different tables; those of
/// the devices.
pub(super) fn open(
    bootstrap: &mut dyn Bootstrap,
    settings: &Settings,
    lists: &DeviceLists,
    nodes: Option<&shm::Nodes>,
) -> Result<Box<dyn Device>> {
    let (me, size) = (bootstrap.rank(), bootstrap.size());
    let mut left_out = None;
    let mut own = named(lists.of_rank(me));
    own.retain(|(_, device)| match probe(device, me, &settings.for_device(device)) {
        Ok(()) => true,
        Err(e) => {
            tracing::info!("device {} is not used: {e}", device.kind.name());
            left_out.get_or_insert(e);
            false
        }
    });
    let near = nodes.map(|nodes| nodes.sharing_with(me));
    let near = match near {
        Some(ranks) => {
            let number = ranks.iter().position(|rank| *rank == me).unwrap_or(0);
            let prepared = shm::Prepared::new(number, ranks.clone(), settings)?;
            bootstrap.put(&format!("node.{me}"), &prepared.address()?)?;
            Some((prepared, ranks))
        }
        None => None,
    };
    let table = RoutingTable::of(settings).map_err(|e| e.rank(me))?;
    let all = exchange(bootstrap, "devices", &Announced::new(table.digest(), host_name(), &own).write())?;
    let malformed = |rank: usize| Error::new(ErrorKind::Protocol, OP).rank(me).peer(rank).cause("malformed list");
    let all = all.iter().enumerate().map(|(rank, bytes)| Announced::read(bytes).ok_or_else(|| malformed(rank)));
    let all = all.collect::<Result<Vec<_>>>()?;
    if let Some(other) = all.iter().position(|other| other.digest != table.digest()) {
        let e = Error::new(ErrorKind::Mismatch, OP).rank(me).peer(other);
        return Err(e
            .cause("the peer's FARSIDE_ROUTES has different contents")
            .remedy("copy the same file to every host"));
    }
    let (devices, has) = numbered(&all);
    if devices.len() > MAX_DEVICES {
        let e = Error::new(ErrorKind::Setting, OP).rank(me);
        return Err(
            e.cause(format!("FARSIDE_DEVICES names {} devices, but at most {MAX_DEVICES} are allowed", devices.len()))
        );
    }
    let intra = match near {
        Some((prepared, ranks)) => {
            let addresses = ranks.iter().map(|r| bootstrap.get(&format!("node.{r}"))).collect::<Result<Vec<_>>>()?;
            Some(Box::new(prepared.connect(&addresses, size)?) as Box<dyn Device>)
        }
        None => None,
    };
    let members = |number: usize| (0..size).filter(|rank| has[*rank as usize] >> number & 1 == 1).collect::<Vec<_>>();
    let domain = (1..devices.len()).find(|number| members(*number).len() == size as usize);
    let mut inter = Vec::new();
    for (number, name) in devices.iter().enumerate().skip(1) {
        let ranks = members(number);
        let Some((_, listed)) = own.iter().find(|(own, _)| own == name) else {
            Group::pass(bootstrap)?;
            continue;
        };
        let mut group = Group::new(bootstrap, &ranks, format!("d{number}."));
        let opened = open_one(listed.kind, &mut group, &settings.for_device(listed))
            .map_err(|e| e.renumbered(|n| ranks.get(n).map_or(n, |rank| *rank as usize)));
        // The other ranks, if any, enter the fences of this group too.
        if ranks.len() < size as usize && opened.is_ok() {
            group.end()?;
        }
        let own = ranks.iter().position(|rank| *rank == me).unwrap_or(0) as u32;
        let mut device = with_order(opened?, own);
        // Only atomics of the domain's device are composed from steps.
        if Some(number) == domain {
            device = with_updates(device);
        }
        if ranks.len() < size as usize {
            device = Box::new(Subset::new(device, ranks, size));
        }
        inter.push((Member { number: number as u8, kind: listed.kind as u8, carries: listed.sizes }, device));
    }
    // Every rank maps the segments of its node before a rank may end.
    bootstrap.fence()?;
    let has: Vec<u8> = has.iter().map(|bits| *bits as u8).collect();
    let chosen: Vec<Choice> =
        (0..size as usize).map(|peer| choice(&table, &all, &devices, (me as usize, peer))).collect();
    let joined = RouteDevice::new(me, intra, inter, &has, &chosen);
    let lowest = nodes.map_or(&[][..], shm::Nodes::lowest);
    joined.map(|device| Box::new(device.on_nodes(lowest)) as Box<dyn Device>).map_err(|e| match left_out {
        Some(reason) if e.kind() == ErrorKind::Unsupported => {
            reason.because(&format!("the device is not used, and without it: {e}"))
        }
        _ => e,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::ListedKind::{Shm, Tcp, Verbs};

    /// Ranks on hosts with devices, each given by a kind and the name of an interface.
    fn ranks(lists: &[(&str, &[(ListedKind, &str)])]) -> Vec<Announced> {
        let device = |(kind, name): &(ListedKind, &str)| {
            let name = Some((*name).to_owned()).filter(|name| !name.is_empty());
            ListedDevice { name, ..ListedDevice::new(*kind) }
        };
        let rank = |(host, list): &(&str, &[(ListedKind, &str)])| {
            let list: Vec<ListedDevice> = list.iter().map(device).collect();
            let announced = Announced::new(7, (*host).to_owned(), &named(&list));
            assert_eq!(Announced::read(&announced.write()).as_ref(), Some(&announced));
            announced
        };
        lists.iter().map(rank).collect()
    }

    #[test]
    fn devices_are_numbered_alike_at_all_ranks() {
        let ranks = ranks(&[("a", &[(Shm, ""), (Tcp, "")]), ("b", &[(Shm, ""), (Verbs, ""), (Tcp, ""), (Tcp, "v")])]);
        let (all, has) = numbered(&ranks);
        assert_eq!(all, [(Shm, 0), (Tcp, 0), (Verbs, 0), (Tcp, 1)]);
        assert_eq!(has, [0b0011, 0b1111]);
        let none = Announced { devices: Vec::new(), names: Vec::new(), ..ranks[0].clone() }.write();
        let read = |more: &[u8]| Announced::read(&[&none, more].concat());
        assert!(read(&[]).is_some() && read(&[0]).is_none() && read(&[4, 0, 0, 0, 0, 0]).is_none());
    }

    #[test]
    fn table_of_routes_is_read_alike_by_both_ranks() {
        let row = |from: &str, next: &str, to: &str, device: [&str; 3]| {
            let next = format!("[\"{next}\", \"{next}\", \"{to}\"]");
            format!("[[routes]]\nfrom = \"{from}\"\nto = \"{to}\"\nnext = {next}\ndevice = {device:?}\n")
        };
        let rows = [
            row("a", "b", "b", ["tcp:v1", "verbs", "tcp:w0"]),
            row("b", "a", "a", ["tcp:w0", "tcp:v1", "shm"]),
            row("a", "b", "c", ["tcp", "tcp", "tcp"]),
        ];
        let text = format!("version = 1\nnodes = [\"a\", \"b\", \"c\"]\n{}", rows.concat());
        let table = RoutingTable::read(&text).unwrap();
        let all = ranks(&[
            ("a.example.org", &[(Verbs, ""), (Tcp, "v0"), (Tcp, "v1")]),
            ("b", &[(Tcp, "w0"), (Tcp, "w1")]),
            ("a", &[(Verbs, ""), (Tcp, "v0"), (Tcp, "v1")]),
            ("c", &[(Tcp, "")]),
            ("d", &[(Tcp, "")]),
        ]);
        let (devices, _) = numbered(&all);
        assert_eq!(devices, [(Shm, 0), (Verbs, 0), (Tcp, 0), (Tcp, 1)]);
        let of = |me, peer| choice(&table, &all, &devices, (me, peer));
        let device = |number| Some(Chosen::Device(number));
        // Names of the lower rank, and then of the higher one; the second rank has no verbs.
        assert_eq!((of(0, 1), of(1, 0)), ([device(3), None, device(2)], [device(3), None, device(2)]));
        // The route is that from b to a, as rank 1 is lower.
        assert_eq!((of(1, 2), of(2, 1)), ([device(2), device(3), None], [device(2), device(3), None]));
        // A direct route for large messages only, and no row.
        assert_eq!((of(0, 3), of(1, 3), of(0, 4)), ([None, None, Some(Chosen::Kind(Tcp as u8))], [None; 3], [None; 3]));
    }
}
