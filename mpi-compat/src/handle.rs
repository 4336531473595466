#![allow(unsafe_code)]
//! Handles of C programs, and the tables of the objects to which they refer.
//!
//! A predefined handle is a constant below 4096. Any other is `kind << 56 | generation << 32 | index + 4096`, so that
//! the use of a freed handle, or of a handle of another kind, is detected, since the slot holds another value. The
//! integer form of a handle is its lower half; the table supplies the rest.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_int;
use std::marker::PhantomData;
use std::rc::Rc;

use crate::constants::*;
use crate::fail::{Fail, fail};

pub use crate::constants::{Comm, Errhandler, File, Group, Info, Message, Op, Request, Session, Type, Win};

/// The lowest value of a handle that is not predefined.
const FIRST: usize = 4096;
const INDEX: usize = 0xffff_ffff;
/// Whether a handle is predefined, so that it always refers to the same object.
#[inline(always)]
pub fn is_predefined(value: usize) -> bool {
    value < FIRST
}

/// The index that stands for no slot.
pub const NONE: u32 = u32::MAX;
/// The holder count of a handle that is never released.
const PERMANENT: u32 = u32::MAX;
/// The number of bits of a generation in a handle.
const GENERATION: usize = 0xff_ffff << 32;

/// A type of handle.
pub trait Handle: Copy {
    /// The number of the kind, from 1, as it is stored in handles.
    const KIND: usize;
    /// The name of its kind of object in error texts.
    const WHAT: &'static str;
    /// The null handle.
    const NULL: usize;
    /// The name of the null handle.
    const NULL_NAME: &'static str;
    /// The error class of an invalid handle.
    const CLASS: c_int;
    fn from_value(value: usize) -> Self;
    fn value(self) -> usize;
}

macro_rules! handles {
    ($($kind:literal $name:ident: $what:literal, $null:ident, $class:ident;)*) => {
        $(
            impl Handle for $name {
                const KIND: usize = $kind;
                const WHAT: &'static str = $what;
                const NULL: usize = $null.0;
                const NULL_NAME: &'static str = stringify!($null);
                const CLASS: c_int = $class;
                fn from_value(value: usize) -> Self {
                    Self(value)
                }
                fn value(self) -> usize {
                    self.0
                }
            }
        )*
        const KINDS: &[(usize, &str)] = &[$(($kind, $what)),*];
    };
}

handles! {
    1 Comm: "communicator", MPI_COMM_NULL, MPI_ERR_COMM;
    2 Group: "group", MPI_GROUP_NULL, MPI_ERR_GROUP;
    3 Type: "datatype", MPI_DATATYPE_NULL, MPI_ERR_TYPE;
    4 Op: "operator", MPI_OP_NULL, MPI_ERR_OP;
    5 Request: "request", MPI_REQUEST_NULL, MPI_ERR_REQUEST;
    6 Info: "info object", MPI_INFO_NULL, MPI_ERR_INFO;
    7 Errhandler: "error handler", MPI_ERRHANDLER_NULL, MPI_ERR_ERRHANDLER;
    8 Win: "window", MPI_WIN_NULL, MPI_ERR_WIN;
    9 File: "file", MPI_FILE_NULL, MPI_ERR_FILE;
    10 Session: "session", MPI_SESSION_NULL, MPI_ERR_SESSION;
    11 Message: "matched message", MPI_MESSAGE_NULL, MPI_ERR_REQUEST;
}

/// The bit that marks a slot's value as free.
const FREE: usize = 1 << 31;

/// The value of a slot that has never been used.
pub fn unused<H: Handle>(index: usize) -> usize {
    H::KIND << 56 | FREE | (index + FIRST)
}

/// The next handle of a free slot with this value: adding the mark carries into the generation.
#[inline(always)]
pub fn taken<H: Handle>(value: usize) -> usize {
    let next = value.wrapping_add(FREE);
    if next & GENERATION == 0 { first::<H>(next) } else { next }
}

/// The handle of a slot with generation 1, which follows the last generation.
#[cold]
fn first<H: Handle>(value: usize) -> usize {
    H::KIND << 56 | 1 << 32 | value & INDEX
}

/// The value of a slot after its handle has been freed. No handle has this value.
#[inline(always)]
pub fn freed(value: usize) -> usize {
    value | FREE
}

/// The index of the slot of a handle that is not predefined; for other values the index may be that of no slot or of
/// another slot.
#[inline(always)]
pub fn index_of(value: usize) -> usize {
    (value & INDEX).wrapping_sub(FIRST)
}

/// A slot in a table of objects.
struct Slot<T: ?Sized> {
    /// The handle, or [`freed`].
    value: usize,
    object: Option<Rc<T>>,
    /// The reference count of the handle; in a free slot, the index of the next free slot.
    holders: u32,
}

/// The objects of one kind. References into the tables are never held while other code can access them.
pub struct Objects<H, T: ?Sized> {
    /// Objects of predefined handles, indexed by the offset from the null handle.
    fixed: UnsafeCell<Vec<Option<Rc<T>>>>,
    slots: UnsafeCell<Vec<Slot<T>>>,
    /// The first free slot, or `NONE`.
    free: Cell<u32>,
    kind: PhantomData<H>,
}

/// An object that stores its handle, so that repeated queries return the same handle.
pub trait Known {
    fn handle(&self) -> &Cell<usize>;
}

impl<H: Handle, T: ?Sized> Default for Objects<H, T> {
    fn default() -> Self {
        let (fixed, slots) = Default::default();
        Self { fixed, slots, free: Cell::new(NONE), kind: PhantomData }
    }
}

impl<H: Handle, T: ?Sized> Objects<H, T> {
    /// The slots. The caller keeps no reference to them while code outside this module runs, except that of
    /// [`borrow_object`](Self::borrow_object).
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // the table is not `Sync`, and its methods do not call each other with a reference
    fn slots(&self) -> &mut Vec<Slot<T>> {
        // SAFETY: the callers keep no other reference, as stated above.
        unsafe { &mut *self.slots.get() }
    }

    /// The slot of a handle that is in use and not predefined.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // as above
    fn slot(&self, value: usize) -> Option<&mut Slot<T>> {
        self.slots().get_mut(index_of(value)).filter(|slot| slot.value == value)
    }

    /// Sets the object of a predefined handle.
    pub fn set_predefined(&self, handle: H, object: Option<Rc<T>>) {
        let at = handle.value() - H::NULL;
        // SAFETY: no reference is held; the previous object is dropped after the access.
        let former = unsafe {
            let fixed = &mut *self.fixed.get();
            if at >= fixed.len() {
                fixed.resize_with(at + 1, || None);
            }
            std::mem::replace(&mut fixed[at], object)
        };
        drop(former);
    }

    /// A new handle.
    #[inline(always)]
    pub fn insert(&self, object: Rc<T>) -> H {
        if self.free.get() == NONE {
            self.add_place();
        }
        let index = self.free.get();
        let slot = &mut self.slots()[index as usize];
        self.free.set(slot.holders);
        *slot = Slot { value: taken::<H>(slot.value), object: Some(object), holders: 1 };
        H::from_value(slot.value)
    }

    /// Adds a free slot.
    #[cold]
    fn add_place(&self) {
        let slots = self.slots();
        let holders = self.free.replace(slots.len() as u32);
        slots.push(Slot { value: unused::<H>(slots.len()), object: None, holders });
    }

    /// A new handle that remains valid, however often it is released.
    pub fn insert_permanent(&self, object: Rc<T>) -> H {
        let handle = self.insert(object);
        if let Some(slot) = self.slot(handle.value()) {
            slot.holders = PERMANENT;
        }
        handle
    }

    /// Makes a handle refer to another object.
    pub fn replace(&self, handle: H, object: Rc<T>) {
        let former = self.slot(handle.value()).map(|slot| slot.object.replace(object));
        // Dropping this object may access this table.
        drop(former);
    }

    /// The existing handle of an object, with its reference count incremented, or a new handle.
    pub fn share(&self, object: &Rc<T>) -> H
    where
        T: Known,
    {
        let value = object.handle().get();
        if value < FIRST && value != 0 {
            return H::from_value(value);
        }
        if let Some(slot) = self.slot(value) {
            slot.holders += 1;
            return H::from_value(value);
        }
        let handle = self.insert(Rc::clone(object));
        object.handle().set(handle.value());
        handle
    }

    /// The object of a handle.
    #[inline(always)]
    pub fn get(&self, handle: H) -> Result<Rc<T>, Fail> {
        self.find(handle.value()).map(Rc::clone).ok_or_else(|| bad::<H>(handle.value()))
    }

    /// The object of a handle. The caller keeps no reference while code outside this module runs, as for `slots`.
    #[inline(always)]
    fn find(&self, value: usize) -> Option<&Rc<T>> {
        if value >= FIRST {
            return self.slot(value)?.object.as_ref();
        }
        // SAFETY: as stated above.
        let fixed = unsafe { &*self.fixed.get() };
        fixed.get(value.wrapping_sub(H::NULL))?.as_ref()
    }

    /// Borrows the object of a handle.
    ///
    /// # Safety
    /// Until the last use of the reference the caller does not wait, makes no progress, makes and frees no object of
    /// this kind, and calls no function of the program.
    #[inline(always)]
    pub unsafe fn borrow_object(&self, handle: H) -> Option<&Rc<T>> {
        self.find(handle.value())
    }

    /// Frees a slot that is in use, and returns its object, which is dropped after the last access to the slot, since
    /// dropping it may release further objects, even of this table.
    #[inline(always)]
    fn vacate(&self, slot: &mut Slot<T>) -> Option<Rc<T>> {
        slot.holders = self.free.replace(index_of(slot.value) as u32);
        slot.value = freed(slot.value);
        slot.object.take()
    }

    /// Releases a handle once; returns whether the object was freed.
    #[inline]
    pub fn release(&self, handle: H) -> Result<bool, Fail> {
        let value = handle.value();
        let Some(slot) = self.slot(value) else {
            self.get(handle)?;
            return Err(fail(H::CLASS, format!("a predefined {} cannot be freed", H::WHAT)).value(value));
        };
        if slot.holders == PERMANENT {
            return Ok(false);
        }
        slot.holders -= 1;
        if slot.holders > 0 {
            return Ok(false);
        }
        drop(self.vacate(slot));
        Ok(true)
    }

    /// Whether the next `release` frees the object.
    pub fn is_last(&self, handle: H) -> bool {
        self.slot(handle.value()).is_some_and(|slot| slot.holders == 1)
    }

    /// The handle of an integer made by [`to_int`]; an invalid handle for any other integer.
    pub fn of_int(&self, int: c_int) -> H {
        let value = int as usize;
        if value < FIRST || int < 0 {
            return H::from_value(value);
        }
        H::from_value(self.slots().get(value - FIRST).map_or(H::KIND << 56 | value, |slot| slot.value & !FREE))
    }
}

/// The integer form of a handle; for a predefined handle the constant itself.
pub fn to_int<H: Handle>(handle: H) -> c_int {
    (handle.value() & INDEX) as c_int
}

/// The error of a value that is not a handle of this kind.
#[cold]
fn bad<H: Handle>(value: usize) -> Fail {
    let other = KINDS.iter().find(|(kind, _)| *kind == value >> 56).map(|(_, what)| *what);
    let why = match other {
        _ if value == H::NULL => format!("is {}", H::NULL_NAME),
        Some(what) if what == H::WHAT => format!("is a {what} that has been freed"),
        Some(what) => format!("is a {what}, not a {}", H::WHAT),
        None if value == 0 => format!("is 0, not an initialized {}", H::WHAT),
        None => format!("is not a valid {}", H::WHAT),
    };
    fail(H::CLASS, why).value(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_of_a_slot_begin_again_at_1_and_leave_the_kind_as_it_is() {
        let mut value = unused::<Win>(5);
        for generation in [1, 2, 3] {
            value = taken::<Win>(value);
            assert_eq!(value, 8 << 56 | generation << 32 | (5 + FIRST));
            assert_eq!(index_of(value), 5);
            value = freed(value);
            assert_ne!(value & INDEX, 5 + FIRST);
        }
        let last = freed(8 << 56 | GENERATION | (5 + FIRST));
        assert_eq!(taken::<Win>(last), 8 << 56 | 1 << 32 | (5 + FIRST));
    }
}
