//! Status objects (MPI-5.0 sections 3.2.5 and 13.3).

use std::ffi::c_int;

use crate::arguments::{In, LongOut, Out, count};
use crate::constants::*;
use crate::fail::{Result, fail};
use crate::handle::Type;
use crate::objects::elements::{bytes_of, elements_in};
use crate::runtime::Call;

pub use crate::constants::Status;

pub fn get_count(call: &Call<'_>, status: In<Status>, datatype: Type, to: LongOut) -> Result {
    let (bytes, size) = (status.get().bytes(), call.types.get(datatype)?.layout.size());
    let whole = match size {
        0 if bytes == 0 => Some(0),
        0 => None,
        _ => (bytes % size == 0).then_some(bytes / size),
    };
    to.set_or_undefined(whole);
    Ok(())
}

pub fn get_elements(call: &Call<'_>, status: In<Status>, datatype: Type, to: LongOut) -> Result {
    to.set_or_undefined(elements_in(&call.types.get(datatype)?.layout, status.get().bytes()));
    Ok(())
}

pub fn status_set_elements(call: &Call<'_>, status: Out<Status>, datatype: Type, n: i64) -> Result {
    let object = call.types.get(datatype)?;
    let too_many = || fail(MPI_ERR_COUNT, format!("is {n}, which exceeds 2^64 bytes")).named("count");
    let bytes = bytes_of(&object.layout, count(n, "count")?).ok_or_else(too_many)?;
    change(status, |status| status.set_bytes(bytes));
    Ok(())
}

fn change(status: Out<Status>, f: impl FnOnce(&mut Status)) {
    let mut value = status.get();
    f(&mut value);
    status.set(value);
}

pub fn status_set_cancelled(_: &Call<'_>, status: Out<Status>, flag: c_int) -> Result {
    change(status, |status| status.cancelled = flag);
    Ok(())
}

pub fn test_cancelled(_: &Call<'_>, status: In<Status>, flag: Out<c_int>) -> Result {
    flag.set((status.get().cancelled != 0).into());
    Ok(())
}

macro_rules! fields {
    ($($set:ident, $get:ident: $field:ident;)*) => {$(
        pub fn $set(_: &Call<'_>, status: Out<Status>, value: c_int) -> Result {
            change(status, |status| status.$field = value);
            Ok(())
        }

        pub fn $get(_: &Call<'_>, status: In<Status>, value: Out<c_int>) -> Result {
            value.set(status.get().$field);
            Ok(())
        }
    )*};
}

fields! {
    status_set_source, status_get_source: source;
    status_set_tag, status_get_tag: tag;
    status_set_error, status_get_error: error;
}
