#![allow(unsafe_code)]
//! `process_vm_readv` and `process_vm_writev`: one system call, one copy, block lists on both sides.

use std::io;

use crate::device::{Block, Range};
use crate::error::{Error, ErrorKind, Result};

const MAX_BLOCKS: usize = 1024;

/// Reads or writes the memory of process `pid`: moves bytes between local blocks and ranges of equal total length,
/// whose offsets are relative to address `base`. Returns the number of system calls.
///
/// # Safety
/// The local blocks are valid (and exclusive where read into); the remote ranges belong to a region that its owner has
/// exposed for this purpose.
///
/// # Errors
/// `Forbidden` if the system denies the access, `PeerLost` if the process has ended, `BadArgument` if a remote address
/// is not mapped there.
pub(super) unsafe fn transfer(read: bool, pid: u32, local: &[Block], base: u64, remote: &[Range]) -> Result<usize> {
    let total: usize = local.iter().map(|b| b.len).sum();
    debug_assert_eq!(total, remote.iter().map(|r| r.len).sum::<usize>());
    let call = if read { libc::process_vm_readv } else { libc::process_vm_writev };
    let (mut done, mut calls) = (0, 0);
    while done < total {
        let local = vectors(local.iter().map(|b| (b.base as u64, b.len)), done, usize::MAX);
        // The kernel stops at the shorter list; equal bytes on both sides keep the count exact.
        let most = local.iter().map(|v| v.iov_len).sum();
        let remote = vectors(remote.iter().map(|r| (base + r.offset as u64, r.len)), done, most);
        // SAFETY: the vectors are live and describe valid memory by the contract; the kernel checks the remote
        // addresses.
        let n = unsafe { call(pid as i32, local.as_ptr(), local.len() as _, remote.as_ptr(), remote.len() as _, 0) };
        calls += 1;
        match n {
            -1 => return Err(failure(read, pid)),
            0 => {
                return Err(
                    Error::new(ErrorKind::System, "copy by process_vm").cause(format!("{done} of {total} bytes moved"))
                );
            }
            n => done += n as usize,
        }
    }
    Ok(calls)
}

fn failure(read: bool, pid: u32) -> Error {
    let e = io::Error::last_os_error();
    let (operation, name) = match read {
        false => ("write a peer's memory", "process_vm_writev"),
        true => ("read a peer's memory", "process_vm_readv"),
    };
    let kind = match e.raw_os_error() {
        Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => ErrorKind::Forbidden,
        Some(libc::ESRCH) => ErrorKind::PeerLost,
        Some(libc::EFAULT) => ErrorKind::BadArgument,
        _ => ErrorKind::System,
    };
    let error = Error::new(kind, operation).cause(format!("{name} on process {pid}")).source_error(e);
    match kind {
        ErrorKind::Forbidden => {
            error.remedy("allow it (kernel.yama.ptrace_scope=0, CAP_SYS_PTRACE), or set FARSIDE_SHM_USER_MEMORY=ring")
        }
        _ => error,
    }
}

/// The blocks from byte `skip` on, at most [`MAX_BLOCKS`] of them and `most` bytes.
fn vectors(blocks: impl Iterator<Item = (u64, usize)>, mut skip: usize, mut most: usize) -> Vec<libc::iovec> {
    let mut out = Vec::new();
    for (base, len) in blocks {
        let skipped = skip.min(len);
        skip -= skipped;
        let iov_len = (len - skipped).min(most);
        if iov_len > 0 {
            out.push(libc::iovec { iov_base: (base as usize + skipped) as *mut _, iov_len });
        }
        most -= iov_len;
        if out.len() == MAX_BLOCKS || most == 0 {
            break;
        }
    }
    out
}

/// Checks that the calls work on process `pid`: reads one byte that is known to exist there.
pub(super) fn works(pid: u32, address: u64) -> Result<()> {
    let mut byte = 0u8;
    // SAFETY: a live local byte; an address that `pid` published for this purpose.
    unsafe { transfer(true, pid, &[Block { base: &raw mut byte, len: 1 }], address, &[Range { offset: 0, len: 1 }]) }
        .map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vm_transfer_with_block_lists_on_both_sides() {
        let source: Vec<u8> = (0..5000u32).map(|i| i as u8).collect();
        let mut target = vec![0u8; 10_000];
        // 2,500 local blocks of 2 bytes, remote blocks of 5 bytes every 10: several calls, split blocks.
        let local: Vec<Block> = source.chunks(2).map(|c| Block::of(c.as_ptr(), 2)).collect();
        let base = target.as_mut_ptr() as u64;
        let remote: Vec<Range> = (0..1000).map(|i| Range { offset: i * 10, len: 5 }).collect();
        // SAFETY: live buffers of this process.
        let calls = unsafe { transfer(false, std::process::id(), &local, base, &remote) }.unwrap();
        assert_eq!(calls, 3);
        for (i, b) in target.iter().enumerate() {
            assert_eq!(*b, if i % 10 < 5 { source[i / 10 * 5 + i % 10] } else { 0 }, "byte {i}");
        }
        let mut back = vec![0u8; 5000];
        let local = [Block { base: back.as_mut_ptr(), len: 5000 }];
        // SAFETY: live buffers of this process.
        unsafe { transfer(true, std::process::id(), &local, base, &remote) }.unwrap();
        assert_eq!(back, source);
    }

    #[test]
    fn vm_transfer_to_an_address_that_is_not_mapped_is_an_error() {
        let e = works(std::process::id(), 8).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::BadArgument, "{e}");
    }

    #[test]
    fn vm_transfer_to_no_process_is_a_lost_peer() {
        assert_eq!(works(u32::MAX >> 2, 8).unwrap_err().kind(), ErrorKind::PeerLost);
    }
}
