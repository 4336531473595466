//! Finds the ranks that share memory: those with the same kernel, PID and user namespace, shared-memory file system and
//! user. A process whose executable its user may not read shares memory with no other process, since none may open its
//! memory.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{DumpableBehavior, dumpable_behavior, geteuid};

use super::start::EndpointAddress;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::segment::unusable;
use crate::wire::{Reader, Writer};

/// Location of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// Equal for processes that share memory. The first three words identify the running kernel.
    machine: Vec<u8>,
    /// Number of the simulated node (`FARSIDE_TEST_NODES`).
    counted: u32,
}

impl Node {
    /// Location of this process, which is rank `rank` of the job.
    pub(super) fn of(rank: u32, dir: &Path, nodes: Option<u32>) -> Result<Self> {
        let op = "identify this rank's node";
        let boot = fs::read("/proc/sys/kernel/random/boot_id").map_err(|e| Error::system(op, e))?;
        let pids = fs::read_link("/proc/self/ns/pid").map_err(|e| Error::system(op, e))?;
        // The file does not exist if the kernel has no user namespaces.
        let users = fs::read_link("/proc/self/ns/user").unwrap_or_default();
        let meta = fs::metadata(dir).map_err(|e| unusable(op, dir, e))?;
        let user = geteuid();
        let is_closed = !user.is_root() && !matches!(dumpable_behavior(), Ok(DumpableBehavior::Dumpable) | Err(_));
        let alone = if is_closed { format!(" unreadable process {}", std::process::id()) } else { String::new() };
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let text = format!(
            "{} boot {} {} {} device {} user {}{alone}",
            host.trim(),
            String::from_utf8_lossy(&boot).trim(),
            pids.display(),
            users.display(),
            meta.dev(),
            user.as_raw()
        );
        Ok(Self { machine: text.into_bytes(), counted: nodes.map_or(0, |n| rank % n) })
    }

    pub(super) fn write(&self, w: Writer) -> Writer {
        w.u32(self.counted).bytes(&self.machine)
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Option<Self> {
        Some(Self { counted: r.u32()?, machine: r.bytes()?.to_vec() })
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.machine))?;
        if self.counted > 0 { write!(f, ", counted as node {}", self.counted) } else { Ok(()) }
    }
}

/// The nodes of a job, the same at all its ranks.
#[derive(Clone, Debug)]
pub(crate) struct Nodes {
    /// The lowest rank of each rank's node.
    first: Vec<u32>,
    nodes: Vec<Node>,
}

impl Nodes {
    /// Derives the nodes from the endpoint addresses of all ranks of the job.
    ///
    /// # Errors
    /// `Protocol` for a malformed endpoint address.
    pub(crate) fn of(addresses: &[Vec<u8>]) -> Result<Self> {
        let read = |(rank, bytes): (usize, &Vec<u8>)| {
            let malformed = || Error::new(ErrorKind::Protocol, "find the ranks of this node").peer(rank as u32);
            Ok(EndpointAddress::read(bytes)
                .ok_or_else(|| malformed().device("shm").cause("malformed endpoint address"))?
                .node)
        };
        let nodes: Vec<Node> = addresses.iter().enumerate().map(read).collect::<Result<_>>()?;
        Ok(Self::group(nodes))
    }

    fn group(nodes: Vec<Node>) -> Self {
        let first = |n: &Node| nodes.iter().position(|m| m == n).unwrap_or(0) as u32;
        Self { first: nodes.iter().map(first).collect(), nodes }
    }

    /// Number of nodes.
    pub(crate) fn count(&self) -> usize {
        self.first.iter().enumerate().filter(|(rank, first)| *rank == **first as usize).count()
    }

    /// Whether ranks of one machine do not share memory.
    pub(crate) fn divide_a_machine(&self) -> bool {
        let lowest = || self.nodes.iter().zip(&self.first).zip(0..).filter(|((_, first), rank)| **first == *rank);
        let kernel = |node: &'_ Node| node.machine.splitn(4, |byte| *byte == b' ').take(3).collect::<Vec<_>>().concat();
        let mut kernels: Vec<_> = lowest().map(|((node, _), _)| (kernel(node), node.counted)).collect();
        kernels.sort_unstable();
        kernels.windows(2).any(|two| two[0] == two[1])
    }

    /// The lowest rank of each rank's node.
    pub(crate) fn lowest(&self) -> &[u32] {
        &self.first
    }

    /// The ranks that share memory with `rank`, including itself, in ascending order.
    pub(crate) fn sharing_with(&self, rank: u32) -> Vec<u32> {
        let node = self.first[rank as usize];
        (0..self.first.len() as u32).filter(|r| self.first[*r as usize] == node).collect()
    }
}

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (rank, first) in self.first.iter().enumerate().filter(|(rank, first)| *rank == **first as usize) {
            let ranks: Vec<String> = self.sharing_with(*first).iter().map(u32::to_string).collect();
            let (many, between) = (if ranks.len() == 1 { "" } else { "s" }, if rank == 0 { "" } else { "; " });
            write!(f, "{between}rank{many} {} on `{}`", ranks.join(", "), self.nodes[rank])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(machine: &str, counted: u32) -> Node {
        Node { machine: machine.into(), counted }
    }

    #[test]
    fn ranks_of_equal_nodes_share_memory() {
        let nodes = Nodes::group(vec![node("a", 0), node("b", 0), node("a", 0), node("b", 1), node("a", 0)]);
        assert_eq!(nodes.count(), 3);
        assert_eq!(nodes.sharing_with(4), [0, 2, 4]);
        assert_eq!(nodes.sharing_with(1), [1]);
        assert_eq!(nodes.to_string(), "ranks 0, 2, 4 on `a`; rank 1 on `b`; rank 3 on `b, counted as node 1`");
        assert!(!nodes.divide_a_machine(), "the ranks of a node, and nodes that are only counted as such");
        assert!(
            Nodes::group(vec![node("a boot 1 user 2", 0), node("b boot 2", 0), node("a boot 1 user 3", 0)])
                .divide_a_machine()
        );
    }

    #[test]
    fn processes_of_one_machine_are_on_one_node_unless_they_count_as_on_several() {
        let dir = Path::new("/dev/shm");
        assert_eq!(Node::of(0, dir, None).unwrap(), Node::of(7, dir, None).unwrap());
        assert_eq!(Node::of(1, dir, Some(2)).unwrap(), Node::of(3, dir, Some(2)).unwrap());
        assert_ne!(Node::of(1, dir, Some(2)).unwrap(), Node::of(2, dir, Some(2)).unwrap());
    }
}
