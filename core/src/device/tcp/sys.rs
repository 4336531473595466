#![allow(unsafe_code)]
//! System calls on sockets, from and into memory that other ranks may access at the same time, so no slices of it are
//! made.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use smallvec::SmallVec;

use crate::device::Block;

/// Blocks of one system call.
pub(super) type Blocks = SmallVec<[Block; 8]>;

/// Maximum number of blocks of one system call.
pub(super) const MAX_BLOCKS: usize = 64;

fn vectors(blocks: &[Block]) -> SmallVec<[libc::iovec; 8]> {
    blocks.iter().map(|b| libc::iovec { iov_base: b.base.cast(), iov_len: b.len }).collect()
}

fn counted(n: isize) -> io::Result<usize> {
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Receives into blocks, without waiting; 0 at the end of the connection.
///
/// # Safety
/// The blocks are valid for writes, and other code accesses them only through `memory::copy`, by atomics or by devices.
pub(super) unsafe fn receive(socket: BorrowedFd<'_>, blocks: &[Block]) -> io::Result<usize> {
    let vectors = vectors(blocks);
    // SAFETY: valid blocks by the contract, as many as the count says; the socket does not block.
    counted(unsafe { libc::readv(socket.as_raw_fd(), vectors.as_ptr(), vectors.len() as i32) })
}

/// Sends blocks, without waiting. Also `WouldBlock` if the kernel has no memory at present.
///
/// # Safety
/// The blocks are valid for reads.
pub(super) unsafe fn send(socket: BorrowedFd<'_>, blocks: &[Block]) -> io::Result<usize> {
    let mut vectors = vectors(blocks);
    // SAFETY: plain data, for which zeros are valid.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    (message.msg_iov, message.msg_iovlen) = (vectors.as_mut_ptr(), vectors.len() as _);
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: a message of valid blocks by the contract.
    match counted(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) }) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOBUFS | libc::ENOMEM)) => {
            Err(io::ErrorKind::WouldBlock.into())
        }
        sent => sent,
    }
}

/// Number of bytes that the peer's kernel has not acknowledged.
pub(super) fn unacknowledged_bytes(socket: BorrowedFd<'_>) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one integer.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if done == 0 { usize::try_from(bytes).unwrap_or(0) } else { 0 }
}

/// Time since the last acknowledgement of the peer's kernel, if one is outstanding: for data, or for a probe of its
/// window. Data that waits for space in that window was not sent, so no acknowledgement is outstanding for it.
pub(super) fn unanswered_time(socket: BorrowedFd<'_>) -> Option<Duration> {
    // SAFETY: plain data, for which zeros are valid.
    let mut info: libc::tcp_info = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut len = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the call writes at most `len` bytes to `info`.
    let done = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut len)
    };
    let has_data = info.tcpi_unacked > 0 && info.tcpi_last_data_sent < info.tcpi_last_ack_recv;
    let is_owed = done == 0 && (has_data || info.tcpi_probes > 0);
    is_owed.then(|| Duration::from_millis(info.tcpi_last_ack_recv.into()))
}
