//! Chooses the device of a job: shared memory if all ranks are on one node, verbs if each is on its own, and both if
//! some share a node. All ranks decide by the same endpoint addresses, so they decide alike.

#[cfg(feature = "verbs")]
use super::steps::Steps;
use crate::bootstrap::Bootstrap;
use crate::device::{Device, shm, tcp};
#[cfg(feature = "verbs")]
use crate::device::{route, verbs};
use crate::error::{Error, ErrorKind, Result};
use crate::settings::{DeviceChoice, Settings};

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
    let prepared = shm::Prepared::new(me as usize, (0..size).collect(), settings)?;
    let addresses = exchange(bootstrap, "shm", &prepared.address()?)?;
    let nodes = shm::Nodes::of(&addresses)?;
    let auto = settings.device == DeviceChoice::Auto;
    if settings.device == DeviceChoice::Shm || auto && nodes.count() == 1 {
        let device = prepared.connect(&addresses, size)?;
        // Every rank maps all segments before a rank may end and its segment goes.
        bootstrap.fence()?;
        Ok(Box::new(device))
    } else {
        // The segment has room for packets of all ranks of the job; the devices below need less, or no segment at all.
        drop(prepared);
        tracing::info!("{} nodes: {nodes}", nodes.count());
        let alone = auto && nodes.count() == size as usize;
        let opened = if alone { open_verbs(bootstrap, settings) } else { open_both(bootstrap, settings, &nodes) };
        opened.map_err(|e| if auto { e.because(&format!("the ranks are on {} nodes", nodes.count())) } else { e })
    }
}

#[cfg(feature = "verbs")]
fn open_verbs(bootstrap: &mut dyn Bootstrap, settings: &Settings) -> Result<Box<dyn Device>> {
    let prepared = verbs::Prepared::new(bootstrap, settings)?;
    let addresses = exchange(bootstrap, "verbs", &prepared.address())?;
    Ok(Box::new(prepared.connect(&addresses)?))
}

#[cfg(feature = "verbs")]
fn open_both(bootstrap: &mut dyn Bootstrap, settings: &Settings, nodes: &shm::Nodes) -> Result<Box<dyn Device>> {
    let me = bootstrap.rank();
    let ranks = nodes.sharing_with(me);
    let number = ranks.iter().position(|r| *r == me).unwrap_or(0);
    let intra = shm::Prepared::new(number, ranks.clone(), settings)?;
    let inter = verbs::Prepared::new(bootstrap, settings)?;
    bootstrap.put(&format!("node.{me}"), &intra.address()?)?;
    let addresses = exchange(bootstrap, "verbs", &inter.address())?;
    let intra_addresses = ranks.iter().map(|r| bootstrap.get(&format!("node.{r}"))).collect::<Result<Vec<_>>>()?;
    let (intra, inter) = (intra.connect(&intra_addresses, bootstrap.size())?, inter.connect(&addresses)?);
    // Every rank maps the segments of its node before a rank may end.
    bootstrap.fence()?;
    // Only accumulates on regions of the inter-node device take steps.
    let inter = Steps::over(Box::new(inter));
    Ok(Box::new(route::RouteDevice::new(intra, inter, bootstrap.size())?.on_nodes(nodes.lowest())))
}

#[cfg(not(feature = "verbs"))]
fn open_verbs(bootstrap: &mut dyn Bootstrap, _settings: &Settings) -> Result<Box<dyn Device>> {
    Err(Error::new(ErrorKind::Unsupported, "open a verbs device")
        .rank(bootstrap.rank())
        .cause("this build is without the verbs device")
        .remedy("build with feature `verbs` (needs libibverbs-dev and librdmacm-dev), or start all ranks on one node"))
}

#[cfg(not(feature = "verbs"))]
fn open_both(bootstrap: &mut dyn Bootstrap, settings: &Settings, _: &shm::Nodes) -> Result<Box<dyn Device>> {
    open_verbs(bootstrap, settings)
}

/// Publishes this rank's endpoint address; returns the addresses of all ranks.
fn exchange(bootstrap: &mut dyn Bootstrap, device: &str, address: &[u8]) -> Result<Vec<Vec<u8>>> {
    bootstrap.put(&format!("{device}.{}", bootstrap.rank()), address)?;
    bootstrap.fence()?;
    (0..bootstrap.size()).map(|rank| bootstrap.get(&format!("{device}.{rank}"))).collect()
}
