//! How good a port is for a rank: its bandwidth, and the distance of its adapter from the rank's processors. Ports are
//! ranked by bandwidth, then InfiniBand before Ethernet, then by distance; among equal ones, the ranks of a machine take
//! turns.

use std::cmp::Reverse;
use std::fmt;
use std::fs;

/// The merits of a port for one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Merit {
    /// Bandwidth in Mb/s.
    pub(super) speed: u32,
    /// NUMA distance of the adapter from the rank's processors, as the kernel gives it (10 is the same node); 0 if it is
    /// unknown, or the rank may run on several nodes.
    pub(super) distance: u8,
}

impl Merit {
    /// The sort key: the best is least.
    pub(super) fn order(self, ethernet: bool) -> (Reverse<u32>, bool, u8) {
        (Reverse(self.speed), ethernet, self.distance)
    }
}

impl fmt::Display for Merit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, tenth) = (self.speed / 1000, self.speed % 1000 / 100);
        match tenth {
            0 => write!(f, "{whole} Gb/s"),
            tenth => write!(f, "{whole}.{tenth} Gb/s"),
        }?;
        match self.distance {
            0 => Ok(()),
            10 => f.write_str(", on the rank's NUMA node"),
            distance => write!(f, ", at NUMA distance {distance}"),
        }
    }
}

/// Bandwidth in Mb/s of a port whose width and speed have these codes (`width_str` and `speed_str` of rdma-core's
/// `ibv_devinfo`); 0 for unknown ones.
pub(super) fn speed(width: u8, speed: u8) -> u32 {
    let lanes = match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 0,
    };
    let lane = match speed {
        1 => 2_500,
        2 => 5_000,
        4 | 8 => 10_000,
        16 => 14_000,
        32 => 25_000,
        64 => 50_000,
        128 => 100_000,
        _ => 0,
    };
    lanes * lane
}

/// Parses a list of numbers and ranges, as in `0-3,8`.
fn numbers(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

/// The NUMA node of the processors on which this process may run, and the distances of all nodes from it.
#[derive(Debug, Default)]
pub(super) struct Nearness(Vec<u8>);

impl Nearness {
    /// Reads the kernel's files. Nothing is near or far if the process may run on several nodes.
    pub(super) fn now() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let node = |n: u32| format!("/sys/devices/system/node/node{n}");
        let status = read("/proc/self/status");
        let allowed =
            status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).map(numbers).unwrap_or_default();
        let nodes = numbers(&read("/sys/devices/system/node/online"));
        let processors = nodes.iter().map(|n| (*n, numbers(&read(&format!("{}/cpulist", node(*n))))));
        let own = home(&allowed, &processors.collect::<Vec<_>>());
        let distances = own.map(|n| read(&format!("{}/distance", node(n)))).unwrap_or_default();
        Self(distances.split_whitespace().map(|d| d.parse().unwrap_or(0)).collect())
    }

    /// Distance of an RDMA device.
    pub(super) fn of(&self, device: &str) -> u8 {
        let node = fs::read_to_string(format!("/sys/class/infiniband/{device}/device/numa_node"));
        // -1 is a device without a node.
        let node = node.ok().and_then(|text| text.trim().parse::<usize>().ok());
        node.and_then(|node| self.0.get(node).copied()).unwrap_or(0)
    }
}

/// The node that has all `allowed` processors, given the processors of each node.
fn home(allowed: &[u32], nodes: &[(u32, Vec<u32>)]) -> Option<u32> {
    let has_all = |(_, processors): &&(u32, Vec<u32>)| allowed.iter().all(|p| processors.contains(p));
    nodes.iter().find(has_all).map(|(node, _)| *node).filter(|_| nodes.len() > 1 && !allowed.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidth_is_width_times_speed() {
        // 4x HDR, 4x NDR, 4x EDR, 1x QDR, 2x HDR, 4x SDR, and codes of the future.
        for (width, code, expected) in [
            (2, 64, 200_000),
            (2, 128, 400_000),
            (2, 32, 100_000),
            (1, 4, 10_000),
            (16, 64, 100_000),
            (2, 1, 10_000),
            (32, 64, 0),
            (2, 0, 0),
        ] {
            assert_eq!(speed(width, code), expected, "{width} {code}");
        }
    }

    #[test]
    fn rank_is_near_a_node_only_if_it_runs_there_alone() {
        let nodes = [(0, (0..8).collect()), (1, (8..16).collect())];
        assert_eq!(home(&numbers("2-3,7"), &nodes), Some(0));
        assert_eq!(home(&numbers("8"), &nodes), Some(1));
        assert_eq!(home(&numbers("0-15"), &nodes), None);
        assert_eq!(home(&numbers("0-7"), &nodes[..1]), None, "a machine of one node");
        assert_eq!(home(&[], &nodes), None);
    }

    #[test]
    fn merit_says_what_it_is() {
        let merit = |speed, distance| Merit { speed, distance }.to_string();
        assert_eq!(merit(200_000, 10), "200 Gb/s, on the rank's NUMA node");
        assert_eq!(merit(2_500, 32), "2.5 Gb/s, at NUMA distance 32");
        assert_eq!(merit(10_000, 0), "10 Gb/s");
    }
}
