//! Envelope and contents (MPI-5.0 section 5.1.13).

use std::ffi::c_int;

use crate::arguments::{ListOut, Out};
use crate::constants::*;
use crate::fail::{Result, fail};
use crate::handle::Type;
use crate::objects::TypeObject;
use crate::runtime::Call;

/// Fails if the form without large counts is called for a type that was created with large counts.
fn check_small(object: &TypeObject, datatype: Type) -> Result {
    if object.made.counts.is_empty() {
        return Ok(());
    }
    Err(fail(MPI_ERR_TYPE, "was created with large counts; call the _c form").value(datatype.0))
}

pub fn type_get_envelope(
    call: &Call<'_>,
    datatype: Type,
    num_integers: Out<c_int>,
    num_addresses: Out<c_int>,
    num_datatypes: Out<c_int>,
    combiner: Out<c_int>,
) -> Result {
    let object = call.types.get(datatype)?;
    check_small(&object, datatype)?;
    num_integers.set(object.made.integers.len() as c_int);
    num_addresses.set(object.made.addresses.len() as c_int);
    num_datatypes.set(object.made.types.len() as c_int);
    combiner.set(object.made.combiner);
    Ok(())
}

pub fn type_get_envelope_c(
    call: &Call<'_>,
    datatype: Type,
    num_integers: Out<i64>,
    num_addresses: Out<i64>,
    num_large_counts: Out<i64>,
    num_datatypes: Out<i64>,
    combiner: Out<c_int>,
) -> Result {
    let object = call.types.get(datatype)?;
    num_integers.set(object.made.integers.len() as i64);
    num_addresses.set(object.made.addresses.len() as i64);
    num_large_counts.set(object.made.counts.len() as i64);
    num_datatypes.set(object.made.types.len() as i64);
    combiner.set(object.made.combiner);
    Ok(())
}

/// Writes a list, if the program's array is long enough.
fn write_list<T: Copy>(values: &[T], room: i64, name: &'static str, to: ListOut<T>) -> Result {
    if room < values.len() as i64 {
        return Err(fail(MPI_ERR_ARG, format!("is {room}, but {} entries are returned", values.len())).named(name));
    }
    to.write(values)
}

pub fn type_get_contents_c(
    call: &Call<'_>,
    datatype: Type,
    max_integers: i64,
    max_addresses: i64,
    max_large_counts: i64,
    max_datatypes: i64,
    integers: ListOut<c_int>,
    addresses: ListOut<i64>,
    large_counts: ListOut<i64>,
    datatypes: ListOut<Type>,
) -> Result {
    let object = call.types.get(datatype)?;
    let made = &object.made;
    if made.combiner == MPI_COMBINER_NAMED {
        return Err(fail(MPI_ERR_TYPE, "is predefined, and has no contents").value(datatype.0));
    }
    write_list(&made.integers, max_integers, "max_integers", integers)?;
    write_list(&made.addresses, max_addresses, "max_addresses", addresses)?;
    write_list(&made.counts, max_large_counts, "max_large_counts", large_counts)?;
    if max_datatypes < made.types.len() as i64 {
        return write_list(
            &made.types.iter().map(|_| MPI_DATATYPE_NULL).collect::<Vec<_>>(),
            max_datatypes,
            "max_datatypes",
            datatypes,
        );
    }
    let handles: Vec<Type> = made.types.iter().map(|object| call.types.share(object)).collect();
    datatypes.write(&handles)
}

pub fn type_get_contents(
    call: &Call<'_>,
    datatype: Type,
    max_integers: c_int,
    max_addresses: c_int,
    max_datatypes: c_int,
    integers: ListOut<c_int>,
    addresses: ListOut<i64>,
    datatypes: ListOut<Type>,
) -> Result {
    check_small(&*call.types.get(datatype)?, datatype)?;
    let no_counts = ListOut::default();
    let room = [max_integers, max_addresses, max_datatypes].map(i64::from);
    type_get_contents_c(call, datatype, room[0], room[1], 0, room[2], integers, addresses, no_counts, datatypes)
}
