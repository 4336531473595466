#![allow(unsafe_code)]
//! Malformed requests, which no origin of this library writes.

use std::cell::Cell;

use super::*;
use crate::device::code::COMPARE_SWAP;
use crate::memory::segment::{Pages, Segment};

/// Fills the target with 9, whatever the code.
unsafe fn fill(_code: u32, target: *mut u8, _operand: *const u8, _result: *mut u8, bytes: usize) -> bool {
    // SAFETY: valid for `bytes` bytes by the contract of `AccumulateFn`.
    unsafe { target.write_bytes(9, bytes) };
    true
}

/// Serves requests for one word of zero; calls `f` with a function that makes a request, and with the word.
fn with_one_word(f: impl Fn(&dyn Fn(Request) -> Result<(), ErrorKind>, &Cell<u64>, &Layout)) {
    let layout = Layout::new(0, 1, 4096);
    let [own, origin] = [(); 2].map(|()| Segment::create(&std::env::temp_dir(), layout.end(), Pages::AtOnce).unwrap());
    let (exposures, stats, word) = (Exposures::default(), Stats::default(), Cell::new(0u64));
    let region = Exposed { base: word.as_ptr().cast(), len: 8, accumulate: Some(fill) };
    // SAFETY: the word lives to the end of this function, and only requests of this thread change it.
    let key = unsafe { exposures.insert(region) };
    let request = |r: Request| {
        write(own.mapping(), &layout, 0, 0, &Request { key, ..r });
        perform(own.mapping(), layout.request(0, 0), origin.mapping(), &layout, &exposures, &stats)
    };
    f(&request, &word, &layout);
}

#[test]
fn no_code_of_a_peer_makes_an_accumulate_a_compare_and_swap() {
    with_one_word(|request, word, layout| {
        for len in [1, 2, 4, 8] {
            // The last bytes of the bounce buffer: the two words of a compare-and-swap would end outside it.
            for bounce in [INLINE, (layout.bounce_len - len as usize) as u32] {
                for code in [Code::Accumulate, Code::FetchAccumulate] {
                    let r =
                        Request { code, accumulate: COMPARE_SWAP, key: 0, offset: 0, len, bounce, operand: [0, 1, 0] };
                    assert_eq!(request(r), Err(ErrorKind::Misaligned), "{r:?}");
                    assert_eq!(word.get(), 0, "{r:?}");
                }
            }
        }
        // All codes except `COMPARE_SWAP` are those of the accumulate function; a compare-and-swap has a request of its
        // own.
        let r = Request {
            code: Code::Accumulate,
            accumulate: COMPARE_SWAP - 1,
            key: 0,
            offset: 0,
            len: 1,
            bounce: INLINE,
            operand: [0; 3],
        };
        assert_eq!((request(r), word.get()), (Ok(()), 9));
        let r = Request { code: Code::CompareSwap, len: 8, operand: [9, 7, 0], ..r };
        assert_eq!((request(r), word.get()), (Ok(()), 7));
        assert_eq!(request(Request { len: 3, ..r }), Err(ErrorKind::Misaligned));
    });
}
