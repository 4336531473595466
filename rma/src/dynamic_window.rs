#![allow(unsafe_code)]
//! Dynamic windows: memory is attached and detached by its owner alone, without the others (MPI-4 §12.2.4).
//!
//! Each rank publishes a table of what it has attached in memory that the others read; an origin looks the
//! attachment up there before every operation and imports it at its first. Detaching takes the entry out and
//! then the memory back from the device: from then on operations fail with `NotAttached`, and one that was
//! under way is refused by the owner or reaches pages that nobody else sees. So the vector that `detach`
//! returns is its owner's alone.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use farside_core::device::{Block, MAX_KEY, Operation, Place, Region, Registration, RemoteRegion};
use farside_core::job::{CancelOnDrop, Track};
use farside_core::{Error, ErrorKind, Job, Result, Team};

use crate::assert::Assert;
use crate::epoch::{bytes, same_length};
use crate::op::{CasElement, Element, Op, code};
use crate::raw::layouts::{Action, Layouts, Planner};
use crate::raw::{Item, Options, RawWindow};
use crate::selection::Selection;

/// Most attachments of one rank at a time.
pub const MAX_ATTACHED: usize = 128;

/// Bytes of a table entry: id, length in bytes, length of the key, the key.
const ENTRY: usize = 24 + MAX_KEY;

/// Names an attachment of some rank: send it to who may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Attachment {
    /// Never 0, never used twice by one rank.
    pub id: u64,
    /// Where it stands in the owner's table.
    pub slot: u64,
}

/// A window whose memory comes and goes.
#[derive(Debug)]
pub struct DynamicWindow<T: Element> {
    job: Job,
    team: Team,
    table: RawWindow,
    own: RefCell<HashMap<u64, Own<T>>>,
    last: Cell<u64>,
    imports: RefCell<HashMap<(usize, u64), RemoteRegion>>,
    tracks: Vec<Rc<Track>>,
    planner: Planner,
}

#[derive(Debug)]
struct Own<T> {
    vec: std::mem::ManuallyDrop<Vec<T>>,
    registration: Registration,
    slot: u64,
}

impl<T: Element> DynamicWindow<T> {
    /// A window with nothing attached. Collective. Memory: 15 KiB a rank for the table.
    ///
    /// # Errors
    /// As [`crate::Window::allocate`].
    pub fn new(team: &Team) -> Result<Self> {
        let table = RawWindow::allocate_of(team, Ok(MAX_ATTACHED * ENTRY), Options::default(), Some(T::TYPE))?;
        table.lock_all(Assert::NOCHECK)?;
        Ok(Self {
            job: team.job().clone(),
            team: team.clone(),
            table,
            own: RefCell::default(),
            last: Cell::new(0),
            imports: RefCell::default(),
            tracks: (0..team.size()).map(|_| Track::new()).collect(),
            planner: Planner::new(team.job().device().capabilities(), team.job().settings()),
        })
    }

    fn word(&self, slot: u64, index: usize) -> &AtomicU64 {
        // SAFETY: inside this rank's table, aligned, and an atomic for all who look at it.
        unsafe { AtomicU64::from_ptr(self.table.base().add(slot as usize * ENTRY + index * 8).cast()) }
    }

    /// Attaches a vector. Local: no message. Others use it by the attachment.
    ///
    /// # Errors
    /// `Limit` with [`MAX_ATTACHED`] already attached, or from the device.
    pub fn attach(&self, vec: Vec<T>) -> Result<Attachment> {
        const OP: &str = "attach memory";
        let free = |slot: &u64| self.word(*slot, 0).load(Ordering::Relaxed) == 0; // Own word, own thread.
        let slot = (0..MAX_ATTACHED as u64).find(free).ok_or_else(|| {
            Error::new(ErrorKind::Limit, OP)
                .rank(self.job.rank())
                .cause(format!("{MAX_ATTACHED} are attached"))
                .remedy("detach some")
        })?;
        let mut vec = std::mem::ManuallyDrop::new(vec);
        let len = vec.len() * size_of::<T>();
        let region = Region {
            base: vec.as_mut_ptr().cast(),
            len,
            accumulate: Some(crate::op::apply_bytes),
            passive: true,
            revocable: true,
            one_node: self.team.is_on_one_node(),
        };
        // SAFETY: the vector is kept, untouched, until `release` has succeeded, or leaked.
        let registration = match unsafe { self.job.device().register(region) } {
            Ok(r) => r,
            Err(e) => {
                drop(std::mem::ManuallyDrop::into_inner(vec));
                return Err(e);
            }
        };
        let id = self.last.get() + 1;
        self.last.set(id);
        let mut key = [0u8; MAX_KEY];
        key[..registration.key.len()].copy_from_slice(&registration.key);
        // Relaxed, all of these: ordered by the Release of the id, with which the look-up of an origin pairs.
        self.word(slot, 1).store(len as u64, Ordering::Relaxed);
        self.word(slot, 2).store(registration.key.len() as u64, Ordering::Relaxed);
        for (i, w) in key.chunks_exact(8).enumerate() {
            // Relaxed, as above.
            self.word(slot, 3 + i).store(u64::from_le_bytes(w.try_into().unwrap_or_default()), Ordering::Relaxed);
        }
        // Release: pairs with the look-up of an origin, which reads the id before and after the rest.
        self.word(slot, 0).store(id, Ordering::Release);
        self.own.borrow_mut().insert(id, Own { vec, registration, slot });
        Ok(Attachment { id, slot })
    }

    /// Detaches and returns the vector, with what others have written. Local: no message. Operations on it
    /// that others still have under way fail or have no effect.
    ///
    /// # Errors
    /// `NotAttached`; `System` if the memory cannot be taken back, which is then leaked.
    pub fn detach(&self, attachment: Attachment) -> Result<Vec<T>> {
        let own = self
            .own
            .borrow_mut()
            .remove(&attachment.id)
            .ok_or_else(|| self.not_attached("detach memory", self.team.rank(), attachment))?;
        self.withdraw(own)
    }

    fn withdraw(&self, own: Own<T>) -> Result<Vec<T>> {
        self.word(own.slot, 0).store(0, Ordering::SeqCst);
        // SAFETY: operations of this rank are complete or cancelled before they return.
        unsafe { self.job.device().release(own.registration.handle) }?;
        Ok(std::mem::ManuallyDrop::into_inner(own.vec))
    }

    #[cold]
    fn not_attached(&self, operation: &'static str, target: usize, attachment: Attachment) -> Error {
        Error::new(ErrorKind::NotAttached, operation)
            .rank(self.job.rank())
            .peer(self.team.members().get(target).copied().unwrap_or(target as u32))
            .cause(format!("attachment {}", attachment.id))
    }

    /// The region of an attachment: looked up in its owner's table every time, imported the first time. One
    /// read where the table is not mapped.
    fn region(&self, operation: &'static str, target: usize, attachment: Attachment) -> Result<RemoteRegion> {
        let gone = || self.not_attached(operation, target, attachment);
        self.team.job_rank(target)?;
        let offset = usize::try_from(attachment.slot).ok().filter(|s| *s < MAX_ATTACHED).ok_or_else(gone)? * ENTRY;
        let look = |into: &mut [u64]| {
            self.table.or_abandon(|| {
                // SAFETY: complete when the flush returns; abandoned if it fails.
                unsafe { self.table.get(into.as_mut_ptr().cast(), size_of_val(into), target, offset) }?;
                self.table.flush(target)
            })
        };
        let mut id = [0u64; 1];
        look(&mut id)?;
        if id[0] != attachment.id || attachment.id == 0 {
            if let Some(r) = self.imports.borrow_mut().remove(&(target, attachment.id)) {
                // SAFETY: operations of this rank are complete or cancelled before they return.
                unsafe { self.job.device().forget(r.handle) };
            }
            return Err(gone());
        }
        if let Some(r) = self.imports.borrow().get(&(target, attachment.id)) {
            return Ok(*r);
        }
        let mut entry = [0u64; ENTRY / 8];
        look(&mut entry)?;
        look(&mut id)?;
        let key_len = entry[2] as usize;
        if entry[0] != attachment.id || id[0] != attachment.id || key_len > MAX_KEY {
            return Err(gone());
        }
        let key = &bytemuck::cast_slice::<u64, u8>(&entry[3..])[..key_len];
        let peer = self.team.job_rank(target)?;
        let region = self.job.device().import(peer, key, Some(crate::op::apply_bytes)).map_err(|e| {
            // Detached between the look and the import.
            if e.kind() == ErrorKind::PeerLost { gone() } else { e }
        })?;
        self.imports.borrow_mut().insert((target, attachment.id), region);
        Ok(region)
    }

    /// Posts and waits; a key that has gone means detached.
    ///
    /// # Safety
    /// The operation's local memory is valid during the call.
    unsafe fn run<'a>(
        &self,
        name: &'static str,
        target: usize,
        attachment: Attachment,
        (displacement, len): (usize, usize),
        make: impl FnOnce(Place) -> Operation<'a>,
    ) -> Result<()> {
        let region = self.region(name, target, attachment)?;
        let offset = bytes::<T>(displacement)?;
        if offset.checked_add(len).is_none_or(|end| end > region.len) {
            return Err(Error::new(ErrorKind::OutOfRange, name)
                .rank(self.job.rank())
                .peer(region.peer)
                .cause(format!("{len} bytes at byte {offset} of an attachment of {}", region.len)));
        }
        let operation = make(Place { region: region.handle, offset });
        let _open = CancelOnDrop::new(&self.job, &self.tracks[target]);
        // SAFETY: complete or cancelled before this returns.
        let posted = unsafe { self.job.post(region.peer, operation, None, &[&self.tracks[target]]) };
        self.finish(name, target, attachment, posted.map(|_| ()))
    }

    /// Puts `from` to an attachment of `target`, complete there when it returns. One message.
    ///
    /// # Errors
    /// `NotAttached`, `OutOfRange`, `NoSuchRank`, `PeerLost`.
    pub fn put(&self, from: &[T], target: usize, attachment: Attachment, displacement: usize) -> Result<()> {
        let block = [Block::of(from.as_ptr().cast(), size_of_val(from))];
        // SAFETY: borrowed for the call.
        unsafe {
            self.run("put", target, attachment, (displacement, size_of_val(from)), |to| Operation::Write {
                from: &block,
                to,
            })
        }
    }

    /// Gets from an attachment of `target`, complete when it returns. One message and its answer.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn get(&self, into: &mut [T], target: usize, attachment: Attachment, displacement: usize) -> Result<()> {
        let block = [Block { base: into.as_mut_ptr().cast(), len: size_of_val(into) }];
        let len = size_of_val(into);
        // SAFETY: borrowed exclusively for the call.
        unsafe {
            self.run("get", target, attachment, (displacement, len), |from| Operation::Read { into: &block, from })
        }
    }

    /// Accumulates into an attachment of `target`, each element atomically; former values go to `old` if given.
    ///
    /// # Errors
    /// As [`put`](Self::put); `Unsupported` for an operation that the type does not have.
    pub fn accumulate(
        &self,
        op: Op,
        operand: &[T],
        old: Option<&mut [T]>,
        target: usize,
        attachment: Attachment,
        displacement: usize,
    ) -> Result<()> {
        op.check(T::TYPE, "accumulate")?;
        let old = match old {
            Some(old) => {
                same_length(operand.len(), old.len())?;
                old.as_mut_ptr().cast()
            }
            None => std::ptr::null_mut(),
        };
        let block = Block::of(operand.as_ptr().cast(), size_of_val(operand));
        // SAFETY: borrowed for the call.
        unsafe {
            self.run("accumulate", target, attachment, (displacement, block.len), |at| Operation::Accumulate {
                at,
                code: code(op, T::TYPE),
                operand: block,
                old,
            })
        }
    }

    /// Puts the elements that `of` selects of `from` to those that `at` selects of an attachment of `target`, counted
    /// from `displacement`; complete there when it returns. Messages as [`RawWindow::put_typed`] to memory that is not
    /// mapped.
    ///
    /// # Errors
    /// As [`put`](Self::put) and [`crate::Epoch::put_selected`].
    pub fn put_selected(
        &self,
        from: &[T],
        of: &Selection<T>,
        target: usize,
        attachment: Attachment,
        displacement: usize,
        at: &Selection<T>,
    ) -> Result<()> {
        of.check_inside(size_of_val(from))?;
        let local = from.as_ptr().cast_mut().cast();
        // SAFETY: borrowed for the call; inside the buffer.
        unsafe { self.run_layouts(Action::Put, (local, of), target, attachment, displacement, at) }
    }

    /// Gets the elements that `at` selects of an attachment of `target`, counted from `displacement`, to those that `of`
    /// selects of `into`; complete when it returns.
    ///
    /// # Errors
    /// As [`put_selected`](Self::put_selected).
    pub fn get_selected(
        &self,
        into: &mut [T],
        of: &Selection<T>,
        target: usize,
        attachment: Attachment,
        displacement: usize,
        at: &Selection<T>,
    ) -> Result<()> {
        of.check_inside(size_of_val(into))?;
        // SAFETY: borrowed exclusively for the call; inside the buffer.
        unsafe { self.run_layouts(Action::Get, (into.as_mut_ptr().cast(), of), target, attachment, displacement, at) }
    }

    /// Accumulates the elements that `of` selects of `operand` into those that `at` selects of an attachment of
    /// `target`, each atomically.
    ///
    /// # Errors
    /// As [`put_selected`](Self::put_selected) and [`accumulate`](Self::accumulate).
    #[allow(clippy::too_many_arguments)] // those of MPI's call
    pub fn accumulate_selected(
        &self,
        op: Op,
        operand: &[T],
        of: &Selection<T>,
        target: usize,
        attachment: Attachment,
        displacement: usize,
        at: &Selection<T>,
    ) -> Result<()> {
        op.check(T::TYPE, "accumulate")?;
        of.check_inside(size_of_val(operand))?;
        let (action, local) = (Action::Accumulate { code: code(op, T::TYPE) }, operand.as_ptr().cast_mut().cast());
        // SAFETY: borrowed for the call; inside the buffer.
        unsafe { self.run_layouts(action, (local, of), target, attachment, displacement, at) }
    }

    /// Posts all messages of an operation between layouts and waits for them.
    ///
    /// # Safety
    /// The operation's local memory is valid during the call.
    unsafe fn run_layouts(
        &self,
        action: Action,
        (local, of): (*mut u8, &Selection<T>),
        target: usize,
        attachment: Attachment,
        displacement: usize,
        at: &Selection<T>,
    ) -> Result<()> {
        let name = action.name();
        let region = self.region(name, target, attachment)?;
        let (origin, offset) = (of.type_map(), bytes::<T>(displacement)?);
        let layouts = Layouts { action, local, origin, offset, target: at.type_map(), old: None };
        layouts.check(region.len).map_err(|e| e.rank(self.job.rank()).peer(region.peer))?;
        let _open = CancelOnDrop::new(&self.job, &self.tracks[target]);
        let post = |item: Item| {
            // SAFETY: complete or cancelled before this returns.
            let post = |operation: Operation<'_>| unsafe {
                self.job.post(region.peer, operation, None, &[&self.tracks[target]]).map(|_| ())
            };
            item.with_operation(region.handle, post).unwrap_or(Ok(()))
        };
        let posted = match action {
            Action::Accumulate { code } => layouts
                .for_each_piece(|operand, old, offset, len| post(Item::Accumulate { code, operand, old, len, offset })),
            _ => {
                self.planner.plan(&region, &layouts, false).and_then(|plan| layouts.messages(&plan).try_for_each(post))
            }
        };
        self.finish(name, target, attachment, posted)
    }

    /// Waits for what was posted to `target`; a key that has gone means detached.
    fn finish(&self, name: &'static str, target: usize, attachment: Attachment, posted: Result<()>) -> Result<()> {
        let track = &self.tracks[target];
        let complete = || Ok((track.open() == 0).then_some(()));
        let waited = posted.and_then(|()| if track.open() == 0 { Ok(()) } else { self.job.wait(name, complete) });
        // It may have come down to stores to mapped memory. The look at the table of the next operation pays for that.
        self.job.store_order().fence_before_load();
        waited
            .and_then(|()| track.check())
            .map_err(|e| if e.kind() == ErrorKind::BadKey { self.not_attached(name, target, attachment) } else { e })
    }

    /// Compares and swaps one element of an attachment of `target`; returns its former value.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn compare_and_swap(
        &self,
        expected: T,
        desired: T,
        target: usize,
        attachment: Attachment,
        displacement: usize,
    ) -> Result<T>
    where
        T: CasElement,
    {
        let mut old = T::zeroed();
        let place = (&raw mut old).cast();
        let (expected, desired) = (crate::raw::widen(expected), crate::raw::widen(desired));
        let len = size_of::<T>();
        // SAFETY: `old` lives through the call.
        unsafe {
            self.run("compare and swap", target, attachment, (displacement, len), |at| Operation::CompareSwap {
                at,
                len,
                expected,
                desired,
                old: place,
            })
        }?;
        Ok(old)
    }

    /// Frees the window. Collective, with a barrier; what is still attached is detached and dropped.
    ///
    /// # Errors
    /// `PeerLost`; `System` if memory could not be given back.
    pub fn free(self) -> Result<()> {
        self.table.unlock_all()?;
        self.team.barrier()
    }
}

impl<T: Element> Drop for DynamicWindow<T> {
    fn drop(&mut self) {
        for r in self.imports.borrow().values() {
            // SAFETY: operations of this rank are complete or cancelled before they return.
            unsafe { self.job.device().forget(r.handle) };
        }
        let all: Vec<Own<T>> = self.own.borrow_mut().drain().map(|(_, own)| own).collect();
        for own in all {
            if let Err(e) = self.withdraw(own) {
                tracing::error!("attached memory is leaked: {e}");
            }
        }
    }
}
