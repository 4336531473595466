//! Operands of calls, as their arguments describe them: buffers, peers, and remote memory.

use std::ffi::{c_int, c_void};

use crate::arguments::{List, Longs, check_buffer, is_constant, no_buffer};
use crate::constants::*;
use crate::fail::{Fail, fail};
use crate::handle::{Comm, Type, Win};

/// An address in the program's memory, with the names of its parameter and of the corresponding count parameter.
#[derive(Clone, Copy)]
pub struct Address {
    at: *mut c_void,
    names: &'static [&'static str; 2],
}

impl Address {
    #[inline(always)]
    pub const fn new(at: *const c_void, names: &'static [&'static str; 2]) -> Self {
        Self { at: at.cast_mut(), names }
    }

    #[inline(always)]
    pub fn at(self) -> *mut u8 {
        self.at.cast()
    }

    /// The name of the parameter.
    pub fn name(self) -> &'static str {
        self.names[0]
    }

    /// The name of the parameter that counts the elements.
    pub fn count(self) -> &'static str {
        self.names[1]
    }

    pub fn is_in_place(self) -> bool {
        self.at.addr() == MPI_IN_PLACE
    }

    /// Whether the address is null or a constant such as `MPI_IN_PLACE`, and so not the address of data.
    #[inline(always)]
    pub fn is_constant(self) -> bool {
        is_constant(self.at)
    }

    /// Checks that `bytes` bytes of data may begin `first` bytes after this address. Null is accepted if `first` is not
    /// 0, since the displacements of such a type may be absolute addresses.
    #[inline(always)]
    pub fn check(self, bytes: u64, first: i64) -> Result<(), Fail> {
        if self.is_constant() && bytes > 0 { check_buffer(self.at, first != 0, self.name()) } else { Ok(()) }
    }

    /// Rejects `MPI_IN_PLACE`, even if there are no elements.
    pub fn check_not_in_place(self) -> Result<(), Fail> {
        if self.is_in_place() { Err(no_buffer(self.at, self.name())) } else { Ok(()) }
    }

    /// The error of `n` elements that exceed the address space.
    #[cold]
    pub fn too_far(self, n: u64) -> Fail {
        fail(MPI_ERR_COUNT, format!("is {n}: count times extent exceeds the address space")).named(self.count())
    }
}

/// Elements of one type in the program's memory, as a call describes them.
#[derive(Clone, Copy)]
pub struct Buffer {
    pub address: Address,
    pub n: i64,
    pub datatype: Type,
}

impl Buffer {
    #[inline(always)]
    pub const fn new(at: *const c_void, n: i64, datatype: Type, names: &'static [&'static str; 2]) -> Self {
        Self { address: Address::new(at, names), n, datatype }
    }

    /// A copy to pass to a function that is not inlined, so that the original can stay in registers on other paths.
    #[inline(always)]
    pub fn copied(self) -> Self {
        Self::new(self.address.at, self.n, self.datatype, self.address.names)
    }
}

/// Blocks of elements in the program's memory, each with a count and a displacement.
#[derive(Clone, Copy)]
pub struct Blocks {
    pub address: Address,
    pub counts: Longs,
    pub displs: Longs,
    pub types: Types,
}

/// The types of blocks: one type, whose extent is the unit of displacements; or a type for each block, and
/// displacements in bytes.
#[derive(Clone, Copy)]
pub enum Types {
    One(Type),
    Each(List<Type>),
}

impl Blocks {
    pub fn new(
        at: *const c_void,
        counts: Longs,
        displs: impl Into<Longs>,
        types: Types,
        names: &'static [&'static str; 2],
    ) -> Self {
        Self { address: Address::new(at, names), counts, displs: displs.into(), types }
    }
}

/// The other side of a message, as a call describes it.
#[derive(Clone, Copy)]
pub struct Peer {
    pub rank: c_int,
    pub tag: c_int,
    pub comm: Comm,
    /// The names of the parameters of the rank and the tag.
    pub names: &'static [&'static str; 2],
}

impl Peer {
    #[inline(always)]
    pub fn new(rank: c_int, tag: c_int, comm: Comm, names: &'static [&'static str; 2]) -> Self {
        Self { rank, tag, comm, names }
    }
}

/// Elements of one type at a target of a window, as a call describes them.
#[derive(Clone, Copy)]
pub struct Place {
    pub rank: c_int,
    pub displacement: i64,
    pub n: i64,
    pub datatype: Type,
    pub win: Win,
}

impl Place {
    #[inline(always)]
    pub fn new(rank: c_int, displacement: i64, n: i64, datatype: Type, win: Win) -> Self {
        Self { rank, displacement, n, datatype, win }
    }
}
