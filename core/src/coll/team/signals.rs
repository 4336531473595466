#![allow(unsafe_code)]
//! Construction of the signal array of a team.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Team;
use crate::bill::Account;
use crate::coll;
use crate::device::{Region, RemoteRegion};
use crate::error::{Error, ErrorKind, Result};
use crate::signal::{LINE, RemoteCells, SHARES_CORE, SignalArray, short};

impl SignalArray {
    /// Makes a signal array, collectively over `team`. Each rank has three cache lines for each peer, `words` published
    /// words (one line each), and one more line. Memory: `64 * (3 * P + words + 1)` bytes per rank. Messages: two
    /// allgathers.
    ///
    /// # Errors
    /// `SharedMemoryFull`, `PeerLost`.
    pub fn new(team: &Team, words: usize) -> Result<Self> {
        Self::for_account(team, words, Account::team(team.context()))
    }

    /// Like [`new`](Self::new), but charges the waits to `account`.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub fn for_account(team: &Team, words: usize, account: Account) -> Result<Self> {
        Self::make(team, words, 0, account)
    }

    /// Like [`new`](Self::new), without words; in a team of up to 16 ranks with the lines for [short data](short),
    /// which take 17,408 bytes per rank, or 16,640 if ranks share processors.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub(super) fn for_short(team: &Team) -> Result<Self> {
        let shared = team.job().is_on_oversubscribed_node();
        let lines = if team.size() <= short::MAX_RANKS { short::lines(shared) } else { 0 };
        Self::make(team, 0, lines, Account::team(team.context()))
    }

    fn make(team: &Team, words: usize, short_lines: usize, account: Account) -> Result<Self> {
        let job = team.job().clone();
        let lines = words.checked_add(3 * team.size() + short_lines + 1);
        let bytes = lines.and_then(|lines| lines.checked_mul(LINE)).filter(|bytes| isize::try_from(*bytes).is_ok());
        let own = bytes.ok_or_else(|| {
            let e = Error::new(ErrorKind::BadArgument, "make a signal array").rank(job.rank());
            e.cause(format!("a signal array of {words} cache lines exceeds the address space"))
        });
        let wanted = bytes.unwrap_or_default();
        let one_node = team.is_on_one_node();
        let own = own.and_then(|len| job.device().allocate(Region { one_node, ..Region::allocated(len) }));
        if let Ok(own) = &own {
            let word = wanted - LINE + 8 * SHARES_CORE;
            // SAFETY: the word is inside the allocation, aligned, and accessed as an atomic by all ranks.
            // Relaxed: peers read the word after the exchange, whose messages order the store before the load.
            unsafe { AtomicU64::from_ptr(own.base.add(word).cast()) }
                .store(u64::from(job.spins() == 0), Ordering::Relaxed);
        }
        let whole =
            |r: &RemoteRegion| r.mapped.filter(|m| (m.lo, m.hi) == (0, r.len)).and_then(|m| NonNull::new(m.base));
        let cells = move |_, r: RemoteRegion| RemoteCells {
            peer: r.peer,
            handle: r.handle,
            mapped: whole(&r),
            near: whole(&r),
        };
        // SAFETY: an allocation of this job to which there is no other reference.
        let (own, remotes) = unsafe { coll::exchange_into(team, own, None, Some(wanted), cells) }?;
        let (size, me) = (team.size(), team.rank());
        let stats = job.stats_of(Some(account));
        let (arrivals, shorts) = (
            Cell::default(),
            short::Exchanges::new(if short_lines > 0 { size } else { 0 }, job.is_on_oversubscribed_node()),
        );
        let mut signals = Self {
            account,
            stats,
            size,
            me,
            words,
            short_lines,
            own,
            remotes,
            job,
            mapped: false,
            oversubscribed: false,
            arrivals,
            shorts,
        };
        // The result is the same on every rank, since all ranks check the same words.
        signals.mapped = !signals.remotes.is_made_later() && (0..size).all(|rank| signals.last_line(rank).is_some());
        if !signals.mapped {
            // If some ranks cannot map the words, all access them through the device, which makes their atomics
            // coherent.
            signals.remotes.all_mut().iter_mut().for_each(|remote| remote.mapped = None);
        }
        // A counter does not show which rank has not arrived.
        signals.oversubscribed = size > 2
            && signals.mapped
            && signals.job.bill().is_none()
            && (0..size)
                .filter_map(|rank| signals.last_line(rank))
                // Relaxed: stored by the word's owner before the exchange of the keys, whose messages order the store
                // before this load.
                .any(|l| l[SHARES_CORE].load(Ordering::Relaxed) != 0);
        Ok(signals)
    }
}
