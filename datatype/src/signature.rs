//! Type signatures (MPI-4.1 §5.1): the elements of a message, without their offsets, as a hash.

/// The prime 2^61 - 1: products of two residues fit 128 bits, and reduction takes two additions.
const PRIME: u64 = (1 << 61) - 1;
/// The point at which the polynomial is evaluated; any residue of large order does.
const BASE: u64 = 0x0f3b_9a2c_71d4_e865;

/// Number, order and type of elements: the number, and the polynomial whose coefficients are the elements' codes,
/// evaluated at a fixed point of a prime field. Signatures are joined and repeated without their elements, so the
/// signature of 2^40 elements costs 40 steps. Two different signatures of n elements agree with a probability of about
/// n / 2^61.
///
/// ```
/// use farside_datatype::{Datatype, Named};
///
/// let int = Datatype::from(Named::Int);
/// // The same elements at other offsets; elements of another type.
/// assert_eq!(Datatype::vector(4, 1, 3, &int)?.signature(), Datatype::contiguous(4, &int)?.signature());
/// assert_ne!(int.signature(), Datatype::from(Named::Float).signature());
/// # Ok::<(), farside_datatype::DatatypeError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Signature {
    hash: u64,
    elements: u64,
}

fn multiply(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    add((product & u128::from(PRIME)) as u64, (product >> 61) as u64)
}

/// The sum of two residues, modulo the prime.
fn add(a: u64, b: u64) -> u64 {
    let sum = a + b;
    if sum >= PRIME { sum - PRIME } else { sum }
}

fn power(mut exponent: u64) -> u64 {
    let (mut result, mut square) = (1, BASE);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = multiply(result, square);
        }
        square = multiply(square, square);
        exponent >>= 1;
    }
    result
}

impl Signature {
    /// No elements.
    pub(crate) const NONE: Self = Self { hash: 0, elements: 0 };

    /// One element.
    pub(crate) fn element(code: u8) -> Self {
        Self { hash: u64::from(code) + 1, elements: 1 }
    }

    /// A signature from the wire; `None` if no signature has these numbers.
    pub(crate) fn from_parts(hash: u64, elements: u64) -> Option<Self> {
        (hash < PRIME && (elements > 0 || hash == 0)).then_some(Self { hash, elements })
    }

    /// These elements, then those of `next`.
    pub(crate) fn then(self, next: Self) -> Self {
        Self {
            hash: add(multiply(self.hash, power(next.elements)), next.hash),
            elements: self.elements.saturating_add(next.elements),
        }
    }

    /// These elements `count` times.
    pub(crate) fn repeat(self, mut count: u64) -> Self {
        let (mut result, mut square) = (Self::default(), self);
        while count > 0 {
            if count & 1 == 1 {
                result = result.then(square);
            }
            count >>= 1;
            if count > 0 {
                square = square.then(square);
            }
        }
        result
    }

    /// The code of the elements if all have the same.
    pub(crate) fn uniform(self) -> Option<u8> {
        let ones = Self { hash: 1, elements: 1 }.repeat(self.elements).hash;
        (0..=u8::MAX).find(|code| self.elements > 0 && multiply(u64::from(*code) + 1, ones) == self.hash)
    }

    /// The number of basic elements, those of a pair type counted singly.
    #[must_use]
    pub fn elements(self) -> u64 {
        self.elements
    }

    /// The hash of their types in their order.
    #[must_use]
    pub fn hash(self) -> u64 {
        self.hash
    }
}
