//! Hints for devices in the code of an accumulate. The lower 16 bits belong to the region's function. The upper bits
//! hold what a device must know to apply the accumulate without that function: the size of an element, and whether HCAs
//! have the operation. A code without hints is correct on every device, but slower on networks.

/// Effect of an operation on an element, as far as devices distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// An effect that devices do not know.
    Other,
    /// Adds integers, wrapping.
    Add,
    /// Changes nothing; only the former values are read.
    Read,
}

const SIZE: u32 = 16;
const EFFECT: u32 = 24;

/// The upper bits for elements of `size` bytes (1 to 255).
#[must_use]
pub const fn hint(size: usize, effect: Effect) -> u32 {
    let effect = match effect {
        Effect::Other => 0,
        Effect::Add => 1,
        Effect::Read => 2,
    };
    ((size & 0xff) as u32) << SIZE | effect << EFFECT
}

/// Size of an element in bytes; 0 if the code does not say.
#[must_use]
pub const fn element(code: u32) -> usize {
    (code >> SIZE & 0xff) as usize
}

/// The effect of the operation.
#[must_use]
pub const fn effect(code: u32) -> Effect {
    match code >> EFFECT {
        1 => Effect::Add,
        2 => Effect::Read,
        _ => Effect::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_read_back_and_leave_the_lower_bits_alone() {
        for e in [Effect::Other, Effect::Add, Effect::Read] {
            let code = 0xabcd | hint(8, e);
            assert_eq!((element(code), effect(code), code & 0xffff), (8, e, 0xabcd));
        }
        assert_eq!((element(0xffff), effect(0xffff)), (0, Effect::Other));
    }
}
