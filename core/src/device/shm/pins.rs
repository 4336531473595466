#![allow(unsafe_code)]
//! Memory that cannot be exchanged for other pages although it is private and anonymous: devices or the kernel hold its
//! pages, or it has properties that other pages would not have.

use std::fs;
use std::ptr::with_exposed_provenance;

use super::maps::areas;

/// Mappings that reveal drivers which hold pages of a process without an entry in its status.
const DRIVERS: [&str; 5] = ["/dev/infiniband/", "/dev/nvidia", "/dev/kfd", "/dev/vfio", "anon_inode:[io_uring]"];

/// Whether pages of this process may be pinned, so that a device or the kernel accesses them whatever is mapped at
/// their addresses later; or may be locked, which pages that replace them would not be. The kernel does not report
/// which pages these are.
pub(super) fn has_pins() -> bool {
    if ["VmPin:", "VmLck:"].iter().any(|name| is_set(&status(), name)) {
        return true;
    }
    let mut found = false;
    let read = areas(0, usize::MAX, |area| {
        found |= area.name.is_some_and(|name| DRIVERS.iter().any(|driver| name.starts_with(driver)));
        Ok(())
    });
    found || read.is_err()
}

/// Whether this process has locked memory.
pub(super) fn is_locked() -> bool {
    is_set(&status(), "VmLck:")
}

fn status() -> String {
    fs::read_to_string("/proc/self/status").unwrap_or_default()
}

/// Whether a field of `/proc/self/status` is a number other than zero.
fn is_set(status: &str, name: &str) -> bool {
    let value = status.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.split_ascii_whitespace().next()).is_some_and(|value| value != "0")
}

/// Whether a page has its own NUMA policy (`mbind`).
pub(super) fn has_policy(page: usize) -> bool {
    /// `MPOL_F_ADDR` of `linux/mempolicy.h`: the policy of an address.
    const ADDRESS: libc::c_ulong = 2;
    /// `MPOL_DEFAULT`.
    const DEFAULT: libc::c_int = 0;
    let mut policy = DEFAULT;
    let (no_nodes, none) = (std::ptr::null_mut::<libc::c_ulong>(), 0 as libc::c_ulong);
    let at = with_exposed_provenance::<u8>(page);
    // SAFETY: the kernel writes the policy, and does not access other memory of this process.
    let rc = unsafe { libc::syscall(libc::SYS_get_mempolicy, &raw mut policy, no_nodes, none, at, ADDRESS) };
    rc == 0 && policy != DEFAULT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_the_status_are_numbers() {
        let status = "VmLck:\t       0 kB\nVmPin:\t      68 kB\nVmHWM:\t 10 kB\n";
        assert!(is_set(status, "VmPin:") && !is_set(status, "VmLck:") && !is_set(status, "VmRSS:"));
    }
}
