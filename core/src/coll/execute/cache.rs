//! Runs kept for repeated calls, so that a call looks up its run and allocates nothing.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use super::arguments::{Arguments, Shape};
use super::run::Run;
use crate::coll::operation::{Algorithm, Neighbors, Operation};

/// The most runs that are kept for a team.
const MAX_RUNS: usize = 32;
/// The most steps in a schedule that is kept.
const MAX_STEPS: usize = 256;
/// The most bytes of scratch, and the most blocks, of a run that is kept.
const SCRATCH: usize = 64 << 10;
const BLOCKS: usize = 1024;

/// Identifies calls that run the same schedule on blocks of the same sizes, if their neighbours are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    operation: Operation,
    root: usize,
    elements: u64,
    element: usize,
    in_place: bool,
    algorithm: Option<*const Algorithm>,
    /// By its address: equal names at two addresses have two runs.
    purpose: *const str,
    parameters: [u32; 2],
    /// Code and commutativity of the reduction, and the alignment of its pointers.
    reduction: (u32, bool, usize),
}

impl Key {
    /// The key of a call that can be kept: equal blocks, and few parameters. Else `None`.
    #[inline]
    pub(super) fn of(arguments: &Arguments<'_>) -> Option<Self> {
        let (Shape::Vector(elements) | Shape::Equal(elements)) = arguments.shape else { return None };
        let given = arguments.algorithm.map_or(&[][..], |(_, parameters)| parameters);
        let mut parameters = [u32::MAX; 2];
        parameters.get_mut(..given.len())?.copy_from_slice(given);
        Some(Self {
            operation: arguments.operation,
            root: arguments.root,
            elements,
            element: arguments.element,
            in_place: arguments.in_place,
            algorithm: arguments.algorithm.map(|(a, _)| std::ptr::from_ref(a)),
            purpose: arguments.purpose,
            parameters,
            reduction: arguments.reduction.map_or((0, false, 1), |r| (r.code, r.commutative, r.align)),
        })
    }
}

/// Whether a run may be kept: it has few steps, little scratch and few blocks.
pub(super) fn is_light(run: &Run) -> bool {
    run.steps() <= MAX_STEPS && run.scratch() <= SCRATCH && run.blocks() <= BLOCKS
}

/// Idle runs, each at the index of its key; a run that is in use is missing at its index.
#[derive(Default)]
pub(crate) struct Cache {
    runs: RefCell<Vec<(Key, Option<Rc<Run>>)>>,
    next: Cell<usize>,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("runs", &self.runs.borrow().len()).finish_non_exhaustive()
    }
}

impl Cache {
    /// Takes the idle run of a key and these neighbours that has the choice of the next call, with its index.
    #[inline]
    pub(super) fn take(&self, key: &Key, neighbors: &Neighbors<'_>, blocks: bool) -> Option<(usize, Rc<Run>)> {
        let mut runs = self.runs.borrow_mut();
        let is_of = |run: &Rc<Run>| run.is_current(blocks) && run.neighbors() == *neighbors;
        let at = runs.iter().position(|(known, run)| known == key && run.as_ref().is_some_and(is_of))?;
        Some((at, runs[at].1.take()?))
    }

    /// Returns a run to the index at which it was taken, if that still has its key and is empty; else stores it like
    /// [`give`](Self::give).
    #[inline]
    pub(super) fn give_back(&self, place: usize, key: Key, run: &Rc<Run>) {
        if run.is_reusable() {
            let mut runs = self.runs.borrow_mut();
            match runs.get_mut(place) {
                Some((known, empty @ None)) if *known == key => *empty = Some(Rc::clone(run)),
                _ => {
                    drop(runs);
                    self.give(key, run);
                }
            }
        }
    }

    /// Forgets idle runs of choices that are not made any more.
    pub(super) fn forget_old(&self) {
        let is_used = |run: &Rc<Run>| run.is_current(true) || run.is_current(false);
        let mut runs = self.runs.borrow_mut();
        let old = runs.extract_if(.., |(_, run)| !run.as_ref().is_none_or(is_used)).collect::<Vec<_>>();
        drop(runs);
        drop(old);
    }

    /// Stores a run under a key: at the key's empty index, at a new one, or in place of another idle run.
    pub(super) fn give(&self, key: Key, run: &Rc<Run>) {
        if !run.is_reusable() || !is_light(run) {
            return;
        }
        let mut runs = self.runs.borrow_mut();
        if let Some((_, empty)) = runs.iter_mut().find(|(known, run)| *known == key && run.is_none()) {
            *empty = Some(Rc::clone(run));
            return;
        }
        if runs.len() < MAX_RUNS {
            runs.push((key, Some(Rc::clone(run))));
            return;
        }
        // A run holds the job and not the team, so dropping one does not call back into this cache.
        let next = self.next.replace(self.next.get() + 1) % MAX_RUNS;
        if runs[next].1.is_some() {
            runs[next] = (key, Some(Rc::clone(run)));
        }
    }
}
