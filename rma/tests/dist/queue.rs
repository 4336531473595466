//! Queues: every item is taken once, and the end is found at every rank.

use farside_rma::dist::Queue;
use farside_rma::prelude::*;
use serde::{Deserialize, Serialize};

use super::map::Unreadable;
use super::{blamed, everywhere, run};
use crate::checks::config::{MAPPED, these};

/// An item: its number, and text that must arrive with it.
#[derive(Debug, Serialize, Deserialize)]
struct Task {
    number: u64,
    text: String,
}

impl Task {
    fn new(number: u64) -> Self {
        Self { number, text: "x".repeat(number as usize % 50) }
    }

    /// The items that this one makes.
    fn makes(&self, most: u64) -> impl Iterator<Item = Self> {
        [2 * self.number + 1, 2 * self.number + 2].into_iter().filter(move |number| *number < most).map(Self::new)
    }
}

#[test]
fn every_item_is_taken_once() {
    everywhere(&[1, 2, 3, 5, 8], |team| {
        let (p, me) = (team.size(), team.rank());
        let mut queue = Queue::<Task>::new(team)?;
        // Items that make items, from one rank, and none at all, and some of each rank.
        for (round, most) in [400, 0, 300, 1].into_iter().enumerate() {
            if me == round % p && most > 0 {
                queue.push(Task::new(0))?;
            }
            if round == 2 {
                (0..10).try_for_each(|i| queue.push(Task::new(1000 + 10 * me as u64 + i)))?;
            }
            let mut taken = Vec::new();
            while let Some(task) = queue.next()? {
                assert_eq!(task.text.len(), task.number as usize % 50);
                task.makes(most).try_for_each(|task| queue.push(task))?;
                taken.push(task.number);
            }
            let mut counts = vec![0; p];
            team.allgather(&[taken.len()], &mut counts)?;
            let mut all = vec![0; counts.iter().sum()];
            team.allgatherv(&taken, &mut all, &counts)?;
            all.sort_unstable();
            let seeds = (1000..1000 + 10 * p as u64).filter(|_| round == 2);
            assert_eq!(all, (0..most).chain(seeds).collect::<Vec<_>>(), "round {round}");
            assert_eq!(queue.local_len(), 0);
        }
        queue.free()
    });
}

#[test]
fn ranks_without_items_get_some_of_a_rank_that_works() {
    everywhere(&[2, 3], |team| {
        let (p, me) = (team.size(), team.rank());
        let got = Symmetric::<u64>::allocate(team, p)?;
        let mut queue = Queue::<u64>::new(team)?;
        let (mut pushed, mut taken) = (0, 0);
        // The first rank does not end before each other rank has an item.
        while me == 0 && (1..p).any(|rank| got.local().load(rank).is_ok_and(|count| count == 0)) {
            queue.push(pushed)?;
            pushed += 1;
        }
        while queue.next()?.is_some() {
            taken += 1;
            got.put_value(taken, 0, me)?;
        }
        let mut sums = [pushed, taken];
        team.allreduce(&mut sums, Op::Sum)?;
        assert!(taken > 0 || me == 0);
        assert_eq!(sums[0], sums[1]);
        queue.free()?;
        got.free()
    });
}

/// A rank that holds the last item keeps the others waiting, and what it pushes then reaches them.
#[test]
fn end_is_not_found_while_a_rank_works() {
    for config in these(&[MAPPED]) {
        run(&config, 4, |team| {
            let mut queue = Queue::<u32>::new(team)?;
            if team.rank() == 3 {
                queue.push(5)?;
            }
            let mut sum = [0];
            while let Some(item) = queue.next()? {
                std::thread::sleep(std::time::Duration::from_millis(5));
                sum[0] += 1;
                (0..item).try_for_each(|_| queue.push(item - 1))?;
            }
            team.allreduce(&mut sum, Op::Sum)?;
            // 5 makes 5 items, each of which makes 4.
            assert_eq!(sum, [1 + 5 + 20 + 60 + 120 + 120]);
            queue.free()
        });
    }
}

#[test]
fn items_that_cannot_be_decoded_are_an_error_that_names_the_giver() {
    for config in these(&[MAPPED]) {
        run(&config, 2, |team| {
            let mut queue = Queue::<Unreadable>::new(team)?;
            let got = Symmetric::<u64>::allocate(team, 1)?;
            if team.rank() == 1 {
                assert_eq!(blamed(queue.next()), Some((ErrorKind::Protocol, Some(0))));
                got.put_value(1, 0, 0)?;
            } else {
                while got.local().load(0)? == 0 {
                    queue.push(Unreadable(9))?;
                }
            }
            team.barrier()?;
            got.free()
        });
    }
}

/// A rank that waits sends nothing.
#[test]
fn messages_of_ranks_that_wait_are_those_of_their_lifelines() {
    use farside_rma::core::stats::Kind;
    for config in these(&[MAPPED]) {
        run(&config, 4, |team| {
            let mut queue = Queue::<u32>::new(team)?;
            team.barrier()?;
            let before = team.job().stats().count(Kind::Send);
            assert_eq!(queue.next()?, None);
            let sent = team.job().stats().count(Kind::Send) - before;
            // Two lifelines; a report and two verdicts in each of two rounds.
            assert!(sent <= 2 + 2 * 3, "{sent} messages");
            queue.free()
        });
    }
}
