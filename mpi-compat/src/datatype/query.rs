//! Sizes, bounds and addresses (MPI-5.0 sections 5.1.5 to 5.1.8).

use std::ffi::c_void;

use crate::arguments::{LongOut, Out};
use crate::fail::Result;
use crate::handle::Type;
use crate::runtime::Call;

pub fn type_size(call: &Call<'_>, datatype: Type, size: LongOut) -> Result {
    size.set_or_undefined(Some(call.types.get(datatype)?.layout.size()));
    Ok(())
}

pub fn type_get_extent(call: &Call<'_>, datatype: Type, lb: Out<i64>, extent: Out<i64>) -> Result {
    let object = call.types.get(datatype)?;
    lb.set(object.layout.lb());
    extent.set(object.layout.extent());
    Ok(())
}

pub fn type_extent(call: &Call<'_>, datatype: Type, extent: Out<i64>) -> Result {
    extent.set(call.types.get(datatype)?.layout.extent());
    Ok(())
}

pub fn type_lb(call: &Call<'_>, datatype: Type, displacement: Out<i64>) -> Result {
    displacement.set(call.types.get(datatype)?.layout.lb());
    Ok(())
}

pub fn type_ub(call: &Call<'_>, datatype: Type, displacement: Out<i64>) -> Result {
    displacement.set(call.types.get(datatype)?.layout.ub());
    Ok(())
}

pub fn type_get_true_extent(call: &Call<'_>, datatype: Type, true_lb: Out<i64>, true_extent: Out<i64>) -> Result {
    let object = call.types.get(datatype)?;
    true_lb.set(object.layout.true_lb());
    true_extent.set(object.layout.true_extent() as i64);
    Ok(())
}

pub fn get_address(_: &Call<'_>, location: *const c_void, address: Out<i64>) -> Result {
    address.set(location.addr() as i64);
    Ok(())
}

pub fn aint_add(base: i64, disp: i64) -> i64 {
    base.wrapping_add(disp)
}

pub fn aint_diff(addr1: i64, addr2: i64) -> i64 {
    addr1.wrapping_sub(addr2)
}
