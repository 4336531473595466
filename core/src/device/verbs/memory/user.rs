#![allow(unsafe_code)]
//! Memory of the program that the HCA accesses in place (zcopy). It is registered when first needed, and stays
//! registered for later transfers ([`super::cache`]) as long as its pages do not change
//! ([`watch`](crate::device::watch)).
//!
//! `userfaultfd` reports memory that the program frees, unmaps, moves or discards, before the address can be used
//! again. Memory that it cannot watch (files, shared mappings on some kernels, all memory where `userfaultfd` is not
//! allowed) is registered for one operation at a time. An HCA with on-demand paging, where it is set
//! (`FARSIDE_VERBS_ON_DEMAND`), follows the page tables by itself: its registrations are cached too, and need neither
//! pinning nor watching.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use smallvec::SmallVec;

use super::cache::{Cache, Limits};
use super::group::{Group, groups};
use crate::device::Block;
use crate::device::verbs::limit::registration;
use crate::device::verbs::sys::queue::Piece;
use crate::device::verbs::sys::{Domain, Memory, Rights};
use crate::device::watch::Watch;
use crate::error::{Error, ErrorKind, Result};
use crate::stats::{Kind, Stats};

/// Maximum gap in bytes that is pinned to save a further registration: a registration costs about as much as pinning
/// sixteen pages.
const GAP: usize = 64 << 10;
/// Maximum length of a segment; the length field has 32 bits.
const MAX_PIECE_BYTES: usize = 1 << 30;

/// Registrations that an operation holds until it is complete.
pub(crate) type Leases = SmallVec<[Rc<Memory>; 1]>;

/// The local key of each block, if it is registered.
type Keys = SmallVec<[Option<u32>; 8]>;

/// Whether on-demand paging supports all operations of this device on memory of the program: sending and receiving
/// lists, writing from it, and reading into it.
pub(crate) fn on_demand(general: u64, reliable: u32) -> bool {
    use rdma_sys::ibv_odp_general_caps as g;
    use rdma_sys::ibv_odp_transport_cap_bits as t;
    let needed =
        (t::IBV_ODP_SUPPORT_SEND | t::IBV_ODP_SUPPORT_RECV | t::IBV_ODP_SUPPORT_WRITE | t::IBV_ODP_SUPPORT_READ).0;
    general & u64::from(g::IBV_ODP_SUPPORT.0) != 0 && reliable & needed == needed
}

/// Registered memory of the program.
pub(crate) struct UserMemory {
    cache: Cache<Memory>,
    domain: Arc<Domain>,
    on_demand: bool,
    /// Maximum length of a registration.
    longest: usize,
    /// Started with the first registration; `Err` if the machine does not support it.
    watch: Option<Result<Watch, ()>>,
    /// Whether a registration has failed at a limit.
    limited: bool,
}

impl UserMemory {
    pub(crate) fn new(domain: &Arc<Domain>, limits: Limits, on_demand: bool, longest: usize) -> Self {
        Self { cache: Cache::new(limits), domain: Arc::clone(domain), on_demand, longest, watch: None, limited: false }
    }

    /// Drops registrations of memory that the program has freed.
    fn settle(&mut self) {
        if let Some(Ok(watch)) = &self.watch {
            let cache = &mut self.cache;
            watch.settle(true, |start, end| _ = cache.forget(&Group { start, end, parts: vec![(start, end)] }));
        }
    }

    /// The key of each registered block, from `known` or from an earlier operation.
    fn keys(&mut self, blocks: &[Block], known: impl Fn(&Block) -> Option<u32>, leases: &mut Leases) -> Keys {
        self.settle();
        let mut key = |b: &Block| {
            known(b).or_else(|| {
                let memory = self.cache.find(b.base.addr(), b.len)?;
                Some(hold(leases, memory))
            })
        };
        blocks.iter().map(|b| if b.len == 0 { Some(0) } else { key(b) }).collect()
    }

    /// Returns segments for the blocks, if all of them are already registered.
    pub(crate) fn find(
        &mut self,
        blocks: &[Block],
        known: impl Fn(&Block) -> Option<u32>,
    ) -> Option<(Vec<Piece>, Leases)> {
        let mut leases = Leases::new();
        let keys: Option<SmallVec<[u32; 8]>> = self.keys(blocks, known, &mut leases).into_iter().collect();
        let keys = keys?;
        Some((cut(blocks.iter().zip(keys)), leases))
    }

    /// Returns segments for the blocks; registers blocks that are not registered.
    ///
    /// # Safety
    /// The blocks are valid as long as the leases are held, and no code assumes exclusive access to memory that the HCA
    /// writes.
    pub(crate) unsafe fn pieces(
        &mut self,
        blocks: &[Block],
        rights: Rights,
        known: impl Fn(&Block) -> Option<u32>,
        stats: &Stats,
    ) -> Result<(Vec<Piece>, Leases)> {
        let mut leases = Leases::new();
        let mut keys = self.keys(blocks, known, &mut leases);
        let missing: Vec<(usize, usize)> =
            blocks.iter().zip(&keys).filter(|(_, k)| k.is_none()).map(|(b, _)| (b.base.addr(), b.len)).collect();
        let mut made: Vec<(Group, Rc<Memory>)> = Vec::new();
        for group in groups(missing, GAP) {
            let len = group.len();
            // SAFETY: by the contract.
            unsafe { self.register(group, rights, stats, &mut made) }.map_err(|e| self.failed(len, e))?;
        }
        for (b, key) in blocks.iter().zip(&mut keys).filter(|(_, k)| k.is_none()) {
            let (at, end) = (b.base.addr(), b.base.addr() + b.len);
            let memory = made.iter().find(|(g, _)| g.start <= at && end <= g.end).map(|(_, m)| Rc::clone(m));
            *key = memory.map(|m| hold(&mut leases, m));
        }
        Ok((cut(blocks.iter().zip(keys).filter_map(|(b, k)| Some((b, k?)))), leases))
    }

    /// The error of a failed registration; the first one caused by a limit is logged.
    #[cold]
    fn failed(&mut self, len: usize, e: io::Error) -> Error {
        let error = registration("register a buffer", len, e);
        if error.kind() == ErrorKind::Limit && !std::mem::replace(&mut self.limited, true) {
            tracing::warn!("buffers of this kind are copied from now on, which is slower: {error}");
        }
        error
    }

    /// Registers a group, or each of its parts if the gaps cannot be registered.
    ///
    /// # Safety
    /// The parts are valid by the contract of [`pieces`](Self::pieces).
    unsafe fn register(
        &mut self,
        group: Group,
        rights: Rights,
        stats: &Stats,
        made: &mut Vec<(Group, Rc<Memory>)>,
    ) -> io::Result<()> {
        // SAFETY: by the contract; the kernel refuses unmapped memory.
        unsafe {
            if self.cache.admits(group.len()) {
                let wide = self.cache.widened(&group);
                for g in wide.iter().chain([&group]) {
                    if let Some(memory) = self.register_kept(g, stats) {
                        made.push((g.clone(), self.cache.insert(g.clone(), memory)));
                        return Ok(());
                    }
                }
            }
            match self.pin(&group, rights, stats) {
                Ok(memory) => made.push((group, Rc::new(memory))),
                Err(e) if group.parts.len() == 1 => return Err(e),
                Err(_) => {
                    for part in group.split() {
                        self.register(part, rights, stats, made)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// A registration that can be cached: the memory is watched, and writable, so that one registration serves all
    /// operations.
    ///
    /// # Safety
    /// The contract of [`register`](Self::register).
    unsafe fn register_kept(&mut self, group: &Group, stats: &Stats) -> Option<Memory> {
        if self.on_demand {
            // SAFETY: by the contract.
            return unsafe { self.pin(group, Rights::OnDemand, stats) }.ok();
        }
        let watch = self.watch.get_or_insert_with(|| {
            Watch::new()
                .map_err(|e| tracing::info!("the registration cache is off because memory cannot be watched: {e}"))
        });
        // The memory is watched before it is pinned, so that every later change is reported.
        watch.as_ref().ok()?.add(group.start, group.end).ok()?;
        // SAFETY: by the contract.
        unsafe { self.pin(group, Rights::Kept, stats) }.ok()
    }

    /// # Safety
    /// The contract of [`register`](Self::register).
    unsafe fn pin(&mut self, group: &Group, rights: Rights, stats: &Stats) -> io::Result<Memory> {
        if group.len() > self.longest {
            // As if there were no memory for it: it is copied.
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        loop {
            let base = std::ptr::with_exposed_provenance_mut(group.start);
            // SAFETY: by the contract.
            match unsafe { Memory::register(&self.domain, base, group.len(), rights) } {
                // Cached registrations may have used up the process's limit of locked memory.
                Err(e) if e.raw_os_error() == Some(libc::ENOMEM) && self.cache.evict() => {}
                made => {
                    if made.is_ok() {
                        stats.add(Kind::Register, group.len());
                    }
                    return made;
                }
            }
        }
    }
}

/// Keeps a registration for the operation; returns its local key.
fn hold(leases: &mut Leases, memory: Rc<Memory>) -> u32 {
    let key = memory.local_key();
    if !leases.iter().any(|m| Rc::ptr_eq(m, &memory)) {
        leases.push(memory);
    }
    key
}

/// Converts blocks and their keys to segments of at most [`MAX_PIECE_BYTES`] bytes.
fn cut<'a>(blocks: impl Iterator<Item = (&'a Block, u32)>) -> Vec<Piece> {
    let mut pieces = Vec::with_capacity(blocks.size_hint().0);
    for (block, key) in blocks {
        let mut at = 0;
        while at < block.len {
            let len = (block.len - at).min(MAX_PIECE_BYTES);
            pieces.push(Piece { address: (block.base.addr() + at) as u64, len: len as u32, key });
            at += len;
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_demand_paging_needs_everything_that_is_asked_of_memory() {
        assert!(on_demand(1, 0b1111) && on_demand(3, 0b11_1111));
        assert!(!on_demand(0, 0b1111), "the device has none");
        for without in 0..4 {
            assert!(!on_demand(1, 0b1111 & !(1 << without)));
        }
    }

    #[test]
    fn long_block_is_cut_at_the_longest_piece() {
        let block = Block { base: std::ptr::without_provenance_mut(4096), len: 2 * MAX_PIECE_BYTES + 1 };
        let pieces = cut([(&block, 5)].into_iter());
        let all: Vec<_> = pieces.iter().map(|p| (p.address, p.len, p.key)).collect();
        let long = MAX_PIECE_BYTES as u64;
        assert_eq!(all, [(4096, 1 << 30, 5), (4096 + long, 1 << 30, 5), (4096 + 2 * long, 1, 5)]);
    }
}
