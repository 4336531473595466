//! The choices of a team for classes of calls: which algorithm each class uses, as agreed by the team's ranks.
//!
//! A class starts with the choice of the selection. After some blocking calls it is [tried](super::trial) by
//! measurement, if the job confirms choices ([`Tuning::confirms`]) and the user has not chosen; but not if ranks share
//! processors, since a few calls would then measure the kernel's scheduler. A choice other than the default, from an
//! earlier job or this one, is checked by a trial against the default, at first soon and then at growing intervals; a
//! choice that is slower is dropped. If a rank has waited for a processor during a trial, the trial changes nothing and
//! is repeated later.
//!
//! All ranks make the same calls of a team in the same order, so they try the same choice in the same call. They agree
//! in an allreduce of the times and loads at the end of each round of a trial. A failed call counts as a slow one, also
//! at ranks at which it has not failed. A call that is refused for its arguments does not count. If ranks have made
//! different calls, later ones may be a `Mismatch`.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::arguments::{Arguments, Shape};
use super::trial::{Timed, Trial};
use crate::bootstrap::SIMULATION;
use crate::coll::schedule::predict::PLogP;
use crate::coll::selection::{Choice, Class, Origin, Placement, Rule, Rules, Selection, candidates, row};
use crate::coll::team::members::Members;
use crate::job::Job;
use crate::load::{Load, Measuring};

/// Number of blocking calls of a class before its first trial: short data is in use by then.
const CALLS_BEFORE: u64 = 6;
/// Number of blocking calls after a trial before the next one, and the factor by which this interval grows each time.
const INTERVAL: u64 = 4096;
const GROWS: u64 = 16;
/// Choice numbers that no run has: that of a class whose trial is due, and that of a class that is tried no more.
const DUE: usize = usize::MAX;
const FINAL: usize = usize::MAX - 1;

/// Rules and models of a job for the selection.
#[derive(Default)]
pub(crate) struct Tuning {
    selection: OnceCell<Selection>,
    user: Rules,
    /// Choices that teams of this rank have measured, and the heaviest load.
    measured: RefCell<(Rules, Load)>,
    confirms: Cell<bool>,
    /// Whether the measured rules are added to the user's file at the end.
    pub(crate) keeps: Cell<bool>,
}

impl Tuning {
    /// The selection by the user's rules and the table.
    pub(crate) fn new(user: Rules) -> Self {
        Self { user, ..Self::default() }
    }

    /// Adds what all ranks have measured of the network. Blocking calls confirm choices from now on.
    pub(crate) fn begin(&self, measured: Rules, model: Option<PLogP>) {
        let selection = Selection { user: self.user.clone(), measured, model };
        self.confirms.set(self.selection.set(selection).is_ok());
    }

    pub(crate) fn selection(&self) -> &Selection {
        self.selection.get_or_init(|| Selection { user: self.user.clone(), ..Selection::default() })
    }

    /// The choices that teams of this rank have measured, and the heaviest load of their measurements.
    pub(crate) fn measured(&self) -> (Rules, Load) {
        self.measured.borrow().clone()
    }

    fn add(&self, rule: Rule, load: Load) {
        tracing::info!("measured: {rule}");
        let (measured, heaviest) = &mut *self.measured.borrow_mut();
        measured.set(rule);
        *heaviest = load.max(*heaviest);
    }
}

/// A class of calls of a team: its choices, and the trial in progress.
#[derive(Debug)]
pub(super) struct Watched {
    class: Class,
    /// The first is the default: the choice that calls use without measurements.
    choices: RefCell<Vec<Choice>>,
    /// Number of the choice of the next blocking call, [`DUE`] or [`FINAL`].
    current: Cell<usize>,
    /// Number of the choice that calls outside trials use; during a trial, also nonblocking calls.
    usual: Cell<usize>,
    /// Whether that choice was measured, so that the next trial checks it.
    is_measured: Cell<bool>,
    /// Number of blocking calls until the next trial; 0 if one is due or in progress.
    left: Cell<u64>,
    /// Number of blocking calls between the next trial and the one after it.
    interval: Cell<u64>,
    /// The trial in progress, and its load, which is not measured in simulated time.
    trial: RefCell<Option<(Trial, Option<Measuring>)>>,
}

impl Watched {
    /// A class whose calls use the choice `selected`.
    fn new(class: Class, default: Choice, (selected, origin): (Choice, Origin)) -> Self {
        let is_default = selected.to_string() == default.to_string();
        let is_final = match origin {
            Origin::User => true,
            _ if class.placement == Placement::OversubscribedNode => true,
            Origin::Measurement => is_default,
            Origin::Model | Origin::Table => false,
        };
        let usual = usize::from(!is_default);
        Self {
            class,
            choices: RefCell::new(if is_default { vec![default] } else { vec![default, selected] }),
            current: Cell::new(if is_final { FINAL } else { usual }),
            usual: Cell::new(usual),
            is_measured: Cell::new(origin == Origin::Measurement),
            left: Cell::new(CALLS_BEFORE),
            interval: Cell::new(INTERVAL),
            trial: RefCell::default(),
        }
    }

    fn is_final(&self) -> bool {
        self.current.get() == FINAL
    }

    /// Begins the trial that is due; includes the further choices `more` if none was measured yet.
    fn begin(&self, more: impl FnOnce() -> Vec<Choice>, job: &Job) {
        let mut choices = self.choices.borrow_mut();
        let trial = if self.is_measured.get() {
            Trial::check(self.usual.get())
        } else {
            for choice in more() {
                if choices.iter().all(|known| known.to_string() != choice.to_string()) {
                    choices.push(choice);
                }
            }
            if choices.len() == 1 {
                return self.current.set(FINAL);
            }
            Trial::new(choices.len())
        };
        self.current.set(trial.choice());
        let is_simulated = job.bootstrap.borrow().kind() == SIMULATION;
        let measuring = (!is_simulated).then(|| Measuring::begin(job.device().now()));
        *self.trial.borrow_mut() = Some((trial, measuring));
    }

    /// Counts a blocking call outside trials.
    #[inline]
    fn count(&self) {
        self.left.set(self.left.get() - 1);
        if self.left.get() == 0 {
            self.current.set(DUE);
        }
    }

    fn add(&self, job: &Job, time: Duration) -> Option<Vec<u64>> {
        let mut trial = self.trial.borrow_mut();
        let (trial, measuring) = trial.as_mut()?;
        let times = trial.add(time);
        self.current.set(trial.choice());
        let load = || measuring.map_or(Load::default(), |measuring| measuring.load(job.device().now()));
        let load = || load().thousandths().checked_add(1).unwrap_or(0);
        times.map(|times| [&times[..], &[u64::from(load())]].concat())
    }

    fn agree(&self, tuning: &Tuning, longest: &[u64]) -> bool {
        let mut trial = self.trial.borrow_mut();
        let (Some((running, _)), Some((load, times))) = (trial.as_mut(), longest.split_last()) else { return false };
        let taken = running.agree(times);
        self.current.set(running.choice());
        let Some(taken) = taken else { return false };
        *trial = None;
        let load = Load::of(u32::try_from(*load).ok().and_then(|load| load.checked_sub(1)).unwrap_or(u32::MAX));
        let rule = Rule::of_class(&self.class, self.choices.borrow()[taken].clone());
        if load.is_heavy() {
            tracing::info!("not measured: {rule}; a rank spent {load} of the time waiting for a processor");
        } else {
            self.usual.set(taken);
            self.is_measured.set(true);
            tuning.add(rule, load);
        }
        let is_final = !load.is_heavy() && taken == 0;
        self.current.set(if is_final { FINAL } else { self.usual.get() });
        self.left.set(self.interval.get());
        self.interval.set(self.interval.get().saturating_mul(GROWS));
        true
    }
}

/// The class of a call, and the number of the choice that the call uses.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    watched: Rc<Watched>,
    number: usize,
}

impl Tried {
    /// Whether the next call of the class has this choice.
    #[inline]
    pub(super) fn is_current(&self, blocks: bool) -> bool {
        let Watched { current, usual, .. } = &*self.watched;
        if blocks { current.get() == self.number } else { usual.get() == self.number && current.get() != FINAL }
    }

    /// Counts a blocking call; returns whether it belongs to a trial.
    #[inline]
    pub(super) fn is_timed(&self) -> bool {
        if self.watched.left.get() > 0 {
            self.watched.count();
            return false;
        }
        true
    }

    /// The way of calling for which the next call of the trial is timed.
    pub(super) fn timed(&self) -> Timed {
        self.watched.trial.borrow().as_ref().map_or(Timed::Not, |(trial, _)| trial.timed())
    }

    /// Records the time of a call of the trial. Returns this rank's times and load at the end of a round, on which the
    /// ranks agree next.
    pub(super) fn add(&self, job: &Job, time: Duration) -> Option<Vec<u64>> {
        self.watched.add(job, time)
    }

    /// Ends a round with the longest times and the heaviest load of any rank. Returns whether the trial has ended.
    pub(super) fn agree(&self, tuning: &Tuning, longest: &[u64]) -> bool {
        self.watched.agree(tuning, longest)
    }
}

/// A choice for a call.
pub(super) struct Decision {
    pub(super) choice: Choice,
    /// The class; `None` if it has only this choice.
    pub(super) tried: Option<Tried>,
}

/// The classes of a team.
#[derive(Default)]
pub(crate) struct Tuner {
    classes: RefCell<FxHashMap<Class, Rc<Watched>>>,
}

impl Tuner {
    /// Decides which algorithm makes a call that names none. `None` for a call that is never tried: with blocks of
    /// different lengths, with a reduction that does not commute, or in a job that does not confirm choices.
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
        let (class, selection) = (Class::of(&call, &facts), tuning.selection());
        let new = || Rc::new(Watched::new(class, row(&call, &facts).1, selection.select(&call, &facts)));
        let watched = Rc::clone(self.classes.borrow_mut().entry(class).or_insert_with(new));
        if blocks && watched.current.get() == DUE {
            watched.begin(|| candidates(&call, &facts, selection.model.as_ref()), job);
        }
        let is_final = watched.is_final();
        let number = if blocks && !is_final { watched.current.get() } else { watched.usual.get() };
        // Another call of the class may have another root or be in place.
        let choice = watched.choices.borrow().get(number).filter(|choice| choice.applies(&call, &facts)).cloned();
        let choice = choice.unwrap_or_else(|| selection.select(&call, &facts).0);
        Some(Decision { choice, tried: (!is_final).then_some(Tried { watched, number }) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coll::operation::{Call, Operation};
    use crate::coll::selection::Facts;
    use crate::sim::{Interface, Network, Simulation};

    /// A class of broadcasts, whose default is binomial, with a stored choice of an earlier job.
    fn stored() -> Watched {
        let choice = |name| Choice::parse(Operation::Broadcast, name).unwrap();
        let call = Call { elements: 8, ..Call::new(Operation::Broadcast, 0, 4) };
        let class = Class::of(&call, &Facts::new(&call, 1, true, Placement::Anywhere));
        Watched::new(class, choice("binomial"), (choice("flat"), Origin::Measurement))
    }

    /// Runs the trial of a class that is due, with a time for each choice and an encoded load; returns the rules.
    fn tried(watched: &Watched, times: [u64; 2], load: u64) -> String {
        let tuning = Tuning::default();
        *watched.trial.borrow_mut() = Some((Trial::check(1), None));
        loop {
            let own = watched.trial.borrow_mut().as_mut().and_then(|(trial, _)| {
                let time = times[trial.choice()];
                trial.add(Duration::from_nanos(time))
            });
            if own.is_some_and(|own| watched.agree(&tuning, &[&own[..], &[load]].concat())) {
                return tuning.measured().0.to_string();
            }
        }
    }

    #[test]
    fn a_stored_choice_stays_while_it_is_fast_and_is_dropped_when_it_is_slow() {
        let watched = stored();
        (0..CALLS_BEFORE).for_each(|_| watched.count());
        assert_eq!(watched.current.get(), DUE);
        assert_eq!(tried(&watched, [1000, 900], 1), "broadcast 4 8-15 4x1 flat(1)\n");
        assert_eq!((watched.current.get(), watched.left.get()), (1, INTERVAL));
        (0..INTERVAL).for_each(|_| watched.count());
        assert_eq!(watched.current.get(), DUE);
        assert_eq!(tried(&watched, [1000, 1100], 1), "broadcast 4 8-15 4x1 binomial(1)\n");
        assert!(watched.is_final() && watched.usual.get() == 0);
    }

    #[test]
    fn trials_on_loaded_processors_change_and_store_nothing() {
        let watched = stored();
        assert_eq!(tried(&watched, [1000, 1100], 1 + 400), "");
        assert_eq!((watched.current.get(), watched.usual.get(), watched.left.get()), (1, 1, INTERVAL));
        // The trial is repeated, after a longer interval each time.
        assert_eq!(tried(&watched, [1000, 1100], 1 + 400), "");
        assert_eq!(watched.left.get(), INTERVAL * GROWS);
        assert_eq!(tried(&watched, [1000, 1100], 0), "broadcast 4 8-15 4x1 binomial(1)\n");
    }

    /// Makes barriers by messages on a simulated network; returns what each rank has measured. Every rank computes for
    /// a different time before each call.
    fn barriers(seed: u64, calls: u64, rules: &str) -> Vec<String> {
        let network = Network { interface: Interface::log_p(1000.0, 100.0, 200.0), ..Network::default() };
        let run = Simulation::new(5).seed(seed).network(network).run(|job| {
            job.calls().tuning.begin(rules.parse().unwrap(), None);
            let team = job.world()?;
            for number in 0..calls {
                job.device().compute(Duration::from_nanos((seed + number) * (1 + job.rank() as u64) * 7919 % 5000));
                crate::coll::execute::barrier(&team)?;
            }
            Ok(job.measured_rules().to_string())
        });
        run.unwrap().results
    }

    #[test]
    fn all_ranks_agree_in_any_order_of_arrival() {
        for seed in 0..20 {
            let measured = barriers(seed, 300, "");
            assert!(measured.iter().all(|rules| rules == &measured[0]), "seed {seed}: {measured:?}");
            assert!(measured[0].starts_with("barrier 5 0 5x1 "), "seed {seed}: {measured:?}");
        }
    }

    #[test]
    fn a_slow_choice_of_an_earlier_job_is_dropped_by_all_ranks() {
        for seed in 0..20 {
            let measured = barriers(seed, 100, "barrier 5 0 5x1 tournament");
            assert_eq!(measured, ["barrier 5 0 5x1 dissemination(1)\n"; 5].map(str::to_owned), "seed {seed}");
        }
    }
}
