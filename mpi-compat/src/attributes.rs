//! Attributes of communicators, datatypes and windows, and their keys (MPI-5.0 section 7.7).

use std::ffi::{c_int, c_void};
use std::rc::Rc;

use crate::arguments::{Callback, Out};
use crate::constants::*;
use crate::fail::{Fail, Result, fail};
use crate::handle::{Comm, Type, Win};
use crate::objects::{Attributes, CommObject, KeyEntry, KeyFor, Keyval, TypeObject, WinObject};
use crate::runtime::Call;

/// The first key of programs, above the predefined keys.
const FIRST_KEY: c_int = 1024;

/// Whether a key is a predefined key of communicators or windows.
fn is_predefined(key: c_int) -> bool {
    (MPI_TAG_UB..=MPI_UNIVERSE_SIZE).contains(&key) || (MPI_WIN_BASE..=MPI_WIN_MODEL).contains(&key)
}

#[cold]
fn no_key(key: c_int, why: &str) -> Fail {
    fail(MPI_ERR_KEYVAL, format!("is {key}, {why}")).named("keyval")
}

/// A key that the program has created for this kind of object; a freed key is accepted while attributes hold it.
fn user_key(call: &Call<'_>, target: KeyFor, key: c_int) -> Result<Rc<Keyval>> {
    let keyval = call.keyvals.keys.borrow().get(&key).and_then(KeyEntry::keyval);
    match keyval {
        Some(keyval) if keyval.target == target => Ok(keyval),
        Some(_) => Err(no_key(key, "which is a key for another kind of object")),
        None if key == MPI_KEYVAL_INVALID => Err(no_key(key, "which is MPI_KEYVAL_INVALID")),
        None if is_predefined(key) => Err(no_key(key, "which is a predefined key, whose attribute cannot be changed")),
        None => Err(no_key(key, "but there is no such key")),
    }
}

fn create(
    call: &Call<'_>,
    target: KeyFor,
    copy: Callback,
    delete: Callback,
    extra: *mut c_void,
    key: Out<c_int>,
) -> Result {
    let made = call.keyvals.made.get();
    let number = FIRST_KEY.checked_add(made).ok_or_else(|| fail(MPI_ERR_NO_MEM, "all attribute keys are in use"))?;
    call.keyvals.made.set(made + 1);
    let keyval = Rc::new(Keyval { key: number, target, copy, delete, extra });
    call.keyvals.keys.borrow_mut().insert(number, KeyEntry::Strong(keyval));
    key.set(number);
    Ok(())
}

fn free(call: &Call<'_>, target: KeyFor, key: Out<c_int>) -> Result {
    let keyval = user_key(call, target, key.get())?;
    let freed = KeyEntry::Freed(Rc::downgrade(&keyval));
    let mut keys = call.keyvals.keys.borrow_mut();
    if let Some(KeyEntry::Freed(_)) = keys.insert(key.get(), freed) {
        return Err(no_key(key.get(), "which has already been freed"));
    }
    drop(keyval);
    keys.retain(|_, held| held.keyval().is_some());
    key.set(MPI_KEYVAL_INVALID);
    Ok(())
}

fn set(
    call: &Call<'_>,
    target: KeyFor,
    object: usize,
    attributes: &Attributes,
    key: c_int,
    value: *mut c_void,
) -> Result {
    let keyval = user_key(call, target, key)?;
    if let Some((keyval, old)) = attributes.find(key) {
        attributes.delete(object, &keyval, old)?;
    }
    attributes.values.borrow_mut().push((keyval, value.addr()));
    Ok(())
}

fn get(
    call: &Call<'_>,
    target: KeyFor,
    attributes: &Attributes,
    key: c_int,
    value: Out<usize>,
    flag: Out<c_int>,
    predefined: impl FnOnce() -> Option<usize>,
) -> Result {
    let found = if target != KeyFor::Type && is_predefined(key) {
        predefined()
    } else {
        user_key(call, target, key)?;
        attributes.find(key).map(|(_, value)| value)
    };
    found.inspect(|found| value.set(*found));
    flag.set(found.is_some().into());
    Ok(())
}

fn delete(call: &Call<'_>, target: KeyFor, object: usize, attributes: &Attributes, key: c_int) -> Result {
    user_key(call, target, key)?;
    match attributes.find(key) {
        Some((keyval, value)) => attributes.delete(object, &keyval, value),
        None => Err(no_key(key, "but the object has no such attribute")),
    }
}

macro_rules! chapter {
    ($($target:ident in $table:ident: $create:ident, $free:ident, $set:ident, $get:ident, $delete:ident, $predefined:expr;)*) => {$(
        pub fn $create(call: &Call<'_>, copy: Callback, delete: Callback, key: Out<c_int>, extra: *mut c_void) -> Result {
            create(call, KeyFor::$target, copy, delete, extra, key)
        }

        pub fn $free(call: &Call<'_>, key: Out<c_int>) -> Result {
            free(call, KeyFor::$target, key)
        }

        pub fn $set(call: &Call<'_>, object: $target, key: c_int, value: *mut c_void) -> Result {
            set(call, KeyFor::$target, object.0, &call.$table.get(object)?.attributes, key, value)
        }

        pub fn $get(call: &Call<'_>, object: $target, key: c_int, value: Out<usize>, flag: Out<c_int>) -> Result {
            let object = call.$table.get(object)?;
            let predefined: fn(&Call<'_>, &_, c_int) -> Option<usize> = $predefined;
            get(call, KeyFor::$target, &object.attributes, key, value, flag, || predefined(call, &*object, key))
        }

        pub fn $delete(call: &Call<'_>, object: $target, key: c_int) -> Result {
            delete(call, KeyFor::$target, object.0, &call.$table.get(object)?.attributes, key)
        }
    )*};
}

chapter! {
    Comm in comms: comm_create_keyval, comm_free_keyval, comm_set_attr, comm_get_attr, comm_delete_attr,
        |call, _: &CommObject, key| Some(call.predefined.get()?.value(call.errors.last_used.get(), key)?.addr());
    Type in types: type_create_keyval, type_free_keyval, type_set_attr, type_get_attr, type_delete_attr,
        |_, _: &TypeObject, _| None;
    Win in wins: win_create_keyval, win_free_keyval, win_set_attr, win_get_attr, win_delete_attr,
        |_, win: &WinObject, key| win.attribute_value(key);
}

// The functions of MPI-1.
pub use comm_create_keyval as keyval_create;
pub use comm_delete_attr as attr_delete;
pub use comm_free_keyval as keyval_free;
pub use comm_get_attr as attr_get;
pub use comm_set_attr as attr_put;
