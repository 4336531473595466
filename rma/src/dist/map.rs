//! A map whose entries are at the ranks that the hashes of their keys give.

use std::any::type_name;
use std::cell::{Ref, RefCell};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use farside_core::callback::{self, Callback};
use farside_core::{Error, ErrorKind, Result, Team, located};
use rustc_hash::FxHashMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::updates::Updates;
use super::values::Values;
use crate::aggregate::Options;
use crate::calls::{Calls, Function};
use crate::collectives::Collectives;
use crate::op::Op;

pub(super) const MAP: &str = "access a distributed map";

/// A rank's entries.
type Part<K, V> = RefCell<HashMap<K, V>>;

/// The accesses that need no function of the program.
#[derive(Serialize, Deserialize)]
enum Access<K, V> {
    Get(Vec<K>),
    Insert(K, V),
    Remove(K),
}

/// The values of the keys of an access, before a change; `None` if the entries are borrowed.
type Answer<V> = Option<Vec<Option<V>>>;

/// Most keys in a message.
const KEYS: usize = 64;

/// A hash map that is distributed over a team: each entry is at the rank that its key's hash gives.
///
/// ```
/// use farside_rma::dist::Map;
/// use farside_rma::prelude::*;
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let mut words = Map::<String, u64>::new(&team)?;
///     // A function that runs at the owner of the key.
///     let count = words.register(|entry, by: u64| *entry.and_modify(|n| *n += by).or_insert(by))?;
///     words.update("one".to_owned(), &count, 1)?;
///     // Many at once, in blocks.
///     let mut counts = words.updates(&count)?;
///     for word in "a rose is a rose".split(' ') {
///         counts.add(word.to_owned(), 1)?;
///     }
///     counts.finish()?;
///     assert_eq!(words.get(&"rose".to_owned())?, Some(6));
///     assert_eq!((words.len()?, words.fold(0, |sum, _, n| sum + n, |a, b| a + b)?), (4, 18));
///     words.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
///
/// **Visibility.** Each access of an entry is atomic, and complete at the owner on return: every access that any rank
/// begins afterwards sees it. Those made through [`inserts`](Self::inserts) and [`updates`](Self::updates) are visible to
/// every rank after `finish`; those of one rank to one key happen in its order, each once.
///
/// **Progress.** A rank serves accesses while it is inside the runtime.
///
/// **Hashes.** The owner of a key is found by std's [`DefaultHasher`], so all ranks run the same program, and equal keys
/// have equal hashes on all of them.
pub struct Map<K, V> {
    calls: Calls,
    part: Rc<Part<K, V>>,
    access: Function<Access<K, V>, Answer<V>>,
}

/// A function that was registered with a map ([`Map::register`]).
///
/// ```
/// use farside_rma::dist::{Map, Update};
/// use farside_rma::prelude::*;
///
/// Job::threads(2, |job| {
///     let best = Map::<u32, f64>::new(&job.world()?)?;
///     let raise: Update<u32, f64, f64, bool> = best.register(|entry, to: f64| {
///         let value = entry.or_insert(f64::MIN);
///         let is_better = to > *value;
///         *value = value.max(to);
///         is_better
///     })?;
///     assert!(best.update(10 + job.rank() as u32, &raise, 0.5)?);
///     assert!(!best.update(10 + job.rank() as u32, &raise, 0.25)?);
///     best.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
pub struct Update<K, V, A, R> {
    part: Rc<Part<K, V>>,
    run: Rc<dyn Fn(K, A) -> Option<R>>,
    remote: Function<(K, A), Option<R>>,
}

impl<K, V> fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("team", self.calls.team()).finish_non_exhaustive()
    }
}

impl<K, V, A, R> fmt::Debug for Update<K, V, A, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Update").field(&self.remote).finish()
    }
}

impl<K, V> Map<K, V>
where
    K: Hash + Eq + Serialize + DeserializeOwned + 'static,
    V: Clone + Serialize + DeserializeOwned + 'static,
{
    /// Creates an empty map. Collective; two allgathers and a barrier.
    ///
    /// # Errors
    /// `Mismatch` for types that differ; `Limit` if no handler number is free; `PeerLost`.
    #[track_caller]
    pub fn new(team: &Team) -> Result<Self> {
        located(|| {
            let (calls, part) = (Calls::new(team)?, Rc::<Part<K, V>>::default());
            let own = Rc::clone(&part);
            let access = calls.register_short(move |_, access| accessed(&own, access))?;
            Ok(Self { calls, part, access })
        })
    }

    /// The team.
    #[must_use]
    pub fn team(&self) -> &Team {
        self.calls.team()
    }

    /// The rank that has the entry of `key`, if there is one.
    #[must_use]
    pub fn owner(&self, key: &K) -> usize {
        owner(key, self.team().size())
    }

    /// Sets the value of `key`, and returns the previous one.
    ///
    /// # Errors
    /// `WrongEpoch` while the owner has borrowed its entries; `Aborted` if a method of the key has panicked there;
    /// `Protocol` for bytes that are not a key or a value; `InCallback`; `PeerLost`.
    #[track_caller]
    pub fn insert(&self, key: K, value: V) -> Result<Option<V>> {
        located(|| self.access(self.owner(&key), Access::Insert(key, value)))
    }

    /// Removes the entry of `key`, and returns its value.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert).
    #[track_caller]
    pub fn remove(&self, key: K) -> Result<Option<V>> {
        located(|| self.access(self.owner(&key), Access::Remove(key)))
    }

    fn access(&self, owner: usize, access: Access<K, V>) -> Result<Option<V>> {
        self.team().job().running(MAP)?;
        let done = if owner == self.team().rank() {
            accessed(&self.part, access)
        } else {
            self.calls.call(owner, self.access, access).wait()?
        };
        done.map(|mut values| values.pop().flatten()).ok_or_else(|| self.borrowed(owner))
    }

    /// A copy of the value of `key`.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert).
    #[track_caller]
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        located(|| self.get_all(std::slice::from_ref(key)).map(|mut values| values.pop().flatten()))
    }

    /// Copies of the values of all `keys`, in their order.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert).
    #[track_caller]
    pub fn get_all(&self, keys: &[K]) -> Result<Vec<Option<V>>> {
        located(|| {
            self.team().job().running(MAP)?;
            let by_reference = self.access.given::<Access<&K, V>>();
            let mut values = vec![None; keys.len()];
            let mut blocks = FxHashMap::<usize, Vec<usize>>::default();
            let mut started = Vec::new();
            let start = |owner, block: Vec<usize>| {
                let get = Access::Get(block.iter().map(|at| &keys[*at]).collect());
                (owner, self.calls.call(owner, by_reference, get), block)
            };
            for (at, key) in keys.iter().enumerate() {
                let owner = self.owner(key);
                if owner == self.team().rank() {
                    values[at] = self.part.try_borrow().map_err(|_| self.borrowed(owner))?.get(key).cloned();
                    continue;
                }
                let block = blocks.entry(owner).or_default();
                block.push(at);
                if block.len() == KEYS {
                    started.push(start(owner, std::mem::take(block)));
                }
            }
            let rest = blocks.into_iter().filter(|(_, block)| !block.is_empty());
            started.extend(rest.map(|(owner, block)| start(owner, block)));
            for (owner, call, block) in started {
                let got: Vec<_> = call.wait()?.ok_or_else(|| self.borrowed(owner))?;
                block.into_iter().zip(got).for_each(|(at, value)| values[at] = value);
            }
            Ok(values)
        })
    }

    /// Registers a function that gets the entry of a key and an argument, and runs at the key's owner. Collective, in the
    /// same order at all ranks; one allgather. In the function, every call that communicates, waits or makes progress gets
    /// `InCallback`.
    ///
    /// # Errors
    /// `Mismatch` on every rank if the ranks register functions of different types; `Limit` after 65534 functions;
    /// `PeerLost`.
    #[track_caller]
    pub fn register<F, A, R>(&self, function: F) -> Result<Update<K, V, A, R>>
    where
        F: Fn(Entry<'_, K, V>, A) -> R + 'static,
        A: Serialize + DeserializeOwned + 'static,
        R: Serialize + DeserializeOwned + 'static,
    {
        located(|| {
            let (team, part) = (self.team().clone(), Rc::clone(&self.part));
            let run = Rc::new(move |key: K, argument: A| {
                let mut part = part.try_borrow_mut().ok()?;
                let _inside = team.job().inside(Callback::MapFunction);
                Some(function(part.entry(key), argument))
            });
            let own = Rc::clone(&run);
            let remote = self.calls.register_short(move |_, (key, argument)| own(key, argument))?;
            Ok(Update { part: Rc::clone(&self.part), run, remote })
        })
    }

    /// Runs a function with the entry of `key`, and returns its result.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert); `BadArgument` for a function of another map; `Aborted` if the function has
    /// panicked, with the panic's message.
    #[track_caller]
    pub fn update<A, R>(&self, key: K, function: &Update<K, V, A, R>, argument: A) -> Result<R>
    where
        A: Serialize,
        R: DeserializeOwned,
    {
        located(|| {
            self.team().job().running(MAP)?;
            self.check(function)?;
            let owner = self.owner(&key);
            let result = if owner == self.team().rank() {
                callback::caught(|| (function.run)(key, argument)).map_err(|text| {
                    let e = Error::new(ErrorKind::Aborted, MAP).peer(self.team().job().rank());
                    e.cause(format!("the function panicked: {text}"))
                })?
            } else {
                self.calls.call(owner, function.remote, (key, argument)).wait()?
            };
            result.ok_or_else(|| self.borrowed(owner))
        })
    }

    fn check<A, R>(&self, function: &Update<K, V, A, R>) -> Result<()> {
        if Rc::ptr_eq(&function.part, &self.part) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::BadArgument, MAP).cause("the function was registered with another map"))
    }

    /// Begins inserts that travel in blocks and are applied by the owners ([`Updates`]). Collective; one allgather and a
    /// barrier. Of values of one rank for a key, the last one stays.
    ///
    /// ```
    /// use farside_rma::dist::Map;
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let mut squares = Map::<u64, u64>::new(&job.world()?)?;
    ///     let mut inserts = squares.inserts()?;
    ///     for n in (job.rank() as u64..100).step_by(3) {
    ///         inserts.add(n, n * n)?;
    ///     }
    ///     inserts.finish()?;
    ///     assert_eq!(squares.get_all(&[9, 100])?, [Some(81), None]);
    ///     squares.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Limit` if no handler number is free; `PeerLost`.
    #[track_caller]
    pub fn inserts(&mut self) -> Result<Updates<'_, K, V>> {
        located(|| self.inserts_with(Options::default()))
    }

    /// Like [`inserts`](Self::inserts), with this memory for blocks.
    ///
    /// # Errors
    /// Those of [`inserts`](Self::inserts); `Mismatch` for options that differ; `BadArgument` for a number of hops that
    /// does not exist, or too little memory for an item in each block.
    #[track_caller]
    pub fn inserts_with(&mut self, options: Options) -> Result<Updates<'_, K, V>> {
        located(|| {
            let part = Rc::clone(&self.part);
            let insert = move |key, value| {
                part.try_borrow_mut().ok()?.insert(key, value);
                Some(())
            };
            Updates::new(self.calls.team(), options, type_name::<Self>(), insert)
        })
    }

    /// Begins calls of a function that travel in blocks and are made by the owners, without results ([`Updates`]).
    /// Collective, with the same function at all ranks; one allgather and a barrier.
    ///
    /// # Errors
    /// Those of [`inserts`](Self::inserts); `BadArgument` for a function of another map; `Mismatch` for functions whose
    /// types differ.
    #[track_caller]
    pub fn updates<A, R>(&mut self, function: &Update<K, V, A, R>) -> Result<Updates<'_, K, A>>
    where
        A: Serialize + DeserializeOwned + 'static,
        R: 'static,
    {
        located(|| self.updates_with(function, Options::default()))
    }

    /// Like [`updates`](Self::updates), with this memory for blocks.
    ///
    /// # Errors
    /// Those of [`updates`](Self::updates) and [`inserts_with`](Self::inserts_with).
    #[track_caller]
    pub fn updates_with<A, R>(&mut self, function: &Update<K, V, A, R>, options: Options) -> Result<Updates<'_, K, A>>
    where
        A: Serialize + DeserializeOwned + 'static,
        R: 'static,
    {
        located(|| {
            self.check(function)?;
            let run = Rc::clone(&function.run);
            let call = move |key, argument| run(key, argument).map(drop);
            Updates::new(self.calls.team(), options, type_name::<Update<K, V, A, R>>(), call)
        })
    }

    /// Inserts all items, in blocks: [`inserts`](Self::inserts) and `finish`. Collective.
    ///
    /// # Errors
    /// Those of [`Updates::add`] and [`inserts`](Self::inserts).
    #[track_caller]
    pub fn extend(&mut self, items: impl IntoIterator<Item = (K, V)>) -> Result<()> {
        located(|| {
            let mut inserts = self.inserts()?;
            items.into_iter().try_for_each(|(key, value)| inserts.add(key, value))?;
            inserts.finish()
        })
    }

    /// Number of entries of all ranks, at the times at which they make the call. Collective; an allreduce.
    ///
    /// # Errors
    /// `WrongEpoch` inside of a function that has borrowed this rank's entries; `PeerLost`.
    #[track_caller]
    pub fn len(&self) -> Result<usize> {
        located(|| {
            let mut len = [self.local()?.len() as u64];
            self.team().allreduce(&mut len, Op::Sum)?;
            Ok(usize::try_from(len[0]).unwrap_or(usize::MAX))
        })
    }

    /// Whether no rank has an entry. Collective, like [`len`](Self::len).
    ///
    /// # Errors
    /// Those of [`len`](Self::len).
    #[track_caller]
    pub fn is_empty(&self) -> Result<bool> {
        located(|| Ok(self.len()? == 0))
    }

    /// The entries of this rank, in no order. While they are borrowed, other ranks can get values, and any change of an
    /// entry of this rank gets `WrongEpoch`, at the rank that makes it.
    ///
    /// Several threads of a rank can go through its entries by rayon, and the team merges their results:
    ///
    /// ```
    /// use farside_rma::dist::{Map, Values};
    /// use farside_rma::prelude::*;
    /// use rayon::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     let mut words = Map::<u64, String>::new(&team)?;
    ///     words.extend((0..100).filter(|i| i % 2 == team.rank() as u64).map(|i| (i, "a".repeat(i as usize))))?;
    ///     let own = words.local()?.par_iter().filter(|(i, _)| *i % 3 == 0).map(|(_, word)| word.len()).max();
    ///     assert_eq!(team.reduce_values(own, Option::max)?, Some(99));
    ///     words.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// `WrongEpoch` inside the closure of [`retain`](Self::retain).
    #[track_caller]
    pub fn local(&self) -> Result<Ref<'_, HashMap<K, V>>> {
        located(|| self.part.try_borrow().map_err(|_| self.borrowed(self.team().rank())))
    }

    /// Calls `f` with each entry of this rank, whose value it may change; an entry for which it returns `false` is
    /// removed. Not collective.
    ///
    /// # Errors
    /// `WrongEpoch` while this rank's entries are borrowed.
    #[track_caller]
    pub fn retain(&self, f: impl FnMut(&K, &mut V) -> bool) -> Result<()> {
        located(|| {
            let mut part = self.part.try_borrow_mut().map_err(|_| self.borrowed(self.team().rank()))?;
            part.retain(f);
            Ok(())
        })
    }

    /// Removes all entries. Collective, with a barrier, after which the map is empty.
    ///
    /// # Errors
    /// `PeerLost`.
    #[track_caller]
    pub fn clear(&mut self) -> Result<()> {
        located(|| {
            // No access that was made before the call comes later.
            self.team().barrier()?;
            self.retain(|_, _| false)?;
            self.team().barrier()
        })
    }

    /// Folds the entries of each rank from `init`, and merges the results of all ranks in their order; every rank gets the
    /// same result. Collective; an allgather of the results.
    ///
    /// # Errors
    /// `WrongEpoch` inside the closure of [`retain`](Self::retain); those of
    /// [`allgather_values`](super::Values::allgather_values).
    #[track_caller]
    pub fn fold<R>(&self, init: R, f: impl FnMut(R, &K, &V) -> R, merge: impl Fn(R, R) -> R) -> Result<R>
    where
        R: Serialize + DeserializeOwned,
    {
        located(|| {
            let mut f = f;
            let own = self.local()?.iter().fold(init, |folded, (key, value)| f(folded, key, value));
            self.team().reduce_values(own, merge)
        })
    }

    /// Merges the results of `f` for all entries, in any order of those of one rank, and of the ranks in their order;
    /// `None` if there is no entry. Collective, like [`fold`](Self::fold).
    ///
    /// # Errors
    /// Those of [`fold`](Self::fold).
    #[track_caller]
    pub fn reduce<R>(&self, f: impl FnMut(&K, &V) -> R, merge: impl FnMut(R, R) -> R) -> Result<Option<R>>
    where
        R: Serialize + DeserializeOwned,
    {
        located(|| {
            let (mut f, mut merge) = (f, merge);
            let own = self.local()?.iter().map(|(key, value)| f(key, value)).reduce(&mut merge);
            Ok(self.team().allgather_values(&own)?.into_iter().flatten().reduce(merge))
        })
    }

    /// Frees the map, after all accesses have been made. Collective.
    ///
    /// # Errors
    /// `PeerLost`.
    #[track_caller]
    pub fn free(self) -> Result<()> {
        located(|| self.into_local().map(drop))
    }

    /// Frees the map, like [`free`](Self::free), and returns this rank's entries.
    ///
    /// # Errors
    /// `PeerLost`.
    #[track_caller]
    pub fn into_local(self) -> Result<HashMap<K, V>> {
        located(|| {
            self.calls.free()?;
            Ok(self.part.take())
        })
    }

    #[cold]
    fn borrowed(&self, owner: usize) -> Error {
        Error::new(ErrorKind::WrongEpoch, MAP)
            .rank(self.team().job().rank())
            .peer(self.team().members()[owner])
            .cause("its owner has borrowed its entries (`local`, `retain`)")
            .remedy("access the map before or after these, with a barrier between")
    }
}

pub(super) fn owner<K: Hash>(key: &K, ranks: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    // The upper part of the product is the hash, scaled to the number of ranks.
    ((u128::from(hasher.finish()) * ranks as u128) >> 64) as usize
}

/// Makes an access to this rank's entries; `None` if they are borrowed.
fn accessed<K: Hash + Eq, V: Clone>(part: &Part<K, V>, access: Access<K, V>) -> Answer<V> {
    Some(match access {
        Access::Get(keys) => {
            let part = part.try_borrow().ok()?;
            keys.iter().map(|key| part.get(key).cloned()).collect()
        }
        Access::Insert(key, value) => vec![part.try_borrow_mut().ok()?.insert(key, value)],
        Access::Remove(key) => vec![part.try_borrow_mut().ok()?.remove(&key)],
    })
}
