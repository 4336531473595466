#![allow(unsafe_code)]
//! Declarations of libfabric, API 1.11 (`fabric.h`, `fi_domain.h`, `fi_endpoint.h`, `fi_rma.h`, `fi_eq.h`, `fi_cm.h` of
//! OFIWG), and the library itself, which is loaded at run time. Structures that the library allocates, and tables of
//! operations, are declared up to the last field that is used here: later versions append fields. Enumerations of C are
//! integers.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::ManuallyDrop;

use libc::iovec;
use libloading::Library;

/// The version of the interface that is asked for: major in the upper half.
pub(super) const API: u32 = version(1, 11);
const LIBRARY: &str = "libfabric.so.1";

pub(super) const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

pub(super) const FI_MSG: u64 = 1 << 1;
pub(super) const FI_RMA: u64 = 1 << 2;
pub(super) const FI_TRANSMIT: u64 = 1 << 11;
pub(super) const FI_RECV: u64 = 1 << 10;
pub(super) const FI_COMPLETION: u64 = 1 << 24;
pub(super) const FI_DELIVERY_COMPLETE: u64 = 1 << 28;

/// Access of a registration: local sources and destinations, and peers.
pub(super) const ACCESS: u64 = FI_TRANSMIT | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
const FI_READ: u64 = 1 << 8;
const FI_WRITE: u64 = 1 << 9;
const FI_REMOTE_READ: u64 = 1 << 12;
const FI_REMOTE_WRITE: u64 = 1 << 13;

/// The provider uses the memory at an operation's context: 4 or 8 words.
pub(super) const FI_CONTEXT: u64 = 1 << 59;
pub(super) const FI_CONTEXT2: u64 = 1 << 52;

/// Messages are received after writes that were posted before them, and in the order of posting.
pub(super) const FI_ORDER_SAW: u64 = 1 << 7;
pub(super) const FI_ORDER_SAS: u64 = 1 << 8;

pub(super) const FI_MR_LOCAL: c_int = 1 << 2;
pub(super) const FI_MR_VIRT_ADDR: c_int = 1 << 4;
pub(super) const FI_MR_ALLOCATED: c_int = 1 << 5;
pub(super) const FI_MR_PROV_KEY: c_int = 1 << 6;
pub(super) const FI_MR_ENDPOINT: c_int = 1 << 9;

pub(super) const FI_PROGRESS_AUTO: c_int = 1;
pub(super) const FI_THREAD_DOMAIN: c_int = 3;
pub(super) const FI_RM_ENABLED: c_int = 2;
pub(super) const FI_EP_RDM: c_int = 3;

pub(super) const FI_GETWAIT: c_int = 5;
pub(super) const FI_ENABLE: c_int = 6;
pub(super) const FI_WAIT_NONE: c_int = 0;
pub(super) const FI_WAIT_FD: c_int = 3;
pub(super) const FI_CQ_FORMAT_MSG: c_int = 2;

/// An error is to be read with `readerr`.
pub(super) const FI_EAVAIL: i32 = 259;
pub(super) const FI_ENOKEY: i32 = 266;

#[repr(C)]
pub(super) struct Fid {
    class: usize,
    context: *mut c_void,
    pub ops: *const FidOps,
}

#[repr(C)]
pub(super) struct FidOps {
    size: usize,
    pub close: unsafe extern "C" fn(*mut Fid) -> c_int,
    pub bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    pub control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
}

#[repr(C)]
pub(super) struct FidFabric {
    pub fid: Fid,
    pub ops: *const FabricOps,
}

#[repr(C)]
pub(super) struct FabricOps {
    size: usize,
    pub domain: unsafe extern "C" fn(*mut FidFabric, *mut FiInfo, *mut *mut FidDomain, *mut c_void) -> c_int,
    passive_ep: usize,
    eq_open: usize,
    wait_open: usize,
    pub trywait: unsafe extern "C" fn(*mut FidFabric, *mut *mut Fid, c_int) -> c_int,
}

#[repr(C)]
pub(super) struct FidDomain {
    pub fid: Fid,
    pub ops: *const DomainOps,
    pub mr: *const MrOps,
}

#[repr(C)]
pub(super) struct DomainOps {
    size: usize,
    pub av_open: unsafe extern "C" fn(*mut FidDomain, *mut AvAttr, *mut *mut FidAv, *mut c_void) -> c_int,
    pub cq_open: unsafe extern "C" fn(*mut FidDomain, *mut CqAttr, *mut *mut FidCq, *mut c_void) -> c_int,
    pub endpoint: unsafe extern "C" fn(*mut FidDomain, *mut FiInfo, *mut *mut FidEp, *mut c_void) -> c_int,
}

#[repr(C)]
pub(super) struct MrOps {
    size: usize,
    /// Memory, its length, access, offset, requested key, flags.
    pub reg:
        unsafe extern "C" fn(*mut Fid, *const c_void, usize, u64, u64, u64, u64, *mut *mut FidMr, *mut c_void) -> c_int,
}

#[repr(C)]
pub(super) struct FidMr {
    pub fid: Fid,
    pub desc: *mut c_void,
    pub key: u64,
}

#[repr(C)]
#[derive(Default)]
pub(super) struct AvAttr {
    pub kind: c_int,
    rx_ctx_bits: c_int,
    pub count: usize,
    ep_per_node: usize,
    name: usize,
    map_addr: usize,
    flags: u64,
}

#[repr(C)]
pub(super) struct FidAv {
    pub fid: Fid,
    pub ops: *const AvOps,
}

#[repr(C)]
pub(super) struct AvOps {
    size: usize,
    /// Addresses, their number, their handles.
    pub insert: unsafe extern "C" fn(*mut FidAv, *const c_void, usize, *mut u64, u64, *mut c_void) -> c_int,
}

#[repr(C)]
#[derive(Default)]
pub(super) struct CqAttr {
    size: usize,
    flags: u64,
    format: c_int,
    wait_obj: c_int,
    signaling_vector: c_int,
    wait_cond: c_int,
    wait_set: usize,
}

impl CqAttr {
    pub(super) fn new(format: c_int, wait_obj: c_int) -> Self {
        Self { format, wait_obj, ..Self::default() }
    }
}

#[repr(C)]
pub(super) struct FidCq {
    pub fid: Fid,
    pub ops: *const CqOps,
}

#[repr(C)]
pub(super) struct CqOps {
    size: usize,
    pub read: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize) -> isize,
    readfrom: usize,
    pub readerr: unsafe extern "C" fn(*mut FidCq, *mut CqError, u64) -> isize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CqEntry {
    pub context: *mut c_void,
    pub flags: u64,
    pub len: usize,
}

#[repr(C)]
pub(super) struct CqError {
    pub context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    buf: usize,
    data: u64,
    tag: u64,
    olen: usize,
    pub err: c_int,
    pub prov_errno: c_int,
    err_data: usize,
    err_data_size: usize,
    /// Fields that later versions have appended.
    later: [u64; 4],
}

impl Default for CqError {
    fn default() -> Self {
        Self {
            context: std::ptr::null_mut(),
            flags: 0,
            len: 0,
            buf: 0,
            data: 0,
            tag: 0,
            olen: 0,
            err: 0,
            prov_errno: 0,
            err_data: 0,
            err_data_size: 0,
            later: [0; 4],
        }
    }
}

#[repr(C)]
pub(super) struct FidEp {
    pub fid: Fid,
    ops: usize,
    pub cm: *const CmOps,
    pub msg: *const MsgOps,
    pub rma: *const RmaOps,
}

#[repr(C)]
pub(super) struct CmOps {
    size: usize,
    setname: usize,
    pub getname: unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int,
}

#[repr(C)]
pub(super) struct MsgOps {
    size: usize,
    /// Buffer, length, descriptor, source, context.
    pub recv: unsafe extern "C" fn(*mut FidEp, *mut c_void, usize, *mut c_void, u64, *mut c_void) -> isize,
    recvv: usize,
    recvmsg: usize,
    /// Buffer, length, descriptor, destination, context.
    pub send: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, *mut c_void, u64, *mut c_void) -> isize,
}

#[repr(C)]
pub(super) struct RmaOps {
    size: usize,
    read: usize,
    readv: usize,
    pub readmsg: unsafe extern "C" fn(*mut FidEp, *const RmaMessage, u64) -> isize,
    write: usize,
    writev: usize,
    pub writemsg: unsafe extern "C" fn(*mut FidEp, *const RmaMessage, u64) -> isize,
}

#[repr(C)]
pub(super) struct RmaIov {
    pub addr: u64,
    pub len: usize,
    pub key: u64,
}

#[repr(C)]
pub(super) struct RmaMessage {
    pub iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: u64,
    pub rma_iov: *const RmaIov,
    pub rma_iov_count: usize,
    pub context: *mut c_void,
    pub data: u64,
}

#[repr(C)]
pub(super) struct TxAttr {
    caps: u64,
    mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    comp_order: u64,
    pub inject_size: usize,
    pub size: usize,
    pub iov_limit: usize,
    rma_iov_limit: usize,
    tclass: u32,
}

#[repr(C)]
pub(super) struct RxAttr {
    caps: u64,
    mode: u64,
    op_flags: u64,
    pub msg_order: u64,
    comp_order: u64,
    total_buffered_recv: usize,
    pub size: usize,
    iov_limit: usize,
}

#[repr(C)]
pub(super) struct EpAttr {
    pub kind: c_int,
    protocol: u32,
    protocol_version: u32,
    pub max_msg_size: usize,
}

#[repr(C)]
pub(super) struct DomainAttr {
    domain: usize,
    pub name: *mut c_char,
    pub threading: c_int,
    control_progress: c_int,
    pub data_progress: c_int,
    pub resource_mgmt: c_int,
    av_type: c_int,
    pub mr_mode: c_int,
    pub mr_key_size: usize,
}

#[repr(C)]
pub(super) struct FabricAttr {
    fabric: usize,
    pub name: *mut c_char,
    pub prov_name: *mut c_char,
    prov_version: u32,
}

#[repr(C)]
pub(super) struct FiInfo {
    pub next: *mut FiInfo,
    pub caps: u64,
    pub mode: u64,
    addr_format: u32,
    src_addrlen: usize,
    dest_addrlen: usize,
    src_addr: usize,
    dest_addr: usize,
    handle: usize,
    pub tx_attr: *mut TxAttr,
    pub rx_attr: *mut RxAttr,
    pub ep_attr: *mut EpAttr,
    pub domain_attr: *mut DomainAttr,
    pub fabric_attr: *mut FabricAttr,
}

/// The functions that the library exports. All others are in the tables of its objects.
pub(super) struct Functions {
    pub getinfo: unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const FiInfo, *mut *mut FiInfo) -> c_int,
    pub freeinfo: unsafe extern "C" fn(*mut FiInfo),
    pub dupinfo: unsafe extern "C" fn(*const FiInfo) -> *mut FiInfo,
    pub fabric: unsafe extern "C" fn(*mut FabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int,
    version: unsafe extern "C" fn() -> u32,
    strerror: unsafe extern "C" fn(c_int) -> *const c_char,
}

impl Functions {
    /// Loads the library that the system finds. It stays loaded, since its providers may have threads.
    pub(super) fn load() -> Result<Self, libloading::Error> {
        // SAFETY: the library's initializers have no requirements.
        let library = ManuallyDrop::new(unsafe { Library::new(LIBRARY) }?);
        // SAFETY: the names and types are those of `fabric.h`, as the name of the library promises.
        unsafe {
            Ok(Self {
                getinfo: *library.get(b"fi_getinfo\0")?,
                freeinfo: *library.get(b"fi_freeinfo\0")?,
                dupinfo: *library.get(b"fi_dupinfo\0")?,
                fabric: *library.get(b"fi_fabric\0")?,
                version: *library.get(b"fi_version\0")?,
                strerror: *library.get(b"fi_strerror\0")?,
            })
        }
    }

    /// The version of the library's interface.
    pub(super) fn version(&self) -> u32 {
        // SAFETY: the function has no requirements.
        unsafe { (self.version)() }
    }

    /// The text of an error number.
    pub(super) fn text(&self, errno: i32) -> String {
        // SAFETY: the function gives a string for every number.
        let text = unsafe { (self.strerror)(errno) };
        if text.is_null() {
            return format!("error {errno}");
        }
        // SAFETY: a string that lives as long as the library, of which the caller keeps a copy.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    /// Sizes and offsets that a C compiler gives for the headers, on machines of 64 bits.
    #[test]
    fn layouts_are_those_of_the_headers() {
        assert_eq!([size_of::<Fid>(), size_of::<FidMr>(), size_of::<FidCq>(), size_of::<FidAv>()], [24, 40, 32, 32]);
        assert_eq!([size_of::<AvAttr>(), size_of::<CqAttr>(), size_of::<CqEntry>()], [48, 40, 24]);
        assert_eq!([size_of::<RmaMessage>(), size_of::<RmaIov>()], [64, 24]);
        assert_eq!([size_of::<TxAttr>(), size_of::<RxAttr>()], [80, 64]);
        assert_eq!([offset_of!(FiInfo, tx_attr), size_of::<FiInfo>()], [72, 112]);
        assert_eq!([offset_of!(EpAttr, max_msg_size), offset_of!(FabricAttr, prov_name)], [16, 16]);
        let domain = [
            offset_of!(DomainAttr, data_progress),
            offset_of!(DomainAttr, mr_mode),
            offset_of!(DomainAttr, mr_key_size),
        ];
        assert_eq!(domain, [24, 36, 40]);
        let ep = [offset_of!(FidEp, cm), offset_of!(FidEp, msg), offset_of!(FidEp, rma)];
        assert_eq!(ep, [32, 40, 48]);
        assert_eq!([offset_of!(RmaOps, readmsg), offset_of!(RmaOps, writemsg)], [24, 48]);
        assert_eq!([offset_of!(MsgOps, recv), offset_of!(MsgOps, send)], [8, 32]);
        assert_eq!([offset_of!(CqOps, readerr), offset_of!(FabricOps, trywait)], [24, 40]);
        assert_eq!([offset_of!(CmOps, getname), offset_of!(DomainOps, endpoint)], [16, 24]);
        assert_eq!(
            [offset_of!(CqError, err), offset_of!(CqError, prov_errno), offset_of!(CqError, later)],
            [56, 60, 80]
        );
    }
}
