//! Random numbers (splitmix64; Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators").

/// A stream of random numbers.
pub(super) struct Random(u64);

fn mixed(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// The stream of a rank: the streams of several ranks begin at random places of one sequence of 2^64 numbers.
    pub(super) fn new(seed: u64, rank: usize) -> Self {
        Self(mixed(mixed(seed).wrapping_add(rank as u64 + 1)))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// A number below `bound`, each equally likely (Lemire 2019, "Fast random integer generation in an interval").
    fn below(&mut self, bound: u64) -> u64 {
        loop {
            let product = u128::from(self.next()) * u128::from(bound);
            if product as u64 >= bound.wrapping_neg() % bound {
                return (product >> 64) as u64;
            }
        }
    }

    pub(super) fn shuffle<T>(&mut self, data: &mut [T]) {
        for at in (1..data.len()).rev() {
            data.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}
