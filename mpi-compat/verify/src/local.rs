#![allow(unsafe_code)]
//! Checks of calls that one rank makes alone: messages, accesses to windows and their locks, local reductions, ranks of
//! groups.

use std::ffi::c_int;

use crate::arguments::{Arguments, info};
use crate::describe::{Fault, amount};
use crate::names::HANDLES;
use crate::pmpi::{self, CHAR, NO_OP, PREDEFINED, PROC_NULL, REPLACE, class};
use crate::say;
use crate::shadow::{self, Object};
use crate::table::Data;
use crate::types;

/// Reports an error of this rank in one line.
pub fn report(name: &str, args: &Arguments<'_>, text: &str) {
    if let Some(window) = args.win().map(Object::Win).and_then(shadow::known) {
        return say::report(name, window.rank(), text);
    }
    let mut rank = 0;
    match args.comm().or_else(world) {
        Some(comm) => {
            // SAFETY: the function writes one number; the call has checked the communicator, or it is `MPI_COMM_WORLD`.
            unsafe { pmpi::MPI_Comm_rank(comm, &raw mut rank) };
            say::report(name, i64::from(rank), text);
        }
        None => say::write(&format!("VERIFY {}: {text}", name.to_uppercase())),
    }
}

/// `MPI_COMM_WORLD`, if the program has called `MPI_Init`.
pub fn world() -> Option<usize> {
    let (mut initialized, mut finalized) = (0, 0);
    // SAFETY: each function writes one number and may be called at any time.
    unsafe {
        pmpi::MPI_Initialized(&raw mut initialized);
        pmpi::MPI_Finalized(&raw mut finalized);
    }
    (initialized != 0 && finalized == 0).then_some(pmpi::COMM_WORLD)
}

/// Checks a local call.
pub fn fault(name: &str, data: Data, args: &Arguments<'_>) -> Fault {
    match data {
        Data::Message => message(args),
        Data::Access => access(name, args),
        Data::Lock => lock(name, args),
        Data::Local => reduction_of_characters(args.handle("op")?, args.handle("datatype")?),
        _ => ranks(args),
    }
}

fn message(args: &Arguments<'_>) -> Fault {
    let comm = args.comm().filter(|comm| *comm != pmpi::COMM_NULL)?;
    let (mut size, mut inter) = (0, 0);
    // SAFETY: each function writes one number.
    unsafe {
        pmpi::MPI_Comm_test_inter(comm, &raw mut inter);
        if inter != 0 {
            pmpi::MPI_Comm_remote_size(comm, &raw mut size);
        } else {
            pmpi::MPI_Comm_size(comm, &raw mut size);
        }
    }
    for (name, least) in [("dest", -3), ("source", -3)] {
        let Some(rank) = args.int(name) else { continue };
        // MPI_ANY_SOURCE is -1.
        let special = rank == i64::from(least) || (name == "source" && rank == i64::from(pmpi::ANY_SOURCE));
        if !special && !(0..i64::from(size)).contains(&rank) {
            return Some((class::RANK, format!("{name} {rank} is not a rank from 0 to {}", size - 1)));
        }
    }
    each_amount(args, &["", "send", "recv"])
}

/// The first error among the counts and types with these prefixes.
fn each_amount(args: &Arguments<'_>, sides: &[&str]) -> Fault {
    sides.iter().find_map(|side| {
        let count = format!("{side}count");
        let handle = if side.is_empty() {
            "datatype".to_owned()
        } else if side.ends_with('_') {
            format!("{side}datatype")
        } else {
            format!("{side}type")
        };
        amount(args.int(&count)?, args.handle(&handle)?, &count, &handle)
    })
}

fn access(name: &str, args: &Arguments<'_>) -> Fault {
    // MPI_NO_OP ignores the arguments of the origin (MPI-5.0 section 12.3.4).
    let first = usize::from(args.handle("op") == Some(NO_OP));
    if let Some(fault) = each_amount(args, &["origin_", "result_", "target_"][first..]) {
        return Some(fault);
    }
    let (win, rank) = (args.win()?, args.int("target_rank")?);
    if rank == PROC_NULL {
        return None;
    }
    let window = shadow::known(Object::Win(win))?;
    let exposed = window.exposed.get()?;
    let Some((size, unit)) = usize::try_from(rank).ok().and_then(|rank| exposed.get(rank)) else {
        return Some((class::RANK, format!("target_rank {rank} is not a rank from 0 to {}", exposed.len() - 1)));
    };
    let single = args.handle("datatype").map(|handle| (1, handle));
    let (count, handle) = single.or_else(|| Some((args.int("target_count")?, args.handle("target_datatype")?)))?;
    if !types::is_committed(handle) {
        return Some((class::TYPE, "datatype is not committed".into()));
    }
    if types::size(handle) == 0 || count == 0 {
        return None;
    }
    if name.ends_with("ccumulate") && !types::has_one_basic_type(handle, &mut None) {
        return Some((class::TYPE, "target_datatype has more than one basic type".into()));
    }
    let combines = args.handle("op").or_else(|| name.ends_with("swap").then_some(SWAP));
    if let Some(fault) = combines.and_then(|op| reduction_of_characters(op, handle)) {
        return Some(fault);
    }
    for side in &["origin", "result"][first..] {
        let (count_name, type_name) = (format!("{side}_count"), format!("{side}_datatype"));
        let (Some(n), Some(origin)) = (args.int(&count_name), args.handle(&type_name)) else { continue };
        let (mine, theirs) = (types::size(origin).saturating_mul(n), types::size(handle).saturating_mul(count));
        if mine != theirs {
            let sign = if mine < theirs { '<' } else { '>' };
            return Some((class::TRUNCATE, format!("{side}size={mine} {sign} targetsize({rank})={theirs}")));
        }
    }
    // The memory of a dynamic window is not known.
    if *size < 0 {
        return None;
    }
    let (first, end) = types::span(handle, count);
    let at = args.int("target_disp")?.saturating_mul(*unit);
    let (first, end) = (at.saturating_add(first), at.saturating_add(end));
    (first < 0 || end > *size).then(|| {
        (
            class::RMA_RANGE,
            format!("target bytes {first} to {end} are not in the window of {rank}, which has {size} bytes"),
        )
    })
}

/// Represents the operator of a compare-and-swap.
const SWAP: usize = 0;

/// The standard defines no predefined operator, and no compare-and-swap, on `MPI_CHAR` (MPI-5.0 sections 6.9.2,
/// 12.3.4); libraries treat it as a signed char.
pub fn reduction_of_characters(op: usize, datatype: usize) -> Fault {
    let combines = op < PREDEFINED && !matches!(op, REPLACE | NO_OP);
    if !combines || types::block(1, datatype).first.abs() != CHAR as i64 {
        return None;
    }
    let known = HANDLES.iter().find(|(value, _)| *value == op);
    let operation = known.map_or("a compare-and-swap".to_owned(), |(_, name)| format!("op {name}"));
    Some((class::OP, format!("{operation} is not defined on MPI_CHAR")))
}

/// Detects locks of memory without a lock: of `MPI_PROC_NULL`, and of a window that the program has created with the
/// hint `no_locks`.
fn lock(name: &str, args: &Arguments<'_>) -> Fault {
    if args.int("rank") == Some(PROC_NULL) {
        return Some((class::RANK, "rank is MPI_PROC_NULL, which has no memory".into()));
    }
    if !name.starts_with("MPI_Win_lock") {
        return None;
    }
    let mut hints = pmpi::INFO_NULL;
    // SAFETY: the function writes a handle, which is freed here.
    let asserted_by_hint = unsafe {
        (pmpi::MPI_Win_get_info(args.win()?, &raw mut hints) == 0).then(|| info(hints)).inspect(|_| {
            pmpi::MPI_Info_free(&raw mut hints);
        })
    };
    let asserted_by_hint = asserted_by_hint?.iter().any(|(key, value)| key == "no_locks" && value == "true");
    asserted_by_hint.then(|| (class::RMA_SYNC, "win was created with no_locks".into()))
}

fn ranks(args: &Arguments<'_>) -> Fault {
    let (group, n) = (args.handle("group")?, args.int("n")?);
    let mut size = 0 as c_int;
    // SAFETY: the function writes a number.
    unsafe { pmpi::MPI_Group_size(group, &raw mut size) };
    let ranks = args.list("ranks", usize::try_from(n).ok()?);
    if let Some(i) = ranks.iter().position(|rank| !(0..i64::from(size)).contains(rank)) {
        return Some((class::RANK, format!("ranks[{i}]={} is not a rank from 0 to {}", ranks[i], size - 1)));
    }
    let twice = (0..ranks.len()).find(|i| ranks[..*i].contains(&ranks[*i]))?;
    Some((class::RANK, format!("ranks[{twice}]={} occurs twice", ranks[twice])))
}
