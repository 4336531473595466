//! Windows whose memory is one contiguous segment that all ranks map, in rank order.

use farside_core::coll;
use farside_core::device::{Mapped, RemoteRegion};
use farside_core::{Error, ErrorKind, Result, Team};

use super::{Options, RawWindow};

impl RawWindow {
    /// Allocates a window of `len` zeroed bytes at this rank, which follow the bytes of the previous rank at every
    /// rank. Collective; lengths may differ. Takes one more allgather than [`allocate`](Self::allocate); rank 0 owns
    /// the segment.
    ///
    /// # Errors
    /// Those of [`allocate`](Self::allocate); `Unsupported` if ranks of the team do not map each other's memory.
    pub fn allocate_segment(team: &Team, len: usize, options: Options) -> Result<Self> {
        if team.size() == 1 {
            return Self::allocate(team, len, options); // also where a rank's own memory is not mapped, over verbs
        }
        let mut lens = Vec::with_capacity(team.size());
        for encoded in coll::allgather(team, &(len as u64).to_le_bytes())? {
            let bytes = encoded.try_into().map_err(|_| Error::new(ErrorKind::Protocol, "create a window"))?;
            lens.push(u64::from_le_bytes(bytes) as usize);
        }
        let total = lens.iter().try_fold(0usize, |sum, len| sum.checked_add(*len));
        let total = total
            .ok_or_else(|| Error::new(ErrorKind::Limit, "create a window").cause("the sum of the lengths overflows"));
        let own = total.map(|total| if team.rank() == 0 { total } else { 0 });
        let mut window = Self::allocate_of(team, own, options, None)?;
        if !window.mapped {
            window.free()?;
            return Err(Error::new(ErrorKind::Unsupported, "create a shared window")
                .device(team.job().device().capabilities().name)
                .cause("the ranks of the team do not map each other's memory")
                .remedy("create it over a team of ranks of one node"));
        }
        let (first, base) = (window.targets[0].region, window.targets[0].base);
        let mut start = 0;
        window.end.change(&mut window.targets, |targets| {
            for (t, len) in targets.iter_mut().zip(lens) {
                let here = base.wrapping_add(start);
                (t.base, t.lo, t.hi) = (here, 0, len);
                let mapped = Some(Mapped { base: here, lo: 0, hi: len, atomics: true });
                t.region = RemoteRegion { len, mapped, ..t.region };
                t.move_to((first.peer, first.handle, start));
                start += len;
            }
        });
        window.own.base = window.targets[team.rank()].base;
        window.own.len = window.targets[team.rank()].hi;
        Ok(window)
    }
}
