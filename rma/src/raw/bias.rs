//! Biased entry to a lock: a rank that repeatedly takes an uncontended lock stops using the lock word (Dice, Kogan:
//! BRAVO - biased locking for reader-writer locks; here also for one writer).
//!
//! Each rank has a claim word at every target, which only that rank writes, and every target has a bias word. While the
//! bias is for readers, any reader enters by setting its claim; while it is for one rank, only that rank enters in this
//! way, as reader or writer. Entering takes one atomic exchange, leaving a plain store, and claims of different ranks
//! are in different cache lines.
//!
//! - The bias is set only by a rank that holds the lock by the lock word: for readers by a reader, for one rank by a
//!   writer.
//! - A rank that holds the lock by the lock word and is not covered by the bias revokes the bias: it marks the bias, so
//!   that no rank enters by claim from then on, waits until the claims that the bias covers are zero, and clears it.
//! - An entry sets the claim and then reads the bias; a revocation sets the bias and then reads the claims. Both
//!   are sequentially consistent, so one of the two sees the other.

use std::sync::atomic::Ordering;

use farside_core::memory::words::Word;

/// The value for no bias.
pub(crate) const NONE: u64 = 0;
/// All readers may enter by claim.
pub(crate) const READERS: u64 = 1;
const REVOKED: u64 = 1 << 63;

/// The bias for rank `rank` alone.
pub(crate) const fn owner(rank: usize) -> u64 {
    rank as u64 + 2
}

/// Whether the bias `bias` lets rank `me` enter by claim.
#[inline(always)]
fn covers(bias: u64, me: usize, shared: bool) -> bool {
    bias == owner(me) || (shared && bias == READERS)
}

/// Enters by claim, if the bias covers rank `me`.
#[inline(always)]
pub(crate) fn enter<W: Word>(bias: &W, claim: &W, me: usize, shared: bool) -> ClaimEntry {
    // Relaxed: the value only hints whether an attempt is worthwhile.
    if !covers(bias.load(Ordering::Relaxed), me, shared) {
        return ClaimEntry::NotCovered;
    }
    claim.swap(1, Ordering::SeqCst);
    if covers(bias.load(Ordering::SeqCst), me, shared) {
        return ClaimEntry::Inside;
    }
    leave(claim);
    ClaimEntry::Revoked
}

/// The result of an attempt to enter by claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimEntry {
    Inside,
    NotCovered,
    /// The claim was set and cleared again, so ranks that wait for it must be woken.
    Revoked,
}

/// Leaves by claim.
#[inline(always)]
pub(crate) fn leave(claim: &impl Word) {
    // Release: pairs with the loads in `clear`, after which another rank may enter.
    claim.store(0, Ordering::Release);
}

/// Called by rank `me`, which has entered by the lock word: returns whether no rank that conflicts with its lock still
/// holds it by claim. Otherwise the bias is marked as revoked, and the caller repeats the call once claims have
/// changed. `claims` returns the claim word of a rank.
pub(crate) fn clear<'a, W: Word + 'a>(
    bias: &W,
    me: usize,
    shared: bool,
    ranks: usize,
    claims: impl Fn(usize) -> Option<&'a W>,
) -> bool {
    loop {
        let now = bias.load(Ordering::SeqCst);
        if now == NONE || covers(now, me, shared) {
            return true;
        }
        let marked = now | REVOKED;
        if now != marked && bias.compare_exchange(now, marked, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            continue;
        }
        // SeqCst: after the mark, and pairs with the Release of `leave`.
        let free = |rank| claims(rank).is_none_or(|c| c.load(Ordering::SeqCst) == 0);
        let covered = now & !REVOKED;
        let drained =
            if covered == READERS { (0..ranks).all(|r| r == me || free(r)) } else { free(covered as usize - 2) };
        if !drained {
            return false;
        }
        // Another rank waiting for the same claims may already have cleared the bias.
        let _ = bias.compare_exchange(marked, NONE, Ordering::SeqCst, Ordering::SeqCst);
    }
}

#[cfg(test)]
pub(super) mod models;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::lockword::*;
    use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::SeqCst};

    #[test]
    fn enter_is_for_whom_the_bias_covers() {
        let claim = AtomicU64::new(0);
        for (bias, me, shared, entry) in [
            (NONE, 0, true, ClaimEntry::NotCovered),
            (READERS, 0, true, ClaimEntry::Inside),
            (READERS, 0, false, ClaimEntry::NotCovered),
            (owner(3), 3, false, ClaimEntry::Inside),
            (owner(3), 3, true, ClaimEntry::Inside),
            (owner(3), 2, true, ClaimEntry::NotCovered),
            (READERS | REVOKED, 0, true, ClaimEntry::NotCovered),
        ] {
            assert_eq!(enter(&AtomicU64::new(bias), &claim, me, shared), entry, "{bias:x}");
            assert_eq!(claim.load(SeqCst) == 1, entry == ClaimEntry::Inside);
            leave(&claim);
        }
    }

    #[test]
    fn clear_waits_for_the_claims_that_the_bias_covers() {
        let claims: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
        let at = |r: usize| claims.get(r);
        let bias = AtomicU64::new(READERS);
        assert!(clear(&bias, 0, true, 3, at) && bias.load(SeqCst) == READERS, "readers do not exclude readers");
        claims[2].store(1, SeqCst);
        assert!(!clear(&bias, 0, false, 3, at) && bias.load(SeqCst) == READERS | REVOKED);
        assert!(!clear(&bias, 1, true, 3, at), "once revoked, readers wait too");
        leave(&claims[2]);
        assert!(clear(&bias, 0, false, 3, at) && bias.load(SeqCst) == NONE);
        bias.store(owner(1), SeqCst);
        claims[2].store(1, SeqCst);
        assert!(clear(&bias, 1, false, 3, at), "its own");
        assert!(clear(&bias, 0, true, 3, at), "only the owner's claim counts");
    }

    /// Readers and writers enter by word and by claim, and the bias is set as often as possible: a writer always holds
    /// the lock alone.
    #[test]
    fn bias_between_threads_never_lets_a_writer_share() {
        const RANKS: usize = 4;
        let (word, bias) = (AtomicU64::new(0), AtomicU64::new(0));
        let claims: Vec<AtomicU64> = (0..RANKS).map(|_| AtomicU64::new(0)).collect();
        let (inside, by_claim) = (AtomicI64::new(0), AtomicUsize::new(0));
        std::thread::scope(|s| {
            for me in 0..RANKS {
                let (word, bias, claims, inside, by_claim) = (&word, &bias, &claims, &inside, &by_claim);
                s.spawn(move || {
                    let mut x = me as u64;
                    for i in 0..4000 {
                        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                        // Long runs of one kind, so that entries use the bias.
                        let shared = if i / 500 % 2 == 0 { x >> 61 != 0 } else { false };
                        let check = || {
                            if shared {
                                assert!(inside.fetch_add(1, SeqCst) >= 0);
                                inside.fetch_sub(1, SeqCst);
                            } else {
                                assert_eq!(inside.swap(-1, SeqCst), 0);
                                inside.store(0, SeqCst);
                            }
                        };
                        if enter(bias, &claims[me], me, shared) == ClaimEntry::Inside {
                            by_claim.fetch_add(1, SeqCst);
                            check();
                            leave(&claims[me]);
                            continue;
                        }
                        let t = ticket(word.fetch_add(TAKE, SeqCst));
                        let may = |w| if shared { may_read(w, t) } else { may_write(w, t) };
                        while !may(word.load(SeqCst)) {
                            std::thread::yield_now();
                        }
                        if shared {
                            word.fetch_add(reader_enters(t), SeqCst);
                        }
                        while !clear(bias, me, shared, RANKS, |r| claims.get(r)) {
                            std::thread::yield_now();
                        }
                        check();
                        bias.store(if shared { READERS } else { owner(me) }, SeqCst);
                        if !shared {
                            word.fetch_add(writer_leaves(t), SeqCst);
                        } else if set_guard(word.fetch_add(READER_LEAVES, SeqCst)) {
                            word.fetch_add(CLEAR_GUARD, SeqCst);
                        }
                    }
                });
            }
        });
        assert!(by_claim.load(SeqCst) > 100, "too few entries used the bias: {by_claim:?}");
        assert!(claims.iter().all(|c| c.load(SeqCst) == 0));
    }
}
