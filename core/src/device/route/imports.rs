#![allow(unsafe_code)]
//! Registration of memory with several devices, and imports of peers' regions by the devices that reach the peers.

use super::regions::{Handles, Imported, NO_HANDLE, read_key, write_key};
use super::table::{Connection, MAX_DEVICES, SIZES};
use super::{IMPORT, RouteDevice};
use crate::device::{MAX_KEY, Mapped, Region, Registration, RemoteRegion};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::keys::AccumulateFn;

impl RouteDevice {
    /// Registers memory with the devices that its users need.
    ///
    /// # Safety
    /// The contract of [`Device::register`].
    pub(super) unsafe fn register_with_all(&self, region: Region) -> Result<Registration> {
        let (mut keys, mut handles) = (Vec::new(), [NO_HANDLE; MAX_DEVICES]);
        let (wanted, mut base) = (self.devices_of(&region), region.base);
        for (at, device) in self.devices.iter().enumerate().filter(|(at, _)| wanted >> at & 1 == 1) {
            // SAFETY: the same contract, or memory that the first of the devices has allocated and releases last.
            match unsafe { device.register(Region { base, ..region }) } {
                Ok(made) => {
                    base = made.base;
                    handles[at] = made.handle;
                    keys.push((self.numbers[at], made.key));
                }
                // Ranks of this node then use the inter-node device.
                Err(e) if at == 0 && self.has_intra && wanted != 1 => {
                    tracing::info!("memory is not mapped by ranks of this node: {e}")
                }
                Err(e) => {
                    // SAFETY: no peer has a key yet.
                    unsafe { self.release_all(&handles) }?;
                    return Err(e);
                }
            }
        }
        let key = write_key(&keys);
        debug_assert!(key.len() <= MAX_KEY);
        let mut owned = self.owned.borrow_mut();
        let handle = owned.next();
        owned.add(handles);
        Ok(Registration { base, len: region.len, key, handle })
    }

    /// Imports a region with the devices that this rank uses to `peer`.
    pub(super) fn import_by_all(
        &self,
        peer: u32,
        key: &[u8],
        accumulate: Option<AccumulateFn>,
    ) -> Result<RemoteRegion> {
        let connection = self.connection(peer, IMPORT)?;
        let keys = read_key(key).ok_or_else(|| malformed(peer))?;
        let (imported, remote) = match (keys[0].is_some(), connection.on_node) {
            (true, true) => self.import_on_node(peer, &keys, accumulate)?,
            (true, false) if keys.iter().flatten().count() == 1 => {
                return Err(malformed(peer).cause("the remote key is for shared memory of another node"));
            }
            (false, true) => {
                let by_domain = Connection { by_size: [self.table.domain; SIZES], ..*connection };
                self.import_between(peer, &by_domain, &keys, accumulate)?
            }
            (_, false) => self.import_between(peer, connection, &keys, accumulate)?,
        };
        let mut imported = Imported { is_mixed: connection.is_mixed, has_spare: connection.common != 0, ..imported };
        if let Some(pair) = self.pairs.get(peer) {
            self.move_import(&mut imported, pair.borrow().left());
        }
        let mut imports = self.imports.borrow_mut();
        let handle = imports.next();
        imports.add(imported);
        Ok(RemoteRegion { handle, ..remote })
    }

    /// The devices with which a region is registered, as bits.
    fn devices_of(&self, region: &Region) -> u8 {
        let used = self.table.used();
        match region.one_node && self.has_intra {
            true => 1,
            // The region is exported to one peer, on another node.
            false if region.brief && self.has_intra && self.table.domain != 0 => used & !1,
            false if region.brief => used,
            false if self.has_intra && !self.has_neighbours && self.table.domain != 0 => used & !1,
            false => used,
        }
    }

    /// Imports a region with one device.
    fn import_by(
        &self,
        device: u8,
        peer: u32,
        keys: &[Option<&[u8]>; MAX_DEVICES],
        accumulate: Option<AccumulateFn>,
    ) -> Result<RemoteRegion> {
        let key = keys[usize::from(self.numbers[usize::from(device)])].ok_or_else(|| malformed(peer))?;
        self.device(device).import(peer, key, accumulate)
    }

    /// Imports a region of a rank of this node, which has registered it with the intra-node device.
    fn import_on_node(
        &self,
        peer: u32,
        keys: &[Option<&[u8]>; MAX_DEVICES],
        accumulate: Option<AccumulateFn>,
    ) -> Result<(Imported, RemoteRegion)> {
        let near = self.import_by(0, peer, keys, accumulate)?;
        let alone = Imported { is_mapped: is_whole(&near), ..Imported::alone(peer, 0, near.handle) };
        if self.capabilities.coherent || keys.iter().flatten().count() == 1 {
            return Ok((alone, near));
        }
        // SAFETY: no mapping has been passed on.
        let forget = |device: u8, handle: u64| unsafe { self.device(device).forget(handle) };
        let domain = self.table.domain;
        let other = self.import_by(domain, peer, keys, accumulate).inspect_err(|_| forget(0, near.handle))?;
        if near.len != other.len {
            forget(0, near.handle);
            forget(domain, other.handle);
            return Err(malformed(peer));
        }
        if !is_whole(&near) {
            forget(0, near.handle);
            return Ok((Imported::alone(peer, domain, other.handle), other));
        }
        let signal = if accumulate.is_some() { domain } else { 0 };
        let mut imported = Imported { atomic: domain, signal, ..alone };
        imported.handles[usize::from(domain)] = other.handle;
        let mapped = near.mapped.map(|mapped| Mapped { atomics: false, ..mapped });
        Ok((imported, RemoteRegion { mapped, lists: near.lists, ..other }))
    }

    /// Imports a region of another node, or one that is not registered with the intra-node device.
    fn import_between(
        &self,
        peer: u32,
        connection: &Connection,
        keys: &[Option<&[u8]>; MAX_DEVICES],
        accumulate: Option<AccumulateFn>,
    ) -> Result<(Imported, RemoteRegion)> {
        let domain = self.table.domain;
        let mut remote = self.import_by(domain, peer, keys, accumulate)?;
        let mut imported = Imported::alone(peer, domain, remote.handle);
        let wanted = connection.by_size.iter().fold(connection.common, |bits, device| bits | 1 << device);
        for device in (0..self.devices.len() as u8).filter(|device| wanted >> device & 1 == 1 && *device != domain) {
            if keys[usize::from(self.numbers[usize::from(device)])].is_none() {
                continue;
            }
            let other = self.import_by(device, peer, keys, accumulate).inspect_err(|_| self.forget_all(&imported))?;
            imported.handles[usize::from(device)] = other.handle;
            if other.len != remote.len {
                self.forget_all(&imported);
                return Err(malformed(peer));
            }
            // The import has only the properties that all devices of the region have.
            remote.lists = remote.lists.zip(other.lists).map(|(one, other)| one.max(other));
        }
        let is_known = |device: u8| imported.handles[usize::from(device)] != NO_HANDLE;
        let by_size = connection.by_size.map(|device| if is_known(device) { device } else { domain });
        let rails =
            (0..MAX_DEVICES as u8).filter(|device| is_known(*device)).fold(0, |bits, device| bits | 1 << device);
        let rails = Some(rails & connection.rails).filter(|rails| rails.count_ones() > 1);
        (imported.by_size, imported.rails) = (by_size, rails.unwrap_or(0));
        imported.has_accumulates = accumulate.is_some();
        if accumulate.is_none() {
            imported.signal = imported.by_size[0];
        }
        Ok((imported, remote))
    }

    /// Replaces the devices `left` of an import by the first of the others with which the region is registered.
    /// Atomics, and signals to words that atomics may change too, stay with their device unless the atomics of the
    /// other device are coherent with its own.
    pub(super) fn move_import(&self, imported: &mut Imported, left: u8) {
        let is_left = |device: u8| left >> device & 1 == 1;
        let is_usable = |device: &u8| imported.handles[usize::from(*device)] != NO_HANDLE && !is_left(*device);
        let Some(next) = (0..self.devices.len() as u8).find(is_usable).filter(|_| left != 0) else { return };
        let is_coherent = self.capabilities.coherent && self.device(next).capabilities().coherent;
        for device in imported.by_size.iter_mut().filter(|device| is_left(**device)) {
            *device = next;
        }
        if is_left(imported.signal) && (is_coherent || !imported.has_accumulates) {
            imported.signal = next;
        }
        if is_left(imported.atomic) && is_coherent {
            imported.atomic = next;
        }
        let rails = imported.rails & !left;
        imported.rails = if rails.count_ones() > 1 { rails } else { 0 };
    }

    /// Replaces the devices `left` in all imports of regions of `peer`.
    pub(super) fn move_imports(&self, peer: u32, left: u8) {
        let mut imports = self.imports.borrow_mut();
        let of_peer: Vec<u64> = imports.iter().filter(|(_, i)| i.peer == peer).map(|(handle, _)| handle).collect();
        for handle in of_peer {
            if let Some(imported) = imports.get_mut(handle) {
                self.move_import(imported, left);
            }
        }
    }

    /// Releases an import at all devices.
    pub(super) fn forget_all(&self, imported: &Imported) {
        for (device, handle) in self.devices.iter().zip(imported.handles).filter(|(_, handle)| *handle != NO_HANDLE) {
            // SAFETY: the contract of `forget`, or no mapping has been passed on.
            unsafe { device.forget(handle) };
        }
    }

    /// Ends registrations; that of the device that has allocated the memory comes last.
    ///
    /// # Safety
    /// The contract of [`Device::release`].
    pub(super) unsafe fn release_all(&self, handles: &Handles) -> Result<()> {
        let mut result = Ok(());
        for (device, handle) in self.devices.iter().zip(*handles).rev().filter(|(_, handle)| *handle != NO_HANDLE) {
            // SAFETY: the same contract.
            let released = unsafe { device.release(handle) };
            result = result.and(released);
        }
        result
    }
}

/// Whether all bytes of a region are mapped.
fn is_whole(remote: &RemoteRegion) -> bool {
    remote.mapped.is_some_and(|mapped| (mapped.lo, mapped.hi) == (0, remote.len))
}

#[cold]
fn malformed(peer: u32) -> Error {
    Error::new(ErrorKind::Protocol, IMPORT).peer(peer).device("route").cause("malformed key")
}
