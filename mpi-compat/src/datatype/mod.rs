//! Datatypes (MPI-5.0 chapter 5).

mod constructors;
mod contents;
mod f90;
mod query;

use std::rc::Rc;

use crate::arguments::{Out, Text, TextOut};
use crate::constants::*;
use crate::fail::{Fail, Result, fail};
use crate::handle::{Handle, Type};
use crate::objects::{ConstructorCall, TypeObject};
use crate::runtime::Call;
use std::ffi::c_int;

pub use constructors::*;
pub use contents::*;
pub use f90::*;
pub use query::*;

/// A committed type, as communication and packing need it.
#[inline(always)]
pub fn committed(call: &Call<'_>, datatype: Type) -> Result<Rc<TypeObject>> {
    let object = call.types.get(datatype)?;
    if object.committed.get() { Ok(object) } else { Err(not_committed(datatype)) }
}

#[cold]
fn not_committed(datatype: Type) -> Fail {
    fail(MPI_ERR_TYPE, "is a datatype that was not committed").value(datatype.0)
}

pub fn type_commit(call: &Call<'_>, datatype: Out<Type>) -> Result {
    call.types.get(datatype.get()).map_err(|failed| failed.named("datatype"))?.committed.set(true);
    Ok(())
}

pub fn type_free(call: &Call<'_>, datatype: Out<Type>) -> Result {
    let handle = datatype.get();
    let object = call.types.get(handle).map_err(|failed| failed.named("datatype"))?;
    if object.is_predefined() {
        return Err(fail(MPI_ERR_TYPE, "is predefined, and cannot be freed").value(handle.0).named("datatype"));
    }
    if call.types.is_last(handle) {
        object.attributes.clear(handle.0)?;
    }
    call.types.release(handle)?;
    datatype.set(MPI_DATATYPE_NULL);
    Ok(())
}

pub fn type_dup(call: &Call<'_>, oldtype: Type, newtype: Out<Type>) -> Result {
    let old = call.types.get(oldtype)?;
    let made =
        ConstructorCall { combiner: MPI_COMBINER_DUP, types: vec![Rc::clone(&old)], ..ConstructorCall::default() };
    // A duplicate of a predefined type supports all operators of that type.
    let new = TypeObject::new(old.layout.clone(), made);
    new.committed.set(old.committed.get());
    old.attributes.copy_to(oldtype.0, &new.attributes)?;
    newtype.set(call.types.share(&new));
    Ok(())
}

pub fn type_set_name(call: &Call<'_>, datatype: Type, type_name: Text) -> Result {
    let object = call.types.get(datatype)?;
    *object.name.borrow_mut() = type_name.object_name()?;
    Ok(())
}

pub fn type_get_name(call: &Call<'_>, datatype: Type, type_name: TextOut, resultlen: Out<c_int>) -> Result {
    // The null handle has a name too.
    let name = match datatype.value() {
        Type::NULL => Type::NULL_NAME.into(),
        _ => call.types.get(datatype)?.name.borrow().clone(),
    };
    resultlen.set(type_name.write(&name, MPI_MAX_OBJECT_NAME)? as c_int);
    Ok(())
}
