#![allow(unsafe_code)]
//! Attributes of communicators, datatypes and windows, and their keys (MPI-5.0 section 7.7).
//!
//! A key is a number that is never used again. An attribute holds its key: as long as one does, a key that was freed can be used
//! like before (but not freed again), and its callbacks are called.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::rc::{Rc, Weak};

use crate::arguments::{Callback, Out};
use crate::comm::CommObject;
use crate::constants::*;
use crate::datatype::TypeObject;
use crate::fail::{Fail, Result, fail};
use crate::handle::{Comm, Type, Win};
use crate::rma::WinObject;
use crate::runtime::{Call, Runtime};

/// What a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Comm,
    Type,
    Win,
}

/// `MPI_COMM_DUP_FN` and its kin, which are no functions; the null functions are 0.
const DUP_FN: usize = 1;
/// The first key that programs get: above the predefined ones.
const FIRST_KEY: c_int = 1024;

/// A key, with its callbacks.
pub struct Keyval {
    key: c_int,
    target: Target,
    copy: Callback,
    delete: Callback,
    extra: *mut c_void,
}

/// How the list of keys holds a key.
enum Held {
    /// Until the program frees it.
    Strong(Rc<Keyval>),
    /// The program has freed it; attributes may still hold it.
    Freed(Weak<Keyval>),
}

impl Held {
    fn keyval(&self) -> Option<Rc<Keyval>> {
        match self {
            Self::Strong(keyval) => Some(Rc::clone(keyval)),
            Self::Freed(keyval) => keyval.upgrade(),
        }
    }
}

/// The keys of the process.
#[derive(Default)]
pub struct Keyvals {
    keys: RefCell<HashMap<c_int, Held>>,
    made: Cell<c_int>,
}

/// The attributes of one object, in the order in which they were set.
#[derive(Default)]
pub struct Attributes {
    values: RefCell<Vec<(Rc<Keyval>, usize)>>,
}

type Copy = unsafe extern "C-unwind" fn(usize, c_int, *mut c_void, usize, *mut usize, *mut c_int) -> c_int;
type Delete = unsafe extern "C-unwind" fn(usize, c_int, usize, *mut c_void) -> c_int;

/// The values of predefined attributes, at the addresses that programs get.
pub struct Predefined {
    tag_ub: c_int,
    host: c_int,
    io: c_int,
    wtime_is_global: c_int,
    appnum: Option<c_int>,
    universe_size: c_int,
    last_used: Cell<c_int>,
}

/// The greatest tag.
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

    /// Where a predefined attribute lies; `None` for other keys.
    fn value(&self, runtime: &Runtime, key: c_int) -> Option<*const c_int> {
        self.last_used.set(runtime.errors.last_used());
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

/// Whether a key is one of the predefined ones of communicators or windows.
fn is_predefined(key: c_int) -> bool {
    (MPI_TAG_UB..=MPI_UNIVERSE_SIZE).contains(&key) || (MPI_WIN_BASE..=MPI_WIN_MODEL).contains(&key)
}

impl Attributes {
    fn find(&self, key: c_int) -> Option<(Rc<Keyval>, usize)> {
        self.values.borrow().iter().find(|(keyval, _)| keyval.key == key).cloned()
    }

    fn remove(&self, key: c_int) {
        self.values.borrow_mut().retain(|(keyval, _)| keyval.key != key);
    }

    /// Calls the delete callback and removes the attribute; if the callback fails it stays.
    fn delete(&self, object: usize, keyval: &Keyval, value: usize) -> Result {
        if keyval.delete.0 > DUP_FN {
            // SAFETY: the program has given a function of this type.
            let code = unsafe {
                let delete: Delete = std::mem::transmute(keyval.delete.0 as *const ());
                delete(object, keyval.key, value, keyval.extra)
            };
            callback_result(code, "delete")?;
        }
        self.remove(keyval.key);
        Ok(())
    }

    /// Deletes all attributes, the last one first, as when the object is freed.
    pub fn clear(&self, object: usize) -> Result {
        loop {
            let Some((keyval, value)) = self.values.borrow().last().cloned() else { return Ok(()) };
            self.delete(object, &keyval, value)?;
        }
    }

    /// Copies what the callbacks let through to a new object, as when `object` is duplicated.
    pub fn copy_to(&self, object: usize, new: &Attributes) -> Result {
        let values = self.values.borrow().clone();
        for (keyval, value) in values {
            let (mut copied, mut flag) = (value, 0);
            match keyval.copy.0 {
                0 => {}
                DUP_FN => flag = 1,
                function => {
                    // SAFETY: the program has given a function of this type.
                    let code = unsafe {
                        let copy: Copy = std::mem::transmute(function as *const ());
                        copy(object, keyval.key, keyval.extra, value, &raw mut copied, &raw mut flag)
                    };
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
    // Its own code goes to the caller.
    Err(fail(code, format!("the {which} callback of an attribute returned {code}")))
}

#[cold]
fn no_key(key: c_int, why: &str) -> Fail {
    fail(MPI_ERR_KEYVAL, format!("is {key}, {why}")).named("keyval")
}

/// A key that the program has made, for this kind of object, and not freed unless attributes hold it.
fn own_key(call: &Call<'_>, target: Target, key: c_int) -> Result<Rc<Keyval>> {
    let keyval = call.keyvals.keys.borrow().get(&key).and_then(Held::keyval);
    match keyval {
        Some(keyval) if keyval.target == target => Ok(keyval),
        Some(_) => Err(no_key(key, "a key of another kind of object")),
        None if key == MPI_KEYVAL_INVALID => Err(no_key(key, "MPI_KEYVAL_INVALID")),
        None if is_predefined(key) => Err(no_key(key, "a predefined key, whose attribute cannot be changed")),
        None => Err(no_key(key, "which is no key")),
    }
}

fn create(
    call: &Call<'_>,
    target: Target,
    copy: Callback,
    delete: Callback,
    extra: *mut c_void,
    key: Out<c_int>,
) -> Result {
    let made = call.keyvals.made.get();
    let number = FIRST_KEY.checked_add(made).ok_or_else(|| fail(MPI_ERR_NO_MEM, "there are no more keys"))?;
    call.keyvals.made.set(made + 1);
    let keyval = Rc::new(Keyval { key: number, target, copy, delete, extra });
    call.keyvals.keys.borrow_mut().insert(number, Held::Strong(keyval));
    key.set(number);
    Ok(())
}

fn free(call: &Call<'_>, target: Target, key: Out<c_int>) -> Result {
    let keyval = own_key(call, target, key.get())?;
    let freed = Held::Freed(Rc::downgrade(&keyval));
    let mut keys = call.keyvals.keys.borrow_mut();
    if let Some(Held::Freed(_)) = keys.insert(key.get(), freed) {
        return Err(no_key(key.get(), "which was freed already"));
    }
    drop(keyval);
    keys.retain(|_, held| held.keyval().is_some());
    key.set(MPI_KEYVAL_INVALID);
    Ok(())
}

fn set(
    call: &Call<'_>,
    target: Target,
    object: usize,
    attributes: &Attributes,
    key: c_int,
    value: *mut c_void,
) -> Result {
    let keyval = own_key(call, target, key)?;
    if let Some((keyval, old)) = attributes.find(key) {
        attributes.delete(object, &keyval, old)?;
    }
    attributes.values.borrow_mut().push((keyval, value.addr()));
    Ok(())
}

fn get(
    call: &Call<'_>,
    target: Target,
    attributes: &Attributes,
    key: c_int,
    value: *mut c_void,
    flag: Out<c_int>,
    predefined: impl FnOnce() -> Option<usize>,
) -> Result {
    let found = if target != Target::Type && is_predefined(key) {
        predefined()
    } else {
        own_key(call, target, key)?;
        attributes.find(key).map(|(_, value)| value)
    };
    if let Some(found) = found {
        if value.is_null() {
            return Err(fail(MPI_ERR_ARG, "is a null pointer").named("attribute_val"));
        }
        // SAFETY: the program gives the address of a pointer.
        unsafe { value.cast::<usize>().write_unaligned(found) };
    }
    flag.set(found.is_some().into());
    Ok(())
}

fn delete(call: &Call<'_>, target: Target, object: usize, attributes: &Attributes, key: c_int) -> Result {
    own_key(call, target, key)?;
    match attributes.find(key) {
        Some((keyval, value)) => attributes.delete(object, &keyval, value),
        None => Err(no_key(key, "and the object has no such attribute")),
    }
}

macro_rules! chapter {
    ($($target:ident in $table:ident: $create:ident, $free:ident, $set:ident, $get:ident, $delete:ident, $predefined:expr;)*) => {$(
        pub fn $create(call: &Call<'_>, copy: Callback, delete: Callback, key: Out<c_int>, extra: *mut c_void) -> Result {
            create(call, Target::$target, copy, delete, extra, key)
        }

        pub fn $free(call: &Call<'_>, key: Out<c_int>) -> Result {
            free(call, Target::$target, key)
        }

        pub fn $set(call: &Call<'_>, object: $target, key: c_int, value: *mut c_void) -> Result {
            set(call, Target::$target, object.0, &call.$table.get(object)?.attributes, key, value)
        }

        pub fn $get(call: &Call<'_>, object: $target, key: c_int, value: *mut c_void, flag: Out<c_int>) -> Result {
            let object = call.$table.get(object)?;
            let predefined: fn(&Call<'_>, &_, c_int) -> Option<usize> = $predefined;
            get(call, Target::$target, &object.attributes, key, value, flag, || predefined(call, &*object, key))
        }

        pub fn $delete(call: &Call<'_>, object: $target, key: c_int) -> Result {
            delete(call, Target::$target, object.0, &call.$table.get(object)?.attributes, key)
        }
    )*};
}

chapter! {
    Comm in comms: comm_create_keyval, comm_free_keyval, comm_set_attr, comm_get_attr, comm_delete_attr,
        |call, _: &CommObject, key| Some(call.predefined.get()?.value(call, key)?.addr());
    Type in types: type_create_keyval, type_free_keyval, type_set_attr, type_get_attr, type_delete_attr,
        |_, _: &TypeObject, _| None;
    Win in wins: win_create_keyval, win_free_keyval, win_set_attr, win_get_attr, win_delete_attr,
        |_, win: &WinObject, key| win.fact(key);
}

// The names of MPI-1.
pub use comm_create_keyval as keyval_create;
pub use comm_delete_attr as attr_delete;
pub use comm_free_keyval as keyval_free;
pub use comm_get_attr as attr_get;
pub use comm_set_attr as attr_put;
