//! Suite "put": an exchange of columns. Every rank puts to every other, and to itself, its columns for that one: the k-th
//! go to rank k, where they become those of this rank's number. Between two fences, of a chain.

use farside_core::error::Result;
use farside_rma::Assert;

use super::Bench;
use super::put::open;
use super::turns::Way;
use super::untyped::Untyped;
use crate::record::{Key, Library, Op, Shape, Suite, Sync, Window};
use crate::shapes::{Case, columns_bytes, is_exchanged};

/// Measures the exchange of all messages that are columns and few enough, on a window of this kind. Collective.
pub(super) fn run(bench: &Bench<'_>, window: Window, layouts: &[(Shape, u64)]) -> Result<()> {
    let ranks = bench.ranks as u32;
    let exchanged = layouts.iter().filter(|(shape, bytes)| is_exchanged(*shape, *bytes, ranks));
    let cases = exchanged.map(|&(shape, bytes)| Case::new(shape, bytes)).collect::<Result<Vec<_>>>()?;
    for case in &cases {
        // To the last rank the layout starts behind the columns for all others.
        let step = columns_bytes(case.shape, case.bytes);
        let room = case.map.true_ub() as usize + (bench.ranks - 1) * step;
        let pair = open(bench, window, room)?;
        let mut exchange = |iterations: u64| {
            for _ in 0..iterations {
                for to in 0..bench.ranks {
                    pair.put_typed(to * step, &case.map, to, bench.rank * step)?;
                }
                pair.raw().fence(Assert::empty())?;
            }
            Ok(())
        };
        check(bench, &pair, case, step, room, &mut exchange)?;
        pair.raw().fence(Assert::NOPRECEDE)?;
        let Case { shape, bytes, .. } = *case;
        let key = Key { suite: Suite::Put, window, sync: Sync::Fence, op: Op::Alltoall, shape, bytes, ranks };
        bench.turns(key, true, &mut [Way::of(Library::Farside, &mut exchange)])?;
        pair.free()?;
    }
    Ok(())
}

/// What `rank` sends.
fn marked(rank: usize, room: usize) -> Vec<u8> {
    (0..room).map(|i| (i * 5 + i / 253 + 31 * rank + 1) as u8).collect()
}

/// One exchange of marked messages: all columns are where they belong, and nothing else has changed.
fn check(
    bench: &Bench<'_>,
    pair: &Untyped,
    case: &Case,
    step: usize,
    room: usize,
    exchange: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    pair.set_origin(&marked(bench.rank, room))?;
    pair.fill_local(0, room)?;
    bench.team.barrier()?;
    pair.raw().fence(Assert::NOPRECEDE)?;
    exchange(1)?;
    let mut wanted = vec![0; room];
    for from in 0..bench.ranks {
        let theirs = marked(from, room);
        for (at, len) in case.map.blocks(0) {
            let (to, from, len) = (at as usize + from * step, at as usize + bench.rank * step, len as usize);
            wanted[to..to + len].copy_from_slice(&theirs[from..from + len]);
        }
    }
    let holds = pair.local(room)? == wanted;
    bench.check(holds, Suite::Put, Sync::Fence, Op::Alltoall, "columns are not where they belong")?;
    bench.team.barrier()
}
