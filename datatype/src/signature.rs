//! Type signatures (MPI-4.1 §5.1): the elements of a message, without their offsets, as a hash.

/// The prime 2^61 - 1: products of two residues fit 128 bits, and reduction takes two additions.
const PRIME: u64 = (1 << 61) - 1;
/// The point at which the polynomial is evaluated; any residue of large order is suitable.
const BASE: u64 = 0x0f3b_9a2c_71d4_e865;

/// Number, order and type of elements: the number, and the polynomial whose coefficients are the elements' codes,
/// evaluated at a fixed point of a prime field. Signatures are concatenated and repeated without visiting the elements,
/// so the signature of 2^40 elements takes 40 steps. Two different signatures of n elements agree with a probability of
/// about n / 2^61.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Signature {
    hash: u64,
    elements: u64,
    /// The code of the elements if all have the same code, otherwise [`SEVERAL`]. The hash alone does not determine it:
    /// for a multiple of the order of [`BASE`], such as 2^60 - 1 elements, it is 0 for all codes.
    code: u8,
}

/// The code of an empty signature, and that of elements with different codes.
const SEVERAL: u8 = u8::MAX;

impl Default for Signature {
    fn default() -> Self {
        Self::NONE
    }
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
    /// The empty signature.
    pub(crate) const NONE: Self = Self { hash: 0, elements: 0, code: SEVERAL };

    /// The signature of one element.
    pub(crate) fn element(code: u8) -> Self {
        Self { hash: u64::from(code) + 1, elements: 1, code }
    }

    /// Decodes a signature; `None` if no signature has these numbers.
    pub(crate) fn from_parts(hash: u64, elements: u64, code: u8) -> Option<Self> {
        let signature = Self { hash, elements, code };
        let is_one = code == SEVERAL || elements > 0 && Self::element(code).repeat(elements) == signature;
        (hash < PRIME && (elements > 0 || hash == 0) && is_one).then_some(signature)
    }

    /// These elements followed by those of `next`.
    pub(crate) fn then(self, next: Self) -> Self {
        Self {
            hash: add(multiply(self.hash, power(next.elements)), next.hash),
            elements: self.elements.saturating_add(next.elements),
            code: match (self.elements, next.elements) {
                (0, _) => next.code,
                (_, 0) => self.code,
                _ if self.code == next.code => self.code,
                _ => SEVERAL,
            },
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

    /// The code of the elements if all have the same code.
    pub(crate) fn uniform(self) -> Option<u8> {
        (self.code != SEVERAL).then_some(self.code)
    }

    /// The code of [`uniform`](Self::uniform), as the wire form has it.
    pub(crate) fn code(self) -> u8 {
        self.code
    }

    /// The number of basic elements; a pair type counts as two.
    #[must_use]
    pub fn elements(self) -> u64 {
        self.elements
    }

    /// The hash of the element types in order.
    #[must_use]
    pub fn hash(self) -> u64 {
        self.hash
    }
}
