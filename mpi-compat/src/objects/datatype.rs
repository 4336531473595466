//! Datatypes: layouts of `farside_datatype` with a name, attributes and their constructor call.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::rc::Rc;

use farside_datatype::{Datatype, Named, TypeMap};

use super::{Atomics, Attributes};
use crate::constants::*;
use crate::handle::{Known, Objects};

/// A datatype.
pub struct TypeObject {
    pub layout: Datatype,
    /// The size, if elements are contiguous and begin at the buffer's address.
    pub plain: Option<u64>,
    pub committed: Cell<bool>,
    /// The constructor and its arguments.
    pub made: ConstructorCall,
    pub name: RefCell<Vec<u8>>,
    pub attributes: Attributes,
    pub handle: Cell<usize>,
}

/// A constructor and its arguments, in the order in which `MPI_Type_get_contents` returns them.
#[derive(Clone, Default)]
pub struct ConstructorCall {
    pub combiner: c_int,
    /// Whether the form with large counts was called.
    pub large: bool,
    pub integers: Vec<c_int>,
    pub addresses: Vec<i64>,
    pub counts: Vec<i64>,
    pub types: Vec<Rc<TypeObject>>,
}

impl Known for TypeObject {
    fn handle(&self) -> &Cell<usize> {
        &self.handle
    }
}

impl TypeObject {
    pub fn new(layout: Datatype, made: ConstructorCall) -> Rc<Self> {
        let (committed, name, attributes, handle) = Default::default();
        let starts_at = |map: TypeMap| map.is_contiguous() && map.true_lb() == 0;
        let plain =
            layout.lb() == 0 && layout.extent() as u64 == layout.size() && layout.message(1).is_ok_and(starts_at);
        let plain = plain.then(|| layout.size());
        Rc::new(Self { layout, plain, committed, made, name, attributes, handle })
    }

    /// A type that is committed and never freed, such as a predefined type.
    pub fn predefined(layout: Datatype, made: ConstructorCall, name: &str) -> Rc<Self> {
        let object = Self::new(layout, made);
        object.committed.set(true);
        *object.name.borrow_mut() = name.into();
        object
    }

    pub fn is_predefined(&self) -> bool {
        let by_name = [MPI_COMBINER_NAMED, MPI_COMBINER_VALUE_INDEX].contains(&self.made.combiner);
        by_name
            || [MPI_COMBINER_F90_REAL, MPI_COMBINER_F90_COMPLEX, MPI_COMBINER_F90_INTEGER].contains(&self.made.combiner)
    }
}

/// The predefined types.
pub fn predefined() -> (Objects<Type, TypeObject>, PlainTypes) {
    let (types, mut plain) = (Objects::default(), PlainTypes::default());
    for (name, value) in DATATYPES {
        let same = |named: &&Named| {
            named.mpi_name() == *name || (named.mpi_name() == "MPI_LONG_LONG_INT" && *name == "MPI_LONG_LONG")
        };
        if let Some(named) = Named::ALL.iter().find(same) {
            let made = ConstructorCall { combiner: MPI_COMBINER_NAMED, ..ConstructorCall::default() };
            // This type has two names; the standard calls the other name a synonym of this one.
            let shown = if *named == Named::CFloatComplex { "MPI_C_COMPLEX" } else { named.mpi_name() };
            let object = TypeObject::predefined((*named).into(), made, shown);
            object.handle.set(*value);
            if let (Some(place), Some(size)) = (plain.0.get_mut(value - FIRST), object.plain) {
                *place = PlainType { size: size as u8, atomics: Atomics::of(*named) };
            }
            types.set_predefined(Type(*value), Some(object));
        }
    }
    (types, plain)
}

/// The first handle of predefined types, and the maximum number of them.
const FIRST: usize = 0x200;
const HANDLES: usize = 0x100;

/// The predefined types without gaps, by their handles.
pub struct PlainTypes([PlainType; HANDLES]);

/// A predefined type without gaps. One word long, so that its address is a scaled index.
#[derive(Clone, Copy)]
#[repr(align(8))]
struct PlainType {
    /// 0 for other types.
    size: u8,
    atomics: Option<Atomics>,
}

impl Default for PlainTypes {
    fn default() -> Self {
        Self([PlainType { size: 0, atomics: None }; HANDLES])
    }
}

impl PlainTypes {
    #[inline(always)]
    fn get(&self, datatype: Type) -> Option<PlainType> {
        self.0.get(datatype.0.wrapping_sub(FIRST)).copied()
    }

    /// The atomic operations on an element of a predefined type.
    #[inline(always)]
    pub fn atomics(&self, datatype: Type) -> Option<Atomics> {
        self.get(datatype)?.atomics
    }

    /// The bytes of `n` elements of a predefined type without gaps; `None` for other types and if `n` is less than 1 or
    /// very large.
    #[inline(always)]
    pub fn size(&self, n: i64, datatype: Type) -> Option<usize> {
        let size = self.get(datatype)?.size;
        // The limit keeps the product from overflowing; a negative number exceeds it.
        if n as u64 >= 1 << 40 {
            return None;
        }
        Some(n as usize * usize::from(size)).filter(|len| *len > 0)
    }
}
