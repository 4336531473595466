#![allow(unsafe_code)]
//! Info objects (MPI-5.0 chapter 10).

use std::ffi::{c_char, c_int};
use std::rc::Rc;

use crate::arguments::{Out, Text, TextOut, strings};
use crate::constants::*;
use crate::fail::{Result, fail};
use crate::handle::Info;
use crate::objects::InfoObject;
use crate::runtime::Call;

fn key_of(key: Text) -> Result<Vec<u8>> {
    let bytes = key.read().map_err(|failed| failed.class(MPI_ERR_INFO_KEY))?;
    if bytes.is_empty() || bytes.len() >= MPI_MAX_INFO_KEY {
        return Err(fail(
            MPI_ERR_INFO_KEY,
            format!("has {} bytes, but 1 to {} are allowed", bytes.len(), MPI_MAX_INFO_KEY - 1),
        )
        .named(key.name()));
    }
    Ok(bytes)
}

pub fn info_create(call: &Call<'_>, info: Out<Info>) -> Result {
    info.set(call.infos.insert(Rc::default()));
    Ok(())
}

pub fn info_create_env(call: &Call<'_>, argc: c_int, argv: *mut *mut c_char, info: Out<Info>) -> Result {
    let env = call.infos.get(MPI_INFO_ENV)?.copy();
    // SAFETY: `argc` and `argv` are the arguments of `main`, or 0 and null.
    let mut words = unsafe { strings(argc, argv) }.into_iter();
    if let Some(command) = words.next() {
        env.set(b"command".to_vec(), command);
        env.set(b"argv".to_vec(), words.collect::<Vec<_>>().join(&b' '));
    }
    info.set(call.infos.insert(env));
    Ok(())
}

pub fn info_dup(call: &Call<'_>, info: Info, newinfo: Out<Info>) -> Result {
    newinfo.set(call.infos.insert(call.infos.get(info)?.copy()));
    Ok(())
}

pub fn info_free(call: &Call<'_>, info: Out<Info>) -> Result {
    call.infos.release(info.get())?;
    info.set(MPI_INFO_NULL);
    Ok(())
}

/// An info object that the program may change.
fn modifiable(call: &Call<'_>, info: Info) -> Result<Rc<InfoObject>> {
    if info == MPI_INFO_ENV {
        return Err(fail(MPI_ERR_INFO, "is MPI_INFO_ENV, which cannot be changed").value(info.0));
    }
    call.infos.get(info)
}

pub fn info_set(call: &Call<'_>, info: Info, key: Text, value: Text) -> Result {
    let (object, key) = (modifiable(call, info)?, key_of(key)?);
    let text = value.read().map_err(|failed| failed.class(MPI_ERR_INFO_VALUE))?;
    if text.len() >= MPI_MAX_INFO_VAL {
        return Err(fail(
            MPI_ERR_INFO_VALUE,
            format!("has {} bytes, but at most {} are allowed", text.len(), MPI_MAX_INFO_VAL - 1),
        )
        .named("value"));
    }
    object.set(key, text);
    Ok(())
}

pub fn info_delete(call: &Call<'_>, info: Info, key: Text) -> Result {
    let (object, key) = (modifiable(call, info)?, key_of(key)?);
    let mut pairs = object.pairs.borrow_mut();
    let Some(at) = pairs.iter().position(|(known, _)| *known == key) else {
        let why = format!("is {:?}, which is not in the info object", String::from_utf8_lossy(&key));
        return Err(fail(MPI_ERR_INFO_NOKEY, why).named("key"));
    };
    pairs.remove(at);
    Ok(())
}

pub fn info_get(call: &Call<'_>, info: Info, key: Text, valuelen: c_int, value: TextOut, flag: Out<c_int>) -> Result {
    let found = call.infos.get(info)?.get(&key_of(key)?);
    let room = usize::try_from(valuelen)
        .map_err(|_| fail(MPI_ERR_ARG, format!("is {valuelen}, but cannot be negative")).named("valuelen"))?;
    if let Some(text) = &found {
        // `valuelen` does not count the terminating null byte.
        value.write(text, room + 1)?;
    }
    flag.set(found.is_some().into());
    Ok(())
}

pub fn info_get_string(
    call: &Call<'_>,
    info: Info,
    key: Text,
    buflen: Out<c_int>,
    value: TextOut,
    flag: Out<c_int>,
) -> Result {
    let found = call.infos.get(info)?.get(&key_of(key)?);
    let room =
        usize::try_from(buflen.get()).map_err(|_| fail(MPI_ERR_ARG, format!("is {}", buflen.get())).named("buflen"))?;
    if let Some(text) = &found {
        value.write(text, room)?;
        buflen.set(text.len() as c_int + 1);
    }
    flag.set(found.is_some().into());
    Ok(())
}

pub fn info_get_valuelen(call: &Call<'_>, info: Info, key: Text, valuelen: Out<c_int>, flag: Out<c_int>) -> Result {
    let found = call.infos.get(info)?.get(&key_of(key)?);
    if let Some(text) = &found {
        valuelen.set(text.len() as c_int);
    }
    flag.set(found.is_some().into());
    Ok(())
}

pub fn info_get_nkeys(call: &Call<'_>, info: Info, nkeys: Out<c_int>) -> Result {
    nkeys.set(call.infos.get(info)?.pairs.borrow().len() as c_int);
    Ok(())
}

pub fn info_get_nthkey(call: &Call<'_>, info: Info, n: c_int, key: TextOut) -> Result {
    let object = call.infos.get(info)?;
    let pairs = object.pairs.borrow();
    let found = usize::try_from(n).ok().and_then(|n| pairs.get(n));
    let Some((text, _)) = found else {
        return Err(fail(MPI_ERR_ARG, format!("is {n}, but there are {} keys", pairs.len())).named("n"));
    };
    key.write(text, MPI_MAX_INFO_KEY)?;
    Ok(())
}
