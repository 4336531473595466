#![allow(unsafe_code)]
//! Work requests other than packets: mapped memory is accessed directly, other memory by `process_vm_*` or by requests.

use std::sync::atomic::{AtomicU64, Ordering};

use super::imports::{self, Import};
use super::{ShmDevice, layout, vm};
use crate::device::target::{Code, Piece, Pieces};
use crate::device::{Block, Change, Operation, Place, Posted, Range, Transfer, Update, WorkRequest, imports as checks};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::copy;
use crate::settings::UserMemory;
use crate::stats::Kind;

/// Minimum number of unmapped bytes for which one `process_vm_*` call is cheaper than requests to a target that is
/// inside the runtime.
const VM_FROM: usize = 16 << 10;

/// The word in which a transfer without the owner's help is announced to the owner while it is in progress.
struct Announced<'a>(&'a AtomicU64);

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        // Release: pairs with the load in `imports::await_transfers`, after which the memory may be used again.
        self.0.store(0, Ordering::Release);
    }
}

impl ShmDevice {
    /// Posts any operation except a packet. The peer of `request` is a number on this node, in this function and in
    /// those that it calls.
    ///
    /// # Safety
    /// All local pointers stay valid (and exclusive where written) until the request has completed.
    pub(super) unsafe fn post_transfer(&self, request: &WorkRequest<'_>) -> Result<Posted> {
        if self.service.is_full() {
            return Ok(Posted::Busy);
        }
        let mut unmapped = Pieces::new();
        // SAFETY: pointers are valid by the contract of `post`; `imports` has checked the remote words.
        unsafe {
            match request.operation {
                Operation::Transfer(transfer) => return self.post_copy(request, &transfer),
                Operation::Update(update) => {
                    self.stats.add(update.kind(), update.len);
                    let imports = self.imports.borrow();
                    let import = imports::region(&imports, request.peer, update.at, update.len, update.name())?;
                    unmapped = make(import, &update)?;
                }
                Operation::Signal { at, value } => {
                    self.stats.add(Kind::Signal, 8);
                    self.set_signal(request.peer, at, value)?;
                }
                // The caller has handled packets.
                Operation::Packet(_) | Operation::List { .. } | Operation::Barrier(_) => {
                    return Err(request.operation.unsupported(request.peer, "shm"));
                }
            }
        }
        self.start(request, unmapped, || ())
    }

    /// Sets a cell of the rank with number `to` on this node, and wakes that rank.
    fn set_signal(&self, to: u32, at: Place, value: u64) -> Result<()> {
        const OP: &str = "signal a peer";
        let imports = self.imports.borrow();
        let cell = imports::region(&imports, to, at, 8, OP)?.word(at.offset, OP)?.ok_or_else(|| {
            let error = Error::new(ErrorKind::Unsupported, OP).peer(to);
            error.cause("a signal cell must be in memory allocated by the runtime")
        })?;
        // Release: pairs with the owner's Acquire load of the cell; earlier writes of this rank are visible.
        // SAFETY: a mapped, aligned word, accessed as an atomic by every rank.
        unsafe { AtomicU64::from_ptr(cell) }.store(value, Ordering::Release);
        self.wake_number(to as usize);
        Ok(())
    }

    /// Posts a write or a read: by one `process_vm_*` call if no part of the region is mapped and the call pays,
    /// otherwise by a copy of the mapped bytes and requests for the others.
    ///
    /// # Safety
    /// All local pointers stay valid (and exclusive where written) until the request has completed.
    unsafe fn post_copy(&self, request: &WorkRequest<'_>, transfer: &Transfer<'_>) -> Result<Posted> {
        let Transfer { write, local: blocks, region, ref ranges } = *transfer;
        let code = if write { Code::Write } else { Code::Read };
        let (name, len) = (transfer.name(), transfer.len());
        let imports = self.imports.borrow();
        let import = checks::region(imports.get(&region), request.peer, region, name)?;
        checks::ranges(import, transfer)?;
        self.stats.add(transfer.kind(), len);
        let mut unmapped = Pieces::new();
        if import.brief || self.vm_pays(import, len) {
            if let Some(_announced) = self.announce(import) {
                // SAFETY: the caller's contract; the owner of the remote region does not release it before the
                // announcement ends.
                unsafe { self.copy_directly(import, code, blocks, ranges) }?;
                return self.start(request, unmapped, || ());
            }
            if import.brief {
                return Err(Error::new(ErrorKind::BadKey, name)
                    .peer(import.peer)
                    .cause("the peer has already released the memory that it exported for this transfer"));
            }
        }
        import.walk(blocks, ranges, |mapped, at, local, len| {
            if mapped.is_none() {
                unmapped.push(import.piece(code, at, len, local));
            }
        });
        self.start(request, unmapped, || {
            import.walk(blocks, ranges, |mapped, _, local, len| {
                if let Some(remote) = mapped {
                    // SAFETY: local blocks are valid by the contract; the ranges were checked against the region.
                    unsafe { self.copy(code, remote, local, len) };
                }
            });
        })
    }

    /// Copies between mapped and local bytes.
    ///
    /// # Safety
    /// Both are valid, and this rank's program does not access the written bytes.
    unsafe fn copy(&self, code: Code, remote: *mut u8, local: *mut u8, len: usize) {
        // SAFETY: by the contract.
        unsafe {
            match code {
                Code::Read => copy::load(remote, local, len),
                _ => copy::store(local, remote, len),
            }
        }
        self.stats.add(Kind::Copy, len);
    }

    /// Copies mapped bytes, and all others by `process_vm_*`.
    ///
    /// # Safety
    /// The local blocks are valid (and exclusive where written); the ranges were checked against the region, which its
    /// owner does not release during the call.
    unsafe fn copy_directly(&self, import: &Import, code: Code, blocks: &[Block], ranges: &[Range]) -> Result<()> {
        let (mut local, mut remote): (Vec<Block>, Vec<Range>) = (Vec::new(), Vec::new());
        let (mut unmapped, pieces) = ((blocks, ranges), import.has_mapped());
        if pieces {
            import.walk(blocks, ranges, |mapped, offset, base, len| match mapped {
                // SAFETY: by the contract.
                Some(remote) => unsafe { self.copy(code, remote, base, len) },
                None => {
                    local.push(Block { base, len });
                    remote.push(Range { offset, len });
                }
            });
            unmapped = (&local, &remote);
        }
        let len = unmapped.0.iter().map(|block| block.len).sum();
        if len == 0 {
            return Ok(());
        }
        let (pid, base) = import.vm.ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "access exported memory")
                .peer(import.peer)
                .cause("the memory is not mapped, and process_vm_readv is not available")
        })?;
        // SAFETY: by the contract.
        let calls = unsafe { vm::transfer(code == Code::Read, pid, unmapped.0, base, unmapped.1) };
        for _ in 0..calls.map_err(|e| e.peer(import.peer))? {
            self.stats.add(Kind::SystemCall, 0);
        }
        self.stats.add(Kind::Copy, len);
        Ok(())
    }

    /// Sends the segments that need the target and copies the mapped ones while the target serves them. The
    /// notification follows last, by the same path as the data that it announces.
    #[inline]
    fn start(&self, request: &WorkRequest<'_>, unmapped: Pieces, copy_mapped: impl FnOnce()) -> Result<Posted> {
        if unmapped.is_empty() {
            copy_mapped();
            if let Some((at, value)) = request.notify {
                self.stats.add(Kind::Notify, 8);
                self.set_signal(request.peer, at, value)?;
            }
            return Ok(Posted::Done);
        }
        let signal = |(at, value): (Place, u64)| {
            let imports = self.imports.borrow();
            let cell = imports::region(&imports, request.peer, at, 8, "signal a peer")?;
            self.stats.add(Kind::Notify, 8);
            Ok(Piece { words: [value, 0], ..cell.piece(Code::Signal, at.offset, 8, std::ptr::null_mut()) })
        };
        let signal = request.notify.map(signal).transpose()?;
        self.service.post((request.id, request.peer), unmapped, copy_mapped, signal, &self.stats);
        Ok(Posted::Pending)
    }

    /// Whether a transfer of `len` bytes may be made by `process_vm_*` now, and is faster that way.
    fn vm_pays(&self, import: &Import, len: usize) -> bool {
        let least = if self.user_memory == UserMemory::Vm { 1 } else { VM_FROM };
        // While requests to the peer are in progress, the call would overtake them.
        import.vm.is_some() && len >= least && !self.service.any_to(import.peer)
    }

    /// Announces a transfer without the owner's help; `None` if the region was released.
    fn announce(&self, import: &Import) -> Option<Announced<'_>> {
        // The owner clears the live key and then reads the announcement: either it waits for this transfer, or this
        // rank sees that the key was cleared. Requests to released memory fail with an error that names the reason.
        let announced = Announced(self.own().word(layout::VM_TRANSFER));
        announced.0.store(layout::vm_transfer(import.peer as usize, import.request_key), Ordering::SeqCst);
        let live = self.shared.peers[import.peer as usize].word(layout::live_key(import.live?));
        (live.load(Ordering::SeqCst) == import.request_key).then_some(announced)
    }
}

/// Updates mapped memory; returns the segments that are not mapped.
///
/// # Safety
/// The contract of [`Device::post`](crate::device::Device::post); the range was checked against the region.
unsafe fn make(import: &Import, update: &Update) -> Result<Pieces> {
    let &Update { change, at: Place { offset: start, .. }, len, old } = update;
    let (name, mut unmapped, mut result) = (update.name(), Pieces::new(), Ok(()));
    let (request, code, operand, words) = match change {
        Change::Add(add) => (Code::FetchAdd, 0, std::ptr::null(), [add, 0]),
        Change::CompareSwap { expected, desired } => (Code::CompareSwap, 0, std::ptr::null(), [expected, desired]),
        Change::Accumulate { code, operand } if old.is_null() => (Code::Accumulate, code, operand, [0; 2]),
        Change::Accumulate { code, operand } => (Code::FetchAccumulate, code, operand, [0; 2]),
    };
    if update.is_integer() {
        // The update's bytes are contiguous.
        import.integer(start, len, name)?;
    }
    import.walk(&[Block::of(operand, len)], &[Range { offset: start, len }], |mapped, at, local, len| {
        let old = if old.is_null() { old } else { old.wrapping_add(at - start) };
        let change = if update.is_integer() { change } else { Change::Accumulate { code, operand: local } };
        match mapped {
            _ if result.is_err() => {}
            None => unmapped.push(Piece { accumulate: code, words, old, ..import.piece(request, at, len, local) }),
            Some(remote) => {
                // SAFETY: a checked range of the region; local pointers are valid by the contract.
                let applied = unsafe { change.apply(import.accumulate, remote, old, len) };
                let error =
                    |kind| Error::new(kind, name).peer(import.peer).cause(format!("the element at offset {at}"));
                result = applied.map_err(error);
            }
        }
    });
    result.map(|()| unmapped)
}
