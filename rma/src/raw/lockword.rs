//! The lock word: a fair queue lock for readers and writers in 64 bits, changed by fetch-and-add alone.
//!
//! Three fields of 20 bits: the number of tickets issued (`users`), and the tickets that may `write` and `read` next. A
//! writer enters when `write` reaches its ticket, and increments both fields when it leaves. A reader enters when
//! `read` reaches its ticket; it increments `read` immediately, so that the next reader may enter too, and `write` when
//! it leaves. So requests are granted in the order of their tickets, and readers share.
//!
//! Fields wrap. `users` is the top field, so its carry is lost. A rank that increments a field which only it may change
//! at that time knows the field's value and adds the difference to the wrapped value. A leaving reader does not know
//! the value, and clears the guard bit above the field if its addition has set it.

const BITS: u32 = 20;
const MASK: u64 = (1 << BITS) - 1;
const WRITE: u32 = 22;
const USERS: u32 = 44;

/// A ticket number, modulo the range of a field.
pub(crate) type Ticket = u64;

/// Added to take a ticket.
pub(crate) const TAKE: u64 = 1 << USERS;
/// Added when a reader leaves.
pub(crate) const READER_LEAVES: u64 = 1 << WRITE;
/// Added by a reader that has set the guard bit, to clear it.
pub(crate) const CLEAR_GUARD: u64 = (1u64 << (WRITE + BITS)).wrapping_neg();

/// The ticket that the addition of `TAKE` to the word `before` took.
pub(crate) const fn ticket(before: u64) -> Ticket {
    before >> USERS & MASK
}

/// Whether `next` is the ticket after `ticket`.
pub(crate) const fn follows(ticket: Ticket, next: Ticket) -> bool {
    ticket.wrapping_add(1) & MASK == next
}

/// Whether the writer with `ticket` may enter.
pub(crate) const fn may_write(word: u64, ticket: Ticket) -> bool {
    word >> WRITE & MASK == ticket
}

/// Whether the reader with `ticket` may enter.
pub(crate) const fn may_read(word: u64, ticket: Ticket) -> bool {
    word & MASK == ticket
}

/// The field plus one, wrapping.
const fn next(field: u64) -> u64 {
    if field == MASK { MASK.wrapping_neg() } else { 1 }
}

/// Added when the reader with `ticket` enters.
pub(crate) const fn reader_enters(ticket: Ticket) -> u64 {
    next(ticket)
}

/// Added when the writer with `ticket` leaves.
pub(crate) const fn writer_leaves(ticket: Ticket) -> u64 {
    (next(ticket) << WRITE).wrapping_add(next(ticket))
}

/// Whether a leaving reader whose addition returned `before` has set the guard bit.
pub(crate) const fn set_guard(before: u64) -> bool {
    before >> WRITE & MASK == MASK
}

/// The ticket that enters next, if it has been issued.
pub(crate) const fn next_in_line(word: u64) -> Option<Ticket> {
    let next = word & MASK;
    if ticket(word) == next { None } else { Some(next) }
}

/// Whether no rank holds the lock or waits for it.
pub(crate) const fn at_rest(word: u64) -> bool {
    let t = ticket(word);
    may_write(word, t) && may_read(word, t)
}

/// The word after a reader has taken a ticket and entered in one step, if the ticket may enter immediately.
pub(crate) const fn reader_at_once(word: u64) -> Option<u64> {
    let t = ticket(word);
    if may_read(word, t) { Some(word.wrapping_add(TAKE).wrapping_add(reader_enters(t))) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};

    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Want {
        Read,
        Write,
    }

    /// Checks the word against a model of holders and waiters over millions of entries, in which the fields wrap many
    /// times.
    #[test]
    fn lock_word_is_fifo_and_exclusive_across_wraps() {
        let mut word = 0u64;
        let mut waiting: std::collections::VecDeque<(Want, Ticket)> = Default::default();
        let (mut readers, mut writer) = (0u32, None);
        let mut x = 99u64;
        let mut entered = 0u64;
        while entered < 3_500_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            if waiting.len() < 5 && x >> 62 != 0 {
                let want = if x >> 61 & 1 == 0 { Want::Read } else { Want::Write };
                waiting.push_back((want, ticket(word)));
                word = word.wrapping_add(TAKE);
            } else if let Some(t) = writer.take() {
                word = word.wrapping_add(writer_leaves(t));
            } else if readers > 0 {
                readers -= 1;
                let before = word;
                word = word.wrapping_add(READER_LEAVES);
                if set_guard(before) {
                    word = word.wrapping_add(CLEAR_GUARD);
                }
            }
            // Only the head of the queue may enter, exactly when it conflicts with no holder.
            for (i, (want, t)) in waiting.iter().enumerate() {
                let may = if *want == Want::Read { may_read(word, *t) } else { may_write(word, *t) };
                let free = if *want == Want::Read { writer.is_none() } else { writer.is_none() && readers == 0 };
                assert_eq!(may, i == 0 && free, "entry {entered}, waiter {i}");
            }
            if let Some((want, t)) = waiting.front().copied()
                && (if want == Want::Read { may_read(word, t) } else { may_write(word, t) })
            {
                waiting.pop_front();
                entered += 1;
                match want {
                    Want::Read => {
                        word = word.wrapping_add(reader_enters(t));
                        readers += 1;
                    }
                    Want::Write => writer = Some(t),
                }
            }
        }
    }

    #[test]
    fn lock_word_between_threads_never_lets_a_writer_share() {
        // Starts near the maximum, so that fields wrap under contention.
        let start = MASK - 100;
        let word = AtomicU64::new(start << USERS | start << WRITE | start);
        let inside = AtomicI64::new(0);
        std::thread::scope(|s| {
            for id in 0..4 {
                let (word, inside) = (&word, &inside);
                s.spawn(move || {
                    for i in 0..3000 {
                        let t = ticket(word.fetch_add(TAKE, SeqCst));
                        if (i + id) % 3 == 0 {
                            while !may_write(word.load(SeqCst), t) {
                                std::thread::yield_now();
                            }
                            assert_eq!(inside.swap(-1, SeqCst), 0);
                            inside.store(0, SeqCst);
                            word.fetch_add(writer_leaves(t), SeqCst);
                        } else {
                            while !may_read(word.load(SeqCst), t) {
                                std::thread::yield_now();
                            }
                            word.fetch_add(reader_enters(t), SeqCst);
                            assert!(inside.fetch_add(1, SeqCst) >= 0);
                            inside.fetch_sub(1, SeqCst);
                            if set_guard(word.fetch_add(READER_LEAVES, SeqCst)) {
                                word.fetch_add(CLEAR_GUARD, SeqCst);
                            }
                        }
                    }
                });
            }
        });
        let w = word.load(SeqCst);
        assert!(may_write(w, ticket(w)) && reader_at_once(w).is_some());
    }
}
