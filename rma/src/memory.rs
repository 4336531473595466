#![allow(unsafe_code)]
//! The common part of all typed windows: the untyped window and its elements.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::rc::Rc;

use bytemuck::Pod;
use farside_core::device::Region;
use farside_core::job::OneThread;
use farside_core::{Result, Team};

use crate::elements::{WindowElement, bytes};
use crate::raw::{Options, RawWindow};

/// The name of such windows in errors, over allocated and over user memory.
pub(crate) const WINDOW: &str = "a window";
pub(crate) const LOCK_WINDOW: &str = "a lock window";

/// A window without locks allocates no memory for them.
fn options(object: &str) -> Options {
    Options { locks: object != WINDOW }
}

/// An untyped window over elements of type `T`.
#[derive(Debug)]
pub(crate) struct WindowMemory<T: Pod> {
    // First field, so that compiler errors about `Send` name it.
    _thread: OneThread,
    /// Shared, so that [`crate::Window::over`] can free the window after `body` has borrowed it.
    pub(crate) raw: Rc<RawWindow>,
    /// Number of elements of this rank.
    pub(crate) len: usize,
    /// The vector from which the window was made, if any; it is dropped only when peers can no longer access it.
    owned: Option<ManuallyDrop<Vec<T>>>,
}

impl<T: Pod> WindowMemory<T> {
    pub(crate) fn allocate(team: &Team, len: usize, object: &'static str) -> Result<Self> {
        let element = WindowElement::of::<T>(object);
        let raw = RawWindow::allocate_of(team, bytes::<T>(len), options(object), Some(element))?;
        Ok(Self { _thread: PhantomData, raw: Rc::new(raw), len, owned: None })
    }

    /// Makes a window over `len` elements at `base`.
    ///
    /// # Safety
    /// The contract of [`RawWindow::create`]; nothing else accesses the memory from the call until the window is
    /// released.
    pub(crate) unsafe fn create(team: &Team, base: *mut T, len: usize, object: &'static str) -> Result<Self> {
        let memory = Region { exclusive: true, ..Region::of(base.cast(), len * size_of::<T>()) };
        // SAFETY: the same contract.
        let raw = unsafe { RawWindow::create_of(team, memory, options(object), Some(WindowElement::of::<T>(object))) }?;
        Ok(Self { _thread: PhantomData, raw: Rc::new(raw), len, owned: None })
    }

    pub(crate) fn from_vec(team: &Team, vec: Vec<T>, object: &'static str) -> Result<Self> {
        // The vector is leaked if the call panics.
        let mut vec = ManuallyDrop::new(vec);
        let (base, len) = (vec.as_mut_ptr(), vec.len());
        // SAFETY: the vector lives, and is accessed only through the window, until `release` has succeeded. If creating
        // the window fails, the memory has been deregistered.
        match unsafe { Self::create(team, base, len, object) } {
            Ok(mut memory) => {
                memory.owned = Some(vec);
                Ok(memory)
            }
            Err(e) => {
                drop(ManuallyDrop::into_inner(vec));
                Err(e)
            }
        }
    }

    pub(crate) fn into_vec(mut self) -> Result<Vec<T>> {
        self.raw.free()?;
        Ok(self.owned.take().map(ManuallyDrop::into_inner).unwrap_or_default())
    }

    /// First element of this rank.
    pub(crate) fn base(&self) -> *mut T {
        if self.len == 0 { NonNull::dangling().as_ptr() } else { self.raw.base().cast() }
    }

    pub(crate) fn len_at(&self, rank: usize) -> Result<usize> {
        Ok(self.raw.len_at(rank)? / size_of::<T>())
    }
}

impl<T: Pod> Drop for WindowMemory<T> {
    fn drop(&mut self) {
        let Some(vec) = self.owned.take() else { return };
        match self.raw.release() {
            Ok(()) => drop(ManuallyDrop::into_inner(vec)),
            Err(e) => tracing::error!("leaking the {} elements of a window that could not be released: {e}", vec.len()),
        }
    }
}
