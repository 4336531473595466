//! Chooses the device of a job: shared memory if all ranks are on one node; verbs, or without an HCA ofi or tcp, if each
//! rank is on a node of its own; and both if some ranks share a node; or the devices of a list. All ranks decide by the same
//! endpoint addresses, so they make the same decision.
//!
//! Ranks of one machine that may not map each other's memory (different users or user namespaces, programs that their
//! user may not read) count as ranks of several nodes. If the system refuses shared memory to any rank for another
//! reason, no rank uses it. Rank 0 logs both cases.

pub(crate) mod group;
mod list;

use crate::bootstrap::Bootstrap;
#[cfg(feature = "verbs")]
use crate::device::verbs;
use crate::device::{Device, ofi, shm, tcp};
use crate::error::{Error, ErrorKind, Result};
use crate::settings::{DeviceChoice, DeviceLists, ListedKind, Settings};

/// Opens the device that the settings name, and publishes this rank's endpoint address to the other ranks. Collective;
/// takes at least one fence of the bootstrap.
pub(crate) fn open(bootstrap: &mut dyn Bootstrap, settings: &Settings) -> Result<Box<dyn Device>> {
    let (me, size) = (bootstrap.rank(), bootstrap.size());
    if settings.device == DeviceChoice::Sim {
        let e = Error::new(ErrorKind::Unsupported, "open a device").rank(me).device("sim");
        let e = e.cause("a simulation runs all ranks in one process, but this program's ranks are separate processes");
        return Err(e.remedy(
            "run the simulation with `Job::run`; MPI programs cannot be simulated, because their ranks would share static \
             variables",
        ));
    }
    match settings.device {
        DeviceChoice::Verbs => return open_verbs(bootstrap, settings),
        DeviceChoice::Tcp => return open_one(ListedKind::Tcp, bootstrap, settings),
        DeviceChoice::Ofi => return open_one(ListedKind::Ofi, bootstrap, settings),
        _ => {}
    }
    let may_list = matches!(settings.device, DeviceChoice::Auto | DeviceChoice::Route);
    let listed = settings.devices.as_ref().filter(|_| may_list);
    if let Some(lists) = listed.filter(|lists| !lists.has_shared_memory()) {
        return list::open(bootstrap, settings, lists, None);
    }
    let auto = settings.device == DeviceChoice::Auto && listed.is_none();
    let prepared = shm::Prepared::new(me as usize, (0..size).collect(), settings);
    let prepared = prepared.and_then(|prepared| Ok((prepared.address()?, prepared)));
    // A rank without shared memory has no address.
    let (address, prepared) = match prepared {
        Err(e) if !(auto && is_refusal(&e)) => return Err(e),
        prepared => prepared.map_or_else(|e| (Vec::new(), Err(e)), |(address, prepared)| (address, Ok(prepared))),
    };
    let addresses = exchange(bootstrap, "shm", &address)?;
    let prepared = match prepared {
        Ok(prepared) if !auto || !addresses.iter().any(Vec::is_empty) => prepared,
        prepared => return without_shared_memory(bootstrap, settings, prepared.err()),
    };
    let nodes = shm::Nodes::of(&addresses)?;
    if settings.device == DeviceChoice::Shm || auto && nodes.count() == 1 {
        return match map(&prepared, &addresses, auto, bootstrap)? {
            Ok(peers) => Ok(Box::new(prepared.join(peers, size))),
            Err(refused) => without_shared_memory(bootstrap, settings, refused),
        };
    }
    // The segment has room for packets of all ranks of the job; the devices below need less, or no segment at all.
    drop(prepared);
    tracing::info!("{} nodes: {nodes}", nodes.count());
    let opened = match listed {
        Some(lists) => list::open(bootstrap, settings, lists, Some(&nodes)),
        None => {
            let kinds = between(bootstrap, settings)?;
            if me == 0 && nodes.divide_a_machine() {
                let remedy =
                    "to share memory, start them in one user and PID namespace, as one user who may read their program";
                tracing::warn!(
                    "ranks of one machine do not share memory, so {} connects them: {remedy}",
                    names(&kinds)
                );
            }
            match kinds[..] {
                [kind] if auto && nodes.count() == size as usize => open_one(kind, bootstrap, settings),
                ref kinds => {
                    let lists = DeviceLists::of(&[&[ListedKind::Shm], kinds].concat());
                    list::open(bootstrap, settings, &lists, Some(&nodes))
                }
            }
        }
    };
    opened.map_err(|e| if auto { e.because(&format!("the ranks are on {} nodes", nodes.count())) } else { e })
}

/// Names of devices, for messages.
fn names(kinds: &[ListedKind]) -> String {
    kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(" and ")
}

/// Whether an error means that the system does not provide a resource to this process: then another device may work.
fn is_refusal(e: &Error) -> bool {
    matches!(e.kind(), ErrorKind::Forbidden | ErrorKind::System | ErrorKind::Unsupported)
}

/// Maps the segments of all ranks. If the device may be replaced by another one, a rank that cannot map them is not an
/// error: all ranks get the inner error, with the cause at that rank. Collective; one fence.
fn map(
    prepared: &shm::Prepared,
    addresses: &[Vec<u8>],
    may_be_another: bool,
    bootstrap: &mut dyn Bootstrap,
) -> Result<std::result::Result<shm::MappedPeers, Option<Error>>> {
    let mapped = match prepared.map(addresses) {
        Err(e) if may_be_another && is_refusal(&e) => {
            prepared.refuse();
            Err(Some(e))
        }
        mapped => Ok(mapped?),
    };
    // Every rank maps all segments before a rank may end and remove its segment.
    bootstrap.fence()?;
    Ok(mapped.and_then(|peers| if peers.are_refused() { Err(None) } else { Ok(peers) }))
}

/// Opens inter-node devices for all ranks, including those on the same node, because some rank was refused shared
/// memory. `own` is the error if this is that rank. Collective; at least two fences.
fn without_shared_memory(
    bootstrap: &mut dyn Bootstrap,
    settings: &Settings,
    own: Option<Error>,
) -> Result<Box<dyn Device>> {
    let own = own.map_or_else(String::new, |e| e.rank(bootstrap.rank()).to_string());
    let reasons = exchange(bootstrap, "refused", own.as_bytes())?;
    let reason = reasons.iter().find(|reason| !reason.is_empty()).cloned().unwrap_or_default();
    let reason = String::from_utf8_lossy(&reason);
    let kinds = between(bootstrap, settings)?;
    if bootstrap.rank() == 0 {
        tracing::warn!("all ranks are connected by {}, without shared memory: {reason}", names(&kinds));
    }
    let opened = match kinds[..] {
        [kind] => open_one(kind, bootstrap, settings),
        ref kinds => list::open(bootstrap, settings, &DeviceLists::of(&[kinds].concat()), None),
    };
    opened.map_err(|e| e.because(&format!("without shared memory ({reason})")))
}

/// The inter-node devices that a job uses unless one is chosen: verbs if all ranks have a port, ofi if all have instead
/// a network that only libfabric reaches, tcp if none has either, else all that some have, and tcp. Collective; one
/// fence.
fn between(bootstrap: &mut dyn Bootstrap, settings: &Settings) -> Result<Vec<ListedKind>> {
    if settings.verbs_device != "auto" {
        return Ok(vec![ListedKind::Verbs]);
    }
    let port = probe_verbs(bootstrap.rank(), settings);
    if let Err(e) = &port {
        tracing::info!("verbs is not used: {e}");
    }
    let own = match port {
        Ok(()) => ListedKind::Verbs,
        Err(_) if ofi::is_preferred(settings) => ListedKind::Ofi,
        Err(_) => ListedKind::Tcp,
    };
    let ports = exchange(bootstrap, "port", &[own as u8])?;
    let has = |kind: &ListedKind| ports.iter().any(|other| other[..] == [*kind as u8]);
    let mut kinds: Vec<_> = [ListedKind::Verbs, ListedKind::Ofi, ListedKind::Tcp].into_iter().filter(has).collect();
    // Ranks with different networks have tcp in common.
    if kinds.len() > 1 && !kinds.contains(&ListedKind::Tcp) {
        kinds.push(ListedKind::Tcp);
    }
    Ok(kinds)
}

/// Opens a device that connects all ranks of `bootstrap`.
pub(crate) fn open_one(
    kind: ListedKind,
    bootstrap: &mut dyn Bootstrap,
    settings: &Settings,
) -> Result<Box<dyn Device>> {
    match kind {
        ListedKind::Verbs => open_verbs(bootstrap, settings),
        ListedKind::Tcp => Ok(Box::new(tcp::open(bootstrap, settings)?)),
        ListedKind::Ofi => Ok(Box::new(ofi::open(bootstrap, settings)?)),
        ListedKind::Shm => {
            let (me, size) = (bootstrap.rank(), bootstrap.size());
            let prepared = shm::Prepared::new(me as usize, (0..size).collect(), settings)?;
            let addresses = exchange(bootstrap, "shm", &prepared.address()?)?;
            Ok(Box::new(prepared.connect(&addresses, size)?))
        }
    }
}

#[cfg(feature = "verbs")]
fn open_verbs(bootstrap: &mut dyn Bootstrap, settings: &Settings) -> Result<Box<dyn Device>> {
    let prepared = verbs::Prepared::new(bootstrap, settings)?;
    let addresses = exchange(bootstrap, "verbs", &prepared.address())?;
    Ok(Box::new(prepared.connect(&addresses)?))
}

/// Returns the reason why rank `rank` has no port as an error.
#[cfg(feature = "verbs")]
fn probe_verbs(rank: u32, settings: &Settings) -> Result<()> {
    verbs::has_port(rank, settings)
}

#[cfg(not(feature = "verbs"))]
fn open_verbs(bootstrap: &mut dyn Bootstrap, settings: &Settings) -> Result<Box<dyn Device>> {
    probe_verbs(bootstrap.rank(), settings).and(Err(Error::new(ErrorKind::Unsupported, "open a verbs device")))
}

#[cfg(not(feature = "verbs"))]
fn probe_verbs(rank: u32, _settings: &Settings) -> Result<()> {
    Err(Error::new(ErrorKind::Unsupported, "open a verbs device")
        .rank(rank)
        .cause("this build is without the verbs device")
        .remedy(
            "build with feature `verbs` (needs libibverbs-dev and librdmacm-dev), or set FARSIDE_DEVICE=tcp, or \
             FARSIDE_DEVICES=shm,tcp",
        ))
}

/// Publishes this rank's endpoint address; returns the addresses of all ranks.
fn exchange(bootstrap: &mut dyn Bootstrap, device: &str, address: &[u8]) -> Result<Vec<Vec<u8>>> {
    bootstrap.put(&format!("{device}.{}", bootstrap.rank()), address)?;
    bootstrap.fence()?;
    (0..bootstrap.size()).map(|rank| bootstrap.get(&format!("{device}.{rank}"))).collect()
}
