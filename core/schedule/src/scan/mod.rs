//! Prefix reductions, inclusive (scan) and exclusive (exscan) of the rank's own contribution. All keep the order of the
//! ranks.

mod binomial;
mod chain;
mod direct;
mod doubling_123;
pub(super) mod linear;
mod recursive_doubling;

use super::operation::{Algorithm, Call, Operation};
use super::schedule::{Builder, Side, Slice};

/// All scan and exscan algorithms.
pub(crate) const ALGORITHMS: &[&Algorithm] = &[
    &chain::SCAN,
    &chain::EXSCAN,
    &recursive_doubling::SCAN,
    &recursive_doubling::EXSCAN,
    &doubling_123::EXSCAN,
    &binomial::SCAN,
    &binomial::EXSCAN,
    &direct::SCAN,
    &direct::EXSCAN,
    &linear::SCAN,
    &linear::EXSCAN,
];

/// Partial results of a rank: of the ranks up to itself and, in an exscan, of the ranks before itself.
struct Prefix {
    with_own: Slice,
    before: Option<Slice>,
    is_begun: bool,
    received: Option<Slice>,
}

impl Prefix {
    /// The initial partial results, of this rank alone. An exscan copies the input only if `sends`: another rank gets
    /// `with_own`.
    fn new(call: &Call<'_>, s: &mut Builder, sends: bool) -> Self {
        let own = Slice::input(0, 1);
        let (mut with_own, mut before) = (own, None);
        if call.operation == Operation::Scan {
            with_own = Slice::output(0, 1);
        } else if call.rank > 0 {
            before = Some(Slice::output(0, 1));
            if sends {
                with_own = s.scratch_like(own);
            }
        }
        if with_own != own {
            s.copy(&[own], &[with_own]);
        }
        Self { with_own, before, is_begun: false, received: None }
    }

    /// Receives a lower rank's partial result, which covers the ranks just before those already covered. `sends`: this
    /// rank still sends its partial result with its own contribution.
    fn receive(&mut self, s: &mut Builder, source: u32, tag: u32, sends: bool) {
        let Some(before) = self.before else {
            // Received into scratch first: a receive that reduces in place would have to wait for the previous send to
            // complete.
            let received = *self.received.get_or_insert_with(|| s.scratch_like(self.with_own));
            s.receive(source, tag, &[received]);
            return s.reduce(&[received], Side::Left, &[self.with_own]);
        };
        let mut received = before;
        if self.is_begun {
            received = *self.received.get_or_insert_with(|| s.scratch_like(before));
        }
        s.receive(source, tag, &[received]);
        if sends {
            s.reduce(&[received], Side::Left, &[self.with_own]);
        }
        if self.is_begun {
            s.reduce(&[received], Side::Left, &[before]);
        }
        self.is_begun = true;
    }
}
