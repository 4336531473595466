//! The symbolic content of a block.

use super::FaultKind;

/// The contributions that a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    /// The block of the input from which the contributions come.
    pub(crate) block: u32,
    /// The contributing ranks.
    pub(crate) ranks: Ranks,
    /// A hash of the bracketing.
    pub(crate) tree: u64,
}

/// The ranks whose contributions were reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ranks {
    /// `lo` to `hi - 1`, in order.
    Run(u32, u32),
    /// A set with gaps, by its number in [`Sets`].
    Set(u32),
}

/// Sets of ranks with gaps, which only commutative reductions have. Each set is stored as its runs, in order.
#[derive(Debug, Default)]
pub(crate) struct Sets(Vec<Box<[(u32, u32)]>>);

impl Sets {
    /// The union of disjoint sets.
    fn union(&mut self, a: Ranks, b: Ranks) -> Option<Ranks> {
        let mut runs = Vec::new();
        for ranks in [a, b] {
            match ranks {
                Ranks::Run(lo, hi) => runs.push((lo, hi)),
                Ranks::Set(number) => runs.extend_from_slice(&self.0[number as usize]),
            }
        }
        runs.sort_unstable();
        if runs.windows(2).any(|w| w[0].1 > w[1].0) {
            return None;
        }
        runs.dedup_by(|next, run| {
            let joined = run.1 == next.0;
            if joined {
                run.1 = next.1;
            }
            joined
        });
        if let [(lo, hi)] = runs[..] {
            return Some(Ranks::Run(lo, hi));
        }
        self.0.push(runs.into());
        Some(Ranks::Set(self.0.len() as u32 - 1))
    }
}

fn mixed(a: u64, b: u64) -> u64 {
    (a ^ b.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (b >> 7).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

impl Value {
    /// The contribution of a rank.
    pub(crate) fn of(block: u32, rank: u32) -> Self {
        Self { block, ranks: Ranks::Run(rank, rank + 1), tree: mixed(1, u64::from(rank)) }
    }

    /// Whether the value is block `block` with the contributions of ranks `lo` to `hi - 1`.
    pub(crate) fn is(&self, block: u32, lo: u32, hi: u32) -> bool {
        self.block == block && self.ranks == Ranks::Run(lo, hi)
    }

    /// `left ∘ right`.
    pub(crate) fn reduced(left: Self, right: Self, commutative: bool, sets: &mut Sets) -> Result<Self, FaultKind> {
        if left.block != right.block {
            return Err(FaultKind::Doubled);
        }
        let tree = if commutative {
            mixed(left.tree.min(right.tree), left.tree.max(right.tree))
        } else {
            mixed(left.tree, right.tree)
        };
        let ranks = match (left.ranks, right.ranks) {
            (Ranks::Run(lo, at), Ranks::Run(also, hi)) if at == also => Ranks::Run(lo, hi),
            (Ranks::Run(at, hi), Ranks::Run(lo, also)) if at == also && commutative => Ranks::Run(lo, hi),
            (a, b) => {
                let all = sets.union(a, b).ok_or(FaultKind::Doubled)?;
                if !commutative {
                    return Err(FaultKind::Order);
                }
                all
            }
        };
        Ok(Self { block: left.block, ranks, tree })
    }
}
