//! `MPI_Intercomm_create`: the leaders of the two groups compare their tags.

use crate::arguments::Arguments;
use crate::describe::Fault;
use crate::pmpi::class;
use crate::record::Record;
use crate::shadow::{self, Object, Shadow};

/// Exchanges records with the other leader over their common communicator, if this rank is a leader. The caller
/// distributes the error in its group.
pub fn fault(name: &str, args: &Arguments<'_>, local: &Shadow, record: &Record) -> Result<Fault, i32> {
    if args.int("local_leader") != Some(local.rank()) {
        return Ok(None);
    }
    let peers = args.handle("peer_comm").map(Object::Comm).and_then(shadow::known).filter(|peers| !peers.inter);
    let (Some(peers), Some(remote)) = (peers, args.int("remote_leader")) else { return Ok(None) };
    let ranks = peers.places.len() as i64;
    if !(0..ranks).contains(&remote) || remote == peers.rank() {
        return Ok(Some((class::RANK, format!("remote_leader {remote} is not another rank from 0 to {}", ranks - 1))));
    }
    let remote = remote as usize;
    let mut pending = peers.start(record.bytes(), Some((vec![peers.me, remote], 0)))?;
    pending.finish(name)?;
    let theirs = pending.got[remote].as_deref().and_then(Record::parse);
    let tag = |record: &Record| record.value("tag").map(|same| same.text.clone());
    let (mine, theirs) = (tag(record), theirs.as_ref().and_then(tag));
    Ok((mine != theirs).then(|| {
        let [mine, theirs] = [mine, theirs].map(Option::unwrap_or_default);
        (class::NOT_SAME, format!("{mine} inconsistent with {theirs} of the other leader"))
    }))
}
