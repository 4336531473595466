//! The cost of a plan, and the plan with the minimum cost.

use super::plan::{Factor, Merge, Plan};
use crate::operation::Parameter;

/// Costs as parameters of an algorithm, in units of β, the time to send an element.
pub const COSTS: &[Parameter] = &[
    Parameter {
        name: "alpha",
        default: 1000,
        least: 0,
        most: u32::MAX,
        help: "elements sent in the latency of a message",
    },
    Parameter { name: "gamma", default: 10, least: 0, most: 10_000, help: "elements sent while a hundred are reduced" },
];

/// Costs if a rank sends and receives one message at a time: a message of m elements takes α + βm, and the reduction of
/// m elements γm. Any unit of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Latency of a message.
    pub alpha: f64,
    /// Time for each element of a message.
    pub beta: f64,
    /// Time to reduce an element.
    pub gamma: f64,
}

impl Costs {
    /// Costs from values of [`COSTS`].
    pub(crate) fn of_parameters(values: &[u32]) -> Self {
        Self { alpha: values[0].into(), beta: 1.0, gamma: f64::from(values[1]) / 100.0 }
    }

    /// Time of an allreduce of `elements` by a plan (Rabenseifner, Träff 2004, sections 3.1 to 3.5).
    #[must_use]
    pub fn of(&self, plan: &Plan, elements: f64) -> f64 {
        let (mut piece, mut time, mut is_eliminating) = (elements, 0.0, false);
        let mut step = |messages: f64, moved: f64, reduced: f64| {
            time += self.alpha * messages + self.beta * moved + self.gamma * reduced;
        };
        for round in plan.rounds() {
            // The first elimination takes one more step in both phases. The additional steps of later ones take no
            // time: the group that the first one has made is the first group of every later 3-2 elimination, and the
            // other groups wait for it anyway.
            if !matches!(round.merge, Merge::All(_)) && !std::mem::replace(&mut is_eliminating, true) {
                let sent = if round.halved && round.merge == Merge::ThreeTwo { piece / 2.0 } else { piece };
                step(2.0, 2.0 * sent, sent);
            }
            let (ways, log) = (f64::from(round.ways()), f64::from(round.ways().next_power_of_two().ilog2()));
            // A ring of r ranks that divides a piece of m elements takes α (r - 1 + ⌈log2 r⌉) + (2 β + γ) m (1 - 1/r)
            // in both phases. A ring that sends the whole piece, by an allgather of ⌈log2 r⌉ rounds, takes α ⌈log2 r⌉ +
            // (β + γ) m (r - 1).
            if round.ways() > 1 && round.halved {
                let others = piece * (1.0 - 1.0 / ways);
                step(ways - 1.0 + log, 2.0 * others, others);
                piece /= ways;
            } else if round.ways() > 1 {
                let others = piece * (ways - 1.0);
                step(log, others, others);
            }
        }
        time
    }
}

/// The plan with the minimum cost for `p` ranks: the butterfly for the factors two; rings for some odd prime factors,
/// an overlapping elimination for the product of the others; the best number of halving rounds (section 3.6).
#[must_use]
pub fn factorized(p: u32, elements: u64, costs: Costs) -> Plan {
    let primes: Vec<u32> = prime_factors(p).filter(|prime| *prime > 2).collect();
    let mut best: Option<(f64, Plan)> = None;
    for subset in 0..1u32 << primes.len() {
        let is_ring = |i: &usize| subset >> i & 1 == 1;
        let mut factors = vec![Factor::Butterfly; p.trailing_zeros() as usize];
        factors.extend((0..primes.len()).filter(is_ring).map(|i| Factor::Ring(primes[i])));
        if (0..primes.len()).any(|i| !is_ring(&i)) {
            factors.push(Factor::Overlapping);
        }
        let plan = Plan::new(p, &factors);
        for rounds in 0..=plan.rounds().len() {
            let plan = plan.clone().halved(rounds);
            if u64::from(plan.parts()) > elements.max(1) {
                break;
            }
            let cost = costs.of(&plan, elements as f64);
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, plan));
            }
        }
    }
    best.expect("a plan without rings and halving").1
}

/// The prime factors of `n`, in ascending order.
pub fn prime_factors(mut n: u32) -> impl Iterator<Item = u32> {
    let mut prime = 2;
    std::iter::from_fn(move || {
        while n > 1 && !n.is_multiple_of(prime) {
            prime += 1;
        }
        (n > 1).then(|| {
            n /= prime;
            prime
        })
    })
}
