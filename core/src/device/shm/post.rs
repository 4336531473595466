#![allow(unsafe_code)]
//! Work requests but for packets: what is mapped is done at once, the rest by `process_vm_*` or by requests.

use std::sync::atomic::{AtomicU64, Ordering};

use super::imports::{self, Import};
use super::request::Code;
use super::transfer::{Piece, Pieces, Transfer};
use super::{ShmDevice, layout, vm};
use crate::device::{Block, Device, Operation, Place, Posted, Range, Spread, WorkRequest};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::copy;
use crate::stats::Kind;

/// A transfer by `process_vm_*`, which its peer sees while it lasts.
struct VmTransfer<'a> {
    announced: &'a AtomicU64,
    pid: u32,
    /// Address of byte 0 of the region.
    base: u64,
}

impl Drop for VmTransfer<'_> {
    fn drop(&mut self) {
        // Release: pairs with the look in `imports::await_transfers`, after which the memory may be used again.
        self.announced.store(0, Ordering::Release);
    }
}

impl ShmDevice {
    pub(super) fn set_signal(&self, peer: u32, at: Place, value: u64) -> Result<()> {
        let imports = self.imports.borrow();
        let cell = imports::mapped_word(&imports, peer, at, "signal a peer")?;
        // Release: pairs with the Acquire load of the cell by its owner; what this rank wrote before is visible.
        // SAFETY: a mapped, aligned word, accessed as an atomic by every rank.
        unsafe { AtomicU64::from_ptr(cell) }.store(value, Ordering::Release);
        self.wake(peer);
        Ok(())
    }

    /// The pieces of a copy that are not mapped.
    fn unmapped(import: &Import, code: Code, blocks: &[Block], ranges: &[Range]) -> Pieces {
        let mut rest = Pieces::new();
        import.walk(blocks, ranges, |mapped, at, local, len| {
            if mapped.is_none() {
                rest.push(Piece {
                    code,
                    accumulate: 0,
                    key: import.request_key,
                    offset: at as u64,
                    len,
                    local,
                    old: std::ptr::null_mut(),
                    words: [0; 2],
                });
            }
        });
        rest
    }

    /// Copies what is mapped.
    ///
    /// # Safety
    /// As [`Device::post`]; the ranges were checked against the region.
    unsafe fn copy_mapped(&self, import: &Import, code: Code, blocks: &[Block], ranges: &[Range]) {
        import.walk(blocks, ranges, |mapped, _, local, len| {
            let Some(remote) = mapped else { return };
            // SAFETY: by the contract.
            unsafe {
                match code {
                    Code::Read => copy::load(remote, local, len),
                    _ => copy::store(local, remote, len),
                }
            }
            self.stats.add(Kind::Copy, len);
        });
    }

    /// Posts a write or a read of consecutive remote bytes.
    ///
    /// # Safety
    /// As [`Device::post`].
    pub(super) unsafe fn post_run(
        &self,
        request: &WorkRequest<'_>,
        code: Code,
        blocks: &[Block],
        at: Place,
    ) -> Result<Posted> {
        let ranges = [Range { offset: at.offset, len: blocks.iter().map(|b| b.len).sum() }];
        // SAFETY: the same contract.
        unsafe { self.post_copy(request, code, blocks, Spread { region: at.region, ranges: &ranges }) }
    }

    /// Posts a write or a read. What needs the target is sent first, so that it is served while this rank copies
    /// what is mapped; the notification goes last, the same way as what it announces.
    ///
    /// # Safety
    /// As [`Device::post`].
    pub(super) unsafe fn post_copy(
        &self,
        request: &WorkRequest<'_>,
        code: Code,
        blocks: &[Block],
        spread: Spread<'_>,
    ) -> Result<Posted> {
        let (kind, name) = match code {
            Code::Read => (Kind::Read, "read remote memory"),
            _ => (Kind::Write, "write remote memory"),
        };
        let ranges = spread.ranges;
        let len = blocks.iter().map(|b| b.len).sum();
        let imports = self.imports.borrow();
        let import = imports::spread(&imports, request.peer, spread, len, name)?;
        self.stats.add(kind, len);
        if let Some(transfer) = self.vm(import, len).filter(|_| import.is_unmapped()) {
            let remote: Vec<vm::RemoteBlock> =
                ranges.iter().map(|r| (transfer.base + r.offset as u64, r.len)).collect();
            // SAFETY: the same contract.
            unsafe { self.call_vm(import, transfer, code, blocks, &remote) }?;
            drop(imports);
            self.notify_now(request)?;
            return Ok(Posted::Done);
        }
        let mut pieces = Self::unmapped(import, code, blocks, ranges);
        // SAFETY: the same contract.
        unsafe { self.copy_vm(import, code, &mut pieces) }?;
        if pieces.is_empty() {
            // SAFETY: the same contract.
            unsafe { self.copy_mapped(import, code, blocks, ranges) };
            drop(imports);
            self.notify_now(request)?;
            return Ok(Posted::Done);
        }
        let signal = match request.notify {
            Some((at, value)) => {
                let cell = imports::region(&imports, request.peer, at, 8, "signal a peer")?;
                Some(Self::word_piece(cell, Code::Signal, at.offset, 8, [value, 0], std::ptr::null_mut()))
            }
            None => None,
        };
        self.begin(request, pieces);
        // SAFETY: the same contract.
        unsafe { self.copy_mapped(import, code, blocks, ranges) };
        for piece in signal.into_iter().flatten() {
            self.stats.add(Kind::Notify, 8);
            let mut transfers = self.transfers.borrow_mut();
            transfers.append(piece);
            transfers.issue_now(&self.shared, &self.stats, &|peer| self.wake_server(peer));
        }
        Ok(Posted::Pending)
    }

    /// Starts a transfer of `pieces`.
    pub(super) fn begin(&self, request: &WorkRequest<'_>, pieces: Pieces) {
        let mut transfers = self.transfers.borrow_mut();
        transfers.add(Transfer::new(request.id, request.peer, pieces));
        transfers.issue_now(&self.shared, &self.stats, &|peer| self.wake_server(peer));
    }

    /// Sets the cell of a request whose operation is complete.
    pub(super) fn notify_now(&self, request: &WorkRequest<'_>) -> Result<()> {
        if let Some((at, value)) = request.notify {
            self.stats.add(Kind::Notify, 8);
            self.set_signal(request.peer, at, value)?;
        }
        Ok(())
    }

    /// Announces a transfer by `process_vm_*`, if that may move `len` bytes now and pays.
    fn vm(&self, import: &Import, len: usize) -> Option<VmTransfer<'_>> {
        let (pid, base) = import.vm?;
        // Requests that are under way would be overtaken.
        if len == 0 || len < import.vm_from || self.transfers.borrow().any_to(import.peer) {
            return None;
        }
        // The owner clears the live key and then looks at the announcement: it waits for this transfer, or this rank sees
        // that the key has gone. Memory that was taken back is the business of requests, which will say so.
        let announced = self.own().word(layout::VM_TRANSFER);
        announced.store(layout::vm_transfer(import.peer as usize, import.request_key), Ordering::SeqCst);
        let transfer = VmTransfer { announced, pid, base };
        let live = self.shared.peers[import.peer as usize].word(layout::live_key(import.request_key));
        (live.load(Ordering::SeqCst) == import.request_key).then_some(transfer)
    }

    /// Moves bytes by `process_vm_*`: one system call for up to 1024 blocks on either side.
    ///
    /// # Safety
    /// As [`Device::post`]; the remote blocks lie in the region.
    unsafe fn call_vm(
        &self,
        import: &Import,
        transfer: VmTransfer<'_>,
        code: Code,
        local: &[Block],
        remote: &[vm::RemoteBlock],
    ) -> Result<()> {
        let direction = if code == Code::Read { vm::Direction::Read } else { vm::Direction::Write };
        // SAFETY: handed on; the owner of the remote region does not take it back before `transfer` is dropped.
        let calls = unsafe { vm::transfer(direction, transfer.pid, local, remote) };
        let calls = calls.map_err(|e| e.peer(import.peer).device("shm"))?;
        for _ in 0..calls {
            self.stats.add(Kind::SystemCall, 0);
        }
        self.stats.add(Kind::Copy, local.iter().map(|b| b.len).sum());
        Ok(())
    }

    /// Moves long pieces by `process_vm_*` where that is allowed and pays; leaves the others.
    ///
    /// # Safety
    /// As [`Device::post`].
    unsafe fn copy_vm(&self, import: &Import, code: Code, pieces: &mut Pieces) -> Result<()> {
        let Some(transfer) = self.vm(import, pieces.iter().map(|p| p.len).sum()) else { return Ok(()) };
        let base = transfer.base;
        // A piece ends where a block of either side does: on the side where the next one goes on, they are one block.
        let (mut local, mut remote) = (Vec::<Block>::new(), Vec::<vm::RemoteBlock>::new());
        for p in pieces.iter() {
            match local.last_mut() {
                Some(b) if b.base.wrapping_add(b.len) == p.local => b.len += p.len,
                _ => local.push(Block { base: p.local, len: p.len }),
            }
            match remote.last_mut() {
                Some((at, len)) if *at + *len as u64 == base + p.offset => *len += p.len,
                _ => remote.push((base + p.offset, p.len)),
            }
        }
        // SAFETY: the same contract.
        unsafe { self.call_vm(import, transfer, code, &local, &remote) }?;
        pieces.clear();
        Ok(())
    }

    pub(super) fn word_piece(
        import: &Import,
        code: Code,
        offset: usize,
        len: usize,
        words: [u64; 2],
        old: *mut u8,
    ) -> Pieces {
        smallvec::smallvec![Piece {
            code,
            accumulate: 0,
            key: import.request_key,
            offset: offset as u64,
            len,
            local: std::ptr::null_mut(),
            old,
            words,
        }]
    }

    /// # Safety
    /// As [`Device::post`].
    pub(super) unsafe fn post_pieces(&self, request: &WorkRequest<'_>) -> Result<Pieces> {
        let imports = self.imports.borrow();
        // SAFETY: pointers by the contract of `post`, remote words checked by `imports`.
        unsafe {
            match request.operation {
                Operation::FetchAdd { at, add, old } => {
                    self.stats.add(Kind::FetchAdd, 8);
                    let import = imports::region(&imports, request.peer, at, 8, "fetch and add")?;
                    match import.word(at.offset, "fetch and add")? {
                        Some(word) => {
                            let former = AtomicU64::from_ptr(word).fetch_add(add, Ordering::SeqCst);
                            if !old.is_null() {
                                old.write_unaligned(former);
                            }
                        }
                        None => {
                            return Ok(Self::word_piece(import, Code::FetchAdd, at.offset, 8, [add, 0], old.cast()));
                        }
                    }
                    Ok(Pieces::new())
                }
                Operation::CompareSwap { at, len, expected, desired, old } => {
                    self.stats.add(Kind::CompareSwap, len);
                    let import = imports::region(&imports, request.peer, at, len, "compare and swap")?;
                    match import.integer(at.offset, len, "compare and swap")? {
                        Some(p) => {
                            let former = copy::compare_swap(p, len, expected, desired).to_le_bytes();
                            copy::load(former.as_ptr(), old, len);
                        }
                        None => {
                            let words = [expected, desired];
                            return Ok(Self::word_piece(import, Code::CompareSwap, at.offset, len, words, old));
                        }
                    }
                    Ok(Pieces::new())
                }
                Operation::Accumulate { at, code, operand, old } => {
                    self.stats.add(Kind::Accumulate, operand.len);
                    let import = imports::region(&imports, request.peer, at, operand.len, "accumulate")?;
                    self.accumulate(import, at.offset, code, operand, old)
                }
                Operation::Signal { at, value } => {
                    self.stats.add(Kind::Signal, 8);
                    drop(imports);
                    self.set_signal(request.peer, at, value)?;
                    Ok(Pieces::new())
                }
                // Not operations of this function.
                Operation::SendShort(_)
                | Operation::Send { .. }
                | Operation::Scatter { .. }
                | Operation::Gather { .. }
                | Operation::Write { .. }
                | Operation::Read { .. }
                | Operation::WriteBlocks { .. }
                | Operation::ReadBlocks { .. } => Ok(Pieces::new()),
            }
        }
    }

    /// # Safety
    /// As [`Device::post`].
    unsafe fn accumulate(
        &self,
        import: &Import,
        start: usize,
        code: u32,
        operand: Block,
        old: *mut u8,
    ) -> Result<Pieces> {
        const OP: &str = "accumulate";
        let mut rest = Pieces::new();
        let mut done = 0;
        while done < operand.len {
            let (mapped, end) = import.extent(start + done);
            let len = (operand.len - done).min(end - start - done);
            let from = operand.base.wrapping_add(done);
            let old = if old.is_null() { old } else { old.wrapping_add(done) };
            if let Some(remote) = mapped {
                let f = import.accumulate.ok_or_else(|| Error::new(ErrorKind::Unsupported, OP).peer(import.peer))?;
                // SAFETY: a checked range of the region; local pointers by the contract.
                if !unsafe { f(code, remote, from, old, len) } {
                    return Err(Error::new(ErrorKind::Misaligned, OP)
                        .peer(import.peer)
                        .cause(format!("offset {}", start + done)));
                }
            } else {
                let fetch = if old.is_null() { Code::Accumulate } else { Code::FetchAccumulate };
                rest.push(Piece {
                    code: fetch,
                    accumulate: code,
                    key: import.request_key,
                    offset: (start + done) as u64,
                    len,
                    local: from,
                    old,
                    words: [0; 2],
                });
            }
            done += len;
        }
        Ok(rest)
    }
}
