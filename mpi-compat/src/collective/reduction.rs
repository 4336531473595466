#![allow(unsafe_code)]
//! Reductions (MPI-5.0 sections 6.9 to 6.11): operators over memory, for the executor of collectives.
//!
//! The executor reduces contiguous elements. Elements without gaps (all predefined types, and some derived ones) are
//! reduced directly in the program's buffers. Other elements are copied into memory of the call, [`Operand::stride`]
//! bytes apart, and the result is copied back; gaps between the elements of the program's buffer are not written.

use std::ffi::c_void;
use std::rc::Rc;

use farside_core::coll::execute::Reduction;
use farside_core::coll::schedule::Side;
use farside_core::{Error, ErrorKind};
use farside_datatype::{Datatype, Private};

use super::buffer::{Segments, Sizes, Step, overlap};
use crate::constants::MPI_ERR_COUNT;
use crate::datatype::committed;
use crate::fail::{Result, fail};
use crate::handle::{Op, Type};
use crate::objects::{OpObject, TypeObject};
use crate::operands::Address;
use crate::runtime::{Call, Runtime};

/// An operator on elements of a type.
pub struct Operand {
    operator: Rc<OpObject>,
    object: Rc<TypeObject>,
    datatype: Type,
    /// Bytes from one element to the next.
    pub stride: usize,
    /// Whether the executor uses the program's buffers without a copy.
    in_buffers: bool,
    /// The offset of an element's first byte in the call's memory from the address to which the type map is relative.
    start: i64,
}

/// Memory of a call, aligned for every type.
pub type Scratch = Rc<Vec<Line>>;

/// 64 bytes.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Line([u8; 64]);

/// Zeroed memory of at least `bytes` bytes.
pub fn scratch(bytes: u64) -> Result<(Scratch, *mut u8)> {
    let lines = usize::try_from(bytes.div_ceil(64)).unwrap_or(usize::MAX);
    let mut memory = Vec::new();
    memory
        .try_reserve_exact(lines)
        .map_err(|_| fail(crate::constants::MPI_ERR_NO_MEM, format!("cannot allocate {bytes} bytes")))?;
    memory.resize(lines, Line([0; 64]));
    let address = memory.as_mut_ptr().cast();
    Ok((Rc::new(memory), address))
}

/// The elements of one side of a reduction.
pub struct Elements {
    /// The address at which the executor accesses the elements.
    pub address: *mut u8,
    /// The step that copies the elements there from the program's buffer.
    pub before: Option<Step>,
    /// The step that copies the elements back.
    pub after: Option<Step>,
}

impl Operand {
    pub fn new(call: &Call<'_>, datatype: Type, op: Op) -> Result<Rc<Self>> {
        let (object, operator) = (committed(call, datatype)?, call.ops.get(op)?);
        operator.check(op, datatype, &object)?;
        let layout = &object.layout;
        let (extent, align) = (layout.extent(), layout.align());
        let in_buffers = layout.named().is_some() || object.plain.is_some();
        let start = layout.true_lb().div_euclid(align as i64) * align as i64;
        let reach = layout.true_lb().abs_diff(start) + layout.true_extent();
        // Interleaved elements are copied to memory with a stride without interleaving.
        let stride = match usize::try_from(extent) {
            Ok(extent) if extent > 0 && extent as u64 >= reach => extent,
            _ => reach.next_multiple_of(align).max(1) as usize,
        };
        // A user function receives the datatype handle, and the program may free its own handle in the meantime.
        let datatype = if operator.is_function() { call.types.share(&object) } else { datatype };
        Ok(Rc::new(Self { operator, object, datatype, stride, in_buffers, start }))
    }

    pub fn is_commutative(&self) -> bool {
        self.operator.commutes()
    }

    /// The operator in the form that the executor calls; valid as long as `self`.
    pub fn reduction(&self) -> Reduction {
        let context = std::ptr::from_ref(self).cast();
        let align = self.object.layout.align() as usize;
        // Ranks with different operators are not detected: programs that do so run on other libraries.
        // `mpi-compat/verify` reports it.
        Reduction { function: reduce, context, code: 0, commutative: self.is_commutative(), align }
    }

    /// The bytes of `n` elements in the executor's form.
    pub fn bytes(&self, n: u64) -> Result<u64> {
        let bytes = n.checked_mul(self.stride as u64).filter(|bytes| isize::try_from(*bytes).is_ok());
        bytes.ok_or_else(|| {
            fail(MPI_ERR_COUNT, format!("is {n}: count times extent exceeds the address space")).named("count")
        })
    }

    /// Checks that the input does not overlap the result.
    pub fn check_apart(&self, send: Address, n: u64, recv: Address, kept: u64) -> Result {
        if self.in_buffers {
            let range = |address: Address, n| (address.at().addr() as u64, n * self.stride as u64);
            let ((a, sent), (b, received)) = (range(send, n), range(recv, kept));
            let apart = sent.min(received) == 0 || a.saturating_add(sent) <= b || b.saturating_add(received) <= a;
            return if apart { Ok(()) } else { Err(overlap(send, recv)) };
        }
        let segments = |address, n| Segments::new(address, Sizes::Equal(0, 1), self.object.layout.message(n)?, || None);
        segments(send, n)?.check_apart(&segments(recv, kept)?)
    }

    /// Prepares `n` elements in a buffer of the program.
    pub fn elements(self: &Rc<Self>, address: Address, n: u64) -> Result<Elements> {
        if self.in_buffers {
            address.check(self.bytes(n)?, 0)?;
            return Ok(Elements { address: address.at(), before: None, after: None });
        }
        let map = self.object.layout.message(n)?;
        address.check(map.size(), map.true_lb())?;
        let (theirs, program) = (map.clone(), address.at().addr());
        let (memory, address) = scratch(self.bytes(n)?)?;
        let own = Datatype::resized(&self.object.layout, self.object.layout.lb(), self.stride as i64)?.message(n)?;
        let at = self.origin(address).addr();
        let (kept, copy) = (Rc::clone(&memory), own.clone());
        let before: Step = Box::new(move || {
            let _kept = &kept;
            // SAFETY: the program guarantees its buffer; the other one has the same number of elements and belongs to
            // the call.
            let copied = unsafe {
                let (from, to) = (program as *const u8, at as *mut u8);
                theirs.copy_raw::<Private>(from, &copy, to, 0, u64::MAX)
            };
            debug_assert!(copied.is_ok(), "the same elements");
        });
        let after: Step = Box::new(move || {
            let _kept = &memory;
            // SAFETY: as above.
            let copied = unsafe { own.copy_raw::<Private>(at as *const u8, &map, program as *mut u8, 0, u64::MAX) };
            debug_assert!(copied.is_ok(), "the same elements");
        });
        Ok(Elements { address, before: Some(before), after: Some(after) })
    }

    /// The address to which the type map is relative, for an element whose bytes begin at `address`.
    fn origin(&self, address: *mut u8) -> *mut u8 {
        address.wrapping_offset(-self.start as isize)
    }

    /// Sets each of `n` elements at `into` to `operand ∘ into`.
    ///
    /// # Safety
    /// Both have `n` elements of this stride, and do not overlap.
    unsafe fn apply(&self, operand: *const u8, into: *mut u8, n: usize) {
        let try_fast = self.in_buffers || self.stride as i64 == self.object.layout.extent();
        let (calls, each) = if try_fast { (1, n) } else { (n, 1) };
        for i in 0..calls {
            let from = self.origin(operand.wrapping_add(i * self.stride).cast_mut()).cast::<c_void>();
            let to = self.origin(into.wrapping_add(i * self.stride)).cast();
            // SAFETY: the caller guarantees the elements.
            unsafe { self.operator.apply(self.datatype, &self.object, from, to, each as u64) };
        }
    }

    /// Reduces the contiguous vectors of `n` elements into the last one.
    ///
    /// # Safety
    /// The memory has `ranks` vectors of `n` elements, and no other code uses it.
    pub unsafe fn fold(&self, vectors: *mut u8, ranks: usize, n: usize) {
        let vector = |rank: usize| vectors.wrapping_add(rank * n * self.stride);
        for rank in (0..ranks.saturating_sub(1)).rev() {
            // SAFETY: the caller guarantees the memory; these are two different vectors.
            unsafe { self.apply(vector(rank), vector(ranks - 1), n) };
        }
    }
}

impl Drop for Operand {
    fn drop(&mut self) {
        if self.operator.is_function() {
            // Predefined types have no reference count, so an error of `release` does not matter.
            let _ = Runtime::with(|runtime| runtime.types.release(self.datatype));
        }
    }
}

/// # Safety
/// The contract of [`farside_core::coll::execute::ReduceFn`]; `context` is an [`Operand`].
unsafe fn reduce(
    context: *const (),
    operand: *const u8,
    into: *mut u8,
    n: usize,
    side: Side,
) -> farside_core::Result<()> {
    // SAFETY: the call keeps its operand until it has ended.
    let this = unsafe { &*context.cast::<Operand>() };
    if n == 0 {
        return Ok(());
    }
    if side == Side::Left || this.is_commutative() {
        // SAFETY: the executor keeps the contract of `ReduceFn`.
        unsafe { this.apply(operand, into, n) };
        return Ok(());
    }
    // The operator overwrites its right operand, which must be preserved here, so it is applied to a copy.
    let bytes = n * this.stride;
    let none = |_| Error::new(ErrorKind::Limit, "reduce").cause(format!("cannot allocate {bytes} bytes"));
    let (memory, copy) = scratch(bytes as u64).map_err(none)?;
    // SAFETY: as above; the copy has the same number of elements.
    unsafe {
        std::ptr::copy_nonoverlapping(operand, copy, bytes);
        this.apply(into, copy, n);
        std::ptr::copy_nonoverlapping(copy, into, bytes);
    }
    drop(memory);
    Ok(())
}
