//! Opens the devices of a list and joins them.

use super::group::Group;
use super::{exchange, open_one};
use crate::bootstrap::Bootstrap;
use crate::device::route::subset::Subset;
use crate::device::route::{MOST, Member, RouteDevice};
use crate::device::{Device, shm, tcp};
use crate::error::{Error, ErrorKind, Result};
use crate::service::steps::Steps;
use crate::settings::{DeviceLists, ListedDevice, ListedKind, Settings};

const OP: &str = "open the devices of the job";

/// A device of the job: the `nth` of a kind, from 0.
type Named = (ListedKind, usize);

/// Reports why a device of the list does not work at this rank.
fn probe(device: &ListedDevice, rank: u32, settings: &Settings) -> Result<()> {
    match device.kind {
        ListedKind::Shm => Ok(()),
        ListedKind::Tcp => tcp::probe(settings).map(drop),
        ListedKind::Verbs => super::probe_verbs(rank, settings),
    }
}

/// Gives each device its number among those of its kind.
fn named(list: &[ListedDevice]) -> Vec<(Named, ListedDevice)> {
    let nth = |at: usize| list[..at].iter().filter(|other| other.kind == list[at].kind).count();
    list.iter().enumerate().map(|(at, device)| ((device.kind, nth(at)), device.clone())).collect()
}

fn write(devices: &[(Named, ListedDevice)]) -> Vec<u8> {
    devices.iter().flat_map(|((kind, nth), _)| [*kind as u8, *nth as u8]).collect()
}

fn read(bytes: &[u8]) -> Option<Vec<Named>> {
    let kinds = [ListedKind::Shm, ListedKind::Verbs, ListedKind::Tcp];
    let one = |bytes: &[u8]| Some((*kinds.get(usize::from(bytes[0]))?, usize::from(*bytes.get(1)?)));
    bytes.chunks(2).map(one).collect()
}

/// The devices of the job, by number, and those of each rank, as bits.
fn numbered(ranks: &[Vec<Named>]) -> (Vec<Named>, Vec<u64>) {
    // Number 0 is shared memory, also where there is none.
    let mut all = vec![(ListedKind::Shm, 0)];
    for named in ranks.iter().flatten() {
        if !all.contains(named) {
            all.push(*named);
        }
    }
    // By the order in which the ranks list them, but the same for all ranks.
    let bit = |named: &Named| all.iter().position(|other| other == named).map_or(0, |at| 1u64 << at.min(63));
    let has = ranks.iter().map(|rank| rank.iter().fold(0, |bits, named| bits | bit(named))).collect();
    (all, has)
}

/// Opens the devices that this rank has in common with others, and joins them. Collective. `nodes`: where the ranks are,
/// if ranks of a node use shared memory.
///
/// # Errors
/// `Unsupported` if two ranks have no device in common, or no device is common to all ranks; `Setting` for more than
/// [`MOST`] devices; those of the devices.
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
            tracing::info!("{} is left out: {e}", device.kind.name());
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
    let all = exchange(bootstrap, "devices", &write(&own))?;
    let malformed = |rank: usize| Error::new(ErrorKind::Protocol, OP).rank(me).peer(rank).cause("malformed list");
    let all = all.iter().enumerate().map(|(rank, bytes)| read(bytes).ok_or_else(|| malformed(rank)));
    let (devices, has) = numbered(&all.collect::<Result<Vec<_>>>()?);
    if devices.len() > MOST {
        let e = Error::new(ErrorKind::Setting, OP).rank(me);
        return Err(e.cause(format!("{} devices in FARSIDE_DEVICES, {MOST} allowed", devices.len())));
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
        // The others take part in the fences of this group, if there are others.
        if ranks.len() < size as usize && opened.is_ok() {
            group.end()?;
        }
        let mut device = opened?;
        // Only atomics of the domain take steps.
        if Some(number) == domain && !device.capabilities().accumulate {
            device = Box::new(Steps::over(device));
        }
        if ranks.len() < size as usize {
            device = Box::new(Subset::new(device, ranks, size));
        }
        inter.push((Member { number: number as u8, kind: listed.kind as u8, carries: listed.sizes }, device));
    }
    // Every rank maps the segments of its node before a rank may end.
    bootstrap.fence()?;
    let has: Vec<u8> = has.iter().map(|bits| *bits as u8).collect();
    let joined = RouteDevice::new(me, intra, inter, &has);
    let lowest = nodes.map_or(&[][..], shm::Nodes::lowest);
    joined.map(|device| Box::new(device.on_nodes(lowest)) as Box<dyn Device>).map_err(|e| match left_out {
        Some(reason) if e.kind() == ErrorKind::Unsupported => {
            reason.because(&format!("it is left out, and without it: {e}"))
        }
        _ => e,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::ListedKind::{Shm, Tcp, Verbs};

    #[test]
    fn devices_are_numbered_alike_at_all_ranks() {
        let list = |kinds: &[ListedKind]| named(&kinds.iter().map(|k| ListedDevice::new(*k)).collect::<Vec<_>>());
        let ranks = [list(&[Shm, Tcp]), list(&[Shm, Verbs, Tcp, Tcp])];
        let ranks = ranks.map(|devices| read(&write(&devices)).unwrap());
        let (all, has) = numbered(&ranks);
        assert_eq!(all, [(Shm, 0), (Tcp, 0), (Verbs, 0), (Tcp, 1)]);
        assert_eq!(has, [0b0011, 0b1111]);
        assert_eq!((read(&[0]), read(&[3, 0]), read(&[])), (None, None, Some(Vec::new())));
    }
}
