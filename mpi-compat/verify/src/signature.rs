//! Hashes of type signatures: of sequences of basic types, however they were constructed. The hash of a concatenation
//! is computed from the hashes of its parts (a polynomial modulo a prime), so `n` repetitions take O(log n) steps.

const PRIME: u64 = (1 << 61) - 1;
const BASE: u64 = 0x0f1e_2d3c_4b5a_6978;

/// A sequence of basic types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    pub hash: u64,
    /// `BASE` to the power of the number of elements.
    power: u64,
    pub elements: i64,
    /// The first basic type; 0 if the sequence is empty.
    pub first: i64,
    /// Whether a part of the sequence matches any type.
    pub any: bool,
}

fn times(a: u64, b: u64) -> u64 {
    (u128::from(a) * u128::from(b) % u128::from(PRIME)) as u64
}

impl Signature {
    pub const EMPTY: Self = Self { hash: 0, power: 1, elements: 0, first: 0, any: false };

    /// A sequence of one element.
    pub fn basic(handle: i64) -> Self {
        // Handles are consecutive numbers; the factor spreads them over the residues.
        let hash = times(handle as u64 % PRIME, 0x1234_5678_9abc_def1) + 1;
        Self { hash: hash % PRIME, power: BASE, elements: 1, first: handle, any: false }
    }

    /// A sequence that matches any other.
    pub fn any() -> Self {
        Self { any: true, ..Self::EMPTY }
    }

    /// Whether all elements have the same type.
    pub fn is_uniform(self) -> bool {
        self.elements == 0 || self.hash == Self::basic(self.first).repeated(self.elements).hash
    }

    pub fn then(self, next: Self) -> Self {
        Self {
            hash: (times(self.hash, next.power) + next.hash) % PRIME,
            power: times(self.power, next.power),
            elements: self.elements.saturating_add(next.elements),
            first: if self.elements == 0 { next.first } else { self.first },
            any: self.any || next.any,
        }
    }

    pub fn repeated(self, mut count: i64) -> Self {
        let (mut out, mut double) = (Self::EMPTY, self);
        while count > 0 {
            if count & 1 == 1 {
                out = out.then(double);
            }
            double = double.then(double);
            count >>= 1;
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::Signature;

    #[test]
    fn the_order_of_elements_counts_and_their_grouping_does_not() {
        let [a, b] = [0x209, 0x214].map(Signature::basic);
        let ab = a.then(b);
        assert_eq!(ab.repeated(3), a.then(b.then(a)).then(b.then(a).then(b)));
        assert_eq!(ab.repeated(1_000_000), ab.repeated(1000).repeated(1000));
        assert_ne!(ab.hash, b.then(a).hash);
        assert_ne!(a.repeated(2).hash, a.repeated(3).hash);
        assert_eq!(Signature::EMPTY.then(ab), ab);
        assert!(a.repeated(5).is_uniform() && !ab.is_uniform());
        assert_eq!(a.repeated(0), Signature::EMPTY);
    }
}
