//! Which device a job uses: shared memory where all ranks are on one node, verbs where each is on its own, and both
//! where some share a node. All ranks decide by the same cards, so all come to the same.

use super::{Device, shm};
use crate::bootstrap::Bootstrap;
use crate::error::{Error, ErrorKind, Result};
use crate::processors::{Processors, Sharing};
use crate::settings::{DeviceChoice, Settings};
use crate::wire::{Reader, Writer};

/// A device that is open.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) device: Box<dyn Device>,
    /// Whether this rank has a processor, or with how many it shares those it may use.
    pub(crate) sharing: Sharing,
}

/// Opens the device that the settings name, and tells the other ranks how to reach this one. Collective.
pub(crate) fn open(bootstrap: &mut dyn Bootstrap, settings: &Settings) -> Result<Opened> {
    let (me, size) = (bootstrap.rank(), bootstrap.size());
    if settings.device == DeviceChoice::Verbs {
        let (device, sharing) = open_verbs(bootstrap, settings)?;
        return Ok(Opened { device, sharing });
    }
    let prepared = shm::Prepared::new(me as usize, (0..size).collect(), settings)?;
    let (cards, sharing) = exchange(bootstrap, "shm", &prepared.card()?)?;
    let nodes = shm::Nodes::of(&cards)?;
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
        let (device, _) = opened
            .map_err(|e| if auto { e.because(&format!("the ranks are on {} nodes", nodes.count())) } else { e })?;
        device
    };
    Ok(Opened { device, sharing })
}

#[cfg(feature = "verbs")]
fn open_verbs(bootstrap: &mut dyn Bootstrap, settings: &Settings) -> Result<(Box<dyn Device>, Sharing)> {
    let prepared = super::verbs::Prepared::new(bootstrap, settings)?;
    let (cards, sharing) = exchange(bootstrap, "verbs", &prepared.card())?;
    Ok((Box::new(prepared.connect(&cards)?), sharing))
}

#[cfg(feature = "verbs")]
fn open_both(
    bootstrap: &mut dyn Bootstrap,
    settings: &Settings,
    nodes: &shm::Nodes,
) -> Result<(Box<dyn Device>, Sharing)> {
    let me = bootstrap.rank();
    let ranks = nodes.sharing_with(me);
    let number = ranks.iter().position(|r| *r == me).unwrap_or(0);
    let near = shm::Prepared::new(number, ranks.clone(), settings)?;
    let far = super::verbs::Prepared::new(bootstrap, settings)?;
    bootstrap.put(&format!("node.{me}"), &near.card()?)?;
    let (cards, sharing) = exchange(bootstrap, "verbs", &far.card())?;
    let near_cards = ranks.iter().map(|r| bootstrap.get(&format!("node.{r}"))).collect::<Result<Vec<_>>>()?;
    let (near, far) = (near.connect(&near_cards)?, far.connect(&cards)?);
    // As for shared memory alone.
    bootstrap.fence()?;
    Ok((Box::new(super::route::RouteDevice::new(near, Box::new(far), &ranks, bootstrap.size())?), sharing))
}

#[cfg(not(feature = "verbs"))]
fn open_verbs(bootstrap: &mut dyn Bootstrap, _settings: &Settings) -> Result<(Box<dyn Device>, Sharing)> {
    Err(Error::new(ErrorKind::Unsupported, "open a verbs device")
        .rank(bootstrap.rank())
        .cause("this build is without the verbs device")
        .remedy("build with feature `verbs` (needs libibverbs-dev and librdmacm-dev), or start all ranks on one node"))
}

#[cfg(not(feature = "verbs"))]
fn open_both(bootstrap: &mut dyn Bootstrap, settings: &Settings, _: &shm::Nodes) -> Result<(Box<dyn Device>, Sharing)> {
    open_verbs(bootstrap, settings)
}

/// Publishes a card, and where this rank may run; the cards of all ranks, and with whom this one shares its processors.
fn exchange(bootstrap: &mut dyn Bootstrap, device: &str, card: &[u8]) -> Result<(Vec<Vec<u8>>, Sharing)> {
    let (me, size) = (bootstrap.rank(), bootstrap.size());
    bootstrap.put(&format!("{device}.{me}"), &Processors::here().write(Writer::new()).bytes(card).done())?;
    bootstrap.fence()?;
    let both = |rank| {
        let bytes = bootstrap.get(&format!("{device}.{rank}"))?;
        let mut r = Reader::new(&bytes);
        let processors = Processors::read(&mut r);
        processors.zip(r.bytes()).map(|(processors, card)| (processors, card.to_vec())).ok_or_else(|| {
            Error::new(ErrorKind::Protocol, "exchange cards").rank(me).peer(rank).cause("malformed card")
        })
    };
    let (processors, cards): (Vec<Processors>, Vec<Vec<u8>>) =
        (0..size).map(both).collect::<Result<Vec<_>>>()?.into_iter().unzip();
    Ok((cards, Sharing::of(&processors, me as usize)))
}
