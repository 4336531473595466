//! Pack and unpack (MPI-4.1 §5.2), of any part of a message, and copies from one layout to another.
#![allow(unsafe_code)] // calls the copy loops; the checks that make it safe stand here

use crate::copy::{transfer, walk};
use crate::error::{DatatypeError, DatatypeErrorKind, Result};
use crate::kernels::{FROM, Mover, Private, TO};
use crate::named::Named;
use crate::signature::Signature;
use crate::typemap::TypeMap;

/// Checks that a buffer of `len` bytes holds `map` if offset 0 is at byte `origin` of the buffer.
#[inline(always)]
pub(crate) fn check_buffer(map: &TypeMap, len: usize, origin: usize, call: &'static str) -> Result<()> {
    let (low, high) = (map.shape.low, map.shape.high);
    // Evaluated in this order the sum cannot overflow, since `low` is at most `high`.
    if (origin <= len && high <= (len - origin) as i64 && origin as i64 + low >= 0) || map.size() == 0 {
        return Ok(());
    }
    Err(too_small(map, len, origin, call))
}

#[cold]
fn too_small(map: &TypeMap, len: usize, origin: usize, call: &'static str) -> DatatypeError {
    let at = |bound: i64| origin as i128 + i128::from(bound);
    let (low, high) = (at(map.true_lb()), at(map.true_ub()));
    let cause = format!("the message spans bytes {low} to {high}, but the buffer has {len} bytes");
    DatatypeError::new(DatatypeErrorKind::Buffer, call, cause)
}

impl TypeMap {
    /// Packs as many bytes as `out` holds, from packed byte `from` on, and returns their number: 0 at the end of the
    /// message. A message can be packed in pieces of any size, in any order.
    ///
    /// `origin` is the index in `buffer` of the address from which offsets count: 0, unless the type has a negative
    /// true lower bound.
    ///
    /// A message can be packed in pieces:
    ///
    /// ```
    /// use farside_datatype::{Datatype, Named};
    ///
    /// let every_other = Datatype::vector(4, 1, 2, &Named::Byte.into())?.message(1)?;
    /// let (buffer, mut piece, mut all) = ([1, 0, 2, 0, 3, 0, 4], [0; 3], Vec::new());
    /// loop {
    ///     let len = every_other.pack(&buffer, 0, all.len() as u64, &mut piece)?;
    ///     if len == 0 {
    ///         break;
    ///     }
    ///     all.extend_from_slice(&piece[..len]);
    /// }
    /// assert_eq!(all, [1, 2, 3, 4]);
    /// # Ok::<(), farside_datatype::DatatypeError>(())
    /// ```
    ///
    /// # Errors
    /// `Buffer` if `buffer` does not hold the whole message.
    #[inline]
    pub fn pack(&self, buffer: &[u8], origin: usize, from: u64, out: &mut [u8]) -> Result<usize> {
        check_buffer(self, buffer.len(), origin, "TypeMap::pack")?;
        let at = buffer.as_ptr().wrapping_add(origin);
        // SAFETY: all blocks lie in `buffer`, at most `out.len()` bytes are written, and `out` is a separate borrow.
        Ok(unsafe { self.pack_raw::<Private>(at, from, out.as_mut_ptr(), out.len()) })
    }

    /// Unpacks `input` as the bytes of the message from packed byte `from` on, and returns the number of bytes used:
    /// fewer than given at the end of the message. Bytes of `buffer` outside the blocks are unchanged. `origin` is as
    /// in [`TypeMap::pack`].
    ///
    /// # Errors
    /// `Buffer` if `buffer` does not hold the whole message.
    #[inline]
    pub fn unpack(&self, input: &[u8], from: u64, buffer: &mut [u8], origin: usize) -> Result<usize> {
        check_buffer(self, buffer.len(), origin, "TypeMap::unpack")?;
        let at = buffer.as_mut_ptr().wrapping_add(origin);
        // SAFETY: all blocks lie in `buffer`, at most `input.len()` bytes are read, and `input` is a separate borrow.
        Ok(unsafe { self.unpack_raw::<Private>(input.as_ptr(), from, at, input.len()) })
    }

    /// Packs `len` bytes, like [`TypeMap::pack`]. Memory that other threads or ranks may access during the call needs a
    /// [`Mover`] that permits it; the copy may or may not include bytes that they write concurrently.
    ///
    /// # Safety
    /// All bytes of the message relative to `buffer` must be readable, `out` writable for `len` bytes, and the two must
    /// not overlap. Both fulfil the requirements of `M`.
    #[inline]
    pub unsafe fn pack_raw<M: Mover>(&self, buffer: *const u8, from: u64, out: *mut u8, len: usize) -> usize {
        // SAFETY: by the caller's contract.
        unsafe { walk::<M, TO>(&self.shape, buffer.cast_mut(), from, len as u64, out) }
    }

    /// Unpacks `len` bytes, like [`TypeMap::unpack`]. Memory that other threads or ranks may access during the call
    /// needs a [`Mover`] that permits it.
    ///
    /// # Safety
    /// All bytes of the message relative to `buffer` must be writable, `input` readable for `len` bytes, and the two
    /// must not overlap. Both fulfil the requirements of `M`.
    #[inline]
    pub unsafe fn unpack_raw<M: Mover>(&self, input: *const u8, from: u64, buffer: *mut u8, len: usize) -> usize {
        // SAFETY: by the caller's contract.
        unsafe { walk::<M, FROM>(&self.shape, buffer, from, len as u64, input.cast_mut()) }
    }

    /// Copies this message, relative to `from`, to the places of `target`, relative to `to`, in one pass without an
    /// intermediate buffer; returns the bytes copied. `skip` and `len` choose a part in packed order.
    ///
    /// # Errors
    /// `Signature` if the two have different elements.
    ///
    /// # Safety
    /// All bytes of this message relative to `from` must be readable and all of `target` relative to `to` writable, and
    /// no block of the one may overlap a block of the other. Both fulfil the requirements of `M`.
    #[inline]
    pub unsafe fn copy_raw<M: Mover>(
        &self,
        from: *const u8,
        target: &TypeMap,
        to: *mut u8,
        skip: u64,
        len: u64,
    ) -> Result<usize> {
        if !std::ptr::eq(self, target) {
            check_signatures(self, target, "TypeMap::copy_raw")?;
        }
        // SAFETY: by the caller's contract.
        Ok(unsafe { transfer::<M>(&self.shape, from, &target.shape, to, skip, len) })
    }

    /// Copies this message from `buffer` to the places of `target` in `to`, in one pass; returns the bytes copied.
    /// `origin` and `to_origin` are as in [`TypeMap::pack`].
    ///
    /// ```
    /// use farside_datatype::{Datatype, Named};
    ///
    /// let (byte, mut to) = (Datatype::from(Named::Byte), [0; 4]);
    /// let pairs = Datatype::vector(2, 2, 3, &byte)?.message(1)?;
    /// let reversed = Datatype::indexed_block(1, &[3, 2, 1, 0], &byte)?.message(1)?;
    /// assert_eq!(pairs.copy(&[1, 2, 0, 3, 4], 0, &reversed, &mut to, 0)?, 4);
    /// assert_eq!(to, [4, 3, 2, 1]);
    /// # Ok::<(), farside_datatype::DatatypeError>(())
    /// ```
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
        check_buffer(self, buffer.len(), origin, "TypeMap::copy")?;
        check_buffer(target, to.len(), to_origin, "TypeMap::copy")?;
        let (from, to) = (buffer.as_ptr().wrapping_add(origin), to.as_mut_ptr().wrapping_add(to_origin));
        // SAFETY: all blocks lie in the two buffers, which are separate borrows.
        unsafe { self.copy_raw::<Private>(from, target, to, 0, u64::MAX) }
    }
}

/// Checks that two sides have the same elements in the same order.
#[inline]
pub(crate) fn check_signatures(origin: &TypeMap, target: &TypeMap, call: &'static str) -> Result<()> {
    if origin.signature == target.signature && origin.size() == target.size() {
        return Ok(());
    }
    let same_length = origin.size() == target.size();
    if same_length && (is_bytes(origin) || is_bytes(target)) {
        Ok(())
    } else {
        Err(signature_mismatch(origin, target, call))
    }
}

/// Whether the elements are `MPI_BYTE`, which matches any elements of the same total size.
#[cold]
fn is_bytes(map: &TypeMap) -> bool {
    let bytes = |named: Named| named.signature().repeat(map.size()) == map.signature;
    bytes(Named::Byte) || bytes(Named::Packed)
}

#[cold]
fn signature_mismatch(origin: &TypeMap, target: &TypeMap, call: &'static str) -> DatatypeError {
    let (a, b): (Signature, Signature) = (origin.signature(), target.signature());
    let cause = if a.elements() == b.elements() {
        format!("{} elements on both sides, but with different types or in a different order", a.elements())
    } else {
        let (n, m, left, right) = (a.elements(), b.elements(), origin.size(), target.size());
        format!("{n} elements ({left} bytes) at the origin, but {m} elements ({right} bytes) at the target")
    };
    DatatypeError::new(DatatypeErrorKind::Signature, call, cause)
}
