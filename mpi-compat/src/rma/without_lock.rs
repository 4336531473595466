#![allow(unsafe_code)]
//! Operations on mapped memory that any thread may execute without the lock. Each handles its usual case or does
//! nothing. The functions have the parameters of the MPI calls.

use std::ffi::c_int;

use farside_rma::raw::MappedWindow;

use super::accumulate::{Accumulate, UsualAccumulate, usual_swap, value};
use super::transfer::usual_len;
use crate::fail::Result;
use crate::handle::{Op, Win};
use crate::operands::{Address, Buffer, Place};
use crate::runtime::WithoutLock;

impl WithoutLock {
    /// Calls `f` with the window, the rank and the byte offset of a target; returns its result, or `false` for a window
    /// that is not mapped.
    #[inline(always)]
    fn at(self, at: Place, f: impl FnOnce(MappedWindow<'_>, usize, usize) -> bool) -> bool {
        // A copy of the whole place would wait for the stores of its fields.
        let Place { win, rank, displacement, .. } = at;
        let done = self.mapped.with(win.0, |mapped| {
            mapped.place(rank, displacement).is_some_and(|(target, offset)| f(mapped.window, target, offset))
        });
        done.unwrap_or(false)
    }

    fn accumulate(self, accumulate: Accumulate) -> bool {
        let (Some(usual), at) = (accumulate.usual(self.plain), accumulate.at) else { return false };
        let Some(len) = usual.len(self.plain, at) else { return false };
        let UsualAccumulate { operation, ty, operand, old, .. } = usual;
        // SAFETY: the program passes valid buffers, and orders the operation with the calls that open and close the
        // epoch.
        self.at(at, |window, target, offset| unsafe {
            window.try_accumulate(operation, ty, operand, old, len, target, offset)
        })
    }

    /// Calls a flush of a window, after the full fence of the table.
    fn flush(self, win: Win, flush: impl FnOnce(MappedWindow<'_>) -> bool) -> Result<bool> {
        Ok(self.mapped.with(win.0, |mapped| flush(mapped.window)).unwrap_or(false))
    }
}

#[inline(always)]
pub fn put(state: WithoutLock, origin: Buffer, at: Place) -> Result<bool> {
    let Some(len) = usual_len(state.plain, origin, at) else { return Ok(false) };
    // SAFETY: as in `accumulate`.
    Ok(state.at(at, |window, target, offset| unsafe { window.try_put(origin.address.at(), len, target, offset) }))
}

#[inline(always)]
pub fn get(state: WithoutLock, origin: Buffer, at: Place) -> Result<bool> {
    let Some(len) = usual_len(state.plain, origin, at) else { return Ok(false) };
    // SAFETY: as in `accumulate`.
    Ok(state.at(at, |window, target, offset| unsafe { window.try_get(origin.address.at(), len, target, offset) }))
}

pub fn accumulate(state: WithoutLock, origin: Buffer, at: Place, op: Op) -> Result<bool> {
    Ok(state.accumulate(Accumulate { origin, result: None, at, op }))
}

pub fn get_accumulate(state: WithoutLock, origin: Buffer, result: Buffer, at: Place, op: Op) -> Result<bool> {
    Ok(state.accumulate(Accumulate { origin, result: Some(result), at, op }))
}

pub fn fetch_and_op(state: WithoutLock, origin: Buffer, result: Buffer, at: Place, op: Op) -> Result<bool> {
    get_accumulate(state, origin, result, at, op)
}

pub fn compare_and_swap(
    state: WithoutLock,
    origin: Buffer,
    compare: Buffer,
    result: Buffer,
    at: Place,
) -> Result<bool> {
    let addresses = [origin.address, compare.address, result.address];
    let Some(ty) = usual_swap(state.plain, addresses, at) else { return Ok(false) };
    let [new, old, result] = addresses.map(Address::at);
    macro_rules! swap {
        ($($size:pat => $t:ty),*) => {
            // SAFETY: the program passes values of the type, and memory for the result.
            state.at(at, |window, target, offset| unsafe {
                match ty.size() {
                    $($size => {
                        let found = window.try_compare_and_swap(value::<$t>(old), value::<$t>(new), target, offset);
                        found.map(|found| result.cast::<$t>().write_unaligned(found)).is_some()
                    })*
                }
            })
        };
    }
    Ok(swap!(1 => u8, 2 => u16, 4 => u32, _ => u64))
}

#[inline(always)]
pub fn win_flush(state: WithoutLock, rank: c_int, win: Win) -> Result<bool> {
    state.flush(win, |window| window.try_flush_fenced(Some(rank as usize)))
}

pub fn win_flush_all(state: WithoutLock, win: Win) -> Result<bool> {
    state.flush(win, |window| window.try_flush_fenced(None))
}

pub fn win_flush_local(state: WithoutLock, rank: c_int, win: Win) -> Result<bool> {
    state.flush(win, |window| window.try_flush_local(Some(rank as usize)))
}

pub fn win_flush_local_all(state: WithoutLock, win: Win) -> Result<bool> {
    state.flush(win, |window| window.try_flush_local(None))
}
