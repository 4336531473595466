//! external32 (MPI-4.1 §5.3, §14.5.2): a packed form that every machine reads, big-endian and of fixed widths.
//!
//! Packed order is the order of the elements, so a message is packed natively, a piece at a time, and each element is
//! converted afterwards. Module [`long_double`] converts `long double`.

use crate::datatype::{Datatype, Repr};
use crate::error::{DatatypeError, DatatypeErrorKind, Result};
use crate::long_double;
use crate::named::{Class, Named};
use crate::pack::check_buffer;

/// Number of bytes that are converted at a time; a multiple of every element's size.
const PIECE: usize = 4096;

impl Datatype {
    /// The number of bytes that `count` elements of this type take in external32 (`MPI_Pack_external_size`).
    ///
    /// # Errors
    /// `Overflow` if that, or the message, does not fit 64 bits.
    pub fn external_size(&self, count: u64) -> Result<u64> {
        self.message(count)?;
        // External forms are never longer than the native ones, so nothing overflows.
        Ok(count * self.external_element())
    }

    /// Bytes that one element of this type takes in external32.
    pub(crate) fn external_element(&self) -> u64 {
        match &self.0 {
            Repr::Named(named) => named.external_size() as u64,
            Repr::Derived(derived) => derived.external(),
        }
    }

    /// Packs `count` of this type to external32, big-endian and of fixed widths, and returns its bytes. `long` and
    /// `wchar_t` are narrower in external32 than natively; a value that does not fit is an error. `long double` becomes
    /// an IEEE 754 binary128. `origin` is as in [`TypeMap::pack`](crate::TypeMap::pack).
    ///
    /// ```
    /// use farside_datatype::{Datatype, Named};
    ///
    /// let (int, mut external, mut back) = (Datatype::from(Named::Int), [0; 8], [0; 8]);
    /// let numbers = [1i32, -2].map(i32::to_ne_bytes).concat();
    /// assert_eq!(int.pack_external(2, &numbers, 0, &mut external)?, 8);
    /// assert_eq!(external, [0, 0, 0, 1, 255, 255, 255, 254]);
    /// int.unpack_external(&external, 2, &mut back, 0)?;
    /// assert_eq!(&back[..], &numbers[..]);
    /// # Ok::<(), farside_datatype::DatatypeError>(())
    /// ```
    ///
    /// # Errors
    /// `Buffer` if `buffer` does not hold the message or `out` its packed form, `External` if a value does not fit or
    /// the bytes of a `long double` are not a valid value. The preceding elements are then already packed in `out`.
    pub fn pack_external(&self, count: u64, buffer: &[u8], origin: usize, out: &mut [u8]) -> Result<usize> {
        let call = "Datatype::pack_external";
        let map = self.message(count)?;
        check_buffer(&map, buffer.len(), origin, call)?;
        check_packed(self.external_size(count)?, out.len(), call)?;
        let (mut from, mut at) = (0_u64, 0);
        let mut piece = [0; PIECE];
        self.each_run(count, &mut |named, some| {
            let external = some * named.external_size();
            let packed = map.pack(buffer, origin, from, &mut piece[..some * named.size()])?;
            to_external(named, &piece[..packed], &mut out[at..at + external], call)?;
            (from, at) = (from + packed as u64, at + external);
            Ok(())
        })?;
        Ok(at)
    }

    /// Unpacks `count` of this type from external32, and returns the bytes used of `input`.
    ///
    /// # Errors
    /// `Buffer` if `buffer` does not hold the message, or `input` is too short.
    pub fn unpack_external(&self, input: &[u8], count: u64, buffer: &mut [u8], origin: usize) -> Result<usize> {
        let call = "Datatype::unpack_external";
        let map = self.message(count)?;
        check_buffer(&map, buffer.len(), origin, call)?;
        check_packed(self.external_size(count)?, input.len(), call)?;
        let (mut from, mut at) = (0_u64, 0);
        let mut piece = [0; PIECE];
        self.each_run(count, &mut |named, some| {
            let (bytes, external) = (some * named.size(), some * named.external_size());
            from_external(named, &input[at..at + external], &mut piece[..bytes]);
            from += map.unpack(&piece[..bytes], from, buffer, origin)? as u64;
            at += external;
            Ok(())
        })?;
        Ok(at)
    }

    /// The elements of `times` of this type in their order, as runs of one predefined type, of at most [`PIECE`] bytes
    /// each.
    fn each_run(&self, times: u64, visit: &mut dyn FnMut(Named, usize) -> Result<()>) -> Result<()> {
        if times == 0 || self.size() == 0 {
            return Ok(());
        }
        if let Some(named) = self.uniform() {
            let (most, mut left) = ((PIECE / named.size()) as u64, times * (self.size() / named.size() as u64));
            while left > 0 {
                let some = left.min(most);
                visit(named, some as usize)?;
                left -= some;
            }
            return Ok(());
        }
        let parts = self.parts();
        for (count, part) in (0..times).flat_map(|_| parts.iter()) {
            part.each_run(*count, visit)?;
        }
        Ok(())
    }

    /// The predefined type of all its elements, if it is one.
    fn uniform(&self) -> Option<Named> {
        match self.named() {
            Some(named) if named.pair().is_none() => Some(named),
            _ => {
                let parts = self.parts();
                let mut all = parts.iter().map(|(_, part)| part.uniform());
                let first = all.next()??;
                all.all(|other| other == Some(first)).then_some(first)
            }
        }
    }
}

fn check_packed(needed: u64, len: usize, call: &'static str) -> Result<()> {
    if needed <= len as u64 {
        return Ok(());
    }
    let cause = format!("the message needs {needed} bytes in external32, but the buffer has {len}");
    Err(DatatypeError::new(DatatypeErrorKind::Buffer, call, cause))
}

/// The significant bytes of a `long double` in the x87 format; elsewhere the native format is assumed to be that of
/// external32.
const X87_BYTES: usize = 10;
const IS_X87: bool = cfg!(any(target_arch = "x86_64", target_arch = "x86"));

/// Converts bytes from this machine's order to big-endian order, or back.
fn big_endian(bytes: &mut [u8]) {
    if cfg!(target_endian = "little") {
        bytes.reverse();
    }
}

fn to_external(named: Named, from: &[u8], to: &mut [u8], call: &'static str) -> Result<()> {
    let (_, unit, external) = named.scalars();
    if named.class() == Class::LongDouble && IS_X87 {
        for (from, to) in from.chunks_exact(unit).zip(to.chunks_exact_mut(external)) {
            let wide =
                from.first_chunk::<X87_BYTES>().and_then(|bytes| long_double::widen(*bytes)).ok_or_else(|| {
                    let cause = format!("the buffer contains bytes that are not a valid {}", named.mpi_name());
                    DatatypeError::new(DatatypeErrorKind::External, call, cause)
                })?;
            to.copy_from_slice(&wide.to_be_bytes());
        }
        return Ok(());
    }
    let mut scalar = [0; 16];
    let scalar = &mut scalar[..unit];
    for (from, to) in from.chunks_exact(unit).zip(to.chunks_exact_mut(external)) {
        scalar.copy_from_slice(from);
        big_endian(scalar);
        let (dropped, kept) = scalar.split_at(unit - external);
        // Only bytes that unpacking can reconstruct may be dropped.
        if dropped.iter().any(|byte| *byte != extension(named, kept[0])) {
            let cause = format!("a value of {} does not fit its {external} bytes in external32", named.mpi_name());
            return Err(DatatypeError::new(DatatypeErrorKind::External, call, cause));
        }
        to.copy_from_slice(kept);
    }
    Ok(())
}

fn from_external(named: Named, from: &[u8], to: &mut [u8]) {
    let (_, unit, external) = named.scalars();
    if named.class() == Class::LongDouble && IS_X87 {
        for (from, to) in from.chunks_exact(external).zip(to.chunks_exact_mut(unit)) {
            let wide = from.iter().fold(0, |bits: u128, byte| bits << 8 | u128::from(*byte));
            let (value, rest) = to.split_at_mut(X87_BYTES);
            value.copy_from_slice(&long_double::narrow(wide));
            rest.fill(0);
        }
        return;
    }
    for (from, to) in from.chunks_exact(external).zip(to.chunks_exact_mut(unit)) {
        let (high, low) = to.split_at_mut(unit - external);
        high.fill(extension(named, from[0]));
        low.copy_from_slice(from);
        big_endian(to);
    }
}

/// The bytes by which a narrower integer that starts with `first` is extended.
fn extension(named: Named, first: u8) -> u8 {
    if named.class() == Class::Signed && first >= 0x80 { 0xff } else { 0 }
}
