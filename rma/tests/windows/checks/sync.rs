//! One window under six kinds of synchronization, each with the same body of operations.

use farside_rma::{Assert, Element, Epoch, LockKind, LockWindow, Result, Team, Window};

use super::config::{Config, Memory};

/// A synchronization: the calls that open and close the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    /// One fence epoch.
    Fence,
    /// The second of a run of fence epochs: operations start when they are issued.
    Fences,
    /// Post, start, complete, wait, with all ranks in both groups.
    Pscw,
    /// Shared locks of the targets, one after the other.
    LockShared,
    /// Exclusive locks of the targets, one after the other.
    LockExclusive,
    /// Locks of all targets together; operations are completed by flush.
    LockAll,
}

/// All synchronizations.
pub(crate) const ALL: &[Sync] =
    &[Sync::Fence, Sync::Fences, Sync::Pscw, Sync::LockShared, Sync::LockExclusive, Sync::LockAll];

/// The operations of an epoch, on the given targets.
type Body<'b, 'env, T> = dyn for<'s> FnMut(&'s Epoch<'s, 'env, T>, &[usize]) -> Result<()> + 'b;

/// A window of the type that the synchronization needs.
#[derive(Debug)]
pub(crate) enum Win<T: Element> {
    Active(Window<'static, T>),
    Passive(LockWindow<T>),
}

impl<T: Element> Win<T> {
    /// Makes a window of `len` zeroed elements. A vector starts and ends inside a page.
    ///
    /// # Errors
    /// Those of the window calls.
    pub(crate) fn new(team: &Team, config: &Config, sync: Sync, len: usize) -> Result<Self> {
        let passive = matches!(sync, Sync::LockShared | Sync::LockExclusive | Sync::LockAll);
        let vector = || vec![T::zeroed(); len];
        Ok(match (passive, config.memory) {
            (false, Memory::Allocated) => Win::Active(Window::allocate(team, len)?),
            (false, Memory::Vector) => Win::Active(Window::from_vec(team, vector())?),
            (true, Memory::Allocated) => Win::Passive(LockWindow::allocate(team, len)?),
            (true, Memory::Vector) => Win::Passive(LockWindow::from_vec(team, vector())?),
        })
    }

    /// Reads or writes this rank's own memory, between two barriers.
    ///
    /// # Errors
    /// Those of the window calls.
    pub(crate) fn local<R>(&mut self, f: impl FnOnce(&mut [T]) -> R) -> Result<R> {
        let team = self.team().clone();
        team.barrier()?;
        let r = match self {
            Win::Active(w) => f(w.local_mut()?),
            Win::Passive(w) => w.with_local(|l| Ok(f(l)))?,
        };
        team.barrier()?;
        Ok(r)
    }

    pub(crate) fn team(&self) -> &Team {
        match self {
            Win::Active(w) => w.team(),
            Win::Passive(w) => w.team(),
        }
    }

    /// Runs `body` in epochs on all ranks: once with all targets, or once for each target under its lock.
    ///
    /// # Errors
    /// Those of the window; any error of `body`.
    pub(crate) fn epoch<'env>(
        &mut self,
        sync: Sync,
        mut body: impl for<'s> FnMut(&'s Epoch<'s, 'env, T>, &[usize]) -> Result<()>,
    ) -> Result<()> {
        self.epoch_of(sync, &mut body)
    }

    /// [`epoch`](Self::epoch), compiled once for each type.
    fn epoch_of<'env>(&mut self, sync: Sync, body: &mut Body<'_, 'env, T>) -> Result<()> {
        let all: Vec<usize> = (0..self.team().size()).collect();
        let me = self.team().rank();
        let none = Assert::empty();
        match (self, sync) {
            (Win::Active(w), Sync::Fence) => w.fence(none, |e| body(e, &all)),
            (Win::Active(w), Sync::Fences) => w.fences(|f| {
                f.epoch(none, |_| Ok(()))?;
                f.epoch(none, |e| body(e, &all))
            }),
            (Win::Active(w), _) => w.expose(&all, none, |x| x.start(&all, none, |e| body(e, &all))),
            (Win::Passive(w), Sync::LockAll) => w.lock_all(none, |e| {
                body(e, &all)?;
                // Completes the operations of single targets, then all.
                e.flush(me)?;
                e.flush_all()
            }),
            (Win::Passive(w), _) => {
                let kind = if sync == Sync::LockShared { LockKind::Shared } else { LockKind::Exclusive };
                // Every rank starts with a different target.
                (0..all.len()).map(|i| (me + i) % all.len()).try_for_each(|t| w.lock(kind, t, none, |e| body(e, &[t])))
            }
        }
    }

    /// Frees the window.
    ///
    /// # Errors
    /// Those of the window calls.
    pub(crate) fn free(self) -> Result<()> {
        match self {
            Win::Active(w) => w.free(),
            Win::Passive(w) => w.free(),
        }
    }
}
