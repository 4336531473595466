#![allow(unsafe_code)]
//! Creation, freeing and queries of windows (MPI-5.0 sections 12.2.1 to 12.2.7).

use std::ffi::{c_int, c_void};
use std::rc::Rc;

use farside_rma::raw::{Options, RawWindow};
use farside_rma::{ErrorKind, Team};

use crate::arguments::{LongOut, Out, Text, TextOut, check_buffer};
use crate::collective::control::ControlExchange;
use crate::collective::plan::Caller;
use crate::comm::offer_contexts;
use crate::constants::*;
use crate::errors;
use crate::fail::{Fail, Result, fail};
use crate::group::handle_of;
use crate::handle::Handle;
use crate::handle::{Comm, Group, Info, Win};
use crate::objects::{Facts, InfoObject, Mapped, Memory, WinObject};
use crate::runtime::Call;

/// The hints of the chapter with their defaults. `alloc_shared_noncontig` allocates separate pages for each rank. The
/// other hints have no effect: programs violate the assertions that they make by hints, and accumulates are always
/// ordered as strictly as any `accumulate_ordering` requires.
const HINTS: [(&str, &str); 8] = [
    ("no_locks", "false"),
    ("accumulate_ordering", "rar,raw,war,waw"),
    ("accumulate_ops", "same_op_no_op"),
    ("mpi_accumulate_granularity", "0"),
    ("same_size", "false"),
    ("same_disp_unit", "false"),
    ("alloc_shared_noncontig", "false"),
    ("mpi_memory_alloc_kinds", KINDS),
];

/// The supported memory kinds of buffers and windows.
pub const KINDS: &str = "mpi,system";
/// Alignment of memory that windows allocate: a page. The contiguous memory of shared windows is aligned only at its
/// start.
const ALIGNMENT: usize = 4096;

/// Whether a value is valid for a hint.
fn is_value(key: &str, value: &[u8]) -> bool {
    let Ok(value) = std::str::from_utf8(value) else { return false };
    match key {
        "accumulate_ordering" => value == "none" || value.split(',').all(|v| ["rar", "raw", "war", "waw"].contains(&v)),
        "accumulate_ops" => ["same_op", "same_op_no_op"].contains(&value),
        "mpi_accumulate_granularity" => value.parse::<u64>().is_ok(),
        // The program cannot change which kinds of memory exist.
        "mpi_memory_alloc_kinds" => false,
        _ => ["true", "false"].contains(&value),
    }
}

/// The hints in effect.
fn hints(call: &Call<'_>, info: Info) -> Result<Rc<InfoObject>> {
    let used = InfoObject::of(&HINTS);
    take_hints(call, info, &used, |_| true)?;
    Ok(used)
}

fn take_hints(call: &Call<'_>, info: Info, used: &InfoObject, may: impl Fn(&str) -> bool) -> Result {
    if info == MPI_INFO_NULL {
        return Ok(());
    }
    let given = call.infos.get(info)?;
    for (key, _) in HINTS.iter().filter(|(key, _)| may(key)) {
        if let Some(value) = given.get(key.as_bytes()).filter(|value| is_value(key, value)) {
            used.set(key.as_bytes().to_vec(), value);
        }
    }
    Ok(())
}

/// The arguments of a call that creates a window.
pub(super) struct WindowSpec {
    pub flavor: c_int,
    pub size: i64,
    pub unit: i64,
    pub info: Info,
    /// The program's memory.
    pub base: Option<*mut c_void>,
}

/// Creates a window. `memory` receives the length and the alignment of the memory that this rank allocates. Collective;
/// if the allocation fails at one rank, the call fails at all ranks.
pub(super) fn make(
    call: &Call<'_>,
    comm: Comm,
    given: &WindowSpec,
    memory: impl FnOnce(&Team, usize, usize, &InfoObject) -> Result<Memory>,
) -> Result<WinObject> {
    let caller = Caller::new(call, comm)?;
    if caller.is_inter() {
        return Err(
            fail(MPI_ERR_COMM, "is an intercommunicator, but the call requires an intracommunicator").value(comm.0)
        );
    }
    let old = &caller.comm;
    let len = usize::try_from(given.size).ok().filter(|len| *len <= isize::MAX as usize);
    let len = len.ok_or_else(|| fail(MPI_ERR_SIZE, format!("is {}", given.size)).named("size"))?;
    if given.unit <= 0 {
        return Err(fail(MPI_ERR_DISP, format!("is {}", given.unit)).named("disp_unit"));
    }
    if let (Some(base), 1..) = (given.base, len) {
        check_buffer(base, false, "base").map_err(|failed| failed.class(MPI_ERR_ARG))?;
    }
    let info = hints(call, given.info)?;
    let asked = if given.info == MPI_INFO_NULL { None } else { call.infos.get(given.info)?.alignment() };
    let align = asked.map_or(ALIGNMENT, |align| align.max(ALIGNMENT));
    let [context, _] = offer_contexts(&caller)?;
    let unit = given.unit.cast_unsigned();
    let words = ControlExchange::gather(call, &old.team, &[context, unit as u32, (unit >> 32) as u32])?;
    let (words_of, size) = (|rank| words.of(rank), old.team.size());
    let units = (0..size).map(|rank| i64::from(words_of(rank)[1]) | i64::from(words_of(rank)[2]) << 32).collect();
    let context = words_of(0)[0];
    let team = Team::of(old.team.job(), old.team.members(), context)?;
    let memory = memory(&team, len, align, &info)?;
    let follows = given.flavor == MPI_WIN_FLAVOR_SHARED && is_contiguous(&info);
    let base = match &memory {
        Memory::Own(raw) if len > 0 || follows => raw.base().addr(),
        _ => 0,
    };
    if base > 0 && !follows && given.flavor != MPI_WIN_FLAVOR_CREATE {
        info.set(b"mpi_minimum_memory_alignment".to_vec(), align.to_string().into());
    }
    Ok(WinObject {
        errhandler: errors::fatal(call),
        attributes: Default::default(),
        name: Default::default(),
        info,
        group: Rc::clone(&old.group),
        facts: Facts {
            base,
            size: given.size,
            unit: c_int::try_from(given.unit).unwrap_or(c_int::MAX),
            flavor: given.flavor,
            model: MPI_WIN_UNIFIED,
        },
        memory,
        context,
        units,
        empty: Default::default(),
    })
}

pub(super) fn put_handle(call: &Call<'_>, object: WinObject, win: Out<Win>) {
    let object = Rc::new(object);
    let handle = call.wins.insert(Rc::clone(&object));
    // A bill counts calls, which only calls on the window itself do.
    if let Some(mapped) = object.raw().mapped().filter(|_| object.raw().job().bill().is_none()) {
        // SAFETY: `win_free` drops the window after it has removed it from the table.
        call.mapped.insert(handle, || Mapped::new(unsafe { mapped.outliving() }, &object.units));
    }
    win.set(handle);
}

pub fn win_create(
    call: &Call<'_>,
    base: *mut c_void,
    size: i64,
    unit: i64,
    info: Info,
    comm: Comm,
    win: Out<Win>,
) -> Result {
    let given = WindowSpec { flavor: MPI_WIN_FLAVOR_CREATE, size, unit, info, base: Some(base) };
    let mut object = make(call, comm, &given, |team, len, _, _| {
        if len == 0 {
            return Ok(Memory::Own(RawWindow::allocate(team, 0, Options::default())?));
        }
        // SAFETY: the program keeps the memory valid until the window is freed.
        Ok(Memory::Own(unsafe { RawWindow::create(team, base.cast(), len, Options::default()) }?))
    })?;
    object.facts.base = base.addr();
    put_handle(call, object, win);
    Ok(())
}

pub fn win_allocate(
    call: &Call<'_>,
    size: i64,
    unit: i64,
    info: Info,
    comm: Comm,
    baseptr: Out<usize>,
    win: Out<Win>,
) -> Result {
    let given = WindowSpec { flavor: MPI_WIN_FLAVOR_ALLOCATE, size, unit, info, base: None };
    let object = make(call, comm, &given, |team, len, align, _| {
        Ok(Memory::Own(RawWindow::allocate_aligned(team, len, align, Options::default())?))
    })?;
    baseptr.set(object.facts.base);
    put_handle(call, object, win);
    Ok(())
}

/// Whether the memory of a shared window is contiguous: each rank's memory follows that of the previous rank.
fn is_contiguous(info: &InfoObject) -> bool {
    info.get(b"alloc_shared_noncontig").as_deref() != Some(b"true")
}

/// Whether an error means that memory cannot be mapped.
fn not_shared(e: farside_rma::Error) -> Fail {
    let unshared = e.kind() == ErrorKind::Unsupported;
    let failed = Fail::from(e);
    if unshared { failed.class(MPI_ERR_RMA_SHARED) } else { failed }
}

pub fn win_allocate_shared(
    call: &Call<'_>,
    size: i64,
    unit: i64,
    info: Info,
    comm: Comm,
    baseptr: Out<usize>,
    win: Out<Win>,
) -> Result {
    let given = WindowSpec { flavor: MPI_WIN_FLAVOR_SHARED, size, unit, info, base: None };
    let object = make(call, comm, &given, |team, len, align, info| {
        if is_contiguous(info) {
            return RawWindow::allocate_segment(team, len, Options::default()).map(Memory::Own).map_err(not_shared);
        }
        let raw = RawWindow::allocate_aligned(team, len, align, Options::default())?;
        if !raw.is_mapped() && team.size() > 1 {
            raw.free()?;
            return Err(fail(MPI_ERR_RMA_SHARED, "has ranks that cannot share memory").value(comm.0));
        }
        Ok(Memory::Own(raw))
    })?;
    baseptr.set(object.facts.base);
    put_handle(call, object, win);
    Ok(())
}

pub fn win_shared_query(
    call: &Call<'_>,
    win: Win,
    rank: c_int,
    size: Out<i64>,
    unit: LongOut,
    baseptr: Out<usize>,
) -> Result {
    let object = call.wins.get(win)?;
    if object.dynamic().is_some() {
        return Err(fail(MPI_ERR_RMA_FLAVOR, "is a dynamic window").value(win.0));
    }
    let raw = object.raw();
    // The length, address and displacement unit of a rank's memory, if this rank can load and store it.
    let shared = |rank: usize| -> Result<Option<(usize, usize, i64)>> {
        let len = raw.len_at(rank)?;
        Ok(raw.mapped_base(rank)?.map(|base| (len, base.addr(), object.units[rank])))
    };
    let (me, ranks) = (raw.team().rank(), object.units.len());
    let found = match object.target(rank, "rank")? {
        Some(target) => shared(target)?,
        // `MPI_PROC_NULL` selects the first rank with nonempty memory that is shared with this rank, if there is one.
        None if ranks > 1 && (0..ranks).all(|rank| rank == me || matches!(shared(rank), Ok(None))) => None,
        None => (0..ranks).find_map(|rank| shared(rank).ok()?.filter(|(bytes, ..)| *bytes > 0)),
    };
    let (bytes, base, step) = found.unwrap_or((0, 0, 1));
    size.set(bytes as i64);
    unit.set(step)?;
    // In contiguous memory, an empty part has an address too, from which programs compute the addresses of other parts.
    let follows = object.facts.flavor == MPI_WIN_FLAVOR_SHARED && is_contiguous(&object.info);
    baseptr.set(if bytes > 0 || follows { base } else { 0 });
    Ok(())
}

pub fn win_free(call: &Call<'_>, win: Out<Win>) -> Result {
    let handle = win.get();
    let object = call.wins.get(handle)?;
    object.raw().check_closed(call.name)?;
    object.attributes.clear(handle.0)?;
    call.mapped.remove(handle);
    // If freeing fails, the handle stays valid for the error handler.
    match &object.memory {
        Memory::Own(raw) => raw.free(),
        Memory::Attached(dynamic) => dynamic.free(),
    }?;
    call.wins.release(handle)?;
    win.set(MPI_WIN_NULL);
    Ok(())
}

pub fn win_get_group(call: &Call<'_>, win: Win, group: Out<Group>) -> Result {
    let of = &call.wins.get(win)?.group;
    group.set(handle_of(call, Rc::clone(&of.members), of));
    Ok(())
}

pub fn win_set_name(call: &Call<'_>, win: Win, win_name: Text) -> Result {
    let object = call.wins.get(win)?;
    let name = win_name.object_name()?;
    let window = object.raw();
    if let Some((bill, account)) = window.job().bill().zip(window.account()) {
        bill.name(account, &String::from_utf8_lossy(&name));
    }
    *object.name.borrow_mut() = name;
    Ok(())
}

pub fn win_get_name(call: &Call<'_>, win: Win, win_name: TextOut, resultlen: Out<c_int>) -> Result {
    // The null handle has a name too.
    let name = match win.0 {
        Win::NULL => Win::NULL_NAME.into(),
        _ => call.wins.get(win)?.name.borrow().clone(),
    };
    resultlen.set(win_name.write(&name, MPI_MAX_OBJECT_NAME)? as c_int);
    Ok(())
}

pub fn win_set_info(call: &Call<'_>, win: Win, info: Info) -> Result {
    // The hint cannot change memory that is already allocated.
    take_hints(call, info, &call.wins.get(win)?.info, |key| key != "alloc_shared_noncontig")
}

pub fn win_get_info(call: &Call<'_>, win: Win, info_used: Out<Info>) -> Result {
    info_used.set(call.infos.insert(call.wins.get(win)?.info.copy()));
    Ok(())
}
