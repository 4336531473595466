//! Ranks as threads of one process, which share a table behind a lock. Used by tests, by simulations, and by a program
//! that was started by hand as the only rank.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Bootstrap, check_key, check_value, no_such_key, report_abort};
use crate::error::{Error, ErrorKind, Result};

/// Time limit of a fence unless [`threads_with_timeout`] sets another.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The reason why no further fence can succeed.
#[derive(Clone, Debug)]
enum End {
    /// The rank finalized; an error only if another rank enters another fence.
    Finalized(u32),
    /// The rank was dropped without `finalize`.
    Lost(u32),
    /// The rank timed out in a fence, so the others would wait forever.
    TimedOut(u32),
    /// The rank requested the end of the job.
    Aborted(u32, i32, String),
}

impl End {
    fn error(&self, operation: &'static str) -> Error {
        match self {
            Self::Finalized(rank) => Error::new(ErrorKind::PeerLost, operation)
                .peer(*rank)
                .cause("the peer has finalized and enters no further fence"),
            Self::Lost(rank) => {
                Error::new(ErrorKind::PeerLost, operation).peer(*rank).cause("the peer ended without finalizing")
            }
            Self::TimedOut(rank) => Error::new(ErrorKind::Timeout, operation)
                .cause(format!("rank {rank} timed out waiting for the other ranks in the fence")),
            Self::Aborted(rank, code, reason) => {
                Error::new(ErrorKind::Aborted, operation).peer(*rank).cause(format!("code {code}: {reason}"))
            }
        }
    }
}

#[derive(Default)]
struct Table {
    pending: HashMap<String, Vec<u8>>,
    visible: HashMap<String, Vec<u8>>,
    arrived: u32,
    generation: u64,
    end: Option<End>,
}

struct Shared {
    table: Mutex<Table>,
    changed: Condvar,
    size: u32,
    kind: &'static str,
    job_id: String,
    timeout: Duration,
}

impl Shared {
    /// Locks the table. A poisoned lock is accepted, since a rank that panicked left only complete entries.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records `end`. Any other reason replaces `Finalized`; otherwise the first reason stays.
    fn end(&self, end: End) {
        let mut table = self.lock();
        if matches!(table.end, None | Some(End::Finalized(_))) {
            table.end = Some(end);
        }
        drop(table);
        self.changed.notify_all();
    }
}

/// One rank of a job of threads.
pub(crate) struct ThreadBootstrap {
    rank: u32,
    finalized: bool,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for ThreadBootstrap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ThreadBootstrap({} of {})", self.rank, self.shared.size)
    }
}

/// The `n` ranks of a job, in order, for one thread each. A fence waits at most 60 s.
pub(crate) fn threads(n: usize) -> Vec<ThreadBootstrap> {
    threads_with_timeout(n, TIMEOUT)
}

/// The `n` ranks of a job, in order. A fence waits at most `timeout`.
pub(crate) fn threads_with_timeout(n: usize, timeout: Duration) -> Vec<ThreadBootstrap> {
    let n = u32::try_from(n).unwrap_or(u32::MAX);
    let shared = shared(n, "threads", timeout);
    (0..n).map(|rank| ThreadBootstrap { rank, finalized: false, shared: Arc::clone(&shared) }).collect()
}

/// The only rank of a job of size 1.
pub(crate) fn singleton() -> ThreadBootstrap {
    ThreadBootstrap { rank: 0, finalized: false, shared: shared(1, "singleton", TIMEOUT) }
}

fn shared(size: u32, kind: &'static str, timeout: Duration) -> Arc<Shared> {
    Arc::new_cyclic(|me: &std::sync::Weak<Shared>| Shared {
        table: Mutex::default(),
        changed: Condvar::new(),
        size,
        kind,
        // The address distinguishes the live jobs of this process.
        job_id: format!("{kind}-{}-{:x}", std::process::id(), me.as_ptr().addr()),
        timeout,
    })
}

impl Bootstrap for ThreadBootstrap {
    fn kind(&self) -> &'static str {
        self.shared.kind
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.shared.size
    }

    fn job_id(&self) -> &str {
        &self.shared.job_id
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<()> {
        check_key("bootstrap put", key)?;
        check_value("bootstrap put", key, value)?;
        self.shared.lock().pending.insert(key.to_owned(), value.to_vec());
        Ok(())
    }

    fn fence(&mut self) -> Result<()> {
        let operation = "pass a fence of the bootstrap";
        // If the deadline exceeds the clock's range, the fence waits without a limit.
        let deadline = Instant::now().checked_add(self.shared.timeout);
        let mut table = self.shared.lock();
        if let Some(end) = &table.end {
            return Err(end.error(operation).rank(self.rank));
        }
        table.arrived += 1;
        if table.arrived == self.shared.size {
            let values = std::mem::take(&mut table.pending);
            table.visible.extend(values);
            table.arrived = 0;
            table.generation += 1;
            drop(table);
            self.shared.changed.notify_all();
            return Ok(());
        }
        let generation = table.generation;
        loop {
            // A completed fence succeeds, even if the job ended after it.
            if table.generation != generation {
                return Ok(());
            }
            if let Some(end) = &table.end {
                return Err(end.error(operation).rank(self.rank));
            }
            let left = deadline.map_or(TIMEOUT, |d| d.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                let missing = self.shared.size - table.arrived;
                drop(table);
                self.shared.end(End::TimedOut(self.rank));
                return Err(Error::new(ErrorKind::Timeout, operation)
                    .rank(self.rank)
                    .cause(format!("{missing} of {} ranks did not reach the fence", self.shared.size)));
            }
            table = self.shared.changed.wait_timeout(table, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn get(&mut self, key: &str) -> Result<Vec<u8>> {
        check_key("bootstrap get", key)?;
        self.shared.lock().visible.get(key).cloned().ok_or_else(|| no_such_key("bootstrap get", key))
    }

    fn finalize(&mut self) -> Result<()> {
        self.finalized = true;
        self.shared.end(End::Finalized(self.rank));
        Ok(())
    }

    fn abort(&mut self, code: i32, reason: &str) {
        report_abort(self.rank, reason);
        self.shared.end(End::Aborted(self.rank, code, reason.to_owned()));
    }
}

impl Drop for ThreadBootstrap {
    fn drop(&mut self) {
        if !self.finalized {
            self.shared.end(End::Lost(self.rank));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::{KEY_MAX, VALUE_MAX};

    fn run<R: Send>(ranks: Vec<ThreadBootstrap>, f: impl Fn(ThreadBootstrap) -> R + Sync) -> Vec<R> {
        std::thread::scope(|s| {
            let f = &f;
            let all: Vec<_> = ranks.into_iter().map(|b| s.spawn(move || f(b))).collect();
            all.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    #[test]
    fn put_fence_get_exchanges_between_all() {
        run(threads(5), |mut b| {
            for round in 0..20u8 {
                let rank = b.rank() as u8;
                b.put(&format!("k.{rank}"), &[rank, round]).unwrap();
                b.fence().unwrap();
                for peer in 0..5u8 {
                    assert_eq!(b.get(&format!("k.{peer}")).unwrap(), [peer, round]);
                }
                b.fence().unwrap();
            }
            b.finalize().unwrap();
        });
    }

    #[test]
    fn put_is_visible_after_the_fence_only() {
        let mut s = singleton();
        assert_eq!((s.rank(), s.size()), (0, 1));
        s.put("a", b"1").unwrap();
        assert_eq!(s.get("a").unwrap_err().kind(), ErrorKind::Protocol);
        s.fence().unwrap();
        assert_eq!(s.get("a").unwrap(), b"1");
        s.finalize().unwrap();
    }

    #[test]
    fn put_refuses_bad_keys_and_long_values() {
        let mut s = singleton();
        let long = "k".repeat(KEY_MAX + 1);
        for key in ["", "a b", "a=b", "a~1", "ä", long.as_str()] {
            assert_eq!(s.put(key, b"").unwrap_err().kind(), ErrorKind::BadArgument, "{key:?}");
            assert_eq!(s.get(key).unwrap_err().kind(), ErrorKind::BadArgument, "{key:?}");
        }
        s.put(&"k".repeat(KEY_MAX), &vec![0; VALUE_MAX]).unwrap();
        assert_eq!(s.put("k", &vec![0; VALUE_MAX + 1]).unwrap_err().kind(), ErrorKind::BadArgument);
    }
    #[test]
    fn jobs_have_names_of_their_own() {
        let (a, b) = (threads(1), threads(1));
        assert_ne!(a[0].job_id(), b[0].job_id());
    }

    #[test]
    fn fence_names_the_rank_that_was_dropped() {
        let errors = run(threads(3), |mut b| {
            if b.rank() == 1 {
                return None;
            }
            Some(b.fence().unwrap_err())
        });
        for e in errors.into_iter().flatten() {
            assert_eq!((e.kind(), e.blamed()), (ErrorKind::PeerLost, Some(1)));
        }
    }

    #[test]
    fn fence_names_the_rank_that_aborted_and_its_reason() {
        let mut ranks = threads(2);
        ranks[1].abort(7, "no disk");
        drop(ranks.pop());
        let e = ranks[0].fence().unwrap_err();
        assert_eq!((e.kind(), e.blamed()), (ErrorKind::Aborted, Some(1)));
        assert!(e.to_string().contains("no disk"), "{e}");
    }

    #[test]
    fn fence_after_a_peer_finalized_fails() {
        let mut ranks = threads(2);
        ranks[1].finalize().unwrap();
        assert_eq!(ranks[0].fence().unwrap_err().blamed(), Some(1));
    }

    #[test]
    fn fence_that_no_other_rank_joins_times_out_for_good() {
        let mut ranks = threads_with_timeout(2, Duration::ZERO);
        assert_eq!(ranks[0].fence().unwrap_err().kind(), ErrorKind::Timeout);
        assert_eq!(ranks[1].fence().unwrap_err().kind(), ErrorKind::Timeout);
    }
}
