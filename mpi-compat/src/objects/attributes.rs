#![allow(unsafe_code)]
//! Attributes of communicators, datatypes and windows.
//!
//! A key is a number that is never reused. An attribute holds its key: as long as an attribute refers to a freed key,
//! the key can still be used (but not freed again), and its callbacks are called.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::rc::{Rc, Weak};

use crate::constants::*;
use crate::fail::{Result, fail};
use crate::lock::LOCK;

/// The kind of object for which a key is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFor {
    Comm,
    Type,
    Win,
}

/// `MPI_COMM_DUP_FN` and its counterparts, which are constants, not functions; the null functions are 0.
const DUP_FN: usize = 1;
/// A key, with its callbacks.
pub struct Keyval {
    pub key: c_int,
    pub target: KeyFor,
    pub copy: Callback,
    pub delete: Callback,
    pub extra: *mut c_void,
}

/// An entry in the list of keys.
pub enum KeyEntry {
    /// A key that the program has not freed.
    Strong(Rc<Keyval>),
    /// A key that the program has freed; attributes may still hold it.
    Freed(Weak<Keyval>),
}

impl KeyEntry {
    pub fn keyval(&self) -> Option<Rc<Keyval>> {
        match self {
            Self::Strong(keyval) => Some(Rc::clone(keyval)),
            Self::Freed(keyval) => keyval.upgrade(),
        }
    }
}

/// The keys of the process.
#[derive(Default)]
pub struct Keyvals {
    pub keys: RefCell<HashMap<c_int, KeyEntry>>,
    pub made: Cell<c_int>,
}

/// The attributes of one object, in the order in which they were set.
#[derive(Default)]
pub struct Attributes {
    pub values: RefCell<Vec<(Rc<Keyval>, usize)>>,
}

type Copy = unsafe extern "C-unwind" fn(usize, c_int, *mut c_void, usize, *mut usize, *mut c_int) -> c_int;
type Delete = unsafe extern "C-unwind" fn(usize, c_int, usize, *mut c_void) -> c_int;

/// The values of predefined attributes, at the addresses that programs receive.
pub struct Predefined {
    tag_ub: c_int,
    host: c_int,
    io: c_int,
    wtime_is_global: c_int,
    appnum: Option<c_int>,
    universe_size: c_int,
    last_used: Cell<c_int>,
}

/// The maximum tag.
pub const TAG_UB: c_int = c_int::MAX;

impl Predefined {
    pub fn new(size: u32, universe: Option<u32>) -> Self {
        let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
        Self {
            tag_ub: TAG_UB,
            host: MPI_PROC_NULL,
            io: MPI_ANY_SOURCE,
            wtime_is_global: 0,
            appnum: variable("PMI_APPNUM").or_else(|| std::env::var_os("PMI_RANK").is_some().then_some(0)),
            universe_size: universe.unwrap_or(size) as c_int,
            last_used: Cell::new(0),
        }
    }

    /// The address of a predefined attribute's value; `None` for other keys. `last_used` is the greatest error code.
    pub fn value(&self, last_used: c_int, key: c_int) -> Option<*const c_int> {
        self.last_used.set(last_used);
        let place = match key {
            MPI_TAG_UB => &self.tag_ub,
            MPI_HOST => &self.host,
            MPI_IO => &self.io,
            MPI_WTIME_IS_GLOBAL => &self.wtime_is_global,
            MPI_APPNUM => self.appnum.as_ref()?,
            MPI_UNIVERSE_SIZE => &self.universe_size,
            MPI_LASTUSEDCODE => return Some(self.last_used.as_ptr()),
            _ => return None,
        };
        Some(place)
    }
}

impl Attributes {
    pub fn find(&self, key: c_int) -> Option<(Rc<Keyval>, usize)> {
        self.values.borrow().iter().find(|(keyval, _)| keyval.key == key).cloned()
    }

    fn remove(&self, key: c_int) {
        self.values.borrow_mut().retain(|(keyval, _)| keyval.key != key);
    }

    /// Calls the delete callback and removes the attribute; if the callback fails, the attribute is kept.
    pub fn delete(&self, object: usize, keyval: &Keyval, value: usize) -> Result {
        if keyval.delete.0 > DUP_FN {
            // SAFETY: the program has passed a function of this type.
            let delete: Delete = unsafe { std::mem::transmute(keyval.delete.0 as *const ()) };
            // SAFETY: as above.
            let code = LOCK.outside(|| unsafe { delete(object, keyval.key, value, keyval.extra) });
            callback_result(code, "delete")?;
        }
        self.remove(keyval.key);
        Ok(())
    }

    /// Deletes all attributes, the last one first; called when the object is freed.
    pub fn clear(&self, object: usize) -> Result {
        loop {
            let Some((keyval, value)) = self.values.borrow().last().cloned() else { return Ok(()) };
            self.delete(object, &keyval, value)?;
        }
    }

    /// Copies attributes to a new object, as their callbacks decide; called when `object` is duplicated.
    pub fn copy_to(&self, object: usize, new: &Attributes) -> Result {
        let values = self.values.borrow().clone();
        for (keyval, value) in values {
            let (mut copied, mut flag) = (value, 0);
            match keyval.copy.0 {
                0 => {}
                DUP_FN => flag = 1,
                function => {
                    // SAFETY: the program has passed a function of this type.
                    let copy: Copy = unsafe { std::mem::transmute(function as *const ()) };
                    let (copied, flag) = (&raw mut copied, &raw mut flag);
                    // SAFETY: as above.
                    let code = LOCK.outside(|| unsafe { copy(object, keyval.key, keyval.extra, value, copied, flag) });
                    callback_result(code, "copy")?;
                }
            }
            if flag != 0 {
                new.values.borrow_mut().push((keyval, copied));
            }
        }
        Ok(())
    }
}

fn callback_result(code: c_int, which: &str) -> Result {
    if code == MPI_SUCCESS {
        return Ok(());
    }
    // The callback's own code is returned to the caller.
    Err(fail(code, format!("the {which} callback of an attribute returned {code}")))
}
