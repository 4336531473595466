//! Pack and unpack (MPI-4.1 §5.2), of any part of a message, and copies from one layout to another.
#![allow(unsafe_code)] // calls the copy kernels; the checks that make it safe stand here

use crate::copy::walk;
use crate::error::{DatatypeError, DatatypeErrorKind, Result};
use crate::kernels::Kernels;
use crate::shape::Node;
use crate::signature::Signature;
use crate::transfer::transfer;
use crate::typemap::TypeMap;

/// Checks that a buffer of `len` bytes, in which the address that offsets count from is at `origin`, holds `map`.
pub(crate) fn check_buffer(map: &TypeMap, len: usize, origin: usize, call: &'static str) -> Result<()> {
    let at = |bound: i64| i64::try_from(origin).ok()?.checked_add(bound);
    match (at(map.true_lb()), at(map.true_ub())) {
        (Some(low), Some(high)) if low >= 0 && high as u64 <= len as u64 => Ok(()),
        _ if map.size() == 0 => Ok(()),
        _ => Err(too_small(map, len, origin, call)),
    }
}

#[cold]
fn too_small(map: &TypeMap, len: usize, origin: usize, call: &'static str) -> DatatypeError {
    let at = |bound: i64| origin as i128 + i128::from(bound);
    let (low, high) = (at(map.true_lb()), at(map.true_ub()));
    let cause = format!("the message takes bytes {low} to {high} of a buffer of {len}");
    DatatypeError::new(DatatypeErrorKind::Buffer, call, cause)
}

impl TypeMap {
    /// Whether a buffer of `len` bytes holds the message.
    #[inline(always)]
    fn lies_in(&self, len: usize, origin: usize) -> bool {
        let (low, high) = (self.shape.low, self.shape.high);
        // In this order the sum fits, for `low` is at most `high`.
        origin <= len && high <= (len - origin) as i64 && origin as i64 + low >= 0
    }

    /// Where the first block starts in a buffer that holds the message.
    #[inline(always)]
    fn first(&self, origin: usize) -> isize {
        origin as isize + self.shape.offset as isize
    }

    /// Packs from packed byte `from` on, as much as `out` holds, and returns how much that was: 0 at the end of the
    /// message. So a message can be packed in pieces of any size, in any order.
    ///
    /// `origin` is where in `buffer` the address lies that offsets count from: 0, unless the type has a negative true
    /// lower bound.
    ///
    /// # Errors
    /// `Buffer` if `buffer` does not hold the whole message.
    #[inline]
    pub fn pack(&self, buffer: &[u8], origin: usize, from: u64, out: &mut [u8]) -> Result<usize> {
        if from == 0 && out.len() as u64 >= self.size() && self.lies_in(buffer.len(), origin) {
            let at = buffer.as_ptr().wrapping_offset(self.first(origin));
            // SAFETY: all blocks lie in `buffer`, `out` has room for all, and is borrowed apart.
            unsafe { (self.ways.pack)(self, at, out.as_mut_ptr()) };
            return Ok(self.size() as usize);
        }
        self.pack_any(buffer, origin, from, out)
    }

    #[inline(never)]
    fn pack_any(&self, buffer: &[u8], origin: usize, from: u64, out: &mut [u8]) -> Result<usize> {
        if !self.lies_in(buffer.len(), origin) {
            check_buffer(self, buffer.len(), origin, "TypeMap::pack")?;
        }
        // SAFETY: all blocks lie in `buffer`, at most `out.len()` bytes are written, and `out` is borrowed apart.
        Ok(unsafe { self.pack_raw(buffer.as_ptr().wrapping_add(origin), from, out.as_mut_ptr(), out.len()) })
    }

    /// Unpacks `input` as the bytes of the message from packed byte `from` on, and returns how many were used: fewer
    /// than given at the end of the message. Bytes of `buffer` outside the blocks stay as they are. `origin` is as in
    /// [`TypeMap::pack`].
    ///
    /// # Errors
    /// `Buffer` if `buffer` does not hold the whole message.
    #[inline]
    pub fn unpack(&self, input: &[u8], from: u64, buffer: &mut [u8], origin: usize) -> Result<usize> {
        if from == 0 && input.len() as u64 >= self.size() && self.lies_in(buffer.len(), origin) {
            let at = buffer.as_mut_ptr().wrapping_offset(self.first(origin));
            // SAFETY: all blocks lie in `buffer`, `input` has bytes for all, and is borrowed apart.
            unsafe { (self.ways.unpack)(self, input.as_ptr(), at) };
            return Ok(self.size() as usize);
        }
        self.unpack_any(input, from, buffer, origin)
    }

    #[inline(never)]
    fn unpack_any(&self, input: &[u8], from: u64, buffer: &mut [u8], origin: usize) -> Result<usize> {
        if !self.lies_in(buffer.len(), origin) {
            check_buffer(self, buffer.len(), origin, "TypeMap::unpack")?;
        }
        // SAFETY: all blocks lie in `buffer`, at most `input.len()` bytes are read, and `input` is borrowed apart.
        Ok(unsafe { self.unpack_raw(input.as_ptr(), from, buffer.as_mut_ptr().wrapping_add(origin), input.len()) })
    }

    /// As [`TypeMap::pack`] of `len` bytes, for memory that others may write meanwhile; what they write may or may not
    /// be in the copy. Bytes between two blocks at most 16 bytes apart may be read as well.
    ///
    /// # Safety
    /// All bytes of the message relative to `buffer` must be readable, `out` writable for `len` bytes, and the two must
    /// not overlap.
    #[inline]
    pub unsafe fn pack_raw(&self, buffer: *const u8, from: u64, out: *mut u8, len: usize) -> usize {
        // SAFETY: the caller's promise.
        unsafe { walk::<true>(&self.shape, buffer.cast_mut(), from, len as u64, out) }
    }

    /// As [`TypeMap::unpack`] of `len` bytes, for memory that others may read or write meanwhile.
    ///
    /// # Safety
    /// All bytes of the message relative to `buffer` must be writable, `input` readable for `len` bytes, and the two
    /// must not overlap.
    #[inline]
    pub unsafe fn unpack_raw(&self, input: *const u8, from: u64, buffer: *mut u8, len: usize) -> usize {
        // SAFETY: the caller's promise.
        unsafe { walk::<false>(&self.shape, buffer, from, len as u64, input.cast_mut()) }
    }

    /// Copies this message, relative to `from`, to the places of `target`, relative to `to`, in one pass without a
    /// buffer between; returns the bytes copied. `skip` and `len` choose a part in packed order.
    ///
    /// # Errors
    /// `Signature` if the two have different elements.
    ///
    /// # Safety
    /// All bytes of this message relative to `from` must be readable and all of `target` relative to `to` writable, and
    /// no block of the one may overlap a block of the other.
    #[inline]
    pub unsafe fn copy_raw(
        &self,
        from: *const u8,
        target: &TypeMap,
        to: *mut u8,
        skip: u64,
        len: u64,
    ) -> Result<usize> {
        if skip == 0 && len >= self.size() {
            let (from, to) = (from.wrapping_offset(self.first(0)), to.wrapping_offset(target.first(0)));
            if self.is_like(target) {
                // SAFETY: the caller's promise.
                unsafe { (self.ways.copy)(self, from, to) };
                return Ok(self.size() as usize);
            }
            if let Some(run) = self.same_run(target) {
                // SAFETY: the caller's promise.
                unsafe { copy_run(run, from, to) };
                return Ok(self.size() as usize);
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.copy_any(from, target, to, skip, len) }
    }

    /// [`TypeMap::copy_raw`] of all kinds.
    ///
    /// # Safety
    /// As there.
    #[inline(never)]
    unsafe fn copy_any(&self, from: *const u8, target: &TypeMap, to: *mut u8, skip: u64, len: u64) -> Result<usize> {
        check_signatures(self, target, "TypeMap::copy_raw")?;
        // SAFETY: the caller's promise.
        Ok(unsafe { transfer(&self.shape, from, &target.shape, to, skip, len) })
    }

    /// Equal blocks at equal distances, if that is all: their loops, length, number and distance.
    #[inline(always)]
    fn run(&self) -> Option<(&'static Kernels, usize, usize, isize)> {
        match self.shape.node {
            Node::Run { count, stride, len, class } if count > 0 => {
                Some((class.kernels(), len as usize, count as usize, stride as isize))
            }
            _ => None,
        }
    }

    /// The blocks of both, if they have the same elements in equal blocks at equal distances: their loops, length, number
    /// and distances.
    #[inline(always)]
    fn same_run(&self, target: &TypeMap) -> Option<(&'static Kernels, usize, usize, isize, isize)> {
        let ((kernels, len, count, stride), (_, other, n, by)) = (self.run()?, target.run()?);
        // Equal signatures and sizes; the latter follow from the blocks.
        (self.signature == target.signature && (len, count) == (other, n)).then_some((kernels, len, count, stride, by))
    }

    /// Whether the blocks of `target` are the same ones, perhaps further on, as far as a short look tells.
    #[inline(always)]
    fn is_like(&self, target: &TypeMap) -> bool {
        std::ptr::eq(self, target) || self.is_equal(target)
    }

    #[inline(never)]
    fn is_equal(&self, target: &TypeMap) -> bool {
        self.signature == target.signature && self.shape.node.is(&target.shape.node)
    }

    /// Copies this message from `buffer` to the places of `target` in `to`, in one pass; returns the bytes copied.
    /// `origin` and `to_origin` are as in [`TypeMap::pack`].
    ///
    /// # Errors
    /// `Signature` if the two have different elements, `Buffer` if a buffer does not hold its message.
    #[inline]
    pub fn copy(
        &self,
        buffer: &[u8],
        origin: usize,
        target: &TypeMap,
        to: &mut [u8],
        to_origin: usize,
    ) -> Result<usize> {
        if self.is_like(target) && self.lies_in(buffer.len(), origin) && target.lies_in(to.len(), to_origin) {
            let from = buffer.as_ptr().wrapping_offset(self.first(origin));
            let to = to.as_mut_ptr().wrapping_offset(target.first(to_origin));
            // SAFETY: all blocks lie in the two buffers, which are borrowed apart.
            unsafe { (self.ways.copy)(self, from, to) };
            return Ok(self.size() as usize);
        }
        self.copy_buffers((buffer, origin), target, (to, to_origin))
    }

    #[inline(never)]
    fn copy_buffers(
        &self,
        (buffer, origin): (&[u8], usize),
        target: &TypeMap,
        (to, to_origin): (&mut [u8], usize),
    ) -> Result<usize> {
        if !self.lies_in(buffer.len(), origin) || !target.lies_in(to.len(), to_origin) {
            check_buffer(self, buffer.len(), origin, "TypeMap::copy")?;
            check_buffer(target, to.len(), to_origin, "TypeMap::copy")?;
        }
        let (from, to) = (buffer.as_ptr().wrapping_add(origin), to.as_mut_ptr().wrapping_add(to_origin));
        // SAFETY: all blocks lie in the two buffers, which are borrowed apart.
        unsafe { self.copy_raw(from, target, to, 0, u64::MAX) }
    }
}

/// Copies what is a [`same_run`](TypeMap::same_run), from where the first block starts.
///
/// # Safety
/// As [`TypeMap::copy_raw`].
#[inline(always)]
unsafe fn copy_run(
    (kernels, len, count, stride, by): (&'static Kernels, usize, usize, isize, isize),
    from: *const u8,
    to: *mut u8,
) {
    // SAFETY: the caller's promise.
    unsafe { (kernels.strided)(len, count, stride, by, from, to) };
}

/// Checks that two sides have the same elements in the same order.
#[inline]
pub(crate) fn check_signatures(origin: &TypeMap, target: &TypeMap, call: &'static str) -> Result<()> {
    if origin.signature == target.signature && origin.size() == target.size() {
        return Ok(());
    }
    Err(different(origin, target, call))
}

#[cold]
fn different(origin: &TypeMap, target: &TypeMap, call: &'static str) -> DatatypeError {
    let (a, b): (Signature, Signature) = (origin.signature(), target.signature());
    let cause = if a.elements() == b.elements() {
        format!("{} elements on both sides, but of different types or in a different order", a.elements())
    } else {
        let (n, m, left, right) = (a.elements(), b.elements(), origin.size(), target.size());
        format!("{n} elements ({left} bytes) at the origin and {m} elements ({right} bytes) at the target")
    };
    DatatypeError::new(DatatypeErrorKind::Signature, call, cause)
}
