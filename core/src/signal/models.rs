//! Models of consecutive pairwise exchanges and arrivals, under every interleaving: each rank must see the mark of its
//! own round and the values that the others wrote before it.

use super::*;
use crate::interleavings::{Fault, ModelWord, caught, check, leak};

const ROUNDS: u64 = 2;

/// The words of the array, and a word for each round that each rank writes before it signals. With `one_word`, all
/// rounds use the same word.
struct Model {
    words: [[ModelWord; LINE / 8]; 2],
    written: [[ModelWord; ROUNDS as usize]; 2],
    one_word: bool,
}

impl Model {
    /// Runs `round` on two ranks, with the rank's number and the round's; `round` returns the mark.
    fn run(one_word: bool, fault: Fault, round: fn(&Self, usize, u64) -> u16) {
        let words = [(); 2].map(|()| std::array::from_fn(|_| ModelWord::new(0, fault)));
        let written = [(); 2].map(|()| std::array::from_fn(|_| ModelWord::new(0, Fault::No)));
        let model = leak(Self { words, written, one_word });
        let run = move |me: usize| {
            for number in 1..=ROUNDS {
                let [mine, theirs] = [me, 1 - me].map(|rank| &model.written[rank][number as usize - 1]);
                // Relaxed, both accesses: the round must order them.
                Word::<u64>::store(mine, number, Ordering::Relaxed);
                assert_eq!(round(model, me, number), number as u16);
                assert_eq!(Word::<u64>::load(theirs, Ordering::Relaxed), number);
            }
        };
        let other = loom::thread::spawn(move || run(1));
        run(0);
        other.join().unwrap();
    }

    fn wait(word: &ModelWord, number: u64) -> Result<()> {
        while !has_arrived(word, number) {
            loom::thread::yield_now();
        }
        Ok(())
    }

    fn exchange(&self, me: usize, number: u64) -> u16 {
        let [ours, theirs] =
            [me, 1 - me].map(|rank| &self.words[rank][pair_word(0, if self.one_word { 0 } else { number })]);
        exchange_words(ours, theirs, marked(number, number as u16), || {}, || Self::wait(theirs, number)).unwrap()
    }

    /// Rank 0 marks every round; returns the round's number if the mark arrived.
    fn arrive(&self, me: usize, number: u64) -> u16 {
        let place = |word| if self.one_word && word != ARRIVALS { (word - MARKS) & !1 | MARKS } else { word };
        let line = std::array::from_fn(|word| &self.words[0][place(word)]);
        number as u16 * arrive_at(line, 2, number, u16::from(me == 0), || {}, Self::wait).unwrap()
    }
}

#[test]
fn exchange_model_sees_the_mark_and_the_writes_of_its_own_round() {
    check(3, || Model::run(false, Fault::No, Model::exchange));
}

#[test]
fn arrive_model_sees_the_marks_and_the_writes_of_all() {
    check(3, || Model::run(false, Fault::No, Model::arrive));
}

#[test]
fn models_notice_words_that_are_shared_or_not_ordered() {
    for round in [Model::exchange as fn(&Model, usize, u64) -> u16, Model::arrive] {
        caught(3, move || Model::run(false, Fault::Relaxed, round));
        caught(3, move || Model::run(true, Fault::No, round));
    }
}
