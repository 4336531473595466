#![allow(unsafe_code)]
//! The objects of libfabric that the device uses: offers of providers, an endpoint with its completion queue and
//! addresses, registrations.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::{self, NonNull, null_mut};
use std::rc::Rc;
use std::sync::Arc;

use libc::iovec;

use super::sys::{self, CqEntry, CqError, FiInfo, Fid, Functions};

/// The kinds of registration of which the device knows the rules; a provider with others is not offered.
const MR_MODES: c_int =
    sys::FI_MR_LOCAL | sys::FI_MR_VIRT_ADDR | sys::FI_MR_ALLOCATED | sys::FI_MR_PROV_KEY | sys::FI_MR_ENDPOINT;
/// Maximum number of completions read at once.
const COMPLETIONS: usize = 32;
/// Maximum length in bytes of an endpoint's address.
pub(super) const MAX_ADDRESS: usize = 512;

/// A call of the library that failed.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub call: &'static str,
    pub errno: i32,
    pub text: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.call, self.text)
    }
}

/// The guarantees that a provider is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guarantees {
    /// As in [`Offer::delivers`].
    pub delivers: bool,
    /// As in [`Offer::orders`].
    pub orders: bool,
}

/// The abilities of a provider.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    pub provider: String,
    pub fabric: String,
    pub domain: String,
    /// Whether operations of peers make progress while this rank computes.
    pub progresses: bool,
    /// Whether the completion of a write can mean that it is visible at the target.
    pub delivers: bool,
    /// Whether a message is received after the writes that were posted before it are visible.
    pub orders: bool,
    pub max_blocks: usize,
    pub max_bytes: usize,
    mr_mode: c_int,
    key_bytes: usize,
}

impl Offer {
    /// # Safety
    /// `info` is an element of a list of the library.
    unsafe fn of(info: *const FiInfo, Guarantees { delivers, orders }: Guarantees) -> Option<Self> {
        // SAFETY: the library sets all attributes of an offer, which live as long as it; strings may be null.
        unsafe {
            let text = |s: *const c_char| match s.is_null() {
                true => String::new(),
                false => CStr::from_ptr(s).to_string_lossy().into_owned(),
            };
            let info = &*info;
            let (tx, ep) = (info.tx_attr.as_ref()?, info.ep_attr.as_ref()?);
            let (domain, fabric) = (info.domain_attr.as_ref()?, info.fabric_attr.as_ref()?);
            Some(Self {
                provider: text(fabric.prov_name),
                fabric: text(fabric.name),
                domain: text(domain.name),
                progresses: domain.data_progress == sys::FI_PROGRESS_AUTO,
                delivers,
                orders,
                max_blocks: tx.iov_limit.max(1),
                max_bytes: ep.max_msg_size,
                mr_mode: domain.mr_mode,
                key_bytes: domain.mr_key_size,
            })
        }
    }

    /// Whether addresses of remote memory are those of its owner; else offsets in the region.
    pub(super) fn has_addresses(&self) -> bool {
        self.mr_mode & sys::FI_MR_VIRT_ADDR != 0
    }

    /// Whether local memory of operations must be registered.
    pub(super) fn needs_local(&self) -> bool {
        self.mr_mode & sys::FI_MR_LOCAL != 0
    }
}

/// A list of offers.
pub(super) struct Offers {
    functions: Arc<Functions>,
    first: *mut FiInfo,
    guarantees: Guarantees,
}

impl Offers {
    /// Asks the providers, or those of one name, for reliable endpoints with messages, remote access, and these
    /// guarantees.
    pub(super) fn ask(
        functions: &Arc<Functions>,
        provider: Option<&str>,
        guarantees: Guarantees,
    ) -> Result<Self, Failure> {
        const CALL: &str = "fi_getinfo";
        // SAFETY: a null argument asks for an empty structure with all attributes.
        let hints = unsafe { (functions.dupinfo)(ptr::null()) };
        let name = provider.map(CString::new).transpose();
        let (false, Ok(name)) = (hints.is_null(), name) else {
            return Err(functions.failure(CALL, libc::EINVAL));
        };
        let mut first = null_mut();
        // SAFETY: the library has allocated the attributes. The name is removed before the structure is freed.
        let code = unsafe {
            (*hints).caps = sys::FI_MSG | sys::FI_RMA;
            (*hints).mode = sys::FI_CONTEXT | sys::FI_CONTEXT2;
            (*(*hints).ep_attr).kind = sys::FI_EP_RDM;
            let domain = &mut *(*hints).domain_attr;
            domain.mr_mode = MR_MODES;
            domain.threading = sys::FI_THREAD_DOMAIN;
            domain.resource_mgmt = sys::FI_RM_ENABLED;
            let tx = &mut *(*hints).tx_attr;
            let order = if guarantees.orders { sys::FI_ORDER_SAS | sys::FI_ORDER_SAW } else { sys::FI_ORDER_SAS };
            tx.msg_order = order;
            tx.op_flags = if guarantees.delivers { sys::FI_DELIVERY_COMPLETE } else { 0 };
            (*(*hints).rx_attr).msg_order = order;
            let fabric = &mut *(*hints).fabric_attr;
            fabric.prov_name = name.as_ref().map_or(null_mut(), |name| name.as_ptr().cast_mut());
            let code = (functions.getinfo)(sys::API, ptr::null(), ptr::null(), 0, hints, &mut first);
            fabric.prov_name = null_mut();
            (functions.freeinfo)(hints);
            code
        };
        functions.check(CALL, code)?;
        Ok(Self { functions: Arc::clone(functions), first, guarantees })
    }

    fn pointers(&self) -> impl Iterator<Item = *mut FiInfo> {
        // SAFETY: elements of the list, which lives as long as this.
        let next = |info: *mut FiInfo| Some(unsafe { (*info).next }).filter(|next| !next.is_null());
        std::iter::successors(Some(self.first).filter(|first| !first.is_null()), move |info| next(*info))
    }

    /// The offers, in the library's order.
    pub(super) fn all(&self) -> Vec<Offer> {
        // SAFETY: elements of the list.
        self.pointers().filter_map(|info| unsafe { Offer::of(info, self.guarantees) }).collect()
    }

    /// Opens an endpoint by the `nth` offer.
    pub(super) fn open(&self, nth: usize) -> Result<Rc<Fabric>, Failure> {
        let info = self.pointers().nth(nth);
        // SAFETY: an element of the list.
        let offer = info.and_then(|info| unsafe { Offer::of(info, self.guarantees) });
        let (Some(info), Some(offer)) = (info, offer) else {
            return Err(self.functions.failure("fi_getinfo", libc::ENODATA));
        };
        // SAFETY: an element of the list, which is copied with all attributes.
        let info = unsafe { (self.functions.dupinfo)(info) };
        if info.is_null() {
            return Err(self.functions.failure("fi_dupinfo", libc::ENOMEM));
        }
        let mut fabric = Fabric {
            functions: Arc::clone(&self.functions),
            info,
            offer,
            fabric: null_mut(),
            domain: null_mut(),
            cq: null_mut(),
            av: null_mut(),
            ep: Cell::new(null_mut()),
            wait: None,
            last_key: Cell::new(0),
        };
        fabric.open()?;
        Ok(Rc::new(fabric))
    }
}

impl Drop for Offers {
    fn drop(&mut self) {
        // SAFETY: the list is freed once.
        unsafe { (self.functions.freeinfo)(self.first) };
    }
}

impl Functions {
    fn failure(&self, call: &'static str, errno: i32) -> Failure {
        Failure { call, errno, text: self.text(errno) }
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), Failure> {
        if code < 0 { Err(self.failure(call, -code)) } else { Ok(()) }
    }
}

/// Memory at which the library keeps the state of an operation until it completes.
#[repr(C)]
struct ContextMemory {
    words: [u64; 8],
    tag: u64,
}

/// The context of an operation, which its completion names.
pub(super) struct Context(NonNull<ContextMemory>);

impl Context {
    pub(super) fn new(tag: u64) -> Self {
        Self(NonNull::from(Box::leak(Box::new(ContextMemory { words: [0; 8], tag }))))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: made by `new` from a box; no operation uses it any more, by the contract of those that take it.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Memory of a peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remote {
    /// The handle of the peer's address.
    pub peer: u64,
    pub addr: u64,
    pub len: usize,
    pub key: u64,
}

/// An open endpoint.
pub(super) struct Fabric {
    functions: Arc<Functions>,
    info: *mut FiInfo,
    pub offer: Offer,
    fabric: *mut sys::FidFabric,
    domain: *mut sys::FidDomain,
    cq: *mut sys::FidCq,
    av: *mut sys::FidAv,
    /// Null once it is closed.
    ep: Cell<*mut sys::FidEp>,
    /// Becomes readable at an event.
    wait: Option<RawFd>,
    last_key: Cell<u64>,
}

impl Fabric {
    fn open(&mut self) -> Result<(), Failure> {
        let (functions, none) = (Arc::clone(&self.functions), null_mut());
        let check = |call, code| functions.check(call, code);
        // SAFETY: objects are made from those that were made before, with attributes of the library's own offer;
        // each table of operations belongs to its object.
        unsafe {
            let attributes = &mut *self.info;
            // Flags are given with each operation.
            (*attributes.tx_attr).op_flags = 0;
            check("fi_fabric", (functions.fabric)(attributes.fabric_attr, &mut self.fabric, none))?;
            let domain = (*(*self.fabric).ops).domain;
            check("fi_domain", domain(self.fabric, self.info, &mut self.domain, none))?;
            let ops = &*(*self.domain).ops;
            for wait_obj in [sys::FI_WAIT_FD, sys::FI_WAIT_NONE] {
                let mut attr = sys::CqAttr::new(sys::FI_CQ_FORMAT_MSG, wait_obj);
                match (ops.cq_open)(self.domain, &mut attr, &mut self.cq, none) {
                    code if code < 0 && wait_obj == sys::FI_WAIT_FD => self.cq = null_mut(),
                    code => {
                        check("fi_cq_open", code)?;
                        let mut fd: c_int = -1;
                        let control = (*(*self.cq).fid.ops).control;
                        let has = wait_obj == sys::FI_WAIT_FD
                            && control(self.cq.cast(), sys::FI_GETWAIT, (&raw mut fd).cast()) >= 0;
                        self.wait = Some(fd).filter(|fd| has && *fd >= 0);
                        break;
                    }
                }
            }
            check("fi_av_open", (ops.av_open)(self.domain, &mut sys::AvAttr::default(), &mut self.av, none))?;
            let mut ep = null_mut();
            check("fi_endpoint", (ops.endpoint)(self.domain, self.info, &mut ep, none))?;
            self.ep.set(ep);
            let of = &*(*ep).fid.ops;
            check("fi_ep_bind", (of.bind)(ep.cast(), self.cq.cast(), sys::FI_TRANSMIT | sys::FI_RECV))?;
            check("fi_ep_bind", (of.bind)(ep.cast(), self.av.cast(), 0))?;
            check("fi_enable", (of.control)(ep.cast(), sys::FI_ENABLE, none))?;
            if (*ep).msg.is_null() || (*ep).rma.is_null() || (*ep).cm.is_null() {
                return Err(functions.failure("fi_endpoint", libc::ENOSYS));
            }
        }
        Ok(())
    }

    /// The address of the endpoint.
    pub(super) fn address(&self) -> Result<Vec<u8>, Failure> {
        let (mut bytes, mut len) = (vec![0u8; MAX_ADDRESS], MAX_ADDRESS);
        // SAFETY: the endpoint is open, and the buffer has room for `len` bytes.
        let code = unsafe {
            let ep = self.ep.get();
            ((*(*ep).cm).getname)(ep.cast(), bytes.as_mut_ptr().cast(), &mut len)
        };
        self.functions.check("fi_getname", code)?;
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Makes the handle of a peer's address, which has [`MAX_ADDRESS`] bytes, filled up with zeros.
    pub(super) fn insert(&self, address: &[u8; MAX_ADDRESS]) -> Result<u64, Failure> {
        let mut handle = 0;
        // SAFETY: the provider reads at most as many bytes as its addresses have, which are no more than there are.
        let inserted =
            unsafe { ((*(*self.av).ops).insert)(self.av, address.as_ptr().cast(), 1, &mut handle, 0, null_mut()) };
        match inserted {
            1 => Ok(handle),
            code => Err(self.functions.failure("fi_av_insert", if code < 0 { -code } else { libc::EINVAL })),
        }
    }

    /// Registers memory for peers and for local use.
    ///
    /// # Safety
    /// The memory is valid, and not assumed to be exclusive, until the registration is dropped.
    pub(super) unsafe fn register(self: &Rc<Self>, base: *mut u8, len: usize) -> Result<Memory, Failure> {
        let mut mr = null_mut();
        let limit = if self.offer.key_bytes >= 8 { u64::MAX } else { (1 << (8 * self.offer.key_bytes)) - 1 };
        let mut tries = 0;
        loop {
            let key = self.last_key.get() % limit + 1;
            self.last_key.set(key);
            // SAFETY: the domain is open; the memory is valid by the contract.
            let code = unsafe {
                let reg = (*(*self.domain).mr).reg;
                reg(self.domain.cast(), base.cast(), len, sys::ACCESS, 0, key, 0, &mut mr, null_mut())
            };
            tries += 1;
            // The key is in use; where the provider chooses keys, this cannot happen.
            if code == -sys::FI_ENOKEY && tries < 1000 {
                continue;
            }
            self.functions.check("fi_mr_reg", code)?;
            break;
        }
        // SAFETY: the registration was made above.
        let (desc, key) = unsafe { ((*mr).desc, (*mr).key) };
        let memory = Memory { mr, desc, key, fabric: Rc::clone(self) };
        if self.offer.mr_mode & sys::FI_MR_ENDPOINT != 0 {
            // SAFETY: the registration and the endpoint are open.
            unsafe {
                let ops = &*(*mr).fid.ops;
                self.functions.check("fi_mr_bind", (ops.bind)(mr.cast(), self.ep.get().cast(), 0))?;
                self.functions.check("fi_mr_enable", (ops.control)(mr.cast(), sys::FI_ENABLE, null_mut()))?;
            }
        }
        Ok(memory)
    }

    /// Whether the provider accepted an operation; `Ok(false)`: it has no room now.
    fn posted(&self, call: &'static str, code: isize) -> Result<bool, Failure> {
        match code {
            0.. => Ok(true),
            code if code == -(libc::EAGAIN as isize) => Ok(false),
            code => Err(self.functions.failure(call, -code as i32)),
        }
    }

    fn closed(&self, call: &'static str) -> Failure {
        self.functions.failure(call, libc::ESHUTDOWN)
    }

    /// Sends a message.
    ///
    /// # Safety
    /// The memory is valid, and not changed, until the completion of the context, or the endpoint is closed; so is the
    /// context. `desc` is that of a registration of the memory.
    pub(super) unsafe fn send(
        &self,
        bytes: (*const u8, usize, *mut c_void),
        to: u64,
        context: &Context,
    ) -> Result<bool, Failure> {
        const CALL: &str = "fi_send";
        let ep = self.ep.get();
        if ep.is_null() {
            return Err(self.closed(CALL));
        }
        // SAFETY: the endpoint is open; the rest by the contract.
        let code = unsafe { ((*(*ep).msg).send)(ep, bytes.0.cast(), bytes.1, bytes.2, to, context.0.as_ptr().cast()) };
        self.posted(CALL, code)
    }

    /// Posts a buffer for a message.
    ///
    /// # Safety
    /// As for [`send`](Self::send); the memory is exclusive.
    pub(super) unsafe fn receive(
        &self,
        bytes: (*mut u8, usize, *mut c_void),
        context: &Context,
    ) -> Result<bool, Failure> {
        const CALL: &str = "fi_recv";
        let ep = self.ep.get();
        if ep.is_null() {
            return Err(self.closed(CALL));
        }
        // SAFETY: the endpoint is open; the rest by the contract.
        let code =
            unsafe { ((*(*ep).msg).recv)(ep, bytes.0.cast(), bytes.1, bytes.2, u64::MAX, context.0.as_ptr().cast()) };
        self.posted(CALL, code)
    }

    /// Writes local memory to a peer's, or reads the peer's into it.
    ///
    /// # Safety
    /// The local memory is valid, and exclusive where it is written, until the completion of the context, or the
    /// endpoint is closed; so is the context. Each descriptor is that of a registration of its block; there are none,
    /// or as many as blocks.
    pub(super) unsafe fn transfer(
        &self,
        write: bool,
        local: &[iovec],
        descs: &mut [*mut c_void],
        remote: Remote,
        context: &Context,
    ) -> Result<bool, Failure> {
        let call = if write { "fi_writemsg" } else { "fi_readmsg" };
        let ep = self.ep.get();
        if ep.is_null() {
            return Err(self.closed(call));
        }
        let range = sys::RmaIov { addr: remote.addr, len: remote.len, key: remote.key };
        let message = sys::RmaMessage {
            iov: local.as_ptr(),
            desc: if descs.is_empty() { null_mut() } else { descs.as_mut_ptr() },
            iov_count: local.len(),
            addr: remote.peer,
            rma_iov: &range,
            rma_iov_count: 1,
            context: context.0.as_ptr().cast(),
            data: 0,
        };
        // SAFETY: the endpoint is open, and copies the message; the rest by the contract.
        let code = unsafe {
            let ops = &*(*ep).rma;
            if write {
                let delivery = if self.offer.delivers { sys::FI_DELIVERY_COMPLETE } else { 0 };
                (ops.writemsg)(ep, &message, sys::FI_COMPLETION | delivery)
            } else {
                (ops.readmsg)(ep, &message, sys::FI_COMPLETION)
            }
        };
        self.posted(call, code)
    }

    /// Makes progress, and passes the tag of each completed operation with its number of bytes.
    pub(super) fn poll(&self, each: &mut dyn FnMut(u64, Result<usize, Failure>)) -> Result<(), Failure> {
        loop {
            let mut entries = [const { MaybeUninit::<CqEntry>::uninit() }; COMPLETIONS];
            // SAFETY: the queue is open, and there is room for as many entries of its format.
            let count = unsafe { ((*(*self.cq).ops).read)(self.cq, entries.as_mut_ptr().cast(), COMPLETIONS) };
            match count {
                1.. => {
                    for entry in entries.iter().take(count as usize) {
                        // SAFETY: the library has written as many entries as it says.
                        let entry = unsafe { entry.assume_init_ref() };
                        // SAFETY: the context of an operation, which lives until its completion.
                        each(unsafe { tag(entry.context) }, Ok(entry.len));
                    }
                    if (count as usize) < COMPLETIONS {
                        return Ok(());
                    }
                }
                0 => return Ok(()),
                code if code == -(libc::EAGAIN as isize) => return Ok(()),
                code if code == -(sys::FI_EAVAIL as isize) => {
                    let mut error = CqError::default();
                    // SAFETY: the queue is open, and an entry has at least as many bytes as this version writes.
                    let read = unsafe { ((*(*self.cq).ops).readerr)(self.cq, &mut error, 0) };
                    if read > 0 && !error.context.is_null() {
                        let failure = Failure {
                            call: "completion",
                            errno: error.err,
                            text: format!("{} ({})", self.functions.text(error.err), error.prov_errno),
                        };
                        // SAFETY: as above.
                        each(unsafe { tag(error.context) }, Err(failure));
                    } else if read < 0 && read != -(libc::EAGAIN as isize) {
                        return Err(self.functions.failure("fi_cq_readerr", -read as i32));
                    }
                }
                code => return Err(self.functions.failure("fi_cq_read", -code as i32)),
            }
        }
    }

    /// The descriptor that becomes readable at an event, if the provider has one.
    pub(super) fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the descriptor belongs to the queue, which is open as long as this lives.
        self.wait.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Whether this rank may sleep on the descriptor: no event has come before.
    pub(super) fn may_sleep(&self) -> bool {
        let mut fid: *mut Fid = self.cq.cast();
        // SAFETY: the fabric and the queue are open.
        unsafe { ((*(*self.fabric).ops).trywait)(self.fabric, &mut fid, 1) == 0 }
    }

    /// Closes the endpoint: no operation uses memory after the return.
    pub(super) fn close_endpoint(&self) {
        close(self.ep.replace(null_mut()).cast());
    }
}

/// The tag of a context.
///
/// # Safety
/// `context` is that of a [`Context`] that lives.
unsafe fn tag(context: *mut c_void) -> u64 {
    // SAFETY: by the contract.
    unsafe { (*context.cast::<ContextMemory>()).tag }
}

/// Closes an object, once, unless it was not made.
fn close(fid: *mut Fid) {
    if fid.is_null() {
        return;
    }
    // SAFETY: an open object, whose pointer its owner has given up.
    let code = unsafe { ((*(*fid).ops).close)(fid) };
    if code < 0 {
        tracing::debug!("libfabric: an object could not be closed: error {}", -code);
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        self.close_endpoint();
        [self.av.cast(), self.cq.cast(), self.domain.cast(), self.fabric.cast()].into_iter().for_each(close);
        // SAFETY: the copy of the offer is freed once.
        unsafe { (self.functions.freeinfo)(self.info) };
    }
}

/// Registered memory.
pub(super) struct Memory {
    mr: *mut sys::FidMr,
    pub desc: *mut c_void,
    pub key: u64,
    fabric: Rc<Fabric>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        debug_assert!(!self.fabric.domain.is_null(), "the domain outlives its registrations");
        close(self.mr.cast());
    }
}
