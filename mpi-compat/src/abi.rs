#![allow(unsafe_code)]
//! ABI queries (MPI-5.0 chapter 20).

use std::ffi::{c_int, c_void};

use crate::arguments::Out;
use crate::constants::*;
use crate::fail::{Result, fail};
use crate::handle::Info;
use crate::objects::InfoObject;
use crate::runtime::Call;

pub fn abi_get_version(_: &Call<'_>, abi_major: Out<c_int>, abi_minor: Out<c_int>) -> Result {
    abi_major.set(MPI_ABI_VERSION as c_int);
    abi_minor.set(MPI_ABI_SUBVERSION as c_int);
    Ok(())
}

pub fn abi_get_info(call: &Call<'_>, info: Out<Info>) -> Result {
    let sizes = [("mpi_aint_size", "8"), ("mpi_count_size", "8"), ("mpi_offset_size", "8")];
    info.set(call.infos.insert(InfoObject::of(&sizes)));
    Ok(())
}

pub fn abi_set_fortran_info(call: &Call<'_>, info: Info) -> Result {
    let object = call.infos.get(info)?;
    let mut kept = call.fortran.info.borrow_mut();
    if kept.is_some() {
        return Err(fail(MPI_ERR_ABI, "the Fortran information has already been set"));
    }
    *kept = Some(object.copy());
    Ok(())
}

pub fn abi_get_fortran_info(call: &Call<'_>, info: Out<Info>) -> Result {
    info.set(match &*call.fortran.info.borrow() {
        Some(object) => call.infos.insert(object.copy()),
        None => MPI_INFO_NULL,
    });
    Ok(())
}

fn size_of_logical(size: c_int) -> Result<usize> {
    match size {
        1 | 2 | 4 | 8 | 16 => Ok(size as usize),
        _ => Err(fail(MPI_ERR_ARG, format!("is {size}, but a Fortran LOGICAL has 1, 2, 4, 8 or 16 bytes"))
            .named("logical_size")),
    }
}

fn check_pointers(logical_true: *mut c_void, logical_false: *mut c_void) -> Result {
    for (pointer, name) in [(logical_true, "logical_true"), (logical_false, "logical_false")] {
        if pointer.is_null() {
            return Err(fail(MPI_ERR_ARG, "is a null pointer").named(name));
        }
    }
    Ok(())
}

pub fn abi_set_fortran_booleans(
    call: &Call<'_>,
    logical_size: c_int,
    logical_true: *mut c_void,
    logical_false: *mut c_void,
) -> Result {
    let size = size_of_logical(logical_size)?;
    check_pointers(logical_true, logical_false)?;
    let mut kept = call.fortran.booleans.borrow_mut();
    if kept.is_some() {
        return Err(fail(MPI_ERR_ABI, "the Fortran LOGICAL values have already been set"));
    }
    // SAFETY: both are logicals of this size.
    let read = |from: *mut c_void| unsafe { std::slice::from_raw_parts(from.cast::<u8>(), size) }.to_vec();
    *kept = Some((read(logical_true), read(logical_false)));
    Ok(())
}

pub fn abi_get_fortran_booleans(
    call: &Call<'_>,
    logical_size: c_int,
    logical_true: *mut c_void,
    logical_false: *mut c_void,
    is_set: Out<c_int>,
) -> Result {
    let size = size_of_logical(logical_size)?;
    check_pointers(logical_true, logical_false)?;
    let kept = call.fortran.booleans.borrow();
    if let Some((yes, no)) = &*kept {
        if yes.len() != size {
            let why = format!("is {size}, but the LOGICAL values that were set have {} bytes", yes.len());
            return Err(fail(MPI_ERR_ARG, why).named("logical_size"));
        }
        for (value, to) in [(yes, logical_true), (no, logical_false)] {
            // SAFETY: both have room for a logical of this size.
            unsafe { to.cast::<u8>().copy_from_nonoverlapping(value.as_ptr(), size) };
        }
    }
    is_set.set(kept.is_some().into());
    Ok(())
}
