//! The grid of ranks over which blocks travel: which rank is next on the way of an item.
//!
//! With `hops` hops, ranks are numbers of `hops` digits in base `side`, the smallest for which they are enough. Hop `k`
//! corrects digit `k`, lowest first. If the rank with the corrected digit does not exist, since the last row of the grid
//! is not full, the hop goes to the row before it, whose later hops are the same. A rank sends to at most `side` others
//! at each level (the number of hops that an item has behind it), and no block waits for room at its own level, so
//! blocks cannot wait for each other in a circle.

/// The maximum number of hops.
pub(super) const MAX_HOPS: usize = 3;
/// With shorter blocks, a further hop is preferred.
const MIN_BLOCK: usize = 2 << 10;
/// The longest block, in bytes: one packet over tcp.
const MAX_BLOCK: usize = 64 << 10;
/// Number of blocks to one rank that it has not consumed yet.
pub(super) const WINDOW: u32 = 2;

/// A grid of ranks as seen by one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    ranks: usize,
    me: usize,
    hops: usize,
    side: usize,
}

/// A hop: the index of its channel among those of this rank, and the rank at its other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hop {
    pub(super) channel: usize,
    pub(super) to: usize,
}

impl Grid {
    /// A grid with this number of hops, or with the fewest with which `bytes` of memory give blocks of 2 KiB.
    pub(super) fn new(ranks: usize, me: usize, hops: Option<usize>, bytes: usize) -> Self {
        let of = |hops: usize| {
            let side = (1..=ranks).find(|side| side.saturating_pow(hops as u32) >= ranks).unwrap_or(1);
            Self { ranks, me, hops, side }
        };
        match hops {
            Some(hops) => of(hops),
            None => (1..MAX_HOPS).map(of).find(|grid| grid.share(bytes) >= MIN_BLOCK).unwrap_or_else(|| of(MAX_HOPS)),
        }
    }

    /// The part of `bytes` for one block: a rank fills one for each of its channels, has [`WINDOW`] in progress to each,
    /// and holds as many of each rank that sends to it, of which there are up to twice as many in a grid of several rows.
    fn share(&self, bytes: usize) -> usize {
        let channels = self.hops * self.side - usize::from(self.hops == 1);
        let of_senders = if self.hops == 1 { WINDOW } else { 2 * WINDOW };
        bytes / (channels.max(1) * (1 + WINDOW + of_senders) as usize)
    }

    /// Bytes of a block: as many records of `record` bytes as fit into the share of `bytes`.
    pub(super) fn block(&self, record: usize, bytes: usize) -> usize {
        let share = self.share(bytes).min(MAX_BLOCK.max(record));
        share - share % record
    }

    pub(super) fn ranks(&self) -> usize {
        self.ranks
    }

    pub(super) fn me(&self) -> usize {
        self.me
    }

    pub(super) fn hops(&self) -> usize {
        self.hops
    }

    /// Number of channels, of which some may lead to no other rank.
    pub(super) fn channels(&self) -> usize {
        self.hops * self.side
    }

    /// The level of a channel.
    pub(super) fn level(&self, channel: usize) -> usize {
        channel / self.side
    }

    /// The next hop of an item for rank `dest` that is here at `level`; `None` if it has arrived.
    #[inline]
    pub(super) fn next(&self, dest: usize, level: usize) -> Option<Hop> {
        if self.hops == 1 {
            return (dest != self.me).then_some(Hop { channel: dest, to: dest });
        }
        (level..self.hops).find_map(|level| {
            let unit = self.side.pow(level as u32);
            let row = unit * self.side;
            let corrected = self.me - self.me % row + dest % row;
            let to = if corrected < self.ranks { corrected } else { corrected - row };
            (to != self.me).then_some(Hop { channel: level * self.side + dest / unit % self.side, to })
        })
    }

    /// The channel of this rank by which `to` gets blocks at `level`.
    pub(super) fn channel_to(&self, to: usize, level: usize) -> Option<usize> {
        let digit = to / self.side.pow(level as u32) % self.side;
        let channel = level * self.side + digit;
        self.next(to, level).filter(|hop| *hop == Hop { channel, to }).map(|hop| hop.channel)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;

    /// The ranks on the way, and the levels at which they are left.
    fn way(ranks: usize, hops: usize, from: usize, dest: usize) -> Vec<(usize, usize)> {
        let (mut at, mut level, mut way) = (from, 0, Vec::new());
        while let Some(hop) = Grid::new(ranks, at, Some(hops), 0).next(dest, level) {
            let grid = Grid::new(ranks, at, Some(hops), 0);
            assert!(grid.level(hop.channel) >= level && hop.to < ranks && hop.to != at);
            assert_eq!(grid.channel_to(hop.to, grid.level(hop.channel)), Some(hop.channel));
            level = grid.level(hop.channel) + 1;
            way.push((at, hop.channel));
            at = hop.to;
            assert!(level <= hops);
        }
        assert_eq!(at, dest);
        way
    }

    #[test]
    fn every_item_arrives_and_channels_have_one_end() {
        for ranks in (1..40).chain([64, 100, 125, 130]) {
            for hops in 1..=MAX_HOPS {
                let mut senders = HashMap::<(usize, usize), HashSet<usize>>::new();
                for (from, dest) in (0..ranks).flat_map(|from| (0..ranks).map(move |dest| (from, dest))) {
                    for (at, channel) in way(ranks, hops, from, dest) {
                        let grid = Grid::new(ranks, at, Some(hops), 0);
                        let to = grid.next(dest, grid.level(channel)).unwrap().to;
                        senders.entry((to, grid.level(channel))).or_default().insert(at);
                    }
                }
                let side = Grid::new(ranks, 0, Some(hops), 0).side;
                let most = if hops == 1 { ranks } else { 2 * side };
                assert!(senders.values().all(|senders| senders.len() <= most), "{ranks} ranks, {hops} hops");
            }
        }
    }

    #[test]
    fn hops_grow_with_the_ranks_and_blocks_fit_into_the_memory() {
        let hops = |ranks| Grid::new(ranks, 0, None, 1 << 20).hops();
        assert_eq!([2, 64, 100, 128, 1024, 4096].map(hops), [1, 1, 1, 2, 2, 3]);
        for ranks in [2, 3, 64, 1000, 4096] {
            let grid = Grid::new(ranks, 1, None, 1 << 20);
            let block = grid.block(16, 1 << 20);
            assert!(block > 0 && block.is_multiple_of(16) && block <= MAX_BLOCK);
            assert!(5 * block * (grid.channels() - 1) <= 1 << 20, "{ranks}");
        }
        assert_eq!(Grid::new(1000, 0, Some(1), 10_000).block(16, 10_000), 0);
    }
}
