//! Claims under every interleaving of the two ranks.

use super::*;
use crate::interleavings::{Fault, ModelWord, caught, check, leak};

const PIECES: [u32; 2] = [3, 2];

/// Claims segments of a message until none is left; returns their number.
fn all(word: &ModelWord, message: u32) -> u32 {
    let mut claimed = 0;
    while claim(word, message, PIECES[message as usize - 1]) {
        claimed += 1;
    }
    claimed
}

/// The receiver and the sender claim the segments of a message. As soon as no segment is left, the receiver uses the
/// word for another message, which the sender does not know.
fn messages(fault: Fault) {
    let word = leak(ModelWord::new(0, fault));
    open(word, 1);
    let sender = loom::thread::spawn(|| all(word, 1));
    let own = all(word, 1);
    open(word, 2);
    assert_eq!(all(word, 2), PIECES[1]);
    assert_eq!(own + sender.join().unwrap(), PIECES[0]);
    open(word, 3);
    close(word);
    assert!(!claim(word, 3, 1));
}

#[test]
fn claims_model_gives_each_piece_to_one_rank() {
    check(3, || messages(Fault::No));
}

#[test]
fn claims_model_notices_words_that_forget_their_message() {
    caught(3, || messages(Fault::Stores(|_| Some(1 << 32))));
    caught(3, || messages(Fault::Stores(|word| (word >> 32 != 2).then_some(word))));
}
