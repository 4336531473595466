//! Start-up: the ranks publish their hosts; each listens on interfaces and publishes its addresses. No connection is
//! made yet.

use std::cell::{Cell, RefCell};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::TcpDevice;
use super::address::{EndpointAddress, Host, choose, interfaces};
use super::agent::Shared;
use super::engine::Engine;
use super::frame::{MAX_LENT_PACKET, MAX_PACKET};
use super::memory::Memory;
use super::peer::Peer;
use super::secret::{SECRET, challenge};
use super::ways::Topology;
use crate::bootstrap::Bootstrap;
use crate::device::routing::RoutingTable;
use crate::device::{Capabilities, CutOffs, MessageCutOffs};
use crate::error::{Error, ErrorKind, Result};
use crate::settings::Settings;
use crate::slots::Slots;
use crate::stats::Stats;

const OP: &str = "open the tcp device";
/// Maximum number of connections that the kernel accepts before this rank does; the kernel may allow fewer.
const BACKLOG: i32 = 4096;
/// Maximum number of blocks of a write or a read.
const MAX_BLOCKS: usize = 1024;
/// Messages that fit into a packet are sent eagerly; longer ones are read from the sender's memory into place.
const MESSAGES: MessageCutOffs =
    MessageCutOffs { eager_inter: 16 << 10, read_inter: 16 << 10, ..MessageCutOffs::UNMEASURED };
const CUT_OFFS: CutOffs = CutOffs::UNMEASURED;

/// Raises the limit of open files as far as this process may: every connected peer needs one descriptor.
fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(e) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::debug!("the limit of open files could not be raised: {e}");
    }
}

/// Opens the device. Collective; takes two fences of the bootstrap.
///
/// # Errors
/// `Setting`, also for a routing table that cannot be read; `Mismatch`; `Unsupported` if this host has no route to
/// another host; errors of `bootstrap`.
pub(crate) fn open(bootstrap: &mut dyn Bootstrap, settings: &Settings) -> Result<TcpDevice> {
    let (me, size) = (bootstrap.rank(), bootstrap.size());
    let fail = |kind, peer: u32| Error::new(kind, OP).rank(me).peer(peer).device("tcp");
    let malformed = |peer| move || fail(ErrorKind::Protocol, peer).cause("malformed address");
    if me == 0 {
        // The secret is as private as the key-value exchange of the launcher.
        bootstrap.put("tcp.secret", &challenge().map_err(|e| Error::system(OP, e))?)?;
    }
    bootstrap.put(&format!("tcp.host.{me}"), &Host::here()?.write())?;
    bootstrap.fence()?;
    let secret: Option<[u8; SECRET]> = bootstrap.get("tcp.secret")?.try_into().ok();
    let secret = secret.ok_or_else(malformed(0))?;
    let mut hosts = Vec::new();
    for rank in 0..size {
        hosts.push(Host::read(&bootstrap.get(&format!("tcp.host.{rank}"))?).ok_or_else(malformed(rank))?);
    }
    let table = RoutingTable::of(settings).map_err(|e| e.rank(me).device("tcp"))?;
    raise_limit();
    let (mut listeners, mut own) = (Vec::new(), EndpointAddress { at: Vec::new(), encrypts: settings.tcp_encrypt });
    for at in choose(&settings.tcp_interface, me as usize, &hosts).map_err(|e| e.rank(me))? {
        let listener = TcpListener::bind((at, 0)).and_then(|listener| {
            listener.set_nonblocking(true)?;
            // Many ranks may connect before this one accepts.
            rustix::net::listen(&listener, BACKLOG)?;
            Ok((listener.local_addr()?, listener))
        });
        let (at, listener) = listener.map_err(|e| {
            let e = Error::system("listen for TCP connections", e).rank(me).device("tcp").cause(format!("at {at}"));
            e.remedy("correct FARSIDE_TCP_INTERFACE")
        })?;
        own.at.push(at);
        listeners.push(listener);
    }
    bootstrap.put(&format!("tcp.{me}"), &own.write())?;
    bootstrap.fence()?;
    let mut addresses = Vec::new();
    for rank in 0..size {
        let address = bootstrap.get(&format!("tcp.{rank}"))?;
        addresses.push(EndpointAddress::read(&address).ok_or_else(malformed(rank))?);
    }
    if let Some(other) = addresses.iter().position(|address| address.encrypts != own.encrypts) {
        return Err(fail(ErrorKind::Mismatch, other as u32).cause("FARSIDE_TCP_ENCRYPT differs between ranks"));
    }
    tracing::debug!(rank = me, at = ?own.at, encrypts = own.encrypts, "tcp: listening");
    let topology = Topology { addresses, hosts, table };
    let may_relay = topology.may_relay(me);
    let system = |e: std::io::Error| Error::system(OP, e).rank(me).device("tcp");
    let engine = Engine {
        me,
        epoll: Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| system(e.into()))?),
        doors: Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| system(e.into()))?),
        listeners,
        is_paused: false,
        conns: Slots::default(),
        peers: (0..size).map(|_| Peer::new()).collect(),
        topology,
        secret,
        encrypts: own.encrypts,
        silence: Duration::from_secs(settings.tcp_silence_s.into()),
        memory: Memory::default(),
        done: Default::default(),
        inbox: Default::default(),
        spare: Box::default(),
        dirty: Vec::new(),
        timer: None,
        dialing: Vec::new(),
        broken: Vec::new(),
        begun: false,
        loss: None,
        goodbye_sent: false,
        last_check: Instant::now(),
        turns: 0,
    };
    engine.listen().map_err(system)?;
    let device = TcpDevice {
        agent: RefCell::default(),
        shared: Arc::new(Shared::new(engine).map_err(system)?),
        me,
        size,
        secret,
        capabilities: Capabilities {
            max_blocks: MAX_BLOCKS,
            accumulate: true,
            coherent: true,
            own_by_copy: true,
            messages: MESSAGES,
            cut_offs: CUT_OFFS,
            max_lent_packet: MAX_LENT_PACKET,
            ..Capabilities::minimal("tcp", MAX_PACKET)
        },
        stats: Stats::default(),
        imports: RefCell::default(),
        owned: RefCell::default(),
        done: RefCell::default(),
        inbox: RefCell::default(),
        polling: Cell::new(false),
        left: Cell::new(None),
    };
    if may_relay {
        // Other ranks may request a relay before this rank uses the device itself.
        device.start_agent().map_err(|e| e.rank(me))?;
    }
    Ok(device)
}

/// Reports whether and how the device works here, for `farside info`.
///
/// # Errors
/// The reason why the device does not work.
pub(crate) fn probe(settings: &Settings) -> Result<String> {
    let here = Host::here()?;
    let at = choose(&settings.tcp_interface, 0, &[here])?;
    for at in &at {
        TcpListener::bind((*at, 0)).map_err(|e| Error::system("listen for TCP connections", e))?;
    }
    let at = at.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
    let kept = if settings.tcp_encrypt {
        "all data is encrypted"
    } else {
        "later data is neither authenticated nor encrypted (FARSIDE_TCP_ENCRYPT=1 does both)"
    };
    Ok(format!("within this host at {at}; connections are authenticated at their start by a secret of the job; {kept}"))
}

/// The interfaces of this host and their networks, for `farside info`.
pub(crate) fn ports() -> Vec<String> {
    let interfaces = interfaces().unwrap_or_default();
    interfaces.into_iter().map(|(name, address, prefix)| format!("{name} {address}/{prefix}")).collect()
}

/// An identity, the same for processes in the same network namespace, and the name of this host.
///
/// # Errors
/// `System`.
pub(crate) fn host() -> Result<(Vec<u8>, String)> {
    Host::here().map(|host| (host.name, host.node))
}
