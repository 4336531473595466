//! Updates of a map that travel in blocks.

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

use farside_core::{Error, ErrorKind, Result, Team, located};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::map::{self, MAP};
use crate::aggregate::{Options, Stream};

/// Inserts or calls of a function that travel in blocks, and are made by the owners of their keys, each once
/// ([`Map::inserts`](super::Map::inserts), [`Map::updates`](super::Map::updates)).
///
/// ```
/// use farside_rma::dist::{Map, Updates};
/// use farside_rma::prelude::*;
///
/// Job::threads(3, |job| {
///     let mut parts = Map::<u64, Vec<String>>::new(&job.world()?)?;
///     let append = parts.register(|entry, name: String| entry.or_default().push(name))?;
///     let mut names: Updates<'_, u64, String> = parts.updates(&append)?;
///     for n in 0..10 {
///         names.add(n % 2, format!("{n} of {}", job.rank()))?;
///     }
///     names.finish()?;
///     assert_eq!(parts.get(&1)?.map(|names| names.len()), Some(15));
///     parts.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
///
/// Memory: [`Options::bytes`] for blocks, and an item of each other rank of which pieces have arrived. Dropped without
/// [`finish`](Self::finish), updates that have not been applied are lost.
pub struct Updates<'m, K, A> {
    stream: Stream<(K, A)>,
    ranks: usize,
    map: PhantomData<&'m mut ()>,
}

impl<K, A> fmt::Debug for Updates<'_, K, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Updates").field("ranks", &self.ranks).finish_non_exhaustive()
    }
}

impl<K, A> Updates<'_, K, A>
where
    K: Hash + Serialize + DeserializeOwned + 'static,
    A: Serialize + DeserializeOwned + 'static,
{
    /// `apply` returns `None` if the entries of this rank are borrowed.
    pub(super) fn new(
        team: &Team,
        options: Options,
        use_of: &str,
        apply: impl Fn(K, A) -> Option<()> + 'static,
    ) -> Result<Self> {
        let apply = move |_, (key, argument)| {
            let borrowed = || Error::new(ErrorKind::WrongEpoch, MAP).cause("the entries of this rank are borrowed");
            apply(key, argument).ok_or_else(borrowed)
        };
        let stream = Stream::new(team, options, use_of, apply)?;
        Ok(Self { stream, ranks: team.size(), map: PhantomData })
    }

    /// Updates the entry of `key`. Waits while the blocks to its owner are full. Visible everywhere after
    /// [`finish`](Self::finish); of a key that this rank owns, applied at once.
    ///
    /// # Errors
    /// `BadArgument` for a key and argument that cannot be encoded, or take more than 1 MiB; `Aborted` if the function of a
    /// key that this rank owns has panicked; `PeerLost`; `InCallback`.
    #[track_caller]
    pub fn add(&mut self, key: K, argument: A) -> Result<()> {
        located(|| self.stream.push(map::owner(&key, self.ranks), (key, argument)))
    }

    /// Waits until all updates of all ranks have been applied, and are visible to every rank. Collective; two messages a
    /// rank for each round of the termination detection, of which there are two or more.
    ///
    /// # Errors
    /// `PeerLost`. The first error of an update that has arrived at this rank, after the others have been applied: `Aborted`
    /// if its function has panicked, `Protocol` if its bytes are not a key and an argument; it names the rank that has sent
    /// the update.
    #[track_caller]
    pub fn finish(self) -> Result<()> {
        located(|| self.stream.finish())
    }
}
