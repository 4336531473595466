//! What an adapter can do, and what it accepts. The attributes of a device are upper bounds (`ibv_query_device(3)`): a
//! queue pair may be refused below them, so the sizes are tried.

use std::io;
use std::sync::Arc;

use rdma_sys::{ibv_atomic_cap, ibv_device_attr};

use super::memory::slab::Slab;
use super::sys::qp::{Fresh, Parts, Sizes, Tuning};
use super::sys::queue::{Channel, Completions, SharedReceives};
use super::sys::sgrs::SgrsQueuePair;
use super::sys::{Context, Domain, Keys, Rights};

/// Maximum number of segments of a request.
const PIECES: u32 = 16;
/// Number of lists of each kind posted to one peer at a time, and maximum number of blocks of a list.
const LISTS: u32 = 64;
const LIST_BLOCKS: u32 = 64;
/// Inline sizes to try, largest first.
const INLINE: [u32; 6] = [256, 128, 64, 32, 16, 0];

/// The reason why this device cannot be used, if its attributes show one.
fn lacks(shared: i32) -> Option<&'static str> {
    (shared == 0).then_some(NO_SHARED)
}

const NO_SHARED: &str = "the device has no shared receive queue, which takes the packets of all peers";

/// Whether the device can be used; if not, the reason.
pub(super) fn usable(context: &Arc<Context>, attributes: &ibv_device_attr) -> Result<(), String> {
    if let Some(why) = lacks(attributes.max_srq) {
        return Err(why.to_owned());
    }
    // A kernel may report queues that its library has no function for.
    let shared = Domain::new(context, STRICT).and_then(|domain| SharedReceives::new(&domain, 1));
    match shared {
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Err(format!("{NO_SHARED}: {e}")),
        _ => Ok(()),
    }
}

/// Keys of an adapter that demands nothing of them.
const STRICT: Keys = Keys { atomics: true, relaxed: false };

/// A protection domain with the keys that the adapter permits. They are of relaxed order only if it refuses others:
/// signals then wait until writes are placed.
pub(super) fn domain(context: &Arc<Context>, attributes: &ibv_device_attr) -> io::Result<Arc<Domain>> {
    let keys = Keys { atomics: attributes.atomic_cap != ibv_atomic_cap::IBV_ATOMIC_NONE, ..STRICT };
    let domain = Domain::new(context, keys)?;
    match Slab::new(&domain, 1, Rights::Remote) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
            let relaxed = Domain::new(context, Keys { relaxed: true, ..keys })?;
            Ok(if Slab::new(&relaxed, 1, Rights::Remote).is_ok() { relaxed } else { domain })
        }
        _ => Ok(domain),
    }
}

/// The largest number from 1 to `bound` that `works`, if all numbers below it work too.
///
/// # Errors
/// The last error of `works` if not even 1 works.
fn most(bound: u32, mut works: impl FnMut(u32) -> io::Result<()>) -> io::Result<u32> {
    let (mut low, mut high, mut probe) = (0, bound.max(1) + 1, bound.max(1));
    let mut last = None;
    // `low` works, or is 0; `high` does not.
    while high - low > 1 {
        match works(probe) {
            Ok(()) => low = probe,
            Err(e) => (high, last) = (probe, Some(e)),
        }
        probe = low + (high - low) / 2;
    }
    if low > 0 { Ok(low) } else { Err(last.unwrap_or_else(|| io::ErrorKind::InvalidInput.into())) }
}

/// The sizes of queue pairs that an adapter accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accepted {
    /// Maximum number of segments of a request, and of a read.
    pub(super) pieces: u32,
    pub(super) reads: u32,
    /// Maximum number of inline bytes.
    pub(super) inline: u32,
    /// Maximum number of blocks of a list; 0 if there are no SGRS queue pairs.
    pub(super) blocks: u32,
}

impl Accepted {
    /// The sizes up to `max_sge` and `max_sge_rd` for which `request`, given segments and inline bytes, and `list`, given
    /// blocks, create queue pairs.
    fn by(
        (max_sge, max_sge_rd): (i32, i32),
        mut request: impl FnMut(u32, u32) -> io::Result<()>,
        list: impl FnMut(u32) -> io::Result<()>,
    ) -> io::Result<Self> {
        let bound = max_sge.max(1) as u32;
        let pieces = most(bound.min(PIECES), |pieces| request(pieces, 0))?;
        let inline = INLINE.into_iter().find(|inline| *inline == 0 || request(pieces, *inline).is_ok()).unwrap_or(0);
        // A device that reports no limit of its own for reads has none.
        let reads = if max_sge_rd > 0 { max_sge_rd as u32 } else { pieces };
        let blocks = most(bound.min(LIST_BLOCKS), list).unwrap_or(0);
        Ok(Self { pieces, reads: reads.min(pieces), inline, blocks })
    }

    /// Asks the adapter by creating queue pairs, with send queues of `queue` requests.
    pub(super) fn probe(
        context: &Arc<Context>,
        domain: &Arc<Domain>,
        tuning: &Tuning,
        attributes: &ibv_device_attr,
        queue: u32,
    ) -> io::Result<Self> {
        let channel = Channel::new(context)?;
        let completions = Completions::new(&channel, 16)?;
        let parts =
            Parts { domain: Arc::clone(domain), sends: Arc::clone(&completions), receives: completions, shared: None };
        Self::by(
            (attributes.max_sge, attributes.max_sge_rd),
            |pieces, inline| Fresh::new(&parts, Self::requests(queue, pieces, inline), tuning, false).map(drop),
            |blocks| SgrsQueuePair::new(domain, &channel, Self::lists(blocks), tuning, 0).map(drop),
        )
    }

    fn requests(queue: u32, pieces: u32, inline: u32) -> Sizes {
        Sizes { sends: queue, receives: 1, pieces, scatter: 1, inline }
    }

    fn lists(blocks: u32) -> Sizes {
        Sizes { sends: LISTS, receives: LISTS, pieces: blocks, scatter: blocks, inline: 0 }
    }

    /// The sizes of queue pairs for `queue` requests.
    pub(super) fn sizes(&self, queue: u32) -> Sizes {
        Self::requests(queue, self.pieces, self.inline)
    }

    /// The sizes of SGRS queue pairs.
    pub(super) fn list_sizes(&self) -> Sizes {
        Self::lists(self.blocks.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> io::Error {
        io::Error::from_raw_os_error(libc::EINVAL)
    }

    #[test]
    fn device_without_shared_receive_queues_is_refused() {
        assert_eq!(lacks(1000), None);
        // As ionic, and as irdma of generation 2.
        assert!(lacks(0).unwrap().contains("shared receive queue"));
    }

    #[test]
    fn largest_number_that_works_is_found_in_few_tries() {
        for bound in [1, 2, 13, 16, 30, 64] {
            for limit in 0..=bound + 1 {
                let mut tries = 0;
                let found = most(bound, |n| {
                    tries += 1;
                    if n <= limit { Ok(()) } else { Err(refused()) }
                });
                assert_eq!(found.ok(), Some(limit.min(bound)).filter(|n| *n > 0), "{bound}, {limit}");
                assert!(tries <= 8, "{tries} tries for {limit} of {bound}");
            }
        }
    }

    /// Attributes of adapters, what their queue pairs accept, and what is used.
    #[test]
    fn accepted_sizes_of_adapters() {
        // Name; max_sge and max_sge_rd; pieces, inline bytes and list blocks that are accepted; the result.
        let table = [
            ("Soft-RoCE", (32, 32), (32, 512, 32), (16, 16, 256, 32)),
            ("mlx5", (30, 30), (30, 512, 30), (16, 16, 256, 30)),
            ("irdma", (13, 13), (13, 101, 13), (13, 13, 64, 13)),
            ("irdma, generation 1", (3, 1), (3, 48, 3), (3, 1, 32, 3)),
            ("bnxt_re", (6, 6), (6, 96, 6), (6, 6, 64, 6)),
            ("an attribute that is only a bound", (32, 32), (12, 16, 9), (12, 12, 16, 9)),
            ("no limit of reads reported", (16, 0), (16, 0, 16), (16, 16, 0, 16)),
            ("no lists", (16, 4), (16, 8, 0), (16, 4, 0, 0)),
        ];
        for (name, (max_sge, max_sge_rd), (pieces, inline, blocks), expected) in table {
            let within = |is: bool| if is { Ok(()) } else { Err(refused()) };
            let request = |p, i| within(p <= pieces && i <= inline);
            let found = Accepted::by((max_sge, max_sge_rd), request, |b| within(b <= blocks)).unwrap();
            assert_eq!((found.pieces, found.reads, found.inline, found.blocks), expected, "{name}");
        }
        assert!(Accepted::by((16, 16), |_, _| Err(refused()), |_| Ok(())).is_err());
    }
}
