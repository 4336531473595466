#![allow(unsafe_code)]
//! Accumulates (MPI-5.0 sections 12.3.3 and 12.3.4). Numbers of at most 8 bytes are updated by atomic operations of the
//! window; pairs, complex numbers and longer elements are combined at the origin, under a lock that excludes other
//! origins.

use std::ptr::null_mut;
use std::rc::Rc;

use farside_datatype::{Named, TypeMap};
use farside_rma::op::ElementType;
use farside_rma::raw::{Combine, RawWindow, Update, element_type};
use farside_rma::{Element, Op as Operation};

use super::access::{Local, Remote};
use crate::arguments::is_constant;
use crate::constants::*;
use crate::entry::Usual;
use crate::fail::{Fail, Result, fail};
use crate::handle::{Op, Type};
use crate::objects::elements::element;
use crate::objects::kernels::{Predefined, is_swapped};
use crate::objects::{OpObject, PlainTypes, TypeObject, operation};
use crate::operands::{Address, Buffer, Place};
use crate::runtime::{Call, Runtime};

/// The effect of an accumulate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Combine(Predefined),
    Replace,
    Read,
}

impl Effect {
    fn of(call: &Call<'_>, op: Op) -> Result<Self> {
        Ok(match (&*call.ops.get(op)?, op) {
            (OpObject::Predefined(kind), _) => Self::Combine(*kind),
            (_, MPI_REPLACE) => Self::Replace,
            (_, MPI_NO_OP) => Self::Read,
            _ => return Err(fail(MPI_ERR_OP, "is a user-defined operator, which accumulates do not allow").value(op.0)),
        })
    }
}

/// Expands `$body` with `$T` as the Rust type of an element type.
macro_rules! with_element {
    ($ty:expr, $T:ident => $body:expr; $($variant:ident $t:ty),*) => {
        match $ty {
            $(ElementType::$variant => { type $T = $t; $body })*
        }
    };
}

impl Remote {
    /// The predefined type of the target's elements, which a local side's elements must have too.
    fn element(&self, local: Option<&Local>) -> Result<Option<Named>> {
        let of = |object: &TypeObject| element(&object.layout);
        let named = of(&self.elements.object);
        let mixed = || fail(MPI_ERR_TYPE, "does not have elements of one predefined type").named("target_datatype");
        if self.elements.n == 0 || self.elements.object.layout.size() == 0 {
            return Ok(None);
        }
        let named = named.ok_or_else(mixed)?;
        match local.filter(|local| local.elements.n > 0).map(|local| of(&local.elements.object)) {
            Some(other) if other != Some(named) => Err(fail(
                MPI_ERR_TYPE,
                format!("has an element type that differs from that of the target, {}", named.mpi_name()),
            )
            .named("origin_datatype")),
            _ => Ok(Some(named)),
        }
    }

    fn accumulate(&self, op: Op, effect: Effect, origin: Option<&Local>, result: Option<&Local>) -> Result {
        let Some(named) = self.element(origin)? else { return self.issue_empty(origin) };
        if let Effect::Combine(kind) = effect
            && !kind.allowed(named)
        {
            return Err(fail(MPI_ERR_OP, format!("is not defined on {}", named.mpi_name())).value(op.0));
        }
        if let (Some(operation), Some(ty)) = (operation(op), element_type(named)) {
            return self.by_window(operation, ty, origin, result);
        }
        let combine: Option<Combine> = match effect {
            Effect::Read => None,
            Effect::Replace => Some(Rc::new(|elements: &mut [u8], operands: &[u8]| elements.copy_from_slice(operands))),
            Effect::Combine(kind) => Some(Rc::new(move |elements: &mut [u8], operands: &[u8]| {
                let n = elements.len() / named.extent();
                // SAFETY: both arrays have `n` elements.
                unsafe { kind.apply(named, operands.as_ptr(), elements.as_mut_ptr(), n) };
            })),
        };
        self.update(named, combine, origin, result)
    }

    /// Issues an operation without elements, which still requires an epoch.
    fn issue_empty(&self, origin: Option<&Local>) -> Result {
        if let Some(origin) = origin {
            self.fits(origin.elements.map()?.size() as usize, 0)?;
        }
        // SAFETY: the operation has no bytes, so every address is valid.
        Ok(unsafe { self.win.raw().put(std::ptr::NonNull::dangling().as_ptr(), 0, self.target, 0) }?)
    }

    /// The addresses and layouts of the local buffers, which must have the same number of bytes as the target.
    fn local_layouts(&self, at: &TypeMap, sides: [Option<&Local>; 2]) -> Result<[Option<(*mut u8, TypeMap)>; 2]> {
        let mut maps = [None, None];
        for (side, map) in sides.into_iter().zip(&mut maps).filter_map(|(side, map)| Some((side?, map))) {
            let layout = side.elements.map()?;
            self.fits(layout.size() as usize, at.size() as usize)?;
            *map = Some((side.base, layout));
        }
        Ok(maps)
    }

    fn by_window(&self, op: Operation, ty: ElementType, origin: Option<&Local>, result: Option<&Local>) -> Result {
        let (target, offset) = (self.target, self.offset);
        let target_len = self.elements.plain()?;
        let operand_len = origin.map(|origin| origin.elements.plain()).transpose()?;
        let result_len = result.map(|result| result.elements.plain()).transpose()?;
        if let (Some(target_len), None | Some(Some(_)), None | Some(Some(_))) = (target_len, operand_len, result_len) {
            for local in [operand_len, result_len].into_iter().flatten().flatten() {
                self.fits(local, target_len)?;
            }
            let old = result.map_or(null_mut(), |result| result.base);
            let operand = origin.map_or(old.cast_const(), |origin| origin.base);
            // SAFETY: the program does not access the buffers until the operation is complete.
            return Ok(unsafe { self.win.raw().accumulate_bytes(op, ty, operand, old, target_len, target, offset) }?);
        }
        let at = self.elements.map()?;
        let [origin, result] = self.local_layouts(&at, [origin, result])?;
        let old = result.as_ref().map(|(base, map)| (*base, map));
        let operand = origin.as_ref().map(|(base, map)| (base.cast_const(), map));
        let operand = operand.unwrap_or((std::ptr::null(), &at));
        // SAFETY: as above.
        Ok(unsafe { self.win.raw().accumulate_typed(op, operand, old, target, offset, &at) }?)
    }

    fn update(&self, named: Named, combine: Option<Combine>, origin: Option<&Local>, result: Option<&Local>) -> Result {
        let at = self.elements.map()?;
        let [origin, result] = self.local_layouts(&at, [origin, result])?;
        let n = at.size() / named.size() as u64;
        let array = farside_datatype::Datatype::from(named).message(n)?;
        let update = Update { array, len: n as usize * named.extent(), combine };
        let old = result.as_ref().map(|(base, map)| (*base, map));
        let operands = origin.as_ref().map(|(base, map)| (base.cast_const(), map));
        // SAFETY: the program does not access the buffers until the operation is complete.
        Ok(unsafe { self.win.raw().update(&update, operands, old, self.target, self.offset, &at) }?)
    }
}

/// Accumulates one element of a predefined type by a CPU atomic, if the target is ready and its memory mapped; returns
/// whether it did. The old value is not fetched if `old` is null.
#[inline(never)]
fn try_one(
    raw: &RawWindow,
    (target, offset): (usize, usize),
    (ty, operation): (ElementType, Operation),
    operand: *mut u8,
    old: *mut u8,
) -> bool {
    // SAFETY: the program does not access the buffers until the operation is complete.
    with_element!(ty, T => unsafe {
        raw.try_accumulate::<T>(operation, operand.cast(), old.cast(), target, offset)
    }; I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64, F32 f32, F64 f64)
}

/// The arguments of an accumulate.
#[derive(Clone, Copy)]
pub struct Accumulate {
    pub origin: Buffer,
    pub result: Option<Buffer>,
    pub at: Place,
    pub op: Op,
}

impl Accumulate {
    #[inline(always)]
    fn issue(self, call: Usual<'_>) -> Result<bool> {
        if call.is_fast_path() && self.try_issue(&call) {
            return Ok(true);
        }
        call.slow_path(|call| self.checked(call)?.map_or(Ok(()), |checked| checked.issue()))
    }

    /// The accumulate, if it is on contiguous elements of a predefined type with valid addresses.
    #[inline(always)]
    pub fn usual(self, plain: &PlainTypes) -> Option<UsualAccumulate> {
        let Self { origin, result, at, op } = self;
        let (atomics, operation) = (plain.atomics(at.datatype)?, operation(op)?);
        let is_same = |buffer: Buffer| (buffer.n, buffer.datatype) == (at.n, at.datatype);
        let (old, is_read) = (result.map_or(null_mut(), |result| result.address.at()), operation == Operation::NoOp);
        let operand = if is_read { old } else { origin.address.at() };
        let is_usual = (is_read || is_same(origin))
            && !is_constant(operand.cast())
            && result.is_none_or(|result| is_same(result) && !result.address.is_constant())
            && atomics.allow(operation);
        is_usual.then_some(UsualAccumulate { operation, ty: atomics.ty, operand, old, is_read })
    }

    /// Accumulates elements of a predefined type by CPU atomics, if the target is ready and its memory mapped; returns
    /// whether it did.
    #[inline(always)]
    fn try_issue(self, call: &Runtime) -> bool {
        let (Some(usual), at) = (self.usual(&call.plain), self.at) else { return false };
        // SAFETY: the window is borrowed for an operation that does not wait and calls no function of the program.
        let place = unsafe { call.wins.borrow_object(at.win) }.and_then(|win| win.place(at.rank, at.displacement));
        let Some((raw, target, offset)) = place else { return false };
        let UsualAccumulate { operation, ty, operand, old, .. } = usual;
        if at.n == 1 {
            return try_one(raw, (target, offset), (ty, operation), operand, old);
        }
        let Some(len) = usual.len(&call.plain, at) else { return false };
        // SAFETY: the program does not access the buffers until the operation is complete.
        unsafe { raw.try_accumulate_array(operation, ty, operand, old, len, target, offset) }
    }

    /// Checks the arguments, and takes a reference to the window; `None` if the target is `MPI_PROC_NULL`.
    pub fn checked(self, call: &Call<'_>) -> Result<Option<Checked>> {
        let Self { origin, result, at, op } = self;
        let remote = Remote::new(call, at)?;
        let effect = Effect::of(call, op)?;
        let origin = if effect == Effect::Read { None } else { Some(Local::new(call, origin)?) };
        let result = result.map(|result| Local::new(call, result)).transpose()?;
        Ok(remote.map(|remote| Checked { remote, op, effect, origin, result }))
    }
}

/// An accumulate on contiguous elements of a predefined type. For `MPI_NO_OP` the result buffer stands in for the
/// operand.
pub struct UsualAccumulate {
    pub operation: Operation,
    pub ty: ElementType,
    pub operand: *mut u8,
    pub old: *mut u8,
    is_read: bool,
}

impl UsualAccumulate {
    /// The bytes of the elements; `None` if operands and results overlap.
    #[inline(always)]
    pub fn len(&self, plain: &PlainTypes, at: Place) -> Option<usize> {
        let len = plain.size(at.n, at.datatype)?;
        (self.is_read || self.operand.addr().abs_diff(self.old.addr()) >= len).then_some(len)
    }
}

/// An accumulate whose arguments have been checked.
pub struct Checked {
    pub remote: Remote,
    op: Op,
    effect: Effect,
    origin: Option<Local>,
    result: Option<Local>,
}

impl Checked {
    pub fn issue(&self) -> Result {
        let Self { remote, op, effect, origin, result } = self;
        match (effect, result) {
            // Nothing is read or written.
            (Effect::Read, None) => remote.issue_empty(None),
            _ => remote.accumulate(*op, *effect, origin.as_ref(), result.as_ref()),
        }
    }
}

#[inline(always)]
pub fn accumulate(call: Usual<'_>, origin: Buffer, at: Place, op: Op) -> Result<bool> {
    Accumulate { origin, result: None, at, op }.issue(call)
}

#[inline(always)]
pub fn get_accumulate(call: Usual<'_>, origin: Buffer, result: Buffer, at: Place, op: Op) -> Result<bool> {
    Accumulate { origin, result: Some(result), at, op }.issue(call)
}

#[inline(always)]
pub fn fetch_and_op(call: Usual<'_>, origin: Buffer, result: Buffer, at: Place, op: Op) -> Result<bool> {
    let accumulate = Accumulate { origin, result: Some(result), at, op };
    if call.is_fast_path() && accumulate.try_issue(&call) {
        return Ok(true);
    }
    call.slow_path(|call| {
        predefined(call, at.datatype)?;
        accumulate.checked(call)?.map_or(Ok(()), |checked| checked.issue())
    })
}

/// Checks that a type is predefined.
fn predefined(call: &Call<'_>, datatype: Type) -> Result<Named, Fail> {
    let derived = || fail(MPI_ERR_TYPE, "is derived, but the call requires a predefined type").value(datatype.0);
    call.types.get(datatype)?.layout.named().ok_or_else(derived)
}

/// Reads a value of a type at an address of the program.
///
/// # Safety
/// The address is that of a readable value.
pub unsafe fn value<T: Element>(at: *const u8) -> T {
    // SAFETY: the caller guarantees the value.
    unsafe { at.cast::<T>().read_unaligned() }
}

/// The element type of a compare-and-swap, if the standard allows it and the addresses are valid.
#[inline(always)]
pub fn usual_swap(plain: &PlainTypes, addresses: [Address; 3], at: Place) -> Option<ElementType> {
    let atomics = plain.atomics(at.datatype).filter(|atomics| atomics.is_swapped)?;
    (!addresses.iter().any(|address| address.is_constant())).then_some(atomics.ty)
}

/// Calls a window's compare-and-swap for integers of `$len` bytes: the new value, the expected value and the result are
/// at addresses of the program.
macro_rules! swap {
    ($raw:ident.$call:ident, $len:expr, $addresses:expr, $place:expr; $($size:pat => $t:ty),*; $($other:pat => $else:expr)?) => {
        match $len {
            $($size => {
                let ([new, old, result], (target, offset)) = ($addresses, $place);
                // SAFETY: the program passes values of the type, and does not access the result until the operation is
                // complete.
                unsafe {
                    let (old, new) = (value::<$t>(old), value::<$t>(new));
                    $raw.$call(old, new, result.cast::<$t>(), target, offset)
                }
            })*
            $($other => $else,)?
        }
    };
}

#[inline(always)]
pub fn compare_and_swap(call: Usual<'_>, origin: Buffer, compare: Buffer, result: Buffer, at: Place) -> Result<bool> {
    let addresses = [origin.address, compare.address, result.address];
    if call.is_fast_path()
        && let Some(ty) = usual_swap(&call.plain, addresses, at)
        // SAFETY: the window is borrowed for an operation that does not wait and calls no function of the program.
        && let Some(win) = unsafe { call.wins.borrow_object(at.win) }
        && let Some((raw, target, offset)) = win.place(at.rank, at.displacement)
    {
        let is_done = swap!(
            raw.try_compare_and_swap, ty.size(), addresses.map(Address::at), (target, offset);
            1 => u8, 2 => u16, 4 => u32, _ => u64;
        );
        if is_done {
            return Ok(true);
        }
    }
    call.slow_path(|call| swap_other(call, [origin, compare, result], at))
}

/// The slow path of a compare-and-swap, which holds its window.
fn swap_other(call: &Call<'_>, buffers: [Buffer; 3], at: Place) -> Result {
    let remote = Remote::new(call, at)?;
    let named = predefined(call, at.datatype)?;
    if !is_swapped(named) {
        let why = format!("is {}, but the call supports only integers, logicals and bytes", named.mpi_name());
        return Err(fail(MPI_ERR_TYPE, why).value(at.datatype.0));
    }
    for buffer in buffers {
        buffer.address.check(named.size() as u64, 0)?;
    }
    let Some(remote) = remote else { return Ok(()) };
    let (raw, addresses) = (remote.win.raw(), buffers.map(|buffer| buffer.address.at()));
    let swapped = swap!(
        raw.compare_and_swap, named.size(), addresses, (remote.target, remote.offset);
        1 => u8, 2 => u16, 4 => u32, 8 => u64; len => {
            // SAFETY: as in `swap`; the values are copied before the call returns.
            let [new, old] = [0, 1].map(|i| unsafe { std::slice::from_raw_parts(addresses[i], len) }.to_vec());
            let combine = move |elements: &mut [u8], _: &[u8]| {
                if *elements == *old {
                    elements.copy_from_slice(&new);
                }
            };
            let result = Local::new(call, buffers[2])?;
            return remote.update(named, Some(Rc::new(combine)), None, Some(&result));
        }
    );
    Ok(swapped?)
}
