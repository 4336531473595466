//! Groups (MPI-5.0 section 7.3).

use std::ffi::c_int;
use std::rc::Rc;

use farside_core::Job;

use crate::arguments::{List, ListOut, Out, count};
use crate::constants::*;
use crate::fail::{Result, fail};
use crate::handle::Group;
use crate::objects::GroupObject;
use crate::runtime::{Call, Runtime};

/// The names of process sets.
pub const SETS: [&str; 2] = ["mpi://WORLD", "mpi://SELF"];

/// The members of a process set; `None` if there is no set of this name.
pub fn process_set(job: &Job, name: &[u8]) -> Option<Vec<u32>> {
    let set = SETS.iter().position(|set| set.as_bytes().eq_ignore_ascii_case(name))?;
    Some(if set == 0 { (0..job.size_number()).collect() } else { vec![job.rank_number()] })
}

/// Creates a handle for a new group with the session of `other`; `MPI_GROUP_EMPTY` if there are no members.
pub fn handle_of(runtime: &Runtime, members: impl Into<Rc<[u32]>>, other: &GroupObject) -> Group {
    let members: Rc<[u32]> = members.into();
    if members.is_empty() {
        return MPI_GROUP_EMPTY;
    }
    runtime.groups.insert(GroupObject::of(members, other.session.as_ref()))
}

fn rank_of_this(call: &Call<'_>, group: &GroupObject) -> Result<c_int> {
    let me = call.job()?.rank_number();
    Ok(group.rank_of(me).map_or(MPI_UNDEFINED, |rank| rank as c_int))
}

pub fn group_size(call: &Call<'_>, group: Group, size: Out<c_int>) -> Result {
    size.set(call.groups.get(group)?.members.len() as c_int);
    Ok(())
}

pub fn group_rank(call: &Call<'_>, group: Group, rank: Out<c_int>) -> Result {
    rank.set(rank_of_this(call, &*call.groups.get(group)?)?);
    Ok(())
}

pub fn group_compare(call: &Call<'_>, group1: Group, group2: Group, result: Out<c_int>) -> Result {
    result.set(call.groups.get(group1)?.compare(&*call.groups.get(group2)?));
    Ok(())
}

pub fn group_translate_ranks(
    call: &Call<'_>,
    group1: Group,
    n: c_int,
    ranks1: List<c_int>,
    group2: Group,
    ranks2: ListOut<c_int>,
) -> Result {
    let (from, to) = (call.groups.get(group1)?, call.groups.get(group2)?);
    count(n.into(), "n").map_err(as_argument)?;
    let places = to.places();
    let mut translated = Vec::new();
    for rank in ranks1.read(n.into())? {
        translated.push(match rank {
            MPI_PROC_NULL => MPI_PROC_NULL,
            _ => places.get(&member(&from, rank, "ranks1")?).map_or(MPI_UNDEFINED, |place| *place as c_int),
        });
    }
    ranks2.write(&translated)
}

/// The length of a rank list is not a data count, so its errors have class `MPI_ERR_ARG`.
fn as_argument(mut failed: crate::fail::Fail) -> crate::fail::Fail {
    failed.code = MPI_ERR_ARG;
    failed
}

/// The rank in the job of the member with a rank of the group.
fn member(group: &GroupObject, rank: c_int, name: &'static str) -> Result<u32> {
    let found = usize::try_from(rank).ok().and_then(|rank| group.members.get(rank));
    found.copied().ok_or_else(|| {
        fail(MPI_ERR_RANK, format!("contains {rank}, but the group has {} members", group.members.len())).named(name)
    })
}

pub fn group_union(call: &Call<'_>, group1: Group, group2: Group, newgroup: Out<Group>) -> Result {
    let (first, second) = (call.groups.get(group1)?, call.groups.get(group2)?);
    let places = first.places();
    let more = second.members.iter().filter(|member| !places.contains_key(member));
    let members: Vec<u32> = first.members.iter().chain(more).copied().collect();
    newgroup.set(handle_of(call, members, &first));
    Ok(())
}

/// The members of the first group that are, or are not, in the second.
fn members_where(call: &Call<'_>, group1: Group, group2: Group, inside: bool, newgroup: Out<Group>) -> Result {
    let (first, second) = (call.groups.get(group1)?, call.groups.get(group2)?);
    let places = second.places();
    let members: Vec<u32> = first.members.iter().filter(|m| places.contains_key(m) == inside).copied().collect();
    newgroup.set(handle_of(call, members, &first));
    Ok(())
}

pub fn group_intersection(call: &Call<'_>, group1: Group, group2: Group, newgroup: Out<Group>) -> Result {
    members_where(call, group1, group2, true, newgroup)
}

pub fn group_difference(call: &Call<'_>, group1: Group, group2: Group, newgroup: Out<Group>) -> Result {
    members_where(call, group1, group2, false, newgroup)
}

/// Checks that the ranks are in the group and distinct, and creates a group of them, or of all other members.
fn subgroup(
    call: &Call<'_>,
    group: &GroupObject,
    ranks: &[c_int],
    name: &'static str,
    include: bool,
    newgroup: Out<Group>,
) -> Result {
    let mut seen = vec![false; group.members.len()];
    let mut members = Vec::new();
    for rank in ranks {
        members.push(member(group, *rank, name)?);
        if std::mem::replace(&mut seen[*rank as usize], true) {
            return Err(fail(MPI_ERR_RANK, format!("contains {rank} twice")).named(name));
        }
    }
    if !include {
        members = group.members.iter().zip(seen).filter(|(_, seen)| !seen).map(|(member, _)| *member).collect();
    }
    newgroup.set(handle_of(call, members, group));
    Ok(())
}

fn from_list(
    call: &Call<'_>,
    group: Group,
    n: c_int,
    ranks: List<c_int>,
    include: bool,
    newgroup: Out<Group>,
) -> Result {
    let group = call.groups.get(group)?;
    count(n.into(), "n").map_err(as_argument)?;
    subgroup(call, &group, &ranks.read(n.into())?, "ranks", include, newgroup)
}

pub fn group_incl(call: &Call<'_>, group: Group, n: c_int, ranks: List<c_int>, newgroup: Out<Group>) -> Result {
    from_list(call, group, n, ranks, true, newgroup)
}

pub fn group_excl(call: &Call<'_>, group: Group, n: c_int, ranks: List<c_int>, newgroup: Out<Group>) -> Result {
    from_list(call, group, n, ranks, false, newgroup)
}

/// Expands ranges (first, last and stride).
fn from_ranges(
    call: &Call<'_>,
    group: Group,
    n: c_int,
    ranges: ListOut<[c_int; 3]>,
    include: bool,
    newgroup: Out<Group>,
) -> Result {
    let group = call.groups.get(group)?;
    count(n.into(), "n").map_err(as_argument)?;
    let mut ranks = Vec::new();
    for [first, last, stride] in ranges.read(n.into())? {
        let bad = |why: String| Err(fail(MPI_ERR_ARG, why).named("ranges"));
        if (last > first && stride < 0) || (last < first && stride > 0) {
            return bad(format!("has stride {stride}, which does not lead from {first} to {last}"));
        }
        if stride == 0 {
            return bad(format!("has stride 0, which does not lead from {first} to {last}"));
        }
        // The last rank is checked before the range is expanded, so that the size of the group bounds its length.
        for end in [first, last] {
            if end != last || (i64::from(last) - i64::from(first)) % i64::from(stride) == 0 {
                member(&group, end, "ranges")?;
            }
        }
        let mut rank = i64::from(first);
        while if stride > 0 { rank <= last.into() } else { rank >= last.into() } {
            if ranks.len() > group.members.len() {
                return bad("contains a rank twice".into());
            }
            ranks.push(rank as c_int);
            rank += i64::from(stride);
        }
    }
    subgroup(call, &group, &ranks, "ranges", include, newgroup)
}

pub fn group_range_incl(
    call: &Call<'_>,
    group: Group,
    n: c_int,
    ranges: ListOut<[c_int; 3]>,
    newgroup: Out<Group>,
) -> Result {
    from_ranges(call, group, n, ranges, true, newgroup)
}

pub fn group_range_excl(
    call: &Call<'_>,
    group: Group,
    n: c_int,
    ranges: ListOut<[c_int; 3]>,
    newgroup: Out<Group>,
) -> Result {
    from_ranges(call, group, n, ranges, false, newgroup)
}

pub fn group_free(call: &Call<'_>, group: Out<Group>) -> Result {
    // The program may free the empty group, since a call may have returned it.
    if group.get() != MPI_GROUP_EMPTY {
        call.groups.release(group.get())?;
    }
    group.set(MPI_GROUP_NULL);
    Ok(())
}
