//! Which device a job uses: shared memory where all ranks are on one node, verbs where each is on its own, and both
//! where some share a node. All ranks decide by the same cards, so all come to the same.

use super::{Device, shm};
use crate::bootstrap::Bootstrap;
use crate::error::Result;
use crate::settings::{DeviceChoice, Settings};

/// A device that is open.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) device: Box<dyn Device>,
    /// Ranks that share this one's processors, itself among them.
    pub(crate) here: usize,
}

/// Opens the device that the settings name, and tells the other ranks how to reach this one. Collective.
pub(crate) fn open(bootstrap: &mut dyn Bootstrap, settings: &Settings) -> Result<Opened> {
    let (me, size) = (bootstrap.rank(), bootstrap.size());
    if settings.device == DeviceChoice::Verbs {
        return Ok(Opened { device: open_verbs(bootstrap, settings)?, here: size as usize });
    }
    let prepared = shm::Prepared::new(me as usize, (0..size).collect(), settings)?;
    let cards = exchange(bootstrap, "shm", &prepared.card()?)?;
    let nodes = shm::Nodes::of(&cards)?;
    let here = nodes.on_machine_of(me);
    let auto = settings.device == DeviceChoice::Auto;
    let device: Box<dyn Device> = if settings.device == DeviceChoice::Shm || auto && nodes.count() == 1 {
        let device = prepared.connect(&cards)?;
        // Nobody ends, and nobody's segment goes, before everyone has mapped it.
        bootstrap.fence()?;
        Box::new(device)
    } else {
        // It has room for packets of all ranks of the job; what follows needs less, or none.
        drop(prepared);
        tracing::info!("{} nodes: {nodes}", nodes.count());
        let alone = auto && nodes.count() == size as usize;
        let opened = if alone { open_verbs(bootstrap, settings) } else { open_both(bootstrap, settings, &nodes) };
        opened.map_err(|e| if auto { e.because(&format!("the ranks are on {} nodes", nodes.count())) } else { e })?
    };
    Ok(Opened { device, here })
}

#[cfg(feature = "verbs")]
fn open_verbs(bootstrap: &mut dyn Bootstrap, settings: &Settings) -> Result<Box<dyn Device>> {
    let prepared = super::verbs::Prepared::new(bootstrap, settings)?;
    let cards = exchange(bootstrap, "verbs", &prepared.card())?;
    Ok(Box::new(prepared.connect(&cards)?))
}

#[cfg(feature = "verbs")]
fn open_both(bootstrap: &mut dyn Bootstrap, settings: &Settings, nodes: &shm::Nodes) -> Result<Box<dyn Device>> {
    let me = bootstrap.rank();
    let ranks = nodes.sharing_with(me);
    let number = ranks.iter().position(|r| *r == me).unwrap_or(0);
    let near = shm::Prepared::new(number, ranks.clone(), settings)?;
    let far = super::verbs::Prepared::new(bootstrap, settings)?;
    bootstrap.put(&format!("node.{me}"), &near.card()?)?;
    let cards = exchange(bootstrap, "verbs", &far.card())?;
    let near_cards = ranks.iter().map(|r| bootstrap.get(&format!("node.{r}"))).collect::<Result<Vec<_>>>()?;
    let (near, far) = (near.connect(&near_cards)?, far.connect(&cards)?);
    // As for shared memory alone.
    bootstrap.fence()?;
    Ok(Box::new(super::route::RouteDevice::new(near, Box::new(far), &ranks, bootstrap.size())?))
}

#[cfg(not(feature = "verbs"))]
fn open_verbs(bootstrap: &mut dyn Bootstrap, _settings: &Settings) -> Result<Box<dyn Device>> {
    use crate::error::{Error, ErrorKind};
    Err(Error::new(ErrorKind::Unsupported, "open a verbs device")
        .rank(bootstrap.rank())
        .cause("this build is without the verbs device")
        .remedy("build with feature `verbs` (needs libibverbs-dev and librdmacm-dev), or start all ranks on one node"))
}

#[cfg(not(feature = "verbs"))]
fn open_both(bootstrap: &mut dyn Bootstrap, settings: &Settings, _: &shm::Nodes) -> Result<Box<dyn Device>> {
    open_verbs(bootstrap, settings)
}

/// Publishes a card and reads those of all ranks.
fn exchange(bootstrap: &mut dyn Bootstrap, device: &str, card: &[u8]) -> Result<Vec<Vec<u8>>> {
    bootstrap.put(&format!("{device}.{}", bootstrap.rank()), card)?;
    bootstrap.fence()?;
    (0..bootstrap.size()).map(|r| bootstrap.get(&format!("{device}.{r}"))).collect()
}
