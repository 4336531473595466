#![allow(unsafe_code)]
//! Parameters in the form in which the exported functions pass them on: pointers that are checked for null, and counts
//! of either width.
//!
//! Each type wraps a pointer of the current call and is valid during that call; `exports.rs`, which constructs them,
//! guarantees this.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

use crate::constants::*;
pub use crate::constants::{Callback, Opaque};
use crate::fail::{Fail, fail};

#[cold]
fn null(name: &'static str) -> Fail {
    fail(MPI_ERR_ARG, "is a null pointer").named(name)
}

/// The address to which a result is written, or at which a value is changed.
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
        // SAFETY: the caller of `new` guarantees the pointer; C programs need not align.
        unsafe { self.0.write_unaligned(value) }
    }

    #[inline]
    pub fn get(self) -> T {
        // SAFETY: the caller of `new` guarantees the pointer.
        unsafe { self.0.read_unaligned() }
    }
}

/// The address of a read-only value.
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
        // SAFETY: the caller of `new` guarantees the pointer.
        unsafe { self.0.read_unaligned() }
    }
}

/// A read-only list; its length is another parameter.
#[derive(Clone, Copy)]
pub struct List<T>(*const T, &'static str);

impl<T: Copy> List<T> {
    /// # Safety
    /// The pointer is null, or valid for reads of the number of elements that the length gives while the call runs.
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
        // SAFETY: the caller of `new` guarantees `len` elements, and `i < len`.
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
        // SAFETY: the caller of `new` guarantees `len` elements, and `at < len`.
        Ok(unsafe { self.0.add(at).read_unaligned() })
    }

    /// The same list as a `ListOut`, for a function that does not write to it.
    pub fn as_list_out(self) -> ListOut<T> {
        ListOut(self.0.cast_mut(), self.1)
    }

    /// The name of the parameter.
    pub fn name(self) -> &'static str {
        self.1
    }

    /// The address, which may be a constant such as `MPI_IN_PLACE`.
    pub fn address(self) -> usize {
        self.0.addr()
    }
}

impl List<Request> {
    /// The first index from `from` on at which the elements differ from those of `known`, which has the same length.
    pub fn first_difference(self, from: usize, known: &[Request]) -> Result<Option<usize>, Fail> {
        /// The number of elements that one comparison covers.
        const BLOCK: usize = 64;
        length(known.len() as i64, self.0.is_null(), self.1)?;
        let mut at = from;
        while at < known.len() {
            let block = &known[at..known.len().min(at + BLOCK)];
            // SAFETY: the caller of `new` guarantees `known.len()` elements.
            let same = unsafe { libc::memcmp(self.0.add(at).cast(), block.as_ptr().cast(), size_of_val(block)) } == 0;
            if !same {
                // SAFETY: as above.
                let other = |i: &usize| unsafe { self.0.add(at + i).read_unaligned() } != block[*i];
                return Ok((0..block.len()).find(other).map(|i| at + i));
            }
            at += block.len();
        }
        Ok(None)
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
    /// The pointer is null, or valid for reads and writes of the number of elements that the length gives while the
    /// call runs.
    #[inline]
    pub unsafe fn new(pointer: *mut T, name: &'static str) -> Self {
        Self(pointer, name)
    }

    /// The address, which may be a constant such as `MPI_IN_PLACE`.
    pub fn address(self) -> usize {
        self.0.addr()
    }

    /// The current elements.
    pub fn read(self, len: i64) -> Result<Vec<T>, Fail> {
        self.as_list().read(len)
    }

    /// The same list, read-only.
    pub fn as_list(self) -> List<T> {
        List(self.0.cast_const(), self.1)
    }

    /// Writes element `at`, which has been read before.
    pub fn put(self, at: usize, value: T) {
        // SAFETY: the caller of `new` guarantees the elements, and `at` is below the length.
        unsafe { self.0.add(at).write_unaligned(value) };
    }

    pub fn write(self, values: &[T]) -> Result<(), Fail> {
        let len = length(values.len() as i64, self.0.is_null(), self.1)?;
        for (i, value) in values.iter().enumerate().take(len) {
            // SAFETY: the caller of `new` guarantees the elements; callers write no more than the length.
            unsafe { self.0.add(i).write_unaligned(*value) };
        }
        Ok(())
    }
}

fn length(len: i64, is_null: bool, name: &'static str) -> Result<usize, Fail> {
    if is_null && len > 0 {
        return Err(null(name));
    }
    usize::try_from(len)
        .map_err(|_| fail(MPI_ERR_ARG, format!("has a length of {len}, but it cannot be negative")).named(name))
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
    /// The contract of [`List::new`].
    #[inline]
    pub unsafe fn int(pointer: *const c_int, name: &'static str) -> Self {
        Self(Width::Int(List(pointer, name)))
    }

    /// # Safety
    /// The contract of [`List::new`].
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

    /// The elements; fails if one is negative.
    pub fn counts(self, len: i64) -> Result<Vec<u64>, Fail> {
        let name = match self.0 {
            Width::Int(list) => list.name(),
            Width::Long(list) => list.name(),
        };
        let values = self.read(len)?;
        let negative = values.iter().position(|value| *value < 0);
        match negative {
            Some(at) => {
                Err(fail(MPI_ERR_COUNT, format!("has {} as element {at}, but counts cannot be negative", values[at]))
                    .named(name))
            }
            None => Ok(values.into_iter().map(|value| value as u64).collect()),
        }
    }
}

/// The address to which one count, of either width, is written.
#[derive(Clone, Copy)]
pub struct LongOut(Width<Out<c_int>, Out<i64>>, &'static str);

impl LongOut {
    /// # Safety
    /// The contract of [`Out::new`].
    #[inline]
    pub unsafe fn int(pointer: *mut c_int, name: &'static str) -> Result<Self, Fail> {
        // SAFETY: the caller guarantees the pointer.
        Ok(Self(Width::Int(unsafe { Out::new(pointer, name)? }), name))
    }

    /// # Safety
    /// The contract of [`Out::new`].
    #[inline]
    pub unsafe fn long(pointer: *mut i64, name: &'static str) -> Result<Self, Fail> {
        // SAFETY: the caller guarantees the pointer.
        Ok(Self(Width::Long(unsafe { Out::new(pointer, name)? }), name))
    }

    #[inline]
    pub fn get(self) -> i64 {
        match self.0 {
            Width::Int(out) => out.get().into(),
            Width::Long(out) => out.get(),
        }
    }

    /// Writes the value; fails if it does not fit an `int` result.
    pub fn set(self, value: i64) -> Result<(), Fail> {
        match self.0 {
            Width::Int(out) => out.set(c_int::try_from(value).map_err(|_| {
                fail(MPI_ERR_VALUE_TOO_LARGE, format!("{value} does not fit an int; call the _c form")).named(self.1)
            })?),
            Width::Long(out) => out.set(value),
        }
        Ok(())
    }

    /// Writes the value, or `MPI_UNDEFINED` if there is none or it does not fit.
    pub fn set_or_undefined(self, value: Option<u64>) {
        match self.0 {
            Width::Int(out) => out.set(value.and_then(|value| value.try_into().ok()).unwrap_or(MPI_UNDEFINED)),
            Width::Long(out) => out.set(value.and_then(|value| value.try_into().ok()).unwrap_or(MPI_UNDEFINED.into())),
        }
    }
}

/// The address to which the statuses of a call are written; `MPI_STATUS_IGNORE` is the null pointer.
#[derive(Clone, Copy)]
pub struct StatusOut(*mut Status);

impl StatusOut {
    pub const IGNORE: Self = Self(std::ptr::null_mut());

    /// # Safety
    /// The pointer is null, or valid for reads and writes, while the call runs, of all statuses that it sets.
    #[inline]
    pub unsafe fn new(pointer: *mut Status) -> Self {
        Self(pointer)
    }

    /// The address of status `i`.
    #[inline]
    pub fn at(self, i: usize) -> Self {
        if self.0.is_null() { self } else { Self(self.0.wrapping_add(i)) }
    }

    /// Sets all fields but the error, which only functions that complete several requests set.
    #[inline]
    pub fn set(self, status: Status) {
        self.set_made(|| status);
    }

    /// [`set`](Self::set) with a status that is computed only if it is not ignored.
    #[inline]
    pub fn set_made(self, make: impl FnOnce() -> Status) {
        if !self.0.is_null() {
            let mut status = make();
            // SAFETY: the caller of `new` guarantees the pointer; C programs need not align.
            unsafe {
                status.error = (&raw const (*self.0).error).read_unaligned();
                self.0.write_unaligned(status);
            }
        }
    }

    /// Sets the status of a call whose requests are all null or inactive: the error is `MPI_SUCCESS`.
    pub fn set_empty(self) {
        self.set_with(Status::EMPTY, Status::EMPTY.error);
    }

    /// Sets only the error.
    pub fn set_error(self, error: c_int) {
        if !self.0.is_null() {
            // SAFETY: the caller of `new` guarantees the pointer.
            unsafe { (&raw mut (*self.0).error).write_unaligned(error) }
        }
    }

    /// Sets all fields, including the error.
    pub fn set_with(self, mut status: Status, error: c_int) {
        status.error = error;
        if !self.0.is_null() {
            // SAFETY: the caller of `new` guarantees the pointer.
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

    /// The bytes; not necessarily UTF-8.
    pub fn read(self) -> Result<Vec<u8>, Fail> {
        if self.0.is_null() {
            return Err(null(self.1));
        }
        // SAFETY: the caller of `new` guarantees the string.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_bytes().to_vec())
    }

    /// The name of an object, cut to `MPI_MAX_OBJECT_NAME`.
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
    /// The pointer is null, or valid for writes of the number of bytes that the function requires.
    #[inline]
    pub unsafe fn new(pointer: *mut c_char, name: &'static str) -> Self {
        Self(pointer, name)
    }

    /// Writes a text, cut to `room` bytes including the null byte, and returns the length written without the null
    /// byte.
    pub fn write(self, text: &[u8], room: usize) -> Result<usize, Fail> {
        if room == 0 {
            return Ok(0);
        }
        if self.0.is_null() {
            return Err(null(self.1));
        }
        let len = text.len().min(room - 1);
        // SAFETY: the caller of `new` guarantees the room that the standard requires.
        unsafe {
            self.0.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), len);
            self.0.add(len).write(0);
        }
        Ok(len)
    }
}

/// The strings of a C array, which need not end with a null pointer.
///
/// # Safety
/// `argv` is null or has `argc` strings.
pub unsafe fn strings(argc: c_int, argv: *mut *mut c_char) -> Vec<Vec<u8>> {
    if argv.is_null() {
        return Vec::new();
    }
    let at = |i: c_int| {
        // SAFETY: the caller guarantees `argc` strings.
        let text = unsafe { *argv.add(i as usize) };
        // SAFETY: as above.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes().to_vec())
    };
    (0..argc.max(0)).map_while(at).collect()
}

/// Whether an address is the null pointer or a constant such as `MPI_IN_PLACE`, and so not the address of data.
#[inline(always)]
pub fn is_constant(address: *const c_void) -> bool {
    address.addr() <= MPI_BUFFER_AUTOMATIC
}

/// Checks the address of data. Null is accepted if `absolute`: the displacements of such a type may be absolute
/// addresses.
#[inline]
pub fn check_buffer(address: *const c_void, absolute: bool, name: &'static str) -> Result<(), Fail> {
    if !is_constant(address) || absolute && address.is_null() { Ok(()) } else { Err(no_buffer(address, name)) }
}

#[cold]
pub fn no_buffer(address: *const c_void, name: &'static str) -> Fail {
    let what = match address.addr() {
        MPI_IN_PLACE => "is MPI_IN_PLACE, which is not allowed here",
        MPI_BUFFER_AUTOMATIC => "is MPI_BUFFER_AUTOMATIC, which is allowed only when a buffer is attached",
        _ => "is a null pointer",
    };
    fail(MPI_ERR_BUFFER, what).named(name)
}

/// An empty list with capacity for `len` elements, a number that the program passes.
pub fn list_of<T>(len: usize, name: &'static str) -> Result<Vec<T>, Fail> {
    let mut list = Vec::new();
    match list.try_reserve_exact(len) {
        Ok(()) => Ok(list),
        Err(_) => {
            Err(fail(MPI_ERR_NO_MEM, format!("has {len} elements, for which memory cannot be allocated")).named(name))
        }
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
