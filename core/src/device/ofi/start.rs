//! Start-up: each rank opens an endpoint, and publishes its address.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;

use super::OfiDevice;
use super::buffers::SLOT;
use super::choose::choose;
use super::engine::{Engine, Peer};
use super::fabric::{Failure, MAX_ADDRESS};
use super::message::HEADER;
use crate::bootstrap::Bootstrap;
use crate::device::wait::WakeFd;
use crate::device::{Capabilities, Placement, tcp};
use crate::error::{Error, ErrorKind, Result};
use crate::settings::Settings;
use crate::stats::Stats;
use crate::wire::{Reader, Writer};

const OP: &str = "open the ofi device";
/// Maximum number of blocks of a write or a read; beyond the provider's limit it is several operations.
const MAX_BLOCKS: usize = 16;

/// The published address of a rank.
#[derive(Debug, PartialEq, Eq)]
struct EndpointAddress {
    provider: String,
    /// Whether writes complete when they are visible, make progress while this rank computes, and precede messages.
    guarantees: u8,
    address: Vec<u8>,
}

impl EndpointAddress {
    fn write(&self) -> Vec<u8> {
        Writer::new().bytes(self.provider.as_bytes()).u8(self.guarantees).bytes(&self.address).done()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let provider = String::from_utf8(r.bytes()?.to_vec()).ok()?;
        let (guarantees, address) = (r.u8()?, r.bytes()?.to_vec());
        (r.is_empty() && address.len() <= MAX_ADDRESS).then_some(Self { provider, guarantees, address })
    }
}

/// Opens the device. Collective; takes three fences of the bootstrap.
///
/// # Errors
/// `Unsupported` without the library, or without a provider; `Mismatch` if ranks use different ones; those of the tcp
/// device, which finds lost ranks; errors of `bootstrap`.
pub(crate) fn open(bootstrap: &mut dyn Bootstrap, settings: &Settings) -> Result<OfiDevice> {
    let (me, size) = (bootstrap.rank(), bootstrap.size());
    let fail = |kind, peer: u32| Error::new(kind, OP).rank(me).peer(peer).device("ofi");
    let (offers, nth) = choose(settings).map_err(|e| e.rank(me))?;
    let failed = |failure: Failure| {
        let e = Error::system(OP, std::io::Error::from_raw_os_error(failure.errno)).rank(me).device("ofi");
        e.cause(failure.to_string())
    };
    let fabric = offers.open(nth).map_err(failed)?;
    let offer = fabric.offer.clone();
    tracing::debug!(rank = me, "ofi: {}", offer.text());
    let guarantees = [offer.delivers, offer.progresses, offer.orders];
    let guarantees = guarantees.iter().rev().fold(0, |bits, has| bits << 1 | u8::from(*has));
    let own = EndpointAddress { provider: offer.provider, guarantees, address: fabric.address().map_err(failed)? };
    bootstrap.put(&format!("ofi.{me}"), &own.write())?;
    bootstrap.fence()?;
    let mut peers = Vec::new();
    for rank in 0..size {
        let address = EndpointAddress::read(&bootstrap.get(&format!("ofi.{rank}"))?);
        let address = address.ok_or_else(|| fail(ErrorKind::Protocol, rank).cause("malformed address"))?;
        if (&address.provider, address.guarantees) != (&own.provider, own.guarantees) {
            let e = fail(ErrorKind::Mismatch, rank);
            let e = e.cause(format!("the peer uses provider {}, this rank {}", address.provider, own.provider));
            return Err(e.remedy("set FARSIDE_OFI_PROVIDER, and install the same libfabric, for all ranks"));
        }
        let mut bytes = [0; MAX_ADDRESS];
        bytes[..address.address.len()].copy_from_slice(&address.address);
        let handle = fabric.insert(&bytes).map_err(|failure| fail(ErrorKind::System, rank).cause(failure.to_string()));
        peers.push(Peer::new(handle?));
    }
    let watch = tcp::open(bootstrap, settings).map_err(|e| e.during("open the tcp device that finds lost ranks"))?;
    Ok(OfiDevice {
        engine: RefCell::new(Engine::new(me, fabric, peers).map_err(failed)?),
        watch,
        me,
        capabilities: Capabilities {
            max_blocks: MAX_BLOCKS,
            placement: match (offer.delivers, offer.orders) {
                (true, true) => Placement::InOrder,
                (true, false) => Placement::AtCompletion,
                (false, _) => Placement::AtRead,
            },
            atomics: false,
            passive: offer.progresses,
            own_by_copy: true,
            ..Capabilities::minimal("ofi", SLOT - HEADER)
        },
        stats: Stats::default(),
        imports: RefCell::default(),
        wake: Arc::new(WakeFd::new().map_err(|e| Error::system(OP, e).rank(me).device("ofi"))?),
        elsewhere: OnceCell::new(),
        polling: Cell::new(false),
        left: Cell::new(false),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_read_back_and_a_cut_one_refused() {
        let own = EndpointAddress { provider: "tcp;ofi_rxm".into(), guarantees: 1, address: vec![1, 2, 3] };
        let bytes = own.write();
        assert_eq!(EndpointAddress::read(&bytes).unwrap(), own);
        assert!((0..bytes.len()).all(|len| EndpointAddress::read(&bytes[..len]).is_none()));
        let long = EndpointAddress { address: vec![0; MAX_ADDRESS + 1], ..own };
        assert!(EndpointAddress::read(&long.write()).is_none());
    }
}
