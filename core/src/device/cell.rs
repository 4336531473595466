//! The value of a signal cell: a number that only grows, and 16 bits beside it, its mark.

/// The part of a value that grows.
const NUMBER: u64 = (1 << MARK) - 1;
const MARK: u32 = 48;

/// The value `number` with a mark.
#[must_use]
#[inline]
pub const fn marked(number: u64, mark: u16) -> u64 {
    number | (mark as u64) << MARK
}

/// The number of a value, and its mark.
#[must_use]
#[inline]
pub const fn unmarked(value: u64) -> (u64, u16) {
    (value & NUMBER, (value >> MARK) as u16)
}
