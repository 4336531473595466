//! Collective calls on values of any type.

use farside_core::{Error, ErrorKind, Result, Team, coll, located};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::global_array::agreement::agree;

const BROADCAST: &str = "broadcast a value";
const GATHER: &str = "gather values";

/// Collective calls on values of any type that implements serde's `Serialize` and `Deserialize`, encoded by postcard: of
/// elements that are plain bytes, [collectives](crate::collectives) are faster, and need no memory for the encoded values.
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let me = team.rank();
///     let names = team.broadcast_value(1, (me == 1).then(|| vec!["north".to_owned(), "south".to_owned()]))?;
///     assert_eq!(names, ["north", "south"]);
///     // The longest string, of the first rank that has it.
///     let longest = team.reduce_values("o".repeat(me + 1), |a, b| if b.len() > a.len() { b } else { a })?;
///     assert_eq!(longest, "ooo");
///     assert_eq!(team.allgather_values(&(me, 0.5))?, [(0, 0.5), (1, 0.5), (2, 0.5)]);
///     Ok(())
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
pub trait Values {
    /// Returns at every rank the value of `root`; other ranks give `None`, or a value that is ignored. A broadcast, or two
    /// if the encoded value is long.
    ///
    /// # Errors
    /// `NoSuchRank`; `BadArgument` at the root if it gives no value, or one that cannot be encoded, and `Aborted` at the
    /// other ranks; `Protocol` if it cannot be decoded; `PeerLost`.
    fn broadcast_value<V: Serialize + DeserializeOwned>(&self, root: usize, value: Option<V>) -> Result<V>;

    /// Returns at every rank the values of all, in the order of the ranks. An allgather; every rank needs memory for all
    /// encoded values.
    ///
    /// # Errors
    /// `BadArgument` if the value cannot be encoded, and `Aborted` at the other ranks; `Protocol` if one cannot be decoded;
    /// `PeerLost`.
    fn allgather_values<V: Serialize + DeserializeOwned>(&self, value: &V) -> Result<Vec<V>>;

    /// Returns at every rank the values of all, combined in the order of the ranks. Messages, memory and errors: those of
    /// [`allgather_values`](Self::allgather_values).
    ///
    /// # Errors
    /// Those of [`allgather_values`](Self::allgather_values).
    #[track_caller]
    fn reduce_values<V: Serialize + DeserializeOwned>(&self, value: V, combine: impl Fn(V, V) -> V) -> Result<V> {
        let all = located(|| self.allgather_values(&value))?;
        Ok(all.into_iter().reduce(combine).unwrap_or(value))
    }
}

impl Values for Team {
    #[track_caller]
    fn broadcast_value<V: Serialize + DeserializeOwned>(&self, root: usize, value: Option<V>) -> Result<V> {
        located(|| {
            if self.rank() != root {
                // An empty message says that the root has no value, since an encoded value has a byte before it.
                let bytes = coll::broadcast(self, root, &[])?;
                let peer = self.job_rank(root)?;
                let (_, bytes) = bytes.split_first().ok_or_else(|| failed(self, BROADCAST, peer))?;
                return decoded(bytes, BROADCAST, peer);
            }
            let given = value.as_ref().ok_or_else(|| "the root has given no value".to_owned());
            let encoded = given.and_then(|value| encoded(value, vec![0]));
            coll::broadcast(self, root, encoded.as_deref().unwrap_or_default())?;
            match (encoded, value) {
                (Ok(_), Some(value)) => Ok(value),
                (encoded, _) => Err(unusable(self, BROADCAST, encoded.err().unwrap_or_default())),
            }
        })
    }

    #[track_caller]
    fn allgather_values<V: Serialize + DeserializeOwned>(&self, value: &V) -> Result<Vec<V>> {
        located(|| {
            let encoded = encoded(value, Vec::new());
            let all = agree(self, GATHER, encoded.is_ok(), encoded.as_deref().unwrap_or_default());
            encoded.map_err(|why| unusable(self, GATHER, why))?;
            all?.iter().zip(self.members()).map(|(bytes, rank)| decoded(bytes, GATHER, *rank)).collect()
        })
    }
}

/// An encoded value, after the bytes of `before`.
fn encoded<V: Serialize>(value: &V, before: Vec<u8>) -> std::result::Result<Vec<u8>, String> {
    postcard::to_extend(value, before).map_err(|e| format!("the value cannot be encoded: {e}"))
}

fn decoded<V: DeserializeOwned>(bytes: &[u8], operation: &'static str, from: u32) -> Result<V> {
    let unreadable = |e| Error::new(ErrorKind::Protocol, operation).peer(from).cause(format!("not such a value: {e}"));
    postcard::from_bytes(bytes).map_err(unreadable)
}

#[cold]
fn unusable(team: &Team, operation: &'static str, why: String) -> Error {
    Error::new(ErrorKind::BadArgument, operation).rank(team.job().rank()).cause(why)
}

#[cold]
fn failed(team: &Team, operation: &'static str, peer: u32) -> Error {
    let e = Error::new(ErrorKind::Aborted, operation).rank(team.job().rank()).peer(peer);
    e.cause("the root has no value").remedy("see the error of the peer rank")
}
