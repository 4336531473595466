#![allow(unsafe_code)]
//! Pack and unpack (MPI-5.0 sections 5.2 and 5.3). The packed form consists of the bytes of the elements without gaps,
//! or is external32.

use std::ffi::c_void;

use farside_datatype::{Private, TypeMap};

use crate::arguments::{LongOut, Out, Text, check_buffer, count};
use crate::constants::*;
use crate::fail::{Fail, Result, fail};
use crate::handle::{Comm, Type};
use crate::message::Elements;
use crate::operands::{Address, Buffer};
use crate::runtime::Call;

/// A position in a packed buffer, and the number of bytes from there on.
struct Packed {
    at: usize,
    room: usize,
}

fn position(position: i64, size: i64, name: &'static str) -> Result<Packed> {
    let whole = usize::try_from(size).map_err(|_| fail(MPI_ERR_ARG, format!("is {size}")).named(name))?;
    let at = usize::try_from(position).ok().filter(|at| *at <= whole);
    let at = at.ok_or_else(|| {
        fail(MPI_ERR_ARG, format!("is {position}, which is not within the buffer's {whole} bytes")).named("position")
    })?;
    Ok(Packed { at, room: whole - at })
}

fn too_short(needed: u64, packed: &Packed) -> Fail {
    fail(
        MPI_ERR_TRUNCATE,
        format!("{needed} bytes are needed from position {} on, but the buffer has {} left", packed.at, packed.room),
    )
}

fn check_packed(buffer: *const c_void, bytes: u64, name: &'static str) -> Result {
    if bytes > 0 { check_buffer(buffer, false, name) } else { Ok(()) }
}

pub fn pack_size(call: &Call<'_>, incount: i64, datatype: Type, comm: Comm, size: LongOut) -> Result {
    call.comms.get(comm)?;
    let object = call.types.get(datatype)?;
    let map = object.layout.message(count(incount, "incount")?)?;
    size.set_or_undefined(Some(map.size()));
    Ok(())
}

pub fn pack(call: &Call<'_>, data: Buffer, outbuf: *mut c_void, outsize: i64, at: LongOut, comm: Comm) -> Result {
    call.comms.get(comm)?;
    let (_, map) = data.message(call)?;
    let packed = position(at.get(), outsize, "outsize")?;
    if map.size() > packed.room as u64 {
        return Err(too_short(map.size(), &packed));
    }
    check_packed(outbuf, map.size(), "outbuf")?;
    // SAFETY: the program guarantees that the message is readable and the `outsize` bytes of the packed buffer are
    // writable.
    let done = unsafe {
        map.pack_raw::<Private>(data.address.at(), 0, outbuf.cast::<u8>().wrapping_add(packed.at), packed.room)
    };
    at.set((packed.at + done) as i64)
}

pub fn unpack(call: &Call<'_>, inbuf: *const c_void, insize: i64, at: LongOut, data: Buffer, comm: Comm) -> Result {
    call.comms.get(comm)?;
    let (_, map) = data.message(call)?;
    let packed = position(at.get(), insize, "insize")?;
    if map.size() > packed.room as u64 {
        return Err(too_short(map.size(), &packed));
    }
    check_packed(inbuf, map.size(), "inbuf")?;
    let from = inbuf.cast::<u8>().wrapping_add(packed.at);
    // SAFETY: the program guarantees that the `insize` bytes of the packed buffer are readable and the message is
    // writable.
    let done = unsafe { map.unpack_raw::<Private>(from, 0, data.address.at(), map.size() as usize) };
    at.set((packed.at + done) as i64)
}

fn check_representation(datarep: Text) -> Result {
    let name = datarep.read()?;
    if name == b"external32" {
        return Ok(());
    }
    let why = format!("is {:?}, but the only representation is external32", String::from_utf8_lossy(&name));
    Err(fail(MPI_ERR_UNSUPPORTED_DATAREP, why).named("datarep"))
}

/// The bytes of a message as a slice, and the position of the buffer's address in it.
fn reach(map: &TypeMap, address: Address) -> (*const u8, usize, usize) {
    let low = map.true_lb().min(0);
    let first = address.at().cast_const().wrapping_offset(low as isize);
    let len = if map.size() == 0 { 0 } else { map.true_ub() - low };
    if len == 0 { (std::ptr::dangling(), 0, 0) } else { (first, len as usize, low.unsigned_abs() as usize) }
}

pub fn pack_external_size(call: &Call<'_>, datarep: Text, incount: i64, datatype: Type, size: Out<i64>) -> Result {
    check_representation(datarep)?;
    let object = call.types.get(datatype)?;
    size.set(object.layout.external_size(count(incount, "incount")?)? as i64);
    Ok(())
}

pub fn pack_external(
    call: &Call<'_>,
    datarep: Text,
    data: Buffer,
    outbuf: *mut c_void,
    outsize: i64,
    at: Out<i64>,
) -> Result {
    check_representation(datarep)?;
    let (Elements { object, n, .. }, map) = data.message(call)?;
    let packed = position(at.get(), outsize, "outsize")?;
    let needed = object.layout.external_size(n)?;
    if needed > packed.room as u64 {
        return Err(too_short(needed, &packed));
    }
    if needed == 0 {
        return Ok(());
    }
    check_packed(outbuf, needed, "outbuf")?;
    let (first, len, origin) = reach(&map, data.address);
    // SAFETY: the program guarantees that the message is readable, and the packed buffer, which does not overlap it,
    // writable.
    let (from, to) = unsafe {
        let to = outbuf.cast::<u8>().add(packed.at);
        (std::slice::from_raw_parts(first, len), std::slice::from_raw_parts_mut(to, needed as usize))
    };
    let done = object.layout.pack_external(n, from, origin, to)?;
    at.set((packed.at + done) as i64);
    Ok(())
}

pub fn unpack_external(
    call: &Call<'_>,
    datarep: Text,
    inbuf: *const c_void,
    insize: i64,
    at: Out<i64>,
    data: Buffer,
) -> Result {
    check_representation(datarep)?;
    let (Elements { object, n, .. }, map) = data.message(call)?;
    let packed = position(at.get(), insize, "insize")?;
    let needed = object.layout.external_size(n)?;
    if needed > packed.room as u64 {
        return Err(too_short(needed, &packed));
    }
    if needed == 0 {
        return Ok(());
    }
    check_packed(inbuf, needed, "inbuf")?;
    let (first, len, origin) = reach(&map, data.address);
    // SAFETY: the program guarantees that the packed buffer is readable, and the message, which does not overlap it,
    // writable.
    let (from, to) = unsafe {
        let from = inbuf.cast::<u8>().add(packed.at);
        (std::slice::from_raw_parts(from, needed as usize), std::slice::from_raw_parts_mut(first.cast_mut(), len))
    };
    let done = object.layout.unpack_external(from, n, to, origin)?;
    at.set((packed.at + done) as i64);
    Ok(())
}
