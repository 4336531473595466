//! Ranks that meet again and again, in pairs or at a counter, under every interleaving: each sees the mark of its own
//! meeting and what the others wrote before.

use super::*;
use crate::model::{Fault, ModelWord, caught, check, leak};

const MEETINGS: u64 = 2;

/// Words, and what each rank writes before it comes, for each meeting. `one_word`: all meetings use the same word.
struct Meeting {
    words: [[ModelWord; LINE / 8]; 2],
    written: [[ModelWord; MEETINGS as usize]; 2],
    one_word: bool,
}

impl Meeting {
    /// Runs `meet` on two ranks, each with its number and that of the meeting; it gives the mark.
    fn run(one_word: bool, fault: Fault, meet: fn(&Self, usize, u64) -> u16) {
        let words = [(); 2].map(|()| std::array::from_fn(|_| ModelWord::new(0, fault)));
        let written = [(); 2].map(|()| std::array::from_fn(|_| ModelWord::new(0, Fault::No)));
        let meeting = leak(Self { words, written, one_word });
        let run = move |me: usize| {
            for number in 1..=MEETINGS {
                let [mine, theirs] = [me, 1 - me].map(|rank| &meeting.written[rank][number as usize - 1]);
                // Relaxed, both: what the meeting has to order.
                Word::<u64>::store(mine, number, Ordering::Relaxed);
                assert_eq!(meet(meeting, me, number), number as u16);
                assert_eq!(Word::<u64>::load(theirs, Ordering::Relaxed), number);
            }
        };
        let other = loom::thread::spawn(move || run(1));
        run(0);
        other.join().unwrap();
    }

    fn wait(word: &ModelWord, number: u64) -> Result<()> {
        while !has_come(word, number) {
            loom::thread::yield_now();
        }
        Ok(())
    }

    fn exchange(&self, me: usize, number: u64) -> u16 {
        let [ours, theirs] =
            [me, 1 - me].map(|rank| &self.words[rank][pair_word(0, if self.one_word { 0 } else { number })]);
        exchange(ours, theirs, marked(number, number as u16), || {}, || Self::wait(theirs, number)).unwrap()
    }

    /// Rank 0 marks every meeting: gives the number if the mark came.
    fn arrive(&self, me: usize, number: u64) -> u16 {
        let place = |word| if self.one_word && word != ARRIVALS { (word - MARKS) & !1 | MARKS } else { word };
        let line = std::array::from_fn(|word| &self.words[0][place(word)]);
        number as u16 * arrive(line, 2, number, u16::from(me == 0), || {}, Self::wait).unwrap()
    }
}

#[test]
fn exchange_model_sees_the_mark_and_the_writes_of_its_own_meeting() {
    check(3, || Meeting::run(false, Fault::No, Meeting::exchange));
}

#[test]
fn arrive_model_sees_the_marks_and_the_writes_of_all() {
    check(3, || Meeting::run(false, Fault::No, Meeting::arrive));
}

#[test]
fn meeting_models_notice_words_that_are_shared_or_not_ordered() {
    for meet in [Meeting::exchange as fn(&Meeting, usize, u64) -> u16, Meeting::arrive] {
        caught(3, move || Meeting::run(false, Fault::Relaxed, meet));
        caught(3, move || Meeting::run(true, Fault::No, meet));
    }
}
