//! The value of a signal cell: a number that only grows, in the lower 48 bits, and a 16-bit mark above it.

/// Mask of the number.
const NUMBER: u64 = (1 << MARK) - 1;
const MARK: u32 = 48;

/// The cell value of `number` and `mark`.
#[must_use]
#[inline]
pub const fn marked(number: u64, mark: u16) -> u64 {
    number | (mark as u64) << MARK
}

/// The number and the mark of a cell value.
#[must_use]
#[inline]
pub const fn unmarked(value: u64) -> (u64, u16) {
    (value & NUMBER, (value >> MARK) as u16)
}
