//! Datatypes (MPI-5.0 chapter 5): objects over `farside_datatype`, which has the layouts.

mod constructors;
mod contents;
pub mod elements;
mod f90;
mod query;

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::rc::Rc;

use farside_datatype::{Datatype, Named, TypeMap};

use crate::arguments::{Out, Text, TextOut};
use crate::attributes::Attributes;
use crate::comm::name_of;
use crate::constants::*;
use crate::fail::{Fail, Result, fail};
use crate::handle::{Handle, Known, Type};
use crate::rma::Atomics;
use crate::runtime::{Call, Runtime};

pub use constructors::*;
pub use contents::*;
pub use f90::*;
pub use query::*;

/// A datatype.
pub struct TypeObject {
    pub layout: Datatype,
    /// The size, if any number of elements is as many bytes one behind the other from the buffer's address on.
    pub plain: Option<u64>,
    pub committed: Cell<bool>,
    /// The constructor and its arguments.
    pub made: Made,
    pub name: RefCell<Vec<u8>>,
    pub attributes: Attributes,
    handle: Cell<usize>,
}

/// A constructor and its arguments, in the order in which `MPI_Type_get_contents` gives them.
#[derive(Clone, Default)]
pub struct Made {
    combiner: c_int,
    /// By the form with large counts.
    large: bool,
    integers: Vec<c_int>,
    addresses: Vec<i64>,
    counts: Vec<i64>,
    types: Vec<Rc<TypeObject>>,
}

impl Known for TypeObject {
    fn handle(&self) -> &Cell<usize> {
        &self.handle
    }
}

impl TypeObject {
    fn new(layout: Datatype, made: Made) -> Rc<Self> {
        let (committed, name, attributes, handle) = Default::default();
        let starts_at = |map: TypeMap| map.is_contiguous() && map.true_lb() == 0;
        let plain =
            layout.lb() == 0 && layout.extent() as u64 == layout.size() && layout.message(1).is_ok_and(starts_at);
        let plain = plain.then(|| layout.size());
        Rc::new(Self { layout, plain, committed, made, name, attributes, handle })
    }

    /// A type that is there from the start, or as if it were: committed, and never freed.
    fn predefined(layout: Datatype, made: Made, name: &str) -> Rc<Self> {
        let object = Self::new(layout, made);
        object.committed.set(true);
        *object.name.borrow_mut() = name.into();
        object
    }

    fn is_predefined(&self) -> bool {
        let by_name = [MPI_COMBINER_NAMED, MPI_COMBINER_VALUE_INDEX].contains(&self.made.combiner);
        by_name
            || [MPI_COMBINER_F90_REAL, MPI_COMBINER_F90_COMPLEX, MPI_COMBINER_F90_INTEGER].contains(&self.made.combiner)
    }
}

/// Makes the predefined types.
pub fn predefined(runtime: &Runtime) {
    for (name, value) in DATATYPES {
        let same = |named: &&Named| {
            named.mpi_name() == *name || (named.mpi_name() == "MPI_LONG_LONG_INT" && *name == "MPI_LONG_LONG")
        };
        if let Some(named) = Named::ALL.iter().find(same) {
            let made = Made { combiner: MPI_COMBINER_NAMED, ..Made::default() };
            let object = TypeObject::predefined((*named).into(), made, named.mpi_name());
            object.handle.set(*value);
            if let (Some(place), Some(size)) = (runtime.plain.0.get(value - FIRST), object.plain) {
                place.set((size as u8, Atomics::of(*named)));
            }
            runtime.types.fix(Type(*value), Some(object));
        }
    }
}

/// First handle of predefined types, and how many there may be.
const FIRST: usize = 0x200;
const HANDLES: usize = 0x100;

/// Of each predefined type that has no gaps the bytes of an element, and its atomic operations; 0 for other types.
pub struct PlainTypes([Cell<(u8, Option<Atomics>)>; HANDLES]);

impl Default for PlainTypes {
    fn default() -> Self {
        Self([const { Cell::new((0, None)) }; HANDLES])
    }
}

impl PlainTypes {
    /// The atomic operations on an element of a predefined type.
    #[inline(always)]
    pub fn atomics(&self, datatype: Type) -> Option<Atomics> {
        self.0.get(datatype.0.wrapping_sub(FIRST))?.get().1
    }

    /// The bytes of `n` elements, at least one, of a predefined type that has no gaps.
    #[inline(always)]
    pub fn size(&self, n: i64, datatype: Type) -> Option<usize> {
        let size = self.0.get(datatype.0.wrapping_sub(FIRST))?.get().0 as usize;
        // Far from where the product could overflow.
        let some = n > 0 && n < 1 << 40 && size > 0;
        some.then(|| n as usize * size)
    }
}

/// A type that data is sent, received or packed with: committed.
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
    let made = Made { combiner: MPI_COMBINER_DUP, types: vec![Rc::clone(&old)], ..Made::default() };
    // A duplicate of a predefined type is an element like it, with all operators of that.
    let new = TypeObject::new(old.layout.clone(), made);
    new.committed.set(old.committed.get());
    old.attributes.copy_to(oldtype.0, &new.attributes)?;
    newtype.set(call.types.share(&new));
    Ok(())
}

pub fn type_set_name(call: &Call<'_>, datatype: Type, type_name: Text) -> Result {
    let object = call.types.get(datatype)?;
    *object.name.borrow_mut() = name_of(type_name)?;
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
