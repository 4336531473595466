#![allow(unsafe_code)]
//! Accumulates (MPI-5.0 sections 12.3.3 and 12.3.4). Elements that are one number of at most 8 bytes are atomic
//! operations of the window; pairs, complex numbers and longer elements are combined at the origin, while other origins
//! are locked out.

use std::ffi::c_int;
use std::rc::Rc;

use farside_datatype::{Named, TypeMap};
use farside_rma::op::ElementType;
use farside_rma::raw::{Combine, Update, element_type};
use farside_rma::{Element, Op as Operation};

use super::access::{Local, Remote};
use crate::arguments::is_constant;
use crate::constants::*;
use crate::fail::{Fail, Result, fail};
use crate::handle::{Op, Type, Win};
use crate::objects::elements::element;
use crate::objects::kernels::{Predefined, is_swapped};
use crate::objects::{OpObject, TypeObject, operation};
use crate::operands::{Buffer, Place};
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
            _ => return Err(fail(MPI_ERR_OP, "is a user-defined operator, which accumulates do not take").value(op.0)),
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
        let mixed = || fail(MPI_ERR_TYPE, "has no elements of one predefined type").named("target_datatype");
        if self.elements.n == 0 || self.elements.object.layout.size() == 0 {
            return Ok(None);
        }
        let named = named.ok_or_else(mixed)?;
        match local.filter(|local| local.elements.n > 0).map(|local| of(&local.elements.object)) {
            Some(other) if other != Some(named) => {
                Err(fail(MPI_ERR_TYPE, format!("has other elements than {}", named.mpi_name()))
                    .named("origin_datatype"))
            }
            _ => Ok(Some(named)),
        }
    }

    fn accumulate(&self, op: Op, effect: Effect, origin: Option<&Local>, result: Option<&Local>) -> Result {
        let Some(named) = self.element(origin)? else { return self.nothing(origin) };
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

    /// Issues an operation without elements, which still needs an epoch.
    fn nothing(&self, origin: Option<&Local>) -> Result {
        if let Some(origin) = origin {
            self.fits(origin.elements.map()?.size() as usize, 0)?;
        }
        // SAFETY: the operation has no bytes, so every address is valid.
        Ok(unsafe { self.win.raw().put(std::ptr::NonNull::dangling().as_ptr(), 0, self.target, 0) }?)
    }

    /// The addresses and layouts of local sides, which must have the same number of bytes as the target's.
    fn maps(&self, at: &TypeMap, sides: [Option<&Local>; 2]) -> Result<[Option<(*mut u8, TypeMap)>; 2]> {
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
        let there = self.elements.plain()?;
        let here = origin.map(|origin| origin.elements.plain()).transpose()?;
        let former = result.map(|result| result.elements.plain()).transpose()?;
        if let (Some(there), None | Some(Some(_)), None | Some(Some(_))) = (there, here, former) {
            for local in [here, former].into_iter().flatten().flatten() {
                self.fits(local, there)?;
            }
            let old = result.map_or(std::ptr::null_mut(), |result| result.base);
            let operand = origin.map_or(old.cast_const(), |origin| origin.base);
            // SAFETY: the program does not access the buffers until the operation is complete.
            return Ok(unsafe { self.win.raw().accumulate_bytes(op, ty, operand, old, there, target, offset) }?);
        }
        let at = self.elements.map()?;
        let [origin, result] = self.maps(&at, [origin, result])?;
        let old = result.as_ref().map(|(base, map)| (*base, map));
        let operand = origin.as_ref().map(|(base, map)| (base.cast_const(), map));
        let operand = operand.unwrap_or((std::ptr::null(), &at));
        // SAFETY: as above.
        Ok(unsafe { self.win.raw().accumulate_typed(op, operand, old, target, offset, &at) }?)
    }

    fn update(&self, named: Named, combine: Option<Combine>, origin: Option<&Local>, result: Option<&Local>) -> Result {
        let at = self.elements.map()?;
        let [origin, result] = self.maps(&at, [origin, result])?;
        let n = at.size() / named.size() as u64;
        let array = farside_datatype::Datatype::from(named).message(n)?;
        let update = Update { array, len: n as usize * named.extent(), combine };
        let old = result.as_ref().map(|(base, map)| (*base, map));
        let operands = origin.as_ref().map(|(base, map)| (base.cast_const(), map));
        // SAFETY: the program does not access the buffers until the operation is complete.
        Ok(unsafe { self.win.raw().update(&update, operands, old, self.target, self.offset, &at) }?)
    }
}

/// Accumulates one element of a predefined type by a processor instruction, if the target memory is mapped and ready;
/// returns whether it did. The old value is not fetched if `old` is null.
#[inline(never)]
fn try_update(
    runtime: &Runtime,
    origin: *mut u8,
    old: *mut u8,
    datatype: Type,
    rank: c_int,
    displacement: i64,
    op: Op,
    win: Win,
) -> bool {
    let (Some(atomics), Some(operation)) = (runtime.plain.atomics(datatype), operation(op)) else { return false };
    let operand = if operation == Operation::NoOp { old } else { origin };
    if !atomics.allow(operation) || is_constant(operand.cast()) {
        return false;
    }
    // SAFETY: the operation does not wait, and calls no function of the program.
    let place = unsafe { runtime.wins.look(win) }.and_then(|win| win.place(rank, displacement));
    let Some((raw, target, offset)) = place else { return false };
    // SAFETY: the program does not access the buffers until the operation is complete.
    with_element!(atomics.ty, T => unsafe {
        raw.try_accumulate::<T>(operation, operand.cast(), old.cast(), target, offset)
    }; I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64, F32 f32, F64 f64)
}

/// The arguments of an accumulate.
pub struct Accumulate {
    pub origin: Buffer,
    pub result: Option<Buffer>,
    pub at: Place,
    pub op: Op,
}

impl Accumulate {
    /// Checks the arguments; `None` if the target is `MPI_PROC_NULL`.
    #[inline(never)]
    pub fn checked(self, call: &Call<'_>) -> Result<Option<Checked>> {
        let Self { origin, result, at, op } = self;
        let remote = Remote::new(call, at)?;
        let effect = Effect::of(call, op)?;
        let origin = if effect == Effect::Read { None } else { Some(Local::new(call, origin)?) };
        let result = result.map(|result| Local::new(call, result)).transpose()?;
        Ok(remote.map(|remote| Checked { remote, op, effect, origin, result }))
    }

    fn issue(self, call: &Call<'_>) -> Result {
        self.checked(call)?.map_or(Ok(()), |checked| checked.issue())
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
            // Nothing is read or changed.
            (Effect::Read, None) => remote.nothing(None),
            _ => remote.accumulate(*op, *effect, origin.as_ref(), result.as_ref()),
        }
    }
}

/// Accumulates elements of a predefined type like [`try_update`].
#[inline(never)]
fn try_update_many(runtime: &Runtime, origin: *mut u8, old: *mut u8, at: Place, op: Op) -> bool {
    let (atomics, operation) = (runtime.plain.atomics(at.datatype), operation(op));
    let (Some(atomics), Some(operation), Some(len)) = (atomics, operation, runtime.plain.size(at.n, at.datatype))
    else {
        return false;
    };
    let operand = if operation == Operation::NoOp { old } else { origin };
    let overlaps = operation != Operation::NoOp && operand.addr().abs_diff(old.addr()) < len;
    if !atomics.allow(operation) || is_constant(operand.cast()) || overlaps {
        return false;
    }
    // SAFETY: the operation does not wait, and calls no function of the program.
    let place = unsafe { runtime.wins.look(at.win) }.and_then(|win| win.place(at.rank, at.displacement));
    let Some((raw, target, offset)) = place else { return false };
    // SAFETY: the program does not access the buffers until the operation is complete.
    unsafe { raw.try_accumulate_array(operation, atomics.ty, operand, old, len, target, offset) }
}

/// Accumulates elements if that can be done at once. The old values are not fetched if `old` is null.
#[inline(always)]
fn try_many(runtime: &Runtime, origin: *mut u8, old: *mut u8, at: Place, op: Op) -> bool {
    match at.n {
        1 => try_update(runtime, origin, old, at.datatype, at.rank, at.displacement, op, at.win),
        _ => try_update_many(runtime, origin, old, at, op),
    }
}

#[inline(always)]
pub fn try_accumulate(runtime: &Runtime, origin: Buffer, at: Place, op: Op) -> Result<bool> {
    let is_same = (origin.n, origin.datatype) == (at.n, at.datatype);
    Ok(is_same && try_many(runtime, origin.address.at(), std::ptr::null_mut(), at, op))
}

#[inline(always)]
pub fn try_get_accumulate(runtime: &Runtime, origin: Buffer, result: Buffer, at: Place, op: Op) -> Result<bool> {
    let is_same = |buffer: Buffer| (buffer.n, buffer.datatype) == (at.n, at.datatype);
    let are_same = is_same(result) && (op == MPI_NO_OP || is_same(origin)) && !result.address.is_constant();
    Ok(are_same && try_many(runtime, origin.address.at(), result.address.at(), at, op))
}

pub fn accumulate(call: &Call<'_>, origin: Buffer, at: Place, op: Op) -> Result {
    Accumulate { origin, result: None, at, op }.issue(call)
}

pub fn get_accumulate(call: &Call<'_>, origin: Buffer, result: Buffer, at: Place, op: Op) -> Result {
    Accumulate { origin, result: Some(result), at, op }.issue(call)
}

/// Checks that a type is predefined.
fn predefined(call: &Call<'_>, datatype: Type) -> Result<Named, Fail> {
    let derived = || fail(MPI_ERR_TYPE, "is derived, but the call takes predefined types").value(datatype.0);
    call.types.get(datatype)?.layout.named().ok_or_else(derived)
}

#[inline(always)]
pub fn try_fetch_and_op(runtime: &Runtime, origin: Buffer, result: Buffer, at: Place, op: Op) -> Result<bool> {
    let (from, old) = (origin.address.at(), result.address.at());
    let is_place = !result.address.is_constant();
    Ok(is_place && try_update(runtime, from, old, at.datatype, at.rank, at.displacement, op, at.win))
}

pub fn fetch_and_op(call: &Call<'_>, origin: Buffer, result: Buffer, at: Place, op: Op) -> Result {
    predefined(call, at.datatype)?;
    Accumulate { origin, result: Some(result), at, op }.issue(call)
}

/// The value of a type at an address of the program.
///
/// # Safety
/// The program guarantees a readable value there.
unsafe fn value<T: Element>(at: *const u8) -> T {
    // SAFETY: the caller guarantees the value.
    unsafe { at.cast::<T>().read_unaligned() }
}

/// Compares and swaps an integer of a predefined type, if the target memory is mapped and ready; returns whether it
/// did.
#[inline(always)]
pub fn try_compare_and_swap(
    runtime: &Runtime,
    origin: Buffer,
    compare: Buffer,
    result: Buffer,
    at: Place,
) -> Result<bool> {
    let atomics = runtime.plain.atomics(at.datatype).filter(|atomics| atomics.is_swapped);
    let Some(atomics) = atomics else { return Ok(false) };
    let [new, old, result] = [origin.address, compare.address, result.address];
    if new.is_constant() || old.is_constant() || result.is_constant() {
        return Ok(false);
    }
    let (new, old, result) = (new.at(), old.at(), result.at());
    // SAFETY: the operation does not wait, and calls no function of the program.
    let place = unsafe { runtime.wins.look(at.win) }.and_then(|win| win.place(at.rank, at.displacement));
    let Some((raw, target, offset)) = place else { return Ok(false) };
    macro_rules! swap {
        ($t:ty) => {
            // SAFETY: the program gives values of the type, and does not access the result until the operation is
            // complete.
            unsafe {
                let (old, new) = (value::<$t>(old), value::<$t>(new));
                raw.try_compare_and_swap(old, new, result.cast::<$t>(), target, offset)
            }
        };
    }
    Ok(match atomics.ty.size() {
        1 => swap!(u8),
        2 => swap!(u16),
        4 => swap!(u32),
        _ => swap!(u64),
    })
}

pub fn compare_and_swap(call: &Call<'_>, origin: Buffer, compare: Buffer, result: Buffer, at: Place) -> Result {
    let buffers = [origin, compare, result];
    let remote = Remote::new(call, at)?;
    let named = predefined(call, at.datatype)?;
    if !is_swapped(named) {
        let why = format!("is {}, which is neither an integer nor logical nor a byte", named.mpi_name());
        return Err(fail(MPI_ERR_TYPE, why).value(at.datatype.0));
    }
    for buffer in buffers {
        buffer.address.check(named.size() as u64, 0)?;
    }
    let Some(remote) = remote else { return Ok(()) };
    let [new, old, result] = buffers.map(|buffer| buffer.address.at());
    let (win, target, offset) = (&remote.win, remote.target, remote.offset);
    macro_rules! swap {
        ($t:ty) => {
            // SAFETY: the program gives values of the type, and does not access the result until the operation is
            // complete.
            unsafe {
                let (old, new) = (value::<$t>(old), value::<$t>(new));
                win.raw().compare_and_swap(old, new, result.cast::<$t>(), target, offset)
            }?
        };
    }
    match named.size() {
        1 => swap!(u8),
        2 => swap!(u16),
        4 => swap!(u32),
        8 => swap!(u64),
        len => {
            // SAFETY: as above; the values are copied now.
            let [new, old] = [new, old].map(|at| unsafe { std::slice::from_raw_parts(at, len) }.to_vec());
            let combine = move |elements: &mut [u8], _: &[u8]| {
                if *elements == *old {
                    elements.copy_from_slice(&new);
                }
            };
            let result = Local::new(call, buffers[2])?;
            remote.update(named, Some(Rc::new(combine)), None, Some(&result))?;
        }
    }
    Ok(())
}
