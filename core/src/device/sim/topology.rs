//! Topologies: the links between the network interfaces of the ranks, and the static route of each pair of ranks.
//!
//! Each cable is two directed links, which are numbered separately. In fat trees and dragonflies the cable between a
//! rank and its switch counts too, so the route between two different ranks has at least two links; in a torus a rank's
//! interface is the node itself.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind, Result};

/// Maximum number of ranks of a topology.
const MAX_RANKS: u64 = 1 << 20;
/// Maximum number of directed links of a topology.
const MAX_LINKS: u64 = 1 << 24;

/// A topology: which links a message passes between the network interfaces of two ranks.
///
/// ```
/// use farside_core::sim::Topology;
///
/// let tree: Topology = "fat-tree:16x16/8x8".parse()?;
/// assert_eq!(tree, Topology::FatTree { down: vec![16, 16], up: vec![8, 8] });
/// assert_eq!((tree.ranks(), tree.to_string().as_str()), (Some(256), "fat-tree:16x16/8x8"));
/// # Ok::<(), farside_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Every pair of ranks has a separate path (crossbar): only interfaces are shared.
    Crossbar,
    /// Extended generalised fat tree (Öhring et al. 1995) with one cable per rank. Radices are given per level of
    /// switches, bottom first. Messages climb to the lowest common level; the uplink is chosen by the destination
    /// (D-Mod-K, Zahavi 2012), so a tree with `up` equal to `down` routes every cyclic shift of the ranks without
    /// contention.
    FatTree {
        /// Children of each switch.
        down: Vec<u32>,
        /// Parents of each switch; fewer than children is oversubscribed. The last entry, that of the top level, has no
        /// links.
        up: Vec<u32>,
    },
    /// Dragonfly (Kim et al. 2008) with all-to-all links inside a group, one global link between each pair of groups,
    /// and minimal routing: at most one global link. A group's global links are assigned to its routers round-robin.
    Dragonfly {
        /// Number of groups.
        groups: u32,
        /// Routers of each group.
        routers: u32,
        /// Ranks of each router.
        ranks: u32,
    },
    /// 3-D torus, one rank per node, the first dimension varying fastest. Routing is dimension-ordered, in each dimension
    /// in the direction with fewer links, or in the positive one if both have as many.
    Torus([u32; 3]),
}

/// The cables between one level of a fat tree and the next one, numbered by the lower end's subtree and then by the upper
/// end's plane. Switches of a level that have the same ranks below them differ by their plane; a switch in plane `p` has
/// its children in the plane that is `p` modulo their number of planes.
#[derive(Clone, Copy)]
struct Stage {
    /// Number of the first link.
    first: u64,
    /// Ranks below the lower end.
    below: u64,
    /// Number of planes of the upper level.
    planes: u64,
}

impl Stage {
    const BOTTOM: Self = Self { first: 0, below: 1, planes: 1 };

    /// Number of links of this stage in a tree of `ranks` ranks.
    fn links(self, ranks: u64) -> u64 {
        (ranks / self.below).saturating_mul(self.planes).saturating_mul(2)
    }

    fn above(self, ranks: u64, down: u32, up: u32) -> Self {
        Self {
            first: self.first.saturating_add(self.links(ranks)),
            below: self.below.saturating_mul(down.into()),
            planes: self.planes.saturating_mul(up.into()),
        }
    }

    fn beneath(self, ranks: u64, down: u32, up: u32) -> Self {
        let lower = Self { first: 0, below: self.below / u64::from(down), planes: self.planes / u64::from(up) };
        Self { first: self.first - lower.links(ranks), ..lower }
    }

    /// The uplink above `rank` that leads to `to`; the downlink is the next number.
    fn uplink(self, rank: u64, to: u64) -> usize {
        (self.first + 2 * (rank / self.below * self.planes + to % self.planes)) as usize
    }
}

/// The index of `other` among all numbers except `own`.
fn among_others(own: u64, other: u64) -> u64 {
    other - u64::from(other > own)
}

fn product(factors: &[u32]) -> u64 {
    factors.iter().fold(1, |all, factor| all.saturating_mul((*factor).into()))
}

/// Links of a torus that leave each node in a dimension of `size`: two nodes have one cable between them.
fn torus_degree(size: u64) -> u64 {
    size.saturating_sub(1).min(2)
}

impl Topology {
    /// The maximum number of ranks; `None` if any number is possible.
    #[must_use]
    pub fn ranks(&self) -> Option<u32> {
        self.room().map(|ranks| u32::try_from(ranks).unwrap_or(u32::MAX))
    }

    /// The product of the radices that determine the number of ranks, at most `u64::MAX`; `None` if any number of ranks
    /// is possible.
    fn room(&self) -> Option<u64> {
        match self {
            Topology::Crossbar => None,
            Topology::FatTree { down, .. } => Some(product(down)),
            Topology::Dragonfly { groups, routers, ranks } => Some(product(&[*groups, *routers, *ranks])),
            Topology::Torus(size) => Some(product(size)),
        }
    }

    fn all_links(&self) -> u64 {
        let room = self.room().unwrap_or(0);
        match self {
            Topology::Crossbar => 0,
            Topology::FatTree { down, up } => {
                let levels = down.iter().zip(up);
                levels.fold(Stage::BOTTOM, |stage, (down, up)| stage.above(room, *down, *up)).first
            }
            Topology::Dragonfly { groups, routers, .. } => {
                let pairs = |n: u32| u64::from(n) * u64::from(n).saturating_sub(1);
                let local = pairs(*routers).saturating_mul((*groups).into());
                room.saturating_mul(2).saturating_add(local).saturating_add(pairs(*groups))
            }
            Topology::Torus(size) => room.saturating_mul(size.map(|size| torus_degree(size.into())).iter().sum()),
        }
    }

    /// Number of directed links: each direction of a cable is a separate link. The topology has passed
    /// [`check`](Self::check).
    pub(crate) fn links(&self) -> usize {
        self.all_links() as usize
    }

    /// Passes the numbers of the directed links from one rank to another to `each`, in order: none if the ranks are the
    /// same, or in a crossbar. The topology has passed [`check`](Self::check), and both ranks are below
    /// [`ranks`](Self::ranks).
    pub(crate) fn route(&self, from: u32, to: u32, each: impl FnMut(usize)) {
        if from == to {
            return;
        }
        match self {
            Topology::Crossbar => {}
            Topology::FatTree { down, up } => fat_tree(down, up, from.into(), to.into(), each),
            Topology::Dragonfly { groups, routers, ranks } => {
                dragonfly([*groups, *routers, *ranks].map(u64::from), from.into(), to.into(), each);
            }
            Topology::Torus(size) => torus(size.map(u64::from), from.into(), to.into(), each),
        }
    }

    /// Checks that the topology is well-formed, has room for `ranks`, and is not too large to simulate.
    ///
    /// # Errors
    /// `BadArgument`.
    pub(crate) fn check(&self, ranks: u32) -> Result<()> {
        let bad = |cause: String, remedy: &str| {
            let error = Error::new(ErrorKind::BadArgument, "validate the simulated network");
            Err(error.cause(format!("{self}: {cause}")).remedy(remedy))
        };
        let zero = match self {
            Topology::Crossbar => return Ok(()),
            Topology::FatTree { down, up } if down.is_empty() || down.len() != up.len() => {
                return bad(
                    format!("the fat tree has {} radices down and {} up", down.len(), up.len()),
                    "give a fat tree one radix down and one up for each level of switches",
                );
            }
            Topology::FatTree { down, up } => down.contains(&0) || up.contains(&0),
            Topology::Dragonfly { groups, routers, ranks } => [groups, routers, ranks].contains(&&0),
            Topology::Torus(size) => size.contains(&0),
        };
        if zero {
            return bad("a radix is 0".to_owned(), "give radices of at least 1");
        }
        let room = self.room().unwrap_or(u64::MAX);
        if room > MAX_RANKS {
            return bad(format!("the topology has more than {MAX_RANKS} ports"), "give smaller radices");
        }
        if self.all_links() > MAX_LINKS {
            return bad(format!("the topology has more than {MAX_LINKS} links"), "give smaller radices");
        }
        if room < ranks.into() {
            return bad(
                format!("the topology has ports for {room} of {ranks} ranks"),
                "give larger radices, or fewer ranks",
            );
        }
        Ok(())
    }
}

fn fat_tree(down: &[u32], up: &[u32], from: u64, to: u64, mut each: impl FnMut(usize)) {
    let ranks = product(down);
    let (mut stage, mut below) = (Stage::BOTTOM, 0);
    for (down, up) in down.iter().zip(up) {
        each(stage.uplink(from, to));
        let switch = stage.below * u64::from(*down);
        if from / switch == to / switch {
            break;
        }
        stage = stage.above(ranks, *down, *up);
        below += 1;
    }
    each(stage.uplink(to, to) + 1);
    for (down, up) in down.iter().zip(up).take(below).rev() {
        stage = stage.beneath(ranks, *down, *up);
        each(stage.uplink(to, to) + 1);
    }
}

/// Links are numbered: two for each rank, those inside each group by their routers, and those between groups.
fn dragonfly([groups, routers, ranks]: [u64; 3], from: u64, to: u64, mut each: impl FnMut(usize)) {
    let mut pass = |link: u64| each(link as usize);
    let first_local = 2 * groups * routers * ranks;
    let first_global = first_local + groups * routers * (routers - 1);
    // Routers are numbered in their group.
    let local = |group: u64, from: u64, to: u64| {
        let link = (group * routers + from) * (routers - 1) + among_others(from, to);
        (from != to).then_some(first_local + link)
    };
    let [(a, out), (b, last)] = [from, to].map(|rank| (rank / ranks / routers, rank / ranks % routers));
    pass(2 * from);
    if a == b {
        local(a, out, last).map(&mut pass);
    } else {
        let (there, back) = (among_others(a, b), among_others(b, a));
        local(a, out, there % routers).map(&mut pass);
        pass(first_global + a * (groups - 1) + there);
        local(b, back % routers, last).map(&mut pass);
    }
    pass(2 * to + 1);
}

/// Links are numbered by dimension, node, and direction, the positive one first.
fn torus(size: [u64; 3], from: u64, to: u64, mut each: impl FnMut(usize)) {
    let nodes: u64 = size.iter().product();
    let (mut first, mut stride, mut node) = (0, 1, from);
    for size in size {
        let degree = torus_degree(size);
        let (mut at, end) = (from / stride % size, to / stride % size);
        let ahead = (end + size - at) % size;
        let (links, step, direction) = if 2 * ahead <= size { (ahead, 1, 0) } else { (size - ahead, size - 1, 1) };
        for _ in 0..links {
            each((first + node * degree + direction) as usize);
            let next = (at + step) % size;
            node = node - at * stride + next * stride;
            at = next;
        }
        first += nodes * degree;
        stride *= size;
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let radices = |f: &mut fmt::Formatter<'_>, before: &str, all: &[u32]| {
            f.write_str(before)?;
            all.iter().enumerate().try_for_each(|(i, radix)| write!(f, "{}{radix}", if i == 0 { "" } else { "x" }))
        };
        match self {
            Topology::Crossbar => f.write_str("crossbar"),
            Topology::FatTree { down, up } => {
                radices(f, "fat-tree:", down)?;
                radices(f, "/", up)
            }
            Topology::Dragonfly { groups, routers, ranks } => radices(f, "dragonfly:", &[*groups, *routers, *ranks]),
            Topology::Torus(size) => radices(f, "torus:", size),
        }
    }
}

fn parse(text: &str) -> Option<Topology> {
    let radices = |text: &str| text.split('x').map(|radix| radix.parse().ok()).collect::<Option<Vec<u32>>>();
    let three = |text: &str| <[u32; 3]>::try_from(radices(text)?).ok();
    if text == "crossbar" {
        return Some(Topology::Crossbar);
    }
    let (shape, rest) = text.split_once(':')?;
    match shape {
        "fat-tree" => {
            let (down, up) = rest.split_once('/')?;
            Some(Topology::FatTree { down: radices(down)?, up: radices(up)? })
        }
        "dragonfly" => three(rest).map(|[groups, routers, ranks]| Topology::Dragonfly { groups, routers, ranks }),
        "torus" => three(rest).map(Topology::Torus),
        _ => None,
    }
}

impl FromStr for Topology {
    type Err = Error;

    /// Parses the form that `Display` writes. Whether the radices form a valid topology is checked when a network is
    /// made from it.
    fn from_str(text: &str) -> Result<Self> {
        parse(text.trim()).ok_or_else(|| {
            Error::new(ErrorKind::Setting, "read a topology").cause(format!("{text:?} is not a topology")).remedy(
                "write `crossbar`, `fat-tree:DOWNxDOWN../UPxUP..`, `dragonfly:GROUPSxROUTERSxRANKS` or `torus:XxYxZ`",
            )
        })
    }
}

#[cfg(test)]
mod tests;
