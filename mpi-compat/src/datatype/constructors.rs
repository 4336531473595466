//! Constructors (MPI-5.0 section 5.1.2 to 5.1.4).

use std::ffi::c_int;
use std::rc::Rc;

use farside_datatype::{Darray, Datatype, Distribution, Order, Subarray};

use crate::arguments::{List, Longs, Out, count};
use crate::constants::*;
use crate::fail::{Fail, Result, fail};
use crate::handle::Type;
use crate::objects::{ConstructorCall, TypeObject};
use crate::runtime::Call;

impl ConstructorCall {
    fn new(call: &Call<'_>, combiner: c_int, types: &[Rc<TypeObject>]) -> Self {
        Self { combiner, large: call.large, types: types.to_vec(), ..Self::default() }
    }

    /// Adds counts or displacements in elements: integers, or large counts in the `_c` form.
    fn counts(mut self, values: impl IntoIterator<Item = i64>) -> Self {
        if self.large {
            self.counts.extend(values);
        } else {
            // The arguments were `int`, so the values fit.
            self.integers.extend(values.into_iter().map(|value| value as c_int));
        }
        self
    }

    /// Adds displacements in bytes: addresses, or large counts in the `_c` form.
    fn bytes(mut self, values: impl IntoIterator<Item = i64>) -> Self {
        if self.large {
            self.counts.extend(values)
        } else {
            self.addresses.extend(values)
        }
        self
    }

    /// Adds arguments that are integers in both forms.
    fn integers(mut self, values: impl IntoIterator<Item = c_int>) -> Self {
        self.integers.extend(values);
        self
    }
}

fn finish(
    call: &Call<'_>,
    layout: farside_datatype::Result<Datatype>,
    made: ConstructorCall,
    newtype: Out<Type>,
) -> Result {
    newtype.set(call.types.share(&TypeObject::new(layout?, made)));
    Ok(())
}

fn signed(values: &[u64]) -> impl Iterator<Item = i64> {
    values.iter().map(|value| *value as i64)
}

pub fn type_contiguous(call: &Call<'_>, n: i64, oldtype: Type, newtype: Out<Type>) -> Result {
    let old = call.types.get(oldtype)?;
    let layout = Datatype::contiguous(count(n, "count")?, &old.layout);
    finish(call, layout, ConstructorCall::new(call, MPI_COMBINER_CONTIGUOUS, &[old]).counts([n]), newtype)
}

pub fn type_vector(
    call: &Call<'_>,
    n: i64,
    blocklength: i64,
    stride: i64,
    oldtype: Type,
    newtype: Out<Type>,
) -> Result {
    let old = call.types.get(oldtype)?;
    let layout = Datatype::vector(count(n, "count")?, count(blocklength, "blocklength")?, stride, &old.layout);
    let made = ConstructorCall::new(call, MPI_COMBINER_VECTOR, &[old]).counts([n, blocklength, stride]);
    finish(call, layout, made, newtype)
}

pub fn type_create_hvector(
    call: &Call<'_>,
    n: i64,
    blocklength: i64,
    stride: i64,
    oldtype: Type,
    newtype: Out<Type>,
) -> Result {
    let old = call.types.get(oldtype)?;
    let layout = Datatype::hvector(count(n, "count")?, count(blocklength, "blocklength")?, stride, &old.layout);
    let made = ConstructorCall::new(call, MPI_COMBINER_HVECTOR, &[old]).counts([n, blocklength]).bytes([stride]);
    finish(call, layout, made, newtype)
}

pub fn type_indexed(
    call: &Call<'_>,
    n: i64,
    blocklengths: Longs,
    displacements: Longs,
    oldtype: Type,
    newtype: Out<Type>,
) -> Result {
    let old = call.types.get(oldtype)?;
    count(n, "count")?;
    let (lengths, places) = (blocklengths.counts(n)?, displacements.read(n)?);
    let layout = Datatype::indexed(&lengths, &places, &old.layout);
    let made =
        ConstructorCall::new(call, MPI_COMBINER_INDEXED, &[old]).counts([n]).counts(signed(&lengths)).counts(places);
    finish(call, layout, made, newtype)
}

pub fn type_create_hindexed(
    call: &Call<'_>,
    n: i64,
    blocklengths: Longs,
    displacements: List<i64>,
    oldtype: Type,
    newtype: Out<Type>,
) -> Result {
    let old = call.types.get(oldtype)?;
    count(n, "count")?;
    let (lengths, places) = (blocklengths.counts(n)?, displacements.read(n)?);
    let layout = Datatype::hindexed(&lengths, &places, &old.layout);
    let made =
        ConstructorCall::new(call, MPI_COMBINER_HINDEXED, &[old]).counts([n]).counts(signed(&lengths)).bytes(places);
    finish(call, layout, made, newtype)
}

pub fn type_create_indexed_block(
    call: &Call<'_>,
    n: i64,
    blocklength: i64,
    displacements: Longs,
    oldtype: Type,
    newtype: Out<Type>,
) -> Result {
    let old = call.types.get(oldtype)?;
    count(n, "count")?;
    let places = displacements.read(n)?;
    let layout = Datatype::indexed_block(count(blocklength, "blocklength")?, &places, &old.layout);
    let made = ConstructorCall::new(call, MPI_COMBINER_INDEXED_BLOCK, &[old]).counts([n, blocklength]).counts(places);
    finish(call, layout, made, newtype)
}

pub fn type_create_hindexed_block(
    call: &Call<'_>,
    n: i64,
    blocklength: i64,
    displacements: List<i64>,
    oldtype: Type,
    newtype: Out<Type>,
) -> Result {
    let old = call.types.get(oldtype)?;
    count(n, "count")?;
    let places = displacements.read(n)?;
    let layout = Datatype::hindexed_block(count(blocklength, "blocklength")?, &places, &old.layout);
    let made = ConstructorCall::new(call, MPI_COMBINER_HINDEXED_BLOCK, &[old]).counts([n, blocklength]).bytes(places);
    finish(call, layout, made, newtype)
}

pub fn type_create_struct(
    call: &Call<'_>,
    n: i64,
    blocklengths: Longs,
    displacements: List<i64>,
    types: List<Type>,
    newtype: Out<Type>,
) -> Result {
    count(n, "count")?;
    let (lengths, places) = (blocklengths.counts(n)?, displacements.read(n)?);
    let get = |handle| call.types.get(handle).map_err(|failed| failed.named(types.name()));
    let types = types.read(n)?.into_iter().map(get).collect::<Result<Vec<_>>>()?;
    let layouts: Vec<Datatype> = types.iter().map(|old| old.layout.clone()).collect();
    let layout = Datatype::structure(&lengths, &places, &layouts);
    let made =
        ConstructorCall::new(call, MPI_COMBINER_STRUCT, &types).counts([n]).counts(signed(&lengths)).bytes(places);
    finish(call, layout, made, newtype)
}

pub fn type_create_resized(call: &Call<'_>, oldtype: Type, lb: i64, extent: i64, newtype: Out<Type>) -> Result {
    let old = call.types.get(oldtype)?;
    let layout = Datatype::resized(&old.layout, lb, extent);
    finish(call, layout, ConstructorCall::new(call, MPI_COMBINER_RESIZED, &[old]).bytes([lb, extent]), newtype)
}

fn argument(name: &'static str, why: String) -> Fail {
    fail(MPI_ERR_ARG, why).named(name)
}

fn order_of(order: c_int) -> Result<Order> {
    match order {
        MPI_ORDER_C => Ok(Order::C),
        MPI_ORDER_FORTRAN => Ok(Order::Fortran),
        _ => Err(argument("order", format!("is {order}, neither MPI_ORDER_C nor MPI_ORDER_FORTRAN"))),
    }
}

/// The number of dimensions, which is at least one.
fn dims_of(ndims: c_int) -> Result<i64> {
    if ndims > 0 { Ok(ndims.into()) } else { Err(argument("ndims", format!("is {ndims}"))) }
}

/// Reads a list whose values are at least `least`.
fn at_least(values: &[i64], least: i64, name: &'static str) -> Result<Vec<u64>> {
    match values.iter().find(|value| **value < least) {
        Some(value) => Err(argument(name, format!("contains {value}, but values must be at least {least}"))),
        None => Ok(values.iter().map(|value| *value as u64).collect()),
    }
}

pub fn type_create_subarray(
    call: &Call<'_>,
    ndims: c_int,
    sizes: Longs,
    subsizes: Longs,
    starts: Longs,
    order: c_int,
    oldtype: Type,
    newtype: Out<Type>,
) -> Result {
    let old = call.types.get(oldtype)?;
    let n = dims_of(ndims)?;
    let (sizes, subsizes, starts) = (sizes.read(n)?, subsizes.read(n)?, starts.read(n)?);
    let array = Subarray {
        sizes: at_least(&sizes, 1, "array_of_sizes")?,
        subsizes: at_least(&subsizes, 1, "array_of_subsizes")?,
        starts: at_least(&starts, 0, "array_of_starts")?,
        order: order_of(order)?,
        old: old.layout.clone(),
    };
    let layout = Datatype::subarray(&array);
    let made = ConstructorCall::new(call, MPI_COMBINER_SUBARRAY, &[old]).integers([ndims]);
    let made = made.counts(sizes).counts(subsizes).counts(starts).integers([order]);
    finish(call, layout, made, newtype)
}

pub fn type_create_darray(
    call: &Call<'_>,
    size: c_int,
    rank: c_int,
    ndims: c_int,
    gsizes: Longs,
    distribs: List<c_int>,
    dargs: List<c_int>,
    psizes: List<c_int>,
    order: c_int,
    oldtype: Type,
    newtype: Out<Type>,
) -> Result {
    let old = call.types.get(oldtype)?;
    let n = dims_of(ndims)?;
    let (sizes, grid) = (gsizes.read(n)?, psizes.read(n)?);
    let (distributions, arguments) = (distribs.read(n)?, dargs.read(n)?);
    if size < 1 {
        return Err(argument("size", format!("is {size}, but at least 1 process is needed")));
    }
    if !(0..size).contains(&rank) {
        return Err(argument("rank", format!("is {rank}, but the {size} processes are numbered from 0")));
    }
    let deal = |(how, by): (&c_int, &c_int)| {
        let block = match *by {
            MPI_DISTRIBUTE_DFLT_DARG => None,
            by if by > 0 => Some(by as u64),
            by => return Err(argument("array_of_dargs", format!("has {by}"))),
        };
        match *how {
            MPI_DISTRIBUTE_NONE => Ok(Distribution::None),
            MPI_DISTRIBUTE_BLOCK => Ok(Distribution::Block(block)),
            MPI_DISTRIBUTE_CYCLIC => Ok(Distribution::Cyclic(block)),
            how => Err(argument("array_of_distribs", format!("has {how}"))),
        }
    };
    let wide: Vec<i64> = grid.iter().map(|p| i64::from(*p)).collect();
    let array = Darray {
        size: size as u64,
        rank: rank as u64,
        gsizes: at_least(&sizes, 1, "array_of_gsizes")?,
        distributions: distributions.iter().zip(&arguments).map(deal).collect::<Result<_>>()?,
        psizes: at_least(&wide, 1, "array_of_psizes")?,
        order: order_of(order)?,
        old: old.layout.clone(),
    };
    let layout = Datatype::darray(&array);
    let made = ConstructorCall::new(call, MPI_COMBINER_DARRAY, &[old]).integers([size, rank, ndims]).counts(sizes);
    let made = made.integers(distributions).integers(arguments).integers(grid).integers([order]);
    finish(call, layout, made, newtype)
}
