//! Types by precision and by size, and pairs (MPI-5.0 sections 5.1.14, 6.9.4 and 18.1).

use std::ffi::c_int;
use std::rc::Rc;

use farside_datatype::Named;

use crate::arguments::Out;
use crate::constants::*;
use crate::fail::{Result, fail};
use crate::handle::Type;
use crate::objects::{ConstructorCall, TypeObject};
use crate::runtime::Call;

/// The decimal digits and the maximum exponent of each real type and its complex type.
const REALS: [(c_int, c_int, Named, Named); 3] = [
    (6, 37, Named::Real4, Named::Complex8),
    (15, 307, Named::Real8, Named::Complex16),
    (33, 4931, Named::Real16, Named::Complex32),
];
/// The decimal digits of each integer type.
const INTEGERS: [(c_int, Named); 5] =
    [(2, Named::Integer1), (4, Named::Integer2), (9, Named::Integer4), (18, Named::Integer8), (38, Named::Integer16)];

/// The type that a selection returns: the same handle for the same arguments.
fn select(call: &Call<'_>, key: [c_int; 3], arguments: &[c_int], named: Named, newtype: Out<Type>) -> Result {
    let known = call.f90.borrow().iter().find(|(other, _)| *other == key).map(|(_, object)| Rc::clone(object));
    let object = known.unwrap_or_else(|| {
        let made = ConstructorCall { combiner: key[0], integers: arguments.to_vec(), ..ConstructorCall::default() };
        let object = TypeObject::predefined(named.into(), made, "");
        call.f90.borrow_mut().push((key, Rc::clone(&object)));
        object
    });
    newtype.set(call.types.share(&object));
    Ok(())
}

fn real(
    call: &Call<'_>,
    combiner: c_int,
    p: c_int,
    r: c_int,
    pick: fn(&(c_int, c_int, Named, Named)) -> Named,
    newtype: Out<Type>,
) -> Result {
    if p == MPI_UNDEFINED && r == MPI_UNDEFINED {
        return Err(fail(MPI_ERR_ARG, "and r are both MPI_UNDEFINED").named("p"));
    }
    let enough = |wanted: c_int, has: c_int| wanted == MPI_UNDEFINED || wanted <= has;
    let negative = |value: c_int| value < 0 && value != MPI_UNDEFINED;
    if negative(p) || negative(r) {
        return Err(fail(MPI_ERR_ARG, format!("is {p} and r is {r}, but neither may be negative")).named("p"));
    }
    let Some(found) = REALS.iter().find(|(digits, range, ..)| enough(p, *digits) && enough(r, *range)) else {
        return Err(
            fail(MPI_ERR_ARG, format!("is {p} and r is {r}, but no type has this precision and range")).named("p")
        );
    };
    select(call, [combiner, p, r], &[p, r], pick(found), newtype)
}

pub fn type_create_f90_real(call: &Call<'_>, p: c_int, r: c_int, newtype: Out<Type>) -> Result {
    real(call, MPI_COMBINER_F90_REAL, p, r, |row| row.2, newtype)
}

pub fn type_create_f90_complex(call: &Call<'_>, p: c_int, r: c_int, newtype: Out<Type>) -> Result {
    real(call, MPI_COMBINER_F90_COMPLEX, p, r, |row| row.3, newtype)
}

pub fn type_create_f90_integer(call: &Call<'_>, r: c_int, newtype: Out<Type>) -> Result {
    match INTEGERS.iter().find(|(digits, _)| (0..=*digits).contains(&r)) {
        Some((_, named)) => select(call, [MPI_COMBINER_F90_INTEGER, r, 0], &[r], *named, newtype),
        None => Err(fail(MPI_ERR_ARG, format!("is {r}, but no integer type has this many decimal digits")).named("r")),
    }
}

pub fn type_match_size(_: &Call<'_>, typeclass: c_int, size: c_int, datatype: Out<Type>) -> Result {
    let sizes: &[(c_int, Type)] = match typeclass {
        MPI_TYPECLASS_INTEGER => {
            &[(1, MPI_INTEGER1), (2, MPI_INTEGER2), (4, MPI_INTEGER4), (8, MPI_INTEGER8), (16, MPI_INTEGER16)]
        }
        MPI_TYPECLASS_REAL => &[(2, MPI_REAL2), (4, MPI_REAL4), (8, MPI_REAL8), (16, MPI_REAL16)],
        MPI_TYPECLASS_COMPLEX => &[(4, MPI_COMPLEX4), (8, MPI_COMPLEX8), (16, MPI_COMPLEX16), (32, MPI_COMPLEX32)],
        _ => return Err(fail(MPI_ERR_ARG, format!("is {typeclass}, not a type class")).named("typeclass")),
    };
    match sizes.iter().find(|(bytes, _)| *bytes == size) {
        Some((_, found)) => datatype.set(*found),
        None => {
            return Err(
                fail(MPI_ERR_ARG, format!("is {size}, but the type class has no type of this size")).named("size")
            );
        }
    }
    Ok(())
}

/// The pair types that have a name in C and in Fortran.
const PAIRS: [(Type, Type, Type); 9] = [
    (MPI_FLOAT, MPI_INT, MPI_FLOAT_INT),
    (MPI_DOUBLE, MPI_INT, MPI_DOUBLE_INT),
    (MPI_LONG, MPI_INT, MPI_LONG_INT),
    (MPI_INT, MPI_INT, MPI_2INT),
    (MPI_SHORT, MPI_INT, MPI_SHORT_INT),
    (MPI_LONG_DOUBLE, MPI_INT, MPI_LONG_DOUBLE_INT),
    (MPI_REAL, MPI_REAL, MPI_2REAL),
    (MPI_DOUBLE_PRECISION, MPI_DOUBLE_PRECISION, MPI_2DOUBLE_PRECISION),
    (MPI_INTEGER, MPI_INTEGER, MPI_2INTEGER),
];

pub fn type_get_value_index(call: &Call<'_>, value_type: Type, index_type: Type, pair_type: Out<Type>) -> Result {
    call.types.get(value_type)?;
    call.types.get(index_type)?;
    let found = PAIRS.iter().find(|(value, index, _)| *value == value_type && *index == index_type);
    pair_type.set(found.map_or(MPI_DATATYPE_NULL, |(.., pair)| *pair));
    Ok(())
}
