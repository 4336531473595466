//! The ranks that communicate in each round of a butterfly-like reduction, for every number of ranks.
//!
//! Consecutive ranks form groups, initially of one rank each. A round merges consecutive groups, so a group always
//! holds the contributions of consecutive ranks and the order of the ranks is kept. All groups have the same number of
//! active ranks, the width; the active ranks with the same index in their groups communicate. A rank that a round
//! eliminates is no longer active.

/// A factor of the number of groups, or a method to eliminate the groups in excess of a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Factor {
    /// Pairs of groups exchange.
    Butterfly,
    /// Rings of this many groups.
    Ring(u32),
    /// 2-1 eliminations down to a power of two, then the butterfly.
    TwoOne,
    /// 3-2 eliminations in each round with an odd number of groups (Rabenseifner, Träff 2004, section 3.2).
    Overlapping,
    /// A 3-2 elimination and then 2-1 eliminations down to a power of two, then the butterfly (section 3.3): for an odd
    /// number of groups.
    NonOverlapping,
}

/// The action of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// Every run of this many consecutive groups becomes one group: an exchange of pairs, or of rings.
    All(u32),
    /// The first three groups become one with two active ranks for each index (3-2 elimination); the others exchange in
    /// pairs.
    ThreeTwo,
    /// `pairs` pairs of groups, from group `first` on, become one group each, with the active ranks of the first group
    /// (2-1 elimination). The other groups are unchanged.
    TwoOne {
        /// First group of the first pair.
        first: u32,
        /// Number of pairs.
        pairs: u32,
    },
}

/// One round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// The action.
    pub(crate) merge: Merge,
    /// Whether the ranks of a cluster split their piece of the vector among them (vector halving).
    pub(crate) halved: bool,
    /// Active ranks of each group before the round.
    pub(crate) width: u32,
}

/// The exchange among the groups of a cluster, which become one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// A single group: no action.
    Alone,
    /// An exchange of this many groups.
    Exchange(u32),
    /// 3-2 elimination: the third group is eliminated.
    ThreeTwo,
    /// 2-1 elimination: the second group is eliminated.
    TwoOne,
}

/// Groups that a round merges into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cluster {
    /// The exchange among the groups.
    pub(crate) meeting: Meeting,
    /// The cluster's first group.
    pub(crate) first: u32,
    /// The number of the merged group.
    pub(crate) number: u32,
}

impl Cluster {
    /// Whether the groups at this position are eliminated.
    pub(crate) fn eliminates(&self, position: u32) -> bool {
        matches!((self.meeting, position), (Meeting::ThreeTwo, 2) | (Meeting::TwoOne, 1))
    }

    /// The position that keeps the part of the vector of `position`.
    pub(crate) fn keeper(&self, position: u32) -> u32 {
        position - u32::from(self.eliminates(position))
    }
}

/// A rank's position in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The round.
    pub(crate) round: usize,
    /// The cluster of the rank's group.
    pub(crate) cluster: Cluster,
    /// The position of the rank's group in the cluster.
    pub(crate) position: u32,
    /// The number of the rank in its group.
    pub(crate) index: u32,
}

/// The rounds of a reduction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    rounds: Vec<Round>,
    parts: u32,
}

impl Round {
    /// The number of pieces into which the round divides a vector, if it is halved.
    pub(crate) fn ways(&self) -> u32 {
        match self.merge {
            Merge::All(r) => r,
            Merge::ThreeTwo => 2,
            Merge::TwoOne { .. } => 1,
        }
    }

    /// The cluster of a group, and the position of the group in it.
    pub(crate) fn cluster_of(&self, group: u32) -> (Cluster, u32) {
        let number = match self.merge {
            Merge::All(r) => group / r,
            Merge::ThreeTwo => (group.max(1) - 1) / 2,
            Merge::TwoOne { first, pairs } if group >= first => {
                if group < first + 2 * pairs {
                    first + (group - first) / 2
                } else {
                    group - pairs
                }
            }
            Merge::TwoOne { .. } => group,
        };
        let cluster = self.cluster(number);
        (cluster, group - cluster.first)
    }

    /// The cluster that becomes group `number`.
    fn cluster(&self, number: u32) -> Cluster {
        let (meeting, first) = match self.merge {
            Merge::All(r) => (Meeting::Exchange(r), number * r),
            Merge::ThreeTwo if number == 0 => (Meeting::ThreeTwo, 0),
            Merge::ThreeTwo => (Meeting::Exchange(2), 2 * number + 1),
            Merge::TwoOne { first, .. } if number < first => (Meeting::Alone, number),
            Merge::TwoOne { first, pairs } if number < first + pairs => (Meeting::TwoOne, 2 * number - first),
            Merge::TwoOne { pairs, .. } => (Meeting::Alone, number + pairs),
        };
        Cluster { meeting, first, number }
    }
}

impl Plan {
    /// The rounds for `p` ranks with these factors, one after the other, without halving.
    ///
    /// # Panics
    /// If a factor does not divide the number of groups at its round, or more than one group is left at the end.
    #[must_use]
    pub fn new(p: u32, factors: &[Factor]) -> Self {
        let (mut groups, mut width, mut rounds) = (p, 1, Vec::new());
        let mut merge = |merge: Merge, groups: &mut u32| {
            let round = Round { merge, halved: false, width };
            *groups = match merge {
                Merge::All(r) => {
                    assert!(groups.is_multiple_of(r), "{groups} groups in rings of {r}");
                    *groups / r
                }
                Merge::ThreeTwo => (*groups - 1) / 2,
                Merge::TwoOne { pairs, .. } => *groups - pairs,
            };
            width *= round.ways();
            rounds.push(round);
        };
        for factor in factors {
            match factor {
                Factor::Butterfly => merge(Merge::All(2), &mut groups),
                Factor::Ring(r) => merge(Merge::All(*r), &mut groups),
                Factor::TwoOne | Factor::Overlapping | Factor::NonOverlapping => {
                    let mut first = 0;
                    if *factor == Factor::NonOverlapping && groups > 1 {
                        merge(Merge::ThreeTwo, &mut groups);
                        first = 1;
                    }
                    let pairs = groups - (1 << groups.ilog2());
                    if *factor != Factor::Overlapping && pairs > 0 {
                        merge(Merge::TwoOne { first, pairs }, &mut groups);
                    }
                    while groups > 1 {
                        merge(if groups % 2 == 1 { Merge::ThreeTwo } else { Merge::All(2) }, &mut groups);
                    }
                }
            }
        }
        assert_eq!(groups, 1, "{p} ranks with {factors:?}");
        Self { rounds, parts: 1 }
    }

    /// Divides the piece in the first `rounds` rounds.
    #[must_use]
    pub fn halved(mut self, rounds: usize) -> Self {
        for (i, round) in self.rounds.iter_mut().enumerate() {
            round.halved = i < rounds;
        }
        self.parts = self.rounds.iter().filter(|r| r.halved).map(Round::ways).product();
        self
    }

    /// Divides the piece of a vector of `elements` in each round as long as the piece has more than `threshold`
    /// elements.
    pub(crate) fn halved_above(self, threshold: u64, elements: u64) -> Self {
        let mut piece = elements;
        let mut rounds = 0;
        while rounds < self.rounds.len() && piece > threshold {
            piece /= u64::from(self.rounds[rounds].ways());
            rounds += 1;
        }
        self.halved(rounds)
    }

    /// The rounds.
    #[must_use]
    pub fn rounds(&self) -> &[Round] {
        &self.rounds
    }

    /// Number of parts into which the vector is divided.
    pub(crate) fn parts(&self) -> u32 {
        self.parts
    }

    /// For each round: the cluster of the group that holds a rank's contribution, and the group's position in it.
    pub(crate) fn line(&self, rank: u32) -> impl Iterator<Item = (Cluster, u32)> + '_ {
        self.rounds.iter().scan(rank, |group, round| {
            let (cluster, position) = round.cluster_of(*group);
            *group = cluster.number;
            Some((cluster, position))
        })
    }

    /// The places of a rank in the rounds in which it is active, up to the round that eliminates it, if any.
    pub(crate) fn places(&self, rank: u32) -> Vec<Place> {
        let (mut places, mut index) = (Vec::new(), 0);
        for (round, (cluster, position)) in self.line(rank).enumerate() {
            places.push(Place { round, cluster, position, index });
            if cluster.eliminates(position) {
                break;
            }
            index += position * self.rounds[round].width;
        }
        places
    }

    /// The rank at another position with which a rank at `place` communicates.
    pub(crate) fn peer(&self, place: &Place, position: u32) -> u32 {
        self.active_before(place.round, place.cluster.first + position, place.index)
    }

    /// The rank with this index that is active at the end.
    pub(crate) fn active(&self, index: u32) -> u32 {
        self.active_before(self.rounds.len(), 0, index)
    }

    fn active_before(&self, round: usize, mut group: u32, mut index: u32) -> u32 {
        for round in self.rounds[..round].iter().rev() {
            group = round.cluster(group).first + index / round.width;
            index %= round.width;
        }
        group
    }
}
