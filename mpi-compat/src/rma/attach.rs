#![allow(unsafe_code)]
//! Dynamic windows (MPI-5.0 section 12.2.4): attaching and detaching memory is local.

use std::ffi::c_void;

use farside_rma::raw::Options;
use farside_rma::raw::dynamic::RawDynamicWindow;

use super::window::{WindowSpec, make, put_handle};
use crate::arguments::{Out, check_buffer};
use crate::constants::*;
use crate::fail::{Fail, Result, fail};
use crate::handle::{Comm, Info, Win};
use crate::objects::{Memory, WinObject};
use crate::runtime::Call;

pub fn win_create_dynamic(call: &Call<'_>, info: Info, comm: Comm, win: Out<Win>) -> Result {
    let given = WindowSpec { flavor: MPI_WIN_FLAVOR_DYNAMIC, size: 0, unit: 1, info, base: None };
    let object = make(call, comm, &given, |team, _, _, _| {
        Ok(Memory::Attached(RawDynamicWindow::new(team, None, Options::default())?))
    })?;
    put_handle(call, object, win);
    Ok(())
}

fn dynamic(object: &WinObject, win: Win) -> Result<&RawDynamicWindow> {
    object.dynamic().ok_or_else(|| fail(MPI_ERR_RMA_FLAVOR, "is not a dynamic window").value(win.0))
}

pub fn win_attach(call: &Call<'_>, win: Win, base: *mut c_void, size: i64) -> Result {
    let object = call.wins.get(win)?;
    let dynamic = dynamic(&object, win)?;
    let len = usize::try_from(size).map_err(|_| fail(MPI_ERR_SIZE, format!("is {size}")).named("size"))?;
    if len == 0 {
        object.empty.borrow_mut().push(base.addr());
        return Ok(());
    }
    check_buffer(base, false, "base").map_err(|failed| failed.class(MPI_ERR_ARG))?;
    let base = base.cast::<u8>();
    if dynamic.has_attached(base, len) {
        return Err(fail(MPI_ERR_RMA_ATTACH, "overlaps memory that is already attached").named("base"));
    }
    // SAFETY: the program keeps the memory valid until it is detached or the window is freed.
    unsafe { dynamic.attach(base, len) }.map_err(|e| Fail::from(e).class(MPI_ERR_RMA_ATTACH))?;
    Ok(())
}

pub fn win_detach(call: &Call<'_>, win: Win, base: *const c_void) -> Result {
    let object = call.wins.get(win)?;
    let dynamic = dynamic(&object, win)?;
    if let Some(attachment) = dynamic.attachment_at(base.cast()) {
        return Ok(dynamic.detach(attachment)?);
    }
    let mut empty = object.empty.borrow_mut();
    let none = || fail(MPI_ERR_RMA_ATTACH, "is not the start of attached memory").named("base");
    let at = empty.iter().position(|address| *address == base.addr()).ok_or_else(none)?;
    empty.swap_remove(at);
    Ok(())
}
