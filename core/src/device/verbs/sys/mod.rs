#![allow(unsafe_code)]
//! Owning wrappers for libibverbs objects: the only module that calls libibverbs, through `rdma-sys`.
//!
//! The `ibverbs` crate finds devices (`super::port`), but it does not expose its raw objects, and wraps neither RDMA
//! writes, reads and atomics, nor shared receive queues, completion channels, datagram queue pairs, ports other than 1,
//! or registration of existing memory; this module does. Both crates link the same shared `libibverbs.so.1` (neither
//! builds or embeds its own), so a device that one crate has found is opened by name through the other, and no pointer
//! passes from one crate's types to the other's.
//!
//! Child objects keep their parents alive (`Arc`), so that objects are destroyed in order.

pub(super) mod fork;
pub(super) mod qp;
pub(super) mod queue;
pub(super) mod sgrs;

use std::ffi::{CStr, c_char, c_void};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rdma_sys::{
    ibv_access_flags, ibv_ah, ibv_ah_attr, ibv_alloc_pd, ibv_close_device, ibv_context, ibv_create_ah, ibv_dealloc_pd,
    ibv_dereg_mr, ibv_destroy_ah, ibv_device_attr, ibv_free_device_list, ibv_get_device_list, ibv_get_device_name,
    ibv_global_route, ibv_mr, ibv_open_device, ibv_pd, ibv_port_attr, ibv_query_device, ibv_query_gid, ibv_query_pkey,
    ibv_reg_mr,
};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// Converts a returned `errno` into a result.
fn check(code: i32) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

/// Converts a returned object into a result; null is an error.
fn made<T>(raw: *mut T) -> io::Result<*mut T> {
    if raw.is_null() { Err(io::Error::last_os_error()) } else { Ok(raw) }
}

/// Defines an owned libibverbs object. Threads may share it, and its last owner destroys it.
macro_rules! owned {
    ($name:ident, $destroy:ident) => {
        // SAFETY: libibverbs locks the state that threads share.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}
        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: the last owner; objects made from this one hold an `Arc` of it, so all of them are destroyed
                // already.
                unsafe { $destroy(self.raw) };
            }
        }
    };
}
use owned;

/// A global identifier (GID) of a port.
pub(super) type Gid = [u8; 16];

/// Makes the descriptor non-blocking.
fn nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?)
}

/// An open device.
#[derive(Debug)]
pub(super) struct Context {
    raw: *mut ibv_context,
}

/// Asynchronous events of the device that this rank handles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AsyncEvent {
    /// The device no longer works.
    Fatal(String),
    /// A port went down.
    PortDown(u8),
    /// A port came up again.
    PortUp(u8),
    /// Addresses or partition keys of a port may have changed.
    PortChanged(u8),
    /// An event that needs no action and is only logged.
    Other(String),
}

/// Types of events, as numbers: a kernel may report types that the header of this build does not know, which an
/// enumeration of Rust must not hold.
mod kind {
    use rdma_sys::ibv_event_type as t;

    pub(super) const CQ_ERR: u32 = t::IBV_EVENT_CQ_ERR as u32;
    pub(super) const DEVICE_FATAL: u32 = t::IBV_EVENT_DEVICE_FATAL as u32;
    pub(super) const PORT_ACTIVE: u32 = t::IBV_EVENT_PORT_ACTIVE as u32;
    pub(super) const PORT_ERR: u32 = t::IBV_EVENT_PORT_ERR as u32;
    pub(super) const LID_CHANGE: u32 = t::IBV_EVENT_LID_CHANGE as u32;
    pub(super) const PKEY_CHANGE: u32 = t::IBV_EVENT_PKEY_CHANGE as u32;
    pub(super) const SM_CHANGE: u32 = t::IBV_EVENT_SM_CHANGE as u32;
    pub(super) const SRQ_ERR: u32 = t::IBV_EVENT_SRQ_ERR as u32;
    pub(super) const CLIENT_REREGISTER: u32 = t::IBV_EVENT_CLIENT_REREGISTER as u32;
    pub(super) const GID_CHANGE: u32 = t::IBV_EVENT_GID_CHANGE as u32;
}

/// `ibv_async_event`, with a number as its type.
#[repr(C)]
struct RawEvent {
    element: Element,
    kind: u32,
}

#[repr(C)]
union Element {
    object: *mut c_void,
    port: i32,
}

// These are the declarations of libibverbs, with other types of events.
unsafe extern "C" {
    fn ibv_get_async_event(context: *mut ibv_context, event: *mut RawEvent) -> i32;
    fn ibv_ack_async_event(event: *mut RawEvent);
    fn ibv_event_type_str(kind: u32) -> *const c_char;
}

/// Interprets an event. A pure function, so that events of real hardware can be tested.
fn meaning(kind: u32, port: i32, text: String) -> AsyncEvent {
    use kind::*;
    match kind {
        DEVICE_FATAL | CQ_ERR | SRQ_ERR => AsyncEvent::Fatal(text),
        PORT_ERR => AsyncEvent::PortDown(port as u8),
        PORT_ACTIVE => AsyncEvent::PortUp(port as u8),
        LID_CHANGE | PKEY_CHANGE | SM_CHANGE | CLIENT_REREGISTER | GID_CHANGE => AsyncEvent::PortChanged(port as u8),
        // Errors of queue pairs are also reported as completions, with more detail.
        _ => AsyncEvent::Other(text),
    }
}

impl Context {
    /// Opens the device called `name`. Memory can only be registered afterwards.
    pub(super) fn open(name: &str) -> io::Result<Arc<Self>> {
        fork::protect();
        let mut count = 0;
        // SAFETY: the list lives until it is freed below, and has `count` entries.
        unsafe {
            let list = ibv_get_device_list(&raw mut count);
            if list.is_null() {
                return Err(io::Error::last_os_error());
            }
            let found = (0..count as usize)
                .map(|i| *list.add(i))
                .find(|d| CStr::from_ptr(ibv_get_device_name(*d)).to_bytes() == name.as_bytes());
            let result = match found {
                None => Err(io::Error::new(io::ErrorKind::NotFound, format!("no RDMA device is called {name}"))),
                Some(device) => made(ibv_open_device(device)).map(|raw| Arc::new(Self { raw })),
            };
            ibv_free_device_list(list);
            let context = result?;
            nonblocking(context.event_fd())?;
            Ok(context)
        }
    }

    pub(super) fn attributes(&self) -> io::Result<ibv_device_attr> {
        // SAFETY: plain data, filled by the call.
        unsafe {
            let mut a = std::mem::zeroed();
            check(ibv_query_device(self.raw, &raw mut a))?;
            Ok(a)
        }
    }

    /// Capabilities for on-demand paging: general ones, and those on reliable connections.
    pub(super) fn on_demand(&self) -> (u64, u32) {
        // SAFETY: plain data, filled by the call if it succeeds.
        unsafe {
            let mut a: rdma_sys::ibv_device_attr_ex = std::mem::zeroed();
            if rdma_sys::ibv_query_device_ex(self.raw, std::ptr::null(), &raw mut a) != 0 {
                return (0, 0);
            }
            (a.odp_caps.general_caps, a.odp_caps.per_transport_caps.rc_odp_caps)
        }
    }

    pub(super) fn port(&self, port: u8) -> io::Result<ibv_port_attr> {
        // SAFETY: plain data, filled by the call.
        unsafe {
            let mut a: ibv_port_attr = std::mem::zeroed();
            check(rdma_sys::___ibv_query_port(self.raw, port, &raw mut a))?;
            Ok(a)
        }
    }

    /// The partition keys of a port, in index order.
    pub(super) fn partition_keys(&self, port: u8, count: u16) -> Vec<u16> {
        let query = |index: u16| {
            let mut key = 0u16;
            // SAFETY: `key` is valid for writes; the call fails for an index outside the table.
            let ok = unsafe { ibv_query_pkey(self.raw, port, i32::from(index), &raw mut key) } == 0;
            ok.then_some(u16::from_be(key))
        };
        (0..count).map_while(query).collect()
    }

    /// The GID of a port at `index`.
    pub(super) fn gid(&self, port: u8, index: u8) -> io::Result<Gid> {
        // SAFETY: plain data, filled by the call if it succeeds.
        unsafe {
            let mut gid: rdma_sys::ibv_gid = std::mem::zeroed();
            match ibv_query_gid(self.raw, port, i32::from(index), &raw mut gid) {
                0 => Ok(gid.raw),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    /// A descriptor that is readable when there is an event.
    pub(super) fn event_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: an open context, whose descriptor stays open as long.
        unsafe { BorrowedFd::borrow_raw((*self.raw).async_fd) }
    }

    /// The next event, if there is one.
    pub(super) fn event(&self) -> Option<AsyncEvent> {
        // SAFETY: plain data, filled by the call if it succeeds; the text is static. Each event is acknowledged before
        // it is handled, so that no destruction waits for it.
        unsafe {
            let mut e: RawEvent = std::mem::zeroed();
            if ibv_get_async_event(self.raw, &raw mut e) != 0 {
                return None;
            }
            let text = CStr::from_ptr(ibv_event_type_str(e.kind)).to_string_lossy();
            let (kind, port, text) = (e.kind, e.element.port, format!("event {}: {text}", e.kind));
            ibv_ack_async_event(&raw mut e);
            Some(meaning(kind, port, text))
        }
    }
}

owned!(Context, ibv_close_device);

/// The rights that an adapter demands of the keys of memory, and those that it permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    /// Whether peers may use atomics.
    pub(super) atomics: bool,
    /// Whether every key must be of relaxed order, so that writes are placed in any order
    /// (`IBV_ACCESS_RELAXED_ORDERING` of `ibv_reg_mr(3)`).
    pub(super) relaxed: bool,
}

impl Keys {
    /// Access rights of peers, to memory and through a queue pair.
    fn remote(self) -> u32 {
        use ibv_access_flags as f;
        let all = f::IBV_ACCESS_REMOTE_WRITE.0 | f::IBV_ACCESS_REMOTE_READ.0;
        if self.atomics { all | f::IBV_ACCESS_REMOTE_ATOMIC.0 } else { all }
    }
}

/// A protection domain.
pub(super) struct Domain {
    raw: *mut ibv_pd,
    pub(super) keys: Keys,
    _context: Arc<Context>,
}

impl Domain {
    pub(super) fn new(context: &Arc<Context>, keys: Keys) -> io::Result<Arc<Self>> {
        // SAFETY: an open context.
        let raw = made(unsafe { ibv_alloc_pd(context.raw) })?;
        Ok(Arc::new(Self { raw, keys, _context: Arc::clone(context) }))
    }

    /// Access rights of peers through a queue pair.
    pub(super) fn remote(&self) -> u32 {
        self.keys.remote()
    }
}

owned!(Domain, ibv_dealloc_pd);

/// Access rights of peers and of the HCA to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rights {
    /// The HCA reads the memory: sources of sends and writes.
    Source,
    /// Peers read the memory: it is exported to them.
    Lent,
    /// The HCA reads and writes the memory for this rank: results, receives.
    Local,
    /// `Local` and `Lent` together, for memory of the program that stays registered.
    Kept,
    /// Peers read and write the memory, and apply atomics to it if the adapter has any.
    Remote,
    /// `Kept`, with on-demand paging: no pages are pinned.
    OnDemand,
}

/// A registration of memory with the HCA.
pub(super) struct Memory {
    raw: *mut ibv_mr,
    _domain: Arc<Domain>,
}

impl Memory {
    /// Registers `[base, base + len)`.
    ///
    /// # Safety
    /// The memory stays mapped until the value is dropped, and no code assumes exclusive access to memory that the
    /// rights let others write.
    pub(super) unsafe fn register(domain: &Arc<Domain>, base: *mut u8, len: usize, rights: Rights) -> io::Result<Self> {
        use ibv_access_flags as f;
        let flags = match rights {
            Rights::Source => 0,
            Rights::Lent => f::IBV_ACCESS_REMOTE_READ.0,
            Rights::Local => f::IBV_ACCESS_LOCAL_WRITE.0,
            Rights::Kept => (f::IBV_ACCESS_LOCAL_WRITE | f::IBV_ACCESS_REMOTE_READ).0,
            Rights::OnDemand => (f::IBV_ACCESS_LOCAL_WRITE | f::IBV_ACCESS_REMOTE_READ | f::IBV_ACCESS_ON_DEMAND).0,
            Rights::Remote => f::IBV_ACCESS_LOCAL_WRITE.0 | domain.keys.remote(),
        };
        let flags = if domain.keys.relaxed { flags | f::IBV_ACCESS_RELAXED_ORDERING.0 } else { flags };
        // SAFETY: by the contract; the kernel checks that the range is mapped.
        let raw = made(unsafe { ibv_reg_mr(domain.raw, base.cast(), len, flags as i32) })?;
        Ok(Self { raw, _domain: Arc::clone(domain) })
    }

    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: a live registration.
        unsafe { (*self.raw).lkey }
    }

    pub(super) fn remote_key(&self) -> u32 {
        // SAFETY: a live registration.
        unsafe { (*self.raw).rkey }
    }

    /// Deregisters the memory; its keys are invalid afterwards.
    pub(super) fn deregister(self) -> io::Result<()> {
        let raw = self.raw;
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: the domain is moved out exactly once, since `this` is not dropped.
        let _domain = unsafe { std::ptr::read(&raw const this._domain) };
        // SAFETY: a live registration, not used again.
        check(unsafe { ibv_dereg_mr(raw) })
    }
}

owned!(Memory, ibv_dereg_mr);

/// The path to another port: the data of an address vector, for queue pairs and datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Path {
    /// Number of this rank's port.
    pub(super) port: u8,
    /// Index of this rank's GID.
    pub(super) gid_index: u8,
    /// The peer's GID.
    pub(super) gid: Gid,
    /// The peer's LID, on InfiniBand.
    pub(super) lid: u16,
    /// Whether a global routing header is used: always on Ethernet, between subnets on InfiniBand.
    pub(super) global: bool,
    pub(super) service_level: u8,
    pub(super) traffic_class: u8,
}

impl Path {
    fn attributes(&self) -> ibv_ah_attr {
        let gid = rdma_sys::ibv_gid { raw: self.gid };
        ibv_ah_attr {
            grh: ibv_global_route {
                dgid: gid,
                flow_label: 0,
                sgid_index: self.gid_index,
                hop_limit: 64,
                traffic_class: self.traffic_class,
            },
            dlid: self.lid,
            sl: self.service_level,
            src_path_bits: 0,
            static_rate: 0,
            is_global: u8::from(self.global),
            port_num: self.port,
        }
    }
}

/// An address handle: the destination of datagrams to a peer.
pub(super) struct Handle {
    raw: *mut ibv_ah,
    _domain: Arc<Domain>,
}

impl Handle {
    pub(super) fn new(domain: &Arc<Domain>, path: &Path) -> io::Result<Self> {
        let mut attributes = path.attributes();
        // SAFETY: a live domain; the attributes are copied.
        let raw = made(unsafe { ibv_create_ah(domain.raw, &raw mut attributes) })?;
        Ok(Self { raw, _domain: Arc::clone(domain) })
    }
}

owned!(Handle, ibv_destroy_ah);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fatal_events_and_port_events_are_distinguished() {
        let m = |kind| meaning(kind, 2, "text".into());
        for kind in [kind::DEVICE_FATAL, kind::CQ_ERR, kind::SRQ_ERR] {
            assert_eq!(m(kind), AsyncEvent::Fatal("text".into()));
        }
        assert_eq!(m(kind::PORT_ERR), AsyncEvent::PortDown(2));
        assert_eq!(m(kind::PORT_ACTIVE), AsyncEvent::PortUp(2));
        use kind::{CLIENT_REREGISTER, GID_CHANGE, LID_CHANGE, PKEY_CHANGE, SM_CHANGE};
        for kind in [LID_CHANGE, PKEY_CHANGE, SM_CHANGE, CLIENT_REREGISTER, GID_CHANGE] {
            assert_eq!(m(kind), AsyncEvent::PortChanged(2));
        }
        // `IBV_EVENT_DEVICE_SPEED_CHANGE` of newer libraries, and one of the future.
        for kind in [20, 99, u32::MAX] {
            assert_eq!(m(kind), AsyncEvent::Other("text".into()));
        }
    }

    #[test]
    fn path_on_infiniband_has_a_lid_and_no_global_header() {
        let path =
            Path { port: 2, gid_index: 3, gid: [7; 16], lid: 77, global: false, service_level: 4, traffic_class: 9 };
        let a = path.attributes();
        assert_eq!((a.dlid, a.sl, a.is_global, a.port_num), (77, 4, 0, 2));
        let a = Path { global: true, ..path }.attributes();
        assert_eq!((a.is_global, a.grh.sgid_index, a.grh.traffic_class), (1, 3, 9));
    }
}
