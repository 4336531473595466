//! 123-doubling (Traeff 2025): an exscan with one reduction in a round. A rank's partial result covers the ranks before
//! it. It grows from 1 to 3 ranks and then doubles: rank r sends its contribution to r + 1, its partial result with its
//! contribution to r + 2, and then its partial result, of n ranks, to r + n. ⌈log2(4 (P - 1) / 3)⌉ rounds, at least as
//! many as recursive doubling and at most one more.

use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::{Builder, Schedule, Side, Slice};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const EXSCAN: Algorithm = Algorithm {
    operation: Operation::Exscan,
    name: "123-doubling",
    source: "Traeff 2025, \"New, round-efficient, one-ported algorithms for exclusive prefix sums\"",
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let (p, me) = (call.size, call.rank);
    let before = [Slice::output(0, 1)];
    let mut s = call.builder(1);
    // In place, the first message would have to wait until the input is sent.
    let mut own = [Slice::input(0, 1)];
    if me > 0 && me + 1 < p {
        let copy = [s.scratch_like(own[0])];
        s.copy(&own, &copy);
        own = copy;
    }
    if me + 1 < p {
        s.send(me + 1, 0, &own);
    }
    if me > 0 {
        s.receive(me - 1, 0, &before);
    }
    if me + 2 < p {
        if me > 0 {
            s.reduce(&before, Side::Left, &own);
        }
        s.send(me + 2, 0, &own);
    }
    let mut received = None;
    let mut receive = |s: &mut Builder, source: u32| {
        let received = [*received.get_or_insert_with(|| s.scratch_like(before[0]))];
        s.receive(source, 0, &received);
        s.reduce(&received, Side::Left, &before);
    };
    if me >= 2 {
        receive(&mut s, me - 2);
    }
    // Without this fence, ranks that have their result could send it to later ranks before the messages for which the
    // next ranks wait.
    s.fence();
    let mut have = 3;
    // Rank 0 has no prefix to send.
    while have < p - 1 {
        if me > 0 && me + have < p {
            s.send(me + have, 0, &before);
        }
        if me > have {
            receive(&mut s, me - have);
        }
        have *= 2;
    }
    s.done()
}
