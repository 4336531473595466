#![allow(unsafe_code)]
//! Memory of the program that the HCA uses in place (zcopy): registered when it is first needed, and kept so for the next
//! time ([`super::cache`]) as long as its pages stay ([`super::watch`]).
//!
//! `userfaultfd` reports what the program frees, unmaps, moves or gives back before the address can be used again. Memory
//! that it cannot watch (files, shared mappings on some kernels, all where it is not allowed) is registered for one
//! operation at a time. An HCA with on-demand paging follows the page tables by itself: what it was given is kept too, and
//! needs neither pinning nor watching.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use smallvec::SmallVec;

use super::cache::{Cache, Limits};
use super::group::{Group, groups};
use super::watch::Watch;
use crate::device::Block;
use crate::device::verbs::limit::registration;
use crate::device::verbs::sys::queue::Piece;
use crate::device::verbs::sys::{Domain, Memory, Rights};
use crate::error::{Error, ErrorKind, Result};
use crate::stats::{Kind, Stats};

/// Bytes of a gap that are pinned rather than registering once more: a registration costs about as much as pinning
/// sixteen pages.
const GAP: usize = 64 << 10;
/// Longest piece: its length has 32 bits.
const LONGEST: usize = 1 << 30;

/// What an operation holds until it is complete, so that its memory stays registered.
pub(crate) type Leases = SmallVec<[Rc<Memory>; 1]>;

/// Of each block its key, if it has one.
type Keys = SmallVec<[Option<u32>; 8]>;

/// Whether on-demand paging does all that this device asks of memory of the program: it sends and receives lists of it,
/// writes from it, and reads into it.
pub(crate) fn on_demand(general: u64, reliable: u32) -> bool {
    use rdma_sys::ibv_odp_general_caps as g;
    use rdma_sys::ibv_odp_transport_cap_bits as t;
    let needed =
        (t::IBV_ODP_SUPPORT_SEND | t::IBV_ODP_SUPPORT_RECV | t::IBV_ODP_SUPPORT_WRITE | t::IBV_ODP_SUPPORT_READ).0;
    general & u64::from(g::IBV_ODP_SUPPORT.0) != 0 && reliable & needed == needed
}

/// Registered memory of the program.
#[derive(Debug)]
pub(crate) struct UserMemory {
    cache: Cache<Memory>,
    domain: Arc<Domain>,
    on_demand: bool,
    /// Started with the first registration; `Err` where there is none.
    watch: Option<Result<Watch, ()>>,
    /// A registration has met a limit.
    limited: bool,
}

impl UserMemory {
    pub(crate) fn new(domain: &Arc<Domain>, limits: Limits, on_demand: bool) -> Self {
        Self { cache: Cache::new(limits), domain: Arc::clone(domain), on_demand, watch: None, limited: false }
    }

    /// Forgets registrations of memory that the program gave up.
    fn settle(&mut self) {
        if let Some(Ok(watch)) = &self.watch {
            let cache = &mut self.cache;
            watch.settle(|start, end| _ = cache.forget(&Group { start, end, parts: vec![(start, end)] }));
        }
    }

    /// The key of each block that is registered, by `known` or from an earlier operation.
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

    /// Where the HCA finds the blocks, if all of them are registered already.
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

    /// Where the HCA finds the blocks; registers those that are not.
    ///
    /// # Safety
    /// The blocks are valid as long as the leases are held, and nothing assumes exclusive access to what the HCA writes.
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

    /// The error of a registration that failed; said in the log for the first one that met a limit.
    #[cold]
    fn failed(&mut self, len: usize, e: io::Error) -> Error {
        let error = registration("register a buffer", len, e);
        if error.kind() == ErrorKind::Limit && !std::mem::replace(&mut self.limited, true) {
            tracing::warn!("{error}: such buffers are copied from now on, which is slower");
        }
        error
    }

    /// Registers a group, or its parts where gaps cannot be.
    ///
    /// # Safety
    /// The parts hold memory that is valid as [`pieces`](Self::pieces) says.
    unsafe fn register(
        &mut self,
        group: Group,
        rights: Rights,
        stats: &Stats,
        made: &mut Vec<(Group, Rc<Memory>)>,
    ) -> io::Result<()> {
        // SAFETY: by the contract: the kernel refuses what is not mapped.
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

    /// A registration that may be kept: of memory that is watched, and that may be written, so that one serves all ways.
    ///
    /// # Safety
    /// As [`register`](Self::register).
    unsafe fn register_kept(&mut self, group: &Group, stats: &Stats) -> Option<Memory> {
        if self.on_demand {
            // SAFETY: by the contract.
            return unsafe { self.pin(group, Rights::OnDemand, stats) }.ok();
        }
        let watch = self.watch.get_or_insert_with(|| {
            Watch::new().map_err(|e| tracing::info!("registrations are not kept, memory cannot be watched: {e}"))
        });
        // Before it is pinned: changes after that are reported.
        watch.as_ref().ok()?.add(group.start, group.end).ok()?;
        // SAFETY: by the contract.
        unsafe { self.pin(group, Rights::Kept, stats) }.ok()
    }

    /// # Safety
    /// As [`register`](Self::register).
    unsafe fn pin(&mut self, group: &Group, rights: Rights, stats: &Stats) -> io::Result<Memory> {
        loop {
            let base = std::ptr::with_exposed_provenance_mut(group.start);
            // SAFETY: by the contract.
            match unsafe { Memory::register(&self.domain, base, group.len(), rights) } {
                // The limit of locked memory may be used up by what is kept.
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

/// Keeps a registration for the operation; its key.
fn hold(leases: &mut Leases, memory: Rc<Memory>) -> u32 {
    let key = memory.local_key();
    if !leases.iter().any(|m| Rc::ptr_eq(m, &memory)) {
        leases.push(memory);
    }
    key
}

/// Blocks and their keys as pieces of at most [`LONGEST`] bytes.
fn cut<'a>(blocks: impl Iterator<Item = (&'a Block, u32)>) -> Vec<Piece> {
    let mut pieces = Vec::with_capacity(blocks.size_hint().0);
    for (block, key) in blocks {
        let mut at = 0;
        while at < block.len {
            let len = (block.len - at).min(LONGEST);
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
        let block = Block { base: std::ptr::without_provenance_mut(4096), len: 2 * LONGEST + 1 };
        let pieces = cut([(&block, 5)].into_iter());
        let all: Vec<_> = pieces.iter().map(|p| (p.address, p.len, p.key)).collect();
        let long = LONGEST as u64;
        assert_eq!(all, [(4096, 1 << 30, 5), (4096 + long, 1 << 30, 5), (4096 + 2 * long, 1, 5)]);
    }
}
