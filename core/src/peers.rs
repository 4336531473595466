//! A table of state for each rank of a team. In a large team a rank communicates with few others, so their state is
//! made at its first use.

use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::ops::Index;
use std::rc::Rc;

/// Number of ranks whose entries are allocated together.
const PAGE: usize = 64;

/// State for each rank of a team, by team rank: made for all ranks with the table, or for each rank at its first use.
/// Clones share it.
///
/// Memory: that of all entries; or one bit per rank and, for each used rank, its entry and at most 512 bytes.
pub struct PeerTable<T> {
    /// Empty if entries are made later.
    all: Rc<[T]>,
    later: Option<Rc<Later<T>>>,
}

struct Later<T> {
    ranks: usize,
    pages: Box<[OnceCell<Page<T>>]>,
    /// The ranks whose entries exist.
    made: RefCell<Vec<u32>>,
    make: Box<dyn Fn(usize) -> T>,
}

type Page<T> = Box<[OnceCell<Box<T>>; PAGE]>;

impl<T> PeerTable<T> {
    /// A table of existing entries.
    #[must_use]
    pub fn of_all(all: Vec<T>) -> Self {
        Self { all: all.into(), later: None }
    }

    /// The table of `ranks` ranks, for each of which `make` is called at its first use. `make` must not use the table.
    #[must_use]
    pub fn made_later(ranks: usize, make: impl Fn(usize) -> T + 'static) -> Self {
        let pages = (0..ranks.div_ceil(PAGE)).map(|_| OnceCell::new()).collect();
        let later = Later { ranks, pages, made: RefCell::default(), make: Box::new(make) };
        Self { all: Rc::new([]), later: Some(Rc::new(later)) }
    }

    /// The entry of a rank, if all entries were made with the table; fast paths use this. [`Index`] makes missing
    /// entries.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, rank: usize) -> Option<&T> {
        self.all.get(rank)
    }

    /// Number of ranks.
    #[inline]
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.later.as_ref().map_or(self.all.len(), |later| later.ranks)
    }

    /// Whether entries are made at their first use.
    #[inline]
    #[must_use]
    pub fn is_made_later(&self) -> bool {
        self.later.is_some()
    }

    /// The existing entries, including those that are made meanwhile: by rank if all were made with the table,
    /// otherwise in the order of their first use.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        Entries { all: self.all.iter(), later: self.later.as_deref(), next: 0 }
    }

    /// All entries; empty if entries are made at their first use.
    ///
    /// # Panics
    /// If the table has clones.
    pub fn all_mut(&mut self) -> &mut [T] {
        Rc::get_mut(&mut self.all).expect("a table is changed before it is cloned")
    }

    /// Makes an entry that is not put into the table; `None` if the table has all of them.
    #[must_use]
    pub fn sample(&self, rank: usize) -> Option<T> {
        self.later.as_ref().map(|later| (later.make)(rank))
    }

    #[cold]
    #[inline(never)]
    fn entry(&self, rank: usize) -> &T {
        match &self.later {
            Some(later) if rank < later.ranks => later.entry(rank),
            _ => panic!("rank {rank} of a team of {}", self.ranks()),
        }
    }
}

impl<T> Later<T> {
    fn entry(&self, rank: usize) -> &T {
        let page = self.pages[rank / PAGE].get_or_init(|| Box::new([const { OnceCell::new() }; PAGE]));
        page[rank % PAGE].get_or_init(|| {
            let entry = Box::new((self.make)(rank));
            self.made.borrow_mut().push(rank as u32);
            entry
        })
    }

    #[inline(never)]
    fn made(&self, index: usize) -> Option<&T> {
        let rank = self.made.borrow().get(index).copied()?;
        Some(self.entry(rank as usize))
    }
}

/// The entries of a table. If the table has all entries, the iteration is over a slice.
struct Entries<'a, T> {
    all: std::slice::Iter<'a, T>,
    later: Option<&'a Later<T>>,
    /// Index of the next entry among those that are made.
    next: usize,
}

impl<'a, T> Iterator for Entries<'a, T> {
    type Item = &'a T;

    #[inline(always)]
    fn next(&mut self) -> Option<&'a T> {
        self.all.next().or_else(|| {
            let entry = self.later?.made(self.next)?;
            self.next += 1;
            Some(entry)
        })
    }
}

impl<T> Index<usize> for PeerTable<T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, rank: usize) -> &T {
        match self.all.get(rank) {
            Some(entry) => entry,
            None => self.entry(rank),
        }
    }
}

impl<T> Clone for PeerTable<T> {
    fn clone(&self) -> Self {
        Self { all: Rc::clone(&self.all), later: self.later.clone() }
    }
}

impl<T: fmt::Debug> fmt::Debug for PeerTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn entries_are_made_once_when_they_are_first_used() {
        let calls = Rc::new(Cell::new(0));
        let count = Rc::clone(&calls);
        let table = PeerTable::made_later(1000, move |rank| {
            count.set(count.get() + 1);
            10 * rank
        });
        assert!(table.is_made_later() && table.ranks() == 1000 && table.get(7).is_none() && table.iter().count() == 0);
        for rank in [999, 7, 63, 64, 999] {
            assert_eq!(table[rank], 10 * rank);
        }
        assert_eq!(table.iter().copied().collect::<Vec<_>>(), [9990, 70, 630, 640]);
        // The iteration includes entries that are made while it runs.
        let mut seen = 0;
        table.iter().for_each(|entry| {
            seen += 1;
            assert_eq!(table[entry / 10 / 2] % 10, 0);
        });
        assert_eq!((seen, calls.get()), (table.iter().count(), seen));
        assert_eq!(table.sample(5), Some(50));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| table[1000])).is_err());
    }

    #[test]
    fn table_of_all_has_its_entries_at_hand() {
        let mut table = PeerTable::of_all(vec![1, 2]);
        table.all_mut()[1] = 3;
        assert_eq!((table.get(1), table[0], table.ranks(), table.get(2)), (Some(&3), 1, 2, None));
        assert!(table.iter().eq(&[1, 3]) && !table.is_made_later() && table.sample(0).is_none());
    }
}
