//! Values that the ranks of one process publish for each other. Each is stored once, however many ranks there are, and is
//! visible as soon as it is published.

use std::cell::RefCell;
use std::rc::Rc;

use rustc_hash::FxHashMap;

/// An exchange among the members of a team: the team's context, and the number of the exchange in it.
pub(crate) type Exchange = (u32, u32);

/// Values, by exchange and rank of the job.
type Values = FxHashMap<(Exchange, u32), Rc<[u8]>>;

/// The values that ranks have published. Clones are the same directory.
#[derive(Clone, Debug, Default)]
pub struct Directory(Rc<RefCell<Values>>);

/// A value of this rank, which is withdrawn when this is dropped.
#[derive(Debug)]
pub(crate) struct Published {
    directory: Directory,
    name: (Exchange, u32),
}

impl Directory {
    /// Publishes the value of `rank` in an exchange until the end of the job.
    pub(crate) fn put(&self, exchange: Exchange, rank: u32, value: &[u8]) {
        self.0.borrow_mut().insert((exchange, rank), value.into());
    }

    /// Publishes the value of `rank` in an exchange until the result is dropped.
    pub(crate) fn publish(&self, exchange: Exchange, rank: u32, value: &[u8]) -> Published {
        self.put(exchange, rank, value);
        Published { directory: self.clone(), name: (exchange, rank) }
    }

    /// The value that `rank` has published in an exchange.
    pub(crate) fn get(&self, exchange: Exchange, rank: u32) -> Option<Rc<[u8]>> {
        self.0.borrow().get(&(exchange, rank)).cloned()
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        self.directory.0.borrow_mut().remove(&self.name);
    }
}
