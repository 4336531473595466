//! Chooses the device of a job: shared memory if all ranks are on one node; verbs, or tcp without an HCA, if each is on its
//! own; and both if some share a node; or the devices of a list. All ranks decide by the same endpoint addresses, so
//! they decide alike.

pub(crate) mod group;
mod list;

use crate::bootstrap::Bootstrap;
#[cfg(feature = "verbs")]
use crate::device::verbs;
use crate::device::{Device, shm, tcp};
use crate::error::{Error, ErrorKind, Result};
use crate::settings::{DeviceChoice, DeviceLists, ListedKind, Settings};

/// Opens the device that the settings name, and publishes this rank's endpoint address to the other ranks. Collective;
/// takes at least one fence of the bootstrap.
pub(crate) fn open(bootstrap: &mut dyn Bootstrap, settings: &Settings) -> Result<Box<dyn Device>> {
    let (me, size) = (bootstrap.rank(), bootstrap.size());
    if settings.device == DeviceChoice::Sim {
        let e = Error::new(ErrorKind::Unsupported, "open a device").rank(me).device("sim");
        let e = e.cause("this program starts ranks of its own, and a simulation runs all ranks in one process");
        return Err(
            e.remedy("start it by Job::run; MPI programs cannot be simulated, since ranks would share their statics")
        );
    }
    match settings.device {
        DeviceChoice::Verbs => return open_verbs(bootstrap, settings),
        DeviceChoice::Tcp => return Ok(Box::new(tcp::open(bootstrap, settings)?)),
        _ => {}
    }
    let may_list = matches!(settings.device, DeviceChoice::Auto | DeviceChoice::Route);
    let listed = settings.devices.as_ref().filter(|_| may_list);
    if let Some(lists) = listed.filter(|lists| !lists.has_shared_memory()) {
        return list::open(bootstrap, settings, lists, None);
    }
    let prepared = shm::Prepared::new(me as usize, (0..size).collect(), settings)?;
    let addresses = exchange(bootstrap, "shm", &prepared.address()?)?;
    let nodes = shm::Nodes::of(&addresses)?;
    let auto = settings.device == DeviceChoice::Auto && listed.is_none();
    if settings.device == DeviceChoice::Shm || auto && nodes.count() == 1 {
        let device = prepared.connect(&addresses, size)?;
        // Every rank maps all segments before a rank may end and its segment goes.
        bootstrap.fence()?;
        return Ok(Box::new(device));
    }
    // The segment has room for packets of all ranks of the job; the devices below need less, or no segment at all.
    drop(prepared);
    tracing::info!("{} nodes: {nodes}", nodes.count());
    let opened = match listed {
        Some(lists) => list::open(bootstrap, settings, lists, Some(&nodes)),
        None => match between(bootstrap, settings)?[..] {
            [kind] if auto && nodes.count() == size as usize => open_one(kind, bootstrap, settings),
            ref kinds => {
                let lists = DeviceLists::of(&[&[ListedKind::Shm], kinds].concat());
                list::open(bootstrap, settings, &lists, Some(&nodes))
            }
        },
    };
    opened.map_err(|e| if auto { e.because(&format!("the ranks are on {} nodes", nodes.count())) } else { e })
}

/// The devices between nodes that a job uses unless one is chosen: verbs if all ranks have a port, tcp if none has one, else
/// both. Collective; one fence.
fn between(bootstrap: &mut dyn Bootstrap, settings: &Settings) -> Result<Vec<ListedKind>> {
    if settings.verbs_device != "auto" {
        return Ok(vec![ListedKind::Verbs]);
    }
    let port = probe_verbs(bootstrap.rank(), settings);
    if let Err(e) = &port {
        tracing::info!("without verbs: {e}");
    }
    let ports = exchange(bootstrap, "port", &[u8::from(port.is_ok())])?;
    let has = |port: u8| ports.iter().any(|other| other[..] == [port]);
    Ok(match (has(1), has(0)) {
        (true, false) => vec![ListedKind::Verbs],
        (true, true) => vec![ListedKind::Verbs, ListedKind::Tcp],
        _ => vec![ListedKind::Tcp],
    })
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

/// Reports why rank `rank` has no port.
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
