#![allow(unsafe_code)]
//! Addresses of this machine's network interfaces, with the lengths of their prefixes.

use std::ffi::CStr;
use std::io;

use super::Gid;

/// Name of the interface, address, and how many of its bits are the network's. IPv4 in the form that GIDs have it in.
pub(in super::super) type Address = (String, Gid, u8);

/// All of them.
pub(in super::super) fn addresses() -> io::Result<Vec<Address>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: the list is freed below, after its last use.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: an entry of the list; its name is a C string, and its addresses are null or of the family that they
        // name.
        unsafe {
            let entry = &*next;
            if let (Some((gid, offset)), Some((mask, _))) = (read(entry.ifa_addr), read(entry.ifa_netmask)) {
                let bits = u128::from_be_bytes(mask) << offset;
                let name = CStr::from_ptr(entry.ifa_name).to_string_lossy().into_owned();
                found.push((name, gid, offset + bits.leading_ones() as u8));
            }
            next = entry.ifa_next;
        }
    }
    // SAFETY: made above, freed once.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// An address as a GID, and where in it the address itself begins, in bits.
///
/// # Safety
/// Null, or an address that is as long as its family says.
unsafe fn read(address: *const libc::sockaddr) -> Option<(Gid, u8)> {
    if address.is_null() {
        return None;
    }
    // SAFETY: by the contract; the address may be less aligned than its type.
    unsafe {
        match i32::from((&raw const (*address).sa_family).read_unaligned()) {
            libc::AF_INET => {
                let ip = address.cast::<libc::sockaddr_in>().read_unaligned().sin_addr.s_addr;
                Some((std::net::Ipv4Addr::from(ip.to_ne_bytes()).to_ipv6_mapped().octets(), 96))
            }
            libc::AF_INET6 => Some((address.cast::<libc::sockaddr_in6>().read_unaligned().sin6_addr.s6_addr, 0)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_its_address_with_the_usual_prefix() {
        let all = addresses().unwrap();
        let mapped = std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
        // A namespace without a network that is up has none; then there is nothing to compare.
        for (name, _, bits) in all.iter().filter(|a| a.1 == mapped) {
            assert_eq!((name.as_str(), *bits), ("lo", 96 + 8));
        }
        assert!(all.iter().all(|a| a.2 <= 128), "{all:?}");
    }
}
