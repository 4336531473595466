//! Handles, which C programs hold, and the tables of the objects that they refer to.
//!
//! A predefined handle is a constant below 4096. Any other is `kind << 56 | generation << 32 | index + 4096`, so that
//! the use of a freed handle, or of one of another kind, is detected. Its integer form is the lower half; the table
//! supplies the generation.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::marker::PhantomData;
use std::rc::Rc;

use crate::constants::*;
use crate::fail::{Fail, fail};

pub use crate::constants::{Comm, Errhandler, File, Group, Info, Message, Op, Request, Session, Type, Win};

/// The first value of handles that are not predefined.
const FIRST: usize = 4096;
const INDEX: usize = 0xffff_ffff;
/// No slot.
const NONE: u32 = u32::MAX;
/// The holder count of a handle that is never released.
const FOR_GOOD: u32 = u32::MAX;
/// Bits of a generation.
const GENERATIONS: u32 = 1 << 24;

/// A type of handle.
pub trait Handle: Copy {
    /// The number of the kind, from 1, as it is stored in handles.
    const KIND: usize;
    /// The kind of its object, in words for error texts.
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

/// A slot in a table of objects.
struct Slot<T: ?Sized> {
    generation: u32,
    object: Option<Rc<T>>,
    /// How often the handle was given out and not freed; in a free slot, the next free slot.
    holders: u32,
}

/// The objects of one kind.
pub struct Objects<H, T: ?Sized> {
    /// Objects of predefined handles, indexed by the distance from the null handle.
    fixed: RefCell<Vec<Option<Rc<T>>>>,
    slots: RefCell<Vec<Slot<T>>>,
    /// The first free slot, or `NONE`.
    free: Cell<u32>,
    kind: PhantomData<H>,
}

/// An object that knows its handle, so that repeated queries return the same handle.
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
    /// Gives a predefined handle its object.
    pub fn fix(&self, handle: H, object: Option<Rc<T>>) {
        let mut fixed = self.fixed.borrow_mut();
        let at = handle.value() - H::NULL;
        if at >= fixed.len() {
            fixed.resize_with(at + 1, || None);
        }
        fixed[at] = object;
    }

    /// A new handle.
    #[inline(always)]
    pub fn insert(&self, object: Rc<T>) -> H {
        if self.free.get() == NONE {
            self.add_place();
        }
        let mut slots = self.slots.borrow_mut();
        let index = self.free.get();
        let slot = &mut slots[index as usize];
        self.free.set(slot.holders);
        slot.generation = if slot.generation < GENERATIONS - 1 { slot.generation + 1 } else { 1 };
        slot.object = Some(object);
        slot.holders = 1;
        H::from_value(H::KIND << 56 | (slot.generation as usize) << 32 | (index as usize + FIRST))
    }

    /// Adds a free slot.
    #[cold]
    fn add_place(&self) {
        let mut slots = self.slots.borrow_mut();
        let holders = self.free.replace(slots.len() as u32);
        slots.push(Slot { generation: 0, object: None, holders });
    }

    /// A new handle that stays valid, however often it is released.
    pub fn insert_for_good(&self, object: Rc<T>) -> H {
        let handle = self.insert(object);
        if let Some(index) = Self::index(handle.value()) {
            self.slots.borrow_mut()[index].holders = FOR_GOOD;
        }
        handle
    }

    /// Makes a handle refer to another object.
    pub fn replace(&self, handle: H, object: Rc<T>) {
        if let Some(index) = Self::index(handle.value())
            && let Some(slot) = self.slots.borrow_mut().get_mut(index)
        {
            slot.object = Some(object);
        }
    }

    /// The existing handle of an object, which must be freed once more; or a new one.
    pub fn share(&self, object: &Rc<T>) -> H
    where
        T: Known,
    {
        let value = object.handle().get();
        if value < FIRST && value != 0 {
            return H::from_value(value);
        }
        if let Some(index) = Self::index(value)
            && let Some(slot) = self.slots.borrow_mut().get_mut(index)
            && slot.generation as usize == value >> 32 & 0xff_ffff
            && slot.object.is_some()
        {
            slot.holders += 1;
            return H::from_value(value);
        }
        let handle = self.insert(Rc::clone(object));
        object.handle().set(handle.value());
        handle
    }

    fn index(value: usize) -> Option<usize> {
        (value >> 56 == H::KIND).then(|| (value & INDEX).wrapping_sub(FIRST))
    }

    /// The object of a handle.
    #[inline(always)]
    pub fn get(&self, handle: H) -> Result<Rc<T>, Fail> {
        let value = handle.value();
        match Self::index(value) {
            Some(index) => {
                let slots = self.slots.borrow();
                let slot = slots.get(index).filter(|slot| slot.generation as usize == value >> 32 & 0xff_ffff);
                if let Some(object) = slot.and_then(|slot| slot.object.as_ref()) {
                    return Ok(Rc::clone(object));
                }
            }
            None => {
                if let Some(Some(object)) = self.fixed.borrow().get(value.wrapping_sub(H::NULL)) {
                    return Ok(Rc::clone(object));
                }
            }
        }
        Err(bad::<H>(value))
    }

    /// Calls `f` with the object of a handle that is not predefined; `None` if there is no such object. `f` does not
    /// wait, and calls no function of the program.
    #[inline(always)]
    pub fn peek<R>(&self, handle: H, f: impl FnOnce(&T) -> R) -> Option<R> {
        let value = handle.value();
        let slots = self.slots.borrow();
        let slot = slots.get(Self::index(value)?)?;
        let current = slot.generation as usize == value >> 32 & 0xff_ffff;
        slot.object.as_deref().filter(|_| current).map(f)
    }

    /// Frees a handle that is held once if `f` returns true for its object, and returns the object. `f` does not wait,
    /// and calls no function of the program.
    #[inline(always)]
    pub fn release_if(&self, handle: H, f: impl FnOnce(&T) -> bool) -> Option<Rc<T>> {
        let value = handle.value();
        let index = Self::index(value)?;
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(index).filter(|slot| slot.generation as usize == value >> 32 & 0xff_ffff)?;
        if slot.holders != 1 || !f(slot.object.as_deref()?) {
            return None;
        }
        slot.holders = self.free.replace(index as u32);
        slot.object.take()
    }

    /// Frees a handle once; returns whether it was the last time.
    #[inline]
    pub fn release(&self, handle: H) -> Result<bool, Fail> {
        let value = handle.value();
        let Some(index) = Self::index(value) else {
            self.get(handle)?;
            return Err(fail(H::CLASS, format!("a predefined {} cannot be freed", H::WHAT)).value(value));
        };
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(index).filter(|slot| slot.generation as usize == value >> 32 & 0xff_ffff);
        let Some(slot) = slot.filter(|slot| slot.object.is_some()) else { return Err(bad::<H>(value)) };
        if slot.holders == FOR_GOOD {
            return Ok(false);
        }
        slot.holders -= 1;
        if slot.holders > 0 {
            return Ok(false);
        }
        let object = slot.object.take();
        drop(slots);
        // Dropping this object may release objects that it holds, of this table too.
        drop(object);
        self.slots.borrow_mut()[index].holders = self.free.replace(index as u32);
        Ok(true)
    }

    /// Whether the next `release` frees the object.
    pub fn is_last(&self, handle: H) -> bool {
        Self::index(handle.value()).is_some_and(|index| self.slots.borrow().get(index).is_some_and(|s| s.holders == 1))
    }

    /// The handle of an integer made by [`to_int`]; an invalid handle for any other integer.
    pub fn of_int(&self, int: c_int) -> H {
        let value = int as usize;
        if value < FIRST || int < 0 {
            return H::from_value(value);
        }
        let generation = self.slots.borrow().get(value - FIRST).map_or(0, |slot| slot.generation);
        H::from_value(H::KIND << 56 | (generation as usize) << 32 | value)
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
        Some(what) if what == H::WHAT => format!("is a {what} that was freed"),
        Some(what) => format!("is a {what}, not a {}", H::WHAT),
        None if value == 0 => format!("was never set to a {}", H::WHAT),
        None => format!("is not a valid {}", H::WHAT),
    };
    fail(H::CLASS, why).value(value)
}
