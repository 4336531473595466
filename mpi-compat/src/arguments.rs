#![allow(unsafe_code)]
//! Parameters as the exported functions hand them on: pointers that are checked for null, and counts of either width.
//!
//! All of them stand for pointers of the running call, and are valid as long as it runs; that is the promise of who makes
//! them (`exports.rs`).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

use crate::constants::*;
pub use crate::constants::{Callback, Opaque};
use crate::fail::{Fail, fail};

#[cold]
fn null(name: &'static str) -> Fail {
    fail(MPI_ERR_ARG, "is a null pointer").named(name)
}

/// Where a result goes, or a value that is changed.
#[derive(Clone, Copy)]
pub struct Out<T>(NonNull<T>);

impl<T: Copy> Out<T> {
    /// # Safety
    /// The pointer is null, or valid for reads and writes while the call runs.
    #[inline]
    pub unsafe fn new(pointer: *mut T, name: &'static str) -> Result<Self, Fail> {
        NonNull::new(pointer).map(Self).ok_or_else(|| null(name))
    }

    #[inline]
    pub fn set(self, value: T) {
        // SAFETY: the promise of `new`; C programs need not align.
        unsafe { self.0.write_unaligned(value) }
    }

    #[inline]
    pub fn get(self) -> T {
        // SAFETY: the promise of `new`.
        unsafe { self.0.read_unaligned() }
    }
}

/// A value that is only read.
#[derive(Clone, Copy)]
pub struct In<T>(NonNull<T>);

impl<T: Copy> In<T> {
    /// # Safety
    /// The pointer is null, or valid for reads while the call runs.
    #[inline]
    pub unsafe fn new(pointer: *const T, name: &'static str) -> Result<Self, Fail> {
        NonNull::new(pointer.cast_mut()).map(Self).ok_or_else(|| null(name))
    }

    #[inline]
    pub fn get(self) -> T {
        // SAFETY: the promise of `new`.
        unsafe { self.0.read_unaligned() }
    }
}

/// A list that is only read; its length is another parameter.
#[derive(Clone, Copy)]
pub struct List<T>(*const T, &'static str);

impl<T: Copy> List<T> {
    /// # Safety
    /// The pointer is null, or valid for reads of as many elements as the length says while the call runs.
    #[inline]
    pub unsafe fn new(pointer: *const T, name: &'static str) -> Self {
        Self(pointer, name)
    }

    /// The elements.
    pub fn read(self, len: i64) -> Result<Vec<T>, Fail> {
        self.read_as(len)
    }

    /// The elements, converted.
    fn read_as<U: From<T>>(self, len: i64) -> Result<Vec<U>, Fail> {
        let len = length(len, self.0.is_null(), self.1)?;
        let mut list = list_of(len, self.1)?;
        // SAFETY: the promise of `new`, and `i < len`.
        list.extend((0..len).map(|i| U::from(unsafe { self.0.add(i).read_unaligned() })));
        Ok(list)
    }

    /// Element `at` of `len`.
    #[inline]
    pub fn get(self, at: usize, len: usize) -> Result<T, Fail> {
        assert!(at < len);
        if self.0.is_null() {
            return Err(null(self.1));
        }
        // SAFETY: the promise of `new`, and `at < len`.
        Ok(unsafe { self.0.add(at).read_unaligned() })
    }

    /// The name of the parameter.
    pub fn name(self) -> &'static str {
        self.1
    }

    /// Its address, which may stand for something else.
    pub fn address(self) -> usize {
        self.0.addr()
    }
}

/// A list that is written.
#[derive(Clone, Copy)]
pub struct ListOut<T>(*mut T, &'static str);

impl<T> Default for ListOut<T> {
    /// An empty list.
    fn default() -> Self {
        Self(std::ptr::null_mut(), "")
    }
}

impl<T: Copy> ListOut<T> {
    /// # Safety
    /// The pointer is null, or valid for reads and writes of as many elements as the length says while the call runs.
    #[inline]
    pub unsafe fn new(pointer: *mut T, name: &'static str) -> Self {
        Self(pointer, name)
    }

    /// Its address, which may stand for something else.
    pub fn address(self) -> usize {
        self.0.addr()
    }

    /// The elements as they are.
    pub fn read(self, len: i64) -> Result<Vec<T>, Fail> {
        self.as_list().read(len)
    }

    /// The same without the right to write them.
    pub fn as_list(self) -> List<T> {
        List(self.0.cast_const(), self.1)
    }

    pub fn write(self, values: &[T]) -> Result<(), Fail> {
        let len = length(values.len() as i64, self.0.is_null(), self.1)?;
        for (i, value) in values.iter().enumerate().take(len) {
            // SAFETY: the promise of `new`: callers write no more than the length.
            unsafe { self.0.add(i).write_unaligned(*value) };
        }
        Ok(())
    }
}

fn length(len: i64, is_null: bool, name: &'static str) -> Result<usize, Fail> {
    if is_null && len > 0 {
        return Err(null(name));
    }
    usize::try_from(len).map_err(|_| fail(MPI_ERR_ARG, format!("has a length of {len}")).named(name))
}

#[derive(Clone, Copy)]
enum Width<T, U> {
    Int(T),
    Long(U),
}

/// A list of counts or displacements: `int` in one form of the function, 64 bits in the other.
#[derive(Clone, Copy)]
pub struct Longs(Width<List<c_int>, List<i64>>);

impl From<List<i64>> for Longs {
    fn from(list: List<i64>) -> Self {
        Self(Width::Long(list))
    }
}

impl Longs {
    /// # Safety
    /// As for [`List::new`].
    #[inline]
    pub unsafe fn int(pointer: *const c_int, name: &'static str) -> Self {
        Self(Width::Int(List(pointer, name)))
    }

    /// # Safety
    /// As for [`List::new`].
    #[inline]
    pub unsafe fn long(pointer: *const i64, name: &'static str) -> Self {
        Self(Width::Long(List(pointer, name)))
    }

    pub fn read(self, len: i64) -> Result<Vec<i64>, Fail> {
        match self.0 {
            Width::Int(list) => list.read_as(len),
            Width::Long(list) => list.read(len),
        }
    }

    /// The elements, none of them negative.
    pub fn counts(self, len: i64) -> Result<Vec<u64>, Fail> {
        let name = match self.0 {
            Width::Int(list) => list.name(),
            Width::Long(list) => list.name(),
        };
        let values = self.read(len)?;
        let negative = values.iter().position(|value| *value < 0);
        match negative {
            Some(at) => Err(fail(MPI_ERR_COUNT, format!("element {at} is {}", values[at])).named(name)),
            None => Ok(values.into_iter().map(|value| value as u64).collect()),
        }
    }
}

/// Where one count goes, of either width.
#[derive(Clone, Copy)]
pub struct LongOut(Width<Out<c_int>, Out<i64>>, &'static str);

impl LongOut {
    /// # Safety
    /// As for [`Out::new`].
    #[inline]
    pub unsafe fn int(pointer: *mut c_int, name: &'static str) -> Result<Self, Fail> {
        // SAFETY: the caller's promise.
        Ok(Self(Width::Int(unsafe { Out::new(pointer, name)? }), name))
    }

    /// # Safety
    /// As for [`Out::new`].
    #[inline]
    pub unsafe fn long(pointer: *mut i64, name: &'static str) -> Result<Self, Fail> {
        // SAFETY: the caller's promise.
        Ok(Self(Width::Long(unsafe { Out::new(pointer, name)? }), name))
    }

    #[inline]
    pub fn get(self) -> i64 {
        match self.0 {
            Width::Int(out) => out.get().into(),
            Width::Long(out) => out.get(),
        }
    }

    /// Writes it, unless it does not fit an `int` that is asked for.
    pub fn set(self, value: i64) -> Result<(), Fail> {
        match self.0 {
            Width::Int(out) => out.set(c_int::try_from(value).map_err(|_| {
                fail(MPI_ERR_VALUE_TOO_LARGE, format!("{value} does not fit an int; call the _c form")).named(self.1)
            })?),
            Width::Long(out) => out.set(value),
        }
        Ok(())
    }

    /// Writes it, or `MPI_UNDEFINED` if there is no value or it does not fit.
    pub fn set_or_undefined(self, value: Option<u64>) {
        match self.0 {
            Width::Int(out) => out.set(value.and_then(|value| value.try_into().ok()).unwrap_or(MPI_UNDEFINED)),
            Width::Long(out) => out.set(value.and_then(|value| value.try_into().ok()).unwrap_or(MPI_UNDEFINED.into())),
        }
    }
}

/// Where the statuses of a call go; `MPI_STATUS_IGNORE`, the null pointer, stands for nowhere.
#[derive(Clone, Copy)]
pub struct StatusOut(*mut Status);

impl StatusOut {
    pub const IGNORE: Self = Self(std::ptr::null_mut());

    /// # Safety
    /// The pointer is null, or valid for reads and writes of as many statuses as the call sets while it runs.
    #[inline]
    pub unsafe fn new(pointer: *mut Status) -> Self {
        Self(pointer)
    }

    /// The place of number `i`.
    #[inline]
    pub fn at(self, i: usize) -> Self {
        if self.0.is_null() { self } else { Self(self.0.wrapping_add(i)) }
    }

    /// Sets all but the error, which only functions that complete several requests set.
    #[inline]
    pub fn set(self, mut status: Status) {
        if !self.0.is_null() {
            // SAFETY: the promise of `new`; C programs need not align.
            unsafe {
                status.error = (&raw const (*self.0).error).read_unaligned();
                self.0.write_unaligned(status);
            }
        }
    }

    /// The status of a call that completes nothing, since all requests are null or inactive: its error is `MPI_SUCCESS`.
    pub fn set_empty(self) {
        self.set_with(Status::EMPTY, Status::EMPTY.error);
    }

    /// Sets the error alone.
    pub fn set_error(self, error: c_int) {
        if !self.0.is_null() {
            // SAFETY: the promise of `new`.
            unsafe { (&raw mut (*self.0).error).write_unaligned(error) }
        }
    }

    /// Sets the error too.
    pub fn set_with(self, mut status: Status, error: c_int) {
        status.error = error;
        if !self.0.is_null() {
            // SAFETY: the promise of `new`.
            unsafe { self.0.write_unaligned(status) }
        }
    }
}

/// A string.
#[derive(Clone, Copy)]
pub struct Text(*const c_char, &'static str);

impl Text {
    /// # Safety
    /// The pointer is null, or a string that ends with a null byte, while the call runs.
    #[inline]
    pub unsafe fn new(pointer: *const c_char, name: &'static str) -> Self {
        Self(pointer, name)
    }

    /// Its bytes, which are no UTF-8 by necessity.
    pub fn read(self) -> Result<Vec<u8>, Fail> {
        if self.0.is_null() {
            return Err(null(self.1));
        }
        // SAFETY: the promise of `new`.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_bytes().to_vec())
    }

    /// The name of an object, cut to what programs have room for.
    pub fn object_name(self) -> Result<Vec<u8>, Fail> {
        let mut name = self.read()?;
        name.truncate(MPI_MAX_OBJECT_NAME - 1);
        Ok(name)
    }

    /// The name of the parameter.
    pub fn name(self) -> &'static str {
        self.1
    }
}

/// A buffer for a string.
#[derive(Clone, Copy)]
pub struct TextOut(*mut c_char, &'static str);

impl TextOut {
    /// # Safety
    /// The pointer is null, or valid for writes of as many bytes as the function asks for.
    #[inline]
    pub unsafe fn new(pointer: *mut c_char, name: &'static str) -> Self {
        Self(pointer, name)
    }

    /// Writes as much of a text as `room` bytes hold with the null byte, and returns how much that was without it.
    pub fn write(self, text: &[u8], room: usize) -> Result<usize, Fail> {
        if room == 0 {
            return Ok(0);
        }
        if self.0.is_null() {
            return Err(null(self.1));
        }
        let len = text.len().min(room - 1);
        // SAFETY: the promise of `new`: callers give the room that the standard asks for.
        unsafe {
            self.0.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), len);
            self.0.add(len).write(0);
        }
        Ok(len)
    }
}

/// The strings of a C array without end mark.
///
/// # Safety
/// `argv` is null or has `argc` strings.
pub unsafe fn strings(argc: c_int, argv: *mut *mut c_char) -> Vec<Vec<u8>> {
    if argv.is_null() {
        return Vec::new();
    }
    let at = |i: c_int| {
        // SAFETY: the caller's promise.
        let text = unsafe { *argv.add(i as usize) };
        // SAFETY: as above.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes().to_vec())
    };
    (0..argc.max(0)).map_while(at).collect()
}

/// Whether an address is the null pointer or a constant that stands for something else, and so no place of data.
#[inline(always)]
pub fn is_constant(address: *const c_void) -> bool {
    address.addr() <= MPI_BUFFER_AUTOMATIC
}

/// Checks an address where data is. The null pointer is one if `absolute`: addresses of a type that begins elsewhere may be.
#[inline]
pub fn check_buffer(address: *const c_void, absolute: bool, name: &'static str) -> Result<(), Fail> {
    if !is_constant(address) || absolute && address.is_null() { Ok(()) } else { Err(no_buffer(address, name)) }
}

#[cold]
pub fn no_buffer(address: *const c_void, name: &'static str) -> Fail {
    let what = match address.addr() {
        MPI_IN_PLACE => "is MPI_IN_PLACE, which is not allowed here",
        MPI_BUFFER_AUTOMATIC => "is MPI_BUFFER_AUTOMATIC, which is not a buffer of data",
        _ => "is a null pointer",
    };
    fail(MPI_ERR_BUFFER, what).named(name)
}

/// A list with room for `len` elements, whose number the program gives.
pub fn list_of<T>(len: usize, name: &'static str) -> Result<Vec<T>, Fail> {
    let mut list = Vec::new();
    match list.try_reserve_exact(len) {
        Ok(()) => Ok(list),
        Err(_) => Err(fail(MPI_ERR_NO_MEM, format!("has {len} elements, more than memory holds")).named(name)),
    }
}

/// A count, which must not be negative.
#[inline]
pub fn count(value: i64, name: &'static str) -> Result<u64, Fail> {
    u64::try_from(value).map_err(|_| negative(value, name))
}

#[cold]
fn negative(value: i64, name: &'static str) -> Fail {
    fail(MPI_ERR_COUNT, format!("is {value}")).named(name)
}
