#![allow(unsafe_code)]
//! A region at every rank, made according to the setup and imported by all, with checked operations on it.

use crate::regions::{exchange_regions, forget, release};
use farside_core::device::{Block, Operation, Place, Region, Registration, RemoteRegion};
use farside_core::job::Track;
use farside_core::memory::copy;
use farside_core::memory::keys::AccumulateFn;
use farside_core::signal::SignalArray;
use farside_core::{Job, Result, Team};

use crate::Setup;

const PAGE: usize = 4096;
/// User memory starts this many bytes before a page boundary: its first bytes cannot be moved onto shared pages.
pub(crate) const RAGGED: usize = 40;

pub(crate) struct World<'a> {
    pub job: &'a Job,
    pub team: Team,
    pub signals: SignalArray,
    pub own: Registration,
    pub remotes: Vec<RemoteRegion>,
    released: bool,
    /// Keeps user memory.
    _buffer: Vec<u8>,
}

impl<'a> World<'a> {
    /// A zeroed region of `len` bytes at every rank.
    pub(crate) fn new(job: &'a Job, setup: &Setup, len: usize) -> Result<Self> {
        Self::with(job, setup, len, false, None)
    }

    pub(crate) fn with(
        job: &'a Job,
        setup: &Setup,
        len: usize,
        passive: bool,
        accumulate: Option<AccumulateFn>,
    ) -> Result<Self> {
        let team = job.world()?;
        let signals = SignalArray::new(&team, 1)?;
        let mut buffer = Vec::new();
        let own = if setup.user_memory {
            buffer = vec![0u8; len + 3 * PAGE];
            let base = buffer.as_mut_ptr();
            let base = base.wrapping_add(base.addr().next_multiple_of(PAGE) - base.addr() + PAGE - RAGGED);
            // SAFETY: the buffer lives in the world and is reached through `copy` only until it is released.
            unsafe {
                let one_node = team.is_on_one_node();
                let memory = Region { exclusive: true, ..Region::of(base, len) };
                job.device().register(Region { accumulate, passive, one_node, ..memory })
            }?
        } else {
            let one_node = team.is_on_one_node();
            job.device().allocate(Region { accumulate, passive, one_node, ..Region::allocated(len) })?
        };
        let (own, remotes) = exchange_regions(&team, Ok(own), accumulate)?;
        Ok(Self { job, team, signals, own, remotes, released: false, _buffer: buffer })
    }

    pub(crate) fn me(&self) -> usize {
        self.team.rank()
    }

    pub(crate) fn place(&self, of: usize, offset: usize) -> Place {
        Place { region: self.remotes[of].handle, offset }
    }

    pub(crate) fn complete(&self, peer: usize, operation: Operation<'_>) -> Result<()> {
        // SAFETY: the callers' buffers outlive the call.
        unsafe { self.job.complete("test", peer as u32, operation) }
    }

    pub(crate) fn write(&self, to: usize, offset: usize, bytes: &[u8]) -> Result<()> {
        self.gather(to, offset, &[bytes])
    }

    pub(crate) fn gather(&self, to: usize, offset: usize, parts: &[&[u8]]) -> Result<()> {
        let from: Vec<Block> = parts.iter().map(|p| Block::of(p.as_ptr(), p.len())).collect();
        self.complete(to, Operation::write(&from, self.place(to, offset)))
    }

    /// Writes, and sets cell `cell` of this rank's line at `to` in the same message.
    pub(crate) fn write_notify(&self, to: usize, offset: usize, bytes: &[u8], cell: usize, value: u64) -> Result<()> {
        let from = [Block::of(bytes.as_ptr(), bytes.len())];
        let operation = Operation::write(&from, self.place(to, offset));
        let track = Track::new();
        let notify = Some((self.signals.cell_at(to, cell, value), value));
        // SAFETY: complete before this returns, or the job ends with the test.
        unsafe { self.job.post(to as u32, operation, notify, &[&track]) }?;
        self.job.wait("write", || Ok((track.open() == 0).then_some(())))?;
        track.check()
    }

    pub(crate) fn read(&self, from: usize, offset: usize, len: usize) -> Result<Vec<u8>> {
        Ok(self.scatter(from, offset, &[len])?.remove(0))
    }

    pub(crate) fn scatter(&self, from: usize, offset: usize, lens: &[usize]) -> Result<Vec<Vec<u8>>> {
        let mut parts: Vec<Vec<u8>> = lens.iter().map(|l| vec![0xEE; *l]).collect();
        let into: Vec<Block> = parts.iter_mut().map(|p| Block { base: p.as_mut_ptr(), len: p.len() }).collect();
        self.complete(from, Operation::read(&into, self.place(from, offset)))?;
        Ok(parts)
    }

    pub(crate) fn fetch_add(&self, of: usize, offset: usize, add: u64) -> Result<u64> {
        let mut old = u64::MAX;
        self.complete(of, Operation::fetch_add(self.place(of, offset), add, &raw mut old))?;
        Ok(old)
    }

    pub(crate) fn compare_swap(&self, of: usize, offset: usize, expected: u64, desired: u64) -> Result<u64> {
        let mut old = u64::MAX;
        let at = self.place(of, offset);
        self.complete(of, Operation::compare_swap(at, 8, [expected, desired], (&raw mut old).cast()))?;
        Ok(old)
    }

    /// This rank's own bytes, as its processor sees them.
    pub(crate) fn own_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0u8; self.own.len];
        // SAFETY: the region is alive and `bytes` has its length.
        unsafe { copy::load(self.own.base, bytes.as_mut_ptr(), bytes.len()) };
        bytes
    }

    pub(crate) fn set_own(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.own.len);
        // SAFETY: in range as just checked.
        unsafe { copy::store(bytes.as_ptr(), self.own.base.wrapping_add(offset), bytes.len()) };
    }

    pub(crate) fn own_word(&self, offset: usize) -> &std::sync::atomic::AtomicU64 {
        assert!(offset + 8 <= self.own.len && (self.own.base.addr() + offset).is_multiple_of(8));
        // SAFETY: in range, aligned, alive as long as the world.
        unsafe { std::sync::atomic::AtomicU64::from_ptr(self.own.base.wrapping_add(offset).cast()) }
    }

    pub(crate) fn barrier(&self) -> Result<()> {
        self.team.barrier()
    }

    /// Releases this rank's own region.
    pub(crate) fn release(&mut self) -> Result<()> {
        self.released = true;
        release(self.job, self.own.handle)
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        for r in &self.remotes {
            forget(self.job, r.handle);
        }
        if !self.released {
            self.release().unwrap();
        }
    }
}

/// `len` bytes that differ by position and by `seed`.
pub(crate) fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31 + i / 251) ^ (seed * 17 + 1)) as u8).collect()
}
