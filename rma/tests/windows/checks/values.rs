//! Values of the element types that tests write and expect.

use farside_rma::Element;

/// A type with values derived from small numbers.
pub(crate) trait Value: Element + PartialEq + std::fmt::Debug {
    /// `n` in the type; small types wrap.
    fn of(n: u64) -> Self;
}

macro_rules! values {
    ($($t:ty),*) => { $(impl Value for $t {
        fn of(n: u64) -> Self { n as $t }
    })* };
}

values!(i8, i16, i32, i64, u8, u16, u32, u64, f32, f64);

/// The value that `origin` writes to element `i` of `target`: it fits 7 bits, so that every type holds it, is
/// never 0, and neighbours differ.
pub(crate) fn written<T: Value>(origin: usize, target: usize, i: usize) -> T {
    T::of((1 + (origin * 41 + target * 17 + i * 7) % 126) as u64)
}

/// The initial value of memory.
pub(crate) fn initial<T: Value>(rank: usize, i: usize) -> T {
    T::of(((rank * 5 + i * 3) % 100) as u64)
}
