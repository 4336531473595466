//! Recursive halving: with P = 2^n + Q, the first 2Q ranks fold in pairs; the 2^n that remain halve the blocks in n
//! rounds, with the peer at half the distance of the previous round, so that pieces stay consecutive; and the folded
//! ranks get their blocks. n rounds of m(1 - 2^-n) elements; if P is not a power of two, one round more of m and one of
//! a block. Distant ranks exchange first, so the operator must be commutative.

use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::{Schedule, Side, Slice};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::ReduceScatter,
    name: "recursive-halving",
    source: "Thakur, Rabenseifner, Gropp 2005, section 4.2",
    commutative: true,
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let (p, me) = (call.size, call.rank);
    let mut s = call.builder(p);
    let active = 1 << p.ilog2();
    let folded = p - active;
    let last = p.ilog2() + 1;
    if me < 2 * folded && me % 2 == 1 {
        s.send(me - 1, 0, &[Slice::input(0, p)]);
        s.receive(me - 1, last, &[Slice::output(0, 1)]);
        return s.done();
    }
    let rank = |number: u32| if number < folded { 2 * number } else { number + folded };
    // Blocks of the active ranks `first` to `end - 1`, and of the ranks folded into them.
    let blocks = |first: u32, end: u32| (rank(first), rank(end) - rank(first));
    let number = if me < 2 * folded { me / 2 } else { me - folded };
    let mut partial = None;
    let mut reduced = |s: &mut crate::schedule::Builder| *partial.get_or_insert_with(|| s.scratch(0..p));
    let mut is_input = true;
    if me < 2 * folded {
        let into = reduced(&mut s);
        s.receive(me + 1, 0, &[into]);
        s.reduce(&[Slice::input(0, p)], Side::Left, &[into]);
        is_input = false;
    }
    let (mut first, mut end, mut distance) = (0, active, active / 2);
    while distance > 0 {
        let peer = rank(number ^ distance);
        let (tag, half) = (distance.ilog2() + 1, first + distance);
        let (kept, sent, side) = if number < half {
            (blocks(first, half), blocks(half, end), Side::Right)
        } else {
            (blocks(half, end), blocks(first, half), Side::Left)
        };
        let into = reduced(&mut s).part(kept.0, kept.1);
        if is_input {
            s.send(peer, tag, &[Slice::input(sent.0, sent.1)]);
            s.receive(peer, tag, &[into]);
            s.reduce(
                &[Slice::input(kept.0, kept.1)],
                if side == Side::Left { Side::Right } else { Side::Left },
                &[into],
            );
            is_input = false;
        } else {
            let from = reduced(&mut s).part(sent.0, sent.1);
            s.send(peer, tag, &[from]);
            s.receive_reduce(peer, tag, side, &[into]);
        }
        (first, end) = if number < half { (first, half) } else { (half, end) };
        distance /= 2;
    }
    let held = if is_input { Slice::input(0, p) } else { reduced(&mut s) };
    s.copy(&[held.part(me, 1)], &[Slice::output(0, 1)]);
    if me < 2 * folded {
        s.send(me + 1, last, &[held.part(me + 1, 1)]);
    }
    s.done()
}
