//! The processors on which a rank may run, and whether they are oversubscribed by ranks: then a waiting rank yields the
//! processor instead of keeping it.
//!
//! Launchers may bind each rank to processors of its own, so the set of one rank does not determine the sets of the
//! others: each rank publishes its set, and all ranks read the sets of their machine.

use rustix::thread::{CpuSet, sched_getaffinity};

use crate::bootstrap::Bootstrap;
use crate::error::{Error, ErrorKind, Result};
use crate::wire::{Reader, Writer};

/// Numbers of the processors that the calling thread may run on, ascending. If the kernel has more processors than a
/// set can hold, all numbers below the standard library's count.
#[must_use]
pub fn allowed() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect(),
        Err(_) => (0..parallelism()).collect(),
    }
}

/// The set of one processor, to bind a thread to.
///
/// # Errors
/// [`ErrorKind::Limit`] for a number that does not fit into a set.
pub fn only(processor: usize) -> Result<CpuSet> {
    set(&[processor])
}

/// A set of processors, to bind a thread to.
///
/// # Errors
/// [`ErrorKind::Limit`] for a number that does not fit into a set.
pub fn set(processors: &[usize]) -> Result<CpuSet> {
    let mut set = CpuSet::new();
    for processor in processors {
        if *processor >= CpuSet::MAX_CPU {
            return Err(Error::new(ErrorKind::Limit, "bind to processors").cause(format!(
                "processor {processor} is out of range: a CPU set holds processors 0 to {}",
                CpuSet::MAX_CPU - 1
            )));
        }
        set.set(*processor);
    }
    Ok(set)
}

/// Number of threads that can run at the same time; respects a quota of the control group.
fn parallelism() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The processors that a rank may run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Processors {
    /// Identifies the running kernel; empty if unknown.
    machine: Vec<u8>,
    /// One bit for each processor.
    allowed: Vec<u8>,
    /// Number of threads that can run at the same time: less than the number of processors under a quota.
    at_once: u32,
}

impl Processors {
    /// Maximum length in bytes of a set from a peer: 65,536 processors.
    const MAX_SET_BYTES: usize = 8192;

    /// The processors of the calling thread.
    pub(crate) fn here() -> Self {
        let processors = allowed();
        let mut allowed = vec![0; processors.last().map_or(0, |last| last / 8 + 1)];
        for processor in processors {
            allowed[processor / 8] |= 1 << (processor % 8);
        }
        let machine = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self {
            machine: machine.trim_ascii().to_vec(),
            allowed,
            at_once: u32::try_from(parallelism()).unwrap_or(u32::MAX),
        }
    }

    pub(crate) fn write(&self, w: Writer) -> Writer {
        w.bytes(&self.machine).bytes(&self.allowed).u32(self.at_once)
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Option<Self> {
        let machine = r.bytes()?.to_vec();
        let allowed = r.bytes().filter(|set| set.len() <= Self::MAX_SET_BYTES)?.to_vec();
        Some(Self { machine, allowed, at_once: r.u32()? })
    }

    fn is_within(&self, processors: &[u8]) -> bool {
        self.allowed.iter().enumerate().all(|(i, a)| a & !processors.get(i).copied().unwrap_or(0) == 0)
    }

    fn meets(&self, processors: &[u8]) -> bool {
        self.allowed.iter().zip(processors).any(|(a, b)| a & b != 0)
    }
}

/// A set of ranks that share processors, and the number of these processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sharing {
    /// Number of ranks, including this one.
    pub(crate) ranks: usize,
    /// Number of processors that at least one of the ranks may use, at most the quota.
    pub(crate) processors: usize,
}

impl Sharing {
    /// Publishes the processors on which this rank may run.
    ///
    /// `reports` are the reports that this rank makes ([`Settings::reports`](crate::settings::Settings::reports)).
    pub(crate) fn publish(bootstrap: &mut dyn Bootstrap, reports: u32) -> Result<()> {
        let key = format!("processors.{}", bootstrap.rank());
        bootstrap.put(&key, &Processors::here().write(Writer::new()).u32(reports).done())
    }

    /// The sharing of this rank's processors, and whether some rank of its machine [is
    /// oversubscribed](Self::is_oversubscribed), which is the same at all ranks of the machine. All ranks must have
    /// published their sets and passed a fence.
    pub(crate) fn collect(bootstrap: &mut dyn Bootstrap) -> Result<(Self, bool)> {
        let (me, size) = (bootstrap.rank() as usize, bootstrap.size());
        let of = |rank| {
            let bytes = bootstrap.get(&format!("processors.{rank}"))?;
            let mut reader = Reader::new(&bytes);
            Processors::read(&mut reader).zip(reader.u32()).ok_or_else(|| {
                Error::new(ErrorKind::Protocol, "exchange the processors of ranks").peer(rank).cause("malformed set")
            })
        };
        let all = (0..size).map(of).collect::<Result<Vec<_>>>()?;
        // Ranks that make reports select other messages, and gather their reports at the end.
        if let Some(other) = all.iter().position(|(_, reports)| *reports != all[me].1) {
            return Err(Error::new(ErrorKind::Setting, "start a rank")
                .rank(me)
                .peer(other)
                .cause("FARSIDE_BILL, FARSIDE_TRACE or FARSIDE_STALL_S is set at one of them only")
                .remedy("set it at all ranks or at none; rank 0 writes the files"));
        }
        let all: Vec<Processors> = all.into_iter().map(|(processors, _)| processors).collect();
        Ok((Self::of(&all, me), Self::some_is_oversubscribed(&all, me)))
    }

    /// Whether some rank on the machine of rank `me` is oversubscribed.
    fn some_is_oversubscribed(all: &[Processors], me: usize) -> bool {
        let beside: Vec<_> = all.iter().filter(|place| place.machine == all[me].machine).cloned().collect();
        let is_first = |i: usize| beside.iter().position(|place| *place == beside[i]) == Some(i);
        (0..beside.len()).any(|i| is_first(i) && Self::of(&beside, i).is_oversubscribed())
    }

    /// Sharing of rank `me`, where `all` has one entry for each rank of the job: the ranks of its machine whose sets
    /// overlap its set, directly or through other ranks, and the processors of these ranks; or only the ranks that may
    /// run on no other processors than `me`'s, if these are already too many. A quota is visible only to a rank that
    /// may use more processors than the quota, not to one that is bound to one processor.
    pub(crate) fn of(all: &[Processors], me: usize) -> Self {
        let own = &all[me];
        let mut processors = own.allowed.clone();
        let mut outside: Vec<&Processors> = all.iter().filter(|place| place.machine == own.machine).collect();
        let mut ranks = 0;
        loop {
            let (inside, others): (Vec<_>, Vec<_>) = outside.into_iter().partition(|place| place.meets(&processors));
            if inside.is_empty() {
                break;
            }
            ranks += inside.len();
            for place in inside {
                processors.resize(processors.len().max(place.allowed.len()), 0);
                processors.iter_mut().zip(&place.allowed).for_each(|(all, of)| *all |= of);
            }
            outside = others;
        }
        let count = |set: &[u8]| set.iter().map(|byte| byte.count_ones() as usize).sum::<usize>();
        // Ranks bound to this rank's processors can be too many even if the overlapping ranks together have enough
        // processors.
        let bound = all.iter().filter(|one| one.machine == own.machine && one.is_within(&own.allowed)).count();
        if bound > count(&own.allowed) {
            return Self { ranks: bound, processors: count(&own.allowed).max(1) };
        }
        // A quota belongs to a control group, which ranks of one machine usually share.
        let quota = Some(own.at_once as usize).filter(|at_once| *at_once < count(&own.allowed));
        let processors = quota.unwrap_or(usize::MAX).min(count(&processors)).max(1);
        Self { ranks: ranks.max(1), processors }
    }

    /// Whether there are more ranks than processors.
    pub(crate) const fn is_oversubscribed(self) -> bool {
        self.ranks > self.processors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(machine: &str, processors: &[usize], at_once: u32) -> Processors {
        let mut allowed = vec![0; processors.iter().max().map_or(0, |last| last / 8 + 1)];
        processors.iter().for_each(|p| allowed[p / 8] |= 1 << (p % 8));
        Processors { machine: machine.into(), allowed, at_once }
    }

    fn sharing(all: &[Processors]) -> Vec<(usize, usize)> {
        let of = |me| Sharing::of(all, me);
        (0..all.len()).map(|me| (of(me).ranks, of(me).processors)).collect()
    }

    #[test]
    fn bound_ranks_have_what_each_has_and_share_where_they_meet() {
        let one_each = [0, 9, 17].map(|p| place("a", &[p], 1));
        assert_eq!(sharing(&one_each), [(1, 1); 3]);
        let two_on_one = [place("a", &[3], 1), place("a", &[3], 1), place("a", &[4], 1)];
        assert_eq!(sharing(&two_on_one), [(2, 1), (2, 1), (1, 1)]);
        assert!(Sharing::of(&two_on_one, 1).is_oversubscribed() && !Sharing::of(&two_on_one, 2).is_oversubscribed());
        assert!(
            (0..3).all(|me| Sharing::some_is_oversubscribed(&two_on_one, me)
                && !Sharing::some_is_oversubscribed(&one_each, me))
        );
        let apart = [place("a", &[3], 1), place("b", &[3], 1), place("b", &[3], 1)];
        assert!(!Sharing::some_is_oversubscribed(&apart, 0) && Sharing::some_is_oversubscribed(&apart, 1));
    }

    #[test]
    fn free_ranks_share_all_and_only_those_of_their_machine() {
        let all = || place("a", &[0, 1], 2);
        assert_eq!(sharing(&[all(), all()]), [(2, 2); 2]);
        assert_eq!(sharing(&[all(), place("b", &[0, 1], 2), all(), all()]), [(3, 2), (1, 2), (3, 2), (3, 2)]);
    }

    #[test]
    fn ranks_are_joined_by_those_between_them() {
        let chain = [place("a", &[0], 1), place("a", &[0, 8], 2), place("a", &[8], 1), place("a", &[20], 1)];
        assert_eq!(sharing(&chain), [(3, 2), (3, 2), (3, 2), (1, 1)]);
    }

    #[test]
    fn two_bound_to_one_processor_are_oversubscribed_whatever_others_may_use() {
        let all = [place("a", &[0], 1), place("a", &[0], 1), place("a", &[0, 1, 2, 3], 4)];
        assert_eq!(sharing(&all), [(2, 1), (2, 1), (3, 4)]);
    }

    #[test]
    fn a_quota_is_fewer_processors() {
        let limited = || place("a", &[0, 1, 2, 3], 2);
        assert_eq!(sharing(&[limited(), limited(), limited()]), [(3, 2); 3]);
    }

    #[test]
    fn places_round_trip_and_longer_ones_are_refused() {
        let here = Processors::here();
        assert_eq!(Processors::read(&mut Reader::new(&here.write(Writer::new()).done())), Some(here.clone()));
        assert_eq!(allowed().len(), here.allowed.iter().map(|b| b.count_ones() as usize).sum::<usize>());
        let long = Writer::new().bytes(b"a").bytes(&vec![1; Processors::MAX_SET_BYTES + 1]).u32(1).done();
        assert_eq!(Processors::read(&mut Reader::new(&long)), None);
        assert!(only(CpuSet::MAX_CPU).is_err() && only(0).unwrap().count() == 1);
    }
}
