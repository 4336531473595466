//! Items of any length to ranks that apply them, encoded by serde and cut into pieces of one length.
//!
//! A piece has the number of its bytes that are in use, with a mark if more pieces of the item follow, and up to 15 bytes
//! of the item. The pieces of one rank arrive in order, so each rank has at most one item in part of each other.

use std::any::type_name;
use std::cell::RefCell;
use std::hash::Hasher;
use std::marker::PhantomData;
use std::rc::Rc;

use farside_core::job::OneThread;
use farside_core::{Error, ErrorKind, Result, Team, callback};
use rustc_hash::{FxHashMap, FxHasher};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Options;
use super::state::{AGGREGATE, Aggregator, Lengths};
use super::wire::word;

/// Bytes of a piece.
const PIECE: usize = 16;
/// Mark of a piece that others of its item follow.
const MORE: u8 = 0x80;
/// Maximum number of bytes of an encoded item.
const MAX_ITEM: usize = 1 << 20;

/// Applies an item of the given rank.
type Apply<T> = dyn Fn(usize, T) -> Result<()>;

/// Items of type `T` on their way to the ranks that apply them.
pub(crate) struct Stream<T> {
    _thread: OneThread,
    blocks: Rc<Aggregator>,
    apply: Rc<Apply<T>>,
    /// The first error of an item that has arrived.
    failed: Rc<RefCell<Option<Error>>>,
    encoded: Vec<u8>,
    item: PhantomData<fn(T)>,
}

impl<T> Drop for Stream<T> {
    fn drop(&mut self) {
        self.blocks.abandon();
    }
}

impl<T: Serialize + DeserializeOwned + 'static> Stream<T> {
    /// Begins a stream. Each item is applied at its rank, whenever that rank is inside the runtime; a panic of `apply` is
    /// an error. `use_of` distinguishes uses. Collective: one allgather and a barrier.
    ///
    /// # Errors
    /// Those of [`Conveyor::with`](super::Conveyor::with).
    pub(crate) fn new(
        team: &Team,
        options: Options,
        use_of: &str,
        apply: impl Fn(usize, T) -> Result<()> + 'static,
    ) -> Result<Self> {
        let mut code = FxHasher::default();
        code.write(use_of.as_bytes());
        code.write(type_name::<T>().as_bytes());
        let apply: Rc<Apply<T>> = Rc::new(apply);
        let failed: Rc<RefCell<Option<Error>>> = Rc::default();
        let (partial, ranks) = (RefCell::<FxHashMap<u32, Vec<u8>>>::default(), team.members().to_vec());
        let (applied, fails) = (Rc::clone(&apply), Rc::clone(&failed));
        let take = move |sender: u32, records: &[u8], lengths: Lengths| {
            for record in records.chunks_exact(lengths.record) {
                let source = if lengths.item > 0 { word(record, 4) } else { sender };
                let taken = match ranks.get(source as usize) {
                    Some(_) => take_piece(&mut partial.borrow_mut(), source, &record[lengths.item..]),
                    None => Err("an item of a rank that does not exist".to_owned()),
                };
                let done = match taken {
                    Ok(None) => continue,
                    Ok(Some(bytes)) => decoded(&bytes, source as usize, &applied),
                    Err(why) => Err(malformed(why)),
                };
                if let Err(e) = done {
                    let from = ranks.get(source as usize).copied().unwrap_or(ranks[sender as usize]);
                    fails.borrow_mut().get_or_insert(e.peer(from));
                }
            }
            Ok(())
        };
        let blocks = Aggregator::new(team, options, (PIECE, code.finish()), Some(Box::new(take)))?;
        Ok(Self { _thread: PhantomData, blocks, apply, failed, encoded: Vec::new(), item: PhantomData })
    }

    /// Sends an item to `rank`, or applies it at once if that is this rank. Waits while the blocks to `rank` are full.
    ///
    /// # Errors
    /// `NoSuchRank`; `BadArgument` for an item that cannot be encoded, or takes more than 1 MiB; `PeerLost`; `InCallback`;
    /// that of applying the item here.
    pub(crate) fn push(&mut self, rank: usize, item: T) -> Result<()> {
        self.blocks.job().running(AGGREGATE)?;
        if rank == self.blocks.grid.me() {
            return applied(&self.apply, rank, item);
        }
        self.blocks.team.job_rank(rank)?;
        let refused = |cause: String| Error::new(ErrorKind::BadArgument, AGGREGATE).cause(cause);
        self.encoded.clear();
        let encoded = postcard::to_extend(&item, std::mem::take(&mut self.encoded));
        self.encoded = encoded.map_err(|e| refused(format!("the item cannot be encoded: {e}")))?;
        if self.encoded.len() > MAX_ITEM {
            let e = refused(format!("the encoded item has {} bytes; {MAX_ITEM} are allowed", self.encoded.len()));
            return Err(e.remedy("send long items by calls of their own"));
        }
        let mut rest = &self.encoded[..];
        loop {
            let (bytes, after) = rest.split_at(rest.len().min(PIECE - 1));
            let more = if after.is_empty() { 0 } else { MORE };
            self.blocks.push_waiting(rank, |buffer| {
                let end = buffer.len() + PIECE;
                buffer.push(bytes.len() as u8 | more);
                buffer.extend_from_slice(bytes);
                buffer.resize(end, 0);
            })?;
            if after.is_empty() {
                return Ok(());
            }
            rest = after;
        }
    }

    /// Waits until all items of all ranks have been applied. Collective.
    ///
    /// # Errors
    /// `PeerLost`; the first of an item that has arrived, after all others have been applied.
    pub(crate) fn finish(self) -> Result<()> {
        self.blocks.finish()?;
        self.blocks.end();
        self.failed.borrow_mut().take().map_or(Ok(()), Err)
    }
}

/// Adds a piece to the item of its source, and returns the item if it is complete.
fn take_piece(
    partial: &mut FxHashMap<u32, Vec<u8>>,
    source: u32,
    piece: &[u8],
) -> std::result::Result<Option<Vec<u8>>, String> {
    let mark = piece.first().copied().unwrap_or_default();
    let bytes = piece.get(1..1 + usize::from(mark & !MORE)).ok_or("a piece is longer than it can be")?;
    let has_more = mark & MORE != 0;
    let item = partial.entry(source).or_default();
    if item.len() + bytes.len() > MAX_ITEM || has_more && bytes.is_empty() {
        partial.remove(&source);
        return Err("an item is longer than it can be".to_owned());
    }
    item.extend_from_slice(bytes);
    Ok(if has_more { None } else { partial.remove(&source) })
}

/// Decodes and applies an item.
fn decoded<T: DeserializeOwned>(bytes: &[u8], source: usize, apply: &Rc<Apply<T>>) -> Result<()> {
    match callback::caught(|| postcard::from_bytes(bytes)) {
        Ok(Ok(item)) => applied(apply, source, item),
        Ok(Err(e)) => Err(malformed(format!("an item cannot be decoded: {e}"))),
        Err(text) => Err(malformed(format!("decoding an item panicked: {text}"))),
    }
}

fn applied<T>(apply: &Rc<Apply<T>>, source: usize, item: T) -> Result<()> {
    callback::caught(|| apply(source, item)).unwrap_or_else(|text| {
        Err(Error::new(ErrorKind::Aborted, AGGREGATE).cause(format!("applying an item panicked: {text}")))
    })
}

#[cold]
fn malformed(cause: String) -> Error {
    Error::new(ErrorKind::Protocol, AGGREGATE).cause(cause)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn garbage_is_refused_or_read_without_a_panic(pieces: Vec<[u8; PIECE]>) {
            let mut partial = FxHashMap::default();
            for piece in pieces {
                if let Ok(Some(bytes)) = take_piece(&mut partial, 3, &piece) {
                    let _ = postcard::from_bytes::<(String, Vec<u64>)>(&bytes);
                }
                prop_assert!(partial.values().all(|item| !item.is_empty() && item.len() <= MAX_ITEM));
            }
        }
    }
}
