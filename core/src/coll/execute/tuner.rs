//! The choices of a team for classes of calls: which call tries which algorithm, and what its ranks have agreed upon.
//!
//! A class begins with the choice of the selection. From its third blocking call on it is tried by measurement, if the
//! job confirms choices ([`Tuning::confirms`]) and the user has not chosen; but not where ranks share processors, since a
//! few calls there measure the kernel's scheduler. All ranks make the same calls of a team in
//! the same order, so they try the same choice in the same call. They agree in an allreduce of up to ten numbers at the
//! end of each of up to three rounds. A call that fails counts as a slow one, also at ranks at which it has not failed. A
//! call that is refused for its arguments does not count. If ranks have made different calls, later ones may be a
//! `Mismatch`.

use std::cell::{Cell, OnceCell, RefCell};
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::arguments::{Arguments, Shape};
use crate::coll::schedule::predict::PLogP;
use crate::coll::selection::trial::Trial;
use crate::coll::selection::{Choice, Class, Origin, Placement, Rule, Rules, Selection, candidates};
use crate::coll::team::members::Members;
use crate::job::Job;
use crate::load::{Load, Measuring};

/// Blocking calls of a class before its trial.
const CALLS_BEFORE: u32 = 2;

/// Rules and models of a job for the selection.
#[derive(Debug, Default)]
pub(crate) struct Tuning {
    selection: OnceCell<Selection>,
    user: Rules,
    /// Choices that teams of this rank have measured.
    measured: RefCell<Rules>,
    /// Those that were measured on processors that were not loaded, and the heaviest load.
    worth_keeping: RefCell<(Rules, Load)>,
    confirms: Cell<bool>,
    /// Whether the measured rules are added to the user's file at the end.
    pub(crate) keeps: Cell<bool>,
}

impl Tuning {
    /// The selection by rules of the user and the table.
    pub(crate) fn new(user: Rules) -> Self {
        Self { user, ..Self::default() }
    }

    /// Adds what all ranks know of the network. Blocking calls confirm choices from now on.
    pub(crate) fn begin(&self, measured: Rules, model: Option<PLogP>) {
        let selection = Selection { user: self.user.clone(), measured, model };
        self.confirms.set(self.selection.set(selection).is_ok());
    }

    pub(crate) fn selection(&self) -> &Selection {
        self.selection.get_or_init(|| Selection { user: self.user.clone(), ..Selection::default() })
    }

    /// The choices that teams of this rank have measured.
    pub(crate) fn measured(&self) -> Rules {
        self.measured.borrow().clone()
    }

    /// Those that were measured on processors that were not loaded, and the heaviest load of their measurements.
    pub(crate) fn worth_keeping(&self) -> (Rules, Load) {
        self.worth_keeping.borrow().clone()
    }

    fn add(&self, rule: Rule, load: Load) {
        if load.is_heavy() {
            tracing::info!("measured: {rule}; not kept: this rank waited for a processor for {load} of the time");
        } else {
            tracing::info!("measured: {rule}");
            let (kept, heaviest) = &mut *self.worth_keeping.borrow_mut();
            kept.set(rule.clone());
            *heaviest = load.max(*heaviest);
        }
        self.measured.borrow_mut().set(rule);
    }
}

/// The state of a class.
#[derive(Debug)]
enum State {
    /// Blocking calls so far, and their choice.
    New(u32, Choice),
    /// A trial, and the choice of calls that do not block.
    Trial(Trial, Choice, Measuring),
    Settled(Choice),
}

/// A choice for a call.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) choice: Choice,
    /// Whether the class has this choice for good.
    pub(super) is_settled: bool,
    /// The class whose trial the call belongs to.
    pub(super) trial: Option<Class>,
}

/// The classes of a team.
#[derive(Debug, Default)]
pub(crate) struct Tuner {
    classes: RefCell<FxHashMap<Class, State>>,
}

impl Tuner {
    /// Decides which algorithm makes a call for which none is given. `None` for a call that is never tried: of blocks that
    /// differ, of a reduction that does not commute, or of a job that does not confirm choices.
    pub(super) fn decide(
        &self,
        job: &Job,
        members: &Members,
        arguments: &Arguments<'_>,
        blocks: bool,
    ) -> Option<Decision> {
        let tuning = &job.calls().tuning;
        let (Shape::Vector(elements) | Shape::Equal(elements)) = arguments.shape else { return None };
        if !tuning.confirms.get() || members.size() == 1 || arguments.root >= members.size() {
            return None;
        }
        let (call, facts) = arguments.call(job, members, &[], elements);
        if !facts.commutative {
            return None;
        }
        let class = Class::of(&call, &facts);
        let mut classes = self.classes.borrow_mut();
        let state = classes.entry(class).or_insert_with(|| match tuning.selection().select(&call, &facts) {
            (choice, Origin::User | Origin::Measurement) => State::Settled(choice),
            (choice, _) if facts.placement == Placement::OversubscribedNode => State::Settled(choice),
            (choice, Origin::Model | Origin::Table) => State::New(0, choice),
        });
        if blocks {
            match state {
                State::New(calls, _) if *calls < CALLS_BEFORE => *calls += 1,
                State::New(_, choice) => {
                    let choices = candidates(&call, &facts, tuning.selection().model.as_ref());
                    *state = match choices.len() {
                        1 => State::Settled(choice.clone()),
                        _ => State::Trial(Trial::new(choices), choice.clone(), Measuring::begin(job.device().now())),
                    };
                }
                State::Trial(..) | State::Settled(_) => {}
            }
        }
        let (choice, trial) = match state {
            State::Trial(trial, ..) if blocks => (trial.choice(), Some(class)),
            State::New(_, choice) | State::Trial(_, choice, _) | State::Settled(choice) => (&*choice, None),
        };
        // Another call of the class may have another root or be in place.
        let choice = choice.applies(&call, &facts).then(|| choice.clone());
        let is_settled = matches!(state, State::Settled(_));
        let choice = choice.unwrap_or_else(|| tuning.selection().select(&call, &facts).0);
        Some(Decision { choice, is_settled, trial })
    }

    /// Notes the time of a call of a trial. Returns this rank's times at the end of a round, on which the ranks agree
    /// next.
    pub(super) fn add(&self, class: &Class, time: Duration) -> Option<Vec<u64>> {
        match self.classes.borrow_mut().get_mut(class) {
            Some(State::Trial(trial, ..)) => trial.add(time),
            _ => None,
        }
    }

    /// Ends a round with the longest times of any rank.
    pub(super) fn agree(&self, job: &Job, class: &Class, longest: &[u64]) {
        let mut classes = self.classes.borrow_mut();
        let Some(state) = classes.get_mut(class) else { return };
        if let State::Trial(trial, _, measuring) = state
            && let Some(choice) = trial.agree(longest)
        {
            let load = measuring.load(job.device().now());
            job.calls().tuning.add(Rule::of_class(class, choice.clone()), load);
            *state = State::Settled(choice);
        }
    }
}
