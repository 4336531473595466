//! NUMA nodes: groups of processors with the same local memory.

use std::path::Path;

/// The processors of each NUMA node that are among `allowed`, by the number of the node, without nodes that have none.
/// `folder` is `/sys/devices/system/node`. All allowed processors are one node if the system reports none.
pub(crate) fn nodes(folder: &Path, allowed: &[usize]) -> Vec<Vec<usize>> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut nodes: Vec<(usize, Vec<usize>)> = entries
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
            let listed = list(&std::fs::read_to_string(entry.path().join("cpulist")).ok()?)?;
            let processors: Vec<usize> = allowed.iter().copied().filter(|p| listed.contains(p)).collect();
            (!processors.is_empty()).then_some((number, processors))
        })
        .collect();
    nodes.sort_unstable();
    match nodes.is_empty() {
        true => vec![allowed.to_vec()],
        false => nodes.into_iter().map(|(_, processors)| processors).collect(),
    }
}

/// The numbers of a list in the kernel's format: `0-3,8,10-11`.
fn list(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (usize, usize) = (from.parse().ok()?, to.parse().ok()?);
        // No machine has more than 2^20 processors.
        numbers.extend(from..=to.min(1 << 20));
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_their_allowed_processors() {
        let folder = tempfile::tempdir().unwrap();
        for (name, cpulist) in [("node10", "12-15\n"), ("node0", "0-3,8-11\n"), ("node1", "4-7\n"), ("node2", "\n")] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            std::fs::write(folder.path().join(name).join("cpulist"), cpulist).unwrap();
        }
        std::fs::create_dir(folder.path().join("power")).unwrap();
        std::fs::write(folder.path().join("online"), "0-2\n").unwrap();
        let nodes = |allowed: &[usize]| nodes(folder.path(), allowed);
        assert_eq!(nodes(&[0, 3, 4, 9, 13]), [vec![0, 3, 9], vec![4], vec![13]]);
        assert_eq!(nodes(&[6, 7]), [[6, 7]]);
        assert_eq!(nodes(&[77]), [[77]], "the system does not tell");
        assert_eq!(super::nodes(Path::new("/nowhere"), &[1, 2]), [[1, 2]]);
    }

    #[test]
    fn list_is_read_as_the_kernel_writes_it() {
        assert_eq!(list("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!((list(""), list("3-x")), (Some(vec![]), None));
    }
}
