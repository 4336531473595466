#![allow(unsafe_code)]
//! What one rank can check alone: messages, accesses to windows, ranks of groups.

use std::ffi::c_int;

use crate::arguments::Arguments;
use crate::describe::{Fault, amount};
use crate::pmpi::{self, class};
use crate::shadow::{self, Object};
use crate::table::Data;
use crate::types;

/// One line about this rank.
pub fn tell(name: &str, args: &Arguments<'_>, text: &str) {
    if let Some(window) = args.win().map(Object::Win).and_then(shadow::known) {
        return shadow::tell(name, window.rank(), text);
    }
    let mut rank = 0;
    match args.comm().or_else(world) {
        Some(comm) => {
            // SAFETY: it writes one number; the call has checked the communicator, or it is the world.
            unsafe { pmpi::MPI_Comm_rank(comm, &raw mut rank) };
            shadow::tell(name, i64::from(rank), text);
        }
        None => shadow::write(&format!("VERIFY {}: {text}", name.to_uppercase())),
    }
}

/// `MPI_COMM_WORLD`, which a program with sessions alone does not have.
pub fn world() -> Option<usize> {
    let (mut initialized, mut finalized) = (0, 0);
    // SAFETY: each writes one number, at any time.
    unsafe {
        pmpi::MPI_Initialized(&raw mut initialized);
        pmpi::MPI_Finalized(&raw mut finalized);
    }
    (initialized != 0 && finalized == 0).then_some(pmpi::COMM_WORLD)
}

/// What is wrong with a local call.
pub fn fault(name: &str, data: Data, args: &Arguments<'_>) -> Fault {
    match data {
        Data::Message => message(args),
        Data::Access => access(name, args),
        _ => ranks(args),
    }
}

fn message(args: &Arguments<'_>) -> Fault {
    let comm = args.comm().filter(|comm| *comm != pmpi::COMM_NULL)?;
    let (mut size, mut inter) = (0, 0);
    // SAFETY: they write a number each.
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
            return Some((class::RANK, format!("{name} {rank} is none of the ranks 0 to {}", size - 1)));
        }
    }
    each_amount(args, &["", "send", "recv"])
}

/// The first fault among counts and types with these prefixes.
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
    if rank == pmpi::PROC_NULL {
        return None;
    }
    let window = shadow::known(Object::Win(win))?;
    let exposed = window.exposed.get()?;
    let Some((size, unit)) = usize::try_from(rank).ok().and_then(|rank| exposed.get(rank)) else {
        return Some((class::RANK, format!("target_rank {rank} is none of the ranks 0 to {}", exposed.len() - 1)));
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
    for side in &["origin", "result"][first..] {
        let (count_name, type_name) = (format!("{side}_count"), format!("{side}_datatype"));
        let (Some(n), Some(origin)) = (args.int(&count_name), args.handle(&type_name)) else { continue };
        let (mine, theirs) = (types::size(origin).saturating_mul(n), types::size(handle).saturating_mul(count));
        if mine != theirs {
            let sign = if mine < theirs { '<' } else { '>' };
            return Some((class::TRUNCATE, format!("{side}size={mine} {sign} targetsize({rank})={theirs}")));
        }
    }
    // That of a dynamic window is not known.
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

const NO_OP: usize = 0x3d;

fn ranks(args: &Arguments<'_>) -> Fault {
    let (group, n) = (args.handle("group")?, args.int("n")?);
    let mut size = 0 as c_int;
    // SAFETY: it writes a number.
    unsafe { pmpi::MPI_Group_size(group, &raw mut size) };
    let ranks = args.list("ranks", usize::try_from(n).ok()?);
    if let Some(i) = ranks.iter().position(|rank| !(0..i64::from(size)).contains(rank)) {
        return Some((class::RANK, format!("ranks[{i}]={} is none of the ranks 0 to {}", ranks[i], size - 1)));
    }
    let twice = (0..ranks.len()).find(|i| ranks[..*i].contains(&ranks[*i]))?;
    Some((class::RANK, format!("ranks[{twice}]={} is there twice", ranks[twice])))
}
